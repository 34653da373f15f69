"""`RocprofSession`: the commands that count memory traffic with AMD's profilers, and what they leave."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.importers.rocprof import counters as known_counters
from bwprof.importers.rocprof.parse import parse_rocprof
from bwprof.results.atomic import atomic_write
from bwprof.text.parsing import parse_names, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

_INPUT, _RESULTS = "input.txt", "results.csv"

_TRACED = ["--kernel-trace", "--output-format", "csv"]


class RocprofSession:
    """Counters to be taken by rocprofv3, or by rocprof of version 1, into a folder.

    Nothing is run here: `build_command` gives what to run, where the GPU is, and `parse_results` reads what it left.
    There was no AMD GPU to try this on: commands follow AMD's documentation, files are read as it shows them.

    Parameters
    ----------
    output_dir : str or path
        Where the profiler writes.
    counters : sequence of str, optional
        What is counted; None: bytes read from memory and written to it. Names of AMD's, and of rocprof's examples
        TCP_TOTAL_CACHE_MISSES and SQ_LDS_BANK_ACTIVE, which stand for counters that there are.
    version : {3, 1}
        rocprofv3, or rocprof of version 1, which takes counters from a file only.
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
        asked = memory_counters(gfx, version) if counters is None else list(parse_names("counters", counters))
        also = [_name(given) for given in parse_names("known", known)] if known else []
        self.counters = known_counters.check_counters(asked, gfx, also)
        if not self.counters:
            raise ValueError("counters are none: name at least one, FETCH_SIZE for example")
        self.passes = known_counters.plan_passes(self.counters, gfx)

    def build_command(self, program: str | PathLike[str], args: Sequence[str] = ()) -> list[str]:
        """The command as a list of arguments, for `subprocess.run`, never for a shell.

        Where the counters need several runs, or for rocprof of version 1, they are written to ``input.txt`` in the
        folder, a ``pmc:`` line for each run, and the profiler starts the program once for each line.

        Parameters
        ----------
        program : str or path
            What is profiled.
        args : sequence of str
            Its arguments.

        Raises
        ------
        TypeError
            For arguments that are one string, which would become letters.
        ValueError
            For what no command line can hold.
        OSError
            When the folder, or the file in it, cannot be written.
        """
        wanted = [_argument(program), *_arguments(args)]
        if not wanted[0]:
            raise ValueError("program is '': the program to profile is needed")
        folder = _path_argument(self.output_dir)
        if self.version == 1:
            if wanted[0].startswith("-"):
                raise ValueError(f"program is {repr_short(wanted[0])}: rocprof would take it for an option of its own")
            self._write_input()
            results = os.path.join(folder, _RESULTS)
            return ["rocprof", "--timestamp", "on", "-i", os.path.join(folder, _INPUT), "-o", results, *wanted]
        if len(self.passes) == 1:
            return ["rocprofv3", "--pmc", *self.passes[0], *_TRACED, "-d", folder, "--", *wanted]
        self._write_input()
        return ["rocprofv3", "-i", os.path.join(folder, _INPUT), *_TRACED, "-d", folder, "--", *wanted]

    def parse_results(self) -> pd.DataFrame:
        """What the command left in the folder, as `parse_rocprof` reads it: a row for each launch.

        Raises
        ------
        FileNotFoundError
            Where the command was not run yet.
        """
        if not self.output_dir.exists():
            folder = quote_text(self.output_dir)
            raise FileNotFoundError(f"there is no folder {folder}: run the command of build_command where the GPU is")
        results = self.output_dir / _RESULTS
        return parse_rocprof(results if self.version == 1 and results.exists() else self.output_dir)

    def _write_input(self) -> None:
        self.output_dir.mkdir(parents=True, exist_ok=True)
        lines = [f"pmc : {' '.join(listed)}\n" for listed in self.passes]
        atomic_write(self.output_dir / _INPUT, "".join(lines))


def memory_counters(gfx: str = "gfx90a", version: int = 3) -> list[str]:
    """Active cycles, and the bytes that go to memory and back, in KiB where the GPU's family has that metric."""
    kind = known_counters.l2_prefix(gfx)
    if kind == "GL2C":
        return ["GRBM_GUI_ACTIVE", "FETCH_SIZE", *_rdna_writes(gfx)]
    sizes = ["FetchSize", "WriteSize"] if version == 1 and kind == "TCC_EA" else ["FETCH_SIZE", "WRITE_SIZE"]
    return ["GRBM_GUI_ACTIVE", *sizes]


