"""Every operation x precision x variant x instruction set against NumPy float64, on shapes that fit no tile.

What is tested comes from the registry: a new operation without a reference here, or a new variant that is wrong, fails.
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
# The distance between neighbouring numbers near zero, which are subnormal: the smallest of them.
SPACING = {"fp32": 2.0**-149, "tf32": 2.0**-136, "fp16": 2.0**-24, "bf16": 2.0**-133}

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


MOST_SHAPES = max(map(len, SHAPES.values()))


def shapes_of(operation: str) -> list[dict[str, Any]]:
    return SHAPES.get(operation) or SHAPES[REGISTRY[operation]["family"]]


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
    # The query heads of a K/V head together: batch, K/V head, query head, query, dim or key.
    grouped = q.reshape(batch, queries, groups, heads // groups, dim).transpose(0, 2, 3, 1, 4)
    scores = grouped @ k.transpose(0, 2, 3, 1)[:, :, None] / np.sqrt(dim)
    allowed = np.ones((batch, 1, 1, queries, keys), dtype=bool)
    if p.get("causal"):
        allowed &= np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    if "kv_lens" in x:
        allowed &= (np.arange(keys) < x["kv_lens"][:, None])[:, None, None, None, :]
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out = weights @ v.transpose(0, 2, 1, 3)[:, :, None]
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


def test_a_result_near_zero_may_be_off_by_half_a_subnormal_number():
    """All of FP16's subnormal numbers are 2^-24 apart: relative to them, rounding errs by anything."""
    expected = np.array([2.0**-24 * part for part in (0.3, 1.5, 2.5, 1000.25)])
    rounded = np.round(expected / 2.0**-24) * 2.0**-24
    limit = allowed_error("gemm", "fp16", {"K": 64})
    assert (np.float16(expected) == rounded).all()
    assert (np.abs(rounded[:1] - expected[:1]) > limit * expected[:1]).all()
    for one in range(expected.size):  # each a row of its own, whose scale is no larger
        alone = np.s_[one : one + 1]
        assert excess(rounded[alone], expected[alone], limit, SPACING["fp16"]).max() <= 1
        wrong = rounded[alone] + 2.0**-24 * (1 if rounded[one] >= expected[one] else -1)
        assert excess(wrong, expected[alone], limit, SPACING["fp16"]).max() > 1 or expected[one] > 2.0**-15
    assert np.isnan(excess(np.array([np.nan]), np.array([1.0]), limit, SPACING["fp16"])).all()


def test_every_operation_has_a_reference_and_shapes():
    assert set(REFERENCES) == set(REGISTRY)
    assert all(shapes_of(operation) for operation in REGISTRY)


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
    """Devices that tests of this file have opened."""
    devices: dict[tuple[str, str], Any] = {}
    yield devices
    for device in devices.values():
        device.close()


@pytest.fixture(params=DEVICES, ids=lambda param: "-".join(part for part in param if part))
def kernel_device(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, opened: dict[tuple[str, str], Any]
) -> Any:
    """Each in turn for each test, so that one reference serves all of them; opened once."""
    backend, isa = request.param
    if isa:
        monkeypatch.setenv("BWPROF_CPU_ISA", isa)
    if request.param not in opened:
        opened[request.param] = _core.Device(backend)
    device = opened[request.param]
    assert not isa or isa in device.facts()["runtime"]
    return device


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
    inputs = {name: decode(operands[name], data) for name, data in bits.items()}
    return REFERENCES[operation](case, bits, inputs, case.params)


def decode(operand: dict[str, Any], data: bytes, kind: type = np.float64) -> np.ndarray:
    """Stored bits to an array of the operand's shape: values of `kind`, or the integers themselves."""
    integers = {"int32": np.int32, "int64": np.int64}.get(operand["dtype"])
    if integers:
        return np.frombuffer(data, dtype=integers).reshape(operand["shape"])
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
                found = decode(operands[name], data, np.float32)  # which holds every stored value
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


