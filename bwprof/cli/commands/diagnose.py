"""The command ``bwprof diagnose``: why kernels are slow."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.analysis.diagnosis.diagnose import Diagnosis, HypothesisVerdict, diagnose_rows, gain_text
from bwprof.analysis.diagnosis.hypothesis import CANNOT_TELL
from bwprof.cli.commands.importers import CALLER_FIGURES, add_caller_figures
from bwprof.cli.display import markdown, print_document
from bwprof.cli.inputs import select_rows
from bwprof.cli.options import ONLY, Parser, read_positive, run
from bwprof.cli.output import choose_targets, emit, json_text
from bwprof.importers import detect
from bwprof.importers.next_steps import NextCommand, suggest_commands, suggest_rocprof
from bwprof.text.document import (
    Block,
    Code,
    Document,
    Paragraph,
    Section,
    make_list,
    make_paragraph,
    make_section,
    make_table,
    present_sections,
)
from bwprof.text.formatting import plural
from bwprof.text.parsing import finite_or_none

if TYPE_CHECKING:
    from rich.console import Console

# On a screen, without --all: cases with their answer, with their evidence, with their next steps.
_ANSWERS, _MOST_CASES, _STEPS = 100, 20, 3
_LAUNCH = re.compile(r"(.* \(launch )([0-9]+)(\))")

_DESCRIPTION = """\
Print why kernels are slow, with the evidence, and what to run next where figures are missing. RUN|FILE is a run of
bwprof (best with --counters --metrics all) or a file of ncu, rocprof, torch.profiler or Nsight Systems.
"""

_TABLE = f"""\
results=RUN|FILE?  a run's folder, or a file of bwprof or of a profiler
{ONLY}
--precision LIST  only these precisions: fp32,fp16
--latency US  latency of the memory under load, microseconds, for Little's law
{CALLER_FIGURES}
--all  print the evidence of every case, and refuted hypotheses
--json [FILE|-]  every hypothesis of every case as JSON (-, or no name: standard output)
--md FILE|-  as Markdown (-: standard output)
--force  replace a file that is there
"""

_EPILOG = """\
Figures beyond its threshold support or refute a hypothesis. Gains are bounds, worked out from the figures.
In Python: bwprof.diagnose(row or frame).

examples:
  %(prog)s RUN
  %(prog)s RUN --only '*attention*' --precision fp16 --all
  %(prog)s profile.ncu-rep --md diagnosis.md
"""

_Case = tuple[Diagnosis, list[NextCommand]]
_VerdictLine = tuple[str, str, str]  # verdict, hypothesis, evidence


def main_diagnose(arguments: Sequence[str] | None = None) -> int:
    """Print why kernels are slow; returns the exit code."""
    return run(Parser("bwprof diagnose", _DESCRIPTION, _TABLE, _EPILOG, json="-"), arguments, _run)


def _run(options: argparse.Namespace) -> int:
    if options.results is None and options.json not in (None, "-"):  # --json RUN: the name is what to read
        options.results, options.json = options.json, "-"
    if options.results is None:
        raise ValueError("RUN|FILE is missing: a run's folder, or a file of bwprof's or a profiler's, is needed")
    targets = choose_targets(options, options.results)
    latency = read_positive(options.latency, "--latency", "a positive number of microseconds")
    data = add_caller_figures(detect.load(options.results), options)
    rows = select_rows(data, options.only, options.precision)
    measured = values.drop_repeated_shapes(rows[~values.is_word(rows, "status", "failed", "skipped", "predicted")])
    next_steps = suggest_rocprof if str(data.attrs.get("tool", "")).startswith("rocprof") else suggest_commands
    cases = [(case, next_steps(case)) for case in diagnose_rows(measured, latency_us=latency)]
    unmeasured = len(rows) - len(measured)
    texts = {
        "json": lambda: json_text(_to_dict(cases, options.results, unmeasured)),
        "md": lambda: markdown(_full_document(cases, unmeasured)),
    }

    def show(screen: Console) -> None:
        print_document(screen, _document(cases, unmeasured, everything=options.all))

    return emit(targets, texts, None if targets else show)


def _evidence(verdict: HypothesisVerdict) -> str:
    judgement = verdict.judgement
    needs = judgement.needs
    countable = any(need.option or need.preset for need in needs)
    if needs and not countable and not any(map(str.isdigit, judgement.evidence)):
        return "no counter of this device is read for it"
    parts = [judgement.evidence]
    parts += [f"at most {gain_text(judgement.gain)} as fast"] if judgement.gain >= 1.005 else []
    parts += [f"helps: {', '.join(verdict.hypothesis.fixes)}"] if verdict.verdict == "supported" else []
    parts += [f"missing: {', '.join(map(str, needs))}"] if needs else []
    return "; ".join(filter(None, parts))


def _verdict_lines(case: Diagnosis, *, refuted: bool) -> list[_VerdictLine]:
    """List a case's verdicts with their evidence, that of refuted ones on request."""
    return [
        (
            verdict.verdict,
            verdict.hypothesis.name,
            _evidence(verdict) if refuted or verdict.verdict != "refuted" else "",
        )
        for verdict in case.verdicts
    ]


