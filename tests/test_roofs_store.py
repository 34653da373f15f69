"""The roofs' file in the cache folder, when it is used, and when roofs are measured anew.

Measuring is replaced where it is not the point: what a device "measures" is then a number of the test's own.
"""

from __future__ import annotations

import json
import logging
import math
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bwprof
from bwprof import _core, hardware
from bwprof.roofs import Rate, RoofPoint, Roofs, Wanted, store, survey
from bwprof.roofs import obtain as obtain_or_none
from bwprof.roofs.obtain import NEW
from bwprof.sweep import options

MIB = 1 << 20
FACTS = {"name": "Test GPU", "uuid": "GPU-1", "driver": "580.1", "runtime": "13.0", "units": 132, "ecc": True}
POINTS = (
    RoofPoint("stream_read", 1.0, MIB, 2e-6, 0.001, 0.01),
    RoofPoint("stream_read", 1.0, 256 * MIB, 60e-6, 0.001, 0.01),
    RoofPoint("stream_copy", 0.5, MIB, 2.5e-6, 0.001, 0.01),
    RoofPoint("stream_copy", 0.5, 256 * MIB, 64e-6, 0.001, 0.01),
)
ROOFS = Roofs("Test GPU", "GPU-1", "580.1", _core.__version__, 5e-7, POINTS, measured="2026-01-02T03:04:05+00:00")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def me(**more: Any) -> store.Identity:
    return store.identity("cuda", {**FACTS, **more})


