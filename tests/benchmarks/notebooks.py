"""Run the notebooks again and keep what they give: `python3 tests/benchmarks/notebooks.py [NOTEBOOK...]`.

On an idle machine: they measure. Each runs in a folder of its own with a kernel of this Python; the roofs that the
first one measures serve the others. One that fails is left as it is.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec

ROOT = Path(__file__).resolve().parents[2]


class Here(KernelManager):
    """A kernel of this Python, whatever `python3` is registered as."""

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
        )


def run(path: Path) -> None:
    """Every cell from the first, in a new kernel; the file is written when all have run."""
    book = nbformat.read(path, as_version=4)
    kept = json.loads(json.dumps(book.metadata))
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            book,
            timeout=600,
            km=Here(),
            record_timing=False,
            resources={"metadata": {"path": folder}},
        ).execute()
    book.metadata = nbformat.from_dict(kept)  # of whose Python it was nothing depends
    path.write_text(nbformat.writes(book) + "\n", encoding="utf-8")


def main() -> None:
    """The command."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = [Path(name) for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_CACHE_HOME": folder, "IPYTHONDIR": folder}
        for path in given or sorted((ROOT / "notebooks").glob("*.ipynb")):
            sys.stderr.write(f"{path.name}\n")
            run(path)


if __name__ == "__main__":
    main()
