"""One measuring run of a command: its folder, its child process, its summary, picture and exports."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import _core, hardware, registry
from bwprof.cli import output, render
from bwprof.cli.commands import results
from bwprof.cli.guard import INCOMPLETE, INTERRUPTED, OK
from bwprof.cli.options import DEFAULT_OUTPUT, read_roofs
from bwprof.cli.output import Targets
from bwprof.hardware import Choice
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import MeasuredItem
from bwprof.records import proof
from bwprof.results import csv_file, exchange, reader, schema
from bwprof.results.atomic import atomic_write
from bwprof.results.schema import RowDict
from bwprof.results.writer import Claims, Store, claim_files, release_claims
from bwprof.roofs.model import RoofsArgument
from bwprof.runs import StoppedError, metadata
from bwprof.runs.channel import Interrupts
from bwprof.runs.executors import ChildExecutor
from bwprof.runs.loop import DevicePart, Executor, RunLoop, TimeBudget
from bwprof.runs.metadata import DEVICES, Finisher, finish_nothing
from bwprof.runs.plan import Plan, drop_duplicates
from bwprof.runs.progress import SilentProgress, Timeline, choose_progress
from bwprof.text.formatting import format_path, format_seconds, plural
from bwprof.text.parsing import describe_unknown, finite_or_none, parse_names, quote_text, repr_short
from bwprof.text.terminal import make_console

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


def read_options(options: argparse.Namespace) -> None:
    """Set the `roofs_argument` of options, None where none is typed; ValueError also for a wrong --columns."""
    from bwprof.analysis.summarize import check_columns

    options.roofs_argument = read_roofs(options)
    if getattr(options, "columns", None) is not None:
        if options.quiet:
            raise ValueError("--columns says what to print, --quiet prints nothing: leave one out")
        check_columns(parse_names("--columns", options.columns))


def check(options: argparse.Namespace, targets: Targets) -> None:
    """Raise ValueError, before anything is measured, for what cannot be written at the end."""
    root = options.proof_bundle
    if root in registry.operations().names() and not os.path.isdir(root):
        raise ValueError(
            f"--proof-bundle {root} would be a folder: put operations before the option, or write ./{root}"
        )
    try:
        if root is not None:
            proof.check_root(root)
    except OSError as error:
        raise ValueError(f"{quote_text(error.filename)} cannot be written: {error.strerror}") from None
    for kind in ("classic_csv", "trace", "prometheus"):
        for target in targets.files[kind]:
            if isinstance(target, Path):
                output.check_writable(f"--{kind.replace('_', '-')}", target)


_log = logging.getLogger("bwprof.sweep")
PICTURE_NAME = "bandwidth_comparison"
_PICTURE_SECONDS = 60.0
_PICTURE_LEAST_SECONDS = 5.0  # even when --max-total-seconds is over


def show_cases(store: Store, folder: Path | None, screen: Console) -> None:
    """Print the summary of a sweep's rows, and on a terminal what limits them."""
    from bwprof.results import frame

    render.print_summary(frame.from_rows(store.rows), screen)
    if screen.is_terminal:
        results.print_answer(store.rows, folder, screen)


@dataclass(frozen=True, slots=True)
class Job:
    """What a run of a command measures, and how: its plan, the items of its cases, the executor, what it prints."""

    plan: Plan
    items: Sequence[MeasuredItem]
    command: str = "sweep"
    executor: Callable[[ChildExecutor], Executor[Any]] = lambda inner: inner
    show: Callable[[Store, Path | None, Console], None] = show_cases  # it gets the run's folder, if any
    settle: Finisher = finish_nothing
    made: Sequence[tuple[Choice, Plan]] = ()  # of a new run over several devices; plan and items are the first one's
    parts: Sequence[DevicePart[Any]] = ()  # of such a run that continues
    draws: bool = True  # a picture, in the run's folder


# From a run's folder, metadata and rows: the rows that stay, the number of rows of no case, the job that is left.
Continued = Callable[[Path, dict[str, Any], Sequence[RowDict]], tuple[Sequence[int], int, Job]]


