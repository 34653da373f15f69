"""`parse_ncu`: read ncu's files; its reports (.ncu-rep) through ``ncu -i`` or NVIDIA's module `ncu_report`."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from bwprof import environment
from bwprof.errors import UnavailableError
from bwprof.importers.ncu import ncu_report_module, pages
from bwprof.importers.ncu.frame import build_frame
from bwprof.importers.ncu.pages import PageLaunches
from bwprof.importers.reader import FileLines, file_error, open_binary, open_text, parse_unit
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import parse_path, parse_seconds, quote_text

if TYPE_CHECKING:
    import pandas as pd

SECONDS = 600.0
_MOST_OUTPUT = 2000  # letters of a program's errors that a message repeats
_SUFFIXES = (".ncu-rep", ".ncu-repz", ".nsight-cuprof-report")
_MAGIC = b"NVR\0"
_MODULE = "ncu_report"
_WHOLE_NAMES = ["--rename-kernels", "0"]  # with namespaces, as the module has them
_NO_LAUNCH = "the report holds no launch: did ncu profile any kernel?"

# The columns of a page that identify a launch, and the metrics that the module has instead.
_IDENTITY = {
    "Context": ("launch__context_id",),
    "Stream": ("launch__stream_id",),
    "Block Size": tuple(f"launch__block_dim_{axis}" for axis in "xyz"),
    "Grid Size": tuple(f"launch__grid_dim_{axis}" for axis in "xyz"),
    "Device": ("launch__device_id",),
    "CC": ("device__attribute_compute_capability_major", "device__attribute_compute_capability_minor"),
}
_UNKNOWN = dict.fromkeys(("Process ID", "Process Name", "Host Name"), "")  # the module does not have them
_FORMS = {1: "{}", 2: "{}.{}", 3: "({}, {}, {})"}


class ProgramEnd(NamedTuple):
    """A program's exit code and the end of its standard error."""

    code: int
    errors: str


def run_program(command: Sequence[str], limit_s: float | None, output: IO[bytes]) -> ProgramEnd:
    """Run a program, its output to a file; its process group ends with it. UnavailableError beyond the limit."""
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise UnavailableError(f"{command[0]} cannot be started: {error}") from None
        try:
            code = child.wait(limit_s)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired) and limit_s is not None:
                raise UnavailableError(f"{command[0]} took longer than {format_seconds(limit_s)}: timeout_s=") from None
            raise
        return ProgramEnd(code, read_end(errors, _MOST_OUTPUT))


def read_end(stream: IO[bytes], most: int) -> str:
    """Read the last bytes of a file as text."""
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
    return stream.read(most).decode("utf-8", "replace").strip()


def is_report(path: Path) -> bool:
    """Whether a file is ncu's own report, by its name or its first bytes."""
    if path.name.lower().endswith(_SUFFIXES):
        return True
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as stream:
                return stream.read(len(_MAGIC)) == _MAGIC
    return False


def build_import_command(path: Path, ncu: str = "ncu") -> list[str]:
    """Build the command that prints a report's raw page."""
    name = str(path)
    return [ncu, "-i", f"./{name}" if name.startswith("-") else name, "--csv", "--page", "raw", "--print-units", "base"]


def read_report(path: Path, timeout_s: float) -> tuple[PageLaunches, str]:
    """Read the launches of a report; return them and the tool that read it."""
    limit = parse_seconds(timeout_s, "timeout_s")
    with open_binary(path):  # raises for what cannot be opened or is no file
        pass
    ncu = environment.find_profiler("ncu")
    if ncu is not None:
        return _read_through_ncu(path, ncu, limit), "ncu"
    module = importlib.util.find_spec(_MODULE)
    if module is not None and module.origin:
        return _read_through_module(path, module.origin, limit), _MODULE
    raise UnavailableError(
        f"{quote_text(path)} is a report, which only ncu can read, and there is none here. Where there is: "
        f"{shlex.join(build_import_command(path))} > {shlex.quote(path.stem + '.csv')}; that file can be read anywhere"
    )


def _read_through_ncu(path: Path, ncu: str, limit: float) -> PageLaunches:
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        page = Path(folder) / "raw.csv"
        for names in (_WHOLE_NAMES, []):  # older versions do not know the option, and print whole names
            with page.open("wb") as stream:
                end = run_program([*build_import_command(path, ncu), *names], limit, stream)
            if not end.code:
                break
        errors = quote_text(end.errors)
        if end.code:
            with page.open("rb") as stream:
                problem = errors or quote_text(read_end(stream, 400))
            raise file_error(path, None, f"ncu cannot read it (exit code {end.code}): {problem}")
        try:
            return pages.read_page(page)
        except ValueError as error:
            problem = str(error).removeprefix(quote_text(page)).lstrip(": ,")
            if not page.stat().st_size:  # a script before ncu that failed without a message, for example
                problem = f"ncu ({quote_text(ncu)}) printed nothing"
            raise file_error(path, None, f"{problem}{f'; its errors: {errors}' if errors else ''}") from None


