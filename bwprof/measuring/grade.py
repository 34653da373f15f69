"""Grade a measured row: its roofs, what bounds it, and flags with reasons to doubt it. Nothing here uses a device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from bwprof.results.schema import RowDict
from bwprof.roofs import limiter
from bwprof.roofs.limiter import ABOVE_PEAK, ABOVE_ROOF, FLOOR_FACTOR
from bwprof.roofs.model import (
    NOISE_LIMIT,
    References,
    Roofs,
    describe_disturbances,
    describe_slowdown,
    multiply_slowdown,
    replace_disturbance,
)

RowFacts = dict[str, Any]
Finding = tuple[str, str]  # a flag and its reason; either may be ""

BEATEN_SHARE = 1.10  # a row that is this much faster, without another reason, says that its roof is too low
ABOVE_CACHE = 1.25  # a hot row may be this much faster than a hot stream, which need not be a cache's best
COLD_MIN_READS = 0.97  # counted DRAM reads over compulsory ones, of a launch with cold inputs
LATE_SHARE = 0.1  # of the samples

# Parts of a row's reason that other modules look for.
WAITED = "for {:.0f} % of the time the GPU waited between the call's kernels"
AS_COUNTED = "as counted"  # of bytes that the caller leaves out
ELSEWHERE = "another GPU ran {:.3g} of the call's kernels and copies: it is not flushed before, nor watched meanwhile"


def grade_row(row: RowDict, facts: RowFacts, roofs: Roofs | None) -> None:
    """Fill the roof columns of a timed row; the DRAM columns of a hot row stay empty."""
    peak, peak_tflops = facts.get("peak_gb_s"), facts.get("peak_tflops", {}).get(row["precision"])
    row["peak_gb_s"], row["peak_tflops"] = nan_to_none(peak), nan_to_none(peak_tflops)
    if roofs is not None:
        row["measured_tflops"] = nan_to_none(roofs.measured_tflops(row["precision"]))
    if row["cache"] == "cold":
        if roofs is not None and count_moved_bytes(row) is not None:
            moved = _read_and_written(row)
            row["ceiling_gb_s"] = nan_to_none(roofs.ceiling_gb_s(*moved))
            row["attainable_gb_s"] = nan_to_none(roofs.attainable_gb_s(*moved))
        for name in ("peak", "ceiling", "attainable"):
            row[f"pct_{name}"] = _percent(row["bandwidth_gb_s"], row[f"{name}_gb_s"])
        if row["flops"] and row["peak_tflops"] and row["ceiling_gb_s"]:
            row["roofline_tflops"] = limiter.attainable(
                row["arithmetic_intensity"], row["peak_tflops"], row["ceiling_gb_s"]
            )
            row["pct_roofline"] = _percent(row["tflops"], row["roofline_tflops"])
    found = limiter.classify_row(row)
    row["ridge"], row["pct_limit"] = nan_to_none(found.ridge), nan_to_none(found.pct_limit)
    row["limiter"] = found.limiter
    row["bound"] = found.bound if row["cache"] == "cold" or found.bound == "latency" else None  # hot: no ridge


def explain_unknown_limiter(row: RowDict) -> str | None:
    """Return what to pass or measure to find a cold row's limiter; None where it is known."""
    return str(limiter.classify_row(row).why) if row["limiter"] is None and row["cache"] == "cold" else None


def flag_row(row: RowDict, result: dict[str, Any], facts: RowFacts, roofs: Roofs | None, waited: float) -> None:
    """Fill `flags` and `reason`; `waited` is how many seconds the device cooled down."""
    findings = (  # in the order of a row's flags and reasons
        *_find_excess_speed(row, result, facts, roofs),
        *find_roof_doubts(row, roofs),
        *_find_doubts(row, result, waited),
        *find_patterns(result),
        *(("noisy", sign) for sign in find_disturbances(row, result)),
    )
    flags: list[str] = []
    reasons: list[str] = []
    add_findings(findings, flags, reasons)
    row["flags"] = ";".join(flags)
    row["reason"] = "; ".join(reasons) or None


