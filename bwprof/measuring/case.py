"""One case on one device: from a Spec to a finished row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bwprof import _core
from bwprof.measuring import conditions
from bwprof.results import schema
from bwprof.results.schema import Row
from bwprof.roofs import Roofs, beaten
from bwprof.roofs.model import NOISE_LIMIT
from bwprof.roofs.neighbours import disturbances
from bwprof.runs.plan import Spec
from bwprof.text import bytes_text

ABOVE_ATTAINABLE = 1.05
BEATEN = 1.10  # from here on a row that nothing else explains says that its roof is too low
# A hot row may beat a hot stream by so much: nothing says that plain streams are the best that a cache can do.
ABOVE_CACHE = 1.25
COLD_READS_LEAST = 0.97  # counted DRAM reads / compulsory ones of a launch that found its inputs cold
COLD_SEEN_FROM_BYTES = 1 << 20  # of footprint: below, what else the device reads would blur the ratio
FLOOR_FACTOR = 3.0
LATE_SHARE = 0.1  # of the samples
STALL_SHARE_LEAST = 0.05  # of all waiting warps: rarer reasons are not named
_STALL = "stall_"


@dataclass(frozen=True, slots=True)
class Context:
    """What all rows of a run share."""

    run_id: str
    backend: str
    facts: dict[str, Any]
    roofs: Roofs | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished row with its raw samples (ns per launch); `fatal` when the device is lost.

    `beaten` is by how much it was faster than its roof (a fraction) where nothing but the roof explains that; else 0.
    """

    row: Row
    samples: list[float] | None = None
    fatal: bool = False
    beaten: float = 0.0


def measure(
    device: _core.Device,
    spec: Spec,
    context: Context,
    *,
    max_seconds: float,
    deadline: float | None = None,
    poll: Callable[[], object] | None = None,
) -> Outcome:
    """Measure one case. Whatever goes wrong with it becomes a skipped or failed row, never an exception.

    A case that heat slowed is measured twice, unless that would go past `deadline`, a time.monotonic().
    """
    row = blank_row(spec, context)
    lost = False

    try:
        with spec.open(device) as case:
            row["variant"] = case.variant
            _add_work(row, case.cost)
            need = case.memory_needed(spec.cache)
            if not need["fits"]:
                return Outcome(_ended(row, "skipped", _too_big(need)))
            result, waited = conditions.measure_cool(
                lambda: case.measure(cache=spec.cache, max_seconds=max_seconds, poll=poll, timer=spec.timer),
                device.conditions,
                poll,
                may_repeat=may_repeat(deadline, max_seconds),
            )
            if spec.counters and result["verified"]:
                counted, lost = _counted(case, spec)
                result |= counted
            if spec.metrics and result["verified"] and not lost:
                counted, lost = _metrics(case, spec)
                result |= counted
            row["variant"] = case.variant  # a default may be passed over when it cannot be prepared
            _add_work(row, case.cost)
    except (_core.UnsupportedError, _core.MemoryLimitError) as error:
        return Outcome(_ended(row, "skipped", str(error)))
    except MemoryError as error:
        return Outcome(_ended(row, "skipped", str(error) or "out of memory"))
    except _core.DeviceError as error:
        return Outcome(_ended(row, "failed", str(error)), fatal=bool(getattr(error, "fatal", False)))
    except (ValueError, RuntimeError, OSError) as error:
        return Outcome(_ended(row, "failed", f"{type(error).__name__}: {error}"))
    return replace(_finished(row, result, context, waited), fatal=lost)


def learned(context: Context, outcome: Outcome) -> Context:
    """The context of the rows after this one: if it should not have been as fast as it was, its roofs are in doubt."""
    if not outcome.beaten or context.roofs is None:
        return context
    row = outcome.row
    moved = (row["bytes_read"] or 0, row["bytes_written"] or 0)
    hot = row["cache"] == "hot"
    return replace(context, roofs=beaten(context.backend, context.facts, context.roofs, moved, outcome.beaten, hot=hot))


def may_repeat(deadline: float | None, max_seconds: float) -> Callable[[], bool]:
    """Whether there is time for a second measurement, when asked."""
    return lambda: deadline is None or time.monotonic() + conditions.COOL_SECONDS + max_seconds < deadline


def _counted(case: _core.Case, spec: Spec) -> tuple[dict[str, Any], bool]:
    """What the counters say of one cold launch and of the rotation, and whether the device was lost over it."""
    found, lost = _tried("counters_status", spec, case.count)
    if not lost and found["counters_status"] == "ok":
        rotation, lost = _tried("rotation_status", spec, lambda: _rotation(case))
        found |= rotation
    return found, lost


