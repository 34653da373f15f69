"""What a report is made of, whatever it is written as: sections of words, lists, tables and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bwprof.results.schema import is_missing
from bwprof.text import spelt

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "-"  # a cell of which nothing is known
_LONGEST = 600  # letters of a cell or a line: what is longer is damage, or an attack


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph; a `lead` is what the reader came for."""

    text: str
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list; `numbered` where the order counts."""

    lines: tuple[str, ...]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are; a `lead` holds the few figures that stand above all others."""

    pairs: tuple[tuple[str, str], ...]
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """What is typed, or printed, letter by letter."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Lines under headings.

    Attributes
    ----------
    numbers : frozenset of str
        The headings of columns that are aligned to the right, and sorted as numbers.
    tools : bool
        Whether a page lets its reader search it.
    wordy : bool
        Whether its cells are sentences: a narrow page puts them below each other.
    """

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()
    caption: str = ""
    tools: bool = False
    wordy: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as matplotlib's SVG; `text` says what it shows to those who cannot see it."""

    name: str
    svg: str
    text: str
    caption: str = ""


Block = Words | Items | Facts | Code | Table | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it; `name` is what links to it."""

    name: str
    title: str
    blocks: tuple[Block | Section, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    lead: tuple[Block, ...] = field(default=())

    def pictures(self) -> list[Picture]:
        """All of them, in the order in which they stand."""
        return [block for section in self.sections for block in _within(section) if isinstance(block, Picture)]


def _within(section: Section) -> Iterable[Block]:
    for block in section.blocks:
        if isinstance(block, Section):
            yield from _within(block)
        else:
            yield block


def section(name: str, title: str, *blocks: Block | Section | None) -> Section | None:
    """A section of the blocks that are there; None where none is."""
    held = tuple(block for block in blocks if block is not None)
    return Section(name, title, held) if held else None


def there(sections: Iterable[Section | None]) -> tuple[Section, ...]:
    """The sections that there are."""
    return tuple(one for one in sections if one is not None)


def words(text: str) -> Words | None:
    """A paragraph; None of no words."""
    return Words(text) if text else None


def items(lines: Iterable[str], *, numbered: bool = False) -> Items | None:
    """A list; None of an empty one."""
    found = tuple(lines)
    return Items(found, numbered) if found else None


def facts(pairs: Iterable[tuple[str, object]]) -> Facts | None:
    """Those of which something is known; None where of none."""
    found = tuple((name, str(value)) for name, value in pairs if not is_missing(value) and str(value))
    return Facts(found) if found else None


def table(
    headings: Sequence[str],
    lines: Iterable[Sequence[object]],
    *,
    numbers: Iterable[str] = (),
    caption: str = "",
    tools: bool = False,
    wordy: bool = False,
) -> Table | None:
    """A table of text; None of one without lines."""
    found = tuple(tuple(NOTHING if is_missing(cell) or cell == "" else str(cell) for cell in line) for line in lines)
    return Table(tuple(headings), found, frozenset(numbers), caption, tools, wordy) if found else None


def of_frame(
    data: pd.DataFrame, *, numbers: Iterable[str] = (), caption: str = "", tools: bool = False, wordy: bool = False
) -> Table | None:
    """A table of a frame of words; None of an empty one."""
    lines = data.itertuples(index=False, name=None)
    return table(list(map(str, data.columns)), lines, numbers=numbers, caption=caption, tools=tools, wordy=wordy)


def shown(text: str) -> str:
    """Text as any report can hold it: control characters spelt out, and cut where nobody reads on."""
    said = spelt(text)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}\u2026 ({len(said)} characters)"
