"""Where commands write: files, folders, streams.

Every target is checked before anything is measured. Each is written even if another one fails.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bwprof import environment
from bwprof.cli.guard import INCOMPLETE, OK, data_stream
from bwprof.cli.options import DEFAULT_OUTPUT
from bwprof.results import exchange, reader
from bwprof.results.atomic import append_text, atomic_write, has_content, is_open_stream, is_plain_target, sync_folder
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
    _check_stdout([f"--{kind}" if values[kind] is True else f"--{kind} -" for kind in targets if targets[kind] == "-"])
    files = _files_of(targets)
    for option, name in files.items():
        kind = option.removeprefix("--")
        if kind != "md" and Path(name).suffix.lower() != f".{kind}":
            raise ValueError(f"{option} {quote_text(name)}: the name must end in .{kind}")
        _check_inputs(option, name, inputs)
        if not _is_step_summary(kind, name):
            check_new(option, name, force=options.force)
    _check_distinct(files)
    return targets


def _files_of(targets: Mapping[str, str]) -> dict[str, str]:
    """Return the files among targets, by the option that names them."""
    return {f"--{kind}": name for kind, name in targets.items() if name != "-"}


def _check_stdout(flags: Sequence[str]) -> None:
    """Raise ValueError where the standard output is closed, or has the data of several options."""
    for flag in flags:
        data_stream(flag)
    if len(flags) > 1:
        raise ValueError(f"{' and '.join(flags)} cannot both have the standard output")


def _check_distinct(files: Mapping[str, str]) -> None:
    """Raise ValueError where two options name the same file."""
    for pair in combinations(files.items(), 2):
        if len({os.path.realpath(name) for _, name in pair}) == 1:
            both = " and ".join(f"{option} {quote_text(name)}" for option, name in pair)
            raise ValueError(f"{both} cannot both have the same file")


def _check_inputs(option: str, name: str | Path, inputs: Sequence[str | None]) -> None:
    for path in filter(None, inputs):
        if Path(name).exists() and Path(path).exists() and Path(name).samefile(path):
            raise ValueError(f"{option} {quote_text(name)} is what is read: name another file for the results")


def check_picture(option: str, name: str, *, force: bool, targets: Mapping[str, str] | None = None) -> None:
    """Raise ValueError for a picture with a wrong ending or folder, or in the place of a file or a target."""
    from bwprof.plot import canvas

    canvas.check_ending(Path(name))
    check_new(option, name, force=force)
    _check_distinct({**_files_of(targets or {}), option: name})


def check_new(option: str, name: str, *, force: bool) -> None:
    """Raise ValueError for a file that cannot be written, or would be replaced without `--force`."""
    check_writable(option, name)
    if not force and has_content(Path(name)):
        raise ValueError(f"{quote_text(name)} exists already: name another file, or replace it with --force")


def check_writable(option: str, name: str | Path) -> None:
    """Raise ValueError for a folder, and for a file whose folder does not exist or cannot be written to."""
    try:
        plain, is_folder = is_plain_target(Path(name)), Path(name).is_dir()
    except OSError as error:  # a link to itself, a name that is too long
        raise ValueError(f"{option} {quote_text(name)}: {error.strerror}") from None
    if is_folder:
        raise ValueError(f"{option} {quote_text(name)} is a folder: a file is needed")
    folder = Path(os.path.realpath(name) if os.path.islink(name) else name).parent
    if plain and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ValueError(f"{option} {quote_text(name)}: there is no folder {quote_text(folder)} that can be written to")


def _is_step_summary(kind: str, name: str) -> bool:
    """Whether this is the summary of a GitHub job's step, to which commands add."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY") or ""
    is_same = kind == "md" and bool(summary) and os.path.realpath(name) == os.path.realpath(summary)
    return is_same and is_file(Path(name))


def is_file(target: Path | TextIO) -> bool:
    """Return whether a target is a file, and no pipe."""
    try:
        return isinstance(target, Path) and is_plain_target(target)
    except OSError:  # opening it reports that
        return False


def write_each(targets: Mapping[str, str], texts: Mapping[str, Callable[[], str]]) -> set[str]:
    """Write the text of each kind to its target ("-": standard output); return the kinds that are written."""
    written: set[str] = set()
    for kind, name in targets.items():
        try:
            text = escape_controls(texts[kind]()) if kind == "md" else texts[kind]()
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

    Files come before the standard output, whose errors `guarded` reports.

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
    files = {kind: name for kind, name in targets.items() if name != "-"}
    complete = write_each(files, texts) == files.keys()
    for kind in targets.keys() - files.keys():
        text = texts[kind]()
        data_stream(f"--{kind} -").write(escape_controls(text) if kind == "md" else text)
    return OK if complete else INCOMPLETE


def json_text(data: Any) -> str:
    """Write a document as JSON."""
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def row_texts(data: pd.DataFrame) -> dict[str, Callable[[], str]]:
    """Return what makes the text of rows without samples, by kind."""
    from bwprof.results import csv_file, frame, json_file

    rows = frame.to_rows(data)
    return {
        "csv": lambda: csv_file.csv_text(rows),
        "json": lambda: json_file.json_text(rows, [None] * len(rows), data.attrs["run"]),
    }


