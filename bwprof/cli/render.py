"""Print a run's summary and rows as tables that fit the screen."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.analysis.summarize import PAIR, summary_rows
from bwprof.results import schema
from bwprof.results.columns import FLAGS
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.formatting import format_figure, format_short
from bwprof.text.terminal import PLAIN_WIDTH, new_table, print_fitted

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, RenderableType

_NOTED = 8  # cases that a note names; of more it says how many

_SPARE = ("bytes\nratio", "GB/s\nratio", "variant", "limiter")  # columns that a narrow screen does without

_DEVICE_COLUMNS = ["hostname", "backend", "device", "device_uuid"]  # devices


def print_summary(rows: Sequence[RowDict], screen: Console) -> None:
    """The summary of rows on a terminal or in a file, then what failed, was skipped, or should be doubted."""
    from bwprof.results import frame

    print_tables(frame.from_rows(rows), screen)


def print_step(data: pd.DataFrame, screen: Console) -> None:
    """Print what the rows of a model's step come to."""
    from bwprof.llm.result import ModelStep
    from bwprof.llm.sections import spare_columns

    for renderable in ModelStep.from_frame(data).renderables(screen):
        print_fitted(screen, renderable, spare_columns(renderable))


def print_tables(data: pd.DataFrame, screen: Console) -> None:
    """The same of a frame; of several devices one after the other."""
    from bwprof.results import frame
    from bwprof.results.pairs import group_by_device

    parts = group_by_device(frame.to_rows(data)) if data[_DEVICE_COLUMNS].nunique().gt(1).any() else []
    for number, rows in enumerate(parts):
        told = (rows[0][name] for name in ("hostname", "device", "device_uuid"))
        screen.print(("\n" if number else "") + " ".join(name for name in told if name))
        for renderable in _print_device(frame.from_rows(rows), screen):
            print_fitted(screen, renderable, _SPARE)
    for renderable in [] if parts else _print_device(data, screen):
        print_fitted(screen, renderable, _SPARE)


def _print_device(data: pd.DataFrame, screen: Console) -> list[RenderableType]:
    """The summary as rich renderables, 120 columns wide at most."""
    lines, _ = summary_rows(data)
    others = [name for name in _measured(lines) if name not in PAIR]
    gb_s, share = (schema.find_column(name).unit for name in ("bandwidth_gb_s", "pct_limit"))
    headers = ["case", "variant", *(f"{name.upper()}\n{gb_s}" for name in (*PAIR, *others))]
    ratios = [f"{gb_s}\nratio", "bytes\nratio", "time\ngain", f"{share}\nlimit"]
    result: list[RenderableType] = []
    # Where the variants may have no column of their own, the lines of a case are told apart by them.
    cases = Counter(line["case"] for line in lines) if screen.width < PLAIN_WIDTH else Counter[str]()
    grid = new_table(screen, "", [*headers, *ratios, "limiter"], numbers=[*headers[2:], *ratios])
    for line in lines:
        mark = " *" if line["flags"] else ""
        hot = " (hot)" if line["cache"] == "hot" else ""
        variant = f" {line['variant']}" if cases[line["case"]] > 1 and line["variant"] else ""
        grid.add_row(
            f"{line['case']}{variant}{hot}{mark}",
            line["variant"] or "-",
            *(_bandwidth(line, name) for name in (*PAIR, *others)),
            _times(line["bandwidth_vs_fp32"]),
            _times(line["byte_ratio_vs_fp32"]),
            _times(line["speedup_vs_fp32"]),
            _graded(line, (*PAIR, *others)),
            line["limiter"] or "-",
        )
    measured = bool(_measured(lines))
    result += [grid] if measured or not lines else []
    notes = _notes(lines, len(data), screen, legend=measured)
    if notes:
        result.append("\n".join(notes))
    return result


def _measured(lines: Sequence[dict[str, Any]]) -> list[str]:
    found = [name.removesuffix("_gb_s") for name in (lines[0] if lines else {}) if name.endswith("_gb_s")]
    return [name for name in found if any(line[f"{name}_gb_s"] is not None for line in lines)]


def _bandwidth(line: dict[str, Any], precision: str) -> str:
    value = line[f"{precision}_gb_s"]
    return "-" if value is None else format_figure(value, whole_from=100)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{format_short(value, '.2f' if abs(value) < 9.995 else '.1f')}x"


def _graded(line: dict[str, Any], precisions: Sequence[str]) -> str:
    """Each precision's share of its nearer roof; a c where that is the arithmetic one."""
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


def _notes(lines: Sequence[dict[str, Any]], rows: int, screen: Console, *, legend: bool) -> list[str]:
    width = min(screen.width, PLAIN_WIDTH)

    def told(head: str, held: Sequence[str]) -> str:
        some_precisions = any(name.endswith(")") for name in held)
        return list_rows(head, held, len(lines), width, "every case" if some_precisions else f"all {rows} rows")

    shown = _LEGEND if legend else ()
    notes = [textwrap.fill(line, min(width, 110), fix_sentence_endings=True) for line in shown]
    flagged: dict[str, list[str]] = {}
    for line in lines:
        for flag in (line["flags"] or "").split(";"):
            if flag:
                name, _, precisions = flag.partition("(")
                flagged.setdefault(name, []).append(_named(line) + (f" ({precisions}" if precisions else ""))
    if flagged:
        notes.append("* to be read with care:")
        notes += [told(f"{name} ({FLAGS.get(name, name)})", held) for name, held in flagged.items()]
    broken: dict[str, list[str]] = {}
    for line in lines:
        for status, reasons in line["broken"].items():
            broken.setdefault(f"{status}: {reasons}", []).append(_named(line))
    notes += [told(reason, held) for reason, held in broken.items()]
    return notes


