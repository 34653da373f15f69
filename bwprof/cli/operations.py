"""The command ``bwprof operations``: what can be measured, with its formulas."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.forms import add_forms, print_in_form
from bwprof.cli.shared.guard import OK
from bwprof.terminal import console, print_table
from bwprof.text import unknown

if TYPE_CHECKING:
    import pandas as pd

_DESCRIPTION = "What can be measured: parameters, the bytes and FLOPs of each operation, its variants, its intensity."
_LEGEND = """\
In formulas e_activation, e_weight, e_cache, e_result and e_scale are the bytes of an element of that role in the
precision (0 where it has none, but tf32's e_cache is e_activation; q4_0 weights: 18 bytes for each 32, a row's last
ones counted as whole), and keys is batch*kv_len, or the sum of kv_lens. Each operand is moved once: what a variant
stores and reads in between comes on top (algorithmic_bytes_*). Intensity is FLOPs a byte with the default parameters.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print operations; returns the exit code."""
    parser = Parser("bwprof operations", _DESCRIPTION, _LEGEND)
    parser.add_argument("names", nargs="*", metavar="OPERATION", help="those to print (all when none is named)")
    add_forms(parser)
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    found = _asked(options.names)
    if not print_in_form(options, lambda: _as_records(found), lambda: _markdown(found)):
        _tables(found)
    return OK


def _as_records(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**operation, "intensity": _intensities(operation)} for operation in found]


def _asked(names: Sequence[str]) -> list[dict[str, Any]]:
    known = registry.operations()
    for name in names:
        if name not in known.names():
            raise ValueError(unknown("operation", name, known.names(), see="bwprof operations"))
    return [known[name] for name in dict.fromkeys(names)] or list(known)


def _markdown(found: Sequence[Mapping[str, Any]]) -> list[str]:
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
    screen = console(sys.stdout)
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
