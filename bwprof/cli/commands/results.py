"""The commands that print results: ``bwprof analyze``, ``bwprof report`` and ``bwprof show``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.analysis.summarize import VIEWS, check_view
from bwprof.cli.guard import GATE_FAILED, OK
from bwprof.cli.options import RESULT, RESULTS, command, load_rows, typed
from bwprof.cli.output import FORMS, check_writable, choose_targets, emit, json_text
from bwprof.cli.render import print_document, print_lines, print_step, print_summary, print_view
from bwprof.results.schema import RowDict
from bwprof.text import document as doc
from bwprof.text.formatting import format_path, plural
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from bwprof.analysis.answer import Answer


_PRIORITIES = "priority 1: half of its time or more could be won, 2: a fifth or more, 3: a twentieth or more"


@command(f"""\
{RESULT}
--top N = 3  the number of bottlenecks to list
--checklist  also print sixteen questions with their figures
--peak GB/S  theoretical memory bandwidth, for rows without one
{FORMS}""")
def main_analyze(options: argparse.Namespace) -> int:
    """Print what limits a run, where it loses time and why, and what a narrower precision gains.

    Causes need hardware counters: measure with --counters --metrics all.

    Examples:
      bwprof analyze h200                                  a recorded run
      bwprof analyze RUN --only 'attention*' --top 10
      bwprof analyze RUN --checklist --md > answer.md
    """
    from bwprof.analysis.answer import Answer, fill_peak
    from bwprof.roofs.limiter import with_limits

    targets = choose_targets(options)
    if options.top < 1:
        raise ValueError(f"--top is {options.top}: a whole number from 1 is needed")
    data = load_rows(options.results, options.only)
    if options.peak is not None:
        data = fill_peak(data, options.peak, options.results)
    answer = Answer(with_limits(data), options.top)
    document = partial(_document, answer, checklist=options.checklist)
    texts = {
        "json": lambda: json_text(answer.to_dict(with_checklist=options.checklist)),
        "md": lambda: doc.to_markdown(document(on_screen=False)),
    }
    return emit(targets, texts, lambda screen: print_document(screen, document(on_screen=True)))


def _document(answer: Answer, *, checklist: bool, on_screen: bool) -> doc.Document:
    """Make the answer's document; on a screen bottlenecks and strengths are lines, not wide tables."""
    from bwprof.analysis.answer import group_strengths

    improved, reason = answer.improvement()
    pairs = doc.make_frame_table(improved, numbers=list(improved.columns)[1:])
    bottlenecks = doc.make_section("", "Bottlenecks", doc.make_frame_table(answer.bottlenecks()))
    strengths = (
        doc.make_list(group_strengths(answer.measured)) if on_screen else doc.make_frame_table(answer.strengths())
    )
    sections = [
        _bottlenecks(answer) if on_screen else bottlenecks,
        doc.make_section("", "Cliffs: time that the step of work does not explain", doc.make_list(answer.cliffs())),
        doc.make_section("", "Strengths", strengths),
        doc.make_section("", "What fewer bits gain", pairs, doc.make_paragraph(reason)) if pairs else None,
        _utilization(answer.utilization()),
        _checklist(answer.checklist(), on_screen=on_screen) if checklist else None,
    ]
    return doc.Document("What limits it", "", doc.present_sections(sections), tuple(map(doc.Paragraph, answer.lines())))


def _bottlenecks(answer: Answer) -> doc.Section:
    from bwprof.analysis.bottleneck import sort_by_priority

    if not answer.findings:
        return doc.Section("", "Bottlenecks: none that a roof tells of", ())
    parts = []
    for finding in sort_by_priority(answer.findings):
        impact = ("impact", f"{finding.impact}; {finding.gain}")
        facts = doc.FactList((impact, ("fix", finding.fix), ("evidence", finding.evidence)))
        parts.append(doc.Section("", f"{finding.priority} {finding.label}: {finding.issue}", (facts,)))
    return doc.Section("", "Bottlenecks", (doc.Paragraph(_PRIORITIES), *parts))


def _utilization(data: pd.DataFrame) -> doc.Section | None:
    title = "Utilization of the theoretical peak"
    if data["Utilization"].ne("-").any():
        return doc.make_section("", title, doc.make_frame_table(data, numbers=list(data.columns)[1:3]))
    unknown = doc.make_paragraph("--peak GB/S sets it for rows that were measured cold") if len(data) else None
    return doc.make_section("", f"{title}: not known of any row", unknown)


