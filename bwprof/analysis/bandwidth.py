"""`BandwidthAnalysis`: rate how well a transfer uses the memory, for one row or a frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.analysis.values import as_frame, as_row, is_word, limiter_columns, moved_bytes, numbers, word_codes, words
from bwprof.registry import check_precision
from bwprof.roofs.limiter import ABOVE_PEAK, ABOVE_ROOF, KERNEL_SHARE, classify, classify_row, ridge
from bwprof.text.formatting import format_short
from bwprof.text.parsing import describe_unknown, finite_or_none, measured_or_none, parse_bytes, repr_short

if TYPE_CHECKING:
    import pandas as pd

GOOD, EXCELLENT, FAIR = 0.60, 0.80, 0.40
AT_ROOF = 0.90
BOUNDS = ("memory", "compute", "latency")
IMPOSSIBLE = "impossible"
RATINGS = ("poor", "fair", "good", "excellent", IMPOSSIBLE)
_RATING_LIMITS = (FAIR, GOOD, EXCELLENT, ABOVE_PEAK)  # of the ratings from the second on
_HEIGHTS = (KERNEL_SHARE, AT_ROOF, ABOVE_ROOF)  # shares of the memory roof between which sentences differ

# Means over kernels: the attribute, its column, and the factor between their units.
_MEANS = (
    ("l2_hit_rate", "l2_hit_rate", 1.0),
    ("l2_hit_rate", "l2_hit_pct", 0.01),
    ("stall_pct", "stall_pct", 1.0),
    ("stall_pct", "mem_unit_stalled_pct", 1.0),
    ("peak_tflops", "peak_tflops", 1.0),
)

# The bound that a hypothesis of `bwprof.diagnose` implies.
_HYPOTHESIS_BOUNDS = {"memory_bound": "memory", "compute_bound": "compute", "launch_bound": "latency"}


@dataclass(frozen=True, slots=True)
class BandwidthAnalysis:
    """Rate one transfer against the memory's bandwidth.

    Attributes
    ----------
    bytes_read, bytes_written : int
        The bytes that it must move.
    duration_s, peak_gb_s : float
        Its duration, and the memory's theoretical bandwidth (a GB is 10^9 bytes).
    attainable_gb_s : float, optional
        The rate of a plain stream of the same bytes.
    flops, peak_tflops, measured_tflops : optional
        Its floating-point operations, and the arithmetic peak and the best measured rate of its precision.
    l2_hit_rate : float, optional
        0 to 1.
    stall_pct : float, optional
        Share of the time that memory units were stalled, 0 to 100.
    bound : str, optional
        "memory", "compute" or "latency"; by default it follows from the intensity where the roofs are known.
    label : str
        Its name.
    precision : str, optional
        The precision of its arithmetic.

    Raises
    ------
    ValueError
        For a duration or a bandwidth that is not positive, and for other values out of range.

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
        """Build from bytes, seconds and the peak in GB/s; `optional` are the other attributes."""
        allowed = [field.name for field in fields(cls)][4:]
        for name in optional:
            if name not in allowed:
                raise ValueError(describe_unknown("argument", name, allowed))
        return cls(bytes_read, bytes_written, duration_s, peak_gb_s, **optional)

    @classmethod
    def from_row(cls, row: Mapping[str, Any] | pd.Series[Any], *, peak_gb_s: float | None = None) -> BandwidthAnalysis:
        """Build from one row of a frame, or a `bwprof.Row`.

        Parameters
        ----------
        row : mapping or pandas.Series
            Any columns of `bwprof.columns()`.
        peak_gb_s : float, optional
            The peak of a row that has none.

        Raises
        ------
        ValueError
            For a row without bytes, time or peak, and for a hot one, whose bytes come from a cache.
        """
        columns = as_row(row)
        value = {name: measured_or_none(columns.get(name)) for name in ("time_ms", *cls.__dataclass_fields__)}
        if peak_gb_s is not None:
            value["peak_gb_s"] = peak_gb_s
        _refuse_incomplete(columns.get("cache"), value)
        words = (columns.get("case") or columns.get("operation"), columns.get("precision"))
        names = ("attainable_gb_s", "peak_tflops", "l2_hit_rate", "stall_pct", "measured_tflops")
        optional: dict[str, Any] = {name: value[name] for name in names}
        return cls(
            int(value["bytes_read"] or 0),
            int(value["bytes_written"] or 0),
            _positive(value["time_ms"], "time_ms") / 1e3,
            _positive(value["peak_gb_s"], "peak_gb_s"),
            flops=None if value["flops"] is None else int(value["flops"]),
            bound=columns["bound"] if columns.get("bound") in BOUNDS else classify_row(columns).bound,
            label=" ".join(word for word in words if isinstance(word, str) and word),
            **optional,
        )

    @classmethod
    def from_profiling_results(
        cls, results: Any, duration_s: float | None, peak_gb_s: float, **optional: Any
    ) -> BandwidthAnalysis:
        """Build from a profiler's counts (rocprof, ncu): bytes, L2 hit rate and memory stalls over all kernels.

        Parameters
        ----------
        results : object
            A frame of launches in bwprof's columns (bytes_read or dram_bytes_read, ..., time_ms; flops; l2_hit_rate or
            l2_hit_pct, stall_pct or mem_unit_stalled_pct), as `bwprof.importers` reads them; one row of it, a list of
            rows, or an object with such a `frame`.
        duration_s : float, optional
            None: the sum of the kernels' times.
        peak_gb_s : float
            The memory's theoretical bandwidth, GB/s.
        **optional
            The other attributes. With `precision`, the catalogue gives the device's arithmetic peak. A bound that does
            not follow from FLOPs and arithmetic peak is that of `bwprof.diagnose` for the longest launch.

        Raises
        ------
        ValueError
            If no bytes were counted, or no time is known.
        """
        data = as_frame(getattr(results, "frame", results), "results")
        moved = {}
        for name in ("bytes_read", "bytes_written"):
            counted = numbers(data, f"dram_{name}")
            counted = counted if (counted >= 0).any() else numbers(data, name)
            if not (counted >= 0).any():
                raise ValueError(f"results hold no {name}: count it (rocprof FetchSize, WriteSize; ncu dram__bytes_*)")
            moved[name] = int(counted[counted >= 0].sum())
        times = numbers(data, "time_ms")
        if duration_s is None:
            if not (times > 0).any():
                raise ValueError("duration_s is None, and results hold no time_ms: pass it (rocprof: --timestamp on)")
            duration_s = float(times[times > 0].sum()) / 1e3
        flops, longest = numbers(data, "flops"), data.iloc[[int((-times).argsort(kind="stable")[0])]]
        if (flops >= 0).all():
            optional.setdefault("flops", int(flops.sum()))
        for name, column, scale in _MEANS:
            value = _mean(scale * numbers(data, column), times)
            if value is not None:
                optional.setdefault(name, value)
        if optional.get("precision") is not None and "peak_tflops" not in optional:
            optional["peak_tflops"] = _catalogue_rate(str(words(longest, "device").iloc[0]), optional["precision"])
        analysis = cls(moved["bytes_read"], moved["bytes_written"], duration_s, peak_gb_s, **optional)
        if analysis.found_bound is None:
            _set(analysis, "bound", _diagnosed_bound(longest.assign(peak_gb_s=analysis.peak_gb_s)))
        return analysis

    @staticmethod
    def from_frame(data: pd.DataFrame, *, peak_gb_s: float | None = None) -> pd.DataFrame:
        """Add the columns utilization (0 to 1 of the peak), efficiency (0 to 1 of the attainable), rating and
        bottleneck (`bottleneck_description` of each row).

        Parameters
        ----------
        data : pandas.DataFrame
            From `bwprof.sweep`, `bwprof.load` or others. Missing columns, and hot rows, leave NaN.
        peak_gb_s : float, optional
            The peak of rows that have none.

        Examples
        --------
        >>> import pandas as pd
        >>> row = {"time_ms": 10.0, "bytes_read": 2_000_000_000, "bytes_written": 1_000_000_000, "peak_gb_s": 800.0}
        >>> BandwidthAnalysis.from_frame(pd.DataFrame([row]))[["utilization", "rating"]].values.tolist()
        [[0.375, 'poor']]
        """
        return _analyze_frame(as_frame(data), None if peak_gb_s is None else _positive(peak_gb_s, "peak_gb_s"))

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
        """FLOP per byte; None without FLOPs or bytes."""
        return None if self.flops is None or not self.bytes_total else self.flops / self.bytes_total

    @property
    def tflops(self) -> float | None:
        """TFLOP/s; None without FLOPs."""
        return None if self.flops is None else self.flops / self.duration_s / 1e12

    def is_good(self) -> bool:
        """Check for more than 60 % of the peak, and a possible value."""
        return GOOD < self.utilization <= ABOVE_PEAK

    def is_excellent(self) -> bool:
        """Check for more than 80 % of the peak, and a possible value."""
        return EXCELLENT < self.utilization <= ABOVE_PEAK

    is_good_utilization = is_good
    is_excellent_utilization = is_excellent

    @property
    def rating(self) -> str:
        """ "excellent" above 80 % of the peak, "good" above 60 %, "fair" above 40 %, else "poor"; "impossible" above
        100.5 %: the bytes, the time or the peak are wrong.
        """
        return RATINGS[sum(self.utilization > limit for limit in _RATING_LIMITS)]

    @property
    def found_bound(self) -> str | None:
        """`bound`, else the side of the ridge that the intensity is on; None where that is not known."""
        if self.bound is not None:
            return self.bound
        if self.flops == 0:
            return "memory"
        rate = self.measured_tflops or self.peak_tflops
        if self.arithmetic_intensity is None or rate is None:
            return None
        return str(classify(self.arithmetic_intensity, ridge(rate, self.peak_gb_s)))

    def bottleneck_description(self) -> str:
        """Say in one sentence what keeps it from being faster."""
        reached = -1.0 if self.efficiency is None else self.efficiency
        roof = self.measured_tflops or self.peak_tflops
        rate = 0.0 if self.tflops is None or self.peak_tflops is None else self.tflops / self.peak_tflops
        return _describe(
            over_peak=_percent(self.utilization if self.utilization > ABOVE_PEAK else None),
            over_rate=_percent(rate if rate > ABOVE_PEAK else None),
            bound=self.found_bound or "",
            height=sum(reached >= share for share in _HEIGHTS),
            efficiency=_percent(self.efficiency),
            utilization=_percent(self.utilization),
            arithmetic=_percent(self.tflops / roof if self.tflops is not None and roof else None),
            roof=roof or math.nan,
            is_measured=self.measured_tflops is not None,
            has_flops=self.flops is not None,
            precision=self.precision or "",
        )

    def summary(self) -> str:
        """List what is known, a line each, in decimal units."""
        why = ": bytes, time or peak are wrong" if self.rating == IMPOSSIBLE else ""
        peak = f"peak {format_short(self.peak_gb_s, '.2f')} GB/s ({self.rating}{why})"
        used = f"{format_short(100 * self.utilization, '.1f')} % of {peak}"
        if self.efficiency is not None and self.attainable_gb_s is not None:
            share, roof = format_short(100 * self.efficiency, ".1f"), format_short(self.attainable_gb_s, ".2f")
            used += f"; {share} % of attainable {roof} GB/s"
        lines = [
            ("Bytes read", _bytes_text(self.bytes_read)),
            ("Bytes written", _bytes_text(self.bytes_written)),
            ("Total transfer", _bytes_text(self.bytes_total)),
            ("Duration", f"{_four_digits(1e3 * self.duration_s)} ms"),
            ("Bandwidth", f"{format_short(self.bandwidth_gb_s, '.2f')} GB/s"),
            ("Utilization", used),
        ]
        if self.arithmetic_intensity is not None:
            lines.append(("Intensity", f"{format_short(self.arithmetic_intensity, '.2f')} FLOP/B{self._ridge_text()}"))
        if self.l2_hit_rate is not None:
            lines.append(("L2 hit rate", f"{format_short(100 * self.l2_hit_rate, '.1f')} %"))
        if self.stall_pct is not None:
            lines.append(("Memory stall", f"{format_short(self.stall_pct, '.1f')} %"))
        head = "Memory Bandwidth Analysis" + (f": {self.label}" if self.label else "")
        return "\n".join([head, *(f"  {name + ':':<15} {value}" for name, value in lines)])

    def _ridge_text(self) -> str:
        """Write the bound and the ridge from which it follows, in brackets."""
        bound, intensity = self.found_bound, self.arithmetic_intensity
        if bound is None or intensity is None:
            return ""
        measured, few = self.measured_tflops or 0, self.attainable_gb_s or 0
        for rate, gb_s, source in (
            (self.peak_tflops, self.peak_gb_s, ""),
            (self.measured_tflops, self.peak_gb_s, f" at the measured {measured:.4g} TFLOP/s"),
            (
                self.measured_tflops or self.peak_tflops,
                self.attainable_gb_s,
                f" at the {few:.4g} GB/s that so few bytes attain",
            ),
        ):
            if rate is not None and gb_s is not None:
                bend = ridge(rate, gb_s)
                if bound == "latency" or classify(intensity, bend) == bound:
                    return f" ({bound}-bound, ridge {format_short(bend, '.1f')}{source})"
        return f" ({bound}-bound)"


