"""Where commands write: files, folders, streams.

Every target is checked before anything is measured. Each is written even if another one fails.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bwprof import environment
from bwprof.cli.guard import INCOMPLETE, OK, data_stream
from bwprof.cli.options import DEFAULT_OUTPUT
from bwprof.results import exchange, reader
from bwprof.results.atomic import append_text, atomic_write, has_content, is_open_stream, is_plain_target, sync_folder
from bwprof.results.schema import RowDict
from bwprof.results.writer import Claims, Store
from bwprof.text.formatting import format_path
from bwprof.text.parsing import escape_controls, quote_text
from bwprof.text.terminal import make_console

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

FORMS = """\
one of:
--json  print JSON instead of tables
--md  print Markdown instead of tables
"""


def choose_targets(options: argparse.Namespace, *inputs: str | None) -> dict[str, str]:
    """Read where --csv, --json and --md write, by kind; "-", or a flag, is the standard output.

    Raises
    ------
    ValueError
        Before anything is written: for a target that cannot be written, two in one place, and one of the `inputs`.
    """
    values = {kind: getattr(options, kind, None) for kind in ("csv", "json", "md")}
    targets = {kind: "-" if value is True else value for kind, value in values.items() if value not in (None, False)}
    flags = {kind: f"--{kind}" if values[kind] is True else f"--{kind} -" for kind in targets}
    piped = [flags[kind] for kind, name in targets.items() if name == "-"]
    if len(piped) > 1:
        raise ValueError(f"{' and '.join(piped)} cannot both have the standard output")
    for flag in piped:
        data_stream(flag)
    for kind, name in targets.items():
        if name != "-":
            _check_target(kind, name, targets, inputs, force=options.force)
    return targets


def _check_target(
    kind: str, name: str, targets: Mapping[str, str], inputs: Sequence[str | None], *, force: bool
) -> None:
    if kind != "md" and Path(name).suffix.lower() != f".{kind}":
        raise ValueError(f"--{kind} {quote_text(name)}: the name must end in .{kind}")
    _check_distinct(f"--{kind}", name, {other: path for other, path in targets.items() if kind == "md" != other})
    if any(_is_same_file(name, path) for path in inputs):
        raise ValueError(f"--{kind} {quote_text(name)} is what is read: name another file for the results")
    if not _is_step_summary(kind, name):
        check_folder(f"--{kind}", name)
        check_free(name, force=force)


def _check_distinct(option: str, name: str, targets: Mapping[str, str]) -> None:
    for kind, path in targets.items():
        if path != "-" and os.path.realpath(path) == os.path.realpath(name):
            first, second = (f"{flag} {quote_text(text)}" for flag, text in ((f"--{kind}", path), (option, name)))
            raise ValueError(f"{first} and {second} cannot both have the same file")


def check_picture(option: str, name: str, *, force: bool, targets: Mapping[str, str] | None = None) -> None:
    """Raise ValueError for a picture with a wrong ending or folder, or in the place of a file or a target."""
    from bwprof.plot import canvas

    canvas.check_ending(Path(name))
    check_folder(option, name)
    check_free(name, force=force)
    _check_distinct(option, name, targets or {})


def check_free(name: str, *, force: bool) -> None:
    """Raise ValueError for a file that would be replaced without `--force`."""
    if not force and has_content(Path(name)):
        raise ValueError(f"{quote_text(name)} exists already: name another file, or replace it with --force")


def check_folder(option: str, name: str) -> None:
    """Raise ValueError for a folder, and for a file whose folder does not exist or cannot be written to."""
    try:
        if stat.S_ISDIR(os.stat(name).st_mode):
            raise ValueError(f"{option} {quote_text(name)} is a folder: a file is needed")
    except FileNotFoundError:
        pass
    except OSError as error:  # a link to itself, a name that is too long
        raise ValueError(f"{option} {quote_text(name)}: {error.strerror}") from None
    folder = Path(os.path.realpath(name) if os.path.islink(name) else name).parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ValueError(f"{option} {quote_text(name)}: there is no folder {quote_text(folder)} that can be written to")


def _is_step_summary(kind: str, name: str) -> bool:
    """Whether this is the summary of a GitHub job's step, to which commands add."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    return (
        kind == "md" and bool(summary) and os.path.realpath(name) == os.path.realpath(summary or "") and _is_plain(name)
    )


def _is_plain(path: str | Path) -> bool:
    try:
        return is_plain_target(Path(path))
    except OSError:  # opening it reports that
        return False


def _is_same_file(name: str, path: str | None) -> bool:
    return path is not None and Path(name).exists() and Path(path).exists() and Path(name).samefile(path)


