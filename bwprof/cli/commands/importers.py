"""The command ``bwprof import``: print or convert the files of other profilers."""

from __future__ import annotations

import argparse
import string
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof.cli.guard import OK, USAGE, guarded
from bwprof.cli.options import FILES, MARKDOWN, Parser, read_positive, run
from bwprof.cli.output import choose_targets, emit
from bwprof.importers import detect
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.ncu.parse import parse_ncu
from bwprof.importers.nsys import parse_nsys
from bwprof.importers.rocprof import parse_rocprof
from bwprof.text.formatting import format_bytes, format_short, is_missing, plural
from bwprof.text.parsing import describe_unknown, parse_count, quote_text
from bwprof.text.terminal import PLAIN_WIDTH, make_console, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

MOST_BLOCKS = 4  # launches that get lines of their own
_MOST_STALLS = 5
_FIXED = "\u00a0"  # a blank at which no line is folded
_LONGEST = 80  # letters of a kernel's name in Markdown
_LEAST = 40  # letters of a line
_MOST_LINES = 200  # of a table
_Launch = dict[str, Any]


def select_kernels(data: pd.DataFrame, text: str | None) -> pd.DataFrame:
    """Select the launches of kernels whose name, long or short, contains a text; ValueError where there is none."""
    if text is None:
        return data
    names = (data[column].fillna("").str.contains(text, regex=False) for column in ("kernel", "case"))
    selected = data[next(names) | next(names)].reset_index(drop=True)
    if selected.empty:
        known = ", ".join(quote_text(name) for name in list(dict.fromkeys(data["case"].dropna()))[:5])
        message = f"no kernel's name contains it; there are {known or 'no names'}"
        raise ValueError(f"--kernel {quote_text(text)}: {message}")
    return selected


def _show(data: pd.DataFrame, screen: Console) -> None:
    """Print where a frame is from, its launches, and its notes."""
    grouped = "count" in data.columns
    launches = launches_text(data["count"].sum() if grouped else len(data))
    tool = f"{data.attrs.get('tool', '')} {data.attrs.get('page', '')}".strip()
    kernels = plural(data["kernel"].nunique(), "kernel")
    screen.print(f"{quote_text(data.attrs.get('source', ''))}: {launches} of {kernels} ({tool})")
    if grouped:
        _print_rows(data, screen, "count", _TIMES)
    elif len(data) <= MOST_BLOCKS:
        for row in _records(data):
            screen.print("")
            for line in block(row, min(screen.width, PLAIN_WIDTH)):
                screen.print(line, soft_wrap=True)
    else:
        _print_rows(data, screen, "launch", _COLUMNS)
    for note in data.attrs.get("notes", ()):
        screen.print(f"note: {note}")


def launches_text(count: float) -> str:
    """Count launches in words: '1 launch', '3 launches'."""
    return "1 launch" if count == 1 else f"{count:.0f} launches"


def _records(data: pd.DataFrame) -> list[_Launch]:
    from bwprof.importers.frames import COLUMNS

    rows = data[[column.name for column in COLUMNS if column.name in data.columns]].to_dict(orient="records")
    return [{str(name): None if is_missing(value) else value for name, value in row.items()} for row in rows]


def block(row: _Launch, width: int = PLAIN_WIDTH) -> list[str]:
    """List all that is known of a launch, a part of it a line that is folded at `width`."""
    name = str(row.get("kernel") or "a kernel without a name")
    title = f"launch {row.get('launch')}: {name}"
    if len(title) > width and row.get("case"):
        title = f"launch {row.get('launch')}: {row['case']} (a name of {len(name)} letters: --json)"
    lines = [title]
    values = _values_for_text(row)
    parts: dict[str, list[str]] = {}
    for line in _PARTS.splitlines():
        part, _, items = line.partition(": ")
        parts.setdefault(part, []).extend(
            filter(None, (_fill(item.split(" | "), values) for item in items.split("; ")))
        )
    for part, texts in parts.items():
        if texts:
            text = ", ".join(texts)
            joined = text.replace(" ", _FIXED).replace(f",{_FIXED}", ", ")  # a number and its unit stay together
            folded = textwrap.fill(
                joined, max(width, _LEAST), initial_indent=f"  {part:<11}", subsequent_indent=" " * 13
            )
            lines += folded.replace(_FIXED, " ").splitlines()
    return lines


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "bytes":
            return format_bytes(value)
        return format_short(float(value), format_spec) if format_spec else str(value)


