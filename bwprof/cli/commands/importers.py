"""The command ``python -m bwprof.importers``: print or convert the files of other profilers."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from bwprof.cli import options as cli_options
from bwprof.cli.guard import INCOMPLETE, OK, USAGE, guarded
from bwprof.cli.options import Parser, read_positive, run
from bwprof.cli.output import choose_targets, write_each
from bwprof.importers import detect
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.ncu.parse import parse_ncu
from bwprof.importers.nsys import parse_nsys
from bwprof.importers.rocprof.parse import parse_rocprof
from bwprof.text.formatting import format_bytes, format_short, is_missing, plural
from bwprof.text.parsing import describe_unknown, parse_count, quote_text
from bwprof.text.terminal import PLAIN_WIDTH, make_console, print_table

if TYPE_CHECKING:
    import pandas as pd

MOST_BLOCKS = 4  # launches that get lines of their own

_MOST_STALLS = 5

_FIXED = "\u00a0"  # a blank at which no line is folded

_LONGEST = 80  # letters of a kernel's name in Markdown

_LEAST = 40  # letters of a line

_MOST_LINES = 200  # of a table

_Launch = dict[str, Any]


def select_kernels(found: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """The launches of kernels whose name, whole or short, contains this; ValueError where there is none."""
    names = found["kernel"].fillna("")
    held = names.str.contains(kernel, regex=False) | found["case"].fillna("").str.contains(kernel, regex=False)
    kept = found[held].reset_index(drop=True)
    if kept.empty:
        there = ", ".join(quote_text(name) for name in list(dict.fromkeys(found["case"].dropna()))[:5])
        raise ValueError(
            f"--kernel {quote_text(kernel)}: no kernel's name contains it; there are {there or 'no names'}"
        )
    return kept


def _show(found: pd.DataFrame, stream: TextIO) -> None:
    """Print a frame: what it is, its launches, and what was left out."""
    screen = make_console(stream)
    kernels = found["kernel"].nunique()
    grouped = "count" in found.columns
    launches = int(found["count"].sum()) if grouped else len(found)
    source = f"{found.attrs.get('tool', '')} {found.attrs.get('page', '')}".strip()
    screen.print(
        f"{quote_text(found.attrs.get('source', ''))}: {launches_text(launches)} of "
        f"{plural(kernels, 'kernel')} ({source})"
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
    from bwprof.importers.frames import COLUMNS

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


def _format_figure(row: _Launch, name: str, spec: str, form: str) -> str:
    """A figure in words; empty where it is not known."""
    value = row.get(name)
    return "" if value is None else form.format(format_short(float(value), spec))


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
        _format_figure(row, "registers", ".0f", "{} registers a thread"),
        f"{format_bytes(shared)} shared memory a block" if shared else "",
        f"stream {row['stream']}" if row.get("stream") is not None else "",
        f"{row['device']}" if row.get("device") else "",
        f"compute capability {row['compute_capability']}" if row.get("compute_capability") else "",
    )


def _time(row: _Launch) -> str:
    time = row.get("time_ms")
    clocks = (
        _format_figure(row, "sm_clock_mhz", ".0f", "SM {} MHz"),
        _format_figure(row, "mem_clock_mhz", ".0f", "memory {} MHz"),
    )
    if time is None:
        return _joined(*clocks)
    return _joined(f"{format_short(time, '.6g')} ms" if time >= 1 else f"{format_short(1e3 * time, '.6g')} us", *clocks)


def _dram(row: _Launch) -> str:
    read, written = row.get("dram_bytes_read"), row.get("dram_bytes_written")
    moved = "" if read is None or written is None else f"{format_bytes(read)} read, {format_bytes(written)} written"
    rate = _format_figure(row, "dram_gb_s", ".2f", "{} GB/s")
    share = _format_figure(row, "pct_peak", ".2f", "{} % of peak")
    peak = _format_figure(row, "peak_gb_s", ".1f", "peak {} GB/s")
    return _joined(moved, f"{rate} = {share}" if rate and share else rate or share, peak)


def _format_stated_bytes(row: _Launch) -> str:
    """What a caller said that it must move."""
    read, written = row.get("bytes_read"), row.get("bytes_written")
    moved = "" if read is None or written is None else f"{format_bytes(read)} read, {format_bytes(written)} written"
    return _joined(moved, _format_figure(row, "bandwidth_gb_s", ".2f", "{} GB/s"))


def _compute(row: _Launch) -> str:
    return _joined(
        _format_figure(row, "sm_pct", ".2f", "multiprocessors {} %"),
        _format_figure(row, "tensor_pct", ".2f", "tensor pipe {} %"),
        _format_figure(row, "fma_pct", ".2f", "FMA pipe {} %"),
        _format_figure(row, "valu_busy_pct", ".2f", "vector units {} % busy"),
        _format_figure(row, "mem_unit_stalled_pct", ".2f", "memory units {} % stalled"),
    )


def _occupancy(row: _Launch) -> str:
    limiter = f", limited by {row['occupancy_limiter']}" if row.get("occupancy_limiter") else ""
    return _joined(
        _format_figure(row, "occupancy_pct", ".2f", "{} %"),
        _format_figure(row, "theoretical_occupancy_pct", ".4g", "{} % possible") + limiter,
        _format_figure(row, "waves", ".2f", "{} waves"),
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
    return _format_figure(row, f"sectors_per_{what}", ".4g", form)


def _used(row: _Launch, name: str, form: str) -> str:
    """How much of the sectors is used: ncu says 0 of a kernel that has no such accesses."""
    return _format_figure(row, name, ".4g", form) if row.get(name) else ""


def _shared(row: _Launch) -> str:
    return _joined(
        _format_figure(row, "bank_conflicts", ".0f", "{} bank conflicts"),
        _format_figure(row, "shared_wavefronts", ".0f", "{} wavefronts"),
        _format_figure(row, "lds_bank_conflict_pct", ".2f", "{} % of its cycles are bank conflicts"),
    )


def _caches(row: _Launch) -> str:
    local = row.get("local_bytes")
    return _joined(
        _format_figure(row, "l1_hit_pct", ".2f", "L1 {} % hits"),
        _format_figure(row, "l2_hit_pct", ".2f", "L2 {} % hits"),
        f"{format_bytes(local)} to local memory" if local else "",
    )


def _stalls(row: _Launch) -> str:
    parts = [part.partition("=") for part in str(row.get("stall_reasons") or "").split(";") if part]
    told = ", ".join(f"{reason} {value}" for reason, _, value in parts[:_MOST_STALLS])
    return f"{told} warps an issued instruction" if told else ""


_PARTS: dict[str, Callable[[_Launch], str]] = {
    "launched": _launched,
    "time": _time,
    "DRAM": _dram,
    "must move": _format_stated_bytes,
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
        figures = [
            "-" if row.get(name) is None else format_short(times * row[name], spec) for _, name, times, spec in there
        ]
        rows.append([str(row.get(first)), str(row.get("case") or "-"), *figures])
    spare = ["waves", "conflicts", "tensor %", "registers", "occ. %"]
    print_table(screen, [first, "kernel", *headings], rows, numbers=[first, *headings], spare=spare)
    if len(found) > _MOST_LINES:
        screen.print(f"... and {plural(len(found) - _MOST_LINES, 'row')} more: --csv FILE has all")


def show_columns(stream: TextIO) -> int:
    """Print what the columns hold; the exit code."""
    from bwprof.importers.frames import COLUMNS

    rows = ((column.name, column.unit, column.text) for column in COLUMNS)
    print_table(make_console(stream), ["column", "unit", "what it holds"], rows)
    return 0


def as_text(found: pd.DataFrame, kind: str) -> str:
    """A frame as csv, json or md."""
    from bwprof.importers import frames

    if kind == "json":
        return frames.to_json(found)
    if kind == "md":
        from bwprof.analysis.answer import markdown
        from bwprof.importers.frames import COLUMNS

        known = [column.name for column in COLUMNS if column.name in found.columns]
        if {"case", "kernel"} <= set(known) and found["kernel"].str.len().max() > _LONGEST:
            known.remove("kernel")  # its short name tells
        return markdown(found[known]) + "\n"
    return frames.to_csv(found)


def add_bytes_options(parser: argparse.ArgumentParser) -> None:
    """Take the options."""
    parser.add_argument(
        "--bytes",
        metavar="NAME=READ,WRITTEN",
        action="append",
        help="what a launch of a kernel must move: '*copy*=64Mi,64Mi' (a name or a pattern; again for others)",
    )
    parser.add_argument("--peak", metavar="GB/S", help="the memory's theoretical bandwidth, where the rows have none")


def add_caller_figures(found: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """The rows with what the options state; ValueError for what cannot be."""
    from bwprof.importers.timeline import add_bytes, add_peak

    if options.bytes is not None:
        found = add_bytes(found, _bytes(options.bytes))
    peak = read_positive(options.peak, "--peak", "a bandwidth in GB/s")
    return found if peak is None else add_peak(found, peak)


def _bytes(given: Sequence[str]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for text in given:
        name, _, counts = text.rpartition("=")
        read, _, written = counts.partition(",")
        if not name or not written:
            raise ValueError(
                f"--bytes is '{quote_text(text)}': NAME=READ,WRITTEN is needed, such as '*copy*=64Mi,64Mi'"
            )
        if name in found:
            raise ValueError(f"--bytes {quote_text(name)} is given twice")
        found[name] = (parse_count(read, "--bytes"), parse_count(written, "--bytes"))
    return found


class ProfilerReader(NamedTuple):
    """A profiler whose files can be read: what reads them, and what they are, for the help."""

    parse: Callable[[Path], pd.DataFrame]
    files: str


# The subcommands. Another profiler is a line here.
READERS: dict[str, ProfilerReader] = {
    "ncu": ProfilerReader(
        parse_ncu, "what ncu printed with --csv (--page raw or details) or as text, or its report (.ncu-rep)"
    ),
    "rocprof": ProfilerReader(parse_rocprof, "a CSV file of rocprof or rocprofv3, or the folder of one run"),
    "trace": ProfilerReader(parse_chrome_trace, "a trace that torch.profiler wrote: .json, or .json.gz"),
    "nsys": ProfilerReader(parse_nsys, "what nsys export --type sqlite made of a report, or the CSV of nsys stats"),
}

_PROGRAM = "python -m bwprof.importers"

COLUMNS = "columns"


def main_import(arguments: Sequence[str] | None = None) -> int:
    """Print what another profiler measured; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _main(given))


