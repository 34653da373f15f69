"""The graph's time against the kernels' own timestamps.

Two things are told apart. A kernel's *duration* ends with its last instruction; a graph's next kernel starts only after
the one before has drained and been launched, which is time that a real sequence of kernels pays too. So the graph is
held against the *pitch*: from the first kernel's start to the last one's end inside a replay, over its launches, by
CUPTI's timestamps of the graph's own kernels. The duration stands beside it. (Of several kernels that are launched one
by one, the span would hold the host's gaps between them as well.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bwprof import _core
from bwprof.selftest.part import Bench, Report, Value, fits
from bwprof.sweep.plan import Spec

NAME = "timers"
RELATIVE = 0.03
ABSOLUTE_US = 0.15
SECONDS = 0.1  # of sampling, each time

_TITLE = "Timers: the graph against CUPTI's kernel timestamps, us per launch"
_COLUMNS = {
    "case": "case",
    "precision": "precision",
    "variant": "variant",
    "duration_us": "duration",
    "pitch_us": "pitch",
    "graph_us": "graph",
    "graph_minus_pitch_us": "graph - pitch",
    "graph_minus_duration_us": "graph - duration",
    "agrees": "agrees",
}


def run(bench: Bench) -> Report:
    """Every case of the default suite, by each timer in turn."""
    if not {"graph", "cupti"} <= set(bench.timers):
        return Report(NAME, _TITLE, left_out=f"{bench.backend} has one timer: there is nothing to compare it with")
    rows: list[Mapping[str, Value]] = []
    left_out: list[str] = []
    specs = bench.specs()
    for number, spec in enumerate(specs, start=1):
        bench.poll()
        bench.say(f"{NAME}: {number} of {len(specs)}: {spec.title}")
        try:
            with spec.open(bench.device) as case:
                if fits(case):
                    rows.append(_row(spec, case, bench))
                else:
                    left_out.append(f"{spec.title}: too little memory")
        except _core.UnavailableError as error:
            return Report(NAME, _TITLE, left_out=str(error))
        except (_core.UnsupportedError, MemoryError) as error:
            left_out.append(f"{spec.title}: {error}")
    return _report(rows, "; ".join(left_out))


def _row(spec: Spec, case: _core.Case, bench: Bench) -> Mapping[str, Value]:
    def measured(timer: str, *, trace: bool = False) -> dict[str, Any]:
        return case.measure(timer=timer, trace=trace, max_seconds=SECONDS, verify_budget_s=0.0, poll=bench.poll)

    before, traced, kernels, after = (
        measured("graph"),
        measured("graph", trace=True),
        measured("cupti"),
        measured("graph"),
    )
    if not all(one["verified"] for one in (before, traced, kernels, after)):
        raise RuntimeError(f"{spec.title}: wrong result: {before['reason'] or traced['reason'] or kernels['reason']}")
    graph = (before["median_ns"] + after["median_ns"]) / 2e3
    pitch, duration = traced["kernel_pitch_ns"] / 1e3, kernels["median_ns"] / 1e3
    return {
        "case": spec.case,
        "precision": spec.precision,
        "variant": case.variant,
        "duration_us": duration,
        "pitch_us": pitch,
        "graph_us": graph,
        "graph_minus_pitch_us": graph - pitch,
        "graph_minus_duration_us": graph - duration,
        "agrees": "yes" if _agree(graph, pitch) else "NO",
        "graph_traced_us": traced["median_ns"] / 1e3,
        "duration_in_graph_us": traced["kernel_span_ns"] / 1e3,
        "graph_drift_us": (after["median_ns"] - before["median_ns"]) / 1e3,
    }


def _agree(one_us: float, other_us: float) -> bool:
    return abs(one_us - other_us) <= max(RELATIVE * other_us, ABSOLUTE_US)


def _report(rows: list[Mapping[str, Value]], left_out: str) -> Report:
    agreeing = sum(row["agrees"] == "yes" for row in rows)
    durations = sum(_agree(_number(row, "graph_us"), _number(row, "duration_us")) for row in rows)
    gate = f"graph within {RELATIVE:.0%} or {ABSOLUTE_US} us of the pitch"
    summary = [
        f"{agreeing} of {len(rows)} cases agree with the pitch",
        f"{durations} of {len(rows)} agree with the duration to the same figure: what is between is the gap from one "
        "kernel to the next",
    ]
    if rows:
        gaps = sorted(_number(row, "graph_minus_duration_us") for row in rows)
        worst = max(rows, key=lambda row: abs(_number(row, "graph_minus_pitch_us")))
        summary.append(f"graph - duration: {gaps[0]:.2f} to {gaps[-1]:.2f} us, median {gaps[len(gaps) // 2]:.2f} us")
        summary.append(
            f"largest difference from the pitch: {_number(worst, 'graph_minus_pitch_us'):+.2f} us "
            f"({_number(worst, 'graph_minus_pitch_us') / _number(worst, 'pitch_us'):+.1%}), {worst['case']} "
            f"{worst['precision']}"
        )
    return Report(NAME, _TITLE, _COLUMNS, rows, gate, agreeing == len(rows) if rows else None, summary, left_out)


def _number(row: Mapping[str, Value], name: str) -> float:
    return float(row[name] or 0.0)
