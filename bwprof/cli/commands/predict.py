"""The commands ``bwprof predict`` and ``bwprof roofs``."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import _core, hardware, registry
from bwprof.analysis.prediction.catalogue import split_devices
from bwprof.analysis.prediction.predict import (
    DEFAULT_DEVICE,
    interleave_devices,
    is_lower_bound,
    predict_rows,
    resolve_efficiency,
)
from bwprof.analysis.prediction.workload import PredictedCase
from bwprof.cli import options as sweeps
from bwprof.cli.options import (
    BACKEND_HELP,
    DEVICE,
    EFFICIENCY,
    Parser,
    add_cases,
    add_files,
    add_operations,
    read_efficiency,
    refuse_others,
    run,
    typed,
)
from bwprof.cli.output import check_free, choose_targets
from bwprof.roofs import store
from bwprof.roofs.model import Roofs
from bwprof.runs import plan
from bwprof.text.formatting import format_figure, format_path, format_seconds, format_short
from bwprof.text.parsing import describe_unknown
from bwprof.text.terminal import PLAIN_WIDTH, make_console, print_table

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger("bwprof.predict")

_TEXT = """\
What operations would take on a device that is not at hand: the longer of bytes over what a stream attains and FLOPs
over the dense rate, at an efficiency that is given or learnt from a measured run, and an empty launch.
"""

_EPILOG = """\
examples:
  %(prog)s {first} -p {param}=1,16 --device A100-80GB
  %(prog)s --suite default --device h100,h200 --only 'attention*'
  %(prog)s --suite default --device "bandwidth=3200,fp16=400"
  %(prog)s --suite default --device H100-SXM --efficiency bwprof-results/RUN   learnt from a measured run
  %(prog)s --suite default --roofs h200.json   by the measured roofs of a device (bwprof roofs export)
  %(prog)s --devices                           the devices that are known by name, each with its source
