"""The command ``bwprof diagnose``: why kernels are slow, of whosever figures."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.analysis.diagnosis.diagnose import Diagnosis, HypothesisVerdict, diagnose_rows, gain_text
from bwprof.analysis.diagnosis.hypothesis import CANNOT_TELL
from bwprof.cli.commands.analyze import wrapped
from bwprof.cli.commands.importers import add_bytes_options, add_caller_figures
from bwprof.cli.guard import OK
from bwprof.cli.inputs import select_rows
from bwprof.cli.options import Parser, read_fraction, read_positive, run
from bwprof.cli.output import choose_targets, write_each
from bwprof.text.formatting import escape_markdown, plural
from bwprof.text.parsing import finite_or_none
from bwprof.text.terminal import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from bwprof.importers.next_steps import NextCommand

_ANSWERS = 100  # cases whose answer is printed, without --all

_MOST_CASES = 20  # cases whose evidence is printed, without --all

_LAUNCH = re.compile(r"(.* \(launch )([0-9]+)(\))")

_STEPS = 3  # cases whose next steps are printed, without --all

_DESCRIPTION = """\
Why kernels are slow: the answer in a sentence a case, the evidence behind it, and what to run next where it cannot be
told yet. RUN|FILE is a run of bwprof's (--counters --metrics all tell most), a report or CSV page of Nsight Compute, a
CSV file of rocprof or rocprofv3, a trace of torch.profiler, or an SQLite export of Nsight Systems: what is in it says
which.
"""

_EPILOG = """\
A hypothesis is supported or refuted by figures beyond its threshold, else it cannot be told, and what would tell is
named. Gains are bounds worked out from the figures. In Python: bwprof.diagnose(row or frame).

examples:
  %(prog)s RUN
  %(prog)s RUN --only '*attention*' --precision fp16 --all
  %(prog)s profile.ncu-rep --md diagnosis.md
