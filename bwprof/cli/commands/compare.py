"""The command ``bwprof compare``: two runs case by case, and the gate of a CI job."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.cli.commands.analyze import show_table, wrapped
from bwprof.cli.commands.baseline import add_dir
from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, OK, data_stream
from bwprof.cli.options import Parser, read_fraction, run, split
from bwprof.cli.output import _is_step_summary, check_picture, choose_targets
from bwprof.results.atomic import append_text, atomic_write
from bwprof.text.parsing import describe_unknown, escape_controls, parse_fraction, quote_text
from bwprof.text.terminal import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from bwprof.records.regression.comparison import Comparison, Gate

_DESCRIPTION = """\
Compare two runs case by case: which became slower, by more than chance, and probably why.

BASE and NEW are run folders, .csv or .json files of results, or baselines (baseline:NAME).
Against a baseline of several processes (bwprof baseline save NAME --repeat 5) each case is held against what it has
been seen to wander between processes, at a chance of 5 % that any case is called slower without being so. Between two
single runs that is not known: intervals must be apart, and medians more than 3 %. A case is the same where no larger
change than the gate can hide, else it is undecided.
"""

_EPILOG = """\
exit codes: 0, 1 (the gate of --fail-on failed), 2 (what was asked for cannot be), 3 (with --fail-on: a case that BASE
has failed, is missing or was not measured in NEW; one is slower by more than what disturbed it explains, and was not
measured again; one is undecided, and a change that fails may hide in it; or none could be judged)

examples:
  %(prog)s bwprof-results/20260101-120000-ab12 bwprof-results/20260102-120000-cd34
  %(prog)s baseline:main r --fail-on 5%% --md "$GITHUB_STEP_SUMMARY" --github
  %(prog)s baseline:main r --power
"""

_FORMATS = ("table", "markdown", "json", "csv")


def main_compare(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, gate; returns the exit code."""
    return run(_parser(), arguments, _run)


