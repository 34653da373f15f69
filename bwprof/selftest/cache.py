"""Ways of making the cache cold, and what each makes of the same kernel.

Rotation over buffer sets in a graph is what bwprof uses. A flush by memset, as other tools have it, leaves dirty lines
in the cache whose write-back the next kernel pays for; a flush by reading does not, but lets a kernel that writes leave
its own last writes unpaid. Both flushes can only time single launches, between events that add a bias of their own; so
where kernels have timestamps each method is timed by them as well, and judged by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bwprof import _core
from bwprof.selftest.bench import Bench, Cell, PartReport, fits, read_figure
from bwprof.text.formatting import format_bytes

NAME = "cache"

RELATIVE = 0.03

ABSOLUTE_US = 0.15

SECONDS = 0.15  # of sampling, each time

_TITLE = "Cold cache: the same kernel by five methods, us per launch"

_METHODS: dict[str, dict[str, Any]] = {
    "rotation_us": {"cache": "cold"},
    "hot_us": {"cache": "hot"},
    "memset_flush_us": {"flush": "memset"},
    "read_flush_us": {"flush": "read"},
    "memset_read_flush_us": {"flush": "memset+read"},
}

_COLUMNS = {
    "case": "case",
    "timed_by": "timed by",
    "rotation_us": "rotation",
    "hot_us": "hot",
    "memset_flush_us": "memset flush",
    "read_flush_us": "read flush",
    "memset_read_flush_us": "memset + read",
    "memset_excess": "memset excess",
    "agrees": "agrees",
}

# By whether work is done on the host, where a launch takes longer: MiB to read, MiB to copy each way; all of them, and
# the quick ones.
_SIZES = {False: ((1, 16, 32, 64, 256), (64, 1024)), True: ((16, 64), (64,))}

_QUICK = {False: ((16, 64), (64,)), True: ((16,), ())}


def run(bench: Bench) -> PartReport:
    """Reads and copies of several sizes by every method."""
    rows: list[Mapping[str, Cell]] = []
    left_out: list[str] = []
    kernels = "cupti" in bench.timers
    for name, param, elements, label in _cases(bench):
        bench.poll()
        bench.say(f"{NAME}: {label}")
        try:
            with _core.Case(bench.device, name, "fp32", {param: elements}) as case:
                if not fits(case):
                    left_out.append(f"{label}: too little memory")
                    continue
                rows.append(_row(case, label, bench, by_kernels=False))
                if kernels:
                    rows.append(_row(case, label, bench, by_kernels=True))
        except _core.UnavailableError as error:
            kernels = False
            left_out.append(f"kernel timestamps: {error}")
        except MemoryError as error:
            left_out.append(f"{label}: {error}")
    return _report(bench, rows, "; ".join(left_out))


def _cases(bench: Bench) -> list[tuple[str, str, int, str]]:
    """(operation, its parameter, elements, label) of the stream that only reads and of the one that copies."""
    reads, copies = (_QUICK if bench.quick else _SIZES)[_core.backend_facts(bench.backend)["runs_on_host"]]
    found = []
    for operation in _core.operations():
        if not operation["is_stream"]:
            continue
        param = operation["params"][0]["name"]
        cost = _core.cost(operation["name"], "fp32", {param: 1024})
        sizes = reads if not cost["bytes_written"] else copies if cost["bytes_read"] == cost["bytes_written"] else ()
        word = "read" if not cost["bytes_written"] else "copy"
        found += [(operation["name"], param, (size << 20) // 4, f"{word} {format_bytes(size << 20)}") for size in sizes]
    return found


def _row(case: _core.Case, label: str, bench: Bench, *, by_kernels: bool) -> Mapping[str, Cell]:
    """One case by every method: with the timer that each has, or by the kernels' own timestamps."""
    single = "cupti" if by_kernels else "events" if "events" in bench.timers else None  # of launches behind a flush
    timed_by = "kernel" if by_kernels else "graph, events" if single else bench.timers[0]
    row: dict[str, Cell] = {"case": label, "timed_by": timed_by}
    for name, method in _METHODS.items():
        flushed = "flush" in method
        found = case.measure(
            **method,
            timer=single if flushed else None,
            trace=by_kernels and not flushed,
            max_seconds=SECONDS,
            verify_budget_s=0.0,
            poll=bench.poll,
        )
        if not found["verified"]:
            raise RuntimeError(f"{label}: wrong result: {found['reason']}")
        row[name] = found["kernel_span_ns" if by_kernels else "median_ns"] / 1e3
    ours, flush = read_figure(row, "rotation_us"), read_figure(row, "read_flush_us")
    row["memset_excess"] = f"{read_figure(row, 'memset_flush_us') / flush - 1:+.0%}"
    judged = by_kernels and not case.cost["bytes_written"]
    agrees = abs(ours - flush) <= max(RELATIVE * ours, ABSOLUTE_US)
    row["agrees"] = ("yes" if agrees else "NO") if judged else ""
    return row


def _report(bench: Bench, rows: list[Mapping[str, Cell]], left_out: str) -> PartReport:
    judged = [row for row in rows if row["agrees"]]
    summary = []
    if "events" in bench.timers:
        bias_us = (bench.device.floor_ns("events") - bench.device.floor_ns()) / 1e3
        summary.append(
            f"graph, events: rotation and hot in a graph, flushed launches between events, which make an empty kernel "
            f"{bias_us:.2f} us longer than a graph does"
        )
    gate = ""
    if judged:
        gate = f"reads, by kernel timestamps: rotation within {RELATIVE:.0%} or {ABSOLUTE_US} us of the read flush"
    passed = all(row["agrees"] == "yes" for row in judged) if judged else None
    return PartReport(NAME, _TITLE, _COLUMNS, rows, gate, passed, summary, left_out)
