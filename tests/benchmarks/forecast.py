"""How well one device's measured rows forecast another's: forecast.py A_LEARN A_TEST B_LEARN B_TEST

The four are runs (folders or files) of two devices; those to learn from may be several, joined by commas. Efficiencies
are learnt from one device's and carried over to the other by the catalogue alone, on shapes that were not learnt from,
in both directions. Printed are the errors of times: median and 90th percentile per operation and precision, in all, and
for the sums over a decode step of the model whose shapes are in the test set.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from common import show

import bwprof
from bwprof.analysis.cards import Card
from bwprof.analysis.efficiencies import Efficiency

# A decode step of Qwen2.5-7B: (parameters, how often), per layer; 28 layers and the head once.
LAYERS = 28


def main(arguments: list[str]) -> int:
    if len(arguments) != 4:
        sys.stderr.write(__doc__ or "")
        return 2
    learn_a, test_a, learn_b, test_b = map(rows_of, arguments)
    forecast(learn_a, test_a, test_b)
    forecast(learn_b, test_b, test_a)
    return 0


def rows_of(given: str) -> pd.DataFrame:
    """Runs as one frame; its metadata are the first's."""
    frames = [bwprof.load(path) for path in given.split(",")]
    attrs = frames[0].attrs
    for frame in frames:
        frame.attrs = {}
    whole = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    whole.attrs = attrs
    return whole


def forecast(learnt: pd.DataFrame, same: pd.DataFrame, other: pd.DataFrame) -> None:
    """Print how far off what was learnt is, on its own device and on another."""
    model = bwprof.efficiency(learnt)
    show(f"\n{learnt['device'].iloc[0]} -> {other['device'].iloc[0]}: {model.rows} rows learnt, {len(other)} forecast")
    mine = errors(model, same, model.card)
    theirs = errors(model, other, str(other["device"].iloc[0]))
    shown = theirs.groupby(["operation", "precision"]).apply(figures, include_groups=False)
    own = mine.groupby(["operation", "precision"]).apply(figures, include_groups=False)[["median_pct", "p90_pct"]]
    shown = shown.join(own.add_suffix("_own_device"))
    show(shown.round(1).to_string())
    show("all: " + ", ".join(f"{name} {value:.3g}" for name, value in figures(theirs).items()))
    show("all, own device: " + ", ".join(f"{name} {value:.3g}" for name, value in figures(mine).items()))


def errors(model: Efficiency, measured: pd.DataFrame, device: str | Card) -> pd.DataFrame:
    """The rows with their forecasts and errors."""
    guessed = bwprof.predict(measured, device=device, efficiency=model)
    found = measured.reset_index(drop=True)[["operation", "precision", "time_ms"]].copy()
    found["forecast_ms"] = guessed["time_ms"]
    found["error"] = found["forecast_ms"] / found["time_ms"] - 1
    found["within"] = guessed["time_ms_lo"].le(found["time_ms"]) & guessed["time_ms_hi"].ge(found["time_ms"])
    return found


def figures(rows: pd.DataFrame) -> pd.Series:
    """Errors in percent; how many times lie within the range that nine of ten should."""
    size = rows["error"].abs()
    return pd.Series(
        {
            "rows": len(rows),
            "median_pct": 100 * size.median(),
            "p90_pct": 100 * size.quantile(0.9),
            "bias_pct": 100 * float(np.exp(np.log1p(rows["error"]).median()) - 1),
            "within_pct": 100 * rows["within"].mean(),
            "sum_pct": 100 * (rows["forecast_ms"].sum() / rows["time_ms"].sum() - 1),
        }
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
