"""What to run next, so that what cannot be told yet is: command lines ready to paste."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bwprof import registry
from bwprof.analysis.diagnosis.diagnose import Diagnosis
from bwprof.analysis.diagnosis.figures import RowFigures
from bwprof.analysis.diagnosis.hypothesis import BANDWIDTH, CANNOT_TELL, SUPPORTED, Need
from bwprof.analysis.diagnosis.memory import COMPULSORY_BYTES
from bwprof.importers.ncu.command import ncu_command
from bwprof.importers.rocprof.session import RocprofSession
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import finite_or_none, is_bool

PROGRAM = "YOUR_PROGRAM"

_NO_KERNELS = ("copy", "fill")  # of a time line

_FILE = "FILE"  # the one that is read

_COUNTED = "counted"  # the folder of rocprofv3's files

_ROOFS = ("memory_bound", "compute_bound")

_WORD = re.compile(r"[A-Za-z_]\w*")

_UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>|\(anonymous\)")


@dataclass(frozen=True, slots=True)
class NextCommand:
    """A command, and the figures that it tells."""

    command: str
    tells: tuple[str, ...]
    in_python: bool = False  # no shell's command


def suggest_commands(found: Diagnosis) -> list[NextCommand]:
    """What would settle the open hypotheses of a row; nothing for one that is at a roof, or cannot be counted.

    A row of bwprof's is measured again with what was not counted; what only a profiler tells, ncu says of one launch.
    """
    told = found.of(SUPPORTED)
    if any(held.hypothesis.name in _ROOFS for held in told) or not _is_countable(found.row):
        return []
    needs = list(dict.fromkeys(need for held in found.of(CANNOT_TELL) for need in held.judgement.needs))
    own = [need for need in needs if need.option.startswith("--") and need != COMPULSORY_BYTES]
    rest = [need for need in needs if need.preset and need not in own]
    arguments = _arguments(found.row)
    made = []
    if arguments is not None:
        if own:
            made.append(_step(["bwprof", "sweep", *arguments, "--counters", "--metrics", "all"], own))
        target = ["python", "-m", "bwprof.sweep", *arguments, "--once"]
    else:
        if _is_measured(found.row) and own:
            made.append(
                NextCommand(
                    'bwprof.measure(fn, ..., counters=True, metrics="all", roofs="auto")', _figures(own), in_python=True
                )
            )
        else:
            rest = [need for need in needs if need.preset]
        target = [PROGRAM]
    if rest:
        kernel = None if arguments is not None else _kernel(found.row)
        made.append(_step(_ncu(target, kernel, rest), rest))
    if COMPULSORY_BYTES in needs and not _is_measured(found.row) and (name := _kernel(found.row)):
        made.append(_step(["bwprof", "diagnose", _FILE, "--bytes", f"*{name}*=READ,WRITTEN"], [COMPULSORY_BYTES]))
    return made


def suggest_rocprof(found: Diagnosis) -> list[NextCommand]:
    """The same of an AMD card's row, of which bytes alone can be counted: the command, where they were not."""
    needs = [need for held in found.of(CANNOT_TELL) for need in held.judgement.needs if need.figure == BANDWIDTH.figure]
    counted = any(not is_missing(found.row.get(name)) for name in ("dram_bytes_read", "dram_gb_s"))
    return [] if counted or not needs else [_step(RocprofSession(_COUNTED).build_command(PROGRAM), needs[:1])]


def _step(command: Sequence[str], needs: Sequence[Need]) -> NextCommand:
    return NextCommand(shlex.join(command), _figures(needs))


def _figures(needs: Sequence[Need]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(need.figure for need in needs))


def _ncu(target: list[str], kernel: str | None, needs: Sequence[Need]) -> list[str]:
    """The command with the one preset that they have in common, or with everything."""
    presets = {need.preset for need in needs}
    return ncu_command(target, kernel, presets.pop() if len(presets) == 1 else "full")


def _is_countable(row: Mapping[str, Any]) -> bool:
    """Neither a CPU's row or a copy's, which nothing is counted of, nor an AMD card's, which ncu knows nothing of."""
    status = row.get("status")
    figures = RowFigures(row)
    if figures.of_amd or figures.on_host or figures.word("kind") in _NO_KERNELS:
        return False
    return is_missing(status) or status == "ok"


def _is_measured(row: Mapping[str, Any]) -> bool:
    """Whether bwprof measured it."""
    return not is_missing(row.get("timer"))


@cache
def _operations() -> dict[str, list[str]]:
    return {found["name"]: [param["name"] for param in found["params"]] for found in registry.operations()}


def _arguments(row: Mapping[str, Any]) -> list[str] | None:
    """How a sweep measures this row's case; None for what is no operation of bwprof's."""
    name = row.get("operation")
    if is_missing(name) or name not in _operations():
        return None
    made = [str(name)]
    for param in _operations()[str(name)]:
        value = row.get(param)
        if not is_missing(value) and not (param == "kv_len" and not is_missing(row.get("kv_lens"))):
            number = finite_or_none(float(value or 0) if is_bool(value) else value)
            if number is None or number != int(number):
                return None
            made += ["-p", f"{param}={int(number)}"]
    if not is_missing(row.get("kv_lens")):
        made += ["--kv-lens", str(row["kv_lens"]).replace(";", ",")]
    for option in ("precision", "variant"):
        if not is_missing(row.get(option)) and row[option] != "":
            made += [f"--{option}", str(row[option])]
    return made


def _kernel(row: Mapping[str, Any]) -> str | None:
    """The kernel's base name, as ncu filters by it: without result, namespaces, template and call arguments."""
    text = row.get("kernel")
    bare = "" if is_missing(text) else _outside(_UNNAMED.sub("unnamed", str(text)))
    name = (bare.split() or [""])[-1].rpartition("::")[2]
    return name if _WORD.fullmatch(name) and name != "operator" else None


def _outside(text: str) -> str:
    """What of a name lies outside its template arguments, up to the list of its parameters."""
    made, depth = [], 0
    for letter in text:
        if letter == "(" and depth == 0:
            break
        depth = max(0, depth + (letter == "<") - (letter == ">"))
        if depth == 0 and letter != ">":
            made.append(letter)
    return "".join(made)
