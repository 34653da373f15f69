"""The findings of a report: of one run, of a model's step, of several runs beside each other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.analysis.gains import explain_equal_bandwidth, improvement_table, list_precisions
from bwprof.analysis.rules import AT_ROOF, is_at_roof
from bwprof.analysis.summarize import PAIR
from bwprof.analysis.values import drop_repeated_shapes
from bwprof.report import pictures
from bwprof.report.run import ReportRun
from bwprof.results.columns import CLASSIC_NAMES
from bwprof.results.frame import to_rows
from bwprof.roofs.limiter import find_grade
from bwprof.text.document import (
    Block,
    DocumentTable,
    FactList,
    Paragraph,
    Section,
    make_frame_table,
    make_list,
    make_paragraph,
    make_section,
    make_table,
)
from bwprof.text.formatting import format_figure, format_short, plural
from bwprof.text.parsing import finite_or_none

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.results.schema import RowDict

_LONGEST_REMARK = 110  # letters: the whole of it stands among the conditions, or in the file

_LONGEST_LIST = 500

_MANY = 12  # cases, of which a grid tells more than bars

_NUMBERS = ("time, ms", "GB/s", "% of limit", "launches")


def summarize(run: ReportRun) -> Section | None:
    """What it all says in a few sentences, and the figures that tell how far to trust it."""
    lines = run.answer.lines()
    timed = _timed(run)
    if sum(bool(row["flags"]) for row in timed) > len(timed) / 2:  # how sure all of it is before all else
        lines = [*lines[-1:], *lines[:-1]]
    if run.told.get("model") is not None:
        lines = [*answer_model(run), *lines]
    told = [Paragraph(as_sentence(line), lead=True) for line in lines]
    return make_section("answer", "The answer", *told, _figures(run, timed))


def _timed(run: ReportRun) -> list[RowDict]:
    """What was measured, a shape that stands in several of a model's steps once."""
    return [row for row in to_rows(run.answer.usable) if row["time_ms"] is not None and row["status"] == "ok"]


def as_sentence(line: str) -> str:
    """A line as a sentence: names and figures at its start stay as they are.

    Examples
    --------
    >>> sentence("none of 3 rows has a time"), sentence("fp16 instead of fp32: 2x")
    ('None of 3 rows has a time.', 'fp16 instead of fp32: 2x.')
    """
    first = line.partition(" ")[0]
    begun = line[:1].upper() + line[1:] if first.isalpha() else line
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


def _figures(run: ReportRun, timed: Sequence[RowDict]) -> FactList | None:
    if not timed:
        return None
    cases = len({(row["case"], row["operation"]) for row in run.rows})
    whole = len(timed) + sum(
        row["status"] not in ("ok", "predicted") for row in to_rows(drop_repeated_shapes(run.data))
    )
    limits = run.answer.limits
    high = int(is_at_roof(run.answer.usable, limits).sum())
    checked = sum(row["verified"] is True for row in timed)
    flagged = sum(bool(row["flags"]) for row in timed)
    best = max((row for row in timed if row["bandwidth_gb_s"] and row["cache"] != "hot"), key=_speed, default=None)
    pairs = [
        (f"measured, of {plural(cases, 'case')}", f"{len(timed)} of {whole}"),
        *([(f"at {AT_ROOF:.0f} % or more of what the device allows", str(high))] if (limits.limiter > 0).any() else []),
        ("verified against float64", f"{checked} of {len(timed)}"),
        ("flagged: to be read with care", str(flagged)),
    ]
    if best is not None:
        name = f"GB/s at most: {best['case']} {best['precision']}"
        pairs.insert(1, (name, format_figure(_speed(best), whole_from=100)))
    return FactList(tuple(pairs), lead=True)


def _speed(row: RowDict) -> float:
    return float(row["bandwidth_gb_s"])


def _comparison(run: ReportRun) -> Block | None:
    """The bandwidths; of one operation over one parameter as lines, over two as a heatmap."""
    from bwprof.plot.series import count_values

    data = run.answer.usable
    parameters = len(count_values(run.rows)) if data["operation"].nunique() == 1 else 0
    if parameters == 1:
        return pictures.draw_kind("lines", data, "Lines: the bandwidth over the parameter that was swept")
    if parameters == 2 and data["precision"].nunique() == 1 and len(data) > _MANY:
        return pictures.draw_kind("heatmap", data, "Heatmap: the bandwidth over the two parameters that were swept")
    text = "The bandwidth of each case in each precision, beside the roof that applies"
    return pictures.draw_kind("comparison", data, text)


