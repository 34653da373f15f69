"""Ablations that end early or fail in part: the measured variants stay. On the CPU."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_torch
import pandas as pd
import pytest
from commands import GIVE_UP_SECONDS, Here, csv_rows

import bwprof
from bwprof import _core
from bwprof.cli import guard, main, output
from bwprof.experiments import ablation as ablation_table
from bwprof.experiments import torch_peers
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Outcome, make_unmeasured
from bwprof.results import atomic
from bwprof.runs import executors

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"device": "cpu", "cache": "hot", "max_seconds": 0.01, "roofs": False}
ONE = {**SMALL, "variant": "naive"}
THREE = {**SMALL, "variant": "naive,gemv,blocked"}  # of FP32
SHAPE = {"M": 4, "N": 32, "K": 48}
COMMAND = "ablation gemm --device cpu --cache hot --max-seconds 0.01 --no-roofs -q -p M=4 -p N=32 -p K=48".split()
COMMAND += ["--variant", THREE["variant"]]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys, main)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    return fake_torch.plant(monkeypatch)


def _plant(monkeypatch: pytest.MonkeyPatch, variant: str, happens: Callable[[Any], Any]) -> None:
    """Call `happens` before a variant is measured, with what its row is made of."""
    real = executors.measuring.measure

    def planted(device: Any, spec: Any, context: Any, **options: Any) -> Outcome:
        return (spec.variant == variant and happens((spec, context))) or real(device, spec, context, **options)

    monkeypatch.setattr(executors.measuring, "measure", planted)


def _interrupt(_made_of: Any) -> None:
    raise KeyboardInterrupt


def _lost(made_of: Any) -> Outcome:
    return Outcome(make_unmeasured(*made_of, "failed", "illegal address").row, fatal=True)


def test_an_interrupt_has_the_measured_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    _plant(monkeypatch, "blocked", _interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        bwprof.ablation("gemm", vs="torch", **SHAPE, **THREE)
    found = caught.value.frame  # type: ignore[attr-defined]
    assert found["version"].tolist() == ["naive", "gemv"]
    naive, gemv = found["time_ms"]
    assert found["measured_gain"].tolist()[1:] == pytest.approx([naive / gemv])
    assert found.attrs["missing"] == ["blocked", "torch.matmul"]
    assert found.attrs["run"]["status"] == "interrupted"
    assert any("blocked, torch.matmul" in note for note in ablation_table.notes(found))


def test_a_lost_device_has_the_measured_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    _plant(monkeypatch, "gemv", _lost)
    with pytest.raises(bwprof.SweepError, match="illegal address") as caught:
        bwprof.ablation("gemm", **SHAPE, **THREE)
    assert caught.value.frame["status"].tolist() == ["ok", "failed"]
    assert caught.value.frame.attrs["missing"] == ["blocked"]
    assert caught.value.frame.attrs["run"]["status"] == "failed"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (_core.UnsupportedError("K is odd"), "skipped", "K is odd"),
        (_core.MemoryLimitError("2 TiB are not free"), "skipped", "2 TiB are not free"),
        (MemoryError(), "skipped", "out of memory"),
        (_core.DeviceError("launch failed"), "failed", "launch failed"),
        (None, "failed", "wrong result: row 3 is wrong"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_failed_variant_costs_no_other(
    error: Exception | None, status: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, finish = Spec.open, executors.measuring.finish_row

    def opened(spec: Spec, device: Any, **how: Any) -> Any:
        if spec.variant == "gemv" and error is not None:
            raise error
        return real(spec, device, **how)

    def finished(row: Any, result: dict[str, Any], *rest: Any) -> Outcome:
        wrong = {"verified": False, "reason": "row 3 is wrong"} if row["variant"] == "gemv" and error is None else {}
        return finish(row, result | wrong, *rest)

    monkeypatch.setattr(Spec, "open", opened)
    monkeypatch.setattr(executors.measuring, "finish_row", finished)
    found = bwprof.ablation("gemm", **SHAPE, **THREE).set_index("version")
    assert found["status"].to_dict() == {"naive": "ok", "gemv": status, "blocked": "ok"}
    assert said in found.loc["gemv", "reason"]
    assert found.loc["blocked", "measured_gain"] == found.loc["naive", "time_ms"] / found.loc["blocked", "time_ms"]


@pytest.mark.parametrize("error", [KeyError("q"), OSError("libcudart"), MemoryError(), AssertionError("never")])
def test_exceptions_of_pytorch_cost_no_variant(error: Exception, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(torch, "matmul", raises)
    found = bwprof.ablation("gemm", vs="torch", **SHAPE, **ONE)
    assert found["status"].tolist() == ["ok", "failed"]
    assert found["reason"].tolist()[1] == (str(error) or "MemoryError")


def test_a_pytorch_that_cannot_be_loaded_costs_no_variant(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> None:
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(torch_peers.importlib.util, "find_spec", broken)
    found = bwprof.ablation("gemm", vs="torch", **SHAPE, **ONE)
    assert found["version"].tolist() == ["naive"]
    assert "libcudart.so.12" in found.attrs["torch"]


def test_a_failed_peer_costs_no_other(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emptying PyTorch's cache fails, for example, once its context is gone."""
    real = torch_peers._PeerBench._settings
    prepared = []

    def settings(bench: Any, module: Any) -> Any:
        prepared.append(bench)
        if len(prepared) > 1:
            raise RuntimeError("CUDA error: launch failed\nand more")
        return real(bench, module)

    monkeypatch.setattr(torch_peers._PeerBench, "_settings", settings)
    shape = {"batch": 1, "seq_len": 3, "num_heads": 1, "num_kv_heads": 1, "head_dim": 8}
    found = bwprof.ablation("attention_prefill", precision="fp16", vs="torch", variant="flash", **shape, **SMALL)
    beside = found[found["kind"] == "peer"]
    assert beside["status"].tolist() == ["ok", "failed", "failed"]
    assert beside["reason"].tolist()[1:] == ["CUDA error: launch failed"] * 2
    assert found["status"].tolist()[0] == "ok"


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        (lambda _: os.kill(os.getpid(), signal.SIGTERM), 130, "interrupted"),
        (_interrupt, 130, "interrupted"),
        (_lost, 3, "error: the device is lost"),
    ],
    ids=["SIGTERM", "Ctrl-C", "lost"],
)
def test_the_command_writes_the_measured_variants(
    ending: Any, code: int, said: str, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plant(monkeypatch, "gemv", ending)
    files = {kind: tmp_path / f"ladder.{kind}" for kind in ("csv", "json", "md")}
    named = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    found, out, err = here(*COMMAND, *named, "-o", str(tmp_path / "ladder.svg"))
    assert found == code
    missing = "blocked" if ending is _lost else "gemv, blocked"
    assert said in err
    assert f"is kept; not measured: {missing}\n" in err
    assert "naive" in out
    kept = pd.read_csv(files["csv"])["version"].tolist()
    assert kept == (["naive", "gemv"] if ending is _lost else ["naive"])
    document = json.loads(files["json"].read_text())
    assert [row["version"] for row in document["rows"]] == kept
    assert document["missing"] == missing.split(", ")
    assert document["run"]["status"] == ("failed" if ending is _lost else "interrupted")
    assert missing in files["md"].read_text()
    assert (tmp_path / "ladder.svg").read_text().startswith("<?xml")


def test_an_interrupt_before_the_first_variant_writes_nothing(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plant(monkeypatch, "naive", _interrupt)
    code, out, err = here(*COMMAND, "--csv", str(tmp_path / "x.csv"), "-o", str(tmp_path / "x.svg"))
    assert (code, out) == (130, "")
    (line,) = err.splitlines()
    assert line.startswith("bwprof: interrupted: ")
    assert line.endswith(": naive, gemv, blocked")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("no font")])
