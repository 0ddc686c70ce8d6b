"""A solution as its author hands it in: a directory with solution.json and the sources that it names."""

from pathlib import Path

from ..errors import DamagedEntryError, SchemaError
from ..schema import Solution
from . import entry, layout, records, strict_json


def read_submission(directory: Path) -> Solution:
    """Raises SchemaError, which says what is missing or malformed. Other files in the directory are not looked at."""
    try:
        text = entry.read_plain(directory / records.SOLUTION, strict_json.MAX_BYTES)
        raw = strict_json.parse(text, records.SOLUTION)
        sources = raw.get("sources")
        if not isinstance(sources, list) or not 0 < len(sources) < entry.MAX_FILES:
            raise SchemaError(f"{records.SOLUTION} lists no sources; name them as [{{\"path\": \"kernel.py\"}}]")
        files = {records.SOLUTION: text}
        for item in sources:
            path = item.get("path") if isinstance(item, dict) else None
            if not isinstance(path, str) or not layout.is_name(path) or path in files:
                raise SchemaError(f"{records.SOLUTION}: source {path!r} is not a plain file name, or is listed twice")
            files[path] = entry.read_plain(directory / path, strict_json.MAX_BYTES)
        return records.solution_from(files)
    except OSError as error:
        raise SchemaError(f"cannot read {error.filename}: {error.strerror}; a submission is a directory with {records.SOLUTION} "
                          "and the sources it names") from None
    except (DamagedEntryError, SchemaError) as error:
        raise SchemaError(f"{directory}: {error}") from None