@dataclass(frozen=True)
class _Run:
    """A run whose files are open."""

    options: argparse.Namespace
    choice: Choice
    store: Store
    targets: Targets
    job: Job

    def measure(self) -> int:
        """Measure the items, write, print; returns the exit code."""
        plan, total, started = self.job.plan, self.options.max_total_seconds, self.options.started
        limits = TimeBudget(plan.target_seconds, total, started, max_seconds=plan.max_seconds)
        timeline = Timeline() if self.targets.files["trace"] else None
        status, trouble = self._measure_items(limits, timeline)
        if trouble is not None:
            return self._rescue(trouble)
        importlib.import_module("bwprof.results.frame")  # NumPy: a signal while it is loading would break it for good
        stopped, complete = status == "interrupted", True
        try:
            try:
                with self.options.interrupts.at_once():
                    self._write_late(timeline)
                    if self.job.draws:
                        seconds = max(min(limits.left(), _PICTURE_SECONDS), _PICTURE_LEAST_SECONDS)
                        _draw(self.store, self.targets, seconds)
                    complete = self._write_bundle()
            except StoppedError:
                stopped = True
                self._write_late(timeline, interrupted=True)
        except OSError as error:
            return self._rescue(error)
        if not self.options.quiet:
            self._show(status)
        if stopped:
            return INTERRUPTED
        return OK if complete and all(row["status"] != "failed" for row in self.store.rows) else INCOMPLETE

    def _measure_items(self, limits: TimeBudget, timeline: Timeline | None) -> tuple[str, OSError | None]:
        """Measure; return the run's status, and what prevents writing."""
        status, trouble = "failed", None
        try:
            try:
                self._measure_parts(limits, timeline)
            finally:
                self.job.settle(self.store)
            status = "complete"
        except (StoppedError, KeyboardInterrupt):
            status = "interrupted"
        except OSError as error:
            trouble = error
        finally:
            try:
                self.store.finish(status)
            except OSError as error:
                trouble = error
        return status, trouble

    def _measure_parts(self, limits: TimeBudget, timeline: Timeline | None) -> None:
        parts = self.job.parts or (DevicePart(self.choice, self.job.items, self.store.run),)
        quiet = self.options.quiet
        for part in parts:
            if not quiet and (part.items or len(parts) == 1):
                device = f"{part.choice.backend}:{part.choice.index} {part.choice.name} ({part.choice.reason})"
                sys.stderr.write(f"bwprof: measuring {device}: {plural(len(part.items), 'case')}\n")
        progress: SilentProgress = choose_progress(quiet=quiet)
        if timeline is not None:
            timeline.inner, progress = progress, timeline
        options = self.options
        child = {"max_case_seconds": options.max_case_seconds, "nvtx": getattr(options, "nvtx", None), "lingers": True}

        def executor(choice: Choice) -> Executor[Any]:
            more = child | {"opening": vars(options).pop("early", None)}
            return self.job.executor(ChildExecutor(choice.backend, choice.index, options.interrupts, **more))

        roofs: RoofsArgument = options.roofs_argument or False
        on_host = any(_core.backend_facts(part.choice.backend)["runs_on_host"] for part in parts)
        if self.job.draws and self.targets.folder is not None and not on_host:
            threading.Thread(target=_import_late, daemon=True).start()
        try:
            RunLoop(self.store, limits, progress, roofs, options.recalibrate).measure_parts(parts, executor)
        finally:
            progress.end()

    def _write_late(self, timeline: Timeline | None, *, interrupted: bool = False) -> None:
        """Write the trace, and the rows for older tools and for Prometheus; OSError when they cannot be written.

        A run that a signal ended writes the trace alone, and no pipe: its reader may wait for the run's end.
        """
        texts: dict[str, Callable[[], str]] = {
            "classic_csv": lambda: csv_file.classic_text(self.store.rows),
            "prometheus": lambda: exchange.prometheus_text(self.store.rows),
            "trace": lambda: "" if timeline is None else timeline.text(self.store.run),
        }
        for kind, text in texts.items():
            targets = self.targets.files[kind]
            if interrupted:
                written = [path for path in targets if kind == "trace" and output.is_file(path)]
                self.targets.files[kind] = [path for path in targets if path in written or not isinstance(path, Path)]
                targets = written
            for target in targets:
                if isinstance(target, Path):
                    atomic_write(target, text())
                else:
                    target.write(text())
                    target.flush()

    def _write_bundle(self) -> bool:
        """Write the proof bundle, with the run's pictures; return False, and print why, when it cannot be written."""
        root, folder = self.options.proof_bundle, self.targets.folder
        if root is None:
            return True
        from bwprof.results import frame as frames

        def copy_pictures(_data: pd.DataFrame, target: Path) -> None:
            for path in sorted(folder.glob(f"{proof.PICTURE}*")) if folder is not None else ():
                shutil.copyfile(path, target / path.name)

        data = frames.from_rows(self.store.rows, self.store.run, self.store.samples)
        draw = proof.draw_picture if folder is None else copy_pictures
        try:
            self.targets.bundle = proof.write_bundle(data, str(self.store.run["run_id"]), root, force=True, draw=draw)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"bwprof: error: the proof bundle cannot be written: {error}\n")
            return False
        return True

    def _rescue(self, trouble: OSError) -> int:
        """Print where the finished rows are, or the rows themselves on standard error, when writing fails."""
        name, files = f" {trouble.filename}" if trouble.filename else "", self.targets.files
        sys.stderr.write(f"bwprof: error: results cannot be written{name}: {trouble.strerror or trouble}\n")
        if isinstance(trouble, BrokenPipeError) and any(map(output.is_file, (*files["csv"], *files["json"]))):
            sys.stderr.write(f"bwprof: the run ends here; its {len(self.store.rows)} finished rows are kept\n")
            output.print_paths(self.targets)
        else:
            sys.stderr.write("bwprof: the finished rows follow as CSV, so that they are not lost:\n")
            sys.stderr.write(self.store.rescue())
        return INCOMPLETE

    def _show(self, status: str) -> None:
        """Print the summary, or the columns of --columns, and where the files are."""
        rows, targets, columns = self.store.rows, self.targets, getattr(self.options, "columns", None)
        if rows:
            screen = make_console(sys.stderr if targets.uses_stdout else sys.stdout)
            if columns is None:
                self.job.show(self.store, targets.folder, screen)
            else:
                from bwprof.results import frame as frames

                render.print_view(frames.from_rows(rows), screen, columns=columns)
        counts = {name: sum(row["status"] == name for row in rows) for name in schema.STATUSES}
        text = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no rows"
        sys.stderr.write(f"bwprof: {status} after {format_seconds(time.monotonic() - self.options.started)}: {text}\n")
        output.print_paths(targets)
        if status == "interrupted" and targets.folder is not None:
            command = f"bwprof {self.job.command} " if self.job.command != "sweep" else ""
            sys.stderr.write(f"bwprof: go on with {command}--resume {format_path(targets.folder)}\n")


