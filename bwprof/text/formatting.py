"""Format numbers, sizes and times."""

from __future__ import annotations

import math
import os
import re
from os import PathLike
from typing import Any

from bwprof.text.parsing import _UNSHOWN, check_frame, quote_text

_LONGEST_NUMBER = 12  # characters of one in a table

_MARKUP = re.compile(r"[\\`*<\[\]]|(?<!\w)_|_(?!\w)")  # in a word _ is none


def escape_markdown(text: str) -> str:
    """Text of others within a line of Markdown: what would be markup (a kernel's `<float>`, links) is shown.

    Examples
    --------
    >>> print(as_markdown("copy<float>(a*, b*)"))
    copy\\<float>(a\\*, b\\*)
    """
    return _MARKUP.sub(r"\\\g<0>", text)


def format_path(path: str | PathLike[str]) -> str:
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


def to_pandas(data: Any) -> Any:
    """Convert a frame of another library; leave anything else as it is. TypeError where a package of its is missing."""
    lazy = ["collect", "compute"] if type(data).__name__.endswith("Frame") else []
    names = ["to_pandas", "_to_pandas", "toPandas", *lazy]
    convert = next((name for name in names if callable(getattr(data, name, None))), "")
    if isinstance(data, type) or not convert or type(data).__module__.startswith("pandas."):
        return data
    try:
        made = getattr(data, convert)()
    except ImportError as error:
        said = f"{convert}() of {type(data).__module__}.{type(data).__qualname__} fails: {quote_text(error)}"
        raise TypeError(f"{said}; install it, or hand over a pandas.DataFrame") from error
    return to_pandas(made) if convert == "collect" else made


def require_frame(data: Any) -> Any:
    """Take a pandas.DataFrame, or what `as_pandas` makes one; TypeError for anything else, ValueError for its names."""
    import pandas as pd

    found = to_pandas(data)
    if not isinstance(found, pd.DataFrame):
        kind = f"{type(found).__module__}.{type(found).__qualname__}".removeprefix("builtins.")
        raise TypeError(f"a pandas.DataFrame is needed, not {kind}; bwprof.load reads one from a file")
    check_frame(found)
    return found


def format_figure(value: float, *, whole_from: float) -> str:
    """A positive number with as many digits as a table or a picture needs: none behind the point from `whole_from` on,
    and of a small one two that count.

    Examples
    --------
    >>> [figure_text(value, whole_from=100) for value in (123.4, 12.34, 1.234, 0.01234)]
    ['123', '12.3', '1.23', '0.012']
    """
    few = 0 < value < 0.1
    return format_short(value, ".0f" if value >= whole_from else ".1f" if value >= 10 else ".2g" if few else ".2f")


def format_short(value: float, spec: str) -> str:
    """A number in a format, or in a few digits and a power of ten where that would take a dozen letters.

    Examples
    --------
    >>> short(12345.678, ".2f"), short(1e300, ".2f")
    ('12345.68', '1e+300')
    """
    text = format(value, spec)
    return text if len(text) <= _LONGEST_NUMBER else f"{value:.3g}"


def format_gain(ratio: float, times: str = "x") -> str:
    """What a change brings, of the time before it divided by the time after: within a factor of two in per cent.

    Examples
    --------
    >>> [gain_text(ratio) for ratio in (1.004, 0.8, 0.5, 1.65, 1.996, 12.345, 0.0149)]
    ['0 %', '-20 %', '-50 %', '+65 %', '2.00x', '12.35x', '0.015x']
    """
    percent = 100 * (ratio - 1)
    if -50 <= percent < 99.5:
        return f"{percent:+.0f} %" if abs(percent) > 0.5 else "0 %"
    return f"{format_short(ratio, '.2f' if ratio >= 0.1 else '.2g')}{times}"


class ShortFloat(float):
    """A number that a template's own format writes, as `short` does."""

    def __format__(self, spec: str) -> str:
        return format_short(float(self), spec)


def plural(count: int, what: str) -> str:
    """How many of something, one of it as one.

    Examples
    --------
    >>> plural(1, "case"), plural(63, "case")
    ('1 case', '63 cases')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def format_bytes(count: float) -> str:
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
    return f"{value:.3g} TiB" if value < 1000 else f"{format_short(value, ',.0f')} TiB"


def format_seconds(seconds: float) -> str:
    """A duration for people: '1m20s', '35.2 s', '12.4 us'."""
    if seconds >= 1e9:
        return f"{seconds:.3g} s"
    if seconds >= 60:
        return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * scale:  # which three digits make 1 of it
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def is_missing(value: Any) -> bool:
    """None, NaN and <NA> are missing; zero and "" are not."""
    if value is None:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")
