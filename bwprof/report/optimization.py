"""The report of an optimization: from the first run through each change to the last, and its goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.analysis.bottleneck import tabulate_findings
from bwprof.report import optimization_steps, sections
from bwprof.report.optimization_steps import NOT_MEASURED, Goal, OptimizationStep, Story, find_variants, number_of
from bwprof.report.run import ReportRun
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.text import document
from bwprof.text.document import Document, Section, make_facts, make_list, make_paragraph, make_section, make_table
from bwprof.text.formatting import format_bytes, format_figure, format_seconds, format_short, is_missing, plural
from bwprof.text.parsing import measured_or_none

# A kernel's columns in rows of a profiler.
_KERNEL = {
    "tile": "tile",
    "block_threads": "threads a block",
    "shared_bytes": "bytes of shared memory a block",
    "registers": "registers a thread",
}
_LEARNED = {"faster": "it helped", "slower": "it made it slower", "same": "no difference beyond noise"}
_METHOD = (
    "Profile: every row is measured, verified and compared with the roofs of its device.",
    "Rank: the 3 rows that lose the most time against their roof, each with its cause; this one is among them, if it "
    "loses any.",
    "Change one thing at a time.",
    "Measure again after each change: times differ when their 95 % intervals are apart, and by more than the gate.",
)


def build_optimization(
    runs: Sequence[ReportRun],
    *,
    goals: str | PathLike[str] | Mapping[str, Any] | None = None,
    title: str | None = None,
    case: str | None = None,
    precision: str | None = None,
) -> tuple[Document, tuple[Goal, ...]]:
    """Return the report, and the goals with their values."""
    targets = optimization_steps.read_goals(goals)
    story = optimization_steps.read_story(runs, case=case, precision=precision)
    results = tuple(map(story.measure, targets))
    parts = (
        _objective(story, results),
        _initial_state(story),
        _methodology(story),
        _bottlenecks(story),
        _fixes(story),
        _final_results(story, results),
        _learnings(story),
        _references(story),
    )
    device = story.first.get("device") or "a device that is not named"
    subtitle = f"{story.name} on {device}, {len(runs)} runs"
    return Document(title or f"Optimization report: {story.name}", subtitle, document.present_sections(parts)), results


def _objective(story: Story, goals: Sequence[Goal]) -> Section | None:
    first = story.first
    share = number_of(first, "pct_limit")
    allowed = "It is at the roof that applies to it, or above."
    if math.isnan(share):
        allowed = "What its roof allows is not known: no roofs are beside the rows."
    elif share < 100:
        allowed = f"The roof that applies to it allows {format_seconds(float(first['time_ms']) * share / 1e5)}."
    aim = f"Make {story.name} faster on {first.get('device') or 'its device'}: {_ms(first)} at the start."
    none = make_paragraph("" if goals else "No goals were given: --goals names a file of them.")
    lines = make_list(f"{goal.name}: {goal.target}" for goal in goals)
    return make_section("objective", "Objective", make_paragraph(f"{aim} {allowed}"), lines, none)


def _initial_state(story: Story) -> Section | None:
    row, run = story.first, story.runs[0]
    known = [f"{text}: {row[name]}" for name, text in _KERNEL.items() if not is_missing(row.get(name))]
    memory = measured_or_none(run.part("facts").get("memory_bytes"))
    peak, rate = (number_of(row, name) for name in ("peak_gb_s", "peak_tflops"))
    hardware = (
        row.get("device"),
        format_bytes(memory) if memory else "",
        f"{format_short(peak, '.0f')} GB/s peak" if peak > 0 else "",
        f"{format_short(rate, '.4g')} TFLOP/s {row.get('precision')}" if rate > 0 else "",
        f"driver {row['driver']}" if row.get("driver") else "",
    )
    variant = [str(row.get("variant") or "not known"), _variant_text(row)]
    pairs = [
        _performance(story, row),
        ("Run", run.name),
        ("Hardware", ", ".join(str(part) for part in hardware if part)),
        ("Shape", _shape(row)),
        ("Variant", ": ".join(filter(None, variant))),
        ("Kernel", ", ".join(known) or f"tile, threads and shared memory: {NOT_MEASURED} (bwprof variants shows them)"),
        ("Memory bandwidth", _bandwidth(row)),
        ("Occupancy", _occupancy(row)),
        ("Limited by", row.get("limiter") or "not known"),
    ]
    return make_section("initial", "Initial State", make_facts(pairs))


def _methodology(story: Story) -> Section | None:
    lines = [f"Runs: {', '.join(map(_dated, story.runs))}."]
    timers = dict.fromkeys(str(row["timer"]) for row in story.rows if row.get("timer"))
    lines += [f"Timer: {', '.join(timers)}."] if timers else []
    for step in story.steps:
        names = list(step.changes)
        if len({*names} - {"driver"}) > 1:
            lines.append(f"From {step.base.name} to {step.new.name} several things changed: {', '.join(names)}.")
    return make_section("methodology", "Methodology", make_list(_METHOD, numbered=True), make_list(lines))


def _bottlenecks(story: Story) -> Section | None:
    found = document.make_frame_table(tabulate_findings(story.fixed()[0]), wordy=True)
    none = make_paragraph("None: no row of the first run falls short of a roof that is known.")
    return make_section("bottlenecks", "Bottlenecks Identified", found or none)


def _fixes(story: Story) -> Section | None:
    versions = []
    for run, row, step in zip(story.runs, story.rows, (None, *story.steps), strict=True):
        occupancy = number_of(row, "occupancy_pct")
        percent = NOT_MEASURED if math.isnan(occupancy) else f"{format_short(occupancy, '.0f')} %"
        name, change = "Baseline", "original"
        if step is not None:
            changes = ", ".join(f"{name}: {text}" for name, text in step.changes.items())
            name = row.get("variant") or run.name
            change = str(step.variant.get("changes") or changes or f"{run.name} (not recorded)")
        figures = (_times(story.vs_torch(row)), _speed(row), percent)
        versions.append((name, *figures, change, _times(story.speedup(row))))
    headings = ("Version", "Speedup vs PyTorch", "Memory BW", "Occupancy", "Key Change", "Speedup vs baseline")
    fixes = [(step.name, *step.figure[:3], _times(step.speedup)) for step in story.steps]
    return make_section(
        "fixes",
        "Fixes Applied",
        make_table(("Fix", "Metric Improved", "Before", "After", "Speedup"), fixes),
        make_table(headings, versions, caption="The versions"),
        *map(_fix, story.steps),
    )


def _fix(step: OptimizationStep) -> Section | None:
    figure, finding, verdict = step.figure, step.finding, step.verdict
    gap = f", gap {format_short(figure.gap_pct, '.0f')} %" if figure.gap_pct > 0 else ""
    cause = "not known: its roof is reached, or not known"
    if finding is not None:
        cause = f"{finding.issue}. Evidence: {finding.evidence}"
    roof = "nothing, as no roof is known or it is reached"
    if step.by_roof > 1:
        roof = f"up to {_times(step.by_roof)} at the roof"
    fewer = "" if math.isnan(step.by_bytes) or step.by_bytes == 1 else f"; {_times(step.by_bytes)} by fewer bytes"
    change = "; ".join(f"{name}: {text}" for name, text in step.changes.items())
    change = change or "not recorded: variant, commit and version are the same in both runs"
    if step.before.get("variant") != step.after.get("variant") and (text := _variant_text(step.after)):
        change += f". {text}"
    low, high = verdict.interval
    interval = f" (95 %: {_times(1 / high)} to {_times(1 / low)})" if low > 0 else ""
    reason = f": {verdict.reason}" if verdict.reason else ""
    times = f"{_ms(step.before)} to {_ms(step.after)}, speed-up {_times(step.speedup)}{interval}"
    flags = str(step.after.get("flags") or "").replace(";", ", ")
    doubts = f"flags {flags}: to be read with care" if flags else "no flags"
    result = f"{times}, {verdict.verdict}{reason}; {_correctness(step.after)}"
    pairs = [
        ("Identify", f"{figure.name} = {figure.before}, target {figure.target}{gap}"),
        ("Hypothesize", f"{cause}. Predicted: {roof}{fewer}"),
        ("Implement", change),
        ("Validate", f"{figure.name} {figure.before} to {figure.after}; {result}"),
        ("Document", f"{_dated(step.base)} against {_dated(step.new)}; {doubts}"),
    ]
    return make_section(f"fix{step.number}", f"Fix {step.number}: {step.name}", make_facts(pairs))


def _final_results(story: Story, goals: Sequence[Goal]) -> Section | None:
    last = story.last
    found, fixed = story.fixed()
    count = f"{len(fixed) or 'none'} {'costs' if len(fixed) < 2 else 'cost'} less than half of that time now."
    pairs = [
        _performance(story, last),
        ("Memory bandwidth", _bandwidth(last)),
        ("Occupancy", _occupancy(last)),
        ("Speed-up over the first run", _times(story.speedup(last))),
        ("Correctness", _correctness(last)),
    ]
    results = [(goal.name, goal.target, goal.figure, goal.result) for goal in goals]
    return make_section(
        "final",
        "Final Results",
        make_facts(pairs),
        make_paragraph(f"Of the {plural(len(found), 'bottleneck')} named above, {count}" if found else ""),
        make_table(("Goal", "Wanted", "Found", "Result"), results, caption="Goals"),
        sections.compare_runs(story.runs[0], story.runs[-1], 1) if story.several else None,
    )


def _learnings(story: Story) -> Section | None:
    lines = []
    for step in story.steps:
        shape = f" at {step.variant['at']}" if step.variant.get("predicted") and step.variant.get("at") else ""
        predicted = "-" if math.isnan(step.predicted) else f"{_times(step.predicted)}{shape}"
        roof = NOT_MEASURED if math.isnan(step.by_roof) else f"up to {_times(step.by_roof)}"
        by_bytes = "the same bytes" if step.by_bytes == 1 else _times(step.by_bytes)
        verdict = step.verdict.verdict
        learned = _LEARNED.get(verdict, f"nothing: {verdict.replace('_', ' ')}")
        if verdict == "faster" and step.by_roof > 1:
            share = 100 * (1 - 1 / step.speedup) / (1 - 1 / step.by_roof)
            learned += f": {format_short(min(share, 999), '.0f')} % of the time that was lost is won back"
        lines.append((step.name, predicted, roof, by_bytes, _times(step.speedup), learned))
    headings = ("Fix", "Predicted before", "Predicted by the roof", "Predicted by bytes", "Measured", "Learned")
    return make_section("learnings", "Key Learnings", make_table(headings, lines, wordy=True))


def _references(story: Story) -> Section | None:
    lines, files = [], []
    for run in story.runs:
        commit = run.metadata.get("git_commit") or run.metadata.get("commit")
        lines.append((run.name, run.joined("run_id"), run.minute, run.joined("bwprof_version"), commit, run.source))
        files += sorted(Path(run.source).glob("artifacts/*")) if run.source else []
    headings = ("Run", "Run id", "When", "bwprof", "Commit", "File")
    none = make_paragraph("No profilers' files are in the runs' folders (artifacts/).")
    profiles = make_list(f"Profiler file: {path}" for path in files) or none
    return make_section("references", "References", make_table(headings, lines, wordy=True), profiles)


def _performance(story: Story, row: RowDict) -> tuple[str, str]:
    length = next((row[name] for name in ("seq_len", "kv_len") if (row.get(name) or 0) > 1), None)
    shape = _shape(row) if length is None else f"S={length}"
    return "Performance", f"{_ms(row)} @ {shape} ({_times(story.vs_torch(row))} vs PyTorch)"


def _correctness(row: RowDict) -> str:
    if row.get("verified") is None:
        return "whether the result is right was not checked"
    if not row["verified"]:
        return "the result is wrong, or was not checked to the end"
    counts = [row.get(name) for name in ("rows_checked", "rows_total")]
    rows = f", {counts[0]} of {counts[1]} rows" if all(counts) else ""
    error, limit = (number_of(row, name) for name in ("max_error", "tolerance"))
    beside = "" if math.isnan(error + limit) else f", error {error:.2g} of the {limit:.2g} allowed"
    return f"verified against float64{rows}{beside}"


def _ms(row: RowDict) -> str:
    return f"{float(row['time_ms']):.4g} ms"


def _shape(row: RowDict) -> str:
    sizes = (f"{name}={row[name]}" for name in schema.param_names() if row.get(name) is not None)
    return " ".join(sizes) or str(row.get("case"))


def _variant_text(row: RowDict) -> str:
    """Return the registry's text on a variant; "" for an unknown one."""
    return next((str(known["text"]) for known in find_variants(row) if known["name"] == row.get("variant")), "")


