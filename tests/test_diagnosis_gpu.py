"""Diagnosis of bwprof's own kernels on a GPU; tests/benchmarks/diagnose_planted.py has planted ones."""

from __future__ import annotations

from typing import Any

import pytest

import bwprof
from bwprof import _core
from bwprof.analysis.diagnosis.diagnose import diagnose_rows
from bwprof.analysis.diagnosis.hypothesis import REFUTED, SUPPORTED


def counted(operation: str, **options: Any) -> dict[str, Any]:
    """Measure one row with all counters; skip where they cannot be read."""
    frame = bwprof.sweep(operation, device="cuda", counters=True, metrics="all", precision="fp32", **options)
    row = {str(name): value for name, value in frame.iloc[0].to_dict().items()}
    if row["counters_status"] != "ok" or row["metrics_status"] != "ok":
        pytest.skip(f"not counted: {row['counters_status']}, {row['metrics_status']}")
    return row


@pytest.mark.cuda
def test_a_copy_is_at_the_memorys_roof() -> None:
    (found,) = diagnose_rows(counted("stream_copy", elements=1 << 26))
    verdicts = {entry.hypothesis.name: entry.verdict for entry in found.verdicts}
    assert found.of(SUPPORTED)[0].hypothesis.name == "memory_bound"
    for name in ("latency_bound", "compute_bound", "low_occupancy", "bank_conflicts", "cache_thrash", "materialized"):
        assert verdicts[name] == REFUTED, found.sentence
    assert bwprof.stalls(found.row).groups["Memory Dependency"] > 40


@pytest.mark.cuda
def test_a_tiny_copy_is_a_launch() -> None:
    (found,) = diagnose_rows(counted("stream_copy", elements=1024))
    assert found.of(SUPPORTED)[0].hypothesis.name == "launch_bound", found.sentence


@pytest.mark.cuda
def test_a_function_is_counted_as_an_operation_is() -> None:
    """`metrics="all"` counts the same for a call and for the case that it launches."""
    with _core.Device("cuda", 0) as gpu, _core.Case(gpu, "stream_copy", "fp32", {"elements": 1 << 26}) as case:
        case.launch()
        row = bwprof.measure(
            case.enqueue,
            stream=gpu.stream,
            metrics="all",
            counters=True,
            bytes_read=1 << 28,
            bytes_written=1 << 28,
            roofs="auto",
        )
    if row["metrics_status"] != "ok":
        pytest.skip(f"not counted: {row['metrics_status']}")
    own = counted("stream_copy", elements=1 << 26)
    assert bwprof.stall_table(row)["pct"].sum() == pytest.approx(100)
    assert row["occupancy_pct"] == pytest.approx(own["occupancy_pct"], rel=0.1)
    assert row["sectors_per_load"] == own["sectors_per_load"] == 16
    (found,) = diagnose_rows(dict(row))
    assert found.of(SUPPORTED)[0].hypothesis.name == "memory_bound", found.sentence
