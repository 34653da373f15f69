"""AMD's counters: the GPUs that have them, how many fit in one run, and their names in older examples.

Names, GPUs and formulas: source/share/rocprofiler-sdk/counter_defs.yaml of github.com/ROCm/rocprofiler-sdk, and AMD's
page "MI300 and MI200 series performance counters and metrics" (rocm.docs.amd.com/en/latest/conceptual/gpu-arch/).
The table has the common counters, not all; `rocprofv3 --list-avail` prints those of a GPU.
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


def _both(names: str) -> str:
    """Return counters alone, and summed over their instances."""
    return " ".join(f"{name} {name}_sum" for name in names.split())


# Families, and counters that all of them have.
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
    (
        "gfx9 gfx908 gfx90a",
        "FetchSize WriteSize MemUnitStalled VALUBusy SALUBusy VALUUtilization MemWrites32B VFetchInsts VWriteInsts "
        "FlatVMemInsts LDSInsts FlatLDSInsts TCC_WRREQ_STALL_max "
        + _both("TCC_EA_RDREQ TCC_EA_RDREQ_32B TCC_EA_WRREQ TCC_EA_WRREQ_64B"),
    ),
    (
        _GFX9,
        "WRITE_SIZE WRITE_REQ_32B SQ_INSTS_VMEM_RD SQ_INSTS_VMEM_WR SQ_LDS_BANK_CONFLICT SQ_LDS_IDX_ACTIVE "
        "SQ_ACTIVE_INST_VALU SQ_THREAD_CYCLES_VALU TCP_TCP_TA_DATA_STALL_CYCLES_max "
        + _both("TCC_HIT TCC_MISS TCP_TCP_TA_DATA_STALL_CYCLES"),
    ),
    (
        _CDNA,
        "SQ_INSTS_VMEM SQ_INSTS_MFMA SQ_WAIT_INST_LDS TCC_WRITEBACK_sum TCC_TAG_STALL_sum TCP_TOTAL_CACHE_ACCESSES_sum "
        "TCP_TOTAL_READ_sum TCP_TOTAL_WRITE_sum TCP_TCR_TCP_STALL_CYCLES_sum TCP_TD_TCP_STALL_CYCLES_sum GRBM_CP_BUSY "
        "GRBM_SPI_BUSY GRBM_TA_BUSY GRBM_TC_BUSY GRBM_EA_BUSY SQC_DCACHE_HITS SQC_DCACHE_MISSES SQC_DCACHE_REQ "
        "SQC_ICACHE_HITS SQC_ICACHE_MISSES SQC_ICACHE_REQ "
        + _both("TCC_REQ TCC_READ TCC_WRITE TCP_TCC_READ_REQ TCP_TCC_WRITE_REQ"),
    ),
    (
        "gfx90a gfx94 gfx95",
        "SQ_INSTS_VALU_MFMA_MOPS_F16 SQ_INSTS_VALU_MFMA_MOPS_BF16 SQ_INSTS_VALU_MFMA_MOPS_F32 "
        "SQ_INSTS_VALU_MFMA_MOPS_F64 SQ_INSTS_VALU_FMA_F16 SQ_INSTS_VALU_FMA_F32 SQ_INSTS_VALU_FMA_F64 "
        "SQ_INSTS_VALU_ADD_F16 SQ_INSTS_VALU_ADD_F32 SQ_INSTS_VALU_ADD_F64",
    ),
    ("gfx90a gfx10", "MeanOccupancyPerCU MeanOccupancyPerActiveCU"),
    (
        "gfx94 gfx95",
        "TCC_EA0_RDREQ_DRAM_sum TCC_EA0_WRREQ_DRAM_sum SQ_INSTS_VALU_MFMA_F8 "
        + _both("TCC_EA0_RDREQ TCC_EA0_RDREQ_32B TCC_EA0_WRREQ TCC_EA0_WRREQ_64B TCC_BUBBLE"),
    ),
    ("gfx95", _both("TCC_EA0_RDREQ_64B TCC_EA0_RDREQ_128B")),
    (
        _RDNA,
        "GL2C_WRREQ_STALL_max SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE WAVE_DEP_WAIT WAVE_ISSUE_WAIT "
        + _both("GL2C_HIT GL2C_MISS GL2C_EA_RDREQ_32B GL2C_EA_RDREQ_64B GL2C_EA_RDREQ_128B GL2C_EA_WRREQ_64B"),
    ),
    ("gfx10 gfx11", _both("GL2C_EA_RDREQ_96B GL2C_MC_RDREQ GL2C_MC_WRREQ")),
    ("gfx11 gfx12", "SQ_INSTS_TEX_LOAD SQ_INSTS_TEX_STORE"),
    ("gfx12", _both("GL2C_EA_WRREQ")),
)

# The counters that a metric is computed of, by the prefix of the L2 cache; without an own entry those of TCC_EA.
_PARTS = {
    "FETCH_SIZE": {
        "TCC_EA": "TCC_EA_RDREQ TCC_EA_RDREQ_32B",
        "TCC_EA0": "TCC_EA0_RDREQ TCC_EA0_RDREQ_32B TCC_BUBBLE",
        "GL2C": "GL2C_EA_RDREQ_32B GL2C_EA_RDREQ_64B GL2C_EA_RDREQ_96B GL2C_EA_RDREQ_128B",
    },
    "WRITE_SIZE": {"TCC_EA": "TCC_EA_WRREQ TCC_EA_WRREQ_64B", "TCC_EA0": "TCC_EA0_WRREQ TCC_EA0_WRREQ_64B"},
    "L2CacheHit": {"TCC_EA": "TCC_HIT TCC_MISS", "GL2C": "GL2C_HIT GL2C_MISS"},
    "LDSBankConflict": {
        "TCC_EA": "SQ_LDS_BANK_CONFLICT GRBM_GUI_ACTIVE",
        "GL2C": "SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE",
    },
    "MemUnitStalled": {"TCC_EA": "TCP_TCP_TA_DATA_STALL_CYCLES GRBM_GUI_ACTIVE"},
    "VALUBusy": {"TCC_EA": "SQ_ACTIVE_INST_VALU GRBM_GUI_ACTIVE"},
    "Wavefronts": {"TCC_EA": "SQ_WAVES"},
}

_SAME = {"FetchSize": "FETCH_SIZE", "WriteSize": "WRITE_SIZE"}
_ROOM = {"SQ": 8, "TCC": 4, "TCP": 4, "GL2C": 4, "GRBM": 2, "TA": 2}  # counters of a block in one run
_INSTANCE = re.compile(r"\[\d{1,3}\]$")
_BLOCK = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+(?:_sum|_max|_min|_avr)?")
_TOPIC = re.compile(r"RDREQ|WRREQ|BUBBLE|LDS_BANK|LDS_IDX|(?:TCC|GL2C)_(?:HIT|MISS)")

# Names that AMD does not list, or that need others: their replacements by family.
RENAMED: dict[str, dict[str, str]] = {
    "TCP_TOTAL_CACHE_ACCESSES": dict.fromkeys(_CDNA.split(), "TCP_TOTAL_CACHE_ACCESSES_sum"),
    "TCP_TOTAL_CACHE_MISSES": dict.fromkeys(_CDNA.split(), "TCP_TCC_READ_REQ_sum"),
    "SQ_LDS_BANK_ACTIVE": {
        **dict.fromkeys(_GFX9.split(), "SQ_LDS_BANK_CONFLICT SQ_LDS_IDX_ACTIVE"),
        **dict.fromkeys(_RDNA.split(), "SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE"),
    },
}


def find_family(gfx: str) -> str:
    """Return the family of a GPU's name (gfx942 -> gfx94); ValueError for an unknown one."""
    name = gfx.strip().lower().partition(":")[0] if isinstance(gfx, str) else ""
    families = [family for family in FAMILIES if name.startswith(family)]
    if not families or not re.fullmatch(r"gfx[0-9a-f]{1,5}", name):
        raise ValueError(describe_unknown("gfx", gfx, FAMILIES))
    return max(families, key=len)


