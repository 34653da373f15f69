"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def is_plain_target(path: Path) -> bool:
    """A regular file, or nothing yet: it may be replaced. Devices and pipes may only be written to."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True


def atomic_write(path: Path, content: str) -> None:
    """Replace `path` by a file with `content` in one step.

    Raises
    ------
    OSError
        When it cannot be written; the old file is then untouched.
    """
    try:
        if is_plain_target(path):
            _replace(Path(os.path.realpath(path)), content)
        else:
            with path.open("w", encoding="utf-8") as stream:
                stream.write(content)
    except OSError as error:  # names the file that was meant, not the temporary one
        raise OSError(error.errno, error.strerror, str(path)) from None


def _replace(target: Path, content: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, _mode(target))
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _mode(target: Path) -> int:
    """The old file's mode, or what an ordinary new file would get."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
