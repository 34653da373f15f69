"""Load what a comparison takes as a side: files, folders, frames, rows or baselines; save it as a baseline."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.records import baselines
from bwprof.records.baselines import Baseline, BaselineCase, BaselineRun, make_baseline
from bwprof.records.keys import positive_number
from bwprof.results import reader
from bwprof.results.pairs import find_disturbances
from bwprof.results.schema import RowDict
from bwprof.text.formatting import plural, to_pandas
from bwprof.text.parsing import check_mapping, quote_text, repr_short

PREFIX = "baseline:"
_log = logging.getLogger("bwprof.records")


def make_source(
    name: str,
    rows: Sequence[RowDict],
    samples: Sequence[Sequence[float] | None] | None = None,
    run: Mapping[str, Any] | None = None,
) -> Baseline:
    """Make a side of a run: each row, with its raw samples in ns, is a case; no processes are known."""
    listed = [None if values is None else list(values) for values in samples or [None] * len(rows)]
    cases = tuple(BaselineCase((row,), (values,)) for row, values in zip(rows, listed, strict=True))
    return Baseline(name, cases, run or {})


def load_source(source: Any, *, folder: str | PathLike[str] | None = None, name: str = "") -> Baseline:
    """Load the rows of a source, as `bwprof.compare` takes it; `folder` has the baselines, `name` replaces its own.

    A missing file or baseline raises FileNotFoundError, an unreadable or empty one ValueError, anything else TypeError.
    """
    if isinstance(source, (str, PathLike)):
        loaded = _load_text(str(source), folder)
    elif isinstance(source, Baseline):
        loaded = source
    else:
        loaded = _load_frame(source)
    if not loaded.cases:
        raise ValueError(f"{name or loaded.name} is empty: it holds no rows")
    return replace(loaded, name=name) if name else loaded


def _load_frame(source: Any) -> Baseline:
    from bwprof.results import frame

    source = to_pandas(source)
    is_frame = type(source).__name__ == "DataFrame"
    if not is_frame and not isinstance(source, Iterable):
        raise TypeError(
            f"{repr_short(source)} holds no rows: a run folder, a result file, a baseline, a frame or rows are needed"
        )
    data = source if is_frame else frame.frame(source)
    rows = frame.to_rows(data)
    run = dict(check_mapping(data.attrs.get("run"), "the frame's attrs['run']"))
    return make_source(str(run.get("run_id") or "frame"), rows, frame.samples_of(data, rows), run)


def _load_text(text: str, folder: str | PathLike[str] | None) -> Baseline:
    if not text:
        raise ValueError("'' is given: a run folder, a result file or a baseline is needed")
    if text.startswith(PREFIX):
        return baselines.load_baseline(text.removeprefix(PREFIX), folder=folder)
    path = Path(text)
    if is_baseline(path):
        return baselines.read_baseline(path)
    if path.exists():
        return _load_run(text)
    missing = f"no such file or folder: {quote_text(text)}"
    if baselines.PLAIN_NAME.fullmatch(text) is None:  # it has a slash, say
        raise FileNotFoundError(missing)
    try:
        return baselines.load_baseline(text, folder=folder)
    except FileNotFoundError as error:
        if reader.find_recorded(path).exists():
            return _load_run(text)
        raise FileNotFoundError(f"{missing}; {error}") from None


def _load_run(text: str) -> Baseline:
    rows, samples, run = reader.read_rows(Path(text))
    reader.warn_of_unfinished(Path(text), run)
    return make_source(text, rows, samples, run)


def is_baseline(path: Path) -> bool:
    """Return whether the first bytes of a file, which may be damaged, are a baseline's."""
    with suppress(OSError):  # reading it raises the same error
        if path.is_file():  # a pipe would lose its first lines
            with path.open("rb") as stream:
                return json.dumps(baselines.FORMAT).encode() in stream.read(200)
    return False