def _refuse_incomplete(cache: object, value: Mapping[str, float | None]) -> None:
    """Refuse a hot row, and one without bytes, time or peak, by a ValueError."""
    if cache == "hot":
        raise ValueError("cache is 'hot': its bytes came out of a cache; only a cold row is held against memory")
    if value["bytes_read"] is None and value["bytes_written"] is None:
        raise ValueError("bytes_read and bytes_written are missing: pass them, or count them (counters=True)")
    if value["time_ms"] is None:
        raise ValueError("time_ms is missing: only a row with a time has a bandwidth")
    if value["peak_gb_s"] is None:
        raise ValueError(
            "peak_gb_s is missing: pass peak_gb_s=, the memory's theoretical bandwidth in GB/s (the share of "
            "a measured stream needs none: it is the row's pct_attainable)"
        )


def _describe(
    *,
    over_peak: int,
    over_rate: int,
    bound: str,
    height: int,
    efficiency: int,
    utilization: int,
    arithmetic: int,
    roof: float,
    is_measured: bool,
    has_flops: bool,
    precision: str = "",
) -> str:
    """Write the sentence from whole percents, -1 for an unknown one.

    `over_peak` and `over_rate` are shares of the theoretical peaks where these are impossible; `height` counts the
    `_HEIGHTS` that are reached.
    """
    if over_peak >= 0:
        return f"{over_peak} % of the peak is impossible: the bytes, the time or the peak are wrong"
    if over_rate >= 0:
        return f"{over_rate} % of the arithmetic peak is impossible: the FLOPs, the time or the peak are wrong"
    if bound == "latency":
        return "launch latency, not memory: batch or fuse"
    if bound == "memory":
        return _describe_memory(height, efficiency, utilization)
    if bound == "compute":
        if arithmetic < 0:
            return "arithmetic, not memory: how near to its roof is not known: measure the roofs"
        whose = ": the kernel limits, not the card" if arithmetic < 100 * KERNEL_SHARE else ""
        kind = "measured" if is_measured else "theoretical"
        return f"arithmetic, not memory: {arithmetic} % of the {kind} {roof:.4g} TFLOP/s{whose}"
    flops = "" if has_flops else "flops= and "
    peak = f"peak_tflops=, of {precision}" if precision else "peak_tflops=, or precision= where the device is known"
    return f"what bounds it is not known: pass {flops}{peak}"


