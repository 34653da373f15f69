"""`bwprof.benchmark_bandwidth`: a suite into a file of the nine classic columns."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from bwprof import results
from bwprof.errors import SweepError
from bwprof.hardware import Device
from bwprof.results.files import Claim, is_plain_target
from bwprof.runs.inprocess import How, Shown, run
from bwprof.runs.plan import Request
from bwprof.text import path_of, quoted, words

if TYPE_CHECKING:
    import pandas as pd


def benchmark_bandwidth(
    path: str | PathLike[str],
    *,
    suite: str | PathLike[str] | None = None,
    only: str | None = None,
    device: Device = None,
    backend: str | None = None,
    progress: Shown = None,
) -> pd.DataFrame:
    """Measure a suite into a CSV of the nine classic columns, as the C library's `cuda_benchmark_bandwidth` does.

    ``operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written``: operation is the case's name,
    with its variant where the case has several; precisions are in capital letters, M, N and K are empty where they do
    not apply. `bwprof sweep --classic-csv FILE` is the same in a shell, ``bwprof.save(frame, path, classic=True)`` for
    a frame that is there.

    Parameters
    ----------
    path : path
        A file ending in .csv, which appears, or is replaced, in one step when all cases have run.
    suite : str or path, optional
        A built-in suite's name, or a .toml file; the default one when left out.
    only, device, backend, progress
        As in `bwprof.sweep`: the first GPU when nothing is said, or the CPU where there is none.

    Returns
    -------
    pandas.DataFrame
        The whole rows, as of `bwprof.sweep`, held against no roofs.

    Raises
    ------
    ValueError
        For another ending, and an unknown suite or device, before anything is measured.
    OSError
        When the file cannot be written, before anything is measured.
    SweepError
        When a case failed: `frame` holds the rows, and there is no file.

    Examples
    --------
    >>> import bwprof, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "classic.csv")
    ...     rows = bwprof.benchmark_bandwidth(path, suite="smoke", only="kv_append", device="cpu")
    ...     lines = path.read_text().splitlines()
    >>> lines[0]
    'operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written'
    >>> [line.split(",")[:5] for line in lines[1:]]
    [['kv_append', 'FP32', '', '', ''], ['kv_append', 'FP16', '', '', '']]
    """
    target = path_of(path, "path")
    if target.suffix.lower() != ".csv":
        raise ValueError(f"{quoted(path)}: the classic columns are saved as .csv")
    if is_plain_target(target):
        Claim(target).release()  # it can be written, and nobody else does
    request = Request(
        suite=None if suite is None else str(suite), only=words("only", only), backend=backend, device=device
    )
    frame = run(request, How(roofs=False, progress=progress))
    failed = frame[frame["status"] == "failed"]
    if len(failed):
        first = failed.iloc[0]
        why = f"{first['case']} {first['precision']}: {first['reason']}"
        raise SweepError(f"{len(failed)} of {len(frame)} cases failed: {why}", frame)
    results.save(frame, target, classic=True)
    return frame
