"""AMD's counters: which GPUs have them, how many of them fit in a run, and what a few of them were called elsewhere.

Names, GPUs and formulas: source/share/rocprofiler-sdk/counter_defs.yaml of github.com/ROCm/rocprofiler-sdk, and AMD's
page "MI300 and MI200 series performance counters and metrics" (rocm.docs.amd.com/en/latest/conceptual/gpu-arch/).
The table holds what is asked for often, not all; `rocprofv3 --list-avail` prints what a GPU has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bwprof.text.parsing import describe_unknown

# GPUs that have the same counters: gfx90a is MI200, gfx94 MI300, gfx95 MI350; from gfx10 on it is RDNA.
FAMILIES = ("gfx9", "gfx908", "gfx90a", "gfx94", "gfx95", "gfx10", "gfx11", "gfx12")

_ALL = " ".join(FAMILIES)

_CDNA = "gfx908 gfx90a gfx94 gfx95"

_GFX9 = f"gfx9 {_CDNA}"

_RDNA = "gfx10 gfx11 gfx12"

_EA = "TCC_{}_RDREQ{} TCC_{}_RDREQ_32B{} TCC_{}_WRREQ{} TCC_{}_WRREQ_64B{}"


def _ea(name: str) -> str:
    """The counters of requests between the L2 cache and memory, each alone and summed over its instances."""
    return " ".join(_EA.format(*[part for _ in range(4) for part in (name, ending)]) for ending in ("", "_sum"))


_TABLE = (
    (
        _ALL,
        "GRBM_COUNT GRBM_GUI_ACTIVE GPU_UTIL SQ_WAVES SQ_WAVES_sum SQ_INSTS_VALU SQ_INSTS_SALU SQ_INSTS_SMEM "
        "SQ_INSTS_LDS SQ_INSTS_FLAT SQ_BUSY_CYCLES SQ_WAVE_CYCLES SQ_WAIT_ANY SQ_WAIT_INST_ANY TA_TA_BUSY TA_BUSY_avr "
        "TA_BUSY_max TA_BUSY_min FETCH_SIZE",
    ),
    (
        "gfx9 gfx908 gfx90a gfx10 gfx11 gfx12",
        "GPUBusy Wavefronts VALUInsts SALUInsts SFetchInsts GDSInsts MemUnitBusy ALUStalledByLDS L2CacheHit "
        "LDSBankConflict WriteUnitStalled",
    ),
    ("gfx9 gfx908 gfx90a", "FetchSize WriteSize MemUnitStalled VALUBusy SALUBusy VALUUtilization MemWrites32B"),
    ("gfx9 gfx908 gfx90a", "VFetchInsts VWriteInsts FlatVMemInsts LDSInsts FlatLDSInsts"),
    (
        _GFX9,
        "WRITE_SIZE WRITE_REQ_32B TCC_HIT TCC_MISS TCC_HIT_sum TCC_MISS_sum SQ_INSTS_VMEM_RD SQ_INSTS_VMEM_WR "
        "SQ_LDS_BANK_CONFLICT SQ_LDS_IDX_ACTIVE SQ_ACTIVE_INST_VALU SQ_THREAD_CYCLES_VALU TCP_TCP_TA_DATA_STALL_CYCLES "
        "TCP_TCP_TA_DATA_STALL_CYCLES_sum TCP_TCP_TA_DATA_STALL_CYCLES_max",
    ),
    (
        _CDNA,
        "SQ_INSTS_VMEM SQ_INSTS_MFMA SQ_WAIT_INST_LDS TCC_REQ TCC_REQ_sum TCC_READ TCC_READ_sum TCC_WRITE "
        "TCC_WRITE_sum TCC_WRITEBACK_sum TCC_TAG_STALL_sum TCP_TOTAL_CACHE_ACCESSES_sum TCP_TOTAL_READ_sum "
        "TCP_TOTAL_WRITE_sum TCP_TCC_READ_REQ TCP_TCC_READ_REQ_sum TCP_TCC_WRITE_REQ TCP_TCC_WRITE_REQ_sum "
        "TCP_TCR_TCP_STALL_CYCLES_sum TCP_TD_TCP_STALL_CYCLES_sum GRBM_CP_BUSY GRBM_SPI_BUSY GRBM_TA_BUSY GRBM_TC_BUSY "
        "GRBM_EA_BUSY SQC_DCACHE_HITS SQC_DCACHE_MISSES SQC_DCACHE_REQ "
        "SQC_ICACHE_HITS SQC_ICACHE_MISSES SQC_ICACHE_REQ",
    ),
    (
        "gfx90a gfx94 gfx95",
        "SQ_INSTS_VALU_MFMA_MOPS_F16 SQ_INSTS_VALU_MFMA_MOPS_BF16 SQ_INSTS_VALU_MFMA_MOPS_F32 "
        "SQ_INSTS_VALU_MFMA_MOPS_F64 SQ_INSTS_VALU_FMA_F16 SQ_INSTS_VALU_FMA_F32 SQ_INSTS_VALU_FMA_F64 "
        "SQ_INSTS_VALU_ADD_F16 SQ_INSTS_VALU_ADD_F32 SQ_INSTS_VALU_ADD_F64",
    ),
    ("gfx90a", "MeanOccupancyPerCU MeanOccupancyPerActiveCU"),
    ("gfx9 gfx908 gfx90a", f"{_ea('EA')} TCC_WRREQ_STALL_max"),
    (
        "gfx94 gfx95",
        f"{_ea('EA0')} TCC_BUBBLE TCC_BUBBLE_sum TCC_EA0_RDREQ_DRAM_sum TCC_EA0_WRREQ_DRAM_sum SQ_INSTS_VALU_MFMA_F8",
    ),
    ("gfx95", "TCC_EA0_RDREQ_64B TCC_EA0_RDREQ_64B_sum TCC_EA0_RDREQ_128B TCC_EA0_RDREQ_128B_sum"),
    (
        _RDNA,
        "GL2C_HIT GL2C_HIT_sum GL2C_MISS GL2C_MISS_sum GL2C_EA_RDREQ_32B GL2C_EA_RDREQ_32B_sum GL2C_EA_RDREQ_64B "
        "GL2C_EA_RDREQ_64B_sum GL2C_EA_RDREQ_128B GL2C_EA_RDREQ_128B_sum GL2C_EA_WRREQ_64B GL2C_EA_WRREQ_64B_sum "
        "GL2C_WRREQ_STALL_max SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE WAVE_DEP_WAIT WAVE_ISSUE_WAIT",
    ),
    (
        "gfx10 gfx11",
        "GL2C_EA_RDREQ_96B GL2C_EA_RDREQ_96B_sum GL2C_MC_RDREQ GL2C_MC_RDREQ_sum GL2C_MC_WRREQ GL2C_MC_WRREQ_sum",
    ),
    ("gfx10", "MeanOccupancyPerCU MeanOccupancyPerActiveCU"),
    ("gfx11 gfx12", "SQ_INSTS_TEX_LOAD SQ_INSTS_TEX_STORE"),
    ("gfx12", "GL2C_EA_WRREQ GL2C_EA_WRREQ_sum"),
)

# What a metric is computed of: it takes their places in a run.
_PARTS = {
    "FETCH_SIZE": {
        "TCC_EA": "TCC_EA_RDREQ TCC_EA_RDREQ_32B",
        "TCC_EA0": "TCC_EA0_RDREQ TCC_EA0_RDREQ_32B TCC_BUBBLE",
        "GL2C": "GL2C_EA_RDREQ_32B GL2C_EA_RDREQ_64B GL2C_EA_RDREQ_96B GL2C_EA_RDREQ_128B",
    },
    "WRITE_SIZE": {
        "TCC_EA": "TCC_EA_WRREQ TCC_EA_WRREQ_64B",
        "TCC_EA0": "TCC_EA0_WRREQ TCC_EA0_WRREQ_64B",
    },
    "L2CacheHit": {"TCC_EA": "TCC_HIT TCC_MISS", "TCC_EA0": "TCC_HIT TCC_MISS", "GL2C": "GL2C_HIT GL2C_MISS"},
    "LDSBankConflict": {
        "TCC_EA": "SQ_LDS_BANK_CONFLICT GRBM_GUI_ACTIVE",
        "GL2C": "SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE",
    },
    "MemUnitStalled": {"TCC_EA": "TCP_TCP_TA_DATA_STALL_CYCLES GRBM_GUI_ACTIVE"},
    "VALUBusy": {"TCC_EA": "SQ_ACTIVE_INST_VALU GRBM_GUI_ACTIVE"},
    "Wavefronts": {"TCC_EA": "SQ_WAVES", "GL2C": "SQ_WAVES"},
}

_SAME = {"FetchSize": "FETCH_SIZE", "WriteSize": "WRITE_SIZE"}

# Counters of a block that one run has room for.
_ROOM = {"SQ": 8, "TCC": 4, "TCP": 4, "GL2C": 4, "GRBM": 2, "TA": 2}

_INSTANCE = re.compile(r"\[\d{1,3}\]$")

_BLOCK = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+(?:_sum|_max|_min|_avr)?")

# Names that are in no list of AMD's, or of no use as they are: what is asked for instead.
RENAMED: dict[str, dict[str, str]] = {
    "TCP_TOTAL_CACHE_ACCESSES": dict.fromkeys(_CDNA.split(), "TCP_TOTAL_CACHE_ACCESSES_sum"),
    "TCP_TOTAL_CACHE_MISSES": dict.fromkeys(_CDNA.split(), "TCP_TCC_READ_REQ_sum"),
    "SQ_LDS_BANK_ACTIVE": {
        **dict.fromkeys(_GFX9.split(), "SQ_LDS_BANK_CONFLICT SQ_LDS_IDX_ACTIVE"),
        **dict.fromkeys(_RDNA.split(), "SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE"),
    },
}


def find_family(gfx: str) -> str:
    """The family of a GPU's name (gfx942 -> gfx94); ValueError for one that is not known."""
    name = gfx.strip().lower().partition(":")[0] if isinstance(gfx, str) else ""
    fitting = [found for found in FAMILIES if name.startswith(found)]
    if not fitting or not re.fullmatch(r"gfx[0-9a-f]{1,5}", name):
        raise ValueError(describe_unknown("gfx", gfx, FAMILIES))
    return max(fitting, key=len)


