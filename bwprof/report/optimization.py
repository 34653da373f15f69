"""The report of an optimisation: from the first run through each change to the last, and the goals that it had."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bwprof.analysis.bottleneck import tabulate_findings
from bwprof.report import findings
from bwprof.report.optimization_steps import (
    FIXED,
    SPEEDUP,
    VERIFIED,
    VS_TORCH,
    Goal,
    OptimizationStep,
    Story,
    find_variants,
    read_goals,
    read_story,
)
from bwprof.report.run import ReportRun
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.text.document import (
    Block,
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
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

_NOT = "not measured"

_TOP = 3

_NO_PEER = "no run has a row of PyTorch's of the same bytes (a variant, case or operation called torch...)"

# What measures the columns of a group.
_NEEDS = {
    "counters": "--counters measures it",
    "metrics": "--metrics all measures it",
    "roofs": "measure without --no-roofs",
}

# Columns that rows may have beside the schema's (of Nsight Compute, say): what a kernel takes of a multiprocessor.
_KERNEL = {
    "tile": "tile",
    "block_threads": "threads a block",
    "shared_bytes": "bytes of shared memory a block",
    "registers": "registers a thread",
}

_THEORY = "theoretical_occupancy_pct"


def build_optimization(
    runs: Sequence[ReportRun],
    *,
    goals: str | PathLike[str] | Mapping[str, Any] | None = None,
    title: str | None = None,
    case: str | None = None,
    precision: str | None = None,
) -> tuple[Document, tuple[Goal, ...]]:
    """The report, and the goals with what was found of each."""
    wanted = read_goals(goals)
    story = read_story(runs, case=case, precision=precision)
    judged = tuple(replace(goal, found=value, why=why) for goal in wanted for value, why in [_found(goal.name, story)])
    sections = (
        _objective(story, judged),
        _initial(story),
        _methodology(story),
        _bottlenecks(story),
        _fixes(story),
        _final(story, judged),
        _learnings(story),
        _references(story),
    )
    subtitle = f"{story.track.name} on {story.first.get('device') or 'a device that is not named'}, {len(runs)} runs"
    return Document(title or f"Optimization report: {story.track.name}", subtitle, present_sections(sections)), judged


# ---- goals ----


def _found(name: str, story: Story) -> tuple[float, str]:
    """What was found of a goal's figure; NaN, and what would measure it, where nothing was."""
    if name == SPEEDUP:
        return float(story.first["time_ms"]) / float(story.last["time_ms"]), ""
    if name == VS_TORCH:
        return story.vs_torch(story.last), _NO_PEER
    if name == FIXED:
        found, gone = story.fixed(_TOP)
        return (float(len(gone)) if found else math.nan), "no row of the first run has a roof that it falls short of"
    if name == VERIFIED:
        checked = [row["verified"] for row in story.runs[-1].rows if row["time_ms"] is not None]
        known = [one for one in checked if one is not None]
        return (float(all(checked)) if known else math.nan), "no row of the last run says whether it was verified"
    value = measured_or_none(story.last.get(name))
    return (math.nan if value is None else value), _NEEDS.get(schema.find_column(name).group, "")


def _goals(goals: Sequence[Goal], *, judged: bool) -> Block | None:
    if judged:
        lines = [(goal.name, goal.said, goal.figure, goal.result) for goal in goals]
        return make_table(("Goal", "Wanted", "Found", "Result"), lines, caption="Goals")
    return make_list(f"{goal.name}: {goal.said}" for goal in goals)


# ---- sections ----


def _objective(story: Story, goals: Sequence[Goal]) -> Section | None:
    first = story.first
    share = find_variants(first, "pct_limit")
    if math.isnan(share):
        allowed = " What its roof allows is not known: no roofs are beside the rows."
    elif share >= 100:
        allowed = " It is at the roof that applies to it, or above."
    else:
        allowed = f" The roof that applies to it allows {format_seconds(float(first['time_ms']) * share / 1e5)}."
    aim = (
        f"Make {story.track.name} faster on {first.get('device') or 'its device'}: {_ms(first)} at the start.{allowed}"
    )
    none = make_paragraph("" if goals else "No goals were given: --goals names a file of them.")
    return make_section("objective", "Objective", make_paragraph(aim), _goals(goals, judged=False), none)


