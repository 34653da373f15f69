"""Outliers: which of several devices is slow, by how much, in which operation.

A device's effect on an operation is compared with those of the other devices by Student's t (B. Rosner, Percentage
points for a generalized ESD many-outlier procedure, Technometrics 25, 1983). Single slow cases are searched in the
residuals of the effects, with a variance that is moderated by that of all cases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from bwprof.records.regression.statistics import (
    Spread,
    chance_per_case,
    fit_prior,
    moderate_spread,
    standard_error,
    student_quantile,
)
from bwprof.results import frame, schema
from bwprof.results.pairs import times_differ
from bwprof.results.schema import RowDict
from bwprof.text.formatting import plural, to_pandas
from bwprof.text.parsing import finite_or_none, list_items, repr_short

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
_TIMES = ("time_ms", "time_ms_lo", "time_ms_hi")
# With the variant: another kernel's time shows nothing of the device.
_KEY = (*schema.param_names(), "operation", "case", "kv_lens", "backend", "cache", "precision", "variant")
_UNBOUND = {"size": math.inf, "apart": False, "settled": True}


def outliers(data: pd.DataFrame | Iterable[pd.DataFrame], *, gate: float = DEFAULT_GATE) -> pd.DataFrame:
    """Find the devices that are slower than the others of their kind, by how much, in which operation.

    A device's effect on an operation is the median, over its cases, of the time over the median device's. It is slow
    (fast) where its effect, or a single case, is further from the other devices' mean than their own spread explains,
    and by more than `gate`; the chance of any false alarm in a fleet is 5 %. Noisy rows are left out; throttled stay.

    Parameters
    ----------
    data : pandas.DataFrame or iterable of them
        One run over several devices, or several runs. `hostname` and `device_uuid` identify devices.
    gate : float
        The smallest difference that matters, as a fraction; the fleet's spread may need a larger one.

    Returns
    -------
    pandas.DataFrame
        A row per device and operation, the slowest first: hostname, device_uuid, device, operation, devices, cases
        (their numbers), slower, faster (cases by more than `gate`, with intervals apart), failed (here and not on most
        others), slow_pct (the effect, in %), worst_pct, worst_case, smallest_pct (the smallest slow_pct that is called
        slow), throttle (the reasons, and in how many cases), verdict ("slow", "fast", "same", "failed", or "undecided")
        and reason. Two devices of a kind, or three to four that differ a little, are undecided.

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
    least = finite_or_none(gate)
    if least is None or not 0 < least < 1:
        raise ValueError(f"gate is {repr_short(gate)}: allowed is a fraction between 0 and 1, such as {DEFAULT_GATE:g}")
    data = to_pandas(data)
    frames = [data] if isinstance(data, pd.DataFrame) else list_items(data, "data", "a frame, or several, is needed")
    rows = frame.from_rows(row for part in frames for row in frame.to_rows(part))
    rows = rows[list(dict.fromkeys((*_DEVICE, *_KEY, *_TIMES, "status", "flags", "throttle")))]
    for name, columns in (("unit", _DEVICE), ("key", _KEY)):
        rows[name] = rows.groupby(list(columns), dropna=False, sort=False).ngroup()
    lines = [line for _, kind in rows.groupby("device", dropna=False, sort=False) for line in _judge_kind(kind, least)]
    order = ("slow", "failed", "undecided", "fast", "same")
    lines.sort(key=lambda line: (order.index(line["verdict"]), -round(line["slow_pct"] or 0.0, 6)))
    types = {name: "float64" if name in _NUMBERS else "Int64" if name in _COUNTS else "string" for name in COLUMNS}
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype(types)


