"""What one run was: on what, under which conditions, how it was measured, and how to do it again."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bwprof.analysis.gains import read_run_roofs
from bwprof.report.run import ReportRun
from bwprof.results.columns import FLAGS
from bwprof.results.reader import describe_unfinished
from bwprof.text.document import Block, Code, Section, make_facts, make_list, make_paragraph, make_section, make_table
from bwprof.text.formatting import format_bytes, format_figure, format_seconds, is_missing, plural
from bwprof.text.parsing import measured_or_none

_MOST_NAMED = 12  # rows that a line names; more are counted


def describe_device(run: ReportRun) -> Section | None:
    """What was measured on what."""
    rows, device = run.rows, run.part("facts")
    states = Counter(str(row["status"]) for row in rows)
    cases = len({(row["case"], row["operation"]) for row in rows})
    told = ", ".join(f"{count} {state}" for state, count in states.most_common())
    memory, caches = measured_or_none(device.get("memory_bytes")), measured_or_none(device.get("cache_bytes"))
    return make_section(
        "measured",
        "What was measured on what",
        make_facts(
            [
                ("Device", ", ".join(run.each("device")) or run.told.get("device")),
                ("Memory", None if memory is None else f"{format_bytes(memory)}, {_peak(run)}".removesuffix(", ")),
                ("Memory's peak", _peak(run) if memory is None else None),
                ("Measured ceilings", _ceilings(run)),
                ("Arithmetic peaks", _arithmetic(run)),
                ("Caches", format_bytes(caches) if caches else None),
                ("Driver", ", ".join(run.each("driver"))),
                ("Host", _host(run)),
                ("Rows", f"{plural(len(rows), 'row')} of {plural(cases, 'case')}: {told}"),
                ("Status", describe_unfinished(run.told)),
                ("Operations", _few(run.each("operation"))),
                ("Precisions", ", ".join(run.each("precision"))),
                ("Suite", run.told.get("suite")),
                ("When", _when(run)),
                ("Run", ", ".join(run.each("run_id")) or run.told.get("run_id")),
                ("Read from", run.source),
            ]
        ),
    )


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _peak(run: ReportRun) -> str:
    rows = [row for row in run.rows if measured_or_none(row.get("peak_gb_s"))]
    peaks = sorted({row["peak_gb_s"] for row in rows if row["status"] == "ok"} or {row["peak_gb_s"] for row in rows})
    if not peaks:
        return ""
    peak = format_figure(peaks[0], whole_from=100)
    said = f"{peak} GB/s in theory" if len(peaks) == 1 else f"{len(peaks)} theoretical peaks"
    source = run.part("facts").get("peak_source")
    return f"{said} ({source})" if source and len(peaks) == 1 else said


def _ceilings(run: ReportRun) -> str:
    found = read_run_roofs(run.data)
    points = [] if found is None else found.ceilings()
    return ", ".join(f"{point.stream} {format_figure(point.gb_s, whole_from=100)} GB/s" for point in points)


def _arithmetic(run: ReportRun) -> str:
    peaks = run.part("facts").get("peak_tflops")
    known = peaks.items() if isinstance(peaks, Mapping) else ()
    said = ", ".join(f"{name} {value:.4g}" for name, value in known if measured_or_none(value))
    return f"{said} TFLOP/s, dense" if said else ""


def _host(run: ReportRun) -> str:
    host = run.part("host")
    names = ", ".join(run.each("hostname")) or host.get("name")
    count = host.get("cpu_count")
    return ", ".join(str(part) for part in (names, host.get("platform"), f"{count} CPUs" if count else "") if part)


def _when(run: ReportRun) -> str:
    times = sorted(run.each("timestamp"))
    ends = [str(run.told.get(name) or "") for name in ("started", "finished")]
    ends = [end or time for end, time in zip(ends, (times[0], times[-1]) if times else ("", ""), strict=True)]
    told = [format_time(end) for end in dict.fromkeys(ends) if end]
    day = told[0][:11] if told else ""
    return " to ".join([*told[:1], *(other.removeprefix(day) for other in told[1:])])


def format_time(text: str) -> str:
    """A time as people read it: '2026-11-22 09:55:50 UTC' of '2026-11-22T09:55:50.123+00:00'; any other text as it is.

    Examples
    --------
    >>> moment("2026-11-22T09:55:50.123+00:00"), moment("yesterday")
    ('2026-11-22 09:55:50 UTC', 'yesterday')
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{found:%Y-%m-%d %H:%M:%S}" + (" UTC" if found.utcoffset() == timedelta() else "")


