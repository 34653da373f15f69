"""Pair a configuration's precisions with FP32, and decide when two measurements differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import measured_or_none

BASELINE = "fp32"
_KEY_REST = ("operation", "case", "kv_lens", "backend", "device", "device_uuid", "cache", "run_id")


@dataclass(frozen=True, slots=True)
class PrecisionGroup:
    """The rows of one configuration by precision, in the order of measurement."""

    rows: dict[str, RowDict]

    @property
    def first(self) -> RowDict:
        """Return a row that identifies the configuration."""
        return next(iter(self.rows.values()))

    @property
    def variants(self) -> list[str]:
        """Return the variants of the rows, each once."""
        return list(dict.fromkeys(str(row["variant"]) for row in self.rows.values() if row.get("variant")))


def configuration_key(row: RowDict, *, without: tuple[str, ...] = ()) -> tuple[object, ...]:
    """Return what rows of one configuration share, except the columns in `without`; precision and variant differ."""
    return tuple(row.get(name) for name in (*schema.param_names(), *_KEY_REST) if name not in without)


def distinguish_groups(groups: Sequence[PrecisionGroup], *, hot: bool = True) -> list[str]:
    """Return, for each group, its variant, device and cache as far as they differ among groups of its case.

    `hot` names a hot cache in any case.
    """
    keys = [(configuration_key(group.first, without=("run_id",)), "/".join(group.variants)) for group in groups]
    several = Counter(key for key, _ in set(keys))
    caches = Counter(case for case, _ in {(group.first["case"], group.first.get("cache")) for group in groups})
    devices = len({group.first.get("device") for group in groups})
    labels = []
    for (key, variant), first in zip(keys, (group.first for group in groups), strict=True):
        parts = [variant] if several[key] > 1 else []
        parts += [f"[{first['device']}]"] if devices > 1 and first.get("device") else []
        parts += ["(hot)"] if first.get("cache") == "hot" and (hot or caches[first["case"]] > 1) else []
        labels.append(" ".join(filter(None, parts)))
    return labels


def label_groups(groups: Sequence[PrecisionGroup], *, hot: bool = True) -> list[str]:
    """Return each group's case, and what distinguishes it from others of that case."""
    words = zip(groups, distinguish_groups(groups, hot=hot), strict=True)
    return [f"{group.first['case'] or group.first['operation']} {more}".strip() for group, more in words]


def group_by_device(rows: Iterable[RowDict]) -> list[list[RowDict]]:
    """Group rows by device, in order of appearance."""
    by_device: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        key = tuple(row.get(name) for name in ("hostname", "backend", "device", "device_uuid"))
        by_device.setdefault(key, []).append(row)
    return list(by_device.values())


def row_identity(row: RowDict) -> tuple[object, ...]:
    """Return the key that identifies a row within a file, the same for CSV and JSON."""
    return (*row_key(row, row.get("timestamp")), schema.clean_value(row.get("variant") or None))


def row_key(row: RowDict, timestamp: object) -> tuple[object, ...]:
    """Return the key of the row of this case and precision with this timestamp, the same for CSV and JSON."""
    values = (*configuration_key(row), row.get("precision"), timestamp)
    return tuple(None if value == "" else schema.clean_value(value) for value in values)


def find_replaced(rows: Sequence[RowDict]) -> set[int]:
    """Return the places of rows that a later row replaces (see the column `replaces`)."""
    later: set[tuple[object, ...]] = set()
    replaced: set[int] = set()
    for place, row in reversed(list(enumerate(rows))):
        if row.get("timestamp") is not None and row_key(row, row["timestamp"]) in later:
            replaced.add(place)
        if row.get("replaces"):
            later.add(row_key(row, row["replaces"]))
    return replaced


def group_precisions(rows: Iterable[RowDict], every: Iterable[RowDict] = ()) -> list[PrecisionGroup]:
    """Group rows by configuration.

    If each precision has one row, the rows are one group, whichever variants ran. If a precision has several variants,
    or had in `every` row of the run, each variant is a group. Repeated rows make further groups.
    """
    variants: dict[tuple[object, ...], set[object]] = {}
    for row in every:
        variants.setdefault((configuration_key(row), row["precision"]), set()).add(row.get("variant"))
    split = {key for (key, _), names in variants.items() if len(names - {None}) > 1}
    by_configuration: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        by_configuration.setdefault(configuration_key(row), []).append(row)
    result: list[PrecisionGroup] = []
    for key, members in by_configuration.items():
        one_each = len({row["precision"] for row in members}) == len(members) and key not in split
        groups: dict[tuple[object, int], dict[str, RowDict]] = {}
        repeats: Counter[tuple[object, object]] = Counter()
        for row in members:
            precision, variant = row["precision"], None if one_each else row.get("variant")
            groups.setdefault((variant, repeats[variant, precision]), {})[precision] = row
            repeats[variant, precision] += 1
        result.extend(map(PrecisionGroup, groups.values()))
    return result


