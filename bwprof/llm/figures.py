"""What a model's rows say: per step its time and tokens, what limits it, what other formats would bring, what fits.

Rows are plain dicts with the columns of the schema and those of `bwprof.models.question.LABELS`; no device is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from bwprof import registry
from bwprof.costs import cost
from bwprof.llm import workload
from bwprof.llm.workload import AS_STORED, DECODE, LAYER, WEIGHTS, ModelRequest, OmittedWork, StepPart, StepPoint
from bwprof.roofs.limiter import explain_no_gain

StepRow = Mapping[str, Any]

# Of which roof a row's share counts, by the side of the ridge that it is on.
_SHARES = {"memory": "pct_attainable", "compute": "pct_roofline"}


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step: its rows, and what they add up to. None where a row has no time, or its device no such figure.

    `limit_pct`: the time at the roofs that apply, of the time taken. `mbu_pct`: the bytes of weights and cache that the
    step reads, by its time, of the theoretical peak. `measured_pct`: of the time, what was measured.
    """

    point: StepPoint
    rows: tuple[StepRow, ...]
    fit: workload.Fit | None
    time_ms: float | None
    tokens_s: float | None
    moved_bytes: int
    read_bytes: int
    mbu_pct: float | None
    limit_pct: float | None
    limiter: str | None
    measured_pct: float | None
    missing: str


def compute_steps(question: ModelRequest, rows: Sequence[StepRow], memory_bytes: int | None) -> list[StepFigures]:
    """The steps of a question, in its order, from their rows; those that have none are left out."""
    by_point: dict[tuple[object, ...], list[StepRow]] = {}
    for row in (row for row in rows if row["role"] != LAYER):
        by_point.setdefault(tuple(row[name] for name in _POINT), []).append(row)
    found = []
    for point in question.points:
        own = by_point.get(astuple(point))
        if own:
            memory = question.memory_bytes or memory_bytes
            found.append(_step(question, point, own, question.fit(point, memory) if memory else None))
    return found


_POINT = ("phase", "step_batch", "context", "weights", "kv")


def _step(question: ModelRequest, point: StepPoint, rows: list[StepRow], fit: workload.Fit | None) -> StepFigures:
    question.check_roles(point, (row["role"] for row in rows))
    by_part = {(part.role, part.precision): part for part in question.parts(point)}
    read = sum(
        int(row["count"]) * workload.bytes_read_by(_as_launched(part, row), question.model)
        for row in rows
        if (part := by_part.get((row["role"], row["precision"]))) is not None
    )
    moved = sum(int(row["count"]) * ((row["bytes_read"] or 0) + (row["bytes_written"] or 0)) for row in rows)
    missing = "; ".join(dict.fromkeys(_why(row) for row in rows if row["time_ms"] is None))
    if missing or (fit is not None and not fit.fits):
        return StepFigures(point, tuple(rows), fit, None, None, moved, read, None, None, None, None, missing)
    times = [int(row["count"]) * float(row["time_ms"]) for row in rows]
    total = sum(times)
    peak = next((row["peak_gb_s"] for row in rows if row["peak_gb_s"] is not None), None)
    measured = sum(time for row, time in zip(rows, times, strict=True) if row["status"] == "ok")
    return StepFigures(
        point,
        tuple(rows),
        fit,
        total,
        (point.tokens if point.phase != DECODE else point.batch) / total * 1e3,
        moved,
        read,
        100 * read / total / 1e6 / peak if peak else None,
        _weighted([limit_pct(row) for row in rows], times),
        _most([limiter(row) for row in rows], times),
        100 * measured / total,
        "",
    )


def _why(row: StepRow) -> str:
    if row["status"] == "predicted" and row.get("attainable_gb_s") is None:
        return (
            f"no kernel takes {row['precision']} here, and without the device's roofs its time cannot be predicted: "
            "measure with them (without --no-roofs, roofs=False)"
        )
    return f"{row['status']}: {row['reason'] or 'no time'}"


def limiter(row: StepRow) -> str | None:
    """What limits a row: its column of that name, else the side of the ridge."""
    return row.get("limiter") or row.get("bound") or None


def limit_pct(row: StepRow) -> float | None:
    """A row's share of the roof that applies to it."""
    found: float | None = row.get("pct_limit")
    return row.get(_SHARES.get(row.get("bound") or "", "pct_attainable")) if found is None else found


def _weighted(shares: Iterable[float | None], times: Sequence[float]) -> float | None:
    """The shares' mean by time, where they are known of nearly all of it."""
    known = [(share, time) for share, time in zip(shares, times, strict=True) if share is not None]
    weight = sum(time for _, time in known)
    if weight < 0.95 * sum(times):
        return None
    return sum(share * time for share, time in known) / weight


