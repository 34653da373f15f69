"""Files of Nsight Compute as frames."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof.profilers.nsight import pages, reports
from bwprof.profilers.nsight.frame import frame
from bwprof.profilers.reading import wrong
from bwprof.text import path_of

if TYPE_CHECKING:
    import pandas as pd


def parse_ncu(path: str | PathLike[str] | Any, *, timeout_s: float = reports.SECONDS) -> pd.DataFrame:
    """What Nsight Compute measured, a row a launch, in the columns that bwprof's own rows have.

    Parameters
    ----------
    path : path
        What ``ncu --csv`` printed (``--page raw`` or ``--page details``, ``--print-summary`` too), with or without the
        lines of ncu and the program around it, from ncu's languages and any card; both pages as plain text, as well as
        that can be (figures are rounded there); or a report (.ncu-rep), which ``ncu -i`` turns into a page, or NVIDIA's
        module `ncu_report`.
    timeout_s : float
        Seconds that ``ncu -i`` may take for a report.

    Returns
    -------
    pandas.DataFrame
        First what `bwprof.profilers.columns.COLUMNS` lists, as far as it is known: kernel, launch (its number in the
        file), case (the kernel's short name), device, grid, block, time_ms (ms), dram_bytes_read and dram_bytes_written
        (bytes), dram_gb_s and peak_gb_s (10^9 bytes a second), pct_peak (100 * dram_gb_s / peak_gb_s, %), occupancy_pct
        and its limiter, stall_reasons (warps per issued instruction), bank_conflicts, sectors_per_load, ...; then every
        metric under its own name in base units (bytes, s, hz, byte/s, %). NaN: not in the file. `attrs` holds source,
        tool, page (raw, details, summary, text), units (metric -> base unit) and notes (what was left out, and why).

    Raises
    ------
    ValueError
        For a file that is none of these, with the line and the reason.
    OSError
        For what cannot be opened.
    bwprof.errors.UnavailableError
        For a report where neither ncu nor `ncu_report` can be had: the message names the command to run elsewhere.

    Notes
    -----
    peak_gb_s is DRAM's bytes a cycle times its clock; where a page tells neither, pct_peak is ncu's own DRAM throughput
    (`dram_pct`), and a note says so. Its clock is that of the launch: the peaks of short ones differ by some 0.3 %.
    bank_conflicts and shared_wavefronts are those of loads and stores. sectors_per_load is 0 where no load was
    requested (a bulk copy requests none), and load_efficiency_pct unknown; stores likewise. flops count an instruction
    on half precision as one on a pair, as ncu's roofline does: `estimated` says where there are any.

    Examples
    --------
    >>> import bwprof.profilers
    >>> found = bwprof.profilers.parse_ncu("raw.csv")  # doctest: +SKIP
    >>> found[["case", "time_ms", "dram_gb_s", "pct_peak"]]  # doctest: +SKIP
      case   time_ms    dram_gb_s   pct_peak
    0  cpy  0.501504  4235.754467  88.031665
    """
    given = path_of(path, "path")
    if reports.is_report(given):
        launches, tool = reports.read(given, timeout_s)
    else:
        launches, tool = pages.read(given), "ncu"
    try:
        return frame(launches, str(given), tool)
    except MemoryError:
        raise wrong(given, None, "there is not enough memory for its metrics") from None
