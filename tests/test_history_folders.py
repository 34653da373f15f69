"""Unfinished, damaged, foreign, oddly named and changing run folders in a history."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from past import started, timed, week, write

import bwprof
from bwprof.records import history as module
from bwprof.records.history import history
from bwprof.results import atomic, csv_file
from bwprof.results.writer import Store as Writer

HOUR = 3_600


# ---- runs that have not ended well ----


def test_a_running_run_has_its_finished_rows(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    run = {"run_id": "run", "started": started(1), "status": "running"}
    writer = Writer(run, csv_targets=[folder / "results.csv"], json_targets=[folder / "results.json"])
    try:
        for number in range(1, 4):
            writer.add(timed(f"case {number}", "fp32", float(number)), [1.0])
            assert history(tmp_path)["case"].tolist() == [f"case {one}" for one in range(1, number + 1)]
    finally:
        writer.close()
    found = history(tmp_path)
    assert found["run_status"].unique().tolist() == ["running"]
    assert found["time_ms"].tolist() == [1.0, 2.0, 3.0]


def test_a_truncated_json_beside_a_whole_csv(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    path = folder / "results.json"
    path.write_text(path.read_text()[:-200])
    found = history(tmp_path)
    assert found["time_ms"].tolist() == [1.0]
    assert str(found["started"][0]) == "2026-01-01 10:00:00+00:00"  # of the row
    assert "results.json" in caplog.text


def test_a_truncated_csv_beside_a_whole_json(tmp_path: Path) -> None:
    folder = write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    (folder / "results.csv").write_text("operation,pre")
    assert history(tmp_path)["time_ms"].tolist() == [1.0]


def test_a_csv_alone(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    rows = [timed("a", "fp32", 1.0, run_id=None, timestamp=None, hostname=None)]
    path = tmp_path / "old" / "results.csv"
    path.write_text(csv_file.csv_text(rows))
    os.utime(path, (HOUR, HOUR))
    found = history(tmp_path)
    assert found["run_id"].tolist() == ["old"]
    assert str(found["started"][0]) == "1970-01-01 01:00:00+00:00"


def test_damaged_samples_cost_no_row(tmp_path: Path) -> None:
    folder = write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    path = folder / "results.json"
    path.write_text(path.read_text().replace('"samples_ns": [', '"samples_ns": [oops'))
    assert history(tmp_path)["time_ms"].tolist() == [1.0]


# ---- trees that nobody would make on purpose ----

FOREIGN = {
    "foreign": '{"name": "package", "version": "1.0"}',
    "a list": "[1, 2, 3]",
    "no JSON": "hello",
    "nothing": "",
    "cut off": '{\n "format": "bwprof-results",\n "schema',
    "a later schema": '{"format": "bwprof-results", "schema_version": 99, "run": {}, "rows": []}',
    "deep": '{"format": "bwprof-results", "schema_version": 1, "rows": [], "run": ' + '{"a":' * 500 + "1" + "}" * 501,
    "a wrong value": '{"format": "bwprof-results", "schema_version": 1, "run": {}, '
    '"rows": [{"operation": "x", "precision": "fp32", "time_ms": "soon"}]}',
    "bytes": "\udcff\udcfe",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_each_unreadable_run_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    week(tmp_path)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "results.json").write_bytes(FOREIGN[kind].encode("utf-8", "surrogateescape"))
    found = history(tmp_path)
    assert len(found) == 6
    assert list(found.attrs["unread"]) == ["odd"]
    assert len(caplog.records) == 1
    assert "odd" in caplog.text
    caplog.clear()
    bwprof.save(bwprof.load_example("h200"), tmp_path / "odd" / "results.json")
    assert len(history(tmp_path)) == 6 + 63
    assert not caplog.records


def test_many_unreadable_runs_are_summarized(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(9):
        (tmp_path / f"odd-{number}").mkdir()
        (tmp_path / f"odd-{number}" / "results.json").write_text("{}")
    found = history(tmp_path)
    assert len(found.attrs["unread"]) == 9
    assert len(caplog.records) == 6
    assert caplog.records[-1].message.startswith("4 ")


def test_links_in_circles_and_to_runs_elsewhere(tmp_path: Path) -> None:
    root, other = tmp_path / "runs", tmp_path / "other"
    week(root / "deep" / "er")
    elsewhere = write(other, 9, [timed("decode", "fp32", 9.0)])
    (root / "deep" / "loop").symlink_to(root)
    (root / "self").symlink_to("self")
    (root / "nowhere").symlink_to(tmp_path / "gone")
    (root / "linked").symlink_to(elsewhere)
    (root / "linked again").symlink_to(elsewhere)
    (root / "run twice").symlink_to(root / "deep" / "er" / "run-01")
    (root / "others").symlink_to(other)  # not a run: not entered
    found = history(root)
    assert found["folder"].unique().tolist() == [f"deep/er/run-0{day}" for day in (1, 2, 3)] + ["linked"]
    assert len(found) == 7


def test_other_folders_and_files_are_ignored(tmp_path: Path) -> None:
    week(tmp_path / "results")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "results.txt").touch()
    (tmp_path / "fifo").mkdir()
    os.mkfifo(tmp_path / "fifo" / "other")
    write(tmp_path / ".hidden", 5, [timed("decode", "fp32", 5.0)])
    assert len(history(tmp_path)) == 6


@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_a_result_file_that_is_no_regular_file(tmp_path: Path, kind: str) -> None:
    week(tmp_path)
    odd = tmp_path / "odd"
    odd.mkdir()
    if kind == "folder":
        (odd / "results.json").mkdir()
    elif kind == "fifo":
        os.mkfifo(odd / "results.json")
    else:
        (odd / "results.json").symlink_to("/dev/zero")
    assert len(history(tmp_path)) == 6


NAMES = [
    'with "quotes"',
    "two\nlines",
    "a'b; DROP TABLE runs; --",
    "\u65e5\u672c",
    "-rf",
    "\x1b[31mred",
    "a\udcffb",
    "x" * 255,
]


@pytest.mark.parametrize("name", NAMES)
def test_folder_names_may_have_any_characters(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, 1, [timed('case "x"\'; --', "fp32", 1.0)], name="plain")
    folder.rename(tmp_path / name)
    first = history(tmp_path)
    assert first["time_ms"].tolist() == [1.0]
    assert first["case"].tolist() == ['case "x"\'; --']


def test_the_folder_may_be_a_run(tmp_path: Path) -> None:
    folder = write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    assert history(folder)["folder"].tolist() == ["."]


@pytest.mark.parametrize(
    "begun", [started(1), "", "yesterday", None, 12, "0001-01-01T00:00:00+23:00", "2026-01-05T10:00:00"]
)
def test_any_start_time_is_accepted(tmp_path: Path, begun: Any) -> None:
    """Runs with a missing or impossible start time keep their rows, sorted and compared."""
    write(tmp_path, 2, [timed("a", "fp32", 1.0)], finished=started(1))
    write(tmp_path, 3, [timed("a", "fp32", 1.0)], started=begun)
    found = history(tmp_path)
    assert sorted(found["run_id"]) == ["run-02", "run-03"]
    assert found["started"].is_monotonic_increasing
    assert found["ratio"].tolist()[1] == 1.0


def test_progress_ends_with_all(tmp_path: Path) -> None:
    week(tmp_path)
    result: list[tuple[int, int]] = []
    history(tmp_path, progress=lambda done, total: result.append((done, total)))
    assert result == [(1, 3), (2, 3), (3, 3)]


def test_a_run_removed_while_reading_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    week(tmp_path)
    real = module.run_folders
    monkeypatch.setattr(module, "run_folders", lambda root: [*real(root), "gone"])
    found = history(tmp_path)
    assert len(found) == 6
    assert found.attrs["unread"] == {}
    assert not caplog.records


def test_a_finished_run_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, 1, [timed("a", "fp32", 1.0)], host={"name": "box"})
    real, texts = atomic.read_text, []
    monkeypatch.setattr(module, "read_text", lambda path: texts.append(path) or real(path))
    monkeypatch.setattr("bwprof.results.reader.read_rows", None)
    assert history(tmp_path)["time_ms"].tolist() == [1.0]
    assert texts == [folder / "results.json"]


def test_complete_runs_log_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    week(tmp_path)
    history(tmp_path)
    assert not caplog.records