def _initial(story: Story) -> Section | None:
    row, run = story.first, story.runs[0]
    return make_section(
        "initial",
        "Initial State",
        make_paragraph(_performance(story, row)),
        make_facts(
            [
                ("Run", run.name),
                ("Hardware", _hardware(run, row)),
                ("Shape", _shape(row)),
                ("Variant", _variant(row)),
                ("Kernel", _kernel(row)),
                ("Memory bandwidth", _bandwidth(row)),
                ("Occupancy", _occupancy(row)),
                ("Limited by", row.get("limiter") or "not known"),
            ]
        ),
    )


def _methodology(story: Story) -> Section | None:
    method = [
        "Profile: every row is measured, verified and held against the roofs of its device.",
        f"Rank: the {_TOP} rows that lose the most time against their roof, each with its cause; this one is among "
        "them, if it loses any.",
        "Change one thing at a time.",
        "Measure again after each change: times differ when their 95 % intervals are apart, and by more than the gate.",
    ]
    several_changed = [step for step in story.steps if len({name for name, _, _ in step.changes} - {"driver"}) > 1]
    said = [f"Runs: {', '.join(_dated(run) for run in story.runs)}."]
    timers = dict.fromkeys(str(row.get("timer")) for row in story.track.rows if row is not None and row.get("timer"))
    said += [f"Timer: {', '.join(timers)}."] if timers else []
    said += [
        f"From {step.base.name} to {step.new.name} several things changed: {', '.join(n for n, _, _ in step.changes)}."
        for step in several_changed
    ]
    return make_section("methodology", "Methodology", make_list(method, numbered=True), make_list(said))


def _bottlenecks(story: Story) -> Section | None:
    found = make_frame_table(tabulate_findings(story.fixed(_TOP)[0]), wordy=True)
    return make_section(
        "bottlenecks",
        "Bottlenecks Identified",
        found or make_paragraph("None: no row of the first run falls short of a roof that is known."),
    )


def _fixes(story: Story) -> Section | None:
    lines = []
    for step in story.steps:
        figure = step.figure
        before, after = figure.text(figure.before), figure.text(figure.after)
        lines.append((step.name, figure.name, before, after, _times(step.speedup)))
    return make_section(
        "fixes",
        "Fixes Applied",
        make_table(("Fix", "Metric Improved", "Before", "After", "Speedup"), lines),
        _ablation(story),
        *(_fix(step) for step in story.steps),
    )


def _ablation(story: Story) -> Block | None:
    """The versions one after the other."""
    lines = []
    for run, row, step in zip(story.runs, story.track.rows, (None, *story.steps), strict=True):
        assert row is not None
        change = "original" if step is None else _key_change(step)
        occupancy = find_variants(row, "occupancy_pct")
        cells = (
            _x(story.vs_torch(row)),
            _speed(row),
            _NOT if math.isnan(occupancy) else f"{format_short(occupancy, '.0f')} %",
        )
        name = "Baseline" if step is None else str(row.get("variant") or run.name)
        lines.append((name, *cells, change, _times(float(story.first["time_ms"]) / float(row["time_ms"]))))
    headings = ("Version", "Speedup vs PyTorch", "Memory BW", "Occupancy", "Key Change", "Speedup vs baseline")
    return make_table(headings, lines, caption="The versions")


def _key_change(step: OptimizationStep) -> str:
    if step.rung.get("changes"):
        return str(step.rung["changes"])
    return (
        ", ".join(f"{name}: {before} to {after}" for name, before, after in step.changes)
        or f"{step.new.name} (not recorded)"
    )


def _fix(step: OptimizationStep) -> Section | None:
    figure, finding = step.figure, step.finding
    gap = f", gap {format_short(figure.gap_pct, '.0f')} %" if not math.isnan(figure.gap_pct) and figure.gap_pct else ""
    cause = "not known: its roof is reached, or not known"
    if finding is not None:
        cause = f"{finding.issue}. Evidence: {finding.evidence}"
    changed = "; ".join(f"{name}: {before} to {after}" for name, before, after in step.changes)
    text = _variant_text(step.after) if step.before.get("variant") != step.after.get("variant") else ""
    made = f"{changed}{f'. {text}' if text else ''}"
    if not changed:
        made = "not recorded: variant, commit and version are the same in both runs"
    return make_section(
        f"fix{step.number}",
        f"Fix {step.number}: {step.name}",
        make_facts(
            [
                ("Identify", f"{figure.name} = {figure.text(figure.before)}, target {figure.wanted}{gap}"),
                ("Hypothesize", f"{cause}. {_predicted(step)}"),
                ("Implement", made),
                (
                    "Validate",
                    f"{figure.name} {figure.text(figure.before)} to {figure.text(figure.after)}; {_validated(step)}",
                ),
                ("Document", _documented(step)),
            ]
        ),
    )


