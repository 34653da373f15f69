"""Sections on the findings of one run, and on the changes between several."""

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

_LONGEST_REMARK, _LONGEST_LIST = 110, 500  # letters
_MANY = 12  # rows from which on a heatmap is clearer than bars
_MOST_CHANGES = 20  # of the picture; more would leave no room on a page for text
_NUMBERS = ("time, ms", "GB/s", "% of limit", "launches")
_CHANGE_NUMBERS = ("ms before", "ms now", "speed-up", "GB/s before", "GB/s now", "change, %")


def summarize(run: ReportRun) -> Section | None:
    """Return the section with the answer in sentences, and the figures that show how reliable it is."""
    lines = run.answer.lines()
    timed = [row for row in to_rows(run.answer.usable) if row["time_ms"] is not None and row["status"] == "ok"]
    if sum(bool(row["flags"]) for row in timed) > len(timed) / 2:  # the reliability comes first
        lines = [*lines[-1:], *lines[:-1]]
    if run.step is not None:
        lines.insert(0, run.step.answer)
    sentences = [Paragraph(as_sentence(line), lead=True) for line in lines]
    return make_section("answer", "The answer", *sentences, _figures(run, timed))


def as_sentence(line: str) -> str:
    """Return a line as a sentence; names and figures at its start stay as they are.

    Examples
    --------
    >>> as_sentence("none of 3 rows has a time"), as_sentence("fp16 instead of fp32: 2x")
    ('None of 3 rows has a time.', 'fp16 instead of fp32: 2x.')
    """
    text = line[:1].upper() + line[1:] if line.partition(" ")[0].isalpha() else line
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _figures(run: ReportRun, timed: Sequence[RowDict]) -> FactList | None:
    if not timed:
        return None
    cases = len({(row["case"], row["operation"]) for row in run.rows})
    failed = [row for row in to_rows(drop_repeated_shapes(run.data)) if row["status"] not in ("ok", "predicted")]
    limits = run.answer.limits
    pairs = [(f"measured, of {plural(cases, 'case')}", f"{len(timed)} of {len(timed) + len(failed)}")]
    if cold := [row for row in timed if row["bandwidth_gb_s"] and row["cache"] != "hot"]:
        best = max(cold, key=lambda row: float(row["bandwidth_gb_s"]))
        name = f"GB/s at most: {best['case']} {best['precision']}"
        pairs.append((name, format_figure(float(best["bandwidth_gb_s"]), whole_from=100)))
    if (limits.limiter > 0).any():
        high = int(is_at_roof(run.answer.usable, limits).sum())
        pairs.append((f"at {AT_ROOF:.0f} % or more of what the device allows", str(high)))
    checked, flagged = sum(row["verified"] is True for row in timed), sum(bool(row["flags"]) for row in timed)
    pairs += [
        ("verified against float64", f"{checked} of {len(timed)}"),
        ("flagged: to be read with care", str(flagged)),
    ]
    return FactList(tuple(pairs), lead=True)


def _draw_bandwidths(run: ReportRun) -> Block | None:
    """Return lines of a sweep of one operation over one parameter, a heatmap over two, else bars."""
    from bwprof.plot.sweeps import count_values

    data = run.answer.usable
    parameters = len(count_values(run.rows)) if data["operation"].nunique() == 1 else 0
    if parameters == 1:
        return pictures.draw_kind("lines", data, "Lines: the bandwidth over the parameter that was swept")
    if parameters == 2 and data["precision"].nunique() == 1 and len(data) > _MANY:
        return pictures.draw_kind("heatmap", data, "Heatmap: the bandwidth over the two parameters that were swept")
    text = "The bandwidth of each case in each precision, beside the roof that applies"
    return pictures.draw_kind("comparison", data, text)


