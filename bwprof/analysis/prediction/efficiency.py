"""Learn efficiencies from measured rows, and transfer them to other shapes and devices.

A model of bytes and FLOPs predicts a kernel's time on the measured device. The logarithm of the remaining factor is
learned per operation and precision over the shapes by a Gaussian process, for a few hundred points. To transfer a time
to another device, it is split into the time of a stream of its bytes and the rest, which follows rate and clock.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import registry
from bwprof.analysis import values
from bwprof.analysis.prediction import catalog
from bwprof.analysis.prediction.catalog import Card, Streams, card_from_entry, card_from_roofs, resolve_card
from bwprof.analysis.prediction.workload import Estimate, Workload, estimate_by_share, make_workload, roofs_seconds
from bwprof.results import schema
from bwprof.roofs.limiter import find_beaten_rows, read_numbers
from bwprof.roofs.model import Roofs
from bwprof.text.formatting import require_frame
from bwprof.text.parsing import check_mapping, describe_unknown, repr_short

if TYPE_CHECKING:
    import pandas as pd

Array = Any

# The parts of a time add up in a norm with an exponent between 1 (one after the other) and infinity (the shorter part
# is hidden). While learning, memory and arithmetic have the first exponent unless the second fits far better.
_OVERLAPS = {2.0: 1.0, 1.0: 1.5}  # exponent: factor on its error

# Exponents for a transfer, of memory with waiting and with arithmetic. They are fitted to the times of an H200 and an
# H100, which differ in their memory alone.
_WAITING, _HIDDEN = 1.25, 8.0

# Arithmetic hidden behind memory takes at most this multiple of what the model predicts; the rest waits for memory.
_HIDDEN_SHARE = 2.5

# Standard error of a transferred time's logarithm: constant, and per unit of the logarithm's change.
_TRANSFER_ERROR, _TRANSFER_SHARE = 0.03, 0.1
_OTHER_PRECISION = 0.2  # likewise, of another precision's efficiency

# With fewer rows another precision helps, which must have this many times as many.
_FEW, _MANY_MORE = 8, 2
_NINE_OF_TEN = 1.645  # standard errors
_WAITS = tuple(1e-6 * wait for wait in (0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024))
_SHARES = (1.2, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.22, 0.16, 0.1)
_WIDTHS = (0.0, *(2.0**power for power in range(10, 16)))  # bytes of output that keep a unit busy

# A wait is likely to last some launches: penalty for a factor of e more or less, beside squared logarithms.
_LIKELY_LAUNCHES, _LIKELIER = 2.0, 0.005
_LEAST_SECONDS = 1e-9
_FITTED = 1000  # rows to which a model is fitted, spread evenly
_DOUBTED = frozenset({"not_cold", "noisy", "noisy_roof", "single_thread", "event_bias"})


@dataclass(frozen=True)
class _Model:
    """A model of times: a constant wait, and a share of the arithmetic roof.

    Less output than `busy_bytes` leaves part of the device idle. `overlap` is the exponent by which memory and
    arithmetic add up.
    """

    wait_seconds: float
    share: float
    busy_bytes: float
    overlap: float

    def busy(self, written: Array, units: float = 1.0) -> Array | float:
        """Compute the slowdown of arithmetic with little output, on `units` times the units."""
        if not self.busy_bytes:
            return 1.0
        return np.hypot(1.0, self.busy_bytes * units / np.maximum(written, 1.0))

    def seconds(self, memory: Array, arithmetic: Array) -> Array:
        """Combine the times of memory and of slowed arithmetic."""
        return self.wait_seconds + _add_times(memory, arithmetic / self.share, self.overlap)

    @classmethod
    def fit(cls, taken: Array, memory: Array, arithmetic: Array, written: Array, card: Card) -> _Model:
        """Fit the model with the least squared error of the times' logarithms."""
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
class _KernelFit:
    """The rows of one operation in one precision; `precision` is that of most of its rows."""

    precision: str
    variants: Array
    model: _Model
    between: Neighbors
    work: Workload = field(repr=False)
    taken: Array = field(repr=False)
    efficiency: Array = field(repr=False)

    @property
    def rows(self) -> int:
        """The number of rows in its own precision."""
        return min(len(self.taken), self.between.count)

    def seconds(self, work: Workload, memory: Array, arithmetic: Array) -> tuple[Array, Array, Array]:
        """Return times on the measured device by its roofs' times, their standard error, and the nearest rows."""
        like = work if self.precision == work.precision else work.in_precision(self.precision)
        rest, error, nearest = self.between(*_features(like))
        return self.model.seconds(memory, arithmetic * self.model.busy(work.written)) * np.exp(rest), error, nearest


