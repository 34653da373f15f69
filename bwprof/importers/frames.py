"""Frames of imported figures: their columns, and the files that hold them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bwprof.analysis.values import ABOVE_PEAK_PCT
from bwprof.importers.reader import FileLines, file_error, open_text, read_complete
from bwprof.results import schema
from bwprof.results.atomic import read_text
from bwprof.results.csv_file import quoted_formula, unquoted_formula
from bwprof.results.exchange import FORMAT, is_document
from bwprof.results.json_file import to_json_value
from bwprof.results.schema import ValueKind
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import finite_or_none, number_or_nan, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


class ImportedColumn(NamedTuple):
    """A column: its name, unit, kind of values and meaning."""

    name: str
    unit: str
    kind: ValueKind
    text: str


def _shared(*names: str) -> list[ImportedColumn]:
    columns = map(schema.find_column, names)
    return [ImportedColumn(column.name, column.unit, column.kind, column.text) for column in columns]


# The columns in their order; a metric that has none of these names follows under its own.
COLUMNS: tuple[ImportedColumn, ...] = (
    ImportedColumn("kernel", "", "text", "kernel's name, without its parameters' values"),
    ImportedColumn("launch", "", "integer", "the launch's number in the file"),
    *_shared("case", "device"),
    ImportedColumn("device_index", "", "integer", "the device's number in its process"),
    ImportedColumn("compute_capability", "", "text", "of the GPU: 9.0"),
    ImportedColumn("context", "", "integer", "CUDA context of the launch"),
    ImportedColumn("stream", "", "integer", "stream of the launch"),
    ImportedColumn("pid", "", "integer", "process of the launch"),
    ImportedColumn("grid", "blocks", "text", "blocks of the grid: 128x1x1"),
    ImportedColumn("block", "threads", "text", "threads of a block: 256x1x1"),
    *_shared("grid_blocks", "block_threads", "registers", "shared_bytes"),
    ImportedColumn("kind", "", "text", "what a time line's row is of: kernel, copy or fill; operator, on a CPU"),
    ImportedColumn("count", "", "integer", "how often a time line has it"),
    *_shared("status", "time_ms"),
    ImportedColumn("total_ms", "ms", "number", "time of all of them"),
    ImportedColumn("min_ms", "ms", "number", "time of the shortest"),
    ImportedColumn("max_ms", "ms", "number", "time of the longest"),
    ImportedColumn("share_pct", "%", "number", "time of all of them / time of all kernels"),
    *_shared("bytes_read", "bytes_written", "bandwidth_gb_s", "flags"),
    *_shared("dram_bytes_read", "dram_bytes_written", "dram_gb_s", "peak_gb_s"),
    ImportedColumn("pct_peak", "%", "number", "DRAM bandwidth / peak"),
    *_shared("dram_pct", "sm_pct", "tensor_pct", "fma_pct", "occupancy_pct"),
    ImportedColumn("theoretical_occupancy_pct", "%", "number", "warps that could be resident, of the most possible"),
    ImportedColumn("occupancy_limiter", "", "text", "what allows no more: registers, shared, warps, blocks, barriers"),
    *_shared("waves"),
    ImportedColumn("multiprocessors", "", "integer", "of the device"),
    *_shared("sm_clock_mhz", "mem_clock_mhz", "stall_reasons", "bank_conflicts", "shared_wavefronts"),
    *_shared("sectors_per_load", "sectors_per_store"),
    ImportedColumn("load_efficiency_pct", "%", "number", "bytes used, of the sectors that global loads fetched"),
    ImportedColumn("store_efficiency_pct", "%", "number", "bytes written, of the sectors that global stores took"),
    *_shared("local_bytes", "lines_per_load", "shared_pct", "l1_pct", "l2_pct"),
    ImportedColumn("l1_hit_pct", "%", "number", "sectors found in the L1 cache"),
    ImportedColumn("l2_hit_pct", "%", "number", "sectors found in the L2 cache"),
    *_shared("l2_bytes"),
    *_shared("active_threads", "issue_pct", "sm_cycles_ratio"),
    *_shared("flops", "peak_tflops"),
    ImportedColumn("valu_busy_pct", "%", "number", "vector units busy (AMD)"),
    ImportedColumn("mem_unit_stalled_pct", "%", "number", "memory units stalled (AMD)"),
    ImportedColumn("lds_bank_conflict_pct", "%", "number", "cycles that bank conflicts in shared memory took (AMD)"),
    ImportedColumn("estimated", "", "text", "which figures were estimated, and how"),
)

_KINDS = {column.name: column.kind for column in COLUMNS}
_SAVED_JSON = re.compile(
    rf'\s*\{{\s*("format"\s*:\s*"{FORMAT}"|"source"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"tool"\s*:)', re.DOTALL
)
_TOOLS = {"count": "time line", "valu_busy_pct": "rocprof", "scratch_size": "rocprof"}  # by columns of theirs alone


def make_frame(
    data: Mapping[str, Sequence[Any] | NDArray[Any]], *, source: str, tool: str, notes: Iterable[str] = ()
) -> pd.DataFrame:
    """Make a frame of whole columns, in the order and type of `COLUMNS`, then the others.

    Numbers are arrays, NaN where unknown; text is a list of one-line texts and None. Integers beyond 64 bits become
    unknown. `source` (the file), `tool` (the profiler) and `notes` go to `attrs`.
    """
    import pandas as pd

    columns = {name: _convert(data[name], kind) for name, kind in _KINDS.items() if name in data}
    columns |= {name: values for name, values in data.items() if name not in columns}
    frame = pd.DataFrame(columns)
    frame.attrs = {"source": source, "tool": tool, "notes": (*notes, *check_peak(frame))}
    return frame


def check_peak(frame: pd.DataFrame) -> list[str]:
    """Return a note where launches are faster than the memory's theoretical peak."""
    count = 0 if "pct_peak" not in frame.columns else int((frame["pct_peak"] > ABOVE_PEAK_PCT).sum())
    text = f"{count} launch{'es are' if count > 1 else ' is'} faster than the memory's peak, which is impossible"
    return [f"{text}: bytes, time or peak are wrong"] if count else []


