"""Recorded runs that come with bwprof, so that everything that reads results can be tried without a device.

The files beside this module are made by ``tests/benchmarks/record_example.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.results import reader
from bwprof.text.parsing import describe_unknown, repr_short

if TYPE_CHECKING:
    import pandas as pd


def examples() -> tuple[str, ...]:
    """The names of the recorded runs."""
    return tuple(reader.recorded_runs())


def load_example(name: str) -> pd.DataFrame:
    """A recorded run, as `bwprof.load` gives one.

    Parameters
    ----------
    name : str
        "h200" or "h100": the default suite there, with hardware counters; "h200_llama" or "h100_llama": a step of
        Llama-3.1-8B (`bwprof.ModelStep.from_frame` shows it), formats that no kernel has among its rows.

    Returns
    -------
    pandas.DataFrame
        ``attrs["run"]`` holds the run's metadata, and ``attrs["run"]["commit"]`` the commit of bwprof that measured it.
        Where a later one made anew what a model's run predicted, ``attrs["run"]["predicted_again"]`` says which.
        Nothing in it names the machine; `bwprof.save` keeps the raw samples. Rows to be read with care have `flags`, as
        everywhere: 8 of the H200's 63 rows, 15 of the H100's.

    Raises
    ------
    ValueError
        For a name that there is no example of.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.load_example("h200")["device"].unique().tolist()
    ['NVIDIA H200']
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {repr_short(name)}: a name is needed, one of {', '.join(examples())}")
    if name not in examples():
        hint = "; bwprof.load reads results from a file" if Path(name).suffix else ""
        raise ValueError(describe_unknown("example", name, examples()) + hint)
    from bwprof.results import frame
    from bwprof.roofs.limiter import with_limits

    rows, samples, run = reader.read_rows(reader.recorded_runs()[name])
    return with_limits(frame.from_rows(rows, run, samples))  # columns that are younger than some of the runs
