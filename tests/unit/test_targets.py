"""TARGETs load, or say what is wrong with them."""

import importlib.util
import sys

import pytest
import torch

from agentinductor import targets
from agentinductor.errors import TargetError

FACTORIES = '''
import torch
linear = torch.nn.Linear(4, 4)
x = torch.ones(2, 4)
not_callable = 3
def good(): return linear, (x,)
def named(): return linear, {"input": x}
def bare(): return linear, x
def nested(): return linear, ([x, (x, 1)],)
def three(): return linear, x, x
def nothing(): return None
def no_model(): return "model", x
def no_inputs(): return linear, 7
def odd_keys(): return linear, {1: x}
def raises(): raise RuntimeError("no luck")
def arguments(size): return linear, x
'''


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "some_models.py").write_text(FACTORIES)
    (tmp_path / "broken_models.py").write_text("1 / 0")
    (tmp_path / "needy_models.py").write_text("import surely_not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("some_models", "broken_models", "needy_models"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["good", "named", "bare"])
def test_a_factory_loads(name):
    target = targets.load(f"some_models:{name}", device="cpu")
    assert target().shape == (2, 4) and target.reset is None


def test_a_factory_is_converted():
    target = targets.load("some_models:nested", device="cpu", dtype="bf16")
    inner = target.args[0]
    assert inner[0].dtype == inner[1][0].dtype == torch.bfloat16 and inner[1][1] == 1
    assert next(target.model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize(("target", "words"), [
    ("some_models", "is not package.module:factory"),
    (":good", "is not package.module:factory"),
    ("surely_not_there:good", "PYTHONPATH"),
    ("broken_models:good", "ZeroDivisionError"),
    ("needy_models:good", "surely_not_installed"),
    ("some_models:nobody", "has no 'nobody'"),
    ("some_models:not_callable", "is a int"),
    ("some_models:three", "a tuple of 3"),
    ("some_models:nothing", "a NoneType"),
    ("some_models:no_model", "the model is a str"),
    ("some_models:no_inputs", "the inputs are a int"),
    ("some_models:odd_keys", "the key 1"),
    ("some_models:raises", "no luck"),
    ("some_models:arguments", "missing 1 required"),
])
def test_a_wrong_factory_says_what_is_wrong(target, words):
    with pytest.raises(TargetError, match=words):
        targets.load(target, device="cpu")


@pytest.mark.parametrize(("options", "words"), [
    (dict(batch=0), "at least 1"),
    (dict(dtype="float8"), "is not one of"),
    (dict(task="decode"), "hf: targets only"),
    pytest.param(dict(device="cuda"), "no GPU", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")),
])
def test_a_wrong_option_says_what_is_wrong(options, words):
    with pytest.raises(TargetError, match=words):
        targets.load("some_models:good", **options)


class TestTransformers:
    @pytest.fixture(autouse=True)
    def transformers(self):
        return pytest.importorskip("transformers")

    @pytest.mark.parametrize("name", ["llama-tiny", "gemma2-tiny"])
    def test_decode_repeats_after_reset(self, name):
        target = targets.load(f"hf:{name}", task="decode", batch=2, length=16, device="cpu")
        with torch.no_grad():
            first, second = target(), target()
            with pytest.raises(IndexError):  # without the reset, a step runs past the cache
                target.model(**target.kwargs)
        assert first.logits.shape == (2, 1, 256)
        assert torch.equal(first.logits, second.logits)

    @pytest.mark.parametrize(("name", "task", "key"), [
        ("llama-tiny", "prefill", "logits"), ("bert-tiny", None, "last_hidden_state"), ("t5-tiny", "encode", "last_hidden_state"),
        ("t5-tiny", "prefill", "logits")])
    def test_other_tasks_run(self, name, task, key):
        target = targets.load(f"hf:{name}", task=task, batch=2, length=8, device="cpu")
        with torch.no_grad():
            assert target()[key].shape[:2] == (2, 8)

    def test_same_seed_same_model(self):
        one, two = (targets.load("hf:bert-tiny", length=8, device="cpu", seed=3) for _ in range(2))
        with torch.no_grad():
            assert torch.equal(one()["last_hidden_state"], two()["last_hidden_state"])

    def test_a_directory_with_weights(self, tmp_path):
        made = targets.load("hf:llama-tiny", length=8, device="cpu")
        made.model.save_pretrained(tmp_path)
        loaded = targets.load(f"hf:{tmp_path}", length=8, device="cpu")
        assert torch.equal(made.model.lm_head.weight, loaded.model.lm_head.weight)

    def test_a_configuration_alone(self, tmp_path):
        targets.load("hf:bert-tiny", length=8, device="cpu").model.config.save_pretrained(tmp_path)
        assert targets.load(f"hf:{tmp_path}", length=8, device="cpu").model.config.hidden_size == 64

    @pytest.mark.parametrize(("name", "options", "words"), [
        ("no-such", {}, "nothing is fetched"),
        ("llama-tiny", dict(task="train"), "is not one of decode"),
        ("bert-tiny", dict(task="decode"), "no decode task"),
        ("bert-tiny", dict(length=4096), "at most 128 tokens"),
        ("llama-tiny", dict(task="decode", length=1), "--length 2"),
    ])
    def test_a_wrong_one_says_what_is_wrong(self, name, options, words):
        with pytest.raises(TargetError, match=words):
            targets.load(f"hf:{name}", device="cpu", **options)

    def test_a_broken_configuration(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(TargetError, match="config.json"):
            targets.load(f"hf:{tmp_path}", device="cpu")

    @pytest.mark.parametrize("name", sorted(targets.NAMED))
    def test_every_name_is_a_configuration(self, name, transformers):
        fields = dict(targets.NAMED[name])
        config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
        for key, value in fields.items():
            if key != "rope_theta":  # moved into rope_parameters
                assert getattr(config, key) == value


@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed")
def test_timm_names_its_package():
    with pytest.raises(TargetError, match="pip install timm"):
        targets.load("timm:vit_large_patch16_224", device="cpu")