def list_rows(head: str, names: Sequence[str], total: int, width: int = PLAIN_WIDTH, everything: str = "") -> str:
    """What is said, and of which of so many (0: a list that is told whole); wrapped. Of many some are named, and all of
    them are `everything`.
    """
    more = f" and {len(names) - _NOTED} more" if len(names) > _NOTED and total else ""
    said = ", ".join(names[:_NOTED] if more else names) + more
    if len(names) == total > 1:
        said = everything or f"all {total} rows"
    return textwrap.fill(f"{head}: {said}", width, initial_indent="  ", subsequent_indent="    ")


def _named(line: dict[str, Any]) -> str:
    return " ".join(part for part in (line["case"], line["variant"]) if part)


_KEYS = ("case", "precision", "variant")  # which every table begins with, if they are asked for

_UNDERSCORE = re.compile("_(?!s$)")  # not that of a GB_s

_ROOMY = 100  # letters a line, from which on there is room for rules between the columns

# Letters of a text that stand in a line, at least: where there is little room, and where there is.
_LEAST_TEXT = (10, 24)

_LEAST_CASE = 32  # of a case's name, which tells the rows apart

_LONGEST_WORD = 24  # letters of one that is not broken

_HEADING = (6, 10)  # of a heading's line, at most, where its words allow it


def print_view(
    data: pd.DataFrame, screen: Console, *, which: str = "short", columns: str | Iterable[str] | None = None
) -> None:
    """A view of a frame, or some columns of it; then what was not measured, and which columns hold nothing."""
    from bwprof.analysis.views import view

    found = view(data, which, columns=columns)
    empty = [name for name in found.columns if columns is None and name not in _KEYS and found[name].isna().all()]
    shown = found.drop(columns=empty) if len(found) else found
    cells = {str(name): list(map(_cell, shown[name].tolist())) for name in shown.columns}
    for number, names in enumerate(_blocks(cells, screen.width)):
        if number:
            screen.print("")
        _print_block(screen, {name: cells[name] for name in names}, shown)
    for line in _grid_notes(data, empty if len(found) else []):
        screen.print(line)


def _cell(value: Any) -> str:
    if formatting.is_missing(value) or value == "":
        return "-"
    if isinstance(value, float):
        return format_short(value, ".0f" if abs(value) >= 1000 else ".4g")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace(";", "; ")  # lists break there


def _heading(name: str, longest: int) -> str:
    """A column's name in lines, so that a column of numbers is no wider than these."""
    lines = [""]
    for word in _UNDERSCORE.split(name):
        if lines[-1] and len(lines[-1]) + len(word) > longest:
            lines.append("")
        lines[-1] += f"{word}_"
    return "\n".join(lines).removesuffix("_")


def _blocks(cells: dict[str, list[str]], width: int) -> list[list[str]]:
    """The columns in as many tables as it takes for each to fit into `width` letters: in one, if names are broken where
    they must be; else names are whole.
    """
    one = _divided(cells, width, whole=False)
    return one if len(one) == 1 else _divided(cells, width, whole=True)


def _divided(cells: dict[str, list[str]], width: int, *, whole: bool) -> list[list[str]]:
    keys = [name for name in _KEYS if name in cells]
    roomy = width >= _ROOMY
    between = 1 + roomy
    needed = {
        name: between
        + max(
            _least_width(name, held, _LEAST_TEXT[roomy], whole=whole),
            *map(len, _heading(name, _HEADING[roomy]).split("\n")),
        )
        for name, held in cells.items()
    }
    blocks = [list(keys)]
    for name in (name for name in cells if name not in keys):
        if sum(needed[other] for other in (*blocks[-1], name)) > width + between and len(blocks[-1]) > len(keys):
            blocks.append(list(keys))
        blocks[-1].append(name)
    return blocks


def _least_width(name: str, cells: Sequence[str], text: int, *, whole: bool) -> int:
    """Letters that a column's cells cannot do without: a number is never broken, a text may be after `text` of them;
    where it should be `whole` a case's name after more, and any other between its words.
    """
    longest = max(map(len, cells), default=0)
    if not _is_text(name):
        return max(1, longest)
    if whole:
        word = max((len(word) for cell in cells for word in cell.split()), default=0)
        text = max(text, min(word, _LONGEST_WORD), _LEAST_CASE if name == _KEYS[0] else 0)
    return max(1, min(longest, text))


def _is_text(name: str) -> bool:
    return schema.column_kinds().get(name, "text") == "text"


def _print_block(screen: Console, cells: dict[str, list[str]], data: pd.DataFrame) -> None:
    headings = {name: _heading(name, _HEADING[screen.width >= _ROOMY]) for name in cells}
    grid = new_table(
        screen, "", list(headings.values()), numbers=[headings[name] for name in cells if not _is_text(name)]
    )
    if screen.width < _ROOMY:
        grid.box = None
    for line in zip(*cells.values(), strict=True) if len(data) else ():
        grid.add_row(*line)
    screen.print(grid)


def _grid_notes(data: pd.DataFrame, empty: Sequence[str]) -> list[str]:
    """What was not measured, and why; the columns that are left out because nothing stands in them."""
    why: dict[str, list[str]] = {}
    if "status" in data.columns:
        broken = data[data["status"].fillna("ok").ne("ok")]
        from bwprof.analysis.values import labels

        for name, row in zip(labels(broken), broken.to_dict(orient="records"), strict=True):
            said = "" if formatting.is_missing(row.get("reason")) else f": {row['reason']}"
            why.setdefault(f"{row['status']}{said}", []).append(name)
    lines = [list_rows(reason, names, len(data)) for reason, names in why.items()]
    return lines + ([list_rows("no values", empty, 0)] if empty else [])
