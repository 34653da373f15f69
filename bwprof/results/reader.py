"""`bwprof.load`: read any run or file of results, proof bundles and ablations among them."""

from __future__ import annotations

import io
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.results import csv_file, json_file, pairs, schema
from bwprof.results.atomic import Claim, atomic_write, claim_path, is_plain_target, read_text
from bwprof.results.schema import RowDict
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import parse_bool, parse_path, quote_text

if TYPE_CHECKING:
    import pandas as pd

JSON_NAME = "results.json"
CSV_NAME = "results.csv"
BUNDLE_NAME = "bandwidth_report.json"
METADATA_NAME = "metadata.json"  # beside a bundle
_RECORDED = ".json.gz"
_log = logging.getLogger("bwprof.results")


def load(path: str | PathLike[str], *, samples: bool = False) -> pd.DataFrame:
    """Read results.

    Parameters
    ----------
    path : path
        A run folder, or a folder with one run, as ``bwprof sweep --output r`` leaves ``r``; a .json or .csv file of
        results, also packed by gzip (.json.gz) or saved by a spreadsheet; a frame as .parquet; a proof bundle or its
        folder; a CSV with only the nine classic columns; or, unless there is such a file, a recorded run: "h100",
        "h200", "h100_llama", "h200_llama".
    samples : bool
        Add a last column `samples_ns`, each row's raw samples as a list, ns per launch; None where it has none.

    Returns
    -------
    pandas.DataFrame
        One row per case, with every column of the schema and the file's other columns; ``attrs["run"]`` holds the
        run's metadata if the file has them (read-only).

    Raises
    ------
    FileNotFoundError
        If there is no such file, or the folder has no results. One of a folder's two files is enough.
    ValueError
        For another kind of file, one of a later bwprof, and a folder with several runs; with `samples` also for a CSV
        file, which has none.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "old.csv"
    >>> header = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written"
    >>> _ = path.write_text(header + "\\ndecode,FP16,1,896,896,0.004,402.3,1607424,1792\\n")
    >>> bwprof.load(path)["precision"].tolist()
    ['fp16']
    """
    import pandas as pd

    from bwprof.results import frame as frames

    file = parse_path(path, "path")
    if parse_bool(samples, "samples") and file.is_file() and file.suffix.lower() in (".csv", ".parquet"):
        raise ValueError(f"{path} has no raw samples: they are in the JSON file")
    rows, values, run = read_rows(file)
    warn_of_unfinished(path, run)
    if all(row["speedup_vs_fp32"] is None for row in rows):
        pairs.fill_comparisons(rows)
    frame = frames.from_rows(rows, run, values)
    if samples:
        frame[schema.SAMPLES] = pd.Series([None if each is None else list(each) for each in values], dtype=object)
    return frame


def recorded_runs() -> dict[str, Path]:
    """Return the recorded runs that come with bwprof, by name."""
    folder = Path(__file__).parents[1] / "data" / "examples"
    return {path.name.removesuffix(_RECORDED): path for path in sorted(folder.glob(f"*{_RECORDED}"))}


def find_recorded(path: Path) -> Path:
    """Return the recorded run of a name if no file or folder has that name; any other path as it is."""
    return path if os.path.lexists(path) else recorded_runs().get(str(path), path)


def describe_unfinished(run: Mapping[str, Any]) -> str:
    """Return why a run may lack cases: it is still measured, or ended early; "" for a complete one."""
    status = run.get("status")
    return "" if status in (None, "complete") else f"not complete ({quote_text(status)}): cases may be missing"


def warn_of_unfinished(path: str | PathLike[str], run: Mapping[str, Any]) -> None:
    """Log a warning if the run at a path may lack cases."""
    if why := describe_unfinished(run):
        _log.warning("%s is %s", quote_text(path), why)


def find_run(path: Path) -> Path:
    """Return the only run in a folder; a run's folder, or any other path, as it is.

    Raise ValueError for a folder with several runs; OSError if the folder cannot be read.
    """
    if not path.is_dir() or _has_results(path):
        return path
    runs = sorted(folder for folder in path.iterdir() if not folder.name.startswith(".") and _has_results(folder))
    if len(runs) > 1:
        raise ValueError(f"{quote_text(path)} holds {len(runs)} runs: name one of them, {quote_text(runs[-1])} say")
    return runs[0] if runs else path


def _has_results(folder: Path) -> bool:
    return any(os.path.exists(folder / name) for name in (JSON_NAME, CSV_NAME, BUNDLE_NAME))


