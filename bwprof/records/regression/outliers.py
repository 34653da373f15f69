"""Outliers: which of several devices is slow, by how much, in which operation.

A device's effect on an operation is the median over its cases. It is compared with the effects of the other devices by
Student's t, so that the fleet's own spread is the threshold (B. Rosner, Percentage points for a generalized ESD
many-outlier procedure, Technometrics 25, 1983). Single slow cases are searched in the residuals of the effects, with a
variance that is moderated by that of all cases.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev, variance
from typing import TYPE_CHECKING, Any

from bwprof.records.regression.statistics import (
    Spread,
    chance_per_case,
    fit_prior,
    moderate_spread,
    standard_error,
    student_quantile,
)
from bwprof.results import pairs
from bwprof.results.pairs import times_differ
from bwprof.results.schema import RowDict
from bwprof.text.formatting import plural, to_pandas
from bwprof.text.parsing import finite_or_none, list_items, repr_short

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_GATE = 0.01
FEWEST = 3  # devices: of two that differ either may be wrong
COLUMNS = (
    *("hostname", "device_uuid", "device", "operation", "devices", "cases", "slower", "faster", "failed"),
    *("slow_pct", "worst_pct", "worst_case", "smallest_pct", "throttle", "verdict", "reason"),
)
_FEW = 5  # of fewer devices the spread is uncertain: one that is not clearly slow is not clearly the same either
_CHANCE, _CHANCE_OF_CASES = 0.03, 0.01  # of any false alarm among devices of one name: by operation, by single case
_LEAST_SPREAD = 1e-4  # medians that agree to the last digit are no certainty
_DEVICE = COLUMNS[:3]
_NUMBERS = ("slow_pct", "worst_pct", "smallest_pct")
_COUNTS = ("devices", "cases", "slower", "faster", "failed")
_Device = tuple[str | None, ...]


def outliers(data: pd.DataFrame | Iterable[pd.DataFrame], *, gate: float = DEFAULT_GATE) -> pd.DataFrame:
    """Find the devices that are slower than the others of their kind, by how much, in which operation.

    A case's time on a device is divided by the median over all devices of that name; the device's effect on an
    operation is the median of these ratios over its cases. The device is slow (fast) where its effect, or a single
    case, is further from the other devices' mean than their own spread explains, and by more than `gate`. In a fleet
    without a slow device the chance that any is called slow, or fast, is 5 %. Rows with the flag `noisy` are left out;
    rows with a throttled clock stay: that is what makes a device slow.

    Parameters
    ----------
    data : pandas.DataFrame or iterable of them
        One run over several devices, or several runs. `hostname` and `device_uuid` identify devices.
    gate : float
        The smallest difference that matters, as a fraction; the fleet's spread may need a larger one.

    Returns
    -------
    pandas.DataFrame
        A row per device and operation, the slowest first: hostname, device_uuid, device, operation, devices (their
        number), cases (their number), of which slower and faster (by more than `gate`, with intervals apart); failed
        (rows that failed here and not on most of the others); slow_pct (median over the cases of the time above the
        median device's, in %), worst_pct and worst_case; smallest_pct (the smallest slow_pct that is called slow);
        throttle (the reasons, and in how many cases); verdict ("slow", "fast", "same", "failed", or "undecided") and
        reason. Two devices of a kind, or three to four that differ a little, are undecided.

    Raises
    ------
    TypeError, ValueError
        For anything but frames of results, and a gate that is no fraction.

    Examples
    --------
    >>> import bwprof
    >>> run = bwprof.load_example("h200")
    >>> slow = run.assign(hostname="c", **{name: run[name] * 1.2 for name in ("time_ms", "time_ms_lo", "time_ms_hi")})
    >>> table = bwprof.outliers([slow, *(run.assign(hostname=name) for name in "abde")])
    >>> table[["hostname", "verdict"]].drop_duplicates().values.tolist()
    [['c', 'slow'], ['a', 'same'], ['b', 'same'], ['d', 'same'], ['e', 'same']]
    """
    import pandas as pd

    from bwprof.results import frame

    least = finite_or_none(gate)
    if least is None or not 0 < least < 1:
        raise ValueError(f"gate is {repr_short(gate)}: allowed is a fraction between 0 and 1, such as {DEFAULT_GATE:g}")
    data = to_pandas(data)
    frames = [data] if isinstance(data, pd.DataFrame) else list_items(data, "data", "a frame, or several, is needed")
    kinds: dict[str | None, list[RowDict]] = {}
    for row in (row for part in frames for row in frame.to_rows(part)):
        kinds.setdefault(row["device"], []).append(row)
    lines = [line for kind in kinds.values() for line in _judge_kind(kind, least)]
    order = ("slow", "failed", "undecided", "fast", "same")
    lines.sort(key=lambda line: (order.index(line["verdict"]), -(line["slow_pct"] or 0.0)))
    types = {name: "float64" if name in _NUMBERS else "Int64" if name in _COUNTS else "string" for name in COLUMNS}
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype(types)


@dataclass(slots=True)
class _Tally:
    """One device's results in one operation."""

    ratios: dict[str, float] = field(default_factory=dict)  # by case: logarithm of time over the median device's
    offsets: dict[str, float] = field(default_factory=dict)  # over the devices' mean, which has no steps: for the tests
    errors: list[float] = field(default_factory=list)  # of the offsets, by the intervals
    apart: set[str] = field(default_factory=set)  # cases that differ by more than the gate, with intervals apart
    clear: list[str] = field(default_factory=list)  # of these, by more than the fleet's spread beside the effect
    failed: int = 0
    throttled: Counter[str] = field(default_factory=Counter)
    bound: float = math.inf  # what an effect must exceed
    is_apart: bool = False
    is_settled: bool = True  # an effect within its bound is none

    def add(self, row: RowDict, middle: RowDict, mean: float, gate: float) -> None:
        """Add a case that several devices measured; `mean`: of the logarithms of all devices' times."""
        name = f"{row['case']} {row['precision']}"
        if name in self.offsets:  # of another variant, or hot
            name = " ".join([name, *(str(row[more]) for more in ("variant", "cache") if row[more])])
        self.offsets[name] = math.log(row["time_ms"]) - mean
        self.ratios[name] = math.log(row["time_ms"] / middle["time_ms"])
        if None not in (row["time_ms_lo"], row["time_ms_hi"]):
            self.errors.append(standard_error(row["time_ms_lo"], row["time_ms_hi"]))
        if times_differ(row, middle, gate=gate):
            self.apart.add(name)
        self.throttled.update(word for word in (row["throttle"] or "").split(";") if word not in ("", "none"))

    @property
    def effect(self) -> float:
        """The logarithm of the device's effect on the operation's time."""
        return median(self.offsets.values())

    @property
    def error(self) -> float:
        """The effect's standard error within its measurements."""
        return median(self.errors) / math.sqrt(len(self.ratios)) if self.errors else 0.0


def _judge_kind(rows: Sequence[RowDict], gate: float) -> list[dict[str, Any]]:
    cases: dict[tuple[object, ...], dict[_Device, list[RowDict]]] = {}
    operations: dict[str, dict[_Device, _Tally]] = {}
    for row in rows:
        device = tuple(row[name] for name in _DEVICE)
        # The key has the variant: another kernel's time shows nothing of the device.
        key = (*pairs.configuration_key(row, without=(*_DEVICE, "run_id")), row["precision"], row["variant"])
        cases.setdefault(key, {}).setdefault(device, []).append(row)
        operations.setdefault(row["operation"], {}).setdefault(device, _Tally())
    devices = len({device for tallies in operations.values() for device in tallies})
    for by_device in cases.values():
        operation = next(iter(by_device.values()))[0]["operation"]
        _compare_case(by_device, operations[operation], gate, least=min(FEWEST, max(2, devices)))
    chance = chance_per_case(len(operations), _CHANCE)
    for tallies in operations.values():
        _find_apart({device: tally for device, tally in tallies.items() if tally.ratios}, chance)
    _find_cases(operations.values())
    return [
        _make_line(device, operation, tally, devices, gate)
        for operation, tallies in operations.items()
        for device, tally in tallies.items()
    ]


def _find_apart(tallies: Mapping[_Device, _Tally], chance: float) -> None:
    """Mark the devices whose effects are further from the others' than those from each other, the furthest first.

    Each device found leaves the comparison: several slow ones hide each other only where they are a third of all.
    """
    rest = dict(tallies)
    steps = len(rest) // FEWEST
    furthest_first: list[_Tally] = []
    for _ in range(steps):
        bounds = {device: _find_bound(rest, device, chance / steps / len(rest)) for device in rest}
        for device, (_, bound, settled) in bounds.items():
            rest[device].bound, rest[device].is_settled = bound, settled
        furthest = max(bounds, key=lambda device: bounds[device][0] / bounds[device][1])
        distance, bound, _ = bounds[furthest]
        furthest_first.append(rest.pop(furthest))
        if distance > bound:
            for tally in furthest_first:
                tally.is_apart = True


def _find_bound(tallies: Mapping[_Device, _Tally], device: _Device, chance: float) -> tuple[float, float, bool]:
    """Return an effect's distance from the others' mean, its bound by chance, and whether their spread decides."""
    others = [tally.effect for other, tally in tallies.items() if other != device]
    spread, error = stdev(others), tallies[device].error
    reach = student_quantile(len(others) - 1, 1 - chance / 2) * math.sqrt(1 + 1 / len(others))
    bound = reach * max(spread, error, _LEAST_SPREAD)
    return abs(tallies[device].effect - fmean(others)), bound, len(others) + 1 >= _FEW and error <= spread


def _find_cases(operations: Iterable[Mapping[_Device, _Tally]]) -> None:
    """Mark the cases that are slow, or fast, on a device by more than its effect on the operation's other cases."""
    rests: dict[tuple[int, str], list[tuple[float, _Tally]]] = {}
    for number, tallies in enumerate(operations):
        for tally in tallies.values():
            ordered = sorted(tally.offsets.values())
            for name, offset in tally.offsets.items():
                place = bisect_left(ordered, offset)
                others = ordered[:place] + ordered[place + 1 :]
                if others:
                    rests.setdefault((number, name), []).append((offset - median(others), tally))
    wide = {case: rest for case, rest in rests.items() if len(rest) > FEWEST}
    prior = fit_prior([_spread([off for off, _ in rest]) for rest in wide.values()])
    chance = chance_per_case(sum(map(len, wide.values())), _CHANCE_OF_CASES)
    for (_, name), rest in wide.items():
        for off, tally in rest:
            others = [other for other, owner in rest if owner is not tally]
            spread = moderate_spread(_spread(others), prior)
            reach = student_quantile(spread.freedom, 1 - chance / 2) * math.sqrt(
                spread.variance * (1 + 1 / len(others))
            )
            if name in tally.apart and abs(off - fmean(others)) > reach:
                tally.clear.append(name)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(max(variance(values), _LEAST_SPREAD**2), len(values) - 1.0)


def _compare_case(
    by_device: dict[_Device, list[RowDict]], tallies: dict[_Device, _Tally], gate: float, *, least: int
) -> None:
    """Add a case, one row a device, to the tallies, if at least so many devices measured it."""
    measured = {device: row for device, rows in by_device.items() if (row := _middle_row(rows)) is not None}
    broken = [device for device, rows in by_device.items() if all(row["status"] == "failed" for row in rows)]
    if len(broken) * 2 < len(by_device):
        for device in broken:
            tallies[device].failed += 1
    if len(measured) < least:
        return
    middle = {name: _median(row[name] for row in measured.values()) for name in ("time_ms", "time_ms_lo", "time_ms_hi")}
    mean = fmean(math.log(row["time_ms"]) for row in measured.values())
    for device, row in measured.items():
        tallies[device].add(row, middle, mean, gate)


def _middle_row(rows: Sequence[RowDict]) -> RowDict | None:
    usable = [row for row in rows if row["status"] == "ok" and "noisy" not in (row["flags"] or "").split(";")]
    usable = [row for row in usable if 0 < (row["time_ms"] or 0) < math.inf]
    return sorted(usable, key=lambda row: float(row["time_ms"]))[(len(usable) - 1) // 2] if usable else None


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median; None where a value is missing: then the gate alone decides."""
    listed = list(values)
    return median(value for value in listed if value is not None) if None not in listed else None


def _make_line(device: _Device, operation: str, tally: _Tally, devices: int, gate: float) -> dict[str, Any]:
    ratios = tally.ratios
    worst = max(ratios, key=lambda name: ratios[name], default=None)
    line: dict[str, Any] = dict(zip(_DEVICE, device, strict=True)) | {
        "operation": operation,
        "devices": devices,
        "cases": len(ratios),
        "slower": sum(ratios[name] > 0 for name in tally.apart),
        "faster": sum(ratios[name] < 0 for name in tally.apart),
        "failed": tally.failed,
        "slow_pct": median(map(_percent, ratios.values())) if ratios else None,
        "worst_pct": _percent(ratios[worst]) if worst is not None else None,
        "worst_case": worst,
        "smallest_pct": max(100 * gate, _percent(tally.bound)) if math.isfinite(tally.bound) else None,
        "throttle": ";".join(f"{word}={count}" for word, count in tally.throttled.items()) or None,
    }
    verdict, reason = _judge_device(tally, line, gate)
    return line | {"verdict": verdict, "reason": reason}


def _percent(logarithm: float) -> float:
    return 100 * math.expm1(min(logarithm, 100.0))


def _judge_device(tally: _Tally, line: RowDict, gate: float) -> tuple[str, str | None]:
    devices, count, slow_pct = line["devices"], line["cases"], line["slow_pct"] or 0.0
    if devices < FEWEST:
        return "undecided", f"{plural(devices, 'device')} of this name: {FEWEST} are needed to tell which is slow"
    slow = sorted((name for name in tally.clear if tally.ratios[name] > 0), key=lambda name: -tally.ratios[name])
    large, others = abs(slow_pct) > 100 * gate, f"than the other {devices - 1} devices"
    far = large and tally.is_apart
    if far and slow_pct > 0:
        return "slow", f"slower {others} by more than their spread ({count} cases)"
    if slow:
        return "slow", f"slower {others} in {len(slow)} of {count} cases: {', '.join(slow[:3])}"
    if tally.failed:
        return "failed", f"{tally.failed} failed here and not on most other devices"
    if not count:
        return "undecided", "no case that was measured here undisturbed, and on another device"
    if far or tally.clear:
        return "fast", f"faster {others} by more than their spread ({count} cases)"
    if large and not tally.is_settled:
        reach = min(_percent(tally.bound), 999)
        return (
            "undecided",
            f"{slow_pct:+.2g} %, where chance reaches {reach:.3g} %: measure more devices, or for longer",
        )
    return "same", None
