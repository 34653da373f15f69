"""What limits a row: its share of the roof that applies, on which side of the ridge, in one word. No device here.

All of it works on plain floats, which need no NumPy, and on arrays alike: there is one rule, for a row and for a frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof.results.schema import check_frame
from bwprof.text import MOST_MEASURED, measurable, shown

if TYPE_CHECKING:
    import pandas as pd

FLOOR_FACTOR = 3.0  # within so many empty launches it is the launch that is measured
KERNEL_SHARE = 0.5  # of the nearer roof, where both are known: below, it is the kernel that limits
ONE_ROOF_SHARE = 0.6  # of the one roof that is known: from here on the other one need not be
AT_ROOF = 0.95
ABOVE_ROOF = 1.05

Numbers = Any  # a float, or an array of floats
Words = Any  # a word or None, or an array of them

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


def ridge(peak_tflops: Numbers, bandwidth_gb_s: Numbers) -> Numbers:
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
    rate = _given("peak_tflops", peak_tflops)
    bandwidth = _given("bandwidth_gb_s", bandwidth_gb_s)
    return _ratio(1e3 * rate, bandwidth)


def attainable(intensity: Numbers, peak_tflops: Numbers, bandwidth_gb_s: Numbers) -> Numbers:
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
    slope = _given("intensity", intensity, zero=True, infinite=True) * _given("bandwidth_gb_s", bandwidth_gb_s) / 1e3
    rate = _given("peak_tflops", peak_tflops)
    return _where(_known(slope), _where(slope < rate, slope, rate), slope)


def classify(intensity: Numbers, ridge: Numbers) -> Words:
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
    at = _given("intensity", intensity, zero=True, infinite=True)
    bend = _given("ridge", ridge)
    return _words(_where(at < bend, "memory", _where(at >= bend, "compute", "")))


def limiter(
    memory_share: Numbers, arithmetic_share: Numbers, floor_share: Numbers = math.nan, *, least: Any = False
) -> Words:
    """What limits a kernel: memory, compute, latency, or the kernel itself; None where that cannot be told.

    Parameters
    ----------
    memory_share, arithmetic_share : float or array
        Its bandwidth over what a stream of its bytes attains, and its FLOP rate over the arithmetic roof, as fractions;
        NaN where one is not known, 0 where nothing is moved, or calculated.
    floor_share : float or array
        An empty launch's time over its own; NaN where not known.
    least : bool or array of bool
        The memory share may be larger: it is held against a roof that transfers of this size need not reach.
    """
    memory, arithmetic, floor = _floats(memory_share), _floats(arithmetic_share), _floats(floor_share)
    nearer = _larger(memory, arithmetic)
    both = _known(memory) & _known(arithmetic) & _not(least)
    word = _where(memory >= _where(_known(arithmetic), arithmetic, 0.0), "memory", "compute")
    word = _where(both & (nearer < KERNEL_SHARE), "kernel", word)
    told = is_told(memory, arithmetic, least=least)
    return _words(_where(floor * FLOOR_FACTOR > 1, "latency", _where(told, word, "")))


def is_told(memory_share: Numbers, arithmetic_share: Numbers, *, least: Any = False) -> Any:
    """Whether the share of the nearer roof is known: both shares are, or one is large enough to be the nearer one's.

    Parameters as those of `limiter`; a bool, or an array of them.

    Examples
    --------
    >>> is_told(0.3, 0.1), is_told(0.3, math.nan), is_told(0.9, math.nan)
    (True, False, True)
    """
    memory, arithmetic = _floats(memory_share), _floats(arithmetic_share)
    both = _known(memory) & _known(arithmetic) & _not(least)
    return both | (_larger(memory, arithmetic) >= ONE_ROOF_SHARE)


def position(share: Numbers, side: Words) -> Words:
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
    below = _where(sides == "compute", "use the arithmetic units better", "")
    below = _where(sides == "memory", "reduce or reuse bytes", below)
    found = _where(part > ABOVE_ROOF, "impossible: check the measurement", "at the roof for this algorithm")
    return _words(_where(part >= AT_ROOF, found, _where(part >= 0, below, "")))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a row's roofs say of it, or a frame's: floats and words, or arrays of them. NaN and None: not known."""

    ridge: Numbers
    pct_limit: Numbers
    limiter: Words
    side: Words  # of the ridge, in the row's own roofs
    why: Words  # there is no limiter

    @property
    def bound(self) -> str | None:
        """Of one row: "latency", or the side of the ridge; where that is not known what limits it, near one roof."""
        if self.limiter == "latency":
            return "latency"
        return self.side or (self.limiter if self.limiter in ("memory", "compute") else None)


def of_row(row: Mapping[str, Any]) -> Limits:
    """The limits of one row, which may lack any column."""
    found = {name: _number(row.get(name)) for name in _NUMBERS}
    return _limits(found, hot=row.get("cache") == "hot", predicted=row.get("status") == "predicted")


