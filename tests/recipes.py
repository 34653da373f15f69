"""Read the guide's recipes, and fit what their commands print to their blocks of output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

GUIDE = Path(__file__).resolve().parent.parent / "notebooks" / "guide.md"
LEFT_OUT = "…"
_BLOCK = re.compile(r"^```(\w+)( measured)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, and whether its numbers come from a measurement."""

    language: str
    measured: bool
    text: str


@dataclass(frozen=True)
class Recipe:
    """A question of the guide, with the section that it belongs to."""

    section: str
    question: str
    text: str

    @property
    def blocks(self) -> list[Block]:
        """The fenced blocks in their order."""
        return [Block(language, bool(measured), text) for language, measured, text in _BLOCK.findall(self.text)]

    def __str__(self) -> str:
        return self.question


def read_recipes(text: str) -> list[Recipe]:
    """Split the guide at its headings."""
    recipes = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        section, *found = re.split(r"^### ", part, flags=re.MULTILINE)
        recipes += [Recipe(section.strip(), *_heading(one)) for one in found]
    return recipes


def _heading(text: str) -> tuple[str, str]:
    question, _, rest = text.partition("\n")
    return question.strip(), rest.strip("\n")


def fit_output(block: str, output: str) -> str:
    """Return the block with today's output.

    A line `…` stands for any number of lines, `…` at a line's end for the rest of the line. Both keep their places.
    """
    printed = [line.rstrip() for line in output.strip("\n").splitlines()]
    groups: list[list[str]] = [[]]
    for line in block.splitlines():
        if line == LEFT_OUT:
            groups.append([])
        else:
            groups[-1].append(line)
    fitted, place = [], 0
    for number, group in enumerate(groups):
        first, last = number == 0, number == len(groups) - 1
        if first and last:
            lines = _shorten(group, printed)
        elif group:
            latest = max(len(printed) - len(group), place)
            starts = [place] if first else [latest] if last else range(place, latest + 1)
            start = max(starts, key=lambda at: _likeness(group, printed[at : at + len(group)]))
            place = start + len(group)
            lines = _shorten(group, printed[start:place])
        else:
            lines = []
        fitted += lines if first else [LEFT_OUT, *lines]
    return "".join(f"{line}\n" for line in fitted)


def _shorten(group: list[str], printed: list[str]) -> list[str]:
    """Cut the lines that the group cuts, at the same column."""
    cuts = [len(line) - 1 if line.endswith(LEFT_OUT) else None for line in group]
    return [
        line if cut is None else f"{line[:cut]}{LEFT_OUT}" for line, cut in zip_longest(printed, cuts[: len(printed)])
    ]


def _likeness(group: list[str], printed: list[str]) -> float:
    if group == _shorten(group, printed):
        return 2.0
    return SequenceMatcher(None, "\n".join(group), "\n".join(printed), autojunk=False).ratio()
