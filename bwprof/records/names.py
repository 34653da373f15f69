"""Names that become names of files: they cannot leave their folder."""

from __future__ import annotations

import re

from bwprof.text import shown

MOST_LETTERS = 128
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", re.ASCII)


def plain_name(given: object, what: str) -> str:
    """A name that is safe as a file's; ValueError with `what` for anything else.

    Examples
    --------
    >>> plain_name("h200_driver-580.1", "a baseline's name")
    'h200_driver-580.1'
    """
    if isinstance(given, str) and _PLAIN.fullmatch(given):
        return given
    raise ValueError(
        f"{what} is {shown(given)}: allowed are {MOST_LETTERS} of the letters A-Z a-z, digits, '.', '_' and '-', "
        "not beginning with '.'"
    )
