"""How often paired measurements cry wolf, and whether they find 2 %: on this machine, as busy as it is.

For each case: A/A tries, in which B is A, and tries in which B does 2 % more work of the same kind (2 % more elements
to read, one matrix product more than fifty, 2 % more columns). Run it beside other work: what drifts is the point.

    python3 tests/benchmarks/paired.py                       # forty A/A tries of 3 s and ten planted ones for each case
    python3 tests/benchmarks/paired.py --cases sum,products --seconds 5
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from bwprof import _core, hardware
from bwprof.experiments import ab_session
from bwprof.experiments.ab_process import Place, ProcessSide
from bwprof.experiments.ab_session import FASTER, SAME, SLOWER, Comparison, StopRule, verdict_of
from bwprof.experiments.ab_sides import ABSide, CallSide, CaseSide
from bwprof.measuring.operation import Spec
from bwprof.runs.channel import NoInterrupts

MORE = 1.02
ELEMENTS = 6 << 20  # of 8 bytes: beyond the last-level cache of most
PRODUCTS = 50

Sides = Callable[[bool], "Iterator[Sequence[ABSide]]"]


def gemm(n: int, *, m: int, k: int, cache: str) -> Spec:
    """A case; `n` columns."""
    params = _core.complete("gemm", "fp32", {"M": m, "N": n, "K": k})
    return Spec(f"gemm N={n}", "gemm", "fp32", params, None, None, cache, 0)


class Bench:
    """What the cases share: a device with one thread, and arrays that both sides work on."""

    def __init__(self, device: _core.Device, stack: ExitStack) -> None:
        self._device = device
        self._stops = stack.enter_context(NoInterrupts())
        self._array = np.ones(math.ceil(ELEMENTS * MORE))
        self._matrix = np.ones((96, 96))

    def sum(self, planted: bool) -> Iterator[Sequence[ABSide]]:
        """Memory-bound functions: elements of one array are read."""
        one, other = self._array[:ELEMENTS], self._array[: math.ceil(ELEMENTS * (MORE if planted else 1))]
        yield [CallSide(self._device, part.sum, name="sum", cache="hot") for part in (one, other)]

    def products(self, planted: bool) -> Iterator[Sequence[ABSide]]:
        """Compute-bound functions: products of small matrices, one after the other."""

        def side(count: int) -> CallSide:
            def run() -> None:
                for _ in range(count):
                    self._matrix @ self._matrix

            return CallSide(self._device, run, cache="hot")

        yield [side(PRODUCTS), side(PRODUCTS + planted)]

    def gemv(self, planted: bool) -> Iterator[Sequence[ABSide]]:
        """A memory-bound operation, cold, each side on buffers of its own."""
        columns = [1600, round(1600 * (MORE if planted else 1))]  # whole blocks of 32: a rest costs more
        yield [CaseSide(self._device, gemm(n, m=1, k=2560, cache="cold")) for n in columns]

    def blocks(self, planted: bool) -> Iterator[Sequence[ABSide]]:
        """A compute-bound operation, hot."""
        columns = [800, round(800 * (MORE if planted else 1))]
        yield [CaseSide(self._device, gemm(n, m=64, k=256, cache="hot")) for n in columns]

    def interpreters(self, planted: bool) -> Iterator[Sequence[ABSide]]:
        """The same in two interpreters' processes."""
        place = Place(self._device.backend, self._device.index, threads=1, python=sys.executable)
        columns = [800, round(800 * (MORE if planted else 1))]
        sides = [ProcessSide(gemm(n, m=64, k=256, cache="hot"), place, self._stops) for n in columns]
        yield sides
        for side in sides:
            side.end()


def tried(sides: Sides, how: StopRule, *, planted: bool) -> Comparison:
    """One comparison."""
    with contextmanager(sides)(planted) as made:
        found = Comparison(made, how)
        found.run()
        for side in made:
            side.close()
    if found.stopped == ab_session.FAILED:
        raise SystemExit(found.reason)
    return found


def line(name: str, what: str, found: Sequence[Comparison], began: float) -> str:
    """What a row of tries came to."""
    verdicts = [verdict_of(one.ratio, one.rule.gate) for one in found]
    counts = " ".join(f"{verdicts.count(said):7d}" for said in (SLOWER, FASTER, SAME))
    undecided = len(verdicts) - sum(verdicts.count(said) for said in (SLOWER, FASTER, SAME))
    ratios = [one.ratio.value for one in found]
    width = statistics.median(one.ratio.half_width for one in found)
    away = max(abs(math.log(ratio)) for ratio in ratios)
    seconds = statistics.median(one.seconds for one in found)
    return (
        f"{name:13} {what:8} {len(found):5d} {counts} {undecided:9d} {100 * (statistics.median(ratios) - 1):+8.2f} "
        f"{100 * away:7.2f} {100 * width:9.2f} {seconds:9.1f} {os.getloadavg()[0]:6.1f} {time.monotonic() - began:6.0f}"
    )


HEAD = (
    "case          sides    tries  slower  faster    same undecided  median%  worst%  +-half %   s a try   load      s"
)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="sum,products,gemv,blocks,interpreters")
    parser.add_argument("--tries", type=int, default=40, help="A/A")
    parser.add_argument("--seconds", type=float, default=3.0, help="of an A/A try")
    parser.add_argument("--planted-tries", type=int, default=10)
    parser.add_argument("--planted-seconds", type=float, default=30.0, help="of a planted try, at most")
    parser.add_argument("--rel-ci", type=float, default=ab_session.DEFAULT_REL_CI)
    given = parser.parse_args()
    sys.stdout.write(f"{HEAD}\n")
    with ExitStack() as stack:
        device = stack.enter_context(hardware.borrow_device("cpu", 0))
        device.limit_threads(1)
        bench = Bench(device, stack)
        for name in given.cases.split(","):
            for what, planted, tries, seconds in (
                ("A/A", False, given.tries, given.seconds),
                ("2 % more", True, given.planted_tries, given.planted_seconds),
            ):
                began = time.monotonic()
                found = [
                    tried(getattr(bench, name), StopRule(given.rel_ci, seconds, seed=seed), planted=planted)
                    for seed in range(tries)
                ]
                if found:
                    sys.stdout.write(f"{line(name, what, found, began)}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
