"""`agentinductor COMMAND`: arguments, exit codes, and the module that runs each command.

Exit codes: 0 done; 1 the answer is no (a rejected kernel, a damaged cache, a machine that lacks something); 2 the command
itself is wrong (arguments, TARGET, settings, cache); 130 interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from .. import __version__
from ..errors import AgentInductorError

OK, NO, WRONG, INTERRUPTED = 0, 1, 2, 130
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
TARGET_HELP = """\
TARGET names a model and its inputs:
  package.module:factory   a function that returns (model, inputs); inputs is a tuple, a dict or one tensor
  hf:NAME, hf:PATH         a transformers architecture with random weights (llama-1b, qwen3-0.6b, bert-large, gpt2-medium,
                           whisper-small-encoder, t5-small, ...), or a local directory; nothing is fetched
  timm:NAME                a timm architecture with random weights
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    args = parser().parse_args(argv)
    try:
        command = getattr(import_module(args.module, __package__), args.function)
        return command(args)
    except KeyboardInterrupt:
        print("agentinductor: interrupted; what was finished is kept", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `agentinductor kernels list | head`
        sys.stderr.close()
        return OK
    except AgentInductorError as error:
        print(f"agentinductor: {error}", file=sys.stderr)
        return WRONG


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="agentinductor", description="A torch.compile backend whose kernels are written by agents, proven, and faster.",
        epilog=TARGET_HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    root.add_argument("--version", action="version", version=f"agentinductor {__version__}")
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    _model_commands(commands)
    _kernel_commands(commands)
    _request_commands(commands)
    _cache_commands(commands)
    doctor = _command(commands, "doctor", ".doctor:run", "say what this machine has and lacks")
    doctor.add_argument("--bandwidth", action="store_true", help="measure the device's copy bandwidth too")
    return root


def _model_commands(commands: argparse._SubParsersAction) -> None:
    explain = _command(commands, "explain", ".models:explain", "show a model's regions, and why each runs on what it runs on")
    prewarm = _command(commands, "prewarm", ".models:prewarm", "find, prove and store kernels for a model, before it is needed")
    bench = _command(commands, "bench", ".models:bench", "time a model four ways: eager and compiled, with and without kernels")
    for command in (explain, prewarm, bench):
        command.epilog, command.formatter_class = TARGET_HELP, argparse.RawDescriptionHelpFormatter
        command.add_argument("target", metavar="TARGET")
        command.add_argument("--task", choices=("decode", "prefill", "encode"), help="of an hf: target")
        command.add_argument("--batch", type=int, default=1, metavar="N")
        command.add_argument("--length", type=int, default=128, metavar="TOKENS", help="sequence, or cache of a decode step")
        command.add_argument("--device", metavar="DEVICE", help="default: cuda where there is one, else cpu")
        command.add_argument("--dtype", metavar="DTYPE", help="float32, float16, bfloat16 (default: bfloat16 on cuda)")
        command.add_argument("--seed", type=int, default=0, help="of random weights and inputs")
        command.add_argument("--mode", choices=MODES,
                             help="torch.compile's mode; bench without it measures default, reduce-overhead and max-autotune")
        command.add_argument("--option", action="append", default=[], metavar="KEY=VALUE",
                             help="one of torch.compile's options, or agentinductor.KEY=VALUE; repeatable")
        command.add_argument("--out", metavar="FILE", help="write the report there as JSON too")
    prewarm.add_argument("--budget", type=float, default=300.0, metavar="SECONDS", help="default: 300")
    bench.add_argument("--check", action="store_true", help="exit 1 unless the kernels pass the end-to-end gate")


def _kernel_commands(commands: argparse._SubParsersAction) -> None:
    kernels = commands.add_parser("kernels", help="list, show and verify stored kernels")
    inner = kernels.add_subparsers(metavar="ACTION", required=True)
    listing = _command(inner, "list", ".kernels:list_", "one line for each stored kernel")
    listing.add_argument("definition", nargs="?", metavar="DEFINITION", help="only this definition's (digest, name or kind)")
    show = _command(inner, "show", ".show:show", "definition, sources, guards, traces and provenance of a kernel")
    show.add_argument("digest", metavar="DIGEST", help="of a kernel or a definition; the first characters do")
    show.add_argument("--script", metavar="FILE", help="write a stand-alone script that reproduces error and timing")
    verify = _command(inner, "verify", ".judge:verify", "judge kernels again on this device, and store the trace")
    verify.add_argument("digest", nargs="+", metavar="DIGEST")
    submit = _command(commands, "submit", ".judge:submit", "judge the solution in a directory, and store it with its trace")
    submit.add_argument("directory", metavar="DIR", help="holds solution.json and the sources it names")


def _request_commands(commands: argparse._SubParsersAction) -> None:
    requests = commands.add_parser("requests", help="regions that compiles met and no kernel served")
    inner = requests.add_subparsers(metavar="ACTION", required=True)
    _command(inner, "list", ".requests:list_", "one line for each request")
    show = _command(inner, "show", ".requests:show", "the definition to implement, as PyTorch, and its workload")
    show.add_argument("digest", metavar="DEFINITION", help="digest, or its first characters")
    show.add_argument("--prepare", metavar="DIR", help="write what an author needs there; `submit DIR` takes it back")


def _cache_commands(commands: argparse._SubParsersAction) -> None:
    cache = commands.add_parser("cache", help="look after the kernel cache")
    inner = cache.add_subparsers(metavar="ACTION", required=True)
    _command(inner, "info", ".cache:info", "where it is, how large, and what it holds")
    _command(inner, "verify", ".cache:verify", "rehash every entry")
    prune = _command(inner, "prune", ".cache:prune", "drop the least recently used entries")
    prune.add_argument("--max-size", default="2GiB", metavar="SIZE", help="what may stay, e.g. 500MiB (default: 2GiB)")


def _command(commands: argparse._SubParsersAction, name: str, where: str, text: str) -> argparse.ArgumentParser:
    """A command that `where` ("module:function" below cli/) runs."""
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    module, _, function = where.partition(":")
    command.set_defaults(module=module, function=function)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--cache-dir", metavar="DIR", help="default: AGENTINDUCTOR_CACHE_DIR, or the user's cache directory")
    return command


if __name__ == "__main__":
    sys.exit(main())
