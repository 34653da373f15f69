"""bwprof.measure: functions of the caller's, on the processor and on the card."""

from __future__ import annotations

import asyncio
import functools
import math
import re
import signal
import sqlite3
import statistics
import sys
import threading
import time
import types
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toy_roofs

import bwprof
from bwprof import _core, hardware
from bwprof.measuring import callables
from bwprof.measuring import function as measuring_function
from bwprof.measuring.callables import do_nothing
from bwprof.results import frame as results_frame
from bwprof.results import schema
from bwprof.roofs import store
from bwprof.roofs.model import RoofPoint, Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import loop as runs_loop

QUICK = {"device": "cpu", "cache": "hot", "max_seconds": 0.05}


class Spin:
    """Works for 1 ms by its own clock, and writes down how long each call took."""

    def __init__(self) -> None:
        self.took: list[int] = []

    def __call__(self) -> None:
        started = now = time.perf_counter_ns()
        while now < started + 1_000_000:
            now = time.perf_counter_ns()
        self.took.append(now - started)


# ---- the processor ----


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_time_against_the_functions_own_clock(cache: str) -> None:
    spin = Spin()
    row = bwprof.measure(spin, device="cpu", cache=cache, min_samples=12, max_seconds=0.2)
    # The shortest of many: other processes make a time too long, never too short.
    assert min(spin.took) / 1e6 <= row["time_ms_min"] < min(spin.took) / 1e6 + 0.2
    assert (row["operation"], row["timer"], row["backend"]) == ("Spin", "monotonic", "cpu")
    assert ("read flush" in (row["reason"] or "")) == (cache == "cold")


@pytest.mark.parametrize(("cache", "flags"), [("cold", "not_cold"), ("hot", "")])
def test_kernels_on_another_gpu_are_reported(cache: str, flags: str) -> None:
    row = {"flags": "", "reason": None, "cache": cache, "timer": "cupti", "verified": True}
    result = {"kernels_elsewhere": 2.0, "kernel_sum_ns": 1.0, "median_ns": 1.0, "flush_bytes": 0}
    measuring_function._add_notes(row, result, "", [])
    assert row["flags"] == flags
    assert row["reason"].startswith("another GPU ran 2 ")
    row |= {"flags": "", "reason": None}
    measuring_function._add_notes(row, result | {"kernels_elsewhere": math.nan}, "", [])
    assert (row["flags"], row["reason"]) == ("", None)


def test_a_row_has_the_columns_of_the_schema() -> None:
    a, b = np.ones(1 << 15), np.empty(1 << 15)
    row = bwprof.measure(
        lambda: np.copyto(b, a),
        name="copy",
        bytes_read=a.nbytes,
        bytes_written=b.nbytes,
        flops=10,
        precision="fp64",
        check=lambda: bool((a == b).all()),
        M=a.size,
        allocator="numpy",
        **QUICK,
    )
    assert list(row) == [*schema.column_names(), "allocator"]
    assert (row["status"], row["verified"], row["M"], row["allocator"]) == ("ok", True, 1 << 15, "numpy")
    assert row["bandwidth_gb_s"] == pytest.approx(2 * a.nbytes / row["time_ms"] / 1e6)
    assert row["tflops"] == pytest.approx(10 / row["time_ms"] / 1e9)
    assert row["case"] == f"copy M={1 << 15} allocator=numpy"
    assert row["precision"] == "fp64"
    assert "unverified" not in row["flags"]
    assert len(row.samples_ns) == row["samples"]
    assert row["time_ms"] == pytest.approx(statistics.median(row.samples_ns) / 1e6)
    assert f"{row['time_ms']:.4g} ms" in repr(row)
    table = results_frame.from_rows([row])
    assert table["allocator"].tolist() == ["numpy"]
    assert list(table.columns)[: len(schema.column_names())] == list(schema.column_names())


def test_unknown_columns_stay_empty() -> None:
    row = bwprof.measure(lambda: None, counters=True, **QUICK)
    for name in ("bytes_read", "bandwidth_gb_s", "flops", "tflops", "dram_gb_s", "pct_attainable", "verified"):
        assert row[name] is None, name
    assert row["flags"].split(";")[-1] == "unverified"
    assert "hot" in row["counters_status"]
    row = bwprof.measure(lambda: None, counters=True, device="cpu", max_seconds=0.0)
    assert "cpu" in row["counters_status"]
    assert row["bytes_read"] is None


