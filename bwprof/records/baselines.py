"""Baselines: rows of one or more fresh processes by case, in one file each that diffs well."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.records.keys import geometric_mean, key_names, positive_number, process_name, unique_keys
from bwprof.results import columns, json_file, pairs, schema
from bwprof.results.atomic import atomic_write, lock, read_text, refuse_foreign
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.listing import Listing
from bwprof.text.parsing import nearest_name, number_or_nan, parse_bool, parse_path, quote_text, repr_short

FORMAT = "bwprof-baseline"

VERSION = 1

_encoded = json.JSONEncoder(allow_nan=False).encode

_WIDEST = 120  # what fits is one line, and so is a list of numbers

BaselineRun = tuple[Sequence[RowDict], Sequence[list[float] | None], Mapping[str, Any]]  # rows, raw samples, metadata

# Of a case, beside its key and its work: what one process finds as any other does.
_SHARED = (
    *("seed", "buffer_sets", "peak_gb_s", "peak_tflops", "tolerance", "rows_checked", "rows_total"),
    *("device_uuid", "driver", "hostname", "bwprof_version", "schema_version"),
)


@dataclass(frozen=True, slots=True)
class BaselineCase:
    """A case of a baseline: the row of each run that measured it, with its raw samples. Several runs of one process
    count once.
    """

    rows: tuple[RowDict, ...]
    samples: tuple[list[float] | None, ...]

    @property
    def process_ms(self) -> tuple[float, ...]:
        """The median of each process, of several runs of one their geometric mean; disturbed ones are left out where
        others are not.
        """
        found: dict[object, list[float]] = {}
        for place in self.timed:
            found.setdefault(self.process(place), []).append(float(self.rows[place]["time_ms"]))
        return tuple(
            geometric_mean([ms for ms in times if positive_number(ms)] or times[:1]) for times in found.values()
        )

    @property
    def processes(self) -> int:
        """How many measured it, whether their times count or not."""
        return len(set(map(self.process, range(len(self.rows)))))

    @property
    def middle(self) -> int:
        """Which row stands for the case: the one whose median is the middle one, the lower of two."""
        places = self.timed
        return (
            sorted(places, key=lambda place: float(self.rows[place]["time_ms"]))[(len(places) - 1) // 2]
            if places
            else 0
        )

    @property
    def row(self) -> RowDict:
        """That row."""
        return self.rows[self.middle]

    def process(self, place: int) -> object:
        """What tells the process of a row from others."""
        return process_name(self.rows[place]) or place

    @property
    def timed(self) -> list[int]:
        """The places of the rows whose times count: disturbed ones where no others are."""
        timed = [
            n for n, row in enumerate(self.rows) if row["status"] == "ok" and not formatting.is_missing(row["time_ms"])
        ]
        return [place for place in timed if pairs.is_comparable(self.rows[place])] or timed


@dataclass(frozen=True, slots=True)
class Baseline:
    """What later measurements are held against.

    Attributes
    ----------
    name : str
        What it is called; its file is ``NAME.json``.
    cases : tuple of Kept
        The cases, in the order of their names.
    run : dict
        Metadata of the first process's run.
    processes : tuple of dict
        Each process's run_id, started and finished, where they are known.
    saved : str
        When it was saved, UTC.
    Examples
    --------
    >>> row = {"operation": "gemm", "status": "ok", "flags": "", "device": "H200", "driver": None}
    >>> rows = tuple({**row, "time_ms": time} for time in (0.52, 0.50, 0.51))
    >>> found = Baseline("main", (BaselineCase(rows, (None, None, None)),))
    >>> found.rows[0]["time_ms"], found.process_ms, found.device
    (0.51, [(0.52, 0.5, 0.51)], 'H200')
    """

    name: str
    cases: tuple[BaselineCase, ...]
    run: Mapping[str, Any] = field(default_factory=dict)
    processes: tuple[Mapping[str, Any], ...] = ()
    saved: str = ""

    @property
    def rows(self) -> list[RowDict]:
        """A row a case: the one in the middle."""
        return [kept.row for kept in self.cases]

    @property
    def samples(self) -> list[list[float] | None]:
        """The raw samples of `rows`, ns per launch."""
        return [kept.samples[kept.middle] for kept in self.cases]

    @property
    def process_ms(self) -> list[tuple[float, ...]]:
        """Of each of `rows` the medians of all processes: how far they wander."""
        return [kept.process_ms for kept in self.cases]

    @property
    def most_processes(self) -> int:
        """How many processes measured a case, at most."""
        return max(kept.processes for kept in self.cases)

    @property
    def joined(self) -> str:
        """In words that runs of one process count once; "" where each has its own."""
        runs = max(len(kept.rows) for kept in self.cases)
        if all(kept.processes == len(kept.rows) for kept in self.cases):
            return ""
        count = self.most_processes
        return f"{runs} runs of {'one process, which counts once' if count == 1 else f'{count} processes'}"

    @property
    def device(self) -> str:
        """The devices' names, joined by ';' where there are several."""
        return self._told("device")

    @property
    def driver(self) -> str:
        """The driver's version, likewise."""
        return self._told("driver")

    def _told(self, name: str) -> str:
        return ";".join(dict.fromkeys(str(row[name]) for kept in self.cases for row in kept.rows if row[name]))


