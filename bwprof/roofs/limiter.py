"""Find what limits a row: its share of the nearer roof, the side of the ridge, one word. Nothing here uses a device.

There is one rule for floats, which need no NumPy, and arrays: for a row and for a frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof.text.formatting import require_frame
from bwprof.text.parsing import MOST_MEASURED, measured_or_nan, repr_short

if TYPE_CHECKING:
    import pandas as pd

FLOOR_FACTOR = 3.0  # a time below so many empty launches is a launch latency
KERNEL_SHARE = 0.5  # below this share of the nearer of two known roofs, the kernel itself limits
ONE_ROOF_SHARE = 0.6  # from this share of the one known roof on, the other one does not matter
AT_ROOF = 0.95
ABOVE_ROOF = 1.05
ABOVE_PEAK = 1.005  # of a theoretical peak: a median is known to half a percent

# What may limit; the first two are the sides of the ridge, and rows of copies to and from the host alone say the last
# one (`measuring.operation`). Arrays hold codes: the place from 1 on, 0 for unknown.
LIMITERS = ("memory", "compute", "latency", "kernel", "link")
_MEMORY, _COMPUTE, _LATENCY, _KERNEL = range(1, 5)

NumberOrArray = Any  # a float, or an array of floats; NaN: unknown
Codes = Any  # an int, or an array of ints
TextOrArray = Any  # a word or None, or an array of them

_RATES = ("measured_tflops", "peak_tflops")
_NUMBERS = (
    *("time_ms", "timer_floor_us", "bytes_read", "bytes_written", "bandwidth_gb_s"),
    *("flops", "tflops", "arithmetic_intensity"),
    *("attainable_gb_s", "ceiling_gb_s", "peak_gb_s", *_RATES),
)

_UNKNOWN = "what limits it is not known: "
_FAR = _UNKNOWN + "it is far below a stream of its bytes"
# Why a limiter is unknown, by codes from 1 on.
_WHY = (
    _FAR + ", and there is no arithmetic roof of this precision=",
    _FAR + "; flops= and precision= tell how far from the arithmetic",
    _UNKNOWN + "no stream of its bytes was measured, and it is far below the peaks: roofs='auto' measures them",
    _UNKNOWN + "no roof of its device is (attainable_gb_s, peak_gb_s, peak_tflops): roofs='auto' measures them",
    _UNKNOWN + "its bytes are not: bytes_read= and bytes_written= say them, counters=True counts them",
)
_NO_RATE, _NO_FLOPS, _NO_STREAM, _NO_ROOF, _NO_BYTES = range(1, 6)

_BEATEN = "% of the best arithmetic rate measured"
_NO_GAIN = {
    "compute": "arithmetic limits: fewer bytes promise nothing",
    "latency": "launch latency limits: fewer bytes promise nothing",
    "kernel": "the kernel limits, far below its roofs: fewer bytes promise nothing",
}
_POSITIONS = (
    "reduce or reuse bytes",
    "use the arithmetic units better",
    "at the roof for this algorithm",
    "impossible: check the measurement",
)


def ridge(peak_tflops: NumberOrArray, bandwidth_gb_s: NumberOrArray) -> NumberOrArray:
    """Return the ridge, FLOP/B: the arithmetic intensity at which arithmetic takes as long as memory.

    Parameters
    ----------
    peak_tflops : float or array
        Dense arithmetic rate of the precision, TFLOP/s.
    bandwidth_gb_s : float or array
        Memory bandwidth, GB/s.

    Returns
    -------
    float or array
        NaN where one of the two is.

    Raises
    ------
    ValueError
        For a number that is not positive and finite.

    Examples
    --------
    >>> round(ridge(312.0, 2039.0), 1)  # data sheet of an A100 of 80 GB, FP16
    153.0
    """
    rate = _check_numbers("peak_tflops", peak_tflops)
    bandwidth = _check_numbers("bandwidth_gb_s", bandwidth_gb_s)
    return _ratio(1e3 * rate, bandwidth)


def attainable(intensity: NumberOrArray, peak_tflops: NumberOrArray, bandwidth_gb_s: NumberOrArray) -> NumberOrArray:
    """Return the roofline, TFLOP/s: what an arithmetic intensity (FLOP/B) reaches under both roofs.

    Raises
    ------
    ValueError
        For a negative intensity, and for roofs that are not positive and finite.

    Examples
    --------
    >>> attainable(1.0, 312.0, 2039.0)
    2.039
    >>> attainable(1000.0, 312.0, 2039.0)
    312.0
    """
    slope = (
        _check_numbers("intensity", intensity, zero=True, infinite=True)
        * _check_numbers("bandwidth_gb_s", bandwidth_gb_s)
        / 1e3
    )
    rate = _check_numbers("peak_tflops", peak_tflops)
    return _where(_known(slope), _where(slope < rate, slope, rate), slope)


def classify(intensity: NumberOrArray, ridge: NumberOrArray) -> TextOrArray:
    """Return the side of the ridge: "memory" left of it, "compute" from it on, None for NaN.

    Raises
    ------
    ValueError
        For a negative intensity, and for a ridge that is not positive and finite.

    Examples
    --------
    >>> classify(124.1, 153.0)
    'memory'
    """
    at = _check_numbers("intensity", intensity, zero=True, infinite=True)
    bend = _check_numbers("ridge", ridge)
    return _words(_where(at < bend, _MEMORY, _where(at >= bend, _COMPUTE, 0)), LIMITERS)


def position(share: NumberOrArray, side: TextOrArray) -> TextOrArray:
    """Return what a kernel's place in the roofline picture suggests; None where it is unknown.

    Parameters
    ----------
    share : float or array
        Its share of the roof that applies, as a fraction.
    side : str or array of str
        What `classify` returns.

    Examples
    --------
    >>> position(0.3, "memory")
    'reduce or reuse bytes'
    """
    part = _floats(share)
    sides = side if side is None or isinstance(side, str) else _numpy().asarray(side, dtype=object)
    below = _where(sides == "memory", 1, _where(sides == "compute", 2, 0))
    return _words(_where(part >= AT_ROOF, _where(part > ABOVE_ROOF, 4, 3), _where(part >= 0, below, 0)), _POSITIONS)


@dataclass(frozen=True, slots=True)
class Limiter:
    """The limits of a row, or of a frame's rows as arrays. NaN and None: unknown."""

    ridge: NumberOrArray
    pct_limit: NumberOrArray
    limiter_code: Codes  # of LIMITERS
    side_code: Codes  # of LIMITERS
    why_code: Codes  # of _WHY

    @property
    def limiter(self) -> TextOrArray:
        """What limits the row."""
        return _words(self.limiter_code, LIMITERS)

    @property
    def side(self) -> TextOrArray:
        """The side of the ridge, by the row's own roofs."""
        return _words(self.side_code, LIMITERS)

    @property
    def bound(self) -> TextOrArray:
        """ "latency", or the side of the ridge; where that is unknown, the one roof that the row is near."""
        near = _where(self.limiter_code <= _COMPUTE, self.limiter_code, 0)
        side = _where(self.side_code > 0, self.side_code, near)
        return _words(_where(self.limiter_code == _LATENCY, _LATENCY, side), LIMITERS)

    @property
    def why(self) -> TextOrArray:
        """Why the limiter is unknown; None where it is known."""
        return _words(self.why_code, _WHY)


