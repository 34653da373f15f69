"""Make rows of measurements, with the conditions during them."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from bwprof import _core
from bwprof.environment import process_token
from bwprof.measuring import grade
from bwprof.measuring.grade import count_moved_bytes, list_throttle_reasons, nan_to_none
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.roofs.model import References, Roofs, prolonged_pct
from bwprof.text import formatting

COOL_SECONDS = 3.0  # to wait at most before the second try
_STEP_SECONDS = 0.05
_THERMAL = frozenset({"sw_thermal", "hw_thermal"})
_NUMBERS = ("energy_j", "power_w", "sm_clock_mhz", "mem_clock_mhz", "temperature_c")
Result = dict[str, Any]


def add_conditions(row: RowDict, conditions: dict[str, Any]) -> None:
    """Fill the row's columns of conditions; what is unknown stays empty."""
    row.update({name: None if formatting.is_missing(conditions[name]) else conditions[name] for name in _NUMBERS})
    row["throttle"] = conditions["throttle"] or None


def is_hot(conditions: dict[str, Any]) -> bool:
    """Return whether heat held the clock down."""
    return not _THERMAL.isdisjoint(list_throttle_reasons(conditions))


def measure_cool(
    measure: Callable[[], Result],
    conditions: Callable[[], dict[str, Any]],
    poll: Callable[[], object] | None = None,
    *,
    deadline: float | None = None,
    max_seconds: float = 0.0,
    pause: Callable[[float], object] = time.sleep,
) -> tuple[Result, float]:
    """Measure; where heat held the clock down, wait until the device is cool and measure once more.

    Return the last result, and the seconds waited before it (0: measured once). `poll` may raise to end the wait. There
    is no second measurement of `max_seconds` that might pass the deadline, a time.monotonic().
    """
    result, waited = measure(), 0.0
    late = deadline is not None and time.monotonic() + COOL_SECONDS + max_seconds >= deadline
    if late or not is_hot(result["conditions"]):
        return result, waited
    while waited < COOL_SECONDS:
        if poll is not None:
            poll()
        pause(_STEP_SECONDS)
        waited += _STEP_SECONDS
        if not is_hot(conditions()):
            break
    return measure(), waited


def try_count(status: str, cache: str, count: Callable[[], Result]) -> Result:
    """Return what `count` returns, or {status: why not}; an error that loses the device is in it as `lost`.

    An error is no exception here: the row has its time already.
    """
    if cache != "cold":
        return {status: "not counted: only cold launches are counted, this row is hot"}
    try:
        return count()
    except (RuntimeError, ValueError, MemoryError, OSError) as error:
        why = str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)
        return {status: f"not counted: {why}"} | ({"lost": error} if getattr(error, "fatal", False) else {})


def split_metrics(found: Result) -> Result:
    """Return counted metrics with their status beside them."""
    return {"metrics_status": found.pop("metrics_status"), "metrics": found}


STALL_SHARE_LEAST = 0.01  # of all waiting warps; rarer reasons are left out
_STALL = "stall_"


@dataclass(frozen=True, slots=True)
class Context:
    """What all rows of a run share; `labels` are the caller's own columns."""

    run_id: str
    backend: str
    facts: dict[str, Any]
    roofs: Roofs | None
    labels: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished row."""

    row: RowDict
    samples: list[float] | None = None  # raw, ns per launch
    fatal: bool = False  # the device is lost
    beaten: float = 0.0  # the fraction above its roof, where only a wrong roof explains that
    references: References | None = None  # the reference streams beside the samples


def describe_origin(context: Context) -> RowDict:
    """Return the columns of the run, the device and the machine."""
    return {
        "run_id": context.run_id,
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "bwprof_version": _core.__version__,
        "schema_version": schema.SCHEMA_VERSION,
        "backend": context.backend,
        "device": context.facts.get("name"),
        "device_uuid": context.facts.get("uuid") or None,
        "driver": context.facts.get("driver") or None,
        "hostname": platform.node() or None,
        "process": process_token(),
    }


def make_blank(context: Context, identity: RowDict, labels: Mapping[str, Any] | None = None) -> RowDict:
    """Return a row before anything has run: its identity, its origin, the run's labels and its own."""
    return schema.empty_row() | identity | describe_origin(context) | context.labels | dict(labels or {})


class MeasuredItem(Protocol):
    """What a run measures; each item leaves a row."""

    @property
    def title(self) -> str:
        """The text of progress lines."""

    @property
    def cache(self) -> str:
        """Cold or hot."""

    @property
    def repeatable(self) -> bool:
        """Whether a disturbed item may be measured once more."""

    def blank_row(self, context: Context) -> RowDict:
        """Return the row before anything has run."""


