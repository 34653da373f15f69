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
from bwprof.results.columns import FLAGS
from bwprof.results.pairs import DISTURBED
from bwprof.results.row import Row
from bwprof.roofs.model import check_roofs
from bwprof.runs.child import ChildExecutor
from bwprof.runs.interrupts import NoInterrupts
from bwprof.runs.progress import SilentProgress
from bwprof.runs.remeasure import measure_again
from bwprof.text.parsing import describe_unknown, finite_or_none, number_or_nan, parse_fraction, quote_text, repr_short

SHARES = ("attainable", "ceiling", "limit", "peak", "roofline")

_FORM = re.compile(r"\s*([0-9.eE+]+)\s*(%|[A-Za-z]+/s)\s*([A-Za-z]*)\s*")

_UNITS = {"gb/s": 1.0, "tb/s": 1e3}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A column, and the least that it should be."""

    column: str
    least: float
    said: str

    def measured(self, row: Mapping[str, Any]) -> float | None:
        """The row's value; None where it is not known."""
        return finite_or_none(row.get(self.column))

    def reached(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has as much."""
        found = self.measured(row)
        return found is not None and found >= self.least

    def told(self, row: Mapping[str, Any]) -> str:
        """The row's value in the words that it was asked in."""
        found, speed = self.measured(row), finite_or_none(row.get("bandwidth_gb_s"))
        gb_s = "no bandwidth" if speed is None else f"{speed:.4g} GB/s"
        if self.column == "bandwidth_gb_s":
            return gb_s
        share = self.column.removeprefix("pct_")
        return f"{gb_s}, its share of {share} is not known" if found is None else f"{found:.1f} % {share} ({gb_s})"


def parse_threshold(at_least: object) -> Threshold:
    """What `at_least` says.

    Raises
    ------
    ValueError
        For anything but a number with "GB/s" or "TB/s", or a percentage with one of `SHARES`.

    Examples
    --------
    >>> parsed("80% attainable").column, parsed("1.5 TB/s").least
    ('pct_attainable', 1500.0)
    """
    match = _FORM.fullmatch(at_least) if isinstance(at_least, str) else None
    number = finite_or_none(number_or_nan(match[1])) if match else None
    if match is None or number is None or number <= 0:
        raise ValueError(_allowed(at_least))
    unit, share = match[2].lower(), match[3].lower()
    if unit == "%":
        if share not in SHARES:
            raise ValueError(describe_unknown("share in at_least", share, SHARES) if share else _allowed(at_least))
        return Threshold(f"pct_{share}", number, f"{number:g} % {share}")
    if unit not in _UNITS or share:
        raise ValueError(_allowed(at_least))
    return Threshold("bandwidth_gb_s", number * _UNITS[unit], f"{number * _UNITS[unit]:g} GB/s")


def _allowed(given: object) -> str:
    said = f"'{quote_text(given)}'" if isinstance(given, str) else repr_short(given)
    return f"at_least is {said}: allowed are '500 GB/s', '1.5 TB/s', and '80% ' with one of {', '.join(SHARES)}"


def device_of(marks: Sequence[Any]) -> Any:
    """The device that the nearest mark names, None for what it leaves open.

    Raises
    ------
    ValueError
        For a mark with other arguments, and what names no device.
    """
    for mark in marks:
        given = {**dict(zip(("device",), mark.args, strict=False)), **mark.kwargs}
        if len(mark.args) > 1 or set(given) - {"device"}:
            raise ValueError(
                f"pytest.mark.bandwidth has {repr_short(given)}: allowed is device= alone, such as 'cuda:0'"
            )
        if given.get("device") is not None:
            hardware.parse_device(given["device"])
            return given["device"]
    return None


def explain_absence(marks: Sequence[Any]) -> str:
    """Why the marks' device cannot be used here; "" where it can."""
    device = device_of(marks)
    try:
        hardware.choose_device(None, device)
    except (_core.UnavailableError, ValueError) as error:
        return f"no device {device}: {error}" if device is not None else str(error)
    return ""


@cache
def _name(backend: str, index: int) -> str:
    """A device's, whatever number it has in this process."""
    with hardware.borrow_device(backend, index) as device:
        known = device.facts().get("uuid") or index
    return re.sub(r"[^A-Za-z0-9-]+", "-", f"{backend}-{known}")


@contextmanager
def lock_device(choice: Choice) -> Iterator[None]:
    """Nobody else who asks times on the device inside: other workers of pytest-xdist, and other sessions, wait."""
    path = Path(tempfile.gettempdir()) / f"bwprof-{os.getuid()}-{_name(choice.backend, choice.index)}.lock"
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


Again = Callable[[], tuple[Row, str]]  # the row, and where it was measured

_HOW = frozenset(inspect.signature(Case.measure).parameters) - {"self"}  # the rest says what case it is


class Bandwidth:
    """What a test gets: call it to measure, `check` to ask for a speed.

    Rows are named by the test's node id, with "#2", ... for the second and later ones, unless `case` names them: by
    that name a baseline finds them in another session.
    """

    def __init__(self, test: str, session: Session, device: Any) -> None:
        self._test, self._session, self._device = test, session, device
        self._count = 0
        self._again: dict[int, tuple[Row, Again]] = {}
        self._measured: list[Row] = []
        self.slower: list[str] = []  # than the baseline, in words

    def __call__(self, what: str | Callable[..., object], /, *, case: str | None = None, **options: Any) -> Row:
        """Measure an operation or a function; nobody else who uses this fixture times on the device meanwhile.

        Parameters
        ----------
        what : str or callable
            An operation, with the options of `bwprof.Case` and its `measure`; a function, with those of
            `bwprof.measure`. `roofs` is "auto" when left out: measured, where none are stored that hold.
        case : str, optional
            The row's name; the test's node id when left out.

        Returns
        -------
        Row
            As those give it.

        Raises
        ------
        ValueError, TypeError, RuntimeError, bwprof.errors.UnavailableError
            As those do.
        """
        if self._device is not None and options.get("device") is None and options.get("backend") is None:
            options["device"] = self._device
        self._count += 1
        name = case or (self._test if self._count == 1 else f"{self._test} #{self._count}")

        row = self._once(what, name, options)

        def again() -> tuple[Row, str]:
            return self._once_more(row, what, name, options)

        self._again[id(row)] = row, again
        self._measured.append(row)
        # A second time in this process is no second try: what processes differ in, where their arrays lie say, stays.
        said = self._session.hold(row, again, tries=2 if isinstance(what, str) else 1)
        if said:
            self.slower.append(said)
        return row

    def check(self, row: Row, at_least: str) -> Row:
        """Fail the test unless the row reaches what is asked for.

        One that falls short is measured once more, an operation in a fresh process, a function in this one; then the
        better one counts.

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
            The one that counts.

        Raises
        ------
        ValueError
            When `at_least` says something else.
        """
        __tracebackhide__ = True  # the test's line is what a reader wants
        wanted = parse_threshold(at_least)
        if not isinstance(row, Mapping):
            raise TypeError(f"row is {repr_short(row)}: what bandwidth(...) returned is needed")
        if wanted.reached(row):
            return row
        known, again = self._again.get(id(row), (None, None))
        where = ""
        if known is row and again is not None and wanted.measured(row) is not None:
            second, where = again()
            if (wanted.measured(second) or 0.0) >= (wanted.measured(row) or 0.0):
                self._measured = [second if one is row else one for one in self._measured]
                self._again[id(second)] = second, again
                row = second
        if not wanted.reached(row):
            pytest.fail(_too_low(row, wanted, where))
        return row

    def taken(self) -> str:
        """The rows since it was last asked, with what is known of them, as text."""
        rows, self._measured = self._measured, []
        return self._session.told(rows)

    def forget(self) -> None:
        """After the test: what was measured may hold much memory."""
        self._again.clear()

    def _once(self, what: str | Callable[..., object], name: str, options: Mapping[str, Any]) -> Row:
        choose = hardware.choose_device if isinstance(what, str) else hardware.choose_current
        choice = choose(options.get("backend"), options.get("device"))
        with lock_device(choice):
            roofs = self._session.roofs(choice, str(options.get("cache", "cold")))
            row = _row(what, {"roofs": roofs, **options})
            missing = "roofs" not in options and roofs != "auto" and _lacks_roofs(row)  # those of fewer threads, say
            if missing and self._session.may_lack_roofs():
                row = _row(what, {"roofs": "auto", **options})
                self._session.may_lack_roofs(found=not _lacks_roofs(row))
        return self._named(row, name)

    def _named(self, row: Row, name: str) -> Row:
        row["case"], row["run_id"] = registry.case_name(name, row["kv_lens"]), self._session.run_id
        return row

    def _once_more(
        self, row: Row, what: str | Callable[..., object], name: str, options: Mapping[str, Any]
    ) -> tuple[Row, str]:
        """A second measurement, and where: processes wander, and a new one is no fault of the case's."""
        if not isinstance(what, str):
            return self._once(what, name, options), "measured again in this process, where the function is"
        with lock_device(hardware.choose_device(options.get("backend"), options.get("device"))):
            found = _fresh(row, options)
        if isinstance(found, str):
            return self._once(what, name, options), f"measured again in this process ({found})"
        return self._named(found, name), "measured again in a fresh process"


def _fresh(row: Row, options: Mapping[str, Any]) -> Row | str:
    """The row's case once more in a process of its own; in words why there is none."""
    run: dict[str, Any] = {"max_seconds": options.get("max_seconds")}
    if "rel_ci" in options:
        run["rel_ci"] = parse_fraction(options["rel_ci"], "rel_ci")
    with NoInterrupts() as stops:
        (found,) = measure_again(
            [row],
            run,
            lambda backend, index: ChildExecutor(backend, index, stops),
            SilentProgress(),
            given=check_roofs(options.get("roofs", "stored")),
        )
    if not isinstance(found, str) and found["status"] != "ok":
        return f"{found['status']}: {found['reason']}"
    return found


def _row(what: str | Callable[..., object], options: Mapping[str, Any]) -> Row:
    if not isinstance(what, str):
        return measure(what, **options)
    how = {name: value for name, value in options.items() if name in _HOW}
    with Case(what, **{name: value for name, value in options.items() if name not in _HOW}) as case:
        return case.measure(**how)


def _lacks_roofs(row: Row) -> bool:
    return row["cache"] == "cold" and row["bandwidth_gb_s"] is not None and row["pct_attainable"] is None


def _flags(row: Mapping[str, Any]) -> list[str]:
    return [flag for flag in str(row.get("flags") or "").split(";") if flag]


def _doubts(row: Mapping[str, Any]) -> list[str]:
    return [flag for flag in _flags(row) if flag in DISTURBED]


def _too_low(row: Row, wanted: Threshold, where: str) -> str:
    lines = [f"measured: {wanted.told(row)}", f"asked:    at least {wanted.said}", f"row:      {row!r}"]
    if where:
        lines.append(f"twice:    {where}; this is the better one")
    lines += [f"flag:     {flag}: {FLAGS.get(flag, 'a reason to doubt the row')}" for flag in _flags(row)]
    if row.get("reason"):
        lines.append(f"reason:   {row['reason']}")
    if wanted.measured(row) is None:
        lines.append(_unknown(row))
    head = "bandwidth too low"
    if _doubts(row):
        often = "both times" if where else "when it was measured"
        head = f"bandwidth too low, but the measurement was disturbed ({', '.join(_doubts(row))}) {often}"
        lines.append("Others used the device or held its clock down: this does not say that the code is slow.")
        lines.append("Run it alone (with pytest-xdist: without -n), or again.")
    return "\n".join([head, *lines])


def _unknown(row: Mapping[str, Any]) -> str:
    if row.get("bandwidth_gb_s") is None:
        return "Without bytes_read= and bytes_written= a function has no bandwidth."
    if row.get("cache") == "hot":
        return "A hot row's bytes come out of a cache: it is not held against memory. Ask for GB/s."
    return "The row has no roofs: leave out roofs=, or pass roofs='auto'."
