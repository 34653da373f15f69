"""Results as JSON: rows with their raw samples, and the run's metadata, replaced in one step."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bwprof.results import csvfile, schema
from bwprof.results.files import atomic_write
from bwprof.results.schema import Row

FORMAT = "bwprof-results"
SAMPLES = "samples_ns"


def text(rows: Sequence[Row], samples: Sequence[Sequence[float] | None], run: dict[str, Any]) -> str:
    """The whole document; missing values are null, raw samples are ns per launch."""
    head = json.dumps(
        {"format": FORMAT, "schema_version": schema.SCHEMA_VERSION, "run": plain(run)}, indent=1, allow_nan=False
    )
    lines = []
    for row, values in zip(rows, samples, strict=True):
        known = {name: value for name, value in schema.normalise_row(row).items() if value is not None}
        known[SAMPLES] = [round(value, 3) for value in values] if values is not None else None
        lines.append("  " + json.dumps(plain(known), allow_nan=False))
    return head[: head.rindex("\n")] + ',\n "rows": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def plain(value: Any) -> Any:
    """The same value in types that strict JSON has: NaN becomes null, infinity a word."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)


def write(path: Path, rows: Sequence[Row], samples: Sequence[Sequence[float] | None], run: dict[str, Any]) -> None:
    """Replace `path` by the whole document; OSError when it cannot be written, the old file untouched."""
    atomic_write(path, text(rows, samples, run))


def read(path: Path) -> tuple[list[Row], list[list[float] | None], dict[str, Any]]:
    """Rows, raw samples (ns per launch) and run metadata.

    Raises
    ------
    ValueError
        For a file that is not ours, or that a later bwprof wrote.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # ValueError: not text, not JSON, a number of too many digits
        raise ValueError(f"{path} is not a bwprof result file: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'{path} is not a bwprof result file: it has no "format": "{FORMAT}"')
    schema.check_version(document.get("schema_version"), str(path))
    listed, run = document.get("rows"), document.get("run")
    if not isinstance(listed, list) or not isinstance(run, dict):
        raise ValueError(f"{path} is not a whole bwprof result file: rows or run are missing")
    rows: list[Row] = []
    samples: list[list[float] | None] = []
    for number, found in enumerate(listed, start=1):
        try:
            if not isinstance(found, dict):
                raise ValueError(f"{found!r} is not a row")
            rows.append(csvfile.completed(schema.normalise_row(found), bare=False, source=str(path)))
            samples.append(_checked_samples(found.get(SAMPLES)))
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
    return rows, samples, run


def _checked_samples(found: Any) -> list[float] | None:
    if found is None:
        return None
    numbers = (int, float)
    if not isinstance(found, list) or any(isinstance(x, bool) or not isinstance(x, numbers) for x in found):
        raise ValueError(f"{SAMPLES} must be a list of numbers")
    return found
