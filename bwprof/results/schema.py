"""The row, schema v1: which columns there are, in which order, of which type, and what they mean.

A row is a plain dict from column to value, with None for "not measured"; frames, CSV and JSON are made from it.
The parameters of the operations are columns too: they are read from the registry, so that a new operation's
parameters need no change here.
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from bwprof import _core
from bwprof.names import shown

SCHEMA_VERSION = 1

Kind = Literal["text", "integer", "number", "truth"]
Row = dict[str, Any]

DTYPES: dict[Kind, str] = {"text": "string", "integer": "Int64", "number": "float64", "truth": "boolean"}

STATUSES = ("ok", "skipped", "failed", "predicted")

MOST_TEXT = 32_000  # letters: a cell of a spreadsheet holds so many, and 131 072 are too many for Python's CSV reader
_BREAK = re.compile(r"\r\n|[\r\n]")

# Words of the column `flags`.
FLAGS = {
    "above_attainable": "faster than a plain stream of the same bytes: see the row's reason",
    "near_timer_floor": "within three times an empty launch",
    "not_cold": "inputs may have been in the cache",
    "not_converged": "the confidence interval is wider than asked",
    "throttled": "the clock was held down",
    "noisy": "the samples lie far apart, or something else used the CPUs or their memory: see the row's reason",
    "noisy_roof": "what it is graded against is itself in doubt: see the row's reason",
    "single_thread": "ran on one thread: the reason says whether it is held against the roofs of one",
    "event_bias": "timed by event pairs, which add a few microseconds",
    "unverified": "the result was not checked",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, kind, and one line for people (with the unit)."""

    name: str
    kind: Kind
    text: str


def _columns(kind: Kind, **texts: str) -> list[Column]:
    return [Column(name, kind, text) for name, text in texts.items()]


_CLASSIC = (
    Column("operation", "text", "operation measured"),
    Column("precision", "text", "storage type of the operands"),
    Column("M", "integer", "rows of the result"),
    Column("N", "integer", "columns of the result"),
    Column("K", "integer", "reduction length"),
    Column("time_ms", "number", "median time of one launch, ms"),
    Column("bandwidth_gb_s", "number", "(bytes_read + bytes_written) / time, GB/s (10^9 bytes): effective bandwidth"),
    Column("bytes_read", "integer", "compulsory bytes read: each operand once"),
    Column("bytes_written", "integer", "compulsory bytes written"),
)

CLASSIC_NAMES = tuple(column.name for column in _CLASSIC)

# Parameters that have their place; others follow in the registry's order.
_PARAM_ORDER = ("batch", "seq_len", "kv_len", "num_heads", "num_kv_heads", "head_dim", "page_size", "causal")

_IDENTITY = _columns(
    "text",
    kv_lens="lengths of a batch's entries, joined by ';', where they differ",
    backend="cuda or cpu",
    device="device's name",
    variant="kernel that ran",
    status="ok, skipped, failed or predicted",
    reason="why, in plain words",
)

_METHOD = [
    *_columns(
        "text",
        timer="graph, events or cupti on a GPU, monotonic on a CPU",
        cache="cold: inputs outside the cache at every launch; hot: one buffer set",
    ),
    *_columns(
        "integer",
        buffer_sets="sets of buffers rotated through",
        launches_per_sample="launches timed together",
        samples="samples taken",
    ),
    *_columns("truth", converged="the confidence interval became narrow enough within the time limit"),
    *_columns("integer", seed="seed of the inputs"),
]

_TIME = _columns(
    "number",
    time_ms_lo="lower end of the median's 95 % confidence interval, ms",
    time_ms_hi="upper end, ms",
    time_ms_min="fastest sample, ms",
    noise="interquartile range / median",
    timer_floor_us="time of an empty kernel under the same timer, us",
    host_launch_us="host time to start one launch, us",
)

_WORK = [
    *_columns("integer", flops="floating-point operations, multiply and add counted separately"),
    *_columns("number", tflops="flops / time, 10^12 per second", arithmetic_intensity="flops per compulsory byte"),
    *_columns(
        "integer",
        algorithmic_bytes_read="bytes this variant reads, intermediates included",
        algorithmic_bytes_written="bytes this variant writes, intermediates included",
        footprint_bytes="memory that one launch touches",
    ),
]

_ROOFS = [
    *_columns(
        "number",
        peak_gb_s="theoretical memory bandwidth, GB/s",
        ceiling_gb_s="best measured by a plain stream of the same read/write mix, GB/s",
        attainable_gb_s="what a plain stream of the same bytes and mix reaches, cold, GB/s",
        pct_peak="bandwidth / peak, %",
        pct_ceiling="bandwidth / ceiling, %",
        pct_attainable="bandwidth / attainable, %: the grade of a kernel at any size",
        peak_tflops="dense arithmetic rate, TFLOP/s: theoretical on a GPU, measured in registers on a CPU",
        roofline_tflops="min(peak_tflops, arithmetic_intensity x ceiling), TFLOP/s",
        pct_roofline="tflops / roofline, %",
    ),
    *_columns("text", bound="what limits it: memory, compute or latency"),
]

