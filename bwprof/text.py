"""Names and numbers as people type and read them: what a message says of one, the nearest right one, sizes, times."""

from __future__ import annotations

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
_LONGEST_NUMBER = 12  # characters of one in a table
_MOST_NAMES = 100  # that a message lists
_LONGEST_QUOTE = 200  # characters of what was given that a message repeats

_MARKUP = re.compile(r"[\\`*<\[\]]|(?<!\w)_|_(?!\w)")  # in a word _ is none

# What a terminal obeys instead of showing it, what turns a line around, and what XML has no letters for.
_UNSHOWN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def spelt(text: str) -> str:
    """The same text with control characters spelt out, so that it can be shown whoever wrote it; lines stay lines.

    Examples
    --------
    >>> spelt("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def as_markdown(text: str) -> str:
    """Text of others within a line of Markdown: what would be markup (a kernel's `<float>`, links) is shown.

    Examples
    --------
    >>> print(as_markdown("copy<float>(a*, b*)"))
    copy\\<float>(a\\*, b\\*)
    """
    return _MARKUP.sub(r"\\\g<0>", text)


def quoted(given: object) -> str:
    """What was given as a message repeats it: so that it can be shown, in one line of a bounded length."""
    text = spelt(str(given)).replace("\n", "\\n")
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}\u2026 ({len(text)} characters)"


def path_text(path: str | PathLike[str]) -> str:
    """Return a path as it is; one with bytes that are not UTF-8, or control characters, as bash reads it.

    Examples
    --------
    >>> print(path_text("results/run 1"), path_text("r\\udce9sultats"))
    results/run 1 $'r\\351sultats'
    """
    text = os.fspath(path)
    if not (_UNSHOWN.search(text) or "\n" in text):
        return text
    plain = text.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    return f"$'{_UNSHOWN.sub(_octal, plain)}'"


def _octal(found: re.Match[str]) -> str:
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(found[0]))


def nearest(given: str, allowed: Iterable[str], *, likeness: float) -> str | None:
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


def unknown(
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
    near = [f"'{quoted(lowered[name])}'" for name in several] if meant is None else [f"'{meant}'"] if meant else []
    hint = f"did you mean {and_text(near, 'or')}? " if near else ""
    prefix = f"{where}: " if where else ""
    listed_all = ", ".join(map(quoted, choices[:_MOST_NAMES])) or "(none)"
    more = f" and {len(choices) - _MOST_NAMES} more" if choices[_MOST_NAMES:] else ""
    told = f"All {len(choices)}: {see}" if see else f"Allowed: {listed_all}{more}"
    return f"{prefix}unknown {kind} '{quoted(given)}': {hint}{told}"


def shown(value: Any) -> str:
    """A value's repr for a message, in a line of at most 80 letters; int() refuses to write thousands of digits."""
    try:
        said = spelt(" ".join(repr(value).splitlines()))
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


def as_pandas(data: Any) -> Any:
    """Convert a frame of another library; leave anything else as it is. TypeError where a package of its is missing."""
    lazy = ["collect", "compute"] if type(data).__name__.endswith("Frame") else []
    names = ["to_pandas", "_to_pandas", "toPandas", *lazy]
    convert = next((name for name in names if callable(getattr(data, name, None))), "")
    if isinstance(data, type) or not convert or type(data).__module__.startswith("pandas."):
        return data
    try:
        made = getattr(data, convert)()
    except ImportError as error:
        said = f"{convert}() of {type(data).__module__}.{type(data).__qualname__} fails: {quoted(error)}"
        raise TypeError(f"{said}; install it, or hand over a pandas.DataFrame") from error
    return as_pandas(made) if convert == "collect" else made


def pandas_frame(data: Any) -> Any:
    """Take a pandas.DataFrame, or what `as_pandas` makes one; TypeError for anything else, ValueError for its names."""
    import pandas as pd

    found = as_pandas(data)
    if not isinstance(found, pd.DataFrame):
        kind = f"{type(found).__module__}.{type(found).__qualname__}".removeprefix("builtins.")
        raise TypeError(f"a pandas.DataFrame is needed, not {kind}; bwprof.load reads one from a file")
    check_frame(found)
    return found


def mapping(given: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """What was given for a mapping from names to values, {} for None; TypeError for anything else."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise TypeError(f"{name} is {shown(given)}: a mapping from names to values is needed")
    return given


def merged(given: Mapping[str, Any] | None, keywords: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The same with what came as keywords; ValueError for a name that is in both."""
    whole = mapping(given, name)
    twice = [key for key in keywords if key in whole]
    if twice:
        raise ValueError(f"{twice[0]} is given twice: in {name}= and as {twice[0]}=")
    return {**whole, **keywords}


def path_of(given: Any, name: str) -> Path:
    """A path; TypeError with `name` for what is none, ValueError for one that no file can have."""
    if not isinstance(given, (str, PathLike)) or not isinstance(os.fspath(given), str):
        raise TypeError(f"{name} is {shown(given)}: a path is needed")
    if os.fspath(given) == "":
        raise ValueError(f"{name} is '': a path is needed")
    if "\0" in os.fspath(given):
        raise ValueError(f"{name} is {shown(given)}: no path has a NUL in it")
    try:
        os.fsencode(given)
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {shown(given)}: no path has such a character in it") from None
    return Path(given)


def listed(given: Any, name: str, what: str) -> list[Any]:
    """What an iterable holds; TypeError with `name` for what is none, and for `what` is needed."""
    try:
        return list(given)
    except TypeError:
        raise TypeError(f"{name} is {shown(given)}: {what}") from None


def words(name: str, value: Any) -> tuple[str, ...]:
    """Names as people give them: an iterable of them, or one text with commas; none for None.

    Raises
    ------
    ValueError
        For an empty list, and for what is no name.
    """
    if value is None:
        return ()
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    found = tuple(word.strip() if isinstance(word, str) else word for word in listed(given, name, "names are needed"))
    if not found:
        raise ValueError(f"{name} is {shown(value)}: at least one name is needed")
    for word in found:
        if not isinstance(word, str) or not word:
            raise ValueError(f"{name} is {shown(value)}: names are needed")
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
        raise ValueError(f"{name}: '{quoted(text)}' is not a whole number (suffixes k, M, G, Ki, Mi, Gi are allowed)")
    if len(match.group(1)) > _MOST_DIGITS:
        raise ValueError(f"{name}: a number of {len(match.group(1))} digits does not fit in 64 bits")
    return int(match.group(1)) * factor


def whole_number(value: Any, name: str, *, flag: bool = False) -> int:
    """An int from any whole number, NumPy's too, and from text as `parse_count` reads it; else ValueError with `name`.

    True and False are none, unless it is a `flag`, which is 0 or 1.

    Examples
    --------
    >>> whole_number("4Ki", "kv_len")
    4096
    """
    if isinstance(value, str):
        return parse_count(value, name)
    if is_truth(value) and flag:
        return int(bool(value))
    try:
        found = None if is_truth(value) else operator.index(value)
    except TypeError:
        found = None
    if found is None:
        raise ValueError(f"{name} is {shown(value)}, a whole number is needed")
    return found


def several(value: Any, name: str) -> list[Any]:
    """One value, or what an iterable holds; ValueError for bytes, whose values are no numbers that anybody wrote.

    Examples
    --------
    >>> several(3, "M"), several("4Ki", "M"), several(range(2), "M")
    ([3], ['4Ki'], [0, 1])
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError(f"{name} is {shown(value)}: a whole number is needed, or a list of them")
    if isinstance(value, str):
        return [value]
    try:
        return list(value)
    except TypeError:  # one number, NumPy's scalars and arrays without a dimension among them
        return [value]


def is_range(value: object) -> bool:
    """Whether a value is text that `counts` reads as a range, or as an attempt at one."""
    return isinstance(value, str) and ".." in value


def counts(text: str, name: str) -> tuple[int, ...]:
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
        raise ValueError(f"{name}: '{quoted(text)}' is not a range: START..END:xFACTOR or START..END:+STEP is needed")
    start, end, step = (parse_count(match[group], name) for group in (1, 2, 4))
    multiplies = match[3] == "x"
    least_start, least_step = (1, 2) if multiplies else (0, 1)
    said = f"{name}: the range '{quoted(text)}'"
    if start < least_start:
        raise ValueError(f"{said} starts at {shown(start)}: allowed is {least_start} or more")
    if step < least_step:
        what = "multiplies by" if multiplies else "adds"
        raise ValueError(f"{said} {what} {shown(step)}: allowed is {least_step} or more")
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


def spread(items: Iterable[Any], name: str) -> list[Any]:
    """A list with its texts as the numbers that they stand for (see `counts`); all else in it stays as it is.

    Examples
    --------
    >>> spread([1, "2..8:x2", "4Ki"], "M")
    [1, 2, 4, 8, 4096]
    """
    found: list[Any] = []
    of_ranges = 0
    for item in items:
        values = counts(item, name) if isinstance(item, str) else (item,)
        found += values
        of_ranges += len(values) if is_range(item) else 0
        if of_ranges > _MOST_OF_RANGES:
            raise ValueError(f"{name}: the list's ranges hold more than {_MOST_OF_RANGES} values together")
    return found


def amount(value: Any, name: str) -> int:
    """An int from 0 to 2^63 - 1, of bytes or operations; ValueError with `name` for anything else."""
    found = -1 if is_truth(value) else whole_number(value, name)
    if not 0 <= found < 2**63:
        raise ValueError(f"{name} is {shown(value)}: allowed is a whole number from 0 to 2^63 - 1")
    return found


def is_truth(value: object) -> bool:
    """Whether a value is True or False, NumPy's too."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def truth(value: Any, name: str) -> bool:
    """True or False; TypeError with `name` for anything else, which would be taken for True."""
    if not is_truth(value):
        raise TypeError(f"{name} is {shown(value)}: allowed are True and False")
    return bool(value)


def word(value: Any, name: str) -> str:
    """A text; TypeError with `name` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {shown(value)}: a str is needed")
    return value


def finite_number(value: Any) -> float | None:
    """A finite number, NumPy's too, as a float; None for anything else: text, truth, what no float reaches."""
    if is_truth(value) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        return None
    try:
        found = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def measurable(value: Any) -> float | None:
    """A finite number that may have been measured: 0, or between 1e-100 and 1e100; None for anything else.

    What is further off is damage, and its squares and ratios are no floats.
    """
    found = finite_number(value)
    return found if found is None or found == 0 or 1 / MOST_MEASURED <= abs(found) <= MOST_MEASURED else None


def measured_or_nan(value: Any) -> float:
    """The same, with NaN for anything else."""
    if value is None:
        return math.nan
    if type(value) is float:  # the quick way for most
        return value if value == 0 or 1 / MOST_MEASURED <= abs(value) <= MOST_MEASURED else math.nan
    found = measurable(value)
    return math.nan if found is None else found


def seconds(value: Any, name: str, *, from_zero: bool = False, text: bool = False) -> float:
    """A time limit: a positive number, or one from 0 on; ValueError with `name` for anything else.

    `text`: as a command line has it.

    Examples
    --------
    >>> seconds(0, "max_seconds", from_zero=True), seconds("2.5", "--max-seconds", text=True)
    (0.0, 2.5)
    """
    found = finite_number(read_number(value) if text else value)
    if found is None or found < 0 or (found == 0 and not from_zero):
        needed = "a number of seconds from 0 on" if from_zero else "a positive number of seconds"
        raise ValueError(f"{name} is {shown(value)}: {needed} is needed")
    return found


def fraction(value: Any, name: str) -> float:
    """A number between 0 and 1, as text too, and as a percentage ("2%"); ValueError with `name` for anything else.

    Examples
    --------
    >>> fraction(0.02, "rel_ci"), fraction("2%", "rel_ci")
    (0.02, 0.02)
    """
    if isinstance(value, str):
        percent = value.strip().endswith("%")
        found = finite_number(read_number(value.strip().removesuffix("%")) / (100 if percent else 1))
    else:
        found = finite_number(value)
    if found is None or not 0 < found < 1:
        raise ValueError(f"{name} is {shown(value)}: allowed is a fraction between 0 and 1, such as 0.005 or '0.5%'")
    return found


def read_number(text: str) -> float:
    """What a text says; NaN where that is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def figure_text(value: float, *, whole_from: float) -> str:
    """A positive number with as many digits as a table or a picture needs: none behind the point from `whole_from` on,
    and of a small one two that count.

    Examples
    --------
    >>> [figure_text(value, whole_from=100) for value in (123.4, 12.34, 1.234, 0.01234)]
    ['123', '12.3', '1.23', '0.012']
    """
    few = 0 < value < 0.1
    return short(value, ".0f" if value >= whole_from else ".1f" if value >= 10 else ".2g" if few else ".2f")


def short(value: float, spec: str) -> str:
    """A number in a format, or in a few digits and a power of ten where that would take a dozen letters.

    Examples
    --------
    >>> short(12345.678, ".2f"), short(1e300, ".2f")
    ('12345.68', '1e+300')
    """
    text = format(value, spec)
    return text if len(text) <= _LONGEST_NUMBER else f"{value:.3g}"


def gain_text(ratio: float, times: str = "x") -> str:
    """What a change brings, of the time before it divided by the time after: within a factor of two in per cent.

    Examples
    --------
    >>> [gain_text(ratio) for ratio in (1.004, 0.8, 0.5, 1.65, 1.996, 12.345, 0.0149)]
    ['0 %', '-20 %', '-50 %', '+65 %', '2.00x', '12.35x', '0.015x']
    """
    percent = 100 * (ratio - 1)
    if -50 <= percent < 99.5:
        return f"{percent:+.0f} %" if abs(percent) > 0.5 else "0 %"
    return f"{short(ratio, '.2f' if ratio >= 0.1 else '.2g')}{times}"


class Short(float):
    """A number that a template's own format writes, as `short` does."""

    def __format__(self, spec: str) -> str:
        return short(float(self), spec)


def counted(count: int, what: str) -> str:
    """How many of something, one of it as one.

    Examples
    --------
    >>> counted(1, "case"), counted(63, "case")
    ('1 case', '63 cases')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def and_text(words: list[str], last: str = "and") -> str:
    """Return words as a sentence lists them.

    Examples
    --------
    >>> and_text(["a", "b", "c"]), and_text(["a"])
    ('a, b and c', 'a')
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def bytes_text(count: float) -> str:
    """Bytes for people: '256 MiB'.

    Examples
    --------
    >>> bytes_text(268435456), bytes_text(1500), bytes_text(1050453760)
    ('256 MiB', '1.46 KiB', '1002 MiB')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if abs(value) >= 1000 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB" if value < 1000 else f"{short(value, ',.0f')} TiB"


def seconds_text(seconds: float) -> str:
    """A duration for people: '1m20s', '35.2 s', '12.4 us'."""
    if seconds >= 1e9:
        return f"{seconds:.3g} s"
    if seconds >= 60:
        return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * scale:  # which three digits make 1 of it
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