def _judge_kind(data: pd.DataFrame, gate: float) -> list[RowDict]:
    """Return a line for each device and operation, of the rows of one kind of device."""
    devices = data["unit"].nunique()
    table = _compare_devices(data, gate, least=min(FEWEST, max(2, devices)))
    table["clear"] = _find_clear(table)
    broken = (data["status"] == "failed").groupby([data["key"], data["unit"]]).all()
    broken &= broken.groupby("key").transform("mean") < 0.5  # what fails on most devices is no device's fault
    chance = chance_per_case(data["operation"].nunique(), _CHANCE)
    lines = []
    for operation, rows in data.groupby("operation", sort=False):
        part = table[table["operation"] == operation]
        bounds = _find_bounds(part, chance)
        for unit, own in rows.groupby("unit", sort=False):
            line: RowDict = {name: own[name].iloc[0] for name in _DEVICE}
            line |= {"operation": operation, "devices": devices}
            line["failed"] = int(sum(broken[key, unit] for key in own["key"].unique()))
            bound = {name: bounds[name].get(unit, default) for name, default in _UNBOUND.items()}
            lines.append(_make_line(line, part[part["unit"] == unit], bound, gate))
    return lines


def _compare_devices(data: pd.DataFrame, gate: float, *, least: int) -> pd.DataFrame:
    """Compare the row of the median time of each device and case with the median of at least so many devices."""
    noisy = data["flags"].fillna("").str.split(";").map(lambda flags: "noisy" in flags)
    usable = data[(data["status"] == "ok") & (data["time_ms"] > 0) & (data["time_ms"] < math.inf) & ~noisy]
    usable = usable.sort_values("time_ms", kind="stable")
    turns = usable.groupby(["key", "unit"])["unit"]
    table = usable[turns.cumcount() == (turns.transform("size") - 1) // 2].sort_index()
    table = table[table.groupby("key")["unit"].transform("size") >= least].copy()
    table["name"] = table["case"] + " " + table["precision"]
    first = table.drop_duplicates("key")
    repeated = table["key"].isin(first.loc[first.duplicated(["operation", "name"]), "key"])  # another variant, or hot
    table.loc[repeated, "name"] += (" " + table["variant"]).fillna("") + (" " + table["cache"]).fillna("")
    times = table[list(_TIMES)]
    # The median is missing where one of the intervals is: then the gate alone decides.
    missing = times.isna().groupby(table["key"]).transform("any")
    middle = times.groupby(table["key"]).transform("median").mask(missing)
    logs = np.log(times["time_ms"])
    table["ratio"] = logs - np.log(middle["time_ms"])
    table["offset"] = logs - logs.groupby(table["key"]).transform("mean")  # the mean has no steps, which the tests need
    rows, medians = ([dict(zip(_TIMES, row, strict=True)) for row in part.to_numpy()] for part in (times, middle))
    table["error"] = [standard_error(row["time_ms_lo"], row["time_ms_hi"]) for row in rows]
    table.loc[times.isna().any(axis=1), "error"] = math.nan
    table["apart"] = np.array(
        [times_differ(row, center, gate=gate) for row, center in zip(rows, medians, strict=True)], dtype=np.bool_
    )
    return table


def _find_clear(table: pd.DataFrame) -> pd.Series[bool]:
    """Return which cases differ on a device by more than its effect on the operation's other cases explains."""
    rests = table["offset"] - table.groupby(["operation", "unit"])["offset"].transform(
        lambda own: [np.median(np.delete(own, n)) if len(own) > 1 else math.nan for n in range(len(own))]
    )  # each value without the median of the others
    wide = {key: rest for key, rest in rests.dropna().groupby(table["key"]) if len(rest) > FEWEST}
    prior = fit_prior([_spread(rest) for rest in wide.values()])
    chance = chance_per_case(sum(map(len, wide.values())), _CHANCE_OF_CASES)
    clear = set()
    for rest in wide.values():
        for place, off in rest.items():
            others = rest.drop(place)
            spread = moderate_spread(_spread(others), prior)
            reach = student_quantile(spread.freedom, 1 - chance / 2)
            if abs(off - others.mean()) > reach * math.sqrt(spread.variance * (1 + 1 / len(others))):
                clear.add(place)
    return table["apart"] & table.index.isin(clear)


def _spread(values: pd.Series[float]) -> Spread:
    return Spread(max(values.var(), _LEAST_SPREAD**2), len(values) - 1.0)


def _find_bounds(part: pd.DataFrame, chance: float) -> pd.DataFrame:
    """Find the devices whose effects are further from the others' than those from each other, the furthest first."""
    units = part.groupby("unit")
    errors: pd.Series[float] = (units["error"].median() / np.sqrt(units.size())).fillna(0.0)
    bounds = pd.DataFrame({"effect": units["offset"].median()}).assign(**_UNBOUND)
    rest = bounds["effect"]
    steps = len(rest) // FEWEST
    for _ in range(steps):  # each leaves the comparison: slow ones hide each other only where they are a third of all
        others = {unit: rest.drop(unit) for unit in rest.index}
        spread = pd.Series({unit: values.std() for unit, values in others.items()})
        reach = student_quantile(len(rest) - 2, 1 - chance / steps / len(rest) / 2) * math.sqrt(1 + 1 / (len(rest) - 1))
        size = reach * np.maximum(np.maximum(spread, errors[rest.index]), _LEAST_SPREAD)
        bounds.loc[rest.index, "size"] = size
        bounds.loc[rest.index, "settled"] = (errors[rest.index] <= spread) & (len(rest) >= _FEW)
        distance = (rest - pd.Series({unit: values.mean() for unit, values in others.items()})).abs() / size
        rest = rest.drop(distance.idxmax())
        if distance.max() > 1:
            bounds["apart"] = ~bounds.index.isin(rest.index)
    return bounds


def _make_line(line: RowDict, part: pd.DataFrame, bound: Mapping[str, Any], gate: float) -> RowDict:
    ratios = part["ratio"]
    worst = part.iloc[int(ratios.argmax())] if len(part) else None
    words = Counter(word for text in part["throttle"].dropna() for word in text.split(";") if word not in ("", "none"))
    line |= {
        "cases": len(part),
        "slower": int((part["apart"] & (ratios > 0)).sum()),
        "faster": int((part["apart"] & (ratios < 0)).sum()),
        "slow_pct": median(map(_percent, ratios)) if len(part) else None,
        "worst_pct": None if worst is None else _percent(worst["ratio"]),
        "worst_case": None if worst is None else worst["name"],
        "smallest_pct": max(100 * gate, _percent(bound["size"])) if math.isfinite(bound["size"]) else None,
        "throttle": ";".join(f"{word}={count}" for word, count in words.items()) or None,
    }
    line["verdict"], line["reason"] = _judge_device(line, part[part["clear"]], bound, gate)
    return line


def _percent(logarithm: float) -> float:
    return 100 * math.expm1(min(logarithm, 100.0))


def _judge_device(line: RowDict, clear: pd.DataFrame, bound: Mapping[str, Any], gate: float) -> tuple[str, str | None]:
    devices, count, slow_pct = line["devices"], line["cases"], line["slow_pct"] or 0.0
    if devices < FEWEST:
        return "undecided", f"{plural(devices, 'device')} of this name: {FEWEST} are needed to tell which is slow"
    slow = clear[clear["ratio"] > 0].sort_values("ratio", ascending=False)["name"].tolist()
    large, others = abs(slow_pct) > 100 * gate, f"than the other {devices - 1} devices"
    far = large and bound["apart"]
    if far and slow_pct > 0:
        return "slow", f"slower {others} by more than their spread ({count} cases)"
    if slow:
        return "slow", f"slower {others} in {len(slow)} of {count} cases: {', '.join(slow[:3])}"
    if line["failed"]:
        return "failed", f"{line['failed']} failed here and not on most other devices"
    if not count:
        return "undecided", "no case that was measured here undisturbed, and on another device"
    if far or len(clear):
        return "fast", f"faster {others} by more than their spread ({count} cases)"
    if large and not bound["settled"]:
        reach = min(_percent(bound["size"]), 999)
        text = f"{slow_pct:+.2g} %, where chance reaches {reach:.3g} %: measure more devices, or for longer"
        return "undecided", text
    return "same", None
