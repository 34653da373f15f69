"""What limits a row: its share of the roof that applies, on which side of the ridge, in one word. No device here.

All of it works on plain floats, which need no NumPy, and on arrays alike: there is one rule, for a row and for a frame.
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

FLOOR_FACTOR = 3.0  # within so many empty launches it is the launch that is measured

KERNEL_SHARE = 0.5  # of the nearer roof, where both are known: below, it is the kernel that limits

ONE_ROOF_SHARE = 0.6  # of the one roof that is known: from here on the other one need not be

AT_ROOF = 0.95

ABOVE_ROOF = 1.05

ABOVE_PEAK = 1.005  # of a theoretical peak: a median is known to half a percent, and no more is possible

# What may limit; its two first ones are the sides of the ridge. Arrays hold their places, from 1 on: 0 is not known.
LIMITERS = ("memory", "compute", "latency", "kernel")

_MEMORY, _COMPUTE, _LATENCY, _KERNEL = range(1, 5)

NumberOrArray = Any  # a float, or an array of floats

Codes = Any  # an int, or an array of ints: places of words

TextOrArray = Any  # a word or None, or an array of them

_NUMBERS = (
    "time_ms",
    "timer_floor_us",
    "bytes_read",
    "bytes_written",
    "bandwidth_gb_s",
    "flops",
    "tflops",
    "arithmetic_intensity",
    "attainable_gb_s",
    "ceiling_gb_s",
    "peak_gb_s",
    "measured_tflops",
    "peak_tflops",
)

_RATES = ("measured_tflops", "peak_tflops")

_UNKNOWN = "what limits it is not known: "

_FAR = _UNKNOWN + "it is far below a stream of its bytes"

_WHY_NO_BYTES = _UNKNOWN + "its bytes are not: bytes_read= and bytes_written= say them, counters=True counts them"

_WHY_NO_ROOF = (
    _UNKNOWN + "no roof of its device is (attainable_gb_s, peak_gb_s, peak_tflops): roofs='auto' measures them"
)

_WHY_NO_STREAM = (
    _UNKNOWN + "no stream of its bytes was measured, and it is far below the peaks: roofs='auto' measures them"
)

_WHY_NO_FLOPS = _FAR + "; flops= and precision= tell how far from the arithmetic"

_WHY_NO_RATE = _FAR + ", and there is no arithmetic roof of this precision="

_WHY = (_WHY_NO_RATE, _WHY_NO_FLOPS, _WHY_NO_STREAM, _WHY_NO_ROOF, _WHY_NO_BYTES)


def ridge(peak_tflops: NumberOrArray, bandwidth_gb_s: NumberOrArray) -> NumberOrArray:
    """The ridge, FLOP/B: the arithmetic intensity at which arithmetic takes as long as memory.

    Parameters
    ----------
    peak_tflops : float or array
        Arithmetic rate, TFLOP/s: dense, of the precision in question.
    bandwidth_gb_s : float or array
        Memory bandwidth, GB/s.

    Returns
    -------
    float or array
        NaN where one of the two is.

    Raises
    ------
    ValueError
        For what is not positive, or infinite.

    Examples
    --------
    >>> round(ridge(312.0, 2039.0), 1)  # an A100 of 80 GB, FP16, as its data sheet has it
    153.0
    """
    rate = _check_numbers("peak_tflops", peak_tflops)
    bandwidth = _check_numbers("bandwidth_gb_s", bandwidth_gb_s)
    return _ratio(1e3 * rate, bandwidth)


def attainable(intensity: NumberOrArray, peak_tflops: NumberOrArray, bandwidth_gb_s: NumberOrArray) -> NumberOrArray:
    """The roofline, TFLOP/s: what an arithmetic intensity (FLOP/B) can reach under both roofs.

    Raises
    ------
    ValueError
        For a negative intensity, and for roofs that are not positive, or infinite.

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
    """The side of the ridge: "memory" left of it, "compute" from it on, None where one of the two is not known.

    Raises
    ------
    ValueError
        For a negative intensity, and for a ridge that is not positive, or infinite.

    Examples
    --------
    >>> classify(124.1, 153.0)
    'memory'
    """
    at = _check_numbers("intensity", intensity, zero=True, infinite=True)
    bend = _check_numbers("ridge", ridge)
    return _worded(_where(at < bend, _MEMORY, _where(at >= bend, _COMPUTE, 0)), LIMITERS)


