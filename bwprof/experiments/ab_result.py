"""The result of an A/B run: rows, a DataFrame, JSON, CSV and sentences."""

from __future__ import annotations

import json
import math
import platform
import statistics as numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bwprof import _core
from bwprof.experiments import ab_session as session
from bwprof.experiments.ab_session import FAILED, UNDECIDED, ABMeasurement
from bwprof.results.json_file import to_json_value
from bwprof.text.formatting import format_seconds, plural

if TYPE_CHECKING:
    import pandas as pd

VERSION = 1  # of the JSON document

ABRow = dict[str, Any]

_COLUMNS = """
case operation precision cache backend device a b verdict ratio:float64 ratio_lo:float64 ratio_hi:float64
a_time_ms:float64 b_time_ms:float64 a_gb_s:float64 b_gb_s:float64 pairs:int64 units:int64 renewals:int64 order
seconds:float64 stopped reason verified:boolean timer a_environment b_environment seed:int64 run_id timestamp hostname
driver bwprof_version
"""

# Each column's type in a frame.
COLUMNS: dict[str, Any] = {
    name: kind or "object" for name, _, kind in (word.partition(":") for word in _COLUMNS.split())
}


@dataclass(slots=True)
class ABTable:
    """The rows of a run, its metadata and, for each row, the units and orders behind it."""

    run: dict[str, Any]
    rows: list[ABRow] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: ABRow, measurement: ABMeasurement) -> None:
        """Add a comparison, complete or not."""
        self.rows.append(row)
        self.details.append(measurement.details())

    def finish(self, status: str) -> None:
        """Record how the run ended."""
        self.run |= {"status": status, "finished": datetime.now(UTC).isoformat(timespec="seconds")}

    def frame(self) -> pd.DataFrame:
        """Return the rows; ``attrs["run"]`` is the metadata, ``attrs["pairs"]`` the details of each row."""
        import pandas as pd

        columns = {name: pd.Series([row[name] for row in self.rows], dtype=kind) for name, kind in COLUMNS.items()}
        data = pd.DataFrame(columns)
        data.attrs = {"run": to_json_value(self.run), "pairs": to_json_value(self.details)}
        return data

    def json_text(self) -> str:
        """Return everything as a JSON document."""
        rows = [row | detail for row, detail in zip(self.rows, self.details, strict=True)]
        return (
            json.dumps(to_json_value({"paired": VERSION, "run": self.run, "rows": rows}), indent=1, allow_nan=False)
            + "\n"
        )

    def csv_text(self) -> str:
        """Return header and rows as CSV."""
        from bwprof.results import frame

        return frame.format_csv(self.frame())


def row_of(
    measurement: ABMeasurement, run: Mapping[str, Any], labels: ABRow, *, verified: bool | None, notes: str
) -> ABRow:
    """Make the row of a comparison; `labels` are its case, cache, a, b and both environments."""
    ratio, opened = measurement.ratio, measurement.opened
    verdict = UNDECIDED if measurement.stopped == FAILED else session.verdict_of(ratio, measurement.rule.gate)
    row: ABRow = dict.fromkeys(COLUMNS) | {
        "backend": run["backend"],
        "device": run["device"],
        "verdict": verdict,
        "ratio": None if math.isnan(ratio.value) else ratio.value,
        "ratio_lo": ratio.low if ratio.low > 0 else None,
        "ratio_hi": ratio.high if math.isfinite(ratio.high) else None,
        "pairs": measurement.pairs,
        "units": len(measurement.units),
        "renewals": measurement.renewals,
        "order": "ABBA or BAAB by a coin",
        "seconds": measurement.seconds,
        "stopped": measurement.stopped,
        "reason": "; ".join(filter(None, (measurement.reason, _why_undecided(measurement, verdict), notes))) or None,
        "verified": verified,
        "seed": measurement.rule.seed,
        "run_id": run["run_id"],
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "hostname": platform.node() or None,
        "driver": run.get("facts", {}).get("driver") or None,
        "bwprof_version": _core.__version__,
    }
    if opened:
        row |= {name: getattr(opened[0], name) for name in ("operation", "precision", "timer")}
    for side, name in enumerate(session.NAMES):
        times = measurement.times[side]
        time_ms = numbers.median(times) / 1e6 if times else None
        moved = opened[side].bytes_moved if opened else None
        row[f"{name.lower()}_time_ms"] = time_ms
        if moved and time_ms:
            row[f"{name.lower()}_gb_s"] = _core.bandwidth_gb_s(moved, time_ms / 1e3)
    return row | labels


def _why_undecided(measurement: ABMeasurement, verdict: str) -> str:
    if verdict != UNDECIDED or measurement.stopped == FAILED:
        return ""
    if len(measurement.units) < session.LEAST_UNITS:
        renewable = any(info.renewable for info in measurement.opened)
        what = "times with fresh buffers" if renewable else "blocks of four turns"
        return f"{len(measurement.units)} {what} are too few: {session.LEAST_UNITS} are needed"
    if measurement.stopped == session.PRECISE:
        return "the difference is about as large as the smallest relevant one (gate)"
    return "more time is needed"


_VERDICTS = {
    session.SLOWER: "B is slower than A: its time is",
    session.FASTER: "B is faster than A: its time is",
    session.SAME: "A and B are the same: B's time is",
    UNDECIDED: "undecided: B's time is",
}


def describe_row(row: ABRow) -> str:
    """Describe a row in a sentence: the verdict on B, the difference, the number of pairs."""
    if row["stopped"] == FAILED:
        return f"{row['case']}: {row['reason']}"
    if row["ratio"] is None:
        return f"{row['case']}: nothing was measured"
    change = _change_text(row["ratio"], row["ratio_lo"], row["ratio_hi"])
    after = f"{plural(row['pairs'], 'pair')} in {format_seconds(max(row['seconds'], 1e-9))}"
    why = f"; {row['reason']}" if row["reason"] else ""
    return f"{row['case']}: {_VERDICTS[row['verdict']]} {change}, {after}{why}"


def _change_text(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """Write a ratio and its interval as differences from 1, or as ratios if one of them is large.

    Examples
    --------
    >>> _change_text(1.021), _change_text(0.95, 0.94, 0.96)
    ('+2.10 %', '-5.00 % (-6.00 % to -4.00 %)')
    >>> _change_text(0.62, 0.4, 0.85)
    "0.62 times A's (0.40 to 0.85)"
    """
    ends = [] if low is None or high is None else [low, high]
    if all(0.5 < value < 1.5 for value in (ratio, *ends)):
        texts = [f"{100 * (value - 1):+.2f} %" for value in (ratio, *ends)]
    else:
        texts = [f"{ratio:.2f} times A's", *(f"{value:.2f}" for value in ends)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})" if ends else texts[0]


def level_text() -> str:
    """Return the interval's level."""
    return f"{100 * session.LEVEL:g} %"
