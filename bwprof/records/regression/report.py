"""Format a comparison: its summary, tables, and annotations of a pull request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwprof.records.keys import format_metric
from bwprof.records.regression import verdicts
from bwprof.records.regression.comparison import Comparison, Gate
from bwprof.records.regression.statistics import FAMILY_CHANCE, smallest_threshold
from bwprof.records.regression.verdicts import FASTER, ONE_SIDED, SAME, SLOWER, UNDECIDED, VERDICTS, CaseVerdict
from bwprof.results.pairs import DEFAULT_GATE
from bwprof.text.document import escape_markdown, format_markdown_table, make_frame_table
from bwprof.text.parsing import escape_controls, quote_text

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("base", "new", "change %", "95 %", "limit %")
POWER_NUMBERS = ("processes", "noise %", "limit %", "found %", "+2 % found")
POWER_NOTE = (
    "limit %: a change counts from here on. found %: the smallest change that is found 95 times in 100. +2 % found: "
    "how often in 100 one try finds 2 % more time"
)
_LARGE = 9.99  # a fraction; larger changes are ">999" %
_TIMES_FROM = math.log(1.5)  # larger changes are factors
_SMALL = math.log1p(0.02)
_MOST_NAMES = 8  # of one cause
_MOST_DETAILS = 12


def sort_lines(comparison: Comparison, *, everything: bool) -> list[int]:
    """Return the indices of all lines, or the changed ones, sorted by verdict, the worst first."""

    def rank(place: int) -> tuple[int, float]:
        line = comparison.lines[place]
        same = line.verdict == SAME or math.isnan(line.badness)
        return VERDICTS.index(line.verdict), 0.0 if same else -line.badness

    changed = [n for n, line in enumerate(comparison.lines) if line.verdict != SAME or n in comparison.second_tries]
    return sorted(range(len(comparison.lines)) if everything else changed, key=rank)


def two_sided(comparison: Comparison, places: Sequence[int]) -> list[int]:
    """Return those of the lines that both sides have."""
    return [place for place in places if comparison.lines[place].verdict not in ONE_SIDED]


def format_summary(comparison: Comparison) -> str:
    """Format one line, like ``2 slower, 1 faster, 60 same (gate 3 %): worst decode_gemm fp16 +7.1 %``."""
    main = (SLOWER, FASTER, SAME)
    words = [*main, *(word for word in VERDICTS if comparison.counts[word] and word not in main)]
    counts = ", ".join(f"{comparison.counts[word]} {_spell(word)}" for word in words)
    if _count_learned(comparison):
        least = smallest_threshold(comparison.gate, comparison.tries)
        count = max(len(line.base.processes) for line in comparison.tested)
        gate = f"thresholds learned from {count} processes, from {100 * least:g} %"
    else:
        gate = f"gate {100 * (DEFAULT_GATE if comparison.gate is None else comparison.gate):g} %"
    extremes = []
    for title, verdict in (("worst", SLOWER), ("best", FASTER)):
        lines = zip(comparison.lines, comparison.names, strict=True)
        found = [(abs(line.difference), name, line) for line, name in lines if line.verdict == verdict]
        if found:
            _, name, line = max(found, key=lambda one: one[0])
            extremes.append(f"{title} {name} {format_change(line)}")
    return f"{counts} ({gate})" + (f": {', '.join(extremes)}" if extremes else "")


def _word(line: CaseVerdict) -> str:
    return "slower, disturbed" if line.suspect else _spell(line.verdict)


def _spell(verdict: str) -> str:
    return verdict.replace("_", " ")


def _count_learned(comparison: Comparison) -> int:
    return sum(line.test.between_processes for line in comparison.lines)


def describe_chance(comparison: Comparison) -> str:
    """Describe the chance of a false alarm; "" where it is unknown."""
    learned = _count_learned(comparison)
    if not learned:
        return ""
    more = ", before a second process is measured" if comparison.confirmed else ""
    return (
        f"chance that any of {learned} cases is called slower without being so: at most {100 * FAMILY_CHANCE:g} % "
        f"(Sidak's correction, normal noise){more}"
    )


def format_change(line: CaseVerdict) -> str:
    """Format a change: +7.1 %, or 2.00x faster."""
    if line.verdict in (FASTER, SLOWER) and abs(line.difference) >= _TIMES_FROM:
        factor = verdicts.to_ratio(abs(line.difference))
        return f"{factor:.2f}x {line.verdict}" if factor < 1e6 else f"{factor:.0e}x {line.verdict}"
    return f"{_percent(line.change)} %"


def verdict_table(comparison: Comparison, places: Sequence[int]) -> pd.DataFrame:
    """Return lines as a table of texts."""
    import pandas as pd

    rows = []
    for place in places:
        line = comparison.lines[place]
        low, high = line.interval
        interval = "-" if math.isnan(low) else f"{_percent(low - 1)}..{_percent(high - 1)}"
        values = [_value(comparison, line, new=new) for new in (False, True)]
        figures = [*values, _percent(line.change), interval, _percent(line.limit)]
        rows.append([comparison.names[place], *figures, _word(line)])
    return pd.DataFrame(rows, columns=["case", *NUMBERS, "verdict"])


def power_table(comparison: Comparison) -> pd.DataFrame:
    """Return the smallest change that the gate finds, per case, as a table of texts; the largest first."""
    import pandas as pd

    tested = [item for item in zip(comparison.names, comparison.lines, strict=True) if item[1].is_tested]
    rows = []
    for name, line in sorted(tested, key=lambda item: -round(abs(item[1].smallest), 9)):
        noise, limit, found = (_percent(value, 2) for value in (line.test.noise, line.limit, line.smallest))
        small = f"{100 * line.test.chance(_SMALL):.0f}"
        rows.append([name, str(len(line.base.processes)), noise.lstrip("+"), limit, found, small])
    return pd.DataFrame(rows, columns=["case", *POWER_NUMBERS])


def _percent(fraction: float, digits: int = 1) -> str:
    if math.isnan(fraction):
        return "-"
    return f">{100 * _LARGE:g}" if fraction >= _LARGE else f"{100 * fraction:+.{digits}f}"


def _value(comparison: Comparison, line: CaseVerdict, *, new: bool) -> str:
    value, row = (line.new, line.pair.new) if new else (line.base, line.pair.base)
    if line.is_tested:
        return format_metric(value.middle, comparison.metric)
    return "-" if row is None or row["status"] == "ok" else str(row["status"])


def detail_lines(comparison: Comparison, places: Sequence[int], *, whole: str = "", causes: bool = True) -> list[str]:
    """Return a text for all lines with the same verdict and reason; `whole` says how to see all lines of one side."""
    undecided = [place for place in places if comparison.lines[place].verdict == UNDECIDED]
    texts = [describe_undecided(comparison, undecided)] if undecided else []
    apart, one_sided = _spell(verdicts.NOT_COMPARABLE), [_spell(word) for word in ONE_SIDED]
    for (verdict, reason), cases in _group_lines(comparison, places, causes=causes).items():
        counted = len(cases) > 1 and verdict in (apart, *one_sided)
        head = f"{verdict} ({len(cases)})" if counted else verdict
        first = ", ".join(_first(cases, whole if verdict in one_sided else ""))
        texts.append(f"{head}: {reason}: {first}" if verdict == apart else f"{head}: {first}: {reason}")
    rest = len(texts) - _MOST_DETAILS
    more = f"and {rest} more of such lines: bwprof compare --json has all"
    return texts if rest <= 1 else [*texts[:_MOST_DETAILS], more]


def _group_lines(comparison: Comparison, places: Sequence[int], *, causes: bool) -> dict[tuple[str, str], list[str]]:
    """Return the names and changes of all lines with the same verdict and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for place in places:
        line = comparison.lines[place]
        reason = "; ".join(filter(None, (comparison.cause(place) if causes else "", line.reason)))
        if reason and (line.verdict != SAME or place in comparison.second_tries):
            change = f" {format_change(line)}" if line.is_tested else ""
            key = _word(line), escape_controls(reason)
            groups.setdefault(key, []).append(f"{comparison.names[place]}{change}")
    return groups