def _read_through_module(path: Path, origin: str, limit: float) -> PageLaunches:
    """Read a report through the module at `origin`, in a process of its own: see `ncu_report_module`."""
    command = [sys.executable, "-P", ncu_report_module.__file__, str(Path(origin).parent), str(path.absolute())]
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        page = Path(folder) / "launches.json"
        with page.open("wb") as stream:
            end = run_program(command, limit, stream)
        problem = quote_text(end.errors.splitlines()[-1] if end.errors else f"exit code {end.code}")
        if end.code == ncu_report_module.NO_MODULE:  # its shared library is of another machine or Python
            raise UnavailableError(f"{_MODULE}, which reads {quote_text(path)}, cannot be imported: {problem}")
        if end.code:
            raise file_error(path, None, f"{_MODULE} cannot read it: {problem}")
        launches = PageLaunches(path, "report")
        with open_text(page) as text:
            for line in FileLines(page, text):
                kernel = json.loads(line)
                figures = kernel["figures"]
                parts = {
                    column: [figures.get(name, ("", ""))[0] for name in names] for column, names in _IDENTITY.items()
                }
                written = {
                    column: _FORMS[len(values)].format(*values) for column, values in parts.items() if all(values)
                }
                identity = {"ID": str(launches.count), **_UNKNOWN, "Kernel Name": kernel["kernel"], **written}
                launch = launches.begin(identity)
                for name, (value, unit) in figures.items():
                    launches.put(launch + 1, launch, launches.intern(name), value, parse_unit(unit))
    if not launches.count:
        raise file_error(path, None, _NO_LAUNCH)
    return launches.finish()


def parse_ncu(path: str | PathLike[str] | Any, *, timeout_s: float = SECONDS) -> pd.DataFrame:
    """Read what Nsight Compute measured: a row for each launch, in the columns of bwprof's own rows.

    Parameters
    ----------
    path : path
        What ``ncu --csv`` printed (``--page raw`` or ``--page details``, ``--print-summary`` too), in any of ncu's
        languages, with or without other lines around it; a page as plain text, whose figures are rounded; or a report
        (.ncu-rep), which ``ncu -i`` or NVIDIA's module `ncu_report` reads.
    timeout_s : float
        Longest time of ``ncu -i`` for a report, s.

    Returns
    -------
    pandas.DataFrame
        First the known ones of `bwprof.importers.frames.COLUMNS`: kernel, launch (its number in the file), case (the
        kernel's short name), device, grid, block, time_ms (ms), dram_bytes_read and dram_bytes_written (bytes),
        dram_gb_s and peak_gb_s (10^9 bytes/s), pct_peak (100 * dram_gb_s / peak_gb_s, %), occupancy_pct and its
        limiter, stall_reasons (warps per issued instruction), bank_conflicts, sectors_per_load, ...; then every metric
        under its own name in base units (bytes, s, hz, byte/s, %). NaN: not in the file. `attrs` has source, tool,
        page (raw, details, summary, text), units (metric -> base unit) and notes (what was left out, and why).

    Raises
    ------
    ValueError, OSError
        For any other file, with the line and the reason.
    bwprof.errors.UnavailableError
        For a report where neither ncu nor `ncu_report` is installed: the message has the command to run elsewhere.

    Notes
    -----
    peak_gb_s is DRAM's bytes per cycle times its clock during the launch; pct_peak is ncu's own DRAM throughput where a
    page lacks either. bank_conflicts and shared_wavefronts are those of loads and stores. sectors_per_load is 0 where
    no load was requested (a bulk copy requests none), and load_efficiency_pct is NaN then; stores likewise. flops count
    an instruction on half precision as one on a pair, as ncu's roofline does: `estimated` marks those rows.

    Examples
    --------
    >>> launches = parse_ncu("raw.csv")  # doctest: +SKIP
    >>> launches[["case", "time_ms", "dram_gb_s", "pct_peak"]]  # doctest: +SKIP
      case   time_ms    dram_gb_s   pct_peak
    0  cpy  0.501504  4235.754467  88.031665
    """
    place = parse_path(path, "path")
    if is_report(place):
        launches, tool = read_report(place, timeout_s)
    else:
        launches, tool = pages.read_page(place), "ncu"
    try:
        return build_frame(launches, str(place), tool)
    except MemoryError:
        raise file_error(place, None, "there is not enough memory for its metrics") from None
