"""Ways of making the cache cold, and what each makes of the same kernel.

Rotation over buffer sets in a graph is what bwprof uses. A flush by memset, as other tools have it, leaves dirty lines
in the cache whose write-back the next kernel pays for; a flush by reading does not, but lets a kernel that writes leave
its own last writes unpaid. Both can only time single launches between events, which adds a bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bwprof import _core
from bwprof.names import bytes_text
from bwprof.selftest.part import Bench, Report, Value, fits

NAME = "cache"
RELATIVE = 0.03
ABSOLUTE_US = 1.0
SECONDS = 0.15  # of sampling, each time
JUDGED_FROM_BYTES = 16 << 20

_TITLE = "Cold cache: the same kernel by five methods, us per launch"
_METHODS: dict[str, dict[str, Any]] = {
    "rotation_us": {"cache": "cold"},
    "hot_us": {"cache": "hot"},
    "memset_flush_us": {"flush": "memset"},
    "read_flush_us": {"flush": "read"},
    "memset_read_flush_us": {"flush": "memset+read"},
}
_READS = {"cuda": (1, 16, 32, 64, 256), "cpu": (16, 64)}  # MiB
_COPIES = {"cuda": (64, 1024), "cpu": (64,)}  # MiB each way
_QUICK = {"cuda": ((16, 64), (64,)), "cpu": ((16,), ())}


def run(bench: Bench) -> Report:
    """Reads and copies of several sizes by every method."""
    events = "events" in bench.timers
    bias = (bench.device.floor_ns("events") - bench.device.floor_ns()) / 1e3 if events else 0.0
    rows: list[Mapping[str, Value]] = []
    left_out: list[str] = []
    for name, param, elements, label in _cases(bench):
        bench.poll()
        bench.say(f"{NAME}: {label}")
        try:
            with _core.Case(bench.device, name, "fp32", {param: elements}) as case:
                if fits(case):
                    rows.append(_row(case, label, bias, bench))
                else:
                    left_out.append(f"{label}: too little memory")
        except MemoryError as error:
            left_out.append(f"{label}: {error}")
    return _report(rows, "; ".join(left_out), bias, events)


def _cases(bench: Bench) -> list[tuple[str, str, int, str]]:
    """(operation, its parameter, elements, label) of the stream that only reads and of the one that copies."""
    reads, copies = _QUICK[bench.backend] if bench.quick else (_READS[bench.backend], _COPIES[bench.backend])
    found = []
    for operation in _core.operations():
        if not operation["is_stream"]:
            continue
        param = operation["params"][0]["name"]
        cost = _core.cost(operation["name"], "fp32", {param: 1024})
        sizes = reads if not cost["bytes_written"] else copies if cost["bytes_read"] == cost["bytes_written"] else ()
        word = "read" if not cost["bytes_written"] else "copy"
        found += [(operation["name"], param, (size << 20) // 4, f"{word} {bytes_text(size << 20)}") for size in sizes]
    return found


def _row(case: _core.Case, label: str, bias_us: float, bench: Bench) -> Mapping[str, Value]:
    row: dict[str, Value] = {"case": label}
    for name, options in _METHODS.items():
        timer = "events" if "flush" in options and "events" in bench.timers else None
        found = case.measure(**options, timer=timer, max_seconds=SECONDS, verify_budget_s=0.0, poll=bench.poll)
        if not found["verified"]:
            raise RuntimeError(f"{label}: wrong result: {found['reason']}")
        row[name] = found["median_ns"] / 1e3
    row["read_flush_unbiased_us"] = float(row["read_flush_us"] or 0) - bias_us
    row["memset_excess_us"] = float(row["memset_flush_us"] or 0) - float(row["read_flush_us"] or 0)
    judged = not case.cost["bytes_written"] and case.cost["bytes_read"] >= JUDGED_FROM_BYTES
    row["agrees"] = ("yes" if _agree(row) else "NO") if judged and bias_us else ""
    return row


def _agree(row: Mapping[str, Value]) -> bool:
    ours, theirs = float(row["rotation_us"] or 0), float(row["read_flush_unbiased_us"] or 0)
    return abs(ours - theirs) <= max(RELATIVE * ours, ABSOLUTE_US)


def _report(rows: list[Mapping[str, Value]], left_out: str, bias_us: float, events: bool) -> Report:
    around = " + events" if events else ""
    columns = {
        "case": "case",
        "rotation_us": "rotation",
        "hot_us": "hot",
        "memset_flush_us": f"memset flush{around}",
        "read_flush_us": f"read flush{around}",
        "memset_read_flush_us": f"memset + read flush{around}",
        "memset_excess_us": "memset - read flush",
        **({"read_flush_unbiased_us": "read flush less bias", "agrees": "agrees"} if events else {}),
    }
    judged = [row for row in rows if row["agrees"]]
    summary = []
    if events:
        summary.append(
            f"an event pair around an empty kernel takes {bias_us:.2f} us longer than one in a graph: the bias"
        )
    gate = ""
    if judged:
        gate = (
            f"reads from {bytes_text(JUDGED_FROM_BYTES)}: rotation within {RELATIVE:.0%} or {ABSOLUTE_US:g} us of the "
            "read flush less the bias"
        )
    passed = all(row["agrees"] == "yes" for row in judged) if judged else None
    return Report(NAME, _TITLE, columns, rows, gate, passed, summary, left_out)
