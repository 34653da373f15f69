"""`bwprof.load`: read any run or file of results, proof bundles and ablations among them."""

from __future__ import annotations

import io
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.results import csv_file, json_file, schema
from bwprof.results.atomic import read_text
from bwprof.results.schema import RowDict
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import parse_bool, parse_path, quote_text

if TYPE_CHECKING:
    import pandas as pd

JSON_NAME = "results.json"

CSV_NAME = "results.csv"

_RECORDED = ".json.gz"

_log = logging.getLogger("bwprof.results")


def load(path: str | PathLike[str], *, samples: bool = False) -> pd.DataFrame:
    """Read results.

    Parameters
    ----------
    path : path
        A run folder, or a folder that holds one run, as ``bwprof sweep --output r`` leaves ``r``; a .json or .csv file
        of ours, also packed by gzip (.json.gz) or as a spreadsheet saves it; a frame as .parquet; a proof bundle or its
        folder; a CSV that has only the nine classic columns (precisions in any case: FP32, fp16, ...); where there is
        no file of that name, a recorded run: "h100", "h200", "h100_llama", "h200_llama".
    samples : bool
        Add a last column `samples_ns`, each row's raw samples as a list, ns per launch; None where it has none.

    Returns
    -------
    pandas.DataFrame
        One row per case, with every column of the schema and whatever else the file has; ``attrs["run"]`` holds the
        run's metadata where the file has it (read-only).

    Raises
    ------
    FileNotFoundError
        When there is no such file, or no results in the folder.
    ValueError
        When it is not a result file, or a later bwprof wrote it; for a folder that holds several runs. Of a folder's
        two files one is enough. With `samples` also for a CSV file, which keeps none.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "old.csv"
    >>> header = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written"
    >>> _ = path.write_text(header + "\\ndecode,FP16,1,896,896,0.004,402.3,1607424,1792\\n")
    >>> bwprof.load(path)["precision"].tolist()
    ['fp16']
    """
    from bwprof.results import frame as frames
    from bwprof.results import pairs

    found, values, run = _with_samples(path) if parse_bool(samples, "samples") else read_rows(parse_path(path, "path"))
    warn_of_unfinished(path, run)
    if all(row["speedup_vs_fp32"] is None for row in found):
        pairs.fill_comparisons(found)
    whole = frames.from_rows(found, run, values)
    return frames.with_samples(whole, values) if samples else whole


def load_samples(path: str | PathLike[str]) -> list[list[float] | None]:
    """Raw samples (ns per launch), one list per row of `load(path)`; None where a row has none.

    Raises
    ------
    ValueError
        When the file is not a JSON result file or a run folder.
    """
    return _with_samples(path)[1]


def _with_samples(path: str | PathLike[str]) -> Content:
    """What `read_rows` gives; ValueError for a file that has no place for samples."""
    found = parse_path(path, "path")
    if found.is_file() and found.suffix.lower() in (".csv", ".parquet"):
        raise ValueError(f"{path} keeps no raw samples: they are in the JSON file")
    return read_rows(found)


def recorded_runs() -> dict[str, Path]:
    """The recorded runs that come with bwprof, by name."""
    folder = Path(__file__).parents[1] / "data" / "examples"
    return {path.name.removesuffix(_RECORDED): path for path in sorted(folder.glob(f"*{_RECORDED}"))}


def find_recorded(path: Path) -> Path:
    """Find the recorded run that a name stands for where no file or folder has it; any other path stays as it is."""
    return path if os.path.lexists(path) else recorded_runs().get(str(path), path)


def describe_unfinished(run: Mapping[str, Any]) -> str:
    """Return why a run may lack cases: it is still measured, or did not end well; "" for one that did.

    Examples
    --------
    >>> unfinished({"status": "running"}), unfinished({"status": "complete"}), unfinished({})
    ('not complete (running): cases may be missing', '', '')
    """
    status = run.get("status")
    return "" if status in (None, "complete") else f"not complete ({quote_text(status)}): cases may be missing"