def kernel_params() -> list[Any]:
    """One parameter per kernel: every variant of every operation, in each precision, on each device it is made for.

    Those that share references stand together."""
    found = [
        (operation, precision, variant["name"], (backend, isa))
        for backend, isa in [*(("cpu", isa) for isa in INSTRUCTION_SETS), ("cuda", "")]
        for operation, entry in REGISTRY.items()
        for variant in entry["variants"].get(backend, [])
        for precision in variant["precisions"]
    ]
    return [
        pytest.param(
            (backend, isa),
            operation,
            variant,
            precision,
            id="-".join((isa or backend, operation, variant, precision)),
            marks=CUDA_MARKS if backend == "cuda" else [],
        )
        for operation, precision, variant, (backend, isa) in sorted(found, key=lambda row: row[:2])
    ]


@pytest.mark.parametrize(
    ("kernel_device", "operation", "variant", "precision"), kernel_params(), indirect=["kernel_device"]
)
def test_kernel_against_float64(kernel_device, operation, variant, precision):
    refusals = []
    for shape in shapes_of(operation):
        params = {name: value for name, value in shape.items() if name != "kv_lens"}
        rows = kernel_device.variants(operation, precision, params, shape.get("kv_lens"))
        assert any(not row["refuses"] for row in rows), f"no variant runs {shape}"
        assert sum(row["default"] for row in rows) == 1
        refusal = next(row["refuses"] for row in rows if row["name"] == variant)
        if refusal:
            refusals.append(refusal)
            continue
        try:
            check(kernel_device, operation, variant, precision, shape)
        except _core.UnavailableError as error:
            pytest.skip(str(error))
    if len(refusals) == len(shapes_of(operation)):
        pytest.skip(f"refused every shape: {sorted(set(refusals))}")


