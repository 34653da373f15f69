"""`bwprof.compare`: find the cases of two runs that changed by more than chance, and measure them again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof.records.baselines import Baseline
from bwprof.records.regression.comparison import Comparison, compare_sources
from bwprof.records.regression.verdicts import SLOWER
from bwprof.records.source import load_source
from bwprof.results.schema import RowDict
from bwprof.runs import remeasure
from bwprof.runs.channel import Interrupts
from bwprof.runs.executors import ChildExecutor
from bwprof.runs.progress import choose_progress
from bwprof.text.parsing import parse_bool

if TYPE_CHECKING:
    import pandas as pd

# Processes of the base and second tries together. A case may have one state for as long as a process lasts: where it is
# in either state half of the time, seven processes look like a slow-down by chance one time in 128.
_PROCESSES = 6


def compare(
    base: Any,
    new: Any,
    *,
    gate: float | str | None = None,
    across: bool = False,
    metric: str = "time_ms",
    folder: str | PathLike[str] | None = None,
    confirm: bool = False,
) -> pd.DataFrame:
    """Compare two runs, baselines, frames or rows, case by case.

    Two measurements of a case differ when their 95 % intervals are apart, and they are further apart than its
    threshold:

    * Against a baseline of several processes it follows from the case's variation between processes, moderated by that
      of all cases (Smyth 2004), with a chance of 5 % of any false alarm among all cases (Sidak's correction). It is at
      least 2 %, or a smaller `gate` from 1 % on.
    * Between two single processes it is `gate`, by default 3 %: use `confirm`, as a case may have one state for as long
      as a process lasts.
    * Where both sides have raw samples, low and high quantiles must all have changed.

    A case is the same where its interval is within `gate` (by default 3 %), and undecided where a larger change may
    hide. Several runs of one case on a side are joined, as in a baseline; several runs of one process count once.

    Parameters
    ----------
    base, new : str, path, pandas.DataFrame, row, iterable of rows, or Baseline
        A run folder, a file of results, a baseline (its file, its name, "baseline:NAME"), a frame, or rows.
    gate : float or str, optional
        The smallest change that matters: 0.03 or "3%".
    across : bool
        Compare rows of different devices, drivers or timers, too.
    metric : str
        "time_ms", "bandwidth_gb_s" (5 % more time is 4.8 % less), or "traffic_ratio" (counted bytes; the gate decides).
    folder : path, optional
        The folder of baselines; by default ``.bwprof/baselines``.
    confirm : bool
        Measure slower and undecided cases again, in fresh processes, where their device is available.

    Returns
    -------
    pandas.DataFrame
        A row for each case of either side: case, precision, variant; base_ms, new_ms (geometric means over processes),
        speedup (base / new time), change_pct (of the metric), base_gb_s, new_gb_s; verdict: faster, slower, same,
        undecided, failed (measured before, not now), disturbed (noisy or throttled), not_comparable, only_in_base,
        only_in_new; ratio (new / base of the metric) with its 95 % interval ratio_lo and ratio_hi, threshold_pct,
        smallest_pct (found 95 times in 100), the intervals of both times, base_processes, new_processes; cause
        (probable), reason (for no comparison, or doubt); operation, cache, parameters (that distinguish lines).

    Raises
    ------
    FileNotFoundError, TypeError, ValueError
        For a missing source, one without rows, a gate that is no fraction, and an unknown metric.

    Examples
    --------
    >>> import bwprof
    >>> before = bwprof.load_example("h200")
    >>> after = before.assign(**{name: before[name] * 1.1 for name in ("time_ms", "time_ms_lo", "time_ms_hi")})
    >>> copies = bwprof.compare(before, after).query("case == 'stream_copy'")
    >>> copies["verdict"].unique().tolist(), float(round(copies["change_pct"].max(), 3))
    (['slower'], 10.0)
    """
    sides = (load_source(base, folder=folder), load_source(new, folder=folder))
    confirm, across = parse_bool(confirm, "confirm"), parse_bool(across, "across")
    comparison = compare_sources(*sides, gate=gate, across=across, metric=metric, tries=2 if confirm else 1)
    if confirm:
        comparison = confirm_changes(comparison, sides[1], "slower", quiet=True)
    return comparison.frame()


def confirm_changes(comparison: Comparison, new: Baseline, fail_on: str | float, *, quiet: bool) -> Comparison:
    """Measure again what fails a gate or may, against a base of few processes more often; all tries must agree."""
    places = [place for place, line in enumerate(comparison.lines) if line.is_doubted(fail_on)]
    for tries in range(1, _PROCESSES):
        if not places:
            break
        found = _measure_again(comparison, places, new, quiet=quiet)
        comparison = comparison.after_second_try(dict(zip(places, found, strict=True)))
        slower = [n for n in places if comparison.lines[n].verdict == SLOWER and comparison.lines[n].fails(fail_on)]
        few = [n for n in slower if len(comparison.lines[n].base.processes) + tries < _PROCESSES]
        places = [n for n in few if comparison.second_tries[n]]
    return comparison


def _measure_again(
    comparison: Comparison, places: Sequence[int], new: Baseline, *, quiet: bool
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