def warn_of_unfinished(path: str | PathLike[str], run: Mapping[str, Any]) -> None:
    """Log why the run at a path may lack cases, if it may."""
    why = describe_unfinished(run)
    if why:
        _log.warning("%s is %s", quote_text(path), why)


def find_run(path: Path) -> Path:
    """The run that a folder stands for: itself, or the only one in it; any other path as it is.

    Raises
    ------
    ValueError
        When it holds several.
    OSError
        When it cannot be read.
    """
    if not path.is_dir() or _holds_results(path):
        return path
    inside = sorted(one for one in path.iterdir() if not one.name.startswith(".") and _holds_results(one))
    if len(inside) > 1:
        raise ValueError(
            f"{quote_text(path)} holds {len(inside)} runs: name one of them, {quote_text(inside[-1])} say "
            "(a sweep adds one to its --output: a folder of its own for each can be named whole)"
        )
    return inside[0] if inside else path


def _holds_results(folder: Path) -> bool:

    return any(os.path.exists(folder / name) for name in (JSON_NAME, CSV_NAME, BUNDLE_NAME))


def read_rows(path: Path) -> tuple[list[RowDict], list[list[float] | None], dict[str, Any]]:
    """Rows, raw samples and metadata of a run folder, a folder with one run, a JSON or a CSV file.

    A row that was measured again later stands in for the earlier one.
    """
    from bwprof.results import pairs

    path = find_recorded(path)
    if not path.exists():
        hint = "" if path.suffix or path.parent.name else f" (recorded runs: {', '.join(recorded_runs())})"
        raise FileNotFoundError(f"no such file or folder: {quote_text(path)}{hint}")
    if path.is_dir():
        rows, samples, run = _read_folder(find_run(path))
    elif path.name.lower().removesuffix(".gz").endswith(".json"):
        rows, samples, run = _read_json(path)
    elif path.suffix.lower() == ".parquet":
        rows, samples, run = _read_parquet(path)
    else:
        rows, samples, run = _read_csv(path)
    gone = pairs.find_replaced(rows)
    if gone:
        rows = [row for place, row in enumerate(rows) if place not in gone]
        samples = [values for place, values in enumerate(samples) if place not in gone]
    return rows, samples, run


def _read_csv(path: Path) -> Content:
    from bwprof.results import csv_file

    rows = csv_file.read_csv(path)
    return rows, [None] * len(rows), {}


def _read_parquet(path: Path) -> Content:
    import pandas as pd

    from bwprof.results import frame as frames

    try:
        rows = frames.to_rows(pd.read_parquet(path))
    except (ImportError, OSError, ValueError) as error:  # without pyarrow, say
        raise ValueError(f"{quote_text(path)} is not read as a bwprof result file: {quote_text(error)}") from None
    return rows, [None] * len(rows), {}


def _read_json(path: Path) -> Content:
    """The JSON file, and rows of which only its writer's hidden file knows: it was killed."""
    from bwprof.results import json_file
    from bwprof.results.atomic import claim_path, read_text

    # The lines first: what a writer at work takes away there, it has put into the file.
    lines, values = json_file.read_lines(claim_path(path))
    document = json_file.parse_json(read_text(path), str(path))
    if is_bundle(document):
        return with_metadata(path, read_bundle(document, str(path)))
    rows, samples, run = json_file.parse_document(document, str(path))
    # Another run's lines are of a file that is no more.
    ours = [place for place, row in enumerate(lines) if row["run_id"] == run.get("run_id")]
    _add_missing(rows, samples, [lines[place] for place in ours], [values[place] for place in ours])
    return rows, samples, run


