"""bwprof.measure on kernels that are not ours, against independent witnesses (PyTorch, Triton and ncu needed).

    python tests/benchmarks/callables.py                  # all: about half a minute
    python tests/benchmarks/callables.py --only time hooks

time: our time beside that of the same kernels' records in torch.profiler (Kineto's CUPTI, in a process of its own),
    each call after a read flush of 512 MiB, and beside triton.testing.do_bench. do_bench differs in two ways: it lays
    an event pair around each call, which adds 2 to 6 us, and it clears the cache by a memset, whose dirty lines (about
    what the L2 holds) are then written back while the measured kernel runs.
bytes: our counted DRAM bytes beside ncu's for the same call. What ncu counts of a kernel by itself lacks what it leaves
    dirty in the L2, so ncu counts a range (--replay-mode app-range) of the call and a read of 512 MiB after it, less a
    range of such a read alone; another such read before the range makes the inputs cold.
hooks: host time of Profiler.start + stop.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from common import machine, show, table

import bwprof
from bwprof import _core

FLUSH_ELEMENTS = 1 << 27  # of FP32, 512 MiB: eight times the L2 of an H200
FLUSH_KERNEL = "at::native::reduce_kernel"
EMPTY_RANGES = 3
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
CALLS = 60
WARM_UPS = 3


def kernels() -> dict[str, Callable[[], object]]:
    """Name -> call. Everything is allocated here, so that a call only launches."""
    import torch
    import triton
    import triton.language as tl

    torch.manual_seed(0)

    def half(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float16)

    @triton.jit
    def scale_add(x, y, out, count, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        inside = at < count
        tl.store(out + at, 2.0 * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

    def triton_call(count: int) -> Callable[[], object]:
        x, y = torch.randn(count, device="cuda"), torch.randn(count, device="cuda")
        out = torch.empty_like(x)
        grid = (triton.cdiv(count, 4096),)
        return lambda: scale_add[grid](x, y, out, count, block=4096)

    a, w, d = half(16, 8192), half(28672, 8192), half(16, 28672)
    square, result = half(4096, 4096), half(4096, 4096)
    q, k, v = (half(4, 32, 4096, 128) for _ in range(3))
    x, gain = half(8192, 8192), half(8192)
    small, small_gain = half(1024, 4096), half(4096)
    attention, norm = torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.rms_norm
    return {
        "matmul 16x28672x8192": lambda: torch.matmul(a, w.t(), out=d),
        "matmul 4096^3": lambda: torch.matmul(square, square, out=result),
        "attention 4x32x4096x128": lambda: attention(q, k, v, is_causal=True),
        "rms_norm 8192x8192": lambda: norm(x, (8192,), gain),
        "rms_norm 1024x4096": lambda: norm(small, (4096,), small_gain),
        "triton 3x256 MiB": triton_call(1 << 26),
        "triton 3x16 MiB": triton_call(1 << 22),
    }


# What each of them must write, in MB: another witness.
OUTPUT_MB = {
    "matmul 16x28672x8192": 16 * 28672 * 2e-6,
    "matmul 4096^3": 4096 * 4096 * 2e-6,
    "attention 4x32x4096x128": 4 * 32 * 4096 * 128 * 2e-6,
    "rms_norm 8192x8192": 8192 * 8192 * 2e-6,
    "rms_norm 1024x4096": 1024 * 4096 * 2e-6,
    "triton 3x256 MiB": 2**26 * 4e-6,
    "triton 3x16 MiB": 2**22 * 4e-6,
}


# ---- each part in a process of its own: CUPTI serves one at a time ----


def ours() -> dict[str, Any]:
    found = {}
    for name, call in kernels().items():
        row = bwprof.measure(call, name=name, counters=True)
        keys = ("time_ms", "timer", "flags", "reason", "dram_bytes_read", "dram_bytes_written", "counters_status")
        found[name] = {key: row[key] for key in keys}
    return found


def flush() -> Callable[[], object]:
    """PyTorch's sum, whose plain loads fill the cache: our own streams read around it."""
    import torch

    buffer = torch.ones(FLUSH_ELEMENTS, device="cuda")
    return buffer.sum


