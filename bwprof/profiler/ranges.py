"""`bwprof.Profiler`: time named ranges in a running program, in the steps that a schedule chooses, and trace them."""

from __future__ import annotations

import functools
import math
import os
import statistics
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from bwprof import _core, hardware
from bwprof.hardware import Device
from bwprof.measuring.callables import check_callable, is_generator_function, name_callable
from bwprof.results.atomic import atomic_write
from bwprof.results.exchange import Slice, TraceDocument, counter_points
from bwprof.text.parsing import (
    check_known,
    escape_controls,
    finite_or_none,
    parse_bool,
    parse_bytes,
    parse_int,
    parse_path,
    quote_text,
    repr_short,
)

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")
R = TypeVar("R")
RangeBytes = tuple[int, int]  # read and written
Event = tuple[float, float, int | None, int | None]  # begin and duration, ns; bytes read and written, if known
_SLACK_US = 2.0  # the distance of two CUDA events is a float of milliseconds
_FLOOR_RANGES = 101
_NUMBERS = ("total_ms", "time_ms", "time_ms_min", "time_ms_max", "bandwidth_gb_s")


class Phase(Enum):
    """What a step is for."""

    OFF = "off"
    WARM_UP = "warm-up"  # timed, and forgotten
    ACTIVE = "active"
    LAST = "last"  # of a cycle's active steps


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cycles of steps: `wait` without timing, `warmup` timed and forgotten, `active` timed.

    Parameters
    ----------
    wait, warmup, active : int
        Steps of each kind in a cycle; at least one is active.
    repeat : int
        Cycles; 0: without an end.
    skip_first : int
        Steps before the first cycle.

    Examples
    --------
    >>> schedule = Schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [schedule(step).value for step in range(5)]
    ['off', 'warm-up', 'active', 'last', 'off']
    """

    wait: int = 0
    warmup: int = 0
    active: int = 1
    repeat: int = 0
    skip_first: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), int(field.name == "active")
            number = parse_int(value, field.name)
            if number < least:
                raise ValueError(f"{field.name} is {repr_short(value)}: at least {least} is needed")
            object.__setattr__(self, field.name, number)

    def __call__(self, step: int) -> Phase:
        """Return the phase of a step, counted from 0; raise ValueError for anything but a whole number."""
        cycle, place = divmod(parse_int(step, "step") - self.skip_first, self.wait + self.warmup + self.active)
        if cycle < 0 or 0 < self.repeat <= cycle or place < self.wait:
            return Phase.OFF
        if place < self.wait + self.warmup:
            return Phase.WARM_UP
        return Phase.LAST if place == self.wait + self.warmup + self.active - 1 else Phase.ACTIVE


ScheduleArgument = Schedule | Mapping[str, int] | Callable[[int], Any] | None

# The names of torch.profiler.ProfilerAction.
_ACTIONS = {"NONE": Phase.OFF, "WARMUP": Phase.WARM_UP, "RECORD": Phase.ACTIVE, "RECORD_AND_SAVE": Phase.LAST}


def make_schedule(schedule: ScheduleArgument) -> Callable[[int], Phase] | None:
    """Return the schedule that an argument stands for; raise TypeError or ValueError for anything else."""
    if schedule is None or isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, Mapping):
        names = [field.name for field in fields(Schedule)]
        for name in schedule:
            check_known("name", name, names, where="schedule")
        return Schedule(**schedule)
    if not callable(schedule):
        needed = "a bwprof.Schedule is needed, a mapping of its numbers, or one of torch.profiler.schedule"
        raise TypeError(f"schedule is {repr_short(schedule)}: {needed}")
    choose = schedule

    def phase(step: int) -> Phase:
        action = choose(step)
        if isinstance(action, Phase):
            return action
        name = str(getattr(action, "name", action))
        if name not in _ACTIONS:
            allowed = ", ".join(_ACTIONS)
            raise ValueError(f"the schedule says {repr_short(action)} of step {step}: allowed are {allowed}")
        return _ACTIONS[name]

    return phase


def trace_text(device: str, track: str, events: Mapping[str, Sequence[Event]], most: int, *, exact: bool) -> str:
    """Return a trace of the latest `most` ranges, by name; `exact`: times are no floats of CUDA events."""
    begins = sorted(begin for runs in events.values() for begin, *_ in runs)
    left_out = max(0, len(begins) - most)
    zero = begins[left_out] if begins else 0.0
    slices: list[Slice] = []
    trace = TraceDocument({"ranges": len(begins), "left_out": left_out})
    process = trace.process(device)
    for name, runs in events.items():
        own = []
        for begin, ns, read, written in runs:
            if begin < zero:
                continue
            figures: dict[str, float | None] = {"bytes_read": read, "bytes_written": written}
            if read is not None and written is not None:
                figures["bandwidth_gb_s"] = _core.bandwidth_gb_s(read + written, ns / 1e9)
            own.append(Slice(name, (begin - zero) / 1e3, ns / 1e3, figures))
        slices += own
        trace.counter(process, f"GB/s {name}", counter_points(own, "bandwidth_gb_s"))
    trace.track(process, track, slices, slack_us=0.0 if exact else _SLACK_US)
    return trace.text()


class Range:
    """A named range of a `Profiler`: a context manager, and a decorator. It may be entered again while it runs.

    Where ranges of one name overlap (two coroutines), each end belongs to the latest begin: use different names.
    """

    __slots__ = ("_name", "_start", "_stop")

    def __init__(self, core: _core.Profiler, name: str) -> None:
        self._name, self._start, self._stop = name, core.start, core.finish

    def __enter__(self) -> Range:
        self._start(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop(self._name)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap a function, so that each call is a range; TypeError for one that a call does not run (coroutines)."""
        if not callable(function):
            raise TypeError(f"{repr_short(function)} is no function: a range is put around a function's calls")
        if is_generator_function(function):
            inside = f"put `with profiler.range('{quote_text(self._name)}'):` inside it"
            raise TypeError(f"a call of {name_callable(function)} does not run it: {inside}")

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return wrapped


