"""The commands ``bwprof import`` (files of other profilers) and ``bwprof ncu`` (Nsight Compute)."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof.cli.guard import OK
from bwprof.cli.options import CALLER_FIGURES, FILES, MARKDOWN, Command, add_caller_figures, command, run_group
from bwprof.cli.output import choose_targets, emit, json_text
from bwprof.cli.render import print_cells, print_document
from bwprof.importers import detect
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.ncu.command import PRESETS, ncu_capture, ncu_command
from bwprof.importers.ncu.parse import parse_ncu
from bwprof.importers.nsys import parse_nsys
from bwprof.importers.rocprof import parse_rocprof
from bwprof.text import document as doc
from bwprof.text.formatting import format_bytes, format_short, is_missing, plural
from bwprof.text.parsing import quote_text
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_MOST_LAUNCHES = 4  # launches, or pairs of them, of which every figure is printed
_IN_TITLE = ("kernel", "launch", "case", "stall_reasons", "status")  # the last ones have lines of their own, or none
_MOST_LINES = 200  # of a table
_MOST_STALLS = 5
# The columns of a table of many launches, and of a timeline's rows.
_OF_LAUNCHES = (
    *("launch", "case", "time_ms", "dram_gb_s", "pct_peak", "sm_pct", "tensor_pct", "occupancy_pct"),
    *("sectors_per_load", "bank_conflicts", "waves"),
)
_OF_TIMES = ("count", "case", "time_ms", "total_ms", "share_pct", "bandwidth_gb_s", "occupancy_pct", "registers")
_LONGEST = 80  # letters of a kernel's name on a screen and in Markdown
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
    if grouped or len(data) > _MOST_LAUNCHES:
        _print_lines(data, _OF_TIMES if grouped else _OF_LAUNCHES, screen)
    else:
        _print_launches(data, screen)
    for note in data.attrs.get("notes", ()):
        screen.print(f"note: {note}")


def _print_lines(data: pd.DataFrame, columns: Sequence[str], screen: Console) -> None:
    """Print a line for each of the first rows."""
    from bwprof.importers.frames import COLUMNS

    names = [name for name in columns if name in data.columns]
    units = {column.name: column.unit for column in COLUMNS}
    rows = _records(data.head(_MOST_LINES))
    cells = {name: [_format_value(row.get(name), units[name]) for row in rows] for name in names}
    print_cells(screen, cells, names[:2], ["case"])
    if len(data) > _MOST_LINES:
        screen.print(f"... and {plural(len(data) - _MOST_LINES, 'row')} more: --csv FILE has all")


def _print_launches(data: pd.DataFrame, screen: Console) -> None:
    """Print the names of a few launches, and a table of all their figures."""
    rows = _records(data)
    for row in rows:
        name = str(row.get("kernel") or "a kernel without a name")
        short = f"{row.get('case') or name} (a name of {len(name)} letters: --json)"
        screen.print(f"launch {row.get('launch')}: {name if len(name) <= _LONGEST else short}", soft_wrap=True)
    print_document(screen, doc.Document("", "", (), tuple(filter(None, [launch_table(rows)]))))


def launches_text(count: float) -> str:
    """Count launches in words: '1 launch', '3 launches'."""
    return "1 launch" if count == 1 else f"{count:.0f} launches"


def _records(data: pd.DataFrame) -> list[_Launch]:
    from bwprof.importers.frames import COLUMNS

    rows = data[[column.name for column in COLUMNS if column.name in data.columns]].to_dict(orient="records")
    return [{str(name): None if is_missing(value) else value for name, value in row.items()} for row in rows]


def launch_table(rows: Sequence[_Launch]) -> doc.DocumentTable | None:
    """Make a table of all that is known of a few launches: a line for each figure, a column for each launch."""
    from bwprof.analysis.values import parse_stalls
    from bwprof.importers.frames import COLUMNS

    figures = [(column.name, column.unit) for column in COLUMNS if column.name not in _IN_TITLE]
    lines = [[name, unit, *(_format_value(row.get(name), unit) for row in rows)] for name, unit in figures]
    stalls = [parse_stalls(str(row.get("stall_reasons") or "")) for row in rows]
    shares = {reason: max(side.get(reason, 0) for side in stalls) for reason in dict.fromkeys(chain(*stalls))}
    for reason in sorted(shares, key=lambda reason: -shares[reason])[:_MOST_STALLS]:
        lines.append([f"stall {reason}", "%", *(_format_value(side.get(reason), "%") for side in stalls)])
    known = [line for line in lines if set(line[2:]) != {doc.NOTHING}]
    launches = [f"launch {row.get('launch')}" for row in rows]
    return doc.make_table(["figure", "unit", *launches], known, numbers=launches)


def _format_value(value: Any, unit: str) -> str:
    if is_missing(value) or value == "":
        return doc.NOTHING
    if isinstance(value, str):
        return value
    if unit == "B":
        return format_bytes(value)
    return format_short(value, ".4g" if unit == "%" else ".6g")


def as_text(data: pd.DataFrame, kind: str) -> str:
    """Write a frame as csv, json or md."""
    from bwprof.importers import frames

    if kind != "md":
        return frames.to_json(data) if kind == "json" else frames.to_csv(data)
    known = [column.name for column in frames.COLUMNS if column.name in data.columns]
    if {"case", "kernel"} <= set(known) and data["kernel"].str.len().max() > _LONGEST:
        known.remove("kernel")  # "case" has its short name
    return doc.format_markdown_table(doc.make_frame_table(data[known])) + "\n"


class ProfilerReader(NamedTuple):
    """A profiler whose files can be read: its parser, and what the files are."""

    parse: Callable[[Path], pd.DataFrame]
    files: str


# The kinds of files. Another profiler is a line here.
READERS: dict[str, ProfilerReader] = {
    "ncu": ProfilerReader(parse_ncu, "a page of ncu (raw or details, as --csv or text), or a report (.ncu-rep)"),
    "rocprof": ProfilerReader(parse_rocprof, "a CSV file of rocprof or rocprofv3, or the folder of one run"),
    "trace": ProfilerReader(parse_chrome_trace, "a trace of torch.profiler (.json or .json.gz)"),
    "nsys": ProfilerReader(parse_nsys, "the database of nsys export --type sqlite, or the CSV of nsys stats"),
}

_FILE_TABLE = f"""\
--kernel TEXT  only kernels whose name contains this
{CALLER_FIGURES}
{FILES}
{MARKDOWN}"""


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
    """Print the columns of bwprof import, in their order."""
    from bwprof.importers import frames

    rows = ((column.name, column.unit, column.text) for column in frames.COLUMNS)
    print_table(make_console(sys.stdout), ["column", "unit", "what it holds"], rows)
    return OK


def _file_command(name: str, program: str) -> Command:
    """Make the command that prints a file of one profiler."""

    def read_file(options: argparse.Namespace) -> int:
        """Print what another profiler measured: all figures of a few launches, or a row for each of many.

        A trace or an nsys file gets a row for each kernel name.

        Examples:
          bwprof import ncu FILE
          bwprof import trace FILE --bytes '*copy*=64Mi,64Mi' --peak 3350
          bwprof import ncu FILE --kernel copy --csv rows.csv --md rows.md
        """
        targets = choose_targets(options, options.file)
        data = add_caller_figures(_read(name, options.file), options)
        return _emit_launches(select_kernels(data, options.kernel), targets)

    return Command(program, read_file, f"file=FILE  {READERS[name].files}\n{_FILE_TABLE}")


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


# The figures of a pair that are always printed; the others are where they changed.
_FIRST = (
    *("time_ms", "dram_bytes_read", "dram_bytes_written", "dram_gb_s", "pct_peak", "occupancy_pct"),
    *("sectors_per_load", "sectors_per_store", "bank_conflicts"),
)
_Line = dict[Any, Any]  # a figure of a pair of launches


@command(f"""\
base=BASE  the file before the change: a page (.csv) or report (.ncu-rep) of ncu, or of bwprof ncu capture --json
new=NEW  the file after the change
--kernel TEXT  only kernels whose name contains this
--all  also print figures that stayed the same
{FILES}
{MARKDOWN}""")
def main_ncu_compare(options: argparse.Namespace) -> int:
    """Compare two files of Nsight Compute: time, bytes, bandwidth, occupancy, sectors, bank conflicts and stalls.

    Launches are paired by kernel name and order.

    Examples:
      bwprof ncu compare before.ncu-rep after.ncu-rep
      bwprof ncu compare before.json after.json --kernel attention --all
      bwprof ncu compare before.csv after.csv --md changes.md
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
        "md": lambda: doc.to_markdown(_pairs_document(data, everything=options.all)),
    }
    return emit(
        targets,
        texts,
        lambda screen: print_document(screen, _pairs_document(data, everything=options.all, most=_MOST_LAUNCHES)),
    )


