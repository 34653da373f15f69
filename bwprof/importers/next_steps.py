"""Command lines that measure what a diagnosis lacks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bwprof import registry
from bwprof.analysis.diagnosis.diagnose import Diagnosis
from bwprof.analysis.diagnosis.figures import RowFigures
from bwprof.analysis.diagnosis.hypothesis import BANDWIDTH, CANNOT_TELL, SUPPORTED, Need
from bwprof.analysis.diagnosis.judges import COMPULSORY_BYTES
from bwprof.importers.ncu.command import ncu_command
from bwprof.importers.reader import base_name
from bwprof.importers.rocprof_session import RocprofSession
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import finite_or_none, is_bool

PROGRAM = "YOUR_PROGRAM"
_FILE = "FILE"  # the file that is diagnosed
_COUNTED = "counted"  # the folder of rocprofv3's files
_ROOFS = {"memory_bound", "compute_bound"}
_NO_KERNELS = ("copy", "fill")  # of a time line
_MEASURE = 'bwprof.measure(fn, ..., counters=True, metrics="all", roofs="auto")'


@dataclass(frozen=True, slots=True)
class NextCommand:
    """A command, and the figures that it measures."""

    command: str
    tells: tuple[str, ...]
    in_python: bool = False  # no shell's command


def suggest_commands(diagnosis: Diagnosis) -> list[NextCommand]:
    """Suggest commands that settle a row's open hypotheses; none for a row at a roof, or without counters.

    bwprof measures its own rows again with counters; ncu measures the rest, on one launch.
    """
    row = diagnosis.row
    if not _ROOFS.isdisjoint(entry.hypothesis.name for entry in diagnosis.of(SUPPORTED)) or not _is_countable(row):
        return []
    needs = _open_needs(diagnosis)
    counters = [need for need in needs if need.option.startswith("--") and need != COMPULSORY_BYTES]
    metrics = [need for need in needs if need.preset]
    rest = [need for need in metrics if need not in counters]
    if (case := _case_options(row)) is not None:
        sweep = ["bwprof", "sweep", *case, "--counters", "--metrics", "all"]
        once = ["python", "-m", "bwprof.sweep", *case, "--once"]
        return [*_command(shlex.join(sweep), counters), *_ncu_command(once, None, rest)]
    kernel = _kernel(row)
    if not is_missing(row.get("timer")):  # a function that bwprof measured
        return [*_command(_MEASURE, counters, in_python=True), *_ncu_command([PROGRAM], kernel, rest)]
    state = ["bwprof", "diagnose", _FILE, "--bytes", f"*{kernel}*=READ,WRITTEN"]
    unstated = [COMPULSORY_BYTES] if COMPULSORY_BYTES in needs and kernel else []
    return [*_ncu_command([PROGRAM], kernel, metrics), *_command(shlex.join(state), unstated)]


def suggest_rocprof(diagnosis: Diagnosis) -> list[NextCommand]:
    """Suggest the command that counts an AMD card's bytes, where they were not counted."""
    needs = [need for need in _open_needs(diagnosis) if need.figure == BANDWIDTH.figure]
    counted = any(not is_missing(diagnosis.row.get(name)) for name in ("dram_bytes_read", "dram_gb_s"))
    return _command(shlex.join(RocprofSession(_COUNTED).build_command(PROGRAM)), [] if counted else needs[:1])


def _open_needs(diagnosis: Diagnosis) -> list[Need]:
    return list(dict.fromkeys(need for entry in diagnosis.of(CANNOT_TELL) for need in entry.judgment.needs))


def _command(command: str, needs: Sequence[Need], *, in_python: bool = False) -> list[NextCommand]:
    figures = tuple(dict.fromkeys(need.figure for need in needs))
    return [NextCommand(command, figures, in_python)] if needs else []


def _ncu_command(target: list[str], kernel: str | None, needs: Sequence[Need]) -> list[NextCommand]:
    presets = {need.preset for need in needs}
    return _command(shlex.join(ncu_command(target, kernel, presets.pop() if len(presets) == 1 else "full")), needs)


def _is_countable(row: Mapping[str, Any]) -> bool:
    """Whether ncu or bwprof can count a row's events: no CPU's, no copy's, no AMD card's."""
    status = row.get("status")
    figures = RowFigures(row)
    if figures.of_amd or figures.on_host or figures.word("kind") in _NO_KERNELS:
        return False
    return is_missing(status) or status == "ok"


def _kernel(row: Mapping[str, Any]) -> str | None:
    name = row.get("kernel")
    return None if is_missing(name) else base_name(str(name))


@cache
def _operations() -> dict[str, list[str]]:
    return {operation["name"]: [param["name"] for param in operation["params"]] for operation in registry.operations()}


def _case_options(row: Mapping[str, Any]) -> list[str] | None:
    """Return the options of a sweep that measures this row's case; None for what is no operation of bwprof."""
    name = row.get("operation")
    if is_missing(name) or name not in _operations():
        return None
    options = [str(name)]
    has_lens = not is_missing(row.get("kv_lens"))
    for param in _operations()[str(name)]:
        value = row.get(param)
        if not is_missing(value) and not (param == "kv_len" and has_lens):
            number = finite_or_none(float(value or 0) if is_bool(value) else value)
            if number is None or number != int(number):
                return None
            options += ["-p", f"{param}={int(number)}"]
    if has_lens:
        options += ["--kv-lens", str(row["kv_lens"]).replace(";", ",")]
    for option in ("precision", "variant"):
        if not is_missing(row.get(option)) and row[option] != "":
            options += [f"--{option}", str(row[option])]
    return options
