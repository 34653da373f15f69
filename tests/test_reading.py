"""Reading of results: files, open pipes and terminals, and the limit of what is read."""

from __future__ import annotations

import gzip
import os
import pty
import shlex
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
from commands import GIVE_UP_SECONDS
from rows import pair

import bwprof
from bwprof.cli import main
from bwprof.importers.detect import detect_kind
from bwprof.results import atomic, frame, json_file

BARE = """\
operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written
copy,FP16,1,8,8,0.004,402.3,1600,1792
"""
COMMAND = f"{shlex.quote(sys.executable)} -m bwprof"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A run as CSV, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return bwprof.save(frame.from_rows(pair("copy", 990.0, 980.0)), tmp_path / "run.csv")


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_gzip_files_load(run: Path, ending: str) -> None:
    path = bwprof.save(bwprof.load(run), run.parent / f"plain.{ending}")
    packed = run.parent / f"packed.{ending}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    pd.testing.assert_frame_equal(bwprof.load(packed), bwprof.load(path))
    assert detect_kind(packed) == "bwprof"
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(ValueError, match="gzip stream"):
        bwprof.load(packed)


def test_a_gzip_bomb_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_MOST_BYTES", 1 << 22)
    (run.parent / "bomb.json.gz").write_bytes(gzip.compress(bytes(1 << 24)))
    with pytest.raises(ValueError, match="it has more than"):
        bwprof.load(run.parent / "bomb.json.gz")


def test_a_parquet_file_loads(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bwprof.load(run)
    monkeypatch.setattr(pd, "read_parquet", lambda path: data)
    (run.parent / "rows.parquet").touch()
    assert bwprof.load(run.parent / "rows.parquet")["time_ms"].tolist() == data["time_ms"].tolist()

    def absent(path: Path) -> pd.DataFrame:
        raise ImportError("pip install pyarrow")

    monkeypatch.setattr(pd, "read_parquet", absent)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        bwprof.load(run.parent / "rows.parquet")


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("kind", ["device", "pipe", "socket", "link"])
def test_folders_and_devices_are_refused(run: Path, kind: str, ending: str) -> None:
    path = run.parent / f"other.{ending}"
    said = "device"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
        said = "named pipe"
    elif kind == "link":
        os.mkfifo(run.parent / "pipe")
        path.symlink_to("pipe")
        said = "named pipe"
    else:
        said = "socket"
        with socket.socket(socket.AF_UNIX) as held:
            held.bind(path.name)
    with pytest.raises(ValueError, match=rf"other\.{ending} is a {said}: a file of results is needed"):
        bwprof.load(path)


def test_a_folder_in_a_files_place(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = run.parent / "run"
    (folder / "results.json").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"run/results\.json is a folder"):
        bwprof.load(folder)
    run.rename(folder / "results.csv")
    assert len(bwprof.load(folder)) == 2
    assert "results.json is a folder" in caplog.text


@pytest.mark.parametrize("command", ["report", "show", "analyze", "outliers", "plot -o a.svg", "predict --efficiency"])
def test_every_command_refuses_a_device(run: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([*command.split(), "/dev/zero"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "/dev/zero is a device" in err


def test_a_large_file_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = run.parent / "large.csv"
    with large.open("wb") as file:
        file.truncate(5 << 30)
    with pytest.raises(ValueError, match=r"large\.csv.*more than 1 GiB"):
        bwprof.load(large)
    monkeypatch.setattr(atomic, "_MOST_BYTES", len(run.read_bytes()))
    assert len(bwprof.load(run)) == 2
    monkeypatch.setattr(atomic, "_MOST_BYTES", len(run.read_bytes()) - 1)
    with pytest.raises(ValueError, match=r"run\.csv.*more than"):
        bwprof.load(run)


def test_an_endless_stream_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is read in parts, and not beyond the limit."""
    monkeypatch.setattr(atomic, "_MOST_BYTES", 3 << 20)
    with Path("/dev/zero").open("rb") as endless:
        assert len(atomic._read_bounded(endless)) == 4 << 20
        assert endless.tell() <= 5 << 20


def test_a_damaged_hidden_file_is_ignored(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = bwprof.save(bwprof.load(run), run.parent / "run.json")
    hidden = atomic.claim_path(path)
    hidden.symlink_to("/dev/zero")
    assert len(bwprof.load(path)) == 2
    assert f"{hidden} is a device" in caplog.text
    hidden.unlink()
    hidden.write_bytes(b'\xff{"case"\n')
    assert json_file.read_lines(hidden) == ([], [])


@pytest.mark.parametrize(
    "line",
    [
        "{} report /dev/stdin < run.csv",
        "cat run.csv | {} report /dev/stdin",
        "{} report <(cat run.csv)",
        "{} report /dev/fd/5 5< run.csv",
    ],
)
def test_open_pipes_are_read(run: Path, line: str) -> None:
    made = subprocess.run(
        ["bash", "-c", line.format(COMMAND)],
        cwd=run.parent,
        capture_output=True,
        text=True,
        timeout=GIVE_UP_SECONDS,
        check=False,
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert "copy" in made.stdout


def test_a_terminal_is_read() -> None:
    """One end of input is enough, and commands print escape sequences of a terminal as they are."""
    terminal, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "bwprof", "show", "/dev/stdin"], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(terminal, BARE.encode() + b"\x04")
    said = b""
    with suppress(OSError):  # the child has ended
        while part := os.read(terminal, 1 << 16):
            said += part
    os.close(terminal)
    assert child.wait(GIVE_UP_SECONDS) == 0
    table = said.partition(b"1792\r\n")[2].decode()
    assert "copy" in table
    assert "\\x1b" not in table
