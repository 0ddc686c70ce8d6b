"""Records to files and back: what each kind of entry holds."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import DamagedEntryError, SchemaError
from ..schema import Definition, Plan, Request, Solution, Trace
from ..schema.digest import canonical_json, digest
from . import layout, strict_json

RECORD = "record.json"
SOLUTION = "solution.json"  # beside it lie the sources, one readable file each


FINISHED = 1000  # budget class of a search that ended of its own accord: no budget would change its result


@dataclass(frozen=True)
class Search:
    """A search that ran to its end: doing it again with no larger budget would find nothing more."""

    definition: str
    bucket: str
    environment: str  # digest
    agent: str  # name and version of the agent
    budget_class: int  # ceil(log2(seconds)), or FINISHED
    proposed: int = 0
    accepted: int = 0

    @property
    def key(self) -> str:
        return digest("search", [self.definition, self.bucket, self.environment, self.agent])

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict) -> "Search":
        return cls(**raw)


@dataclass(frozen=True)
class Quarantined:
    """A solution that must not run, whatever its traces say."""

    solution: str
    reason: str
    detail: str = ""

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict) -> "Quarantined":
        return cls(**raw)


def request_key(request: Request) -> str:
    """One request for each definition, bucket and device type."""
    return digest("request", [request.definition, request.workload.bucket(), request.device_type])


def content_key(value: Any) -> str:
    return digest("entry", value)


def dump(value: Mapping[str, Any]) -> bytes:
    """Readable JSON. Raises SchemaError where the record holds NaN, infinity or anything that JSON lacks."""
    try:
        canonical_json(value)
        data = (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    except (ValueError, TypeError, UnicodeEncodeError) as error:
        raise SchemaError(f"a record cannot be written as JSON: {error}") from error
    if len(data) > strict_json.MAX_BYTES:
        raise SchemaError(f"a record of {len(data)} bytes; at most {strict_json.MAX_BYTES} are kept")
    return data


def solution_files(solution: Solution) -> dict[str, bytes]:
    raw = solution.to_json()
    raw["sources"] = [{"path": source.path} for source in solution.sources]
    files = {SOLUTION: dump(raw)}
    for source in solution.sources:
        if source.path in files or source.path == layout.MANIFEST or not layout.is_name(source.path):
            raise SchemaError(f"source name {source.path!r} is taken twice, reserved, or not a plain name")
        try:
            files[source.path] = source.content.encode()
        except UnicodeEncodeError as error:
            raise SchemaError(f"source {source.path} is not valid text: {error}") from error
    return files


def solution_from(files: Mapping[str, bytes]) -> Solution:
    """Raises SchemaError or DamagedEntryError."""
    raw = strict_json.parse(files.get(SOLUTION, b""), SOLUTION)
    try:
        listed = [item["path"] for item in raw["sources"]]
        if {*listed, SOLUTION} != set(files) or len(set(listed)) != len(listed):
            raise SchemaError(f"sources {sorted(map(str, listed))} are not the files {sorted(files)}")
        raw["sources"] = [{"path": path, "content": files[path].decode("utf-8")} for path in listed]
        return Solution.from_json(raw)
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise SchemaError(f"malformed solution: {error!r}") from error


_DECODERS = {Definition: Definition.from_json, Trace: Trace.from_json, Plan: Plan.from_json, Request: Request.from_json,
             Search: Search.from_json, Quarantined: Quarantined.from_json}


def record_from(files: Mapping[str, bytes], cls: type) -> Any:
    """The record of `cls` in a one-file entry. Raises DamagedEntryError where it is malformed."""
    if set(files) != {RECORD}:
        raise DamagedEntryError(f"files {sorted(files)} instead of {RECORD}")
    raw = strict_json.parse(files[RECORD], RECORD)
    try:
        return _DECODERS[cls](raw)
    except (SchemaError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedEntryError(f"malformed {cls.__name__}: {error!r}") from error
