"""Update what the pages quote from the recorded runs: `python3 tests/benchmarks/quotes.py`.

It rewrites README's tables and picture, and single figures: `bwprof.load_example` has the rows, and bwprof's commands
print them. `tests/test_quotes.py` compares the pages with the same output. For the guide there is
`pytest tests/test_guide.py --update-snapshots`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest import mock

import bwprof
from bwprof.cli import main as bwprof_command

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ("h200", "h100")
CASES = ("stream_copy", "ffn_gemm", "decode_gemm_8b", "prefill_attention", "decode_attention_32k", "kv_gather")
CLASSIC = (  # README's name, the case, its variant
    ("decode GEMM", "decode_gemm_8b", "gemv"),
    ("prefill GEMM", "ffn_gemm", "cublaslt"),
    ("prefill attention", "prefill_attention", "flash"),
    ("decode attention", "decode_attention_32k", "splitkv"),
    ("KV-cache gather", "kv_gather", "vector"),
)
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
    """Return the table of a summary, without its legend and its notes on single rows."""
    return "".join(takewhile(lambda line: "|" in line or "+" in line, printed.splitlines(keepends=True)))


QUOTES = (Quote("README.md", " " * 10, ("report",), table, CASES),)


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


def speed(row: Mapping[str, Any]) -> str:
    """Return a row's time and bandwidth, with an asterisk if it is flagged."""
    return f"{row['time_ms'] * 1e3:.1f} µs, {row['bandwidth_gb_s']:.0f} GB/s" + "*" * bool(row["flags"])


def improvements() -> str:
    """Return README's table of FP32 against FP16 on the H200."""
    rows = bwprof.load_example("h200").set_index(["case", "variant", "precision"])
    lines = ["| H200 | FP32 | FP16 | speed-up | ratio of bytes | limiter |", "|---|---|---|---|---|---|"]
    for name, case, variant in CLASSIC:
        wide, narrow = (rows.loc[(case, variant, precision)].to_dict() for precision in ("fp32", "fp16"))
        ratios = [f"{narrow[f'{what}_vs_fp32']:.2f}x" for what in ("speedup", "byte_ratio")]
        limiter = ", then ".join(dict.fromkeys((wide["limiter"], narrow["limiter"])))
        lines.append(f"| {' | '.join([name, speed(wide), speed(narrow), *ratios, limiter])} |")
    return "\n".join(lines)


def python_output() -> str:
    """Return what README's lines of Python print for the recorded rows of the same shapes."""
    frame = bwprof.load_example("h200").query("N == 14336 and precision in ['fp32', 'fp16']")
    columns = ["M", "precision", "time_ms", "bandwidth_gb_s", "limiter", "flags"]
    return "\n".join(line.rstrip() for line in frame[columns].to_string(index=False).splitlines()) + "\n"


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
    Figures("README.md", r"^\| H200 \|(?s:.*?)(?=\n\n)", improvements),
    Figures("README.md", r"(?<=```text\n) *M precision(?s:.*?)(?=```)", python_output),
    Figures("notebooks/method.md", r"^\| measured ceilings.*$", ceilings),
    Figures("notebooks/method.md", r"\(\d\.\d µs to \d\.\d ms\)", times),
    Figures("bwprof/info.py", r"\d+ of the H200's 63 rows, \d+ of the H100's", flagged),
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
