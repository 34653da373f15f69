"""The command ``bwprof sweep``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TextIO

from bwprof import _core, hardware, kernels, registry
from bwprof.cli import options as shared
from bwprof.cli.guard import OK
from bwprof.cli.options import measuring_command, read_params, split, typed
from bwprof.hardware import Choice
from bwprof.measuring.operation import Spec
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import executors, suites
from bwprof.runs import plan as runs_plan
from bwprof.runs.loop import estimate_case, estimate_cases, estimate_launch, estimate_run
from bwprof.runs.plan import Plan, SweepRequest
from bwprof.runs.progress import format_time_range
from bwprof.text.formatting import format_bytes, format_seconds, plural
from bwprof.text.parsing import join_words, parse_count
from bwprof.text.terminal import make_console, print_table

_NUMBERS = ("read", "written", "FLOPs", "memory", "launch", "in all")
_HEADING = ["case", "precision", "variant", *_NUMBERS, "note"]
_LINES = 500  # of a table


def print_plan(stream: TextIO, plan: Plan, choice: Choice, *, roofs: bool = True, recalibrate: bool = False) -> None:
    """Print the cases with their work and memory, and an estimate of the time, roofs and second tries included."""
    with _core.Device(choice.backend, choice.index) as device:
        facts = hardware.facts(device)
        for start in range(0, len(plan.specs), _LINES):  # the first lines do not wait for the last
            specs = plan.specs[start : start + _LINES]
            lines = [_estimated(device, facts, spec, plan, choice.backend) for spec in specs]
            print_table(make_console(stream), _HEADING, lines, numbers=_NUMBERS)
    cases = estimate_cases(plan.specs, facts, choice.backend, plan.target_seconds, plan.max_seconds)
    caches = [spec.cache for spec in plan.specs]
    request = RoofRequest("cold" in caches, "hot" in caches, recalibrate) if roofs and cases[1] else None
    least, most = estimate_run(cases, facts, choice.backend, request)
    also = ["roofs"] * (request is not None) + ["second tries"] * _core.backend_facts(choice.backend)["runs_on_host"]
    stream.write(
        f"{plural(len(plan.specs), 'case')} on {choice.backend}:{choice.index} {choice.name}, "
        f"about {format_seconds((least + most) / 2)} "
        f"({format_time_range(least, most)}){', with ' * bool(also)}{join_words(also)} "
        "(memory: all buffer sets; launch, in all: estimated time of one launch, of the case)\n"
    )


def _estimated(device: _core.Device, facts: dict[str, Any], spec: Spec, plan: Plan, backend: str) -> list[str]:
    """Make a case's line."""
    name = [spec.case if spec.cache == "cold" else f"{spec.case} ({spec.cache})", spec.precision]
    try:
        with spec.open(device) as case:
            cost, variant, need = case.cost, case.variant, case.memory_needed(spec.cache)
    except (ValueError, MemoryError) as error:
        return [*name, spec.variant or "-", *["-"] * 6, f"skipped: {error}"]
    launch = estimate_launch(cost, spec.precision, facts, backend)
    seconds = estimate_case(launch, need["needed"], facts, backend)
    if plan.target_seconds is not None:
        seconds = min(seconds, plan.target_seconds / len(plan.specs))
    times = [format_seconds(launch), format_seconds(seconds), ""]
    if not need["fits"]:
        times = ["-", "-", f"skipped: only {format_bytes(need['free'])} free"]
    sizes = map(format_bytes, (cost["bytes_read"], cost["bytes_written"]))
    return [*name, variant, *sizes, f"{cost['flops']:.3g}", format_bytes(need["needed"]), *times]


_log = logging.getLogger("bwprof.sweep")


