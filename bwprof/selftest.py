"""Check bwprof's figures against independent measurements; ``python -m bwprof.selftest`` prints them."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bwprof import _core, hardware, registry
from bwprof.measuring import operation as measuring
from bwprof.measuring.grade import COLD_MIN_READS, list_throttle_reasons
from bwprof.measuring.operation import COLD_MIN_BYTES, Spec
from bwprof.measuring.row import Context
from bwprof.results.pairs import DEFAULT_GATE, is_comparable, times_differ
from bwprof.results.schema import RowDict
from bwprof.runs import plan
from bwprof.runs.channel import Interrupts
from bwprof.runs.executors import ChildExecutor
from bwprof.runs.loop import finish_rows
from bwprof.runs.plan import SweepRequest
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import check_known, parse_bool, parse_names

Cell = float | int | str | None
TableRow = dict[str, Any]  # column -> Cell
TIMERS, CACHE, COUNTERS, REPEAT = "timers", "cache", "counters", "repeat"  # names of the parts


@dataclass(frozen=True, slots=True)
class Bench:
    """An open device and how thoroughly to test it. `say` takes a line of progress, `poll` may raise to stop."""

    device: _core.Device
    backend: str
    index: int
    facts: dict[str, Any]
    timers: tuple[str, ...]
    quick: bool
    say: Callable[[str], object]
    poll: Callable[[], object]

    def specs(self) -> list[Spec]:
        """Return the default suite's cold cases; with `quick` the first and last of each operation."""
        specs = list(plan.make_plan(SweepRequest(suite="default"), self.backend).specs)
        if not self.quick:
            return specs
        last = {spec.operation: number for number, spec in enumerate(specs)}
        first = {spec.operation: number for number, spec in reversed(list(enumerate(specs)))}
        return [specs[number] for number in sorted({*first.values(), *last.values()})]

    def measure_specs(
        self, name: str, measure: Callable[[Spec, _core.Case], TableRow | None]
    ) -> tuple[list[TableRow], str]:
        """Return the rows that `measure` makes, and which cases are left out; raise where the device can make none."""
        rows: list[TableRow] = []
        left_out: list[str] = []
        specs = self.specs()
        for number, spec in enumerate(specs, start=1):
            self.poll()
            self.say(f"{name}: {number} of {len(specs)}: {spec.title}")
            try:
                with spec.open(self.device) as case:
                    if not case.memory_needed("cold")["fits"]:
                        left_out.append(f"{spec.title}: too little memory")
                    elif row := measure(spec, case):
                        rows.append(row)
            except (_core.UnsupportedError, _core.UnavailableError, MemoryError) as error:
                if isinstance(error, _core.UnavailableError) and not rows:
                    raise
                left_out.append(f"{spec.title}: {error}")
        return rows, "; ".join(left_out)


@dataclass(frozen=True, slots=True)
class PartReport:
    """A part's table and verdict; `passed` is None where nothing is judged."""

    name: str
    title: str
    columns: dict[str, str] = field(default_factory=dict)  # name -> heading
    rows: list[TableRow] = field(default_factory=list)
    gate: str = ""
    passed: bool | None = None
    summary: list[str] = field(default_factory=list)
    left_out: str = ""


RELATIVE = 0.03
ABSOLUTE_US = 0.15
TIMERS_SECONDS = 0.1  # of sampling, each time
_TIMERS_TITLE = "Timers: the graph against CUPTI's kernel timestamps, us per launch"

