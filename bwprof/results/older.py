"""A frame whose columns still answer to the names that they had in the version before."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bwprof.renamed import warn

_NAMES = {
    "bandwidth_ratio": "bandwidth_vs_fp32",
    "byte_ratio": "byte_ratio_vs_fp32",
    "time_speedup": "speedup_vs_fp32",
}


class OlderNames(pd.DataFrame):
    """What `bwprof.summary` gives: ``frame["time_speedup"]`` is ``frame["speedup_vs_fp32"]``, with a warning.

    What is made of it is a plain frame.
    """

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            key = _now(key)
        elif isinstance(key, list):
            key = [_now(name) for name in key]
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:  # type: ignore[misc]
        return self[name] if name in _NAMES else super().__getattr__(name)


def _now(name: Any) -> Any:
    if not isinstance(name, str) or name not in _NAMES:
        return name
    warn(f"column '{name}'", f"column '{_NAMES[name]}'")
    return _NAMES[name]
