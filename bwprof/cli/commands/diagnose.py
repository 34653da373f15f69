"""The command ``bwprof diagnose``: why kernels are slow."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any

from bwprof.analysis import values
from bwprof.analysis.diagnosis.diagnose import Diagnosis, HypothesisVerdict, diagnose_rows, gain_text
from bwprof.analysis.diagnosis.hypothesis import CANNOT_TELL
from bwprof.cli.options import CALLER_FIGURES, ONLY, add_caller_figures, command, select_rows
from bwprof.cli.output import choose_targets, emit, json_text
from bwprof.cli.render import print_document
from bwprof.importers import detect
from bwprof.importers.next_steps import NextCommand, suggest_commands, suggest_rocprof
from bwprof.text import document as doc
from bwprof.text.formatting import plural
from bwprof.text.parsing import finite_or_none

# On a screen, without --all: cases with their answer, with their evidence, with their next steps.
_ANSWERS, _MOST_CASES, _STEPS = 100, 20, 3
_LAUNCH = re.compile(r"(.* \(launch )([0-9]+)(\))")

_Case = tuple[Diagnosis, list[NextCommand]]


@command(f"""\
results=RUN|FILE?  a run of bwprof (best with --counters --metrics all), or a file of ncu, rocprof, torch.profiler or
  Nsight Systems
{ONLY}
--precision LIST  only these precisions, such as fp32,fp16
--latency US  memory latency under load, in microseconds, for Little's law (default: the row's, else 0.7)
{CALLER_FIGURES}
--all  also print the evidence of every case, and refuted hypotheses

output:
--json [FILE|-] = -  write every hypothesis of every case as JSON; - is standard output
--md FILE|-  write Markdown; - is standard output
--force  replace an existing file
""")
def main_diagnose(options: argparse.Namespace) -> int:
    """Print why kernels are slow, the evidence, and the commands that measure missing figures.

    The gain of a cause is the most that a fix can bring.

    Examples:
      bwprof diagnose RUN
      bwprof diagnose RUN --only '*attention*' --precision fp16 --all
      bwprof diagnose profile.ncu-rep --md diagnosis.md
    """
    if options.results is None and options.json not in (None, "-"):  # --json RUN: the name is what to read
        options.results, options.json = options.json, "-"
    if options.results is None:
        raise ValueError("RUN|FILE is missing: a run's folder, or a file of bwprof's or a profiler's, is needed")
    targets = choose_targets(options, options.results)
    data = add_caller_figures(detect.load(options.results), options)
    rows = select_rows(data, options.only, options.precision)
    measured = values.drop_repeated_shapes(rows[~values.is_word(rows, "status", "failed", "skipped", "predicted")])
    next_steps = suggest_rocprof if str(data.attrs.get("tool", "")).startswith("rocprof") else suggest_commands
    cases = [(case, next_steps(case)) for case in diagnose_rows(measured, latency_us=options.latency)]
    unmeasured = len(rows) - len(measured)
    texts = {
        "json": lambda: json_text(
            {"source": options.results, "without_measurement": unmeasured, "cases": [_to_dict(*case) for case in cases]}
        ),
        "md": lambda: doc.to_markdown(_document(cases, unmeasured, everything=True)),
    }
    document = _document(cases, unmeasured, everything=options.all)
    return emit(targets, texts, None if targets else lambda screen: print_document(screen, document))


def _document(cases: Sequence[_Case], unmeasured: int, *, everything: bool) -> doc.Document:
    """Make the answers, the evidence and the next steps; without `everything` no more than can be read."""
    answered = list(cases) if everything else _find_longest(cases)
    notes = {
        f"these {_ANSWERS} of {len(cases)} cases take longest: --all, or --only, shows the others": answered != cases,
        "nothing was measured": not cases,
        f"{plural(unmeasured, 'row')} without a measurement left out (predicted, skipped or failed)": unmeasured,
    }
    lead: list[doc.Block | None] = [doc.make_list(_answers(answered))]
    lead += [doc.Paragraph(text) for text, applies in notes.items() if applies]
    closer = answered if everything else answered[:_MOST_CASES]
    sections = [
        _evidence(closer, refuted=everything or len(cases) == 1, more=len(cases) - len(closer)),
        _next_steps(cases, most=len(cases) if everything else _STEPS),
    ]
    present = tuple(block for block in lead if block is not None)
    return doc.Document("Why is it slow?", "", doc.present_sections(sections), present)


def _find_longest(cases: Sequence[_Case]) -> list[_Case]:
    """Return the cases that take longest, in their order."""
    figures = [[finite_or_none(case.row.get(name)) for name in ("time_ms", "count")] for case, _ in cases]
    times = [(time or 0.0) * (1.0 if count is None else count) for time, count in figures]
    longest = nlargest(_ANSWERS, range(len(cases)), key=times.__getitem__)
    return [cases[place] for place in sorted(longest)]


def _answers(cases: Sequence[_Case]) -> list[str]:
    """List the answers; neighbors that differ in precision or launch alone share a line."""
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


def _evidence(cases: Sequence[_Case], *, refuted: bool, more: int) -> doc.Section | None:
    """Make the section of evidence; what is unknown of every case for the same reason is printed once."""
    lines = []
    for case, _ in cases:
        texts = [_evidence_text(verdict, refuted=refuted) for verdict in case.verdicts]
        names = [(verdict.verdict, verdict.hypothesis.name) for verdict in case.verdicts]
        lines.append((case.case, [(*name, text) for name, text in zip(names, texts, strict=True)]))
    shared: list[tuple[str, str, str]] = []
    if len(lines) > 1:
        of_every = set.intersection(*(set(of_case) for _, of_case in lines))
        shared = [line for line in lines[0][1] if line in of_every and line[0] == CANNOT_TELL]
    sections = [_verdicts(case, [line for line in of_case if line not in shared]) for case, of_case in lines]
    sections += [_verdicts(f"each of these {len(lines)} cases", shared)]
    return doc.make_section("", "Evidence", *sections, _more_cases(more))


def _verdicts(case: str, lines: Iterable[tuple[str, str, str]]) -> doc.Section | None:
    """Make a case's section; hypotheses with the same verdict and evidence share a line."""
    names: dict[tuple[str, str], list[str]] = {}
    for verdict, name, text in lines:
        names.setdefault((verdict, text), []).append(name)
    rows = [(f"{verdict:<11}", ", ".join(alike), text) for (verdict, text), alike in names.items()]
    return doc.make_section("", case, doc.make_table(["Verdict", "Hypothesis", "Evidence"], rows, wordy=True))


