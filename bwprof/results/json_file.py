"""Results as JSON: rows with their raw samples, and the run's metadata, replaced in one step."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bwprof.results import csv_file, schema
from bwprof.results.atomic import read_text
from bwprof.results.exchange import describe_document
from bwprof.results.schema import RowDict
from bwprof.text.parsing import repr_short

FORMAT = "bwprof-results"
_DEEPEST = 60  # levels
_log = logging.getLogger("bwprof.results")


def json_text(rows: Sequence[RowDict], samples: Sequence[Sequence[float] | None], run: dict[str, Any]) -> str:
    """Return the whole document; missing values are null, raw samples are in ns per launch."""
    head = json.dumps(
        {"format": FORMAT, "schema_version": schema.SCHEMA_VERSION, "run": to_json_value(run)},
        indent=1,
        allow_nan=False,
    )
    lines = ["  " + row_text(row, values) for row, values in zip(rows, samples, strict=True)]
    return head[: head.rindex("\n")] + ',\n "rows": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def row_text(row: RowDict, samples: Sequence[float] | None) -> str:
    """Return one row of the document."""
    return json.dumps(to_json_row(row, samples), allow_nan=False)


def to_json_row(row: RowDict, samples: Sequence[float] | None) -> dict[str, Any]:
    """Return a row and its samples in the types of strict JSON."""
    if schema.SAMPLES in row:
        raise ValueError(f"a column cannot be called {schema.SAMPLES}: the raw samples have that name")
    known = schema.column_kinds()
    values = {
        name: value for name, value in schema.normalize_row(row).items() if value is not None or name not in known
    }
    values[schema.SAMPLES] = [round(value, 3) for value in samples] if samples is not None else None
    return {schema.escape_surrogates(name): to_json_value(value) for name, value in values.items()}


def to_json_value(value: Any) -> Any:
    """Return a value in the types of strict JSON: null for NaN, text for infinity."""
    if isinstance(value, dict):
        return {schema.escape_surrogates(str(key)): to_json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return schema.escape_surrogates(str(value))


def read_json(path: Path) -> tuple[list[RowDict], list[list[float] | None], dict[str, Any]]:
    """Read rows, raw samples (ns per launch) and the run's metadata; see `parse_document`."""
    return parse_results(read_text(path), str(path))


def parse_results(content: str, source: str) -> tuple[list[RowDict], list[list[float] | None], dict[str, Any]]:
    """Parse the same from a file's text; `source` names the file."""
    return parse_document(parse_json(content, source), source)


def parse_json(content: str, source: str) -> Any:
    """Parse any JSON text; ValueError for other text."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, a number of too many digits
        raise ValueError(f"{source} is not a bwprof result file: {error}") from None


def parse_document(document: Any, source: str) -> tuple[list[RowDict], list[list[float] | None], dict[str, Any]]:
    """Return rows, raw samples and metadata of a document; ValueError for other documents."""
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        other = f'it has no "format": "{FORMAT}"'
        if isinstance(found, str):
            other = f"it is of the format {repr_short(found)}"
        raise ValueError(f"{source} is not a bwprof result file: {other}{describe_document(document)}")
    schema.check_version(document.get("schema_version"), source)
    items, run = document.get("rows"), document.get("run")
    if not isinstance(items, list) or not isinstance(run, dict):
        raise ValueError(f"{source} is not a whole bwprof result file: rows or run are missing")
    check_depth(run, source)
    rows: list[RowDict] = []
    samples: list[list[float] | None] = []
    for number, item in enumerate(items, start=1):
        try:
            row, values = parse_row(item, source)
        except ValueError as error:
            raise ValueError(f"{source}, row {number}: {error}") from None
        rows.append(row)
        samples.append(values)
    return rows, samples, run


def read_lines(path: Path) -> tuple[list[RowDict], list[list[float] | None]]:
    """Read the rows that a killed writer left line by line, without damaged lines."""
    rows: list[RowDict] = []
    samples: list[list[float] | None] = []
    lines: list[str] = []
    try:
        lines = read_text(path, damaged=True).split("\n")
    except FileNotFoundError:  # the writer finished
        pass
    except (OSError, ValueError) as error:
        _log.warning("the rows of an interrupted writer are not read: %s", error)
    for number, content in enumerate(filter(None, lines), start=1):
        try:
            row, values = parse_row(json.loads(content), str(path))
        except (ValueError, RecursionError):
            _log.warning("%s: line %d is damaged and left out", path, number)
            continue
        rows.append(row)
        samples.append(values)
    return rows, samples


def check_depth(document: Any, source: str) -> None:
    """Raise ValueError for lists and objects that are nested deeper than 60 levels; the files of bwprof have six."""
    level = [document]
    for _ in range(_DEEPEST):
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level]
        level = [item for items in inner for item in items if isinstance(item, (dict, list))]
        if not level:
            return
    raise ValueError(f"{source} is nested more than {_DEEPEST} levels deep")


def parse_row(item: Any, source: str) -> tuple[RowDict, list[float] | None]:
    """Return a document's row and its raw samples; ValueError for anything else."""
    check_row(item)
    samples = schema.parse_samples(item.pop(schema.SAMPLES, None))
    return csv_file.complete_row(schema.normalize_row(item), bare=False, source=source), samples


def check_row(row: Any) -> None:
    """Raise ValueError for anything but an object, and for one that is nested too deep."""
    if not isinstance(row, dict):
        raise ValueError(f"{repr_short(row)} is not a row")
    check_depth(row, "it")
