"""The commands ``bwprof import`` (files of other profilers) and ``bwprof ncu`` (Nsight Compute)."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import string
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof.cli.guard import OK
from bwprof.cli.options import CALLER_FIGURES, FILES, MARKDOWN, Command, add_caller_figures, command, run_group
from bwprof.cli.output import choose_targets, emit, json_text
from bwprof.cli.render import markdown, print_document
from bwprof.importers import detect
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.ncu.command import PRESETS, ncu_capture, ncu_command
from bwprof.importers.ncu.parse import parse_ncu
from bwprof.importers.nsys import parse_nsys
from bwprof.importers.rocprof.parse import parse_rocprof
from bwprof.text.document import (
    Document,
    Section,
    make_list,
    make_paragraph,
    make_section,
    make_table,
    present_sections,
)
from bwprof.text.formatting import format_bytes, format_short, is_missing, plural
from bwprof.text.parsing import quote_text
from bwprof.text.terminal import PLAIN_WIDTH, make_console, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_MOST_BLOCKS = 4  # launches, or pairs of them, that get lines of their own
_MOST_LINES = 200  # of a table
_MOST_STALLS = 5
_FIXED = "\u00a0"  # a blank at which no line is folded
_LONGEST = 80  # letters of a kernel's name in Markdown
_LEAST = 40  # letters of a line
_NAME = 30  # letters of a kernel's name in a table of pairs
_SAME = 0.01  # a smaller change is none
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
    elif len(data) <= _MOST_BLOCKS:
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


class ProfilerReader(NamedTuple):
    """A profiler whose files can be read: its parser, and what the files are."""

    parse: Callable[[Path], pd.DataFrame]
    files: str


# The kinds of files. Another profiler is a line here.
READERS: dict[str, ProfilerReader] = {
    "ncu": ProfilerReader(
        parse_ncu, "a page that ncu printed (--csv, raw or details; or text), or its report (.ncu-rep)"
    ),
    "rocprof": ProfilerReader(parse_rocprof, "a CSV file of rocprof or rocprofv3, or the folder of one run"),
    "trace": ProfilerReader(parse_chrome_trace, "a trace that torch.profiler wrote: .json, or .json.gz"),
    "nsys": ProfilerReader(parse_nsys, "what nsys export --type sqlite made of a report, or the CSV of nsys stats"),
}

_FILE_TABLE = f"""\
--kernel TEXT  only kernels whose name contains this
{CALLER_FIGURES}
{FILES}
{MARKDOWN}"""

_FILE_EPILOG = """\
This command, bwprof diagnose and bwprof.importers.load also read the files of --csv and --json.

examples:
  %(prog)s FILE
  %(prog)s FILE --kernel copy --bytes '*copy*=64Mi,64Mi' --peak 3350
  %(prog)s FILE --csv rows.csv --md rows.md
"""


def main_import(arguments: Sequence[str] | None = None) -> int:
    """Print what another profiler measured; returns the exit code."""
    lines = [f"{f'bwprof import {name} FILE':<28}{kind.files}\n" for name, kind in READERS.items()]
    lines.append(f"{'bwprof import columns':<28}what the columns mean\n")
    usage = f"usage: bwprof import KIND FILE (bwprof import KIND --help)\n       {'       '.join(lines)}"
    commands = {name: _file_command(name, f"bwprof import {name}") for name in READERS}
    words = sys.argv[1:] if arguments is None else arguments
    return run_group("import", words, usage, {**commands, "columns": main_import_columns})


@command()
def main_import_columns(_options: argparse.Namespace) -> int:
    """Print the columns that files of other profilers are read into, in their order."""
    from bwprof.importers import frames

    rows = ((column.name, column.unit, column.text) for column in frames.COLUMNS)
    print_table(make_console(sys.stdout), ["column", "unit", "what it holds"], rows)
    return OK


def _file_command(name: str, program: str) -> Command:
    """Make the command that prints a file of one profiler."""

    def read_file(options: argparse.Namespace) -> int:
        """Print what another profiler measured.

        Of few launches that is all that is known, of many a table with a row for each. A timeline has a row a name.
        """
        targets = choose_targets(options, options.file)
        data = add_caller_figures(_read(name, options.file), options)
        return _emit_launches(select_kernels(data, options.kernel), targets)

    return Command(program, read_file, f"file=FILE  {READERS[name].files}\n{_FILE_TABLE}", _FILE_EPILOG, {})


def _read(name: str, path: str) -> pd.DataFrame:
    """Read a file of a profiler, or one that bwprof wrote; the message about another's names its command."""
    kind = detect.detect_kind(path)
    if kind == detect.SAVED:
        return detect.load(path)
    try:
        return READERS[name].parse(Path(path))
    except ValueError as error:
        if kind not in READERS or kind == name:
            raise
        raise ValueError(f"{error} (it looks like a file of {kind}: bwprof import {kind} FILE)") from None


