"""The commands ``bwprof columns``, ``info``, ``operations``, ``selftest`` and ``variants``."""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from bwprof import _core, registry
from bwprof.cli.guard import GATE_FAILED, OK
from bwprof.cli.options import DEVICE, KV_LENS, SINGLE_PARAM, command, measuring_command, read_single_params
from bwprof.cli.output import FORMS, choose_targets, emit, json_text
from bwprof.info import build_lines, device_lines, info
from bwprof.kernels import Variants, variants
from bwprof.results import schema
from bwprof.results.json_file import to_json_value
from bwprof.selftest.parts import Cell, PartReport
from bwprof.text.document import format_markdown_table, make_table
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import describe_unknown
from bwprof.text.terminal import PLAIN_WIDTH, make_console, print_table

if TYPE_CHECKING:
    from rich.console import Console


@command(f"""\
names=COLUMN*  the columns to print (default: all)
{FORMS}""")
def main_columns(options: argparse.Namespace) -> int:
    """Print the columns of frames, CSV and JSON files in their order, with their meaning.

    Examples:
      bwprof columns
      bwprof columns pct_attainable limiter
      bwprof columns --json
    """
    targets = choose_targets(options)
    known = {column.name: column for column in schema.all_columns()}
    columns = [known[name] for name in _check_names("column", options.names, list(known))]
    headings = ["column", "unit", "group", "better", "what it holds"]
    rows = [[column.name, column.unit, column.group, column.better, column.text] for column in columns]

    def markdown() -> str:
        parts = ["# Columns", "Made by `bwprof columns --md`.", format_markdown_table(make_table(headings, rows))]
        flags = format_markdown_table(make_table(["flag", "what it says"], schema.FLAGS.items()))
        return "\n\n".join([*parts, "## Words of the column `flags`", flags]) + "\n"

    facts = [{name: getattr(column, name) for name in schema.COLUMN_FACTS} for column in columns]
    return emit(
        targets, {"json": lambda: json_text(facts), "md": markdown}, lambda screen: print_table(screen, headings, rows)
    )


def _check_names(kind: str, names: Sequence[str], known: list[str]) -> list[str]:
    """Return the names, all that are known for none; ValueError for an unknown one."""
    for name in names:
        if name not in known:
            raise ValueError(describe_unknown(kind, name, known, see=f"bwprof {kind}s"))
    return list(dict.fromkeys(names)) or known


@command("""\
--json  print JSON instead of a table
--probe  try hardware counters and CUPTI's timestamps, which may need privileges (2 s)
""")
def main_info(options: argparse.Namespace) -> int:
    """Print the devices of this machine, their stored roofs, the build and its libraries.

    Examples:
      bwprof info
      bwprof info --probe   also whether hardware counters work
    """
    targets = choose_targets(options)
    facts = info(probe=options.probe)

    def show(screen: Console) -> None:
        headers = ["what", "value"]
        print_table(screen, headers, build_lines(facts), title="bwprof " + facts["version"])
        for device in facts["devices"]:
            print_table(screen, headers, device_lines(device), title=f"{device['backend']}:{device['index']}")

    return emit(targets, {"json": lambda: json_text(to_json_value(facts))}, show)


_LEGEND = """\
In formulas e_activation, e_weight, e_cache and e_result are the bytes of an element of that role. They are 0 where a
precision has no such role; tf32's e_cache is e_activation. A row of q4_0 weights takes 18 bytes for each 32 elements,
rounded up. weight_scales(N, K) are the bytes of scales and zero points of such a matrix, activation_scales and
cache_scales likewise. keys is batch*kv_len, or the sum of kv_lens. Each operand moves once; algorithmic_bytes_* add
what a variant stores and reads in between. Intensity is FLOPs per byte with the default parameters.
"""

_OPERATIONS_TABLE = f"""\
names=OPERATION*  the operations to print (default: all)
{FORMS}"""


