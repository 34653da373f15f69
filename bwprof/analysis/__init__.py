"""What measurements mean: pure functions over frames and numbers; no device is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwprof.analysis.access import AccessPattern as AccessPattern
    from bwprof.analysis.bandwidth import BandwidthAnalysis as BandwidthAnalysis
    from bwprof.analysis.bandwidth import speed_of_light as speed_of_light
    from bwprof.analysis.bandwidth import utilization_table as utilization_table
    from bwprof.analysis.bottleneck import bottlenecks as bottlenecks
    from bwprof.analysis.bottleneck import strengths as strengths
    from bwprof.analysis.gains import improvement_table as improvement_table
    from bwprof.analysis.gains import speedup as speedup
    from bwprof.analysis.prediction.catalog import catalog as catalog
    from bwprof.analysis.prediction.efficiency import efficiency as efficiency
    from bwprof.analysis.prediction.predict import predict as predict
    from bwprof.analysis.prediction.predict import predict_rows as predict_rows
    from bwprof.analysis.rules import checklist as checklist
    from bwprof.roofs.limiter import attainable as attainable
    from bwprof.roofs.limiter import classify as classify
    from bwprof.roofs.limiter import position as position
    from bwprof.roofs.limiter import ridge as ridge
    from bwprof.roofs.limiter import with_limits as with_limits

# Where each public name lives; it is imported when it is asked for.
_NAMES = {
    "bwprof.analysis.access": "AccessPattern",
    "bwprof.analysis.bandwidth": "BandwidthAnalysis speed_of_light utilization_table",
    "bwprof.analysis.bottleneck": "bottlenecks strengths",
    "bwprof.analysis.rules": "checklist",
    "bwprof.analysis.gains": "improvement_table speedup",
    "bwprof.analysis.prediction.catalog": "catalog",
    "bwprof.analysis.prediction.efficiency": "efficiency",
    "bwprof.analysis.prediction.predict": "predict predict_rows",
    "bwprof.roofs.limiter": "attainable classify position ridge with_limits",
}

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'bwprof.analysis' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
