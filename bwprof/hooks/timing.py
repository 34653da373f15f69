"""How long parts of a PyTorch program's call take: by kernels' timestamps, by pairs of events, by a CPU's clock."""

from __future__ import annotations

import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from bwprof import _core, hardware
from bwprof.text import shown

WHOLE = "whole"  # the name of the call; its parts' are their own
_FLOOR = "floor"
_PREFIX = "bwprof:"
_KERNELS, _EVENTS = "kernels", "events"
_HOLD_MORE = 1.5  # than the host took to enqueue a call
_HOLD_MOST_S = 0.5
_TRIES = 3

# Around it, one function is told of each part's beginning, by name, and the other of its end.
Telling = Callable[[Callable[[str], object], Callable[[str], object]], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Taken:
    """Of each part ms in each call, by name, and how often it ran in each; what took them, and what to say of them."""

    times_ms: dict[str, list[float]]
    counts: dict[str, list[int]]
    timer: str
    floor_ms: float | None = None
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def timed(
    torch: Any,
    device: _core.Device,
    place: Any,
    call: Callable[[], None],
    telling: Telling,
    runs: int,
    timer: str | None,
) -> Taken:
    """So many calls.

    Raises
    ------
    ValueError
        For a timer that the device does not have, and where the stream is captured.
    """
    facts = _core.backend_facts(device.backend)
    offered = [str(facts["range_clock"])] if facts["runs_on_host"] else [_KERNELS, _EVENTS]
    if timer is not None and timer not in offered:
        raise ValueError(f"timer is {shown(timer)}: this device has {', '.join(offered)}")
    if facts["runs_on_host"]:
        return _Marks(torch, device, place, call, on_host=True).take(telling, runs)
    if torch.cuda.is_current_stream_capturing():
        raise ValueError("the stream is captured into a graph: nothing on it can be timed")
    device.release_profilers()  # what counts or traces here would keep PyTorch from it
    why = ""
    if timer != _EVENTS:
        found, why = _by_kernels(torch, place, call, telling, runs)
        if found is not None:
            return found
        if timer is not None:
            raise _core.UnavailableError(f"timer {timer} cannot be had: {why}")
    taken = _Marks(torch, device, place, call, on_host=False).take(telling, runs)
    return replace(taken, notes=(*taken.notes, why)) if why else taken


# ---- kernels' timestamps ----


def _by_kernels(
    torch: Any, place: Any, call: Callable[[], None], telling: Telling, runs: int
) -> tuple[Taken | None, str]:
    """What `torch.profiler` sees, or why it sees nothing; what the model raises, as it is."""
    profiler = torch.profiler
    kinds = profiler.ProfilerActivity
    running: list[tuple[str, Any]] = []

    def start(name: str) -> None:
        part = profiler.record_function(_PREFIX + name)
        part.__enter__()
        running.append((name, part))

    def stop(name: str) -> None:
        if running and running[-1][0] == name:
            running.pop()[1].__exit__(None, None, None)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that events of several cycles are not kept: there is one
        prof = profiler.profile(activities=[kinds.CPU, kinds.CUDA])
        try:
            prof.start()
        except (RuntimeError, AssertionError) as error:  # somebody else profiles
            return None, f"torch.profiler cannot be started: {error}"
        try:
            with telling(start, stop):
                for _ in range(runs):
                    start(WHOLE)
                    try:
                        call()
                    finally:
                        stop(WHOLE)
                torch.cuda.synchronize(place)
        finally:
            prof.stop()
        events = list(prof.events() or ())
    return _sorted_out(events, runs)


def _sorted_out(events: list[Any], runs: int) -> tuple[Taken | None, str]:
    parts = [event for event in events if event.name.startswith(_PREFIX) and str(event.device_type).endswith("CPU")]
    begins = sorted(event.time_range.start for event in parts if event.name == _PREFIX + WHOLE)
    found: dict[str, list[float]] = {}
    counts: dict[str, list[int]] = {}
    for event in parts:
        run = bisect_right(begins, event.time_range.start) - 1
        name = event.name.removeprefix(_PREFIX)
        if 0 <= run < runs:
            found.setdefault(name, [0.0] * runs)[run] += sum(_kernels_us(event)) / 1e3
            counts.setdefault(name, [0] * runs)[run] += 1
    if len(begins) != runs or not sum(found[WHOLE]):
        return None, "torch.profiler saw no kernel"
    return Taken(found, counts, _KERNELS), ""


def _kernels_us(event: Any) -> Iterator[float]:
    """Of what a range of the host's launched, and the ranges inside it."""
    yield from (float(kernel.duration) for kernel in event.kernels)
    for inner in event.cpu_children:
        yield from _kernels_us(inner)


# ---- marks on the stream ----


class _Marks:
    """Marks before and after each part; on a GPU the stream does not begin before the host has enqueued a call."""

    def __init__(
        self, torch: Any, device: _core.Device, place: Any, call: Callable[[], None], *, on_host: bool
    ) -> None:
        self._device, self._place, self._call = device, place, call
        self._cuda = None if on_host else torch.cuda
        self._late = False

    def take(self, telling: Telling, runs: int) -> Taken:
        """So many calls, after one of which the host's time is learned."""
        core = _core.Profiler()
        core.open(self._device, 0 if self._cuda is None else hardware.stream_handle(None, self._device.index))
        each: list[dict[str, list[float]]] = []
        late = False
        try:
            core.switch(True)
            with telling(core.start, core.finish):
                self._wait()
                host_s = self._enqueued(core, 0.0)
                for _ in range(runs):
                    self._run(core, host_s)
                    late |= self._late
                    each.append({name: [ns / 1e6 for ns in times] for name, times in core.read().items()})
        finally:
            core.close()
        floor_ms = median(found[_FLOOR][0] for found in each)
        bias_ms = 0.0 if self._cuda is None else floor_ms
        names = dict.fromkeys(name for found in each for name, times in found.items() if times and name != _FLOOR)
        times_ms = {
            name: [sum(max(0.0, ms - bias_ms) for ms in found.get(name, ())) for found in each] for name in names
        }
        counts = {name: [len(found.get(name, ())) for found in each] for name in names}
        clock = str(_core.backend_facts(self._device.backend)["range_clock"])
        notes = ("the GPU waited for the host in a call: its times hold some of that",) if late else ()
        return Taken(times_ms, counts, clock, floor_ms, () if self._cuda is None else ("event_bias",), notes)

    def _run(self, core: _core.Profiler, host_s: float) -> None:
        hold_s = host_s * _HOLD_MORE
        for _ in range(_TRIES):
            core.forget()
            self._enqueued(core, hold_s)
            if not self._late:
                return
            hold_s *= 2

    def _enqueued(self, core: _core.Profiler, hold_s: float) -> float:
        """One call behind a stream that is held back for so long; the seconds that the host took for it."""
        passed = self._hold(hold_s)
        began = time.perf_counter()
        core.start(WHOLE)
        try:
            self._call()
        finally:
            core.finish(WHOLE)
        took = time.perf_counter() - began
        core.start(_FLOOR)
        core.finish(_FLOOR)
        self._late = passed is not None and bool(passed.query())
        self._wait()
        return took

    def _hold(self, seconds: float) -> Any:
        """Keep the stream from beginning; an event that passes when it does. None where nothing can be held."""
        if self._cuda is None or not seconds or not hasattr(self._cuda, "_sleep"):
            return None
        rate = getattr(self._cuda.get_device_properties(self._place), "clock_rate", 2_000_000) * 1e3
        self._cuda._sleep(int(min(seconds, _HOLD_MOST_S) * rate))
        passed = self._cuda.Event()
        passed.record()
        return passed

    def _wait(self) -> None:
        if self._cuda is not None:
            self._cuda.synchronize(self._place)
