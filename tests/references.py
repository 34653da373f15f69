"""Kernels beside NumPy in float64: shapes that fit no tile, references, how far a result may be off, the devices.

Who adds an operation adds its shapes, its reference and its allowed error here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bwprof import _core

Arrays = dict[str, np.ndarray]

REGISTRY = {op["name"]: op for op in _core.operations()}
ROUNDOFF = {t["name"]: t["roundoff"] for t in _core.dtypes()}
RESULT = {p["name"]: p["result"] for p in _core.precisions()}
F32 = ROUNDOFF["fp32"]
# The distance between neighboring numbers near zero, which are subnormal: the smallest of them.
SPACING = {"fp32": 2.0**-149, "tf32": 2.0**-136, "fp16": 2.0**-24, "bf16": 2.0**-133}

FLOATS = {"fp32": np.float32, "tf32": np.float32, "fp16": np.float16}  # those that NumPy has

HEADS = [(1, 1, 1), (7, 1, 80), (14, 2, 64), (6, 3, 256), (4, 4, 33), (32, 8, 128), (20, 1, 40)]
PREFILLS = [(1, 1, 1), (2, 37, 37), (1, 130, 130), (1, 19, 83), (3, 65, 65), (1, 64, 200), (2, 3, 129)]
LONG_PREFILLS = [((3, 1, 64), (2, 301, 700)), ((5, 1, 128), (1, 270, 270)), ((2, 2, 128), (2, 140, 515))]
LONG_PREFILLS += [((3, 1, 72), (1, 70, 150)), ((8, 1, 192), (1, 135, 140)), ((5, 5, 160), (1, 40, 290))]
DECODES = [(1, 1), (3, 61), (1, 4099), (2, 129), (5, 7), (1, 1000), (2, 517)]
APPENDS = [(1, 1, 0, 1, 1), (3, 5, 11, 2, 64), (2, 17, 3, 1, 80), (1, 9, 30, 3, 33), (4, 128, 60, 8, 128)]
APPENDS += [(3, 733, 60, 8, 128)]  # K alone fills a GPU
GATHERS = [(1, 1, 1, 1), (3, 61, 2, 64), (2, 100, 1, 80), (1, 37, 3, 33), (2, 300, 8, 128), (2, 1401, 8, 128)]

SHAPES: dict[str, list[dict[str, Any]]] = {
    "stream": [{"elements": n} for n in (1, 3, 1023, 1024, 2048, 4099, 70_001, 1 << 20, 1_100_003)],
    "gemm": [
        {"M": m, "N": n, "K": k, "beta": beta}
        for m, n, k, beta in [
            (1, 1, 1, 0),
            (1, 1, 1, 1),
            (1, 13, 7, 0),
            (1, 896, 896, 0),
            (1, 129, 4096, 1),
            (2, 67, 130, 0),
            (5, 31, 257, 1),
            (8, 200, 512, 0),
            (17, 5, 3, 1),
            (32, 96, 80, 0),
            (61, 59, 127, 0),
            (128, 130, 64, 1),
            (131, 257, 263, 0),
            (3, 2, 2000, 0),
            (131, 264, 200, 1),
            (300, 520, 72, 0),
            (1, 1027, 768, 0),
            (2, 61, 2440, 0),
            (4, 33, 1032, 1),
            (7, 17, 24, 0),
            (9, 131, 344, 0),
            (13, 40, 4104, 1),
            (16, 77, 1048, 1),
            (11, 2503, 264, 1),
            (10, 4301, 72, 0),
            # FP32 through shared memory: blocks of 32 rows of B and of 16, several turns of a warp and less than one.
            (12, 2305, 100, 0),
            (17, 2203, 68, 1),
            (25, 2180, 132, 0),
            (24, 41, 1000, 1),
            (29, 3, 2052, 0),
        ]
    ],
    "attention_prefill": [
        {"batch": b, "seq_len": s, "kv_len": kv, "num_heads": h, "num_kv_heads": g, "head_dim": d, "causal": c}
        for (h, g, d), (b, s, kv) in [*zip(HEADS, PREFILLS, strict=True), *LONG_PREFILLS]
        for c in (0, 1)
    ],
    "attention_decode": [
        {"batch": b, "kv_len": kv, "num_heads": h, "num_kv_heads": g, "head_dim": d}
        for (h, g, d), (b, kv) in zip(HEADS, DECODES, strict=True)
    ]
    + [
        {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64, "kv_lens": [1, 300, 257, 16]},
        {"num_heads": 7, "num_kv_heads": 1, "head_dim": 80, "kv_lens": [2049, 3], "kv_len": 2100},
        # Long rows, straight into registers and (groups above 8) through shared memory; clusters of 8 blocks
        {"batch": 1, "kv_len": 307, "num_heads": 10, "num_kv_heads": 2, "head_dim": 160},
        {"batch": 1, "kv_len": 211, "num_heads": 24, "num_kv_heads": 3, "head_dim": 192},
        {"batch": 1, "kv_len": 523, "num_heads": 8, "num_kv_heads": 1, "head_dim": 256},
        {"batch": 1, "kv_len": 131, "num_heads": 20, "num_kv_heads": 1, "head_dim": 256},
        {"batch": 2, "kv_len": 97, "num_heads": 36, "num_kv_heads": 2, "head_dim": 176},
        {"batch": 3, "kv_len": 229, "num_heads": 8, "num_kv_heads": 2, "head_dim": 132},
        {"num_heads": 6, "num_kv_heads": 1, "head_dim": 188, "kv_lens": [1, 5, 318, 17]},
        {"num_heads": 6, "num_kv_heads": 2, "head_dim": 160, "kv_lens": [601, 1, 3, 322, 18]},
        {"batch": 2, "kv_len": 703, "num_heads": 2, "num_kv_heads": 2, "head_dim": 192},
        {"batch": 1, "kv_len": 421, "num_heads": 7, "num_kv_heads": 1, "head_dim": 144},
        {"num_heads": 11, "num_kv_heads": 1, "head_dim": 164, "kv_lens": [2, 259, 33]},
        {"batch": 1, "kv_len": 173, "num_heads": 3, "num_kv_heads": 1, "head_dim": 161},
        # Groups above 8: 16 heads in a warp; the others' in other blocks or, where columns are many, in other warps
        {"batch": 34, "kv_len": 61, "num_heads": 64, "num_kv_heads": 1, "head_dim": 128},
        {"batch": 67, "kv_len": 41, "num_heads": 48, "num_kv_heads": 1, "head_dim": 128},
        {"batch": 1, "kv_len": 163, "num_heads": 40, "num_kv_heads": 1, "head_dim": 72},
        {"batch": 2, "kv_len": 531, "num_heads": 34, "num_kv_heads": 2, "head_dim": 128},
        {"batch": 1, "kv_len": 777, "num_heads": 20, "num_kv_heads": 1, "head_dim": 64},
        {"num_heads": 64, "num_kv_heads": 2, "head_dim": 128, "kv_lens": [1, 517, 15, 128, 300]},
        {"num_heads": 64, "num_kv_heads": 1, "head_dim": 72, "kv_lens": [130, 1, 401, 16]},
        {"batch": 1, "kv_len": 345, "num_heads": 80, "num_kv_heads": 1, "head_dim": 64},
        {"batch": 5, "kv_len": 331, "num_heads": 15, "num_kv_heads": 3, "head_dim": 128},
        {"num_heads": 3, "num_kv_heads": 1, "head_dim": 64, "kv_lens": [1, 16, 600, 17, 128, 129, 5, 2, 3, 1021]},
        {"batch": 1, "kv_len": 163, "num_heads": 5, "num_kv_heads": 1, "head_dim": 72},
        # The sanitizers' three: through shared memory, a warp's keys its own and two warps'; straight into registers
        {"num_heads": 20, "num_kv_heads": 1, "head_dim": 128, "kv_lens": [201, 17]},
        {"batch": 34, "kv_len": 40, "num_heads": 64, "num_kv_heads": 1, "head_dim": 72},
        {"batch": 1, "kv_len": 89, "num_heads": 16, "num_kv_heads": 2, "head_dim": 96},
    ],
    "kv_append": [
        {"batch": b, "seq_len": s, "kv_len": kv, "num_kv_heads": g, "head_dim": d, "page_size": page}
        for b, s, kv, g, d in APPENDS
        for page in (0, 1, 7, 16)
    ],
    "kv_gather": [
        {"batch": b, "kv_len": kv, "num_kv_heads": g, "head_dim": d, "page_size": page}
        for b, kv, g, d in GATHERS
        for page in (1, 16, 13)
    ],
    "kv_copy": [
        {"batch": b, "kv_len": kv, "num_kv_heads": g, "head_dim": d}
        for b, kv, g, d in [(1, 1, 1, 1), (3, 61, 2, 64), (1, 37, 3, 33), (2, 2000, 8, 128), (1, 4001, 3, 67)]
    ],
    "norm": [{"tokens": t, "hidden": h} for t, h in [(1, 1), (3, 37), (5, 896), (64, 16), (2, 4099), (1, 9000)]],
}

# What models have, each with each: query heads of a K/V head, and head_dim.
GROUPS, HEAD_DIMS = (1, 3, 5, 7, 8), (64, 72, 80, 96, 128, 160, 192, 256)
# Lengths that no tile divides: of several tiles on a GPU; on a CPU, whose kernels have small ones or none, short.
# Queries and keys of a prefill; keys of a decode; those of a ragged batch.
GRID_LENGTHS = {
    "cpu": ((7, 21), 37, [21, 1, 16]),
    "cuda": ((139, 331), 1301, [517, 1, 1733, 16, 130]),
}


def shapes_of(operation: str) -> list[dict[str, Any]]:
    return SHAPES.get(operation) or SHAPES[REGISTRY[operation]["family"]]


def grid_shapes(operation: str, backend: str) -> list[dict[str, Any]]:
    """Every group with every head_dim; a GPU's are causal and not, and of entries as long as each other and ragged,
    while a CPU's are by turns one of the two. Moves know no groups: every head_dim, in pages and not."""
    (queries, keys), decoded, ragged = GRID_LENGTHS[backend]
    names = {param["name"] for param in REGISTRY[operation]["params"]}
    found: list[dict[str, Any]] = []
    for place, head_dim in enumerate(HEAD_DIMS):
        if "num_heads" not in names:
            for page in (0, 7) if operation == "kv_append" else (7,):
                lengths = {"batch": 2, "seq_len": 5, "kv_len": 23, "page_size": page}
                shape = {**lengths, "num_kv_heads": 3, "head_dim": head_dim}
                found.append({name: value for name, value in shape.items() if name in names})
            continue
        for turn, group in enumerate(GROUPS, place):
            heads = {"num_heads": 2 * group, "num_kv_heads": 2, "head_dim": head_dim}
            if operation == "attention_prefill":
                both = [{"batch": 1, "seq_len": queries, "kv_len": keys, **heads, "causal": c} for c in (0, 1)]
            else:
                both = [{"batch": 2, "kv_len": decoded, **heads}, {**heads, "kv_lens": ragged}]
            found += both if backend == "cuda" else both[turn % 2 : turn % 2 + 1]
    return found


