"""How long the analyses of a million rows take: `BandwidthAnalysis.from_frame`, `bottlenecks`, `strengths`.

    python3 tests/benchmarks/analysis.py [--rows 1000000] [--repeats 3]

Rows with and without the columns of limits (a file of an older version has none), with a hundred different stall texts.
The shortest of the repeats counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
from common import table

import bwprof
from bwprof.analysis.bottleneck import bottlenecks, strengths
from bwprof.roofs.limiter import with_limits


def frame(rows: int) -> pd.DataFrame:
    """Columns as `bwprof.load` types them, values at random."""
    rng = np.random.default_rng(7)

    def words(*allowed: str) -> pd.api.extensions.ExtensionArray:
        return pd.array(rng.choice(allowed, rows), dtype="string")

    def whole(most: int) -> pd.api.extensions.ExtensionArray:
        return pd.array(rng.integers(1, most, rows), dtype="Int64")

    data = pd.DataFrame(
        {
            "operation": words("one", "two", "three"),
            "precision": words("fp32", "fp16", "bf16"),
            "case": words(*(f"case{number}" for number in range(50))),
            "variant": words("plain", "vector"),
            "status": words("ok"),
            "cache": words("cold"),
            "flags": words("", "noisy", "noisy;throttled"),
            "bound": words("memory", "compute", "latency"),
            "time_ms": rng.uniform(0.01, 10, rows),
            "timer_floor_us": rng.uniform(0.5, 2, rows),
            "bytes_read": whole(10**9),
            "bytes_written": whole(10**8),
            "flops": whole(10**12),
            "peak_gb_s": np.full(rows, 4814.3),
            "ceiling_gb_s": np.full(rows, 4300.0),
            "attainable_gb_s": rng.uniform(1000, 4600, rows),
            "peak_tflops": rng.choice([67.0, 1071.0], rows),
            "traffic_ratio": rng.uniform(0.9, 2.0, rows),
            "occupancy_pct": rng.uniform(5, 100, rows),
            "stall_reasons": words(*(f"long_scoreboard={number}.5;wait=7" for number in range(100))),
        }
    )
    moved = (data["bytes_read"] + data["bytes_written"]).astype(float)
    data["bandwidth_gb_s"] = moved / data["time_ms"] / 1e6
    data["tflops"] = data["flops"].astype(float) / data["time_ms"] / 1e9
    return data


def seconds(work: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    older = frame(options.rows)
    frames = {"with limits": with_limits(older), "without": older, "without, no bound": older.drop(columns="bound")}
    works = {
        "BandwidthAnalysis.from_frame": bwprof.BandwidthAnalysis.from_frame,
        "bottlenecks": bottlenecks,
        "strengths of the first tenth": lambda data: strengths(data.head(len(data) // 10)),
        "with_limits": with_limits,
    }
    lines = [
        [name, *(seconds(lambda work=work, data=data: work(data), options.repeats) for data in frames.values())]
        for name, work in works.items()
    ]
    table(f"seconds for {options.rows} rows", ["", *frames], lines)


if __name__ == "__main__":
    main()
