"""The C extension. Its functions take and return plain Python objects; `bwprof` wraps them for people."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from typing_extensions import Buffer

__version__: str
build: dict[str, Any]  # cuda (bool), cuda_reason, cuda_version, cuda_archs, compiler, isas

class DeviceError(RuntimeError):
    """A device call failed. `fatal` is True when only a new process can use the device again."""

    fatal: bool

class UnsupportedError(ValueError):
    """Valid, but not on this device, variant or build."""

class UnavailableError(RuntimeError):
    """A backend, device, driver or library is missing; the message says what to do."""

class MemoryLimitError(MemoryError):
    """The case needs more memory than is free; raised before anything is allocated."""

def operations() -> list[dict[str, Any]]:
    """One dict per operation: name, family, text, takes_kv_lens, is_stream, is_product, precisions (list of names),
    params (list of dicts: name, unit, text, default, default_from, minimum, maximum) and variants (dict backend -> list
    of dicts: name, text, precisions)."""

def precisions() -> list[dict[str, Any]]:
    """One dict per precision: name, bits, block_elems, block_bytes, roundoff, result, text."""

def backends() -> list[dict[str, Any]]:
    """One dict per backend, preferred first: name, text, built, reason ("" or why there is no device),
    devices (list of dicts: index, name), timers (names, its own first; none where it is not built)."""

def complete(
    operation: str, precision: str, params: Mapping[str, int], kv_lens: Sequence[int] | None = None
) -> dict[str, int]:
    """All parameters with defaults filled in; ValueError for anything not allowed."""

def cost(
    operation: str,
    precision: str,
    params: Mapping[str, int],
    kv_lens: Sequence[int] | None = None,
    backend: str | None = None,
    variant: str | None = None,
) -> dict[str, int]:
    """bytes_read, bytes_written, flops, algorithmic_bytes_read, algorithmic_bytes_written, footprint_bytes."""

def cost_many(
    operation: str,
    precision: str,
    values: Buffer,
    out: Buffer,
    backend: str | None = None,
    variant: str | None = None,
) -> None:
    """values: int64 (n, params), C order, complete; out: int64 (n, 6), in the order of cost()'s keys."""

def bandwidth_gb_s(bytes: Any, seconds: Any) -> Any:
    """bytes / seconds / 1e9, for numbers or anything numpy.asarray takes (broadcast); zero seconds give inf or nan."""

def statistics(samples_ns: Buffer, /) -> dict[str, Any]:
    """From float64 samples: median_ns, lo_ns, hi_ns (95 % CI of the median by order statistics), min_ns, noise
    (interquartile range / median), count."""

def encode(precision: str, values: Buffer, /) -> bytes:
    """float32 values to the precision's stored bits."""

def decode(precision: str, data: Buffer, /) -> bytes:
    """Stored bits to float32 values."""

@final
class Device:
    def __init__(self, backend: str, index: int = 0) -> None: ...
    backend: str
    index: int
    def facts(self) -> dict[str, Any]:
        """Fields of bw_device_facts by name; peak_tflops is a dict precision -> float; NaN = unknown."""
    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""
    def conditions(self) -> dict[str, Any]:
        """What the sensors say now: sm_clock_mhz, mem_clock_mhz, power_w, temperature_c, energy_j (a counter), NaN
        where not known; throttle ("none", words joined by ";", or "" when not known); note (why nothing is known)."""
    def management(self) -> dict[str, Any]:
        """What the management library (NVML) knows: library (its file; "" = none), note (what is not known, and why),
        driver (full version or ""), ecc and persistence (bool; None = not known), power_limit_w (NaN = not known)."""
    def floor_ns(self, timer: str | None = None) -> float:
        """Time of an empty kernel under a timer (None: the device's own), measured at the first call."""
    def variants(
        self, operation: str, precision: str, params: Mapping[str, int], kv_lens: Sequence[int] | None = None
    ) -> list[dict[str, Any]]:
        """Every variant for that shape: name, text, refuses ("" = it runs), default (bool)."""
    def _inject_fault(self, countdown: int, /) -> int:
        """For tests: the countdown-th device call from now fails (0: none). Returns the calls made so far."""
    def close(self) -> None: ...
    def __enter__(self) -> Device: ...
    def __exit__(self, *exc: object) -> None: ...

@final
class Case:
    def __init__(
        self,
        device: Device,
        operation: str,
        precision: str,
        params: Mapping[str, int],
        *,
        kv_lens: Sequence[int] | None = None,
        variant: str | None = None,
        seed: int = 0,
    ) -> None:
        """Checks everything, chooses the variant, allocates nothing."""
    operation: str
    precision: str
    variant: str
    variant_note: str  # why the default variant was passed over ("" = it was not); known once run
    params: dict[str, int]
    cost: dict[str, int]
    operands: list[dict[str, Any]]  # name, role ("in", "out", "inout"), dtype, shape (tuple), bytes
    set_bytes: int  # one buffer set with its scratch
    workspace_bytes: int
    def memory_needed(self, cache: str = "cold") -> dict[str, int]:
        """needed, free, buffer_sets and fits (bool) for measure(cache=...)."""
    def run(self, arrays: Mapping[str, Buffer], /) -> dict[str, bytes]:
        """One launch. arrays: stored bits of any in/inout operands; those left out get the generated inputs. Returns
        every out/inout operand's bits."""
    def inputs(self) -> dict[str, bytes]:
        """The generated bits of every in/inout operand."""
    def verify(self, budget_s: float = 0.1) -> dict[str, Any]:
        """Poison, launch once, compare a sample of rows with the float64 reference: verified (bool), max_error,
        tolerance, rows_checked, rows_total, reason ("" or the worst element in words)."""
    def measure(
        self,
        *,
        cache: str = "cold",
        precision_target: float = 0.005,
        min_samples: int = 10,
        max_seconds: float = 2.0,
        verify_budget_s: float = 0.1,
        poll: Callable[[], object] | None = None,
        timer: str | None = None,
    ) -> dict[str, Any]:
        """Verify, warm up, sample until the CI of the median is within precision_target, verify again.
        Keys: samples_ns (list, per launch), the keys of statistics(), converged, timer, cache, cold (bool), cache_note,
        buffer_sets, launches_per_sample, flush_bytes, warmup_ns, timer_floor_ns, host_launch_ns, kernel_sum_ns (per
        launch, the kernels' own durations: of timer cupti, else NaN), footprint_bytes, verified, max_error, tolerance,
        rows_checked, rows_total, reason, variant_note, conditions. A mismatch gives verified = False and no samples.
        conditions is a dict of what the sensors said during the samples: sm_clock_mhz, mem_clock_mhz and power_w
        (medians), temperature_c (maximum), energy_j (of one launch), NaN where not known; throttle (every reason seen,
        as in Device.conditions()); readings, reading_us (the longest one), note. timer: one of the backend's `timers`
        (None: its own); UnavailableError where it needs a library that cannot be used."""
    def count(self) -> dict[str, Any]:
        """One launch that finds its inputs cold, by hardware counter, its write-back included: dram_bytes_read,
        dram_bytes_written, l2_bytes (floats; NaN = not counted), counters_status ("ok", or why not and what to do).
        The first call on a device takes about a second."""
    def launch(self) -> None:
        """One untimed launch on the generated inputs (for use under a profiler), and none but those that fill the
        buffers before it: a library that would search for its fastest algorithm takes its own first choice."""
    def close(self) -> None: ...
    def __enter__(self) -> Case: ...
    def __exit__(self, *exc: object) -> None: ...