def _pairs_document(data: pd.DataFrame, *, everything: bool, most: int | None = None) -> doc.Document:
    """Make a table for each pair of launches, of more than `most` one for all, between the total and the notes."""
    both = data[data["side"] == "both"]
    pairs = [pair.to_dict(orient="records") for _, pair in both.groupby("pair", sort=False)]
    if most is not None and len(pairs) > most:
        sections = [_overview(pairs)]
    else:
        sections = [_pair_section(lines, everything=everything) for lines in pairs]
    sections.append(doc.make_section("", "Notes", doc.make_list(_notes(data))))
    total = doc.make_paragraph(_total(data))
    title = f"{data.attrs['base']} and {data.attrs['new']}"
    return doc.Document(title, "", doc.present_sections(sections), () if total is None else (total,))


def _pair_section(lines: list[_Line], *, everything: bool) -> doc.Section | None:
    selected = [line for line in lines if everything or line["figure"] in _FIRST or _is_changed(line)]
    selected.sort(key=lambda line: (*_FIRST, line["figure"]).index(line["figure"]))
    rows = []
    for line in selected:
        values = (_format_value(line[side], line["unit"]) for side in ("base", "new"))
        rows.append((line["figure"], line["unit"], *values, _change(line)))
    hidden = len(lines) - len(rows)
    more = f"({plural(hidden, 'figure')} more, hardly changed or of one side alone: --all)" if hidden else ""
    sides = ("base", "new", "change")
    launches = dict.fromkeys(str(lines[0][name]) for name in ("base_launch", "new_launch"))
    title = f"{_shorten(lines[0]['case'])} (launch {', '.join(launches)})"
    table = doc.make_table(["figure", "unit", *sides], rows, numbers=sides)
    return doc.make_section("", title, table, doc.make_paragraph(more))


