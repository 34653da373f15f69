"""``python -m bwprof`` and the console script ``bwprof``: `bwprof sweep ...`, `bwprof selftest ...`, `bwprof info ...`.

Without a command it is `bwprof sweep`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from bwprof.terminal import guarded

FAILED = 3

_COMMANDS = ("sweep", "selftest", "info")

_USAGE = """\
usage: bwprof [sweep] [options]   measure operations (bwprof sweep --help)
       bwprof selftest [PART...]  bwprof's figures against independent witnesses (bwprof selftest --help)
       bwprof info [--json] [--probe]  devices, roofs, build, libraries, what works here
       bwprof --version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _main(given), failed=FAILED)


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
    if name == "info":
        from bwprof.info.cli import main as info_main

        return info_main
    if name == "selftest":
        from bwprof.selftest.cli import main as selftest_main

        return selftest_main
    from bwprof.sweep.cli import main as sweep_main

    return sweep_main


if __name__ == "__main__":
    sys.exit(main())