def _most(words: Iterable[str | None], times: Sequence[float]) -> str | None:
    """The word that stands for most of the time; None where it is not known of half of it."""
    found: dict[str, float] = {}
    for word, time in zip(words, times, strict=True):
        if word:
            found[word] = found.get(word, 0.0) + time
    if sum(found.values()) < sum(times) / 2:
        return None
    return max(found, key=lambda word: found[word], default=None)


# ---- a layer in one graph ----


@dataclass(frozen=True, slots=True)
class FormatOffer:
    """A layer's operations in one graph, and the sum of their own times; None where there is no time, with why."""

    point: StepPoint
    together_ms: float | None
    sum_ms: float | None
    reason: str


def compute_layers(question: ModelRequest, found: Sequence[StepFigures], rows: Sequence[StepRow]) -> list[FormatOffer]:
    """Every layer that was measured in one graph; not those without kernels, which older runs list as skipped."""
    steps_by = {astuple(step.point): step for step in found}
    result = []
    for row in (row for row in rows if row["role"] == LAYER):
        step = steps_by.get(tuple(row[name] for name in _POINT))
        if step is None or (row["status"] == "skipped" and _any_predicted(step)):
            continue
        parts = question.parts(step.point, one_layer=True)
        times = {(part["role"], *part_from_row(part).params.values()): part["time_ms"] for part in step.rows}
        known = [times.get((part.role, *part.params.values())) for part in parts]
        total = None
        if all(time is not None for time in known):
            total = sum(part.count * float(time) for part, time in zip(parts, known, strict=True) if time is not None)
        said = "" if row["time_ms"] is not None else f"{row['status']}: {row['reason']}"
        result.append(FormatOffer(step.point, row["time_ms"], total, said))
    return result


def without_layer(
    question: ModelRequest, found: Sequence[StepFigures], layers: Sequence[FormatOffer]
) -> list[StepPoint]:
    """The steps whose layer in one graph was asked for, but has no kernels to be measured with."""
    if not question.chain:
        return []
    there = {layer.point for layer in layers}
    return [step.point for step in found if step.point not in there and _any_predicted(step)]


def _any_predicted(step: StepFigures) -> bool:
    return any(row["status"] == "predicted" for row in step.rows)


# ---- other formats ----


@dataclass(frozen=True, slots=True)
class StepFormat:
    """A step with its weights and its cache in other formats. `source`: measured or predicted; of the latter whether
    there is no kernel.
    """

    weights: str
    kv: str
    weight_bytes: int
    fits: bool | None
    time_ms: float | None
    source: str
    kv_bytes: int = 0


NO_KERNEL = "predicted, no kernel"

# What parts would take at their device's roofs, ms each.
BestTimes = Callable[[Sequence[StepPart]], Sequence[float]]


def formats_of(
    question: ModelRequest, found: Sequence[StepFigures], base: StepFigures, best: BestTimes | None = None
) -> list[StepFormat]:
    """A step in every format: as it was measured, else as its own operations would do with other bytes."""
    names = [name for name in workload.list_formats(WEIGHTS) if name != "tf32"]
    if base.point.weights not in names:
        names.append(base.point.weights)
    pairs = [(name, base.point.kv if name == base.point.weights else _kv_beside(name, base.point.kv)) for name in names]
    return _in_formats(question, found, base, pairs, best)


@dataclass(frozen=True, slots=True)
class FormatOffer:
    """What narrower weights, a narrower cache, or both (as people call them) make a step: so many times as fast."""

    said: str
    times: float
    is_measured: bool


def offers_of(
    question: ModelRequest,
    found: Sequence[StepFigures],
    base: StepFigures,
    formats: Sequence[StepFormat],
    best: BestTimes | None = None,
) -> list[FormatOffer]:
    """What the next narrower weights, an eight-bit cache, and both bring; those that are not known are left out."""
    point = base.point
    weights = narrower(point.weights, {line.weights for line in formats if line.source == NO_KERNEL})
    caches = _narrower_caches(point.kv)
    cached = dict(
        zip(caches, _in_formats(question, found, base, [(point.weights, kv) for kv in caches], best), strict=True)
    )
    kv = next((kv for kv, line in cached.items() if line.source != NO_KERNEL and line.time_ms), None)
    lines: list[tuple[str, StepFormat | None]] = []
    if weights is not None:
        found_line = next((line for line in formats if line.weights == weights[0]), None)
        alone = found_line is None or found_line.kv == point.kv  # FP32's cache becomes as narrow as the weights
        lines.append((f"{weights[1]} weights{'' if alone else ' and cache'}", found_line))
    if kv is not None:
        lines.append((f"{_CACHES[kv]} KV cache", cached[kv]))
    if weights is not None and kv is not None:
        lines.append((BOTH, _in_formats(question, found, base, [(weights[0], kv)], best)[0]))
    return [
        FormatOffer(said, base.time_ms / line.time_ms, line.source == "measured")
        for said, line in lines
        if line is not None and line.time_ms and base.time_ms
    ]


