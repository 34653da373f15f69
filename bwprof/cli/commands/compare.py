"""The command ``bwprof compare``: two runs case by case, and the gate of a CI job."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwprof.cli.commands.baseline import DIR
from bwprof.cli.display import print_frame, print_lines
from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, OK, data_stream
from bwprof.cli.options import ONLY, Parser, read_fraction, run, split
from bwprof.cli.output import check_picture, choose_targets, write_targets
from bwprof.text.parsing import describe_unknown, quote_text
from bwprof.text.terminal import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from bwprof.records.regression.comparison import Comparison, Gate

_DESCRIPTION = """\
Compare two runs case by case: which became slower, by more than chance, and probably why. BASE and NEW are run folders,
.csv or .json files of results, or baselines (baseline:NAME).

Against a baseline of several processes (bwprof baseline save NAME --repeat 5) the threshold of each case is its scatter
between processes, at a chance of 5 % that any case is called slower without being so. Between two single runs intervals
must be apart, and medians more than 3 %. A case is the same where no change above the gate can hide, else undecided.
"""

_TABLE = f"""\
base=BASE  the results to compare with
new=NEW  the results to judge
--fail-on WHAT  exit with 1 when: slower (any case is), any (differs), 5% (a case is slower, and 5 % more time is within
  its interval), never (default)
--gate FRACTION  the smallest change to report (default: 1% where learnt, else 3%)
--metric NAME  time_ms (default), bandwidth_gb_s or traffic_ratio
{ONLY}
--across  compare other devices, drivers and timers, too
--power  print the smallest change that the gate can detect, per case
--[no-]confirm  measure a case that fails or may, again in a fresh process, where its device is present; both must fail
  (default). Against a base of fewer than five processes what fails is measured up to five times
--all  print also the cases that are the same, those that cannot be compared, and those of one side alone
--format FORM  table (default), markdown, json or csv
--csv FILE|-  write it as CSV, too
--json FILE|-  write it as JSON, too
--md FILE|-  write it as Markdown, too; append it to the file that $GITHUB_STEP_SUMMARY names
--force  replace files that are there
--plot PICTURE  draw the ratios; the ending says the format
--github  print an ::error line for each case that fails
{DIR}
-q, --quiet  no progress of repeated measurements
"""

_EPILOG = """\
exit codes: 0, 1 (the gate of --fail-on failed), 2 (usage), 3 (with --fail-on: incomplete: a case of BASE failed, is
missing or was not measured in NEW; a slower one was disturbed and not measured again; an undecided one may hide a
change that fails; or none could be judged)

examples:
  %(prog)s bwprof-results/20260101-120000-ab12 bwprof-results/20260102-120000-cd34
  %(prog)s baseline:main r --fail-on 5%% --md "$GITHUB_STEP_SUMMARY" --github
  %(prog)s baseline:main r --power
"""

_FORMATS = {"table": "", "markdown": "md", "json": "json", "csv": "csv"}


def main_compare(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, gate; returns the exit code."""
    defaults = {"metric": "time_ms", "format": "table", "confirm": True}
    return run(Parser("bwprof compare", _DESCRIPTION, _TABLE, _EPILOG, **defaults), arguments, _run)


def _run(options: argparse.Namespace) -> int:
    from bwprof.records.regression.comparison import parse_fail_on

    if options.format not in _FORMATS:
        raise ValueError(describe_unknown("--format", options.format, _FORMATS))
    fail_on = parse_fail_on(options.fail_on, "--fail-on")
    gate = read_fraction(options, "gate")
    if options.plot is not None:
        check_picture("--plot", options.plot, force=options.force)
    targets = choose_targets(options, options.base, options.new)
    piped = next((kind for kind, name in targets.items() if name == "-"), "")
    if options.format != "table":
        data_stream("--format")
        if piped:
            raise ValueError(f"--format {options.format} and --{piped} - cannot both have the standard output")
    comparison = _compare(options, gate, fail_on)
    result = comparison.apply_gate(fail_on)
    complete = _write(options, targets, comparison, result)
    if options.github:
        from bwprof.records.regression.report import github_lines

        sys.stdout.writelines(f"{line}\n" for line in github_lines(comparison, result, options.new))
    incomplete = result.unsettled or (fail_on != "never" and not comparison.judged) or not complete
    return GATE_FAILED if result.failed else INCOMPLETE if incomplete else OK


def _compare(options: argparse.Namespace, gate: float | None, fail_on: str | float) -> Comparison:
    from bwprof.records.regression.compare import confirm_changes
    from bwprof.records.regression.comparison import compare_sources
    from bwprof.records.source import load_source

    base, new = load_source(options.base, folder=options.dir), load_source(options.new, folder=options.dir)
    if options.only:
        base, new = (rows.only(split(options.only, "--only")) for rows in (base, new))
    tries = 2 if options.confirm else 1
    comparison = compare_sources(base, new, gate=gate, across=options.across, metric=options.metric, tries=tries)
    if options.confirm and fail_on != "never":
        comparison = confirm_changes(comparison, new, fail_on, quiet=options.quiet)
    return comparison


