"""Quotes of recorded runs on the pages equal today's output."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bwprof

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "notebooks/method.md", "bwprof/info.py")


@pytest.fixture
def quotes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import the script that writes the quotes."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "benchmarks"))
    import quotes

    yield quotes
    monkeypatch.delitem(sys.modules, "quotes")


@pytest.mark.parametrize("page", PAGES)
def test_quotes_equal_the_printed_text(page: str, quotes: Any) -> None:
    """`python3 tests/benchmarks/quotes.py` updates a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert quotes.PAGES == PAGES
    assert quotes.renewed(page, text) == text


def test_other_quotes_are_renewed(quotes: Any) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^stream_copy .*$", text, re.MULTILINE)
    other = text.replace(line, "stream_copy |direct | 1 |")
    assert quotes.renewed("README.md", other) == text
    assert re.search(r"\|direct +\| *\d{4} \|", line)
    with pytest.raises(ValueError, match=r"README\.md has 0 blocks"):
        quotes.renewed("README.md", text.replace("```text", "```"))
    with pytest.raises(ValueError, match=r"method\.md has 0 places"):
        quotes.renewed("notebooks/method.md", "")


def test_the_table_has_as_many_lines_as_the_page_says(quotes: Any) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = bwprof.summary(bwprof.load_example("h200").query("case in @quotes.CASES"))
    assert len(shown) == 7, "seven of 19 lines"
    assert len(bwprof.summary(bwprof.load_example("h200"))) == 19
    assert re.search(r"seven of the 19 lines", text)


@pytest.mark.parametrize("page", ["notebooks/guide.md", "notebooks/04_your_kernel.ipynb"])
def test_a_quoted_row_equals_its_repr(page: str) -> None:
    """A row with the figures of the quoted line prints that line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (line,) = re.findall(r"<rms_norm: .*?>", text)
    figures = re.match(r"<rms_norm: (\S+) ms \((\S+) to (\S+)\), (\d+) GB/s, (\d+) % of limit \((\w+)\), (.*)>", line)
    assert figures is not None
    names = ("time_ms", "time_ms_lo", "time_ms_hi", "bandwidth_gb_s", "pct_limit")
    known = {name: float(value) for name, value in zip(names, figures.groups(), strict=False)}
    rest = {"cache": "cold", "timer": "cupti", "device": "NVIDIA H200", "flags": "unverified", "limiter": figures[6]}
    assert repr(bwprof.Row({"case": "rms_norm"} | known | rest)) == line