def _fill(templates: Sequence[str], values: Mapping[str, Any]) -> str:
    """Fill in the first template whose values are all known; empty where none is."""
    for template in templates:
        names = [name for _, name, _, _ in string.Formatter().parse(template) if name]
        if all(values.get(name) is not None for name in names):
            return _Formatter().vformat(template, (), values)
    return ""


def _values_for_text(row: _Launch) -> _Launch:
    values = dict(row)
    for name in ("shared_bytes", "local_bytes", "load_efficiency_pct", "store_efficiency_pct", "estimated", "device"):
        values[name] = row.get(name) or None  # ncu writes 0 for a kernel that has no such accesses
    for name, total in (("grid", "grid_blocks"), ("block", "block_threads")):
        values[name] = row.get(name) or row.get(total) or None
    for name in ("load", "store"):
        if row.get(f"sectors_per_{name}") == 0:
            values |= {f"sectors_per_{name}": None, f"no_{name}": f"no {name} requests"}
    if (time := row.get("time_ms")) is not None:
        values["time"] = f"{format_short(time, '.6g')} ms" if time >= 1 else f"{format_short(1e3 * time, '.6g')} us"
    if reasons := [part.partition("=") for part in str(row.get("stall_reasons") or "").split(";") if part]:
        values["stalls"] = ", ".join(f"{reason} {value}" for reason, _, value in reasons[:_MOST_STALLS])
    return values


# What is printed of a launch: of each part the templates whose values are all known; of alternatives the first.
_PARTS = """\
launched: {grid} blocks of {block} threads; {registers:.0f} registers a thread
launched: {shared_bytes:bytes} shared memory a block; stream {stream}; {device}; compute capability {compute_capability}
time: {time}; SM {sm_clock_mhz:.0f} MHz; memory {mem_clock_mhz:.0f} MHz
DRAM: {dram_bytes_read:bytes} read, {dram_bytes_written:bytes} written
DRAM: {dram_gb_s:.2f} GB/s = {pct_peak:.2f} % of peak | {dram_gb_s:.2f} GB/s | {pct_peak:.2f} % of peak
DRAM: peak {peak_gb_s:.1f} GB/s
must move: {bytes_read:bytes} read, {bytes_written:bytes} written; {bandwidth_gb_s:.2f} GB/s
compute: multiprocessors {sm_pct:.2f} %; tensor pipe {tensor_pct:.2f} %; FMA pipe {fma_pct:.2f} %
compute: vector units {valu_busy_pct:.2f} % busy; memory units {mem_unit_stalled_pct:.2f} % stalled
occupancy: {occupancy_pct:.2f} %; {theoretical_occupancy_pct:.4g} % possible; limited by {occupancy_limiter}
occupancy: {waves:.2f} waves
access: {no_load}
access: {sectors_per_load:.4g} sectors a load, {sectors_per_store:.4g} a store | {sectors_per_load:.4g} sectors a load \
| {sectors_per_store:.4g} sectors a store
access: {no_store}; {load_efficiency_pct:.4g} % of loaded bytes used
access: {store_efficiency_pct:.4g} % of stored sectors written
shared: {bank_conflicts:.0f} bank conflicts; {shared_wavefronts:.0f} wavefronts
shared: {lds_bank_conflict_pct:.2f} % of its cycles are bank conflicts
caches: L1 {l1_hit_pct:.2f} % hits; L2 {l2_hit_pct:.2f} % hits; {local_bytes:bytes} to local memory
waiting: {stalls} warps an issued instruction
estimated: {estimated}
"""

