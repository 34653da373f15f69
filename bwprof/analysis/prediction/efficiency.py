"""Efficiencies learnt from measured rows, and carried over to shapes and devices that were not measured.

A kernel's time on the device that it was measured on is held against a model of bytes and FLOPs; the logarithm of what
is left is learnt per operation and precision, over the shapes (`neighbours`). To carry a time over to another device it
is taken apart: what a stream of its bytes takes there and here, and the rest, which follows arithmetic rate and clock.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import registry
from bwprof.analysis.prediction import catalogue
from bwprof.analysis.prediction.catalogue import Card, card_from_entry, card_from_roofs, resolve_card
from bwprof.analysis.prediction.regression import Neighbours
from bwprof.analysis.prediction.streams import Streams
from bwprof.analysis.prediction.workload import Estimate, Workload, make_workload
from bwprof.roofs.limiter import find_beaten_rows, read_numbers
from bwprof.roofs.model import Roofs
from bwprof.text.formatting import require_frame
from bwprof.text.parsing import check_mapping, describe_unknown, repr_short

if TYPE_CHECKING:
    import pandas as pd

Array = Any

# How the parts of a time add up, as the exponent of a norm: between 1 (one after the other) and infinity (the shorter
# hidden behind the longer). Of memory and arithmetic while learning: the first unless the second is far nearer; and, to
# carry a time over, of memory with what is no arithmetic and with arithmetic: fitted to how kernels' times differ
# between an H200 and an H100, which differ in their memory alone.
_OVERLAPS = {2.0: 1.0, 1.0: 1.5}  # and how many times farther off than the others each must be to be passed over

_WAITING, _HIDDEN = 1.25, 8.0

# Arithmetic behind memory is not seen. At most so many times what the others of its kernel would need is taken for it:
# the rest of a time waits for memory.
_HIDDEN_SHARE = 2.5

# Standard error of carrying a time over, of its logarithm: always, and per unit of the logarithm that it changes by.
_CARRIED, _CARRIED_SHARE = 0.03, 0.1

_OTHER_PRECISION = 0.2  # likewise, of taking another precision's efficiency

# Rows below which another precision is asked, which must have so many times as many.
_FEW, _MANY_MORE = 8, 2

_NINE_OF_TEN = 1.645  # standard errors

_WAITS = tuple(1e-6 * wait for wait in (0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024))

_SHARES = (1.2, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.22, 0.16, 0.1)

_WIDTHS = (0.0, *(2.0**power for power in range(10, 16)))  # bytes of output that keep a unit busy; 0: any do

# A wait is likely to be some launches long: what a factor of e more or less counts, beside squares of logarithms.
_LIKELY_LAUNCHES, _LIKELIER = 2.0, 0.005

_LEAST_SECONDS = 1e-9

_FITTED = 1000  # rows that a model is fitted to, spread evenly

_DOUBTED = frozenset({"not_cold", "noisy", "noisy_roof", "single_thread", "event_bias"})


@dataclass(frozen=True)
class _Model:
    """What most of the times follow from: a wait that no size changes, and a share of the arithmetic roof.

    Output is calculated side by side: less of it than `busy_bytes` leaves part of the device idle, and the time of its
    arithmetic is that of one piece. `overlap` is the exponent by which memory and arithmetic add up.
    """

    wait_seconds: float
    share: float
    busy_bytes: float
    overlap: float

    def busy(self, written: Array, units: float = 1.0) -> Array | float:
        """How many times longer arithmetic takes where there is little to write, on so many times the units."""
        if not self.busy_bytes:
            return 1.0
        return np.hypot(1.0, self.busy_bytes * units / np.maximum(written, 1.0))

    def seconds(self, memory: Array, arithmetic: Array) -> Array:
        """The time of what the roofs say of memory and of arithmetic, this as long as it is with too little to do."""
        return self.wait_seconds + _together(memory, arithmetic / self.share, self.overlap)

    @classmethod
    def fitting(cls, taken: Array, memory: Array, arithmetic: Array, written: Array, card: Card) -> _Model:
        """The one that is least far off, times being held against times as factors."""
        if len(taken) > _FITTED:
            some = np.argsort(taken, kind="stable")[np.linspace(0, len(taken) - 1, _FITTED).astype(int)]
            taken, memory, arithmetic, written = taken[some], memory[some], arithmetic[some], written[some]
        units = 1.0 if math.isnan(card.units) else card.units
        launch = max(_LIKELY_LAUNCHES * card.streams.floor_seconds, _LEAST_SECONDS)
        waits = np.array([wait for wait in _WAITS if wait < taken.min()])
        unlikely = _LIKELIER * np.log(np.maximum(waits, launch / 4) / launch) ** 2
        least, best = math.inf, cls(0.0, 1.0, 0.0, 2.0)
        for width, overlap, share in itertools.product(_WIDTHS, _OVERLAPS, _SHARES):
            model = cls(0.0, share, width * units, overlap)
            plain = np.maximum(model.seconds(memory, arithmetic * model.busy(written)), _LEAST_SECONDS)
            off = (np.log(taken / (waits[:, None] + plain)) ** 2).mean(1) + unlikely
            at = int(off.argmin())
            if off[at] * _OVERLAPS[overlap] < least:
                least, best = off[at] * _OVERLAPS[overlap], replace(model, wait_seconds=float(waits[at]))
        return best


@dataclass(frozen=True)
class _Learnt:
    """The rows of one operation in one precision; `precision` is that of most of what was learnt from."""

    precision: str
    variants: Array
    model: _Model
    between: Neighbours
    work: Workload = field(repr=False)
    taken: Array = field(repr=False)
    efficiency: Array = field(repr=False)

    @property
    def rows(self) -> int:
        """How many there are in its own precision."""
        return min(len(self.taken), self.between.count)

    def seconds(self, work: Workload, memory: Array, arithmetic: Array) -> tuple[Array, Array, Array]:
        """Times of shapes on the device that was learnt from, of which its roofs say so much; their standard error; and
        the place of the likest row.
        """
        like = work if self.precision == work.precision else work.in_precision(self.precision)
        rest, error, nearest = self.between(*_features(like))
        return self.model.seconds(memory, arithmetic * self.model.busy(work.written)) * np.exp(rest), error, nearest

    def beside(self, other: _Learnt, card: Card) -> _Learnt:
        """The same by another precision's rows, which are many more, where that is nearer to these few."""
        off = np.log(self.taken / other.seconds(self.work, *_roofs_seconds(self.work, card))[0])
        shift = float(off.sum() / (len(off) + 1))  # a row says little by itself
        error = float(np.sqrt(((off - shift) ** 2).mean()))
        if error > self.between.error:
            return self
        between = other.between.shifted(shift, error)
        return replace(other, between=between, work=self.work, taken=self.taken, efficiency=self.efficiency)