def cache_that_fits(
    question: ModelRequest, found: Sequence[StepFigures], base: StepFigures, formats: Sequence[StepFormat]
) -> StepFormat | None:
    """For a step that does not fit in whatever weights: an eight-bit cache with which it does, beside its weights, else
    beside the widest narrower ones; None where there is none.
    """
    if base.fit is None or any(line.fits for line in formats):
        return None
    size = base.fit.weights
    narrow = sorted((line for line in formats if line.weight_bytes < size), key=lambda line: -line.weight_bytes)
    weights = [base.point.weights, *(line.weights for line in narrow)]
    pairs = [(name, kv) for name in weights for kv in _narrower_caches(base.point.kv)]
    for line in _in_formats(question, found, base, pairs, None):
        if line.fits and not _without_kernels(question, base, line.weights, line.kv):
            return line
    return None


def _narrower_caches(kv: str) -> list[str]:
    return [] if registry.is_narrow(kv) or kv == "fp32" else list(_CACHES)


BOTH = "both"

_CACHES = {"fp8_e4m3": "FP8", "int8": "INT8"}


def _in_formats(
    question: ModelRequest,
    found: Sequence[StepFigures],
    base: StepFigures,
    pairs: Sequence[tuple[str, str]],
    best: BestTimes | None,
) -> list[StepFormat]:
    """A step with its weights and its cache in pairs of formats: measured, else predicted."""
    projected = projected_ms(question, base, pairs, best)
    result = []
    for (weights, kv), other in zip(pairs, projected, strict=True):
        wanted = replace(base.point, weights=weights, kv=kv)
        own = next((step for step in found if step.point == wanted), None)
        time_ms: float | None
        if own is not None and own.time_ms is not None:
            time_ms, source = own.time_ms, "measured" if (own.measured_pct or 0) > 50 else "predicted"
        else:
            guessed = NO_KERNEL if _without_kernels(question, base, weights, kv) else "predicted"
            time_ms, source = other, guessed if other is not None else ""
        size = question.weight_bytes(weights)
        cache = workload.kv_bytes(question.model, kv, base.point.batch, base.point.context)
        fits = None if base.fit is None else size + cache <= base.fit.usable
        result.append(StepFormat(weights, kv, size, fits, time_ms if fits is not False else None, source, cache))
    return result


def _kv_beside(weights: str, kv: str) -> str:
    """The cache's format in a table over the weights' formats: a narrow one as it was, else one as wide as they are."""
    if not registry.is_narrow(kv) and (weights in ("fp32", "bf16") or kv == "fp32"):
        return workload.kv_format(weights)
    return kv


def projected_ms(
    question: ModelRequest, base: StepFigures, pairs: Sequence[tuple[str, str]], best: BestTimes | None = None
) -> list[float | None]:
    """The time of a step with its weights and its cache in other formats.

    What memory limits takes as much longer or shorter as it would at the device's roofs (`best`; as its bytes, where
    those are not known), at the same share of them. What arithmetic, a launch's latency or the kernel limits gains
    nothing. None where the step has no time, or an operation does not take the format.
    """
    now = [_other_parts(question, base, weights, kv) for weights, kv in pairs]
    if base.time_ms is None:
        return [None] * len(pairs)
    before = [part_from_row(row) for row in base.rows]
    flat = [part for parts in now for part in parts or ()]
    times = list(best([*before, *flat])) if best is not None else [float(_moved(part)) for part in (*before, *flat)]
    old, rest = times[: len(before)], iter(times[len(before) :])
    return [None if parts is None else _sum(base, old, [next(rest) for _ in parts]) for parts in now]


def _sum(base: StepFigures, before: Sequence[float], after: Sequence[float]) -> float:
    """The step's time, each operation's changed as its best time changes."""
    total = 0.0
    for row, old, new in zip(base.rows, before, after, strict=True):
        total += int(row["count"]) * float(row["time_ms"]) * gain(row, old, new)
    return total


def gain(row: StepRow, before: float, after: float) -> float:
    """How much longer a row takes in another format, from its best times there: fewer bytes are no less time where
    something else limits, as `bwprof.speedup` has it.
    """
    factor = after / before if before else 1.0
    return factor if explain_no_gain(row) is None else max(factor, 1.0)


