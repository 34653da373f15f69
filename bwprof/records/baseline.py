"""A baseline: rows of one or more fresh processes, gathered by case; its file, which diffs well."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bwprof.records.comparing.values import middle, positive
from bwprof.records.keys import key_names, keys_of, process_of
from bwprof.results import difference, jsonfile, schema
from bwprof.results.files import read_text
from bwprof.results.schema import Row
from bwprof.text import quoted, shown

FORMAT = "bwprof-baseline"
VERSION = 1
_encoded = json.JSONEncoder(allow_nan=False).encode
_WIDEST = 120  # what fits is one line, and so is a list of numbers
Run = tuple[Sequence[Row], Sequence[list[float] | None], Mapping[str, Any]]  # rows, raw samples, metadata
# Of a case, beside its key and its work: what one process finds as any other does.
_SHARED = (
    *("seed", "buffer_sets", "peak_gb_s", "peak_tflops", "tolerance", "rows_checked", "rows_total"),
    *("device_uuid", "driver", "hostname", "bwprof_version", "schema_version"),
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A case of a baseline: the row of each run that measured it, with its raw samples. Several runs of one process
    count once.
    """

    rows: tuple[Row, ...]
    samples: tuple[list[float] | None, ...]

    @property
    def process_ms(self) -> tuple[float, ...]:
        """The median of each process, of several runs of one their geometric mean; disturbed ones are left out where
        others are not.
        """
        found: dict[object, list[float]] = {}
        for place in self.timed:
            found.setdefault(self.process(place), []).append(float(self.rows[place]["time_ms"]))
        return tuple(middle([ms for ms in times if positive(ms)] or times[:1]) for times in found.values())

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
    def row(self) -> Row:
        """That row."""
        return self.rows[self.middle]

    def process(self, place: int) -> object:
        """What tells the process of a row from others."""
        return process_of(self.rows[place]) or place

    @property
    def timed(self) -> list[int]:
        """The places of the rows whose times count: disturbed ones where no others are."""
        timed = [
            n for n, row in enumerate(self.rows) if row["status"] == "ok" and not schema.is_missing(row["time_ms"])
        ]
        return [place for place in timed if difference.comparable(self.rows[place])] or timed


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
    >>> found = Baseline("main", (Kept(rows, (None, None, None)),))
    >>> found.rows[0]["time_ms"], found.process_ms, found.device
    (0.51, [(0.52, 0.5, 0.51)], 'H200')
    """

    name: str
    cases: tuple[Kept, ...]
    run: Mapping[str, Any] = field(default_factory=dict)
    processes: tuple[Mapping[str, Any], ...] = ()
    saved: str = ""

    @property
    def rows(self) -> list[Row]:
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


def gathered(name: str, runs: Sequence[Run], *, saved: str = "") -> Baseline:
    """A baseline of the rows, raw samples and metadata of one process's run, or of several.

    Raises
    ------
    ValueError
        When there is no row.
    """
    keys = keys_of(*(rows for rows, _, _ in runs))
    found: dict[tuple[object, ...], list[tuple[Row, list[float] | None]]] = {}
    for told, (rows, samples, _) in zip(keys, runs, strict=True):
        for one, row, values in zip(told, rows, samples, strict=True):
            found.setdefault(one, []).append((row, values))
    if not found:
        raise ValueError(f"baseline '{quoted(name)}' would be empty: what it is made of has no rows")
    in_order = sorted(found.items(), key=lambda item: _place(item[0], item[1][0][0]))
    cases = tuple(Kept(*zip(*kept, strict=True)) for _, kept in in_order)
    told_of = ("run_id", "started", "finished")
    processes = tuple({word: run[word] for word in told_of if run.get(word)} for _, _, run in runs)
    return Baseline(name, cases, dict(runs[0][2]), processes, saved)


def _place(key: tuple[object, ...], row: Row) -> list[tuple[bool, int, str]]:
    """Where a case stands: by its names first, numbers as numbers."""
    values = [row.get(name) for name in ("case", "precision", "cache", "variant")] + list(key)
    return [
        (value is not None, value if isinstance(value, int) else 0, "" if value is None else str(value))
        for value in values
    ]


def text(baseline: Baseline) -> str:
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
    shared = {*key_names(), *_SHARED, *(column.name for column in schema.columns() if column.group == "work")}
    cases = [_case_document(kept, shared) for kept in baseline.cases]
    return _written({**jsonfile.plain(document), "cases": cases}, 0) + "\n"


def _case_document(kept: Kept, shared: Collection[str]) -> dict[str, Any]:
    """What is the same in all processes, once; if it is one of the `shared` columns; the rest for each of them."""
    whole = [jsonfile.told(row, values) for row, values in zip(kept.rows, kept.samples, strict=True)]
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


def read(path: Path) -> Baseline:
    """The baseline of a file; its name is the file's.

    Raises
    ------
    FileNotFoundError
        When there is none.
    ValueError
        When it is no baseline, not a whole one, or one that a later bwprof wrote.
    """
    return parse(read_text(path), str(path), path.stem)


def parse(content: str, source: str, name: str) -> Baseline:
    """The same from a file's text; `source` names it."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} is not a whole baseline ({error}): {_ANEW}") from None
    found = document.get("format") if isinstance(document, dict) else None
    if found == jsonfile.FORMAT:
        raise ValueError(f"{source} is a result file, not a baseline: 'bwprof baseline save NAME FILE' makes one of it")
    if found != FORMAT:
        raise ValueError(f'{source} is not a baseline: it has no "format": "{FORMAT}"')
    _check_versions(document, source)
    cases, run, processes = (document.get(part) for part in ("cases", "run", "processes"))
    if not isinstance(cases, list) or not isinstance(run, dict) or not _are_dicts(processes):
        raise ValueError(f"{source} is not a whole baseline (cases, run or processes are missing): {_ANEW}")
    if not cases:
        raise ValueError(f"{source} is empty, it has no cases: {_ANEW}")
    jsonfile.check_depth(run, source)
    kept = []
    for number, case in enumerate(cases, start=1):
        try:
            kept.append(_kept(case, source))
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
        raise ValueError(f"{source} is a baseline of version {shown(version)}: a whole number from 1 is needed")
    schema.check_version(document.get("schema_version"), source)


def _are_dicts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(item, dict) for item in found)


def _kept(found: Any, source: str) -> Kept:
    """A case of the file."""
    if not isinstance(found, dict) or not isinstance(found.get("case"), dict) or not _are_dicts(found.get("processes")):
        raise ValueError(f"{shown(found)} is no case with its processes")
    if not found["processes"]:
        raise ValueError("it has no processes")
    rows = [jsonfile.parsed_row({**found["case"], **process}, source) for process in found["processes"]]
    return Kept(*zip(*rows, strict=True))
