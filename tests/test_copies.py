"""Copies between host and device: their roof is the link, which a CPU does not have."""

from __future__ import annotations

import math

import pytest
from rows import row
from test_roofs import FACTS, ROOFS, result_of

import bwprof
from bwprof import _core, registry
from bwprof.measuring import operation
from bwprof.measuring.row import Context

LINK = FACTS | {"link": "PCIe 5.0 x16", "link_gb_s": 63.0, "host_numa_node": 1}
COPIES = [each["name"] for each in registry.operations() if each["is_link"]]


def finished(read: int, written: int, gb_s: float, facts: dict[str, object] = LINK) -> dict[str, object]:
    """A row of a copy at so many GB/s in both directions together."""
    made = row("a", "fp32", operation=COPIES[-1], flops=0, arithmetic_intensity=0.0)
    made.update(bytes_read=read, bytes_written=written, status=None, flags=None)
    context = Context("run-1", "cuda", facts, ROOFS)
    return operation.finish_row(made, result_of((read + written) / gb_s), context).row


@pytest.mark.parametrize(
    ("read", "written", "gb_s", "peak", "limiter"),
    [
        (10**8, 0, 54.7, 63.0, "link"),
        (0, 10**8, 54.7, 63.0, "link"),
        (10**8, 10**8, 100.8, 126.0, "link"),
        (10**8, 0, 17.3, 63.0, "kernel"),
        (4096, 0, 0.9, 63.0, "latency"),
    ],
)
def test_the_roof_of_a_copy_is_the_link(read: int, written: int, gb_s: float, peak: float, limiter: str) -> None:
    """Each direction has the whole of it; the streams of the device's memory do not matter."""
    made = finished(read, written, gb_s)
    assert made["peak_gb_s"] == made["attainable_gb_s"] == pytest.approx(peak)
    assert made["pct_peak"] == made["pct_attainable"] == pytest.approx(100 * gb_s / peak)
    assert made["limiter"] == limiter
    assert all(fact in str(made["reason"]) for fact in ("PCIe 5.0 x16", "63.0 GB/s", "node is 1"))


def test_a_link_that_is_not_known_is_no_roof() -> None:
    made = finished(10**8, 0, 54.7, FACTS | {"link": "", "link_gb_s": math.nan})
    assert [made[name] for name in ("peak_gb_s", "attainable_gb_s", "pct_attainable", "limiter")] == [None] * 4
    assert made["time_ms"] is not None


@pytest.mark.parametrize("name", COPIES)
def test_a_cpu_refuses_copies(cpu: _core.Device, name: str) -> None:
    with pytest.raises(bwprof.errors.UnsupportedError, match="only a GPU has one"):
        _core.Case(cpu, name, "fp32", {"elements": 1000}, variant="pinned")
    with pytest.raises(ValueError, match="only a GPU has a link"):
        bwprof.sweep(name, backend="cpu", roofs=False)


def test_copies_are_not_predicted_from_streams() -> None:
    with pytest.raises(ValueError, match="is not predicted"):
        bwprof.predict(COPIES[0], device="H200")
    rows = bwprof.predict("gemm", device="H200", precision="fp16", M=1, N=[4096, 8192], K=[2048, 4096])
    rows["status"], rows["operation"] = "ok", COPIES[0]
    with pytest.raises(ValueError, match="no row"):
        bwprof.efficiency(rows)


@pytest.mark.cuda
def test_rows_of_copies_on_a_gpu() -> None:
    rows = bwprof.sweep(COPIES[0], elements=[1 << 10, 1 << 24], precision="fp32", variant="all", roofs=False)
    assert rows["verified"].all()
    large = rows[rows["elements"] == 1 << 24].set_index("variant")
    assert large.loc["pinned", "limiter"] == "link"
    assert 50 < large.loc["pinned", "pct_peak"] < 100
    assert large.loc["pageable", "time_ms"] > large.loc["pinned", "time_ms"]
