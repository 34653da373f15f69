"""The command ``bwprof ncu``: show, capture and compare files of Nsight Compute."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.cli.commands import diagnose
from bwprof.cli.commands.importers import emit_launches, launches_text, run_reader, select_kernels
from bwprof.cli.display import markdown, print_document
from bwprof.cli.guard import OK, USAGE, coded
from bwprof.cli.options import FILES, MARKDOWN, Parser, read_seconds, run
from bwprof.cli.output import choose_targets, emit, json_text
from bwprof.importers.ncu.command import PRESETS, ncu_capture, ncu_command
from bwprof.text.document import Block, Document, Section, make_list, make_paragraph, make_table, present_sections
from bwprof.text.formatting import format_bytes, format_short, plural
from bwprof.text.parsing import describe_unknown, parse_count, quote_text
from bwprof.text.terminal import print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

MOST_BLOCKS = 4  # pairs that get a table of their own
_MOST_LINES = 200  # of the table of more
_NAME = 30  # letters of a kernel's name in it
_SAME = 0.01  # a smaller change is none

_DESCRIPTION = """\
Compare two files of Nsight Compute, launch beside launch: time, bytes, bandwidth, occupancy, sectors, bank conflicts
and stalls. Launches are paired by their kernel's name and their order.
"""

_TABLE = f"""\
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
In Python: bwprof.importers.ncu_compare(base, new).

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
_Pair = tuple[str, list[dict[str, Any]]]  # what a pair of launches is called, its figures


def main_ncu_compare(arguments: Sequence[str]) -> int:
    """Compare and print; returns the exit code."""
    return run(Parser("bwprof ncu compare", _DESCRIPTION, _TABLE, _COMPARE_EPILOG), arguments, _run_compare)


def _run_compare(options: argparse.Namespace) -> int:
    from bwprof.importers.detect import load
    from bwprof.importers.frames import to_csv
    from bwprof.importers.ncu.compare import ncu_compare

    targets = choose_targets(options, options.base, options.new)
    names = (options.base, options.new)
    sides = names if options.kernel is None else [select_kernels(load(name), options.kernel) for name in names]
    data = ncu_compare(*sides)
    data.attrs |= {"base": options.base, "new": options.new}
    texts = {
        "csv": lambda: to_csv(data),
        "json": lambda: json_text(
            {"format": "bwprof-profile-comparison", **data.attrs, "rows": json.loads(data.to_json(orient="records"))}
        ),
        "md": lambda: markdown(_document(data, list(_pairs(data)), everything=options.all)),
    }
    return emit(targets, texts, lambda screen: _show(data, screen, everything=options.all))


def _pairs(data: pd.DataFrame) -> Iterator[_Pair]:
    both = data[data["side"] == "both"].to_dict(orient="records")
    for _, figures in groupby(both, lambda line: line["pair"]):
        lines = [{str(name): value for name, value in line.items()} for line in figures]
        launches = dict.fromkeys(str(lines[0][name]) for name in ("base_launch", "new_launch"))
        yield f"{_shorten(lines[0]['case'])} (launch {', '.join(launches)})", lines


def _notes(data: pd.DataFrame) -> list[str]:
    """List the launches of one side alone, then the notes."""
    from bwprof.importers.ncu.compare import ALONE

    names = {"only_in_base": data.attrs["base"], "only_in_new": data.attrs["new"]}
    rest = data[data["side"] != "both"]
    alone = [
        f"only in {quote_text(names[side])}: {_shorten(case)}, {launches_text(count)}"
        for side, case, count in zip(
            *(rest[column] for column in ("side", "case")), rest["base"] + rest["new"], strict=True
        )
    ]
    return [*alone, *(f"note: {note}" for note in (*data.attrs["notes"], ALONE))]


def _shorten(name: str, most: int = 2 * _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 3]}..."


def _total(data: pd.DataFrame) -> str:
    """Describe the time of all pairs."""
    from bwprof.importers.ncu.compare import sum_times

    base, new, pairs = sum_times(data)
    if not (base > 0 and new > 0):
        return ""
    if abs(math.log(new / base)) < math.log1p(_SAME):
        change = "the same"
    else:
        change = f"{base / new:.3g} times as fast" if new < base else f"{new / base:.3g} times as long"
    text = f"{_us(base)} us before, {_us(new)} us after: {change}"
    return text if pairs == 1 else f"all {pairs} launches: {text}"


def _us(time_ms: float) -> str:
    return format_short(1e3 * time_ms, ".5g")


def _figures(lines: list[dict[str, Any]], *, everything: bool) -> list[tuple[str, str, str, str]]:
    """List the lines of a pair's table: figure, base, new, change."""
    selected = [line for line in lines if everything or line["figure"] in _FIRST or _is_changed(line)]
    selected.sort(key=lambda line: (*_FIRST, line["figure"]).index(line["figure"]))
    rows = []
    for line in selected:
        figure = line["figure"]
        heading = _HEADINGS.get(figure, f"{figure}, %" if figure.startswith("stall ") else figure)
        rows.append((heading, _value(line, "base"), _value(line, "new"), _change(line)))
    return rows


def _is_changed(line: dict[str, Any]) -> bool:
    base, new = line["base"], line["new"]
    if math.isnan(base) or math.isnan(new) or line["figure"].startswith("stall "):  # stalls that both sides counted
        return not math.isnan(line["difference"])
    return bool(abs(new - base) > (1 if line["unit"] == "%" else _SAME * max(abs(base), abs(new))))


