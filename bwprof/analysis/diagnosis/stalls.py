"""Why warps wait, in groups, with the usual cure of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof.analysis import values
from bwprof.text.formatting import is_missing

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("group", "reason", "pct", "cure")


class StallGroup(NamedTuple):
    """Reasons that have a cure in common."""

    name: str
    reasons: tuple[str, ...]  # none: all that no other group has
    cure: str


# In the order of the text; what is in no other group is in the last.
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
    """The group of a reason."""
    return next((group for group in GROUPS if reason in group.reasons), GROUPS[-1])


@dataclass(frozen=True, slots=True)
class Stalls:
    """Why a kernel's warps waited: percent of all waiting, by reason and by group; each group's usual cure."""

    reasons: dict[str, float]

    @property
    def groups(self) -> dict[str, float]:
        """Percent by group, in the order of the text."""
        found = dict.fromkeys((group.name for group in GROUPS), 0.0)
        for reason, pct in self.reasons.items():
            found[find_group(reason).name] += pct
        return found

    @property
    def cures(self) -> dict[str, str]:
        """What usually helps, by group."""
        return {group.name: group.cure for group in GROUPS}

    def text(self) -> str:
        """A line a group, in whole percents that add up to 100.

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
        whole = _round_parts(list(self.groups.values()))
        lines = [f"  {name}: {pct}%" for name, pct in zip(self.groups, whole, strict=True)]
        return "\n".join(["Warp Stall Reasons:", *lines])

    def __str__(self) -> str:
        return self.text()


def _round_parts(parts: list[float]) -> list[int]:
    """Percents as whole numbers with the same sum: those whose rest is largest are rounded up."""
    whole = [math.floor(part) for part in parts]
    missing = round(sum(parts)) - sum(whole)
    for place in sorted(range(len(parts)), key=lambda at: whole[at] - parts[at])[:missing]:
        whole[place] += 1
    return whole


def stalls(row: Any) -> Stalls:
    """Why the warps of a kernel waited, in percent of all waiting.

    Parameters
    ----------
    row : mapping or pandas.Series
        With a column `stall_reasons`: of `bwprof.measure(fn, metrics="all")`, of `bwprof.sweep(metrics="stalls")`, or
        of a profiler's file that `bwprof.importers` read. `selected` (a warp that issued) is no waiting, and left
        out. bwprof's own rows name no reason below 1 % of all waiting.

    Raises
    ------
    ValueError
        For a row in which no reason was counted.
    TypeError
        For what is no row.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.stalls({"stall_reasons": "long_scoreboard=9;wait=1;selected=1"}).groups["Memory Dependency"]
    90.0
    """
    given = values.as_row(row)
    text = given.get("stall_reasons")
    found = values.parse_stalls("" if is_missing(text) else str(text))
    if not found:
        said = given.get("metrics_status")
        why = "" if is_missing(said) or said == "ok" else f" ({said})"
        raise ValueError(
            f"the row has no stall_reasons{why}: measure with metrics='stalls' (--metrics stalls), or let ncu count "
            "them (bwprof.importers.ncu_command, preset 'stalls')"
        )
    return Stalls(dict(sorted(found.items(), key=lambda item: -item[1])))


def stall_table(row: Any) -> pd.DataFrame:
    """The same as a table: a line for each reason, by group.

    Returns
    -------
    pandas.DataFrame
        Columns group, reason, pct (of all waiting; they add up to 100) and cure, what usually helps against the group.
        Groups with the most waiting first, within one the reasons likewise.

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

    found = stalls(row)
    groups = found.groups
    lines = [
        (find_group(reason).name, reason, pct, find_group(reason).cure)
        for reason, pct in sorted(found.reasons.items(), key=lambda item: (-groups[find_group(item[0]).name], -item[1]))
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS))