def read_rows(path: Path) -> Content:
    """Read rows, raw samples and metadata of a run folder, a folder with one run, or a file.

    Rows that a later row replaces are left out.
    """
    path = find_recorded(path)
    if not path.exists():
        hint = "" if path.suffix or path.parent.name else f" (recorded runs: {', '.join(recorded_runs())})"
        raise FileNotFoundError(f"no such file or folder: {quote_text(path)}{hint}")
    if path.is_dir():
        rows, samples, run = _read_folder(find_run(path))
    elif path.name.lower().removesuffix(".gz").endswith(".json"):
        rows, samples, run = _read_json(path)
    else:
        rows, samples, run = _read_table(path)
    replaced = pairs.find_replaced(rows)
    present = [place for place in range(len(rows)) if place not in replaced]
    return [rows[place] for place in present], [samples[place] for place in present], run


def _read_table(path: Path) -> Content:
    """Read a CSV or Parquet file."""
    if path.suffix.lower() != ".parquet":
        rows = csv_file.read_csv(path)
        return rows, [None] * len(rows), {}
    import pandas as pd

    from bwprof.results import frame as frames

    try:
        rows = frames.to_rows(pd.read_parquet(path))
    except (ImportError, OSError, ValueError) as error:  # ImportError: pyarrow is missing
        raise ValueError(f"{quote_text(path)} is not read as a bwprof result file: {quote_text(error)}") from None
    return rows, [None] * len(rows), {}


def _read_json(path: Path) -> Content:
    """Read the JSON file, and the rows that a killed writer left in its hidden file."""
    # The hidden file first: a writer at work moves its lines into the JSON file.
    lines, values = json_file.read_lines(claim_path(path))
    document = json_file.parse_json(read_text(path), str(path))
    if is_bundle(document):
        rows, samples, run = read_bundle(document, str(path))
        return rows, samples, run or _metadata_beside(path)
    rows, samples, run = json_file.parse_document(document, str(path))
    # Lines of another run belong to a file that was replaced.
    own = (line for line in zip(lines, values, strict=True) if line[0]["run_id"] == run.get("run_id"))
    _add_missing(rows, samples, own)
    return rows, samples, run


def _metadata_beside(path: Path) -> dict[str, Any]:
    """Return the metadata beside a bundle's file; {} for any other file, and for damaged metadata."""
    file = path.with_name(METADATA_NAME)
    if path.name != BUNDLE_NAME or not file.is_file():
        return {}
    try:
        metadata = json_file.parse_json(read_text(file), str(file))
        json_file.check_depth([metadata], str(file))
    except ValueError:  # the reports can be read without it
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _read_folder(folder: Path) -> Content:
    """Read the JSON file, and the rows that only the CSV file has; one of them if the other is damaged.

    A folder with neither may have the file of a proof bundle.
    """
    contents: list[Content] = []
    errors: list[Exception] = []
    for name, reader in ((JSON_NAME, _read_json), (CSV_NAME, _read_table)):
        try:
            if (folder / name).exists():
                contents.append(reader(folder / name))
        except (OSError, ValueError) as error:
            errors.append(error)
    if not contents:
        if errors:
            raise ValueError("; ".join(map(str, errors)))
        if (folder / BUNDLE_NAME).exists():
            return _read_json(folder / BUNDLE_NAME)
        raise FileNotFoundError(f"{folder} holds neither {JSON_NAME} nor {CSV_NAME}, and no {BUNDLE_NAME}")
    for unread in errors:
        _log.warning("%s: the rows are the other file's", unread)
    rows, samples, run = contents[0]
    for more, values, _ in contents[1:]:
        _add_missing(rows, samples, zip(more, values, strict=True))
    return rows, samples, run


def _add_missing(
    rows: list[RowDict], samples: list[list[float] | None], others: Iterable[tuple[RowDict, list[float] | None]]
) -> None:
    """Add missing rows, each as often as the others have it, except replaced ones."""
    seen = Counter(map(pairs.row_identity, rows))
    replaced = {pairs.row_key(row, row["replaces"]) for row in rows if row.get("replaces")}
    for row, values in others:
        identity = pairs.row_identity(row)
        if seen[identity]:
            seen[identity] -= 1
        elif pairs.row_key(row, row.get("timestamp")) not in replaced:
            rows.append(row)
            samples.append(values)