def kineto() -> dict[str, Any]:
    """Spans of what each call ran, in ms: from torch.profiler's own records."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    found = {}
    cool = flush()
    for name, call in kernels().items():
        for _ in range(WARM_UPS):
            cool()
            call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as records:
            for _ in range(CALLS):
                cool()
                torch.cuda.synchronize()
                call()
                torch.cuda.synchronize()
        events = [e for e in records.profiler.kineto_results.events() if "CUDA" in str(e.device_type())]
        runs = sorted((e.start_ns(), e.start_ns() + e.duration_ns(), e.name()) for e in events)
        spans: list[list[int]] = []
        for start, end, kernel in runs:
            if FLUSH_KERNEL in kernel:
                spans.append([])
            elif spans and not any(word in kernel for word in ("Synchronize", "Memset")):
                spans[-1] += [start, end]
        times = [(max(span) - min(span)) / 1e6 for span in spans if span]
        found[name] = {"time_ms": statistics.median(times), "calls": len(times)}
    return found


def do_bench() -> dict[str, Any]:
    import triton

    return {
        name: {"time_ms": float(triton.testing.do_bench(call, return_mode="median"))}
        for name, call in kernels().items()
    }


def under_ncu() -> dict[str, Any]:
    """What ncu counts: a few ranges with a flush alone, then one for each call."""
    import torch

    calls = kernels()
    before, after = flush(), flush()
    runtime = torch.cuda.cudart()
    for call in calls.values():
        for _ in range(WARM_UPS):
            call()
    for call in [lambda: None] * EMPTY_RANGES + list(calls.values()):
        before()
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        call()
        torch.cuda.synchronize()
        after()
        torch.cuda.synchronize()
        runtime.cudaProfilerStop()
    return {name: {} for name in calls}


def hooks() -> dict[str, Any]:
    """Microseconds of host time for start + stop. Where more ranges run than fit, older ones are read on the way."""
    import torch

    torch.cuda.init()
    x = torch.randn(1 << 20, device="cuda")
    found: dict[str, Any] = {}

    def pairs(count: int, work: Callable[[], object]) -> list[float]:
        times = []
        start, stop, clock = profiler.start, profiler.stop, time.perf_counter_ns
        for _ in range(count):
            begun = clock()
            start("range")
            middle = clock()
            work()
            again = clock()
            stop("range")
            times.append((clock() - again + middle - begun) / 1e3)
        return times

    def with_mean(times: list[float]) -> dict[str, float]:
        return {"median": statistics.median(times), "mean": statistics.fmean(times)}

    with bwprof.Profiler(stream=torch.cuda.Stream()) as profiler:
        pairs(100, lambda: None)
        torch.cuda.synchronize()
        profiler.reset()
        found["start + stop on a side stream"] = with_mean(pairs(3500, lambda: None))
    with bwprof.Profiler() as profiler:
        pairs(100, lambda: None)
        torch.cuda.synchronize()
        profiler.reset()
        found["start + stop, idle GPU"] = with_mean(pairs(3500, lambda: None))
        profiler.reset()
        found["start + stop, around a kernel"] = with_mean(pairs(3500, lambda: x.mul_(1.0)))
        found["the same, 20000 ranges and none read"] = with_mean(pairs(20000, lambda: x.mul_(1.0)))
        profiler.enabled = False
        found["disabled"] = with_mean(pairs(20000, lambda: None))
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(3500)]
    times = []
    for start, stop in events:
        begun = time.perf_counter_ns()
        start.record()
        stop.record()
        times.append((time.perf_counter_ns() - begun) / 1e3)
    found["two torch.cuda.Event.record"] = with_mean(times)
    return found


PARTS = {"ours": ours, "kineto": kineto, "do_bench": do_bench, "under_ncu": under_ncu, "hooks": hooks}


def part(name: str, *prefix: str) -> tuple[dict[str, Any], str]:
    """A part's result, and all that its process wrote."""
    command = [*prefix, sys.executable, __file__, "--part", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("result ")]
    if done.returncode or not lines:
        raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return json.loads(lines[0].removeprefix("result ")), done.stdout