def save_baseline(name: str, *sources: Any, folder: str | PathLike[str] | None = None, force: bool = False) -> Path:
    """Save measurements that later ones are compared with.

    Several runs, each in its own process, show how far the median of each case varies between processes.

    Parameters
    ----------
    name : str
        Letters A-Z a-z, digits, '.', '_' and '-'.
    *sources : str, path, pandas.DataFrame, row, iterable of rows, or Baseline
        As `bwprof.compare` takes them. Runs of one process count once, as the geometric mean of their medians; a
        warning names them, and cases that were always disturbed.
    folder : path, optional
        The folder of baselines; by default ``.bwprof/baselines``.
    force : bool
        Replace a baseline of that name.

    Returns
    -------
    pathlib.Path
        The file: plain JSON, one value a line, in a stable order.

    Raises
    ------
    ValueError
        For an unsafe name, a source without a measured case, and a run that appears twice.
    OSError
        When there is one of that name, and `force` is false, or it cannot be written; an older file stays complete.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     baseline = bwprof.load_baseline("main", folder=folder)
    ...     path.name, baseline.device, len(baseline.rows)
    ('main.json', 'NVIDIA H200', 63)
    """
    baselines.check_free(name, folder, force=force)
    if not sources:
        raise ValueError(f"baseline '{quote_text(name)}' needs a run: its folder, a result file, a frame or rows")
    baseline = join_sources(name, [load_source(source, folder=folder) for source in sources])
    path = baselines.write_baseline(baseline, folder=folder, force=force)
    for doubt in list_doubts(baseline):
        _log.warning("%s", doubt)
    return path


def list_doubts(baseline: Baseline) -> list[str]:
    """Describe what limits a baseline's use: runs that share a process, and disturbed cases."""
    disturbed = describe_disturbed(baseline.name, baseline.rows)
    advice = "how far times vary shows in fresh processes (bwprof baseline save NAME --repeat 5, or several runs)"
    shared = f"baseline '{quote_text(baseline.name)}' is of {baseline.joined}: {advice}" if baseline.joined else ""
    return [text for text in (shared, disturbed) if text]


def describe_disturbed(name: str, rows: Sequence[RowDict]) -> str:
    """Describe the disturbed rows of a baseline; "" for none."""
    flags = [words for row in rows if (words := find_disturbances(row))]
    if not flags:
        return ""
    causes = ", ".join(dict.fromkeys(word for words in flags for word in words))
    return (
        f"baseline '{quote_text(name)}': {len(flags)} of {plural(len(rows), 'case')} disturbed ({causes}) in each run: "
        "nothing can be compared with them; save it again when nothing else uses the device, or use bwprof ab"
    )


def join_sources(name: str, sources: Sequence[Baseline]) -> Baseline:
    """Make a baseline of sources; raise ValueError for a source without a time, and for a run that appears twice."""
    runs: list[BaselineRun] = []
    run_ids: set[str] = set()
    for source in sources:
        if not any(map(is_measured, source.rows)):
            why = next((f" ({row['status']}: {row['reason']})" for row in source.rows if row.get("reason")), "")
            raise ValueError(f"{quote_text(source.name)} holds no measured case{why}: nothing can be compared with it")
        own = _group_by_run(source)
        twice = sorted(run_ids.intersection(own) - {""})
        if twice:
            raise ValueError(f"run {quote_text(twice[0])} is given twice: each process counts once")
        run_ids.update(own)
        runs += own.values()
    return make_baseline(name, runs, saved=datetime.now(UTC).isoformat(timespec="seconds"))


def is_measured(row: RowDict) -> bool:
    """Return whether a row has a time that others can be compared with."""
    return row["status"] == "ok" and positive_number(row["time_ms"]) is not None


def _group_by_run(source: Baseline) -> dict[str, BaselineRun]:
    metadata = {str(run.get("run_id")): run for run in (*source.processes, source.run)}
    groups: dict[str, tuple[list[RowDict], list[list[float] | None], Mapping[str, Any]]] = {}
    for case in source.cases:
        for row, values in zip(case.rows, case.samples, strict=True):
            run_id = str(row.get("run_id") or "")
            run = metadata.get(run_id) or ({"run_id": run_id} if run_id else source.run)
            rows, samples, _ = groups.setdefault(run_id, ([], [], run))
            rows.append(row)
            samples.append(values)
    return dict(groups)