def write_each(targets: Mapping[str, str], text_of: Callable[[str], str]) -> set[str]:
    """Write the text of each kind to its target ("-": standard output); return the kinds that are written."""
    written: set[str] = set()
    for kind, name in targets.items():
        try:
            text = escape_controls(text_of(kind)) if kind == "md" else text_of(kind)
            if name == "-":
                stream = data_stream(f"--{kind} -")
                stream.write(text)
                stream.flush()
            elif _is_step_summary(kind, name):
                append_text(Path(name), text)
            else:
                atomic_write(Path(name), text)
        except OSError as error:
            where = "the standard output" if name == "-" else quote_text(name)
            sys.stderr.write(f"bwprof: error: results cannot be written to {where}: {error.strerror or error}\n")
        else:
            written.add(kind)
    return written


def emit(
    targets: Mapping[str, str], texts: Mapping[str, Callable[[], str]], show: Callable[[Console], None] | None = None
) -> int:
    """Print a result on the terminal, unless its data goes there, and write it to its targets; return the exit code.

    Parameters
    ----------
    targets : mapping
        From `choose_targets`.
    texts : mapping
        What makes the text of each kind.
    show : callable, optional
        What prints the result on a console.
    """
    if show is not None and "-" not in targets.values():
        show(make_console(sys.stdout))
    return OK if write_targets(targets, texts) else INCOMPLETE


def write_targets(targets: Mapping[str, str], texts: Mapping[str, Callable[[], str]]) -> bool:
    """Write files, then the standard output, whose errors `guarded` reports; return whether all files are written."""
    files = {kind: name for kind, name in targets.items() if name != "-"}
    complete = write_each(files, lambda kind: texts[kind]()) == files.keys()
    for kind in targets.keys() - files.keys():
        text = texts[kind]()
        data_stream(f"--{kind} -").write(escape_controls(text) if kind == "md" else text)
    return complete


def json_text(data: Any) -> str:
    """Write a document as JSON."""
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def write_predictions(data: pd.DataFrame, targets: Mapping[str, str], *, quiet: bool = False) -> None:
    """Write predicted rows to files or to the standard output."""
    from bwprof.results import csv_file, frame, json_file

    for kind, name in targets.items():
        if name != "-":
            reader.save(data, name)
            if not quiet:
                sys.stderr.write(f"bwprof: predictions are in {format_path(name)}\n")
            continue
        rows = frame.to_rows(data)
        text = (
            csv_file.csv_text(rows)
            if kind == "csv"
            else json_file.json_text(rows, [None] * len(rows), data.attrs["run"])
        )
        data_stream(f"--{kind} -").write(text)


def rescue(kind: str, text: str) -> None:
    """Print on standard error what could not be written."""
    sys.stderr.write(f"bwprof: what was measured follows as {kind.upper()}, so that it is not lost:\n")
    sys.stderr.write(text)


_log = logging.getLogger("bwprof.sweep")
# The kinds of a run's files, as a message calls them; those behind the first two are written at its end.
_KINDS = {"csv": "CSV", "json": "JSON", "classic_csv": "classic CSV", "trace": "trace", "prometheus": "Prometheus"}


@dataclass(slots=True)
class Targets:
    """Where the results of a run go: its folder, the files and streams of each kind, and the written bundle."""

    folder: Path | None = None
    files: dict[str, list[Path | TextIO]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})
    bundle: Path | None = None

    @property
    def every(self) -> list[Path | TextIO]:
        """All files and streams."""
        return [target for targets in self.files.values() for target in targets]

    @property
    def uses_stdout(self) -> bool:
        """True when the data goes to standard output."""
        return not all(isinstance(target, Path) for target in self.every)


class UnwritableError(ValueError):
    """An output cannot be written; raised before anything is measured."""


def new_targets(options: argparse.Namespace) -> tuple[str, Targets]:
    """Choose a new run's id and where its results go; two runs never share a folder."""
    while True:
        run_id = environment.new_run_id()
        targets = choose_run_targets(options, run_id)
        if targets.folder is None:
            return run_id, targets
        parent = targets.folder.parent
        try:
            targets.folder.mkdir(parents=True)
        except OSError as error:
            if isinstance(error, FileExistsError) and targets.folder.is_dir():
                continue
            reason = "it is no folder" if isinstance(error, FileExistsError) else error.strerror or error
            raise UnwritableError(f"--output {parent} cannot be written: {reason}") from None
        sync_folder(parent)
        return run_id, targets