@dataclass(frozen=True)
class Efficiency:
    """Efficiencies learned from the rows of a device, for `bwprof.predict(..., efficiency=...)`.

    `frame()` tabulates rows and error for each operation and precision.
    """

    card: Card
    learned: Mapping[tuple[str, str, str | None], _KernelFit]
    rows: int

    @property
    def streams(self) -> Streams:
        """The streams of the measured device; scaled to it where its rows had no roofs."""
        return self.card.streams

    def __repr__(self) -> str:
        operations = dict.fromkeys(operation for operation, _, _ in self.learned)
        return f"<bwprof.efficiency of {self.card.name}: {self.rows} rows of {', '.join(operations)}>"

    def frame(self) -> pd.DataFrame:
        """Tabulate operations and precisions.

        Returns
        -------
        pandas.DataFrame
            operation, precision, rows, efficiency (median time of the roofs over the time), error_pct (nine of ten
            left-out rows have a smaller error).
        """
        import pandas as pd

        names = ["operation", "precision", "rows", "efficiency", "error_pct"]
        lines = [
            (*key[:2], fit.rows, np.median(fit.efficiency), 100 * math.expm1(_NINE_OF_TEN * fit.between.error))
            for key, fit in self.learned.items()
            if key[2] is None
        ]
        return pd.DataFrame(lines, columns=names)

    def estimate(self, work: Workload, card: Card, stream: Array) -> Estimate:
        """Estimate the times of shapes on a device; `stream` are the times of streams of their bytes."""
        if not any(operation == work.operation for operation, _, _ in self.learned):
            return self._estimate_by_others(work, card, stream)
        fit, doubt, source = self._find_fit(work)
        memory, arithmetic = roofs_seconds(work, self.card)
        here, error, nearest = fit.seconds(work, memory, arithmetic)
        model, units = fit.model, _ratio(card.units, self.card.units)
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
            error = np.hypot(error, _TRANSFER_ERROR + _TRANSFER_SHARE * np.abs(np.log(there / here)))
        band = np.exp(_NINE_OF_TEN * error)
        reason = f"predicted: learned from {fit.rows} rows on {self.card.name}{source}; {card.text(work.precision)}"
        return Estimate(there, there / band, there * band, reason, fit.variants[nearest])

    def _estimate_by_others(self, work: Workload, card: Card, stream: Array) -> Estimate:
        """Estimate the times of an unknown operation by the efficiencies of all others."""
        every = np.concatenate([fit.efficiency for (_, _, variant), fit in self.learned.items() if variant is None])
        low, middle, high = np.quantile(np.minimum(every, 1.0), (0.05, 0.5, 0.95))
        source = f"no row of {work.operation} was learned from, so {middle:.0%} of the nearer roof, as the others on "
        source += f"{self.card.name}, and an empty launch"
        return estimate_by_share(work, card, stream, middle, source, (high, low))

    def _find_fit(self, work: Workload) -> tuple[_KernelFit, float, str]:
        """Find the fit of an operation in its precision, else in that of the nearest size; its error; its source."""
        known = {key[1]: fit for key, fit in self.learned.items() if key[::2] == (work.operation, work.variant)}
        if not known:
            variants = [str(key[2]) for key in self.learned if key[0] == work.operation and key[2] is not None]
            names = dict.fromkeys(variants)
            raise ValueError(describe_unknown(f"variant of {work.operation} learned", work.variant, names))
        if work.precision in known:
            fit = known[work.precision]
            borrowed = fit.precision != work.precision
            return fit, 0.0, f" and {fit.between.count} in {fit.precision}" if borrowed else ""
        nearest = min(known, key=lambda precision: _size_distance(work, precision))
        return known[nearest], _OTHER_PRECISION, f" in {nearest}, none in {work.precision}"


