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
from bwprof.importers.ncu.launches import PageLaunches
from bwprof.importers.reader import FileLines, file_error, open_binary, open_text, parse_unit
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import parse_path, parse_seconds, quote_text

if TYPE_CHECKING:
    import pandas as pd

_MOST_OUTPUT = 2000  # letters of what a program complained about


class ProgramEnd(NamedTuple):
    """How a program ended, and the last that it said on its standard error."""

    code: int
    said: str


def find(name: str) -> str | None:
    """The path of a profiler's program; None where there is none."""
    return environment.find_profiler(name)


def run_program(command: Sequence[str], limit_s: float | None, output: IO[bytes]) -> ProgramEnd:
    """Run a program, its output to a file; what it started ends with it.

    Raises
    ------
    UnavailableError
        When it cannot be started, or takes longer than the limit.
    """
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
        said = read_end(errors, _MOST_OUTPUT)
    return ProgramEnd(code, said)


def read_end(stream: IO[bytes], most: int) -> str:
    """The last bytes of a file as text, however much stands before them."""
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
    return stream.read(most).decode("utf-8", "replace").strip()


SECONDS = 600.0

_SUFFIXES = (".ncu-rep", ".ncu-repz", ".nsight-cuprof-report")

_MAGIC = b"NVR\0"

_MODULE = "ncu_report"

# What a page says of a launch beside its metrics: of which of these, and how it writes one or several of them.
_IDENTITY = {
    "Context": ("launch__context_id",),
    "Stream": ("launch__stream_id",),
    "Block Size": tuple(f"launch__block_dim_{axis}" for axis in "xyz"),
    "Grid Size": tuple(f"launch__grid_dim_{axis}" for axis in "xyz"),
    "Device": ("launch__device_id",),
    "CC": ("device__attribute_compute_capability_major", "device__attribute_compute_capability_minor"),
}

_WHOLE_NAMES = ["--rename-kernels", "0"]  # with namespaces, as the module has them

_UNKNOWN = ("Process ID", "Process Name", "Host Name")  # what a page says, and the module does not

_FORMS = {1: "{}", 2: "{}.{}", 3: "({}, {}, {})"}


def is_report(path: Path) -> bool:
    """Whether a file is ncu's own report: by its name, or by how it begins."""
    if path.name.lower().endswith(_SUFFIXES):
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def build_import_command(path: Path, ncu: str = "ncu") -> list[str]:
    """The arguments that print a report's raw page."""
    name = str(path)
    return [ncu, "-i", f"./{name}" if name.startswith("-") else name, "--csv", "--page", "raw", "--print-units", "base"]


def read_report(path: Path, timeout_s: float) -> tuple[PageLaunches, str]:
    """The launches of a report, and what read it."""
    limit = parse_seconds(timeout_s, "timeout_s")
    with open_binary(path):  # OSError for what cannot be opened, ValueError for what is no file
        pass
    ncu = find("ncu")
    if ncu is not None:
        return _through_ncu(path, ncu, limit), "ncu"
    found = importlib.util.find_spec(_MODULE)
    if found is not None and found.origin:
        return _through_module(path, found.origin, limit), _MODULE
    raise UnavailableError(
        f"{quote_text(path)} is a report, which only ncu can read, and there is none here. Where there is: "
        f"{shlex.join(build_import_command(path))} > {shlex.quote(path.stem + '.csv')}; that file can be read anywhere"
    )


def _through_ncu(path: Path, ncu: str, limit: float) -> PageLaunches:
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        page = Path(folder) / "raw.csv"
        for names in (_WHOLE_NAMES, []):  # older ones do not know the option, and print them whole
            with page.open("wb") as stream:
                ended = run_program([*build_import_command(path, ncu), *names], limit, stream)
            if not ended.code:
                break
        if ended.code:
            raise file_error(
                path,
                None,
                f"ncu cannot read it (exit code {ended.code}): {quote_text(ended.said) or _last_message(page)}",
            )
        try:
            return pages.read_page(page)
        except ValueError as error:
            if not page.stat().st_size:  # a script before ncu that failed without saying so, for example
                raise file_error(
                    path,
                    None,
                    f"ncu printed nothing of it: {quote_text(ended.said) or 'nor said why'} ({quote_text(ncu)})",
                ) from None
            said = str(error).removeprefix(quote_text(page)).lstrip(": ,")
            also = f"; it complained: {quote_text(ended.said)}" if ended.said else ""
            raise file_error(path, None, f"what ncu printed of it: {said}{also}") from None


def _last_message(page: Path) -> str:
    with page.open("rb") as stream:
        return quote_text(stream.read(400).decode("utf-8", "replace").strip())


