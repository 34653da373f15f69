"""CUPTI: without a GPU with a fake library (tests/native_cuda), and on the card against models and the other timers."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from compiled import FLAGS, call, clean_environment, sanitizers

import bwprof
from bwprof import _core, registry
from bwprof.measuring import operation as measuring
from bwprof.measuring import row as measured_row
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context
from bwprof.results.schema import empty_row
from bwprof.runs import plan as plans
from bwprof.runs.plan import SweepRequest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "tests" / "native_cuda"
SOURCES = (
    "csrc/base/status.c",
    "csrc/base/order.c",
    "csrc/cuda/libraries/find.c",
    "csrc/cuda/libraries/cupti.c",
    "csrc/cuda/libraries/cupti_trace.c",
    "csrc/cuda/runtime/nvtx.c",
    "csrc/cuda/runtime/attachments.c",
    "csrc/cuda/launch/flush.c",
    "csrc/cuda/launch/graph.c",
    "csrc/cuda/launch/replay.c",
    "csrc/cuda/timing/plan.c",
    "csrc/cuda/timing/timer.c",
    "csrc/cuda/timing/timer_cupti.c",
    "csrc/cuda/timing/timer_events.c",
    "csrc/cuda/timing/timer_graph.c",
    "csrc/cuda/timing/work.c",
)
CXX_SOURCES = tuple(f"csrc/cuda/profiling/{name}.cc" for name in ("range_profiler", "dram", "metrics"))
HEADERS = ("cuda_runtime.h", "cupti.h", "cupti_range_profiler.h")
CHECKS = re.findall(r'\{"(\w+)", check_\w+\}', (NATIVE / "check_cupti.c").read_text())
NO_COUNTERS = "the cpu backend has no hardware counters"


def cuda_folders() -> list[Path]:
    """Where CUDA's and CUPTI's headers are; none where one is missing."""
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), nvcc and str(Path(nvcc).resolve().parent.parent), "/usr/local/cuda"]
    for home in [Path(home) for home in homes if home]:
        folders = [path for path in (home / "include", home / "extras/CUPTI/include") if path.is_dir()]
        if all(any((folder / name).is_file() for folder in folders) for name in HEADERS):
            return folders
    return []


@dataclass
class Native:
    program: Path
    library: Path
    environment: dict[str, str]

    def run(self, check: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | {"BWPROF_TEST_CUPTI": str(self.library)} | variables
        return subprocess.run(
            [self.program, check], env=environment, capture_output=True, text=True, timeout=300, check=False
        )


def build_library(folder: Path, name: str, includes: list[str], *options: str) -> Path:
    target = folder / name
    source = str(NATIVE / "fake_cupti.cc")
    flags = ["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
    call(["c++", *flags, *includes, *options, source, "-o", str(target)])
    return target


@pytest.fixture(scope="session")
def includes() -> list[str]:
    folders = cuda_folders()
    if not folders or not shutil.which("c++") or not shutil.which("cc"):
        pytest.skip("needs C and C++ compilers and CUDA's headers, CUPTI's (12.6 or newer) among them")
    return [f"-isystem{folder}" for folder in folders]


@functools.cache
def compiled_sources(folder: Path, includes: tuple[str, ...]) -> tuple[list[str], list[str], dict[str, str]]:
    """The objects of SOURCES, for every program that is built upon them; flags, environment."""
    folder.mkdir()
    flags, options = sanitizers(["cc"], folder)
    flags = [*flags, *includes, "-Itests/native_cuda"]
    objects = [str(folder / f"{Path(source).stem}.o") for source in SOURCES]
    for source, target in zip(SOURCES, objects, strict=True):
        call(["cc", *FLAGS, *flags, "-c", source, "-o", target])
    return objects, flags, clean_environment() | options


_BUILT: dict[str, Native] = {}


def build_program(
    factory: pytest.TempPathFactory, includes: list[str], name: str, more: tuple[str, ...] = ()
) -> Native:
    """One of tests/native_cuda, with a fake library; made once, whatever file asks for it."""
    if name not in _BUILT:
        _BUILT[name] = _build(factory, includes, name, more)
    return _BUILT[name]


def _build(factory: pytest.TempPathFactory, includes: list[str], name: str, more: tuple[str, ...]) -> Native:
    made, flags, environment = compiled_sources(factory.getbasetemp() / "cuda_sources", tuple(includes))
    folder = factory.mktemp(name)
    objects = [*made, str(folder / f"{name}.o")]
    call(["cc", *FLAGS, *flags, "-c", str(NATIVE / f"{name}.c"), "-o", objects[-1]])
    plain = [flag for flag in FLAGS if flag != "-std=c11"]
    for source in more:
        objects.append(str(folder / f"{Path(source).stem}.cc.o"))
        call(["c++", "-std=c++17", *plain, *flags, "-c", source, "-o", objects[-1]])
    program = folder / name
    call(["c++", *flags, *objects, "-pthread", "-ldl", "-lm", "-o", str(program)])
    return Native(program, build_library(folder, "libcupti.so.13", includes), environment)


@pytest.fixture(scope="session")
def native(source_tree: Path, includes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Native:
    return build_program(tmp_path_factory, includes, "check_cupti", CXX_SOURCES)


@pytest.mark.parametrize("check", [name for name in CHECKS if name not in ("open", "marks")])
def test_with_a_fake_library(native: Native, check: str) -> None:
    done = native.run(check)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_missing_library(native: Native, tmp_path: Path) -> None:
    done = native.run("open", BWPROF_TEST_CUPTI=str(tmp_path / "libcupti.so.13"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CUPTI was not found" in done.stdout
    assert str(tmp_path) in done.stdout
    assert "pip install nvidia-cuda-cupti" in done.stdout


@pytest.mark.parametrize("symbol", ["cuptiActivityFlushAll", "cuptiRangeProfilerStart"])
def test_a_library_without_a_symbol(native: Native, includes: list[str], tmp_path: Path, symbol: str) -> None:
    library = build_library(tmp_path, "libcupti.so.13", includes, f"-D{symbol}=other_{symbol}")
    done = native.run("open", BWPROF_TEST_CUPTI=str(library))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{library} has no {symbol}" in done.stdout


def test_under_another_profiler(native: Native) -> None:
    done = native.run("open", CUDA_INJECTION64_PATH="/opt/tool/libinjection.so")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "another profiler" in done.stdout


def test_two_threads_have_no_data_race(native: Native, includes: list[str], tmp_path: Path) -> None:
    """Under a sanitizer that watches two threads, where the compiler has one that runs here."""
    watch = ["-fsanitize=thread", "-g"]
    (tmp_path / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = subprocess.run(["cc", *watch, "probe.c", "-o", "probe"], cwd=tmp_path, capture_output=True, check=False)
    if probe.returncode or subprocess.run([tmp_path / "probe"], capture_output=True, check=False).returncode:
        pytest.skip("no thread sanitizer")
    sources = [
        "csrc/base/status.c",
        "csrc/cuda/libraries/find.c",
        "csrc/cuda/libraries/cupti.c",
        "csrc/cuda/libraries/cupti_trace.c",
        "csrc/cuda/runtime/attachments.c",
        "tests/native_cuda/check_owner.c",
    ]
    built = tmp_path / "check_owner"
    call(["cc", *FLAGS, *watch, *includes, "-Itests/native_cuda", *sources, "-ldl", "-lm", "-o", str(built)])
    done = Native(built, native.library, clean_environment() | {"TSAN_OPTIONS": "exitcode=66"}).run("")
    assert done.returncode == 0, done.stdout + done.stderr


# ---- the CPU ----


def test_the_cpu_has_one_timer(cpu: _core.Device) -> None:
    assert cpu.floor_ns("monotonic") == cpu.floor_ns()
    with _core.Case(cpu, "stream_copy", "fp32", {"elements": 4096}) as case:
        measured = case.measure(cache="hot", max_seconds=0.01, timer="monotonic")
        assert measured["timer"] == "monotonic"
        assert math.isnan(measured["kernel_sum_ns"])
        for timer in ("graph", "cupti", ""):
            with pytest.raises(ValueError, match=rf"timer = '{timer}': .*monotonic"):
                case.measure(timer=timer)
    with pytest.raises(ValueError, match=r"\bmonotonic\b"):
        cpu.floor_ns("graph")


def test_the_cpu_counts_nothing(cpu: _core.Device) -> None:
    with _core.Case(cpu, "stream_copy", "fp32", {"elements": 4096}) as case:
        counted = case.count()
    assert counted["counters_status"] == NO_COUNTERS
    assert all(math.isnan(counted[name]) for name in ("dram_bytes_read", "dram_bytes_written", "l2_bytes"))


def test_a_sweep_has_the_status_of_missing_counters() -> None:
    frame = bwprof.sweep(
        "stream_copy", elements=4096, precision="fp32", backend="cpu", roofs=False, counters=True, timer="monotonic"
    )
    row = frame.iloc[0]
    assert (row["status"], row["timer"]) == ("ok", "monotonic")
    assert row["counters_status"] == NO_COUNTERS
    for name in ("dram_bytes_read", "dram_bytes_written", "dram_gb_s", "l2_bytes", "traffic_ratio"):
        assert frame[name].isna().all(), name


class Uncounted:
    """A case whose counting goes wrong, the way that `fail` says; timed hot, which is quick."""

    def __init__(self, case: _core.Case, fail: Callable[[_core.Case], object]) -> None:
        self._case, self._fail = case, fail

    def __getattr__(self, name: str) -> object:
        return getattr(self._case, name)

    def __enter__(self) -> Uncounted:
        return self

    def __exit__(self, *_: object) -> None:
        self._case.close()

    def measure(self, **options: object) -> object:
        return self._case.measure(**{**options, "cache": "hot"})

    def count(self) -> object:
        return self._fail(self._case)


def plant(monkeypatch: pytest.MonkeyPatch, fail: Callable[[_core.Case], object]) -> None:
    real = Spec.open
    monkeypatch.setattr(Spec, "open", lambda spec, device, **how: Uncounted(real(spec, device, **how), fail))


def raising(error: Exception) -> Callable[[object], object]:
    def fail(_case: object) -> object:
        raise error

    return fail


def lost_device() -> _core.DeviceError:
    error = _core.DeviceError("an illegal address was met")
    error.fatal = True
    return error


@pytest.mark.parametrize(
    "error",
    [_core.DeviceError("a call failed"), _core.UnavailableError("no CUPTI"), MemoryError(), ValueError("odd")],
    ids=repr,
)
def test_failed_counting_leaves_rows_their_times(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    plant(monkeypatch, raising(error))
    frame = bwprof.sweep(
        "stream_copy", elements=[4096, 8192], precision="fp32", backend="cpu", roofs=False, counters=True
    )
    assert frame["status"].tolist() == ["ok", "ok"]
    assert (frame["time_ms"] > 0).all()
    assert frame["counters_status"].tolist() == [f"not counted: {str(error) or 'out of memory'}"] * 2


def test_a_device_lost_in_counting_leaves_its_row_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is finished, the device is given up: what is left is not measured on it."""
    plant(monkeypatch, raising(lost_device()))
    with pytest.raises(bwprof.SweepError, match=r"lost.*illegal address") as caught:
        bwprof.sweep("stream_copy", elements=[4096, 8192], precision="fp32", backend="cpu", roofs=False, counters=True)
    (row,) = caught.value.frame.to_dict("records")
    assert (row["status"], row["elements"]) == ("ok", 4096)
    assert row["time_ms"] > 0
    assert row["counters_status"].endswith(str(lost_device()))