def efficiency(frame: pd.DataFrame, device: str | Roofs | Card | None = None) -> Efficiency:
    """Learn from measured rows how near to their roofs kernels come.

    Parameters
    ----------
    frame : DataFrame
        Rows of one device from `bwprof.sweep` or `bwprof.load`; cold ones that ran are used. More shapes of an
        operation and precision give better predictions.
    device : str, bwprof.Roofs or Card, optional
        The device, where the rows do not name it, or where neither the catalog nor the rows have its figures.

    Returns
    -------
    Efficiency
        For ``bwprof.predict(..., efficiency=...)``.

    Raises
    ------
    ValueError
        If no row is usable, or if the rows are of several devices or of an unknown one.

    Notes
    -----
    Learn from sizes and layouts like those that you predict. Arithmetic hidden behind a slower memory does not show in
    the rows, so predictions for a faster memory are worse. Rows without their run (a CSV, several runs in one frame)
    lack its roofs: streams are then scaled from bundled ones, with an error up to 6 %.

    Examples
    --------
    >>> import bwprof
    >>> rows = bwprof.predict("gemm", device="H200", precision="fp16", M=[1, 16, 256], N=[4096, 8192], K=4096)
    >>> rows["status"] = "ok"  # as if measured
    >>> bwprof.efficiency(rows).frame()[["operation", "precision", "rows"]].values.tolist()
    [['gemm', 'fp16', 6]]
    """
    frame = require_frame(frame)
    rows = _select_rows(frame)
    if rows.empty:
        raise ValueError("nothing to learn from: no row that ran, cold and without doubt, is of a known operation")
    card = _measured_card(frame, rows, device)
    learned: dict[tuple[str, str, str | None], _KernelFit] = {}
    for (operation, precision), members in rows.groupby(["operation", "precision"], sort=False, observed=True):
        name, kind = str(operation), str(precision)
        best = members.sort_values("time_ms")
        variants = [str(variant) for variant in members["variant"].dropna().unique()]
        learned[name, kind, None] = _fit_kernel(best, name, kind, card)
        for variant in variants:
            own = learned[name, kind, None]
            if len(variants) > 1:
                own = _fit_kernel(best[best["variant"] == variant], name, kind, card)
            learned[name, kind, variant] = own
    fits = {key: _borrow_from_others(key, learned, card) for key in learned}
    return Efficiency(card, fits, sum(fit.rows for key, fit in fits.items() if key[2] is None))


def _size_distance(work: Workload, precision: str) -> float:
    """Compare the bytes of shapes with those in another precision, as the logarithm of their ratio."""
    other = work.in_precision(precision)
    return abs(math.log((other.read + other.written).sum() / (work.read + work.written).sum()))


def _borrow_from_others(
    key: tuple[str, str, str | None], learned: Mapping[tuple[str, str, str | None], _KernelFit], card: Card
) -> _KernelFit:
    """Return a kernel's fit; for few rows that of the most similar precision with many, shifted, if it fits better."""
    own = learned[key]
    least = _MANY_MORE * max(own.rows, _FEW / 2)
    others = [other for at, other in learned.items() if at[::2] == key[::2] and other.rows >= least]
    if own.rows >= _FEW or not others:
        return own
    other = min(others, key=lambda other: _size_distance(own.work, other.precision))
    off = np.log(own.taken / other.seconds(own.work, *roofs_seconds(own.work, card))[0])
    shift = float(off.sum() / (len(off) + 1))  # a row says little by itself
    error = float(np.sqrt(((off - shift) ** 2).mean()))
    if error > own.between.error:
        return own
    between = other.between.shifted(shift, error)
    return replace(other, between=between, work=own.work, taken=own.taken, efficiency=own.efficiency)


