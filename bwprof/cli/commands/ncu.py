"""The command ``bwprof ncu``: show, capture and compare files of Nsight Compute."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.cli import options as shared
from bwprof.cli.commands import diagnose
from bwprof.cli.commands.analyze import wrapped
from bwprof.cli.commands.importers import emit_launches, launches_text, read, select_kernels
from bwprof.cli.guard import INCOMPLETE, OK, USAGE, coded
from bwprof.cli.options import Parser, run
from bwprof.cli.output import choose_targets, write_each
from bwprof.importers.ncu.command import PRESETS, ncu_capture, ncu_command
from bwprof.text.formatting import escape_markdown, format_bytes, format_short, plural
from bwprof.text.parsing import describe_unknown, parse_count, parse_seconds, quote_text
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

MOST_BLOCKS = 4  # pairs that get a table of their own

_MOST_LINES = 200  # of the table of more

_NAME = 30  # letters of a kernel's name in it

_SAME = 0.01  # a change that is none

_DESCRIPTION = """\
Two files of Nsight Compute, launch beside launch: what became of each kernel's time, bytes, bandwidth, occupancy,
sectors, bank conflicts and stalls. Launches belong together by their kernel's name and their order.
"""

_COMPARE_EPILOG = """\
BASE and NEW are pages (.csv) or reports (.ncu-rep) of ncu, or what bwprof ncu capture --json wrote. Times under a
profiler compare with each other alone: what a change brings without one, bwprof ab and bwprof compare say.
What --csv and --json write, a line for each launch and figure, is for spreadsheets and scripts: no command reads it.
In Python: bwprof.importers.ncu_compare(base, new).

examples:
  %(prog)s before.ncu-rep after.ncu-rep
  %(prog)s before.json after.json --kernel attention --all
"""

# What is always shown; the rest where it changed.
_FIRST = (
    "time_ms",
    "dram_bytes_read",
    "dram_bytes_written",
    "dram_gb_s",
    "pct_peak",
    "occupancy_pct",
    "sectors_per_load",
    "sectors_per_store",
    "bank_conflicts",
)

_HEADINGS = {
    "time_ms": "time, us",
    "dram_bytes_read": "DRAM read",
    "dram_bytes_written": "DRAM written",
    "dram_gb_s": "DRAM GB/s",
    "pct_peak": "% of peak",
    "dram_pct": "DRAM busy, %",
    "sm_pct": "multiprocessors, %",
    "tensor_pct": "tensor pipe, %",
    "fma_pct": "FMA pipe, %",
    "occupancy_pct": "occupancy, %",
    "theoretical_occupancy_pct": "occupancy possible, %",
    "shared_bytes": "shared memory, block",
    "sectors_per_load": "sectors a load",
    "sectors_per_store": "sectors a store",
    "load_efficiency_pct": "loaded bytes used, %",
    "store_efficiency_pct": "stored sectors used, %",
    "bank_conflicts": "bank conflicts",
    "shared_wavefronts": "shared wavefronts",
    "local_bytes": "local memory",
    "l1_hit_pct": "L1 hits, %",
    "l2_hit_pct": "L2 hits, %",
    "l2_bytes": "through L2",
    "active_threads": "active threads",
}


def main_ncu_compare(arguments: Sequence[str]) -> int:
    """Compare and print; returns the exit code."""
    parser = Parser("bwprof ncu compare", _DESCRIPTION, _COMPARE_EPILOG)
    parser.add_argument("base", metavar="BASE", help="what it is held against")
    parser.add_argument("new", metavar="NEW", help="what is looked at")
    parser.add_argument("--kernel", metavar="TEXT", help="only kernels whose name contains this")
    parser.add_argument("--all", action="store_true", help="figures that stayed the same, too")
    shared.add_files(parser, " and notes")
    parser.add_argument("--md", metavar="FILE|-", help="tables in Markdown")
    return run(parser, arguments, _run_compare)


def _run_compare(options: argparse.Namespace) -> int:
    from bwprof.importers.detect import load
    from bwprof.importers.ncu.compare import ncu_compare

    targets = choose_targets(options, options.base, options.new)
    if options.kernel is None:
        found = ncu_compare(options.base, options.new)
    else:
        found = ncu_compare(*(select_kernels(load(name), options.kernel) for name in (options.base, options.new)))
    found.attrs |= {"base": options.base, "new": options.new}
    if "-" not in targets.values():
        _show(found, everything=options.all)
    written = write_each(targets, lambda kind: _as_text(found, kind, everything=options.all))
    return OK if written == set(targets) else INCOMPLETE


def _pairs(found: pd.DataFrame) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Pairs of launches with what they are called, and their lines."""
    both = found[found["side"] == "both"].to_dict(orient="records")
    for _, lines in groupby(both, lambda line: line["pair"]):
        listed = [{str(name): value for name, value in line.items()} for line in lines]
        first = listed[0]
        numbers = dict.fromkeys(str(first[name]) for name in ("base_launch", "new_launch"))
        yield f"{_cut(first['case'])} (launch {', '.join(numbers)})", listed