def _first(names: list[str], whole: str = "") -> list[str]:
    rest = len(names) - _MOST_NAMES
    return names if rest <= 1 else [*names[:_MOST_NAMES], f"and {rest} more{f' ({whole})' if whole else ''}"]


def first_names(comparison: Comparison, places: Sequence[int]) -> list[str]:
    """Name the first of these lines, and count the rest."""
    return _first([comparison.names[place] for place in places])


def describe_undecided(comparison: Comparison, places: Sequence[int]) -> str:
    """Name the undecided lines, the smallest change that each would show, and what decides them."""
    texts = [f"{comparison.names[place]} ({_percent(comparison.lines[place].smallest)} %)" for place in places]
    return (
        f"undecided, with the smallest detectable change: {', '.join(_first(texts))}: more than the gate allows may "
        "hide there: measure both sides in several processes (bwprof baseline save NAME --repeat 5), or the new one "
        "again (--confirm)"
    )


def format_markdown(comparison: Comparison, heads: Sequence[str], gate: Gate) -> str:
    """Format a pull request's comment: the summary, what failed the gate, what else differs, the rest folded."""

    def table(places: Sequence[int]) -> str:
        return format_markdown_table(make_frame_table(verdict_table(comparison, places)))

    listed = sort_lines(comparison, everything=False)
    changed = two_sided(comparison, listed)
    same = [place for place in sort_lines(comparison, everything=True) if place not in set(listed)]
    one_sided = [place for place in listed if place not in set(changed)]
    base, new = (quote_text(name).replace("`", "'") for name in (comparison.base, comparison.new))
    details = [f"- {escape_markdown(line)}" for line in detail_lines(comparison, listed)]
    folded = [
        f"<details><summary>{len(places)} {title}</summary>\n\n{table(places)}\n\n</details>"
        for places, title in ((same, "the same"), (one_sided, "on one side alone"))
        if places
    ]
    parts = [
        f"### bwprof: {_describe_outcome(comparison, gate) if heads else 'comparison'}",
        *map(escape_markdown, heads[:1]),
        f"{escape_markdown(format_summary(comparison))}.",
        f"`{base}` → `{new}`",
        table(changed),
        "\n".join(details),
        *folded,
        *map(escape_markdown, (*comparison.notes, describe_chance(comparison))),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _describe_outcome(comparison: Comparison, gate: Gate) -> str:
    outcomes = {
        "the gate failed": gate.failed,
        "cases failed or are missing": gate.missing,
        "cases may be slower, but were disturbed": gate.suspects,
        "no case could be judged": not comparison.judged,
        "cases are undecided": gate.undecided,
    }
    return next((text for text, applies in outcomes.items() if applies), "no case failed the gate")


def github_lines(comparison: Comparison, gate: Gate, file: str) -> list[str]:
    """Return workflow commands that GitHub shows at the pull request: an error for each case that passes no gate."""
    lines = []
    for place in (*gate.failed, *gate.unsettled):
        line = comparison.lines[place]
        text = format_change(line) if line.is_tested else line.reason
        if place in gate.undecided:
            text = f"{text}, smallest detectable change {_percent(line.smallest)} %"
        text = ": ".join(filter(None, (text, comparison.cause(place))))
        title = _escape_property(f"{comparison.names[place]}: {_word(line)}")
        lines.append(f"::error file={_escape_property(file)},title={title}::{_escape_data(text)}")
    return lines


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")
