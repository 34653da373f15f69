"""Other tools: write Prometheus' text format and traces (Perfetto, chrome://tracing), recognize profilers' files.

The formats: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format and
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from bwprof import _core
from bwprof.results import pairs, schema
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.parsing import describe_unknown, finite_or_none, parse_bytes, quote_text, repr_short

OPENING = "# HELP bwprof_"  # of a Prometheus file

# Labels, beside the operations' parameters.
_LABELS = ("case", "operation", "precision", "variant", "cache", "timer", "backend", "device", "device_uuid")


def prometheus_text(rows: Iterable[RowDict]) -> str:
    """Return rows in Prometheus' text format: the last row of each series; NaN for a missing value.

    The units are Prometheus' own: bytes, seconds, ratios.
    """
    series = {_labels(row): row for row in rows}
    lines: list[str] = []
    for name, text, value in _FIGURES:
        lines += [f"# HELP bwprof_{name} {text}", f"# TYPE bwprof_{name} gauge"]
        lines += [f"bwprof_{name}{_braces(labels)} {_number(value(row))}" for labels, row in series.items()]
    lines += ["# HELP bwprof_flag 1 for each reason to doubt a case's row.", "# TYPE bwprof_flag gauge"]
    for labels, row in series.items():
        lines += [f"bwprof_flag{_braces((*labels, ('flag', flag)))} 1" for flag in _flags(row)]
    return "\n".join(lines) + "\n"


def _scaled(column: str, factor: float) -> Callable[[RowDict], float | None]:
    def value(row: RowDict) -> float | None:
        number = finite_or_none(row.get(column)) if row.get("status") == "ok" else None
        return None if number is None else number * factor

    return value


def _flags(row: RowDict) -> list[str]:
    return list(dict.fromkeys(_utf8(flag) for flag in pairs.split_flags(row) if flag))


def _measured_at(row: RowDict) -> float | None:
    try:
        return datetime.fromisoformat(str(row.get("timestamp"))).timestamp()
    except ValueError:
        return None


_FIGURES: tuple[tuple[str, str, Callable[[RowDict], float | None]], ...] = (
    ("bandwidth_bytes_per_second", "Compulsory bytes of a launch / its median time.", _scaled("bandwidth_gb_s", 1e9)),
    ("attainable_ratio", "Bandwidth / that of a plain stream of the same bytes.", _scaled("pct_attainable", 1e-2)),
    ("launch_seconds", "Median time of a launch.", _scaled("time_ms", 1e-3)),
    ("case_ok", "1 for a measured case, 0 for a failed or skipped one.", lambda row: row.get("status") == "ok"),
    ("case_flags", "Number of reasons to doubt a case's row.", lambda row: len(_flags(row))),
    ("case_timestamp_seconds", "Unix time of a case's measurement.", _measured_at),
)


def _labels(row: RowDict) -> tuple[tuple[str, str], ...]:
    values = [(name, row.get(name)) for name in (*_LABELS, *schema.param_names())]
    return tuple((name, _utf8(value)) for name, value in values if value != "" and not formatting.is_missing(value))


def _utf8(value: object) -> str:
    """Replace surrogates as the file does, because two series of one name invalidate it."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _braces(labels: Iterable[tuple[str, str]]) -> str:
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
    return "{" + ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels) + "}"


def _number(value: float | None) -> str:
    return "NaN" if value is None else repr(+value)  # 1 for True


@dataclass(frozen=True, slots=True)
class Slice:
    """A span of time on a track; Perfetto shows its figures on a click."""

    name: str
    begin_us: float
    duration_us: float
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end_us(self) -> float:
        return self.begin_us + self.duration_us


