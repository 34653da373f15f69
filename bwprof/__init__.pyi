"""The public names of the package, each with the module that it is imported from at first use."""

from bwprof import analysis as analysis
from bwprof import errors as errors
from bwprof import formats as formats
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
from bwprof.analysis.summarize import view as view
from bwprof.case import Case as Case
from bwprof.config import get_include as get_include
from bwprof.config import get_library as get_library
from bwprof.costs import Cost as Cost
from bwprof.costs import bandwidth_gb_s as bandwidth_gb_s
from bwprof.costs import cost as cost
from bwprof.errors import SweepError as SweepError
from bwprof.experiments.ab import ab as ab
from bwprof.experiments.ablation import ablation as ablation
from bwprof.hardware import devices as devices
from bwprof.info import info as info
from bwprof.info import load_example as load_example
from bwprof.kernels import variants as variants
from bwprof.llm.model_step import model_step as model_step
from bwprof.llm.result import ModelStep as ModelStep
from bwprof.measuring.function import measure as measure
from bwprof.profiler.ranges import Profiler as Profiler
from bwprof.profiler.ranges import Schedule as Schedule
from bwprof.profiler.torch_calls import torch_profiler_rows as torch_profiler_rows
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

class LazyNames:
    homes: dict[str, str]
    def __init__(self, package: str, folder: str) -> None: ...
    def get(self, name: str) -> object: ...
