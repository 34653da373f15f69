"""Kernels' names as people read them."""

from __future__ import annotations

import re

_LONGEST = 60  # letters of a short name
_READ = 1024  # of a long one
_OPENING, _CLOSING = "(<[{", ")>]}"
_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\(anonymous\))::")


def short_name(kernel: str) -> str:
    """A demangled name without what it returns and takes; long template arguments become three points.

    Examples
    --------
    >>> short_name("void ns::copy<float4, (int)4>(const float4 *, float4 *, unsigned long)")
    'ns::copy<float4, (int)4>'
    >>> short_name("ampere_sgemm_128x64_tn")
    'ampere_sgemm_128x64_tn'
    """
    name = _UNNAMED.sub("", kernel[:_READ])
    name = _without_returned(name.removesuffix(" [clone .kd]").strip())
    bare = _before(name, "(")
    if len(bare) > _LONGEST and "<" in bare:
        bare = f"{_before(bare, '<')}<...>"
    if len(bare) > _LONGEST:
        bare = f"{bare[: _LONGEST - 3]}..."
    return bare or kernel[:_LONGEST]


def _before(name: str, sign: str) -> str:
    """A name up to the first `sign` that is within no brackets."""
    depth = 0
    for at, letter in enumerate(name):
        if letter == sign and not depth and at:
            return name[:at].rstrip()
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING and depth:
            depth -= 1
    return name


def _without_returned(name: str) -> str:
    """A name without the type before it: what ends at the last blank outside of brackets, before its parameters."""
    head = _before(name, "(")
    depth, start = 0, 0
    for at, letter in enumerate(head):
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING and depth:
            depth -= 1
        elif letter == " " and not depth:
            if head[:at].endswith("operator"):
                break
            start = at + 1
    return name[start:]
