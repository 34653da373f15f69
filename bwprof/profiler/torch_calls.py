"""Time calls of PyTorch modules, count the bytes that they must move, and make rows of them and of profiles.

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
from typing import Any, NamedTuple

from bwprof import _core, hardware, registry
from bwprof.environment import new_run_id
from bwprof.measuring import grade
from bwprof.measuring.callables import iterate_leaves
from bwprof.measuring.row import Context, describe_origin, find_roofs
from bwprof.results import exchange, schema
from bwprof.results.row import Row
from bwprof.roofs.limiter import ABOVE_ROOF
from bwprof.roofs.model import NOISE_LIMIT, RoofsArgument, check_roofs
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import check_mapping, repr_short

WHOLE = "whole"  # the name of the model's call; modules have numbers
_FLOOR, _PREFIX = "floor", "bwprof:"
_HOST = "CPU"  # as PyTorch's DeviceType spells it
_KERNELS, _EVENTS = "kernels", "events"
_HOLD_FACTORS = (1.5, 3, 6)  # of the time that the host takes to enqueue a call, until one is enough
_MOST_HOLD_S = 0.5
_OTHER_TYPES = {"float64": "fp64", "qint8": "int8", "quint8": "int8"}  # no precisions
_PARTS = {
    "sparse_coo": ("_indices", "_values"),
    **dict.fromkeys(("sparse_csr", "sparse_bsr"), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys(("sparse_csc", "sparse_bsc"), ("ccol_indices", "row_indices", "values")),
    "jagged": ("values", "offsets"),
}

ModelCall = Callable[[], None]
# A context that calls one function at each part's begin, by name, and the other at its end.
CallObserver = Callable[[Callable[[str], object], Callable[[str], object]], AbstractContextManager[None]]


@dataclass(slots=True)
class TimedPart:
    """A part of a program: its times, ms, and the bytes and FLOPs that it needs at least; None: unknown."""

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
    alike: bool = False  # it does the same each time


def make_row(part: TimedPart, context: Context) -> Row:
    """Make a part's row, graded by DRAM; the flag `not_cold` marks one whose bytes a cache may have held."""
    row = schema.empty_row()
    known = [int(count) for count in (part.bytes_read, part.bytes_written) if count is not None]
    moved = sum(known)
    row.update(
        operation=part.kind or None,
        case=part.name,
        precision=part.precision,
        cache="cold",
        timer=part.timer or None,
        samples=len(part.times_ms),
        bytes_read=part.bytes_read,
        bytes_written=part.bytes_written,
        footprint_bytes=moved if known else None,
        flops=part.flops,
        timer_floor_us=None if part.floor_ms is None else part.floor_ms * 1e3,
        arithmetic_intensity=part.flops / moved if part.flops is not None and moved else None,
        **describe_origin(context),
        **part.labels,
    )
    notes = list(part.notes)
    if part.times_ms:
        _add_times(row, part, context, notes)
    row.update(status="ok" if part.times_ms else "predicted", reason="; ".join(notes) or None)
    return Row(row, [ms * 1e6 for ms in part.times_ms])


def _add_times(row: schema.RowDict, part: TimedPart, context: Context, notes: list[str]) -> None:
    flags = list(part.flags)
    time_ms = median(part.times_ms)
    row.update(status="ok", time_ms=time_ms, time_ms_min=min(part.times_ms))
    if part.alike:
        statistics = _core.statistics(array("d", [ms * 1e6 for ms in part.times_ms]))
        row["noise"] = grade.nan_to_none(statistics["noise"])
        grade.add_findings(grade.find_patterns(statistics), flags, notes)
    if time_ms > 0:
        over_ms = fmean(part.times_ms) if "bytes_vary" in flags else time_ms  # bytes and FLOPs are means there
        moved = row["footprint_bytes"]
        row["bandwidth_gb_s"] = _core.bandwidth_gb_s(moved, over_ms / 1e3) if moved else None
        row["tflops"] = None if part.flops is None else part.flops / over_ms / 1e9
        grade.grade_row(row, context.facts, context.roofs)
        _add_doubts(row, context, flags, notes)
    row["flags"] = ";".join(flags)