def _checklist(checklist: pd.DataFrame, *, on_screen: bool) -> doc.Section | None:
    """Make the section of a checklist; on a screen its groups, a line for each item."""
    if not on_screen:
        return doc.make_section("", "Checklist", doc.make_frame_table(checklist))
    groups = []
    for group, lines in checklist.groupby("Group", sort=False):
        rows = zip(lines["Result"].str.ljust(7), lines["Item"], lines["Figure"], strict=True)
        groups.append(doc.make_section("", str(group), doc.make_table(["Result", "Item", "Figure"], rows, wordy=True)))
    return doc.Section("", "Checklist", doc.present_sections(groups))


def print_answer(rows: Sequence[RowDict], folder: Path | None, screen: Console) -> None:
    """Print the answer in a few lines, and where there is more of it."""
    from bwprof.analysis.answer import Answer
    from bwprof.results import frame

    lines = Answer(frame.from_rows(rows), top=1).brief()
    print_lines(screen, [*lines, f"more: bwprof analyze {folder}"] if lines and folder is not None else lines)


@command(f"""\
{RESULTS}
--checklist  print sixteen questions with their figures, instead of the summary

a report as a file:
-o, --output FILE  the file to write: .html or .md
--kind NAME  run, or optimization of the first run and one after each change (default: by FILE's name)
--title TEXT  the title
--goals FILE.toml  of an optimization: what the last run should reach: bandwidth_gb_s = ">200", verified = true,
  occupancy_pct, speedup, speedup_vs_torch, bottlenecks_fixed; exit with 1 if it misses one, or lacks its figure
--case NAME  of an optimization: its case
--precision P  of an optimization: its precision
--force  replace existing files
""")
def main_report(options: argparse.Namespace) -> int:
    """Print the summary of results, or with -o write a report: a page (.html) or Markdown with pictures (.md).

    A report of several runs compares each with the first.

    Examples:
      bwprof report RUN                        the summary
      bwprof report RUN -o report.html         a page
      bwprof report BASE STEP1 STEP2 --kind optimization -o OPTIMIZATION_REPORT.md --goals goals.toml
    """
    if options.output is not None:
        if options.checklist:
            raise ValueError("--checklist is printed: leave it out, or -o")
        return _write_report(options)
    if of_files := list(typed(options, {"kind", "title", "goals", "case", "precision", "force"}).values()):
        raise ValueError(f"{of_files[0]} is of a report as a file: name it with -o, or leave it out")
    if len(options.results) > 1:
        raise ValueError(f"{len(options.results)} runs are given: name a file for their report with -o")
    data, screen = load_rows(options.results[0], options.only), make_console(sys.stdout)
    if options.checklist:
        from bwprof.analysis.rules import checklist

        section = _checklist(checklist(data), on_screen=True)
        print_document(screen, doc.Document("", "", doc.present_sections([section])))
    elif data.attrs.get("run", {}).get("model") is not None:
        print_step(data, screen)
    else:
        print_summary(data, screen)
    return OK


def _write_report(options: argparse.Namespace) -> int:
    from bwprof.report.write import check_ending, write_report

    check_ending(Path(options.output))
    check_writable("-o", options.output)
    runs = [load_rows(name, options.only) for name in options.results] if options.only else options.results
    arguments = {name: getattr(options, name) for name in ("kind", "title", "goals", "case", "precision", "force")}
    try:
        report = write_report(runs, options.output, **arguments)
    except FileExistsError as error:
        raise ValueError(str(error).replace("force=True, --force in a shell", "--force")) from None
    pictures = f", with {plural(len(report.pictures), 'picture')} beside it" if report.pictures else ""
    sys.stderr.write(f"bwprof: the report is {format_path(report.path)}{pictures}\n")
    if report.goals:
        rows = [(goal.name, goal.target, goal.figure, goal.result) for goal in report.goals]
        print_table(make_console(sys.stdout), ["goal", "wanted", "found", "result"], rows)
    return OK if report.passed else GATE_FAILED


@command(f"""\
{RESULT}
one of:
--view NAME = {VIEWS[0]}  which columns: {", ".join(VIEWS)}
--columns A,B,…  these columns, in this order (see bwprof columns)
""")
def main_show(options: argparse.Namespace) -> int:
    """Print the rows of results, one a line. bwprof report prints the summary.

    Examples:
      bwprof show RUN
      bwprof show RUN --view roofline --only 'attention*'
      bwprof show RUN --columns case,precision,time_ms,bandwidth_gb_s
    """
    check_view(options.view)
    data = load_rows(options.results, options.only)
    print_view(data, make_console(sys.stdout), which=options.view, columns=options.columns)
    return OK
