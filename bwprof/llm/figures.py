"""Figures of a model's rows: each step's time and tokens, its limiter, the gain of other formats, what fits the memory.

Rows are plain dicts with the columns of the schema and `bwprof.llm.workload.LABELS`; no device is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any

from bwprof import registry
from bwprof.costs import cost
from bwprof.llm import workload
from bwprof.llm.workload import (
    AS_STORED,
    KV,
    LAYER,
    WEIGHTS,
    ModelRequest,
    OmittedWork,
    StepPart,
    StepPoint,
    kv_format,
)
from bwprof.roofs.limiter import explain_no_gain

StepRow = Mapping[str, Any]

# The column with a row's share of its roof, by the side of the ridge.
_SHARES = {"memory": "pct_attainable", "compute": "pct_roofline"}

_POINT = ("phase", "step_batch", "context", "weights", "kv")


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step: its rows and their sums; None for what the rows or the device do not give.

    Attributes
    ----------
    moved_bytes, read_bytes : int
        Bytes that all operations move; bytes of weights and cache that they read.
    mbu_pct : float
        `read_bytes` by the time, in percent of the theoretical peak bandwidth.
    limit_pct : float
        The time at the roofs, in percent of the time.
    measured_pct : float
        The share of the time that was measured, %.
    missing : str
        Why there is no time.
    """

    point: StepPoint
    rows: tuple[StepRow, ...]
    fit: workload.Fit | None
    moved_bytes: int
    read_bytes: int
    time_ms: float | None = None
    tokens_s: float | None = None
    mbu_pct: float | None = None
    limit_pct: float | None = None
    limiter: str | None = None
    measured_pct: float | None = None
    missing: str = ""

    @property
    def may_fit(self) -> bool:
        """Whether the memory is enough, or unknown."""
        return self.fit is None or self.fit.fits

    @property
    def is_predicted(self) -> bool:
        """Whether an operation of it was predicted."""
        return any(row["status"] == "predicted" for row in self.rows)

    @property
    def launches(self) -> int:
        """Launches of its operations."""
        return sum(int(row["count"]) for row in self.rows)


def compute_steps(request: ModelRequest, rows: Sequence[StepRow], memory_bytes: int | None) -> list[StepFigures]:
    """Compute the requested steps that have rows, in the request's order."""
    by_point: dict[tuple[object, ...], list[StepRow]] = {}
    for row in rows:
        if row["role"] != LAYER:
            by_point.setdefault(tuple(row[name] for name in _POINT), []).append(row)
    memory = request.memory_bytes or memory_bytes
    return [
        _compute_step(request, point, by_point[astuple(point)], request.fit(point, memory) if memory else None)
        for point in request.points
        if astuple(point) in by_point
    ]


def _compute_step(
    request: ModelRequest, point: StepPoint, rows: list[StepRow], fit: workload.Fit | None
) -> StepFigures:
    request.check_roles(point, (row["role"] for row in rows))
    moved = sum(int(row["count"]) * ((row["bytes_read"] or 0) + (row["bytes_written"] or 0)) for row in rows)
    read = _sum_read_bytes(request, point, rows)
    missing = "; ".join(dict.fromkeys(_why_no_time(row) for row in rows if row["time_ms"] is None))
    step = StepFigures(point, tuple(rows), fit, moved, read, missing=missing)
    if missing or not step.may_fit:
        return step
    times = [int(row["count"]) * float(row["time_ms"]) for row in rows]
    total = sum(times)
    peak = _peak_of(rows)
    measured = sum(time for row, time in zip(rows, times, strict=True) if row["status"] == "ok")
    return replace(
        step,
        time_ms=total,
        tokens_s=point.tokens / total * 1e3,
        mbu_pct=100 * read / total / 1e6 / peak if peak else None,
        limit_pct=_weighted_mean([limit_pct(row) for row in rows], times),
        limiter=_longest([limiter(row) for row in rows], times),
        measured_pct=100 * measured / total,
    )


def _peak_of(rows: Sequence[StepRow]) -> float | None:
    return next((row["peak_gb_s"] for row in rows if row["peak_gb_s"] is not None), None)


def _sum_read_bytes(request: ModelRequest, point: StepPoint, rows: Sequence[StepRow]) -> int:
    parts = {(part.role, part.precision): part for part in request.parts(point)}
    read = 0
    for row in rows:
        part = parts.get((row["role"], row["precision"]))
        if part is not None:
            own = part_from_row(row)  # a run may have launched another shape in this role
            part = part if own.params == part.params else replace(own, formats=part.formats)
            read += int(row["count"]) * workload.bytes_read_by(part, request.model)
    return read