@dataclass(frozen=True)
class Efficiency:
    """What `bwprof.efficiency` has learnt from rows of a device; `bwprof.predict` takes it as `efficiency=`.

    `frame()` shows it: for each operation and precision the rows, and how far off the others put each of them.
    """

    card: Card
    learnt: Mapping[tuple[str, str, str | None], _Learnt]
    rows: int

    @property
    def streams(self) -> Streams:
        """The streams over size of the device that was learnt from; scaled to it where no roofs came with its rows."""
        return self.card.streams

    def __repr__(self) -> str:
        operations = dict.fromkeys(operation for operation, _, _ in self.learnt)
        return f"<bwprof.efficiency of {self.card.name}: {self.rows} rows of {', '.join(operations)}>"

    def frame(self) -> pd.DataFrame:
        """A row per operation and precision.

        Returns
        -------
        pandas.DataFrame
            operation, precision, rows, efficiency (median time of the roofs over the time), error_pct (nine of ten
            rows are missed by less when they are left out).
        """
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "operation": operation,
                    "precision": precision,
                    "rows": found.rows,
                    "efficiency": float(np.median(found.efficiency)),
                    "error_pct": 100 * math.expm1(_NINE_OF_TEN * found.between.error),
                }
                for (operation, precision, variant), found in self.learnt.items()
                if variant is None
            ]
        )

    def estimate(self, work: Workload, card: Card, stream: Array) -> Estimate:
        """Times of shapes on a device, where streams of their bytes take so many seconds."""
        if not any(operation == work.operation for operation, _, _ in self.learnt):
            return self._of_all(work, card, stream)
        found, doubt, said = self._of(work)
        memory, arithmetic = _roofs_seconds(work, self.card)
        here, error, nearest = found.seconds(work, memory, arithmetic)
        model, units = found.model, _ratio(card.units, self.card.units)
        busy, busy_there = model.busy(work.written), model.busy(work.written, units)
        there = transfer_times(
            here,
            memory,
            stream,
            arithmetic * busy,
            (self.card, card),
            work.precision,
            hidden=_HIDDEN_SHARE / model.share * arithmetic * busy,
            busier=busy_there / busy,
        )
        error = np.hypot(error, doubt)
        if card.name != self.card.name:
            error = np.hypot(error, _CARRIED + _CARRIED_SHARE * np.abs(np.log(there / here)))
        band = np.exp(_NINE_OF_TEN * error)
        reason = f"predicted: learnt from {found.rows} rows on {self.card.name}{said}; {card.text(work.precision)}"
        return Estimate(there, there / band, there * band, reason, found.variants[nearest])

    def _of_all(self, work: Workload, card: Card, stream: Array) -> Estimate:
        """Times of an operation of which nothing was learnt: as near to their roofs as all others are."""
        every = np.concatenate([found.efficiency for (_, _, variant), found in self.learnt.items() if variant is None])
        low, middle, high = np.quantile(np.minimum(every, 1.0), (0.05, 0.5, 0.95))
        floor = card.streams.floor_seconds
        arithmetic = _roofs_seconds(work, card)[1]
        nearer = np.maximum(np.maximum(stream - floor, 0.0), arithmetic)
        reason = (
            f"predicted: no row of {work.operation} was learnt from, so {middle:.0%} of the nearer roof, as the others "
            f"on {self.card.name}, and an empty launch; {card.text(work.precision)}"
        )
        return Estimate(nearer / middle + floor, nearer / high + floor, nearer / low + floor, reason)

    def _of(self, work: Workload) -> tuple[_Learnt, float, str]:
        """What was learnt of an operation, in the precision that needs most nearly as many bytes where not in its own;
        the error of that, and how it is said.
        """
        known = {key[1]: found for key, found in self.learnt.items() if key[::2] == (work.operation, work.variant)}
        if not known:
            variants = [str(key[2]) for key in self.learnt if key[0] == work.operation and key[2] is not None]
            raise ValueError(
                describe_unknown(f"variant of {work.operation} learnt", work.variant, dict.fromkeys(variants))
            )
        if work.precision in known:
            found = known[work.precision]
            if found.precision == work.precision:
                return found, 0.0, ""
            return found, 0.0, f" and {found.between.count} in {found.precision}"
        total = (work.read + work.written).sum()

        def apart(precision: str) -> float:
            other = work.in_precision(precision)
            return abs(math.log((other.read + other.written).sum() / total))

        nearest = min(known, key=apart)
        return known[nearest], _OTHER_PRECISION, f" in {nearest}, none in {work.precision}"