_COUNTERS = [
    *_columns(
        "integer",
        dram_bytes_read="DRAM bytes read by a cold launch, counted",
        dram_bytes_written="written, likewise",
    ),
    *_columns("number", dram_gb_s="counted DRAM bytes / time, GB/s"),
    *_columns("integer", l2_bytes="L2 bytes, counted"),
    *_columns("number", traffic_ratio="counted / algorithmic bytes"),
    *_columns("text", counters_status="ok, or why nothing was counted and what to do; empty: not asked for"),
]

_CONDITIONS = [
    *_columns(
        "number",
        energy_j="energy of one launch, J; only where the samples took longer than a second or so",
        power_w="power between the samples, median, W; only where they took longer than 0.2 s",
        sm_clock_mhz="multiprocessor clock between the samples, median, MHz",
        mem_clock_mhz="memory clock, median, MHz",
        temperature_c="highest temperature, degrees C",
    ),
    *_columns(
        "text",
        throttle="why the clock was held down: sw_power_cap, hw_slowdown, sw_thermal, hw_thermal, power_brake, "
        "joined by ';'; none when it was not",
    ),
]

_TRUST = [
    *_columns("truth", verified="agreed with the float64 reference before and after the timing"),
    *_columns(
        "number",
        max_error="the error nearest to its tolerance, or furthest past it",
        tolerance="what that error may be",
    ),
    *_columns("text", flags=f"what should make a reader doubt the row: {', '.join(FLAGS)}; joined by ';'"),
]

_COMPARISON = _columns(
    "number",
    speedup_vs_fp32="FP32 time / time of the same configuration",
    bandwidth_vs_fp32="GB/s / FP32 GB/s",
    byte_ratio_vs_fp32="FP32 bytes / bytes; speed-up = byte ratio x bandwidth ratio",
)

_PROVENANCE = [
    *_columns(
        "text",
        run_id="run that this row belongs to",
        timestamp="when it was measured, UTC",
        device_uuid="device's UUID",
        driver="driver's version (or the CUDA version that it supports); the kernel's release on a CPU",
        bwprof_version="version that measured it",
    ),
    *_columns("integer", schema_version="version of these columns"),
]

# Behind all others: columns that came later leave the earlier ones where they were.
_LATER = [
    *_columns(
        "integer",
        rows_checked="rows of the output, or parts of long ones, held against the reference in the last check",
        rows_total="how many of them there are",
    ),
    *_columns("number", measured_tflops="best rate of a large matrix product in this precision, measured, TFLOP/s"),
]

METRICS = [
    *_columns(
        "number",
        tensor_pct="tensor pipe busy, % of its peak over the active cycles (this and what follows: on request)",
        fma_pct="FMA pipe busy, likewise",
        occupancy_pct="warps resident, % of the most possible",
    ),
    *_columns("text", stall_reasons="why warps waited: reason=warps per issued instruction, joined by ';'"),
    *_columns(
        "integer",
        bank_conflicts="bank conflicts in shared memory",
        shared_wavefronts="accesses to shared memory, conflicts included",
    ),
    *_columns(
        "number",
        sectors_per_load="sectors of 32 bytes for each load request of a warp to global memory",
        sectors_per_store="for each store request, likewise",
    ),
    *_columns("text", metrics_status="ok, or which metrics were not counted and why; empty: not asked for"),
]

_REPLACES = Column(
    "replaces", "text", "timestamp of an earlier row of the same case that this one stands in for: it was disturbed"
)

METRIC_NAMES = frozenset(column.name for column in METRICS if column.kind != "text")
COMPARISON_NAMES = tuple(column.name for column in _COMPARISON)


@cache
def param_columns() -> tuple[Column, ...]:
    """One column per parameter of any operation, without those that the classic columns have."""
    found: dict[str, Column] = {}
    for operation in _core.operations():
        for param in operation["params"]:
            unit = f", {param['unit']}" if param["unit"] else ""
            found.setdefault(param["name"], Column(param["name"], "integer", param["text"] + unit))
    placed = [found.pop(name) for name in _PARAM_ORDER if name in found]
    return tuple(placed + [column for name, column in found.items() if name not in CLASSIC_NAMES])


@cache
def columns() -> tuple[Column, ...]:
    """Every column, in the order of the CSV file."""
    case = Column("case", "text", "configuration's name")
    groups = (
        _METHOD,
        _TIME,
        _WORK,
        _ROOFS,
        _COUNTERS,
        _CONDITIONS,
        _TRUST,
        _COMPARISON,
        _PROVENANCE,
        _LATER,
        METRICS,
    )
    rest = [column for group in groups for column in group]
    return (*_CLASSIC, case, *param_columns(), *_IDENTITY, *rest, _REPLACES)


