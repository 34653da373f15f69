"""README, CHANGELOG and the method page: lengths, and the Python of README."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import bwprof


def count_words(text: str) -> int:
    """Count the words that hold a letter or a digit: bars of tables are none."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


@pytest.mark.parametrize(
    ("page", "words", "lines"),
    [
        ("README.md", 900, 130),
        ("CHANGELOG.md", 400, 60),
        ("CONTRIBUTING.md", 1500, 200),
        ("notebooks/method.md", 2200, 400),
    ],
)
def test_page_is_short(source_tree: Path, page: str, words: int, lines: int) -> None:
    text = (source_tree / page).read_text(encoding="utf-8")
    assert count_words(text) <= words
    assert len(text.splitlines()) <= lines


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "notebooks/method.md"])
def test_paragraph_has_at_most_six_lines(source_tree: Path, page: str) -> None:
    text = re.sub(r"```.*?```", "", (source_tree / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    paragraphs = [
        paragraph for paragraph in re.split(r"\n\s*\n", text.strip()) if not re.match(r"#|\||[*-] ", paragraph.strip())
    ]
    assert paragraphs
    assert [one for one in paragraphs if len(one.splitlines()) > 6] == []


def test_readme_python_runs(
    source_tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code runs on the CPU, on small matrices and without roofs, to be quick."""
    (code,) = re.findall(r"```python\n(.*?)```", (source_tree / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    small = code.replace("14336", "64").replace("4096", "32").replace("1 << 30", "1 << 16")
    assert small != code
    quick = {"device": "cpu", "roofs": False, "max_seconds": 0.01}
    monkeypatch.setattr(bwprof, "sweep", functools.partial(bwprof.sweep, **quick))
    monkeypatch.setattr(bwprof, "measure", functools.partial(bwprof.measure, cache="hot", **quick))
    data = np.ones(1 << 14, np.float32)
    names: dict[str, object] = {"my_function": data.sum}
    exec(small.replace(', roofs="auto"', ""), names)
    printed = capsys.readouterr().out.split()
    assert printed[:6] == ["M", "precision", "time_ms", "bandwidth_gb_s", "limiter", "flags"]
    frame, row = names["df"], names["row"]
    assert list(zip(frame["M"], frame["precision"], strict=True)) == [
        (1, "fp32"),
        (1, "fp16"),
        (16, "fp32"),
        (16, "fp16"),
    ]
    assert row.bytes_read == 1 << 16
