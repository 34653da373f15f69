"""Print documents, a run's summary and its rows on a screen."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.summarize import PAIR, summary_rows
from bwprof.results import schema
from bwprof.results.schema import FLAGS
from bwprof.text import document, formatting
from bwprof.text.document import Block, Code, Document, DocumentTable, FactList, Items, Paragraph, Section
from bwprof.text.formatting import format_figure, format_short
from bwprof.text.terminal import PLAIN_WIDTH, new_table, print_fitted, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

_MOST_NAMES = 8  # cases in a note
_SPARE = ("bytes\nratio", "GB/s\nratio", "variant", "limiter")  # columns that a narrow screen does without


def wrap(text: str, screen: Console, indent: str = "", hanging: int = 2) -> str:
    """Wrap a line to the screen; lines after the first are indented by `hanging` more letters."""
    width = max(40, min(screen.width, PLAIN_WIDTH))
    joined = text.replace(" %", "\u00a0%")  # a number and its unit stay together
    following = indent + " " * hanging
    lines = textwrap.fill(joined, width, initial_indent=indent, subsequent_indent=following, break_on_hyphens=False)
    return lines.replace("\u00a0%", " %")


def print_lines(screen: Console, lines: Iterable[str], indent: str = "") -> None:
    """Print lines, each wrapped to the screen."""
    for line in lines:
        screen.print(wrap(line, screen, indent))


def print_frame(
    screen: Console, title: str, data: pd.DataFrame, *, numbers: Sequence[str] = (), spare: Sequence[str] = ()
) -> None:
    """Print a frame of words under a title, `numbers` aligned to the right; nothing of an empty one."""
    if len(data):
        screen.print(f"\n{title}")
        _print_grid(screen, list(data.columns), data.itertuples(index=False), numbers, spare)


def _print_grid(
    screen: Console,
    headings: Sequence[str],
    lines: Iterable[Sequence[object]],
    numbers: Iterable[str],
    spare: Sequence[str] = (),
    title: str = "",
) -> None:
    """Print a table; the headings of numbers have two lines."""
    headers = {name: name.replace(" ", "\n", 1) if name in numbers else name for name in headings}
    right, left_out = ([headers[name] for name in names] for names in (numbers, spare))
    rows = (list(map(str, line)) for line in lines)
    print_table(screen, list(headers.values()), rows, numbers=right, spare=left_out, title=title)


def print_document(screen: Console, content: Document) -> None:
    """Print a document without its title."""
    for block in content.lead:
        _print_block(screen, block, "")
    for section in content.sections:
        screen.print()
        _print_block(screen, section, "")


def _print_block(screen: Console, block: Block | Section, indent: str) -> None:
    if isinstance(block, Section):
        screen.print(wrap(block.title, screen, indent))
        for part in block.blocks:
            _print_block(screen, part, f"{indent}  ")
    elif isinstance(block, Paragraph):
        screen.print(wrap(block.text, screen, indent))
    elif isinstance(block, Items):
        print_lines(screen, block.lines, indent)
    elif isinstance(block, FactList):
        print_lines(screen, (f"{name}: {value}" for name, value in block.pairs), indent)
    elif isinstance(block, Code):
        screen.print(f"{indent}  {block.text}", soft_wrap=True)  # one line, however long, so that it can be copied
    elif isinstance(block, DocumentTable) and block.wordy:  # each line as "first second: third", wrapped
        width = max(len(line[0]) for line in block.lines)
        for first, second, *rest in block.lines:
            line = ": ".join(cell for cell in (second, *rest) if cell != document.NOTHING)
            screen.print(wrap(f"{first:<{width}} {line}", screen, indent, width + 1))
    elif isinstance(block, DocumentTable):
        _print_grid(screen, block.headings, block.lines, block.numbers, title=block.caption)


def print_step(data: pd.DataFrame, screen: Console) -> None:
    """Print what the rows of a model's step come to."""
    from bwprof.llm.result import ModelStep, spare_columns

    for renderable in ModelStep.from_frame(data).renderables(screen):
        print_fitted(screen, renderable, spare_columns(renderable))


def print_summary(data: pd.DataFrame, screen: Console) -> None:
    """Print the summary of a frame, then what failed, was skipped, or is doubtful; a device after the other."""
    from bwprof.results import frame
    from bwprof.results.pairs import group_by_device

    if not data[["hostname", "backend", "device", "device_uuid"]].nunique().gt(1).any():
        _print_device(data, screen)
        return
    for number, rows in enumerate(group_by_device(frame.to_rows(data))):
        names = (rows[0][name] for name in ("hostname", "device", "device_uuid"))
        screen.print(("\n" if number else "") + " ".join(name for name in names if name))
        _print_device(frame.from_rows(rows), screen)


def _print_device(data: pd.DataFrame, screen: Console) -> None:
    lines, _ = summary_rows(data)
    columns = [name for name in (lines[0] if lines else {}) if name.endswith("_gb_s")]
    measured = [name.removesuffix("_gb_s") for name in columns if any(line[name] is not None for line in lines)]
    if any(map(registry.is_narrow, measured)):
        print_view(data, screen, columns=[name for name in _FORMAT_COLUMNS if data[name].nunique() > (name == "cache")])
        return
    if measured or not lines:
        _print_cases(lines, measured, screen)
    for note in _notes(lines, len(data), min(screen.width, PLAIN_WIDTH), legend=bool(measured)):
        screen.print(note)


