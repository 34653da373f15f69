"""`BandwidthAnalysis`: how well a transfer uses the memory, of one row and of whole frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.analysis.values import as_frame, as_row, is_word, limiter_columns, moved_bytes, numbers, word_codes, words
from bwprof.registry import check_precision
from bwprof.roofs.limiter import ABOVE_PEAK, ABOVE_ROOF, KERNEL_SHARE, classify, classify_row, ridge
from bwprof.text.formatting import format_short
from bwprof.text.parsing import describe_unknown, measured_or_none, parse_bytes, repr_short

if TYPE_CHECKING:
    import pandas as pd

GOOD, EXCELLENT, FAIR = 0.60, 0.80, 0.40

AT_ROOF = 0.90

BOUNDS = ("memory", "compute", "latency")

IMPOSSIBLE = "impossible"

RATINGS = ("poor", "fair", "good", "excellent", IMPOSSIBLE)

_LEAST = (FAIR, GOOD, EXCELLENT, ABOVE_PEAK)  # of the ratings from the second on

# Of kernels' figures the means over time: the attribute, the column, and what makes one of the other.
_SHARES = (
    ("l2_hit_rate", "l2_hit_rate", 1.0),
    ("l2_hit_rate", "l2_hit_pct", 0.01),
    ("stall_pct", "stall_pct", 1.0),
    ("stall_pct", "mem_unit_stalled_pct", 1.0),
    ("peak_tflops", "peak_tflops", 1.0),
)

# What hypotheses of `bwprof.diagnose` say of the bound.
_BOUND_OF = {"memory_bound": "memory", "compute_bound": "compute", "launch_bound": "latency"}

_LATENCY = "launch latency, not memory: batch or fuse"

_AT_MEMORY_ROOF = "at the memory roof: only fewer bytes help"


@dataclass(frozen=True, slots=True)
class BandwidthAnalysis:
    """What one transfer makes of the memory's bandwidth.

    Attributes
    ----------
    bytes_read, bytes_written : int
        What it must move.
    duration_s, peak_gb_s : float
        How long it took, and the memory's theoretical bandwidth (a GB is 10^9 bytes).
    attainable_gb_s : float, optional
        What a plain stream of the same bytes reaches.
    flops, peak_tflops, measured_tflops : optional
        Its floating-point operations, the arithmetic peak of its precision, and the best rate measured in it.
    l2_hit_rate : float, optional
        0 to 1.
    stall_pct : float, optional
        Share of the time that memory units were stalled, 0 to 100.
    bound : str, optional
        "memory", "compute" or "latency"; found from the intensity where it is left out and the roofs are known.
    label : str
        What it is called.
    precision : str, optional
        Of its arithmetic.

    Raises
    ------
    ValueError
        For a duration or a bandwidth that is not positive, and whatever else cannot be.

    Examples
    --------
    >>> analysis = BandwidthAnalysis.from_operation(2_000_000_000, 1_000_000_000, 0.01, 800.0)
    >>> analysis.bandwidth_gb_s, analysis.utilization, analysis.rating
    (300.0, 0.375, 'poor')
    """

    bytes_read: int
    bytes_written: int
    duration_s: float
    peak_gb_s: float
    attainable_gb_s: float | None = None
    flops: int | None = None
    peak_tflops: float | None = None
    l2_hit_rate: float | None = None
    stall_pct: float | None = None
    bound: str | None = None
    label: str = ""
    measured_tflops: float | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        for name in ("bytes_read", "bytes_written", "flops"):
            value = getattr(self, name)
            if isinstance(value, float) and value.is_integer():  # a column with missing values makes floats of ints
                value = int(value)
            if value is not None or name != "flops":
                _set(self, name, parse_bytes(value, name))
        for name in ("duration_s", "peak_gb_s", "attainable_gb_s", "peak_tflops", "measured_tflops"):
            value = getattr(self, name)
            if value is not None or name in ("duration_s", "peak_gb_s"):
                _set(self, name, _positive(value, name))
        for name, most in (("l2_hit_rate", 1.0), ("stall_pct", 100.0)):
            value = getattr(self, name)
            if value is not None:
                _set(self, name, _share(value, name, most))
        if self.bound is not None and self.bound not in BOUNDS:
            raise ValueError(describe_unknown("bound", self.bound, BOUNDS))
        if self.precision is not None:
            check_precision(self.precision)

    @classmethod
    def from_operation(
        cls, bytes_read: int, bytes_written: int, duration_s: float, peak_gb_s: float, **optional: Any
    ) -> BandwidthAnalysis:
        """Of bytes, seconds and the peak in GB/s; `optional` are the other attributes."""
        allowed = [field.name for field in fields(cls)][4:]
        for name in optional:
            if name not in allowed:
                raise ValueError(describe_unknown("argument", name, allowed))
        return cls(bytes_read, bytes_written, duration_s, peak_gb_s, **optional)

    @classmethod
    def from_row(cls, row: Mapping[str, Any] | pd.Series[Any], *, peak_gb_s: float | None = None) -> BandwidthAnalysis:
        """Of one row of a frame, or a `bwprof.Row`.

        Parameters
        ----------
        row : mapping or pandas.Series
            Any columns of `bwprof.columns()`.
        peak_gb_s : float, optional
            For a row that has no peak of its own.

        Raises
        ------
        ValueError
            For a row without bytes, time or peak, and for a hot one, whose bytes came out of a cache.
        """
        found = as_row(row)
        if found.get("cache") == "hot":
            raise ValueError("cache is 'hot': its bytes came out of a cache; only a cold row is held against memory")
        time_ms, read, written = (
            measured_or_none(found.get(name)) for name in ("time_ms", "bytes_read", "bytes_written")
        )
        peak = measured_or_none(found.get("peak_gb_s")) if peak_gb_s is None else peak_gb_s
        if read is None and written is None:
            raise ValueError("bytes_read and bytes_written are missing: pass them, or count them (counters=True)")
        if time_ms is None:
            raise ValueError("time_ms is missing: only a row with a time has a bandwidth")
        if peak is None:
            raise ValueError(
                "peak_gb_s is missing: pass peak_gb_s=, the memory's theoretical bandwidth in GB/s (the share of "
                "a measured stream needs none: it is the row's pct_attainable)"
            )
        flops, words = (
            measured_or_none(found.get("flops")),
            (found.get("case") or found.get("operation"), found.get("precision")),
        )
        bound = found.get("bound") if found.get("bound") in BOUNDS else None
        limits = classify_row(found)
        return cls(
            int(read or 0),
            int(written or 0),
            _positive(time_ms, "time_ms") / 1e3,
            _positive(peak, "peak_gb_s"),
            attainable_gb_s=measured_or_none(found.get("attainable_gb_s")),
            flops=None if flops is None else int(flops),
            peak_tflops=measured_or_none(found.get("peak_tflops")),
            l2_hit_rate=measured_or_none(found.get("l2_hit_rate")),
            stall_pct=measured_or_none(found.get("stall_pct")),
            bound=bound or limits.bound,
            label=" ".join(str(word) for word in words if isinstance(word, str) and word),
            measured_tflops=measured_or_none(found.get("measured_tflops")),
        )

    @classmethod
    def from_profiling_results(
        cls, results: Any, duration_s: float | None, peak_gb_s: float, **optional: Any
    ) -> BandwidthAnalysis:
        """Of what a profiler counted (rocprof, ncu): bytes moved, L2 hit rate and memory stalls over all kernels.

        Parameters
        ----------
        results : object
            A frame of launches in bwprof's columns (bytes_read or dram_bytes_read, ..., time_ms; flops; l2_hit_rate or
            l2_hit_pct, stall_pct or mem_unit_stalled_pct), as `bwprof.importers` reads them; one row of it, a list of
            rows, or what has such a `frame`.
        duration_s : float, optional
            None: the sum of the kernels' own times.
        peak_gb_s : float
            The memory's theoretical bandwidth, GB/s.
        **optional
            The other attributes. `precision` gives the arithmetic peak of a device of the catalogue. A bound that FLOPs
            and arithmetic peak do not tell is what `bwprof.diagnose` says of the longest launch.

        Raises
        ------
        ValueError
            When no bytes were counted, or no time is known.
        """
        data = as_frame(getattr(results, "frame", results), "results")
        moved = {}
        for name in ("bytes_read", "bytes_written"):
            counted = numbers(data, f"dram_{name}")
            found = counted if (counted >= 0).any() else numbers(data, name)
            if not (found >= 0).any():
                raise ValueError(f"results hold no {name}: count it (rocprof FetchSize, WriteSize; ncu dram__bytes_*)")
            moved[name] = int(found[found >= 0].sum())
        times = numbers(data, "time_ms")
        if duration_s is None:
            if not (times > 0).any():
                raise ValueError("duration_s is None, and results hold no time_ms: pass it (rocprof: --timestamp on)")
            duration_s = float(times[times > 0].sum()) / 1e3
        flops, longest = numbers(data, "flops"), data.iloc[[int((-times).argsort(kind="stable")[0])]]
        if (flops >= 0).all():
            optional.setdefault("flops", int(flops.sum()))
        for name, column, scale in _SHARES:
            value = _mean(scale * numbers(data, column), times)
            if value is not None:
                optional.setdefault(name, value)
        if optional.get("precision") is not None and "peak_tflops" not in optional:
            optional["peak_tflops"] = _rate(str(words(longest, "device").iloc[0]), optional["precision"])
        made = cls(moved["bytes_read"], moved["bytes_written"], duration_s, peak_gb_s, **optional)
        if made.found_bound is None:
            _set(made, "bound", _diagnosed(longest.assign(peak_gb_s=made.peak_gb_s)))
        return made

    @staticmethod
    def from_frame(data: pd.DataFrame, *, peak_gb_s: float | None = None) -> pd.DataFrame:
        """A frame with the columns utilization (0 to 1 of the peak), efficiency (0 to 1 of the attainable), rating and
        bottleneck (`bottleneck_description` of each row).

        Parameters
        ----------
        data : pandas.DataFrame
            From `bwprof.sweep`, `bwprof.load` or others: what is missing leaves NaN. Hot rows are not held against
            memory.
        peak_gb_s : float, optional
            For rows that have no peak of their own.

        Examples
        --------
        >>> import pandas as pd
        >>> row = {"time_ms": 10.0, "bytes_read": 2_000_000_000, "bytes_written": 1_000_000_000, "peak_gb_s": 800.0}
        >>> BandwidthAnalysis.from_frame(pd.DataFrame([row]))[["utilization", "rating"]].values.tolist()
        [[0.375, 'poor']]
        """
        return _from_frame(as_frame(data), None if peak_gb_s is None else _positive(peak_gb_s, "peak_gb_s"))

    @property
    def bytes_total(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def bandwidth_gb_s(self) -> float:
        """Bytes over time, in GB/s."""
        return self.bytes_total / self.duration_s / 1e9

    @property
    def utilization(self) -> float:
        """0 to 1 of the peak."""
        return self.bandwidth_gb_s / self.peak_gb_s

    @property
    def efficiency(self) -> float | None:
        """0 to 1 of what a plain stream of the same bytes reaches; None where that is not known."""
        return None if self.attainable_gb_s is None else self.bandwidth_gb_s / self.attainable_gb_s

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOP per byte; None without FLOPs, or bytes."""
        return None if self.flops is None or not self.bytes_total else self.flops / self.bytes_total

    @property
    def tflops(self) -> float | None:
        """TFLOP/s; None without FLOPs."""
        return None if self.flops is None else self.flops / self.duration_s / 1e12

    def is_good(self) -> bool:
        """More than 60 % of the peak, and not impossible."""
        return GOOD < self.utilization <= ABOVE_PEAK

    def is_excellent(self) -> bool:
        """More than 80 % of the peak, and not impossible."""
        return EXCELLENT < self.utilization <= ABOVE_PEAK

    is_good_utilization = is_good
    is_excellent_utilization = is_excellent

    @property
    def rating(self) -> str:
        """ "excellent" above 80 % of the peak, "good" above 60 %, "fair" above 40 %, else "poor"; "impossible" above
        100.5 %: the bytes, the time or the peak are wrong.
        """
        return RATINGS[sum(self.utilization > least for least in _LEAST)]

    @property
    def found_bound(self) -> str | None:
        """`bound`, or what the intensity says where it was left out: the side of the ridge; None where that is open."""
        if self.bound is not None:
            return self.bound
        if self.flops == 0:
            return "memory"
        rate = self.measured_tflops or self.peak_tflops
        if self.arithmetic_intensity is None or rate is None:
            return None
        return str(classify(self.arithmetic_intensity, ridge(rate, self.peak_gb_s)))

    def bottleneck_description(self) -> str:
        """One sentence: what keeps it from being faster."""
        reached = -1.0 if self.efficiency is None else self.efficiency
        roof = self.measured_tflops or self.peak_tflops
        rate = 0.0 if self.tflops is None or self.peak_tflops is None else self.tflops / self.peak_tflops
        return _describe(
            _percent(self.utilization if self.utilization > ABOVE_PEAK else None),
            _percent(rate if rate > ABOVE_PEAK else None),
            self.found_bound or "",
            sum(reached >= least for least in (KERNEL_SHARE, AT_ROOF, ABOVE_ROOF)),
            _percent(self.efficiency),
            _percent(self.utilization),
            _percent(self.tflops / roof if self.tflops is not None and roof else None),
            roof or math.nan,
            self.measured_tflops is not None,
            self.flops is not None,
            self.precision or "",
        )

    def summary(self) -> str:
        """What is known, a line each, in decimal units."""
        why = ": bytes, time or peak are wrong" if self.rating == IMPOSSIBLE else ""
        peak = f"peak {format_short(self.peak_gb_s, '.2f')} GB/s ({self.rating}{why})"
        used = f"{format_short(100 * self.utilization, '.1f')} % of {peak}"
        if self.efficiency is not None and self.attainable_gb_s is not None:
            used += f"; {format_short(100 * self.efficiency, '.1f')} % of attainable {format_short(self.attainable_gb_s, '.2f')} GB/s"
        lines = [
            ("Bytes read", _bytes(self.bytes_read)),
            ("Bytes written", _bytes(self.bytes_written)),
            ("Total transfer", _bytes(self.bytes_total)),
            ("Duration", f"{_four_digits(1e3 * self.duration_s)} ms"),
            ("Bandwidth", f"{format_short(self.bandwidth_gb_s, '.2f')} GB/s"),
            ("Utilization", used),
        ]
        if self.arithmetic_intensity is not None:
            lines.append(("Intensity", f"{format_short(self.arithmetic_intensity, '.2f')} FLOP/B{self._side()}"))
        if self.l2_hit_rate is not None:
            lines.append(("L2 hit rate", f"{format_short(100 * self.l2_hit_rate, '.1f')} %"))
        if self.stall_pct is not None:
            lines.append(("Memory stall", f"{format_short(self.stall_pct, '.1f')} %"))
        head = "Memory Bandwidth Analysis" + (f": {self.label}" if self.label else "")
        return "\n".join([head, *(f"  {name + ':':<15} {value}" for name, value in lines)])

    def _side(self) -> str:
        """The bound, and the ridge that it follows from, in brackets."""
        bound, intensity = self.found_bound, self.arithmetic_intensity
        if bound is None or intensity is None:
            return ""
        for rate, gb_s, said in (
            (self.peak_tflops, self.peak_gb_s, ""),
            (self.measured_tflops, self.peak_gb_s, f" at the measured {self.measured_tflops or 0:.4g} TFLOP/s"),
            (
                self.measured_tflops or self.peak_tflops,
                self.attainable_gb_s,
                f" at the {self.attainable_gb_s or 0:.4g} GB/s that so few bytes attain",
            ),
        ):
            bend = None if rate is None or gb_s is None else ridge(rate, gb_s)
            if bend is not None and (bound == "latency" or classify(intensity, bend) == bound):
                return f" ({bound}-bound, ridge {format_short(bend, '.1f')}{said})"
        return f" ({bound}-bound)"