def _convert(values: Any, kind: ValueKind) -> Any:
    import pandas as pd

    if kind == "text":
        return pd.array(values, dtype="string")
    if kind != "integer":
        return np.asarray(values, np.float64)
    numbers = np.asarray(values)
    if numbers.dtype.kind == "i":
        return pd.array(numbers, dtype="Int64")
    floats = numbers.astype(np.float64)
    missing = ~(np.abs(floats) < 2.0**63)  # NaN is not below
    return pd.arrays.IntegerArray(np.where(missing, 0, np.rint(floats)).astype(np.int64), missing)


def is_saved_json(start: str) -> bool:
    """Whether a text begins as a JSON file of imported rows does."""
    return _SAVED_JSON.match(start) is not None


def to_json(frame: pd.DataFrame) -> str:
    """Write rows, and the frame's `attrs`, as JSON; missing values are null."""
    attrs = {str(name): to_json_value(value) for name, value in frame.attrs.items()}
    rows = [
        {str(name): None if is_missing(value) else to_json_value(value) for name, value in row.items()}
        for row in frame.to_dict(orient="records")
    ]
    return json.dumps({"format": FORMAT, **attrs, "rows": rows}, indent=1) + "\n"


def to_csv(frame: pd.DataFrame) -> str:
    """Write rows alone as CSV; cells that a spreadsheet would run are quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_to_cell(str(name)) for name in frame.columns])
    for values in frame.itertuples(index=False, name=None):
        writer.writerow([_to_cell(value) for value in values])
    return text.getvalue()


def _to_cell(value: Any) -> str:
    if is_missing(value):
        return ""
    return quoted_formula(schema.clean_text(value)) if isinstance(value, str) else str(to_json_value(value))


def read_saved(path: Path) -> pd.DataFrame:
    """Read a frame that `to_json` or `to_csv` wrote; a CSV file has no `attrs`. ValueError has the damaged line."""
    with open_text(path) as stream:
        if stream.read(1 << 12).lstrip()[:1] == "{":
            return _read_json(path)
        stream.seek(0)
        return _read_csv(path, FileLines(path, stream))


def _read_json(path: Path) -> pd.DataFrame:
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise file_error(path, None, f"this is no JSON: {error}") from None
    rows = document.get("rows") if isinstance(document, dict) and is_document(document) else None
    if not isinstance(rows, list):
        raise file_error(path, None, f'"format": "{FORMAT}" with a list of rows is needed')
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise file_error(path, None, f"row {number} is {repr_short(row)}: a row is needed, of names and values")
        for name, value in row.items():
            kind = _KINDS.get(name)
            if not _fits(value, kind):
                needed = "a number or text" if kind is None else "text" if kind == "text" else "a number"
                problem = f"{quote_text(name)} is {repr_short(value)}: {needed} is needed"
                raise file_error(path, None, f"row {number}: {problem}")
    names = dict.fromkeys(name for row in rows for name in row)
    return _build_frame(path, {name: [row.get(name) for row in rows] for name in names}, document)


def _fits(value: Any, kind: ValueKind | None) -> bool:
    """Whether a JSON value can stand in a column; `kind` is None for one that may hold numbers or text."""
    if value is None or (isinstance(value, str) and kind in ("text", None)):
        return True
    return kind != "text" and type(value) in (int, float) and finite_or_none(value) is not None


def _read_csv(path: Path, lines: FileLines) -> pd.DataFrame:
    notes: list[str] = []
    records = list(read_complete(path, lines, notes))
    data: dict[str, list[Any]] = {}
    for title, *cells in zip(*(cells for _, cells in records), strict=True):
        name = unquoted_formula(title)
        figures = [] if _KINDS.get(name) == "text" else list(map(_parse_figure, cells))
        if name in _KINDS and None in figures:
            place = figures.index(None)
            problem = f"{quote_text(name)} is '{quote_text(cells[place])}': a number is needed"
            raise file_error(path, records[place + 1][0], problem)
        if _KINDS.get(name) == "text" or None in figures:
            data[name] = [unquoted_formula(cell) or None for cell in cells]
        else:
            data[name] = figures
    return _build_frame(path, data, {"notes": notes})


def _parse_figure(cell: str) -> float | None:
    """Parse a number, NaN for an empty cell; None for what is none."""
    value = number_or_nan(cell)
    if cell and (not math.isfinite(value) or "_" in cell):  # Python reads 1_0 as 10
        return None
    return value


def _build_frame(path: Path, data: Mapping[str, Sequence[Any]], document: Mapping[str, Any]) -> pd.DataFrame:
    if "kernel" not in data:
        raise file_error(path, None, "it has no column kernel: rows that bwprof made of a profiler's file are needed")
    tool, notes, units = document.get("tool"), document.get("notes"), document.get("units")
    frame = make_frame(
        {name: _build_column(name, values) for name, values in data.items()},
        source=str(document.get("source") or path.name),
        tool=tool if isinstance(tool, str) and tool else next((_TOOLS[name] for name in _TOOLS if name in data), "ncu"),
        notes=[note for note in notes if isinstance(note, str)] if isinstance(notes, list) else (),
    )
    if isinstance(document.get("page"), str):
        frame.attrs["page"] = document["page"]
    if isinstance(units, dict):
        frame.attrs["units"] = {name: unit for name, unit in units.items() if isinstance(unit, str)}
    return frame


def _build_column(name: str, values: Sequence[Any]) -> Any:
    if _KINDS.get(name, "text" if any(isinstance(value, str) for value in values) else "number") == "text":
        return [schema.clean_value(value) for value in values]
    return np.array(values, np.float64)