def _select_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Select cold rows that ran without doubts, with every column that is needed."""
    texts = ("operation", "precision", "variant", "kv_lens", "status", "cache", "flags", "device")
    names = (*texts, "time_ms", "bytes_read", "bytes_written", "flops", *schema.param_names())
    rows = frame.reset_index(drop=True).reindex(columns=list(names))  # index levels may have the names of columns
    rows.attrs = {}
    for name in ("time_ms", "bytes_read"):
        rows[name] = read_numbers(rows, name)
    rows["precision"] = [registry.precision_name(value) for value in rows["precision"]]
    taught = [one for one in registry.operations() if not one["is_link"] and not registry.is_pattern(one["name"])]
    known = {(one["name"], name) for one in taught for name in one["precisions"]}
    good = np.array([pair in known for pair in zip(rows["operation"], rows["precision"], strict=True)], bool)
    good &= (rows["time_ms"] > 0).to_numpy()
    for name, allowed in (("status", "ok"), ("cache", "cold")):
        good &= values.words(rows, name).isin(["", allowed]).to_numpy(bool)
    # A row that beats the best product has the flag of a noisy roof, but its time is good.
    faster = find_beaten_rows(frame)
    for flag in _DOUBTED:
        good &= ~values.has_flag(rows, flag) | (faster if flag == "noisy_roof" else False)
    return rows[good]


def _measured_card(frame: pd.DataFrame, rows: pd.DataFrame, device: object) -> Card:
    """Resolve the device of the rows."""
    if device is not None:
        return resolve_card(device)
    names = [str(name) for name in rows["device"].dropna().unique()]
    if len(names) > 1:
        raise ValueError(f"rows of several devices ({', '.join(names)}): pass those of one")
    if not names:
        raise ValueError("the rows name no device: pass device=")
    run = check_mapping(frame.attrs.get("run"), "the frame's attrs['run']")
    roofs = run.get("roofs") or {}
    if not isinstance(roofs, Mapping):
        raise ValueError(f"the frame's attrs['run']['roofs'] are {repr_short(roofs)}: an object is needed")
    if roofs.get("device") == names[0] and roofs.get("points"):
        return card_from_roofs(Roofs.from_dict(dict(roofs)))
    entry = catalog.find(names[0])
    if entry is None:
        raise ValueError(f"{names[0]} is not in the catalog: pass its roofs, or numbers, as device=")
    return card_from_entry(entry)


def _fit_kernel(rows: pd.DataFrame, operation: str, precision: str, card: Card) -> _KernelFit:
    """Fit a kernel to rows in the order of their times; of a repeated shape the fastest counts."""
    rows = rows.drop_duplicates([*registry.param_names(operation), "kv_lens"])
    work = _work_of_rows(rows, operation, precision)
    memory, arithmetic = roofs_seconds(work, card)
    taken = rows["time_ms"].to_numpy(float) * 1e-3
    model = _Model.fit(taken, memory, arithmetic, work.written, card)
    expected = model.seconds(memory, arithmetic * model.busy(work.written))
    between = Neighbors(*_features(work), np.log(taken / expected))
    variants = rows["variant"].astype(object).where(rows["variant"].notna(), None).to_numpy()
    efficiency = np.maximum(memory, arithmetic) / taken
    return _KernelFit(precision, variants[between.sample], model, between, work, taken, efficiency)


def _work_of_rows(rows: pd.DataFrame, operation: str, precision: str) -> Workload:
    """Read the shapes of measured rows, with defaults for missing parameters and the rows' own bytes."""
    params: dict[str, Array] = {}
    for param in registry.operation(operation)["params"]:
        own, source = read_numbers(rows, param["name"]), param["default_from"]
        fallback = params[source] if source else np.full(len(rows), param["default"])
        params[param["name"]] = np.where(np.isnan(own), fallback, own).astype(np.int64)
    work = make_workload(operation, precision, params)
    fields = {}
    for name in ("bytes_read", "bytes_written", "flops"):  # the cost does not know a batch's lengths
        own = read_numbers(rows, name)
        fields[name] = np.where(np.isnan(own), work.cost[name], own)
    return replace(work, cost=replace(work.cost, **fields))


def _features(work: Workload) -> tuple[Array, Array]:
    """Compute logarithms of bytes and FLOPs, and of parameters (flags as they are)."""
    sizes = [np.log2(np.maximum(values, 1.0)) for values in (work.written, work.read, work.flops)]
    params = [
        2.0 * work.params[param["name"]]
        if param["maximum"] == 1
        else np.log2(np.maximum(work.params[param["name"]].astype(float), 0.5))
        for param in registry.operation(work.operation)["params"]
    ]
    return np.stack(sizes, axis=1), np.stack(params, axis=1)


