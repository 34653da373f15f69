"""Sections on one run: its device, its conditions, its method, and the command that repeats it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bwprof.analysis.gains import read_run_roofs
from bwprof.report.run import ReportRun
from bwprof.results.reader import describe_unfinished
from bwprof.results.schema import FLAGS
from bwprof.text.document import Code, Section, make_facts, make_list, make_paragraph, make_section, make_table
from bwprof.text.formatting import format_bytes, format_figure, format_seconds, is_missing, plural
from bwprof.text.parsing import measured_or_none

_MOST_NAMED = 12  # rows that a line names
_SHARE = re.compile(r", \d+ ?% of the nearer roof$")  # of a prediction; the table of all rows has it
_TIMERS = {
    "graph": "a CUDA graph of many launches between two events",
    "events": "a pair of events around the launches",
    "cupti": "CUPTI's timestamps of the kernels",
    "monotonic": "the monotonic clock around batches of launches on pinned threads",
}


def describe_device(run: ReportRun) -> Section | None:
    """Return the section on what was measured, and on which device."""
    rows, device = run.rows, run.part("facts")
    states = Counter(str(row["status"]) for row in rows)
    cases = len({(row["case"], row["operation"]) for row in rows})
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    memory, caches = measured_or_none(device.get("memory_bytes")), measured_or_none(device.get("cache_bytes"))
    peak = _peak(run)
    pairs = [
        ("Device", run.joined("device") or run.metadata.get("device")),
        ("Memory", None if memory is None else f"{format_bytes(memory)}, {peak}".removesuffix(", ")),
        ("Memory's peak", peak if memory is None else None),
        ("Measured ceilings", _ceilings(run)),
        ("Arithmetic peaks", _arithmetic(run)),
        ("Caches", format_bytes(caches) if caches else None),
        ("Driver", run.joined("driver")),
        ("Host", _host(run)),
        ("Rows", f"{plural(len(rows), 'row')} of {plural(cases, 'case')}: {counts}"),
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
    return f"{format_figure(peaks.pop(), whole_from=100)} GB/s in theory" + (f" ({source})" if source else "")


def _ceilings(run: ReportRun) -> str:
    roofs = read_run_roofs(run.data)
    points = [] if roofs is None else roofs.ceilings()
    return ", ".join(f"{point.stream} {format_figure(point.gb_s, whole_from=100)} GB/s" for point in points)


def _arithmetic(run: ReportRun) -> str:
    peaks = run.part("facts").get("peak_tflops")
    known = peaks.items() if isinstance(peaks, Mapping) else ()
    text = ", ".join(f"{name} {value:.4g}" for name, value in known if measured_or_none(value))
    return f"{text} TFLOP/s, dense" if text else ""


def _host(run: ReportRun) -> str:
    host = run.part("host")
    count = host.get("cpu_count")
    parts = (run.joined("hostname") or host.get("name"), host.get("platform"), f"{count} CPUs" if count else "")
    return ", ".join(str(part) for part in parts if part)


def _when(run: ReportRun) -> str:
    times = sorted(run.values("timestamp")) or [""]
    ends = [str(run.metadata.get(name) or time) for name, time in (("started", times[0]), ("finished", times[-1]))]
    moments = [format_time(end) for end in dict.fromkeys(ends) if end]
    return " to ".join([*moments[:1], *(last.removeprefix(moments[0][:11]) for last in moments[1:])])


def format_time(text: str) -> str:
    """Return a time of ISO 8601 for people; any other text as it is.

    Examples
    --------
    >>> format_time("2026-11-22T09:55:50.123+00:00"), format_time("yesterday")
    ('2026-11-22 09:55:50 UTC', 'yesterday')
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time:%Y-%m-%d %H:%M:%S}" + (" UTC" if time.utcoffset() == timedelta() else "")