def _alone(found: pd.DataFrame) -> list[str]:
    """What one side alone has, a sentence each."""
    names = {"only_in_base": found.attrs["base"], "only_in_new": found.attrs["new"]}
    rest = found[found["side"] != "both"]
    return [
        f"only in {quote_text(names[line['side']])}: {_cut(line['case'])}, {launches_text(line['base'] + line['new'])}"
        for line in rest.to_dict(orient="records")
    ]


def _cut(name: str, most: int = 2 * _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 3]}..."


def _whole(found: pd.DataFrame) -> str:
    """The time of all that were compared."""
    from bwprof.importers.ncu.compare import sum_times

    base, new, pairs = sum_times(found)
    if not (base > 0 and new > 0):
        return ""
    told = f"{_us(base)} us before, {_us(new)} us after: {_change_of_time(base, new)}"
    return told if pairs == 1 else f"all {pairs} launches: {told}"


def _us(time_ms: float) -> str:
    return format_short(1e3 * time_ms, ".5g")


def _change_of_time(base: float, new: float) -> str:
    if abs(math.log(new / base)) < math.log1p(_SAME):
        return "the same"
    return f"{base / new:.3g} times as fast" if new < base else f"{new / base:.3g} times as long"


def _figures(lines: list[dict[str, Any]], *, everything: bool) -> list[tuple[str, str, str, str]]:
    """Lines of a pair's table: what, before, after, change."""
    kept = [line for line in lines if everything or line["figure"] in _FIRST or _changed(line)]
    return [
        (_heading(line["figure"]), _value(line, "base"), _value(line, "new"), _change(line))
        for line in sorted(kept, key=lambda line: (*_FIRST, line["figure"]).index(line["figure"]))
    ]


def _heading(figure: str) -> str:
    return _HEADINGS.get(figure, f"{figure}, %" if figure.startswith("stall ") else figure)


def _changed(line: dict[str, Any]) -> bool:
    """Whether it is worth a line: stalls that both sides counted always are."""
    old, now = line["base"], line["new"]
    if math.isnan(old) or math.isnan(now) or line["figure"].startswith("stall "):
        return not math.isnan(line["difference"])
    return bool(abs(now - old) > (1 if line["unit"] == "%" else _SAME * max(abs(old), abs(now))))


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
    """How much more or less; shares by their difference."""
    difference, ratio = line["difference"], line["ratio"]
    if math.isnan(difference):
        return "-"
    if line["unit"] != "%" and not math.isnan(ratio) and ratio >= 2:
        return f"{format_short(ratio, '.3g')} x"
    by, unit = (difference, "points") if line["unit"] == "%" else (100 * (ratio - 1), "%")
    if difference == 0 or abs(by) < 0.05:
        return "="
    return "from none" if math.isnan(by) else f"{by:+.1f} {unit}"


def _show(found: pd.DataFrame, *, everything: bool) -> None:
    from bwprof.importers.ncu.compare import ALONE

    screen = make_console(sys.stdout)
    pairs = list(_pairs(found))
    if whole := _whole(found):
        screen.print(wrapped(whole, screen))
    if len(pairs) > MOST_BLOCKS:
        _overview(pairs, screen)
    for name, lines in pairs if len(pairs) <= MOST_BLOCKS else ():
        screen.print(f"\n{name}", soft_wrap=True)
        listed = _figures(lines, everything=everything)
        print_table(screen, ["", "base", "new", "change"], listed, numbers=["base", "new", "change"])
        if len(listed) < len(lines):
            screen.print(
                f"({plural(len(lines) - len(listed), 'figure')} more, hardly changed or of one side alone: --all)"
            )
    if len(pairs) <= MOST_BLOCKS:
        screen.print("")
    for told in (*_alone(found), *(f"note: {note}" for note in (*found.attrs["notes"], ALONE))):
        screen.print(wrapped(told, screen))


def _overview(pairs: list[tuple[str, list[dict[str, Any]]]], screen: Console) -> None:
    """Of many pairs a line each."""
    shown = {"time_ms": "us", "dram_gb_s": "GB/s", "pct_peak": "% peak", "occupancy_pct": "occ. %"}
    sides = [f"{title}\n{side}" for title in shown.values() for side in ("base", "new")]
    headings = [*sides[:2], "change", *sides[2:]]
    rows = []
    for name, lines in pairs[:_MOST_LINES]:
        by_name = {line["figure"]: line for line in lines}
        told = [[_value(by_name[one], side) if one in by_name else "-" for side in ("base", "new")] for one in shown]
        change = _change(by_name["time_ms"]) if "time_ms" in by_name else "-"
        head, _, launch = name.rpartition(" (launch ")
        called = f"{launch.rstrip(')')} {_cut(head, _NAME)}"
        rows.append([called, *told[0], change, *(cell for two in told[1:] for cell in two)])
    print_table(screen, ["kernel", *headings], rows, numbers=headings, spare=[*sides[6:], *sides[4:6]])
    if len(pairs) > _MOST_LINES:
        screen.print(f"... and {plural(len(pairs) - _MOST_LINES, 'pair')} more: --csv FILE has all")


