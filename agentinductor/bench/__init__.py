"""How fast is it? Timing that survives its own A/A test, against Inductor's kernel for the same definition.

Reading order: timing (cold caches, CUDA graphs or a calibrated loop), baseline (the reference under torch.compile), speedup
(interleaved pairs and their confidence interval), roofline (what the hardware allows), worker (all of it, for a child
process), endtoend (whole models).

Imports schema, codegen and device. A candidate is timed in a child process only.
"""
