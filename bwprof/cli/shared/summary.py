"""The summary of a run as people read it: a table, and what should be doubted."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwprof.analysis.summary import PAIR, summary_rows
from bwprof.results import schema
from bwprof.results.schema import FLAGS, Row
from bwprof.terminal import PLAIN_WIDTH, show, table
from bwprof.text import figure_text, short

_NOTED = 8  # cases that a note names; of more it says how many
_SPARE = ("bytes\nratio", "GB/s\nratio", "variant", "limiter")  # columns that a narrow screen does without
_TOLD_APART = ["hostname", "backend", "device", "device_uuid"]  # devices

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, RenderableType


def print_summary(rows: Sequence[Row], screen: Console) -> None:
    """The summary of rows on a terminal or in a file, then what failed, was skipped, or should be doubted."""
    from bwprof.results import frame

    print_tables(frame.from_rows(rows), screen)


def print_step(data: pd.DataFrame, screen: Console) -> None:
    """Print what the rows of a model's step come to."""
    from bwprof.models.result import ModelStep
    from bwprof.models.telling import spare

    for renderable in ModelStep.from_frame(data).renderables(screen):
        show(screen, renderable, spare(renderable))


def print_tables(data: pd.DataFrame, screen: Console) -> None:
    """The same of a frame; of several devices one after the other."""
    from bwprof.results import frame
    from bwprof.results.compare import by_device

    parts = by_device(frame.to_rows(data)) if data[_TOLD_APART].nunique().gt(1).any() else []
    for number, rows in enumerate(parts):
        told = (rows[0][name] for name in ("hostname", "device", "device_uuid"))
        screen.print(("\n" if number else "") + " ".join(name for name in told if name))
        for renderable in tables(frame.from_rows(rows), screen):
            show(screen, renderable, _SPARE)
    for renderable in [] if parts else tables(data, screen):
        show(screen, renderable, _SPARE)


def tables(data: pd.DataFrame, screen: Console) -> list[RenderableType]:
    """The summary as rich renderables, 120 columns wide at most."""
    lines, _ = summary_rows(data)
    others = [name for name in _measured(lines) if name not in PAIR]
    gb_s, share = (schema.column(name).unit for name in ("bandwidth_gb_s", "pct_limit"))
    headers = ["case", "variant", *(f"{name.upper()}\n{gb_s}" for name in (*PAIR, *others))]
    ratios = [f"{gb_s}\nratio", "bytes\nratio", "time\ngain", f"{share}\nlimit"]
    result: list[RenderableType] = []
    # Where the variants may have no column of their own, the lines of a case are told apart by them.
    cases = Counter(line["case"] for line in lines) if screen.width < PLAIN_WIDTH else Counter[str]()
    grid = table(screen, "", [*headers, *ratios, "limiter"], numbers=[*headers[2:], *ratios])
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
    return "-" if value is None else figure_text(value, whole_from=100)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{short(value, '.2f' if abs(value) < 9.995 else '.1f')}x"


def _graded(line: dict[str, Any], precisions: Sequence[str]) -> str:
    """Each precision's share of its nearer roof; a c where that is the arithmetic one."""
    grades = [line[f"{name}_grade"] for name in precisions if f"{name}_gb_s" in line]
    if all(grade is None for grade in grades):
        return "-"
    return "/".join("-" if grade is None else f"{short(grade[0], '.0f')}{'c' if grade[1] else ''}" for grade in grades)


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
        return listed(head, held, len(lines), width, "every case" if some_precisions else f"all {rows} rows")

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


def listed(head: str, names: Sequence[str], total: int, width: int = PLAIN_WIDTH, everything: str = "") -> str:
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
