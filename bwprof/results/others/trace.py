"""Time lines as documents in the Trace Event format, which Perfetto and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bwprof import _core
from bwprof.text import finite_number


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


class Trace:
    """A document that grows by processes, tracks and counters.

    Parameters
    ----------
    about : mapping, optional
        What is said of the whole: name -> value.

    Examples
    --------
    >>> trace = Trace()
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
            if finite_number(value) is not None:
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


def pulses(slices: Iterable[Slice], figure: str) -> list[tuple[float, float]]:
    """A counter's points: a figure of the slices while they last, the latest of several, and 0 between them."""
    known = [(one, value) for one in slices if (value := finite_number(one.figures.get(figure))) is not None]
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
        number = finite_number(value)
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