# ---- conditions ----


def describe_conditions(run: ReportRun) -> Section | None:
    """Clocks, temperature, noise; what should be doubted; what has no figures and why."""
    rows = [row for row in run.rows if row["time_ms"] is not None]
    flagged: dict[str, list[str]] = {}
    for row in rows:
        for flag in filter(None, str(row["flags"] or "").split(";")):
            flagged.setdefault(flag, []).append(_label(row))
    broken: dict[tuple[str, str], list[str]] = {}
    for row in run.rows:
        if row["status"] != "ok":
            why = _SHARE.sub("", str(row["reason"] or "no reason is given"))
            broken.setdefault((row["status"], why), []).append(_label(row))
    held = [
        (flag, FLAGS.get(flag, "not one of bwprof's"), _describe_held(names, len(rows)))
        for flag, names in flagged.items()
    ]
    lost = [(state, reason, _describe_held(names, len(run.rows))) for (state, reason), names in broken.items()]
    none = f"No row has a flag: nothing that bwprof looks for makes one of {len(rows)} doubtful." if rows else ""
    return make_section(
        "conditions",
        "Conditions and flags",
        make_facts(
            [
                ("Multiprocessor clock", _range(rows, "sm_clock_mhz", "MHz")),
                ("Memory clock", _range(rows, "mem_clock_mhz", "MHz")),
                ("Temperature, at most", _range(rows, "temperature_c", "°C")),
                ("Power", _range(rows, "power_w", "W")),
                ("Clocks held down", _throttled(rows)),
                ("Spread of the samples", _range(rows, "noise", "%", scale=100)),
                ("Hardware counters", _counters(run)),
            ]
        ),
        make_table(("flag", "what it says", "rows"), held, caption="Flags: what should be doubted", wordy=True)
        or make_paragraph(none),
        make_table(("status", "why", "rows"), lost, caption="Rows without a time that was measured", wordy=True),
    )


# In the reason of each predicted row; the table of all rows has its share.
_SHARE = re.compile(r", \d+ ?% of the nearer roof$")


def _label(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[name]) for name in ("case", "precision", "variant") if row.get(name))


def _describe_held(names: Sequence[str], total: int) -> str:
    return f"all {total}" if len(names) == total > 1 else _few(names)


