"""The oracle against PyTorch's own functions, and the printed reference against the oracle."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import definitions as examples  # noqa: E402

from agentinductor.codegen.reference import compile_source, evaluate, source


@pytest.mark.parametrize("name", examples.ALL)
@pytest.mark.parametrize("special", [False, True])
def test_printed_source_means_what_evaluate_does(name, special):
    definition = examples.ALL[name]()
    inputs = examples.make_inputs(definition, examples.SIZES[name], special=special)
    expected = evaluate(definition, inputs)
    actual = compile_source(source(definition))(*inputs)
    for spec, got, want in zip(definition.outputs, actual, expected, strict=True):
        assert got.dtype == want.dtype == examples.TORCH[spec.dtype]
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("name", examples.ALL)
def test_float64_mode_keeps_every_float_in_float64(name):
    definition = examples.ALL[name]()
    inputs = examples.make_inputs(definition, examples.SIZES[name])
    outputs = evaluate(definition, inputs, torch.float64)
    for spec, got, eager in zip(definition.outputs, outputs, evaluate(definition, inputs), strict=True):
        assert got.dtype == (torch.float64 if spec.dtype in ("bfloat16", "float32") else eager.dtype)
        torch.testing.assert_close(got.to(eager.dtype), eager, rtol=2e-2, atol=2e-2)


def test_against_torch_functions():
    x, w, b = torch.randn(5, 64), torch.randn(64), torch.randn(64)
    got = evaluate(examples.layer_norm(64, "float32"), [x, w, b])[0]
    torch.testing.assert_close(got, F.layer_norm(x, (64,), w, b))
    got = evaluate(examples.softmax(64, "float32"), [x])[0]
    torch.testing.assert_close(got, F.softmax(x, -1))
    got = evaluate(examples.rms_norm(64, "float32"), [x, w])[0]
    torch.testing.assert_close(got, F.rms_norm(x, (64,), w, 1e-5))
    got = evaluate(examples.gelu_bias_residual(64, "float32"), [x, b, x])[0]
    torch.testing.assert_close(got, F.gelu(x + b) + x)
    got = evaluate(examples.interleaved_halves(64), [x])[0]
    torch.testing.assert_close(got, torch.cat((x[:, ::2], x[:, 1::2].exp()), 1))


def test_printed_source_reads_like_a_person_wrote_it():
    text = source(examples.rms_norm())
    assert "t2 = t1.mean(-1, keepdim=True)" in text and "x1 = x1[" not in text
    assert "x0[..., 64:128]" in source(examples.rope())
