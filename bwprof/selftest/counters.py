"""Is a cold rotation cold? The DRAM reads of a whole rotation, counted in hardware, against the compulsory bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bwprof import _core
from bwprof.measuring.grade import COLD_MIN_READS
from bwprof.measuring.operation import COLD_MIN_BYTES
from bwprof.selftest.bench import Bench, Cell, PartReport, fits

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
    """Every case of the default suite that touches enough memory to tell."""
    rows: list[Mapping[str, Cell]] = []
    left_out: list[str] = []
    specs = bench.specs()
    for number, spec in enumerate(specs, start=1):
        bench.poll()
        cost = None
        try:
            with spec.open(bench.device) as case:
                cost = case.cost
                if cost["footprint_bytes"] <= COLD_MIN_BYTES or not cost["bytes_read"]:
                    continue
                bench.say(f"{NAME}: {number} of {len(specs)}: {spec.title}")
                need = case.memory_needed("cold")
                if not fits(case):
                    left_out.append(f"{spec.title}: too little memory")
                    continue
                found = case.count(rotated=True)
                variant = case.variant
        except (_core.UnsupportedError, MemoryError) as error:
            left_out.append(f"{spec.title}: {error}")
            continue
        if math.isnan(found["dram_bytes_read"]):
            if not rows:
                return PartReport(NAME, _TITLE, left_out=found["counters_status"])
            left_out.append(f"{spec.title}: {found['counters_status']}")
            continue
        ratio = found["dram_bytes_read"] / cost["bytes_read"]
        rows.append(
            {
                "case": spec.case,
                "precision": spec.precision,
                "variant": variant,
                "buffer_sets": need["buffer_sets"],
                "bytes_read": cost["bytes_read"],
                "dram_bytes_read": round(found["dram_bytes_read"]),
                "ratio": ratio,
                "cold": "yes" if ratio >= COLD_MIN_READS else "NO",
            }
        )
    gate = f"ratio at least {COLD_MIN_READS} for footprints over 1 MiB"
    passed = all(row["cold"] == "yes" for row in rows) if rows else None
    summary = []
    if rows:
        ratios = sorted(float(row["ratio"] or 0) for row in rows)
        summary.append(f"{len(rows)} cases, ratios {ratios[0]:.3f} to {ratios[-1]:.3f}")
    return PartReport(NAME, _TITLE, _COLUMNS, rows, gate, passed, summary, "; ".join(left_out))