def _describe(
    beyond: int,
    beyond_rate: int,
    bound: str,
    height: int,
    efficiency: int,
    utilization: int,
    arithmetic: int,
    roof: float,
    measured: bool,
    has_flops: bool,
    precision: str = "",
) -> str:
    """The sentence, of whole percents; -1 for what is not known. `height`: 0 far below the roof, 1 below, 2 at it, 3
    above it. `beyond`, `beyond_rate`: of the theoretical peaks, where that is impossible.
    """
    if beyond >= 0:
        return f"{beyond} % of the peak is impossible: the bytes, the time or the peak are wrong"
    if beyond_rate >= 0:
        return f"{beyond_rate} % of the arithmetic peak is impossible: the FLOPs, the time or the peak are wrong"
    if bound == "latency":
        return _LATENCY
    if bound == "memory":
        if efficiency < 0:
            reached = f" at {utilization} % of the peak" if utilization >= 0 else ""
            return f"memory-bound{reached}; how near to its roof is not known: measure the roofs"
        if height == 3:
            return f"{efficiency} % of what a stream of the same bytes reaches: check the bytes, the time and the roof"
        if height == 2:
            return _AT_MEMORY_ROOF
        whose = "the rest is the kernel's" if height else "the kernel limits, not the card"
        return f"{efficiency} % of what a stream of the same bytes reaches, a gap of {100 - efficiency} %: {whose}"
    if bound == "compute":
        if arithmetic < 0:
            return "arithmetic, not memory: how near to its roof is not known: measure the roofs"
        whose = ": the kernel limits, not the card" if arithmetic < 100 * KERNEL_SHARE else ""
        kind = "measured" if measured else "theoretical"
        return f"arithmetic, not memory: {arithmetic} % of the {kind} {roof:.4g} TFLOP/s{whose}"
    flops = "" if has_flops else "flops= and "
    peak = f"peak_tflops=, of {precision}" if precision else "peak_tflops=, or precision= where the device is known"
    return f"what bounds it is not known: pass {flops}{peak}"


