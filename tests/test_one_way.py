"""The same words in Python and in the shell: the stop rule, what rows are held against, parameters of any name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from words import words as words_of

import bwprof
from bwprof import _core, cli, hardware, registry
from bwprof.measuring import function
from bwprof.measuring.operation import Spec
from bwprof.roofs import obtain as roofs_obtain
from bwprof.roofs import store
from bwprof.roofs.model import RoofPoint
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import executors, metadata, plan

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK: dict[str, Any] = {"device": "cpu", "cache": "hot", "roofs": False}
TINY: dict[str, Any] = {"M": 1, "N": 8, "K": 8, "precision": "fp32", **QUICK}
COMMAND = ["gemm", "--device", "cpu", "-p", "N=8", "-p", "K=8", "--precision", "fp32", "--quiet"]
EMPTY: dict[str, Any] = {"format": "bwprof-results", "schema_version": 1, "rows": [], "run": {}}
POINT = RoofPoint("stream_copy", 0.5, 1 << 20, (1 << 20) / 40e9)  # 40 GB/s


def own_roofs() -> bwprof.Roofs:
    """Roofs of this processor that nobody measured."""
    with _core.Device("cpu") as device:
        facts = hardware.facts(device)
        kept = (facts["name"], facts["uuid"], facts["driver"])
        return bwprof.Roofs(*kept, _core.__version__, 1e-9, (POINT,), threads=facts["units"])


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bwprof.Roofs:
    """Roofs in a cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = own_roofs()
    with _core.Device("cpu") as device:
        assert store.save(store.identity("cpu", hardware.facts(device)), found) is not None
    return found


@pytest.fixture
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No roof."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("roofs are measured")

    monkeypatch.setattr("bwprof.roofs.survey.measure", refuse)


# ---- the stop rule ----


def test_a_wide_target_stops_early_and_a_narrow_one_does_not(here: Any) -> None:
    wide = bwprof.sweep("gemm", **TINY, rel_ci=0.9, max_seconds=300)
    narrow = bwprof.sweep("gemm", **TINY, rel_ci=1e-9, max_seconds=0.1)
    assert (wide["converged"].tolist(), narrow["converged"].tolist()) == ([True], [False])
    assert bwprof.measure(lambda: None, **QUICK, rel_ci=0.9, max_seconds=300).converged is True
    with bwprof.Case("gemm", M=1, N=8, K=8, device="cpu") as case:
        assert case.measure(cache="hot", rel_ci=0.9, max_seconds=300).converged is True
        assert case.measure(cache="hot", rel_ci=1e-9, max_seconds=0.1).converged is False
    assert bwprof.sweep(lambda: None, **QUICK, rel_ci=0.9, max_seconds=300)["converged"].tolist() == [True]
    code, out, _ = here(*COMMAND, "--cache", "hot", "--rel-ci", "90%", "--max-seconds", "300", "--csv", "-")
    assert code == 0
    assert ",True,0," in out, "converged, seed"


@pytest.mark.parametrize("wrong", [0, -0.1, 1, 2, "0", "100%", "x", "%", None.__class__, float("nan"), True])
def test_invalid_targets(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"rel_ci is .*: .*fraction"):
        bwprof.measure(lambda: None, **QUICK, rel_ci=wrong)
    with pytest.raises(ValueError, match="rel_ci is "):
        bwprof.sweep("gemm", **TINY, rel_ci=wrong)
    with pytest.raises(ValueError, match="rel_ci is "):
        bwprof.sweep(lambda: None, **QUICK, rel_ci=wrong)


@pytest.mark.parametrize("wrong", [-1, "1", True, float("nan"), float("inf"), [1]])
@pytest.mark.parametrize("name", ["max_seconds", "max_total_seconds", "target_seconds"])
def test_invalid_seconds(name: str, wrong: Any) -> None:
    needed = "a number of seconds from 0 on" if name == "max_seconds" else "a positive number of seconds"
    said = re.escape(f"{name} is {wrong!r}: {needed} is needed")
    with pytest.raises(ValueError, match=said):
        bwprof.sweep("gemm", **TINY, **{name: wrong})
    if name != "target_seconds":
        with pytest.raises(ValueError, match=said):
            bwprof.sweep(lambda: None, **QUICK, **{name: wrong})