def _limiter(
    memory: NumberOrArray, arithmetic: NumberOrArray, floor_share: NumberOrArray, told: Any, least: Any
) -> Codes:
    """What limits a kernel: memory, compute, latency, or the kernel itself; 0 where that cannot be told.

    Parameters
    ----------
    memory, arithmetic : float or array
        Its bandwidth over what a stream of its bytes attains, and its FLOP rate over the arithmetic roof, as fractions;
        NaN where one is not known, 0 where nothing is moved, or calculated.
    floor_share : float or array
        An empty launch's time over its own; NaN where not known.
    told, least : bool or array of bool
        As `_is_known` has them.
    """
    both = _known(memory) & _known(arithmetic) & _not(least)
    code = _where(memory >= _where(_known(arithmetic), arithmetic, 0.0), _MEMORY, _COMPUTE)
    code = _where(both & (_larger(memory, arithmetic) < KERNEL_SHARE), _KERNEL, code)
    return _where(floor_share * FLOOR_FACTOR > 1, _LATENCY, _where(told, code, 0))


def _is_known(memory: NumberOrArray, arithmetic: NumberOrArray, least: Any) -> Any:
    """Whether the share of the nearer roof is known: both shares are, or one is large enough to be the nearer one's.

    `least`: the memory share may be larger, as it is held against a roof that transfers of this size need not reach.
    """
    both = _known(memory) & _known(arithmetic) & _not(least)
    return both | (_larger(memory, arithmetic) >= ONE_ROOF_SHARE)


def position(share: NumberOrArray, side: TextOrArray) -> TextOrArray:
    """Where a kernel stands in the roofline picture, and what that asks for; None where it is not known.

    Parameters
    ----------
    share : float or array
        Its share of the roof that applies, as a fraction.
    side : str or array of str
        As `classify` has it.

    Examples
    --------
    >>> position(0.3, "memory")
    'reduce or reuse bytes'
    """
    part = _floats(share)
    sides = side if side is None or isinstance(side, str) else _numpy().asarray(side, dtype=object)
    below = _where(sides == "memory", 1, _where(sides == "compute", 2, 0))
    return _worded(_where(part >= AT_ROOF, _where(part > ABOVE_ROOF, 4, 3), _where(part >= 0, below, 0)), _POSITIONS)


_POSITIONS = (
    "reduce or reuse bytes",
    "use the arithmetic units better",
    "at the roof for this algorithm",
    "impossible: check the measurement",
)


@dataclass(frozen=True, slots=True)
class Limiter:
    """What a row's roofs say of it, or a frame's: floats and words, or arrays of them. NaN and None: not known."""

    ridge: NumberOrArray
    pct_limit: NumberOrArray
    limiter_code: Codes  # its place in LIMITERS, from 1 on
    side_code: Codes  # likewise
    why_code: Codes

    @property
    def limiter(self) -> TextOrArray:
        """What limits it."""
        return _worded(self.limiter_code, LIMITERS)

    @property
    def side(self) -> TextOrArray:
        """Of the ridge, in the row's own roofs."""
        return _worded(self.side_code, LIMITERS)

    @property
    def bound(self) -> TextOrArray:
        """ "latency", or the side of the ridge; where that is not known what limits it, near one roof."""
        near = _where(self.limiter_code <= _COMPUTE, self.limiter_code, 0)
        side = _where(self.side_code > 0, self.side_code, near)
        return _worded(_where(self.limiter_code == _LATENCY, _LATENCY, side), LIMITERS)

    @property
    def why(self) -> TextOrArray:
        """Why there is no limiter; None where there is one."""
        return _worded(self.why_code, _WHY)


def classify_row(row: Mapping[str, Any]) -> Limiter:
    """The limits of one row, which may lack any column."""
    found = {name: measured_or_nan(row.get(name)) for name in _NUMBERS}
    return classify_columns(found, hot=row.get("cache") == "hot", predicted=row.get("status") == "predicted")


