"""The files that commands write: what may be written is looked at before anything is measured, and then each is
written whatever becomes of the others, so that nothing is lost.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bwprof.cli.shared.guard import data_stream
from bwprof.results.files import atomic_write, holds_something, is_plain_target
from bwprof.text import quoted, spelt


def targets_of(given: argparse.Namespace, *inputs: str | None) -> dict[str, str]:
    """What is written where, by kind; ValueError before anything is, also for a file that is one of the `inputs`."""
    targets = {kind: name for kind in ("csv", "json", "md") if (name := getattr(given, kind, None)) is not None}
    piped = [f"--{kind} -" for kind, name in targets.items() if name == "-"]
    if len(piped) > 1:
        raise ValueError(f"{' and '.join(piped)} cannot both have the standard output")
    for kind, name in targets.items():
        if name == "":
            raise ValueError(f"--{kind} is '': a name is needed")
        if name == "-":
            data_stream(f"--{kind} -")
        elif kind != "md" and Path(name).suffix.lower() != f".{kind}":
            raise ValueError(f"--{kind} {quoted(name)}: the name must end in .{kind}")
        elif kind == "md" and (other := next((one for one in ("csv", "json") if _is_one(targets.get(one), name)), "")):
            raise ValueError(f"--{other} {quoted(name)} and --md {quoted(name)} cannot both have the same file")
        elif any(_same(name, read) for read in inputs):
            raise ValueError(f"--{kind} {quoted(name)} is what is read: name another file for the results")
        elif is_step_summary(kind, name):
            continue
        else:
            check_folder(f"--{kind}", name)
            check_free(name, force=given.force)
    return targets


def check_picture(option: str, name: str, *, force: bool, targets: Mapping[str, str] | None = None) -> None:
    """ValueError for a file that no picture can be written to: its ending, its folder, one that is there or, of the
    `targets` by kind, another option's.
    """
    from bwprof import plot

    if name == "":
        raise ValueError(f"{option} is '': a name is needed")
    plot.check_ending(Path(name))
    check_folder(option, name)
    check_free(name, force=force)
    for kind, other in (targets or {}).items():
        if _is_one(other, name):
            raise ValueError(f"--{kind} {quoted(other)} and {option} {quoted(name)} cannot both have the same file")


def check_free(name: str, *, force: bool) -> None:
    """ValueError for a file that would be replaced, and `--force` was not given."""
    if not force and holds_something(Path(name)):
        raise ValueError(f"{quoted(name)} exists already: name another file, or replace it with --force")


def check_folder(option: str, name: str) -> None:
    """ValueError for a file whose folder is not there, or cannot be written to, and for what is a folder itself."""
    try:
        if stat.S_ISDIR(os.stat(name).st_mode):
            raise ValueError(f"{option} {quoted(name)} is a folder: a file is needed")
    except FileNotFoundError:  # nothing yet
        pass
    except OSError as error:  # a link to itself, a name that is too long
        raise ValueError(f"{option} {quoted(name)}: {error.strerror}") from None
    folder = Path(os.path.realpath(name) if os.path.islink(name) else name).parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ValueError(f"{option} {quoted(name)}: there is no folder {quoted(folder)} that can be written to")


def is_step_summary(kind: str, name: str) -> bool:
    """Whether Markdown is for the summary of a GitHub job's step: it is added to."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if kind != "md" or not summary or os.path.realpath(name) != os.path.realpath(summary):
        return False
    try:
        return is_plain_target(Path(name))
    except OSError:  # said when it is opened
        return False


def _is_one(given: str | None, name: str) -> bool:
    """Whether two names are one file's, also of a file that is not there yet."""
    return given is not None and name != "-" and os.path.realpath(given) == os.path.realpath(name)


def _same(name: str, given: str | None) -> bool:
    return given is not None and Path(name).exists() and Path(given).exists() and Path(name).samefile(given)


def write_each(targets: Mapping[str, str], text_of: Callable[[str], str]) -> set[str]:
    """Write a text to each target ("-": standard output), by its kind; the kinds that are written."""
    written: set[str] = set()
    for kind, name in targets.items():
        try:
            text = spelt(text_of(kind)) if kind == "md" else text_of(kind)
            if name == "-":
                stream = data_stream(f"--{kind} -")
                stream.write(text)
                stream.flush()
            else:
                atomic_write(Path(name), text)
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
