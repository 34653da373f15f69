"""Format numbers, sizes, times and paths; convert frames of other libraries."""

from __future__ import annotations

import math
import os
from os import PathLike
from typing import Any

from bwprof.text.parsing import CONTROLS, check_frame, quote_text

_LONGEST_NUMBER = 12  # characters in a table


def format_path(path: str | PathLike[str]) -> str:
    """Return a path, quoted as bash reads it if it has control characters or bytes that are not UTF-8."""
    text = os.fspath(path)
    if not (CONTROLS.search(text) or "\n" in text):
        return text
    escaped = text.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    octal = CONTROLS.sub(lambda match: "".join(f"\\{byte:03o}" for byte in os.fsencode(match[0])), escaped)
    return f"$'{octal}'"


def to_pandas(data: Any) -> Any:
    """Convert a frame of another library to pandas; return anything else as it is.

    Raise TypeError if the conversion needs a package that is not installed.
    """
    lazy = ["collect", "compute"] if type(data).__name__.endswith("Frame") else []
    names = ["to_pandas", "_to_pandas", "toPandas", *lazy]
    convert = next((name for name in names if callable(getattr(data, name, None))), "")
    if isinstance(data, type) or not convert or type(data).__module__.startswith("pandas."):
        return data
    try:
        converted = getattr(data, convert)()
    except ImportError as error:
        kind = f"{type(data).__module__}.{type(data).__qualname__}"
        raise TypeError(
            f"{convert}() of {kind} fails: {quote_text(error)}; install it, or hand over a pandas.DataFrame"
        ) from error
    return to_pandas(converted) if convert == "collect" else converted


def require_frame(data: Any) -> Any:
    """Return a pandas.DataFrame, converted by `to_pandas` if needed.

    Raise TypeError for anything else; ValueError for columns without names of their own.
    """
    import pandas as pd

    frame = to_pandas(data)
    if not isinstance(frame, pd.DataFrame):
        kind = f"{type(frame).__module__}.{type(frame).__qualname__}".removeprefix("builtins.")
        raise TypeError(f"a pandas.DataFrame is needed, not {kind}; bwprof.load reads one from a file")
    check_frame(frame)
    return frame


def format_figure(value: float, *, whole_from: float) -> str:
    """Format a positive number for a table or a picture: no decimals from `whole_from` on, two digits below 0.1."""
    few = 0 < value < 0.1
    return format_short(value, ".0f" if value >= whole_from else ".1f" if value >= 10 else ".2g" if few else ".2f")


def format_short(value: float, spec: str) -> str:
    """Format a number; with three digits and a power of ten if the format takes more than 12 characters."""
    text = format(value, spec)
    return text if len(text) <= _LONGEST_NUMBER else f"{value:.3g}"


class ShortFloat(float):
    """A float that `format_short` formats in an f-string."""

    def __format__(self, spec: str) -> str:
        return format_short(float(self), spec)


def format_gain(ratio: float, times: str = "x") -> str:
    """Format old time / new time: in percent within a factor of two, +65 %, else as a factor, 2.00x."""
    percent = 100 * (ratio - 1)
    if -50 <= percent < 99.5:
        return f"{percent:+.0f} %" if abs(percent) > 0.5 else "0 %"
    return f"{format_short(ratio, '.2f' if ratio >= 0.1 else '.2g')}{times}"


def plural(count: int, noun: str) -> str:
    """Return a count and its noun, in the plural unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_bytes(count: float) -> str:
    """Format bytes in binary units: 1.46 KiB, 1002 MiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if abs(value) >= 1000 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB" if value < 1000 else f"{format_short(value, ',.0f')} TiB"


def format_seconds(seconds: float) -> str:
    """Format a duration: '1m20s', '35.2 s', '12.4 us'."""
    if seconds >= 1e9:
        return f"{seconds:.3g} s"
    if seconds >= 60:
        return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * scale:  # rounds to 1 or more of the unit
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or NA; zero and "" are not missing."""
    if value is None:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")
