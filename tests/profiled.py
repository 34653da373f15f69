"""Pages of profilers as tests write them: parts of recorded ones, and made ones."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

DATA = Path(__file__).parent / "data" / "profilers"
RAW, DETAILS = DATA / "ncu_raw.csv", DATA / "ncu_details.csv"
WHO = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")
WHO = (*WHO, "Device", "CC")
FIRST = ("0", "682", "n", "127.0.0.1", "cpy(int)", "1", "7", "(256, 1, 1)", "(128, 2, 1)", "0", "8.6")


def quoted(rows: Sequence[Sequence[str]]) -> str:
    """CSV as ncu writes it."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()


def raw_page(metrics: Sequence[tuple[str, str, str]], *more: Sequence[str], who: Sequence[str] = FIRST) -> str:
    """A raw page of one launch: name, unit and value of each metric; `more` launches as whole rows."""
    names, units, values = zip(*metrics, strict=True)
    return quoted([[*WHO, *names], [""] * len(WHO) + list(units), [*who, *values], *more])


def details_page(lines: Sequence[tuple[str, str, str, str]], who: Sequence[str] = FIRST) -> str:
    """A details page of one launch: section, name, unit and value of each metric, and empty cells for rules."""
    names = ("Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type")
    return quoted([[*WHO, *names], *([*who, *line, "", ""] for line in lines)])


def recorded() -> tuple[str, list[list[str]]]:
    """The recorded raw page: what stands before its table, and the table."""
    text = RAW.read_text()
    start = text.index('"ID"')
    return text[:start], list(csv.reader(io.StringIO(text[start:])))
