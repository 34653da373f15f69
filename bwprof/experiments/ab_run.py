"""Run A/B comparisons: their pairs of sides, their rows, and the run as a DataFrame, JSON, CSV and sentences."""

from __future__ import annotations

import json
import math
import platform
import statistics as numbers
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from bwprof import _core, environment
from bwprof.experiments import ab_session as session
from bwprof.experiments.ab_process import ProcessSide
from bwprof.experiments.ab_session import FAILED, UNDECIDED, Comparison, StopRule
from bwprof.experiments.ab_sides import ABSide, ABTask, CallSide, SideError, SideInfo, later_timer
from bwprof.hardware import Choice
from bwprof.measuring.callables import Expected
from bwprof.measuring.operation import Spec
from bwprof.results.json_file import to_json_value
from bwprof.runs import metadata
from bwprof.text.formatting import format_seconds, plural

if TYPE_CHECKING:
    import pandas as pd

Verdict = tuple[bool | None, str]  # verified, note
Compare = Callable[[Sequence[ABSide]], Verdict]

# ---- pairs ----


@dataclass(frozen=True, slots=True)
class ABPair:
    """One comparison: its case, its sides and their names; `same`: they do not differ."""

    case: str
    cache: str
    names: tuple[str, str]
    sides: Sequence[ABSide]
    same: bool = False


def make_pairs(
    tasks: Sequence[tuple[ABTask, ABTask]], make: Callable[[int, ABTask], ABSide], *, same_place: bool
) -> list[ABPair]:
    """Make comparisons of tasks; `make` makes side 0 or 1, in the same place or in two."""
    pairs = []
    for a, b in tasks:
        names = (_name_task(a), _name_task(b))
        case = join_names(*names)
        if isinstance(a, Spec):
            case = f"{a.case} {a.precision}"
        elif names[0] == names[1]:
            case = a.title
        pairs.append(ABPair(case, a.cache, names, [make(0, a), make(1, b)], same_place and a == b))
    return pairs


def _name_task(task: ABTask) -> str:
    if isinstance(task, Spec):
        return f"{task.operation}:{task.variant}" if task.variant else task.operation
    return task.name


def join_names(a: str, b: str) -> str:
    return a if a == b else f"{a} and {b}"


def measure_pair(
    pair: ABPair,
    rule: StopRule,
    table: ABTable,
    check: Callable[[], object],
    compare: Compare,
) -> Comparison:
    """Measure one comparison; `table` gets its row however it ends.

    `compare` gets the open sides and compares their results: (verified, note).
    """
    verdict: Verdict = (None, "")
    labels: ABRow = {"case": pair.case, "cache": pair.cache, "a": pair.names[0], "b": pair.names[1]}

    def check_pair(opened: Sequence[SideInfo]) -> None:
        nonlocal verdict
        for name, info, side in zip(("a", "b"), opened, pair.sides, strict=True):
            own = {"title": info.title}
            if isinstance(side, ProcessSide):
                table.run.setdefault("facts", side.facts)
                labels[f"{name}_environment"] = side.environment or None
                own |= side.metadata
            table.run[name] = table.run.get(name, {}) | own
        check_same_work(opened)
        verdict = compare(pair.sides)

    timer = partial(later_timer, backend=table.run["backend"])
    comparison = Comparison(pair.sides, rule, timer, check, check_pair)
    try:
        with ExitStack() as stack:
            for side in pair.sides:
                stack.callback(side.end)
            comparison.run()
    finally:
        verified, note = verdict
        if comparison.opened and all(info.verified for info in comparison.opened):
            verified = True
        same = "A and B are the same: any difference is noise" if pair.same else ""
        table.add(comparison, labels | {"verified": verified}, [same, note])
    return comparison


def check_same_work(opened: Sequence[SideInfo]) -> None:
    """Raise SideError if two sides report different operations, precisions, shapes or parameters."""
    a, b = ({"operation": i.operation, "precision": i.precision, "shape": i.shape, **(i.params or {})} for i in opened)
    for name, value in a.items():
        if None not in (value, b.get(name)) and value != b[name]:
            problem = f"{name} of A is {value}, of B {b[name]}"
            raise SideError(f"{problem}: a ratio of times needs two sides that do the same work")


def compare_nothing(_sides: Sequence[ABSide]) -> Verdict:
    """Compare no results: operations verify their own."""
    return None, ""


