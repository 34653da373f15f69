"""GPU kernels with infinite values and extreme shapes."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

import bwprof
from bwprof import _core
from bwprof.analysis.prediction import catalog

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def gpu() -> object:
    with _core.Device("cuda", 0) as device:
        yield device


def decode(head_dim: int, precision: str, k: object, v: object, heads: int = 2) -> object:
    """Return the output of a head for q of ones; heads share a K/V head, so that all outputs are equal."""
    length = len(k)
    with bwprof.Case(
        "attention_decode", precision=precision, backend="cuda", batch=1, num_heads=heads, num_kv_heads=1,
        head_dim=head_dim, kv_len=length,
    ) as case:  # fmt: skip
        q = np.ones((1, 1, heads, head_dim), np.float32)
        out = case.run(q=q, k=k.reshape(1, length, 1, head_dim), v=v.reshape(1, length, 1, head_dim))["out"]
    assert all(np.array_equal(out[0, 0, 0], out[0, 0, head], equal_nan=True) for head in range(1, heads))
    return out[0, 0, 0]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("head_dim", [32, 64, 128])
@pytest.mark.parametrize("heads", [2, 9, 20])
@pytest.mark.parametrize("at", [0, 7, 99])
def test_infinities_are_numbers(precision: str, head_dim: int, heads: int, at: int) -> None:
    """A key with the score -inf has no weight; an infinite value makes only its column infinite."""
    rng = np.random.default_rng(1)
    k, v = (rng.integers(-4, 5, (100, head_dim)).astype(np.float32) / 8 for _ in range(2))
    k[at, 3] = -math.inf
    left = np.delete(np.arange(100), at)
    score = k[left].sum(axis=1, dtype=np.float64) / math.sqrt(head_dim)
    weight = np.exp(score - score.max())
    expected = weight @ v[left] / weight.sum()
    found = decode(head_dim, precision, k, v, heads)
    assert found == pytest.approx(expected, abs=2e-2 if precision == "bf16" else 3e-3)
    v[left[5], 2], v[left[6], 11] = math.inf, -math.inf
    found = decode(head_dim, precision, k, v, heads)
    assert (found[2], found[11]) == (math.inf, -math.inf)
    finite = [e for e in range(head_dim) if e not in (2, 11)]
    assert found[finite] == pytest.approx(expected[finite], abs=2e-2 if precision == "bf16" else 3e-3)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("stream_copy", {"elements": 1 << 42}),
        ("stream_triad", {"elements": 1 << 42}),
        ("kv_copy", {"kv_len": (1 << 31) - 1, "num_kv_heads": 1024, "head_dim": 1024}),
        ("kv_append", {"seq_len": (1 << 31) - 1, "num_kv_heads": 1024, "head_dim": 1024}),
        ("kv_gather", {"kv_len": (1 << 31) - 1, "num_kv_heads": 1024, "head_dim": 1024, "page_size": 4096}),
        ("rope", {"tokens": (1 << 31) - 1, "num_heads": 1024, "head_dim": 1024}),
    ],
)
def test_more_blocks_than_a_grid_holds(gpu: _core.Device, operation: str, params: dict[str, int]) -> None:
    with pytest.raises(_core.UnsupportedError, match=r"2\^31 - 1 blocks"):
        _core.Case(gpu, operation, "fp32", _complete(operation, params))


LARGE = [
    ("gemm", {"M": 1500, "N": 4104, "K": 200, "beta": 1}),
    ("gemm", {"M": 2100, "N": 9000, "K": 64}),
    ("attention_prefill", {"batch": 3, "seq_len": 1000, "kv_len": 1100, "num_heads": 14, "num_kv_heads": 2}),
    ("attention_prefill", {"seq_len": 1999, "num_heads": 16, "num_kv_heads": 2, "head_dim": 128}),
]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(("operation", "params"), LARGE)
def test_more_tiles_than_multiprocessors(
    gpu: _core.Device, operation: str, params: dict[str, int], precision: str
) -> None:
    """Blocks take several tiles, and buffer sets have different addresses."""
    complete = _complete(operation, params)
    for variant in gpu.variants(operation, precision, complete):
        if variant["name"] in ("wgmma", "flash", "split", "hopper") and not variant["refuses"]:
            with _core.Case(gpu, operation, precision, complete, variant=variant["name"]) as case:
                assert case.verify()["verified"], variant["name"]
                assert case.measure(max_seconds=0.05)["verified"], variant["name"]


@pytest.mark.cuda
def test_a_gather_of_more_pages_than_a_row_of_the_grid_has_blocks(gpu: _core.Device) -> None:
    params = {"batch": 3, "kv_len": 23_456, "num_kv_heads": 2, "head_dim": 512, "page_size": 1}
    with _core.Case(gpu, "kv_gather", "fp16", params) as case:
        assert case.verify(budget_s=1.0)["verified"]


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("head_dim", "precision", "runs"),
    [(64, "fp16", True), (40, "bf16", True), (33, "fp16", False), (136, "fp16", True), (256, "bf16", True)],
)
def test_hopper_is_the_default_where_it_runs(gpu: _core.Device, head_dim: int, precision: str, runs: bool) -> None:
    params = _complete("attention_prefill", {"seq_len": 300, "head_dim": head_dim})
    rows = {row["name"]: row for row in gpu.variants("attention_prefill", precision, params)}
    if gpu.facts()["major"] != 9:
        assert rows["hopper"]["refuses"]
        assert rows["flash"]["default"]
    else:
        assert (rows["hopper"]["refuses"] == "") == runs
        assert rows["hopper" if runs else "flash"]["default"]


@pytest.mark.cuda
def test_fp32_prefill_is_split_where_tensor_cores_are_worth_it(gpu: _core.Device) -> None:
    rows = {row["name"]: row for row in gpu.variants("attention_prefill", "fp32", _complete("attention_prefill", {}))}
    capability = (gpu.facts()["major"], gpu.facts()["minor"])
    assert rows["split" if capability in [(8, 0), (9, 0), (10, 0)] else "flash"]["default"]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["bf16", "fp8_e4m3", "int8"])
def test_peaks_are_in_the_ratio_of_data_sheets(gpu: _core.Device, precision: str) -> None:
    """Those of tensor cores, whatever the clock."""
    entry, peaks = catalog.find(gpu.facts()["name"]), gpu.facts()["peak_tflops"]
    if entry is None:
        pytest.skip("no card of the catalog")
    ratio = entry.tflops.get(precision, math.nan) / entry.tflops["fp16"]
    assert peaks[precision] / peaks["fp16"] == pytest.approx(ratio, rel=0.02, nan_ok=True)


def _complete(operation: str, params: dict[str, int]) -> dict[str, int]:
    from bwprof import registry

    return registry.complete_params(operation, "fp32", params, None)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_counters_of_another_handle_are_closed(gpu: _core.Device, precision: str) -> None:
    """A timer closes the profiler of any handle; then a third one may count."""
    shape = {"elements": 1 << 20}
    with _core.Device("cuda", 0) as first, _core.Device("cuda", 0) as second:
        with _core.Case(first, "stream_copy", precision, shape) as case:
            said = case.count()["counters_status"]
            if said != "ok":
                pytest.skip(said)
        with _core.Case(second, "stream_copy", precision, shape) as case:
            assert "another device handle" in case.count()["counters_status"]
        with _core.Case(gpu, "stream_copy", precision, shape) as case:
            case.measure(max_seconds=0.01)
        with _core.Case(second, "stream_copy", precision, shape) as case:
            assert case.count()["counters_status"] == "ok"


FRESH = """
import ctypes
from bwprof import _core
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
def active():
    flags, state = ctypes.c_uint(), ctypes.c_int()
    assert driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(state)) == 0
    return bool(state.value)