def test_an_empty_function_is_near_the_floor() -> None:
    row = bwprof.measure(functools.partial(int), **QUICK)
    assert row["operation"] == "int"
    assert 0 < row["timer_floor_us"] < 1.0
    for inputs in ({"fn": lambda: None}, {"fn": lambda number: None, "sets": 2}):
        row = bwprof.measure(**inputs, **QUICK)
        assert "near_timer_floor" in row["flags"], row
        assert row["bound"] == "latency" or row["bound"] is None


def test_a_function_of_sets_rotates() -> None:
    seen: set[int] = set()
    row = bwprof.measure(seen.add, sets=3, footprint_bytes=1 << 40, device="cpu", max_seconds=0.02)
    assert seen == {0, 1, 2}
    assert (row["buffer_sets"], row["cache"]) == (3, "cold")
    assert "flush" not in (row["reason"] or "")
    assert "not_cold" not in row["flags"]


def test_the_argument_roofs_is_used() -> None:
    with _core.Device("cpu") as device:
        facts = device.facts()
    roofs = replace(toy_roofs.ROOFS, device=facts["name"], device_uuid=facts["uuid"], driver=facts["driver"])
    a, b = np.ones(1 << 20), np.empty(1 << 20)
    work = {"bytes_read": a.nbytes, "bytes_written": b.nbytes}
    row = bwprof.measure(lambda: np.copyto(b, a), roofs=roofs, device="cpu", max_seconds=0.05, **work)
    assert row["attainable_gb_s"] == pytest.approx(roofs.attainable_gb_s(a.nbytes, b.nbytes))
    assert row["pct_attainable"] == pytest.approx(100 * row["bandwidth_gb_s"] / row["attainable_gb_s"])
    other = bwprof.Roofs("another", "", "", "", 0.0, ())
    with pytest.raises(ValueError, match="of another, "):
        bwprof.measure(lambda: None, roofs=other, **QUICK)


def test_stored_roofs_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out: the stored ones, nothing is measured. "auto": what `obtain` says. False: none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    requested: list[tuple[RoofRequest, object]] = []
    found = Roofs("", "", "", "", 0.0, (RoofPoint("copy", 0.5, 2 << 20, 1e-3),))

    def obtain(device: _core.Device, wanted: RoofRequest, *, deadline: float | None, poll: object) -> Roofs:
        requested.append((wanted, deadline))
        return found

    monkeypatch.setattr("bwprof.measuring.row.obtain", obtain)

    def attainable(**inputs: Any) -> float | None:
        work = {"bytes_read": 1 << 20, "bytes_written": 1 << 20}
        row = bwprof.measure(lambda: None, device="cpu", max_seconds=0.0, **work, **inputs)
        return None if row["attainable_gb_s"] is None else float(row["attainable_gb_s"])

    assert attainable() is None
    assert attainable(roofs="auto") == pytest.approx((2 << 20) / 1e6)
    assert attainable(roofs="auto", cache="hot") is None, "a hot row has no attainable stream"
    assert [wanted for wanted, _ in requested] == [RoofRequest(cold=True, hot=False), RoofRequest(cold=False, hot=True)]
    with _core.Device("cpu") as device:
        facts = hardware.facts(device)
        found = replace(found, device=facts["name"], driver=facts["driver"])
        path = store.save(store.identity("cpu", facts), found)
    assert path is not None
    assert path.parent.parent == tmp_path
    assert attainable() == pytest.approx((2 << 20) / 1e6)
    assert attainable(roofs=False) is None
    assert len(requested) == 2
    bwprof.sweep(lambda: None, device="cpu", cache="both", max_total_seconds=60.0, recalibrate=True)
    assert requested[2][0] == RoofRequest(cold=True, hot=True, recalibrate=True)
    assert requested[2][1] is not None, "the roofs get a part of max_total_seconds"


class OwnError(Exception):
    pass


