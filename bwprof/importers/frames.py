"""Frames of imported figures: their columns, and the files that hold them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bwprof.analysis.values import ABOVE_PEAK_PCT
from bwprof.importers.reader import FileLines, file_error, open_text, read_complete
from bwprof.results import schema
from bwprof.results.atomic import read_text
from bwprof.results.columns import ValueKind
from bwprof.results.csv_file import quoted_formula, unquoted_formula
from bwprof.results.foreign import FORMAT, is_document
from bwprof.results.json_file import to_json_value
from bwprof.text.formatting import is_missing, plural
from bwprof.text.parsing import quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


class ImportedColumn(NamedTuple):
    """A column: its name, its unit, what kind of value it holds, and what it says."""

    name: str
    unit: str
    kind: ValueKind
    text: str


def _shared(*names: str) -> list[ImportedColumn]:
    """Columns that bwprof's own rows have, under the same names."""
    found = map(schema.find_column, names)
    return [ImportedColumn(column.name, column.unit, column.kind, column.text) for column in found]


# In this order; a metric that is none of them keeps its own name and follows.
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
    ImportedColumn(
        "occupancy_limiter", "", "text", "what allows no more: registers, shared, warps, blocks or barriers"
    ),
    *_shared("waves"),
    ImportedColumn("multiprocessors", "", "integer", "of the device"),
    *_shared("sm_clock_mhz", "mem_clock_mhz", "stall_reasons", "bank_conflicts", "shared_wavefronts"),
    *_shared("sectors_per_load", "sectors_per_store"),
    ImportedColumn(
        "load_efficiency_pct", "%", "number", "bytes used, of the sectors that loads from global memory fetched"
    ),
    ImportedColumn(
        "store_efficiency_pct", "%", "number", "bytes written, of the sectors that stores to global memory took"
    ),
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


def make_frame(
    data: Mapping[str, Sequence[Any] | NDArray[Any]], *, source: str, tool: str, notes: Iterable[str] = ()
) -> pd.DataFrame:
    """A frame of whole columns, in the order and type of `COLUMNS`, then the others as given.

    `source` and `tool` are the file and the profiler: `attrs` keeps them beside `notes`. Numbers are NumPy arrays, NaN
    for what is not known; text is a list of one-line texts and None. Whole numbers that 64 bits do not hold are not
    known.
    """
    import pandas as pd

    known = {column.name: column for column in COLUMNS if column.name in data}
    found = {name: _column(data[name], column.kind) for name, column in known.items()}
    found |= {name: values for name, values in data.items() if name not in known}
    frame = pd.DataFrame(found)
    frame.attrs = {"source": source, "tool": tool, "notes": (*notes, *check_peak(frame))}
    return frame


def check_peak(frame: pd.DataFrame) -> list[str]:
    """A note where launches are faster than the memory's theoretical peak."""
    count = 0 if "pct_peak" not in frame.columns else int((frame["pct_peak"] > ABOVE_PEAK_PCT).sum())
    text = f"{count} launch{'es are' if count > 1 else ' is'} faster than the memory's peak, which is impossible"
    return [f"{text}: bytes, time or peak are wrong"] if count else []


def _column(values: Any, kind: ValueKind) -> Any:
    import pandas as pd

    if kind == "text":
        return pd.array(values, dtype="string")
    if kind != "integer":
        return np.asarray(values, np.float64)
    given = np.asarray(values)
    if given.dtype.kind == "i":
        return pd.array(given, dtype="Int64")
    floats = given.astype(np.float64)
    missing = ~(np.abs(floats) < 2.0**63)  # NaN is not below
    return pd.arrays.IntegerArray(np.where(missing, 0, np.rint(floats)).astype(np.int64), missing)


_BATCH = 500  # records of a CSV file at a time

_KINDS = {column.name: column.kind for column in COLUMNS}

_BEGINS = re.compile(
    rf'\s*\{{\s*("format"\s*:\s*"{FORMAT}"|"source"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"tool"\s*:)', re.DOTALL
)

