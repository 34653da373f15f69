"""Baselines: the rows of one or more fresh processes by case, one JSON file each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.records.keys import geometric_mean, key_names, positive_number, unique_keys
from bwprof.results import json_file, pairs, schema
from bwprof.results.atomic import atomic_write, lock, read_text, refuse_foreign
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.formatting import plural
from bwprof.text.listing import Listing
from bwprof.text.parsing import describe_unknown, parse_bool, parse_path, quote_text, repr_short

FORMAT = "bwprof-baseline"
VERSION = 1
_MISREAD = frozenset({"inf", "na", "nan", "nat", "none", "null"})
FOLDER = ".bwprof/baselines"  # below the working directory, so that a repository can hold it
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", re.ASCII)
_WIDTH = 120  # of a line; lists of numbers are on one line always
_SAVE_AGAIN = "save it anew with 'bwprof baseline save NAME --force', or take an older copy of the file"
_encode = json.JSONEncoder(allow_nan=False).encode
BaselineRun = tuple[Sequence[RowDict], Sequence[list[float] | None], Mapping[str, Any]]  # rows, raw samples, metadata

# Columns that a case has once where all processes agree, beside its key and its work.
_SHARED = (
    *("seed", "buffer_sets", "peak_gb_s", "peak_tflops", "tolerance", "rows_checked", "rows_total"),
    *("device_uuid", "driver", "hostname", "bwprof_version", "schema_version"),
)


@dataclass(frozen=True, slots=True)
class BaselineCase:
    """A case: one row for each run, with its raw samples. Runs of one process count once."""

    rows: tuple[RowDict, ...]
    samples: tuple[list[float] | None, ...]

    @property
    def process_ms(self) -> tuple[float, ...]:
        """The median time of each process; the geometric mean of several runs of one process."""
        times: dict[object, list[float]] = {}
        for place in self.timed:
            times.setdefault(self.process(place), []).append(float(self.rows[place]["time_ms"]))
        groups = ([ms for ms in group if positive_number(ms)] or group[:1] for group in times.values())
        return tuple(map(geometric_mean, groups))

    @property
    def processes(self) -> int:
        """The number of processes, with or without a usable time."""
        return len(set(map(self.process, range(len(self.rows)))))

    @property
    def middle(self) -> int:
        """The index of the row with the median time (the lower of two), which represents the case."""
        places = sorted(self.timed, key=lambda place: float(self.rows[place]["time_ms"]))
        return places[(len(places) - 1) // 2] if places else 0

    @property
    def row(self) -> RowDict:
        """The row that represents the case."""
        return self.rows[self.middle]

    def process(self, place: int) -> object:
        """Return what identifies the process of a row: in older files its run's id."""
        row = self.rows[place]
        return str(row.get("process") or row.get("run_id") or "") or place

    @property
    def timed(self) -> list[int]:
        """The indices of rows with a usable time; of disturbed rows only where there are no others."""
        rows = enumerate(self.rows)
        timed = [n for n, row in rows if row["status"] == "ok" and not formatting.is_missing(row["time_ms"])]
        return [place for place in timed if pairs.is_comparable(self.rows[place])] or timed


