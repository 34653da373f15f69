"""ncu's own reports (.ncu-rep): turned into a page by ``ncu -i``, or read by NVIDIA's module `ncu_report`."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from bwprof.errors import UnavailableError
from bwprof.profilers.nsight import module, pages
from bwprof.profilers.nsight.launches import Launches
from bwprof.profilers.nsight.running import find, run
from bwprof.profilers.reading import Lines, opened, opened_raw, wrong
from bwprof.profilers.units import unit
from bwprof.text import quoted, seconds

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


def import_command(path: Path, ncu: str = "ncu") -> list[str]:
    """The arguments that print a report's raw page."""
    name = str(path)
    return [ncu, "-i", f"./{name}" if name.startswith("-") else name, "--csv", "--page", "raw", "--print-units", "base"]


def read(path: Path, timeout_s: float) -> tuple[Launches, str]:
    """The launches of a report, and what read it."""
    limit = seconds(timeout_s, "timeout_s")
    with opened_raw(path):  # OSError for what cannot be opened, ValueError for what is no file
        pass
    ncu = find("ncu")
    if ncu is not None:
        return _through_ncu(path, ncu, limit), "ncu"
    found = importlib.util.find_spec(_MODULE)
    if found is not None and found.origin:
        return _through_module(path, found.origin, limit), _MODULE
    raise UnavailableError(
        f"{quoted(path)} is a report, which only ncu can read, and there is none here. Where there is: "
        f"{shlex.join(import_command(path))} > {shlex.quote(path.stem + '.csv')}; that file can be read anywhere"
    )


def _through_ncu(path: Path, ncu: str, limit: float) -> Launches:
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        page = Path(folder) / "raw.csv"
        for names in (_WHOLE_NAMES, []):  # older ones do not know the option, and print them whole
            with page.open("wb") as stream:
                ended = run([*import_command(path, ncu), *names], limit, stream)
            if not ended.code:
                break
        if ended.code:
            raise wrong(
                path, None, f"ncu cannot read it (exit code {ended.code}): {quoted(ended.said) or _said_in(page)}"
            )
        try:
            return pages.read(page)
        except ValueError as error:
            if not page.stat().st_size:  # a script before ncu that failed without saying so, for example
                raise wrong(
                    path, None, f"ncu printed nothing of it: {quoted(ended.said) or 'nor said why'} ({quoted(ncu)})"
                ) from None
            said = str(error).removeprefix(quoted(page)).lstrip(": ,")
            also = f"; it complained: {quoted(ended.said)}" if ended.said else ""
            raise wrong(path, None, f"what ncu printed of it: {said}{also}") from None


def _said_in(page: Path) -> str:
    with page.open("rb") as stream:
        return quoted(stream.read(400).decode("utf-8", "replace").strip())


def _through_module(path: Path, origin: str, limit: float) -> Launches:
    """What the module that lies there says, in a process of its own: see `module`."""
    command = [sys.executable, "-P", module.__file__, str(Path(origin).parent), str(path.absolute())]
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        page = Path(folder) / "launches.json"
        with page.open("wb") as stream:
            ended = run(command, limit, stream)
        said = quoted(ended.said.splitlines()[-1] if ended.said else f"exit code {ended.code}")
        if ended.code == module.NO_MODULE:  # its shared library is of another machine or Python
            raise UnavailableError(f"{_MODULE}, which reads {quoted(path)}, cannot be imported: {said}")
        if ended.code:
            raise wrong(path, None, f"{_MODULE} cannot read it: {said}")
        launches = Launches(path, "report")
        with opened(page) as text:
            for line in Lines(page, text):
                _take(launches, json.loads(line))
    if not launches.count:
        raise wrong(path, None, "the report holds no launch: did ncu profile any kernel?")
    return launches.finish()


def _take(launches: Launches, told: dict[str, Any]) -> None:
    """A kernel as a page has it."""
    figures = told["figures"]
    parts = {column: [figures.get(name, ("", ""))[0] for name in names] for column, names in _IDENTITY.items()}
    written = {column: _FORMS[len(of)].format(*of) for column, of in parts.items() if all(of)}
    unknown = dict.fromkeys(_UNKNOWN, "")
    named = {"ID": str(launches.count), **unknown, "Kernel Name": told["kernel"], **written}
    launch = launches.begin(named)
    for name, (value, of) in figures.items():
        launches.put(launch + 1, launch, launches.shared(name), value, unit(of))