def _emit_launches(data: pd.DataFrame, targets: Mapping[str, str]) -> int:
    """Print launches and write them to their targets; returns the exit code."""
    texts = {kind: lambda kind=kind: as_text(data, kind) for kind in targets}
    return emit(targets, texts, lambda screen: _show(data, screen))


_COMPARE_TABLE = f"""\
base=BASE  the file before the change
new=NEW  the file after it
--kernel TEXT  only kernels whose name contains this
--all  print the figures that stayed the same, too
{FILES}
{MARKDOWN}"""

_COMPARE_EPILOG = """\
BASE and NEW are pages (.csv) or reports (.ncu-rep) of ncu, or files of bwprof ncu capture --json. Compare times under a
profiler with each other alone; bwprof ab and bwprof compare measure without one.
No command reads what --csv and --json write, a line for each launch and figure.

examples:
  %(prog)s before.ncu-rep after.ncu-rep
  %(prog)s before.json after.json --kernel attention --all
  %(prog)s before.csv after.csv --md changes.md
"""

# The figures of a pair's table; the first nine are always printed, the rest where they changed.
_HEADINGS = {
    "time_ms": "time, us",
    "dram_bytes_read": "DRAM read",
    "dram_bytes_written": "DRAM written",
    "dram_gb_s": "DRAM GB/s",
    "pct_peak": "% of peak",
    "occupancy_pct": "occupancy, %",
    "sectors_per_load": "sectors a load",
    "sectors_per_store": "sectors a store",
    "bank_conflicts": "bank conflicts",
    "dram_pct": "DRAM busy, %",
    "sm_pct": "multiprocessors, %",
    "tensor_pct": "tensor pipe, %",
    "fma_pct": "FMA pipe, %",
    "theoretical_occupancy_pct": "occupancy possible, %",
    "shared_bytes": "shared memory, block",
    "load_efficiency_pct": "loaded bytes used, %",
    "store_efficiency_pct": "stored sectors used, %",
    "shared_wavefronts": "shared wavefronts",
    "local_bytes": "local memory",
    "l1_hit_pct": "L1 hits, %",
    "l2_hit_pct": "L2 hits, %",
    "l2_bytes": "through L2",
    "active_threads": "active threads",
}
_FIRST = tuple(_HEADINGS)[:9]
_Line = dict[Any, Any]  # a figure of a pair of launches


@command(_COMPARE_TABLE, _COMPARE_EPILOG)
def main_ncu_compare(options: argparse.Namespace) -> int:
    """Compare two files of Nsight Compute, launch beside launch.

    Launches are paired by their kernel's name and their order. Compared are time, bytes, bandwidth, occupancy,
    sectors, bank conflicts and stalls.
    """
    from bwprof.importers.frames import to_csv
    from bwprof.importers.ncu.compare import ncu_compare

    targets = choose_targets(options, options.base, options.new)
    names = (options.base, options.new)
    sides = names if options.kernel is None else [select_kernels(detect.load(name), options.kernel) for name in names]
    data = ncu_compare(*sides)
    data.attrs |= {"base": options.base, "new": options.new}
    facts = {"format": "bwprof-profile-comparison", **data.attrs}
    texts = {
        "csv": lambda: to_csv(data),
        "json": lambda: json_text(facts | {"rows": json.loads(data.to_json(orient="records"))}),
        "md": lambda: markdown(_pairs_document(data, everything=options.all)),
    }
    return emit(
        targets,
        texts,
        lambda screen: print_document(screen, _pairs_document(data, everything=options.all, most=_MOST_BLOCKS)),
    )