@pytest.mark.sanitize
@pytest.mark.parametrize(
    ("kernel_device", "operation", "variant", "precision"),
    [param for param in kernel_params() if param.values[0][0] == "cuda" and param.values[2] != "cublaslt"],
    indirect=["kernel_device"],
)
def test_own_kernels_on_few_shapes(kernel_device, operation, variant, precision):
    """Few enough for compute-sanitizer, whose racecheck slows a kernel a hundredfold; the library's kernels are not
    ours to check."""
    done, most = 0, 3 if operation == "attention_decode" else 2
    for shape in reversed(shapes_of(operation)):
        params = {name: value for name, value in shape.items() if name != "kv_lens"}
        rows = kernel_device.variants(operation, precision, params, shape.get("kv_lens"))
        if done < most and not next(row["refuses"] for row in rows if row["name"] == variant):
            check(kernel_device, operation, variant, precision, shape)
            done += 1
    if not done:
        pytest.skip(f"{variant} refuses every shape")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_gemm_on_a_callers_arrays(kernel_device, precision):
    """Normal values of very different sizes, not the generated ones."""

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(11)
        return {
            name: _core.encode(precision, rng.standard_normal(operands[name]["shape"]).astype(np.float32))
            for name in ("A", "B")
        }

    missing = ""
    for variant in kernel_device.variants("gemm", precision, {"M": 33, "N": 65, "K": 129}):
        if not variant["refuses"]:
            try:
                check(kernel_device, "gemm", variant["name"], precision, {"M": 33, "N": 65, "K": 129}, given)
            except _core.UnavailableError as error:
                missing = str(error)
    if missing:
        pytest.skip(f"all variants are right but one that could not run: {missing}")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_softmax_survives_large_scores(kernel_device, precision):
    """Scores of +-100 and more: exponentials must be taken relative to the largest one."""

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(13)
        scale = {"q": 8.0, "k": 4.0, "v": 1.0}
        return {
            name: _core.encode(
                precision, np.sign(rng.standard_normal(operands[name]["shape"])).astype(np.float32) * size
            )
            for name, size in scale.items()
        }

    shape = {"batch": 1, "seq_len": 29, "kv_len": 67, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "causal": 1}
    for variant in kernel_device.variants("attention_prefill", precision, shape):
        if not variant["refuses"]:
            check(kernel_device, "attention_prefill", variant["name"], precision, shape, given)
    shape = {"batch": 2, "kv_len": 333, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64}
    for variant in kernel_device.variants("attention_decode", precision, shape):
        if not variant["refuses"]:
            check(kernel_device, "attention_decode", variant["name"], precision, shape, given)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("heads", "head_dim", "trend"), [(2, 64, 1), (2, 64, -1), (2, 128, 1), (2, 256, 1), (300, 64, 1), (300, 128, 1)]
)
def test_prefill_follows_scores_that_rise_and_fall_over_many_tiles(precision, heads, head_dim, trend):
    """Scores that rise by 9 a hundred keys leave old maxima far behind; 300 heads bring out the kernels of large
    grids. One key stands out."""
    shape = {"batch": 1, "seq_len": 150, "kv_len": 700, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim,
             "causal": 1}  # fmt: skip

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(17)
        arrays = {name: rng.integers(-8, 9, operands[name]["shape"]) / 8 for name in "qkv"}
        arrays["q"][..., 0] = 2.0
        ramp = trend * 0.045 * np.sqrt(head_dim) * np.arange(700.0)
        ramp[333] = 21 * np.sqrt(head_dim)
        arrays["k"][0, :, 0, 0] = np.round(8 * ramp) / 8  # scores have no more digits than FP32 keeps of sums
        return {name: _core.encode(precision, array.astype(np.float32)) for name, array in arrays.items()}

    with _core.Device("cuda") as device:
        for variant in device.variants("attention_prefill", precision, shape):
            if variant["refuses"] or variant["name"] in ("unfused", "strided", "shared", "padded"):
                continue
            with _core.Case(device, "attention_prefill", precision, shape, variant=variant["name"]) as case:
                operands = {operand["name"]: operand for operand in case.operands}
                bits = given(operands)
                found = decode(operands["out"], case.run(bits)["out"])[:, :, -2:]
                x = {name: decode(operands[name], bits[name]) for name in bits}
                x["q"] = x["q"][:, :, -2:]
                expected = attention(case, bits, x, case.params)["out"]
            limit = allowed_error("attention_prefill", precision, shape)
            assert excess(found, expected, limit, SPACING[precision]).max() <= 1, variant["name"]


LONG_DECODES = [
    {"batch": 1, "kv_len": 20011, "num_heads": 3, "num_kv_heads": 1, "head_dim": 64},
    {"batch": 9, "kv_len": 1501, "num_heads": 16, "num_kv_heads": 8, "head_dim": 40},
    {"num_heads": 8, "num_kv_heads": 2, "head_dim": 128, "kv_lens": [9000, 1, 5003]},
    {"num_heads": 40, "num_kv_heads": 2, "head_dim": 128, "kv_lens": [9000, 1, 5003]},
    {"batch": 3, "kv_len": 3001, "num_heads": 64, "num_kv_heads": 1, "head_dim": 64},
    # On an H200 two warps, with 16 heads each, share keys, and four.
    {"batch": 17, "kv_len": 1099, "num_heads": 64, "num_kv_heads": 1, "head_dim": 128},
    {"batch": 34, "kv_len": 1099, "num_heads": 64, "num_kv_heads": 1, "head_dim": 128},
    {
        **{"num_heads": 64, "num_kv_heads": 1, "head_dim": 120},
        "kv_lens": [1 + 16 * i if i % 4 == 1 else 1100 - 13 * i for i in range(20)],
    },
    # Two, four and six splits there: a warp puts eight, four or two records together at once, FP32's in two turns.
    {"batch": 20, "kv_len": 200, "num_heads": 8, "num_kv_heads": 1, "head_dim": 256},
    {"batch": 40, "kv_len": 200, "num_heads": 8, "num_kv_heads": 1, "head_dim": 128},
    {"batch": 24, "kv_len": 333, "num_heads": 7, "num_kv_heads": 1, "head_dim": 120},
]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", LONG_DECODES, ids=lambda shape: f"{shape.get('batch', 'ragged')}x{shape['head_dim']}")
def test_decode_over_more_keys_than_blocks_meet_at_once(kernel_device, precision, shape):
    check(kernel_device, "attention_decode", None, precision, shape)


