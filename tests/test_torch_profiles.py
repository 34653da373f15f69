"""bwprof.torch_profiler_rows, and the flags of rows of modules, on stand-ins for PyTorch's events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import toy_roofs

import bwprof
from bwprof import _core
from bwprof.measuring.row import Context
from bwprof.profiler import torch_calls
from bwprof.profiler.torch_calls import TimedPart, make_row


def event(name: str, start: float, end: float, kind: str = "CPU", **more: Any) -> SimpleNamespace:
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    argument = {"device_index": 0, "is_user_annotation": False, "device_time_total": 0.0}
    return SimpleNamespace(name=name, time_range=span, device_type=f"DeviceType.{kind}", **argument | more)


def rows_of(*events: Any, **how: Any) -> dict[str, bwprof.Row]:
    found = bwprof.torch_profiler_rows(SimpleNamespace(events=lambda: list(events)), **how)
    return {row.case: row for row in found}


def test_rows_of_operators() -> None:
    events = [
        event("aten::mm", 0, 100),
        event("aten::mm", 100, 400),
        event("aten::mm", 400, 600),
        event("b", 900, 1000),
    ]
    found = rows_of(*events, bytes={"aten::mm": (1_500_000, 500_000)})
    assert list(found) == ["aten::mm", "b"]
    mm = found["aten::mm"]
    assert (mm.time_ms, mm.calls, mm.total_ms, mm.share_pct) == (0.2, 3, pytest.approx(0.6), pytest.approx(60))
    assert mm.bandwidth_gb_s == pytest.approx(2e6 / 0.2e-3 / 1e9)
    assert (mm.operation, mm.backend, mm.timer, mm.status) == ("operator", "cpu", "torch.profiler", "ok")
    assert found["b"].bandwidth_gb_s is None
    assert len(bwprof.frame(list(found.values()))) == 2


def test_rows_of_kernels() -> None:
    kernels = [event("void gemm<half>(x)[clone]", 0, 50, "CUDA"), event("Memset", 60, 70, "CUDA")]
    drawn = event("my range", 0, 70, "CUDA", is_user_annotation=True)
    launch = event("aten::mm", 0, 500, device_time_total=50.0)
    found = rows_of(*kernels, drawn, launch, event("idle", 0, 9), bytes={"*gemm*": (8, 8), "aten::mm": (5, 5)})
    assert list(found) == ["void gemm<half>(x)[clone]", "aten::mm", "Memset"]
    assert found["void gemm<half>(x)[clone]"].bytes_read == 8
    assert (found["aten::mm"].time_ms, found["aten::mm"].bytes_written) == (0.05, 5)
    assert found["Memset"].share_pct == pytest.approx(100 * 10 / 60)
    cost = bwprof.cost("gemm", M=1, N=64, K=64)
    row = rows_of(*kernels, bytes={"Memset": cost})["Memset"]
    assert (row.bytes_read, row.flops) == (cost.bytes_read, cost.flops)


def test_rows_of_calls_with_different_bytes() -> None:
    events = [event("sdpa", 0, 1), event("sdpa", 10, 12), event("sdpa", 20, 27)]
    row = rows_of(*events, bytes={"sdpa": [(1000, 0), (1500, 500), (7000, 0)]})["sdpa"]
    assert (row.bytes_read, row.flags, row.time_ms) == (3167, "bytes_vary", 0.002)
    assert row.bandwidth_gb_s == pytest.approx(1.0, rel=1e-3)
    shaped = [event("mm", 0, 1, input_shapes=[[1, 8]]), event("mm", 2, 5, input_shapes=[[3, 8]])]
    row = rows_of(*shaped, bytes={"mm": (2000, 0)})["mm"]
    assert (row.flags, row.bandwidth_gb_s) == ("bytes_vary", pytest.approx(1.0))
    assert "list" in row.reason
    row = rows_of(*events, bytes={"sdpa": [(8, 8)] * 3})["sdpa"]
    assert (row.bytes_read, row.flags) == (8, "")
    with pytest.raises(ValueError, match=r"sdpa .*\b2 calls\b.*\b3"):
        rows_of(*events, bytes={"sdpa": [(8, 8)] * 2})


def test_kernels_belong_to_the_module_that_launched_them() -> None:
    def host(name: str, start: float, *inner: Any, us: tuple[float, ...] = ()) -> SimpleNamespace:
        kernels = [SimpleNamespace(duration=one) for one in us]
        return event(name, start, start + 1, kernels=kernels, cpu_children=list(inner))

    events = []
    for start, us in ((0.0, 10.0), (100.0, 30.0)):
        products = [host("aten::mm", start + 1, us=(us, 1.0)) for _ in range(2)]
        modules = [host("bwprof:0", start + 1, product) for product in products]
        events += [*modules, *products, host("bwprof:whole", start, *modules, us=(5.0,))]
    events += [event("bwprof:0", 0, 99, "CUDA"), host("bwprof:1", 101.0)]
    taken, why = torch_calls._sum_kernels(events, 2)
    assert not why
    assert taken is not None
    assert taken.times_ms == {"0": [0.022, 0.062], "whole": [0.027, 0.067], "1": [0.0, 0.0]}
    assert taken.counts == {"0": [2, 2], "whole": [1, 1], "1": [0, 1]}
    assert torch_calls._sum_kernels([host("bwprof:whole", 0.0)], 1) == (None, "torch.profiler saw no kernel")


@pytest.mark.parametrize(("late", "holds"), [([True, True, False, False], 4), ([True] * 6, 6)], ids=["twice", "always"])
def test_the_stream_is_blocked_longer_where_the_host_is_late(
    late: list[bool], holds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a stand-in for a GPU: two calls, of which a late one is tried again with twice the time, at most twice."""
    slept: list[int] = []
    queries = iter(late)
    cuda = SimpleNamespace(
        synchronize=lambda place: None,
        get_device_properties=lambda place: SimpleNamespace(clock_rate=1_000_000),
        _sleep=slept.append,
        Event=lambda: SimpleNamespace(record=lambda: None, query=lambda: next(queries)),
    )
    monkeypatch.setattr(torch_calls.hardware, "stream_handle", lambda stream, index: 0)

    @contextmanager
    def observe(start: Any, stop: Any) -> Iterator[None]:
        yield

    with _core.Device("cpu") as device:
        call = partial(time.sleep, 0.001)
        times = torch_calls._time_marks(cuda, device, 0, call, observe, 2)
    assert len(slept) == holds
    assert [round(cycles / slept[0], 3) for cycles in slept[:3]] == [1, 2, 4]
    assert slept[0] >= 1.5e6  # 1.5 times a millisecond at 1 GHz
    assert len(times.times_ms["whole"]) == 2
    assert times.flags == ("event_bias",)
    assert len(times.notes) == all(late)