MOST_SHAPES = max(*map(len, SHAPES.values()), 2 * len(GROUPS) * len(HEAD_DIMS))


# ---- references: float64 inputs and the shape in, expected outputs and the largest error allowed out ----


def checksums(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    raw = bits["a"] + bytes(-len(bits["a"]) % 4096)
    words = np.frombuffer(raw, dtype=np.uint32).reshape(-1, 1024)
    return {"checksum": words.sum(axis=1, dtype=np.uint64).astype(np.uint32).view(np.int32)}


def pattern(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    return {"b": (np.arange(p["elements"]) % 64 - 32) / 32}


def copied(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    return {"b": x["a"]}


def triad(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    return {"c": x["a"] + 0.5 * x["b"]}


def gemm(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    return {"D": x["A"] @ x["B"].T + (x["C"] if p["beta"] else 0)}


def attention(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    q, k, v = x["q"], x["k"], x["v"]
    batch, queries, heads, dim = q.shape
    keys, groups = k.shape[1:3]
    # The query heads of a K/V head together: batch, K/V head, query head, query, dim or key. Their rows are one matrix.
    apart, as_one = (batch, groups, heads // groups, queries, -1), (batch, groups, heads // groups * queries, -1)
    grouped = q.reshape(batch, queries, groups, heads // groups, dim).transpose(0, 2, 3, 1, 4)
    scores = (grouped.reshape(as_one) @ k.transpose(0, 2, 3, 1)).reshape(apart) / np.sqrt(dim)
    allowed = np.ones((batch, 1, 1, queries, keys), dtype=bool)
    if p.get("causal"):
        allowed &= np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    if "kv_lens" in x:
        allowed &= (np.arange(keys) < x["kv_lens"][:, None])[:, None, None, None, :]
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out = (weights.reshape(as_one) @ v.transpose(0, 2, 1, 3)).reshape(apart)
    return {"out": out.transpose(0, 3, 1, 2, 4).reshape(q.shape)}


def append(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    result = {}
    for name in ("k", "v"):
        cache = x[f"{name}_cache"].copy()
        if p["page_size"]:
            rows = cache.reshape(-1, *cache.shape[2:])
            assert len(set(x["slots"].tolist())) == x["slots"].size  # a slot written twice would be ambiguous
            rows[x["slots"]] = x[name]
        else:
            cache[:, p["kv_len"] :] = x[name].reshape(p["batch"], p["seq_len"], *cache.shape[2:])
        result[f"{name}_cache"] = cache
    return result


def gather(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    assert sorted(x["table"].ravel().tolist()) == list(range(x["table"].size))
    return {
        name: x[f"{name}_cache"][x["table"]].reshape(p["batch"], -1, *x[f"{name}_cache"].shape[2:])[:, : p["kv_len"]]
        for name in ("k", "v")
    }


def copied_cache(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    return {"k_copy": x["k"], "v_copy": x["v"]}


def rmsnorm(case: Any, bits: dict[str, bytes], x: Arrays, p: dict[str, int]) -> Arrays:
    assert x["weight"].min() >= 1
    assert x["weight"].max() <= 2
    return {"out": x["x"] / np.sqrt((x["x"] ** 2).mean(axis=1, keepdims=True) + 1e-5) * x["weight"]}


REFERENCES = {
    "stream_read": checksums,
    "stream_write": pattern,
    "stream_copy": copied,
    "stream_triad": triad,
    "gemm": gemm,
    "attention_prefill": attention,
    "attention_decode": attention,
    "kv_append": append,
    "kv_gather": gather,
    "kv_copy": copied_cache,
    "rmsnorm": rmsnorm,
}


def allowed_error(operation: str, precision: str, p: dict[str, int]) -> float:
    """Relative to the larger of the value and the outputs' root mean square; 0 = equal."""
    unit = ROUNDOFF[RESULT[precision]]
    if precision == "tf32" and operation.startswith("attention"):  # queries and weights are rounded to it
        unit = ROUNDOFF[precision]
    if operation == "gemm":  # one rounding; FP32 sums of K products, in any order, some units truncating
        return unit + F32 * (8 * np.sqrt(p["K"]) + p["K"] / 4)
    if operation.startswith("attention"):  # the result, the weights and the scores may each be rounded
        return 6 * unit + F32 * (32 + 8 * np.sqrt(p["head_dim"]) + 8 * np.sqrt(p["kv_len"]))
    if operation == "rmsnorm":
        return unit + F32 * (8 + 2 * np.sqrt(p["hidden"]))
    return unit + 2 * F32 if operation == "stream_triad" else 0.0


def excess(found: np.ndarray, expected: np.ndarray, limit: float, spacing: float) -> np.ndarray:
    """Each element's error beyond what a subnormal result is off by, in parts of what it may be; NaN for NaN."""
    scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
    return np.maximum(np.abs(found - expected) - spacing / 2, 0.0) / (limit * scale)


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
    exact = allowed_error(operation, case.precision, case.params) == 0.0  # FP32 holds every stored value
    kind = np.float32 if exact else np.float64
    inputs = {name: decode(operands[name], data, kind) for name, data in bits.items()}
    return REFERENCES[operation](case, bits, inputs, case.params)


def decode(operand: dict[str, Any], data: bytes, kind: type = np.float64) -> np.ndarray:
    """Stored bits to an array of the operand's shape: values of `kind`, or the integers themselves."""
    integers = {"int32": np.int32, "int64": np.int64}.get(operand["dtype"])
    if integers:
        return np.frombuffer(data, dtype=integers).reshape(operand["shape"])
    if operand["dtype"] in FLOATS:  # by other means than the code under test, and three times as fast
        values = np.frombuffer(data, dtype=FLOATS[operand["dtype"]])
    elif operand["dtype"] == "bf16":  # FP32's upper half
        values = (np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(_core.decode(operand["dtype"], data), dtype=np.float32)
    if operand["row_elems"]:  # rows begin with blocks of their own
        values = values.reshape(operand["shape"][0], -1)[:, : operand["row_elems"]]
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
        limit = allowed_error(operation, precision, case.params)
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