def fill_comparisons(rows: list[RowDict]) -> bool:
    """Fill the comparison columns of all rows in place; return whether anything changed.

    They stay empty without a time, or without an FP32 row.
    """
    before = [[row.get(name) for name in schema.COMPARISON_NAMES] for row in rows]
    for group in group_precisions(rows):
        baseline = group.rows.get(BASELINE)
        for row in group.rows.values():
            row.update(_compared(row, baseline))
    return before != [[row[name] for name in schema.COMPARISON_NAMES] for row in rows]


def _compared(row: RowDict, baseline: RowDict | None) -> dict[str, float | None]:
    if baseline is None or not row.get("time_ms") or not baseline.get("time_ms"):
        return dict.fromkeys(schema.COMPARISON_NAMES)
    own_bytes, baseline_bytes = moved_bytes(row), moved_bytes(baseline)
    return {
        "speedup_vs_fp32": _ratio(baseline["time_ms"], row["time_ms"]),
        "bandwidth_vs_fp32": _ratio(row.get("bandwidth_gb_s"), baseline.get("bandwidth_gb_s")),
        "byte_ratio_vs_fp32": baseline_bytes / own_bytes if own_bytes and baseline_bytes else None,
    }


def _ratio(one: float | None, other: float | None) -> float | None:
    """Return None for missing numbers, and those that no measurement gives."""
    number, divisor = measured_or_none(one), measured_or_none(other)
    return number / divisor if number and divisor else None


def moved_bytes(row: RowDict) -> int | None:
    """Return the compulsory bytes of a row; if only one kind is known, bandwidth x time."""
    read, written = row.get("bytes_read"), row.get("bytes_written")
    if read is not None and written is not None:
        return int(read) + int(written)
    rate, time = measured_or_none(row.get("bandwidth_gb_s")), measured_or_none(row.get("time_ms"))
    return round(rate * time * 1e6) if rate and time and read != written else None


DEFAULT_GATE = 0.03
DISTURBED = frozenset({"noisy", "throttled"})


def is_comparable(row: RowDict) -> bool:
    """Return whether a row has a time that is not flagged as disturbed."""
    return row["status"] == "ok" and not find_disturbances(row)


def find_disturbances(row: RowDict) -> list[str]:
    """Return the flags that say the time was disturbed."""
    return [word for word in split_flags(row) if word in DISTURBED]


def find_doubts(row: RowDict) -> list[str]:
    """Return the flags that say the result or the bytes may be wrong: unverified, above_attainable."""
    flags, verified = split_flags(row), row.get("verified")
    wrong = not is_missing(verified) and not verified
    unchecked = ["unverified"] if "unverified" in flags or wrong else []
    return unchecked + [word for word in flags if word == "above_attainable"]


def split_flags(row: RowDict) -> list[str]:
    """Return a row's flags as a list."""
    flags = row.get("flags")
    return [] if is_missing(flags) else str(flags).split(";")


def times_differ(one: RowDict, other: RowDict, *, gate: float = DEFAULT_GATE) -> bool:
    """Return whether two rows have different times.

    Their 95 % confidence intervals do not overlap, and their medians differ by more than `gate` of the smaller one. The
    interval covers the variation within a measurement; the gate covers variation between measurements (addresses,
    clock, process), and its default comes from A/A comparisons (``python -m bwprof.selftest repeat``). A row without a
    time differs from every row. If an interval is missing, the gate decides; an infinite one overlaps with all.
    """
    times: list[Any] = [one.get("time_ms"), other.get("time_ms")]
    if any(is_missing(time) or not math.isfinite(time) for time in times):
        return True
    first, second = sorted((one, other), key=lambda row: float(row["time_ms"]))
    high: Any = first.get("time_ms_hi")
    low: Any = second.get("time_ms_lo")
    apart = is_missing(high) or is_missing(low) or float(high) < float(low)
    return bool(apart and second["time_ms"] - first["time_ms"] > gate * first["time_ms"])
