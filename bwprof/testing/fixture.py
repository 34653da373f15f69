"""The fixture `bandwidth`: measure, and check what was measured."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bwprof import hardware, registry
from bwprof.case import Case
from bwprof.measuring.function import measure
from bwprof.results.difference import DISTURBED
from bwprof.results.row import Row
from bwprof.results.schema import FLAGS
from bwprof.roofs.given import check as check_roofs
from bwprof.runs.again import measure_again
from bwprof.runs.executors.child import ChildExecutor
from bwprof.runs.interrupts import Unasked
from bwprof.runs.progress import Progress
from bwprof.testing import asked
from bwprof.testing.asked import Asked
from bwprof.testing.device import alone_on
from bwprof.testing.session import Session
from bwprof.text import fraction, shown

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
        wanted = asked.parsed(at_least)
        if not isinstance(row, Mapping):
            raise TypeError(f"row is {shown(row)}: what bandwidth(...) returned is needed")
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
        choose = hardware.choose if isinstance(what, str) else hardware.chosen
        choice = choose(options.get("backend"), options.get("device"))
        with alone_on(choice):
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
        with alone_on(hardware.choose(options.get("backend"), options.get("device"))):
            found = _fresh(row, options)
        if isinstance(found, str):
            return self._once(what, name, options), f"measured again in this process ({found})"
        return self._named(found, name), "measured again in a fresh process"


def _fresh(row: Row, options: Mapping[str, Any]) -> Row | str:
    """The row's case once more in a process of its own; in words why there is none."""
    run: dict[str, Any] = {"max_seconds": options.get("max_seconds")}
    if "rel_ci" in options:
        run["rel_ci"] = fraction(options["rel_ci"], "rel_ci")
    with Unasked() as stops:
        (found,) = measure_again(
            [row],
            run,
            lambda backend, index: ChildExecutor(backend, index, stops),
            Progress(),
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


def _too_low(row: Row, wanted: Asked, where: str) -> str:
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
