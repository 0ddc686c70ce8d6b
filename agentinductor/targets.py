"""TARGETs: the models that the command line names, loaded with their inputs and never fetched.

    package.module:factory   a function that returns (model, inputs); inputs is a tuple, a dict or one tensor
    hf:NAME                  one of NAMED below: a transformers architecture with random weights
    hf:PATH                  a directory with a config.json (and weights: random where there are none), or a config file
    timm:NAME                a timm architecture with random weights, where timm is installed

Tasks of an hf target: `decode` is one token against a static key-value cache that holds length - 1 tokens; `prefill`
reads `length` tokens; `encode` is an encoder's forward. A decode step advances the cache's counter: `Target.reset` puts
it back, in place, and must run before each call.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .errors import TargetError

TASKS = ("decode", "prefill", "encode")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64,
          "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Target:
    """A model on its device, and what to call it with: `model(*args, **kwargs)`, after `reset()` where there is one."""

    name: str
    model: torch.nn.Module
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    reset: Callable[[], None] | None = None

    def __call__(self) -> Any:
        if self.reset is not None:
            self.reset()
        return self.model(*self.args, **self.kwargs)


_LLAMA = dict(model_type="llama", vocab_size=128256, num_attention_heads=32, num_key_value_heads=8, rope_theta=500000.0,
              max_position_embeddings=131072)
NAMED: dict[str, dict[str, Any]] = {  # name -> the fields of a transformers configuration that differ from its defaults
    "llama-1b": dict(_LLAMA, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, head_dim=64,
                     tie_word_embeddings=True),
    "llama-8b": dict(_LLAMA, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32),
    "llama-8b-6l": dict(_LLAMA, hidden_size=4096, intermediate_size=14336, num_hidden_layers=6),
    "llama-tiny": dict(model_type="llama", vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2),
    "qwen3-0.6b": dict(model_type="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                       num_attention_heads=16, num_key_value_heads=8, head_dim=128, rope_theta=1000000.0,
                       max_position_embeddings=40960, tie_word_embeddings=True),
    "gemma2-2b-8l": dict(model_type="gemma2", num_hidden_layers=8),
    "gemma2-tiny": dict(model_type="gemma2", vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                        num_attention_heads=4, num_key_value_heads=2, head_dim=16, sliding_window=8),
    "gpt2": dict(model_type="gpt2"),
    "gpt2-medium": dict(model_type="gpt2", n_embd=1024, n_layer=24, n_head=16),
    "bert-base": dict(model_type="bert"),
    "bert-large": dict(model_type="bert", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    "bert-tiny": dict(model_type="bert", vocab_size=256, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                      intermediate_size=128, max_position_embeddings=128),
    "whisper-small-encoder": dict(model_type="whisper", d_model=768, encoder_layers=12, decoder_layers=1, vocab_size=51865,
                                  encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072,
                                  decoder_ffn_dim=3072),
    "t5-small": dict(model_type="t5"),
    "t5-tiny": dict(model_type="t5", vocab_size=256, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4),
}
ENCODERS = ("bert", "roberta", "distilbert", "electra", "whisper", "vit", "xlm-roberta", "albert", "deberta-v2")


def load(target: str, *, task: str | None = None, batch: int = 1, length: int = 128, device: str | torch.device | None = None,
         dtype: str | torch.dtype | None = None, seed: int = 0) -> Target:
    """Load TARGET on `device` (default: CUDA where there is one). Raises TargetError, which names the next step.

    `task`, `batch`, `length` and `dtype` shape hf and timm targets; a factory makes its own inputs, which are only moved
    to `device` and, where `dtype` is given, converted.
    """
    if batch < 1 or length < 1:
        raise TargetError(f"batch {batch} and length {length} must be at least 1")
    device = torch.device(device) if device is not None else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TargetError("device cuda asked for, but torch sees no GPU; use --device cpu")
    kind = _dtype(dtype)
    torch.manual_seed(seed)
    if target.startswith("hf:"):
        return _Transformers(target, target[3:], task, batch, length, device, kind or _default_dtype(device)).load()
    if task is not None:
        raise TargetError(f"--task {task} applies to hf: targets only, not to {target!r}")
    if target.startswith("timm:"):
        return _timm(target, batch, device, kind or _default_dtype(device))
    return _factory(target, device, kind)


# package.module:factory


def _factory(target: str, device: torch.device, dtype: torch.dtype | None) -> Target:
    module_name, separator, attribute = target.partition(":")
    if not separator or not module_name or not attribute:
        raise TargetError(f"target {target!r} is not package.module:factory, hf:NAME, hf:PATH or timm:NAME")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise TargetError(f"target {target!r}: importing {module_name} failed: {error}") from error
        raise TargetError(f"target {target!r}: there is no module {error.name!r}; is its directory on PYTHONPATH?") from error
    except Exception as error:  # a user's module may raise anything while it is imported
        raise TargetError(f"target {target!r}: importing {module_name} raised {type(error).__name__}: {error}") from error
    factory = getattr(module, attribute, None)
    if factory is None:
        raise TargetError(f"target {target!r}: module {module_name} has no {attribute!r}")
    if not callable(factory):
        raise TargetError(f"target {target!r}: {attribute} is a {type(factory).__name__}, not a function")
    try:
        made = factory()
    except Exception as error:
        raise TargetError(f"target {target!r}: {attribute}() raised {type(error).__name__}: {error}") from error
    model, args, kwargs = _unpack(target, made)
    model = model.to(device=device, dtype=dtype) if dtype else model.to(device)
    return Target(target, model, _moved(args, device, dtype), _moved(kwargs, device, dtype))


def _unpack(target: str, made: Any) -> tuple[torch.nn.Module, tuple, dict]:
    want = "a factory returns (model, inputs): a torch.nn.Module, and a tuple, a dict or one tensor"
    if not isinstance(made, tuple) or len(made) != 2:
        got = f"a tuple of {len(made)}" if isinstance(made, tuple) else f"a {type(made).__name__}"
        raise TargetError(f"target {target!r} returned {got}; {want}")
    model, inputs = made
    if not isinstance(model, torch.nn.Module):
        raise TargetError(f"target {target!r}: the model is a {type(model).__name__}; {want}")
    if isinstance(inputs, torch.Tensor):
        return model, (inputs,), {}
    if isinstance(inputs, Mapping):
        odd = [key for key in inputs if not isinstance(key, str)]
        if odd:
            raise TargetError(f"target {target!r}: the inputs have the key {odd[0]!r}; keys are argument names")
        return model, (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return model, tuple(inputs), {}
    raise TargetError(f"target {target!r}: the inputs are a {type(inputs).__name__}; {want}")


def _moved(value: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, dtype) if dtype and value.is_floating_point() else value.to(device)
    if type(value) is dict:
        return {key: _moved(item, device, dtype) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_moved(item, device, dtype) for item in value)
    return value


# hf:


@dataclass
class _Transformers:
    target: str
    name: str
    task: str | None
    batch: int
    length: int
    device: torch.device
    dtype: torch.dtype

    def load(self) -> Target:
        if self.task is not None and self.task not in TASKS:
            raise TargetError(f"task {self.task!r} is not one of {', '.join(TASKS)}")
        if importlib.util.find_spec("transformers") is None:
            raise TargetError(f"target {self.target!r} needs transformers: pip install 'agentinductor[hf]'")
        self.hf: Any = importlib.import_module("transformers")
        config, weights = self._config()
        encoder = config.model_type in ENCODERS or self.name.endswith("-encoder")
        task = self.task or ("encode" if encoder else "prefill")
        if task == "decode" and (encoder or config.is_encoder_decoder):
            raise TargetError(f"target {self.target!r}: {config.model_type} has no decode task here; use --task encode")
        limit = getattr(config, "max_position_embeddings", None)
        if limit and self.length > limit:
            raise TargetError(f"target {self.target!r} takes at most {limit} tokens; --length is {self.length}")
        model = self._model(config, weights, task)
        kwargs, reset = getattr(self, f"_{task}")(model, config)
        return Target(f"{self.target} {task} {self.batch}x{self.length}", model, (), kwargs, reset)

    def _config(self) -> tuple[Any, Path | None]:
        """The configuration, and the directory of weights where there are some."""
        if self.name in NAMED:
            fields = dict(NAMED[self.name])
            return self.hf.AutoConfig.for_model(fields.pop("model_type"), **fields), None
        path = Path(self.name).expanduser()
        if not path.exists():
            known = ", ".join(sorted(NAMED))
            raise TargetError(f"target {self.target!r}: no such directory, and no such name; nothing is fetched. Names: {known}")
        try:
            config = self.hf.AutoConfig.from_pretrained(str(path), local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise TargetError(f"target {self.target!r}: its config.json cannot be read: {error}") from error
        weights = path.is_dir() and any(path.glob("*.safetensors"))
        return config, path if weights else None

    def _model(self, config: Any, weights: Path | None, task: str) -> torch.nn.Module:
        if task == "encode":
            kind = self.hf.AutoModel
        else:
            kind = self.hf.AutoModelForSeq2SeqLM if config.is_encoder_decoder else self.hf.AutoModelForCausalLM
        try:
            if weights is not None:
                model = kind.from_pretrained(str(weights), local_files_only=True, dtype=self.dtype).to(self.device)
            else:
                with self.device:
                    model = kind.from_config(config, dtype=self.dtype)
        except (OSError, ValueError) as error:
            raise TargetError(f"target {self.target!r} cannot run task {task}: {error}") from error
        if task == "encode" and config.is_encoder_decoder:
            model = model.get_encoder()
        return model.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)

    def _tokens(self, config: Any, length: int) -> torch.Tensor:
        return torch.randint(0, config.get_text_config().vocab_size, (self.batch, length), device=self.device)

    def _encode(self, model: torch.nn.Module, config: Any) -> tuple[dict, None]:
        if config.model_type == "whisper":
            frames = 2 * config.max_source_positions  # the encoder takes this length only
            shape = (self.batch, config.num_mel_bins, frames)
            return {"input_features": torch.randn(shape, device=self.device, dtype=self.dtype)}, None
        if hasattr(config, "image_size"):
            image = (self.batch, config.num_channels, config.image_size, config.image_size)
            return {"pixel_values": torch.randn(image, device=self.device, dtype=self.dtype)}, None
        tokens = self._tokens(config, self.length)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, None

    def _prefill(self, model: torch.nn.Module, config: Any) -> tuple[dict, None]:
        kwargs = {"input_ids": self._tokens(config, self.length), "use_cache": False}
        if config.is_encoder_decoder:
            kwargs["decoder_input_ids"] = self._tokens(config, self.length)
        return kwargs, None

    def _decode(self, model: torch.nn.Module, config: Any) -> tuple[dict, Callable[[], None]]:
        if self.length < 2:
            raise TargetError("decode needs --length 2 or more: length - 1 tokens in the cache, and the one to decode")
        # transformers 5.24 calls the argument `cache`; before that it was `past_key_values`
        name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        cache = self.hf.StaticCache(config=config, max_cache_len=self.length)
        base: Any = model.base_model  # without the head: the logits of a long prompt would not fit
        with torch.no_grad():
            base(input_ids=self._tokens(config, self.length - 1), use_cache=True, **{name: cache})
        kwargs = {"input_ids": self._tokens(config, 1), "use_cache": True, name: cache}
        return kwargs, _rewinder(cache)


def _rewinder(cache: Any) -> Callable[[], None]:
    """A function that puts a static cache back to where it is now.

    Counters are restored in place: compiled code and CUDA graphs hold their addresses. A full sliding window is shifted
    at each step, so its keys and values are restored too; elsewhere a step rewrites the position it wrote before.
    """
    tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
    numbers: list[tuple[Any, str, int]] = []
    for layer in cache.layers:
        shifting = getattr(layer, "is_sliding", False)
        for name, value in vars(layer).items():
            if isinstance(value, torch.Tensor) and (shifting or not value.is_floating_point()):
                tensors.append((value, value.clone()))
            elif type(value) is int and name.startswith("cumulative_length"):
                numbers.append((layer, name, value))

    def reset() -> None:
        for live, saved in tensors:
            live.copy_(saved)
        for layer, name, value in numbers:
            setattr(layer, name, value)

    return reset


# timm:


def _timm(target: str, batch: int, device: torch.device, dtype: torch.dtype) -> Target:
    if importlib.util.find_spec("timm") is None:
        raise TargetError(f"target {target!r} needs timm: pip install timm")
    timm: Any = importlib.import_module("timm")
    name = target.removeprefix("timm:")
    if not timm.is_model(name):
        close = ", ".join(timm.list_models(f"*{name.split('_')[0]}*")[:8]) or "see timm.list_models()"
        raise TargetError(f"target {target!r}: timm knows no {name!r}; it knows {close}")
    with device:
        model = timm.create_model(name, pretrained=False)
    model = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
    images = torch.randn(batch, *model.default_cfg["input_size"], device=device, dtype=dtype)
    if "conv" in name:  # convolutional networks run channels last
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    return Target(f"{target} x{batch}", model, (images,))


# dtypes


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise TargetError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _default_dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32
