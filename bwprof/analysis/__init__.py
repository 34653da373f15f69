"""What measurements mean: pure functions over frames and numbers; no device is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwprof.analysis.access import AccessPattern
    from bwprof.analysis.bandwidth import BandwidthAnalysis
    from bwprof.analysis.causes.checks import checklist
    from bwprof.analysis.causes.ranking import bottlenecks, strengths
    from bwprof.analysis.forecast.datasheets import catalogue
    from bwprof.analysis.forecast.efficiencies import efficiency
    from bwprof.analysis.forecast.prediction import predict, predict_rows
    from bwprof.analysis.improvement import improvement_table
    from bwprof.analysis.narrowing import speedup
    from bwprof.analysis.utilization import speed_of_light, utilization_table
    from bwprof.roofs.limits import attainable, classify, position, ridge, with_limits

# Where each public name lives; it is imported when it is asked for.
_HOMES = {
    "AccessPattern": "bwprof.analysis.access",
    "BandwidthAnalysis": "bwprof.analysis.bandwidth",
    "attainable": "bwprof.roofs.limits",
    "bottlenecks": "bwprof.analysis.causes.ranking",
    "catalogue": "bwprof.analysis.forecast.datasheets",
    "checklist": "bwprof.analysis.causes.checks",
    "classify": "bwprof.roofs.limits",
    "efficiency": "bwprof.analysis.forecast.efficiencies",
    "improvement_table": "bwprof.analysis.improvement",
    "position": "bwprof.roofs.limits",
    "predict": "bwprof.analysis.forecast.prediction",
    "predict_rows": "bwprof.analysis.forecast.prediction",
    "ridge": "bwprof.roofs.limits",
    "speed_of_light": "bwprof.analysis.utilization",
    "speedup": "bwprof.analysis.narrowing",
    "strengths": "bwprof.analysis.causes.ranking",
    "utilization_table": "bwprof.analysis.utilization",
    "with_limits": "bwprof.roofs.limits",
}

__all__ = [
    "AccessPattern",
    "BandwidthAnalysis",
    "attainable",
    "bottlenecks",
    "catalogue",
    "checklist",
    "classify",
    "efficiency",
    "improvement_table",
    "position",
    "predict",
    "predict_rows",
    "ridge",
    "speed_of_light",
    "speedup",
    "strengths",
    "utilization_table",
    "with_limits",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'bwprof.analysis' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