def _why_no_time(row: StepRow) -> str:
    if row["status"] == "predicted" and row.get("attainable_gb_s") is None:
        return (
            f"no kernel takes {row['precision']} here, and without the device's roofs its time cannot be predicted: "
            "measure with them (without --no-roofs, roofs=False)"
        )
    return f"{row['status']}: {row['reason'] or 'no time'}"


def limiter(row: StepRow) -> str | None:
    """Return what limits a row: its column of that name, else the side of the ridge."""
    return row.get("limiter") or row.get("bound") or None


def limit_pct(row: StepRow) -> float | None:
    """Return a row's share of the roof that applies to it, %."""
    share: float | None = row.get("pct_limit")
    return row.get(_SHARES.get(row.get("bound") or "", "pct_attainable")) if share is None else share


def _weighted_mean(shares: Iterable[float | None], times: Sequence[float]) -> float | None:
    """Return the mean by time of the shares; None if they are unknown for more than 5 % of it."""
    known = [(share, time) for share, time in zip(shares, times, strict=True) if share is not None]
    weight = sum(time for _, time in known)
    if weight < 0.95 * sum(times):
        return None
    return sum(share * time for share, time in known) / weight


def _longest(names: Iterable[str | None], times: Sequence[float]) -> str | None:
    """Return the name with the most time; None if names are unknown for more than half of it."""
    totals: dict[str, float] = {}
    for name, time in zip(names, times, strict=True):
        if name:
            totals[name] = totals.get(name, 0.0) + time
    if sum(totals.values()) < sum(times) / 2:
        return None
    return max(totals, key=lambda name: totals[name], default=None)


def part_from_row(row: StepRow) -> StepPart:
    """Return the operation of a row, one launch."""
    params = {name: int(row[name]) for name in registry.param_names(row["operation"])}
    part = StepPart(str(row.get("role", "")), row["operation"], row["precision"], params, 1, "")
    read = row.get("bytes_read") if row["status"] == "predicted" else None
    return part if read is None else replace(part, more=int(read + row["bytes_written"]) - _moved_bytes(part))


def _moved_bytes(part: StepPart) -> int:
    params: dict[str, Any] = dict(part.params)
    return int(cost(part.operation, precision=part.precision, **params).bytes) + part.more


# ---- a layer in one graph ----


@dataclass(frozen=True, slots=True)
class LayerTime:
    """The time of a layer's operations in one graph, and the sum of their own times; `reason`: why there is no time."""

    point: StepPoint
    together_ms: float | None
    sum_ms: float | None
    reason: str


def compute_layers(
    request: ModelRequest, steps: Sequence[StepFigures], rows: Sequence[StepRow]
) -> tuple[list[LayerTime], list[StepPoint]]:
    """Return the layers in one graph, and the steps that have none because an operation has no kernel."""
    by_point = {astuple(step.point): step for step in steps}
    layers = []
    for row in rows:
        step = by_point.get(tuple(row[name] for name in _POINT)) if row["role"] == LAYER else None
        if step is not None and not (row["status"] == "skipped" and step.is_predicted):
            reason = "" if row["time_ms"] is not None else f"{row['status']}: {row['reason']}"
            layers.append(LayerTime(step.point, row["time_ms"], _sum_of_layer(request, step), reason))
    present = {layer.point for layer in layers}
    absent = [step.point for step in steps if request.chain and step.is_predicted and step.point not in present]
    return layers, absent


def _sum_of_layer(request: ModelRequest, step: StepFigures) -> float | None:
    times = {(row["role"], *part_from_row(row).params.values()): row["time_ms"] for row in step.rows}
    total = 0.0
    for part in request.parts(step.point, one_layer=True):
        time = times.get((part.role, *part.params.values()))
        if time is None:
            return None
        total += part.count * float(time)
    return total


# ---- other formats ----


@dataclass(frozen=True, slots=True)
class StepFormat:
    """A step with its weights and its cache in other formats. `source`: measured, predicted, or NO_KERNEL."""

    weights: str
    kv: str
    weight_bytes: int
    fits: bool | None
    time_ms: float | None
    source: str
    kv_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FormatOffer:
    """What a narrower format brings: the current time divided by the new one."""

    name: str
    times: float
    is_measured: bool


NO_KERNEL = "predicted, no kernel"

BOTH = "both"

_NARROWER = (
    (("fp32", "tf32"), "fp16"),
    (("fp16", "bf16"), "fp8_e4m3"),
    (("fp8_e4m3", "int8"), "q4_0"),
)


def _short_name(precision: str) -> str:
    return precision.upper().partition("_E")[0]


BestTimes = Callable[[Sequence[StepPart]], Sequence[float]]  # the times of parts at the device's roofs, ms each


