"""What the README and the guide quote of the recorded H200 is what today's commands print of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bwprof
from bwprof.cli import main

ROOT = Path(__file__).resolve().parent.parent


def words(text: str) -> str:
    """Without what depends on the width: lines' ends and the room around them."""
    return re.sub(r"\s+", " ", text.replace("|", " "))


def quoted(page: str, start: str) -> list[str]:
    """The paragraphs of the block of text on a page that begins so: a sentence each, or a table's line."""
    blocks = re.findall(r"```text\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [one for one in blocks if one.strip().startswith(start)]
    return [words(part).strip() for part in re.split(r"\n(?! {2,4}\S)|\n(?=  \d \()", block) if part.strip()]


@pytest.mark.parametrize(
    ("page", "start", "command"),
    [
        ("README.md", "|", ["report", "h200.json"]),
        ("notebooks/guide.md", "Of 63 measurements", ["analyze", "h200.json", "--top", "5"]),
        ("notebooks/guide.md", "ffn_gemm", ["diagnose", "h200.json", "--only", "ffn_gemm", "--precision", "fp32,tf32"]),
    ],
    ids=["README", "analyze", "diagnose"],
)
def test_a_quote_is_what_is_printed(
    page: str,
    start: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bwprof.save(bwprof.load_example("h200"), tmp_path / "h200.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(command) == 0
    printed = words(capsys.readouterr().out)
    found = [line for line in quoted(page, start) if not set(line) <= {"-", "+", " "}]
    assert len(found) >= 2
    missing = [line for line in found if line not in printed]
    assert missing == [], f"{page} quotes what `bwprof {' '.join(command)}` no longer prints"


@pytest.mark.parametrize("page", ["notebooks/guide.md", "notebooks/04_your_kernel.ipynb"])
def test_a_quoted_row_says_what_rows_say(page: str) -> None:
    """A row of the figures that the line quotes is that line: what a row says of itself has not changed since."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (line,) = re.findall(r"<rms_norm: .*?>", text)
    figures = re.match(r"<rms_norm: (\S+) ms \((\S+) to (\S+)\), (\d+) GB/s, (\d+) % of limit \((\w+)\), (.*)>", line)
    assert figures is not None
    names = ("time_ms", "time_ms_lo", "time_ms_hi", "bandwidth_gb_s", "pct_limit")
    known = {name: float(value) for name, value in zip(names, figures.groups(), strict=False)}
    rest = {"cache": "cold", "timer": "cupti", "device": "NVIDIA H200", "flags": "unverified", "limiter": figures[6]}
    assert repr(bwprof.Row({"case": "rms_norm"} | known | rest)) == line
