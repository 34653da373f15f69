"""A run folder's rows as the index keeps them: quickly where the run has ended well, with all care elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from bwprof import registry, results
from bwprof.records.index import layout
from bwprof.results import jsonfile, schema
from bwprof.results.files import claim_path
from bwprof.results.schema import Row

_ROWS, _END = b'\n "rows": [\n', b"\n ]\n}\n"
_SAMPLES = b', "%b": ' % jsonfile.SAMPLES.encode()
_RUNNING = "running"
_COMMITS = ("git_commit", "commit")


@dataclass(frozen=True, slots=True)
class Content:
    """A run as it is kept: its metadata, by `layout.RUN`, and its rows; `problem` says why there are none."""

    about: tuple[Any, ...]
    keys: bytes = b""
    figures: bytes = b""
    problem: str = ""


class Reader:
    """Reads run folders; `parts` are the texts of the cases and remarks that came along, by their numbers."""

    def __init__(self) -> None:
        self.parts: dict[int, str] = {}
        self._cases: dict[Any, int] = {}
        self._remarks: dict[Any, int] = {}
        self._known = frozenset((*schema.names(), schema.SAMPLES))
        self._empty = dict.fromkeys((*layout.case_names(), *layout.REMARK, *layout.FIGURES, "timestamp"))
        self._case = itemgetter(*layout.case_names())
        self._remark = itemgetter(*layout.REMARK)
        self._figures = itemgetter(*layout.FIGURES)

    def read(self, folder: Path) -> Content:
        """What a folder holds; what cannot be read is a `problem`, never an exception."""
        quick = self.read_finished(folder)
        if quick is not None:
            return quick
        try:
            rows, _, run = results.read_rows(folder)
            return self._content(rows, _about(run), folder)
        except (OSError, OverflowError, RecursionError, TypeError, ValueError) as error:
            said = str(error) if not isinstance(error, OSError) or error.errno is None else error.strerror
            return Content(
                (None, layout.NO_TIME, layout.NO_TIME, None, None, None), problem=said or "it cannot be read"
            )

    def read_finished(self, folder: Path) -> Content | None:
        """What the folder of a run that has ended well holds; None where more care is needed to read it, or to say why
        it cannot be read.
        """
        try:
            quick = _finished(folder)
            return None if quick is None else self._content(*quick, folder)
        except (LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError):
            return None

    def _content(self, rows: Sequence[Row], about: dict[str, Any], folder: Path) -> Content:
        keys, figures = [], []
        host = about.get("hostname")
        for row in rows:
            whole = {**self._empty, **row}
            if whole["hostname"] is None:
                whole["hostname"] = host
            whole["case"] = registry.case_name(whole["case"] or whole["operation"], whole["kv_lens"])
            more = row.keys() - self._known
            labels = _labels(row, more) if more else ""
            keys.append((self._case_of(whole, labels), self._remark_of(whole), layout.microseconds(whole["timestamp"])))
            figures.append(self._figures(whole))
        first = min((key[2] for key in keys if key[2] != layout.NO_TIME), default=layout.NO_TIME)
        run_id = about.get("run_id") or next((str(row["run_id"]) for row in rows if row.get("run_id")), None)
        started = layout.microseconds(about.get("started"))
        if started == layout.NO_TIME:
            started = first if first != layout.NO_TIME else _age(folder)
        commit = next((about[name] for name in _COMMITS if about.get(name)), None)
        told = (run_id or folder.name, started, layout.microseconds(about.get("finished")))
        texts = [
            None if found is None else schema.clean(str(found))
            for found in (about.get("status"), about.get("suite"), commit)
        ]
        return Content(
            (schema.clean(str(told[0])), *told[1:], *texts),
            np.array(keys, dtype="<i8").tobytes(),
            np.array(figures, dtype="<f8").tobytes(),
        )

    def _case_of(self, whole: Row, labels: str) -> int:
        values = (self._case(whole), labels)
        found = self._cases.get(values)
        if found is None:
            text = layout.plain_case(whole, labels)
            found = self._cases[values] = layout.number_of(text)
            self.parts[found] = text
        return found

    def _remark_of(self, whole: Row) -> int:
        values = self._remark(whole)
        found = self._remarks.get(values)
        if found is None:
            text = layout.plain_remark(whole)
            found = self._remarks[values] = layout.number_of(text)
            self.parts[found] = text
        return found


def _finished(folder: Path) -> tuple[list[Row], dict[str, Any]] | None:
    """Rows and metadata of a run that has ended well, if its file is as our writer leaves it; None if it is not.

    Raw samples, most of the file, are left alone.
    """
    path = folder / results.JSON_NAME
    if not path.is_file() or os.path.exists(claim_path(path)):
        return None
    content = path.read_bytes()
    start = content.find(_ROWS)
    if start < 0 or not content.startswith(_head()) or not content.endswith(_END):
        return None
    about = _told(content[:start])
    if about.get("status") in (None, _RUNNING):
        return None
    pieces = []
    for line in content[start + len(_ROWS) : -len(_END)].split(b",\n"):
        end = line.rfind(_SAMPLES)
        if end < 0:
            return None
        pieces.append(line[:end])
    rows = json.loads(b"[" + b"},".join(pieces) + b"}]")
    if any(row.get("replaces") or not row.get("operation") or row.get("precision") is None for row in rows):
        return None
    return rows, about


def _head() -> bytes:
    head = f'{{\n "format": "{jsonfile.FORMAT}",\n "schema_version": {schema.SCHEMA_VERSION},\n "run": {{\n'
    return head.encode()


def _told(head: bytes) -> dict[str, Any]:
    """The metadata that the index keeps, from lines of their own; they are a small part of all."""
    about = {name: _value(head, b'\n  "%b": ' % name.encode()) for name in (*layout.RUN, *_COMMITS)}
    host = head.find(b'\n  "host": {\n   "name": ')
    about["hostname"] = _value(head[host:], b'\n   "name": ') if host >= 0 else None
    return about


def _value(head: bytes, key: bytes) -> Any:
    start = head.find(key)
    if start < 0:
        return None
    start += len(key)
    end = head.find(b"\n", start)
    return json.loads(head[start : end if end >= 0 else None].rstrip(b","))


def _about(run: dict[str, Any]) -> dict[str, Any]:
    host = run.get("host")
    name = host.get("name") if isinstance(host, dict) else None
    return {
        **{key: run.get(key) for key in (*layout.RUN, *_COMMITS)},
        "hostname": name if isinstance(name, str) else None,
    }


def _labels(row: Row, names: Iterable[str]) -> str:
    """The caller's own columns as one text; none where nothing is in them."""
    found = {schema.clean(name): schema.free(row[name]) for name in sorted(names)}
    known = {name: value for name, value in found.items() if value is not None}
    return json.dumps(jsonfile.plain(known)) if known else ""


def _age(folder: Path) -> int:
    """When a run's rows were written, for one that does not say when it ran."""
    for name in (results.JSON_NAME, results.CSV_NAME):
        try:
            return os.stat(folder / name).st_mtime_ns // 1000
        except OSError:
            continue
    return layout.NO_TIME
