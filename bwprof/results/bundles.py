"""Proof bundles as they are read: reports of a few columns, one, a list, or with their run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bwprof import registry
from bwprof.results import csvfile, jsonfile, schema
from bwprof.results.files import read_text
from bwprof.results.schema import Row

NAME = "bandwidth_report.json"
METADATA_NAME = "metadata.json"  # of the run, beside it
REPORT_NAMES = ("operation", "precision", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written")

Content = tuple[list[Row], list[list[float] | None], dict[str, Any]]


def is_bundle(document: Any) -> bool:
    """Whether a JSON document has the form of a bundle's: its reports may be damaged."""
    if isinstance(document, list):
        return bool(document) and all(isinstance(found, dict) and "operation" in found for found in document)
    if not isinstance(document, dict) or "format" in document:
        return False
    return ("run" in document and isinstance(document.get("reports"), list)) or document.keys() >= {*REPORT_NAMES}


def reports_of(document: Any) -> list[Any]:
    """The reports of any of the three forms."""
    if isinstance(document, list):
        return document
    found = document.get("reports")
    return found if isinstance(found, list) else [document]


def content(document: Any, source: str) -> Content:
    """Rows and the run's metadata; no raw samples, which a bundle's results.json keeps.

    Raises
    ------
    ValueError
        For a report that is none.
    """
    run = document.get("run", {}) if isinstance(document, dict) else {}
    if not isinstance(run, dict):
        raise ValueError(f"{source} is not a proof bundle: its run is no object")
    jsonfile.check_depth(run, source)
    rows = []
    for number, found in enumerate(reports_of(document), start=1):
        try:
            rows.append(_row(found, source))
        except ValueError as error:
            raise ValueError(f"{source}, report {number}: {error}") from None
    return rows, [None] * len(rows), run


def _row(found: Any, source: str) -> Row:
    """A report as a row: the precision by its usual name."""
    jsonfile.check_row(found)
    missing = [name for name in REPORT_NAMES if name not in found]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing")
    row = csvfile.completed(schema.normalise_row(found), bare="status" not in found, source=source)
    return row | {"precision": registry.precision_name(found["precision"] or "")}


def with_metadata(path: Path, found: Content) -> Content:
    """What was read of a bundle's file, with the metadata that stand in a file beside it where it has none."""
    rows, samples, run = found
    beside = path.with_name(METADATA_NAME)
    if run or path.name != NAME or not beside.is_file():
        return found
    try:
        told = json.loads(read_text(beside))
        jsonfile.check_depth(told, str(beside))
    except (ValueError, RecursionError):  # the reports are there
        return found
    return rows, samples, told if isinstance(told, dict) else run
