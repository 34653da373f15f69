"""How much of the memory's peak each kernel uses: a table, and two lines of one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.analysis.bandwidth import IMPOSSIBLE, BandwidthAnalysis
from bwprof.roofs.limiter import ABOVE_PEAK
from bwprof.text.formatting import format_figure, format_short
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    import pandas as pd


COLUMNS = ("Kernel", "Measured BW", "Utilization", "Status")


def utilization_table(data: Any, *, peak_gb_s: float | None = None) -> pd.DataFrame:
    """Each row's bandwidth, its share of the theoretical peak, and the word for it.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        From `bwprof.sweep`, `bwprof.load` or others.
    peak_gb_s : float, optional
        For rows that have no peak of their own.

    Returns
    -------
    pandas.DataFrame
        Columns Kernel, Measured BW, Utilization, Status (excellent above 80 % of the peak, good above 60 %, fair above
        40 %, else poor; "impossible" for what is faster than the peak, "in doubt" for what is faster than a stream of
        its bytes); "-" for what is not known, and for
        hot rows, whose bytes come out of a cache.

    Examples
    --------
    >>> row = {"case": "copy", "time_ms": 10.0, "bytes_read": 2e9, "bytes_written": 1e9, "bandwidth_gb_s": 300.0}
    >>> utilization_table(row, peak_gb_s=800.0).values.tolist()
    [['copy', '300 GB/s', '37.5 %', 'poor']]
    """
    import numpy as np
    import pandas as pd

    frame = BandwidthAnalysis.from_frame(values.as_frame(data), peak_gb_s=peak_gb_s)
    frame = frame[values.has_time(frame)]
    own = values.numbers(frame, "bandwidth_gb_s")
    seconds = values.numbers(frame, "time_ms") / 1e3
    speed = np.where(np.isnan(own), values.moved_bytes(frame) / seconds / 1e9, own)
    used = values.numbers(frame, "utilization")
    rating = values.words(frame, "rating").astype(object)
    status = np.where(values.is_above_roof(frame) & (rating != IMPOSSIBLE), "in doubt", rating)
    return pd.DataFrame(
        {
            "Kernel": values.labels(frame),
            "Measured BW": ["-" if np.isnan(one) else f"{format_figure(one, whole_from=100)} GB/s" for one in speed],
            "Utilization": ["-" if np.isnan(one) else f"{format_short(100 * one, '.1f')} %" for one in used],
            "Status": [word or "-" for word in status],
        },
        columns=list(COLUMNS),
    ).astype("string")


def speed_of_light(row: Mapping[str, Any] | pd.Series[Any]) -> str:
    """Two lines of one row: its memory and its compute throughput, each against the peak that it names.

    Examples
    --------
    >>> row = {"bandwidth_gb_s": 3747.07, "peak_gb_s": 4814.3, "tflops": 3.7459, "peak_tflops": 1070.53}
    >>> print(speed_of_light(row))
    Memory Throughput: 3747 GB/s (78% of peak 4814 GB/s)
    Compute Throughput: 3.75 TFLOPS (0.4% of peak 1071 TFLOPS)
    """
    given = values.as_row(row)
    found = {
        name: measured_or_none(given.get(name)) for name in ("bandwidth_gb_s", "peak_gb_s", "tflops", "peak_tflops")
    }
    hot = given.get("cache") == "hot"
    memory = _utilization_line(
        found["bandwidth_gb_s"], None if hot else found["peak_gb_s"], "GB/s", "bytes_read=, bytes_written="
    )
    compute = _utilization_line(found["tflops"], found["peak_tflops"], "TFLOPS", "flops=")
    if hot and found["bandwidth_gb_s"] is not None:
        memory = memory.replace("peak unknown", "hot: out of a cache, not held against memory")
    return f"Memory Throughput: {memory}\nCompute Throughput: {compute}"


def _utilization_line(reached: float | None, peak: float | None, unit: str, needed: str) -> str:
    if reached is None:
        return f"unknown (pass {needed})"
    speed = format_figure(reached, whole_from=100)
    if peak is None or peak <= 0:
        return f"{speed} {unit} (peak unknown)"
    most = format_figure(peak, whole_from=100)
    share = 100 * float(speed) / float(most) if float(speed) and float(most) else 100 * reached / peak  # as it is shown
    beyond = ", impossible: check the work, the time and the peak" if reached > ABOVE_PEAK * peak else ""
    return f"{speed} {unit} ({share:.{0 if share >= 10 else 1}f}% of peak {most} {unit}{beyond})"
