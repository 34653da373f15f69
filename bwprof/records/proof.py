"""Proof bundles: a folder for each run, which holds what was measured as others read it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import environment
from bwprof.records.baselines import check_file_name
from bwprof.results import csv_file, json_file, reader, schema
from bwprof.results.atomic import atomic_write, lock, read_text, refuse_foreign
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import (
    check_mapping,
    measured_or_none,
    parse_bool,
    parse_bytes,
    parse_path,
    quote_text,
    repr_short,
)

if TYPE_CHECKING:
    import pandas as pd

ROOT = ".test-results/bandwidth"  # below the working directory

ARTIFACTS = "artifacts"  # profilers' files

PICTURE = "bandwidth_comparison"

_METADATA = ("run_id", "device", "driver", "bwprof_version", "git_commit", "argv", "started", "finished")

_FIGURES = {"time_ms": "a time above 0 (1e-100 to 1e+100)", "bandwidth_gb_s": "a number from 0 to 1e+100"}

_LONG = ("plan", "roofs", "devices")  # results.json has them

# Of a row, behind the six: the first ones in this order, then whatever else is known.
_FIRST = ("status", "case", "variant", "pct_attainable", "verified", "flags")

_log = logging.getLogger("bwprof.records")


@dataclass(slots=True)
class BandwidthReport:
    """What one measurement found, in a few words.

    `bandwidth_gb_s` is (bytes_read + bytes_written) / time, a GB 10^9 bytes. What is not known is None, and is left out
    of the file.

    Examples
    --------
    >>> import bwprof
    >>> found = BandwidthReport("decode_gemm", "FP16", 0.00243265, 661.509, 1607424, 1792)
    >>> BandwidthReport.from_row(bwprof.rows(bwprof.load_example("h200"))[0]).device
    'NVIDIA H200'
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     path = found.save_to_proof_bundle("nightly-7", root)
    ...     path.relative_to(root).as_posix(), bwprof.load(path)["bandwidth_gb_s"].tolist()
    ('nightly-7/bandwidth_report.json', [661.509])
    """

    operation: str
    precision: str
    time_ms: float
    bandwidth_gb_s: float
    bytes_read: int
    bytes_written: int
    case: str | None = None
    variant: str | None = None
    backend: str | None = None
    device: str | None = None
    run_id: str | None = None
    timestamp: str | None = None
    flags: str | None = None
    verified: bool | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> BandwidthReport:
        """The report of a row: of `bwprof.measure`, of `bwprof.rows(frame)`, or of a frame's `iloc`.

        Raises
        ------
        TypeError
            For what is no row.
        ValueError
            For a row without a time, or with one that nothing takes.
        """
        if not hasattr(row, "keys") or type(row).__name__ == "DataFrame":
            raise TypeError(f"row is {repr_short(row)}: a row is needed, of bwprof.measure or bwprof.rows(frame)")
        values = schema.normalise_row({str(name): row[name] for name in row.keys()})  # noqa: SIM118 - pandas' iterates values
        if values["time_ms"] is None and not formatting.is_missing(row.get("time_ms")):
            _check_figures({**values, "time_ms": row["time_ms"]})
        if values["time_ms"] is None or values["bandwidth_gb_s"] is None:
            told = [quote_text(values[name]) for name in ("status", "reason") if values[name]]
            lacks = f"the row has no {'time' if values['time_ms'] is None else 'bandwidth'}"
            raise ValueError(": ".join([lacks, *told]))
        _check_figures(values)
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def save_to_proof_bundle(self, run_id: str, root: str | PathLike[str] = ROOT) -> Path:
        """Write ``<root>/<run_id>/bandwidth_report.json``, and metadata.json beside it.

        Several reports of one run become a list in that file, whichever processes save them.

        Parameters
        ----------
        run_id : str
            Letters A-Z a-z, digits, '.', '_' and '-', not beginning with '.'.
        root : path
            Parent of the runs' folders, made where there is none.

        Returns
        -------
        pathlib.Path
            The file; `bwprof.load` reads it.

        Raises
        ------
        ValueError
            For another run_id, a report that holds what it cannot, and a file there that is no bundle's.
        OSError
            When it cannot be written; an older file is then whole.
        """
        report = _checked(self)
        folder = _folder_of(run_id, root)
        with lock(folder / reader.BUNDLE_NAME):
            before = _before(folder)
            reports = [*reader.list_reports(before), report] if before is not None else [report]
            told = _read_metadata(folder) | {
                name: value for name, value in _metadata_of(run_id, reports).items() if value
            }
            document: Any = reports[0] if len(reports) == 1 else reports
            if isinstance(before, dict) and "reports" in before:
                document = {**before, "reports": reports}
            _write(folder, document, told)
        return folder / reader.BUNDLE_NAME


def _checked(report: BandwidthReport) -> dict[str, Any]:
    """A report as its file has it: precisions of ours in capital letters, and nothing that is not known."""
    for name in ("operation", "precision"):
        if not isinstance(getattr(report, name), str):
            raise ValueError(f"{name} is {repr_short(getattr(report, name))}: text is needed")
    _check_figures({name: getattr(report, name) for name in _FIGURES})
    amounts = {name: parse_bytes(getattr(report, name), name) for name in ("bytes_read", "bytes_written")}
    values = {field.name: getattr(report, field.name) for field in fields(report)} | amounts
    row = schema.normalise_row(values)
    return _plain({name: row[name] for name in values})


def _check_figures(values: Mapping[str, Any]) -> None:
    """Raise ValueError for a time or a bandwidth that nothing has; a report made by hand may have a bandwidth of 0."""
    for name, least in _FIGURES.items():
        found = measured_or_none(values[name])
        if found is None or found < 0 or (found == 0 and name == "time_ms"):
            raise ValueError(f"{name} is {repr_short(values[name])}: {least} is needed")


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is known, and the six in any case; precisions as classic files have them."""
    precision = csv_file.classic_precision(values.get("precision") or "")
    kept = {name: value for name, value in values.items() if value is not None or name in reader.REPORT_NAMES}
    found: dict[str, Any] = json_file.to_json_value(kept | {"precision": precision})
    return found