def _through_module(path: Path, origin: str, limit: float) -> PageLaunches:
    """What the module that lies there says, in a process of its own: see `module`."""
    command = [sys.executable, "-P", ncu_report_module.__file__, str(Path(origin).parent), str(path.absolute())]
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        page = Path(folder) / "launches.json"
        with page.open("wb") as stream:
            ended = run_program(command, limit, stream)
        said = quote_text(ended.said.splitlines()[-1] if ended.said else f"exit code {ended.code}")
        if ended.code == ncu_report_module.NO_MODULE:  # its shared library is of another machine or Python
            raise UnavailableError(f"{_MODULE}, which reads {quote_text(path)}, cannot be imported: {said}")
        if ended.code:
            raise file_error(path, None, f"{_MODULE} cannot read it: {said}")
        launches = PageLaunches(path, "report")
        with open_text(page) as text:
            for line in FileLines(page, text):
                _take(launches, json.loads(line))
    if not launches.count:
        raise file_error(path, None, "the report holds no launch: did ncu profile any kernel?")
    return launches.finish()


def _take(launches: PageLaunches, told: dict[str, Any]) -> None:
    """A kernel as a page has it."""
    figures = told["figures"]
    parts = {column: [figures.get(name, ("", ""))[0] for name in names] for column, names in _IDENTITY.items()}
    written = {column: _FORMS[len(of)].format(*of) for column, of in parts.items() if all(of)}
    unknown = dict.fromkeys(_UNKNOWN, "")
    named = {"ID": str(launches.count), **unknown, "Kernel Name": told["kernel"], **written}
    launch = launches.begin(named)
    for name, (value, of) in figures.items():
        launches.put(launch + 1, launch, launches.shared(name), value, parse_unit(of))


def parse_ncu(path: str | PathLike[str] | Any, *, timeout_s: float = SECONDS) -> pd.DataFrame:
    """What Nsight Compute measured, a row a launch, in the columns that bwprof's own rows have.

    Parameters
    ----------
    path : path
        What ``ncu --csv`` printed (``--page raw`` or ``--page details``, ``--print-summary`` too), with or without the
        lines of ncu and the program around it, from ncu's languages and any card; both pages as plain text, as well as
        that can be (figures are rounded there); or a report (.ncu-rep), which ``ncu -i`` turns into a page, or NVIDIA's
        module `ncu_report`.
    timeout_s : float
        Seconds that ``ncu -i`` may take for a report.

    Returns
    -------
    pandas.DataFrame
        First what `bwprof.importers.frames.COLUMNS` lists, as far as it is known: kernel, launch (its number in the
        file), case (the kernel's short name), device, grid, block, time_ms (ms), dram_bytes_read and dram_bytes_written
        (bytes), dram_gb_s and peak_gb_s (10^9 bytes a second), pct_peak (100 * dram_gb_s / peak_gb_s, %), occupancy_pct
        and its limiter, stall_reasons (warps per issued instruction), bank_conflicts, sectors_per_load, ...; then every
        metric under its own name in base units (bytes, s, hz, byte/s, %). NaN: not in the file. `attrs` holds source,
        tool, page (raw, details, summary, text), units (metric -> base unit) and notes (what was left out, and why).

    Raises
    ------
    ValueError
        For a file that is none of these, with the line and the reason.
    OSError
        For what cannot be opened.
    bwprof.errors.UnavailableError
        For a report where neither ncu nor `ncu_report` can be had: the message names the command to run elsewhere.

    Notes
    -----
    peak_gb_s is DRAM's bytes a cycle times its clock; where a page tells neither, pct_peak is ncu's own DRAM throughput
    (`dram_pct`), and a note says so. Its clock is that of the launch: the peaks of short ones differ by some 0.3 %.
    bank_conflicts and shared_wavefronts are those of loads and stores. sectors_per_load is 0 where no load was
    requested (a bulk copy requests none), and load_efficiency_pct unknown; stores likewise. flops count an instruction
    on half precision as one on a pair, as ncu's roofline does: `estimated` says where there are any.

    Examples
    --------
    >>> import bwprof.importers
    >>> found = bwprof.importers.parse_ncu("raw.csv")  # doctest: +SKIP
    >>> found[["case", "time_ms", "dram_gb_s", "pct_peak"]]  # doctest: +SKIP
      case   time_ms    dram_gb_s   pct_peak
    0  cpy  0.501504  4235.754467  88.031665
    """
    given = parse_path(path, "path")
    if is_report(given):
        launches, tool = read_report(given, timeout_s)
    else:
        launches, tool = pages.read_page(given), "ncu"
    try:
        return build_frame(launches, str(given), tool)
    except MemoryError:
        raise file_error(given, None, "there is not enough memory for its metrics") from None
