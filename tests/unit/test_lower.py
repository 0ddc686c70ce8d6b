"""A lowered region computes what its nodes computed, whatever views, broadcasts and spellings the graph used."""

import pytest
import torch
from torch.nn import functional as F

from agentinductor.backend.lower import lower
from agentinductor.backend.partition import partition
from agentinductor.codegen.reference import compile_source, evaluate, source
from agentinductor.errors import UnsupportedRegionError
from tests.support.capture import canonical, capture


def rms_norm(x, w):
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]), dim=-1)


def rope(q, cos, sin):
    q = q.view(2, 6, 4, 16).transpose(1, 2)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin


def qk_norm_rope(q, w, cos, sin):
    q = rms_norm(q.view(2, 6, 4, 16), w).transpose(1, 2)
    return q * cos.unsqueeze(1) + rotate_half(q) * sin.unsqueeze(1)


def masked_softmax(x, mask):
    return F.softmax(x * 0.3 + torch.where(mask, 0.0, -1e9).unsqueeze(1), dim=-1)


def channels_first_norm(x, w, b):
    u = x.mean(1, keepdim=True)
    s = (x - u).pow(2).mean(1, keepdim=True)
    return w[:, None, None] * ((x - u) / torch.sqrt(s + 1e-6)) + b[:, None, None]


def transposed_output(x, y):
    return (x * y + 1.5).permute(2, 0, 1), x.sigmoid() * 2


def split_gate(x):
    a, b = x.chunk(2, dim=-1)
    return F.silu(a) * b


def window_view(x, b):
    x = torch.relu(x).view(2, 4, 2, 4, 2, 8)
    return x.permute(0, 1, 3, 2, 4, 5) * 2 + b


r = torch.randn
bf = torch.bfloat16
CASES = {
    "rms_norm": (rms_norm, (r(2, 6, 64).to(bf), r(64).to(bf))),
    "add_rms_norm": (lambda x, y, w: (rms_norm(x + y, w), x + y), (r(2, 6, 64), r(2, 6, 64), r(64))),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (64,), w, b), (r(6, 64), r(64), r(64))),
    "layer_norm_2d": (lambda x, w: F.layer_norm(x, (4, 16), w), (r(6, 4, 16), r(4, 16))),
    "gelu_bias_residual": (lambda x, b, y: F.gelu(x + b) + y, (r(5, 48), r(48), r(5, 48))),
    "rope": (rope, (r(2, 6, 64), r(2, 6, 16), r(2, 6, 16))),
    "qk_norm_rope": (qk_norm_rope, (r(2, 6, 64), r(16), r(1, 6, 16), r(1, 6, 16))),
    "masked_softmax": (masked_softmax, (r(2, 3, 5, 24), torch.rand(2, 5, 24) > 0.3)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (r(5, 40),)),
    "channels_first_norm": (channels_first_norm, (r(2, 16, 4, 6), r(16), r(16))),
    "transposed_output": (transposed_output, (r(3, 4, 10), r(3, 4, 10))),
    "split_gate": (split_gate, (r(6, 64),)),
    "strided_input": (lambda x, y: (x.t() + y).exp() * 2, (r(40, 24), r(24, 40))),
    "window_view": (window_view, (r(2, 8, 8, 8), r(8))),
    "var_unbiased": (lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6), (r(6, 50),)),
    "clamp_where": (lambda x, y: torch.where(x > y, x.clamp(-0.5, 0.5), y.abs()) + 1, (r(7, 33), r(7, 33))),
    "int_mask": (lambda x, n: torch.where(torch.arange(40)[None, :] < n[:, None], x, 0.0).exp() * x,
                 (r(6, 40), torch.randint(1, 40, (6,)))),
    "full_reduction": (lambda x: ((x - 1) ** 2).mean(), (r(6, 40),)),
    "bool_reduction": (lambda x: ((x > 0) & (x < 1)).any(-1), (r(6, 40),)),
    "square_transpose": (lambda x: (x + x.t()).exp() * 3, (r(16, 16),)),
    "expanded_stats": (lambda x, s: (x - s.expand(6, 40)) * s.expand(6, 40), (r(6, 40), r(6, 1))),
}


def check(captured) -> int:
    """Compare each region of a captured graph; the number of regions that lowered."""
    lowered = 0
    for region in partition(captured.graph):
        try:
            item = lower(region)
        except UnsupportedRegionError:
            continue
        lowered += 1
        inputs = [canonical(b, captured.values[b.node]) for b in item.inputs]
        wants = [canonical(b, captured.values[b.node]) for b in item.outputs]
        for spec, tensor in zip(item.definition.inputs + item.definition.outputs, inputs + wants, strict=True):
            assert tuple(tensor.shape) == item.definition.shape(spec, item.workload.all_sizes(item.definition))
            assert str(tensor.dtype) == f"torch.{spec.dtype}"
        for gots in (evaluate(item.definition, inputs), compile_source(source(item.definition))(*inputs)):
            for got, want in zip(gots, wants, strict=True):
                torch.testing.assert_close(got, want, equal_nan=True)
    return lowered


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_region_equals_graph(name, dynamic):
    torch.manual_seed(0)
    function, args = CASES[name]
    regions = sum(check(c) for c in capture(function, *args, dynamic=dynamic))
    if name == "square_transpose":
        assert regions == 0  # a tensor that meets its own transpose has no loop program of this form
    elif not (dynamic and name in ("rope", "qk_norm_rope", "split_gate", "int_mask", "window_view", "var_unbiased")):
        assert regions >= 1


def test_batches_share_a_definition():
    def digest(rows):
        captured, = capture(rms_norm, r(*rows, 64), r(64))
        return lower(partition(captured.graph)[0]).definition.digest

    assert digest((2, 6)) == digest((7,)) == digest((3, 5, 2))


@pytest.mark.parametrize("other", [
    lambda x, w: w * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype),  # eps
    lambda x, w: (w.float() * x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype),  # cast
    lambda x, w: w * (x.float() * torch.rsqrt(x.float().abs().mean(-1, keepdim=True) + 1e-6)).to(x.dtype),  # op
])
def test_different_functions_differ(other):
    args = (r(6, 64).to(bf), r(64).to(bf))
    first, = capture(rms_norm, *args)
    second, = capture(other, *args)
    assert lower(partition(first.graph)[0]).definition.digest != lower(partition(second.graph)[0]).definition.digest


@pytest.mark.parametrize("other", [
    lambda x, w: (x.float() * torch.rsqrt((x.float() * x.float()).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w,
    lambda x, w: w * (torch.rsqrt(1e-6 + torch.mean(torch.square(x.float()), -1, True)) * x.float()).to(x.dtype),
])
def test_spellings_meet(other):
    args = (r(6, 64).to(bf), r(64).to(bf))
    first, = capture(rms_norm, *args)
    second, = capture(other, *args)
    assert lower(partition(first.graph)[0]).definition.digest == lower(partition(second.graph)[0]).definition.digest
