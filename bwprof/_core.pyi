"""The C extension. Its functions take and return plain Python objects; `bwprof` wraps them for people."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat, final

from typing_extensions import Buffer

__version__: str
build: dict[str, Any]  # cuda (bool), cuda_reason, cuda_version, cuda_archs, compiler, isas

class BwprofError(Exception):
    """The base of bwprof's own exceptions."""

class DeviceError(BwprofError, RuntimeError):
    """A device call failed. `fatal` is True when only a new process can use the device again."""

    fatal: bool

class UnsupportedError(BwprofError, ValueError):
    """Valid, but not on this device, variant or build."""

class UnavailableError(BwprofError, RuntimeError):
    """A backend, device, driver or library is missing; the message says what to do."""

class MemoryLimitError(BwprofError, MemoryError):
    """The case needs more memory than is free; raised before anything is allocated."""

def operations() -> list[dict[str, Any]]:
    """One dict per operation: name, family, text, takes_kv_lens, is_stream, is_link, is_product, precisions (names),
    formulas (expressions of bytes_read, bytes_written and flops), params (list of dicts: name, unit, text, default,
    default_from, minimum, maximum) and variants (dict backend -> list of dicts: name, text, changes, predicted,
    because, at, precisions). `changes` is what a variant changes against the one before it, `predicted` how
    many times faster that should make it (None: nothing is before it), for the reason `because`, where `at` says: a
    precision and parameters, "fp16 M=1 N=4096" (None: wherever)."""

def precisions() -> list[dict[str, Any]]:
    """One dict per precision: name, text, the type of each role: activation, weight, cache, result, compute (None where
    it has none), and activation_scales, weight_scales and cache_scales (None, or a dict: type, rows and columns that a
    scale serves (0: all), zero (type of zero points), whole (type of one more scale for the whole matrix))."""

def matrix_bytes(precision: str, role: str, rows: int, columns: int, /) -> int:
    """Bytes of a matrix of activations, weights, caches or results (role: without the s) with its scales."""

def dtypes() -> list[dict[str, Any]]:
    """One dict per type that operands' values are stored in: name, block_elems, block_bytes, bits (of an
    element), roundoff, narrow (fewer than 16 bits), text."""

def backends() -> list[dict[str, Any]]:
    """One dict per backend, preferred first: name, text, built, reason ("" or why there is no device),
    devices (list of dicts: index, name), timers (names, its own first), metrics (names of groups that count_metrics
    takes); none of either where it is not built."""

def backend_facts(backend: str, /) -> dict[str, Any]:
    """Return what measuring must know of a kind of device, without opening one: runs_on_host, has_streams (bool),
    call_timers (of a function, in the order in which they are tried; none: the backend's default), range_clock,
    remedy ("" or what to do where it is not built); how far measurements go and how long they may take:
    largest_stream_bytes, cold_streams_s, hot_streams_s, cold_point_s, hot_point_s; guessed_gb_s. ValueError for an
    unknown name; zeros for one that is not built."""

def case_seconds(seconds_left: float, cases_left: int, most: float, /) -> float:
    """Seconds of sampling for a run's next case, at `most`, so that all that are left fit into what is left."""

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

def bandwidth_gb_s(bytes: SupportsFloat, seconds: SupportsFloat) -> float:
    """bytes / seconds / 1e9; zero seconds give inf or nan."""

def statistics(samples_ns: Buffer, /) -> dict[str, Any]:
    """From float64 samples in the order taken: median_ns, lo_ns, hi_ns (95 % CI of the median: order statistics of the
    medians of blocks, wider where neighbors resemble each other), min_ns, noise (interquartile range / median),
    count."""

def current_device(backend: str, /) -> int:
    """Return the number of the calling thread's current device; 0 on a CPU."""

def make_current(backend: str, index: int, /) -> None:
    """Make a device the calling thread's current one; do nothing on a CPU."""