@dataclass(frozen=True, slots=True)
class Baseline:
    """Measurements that later ones are compared with.

    Attributes
    ----------
    name, saved : str
        The name (the file is ``NAME.json``), and when it was saved, UTC.
    cases : tuple of BaselineCase
        The cases, sorted by their names.
    run : dict
        Metadata of the first process's run.
    processes : tuple of dict
        run_id, started and finished of each process, where known; none for a plain run.

    Examples
    --------
    >>> row = {"operation": "gemm", "status": "ok", "flags": "", "device": "H200", "driver": None}
    >>> rows = tuple({**row, "time_ms": time} for time in (0.52, 0.50, 0.51))
    >>> baseline = Baseline("main", (BaselineCase(rows, (None, None, None)),))
    >>> baseline.rows[0]["time_ms"], baseline.process_ms, baseline.device
    (0.51, [(0.52, 0.5, 0.51)], 'H200')
    """

    name: str
    cases: tuple[BaselineCase, ...]
    run: Mapping[str, Any] = field(default_factory=dict)
    processes: tuple[Mapping[str, Any], ...] = ()
    saved: str = ""

    @property
    def rows(self) -> list[RowDict]:
        """One row for each case: the one with the median time."""
        return [case.row for case in self.cases]

    @property
    def samples(self) -> list[list[float] | None]:
        """The raw samples of `rows`, ns per launch."""
        return [case.samples[case.middle] for case in self.cases]

    @property
    def process_ms(self) -> list[tuple[float, ...]]:
        """The median times of all processes, ms, for each case."""
        return [case.process_ms for case in self.cases]

    @property
    def most_processes(self) -> int:
        """The number of processes of the case that has most."""
        return max((case.processes for case in self.cases), default=0)

    @property
    def joined(self) -> str:
        """A description of runs that share a process, which counts once; "" where none do."""
        if all(case.processes == len(case.rows) for case in self.cases):
            return ""
        count, runs = self.most_processes, max(len(case.rows) for case in self.cases)
        return f"{runs} runs of {'one process, which counts once' if count == 1 else f'{count} processes'}"

    @property
    def device(self) -> str:
        """The devices' names, joined by ';'."""
        return self._join_values("device")

    @property
    def driver(self) -> str:
        """The drivers' versions, joined by ';'."""
        return self._join_values("driver")

    def _join_values(self, name: str) -> str:
        return ";".join(dict.fromkeys(str(row[name]) for case in self.cases for row in case.rows if row[name]))

    def only(self, patterns: Sequence[str]) -> Baseline:
        """Return the cases whose case or operation matches one of the patterns; raise ValueError for none."""
        chosen = tuple(
            case
            for case in self.cases
            if any(fnmatchcase(str(case.row[name]), word) for name in ("case", "operation") for word in patterns)
        )
        if not chosen:
            rows = f"{plural(len(self.cases), 'row')} of {quote_text(self.name)}"
            raise ValueError(f"--only '{quote_text(','.join(patterns))}': none is left of {rows}")
        return replace(self, cases=chosen)


def make_baseline(name: str, runs: Sequence[BaselineRun], *, saved: str = "") -> Baseline:
    """Make a baseline of runs; raise ValueError where they have no row."""
    cases: dict[tuple[object, ...], list[tuple[RowDict, list[float] | None]]] = {}
    for keys, (rows, samples, _) in zip(unique_keys(*(rows for rows, _, _ in runs)), runs, strict=True):
        for key, row, values in zip(keys, rows, samples, strict=True):
            cases.setdefault(key, []).append((row, values))
    if not cases:
        raise ValueError(f"baseline '{quote_text(name)}' would be empty: its sources have no rows")
    ordered = sorted(cases.items(), key=lambda item: _sort_key(item[0], item[1][0][0]))
    names = ("run_id", "started", "finished")
    processes = tuple({word: run[word] for word in names if run.get(word)} for _, _, run in runs)
    members = tuple(BaselineCase(*zip(*case, strict=True)) for _, case in ordered)
    return Baseline(name, members, dict(runs[0][2]), processes, saved)


def _sort_key(key: tuple[object, ...], row: RowDict) -> list[tuple[bool, int, str]]:
    values = [row.get(name) for name in ("case", "precision", "cache", "variant")] + list(key)
    return [(one is not None, one if isinstance(one, int) else 0, "" if one is None else str(one)) for one in values]


def format_baseline(baseline: Baseline) -> str:
    """Return a baseline's JSON document: the same for the same content, one value a line, without missing values."""
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
    shared = {*key_names(), *_SHARED, *(column.name for column in schema.all_columns() if column.group == "work")}
    cases = [_case_document(case, shared) for case in baseline.cases]
    return _format_json({**json_file.to_json_value(document), "cases": cases}, 0) + "\n"


