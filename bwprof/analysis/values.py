"""Read frames: numbers, words, flags, limits and the names of rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import _core, registry
from bwprof.measuring.grade import WAITED
from bwprof.results import schema
from bwprof.roofs import limiter as roofs_limiter
from bwprof.roofs.limiter import LIMITERS
from bwprof.text.formatting import is_missing, to_pandas
from bwprof.text.parsing import check_frame, measured_or_nan, number_or_nan, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_WAITED = re.compile(re.escape(WAITED).replace(re.escape("{:.0f}"), r"(\d+)"))

SELECTED = "selected"  # the stall reason of a warp that issues
ABOVE_PEAK_PCT = 100 * roofs_limiter.ABOVE_PEAK  # of a theoretical peak

_FORMATS = ("weights", "kv")  # columns that differ between model steps which share a measured shape


def as_frame(data: Any, name: str = "data") -> pd.DataFrame:
    """Convert a frame, a row or a list of rows to a frame; TypeError for anything else."""
    import pandas as pd

    data = to_pandas(data)
    if isinstance(data, pd.DataFrame):
        check_frame(data, name)
        return data
    rows = [data] if isinstance(data, Mapping) else data
    if isinstance(rows, pd.Series) and rows.index.is_unique and all(isinstance(name, str) for name in rows.index):
        rows = [rows.to_dict()]
    if isinstance(rows, (list, tuple)) and all(isinstance(row, (Mapping, pd.Series)) for row in rows):
        records = [dict(row) for row in rows]
        try:
            return pd.DataFrame(records)
        except OverflowError:  # pandas infers no type for a whole number beyond the floats
            return pd.DataFrame(records, dtype=object)
    raise TypeError(f"{name} is {repr_short(data)}: a pandas.DataFrame is needed, or a row; bwprof.load reads files")


def numbers(data: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """Read a column as floats; NaN for what is missing or cannot be a measurement."""
    return np.asarray(roofs_limiter.read_numbers(data, name), float)


def words(data: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Read a column as text; "" for what is missing."""
    import pandas as pd

    if name not in data.columns:
        return pd.Series("", data.index, dtype=object)
    return data[name].astype(object).where(data[name].notna(), "")


def map_distinct(data: pd.DataFrame, name: str, convert: Any, missing: Any) -> NDArray[Any]:
    """Convert each distinct value of a column once; `missing` where there is no column or no value."""
    import pandas as pd

    if name not in data.columns:
        return np.full(len(data), missing)
    codes, texts = pd.factorize(data[name])
    return np.array([*(missing if is_missing(text) else convert(str(text)) for text in texts), missing])[codes]


def word_codes(data: pd.DataFrame, name: str, allowed: Sequence[str]) -> NDArray[np.int64]:
    """Return the places of a column's words in `allowed`, from 1 on; 0 for other words."""
    places = {word: place for place, word in enumerate(allowed, 1)}
    return map_distinct(data, name, lambda text: places.get(text, 0), 0).astype(np.int64)


def is_word(data: pd.DataFrame, name: str, *allowed: str) -> NDArray[np.bool_]:
    """Check where a column has one of some words."""
    return data[name].isin(allowed).to_numpy(bool) if name in data.columns else np.zeros(len(data), bool)


def on_host(data: pd.DataFrame) -> NDArray[np.bool_]:
    """Check which rows are a CPU's, of which no counters are read."""
    hosts = [name for name in registry.backend_names() if _core.backend_facts(name)["runs_on_host"]]
    return is_word(data, "backend", *hosts)


def has_flag(data: pd.DataFrame, flag: str) -> NDArray[np.bool_]:
    """Check which rows have a flag."""
    return map_distinct(data, "flags", lambda text: flag in text.split(";"), False)


def has_time(data: pd.DataFrame) -> NDArray[np.bool_]:
    """Check which rows have a time, measured or predicted."""
    return (numbers(data, "time_ms") > 0) & words(data, "status").isin(["", "ok", "predicted"]).to_numpy(bool)