@pytest.mark.parametrize("at", [1, 2, 30])
@pytest.mark.parametrize("kind", [OwnError, KeyboardInterrupt, SystemExit])
def test_exceptions_come_out_as_they_are(at: int, kind: type[BaseException]) -> None:
    calls = 0
    error = kind("mine")

    def fails() -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise error

    with pytest.raises(kind) as caught:
        bwprof.measure(fails, **QUICK)
    assert caught.value is error
    assert calls == at
    assert bwprof.measure(lambda: None, **QUICK)["status"] == "ok"


def test_ctrl_c_ends_it() -> None:
    """Also where the function never lets Python look at signals. It takes some microseconds: samples of one that takes
    less can all be the same, which is as good as they get, and ends the measurement."""
    function = functools.partial(bytes(1 << 18).count, b"x")
    done = threading.Event()

    def interrupt() -> None:
        if not done.wait(0.3):
            signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            bwprof.measure(function, device="cpu", cache="hot", rel_ci=1e-12, max_seconds=60.0)
    finally:
        done.set()
        thread.join()


def test_a_wrong_result_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="nothing: its check"):
        bwprof.measure(lambda: None, name="nothing", check=lambda: False, **QUICK)


def test_a_function_that_measures_can_be_measured() -> None:
    """Each measurement has a handle of its own."""
    row = bwprof.measure(lambda: bwprof.measure(lambda: None, **(QUICK | {"max_seconds": 0.0})), **QUICK)
    assert row["status"] == "ok"


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"bytes_read": -1}, ValueError, "bytes_read is -1: allowed is a whole number from 0 to 2"),
        ({"bytes_read": True}, ValueError, "bytes_read is True"),
        ({"flops": 10**40}, ValueError, "flops is 1000"),
        ({"name": 5}, TypeError, "name is 5, a str is needed"),
        ({"precision": 16}, TypeError, "precision is 16, a str is needed"),
        ({"check": lambda: None}, RuntimeError, "its check returned nothing"),
        ({"byte_read": 100}, ValueError, "'byte_read' is no option: did you mean 'bytes_read'"),
        ({"batch": "large"}, ValueError, "batch = 'large': the column of that name holds a whole number"),
        ({"M": 0.5}, ValueError, "M = 0.5: the column"),
        ({"flops": 1.5}, ValueError, "flops is 1.5, a whole number"),
        ({"cache": "warm"}, ValueError, "unknown cache 'warm': .*Allowed: cold, hot"),
        ({"timer": "cupti"}, ValueError, "timer = 'cupti': allowed on cpu is monotonic"),
        ({"time_ms": 3}, ValueError, "'time_ms' is a column that bwprof fills"),
        ({"sets": 0}, ValueError, "sets = 0: allowed is 1 to 8192"),
        ({"check": 3}, TypeError, "check is 3, a callable is needed"),
        ({"poll": 3}, TypeError, "poll is 3, a callable is needed"),
        ({"roofs": "x"}, ValueError, "unknown roofs 'x': Allowed: auto, stored"),
        ({"roofs": 1}, TypeError, "roofs is 1: allowed are 'auto', 'stored', False and a bwprof.Roofs"),
        ({"counters": "x"}, TypeError, "counters is 'x': allowed are True and False"),
        ({"device": "gpu:x"}, ValueError, "device is 'gpu:x'"),
        (
            {"device": "cpu", "backend": "cuda"},
            ValueError,
            "device is 'cpu' and backend is 'cuda': they contradict each other",
        ),
        ({"min_samples": 0}, ValueError, "min_samples = 0"),
    ],
)
def test_bad_arguments(inputs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bwprof.measure(lambda: None, **({"device": "cpu", "max_seconds": 0.01} | inputs))


async def coroutine() -> None:
    pass


def generator() -> Iterator[int]:
    yield 1


async def generator_of_coroutines() -> AsyncIterator[int]:
    yield 1


def wrapped_twice() -> object:
    return wrapped()


def takes_a_set(number: int) -> object:
    return coroutine()


class Coroutine:
    async def __call__(self) -> None:
        pass


@functools.wraps(coroutine)
def wrapped() -> object:
    return coroutine()


@pytest.mark.parametrize(
    "function",
    [
        *(coroutine, generator, generator_of_coroutines, Coroutine(), functools.partial(Coroutine())),
        *(wrapped, lambda: wrapped() or None),
    ],
)
def test_coroutine_functions_are_refused(function: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"fn (is|returned a) .*coroutine"):
        bwprof.measure(function, device="cpu")
    with pytest.raises(TypeError, match=r"check (is|returned a) .*coroutine"):
        bwprof.measure(lambda: None, check=function, **QUICK)


def test_coroutines_fail_in_sweeps_and_with_sets() -> None:
    for sets, fn in ((None, lambda n: coroutine()), (None, lambda n: wrapped_twice), (2, lambda n: takes_a_set)):
        frame = bwprof.sweep(fn, n=[1], sets=sets, footprint_bytes=1, device="cpu", roofs=False)
        assert frame["status"].tolist() == ["failed"]
        assert "returned a coroutine" in frame["reason"][0]
    with pytest.raises(TypeError, match="fn returned a coroutine"):
        bwprof.measure(takes_a_set, sets=2, footprint_bytes=1, **QUICK)
    with pytest.raises(ValueError, match="unknown roofs 'x'"):
        bwprof.sweep(lambda: None, device="cpu", roofs="x")


class Later:
    """A result that is computed elsewhere; it counts those that nobody has waited for."""

    unfinished = 0

    def __init__(self) -> None:
        type(self).unfinished += 1

    def block_until_ready(self) -> None:
        type(self).unfinished -= 1


class LaterThere(Later):
    """The same, which its device waits for, as CuPy has it."""

    block_until_ready = None  # type: ignore[assignment]

    @property
    def device(self) -> Any:
        return types.SimpleNamespace(synchronize=super().block_until_ready)


class LaterTensor(Later):
    """The same, as PyTorch has it."""

    block_until_ready = None  # type: ignore[assignment]
    is_cpu = is_meta = False
    device = types.SimpleNamespace(type="toy")


@pytest.fixture
def torch_of_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronize(_device: object) -> None:
        LaterTensor.unfinished -= 1

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(toy=types.SimpleNamespace(synchronize=synchronize)))  # type: ignore[arg-type]


