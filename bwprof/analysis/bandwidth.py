"""Rate how well a transfer uses the memory: `BandwidthAnalysis`, a table of rows, two lines of one row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from bwprof.analysis import values
from bwprof.analysis.values import as_frame, as_row, is_word, limiter_columns, numbers, word_codes, words
from bwprof.registry import check_precision
from bwprof.roofs.limiter import ABOVE_PEAK, ABOVE_ROOF, KERNEL_SHARE, classify, classify_row, ridge
from bwprof.text.formatting import format_figure, format_short
from bwprof.text.parsing import check_known, describe_unknown, finite_or_none, measured_or_none, parse_bytes, repr_short

GOOD, EXCELLENT, FAIR = 0.60, 0.80, 0.40
AT_ROOF = 0.90
BOUNDS = ("memory", "compute", "latency")
IMPOSSIBLE = "impossible"
RATINGS = ("poor", "fair", "good", "excellent", IMPOSSIBLE)
_RATING_LIMITS = (FAIR, GOOD, EXCELLENT, ABOVE_PEAK)  # of the ratings from the second on

_WHOLE = ("bytes_read", "bytes_written", "flops")
_POSITIVE = ("duration_s", "peak_gb_s", "attainable_gb_s", "peak_tflops", "measured_tflops")
_LARGEST = {"l2_hit_rate": 1.0, "stall_pct": 100.0}
_REQUIRED = ("bytes_read", "bytes_written", "duration_s", "peak_gb_s")

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
        for name in (*_WHOLE, *_POSITIVE, *_LARGEST):
            value = getattr(self, name)
            if value is not None or name in _REQUIRED:
                object.__setattr__(self, name, _check_number(value, name))
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
            check_known("argument", name, allowed)
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
        value = {name: measured_or_none(columns.get(name)) for name in ("time_ms", *(*_WHOLE, *_POSITIVE, *_LARGEST))}
        if peak_gb_s is not None:
            value["peak_gb_s"] = peak_gb_s
        _refuse_incomplete(columns.get("cache"), value)
        value["duration_s"] = _check_number(value.pop("time_ms"), "time_ms") / 1e3
        value |= {name: value[name] or 0 for name in ("bytes_read", "bytes_written")}
        names = (columns.get("case") or columns.get("operation"), columns.get("precision"))
        label = " ".join(word for word in names if isinstance(word, str) and word)
        bound = columns["bound"] if columns.get("bound") in BOUNDS else classify_row(columns).bound
        return cls(**value, bound=bound, label=label)  # type: ignore[arg-type]

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
            The other attributes. With `precision`, the catalog gives the device's arithmetic peak. A bound that does
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
            known = numbers(data, column) >= 0
            if known.any():
                weights = times[known] if (times[known] > 0).all() else None
                mean = float(np.average(scale * numbers(data, column)[known], weights=weights))
                optional.setdefault(name, mean)
        if optional.get("precision") is not None and "peak_tflops" not in optional:
            optional["peak_tflops"] = _catalog_rate(str(words(longest, "device").iloc[0]), optional["precision"])
        analysis = cls(moved["bytes_read"], moved["bytes_written"], duration_s, peak_gb_s, **optional)
        if analysis.found_bound is None:
            object.__setattr__(analysis, "bound", _diagnosed_bound(longest.assign(peak_gb_s=analysis.peak_gb_s)))
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
        return _analyze_frame(as_frame(data), None if peak_gb_s is None else _check_number(peak_gb_s, "peak_gb_s"))

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
        columns = {name: np.array([getattr(self, name)], float) for name in (*_WHOLE, *_POSITIVE)}
        facts = _choose_sentences(
            np.array([self.bandwidth_gb_s]),
            columns["flops"] / self.duration_s / 1e12,
            columns,
            np.array([("", *BOUNDS).index(self.found_bound or "")]),
        )
        return _format_sentence(*(column[0] for column in facts.values()))

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
            ("Duration", f"{format_short(1e3 * self.duration_s, '.4g' if self.duration_s < 10 else '.0f')} ms"),
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
        """Write the bound, and the ridge if it implies that bound, in brackets."""
        bound, intensity = self.found_bound, self.arithmetic_intensity
        if bound is None or intensity is None:
            return ""
        bends = [ridge(rate, self.peak_gb_s) for rate in (self.peak_tflops, self.measured_tflops) if rate is not None]
        agreeing = [bend for bend in bends if bound == "latency" or classify(intensity, bend) == bound]
        return f" ({bound}-bound" + (f", ridge {format_short(agreeing[0], '.1f')})" if agreeing else ")")


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


_ATTAINED = "{pct:.0f} % of what a stream of the same bytes reaches"
_NOT_KNOWN = "how near to its roof is not known: measure the roofs"
_KERNEL = "the kernel limits, not the card"
_ARITHMETIC = "arithmetic, not memory: {pct:.0f} % of the {kind} {roof:.4g} TFLOP/s"
_UNBOUND = "what bounds it is not known: pass {} or precision= where the device is known"

# What keeps a row from being faster. `_choose_sentences` has the condition of each.
_SENTENCES = (
    "{pct:.0f} % of the peak is impossible: the bytes, the time or the peak are wrong",
    "{pct:.0f} % of the arithmetic peak is impossible: the FLOPs, the time or the peak are wrong",
    "launch latency, not memory: batch or fuse",
    f"{_ATTAINED}: check the bytes, the time and the roof",
    "at the memory roof: only fewer bytes help",
    f"{_ATTAINED}, a gap of {{gap:.0f}} %: the rest is the kernel's",
    f"{_ATTAINED}, a gap of {{gap:.0f}} %: {_KERNEL}",
    f"memory-bound at {{pct:.0f}} % of the peak; {_NOT_KNOWN}",
    f"memory-bound; {_NOT_KNOWN}",
    f"{_ARITHMETIC}: {_KERNEL}",
    _ARITHMETIC,
    f"arithmetic, not memory: {_NOT_KNOWN}",
    _UNBOUND.format("peak_tflops=,"),
    _UNBOUND.format("flops= and peak_tflops=,"),
)


def _choose_sentences(bandwidth: Any, tflops: Any, columns: Mapping[str, Any], bound: Any) -> dict[str, Any]:
    """Choose each row's sentence, and compute the figures in it; `bound` has places in BOUNDS from 1 on."""
    utilization, efficiency = (_divide(bandwidth, columns[name]) for name in ("peak_gb_s", "attainable_gb_s"))
    measured, theory = columns["measured_tflops"], columns["peak_tflops"]
    roof = np.where(np.isnan(measured), theory, measured)
    of_theory, of_roof = _divide(tflops, theory), _divide(tflops, roof)
    memory, compute = bound == 1, bound == 2
    with np.errstate(invalid="ignore"):
        cases = (
            (utilization > ABOVE_PEAK, utilization),
            (of_theory > ABOVE_PEAK, of_theory),
            (bound == 3, -1.0),
            (memory & (efficiency >= ABOVE_ROOF), efficiency),
            (memory & (efficiency >= AT_ROOF), -1.0),
            (memory & (efficiency >= KERNEL_SHARE), efficiency),
            (memory & (efficiency >= 0), efficiency),
            (memory & (utilization >= 0), utilization),
            (memory, -1.0),
            (compute & (of_roof < KERNEL_SHARE), of_roof),
            (compute & (of_roof >= 0), of_roof),
            (compute, -1.0),
            (~np.isnan(columns["flops"]), -1.0),
        )
    conditions = [condition for condition, _ in cases]
    sentence = np.select(conditions, range(len(cases)), len(cases))
    share = np.select(conditions, [share for _, share in cases], -1.0)
    has_roof = np.isin(sentence, [place for place, text in enumerate(_SENTENCES) if "{roof" in text])
    return {
        "sentence": sentence,
        "pct": np.rint(100 * np.minimum(share, 1e6)),
        "roof": np.where(has_roof, roof, -1.0),
        "is_measured": has_roof & ~np.isnan(measured),
    }