def _add_doubts(row: schema.RowDict, context: Context, flags: list[str], notes: list[str]) -> None:
    moved, cache = row["footprint_bytes"] or 0, context.facts.get("cache_bytes") or 0
    above = grade.explain_impossible(row)
    if (row["pct_attainable"] or 0) > 100 * ABOVE_ROOF:
        above = f"{row['pct_attainable']:.0f} % of what a plain stream of the same bytes reaches"
    if above:
        flags.append("above_attainable")
        notes.append(above)
    grade.add_findings(grade.find_roof_doubts(row, context.roofs), flags, notes)
    if 0 < moved < cache:
        flags.append("not_cold")
        notes.append(f"its {format_bytes(moved)} fit into the cache of {format_bytes(cache)}, which may hold them")
    if (row["noise"] or 0) > NOISE_LIMIT:
        flags.append("noisy")
        notes.append(f"wide spread: half of the times lie {row['noise']:.0%} apart")


def is_tensor(value: object) -> bool:
    """Return whether a value has the attributes of a tensor."""
    return all(hasattr(value, name) for name in ("element_size", "numel", "dtype", "device"))


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in arguments or results: themselves, or in lists, tuples, dicts and dataclasses."""
    return filter(is_tensor, iterate_leaves(value, is_tensor))


def parts_of(tensor: Any) -> list[Any]:
    """Return the dense tensors of a sparse, nested or quantized one; itself for any other."""
    if hasattr(type(tensor), "__tensor_flatten__"):
        inner = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        return [part for one in inner for part in parts_of(one)]
    names = _PARTS.get(str(getattr(tensor, "layout", "")).removeprefix("torch."), ())
    return [getattr(tensor, name)() for name in names] or [tensor]


def bytes_of(tensor: Any) -> int:
    """Return the distinct bytes of a tensor's elements; expanded ones count once."""
    total = 0
    for part in parts_of(tensor):
        count = int(part.numel())
        with suppress(AttributeError, RuntimeError, NotImplementedError, TypeError):
            steps = zip(part.shape, part.stride(), strict=True)
            count = min(count, prod(int(length) for length, step in steps if step != 0))
        total += count * int(part.element_size())
    return total


def weights_of(module: Any) -> list[Any]:
    """Return a module's tensors: parameters, buffers, packed weights, and the scales of quantized ones."""
    own = [*module.parameters(), *module.buffers()]
    states = [getattr(one, name, None) for one in own for name in ("quant_state", "SCB")]
    scales = [one if is_tensor(one) else list(getattr(one, "__dict__", {}).values()) for one in states]
    return [*own, *packed_in(module), *tensors_in(scales)]


def packed_in(module: Any) -> list[Any]:
    """Return the weights of PyTorch's own quantized modules, which are no parameters; none where they are unknown."""
    tensors = []
    with suppress(AttributeError, RuntimeError, TypeError):
        tensors = [module.weight(), module.bias()] if hasattr(module, "_packed_params") else []
    return [one for one in tensors if is_tensor(one)]


def storage_of(tensor: Any) -> int:
    """Return a key that tensors have in common that share memory."""
    with suppress(AttributeError, RuntimeError, NotImplementedError):
        storage = parts_of(tensor)[-1].untyped_storage()
        return int(getattr(storage, "_cdata", 0) or storage.data_ptr())
    return id(tensor)


def version_of(tensor: Any) -> int | None:
    """Return how often a tensor was written in place; None where nothing counts (inference mode)."""
    try:
        return int(tensor._version)
    except (AttributeError, RuntimeError, TypeError):
        return None


def distinct_tensors(tensors: Iterable[Any]) -> list[Any]:
    """Return the tensors without repeated memory."""
    distinct: dict[Hashable, Any] = {}
    for tensor in tensors:
        place, size = 0, 0
        with suppress(AttributeError, RuntimeError, NotImplementedError):
            place, size = int(parts_of(tensor)[-1].storage_offset()), bytes_of(tensor)
        distinct[storage_of(tensor), place, size] = tensor
    return list(distinct.values())


class CallState:
    """The tensors of a module's call before it runs: arguments, the module's own, and the versions of all."""

    def __init__(self, arguments: Iterable[Any], own: Iterable[Any]) -> None:
        self.arguments, self.own = distinct_tensors(arguments), distinct_tensors(own)
        self.versions = [version_of(tensor) for tensor in (*self.arguments, *self.own)]


class MovedBytes(NamedTuple):
    """The bytes that a call moves at least, and the precision of its result."""

    read: int
    written: int
    precision: str | None = None


