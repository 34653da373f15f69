"""Why a case probably became slower or faster: told from the columns of both rows alone, with the figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bwprof.records.keys import positive_number
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure
from bwprof.text.parsing import finite_or_none, quote_text

_CLOCK, _TRAFFIC, _COUNTED, _ROOF = 0.01, 0.02, 0.05, 0.03  # the least change of a column that explains anything

_ROOFS = {"attainable_gb_s": "memory", "ceiling_gb_s": "memory", "measured_tflops": "compute"}  # of which limiter

_MOST = 3  # causes that are told of one case

_SAME_SETS = 0.5  # of the buffer sets

# Of a run's metadata: its parts, and how the members that may change times are called; None: all of them, by name.
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

_MOST_CONDITIONS = 4

# What a kernel does the same every time: another figure is another kernel, whatever it is called.
_COUNTED_NAMES = ("shared_wavefronts", "sectors_per_load", "sectors_per_store", "l2_bytes")


@dataclass(frozen=True, slots=True)
class CauseRule:
    """A cause: how it is told of the faster and the slower row, and which of the two is the new one; "" where not."""

    id: str
    told: Callable[[RowDict, RowDict, bool], str]


def _other_variant(fast: RowDict, slow: RowDict, new_is_slow: bool) -> str:
    base, new = _in_time(fast, slow, new_is_slow)
    ours, theirs = new.get("variant"), base.get("variant")
    return (
        f"another variant ran: {quote_text(ours)}, before {quote_text(theirs)}"
        if ours and theirs and ours != theirs
        else ""
    )


def _throttled(fast: RowDict, slow: RowDict, new_is_slow: bool) -> str:
    words = [word for word in _words(slow, "throttle") if word != "none" and word not in _words(fast, "throttle")]
    when = "now" if new_is_slow else "before"
    return f"the clock was held down {when}: {quote_text(', '.join(words))}" if words else ""


def _clock(fast: RowDict, slow: RowDict, new_is_slow: bool) -> str:
    for name, what in (("sm_clock_mhz", "multiprocessors' clock"), ("mem_clock_mhz", "memory's clock")):
        change = _change(fast, slow, name)
        if change is not None and change < -_CLOCK:
            base, new = _in_time(fast, slow, new_is_slow)
            word = "lower" if new_is_slow else "higher"
            share = abs(new[name] / base[name] - 1)
            return f"the {what} was {100 * share:.1f} % {word}: {new[name]:.0f} MHz, before {base[name]:.0f}"
    return ""


def _traffic(fast: RowDict, slow: RowDict, new_is_slow: bool) -> str:
    base, new = (_moved(row) for row in _in_time(fast, slow, new_is_slow))
    if base is None or new is None or base[1] != new[1]:
        return ""
    change = new[0] / base[0] - 1
    if (change if new_is_slow else -change) <= _TRAFFIC:
        return ""
    figures = [format_figure(found[0], whole_from=100) for found in (new, base)]
    said = "rose" if change > 0 else "fell"
    return f"DRAM traffic {said} by {100 * abs(change):.1f} %: {figures[0]} {new[1]}, before {figures[1]}"


def _moved(row: RowDict) -> tuple[float, str] | None:
    """What was counted between DRAM and the device, and in what; None where nothing was."""
    parts = [finite_or_none(row.get(name)) for name in ("dram_bytes_read", "dram_bytes_written")]
    whole = positive_number(math.fsum(part for part in parts if part is not None)) if None not in parts else None
    if whole is not None:
        return whole / 1e6, "MB"
    ratio = positive_number(row.get("traffic_ratio"))
    return None if ratio is None else (ratio, "x the modelled bytes")


def _other_algorithm(fast: RowDict, slow: RowDict, new_is_slow: bool) -> str:
    base, new = _in_time(fast, slow, new_is_slow)
    if base.get("variant") != new.get("variant"):
        return ""
    for name in _COUNTED_NAMES:
        change = _change(base, new, name)
        if change is not None and abs(change) > _COUNTED:
            return f"another algorithm of this variant ran: {name} {new[name]:.4g}, before {base[name]:.4g}"
    return ""


def _measured_otherwise(fast: RowDict, slow: RowDict, new_is_slow: bool) -> str:
    base, new = _in_time(fast, slow, new_is_slow)
    before, now = positive_number(base.get("buffer_sets")), positive_number(new.get("buffer_sets"))
    found = []
    if before is not None and now is not None and min(before, now) < _SAME_SETS * max(before, now):
        found.append(f"{now:.0f} buffer sets, before {before:.0f}")
    for word in ("not_cold", "event_bias", "single_thread"):
        flagged = word in _words(base, "flags"), word in _words(new, "flags")
        if flagged[0] != flagged[1]:
            found.append(f"{word} {'now' if flagged[1] else 'before'}")
    return f"measured in another way: {', '.join(found)}" if found else ""


def _roofs(fast: RowDict, slow: RowDict, new_is_slow: bool) -> str:
    base, new = _in_time(fast, slow, new_is_slow)
    limiters = {row.get("limiter") for row in (fast, slow)} - {None, ""}
    # A roof that did not limit either row explains nothing; where that is not known, any might.
    names = [name for name, of in _ROOFS.items() if of in limiters or not limiters]
    for name in names:
        change = _change(fast, slow, name)
        if change is not None and change < -_ROOF:
            column = schema.find_column(name)
            title = column.title or column.name.replace("_", " ")
            figures = [format_figure(row[name], whole_from=100) for row in (new, base)]
            return f"the device's roof changed: {title} {figures[0]} {column.unit}, before {figures[1]}"
    return ""


def _other_software(fast: RowDict, slow: RowDict, new_is_slow: bool) -> str:
    base, new = _in_time(fast, slow, new_is_slow)
    found = [
        f"{word} {quote_text(new[name])}, before {quote_text(base[name])}"
        for name, word in (("driver", "driver"), ("bwprof_version", "bwprof"), ("timer", "timer"), ("device", "device"))
        if base.get(name) and new.get(name) and base[name] != new[name]
    ]
    return f"not the same ground: {'; '.join(found)}" if found else ""


# The likeliest first.
RULES = (
    CauseRule("variant", _other_variant),
    CauseRule("throttled", _throttled),
    CauseRule("clock", _clock),
    CauseRule("traffic", _traffic),
    CauseRule("algorithm", _other_algorithm),
    CauseRule("method", _measured_otherwise),
    CauseRule("roofs", _roofs),
    CauseRule("ground", _other_software),
)


def describe_noise(change: float, threshold: float) -> str:
    """Of a difference that tells nothing; both are fractions."""
    return f"noise: {100 * change:+.1f} % is within what is seen without any change ({100 * threshold:.1f} %)"


def find_causes(base: RowDict, new: RowDict, *, slower: bool, conditions: str = "") -> str:
    """The probable causes, the likeliest first; "" where no column tells one.

    Parameters
    ----------
    base, new : dict
        Rows of one case.
    slower : bool
        Whether the new one is worse.
    conditions : str
        What differs between the runs, from `conditions`.
    """
    fast, slow = (base, new) if slower else (new, base)
    found = [said for rule in RULES if (said := rule.told(fast, slow, slower))]
    return "; ".join([*found[:_MOST], *filter(None, [conditions])])


def explain_change(base: RowDict, new: RowDict, *, slower: bool, conditions: str = "") -> str:
    """The same; where no column tells one, that, and what would."""
    found = find_causes(base, new, slower=slower, conditions=conditions)
    if found:
        return found
    counted = all(row.get("counters_status") == "ok" for row in (base, new))
    hint = f": --counters on both sides would say whether it moves {'more' if slower else 'fewer'} bytes"
    hint = "" if counted else hint
    return f"not known from these rows{hint}"


def compare_conditions(base: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name what differs between the metadata of two runs and may change times; "" where nothing does.

    What one run does not know is no difference.
    """
    found = []
    for part, words in _CONDITIONS.items():
        after, ago = _part(new, part), _part(base, part)
        for name, word in (words or {name: name for name in (*after, *ago)}).items():
            now, before = _facts(after.get(name)), _facts(ago.get(name))
            if words is not None and not (now and before):
                continue
            ours, theirs = (
                [fact for fact in one if fact not in other] for one, other in ((now, before), (before, now))
            )
            if ours or theirs:
                texts = [quote_text(", ".join(facts)) or "unset" for facts in (ours, theirs)]
                found.append(f"{word} {texts[0]}, before {texts[1]}".lstrip())
    return f"the runs differ: {'; '.join(found[:_MOST_CONDITIONS])}" if found else ""


def _part(run: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = run.get(name)
    return found if isinstance(found, Mapping) else {}


def _facts(value: Any) -> list[str]:
    """A note's parts, or a value as text; nothing for what is not known."""
    return [] if value is None or value == "" else str(value).split("; ")


def _in_time(fast: RowDict, slow: RowDict, new_is_slow: bool) -> tuple[RowDict, RowDict]:
    return (fast, slow) if new_is_slow else (slow, fast)


def _words(row: RowDict, name: str) -> list[str]:
    return [word for word in str(row.get(name) or "").split(";") if word]


def _change(one: RowDict, other: RowDict, name: str) -> float | None:
    """From one to the other, as a fraction."""
    before, now = positive_number(one.get(name)), positive_number(other.get(name))
    return None if before is None or now is None else now / before - 1