def _validated(step: OptimizationStep) -> str:
    """The speed-up, how sure it is, and whether the result is right."""
    low, high = step.comparison.interval(step.judged)
    sure = "" if math.isnan(low) or low <= 0 else f" (95 %: {_times(1 / high)} to {_times(1 / low)})"
    reason = f": {step.judged.reason}" if step.judged.reason else ""
    said = (
        f"{_ms(step.before)} to {_ms(step.after)}, speed-up {_times(step.speedup)}{sure}, {step.judged.verdict}{reason}"
    )
    return f"{said}; {_correct(step.after)}"


def _correct(row: RowDict) -> str:
    if row.get("verified") is None:
        return "whether the result is right was not checked"
    if not row["verified"]:
        return "the result is wrong, or was not checked to the end"
    counts = [row.get(name) for name in ("rows_checked", "rows_total")]
    rows = f", {counts[0]} of {counts[1]} rows" if all(counts) else ""
    error, limit = find_variants(row, "max_error"), find_variants(row, "tolerance")
    beside = f", error {error:.2g} of the {limit:.2g} allowed" if not math.isnan(error + limit) else ""
    return f"verified against float64{rows}{beside}"


def _documented(step: OptimizationStep) -> str:
    flags = str(step.after.get("flags") or "")
    read = f"; flags {flags.replace(';', ', ')}: to be read with care" if flags else "; no flags"
    return f"{_dated(step.base)} against {_dated(step.new)}{read}"


def _final(story: Story, goals: Sequence[Goal]) -> Section | None:
    last = story.last
    found, gone = story.fixed(_TOP)
    fixed = (
        f"Of the {plural(len(found), 'bottleneck')} named above, {len(gone) or 'none'} "
        f"{'costs' if len(gone) < 2 else 'cost'} less than half of that time now."
        if found
        else ""
    )
    cases = sum(track.whole for track in story.tracks)
    return make_section(
        "final",
        "Final Results",
        make_list(
            [
                _performance(story, last),
                f"Memory bandwidth: {_bandwidth(last)}",
                f"Occupancy: {_occupancy(last)}",
                f"Speed-up over the first run: {_times(float(story.first['time_ms']) / float(last['time_ms']))}",
                f"Correctness: {_correct(last)}",
            ]
        ),
        make_paragraph(fixed),
        _goals(goals, judged=True),
        findings.compare_runs(story.runs[0], story.runs[-1], 1) if cases > 1 else None,
    )


def _learnings(story: Story) -> Section | None:
    lines = []
    for step in story.steps:
        by_bytes = "the same bytes" if step.same_bytes else _x(step.by_bytes)
        before = (_foretold(step), _x(step.possible, most=True), by_bytes)
        lines.append((step.name, *before, _times(step.speedup), _learnt(step)))
    headings = ("Fix", "Predicted before", "Predicted by the roof", "Predicted by bytes", "Measured", "Learnt")
    return make_section("learnings", "Key Learnings", make_table(headings, lines, wordy=True))


def _foretold(step: OptimizationStep) -> str:
    """What was written down before anything was measured, and for which shape."""
    at = f" at {step.rung['at']}" if step.rung.get("predicted") and step.rung.get("at") else ""
    return "-" if math.isnan(step.foretold) else f"{_times(step.foretold)}{at}"


def _learnt(step: OptimizationStep) -> str:
    """What a step's figures say; nothing that they do not."""
    verdict = step.judged.verdict
    words = {"faster": "it helped", "slower": "it made it slower", "same": "no difference beyond noise"}
    said = words.get(verdict, f"nothing: {verdict.replace('_', ' ')}")
    if verdict == "faster" and step.possible > 1:
        part = 100 * (1 - 1 / step.speedup) / (1 - 1 / step.possible)
        said += f": {format_short(min(part, 999), '.0f')} % of the time that was lost is won back"
    return said


def _references(story: Story) -> Section | None:
    lines = []
    for run in story.runs:
        versions = ", ".join(run.each("bwprof_version"))
        commit = run.told.get("git_commit") or run.told.get("commit")
        lines.append((run.name, ", ".join(run.each("run_id")), run.minute, versions, commit, run.source))
    headings = ("Run", "Run id", "When", "bwprof", "Commit", "File")
    return make_section("references", "References", make_table(headings, lines, wordy=True), _profiles(story))


