"""Read what users type: names, numbers, sizes, ranges, paths; suggest the nearest name."""

import math
import operator
import os
import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

_SUFFIXES = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
}

_COUNT = re.compile(r"([+-]?[0-9]+(?:_[0-9]+)*)\s*([A-Za-z]*)")

_RANGE = re.compile(r"([^.:]*)\.\.([^.:]*):\s*([x+])([^.:]*)")

MOST_IN_RANGE = 10_000  # values: more is a slip

_MOST_OF_RANGES = 100_000  # values of a list's ranges together

_MOST_DIGITS = 1000  # int() refuses some thousands in words of its own

MOST_MEASURED = 1e100

_MOST_NAMES = 100  # that a message lists

_LONGEST_QUOTE = 200  # characters of what was given that a message repeats

# What a terminal obeys instead of showing it, what turns a line around, and what XML has no letters for.
_UNSHOWN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def escape_controls(text: str) -> str:
    """The same text with control characters spelt out, so that it can be shown whoever wrote it; lines stay lines.

    Examples
    --------
    >>> to_ascii("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def quote_text(given: object) -> str:
    """What was given as a message repeats it: so that it can be shown, in one line of a bounded length."""
    text = escape_controls(str(given)).replace("\n", "\\n")
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}\u2026 ({len(text)} characters)"


def nearest_name(given: str, allowed: Iterable[str], *, likeness: float) -> str | None:
    """The allowed name most like the given one, if any is as like as that (0 to 1, difflib's ratio)."""
    import difflib

    return next(iter(difflib.get_close_matches(given, list(allowed), n=1, cutoff=likeness)), None)


_MOST_ALIKE = 12

_HARDLY_LESS = 0.1  # alike, of two letters' order: then the numbers decide

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def _by_numbers(typed: str, names: list[str]) -> list[str]:
    """Names that resemble what was typed, the nearest first: of those that hardly differ in that, by their numbers.

    Of 70B and 8B it is 8B that somebody means who types 7B, though 70B has more letters of it.
    """
    import difflib

    asked = [float(number) for number in _NUMBER.findall(typed)]
    if not asked or not names:
        return names

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, name, typed).ratio()

    def apart(name: str) -> float:
        own = [float(number) for number in _NUMBER.findall(name)]
        pairs = list(zip(own, asked, strict=False))
        return sum(abs(math.log1p(one) - math.log1p(other)) for one, other in pairs) if pairs else math.inf

    least = likeness(names[0]) - _HARDLY_LESS
    near = [name for name in names if likeness(name) >= least]
    return sorted(near, key=apart) + names[len(near) :]


def describe_unknown(
    kind: str, given: object, allowed: Iterable[str], *, where: str = "", see: str = "", meant: str | None = None
) -> str:
    """One sentence for a name that is not known; of names too many for it the nearest three, and where to `see` all.

    What was typed begins up to three names: all of them are offered. `meant` is offered instead of what is spelt alike,
    "" instead of anything.

    Examples
    --------
    >>> unknown("precision", "fp61", ["fp32", "fp16"])
    "unknown precision 'fp61': did you mean 'fp16'? Allowed: fp32, fp16"
    >>> unknown("precision", "fp8", ["fp32", "fp16", "fp8_e4m3"])
    "unknown precision 'fp8': did you mean 'fp8_e4m3'? Allowed: fp32, fp16, fp8_e4m3"
    >>> unknown("precision", "int4", ["int8", "q4_0"], meant="q4_0")
    "unknown precision 'int4': did you mean 'q4_0'? Allowed: int8, q4_0"
    >>> unknown("device", "h100", ["H100-PCIe", "H100-SXM", "H200"])
    "unknown device 'h100': did you mean 'H100-PCIe' or 'H100-SXM'? Allowed: H100-PCIe, H100-SXM, H200"
    >>> unknown("column", "tims", ["time", "times", "case"], see="bwprof columns")
    "unknown column 'tims': did you mean 'times' or 'time'? All 3: bwprof columns"
    """
    import difflib

    choices = list(allowed)
    lowered = {choice.lower(): choice for choice in choices}
    typed = str(given)[:_LONGEST_QUOTE].lower()
    begun = [name for name in lowered if typed and name.startswith(typed)]
    alike = _by_numbers(typed, difflib.get_close_matches(typed, lowered, _MOST_ALIKE, cutoff=0.5))[: 3 if see else 1]
    begun = [name for name in begun if not any(name != other and name.startswith(other) for other in begun)]
    first = 1 if see else 3
    several = [*dict.fromkeys(begun[:first] + alike)][: 3 if see else max(1, len(begun[:first]))]
    near = [f"'{quote_text(lowered[name])}'" for name in several] if meant is None else [f"'{meant}'"] if meant else []
    hint = f"did you mean {join_words(near, 'or')}? " if near else ""
    prefix = f"{where}: " if where else ""
    listed_all = ", ".join(map(quote_text, choices[:_MOST_NAMES])) or "(none)"
    more = f" and {len(choices) - _MOST_NAMES} more" if choices[_MOST_NAMES:] else ""
    told = f"All {len(choices)}: {see}" if see else f"Allowed: {listed_all}{more}"
    return f"{prefix}unknown {kind} '{quote_text(given)}': {hint}{told}"


