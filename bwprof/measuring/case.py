"""One case on one device: from a Spec to a finished row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bwprof import _core, registry
from bwprof.measuring import conditions
from bwprof.measuring.row import Context, Outcome, add_method, add_time, add_work, ended
from bwprof.measuring.spec import DEFAULT_REL_CI, Spec
from bwprof.results.schema import Row
from bwprof.roofs.signs import References
from bwprof.text import bytes_text

COLD_SEEN_FROM_BYTES = 1 << 20  # of footprint: below, what else the device reads would blur the ratio


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
                return ended(row, "skipped", _too_big(need))
            result, waited = conditions.measure_cool(
                lambda: case.measure(
                    cache=spec.cache,
                    precision_target=spec.rel_ci or DEFAULT_REL_CI,
                    max_seconds=max_seconds,
                    poll=poll,
                    timer=spec.timer,
                ),
                device.conditions,
                poll,
                may_repeat=conditions.may_repeat(deadline, max_seconds),
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
        return ended(row, "predicted" if predicted else "skipped", str(error))
    except MemoryError as error:
        return ended(row, "skipped", str(error) or "out of memory")
    except _core.DeviceError as error:
        return ended(row, "failed", str(error), fatal=bool(getattr(error, "fatal", False)))
    except (ValueError, RuntimeError, OSError) as error:
        return ended(row, "failed", f"{type(error).__name__}: {error}")
    return replace(finished(row, result, context, waited), fatal=lost)


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


def _launch(device: _core.Device, case: _core.Case, spec: Spec) -> Row:
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
    if not wanted or case.cost["footprint_bytes"] <= COLD_SEEN_FROM_BYTES:
        return {}
    return {"cold_reads": case.count(rotated=True)["dram_bytes_read"] / wanted}


def _too_big(need: dict[str, int]) -> str:
    return f"needs {bytes_text(need['needed'])} of memory, {bytes_text(need['free'])} are free"


def finished(row: Row, result: dict[str, Any], context: Context, waited: float = 0.0) -> Outcome:
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
        return ended(row, "failed", f"wrong result: {reason}")
    beaten_by = add_time(row, result, context, waited)
    return Outcome(row, list(result["samples_ns"]), beaten=beaten_by, references=References.of(result))
