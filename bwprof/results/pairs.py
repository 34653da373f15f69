"""Pair a configuration's precisions with FP32, and decide when two measurements differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bwprof.results import columns, schema
from bwprof.results.schema import RowDict
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import measured_or_none

BASELINE = "fp32"

_KEY_REST = ("operation", "case", "kv_lens", "backend", "device", "device_uuid", "cache", "run_id")


@dataclass(frozen=True, slots=True)
class PrecisionGroup:
    """One configuration: its rows by precision, in the order in which they were measured."""

    rows: dict[str, RowDict]

    @property
    def first(self) -> RowDict:
        """Any row of the group: the configuration's identity."""
        return next(iter(self.rows.values()))

    @property
    def variants(self) -> list[str]:
        """The variants that ran, each once."""
        return list(dict.fromkeys(str(row["variant"]) for row in self.rows.values() if row.get("variant")))


def configuration_key(row: RowDict, *, without: tuple[str, ...] = ()) -> tuple[object, ...]:
    """What two rows share that differ in precision and variant only, `without` some of it."""
    return tuple(row.get(name) for name in (*schema.param_names(), *_KEY_REST) if name not in without)


def distinguish_groups(groups: Sequence[PrecisionGroup], *, hot: bool = True) -> list[str]:
    """Name what tells each group from others of its case: the variant, the device, the cache; `hot` is always named.

    Examples
    --------
    >>> rows = [{"case": "prefill", "precision": "fp16", "variant": name} for name in ("unfused", "flash")]
    >>> distinctions(groups(rows))
    ['unfused', 'flash']
    """
    keys = [configuration_key(group.first, without=("run_id",)) for group in groups]
    variants = ["/".join(group.variants) for group in groups]
    several = Counter(key for key, _ in set(zip(keys, variants, strict=True)))
    caches = Counter(case for case, _ in {(group.first["case"], group.first.get("cache")) for group in groups})
    devices = len({group.first.get("device") for group in groups})
    found = []
    for key, variant, first in zip(keys, variants, (group.first for group in groups), strict=True):
        words = [variant] if several[key] > 1 else []
        words += [f"[{first['device']}]"] if devices > 1 and first.get("device") else []
        words += ["(hot)"] if first.get("cache") == "hot" and (hot or caches[first["case"]] > 1) else []
        found.append(" ".join(filter(None, words)))
    return found


def label_groups(groups: Sequence[PrecisionGroup], *, hot: bool = True) -> list[str]:
    """Name each group: its case, and what tells it from others of that case."""
    words = zip(groups, distinguish_groups(groups, hot=hot), strict=True)
    return [f"{group.first['case'] or group.first['operation']} {more}".strip() for group, more in words]


def group_by_device(rows: Iterable[RowDict]) -> list[list[RowDict]]:
    """The rows of each device, in the order of their first ones."""
    found: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in ("hostname", "backend", "device", "device_uuid")), []).append(
            row
        )
    return list(found.values())


def row_identity(row: RowDict) -> tuple[object, ...]:
    """What tells a row from all others of its file; the same of a CSV, where an empty text is a missing one."""
    told = (*configuration_key(row), row.get("precision"), row.get("variant"), row.get("timestamp"))
    return tuple(None if value == "" else schema.clean_value(value) for value in told)


def row_key(row: RowDict, timestamp: object) -> tuple[object, ...]:
    """What tells the row of the same case, precision and that time from all others, in a JSON file as in a CSV."""
    told = (*configuration_key(row), row.get("precision"), timestamp)
    return tuple(None if value == "" else schema.clean_value(value) for value in told)


def find_replaced(rows: Sequence[RowDict]) -> set[int]:
    """Places of the rows for which a later row of the same case stands in: it names their timestamp in `replaces`."""
    later: set[tuple[object, ...]] = set()
    gone: set[int] = set()
    for place in range(len(rows) - 1, -1, -1):
        row = rows[place]
        if row.get("timestamp") is not None and row_key(row, row["timestamp"]) in later:
            gone.add(place)
        if row.get("replaces"):
            later.add(row_key(row, row["replaces"]))
    return gone


def group_precisions(rows: Iterable[RowDict], every: Iterable[RowDict] = ()) -> list[PrecisionGroup]:
    """Rows gathered by configuration.

    Where each precision has one row only, those rows are one group even if the device chose different variants for
    them. Where a precision was measured in several variants, of `every` row of the run, those that failed among them,
    each variant is a group of its own. The same measured twice makes two groups: no row disappears.
    """
    variants: dict[tuple[object, ...], set[object]] = {}
    for row in every:
        variants.setdefault((configuration_key(row), row["precision"]), set()).add(row.get("variant"))
    ladders = {key for (key, _), names in variants.items() if len(names - {None}) > 1}
    gathered: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        gathered.setdefault(configuration_key(row), []).append(row)
    result: list[PrecisionGroup] = []
    for key, members in gathered.items():
        precisions = [row["precision"] for row in members]
        if len(set(precisions)) == len(precisions) and key not in ladders:
            result.append(PrecisionGroup({row["precision"]: row for row in members}))
            continue
        by_variant: dict[tuple[object, int], dict[str, RowDict]] = {}
        turns: Counter[tuple[object, object]] = Counter()
        for row in members:
            variant, precision = row.get("variant"), row["precision"]
            turn = turns[variant, precision]  # measured again (two runs in one old file): a group of its own, too
            turns[variant, precision] += 1
            by_variant.setdefault((variant, turn), {})[precision] = row
        result.extend(PrecisionGroup(found) for found in by_variant.values())
    return result


