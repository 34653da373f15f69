"""How much time each row loses against the roof that applies, and what that is of a model's step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bwprof.analysis import values

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# The columns that tell one step of a model from another; rows of a step add up.
STEP = ("model", "phase", "step_batch", "context", "weights", "kv", "device", "run_id")
DECODE = "decode"  # the phase in which each sequence gets one new token


@dataclass(frozen=True, slots=True)
class Losses:
    """Per row: percent of its time lost (NaN where no roof is known), ms of a launch lost, launches that it counts for.

    Of a model's step also the ms of the whole step, and the new tokens that it gives; NaN elsewhere.
    """

    pct: NDArray[np.float64]
    lost_ms: NDArray[np.float64]
    count: NDArray[np.float64]
    step_ms: NDArray[np.float64]
    tokens: NDArray[np.float64]

    @property
    def total_ms(self) -> NDArray[np.float64]:
        """Lost over all launches; NaN where not known."""
        return self.lost_ms * self.count

    def tokens_s(self, place: int) -> tuple[float, float]:
        """Tokens a second of the row's step, as it is and without what this row loses; NaN where there is no step."""
        step, lost, tokens = (float(found[place]) for found in (self.step_ms, self.total_ms, self.tokens))
        return tokens / step * 1e3 if step > 0 else math.nan, tokens / (step - lost) * 1e3 if step > lost else math.nan


def losses(data: pd.DataFrame, limits: values.Limits) -> Losses:
    """The losses of a frame's rows, whose limits are known."""
    time_ms = np.where(values.usable(data), values.numbers(data, "time_ms"), math.nan)
    pct = np.clip(100 - limits.pct_limit, 0, 100)
    count = values.counts(data)
    step_ms = np.full(len(data), math.nan)
    tokens = np.full(len(data), math.nan)
    if "count" in data.columns and len(data):
        step_ms, tokens = _steps(data, values.total_ms(data))
    return Losses(np.where(np.isnan(time_ms), math.nan, pct), time_ms * pct / 100, count, step_ms, tokens)


def _steps(data: pd.DataFrame, times: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each row's step: its time, NaN where a row of it has none, and its new tokens."""
    import pandas as pd

    counted = ~np.isnan(values.numbers(data, "count"))
    names = [name for name in STEP if name in data.columns]
    keys = [values.words(data, name).astype(str) for name in names] or [pd.Series("", data.index)]
    whole = pd.Series(times, data.index).groupby(keys, sort=False).transform(lambda found: found.sum(skipna=False))
    batch, context = values.numbers(data, "step_batch"), values.numbers(data, "context")
    batch = np.where(batch > 0, batch, 1.0)
    decoding = values.is_word(data, "phase", DECODE) | (values.words(data, "phase") == "").to_numpy(bool)
    tokens = np.where(decoding, batch, batch * context)
    return np.where(counted, whole.to_numpy(float), math.nan), np.where(counted, tokens, math.nan)