def make_unmeasured(item: MeasuredItem, context: Context, status: str, reason: str) -> Outcome:
    """Return the row of an item that did not run, or did not come back."""
    return make_failed(item.blank_row(context), status, reason)


def make_failed(row: RowDict, status: str, reason: str, *, fatal: bool = False) -> Outcome:
    """Return a row without a time, and why."""
    row["status"] = status
    row["reason"] = reason
    return Outcome(row, fatal=fatal)


def make_failed_by(error: BaseException, row: RowDict, *, refused: str = "skipped") -> Outcome:
    """Return the row of an item that raised; `refused` is the status where the device does not take it."""
    if isinstance(error, (_core.UnsupportedError, _core.MemoryLimitError)):
        return make_failed(row, refused, str(error))
    if isinstance(error, MemoryError):
        return make_failed(row, "skipped", str(error) or "out of memory")
    reason = str(error) if isinstance(error, _core.DeviceError) else f"{type(error).__name__}: {error}"
    return make_failed(row, "failed", reason, fatal=bool(getattr(error, "fatal", False)))


def add_work(row: RowDict, cost: dict[str, int]) -> None:
    """Fill in the bytes and FLOPs of a launch."""
    row.update(cost)
    moved = cost["bytes_read"] + cost["bytes_written"]
    row["arithmetic_intensity"] = cost["flops"] / moved if moved else None


def add_method(row: RowDict, result: dict[str, Any]) -> None:
    """Fill in how a measurement was made."""
    row.update(
        timer=result["timer"],
        cache=result["cache"],
        buffer_sets=result["buffer_sets"],
        launches_per_sample=result["launches_per_sample"],
        timer_floor_us=nan_to_none(result["timer_floor_ns"] / 1e3),
        host_launch_us=nan_to_none(result["host_launch_ns"] / 1e3),
    )


def add_time(row: RowDict, result: dict[str, Any], context: Context, waited: float = 0.0) -> float:
    """Fill in the time and what follows from it and the row's work; return `Outcome.beaten`."""
    seconds = result["median_ns"] / 1e9
    moved = count_moved_bytes(row)
    row.update(
        status="ok",
        time_ms=result["median_ns"] / 1e6,
        time_ms_lo=result["lo_ns"] / 1e6,
        time_ms_hi=result["hi_ns"] / 1e6,
        time_ms_min=result["min_ns"] / 1e6,
        noise=result["noise"],
        disturbed_pct=prolonged_pct(result),
        samples=result["count"],
        converged=result["converged"],
        bandwidth_gb_s=None if moved is None else _core.bandwidth_gb_s(moved, seconds),
        tflops=None if row["flops"] is None else row["flops"] / seconds / 1e12,
    )
    add_conditions(row, result["conditions"])
    _add_counters(row, result, seconds)
    _add_metrics(row, result)
    grade.grade_row(row, context.facts, context.roofs)
    grade.flag_row(row, result, context.facts, context.roofs, waited)
    return grade.find_excess(row, result, context.facts, context.roofs)


def _add_counters(row: RowDict, result: dict[str, Any], seconds: float) -> None:
    row["counters_status"] = result.get("counters_status")
    for name in ("dram_bytes_read", "dram_bytes_written", "l2_bytes"):
        counted = nan_to_none(result.get(name))
        row[name] = None if counted is None else round(counted)
    if row["dram_bytes_read"] is None or row["dram_bytes_written"] is None:
        return
    moved = row["dram_bytes_read"] + row["dram_bytes_written"]
    row["dram_gb_s"] = _core.bandwidth_gb_s(moved, seconds)
    own = (row["algorithmic_bytes_read"], row["algorithmic_bytes_written"])
    least = result.get("caller_bytes", own)  # of a caller's function
    row["traffic_ratio"] = moved / sum(least) if None not in least and sum(least) else None


def _add_metrics(row: RowDict, result: dict[str, Any]) -> None:
    row["metrics_status"] = result.get("metrics_status")
    found = {name: value for name, value in result.get("metrics", {}).items() if nan_to_none(value) is not None}
    integers = {column.name for column in schema.METRICS if column.kind == "integer"}
    for name in schema.METRIC_NAMES & found.keys():
        row[name] = round(found[name]) if name in integers else found[name]
    stalls = {name.removeprefix(_STALL): value for name, value in found.items() if name.startswith(_STALL)}
    least = STALL_SHARE_LEAST * sum(stalls.values())
    ordered = sorted(stalls.items(), key=lambda stall: stall[1], reverse=True)
    row.update(result.get("launch", {}))
    row["stall_reasons"] = ";".join(f"{name}={value:.2f}" for name, value in ordered if value > least) or None