def compare_precisions(run: ReportRun) -> Section | None:
    """Return the section with all bandwidths, and the gain of a narrower precision."""
    blocks: list[Block | None] = [_draw_bandwidths(run)]
    there = list_precisions(run.answer.usable) if set(CLASSIC_NAMES) <= set(run.data.columns) else []
    wide, narrow = PAIR if set(PAIR) <= set(there) else (*there[:2], "", "")[:2]
    if narrow and _are_known(wide, narrow):
        data = improvement_table(run.data, from_=wide, to=narrow)
        if len(data):
            text = "What the narrower precision gains in time: the ratio of bytes times that of the bandwidths"
            both = f"{wide.upper()} and {narrow.upper()}"
            caption = f"{both}: Improvement is of the GB/s; time speed-up = Improvement x Bytes ratio"
            blocks += [
                pictures.draw_kind("speedup", run.answer.usable, text),
                make_frame_table(data, numbers=list(data.columns)[1:], caption=caption, tools=len(data) > 20),
                make_paragraph(explain_equal_bandwidth(run.data, from_=wide, to=narrow)),
            ]
    title = "What a narrower precision brings" if len(blocks) > 1 else "How fast"
    return make_section("precisions", title, *blocks)


def _are_known(*precisions: str) -> bool:
    from bwprof.registry import check_precision

    try:
        return all(map(check_precision, precisions))
    except ValueError:
        return False


def draw_roofline(run: ReportRun) -> Section | None:
    """Return the section with the roofline."""
    text = "Roofline: the arithmetic rate of each row over its intensity, below the roofs of memory and arithmetic"
    return make_section("roofline", "Roofline", pictures.draw_kind("roofline", run.answer.usable, text))


def list_losses(run: ReportRun) -> Section | None:
    """Return the section on lost time, its causes and fixes, and on rows that need no work."""
    from bwprof.analysis.answer import group_strengths

    strengths = make_list(
        line if len(line) <= _LONGEST_LIST else f"{line[:_LONGEST_LIST].rpartition(', ')[0]} and more"
        for line in group_strengths(run.answer.measured)
    )
    none = "Not known: no roofs are beside the rows."
    if (run.answer.limits.limiter > 0).any():
        none = "No row falls short of its roof by a twentieth or more."
    lost = make_frame_table(run.answer.bottlenecks(), wordy=True) or make_paragraph(none)
    strong = make_section("strengths", "What needs no work", strengths)
    return make_section("bottlenecks", "Where time is lost, and what helps", lost, strong)


def list_rows(run: ReportRun) -> Section | None:
    """Return the section with all rows, and those columns that differ between them."""
    rows = run.rows
    names = [name for name in ("device", "cache", "hostname") if len(run.values(name)) > 1]
    names += [name for name in ("weights", "kv") if any(row.get(name) for row in rows)]
    last = ["count"] if any(row.get("count") is not None for row in rows) else []
    last += ["status"] if any(row["status"] != "ok" for row in rows) else []
    lines = []
    for row in rows:
        grade = find_grade(row)
        share = None if grade is None else format_short(grade[0], ".0f")
        figures = [row["variant"], _format_time(row["time_ms"]), format_number(row["bandwidth_gb_s"]), share]
        lines.append([*map(row.get, ("case", "precision", *names)), *figures, row["limiter"], *map(row.get, last)])
        lines[-1].append(_remarks(row))
    headings = ["case", "precision", *names, "variant", "time, ms", "GB/s", "% of limit", "limiter"]
    headings += ["launches" if name == "count" else name for name in last]
    return make_section("rows", "All rows", make_table([*headings, "remarks"], lines, numbers=_NUMBERS, tools=True))


def _remarks(row: RowDict) -> str:
    """Return the flags of a row, and why it has no time; many predictions have their reason below the table."""
    reason = str(row["reason"] or "") if row["status"] != "predicted" else ""
    reason = reason if len(reason) <= _LONGEST_REMARK else f"{reason[:_LONGEST_REMARK]}\u2026"
    return ": ".join(filter(None, [str(row["flags"] or "").replace(";", ", "), reason]))