def test_a_sweep_without_counters_has_no_status_of_them() -> None:
    frame = bwprof.sweep("stream_copy", elements=4096, precision="fp32", backend="cpu", roofs=False)
    assert frame["counters_status"].isna().all()


def test_the_cpu_has_no_metrics(cpu: _core.Device) -> None:
    with _core.Case(cpu, "stream_copy", "fp32", {"elements": 64}) as case:
        assert case.count_metrics([]) == {"passes": 0, "metrics_status": NO_COUNTERS}
        with pytest.raises(ValueError, match=r"metrics = 'tensor'.*\bcpu\b"):
            case.count_metrics(["tensor"])
        with pytest.raises(TypeError, match=r"^metrics\b.*\blist\b"):
            case.count_metrics(3)
        for no_name in (1, "\ud800", b"tensor"):
            with pytest.raises(TypeError, match=r"^metrics\b.*\bno name\b"):
                case.count_metrics([no_name])
    with pytest.raises(ValueError, match=r"\bcpu\b.*\bno metrics\b"):
        bwprof.sweep("stream_copy", elements=64, backend="cpu", metrics="tensor")
    with (
        bwprof.Case("stream_copy", elements=64, backend="cpu") as public,
        pytest.raises(ValueError, match=r"\bcpu\b.*\bno metrics\b"),
    ):
        public.count(metrics=["all"])
    for measured in (bwprof.measure, bwprof.sweep):
        with pytest.raises(ValueError, match=r"\bcpu\b.*\bno metrics\b"):
            measured(lambda: None, device="cpu", metrics=["dram_pct"])
    with pytest.raises(ValueError, match="metrics is 3"):
        bwprof.measure(lambda: None, device="cpu", metrics=3)