def _evidence_section(case: str, lines: Iterable[_VerdictLine]) -> Section | None:
    """Make a case's section; hypotheses with the same verdict and evidence share a line."""
    names: dict[tuple[str, str], list[str]] = {}
    for verdict, name, text in lines:
        names.setdefault((verdict, text), []).append(name)
    rows = [(f"{verdict:<11}", ", ".join(names), text) for (verdict, text), names in names.items()]
    return make_section("", case, make_table(["Verdict", "Hypothesis", "Evidence"], rows, wordy=True))


def _answers(cases: Sequence[_Case]) -> list[str]:
    """List the answers; neighbours that differ in precision or launch alone share a line."""
    answers: list[tuple[str, list[str], str]] = []
    for case, _ in cases:
        head, last, end = _name_parts(case)
        rest = end + case.sentence.removeprefix(case.case)
        if last and answers and (answers[-1][0], answers[-1][2]) == (head, rest):
            answers[-1][1].append(last)
        else:
            answers.append((head, [last], rest))
    return [f"{head}{', '.join(lasts)}{rest}" for head, lasts, rest in answers]


def _name_parts(case: Diagnosis) -> tuple[str, str, str]:
    """Split a case's name before and behind its precision or launch."""
    if launch := _LAUNCH.fullmatch(case.case):
        return launch[1], launch[2], launch[3]
    precision = case.row.get("precision")
    if isinstance(precision, str) and case.case.endswith(f" {precision}"):
        return case.case.removesuffix(precision), precision, ""
    return case.case, "", ""


def _total_time(row: Mapping[str, Any]) -> float:
    count = finite_or_none(row.get("count"))
    return (finite_or_none(row.get("time_ms")) or 0.0) * (1.0 if count is None else count)


def _document(cases: Sequence[_Case], unmeasured: int, *, everything: bool) -> Document:
    """Make what a screen shows; without `everything` no more than can be read."""
    answered = list(cases)
    lead: list[Block | None] = []
    if not everything and len(cases) > _ANSWERS:  # those that take longest, in their order
        by_time = sorted(range(len(cases)), key=lambda place: -_total_time(cases[place][0].row))
        answered = [cases[place] for place in sorted(by_time[:_ANSWERS])]
        lead.append(
            make_paragraph(f"these {_ANSWERS} of {len(cases)} cases take longest: --all, or --only, shows the others")
        )
    lead.insert(0, make_list(_answers(answered)))
    lead += [None if cases else make_paragraph("nothing was measured"), _unmeasured_note(unmeasured)]
    evidence = _evidence_on_screen(cases, answered if everything else answered[:_MOST_CASES], everything=everything)
    steps = _next_steps(cases, everything=everything)
    return Document("", "", present_sections([evidence, steps]), _present(lead))


