"""The public classes and functions: bwprof.Case, bwprof.cost, and every example in a docstring."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

import bwprof

pytestmark = pytest.mark.usefixtures("one_thread")

MODULES = sorted(
    found.name for found in pkgutil.walk_packages(bwprof.__path__, "bwprof.") if not found.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    """Examples without a backend run on the preferred device."""
    module, runner = importlib.import_module(name), doctest.DocTestRunner()
    for found in doctest.DocTestFinder().find(module):
        if found.examples:  # running one of none takes as long as a short example
            runner.run(found)
    assert runner.failures == 0


def test_case_runs_on_a_callers_arrays() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((3, 50)), rng.standard_normal((7, 50))
    with bwprof.Case("gemm", precision="fp32", M=3, N=7, K=50, backend="cpu") as case:
        np.testing.assert_allclose(case.run(A=a, B=b)["D"], a @ b.T, rtol=1e-4, atol=1e-4)
        assert case.params == {"M": 3, "N": 7, "K": 50, "beta": 0}
        assert (case.cost.bytes_read, case.cost.bytes_written) == ((3 * 50 + 7 * 50) * 4, 3 * 7 * 4)


def test_case_converts_narrow_types() -> None:
    """FP16 arrays stay as they are; BF16 is float32 or bits, because NumPy lacks it."""
    values = np.array([1.0, -2.5, 3.140625, 65280.0], dtype=np.float32)  # exact in BF16 and FP16
    with bwprof.Case("stream_copy", precision="fp16", elements=4, backend="cpu") as case:
        out = case.run(a=values.astype(np.float16))["b"]
        assert out.dtype == np.float16
        np.testing.assert_array_equal(out, values)
    with bwprof.Case("stream_copy", precision="bf16", elements=4, backend="cpu") as case:
        np.testing.assert_array_equal(case.run(a=values)["b"], values)
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        np.testing.assert_array_equal(case.run(a=bits)["b"], values)
        np.testing.assert_array_equal(case.run(a=values.astype(">f4"))["b"], values)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("kind", [">u2", "<i2", ">i2"])
def test_stored_bits_of_another_type_are_refused(precision: str, kind: str) -> None:
    bits = np.array([0x3F80, 0xC020, 0x4049, 0x0001], dtype=np.uint16)
    with (
        bwprof.Case("stream_copy", precision=precision, elements=4, backend="cpu") as case,
        pytest.raises(ValueError, match=f"a holds {kind}: {precision} takes floats, or its stored bits as <u2"),
    ):
        case.run(a=bits.astype(kind))


def test_case_measures() -> None:
    with bwprof.Case("stream_triad", elements=1 << 16, backend="cpu") as case:
        found = case.measure(cache="hot", max_seconds=0.05)
    assert found.verified
    assert 0.0 <= found.time_ms_lo <= found.time_ms <= found.time_ms_hi
    assert 0.0 < found.time_ms_min <= found.time_ms
    assert found.time_ms * 1e6 == pytest.approx(np.median(found.samples_ns))
    assert found.bandwidth_gb_s == pytest.approx(3 * 4 * 65536 / found.time_ms / 1e6)


def test_costs_compare() -> None:
    shapes = {"M": np.array([1, 2]), "N": 8, "K": 8}
    assert bwprof.cost("gemm", **shapes) == bwprof.cost("gemm", **shapes)
    assert bwprof.cost("gemm", **shapes) != bwprof.cost("gemm", **{**shapes, "M": np.array([1, 3])})
    assert bwprof.cost("gemm", **shapes) != bwprof.cost("gemm", M=1, N=8, K=8)
    one = bwprof.cost("gemm", M=1, N=8, K=8)
    assert one == bwprof.cost("gemm", M=1, N=8, K=8)
    assert len({one, bwprof.cost("gemm", M=1, N=8, K=8), bwprof.cost("gemm", M=2, N=8, K=8)}) == 2
    assert one != dict(one)
    assert one != dict(one)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed is"):
        bwprof.Case("gemm", M=1, N=2, K=3, backend="cpu", seed=seed)


def test_bad_arrays_are_refused() -> None:
    heads = {"num_heads": 2, "head_dim": 4, "backend": "cpu"}
    with bwprof.Case("attention_decode", kv_lens=[3, 8], **heads) as case:
        with pytest.raises(ValueError, match=r"kv_lens.*int32"):
            case.run(kv_lens=np.array([2**32 + 1, 8]))  # would be 1 and 8 in 32 bits
        own = case.run()["out"]
        assert np.array_equal(case.run(kv_lens=np.array([3, 8]))["out"], own)
        for length in (2, 9):  # a GPU's kernels have divided the work by 3
            refused = f"kv_lens element 0 is {length}: allowed is the case's own, 3; make a case of other lengths"
            with pytest.raises(ValueError, match=refused):
                case.run(kv_lens=np.array([length, 8]))
        with pytest.raises(ValueError, match=r"q.*\(1,\).*\(2, 1, 2, 4\)"):
            case.run(q=np.zeros(1))
        with pytest.raises(ValueError, match=r"attention_decode 'qq'.*'q'"):
            case.run(qq=np.zeros(1))


def test_cost_of_arrays_of_shapes() -> None:
    found = bwprof.cost("gemm", precision="fp16", M=np.array([[1], [128]]), N=[896, 4864], K=896)
    assert found.bytes_read.shape == (2, 2)
    assert found.bytes_read[0, 0] == 1_607_424
    assert (found.bytes_read[1, 1], found.bytes_written[1, 1], found.flops[1, 1]) == (
        8_945_664,
        1_245_184,
        1_115_684_864,
    )
    assert found.arithmetic_intensity[1, 1] == pytest.approx(1_115_684_864 / (8_945_664 + 1_245_184))
    both = bwprof.cost(
        "attention_prefill", seq_len=512, num_heads=14, num_kv_heads=2, head_dim=64, causal=[True, False]
    )
    assert both.flops.tolist() == [470_679_552, 939_524_096]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"M": [1, 0]}, "M = 0: allowed is 1"),
        ({"M": [1.5]}, "M must hold whole numbers"),
        ({"M": [2**63]}, "M holds 9223372036854775808, which does not fit in 64 bits"),
        ({"MM": [1]}, "did you mean 'M'"),
        ({"M": [2**31 - 1], "N": 2**31 - 1, "K": 2**31 - 1}, "overflow"),
        ({"M": [1], "kv_lens": [1]}, "kv_lens goes with scalar parameters only"),
        ({"M": [1], "variant": "naive"}, "variant is 'naive': it needs a backend"),
    ],
)
def test_bad_arrays_of_shapes_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bwprof.cost("gemm", **given)


@pytest.mark.parametrize("given", [{"M": "x" * 100_000}, {"N": [[1] * 100_000]}, {"cache": [7] * 100_000}])
def test_messages_shorten_long_values(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(given))}( is |: )") as caught:
        bwprof.sweep("gemm", backend="cpu", roofs=False, **given)
    assert len(str(caught.value)) < 300


LONG = "x" * 100_000
GIVEN: list[dict[str, Any]] = [
    *({name: LONG} for name in ("fn", "counters", "check", "roofs", "roof_threads", "poll", "M", "cache", "device")),
    *({name: [LONG]} for name in ("name", "precision")),
    *({name: "a\ud800"} for name in ("cache", "device", "backend")),
]


def nothing() -> None:
    """A function to measure."""


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: next(iter(given))[:12])
def test_messages_of_measure_are_printable(given: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        bwprof.measure(**{"fn": nothing, "device": "cpu", "roofs": False, **given})
    assert len(str(caught.value).encode()) < 500


@pytest.mark.parametrize("name", ["output", "suite", "precision", "variant", "timer", "seed"])
@pytest.mark.parametrize("value", ["a\ud800", LONG, "a\x1b[31m"], ids=["surrogate", "long", "escape"])
def test_messages_of_sweep_are_printable(name: str, value: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        bwprof.sweep("gemm", **{"M": 1, "backend": "cpu", "roofs": False, name: value})
    assert len(str(caught.value).encode()) < 500
    assert "\x1b" not in str(caught.value)


def test_strange_file_names_are_printable() -> None:
    for call in (bwprof.load, lambda name: bwprof.save(bwprof.results.frame.from_rows([]), name)):
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            call("a\ud800")
        assert b"a\\ud800" in str(caught.value).encode()


def test_unusual_arguments_work() -> None:
    assert bwprof.cost("gemm", M=[]).bytes.shape == (0,)
    lens = iter([3, 4])
    assert bwprof.cost("attention_decode", batch=2, kv_lens=lens) == bwprof.cost(
        "attention_decode", batch=2, kv_lens=[3, 4]
    )
    case = bwprof.Case("gemm", M=1, N=8, K=8, backend="cpu")
    case.close()
    assert repr(case) == "<bwprof.Case, closed>"
    with pytest.raises(ValueError, match="gemm on cpu '5'"):
        bwprof.Case("gemm", backend="cpu", variant=5)  # type: ignore[arg-type]
    frame = bwprof.sweep("gemm", N=8, K=8, backend="cpu", cache="hot", roofs=False, max_total_seconds=np.float32(20))
    assert set(frame["status"]) == {"ok"}


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("DeviceError", RuntimeError),
        ("MemoryLimitError", MemoryError),
        ("SweepError", RuntimeError),
        ("UnavailableError", RuntimeError),
        ("UnsupportedError", ValueError),
    ],
)
def test_exceptions_have_bwproferror_and_a_builtin_base(name: str, second: type[Exception]) -> None:
    error = getattr(bwprof.errors, name)
    assert name in bwprof.errors.__all__
    assert issubclass(error, bwprof.errors.BwprofError)
    assert issubclass(error, second)


def test_every_public_name_has_an_example() -> None:
    for where in (bwprof, bwprof.analysis):
        for name in dir(where):
            found = getattr(where, name)
            if (
                callable(found)
                and not name.startswith("_")
                and not (isinstance(found, type) and issubclass(found, Exception))
            ):
                assert ">>>" in (found.__doc__ or ""), f"{where.__name__}.{name}"