class Profiler(hardware.Holder):
    """Times named ranges of a program, on the GPU's own clock or the processor's, without waiting.

    ``start(name)`` begins a range, and ``stop(name)`` ends the latest one of that name in its thread; ValueError where
    none runs. On a GPU they record one event each on the stream, and only reading the times waits for it. A range is
    the time from its first to its last work on that stream. Event pairs have a bias of a few microseconds:
    ranges near it have the flag `near_timer_floor`. Ranges may nest, overlap and repeat, in any thread; those of one
    name are joined. Ranges in a captured graph cannot be timed: reading them raises. Each run of a range takes 40 bytes
    until `reset`, or until the next cycle of a schedule.

    Parameters
    ----------
    enabled : bool
        False: the device stays untouched, and start and stop do nothing. May be set later.
    stream, device, backend : optional
        As in `bwprof.measure`; the stream is looked up when the Profiler is first enabled.
    capacity : int
        Unread ranges before more events are made.
    schedule : Schedule, mapping or callable, optional
        The program's steps that are timed: ``dict(wait=1, warmup=1, active=3, repeat=2)``, a `bwprof.Schedule`, or
        one of `torch.profiler.schedule`. The program calls `step` after each of them.
    nvtx : bool, optional
        None: tools that take NVTX ranges (nsys, ncu) get each range, in the domain ``bwprof``, with its bytes as
        payload (`set_bytes` before it), where one watches the process when the Profiler is first enabled. True: also
        warn (RuntimeWarning) where none does. False: no NVTX ranges.
    on_trace_ready : callable, optional
        Called with the Profiler after the active steps of a cycle, also by `close`.

    Examples
    --------
    >>> import bwprof
    >>> profiler = bwprof.Profiler(device="cpu")
    >>> with profiler.range("sum"):
    ...     _ = sum(range(1000))
    >>> profiler.set_bytes("sum", 8000, 0)
    >>> profiler.frame()["range"].tolist(), profiler.elapsed_ms("sum") > 0
    (['sum'], True)
    """

    __slots__ = (
        *("__weakref__", "_bytes", "_capacity", "_core", "_device", "_first_bytes", "_in_callback", "_nvtx", "_phase"),
        *("_ready", "_schedule", "_step", "_stream", "_where", "start", "stop"),
    )

    def __init__(
        self,
        *,
        enabled: bool = True,
        stream: Any = None,
        backend: str | None = None,
        device: Device = None,
        capacity: int = 4096,
        nvtx: bool | None = None,
        schedule: ScheduleArgument = None,
        on_trace_ready: Callable[[Profiler], object] | None = None,
    ) -> None:
        check_callable(on_trace_ready, "on_trace_ready")
        self._core = _core.Profiler()
        self._device: _core.Device | None = None
        self._where = (backend, device)
        self._stream = stream
        self._capacity = parse_int(capacity, "capacity")
        self._nvtx = None if nvtx is None else parse_bool(nvtx, "nvtx")
        self._bytes: dict[str, RangeBytes] = {}
        self._first_bytes: dict[str, RangeBytes] = {}
        self.start, self.stop = self._core.start, self._core.stop
        self._ready, self._step, self._phase, self._in_callback = on_trace_ready, 0, Phase.OFF, False
        choose_phase = make_schedule(schedule)
        self._schedule = choose_phase if enabled else None
        self.enabled = enabled and choose_phase is None
        if self._schedule is not None:
            self._enter(self._schedule(0))

    @property
    def enabled(self) -> bool:
        """Whether start and stop record ranges. Switching it off drops ranges that run."""
        return self._core.on

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value and self._device is None:
            self._open()
        self._core.switch(value)

    def _open(self) -> None:
        choice = hardware.choose_current(*self._where)
        with hardware.preserve_current_device(choice.backend):
            device = hardware.open_device(choice.backend, choice.index)
            try:
                has_streams = _core.backend_facts(choice.backend)["has_streams"]
                stream = hardware.stream_handle(self._stream, choice.index) if has_streams else 0
                self._core.open(device, stream, self._capacity, self._nvtx is not False)
            except BaseException:
                hardware.close_device(device)
                raise
        self._device = device
        for name, moved in self._bytes.items():
            self._core.move(name, *moved)
        if self._nvtx and not self._core.watched:
            warnings.warn(f"nvtx=True: {hardware.UNWATCHED}", RuntimeWarning, stacklevel=_find_stacklevel())

    def range(self, name: str) -> Range:
        """Return a range for ``with profiler.range("attention"): ...`` or ``@profiler.range("attention")``."""
        return Range(self._core, name)

    def set_bytes(self, name: str, bytes_read: int, bytes_written: int) -> None:
        """Set the bytes that one run of a range moves, for `bandwidth_gb_s`; TypeError for a name that is no text.

        They hold for a run in progress, for later ones, and for those before the first call.
        """
        moved = parse_bytes(bytes_read, "bytes_read"), parse_bytes(bytes_written, "bytes_written")
        self._bytes[_check_name(name)] = moved
        self._first_bytes.setdefault(name, moved)
        if self._device is not None:
            self._core.move(name, *moved)

    def times_ms(self, name: str) -> list[float]:
        """Return all times of a range, ms, in the order of their ends; ValueError for one that was never started."""
        return [ns / 1e6 for _, ns, _, _ in self._runs(name)]

    def elapsed_ms(self, name: str) -> float:
        """Return the median time of a range, ms; NaN before its first end."""
        return float(self._row(name)["time_ms"])

    def bandwidth_gb_s(self, name: str) -> float:
        """Return a range's bytes over its median time, GB/s (of bytes that vary: all over all time); NaN if unknown."""
        return float(self._row(name)["bandwidth_gb_s"])

    def frame(self) -> pd.DataFrame:
        """Return one row per range, in the order of their first start.

        Returns
        -------
        pandas.DataFrame
            range, count, total_ms, time_ms (median), time_ms_min, time_ms_max, bytes_read, bytes_written,
            bandwidth_gb_s, flags (`near_timer_floor`; `bytes_vary` where runs moved different bytes: then bytes_read
            and bytes_written are means, and bandwidth_gb_s is all bytes over all time); `attrs` hold timer, floor_us,
            backend and device.
        """
        import pandas as pd

        found = self._events()
        floor_ms = self._floor_ms() if found else float("nan")
        rows = [_make_row(name, events, self._bytes.get(name), floor_ms) for name, events in found.items()]
        columns = ["range", "count", *_NUMBERS[:4], "bytes_read", "bytes_written", "bandwidth_gb_s", "flags"]
        frame = pd.DataFrame(rows, columns=columns, dtype=object)  # a float holds no bytes beyond 2**53
        kinds = dict.fromkeys(_NUMBERS, "float64") | {"count": "Int64", "bytes_read": "Int64", "bytes_written": "Int64"}
        frame = frame.astype(kinds | {"range": "string", "flags": "string"})
        frame.attrs = {"timer": "", "floor_us": floor_ms * 1e3, "backend": "", "device": ""}
        if (device := self._device) is not None:
            clock, name = _core.backend_facts(device.backend)["range_clock"], hardware.facts(device)["name"]
            frame.attrs |= {"timer": clock, "backend": device.backend, "device": name}
        return frame

    def _floor_ms(self) -> float:
        """Return the time of an empty range: of two events on a GPU, of a `with` block on a CPU."""
        assert self._device is not None
        if not _core.backend_facts(self._device.backend)["runs_on_host"]:
            return self._core.floor_ns() / 1e6
        core = _core.Profiler()
        core.open(self._device, 0, _FLOOR_RANGES, nvtx=False)
        try:
            core.switch(True)
            for _ in range(_FLOOR_RANGES):
                with Range(core, ""):
                    pass
            return statistics.median(ns for _, ns, *_ in core.events()[""]) / 1e6
        finally:
            core.close()

    def report(self, style: str = "table") -> str:
        """Return the rows of `frame` as text.

        Parameters
        ----------
        style : {"table", "classic"}
            A row for each range, with at most 200 characters of its name; or a block for each, with its bytes, as the
            C library's `bwprof_profiler_print_report` writes it (a MB is 10^6 bytes). ValueError for another one.

        Examples
        --------
        >>> import bwprof
        >>> with bwprof.Profiler(device="cpu") as profiler:
        ...     profiler.set_bytes("GEMM FP16", 117448704, 28672)
        ...     with profiler.range("GEMM FP16"):
        ...         _ = sum(range(1000))
        ...     print(profiler.report(style="classic"))  # doctest: +ELLIPSIS
        === Bandwidth Profile: GEMM FP16 ===
        Elapsed time: ... ms
        Bytes read: 117448704 (117.45 MB)
        Bytes written: 28672 (0.03 MB)
        Bandwidth: ... GB/s
        =============================
        <BLANKLINE>
        """
        check_known("style", style, ["table", "classic"])
        from bwprof.text.terminal import format_ascii_table

        rows: list[Any] = self.frame().to_dict("records")
        if style == "classic":
            return "".join(map(_block, rows))
        lines = []
        for row in rows:
            cells = [f"{row[name]:.4g}" if row[name] == row[name] else "-" for name in _NUMBERS]
            lines.append([quote_text(row["range"]), str(row["count"]), *cells, row["flags"]])
        numbers = ["count", "total ms", "median ms", "min ms", "max ms", "GB/s"]
        return format_ascii_table(["range", *numbers, "flags"], lines, numbers=numbers)

    def write_chrome_trace(self, path: str | PathLike[str], *, most: int = 200_000) -> None:
        """Write the ranges into a file in the Trace Event format, for Perfetto (ui.perfetto.dev) or chrome://tracing.

        It has one track for the stream, more for ranges that overlap without nesting, and a counter of GB/s for each
        range with bytes. Waits for the last range.

        Parameters
        ----------
        path : path
            The file; an old one is replaced, and stays untouched where the new one cannot be written (OSError).
        most : int
            The number of ranges to write, the latest, from 1 on; the file says how many are left out.

        Examples
        --------
        >>> profiler.write_chrome_trace("trace.json")  # doctest: +SKIP
        """
        target = parse_path(path, "path")
        count = parse_int(most, "most")
        if count < 1:
            raise ValueError(f"most is {repr_short(most)}: at least 1 is needed")
        name, track, exact = "no device", "ranges", True
        if (device := self._device) is not None:
            facts = _core.backend_facts(device.backend)
            name = f"{device.backend}:{device.index} {hardware.facts(device)['name']}"
            stream = hardware.stream_handle(self._stream, device.index) if facts["has_streams"] else None
            track, exact = "thread" if stream is None else f"stream {stream:#x}", facts["runs_on_host"]
        atomic_write(target, trace_text(name, track, self._events(), count, exact=exact))

    def reset(self) -> None:
        """Forget all times and ranges; ranges that run continue."""
        if self._device is not None:
            self._core.forget()

    @property
    def step_num(self) -> int:
        """The number of steps so far."""
        return self._step

    def step(self) -> None:
        """End a step of the program; the schedule chooses what the next one is for.

        Without a schedule steps are only counted. The end of a warm-up, and that of a cycle, wait for the ranges that
        were timed. Ranges that run meanwhile continue, unless the next step is not timed: then they are dropped.
        """
        if self._in_callback:
            raise RuntimeError("on_trace_ready calls step(): the program does that, after each of its steps")
        before = self._phase
        self._step += 1
        if self._schedule is None:
            return
        phase = self._schedule(self._step)
        if before is Phase.LAST:
            self._call_back()
        warm = before is Phase.WARM_UP and phase is not Phase.WARM_UP
        if warm or (before is Phase.LAST and phase is not Phase.OFF):
            self.reset()
        self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        on = phase is not Phase.OFF
        if on and not self.enabled and self._phase is Phase.OFF and self._step:
            self.reset()
        if on != self.enabled:
            self.enabled = on
        self._phase = phase

    def _call_back(self) -> None:
        if self._ready is None:
            return
        self._in_callback = True
        try:
            self._ready(self)
        finally:
            self._in_callback = False

    def close(self) -> None:
        """Release the events and the device, and forget the times. A second call does nothing."""
        active = self._phase in (Phase.ACTIVE, Phase.LAST)
        self._phase, self._schedule = Phase.OFF, None
        try:
            if active:
                self._call_back()
        finally:
            self._core.close()
            if self._device is not None:
                hardware.close_device(self._device)
                self._device = None

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _events(self) -> dict[str, list[Event]]:
        """Return all runs by name; those before the first `set_bytes` have its bytes."""
        if self._device is None:
            return {}
        return {
            name: [
                event if event[2] is not None else (*event[:2], *self._first_bytes.get(name, (None, None)))
                for event in events
            ]
            for name, events in self._core.events().items()
        }

    def _runs(self, name: str) -> list[Event]:
        events = self._events()
        check_known("range", _check_name(name), events)
        return events[name]

    def _row(self, name: str) -> dict[str, Any]:
        return _make_row(name, self._runs(name), self._bytes.get(name), math.nan)


