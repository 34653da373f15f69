"""Read and derive the figures of one row on which hypotheses are judged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from bwprof import _core, registry
from bwprof.analysis import values
from bwprof.analysis.occupancy_model import ARCHITECTURES, MOST_THREADS, Occupancy, max_warps, occupancy
from bwprof.analysis.prediction import catalogue
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
    def known(self) -> bool:
        """Whether the percentage is known."""
        return not math.isnan(self.pct)


class RowFigures:
    """The figures of one row: floats, NaN where the row has none; percents from 0 to 100."""

    def __init__(self, row: Mapping[str, Any], latency_us: float | None = None) -> None:
        self.row = row
        self._numbers: dict[str, float] = {}
        own = self.number("memory_latency_us")
        self.latency_known = latency_us is not None or own > 0
        self.latency_us = latency_us if latency_us is not None else own if own > 0 else LATENCY_US

    def number(self, *names: str) -> float:
        """Return the first number of some columns that is not negative; NaN for none."""
        for name in names:
            value = self._numbers.get(name)
            if value is None:
                value = self._numbers[name] = measured_or_nan(self.row.get(name))
            if value >= 0:
                return value
        return math.nan

    def word(self, name: str) -> str:
        """Return the text of a column; "" for none."""
        value = self.row.get(name)
        return "" if is_missing(value) else str(value)

    def has(self, *names: str) -> bool:
        """Check that all of some columns have numbers."""
        return not any(math.isnan(self.number(name)) for name in names)

    @cached_property
    def on_host(self) -> bool:
        """Whether it ran on a CPU."""
        return self.is_operator or _runs_on_host(self.word("backend"))

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator of a timeline on a CPU, with what it calls."""
        return self.word("kind") == "operator"

    @cached_property
    def of_amd(self) -> bool:
        """Whether it has columns that only AMD's profilers write."""
        return any(self.has(name) for name in (*_OF_AMD, *_list_amd_counters(tuple(self.row))))

    @cached_property
    def flags(self) -> set[str]:
        """The flags of the row."""
        return set(self.word("flags").split(";"))

    @cached_property
    def doubts(self) -> list[str]:
        """The flags that doubt its figures."""
        return sorted(self.flags - _HARMLESS)

    @property
    def unsure(self) -> bool:
        """Whether its flags doubt more than the half percent of a wide interval."""
        return bool(set(self.doubts) - {"not_converged"})

    @property
    def hot(self) -> bool:
        """Whether its inputs lay in the cache."""
        return self.word("cache") == "hot"

    # Bytes and FLOPs

    @cached_property
    def moved(self) -> float:
        """Compulsory bytes."""
        return self.number("bytes_read") + self.number("bytes_written")

    @cached_property
    def algorithmic(self) -> float:
        """Bytes that the kernel has to move, intermediates included."""
        read, written = self.number("algorithmic_bytes_read"), self.number("algorithmic_bytes_written")
        return self.moved if math.isnan(read) and math.isnan(written) else read + written

    @cached_property
    def written(self) -> float:
        """Bytes that the kernel has to write, intermediates included."""
        return self.number("algorithmic_bytes_written", "bytes_written")

    @cached_property
    def counted(self) -> float:
        """DRAM bytes, counted."""
        counted = self.number("dram_bytes_read") + self.number("dram_bytes_written")
        return self.number("traffic_ratio") * self.algorithmic if math.isnan(counted) else counted

    @property
    def as_counted(self) -> bool:
        """Whether its bytes are counted, as those of a caller's function are where none were passed."""
        return AS_COUNTED in self.word("reason")

    @cached_property
    def traffic_ratio(self) -> float:
        """Counted over algorithmic bytes; NaN where both are counted."""
        own = self.number("traffic_ratio")
        return ratio(self.counted, self.algorithmic) if math.isnan(own) and not self.as_counted else own

    @cached_property
    def local_bytes(self) -> float:
        """Bytes of local memory's traffic."""
        if self.number("scratch_size") == 0:
            return 0.0
        return self.number("local_bytes") if self.has("local_bytes") else SECTOR * self.number("local_sectors")

    # Roofs

    @cached_property
    def attained(self) -> float:
        """Percent of what a stream of the stated bytes reaches."""
        own = self.number("pct_attainable")
        return 100 * ratio(self.number("bandwidth_gb_s"), self.number("attainable_gb_s")) if math.isnan(own) else own

    @property
    def small(self) -> bool:
        """Whether its bytes are so few that a stream of them is far from the best stream, or from theory."""
        return self.number("attainable_gb_s") < _SMALL * self.number("ceiling_gb_s", "peak_gb_s") and not self.hot

    @cached_property
    def dram_gb_s(self) -> float:
        """Counted bytes over time."""
        own = self.number("dram_gb_s")
        return ratio(self.counted, self.number("time_ms")) / 1e6 if math.isnan(own) else own

    @cached_property
    def l2_gb_s(self) -> float:
        """L2's bytes over time."""
        return ratio(self.number("l2_bytes"), self.number("time_ms")) / 1e6

    @cached_property
    def memory(self) -> Share:
        """How near DRAM is to its roof, by counted bytes where there are any, else by stated ones."""
        if self.hot:
            return Share(math.nan)
        if not math.isnan(self.attained):
            excess = ratio(self.counted, self.moved)
            counted = self._of_stream(excess) if excess > 1 else ratio(self.number("dram_pct"), self._stream_of_peak)
            least = math.isnan(excess) and math.isnan(counted)
            value = max(self.attained, 0.0 if math.isnan(counted) else counted)
            return Share(value, "of what a stream of its bytes reaches", measured=True, least=least)
        by_ceiling = 100 * ratio(self.dram_gb_s, self.number("ceiling_gb_s"))
        if not math.isnan(by_ceiling):
            return Share(by_ceiling, "of what the best stream reaches", measured=True)
        return Share(self.of_peak, "of the theoretical bandwidth", least=self._has_no_counter)

    def _of_stream(self, excess: float) -> float:
        """Compute the percentage of a stream of the bytes that DRAM moved, `excess` times the stated ones.

        A stream takes a fixed time and then moves bytes at the best rate, so the excess costs the time of that rate.
        """
        slower = ratio(self.number("attainable_gb_s"), self.number("ceiling_gb_s"))
        return self.attained * (1 + (excess - 1) * (1.0 if math.isnan(slower) else min(1.0, slower)))

    @property
    def _stream_of_peak(self) -> float:
        """Share of the theoretical bandwidth that the best stream reaches."""
        return ratio(self.number("ceiling_gb_s", "attainable_gb_s"), self.number("peak_gb_s"))

    @property
    def _has_no_counter(self) -> bool:
        """Whether DRAM's share follows from stated bytes alone."""
        counted = not math.isnan(self.dram_gb_s) or self.has("dram_pct")
        return not counted and not math.isnan(self.moved)

    @cached_property
    def of_peak(self) -> float:
        """Percent of the theoretical bandwidth."""
        by_bytes = 100 * ratio(self.dram_gb_s, self.number("peak_gb_s"))
        by_rate = 100 * ratio(self.number("bandwidth_gb_s"), self.number("peak_gb_s"))
        shares = (self.number("dram_pct"), by_bytes, self.number("pct_peak"), by_rate)
        return next((share for share in shares if not math.isnan(share)), math.nan)

    @cached_property
    def arithmetic(self) -> Share:
        """How near its FLOPs are to the best measured rate, else to the theoretical one."""
        if self.number("flops") == 0:
            return Share(0.0, "of the arithmetic rate: it has no FLOPs", measured=True)
        own = self.number("tflops")
        rate = ratio(self.number("flops"), self.number("time_ms")) / 1e9 if math.isnan(own) else own
        best, theory = 100 * ratio(rate, self.number("measured_tflops")), 100 * ratio(rate, self.number("peak_tflops"))
        if math.isnan(best):
            return Share(theory, "of the theoretical arithmetic rate")
        beaten = best >= values.ABOVE_PEAK_PCT and (theory <= 100 or best <= BEYOND)  # a product's; loops may
        roof = "of the best arithmetic rate" + (" measured, which it beats" if beaten else "")
        return Share(best, roof, measured=True, beaten=beaten)

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

    # The launch

    @cached_property
    def card(self) -> catalogue.Entry | None:
        """The device, where the catalogue has it."""
        return _find_card(self.word("device")) if self.word("device") else None

    @cached_property
    def arch(self) -> str:
        """Compute capability; "" where it is not known."""
        own = self.word("compute_capability") or (self.card.arch if self.card else "")
        return own if own in ARCHITECTURES else ""

    @cached_property
    def units(self) -> float:
        """Multiprocessors."""
        own = self.number("multiprocessors")
        return float(self.card.units) if math.isnan(own) and self.card and self.card.units else own

    @cached_property
    def fitting(self) -> Occupancy | None:
        """The occupancy that its registers, shared memory and threads allow."""
        threads, registers, shared = (self.number(name) for name in ("block_threads", "registers", "shared_bytes"))
        if not self.arch or not 1 <= threads <= MOST_THREADS or not 0 <= registers <= 255 or not shared >= 0:
            return None
        return occupancy(int(registers), int(shared), int(threads), self.arch)

    @cached_property
    def theoretical_pct(self) -> float:
        """Occupancy that its resources allow."""
        own = self.number("theoretical_occupancy_pct", "theoretical_pct")
        return self.fitting.theoretical_pct if math.isnan(own) and self.fitting else own

    @property
    def limiter(self) -> str:
        """The resource that allows no more blocks."""
        own = self.word("occupancy_limiter")
        return own or (self.fitting.limiter if self.fitting else "")

    @cached_property
    def waves(self) -> float:
        """Blocks of the grid over what the device holds at once."""
        own = self.number("waves", "waves_per_sm")
        if not math.isnan(own) or self.fitting is None:
            return own
        return ratio(self.number("grid_blocks"), self.units * self.fitting.active_blocks)

    @cached_property
    def evenness(self) -> float:
        """Mean over busiest multiprocessor's active time, else blocks over multiprocessors, at most 1.

        Counters over active cycles leave out multiprocessors that had none.
        """
        if self.has("sm_cycles_ratio"):
            return 1 / max(1.0, self.number("sm_cycles_ratio"))
        idle = ratio(self.number("grid_blocks"), self.units)
        return min(1.0, idle) if idle > 0 else 1.0

    def busy(self, name: str) -> float:
        """Convert a column in percent of the active cycles to percent of the time; NaN beyond 105 %."""
        pct = self.number(name)
        return pct * self.evenness if pct <= _MOST else math.nan

    @cached_property
    def pipes(self) -> dict[str, float]:
        """Percent of the time in which each counted arithmetic pipe is busy, the busiest first."""
        known = [(pipe, self.busy(name)) for pipe, name in _PIPES.items() if not math.isnan(self.busy(name))]
        return dict(sorted(known, key=lambda item: -item[1]))

    @cached_property
    def shared_busy(self) -> float:
        """Percent of the time in which shared memory is busy; without a counter, one cycle for each wavefront."""
        if self.number("shared_pct") <= _MOST:
            return self.busy("shared_pct")
        cycles = self.number("time_ms") * self.number("sm_clock_mhz") * 1e3 * self.units
        return min(100 * ratio(self.number("shared_wavefronts"), cycles), 100.0) if cycles > 0 else math.nan

    # Why warps wait

    @cached_property
    def waits(self) -> dict[str, float]:
        """Stall reasons in percent of all waiting."""
        return values.parse_stalls(self.word("stall_reasons"))

    def waiting(self, *reasons: str) -> float:
        """Sum the percentages of some stall reasons; NaN where none was counted."""
        return sum(self.waits.get(name, 0.0) for name in reasons) if self.waits else math.nan

    # Bytes in flight (Little's law)

    @cached_property
    def in_flight_needed(self) -> float:
        """Bytes in flight that the full bandwidth needs: latency x bandwidth."""
        roof = self.number("attainable_gb_s", "ceiling_gb_s", "peak_gb_s")
        if math.isnan(roof) and self.card:
            roof = float(self.card.bandwidth_gb_s)
        return self.latency_us * 1e-6 * roof * 1e9

    @cached_property
    def in_flight_least(self) -> float:
        """Bytes in flight with one load of each resident warp, a lower bound while all warps wait."""
        limit = max_warps(self.arch) if self.arch else None
        size = SECTOR * self.number("sectors_per_load")
        if limit is None or not size > 0:
            return math.nan
        warps = self.number("occupancy_pct") / 100 * limit * self.units
        if self.has("grid_blocks", "block_threads"):
            warps = min(warps, self.number("grid_blocks") * math.ceil(self.number("block_threads") / WARP))
        return size * warps

    # Contradictions

    @cached_property
    def contradictions(self) -> list[tuple[set[str], str]]:
        """Figures that contradict each other or a limit: the columns, and why."""
        problems: list[tuple[set[str], str]] = []
        for name in _PERCENTS:
            value = self.number(name)
            if value > _MOST:
                problems.append(({name}, f"{name} is {value:.4g}"))
        for part, whole in (("bank_conflicts", "shared_wavefronts"), ("dram_gb_s", "peak_gb_s")):
            if self.number(part) > 1.05 * self.number(whole):
                problems.append(({part}, f"{part} is {self.number(part):.4g}, {whole} {self.number(whole):.4g}"))
        for name in ("sectors_per_load", "sectors_per_store"):
            if self.number(name) > 32.5:
                problems.append(({name}, f"{name} is {self.number(name):.4g}, of at most 32"))
        if self.number("occupancy_pct") > self.theoretical_pct + 5:
            problems.append(({"occupancy_pct"}, f"more warps than fit: {self.theoretical_pct:.3g} %"))
        return problems + self._roof_contradictions()

    def _roof_contradictions(self) -> list[tuple[set[str], str]]:
        """List figures beyond a roof, and shares of DRAM that disagree."""
        problems: list[tuple[set[str], str]] = []
        named, by_bytes = self.number("dram_pct"), 100 * ratio(self.dram_gb_s, self.number("peak_gb_s"))
        if self.number("time_ms") > _LONG_MS and abs(named - by_bytes) > 20:
            problems.append(({"dram_pct"}, f"dram_pct is {named:.3g}, its bytes over its time make {by_bytes:.3g} %"))
        share = self.attained
        if share > 105 and not self.hot:
            problems.append(({"pct_attainable"}, f"faster than a stream of its bytes ({share:.0f} %)"))
        if self.memory.pct > BEYOND:
            problems.append((_OF_DRAM, f"DRAM would be {self.memory.pct:.0f} % {self.memory.of}"))
        if self.arithmetic.contradicts:
            problems.append(({"tflops"}, f"its FLOPs would be {self.arithmetic.pct:.0f} % {self.arithmetic.of}"))
        excess = ratio(self.counted, self.moved)
        if share >= 50 and excess < 0.5 and not self.hot:
            why = f"DRAM moved {excess:.2g} of the bytes stated: they lay in the cache, or are stated wrong"
            problems.append(({"pct_attainable", "dram_bytes_read"}, why))
        return problems


