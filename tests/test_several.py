"""One run over several devices: three that are the CPU under other names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import csv_rows, run_folder

import bwprof
from bwprof import _core, hardware
from bwprof.cli import main as bwprof_main
from bwprof.cli import runner as command
from bwprof.cli.commands.sweep import main_sweep
from bwprof.runs import api, loop
from bwprof.runs.channel import StoppedError
from bwprof.runs.executors import LocalExecutor

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ["gemm", "-p", "M=1,2", "-p", "N=8", "-p", "K=8", "--precision", "fp32", "--cache", "hot", "--no-roofs"]
POINT = {"N": 8, "K": 8, "precision": "fp32", "cache": "hot", "roofs": False, "max_seconds": 0}


class Named(LocalExecutor):
    """The CPU, which tells the number that it was asked for."""

    planted: Callable[[str, str], None] = staticmethod(lambda uuid, case: None)

    def __init__(self, backend: str, index: int, *_: object, **__: object) -> None:
        super().__init__(backend, index)

    @property
    def uuid(self) -> str:
        return f"CPU-{self._index}"

    def open(self, deadline: float | None = None) -> dict[str, Any]:
        Named.planted(self.uuid, "open")
        return super().open(deadline) | {"uuid": self.uuid}

    def measure(self, spec: Any, max_seconds: float, deadline: float | None) -> Any:
        Named.planted(self.uuid, spec.case)
        return super().measure(spec, max_seconds, deadline)


@pytest.fixture(autouse=True)
def three(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A CPU backend with devices 0, 1 and 2, in a folder of its own."""
    real = _core.backends()
    for backend in real:
        if backend["name"] == "cpu":
            backend["devices"] = [backend["devices"][0] | {"index": index} for index in range(3)]
        else:
            backend["devices"] = []
    monkeypatch.setattr(_core, "backends", lambda: real)
    opened = hardware.open_device
    monkeypatch.setattr(hardware, "open_device", lambda backend, _index: opened(backend, 0))
    monkeypatch.setattr(command, "ChildExecutor", Named)
    monkeypatch.setattr(api, "LocalExecutor", Named)
    monkeypatch.setattr(loop, "DEFAULT_CASE_SECONDS", 0.0)
    monkeypatch.setattr(Named, "planted", staticmethod(lambda uuid, case: None))
    monkeypatch.setattr("bwprof.plot.bars.save", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    return iter(())


def plant(monkeypatch: pytest.MonkeyPatch, at: tuple[str, str], error: BaseException) -> None:
    """What goes wrong on a device, in a case."""

    def planted(uuid: str, case: str) -> None:
        if (uuid, case) == at:
            raise error

    monkeypatch.setattr(Named, "planted", staticmethod(planted))


def order(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["device_uuid"], row["M"]) for row in rows]


WHOLE = [(f"CPU-{number}", m) for number in range(3) for m in ("1", "2")]


@pytest.mark.parametrize(
    ("device", "numbers"),
    [
        ("all", [0, 1, 2]),
        (["all"], [0, 1, 2]),
        ("0,2", [0, 2]),
        ("cpu:2, cpu", [2, 0]),
        ([1, "cpu:1", "1", 0], [1, 0]),
        ((2,), [2]),
        (None, [0]),
        ("cpu:1", [1]),
    ],
)
def test_the_devices_that_are_named(device: Any, numbers: list[int]) -> None:
    assert [choice.index for choice in hardware.choose_devices(None, device)] == numbers
    assert [choice.index for choice in hardware.choose_devices("cpu", device)] == numbers


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ([], "at least one device is needed"),
        ("0,,1", "device is ''"),
        ("0,7", "backend 'cpu' has no device 7: allowed are 0, 1, 2"),
        ("al", "device is 'al': allowed are a number and names like"),
        ([["cpu"]], "device is"),
        ("cuda,cpu", "cuda"),
    ],
)
def test_devices_that_do_not_exist(device: Any, said: str) -> None:
    with pytest.raises((ValueError, _core.UnavailableError), match=said):
        hardware.choose_devices(None, device)


