"""What `torch.profiler` recorded, as rows: a row for each kernel's name, or each operator's on a CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bwprof import hardware
from bwprof.environment import new_run_id
from bwprof.measuring.contexts import find_roofs
from bwprof.measuring.row import Context
from bwprof.profiler.torch_calls import TimedPart, make_row
from bwprof.results import foreign
from bwprof.results.row import Row
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.text.parsing import check_mapping, repr_short

_TIMER = "torch.profiler"

_HOST = "CPU"  # as PyTorch's DeviceType calls it


@dataclass(slots=True)
class _Found:
    """A name's events: where they ran, how long each took, ms, and of which shapes."""

    kind: str
    device: str
    times_ms: list[float] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)  # of what its calls took, where the profile has them


def torch_profiler_rows(
    prof: Any, bytes: Mapping[str, Any] | None = None, *, roofs: RoofsArgument = False
) -> list[Row]:
    """What a `torch.profiler.profile` recorded, as bwprof's rows.

    Where it recorded a device's kernels, copies and fills, each of their names is a row, and beside them each operator
    or `record_function` that `bytes` names, with the time of all its kernels. Where it recorded none (a CPU), each
    operator is a row, with those that it called in its time.

    Parameters
    ----------
    prof : torch.profiler.profile
        One that has ended.
    bytes : mapping, optional
        What one call moves, by name: (bytes_read, bytes_written), or a `bwprof.Cost`, or a list of as many as there are
        calls where these differ: such a row has the flag ``bytes_vary``, mean bytes, and the rate of all bytes over all
        time. A name may be a pattern ("*gemm*"), of which the first that matches counts. Rows of other names have no
        bandwidth.
    roofs : {False, "auto", "stored"} or Roofs
        What rows are held against; other than False it opens the device.

    Returns
    -------
    list of Row
        The longest in all first; ``case`` is the name, ``time_ms`` the median of its calls, ``calls`` their number,
        ``total_ms`` their sum and ``share_pct`` its share of all kernels' (on a CPU of the profile's) time.
        `bwprof.frame` makes a frame of them.

    Raises
    ------
    TypeError
        For what is no profile.
    ValueError
        For one that has not ended, a name that it does not have, and what are no bytes.

    Examples
    --------
    >>> import bwprof, torch  # doctest: +SKIP
    >>> with torch.profiler.profile() as prof:  # doctest: +SKIP
    ...     c = a @ b
    >>> rows = bwprof.torch_profiler_rows(prof, {"aten::mm": (a.nbytes + b.nbytes, c.nbytes)})  # doctest: +SKIP
    """
    held_against = check_roofs(roofs)
    given = check_mapping(bytes, "bytes")
    found, whole_ms = _gathered(_events(prof), given)
    names = foreign.match_patterns(given, found)
    context = _context(found, held_against)
    rows = []
    for name, one in sorted(found.items(), key=lambda item: -sum(item[1].times_ms)):
        total = sum(one.times_ms)
        share = 100 * total / whole_ms if whole_ms else None
        labels = {"calls": len(one.times_ms), "total_ms": total, "share_pct": share}
        ran = TimedPart(name, one.kind, one.times_ms, timer=_TIMER, labels=labels)
        if name in names:
            work, varies = foreign.mean_call_bytes(name, given[names[name]], len(one.times_ms))
            ran.bytes_read, ran.bytes_written, ran.flops = work
            if not varies and len(one.shapes) > 1:
                ran.notes = ["its calls have different shapes: give a list of the bytes of each"]
            ran.flags = ["bytes_vary"] * (varies or len(one.shapes) > 1)
        rows.append(make_row(ran, context))
    return rows


def _events(prof: Any) -> list[Any]:
    if isinstance(prof, type) or not callable(getattr(prof, "events", None)):
        raise TypeError(f"prof is {repr_short(prof)}: a torch.profiler.profile is needed")
    running = "the profile has not ended: its rows are there when its with block is over"
    if getattr(getattr(prof, "profiler", None), "kineto_results", prof) is None:  # else it would be told to be empty
        raise ValueError(running)
    try:
        return list(prof.events() or ())
    except (AssertionError, RuntimeError, AttributeError) as error:
        raise ValueError(running) from error


def _gathered(events: Iterable[Any], given: Mapping[str, Any]) -> tuple[dict[str, _Found], float]:
    """The events of a row each, by name, and the ms that all of the profile took."""
    all_events = list(events)
    on_device = [event for event in all_events if _kind(event) != _HOST and not _is_annotation(event)]
    found: dict[str, _Found] = {}
    for event in on_device or [event for event in all_events if _kind(event) == _HOST]:
        time_ms = event.time_range.elapsed_us() / 1e3
        _add(found, event, "kernel" if on_device else "operator", time_ms, _place(event))
    if not on_device:
        starts = [event.time_range.start for event in all_events]
        return found, (max(event.time_range.end for event in all_events) - min(starts)) / 1e3 if starts else 0.0
    whole_ms = sum(sum(one.times_ms) for one in found.values())
    more: dict[str, _Found] = {}
    for event in all_events:
        named = any(foreign.matches_pattern(event.name, pattern) for pattern in given)
        if named and event.name not in found and _kind(event) == _HOST and event.device_time_total:
            _add(more, event, "operator", event.device_time_total / 1e3, _place(on_device[0]))
    return found | more, whole_ms


def _add(found: dict[str, _Found], event: Any, kind: str, time_ms: float, place: str) -> None:
    one = found.setdefault(event.name, _Found(kind, place))
    one.times_ms.append(time_ms)
    one.shapes.add(str(getattr(event, "input_shapes", "")))


def _kind(event: Any) -> str:
    return str(event.device_type).rpartition(".")[2]


def _place(event: Any) -> str:
    if _kind(event) == _HOST:
        return f"{_kind(event).lower()}:0"  # where the number is some process's
    return f"{_kind(event).lower()}:{max(0, int(event.device_index or 0))}"


def _is_annotation(event: Any) -> bool:
    """A range of the host's, drawn around its kernels on the device: it has their time once more."""
    return bool(getattr(event, "is_user_annotation", False)) or event.name.startswith("ProfilerStep")


def _context(found: Mapping[str, _Found], held_against: RoofsArgument) -> Context:
    """What the rows are held against; without roofs no device is opened."""
    places = list(dict.fromkeys(one.device for one in found.values()))
    backend = places[0].partition(":")[0] if places else ""
    if held_against is False or not places:
        return Context(new_run_id(), backend, {}, None)
    if len(places) > 1:
        raise ValueError(f"the profile is of several devices ({', '.join(places)}): roofs are one's, pass roofs=False")
    choice = hardware.choose_device(None, places[0])
    with hardware.borrow_device(choice.backend, choice.index) as device:
        facts = hardware.device_facts(device)
        return Context(new_run_id(), choice.backend, facts, find_roofs(device, facts, held_against, ("cold",)))