def _main(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        sys.stdout.write(_usage())
        return OK if given else USAGE
    if given[0] == COLUMNS:
        return _columns(given[1:])
    if given[0] in READERS:
        return read(given[0], given[1:], f"{_PROGRAM} {given[0]}")
    sys.stderr.write(f"bwprof: error: {describe_unknown('profiler', given[0], [*READERS, COLUMNS])}\n")
    return USAGE


def _columns(arguments: Sequence[str]) -> int:
    """What the columns of all of them hold."""
    parser = Parser(f"{_PROGRAM} {COLUMNS}", "The columns that files of other profilers are read into, in their order.")
    return run(parser, arguments, lambda _: show_columns(sys.stdout))


def _usage() -> str:
    lines = [f"       {_PROGRAM} {name} FILE   {reader.files}" for name, reader in READERS.items()]
    lines.append(f"       {_PROGRAM} {COLUMNS}   what the columns hold")
    return f"usage: {_PROGRAM} PROFILER FILE ({' or '.join(READERS)} --help)\n" + "\n".join(lines) + "\n"


def read(name: str, arguments: Sequence[str], program: str) -> int:
    """The subcommand of one profiler; returns the exit code."""
    parser = Parser(
        program,
        "Print what another profiler measured, a row a launch: of few launches all that is known, of many a table; of\n"
        "time lines a row for each name.",
        "Columns: time, bytes, bandwidth, shares of peaks, why warps wait. The rest: --csv, --json, whose files this "
        "command,\nbwprof diagnose and bwprof.importers.load read again.",
    )
    parser.add_argument("file", metavar="FILE", help=READERS[name].files)
    parser.add_argument("--kernel", metavar="TEXT", help="only kernels whose name contains this")
    add_bytes_options(parser)
    cli_options.add_files(parser, " and notes")
    parser.add_argument("--md", metavar="FILE|-", help="rows as a table in Markdown")
    return run(parser, arguments, lambda given: _print(READERS[name], given))


def _print(reader: ProfilerReader, given: argparse.Namespace) -> int:
    targets = choose_targets(given, given.file)
    found = add_caller_figures(_read(reader, given.file), given)
    if given.kernel is not None:
        found = select_kernels(found, given.kernel)
    return emit_launches(found, targets)


def _read(reader: ProfilerReader, name: str) -> pd.DataFrame:
    """The rows of a file of that profiler, or of one that bwprof wrote of it; of another's the sentence names its
    command.
    """
    kind = detect.detect_kind(name)
    if kind == detect.SAVED:
        return detect.load(name)
    try:
        return reader.parse(Path(name))
    except ValueError as error:
        if kind not in READERS or READERS[kind] is reader:
            raise
        raise ValueError(f"{error} (it looks like a file of {kind}: {_PROGRAM} {kind} FILE)") from None


def emit_launches(found: pd.DataFrame, targets: Mapping[str, str]) -> int:
    """Show a frame, unless it goes to the standard output in another form, and write it; the exit code."""
    if "-" not in targets.values():
        _show(found, sys.stdout)
    written = write_each(targets, lambda kind: as_text(found, kind))
    return OK if written == set(targets) else INCOMPLETE
