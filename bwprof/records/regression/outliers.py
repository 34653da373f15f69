"""Outliers: which of several devices is slow, by how much, in which operation.

What a device does to times is common to many cases: its effect on an operation is the median of its cases, and an
effect is held against those of the other devices by Student's t, so that the fleet's own spread is the threshold
(B. Rosner, Percentage points for a generalized ESD many-outlier procedure, Technometrics 25, 1983). A case that is slow
by itself is looked for in what the effects leave over, with the variance of all cases to support its own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
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
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import finite_or_none, list_items, repr_short

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_GATE = 0.01

FEWEST = 3  # devices: of two that differ nobody knows which one is wrong

_FEW = 5  # of fewer devices the spread is hardly known: what is not clearly slow is not clearly the same

# Of any false alarm among the devices of one name: by operations, and by single cases.
_CHANCE, _CHANCE_OF_CASES = 0.03, 0.01

_LEAST_SPREAD = 1e-4  # medians that agree to the last digit are no certainty

_DEVICE = ("hostname", "device_uuid", "device")

COLUMNS = (
    *_DEVICE,
    *("operation", "devices", "cases", "slower", "faster", "failed"),
    *("slow_pct", "worst_pct", "worst_case", "smallest_pct", "throttle", "verdict", "reason"),
)

_NUMBERS = ("slow_pct", "worst_pct", "smallest_pct")

_COUNTS = ("devices", "cases", "slower", "faster", "failed")

_Device = tuple[str | None, ...]


def outliers(data: pd.DataFrame | Iterable[pd.DataFrame], *, gate: float = DEFAULT_GATE) -> pd.DataFrame:
    """Which devices are slower than the others of their kind, by how much, in which operation.

    A case's time on a device is divided by the median over all devices of that name that ran it; the device's effect on
    an operation is the median of these ratios over its cases. It is slow (fast) where its effect is further from the
    other devices' mean than their own spread explains, or that of one case is, and by more than `gate`. In a fleet
    without a slow device the chance that any is called slow, or fast, is 5 %. Rows that other work disturbed (flag
    `noisy`) are left out; those of a device whose clock was held down stay: that is what makes a device slow.

    Parameters
    ----------
    data : pandas.DataFrame or iterable of them
        Of one run over several devices, or of several runs. Devices are told apart by `hostname` and `device_uuid`.
    gate : float
        The smallest difference worth naming, as a fraction; the fleet's spread may ask for a larger one.

    Returns
    -------
    pandas.DataFrame
        A row per device and operation, the slowest first: hostname, device_uuid, device, operation, devices (how many
        are compared), cases (how many), of which slower and faster (by more than `gate`, with intervals apart); failed
        (rows that failed here and not on most of the others); slow_pct (median over the cases of the time above the
        median device's, in %), worst_pct and worst_case; smallest_pct (the smallest slow_pct that is called slow);
        throttle (why the clock was held down, and in how many cases); verdict ("slow", "fast", "same", "failed",
        or "undecided") and reason. Two devices of a kind, or three to four that differ a little, are undecided.

    Raises
    ------
    TypeError, ValueError
        For what is no frame of results, and a gate that is no fraction.

    Examples
    --------
    >>> import bwprof
    >>> one = bwprof.load_example("h200")
    >>> slow = one.assign(hostname="c", **{name: one[name] * 1.2 for name in ("time_ms", "time_ms_lo", "time_ms_hi")})
    >>> found = bwprof.outliers([slow, *(one.assign(hostname=name) for name in "abde")])
    >>> found[["hostname", "verdict"]].drop_duplicates().values.tolist()
    [['c', 'slow'], ['a', 'same'], ['b', 'same'], ['d', 'same'], ['e', 'same']]
    """
    import pandas as pd

    from bwprof.results import frame

    least = finite_or_none(gate)
    if least is None or not 0 < least < 1:
        raise ValueError(f"gate is {repr_short(gate)}: allowed is a fraction between 0 and 1, such as {DEFAULT_GATE:g}")
    data = to_pandas(data)
    frames = [data] if isinstance(data, pd.DataFrame) else list_items(data, "data", "a frame, or several, is needed")
    rows = [row for one in frames for row in frame.to_rows(one)]
    kinds: dict[str | None, list[RowDict]] = {}
    for row in rows:
        kinds.setdefault(row["device"], []).append(row)
    found = [line for kind in kinds.values() for line in _judged(kind, least)]
    order = {"slow": 0, "failed": 1, "undecided": 2, "fast": 3, "same": 4}
    found.sort(key=lambda line: (order[line["verdict"]], -(line["slow_pct"] or 0.0)))
    result = pd.DataFrame(found, columns=list(COLUMNS))
    types = {name: "float64" if name in _NUMBERS else "Int64" if name in _COUNTS else "string" for name in COLUMNS}
    return result.astype(types)


@dataclass(slots=True)
class _Tally:
    """What one device did in one operation."""

    ratios: dict[str, float] = field(default_factory=dict)  # by case: logarithm of time over the median device's
    offsets: dict[str, float] = field(default_factory=dict)  # over the devices' mean, which has no steps: for the tests
    errors: list[float] = field(default_factory=list)  # of these, by the intervals
    apart: set[str] = field(default_factory=set)  # cases that differ by more than the gate, with intervals apart
    clear: list[str] = field(default_factory=list)  # of these, by more than the fleet's spread beside the effect
    failed: int = 0
    throttled: dict[str, int] = field(default_factory=dict)
    bound: float = math.inf  # what an effect must exceed
    is_apart: bool = False
    is_settled: bool = True  # an effect within its bound is none

    def add(self, row: RowDict, middle: RowDict, mean: float, gate: float) -> None:
        """A case that was measured here and elsewhere; `mean`: of the logarithms of all devices' times."""
        name = f"{row['case']} {row['precision']}"
        if name in self.offsets:  # of another variant, or hot
            name = " ".join([name, *(str(row[more]) for more in ("variant", "cache") if row[more])])
        self.offsets[name] = math.log(row["time_ms"]) - mean
        self.ratios[name] = math.log(row["time_ms"] / middle["time_ms"])
        if None not in (row["time_ms_lo"], row["time_ms_hi"]):
            self.errors.append(standard_error(row["time_ms_lo"], row["time_ms_hi"]))
        if times_differ(row, middle, gate=gate):
            self.apart.add(name)
        for word in (row["throttle"] or "").split(";"):
            if word not in ("", "none"):
                self.throttled[word] = self.throttled.get(word, 0) + 1

    @property
    def effect(self) -> float:
        """The logarithm of what the device makes of the operation's time."""
        return median(self.offsets.values())

    @property
    def error(self) -> float:
        """The effect's standard error within its measurements."""
        return median(self.errors) / math.sqrt(len(self.ratios)) if self.errors else 0.0


def _judged(rows: Sequence[RowDict], gate: float) -> list[dict[str, Any]]:
    """A line per device and operation, of the devices of one kind."""
    devices = list(dict.fromkeys(map(_device_of, rows)))
    cases: dict[tuple[object, ...], dict[_Device, list[RowDict]]] = {}
    for row in rows:
        cases.setdefault(_case_of(row), {}).setdefault(_device_of(row), []).append(row)
    operations: dict[str, dict[_Device, _Tally]] = {}
    for row in rows:
        operations.setdefault(row["operation"], {}).setdefault(_device_of(row), _Tally())
    for held in cases.values():
        _compare_case(held, operations, gate, least=min(FEWEST, max(2, len(devices))))
    for tallies in operations.values():
        _find_apart(
            {device: one for device, one in tallies.items() if one.ratios}, chance_per_case(len(operations), _CHANCE)
        )
    _find_cases(operations.values())
    return [
        _line(device, operation, tally, len(devices), gate)
        for operation, tallies in operations.items()
        for device, tally in tallies.items()
    ]


def _find_apart(tallies: Mapping[_Device, _Tally], chance: float) -> None:
    """Mark the devices whose effects lie further from the others' than those from each other, the furthest first.

    A device is looked at among those that are left: several slow ones hide each other only where they are a third.
    """
    left = dict(tallies)
    steps = len(left) // FEWEST
    passed: list[_Tally] = []
    for _ in range(steps):
        bounds = {device: _bound(left, device, chance / steps / len(left)) for device in left}
        for device, (_, bound, settled) in bounds.items():
            left[device].bound, left[device].is_settled = bound, settled
        furthest = max(bounds, key=lambda device: bounds[device][0] / bounds[device][1])
        off, bound, _ = bounds[furthest]
        passed.append(left.pop(furthest))
        if off > bound:
            for one in passed:
                one.is_apart = True


def _bound(tallies: Mapping[_Device, _Tally], device: _Device, chance: float) -> tuple[float, float, bool]:
    """How far an effect is from the others' mean, how far chance takes it, and whether their spread alone says so."""
    others = [one.effect for other, one in tallies.items() if other != device]
    spread, error = stdev(others), tallies[device].error
    reach = student_quantile(len(others) - 1, 1 - chance / 2) * math.sqrt(1 + 1 / len(others))
    bound = reach * max(spread, error, _LEAST_SPREAD)
    return abs(tallies[device].effect - fmean(others)), bound, len(others) + 1 >= _FEW and error <= spread


def _find_cases(operations: Iterable[Mapping[_Device, _Tally]]) -> None:
    """Mark cases that are slow, or fast, on a device by more than its effect on the operation's other cases."""
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
    of_all = fit_prior([_spread([off for off, _ in rest]) for rest in wide.values()])
    chance = chance_per_case(sum(map(len, wide.values())), _CHANCE_OF_CASES)
    for (_, name), rest in wide.items():
        for off, tally in rest:
            rest_of = [other for other, of in rest if of is not tally]
            spread = moderate_spread(_spread(rest_of), of_all)
            noise = math.sqrt(spread.variance * (1 + 1 / len(rest_of)))
            if (
                name in tally.apart
                and abs(off - fmean(rest_of)) > student_quantile(spread.freedom, 1 - chance / 2) * noise
            ):
                tally.clear.append(name)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(max(variance(values), _LEAST_SPREAD**2), len(values) - 1.0)


def _compare_case(
    held: dict[_Device, list[RowDict]], operations: dict[str, dict[_Device, _Tally]], gate: float, *, least: int
) -> None:
    """One case on all devices, at `least` so many, into their tallies; each has one say, however often it ran it."""
    tallies = operations[next(iter(held.values()))[0]["operation"]]
    measured = {device: one for device, rows in held.items() if (one := _typical(rows)) is not None}
    broken = [device for device, rows in held.items() if all(row["status"] == "failed" for row in rows)]
    if len(broken) * 2 < len(held):
        for device in broken:
            tallies[device].failed += 1
    if len(measured) < least:
        return
    middle = {name: _median(row[name] for row in measured.values()) for name in ("time_ms", "time_ms_lo", "time_ms_hi")}
    mean = fmean(math.log(row["time_ms"]) for row in measured.values())
    for device, row in measured.items():
        tallies[device].add(row, middle, mean, gate)


def _typical(rows: Sequence[RowDict]) -> RowDict | None:
    """Of a device's rows of one case the one with the median time; None where none was measured undisturbed."""
    usable = [row for row in rows if row["status"] == "ok" and "noisy" not in (row["flags"] or "").split(";")]
    usable = [row for row in usable if 0 < (row["time_ms"] or 0) < math.inf]
    return sorted(usable, key=lambda row: float(row["time_ms"]))[(len(usable) - 1) // 2] if usable else None


def _median(values: Iterable[float | None]) -> float | None:
    """None where one is missing: then the gate alone decides."""
    listed = list(values)
    return median(value for value in listed if value is not None) if None not in listed else None


def _device_of(row: RowDict) -> _Device:
    return tuple(row[name] for name in _DEVICE)


def _case_of(row: RowDict) -> tuple[object, ...]:
    """What is the same on every device. The variant is: another kernel's time says nothing of the device."""
    return (*pairs.configuration_key(row, without=(*_DEVICE, "run_id")), row["precision"], row["variant"])


def _line(device: _Device, operation: str, tally: _Tally, devices: int, gate: float) -> dict[str, Any]:
    ratios = tally.ratios
    worst = max(ratios, key=lambda name: ratios[name], default=None)
    line: dict[str, Any] = dict(zip(_DEVICE, device, strict=True))
    line |= {
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
    verdict, reason = _verdict(tally, line, gate)
    return line | {"verdict": verdict, "reason": reason}


def _percent(logarithm: float) -> float:
    return 100 * math.expm1(min(logarithm, 100.0))


def _verdict(tally: _Tally, line: RowDict, gate: float) -> tuple[str, str | None]:
    """One word for a device in an operation, and why."""
    devices, count = line["devices"], line["cases"]
    if devices < FEWEST:
        said = f"{devices} device{'s' if devices > 1 else ''} of this name: {FEWEST} are needed to tell which is slow"
        return "undecided", said
    slow = sorted((name for name in tally.clear if tally.ratios[name] > 0), key=lambda name: -tally.ratios[name])
    slow_pct, others = line["slow_pct"] or 0.0, f"than the other {devices - 1} devices"
    named = abs(slow_pct) > 100 * gate
    if named and tally.is_apart and slow_pct > 0:
        return "slow", f"slower {others} by more than their spread ({count} cases)"
    if slow:
        return "slow", f"slower {others} in {len(slow)} of {count} cases: {', '.join(slow[:3])}"
    if tally.failed:
        return "failed", f"{tally.failed} failed here and not on most other devices"
    if not count:
        return "undecided", "no case that was measured here undisturbed, and on another device"
    if (named and tally.is_apart) or tally.clear:
        return "fast", f"faster {others} by more than their spread ({count} cases)"
    if named and not tally.is_settled:
        reach = _percent(tally.bound)
        said = f"{slow_pct:+.2g} %, where chance reaches {'more than 100' if reach > 100 else f'{reach:.2g}'} %"
        return "undecided", f"{said}: measure more devices, or for longer"
    return "same", None
