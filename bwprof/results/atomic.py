"""Write files so that a crash leaves the old or the new one, and lock a file against other processes."""

from __future__ import annotations

import codecs
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import quote_text

if TYPE_CHECKING:
    import gzip

_MOST_BYTES = 1 << 30  # of results: millions of rows, which take many times that in memory

_PART_BYTES = 1 << 20

_GZIP = b"\x1f\x8b"

# What is no file, and whether a name for what is open already may be one all the same: /dev/stdin, /dev/fd/63.
_NO_FILES = (
    (stat.S_ISDIR, "a folder", False),
    (stat.S_ISBLK, "a device", False),
    (stat.S_ISFIFO, "a named pipe", True),
    (stat.S_ISSOCK, "a socket", True),
)

_LONGEST_NAME = 230  # bytes: what `beside` adds still fits into the 255 of a file system

_TEMPORARY = ".tmp"

_CLAIM = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW

_LEFT_BEHIND_SECONDS = 60.0  # a new file is its writer's, who may not have locked it yet


def is_plain_target(path: Path) -> bool:
    """A regular file, or nothing yet: it may be replaced. Devices, pipes and open files may only be written to."""
    try:
        return stat.S_ISREG(path.stat().st_mode) and not is_open_stream(path)
    except FileNotFoundError:
        return True


def refuse_foreign(path: Path) -> None:
    """Raise ValueError where a name of bwprof's own is a link, a pipe or a device."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "a pipe, a socket or a device"
            raise ValueError(f"{quote_text(path)} is {what}, a plain file is needed: remove it")


def has_content(path: Path) -> bool:
    """A regular file that is not empty: what writing to it would replace."""
    try:
        return is_plain_target(path) and path.stat().st_size > 0
    except OSError:  # there is none, or what is wrong is said when it is opened
        return False


def is_stream(path: Path) -> bool:
    """What must get a document once only: a pipe, or an open file. A device forgets what it got before."""
    try:
        return stat.S_ISFIFO(path.stat().st_mode) or is_open_stream(path)
    except OSError:  # said when it is opened
        return False


def is_open_stream(path: Path) -> bool:
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


def read_text(path: Path, *, damaged: bool = False) -> str:
    """The text of a file of results, unpacked where gzip packed it, without a byte order mark; also of a pipe or a
    terminal that this process has open (/dev/stdin, /dev/fd/63). `damaged`: parts of it may be no text.

    Raises
    ------
    ValueError
        For what is no file, as it may have no end; for more than 1 GiB, and for what is no text.
    OSError
        When it cannot be read.
    """
    mode = path.stat().st_mode
    for is_kind, what, may_be_open in _NO_FILES:
        if is_kind(mode) and not (may_be_open and is_open_stream(path)):
            raise ValueError(f"{quote_text(path)} is {what}: a file of results is needed")
    with path.open("rb") as stream:
        if stat.S_ISCHR(mode) and not stream.isatty():
            raise ValueError(f"{quote_text(path)} is a device: a file of results is needed")
        try:
            content = _bounded(stream, os.fstat(stream.fileno()).st_size)
        except OSError as error:  # of reading: it names no file
            raise OSError(error.errno, error.strerror, str(path)) from None
    if content is not None and content.startswith(_GZIP):
        content = _unpacked(content, path)
    if content is None:
        raise ValueError(f"{quote_text(path)} is no file of results: it has more than {format_bytes(_MOST_BYTES)}")
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # a spreadsheet's "Unicode text"
    try:
        return content.decode("utf-16" if wide else "utf-8-sig", "replace" if damaged else "strict")
    except UnicodeDecodeError:
        hint = " in UTF-8 (save a spreadsheet as CSV UTF-8)"
        raise ValueError(f"{quote_text(path)} is not a bwprof result file: it is not text{hint}") from None


def _unpacked(content: bytes, path: Path) -> bytes | None:
    import gzip
    import io
    import zlib

    try:
        return _bounded(gzip.GzipFile(fileobj=io.BytesIO(content)), 0)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"{quote_text(path)} is not a bwprof result file: its gzip stream is damaged: {error}"
        ) from None


def _bounded(stream: BinaryIO | gzip.GzipFile, size: int) -> bytes | None:
    """All of a stream, None where that is too much; `size` is what it is said to have, 0 for a pipe."""
    found = bytearray()
    while max(size, len(found)) <= _MOST_BYTES:
        part = stream.read(_PART_BYTES)
        found += part
        if len(part) < _PART_BYTES:  # its end, which a terminal says once
            return bytes(found)
    return None


def hidden_path(target: Path, ending: str) -> Path:
    """A hidden name in the same folder, for what belongs to a file while it is written; never too long for a name."""
    name = target.name if len(os.fsencode(target.name)) <= _LONGEST_NAME else _digest(target.name)
    return target.with_name(f".{name}.{ending}")


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def atomic_write(path: Path, content: str | bytes, *, check: Callable[[str], object] | None = None) -> None:
    """Replace `path` by a file with `content` in one step.

    Parameters
    ----------
    check : callable, optional
        Gets what was written, read back from the disk, before anything is replaced; what it raises leaves the old file.

    Raises
    ------
    OSError
        When it cannot be written; the old file is then untouched.
    """
    held = content.encode() if isinstance(content, str) else content
    try:
        if is_plain_target(path):
            _replace(Path(os.path.realpath(path)), held, check)
        else:
            with path.open("wb") as stream:
                stream.write(held)
    except OSError as error:  # names the file that was meant, not the temporary one
        raise OSError(error.errno, error.strerror, str(path)) from None


def _replace(target: Path, content: bytes, check: Callable[[str], object] | None) -> None:
    _remove_left_behind(target)
    name = hidden_path(target, f"{secrets.token_hex(4)}{_TEMPORARY}")
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "w+b") as stream:
            take_lock(handle)  # as long as this is open, it is not left behind
            stream.write(content)
            stream.flush()
            os.fsync(handle)
            if check is not None:
                stream.seek(0)
                check(stream.read().decode())
            os.chmod(name, _mode(target))
            os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    sync_folder(target.parent)


def _remove_left_behind(target: Path) -> None:
    """Remove the temporary files of writers that were killed: old ones that nobody holds any more."""
    prefix = hidden_path(target, "").name
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(_TEMPORARY)):
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime < _LEFT_BEHIND_SECONDS:
                continue
            number = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if take_lock(number):
                    os.unlink(entry.path)
            finally:
                os.close(number)


def take_lock(number: int) -> bool:
    """Take an open file's lock; False when another has it, True as well where the file system knows no locks."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Make a file's new name as lasting as its content; not every file system can."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _mode(target: Path) -> int:
    """The old file's mode, or what an ordinary new file would get."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


class Claim:
    """The right to write a file, which one bwprof has at a time, for as long as it writes.

    The lock is a hidden file's beside it, `.NAME.writing`: the file itself is replaced again and again. Lines appended
    to the hidden file are on disk at once, and stay if this process is killed; `release` removes it.

    Raises
    ------
    OSError
        When another bwprof has it (EBUSY), or the folder cannot be written to.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = claim_path(target)
        self._number: int | None = self._taken()

    def _taken(self) -> int:
        while True:
            try:
                number = os.open(self._path, _CLAIM, 0o666)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._target)) from None
            if not stat.S_ISREG(os.fstat(number).st_mode):
                os.close(number)
                raise OSError(errno.EEXIST, f"{self._path.name} beside it is no file", str(self._target))
            if not take_lock(number):
                os.close(number)
                raise OSError(errno.EBUSY, "another bwprof is writing to it", str(self._target))
            if is_same_file(number, self._path):
                return number
            os.close(number)  # its holder removed it between the two steps

    def append(self, line: str) -> bool:
        """One line, on disk when this returns; False when the hidden file was removed (it is there again, empty)."""
        assert self._number is not None
        found = is_same_file(self._number, self._path)
        if not found:
            anew = self._taken()
            os.close(self._number)
            self._number = anew
        _write_synced(self._number, line, self._target)
        return found

    def clear(self) -> None:
        """Forget the lines: they are in the file itself now."""
        assert self._number is not None
        os.ftruncate(self._number, 0)

    def release(self, *, keep: bool = False) -> None:
        """Let other processes write; `keep` leaves the lines, for whoever reads the file next. Safe to call again."""
        if self._number is None:
            return
        with suppress(OSError):
            if is_same_file(self._number, self._path) and not (keep and os.fstat(self._number).st_size):
                os.unlink(self._path)
        with suppress(OSError):  # nothing that counts is in it
            os.close(self._number)
        self._number = None


