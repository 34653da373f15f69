"""Time calls of PyTorch modules, and state the bytes that they must move.

Times come from kernels' timestamps, from pairs of events, or from a CPU's clock. Nothing here imports PyTorch: whatever
has a tensor's attributes is a tensor.
"""

from __future__ import annotations

import time
import warnings
from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from math import prod
from statistics import fmean, median
from typing import Any

from bwprof import _core, hardware
from bwprof.measuring import grade
from bwprof.measuring.callables import iterate_leaves
from bwprof.measuring.row import Context, describe_origin
from bwprof.results import schema
from bwprof.results.row import Row
from bwprof.roofs.limiter import ABOVE_ROOF
from bwprof.roofs.model import NOISE_LIMIT
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import repr_short


@dataclass(slots=True)
class TimedPart:
    """A part of a program: how long it took each time, ms, and what it moved and computed at least; None: not known."""

    name: str
    kind: str
    times_ms: Sequence[float]
    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    precision: str | None = None
    timer: str = ""
    floor_ms: float | None = None  # of a time
    notes: Sequence[str] = ()
    flags: Sequence[str] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    alike: bool = False  # each time it did the same


def make_row(ran: TimedPart, context: Context) -> Row:
    """A part's row. It is held against DRAM; where caches may have held what it read, `not_cold` says so."""
    row = schema.empty_row()
    known = [int(count) for count in (ran.bytes_read, ran.bytes_written) if count is not None]
    moved = sum(known)
    row.update(
        operation=ran.kind or None,
        case=ran.name,
        precision=ran.precision,
        cache="cold",
        timer=ran.timer or None,
        samples=len(ran.times_ms),
        bytes_read=ran.bytes_read,
        bytes_written=ran.bytes_written,
        footprint_bytes=moved if known else None,
        flops=ran.flops,
        timer_floor_us=None if ran.floor_ms is None else ran.floor_ms * 1e3,
        arithmetic_intensity=ran.flops / moved if ran.flops is not None and moved else None,
        **describe_origin(context),
    )
    row.update(ran.labels)
    notes = list(ran.notes)
    flags = list(ran.flags)
    if not ran.times_ms:
        row.update(status="predicted", reason="; ".join(notes) or None)
        return Row(row)
    time_ms = median(ran.times_ms)
    row.update(status="ok", time_ms=time_ms, time_ms_min=min(ran.times_ms))
    if ran.alike:
        statistics = _core.statistics(array("d", [time * 1e6 for time in ran.times_ms]))
        row["noise"] = grade.nan_to_none(statistics["noise"])
        grade.flag_patterns(statistics, flags, notes)
    if time_ms > 0:
        over_ms = fmean(ran.times_ms) if "bytes_vary" in flags else time_ms  # bytes and FLOPs are means there
        row["bandwidth_gb_s"] = _core.bandwidth_gb_s(moved, over_ms / 1e3) if moved else None
        row["tflops"] = None if ran.flops is None else ran.flops / over_ms / 1e9
        grade.grade_row(row, context.facts, context.roofs)
        _doubt(row, context, flags, notes)
    row.update(flags=";".join(flags), reason="; ".join(notes) or None)
    return Row(row, [time * 1e6 for time in ran.times_ms])


def _doubt(row: schema.RowDict, context: Context, flags: list[str], notes: list[str]) -> None:
    moved, cache = row["footprint_bytes"] or 0, context.facts.get("cache_bytes") or 0
    above = grade.explain_impossible(row)
    if (row["pct_attainable"] or 0) > 100 * ABOVE_ROOF:
        above = f"{row['pct_attainable']:.0f} % of what a plain stream of the same bytes reaches"
    flags += ["above_attainable"] if above else []
    notes += [above] if above else []
    grade.add_findings(row, context.roofs, flags, notes)
    if 0 < moved < cache:
        flags.append("not_cold")
        notes.append(
            f"its {format_bytes(moved)} fit into the cache of {format_bytes(cache)}, where they may have been left"
        )
    if (row["noise"] or 0) > NOISE_LIMIT:
        flags.append("noisy")
        notes.append(f"wide spread: half of the times lie {row['noise']:.0%} apart")