def _print_cases(lines: Sequence[dict[str, Any]], measured: Sequence[str], screen: Console) -> None:
    """Print the table of cases, with the pair of precisions and all others that are measured."""
    precisions = (*PAIR, *(name for name in measured if name not in PAIR))
    gb_s, share = (schema.find_column(name).unit for name in ("bandwidth_gb_s", "pct_limit"))
    headers = ["case", "variant", *(f"{name.upper()}\n{gb_s}" for name in precisions)]
    ratios = [f"{gb_s}\nratio", "bytes\nratio", "time\ngain", f"{share}\nlimit"]
    # A narrow screen may leave the variants out, so the names of a case's lines have them.
    cases = Counter(line["case"] for line in lines) if screen.width < PLAIN_WIDTH else Counter[str]()
    rows = [_cells(line, precisions, with_variant=cases[line["case"]] > 1) for line in lines]
    numbers = [*headers[2:], *ratios]
    print_table(screen, [*headers, *ratios, "limiter"], rows, numbers=numbers, spare=_SPARE)


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


_FORMAT_COLUMNS = (  # with times: the GB/s of fewer bytes may be lower, and the launch faster
    *("case", "precision", "variant", "cache", "time_ms", "bandwidth_gb_s", "byte_ratio_vs_fp32", "bandwidth_vs_fp32"),
    *("speedup_vs_fp32", "pct_limit", "limiter", "flags"),
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
        notes.append(_list_rows(reason, names, len(lines), width, every))
    return notes


def _list_rows(reason: str, names: Sequence[str], total: int, width: int = PLAIN_WIDTH, every: str = "") -> str:
    """List some of the `total` rows to which a reason applies, all of them for 0, wrapped; or `every` one."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES and total else ""
    text = ", ".join(names[:_MOST_NAMES] if more else names) + more
    if len(names) == total > 1:
        text = every or f"all {total} rows"
    return textwrap.fill(f"{reason}: {text}", width, initial_indent="  ", subsequent_indent="    ")


_KEYS = ("case", "precision", "variant")  # every table of a view begins with those that it has
_ROOMY = 100  # letters of a screen, from which on there are rules between the columns
_LEAST_CASE = 32  # letters of a case's name that stay in a line
_LEAST_TEXT = (10, 24)  # letters of another text's line, at least, on a narrow and on a roomy screen


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
    kinds = schema.column_kinds()
    texts = {name for name in cells if kinds.get(name, "text") == "text"}
    print_cells(screen, cells, [name for name in _KEYS if name in cells], texts)
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


def print_cells(screen: Console, cells: dict[str, list[str]], keys: list[str], texts: Collection[str]) -> None:
    """Print columns in as many tables as it takes for each to fit the screen; each begins with the keys."""
    blocks: list[list[str]] = []
    for least_case in (0, _LEAST_CASE):  # of several tables each has whole names
        if len(blocks) == 1:
            break
        blocks = [list(keys)]
        for name in [name for name in cells if name not in keys]:
            table = _cells_table(screen, cells, [*blocks[-1], name], texts, least_case)
            if blocks[-1] != keys and not _fits(screen, table):
                blocks.append(list(keys))
            blocks[-1].append(name)
    for number, names in enumerate(blocks):
        if number:
            screen.print("")
        screen.print(_cells_table(screen, cells, names, texts, _LEAST_CASE if len(blocks) > 1 else 0))


def _cells_table(
    screen: Console, cells: dict[str, list[str]], names: Sequence[str], texts: Collection[str], least_case: int
) -> Table:
    """Make a table of some columns; headings are broken so that they are hardly wider than numbers."""
    longest = 12 if screen.width >= _ROOMY else 8
    headings = {}
    for name in names:
        words = re.sub("_(?!s$)", "_ ", name)  # "GB_s" stays together
        headings[name] = textwrap.fill(words, longest, break_long_words=False).replace("_ ", "_")
    numbers = [headings[name] for name in names if name not in texts]
    table = new_table(screen, "", list(headings.values()), numbers=numbers)
    if screen.width < _ROOMY:
        table.box = None
    for line in zip(*(cells[name] for name in names), strict=True):
        table.add_row(*line)
    if "case" in names:
        table.columns[0].min_width = min(least_case, max(map(len, cells["case"]), default=0))
    return table


def _fits(screen: Console, table: Table) -> bool:
    """Return whether a table fits the screen with its numbers whole, and some letters of a text in a line."""
    roomy = screen.width >= _ROOMY
    needed = 0
    for column in table.columns:
        longest = max((len(str(cell)) for cell in column.cells), default=0)
        if column.justify != "right":
            longest = min(longest, max(_LEAST_TEXT[roomy], column.min_width or 0))
        needed += 1 + roomy + max(longest, *map(len, str(column.header).splitlines()))
    return needed <= screen.width + 1 + roomy


def _view_notes(data: pd.DataFrame, empty: Sequence[str]) -> list[str]:
    """List what was not measured, and why, and the columns that are left out because they are empty."""
    from bwprof.analysis.values import labels

    names_of: dict[str, list[str]] = {}
    if "status" in data.columns:
        broken = data[data["status"].fillna("ok").ne("ok")]
        for name, row in zip(labels(broken), broken.to_dict(orient="records"), strict=True):
            reason = "" if formatting.is_missing(row.get("reason")) else f": {row['reason']}"
            names_of.setdefault(f"{row['status']}{reason}", []).append(name)
    lines = [_list_rows(reason, names, len(data)) for reason, names in names_of.items()]
    return lines + ([_list_rows("no values", empty, 0)] if empty else [])
