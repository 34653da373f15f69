"""Rows made by hand, for tests of what is built on rows."""

from __future__ import annotations

from typing import Any

from bwprof.results import schema
from bwprof.results.schema import Row


def row(case: str, precision: str, *, gb_s: float | None = 100.0, bytes_read: int = 8000, **more: Any) -> Row:
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


def pair(case: str, fp32_gb_s: float, fp16_gb_s: float, **more: Any) -> list[Row]:
    """A case in FP32 and, with half the bytes, in FP16."""
    return [
        row(case, "fp32", gb_s=fp32_gb_s, bytes_read=8000, **more),
        row(case, "fp16", gb_s=fp16_gb_s, bytes_read=4000, **more),
    ]
