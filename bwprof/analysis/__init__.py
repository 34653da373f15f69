"""What measurements mean: pure functions over frames and numbers; no device is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwprof.analysis.access import AccessPattern as AccessPattern
    from bwprof.analysis.bandwidth import BandwidthAnalysis as BandwidthAnalysis
    from bwprof.analysis.causes.checks import checklist as checklist
    from bwprof.analysis.causes.ranking import bottlenecks as bottlenecks
    from bwprof.analysis.causes.ranking import strengths as strengths
    from bwprof.analysis.forecast.datasheets import catalogue as catalogue
    from bwprof.analysis.forecast.efficiencies import efficiency as efficiency
    from bwprof.analysis.forecast.prediction import predict as predict
    from bwprof.analysis.forecast.prediction import predict_rows as predict_rows
    from bwprof.analysis.improvement import improvement_table as improvement_table
    from bwprof.analysis.narrowing import speedup as speedup
    from bwprof.analysis.utilization import speed_of_light as speed_of_light
    from bwprof.analysis.utilization import utilization_table as utilization_table
    from bwprof.roofs.limits import attainable as attainable
    from bwprof.roofs.limits import classify as classify
    from bwprof.roofs.limits import position as position
    from bwprof.roofs.limits import ridge as ridge
    from bwprof.roofs.limits import with_limits as with_limits

# Where each public name lives; it is imported when it is asked for.
_NAMES = {
    "bwprof.analysis.access": "AccessPattern",
    "bwprof.analysis.bandwidth": "BandwidthAnalysis",
    "bwprof.analysis.causes.checks": "checklist",
    "bwprof.analysis.causes.ranking": "bottlenecks strengths",
    "bwprof.analysis.forecast.datasheets": "catalogue",
    "bwprof.analysis.forecast.efficiencies": "efficiency",
    "bwprof.analysis.forecast.prediction": "predict predict_rows",
    "bwprof.analysis.improvement": "improvement_table",
    "bwprof.analysis.narrowing": "speedup",
    "bwprof.analysis.utilization": "speed_of_light utilization_table",
    "bwprof.roofs.limits": "attainable classify position ridge with_limits",
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
