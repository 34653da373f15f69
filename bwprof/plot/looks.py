"""The look of a precision, the same in every picture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """A precision's look, the same in every picture: readable without colour too."""

    color: str
    hatch: str


# Okabe and Ito's colours, which people with colour-blindness tell apart.
_STYLES = {
    "fp32": Style("#0072B2", ""),
    "fp16": Style("#E69F00", "////"),
    "bf16": Style("#009E73", "...."),
    "tf32": Style("#CC79A7", "xxxx"),
}
_SPARE = (Style("#56B4E9", "++++"), Style("#D55E00", "oooo"), Style("#F0E442", "\\\\\\\\"), Style("#999999", "----"))


def style(precision: str) -> Style:
    """The look of a precision."""
    return _STYLES.get(precision) or _SPARE[sum(map(ord, precision)) % len(_SPARE)]
