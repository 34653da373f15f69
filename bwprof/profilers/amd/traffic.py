"""What AMD's counters say of memory: bytes, hit rates, stalls; and which of these figures are estimates.

Formulas are those of AMD's derived counters (source/share/rocprofiler-sdk/counter_defs.yaml of ROCm/rocprofiler-sdk;
"MI300 and MI200 series performance counters and metrics", rocm.docs.amd.com), each on counters summed over instances:

* bytes read = 1024 FETCH_SIZE = 32 RDREQ_32B + 64 (RDREQ - RDREQ_32B), where RDREQ is TCC_EA_RDREQ (TCC_EA0_RDREQ from
  MI300 on), requests of the L2 cache to memory of 32 or 64 bytes. On MI300 some of them are of 128 bytes, counted by
  TCC_BUBBLE: 128 BUBBLE + 64 (RDREQ - BUBBLE - RDREQ_32B) + 32 RDREQ_32B. MI350 counts each size:
  32 RDREQ_32B + 64 RDREQ_64B + 128 RDREQ_128B; so does RDNA: GL2C_EA_RDREQ_32B, _64B, _96B, _128B.
* bytes written = 1024 WRITE_SIZE = 64 WRREQ_64B + 32 (WRREQ - WRREQ_64B), TCC_EA_WRREQ, TCC_EA0_WRREQ, or on RDNA
  GL2C_MC_WRREQ (GL2C_EA_WRREQ from gfx12 on).
* L2 hits = 100 TCC_HIT / (TCC_HIT + TCC_MISS); GL2C_HIT and GL2C_MISS on RDNA.
* bank conflicts = 100 LDS_BANK_CONFLICT / LDS_IDX_ACTIVE, cycles of both, SQ_ on CDNA and SQC_ on RDNA, where there is
  no LDSBankConflict.

FetchSize and WriteSize are the same metrics in KiB, as rocprof of version 1 calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

_KIB = 1024.0
_READS, _WRITES = ("FETCH_SIZE", "FetchSize"), ("WRITE_SIZE", "WriteSize")
_PREFIXES = ("TCC_EA", "TCC_EA0")
_L2_LINE, _L1_LINE = 128.0, 64.0  # bytes; of MI200 (AMD's Instinct MI200 instruction set reference)


class Figures:
    """Columns worked out of counters, each from the first source that a launch has, and the words for estimates."""

    def __init__(self, counters: Mapping[str, Values], launches: int) -> None:
        self._counters, self._launches = counters, launches
        self.columns: dict[str, Values] = {}
        self._estimates: list[tuple[str, NDArray[np.bool_]]] = []
        self._work_out()

    @property
    def estimated(self) -> list[str | None] | None:
        """For each launch which of its figures are estimates and how they were made; None where none of any is."""
        said: dict[bytes, str | None] = {}
        if not self._estimates:
            return None
        flags = np.stack([flagged for _, flagged in self._estimates], axis=1)
        for row in np.unique(flags, axis=0):
            words = [text for (text, _), there in zip(self._estimates, row, strict=True) if there]
            said[row.tobytes()] = "; ".join(words) or None
        return [said[row.tobytes()] for row in flags]

    def _get(self, *names: str) -> Values:
        """A counter under the first of its names, summed or of one instance; NaN where it was not counted."""
        found = np.full(self._launches, np.nan)
        for name in names:
            for known in (f"{name}_sum", name):
                if known in self._counters:
                    found = np.where(np.isnan(found), self._counters[known], found)
        return found

    def _put(self, column: str, values: Values, estimate: str = "") -> None:
        """Fill a column where it has nothing yet."""
        own = self.columns.setdefault(column, np.full(self._launches, np.nan))
        with np.errstate(invalid="ignore"):
            fresh = np.isnan(own) & (values >= 0) & (values < 2.0**63)
        own[fresh] = values[fresh]
        if estimate and fresh.any():
            self._estimates.append((f"{column}: {estimate}", fresh))

    def _work_out(self) -> None:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            self._bytes_read()
            self._bytes_written()
            self._caches()
            self._shares()
            self._matrix_operations()
        self.columns = {name: values for name, values in self.columns.items() if not np.isnan(values).all()}

    def _bytes_read(self) -> None:
        column = "dram_bytes_read"
        for name in _READS:
            self._put(column, _KIB * self._get(name))
        own = [self._get(f"TCC_EA0_RDREQ_{size}B") for size in (32, 64, 128)]
        self._put(column, 32 * own[0] + 64 * own[1] + 128 * own[2])
        for prefix in _PREFIXES:
            whole, small = self._get(f"{prefix}_RDREQ"), self._get(f"{prefix}_RDREQ_32B")
            second, second_small = self._second("RDREQ"), self._second("RDREQ_32B")
            if prefix == "TCC_EA0":
                large = self._get("TCC_BUBBLE")
                self._put(column, 128 * large + 64 * (whole - large - small) + 32 * small)
                without = "without TCC_BUBBLE reads of 128 bytes count as 64, it may be up to twice as much"
                self._put(column, 64 * (whole - small) + 32 * small, without)
            else:
                whole, small = whole + second, small + second_small
                self._put(column, 64 * (whole - small) + 32 * small)
            self._put(
                column, 64 * whole, f"{prefix}_RDREQ x 64 bytes, at most; {prefix}_RDREQ_32B says how many are 32"
            )
        sizes = {size: self._get(f"GL2C_EA_RDREQ_{size}B") for size in (32, 64, 96, 128)}
        most = sizes[32] * 32 + sizes[64] * 64 + sizes[128] * 128
        self._put(column, most + 96 * np.nan_to_num(sizes[96]))  # gfx12 has none of 96
        self._from_misses(column)

    def _from_misses(self, column: str) -> None:
        for name in ("TCC_MISS", "GL2C_MISS"):
            said = f"{name} x {_L2_LINE:.0f} bytes, a cache line each; misses of writes are among them"
            self._put(column, _L2_LINE * self._get(name), said)
        for name in ("TCP_TCC_READ_REQ", "TCP_TOTAL_CACHE_MISSES"):
            said = f"{name} x {_L1_LINE:.0f} bytes, at most: what the L2 cache had did not come from memory"
            self._put(column, _L1_LINE * self._get(name), said)

    def _bytes_written(self) -> None:
        column = "dram_bytes_written"
        for name in _WRITES:
            self._put(column, _KIB * self._get(name))
        for prefix, whole, large in (
            ("TCC_EA", "TCC_EA_WRREQ", "TCC_EA_WRREQ_64B"),
            ("TCC_EA0", "TCC_EA0_WRREQ", "TCC_EA0_WRREQ_64B"),
            ("GL2C_MC", "GL2C_MC_WRREQ", "GL2C_EA_WRREQ_64B"),
            ("GL2C_EA", "GL2C_EA_WRREQ", "GL2C_EA_WRREQ_64B"),
        ):
            requests, of_64 = self._get(whole), self._get(large)
            if prefix == "TCC_EA":
                requests, of_64 = requests + self._second("WRREQ"), of_64 + self._second("WRREQ_64B")
            self._put(column, 64 * of_64 + 32 * (requests - of_64))
            self._put(column, 64 * requests, f"{whole} x 64 bytes, at most; {large} says how many are so")

    def _second(self, name: str) -> Values:
        """The same of the second interface to memory, which gfx906 has; 0 elsewhere."""
        return np.nan_to_num(self._get(f"TCC_EA1_{name}"))

    def _caches(self) -> None:
        self._put("l2_hit_pct", self._percent(self._get("L2CacheHit")))
        for block in ("TCC", "GL2C"):
            hit, miss = self._get(f"{block}_HIT"), self._get(f"{block}_MISS")
            self._put("l2_hit_pct", 100 * hit / (hit + miss))
        accesses, misses = (
            self._get("TCP_TOTAL_CACHE_ACCESSES"),
            self._get("TCP_TCC_READ_REQ", "TCP_TOTAL_CACHE_MISSES"),
        )
        said = "100 (1 - reads that went to the L2 cache / accesses)"
        self._put("l1_hit_pct", 100 * (1 - misses / accesses), said)

    def _shares(self) -> None:
        self._put("valu_busy_pct", self._percent(self._get("VALUBusy")))
        self._put("mem_unit_stalled_pct", self._percent(self._get("MemUnitStalled")))
        self._put("lds_bank_conflict_pct", self._percent(self._get("LDSBankConflict")))
        for block in ("SQ", "SQC"):
            conflicts, active = self._get(f"{block}_LDS_BANK_CONFLICT"), self._get(f"{block}_LDS_IDX_ACTIVE")
            self._put("lds_bank_conflict_pct", self._percent(100 * conflicts / active))

    def _matrix_operations(self) -> None:
        kinds = ("F16", "BF16", "F32", "F64")
        counted = [self._get(f"SQ_INSTS_VALU_MFMA_MOPS_{kind}") for kind in kinds]
        there = np.any([~np.isnan(one) for one in counted], axis=0)
        whole = np.where(there, 512 * np.sum([np.nan_to_num(one) for one in counted], axis=0), np.nan)
        self._put("flops", whole, "512 SQ_INSTS_VALU_MFMA_MOPS: matrix instructions alone, of the types counted")

    def _percent(self, values: Values) -> Values:
        return np.where(values <= 100.5, np.minimum(values, 100), np.nan)


def times_ms(columns: Mapping[str, Any]) -> Values | None:
    """How long launches took; NaN where both times are the same: nothing was recorded."""
    if "start" not in columns or "end" not in columns:
        return None
    taken = (np.asarray(columns["end"]) - np.asarray(columns["start"])).astype(np.float64)
    return np.where(taken > 0, taken / 1e6, np.nan)
