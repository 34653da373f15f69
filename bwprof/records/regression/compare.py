"""Two runs, case by case: which became slower, by more than chance.

`bwprof.compare(...)` is the function below; ``python -m bwprof.compare`` is the command.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


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

    Rows are joined on everything that identifies a case: operation, parameters, precision, variant, cache, timer,
    backend and device. Two measurements differ when their 95 % intervals are apart and they are further apart than the
    case's threshold.

    * Against a baseline of several processes the threshold is what each case has been seen to wander between processes,
      moderated by what all cases do (Smyth 2004, see `bwprof.records.regression.statistics`), at a chance of 5 % that
      any of all cases is called slower without being so (Sidak's correction); it is never below 2 %, or a smaller
      `gate` from 1 % on, as the command has it, which measures a case a second time before it counts.
    * Between two single processes that is not known: then the threshold is `gate`, 3 % when left out.
    * A case that has one state for as long as a process lasts may look slower, even against several: `confirm` tells.
    * Where both sides have raw samples, low and high quantiles must all have changed, and none may contradict: the
      median of samples with two states jumps by itself, a slower kernel moves every quantile.
    * A case is the same where its interval is within `gate`, 3 % when left out, and undecided where a larger change
      may hide.

    * What several runs on one side have measured of one case (a frame of two runs, rows of repeated `bwprof.measure`)
      is joined, as in a baseline: several processes show how far the case wanders, several runs of one process count
      once.

    Parameters
    ----------
    base, new : str, path, pandas.DataFrame, row, iterable of rows, or Baseline
        A run folder, a .json or .csv file of results, a baseline (its file, its name, "baseline:NAME"); a frame of
        `bwprof.sweep` or `bwprof.load`, rows of `bwprof.measure`.
    gate : float or str, optional
        The smallest change worth a word: 0.03 or "3%".
    across : bool
        Compare what ran on another device, driver or timer, too, instead of saying so.
    metric : str
        "time_ms", "bandwidth_gb_s" (of which a change counts as much as that of the time behind it: 5 % more time is
        4.8 % less bandwidth), or "traffic_ratio" (counted bytes; no interval, the gate alone decides).
    folder : path, optional
        Where baselines are; ``.bwprof/baselines`` below the working directory when left out.
    confirm : bool
        Measure a case that is slower or undecided once more, in a fresh process, where its device is at hand, as the
        command does; against a base of fewer than five processes what stays slower is measured up to five times.

    Returns
    -------
    pandas.DataFrame
        A row for each case of either side: case, precision, variant; base_ms, new_ms (of several processes the
        geometric mean of their medians), speedup (base / new time), change_pct (of the metric), base_gb_s, new_gb_s;
        verdict: faster, slower, same, undecided, failed (measured before, not now), disturbed (noisy or throttled; the
        reason says where it is slower by more than that explains: measure it again),
        not_comparable, only_in_base, only_in_new; ratio (new / base of the metric) with its 95 % interval ratio_lo and
        ratio_hi, threshold_pct, smallest_pct (the smallest change that is found 95 times in 100), the intervals of both
        times, base_processes and new_processes; cause (probable, with figures), reason (why there is no comparison, or
        what makes a row doubtful: unverified, above_attainable);
        operation, cache, and parameters (those that tell lines of one case apart).

    Raises
    ------
    FileNotFoundError
        When there is no such file or baseline.
    TypeError, ValueError
        For what holds no rows, a gate that is no fraction, and an unknown metric.

    Examples
    --------
    >>> import bwprof
    >>> before = bwprof.load_example("h200")
    >>> after = before.assign(**{name: before[name] * 1.1 for name in ("time_ms", "time_ms_lo", "time_ms_hi")})
    >>> found = bwprof.compare(before, after).query("case == 'stream_copy'")
    >>> found["verdict"].unique().tolist(), float(round(found["change_pct"].max(), 3))
    (['slower'], 10.0)
    """
    from bwprof.records.regression.comparison import compare_sources
    from bwprof.records.source import load_source
    from bwprof.text.parsing import parse_bool

    sides = (load_source(base, folder=folder), load_source(new, folder=folder))
    twice = parse_bool(confirm, "confirm")
    found = compare_sources(
        *sides, gate=gate, across=parse_bool(across, "across"), metric=metric, tries=2 if twice else 1
    )
    if twice:
        from bwprof.records.regression.confirmation import confirm_changes

        found = confirm_changes(found, sides[1], "slower", quiet=True)
    return found.frame()