def make_baseline(name: str, runs: Sequence[BaselineRun], *, saved: str = "") -> Baseline:
    """A baseline of the rows, raw samples and metadata of one process's run, or of several.

    Raises
    ------
    ValueError
        When there is no row.
    """
    keys = unique_keys(*(rows for rows, _, _ in runs))
    found: dict[tuple[object, ...], list[tuple[RowDict, list[float] | None]]] = {}
    for told, (rows, samples, _) in zip(keys, runs, strict=True):
        for one, row, values in zip(told, rows, samples, strict=True):
            found.setdefault(one, []).append((row, values))
    if not found:
        raise ValueError(f"baseline '{quote_text(name)}' would be empty: what it is made of has no rows")
    in_order = sorted(found.items(), key=lambda item: _place(item[0], item[1][0][0]))
    cases = tuple(BaselineCase(*zip(*kept, strict=True)) for _, kept in in_order)
    told_of = ("run_id", "started", "finished")
    processes = tuple({word: run[word] for word in told_of if run.get(word)} for _, _, run in runs)
    return Baseline(name, cases, dict(runs[0][2]), processes, saved)


def _place(key: tuple[object, ...], row: RowDict) -> list[tuple[bool, int, str]]:
    """Where a case stands: by its names first, numbers as numbers."""
    values = [row.get(name) for name in ("case", "precision", "cache", "variant")] + list(key)
    return [
        (value is not None, value if isinstance(value, int) else 0, "" if value is None else str(value))
        for value in values
    ]


def format_baseline(baseline: Baseline) -> str:
    """The whole document, the same for the same content: a line a value, missing ones left out."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "schema_version": schema.SCHEMA_VERSION,
        "saved": baseline.saved,
        "device": baseline.device,
        "driver": baseline.driver,
        "processes": [dict(process) for process in baseline.processes],
        "run": dict(baseline.run),
    }
    shared = {*key_names(), *_SHARED, *(column.name for column in columns.all_columns() if column.group == "work")}
    cases = [_case_document(kept, shared) for kept in baseline.cases]
    return _written({**json_file.to_json_value(document), "cases": cases}, 0) + "\n"


def _case_document(kept: BaselineCase, shared: Collection[str]) -> dict[str, Any]:
    """What is the same in all processes, once; if it is one of the `shared` columns; the rest for each of them."""
    whole = [json_file.to_json_row(row, values) for row, values in zip(kept.rows, kept.samples, strict=True)]
    several = len(whole) > 1
    same = {name for name in shared if not several or len({_encoded(row.get(name)) for row in whole}) == 1}
    first = {name: value for name, value in whole[0].items() if name in same}
    rest = [{name: value for name, value in row.items() if name not in first and value is not None} for row in whole]
    return {"case": first, "processes": rest}


def _written(value: Any, depth: int) -> str:
    """JSON with a line for each thing that is not short."""
    if not isinstance(value, (dict, list)) or _is_numbers(value):
        return _encoded(value)
    if _room_behind(value, _WIDEST - depth) >= 0 and len(short := _encoded(value)) + depth <= _WIDEST:
        return short
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        inner = [f"{pad}{_encoded(name)}: {_written(item, depth + 1)}" for name, item in value.items()]
        return "{\n" + ",\n".join(inner) + f"\n{pad[1:]}}}"
    return "[\n" + ",\n".join(pad + _written(item, depth + 1) for item in value) + f"\n{pad[1:]}]"


def _room_behind(value: Any, room: int) -> int:
    """What is left of so many characters behind the fewest that a value may take; below 0 where it surely is longer."""
    if not isinstance(value, (dict, list)):
        return room - (len(value) if isinstance(value, str) else 1)
    room -= 2 * len(value)
    for item in value.values() if isinstance(value, dict) else value:
        if room < 0:
            break
        room = _room_behind(item, room)
    return room


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) in (int, float) for item in value)


def read_baseline(path: Path) -> Baseline:
    """The baseline of a file; its name is the file's.

    Raises
    ------
    FileNotFoundError
        When there is none.
    ValueError
        When it is no baseline, not a whole one, or one that a later bwprof wrote.
    """
    return parse_baseline(read_text(path), str(path), path.stem)


def parse_baseline(content: str, source: str, name: str) -> Baseline:
    """The same from a file's text; `source` names it."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} is not a whole baseline ({error}): {_ANEW}") from None
    found = document.get("format") if isinstance(document, dict) else None
    if found == json_file.FORMAT:
        raise ValueError(f"{source} is a result file, not a baseline: 'bwprof baseline save NAME FILE' makes one of it")
    if found != FORMAT:
        raise ValueError(f'{source} is not a baseline: it has no "format": "{FORMAT}"')
    _check_versions(document, source)
    cases, run, processes = (document.get(part) for part in ("cases", "run", "processes"))
    if not isinstance(cases, list) or not isinstance(run, dict) or not _are_dicts(processes):
        raise ValueError(f"{source} is not a whole baseline (cases, run or processes are missing): {_ANEW}")
    if not cases:
        raise ValueError(f"{source} is empty, it has no cases: {_ANEW}")
    json_file.check_depth(run, source)
    kept = []
    for number, case in enumerate(cases, start=1):
        try:
            kept.append(_read_case(case, source))
        except ValueError as error:
            raise ValueError(f"{source}, case {number}: {error}") from None
    return Baseline(name, tuple(kept), run, tuple(processes), str(document.get("saved") or ""))


