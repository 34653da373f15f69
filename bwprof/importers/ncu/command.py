"""Command lines of ncu, and running them."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.errors import UnavailableError
from bwprof.importers.ncu.metrics import STALLS, stall_metric
from bwprof.importers.ncu.parse import find, parse_ncu, read_end, run_program
from bwprof.text.parsing import describe_unknown, escape_controls, parse_int, parse_seconds, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

_TIME = "gpu__time_duration.sum"  # without which bytes are no bandwidth

_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op"

_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op"


def _metrics(*names: str) -> tuple[str, ...]:
    return ("--metrics", ",".join(names))  # no white space: ncu would take what follows it for the program


PRESETS: dict[str, tuple[str, ...]] = {
    "full": ("--set", "full"),
    "memory": _metrics(
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        f"{_CONFLICTS}_ld.sum",
        f"{_CONFLICTS}_st.sum",
        f"{_SECTORS}_ld.ratio",
        f"{_SECTORS}_st.ratio",
        _TIME,
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

CLOCKS = ("none", "base")

_LEFT = "the GPU's clocks were left as they are (--clock-control none), as without a profiler; base locks them"

_LOCKED = (
    "ncu locked the GPU's clocks to their base (--clock-control base), so that runs repeat: times are longer than "
    "without a profiler"
)

_DENIED = "ERR_NVGPUCTRPERM"


def ncu_command(
    target: str | PathLike[str] | Sequence[str | PathLike[str]],
    kernel: str | None = None,
    preset: str = "full",
    output: str | PathLike[str] | None = "profile",
    *,
    launch_count: int | None = None,
    clock_control: str | None = None,
) -> list[str]:
    """The arguments of an ``ncu`` run, for `subprocess.run` as they are: never a string for a shell.

    Parameters
    ----------
    target : str, path or sequence of str
        The program and its arguments; text is split at blanks as a shell would (``"python3 bench.py --n 4"``). A
        Python file alone is run by this Python: ncu runs programs only.
    kernel : str, optional
        Only kernels of this name, or ``"regex:..."``; without it every launch of the program.
    preset : str
        What is measured: "full", "memory" (DRAM's bytes and throughput, bank conflicts, sectors per request, time),
        "compute" (multiprocessors, occupancy, two stalls, tensor pipe, time), "roofline", "stalls" (why warps wait),
        "access" (how well loads use their sectors), "speed" (the section Speed Of Light: a few passes).
    output : str or path, optional
        Report to write, OUTPUT.ncu-rep; None: ncu prints its raw page as CSV instead.
    launch_count : int, optional
        No more launches than so many: each costs up to dozens of passes.
    clock_control : str, optional
        "base": ncu locks the GPU's clocks to their base, so that runs repeat; "none": it leaves them as they are.
        Without it nothing is said of them, and ncu locks them.

    Raises
    ------
    ValueError
        For an empty target, an unknown preset or clock_control, a name that ncu would take for an option.

    Examples
    --------
    >>> import shlex
    >>> from bwprof.importers import ncu_command
    >>> shlex.join(ncu_command("python3 bench.py", "regex:attention", output="first"))
    'ncu --set full --target-processes all --kernel-name regex:attention -o first python3 bench.py'
    """
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ValueError(describe_unknown("preset", preset, PRESETS))
    program = _program(target)
    command = ["ncu", *PRESETS[preset], "--target-processes", "all"]
    if clock_control is not None:
        command += ["--clock-control", _clocks(clock_control)]
    if kernel is not None:
        command += ["--kernel-name", _word(kernel, "kernel")]
    if launch_count is not None:
        count = parse_int(launch_count, "launch_count")
        if count < 1:
            raise ValueError(f"launch_count is {count}: 1 or more is needed")
        command += ["--launch-count", str(count)]
    if output is None:
        command += ["--csv", "--page", "raw", "--print-units", "base"]
    else:
        command += ["-o", _word(fspath(output), "output")]
    return command + program


def _clocks(given: str) -> str:
    if not isinstance(given, str) or given not in CLOCKS:
        raise ValueError(describe_unknown("clock_control", given, CLOCKS))
    return given


def _program(target: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[str]:
    if isinstance(target, str):
        try:
            words = shlex.split(target)
        except ValueError as error:
            raise ValueError(f"target {quote_text(target)}: {error}") from None
    elif isinstance(target, bytes) or not isinstance(target, (PathLike, Sequence)):
        raise TypeError(
            f"target is {repr_short(target)}: a program is needed, and its arguments: text, or a list of it"
        )
    else:
        given = [target] if isinstance(target, PathLike) else list(target)
        for one in given:
            if not isinstance(one, (str, PathLike)):
                raise TypeError(f"target holds {repr_short(one)}: a program is needed, and its arguments: text")
        words = [fspath(one) for one in given]
    if not words:
        raise ValueError("target is empty: the program that ncu runs, and its arguments, are needed")
    _word(words[0], "target")
    if any("\0" in word for word in words):
        raise ValueError("target: an argument has a NUL, which no program can be given")
    return [sys.executable or "python3", *words] if words[0].endswith(".py") else words


def _word(given: str, name: str) -> str:
    if not isinstance(given, str) or not given.strip() or given.startswith("-") or "\0" in given:
        raise ValueError(f"{name} is {repr_short(given)}: a name is needed that is not empty and begins with no '-'")
    return given


def ncu_capture(
    target: str | PathLike[str] | Sequence[str | PathLike[str]],
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
        As `ncu_command` has them.
    output : str or path, optional
        Keep the report, as OUTPUT.ncu-rep, which must not be there yet; without it nothing stays.
    timeout_s : float, optional
        Seconds that the run may take.
    clock_control : str
        "none": the clocks stay as they are without a profiler, so that times are near the program's own. "base":
        ncu locks them (an H200's to 1.5 of 1.98 GHz), and runs repeat. `attrs["notes"]` says which it was.

    Raises
    ------
    bwprof.errors.UnavailableError
        Where ncu is not installed, may not read the counters, or takes longer than the limit.
    ValueError
        As `ncu_command` and `parse_ncu`, and when no kernel was measured.
    RuntimeError
        When ncu fails: what it said is in the message.

    Examples
    --------
    >>> from bwprof.importers import ncu_capture
    >>> found = ncu_capture("./engine --once", "regex:gemm", "memory", launch_count=3)  # doctest: +SKIP
    """
    limit = None if timeout_s is None else parse_seconds(timeout_s, "timeout_s")
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        report = Path(folder) / "profile" if output is None else _report(output)
        kept = report.with_name(f"{report.name}{_SUFFIX}")
        clocks = _clocks(clock_control)
        command = ncu_command(target, kernel, preset, report, launch_count=launch_count, clock_control=clocks)
        if kept.exists():
            raise ValueError(f"{quote_text(kept)} exists already: give another output")
        ncu = find("ncu")
        if ncu is None:
            elsewhere = ncu_command(
                target, kernel, preset, output or "profile", launch_count=launch_count, clock_control=clocks
            )
            raise UnavailableError(
                "ncu is not installed (it comes with the CUDA toolkit, or as Nsight Compute): no PATH and no toolkit "
                f"has it. On a machine that has: {shlex.join(elsewhere)}"
            )
        said = Path(folder) / "output.txt"
        with said.open("w+b") as stream:
            ended = run_program([ncu, *command[1:]], limit, stream)
            told = f"{read_end(stream, _MOST)}\n{ended.said}"
        if _DENIED in told:
            raise UnavailableError(
                f"ncu may not read the counters ({_DENIED}): run as root, or let the driver allow it to all users "
                "(module option NVreg_RestrictProfilingToAdminUsers=0)"
            )
        if not kept.exists():
            raise RuntimeError(f"ncu wrote no report (exit code {ended.code}){_in_a_line(told)}")
        found = parse_ncu(kept)
        notes = [*found.attrs["notes"], _LEFT if clocks == "none" else _LOCKED]
        if ended.code:
            notes.append(f"ncu or its program ended with code {ended.code}: it may have done only some of its work")
        found.attrs["notes"] = tuple(notes)
        if output is None:  # the report is gone
            found.attrs["source"] = shlex.join(_program(target))
        return found


_MOST = 1000  # letters of what ncu said that a message repeats

_SUFFIX = ".ncu-rep"


def _report(output: str | PathLike[str]) -> Path:
    """Where ncu writes, without its suffix; ValueError where it cannot, before anything runs."""
    path = Path(_word(fspath(output), "output"))
    name = path.name.removesuffix(_SUFFIX)
    if not name or name == "..":
        raise ValueError(f"output is {repr_short(fspath(output))}: a file's name is needed, without {_SUFFIX}")
    if "%" in str(path):
        raise ValueError(
            f"output is {repr_short(str(path))}: ncu would put something else in the place of what follows a '%'"
        )
    if not path.parent.is_dir():
        raise ValueError(f"output is {repr_short(str(path))}: there is no folder {quote_text(path.parent)}")
    return path.with_name(name)


def _in_a_line(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return f": {escape_controls('; '.join(lines))[-_MOST:]}" if lines else ""
