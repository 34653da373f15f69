"""What a command that has measured writes: each file whatever becomes of the others, so that nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bwprof.results.files import atomic_write
from bwprof.text import quoted


def write_each(targets: Mapping[str, str], text_of: Callable[[str], str]) -> set[str]:
    """Write a text to each target ("-": standard output), by its kind; the kinds that are written."""
    written: set[str] = set()
    for kind, name in targets.items():
        try:
            if name == "-":
                sys.stdout.write(text_of(kind))
                sys.stdout.flush()
            else:
                atomic_write(Path(name), text_of(kind))
        except OSError as error:
            where = "the standard output" if name == "-" else quoted(name)
            sys.stderr.write(f"bwprof: error: results cannot be written to {where}: {error.strerror or error}\n")
        else:
            written.add(kind)
    return written


def rescue(kind: str, text: str) -> None:
    """What could not be written, on standard error."""
    sys.stderr.write(f"bwprof: what was measured follows as {kind.upper()}, so that it is not lost:\n")
    sys.stderr.write(text)
