"""Group the reasons for which warps wait, each group with its usual cure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof.analysis import values

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("group", "reason", "pct", "cure")


class StallGroup(NamedTuple):
    """Stall reasons with a common cure; the group without reasons takes all others."""

    name: str
    reasons: tuple[str, ...]
    cure: str


GROUPS = (
    StallGroup(
        "Memory Dependency", ("long_scoreboard",), "prefetch; more loads in flight, more warps; fewer trips to memory"
    ),
    StallGroup(
        "Execution Dependency",
        ("wait", "short_scoreboard", "gmma"),
        "more independent instructions a warp (unroll, reorder); fewer accesses to shared memory",
    ),
    StallGroup(
        "Memory Throttle",
        ("lg_throttle", "mio_throttle", "tex_throttle"),
        "fewer and wider accesses, coalesced; no bank conflicts",
    ),
    StallGroup("Synchronization", ("barrier", "membar"), "fewer barriers and fences; work spread evenly between them"),
    StallGroup(
        "Other", (), "not_selected and math_pipe_throttle: the pipes are busy; else shorter code, fewer branches"
    ),
)


def find_group(reason: str) -> StallGroup:
    """Find the group of a stall reason."""
    return next((group for group in GROUPS if reason in group.reasons), GROUPS[-1])


@dataclass(frozen=True, slots=True)
class Stalls:
    """Why a kernel's warps wait, in percent of all waiting."""

    reasons: dict[str, float]

    @property
    def groups(self) -> dict[str, float]:
        """Percent by group."""
        totals = dict.fromkeys((group.name for group in GROUPS), 0.0)
        for reason, pct in self.reasons.items():
            totals[find_group(reason).name] += pct
        return totals

    def text(self) -> str:
        """Format a line a group, in whole percents that add up to 100.

        Examples
        --------
        >>> print(Stalls({"long_scoreboard": 94.7, "wait": 3.1, "drain": 2.2}).text())
        Warp Stall Reasons:
          Memory Dependency: 95%
          Execution Dependency: 3%
          Memory Throttle: 0%
          Synchronization: 0%
          Other: 2%
        """
        groups = self.groups
        lines = [f"  {name}: {pct}%" for name, pct in zip(groups, _round_parts([*groups.values()]), strict=True)]
        return "\n".join(["Warp Stall Reasons:", *lines])

    def __str__(self) -> str:
        return self.text()


def _round_parts(parts: list[float]) -> list[int]:
    """Round percents to floors numbers with the same sum: those with the largest rest are rounded up."""
    floors = [math.floor(part) for part in parts]
    missing = round(sum(parts)) - sum(floors)
    for place in sorted(range(len(parts)), key=lambda at: floors[at] - parts[at])[:missing]:
        floors[place] += 1
    return floors


def stalls(row: Any) -> Stalls:
    """Read why the warps of a kernel wait, in percent of all waiting.

    Parameters
    ----------
    row : mapping or pandas.Series
        With a column `stall_reasons`: from `bwprof.measure(fn, metrics="all")`, `bwprof.sweep(metrics="stalls")`, or
        a profiler's file that `bwprof.importers` reads. The reason `selected` (a warp that issued) is left out.
        bwprof's own rows name no reason below 1 % of all waiting.

    Raises
    ------
    ValueError
        If no reason was counted.
    TypeError
        If `row` is no row.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.stalls({"stall_reasons": "long_scoreboard=9;wait=1;selected=1"}).groups["Memory Dependency"]
    90.0
    """
    columns = values.as_row(row)
    reasons = values.parse_stalls(str(columns.get("stall_reasons") or ""))
    if not reasons:
        status = columns.get("metrics_status") or "ok"
        why = "" if status == "ok" else f" ({status})"
        way = "measure with metrics='stalls' (--metrics stalls; ncu: preset 'stalls' of bwprof.importers.ncu_command)"
        raise ValueError(f"the row has no stall_reasons{why}: {way}")
    return Stalls(dict(sorted(reasons.items(), key=lambda item: -item[1])))


def stall_table(row: Any) -> pd.DataFrame:
    """Tabulate the stall reasons of a row by group.

    Returns
    -------
    pandas.DataFrame
        Columns group, reason, pct (of all waiting; they add up to 100) and cure (of the group). The groups with the
        most waiting come first, and within a group the reasons with the most.

    Raises
    ------
    ValueError, TypeError
        As `stalls`.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.stall_table({"stall_reasons": "wait=1;long_scoreboard=3;selected=1"})["pct"].tolist()
    [75.0, 25.0]
    """
    import pandas as pd

    reasons = stalls(row)
    groups = {reason: find_group(reason) for reason in reasons.reasons}
    order = sorted(reasons.reasons.items(), key=lambda item: (-reasons.groups[groups[item[0]].name], -item[1]))
    lines = [(groups[reason].name, reason, pct, groups[reason].cure) for reason, pct in order]
    return pd.DataFrame(lines, columns=list(COLUMNS))
