"""Lists of named items that display as a table in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from bwprof.text.parsing import describe_unknown

if TYPE_CHECKING:
    import pandas as pd

_MOST_HTML, _WIDEST_HTML = 200, 400  # lines of a table, characters of a cell

# Notebooks align cells to the right, which suits numbers alone.
_STYLE = "<style>.bwprof table td, .bwprof table th {text-align: left}</style>"


class Listing(list[dict[str, Any]]):
    """A list of dicts that can also be indexed by a name, and displays as a table."""

    kind = "item"
    widest = 60  # characters of a cell in the text

    def names_of(self, item: dict[str, Any]) -> Sequence[str]:
        """Return an item's names, the main one first; a name finds the first item that has it."""
        return (str(item["name"]),)

    def cells(self, item: dict[str, Any]) -> dict[str, str]:
        """Return an item's line of the table, by heading."""
        return {name: str(value) for name, value in item.items()}

    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: str) -> dict[str, Any]: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for item in self:
            if key in self.names_of(item):
                return item
        raise KeyError(describe_unknown(self.kind, key, self.names()))

    def __contains__(self, key: object) -> bool:
        """Return whether the list has an item, or an item of that name."""
        return any(key in self.names_of(item) for item in self) if isinstance(key, str) else super().__contains__(key)

    def names(self) -> list[str]:
        """Return each item's main name."""
        return [self.names_of(item)[0] for item in self]

    def frame(self) -> pd.DataFrame:
        """Return the table as a pandas frame."""
        import pandas as pd

        return pd.DataFrame([self.cells(item) for item in self])

    def __repr__(self) -> str:
        return format_table([self.cells(item) for item in self], self.widest) or f"no {self.kind}"

    def _repr_html_(self) -> str:
        return format_html_table([self.cells(item) for item in self])


def format_table(lines: Sequence[dict[str, str]], widest: int = Listing.widest) -> str:
    """Align lines under their headings, each cell cut to `widest` characters."""
    if not lines:
        return ""
    cells = [list(lines[0]), *([_cut(cell, widest) for cell in line.values()] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join(rows)


def format_html_table(lines: Sequence[dict[str, str]], caption: str = "", *, named: bool = False) -> str:
    """Format lines as an HTML table in pandas' style: at most 200 lines, the first and the last ones.

    `named` makes the first column a heading.
    """
    from html import escape

    def row(cells: Iterable[str], heads: int) -> str:
        tags = [("th" if column < heads else "td", cell) for column, cell in enumerate(cells)]
        return f"<tr>{''.join(f'<{tag}>{escape(_cut(cell, _WIDEST_HTML))}</{tag}>' for tag, cell in tags)}</tr>"

    half = _MOST_HTML // 2
    rows = [row(line.values(), named) for line in (lines if len(lines) <= _MOST_HTML else lines[:half])]
    if len(lines) > _MOST_HTML:
        rows.append(row(["\u2026"] * len(lines[0]), named))
        rows += [row(line.values(), named) for line in lines[-half:]]
        caption = f"{caption} ({len(lines)} lines)".strip()
    parts = [f"<caption>{escape(_cut(caption, _WIDEST_HTML))}</caption>"] if caption else []
    if lines:
        parts += [f"<thead>{row(lines[0], len(lines[0]))}</thead>", f"<tbody>{''.join(rows)}</tbody>"]
    return f'<div class="bwprof">{_STYLE}<table border="1" class="dataframe">{"".join(parts)}</table></div>'


def _cut(cell: str, widest: int) -> str:
    return cell if len(cell) <= widest else cell[: widest - 1] + "\u2026"
