"""The command ``bwprof variants``: what each variant of an operation launches."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from itertools import product
from typing import Any

from bwprof import _core, registry
from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import OK, data_stream
from bwprof.cli.shared.options import add_kv_lens, read_single
from bwprof.kernels import Variants, variants
from bwprof.results.jsonfile import plain
from bwprof.terminal import PLAIN_WIDTH, console, print_table
from bwprof.text import words

_DESCRIPTION = "The variants of operations, and on a GPU their kernels: names, registers, shared memory, occupancy."
_EPILOG = """\
Nothing is launched. local is what registers spill to, and arrays of a thread's own. The last line is for Nsight
Compute: ncu --kernel-name regex:... bwprof OPERATION --once
A build without a backend knows none of its rungs: that, and what to do, is said on standard error.
"""
_NUMBERS = ("registers", "shared", "local", "threads", "occupancy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print variants and their kernels; returns the exit code."""
    parser = Parser("bwprof variants", _DESCRIPTION, _EPILOG)
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
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    if options.json:
        data_stream("--json")
    params: dict[str, Any] = dict(read_single(options.param))
    lengths = registry.lengths(options.kv_lens, "--kv-lens")
    found = Variants()
    precisions = [registry.check_precision(word) for word in words("--precision", options.precision)]
    for precision in precisions:
        found += variants(options.operation, options.device, precision=precision, kv_lens=lengths, **params)
    places = {row["backend"] for row in found}
    if not any(row["variant"] is None or row["precision"] in row["precisions"] for row in found):
        names = dict.fromkeys(row["operation"] for row in found)
        registry.check_kernels(product(names, [None], precisions, places))
    for backend in _core.backends():
        if backend["name"] in places and not backend["built"]:
            name, remedy = backend["name"], _core.backend_facts(backend["name"])["remedy"]
            said = f"this build has no {name} backend, hence no {name} rungs: {backend['reason']}; {remedy}"
            sys.stderr.write(f"bwprof: {said}\n")
    if options.json:
        data_stream("--json").write(json.dumps(plain(list(found)), indent=1, ensure_ascii=False) + "\n")
    else:
        _show(found, several=len({row["precision"] for row in found}) > 1)
    return OK


def _show(found: Variants, *, several: bool) -> None:
    screen = console(sys.stdout)
    lines = [{**({"precision": row["precision"]} if several else {}), **found.cells(row)} for row in found]
    shown = [name for name in (lines[0] if lines else ()) if any(line[name] for line in lines)]
    print_table(screen, shown, ([line[name] for name in shown] for line in lines), numbers=_NUMBERS)
    if found.lacking:
        screen.print(f"\n{textwrap.fill(found.lacking, PLAIN_WIDTH)}")
    if found.kernel_name:
        screen.print(f"\nncu --kernel-name '{found.kernel_name}'", soft_wrap=True)