def claim_path(target: Path) -> Path:
    """The hidden file of a `Claim`."""
    return hidden_path(Path(os.path.realpath(target)), "writing")


def is_same_file(number: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(path))
    except OSError:
        return False


def _write_synced(number: int, text: str, target: Path) -> None:
    """Append whole or not at all; OSError names `target`."""
    size = os.fstat(number).st_size
    data = memoryview(text.encode("utf-8"))
    try:
        while data:
            data = data[os.write(number, data) :]
        os.fdatasync(number)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(number, size)
        raise OSError(error.errno, error.strerror, str(target)) from None


def append_text(path: Path, text: str) -> None:
    """Lines behind those of a file, whole or not at all; a last line without an end gets one.

    Raises
    ------
    OSError
        When it cannot be written; the file is then as it was.
    """
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        size = os.fstat(number).st_size
        ended = size == 0 or os.pread(number, 1, size - 1) == b"\n"
        _write_synced(number, text if ended else f"\n{text}", path)
    finally:
        os.close(number)


class GrowingFile:
    """A file that grows by whole pieces, each on disk when `append` returns, and notices when somebody else changes it.

    Raises
    ------
    OSError
        When it cannot be written; it then ends with the last whole piece.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number: int | None = os.open(path, os.O_CLOEXEC | os.O_WRONLY | os.O_APPEND)
        self._size = os.fstat(self._number).st_size

    @property
    def changed(self) -> str:
        """What somebody else has done to the file, in words; "" when nothing."""
        assert self._number is not None
        if not is_same_file(self._number, self._path):
            return "replaced" if self._path.exists() else "removed"
        return "" if os.fstat(self._number).st_size == self._size else "changed"

    def append(self, text: str) -> None:
        """One piece."""
        assert self._number is not None
        _write_synced(self._number, text, self._path)
        self._size += len(text.encode("utf-8"))

    def close(self) -> None:
        """Close it; safe to call again."""
        if self._number is not None:
            os.close(self._number)
            self._number = None


_PATIENCE = 10.0  # seconds for another process that writes the same file

_PAUSE = 0.01


@contextmanager
def lock(path: Path) -> Iterator[None]:
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