def _format_sentence(sentence: int, pct: float, roof: float, is_measured: bool) -> str:
    kind = "measured" if is_measured else "theoretical"
    return _SENTENCES[sentence].format(pct=pct, gap=100 - pct, roof=roof, kind=kind)


def _divide(part: Any, whole: Any) -> Any:
    return part / np.where(whole > 0, whole, np.nan)


def _analyze_frame(data: pd.DataFrame, peak: float | None) -> pd.DataFrame:
    own = numbers(data, "peak_gb_s")
    if peak is not None:
        data = data.assign(peak_gb_s=np.where(np.isnan(own), peak, own))
    columns = {name: numbers(data, name) for name in ("time_ms", "flops", *_POSITIVE)}
    cold = ~is_word(data, "cache", "hot")
    seconds = np.where(columns["time_ms"] > 0, columns["time_ms"], np.nan) / 1e3
    bandwidth = np.where(cold, values.moved_bytes(data) / seconds, np.nan) / 1e9
    utilization, efficiency = (_divide(bandwidth, columns[name]) for name in ("peak_gb_s", "attainable_gb_s"))
    with np.errstate(invalid="ignore"):
        grade = sum((utilization > limit).astype(np.int8) for limit in _RATING_LIMITS)
    rating = np.array([*RATINGS, None], object)[np.where(np.isnan(utilization), len(RATINGS), grade)]
    facts = pd.DataFrame(_choose_sentences(bandwidth, columns["flops"] / seconds / 1e12, columns, _bounds(data)))
    # A sentence is formatted once for all rows with the same figures.
    codes = facts.groupby(list(facts), sort=False).ngroup().to_numpy()
    distinct = [_format_sentence(*row) for row in facts.drop_duplicates().itertuples(index=False)]
    sentences = np.where(cold, np.array(distinct, object)[codes], "hot: its bytes came out of a cache, not from memory")
    sentences[np.isnan(seconds)] = None
    texts = {"rating": pd.array(rating, dtype="string"), "bottleneck": pd.array(sentences, dtype="string")}
    return data.assign(utilization=utilization, efficiency=efficiency, **texts)


