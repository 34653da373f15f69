"""The command ``bwprof analyze``: what limits a run, and what to do about it."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwprof.cli.guard import OK, data_stream
from bwprof.cli.inputs import RESULT, load_rows
from bwprof.cli.options import Parser, read_positive, run
from bwprof.results.schema import RowDict
from bwprof.text.parsing import parse_count, quote_text
from bwprof.text.terminal import PLAIN_WIDTH, make_console, print_table

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from rich.console import Console

    from bwprof.analysis.answer import Answer

_DESCRIPTION = "What limits a run, where its time is lost and why, what is fine, what a narrower precision buys."

_EPILOG = """\
All figures are the rows' own. Causes are told by hardware counters: measure with --counters --metrics all.
"""


def main_analyze(arguments: Sequence[str] | None = None) -> int:
    """Print what results say; returns the exit code."""
    parser = Parser("bwprof analyze", _DESCRIPTION, _EPILOG)
    RESULT(parser)
    parser.add_argument("--top", metavar="N", default="3", help="how many bottlenecks to list (default: 3)")
    parser.add_argument("--checklist", action="store_true", help="sixteen questions, each with its figure")
    parser.add_argument("--peak", metavar="GB/S", help="the memory's theoretical bandwidth, where the rows have none")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--md", action="store_true", help="as Markdown")
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    from bwprof.analysis.answer import Answer, fill_peak
    from bwprof.roofs.limiter import with_limits

    if options.json or options.md:
        data_stream("--json" if options.json else "--md")
    top, peak = _top(options.top), read_positive(options.peak, "--peak", "a bandwidth in GB/s")
    data = load_rows(options.results, options.only)
    answer = Answer(with_limits(data if peak is None else fill_peak(data, peak, options.results)), top)
    if options.json:
        found = answer.to_dict(with_checklist=options.checklist)
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    elif options.md:
        sys.stdout.write("\n\n".join(_markdown(answer, checklist=options.checklist)) + "\n")
    else:
        _show(answer, make_console(sys.stdout), checklist=options.checklist)
    return OK


def _top(text: str) -> int:
    count = parse_count(text, "--top")
    if count < 1:
        raise ValueError(f"--top is {quote_text(text)}: a whole number from 1 is needed")
    return count


_PRIORITIES = "priority 1: half of its time or more could be won, 2: a fifth or more, 3: a twentieth or more"

_CLIFFS = "Cliffs: time that the step of work does not explain"

_NO_PEAK = "Utilization of the theoretical peak: not known of any row; of cold ones --peak GB/S tells it."


def _show(answer: Answer, screen: Console, *, checklist: bool) -> None:
    """On a terminal, or as plain text."""
    from bwprof.analysis.answer import group_strengths
    from bwprof.analysis.bottleneck import sort_by_priority

    improved, why = answer.improvement()
    for line in answer.lines():
        screen.print(wrapped(line, screen))
    screen.print("\nBottlenecks" if answer.findings else "\nBottlenecks: none that a roof tells of")
    if answer.findings:
        screen.print(wrapped(_PRIORITIES, screen, "  "))
    for finding in sort_by_priority(answer.findings):
        screen.print(wrapped(f"{finding.priority} {finding.label}: {finding.issue}", screen, "  "))
        for name, text in (
            ("impact", f"{finding.impact}; {finding.gain}"),
            ("fix", finding.fix),
            ("evidence", finding.evidence),
        ):
            screen.print(wrapped(f"{name}: {text}", screen, "    "))
    for title, lines in ((_CLIFFS, answer.cliffs()), ("Strengths", group_strengths(answer.measured))):
        if lines:
            screen.print(f"\n{title}")
        for line in lines:
            screen.print(wrapped(line, screen, "  "))
    if len(improved):
        show_table(screen, "FP32 and FP16", improved, numbers=list(improved.columns)[1:])
        if why:
            screen.print(wrapped(why, screen))
    used = answer.utilization()
    if _has_utilization(used):
        show_table(screen, "Utilization of the theoretical peak", used, numbers=list(used.columns)[1:3])
    elif len(used):
        screen.print()
        screen.print(wrapped(_NO_PEAK, screen))
    if checklist:
        show_checklist(answer.checklist(), screen)


def print_answer(rows: Sequence[RowDict], folder: Path | None, screen: Console) -> None:
    """The answer in a few lines, at the end of a sweep, and where there is more of it."""
    from bwprof.analysis.answer import Answer
    from bwprof.results import frame

    lines = Answer(frame.from_rows(rows), top=1).brief()
    if lines and folder is not None:
        lines.append(f"more: bwprof analyze {folder}")
    for line in lines:
        screen.print(wrapped(line, screen))


def show_checklist(found: pd.DataFrame, screen: Console) -> None:
    """The checklist: a line for each item, its figure below where it is long."""
    screen.print("\nChecklist")
    group = ""
    for line in found.to_dict(orient="records"):
        if line["Group"] != group:
            group = line["Group"]
            screen.print(f"  {group}")
        screen.print(wrapped(f"{line['Result']:<7} {line['Item']}: {line['Figure']}", screen, "    ", 8))


def show_table(
    screen: Console, title: str, found: pd.DataFrame, *, numbers: Sequence[str], spare: Sequence[str] = ()
) -> None:
    """A frame of words as a table, with a title above it; nothing of an empty one. A narrow screen does without the
    columns in `spare`, the first ones first.
    """
    if not len(found):
        return
    screen.print(f"\n{title}")
    headers = {name: name.replace(" ", "\n", 1) if name in numbers else name for name in found.columns}
    rows = (list(map(str, row)) for row in found.itertuples(index=False))
    of_numbers, left_out = ([headers[name] for name in names] for names in (numbers, spare))
    print_table(screen, list(headers.values()), rows, numbers=of_numbers, spare=left_out)


def wrapped(text: str, screen: Console, indent: str = "", hanging: int = 2) -> str:
    """A line as lines that fit the screen; what follows the first hangs."""
    width = max(40, min(screen.width, PLAIN_WIDTH))
    hung = indent + " " * hanging
    kept = text.replace(" %", "\u00a0%")  # a figure and its unit stay together
    filled = textwrap.fill(kept, width, initial_indent=indent, subsequent_indent=hung, break_on_hyphens=False)
    return filled.replace("\u00a0%", " %")


def _has_utilization(used: pd.DataFrame) -> bool:
    """Whether the table of utilizations says anything of any row."""
    return bool(used["Utilization"].ne("-").any())


def _markdown(answer: Answer, *, checklist: bool) -> list[str]:
    from bwprof.analysis.answer import markdown

    improved, why = answer.improvement()
    parts = ["# What limits it", *answer.lines()]
    used = answer.utilization()
    tables = {
        "Bottlenecks": answer.bottlenecks(),
        "Strengths": answer.strengths(),
        "FP32 and FP16": improved,
        "Utilization": used if _has_utilization(used) else used.iloc[:0],
        **({"Checklist": answer.checklist()} if checklist else {}),
    }
    for title, found in tables.items():
        if title == "Strengths" and answer.cliffs():
            parts += [f"## {_CLIFFS}", "\n".join(f"- {line}" for line in answer.cliffs())]
        if len(found):
            parts += [f"## {title}", markdown(found)]
        if title == "FP32 and FP16" and why:
            parts.append(why)
    return parts if _has_utilization(used) or not len(used) else [*parts, _NO_PEAK]
