"""The scripts of tests/benchmarks that compare kernels with peers."""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import bwprof
from bwprof import _core


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a script as a module for one test."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "benchmarks"))
    before = set(sys.modules)
    yield import_module
    for name in set(sys.modules) - before:
        if (Path(__file__).parent / "benchmarks" / f"{name}.py").exists():
            del sys.modules[name]


class Tensor:
    """A stand-in for GPU memory."""


class Bench:
    """A PyTorch and a device that count the tensors at each release of memory."""

    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in
        self.tensors: list[weakref.ref[Tensor]] = []
        self.alive: list[int] = []
        nothing = lambda *_: None  # noqa: E731
        self.cuda = SimpleNamespace(
            stream=contextlib.nullcontext, ExternalStream=nothing, synchronize=nothing, empty_cache=self.empty_cache
        )
        self.stream = 0

    def empty_cache(self) -> None:
        self.alive.append(sum(tensor() is not None for tensor in self.tensors))

    def facts(self) -> dict[str, int]:
        return {"cache_bytes": 64}

    def make_set(self) -> Callable[[], object]:
        tensor = Tensor()
        self.tensors.append(weakref.ref(tensor))
        if self.fails_in == "making" and len(self.tensors) == 3:
            raise RuntimeError("CUDA out of memory\nand a page more")

        def launch() -> object:
            if self.fails_in == "launching":
                try:
                    raise KeyError(tensor)
                except KeyError as error:
                    kept = RuntimeError("No available kernel")
                    raise kept from error  # its frame knows it, and it knows its frame
            return tensor

        return launch

    def measure_call(self, function: Callable[[int], object], *_args: Any, **_options: Any) -> dict[str, Any]:
        function(0)
        if self.fails_in == "measuring":
            raise _core.UnavailableError("no graph captures it")
        return {"cold": self.fails_in != "warmth", "cache_note": "all of it stays", "median_ns": 5.0}


@pytest.mark.parametrize(
    ("fails_in", "why"),
    [
        ("making", "CUDA out of memory"),
        ("launching", "No available kernel"),
        ("measuring", "no graph captures it"),
        ("warmth", "not cold: all of it stays"),
    ],
)
def test_a_failing_peer_leaves_no_tensor(script: Callable[[str], ModuleType], fails_in: str, why: str) -> None:
    """Its tensors would stay in memory and in the cache during the next measurement."""
    bench = Bench(fails_in)
    peers = script("gpu_peers").Peers(bench, bench)
    gc.disable()  # nothing may depend on when it comes by
    try:
        assert peers.time_or_why(bench.make_set, 64) == (None, why)
    finally:
        gc.enable()
    assert len(bench.tensors) >= 3
    assert bench.alive[-1] == 0


def test_a_peer_that_runs_is_timed(script: Callable[[str], ModuleType]) -> None:
    bench = Bench("nothing")
    assert script("gpu_peers").Peers(bench, bench).time_or_why(bench.make_set, 64) == (5.0, "")
    assert bench.alive == [0]


def test_ragged_batches(script: Callable[[str], ModuleType], cpu: _core.Device) -> None:
    """Both kinds have the same longest entry; most entries of the uneven one are short. The cost is that of the
    entries.
    """
    targets = script("targets")
    for batch in targets.RAGGED_BATCHES:
        kinds = targets.ragged_lengths(batch)
        assert kinds == targets.ragged_lengths(batch), "the same in every run"
        assert list(kinds) == ["even", "uneven"]
        assert {(len(lengths), max(lengths)) for lengths in kinds.values()} == {(batch, 8192)}
        assert sorted(kinds["even"])[batch // 2] == pytest.approx(4096, rel=0.1)
        assert sum(length <= 512 for length in kinds["uneven"]) == batch - batch // 8
        assert sum(kinds["uneven"]) < sum(kinds["even"]) / 2
    params = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 8}
    found, cost, _ = script("common").measure(
        cpu, "attention_decode", "fp32", params, kv_lens=[3, 40], cache="hot", max_seconds=0.01
    )
    told = bwprof.cost("attention_decode", kv_lens=[3, 40], **params)
    assert (cost["bytes_read"], cost["flops"]) == (told.bytes_read, told.flops)
    assert found["verified"]


def test_the_call_from_which_launches_cost_a_tenth(script: Callable[[str], ModuleType]) -> None:
    """A launch of 1000 ns beside 1 ns an element: 10 % are launches where (1000 + n) / n is 1 / 0.9 of the best."""
    batching = script("batching")
    samples = [(size, 1000 / size + 1, 1.0) for size in (2**shift for shift in range(8, 31, 2))]
    assert int(batching.enough(samples, 1)) == pytest.approx(9000, rel=1e-3)
    assert batching.enough(samples, 2) == "256 or fewer"
    assert batching.enough(samples[:1], 1) == "256 or fewer"
