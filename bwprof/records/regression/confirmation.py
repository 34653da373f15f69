"""Measure cases again, in fresh processes, before a comparison calls them slower."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bwprof.records.regression.comparison import Comparison
from bwprof.records.regression.verdicts import SLOWER, CaseVerdict
from bwprof.records.source import Source
from bwprof.results.schema import RowDict
from bwprof.runs import remeasure
from bwprof.runs.channel import Interrupts
from bwprof.runs.child import ChildExecutor
from bwprof.runs.progress import choose_progress

# Processes of the base and second tries together. A case may have one state for as long as a process lasts: where it is
# in either state half of the time, seven processes look like a slow-down by chance one time in 128.
_PROCESSES = 6


def confirm_changes(comparison: Comparison, new: Source, fail_on: str | float, *, quiet: bool) -> Comparison:
    """Measure again what fails a gate or may, under the new run's conditions; all tries must agree.

    What fails against a base of few processes is measured more often, as long as it fails.
    """
    places = [place for place, line in enumerate(comparison.lines) if comparison.doubted(line, fail_on)]
    for tries in range(1, _PROCESSES):
        if not places:
            break
        rows = dict(zip(places, _measure_again(comparison, places, new, quiet=quiet), strict=True))
        comparison = comparison.after_second_try(rows)
        places = [
            place
            for place in places
            if _needs_more(comparison.lines[place], tries) and comparison.fails(comparison.lines[place], fail_on)
            if comparison.second_tries[place]
        ]
    return comparison


def _needs_more(line: CaseVerdict, tries: int) -> bool:
    return line.verdict == SLOWER and line.base is not None and len(line.base.processes) + tries < _PROCESSES


def _measure_again(
    comparison: Comparison, places: Sequence[int], new: Source, *, quiet: bool
) -> Sequence[RowDict | str]:
    rows = [row for place in places if (row := comparison.lines[place].pair.new) is not None]

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
