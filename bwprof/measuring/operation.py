"""Measure an operation: from a `Spec` to a finished row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from bwprof import _core, registry
from bwprof.measuring import row as measuring_row
from bwprof.measuring.row import (
    Context,
    Outcome,
    add_method,
    add_time,
    add_work,
    make_blank,
    make_failed,
    split_metrics,
    try_count,
)
from bwprof.results.schema import RowDict
from bwprof.roofs.model import References, RoofPoint, Roofs
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import check_known, parse_bool, parse_fraction, repr_short

CACHES = ("cold", "hot")
DEFAULT_CACHE = "cold"
DEFAULT_REL_CI = 0.005


@dataclass(frozen=True, slots=True)
class Spec:
    """One case to measure; the device chooses a `variant` or `timer` that is None."""

    case: str
    operation: str
    precision: str
    params: dict[str, int]
    kv_lens: tuple[int, ...] | None
    variant: str | None
    cache: str
    seed: int
    timer: str | None = None
    counters: bool = False
    metrics: tuple[str, ...] = ()
    rel_ci: float | None = None  # None: DEFAULT_REL_CI
    repeatable: ClassVar[bool] = True

    def to_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Spec:
        """Read what `to_dict` returns."""
        lens = found["kv_lens"]
        metrics = tuple(found.get("metrics", ()))
        spec = cls(**{**found, "kv_lens": tuple(lens) if lens is not None else None, "metrics": metrics})
        return replace(spec, case=registry.case_name(spec.case, spec.kv_lens))

    def open(self, device: _core.Device, *, nvtx: bool = True) -> _core.Case:
        """Return the case on a device; nothing is allocated yet. `nvtx` annotates its ranges for tools."""
        return _core.Case(
            device,
            self.operation,
            self.precision,
            self.params,
            kv_lens=self.kv_lens,
            variant=self.variant,
            seed=self.seed,
            name=self.case,
            nvtx=nvtx,
        )

    @classmethod
    def checked(cls, found: Mapping[str, Any], backend: str) -> Spec:
        """Read a case of any file; ValueError for one that cannot run."""
        spec = cls.from_dict(found)
        for name in ("case", "cache", "timer", "variant"):
            value = getattr(spec, name)
            if not isinstance(value, str) and not (value is None and name in ("timer", "variant")):
                raise ValueError(f"{name} is {repr_short(value)}, text is needed")
        registry.check_timer(spec.timer, backend)
        parse_bool(spec.counters, "counters")
        check_known("cache", spec.cache, CACHES)
        registry.check_variant(spec.operation, backend, spec.variant)
        registry.check_seed(spec.seed)
        registry.check_metrics(spec.metrics, backend)
        if spec.rel_ci is not None:
            parse_fraction(spec.rel_ci, "rel_ci")
        allowed = registry.operation(spec.operation)["precisions"]
        precision = registry.check_precision(spec.precision)
        usable = precision if precision in allowed else allowed[0]  # an unusable one leaves a skipped row
        params = registry.complete_params(spec.operation, usable, spec.params, spec.kv_lens)
        return replace(spec, precision=precision, params=params)

    def blank_row(self, context: Context) -> RowDict:
        """Return the row before the case has run: identity, work and origin."""
        names = ("operation", "precision", "case", "variant", "cache", "seed")
        identity = self.params | {name: getattr(self, name) for name in names}
        row = make_blank(context, identity | {"kv_lens": registry.format_lengths(self.kv_lens)})
        with suppress(ValueError):  # a precision that the operation lacks: the row is skipped later
            add_work(row, _core.cost(self.operation, self.precision, self.params, self.kv_lens, None, None))
        return row

    @property
    def title(self) -> str:
        """Case, precision and variant, for progress lines."""
        words = [self.case, self.precision, self.variant or "", "" if self.cache == DEFAULT_CACHE else self.cache]
        return " ".join(word for word in words if word)


COLD_MIN_BYTES = 1 << 20  # of footprint: below it, the device's other reads distort the ratio


def measure(
    device: _core.Device,
    spec: Spec,
    context: Context,
    *,
    max_seconds: float,
    deadline: float | None = None,
    poll: Callable[[], object] | None = None,
    nvtx: bool = True,
) -> Outcome:
    """Measure one case; an error becomes a skipped or failed row.

    A case that heat slowed is measured twice, unless that would pass `deadline`, a time.monotonic().
    """
    row = spec.blank_row(context)
    try:
        with spec.open(device, nvtx=nvtx) as case:
            row["variant"] = case.variant
            add_work(row, case.cost)
            need = case.memory_needed(spec.cache)
            if not need["fits"]:
                needed, free = format_bytes(need["needed"]), format_bytes(need["free"])
                return make_failed(row, "skipped", f"needs {needed} of memory, {free} are free")
            result, waited = measuring_row.measure_cool(
                lambda: case.measure(
                    cache=spec.cache,
                    precision_target=spec.rel_ci or DEFAULT_REL_CI,
                    max_seconds=max_seconds,
                    poll=poll,
                    timer=spec.timer,
                ),
                device.conditions,
                poll,
                deadline=deadline,
                max_seconds=max_seconds,
            )
            if result["verified"]:
                result |= _count_traffic(device, case, spec)
            row["variant"] = case.variant  # a default may be passed over when it cannot be prepared
            need = case.memory_needed("hot")  # one buffer set
            row["scratch_bytes"], row["peak_memory_bytes"] = need["scratch"], need["needed"]
            add_work(row, case.cost)
    except (ValueError, RuntimeError, MemoryError, OSError) as error:
        return measuring_row.make_failed_by(error, row)
    return replace(finish_row(row, result, context, waited), fatal="lost" in result)


def _count_traffic(device: _core.Device, case: _core.Case, spec: Spec) -> dict[str, Any]:
    """Count the bytes of a cold launch and of the rotation, and the metrics, where they are asked for."""
    found: dict[str, Any] = {}
    if spec.counters:
        found |= try_count("counters_status", spec.cache, case.count)
        if found["counters_status"] == "ok":
            found |= try_count("rotation_status", spec.cache, lambda: _count_rotation(case))
    if spec.metrics and "lost" not in found:
        found |= try_count("metrics_status", spec.cache, lambda: split_metrics(case.count_metrics(spec.metrics)))
        found["launch"] = _describe_launch(device, case, spec)
    return found


def _describe_launch(device: _core.Device, case: _core.Case, spec: Spec) -> RowDict:
    """Return grid, registers and waves of a launch that is one kernel of bwprof's own; else {}."""
    try:
        kernels = device.kernels(spec.operation, spec.precision, spec.params, case.variant, spec.kv_lens)
    except (_core.UnsupportedError, _core.UnavailableError):
        return {}
    if len(kernels) != 1:
        return {}
    (kernel,) = kernels
    at_once = kernel["resident_blocks"] * device.facts()["units"]
    return {
        "grid_blocks": kernel["blocks"],
        "block_threads": kernel["threads"],
        "registers": kernel["registers"],
        "shared_bytes": kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"],
        "waves": kernel["blocks"] / at_once if at_once else None,
    }


