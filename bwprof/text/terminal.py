"""Words and tables for a terminal, and plain ASCII ones where there is no terminal."""

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

_BROAD = 10_000  # no table is

_LEAST_WIDTH = 100  # below that the headings of a table of numbers are stacks of letters

_LEAST_PROSE = 30  # letters of a line of a column of sentences


class EscapingStream:
    """A stream for words of any origin: control characters are spelt out, not sent to the terminal.

    What sends them on purpose writes to `obeyed`, and spells out itself whatever comes from elsewhere.
    """

    def __init__(self, stream: TextIO) -> None:
        self.obeyed: TextIO = getattr(stream, "obeyed", stream)  # once is enough: commands call each other

    def write(self, text: str) -> int:
        return self.obeyed.write(escape_controls(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.obeyed, name)


def escape_stream(stream: TextIO) -> TextIO:
    """Return `stream` for words: control characters in them are spelt out."""
    return cast("TextIO", EscapingStream(stream))


def make_console(stream: TextIO) -> Console:
    """A console on a stream: colours on a terminal only (and not with NO_COLOR), a fixed width elsewhere.

    Control characters in the strings that it is given are spelt out.
    """
    from rich.console import Console

    class OurConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(escape_controls(text), **options)

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - called while a BrokenPipeError is handled, which `guarded` knows; not its own exit

    file = getattr(stream, "obeyed", stream)
    if stream.isatty():
        return OurConsole(file=file, highlight=False, markup=False, emoji=False)
    return OurConsole(file=file, width=PLAIN_WIDTH, highlight=False, markup=False, emoji=False, color_system=None)


def print_fitted(screen: Console, found: RenderableType, spare: Sequence[str] = ()) -> None:
    """Print words, or a table: as it is where it fits the screen, else without columns of `spare`, the first ones
    first, and says so. One that does not fit all the same is as wide as it is elsewhere: words stay whole.
    """
    from rich.measure import Measurement

    if isinstance(found, str):
        screen.print(found)
        return
    narrowed, left_out = _narrowed(screen, cast("Table", found), spare) if spare else (found, ())
    needed = Measurement.get(screen, screen.options.update(max_width=_BROAD), narrowed)
    folds = needed.minimum <= screen.width >= _LEAST_WIDTH or _prose(narrowed) >= needed.maximum - screen.width
    if needed.maximum <= screen.width or folds:
        screen.print(narrowed)
    else:
        text = io.StringIO()
        make_console(text).print(narrowed)
        screen.file.write(text.getvalue())
    if left_out:
        names = ", ".join(name.replace("\n", " ") for name in left_out)
        whole = Measurement.get(screen, screen.options.update(max_width=_BROAD), found).maximum
        screen.print(f"({whole} columns have room for {names}, too)")


def _prose(found: RenderableType) -> int:
    """By how many letters a table can be narrowed so that only its sentences are folded, which one column has."""
    columns = cast("Table", found).columns
    widths = sorted(max(len(str(cell)) for cell in column.cells) for column in columns if column.justify != "right")
    return widths[-1] - max([_LEAST_PROSE, *widths[:-1]]) if widths else 0


def _narrowed(screen: Console, found: Table, spare: Sequence[str]) -> tuple[Table, Sequence[str]]:
    """A table, made by `table`, without so many of its spare columns that it fits, and their headings; the table and
    none where it cannot.
    """
    from rich.measure import Measurement

    roomy = screen.options.update(max_width=_BROAD)
    there = [name for name in spare if any(column.header == name for column in found.columns)]
    for count in range(len(there) + 1):
        made = _without(screen, found, there[:count])
        if Measurement.get(screen, roomy, made).maximum <= screen.width:
            return made, there[:count]
    return found, ()


def _without(screen: Console, found: Table, names: Sequence[str]) -> Table:
    kept = [column for column in found.columns if column.header not in names]
    numbers = [str(column.header) for column in kept if column.justify == "right"]
    made = new_table(screen, str(found.title or ""), [str(column.header) for column in kept], numbers=numbers)
    for cells in zip(*(column.cells for column in kept), strict=True):
        made.add_row(*cells)
    return made


def new_table(screen: Console, title: str, headers: Sequence[str], *, numbers: Sequence[str] = ()) -> Table:
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


def print_table(
    screen: Console,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    spare: Sequence[str] = (),
    title: str = "",
) -> None:
    """Print rows of words under their headers, as `show` prints a `table`."""
    grid = new_table(screen, title, headers, numbers=numbers)
    for cells in rows:
        grid.add_row(*cells)
    print_fitted(screen, grid, spare)


def format_ascii_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> str:
    """What a console that is no terminal prints of such a `table`, a hundred times as fast: for a row of each of many
    names. Cells of the first column alone may be of several lines, or wider than there is room for.
    """
    from rich.cells import cell_len
    from rich.text import Text

    screen = make_console(io.StringIO())
    split = [[escape_controls(cell).split("\n") for cell in row] for row in [headers, *rows]]
    widths = [max(cell_len(line) for cell in column for line in cell) for column in zip(*split, strict=True)]
    widths[0] = min(widths[0], PLAIN_WIDTH - sum(widths[1:]) - 2 * len(widths[1:]))
    right = [header in numbers for header in headers]
    lines = []
    for cells in split:
        first = cells[0]
        if any("\t" in line or cell_len(line) > widths[0] for line in first):
            first = [line.plain for line in Text("\n".join(first)).wrap(screen, widths[0], overflow="fold")]
        for height, line in enumerate(first):
            texts = [line, *("\n".join(cell) if height == 0 else "" for cell in cells[1:])]
            padding = [" " * (width - cell_len(text)) for width, text in zip(widths, texts, strict=True)]
            both = zip(texts, padding, right, strict=True)
            lines.append(" |".join(pad + text if to_right else text + pad for text, pad, to_right in both) + "\n")
    ruler = "-+".join("-" * width for width in widths) + "\n"
    return "".join([lines[0], ruler, *lines[1:]])
