"""bwprof: how fast does your memory really go, operation by operation, and what does a narrower precision buy?

Importing this package is quick: no CUDA context, no NumPy, pandas or matplotlib, no library opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bwprof import errors
from bwprof._core import __version__
from bwprof.analysis.summary import summary
from bwprof.case import Case
from bwprof.compare import compare
from bwprof.costs import Cost, bandwidth_gb_s, cost
from bwprof.errors import SweepError
from bwprof.examples import load_example
from bwprof.hardware import devices
from bwprof.hooks.profiler import Profiler
from bwprof.info import info
from bwprof.kernels import variants
from bwprof.measuring.function import measure
from bwprof.models.step import model_step
from bwprof.registry import operations
from bwprof.results import load, save
from bwprof.results.row import Row
from bwprof.results.tables import columns, frame, rows
from bwprof.roofs import Roofs
from bwprof.selftest import selftest
from bwprof.sweep import sweep

if TYPE_CHECKING:
    from bwprof import analysis, plot
    from bwprof.analysis.access import AccessPattern
    from bwprof.analysis.bandwidth import BandwidthAnalysis
    from bwprof.analysis.forecast.efficiencies import efficiency
    from bwprof.analysis.forecast.prediction import predict
    from bwprof.analysis.narrowing import speedup
    from bwprof.analysis.occupancy import occupancy
    from bwprof.analysis.outliers import outliers
    from bwprof.analysis.views import view
    from bwprof.models.result import ModelStep
    from bwprof.paired.function import ab
    from bwprof.records.baseline import Baseline
    from bwprof.records.baselines import baselines, delete_baseline, load_baseline
    from bwprof.records.history import history
    from bwprof.records.proof import BandwidthReport, save_proof_bundle
    from bwprof.records.saving import save_baseline
    from bwprof.report.writing import write_report

# Imported when asked for: they need NumPy, draw, or are seldom used.
_LATER = {
    "ab": "bwprof.paired.function",
    "AccessPattern": "bwprof.analysis.access",
    "BandwidthAnalysis": "bwprof.analysis.bandwidth",
    "BandwidthReport": "bwprof.records.proof",
    "Baseline": "bwprof.records.baseline",
    "ModelStep": "bwprof.models.result",
    "analysis": "",
    "baselines": "bwprof.records.baselines",
    "delete_baseline": "bwprof.records.baselines",
    "efficiency": "bwprof.analysis.forecast.efficiencies",
    "history": "bwprof.records.history",
    "load_baseline": "bwprof.records.baselines",
    "occupancy": "bwprof.analysis.occupancy",
    "outliers": "bwprof.analysis.outliers",
    "plot": "",
    "predict": "bwprof.analysis.forecast.prediction",
    "save_baseline": "bwprof.records.saving",
    "save_proof_bundle": "bwprof.records.proof",
    "speedup": "bwprof.analysis.narrowing",
    "view": "bwprof.analysis.views",
    "write_report": "bwprof.report.writing",
}

__all__ = [
    "AccessPattern",
    "BandwidthAnalysis",
    "BandwidthReport",
    "Baseline",
    "Case",
    "Cost",
    "ModelStep",
    "Profiler",
    "Roofs",
    "Row",
    "SweepError",
    "__version__",
    "ab",
    "analysis",
    "bandwidth_gb_s",
    "baselines",
    "columns",
    "compare",
    "cost",
    "delete_baseline",
    "devices",
    "efficiency",
    "errors",
    "frame",
    "history",
    "info",
    "load",
    "load_baseline",
    "load_example",
    "measure",
    "model_step",
    "occupancy",
    "operations",
    "outliers",
    "plot",
    "predict",
    "results",
    "rows",
    "save",
    "save_baseline",
    "save_proof_bundle",
    "selftest",
    "speedup",
    "summary",
    "sweep",
    "variants",
    "view",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        home = _LATER[name]
        return getattr(importlib.import_module(home), name) if home else importlib.import_module(f"bwprof.{name}")
    if name == "Measurement":
        from bwprof.renamed import warn

        warn("bwprof.Measurement", "bwprof.Row")
        return Row
    from bwprof.text import quoted

    raise AttributeError(f"module 'bwprof' has no attribute '{quoted(name)}'")


def __dir__() -> list[str]:
    return __all__