class TraceDocument:
    """A trace that grows by processes, tracks and counters; `about` holds facts of the whole trace."""

    def __init__(self, about: Mapping[str, Any] | None = None) -> None:
        self._about = {"made_by": f"bwprof {_core.__version__}"} | _plain(about or {})
        self._events: list[str] = []
        self._processes = 0
        self._tracks = 0

    def process(self, name: str) -> int:
        """Add a group of tracks; return its number."""
        self._processes += 1
        self._name("process_name", name, self._processes)
        return self._processes

    def track(self, process: int, name: str, slices: Iterable[Slice], *, slack_us: float = 0.0) -> None:
        """Add a track, and more beside it for slices that overlap without nesting.

        Ends may be off by `slack_us`.
        """
        for number, lane in enumerate(_lanes(slices, slack_us)):
            self._tracks += 1
            self._name("thread_name", f"{name}, overlapping {number}" if number else name, process, self._tracks)
            self._name("thread_sort_index", self._tracks, process, self._tracks)
            for begin, end, one in lane:
                where = {"pid": process, "tid": self._tracks, "ts": round(begin, 3), "dur": round(end - begin, 3)}
                self._add({"name": one.name, "cat": "bwprof", "ph": "X"} | where, one.figures)

    def counter(self, process: int, name: str, points: Iterable[tuple[float, float]]) -> None:
        """Add a counter: points of (us, number), each valid until the next one; others are left out."""
        for when, value in points:
            if finite_or_none(value) is not None:
                self._add({"name": name, "ph": "C", "pid": process, "ts": round(when, 3)}, {"value": value})

    def text(self) -> str:
        """Return the document."""
        head = f'{{"displayTimeUnit":"ms","otherData":{json.dumps(self._about)},"traceEvents":[\n'
        return head + ",\n".join(self._events) + "\n]}\n"

    def _name(self, kind: str, name: str | int, process: int, track: int = 0) -> None:
        key = "sort_index" if isinstance(name, int) else "name"
        self._add({"name": kind, "ph": "M", "pid": process, "tid": track, "ts": 0}, {key: name})

    def _add(self, event: dict[str, Any], figures: Mapping[str, Any]) -> None:
        self._events.append(json.dumps(event | {"args": _plain(figures)}, separators=(",", ":"), allow_nan=False))


