"""The graph's time against the kernels' own timestamps.

CUPTI says when each kernel of a graph began and ended. Of a launch of several kernels that gives two figures: the sum
of their durations, and the span from the first start to the last end; what a library clears before its kernel counts
as one of them. While it looks, the GPU rests longer between two kernels than it otherwise would, so that an unobserved
launch lies between the sum and the span; of a launch of one kernel both are the same. Beside them the timer cupti,
whose launches are enqueued one by one.

A case that the power limit (or heat) holds back is not judged: while CUPTI looks the device rests longer, and then runs
at a higher clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bwprof import _core
from bwprof.measuring.grade import list_throttle_reasons
from bwprof.measuring.operation import Spec
from bwprof.selftest.bench import Bench, Cell, PartReport, fits, read_figure

NAME = "timers"

RELATIVE = 0.03

ABSOLUTE_US = 0.15

SECONDS = 0.1  # of sampling, each time

_TITLE = "Timers: the graph against CUPTI's kernel timestamps, us per launch"

_COLUMNS = {
    "case": "case",
    "precision": "precision",
    "variant": "variant",
    "graph_us": "graph",
    "sum_us": "kernels' sum",
    "span_us": "span",
    "difference_us": "graph - span",
    "agrees": "agrees",
    "cupti_us": "timer cupti",
}


def run(bench: Bench) -> PartReport:
    """Every case of the default suite, by each timer in turn."""
    if not {"graph", "cupti"} <= set(bench.timers):
        return PartReport(NAME, _TITLE, left_out=f"{bench.backend} has one timer: there is nothing to compare it with")
    rows: list[Mapping[str, Cell]] = []
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
            if not rows:
                return PartReport(NAME, _TITLE, left_out=str(error))
            left_out.append(f"{spec.title}: {error}")
        except (_core.UnsupportedError, MemoryError) as error:
            left_out.append(f"{spec.title}: {error}")
    return _report(rows, "; ".join(left_out))


def _row(spec: Spec, case: _core.Case, bench: Bench) -> Mapping[str, Cell]:
    def measured(timer: str, *, trace: bool = False) -> dict[str, Any]:
        return case.measure(timer=timer, trace=trace, max_seconds=SECONDS, verify_budget_s=0.0, poll=bench.poll)

    before, traced = measured("graph"), measured("graph", trace=True)
    kernels, after = measured("cupti"), measured("graph")
    if not all(one["verified"] for one in (before, traced, kernels, after)):
        raise RuntimeError(f"{spec.title}: wrong result: {before['reason'] or traced['reason'] or kernels['reason']}")
    graph = (before["median_ns"] + after["median_ns"]) / 2e3
    total, span = traced["kernel_sum_ns"] / 1e3, traced["kernel_span_ns"] / 1e3
    held = any(list_throttle_reasons(one["conditions"]) for one in (before, traced, after))
    return {
        "case": spec.case,
        "precision": spec.precision,
        "variant": case.variant,
        "graph_us": graph,
        "sum_us": total,
        "span_us": span,
        "difference_us": graph - span,
        "agrees": "held" if held else "yes" if total - _tolerance(total) <= graph <= span + _tolerance(span) else "NO",
        "cupti_us": kernels["median_ns"] / 1e3,
        "graph_drift_us": (after["median_ns"] - before["median_ns"]) / 1e3,
    }


def _tolerance(us: float) -> float:
    return max(RELATIVE * us, ABSOLUTE_US)


def _near(rows: list[Mapping[str, Cell]], name: str) -> int:
    """Cases whose graph is within the tolerance of another figure alone."""
    return sum(
        abs(read_figure(row, "graph_us") - read_figure(row, name)) <= _tolerance(read_figure(row, name)) for row in rows
    )


def _report(rows: list[Mapping[str, Cell]], left_out: str) -> PartReport:
    judged = [row for row in rows if row["agrees"] != "held"]
    agreeing = sum(row["agrees"] == "yes" for row in judged)
    same = f"{RELATIVE:.0%} or {ABSOLUTE_US} us"
    gate = f"graph no more than {same} below its kernels' sum or above their span"
    summary = [
        f"{agreeing} of {len(judged)} cases agree with the timestamps of the graph's own kernels",
        f"within {same} of the span alone: {_near(judged, 'span_us')}; of the timer cupti: {_near(judged, 'cupti_us')}",
    ]
    if len(judged) < len(rows):
        held = ", ".join(f"{row['case']} {row['precision']}" for row in rows if row["agrees"] == "held")
        count = f"{len(rows) - len(judged)} of {len(rows)}"
        summary.append(f"not judged, as the clock was held down and is higher while watched: {count} cases: {held}")
    if judged:
        worst = max(
            judged, key=lambda row: abs(read_figure(row, "difference_us")) / _tolerance(read_figure(row, "span_us"))
        )
        difference = read_figure(worst, "difference_us")
        summary.append(
            f"furthest from the span: {difference:+.2f} us ({difference / read_figure(worst, 'span_us'):+.1%}), "
            f"{worst['case']} {worst['precision']}"
        )
    return PartReport(
        NAME, _TITLE, _COLUMNS, rows, gate, agreeing == len(judged) if judged else None, summary, left_out
    )
