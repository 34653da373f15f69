"""Where a run of the command writes: its folder, and the files and streams that options name."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from bwprof import environment, results
from bwprof.cli.shared.guard import data_stream
from bwprof.cli.shared.options import DEFAULT_OUTPUT
from bwprof.results.files import holds_something, is_open_file, is_plain_target, sync_folder
from bwprof.results.others import prometheus
from bwprof.results.schema import Row
from bwprof.results.writer import Claims, Store
from bwprof.text import path_text

_log = logging.getLogger("bwprof.sweep")


@dataclass(slots=True)
class Targets:
    """Where the results go."""

    folder: Path | None = None
    csv: list[Path | TextIO] = field(default_factory=list)
    json: list[Path | TextIO] = field(default_factory=list)
    classic: list[Path | TextIO] = field(default_factory=list)  # at the end of the run
    trace: list[Path | TextIO] = field(default_factory=list)  # likewise
    prometheus: list[Path | TextIO] = field(default_factory=list)  # likewise
    bundle: Path | None = None  # likewise, once it is there

    @property
    def by_kind(self) -> dict[str, list[Path | TextIO]]:
        """The files and streams of each kind, as a message calls it."""
        ends = {"classic CSV": self.classic, "trace": self.trace, "Prometheus": self.prometheus}
        return {"CSV": self.csv, "JSON": self.json, **ends}

    @property
    def late(self) -> list[Path | TextIO]:
        """What is written at the end of the run alone."""
        return [*self.classic, *self.trace, *self.prometheus]

    @property
    def every(self) -> list[Path | TextIO]:
        """All files and streams."""
        return [*self.csv, *self.json, *self.late]

    @property
    def uses_stdout(self) -> bool:
        """True when the data goes to standard output."""
        return not all(isinstance(one, Path) for one in self.every)


class UnwritableError(ValueError):
    """An output cannot be written; said before anything is measured."""


def new_targets(parsed: argparse.Namespace) -> tuple[str, Targets]:
    """A new run's id, and where its results go; two runs never share a folder."""
    while True:
        run_id = environment.new_run_id()
        targets = targets_of(parsed, run_id)
        if targets.folder is None:
            return run_id, targets
        try:
            targets.folder.mkdir(parents=True)
        except FileExistsError:
            if not targets.folder.is_dir():  # one of its parents is a file
                raise UnwritableError(f"--output {targets.folder.parent} cannot be written: it is no folder") from None
        except OSError as error:
            raise UnwritableError(
                f"--output {targets.folder.parent} cannot be written: {error.strerror or error}"
            ) from None
        else:
            sync_folder(targets.folder.parent)
            return run_id, targets


def targets_of(parsed: argparse.Namespace, run_id: str, *, folder: Path | None = None) -> Targets:
    """Where the results go: those of a new run, or of one that has its folder."""
    given = {name: _dash(getattr(parsed, name)) for name in ("csv", "json", "classic_csv", "trace", "prometheus")}
    to_stdout = [f"--{name.replace('_', '-')} -" for name, value in given.items() if value == "-"]
    if to_stdout:
        data_stream(to_stdout[0])
    if to_stdout and os.path.samestat(os.fstat(1), os.stat(os.devnull)):
        _log.warning("the standard output is the null device: what goes there is lost")
    if len(to_stdout) > 1:
        raise ValueError(f"{' and '.join(to_stdout)} cannot both have the standard output")
    targets = Targets(folder)
    output = Path(parsed.output) if parsed.output is not None else DEFAULT_OUTPUT
    if folder is None and output.suffix.lower() in (".json", ".csv") and not output.is_dir():
        (targets.json if output.suffix.lower() == ".json" else targets.csv).append(output)
    elif folder is None:
        targets.folder = output / run_id
    if targets.folder is not None:
        targets.csv.append(targets.folder / results.CSV_NAME)
        targets.json.append(targets.folder / results.JSON_NAME)
    for name, listed in zip(given.values(), targets.by_kind.values(), strict=True):
        if name is not None:
            listed.append(data_stream() if name == "-" else Path(name))
    _check_distinct(targets)
    _check_inputs(parsed, targets)
    if not parsed.force:
        _check_new(targets, run_id if folder is not None else None)
    return targets


