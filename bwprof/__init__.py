"""bwprof: how fast does your memory really go, operation by operation, and what does a narrower precision buy?

Importing this package imports nothing else: each name brings its module when it is first used.
For pytest, which would warn that it comes too late to rewrite assertions that are not tests': PYTEST_DONT_REWRITE
"""

import sys

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from bwprof import analysis as analysis
    from bwprof import errors as errors
    from bwprof import plot as plot
    from bwprof import profilers as profilers
    from bwprof import results as results
    from bwprof import torch as torch
    from bwprof._core import __version__ as __version__
    from bwprof.analysis.access import AccessPattern as AccessPattern
    from bwprof.analysis.bandwidth import BandwidthAnalysis as BandwidthAnalysis
    from bwprof.analysis.diagnosis.function import diagnose as diagnose
    from bwprof.analysis.diagnosis.waits import stall_table as stall_table
    from bwprof.analysis.diagnosis.waits import stalls as stalls
    from bwprof.analysis.forecast.efficiencies import efficiency as efficiency
    from bwprof.analysis.forecast.prediction import predict as predict
    from bwprof.analysis.narrowing import speedup as speedup
    from bwprof.analysis.occupancy import occupancy as occupancy
    from bwprof.analysis.summary import summary as summary
    from bwprof.analysis.views import view as view
    from bwprof.case import Case as Case
    from bwprof.compare import compare as compare
    from bwprof.config import get_include as get_include
    from bwprof.config import get_library as get_library
    from bwprof.costs import Cost as Cost
    from bwprof.costs import bandwidth_gb_s as bandwidth_gb_s
    from bwprof.costs import cost as cost
    from bwprof.errors import SweepError as SweepError
    from bwprof.examples import load_example as load_example
    from bwprof.hardware import devices as devices
    from bwprof.hooks.kernels import torch_profiler_rows as torch_profiler_rows
    from bwprof.hooks.profiler import Profiler as Profiler
    from bwprof.hooks.schedule import Schedule as Schedule
    from bwprof.info import info as info
    from bwprof.kernels import variants as variants
    from bwprof.ladder.function import ablation as ablation
    from bwprof.measuring.function import measure as measure
    from bwprof.models.result import ModelStep as ModelStep
    from bwprof.models.step import model_step as model_step
    from bwprof.paired.function import ab as ab
    from bwprof.records.baseline import Baseline as Baseline
    from bwprof.records.baselines import baselines as baselines
    from bwprof.records.baselines import delete_baseline as delete_baseline
    from bwprof.records.baselines import load_baseline as load_baseline
    from bwprof.records.comparing.outliers import outliers as outliers
    from bwprof.records.history import history as history
    from bwprof.records.proof import BandwidthReport as BandwidthReport
    from bwprof.records.proof import save_proof_bundle as save_proof_bundle
    from bwprof.records.saving import save_baseline as save_baseline
    from bwprof.registry import operations as operations
    from bwprof.report.writing import write_report as write_report
    from bwprof.results import load as load
    from bwprof.results import save as save
    from bwprof.results.row import Row as Row
    from bwprof.results.tables import columns as columns
    from bwprof.results.tables import frame as frame
    from bwprof.results.tables import rows as rows
    from bwprof.roofs import Roofs as Roofs
    from bwprof.selftest import selftest as selftest
    from bwprof.sweep import sweep as sweep
    from bwprof.sweep.classic import benchmark_bandwidth as benchmark_bandwidth

# Which names a module has; "" stands for modules of this package.
_NAMES = {
    "": "analysis errors plot profilers results torch",
    "bwprof._core": "__version__",
    "bwprof.analysis.access": "AccessPattern",
    "bwprof.analysis.bandwidth": "BandwidthAnalysis",
    "bwprof.analysis.diagnosis.function": "diagnose",
    "bwprof.analysis.diagnosis.waits": "stall_table stalls",
    "bwprof.analysis.forecast.efficiencies": "efficiency",
    "bwprof.analysis.forecast.prediction": "predict",
    "bwprof.analysis.narrowing": "speedup",
    "bwprof.analysis.occupancy": "occupancy",
    "bwprof.records.comparing.outliers": "outliers",
    "bwprof.analysis.summary": "summary",
    "bwprof.analysis.views": "view",
    "bwprof.case": "Case",
    "bwprof.compare": "compare",
    "bwprof.config": "get_include get_library",
    "bwprof.costs": "Cost bandwidth_gb_s cost",
    "bwprof.errors": "SweepError",
    "bwprof.examples": "load_example",
    "bwprof.hardware": "devices",
    "bwprof.hooks.kernels": "torch_profiler_rows",
    "bwprof.hooks.profiler": "Profiler",
    "bwprof.hooks.schedule": "Schedule",
    "bwprof.info": "info",
    "bwprof.kernels": "variants",
    "bwprof.ladder.function": "ablation",
    "bwprof.measuring.function": "measure",
    "bwprof.models.result": "ModelStep",
    "bwprof.models.step": "model_step",
    "bwprof.paired.function": "ab",
    "bwprof.records.baseline": "Baseline",
    "bwprof.records.baselines": "baselines delete_baseline load_baseline",
    "bwprof.records.history": "history",
    "bwprof.records.proof": "BandwidthReport save_proof_bundle",
    "bwprof.records.saving": "save_baseline",
    "bwprof.registry": "operations",
    "bwprof.report.writing": "write_report",
    "bwprof.results": "load save",
    "bwprof.results.row": "Row",
    "bwprof.results.tables": "columns frame rows",
    "bwprof.roofs": "Roofs",
    "bwprof.selftest": "selftest",
    "bwprof.sweep": "sweep",
    "bwprof.sweep.classic": "benchmark_bandwidth",
}
_LATER = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = list(_LATER)


class _Package(type(sys)):  # type: ignore[misc] # types.ModuleType, without importing types
    """`sweep`, `info` and their like stay functions when the folders of their names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if _LATER.get(name) == f"{__name__}.{name}" and isinstance(value, type(sys)):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # a checker of types knows the names above, and no others
    if not any(finder.find_spec(f"{__name__}._core", __path__) for finder in sys.meta_path):
        raise ImportError(
            f"{__path__[0]} is not built: python3 setup.py build_ext --inplace in its checkout builds it, "
            "BWPROF_CUDA=0 before it for the CPU alone. It runs on Linux: elsewhere use a container, a virtual machine "
            "or WSL 2"
        )

    def __getattr__(name: str) -> object:
        if name in _LATER:
            from importlib import import_module

            home = _LATER[name]
            found = getattr(import_module(home), name) if home else import_module(f"{__name__}.{name}")
            globals()[name] = found
            return found
        from bwprof.text import quoted

        raise AttributeError(f"module 'bwprof' has no attribute '{quoted(name)}'")


def __dir__() -> list[str]:
    return __all__
