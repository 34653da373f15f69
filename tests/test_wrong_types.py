"""What Python callers give that is of no use: an exception that names the argument and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rows import row

import bwprof
from bwprof.results import frame

ZERO = np.array(1.0)  # it says that it can be iterated, and cannot


def with_run(run: Any) -> pd.DataFrame:
    data = frame.from_rows([row("a", "fp32", device="NVIDIA H200")])
    data.attrs["run"] = run
    return data


def count(metrics: Any) -> None:
    with bwprof.Case("gemm", M=1, N=8, K=8, device="cpu") as case:
        case.count(metrics=metrics)


def memory(cache: Any) -> None:
    with bwprof.Case("gemm", M=1, N=8, K=8, device="cpu") as case:
        case.memory_needed(cache)


@pytest.mark.parametrize("path", [True, 3, b"x", "a\0b", ""])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("path", bwprof.load),
        ("path", lambda path: bwprof.save(with_run({}), path)),
        ("folder", bwprof.history),
        ("folder", lambda path: bwprof.load_baseline("main", folder=path)),
        ("root", lambda path: bwprof.save_proof_bundle(with_run({}), "run-1", root=path)),
    ],
)
def test_invalid_paths(name: str, call: Callable[[Any], Any], path: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name} is "):
        call(path)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bwprof.frame(None), "rows is None"),
        (lambda: bwprof.frame(ZERO), "rows is array"),
        (lambda: bwprof.outliers(None), "data is None"),
        (lambda: bwprof.predict(None, "H200"), "op is None"),
        (lambda: bwprof.predict("gemm", "H200", precision=True), "precision is True"),
        (lambda: bwprof.ab("gemm", "gemm", precision=ZERO), "precision is array"),
        (lambda: bwprof.view(with_run({}), columns=ZERO), "columns is array"),
        (lambda: bwprof.view(with_run({}), np.array([1, 2])), r"which is array\(\[1, 2\]\): the name of a view"),
        (lambda: bwprof.ab(int, int, kv_lens=np.array([1, 2])), "kv_lens goes with names"),
        (lambda: bwprof.ab(int, int, device=ZERO), r"device is array\(1.\): allowed are a number and names"),
        (lambda: bwprof.predict(with_run({}).assign(kv_lens="long")), "kv_lens: 'long' is not a whole number"),
        (lambda: bwprof.BandwidthReport.from_row(None), "row is None: a row is needed"),
        (lambda: bwprof.BandwidthReport.from_row(with_run({})), "row is .*: a row is needed"),
        (lambda: bwprof.BandwidthReport.from_row({}), "time_ms is None"),
        (lambda: count([1]), r"metrics is \[1\]: names are needed"),
        (lambda: count(5), "metrics is 5: names are needed"),
        (lambda: bwprof.Case("gemm", device="cpu", seed=np.array([])), r"seed is array.*: allowed are 0 to"),
        (lambda: memory(None), "unknown cache 'None': Allowed: cold, hot"),
        (lambda: memory("\udcff"), "unknown cache .*: Allowed: cold, hot"),
        (lambda: count("stals"), "the cpu backend counts no metrics"),
        (lambda: bwprof.ModelStep.from_frame("x"), "a pandas.DataFrame is needed, not str"),
        (lambda: bwprof.ModelStep.from_frame(None), "a pandas.DataFrame is needed, not NoneType"),
        (lambda: bwprof.ModelStep.from_frame(with_run(5)), r"attrs\['run'\] is 5: a mapping"),
        (lambda: bwprof.cost("gemm", variant="simple"), "variant is 'simple': it needs a backend"),
        (lambda: bwprof.cost("gemm", backend="cpu", variant=5), "unknown variant of gemm on cpu '5'"),
        (
            lambda: bwprof.cost("gemm", backend="cpu", variant="sympd\udcff"),
            "unknown variant of gemm on cpu.*: Allowed: ",
        ),
        (lambda: bwprof.compare(with_run({}), with_run({}), metric=np.array([])), "unknown metric .*Allowed: time_ms"),
        (lambda: bwprof.model_step("llama-3.1-8b", device="H200", layout=ZERO), "unknown layout .*: fused, separate"),
        (lambda: bwprof.AccessPattern("strid"), "unknown access pattern 'strid': did you mean 'strided'"),
        (lambda: bwprof.AccessPattern(5), "unknown access pattern '5'.*Allowed: sequential"),
        (lambda: bwprof.write_report(with_run({}), "never.md", title=5), "title is 5: a str is needed"),
        (lambda: bwprof.plot.lines(with_run({}), y=[]), r"y is \[\]: a str is needed"),
        (lambda: bwprof.plot.lines(with_run({}), x={}), r"x is \{\}: a str is needed"),
        (lambda: bwprof.plot.heatmap(with_run({}), y=set()), r"y is set\(\): a str is needed"),
        (lambda: bwprof.plot.speedup(with_run({}), to=ZERO), r"to is array\(1.\): a str is needed"),
        (
            lambda: bwprof.plot.comparison(with_run({}), layout=np.array([])),
            "unknown layout .*Allowed: page, slide",
        ),
        (lambda: bwprof.importers.ncu_command("a", preset=[]), r"unknown preset '\[\]'.*Allowed: full"),
        (
            lambda: bwprof.importers.ncu_command("a", clock_control=np.array([])),
            "unknown clock_control .*Allowed: none",
        ),
        (lambda: bwprof.importers.ncu_command(["a", None]), "target holds None: a program is needed"),
        (lambda: bwprof.efficiency(with_run({"roofs": [1]})), r"\['roofs'\] are \[1\]: an object is needed"),
        (lambda: bwprof.save_baseline("main", with_run({}), force=pd.NA), "force is <NA>: allowed are True and False"),
        (lambda: bwprof.save_proof_bundle(with_run({}), "a", force=1), "force is 1: allowed are True and False"),
    ],
)
def test_empty_inputs(call: Callable[[], Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda data: bwprof.compare(data, data),
        lambda data: bwprof.save_proof_bundle(data, "run-1", root="proof"),
        bwprof.efficiency,
    ],
)
def test_metadata_of_another_kind(
    call: Callable[[pd.DataFrame], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=r"attrs\['run'\] is 3"):
        call(with_run(3))


@pytest.mark.parametrize("ms", [0.0, -1.0, math.inf, 1e-300])
def test_an_impossible_time_is_not_reported(ms: float, tmp_path: Path) -> None:
    """What the bandwidth of such a time would be is not known, and 0 would say that it was measured."""
    with pytest.raises(ValueError, match=f"^time_ms is {ms:g}|^time_ms is {ms}"):
        bwprof.BandwidthReport.from_row(row("a", "fp32", time_ms=ms))
    with pytest.raises(ValueError, match=r"^time_ms is "):
        bwprof.BandwidthReport("a", "fp32", ms, 0.0, 1, 1).save_to_proof_bundle("run-1", tmp_path)
    with pytest.raises(ValueError, match=r"bandwidth_gb_s is 0\.0"):  # a rate of 0 is none
        bwprof.BandwidthReport.from_row(row("a", "fp32", time_ms=1.0, gb_s=0.0))


@pytest.mark.parametrize("ms", [0.0, -1.0, math.inf])
def test_an_invalid_time_makes_no_baseline(ms: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no measured case"):
        bwprof.save_baseline("main", [row("a", "fp32", time_ms=ms)], folder=tmp_path)
    assert not list(tmp_path.iterdir())
