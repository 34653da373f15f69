"""Proof bundles: a folder for each run, with files that other programs read."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import environment
from bwprof.records.baselines import check_file_name
from bwprof.results import csv_file, json_file, reader, schema
from bwprof.results.atomic import atomic_write, lock, read_text, refuse_foreign
from bwprof.results.schema import RowDict
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
_FIGURES = {"time_ms": "a time above 0 (1e-100 to 1e+100)", "bandwidth_gb_s": "a rate up to 1e+100"}
_LONG = ("plan", "roofs", "devices")  # results.json has them
# These columns follow the six of every report; the row's others follow them.
_FIRST = ("status", "case", "variant", "pct_attainable", "verified", "flags")
_log = logging.getLogger("bwprof.records")


@dataclass(slots=True)
class BandwidthReport:
    """The main figures of one measurement.

    `bandwidth_gb_s` is (bytes_read + bytes_written) / time, a GB 10^9 bytes. Unknown values are None, and absent from
    the file.

    Examples
    --------
    >>> import bwprof
    >>> report = BandwidthReport("decode_gemm", "FP16", 0.00243265, 661.509, 1607424, 1792)
    >>> BandwidthReport.from_row(bwprof.rows(bwprof.load_example("h200"))[0]).device
    'NVIDIA H200'
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     path = report.save_to_proof_bundle("nightly-7", root)
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
        """Make the report of a row: of `bwprof.measure`, of `bwprof.rows(frame)`, or of a frame's `iloc`.

        Raises
        ------
        TypeError, ValueError
            For anything but a row, and a row without a possible time or bandwidth.
        """
        if not hasattr(row, "keys") or type(row).__name__ == "DataFrame":
            raise TypeError(f"row is {repr_short(row)}: a row is needed, of bwprof.measure or bwprof.rows(frame)")
        values = schema.normalize_row({str(name): row[name] for name in row.keys()})  # noqa: SIM118 - pandas' iterates values
        missing = next((name for name in _FIGURES if values[name] is None), "")
        if missing:  # also a number that no measurement gives
            why = "".join(f": {quote_text(values[name])}" for name in ("status", "reason") if values[name])
            raise ValueError(f"{missing} is {repr_short(row.get(missing))}: {_FIGURES[missing]} is needed{why}")
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def save_to_proof_bundle(self, run_id: str, root: str | PathLike[str] = ROOT) -> Path:
        """Write ``<root>/<run_id>/bandwidth_report.json``, and metadata.json beside it; add to a run's reports.

        Parameters
        ----------
        run_id : str
            Letters A-Z a-z, digits, '.', '_' and '-', not beginning with '.'.
        root : path
            Parent of the runs' folders.

        Returns
        -------
        pathlib.Path
            The file; `bwprof.load` reads it.

        Raises
        ------
        ValueError
            For an unsafe run_id, impossible figures, and a file there that is no bundle's.
        OSError
            When it cannot be written; an older file then stays complete.
        """
        for name in ("operation", "precision"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {repr_short(getattr(self, name))}: text is needed")
        values = asdict(self)
        for name, what in _FIGURES.items():
            number = measured_or_none(values[name])
            if number is None or number < 0 or (number == 0 and name == "time_ms"):
                raise ValueError(f"{name} is {repr_short(values[name])}: {what} is needed")
        values |= {name: parse_bytes(values[name], name) for name in ("bytes_read", "bytes_written")}
        row = schema.normalize_row(values)
        report = _drop_missing({name: row[name] for name in values})
        folder = _make_folder(run_id, root)
        with lock(folder / reader.BUNDLE_NAME):
            before = _read_reports(folder)
            reports = [report] if before is None else [*reader.list_reports(before), report]
            document: Any = reports[0] if len(reports) == 1 else reports
            if isinstance(before, dict) and "reports" in before:
                document = {**before, "reports": reports}
            _write(folder, document, _update_metadata(folder, run_id, reports))
        return folder / reader.BUNDLE_NAME


def _drop_missing(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop missing values, except of the six columns of every report; spell precisions as classic files do."""
    precision = csv_file.classic_precision(values.get("precision") or "")
    known = {name: value for name, value in values.items() if value is not None or name in reader.REPORT_NAMES}
    return dict(json_file.to_json_value(known | {"precision": precision}))


def save_proof_bundle(
    data: pd.DataFrame, run_id: str | None = None, root: str | PathLike[str] = ROOT, *, force: bool = False
) -> Path:
    """Write a frame as a proof bundle: ``<root>/<run_id>/``.

    It holds bandwidth_report.json (the run, and a report of each row), metadata.json, results.csv, results.json, a
    picture where matplotlib is installed and a row has a bandwidth, and a folder ``artifacts`` for profilers' files.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep`, `bwprof.load` or `bwprof.frame`.
    run_id : str, optional
        By default the frame's own, or a new one where it has none.
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
        For an unsafe run_id, a frame without results, and a file there that is no bundle's.
    OSError
        When the bundle holds results of other rows, and `force` is false, or cannot be written.

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
    """Write a proof bundle; `draw` draws the pictures into its folder."""
    from bwprof.results import frame as frames

    parse_bool(force, "force")
    data = to_pandas(data)
    rows = frames.to_rows(data)
    run = check_mapping(data.attrs.get("run"), "the frame's attrs['run']")
    ids = {str(row["run_id"]) for row in rows if row.get("run_id")}
    known = run.get("run_id") or (ids.pop() if len(ids) == 1 else environment.new_run_id())
    name = str(known) if run_id is None else run_id
    folder = _make_folder(name, root)
    with lock(folder / reader.BUNDLE_NAME):
        before = _read_reports(folder)
        if not force:
            _check_same(folder, rows)
        names = (*reader.REPORT_NAMES, *_FIRST)
        reports = [_drop_missing({name: row.get(name) for name in dict.fromkeys((*names, *row))}) for row in rows]
        earlier = [] if before is None else reader.list_reports(before)
        # A frame's later rows replace its earlier ones, which alone have a status; reports saved one by one stay.
        others = [report for report in earlier if report not in reports and not (force and "status" in report)]
        metadata = _update_metadata(folder, name, rows, run)
        (folder / ARTIFACTS).mkdir(exist_ok=True)
        for file in (reader.CSV_NAME, reader.JSON_NAME):
            reader.save(data, folder / file)
        short = {key: metadata.get(key) for key in _METADATA}
        _write(folder, {"run": short, "reports": [*others, *reports]}, metadata)
    draw(data, folder)
    return folder


def check_root(root: str | PathLike[str]) -> None:
    """Raise OSError, before a measurement, where bundles cannot be made."""
    parse_path(root, "root").mkdir(parents=True, exist_ok=True)


def _make_folder(run_id: object, root: str | PathLike[str]) -> Path:
    """Make a run's folder; raise ValueError for a name, or a link, that leads out of the root."""
    folder = parse_path(root, "root") / check_file_name(run_id, "run_id")
    for path in (folder, *(folder / name for name in (reader.BUNDLE_NAME, reader.METADATA_NAME, ARTIFACTS))):
        refuse_foreign(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _read_reports(folder: Path) -> Any:
    """Read the bundle's file, None where there is none; raise ValueError for another file, which would be lost."""
    path = folder / reader.BUNDLE_NAME
    if not path.exists():
        return None
    document = json_file.parse_json(read_text(path), str(path))
    if not reader.is_bundle(document):
        raise ValueError(f"{path} is not a proof bundle: move it away, or take another run_id")
    reader.read_bundle(document, str(path))
    return document


def _read_metadata(folder: Path) -> dict[str, Any]:
    """Read the bundle's metadata; a damaged file has none."""
    with suppress(OSError, ValueError, RecursionError):
        metadata = json.loads(read_text(folder / reader.METADATA_NAME))
        json_file.check_depth(metadata, reader.METADATA_NAME)
        if isinstance(metadata, dict):
            return metadata
    return {}


def _check_same(folder: Path, rows: Sequence[RowDict]) -> None:
    from bwprof.results import pairs

    path = folder / reader.JSON_NAME
    if not path.exists():
        return
    with suppress(OSError, ValueError):
        if {*map(pairs.row_identity, reader.read_rows(path)[0])} <= {*map(pairs.row_identity, rows)}:
            return
    raise FileExistsError(
        f"{path} holds other rows: take another run_id, or replace them (force=True, --force in a shell)"
    )


def _write(folder: Path, document: Any, metadata: Mapping[str, Any]) -> None:
    """Write the metadata, then the reports, which must be readable."""

    def check(text: str) -> None:
        reader.read_bundle(json.loads(text), reader.BUNDLE_NAME)

    for name, content, checked in ((reader.METADATA_NAME, metadata, None), (reader.BUNDLE_NAME, document, check)):
        text = json.dumps(json_file.to_json_value(content), indent=2, allow_nan=False) + "\n"
        atomic_write(folder / name, text, check=checked)


def _update_metadata(
    folder: Path, run_id: str, rows: Sequence[Mapping[str, Any]], run: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the stored metadata with those of a run: the eight of `_METADATA` first."""
    known = dict(run or {})
    values = {
        name: sorted({str(row[name]) for row in rows if row.get(name)})
        for name in ("device", "driver", "bwprof_version", "timestamp")
    }
    times: list[str | None] = [*values["timestamp"]] or [None]
    own = {"git_commit": environment.git_commit(), "argv": list(sys.argv), "started": times[0], "finished": times[-1]}
    metadata = {
        "run_id": run_id,
        "device": ";".join(values["device"]) or known.get("device"),
        "driver": ";".join(values["driver"]),
        "bwprof_version": ";".join(values["bwprof_version"]) or environment.package_versions()["bwprof"],
        **{name: known.get(name) or value for name, value in own.items()},
    }
    here = {} if known else {"host": environment.host_facts(), "versions": environment.package_versions()}
    metadata |= {name: value for name, value in (known | here).items() if name not in (*metadata, *_LONG)}
    return _read_metadata(folder) | {name: value for name, value in metadata.items() if value}


def draw_picture(data: pd.DataFrame, folder: Path) -> None:
    """Draw the picture, where matplotlib is installed and a row has a bandwidth."""
    if not data["bandwidth_gb_s"].notna().any():
        return
    try:
        from bwprof.plot import bars

        bars.save(data, folder / PICTURE)
    except ImportError as error:
        _log.warning("no picture: %s", error)