# A table's columns: heading, column, factor, format.
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

# Of a timeline's rows.
_TIMES = (
    ("median us", "time_ms", 1e3, ".6g"),
    ("total ms", "total_ms", 1.0, ".4g"),
    ("% of time", "share_pct", 1.0, ".1f"),
    ("GB/s", "bandwidth_gb_s", 1.0, ".1f"),
    ("occ. %", "occupancy_pct", 1.0, ".1f"),
    ("registers", "registers", 1.0, ".0f"),
)


def _print_rows(
    data: pd.DataFrame, screen: Console, first: str, columns: tuple[tuple[str, str, float, str], ...]
) -> None:
    columns = tuple(column for column in columns if column[1] in data.columns)
    headings = [column[0] for column in columns]
    rows = []
    for row in _records(data.head(_MOST_LINES)):
        cells = [
            "-" if row.get(name) is None else format_short(times * row[name], spec) for _, name, times, spec in columns
        ]
        rows.append([str(row.get(first)), str(row.get("case") or "-"), *cells])
    spare = ["waves", "conflicts", "tensor %", "registers", "occ. %"]
    print_table(screen, [first, "kernel", *headings], rows, numbers=[first, *headings], spare=spare)
    if len(data) > _MOST_LINES:
        screen.print(f"... and {plural(len(data) - _MOST_LINES, 'row')} more: --csv FILE has all")


def as_text(data: pd.DataFrame, kind: str) -> str:
    """Write a frame as csv, json or md."""
    from bwprof.analysis.answer import markdown
    from bwprof.importers import frames

    if kind != "md":
        return frames.to_json(data) if kind == "json" else frames.to_csv(data)
    known = [column.name for column in frames.COLUMNS if column.name in data.columns]
    if {"case", "kernel"} <= set(known) and data["kernel"].str.len().max() > _LONGEST:
        known.remove("kernel")  # "case" has its short name
    return markdown(data[known]) + "\n"


CALLER_FIGURES = """\
--bytes NAME=READ,WRITTEN ...  what a launch of a kernel must move: '*copy*=64Mi,64Mi' (a name or a pattern; repeatable)
--peak GB/S  the memory's theoretical bandwidth, where the rows have none
"""