@dataclass
class Pair:
    one: object
    other: object


@pytest.mark.parametrize("kind", [Later, LaterThere, LaterTensor])
@pytest.mark.usefixtures("torch_of_toys")
def test_results_that_are_computed_elsewhere_are_waited_for(kind: type[Later]) -> None:
    kind.unfinished = 0
    within = (
        *(lambda one: one, lambda one: {"out": [1, (one, None)]}, lambda one: Pair(one, np.ones(3))),
        *(lambda one: deque([one]), lambda one: {1: one}.values(), lambda one: types.SimpleNamespace(out=one)),
    )
    for inside in within:
        fn = lambda inside=inside: inside(kind())  # noqa: E731
        callables.wrap_with_wait(fn, None, "fn")()
        callables.wrap_with_wait(fn, fn(), "fn")()
    assert kind.unfinished == 2 * len(within), "two of each were made without a wait"


def later() -> Later:
    return Later()


def test_every_way_to_measure_a_function_waits_for_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_loop, "AGAIN_SHARE", 0.0)  # a second try has a first result as well
    Later.unfinished = 0
    bwprof.measure(later, **QUICK)
    assert Later.unfinished == 1, "the first, which is looked at alone"
    bwprof.measure(lambda _set: [Later()], sets=2, footprint_bytes=1, **QUICK)
    assert Later.unfinished == 2
    assert bwprof.sweep(later, roofs=False, **QUICK)["status"].tolist() == ["ok"]
    assert Later.unfinished == 3
    bwprof.sweep(lambda: later, roofs=False, **QUICK)
    assert Later.unfinished == 4
    openings: list[object] = []
    bwprof.ab(later, lambda: openings.append(later) or later, device="cpu", max_seconds=0.1)
    assert openings
    assert Later.unfinished - 4 == 2 * len(openings), "each opening of either side looks at one result alone"


def test_what_mlx_returns_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    made, evaluated = [], []
    array = type("array", (), {"__module__": "mlx.core"})
    monkeypatch.setitem(sys.modules, "mlx.core", types.SimpleNamespace(eval=evaluated.append))  # type: ignore[arg-type]
    bwprof.measure(lambda: made.append(array()) or made[-1], **QUICK)
    assert made[1:] == evaluated


