"""Exchange JSON lines with a child process, one request, one answer, over two pipes; note signals meanwhile.

The child's standard output is the parent's standard error, so that nothing a library prints gets into the data.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

from bwprof.runs import StoppedError
from bwprof.text.terminal import escape_stream

_log = logging.getLogger("bwprof.sweep")
_END_SECONDS = 2.0  # for the child to end by itself
_KILLED_SECONDS = 10.0  # for a killed child, whose memory is freed first
_LONGEST_WAIT = 3600.0  # a selector takes no more than some days
_FLAGS = {"-I": "isolated", "-E": "ignore_environment", "-s": "no_user_site", "-S": "no_site"}


class ChildDiedError(Exception):
    """The child process ended instead of answering; the message says how."""


class RunTimeoutError(Exception):
    """The time was over before an answer came."""


def python_flags() -> list[str]:
    """Return options for a Python child that is as isolated as this process, without its working directory."""
    return ["-P", *(option for option, name in _FLAGS.items() if getattr(sys.flags, name))]


def search_path() -> list[str]:
    """Return this process's import path."""
    return [folder for folder in sys.path if isinstance(folder, str)]


def serve(make: Callable[[Callable[[], None]], Any], request_fd: int, answer_fd: int) -> None:
    """Answer every line of `request_fd` with one line on `answer_fd`, until the parent closes its end.

    `make` makes what answers requests, by its methods answer(request) and close(); it gets a function to call now and
    then, which ends an orphaned process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    sys.stderr = escape_stream(sys.stderr)
    logging.basicConfig(stream=sys.stderr, format="bwprof: %(levelname)s: %(message)s", level=logging.WARNING)
    parent = os.getppid()

    def exit_when_orphaned() -> None:
        if os.getppid() != parent:
            os._exit(1)

    handler = make(exit_when_orphaned)
    with os.fdopen(request_fd, encoding="utf-8") as requests, os.fdopen(answer_fd, "w", encoding="utf-8") as answers:
        for line in requests:
            if not line.endswith("\n"):  # the parent ended in the middle of it
                break
            answer = json.dumps(handler.answer(json.loads(line))) + "\n"
            try:
                answers.write(answer)
                answers.flush()
            except BrokenPipeError:
                os._exit(1)  # the parent is gone
    handler.close()


class ChildProcess:
    """A process that answers JSON lines, and its two pipes."""

    def __init__(self, command: Callable[[int, int], list[str]], folder: str | None = None) -> None:
        self._buffer, self._unsent = b"", memoryview(b"")
        with ExitStack() as theirs, ExitStack() as ours:
            request_read, self._request = os.pipe()
            theirs.callback(os.close, request_read)
            ours.callback(os.close, self._request)
            self._answer, answer_write = os.pipe()
            theirs.callback(os.close, answer_write)
            ours.callback(os.close, self._answer)
            os.set_blocking(self._request, False)  # a process that does not read must not block this one
            # Its own process group: Ctrl-C goes to the command, which decides. File descriptor 2 for both outputs.
            self._process = subprocess.Popen(
                command(request_read, answer_write),
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=(request_read, answer_write),
                process_group=0,
                cwd=folder,
            )
            ours.pop_all()  # this side's ends stay open

    def ask(self, request: dict[str, Any], interrupts: InterruptSource, until: float) -> dict[str, Any]:
        """Send one line and wait for one line, until a time.monotonic(); RunTimeoutError after that."""
        self.send(request)
        return self.receive(interrupts, until)

    def send(self, request: dict[str, Any]) -> None:
        """Send as much of one line as the pipe takes now; `receive` sends the rest."""
        self._unsent = memoryview((json.dumps(request) + "\n").encode())
        with suppress(OSError):  # `receive` says what is wrong
            self._unsent = self._unsent[os.write(self._request, self._unsent) :]

    def receive(self, interrupts: InterruptSource, until: float) -> dict[str, Any]:
        """Wait for one line, as `ask` does."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer, selectors.EVENT_READ)
            selector.register(interrupts.wakeup_fd, selectors.EVENT_READ)
            if self._unsent:
                selector.register(self._request, selectors.EVENT_WRITE)
            while b"\n" not in self._buffer:
                interrupts.check()
                left = until - time.monotonic()
                ready = selector.select(max(0.0, min(left, _LONGEST_WAIT)))
                if left <= 0 and not ready:  # what lies there is read first
                    raise RunTimeoutError
                for key, _ in ready:
                    if key.fd == self._answer:
                        data = os.read(self._answer, 1 << 16)
                        if not data:
                            raise ChildDiedError(self._describe_end())
                        self._buffer += data
                    elif key.fd == self._request:
                        try:
                            self._unsent = self._unsent[os.write(self._request, self._unsent) :]
                        except BlockingIOError:
                            continue
                        except BrokenPipeError:
                            raise ChildDiedError(self._describe_end()) from None
                        if not self._unsent:
                            selector.unregister(self._request)
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _describe_end(self) -> str:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "stopped answering"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        hint = "; often the system had run out of memory" if -code == signal.SIGKILL else ""
        return f"was ended by signal {-code} ({name}{hint})"

    def end(self) -> None:
        """Close the pipes and end the process."""
        fds, self._request, self._answer = (self._request, self._answer), -1, -1  # which may soon be other files'
        for fd in fds:
            with suppress(OSError):
                os.close(fd)
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                try:
                    self._process.wait(_KILLED_SECONDS)
                except subprocess.TimeoutExpired:
                    _log.warning("process %d hangs in the driver and could not be ended", self._process.pid)
                    threading.Thread(target=self._process.wait, daemon=True).start()  # leaves no zombie if it ends


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NoInterrupts:
    """While entered, handle no signal: Ctrl-C stays the caller's exception."""

    def __enter__(self) -> NoInterrupts:
        self.wakeup_fd = os.eventfd(0)  # never readable
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.wakeup_fd)

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


InterruptSource = Interrupts | NoInterrupts