@pytest.mark.parametrize("wrong", [-1, None, "1", True, float("nan"), float("inf")])
def test_invalid_seconds_of_one_measurement(wrong: Any) -> None:
    said = re.escape(f" is {wrong!r}: a number of seconds from 0 on is needed")
    with pytest.raises(ValueError, match=f"^max_seconds{said}"):
        bwprof.measure(lambda: None, **QUICK, max_seconds=wrong)
    with bwprof.Case("gemm", M=1, N=8, K=8, device="cpu") as case:
        with pytest.raises(ValueError, match=f"^max_seconds{said}"):
            case.measure(cache="hot", max_seconds=wrong)
        with pytest.raises(ValueError, match=f"^verify_seconds{said}"):
            case.measure(cache="hot", verify_seconds=wrong)
        with pytest.raises(ValueError, match=f"^max_seconds{said}"):
            case.verify(max_seconds=wrong)


def test_no_seconds_are_as_few_samples_as_there_can_be(here: Any) -> None:
    with bwprof.Case("gemm", M=1, N=8, K=8, device="cpu") as case:
        found = [case.measure(cache="hot", max_seconds=0).samples]
    found.append(bwprof.measure(lambda: None, **QUICK, max_seconds=0).samples)
    found += bwprof.sweep("gemm", **TINY, max_seconds=0)["samples"].tolist()
    found += bwprof.sweep(lambda: None, **QUICK, max_seconds=0)["samples"].tolist()
    assert found == [10] * 4
    code, _, err = here(*COMMAND, "--cache", "hot", "--max-seconds", "0", "--output", "rows.json")
    assert code == 0, err
    assert set(bwprof.load("rows.json")["samples"]) == {10}


class Asked:
    """A case of the core's: what target reaches it, and no sample more than it must take."""

    def __init__(self, core: Any, seen: list[float]) -> None:
        self._core, self._seen = core, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._core.close()

    def measure(self, **options: Any) -> Any:
        self._seen.append(options["precision_target"])
        return self._core.measure(**options | {"max_seconds": 0.0})


@pytest.mark.parametrize("given", [0.9, "90%", " 90 %", "0.9"])
def test_a_fraction_is_read_as_in_the_shell(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    opened, timed = Spec.open, function.time_call
    monkeypatch.setattr(Spec, "open", lambda spec, device, **how: Asked(opened(spec, device, **how), seen))

    def watched(device: Any, subject: Any, options: dict[str, Any], *more: Any) -> Any:
        seen.append(options["precision_target"])
        return timed(device, subject, options | {"max_seconds": 0.0}, *more)

    monkeypatch.setattr(function, "time_call", watched)
    with bwprof.Case("gemm", M=1, N=8, K=8, device="cpu") as case:
        monkeypatch.setattr(case, "_case", Asked(case._case, seen))
        for use in (
            lambda: bwprof.sweep("gemm", **TINY, rel_ci=given),
            lambda: bwprof.sweep(lambda: None, **QUICK, rel_ci=given),
            lambda: bwprof.measure(lambda: None, **QUICK, rel_ci=given),
            lambda: case.measure(cache="hot", rel_ci=given),
        ):
            seen.clear()
            use()
            assert set(seen) == {0.9}


def test_flags_must_be_booleans(tmp_path: Path) -> None:
    uses: list[tuple[str, Any]] = [
        ("samples", lambda given: bwprof.load(tmp_path / "no.json", samples=given)),
        ("counters", lambda given: bwprof.sweep("gemm", **TINY, counters=given)),
        ("counters", lambda given: bwprof.sweep(lambda: None, **QUICK, counters=given)),
        ("counters", lambda given: bwprof.measure(lambda: None, **QUICK, counters=given)),
        ("recalibrate", lambda given: bwprof.sweep("gemm", **TINY, recalibrate=given)),
        ("force", lambda given: bwprof.sweep("gemm", **TINY, force=given)),
        ("probe", lambda given: bwprof.info(probe=given)),
        ("quick", lambda given: bwprof.selftest("timers", quick=given, device="cpu")),
    ]
    for name, use in uses:
        for wrong in ("yes", "x", 1, None):
            with pytest.raises(TypeError, match=f"{name} is {wrong!r}: allowed are True and False"):
                use(wrong)
    with pytest.raises(TypeError, match="progress is 'no'"):
        bwprof.sweep("gemm", **TINY, progress="no")  # type: ignore[arg-type]
    assert bwprof.sweep("gemm", **TINY, force=np.bool_(True))["status"].tolist() == ["ok"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--rel-ci", "0"], "--rel-ci is '0': allowed is a share between 0% and 100%, such as 0.5%"),
        (["--rel-ci", "100%"], "--rel-ci is '100%'"),
        (["--rel-ci", "x"], "--rel-ci is 'x'"),
        (["--max-seconds", "x"], "--max-seconds is 'x': a number of seconds from 0 on is needed"),
        (["--target-seconds", "0"], "--target-seconds is '0': a positive number of seconds is needed"),
    ],
)
def test_invalid_options(here: Any, option: list[str], said: str) -> None:
    code, _, err = here(*COMMAND, *option)
    assert code == 2
    assert said in err


