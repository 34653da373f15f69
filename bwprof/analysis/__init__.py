"""What measurements mean: pure functions over frames and numbers; no device is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwprof.roofs.limits import attainable, classify, position, ridge, with_limits

# Where each public name lives; it is imported when it is asked for.
_HOMES = {
    "attainable": "bwprof.roofs.limits",
    "classify": "bwprof.roofs.limits",
    "position": "bwprof.roofs.limits",
    "ridge": "bwprof.roofs.limits",
    "with_limits": "bwprof.roofs.limits",
}

__all__ = ["attainable", "classify", "position", "ridge", "with_limits"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'bwprof.analysis' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