def graded(row: Mapping[str, Any]) -> tuple[float, bool] | None:
    """A finished row's grade: its share of the nearer roof in percent, and whether that is the arithmetic one.

    Where the nearer roof is not known it is the stream of its bytes; None where that is not known either.
    """
    limit, stream = _number(row.get("pct_limit")), _number(row.get("pct_attainable"))
    if math.isnan(limit):
        return None if math.isnan(stream) else (stream, False)
    word = row.get("limiter")
    return limit, word == "compute" or (word != "memory" and limit > stream * (1 + 1e-9))


def with_limits(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with the columns `ridge`, `pct_limit` and `limiter`, filled from its own columns where they are empty.

    Any frame will do: of a run written before these columns existed, of predicted rows, of a file that others wrote
    (with the nine classic columns alone nothing is known). A row with a time whose limiter cannot be told says why not,
    in `reason`.

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

    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"a pandas.DataFrame is needed, not {type(frame).__name__}; bwprof.load reads one from a file")
    check_frame(frame)
    numpy = _numpy()

    def numbers(name: str) -> Any:
        return numbers_of(frame, name)

    def holds(name: str, word: str) -> Any:
        return frame[name].isin([word]).to_numpy(bool) if name in frame.columns else numpy.zeros(len(frame), bool)

    limits = _limits({name: numbers(name) for name in _NUMBERS}, holds("cache", "hot"), holds("status", "predicted"))
    made: dict[str, Any] = {}
    for name, values in (("ridge", limits.ridge), ("pct_limit", limits.pct_limit)):
        before = numbers(name)
        made[name] = numpy.where(numpy.isnan(before), values, before)
    limiter, why = limits.limiter, limits.why
    if "limiter" in frame.columns:
        told = frame["limiter"].notna().to_numpy(bool) & ~holds("limiter", "")
        limiter = numpy.where(told, frame["limiter"].to_numpy(object), limiter)
        why = numpy.where(told, None, why)
    made["limiter"] = pd.Series(limiter, frame.index, dtype="string")
    reasons = frame["reason"].to_numpy(object, copy=True) if "reason" in frame.columns else numpy.full(len(frame), None)
    untold = numpy.flatnonzero(numpy.not_equal(why, None).astype(bool))
    reasons[untold] = [_joined(before, said) for before, said in zip(reasons[untold], why[untold], strict=True)]
    if len(untold) or "reason" in frame.columns:
        made["reason"] = pd.Series(reasons, frame.index, dtype="string")
    return frame.assign(**made)


def numbers_of(frame: pd.DataFrame, name: str) -> Any:
    """A column as floats; NaN where it is missing, or holds no number that may have been measured."""
    import pandas as pd

    numpy = _numpy()
    nothing = numpy.full(len(frame), math.nan)
    if name not in frame.columns:
        return nothing
    try:
        read = pd.to_numeric(frame[name], errors="coerce")
    except OverflowError:  # a whole number that is none of 64 bits, nor a float
        read = frame[name].map(_number)
    if read.dtype.kind == "c":
        return nothing
    found = read.to_numpy(float, na_value=math.nan)
    size = numpy.abs(found)
    return numpy.where((found == 0) | ((size >= 1 / MOST_MEASURED) & (size <= MOST_MEASURED)), found, math.nan)


def _joined(before: Any, why: str) -> str:
    """A row's reason, with why there is no limiter; that is said once, however often one asks."""
    if not isinstance(before, str) or not before:
        return why
    return before if _UNKNOWN in before else f"{before}; {why}"


def _limits(row: Mapping[str, Numbers], hot: Any, predicted: Any) -> Limits:
    """The one rule. A hot row is not held against DRAM, and has the arithmetic roof alone."""
    seconds = _where(row["time_ms"] > 0, row["time_ms"], math.nan) * 1e-3
    moved = _where(
        _known(row["bytes_read"]) | _known(row["bytes_written"]),
        _first(row["bytes_read"], 0.0) + _first(row["bytes_written"], 0.0),
        math.nan,
    )
    ceiling = _first(row["ceiling_gb_s"], row["peak_gb_s"])
    stream = _first(row["attainable_gb_s"], ceiling)
    rate = _first(row["measured_tflops"], row["peak_tflops"])
    bend = _where(hot, math.nan, _ratio(1e3 * rate, ceiling))
    intensity = _where(row["flops"] == 0, 0.0, _first(row["arithmetic_intensity"], _ratio(row["flops"], moved)))
    reached = _first(row["tflops"], _ratio(row["flops"] * 1e-12, seconds))
    # What a row beats was no roof: then it is the theoretical rate that holds.
    rate = _where((reached > ABOVE_ROOF * rate) & (row["peak_tflops"] > rate), row["peak_tflops"], rate)
    bandwidth = _first(row["bandwidth_gb_s"], _ratio(moved * 1e-9, seconds))
    memory = _where(moved == 0, 0.0, _where(hot, math.nan, _ratio(bandwidth, stream)))
    arithmetic = _where(row["flops"] == 0, 0.0, _ratio(reached, rate))
    least = _not(_known(row["attainable_gb_s"])) & _not(moved == 0)
    timed = _known(seconds)
    word = limiter(
        _where(timed, memory, math.nan),
        _where(timed, arithmetic, math.nan),
        _ratio(row["timer_floor_us"] * 1e-6, seconds),
        least=least,
    )
    # Without a time it is the roof that would take longer.
    waits = _ratio(moved * 1e-9, stream)
    works = _where(row["flops"] == 0, 0.0, _ratio(row["flops"] * 1e-12, rate))
    ahead = predicted & _not(timed) & _not(hot) & _known(waits) & _known(works)
    word = _where(ahead, _words(_where(waits >= works, "memory", "compute")), word)
    nothing_told = timed & _is_none(word)
    nearer = _where(timed, _larger(memory, arithmetic), math.nan)
    share = _where(is_told(memory, arithmetic, least=least) & timed, 100 * nearer, math.nan)
    side = _side(intensity, bend)
    return Limits(bend, share, word, side, _why(nothing_told, hot, row, memory, moved, rate))