_ANEW = "save it anew with 'bwprof baseline save NAME --force', or take an older copy of the file"


def _check_versions(document: Mapping[str, Any], source: str) -> None:
    version = document.get("version")
    if type(version) is int and version > VERSION:
        raise ValueError(
            f"{source} is a baseline of version {version}; this bwprof reads up to {VERSION}: install a newer one"
        )
    if type(version) is not int or version < 1:
        raise ValueError(f"{source} is a baseline of version {repr_short(version)}: a whole number from 1 is needed")
    schema.check_version(document.get("schema_version"), source)


def _are_dicts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(item, dict) for item in found)


def _read_case(found: Any, source: str) -> BaselineCase:
    """A case of the file."""
    if not isinstance(found, dict) or not isinstance(found.get("case"), dict) or not _are_dicts(found.get("processes")):
        raise ValueError(f"{repr_short(found)} is no case with its processes")
    if not found["processes"]:
        raise ValueError("it has no processes")
    rows = [json_file.parse_row({**found["case"], **process}, source) for process in found["processes"]]
    return BaselineCase(*zip(*rows, strict=True))


MOST_LETTERS = 128

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", re.ASCII)


def check_file_name(given: object, what: str) -> str:
    """A name that is safe as a file's; ValueError with `what` for anything else.

    Examples
    --------
    >>> plain_name("h200_driver-580.1", "a baseline's name")
    'h200_driver-580.1'
    """
    if isinstance(given, str) and _PLAIN.fullmatch(given):
        return given
    raise ValueError(
        f"{what} is {repr_short(given)}: allowed are {MOST_LETTERS} of the letters A-Z a-z, digits, '.', '_' and '-', "
        "not beginning with '.'"
    )


FOLDER = ".bwprof/baselines"  # below the working directory: in a repository it can be committed

_MISSING = frozenset({"na", "nan", "nat", "none", "null"})

_LISTED = 10  # names that a message lists


def baseline_folder(folder: str | PathLike[str] | None) -> Path:
    """Where baselines are, unless `folder` says otherwise."""
    return Path(FOLDER) if folder is None else parse_path(folder, "folder")


def baseline_path(name: str, folder: str | PathLike[str] | None = None) -> Path:
    """A baseline's file; ValueError for a name that is none, and for one that tables read as a missing value."""
    plain = check_file_name(name, "the name of a baseline")
    if plain.lower() in _MISSING or plain.startswith("-") or math.isinf(number_or_nan(plain)):
        raise ValueError(f"the name of a baseline is '{plain}': tables and shells misread it; use another name")
    return baseline_folder(folder) / f"{plain}.json"


class Baselines(Listing):
    """The baselines of a folder."""

    kind = "baseline"


