"""Model how many of a kernel's blocks a multiprocessor runs at once, and what limits their number.

The rules are those of the CUDA toolkit's `cuda_occupancy.h`. A warp gets registers in units of 256, from a quarter of
the multiprocessor's. A block gets shared memory in units of 128 bytes, and 1 KiB more for the system.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from bwprof.results.row import FrozenDict
from bwprof.text.parsing import finite_or_none, parse_int, quote_text, repr_short

WARP, MOST_THREADS, MOST_REGISTERS = 32, 1024, 255
_REGISTERS, _QUARTERS, _REGISTER_UNIT = 65536, 4, 256
_KIB, _SHARED_UNIT, _RESERVED = 1024, 128, 1024  # a block's reserved bytes


class _Multiprocessor(NamedTuple):
    warps: int
    blocks: int
    shared_kib: int


# By compute capability (CUDA programming guide, technical specifications; 11.0 was 10.1 before CUDA 13).
_MULTIPROCESSORS = {
    "8.0": _Multiprocessor(64, 32, 164),
    "8.6": _Multiprocessor(48, 16, 100),
    "8.7": _Multiprocessor(48, 16, 164),
    "8.9": _Multiprocessor(48, 24, 100),
    "9.0": _Multiprocessor(64, 32, 228),
    "10.0": _Multiprocessor(64, 32, 228),
    "10.1": _Multiprocessor(48, 24, 228),
    "10.3": _Multiprocessor(64, 32, 228),
    "11.0": _Multiprocessor(48, 24, 228),
    "12.0": _Multiprocessor(48, 24, 100),
    "12.1": _Multiprocessor(48, 24, 100),
}

ARCHITECTURES = tuple(_MULTIPROCESSORS)
_ARCH = re.compile(r"(?:sm_|compute_)?([0-9]{1,2})\.?([0-9])[af]?")

# The first resource with the least blocks is the limiter.
_TITLES = {"threads": "Threads", "registers": "Registers", "shared": "Shared memory", "blocks": "Blocks"}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The share of a multiprocessor's warps that a kernel's blocks can fill, and the resource that limits it.

    `limits` has the blocks that each resource alone allows: registers, shared, threads, blocks. `limiter` is the least
    of them: "threads" where the multiprocessor is full.
    """

    theoretical_pct: float
    active_blocks: int
    active_warps: int
    max_warps: int
    limiter: str
    limits: dict[str, int] = field(hash=False)
    note: str
    registers: int
    shared_bytes: int
    threads: int
    arch: str

    def text(self, achieved_pct: float | None = None) -> str:
        """Format three lines: theoretical occupancy, achieved occupancy, limiter.

        Parameters
        ----------
        achieved_pct : float, optional
            The share of warps that a profiler counted (``--metrics occupancy``), 0 to 100.

        Raises
        ------
        ValueError
            For a number out of range.

        Examples
        --------
        >>> print(occupancy(64, 0, 256).text(45))
        Theoretical Occupancy: 50%
        Achieved Occupancy: 45%
        Limiter: Registers (64 per thread, 32 max for 100%)
        """
        achieved = "not measured (--metrics occupancy)"
        if achieved_pct is not None:
            pct = None if isinstance(achieved_pct, bool) else finite_or_none(achieved_pct)
            if pct is None or not 0 <= pct <= 100:
                raise ValueError(f"achieved_pct is {repr_short(achieved_pct)}: allowed is a number from 0 to 100")
            achieved = f"{pct:.3g}%"
        return (
            f"Theoretical Occupancy: {self.theoretical_pct:.3g}%\n"
            f"Achieved Occupancy: {achieved}\n"
            f"Limiter: {_TITLES[self.limiter]} ({self._reason()})"
        )

    def _reason(self) -> str:
        """Compare what the kernel uses of the limiter with the most for full occupancy."""
        warps = -(-self.threads // WARP)
        best_blocks = min(self.limits["threads"], self.limits["blocks"])
        best = f"max for {100 * best_blocks * warps / self.max_warps:.3g}%"
        if self.limiter == "registers":
            quarter = -(-best_blocks * warps // _QUARTERS)
            unit = _REGISTERS // _QUARTERS // quarter // _REGISTER_UNIT * _REGISTER_UNIT
            return f"{self.registers} per thread, {min(MOST_REGISTERS, unit // WARP)} {best}"
        if self.limiter == "shared":
            share = _most_shared(self.arch) // best_blocks // _SHARED_UNIT * _SHARED_UNIT
            return f"{self.shared_bytes} bytes per block, {share - _RESERVED} {best}"
        if self.limiter == "blocks":
            threads = -(-self.max_warps // self.limits["blocks"]) * WARP
            return f"{self.threads} threads each, {self.limits['blocks']} per multiprocessor, {threads} needed for 100%"
        of = f"{self.active_warps} of {self.max_warps} warps"
        return f"{self.threads} per block, {of}" + (": full" if self.active_warps == self.max_warps else "")


def occupancy(registers: int, shared_bytes: int, threads: int, arch: str = "9.0") -> Occupancy:
    """Compute the theoretical occupancy of a kernel on an NVIDIA GPU; no GPU is needed.

    Parameters
    ----------
    registers : int
        Registers of a thread (see `ptxas -v`, Nsight Compute, `bwprof.variants`): 0 to 255.
    shared_bytes : int
        Static and dynamic shared memory of a block.
    threads : int
        Threads of a block: 1 to 1024.
    arch : str
        The compute capability: "9.0", "90", "sm_90a". 8.0 to 12.1 are known.

    Returns
    -------
    Occupancy
        0 % where a single block needs more than a multiprocessor has; its `note` says so.

    Raises
    ------
    ValueError
        For numbers out of range and unknown architectures.

    Examples
    --------
    >>> import bwprof
    >>> result = bwprof.occupancy(40, 40960, 256, arch="8.9")
    >>> result.active_blocks, round(result.theoretical_pct, 1), result.limiter
    (2, 33.3, 'shared')
    """
    registers = _check_range("registers", registers, 0, MOST_REGISTERS)
    shared_bytes = _check_range("shared_bytes", shared_bytes, 0, 2**63 - 1)
    threads = _check_range("threads", threads, 1, MOST_THREADS)
    match = _ARCH.fullmatch(str(arch).strip().lower())
    name = f"{int(match[1])}.{match[2]}" if match else ""
    if name not in _MULTIPROCESSORS:
        raise ValueError(f"arch is '{quote_text(arch)}': allowed are {', '.join(_MULTIPROCESSORS)}")
    arch = name
    limits = FrozenDict(_limits(registers, shared_bytes, threads, arch))
    blocks = min(limits.values())
    limiting = [name for name in _TITLES if limits[name] == blocks]
    warps, most = blocks * -(-threads // WARP), _MULTIPROCESSORS[arch].warps
    return Occupancy(
        theoretical_pct=100.0 * warps / most,
        active_blocks=blocks,
        active_warps=warps,
        max_warps=most,
        limiter=limiting[0],
        limits=limits,
        note="; ".join(_list_notes(threads, arch, [] if blocks else limiting)),
        registers=registers,
        shared_bytes=shared_bytes,
        threads=threads,
        arch=arch,
    )


def max_warps(arch: str) -> int | None:
    """Return the warps that a multiprocessor of an architecture runs at once; None for an unknown one."""
    return _MULTIPROCESSORS[arch].warps if arch in _MULTIPROCESSORS else None


def _limits(registers: int, shared_bytes: int, threads: int, arch: str) -> dict[str, int]:
    """Compute the blocks that each resource alone allows."""
    here = _MULTIPROCESSORS[arch]
    warps = -(-threads // WARP)
    by_registers = here.blocks
    if registers:
        warp_registers = -(-registers * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        # A launch is checked as if its warps were spread evenly over the quarters.
        fits = warp_registers * -(-warps // _QUARTERS) * _QUARTERS <= _REGISTERS
        by_registers = _QUARTERS * (_REGISTERS // _QUARTERS // warp_registers) // warps if fits else 0
    taken = -(-(shared_bytes + _RESERVED) // _SHARED_UNIT) * _SHARED_UNIT
    return {
        "registers": by_registers,
        "shared": here.shared_kib * _KIB // taken if taken <= _most_shared(arch) else 0,
        "threads": here.warps // warps,
        "blocks": here.blocks,
    }


def _most_shared(arch: str) -> int:
    """Return the shared memory of one block, its reserved bytes included."""
    return _MULTIPROCESSORS[arch].shared_kib * _KIB


def _list_notes(threads: int, arch: str, lacking: list[str]) -> list[str]:
    """List what a kernel lacks to run, and idle lanes."""
    needs = {
        "registers": f"a block may have {_REGISTERS} registers, in units of {_REGISTER_UNIT} for a warp",
        "shared": f"a block may have {_most_shared(arch) - _RESERVED} bytes of shared memory",
    }
    notes = [f"it does not run: {' and '.join(needs[name] for name in lacking)}"] if lacking else []
    if threads % WARP:
        notes.append(f"{threads} threads are no multiple of {WARP}: the last warp's other lanes idle")
    return notes


def _check_range(name: str, value: object, least: int, most: int) -> int:
    number = least - 1 if isinstance(value, bool) else parse_int(value, name)
    if not least <= number <= most:
        raise ValueError(f"{name} is {repr_short(value)}: allowed is a whole number from {least} to {most}")
    return number
