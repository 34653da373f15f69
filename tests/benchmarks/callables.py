"""bwprof.measure on kernels that are not ours, against independent witnesses (PyTorch, Triton and ncu needed).

    python tests/benchmarks/callables.py                  # all: about two minutes on one GPU
    python tests/benchmarks/callables.py --only time hooks

time: our time beside that of the same kernels' records in torch.profiler (Kineto's CUPTI, in a process of its own), each
    call after a read flush, and beside triton.testing.do_bench. do_bench differs in two ways: it lays an event pair
    around each call, which adds 2 to 6 us, and it clears the cache by a memset, whose dirty lines (about what the L2
    holds) are then written back while the measured kernel runs.
bytes: our counted DRAM bytes beside ncu's for the same launch. ncu has no write-back either: each launch stands between
    two reads of 512 MiB, all counted kernel by kernel with --cache-control none, so that the first read makes the inputs
    cold and the DRAM writes of the second one are what the launch had left dirty in the L2.
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

FLUSH = ("stream_read", "fp32", {"elements": 1 << 27})  # 512 MiB: eight times the L2 of an H200
FLUSH_KERNEL = "stream_read_kernel"
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


# ---- each part in a process of its own: CUPTI serves one at a time ----


def ours() -> dict[str, Any]:
    found = {}
    for name, call in kernels().items():
        row = bwprof.measure(call, name=name, counters=True)
        keys = ("time_ms", "timer", "flags", "reason", "dram_bytes_read", "dram_bytes_written", "counters_status")
        found[name] = {key: row[key] for key in keys}
    return found


def kineto() -> dict[str, Any]:
    """Spans of what each call ran, in ms: from torch.profiler's own records."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    found = {}
    calls = kernels()
    with _core.Device("cuda") as device, _core.Case(device, *FLUSH) as flush:
        flush.launch()
        for name, call in calls.items():
            for _ in range(WARM_UPS):
                call()
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as records:
                for _ in range(CALLS):
                    flush.launch()
                    call()
                    torch.cuda.synchronize()
            events = [e for e in records.profiler.kineto_results.events() if "CUDA" in str(e.device_type())]
            runs = sorted((e.start_ns(), e.start_ns() + e.duration_ns(), e.name()) for e in events)
            runs = [run for run in runs if "Synchronize" not in run[2]]
            spans: list[list[int]] = []
            for start, end, kernel in runs:
                if FLUSH_KERNEL in kernel:
                    spans.append([])
                elif spans:
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
    """What ncu profiles: between two flushes, each call once."""
    import torch

    calls = kernels()
    with (
        _core.Device("cuda") as device,
        _core.Case(device, *FLUSH) as before,
        _core.Case(device, *FLUSH, seed=1) as after,
    ):
        for flush in (before, after):
            flush.launch()
        for call in calls.values():
            for _ in range(WARM_UPS):
                call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        for call in calls.values():
            before.launch()
            call()
            torch.cuda.synchronize()
            after.launch()
        torch.cuda.cudart().cudaProfilerStop()
    return {name: {} for name in calls}


def hooks() -> dict[str, Any]:
    """Microseconds of host time for start + stop: medians of many; in the steady state older ranges are read on the way."""
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
    """DRAM bytes of each call: the kernels between two flushes, and the second flush's writes."""
    text = output[output.index('"ID"') :]
    launches: dict[int, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if not (row.get("ID") or "").isdecimal():
            continue
        launch = launches.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"]})
        scale = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}[row["Metric Unit"]]
        launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * scale
    found: dict[str, dict[str, float]] = {}
    inside: list[dict[str, Any]] | None = None
    for launch in launches.values():
        flush = FLUSH_KERNEL in launch["kernel"]
        if inside is None:
            inside = []
        elif not flush:
            inside.append(launch)
        else:
            found[names[len(found)]] = {
                "read": sum(each["dram__bytes_read.sum"] for each in inside),
                "written": sum(each["dram__bytes_write.sum"] for each in [*inside, launch]),
                "written at once": sum(each["dram__bytes_write.sum"] for each in inside),
            }
            inside = None
    return found


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
        rows = [
            [name, row["time_ms"] * 1e3, theirs[name]["time_ms"] * 1e3, percent(row["time_ms"], theirs[name]["time_ms"]),
             bench[name]["time_ms"] * 1e3, (bench[name]["time_ms"] - row["time_ms"]) * 1e3]
            for name, row in mine.items()
        ]  # fmt: skip
        table(
            "time", ["call", "bwprof us", "torch.profiler us", "differs", "do_bench us", "do_bench - bwprof us"], rows
        )
    if "bytes" in options.only:
        if shutil.which("ncu") is None:
            raise SystemExit("ncu is not on PATH")
        metrics = "dram__bytes_read.sum,dram__bytes_write.sum"
        command = ["ncu", "--csv", "--profile-from-start", "off", "--cache-control", "none", "--clock-control", "none"]
        names, output = part("under_ncu", *command, "--replay-mode", "application", "--metrics", metrics)
        counted = ncu_bytes(output, list(names))
        rows = []
        for name, row in mine.items():
            want = counted[name]
            if row["counters_status"] != "ok":
                raise SystemExit(f"{name}: {row['counters_status']}")
            rows.append(
                [name, row["dram_bytes_read"] / 1e6, want["read"] / 1e6, percent(row["dram_bytes_read"], want["read"]),
                 row["dram_bytes_written"] / 1e6, want["written"] / 1e6,
                 percent(row["dram_bytes_written"], want["written"]), want["written at once"] / 1e6]
            )  # fmt: skip
        heads = ["call", "read MB", "ncu", "differs", "written MB", "ncu", "differs", "ncu, in the kernel itself"]
        table("DRAM bytes", heads, rows)
    if "hooks" in options.only:
        rows = [[name, found["median"], found["mean"]] for name, found in part("hooks")[0].items()]
        table("Profiler hooks, us of host time", ["what", "median", "mean"], rows)


if __name__ == "__main__":
    main()