def baselines(*, folder: str | PathLike[str] | None = None) -> Baselines:
    """The baselines that are there.

    Parameters
    ----------
    folder : path, optional
        Where baselines are; ``.bwprof/baselines`` below the working directory when left out.

    Returns
    -------
    list of dict
        By name: name, cases, processes (that measured them), device, driver, saved, and problem: why the file cannot be
        read, "" where it can. It shows itself as a table, and is indexed by names, too.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     bwprof.baselines(folder=folder)["main"]["cases"]
    63
    """
    found = Baselines()
    for name in baseline_names(folder):
        line: dict[str, object] = {"name": name, "cases": 0, "processes": 0}
        line |= {"device": "", "driver": "", "saved": "", "problem": ""}
        try:
            known = read_baseline(baseline_folder(folder) / f"{name}.json")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None)
            line["problem"] = f"{quote_text(baseline_folder(folder) / name)}.json: {reason}" if reason else str(error)
        else:
            line |= {"cases": len(known.cases), "processes": known.most_processes}
            line |= {"device": known.device, "driver": known.driver, "saved": known.saved}
        found.append(line)
    return found


def baseline_names(folder: str | PathLike[str] | None = None) -> list[str]:
    """The names of the baselines that are there, in order; none where there is no folder."""
    try:
        found = sorted(path.stem for path in baseline_folder(folder).iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    return [name for name in found if not name.startswith(".")]


def missing_error(name: str, folder: str | PathLike[str] | None = None) -> FileNotFoundError:
    """The error for a name that no baseline has; it offers the nearest one."""
    known = baseline_names(folder)
    near = nearest_name(name, known, likeness=0.5)
    hint = f"did you mean '{near}'? " if near else ""
    listed = ", ".join(known[:_LISTED]) + (f" and {len(known) - _LISTED} more" if len(known) > _LISTED else "")
    there = f"there: {listed}" if known else f"'bwprof baseline save {quote_text(name)}' makes one"
    return FileNotFoundError(
        f"no baseline '{quote_text(name)}' in {quote_text(baseline_folder(folder))}: {hint}{there}"
    )


def load_baseline(name: str, *, folder: str | PathLike[str] | None = None) -> Baseline:
    """Read a baseline.

    Parameters
    ----------
    name : str
        What it was saved as.
    folder : path, optional
        Where baselines are; ``.bwprof/baselines`` below the working directory when left out.

    Returns
    -------
    Baseline
        Its `rows` (one a case), their raw `samples`, `process_ms` (the medians of each process), `device`, `driver`,
        `run` (metadata).

    Raises
    ------
    FileNotFoundError
        When there is none of that name: the message offers the nearest one.
    ValueError
        For a name that is none, and a file that is no whole baseline, or one of a later bwprof.
    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     bwprof.load_baseline("main", folder=folder).driver
    '580.159.04'
    """
    path = baseline_path(name, folder)
    try:
        return read_baseline(path)
    except FileNotFoundError:
        raise missing_error(name, folder) from None


def delete_baseline(name: str, *, folder: str | PathLike[str] | None = None) -> Path:
    """Remove a baseline's file, whatever it holds; gives its path.

    Raises
    ------
    FileNotFoundError
        When there is none of that name.
    OSError
        When it cannot be removed, or another process is saving it.
    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     bwprof.delete_baseline("main", folder=folder).name
    'main.json'
    """
    path = baseline_path(name, folder)
    if not os.path.lexists(path):
        raise missing_error(name, folder)
    with lock(path):
        path.unlink()
    return path


def write_baseline(baseline: Baseline, *, folder: str | PathLike[str] | None = None, force: bool = False) -> Path:
    """Write a baseline's file in one step, and give its path.

    Raises
    ------
    FileExistsError
        When there is one of that name and `force` was not given.
    OSError
        When it cannot be written; an older file is then whole.
    """
    path = baseline_path(baseline.name, folder)
    content = format_baseline(baseline)
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path):
        check_free(baseline.name, folder, force=force)
        atomic_write(path, content, check=lambda found: parse_baseline(found, str(path), baseline.name))
    return path


def prepare_folder(name: str, folder: str | PathLike[str] | None = None, *, force: bool = False) -> None:
    """Before anything is measured for it: the name is free, and the folder can be written to.

    Raises
    ------
    FileExistsError, OSError, ValueError
        As `write` would.
    """
    check_free(name, folder, force=force)
    path = baseline_path(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path):
        pass


def check_free(name: str, folder: str | PathLike[str] | None = None, *, force: bool = False) -> None:
    """FileExistsError when a baseline of that name is there and may not be replaced, ValueError for a link."""
    path = baseline_path(name, folder)
    refuse_foreign(path)
    if not parse_bool(force, "force") and os.path.lexists(path):
        raise FileExistsError(f"there is a baseline '{name}' already ({path}): --force (force=True) replaces it")