def count_moved(before: CallState, output: Any, *, looked_up: int | None = None, in_place: bool = False) -> MovedBytes:
    """Count the bytes of a call: parameters, buffers and arguments read once, new and changed tensors written.

    Views cost nothing. `looked_up` bytes of an embedding's rows replace the module's own. `in_place`: the module writes
    its arguments, where they have no versions to show it.
    """
    known = [*before.arguments, *before.own]
    silent = [in_place] * len(before.arguments) + [False] * len(before.own)  # of tensors without versions
    changed = [
        tensor
        for tensor, version, written in zip(known, before.versions, silent, strict=True)
        if (written if version is None else version_of(tensor) != version)
    ]
    results = list(tensors_in(output))
    storages = {storage_of(tensor) for tensor in known}
    new = distinct_tensors(tensor for tensor in results if storage_of(tensor) not in storages)
    precision = next(filter(None, map(_precision_of, [*results, *before.arguments])), None)
    if results and not new and not changed:
        return MovedBytes(0, 0, precision)
    own = sum(map(bytes_of, before.own)) if looked_up is None else looked_up
    return MovedBytes(sum(map(bytes_of, before.arguments)) + own, sum(map(bytes_of, [*new, *changed])), precision)


def _precision_of(tensor: Any) -> str | None:
    """Return a tensor's floating or quantized type as rows spell it; None for any other."""
    name = str(tensor.dtype).removeprefix("torch.")
    return _OTHER_TYPES.get(name, registry.precision_name(name) if "float" in name else None)


@dataclass(frozen=True, slots=True)
class PartTimes:
    """Each part's time, ms, and number of runs in each call, by name; and their timer."""

    times_ms: dict[str, list[float]]
    counts: dict[str, list[int]]
    timer: str
    floor_ms: float | None = None
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def time_calls(
    torch: Any, device: _core.Device, place: Any, call: ModelCall, observe: CallObserver, runs: int, timer: str | None
) -> PartTimes:
    """Time so many calls; raise ValueError for a timer that the device lacks, and during a capture."""
    facts = _core.backend_facts(device.backend)
    offered = [str(facts["range_clock"])] if facts["runs_on_host"] else [_KERNELS, _EVENTS]
    if timer is not None and timer not in offered:
        raise ValueError(f"timer is {repr_short(timer)}: this device has {', '.join(offered)}")
    if facts["runs_on_host"]:
        return _time_marks(None, device, place, call, observe, runs)
    if torch.cuda.is_current_stream_capturing():
        raise ValueError("the stream is captured into a graph: nothing on it can be timed")
    device.release_profilers()  # PyTorch's profiler cannot run beside ours
    times, why = (None, "") if timer == _EVENTS else _time_kernels(torch, place, call, observe, runs)
    if times is None and timer == _KERNELS:
        raise _core.UnavailableError(f"timer {timer} cannot be had: {why}")
    if times is None:
        times = _time_marks(torch.cuda, device, place, call, observe, runs)
        times = replace(times, notes=(*times.notes, why) if why else times.notes)
    return times


def _time_kernels(
    torch: Any, place: Any, call: ModelCall, observe: CallObserver, runs: int
) -> tuple[PartTimes | None, str]:
    """Return the times that `torch.profiler` records, or why it records none; the model's own errors pass through."""
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
        warnings.simplefilter("ignore")  # it warns of several cycles, and there is one
        prof = profiler.profile(activities=[kinds.CPU, kinds.CUDA])
        try:
            prof.start()
        except (RuntimeError, AssertionError) as error:  # another profiler runs
            return None, f"torch.profiler cannot be started: {error}"
        try:
            with observe(start, stop):
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
    return _sum_kernels(events, runs)


def _sum_kernels(events: list[Any], runs: int) -> tuple[PartTimes | None, str]:
    parts = [event for event in events if event.name.startswith(_PREFIX) and str(event.device_type).endswith("CPU")]
    begins = sorted(event.time_range.start for event in parts if event.name == _PREFIX + WHOLE)
    times_ms: dict[str, list[float]] = {}
    counts: dict[str, list[int]] = {}
    for event in parts:
        run = bisect_right(begins, event.time_range.start) - 1
        name = event.name.removeprefix(_PREFIX)
        if 0 <= run < runs:
            times_ms.setdefault(name, [0.0] * runs)[run] += sum(_kernels_us(event)) / 1e3
            counts.setdefault(name, [0] * runs)[run] += 1
    if len(begins) != runs or not sum(times_ms[WHOLE]):
        return None, "torch.profiler saw no kernel"
    return PartTimes(times_ms, counts, _KERNELS), ""


def _kernels_us(event: Any) -> Iterator[float]:
    """Yield the durations of the kernels that a host range, and the ranges inside it, launched."""
    yield from (float(kernel.duration) for kernel in event.kernels)
    for inner in event.cpu_children:
        yield from _kernels_us(inner)


