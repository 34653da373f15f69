"""A/A beside busy processes on a CPU: how many rows are flagged, and how far do pairs without a flag lie apart?

    python3 tests/benchmarks/neighbors.py [--busy 0 compute:1 memory:2 ...] [--rounds 6] [--cases 8] [--seconds 0.25]

compute:N starts N processes that compute, memory:N as many that copy 64 MiB to and fro; 0 is none. Cases of the default
suite, spread over it, are measured in turns; the first with the second measurement of a case is a pair, the third with
the fourth, and so on. A pair with a disturbed row is not compared. w/h/m/r/s: rows flagged because a thread waited for
a CPU, for the hypervisor, for memory, for a slow reference stream, for a wide spread. The last two columns: pairs of
rows without any flag, and those of them that lie further apart than the gate.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from common import machine, show, table
from repeats import chosen

from bwprof import _core, hardware
from bwprof.measuring import operation as measuring
from bwprof.measuring.row import Context
from bwprof.results.pairs import DEFAULT_GATE, is_comparable, times_differ
from bwprof.results.schema import RowDict

PROGRAMS = {
    "compute": "print('on', flush=True)\nwhile True: pass",
    "memory": "a, b = bytearray(1 << 26), bytearray(1 << 26)\nprint('on', flush=True)\nwhile True: a[:] = b; b[:] = a",
}
DEFAULT = ("0", "compute:1", "compute:2", "compute:4", "memory:1", "memory:2", "memory:4")
CAUSES = ("waited for a CPU", "hypervisor", "waited for memory", "reference stream", "wide spread")
HEADS = [
    "beside",
    "rows",
    "flagged",
    "w/h/m/r/s",
    "pairs",
    "compared",
    "said to differ",
    "> gate apart",
    "median %",
    "worst %",
    "no flag at all",
    "> gate",
]


@contextmanager
def busy(what: str) -> Iterator[None]:
    """So many processes that never rest, already running."""
    kind, _, number = what.partition(":")
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(int(number or 0)):
            process = subprocess.Popen([sys.executable, "-c", PROGRAMS[kind]], stdout=subprocess.PIPE)
            started.append(process)
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def measured(device: _core.Device, context: Context, rounds: int, cases: int, seconds: float) -> list[RowDict]:
    specs = chosen(context.backend, cases)
    found = []
    for _ in range(rounds):
        found += [measuring.measure(device, spec, context, max_seconds=seconds).row for spec in specs]
    return [row for row in found if row["status"] == "ok"]


def pairs_of(rows: Sequence[RowDict]) -> list[tuple[RowDict, RowDict]]:
    by_case: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        by_case.setdefault((row["case"], row["precision"], row["variant"]), []).append(row)
    return [pair for found in by_case.values() for pair in zip(found[::2], found[1::2], strict=False)]


def apart(pair: tuple[RowDict, RowDict]) -> float:
    low, high = sorted(float(row["time_ms"]) for row in pair)
    return high / low - 1


def line(what: str, rows: Sequence[RowDict]) -> list[object]:
    pairs = pairs_of(rows)
    compared = [pair for pair in pairs if all(map(is_comparable, pair))]
    distances = [apart(pair) for pair in compared]
    clean = [pair for pair in pairs if not any(row["flags"] for row in pair)]
    return [
        what,
        len(rows),
        sum(not is_comparable(row) for row in rows),
        "/".join(str(sum(cause in (row["reason"] or "") for row in rows)) for cause in CAUSES),
        len(pairs),
        len(compared),
        sum(times_differ(*pair) for pair in compared),
        sum(distance > DEFAULT_GATE for distance in distances),
        100 * statistics.median(distances) if distances else "",
        100 * max(distances) if distances else "",
        len(clean),
        sum(apart(pair) > DEFAULT_GATE for pair in clean),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", nargs="+", default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.25, help="of sampling at most, each time")
    parsed = parser.parse_args()
    lines = []
    with hardware.borrow_device("cpu", 0) as device:
        show(f"{machine(device)}; {parsed.seconds:g} s of sampling at most, gate {DEFAULT_GATE:.0%}")
        context = Context("neighbors", "cpu", hardware.facts(device), None)
        for what in parsed.busy:
            with busy(what):
                lines.append(line(what, measured(device, context, parsed.rounds, parsed.cases, parsed.seconds)))
    table("pairs of measurements of the same case", HEADS, lines)


if __name__ == "__main__":
    main()