def compare_precisions(run: ReportRun) -> Section | None:
    """Two precisions side by side, and all of them as bars."""
    found: list[Block | None] = [_comparison(run)]
    there = list_precisions(run.answer.usable) if set(CLASSIC_NAMES) <= set(run.data.columns) else []
    pair = PAIR if set(PAIR) <= set(there) else tuple(there[:2])
    if len(pair) == 2:
        data = improvement_table(run.data, from_=pair[0], to=pair[1]) if _known(pair) else None
        if data is not None and len(data):
            numbers = list(data.columns)[1:]
            text = "What the narrower precision gains in time: the ratio of bytes times that of the bandwidths"
            found.append(pictures.draw_kind("speedup", run.answer.usable, text))
            both = " and ".join(name.upper() for name in pair)
            caption = f"{both}: Improvement is of the GB/s; time speed-up = Improvement x Bytes ratio"
            found.append(make_frame_table(data, numbers=numbers, caption=caption, tools=len(data) > 20))
            found.append(make_paragraph(explain_equal_bandwidth(run.data, from_=pair[0], to=pair[1])))
    title = "What a narrower precision brings" if len(found) > 1 else "How fast"
    return make_section("precisions", title, *found)


def _known(names: Sequence[str]) -> bool:
    from bwprof.registry import check_precision

    try:
        return all(check_precision(name) for name in names)
    except ValueError:
        return False


def draw_roofline(run: ReportRun) -> Section | None:
    """Where the rows stand below the roofs."""
    text = "Roofline: the arithmetic rate of each row over its intensity, below the roofs of memory and arithmetic"
    return make_section("roofline", "Roofline", pictures.draw_kind("roofline", run.answer.usable, text))


def list_losses(run: ReportRun) -> Section | None:
    """Where time is lost, why, and what helps; and what is fine as it is."""
    from bwprof.analysis.answer import group_strengths

    data = run.answer.bottlenecks()
    lost = make_frame_table(data, wordy=True)
    strong = make_list(
        line if len(line) <= _LONGEST_LIST else f"{line[:_LONGEST_LIST].rpartition(', ')[0]} and more"
        for line in group_strengths(run.answer.measured)
    )
    none = "Not known: no roofs are beside the rows."
    if (run.answer.limits.limiter > 0).any():
        none = "No row falls short of its roof by a twentieth or more."
    strengths = make_section("strengths", "What needs no work", strong)
    return make_section("bottlenecks", "Where time is lost, and what helps", lost or make_paragraph(none), strengths)


def list_rows(run: ReportRun) -> Section | None:
    """All rows, in few columns; more are in the file."""
    rows = run.rows
    several = [name for name in ("device", "cache", "hostname") if len(run.each(name)) > 1]
    own = [name for name in ("weights", "kv") if any(row.get(name) for row in rows)]
    counted = ["count"] if any(row.get("count") is not None for row in rows) else []
    headings = ["case", "precision", *several, *own, "variant", "time, ms", "GB/s", "% of limit", "limiter"]
    state = ["status"] if any(row["status"] != "ok" for row in rows) else []
    headings += [*("launches" for _ in counted), *state, "remarks"]
    lines = []
    for row in rows:
        grade = find_grade(row)
        line = [row["case"], row["precision"], *(row.get(name) for name in (*several, *own)), row["variant"]]
        line += [
            _time(row["time_ms"]),
            format_figure(row["bandwidth_gb_s"]),
            None if grade is None else format_short(grade[0], ".0f"),
        ]
        lines.append([*line, row["limiter"], *(row[name] for name in (*counted, *state)), _remarks(row)])
    return make_section("rows", "All rows", make_table(headings, lines, numbers=_NUMBERS, tools=True))


def _remarks(row: RowDict) -> str:
    said = [str(row["flags"]).replace(";", ", ")] if row["flags"] else []
    reason = str(row["reason"] or "") if row["status"] != "predicted" else ""  # of many, which stands below
    said += [reason if len(reason) <= _LONGEST_REMARK else f"{reason[:_LONGEST_REMARK]}\u2026"] if reason else []
    return ": ".join(said)


def _time(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}" if 1e-3 <= value < 1e4 else f"{value:.3g}"


def format_figure(value: float | None) -> str | None:
    """A number in a table; None where there is none."""
    return None if value is None else format_figure(value, whole_from=100)


def answer_model(run: ReportRun) -> list[str]:
    """What limits a step of the model, and how fast it is; [] where the rows do not say."""
    found = run.step
    return [] if found is None else [found.answer]


