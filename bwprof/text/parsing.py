"""Parse what users type: names, numbers, sizes, ranges and paths; suggest the nearest name."""

import math
import operator
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_COUNT = re.compile(r"([+-]?[0-9]+(?:_[0-9]+)*)\s*([A-Za-z]*)")
_RANGE = re.compile(r"([^.:]*)\.\.([^.:]*):\s*([x+])([^.:]*)")
MOST_IN_RANGE = 10_000  # values
_MOST_OF_RANGES = 100_000  # values of a list's ranges together
_MOST_DIGITS = 1000  # int() refuses longer texts with a message of its own
MOST_MEASURED = 1e100  # squares and ratios of such numbers are finite
_MOST_NAMES = 100  # in a message
_LONGEST_QUOTE = 200  # characters of a value that a message repeats

# Control characters, characters that change the direction of writing, and those that XML does not allow.
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def escape_controls(text: str) -> str:
    """Replace control characters by escape sequences; newlines stay."""
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def quote_text(value: object) -> str:
    """Return a value's text for a message: printable, one line, at most 200 characters of it."""
    text = escape_controls(str(value)).replace("\n", "\\n")
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}\u2026 ({len(text)} characters)"


def repr_short(value: Any) -> str:
    """Return a value's repr for a message: printable, one line, at most 80 characters."""
    try:
        text = escape_controls(" ".join(repr(value).splitlines()))
    except ValueError:  # Python writes no int of thousands of digits
        return f"an {type(value).__name__} of too many digits"
    return text if len(text) <= 80 else text[:77] + "..."


def nearest_name(name: str, allowed: Iterable[str], *, likeness: float) -> str | None:
    """Return the allowed name that is most similar; None if none reaches `likeness` (0 to 1, difflib's ratio)."""
    import difflib  # late: most commands know their words

    return next(iter(difflib.get_close_matches(name, list(allowed), n=1, cutoff=likeness)), None)


def _similar_names(typed: str, allowed: list[str], *, several: bool) -> list[str]:
    """Return the names that were probably meant: those that begin as typed, and the nearest one, or three."""
    import difflib

    lowered = {name.lower(): name for name in allowed}
    typed = typed[:_LONGEST_QUOTE].lower()
    longer = [name for name in lowered if typed and name.startswith(typed)]
    longer = [name for name in longer if not any(name != other and name.startswith(other) for other in longer)]
    longer = longer[: 1 if several else 3]
    similar = difflib.get_close_matches(typed, lowered, 3 if several else 1, cutoff=0.5)
    names = list(dict.fromkeys(longer + similar))[: 3 if several else max(1, len(longer))]
    return [lowered[name] for name in names]


def describe_unknown(
    kind: str, name: object, allowed: Iterable[str], *, where: str = "", see: str = "", meant: str | None = None
) -> str:
    """Return the message for an unknown name of a kind: the name, similar names, and the allowed ones.

    `where` is a prefix, such as a file; `see` the command that lists all names, if they are too many for a message;
    `meant` the suggestion instead of the most similar names, "" for none.

    Examples
    --------
    >>> describe_unknown("precision", "fp61", ["fp32", "fp16"])
    "unknown precision 'fp61': did you mean 'fp16'? Allowed: fp32, fp16"
    """
    names = list(allowed)
    near = _similar_names(str(name), names, several=bool(see)) if meant is None else [meant] if meant else []
    quoted = [f"'{quote_text(word)}'" for word in near]
    hint = f"did you mean {join_words(quoted, 'or')}? " if near else ""
    more = f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else ""
    choices = f"Allowed: {', '.join(map(quote_text, names[:_MOST_NAMES])) or '(none)'}{more}"
    if see:
        choices = f"All {len(names)}: {see}"
    return f"{where}{': ' if where else ''}unknown {kind} '{quote_text(name)}': {hint}{choices}"


def join_words(words: list[str], last: str = "and") -> str:
    """Join words as in a sentence: a, b and c."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def check_frame(data: Any, name: str = "") -> None:
    """Raise ValueError for a frame whose columns have several levels, or equal names."""
    prefix = f"{name}: " if name else ""
    if data.columns.nlevels > 1:
        raise ValueError(
            f"{prefix}columns have {data.columns.nlevels} levels of names, one is needed: frame.columns.droplevel(...)"
        )
    if not data.columns.is_unique:
        twice = data.columns[data.columns.duplicated()][0]
        raise ValueError(f"{prefix}columns must have names of their own: '{twice}' is there twice")


def check_mapping(value: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """Return a mapping from names to values, {} for None; TypeError for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"{name} is {repr_short(value)}: a mapping from names to values is needed")
    return value


