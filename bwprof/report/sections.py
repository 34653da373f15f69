"""Sections of a report: the findings of a run, its device, conditions and method; the changes between runs."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bwprof.analysis.gains import explain_equal_bandwidth, improvement_table, read_run_roofs
from bwprof.analysis.rules import AT_ROOF, is_at_roof
from bwprof.analysis.values import drop_repeated_shapes
from bwprof.report import run as pictures
from bwprof.report.run import ReportRun
from bwprof.results.frame import to_rows
from bwprof.results.reader import describe_unfinished
from bwprof.results.schema import CLASSIC_NAMES, FLAGS, RowDict
from bwprof.roofs.limiter import find_grade
from bwprof.text.document import (
    Block,
    Code,
    Document,
    FactList,
    Paragraph,
    Section,
    SvgPicture,
    make_facts,
    make_frame_table,
    make_list,
    make_paragraph,
    make_section,
    make_table,
    present_sections,
)
from bwprof.text.formatting import format_bytes, format_figure, format_seconds, format_short, is_missing, plural
from bwprof.text.parsing import finite_or_none, measured_or_none

_LONGEST_REMARK, _LONGEST_LIST = 110, 500  # letters
_MANY = 12  # rows from which on a heatmap is clearer than bars
_MOST_CHANGES = 20  # of the picture; more would leave no room on a page for text
_MOST_NAMED = 12  # rows that a line names
_NUMBERS = ("time, ms", "GB/s", "% of limit", "launches")
_CHANGE_NUMBERS = ("ms before", "ms now", "speed-up", "GB/s before", "GB/s now", "change, %")
_SHARE = re.compile(r", \d+ ?% of the nearer roof$")  # of a prediction; the table of all rows has it
_TIMERS = {
    "graph": "a CUDA graph of many launches between two events",
    "events": "a pair of events around the launches",
    "cupti": "CUPTI's timestamps of the kernels",
    "monotonic": "the monotonic clock around batches of launches on pinned threads",
}


def summarize(run: ReportRun) -> Section | None:
    """Return the section with the answer in sentences, and the figures that show how reliable it is."""
    lines = run.answer.lines()
    timed = [row for row in to_rows(run.answer.usable) if row["time_ms"] is not None and row["status"] == "ok"]
    if sum(bool(row["flags"]) for row in timed) > len(timed) / 2:  # the reliability comes first
        lines = [*lines[-1:], *lines[:-1]]
    if run.step is not None:
        lines.insert(0, run.step.answer)
    sentences = [Paragraph(as_sentence(line), lead=True) for line in lines]
    return make_section("answer", "The answer", *sentences, _figures(run, timed))


def as_sentence(line: str) -> str:
    """Return a line as a sentence; names and figures at its start stay as they are."""
    text = line[:1].upper() + line[1:] if line.partition(" ")[0].isalpha() else line
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _figures(run: ReportRun, timed: Sequence[RowDict]) -> FactList | None:
    if not timed:
        return None
    failed = [row for row in to_rows(drop_repeated_shapes(run.data)) if row["status"] not in ("ok", "predicted")]
    limits = run.answer.limits
    pairs = [(f"measured, of {_count_cases(run)}", f"{len(timed)} of {len(timed) + len(failed)}")]
    if cold := [row for row in timed if row["bandwidth_gb_s"] and row["cache"] != "hot"]:
        best = max(cold, key=lambda row: float(row["bandwidth_gb_s"]))
        pairs.append((f"GB/s at most: {best['case']} {best['precision']}", _figure(best["bandwidth_gb_s"])))
    if (limits.limiter > 0).any():
        high = int(is_at_roof(run.answer.usable, limits).sum())
        pairs.append((f"at {AT_ROOF:.0f} % or more of what the device allows", str(high)))
    checked, flagged = sum(row["verified"] is True for row in timed), sum(bool(row["flags"]) for row in timed)
    pairs.append(("verified against float64", f"{checked} of {len(timed)}"))
    pairs.append(("flagged: to be read with care", str(flagged)))
    return FactList(tuple(pairs), lead=True)


def _count_cases(run: ReportRun) -> str:
    return plural(len({(row["case"], row["operation"]) for row in run.rows}), "case")


def _figure(value: Any) -> str:
    return format_figure(float(value), whole_from=100)


def _draw_bandwidths(run: ReportRun) -> Block | None:
    """Return lines of a sweep of one operation over one parameter, a heatmap over two, else bars."""
    from bwprof.plot.sweeps import count_values

    data = run.answer.usable
    parameters = len(count_values(run.rows)) if data["operation"].nunique() == 1 else 0
    if parameters == 1:
        return pictures.draw_kind("lines", data, "Lines: the bandwidth over the parameter that was swept")
    if parameters == 2 and data["precision"].nunique() == 1 and len(data) > _MANY:
        return pictures.draw_kind("heatmap", data, "Heatmap: the bandwidth over the two parameters that were swept")
    text = "The bandwidth of each case in each precision, beside the roof that applies"
    return pictures.draw_kind("comparison", data, text)


def compare_precisions(run: ReportRun) -> Section | None:
    """Return the section with all bandwidths, and the gain of a narrower precision."""
    blocks: list[Block | None] = [_draw_bandwidths(run)]
    if set(CLASSIC_NAMES) <= set(run.data.columns) and len(data := improvement_table(run.data)):
        text = "What the narrower precision gains in time: the ratio of bytes times that of the bandwidths"
        caption = "Improvement is of the GB/s; time speed-up = Improvement x Bytes ratio"
        blocks += [
            pictures.draw_kind("speedup", run.answer.usable, text),
            make_frame_table(data, numbers=list(data.columns)[1:], caption=caption, tools=len(data) > 20),
            make_paragraph(explain_equal_bandwidth(run.data)),
        ]
    title = "What a narrower precision brings" if len(blocks) > 1 else "How fast"
    return make_section("precisions", title, *blocks)


def draw_roofline(run: ReportRun) -> Section | None:
    """Return the section with the roofline."""
    text = "Roofline: the arithmetic rate of each row over its intensity, below the roofs of memory and arithmetic"
    return make_section("roofline", "Roofline", pictures.draw_kind("roofline", run.answer.usable, text))


def list_losses(run: ReportRun) -> Section | None:
    """Return the section on lost time, its causes and fixes, and on rows that need no work."""
    from bwprof.analysis.answer import group_strengths

    strengths = make_list(
        line if len(line) <= _LONGEST_LIST else f"{line[:_LONGEST_LIST].rpartition(', ')[0]} and more"
        for line in group_strengths(run.answer.measured)
    )
    none = "Not known: no roofs are beside the rows."
    if (run.answer.limits.limiter > 0).any():
        none = "No row falls short of its roof by a twentieth or more."
    lost = make_frame_table(run.answer.bottlenecks(), wordy=True) or make_paragraph(none)
    strong = make_section("strengths", "What needs no work", strengths)
    return make_section("bottlenecks", "Where time is lost, and what helps", lost, strong)


def describe_model(run: ReportRun) -> Section | None:
    """Return the section on the steps of a model; None for other runs."""
    step = run.step
    if step is None:
        return None
    picture = pictures.draw_kind("model", run.data, "The time per token, or of a step, by operation")
    return make_section("model", f"Model: {step.model.name}", picture, *step.tables(), make_list(step.notes()))


def list_rows(run: ReportRun) -> Section | None:
    """Return the section with all rows, and those columns that differ between them."""
    rows = run.rows
    names = [name for name in ("device", "cache", "hostname") if len(run.values(name)) > 1]
    names += [name for name in ("weights", "kv") if any(row.get(name) for row in rows)]
    last = ["count"] if any(row.get("count") is not None for row in rows) else []
    last += ["status"] if any(row["status"] != "ok" for row in rows) else []
    lines = []
    for row in rows:
        first = map(row.get, ("case", "precision", *names, "variant"))
        lines.append([*first, *_row_figures(row), row["limiter"], *map(row.get, last), _remarks(row)])
    headings = ["case", "precision", *names, "variant", "time, ms", "GB/s", "% of limit", "limiter"]
    headings += ["launches" if name == "count" else name for name in last]
    return make_section("rows", "All rows", make_table([*headings, "remarks"], lines, numbers=_NUMBERS, tools=True))


def _row_figures(row: RowDict) -> list[str | None]:
    """Return a row's time, bandwidth and share of its limit."""
    grade, time, speed = find_grade(row), row["time_ms"], row["bandwidth_gb_s"]
    return [
        None if time is None else f"{time:.4g}" if 1e-3 <= time < 1e4 else f"{time:.3g}",
        None if speed is None else _figure(speed),
        None if grade is None else format_short(grade[0], ".0f"),
    ]


def _remarks(row: RowDict) -> str:
    """Return the flags of a row, and why it has no time; many predictions have their reason below the table."""
    reason = str(row["reason"] or "") if row["status"] != "predicted" else ""
    reason = reason if len(reason) <= _LONGEST_REMARK else f"{reason[:_LONGEST_REMARK]}\u2026"
    return ": ".join(filter(None, [str(row["flags"] or "").replace(";", ", "), reason]))


def list_runs(runs: Sequence[ReportRun]) -> Section | None:
    """Return the section with a line for each run."""
    lines = [(run.name, run.joined("device"), len(run.rows), "; ".join(run.answer.lines()[:1])) for run in runs]
    return make_section("runs", "The runs", make_table(("run", "device", "rows", "answer"), lines, wordy=True))


def compare_runs(base: ReportRun, new: ReportRun, number: int) -> Section | None:
    """Return the section with one run beside another, case by case; `number` makes its name unique."""
    from bwprof.plot import regressions
    from bwprof.records.regression.comparison import compare_sources
    from bwprof.records.regression.report import detail_lines, format_summary, sort_lines, two_sided
    from bwprof.records.regression.verdicts import ONE_SIDED
    from bwprof.records.source import load_source

    devices = [set(run.values("device")) for run in (base, new)]
    apart = all(devices) and not devices[0] & devices[1]
    sources = (load_source(run.data, name=run.name) for run in (base, new))
    comparison = compare_sources(*sources, across=apart)
    data = comparison.frame()
    lines = [_change(row) for row in data[~data["verdict"].isin(ONE_SIDED)].to_dict(orient="records")]
    places = sort_lines(comparison, everything=False)
    both = two_sided(comparison, places)
    others = [place for place in places if place not in both]
    picture = None
    if data["verdict"].isin(["slower", "faster", "same", "undecided", "disturbed"]).any():
        text = "Each case's new time over its old one, with its interval and what is taken for noise"
        drawing = regressions.build_ratios(data, most=_MOST_CHANGES)
        picture = pictures.draw_svg(f"change{number}", lambda target: drawing.write([target]), text)
    other_devices = "The runs are of other devices: what differs is theirs, not a change of the code."
    return make_section(
        f"change{number}",
        f"{new.name} against {base.name}",
        make_paragraph(as_sentence(format_summary(comparison))),
        make_paragraph(other_devices if apart else ""),
        *(make_paragraph(as_sentence(note)) for note in comparison.notes),
        picture,
        make_list(detail_lines(comparison, both, causes=not apart)),  # sentences, for which no column has room
        make_table(
            ["case", "precision", "variant", "verdict", *_CHANGE_NUMBERS], lines, numbers=_CHANGE_NUMBERS, tools=True
        ),
        make_list(detail_lines(comparison, others, whole="among the rows of that run")),
    )


def _change(row: Mapping[Hashable, Any]) -> list[object]:
    formats = (
        ("base_ms", ".4g"),
        ("new_ms", ".4g"),
        ("speedup", ".2f"),
        ("base_gb_s", ""),
        ("new_gb_s", ""),
        ("change_pct", "+.1f"),
    )
    name = " ".join(str(row[name]) for name in ("case", "parameters") if isinstance(row[name], str) and row[name])
    figures: list[object] = []
    for column, spec in formats:
        value = finite_or_none(row[column])
        text = None if value is None else format_short(value, spec) if spec else _figure(value)
        figures.append(f"{text}x" if text and column == "speedup" else text)
    return [name, row["precision"], row["variant"], str(row["verdict"]).replace("_", " "), *figures]


def describe_device(run: ReportRun) -> Section | None:
    """Return the section on what was measured, and on which device."""
    rows, device, host = run.rows, run.part("facts"), run.part("host")
    states = Counter(str(row["status"]) for row in rows).most_common()
    counts = ", ".join(f"{count} {state}" for state, count in states)
    memory, caches = measured_or_none(device.get("memory_bytes")), measured_or_none(device.get("cache_bytes"))
    peak, roofs = _peak(run), read_run_roofs(run.data)
    ceilings = [] if roofs is None else roofs.ceilings()
    known = tflops.items() if isinstance(tflops := device.get("peak_tflops"), Mapping) else ()
    rates = ", ".join(f"{name} {value:.4g}" for name, value in known if measured_or_none(value))
    cpus = f"{host.get('cpu_count')} CPUs" if host.get("cpu_count") else ""
    names = (run.joined("hostname") or host.get("name"), host.get("platform"), cpus)
    pairs = [
        ("Device", run.joined("device") or run.metadata.get("device")),
        ("Memory", None if memory is None else f"{format_bytes(memory)}, {peak}".removesuffix(", ")),
        ("Memory's peak", peak if memory is None else None),
        ("Measured ceilings", ", ".join(f"{point.stream} {_figure(point.gb_s)} GB/s" for point in ceilings)),
        ("Arithmetic peaks", f"{rates} TFLOP/s, dense" if rates else ""),
        ("Caches", format_bytes(caches) if caches else None),
        ("Driver", run.joined("driver")),
        ("Host", ", ".join(map(str, filter(None, names)))),
        ("Rows", f"{plural(len(rows), 'row')} of {_count_cases(run)}: {counts}"),
        ("Status", describe_unfinished(run.metadata)),
        ("Operations", _first_names(run.values("operation"))),
        ("Precisions", run.joined("precision")),
        ("Suite", run.metadata.get("suite")),
        ("When", _when(run)),
        ("Run", run.joined("run_id") or run.metadata.get("run_id")),
        ("Read from", run.source),
    ]
    return make_section("measured", "What was measured on what", make_facts(pairs))