def _pairs_document(data: pd.DataFrame, *, everything: bool, most: int | None = None) -> Document:
    """Make a table for each pair of launches, of more than `most` one for all, between the total and the notes."""
    both = data[data["side"] == "both"]
    pairs = [pair.to_dict(orient="records") for _, pair in both.groupby("pair", sort=False)]
    if most is not None and len(pairs) > most:
        sections = [_overview(pairs)]
    else:
        sections = [_pair_section(lines, everything=everything) for lines in pairs]
    sections.append(make_section("", "Notes", make_list(_notes(data))))
    total = make_paragraph(_total(data))
    title = f"{data.attrs['base']} and {data.attrs['new']}"
    return Document(title, "", present_sections(sections), () if total is None else (total,))


def _pair_section(lines: list[_Line], *, everything: bool) -> Section | None:
    selected = [line for line in lines if everything or line["figure"] in _FIRST or _is_changed(line)]
    selected.sort(key=lambda line: (*_FIRST, line["figure"]).index(line["figure"]))
    rows = []
    for line in selected:
        figure = line["figure"]
        heading = _HEADINGS.get(figure, f"{figure}, %" if figure.startswith("stall ") else figure)
        rows.append((heading, _value(line, "base"), _value(line, "new"), _change(line)))
    hidden = len(lines) - len(rows)
    more = f"({plural(hidden, 'figure')} more, hardly changed or of one side alone: --all)" if hidden else ""
    numbers = ("base", "new", "change")
    launches = dict.fromkeys(str(lines[0][name]) for name in ("base_launch", "new_launch"))
    title = f"{_shorten(lines[0]['case'])} (launch {', '.join(launches)})"
    return make_section("", title, make_table(["figure", *numbers], rows, numbers=numbers), make_paragraph(more))


def _overview(pairs: list[list[_Line]]) -> Section | None:
    """Make a table with a line for each of many pairs."""
    numbers = ["us base", "us new", "change", "GB/s base", "GB/s new"]
    rows = []
    for lines in pairs[:_MOST_LINES]:
        figures = {line["figure"]: line for line in lines}
        cells = ["-"] * len(numbers)
        if time := figures.get("time_ms"):
            cells[:3] = _value(time, "base"), _value(time, "new"), _change(time)
        if speed := figures.get("dram_gb_s"):
            cells[3:] = _value(speed, "base"), _value(speed, "new")
        launches = dict.fromkeys(str(lines[0][name]) for name in ("base_launch", "new_launch"))
        rows.append([", ".join(launches), _shorten(lines[0]["case"], _NAME), *cells])
    left = len(pairs) - len(rows)
    more = make_paragraph(f"... and {plural(left, 'pair')} more: --csv FILE has all" if left else "")
    table = make_table(["launch", "kernel", *numbers], rows, numbers=numbers)
    return make_section("", "Pairs of launches", table, more)


def _notes(data: pd.DataFrame) -> list[str]:
    """List the launches of one side alone, then the notes."""
    from bwprof.importers.ncu.compare import ALONE

    notes = []
    for line in data[data["side"] != "both"].to_dict(orient="records"):
        side = "base" if line["side"] == "only_in_base" else "new"
        notes.append(f"only in {quote_text(data.attrs[side])}: {_shorten(line['case'])}, {launches_text(line[side])}")
    return notes + [f"note: {note}" for note in (*data.attrs["notes"], ALONE)]


def _shorten(name: str, most: int = 2 * _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 3]}..."


def _total(data: pd.DataFrame) -> str:
    """Describe the time of all pairs."""
    from bwprof.importers.ncu.compare import sum_times

    base, new, pairs = sum_times(data)
    if not (base > 0 and new > 0):
        return ""
    change = f"{base / new:.3g} times as fast" if new < base else f"{new / base:.3g} times as long"
    if abs(math.log(new / base)) < math.log1p(_SAME):
        change = "the same"
    text = f"{_us(base)} us before, {_us(new)} us after: {change}"
    return text if pairs == 1 else f"all {pairs} launches: {text}"


