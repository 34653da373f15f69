"""ncu's own reports (.ncu-rep): turned into a page by ``ncu -i``, or read by NVIDIA's module `ncu_report`."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import tempfile
from pathlib import Path
from typing import Any

from bwprof.errors import UnavailableError
from bwprof.profilers.nsight import pages
from bwprof.profilers.nsight.launches import Launches
from bwprof.profilers.nsight.running import find, run
from bwprof.profilers.reading import opened_raw, wrong
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
    if importlib.util.find_spec(_MODULE) is not None:
        return _through_module(path), _MODULE
    raise UnavailableError(
        f"{quoted(path)} is a report, which only ncu can read, and there is none here. Where there is: "
        f"{shlex.join(import_command(path))} > {shlex.quote(path.stem + '.csv')}; that file can be read anywhere"
    )


def _through_ncu(path: Path, ncu: str, limit: float) -> Launches:
    with tempfile.TemporaryDirectory(prefix="bwprof-ncu-") as folder:
        page = Path(folder) / "raw.csv"
        with page.open("wb") as stream:
            ended = run(import_command(path, ncu), limit, stream)
        if ended.code:
            raise wrong(
                path, None, f"ncu cannot read it (exit code {ended.code}): {quoted(ended.said) or _said_in(page)}"
            )
        try:
            return pages.read(page)
        except ValueError as error:
            said = str(error).removeprefix(quoted(page)).lstrip(": ,")
            raise wrong(path, None, f"what ncu printed of it: {said}") from None


def _said_in(page: Path) -> str:
    with page.open("rb") as stream:
        return quoted(stream.read(400).decode("utf-8", "replace").strip())


def _through_module(path: Path) -> Launches:
    try:
        module: Any = importlib.import_module(_MODULE)
    except ImportError as error:  # its shared library is of another machine or Python
        raise UnavailableError(f"{_MODULE}, which reads {quoted(path)}, cannot be imported: {quoted(error)}") from None
    launches = Launches(path, "report")
    try:
        report = module.load_report(str(path))
        for number in range(report.num_ranges()):
            part = report.range_by_idx(number)
            for index in range(part.num_actions()):
                _take(launches, part.action_by_idx(index))
    except (AttributeError, RuntimeError, TypeError) as error:
        raise wrong(path, None, f"{_MODULE} cannot read it: {error}") from None
    if not launches.count:
        raise wrong(path, None, "the report holds no launch: did ncu profile any kernel?")
    return launches.finish()


def _take(launches: Launches, action: Any) -> None:
    """A kernel as a page has it; by itself it would give its name without what it takes."""
    base = getattr(action, "NameBase_DEMANGLED", None)
    kernel = action.name() if base is None else action.name(base)
    figures = {str(name): _figure(action.metric_by_name(name)) for name in action.metric_names()}
    told = {column: [figures.get(name, ("", ""))[0] for name in names] for column, names in _IDENTITY.items()}
    written = {column: _FORMS[len(parts)].format(*parts) for column, parts in told.items() if all(parts)}
    launch = launches.begin({"ID": str(launches.count), "Kernel Name": str(kernel), **written})
    for name, (value, of) in figures.items():
        launches.put(launch + 1, launch, launches.shared(name), value, unit(of))


def _figure(metric: Any) -> tuple[str, str]:
    """A metric's value, empty where there is none, and its unit."""
    value = None if metric is None else metric.value()
    return ("", "") if value is None else (str(value), str(metric.unit() or ""))
