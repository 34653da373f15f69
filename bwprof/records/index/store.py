"""The file of the index: what is known of each run folder, by its stamp."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwprof.records.index import layout
from bwprof.records.index.folders import PLACE, Stamp
from bwprof.records.index.reading import Content
from bwprof.text import quoted

_NAME, _LOCK = "history.sqlite", "lock"
_PATIENCE = 20.0  # seconds for another process that writes
_MANY = 500  # runs, from which on reading the figures of all is quicker than finding each
_TABLES = """
CREATE TABLE made_with (what TEXT NOT NULL);
CREATE TABLE parts (number INTEGER PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE runs (
  path BLOB PRIMARY KEY, stamp TEXT NOT NULL, problem TEXT NOT NULL, sum INTEGER NOT NULL, figures_sum INTEGER NOT NULL,
  run_id TEXT, started INTEGER NOT NULL, finished INTEGER NOT NULL, status TEXT, suite TEXT, git_commit TEXT,
  keys BLOB NOT NULL, figures BLOB NOT NULL
);
"""
_TOLD = ", ".join(layout.RUN)
_log = logging.getLogger("bwprof.records")


@dataclass(frozen=True, slots=True)
class Kept:
    """A run as the index has it; `keys` of its rows, whose figures are read when they are wanted."""

    path: str
    about: tuple[Any, ...]
    keys: bytes
    figures_sum: int


class DamagedError(Exception):
    """The file is no index, or not a whole one."""


class Store:
    """An index: a file of its own below the folder, or a copy in memory where that cannot be written.

    Several processes may have it at once. What goes wrong with its file while it is used is a `sqlite3.Error`, or a
    `DamagedError`. One that is `damaged` is made anew.
    """

    def __init__(self, root: Path, *, in_memory: bool = False, damaged: bool = False) -> None:
        file = root / PLACE / _NAME
        self._lock: int | None = None
        if in_memory:
            self._db = _in_memory(file, damaged=damaged)
            return
        file.parent.mkdir(exist_ok=True)
        self._lock = os.open(file.with_name(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._db = _opened(file, self._lock, damaged=damaged)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it; safe to call again."""
        if hasattr(self, "_db"):
            self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def stamps(self) -> dict[str, Stamp]:
        """What each run looked like when it was read."""
        return {os.fsdecode(path): stamp for path, stamp in self._db.execute("SELECT path, stamp FROM runs")}

    def put(self, read: Sequence[tuple[str, Stamp, Content]], parts: Mapping[int, str]) -> None:
        """Runs that were read, with the parts that came along, in one step."""
        with self._writing():
            self._db.executemany("INSERT OR IGNORE INTO parts VALUES (?, ?)", list(parts.items()))
            self._db.executemany(
                f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * 13)})",
                [_line(path, stamp, found) for path, stamp, found in read],
            )

    def remove(self, paths: Iterable[str]) -> None:
        """Runs that are no more."""
        with self._writing():
            self._db.executemany("DELETE FROM runs WHERE path = ?", [(os.fsencode(path),) for path in paths])

    def problems(self) -> dict[str, str]:
        """Why runs have no rows here, by path."""
        found = self._db.execute("SELECT path, problem FROM runs WHERE problem != '' ORDER BY path")
        return {os.fsdecode(path): problem for path, problem in found}

    def runs(self) -> list[Kept]:
        """The runs that have rows, the earliest first; DamagedError where they are not those that were put there."""
        found = []
        ask = (
            f"SELECT path, keys, sum, figures_sum, {_TOLD} FROM runs WHERE problem = '' ORDER BY started, run_id, path"
        )
        for path, keys, whole, figures_sum, *about in self._db.execute(ask):
            if _sum(path, about, keys) != whole:
                raise DamagedError("a run is not what was put there")
            found.append(Kept(os.fsdecode(path), tuple(about), keys, figures_sum))
        return found

    def parts(self) -> dict[int, list[Any]]:
        """The cases and remarks by their numbers."""
        found = {}
        for number, content in self._db.execute("SELECT number, content FROM parts"):
            if layout.number_of(content) != number:
                raise DamagedError("a part is not what was put there")
            found[number] = json.loads(content)
        return found

    def figures(self, runs: Sequence[Kept]) -> list[bytes]:
        """The figures of some runs; DamagedError where they are not those that were put there."""
        if len(runs) > _MANY:
            every = dict(self._db.execute("SELECT path, figures FROM runs"))
            found = [every.get(os.fsencode(run.path), b"") for run in runs]
        else:
            ask = "SELECT figures FROM runs WHERE path = ?"
            found = [(self._db.execute(ask, (os.fsencode(run.path),)).fetchone() or (b"",))[0] for run in runs]
        for run, figures in zip(runs, found, strict=True):
            if zlib.crc32(figures) != run.figures_sum:
                raise DamagedError("a run's figures are not those that were put there")
        return found

    def reading(self) -> _Transaction:
        """Between its beginning and its end nothing changes for this process."""
        return _Transaction(self._db, "BEGIN")

    def _writing(self) -> _Transaction:
        return _Transaction(self._db, "BEGIN IMMEDIATE")