def profile_memory(output_dir: str | PathLike[str], **options: Any) -> RocprofSession:
    """A session that counts the bytes of each launch: what `RocprofSession` does without `counters`.

    `options` are those of `RocprofSession`: version, gfx, known.
    """
    return RocprofSession(output_dir, **options)


def profile_memory_detailed(output_dir: str | PathLike[str], **options: Any) -> RocprofSession:
    """A session that counts memory requests by size, hits and misses of the L2 cache, vector memory instructions, waves
    and bank conflicts; a GPU needs several runs of the program for them.

    `options` are those of `RocprofSession`: version, gfx, known.

    Examples
    --------
    >>> profile_memory_detailed("counted").passes[0][:3]
    ['GRBM_GUI_ACTIVE', 'SQ_WAVES', 'SQ_INSTS_VMEM']
    """
    return RocprofSession(output_dir, _detailed(options.get("gfx", "gfx90a")), **options)


def profile_matmul_memory(output_dir: str | PathLike[str], **options: Any) -> RocprofSession:
    """The same for matrix products: beside it vector and matrix instructions, those on shared memory, and the first
    cache's accesses and misses.

    `options` are those of `RocprofSession`: version, gfx, known.
    """
    gfx = options.get("gfx", "gfx90a")
    more = ["SQ_INSTS_VALU", "SQ_INSTS_LDS"]
    if known_counters.l2_prefix(gfx) != "GL2C":
        has = known_counters.list_counters(gfx)
        matrix = [f"SQ_INSTS_VALU_MFMA_MOPS_{kind}" for kind in ("F16", "BF16", "F32")]
        more += [name for name in (*matrix, "TCP_TOTAL_CACHE_ACCESSES_sum", "TCP_TCC_READ_REQ_sum") if name in has]
    return RocprofSession(output_dir, [*_detailed(gfx), *more], **options)


def _detailed(gfx: str) -> list[str]:
    kind = known_counters.l2_prefix(gfx)
    has = known_counters.list_counters(gfx)
    if kind == "GL2C":
        instructions = [name for name in ("SQ_INSTS_TEX_LOAD", "SQ_INSTS_TEX_STORE", "SQ_INSTS_FLAT") if name in has]
        reads = [f"GL2C_EA_RDREQ_{size}B_sum" for size in (32, 64, 96, 128)]
        requests = [*(name for name in reads if name in has), *_rdna_writes(gfx), "GL2C_HIT_sum", "GL2C_MISS_sum"]
        return ["GRBM_GUI_ACTIVE", "SQ_WAVES", *instructions, "SQC_LDS_BANK_CONFLICT", "SQC_LDS_IDX_ACTIVE", *requests]
    vector = ["SQ_INSTS_VMEM"] if "SQ_INSTS_VMEM" in has else ["SQ_INSTS_VMEM_RD", "SQ_INSTS_VMEM_WR"]
    reads = [f"{kind}_RDREQ_sum", f"{kind}_RDREQ_32B_sum", *(["TCC_BUBBLE_sum"] if kind == "TCC_EA0" else [])]
    if "TCC_EA0_RDREQ_128B_sum" in has:
        reads = [f"{kind}_RDREQ_{size}B_sum" for size in (32, 64, 128)]
    writes = [f"{kind}_WRREQ_sum", f"{kind}_WRREQ_64B_sum"]
    conflicts = ["SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"]
    return ["GRBM_GUI_ACTIVE", "SQ_WAVES", *vector, *conflicts, *reads, *writes, "TCC_HIT_sum", "TCC_MISS_sum"]


def _rdna_writes(gfx: str) -> list[str]:
    whole = "GL2C_EA_WRREQ_sum" if "GL2C_EA_WRREQ_sum" in known_counters.list_counters(gfx) else "GL2C_MC_WRREQ_sum"
    return [whole, "GL2C_EA_WRREQ_64B_sum"]


def _name(given: str) -> str:
    """A counter's name, as a line of the profiler's file holds it."""
    if not given.isascii() or not given.replace("_", "").replace("[", "").replace("]", "").isalnum():
        raise ValueError(
            f"known holds {repr_short(given)}: a counter's name is needed, of letters, digits and underscores"
        )
    return given


def _arguments(args: Sequence[str]) -> list[str]:
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise TypeError(f"args is {repr_short(args)}: a list of arguments is needed, ['--size', '4096']")
    return [_argument(one) for one in args]


def _argument(given: Any) -> str:
    text = os.fspath(given) if isinstance(given, PathLike) else given
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{repr_short(given)} is no argument of a command: text is needed, without NUL")
    return text


def _path_argument(path: Path) -> str:
    """A path that no program takes for an option."""
    text = str(path)
    return os.path.join(".", text) if text.startswith("-") else text