def _overview(pairs: list[list[_Line]]) -> doc.Section | None:
    """Make a table with a line for each of many pairs."""
    numbers = ["ms base", "ms new", "change", "GB/s base", "GB/s new"]
    rows = []
    for lines in pairs[:_MOST_LINES]:
        figures = {line["figure"]: line for line in lines}
        cells = [
            _format_value(figures[name][side], figures[name]["unit"]) if name in figures else doc.NOTHING
            for name in ("time_ms", "dram_gb_s")
            for side in ("base", "new")
        ]
        cells.insert(2, _change(figures["time_ms"]) if "time_ms" in figures else doc.NOTHING)
        launches = dict.fromkeys(str(lines[0][name]) for name in ("base_launch", "new_launch"))
        rows.append([", ".join(launches), _shorten(lines[0]["case"], _NAME), *cells])
    left = len(pairs) - len(rows)
    more = doc.make_paragraph(f"... and {plural(left, 'pair')} more: --csv FILE has all" if left else "")
    table = doc.make_table(["launch", "kernel", *numbers], rows, numbers=numbers)
    return doc.make_section("", "Pairs of launches", table, more)


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
    text = f"{base:.5g} ms before, {new:.5g} ms after: {change}"
    return text if pairs == 1 else f"all {pairs} launches: {text}"


def _is_changed(line: _Line) -> bool:
    base, new = line["base"], line["new"]
    if math.isnan(base) or math.isnan(new) or line["figure"].startswith("stall "):  # stalls that both sides counted
        return not math.isnan(line["difference"])
    return bool(abs(new - base) > (1 if line["unit"] == "%" else _SAME * max(abs(base), abs(new))))


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
program=PROGRAM+  the program and its arguments, after --
--preset NAME = full  {", ".join(PRESETS)}
--kernel NAME  only kernels of this name, or regex:...
--launches N  at most this many launches
--clock-control none|base = none  none: leave the GPU's clocks as they are; base: ncu locks them
--timeout SECONDS  end the program after this time
-o, --output NAME  write ncu's report to NAME.ncu-rep
--print-command  print the command line of ncu, and run nothing
{FILES}
{MARKDOWN}"""


@command(
    _CAPTURE_TABLE,
    usage="bwprof ncu capture [options] -- PROGRAM [ARGUMENT ...]",
)
def main_ncu_capture(options: argparse.Namespace) -> int:
    """Run a program under Nsight Compute, which repeats each launch many times, and print what it measured.

    Examples:
      bwprof ncu capture -o before --kernel regex:softmax_kernel --launches 3 -- python3 bench.py --n 4096
      bwprof diagnose before.ncu-rep                        then find what limits it,
      bwprof ncu compare before.ncu-rep after.ncu-rep       and compare after a change
    """
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
       bwprof ncu compare BASE NEW      compare two files, launch by launch (bwprof ncu compare --help)
       bwprof ncu diagnose FILE         print what limits its kernels, like bwprof diagnose FILE
"""


def main_ncu(arguments: Sequence[str]) -> int:
    """Show, compare or diagnose what ncu measured, or run a program under it; returns the exit code."""
    from bwprof.cli.commands.diagnose import main_diagnose

    commands = {"capture": main_ncu_capture, "compare": main_ncu_compare, "diagnose": main_diagnose}
    return run_group("ncu", arguments, _NCU_USAGE, {"show": _file_command("ncu", "bwprof ncu show"), **commands})
