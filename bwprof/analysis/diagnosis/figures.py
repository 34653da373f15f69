"""What hypotheses look at: one row's figures, and what follows from several of them. Columns alone, wherever from."""

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

LATENCY_US = 0.7  # of DRAM under load where nobody says it: between 0.6 and 0.8 us on GPUs of these years

_HARMLESS = {"near_timer_floor", ""}  # of the flags those that doubt no figure

BEYOND = 115.0  # percent of a roof: what is counted and what is stated do not belong together

_OF_DRAM = {"dram_bytes_read", "pct_attainable", "traffic_ratio"}

_MOST = 105.0  # percent that a counter tells of what is full, counted in another pass than its whole

_SMALL = 0.6  # of the theoretical bandwidth

# From here on times and busy cycles tell the same share of the peak: a counted range lasts up to 45 us longer than its
# kernel (H200, in 70 passes or so), and in which of the passes its clock is told is CUPTI's choice.
_LONG_MS = 0.5


@dataclass(frozen=True, slots=True)
class Share:
    """Percent of a roof, which roof that is in words, whether it was measured or is theory. NaN: not known.

    `least`: it is at least this, by the bytes that were stated; how many were moved was not counted. `beaten`: more
    than 100 %, which may be, as the rate was measured.
    """

    pct: float
    of: str = ""
    measured: bool = False
    least: bool = False
    beaten: bool = False

    @property
    def contradicts(self) -> bool:
        """Whether it is so far beyond the roof that something is counted, or stated, wrong."""
        return self.pct > BEYOND and not self.beaten

    @property
    def known(self) -> bool:
        """Whether there is one."""
        return not math.isnan(self.pct)


