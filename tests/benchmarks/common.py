"""What the benchmark scripts share: measuring one of our cases, timing a callable, printing a table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bwprof import _core


def show(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def texts(row: Sequence[object]) -> list[str]:
    """Floats with four significant digits."""
    return [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]


def show_row(row: Sequence[object], widths: Sequence[int]) -> None:
    """Left column flush left, the others flush right."""
    first, *others = zip(texts(row), widths, strict=True)
    show("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]))


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    text = [texts(row) for row in [heads, *rows]]
    widths = [max(len(row[i]) for row in text) for i in range(len(heads))]
    show(f"\n{title}")
    for row in text:
        show_row(row, widths)


def measure(
    device: _core.Device, operation: str, precision: str, params: dict[str, int], **options: Any
) -> tuple[dict[str, Any], dict[str, int], str]:
    """(measurement, cost, variant); a wrong result ends the script. Options are those of the case's `measure`, and its
    variant and kv_lens."""
    of_case = {name: options.pop(name, None) for name in ("variant", "kv_lens")}
    with _core.Case(device, operation, precision, params, **of_case) as case:
        result = case.measure(**options)
        if not result["verified"]:
            raise SystemExit(f"{operation} {precision} {params}: {result['reason']}")
        return result, case.cost, case.variant


def seconds_of(work: Callable[[], object], budget_s: float = 1.0) -> tuple[float, float]:
    """(median, shortest) wall time of a call, after one to warm up."""
    work()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or time.perf_counter() < end:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    times.sort()
    return times[len(times) // 2], times[0]


def gb_s(cost: dict[str, int], nanoseconds: float) -> float:
    return float(_core.bandwidth_gb_s(cost["bytes_read"] + cost["bytes_written"], nanoseconds * 1e-9))


def machine(device: _core.Device) -> str:
    facts = device.facts()
    cache_mib = facts["cache_bytes"] / 2**20
    return f"{facts['name']}, {facts['units']} threads or SMs, {facts['runtime']}, cache {cache_mib:.0f} MiB"