def _bandwidth(row: RowDict) -> str:
    speed, peak = number_of(row, "bandwidth_gb_s"), number_of(row, "peak_gb_s")
    if math.isnan(speed):
        return NOT_MEASURED
    share = f"{format_short(100 * speed / peak, '.1f')}% of peak" if peak > 0 else "peak unknown"
    return f"{_speed(row)} ({'hot: out of a cache' if row.get('cache') == 'hot' else share})"


def _speed(row: RowDict) -> str:
    speed = number_of(row, "bandwidth_gb_s")
    return NOT_MEASURED if math.isnan(speed) else f"{format_figure(speed, whole_from=100)} GB/s"


def _occupancy(row: RowDict) -> str:
    achieved, theory = number_of(row, "occupancy_pct"), number_of(row, "theoretical_occupancy_pct")
    if math.isnan(achieved):
        return f"{NOT_MEASURED} (--metrics occupancy)"
    of = f"{format_short(100 * achieved / theory, '.0f')}% of theoretical"
    return f"{format_short(achieved, '.0f')}% ({of if theory > 0 else f'theoretical {NOT_MEASURED}'})"


def _times(value: float) -> str:
    return NOT_MEASURED if math.isnan(value) else f"{format_short(value, '.3f' if value < 0.1 else '.2f')}x"


def _dated(run: ReportRun) -> str:
    return f"{run.name} ({run.minute})" if run.minute else run.name
