"""The tables of an ablation: each variant's gain over the one before, beside its prediction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure, format_gain, format_seconds, format_short, is_missing

if TYPE_CHECKING:
    import pandas as pd

VARIANT, PEER = "rung", "peer"

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


def make_frame(
    variants: Sequence[Mapping[str, Any]],
    rows: Mapping[str, RowDict],
    kernels: Sequence[Mapping[str, Any]],
    peers: Sequence[tuple[str, RowDict]],
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
        line = _line(variant["name"], VARIANT, row or _lacking(variant, precision))
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


def is_verified(row: Mapping[str, Any]) -> bool:
    """Whether a row's time may be compared: it was measured, and its result is right."""
    return row["status"] == "ok" and not is_missing(row["verified"]) and bool(row["verified"])


def _time(row: RowDict) -> float | None:
    return float(row["time_ms"]) if is_verified(row) and row["time_ms"] else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _lacking(variant: Mapping[str, Any], precision: str) -> RowDict:
    if precision in variant["precisions"]:
        return {"status": "skipped", "reason": "it was not measured"}
    taken = ", ".join(variant["precisions"])
    return {"status": "skipped", "reason": f"it takes {taken}, not {precision}"}


def _line(version: str, kind: str, row: RowDict) -> dict[str, Any]:
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


NUMBERS = ("Speedup vs PyTorch", "Memory BW", "Occupancy")

GAINS_NUMBERS = ("Time", "vs first", "Measured gain", "Predicted gain")

_NOTHING = ""


def title(found: pd.DataFrame) -> str:
    """What was measured, on what."""
    first = found.iloc[0]
    return f"{first['operation']} {first['precision']}, {first['shape']}, on {first['device']}"


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Version, speed-up against PyTorch, bandwidth, occupancy, and what each rung changes."""
    import pandas as pd

    rows = [
        [row["version"], _times(row["speedup_vs_torch"]), _bandwidth(row), _occupancy(row), _change(row)]
        for row in _records(found)
    ]
    return pd.DataFrame(rows, columns=["Version", *NUMBERS, "Key Change"])


def gains(found: pd.DataFrame) -> pd.DataFrame:
    """What each rung was to bring, and what it brought."""
    import pandas as pd

    place = _place(found)
    rows = [
        [
            row["version"],
            format_seconds(row["time_ms"] / 1e3) if is_verified(row) else _NOTHING,
            _times(row["speedup_vs_first"]),
            _gain(row["measured_gain"]),
            _gain(row["predicted_gain"]),
            _why(row, place),
        ]
        for row in _records(found)
    ]
    return pd.DataFrame(rows, columns=["Version", *GAINS_NUMBERS, "Why so much was predicted"])


def notes(found: pd.DataFrame) -> list[str]:
    """What tables do not say: why there is no PyTorch, what the numbers are."""
    said = []
    if found["speedup_vs_torch"].isna().all():
        reason = found.attrs.get("torch") or "its times are not among the rows"
        peers = found[found["kind"] == PEER]
        if len(peers):
            reason = "; ".join(f"{row['version']}: {row['reason']}" for row in _records(peers))
        said.append(f"PyTorch's column is empty: {reason}.")
    else:
        fastest = max(
            (row for row in _records(found) if row["kind"] == PEER and not is_missing(row["speedup_vs_torch"])),
            key=lambda row: float(row["speedup_vs_torch"]),
        )
        said.append(f"Speedup vs PyTorch: against {fastest['version']} of {found.attrs.get('torch') or 'PyTorch'}.")
    if missing := found.attrs.get(MISSING):
        said.append(f"Not measured, as the run ended early: {', '.join(missing)}.")
    said.append(
        "A gain is the time of the last rung before that ran, divided by the rung's own: within a factor of two in "
        "per cent, +25 % for 1.25, and 0 % where a rung brings nothing."
    )
    if place := _place(found):
        here = found[found["predicted_at"].eq(place)]["predicted_here"].any()
        elsewhere = "" if here else ", which is not what was measured"
        others = ", where their line names nothing else" if found["predicted_at"].dropna().ne(place).any() else ""
        said.append(f"Predictions are for {place}{elsewhere}{others}, over the rung before in the whole ladder.")
    if found["theoretical_occupancy_pct"].notna().any():
        said.append("Occupancy is the theoretical one, of several kernels the lowest.")
    flagged = found[found["flags"].fillna("").ne("") & found["status"].eq("ok")]
    if len(flagged):
        words = "; ".join(f"{row['version']}: {row['flags']}" for row in _records(flagged))
        said.append(f"In doubt (*): {words}.")
    return said


def markdown(found: pd.DataFrame) -> str:
    """All of it as Markdown."""
    from bwprof.analysis.answer import markdown as as_markdown

    parts = [f"# Ladder: {title(found)}", as_markdown(table(found)), "## Predicted and measured"]
    parts += [as_markdown(gains(found)), "\n".join(f"* {note}" for note in notes(found))]
    return "\n\n".join(parts) + "\n"


def _records(found: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in found.to_dict(orient="records")]


def _times(value: Any) -> str:
    """A ratio, with two digits of what is small."""
    if is_missing(value):
        return _NOTHING
    return f"{format_short(value, '.2f' if value >= 0.1 else '.2g')}x"


def _gain(value: Any) -> str:
    return _NOTHING if is_missing(value) else format_gain(value)


def _bandwidth(row: Mapping[str, Any]) -> str:
    if not is_verified(row) or is_missing(row["bandwidth_gb_s"]):
        return _NOTHING
    return f"{format_figure(row['bandwidth_gb_s'], whole_from=100)} GB/s{'*' if row['flags'] else ''}"


def _occupancy(row: Mapping[str, Any]) -> str:
    theoretical, achieved = row["theoretical_occupancy_pct"], row["achieved_occupancy_pct"]
    if is_missing(theoretical):
        return _NOTHING
    return f"{theoretical:.0f} %" + ("" if is_missing(achieved) else f" ({achieved:.0f} % achieved)")


def _change(row: Mapping[str, Any]) -> str:
    words = _NOTHING if is_missing(row["changes"]) else str(row["changes"])
    reason = _NOTHING if is_missing(row["reason"]) else str(row["reason"])
    if is_verified(row):
        return words or "for comparison"
    said = {"ok": "not verified", "skipped": "does not run here"}.get(row["status"], str(row["status"]))
    return ": ".join(filter(None, ("; ".join(filter(None, (words, said))), reason)))


def _place(found: pd.DataFrame) -> str:
    """Where most of the ladder is predicted."""
    places = found["predicted_at"].dropna()
    return str(places.mode().iloc[0]) if len(places) else _NOTHING


def _why(row: Mapping[str, Any], place: str) -> str:
    if is_missing(row["because"]):
        return _NOTHING
    elsewhere = "" if row["predicted_at"] == place else f"(at {row['predicted_at']}) "
    return f"{elsewhere}{row['because']}"
