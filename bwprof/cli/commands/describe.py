"""The commands ``bwprof columns``, ``info``, ``operations``, ``selftest`` and ``variants``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import _core, registry
from bwprof.cli.guard import GATE_FAILED, OK, data_stream
from bwprof.cli.options import BACKEND_HELP, DEVICE, Parser, add_kv_lens, read_single_params, run, run_measuring
from bwprof.cli.output import add_forms, check_free, print_in_form
from bwprof.info import build_lines, device_lines, info
from bwprof.kernels import Variants, variants
from bwprof.results import columns as results_columns
from bwprof.results.atomic import atomic_write
from bwprof.results.columns import COLUMN_FACTS, Column
from bwprof.results.json_file import to_json_value
from bwprof.runs.interrupts import Interrupts
from bwprof.selftest.bench import Cell, PartReport
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import describe_unknown, parse_names
from bwprof.text.terminal import PLAIN_WIDTH, make_console, print_table

if TYPE_CHECKING:
    import pandas as pd

_HEADINGS = ["column", "unit", "group", "better", "what it holds"]


def main_columns(arguments: Sequence[str] | None = None) -> int:
    """Print the columns of results; returns the exit code."""
    parser = Parser("bwprof columns", "The columns of frames, CSV and JSON files, in their order, with what they hold.")
    parser.add_argument("names", nargs="*", metavar="COLUMN", help="the columns to print (all when none is named)")
    add_forms(parser)
    return run(parser, arguments, _print_columns)


def _print_columns(options: argparse.Namespace) -> int:
    found = _find_columns(options.names)
    told = [{name: getattr(column, name) for name in COLUMN_FACTS} for column in found]
    if print_in_form(options, lambda: told, lambda: _columns_markdown(found)):
        return OK
    print_table(make_console(sys.stdout), _HEADINGS, map(_cells, found))
    return OK


def _columns_markdown(found: Sequence[Column]) -> list[str]:
    import pandas as pd

    from bwprof.analysis.answer import markdown

    grid = markdown(pd.DataFrame([_cells(column) for column in found], columns=_HEADINGS))
    flags = markdown(pd.DataFrame(list(results_columns.FLAGS.items()), columns=["flag", "what it says"]))
    return ["# Columns", "Made by `bwprof columns --md`.", grid, "## Words of the column `flags`", flags]


def _cells(column: Column) -> list[str]:
    return [column.name, column.unit, column.group, column.better, column.text]


def _find_columns(names: Sequence[str]) -> list[Column]:
    known = {column.name: column for column in results_columns.all_columns()}
    for name in names:
        if name not in known:
            raise ValueError(describe_unknown("column", name, known, see="bwprof columns"))
    return [known[name] for name in names] or list(known.values())


def main_info(arguments: Sequence[str] | None = None) -> int:
    """Print what this machine and build offer; returns the exit code."""
    parser = Parser("bwprof info", "Devices, their stored roofs, build and libraries, as bwprof sees them.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--probe", action="store_true", help="try what may need privileges: hardware counters, CUPTI's timestamps (2 s)"
    )
    return run(parser, arguments, _print_info)


def _print_info(options: argparse.Namespace) -> int:
    if options.json:
        data_stream("--json")
    found = info(probe=options.probe)
    if options.json:
        sys.stdout.write(json.dumps(to_json_value(found), indent=1) + "\n")
        return 0
    screen, headers = make_console(sys.stdout), ["what", "value"]
    print_table(screen, headers, build_lines(found), title="bwprof " + found["version"])
    for device in found["devices"]:
        print_table(screen, headers, device_lines(device), title=f"{device['backend']}:{device['index']}")
    return 0


_DESCRIPTION = "What can be measured: parameters, the bytes and FLOPs of each operation, its variants, its intensity."

_LEGEND = """\
In formulas e_activation, e_weight, e_cache, e_result and e_scale are the bytes of an element of that role in the
precision (0 where it has none, but tf32's e_cache is e_activation; q4_0 weights: 18 bytes for each 32, a row's last
ones counted as whole), and keys is batch*kv_len, or the sum of kv_lens. Each operand is moved once: what a variant
stores and reads in between comes on top (algorithmic_bytes_*). Intensity is FLOPs a byte with the default parameters.
"""


def main_operations(arguments: Sequence[str] | None = None) -> int:
    """Print operations; returns the exit code."""
    parser = Parser("bwprof operations", _DESCRIPTION, _LEGEND)
    parser.add_argument("names", nargs="*", metavar="OPERATION", help="those to print (all when none is named)")
    add_forms(parser)
    return run(parser, arguments, _print_operations)


def _print_operations(options: argparse.Namespace) -> int:
    found = _find_operations(options.names)
    if not print_in_form(options, lambda: _as_records(found), lambda: _operations_markdown(found)):
        _tables(found)
    return OK


def _as_records(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**operation, "intensity": _intensities(operation)} for operation in found]


def _find_operations(names: Sequence[str]) -> list[dict[str, Any]]:
    known = registry.operations()
    for name in names:
        if name not in known.names():
            raise ValueError(describe_unknown("operation", name, known.names(), see="bwprof operations"))
    return [known[name] for name in dict.fromkeys(names)] or list(known)


def _operations_markdown(found: Sequence[Mapping[str, Any]]) -> list[str]:
    from bwprof.analysis.answer import markdown

    parts = ["# Operations", "Made by `bwprof operations --md`.", _LEGEND.strip()]
    for operation in found:
        text = operation["text"]
        parts += [f"## {operation['name']}", f"{text[:1].upper()}{text[1:]}."]
        formulas = [f"* {name}: `{formula}`" for name, formula in operation["formulas"].items()]
        parts += ["\n".join([*formulas, f"* intensity: {_intensity_words(operation)} FLOP/B"])]
        parts += [markdown(_params(operation)), markdown(_variants(operation))]
    return parts


def _tables(found: Sequence[Mapping[str, Any]]) -> None:
    screen = make_console(sys.stdout)
    for operation in found:
        sys.stdout.write(f"{operation['name']}: {operation['text']}\n")
        for name, text in operation["formulas"].items():
            sys.stdout.write(f"  {name} = {text}\n")
        sys.stdout.write(f"  intensity (FLOP/B): {_intensity_words(operation)}\n")
        for part in (_params(operation), _variants(operation)):
            print_table(screen, list(part.columns), part.itertuples(index=False))
        sys.stdout.write("\n")


def _params(operation: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd

    names = ["parameter", "unit", "default", "allowed", "what it is"]
    rows = [
        [
            param["name"],
            param["unit"],
            str(param["default_from"] or param["default"]),
            f"{param['minimum']} to {param['maximum']}",
            param["text"],
        ]
        for param in operation["params"]
    ]
    return pd.DataFrame(rows, columns=names)


def _variants(operation: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd

    rows = [
        [backend, row["name"], ", ".join(row["precisions"]), row["text"]]
        for backend, variants in operation["variants"].items()
        for row in variants
    ]
    return pd.DataFrame(rows, columns=["backend", "variant", "precisions", "what it does"])


def _intensities(operation: Mapping[str, Any]) -> dict[str, float]:
    """FLOPs a byte in each precision, with the default parameters."""
    from bwprof.costs import cost

    found = {}
    for precision in operation["precisions"]:
        work = cost(operation["name"], precision=precision)
        found[precision] = float(work["flops"]) / float(work["bytes_read"] + work["bytes_written"])
    return found


def _intensity_words(operation: Mapping[str, Any]) -> str:
    """Precisions with one intensity together."""
    alike: dict[str, list[str]] = {}
    for precision, value in _intensities(operation).items():
        alike.setdefault(f"{value:.3g}", []).append(precision)
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in alike.items())


_SELFTEST_DESCRIPTION = (
    "Hold bwprof's figures against independent witnesses on this machine, and print how well they agree."
)

_SELFTEST_EPILOG = """\
parts (all when none is named):
  timers    the graph's time against CUPTI's timestamps of the same kernels
  cache     the same kernel made cold by rotation and by flushes
  counters  DRAM bytes read in a cold rotation, by hardware counter
  repeat    A/A comparisons: how often two measurements of the same thing are said to differ