def test_one_run_on_all_devices_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep([*TINY, "--device", "all", "--csv", "-"]) == 0
    shown = capsys.readouterr()
    assert order(csv_rows(shown.out)) == WHOLE
    assert len({row["run_id"] for row in csv_rows(shown.out)}) == 1
    assert {row["hostname"] for row in csv_rows(shown.out)} != {""}
    assert [f"measuring cpu:{number}" in shown.err for number in range(3)] == [True] * 3
    run = bwprof.load(run_folder(Path())).attrs["run"]
    assert [(part["device_index"], part["facts"]["uuid"]) for part in run["devices"]] == [
        (number, f"CPU-{number}") for number in range(3)
    ]
    assert (run["device_index"], run["facts"]["uuid"], len(run["plan"])) == (0, "CPU-0", 2)
    assert [part["plan"] for part in run["devices"]] == [None] * 3, "the first's"
    assert "[2/2]" in shown.err
    assert "[3/2]" not in shown.err, "each device's cases are counted by themselves"
    assert bwprof_main(["report", str(run_folder(Path()))]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if "CPU-" in line]
    assert [title.split()[-1] for title in titles] == ["CPU-0", "CPU-1", "CPU-2"]


def test_each_device_has_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[str]] = {}

    def save(frame: Any, path: Path) -> None:
        drawn[path.name] = [frame.attrs["run"]["facts"]["uuid"], *frame["device_uuid"].unique()]

    monkeypatch.setattr("bwprof.plot.bars.save", save)
    plant(monkeypatch, ("CPU-1", "open"), _core.UnavailableError("gone"))
    assert main_sweep([*TINY, "--device", "all"]) == 3
    assert drawn == {f"{command.PICTURE_NAME}_cpu{number}": [f"CPU-{number}"] * 2 for number in (0, 2)}
    drawn.clear()
    assert main_sweep([*TINY, "--device", "2"]) == 0
    assert drawn == {command.PICTURE_NAME: ["CPU-2", "CPU-2"]}


def test_a_frame_of_several_devices() -> None:
    frame = bwprof.sweep("gemm", M=[1, 2], device=["cpu:1", 0], **POINT)  # type: ignore[arg-type]
    assert frame[["device_uuid", "M"]].to_numpy().tolist() == [["CPU-1", 1], ["CPU-1", 2], ["CPU-0", 1], ["CPU-0", 2]]
    assert set(bwprof.outliers(frame)["verdict"]) == {"undecided"}
    assert next(iter(bwprof.view(frame))) == "device_uuid"
    every = bwprof.sweep("gemm", M=1, device="all", **POINT)  # type: ignore[arg-type]
    assert set(bwprof.outliers(every)["devices"]) == {3}
    one = bwprof.sweep("gemm", M=1, device=[2], **POINT)  # type: ignore[arg-type]
    assert "devices" not in one.attrs["run"], "of one it is a run like any other"
    with pytest.raises(ValueError, match="one device"):
        bwprof.sweep(lambda: None, device=["cpu"])  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [("CPU-0", "gemm M=2 N=8 K=8"), ("CPU-1", "gemm M=1 N=8 K=8"), ("CPU-2", "open")])
@pytest.mark.parametrize("error", [StoppedError(), KeyboardInterrupt()], ids=["signal", "ctrl-c"])
def test_an_interrupted_run_loses_nothing_and_resumes(
    at: tuple[str, str], error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, at, error)
    assert main_sweep([*TINY, "--device", "all"]) == 130
    folder = run_folder(Path())
    before = csv_rows((folder / "results.csv").read_text())
    done = {("CPU-0", "gemm M=2 N=8 K=8"): 1, ("CPU-1", "gemm M=1 N=8 K=8"): 2, ("CPU-2", "open"): 4}[at]
    assert order(before) == WHOLE[:done]
    assert bwprof.load(folder).attrs["run"]["status"] == "interrupted"
    plant(monkeypatch, ("", ""), error)
    assert main_sweep(["--resume", folder.name]) == 0
    after = csv_rows((folder / "results.csv").read_text())
    assert order(after) == WHOLE
    assert [row["timestamp"] for row in after[:done]] == [row["timestamp"] for row in before], "not measured again"
    capsys.readouterr()
    assert main_sweep(["--resume", folder.name]) == 0
    assert "measuring" not in capsys.readouterr().err, "nothing is left to do"