def l2_prefix(gfx: str) -> str:
    """What counters of the L2 cache's requests are called: TCC_EA, TCC_EA0 (from MI300 on) or GL2C (RDNA)."""
    own = find_family(gfx)
    if own in _RDNA.split():
        return "GL2C"
    return "TCC_EA0" if own in ("gfx94", "gfx95") else "TCC_EA"


def list_counters(gfx: str) -> list[str]:
    """The counters that a GPU's family has, of the table."""
    own = find_family(gfx)
    return list(
        dict.fromkeys(name for families, listed in _TABLE if own in families.split() for name in listed.split())
    )


def check_counters(asked: Sequence[str], gfx: str, also: Iterable[str] = ()) -> list[str]:
    """Counters as they are asked for: renamed where AMD calls them otherwise; `also` are known beside the table's.

    Raises
    ------
    ValueError
        For one that the GPU's family is not known to have, with the nearest one that it has.
    """
    own, known, more = find_family(gfx), set(list_counters(gfx)), set(also)
    found: list[str] = []
    for name in asked:
        instead = RENAMED.get(name, {}).get(own)
        if name in more or (instead is None and _INSTANCE.sub("", name) in known):
            found.append(name)
        elif instead is not None:
            found += instead.split()
        else:
            said = describe_unknown(
                "counter", name, sorted(known), where=gfx, see="rocprofv3 --list-avail, on that GPU"
            )
            raise ValueError(f"{said}; one that it lists and bwprof does not: known=[...]")
    return list(dict.fromkeys(found))