def _first_names(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _peak(run: ReportRun) -> str:
    """Return the theoretical peak of measured rows, else of all, and its source."""
    rows = [row for row in run.rows if measured_or_none(row.get("peak_gb_s"))]
    peaks = {row["peak_gb_s"] for row in rows if row["status"] == "ok"} or {row["peak_gb_s"] for row in rows}
    if len(peaks) != 1:
        return f"{len(peaks)} theoretical peaks" if peaks else ""
    source = run.part("facts").get("peak_source")
    return f"{_figure(peaks.pop())} GB/s in theory" + (f" ({source})" if source else "")


def _when(run: ReportRun) -> str:
    times = sorted(run.values("timestamp")) or [""]
    ends = [str(run.metadata.get(name) or time) for name, time in (("started", times[0]), ("finished", times[-1]))]
    moments = [_format_time(end) for end in dict.fromkeys(ends) if end]
    return " to ".join([*moments[:1], *(last.removeprefix(moments[0][:11]) for last in moments[1:])])


def _format_time(text: str) -> str:
    """Return a time of ISO 8601 for people, as 2026-11-22 09:55:50 UTC; any other text as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time:%Y-%m-%d %H:%M:%S}" + (" UTC" if time.utcoffset() == timedelta() else "")


def describe_conditions(run: ReportRun) -> Section | None:
    """Return the section on clocks, temperature and noise, on flags, and on rows without a time."""
    rows = [row for row in run.rows if row["time_ms"] is not None]
    none = f"No row has a flag: nothing that bwprof looks for makes one of {len(rows)} doubtful." if rows else ""
    throttled = ", ".join(_count_rows([row for row in rows if row["throttle"] != "none"], "throttle"))
    pairs = [
        ("Multiprocessor clock", _range(rows, "sm_clock_mhz", "MHz")),
        ("Memory clock", _range(rows, "mem_clock_mhz", "MHz")),
        ("Temperature, at most", _range(rows, "temperature_c", "°C")),
        ("Power", _range(rows, "power_w", "W")),
        ("Clocks held down", throttled or ("never" if any(row["throttle"] == "none" for row in rows) else "")),
        ("Spread of the samples", _range(rows, "noise", "%", scale=100)),
        ("Hardware counters", "; ".join(_count_rows(run.rows, "counters_status")[:3])),
    ]
    return make_section(
        "conditions",
        "Conditions and flags",
        make_facts(pairs),
        _list_flags(rows) or make_paragraph(none),
        _list_failures(run.rows),
    )


def _list_flags(rows: Sequence[RowDict]) -> Block | None:
    found = _group_labels((flag, row) for row in rows for flag in filter(None, str(row["flags"] or "").split(";")))
    lines = [(flag, FLAGS.get(flag, "not one of bwprof's"), _name_rows(own, rows)) for flag, own in found.items()]
    return make_table(("flag", "what it says", "rows"), lines, caption="Flags: what should be doubted", wordy=True)


def _list_failures(rows: Sequence[RowDict]) -> Block | None:
    failed = [row for row in rows if row["status"] != "ok"]
    reasons = [_SHARE.sub("", str(row["reason"] or "no reason is given")) for row in failed]
    found = _group_labels(((row["status"], why), row) for row, why in zip(failed, reasons, strict=True))
    lines = [(*key, _name_rows(own, rows)) for key, own in found.items()]
    return make_table(("status", "why", "rows"), lines, caption="Rows without a time that was measured", wordy=True)


def _group_labels(rows: Iterable[tuple[Any, RowDict]]) -> dict[Any, list[str]]:
    groups: dict[Any, list[str]] = defaultdict(list)
    for key, row in rows:
        groups[key].append(" ".join(str(row[name]) for name in ("case", "precision", "variant") if row.get(name)))
    return groups


def _name_rows(names: Sequence[str], rows: Sequence[object]) -> str:
    return f"all {len(rows)}" if len(names) == len(rows) > 1 else _first_names(names)


def _numbers(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return sorted(value for row in rows if (value := measured_or_none(row.get(name))) is not None)


def _range(rows: Sequence[Mapping[str, Any]], name: str, unit: str, *, scale: float = 1.0) -> str:
    """Return the smallest, the largest and the middle value of a column."""
    numbers = [scale * value for value in _numbers(rows, name)]
    if not numbers:
        return ""
    low, middle, high = numbers[0], numbers[len(numbers) // 2], numbers[-1]
    if f"{low:.3g}" == f"{high:.3g}":
        return f"{middle:.4g} {unit}"
    spec = ".3g" if high < 1e3 else ".0f"
    return f"{low:{spec}} to {high:{spec}} {unit}, median {middle:{spec}}"


def _count_rows(rows: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    """Return the values of a column with their numbers of rows, the most frequent first."""
    counts = Counter(str(row[name]) for row in rows if row[name])
    return [f"{value} ({count} rows)" for value, count in counts.most_common()]


def describe_method(run: ReportRun) -> Section | None:
    """Return the section on how the rows were measured."""
    rows = [row for row in run.rows if row["status"] == "ok"]
    timers = [f"{name} ({_TIMERS[name]})" if name in _TIMERS else name for name in run.values("timer")]
    caches, samples = run.values("cache"), _numbers(rows, "samples") or [0.0]
    converged, checked = (sum(row[name] is True for row in rows) for name in ("converged", "verified"))
    lines = {
        "Time is the median of the samples; its interval holds it 95 times in 100. Bandwidth is effective: the bytes "
        "that must move (each operand once) over the time.": True,
        f"Timer: {', '.join(timers)}.": timers,
        f"{samples[0]:.0f} to {samples[-1]:.0f} samples a row; sampling stops when the interval is narrow enough, as "
        f"in {converged} of {len(rows)} rows.": samples[-1],
        "Cold rows find their inputs outside the cache: launches walk over sets of buffers, or the cache is flushed by "
        "reading.": "cold" in caches,
        "Hot rows use one set of buffers; they are not compared with memory.": "hot" in caches,
        f"{checked} of {len(rows)} results agreed with a float64 reference before and after the timing.": checked,
    }
    present = [line for line, applies in lines.items() if applies]
    return make_section("method", "Method", make_list([*present, *_describe_roofs(run, rows)]))


def _describe_roofs(run: ReportRun, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not any(row.get("attainable_gb_s") for row in rows):
        return ["No roofs are beside the rows: what they could have reached is not known."] if rows else []
    lines = [
        "The limit of a row is the nearer of two roofs: what a plain stream of the same bytes and mix reaches on the "
        "same device (attainable), and the best arithmetic rate. Below half of both, the kernel limits."
    ]
    roofs, checks = read_run_roofs(run.data), run.part("roofs").get("checks")
    if roofs is not None:
        parts = [f"Roofs: {len(roofs.points)} streams, measured {_format_time(roofs.measured or 'at an unknown time')}"]
        if isinstance(checks, Sequence) and checks:
            parts.append(f"{len(checks)} of them measured again for this run")
        parts += [f"an empty launch takes {format_seconds(roofs.floor_seconds)}"] if roofs.floor_seconds else []
        lines.append(f"{'; '.join(parts)}.")
    return lines


def describe_command(run: ReportRun) -> Section | None:
    """Return the section on how to repeat a run: the command, versions, environment."""
    metadata, environment, roofs = run.metadata, run.part("environment"), run.metadata.get("roofs_choice")
    versions = {**run.part("versions")}
    versions.setdefault("bwprof", run.joined("bwprof_version"))
    variables = [f"{name}={value}" for name, value in environment.items() if not is_missing(value)]
    pairs = [
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
        ("Commit of the working directory", metadata.get("git_commit")),
        ("Commit of bwprof", metadata.get("commit")),
        ("Build", ", ".join(f"{name} {value}" for name, value in run.part("build").items() if value not in (None, ""))),
        ("Environment", ", ".join(variables) or ("no variable that changes what is measured" if environment else None)),
        ("Seed of the inputs", metadata.get("seed")),
        ("Roofs", "none (--no-roofs)" if roofs is False else roofs),
    ]
    argv, suite = metadata.get("argv"), metadata.get("suite")
    command: Block | None = make_paragraph(
        f"The command is not recorded; the suite is {suite}: bwprof sweep --suite {suite}."
        if suite
        else "The command is not recorded: the rows were measured by a function of Python's, or came as a table."
    )
    if isinstance(argv, Sequence) and not isinstance(argv, str):
        name = "model" if metadata.get("model") is not None else "sweep"
        command = Code(shlex.join(["bwprof", name, *map(str, argv)]))
    return make_section("again", "How to reproduce it", command, make_facts(pairs))


_OF_A_RUN = [summarize, describe_device, compare_precisions, draw_roofline, list_losses, describe_model, list_rows]
_OF_A_RUN += [describe_conditions, describe_method, describe_command]


def build_document(runs: Sequence[ReportRun], title: str | None = None) -> Document:
    """Return the report of a run, or of several: the later ones beside the first, then a section for each."""
    devices = list(dict.fromkeys(name for run in runs for name in run.values("device")))
    on = f" on {', '.join(devices[:3])}" if devices else ""
    if len(runs) == 1:
        model = runs[0].part("model").get("architecture")
        name = model.get("name") if isinstance(model, Mapping) else ""
        version = runs[0].joined("bwprof_version") or runs[0].part("versions").get("bwprof")
        words = (runs[0].name, runs[0].minute and f"{runs[0].minute} UTC", version and f"measured by bwprof {version}")
        subtitle = " · ".join(filter(None, words))
        return Document(title or f"{name or 'Memory bandwidth'}{on}", subtitle, _describe(runs[0]))
    parts = [list_runs(runs)]
    parts += [compare_runs(runs[0], run, number) for number, run in enumerate(runs[1:], 2)]
    for number, run in enumerate(runs, 1):
        own = (_add_prefix(part, f"run{number}-") for part in _describe(run))
        parts.append(make_section(f"run{number}", f"{run.name}: {run.joined('device') or 'its rows'}", *own))
    names = ", ".join(run.name for run in runs)
    return Document(title or f"{len(runs)} runs{on}", f"bwprof: {names}", present_sections(parts))


def _describe(run: ReportRun) -> tuple[Section, ...]:
    return present_sections(describe(run) for describe in _OF_A_RUN)


def _add_prefix(block: Any, prefix: str) -> Any:
    """Return a block whose names, and those of the blocks in it, begin with a prefix."""
    if isinstance(block, Section):
        block = replace(block, blocks=tuple(_add_prefix(part, prefix) for part in block.blocks))
    return replace(block, name=f"{prefix}{block.name}") if isinstance(block, (Section, SvgPicture)) else block
