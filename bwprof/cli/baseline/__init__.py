"""The command ``bwprof baseline``: what later measurements are held against."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from bwprof.cli.baseline import kept, save
from bwprof.cli.shared.guard import OK, USAGE
from bwprof.text import unknown

_USAGE = """\
usage: bwprof baseline save NAME               measure the default suite in 5 fresh processes, and keep that
       bwprof baseline save NAME RUN|FILE...   keep runs that are there, each as a process
       bwprof baseline save NAME --repeat N [OPERATION...] [options of bwprof sweep]
       bwprof baseline list                    the baselines that are there
       bwprof baseline show NAME               its cases, and how far their medians wander between processes
       bwprof baseline delete NAME             remove it (or: remove)

A baseline is a file, .bwprof/baselines/NAME.json or in --dir DIR: plain JSON in a stable order, to be committed.
bwprof baseline save --help lists the options.
"""

_ACTIONS: dict[str, Callable[[Sequence[str]], int]] = {
    "save": save.main,
    "list": kept.list_all,
    "show": kept.show,
    "delete": kept.delete,
    "remove": kept.delete,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an action; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["-h"], ["--help"], ["help"]):
        sys.stdout.write(_USAGE)
        return OK
    if not given:
        sys.stderr.write(_USAGE)
        return USAGE
    if given[0] not in _ACTIONS:
        sys.stderr.write(f"bwprof: error: {unknown('action', given[0], _ACTIONS, where='bwprof baseline')}\n")
        return USAGE
    return _ACTIONS[given[0]](given[1:])
