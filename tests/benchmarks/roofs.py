"""Do the streams grade themselves at 100 % attainable at any size? Prints each stream at many sizes against the roofs.

The sizes are not those of the roofs: a dense geometric series with an odd ratio, from --smallest to --largest bytes
moved, as far as memory goes. Roofs are taken as a sweep takes them (stored ones, checked; --recalibrate for new ones).
The last table says how far the grades lie from 100 %, and what the ceilings are.

    python tests/benchmarks/roofs.py --backend cuda --per-octave 3
"""

from __future__ import annotations

import argparse
import time

from common import machine, show, table

from bwprof import _core, hardware
from bwprof.roofs import model, obtain, survey
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import parse_count


def sizes(smallest: int, largest: int, per_octave: float) -> list[int]:
    """From the smallest to just below or at the largest."""
    found, size = [], float(smallest)
    while size < largest * 0.999:
        found.append(round(size))
        size *= 2 ** (1 / per_octave)
    return [*found, largest]


def grades(
    device: _core.Device, found: model.Roofs, names: list[int], seconds: float, precision: str
) -> dict[str, list[tuple[int, float, float, float]]]:
    """Stream -> (bytes, GB/s, % of attainable, uncertainty in %), the sizes interleaved over the streams."""
    made: dict[str, list[tuple[int, float, float, float]]] = {}
    for size in names:
        for stream in survey.list_streams():
            (param,) = (param["name"] for param in stream["params"])
            unit = _core.cost(stream["name"], precision, {param: 1024})
            elements = round(size * 1024 / (unit["bytes_read"] + unit["bytes_written"]))
            with _core.Case(device, stream["name"], precision, {param: elements}) as case:
                if not case.memory_needed("cold")["fits"]:
                    continue
                result = case.measure(max_seconds=seconds, verify_budget_s=0.0)
                cost = case.cost
            if not result["verified"]:
                raise SystemExit(f"{stream['name']} of {size} bytes: {result['reason']}")
            total = cost["bytes_read"] + cost["bytes_written"]
            gb_s = total / result["median_ns"]
            attainable = found.attainable_gb_s(cost["bytes_read"], cost["bytes_written"])
            half = 100 * (result["hi_ns"] - result["lo_ns"]) / 2 / result["median_ns"]
            made.setdefault(stream["name"], []).append((total, gb_s, 100 * gb_s / attainable, half))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="cuda or cpu (default: the first that has a device)")
    parser.add_argument("--smallest", default="1Mi", help="bytes moved (default: 1Mi)")
    parser.add_argument("--largest", default="4Gi", help="bytes moved (default: 4Gi)")
    parser.add_argument("--per-octave", type=float, default=3.0, help="sizes per factor of two (default: 3)")
    parser.add_argument("--seconds", type=float, default=0.05, help="of sampling per size and stream (default: 0.05)")
    parser.add_argument("--precision", default="fp32", help="of the graded streams (default: fp32)")
    parser.add_argument("--recalibrate", action="store_true", help="measure the roofs anew")
    options = parser.parse_args()
    wanted = sizes(
        parse_count(options.smallest, "--smallest"), parse_count(options.largest, "--largest"), options.per_octave
    )
    choice = hardware.choose_device(options.backend)
    with _core.Device(choice.backend, choice.index) as device:
        show(machine(device))
        started = time.perf_counter()
        found = obtain.obtain(device, obtain.RoofRequest(recalibrate=options.recalibrate))
        if found is None:
            raise SystemExit("no roof could be measured")
        show(f"roofs in {time.perf_counter() - started:.2f} s: {found.source}, {len(found.points)} points")
        made = grades(device, found, wanted, options.seconds, options.precision)
    rows: list[list[object]] = []
    for index in range(max(map(len, made.values()))):
        row: list[object] = []
        for measured in made.values():
            if index < len(measured):
                total, gb_s, percent, half = measured[index]
                row = row or [format_bytes(total)]
                row += [gb_s, f"{percent:.1f}", f"{half:.1f}"]
        rows.append(row)
    heads = ["bytes moved", *(head for name in made for head in (name, "% att.", "+- %"))]
    table(f"GB/s of the {options.precision} streams, % of attainable, and how well the time is known", heads, rows)
    ends: list[list[object]] = []
    for name, measured in made.items():
        off = [abs(percent - 100) for _, _, percent, _ in measured]
        worst = measured[off.index(max(off))]
        inside = 100 * sum(value <= 2 for value in off) / len(off)
        best = max(gb_s for total, gb_s, _, _ in measured if total >= min(2**30, measured[-1][0]))
        ends.append([name, len(off), f"{inside:.0f}", f"{max(off):.1f} at {format_bytes(worst[0])}", best])
    table("Grades", ["stream", "sizes", "% within 2", "furthest from 100 %", "best GB/s from 1 GiB on"], ends)


if __name__ == "__main__":
    main()
