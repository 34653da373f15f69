"""Read and derive the figures of one row on which hypotheses are judged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bwprof import _core, registry
from bwprof.analysis import values
from bwprof.analysis.occupancy_model import ARCHITECTURES, MOST_THREADS, max_warps, occupancy
from bwprof.analysis.prediction import catalog
from bwprof.measuring.grade import AS_COUNTED
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import measured_or_nan

SECTOR = 32  # bytes
WARP = 32
LATENCY_US = 0.7  # of DRAM under load where it is not known: 0.6 to 0.8 us on current GPUs
_HARMLESS = {"near_timer_floor", ""}  # flags that doubt no figure
BEYOND = 115.0  # percent of a roof: counted and stated figures contradict each other
_OF_DRAM = {"dram_bytes_read", "pct_attainable", "traffic_ratio"}
_MOST = 105.0  # percent: a part and its whole are counted in different passes
_SMALL = 0.6  # of the theoretical bandwidth

# A counted range lasts up to 45 us longer than its kernel (H200, 70 passes): shorter times and busy cycles differ.
_LONG_MS = 0.5


@dataclass(frozen=True, slots=True)
class Share:
    """Percent of a roof (NaN: not known), the roof in words, and whether it was measured.

    `least`: a lower bound by the stated bytes, where none were counted. `beaten`: over 100 % of a measured rate, which
    is possible.
    """

    pct: float
    of: str = ""
    measured: bool = False
    least: bool = False
    beaten: bool = False

    @property
    def contradicts(self) -> bool:
        """Whether it is so far beyond the roof that a count or a stated number is wrong."""
        return self.pct > BEYOND and not self.beaten

    @property
    def text(self) -> str:
        """The share in words: '88 % of the theoretical bandwidth'."""
        return f"{self.pct:.3g} % {self.of}"

    @property
    def known(self) -> bool:
        """Whether the percentage is known."""
        return not math.isnan(self.pct)


class RowFigures:
    """The figures of one row: floats, NaN where the row has none; percents from 0 to 100."""

    def __init__(self, row: Mapping[str, Any], latency_us: float | None = None) -> None:
        self.row = row
        self.flags = set(self.word("flags").split(";"))
        self.doubts = sorted(self.flags - _HARMLESS)  # flags that doubt its figures
        self.unsure = bool(set(self.doubts) - {"not_converged"})  # by more than the half percent of a wide interval
        self.hot = self.word("cache") == "hot"  # its inputs lay in the cache
        self.is_operator = self.word("kind") == "operator"  # of a timeline on a CPU, with what it calls
        self.on_host = self.is_operator or _runs_on_host(self.word("backend"))
        self.of_amd = any(self.has(name) for name in row if name in _OF_AMD or name.startswith(_BLOCKS))
        self._read_bytes()
        self.memory = self._read_memory()
        self.arithmetic = self._read_arithmetic()
        self._read_launch()
        self._read_units()
        self._read_flight(latency_us)
        self.contradictions = self._find_contradictions()

    def number(self, *names: str) -> float:
        """Return the first number of some columns that is not negative; NaN for none."""
        numbers = (measured_or_nan(self.row.get(name)) for name in names)
        return next((number for number in numbers if number >= 0), math.nan)

    def word(self, name: str) -> str:
        """Return the text of a column; "" for none."""
        value = self.row.get(name)
        return "" if is_missing(value) else str(value)

    def has(self, *names: str) -> bool:
        """Check that all of some columns have numbers."""
        return not any(math.isnan(self.number(name)) for name in names)

    def waiting(self, *reasons: str) -> float:
        """Sum the percentages of some stall reasons; NaN where none was counted."""
        return sum(self.waits.get(name, 0.0) for name in reasons) if self.waits else math.nan

    def busy(self, name: str) -> float:
        """Convert a column in percent of the active cycles to percent of the time; NaN beyond 105 %."""
        pct = self.number(name)
        return pct * self.evenness if pct <= _MOST else math.nan

    def bounded(self, gain: float, *, useless: bool = False) -> float:
        """Bound a speed-up from below by 1 and from above by what the nearer roof leaves.

        `useless`: the speed-up saves bytes that need not move, so the roof is that of the bytes that must.
        """
        memory = self.memory.pct
        if useless:
            excess = ratio(self.counted, self.moved)
            memory = memory / max(1.0, excess) if not math.isnan(excess) else math.nan if self.hot else self.attained
        rate = math.nan if self.arithmetic.contradicts else self.arithmetic.pct
        near = max((pct for pct in (memory if memory <= BEYOND else math.nan, rate) if pct > 0), default=math.nan)
        known = [value for value in (gain, 100 / near) if not math.isnan(value)]
        return max(1.0, min(known)) if known else math.nan

    def _read_bytes(self) -> None:
        number, time_ms = self.number, self.number("time_ms")
        self.moved = number("bytes_read") + number("bytes_written")  # compulsory
        stored = [number(f"algorithmic_bytes_{kind}") for kind in ("read", "written")]
        self.algorithmic = self.moved if all(map(math.isnan, stored)) else sum(stored)  # with intermediates
        self.written = number("algorithmic_bytes_written", "bytes_written")
        of_ratio = number("traffic_ratio") * self.algorithmic
        self.counted = first(number("dram_bytes_read") + number("dram_bytes_written"), of_ratio)
        self.as_counted = AS_COUNTED in self.word("reason")  # the compulsory bytes are the counted ones, too
        derived = math.nan if self.as_counted else ratio(self.counted, self.algorithmic)
        self.traffic_ratio = first(number("traffic_ratio"), derived)
        local = first(number("local_bytes"), SECTOR * number("local_sectors"))
        self.local_bytes = 0.0 if number("scratch_size") == 0 else local
        self.dram_gb_s = first(number("dram_gb_s"), ratio(self.counted, time_ms) / 1e6)
        self.l2_gb_s = ratio(number("l2_bytes"), time_ms) / 1e6
        of_stream = 100 * ratio(number("bandwidth_gb_s"), number("attainable_gb_s"))
        self.attained = first(number("pct_attainable"), of_stream)  # percent of a stream of the stated bytes
        # Its bytes are so few that a stream of them is far from the best stream, or from theory.
        self.small = number("attainable_gb_s") < _SMALL * number("ceiling_gb_s", "peak_gb_s") and not self.hot

    def _read_memory(self) -> Share:
        """Compute how near DRAM is to its roof, by counted bytes where there are any, else by stated ones."""
        number = self.number
        if self.hot:
            return Share(math.nan)
        if not math.isnan(self.attained):
            excess = ratio(self.counted, self.moved)
            stream_of_peak = ratio(number("ceiling_gb_s", "attainable_gb_s"), number("peak_gb_s"))
            counted = ratio(number("dram_pct"), stream_of_peak)
            if excess > 1:
                # A stream takes a fixed time and then moves bytes at the best rate: the excess costs that rate's time.
                slower = first(ratio(number("attainable_gb_s"), number("ceiling_gb_s")), 1.0)
                counted = self.attained * (1 + (excess - 1) * min(1.0, slower))
            least = math.isnan(excess) and math.isnan(counted)
            value = max(self.attained, first(counted, 0.0))
            return Share(value, "of what a stream of its bytes reaches", measured=True, least=least)
        by_ceiling = 100 * ratio(self.dram_gb_s, number("ceiling_gb_s"))
        if not math.isnan(by_ceiling):
            return Share(by_ceiling, "of what the best stream reaches", measured=True)
        rates = [100 * ratio(rate, number("peak_gb_s")) for rate in (self.dram_gb_s, number("bandwidth_gb_s"))]
        of_peak = first(number("dram_pct"), rates[0], number("pct_peak"), rates[1])
        uncounted = math.isnan(self.dram_gb_s) and not self.has("dram_pct") and not math.isnan(self.moved)
        return Share(of_peak, "of the theoretical bandwidth", least=uncounted)

    def _read_arithmetic(self) -> Share:
        """Compute how near its FLOPs are to the best measured rate, else to the theoretical one."""
        if self.number("flops") == 0:
            return Share(0.0, "of the arithmetic rate: it has no FLOPs", measured=True)
        rate = first(self.number("tflops"), ratio(self.number("flops"), self.number("time_ms")) / 1e9)
        best, theory = (100 * ratio(rate, self.number(name)) for name in ("measured_tflops", "peak_tflops"))
        if math.isnan(best):
            return Share(theory, "of the theoretical arithmetic rate")
        beaten = best >= values.ABOVE_PEAK_PCT and (theory <= 100 or best <= BEYOND)  # a product's; loops may
        roof = "of the best arithmetic rate" + (" measured, which it beats" if beaten else "")
        return Share(best, roof, measured=True, beaten=beaten)

    def _read_launch(self) -> None:
        """Read the device, and the occupancy that registers, shared memory and threads allow."""
        self.card = _find_card(self.word("device"))  # None where the catalog does not have it
        arch = self.word("compute_capability") or (self.card.arch if self.card else "")
        self.arch = arch if arch in ARCHITECTURES else ""
        self.units = first(self.number("multiprocessors"), float((self.card and self.card.units) or math.nan))
        self.highest_mhz = float((self.card and self.card.clock_mhz) or math.nan)
        threads, registers, shared = (self.number(name) for name in ("block_threads", "registers", "shared_bytes"))
        known = self.arch and 1 <= threads <= MOST_THREADS and registers <= 255 and shared >= 0
        fitting = occupancy(int(registers), int(shared), int(threads), self.arch) if known else None
        self.theoretical_pct = self.number("theoretical_occupancy_pct", "theoretical_pct")
        self.limiter = self.word("occupancy_limiter")  # the resource that allows no more blocks
        self.waves = self.number("waves", "waves_per_sm")  # blocks of the grid over what the device holds at once
        if fitting is not None:
            self.theoretical_pct = first(self.theoretical_pct, fitting.theoretical_pct)
            self.limiter = self.limiter or fitting.limiter
            resident = self.units * fitting.active_blocks
            self.waves = first(self.waves, ratio(self.number("grid_blocks"), resident))

    def _read_units(self) -> None:
        """Read how busy the multiprocessors' parts are, and what warps wait for."""
        # Mean over busiest multiprocessor's active time, else blocks over multiprocessors. Counters over active cycles
        # leave out multiprocessors that had none.
        idle = ratio(self.number("grid_blocks"), self.units)
        self.evenness = min(1.0, idle) if idle > 0 else 1.0
        if self.has("sm_cycles_ratio"):
            self.evenness = 1 / max(1.0, self.number("sm_cycles_ratio"))
        known = [(pipe, self.busy(name)) for pipe, name in _PIPES.items() if not math.isnan(self.busy(name))]
        self.pipes = dict(sorted(known, key=lambda item: -item[1]))  # percent of the time, the busiest first
        # Without a counter of shared memory: one cycle for each wavefront.
        cycles = self.number("time_ms") * self.number("sm_clock_mhz") * 1e3 * self.units
        turns = min(100 * ratio(self.number("shared_wavefronts"), cycles), 100.0) if cycles > 0 else math.nan
        self.shared_busy = first(self.busy("shared_pct"), turns)
        self.waits = values.parse_stalls(self.word("stall_reasons"))  # percent of all waiting

    def _read_flight(self, latency_us: float | None) -> None:
        """Apply Little's law: bytes in flight are latency x bandwidth."""
        known = self.number("memory_latency_us") if latency_us is None else latency_us
        self.latency_known = known > 0
        self.latency_us = known if known > 0 else LATENCY_US
        listed = float(self.card.bandwidth_gb_s) if self.card else math.nan
        roof = first(self.number("attainable_gb_s", "ceiling_gb_s", "peak_gb_s"), listed)
        self.in_flight_needed = self.latency_us * 1e-6 * roof * 1e9  # for the full bandwidth
        # With one load of each resident warp: a lower bound while all warps wait.
        warps = self.number("occupancy_pct") / 100 * (max_warps(self.arch) or math.nan) * self.units
        if self.has("grid_blocks", "block_threads"):
            warps = min(warps, self.number("grid_blocks") * math.ceil(self.number("block_threads") / WARP))
        size = SECTOR * self.number("sectors_per_load")
        self.in_flight_least = size * warps if size > 0 else math.nan

    def _find_contradictions(self) -> list[tuple[set[str], str]]:
        """List figures that contradict each other or a limit: the columns, and why."""
        number, excess = self.number, ratio(self.counted, self.moved)
        attained = math.nan if self.hot else self.attained
        limits = [(name, _MOST, "") for name in _PERCENTS]
        for part, whole in (("bank_conflicts", "shared_wavefronts"), ("dram_gb_s", "peak_gb_s")):
            limits.append((part, 1.05 * number(whole), f", {whole} {number(whole):.4g}"))
        limits += [(name, 32.5, ", of at most 32") for name in ("sectors_per_load", "sectors_per_store")]
        problems = [({name}, f"{name} is {number(name):.4g}{of}") for name, most, of in limits if number(name) > most]
        if number("occupancy_pct") > self.theoretical_pct + 5:
            problems.append(({"occupancy_pct"}, f"more warps than fit: {self.theoretical_pct:.3g} %"))
        named, by_bytes = number("dram_pct"), 100 * ratio(self.dram_gb_s, number("peak_gb_s"))
        if number("time_ms") > _LONG_MS and abs(named - by_bytes) > 20:
            problems.append(({"dram_pct"}, f"dram_pct is {named:.3g}, its bytes over its time make {by_bytes:.3g} %"))
        if attained > 105:
            problems.append(({"pct_attainable"}, f"faster than a stream of its bytes ({attained:.0f} %)"))
        if self.memory.pct > BEYOND:
            problems.append((_OF_DRAM, f"DRAM would be {self.memory.pct:.0f} % {self.memory.of}"))
        if self.arithmetic.contradicts:
            problems.append(({"tflops"}, f"its FLOPs would be {self.arithmetic.pct:.0f} % {self.arithmetic.of}"))
        if attained >= 50 and excess < 0.5:
            why = f"DRAM moved {excess:.2g} of the bytes stated: they lay in the cache, or are stated wrong"
            problems.append(({"pct_attainable", "dram_bytes_read"}, why))
        return problems