def test_a_host_result_needs_no_wait() -> None:
    fn = lambda: [np.ones(3), {"a": 1.0}, Later, open]  # noqa: E731
    assert callables.wrap_with_wait(fn, fn(), "fn") is fn


class Guarded:
    """Lets nobody look at what it does not have."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_attributes_that_raise_are_ignored() -> None:
    for returned in (pd.DataFrame({"is_cpu": [1, 2], "is_meta": [0, 0]}), Guarded()):
        fn = lambda returned=returned: [returned]  # noqa: E731
        assert callables.wrap_with_wait(fn, fn(), "fn") is fn


def processes() -> Iterator[object]:
    pool = ThreadPoolExecutor(1)
    yield pool.submit(int)
    yield pool.map(int, [1])
    pool.shutdown()
    yield threading.Thread(target=int)
    yield threading.Event()
    with closing(asyncio.new_event_loop()) as loop:
        yield loop.create_future()
    yield from (map(int, []), zip([]), filter(None, []), iter([1]), enumerate([]), (one for one in []))
    yield generator_of_coroutines()
    yield type("Tensor", (), {"is_cpu": False, "element_size": 4, "device": types.SimpleNamespace(type="nowhere")})()
    yield type("DeviceNDArray", (), {"__cuda_array_interface__": {}})()
    yield type("Delayed", (), {"__dask_graph__": None})()


def test_pending_results_are_refused() -> None:
    for made in processes():
        for returned in (made, [made], {"a": (made,)}, Pair(1, made), {1: made}.items()):
            with pytest.raises(TypeError, match=f"fn returned a {type(made).__name__}, "):
                callables.check_finished(returned, "fn")


def test_every_way_to_measure_a_function_refuses_a_future() -> None:
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(TypeError, match="fn returned a Future"):
            bwprof.measure(lambda: pool.submit(int), **QUICK)
        assert bwprof.sweep(lambda: pool.submit(int), roofs=False, **QUICK)["status"].tolist() == ["failed"]
        assert bwprof.sweep(lambda: lambda: [pool.submit(int)], roofs=False, **QUICK)["status"].tolist() == ["failed"]
        with pytest.raises(bwprof.errors.PairedError, match="returned a Future"):
            bwprof.ab(lambda: pool.submit(int), lambda: None, device="cpu", max_seconds=0.1)
        with pytest.raises(bwprof.errors.PairedError, match="returned a Future"):
            bwprof.ab(lambda: None, lambda: lambda: (pool.submit(int),), device="cpu", max_seconds=0.1)


def test_files_and_cursors_are_no_lazy_results(tmp_path: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as base, (tmp_path / "a").open("w") as file:
        for one in (file, base.execute("select 1"), range(3), [1]):
            callables.check_finished(one, "fn")


def test_traffic_ratio_needs_both_byte_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted bytes over stated ones say something only where all were stated."""
    counted = {"dram_bytes_read": 1000.0, "dram_bytes_written": 1000.0, "l2_bytes": 0.0, "counters_status": "ok"}
    monkeypatch.setattr(measuring_function, "_count_traffic", lambda *_: dict(counted))
    row = bwprof.measure(lambda: None, bytes_read=np.int64(1000), counters=True, **QUICK)
    assert (row["bytes_read"], row["bytes_written"], row["traffic_ratio"]) == (1000, 1000, None)
    assert type(row["bytes_read"]) is int
    row = bwprof.measure(lambda: None, bytes_read=1000, bytes_written=500, counters=True, **QUICK)
    assert row["traffic_ratio"] == pytest.approx(4 / 3)


