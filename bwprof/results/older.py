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

    So are ``frame.time_speedup``, ``frame.get("time_speedup")`` and ``"time_speedup" in frame``; `loc`, and whatever
    else takes columns' names, knows the new ones only. What is made of it is a plain frame.
    """

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(_all_now(key))

    def get(self, key: Any, default: Any = None) -> Any:
        """The column, or columns, if they are there."""
        return super().get(_all_now(key), default)

    def __contains__(self, key: object) -> bool:  # type: ignore[misc]
        return super().__contains__(_now(key))

    def __getattr__(self, name: str) -> Any:  # type: ignore[misc]
        return self[name] if name in _NAMES else super().__getattr__(name)


def _all_now(key: Any) -> Any:
    return [_now(name) for name in key] if isinstance(key, list) else _now(key)


def _now(name: Any) -> Any:
    if not isinstance(name, str) or name not in _NAMES:
        return name
    warn(f"column '{name}'", f"column '{_NAMES[name]}'")
    return _NAMES[name]
