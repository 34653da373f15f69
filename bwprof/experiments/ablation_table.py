"""The tables of an ablation: each variant's gain over the one before, beside its prediction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pandas as pd

from bwprof.results.schema import RowDict
from bwprof.text import document
from bwprof.text.document import Document, Section
from bwprof.text.formatting import format_figure, format_gain, format_seconds, format_short, is_missing

VARIANT, PEER = "variant", "peer"  # values of the column kind

MISSING = "missing"  # the attribute of a frame that names what an early end left unmeasured

_COLUMNS = """
operation precision shape backend device version kind status reason verified:boolean flags time_ms:float64
time_ms_lo:float64 time_ms_hi:float64 speedup_vs_torch:float64 speedup_vs_first:float64 measured_gain:float64
predicted_gain:float64 predicted_at predicted_here:boolean bandwidth_gb_s:float64 tflops:float64 pct_peak:float64
pct_limit:float64 theoretical_occupancy_pct:float64 achieved_occupancy_pct:float64 limiter registers:Int64
shared_bytes:Int64 local_bytes:Int64 changes because default:boolean timer
"""

# Each column's type, "" for any, in order.
COLUMNS = {name: kind for name, _, kind in (word.partition(":") for word in _COLUMNS.split())}

_COPIED = (
    *("status", "reason", "verified", "flags", "time_ms", "time_ms_lo", "time_ms_hi"),
    *("bandwidth_gb_s", "tflops", "pct_peak", "pct_limit", "timer"),
)


def make_frame(
    variants: Sequence[Mapping[str, Any]],
    rows: Mapping[str, RowDict],
    kernels: Sequence[Mapping[str, Any]],
    peers: Sequence[tuple[str, RowDict]],
    common: Mapping[str, Any],
    here: Collection[str],
    left_out: Collection[str] = (),
) -> pd.DataFrame:
    """Make a frame with a row for each variant, then for each peer.

    `variants` are the registry's, `rows` were measured, by variant, `kernels` are as `bwprof.variants` describes them,
    `peers` have names; `common` columns are of all rows. Predictions hold for the registry's names `here` of this
    precision and shape, but not for variants in `left_out`, whose predecessor was not measured.
    """
    lines = []
    for variant in variants:
        row = rows.get(variant["name"]) or _unmeasured_row(variant, common["precision"])
        own = [kernel for kernel in kernels if kernel["variant"] == variant["name"]]
        line = _line(variant["name"], VARIANT, row) | _kernel_columns(own)
        reason = own[0]["reason"] if own and row["status"] == "skipped" else ""
        if reason and reason in str(row["reason"]):
            line["reason"] = reason  # the row's repeats operation, variant and precision
        if variant["predicted"] is not None:
            holds = variant["at"] in here and variant["name"] not in left_out
            line |= {"predicted_gain": variant["predicted"], "predicted_at": variant["at"], "predicted_here": holds}
        lines.append(line | {"changes": variant["changes"], "because": variant["because"]})
    lines += [_line(name, PEER, row) for name, row in peers]
    data = pd.DataFrame([{**line, **common} for line in lines], columns=[*COLUMNS])
    data = data.astype({name: kind for name, kind in COLUMNS.items() if kind})
    ours = data["kind"].eq(VARIANT)
    time = data["time_ms"].where(data["status"].eq("ok") & data["verified"].fillna(value=False) & data["time_ms"].gt(0))
    first = time[ours].dropna()
    data["speedup_vs_torch"] = time[~ours].min() / time
    data["speedup_vs_first"] = first.get(first.first_valid_index(), float("nan")) / time
    data["measured_gain"] = (time.ffill().shift() / time).where(ours)
    return data


def _unmeasured_row(variant: Mapping[str, Any], precision: str) -> RowDict:
    reason = "it was not measured"
    if precision not in variant["precisions"]:
        reason = f"it takes {', '.join(variant['precisions'])}, not {precision}"
    return {"status": "skipped", "reason": reason}


def _line(version: str, kind: str, row: RowDict) -> dict[str, Any]:
    copied = {name: row.get(name) for name in _COPIED}
    return {"version": version, "kind": kind, "achieved_occupancy_pct": row.get("occupancy_pct"), **copied}


def _kernel_columns(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the lowest occupancy of several kernels, and their most registers and bytes."""
    columns: dict[str, Any] = {"default": any(kernel["default"] for kernel in kernels)}
    compiled = [kernel for kernel in kernels if kernel["registers"] is not None]
    known = [kernel for kernel in compiled if kernel["theoretical_pct"] is not None]
    if known:
        least = min(known, key=itemgetter("theoretical_pct"))
        columns |= {"theoretical_occupancy_pct": least["theoretical_pct"], "limiter": least["limiter"]}
    if compiled:
        columns |= {name: max(kernel[name] for kernel in compiled) for name in ("registers", "local_bytes")}
        shared = [kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"] for kernel in compiled]
        columns["shared_bytes"] = max(shared)
    return columns


def is_verified(row: pd.Series[Any]) -> bool:
    """Return whether a row was measured and its result is right, so that its time may be compared."""
    return row["status"] == "ok" and not is_missing(row["verified"]) and bool(row["verified"])


NUMBERS = ("Speedup vs PyTorch", "Memory BW", "Occupancy")

GAINS_NUMBERS = ("Time", "vs first", "Measured gain", "Predicted gain")


def title(data: pd.DataFrame) -> str:
    """Return operation, precision, shape and device."""
    first = data.iloc[0]
    return f"{first['operation']} {first['precision']}, {first['shape']}, on {first['device']}"


def table(data: pd.DataFrame) -> pd.DataFrame:
    """Return each version's speed-up over PyTorch, bandwidth, occupancy and change, as text."""
    columns = {
        "Version": data["version"],
        "Speedup vs PyTorch": data["speedup_vs_torch"].map(_format_times),
        "Memory BW": data.apply(_format_bandwidth, axis=1),
        "Occupancy": data.apply(_format_occupancy, axis=1),
        "Key Change": data.apply(_describe_change, axis=1),
    }
    return pd.DataFrame(columns)


def gains(data: pd.DataFrame) -> pd.DataFrame:
    """Return each version's measured and predicted gains, as text."""
    columns = {
        "Version": data["version"],
        "Time": data.apply(lambda row: format_seconds(row["time_ms"] / 1e3) if is_verified(row) else "", axis=1),
        "vs first": data["speedup_vs_first"].map(_format_times),
        "Measured gain": data["measured_gain"].map(_format_gain),
        "Predicted gain": data["predicted_gain"].map(_format_gain),
        "Reason of the prediction": data.apply(_describe_reason, axis=1),
    }
    return pd.DataFrame(columns)


def notes(data: pd.DataFrame) -> list[str]:
    """Return notes on the tables: which PyTorch, what a gain is, where predictions hold, which rows are in doubt."""
    lines = [_torch_note(data)]
    if missing := data.attrs.get(MISSING):
        lines.append(f"Not measured, as the run ended early: {', '.join(missing)}.")
    lines.append(
        "A gain is the time of the last variant before that ran, divided by the variant's own: within a factor of two "
        "in percent, +25 % for 1.25, and 0 % for no change."
    )
    if data["predicted_at"].notna().any():
        lines.append("Predictions are over the previous variant of all, of this shape or of that behind (at ...).")
    if data["theoretical_occupancy_pct"].notna().any():
        lines.append("Occupancy is the theoretical one, of several kernels the lowest.")
    flagged = data[data["flags"].fillna("").ne("") & data["status"].eq("ok")]
    if len(flagged):
        lines.append(f"In doubt (*): {_join(flagged, 'flags')}.")
    return lines


def _torch_note(data: pd.DataFrame) -> str:
    torch, peers = data.attrs.get("torch"), data[data["kind"].eq(PEER)]
    if data["speedup_vs_torch"].isna().all():
        reasons = _join(peers, "reason") or torch or "its times are not among the rows"
        return f"PyTorch's column is empty: {reasons}."
    fastest = peers.sort_values("speedup_vs_torch", ascending=False)["version"].iloc[0]
    return f"Speedup vs PyTorch: against {fastest} of {torch or 'PyTorch'}."


def markdown(data: pd.DataFrame) -> str:
    """Return title, tables and notes as Markdown."""
    blocks = (document.make_frame_table(gains(data), numbers=GAINS_NUMBERS), document.make_list(notes(data)))
    sections = (Section("gains", "Predicted and measured", tuple(block for block in blocks if block)),)
    lead = document.make_frame_table(table(data), numbers=NUMBERS)
    page = Document(f"Variants: {title(data)}", "", sections, lead=(lead,) if lead else ())
    return document.to_markdown(page)


def _join(data: pd.DataFrame, column: str) -> str:
    return "; ".join(f"{version}: {text}" for version, text in zip(data["version"], data[column], strict=True))


def _format_times(value: Any) -> str:
    """Write a ratio, a small one with two digits."""
    return "" if is_missing(value) else f"{format_short(value, '.2f' if value >= 0.1 else '.2g')}x"


def _format_gain(value: Any) -> str:
    return "" if is_missing(value) else format_gain(value)


def _format_bandwidth(row: pd.Series[Any]) -> str:
    if not is_verified(row) or is_missing(row["bandwidth_gb_s"]):
        return ""
    return f"{format_figure(row['bandwidth_gb_s'], whole_from=100)} GB/s{'*' if row['flags'] else ''}"


def _format_occupancy(row: pd.Series[Any]) -> str:
    theoretical, achieved = row["theoretical_occupancy_pct"], row["achieved_occupancy_pct"]
    if is_missing(theoretical):
        return ""
    return f"{theoretical:.0f} %" + ("" if is_missing(achieved) else f" ({achieved:.0f} % achieved)")


def _describe_change(row: pd.Series[Any]) -> str:
    changes, reason = ("" if is_missing(row[name]) else str(row[name]) for name in ("changes", "reason"))
    if is_verified(row):
        return changes or "for comparison"
    status = {"ok": "not verified", "skipped": "does not run here"}.get(row["status"], str(row["status"]))
    return ": ".join(filter(None, ("; ".join(filter(None, (changes, status))), reason)))


def _describe_reason(row: pd.Series[Any]) -> str:
    if is_missing(row["because"]):
        return ""
    return str(row["because"]) if row["predicted_here"] else f"(at {row['predicted_at']}) {row['because']}"