@command(_OPERATIONS_TABLE, f"{_LEGEND}\n")
def main_operations(options: argparse.Namespace) -> int:
    """Print what can be measured: operations, their parameters, bytes, FLOPs, variants and intensity.

    Examples:
      bwprof operations
      bwprof operations gemm attention_decode
      bwprof operations --md > operations.md
    """
    targets = choose_targets(options)
    known = registry.operations()
    operations = [known[name] for name in _check_names("operation", options.names, known.names())]
    texts = {
        "json": lambda: json_text([{**operation, "intensity": _intensities(operation)} for operation in operations]),
        "md": lambda: _operations_markdown(operations),
    }
    return emit(targets, texts, lambda screen: show_operations(operations, screen))


def _operations_markdown(operations: Sequence[Mapping[str, Any]]) -> str:
    made = "Made by `bwprof operations --md`. `bwprof variants` lists the kernels of each operation."
    parts = ["# Operations", made, _LEGEND.strip()]
    for operation in operations:
        text = operation["text"]
        parts += [f"## {operation['name']}", f"{text[:1].upper()}{text[1:]}."]
        formulas = [f"* {name}: `{formula}`" for name, formula in operation["formulas"].items()]
        precisions = ", ".join(operation["precisions"])
        facts = [f"* intensity: {_intensity_text(operation)} FLOP/B", f"* precisions: {precisions}"]
        parts += ["\n".join([*formulas, *facts]), format_markdown_table(make_table(*_params(operation)))]
    return "\n\n".join(parts) + "\n"


def show_operations(operations: Sequence[Mapping[str, Any]], screen: Console) -> None:
    """Print operations: formulas, parameters, variants."""
    for operation in operations:
        sys.stdout.write(f"{operation['name']}: {operation['text']}\n")
        for name, text in operation["formulas"].items():
            sys.stdout.write(f"  {name} = {text}\n")
        sys.stdout.write(f"  intensity (FLOP/B): {_intensity_text(operation)}\n")
        for headings, lines in (_params(operation), _variants(operation)):
            print_table(screen, headings, lines)
        sys.stdout.write("\n")


def _params(operation: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of the table of parameters."""
    lines = [
        [
            param["name"],
            param["unit"],
            str(param["default_from"] or param["default"]),
            f"{param['minimum']} to {param['maximum']}",
            param["text"],
        ]
        for param in operation["params"]
    ]
    return ["parameter", "unit", "default", "allowed", "what it is"], lines


def _variants(operation: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of the table of variants."""
    lines = [
        [backend, row["name"], ", ".join(row["precisions"]), row["text"]]
        for backend, variants in operation["variants"].items()
        for row in variants
    ]
    return ["backend", "variant", "precisions", "what it does"], lines


def _intensities(operation: Mapping[str, Any]) -> dict[str, float]:
    """Work out the FLOPs per byte of each precision, with the default parameters."""
    from bwprof.costs import cost

    intensities = {}
    for precision in operation["precisions"]:
        work = cost(operation["name"], precision=precision)
        intensities[precision] = float(work["flops"]) / float(work["bytes_read"] + work["bytes_written"])
    return intensities


def _intensity_text(operation: Mapping[str, Any]) -> str:
    """Describe the intensities; precisions with the same one share it."""
    alike: dict[str, list[str]] = {}
    for precision, value in _intensities(operation).items():
        alike.setdefault(f"{value:.3g}", []).append(precision)
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in alike.items())


