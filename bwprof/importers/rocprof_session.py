"""`RocprofSession`: build the commands that count memory traffic with AMD's profilers, and read their files.

Names of counters, GPUs and formulas: source/share/rocprofiler-sdk/counter_defs.yaml of github.com/ROCm/rocprofiler-sdk,
and AMD's page "MI300 and MI200 series performance counters and metrics"
(rocm.docs.amd.com/en/latest/conceptual/gpu-arch/). The table has the common counters, not all; `rocprofv3 --list-avail`
prints those of a GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof.importers.rocprof import parse_rocprof
from bwprof.results.atomic import atomic_write
from bwprof.text.parsing import describe_unknown, parse_names, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

_INPUT, _RESULTS = "input.txt", "results.csv"
_TRACED = ["--kernel-trace", "--output-format", "csv"]

# GPUs that have the same counters: gfx90a is MI200, gfx94 MI300, gfx95 MI350; from gfx10 on it is RDNA.
_FAMILIES = ("gfx9", "gfx908", "gfx90a", "gfx94", "gfx95", "gfx10", "gfx11", "gfx12")
_CDNA = "gfx908 gfx90a gfx94 gfx95"
_GFX9 = f"gfx9 {_CDNA}"
_RDNA = "gfx10 gfx11 gfx12"

# Families, and counters that all of them have; those behind "|" exist alone and, as NAME_sum, over all instances.
_TABLE = (
    (
        f"{_GFX9} {_RDNA}",
        "GRBM_COUNT GRBM_GUI_ACTIVE GPU_UTIL SQ_INSTS_VALU SQ_INSTS_SALU SQ_INSTS_SMEM SQ_INSTS_LDS SQ_INSTS_FLAT "
        "SQ_BUSY_CYCLES SQ_WAVE_CYCLES SQ_WAIT_ANY SQ_WAIT_INST_ANY TA_TA_BUSY TA_BUSY_avr TA_BUSY_max TA_BUSY_min "
        "FETCH_SIZE | SQ_WAVES",
    ),
    (
        f"gfx9 gfx908 gfx90a {_RDNA}",
        "GPUBusy Wavefronts VALUInsts SALUInsts SFetchInsts GDSInsts MemUnitBusy ALUStalledByLDS L2CacheHit "
        "LDSBankConflict WriteUnitStalled",
    ),
    (
        "gfx9 gfx908 gfx90a",
        "FetchSize WriteSize MemUnitStalled VALUBusy SALUBusy VALUUtilization MemWrites32B VFetchInsts VWriteInsts "
        "FlatVMemInsts LDSInsts FlatLDSInsts TCC_WRREQ_STALL_max "
        "| TCC_EA_RDREQ TCC_EA_RDREQ_32B TCC_EA_WRREQ TCC_EA_WRREQ_64B",
    ),
    (
        _GFX9,
        "WRITE_SIZE WRITE_REQ_32B SQ_INSTS_VMEM_RD SQ_INSTS_VMEM_WR SQ_LDS_BANK_CONFLICT SQ_LDS_IDX_ACTIVE "
        "SQ_ACTIVE_INST_VALU SQ_THREAD_CYCLES_VALU TCP_TCP_TA_DATA_STALL_CYCLES_max "
        "| TCC_HIT TCC_MISS TCP_TCP_TA_DATA_STALL_CYCLES",
    ),
    (
        _CDNA,
        "SQ_INSTS_VMEM SQ_INSTS_MFMA SQ_WAIT_INST_LDS TCC_WRITEBACK_sum TCC_TAG_STALL_sum TCP_TOTAL_CACHE_ACCESSES_sum "
        "TCP_TOTAL_READ_sum TCP_TOTAL_WRITE_sum TCP_TCR_TCP_STALL_CYCLES_sum TCP_TD_TCP_STALL_CYCLES_sum GRBM_CP_BUSY "
        "GRBM_SPI_BUSY GRBM_TA_BUSY GRBM_TC_BUSY GRBM_EA_BUSY SQC_DCACHE_HITS SQC_DCACHE_MISSES SQC_DCACHE_REQ "
        "SQC_ICACHE_HITS SQC_ICACHE_MISSES SQC_ICACHE_REQ "
        "| TCC_REQ TCC_READ TCC_WRITE TCP_TCC_READ_REQ TCP_TCC_WRITE_REQ",
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
        "| TCC_EA0_RDREQ TCC_EA0_RDREQ_32B TCC_EA0_WRREQ TCC_EA0_WRREQ_64B TCC_BUBBLE",
    ),
    ("gfx95", "| TCC_EA0_RDREQ_64B TCC_EA0_RDREQ_128B"),
    (
        _RDNA,
        "GL2C_WRREQ_STALL_max SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE WAVE_DEP_WAIT WAVE_ISSUE_WAIT "
        "| GL2C_HIT GL2C_MISS GL2C_EA_RDREQ_32B GL2C_EA_RDREQ_64B GL2C_EA_RDREQ_128B GL2C_EA_WRREQ_64B",
    ),
    ("gfx10 gfx11", "| GL2C_EA_RDREQ_96B GL2C_MC_RDREQ GL2C_MC_WRREQ"),
    ("gfx11 gfx12", "SQ_INSTS_TEX_LOAD SQ_INSTS_TEX_STORE"),
    ("gfx12", "| GL2C_EA_WRREQ"),
)

# Below "|" divides alternatives, of which the first that a GPU has counts.
_READS = (
    "TCC_EA0_RDREQ TCC_EA0_RDREQ_32B TCC_BUBBLE | TCC_EA_RDREQ TCC_EA_RDREQ_32B "
    "| GL2C_EA_RDREQ_32B GL2C_EA_RDREQ_64B GL2C_EA_RDREQ_96B GL2C_EA_RDREQ_128B "
    "| GL2C_EA_RDREQ_32B GL2C_EA_RDREQ_64B GL2C_EA_RDREQ_128B"
)
_SIZED_READS = f"TCC_EA0_RDREQ_32B TCC_EA0_RDREQ_64B TCC_EA0_RDREQ_128B | {_READS}"
_WRITES = "TCC_EA0_WRREQ TCC_EA0_WRREQ_64B | TCC_EA_WRREQ TCC_EA_WRREQ_64B"
_RDNA_WRITES = "GL2C_EA_WRREQ GL2C_EA_WRREQ_64B | GL2C_MC_WRREQ GL2C_EA_WRREQ_64B"
_HITS = "TCC_HIT TCC_MISS | GL2C_HIT GL2C_MISS"
_CONFLICTS = "SQ_LDS_BANK_CONFLICT SQ_LDS_IDX_ACTIVE | SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE"

# The hardware's counters that a metric is computed of.
_PARTS = {
    **dict.fromkeys(("FETCH_SIZE", "FetchSize"), _READS),
    **dict.fromkeys(("WRITE_SIZE", "WriteSize"), _WRITES),
    "L2CacheHit": _HITS,
    "LDSBankConflict": "SQ_LDS_BANK_CONFLICT GRBM_GUI_ACTIVE | SQC_LDS_BANK_CONFLICT SQC_LDS_IDX_ACTIVE",
    "MemUnitStalled": "TCP_TCP_TA_DATA_STALL_CYCLES GRBM_GUI_ACTIVE",
    "VALUBusy": "SQ_ACTIVE_INST_VALU GRBM_GUI_ACTIVE",
    "Wavefronts": "SQ_WAVES",
}

# Names of rocprof's examples that AMD does not list, or that need others: their replacements.
_RENAMED = {
    "TCP_TOTAL_CACHE_ACCESSES": "TCP_TOTAL_CACHE_ACCESSES_sum",
    "TCP_TOTAL_CACHE_MISSES": "TCP_TCC_READ_REQ_sum",
    "SQ_LDS_BANK_ACTIVE": _CONFLICTS,
}


def _sums(counters: str) -> str:
    return re.sub(r"\w+", r"\g<0>_sum", counters)


_MEMORY = ("GRBM_GUI_ACTIVE", "FETCH_SIZE", f"WRITE_SIZE | {_sums(_RDNA_WRITES)}")
_MEMORY_1 = ("GRBM_GUI_ACTIVE", "FetchSize | FETCH_SIZE", f"WriteSize | {_MEMORY[-1]}")  # rocprof of version 1
_DETAILED = (
    *("GRBM_GUI_ACTIVE", "SQ_WAVES"),
    "SQ_INSTS_VMEM | SQ_INSTS_VMEM_RD SQ_INSTS_VMEM_WR | SQ_INSTS_TEX_LOAD SQ_INSTS_TEX_STORE SQ_INSTS_FLAT "
    "| SQ_INSTS_FLAT",
    *(_CONFLICTS, _sums(_SIZED_READS), _sums(f"{_WRITES} | {_RDNA_WRITES}"), _sums(_HITS)),
)
_MATMUL = (
    *("SQ_INSTS_VALU", "SQ_INSTS_LDS"),
    *(f"SQ_INSTS_VALU_MFMA_MOPS_{kind}" for kind in ("F16", "BF16", "F32")),
    *("TCP_TOTAL_CACHE_ACCESSES_sum", "TCP_TCC_READ_REQ_sum"),
)
_ROOM = {"SQ": 8, "TCC": 4, "TCP": 4, "GL2C": 4, "GRBM": 2, "TA": 2}  # counters of a block in one run
_INSTANCE = re.compile(r"\[\d{1,3}\]$")
_BLOCK = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+(?:_sum|_max|_min|_avr)?")
_TOPIC = re.compile(r"RDREQ|WRREQ|BUBBLE|LDS_BANK|LDS_IDX|(?:TCC|GL2C)_(?:HIT|MISS)")
_TOPICS = {"BUBBLE": "RDREQ", "LDS_IDX": "LDS_BANK", "TCC_MISS": "TCC_HIT", "GL2C_MISS": "GL2C_HIT"}


def _list_counters(gfx: str) -> set[str]:
    """Return the counters of the table that a GPU has: gfx942 is of the family gfx94; ValueError for an unknown one."""
    name = gfx.strip().lower().partition(":")[0] if isinstance(gfx, str) else ""
    families = [family for family in _FAMILIES if name.startswith(family)]
    if not families or not re.fullmatch(r"gfx[0-9a-f]{1,5}", name):
        raise ValueError(describe_unknown("gfx", gfx, _FAMILIES))
    family = max(families, key=len)
    known: set[str] = set()
    for having, counters in _TABLE:
        if family in having.split():
            alone, _, both = counters.partition("|")
            known.update(alone.split(), both.split(), _sums(both).split())
    return known


def _choose(alternatives: str, known: set[str]) -> list[str]:
    """Return the first of alternatives of which all counters are known; none where there is no such one."""
    choices = (choice.split() for choice in alternatives.split("|"))
    return next((choice for choice in choices if known.issuperset(choice)), [])


def _choose_all(counters: Iterable[str], gfx: str) -> list[str]:
    known = _list_counters(gfx)
    return [name for alternatives in counters for name in _choose(alternatives, known)]


def _check_counters(counters: Iterable[str], gfx: str, also: Iterable[str]) -> list[str]:
    """Return counters under AMD's names; ValueError for one that is neither the GPU's nor in `also`."""
    known, more = _list_counters(gfx), set(also)
    checked: list[str] = []
    for name in counters:
        renamed = _choose(_RENAMED.get(name, ""), known)
        if name in more or _INSTANCE.sub("", name) in known:
            checked.append(name)
        elif renamed:
            checked += renamed
        else:
            problem = describe_unknown(
                "counter", name, sorted(known), where=gfx, see="rocprofv3 --list-avail, on that GPU"
            )
            raise ValueError(f"{problem}; one that it lists and bwprof does not: known=[...]")
    return list(dict.fromkeys(checked))


def _plan_passes(counters: Iterable[str], known: set[str]) -> list[list[str]]:
    """Divide counters into runs: a run has room for a few of each block; counters of no block go alone.

    Counters of one formula stay together: a difference of two runs' figures may be negative.
    """
    groups: dict[str, list[str]] = {}
    for name in counters:
        match = _TOPIC.search(name)
        topic = match[0] if match else name
        groups.setdefault(_TOPICS.get(topic, topic), []).append(name)
    runs: list[tuple[list[str], set[str]]] = []
    for group in groups.values():
        parts = [_find_parts(name, known) for name in group]
        together = set().union(*parts)
        whole = all(parts) and _fits(together)
        alone = [([name], own) for name, own in zip(group, parts, strict=True)]
        for names, own in [(group, together)] if whole else alone:
            for run, taken in runs:
                if own and taken and _fits(taken | own):
                    run.extend(names)
                    taken.update(own)
                    break
            else:
                runs.append(([*names], set(own)))
    return [run for run, _ in runs]


def _find_parts(name: str, known: set[str]) -> set[str]:
    """Return the hardware's counters that a counter takes; empty for an unknown metric."""
    if name in _PARTS:
        return set(_choose(_PARTS[name], known))
    return {re.sub(r"_(sum|max|min|avr)$", "", _INSTANCE.sub("", name))} if _BLOCK.fullmatch(name) else set()