_PRECISIONS = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "qint8": "int8",
    "quint8": "int8",
}


def precision_of(tensor: Any) -> str:
    """A tensor's type as rows call it."""
    name = str(tensor.dtype).removeprefix("torch.")
    return _PRECISIONS.get(name, name)


def is_tensor(value: object) -> bool:
    """Whether it is a tensor of PyTorch's."""
    return all(hasattr(value, name) for name in ("element_size", "numel", "dtype", "device"))


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors in arguments or results: themselves, or in lists, tuples, dicts and dataclasses."""
    return filter(is_tensor, iterate_leaves(value, is_tensor))


def parts_of(tensor: Any) -> list[Any]:
    """The dense tensors that a sparse, nested or quantised one is made of; itself for any other."""
    if hasattr(type(tensor), "__tensor_flatten__"):
        inner = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        return [part for one in inner for part in parts_of(one)]
    layout = str(getattr(tensor, "layout", "")).removeprefix("torch.")
    names = {
        "sparse_coo": ("_indices", "_values"),
        "sparse_csr": ("crow_indices", "col_indices", "values"),
        "sparse_bsr": ("crow_indices", "col_indices", "values"),
        "sparse_csc": ("ccol_indices", "row_indices", "values"),
        "sparse_bsc": ("ccol_indices", "row_indices", "values"),
        "jagged": ("values", "offsets"),
    }.get(layout, ())
    return [getattr(tensor, name)() for name in names] or [tensor]


def bytes_of(tensor: Any) -> int:
    """Distinct bytes of its elements: what is expanded counts once."""
    return sum(_dense_bytes(part) for part in parts_of(tensor))


def _dense_bytes(tensor: Any) -> int:
    whole = int(tensor.numel()) * int(tensor.element_size())
    with suppress(AttributeError, RuntimeError, NotImplementedError, TypeError):
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        distinct = prod(int(size) for size, step in steps if step != 0)
        return min(whole, distinct * int(tensor.element_size()))
    return whole


def weights_of(module: Any) -> list[Any]:
    """A module's tensors: parameters, buffers, packed weights, and what quantised ones keep beside their values."""
    own = [*module.parameters(), *module.buffers()]
    beside = [getattr(one, name, None) for one in own for name in ("quant_state", "SCB")]
    tensors = [one if is_tensor(one) else list(getattr(one, "__dict__", {}).values()) for one in beside]
    return [*own, *packed_in(module), *tensors_in(tensors)]


def packed_in(module: Any) -> list[Any]:
    """The weights of a quantised module of PyTorch's own, which are no parameters; none where they are not known."""
    found = []
    with suppress(AttributeError, RuntimeError, TypeError):
        found = [module.weight(), module.bias()] if hasattr(module, "_packed_params") else []
    return [one for one in found if is_tensor(one)]


def storage_of(tensor: Any) -> int:
    """What two tensors have in common that share memory."""
    with suppress(AttributeError, RuntimeError, NotImplementedError):
        storage = parts_of(tensor)[-1].untyped_storage()
        return int(getattr(storage, "_cdata", 0) or storage.data_ptr())
    return id(tensor)


def _place(tensor: Any) -> Hashable:
    """What two tensors have in common that are the same memory."""
    with suppress(AttributeError, RuntimeError, NotImplementedError):
        return storage_of(tensor), int(parts_of(tensor)[-1].storage_offset()), bytes_of(tensor)
    return storage_of(tensor), 0, 0


def version_of(tensor: Any) -> int | None:
    """How often it was written in place; None where nobody counts (inference mode)."""
    try:
        return int(tensor._version)
    except (AttributeError, RuntimeError, TypeError):
        return None


def distinct_tensors(tensors: Iterable[Any]) -> list[Any]:
    """Without those that are the same memory as one before."""
    return list({_place(tensor): tensor for tensor in tensors}.values())