def classify_row(row: Mapping[str, Any]) -> Limiter:
    """Return the limits of one row, which may lack any column."""
    found = {name: measured_or_nan(row.get(name)) for name in _NUMBERS}
    return classify_columns(found, hot=row.get("cache") == "hot", predicted=row.get("status") == "predicted")


def classify_frame(frame: pd.DataFrame) -> Limiter:
    """Return the limits of a frame's rows; it may lack any column."""

    def holds(name: str, word: str) -> Any:
        return frame[name].isin([word]).to_numpy(bool) if name in frame.columns else _numpy().zeros(len(frame), bool)

    found = {name: read_numbers(frame, name) for name in _NUMBERS}
    return classify_columns(found, hot=holds("cache", "hot"), predicted=holds("status", "predicted"))


def read_numbers(frame: pd.DataFrame, name: str) -> Any:
    """Return a column as floats; NaN where it is missing, or holds no number that can be measured."""
    import pandas as pd

    numpy = _numpy()
    nothing = numpy.full(len(frame), math.nan)
    if name not in frame.columns:
        return nothing
    try:
        read = pd.to_numeric(frame[name], errors="coerce")
    except OverflowError:  # an integer too large for a float
        read = frame[name].map(measured_or_nan)
    if read.dtype.kind == "c":
        return nothing
    found = read.to_numpy(float, na_value=math.nan)
    size = numpy.abs(found)
    return numpy.where((found == 0) | ((size >= 1 / MOST_MEASURED) & (size <= MOST_MEASURED)), found, math.nan)