def moved_bytes(data: pd.DataFrame) -> NDArray[np.float64]:
    """Sum compulsory bytes; where only reads or writes are known, multiply rate and time."""
    read, written = numbers(data, "bytes_read"), numbers(data, "bytes_written")
    by_rate = numbers(data, "bandwidth_gb_s") * numbers(data, "time_ms") * 1e6
    return np.where(np.isnan(read) != np.isnan(written), by_rate, read + written)


@dataclass(frozen=True, slots=True)
class LimiterColumns:
    """Each row's ridge (FLOP/B), its percentage of the roof that applies, and its limiter.

    `limiter` has places in LIMITERS from 1 on, 0 where it is not known.
    """

    ridge: NDArray[np.float64]
    pct_limit: NDArray[np.float64]
    limiter: NDArray[np.int64]

    def by(self, *names: str) -> NDArray[np.bool_]:
        """Check where it is one of some limiters."""
        return np.isin(self.limiter, [LIMITERS.index(name) + 1 for name in names])


def limiter_columns(data: pd.DataFrame) -> LimiterColumns:
    """Read the limits of a frame; derive those that are missing, or whose row beats the measured rate."""
    limits = LimiterColumns(numbers(data, "ridge"), numbers(data, "pct_limit"), word_codes(data, "limiter", LIMITERS))
    if "measured_tflops" in data.columns:
        faster = roofs_limiter.find_beaten_rows(data)
        limits.pct_limit[faster], limits.limiter[faster] = math.nan, 0
    missing = (numbers(data, "time_ms") > 0) & (np.isnan(limits.pct_limit) | (limits.limiter == 0))
    if missing.any():
        names = [name for name in _limit_inputs() if name in data.columns]  # fewer columns are faster
        derived = roofs_limiter.classify_frame(data[names] if missing.all() else data.loc[missing, names])
        for own, other in ((limits.ridge, derived.ridge), (limits.pct_limit, derived.pct_limit)):
            own[missing] = np.where(np.isnan(own[missing]), other, own[missing])
        limits.limiter[missing] = np.where(limits.limiter[missing] == 0, derived.limiter_code, limits.limiter[missing])
    return limits


@cache
def _limit_inputs() -> tuple[str, ...]:
    groups = ("time", "work", "roofs")
    return ("cache", "status", *(column.name for column in schema.all_columns() if column.group in groups))


def pct_attained(data: pd.DataFrame) -> NDArray[np.float64]:
    """Read the percentage of a stream of the same bytes, or compute it."""
    own, roof = numbers(data, "pct_attainable"), numbers(data, "attainable_gb_s")
    return np.where(np.isnan(own), 100 * numbers(data, "bandwidth_gb_s") / np.where(roof > 0, roof, math.nan), own)


def is_above_roof(data: pd.DataFrame) -> NDArray[np.bool_]:
    """Check which rows are faster than a stream of the same bytes, or theory, allows."""
    with np.errstate(invalid="ignore"):
        above = has_flag(data, "above_attainable") | (pct_attained(data) > 100 * roofs_limiter.ABOVE_ROOF)
        cold = ~is_word(data, "cache", "hot")
        for reached, peak, where in (("bandwidth_gb_s", "peak_gb_s", cold), ("tflops", "peak_tflops", True)):
            above |= where & (numbers(data, reached) > roofs_limiter.ABOVE_PEAK * numbers(data, peak))
        return above


def stored_ratio(data: pd.DataFrame) -> NDArray[np.float64]:
    """Divide the bytes that a variant moves, intermediates included, by the compulsory ones."""
    read, written = numbers(data, "algorithmic_bytes_read"), numbers(data, "algorithmic_bytes_written")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (read + written) / moved_bytes(data)
    return np.where(np.isfinite(ratio), ratio, math.nan)


def stall_share(data: pd.DataFrame, *reasons: str) -> NDArray[np.float64]:
    """Sum the percentages of some stall reasons; NaN where no stalls were counted."""

    def share(text: str) -> float:
        stalls = parse_stalls(text)
        return sum(stalls.get(reason, 0.0) for reason in reasons) if stalls else math.nan

    return map_distinct(data, "stall_reasons", share, math.nan)


