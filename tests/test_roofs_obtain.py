"""When stored roofs are used, and when they are measured anew.

Measuring is replaced: what a device "measures" is a number of the test's own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_roofs import FACTS, MIB, POINTS, ROOFS

import bwprof
from bwprof import _core, hardware
from bwprof.cli.commands.sweep import main_sweep
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome
from bwprof.roofs import store, survey
from bwprof.roofs.model import Rate, RoofPoint, Roofs
from bwprof.roofs.obtain import NEW, RoofRequest, mark_beaten
from bwprof.roofs.obtain import obtain as obtain_or_none
from bwprof.runs import executors


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def obtain(device: _core.Device, wanted: RoofRequest | None = None) -> Roofs:
    """The roofs, which there must be."""
    found = obtain_or_none(device, wanted)
    assert found is not None
    return found


class Bench:
    """What a device would measure: `factor` times as slow as ROOFS (`factors`: some points), `calls` of what was asked.

    Points that are `doubtful` are measured badly; on a `busy` machine all are, and slower by `beside`.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self.factors: dict[tuple[str, int], float] = {}
        self.doubtful: set[tuple[str, int]] = set()
        self.busy = False
        self.busy_survey = False
        self.beside = 2.0
        self.calls: list[str] = []

    def measured(self, known: RoofPoint, busy: bool) -> RoofPoint:
        which = (known.stream, known.total_bytes)
        factor = self.factors.get(which, self.factor) * (self.beside if busy else 1.0)
        return replace(
            known,
            seconds=known.seconds * factor,
            uncertainty=0.5 if which in self.doubtful else 0.001,
            disturbance="threads waited" if busy else "",
        )

    def point(self, stream: dict[str, Any], total_bytes: int, cache: str = "cold") -> RoofPoint | None:
        self.calls.append(f"{'hot ' * (cache == 'hot')}point {stream['name']} {total_bytes // MIB}")
        for known in POINTS if cache == "cold" else HOT:
            if (known.stream, known.total_bytes) == (stream["name"], total_bytes):
                return self.measured(known, self.busy)
        return None

    def everything(self) -> Roofs:
        self.calls.append("all")
        return replace(ROOFS, points=tuple(self.measured(point, self.busy or self.busy_survey) for point in POINTS))

    def hot(self) -> Roofs:
        self.calls.append("hot")
        return replace(ROOFS, points=(), hot_points=tuple(self.measured(point, self.busy) for point in HOT))


HOT = (RoofPoint("stream_read", 1.0, MIB, 1e-6),)
PROBES = ["point stream_copy 256", "point stream_read 256", "point stream_copy 1"]