def test_metrics_of_a_call_on_the_cpu(cpu: _core.Device) -> None:
    assert cpu.count_call_metrics(lambda: None, []) == {"passes": 0, "metrics_status": NO_COUNTERS}
    with pytest.raises(ValueError, match=r"metrics = 'tensor'.*\bcpu\b"):
        cpu.count_call_metrics(lambda: None, ["tensor"])
    with pytest.raises(TypeError, match=r"^metrics\b.*\blist\b"):
        cpu.count_call_metrics(lambda: None, 3)
    with pytest.raises(TypeError, match="a callable is needed"):
        cpu.count_call_metrics(3, [])
    closed = _core.Device("cpu")

    def names() -> Iterator[str]:
        closed.close()
        yield "tensor"

    with pytest.raises(ValueError, match="this Device is closed"):
        closed.count_call_metrics(lambda: None, names())


def test_names_of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, or the columns that they fill."""
    monkeypatch.setattr(registry, "metric_names", lambda _: ["tensor", "dram", "sm"])
    assert registry.check_metrics(["dram_pct", "sm", "dram"], "x") == ("dram", "sm")
    with pytest.raises(ValueError, match=r"'drum'.*'dram'"):
        registry.check_metrics(["drum_pct"], "x")


def test_columns_of_metrics() -> None:
    """Reasons are ordered, rare ones (under 1 % of all) left out; NaN stays empty."""
    row = empty_row()
    found = {"tensor_pct": 91.5, "bank_conflicts": 12.0, "sectors_per_store": math.nan, "stall_wait": 2.0}
    found |= {"stall_long_scoreboard": 7.8, "stall_barrier": 0.09}
    measured_row._add_metrics(row, {"metrics": found, "metrics_status": "ok"})
    names = ("tensor_pct", "bank_conflicts", "sectors_per_store", "stall_reasons", "metrics_status")
    assert [row[name] for name in names] == [91.5, 12, None, "long_scoreboard=7.80;wait=2.00", "ok"]
    measured_row._add_metrics(row := empty_row(), {})
    assert (row["stall_reasons"], row["metrics_status"]) == (None, None)


def test_a_launch_of_one_kernel_has_its_size() -> None:
    """132 multiprocessors hold two blocks each: 4 096 are 15.5 waves. Several kernels, or a library's, say nothing."""
    kernel = {"blocks": 4096, "threads": 1024, "registers": 32, "static_shared_bytes": 8448, "dynamic_shared_bytes": 64}
    kernels = [kernel | {"resident_blocks": 2}]

    def listed(*arguments: object) -> list[dict[str, int]]:
        if arguments[3] == "library":
            raise _core.UnsupportedError("a library's kernels are its own")
        return kernels

    device: Any = SimpleNamespace(kernels=listed, facts=lambda: {"units": 132})
    spec: Any = SimpleNamespace(operation="gemm", precision="fp16", params={}, kv_lens=None)
    case: Any = SimpleNamespace(variant="padded")
    found = measuring._describe_launch(device, case, spec)
    assert found.pop("waves") == pytest.approx(4096 / 264)
    assert found == {"grid_blocks": 4096, "block_threads": 1024, "registers": 32, "shared_bytes": 8512}
    assert measuring._describe_launch(device, SimpleNamespace(variant="library"), spec) == {}  # type: ignore[arg-type]
    row = empty_row()
    measured_row._add_metrics(row, {"metrics": {"local_bytes": 64.0}, "metrics_status": "ok", "launch": found})
    assert (row["local_bytes"], row["grid_blocks"], row["waves"]) == (64, 4096, None)
    kernels.append(kernels[0])
    assert measuring._describe_launch(device, case, spec) == {}


