"""Recorded runs that come with bwprof, to try all readers of results without a device.

``tests/benchmarks/record_example.py`` makes their files, in ``bwprof/data/examples``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.results import reader
from bwprof.text.parsing import describe_unknown, repr_short

if TYPE_CHECKING:
    import pandas as pd


def examples() -> tuple[str, ...]:
    """Return the names of the recorded runs."""
    return tuple(reader.recorded_runs())


def load_example(name: str) -> pd.DataFrame:
    """Load a recorded run, as `bwprof.load` does.

    Parameters
    ----------
    name : str
        "h200" or "h100": the default suite, with hardware counters; "h200_llama" or "h100_llama": a step of
        Llama-3.1-8B (see `bwprof.ModelStep.from_frame`), with predicted rows for formats without a kernel.

    Returns
    -------
    pandas.DataFrame
        ``attrs["run"]`` holds the run's metadata: ``"commit"`` is the commit of bwprof that measured it, and
        ``"predicted_again"`` a later one that predicted a model's rows again. The machine's name is removed;
        `bwprof.save` writes the raw samples. Rows with `flags`: 8 of the H200's 63 rows, 15 of the H100's.

    Raises
    ------
    ValueError
        For an unknown name.

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
    return with_limits(frame.from_rows(rows, run, samples))  # some runs are older than these columns