def _add_times(first: Array, second: Array, exponent: float) -> Array:
    """Add two times that overlap in part."""
    return (first**exponent + second**exponent) ** (1 / exponent)


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
    """Transfer times from one device to another; `memory` and `stream` are the times of streams on the two.

    The time of a stream of the same bytes is replaced. The rest changes with the arithmetic rate as far as it is
    arithmetic, else with the clock, and beyond the wait of a launch with the number of units. Up to `hidden` seconds of
    arithmetic may be hidden behind memory; idle units make arithmetic `busier` times longer.
    """
    here, there = cards
    beaten = np.maximum(memory / seconds, 1.0)  # a cache may beat a stream
    clock, units = _ratio(here.clock_mhz, there.clock_mhz), _ratio(here.units, there.units)
    measured = precision in here.best and precision in there.best  # else both rates are of data sheets
    faster = _ratio(*(card.best[precision] if measured else card.dense(precision)[0] for card in cards)) * busier
    launch = here.streams.seconds(np.ones(1), np.zeros(1))

    def transfer_rest(rest: Array) -> Array:
        some = np.maximum(rest, 1e-12)
        working, waiting = np.minimum(arithmetic / some, 1.0), np.minimum(launch / some, 1.0)
        return rest * (working * faster + (1 - working) * clock * (waiting + (1 - waiting) * units))

    waited = _add_times(stream / beaten, transfer_rest(_subtract_time(seconds, memory, _WAITING)), _WAITING)
    work = np.minimum(_subtract_time(seconds, memory, _HIDDEN), hidden)
    left = _subtract_time(seconds, _add_times(memory, work, _HIDDEN), _WAITING)
    worked = _add_times(_add_times(stream / beaten, transfer_rest(work), _HIDDEN), transfer_rest(left), _WAITING)
    share = arithmetic / np.maximum(np.hypot(arithmetic, memory), 1e-12)
    return (1 - share) * waited + share * worked


def _subtract_time(total: Array, part: Array, exponent: float) -> Array:
    """Subtract a part from a time, as the inverse of `_add_times`."""
    return np.maximum(total**exponent - part**exponent, 0.0) ** (1 / exponent)


def _ratio(here: float, there: float) -> float:
    return 1.0 if math.isnan(here) or math.isnan(there) else here / there


# The distance between shapes is measured in the logarithms of what they read, write and compute. A second part of the
# kernel has a shorter range and also uses the parameters, such as sizes that fit a kernel's tiles. Far from all points
# the prediction falls back to their median, and its error grows to their spread.
_FAR_WIDTHS = (4.0, 8.0, 16.0)  # of the first part, in powers of two
_NEAR_WIDTHS = (2.0, 4.0, 8.0)  # of the second part
_PARAM_WIDTHS = (2.0, 4.0, 8.0, math.inf)  # of the second part, for parameters
_NEAR_SHARES = (0.0, 0.3, 1.0)  # the second part's weight beside the first's
_NOISES = (0.02, 0.05)  # scatter of a point, of a logarithm
_FEWEST = 4  # points below which only their median is known
_MOST = 400  # points that are used, spread evenly
_LEAST_SPREAD = 0.1  # of a logarithm: least error of a point unlike all others
_UNKNOWN_SPREAD, _UNSURE = 0.3, 2.0  # of a logarithm, for one point; factor on the spread of a few points

# Error of a logarithm for each power of two between the parameters of a point and those of the nearest point: the
# points may vary parameters together, so that the kernel does not see each alone.
_UNSEEN_SPREAD = 0.02
_ENOUGH = 150  # points by which the kernel is chosen
_CHUNK = 1 << 10


@dataclass(frozen=True, slots=True)
class _Kernel:
    width: float
    near_width: float
    param_width: float
    near_share: float

    def __call__(self, sizes: Array, params: Array, sizes2: Array, params2: Array) -> Array:
        """Compute the similarity of each row to each of the others, 1 for equal rows."""
        likeness = _matern(sizes / self.width, sizes2 / self.width)
        if not self.near_share:
            return likeness
        near, near2 = (
            np.hstack([size / self.near_width, param / self.param_width])
            for size, param in ((sizes, params), (sizes2, params2))
        )
        likeness += self.near_share * _matern(near, near2)
        likeness /= 1 + self.near_share
        return likeness


def _matern(left: Array, right: Array) -> Array:
    """Compute the Matern kernel of smoothness 5/2."""
    squares = left @ (-10 * right).T  # five times the squared distances, in one array
    squares += 5 * (left * left).sum(1)[:, None]
    squares += 5 * (right * right).sum(1)[None]
    np.maximum(squares, 0, out=squares)
    root = np.sqrt(squares)
    squares *= 1 / 3
    squares += root
    squares += 1
    np.negative(root, out=root)
    np.exp(root, out=root)
    squares *= root
    return squares