def run(options: argparse.Namespace, job: Job, choice: Choice, more: Mapping[str, Any] | None = None) -> int:
    """Measure a new run, with `more` metadata; returns the exit code."""
    run_id, targets = output.new_targets(options)
    if options.roofs_argument is None:
        options.roofs_argument = "auto"
    data = metadata.describe_run(run_id, job.plan, choice, options.argv, options.roofs_argument) | dict(more or {})
    store: Store | None = None
    try:
        with options.interrupts.at_once():  # a pipe waits for its reader
            if len(job.made) > 1:
                job = replace(job, parts=metadata.make_parts(job.made, data))
            check(options, targets)
            store = output.open_store(data, targets)
        return _Run(options, choice, store, targets, job).measure()
    # An output that cannot be written, a device that cannot be opened, a signal while waiting for a pipe.
    except (BrokenPipeError, ValueError, _core.UnavailableError, StoppedError, KeyboardInterrupt):
        if targets.folder is not None and (store is None or not store.rows):
            output.remove_folder(targets.folder)
        raise


def resume(options: argparse.Namespace, clash: Collection[str], continued: Continued) -> int:
    """Continue a run: its finished rows stay, the others are measured; returns the exit code.

    `clash` are the typed options that choose what to run, which the run's metadata already does.
    """
    if clash:
        raise ValueError(f"--resume takes its cases from the run: leave out {', '.join(clash)}")
    parent = DEFAULT_OUTPUT if options.output is None else Path(options.output)
    if parent.suffix.lower() in (".json", ".csv") and not parent.is_dir():
        raise ValueError(f"--resume writes into the run's folder: --output {parent} must be a folder")
    folder = _find_folder(options.resume, parent)
    with options.interrupts.at_once(), output.unwritable():
        claims = claim_files([folder / reader.CSV_NAME, folder / reader.JSON_NAME])
    try:  # no other process writes there from here on
        return _continue(options, folder, claims, continued)
    finally:
        release_claims(claims)


