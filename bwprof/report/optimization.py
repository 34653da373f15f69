"""The report of an optimization: from the first run through each change to the last, and its goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.analysis.bottleneck import tabulate_findings
from bwprof.report import findings
from bwprof.report.optimization_steps import Goal, OptimizationStep, Story, find_variants, read_goals, read_story
from bwprof.report.run import ReportRun
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.text.document import (
    Document,
    Section,
    make_facts,
    make_frame_table,
    make_list,
    make_paragraph,
    make_section,
    make_table,
    present_sections,
)
from bwprof.text.formatting import format_bytes, format_figure, format_seconds, format_short, is_missing, plural
from bwprof.text.parsing import measured_or_nan, measured_or_none

if TYPE_CHECKING:
    from os import PathLike

_NOT = "not measured"
# A kernel's columns in rows of a profiler.
_KERNEL = {
    "tile": "tile",
    "block_threads": "threads a block",
    "shared_bytes": "bytes of shared memory a block",
    "registers": "registers a thread",
}
_LEARNT = {"faster": "it helped", "slower": "it made it slower", "same": "no difference beyond noise"}


def build_optimization(
    runs: Sequence[ReportRun],
    *,
    goals: str | PathLike[str] | Mapping[str, Any] | None = None,
    title: str | None = None,
    case: str | None = None,
    precision: str | None = None,
) -> tuple[Document, tuple[Goal, ...]]:
    """Return the report, and the goals with their values."""
    targets = read_goals(goals)
    story = read_story(runs, case=case, precision=precision)
    results = tuple(map(story.measure, targets))
    sections = (
        _objective(story, results),
        _initial_state(story),
        _methodology(story),
        _bottlenecks(story),
        _fixes(story),
        _final_results(story, results),
        _learnings(story),
        _references(story),
    )
    subtitle = f"{story.track.name} on {story.first.get('device') or 'a device that is not named'}, {len(runs)} runs"
    return Document(title or f"Optimization report: {story.track.name}", subtitle, present_sections(sections)), results


def _speedup(story: Story, row: RowDict) -> float:
    return float(story.first["time_ms"]) / float(row["time_ms"])


def _objective(story: Story, goals: Sequence[Goal]) -> Section | None:
    first = story.first
    share = measured_or_nan(first.get("pct_limit"))
    if math.isnan(share):
        allowed = "What its roof allows is not known: no roofs are beside the rows."
    elif share >= 100:
        allowed = "It is at the roof that applies to it, or above."
    else:
        allowed = f"The roof that applies to it allows {format_seconds(float(first['time_ms']) * share / 1e5)}."
    aim = f"Make {story.track.name} faster on {first.get('device') or 'its device'}: {_ms(first)} at the start."
    none = make_paragraph("" if goals else "No goals were given: --goals names a file of them.")
    lines = make_list(f"{goal.name}: {goal.target}" for goal in goals)
    return make_section("objective", "Objective", make_paragraph(f"{aim} {allowed}"), lines, none)


def _initial_state(story: Story) -> Section | None:
    row, run = story.first, story.runs[0]
    known = [f"{text}: {row[name]}" for name, text in _KERNEL.items() if not is_missing(row.get(name))]
    text, variant = _variant_text(row), str(row.get("variant") or "not known")
    pairs = [
        ("Run", run.name),
        ("Hardware", _hardware(run, row)),
        ("Shape", _shape(row)),
        ("Variant", f"{variant}: {text}" if text else variant),
        ("Kernel", ", ".join(known) or f"tile, threads and shared memory: {_NOT} (bwprof variants shows them)"),
        ("Memory bandwidth", _bandwidth(row)),
        ("Occupancy", _occupancy(row)),
        ("Limited by", row.get("limiter") or "not known"),
    ]
    return make_section("initial", "Initial State", make_paragraph(_performance(story, row)), make_facts(pairs))


def _methodology(story: Story) -> Section | None:
    method = [
        "Profile: every row is measured, verified and compared with the roofs of its device.",
        "Rank: the 3 rows that lose the most time against their roof, each with its cause; this one is among them, if "
        "it loses any.",
        "Change one thing at a time.",
        "Measure again after each change: times differ when their 95 % intervals are apart, and by more than the gate.",
    ]
    lines = [f"Runs: {', '.join(map(_dated, story.runs))}."]
    timers = dict.fromkeys(str(row["timer"]) for row in story.track.rows if row is not None and row.get("timer"))
    lines += [f"Timer: {', '.join(timers)}."] if timers else []
    for step in story.steps:
        names = [name for name, _, _ in step.changes]
        if len({*names} - {"driver"}) > 1:
            lines.append(f"From {step.base.name} to {step.new.name} several things changed: {', '.join(names)}.")
    return make_section("methodology", "Methodology", make_list(method, numbered=True), make_list(lines))


def _bottlenecks(story: Story) -> Section | None:
    found = make_frame_table(tabulate_findings(story.fixed()[0]), wordy=True)
    none = make_paragraph("None: no row of the first run falls short of a roof that is known.")
    return make_section("bottlenecks", "Bottlenecks Identified", found or none)


def _fixes(story: Story) -> Section | None:
    fixes, versions = [], []
    for run, row, step in zip(story.runs, story.track.rows, (None, *story.steps), strict=True):
        assert row is not None
        occupancy = measured_or_nan(row.get("occupancy_pct"))
        percent = _NOT if math.isnan(occupancy) else f"{format_short(occupancy, '.0f')} %"
        figures = (_times(story.vs_torch(row)), _speed(row), percent)
        name = "Baseline" if step is None else row.get("variant") or run.name
        change = "original" if step is None else _key_change(step)
        versions.append((name, *figures, change, _times(_speedup(story, row))))
        if step is not None:
            figure = step.figure
            before, after = figure.text(figure.before), figure.text(figure.after)
            fixes.append((step.name, figure.name, before, after, _times(step.speedup)))
    headings = ("Version", "Speedup vs PyTorch", "Memory BW", "Occupancy", "Key Change", "Speedup vs baseline")
    return make_section(
        "fixes",
        "Fixes Applied",
        make_table(("Fix", "Metric Improved", "Before", "After", "Speedup"), fixes),
        make_table(headings, versions, caption="The versions"),
        *map(_fix, story.steps),
    )


def _changes(step: OptimizationStep, separator: str) -> str:
    return separator.join(f"{name}: {before} to {after}" for name, before, after in step.changes)


def _key_change(step: OptimizationStep) -> str:
    return str(step.variant.get("changes") or _changes(step, ", ") or f"{step.new.name} (not recorded)")


def _fix(step: OptimizationStep) -> Section | None:
    figure, finding = step.figure, step.finding
    before, after = figure.text(figure.before), figure.text(figure.after)
    gap = f", gap {format_short(figure.gap_pct, '.0f')} %" if figure.gap_pct > 0 else ""
    cause = "not known: its roof is reached, or not known"
    if finding is not None:
        cause = f"{finding.issue}. Evidence: {finding.evidence}"
    change = _changes(step, "; ") or "not recorded: variant, commit and version are the same in both runs"
    if step.before.get("variant") != step.after.get("variant") and (text := _variant_text(step.after)):
        change += f". {text}"
    flags = str(step.after.get("flags") or "").replace(";", ", ")
    doubts = f"flags {flags}: to be read with care" if flags else "no flags"
    pairs = [
        ("Identify", f"{figure.name} = {before}, target {figure.target}{gap}"),
        ("Hypothesize", f"{cause}. {_prediction(step)}"),
        ("Implement", change),
        ("Validate", f"{figure.name} {before} to {after}; {_validation(step)}; {_correctness(step.after)}"),
        ("Document", f"{_dated(step.base)} against {_dated(step.new)}; {doubts}"),
    ]
    return make_section(f"fix{step.number}", f"Fix {step.number}: {step.name}", make_facts(pairs))


def _prediction(step: OptimizationStep) -> str:
    roof = f"up to {_times(step.by_roof)} at the roof"
    if not step.by_roof > 1:
        roof = "nothing, as no roof is known or it is reached"
    fewer = "" if math.isnan(step.by_bytes) or step.by_bytes == 1 else f"; {_times(step.by_bytes)} by fewer bytes"
    return f"Predicted: {roof}{fewer}"


def _validation(step: OptimizationStep) -> str:
    verdict = step.verdict
    low, high = verdict.interval
    interval = f" (95 %: {_times(1 / high)} to {_times(1 / low)})" if low > 0 else ""
    reason = f": {verdict.reason}" if verdict.reason else ""
    times = f"{_ms(step.before)} to {_ms(step.after)}"
    return f"{times}, speed-up {_times(step.speedup)}{interval}, {verdict.verdict}{reason}"


def _correctness(row: RowDict) -> str:
    if row.get("verified") is None:
        return "whether the result is right was not checked"
    if not row["verified"]:
        return "the result is wrong, or was not checked to the end"
    counts = [row.get(name) for name in ("rows_checked", "rows_total")]
    rows = f", {counts[0]} of {counts[1]} rows" if all(counts) else ""
    error, limit = (measured_or_nan(row.get(name)) for name in ("max_error", "tolerance"))
    beside = "" if math.isnan(error + limit) else f", error {error:.2g} of the {limit:.2g} allowed"
    return f"verified against float64{rows}{beside}"


def _final_results(story: Story, goals: Sequence[Goal]) -> Section | None:
    last = story.last
    found, fixed = story.fixed()
    count = f"{len(fixed) or 'none'} {'costs' if len(fixed) < 2 else 'cost'} less than half of that time now."
    lines = [
        _performance(story, last),
        f"Memory bandwidth: {_bandwidth(last)}",
        f"Occupancy: {_occupancy(last)}",
        f"Speed-up over the first run: {_times(_speedup(story, last))}",
        f"Correctness: {_correctness(last)}",
    ]
    results = [(goal.name, goal.target, goal.figure, goal.result) for goal in goals]
    several = sum(track.complete for track in story.tracks) > 1
    return make_section(
        "final",
        "Final Results",
        make_list(lines),
        make_paragraph(f"Of the {plural(len(found), 'bottleneck')} named above, {count}" if found else ""),
        make_table(("Goal", "Wanted", "Found", "Result"), results, caption="Goals"),
        findings.compare_runs(story.runs[0], story.runs[-1], 1) if several else None,
    )


def _learnings(story: Story) -> Section | None:
    lines = []
    for step in story.steps:
        shape = f" at {step.variant['at']}" if step.variant.get("predicted") and step.variant.get("at") else ""
        predicted = "-" if math.isnan(step.predicted) else f"{_times(step.predicted)}{shape}"
        roof = _NOT if math.isnan(step.by_roof) else f"up to {_times(step.by_roof)}"
        by_bytes = "the same bytes" if step.by_bytes == 1 else _times(step.by_bytes)
        verdict = step.verdict.verdict
        learnt = _LEARNT.get(verdict, f"nothing: {verdict.replace('_', ' ')}")
        if verdict == "faster" and step.by_roof > 1:
            share = 100 * (1 - 1 / step.speedup) / (1 - 1 / step.by_roof)
            learnt += f": {format_short(min(share, 999), '.0f')} % of the time that was lost is won back"
        lines.append((step.name, predicted, roof, by_bytes, _times(step.speedup), learnt))
    headings = ("Fix", "Predicted before", "Predicted by the roof", "Predicted by bytes", "Measured", "Learnt")
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


def _performance(story: Story, row: RowDict) -> str:
    length = next((row[name] for name in ("seq_len", "kv_len") if (row.get(name) or 0) > 1), None)
    shape = _shape(row) if length is None else f"S={length}"
    return f"Performance: {_ms(row)} @ {shape} ({_times(story.vs_torch(row))} vs PyTorch)"


def _ms(row: RowDict) -> str:
    return f"{float(row['time_ms']):.4g} ms"


def _shape(row: RowDict) -> str:
    sizes = (f"{name}={row[name]}" for name in schema.param_names() if row.get(name) is not None)
    return " ".join(sizes) or str(row.get("case"))


def _hardware(run: ReportRun, row: RowDict) -> str:
    memory = measured_or_none(run.part("facts").get("memory_bytes"))
    peak, rate = (measured_or_nan(row.get(name)) for name in ("peak_gb_s", "peak_tflops"))
    parts = (
        row.get("device"),
        format_bytes(memory) if memory else "",
        f"{format_short(peak, '.0f')} GB/s peak" if peak > 0 else "",
        f"{format_short(rate, '.4g')} TFLOP/s {row.get('precision')}" if rate > 0 else "",
        f"driver {row['driver']}" if row.get("driver") else "",
    )
    return ", ".join(str(part) for part in parts if part)


def _variant_text(row: RowDict) -> str:
    """Return the registry's text on a variant; "" for an unknown one."""
    return next((str(known["text"]) for known in find_variants(row) if known["name"] == row.get("variant")), "")