def _metrics(case: _core.Case, spec: Spec) -> tuple[dict[str, Any], bool]:
    """What the metrics say of one cold launch, likewise."""

    def counted() -> dict[str, Any]:
        found = case.count_metrics(spec.metrics)
        return {"metrics_status": found.pop("metrics_status"), "metrics": found}

    return _tried("metrics_status", spec, counted)


def _tried(status: str, spec: Spec, count: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """What `count` gives, or why it gave nothing under `status`; and whether the device was lost over it.

    Never an exception: the row has its time already, and keeps it.
    """
    if spec.cache != "cold":
        return {status: "not counted: counters see a cold launch, this row is hot"}, False
    try:
        return count(), False
    except (RuntimeError, ValueError, MemoryError, OSError) as error:
        said = str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)
        return {status: f"not counted: {said}"}, bool(getattr(error, "fatal", False))


def _rotation(case: _core.Case) -> dict[str, Any]:
    """How much of its inputs a launch of the rotation reads from DRAM, where that can be told; 1 = all."""
    wanted = case.cost["bytes_read"]
    if not wanted or case.cost["footprint_bytes"] <= COLD_SEEN_FROM_BYTES:
        return {}
    return {"cold_reads": case.count(rotated=True)["dram_bytes_read"] / wanted}


def _too_big(need: dict[str, int]) -> str:
    return f"needs {bytes_text(need['needed'])} of memory, {bytes_text(need['free'])} are free"


def blank_row(spec: Spec, context: Context) -> Row:
    """A case's row before it has run: identity, work and provenance."""
    row = schema.empty_row()
    row.update(spec.params)
    row.update(
        operation=spec.operation,
        precision=spec.precision,
        case=spec.case,
        kv_lens=";".join(map(str, spec.kv_lens)) if spec.kv_lens is not None else None,
        variant=spec.variant,
        cache=spec.cache,
        seed=spec.seed,
        run_id=context.run_id,
        timestamp=datetime.now(UTC).isoformat(timespec="milliseconds"),
        bwprof_version=_core.__version__,
        schema_version=schema.SCHEMA_VERSION,
        **device_columns(context),
    )
    with suppress(ValueError):  # a precision that the operation does not have: the row says so when it has run
        _add_work(row, _core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens, None, None))
    return row


def device_columns(context: Context) -> Row:
    """What a row says of the device."""
    return {
        "backend": context.backend,
        "device": context.facts.get("name"),
        "device_uuid": context.facts.get("uuid") or None,
        "driver": context.facts.get("driver") or None,
    }


def unmeasured(spec: Spec, context: Context, status: str, reason: str) -> Outcome:
    """The row of a case that did not run, or did not come back."""
    return ended(blank_row(spec, context), status, reason)


def ended(row: Row, status: str, reason: str, *, fatal: bool = False) -> Outcome:
    """A row that has no time, and why."""
    return Outcome(_ended(row, status, reason), fatal=fatal)


def _ended(row: Row, status: str, reason: str) -> Row:
    row["status"] = status
    row["reason"] = reason
    return row


def _add_work(row: Row, cost: dict[str, int]) -> None:
    row.update(cost)
    moved = cost["bytes_read"] + cost["bytes_written"]
    row["arithmetic_intensity"] = cost["flops"] / moved if moved else None


def _finished(row: Row, result: dict[str, Any], context: Context, waited: float = 0.0) -> Outcome:
    row.update(
        verified=result["verified"],
        max_error=result["max_error"],
        tolerance=result["tolerance"],
        rows_checked=result["rows_checked"],
        rows_total=result["rows_total"],
    )
    add_method(row, result)
    if not result["verified"]:
        reason = result["reason"] or f"the error {result['max_error']:.3g} is above {result['tolerance']:.3g}"
        return Outcome(_ended(row, "failed", f"wrong result: {reason}"))
    beaten_by = add_time(row, result, context, waited)
    return Outcome(row, list(result["samples_ns"]), beaten=beaten_by)


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
        samples=result["count"],
        converged=result["converged"],
        bandwidth_gb_s=None if moved is None else _core.bandwidth_gb_s(moved, seconds),
        tflops=None if row["flops"] is None else row["flops"] / seconds / 1e12,
    )
    conditions.fill(row, result["conditions"])
    _add_counters(row, result, seconds)
    _add_metrics(row, result)
    grade(row, context)
    _add_flags(row, result, context, waited)
    return _beaten_by(row, result, context)


def moved_bytes(row: Row) -> int | None:
    """The bytes that a bandwidth is made of; None where they are not known."""
    read, written = row["bytes_read"], row["bytes_written"]
    return None if read is None and written is None else (read or 0) + (written or 0)