def encode(dtype: str, values: Buffer, /) -> bytes:
    """float32 values to a type's stored bits."""

def decode(dtype: str, data: Buffer, /) -> bytes:
    """Decode stored bits to float32 values."""

@final
class Device:
    def __init__(self, backend: str, index: int = 0) -> None: ...
    backend: str
    index: int
    stream: int  # that its work is enqueued on: a cudaStream_t; 0 on a CPU
    watched: bool  # a tool took NVTX ranges when it was opened
    def facts(self) -> dict[str, Any]:
        """Fields of bw_device_facts by name, and what only its backend has (a GPU: major, minor, ...); peak_tflops
        is a dict precision -> float; NaN = unknown."""
    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""
    def conditions(self) -> dict[str, Any]:
        """Read the sensors: sm_clock_mhz, mem_clock_mhz, power_w, temperature_c, energy_j (a counter), NaN
        where not known; throttle ("none", words joined by ";", or "" when not known); note (why nothing is known)."""
    def management(self) -> dict[str, Any]:
        """Ask the management library (NVML): library (its file; "" = none), note (what is not known, and why),
        driver (full version or ""), ecc and persistence (bool; None = not known), power_limit_w,
        link ("PCIe 5.0 x16"; "" = not known) and link_gb_s (each direction in theory); NaN = not known."""
    def libraries(self) -> list[dict[str, str]]:
        """Libraries that are opened at run time, opening them: name, purpose, path ("" = none), version ("" = not
        known), note (why there is none, or what is missing; "" = all is well). None on a CPU."""
    def floor_ns(self, timer: str | None = None) -> float:
        """Time of an empty kernel under a timer (None: the device's own), measured at the first call."""
    def limit_threads(self, threads: int, /) -> None:
        """From now on a CPU's work is shared by so many of its threads, and its facts are theirs. ValueError for more
        than there are, or while a Case is open; UnsupportedError on a GPU."""
    def release_profilers(self) -> None:
        """Wait for its work, and release what it keeps for the next count by hardware counter, so that other tools
        may count. Timing does so as well. DeviceError where the device is not well."""
    def variants(
        self, operation: str, precision: str, params: Mapping[str, int], kv_lens: Sequence[int] | None = None
    ) -> list[dict[str, Any]]:
        """Every variant for that shape: as in `operations`, and refuses ("" = it runs), default (bool)."""
    def kernels(
        self,
        operation: str,
        precision: str,
        params: Mapping[str, int],
        variant: str,
        kv_lens: Sequence[int] | None = None,
    ) -> list[dict[str, Any]]:
        """List the kernels of a variant's launch, without launching them: symbol (its name for the linker,
        or None), registers and local_bytes (of a thread), static_shared_bytes, dynamic_shared_bytes and threads (of a
        block), blocks (of the grid), resident_blocks (at once on a multiprocessor, as the runtime says).
        UnsupportedError where they cannot be told: on a CPU, of a library's variants, of a shape that does not run."""
    def measure_call(
        self,
        function: Callable[..., object],
        nothing: Callable[..., object],
        *,
        stream: int = 0,
        sets: int | None = None,
        footprint_bytes: int = 0,
        cache: str = "cold",
        precision_target: float = 0.005,
        min_samples: int = 10,
        max_seconds: float = 2.0,
        poll: Callable[[], object] | None = None,
        timer: str | None = None,
        settled: bool = False,
    ) -> dict[str, Any]:
        """Warm up a function and sample its time as Case.measure() does a case's, and return the same keys, but for
        those of the check, the variant and the footprint. `nothing` is called as the function is and does nothing:
        where calls are the work, its time is the floor. They are called without arguments, or with a set's number where
        there are `sets`; cold then needs no flush if sets x footprint_bytes is four times the cache. stream is the
        cudaStream_t that it enqueues on. Its exceptions come out as they are; ValueError where it enqueues nothing, or
        elsewhere; UnavailableError for a timer that cannot be had, a function that cannot be captured among the
        causes. With `settled` its floor is NaN."""
    def count_call(self, function: Callable[..., object], *, sets: int | None = None) -> dict[str, Any]:
        """One call that finds a cold cache, by hardware counter; see Case.count()."""
    def count_call_metrics(
        self, function: Callable[..., object], groups: Sequence[str], *, sets: int | None = None
    ) -> dict[str, Any]:
        """Count by metrics, for which it is called many times; see Case.count_metrics()."""
    def _force_plan(self, plan: int, /) -> None:
        """For tests: a variant that has several plans takes this one, counted from 1 (0: the fastest)."""
    def _inject_fault(self, countdown: int, /) -> int:
        """For tests: the countdown-th device call from now fails (0: none). Returns the calls made so far."""
    def close(self) -> None: ...
    def __enter__(self) -> Device: ...
    def __exit__(self, *exc: object) -> None: ...

