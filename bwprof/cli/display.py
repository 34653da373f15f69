"""Print documents, tables and wrapped lines on a screen."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bwprof.text import document
from bwprof.text.document import Block, Code, Document, DocumentTable, FactList, Items, Paragraph, Section
from bwprof.text.terminal import PLAIN_WIDTH, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


def wrap(text: str, screen: Console, indent: str = "", hanging: int = 2) -> str:
    """Wrap a line to the screen; lines after the first are indented by `hanging` more letters."""
    width = max(40, min(screen.width, PLAIN_WIDTH))
    joined = text.replace(" %", "\u00a0%")  # a number and its unit stay together
    lines = textwrap.fill(
        joined, width, initial_indent=indent, subsequent_indent=indent + " " * hanging, break_on_hyphens=False
    )
    return lines.replace("\u00a0%", " %")


def print_lines(screen: Console, lines: Iterable[str], indent: str = "") -> None:
    """Print lines, each wrapped to the screen."""
    for line in lines:
        screen.print(wrap(line, screen, indent))


def print_frame(
    screen: Console, title: str, data: pd.DataFrame, *, numbers: Sequence[str] = (), spare: Sequence[str] = ()
) -> None:
    """Print a frame of words as a table under a title; nothing of an empty one.

    Parameters
    ----------
    numbers : sequence of str
        Columns to align to the right.
    spare : sequence of str
        Columns that a narrow screen leaves out, the first ones first.
    """
    if not len(data):
        return
    screen.print(f"\n{title}")
    headers = {name: _two_lines(name) if name in numbers else name for name in data.columns}
    rows = (list(map(str, row)) for row in data.itertuples(index=False))
    right, left_out = ([headers[name] for name in names] for names in (numbers, spare))
    print_table(screen, list(headers.values()), rows, numbers=right, spare=left_out)


def print_document(screen: Console, content: Document) -> None:
    """Print a document without its title."""
    for block in content.lead:
        _print_block(screen, block, "")
    for section in content.sections:
        screen.print()
        _print_section(screen, section, "")


def _print_section(screen: Console, section: Section, indent: str) -> None:
    screen.print(wrap(section.title, screen, indent))
    for block in section.blocks:
        if isinstance(block, Section):
            _print_section(screen, block, f"{indent}  ")
        else:
            _print_block(screen, block, f"{indent}  ")


def _print_block(screen: Console, block: Block, indent: str) -> None:
    if isinstance(block, Paragraph):
        screen.print(wrap(block.text, screen, indent))
    elif isinstance(block, Items):
        print_lines(screen, block.lines, indent)
    elif isinstance(block, FactList):
        print_lines(screen, (f"{name}: {value}" for name, value in block.pairs), indent)
    elif isinstance(block, Code):
        screen.print(f"{indent}  {block.text}", soft_wrap=True)  # one line, however long, so that it can be copied
    elif isinstance(block, DocumentTable):
        _print_table(screen, block, indent)


def _print_table(screen: Console, block: DocumentTable, indent: str) -> None:
    """Print a table; of sentences each line as "first second: third", wrapped."""
    if block.wordy:
        width = max(len(line[0]) for line in block.lines)
        for first, second, *rest in block.lines:
            line = ": ".join(cell for cell in (second, *rest) if cell != document.NOTHING)
            screen.print(wrap(f"{first:<{width}} {line}", screen, indent, width + 1))
    else:
        headers = {name: _two_lines(name) if name in block.numbers else name for name in block.headings}
        numbers = [headers[name] for name in block.numbers]
        print_table(screen, list(headers.values()), block.lines, numbers=numbers, title=block.caption)


def _two_lines(heading: str) -> str:
    return heading.replace(" ", "\n", 1)


def markdown(content: Document) -> str:
    """Write a document without pictures as Markdown."""
    return document.to_markdown(content, lambda picture: picture.name)