def _bandwidth(row: RowDict) -> str:
    speed, peak = (measured_or_nan(row.get(name)) for name in ("bandwidth_gb_s", "peak_gb_s"))
    if math.isnan(speed):
        return _NOT
    if row.get("cache") == "hot":
        return f"{_speed(row)} (hot: out of a cache)"
    share = f"{format_short(100 * speed / peak, '.1f')}% of peak" if peak > 0 else "peak unknown"
    return f"{_speed(row)} ({share})"


def _speed(row: RowDict) -> str:
    speed = measured_or_nan(row.get("bandwidth_gb_s"))
    return _NOT if math.isnan(speed) else f"{format_figure(speed, whole_from=100)} GB/s"


def _occupancy(row: RowDict) -> str:
    achieved, theory = (measured_or_nan(row.get(name)) for name in ("occupancy_pct", "theoretical_occupancy_pct"))
    if math.isnan(achieved):
        return f"{_NOT} (--metrics occupancy)"
    share = f"{format_short(100 * achieved / theory, '.0f')}% of theoretical" if theory > 0 else f"theoretical {_NOT}"
    return f"{format_short(achieved, '.0f')}% ({share})"


def _times(value: float) -> str:
    return _NOT if math.isnan(value) else f"{format_short(value, '.3f' if value < 0.1 else '.2f')}x"


def _dated(run: ReportRun) -> str:
    return f"{run.name} ({run.minute})" if run.minute else run.name
