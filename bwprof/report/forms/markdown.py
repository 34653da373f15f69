"""A report as Markdown: the same words and tables, pictures as files beside it."""

from __future__ import annotations

import re
from collections.abc import Callable

from bwprof.report.blocks import Block, Code, Document, Facts, Items, Picture, Section, Table, Words, shown

_HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=[A-Za-z#])")  # what begins a tag, or stands for a letter
_TICKS = re.compile(r"`+")
_SPECIAL = re.compile(r"[\\`*\[\]|~]")
_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # within a word it means nothing
_FIRST = re.compile(r"^(\s*)([-+#=>]|\d+[.)])(?=\s|$|[-=#])")
_LINK = re.compile(r"(?i)\b(https?|ftp|mailto)(:)|(www)(\.)|(?<=\w)(@)(?=\w)")


def markdown(document: Document, link: Callable[[Picture], str]) -> str:
    """The whole text; `link` says where a picture is."""
    parts = [f"# {_text(document.title)}", _text(document.subtitle), *(_block(block, link) for block in document.lead)]
    for section in document.sections:
        parts += _section(section, link, 2)
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section, link: Callable[[Picture], str], level: int) -> list[str]:
    parts = [f"{'#' * level} {_text(section.title)}"]
    for block in section.blocks:
        parts += _section(block, link, level + 1) if isinstance(block, Section) else [_block(block, link)]
    return parts


def _text(text: str) -> str:
    """Text that means nothing to Markdown, nor to the HTML that it becomes, in a line."""
    said = " ".join(shown(text).split())
    said = _HTML.sub(lambda found: "&lt;" if found[0] == "<" else "&amp;", said)
    said = _SPECIAL.sub(r"\\\g<0>", said)
    said = _UNDERSCORE.sub(r"\\_", said)
    # An address is text: what was measured makes no links.
    return _LINK.sub(lambda found: found[0].translate({ord(letter): f"&#{ord(letter)};" for letter in ":.@"}), said)


def _line(text: str) -> str:
    """A line that is no heading, no list and no rule."""
    return _FIRST.sub(lambda found: f"{found[1]}{found[2][:-1]}\\{found[2][-1]}", _text(text))


def _block(block: Block, link: Callable[[Picture], str]) -> str:
    if isinstance(block, Words):
        return _line(block.text)
    if isinstance(block, Items):
        return "\n".join(f"{f'{n}.' if block.numbered else '*'} {_line(line)}" for n, line in enumerate(block.lines, 1))
    if isinstance(block, Facts):
        return "\n".join(f"* {_text(name)}: {_text(value)}" for name, value in block.pairs)
    if isinstance(block, Code):
        lines = [shown(line) for line in block.text.splitlines()]
        fence = "`" * (max([2, *map(len, _TICKS.findall(block.text))]) + 1)
        return "\n".join([fence, *lines, fence])
    if isinstance(block, Table):
        return _table(block)
    caption = f"\n\n{_line(block.caption)}" if block.caption else ""
    return f"![{_text(block.text)}]({link(block)}){caption}"


def _table(found: Table) -> str:
    rule = "|".join("---:" if heading in found.numbers else "---" for heading in found.headings)
    lines = [_row(found.headings), f"|{rule}|", *map(_row, found.lines)]
    head = f"{_line(found.caption)}\n\n" if found.caption else ""
    return head + "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"
