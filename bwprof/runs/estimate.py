"""How long cases take, before anything runs: from their bytes and FLOPs, and from what is known of the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bwprof import _core, registry
from bwprof.measuring.operation import Spec
from bwprof.roofs import store
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs.plan import DEFAULT_CASE_SECONDS

_FILL_SHARE = 0.1  # generating and checking inputs goes at about this share of the memory's speed

_LAUNCHES = 10

_START_SECONDS = 2.0  # of processes that start, and of the picture

_WARM_UP = 1.3  # of a case's sampling, the warm-up included

_RATES_SECONDS, _CHECK_SECONDS = 1.0, 0.5  # of measuring arithmetic rates, and of looking at stored roofs

AGAIN_SHARE = 0.25  # of the time that the cases took: for second tries

_SOON = DEFAULT_CASE_SECONDS / 4  # of sampling, where a case settles

# A case is ended when it takes this much longer than it should: a slow kernel is no hanging one.
LIMIT_SECONDS = 600.0

LIMIT_FACTOR = 50.0


def estimate_launch(work: Mapping[str, int], precision: str, facts: Mapping[str, Any], backend: str) -> float:
    """Seconds of one launch at the device's best."""
    seconds = (work["algorithmic_bytes_read"] + work["algorithmic_bytes_written"]) / _gb_s(facts, backend) / 1e9
    rate = facts.get("peak_tflops", {}).get(precision, math.nan)
    return max(seconds, work["flops"] / rate / 1e12) if rate > 0 else seconds


def estimate_case(
    launch: float, memory_bytes: int, facts: Mapping[str, Any], backend: str, sampling: float = _SOON
) -> float:
    """Seconds of a case: its inputs made and checked, its launches warmed up and sampled for so long at least."""
    fill = memory_bytes / _gb_s(facts, backend) / 1e9 / _FILL_SHARE
    return fill + max(_LAUNCHES * launch, _WARM_UP * sampling)


def estimate_cases(
    specs: Sequence[Spec], facts: Mapping[str, Any], backend: str, target: float | None, most: float | None
) -> tuple[float, float]:
    """Seconds of a run's cases when all settle soon, and when none does: `target` for all of them, sampled for `most`
    each (None: as long as a run does).
    """
    longest = DEFAULT_CASE_SECONDS if most is None else most
    share = math.inf if target is None else target / max(1, len(specs))
    free = facts.get("memory_free_bytes", math.inf)
    measured = [spec for spec in specs if not registry.is_predicted(spec.operation, spec.precision, backend)]

    def all_of(sampling: float) -> float:
        found = (_seconds(spec, facts, backend, sampling, free) for spec in measured)
        return sum(min(share, seconds) for seconds in found if seconds is not None)

    return all_of(min(longest, _SOON)), all_of(longest)


def estimate_run(
    cases: tuple[float, float], facts: dict[str, Any], backend: str, wanted: RoofRequest | None
) -> tuple[float, float]:
    """Seconds of a run whose cases take between so many: at least with a check of stored roofs, at most with new ones
    and, on a CPU, second tries of disturbed cases. `wanted` None: roofs are not measured.
    """
    known = _core.backend_facts(backend)
    least, most = _START_SECONDS + cases[0], _START_SECONDS + cases[1] * (1 + AGAIN_SHARE * known["runs_on_host"])
    if wanted is None:
        return least, most
    new = _RATES_SECONDS + wanted.cold * known["cold_streams_s"] + wanted.hot * known["hot_streams_s"]
    stored = None if wanted.recalibrate else store.load(store.identity(backend, facts))
    there = stored and (stored.points or not wanted.cold) and (stored.hot_points or not wanted.hot)
    return least + (_CHECK_SECONDS if there else new), most + new


def _seconds(
    spec: Spec, facts: Mapping[str, Any], backend: str, sampling: float, free: float = math.inf
) -> float | None:
    """Seconds of a case; None for one that the device will refuse, or that is larger than what is `free`."""
    try:
        work = _core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens, backend, spec.variant)
    except (ValueError, _core.UnsupportedError):
        return None
    if work["footprint_bytes"] > free:
        return None
    launch = estimate_launch(work, spec.precision, facts, backend)
    return estimate_case(launch, work["footprint_bytes"], facts, backend, sampling)


def estimate_limit(spec: Spec, facts: Mapping[str, Any], backend: str) -> float:
    """Seconds after which a case that nobody limited is taken to hang."""
    seconds = _seconds(spec, facts, backend, _SOON)
    return LIMIT_SECONDS if seconds is None else LIMIT_SECONDS + LIMIT_FACTOR * seconds


def _gb_s(facts: Mapping[str, Any], backend: str) -> float:
    peak = facts.get("peak_gb_s", math.nan)
    # Where theory says nothing, an ordinary device: an estimate is only an estimate.
    return peak * 0.85 if peak > 0 else float(_core.backend_facts(backend)["guessed_gb_s"])