def test_a_sweep_refuses_an_unknown_timer() -> None:
    with pytest.raises(ValueError, match="timer on cpu 'graph'"):
        bwprof.sweep("stream_copy", elements=4096, backend="cpu", timer="graph")


# ---- the card ----


TIMED = [
    ("stream_read", "fp32", {"elements": 1 << 18}),
    ("stream_copy", "fp32", {"elements": 1 << 24}),
    ("gemm", "fp16", {"M": 1, "N": 896, "K": 896}),
    ("gemm", "fp16", {"M": 128, "N": 4864, "K": 896}),
    ("attention_decode", "fp16", {"batch": 1, "kv_len": 4096, "num_heads": 14, "num_kv_heads": 2, "head_dim": 64}),
    ("kv_gather", "fp16", {}),
]


TIMERS = ("graph", "cupti", "events")
MEASURE_TIMED = """
import json, sys
from bwprof import _core
found = []
with _core.Device("cuda", 0) as gpu:
    for operation, precision, params in json.loads(sys.argv[1]):
        with _core.Case(gpu, operation, precision, params) as case:
            found.append([case.measure(timer=name, max_seconds=0.5) for name in json.loads(sys.argv[2])])
        for one in found[-1]:
            del one["samples_ns"]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def gpu() -> object:
    with _core.Device("cuda", 0) as device:
        yield device


@pytest.fixture(scope="module")
def timed() -> list[list[dict[str, Any]]]:
    """Each of TIMED by each timer, in a process of their own: once a process has worked on a second stream, a graph's
    kernels follow one another 0.18 us later."""
    command = [sys.executable, "-c", MEASURE_TIMED, json.dumps(TIMED), json.dumps(TIMERS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.cuda
@pytest.mark.parametrize("number", range(len(TIMED)), ids=[str(work) for work in TIMED])
def test_graph_against_kernel_timestamps(timed: list[list[dict[str, Any]]], number: int) -> None:
    """Within 3 % or 0.15 us of the kernels' timestamps. Events around single launches lie above both."""
    graph, cupti, events = timed[number]
    times = [measured["median_ns"] for measured in (graph, cupti, events)]
    assert [measured["timer"] for measured in (graph, cupti, events)] == list(TIMERS)
    assert abs(times[0] - times[1]) <= max(0.03 * times[1], 150.0), times
    assert 0 < cupti["kernel_sum_ns"] <= cupti["median_ns"] * 1.05
    assert math.isnan(graph["kernel_sum_ns"])
    assert times[2] > times[1] * 0.97


