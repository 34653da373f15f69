"""bwprof: how fast does your memory really go, operation by operation, and what does a narrower precision buy?

Importing this package is quick: no CUDA context, no NumPy, pandas or matplotlib, no library opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bwprof import errors
from bwprof._core import __version__
from bwprof.case import Case
from bwprof.costs import Cost, bandwidth_gb_s, cost
from bwprof.errors import SweepError
from bwprof.hardware import devices
from bwprof.hooks.profiler import Profiler
from bwprof.info import info
from bwprof.measuring.function import measure
from bwprof.models.step import model_step
from bwprof.registry import operations
from bwprof.results import load, save
from bwprof.results.row import Row
from bwprof.results.summary import summary
from bwprof.results.tables import columns, frame, rows
from bwprof.roofs import Roofs
from bwprof.selftest import selftest
from bwprof.sweep import sweep

if TYPE_CHECKING:
    from bwprof import plot
    from bwprof.analysis.efficiencies import efficiency
    from bwprof.analysis.prediction import predict

__all__ = [
    "Case",
    "Cost",
    "Profiler",
    "Roofs",
    "Row",
    "SweepError",
    "__version__",
    "bandwidth_gb_s",
    "columns",
    "cost",
    "devices",
    "efficiency",
    "errors",
    "frame",
    "info",
    "load",
    "measure",
    "model_step",
    "operations",
    "plot",
    "predict",
    "results",
    "rows",
    "save",
    "selftest",
    "summary",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "plot":
        import importlib

        return importlib.import_module("bwprof.plot")
    if name in ("efficiency", "predict"):
        from bwprof import analysis

        return getattr(analysis, name)
    if name == "Measurement":
        from bwprof.renamed import warn

        warn("bwprof.Measurement", "bwprof.Row")
        return Row
    raise AttributeError(f"module 'bwprof' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
