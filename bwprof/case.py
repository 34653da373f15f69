"""One case: an operation with all parameters, a precision, a device and a variant."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from bwprof import _core, hardware, registry
from bwprof.costs import Cost
from bwprof.environment import new_run_id
from bwprof.hardware import Device
from bwprof.measuring.contexts import Contexts
from bwprof.measuring.operation import CACHES, DEFAULT_CACHE, DEFAULT_REL_CI, Spec, finish_row
from bwprof.measuring.row import Context, add_work
from bwprof.results.row import Row
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.text.parsing import describe_unknown, parse_fraction, parse_names, parse_seconds

if TYPE_CHECKING:
    import numpy as np

_P = ParamSpec("_P")

_R = TypeVar("_R")


def _keeps_current(method: Callable[Concatenate[Case, _P], _R]) -> Callable[Concatenate[Case, _P], _R]:
    """A method after which the thread's current device is what it was before."""

    @functools.wraps(method)
    def kept(self: Case, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with hardware.preserve_current_device(self.backend):
            return method(self, *args, **kwargs)

    return kept


class Case(hardware.Holder):
    """An operation that can be run on your arrays, verified, and measured.

    Parameters
    ----------
    operation : str
        A name from `bwprof.operations()`.
    precision : str
        Storage type of the operands.
    device : int, str or torch.device, optional
        "cpu", "cuda:1", 1, ...; the first device of the preferred backend that has one when left out.
    backend : str, optional
        The same as the device's name without a number.
    variant : str, optional
        The backend's own choice when left out.
    seed : int
        Of the generated inputs.
    kv_lens : sequence of int, or str, optional
        One length per batch entry, for operations that take it, given as to `bwprof.cost`: [100, 7000], "100,7Ki".
    **params : int or str
        The operation's parameters, 4096 or "4Ki"; those left out take their defaults.

    Raises
    ------
    ValueError
        For anything unknown or out of range, with the nearest right name.
    bwprof.errors.UnavailableError
        When the backend has no device.

    Examples
    --------
    >>> import bwprof
    >>> with bwprof.Case("gemm", M=2, N=3, K=4, backend="cpu") as case:
    ...     case.verify()["verified"]
    True
    """

    _device: _core.Device | None = None  # once closed

    def __init__(
        self,
        operation: str,
        *,
        precision: str = "fp32",
        device: Device = None,
        backend: str | None = None,
        variant: str | None = None,
        seed: int = 0,
        kv_lens: str | Sequence[int | str] | None = None,
        **params: int | str,
    ) -> None:
        precision = registry.check_precision(precision)
        kv_lens = registry.parse_lengths(kv_lens)
        whole = registry.complete_params(operation, precision, params, kv_lens)
        choice = hardware.choose_device(backend, device)
        if variant is not None:
            known = registry.variant_names(operation, choice.backend)
            if variant not in known:
                raise ValueError(describe_unknown(f"variant of {operation} on {choice.backend}", variant, known))
        seed = registry.check_seed(seed)
        self._seed, self._kv_lens = seed, kv_lens
        self.backend = choice.backend
        self.device = choice.name

        def opened() -> tuple[_core.Device, _core.Case, set[int]]:
            handle = hardware.open_device(choice.backend, choice.index)
            try:
                made = _core.Case(handle, operation, precision, whole, kv_lens=kv_lens, variant=variant, seed=seed)
                return handle, made, os.sched_getaffinity(0)
            except BaseException:
                hardware.close_device(handle)
                raise

        self._opened = opened
        with hardware.preserve_current_device(choice.backend):
            self._device, self._case, self._cpus = opened()

    @property
    def operation(self) -> str:
        """The operation's name."""
        return self._case.operation

    @property
    def precision(self) -> str:
        """The precision's name."""
        return self._case.precision

    @property
    def variant(self) -> str:
        """The variant that runs, chosen or asked for."""
        return self._case.variant

    @property
    def params(self) -> dict[str, int]:
        """All parameters, defaults included."""
        return self._case.params

    @property
    def cost(self) -> Cost:
        """Bytes and FLOPs of one launch, in this variant."""
        return Cost(**self._case.cost)

    @property
    def operands(self) -> list[dict[str, Any]]:
        """name, role ("in", "out", "inout"), dtype, shape and bytes of every array, row-major."""
        return self._case.operands

    @_keeps_current
    def memory_needed(self, cache: str = "cold") -> dict[str, int]:
        """Bytes that `measure` would allocate and that are free: needed, free, buffer_sets."""
        return self._case.memory_needed(_checked_cache(cache))

    @_keeps_current
    def run(self, /, **arrays: Any) -> dict[str, np.ndarray[Any, Any]]:
        """One launch on your arrays.

        Parameters
        ----------
        **arrays : array-like
            By operand name; floats are rounded to the operand's precision. A uint16 array for a 16-bit float type is
            taken as its stored bits, in this machine's byte order. Operands left out get the generated inputs.
            `kv_lens` can only be the case's own.

        Returns
        -------
        dict of numpy.ndarray
            Every output. Types that NumPy lacks come as float32.

        Raises
        ------
        ValueError
            For an unknown operand, a wrong shape, or values of the wrong kind.
        """
        known = {operand["name"]: operand for operand in self.operands if operand["role"] != "out"}
        encoded: dict[str, bytes] = {}
        for name, value in arrays.items():
            if name not in known:
                raise ValueError(describe_unknown(f"input of {self.operation}", name, known))
            encoded[name] = _to_bits(value, known[name])
        operands = self.operands
        return _decoded(self._case.run(encoded), operands)

    @_keeps_current
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """The generated inputs, as `run` returns outputs."""
        operands = self.operands
        return _decoded(self._case.inputs(), operands)

    @_keeps_current
    def verify(self, *, max_seconds: float = 0.1) -> dict[str, Any]:
        """Launch once and compare a sample of the output with the float64 reference.

        Ctrl-C is served between the reference's rows.

        Parameters
        ----------
        max_seconds : float
            Processor time for the reference. A later call with a larger one checks more rows; a smaller one checks
            those that are there.

        Returns
        -------
        dict
            verified, max_error and tolerance (of the element or row whose error comes nearest to its limit: relative to
            the output's typical size, beyond the result's own rounding), rows_checked, rows_total, reason ("" or the
            worst element or row in words).
        """
        return self._case.verify(parse_seconds(max_seconds, "max_seconds", from_zero=True))

    @_keeps_current
    def measure(
        self,
        *,
        cache: str = DEFAULT_CACHE,
        rel_ci: float | str = DEFAULT_REL_CI,
        min_samples: int = 10,
        max_seconds: float = 2.0,
        verify_seconds: float = 0.1,
        poll: Callable[[], object] | None = None,
        timer: str | None = None,
        roofs: RoofsArgument = "stored",
    ) -> Row:
        """Verify, warm up, and time until the confidence interval is narrow enough.

        On a CPU the case is opened anew where the calling thread may use other processors than when it was opened.

        Parameters
        ----------
        cache : {"cold", "hot"}
            Cold rotates over buffer sets so that every launch finds its inputs outside the cache.
        rel_ci : float or str
            Half width of the median's 95 % confidence interval to stop at, relative (0.02 or "2%"); the medians of both
            halves of the samples must then lie as close to each other.
        min_samples : int
            Never fewer than this, 1 to 1 048 576; and, below the time limit, samples for 50 ms.
        max_seconds : float
            Time limit of the sampling, from 0 on; it ends before that only when it has converged (or has 1 048 576
            samples).
        verify_seconds : float
            Processor time for the float64 reference; the processors there are share it.
        poll : callable, optional
            Called between batches; what it raises ends the measurement.
        timer : str, optional
            On a GPU "graph" (when left out), "events" or "cupti"; on a CPU "monotonic".
        roofs : {"stored", "auto", False} or Roofs
            What the row is held against, as in `bwprof.measure`.

        Returns
        -------
        Row
            As a sweep's; its raw samples are `samples_ns`.

        Raises
        ------
        RuntimeError
            When the result is wrong; the message names the worst element.
        MemoryError
            When the device has too little free memory; nothing was allocated then.
        ValueError
            For a timer that the backend does not have, and what is out of range.
        bwprof.errors.UnavailableError
            When the timer needs a library that cannot be used; the message says what to do.
        """
        target = parse_fraction(rel_ci, "rel_ci")
        registry.check_timer(timer, self.backend)
        on_host = self._device is not None and _core.backend_facts(self.backend)["runs_on_host"]
        if on_host and self._cpus != os.sched_getaffinity(0):
            self._device, self._case, self._cpus = self._opened()
        spec = self._spec(_checked_cache(cache), timer, target)
        context = self._context(check_roofs(roofs), cache, poll)
        result = self._case.measure(
            cache=cache,
            precision_target=target,
            min_samples=min_samples,
            max_seconds=parse_seconds(max_seconds, "max_seconds", from_zero=True),
            verify_budget_s=parse_seconds(verify_seconds, "verify_seconds", from_zero=True),
            poll=poll,
            timer=timer,
        )
        variant, cost = result.pop("variant"), result.pop("cost")
        if not result["verified"]:
            raise RuntimeError(f"{spec.operation} ({variant}, {spec.precision}) is wrong: {result['reason']}")
        row = spec.blank_row(context) | {"variant": variant}
        add_work(row, cost)
        outcome = finish_row(row, result, context)
        return Row(outcome.row, outcome.samples or ())

    def _spec(self, cache: str, timer: str | None, rel_ci: float) -> Spec:
        """What a sweep would call this."""
        case = self._case
        lens = self._kv_lens
        told = registry.unusual_params(case.operation, case.precision, case.params, lens)
        named = " ".join([case.operation, *(f"{name}={case.params[name]}" for name in told)])
        return Spec(
            registry.case_name(named, lens),
            case.operation,
            case.precision,
            case.params,
            lens,
            case.variant,
            cache,
            self._seed,
            timer,
            rel_ci=rel_ci,
        )

    def _context(self, roofs: RoofsArgument, cache: str, poll: Callable[[], object] | None) -> Context:
        device = self._device
        if device is None:  # another thread's doing: a closed case has no parameters either
            raise ValueError("this Case is closed")
        return Contexts(new_run_id(), device, roofs, (cache,), poll=poll).of(None)

    @_keeps_current
    def count(self, *, metrics: str | Iterable[str] | None = ()) -> dict[str, Any]:
        """Count the bytes that one launch moves, in hardware; its inputs are cold, its write-back is counted.

        Parameters
        ----------
        metrics : str or iterable of str, optional
            What else to count, by replaying the launch: "tensor" and "fma" (tensor_pct, fma_pct: how busy the pipes
            are, % of the active cycles' peak), "occupancy" (occupancy_pct: resident warps, % of the most possible),
            "stalls" (stall_*: warps per issued instruction that wait, by reason), "bank_conflicts" (bank_conflicts of
            so many shared_wavefronts in shared memory; shared_pct: how busy it is), "sectors" (sectors_per_load,
            sectors_per_store: of 32 bytes, and lines_per_load: of 128, for each request of a warp to global memory;
            local_bytes: traffic of local memory), "dram" and "sm" (dram_pct, sm_pct: throughput of DRAM and of the
            multiprocessors' busiest pipe, % of its peak: high and low of what memory limits; with the latter issue_pct,
            active_threads of a warp, sm_cycles_ratio of the busiest multiprocessor to the mean), "caches" (l1_pct,
            l2_pct: how busy they are), or "all".

        Returns
        -------
        dict
            dram_bytes_read, dram_bytes_written, l2_bytes (float, NaN where not counted) and counters_status: "ok", or
            why nothing was counted and what to do. With `metrics` also metrics (name -> value, NaN where not known),
            passes (how often the launch was replayed) and metrics_status.

        Raises
        ------
        ValueError
            For a metric that the backend does not have, and what is no name.
        """
        none = isinstance(metrics, (list, tuple)) and not metrics
        groups = registry.check_metrics(() if none else parse_names("metrics", metrics), self.backend)
        found = self._case.count()
        device = self._device
        if device is not None:
            hardware.note_counting(device, found)
        if groups:
            counted = self._case.count_metrics(groups)
            found |= {name: counted.pop(name) for name in ("passes", "metrics_status")}
            found["metrics"] = counted
        return found

    @_keeps_current
    def close(self) -> None:
        """Free the case's buffers and its hold on the device; calling it again is fine.

        It waits for a call that another thread is making with the case, which gets its result. Ctrl-C ends the wait:
        the case is then still open, and can be closed later.

        Raises
        ------
        ValueError
            From within a call of the case's own, as its poll function is.
        RuntimeError
            While another thread makes its roofs; a later call closes it.
        """
        self._case.close()
        handle = vars(self).pop("_device", None)  # one thread's, of several that close
        if handle is None:
            return
        try:
            hardware.close_device(handle)
        except BaseException:  # in use still, for what a row is held against: a later call closes it
            self._device = handle
            raise

    def __enter__(self) -> Case:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            return self._said()
        except ValueError:  # a closed one has no parameters any more
            return "<bwprof.Case, closed>"

    def _said(self) -> str:
        params = ", ".join(f"{name}={value}" for name, value in self.params.items())
        return f"<bwprof.Case {self.operation} {self.precision} {self.variant} on {self.device}: {params}>"


def _checked_cache(given: Any) -> str:
    """ "cold" or "hot"; ValueError for anything else."""
    if not isinstance(given, str) or given not in CACHES:
        raise ValueError(describe_unknown("cache", given, CACHES))
    return given


_NUMPY_TYPES = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "int8": "int8",
    "int32": "int32",
    "int64": "int64",
}