@final
class Profiler:
    """Named ranges, marked on a stream and read later. Any thread marks and reads; each stops what it started."""

    def __init__(self) -> None:
        """Create it closed and switched off."""
    on: bool
    watched: bool  # a tool is told of its ranges
    def open(self, device: Device, stream: int = 0, capacity: int = 4096, nvtx: bool = True) -> None:
        """Make marks for so many ranges; more are made when all are in use. nvtx False: tools do not see them."""
    def move(self, name: str, bytes_read: int, bytes_written: int, /) -> None:
        """Set the bytes of the next ranges of this name, and of the one that runs."""
    def switch(self, on: object, /) -> None:
        """Whether start and stop do anything. Off: ranges that run are dropped."""
    def start(self, name: str, /) -> None:
        """Begins a range; waits for nothing."""
    def stop(self, name: str, /) -> None:
        """End the latest range of this name; ValueError when none runs."""
    def finish(self, name: str, /) -> None:
        """End the latest range of this name; do nothing when none runs."""
    def events(self) -> dict[str, list[tuple[float, float, int | None, int | None]]]:
        """Wait for the ranges that were stopped: name -> each one's begin (ns since a fixed moment), ns, bytes read and
        written; names in the order of their first start."""
    def forget(self) -> None:
        """Forgets the times so far."""
    def floor_ns(self) -> float:
        """Time of an empty range."""
    def close(self) -> None: ...

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
        name: str | None = None,
        nvtx: bool = True,
    ) -> None:
        """Check everything and choose the variant; allocate nothing.

        name: what tools that watch the process call it, in place of the operation; nvtx False: they are not told.
        """
    operation: str
    precision: str
    variant: str
    params: dict[str, int]
    cost: dict[str, int]
    operands: list[dict[str, Any]]
    """name, role ("in", "out", "inout"), dtype, shape (tuple), bytes, row_elems (so many begin with a new block; 0: all
    lie behind each other), scale_of (the operand that these multiply, or None)."""
    def memory_needed(self, cache: str = "cold") -> dict[str, int]:
        """needed, free, scratch (of a buffer set), buffer_sets and fits (bool) for measure(cache=...)."""
    def run(self, arrays: Mapping[str, Buffer], /) -> dict[str, bytes]:
        """One launch. arrays: stored bits of any in/inout operands, as bytes or as items of the operand's kind and size
        in this machine's byte order; those left out get the generated inputs. Returns all out and inout operands."""
    def inputs(self) -> dict[str, bytes]:
        """Return the generated bits of every in/inout operand."""
    def verify(self, budget_s: float = 0.1, outputs: Mapping[str, Buffer] | None = None) -> dict[str, Any]:
        """Poison, launch once, compare a sample of rows with the float64 reference: verified (bool), max_error and
        tolerance (of the element or row nearest to its limit: error beyond the result's own rounding, relative to the
        typical size), rows_checked, rows_total, reason ("" or the worst element or row in words).
        A later call with a larger budget checks more rows; rows once worked out stay. outputs: stored bits that take
        the place of what the launch left, to be judged in its stead. Ctrl-C is served between reference rows."""
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
        flush: str | None = None,
        trace: bool = False,
        settled: bool = False,
    ) -> dict[str, Any]:
        """Verify, warm up, sample until the CI of the median is within precision_target and so are the medians of both
        halves of the samples, verify again. At least min_samples are taken, for at least 50 ms (or max_seconds); at
        most 1 048 576.
        Keys: samples_ns (list, per launch), the keys of statistics(), converged, timer, cache, cold (bool), cache_note,
        buffer_sets, launches_per_sample, late_samples (below), flush_bytes, warmup_ns, timer_floor_ns, host_launch_ns,
        transform_ns (of bringing inputs into the variant's own form, once; NaN = it has none),
        kernel_sum_ns, kernel_span_ns, kernels_elsewhere (below), variant, cost, footprint_bytes, verified, max_error,
        tolerance, rows_checked, rows_total, reason, variant_note, conditions, waited_share, throttled_share,
        stolen_share and pressed_share (of a CPU's sampling time: one of our threads was ready but did not run; the
        container's quota held it back; the hypervisor ran another guest; somebody waited for memory to become free;
        NaN = not known), slowed_share (by how much the upper
        quartile of the reference streams before, between and after the samples is above their lower one, or the lowest
        median that this Device has seen; NaN = none was run: a GPU, or max_seconds below 0.2), reference_ns and
        best_reference_ns (that upper quartile, and that lowest median; NaN likewise). A mismatch gives verified = False
        and no samples. conditions is a dict of what the sensors said during the samples: sm_clock_mhz, mem_clock_mhz
        and power_w (medians), temperature_c (maximum), energy_j (of one launch), NaN where not known; throttle (every
        reason seen, as in Device.conditions()); readings, reading_us (the longest one), note. timer: one of the
        backend's `timers` (None: its own); UnavailableError where it needs a library that cannot be used. flush: with
        cache "cold", instead of rotating, one set and one launch a sample, after "read", "memset" or "memset+read" of
        four times the cache. trace (timer cupti always): kernel timestamps, per launch, medians over the samples, NaN
        without them: kernel_sum_ns, the durations of kernels, copies and memsets; kernel_span_ns, first start to last
        end of a launch; kernels_elsewhere, how many another GPU ran. late_samples: those that hold some of the host's
        time, because the GPU waited for it however often the replay was made again. settled: the same was measured a
        moment ago (a turn of several): one replay warms it up."""
    def count(self, *, rotated: bool = False) -> dict[str, Any]:
        """One launch that finds its inputs cold, by hardware counter, its write-back included: dram_bytes_read,
        dram_bytes_written, l2_bytes (floats; NaN = not counted), counters_status ("ok", or why not and what to do).
        The first call on a device takes about a second. rotated: the mean over the rotation of a cold measurement,
        which tells whether it is cold; dram_bytes_written is then NaN, earlier launches' writes being among them."""
    def count_metrics(self, groups: Sequence[str], /) -> dict[str, Any]:
        """Count what a launch with cold inputs does, by metrics of CUPTI that take many replays of it: name ->
        value (NaN = not known), passes (replays), metrics_status ("ok", or which were not counted and why)."""
    def launch(self) -> None:
        """One untimed launch on the generated inputs (for use under a profiler), and none but those that fill the
        buffers before it: a library that would search for its fastest algorithm takes its own first choice."""
    def enqueue(self) -> None:
        """One launch on the generated inputs, on the Device's stream and not waited for."""
    def close(self) -> None:
        """Wait for calls of other threads, then close; a signal's exception ends the wait, and it stays open.
        ValueError from within a call of its own (a poll function)."""
    def __enter__(self) -> Case: ...
    def __exit__(self, *exc: object) -> None: ...