def test_the_folder_follows_xdg(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.folder() == cache / "bwprof"
    monkeypatch.setenv("HOME", "/home/somebody")
    for unusable in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert store.folder() == Path("/home/somebody/.cache/bwprof")


def test_what_is_stored_comes_back(cache: Path) -> None:
    assert store.load(me()) is None
    path = store.save(me(), ROOFS)
    assert path is not None
    assert path.parent == cache / "bwprof"
    found = store.load(me())
    assert found == replace(ROOFS, source=str(path))
    assert store.save(me(), replace(ROOFS, floor_seconds=6e-7)) == path, "the same device, the same file"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "no temporary file is left"


@pytest.mark.parametrize("name", ["name", "uuid", "driver", "runtime", "units"])
def test_another_device_or_driver_has_its_own_file(cache: Path, name: str) -> None:
    assert store.save(me(), ROOFS) is not None
    other = me(**{name: "other" if name != "units" else 64})
    assert store.path_of(other) != store.path_of(me())
    assert store.load(other) is None
    assert store.load(me()) is not None


def test_another_version_or_format_has_its_own_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.path_of(me())
    monkeypatch.setattr(store, "FORMAT", store.FORMAT + 1)
    assert store.path_of(me()) != before
    monkeypatch.undo()
    monkeypatch.setattr(_core, "__version__", "99.0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert store.path_of(me()) != before


def test_settings_that_change_speed_make_it_stale(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.save(me(), ROOFS) is not None
    assert store.path_of(me(ecc=False)) == store.path_of(me())
    assert store.load(me(ecc=False)) is None
    monkeypatch.setattr(store, "_build_stamp", lambda: [1, 2])
    assert store.load(me()) is None, "other kernels"


def test_what_is_not_known_equals_itself(cache: Path) -> None:
    unknown = {"power_limit_w": math.nan}
    assert store.save(me(**unknown), ROOFS) is not None
    assert store.load(me(**unknown)) is not None


def test_a_cpu_is_known_by_its_processors(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {**FACTS, "uuid": ""}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    two = store.identity("cpu", facts)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert store.identity("cpu", facts) != two


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\xff",
        '{"identity": 1}',
        pytest.param("no points", id="no-points"),
        pytest.param("bad point", id="bad-point"),
        pytest.param("impossible point", id="impossible-point"),
        pytest.param("unknown field", id="unknown-field"),
    ],
)
def test_a_damaged_file_is_ignored_with_a_warning(cache: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    path = store.save(me(), ROOFS)
    assert path is not None
    good = json.loads(path.read_text())
    point = good["roofs"]["points"][0]
    made: dict[str, Any] = {
        "no points": {"points": None},
        "bad point": {"points": [{**point, "seconds": "fast"}]},
        "impossible point": {"points": [{**point, "seconds": -1.0}]},
        "unknown field": {"colour": "red"},
    }
    if text in made:
        text = json.dumps({**good, "roofs": {**good["roofs"], **made[text]}})
    path.write_text(text, encoding="latin-1")
    with caplog.at_level(logging.WARNING, "bwprof.roofs"):
        assert store.load(me()) is None
    assert "stored roofs are ignored" in caplog.text
    assert store.save(me(), ROOFS) == path
    assert store.load(me()) is not None, "and replaced by the next"


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("", "floor_seconds", None), ("", "floor_seconds", -1.0), ("", "floor_seconds", math.nan),
        ("", "others_share", "x"), ("", "measured", 3), ("", "complete", 1),
        ("points", "seconds", math.inf), ("points", "seconds", True), ("points", "uncertainty", math.nan),
        ("points", "uncertainty", "x"), ("points", "noise", 10**400), ("points", "seconds", 1e-320),
        ("points", "stream", []), ("points", "total_bytes", 10**400),
        ("points", "total_bytes", 1.5), ("rates", "tflops", "x"), ("rates", "tflops", -5.0),
        ("rates", "median_tflops", None),
    ],
)  # fmt: skip
def test_a_damaged_value_is_ignored_with_a_warning(
    cache: Path, caplog: pytest.LogCaptureFixture, where: str, name: str, value: object
) -> None:
    path = store.save(me(), replace(ROOFS, rates=(Rate("fp32", "gemm", "v", 8, 1.0, 1.0, 0.0),)))
    assert path is not None
    found = json.loads(path.read_text())
    part = found["roofs"][where][0] if where else found["roofs"]
    assert name in part
    part[name] = value
    path.write_text(json.dumps(found))
    with caplog.at_level(logging.WARNING, "bwprof.roofs"):
        assert store.load(me()) is None
    assert f"stored roofs are ignored: {path} is damaged" in caplog.text


def test_what_is_no_file_of_ours_is_not_read(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pipe without a writer would never end."""
    path = store.path_of(me())
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with caplog.at_level(logging.WARNING, "bwprof.roofs"):
        assert store.load(me()) is None
    assert f"stored roofs are ignored: {path}: no file of roofs" in caplog.text
    path.unlink()
    with path.open("wb") as file:
        file.truncate((4 << 20) + 1)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "bwprof.roofs"):
        assert store.load(me()) is None
    assert f"stored roofs are ignored: {path}: no file of roofs" in caplog.text


def test_a_failure_while_writing_leaves_the_old_file(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.save(me(), ROOFS)
    assert path is not None

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert store.save(me(), replace(ROOFS, floor_seconds=1.0)) is None
    assert "could not be stored" in caplog.text
    assert "No space left" in caplog.text
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert store.load(me()) == replace(ROOFS, source=str(path))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_made_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert store.load(me()) is None
    assert store.save(me(), ROOFS) is None
    assert "could not be stored" in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_a_warning(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert store.save(me(), ROOFS) is None
        assert "could not be stored" in caplog.text
    finally:
        cache.chmod(stat.S_IRWXU)


# ---- when stored roofs are used ----


def obtain(device: _core.Device, wanted: Wanted | None = None) -> Roofs:
    """The roofs, which there must be."""
    found = obtain_or_none(device, wanted)
    assert found is not None
    return found


class Bench:
    """What a device would measure: `factor` times as slow as ROOFS, `calls` of what was asked for."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.doubtful: set[tuple[str, int]] = set()
        self.others_share = 0.0
        self.calls: list[str] = []

    def point(self, stream: dict[str, Any], total_bytes: int) -> RoofPoint | None:
        self.calls.append(f"point {stream['name']} {total_bytes // MIB}")
        for known in POINTS:
            if (known.stream, known.total_bytes) == (stream["name"], total_bytes):
                return replace(
                    known,
                    seconds=known.seconds * self.factor,
                    uncertainty=0.5 if (known.stream, known.total_bytes) in self.doubtful else 0.001,
                )
        return None

    def everything(self) -> Roofs:
        self.calls.append("all")
        points = [replace(point, seconds=point.seconds * self.factor) for point in POINTS]
        points = [
            replace(point, uncertainty=0.5) if (point.stream, point.total_bytes) in self.doubtful else point
            for point in points
        ]
        return replace(ROOFS, points=tuple(points), others_share=self.others_share)

    def hot(self) -> Roofs:
        self.calls.append("hot")
        return replace(ROOFS, points=(), hot_points=(RoofPoint("stream_read", 1.0, MIB, 1e-6),))


@pytest.fixture
def bench(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(hardware, "facts", lambda _: FACTS)
    monkeypatch.setattr(survey, "measure", lambda _, **_more: made.everything())
    monkeypatch.setattr(survey, "measure_hot", lambda _, **_more: made.hot())
    monkeypatch.setattr(survey, "measure_point", lambda _, stream, total, _seconds, **_more: made.point(stream, total))
    return made


def test_measured_once_then_checked(cpu: _core.Device, bench: Bench) -> None:
    first = obtain(cpu)
    assert (first.source, first.check, bench.calls) == (NEW, None, ["all"])
    bench.calls.clear()
    bench.factor = 1.01
    again = obtain(cpu)
    assert bench.calls == ["point stream_copy 256"], "the ceiling of the mix in the middle, and nothing else"
    written = [entry.stat().st_mtime_ns for entry in store.folder().iterdir()]
    obtain(cpu)
    assert [entry.stat().st_mtime_ns for entry in store.folder().iterdir()] == written, "nothing new, nothing written"
    bench.calls.clear()
    assert again.points == first.points
    assert again.source.endswith(".json")
    assert again.check is not None
    assert again.check.deviation == pytest.approx(1 / 1.01 - 1)
    assert again.to_dict()["check"]["stored_gb_s"] == pytest.approx(256 * MIB / 64e-6 / 1e9)
    assert Roofs.from_dict(json.loads(json.dumps(again.to_dict()))) == again


def out_of_time(*_: object, **__: object) -> None:
    raise survey.OutOfTimeError


def test_without_time_for_a_check_the_stored_ones_hold(
    cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = obtain(cpu)
    monkeypatch.setattr(survey, "measure_point", out_of_time)
    found = obtain(cpu)
    assert (found.points, found.check) == (first.points, None)
    assert found.source.endswith(".json")


@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_without_time_for_mending_the_check_counts(
    cpu: _core.Device, bench: Bench, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    obtain(cpu)
    bench.calls.clear()
    bench.factor = factor
    monkeypatch.setitem(obtain_or_none.__globals__, "_mended", out_of_time)
    found = obtain(cpu)
    assert (found.source == NEW) == (factor != 1.0)
    assert (found.check is None) == (factor != 1.0)


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_a_ceiling_that_moved_is_measured_again(
    cpu: _core.Device, bench: Bench, caplog: pytest.LogCaptureFixture, factor: float
) -> None:
    obtain(cpu)
    bench.calls.clear()
    bench.factor = factor
    found = obtain(cpu)
    assert bench.calls == ["point stream_copy 256"] * 2 + ["all"], "looked at twice before it is believed"
    assert found.source == NEW
    assert "no longer hold" in caplog.text
    assert found.points[0].seconds == pytest.approx(POINTS[0].seconds * factor)
    bench.calls.clear()
    assert obtain(cpu).points == found.points, "the new ones are stored"
    assert "all" not in bench.calls


def test_recalibrate_measures_whatever_is_stored(cpu: _core.Device, bench: Bench) -> None:
    obtain(cpu)
    bench.factor = 1.001
    assert obtain(cpu, Wanted(recalibrate=True)).points[0].seconds == pytest.approx(POINTS[0].seconds * 1.001)
    assert bench.calls == ["all", "all"]
    assert obtain(cpu).points[0].seconds == pytest.approx(POINTS[0].seconds * 1.001)


def test_roofs_of_a_busy_machine_or_in_doubt_are_not_reused(cpu: _core.Device, bench: Bench) -> None:
    bench.others_share = 0.2
    assert "20 % of the processors" in obtain(cpu).doubt(MIB, 0)
    bench.others_share = 0.0
    assert obtain(cpu).doubt(MIB, 0) == ""
    assert bench.calls == ["all", "all"]
    bench.doubtful = {("stream_read", 256 * MIB)}
    assert obtain(cpu, Wanted(recalibrate=True)).doubt(MIB, 0) != ""
    bench.doubtful = set()
    assert obtain(cpu).doubt(MIB, 0) == ""
    assert bench.calls == ["all"] * 4


def test_a_point_in_doubt_is_mended(cpu: _core.Device, bench: Bench) -> None:
    bench.doubtful = {("stream_read", MIB)}
    assert "is known to 50 % only" in obtain(cpu).doubt(MIB, 0)
    bench.doubtful = set()
    bench.calls.clear()
    assert obtain(cpu).doubt(MIB, 0) == ""
    assert bench.calls == ["point stream_copy 256", "point stream_read 1"]
    bench.calls.clear()
    assert obtain(cpu).doubt(MIB, 0) == ""
    assert bench.calls == ["point stream_copy 256"], "and the mended one is stored"


def test_hot_streams_only_when_asked_for(cpu: _core.Device, bench: Bench) -> None:
    assert obtain(cpu, Wanted(cold=False, hot=True)).points == ()
    assert bench.calls == ["hot"]
    both = obtain(cpu, Wanted(hot=True))
    assert bench.calls == ["hot", "all"]
    assert both.points
    assert both.hot_points
    bench.calls.clear()
    assert obtain(cpu, Wanted(hot=True)).hot_points == both.hot_points
    assert bench.calls == ["point stream_copy 256"]


def test_nothing_stored_is_nothing_lost(
    cpu: _core.Device, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert obtain(cpu).points == POINTS
    assert obtain(cpu).points == POINTS
    assert bench.calls == ["all", "all"]


def test_the_command_and_the_function_can_ask_for_new_roofs(bench: Bench) -> None:
    assert options.parser("bwprof sweep").parse_args(["--recalibrate"]).recalibrate
    for recalibrate, calls in ((False, ["hot"]), (False, []), (True, ["hot"])):
        bench.calls.clear()
        frame = bwprof.sweep(
            "stream_read",
            elements=4096,
            precision="fp32",
            backend="cpu",
            cache="hot",
            recalibrate=recalibrate,
            max_time=0.5,
        )
        assert bench.calls == calls
        roofs = frame.attrs["run"]["roofs"]
        assert roofs["measured"] == ROOFS.measured
        assert (roofs["source"] == NEW) == bool(calls)


def test_info_shows_what_is_stored_and_measures_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    from bwprof.info import cli

    def on_the_cpu() -> dict[str, Any]:
        (found,) = (device for device in bwprof.info()["devices"] if device["backend"] == "cpu")
        return dict(found)

    assert on_the_cpu()["roofs"] is None
    identity = store.identity("cpu", FACTS)
    path = store.save(identity, replace(ROOFS, rates=(Rate("fp16", "a", "v", 8, 9.5, 9.0, 0.0),)))
    shown_roofs = on_the_cpu()["roofs"]
    assert (shown_roofs["source"], shown_roofs["measured"]) == (str(path), ROOFS.measured)
    assert [point["seconds"] for point in shown_roofs["points"]] == [point.seconds for point in POINTS]
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    for said in ("2026-01-02T03:04:05", "ceiling stream_copy", "256 MiB", "9.5 TFLOP/s", "size curve"):
        assert said in shown
    assert bench.calls == []