def _side(intensity: Numbers, bend: Numbers) -> Words:
    return _words(_where((intensity < bend) | (intensity == 0), "memory", _where(intensity >= bend, "compute", "")))


def _why(asked: Any, hot: Any, row: Mapping[str, Numbers], memory: Numbers, moved: Numbers, rate: Numbers) -> Words:
    """Why nothing limits a row with a time, and what would tell; nothing is said of a hot one."""
    exact = _known(row["attainable_gb_s"])
    anything = _known(row["attainable_gb_s"]) | _known(row["ceiling_gb_s"]) | _known(row["peak_gb_s"])
    said = _where(_known(row["flops"]), _WHY_NO_RATE, _WHY_NO_FLOPS)
    said = _where(exact, said, _WHY_NO_STREAM)
    said = _where(anything | _known(rate), said, _WHY_NO_ROOF)
    said = _where(_known(moved) | _known(memory), said, _WHY_NO_BYTES)
    return _words(_where(asked & _not(hot), said, ""))


# Floats without NumPy, and arrays: the same few steps for both.


def _numpy() -> Any:
    import numpy

    return numpy


def _is_one(value: Any) -> bool:
    return isinstance(value, (bool, float))


def _number(value: Any) -> float:
    """A row's value as a float; NaN for what is missing, or is no finite number."""
    found = measurable(value)
    return math.nan if found is None else found


def _floats(value: Any) -> Numbers:
    if value is None:
        return math.nan
    if isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "ndim", None) == 0):
        return float(value)
    return _numpy().asarray(value, dtype=float)


def _given(name: str, value: Any, *, zero: bool = False, infinite: bool = False) -> Numbers:
    """A caller's number, or numbers; ValueError for one that is out of range, TypeError for what is none."""
    if isinstance(value, (str, bytes, bool)):
        raise TypeError(f"{name} is {shown(value)}: a number is needed, or an array of them")
    try:
        found = _floats(value)
    except (OverflowError, TypeError, ValueError):
        raise TypeError(f"{name} is {shown(value)}: a number is needed, or an array of them") from None
    bad = _outside(found, zero, infinite)
    if bad is not None:
        least = "zero or more" if zero else "more than zero"
        raise ValueError(f"{name} is {shown(bad)}: {least}{'' if infinite else ', and finite'}, is needed")
    return found


def _outside(found: Numbers, zero: bool, infinite: bool) -> float | None:
    """The first number that is out of range."""
    if _is_one(found):
        wrong = found < 0 or (found == 0 and not zero) or (math.isinf(found) and not infinite)
        return found if wrong else None
    wrong = (found < 0) | ((found == 0) & (not zero)) | (_numpy().isinf(found) & (not infinite))
    return float(found[wrong].flat[0]) if wrong.any() else None


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, bool):
        return yes if condition else no
    numpy = _numpy()
    # Texts as objects: an array of its own would give each the room of the longest.
    given = [numpy.asarray(value, dtype=object) if isinstance(value, str) else value for value in (yes, no)]
    return numpy.where(condition, *given)


def _not(condition: Any) -> Any:
    return not condition if isinstance(condition, bool) else ~condition


def _known(value: Numbers) -> Any:
    return not math.isnan(value) if _is_one(value) else ~_numpy().isnan(value)


def _first(value: Numbers, other: Numbers) -> Numbers:
    return _where(_known(value), value, other)


def _larger(one: Numbers, other: Numbers) -> Numbers:
    """The larger of the two, or the one that is known."""
    return _where(_known(one) & _not(other > one), one, other)


def _ratio(part: Numbers, whole: Numbers) -> Numbers:
    if _is_one(part) and _is_one(whole):
        return part / whole if whole > 0 else math.nan
    return part / _numpy().where(whole > 0, whole, math.nan)


def _words(found: Any) -> Words:
    """Words as callers see them: None for ""."""
    if isinstance(found, str):
        return found or None
    words = found.astype(object)
    words[found == ""] = None
    return words


def _is_none(words: Words) -> Any:
    return words is None if words is None or isinstance(words, str) else _numpy().equal(words, None).astype(bool)
