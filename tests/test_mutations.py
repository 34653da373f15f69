"""No mistake of a kernel passes `verify`: one key, page, row or step left out, taken twice or read from beside its
place, at the largest sizes of the default suite. `tests/benchmarks/mutations.py` tries all sizes, and many more places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mistakes import Attention, Mutation, Product, encoded, keys_to_try, move_mutations

from bwprof import _core


@pytest.fixture(scope="module")
def cpu() -> Iterator[Any]:
    with _core.Device("cpu") as device:
        yield device


def missed(case: Any, mutations: Iterator[Mutation]) -> tuple[list[str], int]:
    """Return the mistakes that `verify` accepted, and how many were tried."""
    passed, tried = [], 0
    for mutation in mutations:
        tried += 1
        if case.verify(outputs=mutation.outputs)["verified"]:
            passed.append(f"{mutation.kind} at {mutation.where}")
    return passed, tried


# The decode of 32 Ki keys, of which every row is a prefill of one query: `unfused` is held to what kernels that round
# their weights can keep, as all of a GPU's are in 16 bits, `flash` to the result's rounding alone.
LONG = {"batch": 1, "seq_len": 1, "kv_len": 32768, "num_heads": 8, "num_kv_heads": 2, "head_dim": 128}


@pytest.mark.parametrize("variant", ["unfused", "flash"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_verify_finds_every_mistake_in_a_long_attention(cpu, precision, variant):
    with _core.Case(cpu, "attention_prefill", precision, LONG, variant=variant, seed=7) as case:
        assert case.verify()["verified"]
        problem = Attention(case)
        right = case.verify(outputs={"out": encoded(case, "out", problem.right())})
        assert right["verified"], right["reason"]
        passed, tried = missed(case, problem.mutations(keys_to_try(problem.keys, 8)))
    assert tried > 150
    if precision == "bf16" and variant == "unfused":
        # One wrong weight of 32 768, its value right, moves a row by less than the rounding of the others' does.
        passed = [mistake for mistake in passed if not mistake.startswith("key K shifted")]
    assert passed == []


def test_verify_finds_every_mistake_in_causal_rows(cpu):
    params = LONG | {"seq_len": 8, "kv_len": 4096, "causal": 1}
    with _core.Case(cpu, "attention_prefill", "bf16", params, variant="unfused", seed=7) as case:
        problem = Attention(case)
        assert case.verify(outputs={"out": encoded(case, "out", problem.right())})["verified"]
        passed, tried = missed(case, problem.mutations([0, 15, 16, 2047, 4087, 4088, 4091, 4095]))
    assert tried > 50
    assert passed == []


@pytest.mark.parametrize(("precision", "inner"), [("fp32", 4096), ("fp16", 4096), ("bf16", 4096), ("bf16", 896)])
def test_verify_finds_every_mistake_in_a_product(cpu, precision, inner):
    with _core.Case(cpu, "gemm", precision, {"M": 3, "N": 512, "K": inner}, seed=7) as case:
        problem = Product(case)
        right = case.verify(outputs={"D": encoded(case, "D", problem.d)})
        assert right["verified"], right["reason"]
        passed, tried = missed(case, problem.mutations(keys_to_try(inner, 20)))
    assert tried > 200
    assert passed == []


def test_verify_finds_every_moved_token(cpu):
    """65 536 tokens of K and V have 16 parts each; `verify` checks one part of every token."""
    params = {"batch": 1, "kv_len": 32768, "num_kv_heads": 8, "head_dim": 128}
    with _core.Case(cpu, "kv_copy", "bf16", params, seed=7) as case:
        assert case.verify(budget_s=20)["rows_checked"] == 65536
        tokens = [0, *range(1237, 32767, 6007), 32767]
        mistakes = (mistake for mistake in move_mutations(case, tokens) if mistake.kind == "row dropped")
        passed, tried = missed(case, mistakes)
    assert tried == 2 * len(tokens)
    assert passed == []


@pytest.mark.parametrize("precision", ["int8", "fp8_e4m3"])
@pytest.mark.parametrize("operation", ["kv_append", "kv_gather", "kv_gather as results", "kv_copy"])
def test_verify_finds_every_wrong_number_and_scale_of_a_cache(cpu, operation, precision):
    """The last bit of each, and scales in each other's places; those that must stay as they were among them."""
    params = {"batch": 2, "kv_len": 4, "num_kv_heads": 3, "head_dim": 5}
    name, _, dequantizes = operation.partition(" ")
    params |= {"seq_len": 3} if name == "kv_append" else {"dequantize": 1} if dequantizes else {}
    with _core.Case(cpu, name, precision, params, seed=7) as case:
        right = {name: np.frombuffer(data, np.uint8).copy() for name, data in case.run({}).items()}
        assert case.verify(outputs=right)["verified"]
        for name, data in right.items():
            stored = data.view(np.uint32 if "scale" in name else np.uint16 if dequantizes else np.uint8)
            for i in range(0, len(stored), 1 if "scale" in name else 7):
                stored[i] ^= 1
                assert not case.verify(outputs=right)["verified"], f"{name} {i}"
                stored[i] ^= 1
            for i in range(len(stored) - 1) if "scale" in name else ():
                stored[[i, i + 1]] = stored[[i + 1, i]]
                assert not case.verify(outputs=right)["verified"], f"{name} {i} and its neighbor"
                stored[[i, i + 1]] = stored[[i + 1, i]]
        assert case.verify(outputs=right)["verified"]


