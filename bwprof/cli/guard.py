"""Around every command: its exit codes, and standard streams that are closed, full, or left by their reader."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from bwprof import _core
from bwprof.runs import StoppedError
from bwprof.text.parsing import escape_controls, quote_text
from bwprof.text.terminal import escape_stream

# Exit codes of every command: success (skipped rows included); a gate failed; usage; a case failed or rows could not be
# written; a signal came; the reader of a pipe left (SIGPIPE of a shell).
OK, GATE_FAILED, USAGE, INCOMPLETE, INTERRUPTED, READER_GONE = 0, 1, 2, 3, 130, 141
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def guarded(command: Callable[[], int]) -> int:
    """Run a command; return its exit code, INCOMPLETE with a message when its standard streams cannot be written.

    A reader that left (``| head``) is no error. Streams that were closed before the start (``>&-``) become the null
    device: a pipe opened later must not get their numbers.
    """
    code = OK
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors != "backslashreplace":
        sys.stdout.reconfigure(errors="backslashreplace")  # LANG=C has no letters beyond ASCII
    try:
        with _signals(), _safe_streams():
            code = command()
        sys.stdout.flush()
    except KeyboardInterrupt:  # before the command handles it, while modules are loaded
        with suppress(OSError):
            sys.stderr.write("bwprof: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        _silence(1)
        return code or READER_GONE
    except MemoryError:
        with suppress(OSError):
            sys.stderr.write("bwprof: error: out of memory\n")
        return INCOMPLETE
    except OSError as error:
        _silence(1)
        with suppress(OSError):
            name = error.filename or "the standard output"
            sys.stderr.write(escape_controls(f"bwprof: error: {name}: {error.strerror or error}\n"))
            sys.stderr.flush()
            return INCOMPLETE
        _silence(2)
        return INCOMPLETE
    return code


def coded(command: Callable[[], int]) -> int:
    """Run a command; return its exit code. What it raises becomes a message and a code, the same for every command.

    Errors of the standard streams, and a full disk, are left to `guarded`.
    """
    try:
        return command()
    except (KeyboardInterrupt, StoppedError):
        sys.stderr.write("bwprof: interrupted\n")
        return INTERRUPTED
    except (ImportError, ValueError, _core.UnavailableError) as error:
        message, code = str(error), USAGE
    except RecursionError:
        message, code = "what was read is nested too deeply", USAGE
    except (RuntimeError, _core.MemoryLimitError) as error:  # a device's, or a result that is wrong
        message, code = str(error), INCOMPLETE
    except OSError as error:
        if error.errno in _FULL or (error.errno is not None and error.filename is None):
            raise
        message = str(error) if error.errno is None else f"{quote_text(error.filename)}: {error.strerror}"
        code = USAGE
    sys.stderr.write(f"bwprof: error: {message}\n")
    return code


@contextmanager
def _signals() -> Iterator[None]:
    """End a command on SIGTERM and SIGHUP as on Ctrl-C, while modules are loaded and nothing else handles them."""
    changed = []
    if threading.current_thread() is threading.main_thread():
        changed = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in changed:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


class _Tolerant:
    """A stream that ignores errors: its disk is full, or its reader left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _safe_streams() -> Iterator[None]:
    """Ignore errors of standard error, and spell out control characters on both streams; data use `data_stream`."""
    out, err = sys.stdout, sys.stderr
    sys.stderr = escape_stream(cast("TextIO", _Tolerant(err)))
    sys.stdout = escape_stream(out)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


class _ClosedStream(io.TextIOWrapper):
    """Stands for a standard stream that was closed before the start; it discards what is written."""


def is_closed(stream: TextIO) -> bool:
    """Return whether a standard stream was closed before the start (``>&-``): it takes messages, but no data."""
    return isinstance(getattr(stream, "unescaped", stream), _ClosedStream)


def data_stream(option: str = "") -> TextIO:
    """Return the standard output for the data of `option`; ValueError where it was closed.

    A file and a pipe get data as they are; on a terminal control characters are spelled out.
    """
    if option and is_closed(sys.stdout):
        raise ValueError(f"{option}: the standard output is closed")
    return sys.stdout if sys.stdout.isatty() else cast("TextIO", getattr(sys.stdout, "unescaped", sys.stdout))


def _open_missing_streams() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
    if sys.stdout is None:
        sys.stdout = _ClosedStream(io.FileIO(1, "w", closefd=False), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = _ClosedStream(io.FileIO(2, "w", closefd=False), encoding="utf-8")


def _silence(number: int) -> None:
    """Discard what a stream has buffered, so that Python does not report it at exit."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)