assert not active()
assert _core.current_device("cuda") == 0
_core.make_current("cuda", 0)
assert not active(), "nobody uses the device, and it was given a context"
with _core.Device("cuda", 0) as device, _core.Case(device, "stream_copy", "fp32", {"elements": 64}) as case:
    assert case.verify()["verified"]
    assert active()
    _core.make_current("cuda", 0)
    assert case.verify()["verified"]
    driver.cuCtxSetCurrent(None)
    assert _core.current_device("cuda") == 0
    assert case.verify()["verified"]
"""


@pytest.mark.cuda
def test_a_device_that_nobody_uses_is_left_alone() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_traced_graph(gpu: _core.Device, precision: str) -> None:
    """The kernels' own timestamps are close to the time of the graph."""
    with _core.Case(gpu, "stream_copy", precision, {"elements": 1 << 24}) as case:
        try:
            traced = case.measure(trace=True, max_seconds=0.3)
        except _core.UnavailableError as error:
            pytest.skip(str(error))
        alone = case.measure(max_seconds=0.3)
    assert traced["kernel_span_ns"] == pytest.approx(alone["median_ns"], rel=0.03, abs=150.0)
    assert math.isnan(alone["kernel_span_ns"])


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("precision", "m", "n", "k", "expected"),
    [
        ("fp16", 16, 151936, 896, "cublaslt"),
        ("fp16", 16, 4096, 4096, "skinny"),
        ("fp16", 16, 4096, 14336, "skinny"),
        ("fp16", 16, 14336, 4096, "cublaslt"),
        ("fp16", 8, 14336, 4096, "skinny"),
        ("fp16", 2, 151936, 896, "skinny"),
        ("fp16", 2, 896, 896, "gemv"),
        ("fp16", 1, 14336, 4096, "gemv"),
        ("fp16", 1, 151936, 896, "gemv"),
        ("bf16", 2, 28672, 8192, "gemv"),
        ("tf32", 8, 4864, 896, "skinny"),
        ("tf32", 8, 14336, 4096, "skinny"),
        ("tf32", 2, 14336, 4096, "gemv"),
        ("fp32", 2, 14336, 4096, "gemv"),
        ("fp32", 4, 28672, 8192, "gemv"),
        ("fp32", 8, 896, 12, "gemv"),
        ("fp32", 4, 151936, 896, "skinny"),
        ("fp32", 3, 14336, 3072, "skinny"),
        ("fp32", 8, 14336, 4096, "skinny"),
        ("fp32", 16, 4864, 896, "skinny"),
        ("fp32", 17, 14336, 4096, "skinny"),
        ("fp32", 32, 4096, 14336, "skinny"),
        ("fp32", 33, 14336, 4096, "cublaslt"),
        ("fp16", 12, 250002, 1024, "skinny"),
        ("fp16", 1, 4864, 897, "cublaslt"),
        ("fp32", 1, 28672, 4096, "gemv"),
        ("int8", 1, 4096, 4096, "skinny"),
        ("int8", 17, 4096, 4096, "wgmma"),
        ("tf32", 160, 14336, 4096, "wgmma"),
        ("tf32", 160, 4096, 4096, "cublaslt"),
        ("fp8_e4m3", 16, 896, 4096, "skinny"),
        ("fp8_e4m3", 64, 896, 4864, "wgmma"),
        ("fp8_tensor", 256, 2048, 8192, "cublaslt"),
        ("int4_g128", 1, 14336, 4096, "fused"),
        ("q4_0", 1, 14336, 4096, "fused"),
        ("q4_0", 8, 4096, 14336, "repacked"),
        ("q4_0", 1, 4864, 896, "repacked"),
        ("q4_0", 1, 4864, 864, "separate"),
    ],
)
def test_the_faster_product_is_the_default(precision: str, m: int, n: int, k: int, expected: str) -> None:
    """At these shapes the default was at least 1.05 times as fast as others, or equal, on an H200."""
    with bwprof.Case("gemm", precision=precision, backend="cuda", M=m, N=n, K=k) as case:
        assert case.variant == expected