def _write(options: argparse.Namespace, targets: dict[str, str], comparison: Comparison, gate: Gate) -> bool:
    """Print the comparison and write its files; return whether all are written."""
    from bwprof.records.regression import report
    from bwprof.results import frame

    heads = [_gate_line(comparison, gate)] if gate.fail_on != "never" else []
    if options.format == "table":
        _print(comparison, heads, make_console(sys.stderr if "-" in targets.values() else sys.stdout), options)
    texts = {
        "csv": lambda: frame.format_csv(comparison.frame()),
        "json": lambda: _json(comparison, gate),
        "md": lambda: report.format_markdown(comparison, heads, gate),
    }
    printed = {_FORMATS[options.format]: "-"} if options.format != "table" else {}
    complete = write_targets(targets, texts) and write_targets(printed, texts)
    if options.plot is not None:
        from bwprof.plot import regressions

        regressions.save_ratios(comparison.frame(), options.plot)
    return complete


def _gate_line(comparison: Comparison, gate: Gate) -> str:
    """Describe whether the gate failed, and what it could not judge."""
    from bwprof.records.regression.report import first_names
    from bwprof.records.regression.verdicts import DISTURBED_WORD, NOT_COMPARABLE

    threshold = f"{100 * gate.fail_on:g} %" if isinstance(gate.fail_on, float) else gate.fail_on
    missing = set(gate.missing)
    names = first_names(comparison, gate.undecided)
    lines = [line for place, line in enumerate(comparison.lines) if place not in missing]
    unjudged = sum(line.verdict in (DISTURBED_WORD, NOT_COMPARABLE) for line in lines)
    disturbed = bool(gate.suspects) or (not comparison.judged and bool(comparison.counts[DISTURBED_WORD]))
    parts = {
        f"gate --fail-on {threshold}: {_gate_result(comparison, gate)}": True,
        f"{len(gate.missing)} failed or missing": gate.missing,
        f"{len(gate.suspects)} slower, disturbed, and not measured again": gate.suspects,
        f"{unjudged} of {len(comparison.lines)} cases could not be judged": unjudged,
        f"{len(gate.undecided)} undecided: {', '.join(names)}": names,
        _advice(comparison) if disturbed else "": disturbed,
    }
    return "; ".join(text for text, applies in parts.items() if applies)


def _gate_result(comparison: Comparison, gate: Gate) -> str:
    if gate.failed:
        again = " (measured again)" if comparison.confirmed else ""
        return f"failed: {len(gate.failed)} of {len(comparison.tested)} cases{again}"
    if gate.missing or gate.suspects or (gate.undecided and comparison.judged):
        return "incomplete"
    return "passed" if comparison.judged else "nothing to judge by"


def _advice(comparison: Comparison) -> str:
    """Describe which side to measure again."""
    from bwprof.records.regression.verdicts import DISTURBED_WORD
    from bwprof.results.pairs import find_disturbances

    pairs = [line.pair for line in comparison.lines if line.verdict == DISTURBED_WORD]
    sides = {"BASE": [pair.base for pair in pairs], "NEW": [pair.new for pair in pairs]}
    disturbed = [
        name for name, rows in sides.items() if any(row is not None and find_disturbances(row) for row in rows)
    ]
    names = " and ".join(disturbed) or "NEW"  # where only the second try was disturbed
    return f"measure {names} again when nothing else uses the device, or both turn by turn (bwprof ab)"


def _print(comparison: Comparison, heads: Sequence[str], screen: Console, options: argparse.Namespace) -> None:
    from bwprof.records.regression import report
    from bwprof.records.regression.verdicts import NOT_COMPARABLE

    places = report.sort_lines(comparison, everything=options.all)
    apart = [place for place in places if comparison.lines[place].verdict == NOT_COMPARABLE and not options.all]
    others = [place for place in places if place not in set(apart)]
    whole = "" if options.all else "--all shows them"
    print_lines(screen, report.detail_lines(comparison, apart, whole=whole))
    title = f"{quote_text(comparison.base)} -> {quote_text(comparison.new)}"
    listed = places if options.all else report.two_sided(comparison, others)
    if listed:
        table = report.verdict_table(comparison, listed)
        print_frame(screen, title, table, numbers=report.NUMBERS, spare=("limit %", "95 %"))
    elif not apart:
        screen.print(title)
    if len(places) < len(comparison.lines):
        screen.print(f"{len(comparison.lines) - len(places)} unchanged (--all shows them)")
    if options.power:
        title = "The smallest change that is found 95 times in 100" + (", and confirmed" if options.confirm else "")
        print_frame(screen, title, report.power_table(comparison), numbers=report.POWER_NUMBERS)
        print_lines(screen, [report.POWER_NOTE])
    screen.print()
    print_lines(screen, report.detail_lines(comparison, others, whole=whole))
    print_lines(
        screen,
        filter(
            None, (*comparison.notes, report.describe_chance(comparison), report.format_summary(comparison), *heads)
        ),
    )


def _json(comparison: Comparison, gate: Gate) -> str:
    from bwprof.records.regression import report
    from bwprof.records.regression.verdicts import UNDECIDED

    names = comparison.names
    records = comparison.frame().to_dict(orient="records")
    document: dict[str, Any] = {
        "format": "bwprof-comparison",
        "base": comparison.base,
        "new": comparison.new,
        "metric": comparison.metric,
        "gate": comparison.gate,
        "fail_on": gate.fail_on,
        "failed": [names[place] for place in gate.failed],
        "undecided": [names[place] for place, line in enumerate(comparison.lines) if line.verdict == UNDECIDED],
        "summary": report.format_summary(comparison),
        "counts": dict(comparison.counts),
        "notes": list(comparison.notes),
        "rows": [{name: _plain(value) for name, value in record.items()} for record in records],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return None for what JSON cannot hold: NaN and infinity."""
    from bwprof.text.formatting import is_missing

    return None if is_missing(value) or (isinstance(value, float) and math.isinf(value)) else value
