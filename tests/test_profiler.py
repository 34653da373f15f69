"""bwprof.Profiler: named ranges. How marks are taken and read is in tests/native/check_ranges.c."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_callables_gpu import fail_in_turn

import bwprof
from bwprof import _core

MIB = 1 << 20


def spin(milliseconds: float) -> int:
    started = now = time.perf_counter_ns()
    while now < started + milliseconds * 1e6:
        now = time.perf_counter_ns()
    return now - started


@pytest.fixture
def profiler() -> Iterator[bwprof.Profiler]:
    with bwprof.Profiler(device="cpu") as found:
        yield found


def test_ranges_against_another_clock(profiler: bwprof.Profiler) -> None:
    took = []
    for _ in range(5):
        profiler.start("outer")
        with profiler.range("inner"):
            took.append(spin(1.0))
        spin(0.5)
        profiler.stop("outer")
    more = [found - ns / 1e6 for ns, found in zip(took, profiler.times_ms("inner"), strict=True)]
    assert min(more) >= 0.0, "a range is shorter than what ran in it"
    assert min(more) < 0.5, "no range of five was left alone by other processes"
    pairs = zip(profiler.times_ms("outer"), profiler.times_ms("inner"), strict=True)
    assert all(outer >= inner + 0.5 for outer, inner in pairs)
    assert profiler.elapsed_ms("inner") == sorted(profiler.times_ms("inner"))[2]


def test_a_decorator_and_recursion(profiler: bwprof.Profiler) -> None:
    @profiler.range("down")
    def down(n: int, *, step: int = 1) -> int:
        """Counts down."""
        return n if n <= 0 else down(n - step, step=step)

    assert down(4, step=2) == 0
    assert (down.__name__, down.__doc__) == ("down", "Counts down.")
    times = profiler.times_ms("down")
    assert len(times) == 3
    assert times == sorted(times), "the innermost one ends first"


def test_an_exception_ends_the_range(profiler: bwprof.Profiler) -> None:
    with pytest.raises(KeyError), profiler.range("fails"):
        raise KeyError
    assert len(profiler.times_ms("fails")) == 1


def test_bandwidth(profiler: bwprof.Profiler) -> None:
    with profiler.range("a"):
        spin(1.0)
    assert math.isnan(profiler.bandwidth_gb_s("a"))
    profiler.set_bytes("a", 3_000_000, 1_000_000)
    assert profiler.bandwidth_gb_s("a") == pytest.approx(4e6 / profiler.elapsed_ms("a") / 1e6)
    assert profiler.bandwidth_gb_s("a") < 4.0


def test_frame_and_report(profiler: bwprof.Profiler) -> None:
    profiler.set_bytes("work", 1000, 0)
    for milliseconds in (1.0, 3.0, 2.0):
        with profiler.range("work"):
            spin(milliseconds)
    with profiler.range("empty"):
        pass
    profiler.start("running")
    found = profiler.frame().set_index("range")
    assert found.index.tolist() == ["work", "empty", "running"]
    work = found.loc["work"]
    times = profiler.times_ms("work")
    assert (work["count"], work["time_ms"], work["time_ms_max"]) == (3, *sorted(times)[1:])
    assert work["total_ms"] == pytest.approx(sum(times))
    assert (work["bytes_read"], work["flags"]) == (1000, "")
    assert found.loc["running", "count"] == 0
    assert found.loc["running", ["time_ms", "bandwidth_gb_s"]].isna().all()
    lines = profiler.report().splitlines()
    assert [line.split("|")[0].strip() for line in lines if "|" in line] == ["range", "work", "empty", "running"]
    assert f"{sorted(times)[1]:.4g}" in profiler.report()
    attrs = profiler.frame().attrs
    assert (attrs["timer"], attrs["backend"]) == ("monotonic", "cpu")
    profiler.stop("running")
    profiler.reset()
    assert profiler.frame()["count"].tolist() == [0, 0, 0]


def test_a_disabled_profiler_does_nothing() -> None:
    with bwprof.Profiler(enabled=False) as profiler:
        profiler.stop("never started")
        profiler.start(3)  # type: ignore[arg-type]
        assert profiler.frame().empty
        assert profiler.report().strip()
        assert not profiler.enabled


def test_a_profiler_can_be_switched_on_and_off() -> None:
    profiler = bwprof.Profiler(enabled=False, device="cpu")
    with profiler.range("a"):
        pass
    profiler.enabled = True
    with profiler.range("a"):
        pass
    profiler.enabled = False
    with profiler.range("a"):
        pass
    assert len(profiler.times_ms("a")) == 1
    profiler.close()
    profiler.close()
    assert not profiler.enabled
    profiler.start("a")
    assert profiler.frame().empty


def test_misuse_is_refused(profiler: bwprof.Profiler) -> None:
    with pytest.raises(ValueError, match=r"\brange 'a'"):
        profiler.stop("a")
    with profiler.range("a"):
        pass
    with pytest.raises(ValueError, match=r"\brange 'a' .*running"):
        profiler.stop("a")
    with pytest.raises(TypeError, match=r"\bnot 3$"):
        profiler.start(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'aa'.*'a'"):
        profiler.elapsed_ms("aa")
    with pytest.raises(ValueError, match="bytes_read is -1"):
        profiler.set_bytes("a", -1, 0)
    for name in (3, None, []):
        for ask in (profiler.times_ms, profiler.bandwidth_gb_s, lambda name: profiler.set_bytes(name, 1, 1)):
            with pytest.raises(TypeError, match=r"\brange's name\b"):
                ask(name)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"capacity = 0\b"):
        bwprof.Profiler(device="cpu", capacity=0)
    with pytest.raises(ValueError, match="not open"):
        _core.Profiler().switch(True)


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_ranges_of_several_threads_are_joined_by_name(profiler: bwprof.Profiler) -> None:
    failed: list[str] = []

    def work() -> None:
        for name in ("a", "a", "b"):
            with profiler.range(name):
                pass
        try:
            profiler.stop("outer")
        except ValueError as error:
            failed.append(str(error))

    profiler.start("outer")
    profiler.start("a")
    in_thread(work)
    in_thread(work)
    profiler.stop("a")
    profiler.stop("outer")
    assert len(failed) == 2, "each thread stops its own"
    assert dict(zip(*(profiler.frame()[name] for name in ("range", "count")), strict=True)) == {
        "outer": 1,
        "a": 5,
        "b": 2,
    }
    seen: list[int] = []
    in_thread(lambda: seen.append(len(profiler.times_ms("a"))))
    in_thread(profiler.reset)
    assert (seen, profiler.frame()["count"].tolist()) == ([5], [0, 0, 0])


def test_threads_mark_while_another_reads(profiler: bwprof.Profiler) -> None:
    def work() -> None:
        for number in range(500):
            with profiler.range("a"), profiler.range(f"{threading.get_ident()} {number % 20}"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        profiler.report()
    assert len(profiler.times_ms("a")) == 2000


def test_varying_bytes_have_the_rate_of_all_runs(profiler: bwprof.Profiler, tmp_path: Path) -> None:
    with profiler.range("late"):
        pass
    for size in (1_000, 2_000, 6_000):
        profiler.set_bytes("before", size, 10)
        with profiler.range("before"):
            pass
        with profiler.range("inside"):
            profiler.set_bytes("inside", 0, size)
        profiler.set_bytes("late", 5, 5)
        profiler.set_bytes("same", 8, size // size)
        with profiler.range("same"):
            pass
    rows = profiler.frame().set_index("range")
    for name, moved in (("before", (3_000, 10)), ("inside", (0, 3_000))):
        line = rows.loc[name]
        assert (line["bytes_read"], line["bytes_written"]) == moved
        assert line["bandwidth_gb_s"] == pytest.approx(3 * sum(moved) / line["total_ms"] / 1e6, rel=1e-12)
        assert profiler.bandwidth_gb_s(name) == line["bandwidth_gb_s"]
        assert "bytes_vary" in line["flags"]
    for name, size in (("late", 10), ("same", 9)):
        assert "bytes_vary" not in rows.loc[name, "flags"]
        assert rows.loc[name, "bandwidth_gb_s"] == pytest.approx(size / rows.loc[name, "time_ms"] / 1e6)
    profiler.write_chrome_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    traced = [one["args"] for one in events if one["ph"] == "X" and one["name"] in ("before", "inside")]
    wanted = [moved for size in (1_000, 2_000, 6_000) for moved in ((size, 10), (0, size))]
    assert [(one["bytes_read"], one["bytes_written"]) for one in traced] == wanted
    text = profiler.report(style="classic")
    blocks = {block.partition(" ===")[0]: block for block in text.split("=== Bandwidth Profile: ")[1:]}
    assert re.search(r"read: 3000 .*\bmean\b", blocks["before"])
    assert f" {rows.loc['before', 'bandwidth_gb_s']:.2f} GB/s" in blocks["before"]


def test_a_device_with_an_open_profiler_stays_open() -> None:
    with _core.Device("cpu") as device:
        profiler = _core.Profiler()
        profiler.open(device)
        with pytest.raises(ValueError, match="open already"):
            profiler.open(device)
        with pytest.raises(ValueError, match=r"\bProfiler\b.*\bopen\b"):
            device.close()
        profiler.close()


def test_many_ranges_are_timed(profiler: bwprof.Profiler) -> None:
    for _ in range(20_000):
        profiler.start("a")
        profiler.stop("a")
    assert len(profiler.times_ms("a")) == 20_000


def test_switching_inside_a_range(profiler: bwprof.Profiler) -> None:
    """The loop goes on; a range that did not run from its beginning to its end is none."""
    with profiler.range("whole"):
        pass
    profiler.enabled = False
    with profiler.range("late"), profiler.range("whole"):
        profiler.enabled = True
    with profiler.range("early"), profiler.range("early"):
        profiler.enabled = False
    profiler.enabled = True
    with profiler.range("early"):
        profiler.enabled = False
        profiler.enabled = True
    profiler.reset()
    with profiler.range("early"):
        pass
    assert len(profiler.times_ms("early")) == 1
    assert profiler.frame().set_index("range")["count"].to_dict() == {"whole": 0, "early": 1}
    with pytest.raises(ValueError, match="'early' is not running"):
        profiler.stop("early")


def test_an_empty_range_is_near_the_floor(profiler: bwprof.Profiler) -> None:
    for _ in range(50):
        with profiler.range("empty"):
            pass
    with profiler.range("work"):
        spin(1.0)
    assert profiler.frame().set_index("range")["flags"].to_dict() == {"empty": "near_timer_floor", "work": ""}


def test_bytes_of_a_range_are_64_bit_integers(profiler: bwprof.Profiler) -> None:
    with profiler.range("a"):
        spin(0.2)
    profiler.set_bytes("a", np.int32(2**30), np.int32(2**30))
    assert profiler.bandwidth_gb_s("a") == pytest.approx(2**31 / profiler.elapsed_ms("a") / 1e6)
    with pytest.raises(ValueError, match=r"bytes_written is 1000"):
        profiler.set_bytes("a", 1, 10**30)
    profiler.set_bytes("b", 2**63 - 1, 2**62 + 1)
    for name in ("b", "without bytes"):
        with profiler.range(name):
            pass
    read, written = profiler.frame().set_index("range").loc["b", ["bytes_read", "bytes_written"]]
    assert (read, written) == (2**63 - 1, 2**62 + 1), "whole numbers, whatever is not known of others"


def test_code_that_the_profiler_runs_may_close_it() -> None:
    """While it is read (by the garbage collector), and while a name is looked up."""

    class Model:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            with contextlib.suppress(RuntimeError):
                profiler.close()

    profiler = bwprof.Profiler(device="cpu")
    for number in range(3000):
        with profiler.range(f"r{number % 7}"):
            pass
    gc.collect()
    before = gc.get_threshold()
    gc.disable()
    for _ in range(5):
        Model()
    gc.set_threshold(300)  # reached while it reads
    gc.enable()
    try:
        assert len(profiler.times_ms("r1")) == 429
    finally:
        gc.set_threshold(*before)
    gc.collect()

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            profiler.close()
            return super().__hash__()

    with bwprof.Profiler(device="cpu") as profiler:
        profiler.start(Name("a"))
        profiler.stop(Name("a"))
        assert len(profiler.times_ms("a")) == 1


def test_names_in_a_report(profiler: bwprof.Profiler) -> None:
    for name in ("kv[h]", "[/x]", "[red]b"):
        with profiler.range(name):
            pass
        assert name in profiler.report()
    with profiler.range("x" * 5_000_000):
        pass
    assert len(profiler.report()) < 5000
    assert "(5000000 characters)" in profiler.report()


def test_a_message_with_names_is_printable(profiler: bwprof.Profiler) -> None:
    for name in ("\ud800", "\x1b[31m", "x" * 5_000_000, *(f"n{number}" for number in range(300))):
        with profiler.range(name):
            pass
    with pytest.raises(ValueError, match="unknown range 'none'") as result:
        profiler.times_ms("none")
    phrase = str(result.value)
    assert phrase.encode().isascii() is False, "the ellipsis of what was cut short"
    assert r"Allowed: \ud800, \x1b[31m, xxx" in phrase
    assert re.search(r", n96 .*\b203\b", phrase)
    assert len(phrase) < 2000


def test_the_classic_report(profiler: bwprof.Profiler, snapshot: Callable[..., None]) -> None:
    """The text that the C library prints, too; of several runs it has the median."""
    profiler.set_bytes("GEMM FP16", 117448704, 28672)
    with profiler.range("GEMM FP16"):
        spin(0.05)
    for _ in range(3):
        with profiler.range("a\nb\x1b"):
            pass
    profiler.start("running")
    time, fast = profiler.elapsed_ms("GEMM FP16"), profiler.bandwidth_gb_s("GEMM FP16")
    other = profiler.elapsed_ms("a\nb\x1b")
    text = profiler.report(style="classic")
    for value in (f"{time:.3f}", f"{fast:.2f}", f"{other:.3f}"):
        text = text.replace(f" {value} ", " VALUE ", 1)
    snapshot(text)
    profiler.stop("running")
    table, usual = (text.splitlines()[0].split() for text in (profiler.report(style="table"), profiler.report()))
    assert table == usual  # each has its own floor, and so, maybe, wider flags
    with pytest.raises(ValueError, match=r"'clasic'.*'classic'"):
        profiler.report(style="clasic")


def test_coroutines_and_generators_are_not_decorated(profiler: bwprof.Profiler) -> None:
    async def coroutine() -> None:
        pass

    def generator() -> Iterator[int]:
        yield 1

    for function in (coroutine, generator):
        with pytest.raises(TypeError, match=r"profiler\.range\('work'\)"):
            profiler.range("work")(function)
    with pytest.raises(TypeError, match=r"\bcoroutine\b.*profiler\.range"):
        profiler.range("work")(functools.partial(coroutine))
    for argument in (3, None, "work"):
        with pytest.raises(TypeError, match=rf"^{argument!r} is no function"):
            profiler.range("work")(argument)  # type: ignore[arg-type]


# ---- the card ----


@pytest.fixture
def gpu() -> Iterator[_core.Device]:
    with _core.Device("cuda", 0) as device:
        yield device


@pytest.mark.cuda
def test_ranges_on_a_stream(gpu: _core.Device) -> None:
    """Ten launches of a 256 MiB read in a range: ten times the kernel, within 3 % and the events' 10 us."""
    with (
        _core.Case(gpu, "stream_read", "fp32", {"elements": 64 * MIB}) as case,
        bwprof.Profiler(stream=gpu.stream, capacity=4) as profiler,
    ):
        want = case.measure()["median_ns"] / 1e6
        for _ in range(30):
            with profiler.range("ten"):
                for _ in range(10):
                    case.enqueue()
        profiler.set_bytes("ten", 10 * 256 * MIB, 0)
        assert len(profiler.times_ms("ten")) == 30
        assert profiler.elapsed_ms("ten") == pytest.approx(10 * want, rel=0.03, abs=0.01)
        assert profiler.bandwidth_gb_s("ten") == pytest.approx(2560 * 1.048576 / profiler.elapsed_ms("ten"), rel=1e-9)
        frame = profiler.frame()
        assert frame.attrs["timer"] == "events"
        assert 0.1 < frame.attrs["floor_us"] < 20
        assert frame["flags"].tolist() == [""]
        case.enqueue()  # the marks then wait for it, and the GPU not for the host
        with profiler.range("empty"):
            pass
        assert profiler.frame()["flags"].tolist() == ["", "near_timer_floor"]