def save(data: pd.DataFrame, path: str | PathLike[str], *, classic: bool = False) -> Path:
    """Write a frame of results as .csv or .json, by the path's ending, replacing the file in one step.

    A .json also has the raw samples and metadata of the run, as long as `attrs` hold them (not after `pandas.concat`)
    or a column `samples_ns` the samples. A CSV has no types: text that looks like a number is read as a number, empty
    text as missing.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep`, `bwprof.load` or `bwprof.frame`.
    path : path
        A file ending in .csv or .json.
    classic : bool
        Write only rows with the status ok, and exactly the nine classic columns, for older tools; .csv only.
        `operation` is the case's name, with its variant if the case has several; precisions are in capital letters.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    ValueError
        For another ending, a frame without the nine classic columns, or one that `load` would not read back.
    OSError
        If the file cannot be written, or a run is writing to it. After any error the old file stays.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = bwprof.save(bwprof.load_example("h200"), f"{folder}/run.csv")
    ...     path.name, len(bwprof.load(path))
    ('run.csv', 63)
    """
    from bwprof.results import frame as frames

    target, data = parse_path(path, "path"), to_pandas(data)
    rows = frames.to_rows(data)
    ending = target.suffix.lower()
    if parse_bool(classic, "classic") and ending != ".csv":
        raise ValueError(f"{quote_text(path)}: the classic columns are saved as .csv")
    if ending not in (".csv", ".json"):
        raise ValueError(f"{quote_text(path)}: results are saved as .csv or .json")
    parse: Callable[[str, str], object] = csv_file.parse_csv
    if ending == ".json":
        parse = json_file.parse_results
        text = json_file.json_text(rows, frames.samples_of(data, rows), data.attrs.get("run", {}))
    else:
        text = csv_file.classic_text(rows) if classic else csv_file.csv_text(rows)
    claim = Claim(target) if is_plain_target(target) else None
    try:
        atomic_write(target, text, check=lambda written: parse(written, str(target)))
        if claim is not None:
            claim.clear()
    finally:
        if claim is not None:
            claim.release(keep=True)
    return target


REPORT_NAMES = ("operation", "precision", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written")
Content = tuple[list[RowDict], list[list[float] | None], dict[str, Any]]


def is_bundle(document: Any) -> bool:
    """Return whether a JSON document has the form of a proof bundle; its reports may be damaged."""
    if isinstance(document, list):
        return bool(document) and all(isinstance(report, dict) and "operation" in report for report in document)
    if not isinstance(document, dict) or "format" in document:
        return False
    return ("run" in document and isinstance(document.get("reports"), list)) or document.keys() >= {*REPORT_NAMES}


def list_reports(document: Any) -> list[Any]:
    """Return the reports of a bundle in any of its three forms."""
    if isinstance(document, list):
        return document
    reports = document.get("reports")
    return reports if isinstance(reports, list) else [document]


def read_bundle(document: Any, source: str) -> Content:
    """Return rows and the run's metadata of a bundle, which has no raw samples; ValueError for a damaged report."""
    run = document.get("run", {}) if isinstance(document, dict) else {}
    if not isinstance(run, dict):
        raise ValueError(f"{source} is not a proof bundle: its run is no object")
    json_file.check_depth(run, source)
    rows = []
    for number, report in enumerate(list_reports(document), start=1):
        try:
            json_file.check_row(report)
            missing = [name for name in REPORT_NAMES if name not in report]
            if missing:
                raise ValueError(f"{', '.join(missing)} is missing")
            bare = "status" not in report
            row = csv_file.complete_row(schema.normalize_row(report), bare=bare, source=source)
        except ValueError as error:
            raise ValueError(f"{source}, report {number}: {error}") from None
        rows.append(row | {"precision": registry.precision_name(report["precision"] or "")})
    return rows, [None] * len(rows), run


ABLATION_FORMAT = "bwprof-ladder"

# Columns that identify the table.
ABLATION_COLUMNS = ("version", "kind", "status", "speedup_vs_first", "predicted_gain", "precision")
_NUMBERS = ("speedup_vs_first", "measured_gain", "predicted_gain")


def read_ablation(path: str | PathLike[str]) -> pd.DataFrame:
    """Read the rows that `bwprof.ablation` wrote, without the run's metadata.

    Raise ValueError for another file; OSError if it cannot be read.
    """
    import pandas as pd

    text = read_text(Path(path))
    frame = pd.DataFrame()
    if Path(path).suffix.lower() != ".csv":
        document = json_file.parse_json(text, str(path))
        is_ours = isinstance(document, dict) and document.get("format") == ABLATION_FORMAT
        rows = document.get("rows") if is_ours else None
        if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
            return pd.DataFrame(rows)
    else:
        with suppress(ValueError):  # pandas' errors: no columns, lines longer than the first
            frame = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])
    if not set(ABLATION_COLUMNS) <= set(frame.columns):
        raise ValueError(f"{path} is no ablation: a file is needed that bwprof ablation --json, or --csv, wrote")
    for name in (name for name in _NUMBERS if name in frame):  # one cell of text would make a column of text
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    return frame


def is_ablation(path: str | PathLike[str]) -> bool:
    """Return whether a file holds an ablation."""
    with suppress(OSError, ValueError):
        read_ablation(path)
        return True
    return False