_PIPES = {"tensor": "tensor_pct", "FMA": "fma_pct", "vector": "valu_busy_pct"}
_OF_AMD = ("valu_busy_pct", "mem_unit_stalled_pct", "lds_bank_conflict_pct", "scratch_size")
_BLOCKS = ("SQ_", "TCC_", "TCP_", "TA_", "TD_", "GRBM_", "GL2C_")  # prefixes of AMD's counters
_PERCENTS = (
    *("dram_pct", "sm_pct", "tensor_pct", "fma_pct", "occupancy_pct", "issue_pct"),
    *("load_efficiency_pct", "store_efficiency_pct", "valu_busy_pct"),
)


@lru_cache(maxsize=64)
def _runs_on_host(backend: str) -> bool:
    return backend in registry.backend_names() and bool(_core.backend_facts(backend)["runs_on_host"])


_find_card = lru_cache(maxsize=64)(catalog.find)


def first(*numbers: float) -> float:
    """Return the first number that is known; NaN for none."""
    return next((number for number in numbers if not math.isnan(number)), math.nan)


def largest(*numbers: float) -> float:
    """Return the largest number that is known; NaN for none."""
    return max((number for number in numbers if not math.isnan(number)), default=math.nan)


def ratio(part: float, total: float) -> float:
    """Divide; NaN where either number is unknown or the second is not positive."""
    return part / total if total > 0 else math.nan