def classify_frame(frame: pd.DataFrame) -> Limiter:
    """The limits of the rows of a frame, which may lack any column."""

    def holds(name: str, word: str) -> Any:
        return frame[name].isin([word]).to_numpy(bool) if name in frame.columns else _numpy().zeros(len(frame), bool)

    found = {name: read_numbers(frame, name) for name in _NUMBERS}
    return classify_columns(found, hot=holds("cache", "hot"), predicted=holds("status", "predicted"))


def read_numbers(frame: pd.DataFrame, name: str) -> Any:
    """A column as floats; NaN where it is missing, or holds no number that may have been measured."""
    import pandas as pd

    numpy = _numpy()
    nothing = numpy.full(len(frame), math.nan)
    if name not in frame.columns:
        return nothing
    try:
        read = pd.to_numeric(frame[name], errors="coerce")
    except OverflowError:  # a whole number that is none of 64 bits, nor a float
        read = frame[name].map(measured_or_nan)
    if read.dtype.kind == "c":
        return nothing
    found = read.to_numpy(float, na_value=math.nan)
    size = numpy.abs(found)
    return numpy.where((found == 0) | ((size >= 1 / MOST_MEASURED) & (size <= MOST_MEASURED)), found, math.nan)


_NO_GAIN = {
    "compute": "arithmetic limits: fewer bytes promise nothing",
    "latency": "launch latency limits: fewer bytes promise nothing",
    "kernel": "the kernel limits, far below its roofs: fewer bytes promise nothing",
}


def find_limiter(row: Mapping[str, Any]) -> str | None:
    """What limits a row: as it says, else as its columns tell; None where neither is known."""
    said = row.get("limiter") or classify_row(row).limiter
    bound = row.get("bound")  # a side of the ridge, or latency: memory's side does not say that memory limits
    return said or (bound if bound in _NO_GAIN else None)


def explain_no_gain(row: Mapping[str, Any]) -> str | None:
    """Why fewer bytes promise a row no less time; None where memory limits it, or nobody knows what does.

    Examples
    --------
    >>> no_gain({"limiter": "compute"})
    'arithmetic limits: fewer bytes promise nothing'
    """
    return _NO_GAIN.get(find_limiter(row) or "")


def find_grade(row: Mapping[str, Any]) -> tuple[float, bool] | None:
    """A finished row's grade: its share of the nearer roof in percent, and whether that is the arithmetic one.

    Where the nearer roof is not known it is the stream of its bytes; None where that is not known either.
    """
    limit, stream = measured_or_nan(row.get("pct_limit")), measured_or_nan(row.get("pct_attainable"))
    if math.isnan(limit):
        return None if math.isnan(stream) else (stream, False)
    word = row.get("limiter")
    return limit, word == "compute" or (word != "memory" and limit > stream * (1 + 1e-9))


def find_beaten(columns: Mapping[str, NumberOrArray]) -> Any:
    """Where the arithmetic is faster than the best rate that was measured, and no faster than theory: that was no roof.

    Of columns as rows have them, NaN for what is not known.
    """
    row = {name: columns.get(name, math.nan) for name in _NUMBERS}
    reached = _reached(row)
    best = row["measured_tflops"]
    return (best > 0) & (reached > ABOVE_ROOF * best) & _not(reached > row["peak_tflops"])


def find_beaten_rows(frame: pd.DataFrame) -> Any:
    """`beaten` of a frame's columns."""
    return find_beaten({name: read_numbers(frame, name) for name in ("time_ms", "flops", "tflops", *_RATES)})


def explain_beaten(row: Mapping[str, Any]) -> str | None:
    """What to say of a row that is faster than the best rate that was measured; None for any other.

    Examples
    --------
    >>> why_beaten({"tflops": 57.0, "measured_tflops": 50.0, "peak_tflops": 67.0})
    '114 % of the best arithmetic rate measured, 50 TFLOP/s: that is no roof for it (67 in theory)'
    """
    found = {name: measured_or_nan(row.get(name)) for name in _NUMBERS}
    if not find_beaten(found):
        return None
    best, theory = found["measured_tflops"], found["peak_tflops"]
    most = "" if math.isnan(theory) else f" ({theory:.4g} in theory)"
    said = f"{100 * _reached(found) / best:.0f} {_BEATEN}, {best:.4g} TFLOP/s"
    return f"{said}: that is no roof for it{most}"


