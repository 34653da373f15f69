"""A PyTorch made of NumPy: as much of it as a ladder's peers need."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest


class Tensor:
    """As much of PyTorch's as peers need."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def reshape(self, *shape: Any) -> Tensor:
        return Tensor(self.array.reshape(shape[0] if isinstance(shape[0], tuple) else shape))

    def swapaxes(self, one: int, other: int) -> Tensor:
        return Tensor(np.swapaxes(self.array, one, other))

    def to(self, _place: object) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.array.copy())

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array))

    def cpu(self) -> Tensor:
        return self

    def view(self, kind: type) -> Tensor:
        return Tensor(self.array.view(kind))

    def numpy(self) -> np.ndarray:
        return self.array


def attend(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False, enable_gqa: bool = False) -> Tensor:
    group = q.array.shape[1] // k.array.shape[1]
    assert enable_gqa == (group != 1)
    keys, values = (np.repeat(one.array.astype(np.float64), group, axis=1) for one in (k, v))
    scores = q.array.astype(np.float64) @ np.swapaxes(keys, 2, 3) / np.sqrt(q.array.shape[3])
    if is_causal:
        scores += np.where(np.tri(scores.shape[2], dtype=bool), 0.0, -np.inf)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return Tensor((weights / weights.sum(axis=3, keepdims=True) @ values).astype(q.array.dtype))


def plant(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of that name; `seen` is what its settings were when it was called."""
    made: dict[str, Any] = {}
    for name in (
        "torch",
        "torch.nn",
        "torch.nn.functional",
        "torch.nn.attention",
        "torch.backends",
        "torch.backends.cuda",
    ):
        made[name] = types.ModuleType(name)
        made[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, made[name])
    fake = made["torch"]
    settings = types.SimpleNamespace(allow_tf32="before")
    made["torch.backends.cuda"].matmul = settings
    fake.seen = []

    def matmul(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        fake.seen.append(settings.allow_tf32)
        np.matmul(a.array, b.array, out=out.array)
        return out

    @contextmanager
    def sdpa_kernel(backend: str) -> Iterator[None]:
        if backend == "math":
            raise RuntimeError("no available kernel\nand more of it")
        fake.seen.append(backend)
        yield

    @contextmanager
    def no_grad() -> Iterator[None]:
        yield

    fake.__version__ = "0.0-fake"
    fake.float32, fake.float16, fake.uint8 = np.float32, np.float16, np.uint8
    fake.matmul, fake.no_grad, fake.device = matmul, no_grad, str
    fake.frombuffer = lambda data, dtype: Tensor(np.frombuffer(data, dtype))
    fake.empty = lambda shape, dtype, device: Tensor(np.full(shape, np.nan, dtype))
    fake.settings = settings
    made["torch.nn.functional"].scaled_dot_product_attention = attend
    made["torch.nn.attention"].sdpa_kernel = sdpa_kernel
    made["torch.nn.attention"].SDPBackend = types.SimpleNamespace(
        FLASH_ATTENTION="flash", CUDNN_ATTENTION="cudnn", MATH="math"
    )
    return fake
