"""The command ``bwprof sweep``."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from bwprof import _core, hardware, kernels, registry
from bwprof.cli import options
from bwprof.cli.guard import OK
from bwprof.cli.options import run_measuring
from bwprof.hardware import Choice
from bwprof.measuring.operation import Spec
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import plan as runs_plan
from bwprof.runs import suites
from bwprof.runs.channel import Interrupts
from bwprof.runs.loop import estimate_case, estimate_cases, estimate_launch, estimate_run
from bwprof.runs.plan import Plan
from bwprof.runs.progress import format_time_range
from bwprof.text.formatting import format_bytes, format_seconds, plural
from bwprof.text.parsing import escape_controls, join_words
from bwprof.text.terminal import make_console, print_table

_NUMBERS = ("read", "written", "FLOPs", "memory", "launch", "in all")
_HEADING = ["case", "precision", "variant", *_NUMBERS, "note"]
_LINES = 500  # that are laid out together; more of them would keep people waiting


def print_operations(stream: TextIO, *, verbose: bool = False) -> None:
    """Print every operation with its parameters, precisions and variants (`verbose`: kernels), then the suites."""
    known = kernels.variants() if verbose else ()
    for operation in registry.operations():
        stream.write(f"{operation['name']}: {operation['text']}\n")
        stream.write(f"  precisions: {', '.join(operation['precisions'])}\n")
        for param in operation["params"]:
            default = param["default_from"] or param["default"]
            unit = f" {param['unit']}" if param["unit"] else ""
            stream.write(f"  -p {param['name']}={default}{unit}: {param['text']}\n")
        for backend, variants in operation["variants"].items():
            for variant in variants:
                kinds = ", ".join(variant["precisions"])
                stream.write(f"  {backend} variant {variant['name']} ({kinds}): {variant['text']}\n")
                if verbose:
                    stream.write(f"    {kernels.format_variant(variant)}\n")
                key = (operation["name"], backend, variant["name"])
                rows = [row for row in known if (row["operation"], row["backend"], row["variant"]) == key]
                stream.writelines(f"    {kernels.format_kernel(row)}\n" for row in rows)
        stream.write("\n")
    for name in suites.list_suites():
        stream.write(f"suite {name}: {suites.load(name).text}\n")


def print_plan(stream: TextIO, plan: Plan, choice: Choice, *, roofs: bool = True, recalibrate: bool = False) -> None:
    """Print the cases with their work and memory, and an estimate of the time, roofs and second tries included."""
    widths: list[int] = []
    with _core.Device(choice.backend, choice.index) as device:
        facts = hardware.facts(device)
        for start in range(0, len(plan.specs), _LINES):
            specs = plan.specs[start : start + _LINES]
            lines = [_estimated(device, facts, spec, plan, choice.backend) for spec in specs]
            if len(plan.specs) <= _LINES:
                print_table(make_console(stream), _HEADING, lines, numbers=_NUMBERS)
            else:
                widths = _print_lines(stream, lines, widths)
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


def _print_lines(stream: TextIO, lines: list[list[str]], widths: list[int]) -> list[int]:
    """Print a part of a long plan, so that its first lines do not wait for its last; returns the columns' widths."""
    safe = [[escape_controls(cell) for cell in cells] for cells in lines]
    if not widths:
        widths = [max(map(len, column)) for column in zip(_HEADING, *safe, strict=True)]
        safe.insert(0, _HEADING)
    for cells in safe:
        placed = [
            cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
            for name, cell, width in zip(_HEADING, cells, widths, strict=True)
        ]
        stream.write(" |".join(placed).rstrip() + "\n")
    return widths


def _estimated(device: _core.Device, facts: dict[str, Any], spec: Spec, plan: Plan, backend: str) -> list[str]:
    """Make a case's line; of one that no kernel runs, what it moves, and how long that takes at the device's best."""
    name = [spec.case if spec.cache == "cold" else f"{spec.case} ({spec.cache})", spec.precision]
    try:
        with spec.open(device) as case:
            cost, variant, need = case.cost, case.variant, case.memory_needed(spec.cache)
    except (ValueError, MemoryError) as error:
        if not registry.is_predicted(spec.operation, spec.precision, backend):
            return [*name, spec.variant or "-", *["-"] * 6, f"skipped: {error}"]
        cost = _core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens, None, None)
        time = format_seconds(estimate_launch(cost, spec.precision, facts, backend))
        return [*name, "-", *_work(cost), "-", time, "-", "predicted: no kernel takes this precision"]
    launch = estimate_launch(cost, spec.precision, facts, backend)
    seconds = estimate_case(launch, need["needed"], facts, backend)
    if plan.target_seconds is not None:
        seconds = min(seconds, plan.target_seconds / len(plan.specs))
    times = [format_seconds(launch), format_seconds(seconds), ""]
    if not need["fits"]:
        times = ["-", "-", f"skipped: only {format_bytes(need['free'])} free"]
    return [*name, variant, *_work(cost), format_bytes(need["needed"]), *times]


def _work(cost: Mapping[str, int]) -> list[str]:
    return [format_bytes(cost["bytes_read"]), format_bytes(cost["bytes_written"]), f"{cost['flops']:.3g}"]


_log = logging.getLogger("bwprof.sweep")


def main_sweep(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    started = time.monotonic()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    parser = options.parser("bwprof sweep")
    return run_measuring(parser, argv, lambda parsed, interrupts: _command(parsed, argv, interrupts, started))


def _command(parsed: argparse.Namespace, argv: Sequence[str], interrupts: Interrupts, started: float) -> int:
    from bwprof.cli import runner

    call = runner.read_invocation(parsed, argv, interrupts, started)
    if parsed.list:
        _warn_of_unused(parsed, "--list")
        with interrupts.at_once():
            print_operations(sys.stdout, verbose=parsed.verbose)
        return OK
    if parsed.resume is not None:
        modes = [name for name, typed in (("--dry-run", parsed.dry_run), ("--once", parsed.once)) if typed]
        clash = [*options.case_options(parsed), *modes]
        return runner.resume(call, clash, runner.continue_cases)
    with interrupts.at_once():  # a suite may be a pipe, and a large one takes its time
        request = options.read_request(parsed)
        choices = hardware.choose_devices(request.backend, request.device)
        plans = runs_plan.make_plans(request, choices, runs=not parsed.dry_run)
    if parsed.dry_run:
        _warn_of_unused(parsed, "--dry-run")
        with interrupts.at_once():
            for choice, plan in plans:
                roofs = call.roofs in (None, "auto")
                print_plan(sys.stdout, plan, choice, roofs=roofs, recalibrate=parsed.recalibrate)
        return OK
    warn_of_choices(plans)
    if parsed.once:
        _warn_of_unused(parsed, "--once")
        return max(runner.launch_once(plan, choice, interrupts, nvtx=parsed.nvtx) for choice, plan in plans)
    choice, first = plans[0]
    return runner.run(call, runner.Job(first, first.specs, made=plans), choice)


def warn_of_choices(plans: Sequence[tuple[Choice, Plan]]) -> None:
    """Log the warnings of chosen devices, each once."""
    for warning in dict.fromkeys(choice.warning for choice, _ in plans if choice.warning):
        _log.warning("%s", warning)


def _warn_of_unused(parsed: argparse.Namespace, mode: str) -> None:
    unused = options.unused_options(parsed, mode)
    if unused:
        _log.warning("%s measures nothing and writes nothing: %s left aside", mode, ", ".join(unused))
