"""Ranges of a `Profiler` as a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bwprof import _core
from bwprof.results.others.trace import Slice, Trace, pulses

# When a range began and how long it took, ns, and the bytes that it read and wrote, as far as they are known.
Event = tuple[float, float, int | None, int | None]

_SLACK_US = 2.0  # two events' distance is a float of milliseconds


@dataclass(frozen=True, slots=True)
class Where:
    """The device and the stream, or thread, that ranges are on; exact: their times are no floats of events."""

    device: str
    track: str
    exact: bool


def trace_text(where: Where, events: Mapping[str, Sequence[Event]], most: int) -> str:
    """A trace of ranges, by name. Of more than `most` the latest. Time begins with the first of them."""
    begins = sorted(begin for runs in events.values() for begin, *_ in runs)
    left_out = max(0, len(begins) - most)
    zero = begins[left_out] if begins else 0.0
    slices: list[Slice] = []
    trace = Trace({"ranges": len(begins), "left_out": left_out})
    process = trace.process(where.device)
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
        trace.counter(process, f"GB/s {name}", pulses(own, "bandwidth_gb_s"))
    trace.track(process, where.track, slices, slack_us=0.0 if where.exact else _SLACK_US)
    return trace.text()
