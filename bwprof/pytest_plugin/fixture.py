"""The fixture `bandwidth`: measure on a marked test's device, and check thresholds like "80% attainable"."""

from __future__ import annotations

import fcntl
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bwprof import _core, hardware, registry
from bwprof.case import Case
from bwprof.hardware import Choice
from bwprof.measuring.function import measure
from bwprof.pytest_plugin.session import Session
from bwprof.results.pairs import DISTURBED, split_flags
from bwprof.results.row import Row
from bwprof.results.schema import FLAGS
from bwprof.roofs.model import check_roofs
from bwprof.runs.channel import NoInterrupts
from bwprof.runs.child import ChildExecutor
from bwprof.runs.progress import SilentProgress
from bwprof.runs.remeasure import measure_again
from bwprof.text.parsing import describe_unknown, finite_or_none, number_or_nan, parse_fraction, quote_text, repr_short

SHARES = ("attainable", "ceiling", "limit", "peak", "roofline")
_FORM = re.compile(r"\s*([0-9.eE+]+)\s*(%|[A-Za-z]+/s)\s*([A-Za-z]*)\s*")
_UNITS = {"gb/s": 1.0, "tb/s": 1e3}
_MEASURE_OPTIONS = frozenset(inspect.signature(Case.measure).parameters) - {"self"}  # the others define the case
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
        value = self.value(row)
        return value is not None and value >= self.least

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
    match = _FORM.fullmatch(at_least) if isinstance(at_least, str) else None
    number = finite_or_none(number_or_nan(match[1])) if match else None
    unit, share = (match[2].lower(), match[3].lower()) if match else ("", "")
    if number is not None and number > 0:
        if unit == "%" and share in SHARES:
            return Threshold(f"pct_{share}", number, f"{number:g} % {share}")
        if unit == "%" and share:
            raise ValueError(describe_unknown("share in at_least", share, SHARES))
        if unit in _UNITS and not share:
            return Threshold("bandwidth_gb_s", number * _UNITS[unit], f"{number * _UNITS[unit]:g} GB/s")
    text = f"'{quote_text(at_least)}'" if isinstance(at_least, str) else repr_short(at_least)
    raise ValueError(
        f"at_least is {text}: allowed are '500 GB/s', '1.5 TB/s', and '80% ' with one of {', '.join(SHARES)}"
    )


def device_of(marks: Sequence[Any]) -> Any:
    """Return the device that the nearest mark names; None where none does."""
    for mark in marks:
        options = {**dict(zip(("device",), mark.args, strict=False)), **mark.kwargs}
        if len(mark.args) > 1 or set(options) - {"device"}:
            raise ValueError(
                f"pytest.mark.bandwidth has {repr_short(options)}: allowed is device= alone, such as 'cuda:0'"
            )
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
        name = device.facts().get("uuid") or index
    return re.sub(r"[^A-Za-z0-9-]+", "-", f"{backend}-{name}")


@contextmanager
def lock_device(choice: Choice) -> Iterator[None]:
    """Lock a device against other workers of pytest-xdist, and other sessions of this user."""
    path = Path(tempfile.gettempdir()) / f"bwprof-{os.getuid()}-{_lock_name(choice.backend, choice.index)}.lock"
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


class Bandwidth:
    """The fixture's value: call it to measure, `check` to require a speed.

    Rows have the test's node id as their name, with "#2", ... from the second on, or `case`: a baseline finds them by
    it in another session.
    """

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
            The row's name; by default the test's node id.

        Returns
        -------
        Row
            As `bwprof.Case.measure` and `bwprof.measure` return it.

        Raises
        ------
        ValueError, TypeError, RuntimeError, bwprof.errors.UnavailableError
            As those raise.
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

        A row below it is measured once more, an operation in a fresh process, a function in this one; the better row
        counts.

        Parameters
        ----------
        row : Row
            From this fixture, `bwprof.measure` or another.
        at_least : str
            "500 GB/s", "1.5 TB/s", or a share: "80% attainable", "70% peak", "60% limit" (of the nearer roof), also of
            "ceiling" and "roofline".

        Returns
        -------
        Row
            The row that counts.

        Raises
        ------
        ValueError
            For another `at_least`.
        """
        __tracebackhide__ = True  # show the test's line
        threshold = parse_threshold(at_least)
        if not isinstance(row, Mapping):
            raise TypeError(f"row is {repr_short(row)}: what bandwidth(...) returned is needed")
        if threshold.is_reached(row):
            return row
        known, retry = self._retries.get(id(row), (None, None))
        where = ""
        if known is row and retry is not None and threshold.value(row) is not None:
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
    with NoInterrupts() as stops:
        (second,) = measure_again(
            [row],
            run,
            lambda backend, index: ChildExecutor(backend, index, stops),
            SilentProgress(),
            roofs=check_roofs(options.get("roofs", "stored")),
        )
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
    lines = ["bandwidth too low", f"measured: {threshold.describe(row)}", f"required: at least {threshold.text}"]
    lines.append(f"row:      {row!r}")
    if where:
        lines.append(f"retry:    {where}; this is the better one")
    lines += [f"flag:     {flag}: {FLAGS.get(flag, 'a reason to doubt the row')}" for flag in flags]
    if row.get("reason"):
        lines.append(f"reason:   {row['reason']}")
    if threshold.value(row) is None:
        lines.append(_explain_missing(row))
    disturbed = ", ".join(flag for flag in flags if flag in DISTURBED)
    if disturbed:
        times = "both times" if where else "when it was measured"
        lines[0] = f"bandwidth too low, but the measurement was disturbed ({disturbed}) {times}"
        lines.append("Others used the device or held its clock down: this does not say that the code is slow.")
        lines.append("Run it alone (with pytest-xdist: without -n), or again.")
    return "\n".join(lines)


def _explain_missing(row: Mapping[str, Any]) -> str:
    if row.get("bandwidth_gb_s") is None:
        return "Without bytes_read= and bytes_written= a function has no bandwidth."
    if row.get("cache") == "hot":
        return "A hot row's bytes come out of a cache, so it has no share of memory's roofs. Require GB/s."
    return "The row has no roofs: leave out roofs=, or pass roofs='auto'."