def _read_folder(folder: Path) -> Content:
    """The JSON file, and rows that only the CSV file had time to get; one of the two where the other is damaged.

    A proof bundle to which reports were saved one by one has neither.
    """

    found: list[Content] = []
    wrong: list[Exception] = []
    for name, reader in ((JSON_NAME, _read_json), (CSV_NAME, _read_csv)):
        try:
            if (folder / name).exists():
                found.append(reader(folder / name))
        except (OSError, ValueError) as error:
            wrong.append(error)
    if not found:
        if wrong:
            raise ValueError("; ".join(map(str, wrong)))
        if (folder / BUNDLE_NAME).exists():
            return _read_json(folder / BUNDLE_NAME)
        raise FileNotFoundError(f"{folder} holds neither {JSON_NAME} nor {CSV_NAME}, and no {BUNDLE_NAME}")
    for unread in wrong:
        _log.warning("%s: the rows are the other file's", unread)
    rows, samples, run = found[0]
    for others in found[1:]:
        _add_missing(rows, samples, others[0], others[1])
    return rows, samples, run


def _add_missing(
    rows: list[RowDict], samples: list[list[float] | None], others: list[RowDict], more: list[list[float] | None]
) -> None:
    """Add the rows that are not there yet, each as often as the others have it, but none that was replaced."""
    from bwprof.results import pairs

    seen = Counter(map(pairs.row_identity, rows))
    gone = {pairs.row_key(row, row["replaces"]) for row in rows if row.get("replaces")}
    for row, values in zip(others, more, strict=True):
        identity = pairs.row_identity(row)
        if seen[identity]:
            seen[identity] -= 1
        elif pairs.row_key(row, row.get("timestamp")) not in gone:
            rows.append(row)
            samples.append(values)


def save(data: pd.DataFrame, path: str | PathLike[str], *, classic: bool = False) -> Path:
    """Write a frame of results as .csv or .json, by the path's ending, replacing the file in one step.

    Whatever columns the frame has are kept, and the raw samples and metadata of its run by a .json (as long as `attrs`
    hold them, which they do not after `pandas.concat`; a column `samples_ns`, as ``load(..., samples=True)`` makes it,
    keeps the samples through everything). A CSV tells numbers from text by their looks, and an empty text is a missing
    one there.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep`, `bwprof.load` or `bwprof.frame`.
    path : path
        A file ending in .csv or .json.
    classic : bool
        Exactly the nine classic columns, for older tools: `operation` is the case's name, with its variant where the
        case has several, precisions in capital letters, and only rows with the status ok; .csv only.

    Returns
    -------
    pathlib.Path
        Where it was written.

    Raises
    ------
    ValueError
        For another ending, a frame without the nine classic columns, or one that `load` would not read back; an older
        file is then untouched.
    OSError
        When it cannot be written, or a run is writing to it; an older file is then untouched.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = bwprof.save(bwprof.load_example("h200"), f"{folder}/run.csv")
    ...     path.name, len(bwprof.load(path))
    ('run.csv', 63)
    """
    from bwprof.results import csv_file, json_file
    from bwprof.results import frame as frames
    from bwprof.results.atomic import Claim, atomic_write, is_plain_target

    target, data = parse_path(path, "path"), to_pandas(data)
    found = frames.to_rows(data)
    parse: Callable[[str, str], object]
    if parse_bool(classic, "classic"):
        if target.suffix.lower() != ".csv":
            raise ValueError(f"{quote_text(path)}: the classic columns are saved as .csv")
        text, parse = csv_file.classic_text(found), csv_file.parse_csv
    elif target.suffix.lower() == ".json":
        samples = frames.samples_of(data, found)
        text, parse = json_file.json_text(found, samples, data.attrs.get("run", {})), json_file.parse_results
    elif target.suffix.lower() == ".csv":
        text, parse = csv_file.csv_text(found), csv_file.parse_csv
    else:
        raise ValueError(f"{quote_text(path)}: results are saved as .csv or .json")
    claim = Claim(target) if is_plain_target(target) else None
    written = False
    try:
        atomic_write(target, text, check=lambda found: parse(found, str(target)))
        written = True
    finally:
        if claim is not None:
            claim.release(keep=not written)
    return target


BUNDLE_NAME = "bandwidth_report.json"

METADATA_NAME = "metadata.json"  # of the run, beside it

