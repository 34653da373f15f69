"""Frames of other libraries and types: they work like a plain one, or raise an error that names them."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import bwprof
from bwprof.analysis import bandwidth, bottleneck, gains, rules
from bwprof.analysis.bandwidth import BandwidthAnalysis
from bwprof.report.run import read_runs
from bwprof.results import frame, schema
from bwprof.roofs import limiter

pytestmark = pytest.mark.usefixtures("one_thread")


class Converted:
    """A frame of another library that has only `to_pandas()`."""

    def __init__(self, data: pd.DataFrame) -> None:
        self._data = data

    def to_pandas(self) -> pd.DataFrame:
        return self._data


class Modin(Converted):
    """A frame whose conversion has another name, as in modin."""

    to_pandas = None  # type: ignore[assignment]

    def _to_pandas(self) -> pd.DataFrame:
        return self._data


class Spark(Modin):
    def toPandas(self) -> pd.DataFrame:  # noqa: N802 (Spark's name)
        return self._data

    _to_pandas = None  # type: ignore[assignment]


class LazyFrame(Converted):
    """A frame that must be computed first, as polars' lazy frame and dask's."""

    to_pandas = None  # type: ignore[assignment]

    def collect(self) -> Converted:
        return Converted(self._data)


# What each use must cope with: labels of rows that repeat, have names of columns or another order, types of texts.
LABELED: dict[str, Callable[[pd.DataFrame], Any]] = {
    "duplicates": lambda data: data.set_axis([0] * len(data)),
    "levels": lambda data: data.set_axis(
        pd.MultiIndex.from_arrays([data["case"].astype(object), range(len(data))], names=["case", "precision"])
    ),
    "backwards": lambda data: data.set_axis(range(len(data))[::-1]),
    "categories": lambda data: data.astype(dict.fromkeys(data.columns[data.dtypes == "string"], "category")),
    "objects": lambda data: data.astype(dict.fromkeys(data.columns[data.dtypes == "string"], object)),
    "index": lambda data: data.assign(index=range(len(data)), level_0=1),
    "to_pandas": Converted,
}
# What one use shows for all, for they are converted by one function.
SAME: dict[str, Callable[[pd.DataFrame], Any]] = {
    "named": lambda data: data.set_axis(pd.Index(data["case"].astype(object), name="case")),
    "dates": lambda data: data.set_axis(pd.date_range("2020", periods=len(data))),
    "_to_pandas": Modin,
    "toPandas": Spark,
    "collect": LazyFrame,
}
for library, convert in (("polars", "polars.from_pandas"), ("pyarrow", "pyarrow.Table.from_pandas")):
    if importlib.util.find_spec(library):
        SAME[library] = pkgutil.resolve_name(convert)
REFUSED: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "columns of levels": (
        lambda data: data.set_axis(pd.MultiIndex.from_product([["a"], data.columns]), axis=1),
        "columns have 2 levels of names, one is needed",
    ),
    "two of a name": (lambda data: pd.concat([data, data[["time_ms"]]], axis=1), "'time_ms' is .*there twice"),
}


def drawn(data: pd.DataFrame) -> pd.DataFrame:
    """Return the texts and the positions of the marks of a picture."""
    ax = Figure().add_subplot()
    bwprof.plot.comparison(data, ax=ax)
    said = [[text.get_text(), *text.get_position()] for text in ax.findobj(Text)]
    marks = [list(patch.get_extents().bounds) for patch in ax.patches]
    return pd.DataFrame({"drawn": [*said, *marks]})


USES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "summary": lambda data, _: bwprof.summary(data),
    "view": lambda data, _: bwprof.view(data),
    "bottlenecks": lambda data, _: bottleneck.bottlenecks(data),
    "strengths": lambda data, _: bottleneck.strengths(data),
    "checklist": lambda data, _: rules.checklist(data),
    "improvement": lambda data, _: gains.improvement_table(data),
    "utilization": lambda data, _: bandwidth.utilization_table(data),
    "limits": lambda data, _: limiter.with_limits(data)[["ridge", "pct_limit", "limiter"]],
    "from_frame": lambda data, _: BandwidthAnalysis.from_frame(data)[["utilization", "efficiency", "rating"]],
    "speedup": lambda data, _: bwprof.speedup(data, from_="fp32", to="fp16"),
    "outliers": lambda data, _: bwprof.outliers(data),
    "efficiency": lambda data, _: bwprof.efficiency(data, device="H200").frame(),
    "predict": lambda data, _: bwprof.predict(data)[["case", "time_ms", "limiter"]],
    "rows": lambda data, _: pd.DataFrame([dict(row) for row in bwprof.rows(data)])[["case", "time_ms", "flags"]],
    "save": lambda data, folder: bwprof.load(bwprof.save(data, folder / "a.csv"))[["case", "time_ms", "flags"]],
    "plot": lambda data, _: drawn(data),
    "compare": lambda data, _: bwprof.compare(data, data)[["case", "precision", "verdict"]],
    "diagnose": lambda data, _: bwprof.diagnose(data)[["hypothesis", "verdict"]],
    "report": lambda data, folder: pd.DataFrame({"rows": [len(read_runs(data)[0].rows)]}),
    "proof": lambda data, folder: bwprof.load(bwprof.save_proof_bundle(data, "a", folder, force=True))[["case"]],
}


@pytest.fixture(scope="module")
def plain() -> pd.DataFrame:
    found = bwprof.load_example("h200").head(9).reset_index(drop=True)
    found.attrs = {}
    return found


def told(found: pd.DataFrame) -> list[list[str]]:
    return [[str(value) for value in line] for line in found.itertuples(index=False)]


@pytest.mark.parametrize("use", USES)
def test_frames_of_other_libraries_are_converted(plain: pd.DataFrame, tmp_path: Path, use: str) -> None:
    right = told(USES[use](plain, tmp_path))
    for name, made in (LABELED if use != "view" else LABELED | SAME).items():
        assert told(USES[use](made(plain), tmp_path)) == right, name
    for made, said in REFUSED.values():
        with pytest.raises(ValueError, match=said):
            USES[use](made(plain), tmp_path)


def test_other_objects_are_refused_with_their_type() -> None:
    with pytest.raises(TypeError, match=r"pandas\.DataFrame.*pathlib\.\w+"):
        bwprof.summary(Path("a"))  # type: ignore[arg-type]


def test_a_numeric_column_name_works(plain: pd.DataFrame) -> None:
    assert bwprof.view(plain.assign(**{"x": 5}).rename(columns={"x": 7}), "all")["7"].tolist() == [5] * len(plain)


def foreign(name: str, values: list[str | None]) -> pd.Series[Any] | None:
    """Return a column of texts of a type that some versions of pandas, or PyArrow, have; None without it."""
    try:
        return pd.Series(values, dtype=name)
    except (ImportError, TypeError):
        return None


@pytest.mark.parametrize("name", ["object", "string", "str", "category", "string[pyarrow]", "string[pyarrow_numpy]"])
def test_texts_of_every_type_may_be_missing(name: str) -> None:
    """Some types have NaN for missing text, others <NA>, under the same name."""
    values = foreign(name, ["a", None])
    if values is None:
        pytest.skip(f"pandas {pd.__version__} cannot make {name} here")
    if name == "str":
        values = values.where(pd.Series([True, False]))  # before pandas 3 it is object, whose None is a word
    classic = dict.fromkeys(schema.CLASSIC_NAMES, 1)
    data = pd.DataFrame(classic, index=range(2)).assign(operation="gemm", precision="fp32", device=values)
    assert [row["device"] for row in frame.to_rows(data)] == ["a", None]


def test_texts_survive_a_csv_that_pandas_reads(plain: pd.DataFrame, tmp_path: Path) -> None:
    """Only texts are compared: older pandas reads numbers with an error in the last digit."""
    plain.to_csv(tmp_path / "a.csv", index=False)
    texts = [name for name, kind in schema.column_kinds().items() if kind == "text"]
    read, written = frame.to_rows(pd.read_csv(tmp_path / "a.csv")), frame.to_rows(plain)
    assert [[row[name] for name in texts] for row in read] == [[row[name] or None for name in texts] for row in written]


def test_a_conversion_that_needs_a_missing_package_fails(plain: pd.DataFrame) -> None:
    class DataFrame:
        """As polars' where pyarrow is not installed."""

        def to_pandas(self) -> pd.DataFrame:
            raise ModuleNotFoundError("No module named 'pyarrow'")

    for use in (bwprof.summary, bwprof.view, lambda data: bwprof.compare(data, plain), bwprof.plot.comparison):
        with pytest.raises(TypeError, match=r"to_pandas\(\).*DataFrame.*pyarrow"):
            use(DataFrame())
