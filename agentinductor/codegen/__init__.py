"""Definitions become code: the oracle, kernels from templates, and what builds and launches them.

Reading order: reference (what a definition means, executed and printed), loops (its loop structure, and the walker that
writes values in any language), schedule (how to run the loops), triton_ops and triton_template, cuda_ops and
cuda_template, cpp_ops and cpp_template (`emit(definition, schedule) -> Solution`), builder and the builders beside it.
May import schema, errors, settings and observability only.
"""
