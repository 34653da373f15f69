"""What a measured row is worth: its roofs, what bounds it, the flags that make a reader doubt it. No device here."""

from __future__ import annotations

import math
from typing import Any

from bwprof.results.schema import RowDict
from bwprof.roofs import limiter
from bwprof.roofs.disturbance import References, describe_disturbances, describe_slowdown, replace_disturbance
from bwprof.roofs.limiter import ABOVE_PEAK, ABOVE_ROOF, FLOOR_FACTOR
from bwprof.roofs.model import NOISE_LIMIT, Roofs

RowFacts = dict[str, Any]

BEATEN_SHARE = 1.10  # from here on a row that nothing else explains says that its roof is too low

# A hot row may beat a hot stream by so much: nothing says that plain streams are the best that a cache can do.
ABOVE_CACHE = 1.25

COLD_MIN_READS = 0.97  # counted DRAM reads / compulsory ones of a launch that found its inputs cold

LATE_SHARE = 0.1  # of the samples

WAITED = "for {:.0f} % of the time the GPU waited between the call's kernels"  # of a row's reason

AS_COUNTED = "as counted"  # likewise, of bytes that nobody stated

ELSEWHERE = "another GPU ran {:.3g} of the call's kernels and copies: it is not flushed before, nor watched meanwhile"


def grade_row(row: RowDict, facts: RowFacts, roofs: Roofs | None) -> None:
    """Fill the roof columns of a timed row. A hot row is not held against DRAM: those columns stay empty."""
    peak, peak_tflops = facts.get("peak_gb_s"), facts.get("peak_tflops", {}).get(row["precision"])
    row["peak_gb_s"], row["peak_tflops"] = nan_to_none(peak), nan_to_none(peak_tflops)
    if roofs is not None:
        row["measured_tflops"] = nan_to_none(roofs.measured_tflops(row["precision"]))
    if row["cache"] == "cold":
        if roofs is not None and count_moved_bytes(row) is not None:
            moved = (row["bytes_read"] or 0, row["bytes_written"] or 0)
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
    row["ridge"], row["pct_limit"], row["limiter"] = (
        nan_to_none(found.ridge),
        nan_to_none(found.pct_limit),
        found.limiter,
    )
    row["bound"] = _bound(row, found)


def explain_unknown_limiter(row: RowDict) -> str | None:
    """What to pass, or to measure, so that one knows what limits a cold row; None where that is known."""
    return str(limiter.classify_row(row).why) if row["limiter"] is None and row["cache"] == "cold" else None


def flag_row(row: RowDict, result: dict[str, Any], facts: RowFacts, roofs: Roofs | None, waited: float) -> None:
    """Fill `flags`, and `reason` with why each of them is there. `waited`: seconds for the device to cool down."""
    flags: list[str] = []
    reasons: list[str] = []
    cold = row["cache"] == "cold"
    if cold and (row["pct_attainable"] or 0) > 100 * ABOVE_ROOF:
        flags.append("above_attainable")
        reasons.append(_why_above(row, result, facts))
    elif explain_impossible(row):
        flags.append("above_attainable")
        reasons.append(explain_impossible(row))
    elif not cold and roofs is not None and _above_cache(row, roofs):
        doubt = roofs.cache_doubt(count_moved_bytes(row) or 0)
        flags.append("noisy_roof" if doubt else "above_attainable")
        reasons.append(_why_above_cache(row, roofs, doubt))
    add_findings(row, roofs, flags, reasons)
    held = list_throttle_reasons(result["conditions"])
    if held:
        flags.append("throttled")
        reasons.append(f"the clock was held down ({', '.join(held)})")
    if waited:
        reasons.append(f"measured again after {waited:.2g} s: heat had held the clock down")
    note = result.get("cache_note") or ""
    warm = nan_to_none(result.get("cold_reads"))
    if cold and (not result["cold"] or (warm is not None and warm < COLD_MIN_READS)):
        flags.append("not_cold")
    if warm is not None and warm < COLD_MIN_READS:
        reasons.append(f"{warm:.0%} of the inputs came from DRAM, by its counters")
    reasons += [said for said in (note, result["variant_note"]) if said]
    if not result["converged"]:
        flags.append("not_converged")
    flag_patterns(result, flags, reasons)
    signs = find_disturbances(row, result)
    if signs:
        flags.append("noisy")
        reasons += signs
    row["flags"] = ";".join(flags)
    row["reason"] = "; ".join(reasons) or None


def add_findings(row: RowDict, roofs: Roofs | None, flags: list[str], reasons: list[str]) -> None:
    """Flag roofs that are in doubt themselves, and a time near an empty launch's."""
    moved = row["bytes_read"] or 0, row["bytes_written"] or 0
    doubt = roofs.doubt(*moved) if roofs is not None and row["cache"] == "cold" else ""
    found = [why for why in (doubt, limiter.explain_beaten(row)) if why]
    flags += ["noisy_roof"] if found and "noisy_roof" not in flags else []
    reasons += found
    floor = row["timer_floor_us"]
    if floor is not None and row["time_ms"] * 1e3 < FLOOR_FACTOR * floor:
        flags.append("near_timer_floor")


