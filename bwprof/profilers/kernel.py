"""Kernels' names as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LONGEST = 60  # letters of a short name
_READ = 1024  # of a long one
_OPENING, _CLOSING = "(<[{", ")>]}"
_UNNAMED = re.compile(r"(\(anonymous namespace\)|\(anonymous\)|<unnamed>|\{anonymous\})::")
_MARK = "\0"  # of a namespace without a name: no kernel's name holds one


def short_name(kernel: str) -> str:
    """A demangled name without what it returns and takes; long template arguments become three points.

    Examples
    --------
    >>> short_name("void ns::copy<float4, (int)4>(const float4 *, float4 *, unsigned long)")
    'ns::copy<float4, (int)4>'
    >>> short_name("ampere_sgemm_128x64_tn")
    'ampere_sgemm_128x64_tn'
    """
    name = _UNNAMED.sub(_MARK, kernel[:_READ].replace(_MARK, ""))
    name = _without_returned(name.removesuffix(" [clone .kd]").strip())
    bare = _before(name, "(")
    places = [at for at, letter in _outside(bare) if letter == _MARK]
    bare = bare[places[-1] + 1 if places else 0 :].replace(_MARK, "")
    if len(bare) > _LONGEST and "<" in bare:
        bare = f"{_before(bare, '<')}<...>"
    if len(bare) > _LONGEST:
        bare = f"{bare[: _LONGEST - 3]}..."
    return bare or kernel[:_LONGEST]


def _outside(name: str) -> Iterator[tuple[int, str]]:
    """The letters that are within no brackets, and where they stand; an opening bracket is outside of its own."""
    depth = 0
    for at, letter in enumerate(name):
        if not depth:
            yield at, letter
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING and depth:
            depth -= 1


def _before(name: str, sign: str) -> str:
    """A name up to the first `sign` that is within no brackets."""
    return name[: next((at for at, letter in _outside(name) if letter == sign and at), len(name))].rstrip()


def _without_returned(name: str) -> str:
    """A name without the type before it: what ends at the last blank outside of brackets, before its parameters."""
    head = list(_outside(_before(name, "(")))
    if "operator" in "".join(letter for _, letter in head):
        return name
    return name[max((at + 1 for at, letter in head if letter == " "), default=0) :]
