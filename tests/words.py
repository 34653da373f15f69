"""The words of a text, for tests that check what a message names, and not its grammar."""

from __future__ import annotations

import re


def words(text: str) -> set[str]:
    """Return the words, numbers, options and names of a text, without quotation marks and punctuation around them."""
    return {word for part in text.split() for word in (part, re.sub(r"^[('\"*]+|[)'\":;,.?!]+$", "", part)) if word}


def numbers(text: str) -> list[float]:
    """Return the numbers of a text in their order."""
    return [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]*[A-Za-z_]\w)", text)]
