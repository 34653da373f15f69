"""Documents: sections of paragraphs, lists, tables and pictures, and their Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bwprof.text.formatting import is_missing
from bwprof.text.parsing import escape_controls

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "-"  # a cell of which nothing is known

_LONGEST = 600  # letters of a cell or a line: what is longer is damage, or an attack


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; a `lead` is what the reader came for."""

    text: str
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list; `numbered` where the order counts."""

    lines: tuple[str, ...]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class FactList:
    """Names and what they are; a `lead` holds the few figures that stand above all others."""

    pairs: tuple[tuple[str, str], ...]
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """What is typed, or printed, letter by letter; Markdown names its language."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class DocumentTable:
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
class SvgPicture:
    """A picture as matplotlib's SVG; `text` says what it shows to those who cannot see it."""

    name: str
    svg: str
    text: str
    caption: str = ""


Block = Paragraph | Items | FactList | Code | DocumentTable | SvgPicture


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

    def pictures(self) -> list[SvgPicture]:
        """All of them, in the order in which they stand."""
        return [block for section in self.sections for block in _within(section) if isinstance(block, SvgPicture)]


def _within(section: Section) -> Iterable[Block]:
    for block in section.blocks:
        if isinstance(block, Section):
            yield from _within(block)
        else:
            yield block


def make_section(name: str, title: str, *blocks: Block | Section | None) -> Section | None:
    """A section of the blocks that are there; None where none is."""
    held = tuple(block for block in blocks if block is not None)
    return Section(name, title, held) if held else None


def present_sections(sections: Iterable[Section | None]) -> tuple[Section, ...]:
    """The sections that there are."""
    return tuple(one for one in sections if one is not None)


def make_paragraph(text: str) -> Paragraph | None:
    """A paragraph; None of no words."""
    return Paragraph(text) if text else None


def make_list(lines: Iterable[str], *, numbered: bool = False) -> Items | None:
    """A list; None of an empty one."""
    found = tuple(lines)
    return Items(found, numbered) if found else None


def make_facts(pairs: Iterable[tuple[str, object]]) -> FactList | None:
    """Those of which something is known; None where of none."""
    found = tuple((name, str(value)) for name, value in pairs if not is_missing(value) and str(value))
    return FactList(found) if found else None


def make_table(
    headings: Sequence[str],
    lines: Iterable[Sequence[object]],
    *,
    numbers: Iterable[str] = (),
    caption: str = "",
    tools: bool = False,
    wordy: bool = False,
) -> DocumentTable | None:
    """A table of text; None of one without lines."""
    found = tuple(tuple(NOTHING if is_missing(cell) or cell == "" else str(cell) for cell in line) for line in lines)
    return DocumentTable(tuple(headings), found, frozenset(numbers), caption, tools, wordy) if found else None


def make_frame_table(
    data: pd.DataFrame, *, numbers: Iterable[str] = (), caption: str = "", tools: bool = False, wordy: bool = False
) -> DocumentTable | None:
    """A table of a frame of words; None of an empty one."""
    lines = data.itertuples(index=False, name=None)
    return make_table(list(map(str, data.columns)), lines, numbers=numbers, caption=caption, tools=tools, wordy=wordy)


def to_printable(text: str) -> str:
    """Text as any report can hold it: control characters spelt out, and cut where nobody reads on."""
    said = escape_controls(text)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}\u2026 ({len(said)} characters)"


_HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=[A-Za-z#])")  # what begins a tag, or stands for a letter

_TICKS = re.compile(r"`+")

_SPECIAL = re.compile(r"[\\`*\[\]|~]")

_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # within a word it means nothing

_FIRST = re.compile(r"^(\s*)([-+#=>]|\d+[.)])(?=\s|$|[-=#])")

_LINK = re.compile(r"(?i)\b(https?|ftp|mailto)(:)|(www)(\.)|(?<=\w)(@)(?=\w)")


def to_markdown(document: Document, link: Callable[[SvgPicture], str]) -> str:
    """The whole text; `link` says where a picture is."""
    parts = [f"# {_text(document.title)}", _text(document.subtitle), *(_block(block, link) for block in document.lead)]
    for section in document.sections:
        parts += _section(section, link, 2)
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section, link: Callable[[SvgPicture], str], level: int) -> list[str]:
    parts = [f"{'#' * level} {_text(section.title)}"]
    for block in section.blocks:
        parts += _section(block, link, level + 1) if isinstance(block, Section) else [_block(block, link)]
    return parts


def _text(text: str) -> str:
    """Text that means nothing to Markdown, nor to the HTML that it becomes, in a line."""
    said = " ".join(to_printable(text).split())
    said = _HTML.sub(lambda found: "&lt;" if found[0] == "<" else "&amp;", said)
    said = _SPECIAL.sub(r"\\\g<0>", said)
    said = _UNDERSCORE.sub(r"\\_", said)
    # An address is text: what was measured makes no links.
    return _LINK.sub(lambda found: found[0].translate({ord(letter): f"&#{ord(letter)};" for letter in ":.@"}), said)


def _line(text: str) -> str:
    """A line that is no heading, no list and no rule."""
    return _FIRST.sub(lambda found: f"{found[1]}{found[2][:-1]}\\{found[2][-1]}", _text(text))


def _block(block: Block, link: Callable[[SvgPicture], str]) -> str:
    if isinstance(block, Paragraph):
        return _line(block.text)
    if isinstance(block, Items):
        return "\n".join(f"{f'{n}.' if block.numbered else '*'} {_line(line)}" for n, line in enumerate(block.lines, 1))
    if isinstance(block, FactList):
        return "\n".join(f"* {_text(name)}: {_text(value)}" for name, value in block.pairs)
    if isinstance(block, Code):
        lines = [to_printable(line) for line in block.text.splitlines()]
        fence = "`" * (max([2, *map(len, _TICKS.findall(block.text))]) + 1)
        return "\n".join([fence + block.language, *lines, fence])
    if isinstance(block, DocumentTable):
        return _table(block)
    caption = f"\n\n{_line(block.caption)}" if block.caption else ""
    return f"![{_text(block.text)}]({link(block)}){caption}"


def _table(found: DocumentTable) -> str:
    rule = "|".join("---:" if heading in found.numbers else "---" for heading in found.headings)
    lines = [_row(found.headings), f"|{rule}|", *map(_row, found.lines)]
    head = f"{_line(found.caption)}\n\n" if found.caption else ""
    return head + "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"