_TOOLS = {"count": "time line", "valu_busy_pct": "rocprof", "scratch_size": "rocprof"}  # by what only they have


def is_saved_json(text: str) -> bool:
    """Whether a file that begins so is a JSON file of such rows."""
    return _BEGINS.match(text) is not None


def to_json(found: pd.DataFrame) -> str:
    """Rows, and what the frame's `attrs` say of them; missing values are null."""
    told = {str(name): to_json_value(value) for name, value in found.attrs.items()}
    rows = [
        {str(name): None if is_missing(value) else to_json_value(value) for name, value in row.items()}
        for row in found.to_dict(orient="records")
    ]
    return json.dumps({"format": FORMAT, **told, "rows": rows}, indent=1) + "\n"


def to_csv(found: pd.DataFrame) -> str:
    """Rows alone; cells that a spreadsheet would run are quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(str(name)) for name in found.columns])
    for values in found.itertuples(index=False, name=None):
        writer.writerow([_cell(value) for value in values])
    return text.getvalue()


def _cell(value: Any) -> str:
    if is_missing(value):
        return ""
    return quoted_formula(schema.clean_text(value)) if isinstance(value, str) else str(to_json_value(value))


def read_saved(path: Path) -> pd.DataFrame:
    """The frame that a file holds; a CSV file keeps neither the notes nor whose figures they are.

    Raises
    ------
    ValueError
        For what is no such file, or is damaged, with the row or the line.
    OSError
        When it cannot be read.
    """
    with open_text(path) as stream:
        if stream.read(1 << 12).lstrip()[:1] == "{":
            return _of_document(path)
        stream.seek(0)
        return _of_table(path, FileLines(path, stream))


def _of_document(path: Path) -> pd.DataFrame:
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise file_error(path, None, f"this is no JSON: {error}") from None
    rows = found.get("rows") if isinstance(found, dict) and is_document(found) else None
    if not isinstance(rows, list):
        raise file_error(path, None, f'"format": "{FORMAT}" with a list of rows is needed')
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise file_error(path, None, f"row {number} is {repr_short(row)}: a row is needed, of names and values")
    names = dict.fromkeys(name for row in rows for name in row)
    data = {}
    for name in names:
        values = [row.get(name) for row in rows]
        for number, value in enumerate(values):
            if not _fits(value, _KINDS.get(name)):
                kind = "text" if _KINDS.get(name) == "text" else "a number"
                needed = kind if name in _KINDS else "a number or text"
                raise file_error(
                    path, None, f"row {number}: {quote_text(name)} is {repr_short(value)}: {needed} is needed"
                )
        data[name] = values
    return _frame(path, data, found)


def _fits(value: Any, kind: ValueKind | None) -> bool:
    """Whether a value of a document can stand in a column; `kind` is None for one that may hold either."""
    if value is None or (isinstance(value, str) and kind in ("text", None)):
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float)) or kind == "text":
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a number of more digits than a float has
        return False


def _of_table(path: Path, lines: FileLines) -> pd.DataFrame:
    columns: list[_Values] = []
    notes: list[str] = []
    count = 0
    for batch in _whole(path, file_error(path, iter(lines), _BATCH), lines, notes):
        if not columns:
            columns = [_Values(unquoted_formula(name)) for name in batch.pop(0)]
        for column, cells in zip(columns, zip(*batch, strict=True), strict=False):
            place = column.add(cells)
            if place is not None:
                said = f"{quote_text(column.name)} is '{quote_text(cells[place])}': a number is needed"
                raise file_error(path, read_complete(path, count + place + 1), said)
        count += len(batch)
    data: dict[str, Sequence[Any]] = {column.name: column.values() for column in columns}
    return _frame(path, data, {"notes": notes})


def _whole(
    path: Path, found: Iterator[list[list[str]]], lines: FileLines, notes: list[str]
) -> Iterator[list[list[str]]]:
    """Batches of records that have as many cells as the header; a last line without its end was cut off, and is left
    out.
    """
    width, count = 0, 0
    held: list[list[str]] = []
    for batch in chain(found, [None]):
        if batch is None and held and not lines.ended:
            held.pop()
            notes.append("the last line is cut off, and left out")
        width = width or len(held[0] if held else [])
        for place, record in enumerate(held):
            if len(record) != width:
                said = f"it has {plural(len(record), 'cell')}, and the header {width}"
                raise file_error(path, read_complete(path, count + place), said)
        count += len(held)
        if held:
            yield held
        held = [record for record in batch or [] if record]


class _Values:
    """A column of a table: numbers as long as it holds nothing else, or is known to hold them; else text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kind = _KINDS.get(name)
        self._numbers: array[float] = array("d")
        self._texts: list[str | None] | None = [] if self._kind == "text" else None

    def add(self, cells: Sequence[str]) -> int | None:
        """Some more cells; the place of the first that cannot stand there, if any."""
        if self._texts is None:
            found = _numbers(cells)
            if isinstance(found, array):
                self._numbers.extend(found)
                return None
            place = found
            if self._kind is not None:
                return place
            self._texts = [None if math.isnan(value) else repr(value) for value in self._numbers]
        self._texts += [schema.clean_text(unquoted_formula(cell)) if cell else None for cell in cells]
        return None

    def values(self) -> Sequence[Any]:
        """All of them."""
        return self._numbers if self._texts is None else self._texts


