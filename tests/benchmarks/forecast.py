"""How well one device's measured rows forecast another's: forecast.py A_LEARN A_TEST B_LEARN B_TEST

The four are runs (folders or files) of two devices; those to learn from may be several, joined by commas. Efficiencies
are learned from one device's and carried over to the other by the catalog alone, on shapes that were not learned from,
in both directions. Printed are the errors of times: median and 90th percentile per operation and precision, in all, and
for the sums over a decode step of the model whose shapes are in the test set. Last, the same of all shapes together, an
eighth at a time left out of learning: what more layouts to learn from bring.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from common import show

import bwprof
from bwprof.analysis.prediction.catalog import Card
from bwprof.analysis.prediction.efficiency import Efficiency
from bwprof.results import schema


@dataclass(frozen=True)
class Model:
    """A decode step of one sequence: products (N, K) of a layer and how often each is in it, the head, its cache."""

    name: str
    layers: int
    products: dict[tuple[int, int], int]
    head: tuple[int, int]
    heads: tuple[int, int, int]  # query heads, heads of the cache, elements of a head


FORECAST = Model(
    "Qwen2.5-7B",
    28,
    {(4608, 3584): 1, (3584, 3584): 1, (18944, 3584): 2, (3584, 18944): 1},
    (152064, 3584),
    (28, 4, 128),
)
LEARNED = Model(
    "Llama-3.1-8B",
    32,
    {(4096, 4096): 2, (1024, 4096): 2, (14336, 4096): 2, (4096, 14336): 1},
    (128256, 4096),
    (32, 8, 128),
)


def main(arguments: list[str]) -> int:
    if len(arguments) != 4:
        sys.stderr.write(__doc__ or "")
        return 2
    learn_a, test_a, learn_b, test_b = map(rows_of, arguments)
    forecast(learn_a, test_a, test_b, learn_b)
    forecast(learn_b, test_b, test_a, learn_a)
    for here, there in (((learn_a, test_a), (learn_b, test_b)), ((learn_b, test_b), (learn_a, test_a))):
        folds(together(here), together(there))
    return 0


def rows_of(given: str) -> pd.DataFrame:
    """Runs as one frame; its metadata are the first's."""
    return together([bwprof.load(path) for path in given.split(",")])


def together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames as one, with the first one's metadata."""
    bare = [frame.copy(deep=False) for frame in frames]
    for frame in bare:
        frame.attrs = {}
    whole = pd.concat(bare, ignore_index=True)
    whole.attrs = frames[0].attrs
    return whole


def forecast(learned: pd.DataFrame, same: pd.DataFrame, other: pd.DataFrame, repeated: pd.DataFrame) -> None:
    """Print how far off what was learned is, on its own device and on another."""
    model = bwprof.efficiency(learned)
    own, elsewhere = learned["device"].iloc[0], other["device"].iloc[0]
    show(f"\n{own} -> {elsewhere}: {model.rows} rows learned, {len(other)} forecast")
    mine = errors(model, same, model.card)
    theirs = errors(model, other, str(other["device"].iloc[0]))
    own = by_kernel(mine)[["median_pct", "p90_pct"]]
    shown = by_kernel(theirs).join(own.add_suffix("_own_device"))
    show(shown.round(1).to_string())
    show("all: " + ", ".join(f"{name} {value:.3g}" for name, value in figures(theirs).items()))
    show("all, own device: " + ", ".join(f"{name} {value:.3g}" for name, value in figures(mine).items()))
    steps(theirs, FORECAST, "shapes not learned from")
    steps(errors(model, repeated, str(repeated["device"].iloc[0])), LEARNED, "shapes learned from")


def folds(here: pd.DataFrame, there: pd.DataFrame, count: int = 8) -> None:
    """Print how far off shapes of another device are that were left out, each once, of what is learned on this one."""
    names = ["operation", *schema.param_names()]
    there = there.sort_values("time_ms").drop_duplicates([*names, "precision"])  # of variants the fastest is forecast
    shapes = [frame[names].astype(object).fillna("").astype(str).agg("|".join, axis=1) for frame in (here, there)]
    fold = {shape: zlib.crc32(shape.encode()) % count for shape in {*shapes[0], *shapes[1]}}
    mine, others = (found.map(fold).to_numpy() for found in shapes)
    tested = ~there["operation"].str.startswith("stream").to_numpy(bool)
    parts = []
    for left_out in range(count):
        rows = here[mine != left_out]
        rows.attrs = here.attrs
        tried = there[(others == left_out) & tested]
        parts.append(errors(bwprof.efficiency(rows), tried, str(there["device"].iloc[0])))
    whole = pd.concat(parts)
    show(f"\n{here['device'].iloc[0]} -> {there['device'].iloc[0]}: each eighth of {len(whole)} rows left out")
    show(by_kernel(whole).round(1).to_string())
    show("all: " + ", ".join(f"{name} {value:.3g}" for name, value in figures(whole).items()))


def by_kernel(rows: pd.DataFrame) -> pd.DataFrame:
    """The figures of each operation and precision."""
    return rows.groupby(["operation", "precision"]).apply(figures, include_groups=False)


def steps(rows: pd.DataFrame, model: Model, which: str) -> None:
    """Print a decode step's time as the sum of its operations, measured and forecast, by the cache's length."""
    heads, kv_heads, head_dim = model.heads
    single = rows[rows["M"] == 1].drop_duplicates(["precision", "N", "K"]).set_index(["precision", "N", "K"])
    cache = rows[(rows["batch"] == 1) & (rows["num_kv_heads"] == kv_heads) & (rows["head_dim"] == head_dim)]
    append = cache[(cache["operation"] == "kv_append") & (cache["seq_len"] == 1)].set_index("precision")
    for _, attention in (
        cache[(cache["operation"] == "attention_decode") & (cache["num_heads"] == heads)]
        .drop_duplicates(["precision", "kv_len"])
        .iterrows()
    ):
        precision = attention["precision"]
        if (precision, *model.head) not in single.index or precision not in append.index:
            continue
        whole = {}
        for name in ("time_ms", "forecast_ms"):
            layer = sum(count * single.loc[(precision, *shape), name] for shape, count in model.products.items())
            layer += attention[name] + append.loc[precision, name]
            whole[name] = float(model.layers * layer + single.loc[(precision, *model.head), name])
        error = 100 * (whole["forecast_ms"] / whole["time_ms"] - 1)
        show(
            f"decode step, {model.name}, {precision}, {attention['kv_len']} tokens ({which}): "
            f"measured {whole['time_ms']:.3f} ms, forecast {whole['forecast_ms']:.3f} ms, {error:+.1f} %"
        )


def errors(model: Efficiency, measured: pd.DataFrame, device: str | Card) -> pd.DataFrame:
    """The rows with their forecasts and errors."""
    guessed = bwprof.predict(measured, device=device, efficiency=model)
    found = measured.reset_index(drop=True)
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
