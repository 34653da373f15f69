"""How long cases take, before anything runs: from their bytes and FLOPs, and from what is known of the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bwprof import _core
from bwprof.measuring.spec import Spec
from bwprof.runs.plan import DEFAULT_CASE_SECONDS

_FILL_SHARE = 0.1  # generating and checking inputs goes at about this share of the memory's speed
_LAUNCHES = 10

# A case is ended when it takes this much longer than it should: a slow kernel is no hanging one.
LIMIT_SECONDS = 600.0
LIMIT_FACTOR = 50.0


def launch_seconds(work: Mapping[str, int], precision: str, facts: Mapping[str, Any], backend: str) -> float:
    """Seconds of one launch at the device's best."""
    seconds = (work["algorithmic_bytes_read"] + work["algorithmic_bytes_written"]) / _gb_s(facts, backend) / 1e9
    rate = facts.get("peak_tflops", {}).get(precision, math.nan)
    return max(seconds, work["flops"] / rate / 1e12) if rate > 0 else seconds


def case_seconds(launch: float, memory_bytes: int, facts: Mapping[str, Any], backend: str) -> float:
    """Seconds of a case: its inputs made and checked, its launches sampled."""
    fill = memory_bytes / _gb_s(facts, backend) / 1e9 / _FILL_SHARE
    return fill + max(_LAUNCHES * launch, DEFAULT_CASE_SECONDS / 4)


def limit_seconds(spec: Spec, facts: Mapping[str, Any], backend: str) -> float:
    """Seconds after which a case that nobody limited is taken to hang."""
    try:
        work = _core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens, backend, spec.variant)
    except (ValueError, _core.UnsupportedError):  # the device will say so
        return LIMIT_SECONDS
    launch = launch_seconds(work, spec.precision, facts, backend)
    return LIMIT_SECONDS + LIMIT_FACTOR * case_seconds(launch, work["footprint_bytes"], facts, backend)


def _gb_s(facts: Mapping[str, Any], backend: str) -> float:
    peak = facts.get("peak_gb_s", math.nan)
    # Where theory says nothing, an ordinary device: an estimate is only an estimate.
    return peak * 0.85 if peak > 0 else float(_core.backend_facts(backend)["guessed_gb_s"])