def _continue(options: argparse.Namespace, folder: Path, claims: Claims, continued: Continued) -> int:
    with options.interrupts.at_once():
        rows, samples, data = reader.read_rows(folder)
        stay, strangers, job = continued(folder, data, rows)
        choice = hardware.choose_device(data["backend"], data["device_index"])
        if options.roofs_argument is None:
            try:
                options.roofs_argument = metadata.read_roofs_argument(data)
            except ValueError as error:
                raise ValueError(f"{folder} cannot be resumed: {error}") from None
        data |= metadata.describe_roofs(options.roofs_argument)
    for now, before in [(part.choice, part.run) for part in job.parts] or [(choice, data)]:
        if now.name != before.get("device"):
            _log.warning("the run began on %s and goes on on %s", before.get("device"), now.name)
    if strangers:
        _log.warning("%s: rows that belong to no case of its plan stay as they are: %d", folder, strangers)
    earlier = data["resumed"] if isinstance(data.get("resumed"), list) else []
    data["resumed"] = [*earlier, {"argv": options.argv, "kept_rows": len(stay), "device": choice.name}]
    targets = output.choose_run_targets(options, data["run_id"], folder=folder)
    with options.interrupts.at_once():
        check(options, targets)
        finished = {"rows": [rows[index] for index in stay], "samples": [samples[index] for index in stay]}
        store = output.open_store(data, targets, claims, **finished)
    return _Run(options, choice, store, targets, job).measure()


def launch(plan: Plan, choice: Choice, interrupts: Interrupts, times: int, *, nvtx: bool | None = None) -> int:
    """Launch each case so many times in this process, untimed; returns the exit code."""
    code = OK
    with _core.Device(choice.backend, choice.index) as device:
        if nvtx and not device.watched:
            _log.warning("--nvtx: %s", hardware.UNWATCHED)
        for spec in drop_duplicates(plan.specs, ignore=("cache",)):  # a cold and a hot row are the same launch
            interrupts.check()
            try:
                with spec.open(device, nvtx=nvtx is not False) as case:
                    for _ in range(times):
                        interrupts.check()
                        case.launch()
                    sys.stderr.write(f"launched {spec.title} {'' if spec.variant else case.variant}".rstrip() + "\n")
            except (_core.UnsupportedError, MemoryError) as error:
                sys.stderr.write(f"skipped {spec.title}: {error}\n")
            except (RuntimeError, ValueError, OSError) as error:  # a library that is missing is a RuntimeError, too
                sys.stderr.write(f"failed {spec.title}: {error}\n")
                code = INCOMPLETE
    return code


def continue_cases(folder: Path, data: dict[str, Any], rows: Sequence[RowDict]) -> tuple[Sequence[int], int, Job]:
    """Choose the rows of a sweep that stay, and what is left to do; count the rows that belong to no case."""
    if data.get("model") is not None:
        raise ValueError(f"{folder} is the run of a model: go on with bwprof model --resume {format_path(folder)}")
    sections = data.get(DEVICES, [data])
    if DEVICES in data and not (isinstance(sections, list) and sections and all(map(metadata.is_part, sections))):
        raise ValueError(f"{folder} cannot be resumed: its {DEVICES} are {repr_short(sections)}")
    return _divide_rows(folder, data, rows, sections)