def _percent(share: float | None) -> int:
    return -1 if share is None else round(100 * min(share, 1e6))


def _from_frame(data: pd.DataFrame, peak: float | None) -> pd.DataFrame:
    import pandas as pd

    own = numbers(data, "peak_gb_s")
    most = own if peak is None else np.where(np.isnan(own), peak, own)
    found = data if peak is None else data.assign(peak_gb_s=most)
    time_ms, cold = numbers(data, "time_ms"), ~is_word(data, "cache", "hot")
    moved, flops = moved_bytes(data), numbers(data, "flops")
    measured, theory = numbers(data, "measured_tflops"), numbers(data, "peak_tflops")
    roof = np.where(np.isnan(measured), theory, measured)
    seconds = np.where(time_ms > 0, time_ms, np.nan) / 1e3
    bandwidth = np.where(cold, moved / seconds, np.nan) / 1e9
    utilization = bandwidth / _over_zero(most)
    efficiency = bandwidth / _over_zero(numbers(data, "attainable_gb_s"))
    with np.errstate(invalid="ignore"):
        grade = sum((utilization > least).astype(np.int8) for least in _LEAST)
        height = sum((efficiency >= least).astype(np.int8) for least in (KERNEL_SHARE, AT_ROOF, ABOVE_ROOF))
        rate = flops / seconds / _over_zero(theory) / 1e12
        beyond, beyond_rate = (np.where(share > ABOVE_PEAK, share, np.nan) for share in (utilization, rate))
    rating = _taken([*RATINGS, None], np.where(np.isnan(utilization), len(RATINGS), grade))
    bound = _bounds(found)
    by_memory, by_arithmetic = (bound == BOUNDS.index(name) + 1 for name in ("memory", "compute"))
    reached = flops / seconds / _over_zero(roof) / 1e12
    roofs, different = pd.factorize(np.where(by_arithmetic & ~np.isnan(reached), roof, -1.0))
    keys = {
        "beyond": _percents(beyond),
        "beyond_rate": _percents(beyond_rate),
        "bound": bound,
        "height": np.where(by_memory & ~np.isnan(efficiency), height, -1),
        "efficiency": np.where(by_memory, _percents(efficiency), -1),
        "utilization": np.where(by_memory & np.isnan(efficiency), _percents(utilization), -1),
        "arithmetic": np.where(by_arithmetic, _percents(reached), -1),
        "roof": roofs,
        "measured": by_arithmetic & ~np.isnan(measured),
        "has_flops": (bound == 0) & ~np.isnan(flops),
    }
    said = _sentences(keys, different, usable=time_ms > 0, cold=cold)
    return found.assign(utilization=utilization, efficiency=efficiency, rating=rating, bottleneck=said)


