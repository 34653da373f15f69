"""The command ``python -m bwprof.profilers``: files of other profilers, printed or written as rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bwprof.cli.profilers import shown
from bwprof.cli.profilers.stated import add_stated, apply
from bwprof.cli.shared import options as shared
from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import INCOMPLETE, OK, USAGE, guarded
from bwprof.cli.shared.outputs import targets_of, write_each
from bwprof.profilers import anything, parse_chrome_trace, parse_ncu, parse_nsys, parse_rocprof
from bwprof.text import unknown

if TYPE_CHECKING:
    import pandas as pd


class Reader(NamedTuple):
    """A profiler whose files can be read: what reads them, and what they are, for the help."""

    parse: Callable[[Path], pd.DataFrame]
    files: str


# The subcommands. Another profiler is a line here.
READERS: dict[str, Reader] = {
    "ncu": Reader(
        parse_ncu, "what ncu printed with --csv (--page raw or details) or as text, or its report (.ncu-rep)"
    ),
    "rocprof": Reader(parse_rocprof, "a CSV file of rocprof or rocprofv3, or the folder of one run"),
    "trace": Reader(parse_chrome_trace, "a trace that torch.profiler wrote: .json, or .json.gz"),
    "nsys": Reader(parse_nsys, "what nsys export --type sqlite made of a report, or the CSV of nsys stats"),
}
_PROGRAM = "python -m bwprof.profilers"
COLUMNS = "columns"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what another profiler measured; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _main(given))


def _main(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        sys.stdout.write(_usage())
        return OK if given else USAGE
    if given[0] == COLUMNS:
        return _columns(given[1:])
    if given[0] in READERS:
        return read(given[0], given[1:], f"{_PROGRAM} {given[0]}")
    sys.stderr.write(f"bwprof: error: {unknown('profiler', given[0], [*READERS, COLUMNS])}\n")
    return USAGE


def _columns(arguments: Sequence[str]) -> int:
    """What the columns of all of them hold."""
    parser = Parser(f"{_PROGRAM} {COLUMNS}", "The columns that files of other profilers are read into, in their order.")
    return run(parser, arguments, lambda _: shown.show_columns(sys.stdout))


def _usage() -> str:
    lines = [f"       {_PROGRAM} {name} FILE   {reader.files}" for name, reader in READERS.items()]
    lines.append(f"       {_PROGRAM} {COLUMNS}   what the columns hold")
    return f"usage: {_PROGRAM} PROFILER FILE ({' or '.join(READERS)} --help)\n" + "\n".join(lines) + "\n"


def read(name: str, arguments: Sequence[str], program: str) -> int:
    """The subcommand of one profiler; returns the exit code."""
    parser = Parser(
        program,
        "Print what another profiler measured, a row a launch: of few launches all that is known, of many a table; of\n"
        "time lines a row for each name.",
        "Columns: time, bytes, bandwidth, shares of peaks, why warps wait. The rest: --csv, --json, whose files this "
        "command,\nbwprof diagnose and bwprof.profilers.load read again.",
    )
    parser.add_argument("file", metavar="FILE", help=READERS[name].files)
    parser.add_argument("--kernel", metavar="TEXT", help="only kernels whose name contains this")
    add_stated(parser)
    shared.add_files(parser, " and notes")
    parser.add_argument("--md", metavar="FILE|-", help="rows as a table in Markdown")
    return run(parser, arguments, lambda given: _print(READERS[name], given))


def _print(reader: Reader, given: argparse.Namespace) -> int:
    targets = targets_of(given, given.file)
    found = apply(_read(reader, given.file), given)
    if given.kernel is not None:
        found = shown.only(found, given.kernel)
    return finish(found, targets)


def _read(reader: Reader, name: str) -> pd.DataFrame:
    """The rows of a file of that profiler, or of one that bwprof wrote of it; of another's the sentence names its
    command.
    """
    kind = anything.kind_of(name)
    if kind == anything.SAVED:
        return anything.load(name)
    try:
        return reader.parse(Path(name))
    except ValueError as error:
        if kind not in READERS or READERS[kind] is reader:
            raise
        raise ValueError(f"{error} (it looks like a file of {kind}: {_PROGRAM} {kind} FILE)") from None


def finish(found: pd.DataFrame, targets: Mapping[str, str]) -> int:
    """Show a frame, unless it goes to the standard output in another form, and write it; the exit code."""
    if "-" not in targets.values():
        shown.show(found, sys.stdout)
    written = write_each(targets, lambda kind: shown.as_text(found, kind))
    return OK if written == set(targets) else INCOMPLETE
