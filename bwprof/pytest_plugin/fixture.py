"""The fixture `bandwidth`: measure on a marked test's device, check thresholds, and compare with a baseline."""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import pytest

from bwprof import _core, hardware, registry
from bwprof.case import Case
from bwprof.environment import new_run_id
from bwprof.hardware import Choice
from bwprof.measuring.function import measure
from bwprof.records import baselines
from bwprof.records.keys import case_key, portable_names
from bwprof.records.regression.comparison import compare_sources, parse_fail_on
from bwprof.records.regression.report import describe_undecided, format_change
from bwprof.records.regression.verdicts import FASTER, SAME, SLOWER
from bwprof.records.source import describe_disturbed, load_source, make_source, save_baseline
from bwprof.results.pairs import DISTURBED, split_flags
from bwprof.results.row import Row
from bwprof.results.schema import FLAGS
from bwprof.roofs.model import check_roofs
from bwprof.runs.channel import NoInterrupts
from bwprof.runs.executors import ChildExecutor
from bwprof.runs.progress import SilentProgress
from bwprof.runs.remeasure import measure_again
from bwprof.text.formatting import format_path, plural
from bwprof.text.parsing import check_known, finite_or_none, number_or_nan, parse_fraction, quote_text, repr_short

SHARES = ("attainable", "ceiling", "limit", "peak", "roofline")
_FORM = re.compile(r"\s*([0-9.e+]+)\s*(?:([gt]b/s)|%\s*([a-z]+))\s*")
_UNITS = {"gb/s": 1.0, "tb/s": 1e3}
_MEASURE_OPTIONS = frozenset(inspect.signature(Case.measure).parameters) - {"self"}  # the others define the case
_NUMBERS = {"time ms": ("time_ms", ".4g"), "GB/s": ("bandwidth_gb_s", ".4g"), "% attainable": ("pct_attainable", ".1f")}
Retry = Callable[[], tuple[Row, str]]  # returns the row, and where it was measured


