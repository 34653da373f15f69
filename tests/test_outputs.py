"""What a caller's function has written, held against a reference: `measure(fn, output=, reference=, tolerance=)`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bwprof
from bwprof.measuring import callables
from bwprof.measuring.callables import Expected

QUICK: dict[str, Any] = {"device": "cpu", "cache": "hot", "max_seconds": 0.0, "roofs": False}
FP32 = (4 + 1024) * 2.0**-24  # of a number: what rounding may do to it
RNG = np.random.default_rng(7)


def measured(**more: Any) -> bwprof.Row:
    return bwprof.measure(lambda: None, **(QUICK | more))


class Tensor:
    """As PyTorch's on a GPU: no buffer of NumPy's, until it is on the host, and no BF16 there."""

    def __init__(self, values: Any, dtype: str = "float32", where: str = "cuda") -> None:
        self.values, self.dtype, self.where = np.asarray(values, "float32"), f"torch.{dtype}", where
        self.shape = self.values.shape

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return Tensor(self.values, self.dtype.rpartition(".")[2], "cpu")

    def float(self) -> Tensor:
        return Tensor(self.values, "float32", self.where)

    def numpy(self) -> Any:
        if self.where != "cpu" or self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values


def test_a_right_product_is_verified() -> None:
    a, b = RNG.standard_normal((64, 256), "float32"), RNG.standard_normal((256, 32), "float32")
    out = np.empty((64, 32), "float32")
    exact = a.astype("float64") @ b.astype("float64")
    row = bwprof.measure(lambda: np.matmul(a, b, out=out), output=out, reference=lambda: exact, **QUICK)
    assert row["verified"] is True
    assert row["status"] == "ok"
    assert "unverified" not in row["flags"]
    assert row["max_error"] <= np.abs(out - exact).max()
    assert 0 < row["max_error"] <= row["tolerance"]
    assert row["time_ms"] > 0


@pytest.mark.parametrize(("terms", "noise", "verified"), [(1 << 16, 0.0, True), (1 << 16, 5e-4, None)])
def test_long_sums_pass_and_coarser_arithmetic_does_not(terms: int, noise: float, verified: bool | None) -> None:
    """In FP32, term after term; and with inputs rounded as TF32 rounds them, of which each is off by up to 2^-11."""
    a, b = RNG.standard_normal((2, 64, terms))
    a, b = a.astype("float32"), b.astype("float32")
    exact = (a.astype("float64") * b).sum(axis=1)
    coarse = (a * (1 + np.float32(noise) * RNG.choice(np.float32([-1, 1]), a.shape))).astype("float32")
    out = np.cumsum(coarse * b, axis=1, dtype="float32")[:, -1]
    assert Expected(out, exact).compare().verified is verified


def test_an_error_above_the_tolerance_fails_the_row() -> None:
    reference = np.arange(12.0).reshape(3, 4)
    wrong = reference.copy()
    wrong[1, 2] += 0.5
    wrong[2, 3] -= 0.25
    row = measured(output=wrong, reference=reference, tolerance=0.3)
    assert (row["status"], row["verified"], row["time_ms"]) == ("failed", False, None)
    assert (row["max_error"], row["tolerance"]) == (0.5, 0.3)
    assert re.findall(r"output\[1, 2\]|[\d.]+\d", row["reason"]) == ["output[1, 2]", "6.5", "0.5", "0.3"]
    right = measured(output=wrong, reference=reference, tolerance=0.5)
    assert (right["verified"], right["max_error"], right["status"]) == (True, 0.5, "ok")


def test_an_error_without_a_tolerance_is_reported_and_not_judged() -> None:
    """Of 1024 in FP16: 4 roundings of 2^-11 are 2, and 1024 of FP32's 2^-24 are 1/16: 3 is beyond, 2 is not."""
    reference = np.full(8, 1024.0)
    for off, verified in ((2, True), (3, None)):
        out = (reference + np.eye(8)[3] * off).astype("float16")
        row = measured(output=out, reference=reference)
        assert (row["status"], row["verified"]) == ("ok", verified)
        assert (row["max_error"], row["tolerance"]) == (off, 2.0625)
        assert ("unverified" in row["flags"]) == (verified is None)
    assert re.search(r"output\[3\].*1027.*1024.*2\.06.*tolerance=", row["reason"])


