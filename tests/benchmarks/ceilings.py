"""Does a kernel beat the roof of its mix? A roof that is beaten is none: exit status 1 where one is, by over 3 %.

Kernels that do little but move memory are measured in turns with the four streams of as many bytes, and the roof is
interpolated for the kernel's mix as every row's is. The shortest launches of all turns decide, since a limit is what
nobody exceeds when nothing disturbs; beside that stands the median of the turns' own shares. What seems to beat its
roof gets as many turns again, up to four times: a stream that was always disturbed is no roof.

    python tests/benchmarks/ceilings.py --backend cpu --rounds 7
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import dataclass, field

from common import machine, measure, show, table

from bwprof import _core, hardware
from bwprof.roofs import survey
from bwprof.roofs.model import RoofPoint, Roofs

LIMIT = 1.03
TRIES = 4
CASES: tuple[tuple[str, dict[str, int]], ...] = (
    ("gemm", {"M": 1, "N": 14336, "K": 4096}),
    ("gemm", {"M": 1, "N": 4096, "K": 14336}),
    ("gemm", {"M": 1, "N": 4864, "K": 896}),
    ("gemm", {"M": 4, "N": 8192, "K": 4096}),
    ("attention_decode", {"kv_len": 16384, "num_heads": 8, "num_kv_heads": 8, "head_dim": 128}),
    ("attention_decode", {"kv_len": 16384, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}),
    ("kv_append", {"seq_len": 8192, "kv_len": 1, "num_kv_heads": 8, "head_dim": 128}),
    ("kv_append", {"seq_len": 8192, "kv_len": 1, "num_kv_heads": 8, "head_dim": 128, "page_size": 16}),
    ("kv_gather", {"kv_len": 8192, "num_kv_heads": 8, "head_dim": 128, "page_size": 16}),
    ("kv_gather", {"kv_len": 8192, "num_kv_heads": 8, "head_dim": 128, "page_size": 256}),
    ("kv_copy", {"kv_len": 16384, "num_kv_heads": 8, "head_dim": 128}),
    ("kv_copy", {"kv_len": 1024, "num_kv_heads": 8, "head_dim": 128}),
)


@dataclass
class Best:
    """The shortest launch in any turn, and the bytes that it moves."""

    ns: float = math.inf
    bytes_read: int = 0
    bytes_written: int = 0
    variant: str = ""
    medians: list[float] = field(default_factory=list)  # of each turn, ns

    def take(
        self, device: _core.Device, operation: str, precision: str, params: dict[str, int], seconds: float
    ) -> None:
        result, cost, self.variant = measure(
            device, operation, precision, params, max_seconds=seconds, verify_budget_s=0.0
        )
        self.ns = min(self.ns, result["min_ns"])
        self.bytes_read, self.bytes_written = cost["bytes_read"], cost["bytes_written"]
        self.medians.append(result["median_ns"])

    @property
    def total(self) -> int:
        return self.bytes_read + self.bytes_written


def share_of(kernel: Best, streams: dict[str, Best]) -> float:
    """The best launch's share of the roof that the streams' best launches make."""
    return kernel.total / kernel.ns / roof_gb_s(kernel, {name: (best, best.ns) for name, best in streams.items()})


def turns(
    device: _core.Device, operation: str, precision: str, params: dict[str, int], rounds: int, seconds: float
) -> tuple[Best, dict[str, Best]]:
    """A kernel and the streams of as many bytes, one after the other, again and again."""
    kernel, streams = Best(), {stream["name"]: Best() for stream in survey.list_streams()}
    for turn in range(TRIES * rounds):
        if turn and turn % rounds == 0 and share_of(kernel, streams) <= LIMIT:
            break
        kernel.take(device, operation, precision, params, seconds)
        for stream in survey.list_streams():
            (name,) = (param["name"] for param in stream["params"])
            unit = _core.cost(stream["name"], survey.PRECISION, {name: 1024})
            elements = max(1, round(kernel.total * 1024 / (unit["bytes_read"] + unit["bytes_written"])))
            streams[stream["name"]].take(device, stream["name"], survey.PRECISION, {name: elements}, seconds)
    return kernel, streams


def roof_gb_s(kernel: Best, streams: dict[str, tuple[Best, float]]) -> float:
    """What the streams that took so many ns say of the kernel's mix."""
    points = tuple(
        RoofPoint(name, best.bytes_read / best.total, best.total, ns / 1e9) for name, (best, ns) in streams.items()
    )
    found = Roofs(device="", device_uuid="", driver="", bwprof_version="", floor_seconds=0.0, points=points)
    return found.attainable_gb_s(kernel.bytes_read, kernel.bytes_written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="cuda or cpu (default: the first that has a device)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each kernel (default: 5)")
    parser.add_argument("--seconds", type=float, default=0.05, help="of sampling, each time (default: 0.05)")
    parser.add_argument("--precision", action="append", help="may be repeated (default: fp32 and fp16)")
    options = parser.parse_args()
    choice = hardware.choose_device(options.backend)
    rows: list[list[object]] = []
    beaten = 0
    with _core.Device(choice.backend, choice.index) as device:
        show(machine(device))
        for operation, params in CASES:
            for precision in options.precision or ("fp32", "fp16"):
                kernel, streams = turns(device, operation, precision, params, options.rounds, options.seconds)
                share = share_of(kernel, streams)
                middle = statistics.median(
                    kernel.total / ns / roof_gb_s(kernel, {name: (s, s.medians[turn]) for name, s in streams.items()})
                    for turn, ns in enumerate(kernel.medians)
                )
                beaten += share > LIMIT
                words = " ".join(f"{name}={value}" for name, value in params.items())
                row = [f"{operation} {words}", precision, kernel.variant, kernel.total / kernel.ns, len(kernel.medians)]
                rows.append([*row, f"{100 * share:.0f}", f"{100 * middle:.0f}", "BEATEN" if share > LIMIT else ""])
    heads = ["kernel", "precision", "variant", "best GB/s", "turns", "% of roof", "median of turns", ""]
    table("Kernels against the streams of the same bytes and mix", heads, rows)
    if beaten:
        sys.exit(1)


if __name__ == "__main__":
    main()