def describe_model(run: ReportRun) -> Section | None:
    """The steps, their operations, formats, what fits, and what all of that assumes."""
    found = run.step
    if found is None:
        return None
    picture = pictures.draw_kind("model", run.data, "The time per token, or of a step, by operation")
    title = f"Model: {found.model.name}"
    return make_section("model", title, picture, *map(_table, found.tables()), make_list(found.notes()))


def _table(found: tuple[str, list[dict[str, str]]]) -> DocumentTable | None:
    from bwprof.llm.sections import _TEXT_COLUMNS

    title, lines = found
    headings = [name.replace("\n", " ") for name in lines[0]] if lines else []
    numbers = [name for name in headings if name not in _TEXT_COLUMNS]
    return make_table(headings, [list(line.values()) for line in lines], numbers=numbers, caption=title)


_MOST_DRAWN = 20  # changes, the largest; the table below has all. So many leave room on a page for what is said of them

_CHANGE_NUMBERS = ("ms before", "ms now", "speed-up", "GB/s before", "GB/s now", "change, %")


def list_runs(runs: Sequence[ReportRun]) -> Section | None:
    """A line for each run."""
    lines = [
        (run.name, ", ".join(run.each("device")), str(len(run.rows)), "; ".join(run.answer.lines()[:1])) for run in runs
    ]
    return make_section("runs", "The runs", make_table(("run", "device", "rows", "answer"), lines, wordy=True))


def compare_runs(runs: Sequence[ReportRun]) -> list[Section | None]:
    """Each later run beside the first, case by case."""
    return [compare_runs(runs[0], run, number) for number, run in enumerate(runs[1:], 2)]


def compare_runs(base: ReportRun, new: ReportRun, number: int) -> Section | None:
    """One run beside another, case by case; `number` tells it from others of the report."""
    from bwprof.records.regression.comparison import compare_sources
    from bwprof.records.regression.report import detail_lines, format_summary, sort_lines, two_sided
    from bwprof.records.regression.verdicts import ONE_SIDED
    from bwprof.records.source import load_source

    devices = [set(run.each("device")) for run in (base, new)]
    apart = all(devices) and not devices[0] & devices[1]
    found = compare_sources(load_source(base.data, name=base.name), load_source(new.data, name=new.name), across=apart)
    data = found.frame()
    both = data[~data["verdict"].isin(ONE_SIDED)]
    lines = [_line(row) for row in both.to_dict(orient="records")]
    told = sort_lines(found, everything=False)
    on_both_sides = two_sided(found, told)
    one_sided = [place for place in told if place not in on_both_sides]
    return make_section(
        f"change{number}",
        f"{new.name} against {base.name}",
        make_paragraph(as_sentence(format_summary(found))),
        make_paragraph(
            "The runs are of other devices: what differs is theirs, not a change of the code." if apart else ""
        ),
        *(make_paragraph(as_sentence(note)) for note in found.notes),
        _ratios(data, number),
        make_list(detail_lines(found, on_both_sides, causes=not apart)),  # sentences, for which no column has room
        make_table(
            ["case", "precision", "variant", "verdict", *_CHANGE_NUMBERS], lines, numbers=_CHANGE_NUMBERS, tools=True
        ),
        make_list(detail_lines(found, one_sided, whole="among the rows of that run")),
    )


def _line(row: Mapping[Hashable, Any]) -> list[object]:
    found = {name: finite_or_none(row[name]) for name in ("base_ms", "new_ms", "speedup", "base_gb_s", "new_gb_s")}
    times = [_format_optional(found[name], ".4g") for name in ("base_ms", "new_ms")]
    speeds = [format_figure(found[name]) for name in ("base_gb_s", "new_gb_s")]
    ratio = None if found["speedup"] is None else f"{format_short(found['speedup'], '.2f')}x"
    change = _format_optional(finite_or_none(row["change_pct"]), "+.1f")
    named = " ".join(str(row[name]) for name in ("case", "parameters") if isinstance(row[name], str) and row[name])
    verdict = str(row["verdict"]).replace("_", " ")
    return [named, row["precision"], row["variant"], verdict, *times, ratio, *speeds, change]


def _format_optional(value: float | None, spec: str) -> str | None:
    return None if value is None else format_short(value, spec)


def _ratios(data: pd.DataFrame, number: int) -> Block | None:
    from bwprof.plot import regressions

    if not data["verdict"].isin(["slower", "faster", "same", "undecided", "disturbed"]).any():
        return None
    return pictures.draw_svg(
        f"change{number}",
        lambda target: regressions.build_ratios(data, most=_MOST_DRAWN).write([target]),
        "Each case's new time over its old one, with its interval and what is taken for noise",
    )