def counter_points(slices: Iterable[Slice], figure: str) -> list[tuple[float, float]]:
    """Return a counter's points: the figure of the latest slice that runs, 0 between slices."""
    known = [(one, value) for one in slices if (value := finite_or_none(one.figures.get(figure))) is not None]
    known.sort(key=lambda one: one[0].begin_us)
    begins = [(one.begin_us, 1, number) for number, (one, _) in enumerate(known)]
    # What ends makes way for what begins then.
    ends = [(one.end_us, 2 * (one.end_us == one.begin_us), number) for number, (one, _) in enumerate(known)]
    points: list[tuple[float, float]] = []
    running: dict[int, float] = {}
    for when, kind, number in sorted(begins + ends):
        if kind == 1:
            running[number] = known[number][1]
        else:
            del running[number]
        points.append((when, next(reversed(running.values()), 0.0)))
    return points


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are known and that JSON allows."""
    known = {
        name: value
        for name, value in figures.items()
        if isinstance(value, (str, bool)) or finite_or_none(value) is not None
    }
    return {name: value.item() if hasattr(value, "item") else value for name, value in known.items()}


_Placed = list[Any]  # begin and end in us, the end may move, and the slice


def _lanes(slices: Iterable[Slice], slack_us: float) -> list[list[_Placed]]:
    """Distribute slices over as few rows as possible, so that any two in a row nest or do not overlap."""
    lanes: list[tuple[list[_Placed], list[_Placed]]] = []  # all, and those that a next one may lie in
    for one in sorted(slices, key=lambda one: (one.begin_us, -one.duration_us)):
        placed: _Placed = [one.begin_us, one.end_us, one]
        lane = next((lane for lane in lanes if _fits(placed, lane[1], slack_us)), None)
        if lane is None:
            lanes.append(lane := ([], []))
        for slices_of in lane:
            slices_of.append(placed)
    return [lane for lane, _ in lanes] or [[]]


def _fits(placed: _Placed, running: list[_Placed], slack_us: float) -> bool:
    """Return whether a slice nests in the innermost running slice, or none runs; ends move by up to `slack_us`."""
    begin, end, _ = placed
    while running and end > running[-1][1] and running[-1][1] - begin <= slack_us:
        ended = running.pop()
        ended[1] = min(ended[1], max(begin, ended[0]))
    if running and end > running[-1][1] + slack_us:
        return False
    if running:
        placed[1] = min(end, running[-1][1])
    return True


CallBytes = tuple[int, int, int | None]


def parse_call_bytes(name: str, value: Any) -> CallBytes:
    """Return the bytes that one call reads and writes, and its FLOPs; ValueError for anything else."""
    parts = ("bytes_read", "bytes_written", "flops")
    if all(hasattr(value, part) for part in parts):  # a bwprof.Cost
        values = [getattr(value, part) for part in parts]
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        values = list(value)
    else:
        raise ValueError(f"bytes of {quote_text(name)} are {repr_short(value)}: (bytes_read, bytes_written) are needed")
    numbers = [parse_bytes(value, f"{part} of {quote_text(name)}") for part, value in zip(parts, values, strict=False)]
    return numbers[0], numbers[1], numbers[2] if numbers[2:] else None


def mean_call_bytes(name: str, value: Any, calls: float) -> tuple[CallBytes, bool]:
    """Return the mean bytes per call, and whether calls differ: a list has each call's own bytes."""
    entries = value if isinstance(value, (tuple, list)) else ()
    if not entries or not all(isinstance(entry, (tuple, list)) or hasattr(entry, "bytes_read") for entry in entries):
        return parse_call_bytes(name, value), False
    if len(value) != calls:
        count = formatting.plural(len(value), "call")
        raise ValueError(f"bytes of {quote_text(name)} are those of {count}: it has {calls:g}")
    calls_bytes = [parse_call_bytes(name, entry) for entry in value]
    read, written, flops = zip(*calls_bytes, strict=True)
    total = None if None in flops else round(sum(flops) / calls)
    return (round(sum(read) / calls), round(sum(written) / calls), total), len(set(calls_bytes)) > 1


def matches_pattern(name: str, pattern: str) -> bool:
    """Return whether a name is equal to a pattern or matches it ("*gemm*")."""
    return name == pattern or fnmatchcase(name, pattern)


def match_patterns(patterns: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    """Return, for each name with bytes, its key in the mapping: the name itself, else the first pattern that matches.

    Raise ValueError for a key that no name matches, with the nearest name.
    """
    keys: dict[str, str] = {}
    for pattern in patterns:
        matching = [name for name in names if matches_pattern(name, pattern)]
        if not matching:
            raise ValueError(describe_unknown("name", pattern, names, where="bytes"))
        for name in matching:
            keys.setdefault(name, name if name in patterns else pattern)
    return keys


FORMAT = "bwprof-profile"  # of the JSON files of such rows

_THEIRS = {"Kernel Name", "KernelName", "Kernel_Name"}
_HINT = "; it looks like a profiler's file: bwprof.importers.load(path) and bwprof diagnose FILE read those"


def is_table(names: Sequence[str]) -> bool:
    """Return whether these are the columns of rows that bwprof made from another profiler's file."""
    return "kernel" in names[:1] and {"case", "status"} <= {*names}


def is_document(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON document has such rows."""
    return document.get("format") == FORMAT


def describe_table(names: Sequence[str]) -> str:
    """Return how to read a table that is no result file; "" if unknown."""
    is_profile = is_table(names) or _THEIRS & set(names) or (names and names[0].startswith("=="))
    return _HINT if is_profile else ""


def describe_document(document: Any) -> str:
    """Return how to read a JSON document that is no result file; "" if unknown."""
    is_profile = isinstance(document, Mapping) and (is_document(document) or "traceEvents" in document)
    return _HINT if is_profile else ""
