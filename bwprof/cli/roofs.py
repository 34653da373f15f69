"""The command ``bwprof roofs``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bwprof import hardware
from bwprof.cli.shared.arguments import BACKEND_HELP, DEVICE_HELP, Parser, run
from bwprof.cli.shared.outputs import check_free
from bwprof.roofs import Roofs, files, store
from bwprof.terminal import console, print_table
from bwprof.text import path_text, unknown

_HEADINGS = ["device", "name", "measured", "largest read GB/s", "file"]
_ACTIONS = ("list", "export", "import")
_EPILOG = """\
examples:
  %(prog)s                                list what is stored for the devices of this machine
  %(prog)s export h200.json               the first device's, for another machine
  bwprof predict --suite default --roofs h200.json
  %(prog)s import h200.json               take them as this machine's own: the same device and driver, another cache
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """List, export or import stored roofs; returns the exit code."""
    text = "The measured roofs that are stored for this machine's devices: list them, or carry them in a file."
    parser = Parser("bwprof roofs", text, _EPILOG)
    parser.add_argument("action", nargs="?", default="list", metavar="list|export|import", help="(default: list)")
    parser.add_argument("file", nargs="?", metavar="FILE", help="the file to write (a .json) or to read")
    parser.add_argument("--device", metavar="D", help=DEVICE_HELP)
    parser.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)
    parser.add_argument("--force", action="store_true", help="export: replace a file")
    return run(parser, arguments, _run)


def _run(options: argparse.Namespace) -> int:
    if options.action not in _ACTIONS:
        raise ValueError(unknown("action", options.action, _ACTIONS))
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
    with hardware.opened_chosen(options.backend, options.device) as (choice, device):
        return store.identity(choice.backend, hardware.facts(device)), choice.name


def _list(options: argparse.Namespace) -> int:
    backend, index = hardware.parse(options.device, options.backend)
    if backend is not None or index is not None:
        hardware.choose(options.backend, options.device)  # which says why there is none
    rows = []
    for found in hardware.devices():
        where = f"{found['backend']}:{found['index']}"
        if backend not in (None, found["backend"]) or index not in (None, found["index"]):
            continue
        with hardware.opened_chosen(None, where) as (choice, device):
            roofs = store.load(store.identity(choice.backend, hardware.facts(device)))
        if roofs is None:
            rows.append((where, found["name"], "none stored: a sweep measures them", "", ""))
        else:
            rows.append((where, found["name"], roofs.measured, _largest(roofs), roofs.source))
    print_table(console(sys.stdout), _HEADINGS, rows, numbers=["largest read GB/s"])
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
    files.export(roofs, target)
    sys.stderr.write(f"bwprof: the roofs of {name} are in {path_text(target)}\n")
    return 0


def _import(options: argparse.Namespace, source: Path) -> int:
    roofs = files.read(source)
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
    sys.stderr.write(f"bwprof: the roofs of {name} are in {path_text(stored)}\n")
    return 0