def _count_rotation(case: _core.Case) -> dict[str, Any]:
    """Return the share of its inputs that a launch of the rotation reads from DRAM; {} for small cases."""
    compulsory = case.cost["bytes_read"]
    if not compulsory or case.cost["footprint_bytes"] <= COLD_MIN_BYTES:
        return {}
    return {"cold_reads": case.count(rotated=True)["dram_bytes_read"] / compulsory}


def finish_row(row: RowDict, result: dict[str, Any], context: Context, waited: float = 0.0) -> Outcome:
    """Return the row of a case that has run; a failed one where the result is wrong."""
    row.update(
        verified=result["verified"],
        max_error=result["max_error"],
        tolerance=result["tolerance"],
        rows_checked=result["rows_checked"],
        rows_total=result["rows_total"],
    )
    add_method(row, result)
    if not result["verified"]:
        reason = result["reason"] or f"the error {result['max_error']:.3g} is above {result['tolerance']:.3g}"
        return make_failed(row, "failed", f"wrong result: {reason}")
    add = _add_link_time if registry.is_link(row["operation"]) else add_time
    beaten, samples = add(row, result, context, waited), list(result["samples_ns"])
    return Outcome(row, samples, beaten=beaten, references=References.of(result))


def _add_link_time(row: RowDict, result: dict[str, Any], context: Context, waited: float) -> float:
    """Fill in the time of a copy over the link to the host; its roof is what that carries each way, in theory."""
    each, node = context.facts.get("link_gb_s"), context.facts.get("host_numa_node", -1)
    total = row["bytes_read"] + row["bytes_written"]
    peak = each * total / max(row["bytes_read"], row["bytes_written"]) if each and each > 0 else None
    points = (RoofPoint("link", row["bytes_read"] / total, total, total / (1e9 * peak)),) if peak else ()
    roofs = Roofs(context.facts["name"], "", "", "", 0.0, points)
    add_time(row, result, replace(context, facts=context.facts | {"peak_gb_s": peak}, roofs=roofs), waited)
    if peak:
        roof = f"the roof is {context.facts['link']}: {each:.1f} GB/s each way in theory, a tenth of it packet headers"
        near = f"the nearest NUMA node is {node}" if node >= 0 else ""
        row["reason"] = "; ".join(filter(None, (row["reason"], roof, near)))
        row["limiter"] = "link" if row["limiter"] == "memory" else row["limiter"]
    return 0.0
