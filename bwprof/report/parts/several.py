"""Several runs beside each other: each in a line, and every later one against the first."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.report.blocks import Block, Section, items, section, table, words
from bwprof.report.parts import pictures
from bwprof.report.parts.findings import number_text, sentence
from bwprof.report.runs import Run
from bwprof.text import finite_number, short

if TYPE_CHECKING:
    import pandas as pd

_MOST_DRAWN = 20  # changes, the largest; the table below has all. So many leave room on a page for what is said of them
_NUMBERS = ("ms before", "ms now", "speed-up", "GB/s before", "GB/s now", "change, %")


def in_short(runs: Sequence[Run]) -> Section | None:
    """A line for each run."""
    lines = [
        (run.name, ", ".join(run.each("device")), str(len(run.rows)), "; ".join(run.answer.lines()[:1])) for run in runs
    ]
    return section("runs", "The runs", table(("run", "device", "rows", "answer"), lines, wordy=True))


def against_first(runs: Sequence[Run]) -> list[Section | None]:
    """Each later run beside the first, case by case."""
    return [against(runs[0], run, number) for number, run in enumerate(runs[1:], 2)]


def against(base: Run, new: Run, number: int) -> Section | None:
    """One run beside another, case by case; `number` tells it from others of the report."""
    from bwprof.records.comparing.comparison import compared
    from bwprof.records.comparing.telling import details, in_order, on_both, summary
    from bwprof.records.comparing.verdicts import ONE_SIDED
    from bwprof.records.sides import side

    devices = [set(run.each("device")) for run in (base, new)]
    apart = all(devices) and not devices[0] & devices[1]
    found = compared(side(base.data, name=base.name), side(new.data, name=new.name), across=apart)
    data = found.frame()
    both = data[~data["verdict"].isin(ONE_SIDED)]
    lines = [_line(row) for row in both.to_dict(orient="records")]
    told = in_order(found, everything=False)
    on_both_sides = on_both(found, told)
    one_sided = [place for place in told if place not in on_both_sides]
    return section(
        f"change{number}",
        f"{new.name} against {base.name}",
        words(sentence(summary(found))),
        words("The runs are of other devices: what differs is theirs, not a change of the code." if apart else ""),
        *(words(sentence(note)) for note in found.notes),
        _ratios(data, number),
        items(details(found, on_both_sides, causes=not apart)),  # sentences, for which no column has room
        table(["case", "precision", "variant", "verdict", *_NUMBERS], lines, numbers=_NUMBERS, tools=True),
        items(details(found, one_sided, whole="among the rows of that run")),
    )


def _line(row: Mapping[Hashable, Any]) -> list[object]:
    found = {name: finite_number(row[name]) for name in ("base_ms", "new_ms", "speedup", "base_gb_s", "new_gb_s")}
    times = [_said(found[name], ".4g") for name in ("base_ms", "new_ms")]
    speeds = [number_text(found[name]) for name in ("base_gb_s", "new_gb_s")]
    ratio = None if found["speedup"] is None else f"{short(found['speedup'], '.2f')}x"
    change = _said(finite_number(row["change_pct"]), "+.1f")
    named = " ".join(str(row[name]) for name in ("case", "parameters") if isinstance(row[name], str) and row[name])
    verdict = str(row["verdict"]).replace("_", " ")
    return [named, row["precision"], row["variant"], verdict, *times, ratio, *speeds, change]


def _said(value: float | None, spec: str) -> str | None:
    return None if value is None else short(value, spec)


def _ratios(data: pd.DataFrame, number: int) -> Block | None:
    from bwprof.plot.kinds import ratios

    if not data["verdict"].isin(["slower", "faster", "same", "undecided", "disturbed"]).any():
        return None
    return pictures.drawn(
        f"change{number}",
        lambda target: ratios.picture(data, most=_MOST_DRAWN).write([target]),
        "Each case's new time over its old one, with its interval and what is taken for noise",
    )