def fill_comparisons(rows: list[RowDict]) -> bool:
    """Fill the comparison columns of all rows, in place; True when that changed anything.

    Rows without a time, and configurations without an FP32 row, compare with nothing.
    """
    changed = False
    for group in group_precisions(rows):
        baseline = group.rows.get(BASELINE)
        for row in group.rows.values():
            for name, value in _compared(row, baseline).items():
                if row.get(name) != value:
                    row[name] = value
                    changed = True
    return changed


def _compared(row: RowDict, baseline: RowDict | None) -> dict[str, float | None]:
    if baseline is None or not row.get("time_ms") or not baseline.get("time_ms"):
        return dict.fromkeys(columns.COMPARISON_NAMES)
    ours, theirs = moved_bytes(row), moved_bytes(baseline)
    bandwidth = None
    if row.get("bandwidth_gb_s") and baseline.get("bandwidth_gb_s"):
        bandwidth = _ratio(row["bandwidth_gb_s"], baseline["bandwidth_gb_s"])
    return {
        "speedup_vs_fp32": _ratio(baseline["time_ms"], row["time_ms"]),
        "bandwidth_vs_fp32": bandwidth,
        "byte_ratio_vs_fp32": theirs / ours if ours and theirs else None,
    }


def _ratio(one: float, other: float) -> float | None:
    """None for times that nobody has measured: absurd ones, which others' files hold."""
    return None if measured_or_none(one) is None or measured_or_none(other) is None else one / other


def moved_bytes(row: RowDict) -> int | None:
    """Return the compulsory bytes of a row; where only one kind is known, what its rate makes of its time.

    Examples
    --------
    >>> moved_bytes({"bytes_read": 8, "bytes_written": 2}), moved_bytes({"bytes_read": 8})
    (10, None)
    >>> moved_bytes({"bytes_read": 8, "bandwidth_gb_s": 4.0, "time_ms": 2e-6})
    8
    """
    read, written = row.get("bytes_read"), row.get("bytes_written")
    if read is not None and written is not None:
        return int(read) + int(written)
    rate, time = measured_or_none(row.get("bandwidth_gb_s")), measured_or_none(row.get("time_ms"))
    return round(rate * time * 1e6) if rate and time and read != written else None


DEFAULT_GATE = 0.03

DISTURBED = frozenset({"noisy", "throttled"})


def is_comparable(row: RowDict) -> bool:
    """Whether a row's time is worth comparing: measured, and not flagged as disturbed.

    Examples
    --------
    >>> comparable({"status": "ok", "flags": "near_timer_floor"}), comparable({"status": "ok", "flags": "noisy"})
    (True, False)
    """
    return row["status"] == "ok" and not find_disturbances(row)


def find_disturbances(row: RowDict) -> list[str]:
    """The flags that make a row's time tell nothing."""
    return [word for word in split_flags(row) if word in DISTURBED]


def find_doubts(row: RowDict) -> list[str]:
    """What makes a row doubtful, however well it was timed: a result that nobody checked, bytes that cannot be.

    Examples
    --------
    >>> doubts({"flags": "near_timer_floor;unverified"}), doubts({"flags": "above_attainable", "verified": False})
    (['unverified'], ['unverified', 'above_attainable'])
    """
    flags, verified = split_flags(row), row.get("verified")
    wrong = not is_missing(verified) and not verified
    unchecked = ["unverified"] if "unverified" in flags or wrong else []
    return unchecked + [word for word in flags if word == "above_attainable"]


def split_flags(row: RowDict) -> list[str]:
    """Return a row's flags, as words."""
    found = row.get("flags")
    return [] if is_missing(found) else str(found).split(";")


def times_differ(one: RowDict, other: RowDict, *, gate: float = DEFAULT_GATE) -> bool:
    """Whether two rows have different times.

    Their 95 % confidence intervals must not overlap, and their medians must differ by more than `gate` of the smaller
    one. The interval tells the scatter within a measurement; the gate is for what changes between measurements: other
    addresses, another clock, another process. The default comes from A/A comparisons (``python -m bwprof.selftest
    repeat``).

    What cannot be said to be the same differs: a gate must not be passed by a case that crashed. Without a time on
    either side the answer is True; where an interval is missing, the gate alone decides; one of too few samples is
    infinite, and overlaps with all.

    Parameters
    ----------
    one, other : dict
        Rows with time_ms, time_ms_lo and time_ms_hi; None and NaN are missing.
    gate : float
        The smallest difference worth a word, as a fraction.

    Examples
    --------
    >>> fast = {"time_ms": 1.00, "time_ms_lo": 0.99, "time_ms_hi": 1.01}
    >>> slow = {"time_ms": 1.05, "time_ms_lo": 1.04, "time_ms_hi": 1.06}
    >>> differ(fast, slow), differ(fast, slow, gate=0.1), differ(fast, fast)
    (True, False, False)
    >>> differ(fast, {"time_ms": None}), differ(fast, {"time_ms": 1.02}), differ(fast, {"time_ms": 1.04})
    (True, False, True)
    """
    if not (_is_time(one.get("time_ms")) and _is_time(other.get("time_ms"))):
        return True
    first, second = sorted((one, other), key=lambda row: float(row["time_ms"]))
    high: Any = first.get("time_ms_hi")
    low: Any = second.get("time_ms_lo")
    apart = is_missing(high) or is_missing(low) or float(high) < float(low)
    return bool(apart and second["time_ms"] - first["time_ms"] > gate * first["time_ms"])


def _is_time(value: Any) -> bool:
    return not is_missing(value) and math.isfinite(value)
