"""From the result of a measurement to a row: what a case's and a function's rows have in common."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from bwprof import _core
from bwprof.environment import process_token
from bwprof.measuring import conditions, grade
from bwprof.measuring.grade import known, moved_bytes
from bwprof.results import schema
from bwprof.results.schema import Row
from bwprof.roofs import Roofs
from bwprof.roofs.signs import References, prolonged_pct

STALL_SHARE_LEAST = 0.01  # of all waiting warps: rarer reasons are not named
_STALL = "stall_"


@dataclass(frozen=True, slots=True)
class Context:
    """What all rows of a run share."""

    run_id: str
    backend: str
    facts: dict[str, Any]
    roofs: Roofs | None
    labels: dict[str, Any] = field(default_factory=dict)  # the caller's own columns


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished row with its raw samples (ns per launch); `fatal` when the device is lost.

    `beaten` is by how much it was faster than its roof (a fraction) where nothing but the roof explains that; else 0.
    `references` are the reference streams beside its samples, None where there were none.
    """

    row: Row
    samples: list[float] | None = None
    fatal: bool = False
    beaten: float = 0.0
    references: References | None = None


def provenance(context: Context) -> Row:
    """What a row says of the run, and of the device and the machine that it was on."""
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


class Item(Protocol):
    """What a run measures, a row each."""

    @property
    def title(self) -> str:
        """For progress lines."""
        ...

    @property
    def cache(self) -> str:
        """cold or hot."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether it may be measured once more where something disturbed it."""
        ...

    def blank_row(self, context: Context) -> Row:
        """Its row before it has run."""
        ...


def unmeasured(item: Item, context: Context, status: str, reason: str) -> Outcome:
    """The row of what did not run, or did not come back."""
    return ended(item.blank_row(context), status, reason)


def ended(row: Row, status: str, reason: str, *, fatal: bool = False) -> Outcome:
    """A row that has no time, and why."""
    row["status"] = status
    row["reason"] = reason
    return Outcome(row, fatal=fatal)


def add_work(row: Row, cost: dict[str, int]) -> None:
    """The bytes and FLOPs of a launch."""
    row.update(cost)
    moved = cost["bytes_read"] + cost["bytes_written"]
    row["arithmetic_intensity"] = cost["flops"] / moved if moved else None


def add_method(row: Row, result: dict[str, Any]) -> None:
    """How a measurement was made."""
    row.update(
        timer=result["timer"],
        cache=result["cache"],
        buffer_sets=result["buffer_sets"],
        launches_per_sample=result["launches_per_sample"],
        timer_floor_us=_scaled(result["timer_floor_ns"], 1e-3),
        host_launch_us=_scaled(result["host_launch_ns"], 1e-3),
    )


def add_time(row: Row, result: dict[str, Any], context: Context, waited: float = 0.0) -> float:
    """The time and all that follows from it and from the work, which the row knows already; None where it does not.

    Returns by how much the row beats its roof, as `Outcome.beaten` has it.
    """
    seconds = result["median_ns"] / 1e9
    moved = moved_bytes(row)
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
    conditions.fill(row, result["conditions"])
    _add_counters(row, result, seconds)
    _add_metrics(row, result)
    grade.hold(row, context.facts, context.roofs)
    grade.flag(row, result, context.facts, context.roofs, waited)
    return grade.beaten_by(row, result, context.facts, context.roofs)


def _add_counters(row: Row, result: dict[str, Any], seconds: float) -> None:
    row["counters_status"] = result.get("counters_status")
    for name in ("dram_bytes_read", "dram_bytes_written", "l2_bytes"):
        counted = known(result.get(name))
        row[name] = None if counted is None else round(counted)
    if row["dram_bytes_read"] is None or row["dram_bytes_written"] is None:
        return
    moved = row["dram_bytes_read"] + row["dram_bytes_written"]
    row["dram_gb_s"] = _core.bandwidth_gb_s(moved, seconds)
    own = (row["algorithmic_bytes_read"], row["algorithmic_bytes_written"])
    wanted = result.get("stated_bytes", own)  # of a caller's function
    row["traffic_ratio"] = moved / sum(wanted) if None not in wanted and sum(wanted) else None


def _add_metrics(row: Row, result: dict[str, Any]) -> None:
    row["metrics_status"] = result.get("metrics_status")
    found = {name: value for name, value in result.get("metrics", {}).items() if known(value) is not None}
    whole = {column.name for column in schema.METRICS if column.kind == "integer"}
    for name in schema.METRIC_NAMES & found.keys():
        row[name] = round(found[name]) if name in whole else found[name]
    stalls = {name.removeprefix(_STALL): value for name, value in found.items() if name.startswith(_STALL)}
    least = STALL_SHARE_LEAST * sum(stalls.values())
    ordered = sorted(stalls.items(), key=lambda stall: stall[1], reverse=True)
    row.update(result.get("launch", {}))
    row["stall_reasons"] = ";".join(f"{name}={value:.2f}" for name, value in ordered if value > least) or None


def _scaled(value: float | None, factor: float) -> float | None:
    found = known(value)
    return None if found is None else found * factor