@pytest.mark.parametrize(
    ("operation", "precision", "params"),
    [
        ("rope", "bf16", {"tokens": 3, "num_heads": 3, "num_kv_heads": 2, "head_dim": 6}),
        ("rope_append", "bf16", {"seq_len": 3, "kv_len": 2, "num_heads": 3, "num_kv_heads": 2, "head_dim": 6}),
        ("silu_mul_quantize", "fp8_e4m3", {"tokens": 3, "hidden": 37}),
    ],
)
def test_verify_finds_a_wrong_bit_in_any_element(cpu, operation, precision, params):
    """The last one; of scales, which are 32 bits, one whose place is above what FP32's roundings come to."""
    with _core.Case(cpu, operation, precision, params, seed=7) as case:
        size = {"bf16": 2, "fp8_e4m3": 1, "fp32": 4}
        sizes = {operand["name"]: size.get(operand["dtype"]) for operand in case.operands}
        right = {name: np.frombuffer(data, np.uint8).copy() for name, data in case.run({}).items()}
        assert case.verify(outputs=right)["verified"]
        for name, data in right.items():
            stored = data.view(f"uint{8 * sizes[name]}")
            for i in range(len(stored)):
                bit = 64 if sizes[name] == 4 else 1
                stored[i] ^= bit
                assert not case.verify(outputs=right)["verified"], f"{name} {i}"
                stored[i] ^= bit
        assert case.verify(outputs=right)["verified"]


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("gemm", "A_scale"),
        ("gemm", "B_scale"),
        *((attention, f"{of}_scale") for attention in ("attention_decode", "attention_prefill") for of in "kv"),
        *(("kv_gather", f"{of}_cache_scale") for of in "kv"),
    ],
)
@pytest.mark.parametrize("precision", ["int8", "fp8_e4m3"])
def test_verify_finds_wrong_scales(cpu, operation, name, precision):
    """Each scale its neighbor's, and one a quarter too large."""
    params = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 64, "kv_len": 50}
    if operation == "gemm":
        params = {"M": 9, "N": 40, "K": 300}
    elif operation == "attention_prefill":
        params["seq_len"] = 9
    elif operation == "kv_gather":
        params = {"kv_len": 9, "num_kv_heads": 2, "head_dim": 64, "dequantize": 1}
    with _core.Case(cpu, operation, precision, params, seed=7) as case:
        scales = np.frombuffer(case.inputs()[name], np.float32)
        for wrong in (np.roll(scales, 1), np.where(np.arange(scales.size) == 3, 1.25 * scales, scales)):
            outputs = case.run({name: wrong.astype(np.float32).tobytes()})
            assert not case.verify(outputs=outputs)["verified"]
        assert case.verify(outputs=case.run({}))["verified"]


def test_outputs_to_verify_are_checked(cpu):
    with _core.Case(cpu, "gemm", "fp32", {"M": 2, "N": 3, "K": 4}) as case:
        with pytest.raises(ValueError, match=r"gemm.*output.*'A'"):
            case.verify(outputs={"A": bytes(32)})
        with pytest.raises(ValueError, match=r"D:.*4 bytes:.*24"):
            case.verify(outputs={"D": bytes(4)})
        assert not case.verify(outputs={"D": np.zeros((2, 3), np.float32)})["verified"]
        assert case.verify()["verified"]