"""

_CASE_OPTIONS = ("operations", "param", "seq_lengths", "kv_lens", "precision", "suite", "only")

_NUMBERS = ("time", "between", "GB/s", "% limit")


def main_predict(arguments: Sequence[str] | None = None) -> int:
    """Predict cases; returns the exit code."""
    return run(_parser(), arguments, _run)


def _parser() -> Parser:
    first = next(row for row in registry.operations() if row["is_product"])
    epilog = _EPILOG.replace("{first}", first["name"]).replace("{param}", first["params"][0]["name"])
    parser = Parser("bwprof predict", _TEXT, epilog)
    add_operations(parser)
    add_cases(parser)
    parser.add_argument(
        "--device",
        metavar="NAME|NUMBERS,…",
        help="devices of the catalogue, or 'bandwidth=3200,fp16=400' (GB/s, TFLOP/s; memory= in GB, clock= in MHz, "
        f"units=, floor= in us) (default: {DEFAULT_DEVICE})",
    )
    parser.add_argument("--roofs", metavar="RUN|FILE", help="instead: a device by its measured roofs")
    EFFICIENCY(parser)
    add_files(parser)
    parser.add_argument("--devices", action="store_true", help="print the catalogue of devices, and predict nothing")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.devices:
        refuse_others(_parser(), options, "--devices prints the catalogue", "devices")
        return _print_devices()
    if options.force and options.csv is None and options.json is None:
        raise ValueError("--force replaces the files of --csv and --json: name one, or leave it out")
    targets = choose_targets(options, options.suite, options.roofs, options.efficiency)
    if options.device is not None and options.roofs is not None:
        raise ValueError("--device and --roofs both say which device: leave one out")
    given = DEFAULT_DEVICE if options.device is None else options.device
    devices = split_devices(given) if options.roofs is None else [store.read(Path(options.roofs))]
    cases, model = _cases(options), resolve_efficiency(read_efficiency(options.efficiency))
    frames = [predict_rows(cases, device, model) for device in devices]
    found = frames[0] if len(frames) == 1 else interleave_devices(frames)
    typed(found, targets)
    if "-" not in targets.values():
        _print(found)
    return 0


def _cases(options: argparse.Namespace) -> list[PredictedCase]:
    """The cases that were asked for, as a sweep would run them on a GPU."""
    given = sweeps.parser("bwprof predict").parse_args([])
    for name in _CASE_OPTIONS:
        setattr(given, name, getattr(options, name))
    if options.suite == "":
        raise ValueError("--suite is '': a name is needed")
    backend = next(name for name in registry.backend_names() if not _core.backend_facts(name)["runs_on_host"])
    specs = plan.make_plan(sweeps.read_request(given), backend).specs
    cases: list[PredictedCase] = []
    left: dict[str, None] = {}
    for spec in specs:
        if spec.precision not in registry.operation(spec.operation)["precisions"]:
            left[f"{spec.operation} has no precision {spec.precision}"] = None
        else:
            cases.append(PredictedCase(spec.operation, spec.params, spec.precision, spec.case, spec.kv_lens))
    for why in left:
        _log.warning("left out: %s", why)
    seen: dict[Any, PredictedCase] = {}
    for case in cases:  # variants and caches make no difference here
        seen.setdefault((case.name, case.precision, case.kv_lens, *sorted(case.params.items())), case)
    if not seen:
        raise ValueError(f"nothing to predict: {'; '.join(left)}")
    return list(seen.values())


_LEAST = ">=: no less than that: what its arithmetic takes is not known, so do not compare it with other precisions"

_COLUMNS = ("device", "reason", "operation", "precision")


def _print(found: pd.DataFrame) -> None:
    screen = make_console(sys.stdout)
    width = min(screen.width, PLAIN_WIDTH)
    learnt = bool(found["time_ms_lo"].notna().any())
    words = ["case", "precision", *(["device"] if found["device"].nunique() > 1 else [])]
    numbers = [name for name in _NUMBERS if learnt or name != "between"]
    lines = []
    least = is_lower_bound(found)
    for row, bound in zip(found.to_dict(orient="records"), least, strict=True):
        cells = {
            "time": format_seconds(row["time_ms"] / 1e3),
            "between": f"{format_seconds(row['time_ms_lo'] / 1e3)} - {format_seconds(row['time_ms_hi'] / 1e3)}",
            "GB/s": format_figure(row["bandwidth_gb_s"], whole_from=1000),
            "% limit": f"{format_short(row['pct_limit'], '.0f')}",
        }
        limiter = row["limiter"] if isinstance(row["limiter"], str) else "-"
        if bound:
            cells |= {"time": f">= {cells['time']}", "between": "-", "GB/s": f"<= {cells['GB/s']}", "% limit": "-"}
            limiter = "-"
        lines.append([*(str(row[name]) for name in words), *(cells[name] for name in numbers), limiter])
    print_table(screen, [*words, *numbers, "limiter"], lines, numbers=numbers)
    said: dict[str, dict[str, None]] = {}  # what each is of, where not all have the same
    for device, reason, operation, precision in zip(*(found[name] for name in _COLUMNS), strict=True):
        said.setdefault(f"{device}{{}}: {reason}", {})[f"{operation} {precision}"] = None
    for line, whose in said.items():
        told = line.replace("{}", f", {', '.join(whose)}" if len(said) > 1 else "", 1)
        screen.print(textwrap.fill(told, width, subsequent_indent="  "))
    if least.any():
        screen.print(textwrap.fill(_LEAST, width, subsequent_indent="  "))
    if learnt:
        screen.print("between: what nine of ten times should lie between, by what was learnt")


def _print_devices() -> int:
    from bwprof.analysis.prediction.catalogue import catalogue

    screen = make_console(sys.stdout)
    rows = catalogue()
    rates = ["fp32", "tf32", "fp16", "fp8_e4m3"]
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
        said = f"  {name}: {source}" + (f"; not confirmed: {unconfirmed}" if unconfirmed else "")
        screen.print(said + (f"; {note}" if note else ""))
    return 0


_HEADINGS = ["device", "name", "measured", "largest read GB/s", "file"]

_ACTIONS = ("list", "export", "import")

_ROOFS_EPILOG = """\
examples:
  %(prog)s                                list what is stored for the devices of this machine
  %(prog)s export h200.json               the first device's, for another machine
  bwprof predict --suite default --roofs h200.json
  %(prog)s import h200.json               take them as this machine's own: the same device and driver, another cache