def test_a_picture_that_cannot_be_written_costs_nothing_else(
    error: Exception, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr("bwprof.plot.gains.save_ablation", fails)
    code, out, err = here(*COMMAND, "--csv", str(tmp_path / "x.csv"), "-o", str(tmp_path / "x.svg"))
    assert code == 3
    (line,) = (line for line in err.splitlines() if "x.svg" in line)
    assert line.endswith(f": {error.args[-1]}")
    assert "Predicted and measured" in out
    assert len(pd.read_csv(tmp_path / "x.csv")) == 3


def test_a_file_that_cannot_be_written_costs_nothing_else(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = atomic.atomic_write

    def full(path: Path, text: str) -> None:
        if path.suffix == ".csv":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, text)

    monkeypatch.setattr(output, "atomic_write", full)
    code, out, err = here(*COMMAND, "--csv", str(tmp_path / "x.csv"), "--json", str(tmp_path / "x.json"))
    assert code == 3
    assert f"x.csv: {os.strerror(errno.ENOSPC)}\n" in err
    assert len(csv_rows(err[err.index("operation,precision") :])) == 3
    assert "Predicted and measured" in out
    assert len(json.loads((tmp_path / "x.json").read_text())["rows"]) == 3


def test_a_signal_after_the_last_variant_costs_the_picture_alone(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bwprof.plot.gains.save_ablation", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    code, out, err = here(*COMMAND, "--csv", str(tmp_path / "x.csv"), "-o", str(tmp_path / "x.svg"))
    assert code == 130
    assert "bwprof: interrupted: " in err
    assert "3 variants" in err
    assert "Predicted and measured" in out
    assert len(pd.read_csv(tmp_path / "x.csv")) == 3


class Full(io.StringIO):
    """A standard output on a disk that is full."""

    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_standard_output_costs_no_picture_and_no_row(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_silence", lambda _number: None)  # of this process
    with monkeypatch.context() as there:
        there.setattr(sys, "stdout", Full())
        code, _, err = here(*COMMAND, "-o", str(tmp_path / "x.svg"))
    assert code == 3
    assert f"the standard output: {os.strerror(errno.ENOSPC)}\n" in err
    rows = err[err.index("operation,precision") : err.index("bwprof: error")]
    assert len(csv_rows(rows)) == 3
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")


def test_a_signal_ends_the_wait_for_a_pipe(here: Here, tmp_path: Path) -> None:
    """The rows are on standard error; the other file was written before."""
    os.mkfifo(tmp_path / "x.csv")
    there = tmp_path / "x.json"

    def leave() -> None:
        until = time.monotonic() + GIVE_UP_SECONDS
        while not there.exists() and time.monotonic() < until:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    thread = threading.Thread(target=leave)
    thread.start()
    code, _, err = here(*COMMAND, "--csv", str(tmp_path / "x.csv"), "--json", str(there))
    thread.join()
    assert code == 3
    assert len(csv_rows(err[err.index("operation,precision") : err.index("bwprof: interrupted: ")])) == 3