def _format_time(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}" if 1e-3 <= value < 1e4 else f"{value:.3g}"


def format_number(value: float | None) -> str | None:
    """Return a number of a table; None for None."""
    return None if value is None else format_figure(value, whole_from=100)


def describe_model(run: ReportRun) -> Section | None:
    """Return the section on the steps of a model; None for other runs."""
    step = run.step
    if step is None:
        return None
    picture = pictures.draw_kind("model", run.data, "The time per token, or of a step, by operation")
    return make_section("model", f"Model: {step.model.name}", picture, *step.tables(), make_list(step.notes()))


def list_runs(runs: Sequence[ReportRun]) -> Section | None:
    """Return the section with a line for each run."""
    lines = [(run.name, run.joined("device"), len(run.rows), "; ".join(run.answer.lines()[:1])) for run in runs]
    return make_section("runs", "The runs", make_table(("run", "device", "rows", "answer"), lines, wordy=True))


def compare_runs(base: ReportRun, new: ReportRun, number: int) -> Section | None:
    """Return the section with one run beside another, case by case; `number` makes its name unique."""
    from bwprof.records.regression.comparison import compare_sources
    from bwprof.records.regression.report import detail_lines, format_summary, sort_lines, two_sided
    from bwprof.records.regression.verdicts import ONE_SIDED
    from bwprof.records.source import load_source

    devices = [set(run.values("device")) for run in (base, new)]
    apart = all(devices) and not devices[0] & devices[1]
    comparison = compare_sources(
        load_source(base.data, name=base.name), load_source(new.data, name=new.name), across=apart
    )
    data = comparison.frame()
    lines = [_change(row) for row in data[~data["verdict"].isin(ONE_SIDED)].to_dict(orient="records")]
    places = sort_lines(comparison, everything=False)
    both = two_sided(comparison, places)
    headings = ["case", "precision", "variant", "verdict", *_CHANGE_NUMBERS]
    return make_section(
        f"change{number}",
        f"{new.name} against {base.name}",
        make_paragraph(as_sentence(format_summary(comparison))),
        make_paragraph(
            "The runs are of other devices: what differs is theirs, not a change of the code." if apart else ""
        ),
        *(make_paragraph(as_sentence(note)) for note in comparison.notes),
        _draw_ratios(data, number),
        make_list(detail_lines(comparison, both, causes=not apart)),  # sentences, for which no column has room
        make_table(headings, lines, numbers=_CHANGE_NUMBERS, tools=True),
        make_list(
            detail_lines(
                comparison, [place for place in places if place not in both], whole="among the rows of that run"
            )
        ),
    )


def _change(row: Mapping[Hashable, Any]) -> list[object]:
    columns = ("base_ms", "new_ms", "speedup", "base_gb_s", "new_gb_s", "change_pct")
    base_ms, new_ms, speedup, base_gb_s, new_gb_s, change = (finite_or_none(row[name]) for name in columns)
    name = " ".join(str(row[name]) for name in ("case", "parameters") if isinstance(row[name], str) and row[name])
    return [
        name,
        row["precision"],
        row["variant"],
        str(row["verdict"]).replace("_", " "),
        *(None if value is None else format_short(value, ".4g") for value in (base_ms, new_ms)),
        None if speedup is None else f"{format_short(speedup, '.2f')}x",
        *map(format_number, (base_gb_s, new_gb_s)),
        None if change is None else format_short(change, "+.1f"),
    ]


def _draw_ratios(data: pd.DataFrame, number: int) -> Block | None:
    from bwprof.plot import regressions

    if not data["verdict"].isin(["slower", "faster", "same", "undecided", "disturbed"]).any():
        return None
    return pictures.draw_svg(
        f"change{number}",
        lambda target: regressions.build_ratios(data, most=_MOST_CHANGES).write([target]),
        "Each case's new time over its old one, with its interval and what is taken for noise",
    )
