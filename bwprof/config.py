"""Where the C library and its headers are: ``cc engine.c $(python -m bwprof.config --cflags --libs)``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def get_include() -> str:
    """The folder of ``bwprof.h`` and ``bwprof.hpp``.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.get_include().endswith("include")
    True
    """
    return str(_HERE / "include")


def get_library() -> str:
    """The file ``libbwprof.so``.

    Raises
    ------
    FileNotFoundError
        When this installation has none: it was built before there was one.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.get_library().endswith("libbwprof.so")
    True
    """
    found = _HERE / "lib" / "libbwprof.so"
    if not found.is_file():
        raise FileNotFoundError(f"{found} is not there: build or install bwprof again")
    return str(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """The words that a compiler needs, in one line, in the order asked for."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m bwprof.config", description="What a compiler needs for programs that use bwprof's C library."
    )
    for option, text in {
        "--cflags": "where bwprof.h is, as a flag",
        "--libs": "the library, and where programs look for it when they run",
        "--include": "the folder of bwprof.h and bwprof.hpp",
        "--library": "the file libbwprof.so",
    }.items():
        parser.add_argument(option, dest="asked", action="append_const", const=option, help=text)
    asked = parser.parse_args(arguments).asked
    if not asked:
        parser.error("ask for --cflags, --libs, --include or --library")
    try:
        words = [_answer(option) for option in asked]
    except FileNotFoundError as error:
        parser.exit(1, f"{error}\n")
    sys.stdout.write(" ".join(words) + "\n")
    return 0


def _answer(option: str) -> str:
    if option == "--include":
        return get_include()
    if option == "--cflags":
        return f"-I{get_include()}"
    library = get_library()
    if option == "--library":
        return library
    folder = str(Path(library).parent)
    return f"-L{folder} -Wl,-rpath,{folder} -lbwprof"


if __name__ == "__main__":
    sys.exit(main())
