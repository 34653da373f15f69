"""A run's progress in a notebook: one display that changes, however many cases there are."""

from __future__ import annotations

import importlib
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from typing import Any

from bwprof.results.schema import Row
from bwprof.runs.progress import Progress, between, describe
from bwprof.text import counted, seconds_text, spelt

_LAST_ROWS = 8  # that are shown while others are measured
_MOST_TROUBLE = 20  # rows that were not measured, which stay when the run has ended
_EVERY_SECONDS = 0.1
_LONGEST = 300  # letters of a line


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    found = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(found, "kernel")


class NotebookBar(Progress):
    """A bar, the case that runs, and the last finished ones; at the end a line, and what was not measured."""

    def __init__(self) -> None:
        shown = importlib.import_module("IPython.display")
        self._page: Any = shown.HTML
        self._begun, self._last = time.monotonic(), 0.0
        self._title, self._ahead = "starting", ""
        self._total = self._done = 0
        self._rows: deque[str] = deque(maxlen=_LAST_ROWS)
        self._trouble: list[str] = []
        self._counts: Counter[str] = Counter()
        self._ended = False
        self._handle: Any = None
        with suppress(Exception):  # as in `_show`
            self._handle = shown.display(self._page(self._html()), display_id=True)

    def stage(self, text: str) -> None:
        self._title = text
        self._show()

    def ahead(self, least: float, most: float) -> None:
        self._ahead = between(least, most)

    def begin(self, total: int) -> None:
        self._total, self._done = total, 0
        self._show()

    def case(self, title: str) -> None:
        self._title = title
        self._show()

    def row(self, row: Row, samples: Sequence[float] = ()) -> None:  # noqa: ARG002 - a line has none
        self._done += 1
        self._counts[str(row["status"])] += 1
        line = describe(row)
        self._rows.append(line)
        if row["status"] != "ok" and len(self._trouble) < _MOST_TROUBLE:
            self._trouble.append(line)
        self._show()

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._show(now=True)

    def _show(self, *, now: bool = False) -> None:
        if self._handle is not None and (now or time.monotonic() - self._last >= _EVERY_SECONDS):
            self._last = time.monotonic()
            try:
                self._handle.update(self._page(self._html()))
            except Exception:  # a front end that has gone, whatever it raises, is no reason to stop measuring
                self._handle = None

    def _html(self) -> str:
        if self._ended:
            said = ", ".join(f"{count} {status}" for status, count in self._counts.items()) or "nothing measured"
            took = seconds_text(time.monotonic() - self._begun)
            return f"<div>{counted(self._counts.total(), 'case')} in {took}: {_text(said)}</div>{_lines(self._trouble)}"
        value = f' value="{self._done}" max="{self._total}"' if self._total else ""
        told = f"{self._done}/{self._total} " if self._total else ""
        return (
            f'<div><progress{value} style="width: 20em"></progress> {told}{_text(self._title)}'
            f"{f' <small>({_text(self._ahead)})</small>' if self._ahead else ''}</div>{_lines(self._rows)}"
        )


def _lines(rows: Sequence[str] | deque[str]) -> str:
    return f"<pre>{chr(10).join(map(_text, rows))}</pre>" if rows else ""


def _text(words: str) -> str:
    """Words of any origin, as text."""
    said = spelt(words)
    return escape(said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "\u2026")