def _time_marks(
    cuda: Any, device: _core.Device, place: Any, call: ModelCall, observe: CallObserver, runs: int
) -> PartTimes:
    """Time calls by marks before and after each part; a GPU's stream is blocked until the host has enqueued a call."""
    core = _core.Profiler()
    core.open(device, 0 if cuda is None else hardware.stream_handle(None, device.index))
    calls: list[dict[str, list[float]]] = []
    late = waited = False
    try:
        core.switch(True)
        with observe(core.start, core.finish):
            if cuda is not None:
                cuda.synchronize(place)
            host_s, _ = _enqueue(core, cuda, place, call, 0.0)
            for _ in range(runs):
                for factor in _HOLD_FACTORS:
                    core.forget()
                    _, late = _enqueue(core, cuda, place, call, factor * host_s)
                    if not late:
                        break
                waited = waited or late
                calls.append({name: [ns / 1e6 for _, ns, *_ in events] for name, events in core.events().items()})
    finally:
        core.close()
    clock = str(_core.backend_facts(device.backend)["range_clock"])
    notes = ("the GPU waited for the host in a call: its times hold some of that",) if waited else ()
    return _sum_marks(calls, PartTimes({}, {}, clock, None, () if cuda is None else ("event_bias",), notes))


def _sum_marks(calls: list[dict[str, list[float]]], found: PartTimes) -> PartTimes:
    """Add the times of parts in each call, less the time of an empty pair of events where these have a bias."""
    floor_ms = median(times[_FLOOR][0] for times in calls)
    bias_ms = floor_ms if found.flags else 0.0
    names = dict.fromkeys(name for times in calls for name, part in times.items() if part and name != _FLOOR)
    times_ms = {name: [sum(max(0.0, ms - bias_ms) for ms in times.get(name, ())) for times in calls] for name in names}
    counts = {name: [len(times.get(name, ())) for times in calls] for name in names}
    return replace(found, times_ms=times_ms, counts=counts, floor_ms=floor_ms)


def _enqueue(core: _core.Profiler, cuda: Any, place: Any, call: ModelCall, hold_s: float) -> tuple[float, bool]:
    """Enqueue a call on a stream that is blocked for so long; return the host's seconds, and whether it was late."""
    passed = None
    if cuda is not None and hold_s and hasattr(cuda, "_sleep"):
        rate = getattr(cuda.get_device_properties(place), "clock_rate", 2_000_000) * 1e3
        cuda._sleep(int(min(hold_s, _MOST_HOLD_S) * rate))
        passed = cuda.Event()
        passed.record()
    began = time.perf_counter()
    core.start(WHOLE)
    try:
        call()
    finally:
        core.finish(WHOLE)
    seconds = time.perf_counter() - began
    core.start(_FLOOR)
    core.finish(_FLOOR)
    late = passed is not None and bool(passed.query())
    if cuda is not None:
        cuda.synchronize(place)
    return seconds, late


@dataclass(slots=True)
class _NamedEvents:
    """The events of one name: their device, their times, ms, and the shapes of their arguments, where recorded."""

    kind: str
    device: str
    times_ms: list[float] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)