def test_seconds_of_a_case_override_the_suites() -> None:
    asked = plan.SweepRequest(suite="default", max_seconds=3.0)
    assert (plan.make_plan(asked, "cpu").target_seconds, plan.make_plan(asked, "cpu").max_seconds) == (None, 3.0)
    both = replace(asked, target_seconds=9.0)
    assert plan.make_plan(both, "cpu").target_seconds == 9.0
    assert plan.make_plan(replace(asked, max_seconds=None), "cpu").target_seconds is not None


def test_a_resumed_run_keeps_the_stop_rule(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = here(*COMMAND, "--cache", "hot", "--rel-ci", "0.2", "--max-seconds", "0.03", "--output", "runs")
    assert code == 0, err
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "results.csv").unlink()
    document = json.loads((folder / "results.json").read_text())
    assert [spec["rel_ci"] for spec in document["run"]["plan"]] == [0.2]
    assert document["run"]["max_seconds"] == 0.03
    document["rows"] = []
    (folder / "results.json").write_text(json.dumps(document))
    seen: list[tuple[float | None, float]] = []
    real = executors.LocalExecutor.measure

    def watched(self: Any, item: Any, max_seconds: float, deadline: float | None, /) -> Any:
        seen.append((item.rel_ci, max_seconds))
        return real(self, item, max_seconds, deadline)

    monkeypatch.setattr(executors.LocalExecutor, "measure", watched)
    code, _, err = here("--resume", str(folder), "--quiet")
    assert code == 0, err
    assert set(seen) == {(0.2, 0.03)}


def test_a_precision_of_no_operation_is_refused(here: Any) -> None:
    said = "no precision int8 of stream_copy: allowed are fp32, fp16, bf16"
    with pytest.raises(ValueError, match=said):
        bwprof.sweep("stream_copy", elements=1024, precision=["fp32", "int8"], **QUICK)
    code, _, err = here("stream_copy", "--device", "cpu", "--precision", "int8", "--dry-run")
    assert (code, said in err) == (2, True)
    found = bwprof.sweep(["stream_copy", "gemm"], elements=1024, **{**TINY, "precision": "q4_0"})
    known = dict(zip(found["operation"], found["status"], strict=True))
    assert known == {"stream_copy": "skipped", "gemm": "ok"}, "one that another operation knows leaves a row"
    assert found.set_index("operation").loc["stream_copy", "reason"].endswith("no precision q4_0")