def ncu_bytes(output: str, names: list[str]) -> dict[str, dict[str, float]]:
    """DRAM bytes of each call: those of its range less those of a range without it."""
    ranges: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(output[output.index('"ID"') :])):
        if not (row.get("ID") or "").isdecimal():
            continue
        scale = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}[row["Metric Unit"]]
        value = float(row["Metric Value"].replace(",", "")) * scale
        ranges.setdefault(int(row["ID"]), {})[row["Metric Name"]] = value
    counted = list(ranges.values())
    if len(counted) != EMPTY_RANGES + len(names):
        raise SystemExit(f"ncu counted {len(counted)} ranges, not {EMPTY_RANGES + len(names)}:\n{output[-3000:]}")
    empty = {metric: statistics.median(each[metric] for each in counted[:EMPTY_RANGES]) for metric in counted[0]}
    return {
        name: {metric: each[metric] - empty[metric] for metric in empty}
        for name, each in zip(names, counted[EMPTY_RANGES:], strict=True)
    }


def percent(value: float, base: float) -> str:
    return f"{100 * (value / base - 1):+.2f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["time", "bytes", "hooks"], default=["time", "bytes", "hooks"])
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        show("result " + json.dumps(PARTS[options.part]()))
        return
    with _core.Device("cuda") as device:
        show(machine(device))
    mine = part("ours")[0] if {"time", "bytes"} & set(options.only) else {}
    for name, row in mine.items():
        notes = "; ".join(said for said in (row["flags"], row["reason"]) if said)
        show(f"  {name}: {row['timer']}; {notes}")
    if "time" in options.only:
        theirs, bench = part("kineto")[0], part("do_bench")[0]
        rows = []
        for name, row in mine.items():
            us, witness, bench_us = (1e3 * found["time_ms"] for found in (row, theirs[name], bench[name]))
            rows.append([name, us, witness, percent(us, witness), bench_us, bench_us - us])
        heads = ["call", "bwprof us", "torch.profiler us", "differs", "do_bench us", "do_bench - bwprof us"]
        table("time", heads, rows)
    if "bytes" in options.only:
        if shutil.which("ncu") is None:
            raise SystemExit("ncu is not on PATH")
        command = ["ncu", "--csv", "--replay-mode", "app-range", "--cache-control", "none", "--clock-control", "none"]
        names, output = part("under_ncu", *command, "--metrics", ",".join(DRAM))
        counted = ncu_bytes(output, list(names))
        rows = []
        for name, row in mine.items():
            if row["counters_status"] != "ok":
                raise SystemExit(f"{name}: {row['counters_status']}")
            cells: list[object] = [name]
            for ours_bytes, metric in zip((row["dram_bytes_read"], row["dram_bytes_written"]), DRAM, strict=True):
                theirs_bytes = counted[name][metric]
                cells += [ours_bytes / 1e6, theirs_bytes / 1e6, percent(ours_bytes, theirs_bytes)]
            rows.append([*cells, OUTPUT_MB[name]])
        heads = ["call", "read MB", "ncu", "differs", "written MB", "ncu", "differs", "output MB"]
        table("DRAM bytes", heads, rows)
    if "hooks" in options.only:
        rows = [[name, found["median"], found["mean"]] for name, found in part("hooks")[0].items()]
        table("Profiler hooks, us of host time", ["what", "median", "mean"], rows)


if __name__ == "__main__":
    main()