@pytest.mark.cuda
def test_floors_by_timer(gpu: _core.Device) -> None:
    """An event pair around an empty kernel takes longer than the kernel."""
    graph, events, cupti = (gpu.floor_ns(name) for name in ("graph", "events", "cupti"))
    assert gpu.floor_ns() == graph
    assert 0 < cupti < events
    assert 0 < graph < events


def counted(gpu: _core.Device, operation: str, precision: str, params: dict[str, int]) -> dict[str, float]:
    """The middle one of three counts of one launch: now and then one has somebody else's hundred kilobytes as well, and
    one had too few."""
    with _core.Case(gpu, operation, precision, params) as case:
        found, cost = [case.count() for _ in range(3)], case.cost
    if found[0]["counters_status"] != "ok":
        pytest.skip(found[0]["counters_status"])
    read, written, l2 = (
        median(count[name] for count in found) for name in ("dram_bytes_read", "dram_bytes_written", "l2_bytes")
    )
    return {
        "read": read / max(1, cost["algorithmic_bytes_read"]),
        "written": written / max(1, cost["algorithmic_bytes_written"]),
        "l2": l2,
    }


@pytest.mark.cuda
@pytest.mark.parametrize("elements", [1 << 22, 1 << 28], ids=["16 MiB", "1 GiB"])
def test_counted_copy(gpu: _core.Device, elements: int) -> None:
    """Each byte read once and written once, whether or not the L2 could have kept the output."""
    ratio = counted(gpu, "stream_copy", "fp32", {"elements": elements})
    assert ratio["read"] == pytest.approx(1.0, abs=0.01)
    assert ratio["written"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.cuda
def test_a_cuda_call_that_fails_in_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    with _core.Device("cuda") as device:

        def fail(case: _core.Case) -> object:
            device._inject_fault(1)
            try:
                return case.count()
            finally:
                device._inject_fault(0)

        plant(monkeypatch, fail)
        (spec,) = plans.make_plan(
            SweepRequest(("stream_copy",), {"elements": (1 << 20,)}, precisions=("fp32",), counters=True), "cuda"
        ).specs
        outcome = measuring.measure(device, spec, Context("r", "cuda", {}, None), max_seconds=0.1)
    assert (outcome.row["status"], outcome.fatal) == ("ok", False)
    assert outcome.row["time_ms"] > 0
    assert "CUDA call" in outcome.row["counters_status"]


@pytest.mark.cuda
def test_counted_gemm(gpu: _core.Device) -> None:
    ratio = counted(gpu, "gemm", "fp16", {"M": 1, "N": 28672, "K": 8192})
    assert ratio["read"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.cuda
def test_counting_leaves_the_timer_alone(gpu: _core.Device) -> None:
    """A profiler that stays enabled must not change what the graph measures."""
    with _core.Case(gpu, "stream_copy", "fp32", {"elements": 1 << 24}) as case:
        before = case.measure(max_seconds=0.5)["median_ns"]
        case.count()
        after = case.measure(max_seconds=0.5)["median_ns"]
    assert after == pytest.approx(before, rel=0.03)


def metrics_of(
    gpu: _core.Device, operation: str, precision: str, params: dict[str, int], groups: list[str], variant: str | None
) -> dict[str, float]:
    with _core.Case(gpu, operation, precision, params, variant=variant) as case:
        found = case.count_metrics(groups)
    if found["metrics_status"] != "ok":
        pytest.skip(found["metrics_status"])
    return found


@pytest.mark.cuda
def test_metrics_of_a_large_product(gpu: _core.Device) -> None:
    """A library's FP16 product of this size keeps the tensor pipe busy."""
    params = {"M": 4096, "N": 4096, "K": 4096}
    found = metrics_of(gpu, "gemm", "fp16", params, ["tensor", "occupancy", "dram", "sm"], "cublaslt")
    assert found["sm_pct"] > 50 > found["dram_pct"]
    assert 50 < found["tensor_pct"] <= 100
    assert 0 < found["occupancy_pct"] <= 100


@pytest.mark.cuda
def test_metrics_of_a_copy(gpu: _core.Device) -> None:
    """It uses no tensor pipe and no shared memory; each of a warp's requests is 16 bytes for 32 threads, 16 sectors;
    its warps wait for memory. Bytes are counted as before, and the other way round."""
    (backend,) = [row for row in _core.backends() if row["name"] == "cuda"]
    found = metrics_of(gpu, "stream_copy", "fp32", {"elements": 1 << 26}, backend["metrics"], None)
    assert found["tensor_pct"] < 1
    assert found["bank_conflicts"] < 1000
    assert found["sectors_per_load"] == pytest.approx(16, rel=0.05)
    stalls = {name: value for name, value in found.items() if name.startswith("stall_")}
    assert max(stalls, key=lambda name: stalls[name]) in ("stall_long_scoreboard", "stall_lg_throttle", "stall_drain")
    assert found["dram_pct"] > 70, "what memory limits keeps DRAM busy, and not the multiprocessors"
    assert found["sm_pct"] < 40
    assert counted(gpu, "stream_copy", "fp32", {"elements": 1 << 26})["read"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.cuda
def test_one_handle_counts_at_a_time(gpu: _core.Device) -> None:
    counted(gpu, "stream_copy", "fp32", {"elements": 1 << 20})
    with bwprof.Case("stream_copy", elements=1 << 20, backend="cuda") as case:
        assert "another device handle" in case.count()["counters_status"]