_BEATEN = "% of the best arithmetic rate measured"


def _reached(row: Mapping[str, NumberOrArray]) -> NumberOrArray:
    return _first(row["tflops"], _ratio(row["flops"] * 1e-9, _where(row["time_ms"] > 0, row["time_ms"], math.nan)))


def with_limits(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with the columns `ridge`, `pct_limit` and `limiter`, filled from its own columns where they are empty.

    Any frame will do: of a run written before these columns existed, of predicted rows, of a file that others wrote
    (with the nine classic columns alone nothing is known). A row with a time whose limiter cannot be told says why not,
    in `reason`. One that beats the best arithmetic rate measured is held against that rate all the same, as every row
    of its precision is, whatever its file says (versions before took the theoretical rate): it has more than 100 %,
    and where the frame has flags, `noisy_roof`.

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
    found = classify_frame(frame)
    faster = find_beaten_rows(frame)
    made: dict[str, Any] = {}
    for name, values, anew in (("ridge", found.ridge, False), ("pct_limit", found.pct_limit, faster)):
        before = read_numbers(frame, name)
        made[name] = numpy.where(numpy.isnan(before) | anew, values, before)
    limiter, unknown = found.limiter, found.why_code > 0
    if "limiter" in frame.columns:
        told = frame["limiter"].notna().to_numpy(bool) & ~frame["limiter"].isin([""]).to_numpy(bool) & ~faster
        limiter = numpy.where(told, frame["limiter"].to_numpy(object), limiter)
        unknown &= ~told
    made["limiter"] = pd.Series(limiter, frame.index, dtype="string")
    reasons = frame["reason"].to_numpy(object, copy=True) if "reason" in frame.columns else numpy.full(len(frame), None)
    untold = numpy.flatnonzero(unknown)
    why = _worded(found.why_code[untold], _WHY)
    reasons[untold] = [_joined(before, said) for before, said in zip(reasons[untold], why, strict=True)]
    if "flags" in frame.columns and faster.any():
        flags = frame["flags"].to_numpy(object, copy=True)
        for place in numpy.flatnonzero(faster):
            said = explain_beaten(frame.iloc[place])
            flags[place], reasons[place] = _flagged(flags[place]), _joined(reasons[place], said or "", _BEATEN)
        made["flags"] = pd.Series(flags, frame.index, dtype="string")
    if len(untold) or faster.any() or "reason" in frame.columns:
        made["reason"] = pd.Series(reasons, frame.index, dtype="string")
    return frame.assign(**made)


def _joined(before: Any, why: str, mark: str = _UNKNOWN) -> str:
    """A row's reason, with why there is no limiter, say; that is said once, however often one asks."""
    if not isinstance(before, str) or not before:
        return why
    return before if mark in before else f"{before}; {why}"


def _flagged(before: Any) -> str:
    """A row's flags, with the one of a roof in doubt."""
    flags = before.split(";") if isinstance(before, str) and before else []
    return ";".join([*flags, *(["noisy_roof"] if "noisy_roof" not in flags else [])])


def classify_columns(columns: Mapping[str, NumberOrArray], *, hot: Any = False, predicted: Any = False) -> Limiter:
    """The one rule, for floats and arrays alike, of columns as rows have them (NaN, or absent: not known).

    A hot row is not held against DRAM, and has the arithmetic roof alone.
    """
    row = {name: columns.get(name, math.nan) for name in _NUMBERS}
    seconds = _where(row["time_ms"] > 0, row["time_ms"], math.nan) * 1e-3
    read, written = row["bytes_read"], row["bytes_written"]
    one = _known(read) ^ _known(written)
    moved = _where(one, row["bandwidth_gb_s"] * 1e9 * seconds, read + written)
    still, idle = moved == 0, row["flops"] == 0
    ceiling = _first(row["ceiling_gb_s"], row["peak_gb_s"])
    stream = _first(row["attainable_gb_s"], ceiling)
    rate = _first(row["measured_tflops"], row["peak_tflops"])
    bend = _where(hot, math.nan, _ratio(1e3 * rate, ceiling))
    intensity = _where(idle, 0.0, _first(row["arithmetic_intensity"], _ratio(row["flops"], moved)))
    reached = _reached(row)
    bandwidth = _first(row["bandwidth_gb_s"], _ratio(moved * 1e-9, seconds))
    memory = _where(still, 0.0, _where(hot, math.nan, _ratio(bandwidth, stream)))
    arithmetic = _where(idle, 0.0, _ratio(reached, rate))
    least = _not(_known(row["attainable_gb_s"])) & _not(still)
    timed = _known(seconds)
    told = _is_known(memory, arithmetic, least) & timed
    code = _limiter(memory, arithmetic, _ratio(row["timer_floor_us"] * 1e-6, seconds), told, least)
    # Without a time it is the roof that would take longer.
    waits = _ratio(moved * 1e-9, stream)
    works = _where(idle, 0.0, _ratio(row["flops"] * 1e-12, rate))
    ahead = predicted & _not(timed) & _not(hot) & _known(waits) & _known(works)
    code = _where(ahead, _where(waits >= works, _MEMORY, _COMPUTE), code)
    share = _where(told, 100 * _larger(memory, arithmetic), math.nan)
    side = _where((intensity < bend) | (intensity == 0), _MEMORY, _where(intensity >= bend, _COMPUTE, 0))
    return Limiter(bend, share, code, side, _why(timed & (code == 0) & _not(hot), row, memory, moved, rate))


def _why(
    asked: Any, row: Mapping[str, NumberOrArray], memory: NumberOrArray, moved: NumberOrArray, rate: NumberOrArray
) -> Codes:
    """Why nothing limits a row with a time, and what would tell: a place in _WHY."""
    exact = _known(row["attainable_gb_s"])
    anything = exact | _known(row["ceiling_gb_s"]) | _known(row["peak_gb_s"])
    said = _where(_known(row["flops"]), _WHY.index(_WHY_NO_RATE) + 1, _WHY.index(_WHY_NO_FLOPS) + 1)
    said = _where(exact, said, _WHY.index(_WHY_NO_STREAM) + 1)
    said = _where(anything | _known(rate), said, _WHY.index(_WHY_NO_ROOF) + 1)
    said = _where(_known(moved) | _known(memory), said, _WHY.index(_WHY_NO_BYTES) + 1)
    return _where(asked, said, 0)


# Floats without NumPy, and arrays: the same few steps for both.


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
    """A caller's number, or numbers; ValueError for one that is out of range, TypeError for what is none."""
    if isinstance(value, (str, bytes, bool)):
        raise TypeError(f"{name} is {repr_short(value)}: a number is needed, or an array of them")
    try:
        found = _floats(value)
    except (OverflowError, TypeError, ValueError):
        raise TypeError(f"{name} is {repr_short(value)}: a number is needed, or an array of them") from None
    bad = _outside(found, zero, infinite)
    if bad is not None:
        least = "zero or more" if zero else "more than zero"
        raise ValueError(f"{name} is {repr_short(bad)}: {least}{'' if infinite else ', and finite'}, is needed")
    return found


def _outside(found: NumberOrArray, zero: bool, infinite: bool) -> float | None:
    """The first number that is out of range."""
    if _is_one(found):
        wrong = found < 0 or (found == 0 and not zero) or (math.isinf(found) and not infinite)
        return found if wrong else None
    wrong = (found < 0) | ((found == 0) & (not zero)) | (_numpy().isinf(found) & (not infinite))
    return float(found[wrong].flat[0]) if wrong.any() else None


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


def _larger(one: NumberOrArray, other: NumberOrArray) -> NumberOrArray:
    """The larger of the two, or the one that is known."""
    return _where(_known(one) & _not(other > one), one, other)


def _ratio(part: NumberOrArray, whole: NumberOrArray) -> NumberOrArray:
    if _is_one(part) and _is_one(whole):
        return part / whole if whole > 0 else math.nan
    return part / _numpy().where(whole > 0, whole, math.nan)


def _worded(codes: Codes, words: tuple[str, ...]) -> TextOrArray:
    """Words by their places, from 1 on; None for 0."""
    table = (None, *words)
    return table[codes] if isinstance(codes, int) else _numpy().array(table, dtype=object)[codes]
