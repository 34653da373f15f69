"""Rows of a `torch.profiler` profile: one for each kernel's name, or each operator's on a CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bwprof import hardware
from bwprof.environment import new_run_id
from bwprof.measuring.contexts import find_roofs
from bwprof.measuring.row import Context
from bwprof.profiler.torch_calls import TimedPart, make_row
from bwprof.results import exchange
from bwprof.results.row import Row
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.text.parsing import check_mapping, repr_short

_TIMER = "torch.profiler"
_HOST = "CPU"  # as PyTorch's DeviceType spells it


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

    With kernels, copies and fills of a device, each of their names is a row, and each operator or `record_function`
    that `bytes` names, with the time of all its kernels. Without them (on a CPU) each operator is a row, with the
    operators that it called in its time.

    Parameters
    ----------
    prof : torch.profiler.profile
        A profile that has ended.
    bytes : mapping, optional
        The bytes of one call, by name: (bytes_read, bytes_written), or a `bwprof.Cost`, or a list of one for each call
        where these differ: such a row has the flag ``bytes_vary``, mean bytes, and the rate of all bytes over all time.
        A name may be a pattern ("*gemm*"); the first that matches counts. Rows of other names have no bandwidth.
    roofs : {False, "auto", "stored"} or Roofs
        The roofs to grade rows by; all but False open the device.

    Returns
    -------
    list of Row
        The longest first; ``case`` is the name, ``time_ms`` the median of its calls, ``calls`` their number,
        ``total_ms`` their sum and ``share_pct`` its share of all kernels' time, or on a CPU of the profile's.
        `bwprof.frame` makes a frame of them.

    Raises
    ------
    TypeError
        For anything but a profile.
    ValueError
        For a profile that has not ended, a name that it does not have, and impossible bytes.

    Examples
    --------
    >>> import bwprof, torch  # doctest: +SKIP
    >>> with torch.profiler.profile() as prof:  # doctest: +SKIP
    ...     c = a @ b
    >>> rows = bwprof.torch_profiler_rows(prof, {"aten::mm": (a.nbytes + b.nbytes, c.nbytes)})  # doctest: +SKIP
    """
    roofs = check_roofs(roofs)
    works = check_mapping(bytes, "bytes")
    groups, total_ms = _group_events(_events(prof), works)
    names = exchange.match_patterns(works, groups)
    context = _make_context(groups, roofs)
    rows = []
    for name, group in sorted(groups.items(), key=lambda item: -sum(item[1].times_ms)):
        time_ms = sum(group.times_ms)
        share = 100 * time_ms / total_ms if total_ms else None
        labels = {"calls": len(group.times_ms), "total_ms": time_ms, "share_pct": share}
        part = TimedPart(name, group.kind, group.times_ms, timer=_TIMER, labels=labels)
        if name in names:
            work, varies = exchange.mean_call_bytes(name, works[names[name]], len(group.times_ms))
            part.bytes_read, part.bytes_written, part.flops = work
            if not varies and len(group.shapes) > 1:
                part.notes = ["its calls have different shapes: give a list of the bytes of each"]
            part.flags = ["bytes_vary"] * (varies or len(group.shapes) > 1)
        rows.append(make_row(part, context))
    return rows


def _events(prof: Any) -> list[Any]:
    if isinstance(prof, type) or not callable(getattr(prof, "events", None)):
        raise TypeError(f"prof is {repr_short(prof)}: a torch.profiler.profile is needed")
    running = "the profile has not ended: its rows are there when its with block is over"
    if getattr(getattr(prof, "profiler", None), "kineto_results", prof) is None:  # its events() would be empty
        raise ValueError(running)
    try:
        return list(prof.events() or ())
    except (AssertionError, RuntimeError, AttributeError) as error:
        raise ValueError(running) from error


def _group_events(events: Iterable[Any], works: Mapping[str, Any]) -> tuple[dict[str, _NamedEvents], float]:
    """Return the events of each row by name, and the ms of the whole profile."""
    events = list(events)
    on_host = [event for event in events if _kind(event) == _HOST]
    on_device = [event for event in events if _kind(event) != _HOST and not _is_annotation(event)]
    groups: dict[str, _NamedEvents] = {}
    for event in on_device or on_host:
        _add(groups, event, "kernel" if on_device else "operator", event.time_range.elapsed_us(), _device(event))
    if not on_device:
        times = [time for event in events for time in (event.time_range.start, event.time_range.end)] or [0.0]
        return groups, (max(times) - min(times)) / 1e3
    total_ms = sum(sum(group.times_ms) for group in groups.values())
    return groups | _group_operators(on_host, groups, works, _device(on_device[0])), total_ms


def _group_operators(
    events: list[Any], kernels: Mapping[str, Any], works: Mapping[str, Any], device: str
) -> dict[str, _NamedEvents]:
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


def _kind(event: Any) -> str:
    return str(event.device_type).rpartition(".")[2]


def _device(event: Any) -> str:
    kind = _kind(event)  # on a CPU device_index is a process's number
    return f"{kind.lower()}:{0 if kind == _HOST else max(0, int(event.device_index or 0))}"


def _is_annotation(event: Any) -> bool:
    """Return whether an event is a host range that the profile repeats on the device, around its kernels."""
    return bool(getattr(event, "is_user_annotation", False)) or event.name.startswith("ProfilerStep")


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