@measuring_command(f"""\
{shared.OPERATIONS}
{shared.VERBOSE}
{shared.CASES_AND_DEVICES}
{shared.OUTPUT}
--columns A,B,…  print each row with these columns, instead of the summary

how:
{shared.DRY_RUN}
--list  print operations, parameters, variants and suites; with --verbose also kernels
{shared.LIMITS}
{shared.SAMPLING}
{shared.ROOFS}
--once [TIMES] = 1  launch each case once, or TIMES times, untimed, in this process, for ncu and nsys
--[no-]nvtx  mark cases with NVTX ranges in the domain bwprof (default: under nsys or ncu --nvtx)
""")
def main_sweep(options: argparse.Namespace) -> int:
    """Measure how fast LLM operations move bytes, and what a narrower precision gains.

    Without OPERATION: the default suite, on the first GPU, else on the CPU.

    Examples:
      bwprof sweep                             the default suite
      bwprof sweep gemm -p M=1,16,128          one operation in three sizes
      bwprof sweep --suite my.toml --dry-run   what would run: bytes, FLOPs, memory, time

    k, M, G are powers of 1000, Ki, Mi, Gi of 1024. Times are in ms, bandwidths in GB/s (10^9 bytes).
    exit codes: 0 ok or skipped, 2 usage, 3 incomplete (a case failed, or rows were not written), 130 interrupted.
    """
    from bwprof.cli import runner
    from bwprof.cli.commands.describe import show_operations, show_variants

    if options.once and options.once[0] not in "0123456789-+.":  # what follows is an OPERATION
        options.operations, options.once = [options.once, *options.operations], "1"
    runner.read_options(options)
    if options.list:
        _warn_of_unused(options, "--list")
        with options.interrupts.at_once():
            show_operations(registry.operations(), make_console(sys.stdout))
            sys.stdout.writelines(f"suite {name}: {suites.load(name).text}\n" for name in suites.list_suites())
            if options.verbose:
                show_variants(kernels.variants(), make_console(sys.stdout))
        return OK
    if options.resume is not None:
        return runner.resume(options, case_options(options, "dry_run", "once"), runner.continue_cases)
    if hardware.may_have_gpu() and not (options.dry_run or options.once or options.device or options.backend):
        options.early = executors.open_early(options.nvtx)
    plans = plan_cases(options, runs=not options.dry_run)
    if options.dry_run:
        _warn_of_unused(options, "--dry-run")
        with options.interrupts.at_once():
            for choice, plan in plans:
                roofs = options.roofs_argument in (None, "auto")
                print_plan(sys.stdout, plan, choice, roofs=roofs, recalibrate=options.recalibrate)
        return OK
    warn_of_choices(plans)
    if options.once:
        _warn_of_unused(options, "--once")
        if (times := parse_count(options.once, "--once")) < 1:
            raise ValueError(f"--once is '{options.once}': a whole number from 1 is needed")
        return max(runner.launch(plan, choice, options.interrupts, times, nvtx=options.nvtx) for choice, plan in plans)
    choice, first = plans[0]
    return runner.run(options, runner.Job(first, first.specs, made=plans), choice)


def read_request(options: argparse.Namespace) -> SweepRequest:
    """Read which cases to measure; ValueError for values that cannot be read."""
    same: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(options).items()
        if value is not None
    }
    same["operations"] = tuple(word for text in options.operations for word in split(text, "OPERATION"))
    same["params"] = read_params(options.param)
    same |= {f"{name}s": same.get(name, ()) for name in ("precision", "variant", "cache")}
    return SweepRequest(**{field.name: same[field.name] for field in fields(SweepRequest) if field.name in same})


def plan_cases(options: argparse.Namespace, *, runs: bool = True) -> list[tuple[Choice, Plan]]:
    """Plan the cases of each chosen device."""
    with options.interrupts.at_once():  # a suite may be a pipe, and a large one takes its time
        request = read_request(options)
        return runs_plan.make_plans(request, hardware.choose_devices(request.backend, request.device), runs=runs)


# Options that choose cases, those of them that say how precisely to measure, and those that each mode uses.
_PRECISION = {"target_seconds", "max_seconds", "rel_ci"}
_CASES = _PRECISION | {
    "operations",
    "param",
    "seq_lengths",
    "kv_lens",
    "precision",
    "suite",
    "only",
    "variant",
    "cache",
}
_CASES |= {"seed", "backend", "device", "timer", "counters", "metrics"}
_USED = {
    "--once": _CASES - _PRECISION - {"timer", "counters", "metrics"} | {"once", "dry_run", "resume", "nvtx"},
    "--dry-run": _CASES - {"rel_ci"} | {"dry_run", "resume", "recalibrate", "roofs", "no_roofs"},
    "--list": set(),
}


def case_options(options: argparse.Namespace, *more: str) -> list[str]:
    """List the typed options that choose cases, or are of the `more` destinations."""
    return list(typed(options, _CASES | set(more)).values())


def _warn_of_unused(options: argparse.Namespace, mode: str) -> None:
    """Log the typed options that a mode, which measures and writes nothing, cannot use."""
    used = _USED[mode] | {"list", "quiet", "verbose"}
    if unused := [name for dest, name in typed(options).items() if dest not in used]:
        _log.warning("%s measures nothing and writes nothing: %s left aside", mode, ", ".join(unused))


def warn_of_choices(plans: Sequence[tuple[Choice, Plan]]) -> None:
    """Log the warnings of chosen devices, each once."""
    for warning in dict.fromkeys(choice.warning for choice, _ in plans if choice.warning):
        _log.warning("%s", warning)
