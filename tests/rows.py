"""Rows made by hand, for tests of what is built on rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.results import json_file, schema
from bwprof.results.atomic import atomic_write
from bwprof.results.reader import load
from bwprof.results.schema import RowDict

if TYPE_CHECKING:
    import pandas as pd

# Each would be more than text where somebody forgot to escape it.
HOSTILE = (
    "<script>window.hacked=1</script>",
    '"onmouseover="window.hacked=1',
    "' autofocus onfocus='window.hacked=1",
    "]]></style><img src=x onerror=window.hacked=1>",
    "--><svg onload=window.hacked=1>",
    "&lt;b&gt;&#60;i&#62;",
    "\u202eright to left\u202c \u05d0\u05d1",
    "bell\x07 and \x1b[31mred\x1b[0m",
    "[a link](javascript:window.hacked=1) `code` | pipe",
    "A" * 10_000,
)


def load_samples(path: Any) -> list[list[float] | None]:
    """Return the raw samples of a file or a folder, a list per row."""
    return list(load(path, samples=True)["samples_ns"])


def write_json(path: Path, rows: Sequence[RowDict], samples: Sequence[Any], run: dict[str, Any]) -> None:
    """Write rows, their raw samples and a run's metadata as a JSON file."""
    atomic_write(path, json_file.json_text(rows, samples, run))


def row(case: str, precision: str, *, gb_s: float | None = 100.0, bytes_read: int = 8000, **more: Any) -> RowDict:
    """A finished row: 100 GB/s over 8 kB read and 2 kB written unless said otherwise, that is 100 ns."""
    result = schema.empty_row()
    moved = bytes_read + bytes_read // 4
    result.update(
        operation="gemm",
        precision=precision,
        M=1,
        N=896,
        K=896,
        beta=0,
        case=case,
        backend="cpu",
        device="Test CPU",
        variant="plain",
        cache="cold",
        status="ok",
        bytes_read=bytes_read,
        bytes_written=bytes_read // 4,
        bandwidth_gb_s=gb_s,
        time_ms=moved / gb_s / 1e6 if gb_s else None,
        flags="",
        seed=0,
        run_id="run-1",
        timestamp="2026-01-01T00:00:00.000+00:00",
        schema_version=schema.SCHEMA_VERSION,
    )
    result.update(more)
    return result


def pair(case: str, fp32_gb_s: float, fp16_gb_s: float, **more: Any) -> list[RowDict]:
    """A case in FP32 and, with half the bytes, in FP16."""
    return [
        row(case, "fp32", gb_s=fp32_gb_s, bytes_read=8000, **more),
        row(case, "fp16", gb_s=fp16_gb_s, bytes_read=4000, **more),
    ]


def hostile_frame(texts: tuple[str, ...] = HOSTILE) -> pd.DataFrame:
    """Rows, and a run's metadata, whose texts all mean harm: three rows for each text."""
    from bwprof.results import frame as results_frame

    rows = []
    for text in texts:
        told = dict.fromkeys(("device", "variant", "flags", "reason", "driver", "hostname", "timer", "throttle"), text)
        rows += pair(text, 100.0, 80.0, attainable_gb_s=120.0, label=text, **told)
        rows.append(row(text, "fp32", gb_s=None, status="skipped", reason=text))
    run = {"argv": list(texts), "host": {"name": texts[0]}, "versions": {"bwprof": texts[1]}, "suite": texts[2]}
    run |= {"facts": {"peak_source": texts[3], "peak_tflops": {texts[0]: 1.0}}, "roofs": {"points": texts[4]}}
    frame = results_frame.frame(rows)
    frame.attrs = {"run": {**run, "environment": {texts[0]: texts[1]}, "git_commit": texts[3]}}
    return frame
