"""Measure an operation: from a `Spec` to a finished row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from bwprof import _core, registry
from bwprof.measuring import row as measuring_row
from bwprof.measuring.row import Context, Outcome, add_method, add_time, add_work, describe_origin, make_failed
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.roofs.disturbance import References
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import describe_unknown, parse_bool, parse_fraction, repr_short

CACHES = ("cold", "hot")

DEFAULT_CACHE = "cold"

DEFAULT_REL_CI = 0.005


@dataclass(frozen=True, slots=True)
class Spec:
    """One case to measure. `variant` and `timer` None leave the choice to the device."""

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
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Spec:
        """The inverse of `to_dict`."""
        lens = found["kv_lens"]
        metrics = tuple(found.get("metrics", ()))
        spec = cls(**{**found, "kv_lens": tuple(lens) if lens is not None else None, "metrics": metrics})
        return replace(spec, case=registry.case_name(spec.case, spec.kv_lens))  # a plan that was written before

    def open(self, device: _core.Device, *, nvtx: bool = True) -> _core.Case:
        """The case on a device, nothing allocated yet. `nvtx`: tools that watch the process are told of it."""
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
        """The same from a file that may not be bwprof's own writing; ValueError for what cannot be run."""
        spec = cls.from_dict(found)
        for name in ("case", "cache", "timer", "variant"):
            value = getattr(spec, name)
            if not isinstance(value, str) and not (value is None and name in ("timer", "variant")):
                raise ValueError(f"{name} is {repr_short(value)}, text is needed")
        registry.check_timer(spec.timer, backend)
        parse_bool(spec.counters, "counters")
        if spec.cache not in CACHES:
            raise ValueError(describe_unknown("cache", spec.cache, CACHES))
        known = registry.variant_names(spec.operation, backend)
        if spec.variant is not None and spec.variant not in known:
            raise ValueError(describe_unknown(f"variant of {spec.operation} on {backend}", spec.variant, known))
        registry.check_seed(spec.seed)
        registry.check_metrics(spec.metrics, backend)
        if spec.rel_ci is not None:
            parse_fraction(spec.rel_ci, "rel_ci")
        allowed = registry.operation(spec.operation)["precisions"]
        precision = registry.check_precision(spec.precision)
        usable = precision if precision in allowed else allowed[0]  # one that is not leaves a skipped row
        whole = registry.complete_params(spec.operation, usable, spec.params, spec.kv_lens)
        return replace(spec, precision=precision, params=whole)

    def blank_row(self, context: Context) -> RowDict:
        """The case's row before it has run: identity, work and provenance."""
        row = schema.empty_row()
        row.update(self.params)
        row.update(
            operation=self.operation,
            precision=self.precision,
            case=self.case,
            kv_lens=registry.format_lengths(self.kv_lens),
            variant=self.variant,
            cache=self.cache,
            seed=self.seed,
            **describe_origin(context),
        )
        row.update(context.labels)
        with suppress(ValueError):  # a precision that the operation does not have: the row says so when it has run
            add_work(row, _core.cost(self.operation, self.precision, self.params, self.kv_lens, None, None))
        return row

    @property
    def title(self) -> str:
        """For progress lines: case, precision, variant."""
        words = [self.case, self.precision, self.variant or "", "" if self.cache == DEFAULT_CACHE else self.cache]
        return " ".join(word for word in words if word)