def _numbers(cells: Sequence[str]) -> array[float] | int:
    """Cells as numbers, NaN for those that are empty; the place of the first that is none."""
    if not any(cells):
        return array("d", [math.nan]) * len(cells)
    if "" not in cells and "_" not in "".join(cells):  # the quick way for most
        try:
            found = array("d", map(float, cells))
        except ValueError:
            pass
        else:
            if -math.inf < min(found) and max(found) < math.inf and not any(map(math.isnan, found)):
                return found
    made = [_number(cell) if cell else math.nan for cell in cells]
    wrong_ones = (place for place, value in enumerate(made) if value is None)
    place = next(wrong_ones, None)
    return array("d", (math.nan if value is None else value for value in made)) if place is None else place


def _number(cell: str) -> float | None:
    try:
        found = float(cell)
    except ValueError:
        return None
    return found if -math.inf < found < math.inf and "_" not in cell else None  # to Python 1_0 is 10


def _frame(path: Path, data: Mapping[str, Sequence[Any]], told: Mapping[str, Any]) -> pd.DataFrame:
    """The frame, and in its `attrs` what the file says of it."""
    import numpy as np

    if "kernel" not in data:
        raise file_error(path, None, "it has no column kernel: rows that bwprof made of a profiler's file are needed")
    made: dict[str, Any] = {}
    for name, values in data.items():
        words = not isinstance(values, array) and any(isinstance(value, str) for value in values)
        if isinstance(values, array) and _KINDS.get(name) != "text":
            made[name] = np.frombuffer(values)
        elif _KINDS.get(name, "text" if words else "number") == "text":
            made[name] = [schema.clean_value(value) for value in values]
        else:
            made[name] = np.array([math.nan if value is None else value for value in values], np.float64)
    tool = told.get("tool")
    known = next((one for name, one in _TOOLS.items() if name in data), "ncu")
    notes = told.get("notes")
    frame = make_frame(
        made,
        source=str(told.get("source") or path.name),
        tool=tool if isinstance(tool, str) and tool else known,
        notes=[note for note in notes if isinstance(note, str)] if isinstance(notes, list) else (),
    )
    if isinstance(told.get("page"), str):
        frame.attrs["page"] = told["page"]
    if isinstance(told.get("units"), dict):
        frame.attrs["units"] = {name: unit for name, unit in told["units"].items() if isinstance(unit, str)}
    return frame
