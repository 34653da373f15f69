"""The exceptions of bwprof, each with the built-in one that it is as its second base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bwprof._core import BwprofError, DeviceError, MemoryLimitError, UnavailableError, UnsupportedError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BwprofError",
    "DeviceError",
    "MemoryLimitError",
    "PairedError",
    "SweepError",
    "UnavailableError",
    "UnsupportedError",
]


class _WithFrameError(BwprofError, RuntimeError):
    """Something was measured before it came to this: `frame` holds it."""

    def __init__(self, message: str, frame: pd.DataFrame) -> None:
        super().__init__(message)
        self.frame = frame

    def __reduce__(self) -> tuple[type[_WithFrameError], tuple[str, pd.DataFrame]]:
        """What a pool of processes sends: without it the pool would wait for ever."""
        return type(self), (str(self), self.frame)


class SweepError(_WithFrameError):
    """A sweep could not go on; `frame` holds the finished rows."""


class PairedError(_WithFrameError):
    """A side of a paired measurement could not go on; `frame` holds what was measured."""


def attach_frame(error: BaseException, frame: pd.DataFrame) -> BaseException:
    """What ends a measurement, with what was measured before it as `frame`; SweepError where it takes no attributes."""
    try:
        error.frame = frame  # type: ignore[attr-defined]
    except AttributeError:
        return SweepError(f"{type(error).__name__}: {error}", frame)
    return error