@pytest.mark.cuda
def test_starting_and_stopping_wait_for_nothing(gpu: _core.Device) -> None:
    """Fifty milliseconds of work are enqueued and marked long before they are done: in one of a few rounds at least, as
    other processes may hold up the enqueuing. Where it waits, it takes as long as the work in each."""
    with (
        _core.Case(gpu, "stream_copy", "fp32", {"elements": 256 * MIB}) as case,
        bwprof.Profiler(stream=gpu.stream) as profiler,
    ):
        case.launch()
        for _ in range(6):
            started = time.perf_counter()
            for _ in range(100):
                with profiler.range("copy"):
                    case.enqueue()
            enqueued = time.perf_counter() - started
            times = profiler.times_ms("copy")[-100:]
            if enqueued < sum(times) / 1e3 / 2:
                break
    assert sum(times) > 40.0
    assert enqueued < sum(times) / 1e3 / 2


@pytest.mark.cuda
def test_every_cuda_call_of_a_profiler_fails_in_turn(gpu: _core.Device) -> None:
    with _core.Case(gpu, "stream_copy", "fp32", {"elements": 4096}) as case:
        case.launch()

        def work(device: Any) -> None:
            profiler = _core.Profiler()
            try:
                profiler.open(device, gpu.stream, 2)
                profiler.switch(True)
                for _ in range(6):
                    profiler.start("a")
                    case.enqueue()
                    profiler.stop("a")
                assert len(profiler.events()["a"]) == 6
                assert profiler.floor_ns() > 0
            finally:
                profiler.close()

        with _core.Device("cuda", 0) as device:
            fail_in_turn(device, lambda: work(device))
        assert case.verify()["verified"]
