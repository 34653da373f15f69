"""Kernels' names as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LONGEST = 64  # letters of a short name
_READ = 1024  # of a long one
_OPENING, _CLOSING = "(<[{", ")>]}"
_UNNAMED = re.compile(r"(\(anonymous namespace\)|\(anonymous\)|<unnamed>|\{anonymous\})::")
_MARK = "\0"  # of a namespace without a name: no kernel's name holds one
_SIGNS = re.compile(r"[()<>\[\]{}, \0]")
_SCOPE = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]*::")
_CAST = re.compile(r"\([A-Za-z_][\w ]*\)(?=-?[0-9])")
_PLAIN = re.compile(
    r"(?:const )?(?:(?:un)?signed )?(?:(?:bool|char|short|int|long|float|double|void|signed|unsigned)(?: |\b))+[*& ]*"
    r"|-?[0-9]+[uUlL]*|true|false"
)


def simplified(kernel: str) -> str:
    """A demangled name as ncu's pages print it: without namespaces, and without the types of a template's numbers.

    Examples
    --------
    >>> simplified("void at::native::fill<(int)4, std::array<char *, (unsigned long)1>>(int, T2)")
    'void fill<4, array<char *, 1>>(int, T2)'
    """
    return _CAST.sub("", _SCOPE.sub("", _UNNAMED.sub("", kernel)))


def short_name(kernel: str) -> str:
    """A demangled name without what it returns and takes; of a long one without namespaces, too, and of its template
    arguments what tells kernels apart: names before numbers and plain types.

    Examples
    --------
    >>> short_name("void ns::copy<float4, (int)4>(const float4 *, float4 *, unsigned long)")
    'ns::copy<float4, (int)4>'
    >>> short_name("ampere_sgemm_128x64_tn")
    'ampere_sgemm_128x64_tn'
    >>> short_name("void at::vectorized_elementwise_kernel<4, at::FillFunctor<float>, std::array<char*, 1>>(int)")
    'vectorized_elementwise_kernel<4, FillFunctor<float>, ...>'
    """
    name = _UNNAMED.sub(_MARK, kernel[:_READ].replace(_MARK, ""))
    name = _without_returned(name.removesuffix(" [clone .kd]").strip())
    bare = _before(name, "(")
    if _MARK in bare:
        bare = bare[max((at + 1 for at in _places(bare, _MARK)), default=0) :].replace(_MARK, "")
    if len(bare) > _LONGEST and "<" in bare:
        bare = _fitted(bare)
    if len(bare) > _LONGEST:
        bare = f"{bare[: _LONGEST - 3]}..."
    return bare or kernel[:_LONGEST]


def _fitted(name: str) -> str:
    """A long name with as many of its template arguments as there is room for."""
    plain = simplified(name)
    if len(plain) <= _LONGEST:
        return plain
    head, given = _arguments(plain)
    named = [one for one in given if not _PLAIN.fullmatch(one)]
    fits = ""
    for listed in (given, named, [_named(one) for one in named]) if named else ():
        more = f"{head}<{', '.join(listed)}{', ...' if len(listed) < len(given) else ''}>"
        count = next((at for at, one in enumerate(listed, start=1) if not _PLAIN.fullmatch(one)), 1)
        while len(more) > _LONGEST and len(made := f"{head}<{', '.join(listed[:count])}, ...>") <= _LONGEST:
            fits, count = made, count + 1
        if len(more) <= _LONGEST:
            return more
        if fits:
            return fits
    return f"{head or _before(plain, '<')}<...>"


def _arguments(name: str) -> tuple[str, list[str]]:
    """A name before its template arguments, and these; nothing of a name that does not end with them."""
    head = _before(name, "<")
    if not (name.startswith(f"{head}<") and name.endswith(">")):
        return "", []
    inside = name[len(head) + 1 : -1].strip()
    commas = list(_places(inside, ","))
    parts = zip([-1, *commas], [*commas, len(inside)], strict=True)
    return head, [inside[start + 1 : end].strip() for start, end in parts]


def _named(argument: str) -> str:
    """A template argument without numbers and plain types in it."""
    head, given = _arguments(argument)
    kept = [_named(one) for one in given if not _PLAIN.fullmatch(one)]
    return f"{head}<{', '.join(kept)}>" if kept else head or argument


def _places(name: str, signs: str) -> Iterator[int]:
    """Where signs (brackets, blanks, commas) stand within no brackets; an opening one is outside of its own."""
    depth = 0
    for found in _SIGNS.finditer(name):
        letter = found[0]
        if not depth and letter in signs:
            yield found.start()
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING and depth:
            depth -= 1


def _outside(name: str) -> str:
    """What of a name is within no brackets."""
    parts: list[str] = []
    depth = start = 0
    for found in _SIGNS.finditer(name):
        if found[0] in _OPENING:
            if not depth:
                parts.append(name[start : found.start()])
            depth += 1
        elif found[0] in _CLOSING and depth:
            depth -= 1
            start = found.end()
    return "".join(parts if depth else [*parts, name[start:]])


def _before(name: str, sign: str) -> str:
    """A name up to the first `sign` that is within no brackets."""
    return name[: next((at for at in _places(name, sign) if at), len(name))].rstrip()


def _without_returned(name: str) -> str:
    """A name without the type before it: what ends at the last blank outside of brackets, before its parameters."""
    head = _before(name, "(")
    if "operator" in head and "operator" in _outside(head):
        return name
    return name[max((at + 1 for at in _places(head, " ")), default=0) :]
