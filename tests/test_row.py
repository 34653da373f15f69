"""bwprof.Row and frames of rows: every function returns the same type, and raw samples stay with their rows."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rows import load_samples, row

import bwprof
from bwprof.results import frame, schema

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK: dict[str, Any] = {"device": "cpu", "cache": "hot", "roofs": False, "max_seconds": 0.05}


def made() -> bwprof.Row:
    return bwprof.Row(row("a<b", "fp16", time_ms_lo=0.9, time_ms_hi=1.1, cache="hot"), [1.0, 2.5])


def test_a_row_is_a_mapping_with_attributes() -> None:
    found = made()
    assert found["case"] == found.case == "a<b"
    assert {**found}["bandwidth_gb_s"] == found.bandwidth_gb_s == 100.0
    assert found.samples_ns == [1.0, 2.5]
    assert "samples_ns" not in found
    assert found.power_w is None, "what is not known is None, as in the mapping"
    assert "power_w" in dir(found)
    with pytest.raises(AttributeError, match=r"column 'time_m':.*'time_ms'"):
        _ = found.time_m
    found.reason = "a note"
    assert found["reason"] == "a note"
    found.samples_ns = [3.0]
    assert found.samples_ns == [3.0]
    assert "samples_ns" not in found


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, bwprof.Row.copy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_of_a_row_are_rows(way: Any) -> None:
    found = way(made())
    assert type(found) is bwprof.Row
    assert (found, found.samples_ns) == (made(), [1.0, 2.5])


def test_a_row_prints_time_rate_share_and_conditions(snapshot: Callable[[str], None]) -> None:
    known = bwprof.Row(row("a", "fp32", gb_s=90.0, pct_limit=57.6, limiter="memory"))
    shares: list[dict[str, Any]] = [{}, {"pct_limit": float("nan")}, {"limiter": None}]
    shares.append({"pct_limit": None, "pct_attainable": 42.7})
    failed = bwprof.Row(row("a", "fp32", gb_s=None, status="failed", reason="wrong result"))
    rows = [made(), *(bwprof.Row({**known, **share}) for share in shares), failed]
    snapshot("\n".join(map(repr, rows)))
    assert repr(bwprof.Row()) == "<: no time>"
    for low, high, said in (
        (0.0, 90.31, "(90.31 or less)"),
        (0.05, math.inf, "(0.05 or more)"),
        (0.0, math.inf, "(too few samples for an interval)"),
        (-math.inf, math.inf, "(too few samples for an interval)"),
    ):
        assert repr(bwprof.Row({"time_ms": 1.0, "time_ms_lo": low, "time_ms_hi": high})) == f"<: 1 ms {said}>"


@pytest.mark.parametrize("value", ["abc", float("nan"), None, [1], np.float32(2.5), "x" * 100_000])
def test_a_row_of_any_values_prints(value: Any) -> None:
    for name in ("time_ms", "time_ms_lo", "bandwidth_gb_s", "case", "reason", "flags", "cache"):
        found = bwprof.Row({"time_ms": 1.0, "time_ms_hi": 2.0, **{name: value}})
        assert len(repr(found)) < 500
        assert "<table " in found._repr_html_()
    assert repr(bwprof.Row({"time_ms": "abc"})) == "<: abc ms>"
    assert repr(bwprof.Row({"time_ms": float("nan")})) == "<: no time>"


def test_own_rows_keep_their_raw_samples(tmp_path: Path) -> None:
    found = bwprof.Row({"operation": "mine", "samples_ns": [1.0, 2.0]})
    assert (found.samples_ns, "samples_ns" in found) == ([1.0, 2.0], False)
    assert bwprof.Row({"samples_ns": [1.0]}, [3.0]).samples_ns == [3.0]
    assert bwprof.Row({"samples_ns": float("nan")}).samples_ns == []
    own: list[Any] = [found, {"operation": "mine", "precision": "FP16", "samples_ns": [3.0]}, {"operation": "other"}]
    data = bwprof.frame(own)
    assert [row.samples_ns for row in bwprof.rows(data)] == [[1.0, 2.0], [3.0], []]
    bwprof.save(data, tmp_path / "own.json")
    assert load_samples(tmp_path / "own.json") == [[1.0, 2.0], [3.0], None]
    with pytest.raises(ValueError, match="samples_ns holds 'x'"):
        bwprof.frame([{"operation": "mine", "samples_ns": "x"}])


def test_samples_of_equal_rows_are_unknown_if_one_is_missing() -> None:
    data = bwprof.frame([{"operation": "mine", "samples_ns": [float(number)]} for number in (1, 2)])
    assert [row.samples_ns for row in bwprof.rows(data)] == [[1.0], [2.0]]
    assert [row.samples_ns for row in bwprof.rows(data[1:])] == [[]], "which of the two it is, nothing tells"


def test_progress_gets_the_raw_samples() -> None:
    seen: list[bwprof.Row] = []
    quick = {**QUICK, "progress": lambda _done, _total, found: seen.append(found)}
    bwprof.sweep("gemm", M=1, N=8, K=8, precision="fp32", **quick)
    bwprof.sweep(lambda: None, **quick)
    assert len(seen) >= 2, "one more for each that was disturbed and is measured again"
    assert [len(found.samples_ns) for found in seen] == [found["samples"] for found in seen]
    assert all(found["samples"] for found in seen)


def test_a_notebook_shows_known_values_with_units() -> None:
    shown = made()._repr_html_()
    assert "<tr><th>time_ms</th><td>0.0001</td><td>ms</td></tr>" in shown
    assert "<tr><th>case</th><td>a&lt;b</td><td></td></tr>" in shown
    assert "power_w" not in shown


def test_a_row_with_a_numeric_key_prints() -> None:
    odd: Any = bwprof.Row({1: 2, "case": "odd"})
    assert "<th>1</th><td>2</td>" in odd._repr_html_()
    assert "case" in dir(odd)
    with pytest.raises(AttributeError, match="did you mean 'case'"):
        _ = odd.cases
    with pytest.raises(TypeError, match="column is called 1"):
        bwprof.frame([odd])


def test_attributes_set_and_delete_columns() -> None:
    found = made()
    found.mine = 3
    del found.mine
    assert "mine" not in found
    with pytest.raises(AttributeError, match="no column 'mine'"):
        del found.mine


def test_measuring_a_function_gives_a_row() -> None:
    a = np.empty(1 << 12)
    found = bwprof.measure(lambda: a.fill(1.0), name="fill", bytes_written=a.nbytes, **QUICK)
    assert type(found) is bwprof.Row
    assert len(found.samples_ns) == found.samples > 0
    assert list(found)[: len(schema.column_names())] == list(schema.column_names())


def test_a_sweeps_callback_gets_rows() -> None:
    seen: list[bwprof.Row] = []
    bwprof.sweep(
        "gemm",
        N=8,
        K=8,
        backend="cpu",
        cache="hot",
        roofs=False,
        progress=lambda _done, _all, found: seen.append(found),
    )
    assert [type(found) for found in seen] == [bwprof.Row] * 2


def test_rows_make_a_frame_and_come_back(tmp_path: Path) -> None:
    one, other = made(), bwprof.Row(row("b", "fp32", label="x"))
    data = bwprof.frame([one, other])
    assert data["case"].tolist() == ["a<b", "b"]
    assert data.dtypes["M"] == "Int64"
    back = bwprof.rows(data)
    assert [found.samples_ns for found in back] == [[1.0, 2.5], []]
    assert {name: back[0][name] for name in one} == one
    assert load_samples(bwprof.save(data, tmp_path / "rows.json")) == [[1.0, 2.5], None]
    assert bwprof.frame(one)["case"].tolist() == ["a<b"], "one row is a frame of one"
    assert bwprof.frame([]).columns.tolist() == list(schema.column_names())
    with pytest.raises(TypeError, match="3 is no row"):
        bwprof.frame([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"column M: 'x'.*whole number"):
        bwprof.frame([{"M": "x"}])


def test_a_samples_column_survives_frames_files_and_rows(tmp_path: Path) -> None:
    data = frame.from_rows([row(name, "fp32", timestamp=name) for name in "ab"], {"run_id": "x"}, [[1.0, 2.0], None])
    path = bwprof.save(data, tmp_path / "rows.json")
    found = bwprof.load(path, samples=True)
    assert found.columns[-1] == "samples_ns"
    assert found["samples_ns"].tolist() == [[1.0, 2.0], None]
    both = pd.concat([found.iloc[::-1], found])
    assert both.attrs == {} or both.attrs.get("run") is not None
    again = bwprof.load(bwprof.save(both, tmp_path / "both.json"), samples=True)
    assert again["samples_ns"].tolist() == [None, [1.0, 2.0], [1.0, 2.0], None]
    assert [found.samples_ns for found in bwprof.rows(again)] == [[], [1.0, 2.0], [1.0, 2.0], []]
    assert "samples_ns" not in bwprof.load(bwprof.save(both, tmp_path / "both.csv")).columns
    assert not bwprof.summary(again).empty
    with pytest.raises(ValueError, match="has no raw samples"):
        bwprof.load(tmp_path / "both.csv", samples=True)


@pytest.mark.parametrize("wrong", ["1", [-1.0], ["x"], [float("nan")], 3])
def test_samples_are_times(wrong: object, tmp_path: Path) -> None:
    data = frame.from_rows([row("a", "fp32")])
    data["samples_ns"] = [wrong]
    with pytest.raises(ValueError, match="column samples_ns holds"):
        bwprof.save(data, tmp_path / "rows.json")