class Neighbors:
    """Interpolate values between points.

    `sizes`, of shape (points, s), are the logarithms (base 2) on which the values mainly depend; `params`, of shape
    (points, p), are other coordinates.
    """

    def __init__(self, sizes: Array, params: Array, values: Array) -> None:
        self.sample = np.arange(len(values))
        if len(values) > _MOST:
            spaced = np.unique(np.linspace(0, len(values) - 1, _MOST).astype(int))
            self.sample = np.lexsort(sizes.T)[spaced]
            sizes, params, values = sizes[self.sample], params[self.sample], values[self.sample]
        self._center = sizes.mean(0), params.mean(0)
        self._sizes, self._params = sizes - self._center[0], params - self._center[1]
        self._median = float(np.median(values))
        self._values = values - self._median
        self.count = len(values)
        spread = float(np.var(self._values)) + 1e-4
        if self.count < _FEWEST:
            self._kernel, self._weights = None, None
            self.spread = self.error = max(_UNSURE * math.sqrt(spread), _UNKNOWN_SPREAD / self.count)
            return
        self._kernel, noise = self._choose_kernel(spread)
        matrix = self._matrix(self._kernel, noise, spread, slice(None))
        inverse = np.linalg.inv(matrix)
        self._weights = spread * (inverse @ self._values)
        left_out = inverse @ self._values / np.diag(inverse)
        self.spread = math.sqrt(spread)
        # The error of a left-out point that nine of ten stay below is less sensitive to one bad point.
        self.error = max(float(np.quantile(np.abs(left_out), 0.9)) / 1.645, 0.005)

    def shifted(self, by: float, error: float) -> Neighbors:
        """Return the same with values greater by `by`, which has an error of its own."""
        shifted = copy.copy(self)
        shifted._median += by
        shifted.error = math.hypot(self.error, error)
        return shifted

    def _matrix(self, kernel: _Kernel, noise: float, spread: float, some: Array) -> Array:
        """Compute the covariance of some of the points."""
        mine = self._sizes[some], self._params[some]
        return spread * kernel(*mine, *mine) + (noise**2 + 1e-9) * np.eye(len(mine[0]))

    def _choose_kernel(self, spread: float) -> tuple[_Kernel, float]:
        """Choose the kernel and noise with the highest likelihood."""
        some = np.unique(np.linspace(0, self.count - 1, min(self.count, _ENOUGH)).astype(int))
        best = -math.inf, _Kernel(_FAR_WIDTHS[1], _NEAR_WIDTHS[0], _PARAM_WIDTHS[0], 0.0), _NOISES[-1]
        for width, share in itertools.product(_FAR_WIDTHS, _NEAR_SHARES):
            for near in itertools.product(_NEAR_WIDTHS, _PARAM_WIDTHS) if share else [(_NEAR_WIDTHS[0], math.inf)]:
                kernel = _Kernel(width, *near, share)
                likeness = self._matrix(kernel, 0.0, spread, some)
                for noise in _NOISES:
                    likelihood = _likelihood(likeness + noise**2 * np.eye(len(some)), self._values[some])
                    if likelihood > best[0]:
                        best = likelihood, kernel, noise
        return best[1:]

    def __call__(self, sizes: Array, params: Array) -> tuple[Array, Array, Array]:
        """Return values at other points, their standard error, and the place of the most similar point of each."""
        count = len(sizes)
        if self._kernel is None or self._weights is None:
            nothing = np.zeros(count, dtype=np.intp)
            return np.full(count, self._median), np.full(count, self.error), nothing
        values, likest, apart = np.empty(count), np.empty(count), np.empty(count)
        nearest = np.empty(count, dtype=np.intp)
        mine = self._sizes.astype(np.float32), self._params.astype(np.float32)
        weights = self._weights.astype(np.float32)
        for start in range(0, count, _CHUNK):
            part = slice(start, start + _CHUNK)
            theirs = (sizes[part] - self._center[0]).astype(np.float32)
            others = (params[part] - self._center[1]).astype(np.float32)
            likeness = self._kernel(theirs, others, *mine)
            values[part] = likeness @ weights
            nearest[part] = likeness.argmax(1)
            likest[part] = np.take_along_axis(likeness, nearest[part][:, None], 1)[:, 0]
            apart[part] = ((others - mine[1][nearest[part]]) ** 2).sum(1)
        unlike = max(self.spread, _LEAST_SPREAD) ** 2 * np.maximum(1 - likest**2, 0)
        error = np.sqrt(self.error**2 + unlike + _UNSEEN_SPREAD**2 * apart)
        return values + self._median, error, nearest


def _likelihood(matrix: Array, values: Array) -> float:
    try:
        root = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return -math.inf
    solved = np.linalg.solve(root, values)
    return float(-0.5 * solved @ solved - np.log(np.diag(root)).sum())