def test_small_elements_are_compared_with_the_root_mean_square() -> None:
    """One element of 10^6 among ten thousand of 1: their root mean square is 10^4."""
    reference = np.ones(10_000)
    reference[17] = 1e6
    allowed = FP32 * math.sqrt((1e12 + 9999) / 10_000)
    out = reference.astype("float32")
    out[5] += np.float32(4 * allowed)
    row = measured(output=out, reference=reference)
    assert row["verified"] is None
    assert row["tolerance"] == pytest.approx(allowed)
    out = reference.astype("float32")
    out[17] += 50  # of 10^6, of which 61 are right
    row = measured(output=out, reference=reference)
    assert (row["verified"], row["max_error"], row["tolerance"]) == (True, 50.0, pytest.approx(FP32 * 1e6))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_outputs_that_are_not_finite_fail(bad: float) -> None:
    out = np.ones((2, 3), "float32")
    out[1, 0] = out[1, 2] = bad
    for more in ({}, {"reference": np.ones((2, 3))}, {"reference": np.ones((2, 3)), "tolerance": 1e30}):
        row = measured(output=out, **more)
        assert (row["status"], row["verified"], row["time_ms"], row["max_error"]) == ("failed", False, None, None)
        assert re.search(rf"2 of 6.*\[1, 0\].*{bad}$", row["reason"])


def test_an_output_without_a_reference_is_not_verified() -> None:
    row = measured(output=np.ones(4))
    assert (row["status"], row["verified"], row["max_error"]) == ("ok", None, None)
    assert "unverified" in row["flags"]
    assert "compared with nothing" in row["reason"]
    checked = measured(output=np.ones(4), check=lambda: True)
    assert checked["verified"] is True
    with pytest.raises(RuntimeError, match="its check"):
        measured(output=np.ones(4), reference=np.ones(4), check=lambda: False)


def test_functions_are_called_once_after_the_timing() -> None:
    calls: list[str] = []

    def described(name: str, value: Any) -> Callable[[], Any]:
        return lambda: (calls.append(name), value)[1]

    ones = np.ones(3)
    row = bwprof.measure(
        lambda: calls.append("fn"), output=described("output", ones), reference=described("reference", ones), **QUICK
    )
    assert row["verified"] is True
    assert calls[-2:] == ["output", "reference"]
    assert set(calls[:-2]) == {"fn"}


def test_several_outputs_are_named() -> None:
    one, two = np.zeros(2), np.arange(3.0)
    row = measured(output=[one, two + 1], reference=(one, two), tolerance=0.5)
    assert "output 1[0] is 1" in row["reason"]
    assert measured(output=[one, two], reference=[one, two])["verified"] is True
    assert measured(output=[1.0, 2.0], reference=[1.0, 2.5], tolerance=1)["max_error"] == 0.5


@pytest.mark.parametrize("size", [1e200, 1.7e308, 1e-200])
def test_elements_whose_squares_overflow(size: float) -> None:
    reference = np.array([1.0, -0.5, 0.25]) * size
    assert Expected(reference, reference).compare().verified is True
    found = Expected(-reference, reference).compare()
    assert found.verified is None
    assert found.max_error is not None
    assert found.tolerance is not None
    assert 0.99 * size < found.max_error < math.inf
    assert 0 < found.tolerance <= (4 + 1024) * 2.0**-53 * size
    assert Expected(-reference, reference, size / 2).compare().verified is False


def test_whole_numbers_are_exact() -> None:
    """Also an index: no rounding is allowed it."""
    whole = np.arange(5)
    assert measured(output=whole, reference=whole)["verified"] is True
    row = measured(output=whole + 1, reference=whole)
    assert (row["verified"], row["max_error"], row["tolerance"]) == (None, 1.0, 0.0)
    assert measured(output=whole > 2, reference=whole > 2)["verified"] is True


@pytest.mark.parametrize(
    ("ours", "theirs", "error"),
    [
        (np.int64(2**53 + 1), np.int64(2**53), 1),
        (np.int64(2**63 - 1), np.int64(2**63 - 2), 1),
        (np.int64(-(2**63)), np.int64(-(2**63) + 1), 1),
        (np.uint64(2**64 - 1), np.uint64(2**64 - 2), 1),
        (np.uint64(2**63), np.int64(2**63 - 1), 1),
        (np.int64(-1), np.uint64(2**64 - 1), 2**64),
        (np.int64(2**63 - 1), np.int64(-(2**63)), 2**64),
    ],
)
def test_whole_numbers_beyond_float64_are_exact(ours: Any, theirs: Any, error: int) -> None:
    one, other = (np.array([5, value], dtype=value.dtype) for value in (ours, theirs))
    found = Expected(one, other).compare()
    assert (found.verified, found.max_error) == (None, float(error))
    assert f"output[1] is {int(ours)}, the reference {int(theirs)}" in found.note
    assert Expected(one, other, 0).compare().verified is False
    assert Expected(one, one).compare().verified is True
    assert Expected(one, other, float(2**64)).compare().verified is True