def test_a_measured_function_is_not_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr(function, "wrap_with_wait", lambda called, *seen: looked.append(seen) or called)
    bwprof.sweep(lambda: None, **QUICK, max_seconds=0)
    assert not looked, "the sweep saw what the first call returned"
    bwprof.sweep(lambda: lambda: None, **QUICK, max_seconds=0)
    assert len(looked) == 1, "what was prepared was never called before"


# ---- the command ----


@pytest.mark.parametrize(
    ("word", "meant"), [("swep", "sweep"), ("repot", "report"), ("columms", "columns"), ("Info", "info")]
)
def test_a_misspelled_command(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word, "x"]) == 2
    assert re.search(rf"'{word}'.*'{meant}'\?.*sweep", capsys.readouterr().err)


def test_a_misspelled_operation_is_not_taken_for_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gem", "--dry-run"]) == 2
    assert {"operation", "gem", "gemm"} <= words_of(capsys.readouterr().err)


def test_columns_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["columns", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == bwprof.columns().to_dict("records")
    assert cli.main(["columns", "--json", "time_ms"]) == 0
    assert [found["unit"] for found in json.loads(capsys.readouterr().out)] == ["ms"]


# ---- messages ----


LONG = "x" * 100_000
DIGITS = 10**4000


@pytest.mark.parametrize(
    "use",
    [
        lambda case: case.measure(cache=LONG),
        lambda case: case.measure(cache="hot", timer=LONG),
        lambda case: case.measure(cache="hot", min_samples=DIGITS),
        lambda case: case.measure(cache="hot", min_samples=LONG),
        lambda case: case.memory_needed(LONG),
        lambda _: bwprof.measure(lambda: None, **QUICK, timer=LONG),
        lambda _: bwprof.measure(lambda: None, **QUICK, sets=LONG),  # type: ignore[arg-type]
        lambda _: bwprof.measure(lambda _: None, **QUICK, sets=DIGITS),
        lambda _: bwprof.measure(lambda: None, **QUICK, bytes_read=DIGITS),
        lambda _: bwprof.measure(lambda: None, **QUICK, max_seconds=0, name=LONG, check=lambda: False),
        lambda _: bwprof.measure(lambda: None, **QUICK, max_seconds=0, name=LONG, check=lambda: None),
        lambda _: bwprof.sweep("gemm", **{**TINY, "M": DIGITS}),
        lambda _: bwprof.Case("gemm", M=DIGITS, device="cpu"),
        lambda _: bwprof.cost("gemm", M=DIGITS),
        lambda _: bwprof.Profiler(device="cpu").stop(LONG),
        lambda _: getattr(bwprof, LONG),
        lambda _: getattr(bwprof.Row(), LONG),
        lambda _: _core.cost(LONG, "fp32", {}, None, None, None),
        lambda _: _core.cost("gemm", LONG, {}, None, None, None),
        lambda _: _core.cost("gemm", "fp32", {LONG: 1}, None, None, None),
        lambda _: _core.cost("gemm", "fp32", {}, None, "cpu", LONG),
        lambda _: _core.cost("gemm", "fp32", {}, None, LONG, LONG),
        lambda _: _core.Device(LONG),
        lambda _: _core.decode(LONG, b""),
    ],
)
def test_no_message_repeats_a_long_value(use: Any) -> None:
    wrong = (AttributeError, RuntimeError, TypeError, ValueError)
    with bwprof.Case("gemm", M=1, N=8, K=8, device="cpu") as case, pytest.raises(wrong) as raised:
        use(case)
    assert 5 < len(str(raised.value)) < 600


# ---- roofs ----


@pytest.mark.usefixtures("nothing_is_measured")
def test_stored_roofs_are_used_unchecked(stored: bwprof.Roofs) -> None:
    cold = {"bytes_read": 1 << 19, "bytes_written": 1 << 19, "device": "cpu", "max_seconds": 0.02}
    assert bwprof.measure(lambda: None, **cold).attainable_gb_s == pytest.approx(40.0)
    assert bwprof.measure(lambda: None, roofs="stored", **cold).attainable_gb_s == pytest.approx(40.0)
    assert bwprof.measure(lambda: None, roofs=stored, **cold).attainable_gb_s == pytest.approx(40.0)
    assert bwprof.measure(lambda: None, roofs=False, **cold).attainable_gb_s is None
    small = {"elements": 1 << 17, "precision": "fp32", "device": "cpu", "max_seconds": 0.02}
    for given, wanted in (("stored", 40.0), (stored, 40.0), (False, float("nan"))):
        frame = bwprof.sweep("stream_copy", roofs=given, **small)
        assert frame["attainable_gb_s"].tolist() == pytest.approx([wanted], nan_ok=True)
    with bwprof.Case("stream_copy", elements=1 << 17, device="cpu") as case:
        row = case.measure(max_seconds=0.02)
        assert (row.attainable_gb_s, row.hostname is not None) == (pytest.approx(40.0), True)
        assert case.measure(max_seconds=0.02, roofs=False).attainable_gb_s is None


@pytest.mark.usefixtures("nothing_is_measured")
def test_the_commands_roofs(stored: bwprof.Roofs, here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def obtain(self: executors.LocalExecutor, wanted: RoofRequest, deadline: float | None) -> bwprof.Roofs | None:
        return roofs_obtain.obtain(self.device, wanted, deadline=deadline)

    monkeypatch.setattr(executors.LocalExecutor, "obtain_roofs", obtain)
    copy = ["stream_copy", "-p", "elements=128Ki", "--precision", "fp32", "--device", "cpu", "--quiet"]
    assert here(*copy, "--roofs", "stored", "--json", "a.json")[0] == 0
    assert here(*copy, "--no-roofs", "--json", "b.json")[0] == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing"))
    assert here(*copy, "--roofs", "stored", "--json", "c.json")[0] == 0
    assert here(*copy, "--roofs", "a.json", "--json", "d.json")[0] == 0
    found = [bwprof.load(tmp_path / f"{name}.json")["attainable_gb_s"][0] for name in "abcd"]
    assert found == pytest.approx([40.0, float("nan"), float("nan"), 40.0], nan_ok=True)
    document = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "e.json").write_text(json.dumps(document | {"run": document["run"] | {"roofs": 1.5}}))
    for option, said in (
        (["--roofs", "b.json"], "--roofs b.json: there are no roofs in it"),
        (["--roofs", "e.json"], "--roofs e.json: there are no roofs in it"),
        (["--roofs", "stord"], "--roofs: unknown roofs 'stord': did you mean 'stored'? Allowed: auto, stored, RUN"),
        (["--roofs", "auto", "--no-roofs"], "--no-roofs and --roofs contradict each other"),
        (["--roofs", "stored", "--recalibrate"], "--roofs and --recalibrate contradict each other"),
    ):
        code, _, err = here(*copy, *option)
        assert code == 2
        assert said in err


@pytest.mark.usefixtures("nothing_is_measured")
@pytest.mark.parametrize("choice", ["none", "stored", "given"])
def test_a_resumed_run_keeps_the_choice_of_roofs(
    choice: str, stored: bwprof.Roofs, here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def obtain(self: executors.LocalExecutor, wanted: RoofRequest, deadline: float | None) -> bwprof.Roofs | None:
        asked.append(wanted.stored)
        return roofs_obtain.obtain(self.device, wanted, deadline=deadline)

    monkeypatch.setattr(executors.LocalExecutor, "obtain_roofs", obtain)
    faster = replace(stored, points=(replace(POINT, seconds=POINT.seconds / 2),))  # 80 GB/s
    (tmp_path / "given.json").write_text(json.dumps({**EMPTY, "run": {"roofs": faster.to_dict()}}))
    option = {"none": ["--no-roofs"], "stored": ["--roofs", "stored"], "given": ["--roofs", "given.json"]}[choice]
    copy = ["stream_copy", "-p", "elements=128Ki", "--precision", "fp32", "--device", "cpu", "--quiet"]
    code, _, err = here(*copy, *option, "--output", "runs")
    assert code == 0, err
    (folder,) = (tmp_path / "runs").iterdir()
    wanted = {"none": None, "stored": 40.0, "given": 80.0}[choice]
    document = json.loads((folder / "results.json").read_text())
    assert document["rows"][0].get("attainable_gb_s") == (wanted and pytest.approx(wanted))
    assert document["run"]["roofs_choice"] == (False if choice == "none" else choice)

    def go_on(*more: str) -> Any:
        document["rows"] = []
        if choice == "stored":
            document["run"]["roofs"] = None  # it was stopped before there were any
        (folder / "results.json").write_text(json.dumps(document))
        (folder / "results.csv").unlink()
        asked.clear()
        code, _, err = here("--resume", str(folder), "--quiet", *more)
        assert code == 0, err
        return json.loads((folder / "results.json").read_text())

    assert go_on()["rows"][0].get("attainable_gb_s") == (wanted and pytest.approx(wanted))
    assert asked == ([True] if choice == "stored" else [])
    changed = go_on("--no-roofs")
    assert changed["rows"][0].get("attainable_gb_s") is None, "what is said now stands above what was said then"
    assert changed["run"]["roofs_choice"] is False
    document["run"]["roofs_choice"] = "nearest"
    (folder / "results.json").write_text(json.dumps(document))
    code, _, err = here("--resume", str(folder), "--quiet")
    assert (code, "roofs_choice is 'nearest'" in err) == (2, True)


def test_a_run_without_a_choice_of_roofs_resumes() -> None:
    assert metadata.read_roofs_argument({}) == "auto"
    assert metadata.read_roofs_argument({"roofs": own_roofs().to_dict()}) == "auto"
    assert metadata.read_roofs_argument(metadata.describe_roofs(own_roofs())) == own_roofs()
    with pytest.raises(ValueError, match="KeyError"):
        metadata.read_roofs_argument({"roofs_choice": "given"})


def test_roofs_in_python_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="roofs= and recalibrate=True"):
        bwprof.sweep("gemm", **TINY, recalibrate=True)


# ---- parameters and labels of any name ----


def test_a_functions_own_seed_name_and_sets() -> None:
    seen: list[tuple[Any, ...]] = []

    def kernel(seed: int, name: str, sets: int, operations: str, grid: int) -> None:
        seen.append((seed, name, sets, operations, grid))

    axes = {"seed": [1, 2], "name": "x", "sets": 3, "operations": "y", "grid": 4}
    found = bwprof.sweep(kernel, name="kernel", grid=axes, **QUICK)
    assert set(seen) == {(1, "x", 3, "y", 4), (2, "x", 3, "y", 4)}
    assert found["operation"].tolist() == ["kernel"] * 2
    assert found["seed"].tolist() == [1, 2]
    assert (found["name"].tolist(), found["sets"].tolist()) == (["x"] * 2, [3] * 2)


def test_grids_and_keywords_together() -> None:
    found = bwprof.sweep("gemm", grid={"M": [1, 2], "N": "8"}, K=8, precision="fp32", **QUICK)
    assert found[["M", "N", "K"]].to_numpy().tolist() == [[1, 8, 8], [2, 8, 8]]
    with pytest.raises(ValueError, match="grid= and as M="):
        bwprof.sweep("gemm", grid={"M": 1}, M=1, **QUICK)
    with pytest.raises(ValueError, match=r"'MM'.*'M'"):
        bwprof.sweep("gemm", grid={"MM": 1}, **QUICK)
    with pytest.raises(TypeError, match="grid is 3:"):
        bwprof.sweep("gemm", grid=3, **QUICK)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"seed .*operations.* grid="):
        bwprof.sweep(lambda seed: None, seed=[1, 2], **QUICK)  # type: ignore[arg-type]