@pytest.fixture
def bench(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(hardware, "facts", lambda _: FACTS)
    monkeypatch.setattr(
        survey, "measure", lambda _, cache, **_more: made.everything() if cache == "cold" else made.hot()
    )
    monkeypatch.setattr(
        survey, "measure_point", lambda _, stream, total, _seconds, cache, poll: made.point(stream, total, cache)
    )
    # Whoever else uses this machine while the tests run is not the matter.
    monkeypatch.setattr(survey, "STATISTICS", cache / "none")
    return made


def stored_file() -> str:
    (path,) = store.folder().iterdir()
    return path.read_text()


def seconds_of(roofs: Roofs, stream: str, total_bytes: int) -> float:
    (found,) = (point for point in roofs.points if (point.stream, point.total_bytes) == (stream, total_bytes))
    return found.seconds


def test_measured_once_then_checked(cpu: _core.Device, bench: Bench) -> None:
    first = obtain(cpu)
    assert (first.source, first.checks, bench.calls) == (NEW, (), ["all"])
    bench.calls.clear()
    bench.factor = 1.01
    again = obtain(cpu)
    assert bench.calls == PROBES, "a large and a small one, of several mixes, and nothing else"
    written = [entry.stat().st_mtime_ns for entry in store.folder().iterdir()]
    obtain(cpu)
    assert [entry.stat().st_mtime_ns for entry in store.folder().iterdir()] == written, "nothing new, nothing written"
    assert again.points == first.points
    assert again.unconfirmed == ""
    assert again.source.endswith(".json")
    assert [check.deviation for check in again.checks] == pytest.approx([1 / 1.01 - 1] * 3)
    assert again.to_dict()["checks"][0]["stored_gb_s"] == pytest.approx(256 * MIB / 64e-6 / 1e9)
    assert Roofs.from_dict(json.loads(json.dumps(again.to_dict()))) == again


def test_a_disturbed_check_leaves_the_stored_roofs(
    cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slower while other processes had a third of the processors."""
    first = obtain(cpu)
    monkeypatch.setattr(survey, "watch_others", lambda _: contextlib.nullcontext(survey.Others(1 / 3)))
    bench.calls.clear()
    bench.factor = 1.2
    found = obtain(cpu)
    assert "all" not in bench.calls
    assert found.points == first.points
    assert " 33 % of" in found.unconfirmed


def out_of_time(*_: object, **__: object) -> None:
    raise survey.SurveyTimeoutError


def test_without_time_for_a_check_the_stored_ones_hold(
    cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = obtain(cpu)
    monkeypatch.setattr(survey, "measure_point", out_of_time)
    found = obtain(cpu)
    assert (found.points, found.checks) == (first.points, ())
    assert found.source.endswith(".json")


@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_without_time_for_mending_the_check_counts(
    cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    bench.doubtful = {("stream_read", MIB)}
    first = obtain(cpu)
    bench.calls.clear()
    bench.factor = factor

    def point(_: object, stream: dict[str, Any], total: int, *__: object, **___: object) -> RoofPoint | None:
        found = bench.point(stream, total)
        if (stream["name"], total) in bench.doubtful:
            raise survey.SurveyTimeoutError
        return found

    monkeypatch.setattr(survey, "measure_point", point)
    found = obtain(cpu)
    assert (found.source == NEW) == (factor != 1.0)
    assert bool(found.checks) == (factor == 1.0)
    if factor == 1.0:
        assert bench.calls == [*PROBES, "point stream_read 1"]
        assert found.points == first.points


@pytest.mark.parametrize("which", ["stream_copy 256", "stream_read 256", "stream_copy 1"])
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_roofs_that_a_probe_contradicts_are_not_used(
    cpu: _core.Device, bench: Bench, caplog: pytest.LogCaptureFixture, factor: float, which: str
) -> None:
    """In either direction, and at whichever of the sizes and mixes that are looked at."""
    obtain(cpu)
    bench.calls.clear()
    stream, size = which.split()
    at = (stream, int(size) * MIB)
    bench.factors[at] = factor
    found = obtain(cpu)
    until = PROBES.index(f"point {which}")
    assert bench.calls == [*PROBES[:until], f"point {which}", f"point {which}", "all"], "looked at twice, then believed"
    assert found.source == NEW
    assert "no longer hold" in caplog.text
    (known,) = (point for point in POINTS if (point.stream, point.total_bytes) == at)
    assert seconds_of(found, *at) == pytest.approx(known.seconds * factor)
    bench.calls.clear()
    assert obtain(cpu).points == found.points, "the new ones are stored"
    assert "all" not in bench.calls


def test_a_busy_machine_leaves_the_stored_roofs_unconfirmed(
    cpu: _core.Device, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow because the machine is busy is not a wrong roof: they stay, and the rows held against them are flagged."""
    first = obtain(cpu)
    before = stored_file()
    bench.busy = True
    bench.calls.clear()
    found = obtain(cpu)
    assert "all" not in bench.calls
    assert bench.calls.count(PROBES[0]) == 3, "looked at again before anything is said"
    assert found.points == first.points
    assert "could not be confirmed" in found.doubt(256 * MIB, 0)
    assert "threads waited" in found.doubt(256 * MIB, 0)
    assert "could not be confirmed" in caplog.text
    assert stored_file() == before
    bench.busy = False
    assert obtain(cpu).doubt(256 * MIB, 0) == ""


def test_a_busy_machine_does_not_hide_that_roofs_are_too_low(cpu: _core.Device, bench: Bench) -> None:
    """Half the time beside neighbors is still a quarter less than what is stored: nothing makes a stream too quick."""
    bench.factor = 2.0
    obtain(cpu)
    bench.calls.clear()
    bench.factor, bench.beside, bench.busy = 1.0, 1.5, True
    assert obtain(cpu).points[0].seconds == pytest.approx(POINTS[0].seconds * 1.5)
    assert bench.calls[-1] == "all"


@pytest.mark.parametrize("doubt", [False, True])
@pytest.mark.parametrize("beside", [1.04, 1.5])
def test_points_that_are_too_low_are_replaced(cpu: _core.Device, bench: Bench, doubt: bool, beside: float) -> None:
    """Stored with and without doubt at half of what the machine does, looked at beside others."""
    slow = tuple(
        replace(point, seconds=2 * point.seconds, others_share=0.3 if doubt else 0.0)
        for point in (*POINTS, RoofPoint("stream_read", 1.0, 3 * MIB, 6e-6))
    )
    identity = store.identity("cpu", FACTS)
    store.save(identity, replace(ROOFS, points=slow))
    bench.busy, bench.beside = True, beside
    found = obtain(cpu)
    left = obtain(cpu, RoofRequest(stored=True))
    assert found.source == NEW
    assert found.points == left.points
    assert [point.seconds for point in left.points] == pytest.approx([point.seconds * beside for point in POINTS])
    bench.calls.clear()
    assert obtain(cpu).points == tuple(replace(point, tries=1) for point in left.points), "the look agrees"
    assert "all" not in bench.calls


def test_no_stored_point_stays_where_most_are_too_low(cpu: _core.Device, bench: Bench) -> None:
    """The busy survey is slower at one point than what is stored, which comes from the same bad survey as the rest."""
    at = ("stream_read", MIB)
    bench.factor = 2.0
    obtain(cpu)
    bench.factor, bench.factors, bench.busy, bench.beside = 1.0, {at: 2.5}, True, 1.2
    found = obtain(cpu)
    assert obtain(cpu, RoofRequest(stored=True)).points == found.points
    for point in POINTS:
        key = (point.stream, point.total_bytes)
        assert seconds_of(found, *key) == pytest.approx(point.seconds * bench.factors.get(key, 1.0) * 1.2)


def test_faster_points_stay_where_one_is_too_low(cpu: _core.Device, bench: Bench) -> None:
    """A busy survey is slower than what is stored of all other points: they stay, in doubt."""
    obtain(cpu)
    at = ("stream_copy", 256 * MIB)
    bench.busy, bench.beside, bench.factors = True, 2.0, {at: 0.4}
    found = obtain(cpu)
    assert obtain(cpu, RoofRequest(stored=True)).points == found.points
    for point in POINTS:
        key = (point.stream, point.total_bytes)
        assert seconds_of(found, *key) == pytest.approx(point.seconds * (0.8 if key == at else 1.0))
        assert found.doubt(256 * MIB, 0) != ""


def test_a_faster_check_is_stored_after_the_deadline(
    cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.factor = 2.0
    obtain(cpu)
    bench.factor, bench.busy, bench.beside = 1.0, True, 1.1
    monkeypatch.setattr(survey, "measure", lambda *_, **__: replace(ROOFS, points=(), complete=False))
    found = obtain(cpu)
    assert found.points == obtain(cpu, RoofRequest(stored=True)).points
    assert seconds_of(found, "stream_copy", 256 * MIB) == pytest.approx(64e-6 * 1.1)
    assert all(point.doubt for point in found.points), "the others come from the same survey"


def test_a_faster_survey_in_doubt_is_stored(cpu: _core.Device, bench: Bench) -> None:
    """Asked for with --recalibrate, where nobody has looked at the stored ones."""
    bench.factor = 2.0
    obtain(cpu)
    bench.factor, bench.busy, bench.beside = 1.0, True, 1.1
    obtain(cpu, RoofRequest(recalibrate=True))
    stored = obtain(cpu, RoofRequest(stored=True)).points
    assert [point.seconds for point in stored] == pytest.approx([point.seconds * 1.1 for point in POINTS])


def test_faster_hot_points_in_doubt_count(cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of the new points are in doubt than of the stored ones, and there is no time for mending."""
    hot = [RoofPoint("stream_read", 1.0, size * MIB, size * 1e-6) for size in (1, 2, 4)]
    slow = (replace(hot[0], seconds=2e-6, beaten=0.5), replace(hot[1], seconds=4e-6, beaten=0.5), hot[2])
    store.save(store.identity("cpu", FACTS), replace(ROOFS, hot_points=slow))
    monkeypatch.setitem(globals(), "HOT", tuple(hot))
    monkeypatch.setitem(obtain_or_none.__globals__, "_MEND_SECONDS", 0.0)
    bench.busy, bench.beside = True, 1.5
    found = obtain(cpu, RoofRequest(cold=False, hot=True)).hot_points
    assert [point.seconds for point in found] == pytest.approx([1.5e-6, 3e-6, 4e-6])


def test_a_disturbed_survey_replaces_no_better_one(
    cpu: _core.Device, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A clean probe says too slow, and then neighbors come."""
    first = obtain(cpu)
    before = stored_file()
    bench.factor, bench.busy_survey = 1.1, True
    bench.calls.clear()
    found = obtain(cpu)
    assert bench.calls == [PROBES[0], PROBES[0], "all"]
    assert found.points == first.points
    assert "could not be confirmed" in found.doubt(MIB, 0)
    assert stored_file() == before
    assert obtain(cpu, RoofRequest(recalibrate=True)).doubt(MIB, 0) != ""
    assert stored_file() == before, "not even when it was asked for"
    assert "are not stored" in caplog.text
    bench.busy_survey = False
    assert obtain(cpu).points[0].seconds == pytest.approx(POINTS[0].seconds * 1.1)


def test_a_disturbed_first_survey_is_stored_in_doubt(
    cpu: _core.Device, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.busy = True
    assert "disturbed it (threads waited)" in obtain(cpu).doubt(MIB, 0)
    assert "are in doubt" in caplog.text
    bench.calls.clear()
    assert "disturbed" in obtain(cpu).doubt(MIB, 0)
    bench.beside = 2.2
    assert obtain(cpu).doubt(MIB, 0) != ""
    assert "all" not in bench.calls, "while it is busy another survey would be no better"
    assert "disturbed" in obtain(cpu).doubt(MIB, 0), "and they are stored as in doubt"
    bench.beside = 1.2
    assert obtain(cpu).points[1].seconds == pytest.approx(POINTS[1].seconds * 1.2)
    assert bench.calls[-1] == "all", "what was measured faster counts, whatever disturbs it"
    bench.busy = False
    bench.calls.clear()
    assert obtain(cpu).doubt(MIB, 0) == ""
    assert bench.calls[-1] == "all"
    bench.calls.clear()
    assert obtain(cpu).points == POINTS
    assert bench.calls == PROBES


def test_a_survey_in_doubt_whose_probe_agrees_is_measured_again(cpu: _core.Device, bench: Bench) -> None:
    bench.doubtful = {(point.stream, point.total_bytes) for point in POINTS[:3]}
    assert obtain(cpu).doubt(MIB, 0) != ""
    bench.doubtful = set()
    assert obtain(cpu).doubt(MIB, 0) == ""
    assert bench.calls == ["all", "point stream_copy 256", "all"], "the one without doubt stands for all"


def test_points_without_doubt_outlive_a_survey_in_doubt(cpu: _core.Device, bench: Bench) -> None:
    """Nothing contradicts what is stored, but most of it is in doubt; the new survey is worse."""
    bench.doubtful = {(point.stream, point.total_bytes) for point in POINTS} - {("stream_read", 256 * MIB)}
    first = obtain(cpu)
    bench.busy_survey = True
    bench.calls.clear()
    assert obtain(cpu).points == first.points
    assert bench.calls == ["point stream_read 256", "all"]
    bench.doubtful, bench.busy_survey = {("stream_read", 256 * MIB)}, False
    assert obtain(cpu, RoofRequest(recalibrate=True)).doubt(256 * MIB, 0) != ""
    bench.doubtful = set()
    assert not any(point.doubt for point in obtain(cpu).points)


def test_recalibrate_measures_whatever_is_stored(cpu: _core.Device, bench: Bench) -> None:
    obtain(cpu)
    bench.factor = 1.001
    assert obtain(cpu, RoofRequest(recalibrate=True)).points[0].seconds == pytest.approx(POINTS[0].seconds * 1.001)
    assert bench.calls == ["all", "all"]
    assert obtain(cpu).points[0].seconds == pytest.approx(POINTS[0].seconds * 1.001)


def test_a_point_in_doubt_is_mended(cpu: _core.Device, bench: Bench) -> None:
    bench.doubtful = {("stream_read", MIB)}
    assert " 50 % only" in obtain(cpu).doubt(MIB, 0)
    bench.doubtful = set()
    bench.calls.clear()
    assert obtain(cpu).doubt(MIB, 0) == ""
    assert bench.calls == [*PROBES, "point stream_read 1"]
    bench.calls.clear()
    assert obtain(cpu).doubt(MIB, 0) == ""
    assert bench.calls == PROBES, "and the mended one is stored"


def test_a_point_in_doubt_is_replaced_only_by_a_better_one(cpu: _core.Device, bench: Bench) -> None:
    at = ("stream_read", MIB)
    bench.doubtful = {at}
    obtain(cpu)
    bench.factors = {at: 1.5}
    slower = obtain(cpu)
    assert seconds_of(slower, *at) == pytest.approx(2e-6), "in doubt as well, and slower"
    assert [point.tries for point in slower.points] == [1, 0, 0, 0]
    bench.factors = {at: 0.8}
    assert seconds_of(obtain(cpu), *at) == pytest.approx(1.6e-6), "in doubt as well, but quicker"
    bench.factors, bench.doubtful = {at: 1.2}, set()
    mended = obtain(cpu)
    assert seconds_of(mended, *at) == pytest.approx(2.4e-6), "slower, but without doubt"
    assert (mended.doubt(MIB, 0), mended.points[0].tries) == ("", 0)


def test_the_point_with_the_fewest_tries_is_mended_first(
    cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With time for one point each time, all get their turn."""
    bench.doubtful = {("stream_read", 256 * MIB), ("stream_read", MIB)}
    obtain(cpu)
    looks = itertools.count()  # at a clock, each of which takes a second
    monkeypatch.setitem(obtain_or_none.__globals__, "time", types.SimpleNamespace(monotonic=lambda: next(looks)))
    monkeypatch.setitem(obtain_or_none.__globals__, "_MEND_SECONDS", 1.5)
    seen = []
    for _ in range(4):
        bench.calls.clear()
        obtain(cpu)
        seen.append(bench.calls[-1])
    assert seen == ["point stream_read 256", "point stream_read 1"] * 2


def test_a_row_that_beats_its_roof_has_it_measured_again(cpu: _core.Device, bench: Bench) -> None:
    """The roofs of this run say so at once, the stored ones at the next use."""
    at = ("stream_read", 256 * MIB)
    first = obtain(cpu)
    changed = mark_beaten("cpu", FACTS, first, (256 * MIB, 0), 0.3)
    assert "beaten by 30 %" in changed.doubt(256 * MIB, 0)
    assert changed.doubt(0, MIB) == ""
    assert "beaten by 30 %" in (store.load(store.identity("cpu", FACTS)) or first).doubt(256 * MIB, 0)
    bench.factors = {at: 0.77}
    bench.calls.clear()
    again = obtain(cpu)
    assert bench.calls[-1] == "point stream_read 256"
    assert "all" not in bench.calls
    assert (seconds_of(again, *at), again.doubt(256 * MIB, 0)) == (pytest.approx(60e-6 * 0.77), "")
    # The roof was right, as far as can be told: the quicker measurement stays, and the mark goes.
    mark_beaten("cpu", FACTS, again, (256 * MIB, 0), 0.3)
    bench.factors = {at: 0.78}
    assert seconds_of(obtain(cpu), *at) == pytest.approx(60e-6 * 0.77)
    assert obtain(cpu).doubt(256 * MIB, 0) == ""
    before = stored_file()
    mark_beaten("cpu", FACTS, replace(again, points=(replace(POINTS[1], seconds=1.0),)), (256 * MIB, 0), 0.3)
    assert stored_file() == before, "not the stored one's measurement"


def test_rows_that_beat_their_roofs_mark_the_stored_roofs(
    cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the executor of sweeps: the next row of the run is flagged already."""
    first = obtain(cpu)
    spec = Spec("read", "stream_read", "fp32", {"elements": MIB // 4}, None, None, "cold", 0)
    executor = executors.LocalExecutor("cpu", 0)
    executor.set_context(Context("run", "cpu", FACTS, first))
    row = {"bytes_read": MIB, "bytes_written": 0, "cache": "cold", "status": "ok"}
    seen = []

    def measured(_: object, __: object, context: Context, **___: object) -> Outcome:
        seen.append(context.roofs.doubt(MIB, 0) if context.roofs else "")
        return Outcome(row, beaten=0.2)

    monkeypatch.setattr(executors.measuring, "measure", measured)
    try:
        executor.measure(spec, 0.1, None)
        executor.measure(spec, 0.1, None)
    finally:
        executor.close()
    assert seen[0] == ""
    assert "beaten by 20 %" in seen[1]
    assert "beaten" in stored_file()


def test_hot_streams_are_measured_on_request(cpu: _core.Device, bench: Bench) -> None:
    assert obtain(cpu, RoofRequest(cold=False, hot=True)).points == ()
    assert bench.calls == ["hot"]
    both = obtain(cpu, RoofRequest(hot=True))
    assert bench.calls == ["hot", "all"]
    assert both.points
    assert both.hot_points
    bench.calls.clear()
    assert obtain(cpu, RoofRequest(hot=True)).hot_points == both.hot_points
    assert bench.calls == PROBES


def test_hot_points_in_doubt_are_mended_too(cpu: _core.Device, bench: Bench) -> None:
    wanted = RoofRequest(cold=False, hot=True)
    bench.busy = True
    assert obtain(cpu, wanted).cache_doubt(MIB) != ""
    bench.calls.clear()
    assert obtain(cpu, wanted).cache_doubt(MIB) != ""
    assert bench.calls == ["hot point stream_read 1", "hot"]
    bench.busy = False
    bench.calls.clear()
    assert obtain(cpu, wanted).cache_doubt(MIB) == ""
    assert bench.calls == ["hot point stream_read 1"]
    assert obtain(cpu, wanted).hot_points[0].seconds == pytest.approx(1e-6)


def test_without_a_cache_folder_roofs_are_measured_each_time(
    cpu: _core.Device, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert obtain(cpu).points == POINTS
    assert obtain(cpu).points == POINTS
    assert bench.calls == ["all", "all"]


def test_recalibrate_is_an_option_of_command_and_function(bench: Bench) -> None:
    assert main_sweep.parser().parse_args(["--recalibrate"]).recalibrate
    for recalibrate, calls in ((False, ["hot"]), (False, []), (True, ["hot"])):
        bench.calls.clear()
        frame = bwprof.sweep(
            "stream_read",
            elements=4096,
            precision="fp32",
            backend="cpu",
            cache="hot",
            recalibrate=recalibrate,
            max_seconds=0.1,
        )
        assert bench.calls == calls
        roofs = frame.attrs["run"]["roofs"]
        assert roofs["measured"] == ROOFS.measured
        assert (roofs["source"] == NEW) == bool(calls)


def test_info_shows_what_is_stored_and_measures_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    from bwprof.cli.commands import describe as cli

    def on_the_cpu() -> dict[str, Any]:
        (found,) = (device for device in bwprof.info()["devices"] if device["backend"] == "cpu")
        return dict(found)

    assert on_the_cpu()["roofs"] is None
    identity = store.identity("cpu", FACTS)
    path = store.save(identity, replace(ROOFS, rates=(Rate("fp16", "a", "v", 8, 9.5, 9.0, 0.0),)))
    printed_roofs = on_the_cpu()["roofs"]
    assert (printed_roofs["source"], printed_roofs["measured"]) == (str(path), ROOFS.measured)
    assert [point["seconds"] for point in printed_roofs["points"]] == [point.seconds for point in POINTS]
    assert cli.main_info([]) == 0
    printed = capsys.readouterr().out
    for message in ("2026-01-02T03:04:05", "ceiling stream_copy", "256 MiB", "9.5 TFLOP/s", "size curve"):
        assert message in printed
    assert bench.calls == []
