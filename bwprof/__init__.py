"""bwprof: how fast does your memory really go, operation by operation, and what does a narrower precision buy?

Importing this package imports nothing else: each name brings its module when it is first used.
For pytest, which would warn that it comes too late to rewrite assertions that are not tests': PYTEST_DONT_REWRITE
"""

import sys

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from bwprof import analysis, errors, plot, profilers, results, torch
    from bwprof._core import __version__
    from bwprof.analysis.access import AccessPattern
    from bwprof.analysis.bandwidth import BandwidthAnalysis
    from bwprof.analysis.diagnosis.function import diagnose
    from bwprof.analysis.diagnosis.waits import stall_table, stalls
    from bwprof.analysis.forecast.efficiencies import efficiency
    from bwprof.analysis.forecast.prediction import predict
    from bwprof.analysis.narrowing import speedup
    from bwprof.analysis.occupancy import occupancy
    from bwprof.analysis.summary import summary
    from bwprof.analysis.views import view
    from bwprof.case import Case
    from bwprof.compare import compare
    from bwprof.config import get_include, get_library
    from bwprof.costs import Cost, bandwidth_gb_s, cost
    from bwprof.errors import SweepError
    from bwprof.examples import load_example
    from bwprof.hardware import devices
    from bwprof.hooks.kernels import torch_profiler_rows
    from bwprof.hooks.profiler import Profiler
    from bwprof.hooks.schedule import Schedule
    from bwprof.info import info
    from bwprof.kernels import variants
    from bwprof.ladder.function import ablation
    from bwprof.measuring.function import measure
    from bwprof.models.result import ModelStep
    from bwprof.models.step import model_step
    from bwprof.paired.function import ab
    from bwprof.records.baseline import Baseline
    from bwprof.records.baselines import baselines, delete_baseline, load_baseline
    from bwprof.records.comparing.outliers import outliers
    from bwprof.records.history import history
    from bwprof.records.proof import BandwidthReport, save_proof_bundle
    from bwprof.records.saving import save_baseline
    from bwprof.registry import operations
    from bwprof.report.writing import write_report
    from bwprof.results import load, save
    from bwprof.results.row import Row
    from bwprof.results.tables import columns, frame, rows
    from bwprof.roofs import Roofs
    from bwprof.selftest import selftest
    from bwprof.sweep import sweep
    from bwprof.sweep.classic import benchmark_bandwidth

# Where a name is; "" for a module of this package.
_LATER = {
    "AccessPattern": "bwprof.analysis.access",
    "BandwidthAnalysis": "bwprof.analysis.bandwidth",
    "BandwidthReport": "bwprof.records.proof",
    "Baseline": "bwprof.records.baseline",
    "Case": "bwprof.case",
    "Cost": "bwprof.costs",
    "ModelStep": "bwprof.models.result",
    "Profiler": "bwprof.hooks.profiler",
    "Roofs": "bwprof.roofs",
    "Row": "bwprof.results.row",
    "Schedule": "bwprof.hooks.schedule",
    "SweepError": "bwprof.errors",
    "__version__": "bwprof._core",
    "ab": "bwprof.paired.function",
    "ablation": "bwprof.ladder.function",
    "analysis": "",
    "bandwidth_gb_s": "bwprof.costs",
    "baselines": "bwprof.records.baselines",
    "benchmark_bandwidth": "bwprof.sweep.classic",
    "columns": "bwprof.results.tables",
    "compare": "bwprof.compare",
    "cost": "bwprof.costs",
    "delete_baseline": "bwprof.records.baselines",
    "devices": "bwprof.hardware",
    "diagnose": "bwprof.analysis.diagnosis.function",
    "efficiency": "bwprof.analysis.forecast.efficiencies",
    "errors": "",
    "frame": "bwprof.results.tables",
    "get_include": "bwprof.config",
    "get_library": "bwprof.config",
    "history": "bwprof.records.history",
    "info": "bwprof.info",
    "load": "bwprof.results",
    "load_baseline": "bwprof.records.baselines",
    "load_example": "bwprof.examples",
    "measure": "bwprof.measuring.function",
    "model_step": "bwprof.models.step",
    "occupancy": "bwprof.analysis.occupancy",
    "operations": "bwprof.registry",
    "outliers": "bwprof.records.comparing.outliers",
    "plot": "",
    "predict": "bwprof.analysis.forecast.prediction",
    "profilers": "",
    "results": "",
    "rows": "bwprof.results.tables",
    "save": "bwprof.results",
    "save_baseline": "bwprof.records.saving",
    "save_proof_bundle": "bwprof.records.proof",
    "selftest": "bwprof.selftest",
    "speedup": "bwprof.analysis.narrowing",
    "stall_table": "bwprof.analysis.diagnosis.waits",
    "stalls": "bwprof.analysis.diagnosis.waits",
    "summary": "bwprof.analysis.summary",
    "sweep": "bwprof.sweep",
    "torch": "",
    "torch_profiler_rows": "bwprof.hooks.kernels",
    "variants": "bwprof.kernels",
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
    "Schedule",
    "SweepError",
    "__version__",
    "ab",
    "ablation",
    "analysis",
    "bandwidth_gb_s",
    "baselines",
    "benchmark_bandwidth",
    "columns",
    "compare",
    "cost",
    "delete_baseline",
    "devices",
    "diagnose",
    "efficiency",
    "errors",
    "frame",
    "get_include",
    "get_library",
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
    "profilers",
    "results",
    "rows",
    "save",
    "save_baseline",
    "save_proof_bundle",
    "selftest",
    "speedup",
    "stall_table",
    "stalls",
    "summary",
    "sweep",
    "torch",
    "torch_profiler_rows",
    "variants",
    "view",
    "write_report",
]


class _Package(type(sys)):  # type: ignore[misc] # types.ModuleType, without importing types
    """`sweep`, `info` and their like stay functions when the folders of their names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if _LATER.get(name) == f"{__name__}.{name}" and isinstance(value, type(sys)):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # a checker of types knows the names above, and no others

    def __getattr__(name: str) -> object:
        if name in _LATER:
            from importlib import import_module

            home = _LATER[name]
            found = getattr(import_module(home), name) if home else import_module(f"{__name__}.{name}")
            globals()[name] = found
            return found
        if name == "Measurement":
            from bwprof.renamed import warn
            from bwprof.results.row import Row

            warn("bwprof.Measurement", "bwprof.Row")
            return Row
        from bwprof.text import quoted

        raise AttributeError(f"module 'bwprof' has no attribute '{quoted(name)}'")


def __dir__() -> list[str]:
    return __all__