def _bounds(data: pd.DataFrame) -> Any:
    """Find each row's bound, its own or by its limits, as its place in BOUNDS from 1 on; 0 where it is not known."""
    bounds = word_codes(data, "bound", BOUNDS)
    missing = bounds == 0
    if not missing.any():
        return bounds
    rest = data if missing.all() else data[missing]
    limits, flops = limiter_columns(rest), numbers(rest, "flops")
    intensity = _divide(flops, values.moved_bytes(rest))
    with np.errstate(invalid="ignore"):
        memory = (intensity < limits.ridge) | (flops == 0) | limits.by("memory")
        compute = (intensity >= limits.ridge) | limits.by("compute")
    bounds[missing] = np.select([limits.by("latency"), memory, compute], [3, 1, 2], 0)
    return bounds


def _catalog_rate(device: str, precision: str) -> float | None:
    """Return a device's arithmetic peak in a precision; None where the catalog has none."""
    from bwprof.analysis.prediction import catalog

    entry = catalog.find(device)
    rate = math.nan if entry is None else catalog.card_from_entry(entry).dense(check_precision(precision))[0]
    return rate if rate > 0 else None


def _diagnosed_bound(launch: pd.DataFrame) -> str | None:
    """Return the bound of a launch by `bwprof.diagnose`; None where it is open."""
    from bwprof.analysis.diagnosis.diagnose import diagnose

    found = diagnose(launch)
    causes = found.loc[found["verdict"] == "supported", "hypothesis"].map(_HYPOTHESIS_BOUNDS).dropna()
    return None if causes.empty else str(causes.iloc[0])


def _check_number(value: Any, name: str) -> Any:
    """Return a number of an analysis, or a time; ValueError where it is out of range."""
    if name in _WHOLE:
        whole = isinstance(value, float) and value.is_integer()  # a column with missing values makes floats of ints
        return parse_bytes(int(value) if whole else value, name)
    number = finite_or_none(value)
    most = _LARGEST.get(name, math.inf)
    if name in _LARGEST and (number is None or not 0 <= number <= most):
        raise ValueError(f"{name} is {repr_short(value)}: allowed is 0 to {most:g}")
    if number is None or (number <= 0 and name not in _LARGEST):
        raise ValueError(f"{name} is {repr_short(value)}: a positive, finite number is needed")
    return number