def _case_document(case: BaselineCase, shared: Collection[str]) -> dict[str, Any]:
    """Put the `shared` columns in which all processes agree into "case", the others into "processes"."""
    rows = [json_file.to_json_row(row, values) for row, values in zip(case.rows, case.samples, strict=True)]
    equal = {name for name in shared if len(rows) == 1 or len({_encode(row.get(name)) for row in rows}) == 1}
    first = {name: value for name, value in rows[0].items() if name in equal}
    rest = [{name: value for name, value in row.items() if name not in first and value is not None} for row in rows]
    return {"case": first, "processes": rest}


def _format_json(value: Any, depth: int) -> str:
    """Format JSON, one line for whatever fits into `_WIDTH`."""
    if isinstance(value, dict):
        ends, items = "{}", [f"{_encode(name)}: {_format_json(item, depth + 1)}" for name, item in value.items()]
    elif isinstance(value, list) and not all(type(item) in (int, float) for item in value):
        ends, items = "[]", [_format_json(item, depth + 1) for item in value]
    else:
        return _encode(value)
    line = f"{ends[0]}{', '.join(items)}{ends[1]}"
    if len(line) + depth <= _WIDTH and "\n" not in line:
        return line
    pad = "\n" + " " * depth
    return f"{ends[0]}{pad} {f',{pad} '.join(items)}{pad}{ends[1]}"


def read_baseline(path: Path) -> Baseline:
    """Read a baseline's file; its name is the file's."""
    return parse_baseline(read_text(path), str(path), path.stem)


def parse_baseline(content: str, source: str, name: str) -> Baseline:
    """Parse a file's text; raise ValueError, with the file as `source`, for another, incomplete or later file."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} is not a whole baseline ({error}): {_SAVE_AGAIN}") from None
    kind = document.get("format") if isinstance(document, dict) else None
    if kind != FORMAT:
        what = f"its format is {repr_short(kind)}; 'bwprof baseline save NAME FILE' makes one of a result file"
        raise ValueError(f"{source} is not a baseline: {what}")
    version = document.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        what = f"version {repr_short(version)}; this bwprof reads up to {VERSION}: install a newer one"
        raise ValueError(f"{source} is a baseline of {what}")
    schema.check_version(document.get("schema_version"), source)
    cases, run, processes = (document.get(part) for part in ("cases", "run", "processes"))
    if not isinstance(cases, list) or not cases or not isinstance(run, dict) or not _are_dicts(processes):
        raise ValueError(f"{source} is not a whole baseline (cases, run or processes are missing): {_SAVE_AGAIN}")
    json_file.check_depth(run, source)
    members = []
    for number, case in enumerate(cases, start=1):
        try:
            members.append(_parse_case(case, source))
        except ValueError as error:
            raise ValueError(f"{source}, case {number}: {error}") from None
    return Baseline(name, tuple(members), run, tuple(processes), str(document.get("saved") or ""))


def _are_dicts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _parse_case(case: Any, source: str) -> BaselineCase:
    shared, processes = (case.get(name) for name in ("case", "processes")) if isinstance(case, dict) else (None, None)
    if not isinstance(shared, dict) or not _are_dicts(processes) or not processes:
        raise ValueError(f"{repr_short(case)} is no case with its processes")
    rows = [json_file.parse_row({**shared, **process}, source) for process in processes]
    return BaselineCase(*zip(*rows, strict=True))


def check_file_name(name: object, what: str) -> str:
    """Return a name that is safe as a file's name; raise ValueError with `what` for any other."""
    if isinstance(name, str) and PLAIN_NAME.fullmatch(name):
        return name
    raise ValueError(
        f"{what} is {repr_short(name)}: allowed are 128 of the letters A-Z a-z, digits, '.', '_' and '-', "
        "not beginning with '.'"
    )


def baseline_folder(folder: str | PathLike[str] | None) -> Path:
    """Return the folder of baselines; the default one for None."""
    return Path(FOLDER) if folder is None else parse_path(folder, "folder")


def baseline_path(name: str, folder: str | PathLike[str] | None = None) -> Path:
    """Return a baseline's file; raise ValueError for an unsafe name."""
    plain = check_file_name(name, "the name of a baseline")
    if plain.startswith("-") or plain.lower() in _MISREAD:
        raise ValueError(f"the name of a baseline is '{plain}': tables and shells misread it; use another name")
    return baseline_folder(folder) / f"{plain}.json"