@measuring_command(f"""\
parts=PART*  timers, cache, counters, repeat
--quick  fewer cases and repetitions
{DEVICE}
--json FILE|-  also write every figure as JSON; - is standard output
--force  replace an existing file
-q, --quiet  print no progress
""")
def main_selftest(options: argparse.Namespace) -> int:
    """Compare bwprof's figures with independent measurements on this machine, and print how well they agree.

    parts (default: all):
      timers    the graph's time against CUPTI's timestamps of the same kernels
      cache     the same kernel made cold by rotation and by flushes
      counters  DRAM bytes read in a cold rotation, by hardware counters
      repeat    how often two measurements of the same case differ significantly

    Examples:
      bwprof selftest --quick
      bwprof selftest timers counters --device cuda:0

    exit codes: 0 no gate failed, 1 a gate failed, 2 usage, 3 incomplete (a device error or a wrong result),
    130 interrupted.
    """
    from bwprof.selftest import run as run_selftest

    targets = choose_targets(options)
    screen = make_console(sys.stderr if options.json == "-" else sys.stdout)

    def progress(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"bwprof: {text}\n")

    result = run_selftest(
        options.parts,
        quick=options.quick,
        backend=options.backend,
        device=options.device,
        progress=progress,
        poll=options.interrupts.check,
        show=lambda report: _show_part(report, screen),
    )
    progress(f"self-test of {result['device']}: {format_seconds(time.monotonic() - options.started)}")
    code = emit(targets, {"json": lambda: json_text(to_json_value(result))})
    return code or (OK if result["passed"] else GATE_FAILED)


def _show_part(report: PartReport, screen: Console) -> None:
    columns = report.columns
    lines = [] if report.rows else [report.title]
    if report.rows:
        numbers = [heading for name, heading in columns.items() if not isinstance(report.rows[0][name], str)]
        rows = ([_format_value(row[name]) for name in columns] for row in report.rows)
        print_table(screen, list(columns.values()), rows, numbers=numbers, title=report.title)
    lines += report.summary
    if report.gate:
        verdict = {True: "passed", False: "FAILED", None: "nothing to judge"}[report.passed]
        lines.append(f"gate: {report.gate}: {verdict}")
    if report.left_out:
        lines.append(f"left out: {report.left_out}")
    for line in (*lines, ""):
        screen.print(line)


def _format_value(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else value


_NUMBERS = ("registers", "shared", "local", "threads", "occupancy")


@command(f"""\
operation=OPERATION?  the operation (default: all)
--precision P,… = fp32  precisions
{SINGLE_PARAM}
{KV_LENS}
--device D  cpu, cuda, cuda:1 or a number (default: the first of each backend)
--json  print JSON instead of a table
""")
def main_variants(options: argparse.Namespace) -> int:
    """Print the variants of operations, and on a GPU their kernels: names, registers, shared memory, occupancy.

    It launches none of them; the column local has the bytes of a thread for spilled registers and arrays.

    Examples:
      bwprof variants gemm --precision fp16
      bwprof variants attention_decode -p kv_len=32Ki
    """
    targets = choose_targets(options)
    params: dict[str, Any] = dict(read_single_params(options.param))
    rows = Variants()
    precisions = [registry.check_precision(word) for word in options.precision]
    for precision in precisions:
        rows += variants(options.operation, options.device, precision=precision, kv_lens=options.kv_lens, **params)
    backends = {row["backend"] for row in rows}
    if not any(row["variant"] is None or row["precision"] in row["precisions"] for row in rows):
        names = dict.fromkeys(row["operation"] for row in rows)
        registry.check_kernels(product(names, [None], precisions, backends))
    for backend in _core.backends():
        if backend["name"] in backends and not backend["built"]:
            name, remedy = backend["name"], _core.backend_facts(backend["name"])["remedy"]
            reason = f"no {name} backend, hence no {name} variants: {backend['reason']}"
            sys.stderr.write(f"bwprof: this build has {reason}; {remedy}\n")
    texts = {"json": lambda: json_text(to_json_value(list(rows)))}
    return emit(targets, texts, lambda screen: show_variants(rows, screen))


def show_variants(rows: Variants, screen: Console) -> None:
    """Print variants and their kernels."""
    several = len({row["precision"] for row in rows}) > 1
    lines = [{**({"precision": row["precision"]} if several else {}), **rows.cells(row)} for row in rows]
    columns = [name for name in (lines[0] if lines else ()) if any(line[name] for line in lines)]
    print_table(screen, columns, ([line[name] for name in columns] for line in lines), numbers=_NUMBERS)
    if rows.lacking:
        screen.print(f"\n{textwrap.fill(rows.lacking, PLAIN_WIDTH)}")
    if rows.kernel_name:
        screen.print(f"\nncu --kernel-name '{rows.kernel_name}'", soft_wrap=True)