class RowFigures:
    """One row. Numbers are floats, NaN where the row has none; percents are 0 to 100."""

    def __init__(self, row: Mapping[str, Any], latency_us: float | None = None) -> None:
        self.row = row
        self._numbers: dict[str, float] = {}
        own = self.number("memory_latency_us")
        self.latency_known = latency_us is not None or own > 0
        self.latency_us = latency_us if latency_us is not None else own if own > 0 else LATENCY_US

    def number(self, *names: str) -> float:
        """The first of some columns that has a number; none that is measured is negative."""
        for name in names:
            found = self._numbers.get(name)
            if found is None:
                found = self._numbers[name] = measured_or_nan(self.row.get(name))
            if found >= 0:
                return found
        return math.nan

    def word(self, name: str) -> str:
        """A column of text, "" where it has none."""
        value = self.row.get(name)
        return "" if is_missing(value) else str(value)

    def has(self, *names: str) -> bool:
        """Whether all of some columns have numbers."""
        return not any(math.isnan(self.number(name)) for name in names)

    @cached_property
    def on_host(self) -> bool:
        """Whether it ran on a CPU."""
        return self.is_operator or _runs_on_host(self.word("backend"))

    @property
    def is_operator(self) -> bool:
        """Whether it is a time line's operator on a CPU, with whatever that called."""
        return self.word("kind") == "operator"

    @cached_property
    def of_amd(self) -> bool:
        """Whether it has columns that only AMD's profilers write."""
        return any(self.has(name) for name in (*_OF_AMD, *_of_blocks(tuple(self.row))))

    @cached_property
    def flags(self) -> set[str]:
        """What the row says of itself."""
        return set(self.word("flags").split(";"))

    @cached_property
    def doubts(self) -> list[str]:
        """The flags that make its figures less sure."""
        return sorted(self.flags - _HARMLESS)

    @property
    def unsure(self) -> bool:
        """Whether its doubts are larger than the half percent that a wide interval is about."""
        return bool(set(self.doubts) - {"not_converged"})

    @property
    def hot(self) -> bool:
        """Its inputs lay in the cache."""
        return self.word("cache") == "hot"

    # Bytes and FLOPs

    @cached_property
    def moved(self) -> float:
        """Compulsory bytes, where both kinds are stated."""
        return self.number("bytes_read") + self.number("bytes_written")

    @cached_property
    def algorithmic(self) -> float:
        """What the kernel has to move, its intermediates included."""
        read, written = self.number("algorithmic_bytes_read"), self.number("algorithmic_bytes_written")
        return self.moved if math.isnan(read) and math.isnan(written) else read + written

    @cached_property
    def written(self) -> float:
        """What the kernel has to write, its intermediates included."""
        return self.number("algorithmic_bytes_written", "bytes_written")

    @cached_property
    def counted(self) -> float:
        """DRAM bytes, counted."""
        found = self.number("dram_bytes_read") + self.number("dram_bytes_written")
        return self.traffic_ratio_column * self.algorithmic if math.isnan(found) else found

    @property
    def traffic_ratio_column(self) -> float:
        """Counted over algorithmic bytes, as the row has it."""
        return self.number("traffic_ratio")

    @property
    def as_counted(self) -> bool:
        """Whether some of its bytes are counted ones, as nobody has stated what a caller's function must move."""
        return AS_COUNTED in self.word("reason")

    @cached_property
    def traffic_ratio(self) -> float:
        """Counted over algorithmic bytes; NaN where those are the counted ones, too."""
        found = self.traffic_ratio_column
        if not math.isnan(found) or self.as_counted:
            return found
        return ratio(self.counted, self.algorithmic)

    @cached_property
    def local_bytes(self) -> float:
        """Traffic of local memory; none where no thread has any."""
        if self.number("scratch_size") == 0:
            return 0.0
        return self.number("local_bytes") if self.has("local_bytes") else SECTOR * self.number("local_sectors")

    # Roofs

    @cached_property
    def attained(self) -> float:
        """Percent of a stream of the stated bytes; of DRAM, which a hot row does not see."""
        own = self.number("pct_attainable")
        return 100 * ratio(self.number("bandwidth_gb_s"), self.number("attainable_gb_s")) if math.isnan(own) else own

    @property
    def small(self) -> bool:
        """Its bytes are so few that even a stream of them is far from the best stream, or from theory."""
        return self.number("attainable_gb_s") < _SMALL * self.number("ceiling_gb_s", "peak_gb_s") and not self.hot

    @cached_property
    def dram_gb_s(self) -> float:
        """Counted bytes over time."""
        own = self.number("dram_gb_s")
        return ratio(self.counted, self.number("time_ms")) / 1e6 if math.isnan(own) else own

    @cached_property
    def l2_gb_s(self) -> float:
        """What L2 moved over time."""
        return ratio(self.number("l2_bytes"), self.number("time_ms")) / 1e6

    @cached_property
    def memory(self) -> Share:
        """How near DRAM is to its roof, by the bytes that it really moved; without counters, by those stated."""
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
        return Share(self.of_peak, "of the theoretical bandwidth", least=self._is_stated)

    def _of_stream(self, excess: float) -> float:
        """Percent of a stream of the bytes that DRAM moved, `excess` times those stated.

        A stream takes a time of its own, which is why few bytes reach less, and then moves at the best rate: the bytes
        beyond those stated cost it that rate's time, however few were stated.
        """
        slower = ratio(self.number("attainable_gb_s"), self.number("ceiling_gb_s"))
        return self.attained * (1 + (excess - 1) * (1.0 if math.isnan(slower) else min(1.0, slower)))

    @property
    def _stream_of_peak(self) -> float:
        """What of the theoretical bandwidth the best stream reaches, as a fraction."""
        return ratio(self.number("ceiling_gb_s", "attainable_gb_s"), self.number("peak_gb_s"))

    @property
    def _is_stated(self) -> bool:
        """Whether nothing but stated bytes tells DRAM's share."""
        counted = not math.isnan(self.dram_gb_s) or self.has("dram_pct")
        return not counted and not math.isnan(self.moved)

    @cached_property
    def of_peak(self) -> float:
        """Percent of the theoretical bandwidth."""
        by_bytes = 100 * ratio(self.dram_gb_s, self.number("peak_gb_s"))
        found = (self.number("dram_pct"), by_bytes, self.number("pct_peak"))
        stated = 100 * ratio(self.number("bandwidth_gb_s"), self.number("peak_gb_s"))
        return next((value for value in (*found, stated) if not math.isnan(value)), math.nan)

    @cached_property
    def arithmetic(self) -> Share:
        """How near its FLOPs are to the arithmetic roof: the best rate measured, the theoretical one where none was."""
        if self.number("flops") == 0:
            return Share(0.0, "of the arithmetic rate: it has no FLOPs", measured=True)
        own = self.number("tflops")
        rate = ratio(self.number("flops"), self.number("time_ms")) / 1e9 if math.isnan(own) else own
        best, theory = 100 * ratio(rate, self.number("measured_tflops")), 100 * ratio(rate, self.number("peak_tflops"))
        if math.isnan(best):
            return Share(theory, "of the theoretical arithmetic rate")
        beaten = best >= values.ABOVE_PEAK_PCT and (theory <= 100 or best <= BEYOND)  # a product's; loops may
        told = "of the best arithmetic rate" + (" measured, which it beats" if beaten else "")
        return Share(best, told, measured=True, beaten=beaten)

    def bounded(self, gain: float, *, useless: bool = False) -> float:
        """A gain, at most what the nearer roof leaves room for, and no loss.

        `useless`: what is to be won is bytes that need not move: then the roof is that of the bytes which must.
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
        return _card(self.word("device")) if self.word("device") else None

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
        """What its registers, shared memory and threads let a multiprocessor hold."""
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
        """Which resource allows no more blocks."""
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
        """Of the time in which the busiest multiprocessor was at work, the mean's: what is counted over active cycles
        says nothing of those that had none. Where that was not counted, of fewer blocks than multiprocessors."""
        if self.has("sm_cycles_ratio"):
            return 1 / max(1.0, self.number("sm_cycles_ratio"))
        idle = ratio(self.number("grid_blocks"), self.units)
        return min(1.0, idle) if idle > 0 else 1.0

    def busy(self, name: str) -> float:
        """A column of what is busy in percent of the active cycles, of the whole time; NaN for what cannot be."""
        found = self.number(name)
        return found * self.evenness if found <= _MOST else math.nan

    @cached_property
    def pipes(self) -> dict[str, float]:
        """Arithmetic pipes, and how busy they are in percent, the busiest first; only those that are known."""
        found = {pipe: self.busy(name) for pipe, name in _PIPES.items()}
        known = [(pipe, pct) for pipe, pct in found.items() if not math.isnan(pct)]
        return dict(sorted(known, key=lambda item: -item[1]))

    @cached_property
    def shared_busy(self) -> float:
        """How busy shared memory is in percent of the whole time; else by its turns, of which a cycle has one."""
        if self.number("shared_pct") <= _MOST:
            return self.busy("shared_pct")
        cycles = self.number("time_ms") * self.number("sm_clock_mhz") * 1e3 * self.units
        return min(100 * ratio(self.number("shared_wavefronts"), cycles), 100.0) if cycles > 0 else math.nan

    # Why warps wait

    @cached_property
    def waits(self) -> dict[str, float]:
        """Reasons, in percent of all waiting."""
        return values.parse_stalls(self.word("stall_reasons"))

    def waiting(self, *reasons: str) -> float:
        """The share of some reasons, in percent; NaN where none was counted."""
        return sum(self.waits.get(name, 0.0) for name in reasons) if self.waits else math.nan

    # Bytes on their way (Little's law)

    @cached_property
    def in_flight_needed(self) -> float:
        """Bytes that must be on their way at any time for the full bandwidth: latency x bandwidth."""
        roof = self.number("attainable_gb_s", "ceiling_gb_s", "peak_gb_s")
        if math.isnan(roof) and self.card:
            roof = float(self.card.bandwidth_gb_s)
        return self.latency_us * 1e-6 * roof * 1e9

    @cached_property
    def in_flight_least(self) -> float:
        """Bytes on their way with one load of each resident warp: at least so many while all of them wait."""
        held = max_warps(self.arch) if self.arch else None
        size = SECTOR * self.number("sectors_per_load")
        if held is None or not size > 0:
            return math.nan
        warps = self.number("occupancy_pct") / 100 * held * self.units
        launched = (
            self.number("grid_blocks") * math.ceil(self.number("block_threads") / WARP)
            if self.has("block_threads")
            else math.nan
        )
        return size * (warps if math.isnan(launched) else min(warps, launched))

    # What cannot be

    @cached_property
    def contradictions(self) -> list[tuple[set[str], str]]:
        """Figures that cannot be right, or not together: the columns, and why."""
        found: list[tuple[set[str], str]] = []
        for name in _PERCENTS:
            value = self.number(name)
            if value > _MOST:
                found.append(({name}, f"{name} is {value:.4g}"))
        for part, whole in (("bank_conflicts", "shared_wavefronts"), ("dram_gb_s", "peak_gb_s")):
            if self.number(part) > 1.05 * self.number(whole):
                found.append(({part}, f"{part} is {self.number(part):.4g}, {whole} {self.number(whole):.4g}"))
        for name in ("sectors_per_load", "sectors_per_store"):
            if self.number(name) > 32.5:
                found.append(({name}, f"{name} is {self.number(name):.4g}, of at most 32"))
        if self.number("occupancy_pct") > self.theoretical_pct + 5:
            found.append(({"occupancy_pct"}, f"more warps than fit: {self.theoretical_pct:.3g} %"))
        return found + self._of_roofs()

    def _of_roofs(self) -> list[tuple[set[str], str]]:
        """What lies beyond a roof, and what the ways to tell DRAM's share say against each other."""
        found: list[tuple[set[str], str]] = []
        named, by_bytes = self.number("dram_pct"), 100 * ratio(self.dram_gb_s, self.number("peak_gb_s"))
        if self.number("time_ms") > _LONG_MS and abs(named - by_bytes) > 20:
            found.append(({"dram_pct"}, f"dram_pct is {named:.3g}, its bytes over its time make {by_bytes:.3g} %"))
        share = self.attained
        if share > 105 and not self.hot:
            found.append(({"pct_attainable"}, f"faster than a stream of its bytes ({share:.0f} %)"))
        if self.memory.pct > BEYOND:
            found.append((_OF_DRAM, f"DRAM would be {self.memory.pct:.0f} % {self.memory.of}"))
        if self.arithmetic.contradicts:
            found.append(({"tflops"}, f"its FLOPs would be {self.arithmetic.pct:.0f} % {self.arithmetic.of}"))
        excess = ratio(self.counted, self.moved)
        if share >= 50 and excess < 0.5 and not self.hot:
            said = f"DRAM moved {excess:.2g} of the bytes stated: they lay in the cache, or are stated wrong"
            found.append(({"pct_attainable", "dram_bytes_read"}, said))
        return found


_PIPES = {"tensor": "tensor_pct", "FMA": "fma_pct", "vector": "valu_busy_pct"}

_OF_AMD = ("valu_busy_pct", "mem_unit_stalled_pct", "lds_bank_conflict_pct", "scratch_size")

_BLOCKS = ("SQ_", "TCC_", "TCP_", "TA_", "TD_", "GRBM_", "GL2C_")  # of AMD's GPUs, by which its counters are called

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
def _of_blocks(names: tuple[str, ...]) -> list[str]:
    """Columns that are counters of AMD's."""
    return [name for name in names if name.startswith(_BLOCKS)]


@lru_cache(maxsize=64)
def _runs_on_host(backend: str) -> bool:
    return backend in registry.backend_names() and bool(_core.backend_facts(backend)["runs_on_host"])


@lru_cache(maxsize=64)
def _card(device: str) -> catalogue.Entry | None:
    return catalogue.find(device)


def ratio(part: float, whole: float) -> float:
    """One number over another; NaN where either is unknown, or nothing is below."""
    return part / whole if whole > 0 else math.nan
