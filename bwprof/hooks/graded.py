"""Rows of what a program ran, from times that a tool took of it: nothing here decides what runs, or how often."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from bwprof import _core
from bwprof.measuring import grade
from bwprof.measuring.row import Context, provenance
from bwprof.results import schema
from bwprof.results.row import Row
from bwprof.roofs.limits import ABOVE_ROOF
from bwprof.roofs.model import NOISE_LIMIT
from bwprof.text import bytes_text


@dataclass(slots=True)
class Ran:
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


def row_of(ran: Ran, context: Context) -> Row:
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
        **provenance(context),
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
        row["noise"] = grade.known(statistics["noise"])
        grade.flag_patterns(statistics, flags, notes)
    if time_ms > 0:
        over_ms = fmean(ran.times_ms) if "bytes_vary" in flags else time_ms  # bytes and FLOPs are means there
        row["bandwidth_gb_s"] = _core.bandwidth_gb_s(moved, over_ms / 1e3) if moved else None
        row["tflops"] = None if ran.flops is None else ran.flops / over_ms / 1e9
        grade.hold(row, context.facts, context.roofs)
        _doubt(row, context, flags, notes)
    row.update(flags=";".join(flags), reason="; ".join(notes) or None)
    return Row(row, [time * 1e6 for time in ran.times_ms])


def _doubt(row: schema.Row, context: Context, flags: list[str], notes: list[str]) -> None:
    moved, cache = row["footprint_bytes"] or 0, context.facts.get("cache_bytes") or 0
    above = grade.why_impossible(row)
    if (row["pct_attainable"] or 0) > 100 * ABOVE_ROOF:
        above = f"{row['pct_attainable']:.0f} % of what a plain stream of the same bytes reaches"
    flags += ["above_attainable"] if above else []
    notes += [above] if above else []
    grade.add_doubts(row, context.roofs, flags, notes)
    if 0 < moved < cache:
        flags.append("not_cold")
        notes.append(
            f"its {bytes_text(moved)} fit into the cache of {bytes_text(cache)}, where they may have been left"
        )
    if (row["noise"] or 0) > NOISE_LIMIT:
        flags.append("noisy")
        notes.append(f"wide spread: half of the times lie {row['noise']:.0%} apart")
