"""Frames of other profilers for people: a block of lines a launch where there are few, else a table; and as files."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from bwprof.results.schema import is_missing
from bwprof.terminal import PLAIN_WIDTH, console, print_table
from bwprof.text import bytes_text, counted, quoted, short

if TYPE_CHECKING:
    import pandas as pd

MOST_BLOCKS = 4  # launches that get lines of their own
_MOST_STALLS = 5
_FIXED = "\u00a0"  # a blank at which no line is folded
_LONGEST = 80  # letters of a kernel's name in Markdown
_LEAST = 40  # letters of a line
_MOST_LINES = 200  # of a table
_Launch = dict[str, Any]


def only(found: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """The launches of kernels whose name, whole or short, contains this; ValueError where there is none."""
    names = found["kernel"].fillna("")
    held = names.str.contains(kernel, regex=False) | found["case"].fillna("").str.contains(kernel, regex=False)
    kept = found[held].reset_index(drop=True)
    if kept.empty:
        there = ", ".join(quoted(name) for name in list(dict.fromkeys(found["case"].dropna()))[:5])
        raise ValueError(f"--kernel {quoted(kernel)}: no kernel's name contains it; there are {there or 'no names'}")
    return kept


def show(found: pd.DataFrame, stream: TextIO) -> None:
    """Print a frame: what it is, its launches, and what was left out."""
    screen = console(stream)
    kernels = found["kernel"].nunique()
    grouped = "count" in found.columns
    launches = int(found["count"].sum()) if grouped else len(found)
    source = f"{found.attrs.get('tool', '')} {found.attrs.get('page', '')}".strip()
    screen.print(
        f"{quoted(found.attrs.get('source', ''))}: {launches_text(launches)} of {counted(kernels, 'kernel')} ({source})"
    )
    if grouped:
        _table(found, screen, "count", _TIMES)
    elif len(found) <= MOST_BLOCKS:
        for row in _records(found):
            screen.print("")
            for line in block(row, min(screen.width, PLAIN_WIDTH)):
                screen.print(line, soft_wrap=True)
    else:
        _table(found, screen, "launch", _COLUMNS)
    for note in found.attrs.get("notes", ()):
        screen.print(f"note: {note}")


def launches_text(count: float) -> str:
    """How many launches, one as one."""
    return "1 launch" if count == 1 else f"{count:.0f} launches"


def _records(found: pd.DataFrame) -> list[_Launch]:
    from bwprof.profilers.columns import COLUMNS

    there = [column.name for column in COLUMNS if column.name in found.columns]
    rows = found[there].to_dict(orient="records")
    return [{str(name): None if is_missing(value) else value for name, value in row.items()} for row in rows]


def block(row: _Launch, width: int = PLAIN_WIDTH) -> list[str]:
    """All that is known of one launch, a part of it a line that is folded at `width`; of a long name the short one."""
    name = str(row.get("kernel") or "a kernel without a name")
    title = f"launch {row.get('launch')}: {name}"
    if len(title) > width and row.get("case"):
        title = f"launch {row.get('launch')}: {row['case']} (a name of {len(name)} letters: --json)"
    lines = [title]
    for part, told in _PARTS.items():
        if text := told(row):
            kept = text.replace(" ", _FIXED).replace(f",{_FIXED}", ", ")  # a figure stays whole
            folded = textwrap.fill(kept, max(width, _LEAST), initial_indent=f"  {part:<11}", subsequent_indent=" " * 13)
            lines += folded.replace(_FIXED, " ").splitlines()
    return lines


def _said(row: _Launch, name: str, spec: str, form: str) -> str:
    """A figure in words; empty where it is not known."""
    value = row.get(name)
    return "" if value is None else form.format(short(float(value), spec))


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _launched(row: _Launch) -> str:
    grid, block = (
        row.get(shape) or row.get(whole) for shape, whole in (("grid", "grid_blocks"), ("block", "block_threads"))
    )
    size = f"{grid} blocks of {block} threads" if grid and block else ""
    shared = row.get("shared_bytes")
    return _joined(
        size,
        _said(row, "registers", ".0f", "{} registers a thread"),
        f"{bytes_text(shared)} shared memory a block" if shared else "",
        f"stream {row['stream']}" if row.get("stream") is not None else "",
        f"{row['device']}" if row.get("device") else "",
        f"compute capability {row['compute_capability']}" if row.get("compute_capability") else "",
    )


def _time(row: _Launch) -> str:
    time = row.get("time_ms")
    clocks = (_said(row, "sm_clock_mhz", ".0f", "SM {} MHz"), _said(row, "mem_clock_mhz", ".0f", "memory {} MHz"))
    if time is None:
        return _joined(*clocks)
    return _joined(f"{short(time, '.6g')} ms" if time >= 1 else f"{short(1e3 * time, '.6g')} us", *clocks)


def _dram(row: _Launch) -> str:
    read, written = row.get("dram_bytes_read"), row.get("dram_bytes_written")
    moved = "" if read is None or written is None else f"{bytes_text(read)} read, {bytes_text(written)} written"
    rate = _said(row, "dram_gb_s", ".2f", "{} GB/s")
    share = _said(row, "pct_peak", ".2f", "{} % of peak")
    peak = _said(row, "peak_gb_s", ".1f", "peak {} GB/s")
    return _joined(moved, f"{rate} = {share}" if rate and share else rate or share, peak)


def _stated(row: _Launch) -> str:
    """What a caller said that it must move."""
    read, written = row.get("bytes_read"), row.get("bytes_written")
    moved = "" if read is None or written is None else f"{bytes_text(read)} read, {bytes_text(written)} written"
    return _joined(moved, _said(row, "bandwidth_gb_s", ".2f", "{} GB/s"))


def _compute(row: _Launch) -> str:
    return _joined(
        _said(row, "sm_pct", ".2f", "multiprocessors {} %"),
        _said(row, "tensor_pct", ".2f", "tensor pipe {} %"),
        _said(row, "fma_pct", ".2f", "FMA pipe {} %"),
        _said(row, "valu_busy_pct", ".2f", "vector units {} % busy"),
        _said(row, "mem_unit_stalled_pct", ".2f", "memory units {} % stalled"),
    )


def _occupancy(row: _Launch) -> str:
    limiter = f", limited by {row['occupancy_limiter']}" if row.get("occupancy_limiter") else ""
    return _joined(
        _said(row, "occupancy_pct", ".2f", "{} %"),
        _said(row, "theoretical_occupancy_pct", ".4g", "{} % possible") + limiter,
        _said(row, "waves", ".2f", "{} waves"),
    )


def _access(row: _Launch) -> str:
    return _joined(
        _requests(row, "load", "{} sectors a load"),
        _requests(row, "store", "{} a store" if row.get("sectors_per_load") else "{} sectors a store"),
        _used(row, "load_efficiency_pct", "{} % of loaded bytes used"),
        _used(row, "store_efficiency_pct", "{} % of stored sectors written"),
    )


def _requests(row: _Launch, what: str, form: str) -> str:
    """Sectors a request; none at all where there was no request, of a bulk copy for example."""
    if row.get(f"sectors_per_{what}") == 0:
        return f"no {what} requests"
    return _said(row, f"sectors_per_{what}", ".4g", form)


def _used(row: _Launch, name: str, form: str) -> str:
    """How much of the sectors is used: ncu says 0 of a kernel that has no such accesses."""
    return _said(row, name, ".4g", form) if row.get(name) else ""


def _shared(row: _Launch) -> str:
    return _joined(
        _said(row, "bank_conflicts", ".0f", "{} bank conflicts"),
        _said(row, "shared_wavefronts", ".0f", "{} wavefronts"),
        _said(row, "lds_bank_conflict_pct", ".2f", "{} % of its cycles are bank conflicts"),
    )


def _caches(row: _Launch) -> str:
    local = row.get("local_bytes")
    return _joined(
        _said(row, "l1_hit_pct", ".2f", "L1 {} % hits"),
        _said(row, "l2_hit_pct", ".2f", "L2 {} % hits"),
        f"{bytes_text(local)} to local memory" if local else "",
    )


def _stalls(row: _Launch) -> str:
    parts = [part.partition("=") for part in str(row.get("stall_reasons") or "").split(";") if part]
    told = ", ".join(f"{reason} {value}" for reason, _, value in parts[:_MOST_STALLS])
    return f"{told} warps an issued instruction" if told else ""


_PARTS: dict[str, Callable[[_Launch], str]] = {
    "launched": _launched,
    "time": _time,
    "DRAM": _dram,
    "must move": _stated,
    "compute": _compute,
    "occupancy": _occupancy,
    "access": _access,
    "shared": _shared,
    "caches": _caches,
    "waiting": _stalls,
    "estimated": lambda row: str(row.get("estimated") or ""),
}

# A table's columns: heading, column, what it is multiplied with, how it is written.
_COLUMNS = (
    ("time us", "time_ms", 1e3, ".4g"),
    ("DRAM GB/s", "dram_gb_s", 1.0, ".1f"),
    ("% peak", "pct_peak", 1.0, ".1f"),
    ("SM %", "sm_pct", 1.0, ".1f"),
    ("tensor %", "tensor_pct", 1.0, ".1f"),
    ("occ. %", "occupancy_pct", 1.0, ".1f"),
    ("sectors/load", "sectors_per_load", 1.0, ".3g"),
    ("conflicts", "bank_conflicts", 1.0, ".0f"),
    ("waves", "waves", 1.0, ".3g"),
)


# The same of a time line's rows, one for each name.
_TIMES = (
    ("median us", "time_ms", 1e3, ".6g"),
    ("total ms", "total_ms", 1.0, ".4g"),
    ("% of time", "share_pct", 1.0, ".1f"),
    ("GB/s", "bandwidth_gb_s", 1.0, ".1f"),
    ("occ. %", "occupancy_pct", 1.0, ".1f"),
    ("registers", "registers", 1.0, ".0f"),
)


def _table(found: pd.DataFrame, screen: Any, first: str, columns: tuple[tuple[str, str, float, str], ...]) -> None:
    there = [column for column in columns if column[1] in found.columns]
    headings = [column[0] for column in there]
    rows = []
    for row in _records(found.head(_MOST_LINES)):
        figures = ["-" if row.get(name) is None else short(times * row[name], spec) for _, name, times, spec in there]
        rows.append([str(row.get(first)), str(row.get("case") or "-"), *figures])
    spare = ["waves", "conflicts", "tensor %", "registers", "occ. %"]
    print_table(screen, [first, "kernel", *headings], rows, numbers=[first, *headings], spare=spare)
    if len(found) > _MOST_LINES:
        screen.print(f"... and {counted(len(found) - _MOST_LINES, 'row')} more: --csv FILE has all")


def show_columns(stream: TextIO) -> int:
    """Print what the columns hold; the exit code."""
    from bwprof.profilers.columns import COLUMNS

    rows = ((column.name, column.unit, column.text) for column in COLUMNS)
    print_table(console(stream), ["column", "unit", "what it holds"], rows)
    return 0


def as_text(found: pd.DataFrame, kind: str) -> str:
    """A frame as csv, json or md."""
    from bwprof.profilers import saved

    if kind == "json":
        return saved.json_text(found)
    if kind == "md":
        from bwprof.analysis.answer import markdown
        from bwprof.profilers.columns import COLUMNS

        known = [column.name for column in COLUMNS if column.name in found.columns]
        if {"case", "kernel"} <= set(known) and found["kernel"].str.len().max() > _LONGEST:
            known.remove("kernel")  # its short name tells
        return markdown(found[known]) + "\n"
    return saved.csv_text(found)
