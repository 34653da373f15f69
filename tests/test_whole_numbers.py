"""One rule for whole numbers, wherever a parameter is given: what is none is named, with its value."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pretended import TINY

import bwprof
from bwprof.registry import flag_names

WRONG = {
    "bytearray": bytearray(b"1"),
    "bytes": b"1",
    "view": memoryview(b"1"),
    "true": True,
    "numpy": np.True_,
    "array": np.array([True, False]),
    "scalar array": np.array(True),
    "list": [True],
    "mixed": [1, True],
    "tuple": (1, np.False_),
    "objects": np.array([1, True], dtype=object),
    "series": pd.Series([True, False]),
    "nullable": pd.Series([True, None], dtype="boolean"),
    "fraction": 1.5,
    "none": None,
}
USES: dict[str, Callable[[Any], object]] = {
    "cost": lambda value: bwprof.cost("gemm", M=value, N=8, K=8),
    "Case": lambda value: bwprof.Case("gemm", M=value, N=8, K=8, backend="cpu").close(),
    "sweep": lambda value: bwprof.sweep("gemm", M=value, N=8, K=8, backend="cpu", cache="hot", roofs=False),
    "predict": lambda value: bwprof.predict("gemm", M=value, N=8, K=8),
    "variants": lambda value: bwprof.variants("gemm", "cpu", M=value),
    "model_step": lambda value: bwprof.model_step(TINY, device="L4", batch=value),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("use", USES)
def test_non_integers_are_refused(use: str, kind: str) -> None:
    name = "batch" if use == "model_step" else "M"
    with pytest.raises(ValueError, match=rf"\b{name} (is|holds|must hold) .*\bwhole number"):
        USES[use](WRONG[kind])


@pytest.mark.parametrize("kind", ["bytearray", "true", "list", "mixed", "numpy"])
def test_lengths_are_whole_numbers(kind: str) -> None:
    for use in (bwprof.cost, bwprof.predict):
        with pytest.raises((TypeError, ValueError), match="kv_lens"):
            use("attention_decode", batch=1, kv_lens=WRONG[kind])


def test_flags_are_true_or_false() -> None:
    assert {"beta", "causal"} <= flag_names()
    assert not {"M", "page_size"} & flag_names()
    for use in (bwprof.cost, bwprof.predict):
        one, other = (use("attention_prefill", seq_len=64, causal=causal) for causal in (True, 1))
        assert list(map(str, one)) == list(map(str, other))
    found = bwprof.predict("attention_prefill", precision="fp16", seq_len=64, causal=[True, False])
    assert found["causal"].tolist() == [1, 0]
    found = bwprof.sweep("gemm", M=1, N=8, K=8, beta=[True, 0], backend="cpu", cache="hot", roofs=False, max_seconds=0)
    assert found["beta"].unique().tolist() == [1, 0]


@pytest.mark.parametrize(
    "value",
    [2, "2", np.int8(2), np.array(2), [2], (2,), range(2, 3), array.array("q", [2]), np.array([2], dtype=object)],
)
def test_whole_numbers_are_read(value: Any) -> None:
    assert np.ravel(bwprof.cost("gemm", M=value, N=8, K=8).flops).tolist() == [2 * 2 * 8 * 8]
    assert bwprof.predict("gemm", precision="fp32", M=value, N=8, K=8)["flops"].tolist() == [2 * 2 * 8 * 8]


def test_a_suites_numbers(tmp_path: Any) -> None:
    path = tmp_path / "s.toml"
    path.write_text('precisions = ["fp32"]\n[[case]]\nname = "a"\noperation = "gemm"\nparams = { M = true }\n')
    with pytest.raises(ValueError, match=r"M is .*whole number"):
        bwprof.sweep(suite=path, backend="cpu")


@pytest.mark.parametrize("value", [True, np.True_, bytearray(b"1")])
def test_other_whole_numbers(value: Any) -> None:
    with pytest.raises(ValueError, match="seed is"):
        bwprof.Case("gemm", seed=value, backend="cpu")
    with pytest.raises(ValueError, match="memory is"):
        bwprof.model_step(TINY, device="L4", memory=value)
    with pytest.raises(ValueError, match="device is"):
        bwprof.Case("gemm", device=value)
