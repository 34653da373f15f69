"""Traces of ranges and of sweeps, against the format; Prometheus' text, against its grammar."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from commands import Here
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_format import checked, counters, slices, track_names

import bwprof
from bwprof import _core
from bwprof.profiler.ranges import Phase, Schedule, trace_text
from bwprof.results import exchange
from bwprof.results.exchange import Slice, TraceDocument, counter_points
from bwprof.runs import loop

pytestmark = pytest.mark.usefixtures("one_thread")

STRANGE = 'a"b\\c\n\t\x00\x1b\u2028é漢🚀\ud800'
QUICK: dict[str, Any] = {"backend": "cpu", "cache": "hot", "roofs": False, "target_seconds": 0.05}


def written(profiler: bwprof.Profiler, folder: Path) -> list[dict[str, Any]]:
    profiler.write_chrome_trace(folder / "trace.json")
    return checked((folder / "trace.json").read_text(encoding="utf-8"))


def test_ranges_have_their_times(tmp_path: Path) -> None:
    """On a CPU, ranges and perf_counter_ns read one clock: the times read before and after each start and stop enclose
    it.
    """
    now, read = time.perf_counter_ns, []
    with bwprof.Profiler(device="cpu") as profiler:
        profiler.set_bytes("inner", 3_000_000, 1_000_000)
        for _ in range(3):
            clock = [now()]
            with profiler.range("outer"):
                clock.append(now())
                with profiler.range("inner"):
                    clock.append(now())
                    time.sleep(0.002)
                    clock.append(now())
                clock.append(now())
            read.append([*clock, now()])
        events = written(profiler, tmp_path)
        times = profiler.times_ms("inner")
    found = slices(events)
    assert [one["name"] for one in found] == ["outer", "inner"] * 3
    assert found[0]["ts"] == 0.0
    assert [one["dur"] / 1e3 for one in found[1::2]] == pytest.approx(times, abs=1e-6)
    ends = [(one["ts"] * 1e3, (one["ts"] + one["dur"]) * 1e3) for one in found]
    zero = read[0][0], read[0][1]  # the first range began between them, and time with it
    for clock, outer, inner in zip(read, ends[::2], ends[1::2], strict=True):
        for place, at in enumerate((outer[0], inner[0], None, inner[1], outer[1])):
            if at is not None:  # between the clock's readings; a nanosecond is the last digit of what is written
                assert clock[place] - zero[1] - 2 <= at <= clock[place + 1] - zero[0] + 2, (place, at, clock, zero)
    assert found[1]["args"]["bytes_read"] == 3_000_000
    assert found[1]["args"]["bandwidth_gb_s"] == pytest.approx(4e6 / times[0] / 1e6)
    assert "bandwidth_gb_s" not in found[0]["args"]
    points = counters(events, "GB/s inner")
    assert [value > 0 for _, value in points] == [True, False] * 3
    assert track_names(events) == ["thread"]


def test_overlapping_ranges_get_a_track_of_their_own(tmp_path: Path) -> None:
    with bwprof.Profiler(device="cpu") as profiler:
        for name in ("first", "second"):
            profiler.start(name)
            time.sleep(0.001)
        for name in ("first", "second"):
            profiler.stop(name)
            time.sleep(0.001)
        events = written(profiler, tmp_path)
    assert track_names(events) == ["thread", "thread, overlapping 1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=12), st.sampled_from([0.0, 2.0]))
def test_overlapping_slices_nest_or_move_to_other_tracks(spans: list[tuple[int, int]], slack: float) -> None:
    trace = TraceDocument()
    trace.track(trace.process("p"), "t", [Slice("s", begin, took) for begin, took in spans], slack_us=slack)
    found = slices(checked(trace.text()))
    assert sorted(one["ts"] for one in found) == sorted(begin for begin, _ in spans)
    if not slack:
        assert sorted((one["ts"], one["dur"]) for one in found) == sorted(spans)


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        ([(0, 10, 5), (20, 5, 7)], [(0, 5), (10, 0), (20, 7), (25, 0)]),
        ([(0, 10, 5), (9.5, 10.5, 7)], [(0, 5), (9.5, 7), (10, 7), (20, 0)]),  # the second runs on
        ([(0, 10, 5), (2, 3, 7)], [(0, 5), (2, 7), (5, 5), (10, 0)]),  # the first goes on after it
        ([(0, 10, 5), (10, 10, 7)], [(0, 5), (10, 0), (10, 7), (20, 0)]),
        ([(4, 0, 5), (4, 2, 7)], [(4, 5), (4, 7), (4, 7), (6, 0)]),
        ([(4, 1, float("nan")), (4, 2, 7)], [(4, 7), (6, 0)]),
    ],
)
def test_a_counter_has_the_latest_running_slice(
    spans: list[tuple[float, float, float]], wanted: list[tuple[float, float]]
) -> None:
    assert counter_points([Slice("s", begin, took, {"GB/s": value}) for begin, took, value in spans], "GB/s") == wanted


def test_times_of_events_touch() -> None:
    """A range that ends half a microsecond after the next begins, by rounding, shares its track."""
    events = {"a": [(0.0, 1000.5e3, None, None)], "b": [(1000e3, 10e3, None, None)]}
    text = trace_text("cuda:0 toy", "stream 0x0", events, 9, exact=False)
    assert track_names(checked(text)) == ["stream 0x0"]


def test_an_empty_trace(tmp_path: Path) -> None:
    with bwprof.Profiler(enabled=False) as profiler:
        assert not slices(written(profiler, tmp_path))


def test_strange_names_and_paths(tmp_path: Path) -> None:
    with bwprof.Profiler(device="cpu") as profiler:
        for name in (STRANGE, "", "x" * 1_000_000):
            profiler.set_bytes(name, 8, 0)
            with profiler.range(name):
                pass
        assert [one["name"] for one in slices(written(profiler, tmp_path))] == [STRANGE, "", "x" * 1_000_000]
        for path, phrase in (
            (None, "path is None"),
            ("", "path is ''"),
            ("a\0b", "x00b"),
            ("\ud800", "ud800"),
        ):
            with pytest.raises((TypeError, ValueError), match=phrase):
                profiler.write_chrome_trace(path)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="most is 0"):
            profiler.write_chrome_trace(tmp_path / "t.json", most=0)
        profiler.write_chrome_trace(tmp_path / "t.json", most="1k")  # type: ignore[arg-type]
        assert len(slices(checked((tmp_path / "t.json").read_text()))) == 3
        with pytest.raises(OSError, match="nowhere"):
            profiler.write_chrome_trace(tmp_path / "nowhere" / "trace.json")


def test_of_a_million_ranges_the_latest_are_drawn(tmp_path: Path) -> None:
    with bwprof.Profiler(device="cpu") as profiler:
        for number in range(30):
            with profiler.range(str(number % 3)):
                pass
        profiler.write_chrome_trace(tmp_path / "t.json", most=4)
        found = checked((tmp_path / "t.json").read_text())
        assert [one["name"] for one in slices(found)] == ["2", "0", "1", "2"]
        assert '"ranges": 30, "left_out": 26' in (tmp_path / "t.json").read_text()


def test_a_running_range_and_a_reset(tmp_path: Path) -> None:
    with bwprof.Profiler(device="cpu") as profiler:
        profiler.start("runs")
        with profiler.range("ended"):
            pass
        assert [one["name"] for one in slices(written(profiler, tmp_path))] == ["ended"]
        profiler.reset()
        profiler.stop("runs")
        (one,) = slices(written(profiler, tmp_path))
        assert (one["name"], one["ts"]) == ("runs", 0.0)


# ---- schedules ----


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
def test_phases_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch.profiler", reason="PyTorch is not installed")
    names = {"NONE": Phase.OFF, "WARMUP": Phase.WARM_UP, "RECORD": Phase.ACTIVE, "RECORD_AND_SAVE": Phase.LAST}
    for wait, warmup, active, repeat, skip in ((1, 1, 2, 2, 0), (0, 0, 1, 0, 0), (2, 0, 3, 1, 4), (0, 2, 1, 3, 1)):
        numbers = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip}
        theirs, ours = torch.schedule(**numbers), Schedule(**numbers)
        assert [ours(step) for step in range(30)] == [names[theirs(step).name] for step in range(30)]


def steps(schedule: Any, count: int) -> list[list[str]]:
    """Return the ranges at the end of each cycle; range n is that of step n."""
    seen: list[list[str]] = []
    with bwprof.Profiler(device="cpu", schedule=schedule, on_trace_ready=lambda p: seen.append(ended(p))) as profiler:
        for step in range(count):
            with profiler.range(str(step)):
                pass
            profiler.step()
        assert profiler.step_num == count
    return seen


def ended(profiler: bwprof.Profiler) -> list[str]:
    found = profiler.frame()
    return found["range"][found["count"] > 0].tolist()


def test_a_schedule_times_its_active_steps() -> None:
    twice = {"wait": 1, "warmup": 1, "active": 2, "repeat": 2}
    assert steps(twice, 12) == [["2", "3"], ["6", "7"]]
    assert steps(Schedule(**twice), 7) == [["2", "3"], ["6"]], "what is cut short is told at the end"
    assert steps(Schedule(), 3) == [["0"], ["1"], ["2"], []]
    assert steps(Schedule(warmup=1, skip_first=1), 4) == [["2"], []]


def test_the_last_cycle_stays_until_it_is_read() -> None:
    with bwprof.Profiler(device="cpu", schedule={"warmup": 1, "active": 1, "repeat": 1}) as profiler:
        for _ in range(5):
            with profiler.range("a"):
                pass
            profiler.step()
        assert len(profiler.times_ms("a")) == 1
        assert not profiler.enabled


def test_a_schedule_of_pytorch_is_accepted() -> None:
    class Action:
        def __init__(self, name: str) -> None:
            self.name = name

    names = ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE"]
    assert steps(lambda step: Action(names[step]), 4) == [["2", "3"]]
    with pytest.raises(ValueError, match="'MAYBE' of step 0"):
        bwprof.Profiler(device="cpu", schedule=lambda _step: "MAYBE")


def test_wrong_schedules() -> None:
    for step in (1.5, float("nan"), "x", None):
        with pytest.raises(ValueError, match=r"step.*whole number"):
            bwprof.Schedule()(step)  # type: ignore[arg-type]
    for argument, error, phrase in (
        ({"wait": -1}, ValueError, "wait is -1"),
        ({"active": 0}, ValueError, "active is 0: at least 1 is needed"),
        ({"activ": 1}, ValueError, "did you mean 'active'"),
        ({"wait": 1.5}, ValueError, "wait is 1.5"),
        (3, TypeError, "schedule is 3: a bwprof.Schedule is needed"),
    ):
        with pytest.raises(error, match=phrase):
            bwprof.Profiler(device="cpu", schedule=argument)  # type: ignore[arg-type]


def test_a_callback_that_fails_leaves_a_closed_profiler() -> None:
    profiler = bwprof.Profiler(device="cpu", schedule=Schedule(), on_trace_ready=lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        profiler.close()
    assert not profiler.enabled
    profiler.close()


def test_on_trace_ready_may_not_step() -> None:
    with bwprof.Profiler(device="cpu", schedule=Schedule(), on_trace_ready=lambda one: one.step()) as profiler:
        with pytest.raises(RuntimeError, match=r"on_trace_ready.*step\(\)"):
            profiler.step()
        profiler._ready = None
        profiler.step()


def test_without_a_schedule_steps_are_counted() -> None:
    with bwprof.Profiler(device="cpu") as profiler:
        profiler.step()
        assert (profiler.step_num, profiler.enabled) == (1, True)
    with bwprof.Profiler(enabled=False, schedule=Schedule()) as profiler:
        profiler.step()
        assert not profiler.enabled


# ---- sweeps ----


def test_a_sweep_leaves_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        loop, "is_disturbed", lambda _row: False
    )  # no second tries, whose rows take the first ones' place
    target = tmp_path / "trace.json"
    frame = bwprof.sweep("gemm", M=[1, 2], N=64, K=64, precision="fp32", trace=target, **QUICK)
    events = checked(target.read_text())
    assert [re.split(r"\W", name)[0] for name in track_names(events)] == ["run", "cases", "one"]
    found = slices(events)
    cases = [one for one in found if one["tid"] == 2]
    launches = [one for one in found if one["tid"] == 3]
    assert [one["args"]["time_ms"] for one in cases] == frame["time_ms"].tolist()
    assert [one["dur"] for one in launches] == pytest.approx((frame["time_ms"] * 1e3).tolist(), abs=1e-3)
    assert cases[0]["name"] == f"{frame['case'][0]} fp32 {frame['variant'][0]}"
    assert cases[0]["ts"] + cases[0]["dur"] <= cases[1]["ts"] + 1e-3
    assert [value for _, value in counters(events, "GB/s") if value] == frame["bandwidth_gb_s"].tolist()
    assert "opening the device" in [one["name"] for one in found if one["tid"] == 1]
    for path, error, phrase in (
        (target, FileExistsError, "exists already"),
        (tmp_path / "nowhere" / "t.json", FileNotFoundError, "its folder is not there"),
        (3, TypeError, "trace is 3: a path is needed"),
        (tmp_path, IsADirectoryError, "it is a folder"),
    ):
        with pytest.raises(error, match=phrase):
            bwprof.sweep("gemm", M=1, N=64, K=64, trace=path, **QUICK)
    same = tmp_path / "same.json"
    with pytest.raises(ValueError, match=r"trace and output.*same\.json"):
        bwprof.sweep("gemm", M=1, N=64, K=64, trace=same, output=tmp_path / "." / "same.json", **QUICK)
    assert not same.exists()


def test_second_tries_are_in_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "is_disturbed", lambda _row: True)
    monkeypatch.setattr(loop, "AGAIN_SHARE", 100.0)
    target = tmp_path / "trace.json"
    frame = bwprof.sweep("gemm", M=[1, 2], N=64, K=64, precision="fp32", trace=target, **QUICK)
    cases = [one for one in slices(checked(target.read_text())) if one["tid"] == 2]
    name = f"{frame['case'][0]} fp32 {frame['variant'][0]}"
    assert [one["name"] for one in cases if one["name"].startswith(name)] == [name, f"{name} once more"]
    times = [one["args"]["time_ms"] for one in cases]
    assert len(times) == 4
    assert set(frame["time_ms"]) <= set(times), "what counts is among them"


def test_an_interrupted_sweep_leaves_a_trace(tmp_path: Path) -> None:
    def stop(_done: int, _total: int, _row: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bwprof.sweep("gemm", M=[1, 2], N=64, K=64, trace=tmp_path / "t.json", progress=stop, **QUICK)
    assert "gemm" in (tmp_path / "t.json").read_text()
    checked((tmp_path / "t.json").read_text())


def test_the_command_writes_both(here: Here) -> None:
    arguments = ["gemm", "-p", "M=1", "-p", "N=64", "-p", "K=64", "--precision", "fp32", "--backend", "cpu"]
    arguments += ["--trace", "t.json", "--prometheus", "m.prom", "--quiet", "--no-roofs"]
    arguments += ["--target-seconds", "0.05", "--cache", "hot"]
    assert here(*arguments)[0] == 0
    assert slices(checked(Path("t.json").read_text()))
    first = measured(Path("m.prom"))
    assert Path("m.prom").stat().st_mode & 0o444 == 0o444 & ~mask()
    code, _, phrase = here(*arguments)
    assert code == 2
    assert "t.json exists already" in phrase
    del arguments[arguments.index("--trace") : arguments.index("--trace") + 2]
    assert here(*arguments)[0] == 0
    assert measured(Path("m.prom")) == first, "a file of that kind is replaced, as every time"
    Path("m.prom").write_text("somebody's own")
    assert here(*arguments)[0] == 2
    assert Path("m.prom").read_text() == "somebody's own"


def measured(path: Path) -> set[Any]:
    """Return the values of a file without flags, which depend on the load of the machine."""
    return {at for at in samples(path.read_text()) if at[0] != "bwprof_flag"}


def mask() -> int:
    import os

    found = os.umask(0)
    os.umask(found)
    return found


# ---- Prometheus ----

_VALUE = re.compile(r"NaN|[+-]Inf|[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')


def unescaped(escape: re.Match[str]) -> str:
    return {"\\\\": "\\", '\\"': '"', "\\n": "\n"}[escape[0]]


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return series and values by the format's grammar; AssertionError for anything else."""
    assert text.encode("utf-8")
    assert text.endswith("\n")
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    helped: list[str] = []
    typed: list[str] = []
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            (helped if kind == "HELP" else typed).append(name)
            assert kind in ("HELP", "TYPE")
            assert kind == "HELP" or rest == "gauge"
            continue
        name = _NAME.match(line)
        assert name, line
        assert name[0] == typed[-1] == helped[-1], "samples of a metric stand together, below its type"
        labels = []
        at = name.end() + 1
        assert line[name.end()] == "{"
        while line[at] != "}":
            label = _LABEL.match(line, at)
            assert label, line[at:]
            labels.append((label[1], re.sub(r'\\[\\"n]', unescaped, label[2])))
            at = label.end() + (line[label.end()] == ",")
        assert line[at + 1] == " "
        assert _VALUE.fullmatch(line[at + 2 :]), line
        key = (name[0], tuple(labels))
        assert key not in found, "a series twice: the collector drops the whole file"
        assert len(dict(labels)) == len(labels)
        found[key] = float(line[at + 2 :].replace("Inf", "inf"))
    assert len(set(typed)) == len(typed)
    return found