def _bounds(data: pd.DataFrame) -> Any:
    """Each row's bound as its place in BOUNDS from 1 on, 0 where it is not known: its own, else what its limits say."""
    found = word_codes(data, "bound", BOUNDS)
    open_ = found == 0
    if not open_.any():
        return found
    rest = data if open_.all() else data[open_]
    limits, intensity = limiter_columns(rest), numbers(rest, "flops") / _over_zero(moved_bytes(rest))
    with np.errstate(invalid="ignore"):
        memory = (intensity < limits.ridge) | (numbers(rest, "flops") == 0) | limits.by("memory")
        compute = (intensity >= limits.ridge) | limits.by("compute")
    found[open_] = np.select([limits.by("latency"), memory, compute], [3, 1, 2], 0)
    return found


def _sentences(keys: Mapping[str, Any], roofs: Any, *, usable: Any, cold: Any) -> Any:
    """One sentence for each different combination of small numbers, taken for every row of it."""
    import pandas as pd

    code = np.zeros(len(usable), np.int64)
    for values in keys.values():
        least = int(values.min(initial=0))
        code = code * (int(values.max(initial=0)) - least + 1) + (values - least)
    which, different = pd.factorize(code)
    first = np.zeros(len(different), np.int64)
    first[which[::-1]] = np.arange(len(which))[::-1]
    columns = {name: values[first].tolist() for name, values in keys.items()}
    columns["roof"] = roofs[columns["roof"]].tolist()
    columns["bound"] = [("", *BOUNDS)[place] for place in columns["bound"]]
    said: list[str | None] = [_describe(*key) for key in zip(*columns.values(), strict=True)]
    said += [None, "hot: its bytes came out of a cache, not held against memory"]
    which = np.where(usable, which, len(said) - 2)
    return _taken(said, np.where(usable & ~cold, len(said) - 1, which))


