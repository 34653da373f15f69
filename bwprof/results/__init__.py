"""Rows and their columns, and the files of results.

The functions in `__all__` and the modules are imported at first use.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwprof.results.reader import load as load
    from bwprof.results.reader import read_rows as read_rows
    from bwprof.results.reader import save as save

__all__ = ["load", "read_rows", "save"]


def __getattr__(name: str) -> Any:
    """Import a public function, or a module of this package."""
    if name in __all__:
        return getattr(importlib.import_module("bwprof.results.reader"), name)
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