def describe_conditions(run: ReportRun) -> Section | None:
    """Return the section on clocks, temperature and noise, on flags, and on rows without a time."""
    rows = [row for row in run.rows if row["time_ms"] is not None]
    flagged: dict[str, list[str]] = {}
    failed: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for flag in filter(None, str(row["flags"] or "").split(";")):
            flagged.setdefault(flag, []).append(_label(row))
    for row in (row for row in run.rows if row["status"] != "ok"):
        reason = _SHARE.sub("", str(row["reason"] or "no reason is given"))
        failed.setdefault((row["status"], reason), []).append(_label(row))
    flags = [(flag, FLAGS.get(flag, "not one of bwprof's"), _name_rows(own, rows)) for flag, own in flagged.items()]
    reasons = [(status, reason, _name_rows(own, run.rows)) for (status, reason), own in failed.items()]
    none = f"No row has a flag: nothing that bwprof looks for makes one of {len(rows)} doubtful." if rows else ""
    pairs = [
        ("Multiprocessor clock", _range(rows, "sm_clock_mhz", "MHz")),
        ("Memory clock", _range(rows, "mem_clock_mhz", "MHz")),
        ("Temperature, at most", _range(rows, "temperature_c", "°C")),
        ("Power", _range(rows, "power_w", "W")),
        ("Clocks held down", _throttled(rows)),
        ("Spread of the samples", _range(rows, "noise", "%", scale=100)),
        ("Hardware counters", "; ".join(_count_rows(run.rows, "counters_status")[:3])),
    ]
    caption = "Flags: what should be doubted"
    return make_section(
        "conditions",
        "Conditions and flags",
        make_facts(pairs),
        make_table(("flag", "what it says", "rows"), flags, caption=caption, wordy=True) or make_paragraph(none),
        make_table(("status", "why", "rows"), reasons, caption="Rows without a time that was measured", wordy=True),
    )


def _label(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[name]) for name in ("case", "precision", "variant") if row.get(name))


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
    return f"{low:{spec}} to {high:{spec}} {unit}, middle {middle:{spec}}"


def _count_rows(rows: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    """Return the values of a column with their numbers of rows, the most frequent first."""
    counts = Counter(str(row[name]) for row in rows if row[name])
    return [f"{value} ({count} rows)" for value, count in counts.most_common()]


def _throttled(rows: Sequence[Mapping[str, Any]]) -> str:
    reasons = _count_rows([row for row in rows if row["throttle"] != "none"], "throttle")
    return ", ".join(reasons) or ("never" if any(row["throttle"] == "none" for row in rows) else "")


def describe_method(run: ReportRun) -> Section | None:
    """Return the section on how the rows were measured."""
    rows = [row for row in run.rows if row["status"] == "ok"]
    timers = [f"{name} ({_TIMERS[name]})" if name in _TIMERS else name for name in run.values("timer")]
    caches, samples = run.values("cache"), _numbers(rows, "samples")
    lines = [
        "Time is the median of the samples; its interval holds it 95 times in 100. Bandwidth is effective: the bytes "
        "that must move (each operand once) over the time."
    ]
    lines += [f"Timer: {', '.join(timers)}."] if timers else []
    if samples:
        converged = sum(row["converged"] is True for row in rows)
        lines.append(
            f"{samples[0]:.0f} to {samples[-1]:.0f} samples a row; sampling stops when the interval is narrow enough, "
            f"as in {converged} of {len(rows)} rows."
        )
    if "cold" in caches:
        lines.append(
            "Cold rows find their inputs outside the cache: launches walk over sets of buffers, or the cache is "
            "flushed by reading."
        )
    if "hot" in caches:
        lines.append("Hot rows use one set of buffers; they are not compared with memory.")
    if checked := sum(row["verified"] is True for row in rows):
        lines.append(f"{checked} of {len(rows)} results agreed with a float64 reference before and after the timing.")
    return make_section("method", "Method", make_list([*lines, *_describe_roofs(run, rows)]))


def _describe_roofs(run: ReportRun, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not any(row.get("attainable_gb_s") for row in rows):
        return ["No roofs are beside the rows: what they could have reached is not known."] if rows else []
    lines = [
        "The limit of a row is the nearer of two roofs: what a plain stream of the same bytes and mix reaches on the "
        "same device (attainable), and the best arithmetic rate. Below half of both, the kernel limits."
    ]
    roofs = read_run_roofs(run.data)
    if roofs is not None:
        checks = run.part("roofs").get("checks")
        parts = [f"Roofs: {len(roofs.points)} streams, measured {format_time(roofs.measured or 'at an unknown time')}"]
        parts += (
            [f"{len(checks)} of them measured again for this run"] if isinstance(checks, Sequence) and checks else []
        )
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
    return make_section("again", "How to reproduce it", _command(run), make_facts(pairs))


def _command(run: ReportRun) -> Any:
    argv, suite = run.metadata.get("argv"), run.metadata.get("suite")
    if isinstance(argv, Sequence) and not isinstance(argv, str):
        name = "model" if run.metadata.get("model") is not None else "sweep"
        return Code(" ".join(["bwprof", name, *(shlex.quote(str(word)) for word in argv)]))
    if suite:
        return make_paragraph(f"The command is not recorded; the suite is {suite}: bwprof sweep --suite {suite}.")
    return make_paragraph(
        "The command is not recorded: the rows were measured by a function of Python's, or came as a table."
    )
