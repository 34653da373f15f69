"""The right to write a file, for which other processes wait."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bwprof.results.files import Claim

_PATIENCE = 10.0  # seconds for another process that writes the same file
_PAUSE = 0.01


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Nobody else who asks writes the file inside.

    Raises
    ------
    OSError
        When another process keeps it for ten seconds (EBUSY), or the folder cannot be written to.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            claim = Claim(path)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= end:
                raise
            time.sleep(_PAUSE)
        else:
            break
    try:
        yield
    finally:
        claim.release()