def _us(time_ms: float) -> str:
    return format_short(1e3 * time_ms, ".5g")


def _is_changed(line: _Line) -> bool:
    base, new = line["base"], line["new"]
    if math.isnan(base) or math.isnan(new) or line["figure"].startswith("stall "):  # stalls that both sides counted
        return not math.isnan(line["difference"])
    return bool(abs(new - base) > (1 if line["unit"] == "%" else _SAME * max(abs(base), abs(new))))


def _value(line: _Line, side: str) -> str:
    value = line[side]
    if math.isnan(value):
        return "-"
    if line["figure"] == "time_ms":
        return _us(value)
    if line["unit"] == "B":
        return format_bytes(value)
    return format_short(value, ".1f" if line["unit"] in ("%", "GB/s") else ".6g")


def _change(line: _Line) -> str:
    """Describe how much more or less; of shares the difference."""
    difference, ratio = line["difference"], line["ratio"]
    if math.isnan(difference):
        return "-"
    if line["unit"] != "%" and not math.isnan(ratio) and ratio >= 2:
        return f"{format_short(ratio, '.3g')} x"
    change, unit = (difference, "points") if line["unit"] == "%" else (100 * (ratio - 1), "%")
    if difference == 0 or abs(change) < 0.05:
        return "="
    return "from none" if math.isnan(change) else f"{change:+.1f} {unit}"


_CAPTURE_TABLE = f"""\
program=PROGRAM+  and its arguments, behind --
--preset NAME  {", ".join(PRESETS)} (default: full)
--kernel NAME  only kernels of this name, or regex:...
--launches N  no more than so many launches
--clock-control none|base  none (default): the GPU's clocks stay as without a profiler; base: ncu locks them
--timeout SECONDS  end the program after this time
-o, --output NAME  write ncu's report to NAME.ncu-rep
--print-command  print ncu's command line, and run nothing
{FILES}
{MARKDOWN}"""

_CAPTURE_EPILOG = """\
examples:
  %(prog)s -o before --kernel regex:softmax_kernel --launches 3 -- python3 bench.py --n 4096
then find what limits it, and after a change compare:
  bwprof diagnose before.ncu-rep
  bwprof ncu compare before.ncu-rep after.ncu-rep
"""


@command(
    _CAPTURE_TABLE,
    _CAPTURE_EPILOG,
    preset="full",
    clock_control="none",
    usage="%(prog)s [options] -- PROGRAM [ARGUMENT ...]",
)
def main_ncu_capture(options: argparse.Namespace) -> int:
    """Run a program under Nsight Compute, and print what it measured. ncu repeats each launch many times."""
    how = {"launch_count": options.launches, "clock_control": options.clock_control}
    if options.print_command:
        line = ncu_command(options.program, options.kernel, options.preset, options.output or "profile", **how)
        sys.stdout.write(f"{shlex.join(line)}\n")
        return OK
    targets = choose_targets(options)
    program, kernel, preset, report = options.program, options.kernel, options.preset, options.output
    return _emit_launches(ncu_capture(program, kernel, preset, report, timeout_s=options.timeout, **how), targets)


_NCU_USAGE = """\
usage: bwprof ncu show FILE             print a page or report of ncu (bwprof ncu show --help)
       bwprof ncu capture -- PROGRAM …  run a program under ncu and print what it measured (bwprof ncu capture --help)
       bwprof ncu compare BASE NEW      compare two files, launch beside launch (bwprof ncu compare --help)
       bwprof ncu diagnose FILE         print what limits its kernels: the same as bwprof diagnose FILE
"""


def main_ncu(arguments: Sequence[str]) -> int:
    """Show, compare or diagnose what ncu measured, or run a program under it; returns the exit code."""
    from bwprof.cli.commands.diagnose import main_diagnose

    commands = {"capture": main_ncu_capture, "compare": main_ncu_compare, "diagnose": main_diagnose}
    return run_group("ncu", arguments, _NCU_USAGE, {"show": _file_command("ncu", "bwprof ncu show"), **commands})
