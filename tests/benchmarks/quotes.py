"""Bring what the pages quote of the recorded runs up to date: `python3 tests/benchmarks/quotes.py`.

README's table and picture and figures in sentences are made anew of `bwprof.load_example`,
by the commands that print them. `tests/test_quotes.py` holds the pages against the same. Notebooks are run again; the
guide has `pytest tests/test_guide.py --update-guide`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import bwprof
from bwprof.cli import main as bwprof_command

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ("h200", "h100")
CASES = ("stream_copy", "ffn_gemm", "decode_gemm_8b", "prefill_attention", "decode_attention_32k", "kv_gather")
PICTURE = ROOT / "notebooks" / "bandwidth_h200.png"


@dataclass(frozen=True)
class Quote:
    """A block of text on a page, what it begins with, the command that prints it, and the lines of that to keep."""

    page: str
    start: str
    command: tuple[str, ...]
    kept: Callable[[str], str]
    cases: tuple[str, ...] = ()  # of the run; of all, where there are none


def table(printed: str) -> str:
    """A summary without what is said of single rows."""
    return printed.partition("* to be read with care")[0]


QUOTES = (Quote("README.md", "     ", ("report",), table, CASES),)


def printed(quote: Quote) -> str:
    """What the command prints of the recorded H200, as wide as a page."""
    frame = bwprof.load_example("h200")
    if quote.cases:
        frame = frame[frame["case"].isin(quote.cases)]
    name, *options = quote.command
    told = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(told),
        mock.patch.dict(os.environ, COLUMNS="120"),
    ):
        path = bwprof.save(frame, Path(folder) / "h200.json")
        if bwprof_command([name, str(path), *options]) != 0:
            raise RuntimeError(f"bwprof {name} failed")
    return "\n".join(line.rstrip() for line in told.getvalue().splitlines()) + "\n"


def ceilings() -> str:
    """Each stream in FP32, of both devices."""
    cells = []
    for name in DEVICES:
        streams = bwprof.load_example(name).query("precision == 'fp32'").set_index("case")["bandwidth_gb_s"]
        cells.append(", ".join(f"{streams[f'stream_{one}']:.0f}" for one in ("read", "write", "copy", "triad")))
    return f"| measured ceilings: read, write, copy, triad, GB/s | {cells[0]} | {cells[1]} |"


def times() -> str:
    """From the shortest case to the longest."""
    both = [bwprof.load_example(name)["time_ms"] for name in DEVICES]
    least, most = min(one.min() for one in both), max(one.max() for one in both)
    return f"({least * 1e3:.1f} µs to {most:.1f} ms)"


def flagged() -> str:
    """How many rows say that they are to be read with care."""
    counts = [(bwprof.load_example(name)["flags"] != "").sum() for name in DEVICES]
    return f"{counts[0]} of the H200's 63 rows, {counts[1]} of the H100's"


@dataclass(frozen=True)
class Figures:
    """Figures in a sentence: where, the words around them, and what makes them."""

    page: str
    words: str
    made: Callable[[], str]


FIGURES = (
    Figures("notebooks/method.md", r"^\| measured ceilings.*$", ceilings),
    Figures("notebooks/method.md", r"\(\d\.\d µs to \d\.\d ms\)", times),
    Figures("bwprof/examples/__init__.py", r"\d+ of the H200's 63 rows, \d+ of the H100's", flagged),
)
PAGES = tuple(dict.fromkeys(one.page for one in (*QUOTES, *FIGURES)))


def renewed(page: str, text: str) -> str:
    """A page's text with what it quotes made anew; ValueError where a quote has no place on it."""
    for quote in (one for one in QUOTES if one.page == page):
        place = re.compile(rf"(?<=```text\n){re.escape(quote.start)}.*?(?=```)", re.DOTALL)
        made = quote.kept(printed(quote))
        text, found = place.subn(lambda _, made=made: made, text)
        if found != 1:
            raise ValueError(f"{page} has {found} blocks of text that begin with '{quote.start}'; one is needed")
    for figures in (one for one in FIGURES if one.page == page):
        said = figures.made()
        text, found = re.subn(figures.words, lambda _, said=said: said, text, flags=re.MULTILINE)
        if found != 1:
            raise ValueError(f"{page} has {found} places like '{figures.words}'; one is needed")
    return text


def main() -> None:
    """The command."""
    for page in PAGES:
        path = ROOT / page
        path.write_text(renewed(page, path.read_text(encoding="utf-8")), encoding="utf-8")
    frame = bwprof.load_example("h200")
    bwprof.plot.write(frame[frame["case"].isin(CASES)], [PICTURE], kind="comparison", dpi=120)


if __name__ == "__main__":
    main()
