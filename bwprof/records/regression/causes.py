"""Find why a case probably became slower or faster, in the columns of both rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from bwprof.records.keys import positive_number
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure
from bwprof.text.parsing import finite_or_none, quote_text

# The smallest changes of a clock, traffic, a counter or a roof that count, as fractions.
_CLOCK, _TRAFFIC, _COUNTED, _ROOF = 0.01, 0.02, 0.05, 0.03
_ROOFS = {"attainable_gb_s": "memory", "ceiling_gb_s": "memory", "measured_tflops": "compute"}  # the limiter of each
_SAME_SETS = 0.5  # of the buffer sets
_MOST_CAUSES = 3
_MOST_CONDITIONS = 4

# The parts of a run's metadata, and labels of their entries that may change times; None: all entries.
_CONDITIONS: dict[str, dict[str, str] | None] = {
    "facts": {
        "note": "",
        "units": "units (threads, multiprocessors)",
        "power_limit_w": "power limit, W:",
        "ecc": "ECC",
        "cache_bytes": "cache, bytes:",
        "runtime": "runtime",
    },
    "host": {"cpu_count": "CPUs of the machine", "name": "machine"},
    "environment": None,
}

# A kernel has the same value of these each time: another value is another kernel.
_COUNTED_NAMES = ("shared_wavefronts", "sectors_per_load", "sectors_per_store", "l2_bytes")

# A rule: a function of the base row, the new row, and whether the new one is slower; "" where it does not apply.
CauseRule = Callable[[RowDict, RowDict, bool], str]


def _find_variant(base: RowDict, new: RowDict, _: bool) -> str:
    now, before = new.get("variant"), base.get("variant")
    return (
        f"another variant ran: {quote_text(now)}, before {quote_text(before)}"
        if now and before != now and before
        else ""
    )


def _find_throttle(base: RowDict, new: RowDict, slower: bool) -> str:
    fast, slow = (base, new) if slower else (new, base)
    words = [word for word in _words(slow, "throttle") if word != "none" and word not in _words(fast, "throttle")]
    when = "now" if slower else "before"
    return f"the clock was held down {when}: {quote_text(', '.join(words))}" if words else ""


def _find_clock(base: RowDict, new: RowDict, slower: bool) -> str:
    for name, what in (("sm_clock_mhz", "multiprocessors' clock"), ("mem_clock_mhz", "memory's clock")):
        if _is_lower(base, new, name, slower, _CLOCK):
            share = abs(new[name] / base[name] - 1)
            word = "lower" if slower else "higher"
            return f"the {what} was {100 * share:.1f} % {word}: {new[name]:.0f} MHz, before {base[name]:.0f}"
    return ""


def _find_traffic(base: RowDict, new: RowDict, slower: bool) -> str:
    before, now = _traffic(base), _traffic(new)
    if before is None or now is None or before[1] != now[1]:
        return ""
    change = now[0] / before[0] - 1
    if (change if slower else -change) <= _TRAFFIC:
        return ""
    figures = [format_figure(amount, whole_from=100) for amount, _ in (now, before)]
    verb = "rose" if change > 0 else "fell"
    return f"DRAM traffic {verb} by {100 * abs(change):.1f} %: {figures[0]} {now[1]}, before {figures[1]}"


def _traffic(row: RowDict) -> tuple[float, str] | None:
    parts = [finite_or_none(row.get(name)) for name in ("dram_bytes_read", "dram_bytes_written")]
    total = positive_number(math.fsum(part for part in parts if part is not None)) if None not in parts else None
    if total is not None:
        return total / 1e6, "MB"
    ratio = positive_number(row.get("traffic_ratio"))
    return None if ratio is None else (ratio, "x the modelled bytes")


def _find_algorithm(base: RowDict, new: RowDict, _: bool) -> str:
    if base.get("variant") != new.get("variant"):
        return ""
    for name in _COUNTED_NAMES:
        change = _change(base, new, name)
        if change is not None and abs(change) > _COUNTED:
            return f"another algorithm of this variant ran: {name} {new[name]:.4g}, before {base[name]:.4g}"
    return ""


def _find_method(base: RowDict, new: RowDict, _: bool) -> str:
    before, now = positive_number(base.get("buffer_sets")), positive_number(new.get("buffer_sets"))
    texts = []
    if before is not None and now is not None and min(before, now) < _SAME_SETS * max(before, now):
        texts.append(f"{now:.0f} buffer sets, before {before:.0f}")
    for word in ("not_cold", "event_bias", "single_thread"):
        flagged = word in _words(new, "flags")
        if flagged != (word in _words(base, "flags")):
            texts.append(f"{word} {'now' if flagged else 'before'}")
    return f"measured in another way: {', '.join(texts)}" if texts else ""


def _find_roof(base: RowDict, new: RowDict, slower: bool) -> str:
    limiters = {row.get("limiter") for row in (base, new)} - {None, ""}
    for name, limiter in _ROOFS.items():
        # A roof that limits neither row explains nothing; without known limiters, each roof may.
        if (limiter in limiters or not limiters) and _is_lower(base, new, name, slower, _ROOF):
            column = schema.find_column(name)
            title = column.title or column.name.replace("_", " ")
            figures = [format_figure(row[name], whole_from=100) for row in (new, base)]
            return f"the device's roof changed: {title} {figures[0]} {column.unit}, before {figures[1]}"
    return ""


def _find_ground(base: RowDict, new: RowDict, _: bool) -> str:
    texts = [
        f"{word} {quote_text(new[name])}, before {quote_text(base[name])}"
        for name, word in (("driver", "driver"), ("bwprof_version", "bwprof"), ("timer", "timer"), ("device", "device"))
        if base.get(name) and new.get(name) and base[name] != new[name]
    ]
    return f"not the same ground: {'; '.join(texts)}" if texts else ""


# The likeliest first.
RULES: dict[str, CauseRule] = {
    "variant": _find_variant,
    "throttled": _find_throttle,
    "clock": _find_clock,
    "traffic": _find_traffic,
    "algorithm": _find_algorithm,
    "method": _find_method,
    "roofs": _find_roof,
    "ground": _find_ground,
}


def describe_noise(change: float, threshold: float) -> str:
    """Describe a difference, a fraction, below its threshold."""
    return f"noise: {100 * change:+.1f} % is within what is seen without any change ({100 * threshold:.1f} %)"


def find_causes(base: RowDict, new: RowDict, *, slower: bool, conditions: str = "") -> str:
    """Return the probable causes, the likeliest first, and the runs' different conditions; "" without any.

    `slower`: the new row is the worse one. `conditions` are those of `compare_conditions`.
    """
    texts = [text for rule in RULES.values() if (text := rule(base, new, slower))]
    return "; ".join([*texts[:_MOST_CAUSES], *filter(None, [conditions])])


def explain_change(base: RowDict, new: RowDict, *, slower: bool, conditions: str = "") -> str:
    """Return the probable causes as `find_causes`; without one, say which option may show it."""
    texts = find_causes(base, new, slower=slower, conditions=conditions)
    if texts:
        return texts
    hint = f": --counters on both sides would say whether it moves {'more' if slower else 'fewer'} bytes"
    counted = all(row.get("counters_status") == "ok" for row in (base, new))
    return f"not known from these rows{'' if counted else hint}"


def compare_conditions(base: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name the differences between two runs' metadata that may change times; "" without one.

    A value that one run lacks is no difference.
    """
    texts = []
    for part, labels in _CONDITIONS.items():
        after, ago = ({} if not isinstance(run.get(part), Mapping) else run[part] for run in (new, base))
        for name, label in (labels or {name: name for name in (*after, *ago)}).items():
            now, before = _facts(after.get(name)), _facts(ago.get(name))
            added, removed = _without(now, before), _without(before, now)
            if (added or removed) and (labels is None or (now and before)):
                texts.append(f"{label} {added or 'unset'}, before {removed or 'unset'}".lstrip())
    return f"the runs differ: {'; '.join(texts[:_MOST_CONDITIONS])}" if texts else ""


def _without(facts: list[str], others: list[str]) -> str:
    return quote_text(", ".join(fact for fact in facts if fact not in others))


def _facts(value: Any) -> list[str]:
    """Return the parts of a note, or a value as text; nothing for an unknown one."""
    return [] if value is None or value == "" else str(value).split("; ")


def _words(row: RowDict, name: str) -> list[str]:
    return [word for word in str(row.get(name) or "").split(";") if word]


def _change(base: RowDict, new: RowDict, name: str) -> float | None:
    before, now = positive_number(base.get(name)), positive_number(new.get(name))
    return None if before is None or now is None else now / before - 1


def _is_lower(base: RowDict, new: RowDict, name: str, slower: bool, least: float) -> bool:
    fast, slow = (base, new) if slower else (new, base)
    change = _change(fast, slow, name)
    return change is not None and change < -least