def _describe_memory(height: int, efficiency: int, utilization: int) -> str:
    if efficiency < 0:
        reached = f" at {utilization} % of the peak" if utilization >= 0 else ""
        return f"memory-bound{reached}; how near to its roof is not known: measure the roofs"
    if height == 2:
        return "at the memory roof: only fewer bytes help"
    reached = f"{efficiency} % of what a stream of the same bytes reaches"
    if height == 3:
        return f"{reached}: check the bytes, the time and the roof"
    whose = "the rest is the kernel's" if height else "the kernel limits, not the card"
    return f"{reached}, a gap of {100 - efficiency} %: {whose}"


def _percent(share: float | None) -> int:
    return -1 if share is None else round(100 * min(share, 1e6))


def _percents(share: Any) -> Any:
    return np.where(np.isnan(share), -1, np.rint(100 * np.minimum(np.nan_to_num(share), 1e6))).astype(np.int64)


def _positive_or_nan(values: Any) -> Any:
    return np.where(values > 0, values, np.nan)


def _analyze_frame(data: pd.DataFrame, peak: float | None) -> pd.DataFrame:
    import pandas as pd

    own = numbers(data, "peak_gb_s")
    most = own if peak is None else np.where(np.isnan(own), peak, own)
    data = data if peak is None else data.assign(peak_gb_s=most)
    time_ms, cold = numbers(data, "time_ms"), ~is_word(data, "cache", "hot")
    flops, measured, theory = (numbers(data, name) for name in ("flops", "measured_tflops", "peak_tflops"))
    seconds = _positive_or_nan(time_ms) / 1e3
    bandwidth = np.where(cold, moved_bytes(data) / seconds, np.nan) / 1e9
    utilization = bandwidth / _positive_or_nan(most)
    efficiency = bandwidth / _positive_or_nan(numbers(data, "attainable_gb_s"))
    roof = np.where(np.isnan(measured), theory, measured)
    with np.errstate(invalid="ignore"):
        grade = sum((utilization > limit).astype(np.int8) for limit in _RATING_LIMITS)
        height = sum((efficiency >= share).astype(np.int8) for share in _HEIGHTS)
        rate = flops / seconds / _positive_or_nan(theory) / 1e12
        over_peak, over_rate = (np.where(share > ABOVE_PEAK, share, np.nan) for share in (utilization, rate))
    rating = np.array([*RATINGS, None], object)[np.where(np.isnan(utilization), len(RATINGS), grade)]
    bound = _bounds(data)
    by_memory, by_arithmetic = (bound == BOUNDS.index(name) + 1 for name in ("memory", "compute"))
    reached = flops / seconds / _positive_or_nan(roof) / 1e12
    facts = pd.DataFrame(
        {
            "over_peak": _percents(over_peak),
            "over_rate": _percents(over_rate),
            "bound": bound,
            "height": np.where(by_memory & ~np.isnan(efficiency), height, -1),
            "efficiency": np.where(by_memory, _percents(efficiency), -1),
            "utilization": np.where(by_memory & np.isnan(efficiency), _percents(utilization), -1),
            "arithmetic": np.where(by_arithmetic, _percents(reached), -1),
            "roof": np.where(by_arithmetic & ~np.isnan(reached), roof, -1.0),
            "is_measured": by_arithmetic & ~np.isnan(measured),
            "has_flops": (bound == 0) & ~np.isnan(flops),
        }
    )
    sentences = np.where(cold, _sentences(facts), "hot: its bytes came out of a cache, not held against memory")
    sentences[~(time_ms > 0)] = None
    texts = {"rating": pd.array(rating, dtype="string"), "bottleneck": pd.array(sentences, dtype="string")}
    return data.assign(utilization=utilization, efficiency=efficiency, **texts)


