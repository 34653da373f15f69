"""The command ``bwprof`` and its subcommands: `bwprof sweep ...`, `bwprof info ...`, ...

Without a subcommand it is `bwprof sweep`. Nothing imports this folder but the ``__main__`` modules.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from bwprof.cli.guard import guarded

_COMMANDS = ("sweep", "report", "plot", "columns", "selftest", "model", "info")

_USAGE = """\
usage: bwprof [sweep] [options]   measure operations (bwprof sweep --help)
       bwprof report RUN|FILE     the summary of results
       bwprof plot RUN|FILE -o PICTURE  their bandwidths as bars
       bwprof columns             what the columns of results hold (bwprof columns --help)
       bwprof selftest [PART...]  bwprof's figures against independent witnesses (bwprof selftest --help)
       bwprof model MODEL [options]  tokens per second of a language model, and what limits them (bwprof model --help)
       bwprof info [--json] [--probe]  devices, roofs, build, libraries, what works here
       bwprof --version
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
    command, rest = (given[0], given[1:]) if given and given[0] in _COMMANDS else ("sweep", given)
    return _command(command)(rest)


def _command(name: str) -> Callable[[Sequence[str]], int]:
    module = importlib.import_module(f"bwprof.cli.{name}")
    found: Callable[[Sequence[str]], int] = module.main
    return found
