"""Results: rows and their columns, the files that hold them, and reading any of these files.

``load``, ``load_samples``, ``read_rows`` and ``save`` are imported when they are used, as are this package's modules.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwprof.results.reader import load as load
    from bwprof.results.reader import load_samples as load_samples
    from bwprof.results.reader import read_rows as read_rows
    from bwprof.results.reader import save as save

__all__ = ["load", "load_samples", "read_rows", "save"]


def __getattr__(name: str) -> Any:
    """Import a public function, or a module of this package, when it is first used."""
    if name in __all__:
        return getattr(importlib.import_module("bwprof.results.reader"), name)
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