def _evidence_text(verdict: HypothesisVerdict, *, refuted: bool) -> str:
    judgment, needs = verdict.judgment, verdict.judgment.needs
    if verdict.verdict == "refuted" and not refuted:
        return ""
    countable = any(need.option or need.preset for need in needs)
    if needs and not countable and not any(map(str.isdigit, judgment.evidence)):
        return "no counter of this device is read for it"
    parts = [judgment.evidence]
    parts += [f"at most {gain_text(judgment.gain)} as fast"] if judgment.gain >= 1.005 else []
    parts += [f"helps: {', '.join(verdict.hypothesis.fixes)}"] if verdict.verdict == "supported" else []
    parts += [f"missing: {', '.join(map(str, needs))}"] if needs else []
    return "; ".join(filter(None, parts))


def _next_steps(cases: Sequence[_Case], *, most: int) -> doc.Section | None:
    """Make the section of what to run next, first for the cases of which nothing is known."""
    unsettled = sorted((case for case in cases if case[1]), key=lambda case: bool(case[0].of("supported")))
    blocks: list[doc.Block | doc.Section | None] = []
    for case, commands in unsettled[:most]:
        parts: list[doc.Block] = []
        for step in commands:
            parts += [doc.Paragraph(f"tells {', '.join(step.tells)}:")]
            parts += [doc.Code(step.command, "python" if step.in_python else "sh")]
        blocks.append(doc.Section("", case.case, tuple(parts)))
    if blocks:
        amd = any(step.command.startswith("rocprof") for _, commands in unsettled[:most] for step in commands)
        then = f"then: bwprof diagnose {'counted --peak GB/S' if amd else 'RUN, or profile.ncu-rep'}"
        blocks += [_more_cases(len(unsettled) - most), doc.Paragraph(then)]
    return doc.make_section("", "Next steps", *blocks)


def _more_cases(count: int) -> doc.Paragraph | None:
    return doc.make_paragraph(f"... and {plural(count, 'case')} more: --all, or --only" if count > 0 else "")


def _to_dict(case: Diagnosis, commands: Sequence[NextCommand]) -> dict[str, Any]:
    verdicts = []
    for verdict in case.verdicts:
        hypothesis, judgment = verdict.hypothesis, verdict.judgment
        facts = {
            "hypothesis": hypothesis.name,
            "verdict": verdict.verdict,
            "evidence": judgment.evidence,
            "threshold": hypothesis.threshold,
            "because": hypothesis.because,
            "fixes": list(hypothesis.fixes),
            "expected_gain": None if math.isnan(judgment.gain) else judgment.gain,
            "needs": [need._asdict() for need in judgment.needs],
        }
        verdicts.append(facts)
    return {
        "case": case.case,
        "answer": case.sentence,
        "doubts": list(case.doubts),
        "verdicts": verdicts,
        "next_steps": [{"command": step.command, "tells": list(step.tells)} for step in commands],
    }