def test_the_next_timer_is_used_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it cannot be had, and where it loses records; not where the device is lost."""

    class Device:
        backend, index = "cuda", 0

        def measure_call(self, *_: object, timer: str, **__: object) -> dict[str, Any]:
            if timer == "events":
                return {"timer": timer}
            raise _core.DeviceError("lost records") if timer == "cupti" else _core.UnavailableError("no capture")

        def conditions(self) -> dict[str, Any]:
            return {}

    monkeypatch.setattr(measuring_function, "_list_timers", lambda *_: ["cupti", "graph", "events"])
    monkeypatch.setattr("bwprof.measuring.row.measure_cool", lambda once, *_, **__: (once(), 0.0))
    subject = measuring_function.Subject(lambda: None, "f", stream=0)
    result, _, notes = measuring_function.time_call(Device(), subject, {"max_seconds": 1.0}, None, None)
    assert result == {"timer": "events"}
    assert [note.split()[1] for note in notes] == ["cupti", "graph"]
    assert [note.rpartition(": ")[2] for note in notes] == ["lost records", "no capture"]
    lost = _core.DeviceError("lost")
    lost.fatal = True
    monkeypatch.setattr(Device, "measure_call", lambda *_, **__: (_ for _ in ()).throw(lost))
    with pytest.raises(_core.DeviceError, match=r"^lost$"):
        measuring_function.time_call(Device(), subject, {"max_seconds": 1.0}, None, None)


@pytest.mark.parametrize(("samples", "flag"), [([40, 80] * 20, "two_states"), (range(100, 140), "drifting")])
def test_states_and_drifts_are_flags_of_functions_and_of_cases(
    samples: Any, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _core.statistics(np.array(samples, float))
    add_time = measuring_function.rows.add_time

    def planted(row: Any, result: dict[str, Any], *rest: Any) -> float:
        assert {"two_states", "drift"} <= result.keys()
        return add_time(row, result | found | {"launches_per_sample": 4}, *rest)

    monkeypatch.setattr("bwprof.measuring.row.add_time", planted)
    monkeypatch.setattr("bwprof.measuring.operation.add_time", planted)
    row = bwprof.measure(lambda: None, **QUICK)
    with bwprof.Case("stream_copy", elements=64, backend="cpu") as case:
        own = case.measure(max_seconds=0.01)
    for one in (row, own):
        assert [word for word in one["flags"].split(";") if word in ("two_states", "drifting")] == [flag]
        assert ("0.00025 us" in one["reason"]) == (flag == "drifting"), "1 ns a sample of 4 calls"


def test_numpys_numbers_do_not_overflow() -> None:
    half = np.int32(2**30)
    row = bwprof.measure(lambda: None, bytes_read=half, bytes_written=half, **QUICK)
    assert row["footprint_bytes"] == 2**31
    assert row["bandwidth_gb_s"] == pytest.approx(2**31 / row["time_ms"] / 1e6)


def test_a_precision_by_any_case() -> None:
    row = bwprof.measure(lambda: None, precision="FP32", flops=1, **QUICK)
    assert row["precision"] == "fp32"
    assert row["peak_tflops"] is not None
    assert bwprof.measure(lambda: None, precision="Int4", **QUICK)["precision"] == "Int4"


def test_values_that_are_no_function_are_refused() -> None:
    with pytest.raises(TypeError, match="fn is 3"):
        bwprof.measure(3, device="cpu")  # type: ignore[arg-type]
    with _core.Device("cpu") as device, pytest.raises(TypeError, match=r"callable .* 3"):
        device.measure_call(3, do_nothing)  # type: ignore[arg-type]


# ---- streams ----


def test_streams_as_ints_and_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 11)

    named = types.SimpleNamespace
    for stream, handle in ((0, 0), (7, 7), (Protocol(), 11), (named(cuda_stream=12), 12), (named(ptr=13), 13)):
        assert hardware.stream_handle(stream, 0) == handle
    for wrong in (-1, True, "0", 1.0, object()):
        with pytest.raises(TypeError, match="cudaStream_t"):
            hardware.stream_handle(wrong, 0)

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert hardware.stream_handle(None, 0) == 0
    streams = {0: types.SimpleNamespace(cuda_stream=14), 1: types.SimpleNamespace(cuda_stream=15)}
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, current_stream=streams.__getitem__, current_device=lambda: 1
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert hardware.stream_handle(None, 1) == 15
    assert hardware.current_device("cuda") == 1
    assert hardware.current_device("cpu") == 0
    cuda.is_initialized = lambda: False  # loaded, but not in use
    assert hardware.stream_handle(None, 1) == 0


def test_pytorch_is_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    bwprof.measure(lambda: None, **QUICK)
    assert "torch" not in sys.modules


def test_no_file_of_the_package_imports_pytorch(source_tree: Path) -> None:
    for path in (source_tree / "bwprof").rglob("*.py"):
        assert not re.search(r"^\s*(import|from) torch\b", path.read_text(), re.MULTILINE), path