def merge_keywords(value: Mapping[str, Any] | None, keywords: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Merge a mapping argument and keyword arguments; ValueError for a name in both."""
    mapping = check_mapping(value, name)
    twice = [key for key in keywords if key in mapping]
    if twice:
        raise ValueError(f"{twice[0]} is given twice: in {name}= and as {twice[0]}=")
    return {**mapping, **keywords}


def parse_path(value: Any, name: str) -> Path:
    """Return a path; TypeError for another type, ValueError for a path that no file can have."""
    if not isinstance(value, (str, PathLike)) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} is {repr_short(value)}: a path is needed")
    text = os.fspath(value)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        text = ""
    if not text or "\0" in text:
        raise ValueError(f"{name} is {repr_short(value)}: no file has such a path")
    return Path(text)


def list_items(value: Any, name: str, what: str) -> list[Any]:
    """Return the items of an iterable; TypeError, which says `what` is needed, for anything else."""
    try:
        return list(value)
    except TypeError:
        raise TypeError(f"{name} is {repr_short(value)}: {what}") from None


def parse_names(name: str, value: Any) -> tuple[str, ...]:
    """Return names from an iterable, or from one text with commas; () for None.

    Raise ValueError for an empty list, and for anything but names.
    """
    if value is None:
        return ()
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    names = tuple(
        item.strip() if isinstance(item, str) else item for item in list_items(items, name, "names are needed")
    )
    if not names or not all(isinstance(item, str) and item for item in names):
        raise ValueError(f"{name} is {repr_short(value)}: names are needed")
    return names


def parse_count(text: str, name: str) -> int:
    """Return a whole number from text: k, M, G are powers of 1000, Ki, Mi, Gi powers of 1024.

    Raise ValueError for other text; the message has `name`.
    """
    match = _COUNT.fullmatch(text.strip())
    factor = _SUFFIXES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(
            f"{name}: '{quote_text(text)}' is not a whole number (suffixes k, M, G, Ki, Mi, Gi are allowed)"
        )
    if len(match[1]) > _MOST_DIGITS:
        raise ValueError(f"{name}: a number of {len(match[1])} digits does not fit in 64 bits")
    return int(match[1]) * factor


def parse_int(value: Any, name: str, *, flag: bool = False) -> int:
    """Return an int from a whole number (NumPy's too) or from text; True and False only for a `flag`, as 1 and 0.

    Raise ValueError for anything else; the message has `name`.
    """
    if isinstance(value, str):
        return parse_count(value, name)
    if is_bool(value) and flag:
        return int(bool(value))
    with suppress(TypeError):
        if not is_bool(value):
            return operator.index(value)
    raise ValueError(f"{name} is {repr_short(value)}, a whole number is needed")


def as_list(value: Any, name: str) -> list[Any]:
    """Return the items of an iterable, or a list of one value, such as text; ValueError for bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError(f"{name} is {repr_short(value)}: a whole number is needed, or a list of them")
    if isinstance(value, str):
        return [value]
    try:
        return list(value)
    except TypeError:  # a number, a NumPy scalar, or an array without a dimension
        return [value]


def is_range(value: object) -> bool:
    """Return whether a value is the text of a range, right or wrong."""
    return isinstance(value, str) and ".." in value


def parse_counts(text: str, name: str) -> tuple[int, ...]:
    """Return the whole numbers of a text: one number, or a range.

    "A..B:xF" multiplies by F and "A..B:+S" adds S, from A up to at most B. Raise ValueError for other text, an empty or
    endless range, one of more than 10 000 values, and ends beyond 64 bits.

    Examples
    --------
    >>> parse_counts("4Ki", "kv_len"), parse_counts("128..1Ki:x2", "kv_len"), parse_counts("1..20:+8", "M")
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
    least_start, least_step, verb = (1, 2, "multiplies by") if match[3] == "x" else (0, 1, "adds")
    count = 1 if match[3] == "x" else (end - start) // max(step, 1) + 1
    for is_wrong, what in (
        (start < least_start, f"starts at {repr_short(start)}: allowed is {least_start} or more"),
        (step < least_step, f"{verb} {repr_short(step)}: allowed is {least_step} or more"),
        (end < start, "ends before it starts: the smaller number comes first"),
        (end >= 2**63, "ends at a number that does not fit in 64 bits"),
        (count > MOST_IN_RANGE, f"holds {count} values: allowed are {MOST_IN_RANGE}"),
    ):
        if is_wrong:
            raise ValueError(f"{name}: the range '{quote_text(text)}' {what}")
    if match[3] == "+":
        return tuple(range(start, end + 1, step))
    values = [start]
    while values[-1] * step <= end:
        values.append(values[-1] * step)
    return tuple(values)


def expand_ranges(items: Iterable[Any], name: str) -> list[Any]:
    """Replace texts in a list by their numbers (see `parse_counts`); other items stay."""
    expanded: list[Any] = []
    of_ranges = 0
    for item in items:
        values = parse_counts(item, name) if isinstance(item, str) else (item,)
        expanded += values
        of_ranges += len(values) if is_range(item) else 0
        if of_ranges > _MOST_OF_RANGES:
            raise ValueError(f"{name}: the list's ranges hold more than {_MOST_OF_RANGES} values together")
    return expanded


def parse_bytes(value: Any, name: str) -> int:
    """Return bytes or operations as an int from 0 to 2^63 - 1; ValueError for anything else."""
    number = -1 if is_bool(value) else parse_int(value, name)
    if not 0 <= number < 2**63:
        raise ValueError(f"{name} is {repr_short(value)}: allowed is a whole number from 0 to 2^63 - 1")
    return number


def is_bool(value: object) -> bool:
    """Return whether a value is True or False, NumPy's too."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def parse_bool(value: Any, name: str) -> bool:
    """Return True or False; TypeError for anything else."""
    if not is_bool(value):
        raise TypeError(f"{name} is {repr_short(value)}: allowed are True and False")
    return bool(value)


def parse_name(value: Any, name: str) -> str:
    """Return a str; TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {repr_short(value)}: a str is needed")
    return value


def finite_or_none(value: Any) -> float | None:
    """Return a finite number (NumPy's too) as a float; None for anything else, text and booleans included."""
    if is_bool(value) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        return None
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def measured_or_none(value: Any) -> float | None:
    """Return a number that a measurement can give: 0, or 1e-100 to 1e100 in size; None for anything else."""
    number = finite_or_none(value)
    return number if number is None or number == 0 or 1 / MOST_MEASURED <= abs(number) <= MOST_MEASURED else None


def measured_or_nan(value: Any) -> float:
    """Return the same, with NaN for anything else."""
    if value is None:
        return math.nan
    if type(value) is float:  # faster, and the most frequent type
        return value if value == 0 or 1 / MOST_MEASURED <= abs(value) <= MOST_MEASURED else math.nan
    number = measured_or_none(value)
    return math.nan if number is None else number


def parse_seconds(value: Any, name: str, *, from_zero: bool = False, text: bool = False) -> float:
    """Return a time limit in seconds: positive, or 0 with `from_zero`; ValueError for anything else.

    `text` allows a command line's text.
    """
    seconds = finite_or_none(number_or_nan(value) if text else value)
    if seconds is None or seconds < 0 or (seconds == 0 and not from_zero):
        needed = "a number of seconds from 0 on" if from_zero else "a positive number of seconds"
        raise ValueError(f"{name} is {repr_short(value)}: {needed} is needed")
    return seconds


def parse_fraction(value: Any, name: str) -> float:
    """Return a number between 0 and 1, also from text and from percents ("2%"); ValueError for anything else."""
    fraction = finite_or_none(value)
    if isinstance(value, str):
        number = number_or_nan(value.strip().removesuffix("%"))
        fraction = finite_or_none(number / 100 if value.strip().endswith("%") else number)
    if fraction is None or not 0 < fraction < 1:
        typed = "a share between 0% and 100%, such as 0.5%"  # on a command line
        allowed = typed if name.startswith("-") else "a fraction between 0 and 1, such as 0.005"
        raise ValueError(f"{name} is {repr_short(value)}: allowed is {allowed}")
    return fraction


def number_or_nan(text: str) -> float:
    """Return the number of a text; NaN for other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan
