"""What batching saves: n small calls against one large call of the same bytes.

    python3 tests/benchmarks/batching.py [OPERATION ...] [--elements 16Mi] [--backend cuda]

Operations that have the parameter `elements` alone. Calls are launched one by one, which costs at least the host's time
for a launch, or as one graph, which costs what the timer measures; both start from cold inputs. The last line names the
size of a call from which launches cost less than a tenth.
"""

from __future__ import annotations

import argparse
import itertools
import math

from common import machine, measure, show, table

from bwprof import _core, hardware
from bwprof.text.parsing import parse_int

SHARE = 0.1  # of the time
Sample = tuple[int, float, float]  # elements of a call; ns of an element, by plain launches and in a graph


def enough(samples: list[Sample], column: int) -> str:
    """The smallest call whose launches take less than SHARE; between two sizes, launch over work is a power of it."""
    over = [(sample[0], max(sample[column] / samples[-1][column] - 1, 1e-3)) for sample in samples]
    limit = SHARE / (1 - SHARE)
    if over[0][1] <= limit:
        return f"{over[0][0]} or fewer"
    for (low, more), (high, less) in itertools.pairwise(over):
        if less <= limit < more:
            return f"{low * (high / low) ** (math.log(more / limit) / math.log(more / less)):.0f}"
    return "none"


def show_operation(device: _core.Device, name: str, most: int) -> None:
    samples: list[Sample] = []
    lines = []
    for size in (most >> shift for shift in range(max(0, most.bit_length() - 11), -1, -2)):
        found, cost, variant = measure(device, name, "fp32", {"elements": size}, max_seconds=0.1)
        graph, host = found["median_ns"], found["host_launch_ns"]
        plain = max(graph, host) if host > 0 else graph
        samples.append((size, plain / size, graph / size))
        moved = cost["bytes_read"] + cost["bytes_written"]
        times = (plain / 1e3, graph / 1e3, found["timer_floor_ns"] / 1e3)
        lines.append((moved, most // size, *times, plain / size, graph / size, moved / graph))
    heads = ("bytes", "calls", "plain us", "graph us", "floor us", "plain ns/elem", "graph ns/elem", "graph GB/s")
    table(f"{name} {variant}: {most} elements of fp32", heads, lines)
    found_at = f"plain {enough(samples, 1)}, in a graph {enough(samples, 2)}"
    show(f"launches cost under {SHARE:.0%} from so many elements a call: {found_at}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", default=["stream_copy", "host_to_device", "device_to_host"])
    parser.add_argument("--elements", default="16Mi", help="of all calls together")
    parser.add_argument("--backend")
    given = parser.parse_args()
    most = parse_int(given.elements, "--elements")
    choice = hardware.choose_device(given.backend)
    device = _core.Device(choice.backend, choice.index)
    show(machine(device))
    for name in given.operations:
        try:
            show_operation(device, name, most)
        except _core.UnsupportedError as error:
            show(f"\n{error}")


if __name__ == "__main__":
    main()
