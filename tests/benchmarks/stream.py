"""Our CPU streams, as the roofs measure them, against NumPy's copy and an independent C STREAM program.

stream.c is compiled on the spot (cc -O3 -march=native -fopenmp) and runs with the same threads on as many bytes,
walking over as many sets of arrays as our cold launches do, with the same kind of stores (past the cache), once with
plain loops and once with a few pages interleaved: processors differ in which of these is quicker. The sides take turns,
and what is compared is the median over the rounds, and the best: a neighbor disturbs all alike.
NumPy's copy, with one thread and ordinary stores (which read a line before they write it), is there for comparison.

    python tests/benchmarks/stream.py --mib 256 --rounds 5
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from common import gb_s, machine, seconds_of, show, table

from bwprof import _core
from bwprof.roofs import survey

SOURCE = Path(__file__).with_name("stream.c")
WALKS = ("linear", "pages")  # of the C program


def compiled(folder: str) -> Path:
    program = Path(folder, "stream")
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-O3", "-march=native", "-fopenmp", str(SOURCE), "-o", str(program)], check=True)
    return program


def c_stream(
    program: Path, elements: int, sets: int, seconds: float, threads: int, name: str, walk: str
) -> tuple[float, float]:
    """(median, shortest) nanoseconds of a pass."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}
    command = [str(program), str(elements), str(sets), str(seconds), name.rpartition("_")[2], walk]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    median, best = (1e9 * float(word) for word in text.split())
    return median, best


def ours(device: _core.Device, name: str, elements: int, seconds: float) -> tuple[float, float, int, dict[str, int]]:
    """(median, shortest) nanoseconds, the sets rotated over, and the cost."""
    (param,) = (
        param["name"] for stream in survey.list_streams() if stream["name"] == name for param in stream["params"]
    )
    with _core.Case(device, name, survey.PRECISION, {param: elements}) as case:
        result = case.measure(max_seconds=seconds, verify_budget_s=0.0)
        if not result["verified"]:
            raise SystemExit(f"{name}: {result['reason']}")
        return result["median_ns"], result["min_ns"], result["buffer_sets"], case.cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="MiB moved by a pass (default: 256, the roofs' largest)")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each side of each round (default: 0.5)")
    parser.add_argument("--rounds", type=int, default=5, help="turns that the two sides take (default: 5)")
    options = parser.parse_args()
    rows = []
    with _core.Device("cpu") as device, tempfile.TemporaryDirectory() as folder:
        show(machine(device))
        program, threads = compiled(folder), device.facts()["units"]
        source = np.ones(options.mib * 2**20 // 8, np.float32)
        target = np.zeros_like(source)
        copy = seconds_of(lambda: np.copyto(target, source), options.seconds)[0] * 1e9
        for stream in survey.list_streams():
            name = stream["name"]
            cost = _core.cost(name, survey.PRECISION, {param["name"]: 1024 for param in stream["params"]})
            elements = options.mib * 2**20 * 1024 // (cost["bytes_read"] + cost["bytes_written"]) // 64 * 64
            turns: list[list[tuple[float, float]]] = [[], *([] for _ in WALKS)]
            for _ in range(options.rounds):
                median, best, sets, cost = ours(device, name, elements, options.seconds)
                turns[0].append((median, best))
                for taken, walk in zip(turns[1:], WALKS, strict=True):
                    taken.append(c_stream(program, elements, sets, options.seconds, threads, name, walk))
            middle = [statistics.median(turn[0] for turn in taken) for taken in turns]
            least = [min(turn[1] for turn in taken) for taken in turns]
            row: list[object] = [name, sets, *(gb_s(cost, ns) for ns in (*middle, *least))]
            row += [min(middle[1:]) / middle[0], min(least[1:]) / least[0]]
            row.append(copy / middle[0] if cost["bytes_read"] == cost["bytes_written"] else "")
            rows.append(row)
    heads = ["stream", "sets", "ours GB/s", *(f"C {walk}" for walk in WALKS)]
    heads += ["ours best", *(f"C {walk} best" for walk in WALKS), "ours / C", "best", "ours / NumPy (1)"]
    table(f"{options.mib} MiB moved, {threads} threads; ratios above 1: ours is faster", heads, rows)


if __name__ == "__main__":
    main()