def efficiency(frame: pd.DataFrame, device: str | Roofs | Card | None = None) -> Efficiency:
    """Learn how near to their roofs kernels come, from measured rows.

    Parameters
    ----------
    frame : DataFrame
        Rows of one device, as `bwprof.sweep` and `bwprof.load` give them: cold ones that ran. The more shapes of an
        operation and precision, the nearer the prediction of others.
    device : str, bwprof.Roofs or Card, optional
        The device, where the rows do not say it, or the catalogue does not have it and no roofs came with them.

    Returns
    -------
    Efficiency
        For ``bwprof.predict(..., efficiency=...)``.

    Raises
    ------
    ValueError
        When nothing can be learnt from the rows, or they are of several devices, or of one that nothing is known of.

    Notes
    -----
    Of an H200 and an H100, each forecast from the other's rows, times of shapes that were not learnt from were 4 to 5 %
    off (median; nine of ten by less than 19 %), each operation and precision by 10 % at most (median), but
    attention_decode in FP32 by 11 and 17 %, with shorter caches and other groups of heads than those known (20 % off
    with 500 keys, 3 and 10 % with 12 000). Measured again, a shape's time is within 2 % (median). Learn from sizes and
    layouts like those asked for: another head_dim or group of heads may be another kernel. Arithmetic that the slower
    memory of a device hides is not seen in its rows: forecasts of a faster memory are farther off. Rows without their
    run (a CSV, several runs in one frame) lack its roofs: streams are then scaled from the card that bwprof's own are
    of, up to 6 % off the H100's and H200's measured ones; of the shapes learnt from, nine of ten forecasts for three
    cards changed by less than 4 %, the farthest (few rows of a kernel) by a fifth.

    Examples
    --------
    >>> import bwprof
    >>> rows = bwprof.predict("gemm", device="H200", precision="fp16", M=[1, 16, 256], N=[4096, 8192], K=4096)
    >>> rows["status"] = "ok"  # as if they had been measured
    >>> bwprof.efficiency(rows).frame()[["operation", "precision", "rows"]].values.tolist()
    [['gemm', 'fp16', 6]]
    """
    frame = require_frame(frame)
    rows = _usable(frame)
    if rows.empty:
        raise ValueError("nothing to learn from: no row that ran, cold and without doubt, is of a known operation")
    card = _origin(frame, rows, device)
    learnt: dict[tuple[str, str, str | None], _Learnt] = {}
    for (operation, precision), members in rows.groupby(["operation", "precision"], sort=False, observed=True):
        name, kind = str(operation), str(precision)
        shape = registry.param_names(name)
        best = members.sort_values("time_ms").drop_duplicates([*shape, "kv_lens"])
        learnt[name, kind, None] = _learnt(best, name, kind, card)
        variants = members["variant"].dropna().unique()
        if len(variants) == 1:
            learnt[name, kind, str(variants[0])] = learnt[name, kind, None]
            continue
        for variant in variants:
            own = members[members["variant"] == variant].sort_values("time_ms").drop_duplicates([*shape, "kv_lens"])
            learnt[name, kind, str(variant)] = _learnt(own, name, kind, card)
    with_others = {key: _beside_others(key, learnt, card) for key in learnt}
    return Efficiency(card, with_others, sum(found.rows for key, found in with_others.items() if key[2] is None))


