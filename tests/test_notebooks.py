"""The notebooks run as they stand, and keep what they gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat, of the extra 'test', is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient, of the extra 'test', is not installed")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
# A function's or an import's cell says nothing.
_SILENT = ("def ", "import ", "from ")


def code(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def kinds(cell: Any) -> set[str]:
    """What a cell gave: types of its outputs, and "error" or "stderr"."""
    found: set[str] = set()
    for output in cell.outputs:
        found |= {output.name} if output.output_type == "stream" else set(output.get("data", {"error": ""}))
    return found


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def book(request: pytest.FixtureRequest) -> Any:
    return nbformat.read(request.param, as_version=4)


def test_there_are_all() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]


def test_it_keeps_what_it_gave(book: Any) -> None:
    assert [cell.execution_count for cell in code(book)] == list(range(1, len(code(book)) + 1))
    for cell in code(book):
        last = cell.source.splitlines()[-1]
        if not last.startswith((" ", *_SILENT)):
            assert cell.outputs, cell.source
        assert "error" not in kinds(cell), cell.source


def test_it_runs(book: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell, in a folder of its own; pictures appear by themselves."""
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    kept = [kinds(cell) for cell in code(book)]
    resources: dict[str, Any] = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources=resources).execute()
    for cell, before in zip(code(book), kept, strict=True):
        if "torch" not in cell.source:  # where it is not installed that cell says so, and no more
            assert kinds(cell) - {"stderr"} == before - {"stderr"}, cell.source