def _bounds(data: pd.DataFrame) -> Any:
    """Find each row's bound, its own or by its limits, as its place in BOUNDS from 1 on; 0 where it is not known."""
    bounds = word_codes(data, "bound", BOUNDS)
    missing = bounds == 0
    if not missing.any():
        return bounds
    rest = data if missing.all() else data[missing]
    limits, intensity = limiter_columns(rest), numbers(rest, "flops") / _positive_or_nan(moved_bytes(rest))
    with np.errstate(invalid="ignore"):
        memory = (intensity < limits.ridge) | (numbers(rest, "flops") == 0) | limits.by("memory")
        compute = (intensity >= limits.ridge) | limits.by("compute")
    bounds[missing] = np.select([limits.by("latency"), memory, compute], [3, 1, 2], 0)
    return bounds


def _sentences(facts: pd.DataFrame) -> Any:
    """Write one sentence for each distinct row of facts, and repeat it for all rows like it."""
    codes = facts.groupby(list(facts), sort=False).ngroup().to_numpy()
    distinct = facts.drop_duplicates().assign(bound=lambda rows: np.array(["", *BOUNDS])[rows["bound"]])
    rows: list[dict[str, Any]] = distinct.to_dict("records")  # type: ignore[assignment]
    return np.array([_describe(**row) for row in rows], object)[codes]