@cache
def names() -> tuple[str, ...]:
    """The columns' names, in order."""
    return tuple(column.name for column in columns())


@cache
def kinds() -> dict[str, Kind]:
    """Column -> kind."""
    return {column.name: column.kind for column in columns()}


@cache
def all_param_names() -> tuple[str, ...]:
    """Every parameter of any operation, the classic ones included."""
    given = {param["name"] for operation in _core.operations() for param in operation["params"]}
    return tuple(name for name in names() if name in given)


def empty_row() -> Row:
    """A row of which nothing is known yet."""
    return dict.fromkeys(names())


def is_missing(value: Any) -> bool:
    """None, NaN and <NA> are missing; zero and "" are not."""
    if value is None:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


def clean(text: str) -> str:
    """Text as every file can hold it: one line, no lone surrogates, at most `MOST_TEXT` letters.

    What is cut says how long it was, and carries a digest: other texts stay other texts.

    Examples
    --------
    >>> clean("two\\r\\nlines")
    'two lines'
    """
    if "\n" in text or "\r" in text:
        text = _BREAK.sub(" ", text)
    text = encodable(text)
    if len(text) > MOST_TEXT:
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
        note = f"... ({len(text)} letters, sha256 {digest})"
        text = text[: MOST_TEXT - len(note)] + note
    return text


def encodable(text: str) -> str:
    """Text without lone surrogates (bytes of an argument that were no text): they become words, as in a repr."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def free(value: Any) -> Any:
    """A value of a column that is not the schema's: missing is None, text is `clean`, NumPy's scalars are Python's."""
    if is_missing(value):
        return None
    if isinstance(value, str):
        return clean(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return free(value.item())
    return value


def precision_text(given: str, *, bare: bool = False) -> str:
    """A precision's name: of those that bwprof has in lower case, and of a `bare` file all; a caller's own as it is."""
    lowered = given.strip().lower()
    return lowered if bare or lowered in _precisions() else given


@cache
def _precisions() -> frozenset[str]:
    return frozenset(found["name"] for found in _core.precisions())


def normalise(value: Any, kind: Kind) -> Any:
    """A value as rows hold it: None, str, int, float or bool.

    Raises
    ------
    ValueError
        When the value cannot be read as `kind`.
    """
    if is_missing(value):
        return None
    if kind == "text":
        if isinstance(value, (dict, list, tuple)):
            raise TypeError("text is needed")
        return clean(str(value))
    if kind == "truth":
        return _truth(value)
    if isinstance(value, str) and not value.strip():
        return None
    if kind == "integer":
        return _integer(value)
    number = float(value)
    return None if math.isnan(number) else number


def _integer(value: Any) -> int | None:
    """ValueError for a fraction, infinity, and what a column of 64 bits cannot hold."""
    try:
        whole = operator.index(value) if not isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        number = float(value)
        if math.isnan(number):
            return None
        if not number.is_integer():
            raise ValueError(f"{shown(value)} is not a whole number") from None
        whole = int(number)
    if not -(2**63) <= whole < 2**63:
        raise ValueError(f"{shown(value)} does not fit in 64 bits")
    return whole


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in ("", "nan"):
            return None
        if lowered in ("true", "1"):
            return True
        if lowered in ("false", "0"):
            return False
        raise ValueError(f"{shown(value)} is neither True nor False")
    if value not in (0, 1):
        raise ValueError(f"{shown(value)} is neither True nor False")
    return bool(value)


def normalise_row(row: Row) -> Row:
    """Every column once, in order, in the kinds of the schema; then the columns that are not the schema's."""
    result: Row = {}
    for column in columns():
        try:
            result[column.name] = normalise(row.get(column.name), column.kind)
        except (OverflowError, TypeError, ValueError):
            found = shown(row[column.name])
            raise ValueError(f"column {column.name}: {found} is not {said(column.kind)}") from None
    for name, value in row.items():
        if name not in result:
            result[clean(name)] = free(value)
    return result


def more_names(rows: Iterable[Row]) -> list[str]:
    """The columns of rows that are not the schema's (a caller's labels), in the order in which they come."""
    known = kinds()
    return list(dict.fromkeys(name for row in rows for name in row if name not in known))


def said(kind: Kind) -> str:
    """What a column of a kind holds, in words."""
    return {"text": "text", "integer": "a whole number", "number": "a number", "truth": "True or False"}[kind]


def check_version(version: Any, source: str) -> None:
    """ValueError for results written by a later bwprof, and for what is no version; None was written by others."""
    if version is None or (type(version) is int and 1 <= version <= SCHEMA_VERSION):
        return
    if type(version) is int and version > SCHEMA_VERSION:
        raise ValueError(
            f"{source} has schema version {version}; this bwprof reads up to {SCHEMA_VERSION}: install a newer one"
        )
    raise ValueError(f"{source} has schema version {shown(version)}: a whole number from 1 is needed")
