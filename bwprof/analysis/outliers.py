"""Outliers: which of several devices is slow, by how much, in which operation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from bwprof.results import compare
from bwprof.results.difference import DEFAULT_GATE, differ
from bwprof.results.schema import Row
from bwprof.text import as_pandas, finite_number, listed, shown

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 3  # devices: of two that differ nobody knows which one is wrong
_DEVICE = ("hostname", "device_uuid", "device")
COLUMNS = (
    *_DEVICE,
    "operation",
    "devices",
    "cases",
    "slower",
    "faster",
    "failed",
    "slow_pct",
    "worst_pct",
    "worst_case",
    "throttle",
    "verdict",
    "reason",
)
_NUMBERS = ("slow_pct", "worst_pct")
_COUNTS = ("devices", "cases", "slower", "faster", "failed")

_Device = tuple[str | None, ...]


def outliers(data: pd.DataFrame | Iterable[pd.DataFrame], *, gate: float = DEFAULT_GATE) -> pd.DataFrame:
    """Which devices are slower than the others of their kind, by how much, in which operation.

    A case's time on a device is held against the median over all devices of that name that ran it. The two differ by
    the rule of `bwprof.results.difference`: their 95 % intervals do not overlap, and they are more than `gate` apart;
    the median has the median of the intervals' ends. A device is slow in an operation where more than half of its cases
    are slower by that rule. Rows that other work disturbed (flag `noisy`) are left out; those of a device whose clock
    was held down stay: that is what makes a device slow.

    Parameters
    ----------
    data : pandas.DataFrame or iterable of them
        Of one run over several devices, or of several runs. Devices are told apart by `hostname` and `device_uuid`.
    gate : float
        The smallest difference worth a word, as a fraction.

    Returns
    -------
    pandas.DataFrame
        A row per device and operation, the slowest first: hostname, device_uuid, device, operation, devices (how many
        are compared), cases (how many), of which slower and faster; failed (rows that failed here and not on most of
        the others); slow_pct (median over the cases of the time above the median device's, in %), worst_pct and
        worst_case; throttle (why the clock was held down, and in how many cases); verdict ("slow", "fast", "same",
        "failed", or "undecided") and reason. With fewer than three devices of a kind nothing can be decided.

    Raises
    ------
    TypeError, ValueError
        For what is no frame of results, and a gate that is no fraction.

    Examples
    --------
    >>> import bwprof
    >>> one = bwprof.load_example("h200")
    >>> slow = one.assign(hostname="c", **{name: one[name] * 1.2 for name in ("time_ms", "time_ms_lo", "time_ms_hi")})
    >>> found = bwprof.outliers([one.assign(hostname="a"), one.assign(hostname="b"), slow])
    >>> found[["hostname", "verdict"]].drop_duplicates().values.tolist()
    [['c', 'slow'], ['a', 'same'], ['b', 'same']]
    """
    import pandas as pd

    from bwprof.results import frame

    least = finite_number(gate)
    if least is None or not 0 < least < 1:
        raise ValueError(f"gate is {shown(gate)}: allowed is a fraction between 0 and 1, such as {DEFAULT_GATE:g}")
    data = as_pandas(data)
    frames = [data] if isinstance(data, pd.DataFrame) else listed(data, "data", "a frame, or several, is needed")
    rows = [row for one in frames for row in frame.to_rows(one)]
    kinds: dict[str | None, list[Row]] = {}
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

    ratios: dict[str, float] = field(default_factory=dict)  # by case: time over the median device's, less one
    slower: int = 0
    faster: int = 0
    failed: int = 0
    throttled: dict[str, int] = field(default_factory=dict)

    def add(self, row: Row, middle: Row, gate: float) -> None:
        """A case that was measured here and elsewhere."""
        name = f"{row['case']} {row['precision']}"
        if name in self.ratios:  # of another variant, or hot
            name = " ".join([name, *(str(row[more]) for more in ("variant", "cache") if row[more])])
        self.ratios[name] = row["time_ms"] / middle["time_ms"] - 1
        if differ(row, middle, gate=gate):
            self.slower += row["time_ms"] > middle["time_ms"]
            self.faster += row["time_ms"] < middle["time_ms"]
        for word in (row["throttle"] or "").split(";"):
            if word not in ("", "none"):
                self.throttled[word] = self.throttled.get(word, 0) + 1


def _judged(rows: Sequence[Row], gate: float) -> list[dict[str, Any]]:
    """A line per device and operation, of the devices of one kind."""
    devices = list(dict.fromkeys(map(_device_of, rows)))
    cases: dict[tuple[object, ...], dict[_Device, list[Row]]] = {}
    for row in rows:
        cases.setdefault(_case_of(row), {}).setdefault(_device_of(row), []).append(row)
    tallies: dict[tuple[_Device, str], _Tally] = {}
    for row in rows:
        tallies.setdefault((_device_of(row), row["operation"]), _Tally())
    for held in cases.values():
        _compare_case(held, tallies, gate, least=min(FEWEST, max(2, len(devices))))
    return [_line(device, operation, tally, len(devices)) for (device, operation), tally in tallies.items()]


def _compare_case(
    held: dict[_Device, list[Row]], tallies: dict[tuple[_Device, str], _Tally], gate: float, *, least: int
) -> None:
    """One case on all devices, at `least` so many, into their tallies; each has one say, however often it ran it."""
    operation = next(iter(held.values()))[0]["operation"]
    measured = {device: one for device, rows in held.items() if (one := _typical(rows)) is not None}
    broken = [device for device, rows in held.items() if all(row["status"] == "failed" for row in rows)]
    if len(broken) * 2 < len(held):
        for device in broken:
            tallies[device, operation].failed += 1
    if len(measured) < least:
        return
    middle = {name: _median(row[name] for row in measured.values()) for name in ("time_ms", "time_ms_lo", "time_ms_hi")}
    for device, row in measured.items():
        tallies[device, operation].add(row, middle, gate)


def _typical(rows: Sequence[Row]) -> Row | None:
    """Of a device's rows of one case the one with the median time; None where none was measured undisturbed."""
    usable = [row for row in rows if row["status"] == "ok" and row["time_ms"] and "noisy" not in _flags(row)]
    return sorted(usable, key=lambda row: float(row["time_ms"]))[(len(usable) - 1) // 2] if usable else None


def _median(values: Iterable[float | None]) -> float | None:
    """None where one is missing: then the gate alone decides."""
    listed = list(values)
    return median(value for value in listed if value is not None) if None not in listed else None


def _flags(row: Row) -> list[str]:
    return (row["flags"] or "").split(";")


def _device_of(row: Row) -> _Device:
    return tuple(row[name] for name in _DEVICE)


def _case_of(row: Row) -> tuple[object, ...]:
    """What is the same on every device. The variant is: another kernel's time says nothing of the device."""
    return (*compare.configuration(row, without=(*_DEVICE, "run_id")), row["precision"], row["variant"])


def _line(device: _Device, operation: str, tally: _Tally, devices: int) -> dict[str, Any]:
    ratios = tally.ratios
    worst = max(ratios, key=lambda name: ratios[name], default=None)
    line: dict[str, Any] = dict(zip(_DEVICE, device, strict=True))
    line |= {
        "operation": operation,
        "devices": devices,
        "cases": len(ratios),
        "slower": tally.slower,
        "faster": tally.faster,
        "failed": tally.failed,
        "slow_pct": 100 * median(ratios.values()) if ratios else None,
        "worst_pct": 100 * ratios[worst] if worst is not None else None,
        "worst_case": worst,
        "throttle": ";".join(f"{word}={count}" for word, count in tally.throttled.items()) or None,
    }
    verdict, reason = _verdict(tally, devices)
    return line | {"verdict": verdict, "reason": reason}


def _verdict(tally: _Tally, devices: int) -> tuple[str, str | None]:
    """One word for a device in an operation, and why."""
    count = len(tally.ratios)
    if devices < FEWEST:
        said = f"{devices} device{'s' if devices > 1 else ''} of this name: {FEWEST} are needed to tell which is slow"
        return "undecided", said
    if tally.slower * 2 > count:
        return "slow", f"slower than the median of {devices} devices in {tally.slower} of {count} cases"
    if tally.failed:
        return "failed", f"{tally.failed} failed here and not on most other devices"
    if not count:
        return "undecided", "no case that was measured here undisturbed, and on another device"
    if tally.faster * 2 > count:
        return "fast", f"faster than the median of {devices} devices in {tally.faster} of {count} cases"
    return "same", None