def _taken(texts: Sequence[str | None], codes: Any) -> Any:
    import pandas as pd

    return pd.array(np.array(texts, object)[codes], dtype="string")


def _percents(share: Any) -> Any:
    return np.where(np.isnan(share), -1, np.rint(100 * np.minimum(np.nan_to_num(share), 1e6))).astype(np.int64)


def _over_zero(values: Any) -> Any:
    return np.where(values > 0, values, np.nan)


def _rate(device: str, precision: str) -> float | None:
    """The arithmetic peak of a precision, if the catalogue has the device."""
    from bwprof.analysis.prediction import catalogue

    entry = catalogue.find(device)
    rate = math.nan if entry is None else catalogue.card_from_entry(entry).dense(check_precision(precision))[0]
    return rate if rate > 0 else None


def _diagnosed(launch: pd.DataFrame) -> str | None:
    """What `bwprof.diagnose` says limits a launch; None where it does not tell."""
    from bwprof.analysis.diagnosis.diagnose import diagnose_rows
    from bwprof.analysis.diagnosis.hypothesis import SUPPORTED

    bounds = (_BOUND_OF.get(found.hypothesis.name) for found in diagnose_rows(launch)[0].of(SUPPORTED))
    return next((bound for bound in bounds if bound), None)


def _mean(values: Any, times: Any) -> float | None:
    """Of kernels, by their times; each as much as the other where not all times are known."""
    held = values >= 0
    weights = times[held] if (times[held] > 0).all() else np.ones(int(held.sum()))
    return float(np.average(values[held], weights=weights)) if held.any() else None


def _set(analysis: BandwidthAnalysis, name: str, value: Any) -> None:
    object.__setattr__(analysis, name, value)


def _positive(value: Any, name: str) -> float:
    found = _number(value, name)
    if not 0 < found < math.inf:
        raise ValueError(f"{name} is {repr_short(value)}: a positive, finite number is needed")
    return found


def _share(value: Any, name: str, most: float) -> float:
    found = _number(value, name)
    if not 0 <= found <= most:
        raise ValueError(f"{name} is {repr_short(value)}: allowed is 0 to {most:g}")
    return found


def _number(value: Any, name: str) -> float:
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        return float(value)
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"{name} is {repr_short(value)}: a positive, finite number is needed") from None


def _bytes(count: int) -> str:
    """Bytes in decimal units: '117.45 MB'."""
    value, units = float(count), ("B", "kB", "MB", "GB", "TB")
    for unit in units:
        if round(value, 2) < 1000 or unit == units[-1]:
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{format_short(value, '.2f')} {unit}"


def _four_digits(value: float) -> str:
    """Four digits, and no exponent."""
    if value >= 1e4:
        return format_short(value, ".0f")
    return f"{value:#.4g}".rstrip(".") if value >= 1e-4 else f"{value:.3g}"
