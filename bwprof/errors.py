"""The exceptions of bwprof; each has a built-in exception as its second base."""

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
    """A measurement failed; `frame` has the rows measured before."""

    def __init__(self, message: str, frame: pd.DataFrame) -> None:
        super().__init__(message)
        self.frame = frame

    def __reduce__(self) -> tuple[type[_WithFrameError], tuple[str, pd.DataFrame]]:
        """Return what a pool of processes sends; without it the pool would hang."""
        return type(self), (str(self), self.frame)


class SweepError(_WithFrameError):
    """A sweep failed; `frame` has the finished rows."""


class PairedError(_WithFrameError):
    """A side of a paired measurement failed; `frame` has the measured rows."""


def attach_frame(error: BaseException, frame: pd.DataFrame) -> BaseException:
    """Attach the measured rows to an exception as `frame`; return a SweepError if it allows no attributes."""
    try:
        error.frame = frame  # type: ignore[attr-defined]
    except AttributeError:
        return SweepError(f"{type(error).__name__}: {error}", frame)
    return error
