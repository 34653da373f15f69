"""Tables on a terminal, and plain ASCII ones where there is no terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from bwprof.names import spelt

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

PLAIN_WIDTH = 118
_LEAST_WIDTH = 100  # below that the headings of a table of numbers are stacks of letters
INTERRUPTED = 130


def guarded(command: Callable[[], int], *, failed: int) -> int:
    """A command's exit code; `failed`, and a sentence, when its standard streams cannot be written.

    A reader that has gone (``| head``) is no error worth a word. Streams that were closed before the start
    (``>&-``) become the null device: a pipe opened later must not get their numbers.
    """
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors != "backslashreplace":
        sys.stdout.reconfigure(errors="backslashreplace")  # LANG=C: a letter that cannot be written stops nothing
    try:
        with _safe_streams():
            code = command()
        sys.stdout.flush()
    except KeyboardInterrupt:  # before the command could see to it, while modules are loaded
        with suppress(OSError):
            sys.stderr.write("bwprof: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        _silence(1)
        return failed
    except MemoryError:
        with suppress(OSError):
            sys.stderr.write("bwprof: error: out of memory\n")
        return failed
    except OSError as error:
        where = error.filename or "the standard output"
        _silence(1)
        with suppress(OSError):
            sys.stderr.write(spelt(f"bwprof: error: {where}: {error.strerror or error}\n"))
            sys.stderr.flush()
            return failed
        _silence(2)
        return failed
    return code


class _Tolerant:
    """A stream whose words may be lost: its disk is full, or its reader has gone."""

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


class _Spelt:
    """A stream for words of any origin: control characters are spelt out, not sent to the terminal.

    What sends them on purpose, and spells out what it is given by others, writes to `obeyed`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.obeyed = stream

    def write(self, text: str) -> int:
        return self.obeyed.write(spelt(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.obeyed, name)


@contextmanager
def _safe_streams() -> Iterator[None]:
    """Progress that nobody can read is no reason to stop measuring; a file's or an option's words are only shown.

    Data for a file or a pipe stay as they are: only a terminal obeys what is in them.
    """
    out, err = sys.stdout, sys.stderr
    sys.stderr = safe_stderr(cast("TextIO", _Tolerant(err)))
    if out.isatty():
        sys.stdout = cast("TextIO", _Spelt(out))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def safe_stderr(stream: TextIO) -> TextIO:
    """`stream` for messages: control characters in them are spelt out."""
    return cast("TextIO", _Spelt(stream))


class _ClosedStream(io.TextIOWrapper):
    """Stands for a standard stream that was closed before the start: what is written goes nowhere."""


def is_closed(stream: TextIO) -> bool:
    """True for a standard stream that was closed before the start (``>&-``): it takes words, but no data."""
    return isinstance(stream, _ClosedStream)


def check_open(option: str) -> None:
    """ValueError when the data that `option` asks for would go to a standard output that was closed."""
    if is_closed(sys.stdout):
        raise ValueError(f"{option}: the standard output is closed")


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
    """What is still buffered for a stream that cannot be written must not be complained about at exit."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)


def console(stream: TextIO) -> Console:
    """A console on a stream: colours on a terminal only (and not with NO_COLOR), a fixed width elsewhere.

    Control characters in the strings that it is given are spelt out.
    """
    from rich.console import Console

    class OurConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(spelt(text), **options)

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - called while a BrokenPipeError is handled, which `guarded` knows; not its own exit

    file = getattr(stream, "obeyed", stream)
    if stream.isatty():
        return OurConsole(file=file, highlight=False, markup=False, emoji=False)
    return OurConsole(file=file, width=PLAIN_WIDTH, highlight=False, markup=False, emoji=False, color_system=None)


def show(screen: Console, found: Table) -> None:
    """Print a table; where the screen is too narrow for its columns, as wide as it is elsewhere: words stay whole."""
    from rich.measure import Measurement

    if Measurement.get(screen, screen.options, found).minimum <= screen.width >= _LEAST_WIDTH:
        screen.print(found)
        return
    text = io.StringIO()
    console(text).print(found)
    screen.file.write(text.getvalue())


def table(screen: Console, title: str, headers: Sequence[str], *, numbers: Sequence[str] = ()) -> Table:
    """An empty table; the columns in `numbers` are aligned to the right."""
    from rich import box
    from rich.table import Table

    style = box.SIMPLE_HEAD if screen.is_terminal and not screen.legacy_windows else box.ASCII2
    result = Table(
        title=title or None,
        box=style,
        title_justify="left",
        show_edge=False,
        padding=(0, 1),
        pad_edge=False,
        collapse_padding=True,
    )
    for header in headers:
        right = header in numbers
        result.add_column(header, justify="right" if right else "left", overflow="fold", no_wrap=right)
    return result
