"""Print a run's summary and rows as tables that fit the screen."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.analysis.summarize import PAIR, summary_rows
from bwprof.results import schema
from bwprof.results.schema import FLAGS, RowDict
from bwprof.text import formatting
from bwprof.text.formatting import format_figure, format_short
from bwprof.text.terminal import PLAIN_WIDTH, new_table, print_fitted, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_MOST_NAMES = 8  # cases in a note
_SPARE = ("bytes\nratio", "GB/s\nratio", "variant", "limiter")  # columns that a narrow screen does without
_DEVICE_COLUMNS = ["hostname", "backend", "device", "device_uuid"]


def print_summary(rows: Sequence[RowDict], screen: Console) -> None:
    """Print the summary of rows, then what failed, was skipped, or is doubtful."""
    from bwprof.results import frame

    print_tables(frame.from_rows(rows), screen)


def print_step(data: pd.DataFrame, screen: Console) -> None:
    """Print what the rows of a model's step come to."""
    from bwprof.llm.result import ModelStep, spare_columns

    for renderable in ModelStep.from_frame(data).renderables(screen):
        print_fitted(screen, renderable, spare_columns(renderable))


def print_tables(data: pd.DataFrame, screen: Console) -> None:
    """Print the summary of a frame; several devices one after the other."""
    from bwprof.results import frame
    from bwprof.results.pairs import group_by_device

    if not data[_DEVICE_COLUMNS].nunique().gt(1).any():
        _print_device(data, screen)
        return
    for number, rows in enumerate(group_by_device(frame.to_rows(data))):
        names = (rows[0][name] for name in ("hostname", "device", "device_uuid"))
        screen.print(("\n" if number else "") + " ".join(name for name in names if name))
        _print_device(frame.from_rows(rows), screen)


def _print_device(data: pd.DataFrame, screen: Console) -> None:
    lines, _ = summary_rows(data)
    measured = _measured_precisions(lines)
    precisions = (*PAIR, *(name for name in measured if name not in PAIR))
    gb_s, share = (schema.find_column(name).unit for name in ("bandwidth_gb_s", "pct_limit"))
    headers = ["case", "variant", *(f"{name.upper()}\n{gb_s}" for name in precisions)]
    ratios = [f"{gb_s}\nratio", "bytes\nratio", "time\ngain", f"{share}\nlimit"]
    # A narrow screen may leave the variants out, so the names of a case's lines have them.
    cases = Counter(line["case"] for line in lines) if screen.width < PLAIN_WIDTH else Counter[str]()
    rows = [_cells(line, precisions, with_variant=cases[line["case"]] > 1) for line in lines]
    if measured or not lines:
        numbers = [*headers[2:], *ratios]
        print_table(screen, [*headers, *ratios, "limiter"], rows, numbers=numbers, spare=_SPARE)
    notes = _notes(lines, len(data), min(screen.width, PLAIN_WIDTH), legend=bool(measured))
    if notes:
        screen.print("\n".join(notes))


def _cells(line: dict[str, Any], precisions: Sequence[str], *, with_variant: bool) -> list[str]:
    mark = " *" if line["flags"] else ""
    hot = " (hot)" if line["cache"] == "hot" else ""
    variant = f" {line['variant']}" if with_variant and line["variant"] else ""
    speeds = (line[f"{name}_gb_s"] for name in precisions)
    return [
        f"{line['case']}{variant}{hot}{mark}",
        line["variant"] or "-",
        *("-" if speed is None else format_figure(speed, whole_from=100) for speed in speeds),
        _times(line["bandwidth_vs_fp32"]),
        _times(line["byte_ratio_vs_fp32"]),
        _times(line["speedup_vs_fp32"]),
        _grades(line, precisions),
        line["limiter"] or "-",
    ]


def _measured_precisions(lines: Sequence[dict[str, Any]]) -> list[str]:
    names = [name.removesuffix("_gb_s") for name in (lines[0] if lines else {}) if name.endswith("_gb_s")]
    return [name for name in names if any(line[f"{name}_gb_s"] is not None for line in lines)]


