"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def is_plain_target(path: Path) -> bool:
    """A regular file, or nothing yet: it may be replaced. Devices, pipes and open files may only be written to."""
    try:
        return stat.S_ISREG(path.stat().st_mode) and not is_open_file(path)
    except FileNotFoundError:
        return True


def is_stream(path: Path) -> bool:
    """What must get a document once only: a pipe, or an open file. A device forgets what it got before."""
    try:
        return stat.S_ISFIFO(path.stat().st_mode) or is_open_file(path)
    except OSError:  # said when it is opened
        return False


def is_open_file(path: Path) -> bool:
    """A name for what this process has open (/dev/stdout, /dev/fd/3): replacing it would cut the other end off."""
    ours = os.path.realpath("/proc/self/fd")
    name = os.path.abspath(path)
    for _ in range(40):  # links, as the system follows them
        if os.path.realpath(os.path.dirname(name)) == ours:
            return True
        if not os.path.islink(name):
            return False
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    return False


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