def _to_bits(value: Any, operand: dict[str, Any]) -> bytes:
    import numpy as np

    array = np.asarray(value)
    name, dtype, shape = operand["name"], operand["dtype"], tuple(operand["shape"])
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, {shape} is needed")
    if dtype.startswith("int"):
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name} holds {array.dtype}, whole numbers are needed")
        stored = array.astype(dtype)
        if not np.array_equal(stored, array):
            raise ValueError(f"{name} holds values that do not fit into {dtype}")
        return stored.tobytes()
    if dtype not in ("fp32", "tf32") and array.dtype.kind in "iu" and array.dtype.itemsize == 2:
        if array.dtype != np.uint16:
            raise ValueError(
                f"{name} holds {array.dtype.str}: {dtype} takes floats, or its stored bits as {np.dtype(np.uint16).str}"
            )
        return array.tobytes()
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} holds {array.dtype}, numbers are needed")
    rows = np.ascontiguousarray(array, dtype=np.float32).reshape(-1, operand["row_elems"] or array.size)
    padding = _stored_elems(dtype, rows.shape[1]) - rows.shape[1]
    return _core.encode(dtype, np.pad(rows, ((0, 0), (0, padding))).data)


def _from_bits(data: bytes, operand: dict[str, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    dtype = operand["dtype"]
    if dtype in _NUMPY_TYPES:
        flat = np.frombuffer(data, dtype=_NUMPY_TYPES[dtype])
    else:
        flat = np.frombuffer(_core.decode(dtype, data), dtype=np.float32)
    row = operand["row_elems"] or flat.size
    return flat.reshape(-1, _stored_elems(dtype, row))[:, :row].reshape(operand["shape"]).copy()


def _decoded(bits: dict[str, bytes], operands: list[dict[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    shapes = {operand["name"]: operand for operand in operands}
    return {name: _from_bits(data, shapes[name]) for name, data in bits.items()}


def _stored_elems(dtype: str, elems: int) -> int:
    """Elements of a row, the last block filled up."""
    block = next((known["block_elems"] for known in _core.dtypes() if known["name"] == dtype), 1)
    return -(-elems // block) * block
