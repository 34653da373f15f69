"""Figures of a model's rows: each step's time and tokens, its limiter, the gain of other formats, what fits the memory.

Rows are plain dicts with the columns of the schema and `bwprof.llm.workload.LABELS`; no device is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
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
from bwprof.text.parsing import describe_unknown

StepRow = Mapping[str, Any]

_POINT = ("phase", "step_batch", "context", "weights", "kv")


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step: its rows and their sums; None for what the rows or the device do not give.

    `moved_bytes` are moved by all operations, `read_bytes` are of weights and cache; `mbu_pct` is their bandwidth in
    percent of the theoretical peak, `limit_pct` the time at the roofs in percent of the time, `measured_pct` the share
    of the time that was measured, `missing` why there is no time.
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
        return self.fit is None or self.fit.fits


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
    moved = sum(int(row["count"]) * ((row["bytes_read"] or 0) + (row["bytes_written"] or 0)) for row in rows)
    read = _sum_read_bytes(request, point, rows)
    missing = "; ".join(
        dict.fromkeys(f"{row['status']}: {row['reason'] or 'no time'}" for row in rows if row["time_ms"] is None)
    )
    step = StepFigures(point, tuple(rows), fit, moved, read, missing=missing)
    if missing or not step.may_fit:
        return step
    times = [int(row["count"]) * float(row["time_ms"]) for row in rows]
    total, peak = sum(times), _peak_of(rows)
    limit_pct, limiter = _limit_of(rows, times)
    return replace(
        step,
        time_ms=total,
        tokens_s=point.tokens / total * 1e3,
        mbu_pct=100 * read / total / 1e6 / peak if peak else None,
        limit_pct=limit_pct,
        limiter=limiter,
        measured_pct=100 * sum(time for row, time in zip(rows, times, strict=True) if row["status"] == "ok") / total,
    )


def _limit_of(rows: Sequence[StepRow], times: Sequence[float]) -> tuple[float | None, str | None]:
    """Return the mean share of the roofs by time, known for 95 % of it, and what limits most, known for half of it."""
    limiters: dict[str, float] = {}
    limited = at_limit = 0.0
    for row, time in zip(rows, times, strict=True):
        if row["limiter"]:
            limiters[row["limiter"]] = limiters.get(row["limiter"], 0.0) + time
        if row["pct_limit"] is not None:
            limited, at_limit = limited + time, at_limit + row["pct_limit"] * time
    limiter = max(limiters, key=lambda name: limiters[name], default=None)
    return (
        at_limit / limited if limited >= 0.95 * sum(times) else None,
        limiter if sum(limiters.values()) >= sum(times) / 2 else None,
    )


def _peak_of(rows: Sequence[StepRow]) -> float | None:
    return next((row["peak_gb_s"] for row in rows if row["peak_gb_s"] is not None), None)


def _sum_read_bytes(request: ModelRequest, point: StepPoint, rows: Sequence[StepRow]) -> int:
    """Return the bytes of weights and cache that a step's rows read; ValueError for a role that the step has not."""
    known = request.parts(point)
    parts = {(part.role, part.precision): part for part in known}
    roles = sorted({part.role for part in known})
    read = 0
    for row in rows:
        if row["role"] not in roles:
            what = describe_unknown(f"role in a {point.phase} step", row["role"], roles)
            raise ValueError(f"column role: {what}")
        part = parts.get((row["role"], row["precision"]))
        if part is not None:
            own = part_from_row(row)  # a run may have launched another shape in this role
            part = part if own.params == part.params else replace(own, formats=part.formats)
            read += int(row["count"]) * workload.bytes_read_by(part, request.model)
    return read


def operation_lines(step: StepFigures) -> list[dict[str, Any]]:
    """Return a line for each operation of a step, with its share of the step's time."""
    lines = []
    for row in step.rows:
        count, once = int(row["count"]), row["time_ms"]
        step_ms = None if once is None else count * once
        lines.append(
            {
                **asdict(step.point),
                **{name: row[name] for name in ("role", "operation", "precision")},
                "shape": _describe_shape(row),
                "count": count,
                "time_ms": once,
                "step_ms": step_ms,
                "share_pct": 100 * step_ms / step.time_ms if step_ms is not None and step.time_ms else None,
                "limit_pct": row["pct_limit"],
                "limiter": row["limiter"],
                "status": row["status"],
            }
        )
    return lines


