"""Read frames: numbers, texts, flags, names of rows; and views, a few columns for one question each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import _core, registry
from bwprof.measuring.grade import WAITED
from bwprof.results import columns as results_columns
from bwprof.roofs import limiter as roofs_limiter
from bwprof.roofs.limiter import LIMITERS
from bwprof.text.formatting import is_missing, to_pandas
from bwprof.text.parsing import check_frame, measured_or_nan, number_or_nan, repr_short

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

_WAITED = re.compile(re.escape(WAITED).replace(re.escape("{:.0f}"), r"(\d+)"))

SELECTED = "selected"  # of the stall reasons the one that is no waiting

_FORMATS = ("weights", "kv")  # columns in which rows of a model differ that were measured once

ABOVE_PEAK_PCT = 100 * roofs_limiter.ABOVE_PEAK  # of a theoretical peak


def as_frame(data: Any, name: str = "data") -> pd.DataFrame:
    """A frame of a frame, of a row, or of a list of rows; TypeError for anything else."""
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
        except OverflowError:  # a whole number that no float holds, where pandas looks for a column's type
            return pd.DataFrame(records, dtype=object)
    raise TypeError(
        f"{name} is {repr_short(data)}: a pandas.DataFrame is needed, or a row; bwprof.load reads one from a file"
    )


def numbers(data: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """A column as floats; NaN where it is missing, or holds no number that may have been measured."""
    found: NDArray[np.float64] = roofs_limiter.read_numbers(data, name)
    return found


def words(data: pd.DataFrame, name: str) -> pd.Series[Any]:
    """A column as text, "" where it is missing."""
    import pandas as pd

    if name not in data.columns:
        return pd.Series("", data.index, dtype=object)
    return data[name].astype(object).where(data[name].notna(), "")


def word_codes(data: pd.DataFrame, name: str, allowed: Sequence[str]) -> NDArray[np.int64]:
    """Which of some words a column holds: their places from 1 on, 0 for none of them."""
    import pandas as pd

    if name not in data.columns:
        return np.zeros(len(data), np.int64)
    codes, texts = pd.factorize(data[name])
    places = {word: place for place, word in enumerate(allowed, 1)}
    found = [0 if is_missing(text) else places.get(str(text), 0) for text in texts]
    return np.array([*found, 0], np.int64)[codes]


def is_word(data: pd.DataFrame, name: str, *allowed: str) -> NDArray[np.bool_]:
    """Where a column holds one of some words."""
    return data[name].isin(allowed).to_numpy(bool) if name in data.columns else np.zeros(len(data), bool)


def on_host(data: pd.DataFrame) -> NDArray[np.bool_]:
    """Where a row is a CPU's, of which no counters are read."""
    hosts = [name for name in registry.backend_names() if _core.backend_facts(name)["runs_on_host"]]
    return is_word(data, "backend", *hosts)


def has_flag(data: pd.DataFrame, flag: str) -> NDArray[np.bool_]:
    """Where the column of flags has one."""
    import pandas as pd

    if "flags" not in data.columns:
        return np.zeros(len(data), bool)
    codes, texts = pd.factorize(data["flags"])
    held = np.array([not is_missing(text) and flag in str(text).split(";") for text in texts] + [False], bool)
    return held[codes]


def has_time(data: pd.DataFrame) -> NDArray[np.bool_]:
    """Where a row has a time: measured, or predicted; what failed or was skipped has nothing to say."""
    return (numbers(data, "time_ms") > 0) & words(data, "status").isin(["", "ok", "predicted"]).to_numpy(bool)


def moved_bytes(data: pd.DataFrame) -> NDArray[np.float64]:
    """Compulsory bytes read and written; where only one kind is known, what the rate makes of the time."""
    read, written = numbers(data, "bytes_read"), numbers(data, "bytes_written")
    one = np.isnan(read) != np.isnan(written)
    return np.where(one, numbers(data, "bandwidth_gb_s") * numbers(data, "time_ms") * 1e6, read + written)


@dataclass(frozen=True, slots=True)
class LimiterColumns:
    """What limits each row: its ridge (FLOP/B), its share of the roof that applies (percent), and which that is.

    `limiter` holds places in LIMITERS from 1 on, 0 where it is not known.
    """

    ridge: NDArray[np.float64]
    pct_limit: NDArray[np.float64]
    limiter: NDArray[np.int64]

    def by(self, *names: str) -> NDArray[np.bool_]:
        """Where it is one of some limiters."""
        return np.isin(self.limiter, [LIMITERS.index(name) + 1 for name in names])


