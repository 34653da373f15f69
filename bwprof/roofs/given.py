"""What `roofs=` may be, everywhere."""

from __future__ import annotations

from typing import Literal, cast

from bwprof.roofs.model import Roofs
from bwprof.text import shown, unknown

WORDS = ("auto", "stored")

Given = Literal["auto", "stored", False] | Roofs


def check(given: object) -> Given:
    """What rows are held against.

    "auto": the device's roofs, the stored ones where they hold, else measured now and stored; "stored": the stored ones
    as they are, if there are any; False: none; or roofs that one has.

    Raises
    ------
    ValueError
        For another word.
    TypeError
        For anything else.
    """
    if given is False or isinstance(given, Roofs):
        return given
    if not isinstance(given, str):
        raise TypeError(f"roofs is {shown(given)}: allowed are 'auto', 'stored', False and a bwprof.Roofs")
    if given not in WORDS:
        raise ValueError(unknown("roofs", given, WORDS))
    return cast("Given", given)


def belonging(given: Roofs, facts: dict[str, object]) -> Roofs:
    """The roofs, if they are of the device with these facts; else ValueError."""
    if not given.belongs_to(facts):
        raise ValueError(f"these roofs are of {given.device}, the device is {facts['name']}")
    return given