REPORT_NAMES = ("operation", "precision", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written")

Content = tuple[list[RowDict], list[list[float] | None], dict[str, Any]]


def is_bundle(document: Any) -> bool:
    """Whether a JSON document has the form of a bundle's: its reports may be damaged."""
    if isinstance(document, list):
        return bool(document) and all(isinstance(found, dict) and "operation" in found for found in document)
    if not isinstance(document, dict) or "format" in document:
        return False
    return ("run" in document and isinstance(document.get("reports"), list)) or document.keys() >= {*REPORT_NAMES}


def list_reports(document: Any) -> list[Any]:
    """The reports of any of the three forms."""
    if isinstance(document, list):
        return document
    found = document.get("reports")
    return found if isinstance(found, list) else [document]


def read_bundle(document: Any, source: str) -> Content:
    """Rows and the run's metadata; no raw samples, which a bundle's results.json keeps.

    Raises
    ------
    ValueError
        For a report that is none.
    """
    run = document.get("run", {}) if isinstance(document, dict) else {}
    if not isinstance(run, dict):
        raise ValueError(f"{source} is not a proof bundle: its run is no object")
    json_file.check_depth(run, source)
    rows = []
    for number, found in enumerate(list_reports(document), start=1):
        try:
            rows.append(_row(found, source))
        except ValueError as error:
            raise ValueError(f"{source}, report {number}: {error}") from None
    return rows, [None] * len(rows), run


def _row(found: Any, source: str) -> RowDict:
    """A report as a row: the precision by its usual name."""
    json_file.check_row(found)
    missing = [name for name in REPORT_NAMES if name not in found]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing")
    row = csv_file.complete_row(schema.normalise_row(found), bare="status" not in found, source=source)
    return row | {"precision": registry.precision_name(found["precision"] or "")}


def with_metadata(path: Path, found: Content) -> Content:
    """What was read of a bundle's file, with the metadata that stand in a file beside it where it has none."""
    rows, samples, run = found
    beside = path.with_name(METADATA_NAME)
    if run or path.name != BUNDLE_NAME or not beside.is_file():
        return found
    try:
        told = json.loads(read_text(beside))
        json_file.check_depth(told, str(beside))
    except (ValueError, RecursionError):  # the reports are there
        return found
    return rows, samples, told if isinstance(told, dict) else run


ABLATION_FORMAT = "bwprof-ladder"

# What a ladder cannot do without; a table that lacks one of them is another.
ABLATION_COLUMNS = ("version", "kind", "status", "speedup_vs_first", "predicted_gain", "precision")

_NUMBERS = ("speedup_vs_first", "measured_gain", "predicted_gain")


def read_ablation(path: str | PathLike[str]) -> pd.DataFrame:
    """The rungs, as `bwprof.ablation` gave them, without what it says of the run.

    Raises
    ------
    ValueError
        For a file that holds no ladder.
    OSError
        When it cannot be read.
    """
    import pandas as pd

    content = read_text(Path(path))
    if Path(path).suffix.lower() == ".csv":
        return _of_csv(content, str(path))
    found = json_file.parse_json(content, str(path))
    rows = found.get("rows") if isinstance(found, dict) and found.get("format") == ABLATION_FORMAT else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _no_ladder(str(path))
    return pd.DataFrame(rows)


def _of_csv(content: str, source: str) -> pd.DataFrame:
    import pandas as pd

    try:
        found = pd.read_csv(io.StringIO(content), keep_default_na=False, na_values=[""])
    except ValueError:  # of pandas' own kinds: no columns, lines that are longer than the first
        raise _no_ladder(source) from None
    if not set(ABLATION_COLUMNS) <= set(found.columns):
        raise _no_ladder(source)
    for name in (name for name in _NUMBERS if name in found):  # else one cell of text makes texts of all
        found[name] = pd.to_numeric(found[name], errors="coerce")
    return found


def _no_ladder(source: str) -> ValueError:
    return ValueError(f"{source} is no ladder: a file is needed that bwprof ablation --json, or --csv, wrote")


def is_ablation(path: str | PathLike[str]) -> bool:
    """Whether a file holds a ladder."""
    try:
        read_ablation(path)
    except (OSError, ValueError):
        return False
    return True