def add_findings(findings: Iterable[Finding], flags: list[str], reasons: list[str]) -> None:
    """Append findings to a row's flags, each once, and to its reasons."""
    for flag, reason in findings:
        if flag and flag not in flags:
            flags.append(flag)
        if reason:
            reasons.append(reason)


def _find_excess_speed(row: RowDict, result: dict[str, Any], facts: RowFacts, roofs: Roofs | None) -> Iterator[Finding]:
    cold = row["cache"] == "cold"
    if cold and (row["pct_attainable"] or 0) > 100 * ABOVE_ROOF:
        cause = _explain_excess(row, result, facts) or (
            "the roof at this size was probably measured too low, or the bytes are counted too high"
        )
        share = f"{row['pct_attainable']:.0f} % of what a plain stream of the same bytes reaches"
        yield "above_attainable", f"{share}: {cause}"
    elif impossible := explain_impossible(row):
        yield "above_attainable", impossible
    elif not cold and roofs is not None and _is_above_cache(row, roofs):
        moved = count_moved_bytes(row) or 0
        doubt = roofs.cache_doubt(moved)
        cause = doubt or "the bytes are counted too high, or are not all moved"
        limit = f"the fastest hot stream of the same bytes reaches {roofs.cache_gb_s(moved):.4g}"
        flag = "noisy_roof" if doubt else "above_attainable"
        yield flag, f"{row['bandwidth_gb_s']:.4g} GB/s, where {limit}: {cause}"


def find_roof_doubts(row: RowDict, roofs: Roofs | None) -> Iterator[Finding]:
    """Yield why the row's roofs are in doubt, and whether its time is near an empty launch's."""
    if roofs is not None and row["cache"] == "cold" and (doubt := roofs.doubt(*_read_and_written(row))):
        yield "noisy_roof", doubt
    if beaten := limiter.explain_beaten(row):
        yield "noisy_roof", beaten
    floor = row["timer_floor_us"]
    if floor is not None and row["time_ms"] * 1e3 < FLOOR_FACTOR * floor:
        yield "near_timer_floor", ""


def _find_doubts(row: RowDict, result: dict[str, Any], waited: float) -> Iterator[Finding]:
    """Yield what held the clock down, why a cold row may be warm, and notes of the measurement."""
    if causes := list_throttle_reasons(result["conditions"]):
        yield "throttled", f"the clock was held down ({', '.join(causes)})"
    if waited:
        yield "", f"measured again after {waited:.2g} s: heat had held the clock down"
    reads = nan_to_none(result.get("cold_reads"))
    warm = reads is not None and reads < COLD_MIN_READS
    if row["cache"] == "cold" and (not result["cold"] or warm):
        yield "not_cold", f"{reads:.0%} of the inputs came from DRAM, by its counters" if warm else ""
    yield "", result.get("cache_note") or ""
    yield "", result["variant_note"]
    if not result["converged"]:
        yield "not_converged", ""


def find_patterns(result: dict[str, Any]) -> Iterator[Finding]:
    """Yield what makes a median misleading: samples in two states, or a drift with its rate."""
    if result.get("two_states"):
        states = "the samples lie in two states, a fast one and a slow one"
        yield "two_states", f"{states}: the interval says which may be typical"
    if drift := result.get("drift"):
        rate = abs(drift) / (result.get("launches_per_sample") or 1)
        change = f"{rate * result['median_ns'] / 1e3:.3g} us ({100 * rate:.2g} % of the median)"
        way = f"{'longer' if drift > 0 else 'less'} than the one before"
        yield "drifting", f"drifting: each call takes {change} {way}"


def find_disturbances(row: RowDict, result: dict[str, Any]) -> list[str]:
    """Return signs, in words, that something else ran on the device."""
    found = describe_disturbances(result)
    late = result["late_samples"]
    if late > LATE_SHARE * result["count"]:
        found.append(f"in {late} of {result['count']} samples the GPU waited for the host, which was too slow")
    if (row["noise"] or 0) > NOISE_LIMIT:
        found.append(f"wide spread: half of the samples lie {row['noise']:.0%} apart")
    return found