class FormatComparison:
    """A step in other formats: measured, else predicted from its own operations and their new bytes.

    Parameters
    ----------
    request : ModelRequest
    steps : sequence of StepFigures
        All steps of the request, some of which may be measured in other formats.
    base : StepFigures
        The step to compare.
    best : callable, optional
        Gives the times of parts at the device's roofs; without it, predictions follow the bytes.
    """

    def __init__(
        self, request: ModelRequest, steps: Sequence[StepFigures], base: StepFigures, best: BestTimes | None = None
    ) -> None:
        self.request, self.steps, self.base, self.best = request, steps, base, best

    @cached_property
    def formats(self) -> list[StepFormat]:
        """The step with its weights in every format; the cache is as wide as they are, a narrow one stays."""
        point = self.base.point
        names = [name for name in workload.list_formats(WEIGHTS) if name != "tf32"]
        if point.weights not in names:
            names.append(point.weights)
        return self._compare([(name, self._kv_beside(name)) for name in names])

    def _kv_beside(self, weights: str) -> str:
        point = self.base.point
        wide = weights in ("fp32", "bf16") or point.kv == "fp32"
        return (
            kv_format(weights) if weights != point.weights and wide and not registry.is_narrow(point.kv) else point.kv
        )

    @property
    def fp16_ms(self) -> float | None:
        """The time with FP16 weights."""
        return next((line.time_ms for line in self.formats if line.weights == "fp16"), None)

    def tokens_s(self, time_ms: float | None) -> float | None:
        """Return the tokens per second at another time of the step."""
        base = self.base
        if time_ms is None or base.time_ms is None or base.tokens_s is None:
            return None
        return base.tokens_s * base.time_ms / time_ms

    def offers(self) -> list[FormatOffer]:
        """Return the gain of the next narrower weights, of an eight-bit cache, and of both, as far as known."""
        point = self.base.point
        weights = self._narrower_weights()
        caches = self._compare([(point.weights, kv) for kv in self._narrower_caches()])
        cache = next((line for line in caches if line.source != NO_KERNEL and line.time_ms), None)
        lines: dict[str, StepFormat] = {}
        if weights is not None:
            line = next(line for line in self.formats if line.weights == weights)
            also_cache = "" if line.kv == point.kv else " and cache"  # FP32's becomes as narrow as the weights
            lines[f"{_short_name(weights)} weights{also_cache}"] = line
        if cache is not None:
            lines[f"{_short_name(cache.kv)} KV cache"] = cache
            if weights is not None:
                lines[BOTH] = self._compare([(weights, cache.kv)])[0]
        return [
            FormatOffer(name, self.base.time_ms / line.time_ms, line.source == "measured")
            for name, line in lines.items()
            if line.time_ms and self.base.time_ms
        ]

    def fitting_cache(self) -> StepFormat | None:
        """Return an eight-bit cache with which a step fits that fits in no weights; None if there is none.

        The weights stay if that is enough, else they are the widest narrower ones.
        """
        base = self.base
        if base.fit is None or any(line.fits for line in self.formats):
            return None
        size = base.fit.weights
        narrow = sorted(
            (line for line in self.formats if line.weight_bytes < size), key=lambda line: -line.weight_bytes
        )
        weights = [base.point.weights, *(line.weights for line in narrow)]
        lines = self._compare([(name, kv) for name in weights for kv in self._narrower_caches()])
        return next((line for line in lines if line.fits and not self._lacks_kernels(line.weights, line.kv)), None)

    def _narrower_weights(self) -> str | None:
        """Return the next narrower format of the weights that has kernels; None below 8 bits."""
        weights = self.base.point.weights
        excluded = {line.weights for line in self.formats if line.source == NO_KERNEL}
        while name := next((narrower for names, narrower in _NARROWER if weights in names), None):
            if name not in excluded:
                return name
            weights = name
        return None

    def _narrower_caches(self) -> list[str]:
        kv = self.base.point.kv
        if registry.is_narrow(kv) or kv == "fp32":
            return []
        return [name for name in workload.list_formats(KV) if registry.is_narrow(name)]

    def _compare(self, pairs: Sequence[tuple[str, str]]) -> list[StepFormat]:
        base, result = self.base, []
        for (weights, kv), predicted_ms in zip(pairs, self._predict(pairs), strict=True):
            point = replace(base.point, weights=weights, kv=kv)
            own = next((step for step in self.steps if step.point == point and step.time_ms is not None), None)
            if own is not None:
                time_ms, source = own.time_ms, "measured" if (own.measured_pct or 0) > 50 else "predicted"
            else:
                time_ms, source = predicted_ms, NO_KERNEL if self._lacks_kernels(weights, kv) else "predicted"
            source = source if time_ms is not None else ""
            size = self.request.weight_bytes(weights)
            cache = workload.kv_bytes(self.request.model, kv, base.point.batch, base.point.context)
            fits = None if base.fit is None else size + cache <= base.fit.usable
            result.append(StepFormat(weights, kv, size, fits, time_ms if fits is not False else None, source, cache))
        return result

    def _predict(self, pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        """Predict the step's time in pairs of formats; None without a time, or if an operation refuses the format.

        Memory-bound operations change as their time at the roofs does (as their bytes, without roofs); others gain
        nothing.
        """
        new = [self._parts(weights, kv) for weights, kv in pairs]
        if self.base.time_ms is None:
            return [None] * len(pairs)
        old = [part_from_row(row) for row in self.base.rows]
        flat = [*old, *(part for parts in new for part in parts or ())]
        times = iter(self.best(flat) if self.best is not None else [float(_moved_bytes(part)) for part in flat])
        before = [next(times) for _ in old]
        return [None if parts is None else self._scale(before, times) for parts in new]

    def _scale(self, before: Sequence[float], after: Iterator[float]) -> float:
        return sum(
            int(row["count"]) * float(row["time_ms"]) * gain(row, best, next(after))
            for row, best in zip(self.base.rows, before, strict=True)
        )

    def _parts(self, weights: str, kv: str) -> list[StepPart] | None:
        """Return the step's operations in other formats; None if one refuses its format, or has another shape."""
        if weights == AS_STORED:
            return None
        point, layout = (
            replace(self.base.point, weights=weights, kv=kv),
            self.request.layout_of(self.base.point.weights),
        )
        try:
            by_role = {part.role: part for part in workload.list_parts(self.request.model, point, layout)}
        except ValueError:
            return None
        parts = [by_role.get(row["role"]) for row in self.base.rows]
        same = [
            part
            for part, row in zip(parts, self.base.rows, strict=True)
            if part is not None and part.params == part_from_row(row).params
        ]
        return same if len(same) == len(parts) else None

    def _lacks_kernels(self, weights: str, kv: str) -> bool:
        """Return whether a CPU has no kernel for an operation in other formats."""
        backend = str(self.base.rows[0]["backend"])
        parts = self._parts(weights, kv) or []
        return any(registry.lacks_kernel(part.operation, part.precision, backend) for part in parts)


def gain(row: StepRow, before: float, after: float) -> float:
    """Return the factor of a row's time in another format, from its times at the roofs.

    If something else than memory limits, a narrower format saves no time, as in `bwprof.speedup`.
    """
    factor = after / before if before else 1.0
    return factor if explain_no_gain(row) is None else max(factor, 1.0)


# ---- what fits ----


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """The largest batch by context, and the longest context by batch (None: any), that fit beside the weights.

    `token_bytes`: bytes that one more token adds, by context.
    """

    weights: str
    kv: str
    weight_bytes: int
    token_bytes: dict[int, int]
    batches: dict[int, int]
    contexts: dict[int, int | None]


def compute_rooms(request: ModelRequest, memory_bytes: int) -> list[MemoryRoom]:
    """Compute what fits the memory, for each requested pair of formats."""
    model, memory = request.model, request.memory_bytes or memory_bytes
    contexts = dict.fromkeys(point.context for point in request.points)
    batches = dict.fromkeys(point.batch for point in request.points)
    rooms = []
    for weights, kv in dict.fromkeys((point.weights, point.kv) for point in request.points):
        size = request.weight_bytes(weights)
        fit = workload.Fit(size, 0, memory, request.reserve)
        token_bytes = {context: workload.next_token_bytes(model, kv, context) for context in contexts}
        largest = {context: workload.largest_batch(model, size, kv, context, fit) for context in contexts}
        longest = {batch: workload.longest_context(model, size, kv, batch, fit) for batch in batches}
        rooms.append(MemoryRoom(weights, kv, size, token_bytes, largest, longest))
    return rooms


# ---- omitted work ----


def time_omitted(
    request: ModelRequest, base: StepFigures, bandwidth: Callable[[int, int], float | None] | None = None
) -> list[OmittedWork]:
    """Estimate the time of a step's other work: a stream of its bytes plus a launch's floor; fused kernels take less.

    Parameters
    ----------
    bandwidth : callable, optional
        GB/s of a stream that reads and writes so many bytes; else the rows' theoretical peak is used.
    """
    floors = sorted(row["timer_floor_us"] for row in base.rows if row.get("timer_floor_us") is not None)
    floor_ms = floors[len(floors) // 2] / 1e3 if floors and not bandwidth else 0.0
    peak = _peak_of(base.rows)
    omitted = []
    for item in workload.list_omitted(request.model, base.point):
        speed = bandwidth(item.bytes // 2, item.bytes - item.bytes // 2) if bandwidth else peak
        once = item.bytes / speed / 1e6 + floor_ms if speed else None
        omitted.append(replace(item, time_ms=None if once is None else item.count * once))
    return omitted