def remove_folder(folder: Path) -> None:
    """Take away the folder of a run without rows, and nothing in it that is not ours."""
    for name in (results.CSV_NAME, results.JSON_NAME):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def open_store(
    data: dict[str, Any],
    targets: Targets,
    rows: Sequence[Row] = (),
    samples: Sequence[list[float] | None] = (),
    claims: Claims | None = None,
) -> Store:
    """Where a run's rows go: the files are open, and the first lines written."""
    with unwritable():
        return Store(
            data, csv_targets=targets.csv, json_targets=targets.json, rows=rows, samples=samples, claims=claims
        )


@contextmanager
def unwritable() -> Iterator[None]:
    """What cannot be written is a mistake in the command line, as long as nothing was measured."""
    try:
        yield
    except OSError as error:
        said = f"results cannot be written to {error.filename or 'the standard output'}: {error.strerror or error}"
        if not isinstance(error, BrokenPipeError):
            raise UnwritableError(said) from None
        sys.stderr.write(f"bwprof: error: {said}\n")
        raise


def tell_where(targets: Targets) -> None:
    """Say where the files are."""
    if targets.folder is not None:
        sys.stderr.write(f"bwprof: results are in {path_text(targets.folder)}\n")
    for target in targets.every:
        if isinstance(target, Path) and target.parent != targets.folder:
            sys.stderr.write(f"bwprof: results are in {path_text(target)}\n")
    if targets.bundle is not None:
        sys.stderr.write(f"bwprof: the proof bundle is in {path_text(targets.bundle)}\n")


def is_kept(target: Path | TextIO) -> bool:
    """Whether what was written there stays: a file, no pipe."""
    return isinstance(target, Path) and _is_file(target)


def _dash(name: str | None) -> str | None:
    """'-' for every name of the standard output (/dev/stdout, ...), where the summary must not go as well."""
    if name is None or not is_open_file(Path(name)):
        return name
    try:
        return "-" if os.path.samestat(os.stat(name), os.fstat(1)) else name
    except OSError:  # said when it is opened
        return name


def _check_distinct(targets: Targets) -> None:
    """One file is written once; ValueError when it should be CSV and JSON."""
    seen: dict[str, str] = {}
    for kind, listed in targets.by_kind.items():
        for target in list(listed):
            if not isinstance(target, Path) or not _is_file(target):
                continue
            real = os.path.realpath(target)
            earlier = seen.setdefault(real, kind)
            if earlier != kind:
                raise UnwritableError(f"{target} cannot be both the {earlier} and the {kind} file")
            if sum(isinstance(other, Path) and os.path.realpath(other) == real for other in listed) > 1:
                listed.remove(target)


def _check_inputs(parsed: argparse.Namespace, targets: Targets) -> None:
    """What the run reads is not written over, whatever the options say."""
    if parsed.suite is None or not os.path.isfile(parsed.suite):
        return
    for target in targets.every:
        if isinstance(target, Path) and target.exists() and target.samefile(parsed.suite):
            raise UnwritableError(f"{target} is the suite itself: name another file for the results")


def _check_new(targets: Targets, resumed: str | None) -> None:
    """Nobody's file is replaced without a word; a run that goes on may replace its own."""
    for target in targets.every:
        if not isinstance(target, Path) or target.parent == targets.folder or not holds_something(target):
            continue
        if target in targets.prometheus and _opens_with(target, prometheus.OPENING):
            continue  # made to be replaced, again and again
        if resumed is None or not _holds(target, resumed):
            raise UnwritableError(f"{target} exists already: name another file, or replace it with --force")


def _holds(path: Path, run_id: str) -> bool:
    """True for a file of that run's results."""
    try:
        rows, _, run = results.read_rows(path)
    except (OSError, ValueError):
        return False
    return {row["run_id"] for row in rows} <= {run_id} and run.get("run_id", run_id) == run_id


def _opens_with(path: Path, text: str) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(text)) == text.encode()
    except OSError:  # said when it is written
        return False


def _is_file(path: Path) -> bool:
    try:
        return is_plain_target(path)
    except OSError:  # said when it is opened
        return False
