"""Make rows of measurements, with the conditions during them and the roofs of the threads that measure."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from bwprof import _core, hardware
from bwprof.environment import process_token
from bwprof.measuring import grade
from bwprof.measuring.grade import count_moved_bytes, list_throttle_reasons, nan_to_none
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.roofs import store
from bwprof.roofs.model import References, Roofs, RoofsArgument, match_roofs, prolonged_pct
from bwprof.roofs.obtain import RoofRequest, mark_beaten, obtain
from bwprof.text import formatting
from bwprof.text.parsing import repr_short

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


def make_failed_by(error: BaseException, row: RowDict) -> Outcome:
    """Return the row of an item that raised: skipped where the device does not take it."""
    if isinstance(error, (_core.UnsupportedError, MemoryError)):
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
        transform_ms=nan_to_none(result["transform_ns"] / 1e6),
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


# A call runs on one thread when the calling thread spends this share of the process's processor time ...
_ALONE = 0.9
_AT_WORK = 0.25  # ... and works for this share of the time: on a busy machine it has to wait, another process may work
_LOOK_SECONDS = 0.005
_STILL_SECONDS = 0.001  # the device's threads, which flush before calls, spin for a tenth of that


def check_threads(value: object, most: int | None = None) -> int | None:
    """Return `roof_threads` as an int, or None; ValueError unless it is 1 to `most` (None: unknown yet; 0: a GPU)."""
    if value is None:
        return None
    index = getattr(value, "__index__", None)
    threads = 0 if isinstance(value, bool) or index is None else int(index())
    if most == 0:
        raise ValueError(f"roof_threads is {repr_short(value)}: it goes with a CPU, whose work is shared by threads")
    if threads < 1 or (most is not None and threads > most):
        allowed = "from 1 to the device's threads" if most is None else f"1 to {most}, the device's threads"
        raise ValueError(f"roof_threads is {repr_short(value)}: allowed is a whole number {allowed}")
    return threads


def find_roofs(
    device: _core.Device,
    facts: dict[str, Any],
    roofs: RoofsArgument,
    caches: tuple[str, ...],
    recalibrate: bool = False,
    *,
    deadline: float | None = None,
    poll: Callable[[], object] | None = None,
) -> Roofs | None:
    """Return the roofs for rows of these caches; `roofs` is as for `bwprof.roofs.model.check_roofs`."""
    if isinstance(roofs, Roofs):
        return match_roofs(roofs, facts)
    if roofs is False:
        return None
    if roofs == "stored":
        return store.load(store.identity(device.backend, facts))
    return obtain(device, RoofRequest("cold" in caches, "hot" in caches, recalibrate), deadline=deadline, poll=poll)


def is_single_threaded(call: Callable[[], object]) -> bool:
    """Return whether the calling thread does all the work of a call; call it for some milliseconds."""
    time.sleep(_STILL_SECONDS)
    start = _clocks()
    while True:
        call()
        wall, all_threads, this_thread = (now - then for now, then in zip(_clocks(), start, strict=True))
        if wall >= _LOOK_SECONDS:
            return this_thread >= _ALONE * all_threads and this_thread >= _AT_WORK * wall


def _clocks() -> tuple[float, float, float]:
    return time.perf_counter(), time.process_time(), time.thread_time()


def update_context(context: Context, outcome: Outcome) -> Context:
    """Return the context for later rows: a row that beat its roofs puts them in doubt."""
    if not outcome.beaten or context.roofs is None:
        return context
    row = outcome.row
    moved = (row["bytes_read"] or 0, row["bytes_written"] or 0)
    hot = row["cache"] == "hot"
    return replace(
        context, roofs=mark_beaten(context.backend, context.facts, context.roofs, moved, outcome.beaten, hot=hot)
    )


@dataclass(slots=True)
class Contexts:
    """The contexts of a run's rows by the number of threads of their roofs; None: all."""

    run_id: str
    device: _core.Device
    roofs: RoofsArgument  # the caller's argument
    caches: tuple[str, ...]
    recalibrate: bool = False
    deadline: Callable[[], float | None] = lambda: None
    poll: Callable[[], object] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    _found: dict[int | None, Context] = field(default_factory=dict, init=False)

    @property
    def threads(self) -> int:
        """The number of the device's threads; 0 on a GPU."""
        runs_on_host = _core.backend_facts(self.device.backend)["runs_on_host"]
        return int(self.device.facts()["units"]) if runs_on_host else 0

    def of(self, threads: int | None) -> Context:
        """Return the context of so many threads; its roofs are obtained at the first call.

        ValueError for more threads than there are, and for the caller's roofs of another number.
        """
        if threads is not None and check_threads(threads, self.threads) == self.threads:
            threads = None
        if threads not in self._found:
            if threads is None:
                self._found[threads] = self._make(self.device)
            elif isinstance(self.roofs, Roofs) and self.roofs.threads != threads:
                own = f"{self.roofs.threads} threads" if self.roofs.threads else "a number of threads that is not known"
                raise ValueError(f"these roofs are of {own}, roof_threads is {threads}")
            else:
                with hardware.borrow_device(self.device.backend, self.device.index) as fewer:
                    fewer.limit_threads(threads)
                    self._found[threads] = self._make(fewer)
        return self._found[threads]

    def _make(self, device: _core.Device) -> Context:
        facts = hardware.facts(device)
        roofs = find_roofs(
            device, facts, self.roofs, self.caches, self.recalibrate, deadline=self.deadline(), poll=self.poll
        )
        return Context(self.run_id, device.backend, facts, roofs, dict(self.labels))

    def for_call(self, context: Context, call: Callable[[], object]) -> tuple[Context, str]:
        """Return the context of a call without `roof_threads`, and a note where it runs on one thread of many."""
        threads = self.threads
        roofs = context.roofs
        if roofs is None or not roofs.points or min(threads, roofs.threads) <= 1 or not is_single_threaded(call):
            return context, ""
        single = None if isinstance(self.roofs, Roofs) else self.of(1)
        if single is None or single.roofs is None or not single.roofs.points:
            note = "it ran on one thread, but is held against"
            return context, f"{note} the roofs of all {threads}: roofs='auto' measures those of one"
        return single, f"it ran on one thread, and is held against the roofs of one (of {threads})"

    def learn(self, context: Context, outcome: Outcome) -> None:
        """Update the context of a graded row."""
        changed = update_context(context, outcome)
        self._found = {threads: changed if known is context else known for threads, known in self._found.items()}
