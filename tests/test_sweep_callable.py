"""bwprof.sweep of a function: the product of its parameters' lists."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import load_samples

import bwprof

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK: dict[str, Any] = {"device": "cpu", "cache": "hot", "roofs": False, "max_total_seconds": 30.0}


def test_a_function_that_prepares() -> None:
    prepared: list[tuple[int, str]] = []

    def fill(n: int, dtype: str) -> object:
        prepared.append((n, dtype))
        array = np.empty(n, dtype)
        return lambda: array.fill(1)

    found = bwprof.sweep(
        fill,
        n=[512, np.int64(1024)],
        dtype=("f4", "f8"),
        bytes_written=lambda n, dtype: n * int(dtype[1]),
        **QUICK,
    )
    grid = [(512, "f4"), (512, "f8"), (1024, "f4"), (1024, "f8")]
    assert prepared == grid
    assert list(zip(found["n"], found["dtype"], strict=True)) == grid
    assert found["bytes_written"].tolist() == [2048, 4096, 4096, 8192]
    assert found["bytes_read"].isna().all()
    assert (found["status"] == "ok").all()
    assert found["case"].tolist()[1] == "fill n=512 dtype=f8"
    expected = found["bytes_written"].astype(float) / found["time_ms"] / 1e6
    np.testing.assert_allclose(found["bandwidth_gb_s"], expected)
    assert found["run_id"].nunique() == 1
    assert found.attrs["run"]["status"] == "complete"


def test_a_function_that_works() -> None:
    calls: list[int] = []

    def add(M: int) -> None:  # noqa: N803 - the column's name
        calls.append(M)

    found = bwprof.sweep(add, M=range(1, 3), **QUICK)
    assert set(calls) == {1, 2}
    assert found["M"].tolist() == [1, 2]
    assert (found["operation"] == "add").all()


def test_without_parameters() -> None:
    found = bwprof.sweep(lambda: None, **(QUICK | {"cache": "hot,cold"}))
    assert found["cache"].tolist() == ["hot", "cold"]
    found = bwprof.sweep(lambda: None, **(QUICK | {"cache": "both"}))
    assert found["cache"].tolist() == ["cold", "hot"]


def test_precisions_compare() -> None:
    """A precision is a parameter like any other, and makes rows comparable."""

    def work(precision: str) -> object:
        array = np.empty(1 << 16, {"fp32": "f4", "fp16": "f2"}[precision])
        return lambda: array.fill(1)

    found = bwprof.sweep(work, precision=["fp32", "fp16"], bytes_written=lambda precision: 4, **QUICK)
    assert found["precision"].tolist() == ["fp32", "fp16"]
    assert found["speedup_vs_fp32"].iloc[1] == pytest.approx(found["time_ms"].iloc[0] / found["time_ms"].iloc[1])


def test_a_point_may_fail() -> None:
    def work(n: int) -> object:
        if n == 2:
            raise RuntimeError("two")
        if n == 3:
            raise MemoryError
        if n == 6:
            raise FileNotFoundError("a library")
        return (lambda: 1 / 0) if n == 4 else (lambda: None)

    found = bwprof.sweep(work, n=[1, 2, 3, 4, 6, 5], **QUICK)
    assert found["status"].tolist() == ["ok", "failed", "skipped", "failed", "failed", "ok"]
    assert found["reason"].iloc[1] == "RuntimeError: two"
    assert found["reason"].iloc[2] == "out of memory"
    assert found["reason"].iloc[3] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_sweep_keeps_its_rows(kind: type[BaseException]) -> None:
    def work(n: int) -> object:
        if n == 2:
            raise kind
        return lambda: None

    with pytest.raises(kind) as caught:
        bwprof.sweep(work, n=[1, 2, 3], **QUICK)
    assert caught.value.frame["n"].tolist() == [1]  # type: ignore[attr-defined]


def test_results_can_be_saved(tmp_path: Path) -> None:
    """Labels without a column of the schema have one of their own, in a file as well."""
    path = tmp_path / "rows.json"
    made = bwprof.sweep(lambda color, n: None, color=["red", "blue"], n=[7], output=path, **QUICK)
    assert made["color"].tolist() == bwprof.load(path)["color"].tolist() == ["red", "blue"]
    assert bwprof.load(path)["case"].tolist() == ["<lambda> color=red n=7", "<lambda> color=blue n=7"]
    table = tmp_path / "rows.csv"
    bwprof.save(bwprof.load(path), table)
    found = bwprof.load(table)
    assert list(zip(found["color"], found["n"], strict=True)) == [("red", 7), ("blue", 7)]
    again = bwprof.save(made, tmp_path / "again.json")
    assert load_samples(again) == load_samples(path)
    assert all(load_samples(again))


def test_a_check_knows_its_point() -> None:
    seen: list[int] = []

    def check(n: int) -> bool:
        seen.append(n)
        return n < 3

    found = bwprof.sweep(lambda n: None, n=[1, 2, 3], check=check, **QUICK)
    assert seen == [1, 2, 3]
    assert found["status"].tolist() == ["ok", "ok", "failed"]
    assert found["verified"].tolist()[:2] == [True, True]


def test_progress_in_lines(capfd: pytest.CaptureFixture[str]) -> None:
    bwprof.sweep(lambda n: None, n=[1], progress=True, **QUICK)
    message = capfd.readouterr().err
    assert "<lambda> n=1: " in message
    assert "GB/s" not in message


def test_sets_want_a_function_of_the_number() -> None:
    found = bwprof.sweep(lambda n: None, n=[1], sets=3, **QUICK)
    assert found["status"].tolist() == ["failed"]
    assert found["reason"][0].startswith("TypeError: with sets= ")


def test_progress_and_time_limit() -> None:
    seen: list[tuple[int, int]] = []
    found = bwprof.sweep(
        lambda n: None, n=[1, 2], progress=lambda done, total, row: seen.append((done, total)), **QUICK
    )
    assert seen == [(1, 2), (2, 2)]
    found = bwprof.sweep(lambda n: None, n=[1, 2], **(QUICK | {"max_total_seconds": 1e-9}))
    assert (found["status"] == "skipped").all()
    assert "max_total_seconds" in found["reason"].iloc[0]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"suite": "default"}, "suite goes with operations"),
        ({"kv_lens": [1]}, "kv_lens goes with operations"),
        ({"variant": "all"}, "variant goes with operations"),
        ({"seed": 3}, "seed goes with operations"),
        ({"metrics": "all"}, "the cpu backend counts no metrics"),
        ({"cache": "warm"}, "unknown cache 'warm'"),
        ({"n": []}, "n has no values"),
        ({"n": itertools.count()}, "1000001 points|points are more than a sweep can have"),
        ({"flops": -1}, "flops is -1"),
        ({"timer": "cupti"}, "unknown timer on cpu 'cupti'"),
        ({"M": [1, "big"]}, "M = 'big': the column of that name holds a whole number"),
        ({"time_ms": [1]}, "'time_ms' is a column that bwprof fills"),
        ({"n": range(1000), "m": range(1000)}, "1000000 points are more than a sweep can have"),
        ({"max_total_seconds": -1}, "max_total_seconds is -1"),
    ],
)
def test_bad_arguments(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bwprof.sweep(lambda **_: None, **(QUICK | inputs))


def test_parameters_the_function_does_not_take() -> None:
    with pytest.raises(TypeError, match=r"<lambda> .*turns"):
        bwprof.sweep(lambda n=1: None, turns=[1], **QUICK)
    with pytest.raises(TypeError, match=r"<lambda> .* 'n'"):
        bwprof.sweep(lambda n: None, **QUICK)
    with pytest.raises(ValueError, match=r"'max_second' .*'max_seconds'"):
        bwprof.sweep(lambda **_: None, max_second=3, **QUICK)
    for wrong, right in (("byte_read", "bytes_read"), ("flop", "flops"), ("set", "sets"), ("checks", "check")):
        with pytest.raises(ValueError, match=f"'{wrong}' is no option: did you mean '{right}'"):
            bwprof.sweep(lambda **_: None, **QUICK, **{wrong: 3})
        with pytest.raises(ValueError, match=f"'{wrong}' is no option: did you mean '{right}'"):
            bwprof.sweep(dict, **QUICK, **{wrong: 3})  # whose parameters nobody can tell
    found = bwprof.sweep(lambda counter, devices: None, counter=[1], devices=["a"], **QUICK)
    assert found["counter"].tolist() == [1]


def test_roofs_of_another_device_are_refused() -> None:
    others = bwprof.Roofs("x", "", "", "", 0.0, ())
    for what in ("stream_copy", lambda: None):
        with pytest.raises(ValueError, match="of x, "):
            bwprof.sweep(what, device="cpu", roofs=others)