def test_bad_profiles_are_refused() -> None:
    def unfinished() -> None:
        raise AssertionError

    with pytest.raises(TypeError, match=r"prof is 3: .*torch\.profiler\.profile"):
        bwprof.torch_profiler_rows(3)
    with pytest.raises(ValueError, match="has not ended"):
        bwprof.torch_profiler_rows(SimpleNamespace(events=unfinished))
    with pytest.raises(ValueError, match=r"'aten::nm'.*'aten::mm'"):
        rows_of(event("aten::mm", 0, 1), bytes={"aten::nm": (1, 1)})
    with pytest.raises(ValueError, match=r"\ba are 3\b"):
        rows_of(event("a", 0, 1), bytes={"a": 3})
    with pytest.raises(ValueError, match=r"bytes_read .*-1"):
        rows_of(event("a", 0, 1), bytes={"a": (-1, 0)})
    assert not rows_of()
    running = SimpleNamespace(events=lambda: [], profiler=SimpleNamespace(kineto_results=None))
    with pytest.raises(ValueError, match="has not ended"):
        bwprof.torch_profiler_rows(running)
    with pytest.raises(TypeError, match=r"a torch\.profiler\.profile is needed"):
        bwprof.torch_profiler_rows(type("profile", (), {"events": lambda self: []}))


def test_a_cpus_device_index_is_ignored() -> None:
    (row,) = rows_of(event("aten::mm", 0, 1, device_index=22376), roofs="stored").values()
    assert (row.backend, row.case) == ("cpu", "aten::mm")


def rowed(times_ms: list[float], **how: Any) -> bwprof.Row:
    context = Context("run", "cpu", {}, None)
    return make_row(TimedPart("part", "Linear", times_ms, 1 << 20, 1 << 20, 0, "fp32", **how), context)


def test_scattered_times_are_flagged() -> None:
    steady, wild = [1.0, 1.01, 1.02, 1.03, 1.04], [1.0, 1.0, 1.2, 9.0, 9.0]
    assert (rowed(steady, alike=True).noise, rowed(steady, alike=True).flags) == (pytest.approx(0.02 / 1.02), "")
    row = rowed(wild, alike=True)
    assert (row.noise, row.flags) == (pytest.approx(8 / 1.2), "noisy")
    assert "667%" in row.reason
    assert (rowed(wild).noise, rowed(wild).flags) == (None, ""), "a name's calls need not be alike"


def test_roofs_in_doubt_are_flagged() -> None:
    doubted = replace(toy_roofs.ROOFS, points=tuple(replace(one, others_share=0.5) for one in toy_roofs.POINTS))
    context = Context("run", "cpu", {}, doubted)
    row = make_row(TimedPart("part", "Linear", [1.0], 1 << 20, 1 << 20), context)
    assert "noisy_roof" in row.flags
    assert "50 %" in row.reason