def find_limiter(row: Mapping[str, Any]) -> str | None:
    """Return what limits a row: its column, else by its roofs; None where it is unknown."""
    bound = row.get("bound")  # the side of the ridge, or latency; the side of memory does not mean that memory limits
    return row.get("limiter") or classify_row(row).limiter or (bound if bound in _NO_GAIN else None)


def explain_no_gain(row: Mapping[str, Any]) -> str | None:
    """Return why fewer bytes do not make a row faster; None where memory limits it, or its limiter is unknown.

    Examples
    --------
    >>> explain_no_gain({"limiter": "compute"})
    'arithmetic limits: fewer bytes promise nothing'
    """
    return _NO_GAIN.get(find_limiter(row) or "")


def find_grade(row: Mapping[str, Any]) -> tuple[float, bool] | None:
    """Return a row's share of the nearer roof in percent, and whether that is the arithmetic one.

    Where the nearer roof is unknown, the share is that of a stream of its bytes; None where that is unknown too.
    """
    limit, stream = measured_or_nan(row.get("pct_limit")), measured_or_nan(row.get("pct_attainable"))
    if math.isnan(limit):
        return None if math.isnan(stream) else (stream, False)
    word = row.get("limiter")
    return limit, word == "compute" or (word != "memory" and limit > stream * (1 + 1e-9))


def find_beaten(columns: Mapping[str, NumberOrArray]) -> Any:
    """Return where the arithmetic beats the best measured rate, but not the peak: that rate is no roof."""
    row = {name: columns.get(name, math.nan) for name in _NUMBERS}
    reached = _reached(row)
    best = row["measured_tflops"]
    return (best > 0) & (reached > ABOVE_ROOF * best) & _not(reached > row["peak_tflops"])


def find_beaten_rows(frame: pd.DataFrame) -> Any:
    """Return `find_beaten` of a frame's columns."""
    return find_beaten({name: read_numbers(frame, name) for name in ("time_ms", "flops", "tflops", *_RATES)})


def explain_beaten(row: Mapping[str, Any]) -> str | None:
    """Return a note for a row that beats the best measured rate; None for any other.

    Examples
    --------
    >>> explain_beaten({"tflops": 57.0, "measured_tflops": 50.0, "peak_tflops": 67.0})
    '114 % of the best arithmetic rate measured, 50 TFLOP/s: that is no roof for it (67 in theory)'
    """
    found = {name: measured_or_nan(row.get(name)) for name in _NUMBERS}
    if not find_beaten(found):
        return None
    best, theory = found["measured_tflops"], found["peak_tflops"]
    peak = "" if math.isnan(theory) else f" ({theory:.4g} in theory)"
    return f"{100 * _reached(found) / best:.0f} {_BEATEN}, {best:.4g} TFLOP/s: that is no roof for it{peak}"


def _reached(row: Mapping[str, NumberOrArray]) -> NumberOrArray:
    return _first(row["tflops"], _ratio(row["flops"] * 1e-9, _where(row["time_ms"] > 0, row["time_ms"], math.nan)))