def test_prometheus_text() -> None:
    row = bwprof.rows(bwprof.load_example("h200"))[0]
    row.update(flags="noisy;throttled;noisy", bandwidth_gb_s=3747.0, pct_attainable=87.5, time_ms=0.25)
    failed = {"case": STRANGE, "status": "failed", "reason": "x", "bandwidth_gb_s": 1.0}
    found = samples(exchange.prometheus_text([row, failed, row]))
    names = dict.fromkeys(name for name, _ in found)
    assert all(name.startswith("bwprof_") for name in names)
    ours = {name: value for (name, labels), value in found.items() if ("case", row.case) in labels}
    assert ours["bwprof_bandwidth_bytes_per_second"] == pytest.approx(3747e9)
    assert ours["bwprof_attainable_ratio"] == pytest.approx(0.875)
    assert ours["bwprof_launch_seconds"] == pytest.approx(0.00025)
    assert (ours["bwprof_case_ok"], ours["bwprof_case_flags"]) == (1, 2)
    flags = [dict(labels)["flag"] for name, labels in found if name == "bwprof_flag"]
    assert flags == ["noisy", "throttled"]
    theirs = {name: value for (name, labels), value in found.items() if ("case", STRANGE[:-1] + "?") in labels}
    assert math.isnan(theirs["bwprof_bandwidth_bytes_per_second"])
    assert (theirs["bwprof_case_ok"], theirs["bwprof_case_flags"]) == (0, 0)


