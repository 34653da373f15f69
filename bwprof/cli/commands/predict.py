"""The commands ``bwprof predict`` and ``bwprof roofs``."""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import _core, hardware, registry
from bwprof.analysis.prediction import predict
from bwprof.analysis.prediction.catalog import split_devices
from bwprof.analysis.prediction.workload import PredictedCase
from bwprof.cli.commands.sweep import read_request
from bwprof.cli.guard import OK
from bwprof.cli.options import CASES, DEVICE, EFFICIENCY, FILES, OPERATIONS, command, read_efficiency, refuse_others
from bwprof.cli.output import check_new, choose_targets, emit, row_texts, writing
from bwprof.cli.render import print_lines
from bwprof.roofs import store
from bwprof.roofs.model import Roofs
from bwprof.runs import plan
from bwprof.text.formatting import format_figure, format_path, format_seconds, format_short
from bwprof.text.parsing import check_known
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_log = logging.getLogger("bwprof.predict")

_NUMBERS = ("time", "between", "GB/s", "% limit")


@command(f"""\
{OPERATIONS}
{CASES}
--device NAME|NUMBERS,…  names of devices (--devices lists them), or 'bandwidth=3200,fp16=400' in GB/s and TFLOP/s;
  optional: memory= in GB, clock= in MHz, units= (multiprocessors), floor= (an empty launch) in us
  (default: {predict.DEFAULT_DEVICE})
--roofs RUN|FILE  the device of these measured roofs, instead of --device
{EFFICIENCY}
{FILES}
--devices  list the devices, and predict nothing
""")
def main_predict(options: argparse.Namespace) -> int:
    """Predict how long operations take on a device that is not present.

    A time is the longer of bytes / bandwidth and FLOPs / rate, divided by an efficiency, plus an empty launch.

    Examples:
      bwprof predict gemm -p M=1,16 --device A100-80GB
      bwprof predict --suite default --device "bandwidth=3200,fp16=400"
      bwprof predict --suite default --device H100-SXM --efficiency RUN   learn the efficiency from a measured run
    """
    if options.devices:
        refuse_others(options, "--devices lists devices", "devices")
        return _print_devices()
    if options.force and options.csv is None and options.json is None:
        raise ValueError("--force replaces the files of --csv and --json: name one, or leave it out")
    targets = choose_targets(options, options.suite, options.roofs, options.efficiency)
    if options.device is not None and options.roofs is not None:
        raise ValueError("--device and --roofs both say which device: leave one out")
    names = predict.DEFAULT_DEVICE if options.device is None else options.device
    devices = split_devices(names) if options.roofs is None else [store.read(Path(options.roofs))]
    cases, model = _cases(options), predict.resolve_efficiency(read_efficiency(options.efficiency))
    frames = [predict.predict_rows(cases, device, model) for device in devices]
    data = frames[0] if len(frames) == 1 else predict.interleave_devices(frames)
    return emit(targets, row_texts(data), lambda screen: _print(data, screen))


def _cases(options: argparse.Namespace) -> list[PredictedCase]:
    """List the cases as a sweep would run them on a GPU; variants and caches make no difference here."""
    backend = next(name for name in registry.backend_names() if not _core.backend_facts(name)["runs_on_host"])
    request = replace(read_request(options), device=None)
    cases: dict[Any, PredictedCase] = {}
    left_out: dict[str, None] = {}
    for spec in plan.make_plan(request, backend).specs:
        if spec.precision not in registry.operation(spec.operation)["precisions"]:
            left_out[f"{spec.operation} has no precision {spec.precision}"] = None
            continue
        key = (spec.case, spec.precision, spec.kv_lens, *sorted(spec.params.items()))
        cases.setdefault(key, PredictedCase(spec.operation, spec.params, spec.precision, spec.case, spec.kv_lens))
    for reason in left_out:
        _log.warning("left out: %s", reason)
    if not cases:
        raise ValueError(f"nothing to predict: {'; '.join(left_out)}")
    return list(cases.values())


_LEAST = ">=: no less than that: what its arithmetic takes is not known, so do not compare it with other precisions"
_COLUMNS = ("device", "reason", "operation", "precision")


def _print(data: pd.DataFrame, screen: Console) -> None:
    learned = bool(data["time_ms_lo"].notna().any())
    words = ["case", "precision", *(["device"] if data["device"].nunique() > 1 else [])]
    numbers = [name for name in _NUMBERS if learned or name != "between"]
    bounds = predict.is_lower_bound(data)
    lines = []
    for row, is_bound in zip(data.to_dict(orient="records"), bounds, strict=True):
        cells = _cells(row, is_bound=is_bound)
        limiter = row["limiter"] if isinstance(row["limiter"], str) and not is_bound else "-"
        lines.append([*(str(row[name]) for name in words), *(cells[name] for name in numbers), limiter])
    print_table(screen, [*words, *numbers, "limiter"], lines, numbers=numbers)
    print_lines(screen, _reasons(data))
    if bounds.any():
        print_lines(screen, [_LEAST])
    if learned:
        screen.print("between: where 90 % of times should lie, by what was learned")


def _cells(row: Mapping[Any, Any], *, is_bound: bool) -> dict[str, str]:
    time, speed = format_seconds(row["time_ms"] / 1e3), format_figure(row["bandwidth_gb_s"], whole_from=1000)
    if is_bound:
        return {"time": f">= {time}", "between": "-", "GB/s": f"<= {speed}", "% limit": "-"}
    between = f"{format_seconds(row['time_ms_lo'] / 1e3)} - {format_seconds(row['time_ms_hi'] / 1e3)}"
    return {"time": time, "between": between, "GB/s": speed, "% limit": format_short(row["pct_limit"], ".0f")}


