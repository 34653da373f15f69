"""Command lines of ncu, and running them."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof import environment
from bwprof.errors import UnavailableError
from bwprof.importers.ncu.metrics import STALLS, stall_metric
from bwprof.importers.ncu.parse import parse_ncu, read_end, run_program
from bwprof.text.parsing import describe_unknown, escape_controls, parse_int, parse_seconds, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

_TIME = "gpu__time_duration.sum"  # bytes without a time are no bandwidth
_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op"
_SUFFIX = ".ncu-rep"
_MOST = 1000  # letters of ncu's output that a message repeats
_DENIED = "ERR_NVGPUCTRPERM"
_UNLOCKED = "the GPU's clocks were not locked (--clock-control none), as without a profiler"
_LOCKED = (
    "ncu locked the GPU's clocks to their base (--clock-control base), so that runs repeat: times are longer than "
    "without a profiler"
)
CLOCKS = ("none", "base")

Target = str | PathLike[str] | Sequence[str | PathLike[str]]


def _metrics(*names: str) -> tuple[str, ...]:
    return ("--metrics", ",".join(names))  # no white space: ncu takes what follows it for the program


PRESETS: dict[str, tuple[str, ...]] = {
    "full": ("--set", "full"),
    "memory": _metrics(
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        *(f"{_CONFLICTS}_ld.sum", f"{_CONFLICTS}_st.sum", f"{_SECTORS}_ld.ratio", f"{_SECTORS}_st.ratio", _TIME),
    ),
    "compute": _metrics(
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        stall_metric("short_scoreboard"),
        stall_metric("long_scoreboard"),
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        _TIME,
    ),
    "roofline": ("--set", "roofline"),
    "stalls": _metrics(*map(stall_metric, STALLS)),
    "access": _metrics(
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        f"{_SECTORS}_ld.ratio",
    ),
    "speed": ("--section", "SpeedOfLight"),
}


def ncu_command(
    target: Target,
    kernel: str | None = None,
    preset: str = "full",
    output: str | PathLike[str] | None = "profile",
    *,
    launch_count: int | None = None,
    clock_control: str | None = None,
) -> list[str]:
    """Build the arguments of an ``ncu`` run, for `subprocess.run`, never for a shell.

    Parameters
    ----------
    target : str, path or sequence of str
        The program and its arguments; text is split at blanks as a shell would (``"python3 bench.py --n 4"``). This
        Python runs a target that is a Python file.
    kernel : str, optional
        Only kernels of this name, or ``"regex:..."``; None: every launch of the program.
    preset : str
        What is measured: "full", "memory" (DRAM's bytes and throughput, bank conflicts, sectors per request, time),
        "compute" (multiprocessors, occupancy, two stalls, tensor pipe, time), "roofline", "stalls" (why warps wait),
        "access" (how well loads use their sectors), "speed" (the section Speed Of Light: a few passes).
    output : str or path, optional
        Report to write, OUTPUT.ncu-rep; None: ncu prints its raw page as CSV.
    launch_count : int, optional
        Most launches: each costs up to dozens of passes.
    clock_control : str, optional
        "base": ncu locks the GPU's clocks to their base, so that runs repeat; "none": it does not. None: ncu's default,
        which locks them.

    Raises
    ------
    ValueError
        For an empty target, an unknown preset or clock_control, a name that ncu would take for an option.

    Examples
    --------
    >>> shlex.join(ncu_command("python3 bench.py", "regex:attention", output="first"))
    'ncu --set full --target-processes all --kernel-name regex:attention -o first python3 bench.py'
    """
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ValueError(describe_unknown("preset", preset, PRESETS))
    program = _split_target(target)
    command = ["ncu", *PRESETS[preset], "--target-processes", "all"]
    if clock_control is not None:
        if not isinstance(clock_control, str) or clock_control not in CLOCKS:
            raise ValueError(describe_unknown("clock_control", clock_control, CLOCKS))
        command += ["--clock-control", clock_control]
    if kernel is not None:
        command += ["--kernel-name", _check_name(kernel, "kernel")]
    if launch_count is not None:
        count = parse_int(launch_count, "launch_count")
        if count < 1:
            raise ValueError(f"launch_count is {count}: 1 or more is needed")
        command += ["--launch-count", str(count)]
    if output is None:
        command += ["--csv", "--page", "raw", "--print-units", "base"]
    else:
        command += ["-o", _check_name(fspath(output), "output")]
    return command + program


def _split_target(target: Target) -> list[str]:
    if isinstance(target, str):
        try:
            words = shlex.split(target)
        except ValueError as error:
            raise ValueError(f"target {quote_text(target)}: {error}") from None
    elif isinstance(target, bytes) or not isinstance(target, (PathLike, Sequence)):
        raise TypeError(f"target is {repr_short(target)}: a program and its arguments are needed, as text or a list")
    else:
        words = []
        for word in [target] if isinstance(target, PathLike) else target:
            if not isinstance(word, (str, PathLike)):
                raise TypeError(f"target holds {repr_short(word)}: a program is needed, and its arguments: text")
            words.append(fspath(word))
    if not words:
        raise ValueError("target is empty: the program that ncu runs, and its arguments, are needed")
    _check_name(words[0], "target")
    if any("\0" in word for word in words):
        raise ValueError("target: an argument has a NUL, which no program can be given")
    return [sys.executable or "python3", *words] if words[0].endswith(".py") else words


def _check_name(text: str, name: str) -> str:
    if not isinstance(text, str) or not text.strip() or text.startswith("-") or "\0" in text:
        raise ValueError(f"{name} is {repr_short(text)}: a name is needed that is not empty and begins with no '-'")
    return text


def ncu_capture(
    target: Target,
    kernel: str | None = None,
    preset: str = "full",
    output: str | PathLike[str] | None = None,
    *,
    launch_count: int | None = None,
    timeout_s: float | None = None,
    clock_control: str = "none",
) -> pd.DataFrame:
    """Run a program under ncu, and return what it measured: see `ncu_command` and `parse_ncu`.

    Parameters
    ----------
    target, kernel, preset, launch_count
        As for `ncu_command`.
    output : str or path, optional
        Store the report as OUTPUT.ncu-rep, which must not exist yet; None: the report is deleted.
    timeout_s : float, optional
        Longest time of the run, s.
    clock_control : str
        "none": the clocks are not locked, so that times are near the program's own. "base": ncu locks them (an H200's
        to 1.5 of 1.98 GHz), and runs repeat. `attrs["notes"]` has which it was.

    Raises
    ------
    bwprof.errors.UnavailableError
        Where ncu is not installed, may not read the counters, or takes longer than the limit.
    ValueError
        As `ncu_command` and `parse_ncu`, and when no kernel was measured.
    RuntimeError
        When ncu fails: the message has the end of its output.

    Examples
    --------
    >>> launches = ncu_capture("./engine --once", "regex:gemm", "memory", launch_count=3)  # doctest: +SKIP
    """
    limit = None if timeout_s is None else parse_seconds(timeout_s, "timeout_s")
    build = partial(ncu_command, target, kernel, preset, launch_count=launch_count, clock_control=clock_control)
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        report = Path(folder) / "profile" if output is None else _check_output(output)
        path = report.with_name(f"{report.name}{_SUFFIX}")
        command = build(output=report)
        if path.exists():
            raise ValueError(f"{quote_text(path)} exists already: give another output")
        ncu = environment.find_profiler("ncu")
        if ncu is None:
            raise UnavailableError(
                "ncu is not installed (it comes with the CUDA toolkit, or as Nsight Compute): no PATH and no toolkit "
                f"has it. On a machine that has: {shlex.join(build(output=output or 'profile'))}"
            )
        with (Path(folder) / "output.txt").open("w+b") as stream:
            end = run_program([ncu, *command[1:]], limit, stream)
            text = f"{read_end(stream, _MOST)}\n{end.errors}"
        if _DENIED in text:
            raise UnavailableError(
                f"ncu may not read the counters ({_DENIED}): run as root, or let the driver allow it to all users "
                "(module option NVreg_RestrictProfilingToAdminUsers=0)"
            )
        if not path.exists():
            lines = "; ".join(line.strip() for line in text.splitlines() if line.strip())
            raise RuntimeError(f"ncu wrote no report (exit code {end.code}): {escape_controls(lines)[-_MOST:]}")
        launches = parse_ncu(path)
        notes = [*launches.attrs["notes"], _UNLOCKED if clock_control == "none" else _LOCKED]
        if end.code:
            notes.append(f"ncu or its program ended with code {end.code}: it may have done only some of its work")
        launches.attrs["notes"] = tuple(notes)
        if output is None:  # the report is deleted
            launches.attrs["source"] = shlex.join(_split_target(target))
        return launches


def _check_output(output: str | PathLike[str]) -> Path:
    """Return the path that ncu writes to, without its suffix; ValueError where it cannot."""
    path = Path(_check_name(fspath(output), "output"))
    problem = f"output is {repr_short(fspath(output))}"
    name = path.name.removesuffix(_SUFFIX)
    if not name or name == "..":
        raise ValueError(f"{problem}: a file's name is needed, without {_SUFFIX}")
    if "%" in str(path):
        raise ValueError(f"{problem}: ncu replaces '%' and what follows it by something else")
    if not path.parent.is_dir():
        raise ValueError(f"{problem}: there is no folder {quote_text(path.parent)}")
    return path.with_name(name)
