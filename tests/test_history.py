"""All runs below a folder as one frame, whatever else is there; and the index, which is never more than a help."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from past import count_reads, settled, started, timed, week, write  # noqa: F401 - a fixture
from rows import row

import bwprof
from bwprof.records.history import history
from bwprof.records.index import crew, folders, reading
from bwprof.records.index.store import Store

HOUR = 3_600


# ---- the frame ----


def test_a_row_per_run_and_case(tmp_path: Path) -> None:
    week(tmp_path, [1.0, 2.0, 3.0])
    found = bwprof.history(tmp_path)
    assert found["run_id"].tolist() == ["run-01", "run-01", "run-02", "run-02", "run-03", "run-03"]
    assert found["precision"].tolist() == ["fp32", "fp16"] * 3
    assert found["time_ms"].tolist() == [1.0, 0.5, 2.0, 1.0, 3.0, 1.5]
    assert found["bandwidth_gb_s"][2] == 10_000 / 2.0 / 1e6
    assert [str(time) for time in found["started"].unique()] == [f"2026-01-0{day} 10:00:00+00:00" for day in (1, 2, 3)]
    assert found.loc[0, ["M", "N", "K", "status", "driver", "hostname"]].tolist() == [1, 896, 896, "ok", "1.0", "box"]
    assert found["kv_len"].isna().all()
    assert found.attrs["runs"] == 3
    assert found.attrs["unread"] == {}


def test_columns_are_those_of_the_runs(tmp_path: Path) -> None:
    """What the quick way reads is what `bwprof.load` reads, to the last bit."""
    data = bwprof.load_example("h200")
    (tmp_path / "one").mkdir()
    bwprof.save(data, tmp_path / "one" / "results.json")
    for attempt in ("read", "index"):
        found = history(tmp_path)
        assert len(found) == len(data), attempt
        for name in set(found.columns) & set(data.columns) - {"timestamp", "reason"}:
            expected = [None if pd.isna(value) else value for value in data[name].tolist()]
            if name == "hostname":
                continue
            assert [None if pd.isna(value) else value for value in found[name].tolist()] == expected, name
        assert found["timestamp"].tolist() == [pd.Timestamp(text) for text in data["timestamp"]]
        assert found["git_commit"].unique().tolist() == [data.attrs["run"]["commit"]]


def test_both_ways_of_reading_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [timed("a", "fp32", 1.0), timed("a", "fp16", 0.5, time_ms_hi=float("inf"), reason='with "quotes"\\')]
    rows += [row("failed", "fp32", gb_s=None, status="failed", reason="no"), timed("own", "fp32", 1.0, tag="x", size=3)]
    write(tmp_path, 1, rows, host={"name": "box"}, suite="mine", git_commit="abc", plan=[{"status": "odd"}])
    quick = history(tmp_path)
    monkeypatch.setattr(reading, "_finished", lambda _folder: None)
    (tmp_path / ".bwprof-index" / "history.sqlite").unlink()
    careful = history(tmp_path)
    pd.testing.assert_frame_equal(quick, careful)
    assert quick["suite"].unique().tolist() == ["mine"]
    assert quick["size"].tolist()[3] == 3
    assert quick["time_ms_hi"][1] == pytest.approx(0.5005)


@pytest.mark.parametrize("hot", [False, True], ids=["first", "from the index"])
def test_filters(tmp_path: Path, hot: bool) -> None:
    for day in (1, 2, 3):
        write(tmp_path, day, [timed("decode_8b", "fp32", 1), timed("decode_8b", "fp16", 1), timed("copy", "fp32", 1)])
    if hot:
        history(tmp_path)
    assert history(tmp_path, "decode_8b")["case"].tolist() == ["decode_8b"] * 6
    assert history(tmp_path, "*_8b,copy", "fp32")["case"].tolist() == ["decode_8b", "copy"] * 3
    assert len(history(tmp_path, case="gemm")) == 9  # the operation's name
    assert history(tmp_path, "copy", last=2)["run_id"].tolist() == ["run-02", "run-03"]
    assert len(history(tmp_path, operation="gemm", device="Test*", last=99)) == 9


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"case": "decod"}, "unknown case 'decod': did you mean 'decode'? Allowed: decode"),
        ({"precision": "fp61"}, "unknown precision 'fp61': did you mean 'fp16'?"),
        ({"last": 0}, "last is 0: a number of runs from 1 is needed"),
        ({"gate": 3}, "gate is 3: allowed is a fraction"),
        ({"case": ""}, "case is '': names are needed"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    week(tmp_path)
    with pytest.raises(ValueError, match="^" + said.replace("?", r"\?")):
        history(tmp_path, **asked)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder; a sweep makes one"):
        history(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="it is no folder"):
        history(tmp_path / "file")


def test_no_runs_at_all(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    found = history(tmp_path)
    assert len(found) == 0
    assert found["time_ms"].dtype == float
    assert found["started"].dtype == "datetime64[us, UTC]"
    assert sorted(os.listdir(tmp_path)) == ["notes"]  # nothing to keep, nothing is written


# ---- series, and what changed ----


def test_a_change_follows_the_rule(tmp_path: Path) -> None:
    """1 to 1.02 is within the gate of 3 %, 1.02 to 1.10 is beyond it, and so is the way back."""
    week(tmp_path, [1.0, 1.02, 1.10, 1.02])
    found = history(tmp_path, precision="fp32")
    assert found["change"].tolist() == ["", "", "slower", "faster"]
    assert found["ratio"].tolist()[1:] == pytest.approx([1.02, 1.10 / 1.02, 1.02 / 1.10])
    assert history(tmp_path, precision="fp32", gate="10%")["change"].tolist() == [""] * 4
    assert history(tmp_path, precision="fp32", gate=0.01)["change"].tolist() == ["", "slower", "slower", "faster"]
    assert history(tmp_path, precision="fp32", last=2)["change"].tolist() == ["slower", "faster"]


def test_intervals_that_overlap_leave_a_change_undecided(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0) | {"time_ms_hi": 1.2}])
    write(tmp_path, 2, [timed("a", "fp32", 1.1)])
    write(tmp_path, 3, [timed("a", "fp32", 1.12) | {"time_ms_hi": 1.2}])
    assert history(tmp_path)["change"].tolist() == ["", "undecided", ""], "the third is within the gate"


def test_disturbed_rows_and_rows_without_a_time_are_stepped_over(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    write(tmp_path, 2, [timed("a", "fp32", 2.0, flags="noisy")])
    write(tmp_path, 3, [timed("a", "fp32", 9.9) | {"time_ms": None, "status": "failed"}])
    write(tmp_path, 4, [timed("a", "fp32", 1.5, flags="near_timer_floor")])
    found = history(tmp_path)
    assert found["change"].tolist() == ["", "", "", "slower"]
    assert found["ratio"][3] == pytest.approx(1.5)


def test_what_else_changed_is_marked(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    write(tmp_path, 2, [timed("a", "fp32", 1.0, driver="2.0", variant="tiled")])
    write(tmp_path, 3, [timed("a", "fp32", 1.0, driver="2.0", variant="tiled", bwprof_version="0.2.0")])
    write(tmp_path, 4, [timed("a", "fp32", 1.0, driver="2.0", variant="tiled", bwprof_version="0.2.0")])
    found = history(tmp_path)
    assert found["series"].tolist() == [0, 0, 0, 0]
    assert found["marks"].tolist() == ["", "driver 1.0 -> 2.0; variant plain -> tiled", "bwprof 0.1.0 -> 0.2.0", ""]


def test_devices_and_hosts_are_series_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    write(tmp_path, 2, [timed("a", "fp32", 5.0, hostname="tower")])
    write(tmp_path, 3, [timed("a", "fp32", 9.0, device="Other CPU")])
    write(tmp_path, 4, [timed("a", "fp32", 1.0)])
    found = history(tmp_path)
    assert found["series"].tolist() == [0, 1, 2, 0]
    assert set(found["change"]) == {""}
    assert found["marks"].tolist() == ["", "", "device Test CPU -> Other CPU", ""]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"variant": "a"}, {"variant": "b"}),
        ({"device_uuid": "a"}, {"device_uuid": "b"}),
        ({"tag": 1}, {"tag": 2}),
        ({}, {}),
    ],
    ids=["variants", "devices", "labels", "twice the same"],
)
def test_what_one_run_has_several_times_is_told_apart(tmp_path: Path, one: Any, other: Any) -> None:
    for day in (1, 2):
        write(
            tmp_path, day, [timed("a", "fp32", 1.0, **one), timed("a", "fp32", 2.0, **other), timed("b", "fp32", 1.0)]
        )
    found = history(tmp_path)
    assert found["series"].tolist() == [0, 1, 2, 0, 1, 2]
    assert set(found["change"]) == {""}
    assert found["ratio"].tolist()[3:] == [1.0, 1.0, 1.0]


def test_another_device_of_the_name_is_marked(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0, device_uuid="GPU-1")])
    write(tmp_path, 2, [timed("a", "fp32", 1.0, device_uuid="GPU-2")])
    found = history(tmp_path)
    assert found["series"].tolist() == [0, 0]
    assert found["marks"].tolist() == ["", "device GPU-1 -> GPU-2"]


def test_labels_that_have_a_name_of_ours(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0, ratio="16:9", colour="red"), timed("b", "fp32", 1.0)])
    found = history(tmp_path)
    assert found["label_ratio"].tolist()[0] == "16:9"
    assert found["colour"].tolist()[0] == "red"
    assert pd.isna(found["colour"][1])


# ---- the index ----


def test_only_what_is_new_or_changed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    week(tmp_path)
    read = count_reads(monkeypatch)
    history(tmp_path)
    assert sorted(read) == ["run-01", "run-02", "run-03"]
    read.clear()
    history(tmp_path)
    assert read == []
    write(tmp_path, 4, [timed("decode", "fp32", 4.0)])
    changed = tmp_path / "run-02" / "results.json"
    changed.write_text(changed.read_text().replace('"time_ms": 1.0', '"time_ms": 7.25'))
    for name in ("results.json", "results.csv"):
        (tmp_path / "run-01" / name).unlink()
    found = history(tmp_path, precision="fp32")
    assert sorted(read) == ["run-02", "run-04"]
    assert found["time_ms"].tolist() == [7.25, 1.0, 4.0]
    read.clear()
    (tmp_path / "run-03").rename(tmp_path / "renamed")
    assert history(tmp_path)["folder"].unique().tolist() == ["run-02", "renamed", "run-04"]
    assert read == ["renamed"]
    store = Store(tmp_path)
    assert sorted(store.stamps()) == ["renamed", "run-02", "run-04"]  # what is no more is not kept
    store.close()


def test_what_was_written_a_moment_ago_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may change twice within one tick of its clock, and keep its size."""
    monkeypatch.setattr(folders, "_SOON_SECONDS", 1e9)
    week(tmp_path, [1.0])
    assert history(tmp_path)["time_ms"][0] == 1.0
    path = tmp_path / "run-01" / "results.json"
    before = path.stat()
    path.write_text(path.read_text().replace('"time_ms": 1.0', '"time_ms": 3.0'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert history(tmp_path)["time_ms"][0] == 3.0


def damage(tmp_path: Path, how: str) -> None:
    file = tmp_path / ".bwprof-index" / "history.sqlite"
    content = file.read_bytes()
    if how == "no database":
        file.write_bytes(b"nothing of the kind")
    elif how == "cut off":
        file.write_bytes(content[: len(content) // 2])
    elif how == "pages of zeros":
        file.write_bytes(content[:4096] + bytes(len(content) - 4096))
    elif how == "another database":
        file.unlink()
        with sqlite3.connect(file) as db:
            db.execute("CREATE TABLE cats (name TEXT)")
        db.close()
    else:
        with sqlite3.connect(file) as db:
            db.execute(how)
        db.close()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no database", "is damaged"),
        ("cut off", "is damaged"),
        ("pages of zeros", "is damaged"),
        ("another database", "is damaged"),
        ("UPDATE runs SET figures = zeroblob(length(figures))", "is damaged"),
        ("UPDATE runs SET figures = x'00'", "is damaged"),
        ("UPDATE runs SET keys = x'0011'", "is damaged"),
        ("UPDATE runs SET run_id = 'another'", "is damaged"),
        ("UPDATE parts SET content = '[]'", "is damaged"),
        ("DELETE FROM parts", "is damaged"),
        ("DROP TABLE runs", "is damaged"),
        ("UPDATE made_with SET what = '[0]'", "is of another version"),
    ],
)
def test_a_damaged_index_is_made_anew_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, said: str
) -> None:
    week(tmp_path)
    expected = history(tmp_path)
    damage(tmp_path, how)
    caplog.clear()
    pd.testing.assert_frame_equal(history(tmp_path), expected)
    assert [said in record.message and "made anew" in record.message for record in caplog.records] == [True]
    caplog.clear()
    pd.testing.assert_frame_equal(history(tmp_path), expected)
    assert not caplog.records


def test_an_empty_index_file_is_filled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A process that was killed before it had written anything."""
    week(tmp_path)
    (tmp_path / ".bwprof-index").mkdir()
    (tmp_path / ".bwprof-index" / "history.sqlite").touch()
    assert len(history(tmp_path)) == 6
    assert not caplog.records


def test_a_damaged_index_that_another_process_has_open_stays(tmp_path: Path) -> None:
    week(tmp_path)
    expected = history(tmp_path)
    other = Store(tmp_path)
    try:
        damage(tmp_path, "UPDATE parts SET content = '[]'")
        file = (tmp_path / ".bwprof-index" / "history.sqlite").stat()
        pd.testing.assert_frame_equal(history(tmp_path), expected)
        assert os.path.samestat(file, (tmp_path / ".bwprof-index" / "history.sqlite").stat())  # not taken away below it
        assert other.stamps()
    finally:
        other.close()


@pytest.mark.parametrize("index", [False, True], ids=["no index", "an index"])
def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, index: bool
) -> None:
    week(tmp_path)
    if index:
        history(tmp_path)
        write(tmp_path, 4, [timed("decode", "fp32", 4.0)])

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    read = count_reads(monkeypatch)
    assert len(history(tmp_path)) == (7 if index else 6)
    assert sorted(read) == (["run-04"] if index else ["run-01", "run-02", "run-03"])
    assert not caplog.records
    assert (tmp_path / ".bwprof-index").exists() is index


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    week(tmp_path)
    tmp_path.chmod(0o555)
    try:
        assert len(history(tmp_path)) == 6
    finally:
        tmp_path.chmod(0o755)


def test_a_locked_index_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    week(tmp_path)
    monkeypatch.setattr("bwprof.records.index.store._PATIENCE", 0.05)
    expected = history(tmp_path)
    with sqlite3.connect(tmp_path / ".bwprof-index" / "history.sqlite", isolation_level=None) as db:
        db.execute("BEGIN EXCLUSIVE")
        pd.testing.assert_frame_equal(history(tmp_path), expected)
    db.close()


def test_several_processes_at_once(tmp_path: Path) -> None:
    """They index the same runs at the same time, while runs come and go."""
    for day in range(1, 29):
        write(tmp_path, day, [timed("a", "fp32", 1.0), timed("b", "fp32", 2.0)])
    script = textwrap.dedent("""
        import sys, shutil
        from bwprof.records import history as module
        from bwprof.records.index import crew, folders
        folders._SOON_SECONDS = 0.0
        crew._BATCH = 3
        root = sys.argv[1]
        for turn in range(6):
            found = module.history(root)
            assert len(found) in (52, 54, 56), len(found)
            assert set(found["time_ms"]) == {1.0, 2.0}
            if sys.argv[2] == "0" and turn < 2:
                shutil.rmtree(f"{root}/run-0{turn + 1}")
        print(len(module.history(root)))
    """)
    environment = os.environ | {"PYTHONPATH": str(Path(bwprof.__file__).parent.parent)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), str(number)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for number in range(3)
    ]  # fmt: skip
    for process in running:
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
        assert out.strip() in ("52", "54", "56")
    file = tmp_path / ".bwprof-index" / "history.sqlite"
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    assert len(history(tmp_path)) == 52


@pytest.mark.parametrize("how", ["well", "one ends early", "none can start", "none answers"])
def test_several_processes_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """As if there were very many runs; what the others leave, this process reads."""
    for day in range(1, 13):
        write(tmp_path, day, [timed("a", "fp32", 1.0), timed(f"b{day % 3}", "fp32", 2.0, driver=str(day % 2))])
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "results.json").write_text("{}")
    (tmp_path / "run-05" / "results.json").unlink()
    expected = history(tmp_path)
    (tmp_path / ".bwprof-index" / "history.sqlite").unlink()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1, 2})
    monkeypatch.setattr(crew, "_LEAST_RUNS", 1)
    monkeypatch.setattr(crew, "_BATCH", 2)
    if how == "one ends early":
        monkeypatch.setattr(crew, "_CODE", crew._CODE.replace("crew.work()", "crew._BATCH = 1; crew.os._exit(1)"))
    elif how == "none can start":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    elif how == "none answers":
        monkeypatch.setattr(crew, "_CODE", "print('hello')")
    read = count_reads(monkeypatch)
    pd.testing.assert_frame_equal(history(tmp_path), expected)
    assert sorted(read) == (["odd", "run-05"] if how == "well" else sorted(os.listdir(tmp_path))[1:])