"""


def main_roofs(arguments: Sequence[str] | None = None) -> int:
    """List, export or import stored roofs; returns the exit code."""
    text = "The measured roofs that are stored for this machine's devices: list them, or carry them in a file."
    parser = Parser("bwprof roofs", text, _ROOFS_EPILOG)
    parser.add_argument("action", nargs="?", default="list", metavar="list|export|import", help="(default: list)")
    parser.add_argument("file", nargs="?", metavar="FILE", help="the file to write (a .json) or to read")
    parser.add_argument("--device", metavar="D", help=DEVICE)
    parser.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)
    parser.add_argument("--force", action="store_true", help="export: replace a file")
    return run(parser, arguments, _run_roofs)


def _run_roofs(options: argparse.Namespace) -> int:
    if options.action not in _ACTIONS:
        raise ValueError(describe_unknown("action", options.action, _ACTIONS))
    if options.action == "list" and options.file is not None:
        raise ValueError(f"list takes no file: '{options.file}' is one too many")
    if options.force and options.action != "export":
        raise ValueError(f"--force replaces the file that export writes: {options.action} has none, leave it out")
    if options.action == "list":
        return _list(options)
    if not options.file:
        raise ValueError(f"bwprof roofs {options.action} FILE: a file is needed")
    return (_export if options.action == "export" else _import)(options, Path(options.file))


def _identity(options: argparse.Namespace) -> tuple[store.Identity, str]:
    """What stored roofs of the chosen device are known by, and the device's name."""
    with hardware.borrow_current(options.backend, options.device) as (choice, device):
        return store.identity(choice.backend, hardware.device_facts(device)), choice.name


def _list(options: argparse.Namespace) -> int:
    backend, index = hardware.parse_device(options.device, options.backend)
    if backend is not None or index is not None:
        hardware.choose_device(options.backend, options.device)  # which says why there is none
    rows = []
    for found in hardware.devices():
        where = f"{found['backend']}:{found['index']}"
        if backend not in (None, found["backend"]) or index not in (None, found["index"]):
            continue
        with hardware.borrow_current(None, where) as (choice, device):
            roofs = store.load(store.identity(choice.backend, hardware.device_facts(device)))
        if roofs is None:
            rows.append((where, found["name"], "none stored: a sweep measures them", "", ""))
        else:
            rows.append((where, found["name"], roofs.measured, _largest(roofs), roofs.source))
    print_table(make_console(sys.stdout), _HEADINGS, rows, numbers=["largest read GB/s"])
    return 0


def _largest(roofs: Roofs) -> str:
    reads = [point for point in roofs.ceilings() if point.read_fraction == 1]
    return f"{reads[0].gb_s:.4g}" if reads else "-"


def _export(options: argparse.Namespace, target: Path) -> int:
    if target.suffix.lower() != ".json":
        raise ValueError(f"{target}: roofs are exported as .json")
    check_free(str(target), force=options.force)
    identity, name = _identity(options)
    roofs = store.load(identity)
    if roofs is None:
        raise ValueError(f"no roofs are stored for {name}: bwprof sweep measures them")
    store.export(roofs, target)
    sys.stderr.write(f"bwprof: the roofs of {name} are in {format_path(target)}\n")
    return 0


def _import(options: argparse.Namespace, source: Path) -> int:
    roofs = store.read(source)
    identity, name = _identity(options)
    here = tuple(identity["key"][part] for part in ("name", "uuid", "driver"))
    found = (roofs.device, roofs.device_uuid, roofs.driver)
    if found != here:
        mine, theirs = (f"{device} ({uuid or 'no UUID'}, driver {driver})" for device, uuid, driver in (here, found))
        raise ValueError(
            f"{source} holds the roofs of {theirs}; the device here is {mine}: "
            f"bwprof predict --roofs {source} predicts for that one"
        )
    stored = store.save(identity, roofs)
    if stored is None:
        raise ValueError(f"the roofs of {source} could not be stored")
    sys.stderr.write(f"bwprof: the roofs of {name} are in {format_path(stored)}\n")
    return 0