def _add_counters(row: Row, result: dict[str, Any], seconds: float) -> None:
    row["counters_status"] = result.get("counters_status")
    for name in ("dram_bytes_read", "dram_bytes_written", "l2_bytes"):
        counted = _known(result.get(name))
        row[name] = None if counted is None else round(counted)
    if row["dram_bytes_read"] is None or row["dram_bytes_written"] is None:
        return
    moved = row["dram_bytes_read"] + row["dram_bytes_written"]
    row["dram_gb_s"] = _core.bandwidth_gb_s(moved, seconds)
    modelled = (row["algorithmic_bytes_read"], row["algorithmic_bytes_written"])
    row["traffic_ratio"] = moved / sum(modelled) if None not in modelled and sum(modelled) else None


def _add_metrics(row: Row, result: dict[str, Any]) -> None:
    row["metrics_status"] = result.get("metrics_status")
    found = {name: value for name, value in result.get("metrics", {}).items() if _known(value) is not None}
    whole = {column.name for column in schema.METRICS if column.kind == "integer"}
    for name in schema.METRIC_NAMES & found.keys():
        row[name] = round(found[name]) if name in whole else found[name]
    stalls = {name.removeprefix(_STALL): value for name, value in found.items() if name.startswith(_STALL)}
    least = STALL_SHARE_LEAST * sum(stalls.values())
    ordered = sorted(stalls.items(), key=lambda stall: stall[1], reverse=True)
    row["stall_reasons"] = ";".join(f"{name}={value:.2f}" for name, value in ordered if value > least) or None


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _scaled(value: float | None, factor: float) -> float | None:
    known = _known(value)
    return None if known is None else known * factor


def grade(row: Row, context: Context) -> None:
    """Fill the roof columns of a timed row. A hot row is not held against DRAM: those columns stay empty."""
    facts, roofs = context.facts, context.roofs
    peak, peak_tflops = facts.get("peak_gb_s"), facts.get("peak_tflops", {}).get(row["precision"])
    row["peak_gb_s"], row["peak_tflops"] = _known(peak), _known(peak_tflops)
    if roofs is not None:
        row["measured_tflops"] = _known(roofs.measured_tflops(row["precision"]))
    if row["cache"] == "cold":
        if roofs is not None and moved_bytes(row) is not None:
            moved = (row["bytes_read"] or 0, row["bytes_written"] or 0)
            row["ceiling_gb_s"] = _known(roofs.ceiling_gb_s(*moved))
            row["attainable_gb_s"] = _known(roofs.attainable_gb_s(*moved))
        for name in ("peak", "ceiling", "attainable"):
            row[f"pct_{name}"] = _percent(row["bandwidth_gb_s"], row[f"{name}_gb_s"])
        if row["flops"] and row["peak_tflops"] and row["ceiling_gb_s"]:
            slope = row["arithmetic_intensity"] * row["ceiling_gb_s"] / 1e3
            row["roofline_tflops"] = min(row["peak_tflops"], slope)
            row["pct_roofline"] = _percent(row["tflops"], row["roofline_tflops"])
    row["bound"] = _bound(row)


def _percent(value: float | None, whole: float | None) -> float | None:
    return 100 * value / whole if value is not None and whole else None


def _near_floor(row: Row) -> bool:
    floor = row["timer_floor_us"]
    return floor is not None and row["time_ms"] * 1e3 < FLOOR_FACTOR * floor


def _bound(row: Row) -> str | None:
    """What limits the case.

    Latency below three times the timer's floor; else memory or compute by the side of the ridge. Where the
    arithmetic peak is unknown there is no ridge, and nothing is said.
    """
    if _near_floor(row):
        return "latency"
    if row["cache"] != "cold" or row["flops"] is None or row["arithmetic_intensity"] is None:
        return None
    if not row["flops"]:
        return "memory"
    roof = row["ceiling_gb_s"] or row["peak_gb_s"]
    if row["peak_tflops"] and roof:
        return "memory" if row["arithmetic_intensity"] * roof < row["peak_tflops"] * 1e3 else "compute"
    return None


