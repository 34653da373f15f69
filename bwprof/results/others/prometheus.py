"""Rows in Prometheus' text format, for the textfile collector of its node_exporter.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from bwprof.results import schema
from bwprof.results.schema import Row
from bwprof.text import finite_number

OPENING = "# HELP bwprof_"  # of such a file

# What tells rows apart, beside their operations' parameters.
_LABELS = ("case", "operation", "precision", "variant", "cache", "timer", "backend", "device", "device_uuid")


def text(rows: Iterable[Row]) -> str:
    """The document: of rows that no label tells apart the last one; NaN for a figure that a case does not have.

    Units are Prometheus' own: bytes, seconds, ratios.

    Examples
    --------
    >>> print(text([{"case": "decode", "status": "ok", "bandwidth_gb_s": 3747.0}]).splitlines()[2])
    bwprof_bandwidth_bytes_per_second{case="decode"} 3747000000000.0
    """
    series = {_labels(row): row for row in rows}
    lines: list[str] = []
    for name, told, value in _FIGURES:
        lines += [f"# HELP bwprof_{name} {told}", f"# TYPE bwprof_{name} gauge"]
        lines += [f"bwprof_{name}{_braces(labels)} {_number(value(row))}" for labels, row in series.items()]
    lines += ["# HELP bwprof_flag A reason to doubt a case's row, 1 where it is there.", "# TYPE bwprof_flag gauge"]
    for labels, row in series.items():
        lines += [f"bwprof_flag{_braces((*labels, ('flag', flag)))} 1" for flag in _flags(row)]
    return "\n".join(lines) + "\n"


def _scaled(column: str, factor: float) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        found = finite_number(row.get(column)) if row.get("status") == "ok" else None
        return None if found is None else found * factor

    return value


def _flags(row: Row) -> list[str]:
    return list(dict.fromkeys(flag for flag in _utf8(_known(row, "flags") or "").split(";") if flag))


def _measured_at(row: Row) -> float | None:
    try:
        return datetime.fromisoformat(str(_known(row, "timestamp"))).timestamp()
    except ValueError:
        return None


_FIGURES: tuple[tuple[str, str, Callable[[Row], float | None]], ...] = (
    (
        "bandwidth_bytes_per_second",
        "Compulsory bytes of a launch over its median time.",
        _scaled("bandwidth_gb_s", 1e9),
    ),
    (
        "attainable_ratio",
        "That bandwidth over what a plain stream of the same bytes reaches, 1 being all of it.",
        _scaled("pct_attainable", 1e-2),
    ),
    ("launch_seconds", "Median time of a launch.", _scaled("time_ms", 1e-3)),
    (
        "case_ok",
        "1 for a case that was measured, 0 for one that failed or was skipped.",
        lambda row: row.get("status") == "ok",
    ),
    ("case_flags", "How many reasons there are to doubt a case's row.", lambda row: len(_flags(row))),
    ("case_timestamp_seconds", "When a case was measured, Unix time.", _measured_at),
)


def _known(row: Mapping[str, object], name: str) -> object:
    value = row.get(name)
    return None if schema.is_missing(value) else value


def _labels(row: Row) -> tuple[tuple[str, str], ...]:
    found = [(name, _known(row, name)) for name in (*_LABELS, *schema.all_param_names())]
    return tuple((name, _utf8(value)) for name, value in found if value not in (None, ""))


def _utf8(value: object) -> str:
    """As it is written: what differs in surrogates alone is one series, since two of a name void the whole file."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _braces(labels: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    """A label's value: three escapes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float | None) -> str:
    """As Go reads floats."""
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value) if isinstance(value, bool) else value)
