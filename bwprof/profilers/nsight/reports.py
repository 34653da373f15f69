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
from bwprof.profilers.reading import wrong
from bwprof.profilers.units import unit
from bwprof.text import quoted, seconds

SECONDS = 600.0
_SUFFIXES = (".ncu-rep", ".ncu-repz", ".nsight-cuprof-report")
_MAGIC = b"NVR\0"
_MODULE = "ncu_report"


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
    with path.open("rb"):  # OSError for what cannot be opened
        pass
    if not path.is_file():
        raise wrong(path, None, "this is no regular file: a report of ncu is needed")
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
            raise wrong(path, None, f"ncu cannot read it (exit code {ended.code}): {ended.said or _said_in(page)}")
        try:
            return pages.read(page)
        except ValueError as error:
            said = str(error).removeprefix(quoted(page)).lstrip(": ,")
            raise wrong(path, None, f"what ncu printed of it: {said}") from None


def _said_in(page: Path) -> str:
    return page.read_bytes()[:400].decode("utf-8", "replace").strip()


def _through_module(path: Path) -> Launches:
    module: Any = importlib.import_module(_MODULE)
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
    launch = launches.begin({"ID": str(launches.count), "Kernel Name": str(action.name())})
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        if metric is not None:
            value = metric.value()
            written = "" if value is None else str(value)
            launches.put(launch + 1, launch, launches.shared(str(name)), written, unit(str(metric.unit() or "")))