def test_a_killed_run_keeps_the_device_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts of a device stand in the file before its first row does."""
    known: dict[str, set[str]] = {}

    def planted(uuid: str, case: str) -> None:
        if case != "open":
            run = json.loads((run_folder(Path()) / "results.json").read_text())["run"]
            known[uuid] = {part["facts"]["uuid"] for part in run["devices"] if "facts" in part}

    monkeypatch.setattr(Named, "planted", staticmethod(planted))
    assert main_sweep([*TINY, "--device", "all"]) == 0
    assert known == {f"CPU-{last}": {f"CPU-{number}" for number in range(last + 1)} for last in range(3)}


def test_a_device_that_does_not_open_fails_only_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, ("CPU-1", "open"), _core.UnavailableError("it fell off the bus"))
    assert main_sweep([*TINY, "--device", "all"]) == 3
    folder = run_folder(Path())
    rows = csv_rows((folder / "results.csv").read_text())
    assert [row["status"] for row in rows] == ["ok", "ok", "failed", "failed", "ok", "ok"]
    assert rows[2]["reason"].endswith("off the bus")
    plant(monkeypatch, ("", ""), ValueError())
    assert main_sweep(["--resume", folder.name]) == 0
    rows = csv_rows((folder / "results.csv").read_text())
    assert sorted(order(rows)) == WHOLE
    assert {row["status"] for row in rows} == {"ok"}
    plant(monkeypatch, ("CPU-1", "open"), _core.UnavailableError("it fell off the bus"))
    assert main_sweep([*TINY, "--device", "1"]) == 2, "one alone: nothing can be measured"


def test_each_device_has_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    real = loop.RunLoop.prepare

    def prepare(job: loop.RunLoop, *arguments: Any) -> Any:
        shares.append(job.limits.left())
        return real(job, *arguments)

    monkeypatch.setattr(loop.RunLoop, "prepare", prepare)
    found = bwprof.sweep("gemm", M=1, device="all", max_total_seconds=3000, **POINT)  # type: ignore[call-overload]
    assert set(found["status"]) == {"ok"}
    assert 900 < shares[0] <= 1000, "a third"
    assert 1300 < shares[1] <= 1500, "half of what is left"
    assert 2600 < shares[2] <= 3000, "the rest"
    found = bwprof.sweep("gemm", M=1, device="all", max_total_seconds=1e-9, **POINT)  # type: ignore[arg-type]
    assert found["status"].tolist() == ["skipped"] * 3
    assert found["reason"].str.contains(r"1e-09 s .*max.total.seconds").all()


def test_a_damaged_list_of_devices_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep([*TINY, "--device", "0,1"]) == 0
    folder = run_folder(Path())
    content = json.loads((folder / "results.json").read_text())
    for damaged in ([], {}, [1], [{}], [{"backend": "cpu"}], [{"backend": "cpu", "device_index": "0"}], "x"):
        content["run"]["devices"] = damaged
        (folder / "results.json").write_text(json.dumps(content))
        capsys.readouterr()
        assert main_sweep(["--resume", folder.name]) == 2
        assert "its devices are" in capsys.readouterr().err


def test_each_backend_has_its_own_plan() -> None:
    assert main_sweep([*TINY, "--device", "0,1"]) == 0
    file = run_folder(Path()) / "results.json"
    content = json.loads(file.read_text())
    plan = content["run"]["plan"]
    content["run"]["devices"][1]["plan"] = [plan[0], plan[1] | {"case": "b"}]
    file.write_text(json.dumps(content))
    assert main_sweep(["--resume", file.parent.name]) == 0
    rows = csv_rows((file.parent / "results.csv").read_text())
    assert [(row["device_uuid"], row["case"]) for row in rows] == [
        *((f"CPU-{number}", f"gemm M={m} N=8 K=8") for number in range(2) for m in (1, 2)),
        ("CPU-1", "b"),
    ]


def test_the_plan_of_each_device(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = _core.Device
    monkeypatch.setattr(_core, "Device", lambda backend, _index: real(backend, 0))
    assert main_sweep([*TINY, "--device", "0,2", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "2 cases on cpu:0" in out
    assert "2 cases on cpu:2" in out
    assert main_sweep([*TINY, "--device", "0,2", "--once"]) == 0
    assert capsys.readouterr().err.count("launched gemm M=1") == 2
