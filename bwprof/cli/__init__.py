"""The command ``bwprof`` and its subcommands: `bwprof sweep ...`, `bwprof info ...`, ...

Without a subcommand it is `bwprof sweep`. Nothing imports this folder but the ``__main__`` modules.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from bwprof.cli.guard import USAGE, guarded
from bwprof.text.parsing import describe_unknown, nearest_name

COMMANDS = (
    "sweep",
    "ab",
    "ablation",
    "model",
    "analyze",
    "diagnose",
    "report",
    "show",
    "outliers",
    "baseline",
    "history",
    "compare",
    "plot",
    "predict",
    "roofs",
    "ncu",
    "variants",
    "operations",
    "columns",
    "selftest",
    "info",
)

_HOMES = {
    "ab": "experiments",
    "ablation": "experiments",
    "report": "show",
    "outliers": "history",
    "roofs": "predict",
    "variants": "describe",
    "operations": "describe",
    "columns": "describe",
    "info": "describe",
    "selftest": "describe",
}  # of commands that share a module

# What people call a command, the kinds of pictures among it.
_MEANT = {
    **{kind: f"plot {kind}" for kind in ("comparison", "roofline", "lines", "heatmap", "speedup", "ridge", "trend")},
    **dict.fromkeys(("run", "bench", "benchmark", "measure"), "sweep"),
    **{"test": "selftest", "tests": "selftest", "hist": "history", "option": "operations", "options": "operations"},
    **{"devices": "info", "diff": "compare", "models": "model", "profile": "ncu", "kernels": "variants"},
    **{"demo": "show h200", "list": "sweep --list", "version": "--version", "rocprof": "diagnose", "nsys": "diagnose"},
}

_USAGE = """\
usage: bwprof [sweep] [options]   measure operations (bwprof sweep --help)
       bwprof ab A B [options]    which of two is faster, measured turn by turn (bwprof ab --help)
       bwprof ablation OPERATION  its ladder of variants: what each rung changes and brings (bwprof ablation --help)
       bwprof model MODEL [options]  tokens per second of a language model, and what limits them (bwprof model --help)
       bwprof analyze RUN|FILE    what limits it, where its time is lost, what helps (bwprof analyze --help)
       bwprof diagnose RUN|FILE   why kernels are slow, by evidence; files of ncu, rocprof and traces, too
       bwprof report RUN... [-o FILE]  the summary of results; with -o a report, .html or .md (bwprof report --help)
       bwprof show RUN|FILE       their rows in few columns (bwprof show --help)
       bwprof outliers RUN...     which of several devices is slow, by how much, in which operation
       bwprof baseline save|list|show|delete  what later runs are held against (bwprof baseline --help)
       bwprof history [CASE]      all runs over time, what changed between them, a picture (bwprof history --help)
       bwprof compare BASE NEW    what became slower, by more than chance; the gate of a CI job (bwprof compare --help)
       bwprof plot [KIND] RUN|FILE...  pictures: bandwidths, roofline, lines, speed-ups, ... (bwprof plot --help)
       bwprof predict OPERATION --device NAME  what a device that is not at hand would do (bwprof predict --help)
       bwprof roofs [list|export FILE|import FILE]  the stored roofs of this machine's devices
       bwprof ncu show FILE | capture PROGRAM | compare BASE NEW  what Nsight Compute measured (bwprof ncu --help)
       python -m bwprof.importers rocprof|trace|nsys FILE  what other profilers measured, as rows
       bwprof variants [OPERATION]  kernels, their registers, occupancy and names (bwprof variants --help)
       bwprof operations [NAME...]  what can be measured: parameters, formulas of bytes and FLOPs, variants
       bwprof columns [--json]    what the columns of results hold (bwprof columns --help)
       bwprof selftest [PART...]  bwprof's figures against independent witnesses (bwprof selftest --help)
       bwprof info [--json] [--probe]  devices, roofs, build, libraries, what works here
       bwprof --version

Where RUN stands a recorded run may stand, too, so that every command can be tried without a device: h100 and h200 (the
default suite), h100_llama and h200_llama (a model's step). bwprof analyze h200
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _main(given))


def _main(given: list[str]) -> int:
    if given in (["-h"], ["--help"], ["help"]):
        sys.stdout.write(_USAGE)
        return 0
    if given == ["--version"]:
        from bwprof import _core

        sys.stdout.write(f"bwprof {_core.__version__}\n")
        return 0
    command, rest = (given[0], given[1:]) if given and given[0] in COMMANDS else ("sweep", given)
    if command == "sweep" and rest is given and given and (meant := _meant_command(given[0].lower())):
        sys.stderr.write(f"bwprof: error: {describe_unknown('command', given[0], COMMANDS, meant=meant)}\n")
        return USAGE
    module = importlib.import_module(f"bwprof.cli.commands.{_HOMES.get(command, command)}")
    return int(getattr(module, f"main_{command}")(rest))


def _meant_command(word: str) -> str | None:
    """The command that a first word means which is no operation: by what it stands for, else by its letters."""
    from bwprof import registry

    if word.startswith("-"):
        return None
    if word in _MEANT:
        return _MEANT[word]
    operations = [found["name"] for found in registry.operations()]
    found = nearest_name(word, [*operations, *COMMANDS], likeness=0.72)
    return found if found in COMMANDS else None