@dataclass(frozen=True, slots=True)
class Threshold:
    """A column, and its required minimum."""

    column: str
    least: float
    text: str

    def value(self, row: Mapping[str, Any]) -> float | None:
        """Return the row's value; None where it is unknown."""
        return finite_or_none(row.get(self.column))

    def is_reached(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row reaches the minimum."""
        return (self.value(row) or 0.0) >= self.least

    def describe(self, row: Mapping[str, Any]) -> str:
        """Describe the row's value in the threshold's unit."""
        value, rate = self.value(row), finite_or_none(row.get("bandwidth_gb_s"))
        gb_s = "no bandwidth" if rate is None else f"{rate:.4g} GB/s"
        if self.column == "bandwidth_gb_s":
            return gb_s
        share = self.column.removeprefix("pct_")
        return f"{gb_s}, its share of {share} is not known" if value is None else f"{value:.1f} % {share} ({gb_s})"


def parse_threshold(at_least: object) -> Threshold:
    """Parse `at_least`: a number with "GB/s" or "TB/s", or a percentage with one of `SHARES`.

    Examples
    --------
    >>> parse_threshold("80% attainable").column, parse_threshold("1.5 TB/s").least
    ('pct_attainable', 1500.0)
    """
    match = _FORM.fullmatch(at_least.lower()) if isinstance(at_least, str) else None
    number = finite_or_none(number_or_nan(match[1])) if match else None
    if match is None or number is None or number <= 0:
        raise ValueError(
            f"at_least is {repr_short(at_least)}: allowed are '500 GB/s', '1.5 TB/s', and '80% ' with one of "
            f"{', '.join(SHARES)}"
        )
    if match[2]:
        gb_s = number * _UNITS[match[2]]
        return Threshold("bandwidth_gb_s", gb_s, f"{gb_s:g} GB/s")
    check_known("share in at_least", match[3], SHARES)
    return Threshold(f"pct_{match[3]}", number, f"{number:g} % {match[3]}")


def device_of(marks: Sequence[Any]) -> Any:
    """Return the device that the nearest mark names; None where none does."""
    for mark in marks:
        options = {**dict(zip(("device",), mark.args, strict=False)), **mark.kwargs}
        if len(mark.args) > 1 or set(options) - {"device"}:
            text = repr_short(options)
            raise ValueError(f"pytest.mark.bandwidth has {text}: allowed is device= alone, such as 'cuda:0'")
        if options.get("device") is not None:
            hardware.parse_device(options["device"])
            return options["device"]
    return None


def explain_absence(marks: Sequence[Any]) -> str:
    """Return why the marks' device is unavailable; "" where it is available."""
    device = device_of(marks)
    try:
        hardware.choose_device(None, device)
    except (_core.UnavailableError, ValueError) as error:
        return f"no device {device}: {error}" if device is not None else str(error)
    return ""


@cache
def _lock_name(backend: str, index: int) -> str:
    with hardware.borrow_device(backend, index) as device:
        name = f"{backend}-{device.facts().get('uuid') or index}"
    return f"bwprof-{os.getuid()}-{re.sub(r'[^A-Za-z0-9-]+', '-', name)}.lock"


@contextmanager
def lock_device(choice: Choice) -> Iterator[None]:
    """Lock a device against other workers of pytest-xdist, and other sessions of this user."""
    path = Path(tempfile.gettempdir()) / _lock_name(choice.backend, choice.index)
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


class Bandwidth:
    """The fixture's value: call it to measure, `check` to require a speed."""

    def __init__(self, test: str, session: Session, device: Any) -> None:
        self._test, self._session, self._device = test, session, device
        self._count = 0
        self._retries: dict[int, tuple[Row, Retry]] = {}
        self._rows: list[Row] = []
        self.slower: list[str] = []  # descriptions of rows that fail the baseline's gate

    def __call__(self, what: str | Callable[..., object], /, *, case: str | None = None, **options: Any) -> Row:
        """Measure an operation or a function, while the device is locked against other users of this fixture.

        Parameters
        ----------
        what : str or callable
            An operation, with the options of `bwprof.Case` and its `measure`; a function, with those of
            `bwprof.measure`. `roofs` is "auto" by default: measured, where no valid ones are stored.
        case : str, optional
            The row's name, by which baselines find it; by default the test's node id, with "#2" from the second on.

        Returns
        -------
        Row
            As `bwprof.Case.measure` and `bwprof.measure` return it; they raise the errors, too.
        """
        if self._device is not None and options.get("device") is None and options.get("backend") is None:
            options["device"] = self._device
        self._count += 1
        name = case or (self._test if self._count == 1 else f"{self._test} #{self._count}")
        row = self._measure(what, name, options)

        def retry() -> tuple[Row, str]:
            return self._measure_again(row, what, name, options)

        self._retries[id(row)] = row, retry
        self._rows.append(row)
        # A function's second try runs in this process, and repeats what differs between processes, as addresses do.
        failure = self._session.check_row(row, retry, tries=2 if isinstance(what, str) else 1)
        if failure:
            self.slower.append(failure)
        return row

    def check(self, row: Row, at_least: str) -> Row:
        """Fail the test unless the row reaches a threshold.

        A row below it is measured once more, an operation in a fresh process, a function in this one.

        Parameters
        ----------
        row : Row
            From this fixture, `bwprof.measure` or another.
        at_least : str
            "500 GB/s", "1.5 TB/s", or a share: "80% attainable", "70% peak", "60% limit" (of the nearer roof), "50%
            ceiling", "40% roofline"; ValueError for another.

        Returns
        -------
        Row
            The better row.
        """
        __tracebackhide__ = True  # show the test's line
        threshold = parse_threshold(at_least)
        if not isinstance(row, Mapping):
            raise TypeError(f"row is {repr_short(row)}: what bandwidth(...) returned is needed")
        known, retry = self._retries.get(id(row), (None, None))
        where = ""
        if not threshold.is_reached(row) and known is row and retry is not None and threshold.value(row) is not None:
            second, where = retry()
            if (threshold.value(second) or 0.0) >= (threshold.value(row) or 0.0):
                self._rows = [second if one is row else one for one in self._rows]
                self._retries[id(second)] = second, retry
                row = second
        if not threshold.is_reached(row):
            pytest.fail(_describe_failure(row, threshold, where))
        return row

    def take_rows(self) -> str:
        """Return the rows since the last call, as text."""
        rows, self._rows = self._rows, []
        return self._session.encode_rows(rows)

    def forget(self) -> None:
        """Release functions and rows after the test: they may hold much memory."""
        self._retries.clear()

    def _measure(self, what: str | Callable[..., object], name: str, options: Mapping[str, Any]) -> Row:
        choose = hardware.choose_device if isinstance(what, str) else hardware.choose_current
        choice = choose(options.get("backend"), options.get("device"))
        with lock_device(choice):
            roofs = self._session.roofs(choice, str(options.get("cache", "cold")))
            row = _row(what, {"roofs": roofs, **options})
            missing = "roofs" not in options and roofs != "auto" and _lacks_roofs(row)  # those of fewer threads, say
            if missing and not self._session.roofs_missing:
                row = _row(what, {"roofs": "auto", **options})
                self._session.roofs_missing = _lacks_roofs(row)
        return self._set_name(row, name)

    def _set_name(self, row: Row, name: str) -> Row:
        row["case"], row["run_id"] = registry.case_name(name, row["kv_lens"]), self._session.run_id
        return row

    def _measure_again(
        self, row: Row, what: str | Callable[..., object], name: str, options: Mapping[str, Any]
    ) -> tuple[Row, str]:
        if not isinstance(what, str):
            return self._measure(what, name, options), "measured again in this process, where the function is"
        with lock_device(hardware.choose_device(options.get("backend"), options.get("device"))):
            second = _fresh(row, options)
        if isinstance(second, str):
            return self._measure(what, name, options), f"measured again in this process ({second})"
        return self._set_name(second, name), "measured again in a fresh process"


def _fresh(row: Row, options: Mapping[str, Any]) -> Row | str:
    """Measure the row's case in a fresh process; return why where that fails."""
    run: dict[str, Any] = {"max_seconds": options.get("max_seconds")}
    if "rel_ci" in options:
        run["rel_ci"] = parse_fraction(options["rel_ci"], "rel_ci")
    roofs = check_roofs(options.get("roofs", "stored"))
    with NoInterrupts() as stops:
        executor = partial(ChildExecutor, interrupts=stops)
        (second,) = measure_again([row], run, executor, SilentProgress(), roofs=roofs)
    if not isinstance(second, str) and second["status"] != "ok":
        return f"{second['status']}: {second['reason']}"
    return second


def _row(what: str | Callable[..., object], options: Mapping[str, Any]) -> Row:
    if not isinstance(what, str):
        return measure(what, **options)
    how = {name: value for name, value in options.items() if name in _MEASURE_OPTIONS}
    with Case(what, **{name: value for name, value in options.items() if name not in how}) as case:
        return case.measure(**how)


def _lacks_roofs(row: Row) -> bool:
    return row["cache"] == "cold" and row["bandwidth_gb_s"] is not None and row["pct_attainable"] is None


def _describe_failure(row: Row, threshold: Threshold, where: str) -> str:
    flags = [flag for flag in split_flags(row) if flag]
    disturbed = ", ".join(flag for flag in flags if flag in DISTURBED)
    lines = ["bandwidth too low", f"measured: {threshold.describe(row)}", f"required: at least {threshold.text}"]
    lines += [f"row:      {row!r}"]
    lines += [f"retry:    {where}; this is the better one"] if where else []
    lines += [f"flag:     {flag}: {FLAGS.get(flag, 'a reason to doubt the row')}" for flag in flags]
    lines += [f"reason:   {row['reason']}"] if row.get("reason") else []
    if threshold.value(row) is None and row.get("bandwidth_gb_s") is None:
        lines.append("Without bytes_read= and bytes_written= a function has no bandwidth.")
    elif threshold.value(row) is None:
        lines.append("The row has no roofs: leave out roofs=, or pass roofs='auto'; a hot row has none: require GB/s.")
    if disturbed:
        lines[0] += f", but the measurement was disturbed ({disturbed}){' both times' if where else ''}"
        lines.append("This does not say that the code is slow: run it alone (with pytest-xdist: without -n), or again.")
    return "\n".join(lines)


class Session:
    """One process's part of a session: each worker of pytest-xdist has its own, and the main process gets all rows."""

    def __init__(
        self, *, here: Path, baseline: str | None, fail_on: str | None, save: str | None, force: bool, dir: str | None
    ) -> None:
        """Check the options; raise OSError or ValueError for a wrong one."""
        self.run_id = new_run_id()
        self.roofs_missing = False  # measuring roofs did not help a row without them
        self._folder = here / (baselines.FOLDER if dir is None else dir)
        self._fail_on = parse_fail_on(fail_on, "--bwprof-fail-on")
        if fail_on is not None and baseline is None:
            raise ValueError("--bwprof-fail-on needs what to compare with: --bwprof-baseline NAME")
        self._base = None if baseline is None else load_source(baseline, folder=self._folder)
        self._save, self._force = save, force
        if save is not None and os.path.lexists(baselines.baseline_path(save, self._folder)) and not force:
            raise ValueError(f"--bwprof-save: there is a baseline '{save}' already; --bwprof-force replaces it")
        self._devices: set[tuple[str, int, str]] = set()
        self._verdicts: dict[object, dict[str, str]] = {}
        self._rows: dict[object, dict[str, Any]] = {}
        self._notes: list[str] = []

    def roofs(self, choice: Choice, cache: str) -> Literal["auto", "stored"]:
        """Return "auto" once a device, then "stored": roofs are checked once a session."""
        device = (choice.backend, choice.index, cache)
        if device in self._devices:
            return "stored"
        self._devices.add(device)
        return "auto"

    def check_row(self, row: Row, retry: Callable[[], tuple[Row, str]], *, tries: int) -> str:
        """Compare a row with the baseline; return a description if it fails the gate, else "".

        The row replaces the baseline's own in a comparison of all rows, which share the chance of a false alarm. One
        that would fail is measured once more by `retry`, and both must agree; `tries`: in how many processes.
        """
        if self._base is None:
            return ""
        base, names = self._base, portable_names()
        name = _find_name({str(entry["case"]) for entry in base.rows}, str(row["case"]))
        tested = {**row, "case": name}
        others = [entry for entry in base.rows if case_key(entry, names) != case_key(tested, names)]
        samples = [*[None] * len(others), list(row.samples_ns)]
        comparison = compare_sources(base, make_source("this session", [*others, tested], samples), tries=tries)
        place = next(n for n, line in enumerate(comparison.lines) if line.pair.new is tested)
        doubted, where = comparison.lines[place].is_doubted(self._fail_on), ""
        if doubted:
            second, where = retry()
            comparison = comparison.after_second_try({place: Row({**second, "case": name}, second.samples_ns)})
        line = comparison.lines[place]
        change = f"{format_change(line)} " if line.is_tested else ""
        verdict = line.verdict.replace("_", " ")
        outcome = self._verdicts[case_key(row)] = {"verdict": f"{change}{verdict}"}
        if line.verdict not in (SLOWER, FASTER, SAME):
            outcome["unjudged"] = f"{verdict}: {line.reason}"
        if line.is_undecided(self._fail_on):
            outcome["undecided"] = describe_undecided(comparison, [place])
        if not doubted or not line.fails(self._fail_on):
            return ""
        head = f"{line.verdict} than baseline '{base.name}': {row['case']}: {change.strip()}"
        return "\n  ".join([head, *filter(None, (comparison.cause(place), line.reason, where))])

    def encode_rows(self, rows: Sequence[Row]) -> str:
        """Return rows as text, which a report carries; "" for none."""
        documents = []
        for row in rows:
            samples = row.samples_ns if self._save else None
            documents.append({"row": dict(row), "samples": samples, **self._verdicts.get(case_key(row), {})})
        return json.dumps(documents, default=str) if documents else ""

    def add(self, text: str) -> None:
        """Add the rows that a report carries; those of a repeated test replace earlier ones."""
        for document in json.loads(text):
            self._rows[case_key(document["row"])] = document

    def finish(self, exit_status: int) -> bool:
        """Judge the gate and save the baseline, once all rows are there; False where either fails."""
        judged = self._judge()
        return (self._save is None or self._write(self._save, exit_status)) and judged

    def _judge(self) -> bool:
        if self._base is None or not self._rows:
            return True
        rows = self._rows.values()
        reasons = Counter(row["unjudged"] for row in rows if row.get("unjudged"))
        self._notes += [f"{count} of {len(rows)} rows {reason}" for reason, count in reasons.items()]
        failures = [row["undecided"] for row in rows if row.get("undecided")]
        if not failures and self._fail_on != "never" and reasons.total() == len(rows):
            failures = [f"baseline '{self._base.name}' could judge none of the rows"]
        self._notes += [f"--bwprof-fail-on failed: {failure}" for failure in failures]
        return not failures

    def _write(self, name: str, exit_status: int) -> bool:
        rows = list(self._rows.values())
        if exit_status:
            self._notes.append(f"baseline '{name}' was not saved: the session failed")
            return True
        source = make_source("session", [entry["row"] for entry in rows], [entry["samples"] for entry in rows])
        try:
            if not rows:
                raise ValueError("no test measured anything with the fixture 'bandwidth'")
            path = save_baseline(name, source, folder=self._folder, force=self._force)
        except (OSError, ValueError) as error:
            self._notes.append(f"baseline '{name}' was not saved: {error}")
            return False
        self._notes.append(f"baseline '{name}' ({plural(len(rows), 'case')}) is in {format_path(path)}")
        self._notes += filter(None, [describe_disturbed(name, source.rows)])
        return True

    def lines(self) -> list[str]:
        """Return the summary: a table of the rows, and notes; nothing for a session without either."""
        import pandas as pd

        names, records = [], []
        for entry in self._rows.values():
            row = entry["row"]
            names.append(quote_text(row.get("case") or ""))
            record = {"precision": row.get("precision") or ""}
            for title, (name, form) in _NUMBERS.items():
                record[title] = "-" if row.get(name) is None else format(row[name], form)
            more = {} if self._base is None else {"baseline": entry.get("verdict", "")}
            records.append(record | more | {"flags": row.get("flags") or ""})
        table = pd.DataFrame(records, index=names).to_string().splitlines() if records else []
        return [*(line.rstrip() for line in table), *self._notes]


def _find_name(known: set[str], case: str) -> str:
    """Return a test's name in a baseline; the id's end identifies it, as it begins at pytest's root folder."""
    alike = [name for name in known if name.endswith(f"/{case}") or case.endswith(f"/{name}")]
    return alike[0] if case not in known and len(alike) == 1 else case