def _make_row(name: str, events: Sequence[Event], set_last: RangeBytes | None, floor_ms: float) -> dict[str, Any]:
    """Make a range's row; the bytes of its runs are means where they vary, and the rate is all bytes over all time."""
    from bwprof.roofs.limiter import FLOOR_FACTOR

    times = [ns / 1e6 for _, ns, _, _ in events]
    time_ms = statistics.median(times) if times else math.nan
    each = [(read, written) for _, _, read, written in events if read is not None and written is not None]
    varied = len(set(each)) > 1
    read, written = each[0] if each else set_last or (None, None)
    rate = math.nan
    if varied:
        totals = [sum(counts) for counts in zip(*each, strict=True)]
        rate = float(_core.bandwidth_gb_s(sum(totals), sum(times) / 1e3))
        read, written = (round(total / len(each)) for total in totals)
    elif read is not None and written is not None:
        rate = float(_core.bandwidth_gb_s(read + written, time_ms / 1e3))
    return {
        "range": name,
        "count": len(times),
        "total_ms": sum(times),
        "time_ms": time_ms,
        "time_ms_min": min(times, default=None),
        "time_ms_max": max(times, default=None),
        "bytes_read": read,
        "bytes_written": written,
        "bandwidth_gb_s": rate,
        "flags": ";".join(["near_timer_floor"] * (time_ms < FLOOR_FACTOR * floor_ms) + ["bytes_vary"] * varied),
    }


