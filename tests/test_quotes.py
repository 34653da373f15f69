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