def _describe_shape(row: Mapping[str, Any]) -> str:
    names = {"batch": "b", "seq_len": "s", "kv_len": "kv", "tokens": "t", "active": "e"}
    sizes = [f"{letter}={row[name]}" for name, letter in names.items() if row.get(name) is not None]
    matrix = "x".join(str(row[name]) for name in ("M", "N", "K") if row.get(name) is not None)
    return " ".join([*sizes, matrix]) if matrix else " ".join(sizes)


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


def compute_layers(
    request: ModelRequest, steps: Sequence[StepFigures], rows: Sequence[StepRow]
) -> list[dict[str, Any]]:
    """Return a line for each layer in one graph.

    A line has the time of a layer's operations in one graph, the sum of their own times, and why there is no time.
    """
    by_point = {astuple(step.point): step for step in steps}
    layers = []
    for row in rows:
        step = by_point.get(tuple(row[name] for name in _POINT)) if row["role"] == LAYER else None
        if step is not None:
            reason = None if row["time_ms"] is not None else f"{row['status']}: {row['reason']}"
            together, own = row["time_ms"], _sum_of_layer(request, step)
            times = {"together_ms": together, "sum_ms": own, "ratio": together / own if together and own else None}
            layers.append({**asdict(step.point), **times, "reason": reason})
    return layers


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
    """A step with its weights and its cache in other formats. `source`: measured or predicted."""

    weights: str
    kv: str
    weight_bytes: int
    fits: bool | None
    time_ms: float | None
    source: str


BOTH = "both"


def _short_name(precision: str) -> str:
    return precision.upper().partition("_E")[0]


BestTimes = Callable[[Sequence[StepPart]], Sequence[float]]  # the times of parts at the device's roofs, ms each


