"""Cases measured once more, in fresh processes on the device at hand, before a comparison calls them slower."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bwprof.records.regression.comparison import Comparison
from bwprof.records.regression.verdicts import SLOWER, CaseVerdict
from bwprof.records.source import Source
from bwprof.results.schema import RowDict
from bwprof.runs import remeasure
from bwprof.runs.child import ChildExecutor
from bwprof.runs.interrupts import Interrupts
from bwprof.runs.progress import choose_progress

# Processes of the base and second tries together. A case may have one state for as long as a process lasts: where it is
# in either state half of the time, seven processes look like a slow-down by chance one time in 128.
_PROCESSES = 6


def confirm_changes(found: Comparison, new: Source, fail_on: str | float, *, quiet: bool) -> Comparison:
    """Measure again what fails a gate or may, under the new run's own conditions; all tries must say so.

    What fails against a base of few processes is measured more often, as long as it fails.
    """
    doubted = [place for place, line in enumerate(found.lines) if found.doubted(line, fail_on)]
    for tried in range(1, _PROCESSES):
        if not doubted:
            break
        found = found.after_second_try(dict(zip(doubted, _measured(found, doubted, new, quiet=quiet), strict=True)))
        doubted = [
            place
            for place in doubted
            if _needs_more(found.lines[place], tried) and found.fails(found.lines[place], fail_on)
            if not found.again[place].startswith("not ")
        ]
    return found


def _needs_more(line: CaseVerdict, tried: int) -> bool:
    return line.verdict == SLOWER and line.base is not None and len(line.base.processes) + tried < _PROCESSES


def _measured(found: Comparison, places: Sequence[int], new: Source, *, quiet: bool) -> Sequence[RowDict | str]:
    """Each of these cases once more in a fresh process."""
    rows = [row for place in places if (row := found.lines[place].pair.new) is not None]

    def say(text: str) -> None:
        if not quiet:
            sys.stderr.write(f"bwprof: {text}\n")

    progress = choose_progress(quiet=quiet)
    try:
        with Interrupts() as interrupts:
            return remeasure.measure_again(
                rows, new.run, lambda backend, index: ChildExecutor(backend, index, interrupts), progress, say=say
            )
    finally:
        progress.end()
