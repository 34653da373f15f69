"""Replace and append to files so that a crash leaves whole ones; lock files against other processes."""

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
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import quote_text

if TYPE_CHECKING:
    import gzip

_MOST_BYTES = 1 << 30  # millions of rows
_PART_BYTES = 1 << 20

# Kinds of paths that are not read, and whether they are if this process has them open (/dev/stdin, /dev/fd/63).
_NO_FILES = (
    (stat.S_ISDIR, "a folder", False),
    (stat.S_ISBLK, "a device", False),
    (stat.S_ISFIFO, "a named pipe", True),
    (stat.S_ISSOCK, "a socket", True),
)

_LONGEST_NAME = 230  # bytes: a file system allows 255, and `hidden_path` adds some
_TEMPORARY = ".tmp"
_CLAIM = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_LEFT_BEHIND_SECONDS = 60.0  # the writer of a newer file may not have locked it yet


def is_plain_target(path: Path) -> bool:
    """Return whether a path is a regular file, or free: it may be replaced. Devices, pipes and open files may not."""
    try:
        return stat.S_ISREG(path.stat().st_mode) and not is_open_stream(path)
    except FileNotFoundError:
        return True


def refuse_foreign(path: Path) -> None:
    """Raise ValueError if a name of bwprof's own is a link, a pipe or a device."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "a pipe, a socket or a device"
            raise ValueError(f"{quote_text(path)} is {what}, a plain file is needed: remove it")


def has_content(path: Path) -> bool:
    """Return whether a path is a regular file that is not empty; errors are reported when the path is opened."""
    with suppress(OSError):
        return is_plain_target(path) and path.stat().st_size > 0
    return False


def is_stream(path: Path) -> bool:
    """Return whether a path is a pipe or an open file, which must get a document only once."""
    with suppress(OSError):  # reported when the path is opened
        return stat.S_ISFIFO(path.stat().st_mode) or is_open_stream(path)
    return False


def is_open_stream(path: Path) -> bool:
    """Return whether a path names a file that this process has open (/dev/stdout, /dev/fd/3)."""
    own_files = os.path.realpath("/proc/self/fd")
    name = os.path.abspath(path)
    for _ in range(40):  # the system's limit of links
        if os.path.realpath(os.path.dirname(name)) == own_files:
            return True
        if not os.path.islink(name):
            return False
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    return False


def read_text(path: Path, *, damaged: bool = False) -> str:
    """Return the text of a file of results, without a byte order mark, unpacked if gzip packed it.

    A pipe or terminal that this process has open is read too (/dev/stdin, /dev/fd/63). `damaged` replaces bytes that
    are not text. Raise ValueError for a folder, a device and the like, for more than 1 GiB, and for anything but text;
    OSError if it cannot be read.
    """
    mode, size = path.stat().st_mode, path.stat().st_size
    for is_kind, what, may_be_open in _NO_FILES:
        if is_kind(mode) and not (may_be_open and is_open_stream(path)):
            raise ValueError(f"{quote_text(path)} is {what}: a file of results is needed")
    with path.open("rb") as stream:
        if stat.S_ISCHR(mode) and not stream.isatty():
            raise ValueError(f"{quote_text(path)} is a device: a file of results is needed")
        try:
            content = b"" if size > _MOST_BYTES else _read_bounded(stream)
        except OSError as error:  # an error of reading has no file name
            raise OSError(error.errno, error.strerror, str(path)) from None
    if content.startswith(b"\x1f\x8b"):
        import gzip
        import io
        import zlib

        try:
            content = _read_bounded(gzip.GzipFile(fileobj=io.BytesIO(content)))
        except (EOFError, OSError, zlib.error) as error:
            what = f"its gzip stream is damaged: {error}"
            raise ValueError(f"{quote_text(path)} is not a bwprof result file: {what}") from None
    if max(size, len(content)) > _MOST_BYTES:
        raise ValueError(f"{quote_text(path)} is no file of results: it has more than {format_bytes(_MOST_BYTES)}")
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # a spreadsheet's "Unicode text"
    try:
        return content.decode("utf-16" if wide else "utf-8-sig", "replace" if damaged else "strict")
    except UnicodeDecodeError:
        hint = " in UTF-8 (save a spreadsheet as CSV UTF-8)"
        raise ValueError(f"{quote_text(path)} is not a bwprof result file: it is not text{hint}") from None


def _read_bounded(stream: BinaryIO | gzip.GzipFile) -> bytes:
    """Read a stream to its end, or to the first part beyond 1 GiB."""
    content = bytearray()
    while len(content) <= _MOST_BYTES:
        part = stream.read(_PART_BYTES)
        content += part
        if len(part) < _PART_BYTES:  # a terminal signals its end only once
            break
    return bytes(content)


def hidden_path(target: Path, ending: str) -> Path:
    """Return a hidden name in the same folder, short enough for a file system."""
    name, encoded = target.name, os.fsencode(target.name)
    if len(encoded) > _LONGEST_NAME:
        name = hashlib.sha256(encoded).hexdigest()[:32]
    return target.with_name(f".{name}.{ending}")


def atomic_write(path: Path, content: str | bytes, *, check: Callable[[str], object] | None = None) -> None:
    """Replace `path` by a file with `content` in one step; OSError if it cannot be written; the old file stays.

    `check` is called with the written text, read back from the disk, before the file is replaced; its exception leaves
    the old file.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if is_plain_target(path):
            _replace(Path(os.path.realpath(path)), data, check)
        else:
            with path.open("wb") as stream:
                stream.write(data)
    except OSError as error:  # name the file, not the temporary one
        raise OSError(error.errno, error.strerror, str(path)) from None