def explain_impossible(row: RowDict) -> str:
    """Return why a row that is faster than a theoretical peak cannot be right; "" for any other row."""
    if row["cache"] == "cold" and (row["bandwidth_gb_s"] or 0) > ABOVE_PEAK * (row["peak_gb_s"] or math.inf):
        return "faster than the memory's theoretical peak: the bytes, the time or the peak is wrong"
    if (row["tflops"] or 0) > ABOVE_PEAK * (row["peak_tflops"] or math.inf):
        return "faster than the device's arithmetic peak: the FLOP count or the peak is wrong"
    return ""


def update_slowdown(row: RowDict, seen: References, best_ns: float) -> RowDict:
    """Return the columns that change once a reference stream takes `best_ns`; the same however often it is called."""
    slowed = seen.compare(best_ns)
    if slowed <= seen.slowed:
        return {}
    changed: RowDict = {"disturbed_pct": multiply_slowdown(slowed, seen.others)}
    flags = row["flags"] or ""
    for text in describe_slowdown(slowed):
        changed["reason"] = replace_disturbance(row["reason"], text)
        if "noisy" not in flags.split(";"):
            changed["flags"] = f"{flags};noisy" if flags else "noisy"
    return changed


def find_excess(row: RowDict, result: dict[str, Any], facts: RowFacts, roofs: Roofs | None) -> float:
    """Return the fraction by which a row beats its roof, if nothing else makes it doubtful; else 0."""
    if row["flags"] != "above_attainable" or roofs is None:
        return 0.0
    if row["cache"] == "hot":
        if not _is_above_cache(row, roofs):
            return 0.0
        return float(row["bandwidth_gb_s"] / roofs.cache_gb_s(count_moved_bytes(row) or 0) - 1)
    share = (row["pct_attainable"] or 0.0) / 100
    return share - 1 if share > BEATEN_SHARE and not _explain_excess(row, result, facts) else 0.0


def count_moved_bytes(row: RowDict) -> int | None:
    """Return the bytes behind the row's bandwidth; None where they are unknown."""
    read, written = row["bytes_read"], row["bytes_written"]
    return None if read is None and written is None else (read or 0) + (written or 0)


def nan_to_none(value: float | None) -> float | None:
    """Return the value, or None for NaN."""
    return None if value is None or math.isnan(value) else value


def list_throttle_reasons(conditions: dict[str, Any]) -> list[str]:
    """Return why the clock was held down, as words; empty when it was not, or it is unknown."""
    return [word for word in conditions["throttle"].split(";") if word not in ("", "none")]


def _read_and_written(row: RowDict) -> tuple[int, int]:
    return row["bytes_read"] or 0, row["bytes_written"] or 0


def _percent(value: float | None, whole: float | None) -> float | None:
    return 100 * value / whole if value is not None and whole else None


def _is_above_cache(row: RowDict, roofs: Roofs) -> bool:
    moved = count_moved_bytes(row)
    return moved is not None and bool(row["bandwidth_gb_s"] > ABOVE_CACHE * roofs.cache_gb_s(moved))  # NaN: False


def _explain_excess(row: RowDict, result: dict[str, Any], facts: RowFacts) -> str:
    """Return what, other than its roof, makes a row look faster than a stream of the same bytes; "": nothing known."""
    rotated = result["footprint_bytes"] * result["buffer_sets"]
    flushed = bool(result["flush_bytes"])
    if row["bytes_written"] and flushed:
        return "a part of what it wrote probably stayed in the cache for the next flush to write back"
    if not result["cold"] or (not flushed and rotated < 4 * (facts.get("cache_bytes") or 0)):
        return "part of it probably stayed in the cache"
    if (row["bytes_written"] or 0) > (row["bytes_read"] or 0):
        return "part of its writes was probably still on the way to memory"
    if row["noise"] is not None and row["noise"] > 0.05:
        return "the measurement is noisy"
    return ""