def repr_short(value: Any) -> str:
    """A value's repr for a message, in a line of at most 80 letters; int() refuses to write thousands of digits."""
    try:
        said = escape_controls(" ".join(repr(value).splitlines()))
    except ValueError:
        return f"an {type(value).__name__} of too many digits"
    return said if len(said) <= 80 else said[:77] + "..."


def check_frame(data: Any, name: str = "") -> None:
    """ValueError for a frame whose columns have several levels, or two of which have one name."""
    said = f"{name}: " if name else ""
    if data.columns.nlevels > 1:
        raise ValueError(
            f"{said}columns have {data.columns.nlevels} levels of names, one is needed: frame.columns.droplevel(...)"
        )
    if not data.columns.is_unique:
        twice = data.columns[data.columns.duplicated()][0]
        raise ValueError(f"{said}columns must have names of their own: '{twice}' is there twice")


def check_mapping(given: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """What was given for a mapping from names to values, {} for None; TypeError for anything else."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise TypeError(f"{name} is {repr_short(given)}: a mapping from names to values is needed")
    return given


def merge_keywords(given: Mapping[str, Any] | None, keywords: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The same with what came as keywords; ValueError for a name that is in both."""
    whole = check_mapping(given, name)
    twice = [key for key in keywords if key in whole]
    if twice:
        raise ValueError(f"{twice[0]} is given twice: in {name}= and as {twice[0]}=")
    return {**whole, **keywords}


def parse_path(given: Any, name: str) -> Path:
    """A path; TypeError with `name` for what is none, ValueError for one that no file can have."""
    if not isinstance(given, (str, PathLike)) or not isinstance(os.fspath(given), str):
        raise TypeError(f"{name} is {repr_short(given)}: a path is needed")
    if os.fspath(given) == "":
        raise ValueError(f"{name} is '': a path is needed")
    if "\0" in os.fspath(given):
        raise ValueError(f"{name} is {repr_short(given)}: no path has a NUL in it")
    try:
        os.fsencode(given)
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {repr_short(given)}: no path has such a character in it") from None
    return Path(given)


def list_items(given: Any, name: str, what: str) -> list[Any]:
    """What an iterable holds; TypeError with `name` for what is none, and for `what` is needed."""
    try:
        return list(given)
    except TypeError:
        raise TypeError(f"{name} is {repr_short(given)}: {what}") from None


def parse_names(name: str, value: Any) -> tuple[str, ...]:
    """Names as people give them: an iterable of them, or one text with commas; none for None.

    Raises
    ------
    ValueError
        For an empty list, and for what is no name.
    """
    if value is None:
        return ()
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    found = tuple(
        word.strip() if isinstance(word, str) else word for word in list_items(given, name, "names are needed")
    )
    if not found:
        raise ValueError(f"{name} is {repr_short(value)}: at least one name is needed")
    for word in found:
        if not isinstance(word, str) or not word:
            raise ValueError(f"{name} is {repr_short(value)}: names are needed")
    return found


def parse_count(text: str, name: str) -> int:
    """A whole number with an optional suffix: k, M, G are powers of 1000, Ki, Mi, Gi powers of 1024.

    Raises
    ------
    ValueError
        For anything else; the message carries `name`.

    Examples
    --------
    >>> parse_count("4Ki", "kv_len")
    4096
    """
    match = _COUNT.fullmatch(text.strip())
    factor = _SUFFIXES.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ValueError(
            f"{name}: '{quote_text(text)}' is not a whole number (suffixes k, M, G, Ki, Mi, Gi are allowed)"
        )
    if len(match.group(1)) > _MOST_DIGITS:
        raise ValueError(f"{name}: a number of {len(match.group(1))} digits does not fit in 64 bits")
    return int(match.group(1)) * factor


def parse_int(value: Any, name: str, *, flag: bool = False) -> int:
    """An int from any whole number, NumPy's too, and from text as `parse_count` reads it; else ValueError with `name`.

    True and False are none, unless it is a `flag`, which is 0 or 1.

    Examples
    --------
    >>> whole_number("4Ki", "kv_len")
    4096
    """
    if isinstance(value, str):
        return parse_count(value, name)
    if is_bool(value) and flag:
        return int(bool(value))
    try:
        found = None if is_bool(value) else operator.index(value)
    except TypeError:
        found = None
    if found is None:
        raise ValueError(f"{name} is {repr_short(value)}, a whole number is needed")
    return found


def as_list(value: Any, name: str) -> list[Any]:
    """One value, or what an iterable holds; ValueError for bytes, whose values are no numbers that anybody wrote.

    Examples
    --------
    >>> as_list(3, "M"), as_list("4Ki", "M"), as_list(range(2), "M")
    ([3], ['4Ki'], [0, 1])
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError(f"{name} is {repr_short(value)}: a whole number is needed, or a list of them")
    if isinstance(value, str):
        return [value]
    try:
        return list(value)
    except TypeError:  # one number, NumPy's scalars and arrays without a dimension among them
        return [value]


def is_range(value: object) -> bool:
    """Whether a value is text that `counts` reads as a range, or as an attempt at one."""
    return isinstance(value, str) and ".." in value


def parse_counts(text: str, name: str) -> tuple[int, ...]:
    """The whole numbers that a text names: one, as `parse_count` reads it, or a range.

    "A..B:xF" multiplies by F, "A..B:+S" adds S, from A on. B itself is among them where the steps meet it; nothing is
    beyond it.

    Raises
    ------
    ValueError
        For anything else, a range that runs backwards or stands still, one of more than 10 000 values, and ends that
        do not fit in 64 bits; the message carries `name`.

    Examples
    --------
    >>> counts("4Ki", "kv_len"), counts("128..1Ki:x2", "kv_len"), counts("1..20:+8", "M")
    ((4096,), (128, 256, 512, 1024), (1, 9, 17))
    """
    if not is_range(text):
        return (parse_count(text, name),)
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{name}: '{quote_text(text)}' is not a range: START..END:xFACTOR or START..END:+STEP is needed"
        )
    start, end, step = (parse_count(match[group], name) for group in (1, 2, 4))
    multiplies = match[3] == "x"
    least_start, least_step = (1, 2) if multiplies else (0, 1)
    said = f"{name}: the range '{quote_text(text)}'"
    if start < least_start:
        raise ValueError(f"{said} starts at {repr_short(start)}: allowed is {least_start} or more")
    if step < least_step:
        what = "multiplies by" if multiplies else "adds"
        raise ValueError(f"{said} {what} {repr_short(step)}: allowed is {least_step} or more")
    if end < start:
        raise ValueError(f"{said} ends before it starts: the smaller number comes first")
    if end >= 2**63:
        raise ValueError(f"{said} ends at a number that does not fit in 64 bits")
    if not multiplies:
        count = (end - start) // step + 1
        if count > MOST_IN_RANGE:
            raise ValueError(f"{said} holds {count} values: allowed are {MOST_IN_RANGE}")
        return tuple(range(start, end + 1, step))
    found = [start]
    while found[-1] * step <= end:
        found.append(found[-1] * step)
    return tuple(found)


def expand_ranges(items: Iterable[Any], name: str) -> list[Any]:
    """A list with its texts as the numbers that they stand for (see `counts`); all else in it stays as it is.

    Examples
    --------
    >>> expand_ranges([1, "2..8:x2", "4Ki"], "M")
    [1, 2, 4, 8, 4096]
    """
    found: list[Any] = []
    of_ranges = 0
    for item in items:
        values = parse_counts(item, name) if isinstance(item, str) else (item,)
        found += values
        of_ranges += len(values) if is_range(item) else 0
        if of_ranges > _MOST_OF_RANGES:
            raise ValueError(f"{name}: the list's ranges hold more than {_MOST_OF_RANGES} values together")
    return found


def parse_bytes(value: Any, name: str) -> int:
    """An int from 0 to 2^63 - 1, of bytes or operations; ValueError with `name` for anything else."""
    found = -1 if is_bool(value) else parse_int(value, name)
    if not 0 <= found < 2**63:
        raise ValueError(f"{name} is {repr_short(value)}: allowed is a whole number from 0 to 2^63 - 1")
    return found


def is_bool(value: object) -> bool:
    """Whether a value is True or False, NumPy's too."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def parse_bool(value: Any, name: str) -> bool:
    """True or False; TypeError with `name` for anything else, which would be taken for True."""
    if not is_bool(value):
        raise TypeError(f"{name} is {repr_short(value)}: allowed are True and False")
    return bool(value)


def parse_name(value: Any, name: str) -> str:
    """A text; TypeError with `name` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {repr_short(value)}: a str is needed")
    return value


def finite_or_none(value: Any) -> float | None:
    """A finite number, NumPy's too, as a float; None for anything else: text, truth, what no float reaches."""
    if is_bool(value) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        return None
    try:
        found = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def measured_or_none(value: Any) -> float | None:
    """A finite number that may have been measured: 0, or between 1e-100 and 1e100; None for anything else.

    What is further off is damage, and its squares and ratios are no floats.
    """
    found = finite_or_none(value)
    return found if found is None or found == 0 or 1 / MOST_MEASURED <= abs(found) <= MOST_MEASURED else None


def measured_or_nan(value: Any) -> float:
    """The same, with NaN for anything else."""
    if value is None:
        return math.nan
    if type(value) is float:  # the quick way for most
        return value if value == 0 or 1 / MOST_MEASURED <= abs(value) <= MOST_MEASURED else math.nan
    found = measured_or_none(value)
    return math.nan if found is None else found


def parse_seconds(value: Any, name: str, *, from_zero: bool = False, text: bool = False) -> float:
    """A time limit: a positive number, or one from 0 on; ValueError with `name` for anything else.

    `text`: as a command line has it.

    Examples
    --------
    >>> parse_seconds(0, "max_seconds", from_zero=True), parse_seconds("2.5", "--max-seconds", text=True)
    (0.0, 2.5)
    """
    found = finite_or_none(number_or_nan(value) if text else value)
    if found is None or found < 0 or (found == 0 and not from_zero):
        needed = "a number of seconds from 0 on" if from_zero else "a positive number of seconds"
        raise ValueError(f"{name} is {repr_short(value)}: {needed} is needed")
    return found


def parse_fraction(value: Any, name: str) -> float:
    """A number between 0 and 1, as text too, and as a percentage ("2%"); ValueError with `name` for anything else.

    Examples
    --------
    >>> parse_fraction(0.02, "rel_ci"), parse_fraction("2%", "rel_ci")
    (0.02, 0.02)
    """
    if isinstance(value, str):
        percent = value.strip().endswith("%")
        found = finite_or_none(number_or_nan(value.strip().removesuffix("%")) / (100 if percent else 1))
    else:
        found = finite_or_none(value)
    if found is None or not 0 < found < 1:
        raise ValueError(
            f"{name} is {repr_short(value)}: allowed is a fraction between 0 and 1, such as 0.005 or '0.5%'"
        )
    return found


def number_or_nan(text: str) -> float:
    """What a text says; NaN where that is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def join_words(words: list[str], last: str = "and") -> str:
    """Return words as a sentence lists them.

    Examples
    --------
    >>> and_text(["a", "b", "c"]), and_text(["a"])
    ('a, b and c', 'a')
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