def baselines(*, folder: str | PathLike[str] | None = None) -> Listing:
    """List the baselines of a folder.

    Parameters
    ----------
    folder : path, optional
        The folder of baselines; by default ``.bwprof/baselines``.

    Returns
    -------
    list of dict
        By name: name, cases, processes, device, driver, saved, and problem (why the file cannot be read, else ""). The
        list prints as a table, and names index it, too.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     bwprof.baselines(folder=folder)["main"]["cases"]
    63
    """
    lines = Listing()
    lines.kind = "baseline"
    for name in baseline_names(folder):
        path, problem = baseline_folder(folder) / f"{name}.json", ""
        try:
            found = read_baseline(path)
        except (OSError, ValueError) as error:
            found, reason = Baseline(name, ()), getattr(error, "strerror", None)
            problem = f"{quote_text(path)}: {reason}" if reason else str(error)
        line = {"name": name, "cases": len(found.cases), "processes": found.most_processes, "device": found.device}
        lines.append(line | {"driver": found.driver, "saved": found.saved, "problem": problem})
    return lines


def baseline_names(folder: str | PathLike[str] | None = None) -> list[str]:
    """Return the sorted names of the baselines in a folder; none where there is no folder."""
    try:
        names = sorted(path.stem for path in baseline_folder(folder).iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    return [name for name in names if not name.startswith(".")]


def _missing_error(name: str, folder: str | PathLike[str] | None) -> FileNotFoundError:
    where, names = quote_text(baseline_folder(folder)), baseline_names(folder)
    if names:
        return FileNotFoundError(describe_unknown("baseline", name, names, where=where))
    return FileNotFoundError(f"no baseline '{name}' in {where}: 'bwprof baseline save {name}' makes one")


def load_baseline(name: str, *, folder: str | PathLike[str] | None = None) -> Baseline:
    """Read a baseline.

    Parameters
    ----------
    name : str
        The name it was saved as.
    folder : path, optional
        The folder of baselines; by default ``.bwprof/baselines``.

    Returns
    -------
    Baseline
        Its `rows` (one a case), their raw `samples`, `process_ms` (of each process), `device`, `driver`, `run`.

    Raises
    ------
    FileNotFoundError
        When there is no baseline of that name.
    ValueError
        For an unsafe name, and a file that is no complete baseline or one of a later bwprof.

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
        raise _missing_error(name, folder) from None


def delete_baseline(name: str, *, folder: str | PathLike[str] | None = None) -> Path:
    """Remove a baseline's file, damaged or not, and return its path.

    Raises
    ------
    OSError
        When there is none of that name, it cannot be removed, or another process is saving it.

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
        raise _missing_error(name, folder)
    with lock(path):
        path.unlink()
    return path


def write_baseline(baseline: Baseline, *, folder: str | PathLike[str] | None = None, force: bool = False) -> Path:
    """Write a baseline's file in one step, and return its path; replace another one only with `force`."""
    path = baseline_path(baseline.name, folder)
    content = format_baseline(baseline)
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path):
        check_free(baseline.name, folder, force=force)
        atomic_write(path, content, check=lambda text: parse_baseline(text, str(path), baseline.name))
    return path


def prepare_folder(name: str, folder: str | PathLike[str] | None = None, *, force: bool = False) -> None:
    """Check before a measurement that `write_baseline` can write: the name is free, the folder writable."""
    check_free(name, folder, force=force)
    path = baseline_path(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path):
        pass


def check_free(name: str, folder: str | PathLike[str] | None = None, *, force: bool = False) -> None:
    """Raise FileExistsError for a baseline that may not be replaced, ValueError for a link."""
    path = baseline_path(name, folder)
    refuse_foreign(path)
    if not parse_bool(force, "force") and os.path.lexists(path):
        raise FileExistsError(f"there is a baseline '{name}' already ({path}): --force (force=True) replaces it")
