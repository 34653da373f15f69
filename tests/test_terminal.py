"""What people see of a run while it goes on: on a terminal of 80 columns, in a file."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from commands import GIVE_UP_SECONDS, TINY, Here, environment
from rich.cells import cell_len
from rich.console import Console

import bwprof
from bwprof.cli import main
from bwprof.text import terminal as text_terminal
from bwprof.text.listing import format_html_table

pytestmark = pytest.mark.usefixtures("one_thread")

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
    assert re.fullmatch(r"bwprof: .*cpu:0 .*4 cases", first)
    # Three cases of half a second, or of two, and 0.3 times that for the warm-up; the one that is too large takes none.
    assert "1.95 s to 7.8" in rest
    lines = [line.rpartition("\r")[2].rstrip() for line in rest.split("\r\n")]
    table = next(place for place, line in enumerate(lines) if line.startswith("case "))
    rows = [line for line in lines[:table] if re.match(r"plain .*fp32 \w+: .* [um]s, .* GB/s", line)]
    assert len(rows) == 3
    assert max(map(len, lines)) <= 80
    told = " ".join(lines[:table])
    assert re.search(r"too_large fp32 \w+: skipped:.*free", told), "why a row was not measured is told to its end"
    assert re.search(r"\x1b\[[\d;]*m ?4/4", said), "the bar counts them"


def test_the_estimate_comes_first(here: Here) -> None:
    code, _, err = here("gemm", *TINY, "--precision", "fp32,fp16", "--target-seconds", "0.2", "--device", "cpu")
    assert code == 0
    lines = err.splitlines()
    assert re.fullmatch(r"bwprof: .*cpu:0 .*2 cases", lines[0])
    said = next(place for place, line in enumerate(lines) if line == "bwprof: about 200 ms")
    assert lines[said + 1].startswith("[1/2] ")


class Tags(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = "<script>alert(1)</script>\x1b[31m&amp;"


def hostile_things() -> list[Any]:
    found = bwprof.info()
    found["environment"] = {HOSTILE: HOSTILE * 1000}
    operations = bwprof.operations()
    operations[0] |= {"name": HOSTILE, "text": HOSTILE * 1000}
    devices = bwprof.devices()
    devices[0]["name"] = HOSTILE * 1000
    labels = {f"{HOSTILE}{number}": HOSTILE * 1000 for number in range(1000)}
    return [found, operations, devices, bwprof.Row({"case": HOSTILE, "time_ms": 1.0, **labels})]


@pytest.mark.parametrize("found", hostile_things(), ids=lambda found: type(found).__name__)
def test_notebook_progress_is_short_text(found: Any) -> None:
    page = found._repr_html_()
    seen = Tags(page)
    assert set(seen.tags) <= {"div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert HOSTILE[:25] in seen.text
    assert len(page) < 300_000
    assert 'class="dataframe"' in page, "pandas' look"
    assert not re.search(r"color|background|#[0-9a-f]{3}", page.replace(HOSTILE, "")), "the theme has the colors"


def test_long_messages_keep_their_first_and_last_lines() -> None:
    page = format_html_table([{"a": str(number)} for number in range(1000)], "many")
    cells = re.findall("<td>(.*?)</td>", page)
    assert (cells[0], cells[99], cells[100], cells[101], cells[-1]) == ("0", "99", "\u2026", "900", "999")
    assert "<caption>many (1000 lines)</caption>" in page
    assert len(re.findall("<td>", format_html_table([{"a": "1"}] * 200))) == 200


def test_a_similar_command_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inof"]) == 2
    assert re.search("'inof'.*'info'", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("cells", "width"),
    [
        (("naive", "12.1", "one dot product per element, " * 4), 60),  # its sentences are folded
        (("naive " * 6, "12.1", "one dot product per element, " * 4), 120),  # the name would be, too
        (("naive", "12.1 " * 12, "one dot product"), 120),  # numbers are never
    ],
)
def test_only_sentences_of_a_table_are_folded(cells: tuple[str, ...], width: int) -> None:
    screen = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    grid = text_terminal.new_table(screen, "", ["version", "GB/s", "what it changes"], numbers=["GB/s"])
    grid.add_row(*cells)
    text_terminal.print_fitted(screen, grid)
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    assert (max(map(len, lines)) > 60) == (width > 60)
    assert cells[1].strip() in lines[2]


def test_a_plain_table_aligns_wide_letters_and_folds_the_first_column(snapshot: Callable[[str], None]) -> None:
    rows = [["日", "7", ""], ["a\nbc\x1b", "1000", "noisy"], ["long " * 30, "1", ""]]
    found = text_terminal.format_ascii_table(["range", "count", "flags"], rows, numbers=["count"])
    assert {cell_len(line) for line in found.splitlines()} == {120}
    snapshot(found)
