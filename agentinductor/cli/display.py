"""What the commands print: tables for people, JSON for programs, progress on the error stream."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from .. import settings
from ..errors import AgentInductorError

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20, "G": 1 << 30, "GIB": 1 << 30,
          "KB": 10**3, "MB": 10**6, "GB": 10**9}


def console() -> Console:
    """Made at each use, so that it writes to the stdout of the moment. Not a terminal: wide, so that no cell is cut."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=200)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=True))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    made = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*row)
    console().print(made)


def code(text: str, language: str = "python") -> None:
    out = console()
    if out.is_terminal:
        out.print(Syntax(text.rstrip("\n"), language, background_color="default"))
    else:
        print(text.rstrip("\n"))


def heading(text: str) -> None:
    console().print(f"\n[bold]{text}[/bold]", markup=True)


@contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """A status line on the error stream; where that is no terminal, one plain line for each message."""
    out = Console(stderr=True, highlight=False)
    if out.is_terminal:
        with out.status(first) as status:
            yield lambda message: status.update(str(message))
        return
    print(first, file=sys.stderr, flush=True)
    yield lambda message: print(message, file=sys.stderr, flush=True)


def write_json(path: str, value: Any) -> None:
    """Raises AgentInductorError where the file cannot be written."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_text(path: str | Path, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise AgentInductorError(f"cannot write {path}: {error.strerror}; name a file in a directory that exists") from None


def options_of(args: argparse.Namespace) -> dict[str, object]:
    """torch.compile's options: --option's, and --cache-dir. Values are read as JSON where they are JSON."""
    options: dict[str, object] = {}
    for item in getattr(args, "option", []):
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise AgentInductorError(f"--option {item!r} is not KEY=VALUE")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = {"True": True, "False": False}.get(value, value)
    if args.cache_dir:
        options[settings.PREFIX + "cache_dir"] = str(Path(args.cache_dir).expanduser().absolute())
    return options


def settings_of(args: argparse.Namespace) -> settings.Settings:
    """The settings of a command: the environment, then its own options."""
    ours, _ = settings.split_options(options_of(args))
    return settings.load(ours)


def parse_size(text: str) -> int:
    """Bytes: "500MiB" -> 524288000. Raises AgentInductorError."""
    number = text.strip().rstrip("KMGIBkmgib ")
    unit = text.strip()[len(number):].strip().upper()
    try:
        return int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise AgentInductorError(f"size {text!r} is not a number with a unit such as 500MiB or 2GiB") from None


def human_size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