def _other_parts(question: ModelRequest, base: StepFigures, weights: str, kv: str) -> list[StepPart] | None:
    """The step's operations in other formats, as its rows have them; None where one does not take its format."""
    if weights == AS_STORED:
        return None
    other = replace(base.point, weights=weights, kv=kv)
    try:
        found = workload.list_parts(question.model, other, question.layout_of(base.point.weights))
    except ValueError:
        return None
    by_role = {part.role: part for part in found}
    parts = [by_role.get(row["role"]) for row in base.rows]
    # A run of a bwprof that launched other shapes in this role has none of the step's.
    alike = [
        part for part, row in zip(parts, base.rows, strict=True) if part and part.params == part_from_row(row).params
    ]
    return alike if len(alike) == len(parts) else None


def _without_kernels(question: ModelRequest, base: StepFigures, weights: str, kv: str) -> bool:
    """Whether nothing runs an operation of the step in other formats on its device, a CPU."""
    backend = str(base.rows[0]["backend"])
    found = _other_parts(question, base, weights, kv) or []
    return any(registry.lacks_kernel(part.operation, part.precision, backend) for part in found)


def part_from_row(row: StepRow) -> StepPart:
    """The operation that a row is of."""
    params = {name: int(row[name]) for name in registry.param_names(row["operation"])}
    part = StepPart(str(row.get("role", "")), row["operation"], row["precision"], params, 1, "")
    read = row.get("bytes_read") if row["status"] == "predicted" else None
    return part if read is None else replace(part, more=int(read + row["bytes_written"]) - _moved(part))


def _as_launched(part: StepPart, row: StepRow) -> StepPart:
    """A part of a step with the shape that its row has."""
    own = part_from_row(row)
    return part if own.params == part.params else replace(own, formats=part.formats)


def _moved(part: StepPart) -> int:
    params: dict[str, Any] = dict(part.params)
    return int(cost(part.operation, precision=part.precision, **params).bytes) + part.more


_NARROWER = (
    (("fp32", "tf32"), ("fp16", "FP16")),
    (("fp16", "bf16"), ("fp8_e4m3", "FP8")),
    (("fp8_e4m3", "int8"), ("q4_0", "Q4_0")),
)


def narrower(weights: str, without: Collection[str] = ()) -> tuple[str, str] | None:
    """The next narrower format of the weights that is none of those, and what people call it; None below 8 bits."""
    while found := next((found for names, found in _NARROWER if weights in names), None):
        if found[0] not in without:
            return found
        weights = found[0]
    return None


# ---- what fits ----


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """The largest batch at a context, or the longest context of a batch, that fits beside the weights."""

    weights: str
    kv: str
    weight_bytes: int
    token_bytes: dict[int, int]  # by context: of a further token
    batches: dict[int, int]
    contexts: dict[int, int | None]  # None: any


def rooms_of(question: ModelRequest, memory_bytes: int) -> list[MemoryRoom]:
    """For each pair of formats that was asked for."""
    memory = question.memory_bytes or memory_bytes
    pairs = dict.fromkeys((point.weights, point.kv) for point in question.points)
    contexts = dict.fromkeys(point.context for point in question.points)
    batches = dict.fromkeys(point.batch for point in question.points)
    found = []
    for weights, kv in pairs:
        size = question.weight_bytes(weights)
        fit = workload.Fit(size, 0, memory, question.reserve)
        found.append(
            MemoryRoom(
                weights,
                kv,
                size,
                {at: workload.next_token_bytes(question.model, kv, at) for at in contexts},
                {at: workload.largest_batch(question.model, size, kv, at, fit) for at in contexts},
                {of: workload.longest_context(question.model, size, kv, of, fit) for of in batches},
            )
        )
    return found


# ---- what is left out ----


def time_omitted(
    question: ModelRequest, base: StepFigures, bandwidth: Callable[[int, int], float | None] | None = None
) -> list[OmittedWork]:
    """Each thing that a step does beside its operations, at the bandwidth of a stream of its bytes plus a launch's
    floor; kernels that engines fuse take less.

    Parameters
    ----------
    bandwidth : callable, optional
        GB/s of a stream that reads and writes so many bytes; the rows' theoretical peak where there is none.
    """
    floors = sorted(row["timer_floor_us"] for row in base.rows if row.get("timer_floor_us") is not None)
    floor_ms = floors[len(floors) // 2] / 1e3 if floors else 0.0
    peak = next((row["peak_gb_s"] for row in base.rows if row["peak_gb_s"] is not None), None)
    found = []
    for item in workload.list_omitted(question.model, base.point):
        speed = bandwidth(item.bytes // 2, item.bytes - item.bytes // 2) if bandwidth else peak
        once = item.bytes / speed / 1e6 + (0.0 if bandwidth else floor_ms) if speed else None
        found.append(replace(item, time_ms=None if once is None else item.count * once))
    return found