# More blocks than run at once on an H200, large ones first: those that wait must leave room for the others.
CROWDED_DECODES = [
    {"batch": 133, "kv_len": 1196, "num_heads": 9, "num_kv_heads": 1, "head_dim": 64},
    {"batch": 133, "kv_len": 905, "num_heads": 17, "num_kv_heads": 1, "head_dim": 128},
    {"batch": 67, "kv_len": 2263, "num_heads": 64, "num_kv_heads": 1, "head_dim": 128},
    # Small ones, of which several of each K/V head wait for the others: in 16 bits twice, in FP32. (check_plans.cc)
    {"batch": 133, "kv_len": 3726, "num_heads": 2, "num_kv_heads": 1, "head_dim": 24},
    {"batch": 133, "kv_len": 1508, "num_heads": 1, "num_kv_heads": 1, "head_dim": 64},
    {"batch": 133, "kv_len": 1773, "num_heads": 1, "num_kv_heads": 1, "head_dim": 24},
]


# On an H200 an entry's splits are a cluster, of eight blocks, of four, of two. Batch, keys, heads, K/V heads, head_dim.
CLUSTERED_DECODES = [
    *((4, 3001, 32, 2, 128), (3, 2047, 24, 2, 112), (1, 640, 32, 2, 64), (8, 3001, 24, 2, 64), (13, 999, 16, 1, 128)),
    *((33, 4099, 9, 1, 128), (12, 3333, 24, 2, 72)),
]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", CLUSTERED_DECODES, ids=str)
def test_decode_whose_splits_are_a_cluster(precision, shape):
    names = ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim")
    with _core.Device("cuda") as device:
        check(device, "attention_decode", None, precision, dict(zip(names, shape, strict=True)))


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", CROWDED_DECODES, ids=lambda shape: f"{shape['num_heads']}x{shape['head_dim']}")
def test_decode_of_more_blocks_than_run_at_once(precision, shape):
    with _core.Device("cuda") as device:
        check(device, "attention_decode", None, precision, shape)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("trend", [1, -1])