"""


def main_diagnose(arguments: Sequence[str] | None = None) -> int:
    """Print why kernels are slow; returns the exit code."""
    parser = Parser("bwprof diagnose", _DESCRIPTION, _EPILOG)
    parser.add_argument(
        "results", metavar="RUN|FILE", nargs="?", help="a run's folder, or a file of bwprof's or a profiler's"
    )
    read_fraction(parser)
    parser.add_argument("--precision", metavar="LIST", help="fp32,fp16: only these")
    parser.add_argument("--latency", metavar="US", help="of the memory under load, microseconds, for Little's law")
    add_bytes_options(parser)
    parser.add_argument("--all", action="store_true", help="the evidence of every case, refuted hypotheses, too")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE|-",
        help="as JSON: every hypothesis of every case (-, or no name: standard output)",
    )
    parser.add_argument("--md", metavar="FILE|-", help="as Markdown (-: standard output)")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    return run(parser, arguments, _run)


@dataclass(frozen=True, slots=True)
class _Diagnoses:
    """What the command tells: each case with its next steps, and how many rows had nothing measured."""

    source: str
    found: list[tuple[Diagnosis, list[NextCommand]]]
    unmeasured: int
    everything: bool

    @property
    def note(self) -> str:
        """Of what was left out."""
        rows = plural(self.unmeasured, "row")
        return f"{rows} without a measurement left out (predicted, skipped or failed)" if self.unmeasured else ""

    @property
    def closer(self) -> list[tuple[Diagnosis, list[NextCommand]]]:
        """The cases whose evidence is shown."""
        return self.found if self.everything else self.answered[:_MOST_CASES]

    @property
    def answered(self) -> list[tuple[Diagnosis, list[NextCommand]]]:
        """The cases whose answer is printed: of very many those that take longest."""
        if self.everything or len(self.found) <= _ANSWERS:
            return self.found
        longest = sorted(self.found, key=lambda one: -_time(one[0].row))[:_ANSWERS]
        kept = {one.place for one, _ in longest}
        return [one for one in self.found if one[0].place in kept]

    @property
    def open(self) -> list[tuple[Diagnosis, list[NextCommand]]]:
        """The cases with next steps, those of which nothing is known first."""
        return sorted((one for one in self.found if one[1]), key=lambda one: bool(one[0].of("supported")))


def _time(row: Mapping[str, Any]) -> float:
    """Of all launches of a row; 0 where it is not known."""
    time = finite_or_none(row.get("time_ms")) or 0.0
    often = finite_or_none(row.get("count"))
    return time * (1.0 if often is None else often)


def _run(options: argparse.Namespace) -> int:
    from bwprof.importers import detect
    from bwprof.importers.next_steps import suggest_commands, suggest_rocprof

    if options.results is None and options.json not in (None, "-"):  # --json RUN: the one name is what is read
        options.results, options.json = options.json, "-"
    if options.results is None:
        raise ValueError("RUN|FILE is missing: a run's folder, or a file of bwprof's or a profiler's, is needed")
    targets = choose_targets(options, options.results)
    latency = read_positive(options.latency, "--latency", "a positive number of microseconds")
    data = add_caller_figures(detect.load(options.results), options)
    chosen = select_rows(data, options.only, options.precision)
    measured = values.drop_repeated_shapes(chosen[~values.is_word(chosen, "status", "failed", "skipped", "predicted")])
    next_steps = suggest_rocprof if str(data.attrs.get("tool", "")).startswith("rocprof") else suggest_commands
    found = [(one, next_steps(one)) for one in diagnose_rows(measured, latency_us=latency)]
    told = _Diagnoses(options.results, found, len(chosen) - len(measured), options.all)
    if not targets:
        _show(told, make_console(sys.stdout))
    texts = {
        "json": lambda: json.dumps(_to_dict(told), indent=1, ensure_ascii=False),
        "md": lambda: _markdown(told),
    }
    written = write_each(targets, lambda kind: texts[kind]() + "\n")
    return OK if len(written) == len(targets) else 1


def _evidence(held: HypothesisVerdict) -> str:
    """A verdict in a line."""
    told = held.judgement
    parts = [told.evidence]
    if told.gain >= 1.005:
        parts.append(f"at most {gain_text(told.gain)} as fast")
    if held.verdict == "supported":
        parts.append(f"helps: {', '.join(held.hypothesis.fixes)}")
    if told.needs and not any(need.has_source for need in told.needs) and not any(map(str.isdigit, told.evidence)):
        return "no counter of this device is read for it"
    if told.needs:
        parts.append(f"missing: {', '.join(map(str, told.needs))}")
    return "; ".join(filter(None, parts))


_VerdictLine = tuple[str, str, str]  # verdict, hypothesis, evidence


def _verdict_lines(one: Diagnosis, *, whole: bool) -> list[_VerdictLine]:
    """Each verdict with its evidence; of several cases not why of the refuted ones."""
    return [
        (held.verdict, held.hypothesis.name, _evidence(held) if whole or held.verdict != "refuted" else "")
        for held in one.verdicts
    ]


def _lines(said: list[_VerdictLine]) -> list[_VerdictLine]:
    """The same with what is the same said once, of several hypotheses."""
    found: dict[tuple[str, str], list[str]] = {}
    for verdict, name, text in said:
        found.setdefault((verdict, text), []).append(name)
    return [(verdict, ", ".join(names), text) for (verdict, text), names in found.items()]


def _untold(found: Sequence[list[_VerdictLine]]) -> list[_VerdictLine]:
    """What cannot be told of any of several cases, for the same reason."""
    if len(found) < 2:
        return []
    return [one for one in found[0] if one[0] == CANNOT_TELL and all(one in other for other in found[1:])]


def _sentences(cases: Sequence[tuple[Diagnosis, list[NextCommand]]]) -> list[str]:
    """The answers; one that precisions or launches side by side have in common is said once."""
    found: list[tuple[str, list[str], str]] = []
    for one, _ in cases:
        head, last, end = _parts(one)
        rest = end + one.sentence.removeprefix(one.case)
        if last and found and (found[-1][0], found[-1][2]) == (head, rest):
            found[-1][1].append(last)
        else:
            found.append((head, [last], rest))
    return [f"{head}{', '.join(lasts)}{rest}" for head, lasts, rest in found]


def _parts(one: Diagnosis) -> tuple[str, str, str]:
    """A case's name before its precision or launch, that, and what is behind it."""
    if launch := _LAUNCH.fullmatch(one.case):
        return launch[1], launch[2], launch[3]
    precision = one.row.get("precision")
    if isinstance(precision, str) and one.case.endswith(f" {precision}"):
        return one.case.removesuffix(precision), precision, ""
    return one.case, "", ""