def l2_prefix(gfx: str) -> str:
    """Return the prefix of counters of the L2 cache's requests: TCC_EA, TCC_EA0 (from MI300 on) or GL2C (RDNA)."""
    family = find_family(gfx)
    if family in _RDNA.split():
        return "GL2C"
    return "TCC_EA0" if family in ("gfx94", "gfx95") else "TCC_EA"


def list_counters(gfx: str) -> list[str]:
    """Return the counters of the table that a GPU's family has."""
    family = find_family(gfx)
    names = (name for families, counters in _TABLE if family in families.split() for name in counters.split())
    return list(dict.fromkeys(names))


def check_counters(counters: Sequence[str], gfx: str, also: Iterable[str] = ()) -> list[str]:
    """Return counters under AMD's names; `also` are known beside the table's.

    Raises
    ------
    ValueError
        For one that the GPU's family is not known to have, with the nearest one that it has.
    """
    family, known, more = find_family(gfx), set(list_counters(gfx)), set(also)
    checked: list[str] = []
    for name in counters:
        renamed = RENAMED.get(name, {}).get(family)
        if name in more or (renamed is None and _INSTANCE.sub("", name) in known):
            checked.append(name)
        elif renamed is not None:
            checked += renamed.split()
        else:
            problem = describe_unknown(
                "counter", name, sorted(known), where=gfx, see="rocprofv3 --list-avail, on that GPU"
            )
            raise ValueError(f"{problem}; one that it lists and bwprof does not: known=[...]")
    return list(dict.fromkeys(checked))


