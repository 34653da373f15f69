"""moe_gemm: how many experts have tokens, a caller's own routing, and faults that verification sees."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import references
from operations import OPERATIONS, RESULT
from operations.gemm import experts_product
from test_decode import each_plan

from bwprof import _core
from bwprof.llm import workload

kernel_device, opened = references.kernel_device, references.opened


@pytest.mark.parametrize("tokens", [1, 2, 3, 16, 64, 1000])
@pytest.mark.parametrize(("experts", "top_k"), [(128, 8), (8, 2), (4, 4), (7, 1)])
def test_active_experts_are_those_of_a_models_step(experts: int, top_k: int, tokens: int) -> None:
    """By default: the mean number by chance, to the nearest."""
    found = _core.complete("moe_gemm", "fp16", {"experts": experts, "top_k": top_k, "tokens": tokens})
    assert found["active"] == round(workload.distinct_experts(experts, top_k, tokens))
    assert _core.complete("moe_gemm", "fp16", found) == found


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"experts": 4, "top_k": 5}, "top_k = 5.*1 to experts = 4"),
        ({"experts": 4, "top_k": 2, "active": 1}, "active = 1.*top_k = 2.*to 2"),
        ({"experts": 4, "top_k": 2, "active": 5, "tokens": 9}, "active = 5.*to 4"),
        ({"experts": 4, "top_k": 2, "active": 3, "tokens": 1}, "active = 3.*to 2"),
        ({"experts": 4, "top_k": 2, "tokens": 2**30}, "2147483648.*up to 2"),
    ],
)
def test_routing_that_there_is_not_is_refused(params: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.complete("moe_gemm", "fp16", params)


# ---- a caller's routing ----

EIGHT = ("int8", "fp8_e4m3", "fp8_tensor", "fp8_block")
SHAPE = {"tokens": 23, "experts": 5, "top_k": 2, "active": 5, "N": 69, "K": 256}
COUNTS = [0, 40, 0, 5, 1]
FEW, FEWER = {**SHAPE, "tokens": 5, "K": 2560}, [0, 7, 0, 2, 1]  # as many as on average would be 2 for each expert


def routed(counts: list[int], tokens: int) -> dict[str, bytes]:
    """Rows in another order than tokens, so many for each expert."""
    rows = np.arange(sum(counts), dtype=np.int32) * 7 % tokens
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return {"rows": rows.astype(np.int32).tobytes(), "offsets": offsets.tobytes()}


@pytest.mark.parametrize(
    ("precision", "shape", "counts"),
    [
        ("fp32", SHAPE, COUNTS),
        *((precision, *one) for precision in ("bf16", "int8", "fp8_block") for one in [(SHAPE, COUNTS), (FEW, FEWER)]),
    ],
)
def test_every_variant_follows_a_callers_routing(
    kernel_device: Any, precision: str, shape: dict[str, int], counts: list[int]
) -> None:
    """One expert has nearly all rows, others none; offsets that do not rise harm nothing."""
    tokens, rows = shape["tokens"], sum(counts)
    for variant in kernel_device.variants("moe_gemm", precision, shape):
        name = variant["name"]
        if variant["refuses"]:
            continue
        with _core.Case(kernel_device, "moe_gemm", precision, shape, variant=name) as case:
            operands = {operand["name"]: operand for operand in case.operands}
            bits = case.inputs() | routed(counts, tokens)
            right = experts_product({key: references.decode(operands[key], data) for key, data in bits.items()})
            found = references.decode(operands["D"], case.run(bits)["D"])
            limit = OPERATIONS["moe_gemm"].allowed_error(precision, case.params)
            spacing = references.SPACING[RESULT[precision]]
            assert references.excess(found, right, limit, spacing).max() <= 1, name
            falling = np.array([0, rows, 3, rows, 0, rows], dtype=np.int32).tobytes()
            case.run(bits | {"offsets": falling})
            with pytest.raises(ValueError, match=f"rows element 0 is {tokens}: allowed is 0 to {tokens - 1}"):
                case.run({"rows": np.full(rows, tokens, dtype=np.int32).tobytes()})


# ---- what verification sees ----

SPOILED = {
    "A_scale": lambda data: data[-4:] + data[:-4],  # each group's or row's is another's
    "B_scale": lambda data: data[-4:] + data[:-4],
    "B_zero": lambda data: bytes(byte ^ 0x11 for byte in data),
    "rows": lambda data: data[4:] + data[:4],  # another token's row
    "offsets": lambda data: data[:4] + (np.frombuffer(data[4:-4], np.int32) - 1).tobytes() + data[-4:],  # a row early
}


@pytest.mark.parametrize("precision", ["int4_g128", "int8", "fp8_block"])
def test_a_wrong_token_expert_or_scale_is_beyond_the_tolerance(precision: str) -> None:
    shape = {"tokens": 5, "experts": 4, "top_k": 2, "active": 3, "N": 5, "K": 300}
    with _core.Device("cpu") as device, _core.Case(device, "moe_gemm", precision, shape, seed=5) as case:
        operands = {operand["name"]: operand for operand in case.operands}
        inputs = case.inputs()
        right = references.reference("moe_gemm", case, operands, inputs)["D"]
        limit = OPERATIONS["moe_gemm"].allowed_error(precision, shape)

        def worst(bits: dict[str, bytes]) -> float:
            found = references.decode(operands["D"], case.run(bits)["D"])
            return float(references.excess(found, right, limit, references.SPACING["fp16"]).max())

        assert worst({}) <= 1
        spoiled = [name for name in SPOILED if name in inputs]
        assert len(spoiled) == 4
        for name in spoiled:
            assert worst({name: SPOILED[name](inputs[name])}) > 1, name


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "fp8_w8a16", "q4_k", "int4_g64", "nvfp4", "mxfp4_bf16", *EIGHT])
def test_each_plan_of_a_gpu_is_right(precision: str) -> None:
    """From 1 to more than 16 tokens an expert, more tiles than blocks and fewer, short rows and long."""
    shapes = [(1, 8, 2, 2, 70, 2048), (16, 64, 4, 41, 2500, 768), (9, 3, 2, 3, 85, 8192), (40, 5, 2, 5, 333, 1280)]
    shapes.append((48, 8, 2, 8, 600, 14336))  # more of A than there is room for
    verify_plans(precision, "streamed", [*shapes, (2, 30, 6, 12, 9001, 256)])


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "bf16", "int4_g64", *EIGHT])
def test_each_plan_of_many_tokens_is_right(precision: str) -> None:
    """More tiles than multiprocessors and fewer, experts without tokens, last tiles of one row and of few columns."""
    variant = "separate" if precision == "int4_g64" else "wgmma"
    shapes = [(129, 7, 2, 2, 384, 1040), (1000, 3, 1, 2, 1920, 144), (700, 5, 2, 5, 2304, 512)]
    verify_plans(precision, variant, shapes)


def verify_plans(precision: str, variant: str, shapes: list[tuple[int, ...]]) -> None:
    with _core.Device("cuda") as device:
        for shape in shapes:
            params = dict(zip(("tokens", "experts", "top_k", "active", "N", "K"), shape, strict=True))

            def verify(params: dict[str, int]) -> None:
                with _core.Case(device, "moe_gemm", precision, params, variant=variant) as case:
                    result = case.verify(0.01)
                    assert result["verified"], f"{params}: {result['reason']}"

            each_plan(device, partial(verify, params))