def choose_run_targets(options: argparse.Namespace, run_id: str, *, folder: Path | None = None) -> Targets:
    """Choose where the results go: those of a new run, or of one that has its folder."""
    names = {kind: _as_dash(getattr(options, kind)) for kind in _KINDS}
    _check_stdout(names)
    targets = Targets(folder)
    output = Path(options.output) if options.output is not None else DEFAULT_OUTPUT
    kind = output.suffix.lower()
    if folder is None and kind in (".json", ".csv") and not output.is_dir():
        targets.files[kind[1:]].append(output)
    elif folder is None:
        targets.folder = output / run_id
    if targets.folder is not None:
        targets.files["csv"].append(targets.folder / reader.CSV_NAME)
        targets.files["json"].append(targets.folder / reader.JSON_NAME)
    for kind, name in names.items():
        if name is not None:
            targets.files[kind].append(data_stream() if name == "-" else Path(name))
    _remove_duplicates(targets)
    _check_suite(options.suite, targets)
    if not options.force:
        _check_new(targets, run_id if folder is not None else None)
    return targets


def _check_stdout(names: Mapping[str, str | None]) -> None:
    piped = [f"--{name.replace('_', '-')} -" for name, value in names.items() if value == "-"]
    if piped:
        data_stream(piped[0])
        if os.path.samestat(os.fstat(1), os.stat(os.devnull)):
            _log.warning("the standard output is the null device: what goes there is lost")
    if len(piped) > 1:
        raise ValueError(f"{' and '.join(piped)} cannot both have the standard output")


def remove_folder(folder: Path) -> None:
    """Remove the folder of a run without rows, but no file in it that is not ours."""
    for name in (reader.CSV_NAME, reader.JSON_NAME):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def open_store(
    data: dict[str, Any],
    targets: Targets,
    rows: Sequence[RowDict] = (),
    samples: Sequence[list[float] | None] = (),
    claims: Claims | None = None,
) -> Store:
    """Open the files of a run's rows and write their first lines."""
    with unwritable():
        return Store(
            data,
            csv_targets=targets.files["csv"],
            json_targets=targets.files["json"],
            rows=rows,
            samples=samples,
            claims=claims,
        )


@contextmanager
def unwritable() -> Iterator[None]:
    """Raise UnwritableError for an OSError of the block, which measures nothing."""
    try:
        yield
    except OSError as error:
        message = f"results cannot be written to {error.filename or 'the standard output'}: {error.strerror or error}"
        if not isinstance(error, BrokenPipeError):
            raise UnwritableError(message) from None
        sys.stderr.write(f"bwprof: error: {message}\n")
        raise


def print_paths(targets: Targets) -> None:
    """Print where the files are."""
    paths = [targets.folder] if targets.folder is not None else []
    paths += [path for path in targets.every if isinstance(path, Path) and path.parent != targets.folder]
    for path in paths:
        sys.stderr.write(f"bwprof: results are in {format_path(path)}\n")
    if targets.bundle is not None:
        sys.stderr.write(f"bwprof: the proof bundle is in {format_path(targets.bundle)}\n")


def is_file(target: Path | TextIO) -> bool:
    """Return whether a target is a file, and no pipe."""
    return isinstance(target, Path) and _is_plain(target)


def _as_dash(name: str | None) -> str | None:
    """Return '-' for every name of the standard output (/dev/stdout, ...), where the summary must not go as well."""
    if name is None or not is_open_stream(Path(name)):
        return name
    try:
        return "-" if os.path.samestat(os.stat(name), os.fstat(1)) else name
    except OSError:  # opening it reports that
        return name


def _remove_duplicates(targets: Targets) -> None:
    """Leave each file once; UnwritableError for a file of two kinds."""
    seen: dict[str, str] = {}
    for kind, files in targets.files.items():
        for target in list(files):
            if not is_file(target):
                continue
            real = os.path.realpath(str(target))
            if seen.get(real) == kind:
                files.remove(target)
            elif seen.setdefault(real, kind) != kind:
                raise UnwritableError(f"{target} cannot be both the {_KINDS[seen[real]]} and the {_KINDS[kind]} file")


def _check_suite(suite: str | None, targets: Targets) -> None:
    if suite is None or not os.path.isfile(suite):
        return
    for target in targets.every:
        if isinstance(target, Path) and target.exists() and target.samefile(suite):
            raise UnwritableError(f"{target} is the suite itself: name another file for the results")


def _check_new(targets: Targets, resumed: str | None) -> None:
    """Raise UnwritableError for a file that exists; a run that continues may replace its own."""
    for target in targets.every:
        if not isinstance(target, Path) or target.parent == targets.folder or not has_content(target):
            continue
        if target in targets.files["prometheus"] and _begins_with(target, exchange.OPENING):
            continue  # each run replaces it
        if resumed is None or not _is_of_run(target, resumed):
            raise UnwritableError(f"{target} exists already: name another file, or replace it with --force")


def _is_of_run(path: Path, run_id: str) -> bool:
    try:
        rows, _, run = reader.read_rows(path)
    except (OSError, ValueError):
        return False
    return {row["run_id"] for row in rows} <= {run_id} and run.get("run_id", run_id) == run_id


def _begins_with(path: Path, text: str) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(text)) == text.encode()
    except OSError:  # writing it reports that
        return False
