"""Write rows for other tools: Prometheus' text format and the Trace Event format (Perfetto, chrome://tracing).

The formats: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format and
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from bwprof import _core
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.parsing import finite_or_none

OPENING = "# HELP bwprof_"  # of such a file

# What tells rows apart, beside their operations' parameters.
_LABELS = ("case", "operation", "precision", "variant", "cache", "timer", "backend", "device", "device_uuid")


def prometheus_text(rows: Iterable[RowDict]) -> str:
    """The document: of rows that no label tells apart the last one; NaN for a figure that a case does not have.

    Units are Prometheus' own: bytes, seconds, ratios.

    Examples
    --------
    >>> print(text([{"case": "decode", "status": "ok", "bandwidth_gb_s": 3747.0}]).splitlines()[2])
    bwprof_bandwidth_bytes_per_second{case="decode"} 3747000000000.0
    """
    series = {_labels(row): row for row in rows}
    lines: list[str] = []
    for name, told, value in _FIGURES:
        lines += [f"# HELP bwprof_{name} {told}", f"# TYPE bwprof_{name} gauge"]
        lines += [f"bwprof_{name}{_braces(labels)} {_number(value(row))}" for labels, row in series.items()]
    lines += ["# HELP bwprof_flag A reason to doubt a case's row, 1 where it is there.", "# TYPE bwprof_flag gauge"]
    for labels, row in series.items():
        lines += [f"bwprof_flag{_braces((*labels, ('flag', flag)))} 1" for flag in _flags(row)]
    return "\n".join(lines) + "\n"


def _scaled(column: str, factor: float) -> Callable[[RowDict], float | None]:
    def value(row: RowDict) -> float | None:
        found = finite_or_none(row.get(column)) if row.get("status") == "ok" else None
        return None if found is None else found * factor

    return value


def _flags(row: RowDict) -> list[str]:
    return list(dict.fromkeys(flag for flag in _utf8(_known(row, "flags") or "").split(";") if flag))


def _measured_at(row: RowDict) -> float | None:
    try:
        return datetime.fromisoformat(str(_known(row, "timestamp"))).timestamp()
    except ValueError:
        return None


_FIGURES: tuple[tuple[str, str, Callable[[RowDict], float | None]], ...] = (
    (
        "bandwidth_bytes_per_second",
        "Compulsory bytes of a launch over its median time.",
        _scaled("bandwidth_gb_s", 1e9),
    ),
    (
        "attainable_ratio",
        "That bandwidth over what a plain stream of the same bytes reaches, 1 being all of it.",
        _scaled("pct_attainable", 1e-2),
    ),
    ("launch_seconds", "Median time of a launch.", _scaled("time_ms", 1e-3)),
    (
        "case_ok",
        "1 for a case that was measured, 0 for one that failed or was skipped.",
        lambda row: row.get("status") == "ok",
    ),
    ("case_flags", "How many reasons there are to doubt a case's row.", lambda row: len(_flags(row))),
    ("case_timestamp_seconds", "When a case was measured, Unix time.", _measured_at),
)


def _known(row: Mapping[str, object], name: str) -> object:
    value = row.get(name)
    return None if formatting.is_missing(value) else value


def _labels(row: RowDict) -> tuple[tuple[str, str], ...]:
    found = [(name, _known(row, name)) for name in (*_LABELS, *schema.param_names())]
    return tuple((name, _utf8(value)) for name, value in found if value not in (None, ""))


def _utf8(value: object) -> str:
    """As it is written: what differs in surrogates alone is one series, since two of a name void the whole file."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _braces(labels: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    """A label's value: three escapes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float | None) -> str:
    """As Go reads floats."""
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value) if isinstance(value, bool) else value)


@dataclass(frozen=True, slots=True)
class Slice:
    """What took some time on a track; its figures are shown when it is clicked at."""

    name: str
    begin_us: float
    duration_us: float
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end_us(self) -> float:
        """When it was over."""
        return self.begin_us + self.duration_us