def _divide_rows(
    folder: Path, data: dict[str, Any], rows: Sequence[RowDict], sections: Sequence[dict[str, Any]]
) -> tuple[Sequence[int], int, Job]:
    """Divide the rows of a sweep among its devices' plans."""
    first = earlier_plan(folder, data)
    owned = metadata.find_owners(rows, sections)
    strays = [place for place, row in enumerate(rows) if owned[place] is None and metadata.is_finished(row)]
    stay, strangers = list(strays), len(strays)
    parts: list[DevicePart[Any]] = []
    for number, section in enumerate(sections):
        own = [place for place, owner in enumerate(owned) if owner == number]
        facts = {name: value for name, value in section.items() if value is not None}
        plan = first if section is data else earlier_plan(folder, data | facts)
        finished, missing, more = metadata.find_remaining(plan.specs, [rows[place] for place in own])
        stay += [own[place] for place in finished]
        strangers += more
        choice = hardware.choose_device(section["backend"], section["device_index"])
        parts.append(DevicePart(choice, missing, section, plan.target_seconds))
    return sorted(stay), strangers, Job(first, parts[0].items, parts=parts if len(parts) > 1 else ())


def earlier_plan(folder: Path, data: dict[str, Any]) -> Plan:
    """Read the plan in a run's metadata; ValueError when it is not one that this bwprof can run."""
    if not data.get("plan"):
        raise ValueError(f"{folder} cannot be resumed: it has no plan (a {reader.JSON_NAME} that bwprof sweep wrote)")
    for name, kind in {"plan": list, "run_id": str, "backend": str, "device_index": int}.items():
        if not isinstance(data.get(name), kind) or isinstance(data[name], bool):
            raise ValueError(f"{folder} cannot be resumed: its {name} is {repr_short(data.get(name))}")
    specs = []
    for number, spec in enumerate(data["plan"], start=1):
        try:
            specs.append(Spec.checked(spec, data["backend"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder} cannot be resumed: case {number} of its plan: {error}") from None
    suite = data.get("suite") if isinstance(data.get("suite"), str) else None
    target, most = (finite_or_none(data.get(name)) for name in ("target_seconds", "max_seconds"))
    most = None if most is None or most < 0 else most
    return Plan(tuple(specs), suite, target if target and target > 0 else None, most)


def _find_folder(name: str, parent: Path) -> Path:
    for candidate in (Path(name), parent / name):
        if candidate.is_dir():
            return reader.find_run(candidate)
    known = [path.name for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
    raise ValueError(describe_unknown("run", name, sorted(known)[-8:], where=f"--resume, in {parent}"))


def _import_late() -> None:
    """Import what the end of a run needs while a GPU opens and measures."""
    sys.setswitchinterval(2e-4)  # s: importing hardly delays the thread that receives rows
    with suppress(Exception):  # who draws says what is wrong
        for name in ("bwprof.plot.bars", "matplotlib.figure", "matplotlib.backends.backend_svg"):
            importlib.import_module(name)


def _draw(store: Store, targets: Targets, seconds: float) -> None:
    """Draw a picture for each device in the run's folder; without matplotlib or a measured row there is none."""
    if targets.folder is None or not any(row["status"] == "ok" for row in store.rows):
        return
    try:
        from bwprof.plot import bars
        from bwprof.results import frame as frames

        with warnings.catch_warnings(), _time_limit(seconds):
            warnings.simplefilter("ignore")  # a letter that the font lacks
            for name, rows, run in _pictures(store):
                bars.save(frames.from_rows(rows, run), targets.folder / name)
    except (StoppedError, KeyboardInterrupt):
        raise
    except ImportError as error:
        _log.warning("no picture: %s", error)
    except Exception as error:  # the rows are written, and the summary follows
        _log.warning("the picture could not be drawn: %s", str(error) or type(error).__name__)


def _pictures(store: Store) -> Iterator[tuple[str, Sequence[RowDict], dict[str, Any]]]:
    """List the name of each device's picture, its rows, and its run."""
    sections = store.run.get(DEVICES)
    if sections is None:
        yield PICTURE_NAME, store.rows, store.run
        return
    owned = metadata.find_owners(store.rows, sections)
    for number, section in enumerate(sections):
        rows = [row for row, owner in zip(store.rows, owned, strict=True) if owner == number]
        if any(row["status"] == "ok" for row in rows):
            yield f"{PICTURE_NAME}_{section['backend']}{section['device_index']}", rows, store.run | section


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block when it takes longer."""

    def over(_number: int, _frame: object) -> None:
        raise TimeoutError(f"it was not finished within {seconds:.3g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
