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
from typing import Any, TextIO

from bwprof import environment
from bwprof.cli.guard import data_stream
from bwprof.cli.options import DEFAULT_OUTPUT
from bwprof.results import export, reader
from bwprof.results.atomic import atomic_write, has_content, is_open_stream, is_plain_target, sync_folder
from bwprof.results.schema import RowDict
from bwprof.results.writer import Claims, Store
from bwprof.text.formatting import format_path
from bwprof.text.parsing import escape_controls, quote_text


def add_forms(parser: argparse.ArgumentParser) -> None:
    """The options that say which form."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of tables")
    form.add_argument("--md", action="store_true", help="as Markdown")


def print_in_form(options: argparse.Namespace, told: Callable[[], Any], parts: Callable[[], Sequence[str]]) -> bool:
    """Print what `told` gives as JSON, or `parts` as Markdown; False where tables are wanted."""
    if options.json:
        data_stream("--json").write(json.dumps(told(), indent=1, ensure_ascii=False) + "\n")
    elif options.md:
        data_stream("--md")
        sys.stdout.write("\n\n".join(parts()) + "\n")
    return bool(options.json or options.md)


def choose_targets(given: argparse.Namespace, *inputs: str | None) -> dict[str, str]:
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
            raise ValueError(f"--{kind} {quote_text(name)}: the name must end in .{kind}")
        elif kind == "md" and (other := next((one for one in ("csv", "json") if _is_one(targets.get(one), name)), "")):
            raise ValueError(f"--{other} {quote_text(name)} and --md {quote_text(name)} cannot both have the same file")
        elif any(_same(name, read) for read in inputs):
            raise ValueError(f"--{kind} {quote_text(name)} is what is read: name another file for the results")
        elif _is_step_summary(kind, name):
            continue
        else:
            check_folder(f"--{kind}", name)
            check_free(name, force=given.force)
    return targets


def check_picture(option: str, name: str, *, force: bool, targets: Mapping[str, str] | None = None) -> None:
    """ValueError for a file that no picture can be written to: its ending, its folder, one that is there or, of the
    `targets` by kind, another option's.
    """
    from bwprof.plot import canvas

    if name == "":
        raise ValueError(f"{option} is '': a name is needed")
    canvas.check_ending(Path(name))
    check_folder(option, name)
    check_free(name, force=force)
    for kind, other in (targets or {}).items():
        if _is_one(other, name):
            raise ValueError(
                f"--{kind} {quote_text(other)} and {option} {quote_text(name)} cannot both have the same file"
            )


def check_free(name: str, *, force: bool) -> None:
    """ValueError for a file that would be replaced, and `--force` was not given."""
    if not force and has_content(Path(name)):
        raise ValueError(f"{quote_text(name)} exists already: name another file, or replace it with --force")


def check_folder(option: str, name: str) -> None:
    """ValueError for a file whose folder is not there, or cannot be written to, and for what is a folder itself."""
    try:
        if stat.S_ISDIR(os.stat(name).st_mode):
            raise ValueError(f"{option} {quote_text(name)} is a folder: a file is needed")
    except FileNotFoundError:  # nothing yet
        pass
    except OSError as error:  # a link to itself, a name that is too long
        raise ValueError(f"{option} {quote_text(name)}: {error.strerror}") from None
    folder = Path(os.path.realpath(name) if os.path.islink(name) else name).parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ValueError(f"{option} {quote_text(name)}: there is no folder {quote_text(folder)} that can be written to")


def _is_step_summary(kind: str, name: str) -> bool:
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
            text = escape_controls(text_of(kind)) if kind == "md" else text_of(kind)
            if name == "-":
                stream = data_stream(f"--{kind} -")
                stream.write(text)
                stream.flush()
            else:
                atomic_write(Path(name), text)
        except OSError as error:
            where = "the standard output" if name == "-" else quote_text(name)
            sys.stderr.write(f"bwprof: error: results cannot be written to {where}: {error.strerror or error}\n")
        else:
            written.add(kind)
    return written


def rescue(kind: str, text: str) -> None:
    """What could not be written, on standard error."""
    sys.stderr.write(f"bwprof: what was measured follows as {kind.upper()}, so that it is not lost:\n")
    sys.stderr.write(text)


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
        targets = choose_run_targets(parsed, run_id)
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


def choose_run_targets(parsed: argparse.Namespace, run_id: str, *, folder: Path | None = None) -> Targets:
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
        targets.csv.append(targets.folder / reader.CSV_NAME)
        targets.json.append(targets.folder / reader.JSON_NAME)
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


def print_paths(targets: Targets) -> None:
    """Say where the files are."""
    if targets.folder is not None:
        sys.stderr.write(f"bwprof: results are in {format_path(targets.folder)}\n")
    for target in targets.every:
        if isinstance(target, Path) and target.parent != targets.folder:
            sys.stderr.write(f"bwprof: results are in {format_path(target)}\n")
    if targets.bundle is not None:
        sys.stderr.write(f"bwprof: the proof bundle is in {format_path(targets.bundle)}\n")


def is_file(target: Path | TextIO) -> bool:
    """Whether what was written there stays: a file, no pipe."""
    return isinstance(target, Path) and _is_file(target)


def _dash(name: str | None) -> str | None:
    """'-' for every name of the standard output (/dev/stdout, ...), where the summary must not go as well."""
    if name is None or not is_open_stream(Path(name)):
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
        if not isinstance(target, Path) or target.parent == targets.folder or not has_content(target):
            continue
        if target in targets.prometheus and _opens_with(target, export.OPENING):
            continue  # made to be replaced, again and again
        if resumed is None or not _holds(target, resumed):
            raise UnwritableError(f"{target} exists already: name another file, or replace it with --force")


def _holds(path: Path, run_id: str) -> bool:
    """True for a file of that run's results."""
    try:
        rows, _, run = reader.read_rows(path)
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