@contextmanager
def writing() -> Iterator[None]:
    """Make a file that the block cannot write exit with INCOMPLETE, as `emit` does."""
    try:
        yield
    except OSError as error:
        name = "the standard output" if error.filename is None else quote_text(error.filename)
        raise RuntimeError(f"results cannot be written to {name}: {error.strerror or error}") from None


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
            raise ValueError(f"--output {parent} cannot be written: {reason}") from None
        sync_folder(parent)
        return run_id, targets


def choose_run_targets(options: argparse.Namespace, run_id: str, *, folder: Path | None = None) -> Targets:
    """Choose where the results go: those of a new run, or of one that has its folder."""
    names = {kind: _as_dash(getattr(options, kind)) for kind in _KINDS}
    piped = [f"--{kind.replace('_', '-')} -" for kind, name in names.items() if name == "-"]
    _check_stdout(piped)
    if piped and os.path.samestat(os.fstat(1), os.stat(os.devnull)):
        _log.warning("the standard output is the null device: what goes there is lost")
    output = DEFAULT_OUTPUT if options.output is None else Path(options.output)
    targets = _default_targets(output, run_id, folder)
    for kind, name in names.items():
        if name is not None:
            targets.files[kind].append(data_stream() if name == "-" else Path(name))
    _check_files(options, targets)
    if not options.force:
        _check_content(targets, run_id if folder is not None else None)
    return targets


def _default_targets(output: Path, run_id: str, folder: Path | None) -> Targets:
    """Return the file that `output` is, or else the files in the run's folder, a new one of `output` if None."""
    kind = output.suffix.lower().removeprefix(".")
    if folder is None and kind in ("json", "csv") and not output.is_dir():
        targets = Targets()
        targets.files[kind].append(output)
        return targets
    of_run = output / run_id if folder is None else folder
    targets = Targets(of_run)
    targets.files["csv"].append(of_run / reader.CSV_NAME)
    targets.files["json"].append(of_run / reader.JSON_NAME)
    return targets


def _check_files(options: argparse.Namespace, targets: Targets) -> None:
    """Leave each file once; raise ValueError for one of two kinds, and for one that is read."""
    owners: dict[str, str] = {}
    for kind, files in targets.files.items():
        for target in [path for path in files if isinstance(path, Path)]:
            _check_inputs("the file", target, [options.suite])
            real = os.path.realpath(target)
            if is_file(target) and owners.get(real) == kind:
                files.remove(target)
            elif is_file(target) and owners.setdefault(real, kind) != kind:
                raise ValueError(f"{target} cannot be both the {_KINDS[owners[real]]} and the {_KINDS[kind]} file")


def _check_content(targets: Targets, resumed: str | None) -> None:
    """Raise ValueError for a file that would be replaced.

    A run that continues (`resumed`) may replace its own, and each run replaces the metrics for Prometheus.
    """
    for kind, files in targets.files.items():
        for target in [path for path in files if isinstance(path, Path) and has_content(path)]:
            is_own = target.parent == targets.folder or (kind == "prometheus" and _is_prometheus(target))
            if not is_own and (resumed is None or not _is_of_run(target, resumed)):
                raise ValueError(f"{target} exists already: name another file, or replace it with --force")


def _is_of_run(path: Path, run_id: str) -> bool:
    try:
        rows, _, run = reader.read_rows(path)
    except (OSError, ValueError):
        return False
    return {row["run_id"] for row in rows} <= {run_id} and run.get("run_id", run_id) == run_id


def _is_prometheus(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(exchange.OPENING)) == exchange.OPENING.encode()
    except OSError:  # writing it reports that
        return False


def remove_folder(folder: Path) -> None:
    """Remove the folder of a run without rows, but no file in it that is not ours."""
    for name in (reader.CSV_NAME, reader.JSON_NAME):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def open_store(data: dict[str, Any], targets: Targets, claims: Claims | None = None, **finished: Any) -> Store:
    """Open the files of a run's rows and write their first lines; `finished` has the `rows` and `samples` so far."""
    files = targets.files
    with unwritable():
        return Store(data, csv_targets=files["csv"], json_targets=files["json"], claims=claims, **finished)


@contextmanager
def unwritable() -> Iterator[None]:
    """Raise ValueError for an OSError of the block, which measures nothing."""
    try:
        yield
    except OSError as error:
        message = f"results cannot be written to {error.filename or 'the standard output'}: {error.strerror or error}"
        if not isinstance(error, BrokenPipeError):
            raise ValueError(message) from None
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


def _as_dash(name: str | None) -> str | None:
    """Return '-' for every name of the standard output (/dev/stdout, ...), where the summary must not go as well."""
    if name is None or not is_open_stream(Path(name)):
        return name
    try:
        return "-" if os.path.samestat(os.stat(name), os.fstat(1)) else name
    except OSError:  # opening it reports that
        return name