def _show(told: _Diagnoses, screen: Console) -> None:
    """As plain text."""
    for sentence in _sentences(told.answered):
        screen.print(wrapped(sentence, screen))
    if len(told.answered) < len(told.found):
        hint = f"these {_ANSWERS} of {len(told.found)} cases take longest: --all, or --only, shows the others"
        screen.print(wrapped(hint, screen))
    if not told.found:
        screen.print("nothing was measured: there is nothing to tell")
    if told.note:
        screen.print(wrapped(told.note, screen))
    whole = told.everything or len(told.found) == 1
    if told.found:
        screen.print("\nEvidence")
    closer = [(one.case, _verdict_lines(one, whole=whole)) for one, _ in told.closer]
    untold = _untold([said for _, said in closer])
    of_each = [(case, [line for line in said if line not in untold]) for case, said in closer]
    for case, said in [*of_each, (f"each of these {len(of_each)} cases", untold)]:
        if not said:
            continue
        screen.print(f"  {case}")
        for verdict, name, text in _lines(said):
            line = f"{verdict:<11} {name}{f': {text}' if text else ''}"
            screen.print(wrapped(line, screen, "    ", 12))
    if len(told.closer) < len(told.found):
        screen.print(f"  ... and {plural(len(told.found) - len(told.closer), 'case')} more: --all, or --only")
    _show_steps(told, screen)


def _show_steps(told: _Diagnoses, screen: Console) -> None:
    """What to run next; a command is a line, however long, so that it can be pasted."""
    open_ones = told.open if told.everything else told.open[:_STEPS]
    if not open_ones:
        return
    screen.print("\nNext steps")
    for one, listed in open_ones:
        screen.print(f"  {one.case}")
        for step in listed:
            screen.print(wrapped(f"tells {', '.join(step.tells)}:", screen, "    "))
            screen.print(f"      {step.command}", soft_wrap=True)
    if len(open_ones) < len(told.open):
        screen.print(f"  ... and {plural(len(told.open) - len(open_ones), 'case')} more: --all, or --only")
    amd = any(step.command.startswith("rocprof") for _, listed in open_ones for step in listed)
    screen.print(f"  then: bwprof diagnose {'counted --peak GB/S' if amd else 'RUN, or profile.ncu-rep'}")


def _markdown(told: _Diagnoses) -> str:
    import pandas as pd

    from bwprof.analysis.answer import markdown

    parts = [
        "# Why is it slow?",
        "\n".join(f"* {escape_markdown(one.sentence)}" for one, _ in told.found) or "Nothing was measured.",
    ]
    parts += [told.note] if told.note else []
    parts += ["## Evidence"] if told.found else []
    for one, _ in told.found:
        lines = _lines(_verdict_lines(one, whole=True))
        parts += [
            f"### {escape_markdown(one.case)}",
            markdown(pd.DataFrame(lines, columns=["Verdict", "Hypothesis", "Evidence"])),
        ]
    if told.open:
        parts.append("## Next steps")
    for one, listed in told.open:
        parts.append(f"{escape_markdown(one.case)}:")
        parts += [f"```{'python' if step.in_python else 'sh'}\n{step.command}\n```" for step in listed]
    return "\n\n".join(parts)


def _to_dict(told: _Diagnoses) -> dict[str, Any]:
    return {
        "source": told.source,
        "without_measurement": told.unmeasured,
        "cases": [
            {
                "case": one.case,
                "answer": one.sentence,
                "doubts": list(one.doubts),
                "verdicts": [_verdict(held) for held in one.verdicts],
                "next_steps": [{"command": step.command, "tells": list(step.tells)} for step in listed],
            }
            for one, listed in told.found
        ],
    }


def _verdict(held: HypothesisVerdict) -> dict[str, Any]:
    gain = held.judgement.gain
    return {
        "hypothesis": held.hypothesis.name,
        "verdict": held.verdict,
        "evidence": held.judgement.evidence,
        "threshold": held.hypothesis.threshold,
        "because": held.hypothesis.because,
        "fixes": list(held.hypothesis.fixes),
        "expected_gain": None if math.isnan(gain) else gain,
        "needs": [need._asdict() for need in held.judgement.needs],
    }