class _Transaction:
    def __init__(self, db: sqlite3.Connection, how: str) -> None:
        self._db, self._how = db, how

    def __enter__(self) -> None:
        self._db.execute(self._how)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._db.execute("COMMIT")
        elif self._db.in_transaction:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")


def _line(path: str, stamp: Stamp, found: Content) -> tuple[Any, ...]:
    name = os.fsencode(path)
    sums = _sum(name, found.about, found.keys), zlib.crc32(found.figures)
    return (name, stamp, found.problem, *sums, *found.about, found.keys, found.figures)


def _sum(path: bytes, about: Iterable[Any], keys: bytes) -> int:
    return zlib.crc32(repr((path, *about)).encode(), zlib.crc32(keys))


def _opened(file: Path, lock: int, *, damaged: bool) -> sqlite3.Connection:
    """The file, as it is or made anew: that is said. Nobody takes away what others have open."""
    _locked(lock, fcntl.LOCK_SH)
    if damaged or _why_useless(file):
        _locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        why = "is damaged" if damaged else _why_useless(file)  # another process may have made it anew meanwhile
        if why:
            _log.warning("%s %s: it is made anew", quoted(file), why)
            for ending in ("-journal", "-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.unlink(f"{file}{ending}")
    db = sqlite3.connect(file, timeout=_PATIENCE, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = NORMAL")
        with _Transaction(db, "BEGIN IMMEDIATE"):
            if not _tables(db):
                _make(db)
        _locked(lock, fcntl.LOCK_SH)
    except BaseException:
        db.close()
        raise
    return db


def _locked(lock: int, how: int) -> None:
    """BlockingIOError where others have the index open; a file system that knows no locks has no others."""
    try:
        fcntl.flock(lock, how)
    except BlockingIOError:
        raise
    except OSError:
        return


def _in_memory(file: Path, *, damaged: bool) -> sqlite3.Connection:
    """A copy of the file, or a new one where there is none to copy."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    with suppress(OSError, sqlite3.Error):
        if not damaged and file.is_file() and file.stat().st_size and not _why_useless(file):
            with closing(_connected(file)) as there:
                there.backup(db)
    if not _tables(db):
        _make(db)
    return db


def _make(db: sqlite3.Connection) -> None:
    for statement in filter(str.strip, _TABLES.split(";")):
        db.execute(statement)
    db.execute("INSERT INTO made_with VALUES (?)", (layout.described(),))


def _tables(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0])


def _connected(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE, isolation_level=None)


def _why_useless(file: Path) -> str:
    """Why an index cannot be used; "" where it can, and where there is none."""
    if not os.path.lexists(file) or (file.is_file() and file.stat().st_size == 0):
        return ""
    try:
        with closing(_connected(file)) as db:
            if not _tables(db):
                return ""
            made_with = db.execute("SELECT what FROM made_with").fetchone()
            db.execute("SELECT path, stamp FROM runs LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        if _is_passing(error):
            raise
        return "is damaged"
    except sqlite3.Error:
        return "is damaged"
    return "" if made_with == (layout.described(),) else "is of another version of bwprof"


def _is_passing(error: sqlite3.Error) -> bool:
    """Whether an error says nothing of what is in the file: it is locked, cannot be opened, or its disk is full."""
    passing = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
    passing |= {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in passing


def is_damage(error: Exception) -> bool:
    """Whether an error of a `Store` means that its file must be made anew."""
    return isinstance(error, DamagedError) or (isinstance(error, sqlite3.DatabaseError) and not _is_passing(error))
