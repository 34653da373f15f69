"""Roofs of a GPU that does not exist, for the tests of what becomes of stored ones."""

from __future__ import annotations

from bwprof import _core
from bwprof.roofs.model import RoofPoint, Roofs

MIB = 1 << 20
FACTS = {"name": "Test GPU", "uuid": "GPU-1", "driver": "580.1", "runtime": "13.0", "units": 132, "ecc": True}
POINTS = (
    RoofPoint("stream_read", 1.0, MIB, 2e-6, 0.001, 0.01),
    RoofPoint("stream_read", 1.0, 256 * MIB, 60e-6, 0.001, 0.01),
    RoofPoint("stream_copy", 0.5, MIB, 2.5e-6, 0.001, 0.01),
    RoofPoint("stream_copy", 0.5, 256 * MIB, 64e-6, 0.001, 0.01),
)
ROOFS = Roofs("Test GPU", "GPU-1", "580.1", _core.__version__, 5e-7, POINTS, measured="2026-01-02T03:04:05+00:00")