def limiter_columns(data: pd.DataFrame) -> LimiterColumns:
    """The columns of limits of a frame, worked out for the rows that have none, or beat the rate measured."""
    found = LimiterColumns(numbers(data, "ridge"), numbers(data, "pct_limit"), word_codes(data, "limiter", LIMITERS))
    if "measured_tflops" in data.columns:
        faster = roofs_limiter.find_beaten_rows(data)
        found.pct_limit[faster], found.limiter[faster] = math.nan, 0
    missing = (numbers(data, "time_ms") > 0) & (np.isnan(found.pct_limit) | (found.limiter == 0))
    if missing.any():
        names = [name for name in _limiting() if name in data.columns]  # without texts, which only cost time
        rest = roofs_limiter.classify_frame(data[names] if missing.all() else data.loc[missing, names])
        for own, made in ((found.ridge, rest.ridge), (found.pct_limit, rest.pct_limit)):
            own[missing] = np.where(np.isnan(own[missing]), made, own[missing])
        found.limiter[missing] = np.where(found.limiter[missing] == 0, rest.limiter_code, found.limiter[missing])
    return found


@cache
def _limiting() -> tuple[str, ...]:
    """The columns that may say what limits a row."""
    groups = ("time", "work", "roofs")
    return ("cache", "status", *(column.name for column in results_columns.all_columns() if column.group in groups))


def pct_attained(data: pd.DataFrame) -> NDArray[np.float64]:
    """Percent of what a stream of the same bytes reaches: the column, else from the two it is made of."""
    own, roof = numbers(data, "pct_attainable"), numbers(data, "attainable_gb_s")
    made = 100 * numbers(data, "bandwidth_gb_s") / np.where(roof > 0, roof, math.nan)
    return np.where(np.isnan(own), made, own)


def is_above_roof(data: pd.DataFrame) -> NDArray[np.bool_]:
    """Where a row is faster than a stream of the same bytes, or theory, allows: suspect, and no success."""
    with np.errstate(invalid="ignore"):
        above = has_flag(data, "above_attainable") | (pct_attained(data) > 100 * roofs_limiter.ABOVE_ROOF)
        cold = ~is_word(data, "cache", "hot")
        for reached, peak, where in (("bandwidth_gb_s", "peak_gb_s", cold), ("tflops", "peak_tflops", True)):
            above |= where & (numbers(data, reached) > roofs_limiter.ABOVE_PEAK * numbers(data, peak))
        return above


def stored_ratio(data: pd.DataFrame) -> NDArray[np.float64]:
    """Bytes that the variant moves, intermediates included, over the compulsory ones."""
    read, written = numbers(data, "algorithmic_bytes_read"), numbers(data, "algorithmic_bytes_written")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (read + written) / moved_bytes(data)
    return np.where(np.isfinite(ratio), ratio, math.nan)


def stall_share(data: pd.DataFrame, *reasons: str) -> NDArray[np.float64]:
    """What share of all waiting of a launch's warps some reasons are, in percent; NaN where no stalls were counted."""
    import pandas as pd

    if "stall_reasons" not in data.columns:
        return np.full(len(data), math.nan)
    codes, texts = pd.factorize(data["stall_reasons"])
    held = [parse_stalls(str(text)) for text in texts]
    shares = [sum(one.get(reason, 0.0) for reason in reasons) if one else math.nan for one in held]
    return np.array([*shares, math.nan], float)[codes]


def parse_stalls(text: str) -> dict[str, float]:
    """Reasons of a column `stall_reasons` in percent of all waiting; empty where there are none."""
    found: dict[str, float] = {}
    for part in text.split(";"):
        name, _, value = part.partition("=")
        number = measured_or_nan(number_or_nan(value))
        if name.strip() and number >= 0:
            found[name.strip()] = number
    found.pop(SELECTED, None)
    whole = sum(found.values())
    return {name: 100 * value / whole for name, value in found.items()} if whole > 0 else {}