def torch_profiler_rows(
    prof: Any, bytes: Mapping[str, Any] | None = None, *, roofs: RoofsArgument = False
) -> list[Row]:
    """Return what a `torch.profiler.profile` recorded, as bwprof's rows.

    Each name of a kernel, copy or fill is a row, and each operator or `record_function` that `bytes` names, with the
    time of all its kernels. Without kernels (on a CPU) each operator is a row, with the operators that it called.

    Parameters
    ----------
    prof : torch.profiler.profile
        A profile that has ended.
    bytes : mapping, optional
        The bytes of one call, by name or pattern ("*gemm*"): (bytes_read, bytes_written), a `bwprof.Cost`, or a list of
        one for each call where these differ: such a row has the flag ``bytes_vary``, mean bytes, and the rate of all
        bytes over all time. Rows of other names have no bandwidth.
    roofs : {False, "auto", "stored"} or Roofs
        The roofs to grade rows by; all but False open the device.

    Returns
    -------
    list of Row
        The longest first; ``case`` is the name, ``time_ms`` the median of its calls, ``calls`` their number,
        ``total_ms`` their sum and ``share_pct`` its share of all kernels' time, or on a CPU of the profile's.

    Raises
    ------
    TypeError, ValueError
        For anything but a profile that has ended, a name that it does not have, and impossible bytes.

    Examples
    --------
    >>> import bwprof, torch  # doctest: +SKIP
    >>> with torch.profiler.profile() as prof:  # doctest: +SKIP
    ...     c = a @ b
    >>> rows = bwprof.torch_profiler_rows(prof, {"aten::mm": (a.nbytes + b.nbytes, c.nbytes)})  # doctest: +SKIP
    """
    roofs = check_roofs(roofs)
    works = check_mapping(bytes, "bytes")
    if isinstance(prof, type) or not callable(getattr(prof, "events", None)):
        raise TypeError(f"prof is {repr_short(prof)}: a torch.profiler.profile is needed")
    events = None
    if getattr(getattr(prof, "profiler", None), "kineto_results", prof) is not None:  # else it has none so far
        with suppress(AssertionError, RuntimeError, AttributeError):
            events = list(prof.events() or ())
    if events is None:
        raise ValueError("the profile has not ended: its rows are there when its with block is over")
    groups, total_ms = _group_events(events, works)
    names = exchange.match_patterns(works, groups)
    context = _make_context(groups, roofs)
    rows = []
    for name, group in sorted(groups.items(), key=lambda item: -sum(item[1].times_ms)):
        time_ms = sum(group.times_ms)
        share = 100 * time_ms / total_ms if total_ms else None
        labels = {"calls": len(group.times_ms), "total_ms": time_ms, "share_pct": share}
        part = TimedPart(name, group.kind, group.times_ms, timer="torch.profiler", labels=labels)
        if name in names:
            work, varies = exchange.mean_call_bytes(name, works[names[name]], len(group.times_ms))
            part.bytes_read, part.bytes_written, part.flops = work
            if not varies and len(group.shapes) > 1:
                part.notes = ["its calls have different shapes: give a list of the bytes of each"]
            part.flags = ["bytes_vary"] * (varies or len(group.shapes) > 1)
        rows.append(make_row(part, context))
    return rows


def _group_events(events: list[Any], works: Mapping[str, Any]) -> tuple[dict[str, _NamedEvents], float]:
    """Return the events of each row by name, and the ms of the whole profile."""
    on_host: list[Any] = []
    groups: dict[str, _NamedEvents] = {}
    for event in events:
        kind = str(event.device_type).rpartition(".")[2]
        if kind == _HOST:
            on_host.append(event)
        elif not (getattr(event, "is_user_annotation", False) or event.name.startswith("ProfilerStep")):
            # the others are host ranges, which the profile repeats on the device, around their kernels
            device = f"{kind.lower()}:{max(0, int(event.device_index or 0))}"
            _add(groups, event, "kernel", event.time_range.elapsed_us(), device)
    if not groups:
        for event in on_host:  # of which device_index is a process's number
            _add(groups, event, "operator", event.time_range.elapsed_us(), f"{_HOST.lower()}:0")
        times = [time for event in events for time in (event.time_range.start, event.time_range.end)] or [0.0]
        return groups, (max(times) - min(times)) / 1e3
    total_ms = sum(sum(group.times_ms) for group in groups.values())
    return groups | _group_operators(on_host, groups, works), total_ms


def _group_operators(
    events: list[Any], kernels: Mapping[str, _NamedEvents], works: Mapping[str, Any]
) -> dict[str, _NamedEvents]:
    """Return the operators that `works` names, with the time of their kernels."""
    device = next(iter(kernels.values())).device
    operators: dict[str, _NamedEvents] = {}
    for event in events:
        named = any(exchange.matches_pattern(event.name, pattern) for pattern in works)
        if named and event.name not in kernels and event.device_time_total:
            _add(operators, event, "operator", event.device_time_total, device)
    return operators


def _add(groups: dict[str, _NamedEvents], event: Any, kind: str, time_us: float, device: str) -> None:
    group = groups.setdefault(event.name, _NamedEvents(kind, device))
    group.times_ms.append(time_us / 1e3)
    group.shapes.add(str(getattr(event, "input_shapes", "")))


def _make_context(groups: Mapping[str, _NamedEvents], roofs: RoofsArgument) -> Context:
    """Return the rows' context; without roofs no device is opened."""
    devices = list(dict.fromkeys(group.device for group in groups.values()))
    if roofs is False or not devices:
        return Context(new_run_id(), devices[0].partition(":")[0] if devices else "", {}, None)
    if len(devices) > 1:
        raise ValueError(f"the profile is of several devices ({', '.join(devices)}): roofs are one's, pass roofs=False")
    choice = hardware.choose_device(None, devices[0])
    with hardware.borrow_device(choice.backend, choice.index) as device:
        facts = hardware.facts(device)
        return Context(new_run_id(), choice.backend, facts, find_roofs(device, facts, roofs, ("cold",)))