def _fits(counters: Iterable[str]) -> bool:
    blocks = [re.sub(r"^SQC$", "SQ", name.partition("_")[0]) for name in counters]
    return all(blocks.count(block) <= _ROOM.get(block, 2) for block in set(blocks))


class RocprofSession:
    """Counters that rocprofv3, or rocprof of version 1, writes to a folder.

    `build_command` builds the command to run where the GPU is, and `parse_results` reads its files. It was not tested
    on an AMD GPU: commands and files are those of AMD's documentation.

    Parameters
    ----------
    output_dir : str or path
        The folder that the profiler writes to.
    counters : sequence of str, optional
        AMD's names, and TCP_TOTAL_CACHE_MISSES and SQ_LDS_BANK_ACTIVE of rocprof's examples, which are replaced by
        existing counters; None: bytes read from memory and written to it.
    version : {3, 1}
        rocprofv3, or rocprof of version 1, which reads counters from a file only.
    gfx : str
        The GPU: gfx90a (MI200), gfx942 (MI300), gfx1100 (RDNA 3), ... `rocminfo` prints it.
    known : sequence of str
        Counters that the GPU has and bwprof's table does not.

    Attributes
    ----------
    passes : list of lists of str
        The counters of each run of the program: a run has room for a few of each block of the hardware.

    Raises
    ------
    ValueError
        For a counter or a GPU that is not known, and any other version.

    Examples
    --------
    >>> session = RocprofSession("counted", ["FETCH_SIZE", "WRITE_SIZE"])
    >>> " ".join(session.build_command("./app", ["--size", "4096"]))
    'rocprofv3 --pmc FETCH_SIZE WRITE_SIZE --kernel-trace --output-format csv -d counted -- ./app --size 4096'
    """

    def __init__(
        self,
        output_dir: str | PathLike[str],
        counters: Sequence[str] | None = None,
        *,
        version: int = 3,
        gfx: str = "gfx90a",
        known: Iterable[str] = (),
    ) -> None:
        if version not in (1, 3) or isinstance(version, bool):
            raise ValueError(f"version is {repr_short(version)}: allowed are 1 (rocprof) and 3 (rocprofv3)")
        self.output_dir = parse_path(output_dir, "output_dir")
        self.version, self.gfx = version, gfx
        also = parse_names("known", known) if known else ()
        for name in also:
            if not re.fullmatch(r"[\w\[\]]*[A-Za-z0-9][\w\[\]]*", name, re.ASCII):
                raise ValueError(f"known holds {repr_short(name)}: letters, digits and underscores are allowed")
        if counters is None:
            names = _choose_all(_MEMORY_1 if version == 1 else _MEMORY, gfx)
        else:
            names = list(parse_names("counters", counters))
        self.counters = _check_counters(names, gfx, also)
        if not self.counters:
            raise ValueError("counters are none: name at least one, FETCH_SIZE for example")
        self.passes = _plan_passes(self.counters, _list_counters(gfx))

    def build_command(self, program: str | PathLike[str], args: Sequence[str] = ()) -> list[str]:
        """Build the command as a list of arguments, for `subprocess.run`, never for a shell.

        Counters that need several runs, and those of rocprof of version 1, are written to ``input.txt`` in the folder,
        a ``pmc:`` line for each run; the profiler starts the program once for each line.

        Parameters
        ----------
        program : str or path
            The program to profile.
        args : sequence of str
            Its arguments.

        Raises
        ------
        TypeError, ValueError
            For arguments that are one string, or that no command line can hold.
        OSError
            When the file cannot be written.
        """
        if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
            raise TypeError(f"args is {repr_short(args)}: a list of arguments is needed, ['--size', '4096']")
        words = [_to_argument(word) for word in (program, *args)]
        if not words[0]:
            raise ValueError("program is '': the program to profile is needed")
        folder = f"./{self.output_dir}" if str(self.output_dir).startswith("-") else str(self.output_dir)  # no option
        if self.version == 1:
            if words[0].startswith("-"):
                raise ValueError(f"program is {repr_short(words[0])}: rocprof would take it for an option of its own")
            self._write_input()
            return ["rocprof", "--timestamp", "on", "-i", f"{folder}/{_INPUT}", "-o", f"{folder}/{_RESULTS}", *words]
        counters = ["--pmc", *self.passes[0]]
        if len(self.passes) > 1:
            self._write_input()
            counters = ["-i", f"{folder}/{_INPUT}"]
        return ["rocprofv3", *counters, *_TRACED, "-d", folder, "--", *words]

    def parse_results(self) -> pd.DataFrame:
        """Read the command's files with `parse_rocprof`; FileNotFoundError where the command has not been run."""
        if not self.output_dir.exists():
            folder = quote_text(self.output_dir)
            raise FileNotFoundError(f"there is no folder {folder}: run the command of build_command where the GPU is")
        results = self.output_dir / _RESULTS
        return parse_rocprof(results if self.version == 1 and results.exists() else self.output_dir)

    def _write_input(self) -> None:
        self.output_dir.mkdir(parents=True, exist_ok=True)
        atomic_write(self.output_dir / _INPUT, "".join(f"pmc : {' '.join(names)}\n" for names in self.passes))


