"""Frames, files and back, with any text and numbers: no value is lost or added."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rows import load_samples, row

import bwprof
from bwprof.results import frame, schema
from bwprof.text import formatting

QUICK = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates and line breaks among them
NUMBER = st.floats(allow_nan=False)
WHOLE = st.integers(-(2**63), 2**63 - 1)
KINDS: dict[str, st.SearchStrategy[Any]] = {"text": TEXT, "number": NUMBER, "integer": WHOLE, "boolean": st.booleans()}
# What a reader checks, or works out from other columns.
CHECKED = {
    "operation",
    "precision",
    "case",
    "status",
    "schema_version",
    "flags",
    "replaces",
    *schema.COMPARISON_NAMES,
}
LABEL = st.one_of(TEXT, WHOLE, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans())


FREE = [column for column in schema.all_columns() if column.name not in CHECKED]


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return rows with any values in some columns, and an own column of one kind."""
    labels = draw(st.sampled_from([TEXT, WHOLE, st.floats(allow_nan=False, allow_infinity=False), st.booleans()]))
    name = draw(
        TEXT.filter(
            lambda text: schema.clean_text(text).strip() and schema.clean_text(text) not in schema.column_names()
        )
    )
    found = []
    for number in range(draw(st.integers(1, 3))):
        chosen = draw(st.lists(st.sampled_from(FREE), max_size=6))
        made = row("a", "fp32", **{name: draw(st.none() | labels)})
        made |= {column.name: draw(st.none() | KINDS[column.kind]) for column in chosen}
        made["timestamp"] = f"2026-01-01T00:00:0{number}.000+00:00"
        made["case"] = draw(TEXT.filter(schema.clean_text))
        made["operation"] = draw(TEXT.filter(schema.clean_text))
        made["precision"] = draw(st.sampled_from(["fp32", "bf16", "My own", ""]))
        found.append(made)
    return found


def there_and_back(data: pd.DataFrame, ending: str) -> tuple[pd.DataFrame, list[list[float] | None] | None]:
    with tempfile.TemporaryDirectory() as folder:
        path = bwprof.save(data, Path(folder) / f"rows.{ending}")
        assert [found.name for found in Path(folder).iterdir()] == [path.name]
        return bwprof.load(path), load_samples(path) if ending == "json" else None


def values_of(data: pd.DataFrame) -> list[dict[str, Any]]:
    """Return every cell, None for a missing one, without the columns that `load` calculates."""
    kept = [name for name in data.columns if name not in schema.COMPARISON_NAMES]
    columns = [[None if formatting.is_missing(value) else value for value in data[name].tolist()] for name in kept]
    return [dict(zip(kept, values, strict=True)) for values in zip(*columns, strict=True)]


@QUICK
@given(rows())
def test_json_keeps_every_value(given_rows: list[dict[str, Any]]) -> None:
    samples = [[100.0 + number, 0.25] for number in range(len(given_rows))]
    made = frame.from_rows(given_rows, {"run_id": "a", "argv": ["\udcff"]}, samples)
    found, kept = there_and_back(made, "json")
    assert values_of(found) == values_of(made)
    assert list(found.columns) == list(made.columns)
    assert kept == samples
    again, kept = there_and_back(found, "json")  # also of a frame that was loaded
    assert values_of(again) == values_of(made)
    assert kept == samples


def test_samples_stay_with_a_row_whose_value_is_out_of_range() -> None:
    made = frame.from_rows([row("a", "fp32", K=-5)], {}, [[100.0]])
    assert frame.samples_of(made, frame.to_rows(made)) == [[100.0]]


@QUICK
@given(rows())
def test_csv_keeps_every_value(given_rows: list[dict[str, Any]]) -> None:
    """A CSV has no difference between empty and missing text, and between '5' and 5."""
    made = frame.from_rows(given_rows)
    found, _ = there_and_back(made, "csv")
    assert list(found.columns) == list(made.columns)
    own = list(made.columns)[len(schema.column_names()) :]
    for one, other in zip(values_of(found), values_of(made), strict=True):
        for name, value in other.items():
            wanted = None if value == "" and name not in ("flags", "precision") else value
            if name in own and isinstance(value, str) and wanted is not None:
                assert str(one[name]) == wanted
            elif isinstance(wanted, float):
                assert one[name] == wanted or math.isclose(one[name], wanted, rel_tol=0)
            else:
                assert one[name] == wanted, name


@QUICK
@given(st.lists(st.one_of(st.none(), LABEL), min_size=1, max_size=4))
def test_labels_of_mixed_kinds_come_back_from_json(labels: list[Any]) -> None:
    made = frame.from_rows([row("a", "fp32", timestamp=str(n), label=label) for n, label in enumerate(labels)])
    found, _ = there_and_back(made, "json")
    wanted = [schema.clean_text(label) if isinstance(label, str) else label for label in labels]
    assert [None if formatting.is_missing(value) else value for value in found["label"]] == wanted


def test_a_missing_precision_stays_missing(tmp_path: Path) -> None:
    made = frame.from_rows([row("a", "")])
    made["precision"] = pd.NA
    for ending in ("csv", "json"):
        assert bwprof.load(bwprof.save(made, tmp_path / f"rows.{ending}"))["precision"].tolist() == [""]


def test_samples_follow_their_rows(tmp_path: Path) -> None:
    """Samples belong to rows' identities: a part of a frame, in another order, keeps its own."""
    made = frame.from_rows([row(name, "fp32") for name in "abc"], {"run_id": "x"}, [[1.0], [2.0], [3.0]])
    bwprof.save(made.iloc[[2, 0]], tmp_path / "rows.json")
    assert load_samples(tmp_path / "rows.json") == [[3.0], [1.0]]


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_long_texts_are_cut_and_stay_different(tmp_path: Path, ending: str) -> None:
    lens = [";".join(["7"] * 300_000 + [last]) for last in "89"]
    made = frame.from_rows([row("x" * 200_000, "fp32", kv_lens=text) for text in lens])
    found = bwprof.load(bwprof.save(made, tmp_path / f"rows.{ending}"))
    assert found["kv_lens"].str.len().tolist() == [32_000, 32_000]
    assert found["kv_lens"].nunique() == 2
    assert found["case"].iloc[0].startswith("xxx")
    assert "200000 letters" in found["case"].iloc[0]


def test_columns_without_unique_names_are_refused(tmp_path: Path) -> None:
    made = frame.from_rows([row("a", "fp32")])
    made["label"] = 1
    for wrong in ("", "M"):
        with pytest.raises(ValueError, match="names of their own"):
            bwprof.save(made.rename(columns={"label": wrong}), tmp_path / "rows.csv")
    with pytest.raises(ValueError, match="column samples_ns holds 1"):
        bwprof.save(made.rename(columns={"label": "samples_ns"}), tmp_path / "rows.json")
    assert not list(tmp_path.iterdir())
