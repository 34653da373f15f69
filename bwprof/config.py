"""Compiler flags for the C library: ``cc engine.c $(python -m bwprof.config --cflags --libs)``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def get_include() -> str:
    """Return the folder of ``bwprof.h`` and ``bwprof.hpp``.

    Raises
    ------
    FileNotFoundError
        If this installation has none.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.get_include().endswith("include")
    True
    """
    return str(_there(_HERE / "include" / "bwprof.h").parent)


def get_library() -> str:
    """Return the file ``libbwprof.so``; FileNotFoundError if this installation has none.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.get_library().endswith("libbwprof.so")
    True
    """
    return str(_there(_HERE / "lib" / "libbwprof.so"))


def _there(file: Path) -> Path:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there: build or install bwprof again")
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the requested compiler flags in one line, in the order of the options."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m bwprof.config",
        description="What a compiler needs for programs that use bwprof's C library."
        " cc, c++ and nvcc take them alike: nvcc engine.cu $(python -m bwprof.config --cflags --libs)."
        " Flags whose paths have spaces are quoted, for a shell's eval.",
    )
    for option, text in {
        "--cflags": "where bwprof.h is, as a flag",
        "--libs": "the library, and where programs look for it when they run; behind the sources",
        "--include": "the folder of bwprof.h and bwprof.hpp",
        "--rustc": "both for rustc: rustc example.rs $(python -m bwprof.config --rustc)",
        "--library": "the file libbwprof.so",
    }.items():
        parser.add_argument(option, dest="options", action="append_const", const=option, help=text)
    options = parser.parse_args(arguments).options
    if not options:
        parser.error("one option is needed: --cflags, --libs, --include, --rustc or --library")
    if sys.stdout is None:  # >&-
        parser.exit(3, "python -m bwprof.config: error: the standard output is closed\n")
    try:
        sys.stdout.write(" ".join(map(_answer, options)) + "\n")
        sys.stdout.flush()
    except FileNotFoundError as error:
        parser.exit(1, f"{error}\n")
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        parser.exit(3, f"python -m bwprof.config: error: the standard output: {error.strerror}\n")
    return 0


def _answer(option: str) -> str:
    if option == "--include":
        return get_include()
    if option == "--cflags":
        return shlex.quote(f"-I{get_include()}")
    library = get_library()
    folder = os.path.dirname(library)
    return {
        "--library": library,
        "--rustc": shlex.join(["-L", folder, "-l", "bwprof", "-C", f"link-arg=-Wl,-rpath,{folder}"]),
        "--libs": shlex.join([f"-L{folder}", "-Xlinker", f"-rpath={folder}", "-lbwprof"]),  # nvcc knows no -Wl
    }[option]


if __name__ == "__main__":
    sys.exit(main())
