"""Check that a cold rotation is cold: its DRAM reads, counted in hardware, against the compulsory bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bwprof import _core
from bwprof.measuring.grade import COLD_MIN_READS
from bwprof.measuring.operation import COLD_MIN_BYTES, Spec
from bwprof.selftest.bench import Bench, Cell, PartReport, read_figure

NAME = "counters"
_TITLE = "Cold, by hardware counters: DRAM bytes read in a rotation, per launch"

_COLUMNS = {
    "case": "case",
    "precision": "precision",
    "variant": "variant",
    "buffer_sets": "sets",
    "bytes_read": "compulsory",
    "dram_bytes_read": "counted",
    "ratio": "ratio",
    "cold": "cold",
}


def run(bench: Bench) -> PartReport:
    """Count every case of the default suite that touches enough memory."""
    try:
        rows, left_out = bench.measure_specs(NAME, _count)
    except _core.UnavailableError as error:
        return PartReport(NAME, _TITLE, left_out=str(error))
    gate = f"ratio at least {COLD_MIN_READS} for footprints over 1 MiB"
    passed = all(row["cold"] == "yes" for row in rows) if rows else None
    ratios = sorted(read_figure(row, "ratio") for row in rows)
    summary = [f"{len(rows)} cases, ratios {ratios[0]:.3f} to {ratios[-1]:.3f}"] if rows else []
    return PartReport(NAME, _TITLE, _COLUMNS, rows, gate, passed, summary, left_out)


def _count(spec: Spec, case: _core.Case) -> Mapping[str, Cell] | None:
    compulsory = case.cost["bytes_read"]
    if case.cost["footprint_bytes"] <= COLD_MIN_BYTES or not compulsory:
        return None
    counted = case.count(rotated=True)
    if math.isnan(counted["dram_bytes_read"]):
        raise _core.UnavailableError(counted["counters_status"])
    ratio = counted["dram_bytes_read"] / compulsory
    return {
        "case": spec.case,
        "precision": spec.precision,
        "variant": case.variant,
        "buffer_sets": case.memory_needed("cold")["buffer_sets"],
        "bytes_read": compulsory,
        "dram_bytes_read": round(counted["dram_bytes_read"]),
        "ratio": ratio,
        "cold": "yes" if ratio >= COLD_MIN_READS else "NO",
    }