def _as_text(found: pd.DataFrame, kind: str, *, everything: bool) -> str:
    """As csv, json or md."""
    from bwprof.importers import frames

    if kind == "csv":
        return frames.to_csv(found)
    if kind == "md":
        return _markdown(found, everything=everything)
    rows = json.loads(found.to_json(orient="records"))
    return json.dumps({"format": "bwprof-profile-comparison", **found.attrs, "rows": rows}, indent=1) + "\n"


def _markdown(found: pd.DataFrame, *, everything: bool) -> str:
    import pandas as pd

    from bwprof.analysis.answer import markdown
    from bwprof.importers.ncu.compare import ALONE

    parts = [f"# {escape_markdown(found.attrs['base'])} and {escape_markdown(found.attrs['new'])}"]
    parts += [whole] if (whole := _whole(found)) else []
    for name, lines in _pairs(found):
        cells = _figures(lines, everything=everything)
        parts += [
            f"## {escape_markdown(name)}",
            markdown(pd.DataFrame(cells, columns=["Figure", "Base", "New", "Change"])),
        ]
    notes = [*_alone(found), *found.attrs["notes"], ALONE]
    return "\n\n".join([*parts, "\n".join(f"* {escape_markdown(note)}" for note in notes)]) + "\n"


_USAGE = """\
usage: bwprof ncu show FILE             what ncu printed, or its report, as rows (bwprof ncu show --help)
       bwprof ncu capture -- PROGRAM …  run a program under ncu and show what it measured (bwprof ncu capture --help)
       bwprof ncu compare BASE NEW      two of them, launch beside launch (bwprof ncu compare --help)
       bwprof ncu diagnose FILE         what limits its kernels: the same as bwprof diagnose FILE
"""

_EPILOG = """\
examples:
  %(prog)s -o before --kernel regex:softmax_kernel --launches 3 -- python3 bench.py --n 4096
then what limits it, and after a change what that brought:
  bwprof diagnose before.ncu-rep
  bwprof ncu compare before.ncu-rep after.ncu-rep
"""

_COMMANDS = ("show", "capture", "compare", "diagnose")


def main_ncu(arguments: Sequence[str]) -> int:
    """Show, compare or diagnose what ncu measured, or let it measure; returns the exit code."""
    given = list(arguments)
    if not given or given[0] in ("-h", "--help"):
        sys.stdout.write(_USAGE)
        return OK if given else USAGE
    if given[0] == "show":
        return read("ncu", given[1:], "bwprof ncu show")
    if given[0] == "capture":
        return _capture(given[1:])
    if given[0] == "compare":
        return main_ncu_compare(given[1:])
    if given[0] == "diagnose":
        return diagnose.main_diagnose(given[1:])
    return coded(lambda: _refuse(given[0]))


def _refuse(name: str) -> int:
    if Path(name).is_file():
        raise ValueError(
            f"{quote_text(name)} is no command: bwprof ncu show FILE, or bwprof diagnose FILE, reads a file"
        )
    raise ValueError(describe_unknown("command", name, _COMMANDS, see="bwprof ncu --help"))


def _capture(given: Sequence[str]) -> int:
    parser = Parser(
        "bwprof ncu capture",
        "Run a program under Nsight Compute, and show what it measured. Every launch costs up to dozens of passes.",
        _EPILOG,
    )
    parser.usage = "bwprof ncu capture [options] -- PROGRAM [ARGUMENT ...]"
    parser.add_argument("program", nargs="+", metavar="PROGRAM", help="and its arguments, behind --")
    parser.add_argument("--preset", default="full", metavar="NAME", help=f"{', '.join(PRESETS)} (default: full)")
    parser.add_argument("--kernel", metavar="NAME", help="only kernels of this name, or regex:...")
    parser.add_argument("--launches", metavar="N", help="no more than so many launches")
    parser.add_argument(
        "--clock-control",
        default="none",
        metavar="none|base",
        help="none (default): the GPU's clocks stay as without a profiler; base: ncu locks them, so that runs repeat",
    )
    parser.add_argument("--timeout", metavar="SECONDS", help="no longer than this")
    parser.add_argument("-o", "--output", metavar="NAME", help="keep ncu's report as NAME.ncu-rep")
    parser.add_argument("--print-command", action="store_true", help="print ncu's command line, and run nothing")
    shared.add_files(parser, " and notes")
    parser.add_argument("--md", metavar="FILE|-", help="rows as a table in Markdown")
    return run(parser, given, _run)


def _run(options: argparse.Namespace) -> int:
    import shlex

    count = None if options.launches is None else parse_count(options.launches, "--launches")
    limit = None if options.timeout is None else parse_seconds(options.timeout, "--timeout", text=True)
    if options.print_command:
        command = ncu_command(
            options.program,
            options.kernel,
            options.preset,
            options.output or "profile",
            launch_count=count,
            clock_control=options.clock_control,
        )
        sys.stdout.write(f"{shlex.join(command)}\n")
        return OK
    targets = choose_targets(options)
    found = ncu_capture(
        options.program,
        options.kernel,
        options.preset,
        options.output,
        launch_count=count,
        timeout_s=limit,
        clock_control=options.clock_control,
    )
    return emit_launches(found, targets)