def test_labels_of_a_measurement() -> None:
    row = bwprof.measure(lambda: None, **QUICK, max_seconds=0.02, labels={"name": "x", "sets": 3}, mine="y")
    assert (row["name"], row["sets"], row["mine"], row.operation) == ("x", 3, "y", "<lambda>")
    with pytest.raises(ValueError, match="labels= and as mine="):
        bwprof.measure(lambda: None, **QUICK, labels={"mine": 1}, mine=2)
    with pytest.raises(ValueError, match="'time_ms' is a column"):
        bwprof.measure(lambda: None, **QUICK, labels={"time_ms": 1})
    with pytest.raises(TypeError, match="labels is 3:"):
        bwprof.measure(lambda: None, **QUICK, labels=3)  # type: ignore[arg-type]


def test_numpys_numbers_are_numbers() -> None:
    narrow = np.float32(0.05)
    quick: dict[str, Any] = {"rel_ci": narrow, "max_seconds": narrow, "device": "cpu", "roofs": False}
    assert bwprof.measure(lambda: sum(range(9)), cache="hot", **quick)["status"] == "ok"
    swept = bwprof.sweep("gemm", M=1, N=8, K=8, precision="fp32", progress=False, **quick)
    assert swept["status"].tolist() == ["ok"]


def test_no_label_takes_the_place_of_the_raw_samples() -> None:
    with pytest.raises(ValueError, match="'samples_ns' are"):
        bwprof.measure(lambda: sum(range(9)), labels={"samples_ns": 3}, device="cpu")
    with pytest.raises(ValueError, match="'samples_ns' is a column"):
        bwprof.sweep("gemm", M=1, N=8, K=8, labels={"samples_ns": 3}, device="cpu")
    with pytest.raises(ValueError, match="'samples_ns' are"):
        bwprof.sweep(lambda n: sum(range(n)), n=5, labels={"samples_ns": 3}, device="cpu")