def profile_memory(output_dir: str | PathLike[str], **options: Any) -> RocprofSession:
    """Make a session that counts the bytes of each launch.

    Parameters
    ----------
    output_dir : str or path
        The folder that the profiler writes to.
    **options
        version, gfx and known of `RocprofSession`.
    """
    return RocprofSession(output_dir, **options)


def profile_memory_detailed(output_dir: str | PathLike[str], **options: Any) -> RocprofSession:
    """Make a session that counts memory requests by size, hits and misses of the L2 cache, and more.

    It counts vector memory instructions, waves and bank conflicts, too; a GPU needs several runs of the program.
    Parameters are those of `profile_memory`.

    Examples
    --------
    >>> profile_memory_detailed("counted").passes[0][:3]
    ['GRBM_GUI_ACTIVE', 'SQ_WAVES', 'SQ_INSTS_VMEM']
    """
    return RocprofSession(output_dir, _choose_all(_DETAILED, options.get("gfx", "gfx90a")), **options)


def profile_matmul_memory(output_dir: str | PathLike[str], **options: Any) -> RocprofSession:
    """Make a session for matrix products: `profile_memory_detailed` with instructions and the first cache's accesses.

    Instructions are those of vectors, of matrices and on shared memory. Parameters are those of `profile_memory`.
    """
    counters = _choose_all((*_DETAILED, *_MATMUL), options.get("gfx", "gfx90a"))
    return RocprofSession(output_dir, counters, **options)


def _to_argument(word: Any) -> str:
    text = os.fspath(word) if isinstance(word, PathLike) else word
    text = str(text) if isinstance(text, (int, float)) and not isinstance(text, bool) else text
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{repr_short(word)} is no argument of a command: text is needed, without NUL")
    return text