def test_tensors_on_a_gpu() -> None:
    values = np.asarray([[1.0, 2.0]])
    assert measured(output=Tensor(values), reference=values)["verified"] is True
    coarse = measured(output=Tensor([[1.0, 2.02]], "bfloat16"), reference=Tensor(values))
    assert (coarse["verified"], coarse["tolerance"]) == (True, pytest.approx((4 * 2.0**-8 + 2.0**-14) * 2.0))
    assert measured(output=Tensor([[1.0, 2.02]]), reference=values)["verified"] is None


def test_arrays_of_other_libraries() -> None:
    class OfCuPy:
        dtype, shape, __cuda_array_interface__ = np.dtype("float32"), (2,), {"version": 3}

        def get(self) -> Any:
            return np.ones(2, "float32")

    class OfDlpack:
        def __dlpack__(self, **more: Any) -> Any:
            return np.ones(2, "float32").__dlpack__(**more)

        def __dlpack_device__(self) -> tuple[int, int]:
            return np.ones(2).__dlpack_device__()

    assert measured(output=OfCuPy(), reference=[[1.0, 1.0]])["verified"] is True
    assert measured(output=OfDlpack(), reference=[[1.0, 1.0]])["verified"] is True


def test_any_layout_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of elements, transposed and strided arrays: the error is found where it is."""
    monkeypatch.setattr(callables, "_BLOCK", 7)
    reference = RNG.standard_normal((9, 5))
    out = reference.copy()
    out[6, 2] += 1
    for index in (np.s_[:, :], np.s_[::2, ::2], np.s_[::-1]):
        found = Expected(out[index].T, reference[index].T, 0.5).compare()
        at = np.argwhere((out != reference)[index].T)[0]
        assert f"output[{at[0]}, {at[1]}]" in found.wrong
        assert found.max_error == pytest.approx(1.0)
    out[6, 2] = math.nan
    assert re.search(r"1 of 45.*\[6, 2\].*nan", Expected(out).compare().wrong)
    assert Expected(np.float64(2.0), 2.0).compare().verified is True


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"reference": np.ones(2)}, ValueError, "reference= goes with output="),
        ({"tolerance": 1.0}, ValueError, "tolerance= goes with output="),
        ({"output": np.ones(2), "tolerance": 1.0}, ValueError, "tolerance= goes with reference="),
        ({"output": np.ones(2), "reference": np.ones(3)}, ValueError, r"the shape \(2,\), its reference \(3,\)"),
        ({"output": np.ones(2), "reference": np.ones((2, 1))}, ValueError, "the same is needed"),
        ({"output": [np.ones(2)] * 2, "reference": np.ones(2)}, ValueError, "2 outputs and 1 references"),
        ({"output": []}, ValueError, "output is empty"),
        ({"output": np.ones((0, 3))}, ValueError, r"output has the shape \(0, 3\) and no elements"),
        ({"output": "result.npy"}, TypeError, "output is a str: an array of numbers is needed"),
        ({"output": {"y": np.ones(2)}}, TypeError, "output is a dict: an array of numbers is needed"),
        ({"output": [np.ones(2), None]}, TypeError, "output 1 is a NoneType"),
        ({"output": np.array(["a"])}, TypeError, "not of <U1"),
        ({"output": np.array([object()])}, TypeError, "not of object"),
        ({"output": [[1.0, 2.0], [[1.0], [1.0, 2.0]]]}, TypeError, "output 1 is a list.*inhomogeneous"),
        ({"output": np.ones(2, complex)}, TypeError, r"holds complex numbers: compare \.real and \.imag"),
        ({"output": np.ones(2), "reference": [[1.0, math.nan]]}, ValueError, r"reference is not finite: 1 of 2"),
        ({"output": lambda: None}, TypeError, "output returned nothing"),
        ({"output": np.ones(2), "reference": lambda: "x"}, TypeError, "reference is a str"),
        ({"output": np.ones(2), "reference": lambda: np.ones(3)}, ValueError, "the same is needed"),
        *(
            (
                {"output": np.ones(2), "reference": np.ones(2), "tolerance": bad},
                ValueError,
                "tolerance is .*: allowed is a",
            )
            for bad in (-1, math.nan, math.inf, "1e-3", True, [1.0], 10**400)
        ),
    ],
)
def test_bad_input(inputs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        measured(**inputs)


def test_shapes_are_checked_before_the_timing() -> None:
    def never() -> None:
        raise AssertionError("it was measured")

    with pytest.raises(ValueError, match="the same is needed"):
        bwprof.measure(never, output=Tensor(np.ones((2, 3))), reference=np.ones((3, 2)), **QUICK)


def test_exceptions_of_the_callers_functions_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        measured(output=lambda: 1 / 0)

    async def later() -> Any:
        return np.ones(2)

    with pytest.raises(TypeError, match="it does no work"):
        measured(output=later)

    class Lost(Tensor):
        def cpu(self) -> Tensor:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        measured(output=Lost([1.0]))