def plan_passes(asked: Sequence[str], gfx: str) -> list[list[str]]:
    """The counters in as many runs as they need: a run has room for a few of each block; those of no block go alone.

    Counters that one formula is made of stay together: a difference of two runs' figures may be less than nothing.
    """
    groups: dict[str, list[str]] = {}
    for name in asked:
        groups.setdefault(_together(name), []).append(name)
    runs: list[tuple[list[str], set[str]]] = []
    for group in groups.values():
        whole = [_parts(name, gfx) for name in group]
        fits = all(whole) and _fits(set().union(*whole))
        apart = [([name], parts) for name, parts in zip(group, whole, strict=True)]
        for listed, parts in [(group, set().union(*whole))] if fits else apart:
            _place(runs, listed, parts)
    return [listed for listed, _ in runs]


def _place(runs: list[tuple[list[str], set[str]]], group: list[str], parts: set[str]) -> None:
    """Put counters into the first run that has room for them, or into one of their own."""
    for listed, taken in runs:
        if parts and taken and _fits(taken | parts):
            listed.extend(group)
            taken.update(parts)
            return
    runs.append(([*group], set(parts)))


def _together(name: str) -> str:
    """What a counter's formula is about."""
    found = re.search(r"RDREQ|WRREQ|BUBBLE|LDS_BANK|LDS_IDX|(?:TCC|GL2C)_(?:HIT|MISS)", name)
    if found is None:
        return name
    return {"BUBBLE": "RDREQ", "LDS_IDX": "LDS_BANK"}.get(found[0], re.sub("MISS$", "HIT", found[0]))


def _parts(name: str, gfx: str) -> set[str]:
    """The hardware's counters that one takes; empty for a metric that is not in the table."""
    own = _PARTS.get(_SAME.get(name, name))
    if own is not None:
        found = own.get(l2_prefix(gfx)) or own.get("TCC_EA")
        return set(found.split()) if found else set()
    return {re.sub(r"_(sum|max|min|avr)$", "", _INSTANCE.sub("", name))} if _BLOCK.fullmatch(name) else set()


def _fits(taken: Iterable[str]) -> bool:
    blocks = [re.sub(r"^SQC$", "SQ", name.partition("_")[0]) for name in taken]
    return all(blocks.count(block) <= _ROOM.get(block, 2) for block in set(blocks))
