"""Note Ctrl-C, SIGTERM and a closed terminal, so that a run ends between two writes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """The user wants to stop."""


class InterruptSource(Protocol):
    """What may end a wait for a process."""

    @property
    def wakeup_fd(self) -> int:
        """A file descriptor that becomes readable when `check` may raise."""

    def check(self) -> None:
        """Raise what ends the wait."""


class NoInterrupts:
    """While entered, handle no signal: Ctrl-C stays the caller's exception."""

    def __enter__(self) -> NoInterrupts:
        self.wakeup_fd, self._write_fd = os.pipe()
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self.wakeup_fd, self._write_fd):
            os.close(fd)

    def check(self) -> None:
        """Do nothing."""


class Interrupts:
    """While entered, note the first signal; a second one raises KeyboardInterrupt."""

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
        # nohup ignores SIGHUP: the run goes on without a terminal.
        handled = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        self._old_handlers = [(number, signal.signal(number, self._note)) for number in handled]
        return self

    def __exit__(self, *_: object) -> None:
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
        """Let a signal end the block where it is, by StoppedError: for long steps, and waits for a pipe."""
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
