"""The notebooks run, and have their outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import environment

pytestmark = pytest.mark.usefixtures("one_thread")

nbformat = pytest.importorskip("nbformat", reason="nbformat, of the extra 'test', is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient, of the extra 'test', is not installed")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
# A function's or an import's cell says nothing.
_SILENT = ("def ", "import ", "from ")


# Planted into the kernels: what they measure is no figure of anybody's, so the roofs are rough, and taken as they are
# once they are stored; samples are few, pictures small, and a suite's streams no larger than its other cases.
ROUGHLY = """
import functools, importlib
import matplotlib
matplotlib.rcParams["figure.dpi"] = 40
obtain, survey = (importlib.import_module(f"bwprof.roofs.{name}") for name in ("obtain", "survey"))
survey.measure = functools.partial(survey.measure, budget_seconds=0.1)
obtain._Job.check = lambda job, stored: stored
function = importlib.import_module("bwprof.measuring.function")
timed = function.time_call
function.time_call = lambda device, subject, options, *rest: timed(
    device, subject, options | {"max_seconds": 0.01}, *rest
)
loop = importlib.import_module("bwprof.runs.loop")
loop.share_seconds = lambda *_: 0.01
loop.AGAIN_SHARE = 0.0
paired = importlib.import_module("bwprof.experiments.ab")
seconds = paired.parse_seconds
paired.parse_seconds = lambda *given: min(seconds(*given), 0.3)
suites = importlib.import_module("bwprof.runs.suites")
parsed = suites.parse
suites.parse = lambda content, **names: parsed(content.replace(b'"64Mi"', b'"4Mi"'), **names)
"""


def code(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def kinds(cell: Any) -> set[str]:
    """Return the kinds of a cell's outputs: types, "error" or "stderr"."""
    found: set[str] = set()
    for output in cell.outputs:
        found |= {output.name} if output.output_type == "stream" else set(output.get("data", {"error": ""}))
    return found


def recorded(book: Any) -> list[str]:
    """Return the outputs, without pictures, that show a recorded run alone: equal on every machine."""
    cells = [cell for cell in code(book) if re.search(r"\b(h200|there)\b", cell.source) and " here" not in cell.source]
    found = [output.get("data", {}) for cell in cells for output in cell.outputs]
    return [data["text/plain"] for data in found if "text/plain" in data and "image/png" not in data]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def book(request: pytest.FixtureRequest) -> Any:
    return nbformat.read(request.param, as_version=4)


def test_every_notebook_is_there() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]


def test_a_notebook_has_its_outputs(book: Any) -> None:
    assert [cell.execution_count for cell in code(book)] == list(range(1, len(code(book)) + 1))
    for cell in code(book):
        last = cell.source.splitlines()[-1]
        if not last.startswith((" ", *_SILENT)):
            assert cell.outputs, cell.source
        assert "error" not in kinds(cell), cell.source


@pytest.fixture(scope="module")
def client(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run notebooks one after the other in one kernel, because its start takes as long as a notebook; they share stored
    roofs.
    """
    folder = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment(folder, ROUGHLY, briefly=False, draws=True)["PYTHONPATH"])
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        runs = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=300, kernel_name="python3")
        yield runs
        runs.nb = nbformat.v4.new_notebook()
        runs.execute()  # as it owns the kernel, it ends that


def test_a_notebook_runs(book: Any, tmp_path: Path, client: Any) -> None:
    """Cells run in a folder of their own, without names of other notebooks."""
    kept, told = [kinds(cell) for cell in code(book)], recorded(book)
    client.nb = book
    book.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}"))
    client.execute(cleanup_kc=False)
    assert kinds(book.cells.pop(0)) == set()
    for cell, before in zip(code(book), kept, strict=True):
        if "torch" not in cell.source:  # where it is not installed that cell says so, and no more
            assert kinds(cell) - {"stderr"} == before - {"stderr"}, cell.source
    assert recorded(book) == told  # else what it shows is of an older bwprof: run it again