def plan_passes(counters: Sequence[str], gfx: str) -> list[list[str]]:
    """Divide counters into runs: a run has room for a few of each block; counters of no block go alone.

    Counters of one formula stay together: a difference of two runs' figures may be negative.
    """
    groups: dict[str, list[str]] = {}
    for name in counters:
        groups.setdefault(_find_topic(name), []).append(name)
    runs: list[tuple[list[str], set[str]]] = []
    for group in groups.values():
        parts = [_find_parts(name, gfx) for name in group]
        together = set().union(*parts)
        if all(parts) and _fits(together):
            _place(runs, group, together)
        else:
            for name, own in zip(group, parts, strict=True):
                _place(runs, [name], own)
    return [names for names, _ in runs]


def _place(runs: list[tuple[list[str], set[str]]], group: list[str], parts: set[str]) -> None:
    """Add counters to the first run that has room for them, or to a new one."""
    for names, taken in runs:
        if parts and taken and _fits(taken | parts):
            names.extend(group)
            taken.update(parts)
            return
    runs.append(([*group], set(parts)))


def _find_topic(name: str) -> str:
    """Return the topic of the formula that a counter belongs to; its own name where it belongs to none."""
    match = _TOPIC.search(name)
    if match is None:
        return name
    return {"BUBBLE": "RDREQ", "LDS_IDX": "LDS_BANK"}.get(match[0], re.sub("MISS$", "HIT", match[0]))


def _find_parts(name: str, gfx: str) -> set[str]:
    """Return the hardware's counters that a counter takes; empty for an unknown metric."""
    metric = _PARTS.get(_SAME.get(name, name))
    if metric is not None:
        return set((metric.get(l2_prefix(gfx)) or metric.get("TCC_EA", "")).split())
    return {re.sub(r"_(sum|max|min|avr)$", "", _INSTANCE.sub("", name))} if _BLOCK.fullmatch(name) else set()


def _fits(counters: Iterable[str]) -> bool:
    blocks = [re.sub(r"^SQC$", "SQ", name.partition("_")[0]) for name in counters]
    return all(blocks.count(block) <= _ROOM.get(block, 2) for block in set(blocks))
