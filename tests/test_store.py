"""The writer of a run's files: no row is lost when others change the files, or when writing fails."""

from __future__ import annotations

import csv
import errno
import io
import os
import time
from pathlib import Path
from typing import Any

import pytest
from rows import load_samples, row, write_json

import bwprof
from bwprof.results import atomic, csv_file, frame, json_file, reader
from bwprof.results import writer as stores
from bwprof.results.atomic import Claim, claim_path
from bwprof.results.writer import Store, claim_files, release_claims
from bwprof.runs import loop

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK: dict[str, Any] = {"device": "cpu", "cache": "hot", "roofs": False, "max_total_seconds": 30.0}


@pytest.fixture(autouse=True)
def quick_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "DEFAULT_CASE_SECONDS", 0.05)


def numbered(number: int, **more: Any) -> dict[str, Any]:
    return row(f"case {number}", "fp32", timestamp=f"2026-01-01T00:00:{number:02d}.000+00:00", **more)


def run(run_id: str = "run-1") -> dict[str, Any]:
    return {"run_id": run_id, "plan": []}


# ---- what others do to the files ----


@pytest.mark.parametrize("what", ["removed", "replaced", "changed"])
@pytest.mark.parametrize("then", ["a row", "the end"])
def test_a_csv_changed_by_others_is_written_again(
    tmp_path: Path, what: str, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.csv"
    store = Store(run(), csv_targets=[path])
    store.add(numbered(1))
    if what == "removed":
        path.unlink()
    elif what == "replaced":  # as `sed -i` does it
        (tmp_path / "other").write_text(path.read_text().replace("case", "CASE"))
        (tmp_path / "other").rename(path)
    else:
        path.write_text("")
    if then == "a row":
        store.add(numbered(2))
        assert [found["case"] for found in csv_file.read_csv(path)] == ["case 1", "case 2"]
    store.finish("complete")
    assert f"{path} was {what}" in caplog.text
    assert [found["case"] for found in csv_file.read_csv(path)] == ["case 1", "case 2"][: 2 if then == "a row" else 1]


def test_removing_the_hidden_file_loses_no_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_JSON_MIN_SECONDS", 1e9)
    path = tmp_path / "rows.json"
    store = Store(run(), json_targets=[path])
    for number in range(1, 4):
        store.add(numbered(number), [float(number)])
        if number == 2:
            claim_path(path).unlink()
    assert load_samples(path) == [[1.0], [2.0], [3.0]]
    store.finish("complete")


# ---- a kill: what is on disk is all there is ----


@pytest.mark.parametrize("name", ["results.json", "rows.json"])
def test_samples_survive_a_kill_as_rows_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The JSON file has its first row alone when the run is killed."""
    monkeypatch.setattr(stores, "_JSON_MIN_SECONDS", 1e9)
    targets = [tmp_path / reader.CSV_NAME] if name == reader.JSON_NAME else []
    store = Store(run(), csv_targets=targets, json_targets=[tmp_path / name])
    for number in range(1, 6):
        store.add(numbered(number, color="red"), [number + 0.5, 2.0])
    with claim_path(tmp_path / name).open("a") as cut_off:
        cut_off.write('{"operation": "gemm", "sam')
    assert len(json_file.read_json(tmp_path / name)[0]) == 1
    found = bwprof.load(tmp_path if targets else tmp_path / name)
    assert found["case"].tolist() == [f"case {number}" for number in range(1, 6)]
    assert found["color"].tolist() == ["red"] * 5
    assert load_samples(tmp_path if targets else tmp_path / name) == [[n + 0.5, 2.0] for n in range(1, 6)]
    store.close()

    # Going on with it keeps them, whatever happens next.
    rows, samples, data = reader.read_rows(tmp_path / name)
    store = Store(data, json_targets=[tmp_path / name], rows=rows, samples=samples)
    assert len(json_file.read_json(tmp_path / name)[0]) == 5
    store.add(numbered(6), [9.0])
    assert load_samples(tmp_path / name) == [[n + 0.5, 2.0] for n in range(1, 6)] + [[9.0]]
    store.finish("complete")
    assert not claim_path(tmp_path / name).exists()


def test_another_runs_lines_are_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run is killed before it removes the lines that a killed run left."""
    monkeypatch.setattr(stores, "_JSON_MIN_SECONDS", 1e9)
    path = tmp_path / "rows.json"
    before = Store(run(), json_targets=[path])
    before.add(numbered(1))
    before.add(numbered(2))
    before.close()
    write_json(path, [numbered(3, run_id="run-2")], [None], run("run-2"))
    assert [found["case"] for found in reader.read_rows(path)[0]] == ["case 3"]


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    old, young, locked_file = (tmp_path / f".rows.csv.{n}{n}{n}{n}.tmp" for n in ("aa", "bb", "cc"))
    for found in (old, young, locked_file):
        found.write_text("half a fil")
    for found in (old, locked_file):
        os.utime(found, (time.time() - 3600,) * 2)
    with locked_file.open() as stream:
        assert atomic.take_lock(stream.fileno())
        bwprof.save(frame.from_rows([row("a", "fp32")]), tmp_path / "rows.csv")
    assert sorted(found.name for found in tmp_path.iterdir()) == [young.name, locked_file.name, "rows.csv"]


def test_a_rename_is_synchronized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync

    def fsync(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    atomic.atomic_write(tmp_path / "a.json", "{}")
    assert synced[-1] == str(tmp_path), "the folder comes last, when the name is there"
    assert synced[0].startswith(f"{tmp_path}/.a.json.")


@pytest.mark.parametrize("length", [240, 246, 255])
def test_the_longest_file_names_work(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("x" * (length - 5) + ".json")
    store = Store(run(), json_targets=[path])
    store.add(numbered(1))
    store.finish("complete")
    assert len(bwprof.load(path)) == 1
    assert list(tmp_path.iterdir()) == [path]


# ---- two writers ----


@pytest.mark.parametrize("kind", ["csv_targets", "json_targets"])
def test_one_run_at_a_time_writes_a_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind.partition('_')[0]}"
    (tmp_path / "link").symlink_to(path)
    first = Store(run(), **{kind: [path]})
    made = frame.from_rows([row("a", "fp32")])
    for name in (path, tmp_path / "link"):
        with pytest.raises(OSError, match="another bwprof") as caught:
            Store(run(), **{kind: [name]})
        assert caught.value.errno == errno.EBUSY
    with pytest.raises(OSError, match="another bwprof"):
        bwprof.save(made, path)
    first.add(numbered(1))  # which replaces the file, or not
    with pytest.raises(OSError, match="another bwprof"):
        Store(run(), **{kind: [path]})
    first.finish("complete")
    assert bwprof.load(path)["case"].tolist() == ["case 1"]
    bwprof.save(made, path)


def test_resuming_neither_waits_nor_overtakes(tmp_path: Path) -> None:
    """The claim is taken before the rows are read, and passed on to the store."""
    path = tmp_path / "rows.csv"
    claims = claim_files([path, tmp_path / "rows.json", io.StringIO()])
    with pytest.raises(OSError, match="another bwprof"):
        claim_files([tmp_path / "other.csv", path])
    Claim(tmp_path / "other.csv").release()  # it was given back
    store = Store(run(), csv_targets=[path], json_targets=[tmp_path / "rows.json"], claims=claims)
    store.add(numbered(1))
    store.finish("complete")
    release_claims(claims)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["rows.csv", "rows.json"]


def test_a_removed_lock_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder ends between opening and locking: the locked file is removed already."""
    path = tmp_path / "rows.csv"
    first = Claim(path)
    real = atomic.take_lock
    calls = []

    def slow(number: int) -> bool:
        calls.append(number)
        if len(calls) == 1:
            first.release()
        return real(number)

    monkeypatch.setattr(atomic, "take_lock", slow)
    second = Claim(path)
    assert len(calls) == 2
    with pytest.raises(OSError, match="another bwprof"):
        Claim(path)
    second.release()


# ---- measured again ----


def test_a_row_that_was_measured_again_replaces_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_JSON_MIN_SECONDS", 1e9)
    csv_path, json_path = tmp_path / reader.CSV_NAME, tmp_path / reader.JSON_NAME
    pipe = io.StringIO()
    store = Store(run(), csv_targets=[csv_path, pipe], json_targets=[json_path])
    slow = {"gb_s": 50.0, "flags": "noisy"}
    numbers = [store.add(numbered(number, **(slow if number == 2 else {})), [float(number)]) for number in (1, 2, 3)]
    again = {**numbered(2), "timestamp": "2026-01-01T00:01:00.000+00:00"}
    store.replace(numbers[1], again, [22.0])
    assert [found["case"] for found in store.rows] == ["case 1", "case 2", "case 3"]
    assert [found["case"] for found in csv_file.read_csv(csv_path)] == ["case 1", "case 2", "case 3", "case 2"]
    assert [line["flags"] for line in csv.DictReader(io.StringIO(pipe.getvalue()))] == ["", "noisy", ""], "for good"
    for path in (csv_path, tmp_path):  # after a kill
        found = bwprof.load(path)
        assert sorted(found["case"]) == ["case 1", "case 2", "case 3"]
        assert found.loc[found["case"] == "case 2", "bandwidth_gb_s"].tolist() == [100.0]
    assert sorted(load_samples(tmp_path)) == [[1.0], [3.0], [22.0]]
    store.finish("complete")
    for path in (csv_path, json_path):
        found = bwprof.load(path)
        assert found["case"].tolist() == ["case 1", "case 2", "case 3"]
        assert found["replaces"].tolist()[1] == "2026-01-01T00:00:02.000+00:00"
        assert found["flags"].tolist() == [""] * 3
    assert load_samples(json_path) == [[1.0], [22.0], [3.0]]


def test_a_replaced_row_does_not_come_back_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second replacement the JSON file has the new rows alone, the CSV file the first ones, too."""
    monkeypatch.setattr(stores, "_JSON_SHARE", 1e9)
    csv_path, json_path = tmp_path / reader.CSV_NAME, tmp_path / reader.JSON_NAME
    store = Store(run(), csv_targets=[csv_path], json_targets=[json_path])
    numbers = [store.add(numbered(number, flags="noisy"), [float(number)]) for number in (1, 2)]
    monkeypatch.setattr(stores, "_JSON_MIN_SECONDS", 0.0)
    store.replace(numbers[0], numbered(1) | {"timestamp": "2026-01-01T00:01:00.000+00:00"}, [11.0])
    monkeypatch.setattr(stores, "_JSON_MIN_SECONDS", 1e9)
    store.replace(numbers[1], numbered(2) | {"timestamp": "2026-01-01T00:02:00.000+00:00"}, [22.0])
    store.close()
    assert [found["case"] for found in json_file.read_json(json_path)[0]] == ["case 1", "case 2"]
    assert [found["case"] for found in csv_file.read_csv(csv_path)] == ["case 1", "case 2", "case 1", "case 2"]
    assert sorted(bwprof.load(tmp_path)["case"]) == ["case 1", "case 2"]
    assert sorted(load_samples(tmp_path)) == [[11.0], [22.0]]


def test_a_replacing_row_may_have_more_columns(tmp_path: Path) -> None:
    """The second try was no better: the first row stays, with a note."""
    store = Store(run(), csv_targets=[tmp_path / "rows.csv"], json_targets=[tmp_path / "rows.json"])
    number = store.add(numbered(1), [1.0])
    store.rows[number]["reason"] = "measured\ntwice"
    store.replace(number, store.rows[number])
    store.finish("complete")
    for name in ("rows.csv", "rows.json"):
        found = bwprof.load(tmp_path / name)
        assert found["reason"].tolist() == ["measured twice"]
        assert found["replaces"].isna().all()
    assert load_samples(tmp_path / "rows.json") == [[1.0]]


def test_comparisons_use_the_replacing_row() -> None:
    store = Store(run())
    number = store.add(row("a", "fp32", gb_s=50.0))
    store.add(row("a", "fp16", gb_s=100.0, bytes_read=4000))
    assert store.rows[1]["bandwidth_vs_fp32"] == 2.0
    store.replace(number, row("a", "fp32", gb_s=100.0, timestamp="later"))
    assert store.rows[1]["bandwidth_vs_fp32"] == 1.0


# ---- what goes wrong ----


def test_written_files_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(run(), csv_targets=[tmp_path / "rows.csv"], json_targets=[tmp_path / "rows.json"])
    monkeypatch.setattr(csv_file, "row_line", lambda *_: 'a "line,\n')
    store.add(numbered(1))
    with pytest.raises(OSError, match=r"rows\.csv, line 2"):
        store.finish("complete")
    assert len(bwprof.load(tmp_path / "rows.json")) == 1


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_file_does_not_harm_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_JSON_MIN_SECONDS", 0.0)

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            if "case" in text and "case," not in text:
                raise BrokenPipeError(errno.EPIPE, "Broken pipe")
            return super().write(text)

    store = Store(run(), csv_targets=[Pipe(), tmp_path / "rows.csv"], json_targets=[tmp_path / "rows.json"])
    with pytest.raises(BrokenPipeError):
        store.add(numbered(1), [1.0])
    for name in ("rows.csv", "rows.json"):
        assert bwprof.load(tmp_path / name)["case"].tolist() == ["case 1"]
    store.finish("failed")


def test_a_partial_line_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    store = Store(run(), csv_targets=[path])
    store.add(numbered(1))
    before = path.read_bytes()
    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space left"):
        store.add(numbered(2))
    assert path.read_bytes() == before
    monkeypatch.undo()
    store.finish("failed")
    assert bwprof.load(path)["case"].tolist() == ["case 1", "case 2"], "there is room again: all rows, once"


@pytest.mark.parametrize("kind", ["operations", "a callable"])
def test_a_full_disk_at_the_last_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    real = stores.Store.finish

    def finish(self: Store, status: str) -> None:
        monkeypatch.setattr(stores, "atomic_write", full)
        real(self, status)

    monkeypatch.setattr(stores.Store, "finish", finish)
    with pytest.raises(OSError, match="No space left") as caught:
        sweep_of(kind, output=tmp_path / "rows.json")
    assert caught.value.frame["status"].tolist() == ["ok", "ok"]  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert len(bwprof.load(tmp_path / "rows.json")) == 2, "row by row they were there already"


def sweep_of(kind: str, **options: Any) -> Any:
    """Return two rows of an operation or of a function."""
    if kind == "operations":
        return bwprof.sweep(
            "gemm", M=[1, 2], N=8, K=8, precision="fp32", backend="cpu", cache="hot", roofs=False, **options
        )
    return bwprof.sweep(lambda n: None, n=[1, 2], **QUICK, **options)


class Locked(Exception):  # noqa: N818
    """An exception without room for a frame."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "frame":
            raise AttributeError(name)
        super().__setattr__(name, value)


@pytest.mark.parametrize("kind", ["operations", "a callable"])
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), Locked("odd")])
def test_an_error_of_a_progress_function_loses_no_row(tmp_path: Path, kind: str, error: BaseException) -> None:
    def report(done: int, total: int, found: dict[str, Any]) -> None:
        if done == 2:
            raise error

    path = tmp_path / "rows.json"
    with pytest.raises(bwprof.SweepError if isinstance(error, Locked) else type(error)) as caught:
        sweep_of(kind, output=path, progress=report)
    made = caught.value.frame  # type: ignore[union-attr]
    assert made["status"].tolist() == ["ok", "ok"]
    assert made.attrs["run"]["status"] == ("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
    assert all(load_samples(path))
    assert bwprof.load(path).attrs["run"]["status"] == made.attrs["run"]["status"]


def test_two_errors_are_both_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores.Store, "finish", full)

    def report(*_: object) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        sweep_of("a callable", progress=report)
    assert [f"[Errno {errno.ENOSPC}]" in note for note in caught.value.__notes__] == [True]
    assert len(caught.value.frame) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["operations", "a callable"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.json"])
def test_a_sweep_replaces_a_file_only_by_force(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / name
    path.touch()  # of tempfile's, for example: there is nothing to lose
    sweep_of(kind, output=path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"exists already.*force=True.*rows\.") as caught:
        sweep_of(kind, output=path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [name]
    sweep_of(kind, output=path, force=True)
    assert path.read_bytes() != before
    assert len(bwprof.load(path)) == 2


@pytest.mark.parametrize("text", ["two\rlines", "half \udc80 a letter", "x" * 200_000, '"=1\n\r\n'])
def test_the_text_of_an_exception_does_not_damage_files(tmp_path: Path, text: str) -> None:
    """The text of one point is in its reason and in a label."""

    def work(n: int, label: str) -> object:
        if n == 1:
            raise RuntimeError(text)
        return lambda: None

    for name in ("rows.csv", "rows.json"):
        made = bwprof.sweep(work, n=[1, 2], label=[text], output=tmp_path / name, **QUICK)
        found = bwprof.load(tmp_path / name)
        assert made["status"].tolist() == found["status"].tolist() == ["failed", "ok"]
        assert made["label"].tolist() == found["label"].tolist()
        assert made["reason"].iloc[0] == found["reason"].iloc[0]
        assert found["reason"].iloc[0].startswith("RuntimeError: " + text[:3])