def save_proof_bundle(
    data: pd.DataFrame, run_id: str | None = None, root: str | PathLike[str] = ROOT, *, force: bool = False
) -> Path:
    """Write a whole frame as a proof bundle: ``<root>/<run_id>/``.

    It holds bandwidth_report.json (the run, and a report of each row), metadata.json, results.csv, results.json (with
    raw samples), a picture where matplotlib is installed and there is something to draw, and an empty folder
    ``artifacts`` for profilers' files.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep`, `bwprof.load` or `bwprof.frame`.
    run_id : str, optional
        The frame's own when left out, or a new one where it has none.
    root : path
        Parent of the runs' folders.
    force : bool
        Replace the results of other rows under that run_id.

    Returns
    -------
    pathlib.Path
        The bundle's folder; `bwprof.load` reads it.

    Raises
    ------
    ValueError
        For a run_id that is no plain name, a frame that is none, and a file there that is no bundle's.
    FileExistsError
        When the bundle holds results of other rows, and `force` was not given.
    OSError
        When it cannot be written.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     folder = bwprof.save_proof_bundle(bwprof.load_example("h200"), "nightly-8", root)
    ...     len(bwprof.load(folder / "bandwidth_report.json")), (folder / "results.csv").is_file()
    (63, True)
    """
    return write_bundle(data, run_id, root, force=force, draw=draw_picture)


def write_bundle(
    data: pd.DataFrame,
    run_id: str | None,
    root: str | PathLike[str],
    *,
    force: bool,
    draw: Callable[[pd.DataFrame, Path], None],
) -> Path:
    """The same with pictures that `draw` puts into the folder it is given."""
    from bwprof.results import frame as frames

    parse_bool(force, "force")
    data = to_pandas(data)
    rows = frames.to_rows(data)
    run = check_mapping(data.attrs.get("run"), "the frame's attrs['run']")
    given = run_id if run_id is not None else _run_id_of(rows, run)
    folder = _folder_of(given, root)
    with lock(folder / reader.BUNDLE_NAME):
        before = _before(folder)
        if not force:
            _check_same(folder, rows)
        reports = list(map(_report_of, rows))
        earlier = [] if before is None else reader.list_reports(before)
        # Those of a frame, which alone have a status, make room for its later rows; reports saved one by one stay.
        kept = [found for found in earlier if found not in reports and not (force and "status" in found)]
        told = _read_metadata(folder) | {name: value for name, value in _metadata_of(given, rows, run).items() if value}
        (folder / ARTIFACTS).mkdir(exist_ok=True)
        for name in (reader.CSV_NAME, reader.JSON_NAME):
            reader.save(data, folder / name)
        short = {name: told.get(name) for name in _METADATA}
        _write(folder, {"run": short, "reports": [*kept, *reports]}, told)
    draw(data, folder)
    return folder