def _reasons(data: pd.DataFrame) -> list[str]:
    """List what predictions rest on; where they differ, with the operations and precisions of each."""
    cases: dict[tuple[str, str], dict[str, None]] = {}
    for device, reason, operation, precision in zip(*(data[name] for name in _COLUMNS), strict=True):
        cases.setdefault((device, reason), {})[f"{operation} {precision}"] = None
    return [
        f"{', '.join([device, *(names if len(cases) > 1 else ())])}: {reason}"
        for (device, reason), names in cases.items()
    ]


def _print_devices() -> int:
    from bwprof.analysis.prediction.catalog import arithmetic_types, catalog

    screen = make_console(sys.stdout)
    rows = catalog()
    rates = arithmetic_types()
    heads = ["id", "year", "GB/s", *rates, "GB", "L2 MiB", "units"]
    names = ["id", "year", "bandwidth_gb_s", *rates, "memory_gb", "l2_mib", "units"]
    sold = rows["memory_of"].map({"device": "", "data sheet": "*"})
    rows["memory_gb"] = rows["memory_gb"].map("{:.3g}".format) + sold
    lines = (
        [cell if isinstance(cell, str) else "-" if math.isnan(cell) else f"{cell:g}" for cell in row]
        for row in rows[names].itertuples(index=False)
    )
    print_table(screen, heads, lines, numbers=heads[1:])
    screen.print("GB as the device reports it, *: as it is sold; dense TFLOP/s, by the makers' documents:")
    for name, source, unconfirmed, note in rows[["id", "source", "unconfirmed", "note"]].itertuples(index=False):
        parts = [source, f"not confirmed: {unconfirmed}" if unconfirmed else "", note]
        screen.print(f"  {name}: {'; '.join(filter(None, parts))}")
    return OK


@command(f"""\
action=list|export|import? = list  what to do
file=FILE?  the file to write (a .json) or to read
{DEVICE}
--force  export: replace an existing file
""")
def main_roofs(options: argparse.Namespace) -> int:
    """List the stored roofs of this machine's devices, or carry them to another machine in a file.

    Examples:
      bwprof roofs                    list the roofs of this machine's devices
      bwprof roofs export h200.json   write those of the first device; bwprof predict --roofs reads the file
      bwprof roofs import h200.json   store them here, for the same device and driver
    """
    actions = {"list": _list, "export": _export, "import": _import}
    check_known("action", options.action, actions)
    if (options.file is None) != (options.action == "list"):
        needed = "list takes no file" if options.action == "list" else f"bwprof roofs {options.action} FILE"
        raise ValueError(f"{needed}: {options.file or 'a file is needed'}")
    if options.force and options.action != "export":
        raise ValueError(f"--force replaces the file that export writes: {options.action} has none, leave it out")
    return actions[options.action](options)


def identify(backend: str | None = None, device: str | None = None) -> tuple[store.Identity, str]:
    """Return the key of a device's stored roofs, and the device's name."""
    with hardware.borrow_current(backend, device) as (choice, current):
        return store.identity(choice.backend, hardware.facts(current)), choice.name


def load_roofs(backend: str | None = None, device: str | None = None) -> tuple[Roofs, str]:
    """Return the stored roofs of a device, and its name; ValueError where there are none."""
    identity, name = identify(backend, device)
    roofs = store.load(identity)
    if roofs is None:
        raise ValueError(f"no roofs are stored for {name}: bwprof sweep measures them")
    return roofs, name


def _list(options: argparse.Namespace) -> int:
    backend, index = hardware.parse_device(options.device, options.backend)
    if backend is not None or index is not None:
        hardware.choose_device(options.backend, options.device)  # raises an error where there is none
    rows = []
    for known in hardware.devices():
        name = f"{known['backend']}:{known['index']}"
        if backend not in (None, known["backend"]) or index not in (None, known["index"]):
            continue
        roofs = store.load(identify(device=name)[0])
        cells = ("none stored: a sweep measures them", "", "")
        if roofs is not None:
            reads = [point for point in roofs.ceilings() if point.read_fraction == 1]
            cells = (roofs.measured, f"{reads[0].gb_s:.4g}" if reads else "-", roofs.source)
        rows.append((name, known["name"], *cells))
    headings = ["device", "name", "measured", "largest read GB/s", "file"]
    print_table(make_console(sys.stdout), headings, rows, numbers=headings[3:4])
    return OK


def _export(options: argparse.Namespace) -> int:
    target = Path(options.file)
    if target.suffix.lower() != ".json":
        raise ValueError(f"{target}: roofs are exported as .json")
    check_new("export", str(target), force=options.force)
    roofs, name = load_roofs(options.backend, options.device)
    with writing():
        store.export(roofs, target)
    sys.stderr.write(f"bwprof: the roofs of {name} are in {format_path(target)}\n")
    return OK


def _import(options: argparse.Namespace) -> int:
    source = Path(options.file)
    roofs = store.read(source)
    identity, name = identify(options.backend, options.device)
    here = tuple(identity["key"][part] for part in ("name", "uuid", "driver"))
    there = (roofs.device, roofs.device_uuid, roofs.driver)
    if there != here:
        mine, theirs = (f"{device} ({uuid or 'no UUID'}, driver {driver})" for device, uuid, driver in (here, there))
        raise ValueError(
            f"{source} holds the roofs of {theirs}; the device here is {mine}: "
            f"bwprof predict --roofs {source} predicts for that one"
        )
    stored = store.save(identity, roofs)
    if stored is None:
        raise ValueError(f"the roofs of {source} could not be stored")
    sys.stderr.write(f"bwprof: the roofs of {name} are in {format_path(stored)}\n")
    return OK