_TIMERS_COLUMNS = {
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


def run_timers(bench: Bench) -> PartReport:
    """Compare the graph timer with the kernels' own timestamps, for every case of the default suite.

    CUPTI records the start and end of each kernel of a graph: the sum of the durations, and the span of all. Tracing
    adds pauses between kernels, so a launch without tracing lies between sum and span. A case whose clock is held down
    is not judged: those pauses let the clock rise. The timer cupti enqueues launches one by one.
    """
    if not {"graph", "cupti"} <= set(bench.timers):
        return PartReport(
            TIMERS, _TIMERS_TITLE, left_out=f"{bench.backend} has one timer: there is nothing to compare it with"
        )
    try:
        return _report_timers(*bench.measure_specs(TIMERS, lambda spec, case: _row_of_timers(spec, case, bench)))
    except _core.UnavailableError as error:
        return PartReport(TIMERS, _TIMERS_TITLE, left_out=str(error))


def _row_of_timers(spec: Spec, case: _core.Case, bench: Bench) -> TableRow:
    def measured(timer: str, *, trace: bool = False) -> dict[str, Any]:
        return case.measure(timer=timer, trace=trace, max_seconds=TIMERS_SECONDS, verify_budget_s=0.0, poll=bench.poll)

    before, traced = measured("graph"), measured("graph", trace=True)
    kernels, after = measured("cupti"), measured("graph")
    if not all(result["verified"] for result in (before, traced, kernels, after)):
        raise RuntimeError(f"{spec.title}: wrong result: {before['reason'] or traced['reason'] or kernels['reason']}")
    graph = (before["median_ns"] + after["median_ns"]) / 2e3
    total, span = traced["kernel_sum_ns"] / 1e3, traced["kernel_span_ns"] / 1e3
    slowed = any(list_throttle_reasons(result["conditions"]) for result in (before, traced, after))
    agrees = total - _tolerance(total) <= graph <= span + _tolerance(span)
    return {
        "case": spec.case,
        "precision": spec.precision,
        "variant": case.variant,
        "graph_us": graph,
        "sum_us": total,
        "span_us": span,
        "difference_us": graph - span,
        "agrees": "held" if slowed else "yes" if agrees else "NO",
        "cupti_us": kernels["median_ns"] / 1e3,
    }


def _tolerance(us: float) -> float:
    return max(RELATIVE * us, ABSOLUTE_US)


def _report_timers(rows: list[TableRow], left_out: str) -> PartReport:
    judged = [row for row in rows if row["agrees"] != "held"]
    agreeing = sum(row["agrees"] == "yes" for row in judged)
    gate = f"graph no more than {RELATIVE:.0%} or {ABSOLUTE_US} us below its kernels' sum or above their span"
    summary = [f"{agreeing} of {len(judged)} cases agree with the timestamps of the graph's own kernels"]
    if len(judged) < len(rows):
        names = ", ".join(f"{row['case']} {row['precision']}" for row in rows if row["agrees"] == "held")
        count = f"{len(rows) - len(judged)} of {len(rows)}"
        summary.append(f"not judged, as the clock was held down and is higher while watched: {count} cases: {names}")
    passed = agreeing == len(judged) if judged else None
    return PartReport(TIMERS, _TIMERS_TITLE, _TIMERS_COLUMNS, rows, gate, passed, summary, left_out)


CACHE_SECONDS = 0.15  # of sampling, each time
_CACHE_TITLE = "Cold cache: the same kernel by five methods, us per launch"

_METHODS: dict[str, dict[str, Any]] = {
    "rotation_us": {"cache": "cold"},
    "hot_us": {"cache": "hot"},
    "memset_flush_us": {"flush": "memset"},
    "read_flush_us": {"flush": "read"},
    "memset_read_flush_us": {"flush": "memset+read"},
}

_CACHE_COLUMNS = {
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

# By whether the device is the host, where a launch takes longer: (MiB to read, MiB to copy each way).
_SIZES = {False: ((1, 16, 32, 64, 256), (64, 1024)), True: ((16, 64), (64,))}
_QUICK = {False: ((16, 64), (64,)), True: ((16,), ())}


def run_cache(bench: Bench) -> PartReport:
    """Compare ways of making the cache cold, on reads and copies of several sizes.

    bwprof rotates over buffer sets in a graph. A flush by memset, as other tools use it, leaves dirty lines, whose
    write-back slows the next kernel. A flush by reading does not, but a kernel's own last writes may stay in the cache.
    Flushes time single launches between events, which adds a bias: only kernel timestamps are judged.
    """
    rows: list[TableRow] = []
    left_out: list[str] = []
    kernels = "cupti" in bench.timers
    for name, param, elements, label in _cases(bench):
        bench.poll()
        bench.say(f"{CACHE}: {label}")
        try:
            with _core.Case(bench.device, name, "fp32", {param: elements}) as case:
                if not case.memory_needed("cold")["fits"]:
                    left_out.append(f"{label}: too little memory")
                    continue
                rows.append(_row_of_cache(case, label, bench, by_kernels=False))
                if kernels:
                    rows.append(_row_of_cache(case, label, bench, by_kernels=True))
        except _core.UnavailableError as error:
            kernels = False
            left_out.append(f"kernel timestamps: {error}")
        except MemoryError as error:
            left_out.append(f"{label}: {error}")
    return _report_cache(bench, rows, "; ".join(left_out))


def _cases(bench: Bench) -> list[tuple[str, str, int, str]]:
    """Return (operation, parameter, elements, label) of the streams that read or copy."""
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


def _row_of_cache(case: _core.Case, label: str, bench: Bench, *, by_kernels: bool) -> TableRow:
    """Measure one case by every method: with each method's timer, or by kernel timestamps."""
    single = "cupti" if by_kernels else "events" if "events" in bench.timers else None  # a launch after a flush
    timed_by = "kernel" if by_kernels else "graph, events" if single else bench.timers[0]
    row: TableRow = {"case": label, "timed_by": timed_by}
    for name, method in _METHODS.items():
        flushed = "flush" in method
        found = case.measure(
            **method,
            timer=single if flushed else None,
            trace=by_kernels and not flushed,
            max_seconds=CACHE_SECONDS,
            verify_budget_s=0.0,
            poll=bench.poll,
        )
        if not found["verified"]:
            raise RuntimeError(f"{label}: wrong result: {found['reason']}")
        row[name] = found["kernel_span_ns" if by_kernels else "median_ns"] / 1e3
    ours, flush = row["rotation_us"], row["read_flush_us"]
    row["memset_excess"] = f"{row['memset_flush_us'] / flush - 1:+.0%}"
    judged = by_kernels and not case.cost["bytes_written"]
    agrees = abs(ours - flush) <= max(RELATIVE * ours, ABSOLUTE_US)
    row["agrees"] = ("yes" if agrees else "NO") if judged else ""
    return row


def _report_cache(bench: Bench, rows: list[TableRow], left_out: str) -> PartReport:
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
    return PartReport(CACHE, _CACHE_TITLE, _CACHE_COLUMNS, rows, gate, passed, summary, left_out)


_COUNTERS_TITLE = "Cold, by hardware counters: DRAM bytes read in a rotation, per launch"

_COUNTERS_COLUMNS = {
    "case": "case",
    "precision": "precision",
    "variant": "variant",
    "buffer_sets": "sets",
    "bytes_read": "compulsory",
    "dram_bytes_read": "counted",
    "ratio": "ratio",
    "cold": "cold",
}


def run_counters(bench: Bench) -> PartReport:
    """Compare the DRAM reads of a cold rotation, counted in hardware, with the compulsory bytes."""
    try:
        rows, left_out = bench.measure_specs(COUNTERS, _count)
    except _core.UnavailableError as error:
        return PartReport(COUNTERS, _COUNTERS_TITLE, left_out=str(error))
    gate = f"ratio at least {COLD_MIN_READS} for footprints over 1 MiB"
    passed = all(row["cold"] == "yes" for row in rows) if rows else None
    ratios = sorted(row["ratio"] for row in rows)
    summary = [f"{len(rows)} cases, ratios {ratios[0]:.3f} to {ratios[-1]:.3f}"] if rows else []
    return PartReport(COUNTERS, _COUNTERS_TITLE, _COUNTERS_COLUMNS, rows, gate, passed, summary, left_out)


def _count(spec: Spec, case: _core.Case) -> TableRow | None:
    compulsory = case.cost["bytes_read"]
    if case.cost["footprint_bytes"] <= COLD_MIN_BYTES or not compulsory:
        return None
    counted = case.count(rotated=True)
    if math.isnan(counted["dram_bytes_read"]):
        raise _core.UnavailableError(counted["counters_status"])
    ratio = counted["dram_bytes_read"] / compulsory
    return {
        "case": spec.case,
        "precision": spec.precision,
        "variant": case.variant,
        "buffer_sets": case.memory_needed("cold")["buffer_sets"],
        "bytes_read": compulsory,
        "dram_bytes_read": round(counted["dram_bytes_read"]),
        "ratio": ratio,
        "cold": "yes" if ratio >= COLD_MIN_READS else "NO",
    }


GATES = (0.0, 0.01, DEFAULT_GATE)
ALLOWED_RATE = 0.05
REPEAT_SECONDS = 0.25  # of sampling, each time
CASES = 8

_Pair = tuple[RowDict, RowDict]
_REPEAT_TITLE = "A/A: how often two measurements of the same thing are said to differ"

_REPEAT_COLUMNS = {
    "where": "measured",
    "gate": "gate",
    "pairs": "pairs",
    "disturbed": "disturbed",
    "false_positives": "said to differ",
    "rate": "rate, %",
    "rate_low": "95 % from",
    "rate_high": "to",
    "median_difference": "median difference, %",
    "worst_difference": "worst, %",
}


def run_repeat(bench: Bench) -> PartReport:
    """Measure pairs in one process, and pairs in processes that each start anew."""
    suite = bench.specs()
    step = max(1, len(suite) / CASES)
    specs = [suite[int(number * step)] for number in range(min(CASES, len(suite)))]
    context = Context("selftest", bench.backend, bench.facts, None)
    inside = _measure_here(bench, specs, context, 4 if bench.quick else 24)
    in_main = threading.current_thread() is threading.main_thread()  # processes start only where signals arrive
    fresh = _measure_fresh(bench, specs, context, 4 if bench.quick else 12) if in_main else []
    left_out = [str(row["reason"]) for row in (*inside, *fresh) if row["status"] != "ok"]
    left_out += [] if in_main else ["fresh processes: they are started from the main thread only"]
    return _report_repeat(specs, {"one process": _pairs(inside), "fresh processes": _pairs(fresh)}, left_out)


def _report_repeat(specs: Sequence[Spec], pairs: Mapping[str, list[_Pair]], left_out: Sequence[str]) -> PartReport:
    rows = [_row_of_repeat(where, gate, found) for where, found in pairs.items() if found for gate in GATES]
    judged = [row for row in rows if row["gate"] == _gate_text(DEFAULT_GATE) and row["rate"] is not None]
    passed = all(row["rate_low"] <= 100 * ALLOWED_RATE for row in judged) if judged else None
    gate = f"at the default gate ({_gate_text(DEFAULT_GATE)}) no rate that is certainly above {ALLOWED_RATE:.0%}"
    summary = [
        f"cases: {', '.join(spec.title for spec in specs)}",
        "pairs with a row flagged noisy or throttled are disturbed: the rule leaves them out",
    ]
    without = "; ".join(dict.fromkeys(left_out))
    return PartReport(REPEAT, _REPEAT_TITLE, _REPEAT_COLUMNS, rows, gate, passed, summary, without)


def _measure_here(bench: Bench, specs: Sequence[Spec], context: Context, rounds: int) -> list[RowDict]:
    outcomes = []
    for number in range(rounds):
        bench.say(f"{REPEAT}: in one process: {number + 1} of {rounds}")
        for spec in specs:
            bench.poll()
            outcome = measuring.measure(bench.device, spec, context, max_seconds=REPEAT_SECONDS, poll=bench.poll)
            if outcome.fatal:
                raise _core.DeviceError(outcome.row["reason"])
            outcomes.append(outcome)
    return finish_rows(outcomes)


def _measure_fresh(bench: Bench, specs: Sequence[Spec], context: Context, rounds: int) -> list[RowDict]:
    rows = []
    with Interrupts() as interrupts:
        for number in range(rounds):
            bench.say(f"{REPEAT}: in fresh processes: {number + 1} of {rounds}")
            executor = ChildExecutor(bench.backend, bench.index, interrupts)
            executor.set_context(context)
            try:
                rows += finish_rows(executor.measure(spec, REPEAT_SECONDS, None) for spec in specs)
            finally:
                executor.close()
    return rows


def _pairs(rows: Sequence[RowDict]) -> list[_Pair]:
    """Pair the first with the second measurement of a case, the third with the fourth, and so on."""
    by_case: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        if row["status"] == "ok":
            by_case.setdefault((row["case"], row["precision"], row["variant"]), []).append(row)
    return [pair for found in by_case.values() for pair in zip(found[::2], found[1::2], strict=False)]


def _gate_text(gate: float) -> str:
    return "intervals apart" + (f", {100 * gate:g} %" if gate else "")


def _row_of_repeat(where: str, gate: float, pairs: Sequence[_Pair]) -> TableRow:
    quiet = [pair for pair in pairs if all(map(is_comparable, pair))]
    positives = sum(times_differ(one, other, gate=gate) for one, other in quiet)
    shares = {}
    if quiet:
        low, high = wilson(positives, len(quiet))
        times = [sorted((one["time_ms"], other["time_ms"])) for one, other in quiet]
        differences = sorted(longer / shorter - 1 for shorter, longer in times)
        shares = {"rate": positives / len(quiet), "rate_low": low, "rate_high": high}
        shares |= {"median_difference": differences[len(differences) // 2], "worst_difference": differences[-1]}
    return dict.fromkeys(_REPEAT_COLUMNS) | {
        "where": where,
        "gate": _gate_text(gate),
        "pairs": len(pairs),
        "disturbed": len(pairs) - len(quiet),
        "false_positives": positives,
        **{name: 100 * share for name, share in shares.items()},
    }


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion.

    Examples
    --------
    >>> [round(end, 4) for end in wilson(1, 100)]
    [0.0018, 0.0545]
    """
    z = 1.959963984540054
    share = successes / trials
    scale = 1 + z * z / trials
    center = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, center - half), min(1.0, center + half)


PARTS: dict[str, Callable[[Bench], PartReport]] = {
    TIMERS: run_timers,
    CACHE: run_cache,
    COUNTERS: run_counters,
    REPEAT: run_repeat,
}


def selftest(
    parts: str | Iterable[str] | None = None,
    *,
    quick: bool = False,
    backend: str | None = None,
    device: hardware.Device = None,
    progress: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Compare bwprof's figures with independent measurements.

    Parameters
    ----------
    parts : str or iterable of str, optional
        "timers" (graph against kernel timestamps), "cache" (ways of making the cache cold), "counters" (DRAM reads of a
        cold rotation), "repeat" (how often two measurements of the same case differ). Default: all.
    quick : bool
        Fewer cases and repetitions.
    device : int, str or torch.device, optional
        "cpu", "cuda:1", 1, ... Default: the first device of the preferred backend.
    backend : str, optional
        A device's name without a number.
    progress : callable, optional
        Gets lines of text.

    Returns
    -------
    dict
        passed (bool: no gate failed), bwprof, backend, device, facts, and parts: a list of dicts with name, title,
        columns, rows (dicts column -> value), gate (the rule in words; "": not judged), passed (bool or None), summary
        (lines) and left_out (what did not run and why).

    Raises
    ------
    ValueError
        For an unknown part, backend or device.
    bwprof.errors.UnavailableError
        When the backend has no device.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.selftest("timers", backend="cpu", quick=True)["parts"][0]["left_out"]
    'cpu has one timer: there is nothing to compare it with'
    """
    names, quick = parse_names("parts", parts), parse_bool(quick, "quick")
    return run(names, quick=quick, backend=backend, device=device, progress=progress)


def run(
    parts: Sequence[str],
    *,
    quick: bool,
    backend: str | None,
    device: hardware.Device,
    progress: Callable[[str], object] | None = None,
    poll: Callable[[], object] | None = None,
    show: Callable[[PartReport], object] | None = None,
) -> dict[str, Any]:
    """Return what `bwprof.selftest` returns; `show` gets each part's report when it is ready."""
    for name in parts:
        check_known("part of the self-test", name, PARTS)
    choice = hardware.choose_device(backend, device)
    reports: list[PartReport] = []
    with hardware.borrow_device(choice.backend, choice.index) as opened:
        facts = hardware.facts(opened)
        bench = Bench(
            device=opened,
            backend=choice.backend,
            index=choice.index,
            facts=facts,
            timers=tuple(registry.timer_names(choice.backend)),
            quick=quick,
            say=progress or (lambda _: None),
            poll=poll or (lambda: None),
        )
        for name, part in PARTS.items():
            if parts and name not in parts:
                continue
            reports.append(part(bench))
            if show is not None:
                show(reports[-1])
    return {
        "passed": all(report.passed is not False for report in reports),
        "bwprof": _core.__version__,
        "backend": choice.backend,
        "device": choice.name,
        "quick": quick,
        "facts": facts,
        "parts": [asdict(report) for report in reports],
    }


if __name__ == "__main__":
    from bwprof.cli import main

    sys.exit(main(["selftest", *sys.argv[1:]]))
