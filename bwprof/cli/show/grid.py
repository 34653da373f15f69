"""Rows as lines of a table that fits its screen: what has no room beside the rest stands in a table below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.analysis.values import labels
from bwprof.cli.shared.summary import listed
from bwprof.results import schema
from bwprof.terminal import table
from bwprof.text import short

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_KEYS = ("case", "precision", "variant")  # which every table begins with, if they are asked for
_UNDERSCORE = re.compile("_(?!s$)")  # not that of a GB_s
_ROOMY = 100  # letters a line, from which on there is room for rules between the columns
# Letters of a text that stand in a line, at least: where there is little room, and where there is.
_LEAST_TEXT = (10, 24)
_LEAST_CASE = 32  # of a case's name, which tells the rows apart
_LONGEST_WORD = 24  # letters of one that is not broken
_HEADING = (6, 10)  # of a heading's line, at most, where its words allow it


def print_view(
    data: pd.DataFrame, screen: Console, *, which: str = "short", columns: str | Iterable[str] | None = None
) -> None:
    """A view of a frame, or some columns of it; then what was not measured, and which columns hold nothing."""
    from bwprof.analysis.views import view

    found = view(data, which, columns=columns)
    empty = [name for name in found.columns if columns is None and name not in _KEYS and found[name].isna().all()]
    shown = found.drop(columns=empty) if len(found) else found
    cells = {str(name): list(map(_cell, shown[name].tolist())) for name in shown.columns}
    for number, names in enumerate(_blocks(cells, screen.width)):
        if number:
            screen.print("")
        _print_block(screen, {name: cells[name] for name in names}, shown)
    for line in _notes(data, empty if len(found) else []):
        screen.print(line)


def _cell(value: Any) -> str:
    if schema.is_missing(value) or value == "":
        return "-"
    if isinstance(value, float):
        return short(value, ".0f" if abs(value) >= 1000 else ".4g")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace(";", "; ")  # lists break there


def _heading(name: str, longest: int) -> str:
    """A column's name in lines, so that a column of numbers is no wider than these."""
    lines = [""]
    for word in _UNDERSCORE.split(name):
        if lines[-1] and len(lines[-1]) + len(word) > longest:
            lines.append("")
        lines[-1] += f"{word}_"
    return "\n".join(lines).removesuffix("_")


def _blocks(cells: dict[str, list[str]], width: int) -> list[list[str]]:
    """The columns in as many tables as it takes for each to fit into `width` letters: in one, if names are broken where
    they must be; else names are whole.
    """
    one = _divided(cells, width, whole=False)
    return one if len(one) == 1 else _divided(cells, width, whole=True)


def _divided(cells: dict[str, list[str]], width: int, *, whole: bool) -> list[list[str]]:
    keys = [name for name in _KEYS if name in cells]
    roomy = width >= _ROOMY
    between = 1 + roomy
    needed = {
        name: between
        + max(
            _least_width(name, held, _LEAST_TEXT[roomy], whole=whole),
            *map(len, _heading(name, _HEADING[roomy]).split("\n")),
        )
        for name, held in cells.items()
    }
    blocks = [list(keys)]
    for name in (name for name in cells if name not in keys):
        if sum(needed[other] for other in (*blocks[-1], name)) > width + between and len(blocks[-1]) > len(keys):
            blocks.append(list(keys))
        blocks[-1].append(name)
    return blocks


def _least_width(name: str, cells: Sequence[str], text: int, *, whole: bool) -> int:
    """Letters that a column's cells cannot do without: a number is never broken, a text may be after `text` of them;
    where it should be `whole` a case's name after more, and any other between its words.
    """
    longest = max(map(len, cells), default=0)
    if not _is_text(name):
        return max(1, longest)
    if whole:
        word = max((len(word) for cell in cells for word in cell.split()), default=0)
        text = max(text, min(word, _LONGEST_WORD), _LEAST_CASE if name == _KEYS[0] else 0)
    return max(1, min(longest, text))


def _is_text(name: str) -> bool:
    return schema.kinds().get(name, "text") == "text"


def _print_block(screen: Console, cells: dict[str, list[str]], data: pd.DataFrame) -> None:
    headings = {name: _heading(name, _HEADING[screen.width >= _ROOMY]) for name in cells}
    grid = table(screen, "", list(headings.values()), numbers=[headings[name] for name in cells if not _is_text(name)])
    if screen.width < _ROOMY:
        grid.box = None
    for line in zip(*cells.values(), strict=True) if len(data) else ():
        grid.add_row(*line)
    screen.print(grid)


def _notes(data: pd.DataFrame, empty: Sequence[str]) -> list[str]:
    """What was not measured, and why; the columns that are left out because nothing stands in them."""
    why: dict[str, list[str]] = {}
    if "status" in data.columns:
        broken = data[data["status"].fillna("ok").ne("ok")]
        for name, row in zip(labels(broken), broken.to_dict(orient="records"), strict=True):
            said = "" if schema.is_missing(row.get("reason")) else f": {row['reason']}"
            why.setdefault(f"{row['status']}{said}", []).append(name)
    lines = [listed(reason, names, len(data)) for reason, names in why.items()]
    return lines + ([listed("no values", empty, 0)] if empty else [])
