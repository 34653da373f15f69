"""Ctrl-C, SIGTERM and a closed terminal as something to ask about, not as an exception in the middle of a write."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Protocol

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """The user asked to stop."""


class InterruptSource(Protocol):
    """What may end a wait for a process: something to look at while waiting, and something to ask."""

    @property
    def wakeup_fd(self) -> int:
        """Becomes readable when there is something to ask about."""
        ...

    def check(self) -> None:
        """Raise what ends the wait."""
        ...


class NoInterrupts:
    """While entered, nothing is noted: Ctrl-C stays an exception of the caller's, wherever it comes."""

    def __enter__(self) -> NoInterrupts:
        self.wakeup_fd, self._write_fd = os.pipe()
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self.wakeup_fd, self._write_fd):
            os.close(fd)

    def check(self) -> None:
        """Nothing was noted."""


class Interrupts:
    """While entered, the first signal is only noted, `at_once` raises StoppedError; a second one KeyboardInterrupt."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._at_once = False
        self.wakeup_fd = -1
        self._write_fd = -1
        self._old_handlers: list[tuple[signal.Signals, Any]] = []
        self._old_wakeup = -1

    def __enter__(self) -> Interrupts:
        self.wakeup_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._old_wakeup = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        # nohup's wish to live on without a terminal is granted.
        wanted = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        self._old_handlers = [(number, signal.signal(number, self._note)) for number in wanted]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old_handlers:
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        for fd in (self.wakeup_fd, self._write_fd):
            with suppress(OSError):
                os.close(fd)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        if self._at_once:
            self.check()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A block that a signal ends where it is, by StoppedError: one that may wait for a pipe, or takes long."""
        before, self._at_once = self._at_once, True
        try:
            self.check()
            yield
        finally:
            self._at_once = before

    def check(self) -> None:
        """Raise StoppedError when a signal has come."""
        if self.signal is not None:
            raise StoppedError(signal.Signals(self.signal).name)
