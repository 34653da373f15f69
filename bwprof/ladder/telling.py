"""A ladder in words: tables for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bwprof.ladder.rungs import MISSING, PEER, counts
from bwprof.results.schema import is_missing
from bwprof.text import figure_text, gain_text, seconds_text, short

if TYPE_CHECKING:
    import pandas as pd

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
            seconds_text(row["time_ms"] / 1e3) if counts(row) else _NOTHING,
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
    return f"{short(value, '.2f' if value >= 0.1 else '.2g')}x"


def _gain(value: Any) -> str:
    return _NOTHING if is_missing(value) else gain_text(value)


def _bandwidth(row: Mapping[str, Any]) -> str:
    if not counts(row) or is_missing(row["bandwidth_gb_s"]):
        return _NOTHING
    return f"{figure_text(row['bandwidth_gb_s'], whole_from=100)} GB/s{'*' if row['flags'] else ''}"


def _occupancy(row: Mapping[str, Any]) -> str:
    theoretical, achieved = row["theoretical_occupancy_pct"], row["achieved_occupancy_pct"]
    if is_missing(theoretical):
        return _NOTHING
    return f"{theoretical:.0f} %" + ("" if is_missing(achieved) else f" ({achieved:.0f} % achieved)")


def _change(row: Mapping[str, Any]) -> str:
    words = _NOTHING if is_missing(row["changes"]) else str(row["changes"])
    reason = _NOTHING if is_missing(row["reason"]) else str(row["reason"])
    if counts(row):
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