@pytest.mark.parametrize(("name", "value"), [("tokens", "few"), ("hidden", "x"), ("hostname", "mine"), ("M", 3)])
def test_labels_do_not_replace_columns(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is a column that bwprof fills"):
        bwprof.sweep("gemm", labels={name: value}, **TINY)
    if name == "M":  # what a function's caller may fill
        assert value == bwprof.measure(lambda: None, **QUICK, max_seconds=0, labels={name: value}).M
        return
    with pytest.raises(ValueError, match=name):
        bwprof.measure(lambda: None, **QUICK, labels={name: value})
    with pytest.raises(ValueError, match=name):
        bwprof.sweep(lambda **_: None, labels={name: value}, **QUICK)
    with pytest.raises(ValueError, match=name):
        bwprof.sweep(lambda **_: None, grid={name: value}, **QUICK)


def test_labels_of_a_sweep(tmp_path: Path) -> None:
    found = bwprof.sweep("gemm", **TINY, labels={"commit": "abc"}, output=tmp_path / "rows.csv")
    assert found["commit"].tolist() == bwprof.load(tmp_path / "rows.csv")["commit"].tolist() == ["abc"]
    found = bwprof.sweep(lambda n: None, n=[1, 2], **QUICK, labels={"commit": "abc"})
    assert found["commit"].tolist() == ["abc"] * 2
    assert found["case"].tolist() == ["<lambda> n=1", "<lambda> n=2"], "what all rows share tells no case from another"
    for what in ("gemm", lambda: None):
        with pytest.raises(ValueError, match="'time_ms' is a column"):
            bwprof.sweep(what, labels={"time_ms": 1}, **QUICK)
    with pytest.raises(ValueError, match="'n' is a parameter"):
        bwprof.sweep(lambda n: None, n=1, labels={"n": 2}, **QUICK)


def test_lengths_in_the_shell(here: Any) -> None:
    small = ["--device", "cpu", "-p", "num_heads=2", "-p", "head_dim=8", "--precision", "fp32", "--quiet", "--no-roofs"]
    code, out, err = here("attention_decode", "--kv-lens", "5,1Ki", *small, "--cache", "hot", "--csv", "-")
    assert code == 0, err
    assert ",5;1024," in out
    code, _, err = here("gemm", "--kv-lens", "5", "--dry-run", "--device", "cpu")
    assert code == 2
    assert "kv_lens: gemm takes none" in err


# ---- precisions and commands by other names ----

SPELLED = {"fp8": "fp8_e4m3", "E4M3": "fp8_e4m3", "bfloat16": "bf16", "half": "fp16", "torch.float32": "fp32"}
SPELLED |= {"float8": "fp8_e4m3", "fp8e4m3": "fp8_e4m3", "F16": "fp16", "bf-16": "bf16", "I8": "int8", "int.8": "int8"}


@pytest.mark.parametrize(("word", "name"), SPELLED.items())
def test_each_spelling_of_a_precision_gives_one_name(word: str, name: str) -> None:
    assert bwprof.cost("gemm", precision=word) == bwprof.cost("gemm", precision=name)
    assert registry.check_precision(word) == name


@pytest.mark.parametrize("word", ["E4M3", "bf-16", "torch.float32"])
def test_everything_reads_the_spellings_of_precisions(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = SPELLED[word]
    suite = tmp_path / "mine.toml"
    suite.write_text(f'precisions = ["{word}"]\n[[case]]\nname = "x"\noperation = "gemm"\n')
    rates = bwprof.predict("gemm", device=f"bandwidth=100,{word}=5", precision=word)
    assert rates["precision"].tolist() == [name]
    assert rates["peak_tflops"].tolist() == [5]
    assert bwprof.model_step("qwen2.5-0.5b", weights=word, device="H200").steps["weights"].tolist() == [name]
    assert bwprof.measure(lambda: None, precision=word, max_seconds=0.01, **QUICK)["precision"] == name
    assert bwprof.plot.styles.style(word) == bwprof.plot.styles.style(name)
    rows = tmp_path / "rows.csv"
    bwprof.save(rates.assign(precision=word), rows)
    assert bwprof.load(rows)["precision"].tolist() == [name]
    rows.unlink()
    for given in (
        ["predict", "gemm", "--precision", word, "--csv", str(rows)],
        ["model", "qwen2.5-0.5b", "--weights", word, "--kv", word, "--device", "H200", "-q"],
        ["sweep", "gemm", "--precision", word, "--dry-run"],
        ["sweep", "--suite", str(suite), "--dry-run"],
        ["diagnose", str(rows), "--precision", word],
        ["plot", "ridge", "--precision", word, "-o", str(tmp_path / "ridge.svg")],
    ):
        assert cli.main(given) == 0, (given, capsys.readouterr())
    assert cli.main(["variants", "gemm", "--precision", word, "--device", "cpu"]) == 0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["sweep", "gemm", "--precision", "int4"], "'int4_g128'"),
        (["model", "qwen2.5-0.5b", "--weights", "nf4"], "'int4_g128'"),
        (["model", "qwen2.5-0.5b", "--kv", "int4"], ""),
        *(
            (["predict", "gemm", "--precision", word], "'fp8_e4m3'")
            for word in ("fp6", "FP-6")
            if registry.precision_name(word) not in registry.precision_names()
        ),
        (["variants", "gemm", "--precision", "Int-4"], "'int4_g128'"),
        (["plot", "speedup", "h200", "--to", "4bit"], "'int4_g128'"),
        (["roofline", "x.json"], "'plot roofline'"),
        (["heatmap", "x.json"], "'plot heatmap'"),
        (["bench"], "'sweep'"),
        (["demo"], "'show h200'"),
        (["rocprof", "x.csv"], "'diagnose'"),
        (["list"], "'sweep --list'"),
        (["sweep", "gemm", "--backend", "gpu", "--dry-run"], "'cuda'"),
        (["analyse", "x.json"], "'analyze'"),
        (["test"], "'selftest'"),
        (["cpu"], ""),
        (["completion", "bash"], ""),
        (["daemon"], ""),
    ],
)
def test_synonyms_suggest_a_command(given: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Or none is: an eight-bit type is no other spelling of a four-bit one."""
    assert cli.main(given) == 2
    hint = re.search("did you mean (.*)\\?", capsys.readouterr().err)
    assert (hint[1] if hint else "") == meant
