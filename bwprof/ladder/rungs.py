"""What a ladder's rows mean: each rung's gain over the one before, beside the prediction. Nothing is measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.results.schema import Row, is_missing

if TYPE_CHECKING:
    import pandas as pd

RUNG, PEER = "rung", "peer"
MISSING = "missing"  # among a ladder's attributes: what an early end left unmeasured
# Of a line, in this order.
COLUMNS = (
    "operation",
    "precision",
    "shape",
    "backend",
    "device",
    "version",
    "kind",
    "status",
    "reason",
    "verified",
    "flags",
    "time_ms",
    "time_ms_lo",
    "time_ms_hi",
    "speedup_vs_torch",
    "speedup_vs_first",
    "measured_gain",
    "predicted_gain",
    "predicted_at",
    "predicted_here",
    "bandwidth_gb_s",
    "tflops",
    "pct_peak",
    "pct_limit",
    "theoretical_occupancy_pct",
    "achieved_occupancy_pct",
    "limiter",
    "registers",
    "shared_bytes",
    "local_bytes",
    "changes",
    "because",
    "default",
    "timer",
)
_COPIED = ("status", "reason", "verified", "flags", "time_ms", "time_ms_lo", "time_ms_hi", "bandwidth_gb_s", "tflops")
_NUMBERS = tuple(
    name
    for name in COLUMNS
    if name.endswith(("_ms", "_lo", "_hi", "_gain", "_pct", "_gb_s", "torch", "first", "tflops", "limit", "peak"))
)


def lines(
    variants: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Row],
    kernels: Sequence[Mapping[str, Any]],
    peers: Sequence[tuple[str, Row]],
    precision: str,
    here: Collection[str],
    left_out: Collection[str] = (),
) -> list[dict[str, Any]]:
    """A line for each rung, and behind them for each peer.

    Parameters
    ----------
    variants : sequence of mapping
        The ladder, as the registry has it.
    rows : mapping
        What was measured of it, by variant.
    kernels : sequence of mapping
        What is known of their kernels, as `bwprof.variants` tells it.
    peers : sequence of (str, Row)
        What stands beside the ladder: a name, and its row.
    precision : str
        The precision of all.
    here : collection of str
        How ladders call this precision and shape, where predictions are for it.
    left_out : collection of str
        Variants before which a rung was left out, so that what is predicted of them is not what is measured.
    """
    best = min((time for _, row in peers if (time := _time(row)) is not None), default=None)
    first = before = None
    found = []
    for variant in variants:
        row = rows.get(variant["name"])
        own = [kernel for kernel in kernels if kernel["variant"] == variant["name"]]
        line = _line(variant["name"], RUNG, row or _lacking(variant, precision))
        if line["status"] == "skipped" and own and own[0]["reason"] and own[0]["reason"] in str(line["reason"]):
            line["reason"] = own[0]["reason"]  # the row's own names operation, variant and precision besides
        time = None if row is None else _time(row)
        if time is not None:
            line["measured_gain"] = None if before is None else before / time
            first = time if first is None else first
            before = time
        line |= {
            "speedup_vs_torch": _ratio(best, time),
            "speedup_vs_first": _ratio(first, time),
            "predicted_gain": variant["predicted"],
            "predicted_at": None if variant["predicted"] is None else variant["at"],
            "predicted_here": None
            if variant["predicted"] is None
            else variant["at"] in here and variant["name"] not in left_out,
            "changes": variant["changes"],
            "because": variant["because"],
            **_taken(own),
        }
        found.append(line)
    for name, row in peers:
        time = _time(row)
        ratios = {"speedup_vs_torch": _ratio(best, time), "speedup_vs_first": _ratio(first, time)}
        found.append(_line(name, PEER, row) | ratios)
    return found


def frame(found: Sequence[Mapping[str, Any]], same: Mapping[str, Any]) -> pd.DataFrame:
    """Lines as a frame; `same` is what they have in common."""
    import pandas as pd

    made = pd.DataFrame([{**dict.fromkeys(COLUMNS), **line, **same} for line in found], columns=list(COLUMNS))
    for name in _NUMBERS:
        made[name] = made[name].astype("float64")
    for name in ("registers", "shared_bytes", "local_bytes"):
        made[name] = made[name].astype("Int64")
    for name in ("verified", "default", "predicted_here"):
        made[name] = made[name].astype("boolean")
    return made


def counts(row: Mapping[str, Any]) -> bool:
    """Whether a row's time may be compared: it was measured, and its result is right."""
    return row["status"] == "ok" and not is_missing(row["verified"]) and bool(row["verified"])


def _time(row: Row) -> float | None:
    return float(row["time_ms"]) if counts(row) and row["time_ms"] else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _lacking(variant: Mapping[str, Any], precision: str) -> Row:
    if precision in variant["precisions"]:
        return {"status": "skipped", "reason": "it was not measured"}
    taken = ", ".join(variant["precisions"])
    return {"status": "skipped", "reason": f"it takes {taken}, not {precision}"}


def _line(version: str, kind: str, row: Row) -> dict[str, Any]:
    copied = {name: row.get(name) for name in _COPIED}
    more = {name: row.get(name) for name in ("pct_peak", "pct_limit", "timer")}
    achieved = {"achieved_occupancy_pct": row.get("occupancy_pct")}
    plain = {name: None if is_missing(value) else value for name, value in (copied | more | achieved).items()}
    return {"version": version, "kind": kind, **plain}


def _taken(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of several kernels the one that fills a multiprocessor least, and the most registers and bytes of any."""
    told = [kernel for kernel in kernels if kernel["registers"] is not None]
    found: dict[str, Any] = {"default": any(kernel["default"] for kernel in kernels)}
    if not told:
        return found
    known = [kernel for kernel in told if kernel["theoretical_pct"] is not None]
    if known:
        least = min(known, key=lambda kernel: float(kernel["theoretical_pct"]))
        found |= {"theoretical_occupancy_pct": least["theoretical_pct"], "limiter": least["limiter"]}
    return found | {
        "registers": max(kernel["registers"] for kernel in told),
        "local_bytes": max(kernel["local_bytes"] for kernel in told),
        "shared_bytes": max(kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"] for kernel in told),
    }
