"""A comparison in words: its summary, tables of words, annotations of a pull request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwprof.records.keys import format_metric
from bwprof.records.regression import verdicts
from bwprof.records.regression.comparison import Comparison, Gate, distinguish_lines
from bwprof.records.regression.statistics import FAMILY_CHANCE, smallest_threshold
from bwprof.records.regression.verdicts import FASTER, ONE_SIDED, SAME, SLOWER, UNDECIDED, VERDICTS, CaseVerdict
from bwprof.results.pairs import DEFAULT_GATE
from bwprof.text.parsing import escape_controls, quote_text

if TYPE_CHECKING:
    import pandas as pd

_LARGE = 9.99  # of a change, a fraction: more is told as so much

_HUGE = math.log(1e6)  # from which on powers of ten are enough

_MOST_NAMES = 8  # of one cause

_MOST_WHYS = 12  # causes that are told

_TIMES_FROM = math.log(1.5)  # a change from which on it is told as so many times

NUMBERS = ("base", "new", "change %", "95 %", "limit %")

POWER_NUMBERS = ("processes", "noise %", "limit %", "found %", "+2 % found")

POWER_NOTE = (
    "limit %: a change counts from here on. found %: the smallest change that is found 95 times in 100. +2 % found: "
    "how often in 100 one try finds 2 % more time; single processes find nothing below the gate, a baseline of five "
    "(bwprof baseline save NAME --repeat 5) finds 2 % on a quiet device 95 times in 100"
)

_SMALL = math.log1p(0.02)


def line_names(comparison: Comparison) -> list[str]:
    """What each line is called: case, precision, and what tells it apart."""
    labels = distinguish_lines(comparison.lines)
    return [
        " ".join(
            quote_text(word) for word in (line.pair.row.get("case"), line.pair.row.get("precision"), label) if word
        )
        for line, label in zip(comparison.lines, labels, strict=True)
    ]


def sort_lines(comparison: Comparison, *, everything: bool) -> list[int]:
    """The places of the lines to show: those that are not the same first, the worst first."""
    places = [
        place
        for place, line in enumerate(comparison.lines)
        if everything or line.verdict != SAME or place in comparison.again
    ]

    def rank(place: int) -> tuple[int, float]:
        line = comparison.lines[place]
        badness = comparison.badness(line)
        return VERDICTS.index(line.verdict), 0.0 if math.isnan(badness) or line.verdict == SAME else -badness

    return sorted(places, key=rank)


def two_sided(comparison: Comparison, places: Sequence[int]) -> list[int]:
    """Those of the lines that both sides have."""
    return [place for place in places if comparison.lines[place].verdict not in ONE_SIDED]


def format_summary(comparison: Comparison) -> str:
    """One line: how many became slower, and the worst.

    It looks like ``2 slower, 1 faster, 60 same (gate 3 %): worst decode_gemm fp16 +7.1 %``.
    """
    counts = comparison.counts
    shown = [word for word in VERDICTS if counts[word] or word in (SLOWER, FASTER, SAME)]
    ordered = [SLOWER, FASTER, SAME, *(word for word in shown if word not in (SLOWER, FASTER, SAME))]
    said = ", ".join(f"{counts[word]} {_spelt(word)}" for word in ordered)
    called = line_names(comparison)
    extremes = [
        f"{title} {called[place]} {format_change(comparison.lines[place])}"
        for title, verdict in (("worst", SLOWER), ("best", FASTER))
        if (place := _extreme(comparison, verdict)) is not None
    ]
    return f"{said} ({format_gate(comparison)})" + (f": {', '.join(extremes)}" if extremes else "")


def _extreme(comparison: Comparison, verdict: str) -> int | None:
    places = [place for place, line in enumerate(comparison.lines) if line.verdict == verdict]
    return max(places, key=lambda place: abs(comparison.lines[place].difference), default=None)


def _word(line: CaseVerdict) -> str:
    return "slower, disturbed" if line.suspect else _spelt(line.verdict)


def _spelt(verdict: str) -> str:
    return verdict.replace("_", " ")


def format_gate(comparison: Comparison) -> str:
    """What differences are held against, in a few words."""
    learnt = [line for line in comparison.tested if line.test is not None and line.test.learnt]
    if not learnt:
        return f"gate {100 * (DEFAULT_GATE if comparison.gate is None else comparison.gate):g} %"
    least = smallest_threshold(comparison.gate, comparison.tries)
    return f"thresholds learnt from {comparison.processes} processes, from {100 * least:g} %"


def describe_chance(comparison: Comparison) -> str:
    """What the thresholds promise of false alarms."""
    learnt = [line for line in comparison.tested if line.test is not None and line.test.learnt]
    if not learnt:
        return ""
    rare = "; more where a case has a rare state for a whole process: --confirm measures such cases again"
    twice = ", before a second process is asked" if comparison.confirmed else rare if comparison.tries < 2 else ""
    return (
        f"chance that any of {len(learnt)} cases is called slower without being so: at most {100 * FAMILY_CHANCE:g} % "
        f"(Sidak's correction, normal noise){twice}"
    )


def format_change(line: CaseVerdict) -> str:
    """A change for people: +7.1 %, or 2.00x faster."""
    if abs(line.difference) >= (_TIMES_FROM if line.verdict in (FASTER, SLOWER) else _HUGE):
        word = line.verdict if line.verdict in (FASTER, SLOWER) else "more" if line.difference > 0 else "less"
        return f"{_times(abs(line.difference))}x {word}"
    return f"{100 * math.expm1(line.difference):+.1f} %"


def _times(difference: float) -> str:
    return f"{math.exp(difference):.2f}" if difference < _HUGE else f"10^{difference / math.log(10):.0f} "


def verdict_table(comparison: Comparison, places: Sequence[int]) -> pd.DataFrame:
    """Lines as a table of words: case, base, new, change %, its 95 % interval, the limit, verdict."""
    import pandas as pd

    called = line_names(comparison)
    rows = []
    for place in places:
        line = comparison.lines[place]
        low, high = comparison.interval(line)
        rows.append(
            {
                "case": called[place],
                "base": _value(comparison, line, new=False),
                "new": _value(comparison, line, new=True),
                "change %": _percent(comparison.change(line)),
                "95 %": "-" if math.isnan(low) else f"{_percent(low - 1)}..{_percent(high - 1)}",
                "limit %": _percent(comparison.limit(line)),
                "verdict": _word(line),
            }
        )
    return pd.DataFrame(rows, columns=["case", *NUMBERS, "verdict"])


def power_table(comparison: Comparison) -> pd.DataFrame:
    """The smallest change that the gate can see, per case, as a table of words; the largest first."""
    import pandas as pd

    called = line_names(comparison)
    rows = []
    for place, line in enumerate(comparison.lines):
        if line.test is None or line.base is None:
            continue
        rows.append(
            {
                "case": called[place],
                "processes": str(len(line.base.processes)),
                "noise %": _percent(line.test.noise, 2).lstrip("+"),
                "limit %": _percent(comparison.limit(line), 2),
                "found %": _percent(comparison.smallest(line), 2),
                POWER_NUMBERS[-1]: f"{100 * line.test.chance(_SMALL):.0f}",
                "_": abs(comparison.smallest(line)),
            }
        )
    found = pd.DataFrame(rows, columns=["case", *POWER_NUMBERS, "_"])
    return found.sort_values("_", ascending=False, kind="stable").drop(columns="_")


def detail_lines(comparison: Comparison, places: Sequence[int], *, whole: str = "", causes: bool = True) -> list[str]:
    """A line for all that have the same to say beyond figures: a probable cause (unless the sides are of other devices,
    which need none), why there is no comparison. `whole` says how all of those are seen that only one side has, where
    the line has the first of them.
    """
    called = line_names(comparison)
    found: dict[tuple[str, str], list[str]] = {}
    for place in places:
        line = comparison.lines[place]
        words = [word for word in (comparison.cause(place) if causes else "", line.reason) if word]
        if words and (line.verdict != SAME or place in comparison.again):
            change = f" {format_change(line)}" if line.test is not None else ""
            found.setdefault((_word(line), escape_controls("; ".join(words))), []).append(f"{called[place]}{change}")
    apart, one_sided = _spelt(verdicts.NOT_COMPARABLE), [_spelt(verdict) for verdict in ONE_SIDED]
    open_lines = [place for place in places if comparison.lines[place].verdict == UNDECIDED]
    lines = [describe_undecided(comparison, open_lines)] if open_lines else []
    for (verdict, said), of in found.items():
        head = f"{verdict} ({len(of)})" if len(of) > 1 and verdict in (apart, *one_sided) else verdict
        first = ", ".join(_first(of, whole if verdict in one_sided else ""))
        lines.append(f"{head}: {said}: {first}" if verdict == apart else f"{head}: {first}: {said}")
    left = len(lines) - _MOST_WHYS
    more = f"and {left} more of such lines: bwprof compare --json has all"
    return lines if left <= 1 else [*lines[:_MOST_WHYS], more]


def _first(called: list[str], whole: str = "") -> list[str]:
    """The first of many; `whole` says how all of them are seen, if not in the table."""
    left = len(called) - _MOST_NAMES
    return called if left <= 1 else [*called[:_MOST_NAMES], f"and {left} more{f' ({whole})' if whole else ''}"]


def first_names(comparison: Comparison, places: Sequence[int]) -> list[str]:
    """Name the first of these lines, and count the rest."""
    called = line_names(comparison)
    return _first([called[place] for place in places])


def describe_undecided(comparison: Comparison, places: Sequence[int]) -> str:
    """Name the undecided lines, how large a change each would have shown, and what decides them; "" for none."""
    called = line_names(comparison)
    found = [f"{called[place]} ({_percent(comparison.smallest(comparison.lines[place]))} %)" for place in places]
    if not found:
        return ""
    return (
        f"undecided, with the smallest detectable change: {', '.join(_first(found))}: more than the gate allows may "
        "hide there: measure both sides in several processes (bwprof baseline save NAME --repeat 5), or the new one "
        "again (--confirm)"
    )


def format_markdown(comparison: Comparison, heads: Sequence[str], gate: Gate) -> str:
    """For a pull request: the summary, what failed the gate, what else differs, and the rest folded away."""
    from bwprof.analysis.answer import markdown as written

    told = sort_lines(comparison, everything=False)
    changed = two_sided(comparison, told)
    every = sort_lines(comparison, everything=True)
    same = [place for place in every if place not in set(told)]
    one_sided = [place for place in told if place not in set(changed)]
    parts = [
        f"### bwprof: {describe_outcome(comparison, gate) if heads else 'comparison'}",
        *heads[:1],
        _plain(format_summary(comparison)) + ".",
        f"`{_code(comparison.base)}` → `{_code(comparison.new)}`",
    ]
    if changed:
        parts.append(_tags(written(verdict_table(comparison, changed))))
    if told:
        parts.append("\n".join(f"- {_plain(line)}" for line in detail_lines(comparison, told)))
    for places, called in ((same, "the same"), (one_sided, "on one side alone")):
        if places:
            folded = _tags(written(verdict_table(comparison, places)))
            parts.append(f"<details><summary>{len(places)} {called}</summary>\n\n{folded}\n\n</details>")
    parts += [_plain(note) for note in (*comparison.notes, describe_chance(comparison)) if note]
    return "\n\n".join(part for part in parts if part) + "\n"


def describe_outcome(comparison: Comparison, gate: Gate) -> str:
    """What became of a gate."""
    if gate.failed:
        return "the gate failed"
    if gate.missing:
        return "cases failed or are missing"
    if gate.suspects:
        return "cases may be slower, but were disturbed"
    if not comparison.judged:
        return "no case could be judged"
    return "cases are undecided" if gate.undecided else "no case failed the gate"


def _code(text: str) -> str:
    return quote_text(text).replace("`", "'")


def _plain(text: str) -> str:
    """What Markdown would read as the border of a cell, or as a tag, stays text."""
    return _tags(text).replace("|", "\\|")


def _tags(text: str) -> str:
    return text.replace("<", "&lt;")


def github_lines(comparison: Comparison, gate: Gate, file: str) -> list[str]:
    """Lines that a workflow of GitHub shows at the pull request: an error for each case that passes no gate."""
    called = line_names(comparison)
    lines = []
    for place in (*gate.failed, *gate.unsettled):
        line = comparison.lines[place]
        said = format_change(line) if line.test is not None else line.reason
        if place in gate.undecided:
            said = f"{said}, smallest detectable change {_percent(comparison.smallest(line))} %"
        cause = comparison.cause(place)
        title = _property(f"{called[place]}: {_word(line)}")
        lines.append(f"::error file={_property(file)},title={title}::{_data(said + (f': {cause}' if cause else ''))}")
    return lines


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _percent(fraction: float, digits: int = 1) -> str:
    if math.isnan(fraction):
        return "-"
    if fraction >= _LARGE:
        return f">{100 * _LARGE:g}"
    return f"{100 * fraction:+.{digits}f}"


def _value(comparison: Comparison, line: CaseVerdict, *, new: bool) -> str:
    """A side's value of the metric, with its unit where the metric is a time."""
    found = line.new if new else line.base
    if found is None:
        row = line.pair.new if new else line.pair.base
        return "-" if row is None or row["status"] == "ok" else str(row["status"])
    return format_metric(found.middle, comparison.metric)
