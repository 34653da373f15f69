"""What people see of a run while it goes on: on a terminal of 80 columns, in a file, in a notebook."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from commands import GIVE_UP_SECONDS, TINY, Here, environment

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(command: list[str], folder: Path, **more: str) -> tuple[int, str]:
    """A command whose streams are a terminal of 80 columns: its exit code, and all that it sent there."""
    terminal, theirs = pty.openpty()
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder) | {"COLUMNS": "80", "TERM": "xterm", **more},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    with suppress(OSError):  # the child has ended
        while part := os.read(terminal, 1 << 16):
            said += part
    os.close(terminal)
    return child.wait(GIVE_UP_SECONDS), said.decode()


def test_finished_rows_scroll_by_above_the_bar(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[[case]]\nname = "plain"\noperation = "gemm"\nparams = { M = [1, 2, 3], N = 16, K = 16 }\n'
        '[[case]]\nname = "too_large"\noperation = "stream_copy"\nparams = { elements = "256Gi" }\n'
    )
    command = [sys.executable, "-m", "bwprof.sweep", "--suite", "mine.toml", "--precision", "fp32", "--no-roofs"]
    code, said = on_a_terminal([*command, "--cache", "hot", "--device", "cpu"], tmp_path)
    assert code == 0, said
    first, _, rest = ESCAPES.sub("", said).partition("\r\n")
    assert re.fullmatch(r"bwprof: measuring cpu:0 .*: 4 cases", first)
    # Three cases of half a second, or of two; the one that is too large takes none.
    assert "bwprof: 1.5 s to 6 s, as soon as the cases settle\r\n" in rest
    lines = [line.rpartition("\r")[2].rstrip() for line in rest.split("\r\n")]
    table = next(place for place, line in enumerate(lines) if line.startswith("case "))
    rows = [line for line in lines[:table] if re.match(r"plain .*fp32 \w+: .* [um]s, .* GB/s", line)]
    assert len(rows) == 3
    assert max(map(len, lines)) <= 80
    told = " ".join(lines[:table])
    assert re.search(r"too_large fp32 \w+: skipped: .* are free", told), "why a row was not measured is told to its end"
    assert re.search(r"\x1b\[[\d;]*m ?4/4", said), "the bar counts them"


def test_what_is_ahead_is_said_first(here: Here) -> None:
    code, _, err = here("gemm", *TINY, "--precision", "fp32,fp16", "--target-seconds", "0.2", "--device", "cpu")
    assert code == 0
    lines = err.splitlines()
    assert re.fullmatch(r"bwprof: measuring cpu:0 .*\): 2 cases", lines[0])
    said = next(place for place, line in enumerate(lines) if line == "bwprof: about 200 ms")
    assert lines[said + 1].startswith("[1/2] ")
