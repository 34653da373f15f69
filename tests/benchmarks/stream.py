"""Our CPU streams against NumPy's copy and an independent C STREAM program.

stream.c is compiled on the spot (cc -O3 -march=native -fopenmp) and runs with the same threads on arrays of the same
size; all sides use the same arrays again and again, so take --mib well above the last-level cache. Rates count the
bytes that the operation names (a copy 2 n); plain stores read a line before they write it, non-temporal ones do not,
which is most of what separates write, copy and triad.

    python tests/benchmarks/stream.py --mib 512 --seconds 1
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from common import gb_s, machine, measure, seconds_of, show, table

from bwprof import _core

SOURCE = Path(__file__).with_name("stream.c")


def c_stream(elements: int, seconds: float, threads: int) -> dict[str, tuple[float, float]]:
    """name -> (median, shortest) seconds of a pass."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "stream")
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-O3", "-march=native", "-fopenmp", str(SOURCE), "-o", str(program)], check=True)
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}
        command = [str(program), str(elements), str(seconds)]
        text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return {name: (float(median), float(best)) for name, median, best in rows}


def numpy_copy(elements: int, seconds: float) -> tuple[float, float]:
    source, target = np.ones(elements, np.float32), np.zeros(elements, np.float32)
    return seconds_of(lambda: np.copyto(target, source), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="MiB of each array (default: 512)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each side of each stream (default: 1)")
    options = parser.parse_args()
    elements = options.mib * 2**20 // 4
    rows = []
    with _core.Device("cpu") as device:
        show(machine(device))
        threads = device.facts()["units"]
        witness = c_stream(elements, options.seconds, threads)
        copy = numpy_copy(elements, options.seconds)
        for name, (median, best) in witness.items():
            ours, cost, _ = measure(
                device, name, "fp32", {"elements": elements}, cache="hot", max_seconds=options.seconds
            )
            row: list[object] = [name, gb_s(cost, ours["median_ns"]), gb_s(cost, ours["min_ns"])]
            row += [gb_s(cost, median * 1e9), gb_s(cost, best * 1e9)]
            row += [median * 1e9 / ours["median_ns"], best * 1e9 / ours["min_ns"]]
            row.append(copy[0] * 1e9 / ours["median_ns"] if name == "stream_copy" else "")
            rows.append(row)
    heads = ["stream", "ours GB/s", "best", "C GB/s", "best", "ours / C", "best", "ours / NumPy (1 thread)"]
    table(f"{options.mib} MiB per array, {threads} threads; ratios above 1: ours is faster", heads, rows)


if __name__ == "__main__":
    main()