@pytest.mark.parametrize(
    ("batch", "kv_len", "heads", "head_dim"),
    # Blocks that meet 64 keys at one go, in many splits and in few, 128 and 256 of them; more keys; groups above 8.
    [(2, 3001, 7, 64), (2, 1000, 7, 64), (9, 1024, 7, 64), (9, 2001, 7, 64), (1, 16384, 3, 64)]
    + [(2, 3001, heads, head_dim) for heads, head_dim in ((8, 128), (12, 64), (20, 128), (40, 64), (64, 128))]
    + [(2, 3001, 3, 160), (2, 3001, 8, 192), (2, 3001, 12, 176)],
)
def test_decode_follows_scores_that_rise_and_fall(batch, kv_len, heads, head_dim, trend, precision):
    """Scores that rise by 9 a hundred keys leave old maxima far behind, of one head more than of another; one key
    stands out. (By 4.5 in FP32: of scores of several hundred it keeps fewer digits than its tolerance asks for.)"""
    shape = {"batch": batch, "kv_len": kv_len, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim}

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(19)
        arrays = {name: rng.integers(-8, 9, operands[name]["shape"]) / 8 for name in "qkv"}
        arrays["q"][..., 0] = np.arange(heads) % 5 / (4 if precision == "fp32" else 2)
        ramp = trend * 0.045 * np.sqrt(head_dim) * np.arange(float(kv_len))
        ramp[4 * kv_len // 9] = 100 * np.sqrt(head_dim)
        # Whole numbers below 2048, which FP16 holds; BF16 rounds them.
        arrays["k"][:, :, 0, 0] = np.round(np.clip(ramp, -2000, 2000))
        return {name: _core.encode(precision, array.astype(np.float32)) for name, array in arrays.items()}

    with _core.Device("cuda") as device:
        check(device, "attention_decode", None, precision, shape, given)


# Where a block meets its keys at one go, 64, 128 or 256 of them, on an H200 (one shape has too many splits): whole
# blocks and others, few splits and many. (batch, kv_len, num_heads, num_kv_heads)
ONESHOTS = [
    *[(1, 640, 7, 1), (1, 601, 7, 1), (1, 1216, 8, 2), (1, 1217, 15, 3), (2, 8192, 1, 1)],
    *[(4, 1024, 14, 2), (4, 1000, 14, 2), (1, 4096, 14, 2), (1, 4095, 14, 2)],
    *[(9, 1024, 7, 1), (8, 1000, 6, 2), (1, 8192, 14, 2), (2, 4003, 16, 2)],
    *[(12, 1024, 14, 2), (12, 1000, 6, 2), (1, 16384, 6, 2), (1, 16000, 10, 2)],
]


@pytest.mark.parametrize("kernel_device", DEVICES[-1:], indirect=True)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", ONESHOTS, ids=lambda shape: "x".join(map(str, shape)))
def test_decode_of_keys_that_blocks_meet_at_one_go(kernel_device, precision, shape):
    params = dict(zip(("batch", "kv_len", "num_heads", "num_kv_heads"), shape, strict=True), head_dim=64)
    check(kernel_device, "attention_decode", "splitkv", precision, params)


# Where FP32 keeps to shared memory with few heads: more than 84 MB of K and V on an H200. Too much to work out whole.
@pytest.mark.parametrize("kernel_device", DEVICES[-1:], indirect=True)
@pytest.mark.parametrize(
    ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim", "ragged"),
    [(11, 4096, 4, 4, 64, 0), (11, 4001, 16, 4, 64, 0), (11, 4000, 28, 4, 64, 1), (5, 13000, 12, 4, 44, 0)],
)
def test_decode_of_many_short_rows(kernel_device, batch, kv_len, num_heads, num_kv_heads, head_dim, ragged):
    params = {"batch": batch, "kv_len": kv_len, "num_heads": num_heads}
    params |= {"num_kv_heads": num_kv_heads, "head_dim": head_dim}
    lengths = [kv_len, *(1 + i * kv_len // batch for i in range(batch - 1))] if ragged else None
    with _core.Case(kernel_device, "attention_decode", "fp32", params, kv_lens=lengths, variant="splitkv") as case:
        for _ in range(2):  # a launch leaves its scratch as it found it
            result = case.verify(1.0)
            assert result["verified"], result["reason"]
            assert result["rows_checked"] > 0


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_decode_passes_a_nan_on_whatever_its_bits(kernel_device, precision):
    """All bits set is a NaN, too, and what becomes of it must not look like a mark of the kernel's own."""
    params = {"batch": 1, "kv_len": 300, "num_heads": 7, "num_kv_heads": 1, "head_dim": 64}
    with _core.Case(kernel_device, "attention_decode", precision, params) as case:
        size = next(len(data) for name, data in case.inputs().items() if name == "v")
        out = case.run({**case.inputs(), "v": b"\xff" * size})
        operand = next(row for row in case.operands if row["name"] == "out")
        assert np.isnan(decode(operand, out["out"])).all()


# Quiet and signalling, of either sign; a number added to the exponent of some makes a number of them.
NANS = {
    "fp32": (np.uint32, (0x7FC00000, 0x7FC00001, 0x7F800001, 0x7FD55555, 0xFFAAAAAA, 0xFFFFFFFF)),
    "fp16": (np.uint16, (0x7E00, 0x7E01, 0x7C01, 0xFEAA, 0xFFFF)),
    "bf16": (np.uint16, (0x7FC0, 0x7FC1, 0x7F81, 0xFFAA, 0xFFFF)),
}
LONG_PREFILL = {"batch": 1, "seq_len": 30, "kv_len": 470, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64}
NAN_SHAPES = {
    "attention_prefill": {"batch": 1, "seq_len": 30, "kv_len": 70, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64},
    "attention_decode": {"batch": 1, "kv_len": 300, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64},
}


@pytest.mark.parametrize("precision", list(NANS))
@pytest.mark.parametrize(
    ("operation", "params", "key"),
    [*((name, shape, 41) for name, shape in NAN_SHAPES.items()), ("attention_prefill", LONG_PREFILL, 201)],
)
def test_a_nan_in_q_or_k_reaches_the_rows_that_attend_it_and_no_other(kernel_device, operation, params, key, precision):
    word, payloads = NANS[precision]
    for variant in kernel_device.variants(operation, precision, params):
        if variant["refuses"]:
            continue
        with _core.Case(kernel_device, operation, precision, params, variant=variant["name"]) as case:
            operands = {operand["name"]: operand for operand in case.operands}
            bits = case.inputs()
            for payload in payloads:
                # The last query's third head; a key of the second K/V head, which its two last heads read.
                for name, place in (("q", (0, -1, 2, 5)), ("k", (0, key, 1, 63))):
                    given = np.frombuffer(bits[name], word).reshape(operands[name]["shape"]).copy()
                    given[place] = payload
                    out = decode(operands["out"], case.run({name: given.tobytes()})["out"])
                    hit = np.zeros(out.shape, dtype=bool)
                    if name == "q":
                        hit[0, -1, 2] = True
                    else:  # query i of a causal prefill attends the keys up to i + kv_len - 30
                        first = max(0, key - params["kv_len"] + 30) if operation == "attention_prefill" else 0
                        hit[0, first:, 2:] = True
                    np.testing.assert_array_equal(np.isnan(out), hit, err_msg=f"{variant['name']} {name} {payload:#x}")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("params", "keys"),
    # One key; all that every query attends but one, whole tiles among them.
    [(NAN_SHAPES["attention_prefill"], slice(41, 42)), (LONG_PREFILL, slice(201, 202)), (LONG_PREFILL, slice(0, 440))],
)
def test_a_key_of_infinite_score_below_zero_weighs_nothing(kernel_device, params, keys, precision):
    """An element of K is infinite and met by negative ones of q alone."""
    for variant in kernel_device.variants("attention_prefill", precision, params):
        if variant["refuses"]:
            continue
        with _core.Case(kernel_device, "attention_prefill", precision, params, variant=variant["name"]) as case:
            operands = {operand["name"]: operand for operand in case.operands}
            bits = case.inputs()
            given = {name: decode(operands[name], data) for name, data in bits.items()}
            given["q"][..., 5] = -1.0
            given["k"][0, keys, 1, 5] = np.inf
            bits = {name: _core.encode(precision, given[name].astype(np.float32)) for name in given}
            found = decode(operands["out"], case.run(bits)["out"])
            assert np.isfinite(found).all(), variant["name"]
            with np.errstate(invalid="ignore"):
                expected = attention(case, bits, given, case.params)["out"]
            limit = allowed_error("attention_prefill", precision, case.params)
            assert excess(found, expected, limit, SPACING[precision]).max() <= 1, variant["name"]


# A block's keys, several blocks' and a step's, however a kernel divides them. (batch, kv_len, heads of a K/V head,
# head_dim)
ENDLESS = [(1, 500, 4, 64), (9, 1024, 4, 64), (9, 2048, 4, 64), (1, 700, 4, 128), (1, 700, 12, 128), (1, 700, 4, 160)]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", ENDLESS, ids=lambda shape: "x".join(map(str, shape)))
def test_keys_of_infinite_scores_below_zero_weigh_nothing(kernel_device, shape, precision):
    """The first five sixths of the keys of an entry: who meets only these has a maximum of minus infinity."""
    batch, kv_len, heads, head_dim = shape
    params = {"batch": batch, "kv_len": kv_len, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim}

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(23)
        arrays = {name: rng.integers(-8, 9, operands[name]["shape"]) / 8 for name in "qkv"}
        arrays["q"][..., 5] = -1.0
        arrays["k"][-1, : 5 * kv_len // 6, 0, 5] = np.inf
        return {name: _core.encode(precision, array.astype(np.float32)) for name, array in arrays.items()}

    for variant in kernel_device.variants("attention_decode", precision, params):
        if not variant["refuses"]:
            check(kernel_device, "attention_decode", variant["name"], precision, params, given)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", ENDLESS, ids=lambda shape: "x".join(map(str, shape)))
def test_an_entry_without_a_finite_score_is_nan_and_no_other_is(kernel_device, shape, precision):
    batch, kv_len, heads, head_dim = shape
    params = {"batch": batch + 1, "kv_len": kv_len, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim}
    for variant in kernel_device.variants("attention_decode", precision, params):
        if variant["refuses"]:
            continue
        with _core.Case(kernel_device, "attention_decode", precision, params, variant=variant["name"]) as case:
            operands = {operand["name"]: operand for operand in case.operands}
            given = {name: decode(operands[name], data) for name, data in case.inputs().items()}
            given["q"][..., 5] = -1.0
            given["k"][-1, ..., 5] = np.inf
            bits = {name: _core.encode(precision, given[name].astype(np.float32)) for name in given}
            found = decode(operands["out"], case.run(bits)["out"])
        assert np.isnan(found[-1]).all(), variant["name"]
        assert np.isfinite(found[:-1]).all(), variant["name"]


def test_a_callers_indices_are_held_to_their_range(kernel_device):
    with _core.Case(kernel_device, "kv_gather", "fp32", {"kv_len": 32, "page_size": 16}) as case:
        with pytest.raises(ValueError, match="table element 1 is 2: allowed is 0 to 1"):
            case.run({"table": np.array([0, 2], dtype=np.int32)})
        with pytest.raises(ValueError, match="table element 0 is -1"):
            case.run({"table": np.array([-1, 0], dtype=np.int32)})
        askew = np.zeros(9, dtype=np.uint8)[1:].view(np.int32)
        askew[:] = [1, 0]
        assert not askew.flags.aligned
        assert case.run({"table": askew}) == case.run({"table": np.array([1, 0], dtype=np.int32)})


def test_bad_arrays_are_explained(kernel_device):
    with _core.Case(kernel_device, "gemm", "fp32", {"M": 2, "N": 3, "K": 4}) as case:
        with pytest.raises(ValueError, match="A: array has 4 bytes: allowed is 32"):
            case.run({"A": np.zeros(1, dtype=np.float32)})
        with pytest.raises(ValueError, match="gemm has no input array 'D'"):
            case.run({"D": np.zeros((2, 3), dtype=np.float32)})
    with pytest.raises(ValueError, match="this Case is closed"):
        case.run({})


@pytest.mark.parametrize("operation", list(REGISTRY))
def test_verify_passes_and_says_how_much_it_saw(kernel_device, operation):
    for precision in REGISTRY[operation]["precisions"]:
        shape = shapes_of(operation)[-1]
        params = {name: value for name, value in shape.items() if name != "kv_lens"}
        if all(v["refuses"] for v in kernel_device.variants(operation, precision, params, shape.get("kv_lens"))):
            continue
        with _core.Case(kernel_device, operation, precision, params, kv_lens=shape.get("kv_lens")) as case:
            verdict = case.verify(budget_s=0.02)
        assert verdict["verified"], verdict["reason"]
        assert verdict["max_error"] <= verdict["tolerance"]
        assert verdict["rows_checked"] >= min(4, verdict["rows_total"])