@dataclass(slots=True)
class CallState:
    """What a module is about to be called with, and how often all that was written so far."""

    given: list[Any]
    own: list[Any]
    versions: list[int | None] = field(init=False)

    def __post_init__(self) -> None:
        self.given, self.own = distinct_tensors(self.given), distinct_tensors(self.own)
        self.versions = [version_of(tensor) for tensor in (*self.given, *self.own)]


@dataclass(frozen=True, slots=True)
class MovedBytes:
    """Bytes that a call moves at least, and the precision of what it makes."""

    read: int
    written: int
    precision: str | None = None


def count_moved(before: CallState, output: Any, *, looked_up: int | None = None, in_place: bool = False) -> MovedBytes:
    """The bytes of a call.

    It reads its parameters, buffers and arguments once, and writes what it makes and what it changes. A view that it
    returns costs nothing; neither does a call that makes nothing but views.

    Parameters
    ----------
    looked_up : int, optional
        Bytes of a table's rows that are read, in place of the module's own.
    in_place : bool
        It says that it writes its argument: counts where nobody counts versions.
    """
    known = [*before.given, *before.own]
    silent = [in_place] * len(before.given) + [False] * len(before.own)  # what is said of those that nobody counts
    changed = [
        tensor
        for tensor, version, said in zip(known, before.versions, silent, strict=True)
        if (said if version is None else version_of(tensor) != version)
    ]
    results = list(tensors_in(output))
    storages = {storage_of(tensor) for tensor in known}
    made = distinct_tensors(tensor for tensor in results if storage_of(tensor) not in storages)
    written = sum(map(bytes_of, [*made, *changed]))
    precision = next((precision_of(tensor) for tensor in [*results, *before.given] if _is_floating(tensor)), None)
    if results and not made and not changed:
        return MovedBytes(0, 0, precision)
    own = sum(map(bytes_of, before.own)) if looked_up is None else looked_up
    return MovedBytes(sum(map(bytes_of, before.given)) + own, written, precision)


def _is_floating(tensor: Any) -> bool:
    name = str(tensor.dtype).removeprefix("torch.")
    return "float" in name or name in _PRECISIONS


WHOLE = "whole"  # the name of the call; its parts' are their own

_FLOOR = "floor"

_PREFIX = "bwprof:"

_KERNELS, _EVENTS = "kernels", "events"

_HOLD_MORE = 1.5  # than the host took to enqueue a call

_HOLD_MOST_S = 0.5

_TRIES = 3

# Around it, one function is told of each part's beginning, by name, and the other of its end.
CallObserver = Callable[[Callable[[str], object], Callable[[str], object]], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class PartTimes:
    """Of each part ms in each call, by name, and how often it ran in each; what took them, and what to say of them."""

    times_ms: dict[str, list[float]]
    counts: dict[str, list[int]]
    timer: str
    floor_ms: float | None = None
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def time_calls(
    torch: Any,
    device: _core.Device,
    place: Any,
    call: Callable[[], None],
    telling: CallObserver,
    runs: int,
    timer: str | None,
) -> PartTimes:
    """So many calls.

    Raises
    ------
    ValueError
        For a timer that the device does not have, and where the stream is captured.
    """
    facts = _core.backend_facts(device.backend)
    offered = [str(facts["range_clock"])] if facts["runs_on_host"] else [_KERNELS, _EVENTS]
    if timer is not None and timer not in offered:
        raise ValueError(f"timer is {repr_short(timer)}: this device has {', '.join(offered)}")
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
    torch: Any, place: Any, call: Callable[[], None], telling: CallObserver, runs: int
) -> tuple[PartTimes | None, str]:
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


def _sorted_out(events: list[Any], runs: int) -> tuple[PartTimes | None, str]:
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
    return PartTimes(found, counts, _KERNELS), ""


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

    def take(self, telling: CallObserver, runs: int) -> PartTimes:
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
        return PartTimes(times_ms, counts, clock, floor_ms, () if self._cuda is None else ("event_bias",), notes)

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