def _value(line: dict[str, Any], side: str) -> str:
    value = line[side]
    if math.isnan(value):
        return "-"
    if line["figure"] == "time_ms":
        return _us(value)
    if line["unit"] == "B":
        return format_bytes(value)
    return format_short(value, ".1f" if line["unit"] in ("%", "GB/s") else ".6g")


def _change(line: dict[str, Any]) -> str:
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


def _document(data: pd.DataFrame, pairs: Sequence[_Pair], *, everything: bool) -> Document:
    """Make the tables of pairs, between the total and the notes."""
    sections = []
    for name, lines in pairs:
        figures = _figures(lines, everything=everything)
        hidden = len(lines) - len(figures)
        more = f"({plural(hidden, 'figure')} more, hardly changed or of one side alone: --all)" if hidden else ""
        numbers = ("base", "new", "change")
        parts: list[Block | None] = [make_table(["figure", *numbers], figures, numbers=numbers), make_paragraph(more)]
        sections.append(Section("", name, tuple(part for part in parts if part is not None)))
    notes = present_sections(
        [Section("", "Notes", (block,)) for block in [make_list(_notes(data))] if block is not None]
    )
    total = make_paragraph(_total(data))
    title = f"{data.attrs['base']} and {data.attrs['new']}"
    return Document(title, "", (*sections, *notes), () if total is None else (total,))


def _show(data: pd.DataFrame, screen: Console, *, everything: bool) -> None:
    pairs = list(_pairs(data))
    many = len(pairs) > MOST_BLOCKS
    content = _document(data, [] if many else pairs, everything=everything)
    if many:
        print_document(screen, replace(content, sections=()))
        _print_overview(pairs, screen)
        content = replace(content, lead=())
    print_document(screen, content)


def _print_overview(pairs: list[_Pair], screen: Console) -> None:
    """Print a line for each of many pairs."""
    columns = {"time_ms": "us", "dram_gb_s": "GB/s", "pct_peak": "% peak", "occupancy_pct": "occ. %"}
    sides = [f"{title}\n{side}" for title in columns.values() for side in ("base", "new")]
    headings = [*sides[:2], "change", *sides[2:]]
    rows = []
    for name, lines in pairs[:_MOST_LINES]:
        figures = {line["figure"]: line for line in lines}
        cells = [
            _value(figures[figure], side) if figure in figures else "-"
            for figure in columns
            for side in ("base", "new")
        ]
        change = _change(figures["time_ms"]) if "time_ms" in figures else "-"
        kernel, _, launch = name.rpartition(" (launch ")
        rows.append([f"{launch.rstrip(')')} {_shorten(kernel, _NAME)}", *cells[:2], change, *cells[2:]])
    print_table(screen, ["kernel", *headings], rows, numbers=headings, spare=[*sides[6:], *sides[4:6]])
    if len(pairs) > _MOST_LINES:
        screen.print(f"... and {plural(len(pairs) - _MOST_LINES, 'pair')} more: --csv FILE has all")


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


def _capture(arguments: Sequence[str]) -> int:
    parser = Parser(
        "bwprof ncu capture",
        "Run a program under Nsight Compute, and print what it measured. ncu repeats each launch many times.",
        _CAPTURE_TABLE,
        _CAPTURE_EPILOG,
        preset="full",
        clock_control="none",
    )
    parser.usage = "bwprof ncu capture [options] -- PROGRAM [ARGUMENT ...]"
    return run(parser, arguments, _run_capture)


def _run_capture(options: argparse.Namespace) -> int:
    import shlex

    count = None if options.launches is None else parse_count(options.launches, "--launches")
    seconds = read_seconds(options, "timeout")
    how = {"launch_count": count, "clock_control": options.clock_control}
    if options.print_command:
        report = options.output or "profile"
        command = ncu_command(options.program, options.kernel, options.preset, report, **how)
        sys.stdout.write(f"{shlex.join(command)}\n")
        return OK
    targets = choose_targets(options)
    data = ncu_capture(options.program, options.kernel, options.preset, options.output, timeout_s=seconds, **how)
    return emit_launches(data, targets)


_USAGE = """\
usage: bwprof ncu show FILE             print a page or report of ncu (bwprof ncu show --help)
       bwprof ncu capture -- PROGRAM …  run a program under ncu and print what it measured (bwprof ncu capture --help)
       bwprof ncu compare BASE NEW      compare two files, launch beside launch (bwprof ncu compare --help)
       bwprof ncu diagnose FILE         print what limits its kernels: the same as bwprof diagnose FILE
"""

_COMMANDS = {
    "show": lambda words: run_reader("ncu", words, "bwprof ncu show"),
    "capture": _capture,
    "compare": main_ncu_compare,
    "diagnose": diagnose.main_diagnose,
}


def main_ncu(arguments: Sequence[str]) -> int:
    """Show, compare or diagnose what ncu measured, or run a program under it; returns the exit code."""
    name, *rest = arguments or [""]
    if name in ("", "-h", "--help"):
        sys.stdout.write(_USAGE)
        return OK if name else USAGE
    return _COMMANDS[name](rest) if name in _COMMANDS else coded(lambda: _refuse(name))


def _refuse(name: str) -> int:
    if Path(name).is_file():
        message = "is no command: bwprof ncu show FILE, or bwprof diagnose FILE, reads a file"
        raise ValueError(f"{quote_text(name)} {message}")
    raise ValueError(describe_unknown("command", name, _COMMANDS, see="bwprof ncu --help"))
