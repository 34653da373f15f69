"""Comparisons as rows, a frame, JSON and CSV, and in words."""

from __future__ import annotations

import csv
import io
import json
import math
import platform
import statistics as numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bwprof import _core
from bwprof.experiments import ab_session
from bwprof.experiments.ab_session import LEAST_UNITS, LEVEL, NAMES, ABMeasurement
from bwprof.results.csv_file import quoted_formula
from bwprof.results.json_file import to_json_value
from bwprof.results.schema import clean_text
from bwprof.text.formatting import format_seconds, plural

if TYPE_CHECKING:
    import pandas as pd

VERSION = 1  # of the JSON document

ABRow = dict[str, Any]

# The columns, and the type of each in a frame.
COLUMNS: dict[str, Any] = {
    "case": "object",
    "operation": "object",
    "precision": "object",
    "cache": "object",
    "backend": "object",
    "device": "object",
    "a": "object",
    "b": "object",
    "verdict": "object",
    "ratio": "float64",
    "ratio_lo": "float64",
    "ratio_hi": "float64",
    "a_time_ms": "float64",
    "b_time_ms": "float64",
    "a_gb_s": "float64",
    "b_gb_s": "float64",
    "pairs": "int64",
    "units": "int64",
    "renewals": "int64",
    "order": "object",
    "seconds": "float64",
    "stopped": "object",
    "reason": "object",
    "verified": "boolean",
    "timer": "object",
    "a_environment": "object",
    "b_environment": "object",
    "seed": "int64",
    "run_id": "object",
    "timestamp": "object",
    "hostname": "object",
    "driver": "object",
    "bwprof_version": "object",
}


@dataclass(slots=True)
class ABTable:
    """The rows of a run, with its metadata and, for each row, the units and orders that it comes from."""

    run: dict[str, Any]
    rows: list[ABRow] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: ABRow, found: ABMeasurement) -> None:
        """A comparison that has ended, however it did."""
        self.rows.append(row)
        self.details.append(ab_session.plain(found))

    def finish(self, status: str) -> None:
        """How the run ended."""
        self.run |= {"status": status, "finished": datetime.now(UTC).isoformat(timespec="seconds")}

    def frame(self) -> pd.DataFrame:
        """The rows; ``attrs["run"]`` is the metadata, ``attrs["pairs"]`` what each row comes from."""
        import pandas as pd

        made = pd.DataFrame(
            {name: pd.Series([row[name] for row in self.rows], dtype=kind) for name, kind in COLUMNS.items()}
        )
        made.attrs = {"run": to_json_value(self.run), "pairs": to_json_value(self.details)}
        return made

    def json_text(self) -> str:
        """The whole as a document."""
        rows = [row | detail for row, detail in zip(self.rows, self.details, strict=True)]
        return (
            json.dumps(to_json_value({"paired": VERSION, "run": self.run, "rows": rows}), indent=1, allow_nan=False)
            + "\n"
        )

    def csv_text(self) -> str:
        """Header and rows."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in self.rows:
            writer.writerow([_cell(row[name]) for name in COLUMNS])
        return out.getvalue()


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, (bool, int, float)) else quoted_formula(clean_text(str(value)))


def row_of(
    found: ABMeasurement, run: Mapping[str, Any], told: Mapping[str, Any], *, verified: bool | None, notes: str
) -> ABRow:
    """The row of a comparison; `told` says which: case, cache, a, b and both environments."""
    ratio = found.ratio
    opened = found.opened[0] if found.opened else None
    times = [numbers.median(one) / 1e6 if one else None for one in found.times]
    moved = [one.bytes_moved for one in found.opened] or [None, None]
    verdict = (
        ab_session.verdict_of(ratio, found.how.gate) if found.stopped != ab_session.FAILED else ab_session.UNDECIDED
    )
    known = not math.isnan(ratio.value)
    return {
        "case": told["case"],
        "operation": opened.operation if opened else None,
        "precision": opened.precision if opened else None,
        "cache": told["cache"],
        "backend": run["backend"],
        "device": run["device"],
        "a": told["a"],
        "b": told["b"],
        "verdict": verdict,
        "ratio": ratio.value if known else None,
        "ratio_lo": ratio.low if ratio.low > 0 else None,
        "ratio_hi": ratio.high if math.isfinite(ratio.high) else None,
        **{f"{name.lower()}_time_ms": time for name, time in zip(NAMES, times, strict=True)},
        **{
            f"{name.lower()}_gb_s": _core.bandwidth_gb_s(count, time / 1e3) if count and time else None
            for name, count, time in zip(NAMES, moved, times, strict=True)
        },
        "pairs": found.pairs,
        "units": len(found.units),
        "renewals": found.renewals,
        "order": "ABBA or BAAB by a coin",
        "seconds": found.seconds,
        "stopped": found.stopped,
        "reason": "; ".join(said for said in (found.reason, _why(found, verdict), notes) if said) or None,
        "verified": verified,
        "timer": opened.timer if opened else None,
        "a_environment": told["a_environment"],
        "b_environment": told["b_environment"],
        "seed": found.how.seed,
        "run_id": run["run_id"],
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "hostname": platform.node() or None,
        "driver": run.get("facts", {}).get("driver") or None,
        "bwprof_version": _core.__version__,
    }


def _why(found: ABMeasurement, verdict: str) -> str:
    """What should be known of an undecided one."""
    if verdict != ab_session.UNDECIDED or found.stopped == ab_session.FAILED:
        return ""
    if len(found.units) < LEAST_UNITS:
        what = "times with fresh buffers" if any(one.renewable for one in found.opened) else "blocks of four turns"
        return f"{len(found.units)} {what} say nothing: {LEAST_UNITS} are needed"
    if found.stopped == ab_session.PRECISE:
        return "the difference is about as large as the smallest that is worth a word"
    return "more time would tell"


def describe_row(row: ABRow) -> str:
    """A row in words: what is said of B, by how much, after how many pairs."""
    after = f"{plural(row['pairs'], 'pair')} in {format_seconds(max(row['seconds'], 1e-9))}"
    if row["stopped"] == ab_session.FAILED:
        return f"{row['case']}: {row['reason']}"
    if row["ratio"] is None:
        return f"{row['case']}: nothing was measured"
    said = _change(row["ratio"], row["ratio_lo"], row["ratio_hi"])
    words = {
        ab_session.SLOWER: f"B is slower than A: its time is {said}",
        ab_session.FASTER: f"B is faster than A: its time is {said}",
        ab_session.SAME: f"A and B are the same: B's time is {said}",
        ab_session.UNDECIDED: f"undecided: B's time is {said}",
    }[row["verdict"]]
    why = f"; {row['reason']}" if row["reason"] else ""
    return f"{row['case']}: {words}, {after}{why}"


def _change(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """A ratio and its interval as differences to 1; where one of the three is large, all as they are.

    Examples
    --------
    >>> _change(1.021), _change(0.95, 0.94, 0.96)
    ('+2.10 %', '-5.00 % (-6.00 % to -4.00 %)')
    >>> _change(0.62, 0.4, 0.85)
    "0.62 times A's (0.40 to 0.85)"
    """
    ends = [] if low is None or high is None else [low, high]
    if all(0.5 < value < 1.5 for value in (ratio, *ends)):
        said = [f"{100 * (value - 1):+.2f} %" for value in (ratio, *ends)]
    else:
        said = [f"{ratio:.2f} times A's", *(f"{value:.2f}" for value in ends)]
    return f"{said[0]} ({said[1]} to {said[2]})" if ends else said[0]


def level_text() -> str:
    """The interval's level."""
    return f"{100 * LEVEL:g} %"