def _add_flags(row: Row, result: dict[str, Any], context: Context, waited: float) -> None:
    flags: list[str] = []
    reasons: list[str] = []
    cold = row["cache"] == "cold"
    if cold and (row["pct_attainable"] or 0) > 100 * ABOVE_ATTAINABLE:
        flags.append("above_attainable")
        reasons.append(_why_above(row, result, context))
    elif row["peak_tflops"] and (row["tflops"] or 0) > row["peak_tflops"]:
        flags.append("above_attainable")
        reasons.append("faster than the device's arithmetic peak: the FLOP count or the peak is wrong")
    elif not cold and context.roofs is not None and _above_cache(row, context.roofs):
        doubt = context.roofs.cache_doubt(moved_bytes(row) or 0)
        flags.append("noisy_roof" if doubt else "above_attainable")
        reasons.append(_why_above_cache(row, context.roofs, doubt))
    if cold and context.roofs is not None:
        doubt = context.roofs.doubt(row["bytes_read"] or 0, row["bytes_written"] or 0)
        if doubt:
            flags.append("noisy_roof")
            reasons.append(doubt)
    if _near_floor(row):
        flags.append("near_timer_floor")
    held = conditions.reasons(result["conditions"])
    if held:
        flags.append("throttled")
        reasons.append(f"the clock was held down ({', '.join(held)})")
    if waited:
        reasons.append(f"measured again after {waited:.2g} s: heat had held the clock down")
    note = result.get("cache_note") or ""
    warm = _known(result.get("cold_reads"))
    if cold and (not result["cold"] or (warm is not None and warm < COLD_READS_LEAST)):
        flags.append("not_cold")
    if warm is not None and warm < COLD_READS_LEAST:
        reasons.append(f"{warm:.0%} of the inputs came from DRAM, by its counters")
    reasons += [said for said in (note, result["variant_note"]) if said]
    if not result["converged"]:
        flags.append("not_converged")
    signs = _disturbances(row, result)
    if signs:
        flags.append("noisy")
        reasons += signs
    row["flags"] = ";".join(flags)
    row["reason"] = "; ".join(reasons) or None


def _above_cache(row: Row, roofs: Roofs) -> bool:
    """A hot row that is faster than the cache can be; never where the cache's limit is not known (NaN)."""
    moved = moved_bytes(row)
    return moved is not None and bool(row["bandwidth_gb_s"] > ABOVE_CACHE * roofs.cache_gb_s(moved))


def _why_above_cache(row: Row, roofs: Roofs, doubt: str) -> str:
    limit = roofs.cache_gb_s(moved_bytes(row) or 0)
    cause = doubt or "the bytes are counted too high, or are not all moved"
    return (
        f"{row['bandwidth_gb_s']:.4g} GB/s, where the fastest hot stream of the same bytes reaches {limit:.4g}: {cause}"
    )


def _beaten_by(row: Row, result: dict[str, Any], context: Context) -> float:
    """By how much a row beats its roof, if it does so far and without any other reason to doubt it; else 0."""
    roofs = context.roofs
    if row["flags"] != "above_attainable" or roofs is None:
        return 0.0
    if row["cache"] == "hot":
        by = row["bandwidth_gb_s"] / roofs.cache_gb_s(moved_bytes(row) or 0) - 1 if _above_cache(row, roofs) else 0.0
        return float(by)
    share = (row["pct_attainable"] or 0.0) / 100
    return share - 1 if share > BEATEN and not _explained(row, result, context) else 0.0


def _disturbances(row: Row, result: dict[str, Any]) -> list[str]:
    """Signs that something else ran on the device meanwhile, in words."""
    found = disturbances(result)
    late = result["late_samples"]
    if late > LATE_SHARE * result["count"]:
        found.append(f"in {late} of {result['count']} samples the GPU waited for the host, which was too slow")
    if (row["noise"] or 0) > NOISE_LIMIT:
        found.append(f"wide spread: half of the samples lie {row['noise']:.0%} apart")
    return found


def _why_above(row: Row, result: dict[str, Any], context: Context) -> str:
    """The likeliest cause of a bandwidth above what a stream of the same bytes reaches."""
    cause = _explained(row, result, context) or (
        "the roof at this size was probably measured too low, or the bytes are counted too high"
    )
    return f"{row['pct_attainable']:.0f} % of what a plain stream of the same bytes reaches: {cause}"


def _explained(row: Row, result: dict[str, Any], context: Context) -> str:
    """What makes a row look faster than a stream of the same bytes, other than its roof; "" for nothing known."""
    rotated = result["footprint_bytes"] * result["buffer_sets"]
    flushed = bool(result["flush_bytes"])
    if row["bytes_written"] and flushed:
        return "a part of what it wrote probably stayed in the cache for the next flush to write back"
    if not result["cold"] or (not flushed and rotated < 4 * (context.facts.get("cache_bytes") or 0)):
        return "part of it probably stayed in the cache"
    if (row["bytes_written"] or 0) > (row["bytes_read"] or 0):
        return "part of its writes was probably still on the way to memory"
    if row["noise"] is not None and row["noise"] > 0.05:
        return "the measurement is noisy"
    return ""
