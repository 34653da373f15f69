"""Pipes, devices, sockets and links where bwprof reads and writes: nothing waits, nothing is written behind a link."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bwprof
from bwprof.cli import main


def bound(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(name)


PLACES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "nothing": lambda path: path.symlink_to("/dev/null"),
    "circle": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "socket": lambda path: bound(os.path.relpath(path)),
}
# Each reads odd.json, or what is named as it.
READERS = {
    "odd.json": (
        "show {}",
        "compare good.json {}",
        "diagnose {}",
        "roofs import {}",
        "plot ablation {} -o a.svg",
        "model {}",
    ),
    "run/results.json": ("show run", "compare good.json run", "baseline save x run"),
    ".bwprof/baselines/main.json": (
        "compare baseline:main good.json",
        "baseline show main",
        "baseline save main good.json --force",
    ),
    "odd.toml": ("sweep --suite {} --dry-run", "report good.json --goals {} -o a.html"),
    "model/config.json": ("model model",),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bwprof.save(bwprof.load_example("h200").head(4), "good.json")
    return tmp_path


def test_a_missing_reader_does_not_block(here: Path) -> None:
    """Every command in every place exits with 2, all in one process."""
    commands = []
    for place, make in PLACES.items():
        for name, words in READERS.items():
            (here / place / name).parent.mkdir(parents=True, exist_ok=True)
            make(here / place / name)
            commands += [(place, *one.format(name).split()) for one in words]
        shutil.copy("good.json", place)
    code = (
        "import json, os, sys\n"
        "from bwprof.cli import main\n"
        "for place, *words in json.loads(sys.argv[1]):\n"
        "    os.chdir(place)\n"
        "    print(place, *words, main(words), file=sys.__stdout__)\n"
        "    os.chdir('..')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)], check=False, capture_output=True, text=True, timeout=240
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith("2")] == [" ".join((*c, "2")) for c in commands]


def test_a_missing_writer_does_not_block_and_links_stay(here: Path) -> None:
    """A pipe that is named as a temporary file, one as the file of a writer's lines, and a link as that file."""
    os.mkfifo(".a.json.0000.tmp")
    os.utime(".a.json.0000.tmp", (0, 0))
    os.mkfifo(".b.json.writing")
    Path(".c.json.writing").symlink_to("elsewhere")
    code = (
        "import bwprof, sys\n"
        "data = bwprof.load('good.json')\n"
        "bwprof.save(data, 'a.json')\n"
        "for name in ('b.json', 'c.json'):\n"
        "    try:\n"
        "        bwprof.save(data, name)\n"
        "    except OSError as error:\n"
        "        print(error.filename)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["b.json", "c.json"]
    assert len(bwprof.load("a.json")) == 4
    assert not Path("elsewhere").exists()
    assert Path(".b.json.writing").is_fifo()


@pytest.mark.parametrize("status", ["running", "interrupted", "failed", "odd\x1b"])
@pytest.mark.parametrize(
    "command",
    [
        *("show part", "analyze part", "diagnose part", "report part", "report part -o a.html", "outliers part"),
        *("compare good.json part", "plot comparison part -o a.svg", "plot compare good.json part -o a.svg"),
        *("history --folder part", "baseline save x part"),
    ],
)
def test_an_unfinished_run_is_marked(here: Path, capsys: pytest.CaptureFixture[str], command: str, status: str) -> None:
    document = json.loads(Path("good.json").read_text())
    document["run"]["status"] = status
    Path("part").mkdir()
    Path("part/results.json").write_text(json.dumps(document))
    assert main(command.split()) == 0
    out, err = capsys.readouterr()
    assert (out + err).count("not complete") == 1
    assert status.replace("\x1b", r"\x1b") in out + err
    if "a.html" in command:
        assert "not complete (" in Path("a.html").read_text()


def test_a_complete_run_has_no_warning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "good.json"]) == 0
    assert "complete" not in "".join(capsys.readouterr())


def test_a_name_that_is_not_utf_8_is_printed_for_a_shell(here: Path) -> None:
    made = os.fsdecode(b"r\xe9s'ultats\n\x1b")
    os.mkdir(made)
    words = [sys.executable, "-m", "bwprof", "plot", "comparison", "good.json", "-o", f"{made}/a.svg"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    (printed,) = [line.partition("picture is ")[2] for line in done.stderr.splitlines() if "picture is" in line]
    assert subprocess.run(["bash", "-c", f"test -s {printed}"], check=False).returncode == 0
    assert printed.isprintable()


@pytest.mark.parametrize("name", ["good.json", "odd.sqlite"])
def test_a_python_without_sqlite_reads_all_but_its_files(here: Path, name: str) -> None:
    Path("odd.sqlite").write_bytes(b"SQLite format 3\0" + bytes(200))
    code = "import sys; sys.modules['sqlite3'] = None; from bwprof.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "diagnose", name]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (2 * (name == "odd.sqlite"), False), done.stderr
    assert ("has no sqlite3" in done.stderr) == (name == "odd.sqlite")
