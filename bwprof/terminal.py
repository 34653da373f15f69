"""Tables on a terminal, and plain ASCII ones where there is no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 118


def console(stream: TextIO) -> Console:
    """A console on a stream: colours on a terminal only (and not with NO_COLOR), a fixed width elsewhere."""
    from rich.console import Console

    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, width=PLAIN_WIDTH, highlight=False, color_system=None)


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