def _bytes_text(count: int) -> str:
    """Format bytes in decimal units: '117.45 MB'."""
    units = ("B", "kB", "MB", "GB", "TB")
    place = min((len(str(count)) - 1) // 3, len(units) - 1)
    return f"{format_short(count / 1000**place, '.2f' if place else '.0f')} {units[place]}"


def utilization_table(data: Any, *, peak_gb_s: float | None = None) -> pd.DataFrame:
    """Tabulate each row's bandwidth, its share of the theoretical peak, and its rating.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        From `bwprof.sweep`, `bwprof.load` or others.
    peak_gb_s : float, optional
        The peak of rows that have none.

    Returns
    -------
    pandas.DataFrame
        Columns Kernel, Measured BW, Utilization, Status (excellent above 80 % of the peak, good above 60 %, fair above
        40 %, else poor; "impossible" above the peak, "in doubt" above a stream of its bytes); "-" for what is not
        known, and for hot rows, whose bytes come from a cache.

    Examples
    --------
    >>> row = {"case": "copy", "time_ms": 10.0, "bytes_read": 2e9, "bytes_written": 1e9, "bandwidth_gb_s": 300.0}
    >>> utilization_table(row, peak_gb_s=800.0).values.tolist()
    [['copy', '300 GB/s', '37.5 %', 'poor']]
    """
    frame = BandwidthAnalysis.from_frame(as_frame(data), peak_gb_s=peak_gb_s)
    frame = frame[values.has_time(frame)]
    own, used = numbers(frame, "bandwidth_gb_s"), numbers(frame, "utilization")
    speed = np.where(np.isnan(own), values.moved_bytes(frame) / numbers(frame, "time_ms") / 1e6, own)
    rating = words(frame, "rating").astype(object)
    table = {
        "Kernel": values.labels(frame),
        "Measured BW": ["-" if np.isnan(one) else f"{format_figure(one, whole_from=100)} GB/s" for one in speed],
        "Utilization": ["-" if np.isnan(one) else f"{format_short(100 * one, '.1f')} %" for one in used],
        "Status": np.where(values.is_above_roof(frame) & (rating != IMPOSSIBLE), "in doubt", rating),
    }
    return pd.DataFrame(table).replace({"Status": {"": "-"}}).astype("string")


def speed_of_light(row: Mapping[str, Any] | pd.Series[Any]) -> str:
    """Format the memory and the compute throughput of one row in two lines, each with its peak.

    Examples
    --------
    >>> row = {"bandwidth_gb_s": 3747.07, "peak_gb_s": 4814.3, "tflops": 3.7459, "peak_tflops": 1070.53}
    >>> print(speed_of_light(row))
    Memory Throughput: 3747 GB/s (78% of peak 4814 GB/s)
    Compute Throughput: 3.75 TFLOPS (0.4% of peak 1071 TFLOPS)
    """
    columns = as_row(row)
    names = ("bandwidth_gb_s", "peak_gb_s", "tflops", "peak_tflops")
    gb_s, peak_gb_s, tflops, peak_tflops = (measured_or_none(columns.get(name)) for name in names)
    unknown = "peak unknown"
    if columns.get("cache") == "hot":
        peak_gb_s, unknown = None, "hot: out of a cache, not held against memory"
    memory = _throughput_text(gb_s, peak_gb_s, "GB/s", "bytes_read=, bytes_written=", unknown)
    compute = _throughput_text(tflops, peak_tflops, "TFLOPS", "flops=", "peak unknown")
    return f"Memory Throughput: {memory}\nCompute Throughput: {compute}"


def _throughput_text(reached: float | None, peak: float | None, unit: str, argument: str, unknown: str) -> str:
    if reached is None:
        return f"unknown (pass {argument})"
    speed = format_figure(reached, whole_from=100)
    if peak is None or peak <= 0:
        return f"{speed} {unit} ({unknown})"
    most = format_figure(peak, whole_from=100)
    share = 100 * float(speed) / float(most) if float(speed) and float(most) else 100 * reached / peak
    beyond = ", impossible: check the work, the time and the peak" if reached > ABOVE_PEAK * peak else ""
    return f"{speed} {unit} ({share:.{0 if share >= 10 else 1}f}% of peak {most} {unit}{beyond})"