_PIPES = {"tensor": "tensor_pct", "FMA": "fma_pct", "vector": "valu_busy_pct"}
_OF_AMD = ("valu_busy_pct", "mem_unit_stalled_pct", "lds_bank_conflict_pct", "scratch_size")
_BLOCKS = ("SQ_", "TCC_", "TCP_", "TA_", "TD_", "GRBM_", "GL2C_")  # prefixes of AMD's counters

_PERCENTS = (
    "dram_pct",
    "sm_pct",
    "tensor_pct",
    "fma_pct",
    "occupancy_pct",
    "issue_pct",
    "load_efficiency_pct",
    "store_efficiency_pct",
    "valu_busy_pct",
)


@lru_cache(maxsize=16)
def _list_amd_counters(names: tuple[str, ...]) -> list[str]:
    """List columns that are AMD's counters."""
    return [name for name in names if name.startswith(_BLOCKS)]


@lru_cache(maxsize=64)
def _runs_on_host(backend: str) -> bool:
    return backend in registry.backend_names() and bool(_core.backend_facts(backend)["runs_on_host"])


_find_card = lru_cache(maxsize=64)(catalogue.find)


def ratio(part: float, total: float) -> float:
    """Divide; NaN where either number is unknown or the second is not positive."""
    return part / total if total > 0 else math.nan
