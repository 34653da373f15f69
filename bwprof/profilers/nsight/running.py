"""Nsight's programs: where they are, and running them within a time limit, as argument lists."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from bwprof import environment
from bwprof.errors import UnavailableError
from bwprof.text import seconds_text

_MOST_SAID = 2000  # letters of what a program complained about


class Ended(NamedTuple):
    """How a program ended, and the last that it said on its standard error."""

    code: int
    said: str


def find(name: str) -> str | None:
    """The path of a profiler's program; None where there is none."""
    return environment.profiler_path(name)


def run(command: Sequence[str], limit_s: float | None, output: IO[bytes]) -> Ended:
    """Run a program, its output to a file; what it started ends with it.

    Raises
    ------
    UnavailableError
        When it cannot be started, or takes longer than the limit.
    """
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise UnavailableError(f"{command[0]} cannot be started: {error}") from None
        try:
            code = child.wait(limit_s)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired) and limit_s is not None:
                raise UnavailableError(f"{command[0]} took longer than {seconds_text(limit_s)}: timeout_s=") from None
            raise
        said = end_of(errors, _MOST_SAID)
    return Ended(code, said)


def end_of(stream: IO[bytes], most: int) -> str:
    """The last bytes of a file as text, however much stands before them."""
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
    return stream.read(most).decode("utf-8", "replace").strip()
