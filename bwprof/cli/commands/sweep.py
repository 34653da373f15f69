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
from bwprof.runs.estimate import estimate_case, estimate_cases, estimate_launch, estimate_run
from bwprof.runs.interrupts import Interrupts
from bwprof.runs.plan import Plan
from bwprof.runs.progress import format_time_range
from bwprof.text.formatting import format_bytes, format_seconds, plural
from bwprof.text.parsing import escape_controls, join_words
from bwprof.text.terminal import make_console, print_table

_NUMBERS = ("read", "written", "FLOPs", "memory", "launch", "in all")

_HEADING = ["case", "precision", "variant", *_NUMBERS, "note"]

_LINES = 500  # that are laid out together; more of them would keep people waiting


def print_operations(stream: TextIO, *, verbose: bool = False) -> None:
    """Every operation with its parameters, precisions and variants; then the suites. verbose: kernels, too."""
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
                where = (operation["name"], backend, variant["name"])
                for row in known:
                    if (row["operation"], row["backend"], row["variant"]) == where:
                        stream.write(f"    {kernels.format_kernel(row)}\n")
        stream.write("\n")
    for name in suites.list_suites():
        stream.write(f"suite {name}: {suites.load(name).text}\n")


def print_plan(stream: TextIO, plan: Plan, choice: Choice, *, roofs: bool = True, recalibrate: bool = False) -> None:
    """The cases with their work, the memory they need, and an estimate of the time, roofs and second tries included."""
    widths: list[int] = []
    with _core.Device(choice.backend, choice.index) as device:
        facts = hardware.device_facts(device)
        for start in range(0, len(plan.specs), _LINES):
            specs = plan.specs[start : start + _LINES]
            lines = [_estimated(device, facts, spec, plan, choice.backend) for spec in specs]
            if len(plan.specs) <= _LINES:
                print_table(make_console(stream), _HEADING, lines, numbers=_NUMBERS)
            else:
                widths = _print_lines(stream, lines, widths)
    cases = estimate_cases(plan.specs, facts, choice.backend, plan.target_seconds, plan.max_seconds)
    caches = [spec.cache for spec in plan.specs]
    wanted = RoofRequest("cold" in caches, "hot" in caches, recalibrate) if roofs and cases[1] else None
    least, most = estimate_run(cases, facts, choice.backend, wanted)
    also = ["roofs"] * (wanted is not None) + ["second tries"] * _core.backend_facts(choice.backend)["runs_on_host"]
    stream.write(
        f"{plural(len(plan.specs), 'case')} on {choice.backend}:{choice.index} {choice.name}, "
        f"about {format_seconds((least + most) / 2)} ({format_time_range(least, most)}){', with ' * bool(also)}{join_words(also)} "
        "(memory: all buffer sets; launch, in all: estimated time of one launch, of the case)\n"
    )


def _print_lines(stream: TextIO, lines: list[list[str]], widths: list[int]) -> list[int]:
    """A part of a long plan, whose first lines must not wait for its last; returns the columns' widths."""
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


def _work(cost: Mapping[str, int]) -> list[str]:
    return [format_bytes(cost["bytes_read"]), format_bytes(cost["bytes_written"]), f"{cost['flops']:.3g}"]


def _predicted(name: list[str], facts: dict[str, Any], spec: Spec, backend: str) -> list[str]:
    """The line of a case that no kernel runs: what it must move, and how long that takes at the device's best."""
    cost = _core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens, None, None)
    launch = format_seconds(estimate_launch(cost, spec.precision, facts, backend))
    return [*name, "-", *_work(cost), "-", launch, "-", "predicted: no kernel takes this precision"]


def _estimated(device: _core.Device, facts: dict[str, Any], spec: Spec, plan: Plan, backend: str) -> list[str]:
    """A case's line."""
    name = [spec.case if spec.cache == "cold" else f"{spec.case} ({spec.cache})", spec.precision]
    try:
        case = spec.open(device)
        with case:
            cost, variant, need = case.cost, case.variant, case.memory_needed(spec.cache)
    except (ValueError, MemoryError) as error:
        if registry.is_predicted(spec.operation, spec.precision, backend):
            return _predicted(name, facts, spec, backend)
        return [*name, spec.variant or "-", *["-"] * 6, f"skipped: {error}"]
    launch = estimate_launch(cost, spec.precision, facts, backend)
    seconds = estimate_case(launch, need["needed"], facts, backend)
    if plan.target_seconds is not None:
        seconds = min(seconds, plan.target_seconds / len(plan.specs))
    work = _work(cost)
    times = [format_seconds(launch), format_seconds(seconds)]
    if not need["fits"]:
        note = f"skipped: only {format_bytes(need['free'])} free"
        return [*name, variant, *work, format_bytes(need["needed"]), "-", "-", note]
    return [*name, variant, *work, format_bytes(need["needed"]), *times, ""]


_log = logging.getLogger("bwprof.sweep")


def main_sweep(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    started = time.monotonic()
    given = list(sys.argv[1:] if arguments is None else arguments)
    return run_measuring(
        options.parser("bwprof sweep"), given, lambda parsed, interrupts: _command(parsed, given, interrupts, started)
    )


def _command(parsed: argparse.Namespace, given: Sequence[str], interrupts: Interrupts, started: float) -> int:
    from bwprof.cli import runner as command

    options.read_seconds(parsed)
    options.read_columns(parsed)
    max_total_seconds = options.read_seconds(parsed.max_total_seconds, "--max-total-seconds")
    max_case_seconds = options.read_seconds(parsed.max_case_seconds, "--max-case-seconds")
    wanted = command.RunInputs(started, max_total_seconds, max_case_seconds, options.read_roofs(parsed), parsed.nvtx)
    if parsed.list:
        _say_unused(parsed, "--list")
        with interrupts.at_once():
            print_operations(sys.stdout, verbose=parsed.verbose)
        return OK
    if parsed.resume is not None:
        clash = options.case_options(parsed)
        clash += [name for name, asked in (("--dry-run", parsed.dry_run), ("--once", parsed.once)) if asked]
        return command.resume(parsed, given, interrupts, wanted, clash, command.continue_cases)
    with interrupts.at_once():  # a suite may be a pipe, and a large one takes its time
        request = options.read_request(parsed)
        made = runs_plan.make_plans(
            request, hardware.choose_devices(request.backend, request.device), runs=not parsed.dry_run
        )
    if parsed.dry_run:
        _say_unused(parsed, "--dry-run")
        with interrupts.at_once():
            for choice, own in made:
                roofs = wanted.roofs in (None, "auto")
                print_plan(sys.stdout, own, choice, roofs=roofs, recalibrate=parsed.recalibrate)
        return OK
    for warning in dict.fromkeys(choice.warning for choice, _ in made if choice.warning):
        _log.warning("%s", warning)
    if parsed.once:
        _say_unused(parsed, "--once")
        return max(command.launch_once(own, choice, interrupts, nvtx=parsed.nvtx) for choice, own in made)
    choice, first = made[0]
    return command.run(parsed, given, interrupts, command.Job(first, first.specs, made=made), choice, wanted)


def _say_unused(parsed: argparse.Namespace, instead: str) -> None:
    unused = options.unused_options(parsed, instead)
    if unused:
        _log.warning("%s measures nothing and writes nothing: %s left aside", instead, ", ".join(unused))