exit codes: 0 no gate failed, 1 a gate failed, 2 usage, 3 incomplete (a device error, a wrong result), 130 interrupted.
"""


def main_selftest(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_measuring(_parser(), arguments, _command)


def _parser() -> Parser:
    parser = Parser("bwprof selftest", _SELFTEST_DESCRIPTION, _SELFTEST_EPILOG)
    parser.add_argument("parts", nargs="*", metavar="PART", help="timers, cache, counters, repeat")
    parser.add_argument("--quick", action="store_true", help="fewer cases and repetitions")
    parser.add_argument("--device", metavar="D", help=DEVICE)
    parser.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)
    parser.add_argument("--json", metavar="FILE|-", help="every figure as JSON as well, '-' for standard output")
    parser.add_argument("--force", action="store_true", help="replace the file that --json names")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return parser


def _command(options: argparse.Namespace, interrupts: Interrupts) -> int:
    from bwprof.selftest import run as run_selftest

    started = time.monotonic()
    if options.json == "-":
        data_stream("--json -")
    elif options.json is not None:
        _check_target(Path(options.json))
        check_free(options.json, force=options.force)
    screen = make_console(sys.stderr if options.json == "-" else sys.stdout)

    def progress(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"bwprof: {text}\n")

    def show(report: PartReport) -> None:
        columns = report.columns
        if report.rows:
            numbers = [heading for name, heading in columns.items() if not isinstance(report.rows[0][name], str)]
            rows = ([_format_value(row[name]) for name in columns] for row in report.rows)
            print_table(screen, list(columns.values()), rows, numbers=numbers, title=report.title)
        for line in (*([] if report.rows else [report.title]), *_lines(report), ""):
            screen.print(line)

    result = run_selftest(
        options.parts,
        quick=options.quick,
        backend=options.backend,
        device=options.device,
        progress=progress,
        poll=interrupts.check,
        show=show,
    )
    if not options.quiet:
        progress(f"self-test of {result['device']}: {format_seconds(time.monotonic() - started)}")
    if options.json is not None:
        _write(options.json, json.dumps(to_json_value(result), indent=1, allow_nan=False) + "\n")
    return OK if result["passed"] else GATE_FAILED


def _lines(report: PartReport) -> list[str]:
    lines = list(report.summary)
    if report.gate:
        verdict = {True: "passed", False: "FAILED", None: "nothing to judge"}[report.passed]
        lines.append(f"gate: {report.gate}: {verdict}")
    if report.left_out:
        lines.append(f"left out: {report.left_out}")
    return lines


def _format_value(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else value


def _check_target(path: Path) -> None:
    """Before anything is measured: minutes later is too late to say so."""
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"--json {path} cannot be written: name a file in a folder that exists, or '-'")


def _write(target: str, text: str) -> None:
    if target == "-":
        data_stream("--json -").write(text)
    else:
        atomic_write(Path(target), text)


_VARIANTS_DESCRIPTION = (
    "The variants of operations, and on a GPU their kernels: names, registers, shared memory, occupancy."
)

_EPILOG = """\
Nothing is launched. local is what registers spill to, and arrays of a thread's own. The last line is for Nsight
Compute: ncu --kernel-name regex:... bwprof OPERATION --once
A build without a backend knows none of its variants: that, and what to do, is said on standard error.
"""

_NUMBERS = ("registers", "shared", "local", "threads", "occupancy")


def main_variants(arguments: Sequence[str] | None = None) -> int:
    """Print variants and their kernels; returns the exit code."""
    parser = Parser("bwprof variants", _VARIANTS_DESCRIPTION, _EPILOG)
    parser.add_argument("operation", nargs="?", metavar="OPERATION", help="the operation (all when none is named)")
    parser.add_argument("--precision", metavar="P,…", default="fp32", help="precisions (default: fp32)")
    parser.add_argument(
        "-p", "--param", action="append", default=[], metavar="NAME=VALUE", help="the value of a parameter (repeatable)"
    )
    add_kv_lens(parser)
    parser.add_argument(
        "--device", metavar="D", help="cpu, cuda, cuda:1, or a number (default: the first of every kind)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return run(parser, arguments, _print_variants)


def _print_variants(options: argparse.Namespace) -> int:
    if options.json:
        data_stream("--json")
    params: dict[str, Any] = dict(read_single_params(options.param))
    lengths = registry.parse_lengths(options.kv_lens, "--kv-lens")
    found = Variants()
    precisions = [registry.check_precision(word) for word in parse_names("--precision", options.precision)]
    for precision in precisions:
        found += variants(options.operation, options.device, precision=precision, kv_lens=lengths, **params)
    places = {row["backend"] for row in found}
    if not any(row["variant"] is None or row["precision"] in row["precisions"] for row in found):
        names = dict.fromkeys(row["operation"] for row in found)
        registry.check_kernels(product(names, [None], precisions, places))
    for backend in _core.backends():
        if backend["name"] in places and not backend["built"]:
            name, remedy = backend["name"], _core.backend_facts(backend["name"])["remedy"]
            said = f"this build has no {name} backend, hence no {name} variants: {backend['reason']}; {remedy}"
            sys.stderr.write(f"bwprof: {said}\n")
    if options.json:
        data_stream("--json").write(json.dumps(to_json_value(list(found)), indent=1, ensure_ascii=False) + "\n")
    else:
        _show(found, several=len({row["precision"] for row in found}) > 1)
    return OK


def _show(found: Variants, *, several: bool) -> None:
    screen = make_console(sys.stdout)
    lines = [{**({"precision": row["precision"]} if several else {}), **found.cells(row)} for row in found]
    shown = [name for name in (lines[0] if lines else ()) if any(line[name] for line in lines)]
    print_table(screen, shown, ([line[name] for name in shown] for line in lines), numbers=_NUMBERS)
    if found.lacking:
        screen.print(f"\n{textwrap.fill(found.lacking, PLAIN_WIDTH)}")
    if found.kernel_name:
        screen.print(f"\nncu --kernel-name '{found.kernel_name}'", soft_wrap=True)