def with_limits(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the columns `ridge`, `pct_limit` and `limiter`, computed where they are empty.

    The frame may be of any run, prediction or other file. `reason` says why a limiter is unknown. A row that beats the
    best measured arithmetic rate has more than 100 % of it, whatever its columns say, and, where the frame has flags,
    `noisy_roof`.

    Raises
    ------
    TypeError
        For what is no DataFrame.
    ValueError
        For two columns of one name.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"time_ms": 1.0, "bandwidth_gb_s": 900.0, "attainable_gb_s": 1000.0, "flops": 0}
    >>> with_limits(pd.DataFrame([row]))[["pct_limit", "limiter"]].values.tolist()
    [[90.0, 'memory']]
    """
    import pandas as pd

    frame = require_frame(frame)
    numpy = _numpy()
    found, faster = classify_frame(frame), find_beaten_rows(frame)
    ridges, shares = read_numbers(frame, "ridge"), read_numbers(frame, "pct_limit")
    columns: dict[str, Any] = {
        "ridge": numpy.where(numpy.isnan(ridges), found.ridge, ridges),
        "pct_limit": numpy.where(numpy.isnan(shares) | faster, found.pct_limit, shares),
    }
    limiter, unknown = found.limiter, found.why_code > 0
    if "limiter" in frame.columns:
        filled = frame["limiter"].notna().to_numpy(bool) & ~frame["limiter"].isin([""]).to_numpy(bool) & ~faster
        limiter = numpy.where(filled, frame["limiter"].to_numpy(object), limiter)
        unknown &= ~filled
    columns["limiter"] = pd.Series(limiter, frame.index, dtype="string")
    reasons = frame["reason"].to_numpy(object, copy=True) if "reason" in frame.columns else numpy.full(len(frame), None)
    for place, why in zip(numpy.flatnonzero(unknown), _words(found.why_code[unknown], _WHY), strict=True):
        reasons[place] = _add_reason(reasons[place], why, _UNKNOWN)
    if "flags" in frame.columns and faster.any():
        flags = frame["flags"].to_numpy(object, copy=True)
        for place in numpy.flatnonzero(faster):
            before = flags[place].split(";") if isinstance(flags[place], str) and flags[place] else []
            flags[place] = ";".join(dict.fromkeys([*before, "noisy_roof"]))
            reasons[place] = _add_reason(reasons[place], explain_beaten(frame.iloc[place]) or "", _BEATEN)
        columns["flags"] = pd.Series(flags, frame.index, dtype="string")
    if unknown.any() or faster.any() or "reason" in frame.columns:
        columns["reason"] = pd.Series(reasons, frame.index, dtype="string")
    return frame.assign(**columns)


def _add_reason(before: Any, why: str, mark: str) -> str:
    """Append to a row's reason, unless the mark is in it."""
    if not isinstance(before, str) or not before:
        return why
    return before if mark in before else f"{before}; {why}"


def classify_columns(columns: Mapping[str, NumberOrArray], *, hot: Any = False, predicted: Any = False) -> Limiter:
    """Return the limits of rows from their columns: floats or arrays, NaN or missing where unknown.

    A hot row has the arithmetic roof alone.
    """
    row = {name: columns.get(name, math.nan) for name in _NUMBERS}
    seconds = _where(row["time_ms"] > 0, row["time_ms"], math.nan) * 1e-3
    read, written = row["bytes_read"], row["bytes_written"]
    one_known = _known(read) ^ _known(written)
    moved = _where(one_known, row["bandwidth_gb_s"] * 1e9 * seconds, read + written)
    no_bytes, no_flops = moved == 0, row["flops"] == 0
    ceiling = _first(row["ceiling_gb_s"], row["peak_gb_s"])
    stream = _first(row["attainable_gb_s"], ceiling)
    rate = _first(row["measured_tflops"], row["peak_tflops"])
    bend = _where(hot, math.nan, _ratio(1e3 * rate, ceiling))
    intensity = _where(no_flops, 0.0, _first(row["arithmetic_intensity"], _ratio(row["flops"], moved)))
    bandwidth = _first(row["bandwidth_gb_s"], _ratio(moved * 1e-9, seconds))
    # Shares of both roofs: 0 where nothing is moved or calculated.
    memory = _where(no_bytes, 0.0, _where(hot, math.nan, _ratio(bandwidth, stream)))
    arithmetic = _where(no_flops, 0.0, _ratio(_reached(row), rate))
    nearer = _where(_known(memory) & _not(arithmetic > memory), memory, arithmetic)
    # Without a stream of its size, the memory share is only a lower bound: small transfers need not reach the ceiling.
    exact = _known(row["attainable_gb_s"]) | no_bytes
    both = _known(memory) & _known(arithmetic) & exact
    timed = _known(seconds)
    known = timed & (both | (nearer >= ONE_ROOF_SHARE))
    code = _where(memory >= _where(_known(arithmetic), arithmetic, 0.0), _MEMORY, _COMPUTE)
    code = _where(both & (nearer < KERNEL_SHARE), _KERNEL, code)
    floor_share = _ratio(row["timer_floor_us"] * 1e-6, seconds)
    code = _where(floor_share * FLOOR_FACTOR > 1, _LATENCY, _where(known, code, 0))
    # A prediction without a time is limited by the roof that takes longer.
    memory_seconds = _ratio(moved * 1e-9, stream)
    arithmetic_seconds = _where(no_flops, 0.0, _ratio(row["flops"] * 1e-12, rate))
    ahead = predicted & _not(timed) & _not(hot) & _known(memory_seconds) & _known(arithmetic_seconds)
    code = _where(ahead, _where(memory_seconds >= arithmetic_seconds, _MEMORY, _COMPUTE), code)
    share = _where(known, 100 * nearer, math.nan)
    side = _where((intensity < bend) | (intensity == 0), _MEMORY, _where(intensity >= bend, _COMPUTE, 0))
    why = _where(timed & (code == 0) & _not(hot), _find_why(row, memory, moved, rate), 0)
    return Limiter(bend, share, code, side, why)


