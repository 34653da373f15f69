"""Lists of things with names, which show themselves as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from bwprof.text.parsing import describe_unknown

if TYPE_CHECKING:
    import pandas as pd

_MOST_HTML, _WIDEST_HTML = 200, 400  # lines of a table, letters of a cell

# No colours: the notebook's theme has them. Its style puts cells on the right, which suits numbers alone.
_STYLE = "<style>.bwprof table td, .bwprof table th {text-align: left}</style>"


class Listing(list[dict[str, Any]]):
    """A list of dicts that can also be indexed by a name, and is shown as a table."""

    kind = "item"
    widest = 60  # letters of a cell as text: the rest is in the item itself

    def names_of(self, item: dict[str, Any]) -> Sequence[str]:
        """What an item is called; the first that has a name is meant by it."""
        return (str(item["name"]),)

    def cells(self, item: dict[str, Any]) -> dict[str, str]:
        """An item's line in the table, by heading."""
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
        """Whether an item, or one of that name, is there."""
        return any(key in self.names_of(item) for item in self) if isinstance(key, str) else super().__contains__(key)

    def names(self) -> list[str]:
        """The names, each item's first."""
        return [self.names_of(item)[0] for item in self]

    def frame(self) -> pd.DataFrame:
        """The table as a pandas frame."""
        import pandas as pd

        return pd.DataFrame([self.cells(item) for item in self])

    def __repr__(self) -> str:
        return format_table([self.cells(item) for item in self], self.widest) or f"no {self.kind}"

    def _repr_html_(self) -> str:
        return format_html_table([self.cells(item) for item in self])


def format_table(lines: Sequence[dict[str, str]], widest: int = Listing.widest) -> str:
    """Lines under their headings, in columns; of a cell no more than the `widest` letters."""
    if not lines:
        return ""
    cells = [list(lines[0]), *([_cut(cell, widest) for cell in line.values()] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join(rows)


def format_html_table(lines: Sequence[dict[str, str]], caption: str = "", *, named: bool = False) -> str:
    """The same for a notebook, which shows it as one of pandas, with words on the left; `named`: by its first column.

    It is as bounded as those: of many lines the first and the last, of a long cell its begin.
    """
    from html import escape

    def row(cells: Iterable[str], heads: int) -> str:
        tags = [("th" if place < heads else "td", cell) for place, cell in enumerate(cells)]
        return f"<tr>{''.join(f'<{tag}>{escape(_cut(cell, _WIDEST_HTML))}</{tag}>' for tag, cell in tags)}</tr>"

    half = _MOST_HTML // 2
    shown = [row(line.values(), named) for line in (lines if len(lines) <= _MOST_HTML else lines[:half])]
    if len(lines) > _MOST_HTML:
        shown.append(row(["\u2026"] * len(lines[0]), named))
        shown += [row(line.values(), named) for line in lines[-half:]]
        caption = f"{caption} ({len(lines)} lines)".strip()
    parts = [f"<caption>{escape(_cut(caption, _WIDEST_HTML))}</caption>"] if caption else []
    if lines:
        parts += [f"<thead>{row(lines[0], len(lines[0]))}</thead>", f"<tbody>{''.join(shown)}</tbody>"]
    return f'<div class="bwprof">{_STYLE}<table border="1" class="dataframe">{"".join(parts)}</table></div>'


def _cut(cell: str, widest: int) -> str:
    return cell if len(cell) <= widest else cell[: widest - 1] + "\u2026"