def _times(value: float | None) -> str:
    return "-" if value is None else f"{format_short(value, '.2f' if abs(value) < 9.995 else '.1f')}x"


def _grades(line: dict[str, Any], precisions: Sequence[str]) -> str:
    """Write each precision's share of its nearer roof; a c marks the arithmetic one."""
    grades = [line[f"{name}_grade"] for name in precisions if f"{name}_gb_s" in line]
    if all(grade is None for grade in grades):
        return "-"
    return "/".join(
        "-" if grade is None else f"{format_short(grade[0], '.0f')}{'c' if grade[1] else ''}" for grade in grades
    )


_LEGEND = (
    "GB/s ratio: FP16 / FP32.  bytes ratio: FP32 / FP16.  time gain = GB/s ratio x bytes ratio.",
    "% limit: of the nearer roof, per precision: what a plain stream of the same bytes and mix reaches, or (c) the "
    "best arithmetic rate measured, one for all rows of a precision (above 100: beaten).  kernel: below half of both "
    "roofs.",
)


def _notes(lines: Sequence[dict[str, Any]], rows: int, width: int, *, legend: bool) -> list[str]:
    """List the legend, the flagged cases, and what was not measured."""
    flagged: dict[str, list[str]] = {}
    broken: dict[str, list[str]] = {}
    for line in lines:
        name = " ".join(part for part in (line["case"], line["variant"]) if part)
        for flag in filter(None, (line["flags"] or "").split(";")):
            word, _, precisions = flag.partition("(")
            flagged.setdefault(f"{word} ({FLAGS.get(word, word)})", []).append(
                name + (f" ({precisions}" if precisions else "")
            )
        for status, reasons in line["broken"].items():
            broken.setdefault(f"{status}: {reasons}", []).append(name)
    notes = [textwrap.fill(line, min(width, 110), fix_sentence_endings=True) for line in _LEGEND if legend]
    notes += ["* to be read with care:"] if flagged else []
    for reason, names in (*flagged.items(), *broken.items()):
        every = "every case" if any(name.endswith(")") for name in names) else f"all {rows} rows"
        notes.append(list_rows(reason, names, len(lines), width, every))
    return notes


def list_rows(reason: str, names: Sequence[str], total: int, width: int = PLAIN_WIDTH, every: str = "") -> str:
    """List the rows to which a reason applies, wrapped.

    Parameters
    ----------
    reason : str
        What applies.
    names : sequence of str
        The rows; of many only some are listed.
    total : int
        How many rows there are; 0 to list all names.
    every : str, optional
        What to write instead of the names of all rows.
    """
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES and total else ""
    text = ", ".join(names[:_MOST_NAMES] if more else names) + more
    if len(names) == total > 1:
        text = every or f"all {total} rows"
    return textwrap.fill(f"{reason}: {text}", width, initial_indent="  ", subsequent_indent="    ")


_KEYS = ("case", "precision", "variant")  # every table of a view begins with those that it has
_UNDERSCORE = re.compile("_(?!s$)")  # not that of a GB_s
_ROOMY = 100  # letters of a screen, from which on there are rules between the columns

# Letters of a text's line, at least, on a narrow and on a roomy screen.
_LEAST_TEXT = (10, 24)
_LEAST_CASE = 32  # of a case's name
_LONGEST_WORD = 24  # letters of one that is not broken

# Letters of a heading's line, at most, where its words allow it.
_HEADING = (6, 10)