def _profiles(story: Story) -> Block | None:
    """Profilers' files that stand in the runs' folders."""
    from pathlib import Path

    files = [path for run in story.runs if run.source for path in sorted(Path(run.source).glob("artifacts/*"))]
    return make_list(f"Profiler file: {path}" for path in files) or make_paragraph(
        "No profilers' files are in the runs' folders (artifacts/)."
    )


# ---- words ----


def _performance(story: Story, row: RowDict) -> str:
    ratio = story.vs_torch(row)
    beside = f"{_NOT} vs PyTorch" if math.isnan(ratio) else f"{_times(ratio)} vs PyTorch"
    return f"Performance: {_ms(row)} @ {_short_shape(row)} ({beside})"


def _ms(row: RowDict) -> str:
    return f"{float(row['time_ms']):.4g} ms"


def _short_shape(row: RowDict) -> str:
    """S= of what has a length, else all sizes."""
    length = next((row[name] for name in ("seq_len", "kv_len") if (row.get(name) or 0) > 1), None)
    return f"S={length}" if length is not None else _shape(row)


def _shape(row: RowDict) -> str:
    names = [*schema.param_names()]
    return " ".join(f"{name}={row[name]}" for name in names if row.get(name) is not None) or str(row.get("case"))


def _hardware(run: ReportRun, row: RowDict) -> str:
    memory = measured_or_none(run.part("facts").get("memory_bytes"))
    peak, rate = find_variants(row, "peak_gb_s"), find_variants(row, "peak_tflops")
    said = [row.get("device"), format_bytes(memory) if memory else ""]
    said += [
        f"{format_short(peak, '.0f')} GB/s peak" if peak > 0 else "",
        f"{format_short(rate, '.4g')} TFLOP/s {row.get('precision')}" if rate > 0 else "",
    ]
    said += [f"driver {row['driver']}" if row.get("driver") else ""]
    return ", ".join(str(part) for part in said if part)


def _variant(row: RowDict) -> str:
    text = _variant_text(row)
    return f"{row['variant']}{f': {text}' if text else ''}" if row.get("variant") else "not known"


def _variant_text(row: RowDict) -> str:
    """A variant's own words; "" for one that the registry does not know."""
    return next((str(found["text"]) for found in find_variants(row) if found["name"] == row.get("variant")), "")


def _kernel(row: RowDict) -> str:
    known = [f"{said}: {row[name]}" for name, said in _KERNEL.items() if not is_missing(row.get(name))]
    return ", ".join(known) or f"tile, threads and shared memory: {_NOT} (bwprof variants tells them on the device)"


def _bandwidth(row: RowDict) -> str:
    speed, peak = find_variants(row, "bandwidth_gb_s"), find_variants(row, "peak_gb_s")
    if math.isnan(speed):
        return _NOT
    if row.get("cache") == "hot":
        return f"{_speed(row)} (hot: out of a cache)"
    share = f"{format_short(100 * speed / peak, '.1f')}% of peak" if peak > 0 else "peak unknown"
    return f"{_speed(row)} ({share})"


def _speed(row: RowDict) -> str:
    speed = find_variants(row, "bandwidth_gb_s")
    return _NOT if math.isnan(speed) else f"{format_figure(speed, whole_from=100)} GB/s"


def _occupancy(row: RowDict) -> str:
    achieved, theory = find_variants(row, "occupancy_pct"), find_variants(row, _THEORY)
    if math.isnan(achieved):
        return f"{_NOT} (--metrics occupancy)"
    share = f"{format_short(100 * achieved / theory, '.0f')}% of theoretical" if theory > 0 else f"theoretical {_NOT}"
    return f"{format_short(achieved, '.0f')}% ({share})"


def _predicted(step: OptimizationStep) -> str:
    said = f"up to {_times(step.possible)} at the roof"
    if not step.possible > 1:
        said = "nothing, as no roof is known or it is reached"
    fewer = "" if math.isnan(step.by_bytes) else f"; {_times(step.by_bytes)} by fewer bytes"
    return f"Predicted: {said}{fewer}"


def _x(value: float, *, most: bool = False) -> str:
    return _NOT if math.isnan(value) else f"{'up to ' if most else ''}{_times(value)}"


def _times(value: float) -> str:
    return f"{format_short(value, '.3f' if value < 0.1 else '.2f')}x"


def _dated(run: ReportRun) -> str:
    return f"{run.name} ({run.minute})" if run.minute else run.name