def _find_why(
    row: Mapping[str, NumberOrArray], memory: NumberOrArray, moved: NumberOrArray, rate: NumberOrArray
) -> Codes:
    """Return why no limiter of a timed row is known: a code of _WHY."""
    stream = _known(row["attainable_gb_s"])
    any_roof = stream | _known(row["ceiling_gb_s"]) | _known(row["peak_gb_s"]) | _known(rate)
    why = _where(_known(row["flops"]), _NO_RATE, _NO_FLOPS)
    why = _where(stream, why, _NO_STREAM)
    why = _where(any_roof, why, _NO_ROOF)
    return _where(_known(moved) | _known(memory), why, _NO_BYTES)


# The same few steps for floats, without NumPy, and arrays.


def _numpy() -> Any:
    import numpy

    return numpy


def _is_one(value: Any) -> bool:
    return isinstance(value, (bool, float))


def _floats(value: Any) -> NumberOrArray:
    if value is None:
        return math.nan
    if isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "ndim", None) == 0):
        return float(value)
    return _numpy().asarray(value, dtype=float)


def _check_numbers(name: str, value: Any, *, zero: bool = False, infinite: bool = False) -> NumberOrArray:
    """Return a caller's number or numbers as floats; ValueError for one out of range, TypeError for anything else."""
    try:
        found = _floats(value)
    except (OverflowError, TypeError, ValueError):
        found = None
    if found is None or isinstance(value, (str, bytes, bool)):
        raise TypeError(f"{name} is {repr_short(value)}: a number is needed, or an array of them")
    wrong = (found < 0) | ((found == 0) & (not zero)) | ((abs(found) == math.inf) & (not infinite))
    bad = found[wrong].tolist() if not _is_one(found) else [found] if wrong else []
    if bad:
        least = "zero or more" if zero else "more than zero"
        raise ValueError(f"{name} is {repr_short(bad[0])}: {least}{'' if infinite else ', and finite'}, is needed")
    return found


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, bool):
        return yes if condition else no
    return _numpy().where(condition, yes, no)


def _not(condition: Any) -> Any:
    return not condition if isinstance(condition, bool) else ~condition


def _known(value: NumberOrArray) -> Any:
    return not math.isnan(value) if _is_one(value) else ~_numpy().isnan(value)


def _first(value: NumberOrArray, other: NumberOrArray) -> NumberOrArray:
    return _where(_known(value), value, other)


def _ratio(part: NumberOrArray, whole: NumberOrArray) -> NumberOrArray:
    if _is_one(part) and _is_one(whole):
        return part / whole if whole > 0 else math.nan
    return part / _numpy().where(whole > 0, whole, math.nan)


def _words(codes: Codes, words: tuple[str, ...]) -> TextOrArray:
    """Return the words of codes; None for 0."""
    table = (None, *words)
    return table[codes] if isinstance(codes, int) else _numpy().array(table, dtype=object)[codes]
