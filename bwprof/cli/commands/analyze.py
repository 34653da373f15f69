"""The command ``bwprof analyze``: what limits a run, and what to do about it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwprof.cli.display import markdown, print_document, print_lines
from bwprof.cli.inputs import RESULT, load_rows
from bwprof.cli.options import Parser, read_positive, run
from bwprof.cli.output import FORMS, choose_targets, emit, json_text
from bwprof.results.schema import RowDict
from bwprof.text.document import (
    Block,
    Document,
    FactList,
    Paragraph,
    Section,
    make_frame_table,
    make_list,
    make_paragraph,
    make_section,
    make_table,
    present_sections,
)
from bwprof.text.parsing import parse_count, quote_text

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from rich.console import Console

    from bwprof.analysis.answer import Answer

_DESCRIPTION = """\
Print what limits a run, where its time is lost and why, and what a narrower precision brings. Only hardware counters
tell causes: measure with --counters --metrics all.
"""

_TABLE = f"""\
{RESULT}
--top N  how many bottlenecks to list (default: 3)
--checklist  print sixteen questions, too, each with its figure
--peak GB/S  the memory's theoretical bandwidth, where the rows have none
{FORMS}"""

_EPILOG = """\
examples:
  %(prog)s h200                          a recorded run
  %(prog)s RUN --only 'attention*' --top 10
  %(prog)s RUN --checklist --md > answer.md
"""

_PRIORITIES = "priority 1: half of its time or more could be won, 2: a fifth or more, 3: a twentieth or more"


def main_analyze(arguments: Sequence[str] | None = None) -> int:
    """Print what limits results; returns the exit code."""
    return run(Parser("bwprof analyze", _DESCRIPTION, _TABLE, _EPILOG, top="3"), arguments, _run)


def _run(options: argparse.Namespace) -> int:
    from bwprof.analysis.answer import Answer, fill_peak
    from bwprof.roofs.limiter import with_limits

    targets = choose_targets(options)
    top = parse_count(options.top, "--top")
    if top < 1:
        raise ValueError(f"--top is {quote_text(options.top)}: a whole number from 1 is needed")
    peak = read_positive(options.peak, "--peak", "a bandwidth in GB/s")
    data = load_rows(options.results, options.only)
    answer = Answer(with_limits(data if peak is None else fill_peak(data, peak, options.results)), top)
    texts = {
        "json": lambda: json_text(answer.to_dict(with_checklist=options.checklist)),
        "md": lambda: markdown(_tables(answer, checklist=options.checklist)),
    }

    def show(screen: Console) -> None:
        from bwprof.analysis.answer import group_strengths

        strengths = make_list(group_strengths(answer.measured))
        checklist = checklist_section(answer.checklist()) if options.checklist else None
        print_document(screen, _document(answer, _bottlenecks(answer), strengths, checklist))

    return emit(targets, texts, show)


def _document(
    answer: Answer, bottlenecks: Section | None, strengths: Block | None, checklist: Section | None
) -> Document:
    improved, reason = answer.improvement()
    pairs = make_frame_table(improved, numbers=list(improved.columns)[1:])
    sections = [
        bottlenecks,
        make_section("", "Cliffs: time that the step of work does not explain", make_list(answer.cliffs())),
        make_section("", "Strengths", strengths),
        make_section("", "FP32 and FP16", pairs, make_paragraph(reason)) if pairs else None,
        _utilization(answer.utilization()),
        checklist,
    ]
    return Document("What limits it", "", present_sections(sections), tuple(map(Paragraph, answer.lines())))


def _tables(answer: Answer, *, checklist: bool) -> Document:
    bottlenecks = make_section("", "Bottlenecks", make_frame_table(answer.bottlenecks()))
    items = make_section("", "Checklist", make_frame_table(answer.checklist())) if checklist else None
    return _document(answer, bottlenecks, make_frame_table(answer.strengths()), items)


def _bottlenecks(answer: Answer) -> Section:
    """Make the section for a screen: each bottleneck in lines, not in a wide table."""
    from bwprof.analysis.bottleneck import sort_by_priority

    if not answer.findings:
        return Section("", "Bottlenecks: none that a roof tells of", ())
    parts = []
    for finding in sort_by_priority(answer.findings):
        impact = ("impact", f"{finding.impact}; {finding.gain}")
        facts = FactList((impact, ("fix", finding.fix), ("evidence", finding.evidence)))
        parts.append(Section("", f"{finding.priority} {finding.label}: {finding.issue}", (facts,)))
    return Section("", "Bottlenecks", (Paragraph(_PRIORITIES), *parts))


def _utilization(data: pd.DataFrame) -> Section | None:
    title = "Utilization of the theoretical peak"
    if data["Utilization"].ne("-").any():
        return make_section("", title, make_frame_table(data, numbers=list(data.columns)[1:3]))
    unknown = make_paragraph("--peak GB/S gives the peak of cold ones") if len(data) else None
    return make_section("", f"{title}: not known of any row", unknown)


def checklist_section(checklist: pd.DataFrame) -> Section:
    """Make the section of a checklist: its groups, a line for each item."""
    groups = []
    for group, lines in checklist.groupby("Group", sort=False):
        rows = zip(lines["Result"].str.ljust(7), lines["Item"], lines["Figure"], strict=True)
        groups.append(make_section("", str(group), make_table(["Result", "Item", "Figure"], rows, wordy=True)))
    return Section("", "Checklist", present_sections(groups))


def print_answer(rows: Sequence[RowDict], folder: Path | None, screen: Console) -> None:
    """Print the answer in a few lines, and where there is more of it."""
    from bwprof.analysis.answer import Answer
    from bwprof.results import frame

    lines = Answer(frame.from_rows(rows), top=1).brief()
    print_lines(screen, [*lines, f"more: bwprof analyze {folder}"] if lines and folder is not None else lines)