def parse_stalls(text: str) -> dict[str, float]:
    """Parse a cell of `stall_reasons` into percentages of all waiting; empty where there are none."""
    stalls: dict[str, float] = {}
    for part in text.split(";"):
        name, _, value = part.partition("=")
        number = measured_or_nan(number_or_nan(value))
        if name.strip() and number >= 0:
            stalls[name.strip()] = number
    stalls.pop(SELECTED, None)
    total = sum(stalls.values())
    return {name: 100 * value / total for name, value in stalls.items()} if total > 0 else {}


def parse_waiting(reason: str) -> float:
    """Parse the percentage of the time in which the GPU waited between kernels; NaN where a reason has none."""
    match = _WAITED.search(reason)
    return float(match[1]) if match else math.nan


def drop_repeated_shapes(data: pd.DataFrame) -> pd.DataFrame:
    """Drop the repeated rows of a shape that several steps of a model share in different formats."""
    if not {"model", *_FORMATS} <= set(data.columns):
        return data
    return data[~data.duplicated(data.columns.difference(list(_FORMATS)))]


def counts(data: pd.DataFrame) -> NDArray[np.float64]:
    """Read how often each row's launch happens: the column `count`, else 1."""
    column = numbers(data, "count")
    return np.where(column >= 0, column, 1.0)


def total_ms(data: pd.DataFrame) -> NDArray[np.float64]:
    """Multiply each row's time by its launches, ms; NaN without a time, 0 without a launch."""
    count = counts(data)
    return np.where(count > 0, np.where(has_time(data), numbers(data, "time_ms"), math.nan) * count, 0.0)


_NAMES = ("case", "operation", "precision")

_DETAILS = {"weights": "weights {}", "kv": "cache {}", "hot": "{}"}  # of a label, in brackets


def labels(data: pd.DataFrame) -> list[str]:
    """Name each row by case and precision; add variant or formats where only these tell rows apart."""
    return labels_at(data, np.arange(len(data)))


def labels_at(data: pd.DataFrame, places: NDArray[np.int64]) -> list[str]:
    """Name some rows so that they differ from all others of the frame with their case and precision."""
    import pandas as pd

    few, keys = data.iloc[places], [name for name in _NAMES if name in data.columns]
    twins = np.ones(len(data), bool)  # rows that may have the names of the few
    for name in keys:
        twins &= data[name].isin(few[name].unique()).to_numpy(bool)
    groups = [data[key].to_numpy()[twins] for key in keys] or [np.zeros(twins.sum())]
    texts = pd.DataFrame({name: words(few, name).astype(str).tolist() for name in (*_NAMES, "variant", *_FORMATS)})
    for name in ("variant", *_FORMATS):
        apart = np.zeros(len(data), bool)
        if name in data.columns:
            apart[twins] = data[name][twins].groupby(groups, sort=False, dropna=False).transform("nunique") > 1
        texts.loc[~apart[places], name] = ""
    texts["hot"] = np.where(is_word(few, "cache", "hot"), "hot", "")
    found = []
    for place, row in zip(places.tolist(), texts.to_dict("records"), strict=True):
        more = ", ".join(_DETAILS[name].format(row[name]) for name in ("weights", "kv", "hot") if row[name])
        parts = (row["case"] or row["operation"], row["precision"], row["variant"], f"({more})" if more else "")
        found.append(" ".join(filter(None, parts)) or f"row {place}")
    return found


def as_row(row: Any, name: str = "row") -> dict[str, Any]:
    """Convert a row to a dict from columns to values, None for what is missing; TypeError for anything else."""
    if getattr(row, "ndim", 0) == 2:
        raise TypeError(f"{name} is a frame: a row is needed, frame.iloc[0] say")
    if not isinstance(row, Mapping) and not hasattr(row, "to_dict"):
        raise TypeError(f"{name} is {repr_short(row)}: a row is needed, a mapping or a pandas.Series")
    columns = dict(row) if isinstance(row, Mapping) else row.to_dict()
    return {str(key): None if is_missing(value) else value for key, value in columns.items()}
