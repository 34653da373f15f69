"""Several runs on one side of a comparison: what they measured of one case becomes one row, as in a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bwprof.records.baseline import Kept
from bwprof.records.keys import Key, keys_within_runs
from bwprof.records.sides import Side
from bwprof.results.schema import Row
from bwprof.text import counted, quoted


def joined(base: Side, new: Side) -> tuple[Side, Side, list[str]]:
    """Both sides, no case more than once on either because several runs have it; and what was joined, in words.

    Rows of a case in one run stay as they are: what they differ in is not in their columns. On the new side a row that
    failed stands for its case, however well another run went: no failure is silent.
    """
    keys = keys_within_runs(base.rows, new.rows)
    notes: list[str] = []
    sides = [
        _joined(side, told, notes, failures=side is new) if not side.cases else side
        for side, told in zip((base, new), keys, strict=True)
    ]
    return sides[0], sides[1], notes


def _joined(side: Side, keys: Sequence[Key], notes: list[str], *, failures: bool) -> Side:
    groups: dict[Key, list[int]] = {}
    for place, told in enumerate(keys):
        groups.setdefault(told, []).append(place)
    if len(groups) == len(keys):
        return side
    samples = side.samples or [None] * len(side.rows)
    cases = [Kept(tuple(side.rows[n] for n in places), tuple(samples[n] for n in places)) for places in groups.values()]
    bad = [next((n for n, row in enumerate(kept.rows) if failures and _failed(row)), None) for kept in cases]
    standing = [kept.middle if place is None else place for kept, place in zip(cases, bad, strict=True)]
    several = [kept for kept in cases if len(kept.rows) > 1]
    processes = max(kept.processes for kept in several)
    times = max(len(kept.rows) for kept in several)
    where = "one process, which counts once" if processes == 1 else f"up to {processes} processes"
    notes.append(
        f"{quoted(side.name)}: {counted(len(several), 'case')} measured up to {times} times, in {where}: "
        "the medians are joined by their geometric mean"
    )
    return replace(
        side,
        rows=[kept.rows[place] for kept, place in zip(cases, standing, strict=True)],
        samples=[kept.samples[place] for kept, place in zip(cases, standing, strict=True)],
        learnt=[kept.process_ms if place is None else () for kept, place in zip(cases, bad, strict=True)],
        cases=tuple(cases),
    )


def _failed(row: Row) -> bool:
    return row["status"] == "failed" or row.get("verified") is False