def add_caller_figures(data: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """Fill in the bytes and the peak of --bytes and --peak; ValueError where the rows cannot have them."""
    from bwprof.importers.timeline import add_bytes, add_peak

    if options.bytes:
        data = add_bytes(data, _read_bytes(options.bytes))
    peak = read_positive(options.peak, "--peak", "a bandwidth in GB/s")
    return data if peak is None else add_peak(data, peak)


def _read_bytes(values: Sequence[str]) -> dict[str, tuple[int, int]]:
    result: dict[str, tuple[int, int]] = {}
    for text in values:
        name, _, counts = text.rpartition("=")
        read, _, written = counts.partition(",")
        if not name or not written:
            example = "NAME=READ,WRITTEN is needed, such as '*copy*=64Mi,64Mi'"
            raise ValueError(f"--bytes is '{quote_text(text)}': {example}")
        if name in result:
            raise ValueError(f"--bytes {quote_text(name)} is given twice")
        result[name] = (parse_count(read, "--bytes"), parse_count(written, "--bytes"))
    return result


class ProfilerReader(NamedTuple):
    """A profiler whose files can be read: its parser, and what the files are."""

    parse: Callable[[Path], pd.DataFrame]
    files: str


# The kinds of files. Another profiler is a line here.
READERS: dict[str, ProfilerReader] = {
    "ncu": ProfilerReader(
        parse_ncu, "what ncu printed with --csv (--page raw or details) or as text, or its report (.ncu-rep)"
    ),
    "rocprof": ProfilerReader(parse_rocprof, "a CSV file of rocprof or rocprofv3, or the folder of one run"),
    "trace": ProfilerReader(parse_chrome_trace, "a trace that torch.profiler wrote: .json, or .json.gz"),
    "nsys": ProfilerReader(parse_nsys, "what nsys export --type sqlite made of a report, or the CSV of nsys stats"),
}

_PROGRAM = "bwprof import"
COLUMNS = "columns"

_DESCRIPTION = """\
Print what another profiler measured: of few launches all that is known, of many a table with a row for each. A timeline
has a row for each name.
"""

_TABLE = f"""\
--kernel TEXT  only kernels whose name contains this
{CALLER_FIGURES}
{FILES}
{MARKDOWN}"""

_EPILOG = """\
This command, bwprof diagnose and bwprof.importers.load also read the files of --csv and --json.

examples:
  %(prog)s FILE
  %(prog)s FILE --kernel copy --bytes '*copy*=64Mi,64Mi' --peak 3350
  %(prog)s FILE --csv rows.csv --md rows.md
"""


def main_import(arguments: Sequence[str] | None = None) -> int:
    """Print what another profiler measured; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _main(words))


def _main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        lines = [f"{f'{_PROGRAM} {name} FILE':<28}{reader.files}" for name, reader in READERS.items()]
        lines.append(f"{f'{_PROGRAM} {COLUMNS}':<28}what the columns mean")
        sys.stdout.write(
            f"usage: {_PROGRAM} KIND FILE ({_PROGRAM} KIND --help)\n       " + "\n       ".join(lines) + "\n"
        )
        return OK if words else USAGE
    if words[0] == COLUMNS:
        text = "Print the columns that files of other profilers are read into, in their order."
        return run(Parser(f"{_PROGRAM} {COLUMNS}", text), words[1:], _print_columns)
    if words[0] in READERS:
        return run_reader(words[0], words[1:], f"{_PROGRAM} {words[0]}")
    sys.stderr.write(f"bwprof: error: {describe_unknown('profiler', words[0], [*READERS, COLUMNS])}\n")
    return USAGE


def _print_columns(_options: argparse.Namespace) -> int:
    from bwprof.importers import frames

    rows = ((column.name, column.unit, column.text) for column in frames.COLUMNS)
    print_table(make_console(sys.stdout), ["column", "unit", "what it holds"], rows)
    return OK


def run_reader(name: str, arguments: Sequence[str], program: str) -> int:
    """Run the command of one profiler; returns the exit code."""
    reader = READERS[name]
    parser = Parser(program, _DESCRIPTION, f"file=FILE  {reader.files}\n{_TABLE}", _EPILOG)
    return run(parser, arguments, lambda options: _run(reader, options))


def _run(reader: ProfilerReader, options: argparse.Namespace) -> int:
    targets = choose_targets(options, options.file)
    return emit_launches(
        select_kernels(add_caller_figures(_read(reader, options.file), options), options.kernel), targets
    )


def _read(reader: ProfilerReader, name: str) -> pd.DataFrame:
    """Read a file of a profiler, or one that bwprof wrote; the message about another's names its command."""
    kind = detect.detect_kind(name)
    if kind == detect.SAVED:
        return detect.load(name)
    try:
        return reader.parse(Path(name))
    except ValueError as error:
        if kind not in READERS or READERS[kind] is reader:
            raise
        raise ValueError(f"{error} (it looks like a file of {kind}: {_PROGRAM} {kind} FILE)") from None


def emit_launches(data: pd.DataFrame, targets: Mapping[str, str]) -> int:
    """Print launches and write them to their targets; returns the exit code."""
    texts = {kind: lambda kind=kind: as_text(data, kind) for kind in targets}
    return emit(targets, texts, lambda screen: _show(data, screen))