def print_view(
    data: pd.DataFrame, screen: Console, *, which: str = "short", columns: str | Iterable[str] | None = None
) -> None:
    """Print a view of a frame, or some columns of it; then what was not measured, and which columns are empty."""
    from bwprof.analysis.summarize import view

    selected = view(data, which, columns=columns)
    empty = [name for name in selected.columns if columns is None and name not in _KEYS and selected[name].isna().all()]
    if len(selected):
        selected = selected.drop(columns=empty)
    cells = {str(name): list(map(_cell, selected[name].tolist())) for name in selected.columns}
    blocks = _divide(cells, screen.width, whole_words=False)
    for number, names in enumerate(blocks if len(blocks) == 1 else _divide(cells, screen.width, whole_words=True)):
        if number:
            screen.print("")
        _print_block(screen, {name: cells[name] for name in names})
    for line in _view_notes(data, empty if len(selected) else []):
        screen.print(line)


def _cell(value: Any) -> str:
    if formatting.is_missing(value) or value == "":
        return "-"
    if isinstance(value, float):
        return format_short(value, ".0f" if abs(value) >= 1000 else ".4g")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace(";", "; ")  # so that lists can be folded


def _heading(name: str, longest: int) -> str:
    """Break a column's name into lines, so that it is hardly wider than its numbers."""
    lines = [""]
    for word in _UNDERSCORE.split(name):
        if lines[-1] and len(lines[-1]) + len(word) > longest:
            lines.append("")
        lines[-1] += f"{word}_"
    return "\n".join(lines).removesuffix("_")


def _divide(cells: dict[str, list[str]], width: int, *, whole_words: bool) -> list[list[str]]:
    """Divide the columns among as many tables as it takes for each to fit into `width` letters."""
    keys = [name for name in _KEYS if name in cells]
    roomy = width >= _ROOMY
    between = 1 + roomy
    needed = {}
    for name, column in cells.items():
        heading = max(map(len, _heading(name, _HEADING[roomy]).split("\n")))
        needed[name] = between + max(heading, _least_width(name, column, _LEAST_TEXT[roomy], whole_words=whole_words))
    blocks = [list(keys)]
    for name in (name for name in cells if name not in keys):
        if sum(needed[other] for other in (*blocks[-1], name)) > width + between and len(blocks[-1]) > len(keys):
            blocks.append(list(keys))
        blocks[-1].append(name)
    return blocks


def _least_width(name: str, column: Sequence[str], text: int, *, whole_words: bool) -> int:
    """Work out the letters that a column needs: a number whole, a text `text` of them or its longest word."""
    longest = max(map(len, column), default=0)
    if not _is_text(name):
        return max(1, longest)
    if whole_words:
        word = max((len(word) for cell in column for word in cell.split()), default=0)
        text = max(text, min(word, _LONGEST_WORD), _LEAST_CASE if name == _KEYS[0] else 0)
    return max(1, min(longest, text))


def _is_text(name: str) -> bool:
    return schema.column_kinds().get(name, "text") == "text"


def _print_block(screen: Console, cells: dict[str, list[str]]) -> None:
    headings = {name: _heading(name, _HEADING[screen.width >= _ROOMY]) for name in cells}
    grid = new_table(
        screen, "", list(headings.values()), numbers=[headings[name] for name in cells if not _is_text(name)]
    )
    if screen.width < _ROOMY:
        grid.box = None
    for line in zip(*cells.values(), strict=True):
        grid.add_row(*line)
    screen.print(grid)


def _view_notes(data: pd.DataFrame, empty: Sequence[str]) -> list[str]:
    """List what was not measured, and why, and the columns that are left out because they are empty."""
    from bwprof.analysis.values import labels

    names_of: dict[str, list[str]] = {}
    if "status" in data.columns:
        broken = data[data["status"].fillna("ok").ne("ok")]
        for name, row in zip(labels(broken), broken.to_dict(orient="records"), strict=True):
            reason = "" if formatting.is_missing(row.get("reason")) else f": {row['reason']}"
            names_of.setdefault(f"{row['status']}{reason}", []).append(name)
    lines = [list_rows(reason, names, len(data)) for reason, names in names_of.items()]
    return lines + ([list_rows("no values", empty, 0)] if empty else [])
