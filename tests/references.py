"""Kernels of every device beside the references of tests/operations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from operations import OPERATIONS, ROUNDOFF, Arrays
from precisions import TYPES

from bwprof import _core

# The distance between neighboring numbers near zero, which are subnormal: the smallest of them.
SPACING = {name: kind.spacing for name, kind in TYPES.items() if kind.spacing}

REGISTRY = {op["name"]: op for op in _core.operations()}
MOST_SHAPES = max(len(shapes) for op in OPERATIONS.values() for shapes in (op.shapes_on("cuda"), *op.grid.values()))


def excess(found: np.ndarray, expected: np.ndarray, limit: float, spacing: float) -> np.ndarray:
    """Each element's error beyond what a subnormal result is off by, in parts of what it may be; NaN for NaN."""
    scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
    return np.maximum(np.abs(found - expected) - spacing / 2, 0.0) / (limit * np.maximum(scale, spacing))


def excess_of_rows(
    found: np.ndarray, expected: np.ndarray, typical: float, roundoff: float, freedom: float
) -> np.ndarray:
    """Each row's root mean square of errors, in parts of what chance allows: a sum of squares of normal variables is
    beyond that once in e^10 (Laurent and Massart)."""
    size = np.sqrt(np.mean(expected**2, axis=-1, keepdims=True))
    scale = np.maximum(size, np.sqrt(np.mean(expected**2)))
    half_unit = np.ldexp(roundoff, np.frexp(expected)[1] - 1)
    squares = np.mean((found - expected) ** 2 / ((typical * scale) ** 2 + half_unit**2 / 3), axis=-1)
    return np.sqrt(squares / (1 + 2 * np.sqrt(10 / freedom) + 20 / freedom))


class CaseWithin:
    """A case some of whose methods a subclass replaces."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.case = _core.Case(*arguments, **options)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.case.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.case, name)


# ---- devices: every instruction set of this machine, every GPU ----


def instruction_sets() -> list[str]:
    runnable = []
    for name in _core.build["isas"].replace(",", " ").split():
        os.environ["BWPROF_CPU_ISA"] = name
        try:
            _core.Device("cpu").close()
            runnable.append(name)
        except ValueError:  # compiled in, but this processor lacks it
            pass
        finally:
            del os.environ["BWPROF_CPU_ISA"]
    return runnable


CUDA = next(backend for backend in _core.backends() if backend["name"] == "cuda")
CUDA_MARKS = [pytest.mark.cuda] + (
    [] if CUDA["devices"] else [pytest.mark.skip(reason=f"no CUDA device: {CUDA['reason']}")]
)
INSTRUCTION_SETS = instruction_sets()
DEVICES = [("cpu", isa) for isa in INSTRUCTION_SETS] + [pytest.param(("cuda", ""), id="cuda", marks=CUDA_MARKS)]


@pytest.fixture(scope="module")
def opened() -> Iterator[dict[tuple[str, str], Any]]:
    """Devices that a file's tests have opened."""
    devices: dict[tuple[str, str], Any] = {}
    yield devices
    for device in devices.values():
        device.close()


@pytest.fixture(params=DEVICES, ids=lambda param: "-".join(part for part in param if part))
def kernel_device(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, opened: dict[tuple[str, str], Any]
) -> Any:
    """Each in turn for each test; opened once."""
    backend, isa = request.param
    if isa:
        monkeypatch.setenv("BWPROF_CPU_ISA", isa)
    if request.param not in opened:
        opened[request.param] = _core.Device(backend)
    device = opened[request.param]
    assert not isa or isa in device.facts()["runtime"]
    return device


# Around what else a test is of: its devices one after the other, so that one reference serves all of them.
on_each_device = pytest.mark.parametrize(
    "kernel_device", DEVICES, ids=lambda param: "-".join(part for part in param if part), indirect=True
)

_EXPECTED: dict[tuple[Any, ...], Arrays] = {}  # what the last references were, by operation, precision and shape


def expected_of(
    operation: str, precision: str, shape: dict[str, Any], case: Any, operands: dict[str, dict[str, Any]]
) -> Arrays:
    """The reference's outputs of the generated inputs, which are the same on every device and for every variant: where
    others are generated, the outputs are wrong."""
    key = (operation, precision, repr(sorted(shape.items())))
    if key not in _EXPECTED:
        if len(_EXPECTED) == MOST_SHAPES:
            _EXPECTED.pop(next(iter(_EXPECTED)))
        _EXPECTED[key] = reference(operation, case, operands, case.inputs())
    return _EXPECTED[key]


def reference(operation: str, case: Any, operands: dict[str, dict[str, Any]], bits: dict[str, bytes]) -> Arrays:
    entry = OPERATIONS[operation]
    exact = entry.allowed_error(case.precision, case.params) == 0.0  # FP32 holds every stored value
    kind = np.float32 if exact else np.float64
    inputs = {name: decode(operands[name], data, kind) for name, data in bits.items()}
    return entry.reference(inputs, case.params, bits)


def decode(operand: dict[str, Any], data: bytes, kind: type = np.float64) -> np.ndarray:
    """Stored bits to an array of the operand's shape: values of `kind`, or the integers themselves."""
    integers = {"int32": np.int32, "int64": np.int64}.get(operand["dtype"])
    if integers:
        return np.frombuffer(data, dtype=integers).reshape(operand["shape"])
    values = TYPES[operand["dtype"]].decode(data)
    if operand["row_elems"]:  # rows begin with blocks of their own
        values = values.reshape(*operand["shape"][:-1], -1)[..., : operand["row_elems"]]
    return values.reshape(operand["shape"]).astype(kind, copy=False)


def check(device: Any, operation: str, variant: str, precision: str, shape: dict[str, Any], given: Any = None) -> None:
    params = {name: value for name, value in shape.items() if name != "kv_lens"}
    with _core.Case(
        device, operation, precision, params, kv_lens=shape.get("kv_lens"), variant=variant, seed=7
    ) as case:
        operands = {operand["name"]: operand for operand in case.operands}
        if given:
            bits = case.inputs() | given(operands)
            out, expected = case.run(bits), reference(operation, case, operands, bits)
        else:
            out, expected = case.run({}), expected_of(operation, precision, shape, case, operands)
        assert set(out) == set(expected)
        limit = OPERATIONS[operation].allowed_error(precision, case.params | {"variant": variant})
        for name, data in out.items():
            if limit == 0.0:
                found = decode(operands[name], data, np.float32)
                if not np.array_equal(found, expected[name]):
                    np.testing.assert_array_equal(found, expected[name], err_msg=f"{name} of {shape}")
                continue
            found = decode(operands[name], data)
            error = excess(found, expected[name], limit, SPACING[operands[name]["dtype"]])
            assert not np.isnan(error).any(), f"{name} of {shape} has NaN"
            worst = np.unravel_index(error.argmax(), error.shape)
            assert error[worst] <= 1, (
                f"{name}{[int(i) for i in worst]} of {shape}: error {error[worst]:.3g} times the {limit:.3g} allowed"
            )
            if typical := OPERATIONS[operation].typical_error(precision, case.params):
                roundoff = ROUNDOFF[operands[name]["dtype"]]
                rows = excess_of_rows(found, expected[name], typical[0], roundoff, typical[1])
                assert rows.max() <= 1, f"{name}[{rows.argmax()}] of {shape}: its row errs by {rows.max():.3g} times"
