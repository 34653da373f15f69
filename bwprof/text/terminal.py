"""Text and tables for a terminal, and plain ASCII tables elsewhere."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from bwprof.text.parsing import escape_controls

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

PLAIN_WIDTH = 120
_UNLIMITED = 10_000  # wider than any table
_LEAST_WIDTH = 100  # in a narrower table of numbers the headings fold into single letters
_LEAST_PROSE = 30  # characters per line of a column of sentences


class EscapingStream:
    """A stream that escapes control characters; `unescaped` is the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self.unescaped: TextIO = getattr(stream, "unescaped", stream)  # commands call each other: escape once

    def write(self, text: str) -> int:
        return self.unescaped.write(escape_controls(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


def escape_stream(stream: TextIO) -> TextIO:
    """Return a stream that escapes control characters and writes to `stream`."""
    return cast("TextIO", EscapingStream(stream))


def make_console(stream: TextIO) -> Console:
    """Return a console that escapes control characters; with colors on a terminal only, elsewhere 120 wide."""
    from rich.console import Console

    class OurConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(escape_controls(text), **options)

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - called while a BrokenPipeError is handled, for `guarded` instead of rich's exit

    file = getattr(stream, "unescaped", stream)
    if stream.isatty():
        return OurConsole(file=file, highlight=False, markup=False, emoji=False)
    return OurConsole(file=file, width=PLAIN_WIDTH, highlight=False, markup=False, emoji=False, color_system=None)


def print_fitted(screen: Console, renderable: RenderableType, spare: Sequence[str] = ()) -> None:
    """Print text or a table; leave out columns of `spare`, the first ones first, until the table fits, and name them.

    A table that is still too wide is printed in full width.
    """
    if isinstance(renderable, str):
        screen.print(renderable)
        return
    full = cast("Table", renderable)
    table, left_out = _leave_out(screen, full, spare)
    least, most = _widths(screen, table)
    texts = [column.cells for column in table.columns if column.justify != "right"]
    widths = sorted(max((len(str(cell)) for cell in cells), default=0) for cells in texts)
    saved = widths[-1] - max([_LEAST_PROSE, *widths[:-1]]) if widths else 0  # if only the widest column of text folds
    folds = least <= screen.width >= _LEAST_WIDTH or saved >= most - screen.width
    if most <= screen.width or folds:
        screen.print(table)
    else:
        text = io.StringIO()
        make_console(text).print(table)
        screen.file.write(text.getvalue())
    if left_out:
        names = ", ".join(name.replace("\n", " ") for name in left_out)
        screen.print(f"({_widths(screen, full)[1]} columns have room for {names}, too)")


def _widths(screen: Console, table: Table) -> tuple[int, int]:
    """Return the least and the full width of a table."""
    from rich.measure import Measurement

    measured = Measurement.get(screen, screen.options.update(max_width=_UNLIMITED), table)
    return measured.minimum, measured.maximum


def _leave_out(screen: Console, table: Table, spare: Sequence[str]) -> tuple[Table, Sequence[str]]:
    """Leave out as many spare columns as needed to fit the screen: the table and their headings."""
    headers = [str(column.header) for column in table.columns]
    spare = [name for name in spare if name in headers]
    for count in range(len(spare) + 1):
        narrower = _without(screen, table, spare[:count]) if spare else table
        if _widths(screen, narrower)[1] <= screen.width:
            return narrower, spare[:count]
    return table, ()


def _without(screen: Console, table: Table, names: Sequence[str]) -> Table:
    columns = [column for column in table.columns if column.header not in names]
    headers = [str(column.header) for column in columns]
    numbers = [str(column.header) for column in columns if column.justify == "right"]
    rows = zip(*(column.cells for column in columns), strict=True)
    return _filled_table(screen, str(table.title or ""), headers, rows, numbers)


def new_table(screen: Console, title: str, headers: Sequence[str], *, numbers: Sequence[str] = ()) -> Table:
    """Return an empty table; the columns in `numbers` are aligned to the right."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title or None,
        box=box.SIMPLE_HEAD if screen.is_terminal and not screen.legacy_windows else box.ASCII2,
        title_justify="left",
        show_edge=False,
        padding=(0, 1),
        pad_edge=False,
        collapse_padding=True,
    )
    for header in headers:
        right = header in numbers
        table.add_column(header, justify="right" if right else "left", overflow="fold", no_wrap=right)
    return table


def print_table(
    screen: Console,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    spare: Sequence[str] = (),
    title: str = "",
) -> None:
    """Print rows under their headers; see `new_table` and `print_fitted`."""
    print_fitted(screen, _filled_table(screen, title, headers, rows, numbers), spare)


def _filled_table(
    screen: Console, title: str, headers: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[str]
) -> Table:
    table = new_table(screen, title, headers, numbers=numbers)
    for cells in rows:
        table.add_row(*cells)
    return table


def format_ascii_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = ()) -> str:
    """Format a table as `make_console` prints it outside a terminal."""
    text = io.StringIO()
    screen = make_console(text)
    screen.print(_filled_table(screen, "", headers, rows, numbers))
    return text.getvalue()