class TraceDocument:
    """A document that grows by processes, tracks and counters.

    Parameters
    ----------
    about : mapping, optional
        What is said of the whole: name -> value.

    Examples
    --------
    >>> trace = TraceDocument()
    >>> device = trace.process("a device")
    >>> trace.track(device, "a stream", [Slice("gemm", 0.0, 31.352, {"bandwidth_gb_s": 3747.07})])
    >>> '"dur":31.352' in trace.text()
    True
    """

    def __init__(self, about: Mapping[str, Any] | None = None) -> None:
        self._about = {"made_by": f"bwprof {_core.__version__}"} | _plain(about or {})
        self._events: list[str] = []
        self._processes = 0
        self._tracks = 0

    def process(self, name: str) -> int:
        """A new group of tracks; its number."""
        self._processes += 1
        self._name("process_name", name, self._processes)
        return self._processes

    def track(self, process: int, name: str, slices: Iterable[Slice], *, slack_us: float = 0.0) -> None:
        """A track, and beside it as many more as slices need that overlap without one lying in the other.

        `slack_us`: how exact their ends are, so that what should touch does.
        """
        for number, lane in enumerate(_lanes(slices, slack_us)):
            self._tracks += 1
            self._name("thread_name", f"{name}, overlapping {number}" if number else name, process, self._tracks)
            self._name("thread_sort_index", self._tracks, process, self._tracks)
            for one in lane:
                where = {"pid": process, "tid": self._tracks, "ts": _us(one.begin_us), "dur": _us(one.duration_us)}
                self._add({"name": one.name, "cat": "bwprof", "ph": "X"} | where, one.figures)

    def counter(self, process: int, name: str, points: Iterable[tuple[float, float]]) -> None:
        """A figure over time: (us, value), which holds until the next one; nothing that is no number."""
        for when, value in points:
            if finite_or_none(value) is not None:
                self._add({"name": name, "ph": "C", "pid": process, "ts": _us(when)}, {"value": value})

    def text(self) -> str:
        """The document."""
        head = f'{{"displayTimeUnit":"ms","otherData":{json.dumps(self._about)},"traceEvents":[\n'
        return head + ",\n".join(self._events) + "\n]}\n"

    def _name(self, kind: str, name: str | int, process: int, track: int = 0) -> None:
        key = "sort_index" if isinstance(name, int) else "name"
        self._add({"name": kind, "ph": "M", "pid": process, "tid": track, "ts": 0}, {key: name})

    def _add(self, event: dict[str, Any], figures: Mapping[str, Any]) -> None:
        self._events.append(json.dumps(event | {"args": _plain(figures)}, separators=(",", ":"), allow_nan=False))


def counter_points(slices: Iterable[Slice], figure: str) -> list[tuple[float, float]]:
    """A counter's points: a figure of the slices while they last, the latest of several, and 0 between them."""
    known = [(one, value) for one in slices if (value := finite_or_none(one.figures.get(figure))) is not None]
    known.sort(key=lambda one: one[0].begin_us)
    begins = [(one.begin_us, 1, number) for number, (one, _) in enumerate(known)]
    ends = [(one.end_us, 2 * (one.end_us == one.begin_us), number) for number, (one, _) in enumerate(known)]
    points: list[tuple[float, float]] = []
    running: list[int] = []
    over: set[int] = set()
    for when, kind, number in sorted(begins + ends):  # what ends makes way for what begins then
        if kind == 1:
            running.append(number)
        else:
            over.add(number)
        while running and running[-1] in over:
            running.pop()
        points.append((when, known[running[-1]][1] if running else 0.0))
    return points


def _us(value: float) -> float:
    return round(value, 3)


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can hold and somebody knows."""
    found: dict[str, Any] = {}
    for name, value in figures.items():
        number = finite_or_none(value)
        if isinstance(value, (str, bool)):
            found[name] = value
        elif number is not None:
            found[name] = int(value) if isinstance(value, int) else number
    return found


@dataclass(slots=True)
class _Placed:
    """A slice with an end that may be moved a little."""

    slice: Slice
    end_us: float


def _lanes(slices: Iterable[Slice], slack_us: float) -> list[list[Slice]]:
    """The slices in as few rows as it takes so that of two in a row one lies in the other, or they do not touch."""
    lanes: list[tuple[list[_Placed], list[_Placed]]] = [([], [])]  # all, and those that a next one may lie in
    for one in sorted(slices, key=lambda one: (one.begin_us, -one.duration_us)):
        placed = _Placed(one, one.end_us)
        lane = next((lane for lane in lanes if _fits(placed, lane[1], slack_us)), None)
        if lane is None:
            lanes.append(lane := ([], []))
        for slices_of in lane:
            slices_of.append(placed)
    return [[replace(one.slice, duration_us=one.end_us - one.slice.begin_us) for one in lane] for lane, _ in lanes]


def _fits(one: _Placed, around: list[_Placed], slack_us: float) -> bool:
    """Whether it lies in the innermost slice that still runs, if any does; moves ends by `slack_us` for that."""
    begin = one.slice.begin_us
    while around and one.end_us > around[-1].end_us and around[-1].end_us - begin <= slack_us:
        before = around.pop()
        before.end_us = min(before.end_us, max(begin, before.slice.begin_us))
    if around and one.end_us > around[-1].end_us + slack_us:
        return False
    if around:
        one.end_us = min(one.end_us, around[-1].end_us)
    return True