def _evidence_on_screen(cases: Sequence[_Case], closer: Sequence[_Case], *, everything: bool) -> Section | None:
    """Make the section of evidence; what is unknown of every case for the same reason is printed once."""
    lines = [(case.case, _verdict_lines(case, refuted=everything or len(cases) == 1)) for case, _ in closer]
    shared = [line for line in lines[0][1] if line[0] == CANNOT_TELL] if len(lines) > 1 else []
    shared = [line for line in shared if all(line in of_case for _, of_case in lines)]
    evidence: list[Block | Section | None] = [
        _evidence_section(case, (line for line in of_case if line not in shared)) for case, of_case in lines
    ]
    evidence += [_evidence_section(f"each of these {len(lines)} cases", shared), _more(len(cases) - len(closer))]
    return make_section("", "Evidence", *evidence)


def _next_steps(cases: Sequence[_Case], *, everything: bool) -> Section | None:
    """Make the section of what to run next, first for the cases of which nothing is known."""
    unsettled = sorted((case for case in cases if case[1]), key=lambda case: bool(case[0].of("supported")))
    nearest = unsettled if everything else unsettled[:_STEPS]
    blocks: list[Block | Section | None] = []
    for case, commands in nearest:
        parts: list[Block] = []
        for command in commands:
            parts += [Paragraph(f"tells {', '.join(command.tells)}:")]
            parts += [Code(command.command, "python" if command.in_python else "sh")]
        blocks.append(Section("", case.case, tuple(parts)))
    if blocks:
        amd = any(command.command.startswith("rocprof") for _, commands in nearest for command in commands)
        then = f"then: bwprof diagnose {'counted --peak GB/S' if amd else 'RUN, or profile.ncu-rep'}"
        blocks += [_more(len(unsettled) - len(nearest)), Paragraph(then)]
    return make_section("", "Next steps", *blocks)


def _more(count: int) -> Paragraph | None:
    return make_paragraph(f"... and {plural(count, 'case')} more: --all, or --only" if count > 0 else "")


def _unmeasured_note(count: int) -> Paragraph | None:
    return make_paragraph(
        f"{plural(count, 'row')} without a measurement left out (predicted, skipped or failed)" if count else ""
    )


def _present(blocks: Iterable[Block | None]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block is not None)


def _full_document(cases: Sequence[_Case], unmeasured: int) -> Document:
    """Make what a file holds: every case with all of its evidence."""
    answers = make_list(case.sentence for case, _ in cases) or Paragraph("Nothing was measured.")
    evidence = [_evidence_section(case.case, _verdict_lines(case, refuted=True)) for case, _ in cases]
    sections = [make_section("", "Evidence", *evidence), _next_steps(cases, everything=True)]
    return Document(
        "Why is it slow?", "", present_sections(sections), _present([answers, _unmeasured_note(unmeasured)])
    )


def _to_dict(cases: Sequence[_Case], source: str, unmeasured: int) -> dict[str, Any]:
    return {
        "source": source,
        "without_measurement": unmeasured,
        "cases": [
            {
                "case": case.case,
                "answer": case.sentence,
                "doubts": list(case.doubts),
                "verdicts": [_verdict_dict(verdict) for verdict in case.verdicts],
                "next_steps": [{"command": step.command, "tells": list(step.tells)} for step in commands],
            }
            for case, commands in cases
        ],
    }


def _verdict_dict(verdict: HypothesisVerdict) -> dict[str, Any]:
    gain = verdict.judgement.gain
    return {
        "hypothesis": verdict.hypothesis.name,
        "verdict": verdict.verdict,
        "evidence": verdict.judgement.evidence,
        "threshold": verdict.hypothesis.threshold,
        "because": verdict.hypothesis.because,
        "fixes": list(verdict.hypothesis.fixes),
        "expected_gain": None if math.isnan(gain) else gain,
        "needs": [need._asdict() for need in verdict.judgement.needs],
    }