def _replace(target: Path, content: bytes, check: Callable[[str], object] | None) -> None:
    _remove_left_behind(target)
    name = hidden_path(target, f"{secrets.token_hex(4)}{_TEMPORARY}")
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(handle, "w+b") as stream:
            take_lock(handle)  # other writers do not remove a locked file
            with suppress(FileNotFoundError):
                os.chmod(handle, stat.S_IMODE(target.stat().st_mode))
            stream.write(content)
            stream.flush()
            os.fsync(handle)
            if check is not None:
                stream.seek(0)
                check(stream.read().decode())
            os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    sync_folder(target.parent)


def _remove_left_behind(target: Path) -> None:
    """Remove old temporary files of killed writers."""
    prefix = hidden_path(target, "").name
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(_TEMPORARY)):
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime < _LEFT_BEHIND_SECONDS:
                continue
            with open(os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                if take_lock(file.fileno()):
                    os.unlink(entry.path)


def take_lock(number: int) -> bool:
    """Lock an open file; False if another process has the lock, True also if the file system has no locks."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, if the file system can."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


class Claim:
    """The right to write a file, which one process has at a time.

    The lock is on a hidden file, `.NAME.writing`, because the file itself is replaced again and again. Lines appended
    to the hidden file are on disk at once, and stay if this process is killed; `release` removes it. Raise OSError if
    another process has it (EBUSY), or the folder cannot be written to.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = claim_path(target)
        self._number = self._take()  # -1 after `release`

    def _take(self) -> int:
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
            os.close(number)  # another process removed it between the two steps

    def append(self, line: str) -> bool:
        """Append a line; it is on disk on return.

        Return False if the hidden file was removed; it exists again, with this line only.
        """
        exists = is_same_file(self._number, self._path)
        if not exists:
            before, self._number = self._number, self._take()
            os.close(before)
        _write_synced(self._number, line, self._target)
        return exists

    def clear(self) -> None:
        """Delete the lines, because the file itself has them."""
        os.ftruncate(self._number, 0)

    def release(self, *, keep: bool = False) -> None:
        """Let other processes write; `keep` leaves the lines for the next reader. May be called again."""
        if self._number < 0:
            return
        with suppress(OSError):
            if is_same_file(self._number, self._path) and not (keep and os.fstat(self._number).st_size):
                os.unlink(self._path)
        with suppress(OSError):  # its content does not matter
            os.close(self._number)
        self._number = -1


def claim_path(target: Path) -> Path:
    """Return the hidden file of a `Claim`."""
    return hidden_path(Path(os.path.realpath(target)), "writing")


def is_same_file(number: int, path: Path) -> bool:
    """Return whether a path still names an open file."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(number), path.stat())
    return False


def file_state(path: Path) -> tuple[int, int, int] | None:
    """Return a file's device, inode and size; None without a file."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_size
    return None


def write_all(number: int, text: str, target: str | Path) -> None:
    """Write all of a text to an open file; OSError names `target`."""
    data = memoryview(text.encode("utf-8"))
    try:
        while data:
            data = data[os.write(number, data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None


def _write_synced(number: int, text: str, target: Path) -> None:
    """Append all of a text, or nothing; OSError names `target`."""
    size = os.fstat(number).st_size
    try:
        write_all(number, text, target)
        os.fdatasync(number)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(number, size)
        raise OSError(error.errno, error.strerror, str(target)) from None


def append_text(path: Path, text: str) -> None:
    """Append lines to a file, all or nothing, after the end of its last line.

    Raise OSError if it cannot be written; the file does not change.
    """
    with FileIO(path, "a+") as file:
        size = os.fstat(file.fileno()).st_size
        ended = size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
        _write_synced(file.fileno(), text if ended else f"\n{text}", path)


_PATIENCE, _PAUSE = 10.0, 0.01  # seconds


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Let no other process that locks the file write it inside the block.

    Raise OSError if another process has the lock for ten seconds (EBUSY), or the folder cannot be written to.
    """
    end = time.monotonic() + _PATIENCE
    claim = None
    while claim is None:
        try:
            claim = Claim(path)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= end:
                raise
            time.sleep(_PAUSE)
    try:
        yield
    finally:
        claim.release()
