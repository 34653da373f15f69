"""Measure the memory bandwidth of LLM-inference kernels on GPU and CPU.

Importing this package imports nothing else: each name imports its module at first use.
pytest must not rewrite the assertions of its plugin: PYTEST_DONT_REWRITE
"""

import sys

TYPE_CHECKING = False  # without importing typing

if TYPE_CHECKING:
    from bwprof import analysis as analysis
    from bwprof import errors as errors
    from bwprof import importers as importers
    from bwprof import plot as plot
    from bwprof import results as results
    from bwprof import torch as torch
    from bwprof._core import __version__ as __version__
    from bwprof.analysis.access import AccessPattern as AccessPattern
    from bwprof.analysis.bandwidth import BandwidthAnalysis as BandwidthAnalysis
    from bwprof.analysis.diagnosis.diagnose import diagnose as diagnose
    from bwprof.analysis.diagnosis.stalls import stall_table as stall_table
    from bwprof.analysis.diagnosis.stalls import stalls as stalls
    from bwprof.analysis.gains import speedup as speedup
    from bwprof.analysis.occupancy_model import occupancy as occupancy
    from bwprof.analysis.prediction.efficiency import efficiency as efficiency
    from bwprof.analysis.prediction.predict import predict as predict
    from bwprof.analysis.summarize import summary as summary
    from bwprof.analysis.views import view as view
    from bwprof.case import Case as Case
    from bwprof.config import get_include as get_include
    from bwprof.config import get_library as get_library
    from bwprof.costs import Cost as Cost
    from bwprof.costs import bandwidth_gb_s as bandwidth_gb_s
    from bwprof.costs import cost as cost
    from bwprof.errors import SweepError as SweepError
    from bwprof.examples import load_example as load_example
    from bwprof.experiments.ab import ab as ab
    from bwprof.experiments.ablation import ablation as ablation
    from bwprof.hardware import devices as devices
    from bwprof.info import info as info
    from bwprof.kernels import variants as variants
    from bwprof.llm.model_step import model_step as model_step
    from bwprof.llm.result import ModelStep as ModelStep
    from bwprof.measuring.function import measure as measure
    from bwprof.profiler.ranges import Profiler as Profiler
    from bwprof.profiler.schedule import Schedule as Schedule
    from bwprof.profiler.torch_kernels import torch_profiler_rows as torch_profiler_rows
    from bwprof.records.baselines import Baseline as Baseline
    from bwprof.records.baselines import baselines as baselines
    from bwprof.records.baselines import delete_baseline as delete_baseline
    from bwprof.records.baselines import load_baseline as load_baseline
    from bwprof.records.history import history as history
    from bwprof.records.proof import BandwidthReport as BandwidthReport
    from bwprof.records.proof import save_proof_bundle as save_proof_bundle
    from bwprof.records.regression.compare import compare as compare
    from bwprof.records.regression.outliers import outliers as outliers
    from bwprof.records.source import save_baseline as save_baseline
    from bwprof.registry import operations as operations
    from bwprof.report.write import write_report as write_report
    from bwprof.results.frame import columns as columns
    from bwprof.results.frame import frame as frame
    from bwprof.results.frame import rows as rows
    from bwprof.results.reader import load as load
    from bwprof.results.reader import save as save
    from bwprof.results.row import Row as Row
    from bwprof.roofs.model import Roofs as Roofs
    from bwprof.selftest import selftest as selftest
    from bwprof.sweep import benchmark_bandwidth as benchmark_bandwidth
    from bwprof.sweep import sweep as sweep

# Module -> its public names; "" for modules of this package.
_NAMES = {
    "": "analysis errors importers plot results torch",
    "bwprof._core": "__version__",
    "bwprof.analysis.access": "AccessPattern",
    "bwprof.analysis.bandwidth": "BandwidthAnalysis",
    "bwprof.analysis.diagnosis.diagnose": "diagnose",
    "bwprof.analysis.diagnosis.stalls": "stall_table stalls",
    "bwprof.analysis.gains": "speedup",
    "bwprof.analysis.occupancy_model": "occupancy",
    "bwprof.analysis.prediction.efficiency": "efficiency",
    "bwprof.analysis.prediction.predict": "predict",
    "bwprof.analysis.summarize": "summary",
    "bwprof.analysis.views": "view",
    "bwprof.case": "Case",
    "bwprof.config": "get_include get_library",
    "bwprof.costs": "Cost bandwidth_gb_s cost",
    "bwprof.errors": "SweepError",
    "bwprof.examples": "load_example",
    "bwprof.experiments.ab": "ab",
    "bwprof.experiments.ablation": "ablation",
    "bwprof.hardware": "devices",
    "bwprof.info": "info",
    "bwprof.kernels": "variants",
    "bwprof.llm.model_step": "model_step",
    "bwprof.llm.result": "ModelStep",
    "bwprof.measuring.function": "measure",
    "bwprof.profiler.ranges": "Profiler",
    "bwprof.profiler.schedule": "Schedule",
    "bwprof.profiler.torch_kernels": "torch_profiler_rows",
    "bwprof.records.baselines": "Baseline baselines delete_baseline load_baseline",
    "bwprof.records.history": "history",
    "bwprof.records.proof": "BandwidthReport save_proof_bundle",
    "bwprof.records.regression.compare": "compare",
    "bwprof.records.regression.outliers": "outliers",
    "bwprof.records.source": "save_baseline",
    "bwprof.registry": "operations",
    "bwprof.report.write": "write_report",
    "bwprof.results.frame": "columns frame rows",
    "bwprof.results.reader": "load save",
    "bwprof.results.row": "Row",
    "bwprof.roofs.model": "Roofs",
    "bwprof.selftest": "selftest",
    "bwprof.sweep": "benchmark_bandwidth sweep",
}

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)


class _Package(type(sys)):  # type: ignore[misc] # types.ModuleType, without importing types
    """A package whose functions, such as `sweep`, are not replaced by the modules of their names."""

    def __setattr__(self, name: str, value: object) -> None:
        if _HOMES.get(name) == f"{__name__}.{name}" and isinstance(value, type(sys)):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if not TYPE_CHECKING:  # type checkers know only the names above
    if not any(finder.find_spec(f"{__name__}._core", __path__) for finder in sys.meta_path):
        raise ImportError(
            f"{__path__[0]} is not built: python3 setup.py build_ext --inplace in its checkout builds it, "
            "BWPROF_CUDA=0 before it for the CPU alone. It runs on Linux: elsewhere use a container, a virtual machine "
            "or WSL 2"
        )

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            from importlib import import_module

            home = _HOMES[name]
            value = getattr(import_module(home), name) if home else import_module(f"{__name__}.{name}")
            globals()[name] = value
            return value
        from bwprof.text.parsing import quote_text

        raise AttributeError(f"module 'bwprof' has no attribute '{quote_text(name)}'")


def __dir__() -> list[str]:
    return __all__