COLD_MIN_BYTES = 1 << 20  # of footprint: below, what else the device reads would blur the ratio


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
    """Measure one case. Whatever goes wrong with it becomes a skipped or failed row, never an exception.

    A case that heat slowed is measured twice, unless that would go past `deadline`, a time.monotonic().
    """
    row = spec.blank_row(context)
    lost = False

    try:
        with spec.open(device, nvtx=nvtx) as case:
            row["variant"] = case.variant
            add_work(row, case.cost)
            need = case.memory_needed(spec.cache)
            if not need["fits"]:
                return make_failed(row, "skipped", _too_big(need))
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
                may_repeat=measuring_row.may_repeat(deadline, max_seconds),
            )
            if spec.counters and result["verified"]:
                counted, lost = _counted(case, spec)
                result |= counted
            if spec.metrics and result["verified"] and not lost:
                counted, lost = _metrics(case, spec)
                result |= counted | {"launch": _launch(device, case, spec)}
            row["variant"] = case.variant  # a default may be passed over when it cannot be prepared
            add_work(row, case.cost)
    except (_core.UnsupportedError, _core.MemoryLimitError) as error:
        predicted = registry.is_predicted(spec.operation, spec.precision, context.backend)
        return make_failed(row, "predicted" if predicted else "skipped", str(error))
    except MemoryError as error:
        return make_failed(row, "skipped", str(error) or "out of memory")
    except _core.DeviceError as error:
        return make_failed(row, "failed", str(error), fatal=bool(getattr(error, "fatal", False)))
    except (ValueError, RuntimeError, OSError) as error:
        return make_failed(row, "failed", f"{type(error).__name__}: {error}")
    return replace(finish_row(row, result, context, waited), fatal=lost)


def _counted(case: _core.Case, spec: Spec) -> tuple[dict[str, Any], bool]:
    """What the counters say of one cold launch and of the rotation, and whether the device was lost over it."""
    found, lost = _tried("counters_status", spec, case.count)
    if not lost and found["counters_status"] == "ok":
        rotation, lost = _tried("rotation_status", spec, lambda: _rotation(case))
        found |= rotation
    return found, lost


def _metrics(case: _core.Case, spec: Spec) -> tuple[dict[str, Any], bool]:
    """What the metrics say of one cold launch, likewise."""

    def counted() -> dict[str, Any]:
        found = case.count_metrics(spec.metrics)
        return {"metrics_status": found.pop("metrics_status"), "metrics": found}

    return _tried("metrics_status", spec, counted)


def _launch(device: _core.Device, case: _core.Case, spec: Spec) -> RowDict:
    """What a launch is made of, and takes of the device, where it is one kernel of bwprof's own."""
    try:
        kernels = device.kernels(spec.operation, spec.precision, spec.params, case.variant, spec.kv_lens)
    except (_core.UnsupportedError, _core.UnavailableError):
        return {}
    if len(kernels) != 1:
        return {}
    (kernel,) = kernels
    held = kernel["resident_blocks"] * device.facts()["units"]
    return {
        "grid_blocks": kernel["blocks"],
        "block_threads": kernel["threads"],
        "registers": kernel["registers"],
        "shared_bytes": kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"],
        "waves": kernel["blocks"] / held if held else None,
    }


def _tried(status: str, spec: Spec, count: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """What `count` gives, or why it gave nothing under `status`; and whether the device was lost over it.

    Never an exception: the row has its time already, and keeps it.
    """
    if spec.cache != "cold":
        return {status: "not counted: counters see a cold launch, this row is hot"}, False
    try:
        return count(), False
    except (RuntimeError, ValueError, MemoryError, OSError) as error:
        said = str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)
        return {status: f"not counted: {said}"}, bool(getattr(error, "fatal", False))


def _rotation(case: _core.Case) -> dict[str, Any]:
    """How much of its inputs a launch of the rotation reads from DRAM, where that can be told; 1 = all."""
    wanted = case.cost["bytes_read"]
    if not wanted or case.cost["footprint_bytes"] <= COLD_MIN_BYTES:
        return {}
    return {"cold_reads": case.count(rotated=True)["dram_bytes_read"] / wanted}


def _too_big(need: dict[str, int]) -> str:
    return f"needs {format_bytes(need['needed'])} of memory, {format_bytes(need['free'])} are free"


def finish_row(row: RowDict, result: dict[str, Any], context: Context, waited: float = 0.0) -> Outcome:
    """The row of a case that has run, with what follows from the result; failed where that is wrong."""
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
    beaten_by = add_time(row, result, context, waited)
    return Outcome(row, list(result["samples_ns"]), beaten=beaten_by, references=References.of(result))
