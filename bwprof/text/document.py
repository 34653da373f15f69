"""Documents: sections of paragraphs, lists, tables and pictures, and their Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof.text.formatting import is_missing
from bwprof.text.parsing import escape_controls

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "-"  # an unknown cell
_LONGEST = 600  # characters of a cell or a line


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; a `lead` is emphasized."""

    text: str
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list, `numbered` or not."""

    lines: tuple[str, ...]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class FactList:
    """Names and values; a `lead` is emphasized."""

    pairs: tuple[tuple[str, str], ...]
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """Text in a fixed-width font; Markdown names its language."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """A table; `numbers` are headings of columns that are aligned to the right and sorted as numbers.

    `tools` adds a search field on a page; a narrow page stacks the cells of a `wordy` table, which are sentences.
    """

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()
    caption: str = ""
    tools: bool = False
    wordy: bool = False


@dataclass(frozen=True, slots=True)
class SvgPicture:
    """A picture as matplotlib's SVG; `text` describes it to readers who cannot see it."""

    name: str
    svg: str
    text: str
    caption: str = ""


Block = Paragraph | Items | FactList | Code | DocumentTable | SvgPicture


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its blocks; links use `name`."""

    name: str
    title: str
    blocks: tuple[Block | Section, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A report."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    lead: tuple[Block, ...] = ()

    def pictures(self) -> list[SvgPicture]:
        """Return all pictures, in their order."""
        blocks: list[Block | Section] = list(self.sections)
        pictures = []
        while blocks:
            block = blocks.pop(0)
            if isinstance(block, Section):
                blocks[:0] = block.blocks
            elif isinstance(block, SvgPicture):
                pictures.append(block)
        return pictures


def make_section(name: str, title: str, *blocks: Block | Section | None) -> Section | None:
    """Return a section of the blocks that are not None; None without any."""
    present = tuple(block for block in blocks if block is not None)
    return Section(name, title, present) if present else None


def present_sections(sections: Iterable[Section | None]) -> tuple[Section, ...]:
    """Return the sections that are not None."""
    return tuple(section for section in sections if section is not None)


def make_paragraph(text: str) -> Paragraph | None:
    """Return a paragraph; None for no text."""
    return Paragraph(text) if text else None


def make_list(lines: Iterable[str], *, numbered: bool = False) -> Items | None:
    """Return a list; None without lines."""
    present = tuple(lines)
    return Items(present, numbered) if present else None


def make_facts(pairs: Iterable[tuple[str, object]]) -> FactList | None:
    """Return the facts that are known; None without any."""
    known = tuple((name, str(value)) for name, value in pairs if not is_missing(value) and str(value))
    return FactList(known) if known else None


def make_table(
    headings: Sequence[str],
    lines: Iterable[Sequence[object]],
    *,
    numbers: Iterable[str] = (),
    caption: str = "",
    tools: bool = False,
    wordy: bool = False,
) -> DocumentTable | None:
    """Return a table; None without lines."""
    cells = tuple(tuple(NOTHING if is_missing(cell) or cell == "" else str(cell) for cell in line) for line in lines)
    return DocumentTable(tuple(headings), cells, frozenset(numbers), caption, tools, wordy) if cells else None


def make_frame_table(data: pd.DataFrame, **options: Any) -> DocumentTable | None:
    """Return a frame as a table, with the options of `make_table`; None for an empty frame."""
    return make_table(list(map(str, data.columns)), data.itertuples(index=False, name=None), **options)


def to_printable(text: str) -> str:
    """Escape control characters, and cut text after 600 characters."""
    printable = escape_controls(text)
    return printable if len(printable) <= _LONGEST else f"{printable[:_LONGEST]}\u2026 ({len(printable)} characters)"


_HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=[A-Za-z#])")  # begin a tag or an entity
_TICKS = re.compile(r"`+")
_SPECIAL = re.compile(r"[\\`*\[\]|~]")
_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # no markup within a word
_FIRST = re.compile(r"^(\s*)([-+#=>]|\d+[.)])(?=\s|$|[-=#])")
_LINK = re.compile(r"(?i)\b(https?|ftp|mailto)(:)|(www)(\.)|(?<=\w)(@)(?=\w)")


def to_markdown(document: Document, link: Callable[[SvgPicture], str] = lambda picture: picture.name) -> str:
    """Return a document as Markdown; `link` returns a picture's address."""
    parts = [f"# {_text(document.title)}", _text(document.subtitle), *(_block(block, link) for block in document.lead)]
    for section in document.sections:
        parts += _section(section, link, 2)
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section, link: Callable[[SvgPicture], str], level: int) -> list[str]:
    parts = [f"{'#' * level} {_text(section.title)}"]
    for block in section.blocks:
        parts += _section(block, link, level + 1) if isinstance(block, Section) else [_block(block, link)]
    return parts


def escape_markdown(text: str) -> str:
    """Escape markup of Markdown and HTML in a line of text."""
    escaped = " ".join(text.split())
    escaped = _HTML.sub(lambda match: "&lt;" if match[0] == "<" else "&amp;", escaped)
    escaped = _SPECIAL.sub(r"\\\g<0>", escaped)
    escaped = _UNDERSCORE.sub(r"\\_", escaped)
    # Addresses in measured names must not become links.
    return _LINK.sub(lambda match: match[0].translate({ord(letter): f"&#{ord(letter)};" for letter in ":.@"}), escaped)


def _text(text: str) -> str:
    return escape_markdown(to_printable(text))


def _line(text: str) -> str:
    """Escape also what would begin a heading, a list or a rule."""
    return _FIRST.sub(lambda match: f"{match[1]}{match[2][:-1]}\\{match[2][-1]}", _text(text))


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
        return format_markdown_table(block)
    caption = f"\n\n{_line(block.caption)}" if block.caption else ""
    return f"![{_text(block.text)}]({link(block)}){caption}"


def format_markdown_table(table: DocumentTable | None) -> str:
    """Return a table as Markdown; "" for None.

    Examples
    --------
    >>> print(format_markdown_table(make_table(["kernel", "ms"], [["copy<float>", 2]], numbers=["ms"])))
    | kernel | ms |
    |---|---:|
    | copy&lt;float> | 2 |
    """
    if table is None:
        return ""
    rule = "|".join("---:" if heading in table.numbers else "---" for heading in table.headings)
    lines = [_row(table.headings), f"|{rule}|", *map(_row, table.lines)]
    head = f"{_line(table.caption)}\n\n" if table.caption else ""
    return head + "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"
