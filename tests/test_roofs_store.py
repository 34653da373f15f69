"""The roofs' file in the cache folder: whose it is, and what becomes of a damaged one."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_roofs import FACTS, ROOFS

from bwprof import _core
from bwprof.roofs import store
from bwprof.roofs.model import Rate
from bwprof.runs import loop


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
    monkeypatch.setenv("HOME", "relative")
    assert store.load(me()) is None
    assert store.save(me(), ROOFS) is None, "nothing is written below the working directory"
    assert not Path("relative").exists()


def test_stored_roofs_are_loaded(cache: Path) -> None:
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
    monkeypatch.setattr(store, "_read_build_stamp", lambda: [1, 2])
    assert store.load(me()) is None, "other kernels"


def test_unknown_settings_equal_each_other(cache: Path) -> None:
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
        "unknown field": {"color": "red"},
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
        ("points", "others_share", "x"), ("", "measured", 3), ("", "measured", "\x1b]0;title"), ("", "threads", -1),
        ("", "device", "another"), ("points", "beaten", 10**400), ("points", "tries", 10**4000),
        ("points", "disturbance", "\ud800"), ("points", "tries", True), ("", "complete", 1),
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
    assert f"stored roofs are ignored: {path}" in caplog.text


def test_pipes_and_large_files_are_not_read(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pipe without a writer would never end."""
    path = store.path_of(me())
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with caplog.at_level(logging.WARNING, "bwprof.roofs"):
        assert store.load(me()) is None
    assert f"{path} is a pipe" in caplog.text
    path.unlink()
    with path.open("wb") as file:
        file.truncate((4 << 20) + 1)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "bwprof.roofs"):
        assert store.load(me()) is None
    assert f"stored roofs are ignored: {path}: ValueError" in caplog.text


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_neither_read_nor_written_behind(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_there: bool
) -> None:
    path, elsewhere = store.path_of(me()), tmp_path / "elsewhere.json"
    store.save(me(), ROOFS)
    text = path.read_text()
    path.unlink()
    if is_there:
        elsewhere.write_text(text)
    path.symlink_to(elsewhere)
    with caplog.at_level(logging.WARNING, "bwprof.roofs"):
        assert store.load(me()) is None
        assert store.save(me(), ROOFS) is None
    assert caplog.text.count("is a symbolic link") == 2
    assert path.is_symlink()
    assert not is_there or elsewhere.read_text() == text
    assert elsewhere.exists() == is_there


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


def test_a_writer_that_is_killed_leaves_the_old_file(cache: Path) -> None:
    """Just before the new one would have taken its place."""
    path = store.save(me(), ROOFS)
    assert path is not None
    script = (
        "import json, os, signal, sys\n"
        "from bwprof.roofs.model import Roofs; from bwprof.roofs import store\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.save(json.loads(sys.argv[1]), Roofs.from_dict(json.loads(sys.argv[2])))\n"
    )
    other = json.dumps(replace(ROOFS, floor_seconds=1.0).to_dict())
    done = subprocess.run([sys.executable, "-c", script, json.dumps(me()), other], check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.load(me()) == replace(ROOFS, source=str(path))
    assert store.save(me(), replace(ROOFS, floor_seconds=2.0)) == path


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


def test_a_resumed_runs_roofs_are_taken_only_where_they_fit() -> None:
    """Those that its file says; damaged ones, and those of another number of threads, count as none."""
    facts = {**FACTS, "units": 2}
    good = replace(ROOFS, threads=2).to_dict()
    assert loop._earlier_roofs({"roofs": good}, facts) == replace(ROOFS, threads=2)
    assert loop._earlier_roofs({"roofs": good}, {**facts, "units": 3}) is None
    assert loop._earlier_roofs({"roofs": {**good, "threads": 0}}, {**facts, "units": 132}) is not None
    point = good["points"][0]
    for damaged in ({"floor_seconds": 10**400}, {"points": [{**point, "seconds": 10**400}]}, {"points": 3}, {"x": 1}):
        assert loop._earlier_roofs({"roofs": {**good, **damaged}}, facts) is None