def _parser() -> Parser:
    parser = Parser("bwprof compare", _DESCRIPTION, _EPILOG)
    parser.add_argument("base", metavar="BASE", help="what it is held against")
    parser.add_argument("new", metavar="NEW", help="what is looked at")
    parser.add_argument(
        "--fail-on",
        metavar="WHAT",
        help="exit with 1 when: slower (any case is), any (differs), 5%% (a case is slower, and 5 %% more time is "
        "within its interval), never (default)",
    )
    parser.add_argument(
        "--gate", metavar="FRACTION", help="smallest change worth a word (default: 1%% where learnt, else 3%%)"
    )
    parser.add_argument(
        "--metric", default="time_ms", metavar="NAME", help="time_ms (default), bandwidth_gb_s or traffic_ratio"
    )
    read_fraction(parser)
    parser.add_argument("--across", action="store_true", help="compare other devices, drivers and timers, too")
    parser.add_argument(
        "--power", action="store_true", help="print the smallest change that the gate can see, per case"
    )
    parser.add_argument(
        "--confirm",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure a case that fails or may, once more in a fresh process, where its device is at hand; both must "
        "say so (default). Against a base of fewer than five processes what fails is measured up to five times",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="show the cases that are the same, those that cannot be compared, and those of one side alone",
    )
    parser.add_argument("--format", default="table", metavar="FORM", help="table (default), markdown, json or csv")
    for name, text in (("csv", "CSV"), ("json", "JSON"), ("md", "Markdown")):
        parser.add_argument(f"--{name}", metavar="FILE", help=f"write it as {text}, too (-: standard output)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace files that are there; what $GITHUB_STEP_SUMMARY names is always added to",
    )
    parser.add_argument("--plot", metavar="PICTURE", help="draw the ratios; the ending says the format")
    parser.add_argument("--github", action="store_true", help="print an ::error line for each case that fails")
    add_dir(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress of what is measured again")
    return parser


def _run(options: argparse.Namespace) -> int:
    from bwprof.records.regression.comparison import compare_sources, parse_fail_on
    from bwprof.records.source import load_source

    if options.format not in _FORMATS:
        raise ValueError(describe_unknown("--format", options.format, _FORMATS))
    fail_on = parse_fail_on(options.fail_on, "--fail-on")
    gate = None if options.gate is None else parse_fraction(options.gate, "--gate")
    if options.plot is not None:
        check_picture("--plot", options.plot, force=options.force)
    targets = choose_targets(options, options.base, options.new)
    if options.format != "table":
        data_stream("--format")
        for kind, name in targets.items():
            if name == "-":
                raise ValueError(f"--format {options.format} and --{kind} - cannot both have the standard output")
    base, new = load_source(options.base, folder=options.dir), load_source(options.new, folder=options.dir)
    if options.only:
        base, new = (one.only(split(options.only, "--only")) for one in (base, new))
    tries = 2 if options.confirm else 1
    found = compare_sources(base, new, gate=gate, across=options.across, metric=options.metric, tries=tries)
    if options.confirm and fail_on != "never":
        from bwprof.records.regression.confirmation import confirm_changes

        found = confirm_changes(found, new, fail_on, quiet=options.quiet)
    result = found.apply_gate(fail_on)
    _write(options, targets, found, result)
    if options.github:
        from bwprof.records.regression.report import github_lines

        sys.stdout.writelines(f"{line}\n" for line in github_lines(found, result, options.new))
    unjudged = fail_on != "never" and not found.judged
    return GATE_FAILED if result.failed else INCOMPLETE if result.unsettled or unjudged else OK


def _write(options: argparse.Namespace, targets: Mapping[str, str], found: Comparison, gate: Gate) -> None:
    """What was asked for, into files and on standard output."""
    from bwprof.records.regression import report
    from bwprof.results import frame

    heads = [_gate_line(found, gate)] if gate.fail_on != "never" else []
    if options.format == "table":
        piped = "-" in targets.values()
        _print(found, heads, make_console(sys.stderr if piped else sys.stdout), options)
    forms = {
        "csv": lambda: frame.format_csv(found.frame()),
        "json": lambda: _json(found, gate),
        "markdown": lambda: escape_controls(report.format_markdown(found, heads, gate)),
    }
    if options.format in forms:
        data_stream("--format").write(forms[options.format]())
    for kind, name in targets.items():
        text = forms["markdown" if kind == "md" else kind]()
        if name == "-":
            data_stream(f"--{kind} -").write(text)
        elif _is_step_summary(kind, name):
            append_text(Path(name), text)
        else:
            atomic_write(Path(name), text)
    if options.plot is not None:
        from bwprof.plot import regressions

        regressions.save_ratios(found.frame(), options.plot)


def _gate_line(found: Comparison, gate: Gate) -> str:
    """Whether the gate failed, in words, and what it could not judge."""
    from bwprof.records.regression.report import first_names
    from bwprof.records.regression.verdicts import DISTURBED_WORD, NOT_COMPARABLE

    fail_on, missing, suspects = gate.fail_on, gate.missing, gate.suspects
    asked = f"{100 * fail_on:g} %" if isinstance(fail_on, float) else fail_on
    second = " (measured again)" if found.confirmed and gate.failed else ""
    called = first_names(found, gate.undecided)
    unsettled = missing or suspects or (gate.undecided and found.judged)
    passed = "incomplete" if unsettled else "passed" if found.judged else "nothing to judge by"
    said = f"failed: {len(gate.failed)} of {len(found.tested)} cases{second}" if gate.failed else passed
    unjudged = sum(
        line.verdict in (DISTURBED_WORD, NOT_COMPARABLE)
        for place, line in enumerate(found.lines)
        if place not in set(missing)
    )
    more = [
        *([f"{len(missing)} failed or missing"] if missing else []),
        *([f"{len(suspects)} slower, disturbed, and not measured again"] if suspects else []),
        *([f"{unjudged} of {len(found.lines)} cases could not be judged"] if unjudged else []),
        *([f"{len(gate.undecided)} undecided: {', '.join(called)}"] if called else []),
        *([_quieter(found)] if suspects or (not found.judged and found.counts[DISTURBED_WORD]) else []),
    ]
    return "; ".join([f"gate --fail-on {asked}: {said}", *more])


def _quieter(found: Comparison) -> str:
    """What to do about disturbed cases: which side to measure anew."""
    from bwprof.records.regression.verdicts import DISTURBED_WORD
    from bwprof.results.pairs import find_disturbances

    pairs = [line.pair for line in found.lines if line.verdict == DISTURBED_WORD]
    sides = {"BASE": [pair.base for pair in pairs], "NEW": [pair.new for pair in pairs]}
    which = [name for name, rows in sides.items() if any(row is not None and find_disturbances(row) for row in rows)]
    said = " and ".join(which) or "NEW"  # the second try alone was
    return f"measure {said} again when nothing else uses the device, or both turn by turn (bwprof ab)"


def _print(found: Comparison, heads: Sequence[str], screen: Console, options: argparse.Namespace) -> None:
    """On a terminal, or as plain text."""
    from bwprof.records.regression import report
    from bwprof.records.regression.verdicts import NOT_COMPARABLE

    places = report.sort_lines(found, everything=options.all)
    apart = [place for place in places if found.lines[place].verdict == NOT_COMPARABLE and not options.all]
    whole = "" if options.all else "--all shows them"
    for line in report.detail_lines(found, apart, whole=whole):  # the reason first, once
        screen.print(wrapped(line, screen))
    title = f"{quote_text(found.base)} -> {quote_text(found.new)}"
    listed = places if options.all else report.two_sided(found, [place for place in places if place not in set(apart)])
    if listed:
        show_table(
            screen, title, report.verdict_table(found, listed), numbers=report.NUMBERS, spare=("limit %", "95 %")
        )
    elif not apart:
        screen.print(title)
    if len(places) < len(found.lines):
        screen.print(f"{len(found.lines) - len(places)} unchanged (--all shows them)")
    if options.power:
        title = "The smallest change that is found 95 times in 100" + (", and confirmed" if options.confirm else "")
        show_table(screen, title, report.power_table(found), numbers=report.POWER_NUMBERS)
        screen.print(wrapped(report.POWER_NOTE, screen))
    screen.print()
    for line in report.detail_lines(found, [place for place in places if place not in set(apart)], whole=whole):
        screen.print(wrapped(line, screen))
    for line in (*found.notes, report.describe_chance(found), report.format_summary(found), *heads):
        if line:
            screen.print(wrapped(line, screen))


def _json(found: Comparison, gate: Gate) -> str:
    from bwprof.records.regression import report
    from bwprof.records.regression.verdicts import UNDECIDED

    data, names = found.frame(), report.line_names(found)
    rows = [{name: _plain(value) for name, value in record.items()} for record in data.to_dict(orient="records")]
    document: dict[str, Any] = {
        "format": "bwprof-comparison",
        "base": found.base,
        "new": found.new,
        "metric": found.metric,
        "gate": found.gate,
        "fail_on": gate.fail_on,
        "failed": [names[place] for place in gate.failed],
        "undecided": [names[place] for place, line in enumerate(found.lines) if line.verdict == UNDECIDED],
        "summary": report.format_summary(found),
        "counts": dict(found.counts),
        "notes": list(found.notes),
        "rows": rows,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """For JSON, which has no NaN and no infinity."""
    from bwprof.text.formatting import is_missing

    if is_missing(value) or (isinstance(value, float) and math.isinf(value)):
        return None
    return value
