"""How many of a kernel's blocks a multiprocessor runs at once, and what stops it from running more.

The rules are those of the CUDA toolkit's `cuda_occupancy.h`: registers are given to a warp in units of 256, from a
quarter of the multiprocessor's each; shared memory to a block in units of 128 bytes, 1 KiB of its own on top.
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

_PLAIN_SHARED = 48 * _KIB  # what a block has without asking


class _Multiprocessor(NamedTuple):
    warps: int
    blocks: int
    shared_kib: int


# By compute capability (CUDA's programming guide, technical specifications; 11.0 was 10.1 before CUDA 13).
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

# Of several that stop at the same number of blocks, the first is named; the note has the others.
_TITLES = {"threads": "Threads", "registers": "Registers", "shared": "Shared memory", "blocks": "Blocks"}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The share of a multiprocessor's warps that a kernel's blocks can fill, and the resource that stops it there.

    `limits` has the blocks that each resource alone would let run, by its name: registers, shared, threads, blocks.
    `limiter` is the smallest of them: "threads" where the multiprocessor is full.
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
        """Three lines: theoretical occupancy, achieved occupancy, what limits it.

        Parameters
        ----------
        achieved_pct : float, optional
            The share of warps that a profiler saw running (``--metrics occupancy``), 0 to 100.

        Raises
        ------
        ValueError
            For anything else.

        Examples
        --------
        >>> print(occupancy(64, 0, 256).text(45))
        Theoretical Occupancy: 50%
        Achieved Occupancy: 45%
        Limiter: Registers (64 per thread, 32 max for 100%)
        """
        achieved = "not measured (--metrics occupancy)" if achieved_pct is None else _percent(_achieved(achieved_pct))
        return (
            f"Theoretical Occupancy: {_percent(self.theoretical_pct)}\n"
            f"Achieved Occupancy: {achieved}\n"
            f"Limiter: {_TITLES[self.limiter]} ({self._reason()})"
        )

    def _reason(self) -> str:
        """What the limiter has of it, and what would lift it."""
        warps = -(-self.threads // WARP)
        wanted = min(self.limits["threads"], self.limits["blocks"])  # the best that this size of blocks can have
        best = f"max for {_percent(100 * wanted * warps / self.max_warps)}"
        if self.limiter == "registers":
            quarter = -(-wanted * warps // _QUARTERS)
            unit = _REGISTERS // _QUARTERS // quarter // _REGISTER_UNIT * _REGISTER_UNIT
            return f"{self.registers} per thread, {min(MOST_REGISTERS, unit // WARP)} {best}"
        if self.limiter == "shared":
            share = _MULTIPROCESSORS[self.arch].shared_kib * _KIB // wanted // _SHARED_UNIT * _SHARED_UNIT
            return f"{self.shared_bytes} bytes per block, {min(share, _most_shared(self.arch)) - _RESERVED} {best}"
        if self.limiter == "blocks":
            threads = -(-self.max_warps // self.limits["blocks"]) * WARP
            return f"{self.threads} threads each, {self.limits['blocks']} per multiprocessor, {threads} needed for 100%"
        of = f"{self.active_warps} of {self.max_warps} warps"
        return f"{self.threads} per block, {of}" + (": full" if self.active_warps == self.max_warps else "")


def occupancy(registers: int, shared_bytes: int, threads: int, arch: str = "9.0") -> Occupancy:
    """The theoretical occupancy of a kernel on a multiprocessor of an NVIDIA GPU, without one.

    Parameters
    ----------
    registers : int
        Of a thread, as `ptxas -v`, Nsight Compute and `bwprof.variants` tell them: 0 to 255.
    shared_bytes : int
        Of a block, static and dynamic together.
    threads : int
        Of a block: 1 to 1024.
    arch : str
        The compute capability: "9.0", "90", "sm_90a". 8.0 to 12.1 are known.

    Returns
    -------
    Occupancy
        Of no block at all (0 %) where a single one needs more than there is; its `note` then says so.

    Raises
    ------
    ValueError
        For numbers out of range and architectures that are not known.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.occupancy(40, 40960, 256, arch="8.9")
    >>> found.active_blocks, round(found.theoretical_pct, 1), found.limiter
    (2, 33.3, 'shared')
    """
    registers = _within("registers", registers, 0, MOST_REGISTERS)
    shared_bytes = _within("shared_bytes", shared_bytes, 0, 2**63 - 1)
    threads = _within("threads", threads, 1, MOST_THREADS)
    arch = _canonical(arch)
    limits = FrozenDict(_limits(registers, shared_bytes, threads, arch))
    blocks = min(limits.values())
    holding = [name for name in _TITLES if limits[name] == blocks]
    warps, most = blocks * -(-threads // WARP), _MULTIPROCESSORS[arch].warps
    return Occupancy(
        theoretical_pct=100.0 * warps / most,
        active_blocks=blocks,
        active_warps=warps,
        max_warps=most,
        limiter=holding[0],
        limits=limits,
        note="; ".join(_notes(shared_bytes, threads, arch, blocks, holding)),
        registers=registers,
        shared_bytes=shared_bytes,
        threads=threads,
        arch=arch,
    )


def max_warps(arch: str) -> int | None:
    """Warps that a multiprocessor of an architecture holds at once; None where there is no table for it."""
    return _MULTIPROCESSORS[arch].warps if arch in _MULTIPROCESSORS else None


def is_known(arch: str) -> bool:
    """Whether there is a table for an architecture."""
    return arch in _MULTIPROCESSORS


def _limits(registers: int, shared_bytes: int, threads: int, arch: str) -> dict[str, int]:
    """The blocks that each resource alone lets run; registers that nobody needs limit no more than the blocks do."""
    here = _MULTIPROCESSORS[arch]
    warps = -(-threads // WARP)
    by_registers = here.blocks
    if registers:
        warp_registers = -(-registers * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        # A launch is checked as if its warps were dealt evenly to the quarters.
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
    """The shared memory of one block, its reserved bytes included."""
    return _MULTIPROCESSORS[arch].shared_kib * _KIB


def _notes(shared_bytes: int, threads: int, arch: str, blocks: int, holding: list[str]) -> list[str]:
    found = []
    if not blocks:
        most = _most_shared(arch) - _RESERVED
        needs = {
            "registers": f"a block may have {_REGISTERS} registers, in units of {_REGISTER_UNIT} for a warp",
            "shared": f"a block may have {most} bytes of shared memory",
        }
        found.append(f"it does not run: {' and '.join(needs[name] for name in holding)}")
    elif len(holding) > 1 and holding[0] != "threads":
        found.append(f"{' and '.join(holding[1:])} {'limits' if len(holding) == 2 else 'limit'} it just as much")
    if threads % WARP:
        found.append(f"{threads} threads are no multiple of {WARP}: the last warp's other lanes idle")
    if blocks and shared_bytes > _PLAIN_SHARED:
        found.append(f"more than {_PLAIN_SHARED} bytes of shared memory must be dynamic, and asked for")
    return found


def _within(name: str, value: object, least: int, most: int) -> int:
    found = least - 1 if isinstance(value, bool) else parse_int(value, name)
    if not least <= found <= most:
        raise ValueError(f"{name} is {repr_short(value)}: allowed is a whole number from {least} to {most}")
    return found


def _canonical(arch: object) -> str:
    match = _ARCH.fullmatch(str(arch).strip().lower())
    found = f"{int(match[1])}.{match[2]}" if match else ""
    if found not in _MULTIPROCESSORS:
        raise ValueError(f"arch is '{quote_text(arch)}': allowed are {', '.join(_MULTIPROCESSORS)}")
    return found


def _achieved(value: object) -> float:
    found = None if isinstance(value, bool) else finite_or_none(value)
    if found is None or not 0 <= found <= 100:
        raise ValueError(f"achieved_pct is {repr_short(value)}: allowed is a number from 0 to 100")
    return found


def _percent(value: float) -> str:
    return f"{value:.3g}%"