def check_root(root: str | PathLike[str]) -> None:
    """OSError where bundles cannot be made: said before anything is measured."""
    parse_path(root, "root").mkdir(parents=True, exist_ok=True)


def _folder_of(run_id: object, root: str | PathLike[str]) -> Path:
    """A run's folder, made where there is none; ValueError for a name, or a link, that leads out of the root."""
    folder = parse_path(root, "root") / check_file_name(run_id, "run_id")
    for path in (folder, *(folder / name for name in (reader.BUNDLE_NAME, reader.METADATA_NAME, ARTIFACTS))):
        refuse_foreign(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _before(folder: Path) -> Any:
    """What the bundle's file says already, None where there is none; ValueError where that would be lost."""
    path = folder / reader.BUNDLE_NAME
    if not path.exists():
        return None
    found = json_file.parse_json(read_text(path), str(path))
    if not reader.is_bundle(found):
        raise ValueError(f"{path} is not a proof bundle: move it away, or take another run_id")
    reader.read_bundle(found, str(path))
    return found


def _read_metadata(folder: Path) -> dict[str, Any]:
    """The metadata that are there; what is damaged is written anew."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(read_text(folder / reader.METADATA_NAME))
        json_file.check_depth(found, reader.METADATA_NAME)
        if isinstance(found, dict):
            return found
    return {}


def _check_same(folder: Path, rows: Sequence[RowDict]) -> None:
    """FileExistsError where the folder holds results of rows that are not among these."""
    from bwprof.results import pairs

    path = folder / reader.JSON_NAME
    if not path.exists():
        return
    try:
        there = reader.read_rows(path)[0]
    except (OSError, ValueError):
        there = None
    if there is None or not {*map(pairs.row_identity, there)} <= {*map(pairs.row_identity, rows)}:
        raise FileExistsError(
            f"{path} holds other rows: take another run_id, or replace them (force=True, --force in a shell)"
        )


def _write(folder: Path, document: Any, told: Mapping[str, Any]) -> None:
    """The metadata, then the reports, each in one step; the reports are read back first."""

    def check(found: str) -> None:
        reader.read_bundle(json.loads(found), reader.BUNDLE_NAME)

    for name, content, checked in ((reader.METADATA_NAME, told, None), (reader.BUNDLE_NAME, document, check)):
        text = json.dumps(json_file.to_json_value(content), indent=2, allow_nan=False) + "\n"
        atomic_write(folder / name, text, check=checked)


def _report_of(row: RowDict) -> dict[str, Any]:
    names = [*reader.REPORT_NAMES, *_FIRST]
    return _plain({name: row.get(name) for name in [*names, *(name for name in row if name not in names)]})


def _run_id_of(rows: Sequence[RowDict], run: Mapping[str, Any]) -> str:
    """The run's own name; that of its rows, if they have one in common; else a new one."""
    found = {str(row["run_id"]) for row in rows if row.get("run_id")}
    return str(run.get("run_id") or (found.pop() if len(found) == 1 else environment.new_run_id()))


def _metadata_of(
    run_id: str, rows: Sequence[Mapping[str, Any]], run: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What is known of a run: the eight first, then the rest of its own metadata."""
    known = dict(run or {})

    def of_rows(name: str) -> list[str]:
        return sorted({str(row[name]) for row in rows if row.get(name)})

    times = of_rows("timestamp")
    told = {
        "run_id": run_id,
        "device": ";".join(of_rows("device")) or known.get("device"),
        "driver": ";".join(of_rows("driver")) or None,
        "bwprof_version": ";".join(of_rows("bwprof_version")) or environment.package_versions()["bwprof"],
        "git_commit": known.get("git_commit") or environment.git_commit(),
        "argv": known.get("argv") or list(sys.argv),
        "started": known.get("started") or (times[0] if times else None),
        "finished": known.get("finished") or (times[-1] if times else None),
    }
    here = {} if known else {"host": environment.host_facts(), "versions": environment.package_versions()}
    return told | {name: value for name, value in (known | here).items() if name not in (*told, *_LONG)}


def draw_picture(data: pd.DataFrame, folder: Path) -> None:
    """The picture; without matplotlib, or a row with a bandwidth, there is none."""
    if not data["bandwidth_gb_s"].notna().any():
        return
    try:
        from bwprof.plot import bars

        bars.save(data, folder / PICTURE)
    except ImportError as error:
        _log.warning("no picture: %s", error)