def test_cases_that_differ_in_a_parameter_are_two_series() -> None:
    rows = [{"case": "gemm", "M": m, "status": "ok", "bandwidth_gb_s": float(m)} for m in (1, 2)]
    assert len({labels for _, labels in samples(exchange.prometheus_text(rows))}) == 2
    assert not samples(exchange.prometheus_text([]))


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_valid_label(name: str) -> None:
    found = samples(exchange.prometheus_text([{"case": name, "status": "ok"}]))
    whole = name.encode("utf-8", "replace").decode()
    assert {labels for _, labels in found} == {(("case", whole),) if name else ()}


def test_names_that_encode_alike_are_one_series() -> None:
    """A collector drops a file with two series of the same labels."""
    alike = [{"case": f"x{mark}", "status": "ok", "flags": f"x{mark};x?"} for mark in ("\ud800", "\udc00", "?")]
    found = samples(exchange.prometheus_text(alike))
    assert {labels for name, labels in found if name == "bwprof_case_ok"} == {(("case", "x?"),)}
    assert [dict(labels)["flag"] for name, labels in found if name == "bwprof_flag"] == ["x?"]


def test_no_parameter_is_called_flag() -> None:
    """The label `flag` is no parameter."""
    argument = {param["name"] for operation in _core.operations() for param in operation["params"]}
    assert not argument & {"flag", "case", "operation"}
