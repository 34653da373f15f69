"""What the index keeps of a row, and in which form.

What many rows have in common is kept once, under a number that is a digest of it: the *case* (what ran, where), and the
*remark* (how it ended). A row is then three whole numbers and its figures, and a run's rows are two arrays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np

from bwprof import _core
from bwprof.results import schema

# Of a run, from its metadata.
RUN = ("run_id", "started", "finished", "status", "suite", "git_commit")
# Of a row.
REMARK = ("status", "reason", "flags", "throttle", "limiter", "verified")
FIGURES = (
    "time_ms",
    "time_ms_lo",
    "time_ms_hi",
    "bandwidth_gb_s",
    "pct_peak",
    "pct_attainable",
    "pct_limit",
    "traffic_ratio",
    "noise",
    "sm_clock_mhz",
)
KEYS = ("case", "remark", "timestamp")
LABELS = "labels"  # the caller's own columns, as one JSON text behind a case's others
NO_TIME = -(2**63)  # NumPy's own for a time that is not known
_FORMAT = 2


@cache
def case_names() -> tuple[str, ...]:
    """The columns of a case."""
    where = ("backend", "device", "device_uuid", "hostname", "driver", "bwprof_version")
    work = ("bytes_read", "bytes_written", "flops")
    named = ("operation", "precision", "case", "variant", "cache", "timer")
    return (*named, *schema.all_param_names(), "kv_lens", *where, *work)


@cache
def described() -> str:
    """What an index must have been made with to be of use."""
    parts = (_FORMAT, _core.__version__, schema.SCHEMA_VERSION, RUN, case_names(), REMARK, KEYS, FIGURES)
    return json.dumps(parts)


def number_of(text: str) -> int:
    """A digest of 64 bits."""
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def microseconds(text: Any) -> int:
    """A time as rows and metadata have it, since 1970 in UTC; `NO_TIME` for what is none.

    Examples
    --------
    >>> microseconds("1970-01-01T00:00:01.500+00:00"), microseconds("yesterday") == NO_TIME
    (1500000, True)
    """
    if not isinstance(text, str):
        return NO_TIME
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        since = found - _EPOCH
    except (ValueError, OverflowError):
        return NO_TIME
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain_case(values: Mapping[str, Any], labels: str) -> str:
    """The text of a case; ValueError for a value that its column cannot hold."""
    return json.dumps([*_normalised(values, case_names()), labels])


def plain_remark(values: Mapping[str, Any]) -> str:
    """The text of a remark, likewise."""
    return json.dumps(_normalised(values, REMARK))


def _normalised(values: Mapping[str, Any], names: tuple[str, ...]) -> list[Any]:
    kinds = schema.kinds()
    return [schema.normalise(values.get(name), kinds[name]) for name in names]


def keys_array(content: bytes) -> Any:
    """Rows by `KEYS`, of one run or of several one after the other."""
    return np.frombuffer(content, dtype="<i8").reshape(-1, len(KEYS))


def figures_array(content: bytes) -> Any:
    """Rows by `FIGURES`, likewise."""
    return np.frombuffer(content, dtype="<f8").reshape(-1, len(FIGURES))
