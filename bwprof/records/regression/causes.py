"""Find why a case probably became slower or faster, in the columns of both rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from bwprof.records.keys import positive_number
from bwprof.results import schema
from bwprof.results.pairs import split_flags
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure
from bwprof.text.parsing import finite_or_none, quote_text

# The smallest changes of a clock, traffic, a counter or a roof that count, as fractions.
_CLOCK, _TRAFFIC, _COUNTED, _ROOF = 0.01, 0.02, 0.05, 0.03
_CLOCKS = {"sm_clock_mhz": "the multiprocessors' clock", "mem_clock_mhz": "the memory's clock"}
_ROOFS = {"attainable_gb_s": "memory", "ceiling_gb_s": "memory", "measured_tflops": "compute"}  # the limiter of each
_SAME_SETS = 0.5  # of the buffer sets
_MOST_CAUSES = 3
_MOST_CONDITIONS = 4

# A kernel has the same value of these each time: another value is another kernel.
_COUNTED_NAMES = ("shared_wavefronts", "sectors_per_load", "sectors_per_store", "l2_bytes")

# The parts of a run's metadata, and those of their entries that may change times; none: all entries.
_CONDITIONS = {
    "facts": ("note", "units", "power_limit_w", "ecc", "cache_bytes", "runtime"),
    "host": ("cpu_count", "name"),
    "environment": (),
}


def _list_causes(base: RowDict, new: RowDict, slower: bool) -> Iterator[str]:
    """Describe each probable cause, the likeliest first; "" for those that do not apply."""
    yield _describe_other(base, new, {"variant": "another variant ran:"})
    yield _find_throttle(base, new, slower)
    yield _describe_first(base, new, _CLOCKS, -_CLOCK, slower)
    yield _find_traffic(base, new, slower)
    yield _find_algorithm(base, new)
    yield _find_method(base, new)
    yield _find_roof(base, new, slower)
    names = {"driver": "driver", "bwprof_version": "bwprof", "timer": "timer", "device": "device"}
    ground = _describe_other(base, new, names)
    yield f"not the same ground: {ground}" if ground else ""


def _find_throttle(base: RowDict, new: RowDict, slower: bool) -> str:
    fast, slow = ([word for word in str(row.get("throttle") or "").split(";") if word] for row in (base, new))
    if not slower:
        fast, slow = slow, fast
    words = [word for word in slow if word != "none" and word not in fast]
    when = "now" if slower else "before"
    return f"the clock was held down {when}: {quote_text(', '.join(words))}" if words else ""


def _find_traffic(base: RowDict, new: RowDict, slower: bool) -> str:
    (before, unit), (now, other) = _traffic(base), _traffic(new)
    return _describe_figure("DRAM traffic", before, now, unit, _TRAFFIC, slower) if unit == other else ""


def _traffic(row: RowDict) -> tuple[float | None, str]:
    parts = [finite_or_none(row.get(name)) for name in ("dram_bytes_read", "dram_bytes_written")]
    total = positive_number(math.fsum(part for part in parts if part is not None)) if None not in parts else None
    return (row.get("traffic_ratio"), "x the modeled bytes") if total is None else (total / 1e6, "MB")


def _find_algorithm(base: RowDict, new: RowDict) -> str:
    names = {name: name for name in _COUNTED_NAMES if base.get("variant") == new.get("variant")}
    texts = (_describe_first(base, new, names, _COUNTED, slower) for slower in (True, False))
    text = next(filter(None, texts), "")
    return f"another algorithm of this variant ran: {text}" if text else ""


def _find_method(base: RowDict, new: RowDict) -> str:
    before, now = positive_number(base.get("buffer_sets")), positive_number(new.get("buffer_sets"))
    texts = []
    if before is not None and now is not None and min(before, now) < _SAME_SETS * max(before, now):
        texts.append(f"{now:.0f} buffer sets, before {before:.0f}")
    for word in ("not_cold", "event_bias", "single_thread"):
        flagged = word in split_flags(new)
        if flagged != (word in split_flags(base)):
            texts.append(f"{word} {'now' if flagged else 'before'}")
    return f"measured in another way: {', '.join(texts)}" if texts else ""


def _find_roof(base: RowDict, new: RowDict, slower: bool) -> str:
    limiters = {row.get("limiter") for row in (base, new)} - {None, ""}
    # A roof that limits neither row explains nothing; without known limiters, each roof may.
    names = [name for name, limiter in _ROOFS.items() if limiter in limiters or not limiters]
    titles = {name: f"the device's roof ({schema.find_column(name).title})" for name in names}
    return _describe_first(base, new, titles, -_ROOF, slower)


def _describe_other(base: RowDict, new: RowDict, names: Mapping[str, str]) -> str:
    return "; ".join(
        f"{label} {quote_text(new[name])}, before {quote_text(base[name])}"
        for name, label in names.items()
        if base.get(name) and new.get(name) and base[name] != new[name]
    )


def _describe_first(base: RowDict, new: RowDict, names: Mapping[str, str], least: float, slower: bool) -> str:
    """Describe the first of several columns that changed as `_describe_figure` says."""
    for name, what in names.items():
        figures = base.get(name), new.get(name), schema.find_column(name).unit
        if text := _describe_figure(what, *figures, least, slower):
            return text
    return ""


def _describe_figure(what: str, before: Any, now: Any, unit: str, least: float, slower: bool) -> str:
    """Describe a change of a figure by more than `least`, a fraction, that makes a row slower; negative: a fall."""
    old, new = positive_number(before), positive_number(now)
    if old is None or new is None:
        return ""
    change = (new / old if slower else old / new) - 1
    if change * math.copysign(1, least) <= abs(least):
        return ""
    verb = "rose" if new > old else "fell"
    figures = f"{format_figure(new, whole_from=100)} {unit}".strip(), format_figure(old, whole_from=100)
    return f"{what} {verb} by {100 * abs(new / old - 1):.1f} %: {figures[0]}, before {figures[1]}"


def find_causes(base: RowDict, new: RowDict, *, slower: bool, conditions: str = "", explain: bool = False) -> str:
    """Return the probable causes, the likeliest first, and the runs' different conditions of `compare_conditions`.

    `slower`: the new row is the worse one. With `explain`, a text without any says which option may show it.
    """
    texts = list(filter(None, _list_causes(base, new, slower)))
    text = "; ".join([*texts[:_MOST_CAUSES], *filter(None, [conditions])])
    if text or not explain:
        return text
    hint = f": --counters on both sides would say whether it moves {'more' if slower else 'fewer'} bytes"
    counted = all(row.get("counters_status") == "ok" for row in (base, new))
    return f"not known from these rows{'' if counted else hint}"


def compare_conditions(base: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name the differences between two runs' metadata that may change times; "" without one.

    A value that one run lacks is no difference, except of the environment.
    """
    texts = []
    for part, names in _CONDITIONS.items():
        after, ago = (run[part] if isinstance(run.get(part), Mapping) else {} for run in (new, base))
        for name in names or dict.fromkeys((*after, *ago)):
            now, before = _facts(after.get(name)), _facts(ago.get(name))
            added, removed = _without(now, before), _without(before, now)
            if (added or removed) and (not names or (now and before)):
                texts.append(f"{name} {added or 'unset'}, before {removed or 'unset'}")
    return f"the runs differ: {'; '.join(texts[:_MOST_CONDITIONS])}" if texts else ""


def _without(facts: list[str], others: list[str]) -> str:
    return quote_text(", ".join(fact for fact in facts if fact not in others))


def _facts(value: Any) -> list[str]:
    """Return the parts of a note, or a value as text; nothing for an unknown one."""
    return [] if value is None or value == "" else str(value).split("; ")