def _check_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a range's name is a str, not {repr_short(name)}")
    return name


def _block(row: dict[str, Any]) -> str:
    """Format a range in the classic style, as csrc/api/readings.c does."""
    times = f" (median of {row['count']})" if row["count"] > 1 else ""
    name = escape_controls(row["range"]).replace("\n", "\\x0a").replace("\t", "\\x09")
    time, fast = (finite_or_none(row[figure]) for figure in ("time_ms", "bandwidth_gb_s"))
    lines = [
        f"=== Bandwidth Profile: {name} ===",
        f"Elapsed time: {'unknown' if time is None else f'{time:.3f}'} ms{times}",
    ]
    for label, moved in (("read", row["bytes_read"]), ("written", row["bytes_written"])):
        if isinstance(moved, int):
            mean = ", mean" if "bytes_vary" in row["flags"] else ""
            lines.append(f"Bytes {label}: {moved} ({moved / 1e6:.2f} MB{mean})")
    lines.append("Bandwidth: unknown" if fast is None else f"Bandwidth: {fast:.2f} GB/s")
    return "\n".join([*lines, "=" * 29, ""])


def _find_stacklevel() -> int:
    """Return the `stacklevel` of the first caller outside this package, for `warnings.warn`."""
    package = os.path.dirname(_core.__file__) + os.sep
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return level