class FormatComparison:
    """A step (`base`) in other formats: measured, else predicted from its own operations and their new bytes.

    `steps` are all steps, some of which may be measured in other formats; `best` gives the times of parts at the
    device's roofs, without which predictions follow the bytes.
    """

    def __init__(
        self, request: ModelRequest, steps: Sequence[StepFigures], base: StepFigures, best: BestTimes | None = None
    ) -> None:
        self.request, self.steps, self.base, self._best = request, steps, base, best

    @cached_property
    def formats(self) -> list[StepFormat]:
        """The step with its weights in every format, each with its own cache of 16 or 32 bits; a narrow one stays."""
        point = self.base.point
        names = [name for name in workload.list_formats(WEIGHTS) if name != "tf32"]
        pairs = []
        for name in dict.fromkeys([*names, point.weights]):
            has_own = kv_format(name) != "fp16" or point.kv == "fp32"
            own = name == point.weights or not has_own or registry.is_narrow(point.kv)
            pairs.append((name, point.kv if own else kv_format(name)))
        return self._compare(pairs)

    def offers(self) -> dict[str, StepFormat]:
        """Return the next narrower weights, an eight-bit cache, and both, by name, as far as their times are known."""
        point = self.base.point
        weights = self._narrower_weights()
        narrower = [name for name in workload.list_formats(KV) if registry.is_narrow(name)]
        caches = [] if point.kv in ("fp32", *narrower) else self._compare([(point.weights, kv) for kv in narrower])
        cache = next((line for line in caches if line.time_ms), None)
        lines: dict[str, StepFormat] = {}
        if weights is not None:
            also_cache = "" if weights.kv == point.kv else " and cache"  # FP32's becomes as narrow as the weights
            lines[f"{_short_name(weights.weights)} weights{also_cache}"] = weights
        if cache is not None:
            lines[f"{_short_name(cache.kv)} KV cache"] = cache
            if weights is not None:
                lines[BOTH] = self._compare([(weights.weights, cache.kv)])[0]
        return {name: line for name, line in lines.items() if line.time_ms and self.base.time_ms}

    def _narrower_weights(self) -> StepFormat | None:
        """Return the next narrower format of the weights; None where there is none."""
        lines = {line.weights: line for line in self.formats}
        narrower = registry.narrower_precisions(self.base.point.weights, ("weight",))
        return next((lines[name] for name in narrower if name in lines), None)

    def _compare(self, pairs: Sequence[tuple[str, str]]) -> list[StepFormat]:
        base, result = self.base, []
        for (weights, kv), predicted_ms in zip(pairs, self._predict(pairs), strict=True):
            point = replace(base.point, weights=weights, kv=kv)
            own = next((step for step in self.steps if step.point == point and step.time_ms is not None), None)
            if own is not None:
                time_ms, source = own.time_ms, "measured" if (own.measured_pct or 0) > 50 else "predicted"
            else:
                time_ms, source = predicted_ms, "predicted"
            fit = self.request.fit(point, 1)
            fits = None if base.fit is None else fit.weights + fit.kv <= base.fit.usable
            source = source if time_ms is not None else ""
            time_ms = None if fits is False else time_ms
            result.append(StepFormat(weights, kv, fit.weights, fits, time_ms, source))
        return result

    def _predict(self, pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        """Predict the step's time in pairs of formats; None without a time, or if an operation refuses the format.

        Memory-bound operations change as their time at the roofs does (as their bytes, without roofs); others gain
        nothing.
        """
        rows, new = self.base.rows, [self._parts(weights, kv) for weights, kv in pairs]
        if self.base.time_ms is None:
            return [None] * len(pairs)
        flat = [part_from_row(row) for row in rows] + [part for parts in new for part in parts or ()]
        times = iter(self._best(flat) if self._best is not None else [float(_moved_bytes(part)) for part in flat])
        before = [next(times) for _ in rows]
        result: list[float | None] = []
        for parts in new:
            if parts is None:
                result.append(None)
                continue
            best = zip(rows, before, [next(times) for _ in parts], strict=True)
            result.append(sum(int(row["count"]) * float(row["time_ms"]) * gain(row, *both) for row, *both in best))
        return result

    def _parts(self, weights: str, kv: str) -> list[StepPart] | None:
        """Return the step's operations in other formats; None if one refuses its format, or has another shape."""
        if weights == AS_STORED:
            return None
        point = replace(self.base.point, weights=weights, kv=kv)
        layout = self.request.layout_of(self.base.point.weights)
        try:
            by_role = {part.role: part for part in workload.list_parts(self.request.model, point, layout)}
        except ValueError:
            return None
        parts = [by_role[row["role"]] for row in self.base.rows if row["role"] in by_role]
        shapes = [part_from_row(row).params for row in self.base.rows]
        return parts if [part.params for part in parts] == shapes else None


def gain(row: StepRow, before: float, after: float) -> float:
    """Return the factor of a row's time in another format, from its times at the roofs.

    If something else than memory limits, a narrower format saves no time, as in `bwprof.speedup`.
    """
    factor = after / before if before else 1.0
    return factor if explain_no_gain(row) is None else max(factor, 1.0)


# ---- what fits ----


def compute_room(request: ModelRequest, memory: int) -> list[dict[str, Any]]:
    """Compute the largest batch by context, and the longest context by batch, that fit the memory beside the weights.

    A line for each pair of formats and context, with the bytes that one more token adds; one for each pair and batch.
    """
    model, lines = request.model, []
    contexts = dict.fromkeys(point.context for point in request.points)
    batches = dict.fromkeys(point.batch for point in request.points)
    for weights, kv in dict.fromkeys((point.weights, point.kv) for point in request.points):
        size = request.weight_bytes(weights)
        left = workload.Fit(size, 0, memory, request.reserve).usable - size
        pair = {"weights": weights, "kv": kv, "weight_bytes": size}
        for context in contexts:
            now, then = (workload.kv_bytes(model, kv, 1, tokens) for tokens in (context, context + 1))
            batch = workload.largest_batch(model, kv, context, left)
            lines.append({**pair, "context": context, "largest_batch": batch, "token_bytes": then - now})
        for batch in batches:
            longest = workload.longest_context(model, kv, batch, left)
            lines.append({**pair, "batch": batch, "longest_context": longest})
    return lines


# ---- omitted work ----


def time_omitted(
    request: ModelRequest, base: StepFigures, seconds: Callable[[float, float], Any] | None = None
) -> list[OmittedWork]:
    """Estimate the time of a step's other work: a stream of its bytes plus a launch's floor; fused kernels take less.

    `seconds` returns the time of a stream that reads and writes so many bytes; else the theoretical peak is used.
    """
    floors = sorted(row["timer_floor_us"] for row in base.rows if row.get("timer_floor_us") is not None)
    floor_ms = floors[len(floors) // 2] / 1e3 if floors else 0.0
    peak = _peak_of(base.rows)
    omitted = []
    for item in workload.list_omitted(request.model, base.point):
        once = item.bytes / peak / 1e6 + floor_ms if peak else None
        if seconds is not None:
            once = 1e3 * float(seconds(item.bytes // 2, item.bytes - item.bytes // 2))
        omitted.append(replace(item, time_ms=None if once is None else item.count * once))
    return omitted
