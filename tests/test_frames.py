"""Frames as others make them: they work like the plain one, or are refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import bwprof
from bwprof import analysis
from bwprof.analysis import BandwidthAnalysis

pytestmark = pytest.mark.usefixtures("one_thread")

SAME: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "duplicates": lambda data: data.set_axis([0] * len(data)),
    "levels": lambda data: data.set_axis(
        pd.MultiIndex.from_arrays([data["case"].astype(object), range(len(data))], names=["case", "precision"])
    ),
    "named": lambda data: data.set_axis(pd.Index(data["case"].astype(object), name="case")),
    "backwards": lambda data: data.set_axis(range(len(data))[::-1]),
    "dates": lambda data: data.set_axis(pd.date_range("2020", periods=len(data))),
    "categories": lambda data: data.astype(dict.fromkeys(data.columns[data.dtypes == "string"], "category")),
    "objects": lambda data: data.astype(dict.fromkeys(data.columns[data.dtypes == "string"], object)),
    "index": lambda data: data.assign(index=range(len(data)), level_0=1),
}
REFUSED: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "columns of levels": (
        lambda data: data.set_axis(pd.MultiIndex.from_product([["a"], data.columns]), axis=1),
        "columns have 2 levels of names, one is needed",
    ),
    "two of a name": (lambda data: pd.concat([data, data[["time_ms"]]], axis=1), "'time_ms' is .*there twice"),
}


def drawn(data: pd.DataFrame) -> pd.DataFrame:
    """What a picture says, and where its marks are."""
    ax = Figure().add_subplot()
    bwprof.plot.comparison(data, ax=ax)
    said = [[text.get_text(), *text.get_position()] for text in ax.findobj(Text)]
    marks = [list(patch.get_extents().bounds) for patch in ax.patches]
    return pd.DataFrame({"drawn": [*said, *marks]})


USES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "summary": lambda data, _: bwprof.summary(data),
    "view": lambda data, _: bwprof.view(data),
    "bottlenecks": lambda data, _: analysis.bottlenecks(data),
    "strengths": lambda data, _: analysis.strengths(data),
    "checklist": lambda data, _: analysis.checklist(data),
    "improvement": lambda data, _: analysis.improvement_table(data),
    "utilization": lambda data, _: analysis.utilization_table(data),
    "limits": lambda data, _: analysis.with_limits(data)[["ridge", "pct_limit", "limiter"]],
    "from_frame": lambda data, _: BandwidthAnalysis.from_frame(data)[["utilization", "efficiency", "rating"]],
    "speedup": lambda data, _: bwprof.speedup(data, from_="fp32", to="fp16"),
    "outliers": lambda data, _: bwprof.outliers(data),
    "efficiency": lambda data, _: bwprof.efficiency(data, device="H200").frame(),
    "predict": lambda data, _: bwprof.predict(data)[["case", "time_ms", "limiter"]],
    "rows": lambda data, _: pd.DataFrame([dict(row) for row in bwprof.rows(data)])[["case", "time_ms", "flags"]],
    "save": lambda data, folder: bwprof.load(bwprof.save(data, folder / "a.csv"))[["case", "time_ms", "flags"]],
    "plot": lambda data, _: drawn(data),
}


@pytest.fixture(scope="module")
def plain() -> pd.DataFrame:
    found = bwprof.load_example("h200").head(9).reset_index(drop=True)
    found.attrs = {}
    return found


def told(found: pd.DataFrame) -> list[list[str]]:
    return [[str(value) for value in line] for line in found.itertuples(index=False)]


@pytest.mark.parametrize("use", USES)
def test_a_frame_is_a_frame(plain: pd.DataFrame, tmp_path: Path, use: str) -> None:
    right = told(USES[use](plain, tmp_path))
    for name, made in SAME.items():
        assert told(USES[use](made(plain), tmp_path)) == right, name
    for made, said in REFUSED.values():
        with pytest.raises(ValueError, match=said):
            USES[use](made(plain), tmp_path)


def test_a_column_called_by_a_number_is_shown(plain: pd.DataFrame) -> None:
    assert bwprof.view(plain.assign(**{"x": 5}).rename(columns={"x": 7}), "all")["7"].tolist() == [5] * len(plain)