def _catalogue_rate(device: str, precision: str) -> float | None:
    """Return a device's arithmetic peak in a precision; None where the catalogue has none."""
    from bwprof.analysis.prediction import catalogue

    entry = catalogue.find(device)
    rate = math.nan if entry is None else catalogue.card_from_entry(entry).dense(check_precision(precision))[0]
    return rate if rate > 0 else None


def _diagnosed_bound(launch: pd.DataFrame) -> str | None:
    """Return the bound of a launch by `bwprof.diagnose`; None where it is open."""
    from bwprof.analysis.diagnosis.diagnose import diagnose_rows
    from bwprof.analysis.diagnosis.hypothesis import SUPPORTED

    causes = (entry.hypothesis.name for entry in diagnose_rows(launch)[0].of(SUPPORTED))
    return next((_HYPOTHESIS_BOUNDS[name] for name in causes if name in _HYPOTHESIS_BOUNDS), None)


def _mean(values: Any, times: Any) -> float | None:
    """Average over kernels, weighted by time where all times are known."""
    known = values >= 0
    weights = times[known] if (times[known] > 0).all() else np.ones(int(known.sum()))
    return float(np.average(values[known], weights=weights)) if known.any() else None


def _set(analysis: BandwidthAnalysis, name: str, value: Any) -> None:
    object.__setattr__(analysis, name, value)


def _positive(value: Any, name: str) -> float:
    number = finite_or_none(value)
    if number is None or number <= 0:
        raise ValueError(f"{name} is {repr_short(value)}: a positive, finite number is needed")
    return number


def _share(value: Any, name: str, most: float) -> float:
    number = finite_or_none(value)
    if number is None or not 0 <= number <= most:
        raise ValueError(f"{name} is {repr_short(value)}: allowed is 0 to {most:g}")
    return number


def _bytes_text(count: int) -> str:
    """Format bytes in decimal units: '117.45 MB'."""
    value, units = float(count), ("B", "kB", "MB", "GB", "TB")
    for unit in units:
        if round(value, 2) < 1000 or unit == units[-1]:
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{format_short(value, '.2f')} {unit}"


def _four_digits(value: float) -> str:
    """Format four digits without an exponent."""
    if value >= 1e4:
        return format_short(value, ".0f")
    return f"{value:#.4g}".rstrip(".") if value >= 1e-4 else f"{value:.3g}"