def _beside_others(
    key: tuple[str, str, str | None], learnt: Mapping[tuple[str, str, str | None], _Learnt], card: Card
) -> _Learnt:
    """What was learnt of a kernel; of few rows, with the help of the precision most like it that has many."""
    own = learnt[key]
    others = [
        other
        for at, other in learnt.items()
        if at[::2] == key[::2] and other.rows >= _MANY_MORE * max(own.rows, _FEW / 2)
    ]
    if own.rows >= _FEW or not others:
        return own
    total = np.log((own.work.read + own.work.written).sum())

    def apart(other: _Learnt) -> float:
        like = own.work.in_precision(other.precision)
        return abs(float(np.log((like.read + like.written).sum()) - total))

    return own.beside(min(others, key=apart), card)


def _usable(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that something can be learnt from, with every column that is needed."""
    import pandas as pd

    from bwprof.results import schema

    rows = frame.reset_index(drop=True)  # whose levels may be called as columns are
    rows.attrs = {}
    texts = ("operation", "precision", "variant", "kv_lens", "status", "cache", "flags", "device")
    for name in (*texts, "time_ms", "bytes_read", "bytes_written", "flops", *schema.param_names()):
        if name not in rows.columns:
            rows[name] = pd.NA
    for name in ("time_ms", "bytes_read"):
        rows[name] = read_numbers(rows, name)
    rows["precision"] = [registry.precision_name(value) for value in rows["precision"]]
    known = {found["name"]: found["precisions"] for found in registry.operations()}
    told = (_texts(rows[name]) for name in ("operation", "precision", "status", "cache", "flags"))
    # What beats the best product is told by a flag of its roof; its time is as good as any.
    faster = find_beaten_rows(frame)
    right = [
        precision in known.get(str(operation), ())
        and status in (None, "ok")
        and cache in (None, "cold")
        and _DOUBTED.intersection((flags or "").split(";")) <= ({"noisy_roof"} if fast else frozenset())
        for operation, precision, status, cache, flags, fast in zip(*told, faster, strict=True)
    ]
    return rows[np.array(right, dtype=bool) & (rows["time_ms"] > 0).to_numpy()]


def _origin(frame: pd.DataFrame, rows: pd.DataFrame, device: object) -> Card:
    """The device that the rows are of."""
    if device is not None:
        return resolve_card(device)
    names = [str(name) for name in rows["device"].dropna().unique()]
    if len(names) > 1:
        raise ValueError(f"rows of several devices ({', '.join(names)}): learn from those of one")
    if not names:
        raise ValueError("the rows do not say of which device they are: name it by device=")
    run = check_mapping(frame.attrs.get("run"), "the frame's attrs['run']")
    found = run.get("roofs") or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"the frame's attrs['run']['roofs'] are {repr_short(found)}: an object is needed")
    roofs = Roofs.from_dict(dict(found)) if found and found.get("device") == names[0] and found.get("points") else None
    entry = catalogue.find(names[0])
    if roofs is not None:
        return card_from_roofs(roofs)
    if entry is None:
        raise ValueError(f"nothing is known of {names[0]}: give its roofs, or numbers, by device=")
    return card_from_entry(entry)


def _learnt(rows: pd.DataFrame, operation: str, precision: str, card: Card) -> _Learnt:
    work = _work_of_rows(rows, operation, precision)
    memory, arithmetic = _roofs_seconds(work, card)
    taken = rows["time_ms"].to_numpy(float) * 1e-3
    model = _Model.fitting(taken, memory, arithmetic, work.written, card)
    expected = model.seconds(memory, arithmetic * model.busy(work.written))
    between = Neighbours(*_features(work), np.log(taken / expected))
    variants = np.array(_texts(rows["variant"]), dtype=object)
    efficiency = np.maximum(memory, arithmetic) / taken
    return _Learnt(precision, variants[between.kept], model, between, work, taken, efficiency)


def _texts(column: pd.Series[Any]) -> list[str | None]:
    return [None if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]


def _work_of_rows(rows: pd.DataFrame, operation: str, precision: str) -> Workload:
    """The shapes of measured rows; what they do not say is at its default, their bytes are the rows' own."""
    import pandas as pd

    from bwprof.costs import Cost

    given: dict[str, Array] = {}
    for param in registry.operation(operation)["params"]:
        values = pd.to_numeric(rows[param["name"]], errors="coerce").to_numpy(float, na_value=math.nan)
        source = param["default_from"]
        fallback = given[source] if source else np.full(len(rows), param["default"])
        given[param["name"]] = np.where(np.isnan(values), fallback, values).astype(np.int64)
    work = make_workload(operation, precision, given)
    fields = dict(work.cost)
    for name in ("bytes_read", "bytes_written", "flops"):  # of a batch of different lengths only the row knows
        own = pd.to_numeric(rows[name], errors="coerce").to_numpy(float, na_value=math.nan)
        fields[name] = np.where(np.isnan(own), work.cost[name], own)
    return Workload(operation, precision, work.params, Cost(**fields))


def _features(work: Workload) -> tuple[Array, Array]:
    """What tells shapes apart: logarithms of bytes and FLOPs, and of parameters (flags as they are)."""
    sizes = [np.log2(np.maximum(values, 1.0)) for values in (work.written, work.read, work.flops)]
    params = [
        2.0 * work.params[param["name"]]
        if param["maximum"] == 1
        else np.log2(np.maximum(work.params[param["name"]].astype(float), 0.5))
        for param in registry.operation(work.operation)["params"]
    ]
    return np.stack(sizes, axis=1), np.stack(params, axis=1)


def _roofs_seconds(work: Workload, card: Card) -> tuple[Array, Array]:
    """What each roof of a device says of shapes: a stream of their bytes, and their arithmetic (0: not known)."""
    rate, kind = card.rate(work.precision)
    memory = card.streams.seconds(work.read, work.written)
    return memory, work.flops / (rate * 1e12) if kind else 0.0 * memory


def _together(one: Array, other: Array, exponent: float) -> Array:
    """The time of two parts that overlap in part."""
    return (one**exponent + other**exponent) ** (1 / exponent)


def transfer_times(
    seconds: Array,
    memory: Array,
    stream: Array,
    arithmetic: Array,
    cards: tuple[Card, Card],
    precision: str,
    *,
    hidden: Array | float = math.inf,
    busier: Array | float = 1.0,
) -> Array:
    """Times on one device as they would be on another: `memory` and `stream` are what streams take on the two.

    What a stream of the same bytes takes is replaced by what it takes there; the rest changes as far as it is
    arithmetic with the rate, else with the clock, and with the number of units beyond what one launch waits for anyway.
    Behind the memory there may be arithmetic of up to `hidden` seconds; what is left idle there makes it `busier` times
    longer.
    """
    here, there = cards
    beaten = np.maximum(memory / seconds, 1.0)  # a stream is no limit of a cache
    clock, units = _ratio(here.clock_mhz, there.clock_mhz), _ratio(here.units, there.units)
    faster = _rate_ratio(here, there, precision) * busier
    launch = here.streams.seconds(np.ones(1), np.zeros(1))

    def moved(rest: Array) -> Array:
        """What is no memory, there."""
        some = np.maximum(rest, 1e-12)
        working, waiting = np.minimum(arithmetic / some, 1.0), np.minimum(launch / some, 1.0)
        return rest * (working * faster + (1 - working) * clock * (waiting + (1 - waiting) * units))

    waited = _together(stream / beaten, moved(_beside(seconds, memory, _WAITING)), _WAITING)
    work = np.minimum(_beside(seconds, memory, _HIDDEN), hidden)
    left = _beside(seconds, _together(memory, work, _HIDDEN), _WAITING)
    worked = _together(_together(stream / beaten, moved(work), _HIDDEN), moved(left), _WAITING)
    share = arithmetic / np.maximum(np.hypot(arithmetic, memory), 1e-12)
    return (1 - share) * waited + share * worked


def _beside(whole: Array, part: Array, exponent: float) -> Array:
    """What makes the whole together with a part."""
    return np.maximum(whole**exponent - part**exponent, 0.0) ** (1 / exponent)


def _ratio(here: float, there: float) -> float:
    return 1.0 if math.isnan(here) or math.isnan(there) else here / there


def _rate_ratio(here: Card, there: Card, precision: str) -> float:
    """How many times slower arithmetic is there, measured against measured, or a data sheet against another."""
    if precision in here.best and precision in there.best:
        return here.best[precision] / there.best[precision]
    return _ratio(here.dense(precision)[0], there.dense(precision)[0])