def compare_outputs(sides: Sequence[ABSide], tolerance: float | None) -> Verdict:
    """Compare the array that B returns with A's; without a tolerance a difference is only noted."""
    a, b = (side.returned if isinstance(side, CallSide) else None for side in sides)
    if getattr(a, "shape", None) is None or getattr(b, "shape", None) is None:
        if tolerance is not None:
            raise SideError("tolerance= goes with functions that return arrays, and these return none")
        return None, ""
    try:
        verdict = Expected(b, a, tolerance).compare()
    except (TypeError, ValueError) as error:
        if tolerance is not None:
            raise SideError(f"what A and B return cannot be compared: {error}") from None
        return None, ""
    if verdict.wrong and tolerance is not None:
        raise SideError(f"B returns something else than A: {verdict.wrong}")
    return verdict.verified or None, "" if verdict.verified else f"B against A: {verdict.wrong or verdict.note}"


# ---- rows ----

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
    """The rows of a run, its metadata and, for each row, the units, orders and times behind it."""

    run: dict[str, Any]
    rows: list[ABRow] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, choice: Choice, rule: StopRule, argv: Sequence[str] | None = None) -> ABTable:
        """Make the table of a run that begins."""
        return cls(metadata.describe(environment.new_run_id(), choice, argv) | {"how": asdict(rule)})

    def add(self, comparison: Comparison, labels: ABRow, notes: Sequence[str]) -> None:
        """Add a comparison, complete or not; `labels` are case, cache, a, b, their environments and verified."""
        run, rule, ratio, opened = self.run, comparison.rule, comparison.ratio, comparison.opened
        failed = comparison.stopped == FAILED
        verdict = UNDECIDED if failed else session.verdict_of(ratio, rule.gate)
        row: ABRow = dict.fromkeys(COLUMNS) | {
            "backend": run["backend"],
            "device": run["device"],
            "verdict": verdict,
            "ratio": None if math.isnan(ratio.value) else ratio.value,
            "ratio_lo": ratio.low if ratio.low > 0 else None,
            "ratio_hi": ratio.high if math.isfinite(ratio.high) else None,
            "pairs": comparison.pairs,
            "units": len(comparison.units),
            "renewals": comparison.renewals,
            "order": "ABBA or BAAB by a coin",
            "seconds": comparison.seconds,
            "stopped": comparison.stopped,
            "seed": rule.seed,
            "run_id": run["run_id"],
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "hostname": platform.node() or None,
            "driver": run.get("facts", {}).get("driver") or None,
            "bwprof_version": _core.__version__,
        }
        why = "" if failed or verdict != UNDECIDED else _why_undecided(comparison)
        row["reason"] = "; ".join(filter(None, (comparison.reason, why, *notes))) or None
        if opened:
            row |= {name: getattr(opened[0], name) for name in ("operation", "precision", "timer")}
        for side, info, times in zip(("a", "b"), opened, comparison.times, strict=False):
            if times:
                time_ms = row[f"{side}_time_ms"] = numbers.median(times) / 1e6
                row[f"{side}_gb_s"] = info.bytes_moved and _core.bandwidth_gb_s(info.bytes_moved, time_ms / 1e3)
        self.rows.append(row | labels)
        units = {"log_ratios": comparison.units, "orders": comparison.orders}
        self.details.append(units | {"block_ns": list(comparison.times)})

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
        rows = [row | detail for row, detail in zip(self.rows, self.details, strict=True)]
        return (
            json.dumps(to_json_value({"paired": VERSION, "run": self.run, "rows": rows}), indent=1, allow_nan=False)
            + "\n"
        )

    def csv_text(self) -> str:
        from bwprof.results import frame

        return frame.format_csv(self.frame())


def _why_undecided(comparison: Comparison) -> str:
    if len(comparison.units) < session.LEAST_UNITS:
        renewable = any(info.renewable for info in comparison.opened)
        what = "times with fresh buffers" if renewable else "blocks of four turns"
        return f"{len(comparison.units)} {what} are too few: {session.LEAST_UNITS} are needed"
    if comparison.stopped == session.PRECISE:
        return "the difference is about as large as the smallest relevant one (gate)"
    return "more time is needed"


_RATIOS = ("ratio", "ratio_lo", "ratio_hi")

_VERDICTS = {
    session.SLOWER: "B is slower than A: its time is",
    session.FASTER: "B is faster than A: its time is",
    session.SAME: "A and B are the same: B's time is",
    UNDECIDED: "undecided: B's time is",
}


def describe_row(row: ABRow) -> str:
    """Describe a row in a sentence: the verdict on B, the difference, the number of pairs."""
    if row["ratio"] is None:
        return f"{row['case']}: nothing was measured"
    change, *ends = (f"{100 * (row[name] - 1):+.2f} %" for name in _RATIOS if row[name] is not None)
    change += f" ({' to '.join(ends)})" if len(ends) == 2 else ""
    after = f"{plural(row['pairs'], 'pair')} in {format_seconds(max(row['seconds'], 1e-9))}"
    why = f"; {row['reason']}" if row["reason"] else ""
    return f"{row['case']}: {_VERDICTS[row['verdict']]} {change}, {after}{why}"