def _numbers(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return sorted(value for row in rows if (value := measured_or_none(row.get(name))) is not None)


def _range(rows: Sequence[Mapping[str, Any]], name: str, unit: str, *, scale: float = 1.0) -> str:
    found = [scale * value for value in _numbers(rows, name)]
    if not found:
        return ""
    low, middle, high = found[0], found[len(found) // 2], found[-1]
    if f"{low:.3g}" == f"{high:.3g}":
        return f"{middle:.4g} {unit}"
    spec = ".3g" if high < 1e3 else ".0f"
    return f"{low:{spec}} to {high:{spec}} {unit}, middle {middle:{spec}}"


def _throttled(rows: Sequence[Mapping[str, Any]]) -> str:
    found = Counter(str(row["throttle"]) for row in rows if row["throttle"] not in (None, "", "none"))
    never = "never" if any(row["throttle"] == "none" for row in rows) else ""
    return ", ".join(f"{why} ({count} rows)" for why, count in found.most_common()) or never


def _counters(run: ReportRun) -> str:
    found = Counter(str(row["counters_status"]) for row in run.rows if row["counters_status"])
    return "; ".join(f"{said} ({count} rows)" for said, count in found.most_common(3))


# ---- method ----

_TIMERS = {
    "graph": "a CUDA graph of many launches between two events",
    "events": "a pair of events around the launches",
    "cupti": "CUPTI's timestamps of the kernels",
    "monotonic": "the monotonic clock around batches of launches on pinned threads",
}


def describe_method(run: ReportRun) -> Section | None:
    """How it was measured, in sentences about this run."""
    rows = [row for row in run.rows if row["status"] == "ok"]
    timers = [f"{name} ({_TIMERS[name]})" if name in _TIMERS else name for name in run.each("timer")]
    caches = run.each("cache")
    said = [
        "Time is the median of the samples; its interval holds it 95 times in 100. Bandwidth is effective: the bytes "
        "that must move (each operand once) over the time."
    ]
    if timers:
        said.append(f"Timer: {', '.join(timers)}.")
    samples = _numbers(rows, "samples")
    if samples:
        converged = sum(row["converged"] is True for row in rows)
        said.append(
            f"{samples[0]:.0f} to {samples[-1]:.0f} samples a row; sampling stops when the interval is as narrow as "
            f"asked, which {converged} of {len(rows)} rows reached."
        )
    if "cold" in caches:
        said.append(
            "Cold rows find their inputs outside the cache: launches walk over sets of buffers, or the cache is "
            "flushed by reading."
        )
    if "hot" in caches:
        said.append("Hot rows use one set of buffers; they are not held against memory.")
    checked = [row for row in rows if row["verified"] is True]
    if checked:
        said.append(
            f"{len(checked)} of {len(rows)} results agreed with a float64 reference before and after the timing."
        )
    said += _about_roofs(run, rows)
    return make_section("method", "Method", make_list(said))


def _about_roofs(run: ReportRun, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not any(row.get("attainable_gb_s") for row in rows):
        return ["No roofs are beside the rows: what they could have reached is not known."] if rows else []
    found = read_run_roofs(run.data)
    said = [
        "The limit of a row is the nearer of two roofs: what a plain stream of the same bytes and mix reaches on the "
        "same device (attainable), and the best arithmetic rate. Below half of both, the kernel limits."
    ]
    if found is not None:
        floor = f"; an empty launch takes {format_seconds(found.floor_seconds)}" if found.floor_seconds else ""
        checks = run.part("roofs").get("checks")
        again = (
            f"; {len(checks)} of them measured again for this run" if isinstance(checks, Sequence) and checks else ""
        )
        when = format_time(found.measured) if found.measured else "at a time not known"
        said.append(f"Roofs: {len(found.points)} streams, measured {when}{again}{floor}.")
    return said


# ---- again ----


def describe_command(run: ReportRun) -> Section | None:
    """How to do it again: the command, versions, environment."""
    told = run.told
    command = _command(run)
    build, host = run.part("build"), run.part("environment")
    versions = {**run.part("versions")}
    versions.setdefault("bwprof", ", ".join(run.each("bwprof_version")))
    set_ = [f"{name}={value}" for name, value in host.items() if not is_missing(value)]
    rest = make_facts(
        [
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
            ("Commit of the working directory", told.get("git_commit")),
            ("Commit of bwprof", told.get("commit")),
            ("Build", ", ".join(f"{name} {value}" for name, value in build.items() if value not in (None, ""))),
            ("Environment", ", ".join(set_) or ("no variable that changes what is measured" if host else None)),
            ("Seed of the inputs", told.get("seed")),
            ("Roofs", "none (--no-roofs)" if told.get("roofs_choice") is False else told.get("roofs_choice")),
        ]
    )
    first: list[Block | None] = [Code(command)] if command else [make_paragraph(_unknown_command(run))]
    return make_section("again", "How to reproduce it", *first, rest)


def _command(run: ReportRun) -> str:
    argv = run.told.get("argv")
    if not isinstance(argv, Sequence) or isinstance(argv, str):
        return ""
    name = "model" if run.told.get("model") is not None else "sweep"
    return " ".join(["bwprof", name, *(shlex.quote(str(word)) for word in argv)])


def _unknown_command(run: ReportRun) -> str:
    suite = run.told.get("suite")
    if suite:
        return f"The command is not recorded; the suite is {suite}: bwprof sweep --suite {suite}."
    return "The command is not recorded: the rows were measured by a function of Python's, or came as a table."