def explain_impossible(row: RowDict) -> str:
    """Why a row that is faster than a theoretical peak cannot be right; "" for any other."""
    if row["cache"] == "cold" and (row["bandwidth_gb_s"] or 0) > ABOVE_PEAK * (row["peak_gb_s"] or math.inf):
        return "faster than the memory's theoretical peak: the bytes, the time or the peak is wrong"
    if (row["tflops"] or 0) > ABOVE_PEAK * (row["peak_tflops"] or math.inf):
        return "faster than the device's arithmetic peak: the FLOP count or the peak is wrong"
    return ""


def flag_patterns(result: dict[str, Any], flags: list[str], reasons: list[str]) -> None:
    """Add what makes one median say too little of samples: two states, or a drift with its rate."""
    if result.get("two_states"):
        flags.append("two_states")
        reasons.append(
            "the samples lie in two states, a fast one and a slow one: the interval says which may be typical"
        )
    drift = result.get("drift") or 0.0
    if drift:
        rate = abs(drift) / (result.get("launches_per_sample") or 1)
        flags.append("drifting")
        reasons.append(
            f"drifting: each call takes {rate * result['median_ns'] / 1e3:.3g} us ({100 * rate:.2g} % of the median) "
            f"{'longer' if drift > 0 else 'less'} than the one before"
        )


def update_slowdown(row: RowDict, seen: References, best_ns: float) -> RowDict:
    """What a graded row has to say anew once a reference stream took `best_ns`; the same however often it is asked."""
    slowed = seen.held_against(best_ns)
    if slowed <= seen.slowed:
        return {}
    found: RowDict = {"disturbed_pct": seen.prolonged_pct(slowed)}
    flags = row["flags"] or ""
    for said in describe_slowdown(slowed):
        found["reason"] = replace_disturbance(row["reason"], said)
        if "noisy" not in flags.split(";"):
            found["flags"] = f"{flags};noisy" if flags else "noisy"
    return found


def find_excess(row: RowDict, result: dict[str, Any], facts: RowFacts, roofs: Roofs | None) -> float:
    """By how much a row beats its roof, if it does so far and without any other reason to doubt it; else 0."""
    if row["flags"] != "above_attainable" or roofs is None:
        return 0.0
    if row["cache"] == "hot":
        by = (
            row["bandwidth_gb_s"] / roofs.cache_gb_s(count_moved_bytes(row) or 0) - 1
            if _above_cache(row, roofs)
            else 0.0
        )
        return float(by)
    share = (row["pct_attainable"] or 0.0) / 100
    return share - 1 if share > BEATEN_SHARE and not _explained(row, result, facts) else 0.0


def count_moved_bytes(row: RowDict) -> int | None:
    """The bytes that a bandwidth is made of; None where they are not known."""
    read, written = row["bytes_read"], row["bytes_written"]
    return None if read is None and written is None else (read or 0) + (written or 0)


def nan_to_none(value: float | None) -> float | None:
    """The value; None for the NaN of what nobody knows."""
    return None if value is None or math.isnan(value) else value


def _percent(value: float | None, whole: float | None) -> float | None:
    return 100 * value / whole if value is not None and whole else None


def _bound(row: RowDict, found: limiter.Limiter) -> str | None:
    """The side of the ridge, or latency; a hot row has no ridge."""
    return found.bound if row["cache"] == "cold" or found.bound == "latency" else None


def _above_cache(row: RowDict, roofs: Roofs) -> bool:
    """A hot row that is faster than the cache can be; never where the cache's limit is not known (NaN)."""
    moved = count_moved_bytes(row)
    return moved is not None and bool(row["bandwidth_gb_s"] > ABOVE_CACHE * roofs.cache_gb_s(moved))


def _why_above_cache(row: RowDict, roofs: Roofs, doubt: str) -> str:
    limit = roofs.cache_gb_s(count_moved_bytes(row) or 0)
    cause = doubt or "the bytes are counted too high, or are not all moved"
    return (
        f"{row['bandwidth_gb_s']:.4g} GB/s, where the fastest hot stream of the same bytes reaches {limit:.4g}: {cause}"
    )


def find_disturbances(row: RowDict, result: dict[str, Any]) -> list[str]:
    """Signs that something else ran on the device meanwhile, in words."""
    found = describe_disturbances(result)
    late = result["late_samples"]
    if late > LATE_SHARE * result["count"]:
        found.append(f"in {late} of {result['count']} samples the GPU waited for the host, which was too slow")
    if (row["noise"] or 0) > NOISE_LIMIT:
        found.append(f"wide spread: half of the samples lie {row['noise']:.0%} apart")
    return found


def _why_above(row: RowDict, result: dict[str, Any], facts: RowFacts) -> str:
    """The likeliest cause of a bandwidth above what a stream of the same bytes reaches."""
    cause = _explained(row, result, facts) or (
        "the roof at this size was probably measured too low, or the bytes are counted too high"
    )
    return f"{row['pct_attainable']:.0f} % of what a plain stream of the same bytes reaches: {cause}"


def _explained(row: RowDict, result: dict[str, Any], facts: RowFacts) -> str:
    """What makes a row look faster than a stream of the same bytes, other than its roof; "" for nothing known."""
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


def list_throttle_reasons(conditions: dict[str, Any]) -> list[str]:
    """Why the clock was held down, as words; empty when it was not, or nobody can tell."""
    return [word for word in conditions["throttle"].split(";") if word not in ("", "none")]