def waiting_share(data: pd.DataFrame) -> NDArray[np.float64]:
    """For what percent of the time the GPU waited between a call's kernels, as its row's reason says; else NaN."""
    import pandas as pd

    if "reason" not in data.columns:
        return np.full(len(data), math.nan)
    codes, texts = pd.factorize(data["reason"])
    found = [_WAITED.search(str(text)) for text in texts]
    return np.array([*(math.nan if one is None else float(one[1]) for one in found), math.nan], float)[codes]


def drop_repeated_shapes(data: pd.DataFrame) -> pd.DataFrame:
    """The rows, those of a model's shape once that stands in several of its steps, which differ in their formats."""
    if not {"model", *_FORMATS} <= set(data.columns):
        return data
    return data[~data.duplicated(data.columns.difference(list(_FORMATS)))]


def counts(data: pd.DataFrame) -> NDArray[np.float64]:
    """How often each row's launch happens: the column `count`, one where there is none."""
    found = numbers(data, "count")
    return np.where(found >= 0, found, 1.0)


def total_ms(data: pd.DataFrame) -> NDArray[np.float64]:
    """Each row's time over all its launches, ms; NaN where it has none, and 0 for what is launched never."""
    count = counts(data)
    return np.where(count > 0, np.where(has_time(data), numbers(data, "time_ms"), math.nan) * count, 0.0)


_NAMES = ("case", "operation", "precision")

# What a label says beside these, and how, where that tells rows apart: a shape stands in several of a model's steps.
_APART = {"variant": "{}", "weights": "weights {}", "kv": "cache {}"}


def labels(data: pd.DataFrame) -> list[str]:
    """What tables call each row: its case and precision; its variant, or formats, too, where these tell rows apart."""
    return labels_at(data, np.arange(len(data)))


def labels_at(data: pd.DataFrame, places: NDArray[np.int64]) -> list[str]:
    """The same of some rows, told apart from all others of the frame that have their case and precision."""
    import pandas as pd

    kept = np.arange(len(data))
    if len(places) < len(data):
        for name in _NAMES:
            if name in data.columns:
                column = data[name] if len(kept) == len(data) else data[name].iloc[kept]
                kept = kept[column.isin(data[name].iloc[places].unique()).to_numpy(bool)]
    few = data.iloc[kept]
    key = np.zeros(len(few), np.int64)
    for name in _NAMES:
        found = _codes(few, name)
        key = key * (int(found.max(initial=0)) + 2) + found + 1
    again: dict[str, dict[int, bool]] = {}  # by row, whether others with its key have another word
    for name in (name for name in _APART if name in data.columns):
        several = pd.Series(_codes(few, name)).groupby(key).transform("nunique") > 1
        again[name] = dict(zip(kept.tolist(), several.tolist(), strict=True))
    few = data.iloc[places]
    case, operation, precision = (words(few, name).astype(str).tolist() for name in _NAMES)
    apart = {name: words(few, name).astype(str).tolist() for name in again}
    hot = is_word(few, "cache", "hot")
    told = []
    for at, place in enumerate(places.tolist()):
        own = {name: _APART[name].format(apart[name][at]) for name in again if again[name][place] and apart[name][at]}
        variant = own.pop("variant", "")
        more = ", ".join([*own.values(), *(["hot"] if hot[at] else [])])
        parts = (case[at] or operation[at], precision[at], variant, f"({more})" if more else "")
        told.append(" ".join(part for part in parts if part) or f"row {place}")
    return told


def _codes(data: pd.DataFrame, name: str) -> NDArray[np.int64]:
    import pandas as pd

    return pd.factorize(data[name])[0] if name in data.columns else np.full(len(data), -1, np.int64)


def as_row(row: Any, name: str = "row") -> dict[str, Any]:
    """A row of any kind as a dict from columns to values, None for what is missing; TypeError for what is no row."""
    if hasattr(row, "columns") and hasattr(row, "iloc"):
        raise TypeError(f"{name} is a frame: a row is needed, frame.iloc[0] say")
    if not isinstance(row, Mapping) and not hasattr(row, "to_dict"):
        raise TypeError(f"{name} is {repr_short(row)}: a row is needed, a mapping or a pandas.Series")
    found = dict(row) if isinstance(row, Mapping) else row.to_dict()
    return {str(key): None if is_missing(value) else value for key, value in found.items()}
