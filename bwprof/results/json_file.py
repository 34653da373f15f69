"""Results as JSON: rows with their raw samples, and the run's metadata, replaced in one step."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bwprof.results import csv_file, schema
from bwprof.results.atomic import atomic_write, read_text
from bwprof.results.foreign import describe_document
from bwprof.results.schema import RowDict
from bwprof.text.parsing import repr_short

FORMAT = "bwprof-results"

SAMPLES = "samples_ns"

_DEEPEST = 60  # ours has six levels

_log = logging.getLogger("bwprof.results")


def json_text(rows: Sequence[RowDict], samples: Sequence[Sequence[float] | None], run: dict[str, Any]) -> str:
    """The whole document; missing values are null, raw samples are ns per launch."""
    head = json.dumps(
        {"format": FORMAT, "schema_version": schema.SCHEMA_VERSION, "run": to_json_value(run)},
        indent=1,
        allow_nan=False,
    )
    lines = ["  " + row_text(row, values) for row, values in zip(rows, samples, strict=True)]
    return head[: head.rindex("\n")] + ',\n "rows": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def row_text(row: RowDict, samples: Sequence[float] | None) -> str:
    """One row of the document."""
    return json.dumps(to_json_row(row, samples), allow_nan=False)


def to_json_row(row: RowDict, samples: Sequence[float] | None) -> dict[str, Any]:
    """The same in types that strict JSON has."""
    if SAMPLES in row:
        raise ValueError(f"a column cannot be called {SAMPLES}: the raw samples are kept under that name")
    known = schema.column_kinds()
    whole = {name: value for name, value in schema.normalise_row(row).items() if value is not None or name not in known}
    whole[SAMPLES] = [round(value, 3) for value in samples] if samples is not None else None
    found: dict[str, Any] = to_json_value(whole)
    return found


def to_json_value(value: Any) -> Any:
    """The same value in types that strict JSON has: NaN becomes null, infinity a word."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {schema.escape_surrogates(str(key)): to_json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(item) for item in value]
    if value is None or isinstance(value, (int, bool)):
        return value
    return schema.escape_surrogates(str(value))


def write(path: Path, rows: Sequence[RowDict], samples: Sequence[Sequence[float] | None], run: dict[str, Any]) -> None:
    """Replace `path` by the whole document; OSError when it cannot be written, the old file untouched."""
    atomic_write(path, json_text(rows, samples, run))


def read_json(path: Path) -> tuple[list[RowDict], list[list[float] | None], dict[str, Any]]:
    """Rows, raw samples (ns per launch) and run metadata.

    Raises
    ------
    ValueError
        For what is no file (see `files.read_text`), is not ours, or was written by a later bwprof.
    """
    return parse_results(read_text(path), str(path))


def parse_results(content: str, source: str) -> tuple[list[RowDict], list[list[float] | None], dict[str, Any]]:
    """The same from a file's text; `source` names it."""
    return parse_document(parse_json(content, source), source)


def parse_json(content: str, source: str) -> Any:
    """What a file's text says, whatever that is; ValueError where it is no JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, a number of too many digits
        raise ValueError(f"{source} is not a bwprof result file: {error}") from None


def parse_document(found: Any, source: str) -> tuple[list[RowDict], list[list[float] | None], dict[str, Any]]:
    """Rows, raw samples and metadata of a document; ValueError when it is not ours."""
    hint = describe_document(found)
    if isinstance(found, dict) and isinstance(found.get("format"), str) and found["format"] != FORMAT:
        raise ValueError(
            f"{source} is not a bwprof result file: it is of the format {repr_short(found['format'])}{hint}"
        )
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f'{source} is not a bwprof result file: it has no "format": "{FORMAT}"{hint}')
    schema.check_version(found.get("schema_version"), source)
    listed, run = found.get("rows"), found.get("run")
    if not isinstance(listed, list) or not isinstance(run, dict):
        raise ValueError(f"{source} is not a whole bwprof result file: rows or run are missing")
    check_depth(run, source)
    rows: list[RowDict] = []
    samples: list[list[float] | None] = []
    for number, one in enumerate(listed, start=1):
        try:
            row, values = parse_row(one, source)
        except ValueError as error:
            raise ValueError(f"{source}, row {number}: {error}") from None
        rows.append(row)
        samples.append(values)
    return rows, samples, run


def read_lines(path: Path) -> tuple[list[RowDict], list[list[float] | None]]:
    """The rows of a run that a writer left line by line; a line that is cut off or damaged is left out."""
    rows: list[RowDict] = []
    samples: list[list[float] | None] = []
    try:
        lines = read_text(path, damaged=True).split("\n")
    except FileNotFoundError:  # its writer ended well
        return rows, samples
    except (OSError, ValueError) as error:
        _log.warning("what a writer left of a run is not read: %s", error)
        return rows, samples
    for number, content in enumerate(filter(None, lines), start=1):
        try:
            row, values = parse_row(json.loads(content), str(path))
        except (ValueError, RecursionError):
            _log.warning("%s: line %d is damaged and left out", path, number)
            continue
        rows.append(row)
        samples.append(values)
    return rows, samples


def check_depth(run: dict[str, Any], source: str) -> None:
    """ValueError for metadata of a run that are nested too deep to be gone through."""
    if _too_deep(run):
        raise ValueError(f"{source} is not a bwprof result file: its run is nested more than {_DEEPEST} levels deep")


def _too_deep(document: Any) -> bool:
    """Whether lists and objects are nested deeper than any that we write: going through them would fail later."""
    level = [document]
    for _ in range(_DEEPEST):
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level]
        level = [item for items in inner for item in items if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


def parse_row(found: Any, source: str) -> tuple[RowDict, list[float] | None]:
    """A row of a document and its raw samples; ValueError for what is none."""
    check_row(found)
    samples = found.pop(SAMPLES, None)
    row = csv_file.complete_row(schema.normalise_row(found), bare=False, source=source)
    return row, _checked_samples(samples)


def check_row(found: Any) -> None:
    """ValueError for what is no object, and for one that is nested too deep to be gone through."""
    if not isinstance(found, dict):
        raise ValueError(f"{repr_short(found)} is not a row")
    if _too_deep(found):
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")


def _checked_samples(found: Any) -> list[float] | None:
    if found is None:
        return None
    if not isinstance(found, list) or not all(_is_time(value) for value in found):
        raise ValueError(f"{SAMPLES} must be a list of numbers")
    return [float(value) for value in found]


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max
