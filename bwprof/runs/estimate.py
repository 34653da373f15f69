"""Estimate how long cases take before anything runs: from their bytes, their FLOPs and the device's peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bwprof import _core, registry
from bwprof.measuring.operation import Spec
from bwprof.roofs import store
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs.plan import DEFAULT_CASE_SECONDS

AGAIN_SHARE = 0.25  # second tries take this share of the cases' time

# A case is ended when it takes this much longer than estimated: a slow kernel does not hang.
LIMIT_SECONDS = 600.0
LIMIT_FACTOR = 50.0
_FILL_SHARE = 0.1  # inputs are made and checked at about this share of the memory's speed
_LAUNCHES = 10
_START_SECONDS = 2.0  # to start processes, and to draw the picture
_WARM_UP = 1.3  # sampling with its warm-up, over sampling
_RATES_SECONDS, _CHECK_SECONDS = 1.0, 0.5  # to measure arithmetic rates; to check stored roofs
_EARLY_SECONDS = DEFAULT_CASE_SECONDS / 4  # sampling of a case that converges early


def estimate_launch(work: Mapping[str, int], precision: str, facts: Mapping[str, Any], backend: str) -> float:
    """Return the seconds of one launch at the device's best."""
    seconds = (work["algorithmic_bytes_read"] + work["algorithmic_bytes_written"]) / _gb_s(facts, backend) / 1e9
    rate = facts.get("peak_tflops", {}).get(precision, math.nan)
    return max(seconds, work["flops"] / rate / 1e12) if rate > 0 else seconds


def estimate_case(
    launch: float, memory_bytes: int, facts: Mapping[str, Any], backend: str, sampling: float = _EARLY_SECONDS
) -> float:
    """Return the seconds of a case: make and check inputs, warm up, sample for `sampling` seconds at least."""
    fill = memory_bytes / _gb_s(facts, backend) / 1e9 / _FILL_SHARE
    return fill + max(_LAUNCHES * launch, _WARM_UP * sampling)


def estimate_cases(
    specs: Sequence[Spec], facts: Mapping[str, Any], backend: str, target: float | None, most: float | None
) -> tuple[float, float]:
    """Return the seconds of a run's cases when all converge early, and when none does.

    `target` is the run's time for all cases, `most` the sampling of each (None: as long as a run does), in seconds.
    """
    longest = DEFAULT_CASE_SECONDS if most is None else most
    share = math.inf if target is None else target / max(1, len(specs))
    free = facts.get("memory_free_bytes", math.inf)
    measured = [spec for spec in specs if not registry.is_predicted(spec.operation, spec.precision, backend)]

    def add_up(sampling: float) -> float:
        cases = (_estimate_spec(spec, facts, backend, sampling, free) for spec in measured)
        return sum(min(share, seconds) for seconds in cases if seconds is not None)

    return add_up(min(longest, _EARLY_SECONDS)), add_up(longest)


def estimate_run(
    cases: tuple[float, float], facts: dict[str, Any], backend: str, request: RoofRequest | None
) -> tuple[float, float]:
    """Return the least and most seconds of a run from those of its cases; `request` None: no roofs are measured.

    The least assumes a check of stored roofs, the most new roofs and, on a CPU, second tries.
    """
    known = _core.backend_facts(backend)
    least, most = _START_SECONDS + cases[0], _START_SECONDS + cases[1] * (1 + AGAIN_SHARE * known["runs_on_host"])
    if request is None:
        return least, most
    new = _RATES_SECONDS + request.cold * known["cold_streams_s"] + request.hot * known["hot_streams_s"]
    stored = None if request.recalibrate else store.load(store.identity(backend, facts))
    usable = stored and (stored.points or not request.cold) and (stored.hot_points or not request.hot)
    return least + (_CHECK_SECONDS if usable else new), most + new


def estimate_limit(spec: Spec, facts: Mapping[str, Any], backend: str) -> float:
    """Return the seconds after which a case without a limit is taken to hang."""
    seconds = _estimate_spec(spec, facts, backend, _EARLY_SECONDS)
    return LIMIT_SECONDS if seconds is None else LIMIT_SECONDS + LIMIT_FACTOR * seconds


def _estimate_spec(
    spec: Spec, facts: Mapping[str, Any], backend: str, sampling: float, free: float = math.inf
) -> float | None:
    """Return the seconds of a case; None where the device refuses it, or `free` bytes are too few."""
    try:
        work = _core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens, backend, spec.variant)
    except (ValueError, _core.UnsupportedError):
        return None
    if work["footprint_bytes"] > free:
        return None
    launch = estimate_launch(work, spec.precision, facts, backend)
    return estimate_case(launch, work["footprint_bytes"], facts, backend, sampling)


def _gb_s(facts: Mapping[str, Any], backend: str) -> float:
    peak = facts.get("peak_gb_s", math.nan)
    return peak * 0.85 if peak > 0 else float(_core.backend_facts(backend)["guessed_gb_s"])
