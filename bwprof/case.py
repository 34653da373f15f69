"""One case: an operation with all parameters, a precision, a device and a variant."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from bwprof import _core, hardware, registry
from bwprof.costs import Cost
from bwprof.environment import new_run_id
from bwprof.hardware import Device
from bwprof.measuring.operation import CACHES, DEFAULT_CACHE, DEFAULT_REL_CI, Spec, finish_row
from bwprof.measuring.row import Contexts, add_work
from bwprof.results.row import Row
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.text.parsing import check_known, parse_fraction, parse_names, parse_seconds

if TYPE_CHECKING:
    import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _keeps_current(method: Callable[Concatenate[Case, _P], _R]) -> Callable[Concatenate[Case, _P], _R]:
    """Restore the thread's current device after the method."""

    @functools.wraps(method)
    def wrapper(self: Case, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with hardware.preserve_current_device(self.backend):
            return method(self, *args, **kwargs)

    return wrapper


class Case(hardware.Holder):
    """An operation that can be run on your arrays, verified, and measured.

    Parameters
    ----------
    operation, precision, kv_lens, **params
        As in `bwprof.cost`.
    device : int, str or torch.device, optional
        "cpu", "cuda:1", 1, ...; default: the first device of the preferred backend that has one.
    backend : str, optional
        The same as the device's name without a number.
    variant : str, optional
        Default: the backend's choice.
    seed : int
        Seed of the generated inputs.

    Raises
    ------
    ValueError
        For unknown names, with the nearest one, and values out of range.
    bwprof.errors.UnavailableError
        If the backend has no device.

    Examples
    --------
    >>> import bwprof
    >>> with bwprof.Case("gemm", M=2, N=3, K=4, backend="cpu") as case:
    ...     case.verify()["verified"]
    True
    """

    _device: _core.Device | None = None  # None after close

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
        all_params = registry.complete_params(operation, precision, params, kv_lens)
        choice = hardware.choose_device(backend, device)
        registry.check_variant(operation, choice.backend, variant)
        seed = registry.check_seed(seed)
        self._seed, self._kv_lens = seed, kv_lens
        self.backend = choice.backend
        self.device = choice.name

        def open_case() -> tuple[_core.Device, _core.Case, set[int]]:
            handle = hardware.open_device(choice.backend, choice.index)
            try:
                case = _core.Case(handle, operation, precision, all_params, kv_lens=kv_lens, variant=variant, seed=seed)
                return handle, case, os.sched_getaffinity(0)
            except BaseException:
                hardware.close_device(handle)
                raise

        self._open = open_case
        with hardware.preserve_current_device(choice.backend):
            self._device, self._case, self._cpus = open_case()

    @property
    def operation(self) -> str:
        """Return the operation's name."""
        return self._case.operation

    @property
    def precision(self) -> str:
        """Return the precision's name."""
        return self._case.precision

    @property
    def variant(self) -> str:
        """Return the variant that runs."""
        return self._case.variant

    @property
    def params(self) -> dict[str, int]:
        """Return all parameters, defaults included."""
        return self._case.params

    @property
    def cost(self) -> Cost:
        """Return bytes and FLOPs of one launch of this variant."""
        return Cost(**self._case.cost)

    @property
    def operands(self) -> list[dict[str, Any]]:
        """Return name, role ("in", "out", "inout"), dtype, shape and bytes of every array, row-major."""
        return self._case.operands

    @_keeps_current
    def memory_needed(self, cache: str = "cold") -> dict[str, int]:
        """Return the bytes that `measure` allocates, and free bytes: needed, free, scratch, buffer_sets."""
        check_known("cache", cache, CACHES)
        return self._case.memory_needed(cache)

    @_keeps_current
    def run(self, /, **arrays: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Launch once on your arrays.

        Parameters
        ----------
        **arrays : array-like
            By operand name; numbers are rounded to the operand's type. An array of uint16 for a 16-bit float type has
            its bits, in this machine's byte order, one of uint8 for a narrower type its bytes row by row, as
            `bwprof.formats.quantize` returns them. Others have the generated inputs; `kv_lens` is the case's.

        Returns
        -------
        dict of numpy.ndarray
            Every output; float32 for types that NumPy lacks.

        Raises
        ------
        ValueError
            For an unknown operand, a wrong shape, and values of another kind.
        """
        operands = self.operands
        known = {operand["name"]: operand for operand in operands if operand["role"] != "out"}
        for name in arrays:
            check_known(f"input of {self.operation}", name, known)
        return _decoded(
            self._case.run({name: _to_bits(value, known[name]) for name, value in arrays.items()}), operands
        )

    @_keeps_current
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the generated inputs, in the types of `run`."""
        return _decoded(self._case.inputs(), self.operands)

    @_keeps_current
    def verify(self, *, max_seconds: float = 0.1) -> dict[str, Any]:
        """Launch once and compare a sample of the output with the float64 reference.

        Parameters
        ----------
        max_seconds : float
            Processor time for the reference; Ctrl-C works between its rows. A later call with a larger value checks
            more rows.

        Returns
        -------
        dict
            verified, max_error and tolerance (of the element or row whose error is nearest to its limit: relative to
            the output's typical size, beyond the result's own rounding), rows_checked, rows_total, reason ("" or the
            worst element or row).
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
        """Verify, warm up, and sample until the confidence interval is narrow enough.

        On a CPU the case is opened again if the calling thread's set of processors has changed.

        Parameters
        ----------
        cache : {"cold", "hot"}
            Cold rotates over buffer sets, so that the inputs of every launch are outside the cache.
        rel_ci : float or str
            Stop when half of the median's 95 % confidence interval, and the distance of the medians of both halves of
            the samples, are below this fraction (0.02 or "2%").
        min_samples : int
            Least number of samples, 1 to 1 048 576; within the time limit also samples for 50 ms.
        max_seconds : float
            Time limit of the sampling.
        verify_seconds : float
            Processor time for the float64 reference, of all processors together.
        poll : callable, optional
            Called between batches; its exception ends the measurement.
        timer : str, optional
            On a GPU "graph" (default), "events" or "cupti"; on a CPU "monotonic".
        roofs : {"stored", "auto", False} or Roofs
            Roofs to compare with, as in `bwprof.measure`.

        Returns
        -------
        Row
            With a sweep's columns; its raw samples are `samples_ns`.

        Raises
        ------
        RuntimeError
            If the result is wrong; the message names the worst element.
        MemoryError
            If the device has too little free memory; nothing is allocated then.
        ValueError
            For a timer that the backend lacks, and values out of range.
        bwprof.errors.UnavailableError
            If the timer needs a library that cannot be used; the message has the remedy.
        """
        target = parse_fraction(rel_ci, "rel_ci")
        check_known("cache", cache, CACHES)
        registry.check_timer(timer, self.backend)
        on_host = self._device is not None and _core.backend_facts(self.backend)["runs_on_host"]
        if on_host and self._cpus != os.sched_getaffinity(0):
            self._device, self._case, self._cpus = self._open()
        spec = self._spec(cache, timer, target)
        if self._device is None:  # another thread closed the case
            raise ValueError("this Case is closed")
        context = Contexts(new_run_id(), self._device, check_roofs(roofs), (cache,), poll=poll).of(None)
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
        case, lens = self._case, self._kv_lens
        operation, precision, params = case.operation, case.precision, case.params
        changed = registry.unusual_params(operation, precision, params, lens)
        name = registry.case_name(" ".join([operation, *(f"{param}={params[param]}" for param in changed)]), lens)
        return Spec(name, operation, precision, params, lens, case.variant, cache, self._seed, timer, rel_ci=rel_ci)

    @_keeps_current
    def count(self, *, metrics: str | Iterable[str] | None = ()) -> dict[str, Any]:
        """Count the bytes that one launch moves, in hardware, with cold inputs and including its write-back.

        Parameters
        ----------
        metrics : str or iterable of str, optional
            Metrics to count by replaying the launch: "tensor", "fma", "occupancy", "stalls", "bank_conflicts",
            "sectors", "dram", "sm", "caches", or "all". `bwprof.columns` describes their columns.

        Returns
        -------
        dict
            dram_bytes_read, dram_bytes_written, l2_bytes (float, NaN if not counted) and counters_status: "ok", or why
            nothing was counted and what to do. With `metrics` also metrics (name -> value, NaN if unknown), passes
            (replays of the launch) and metrics_status.

        Raises
        ------
        ValueError
            For a metric that the backend lacks, and anything but names.
        """
        none = isinstance(metrics, (list, tuple)) and not metrics
        groups = registry.check_metrics(() if none else parse_names("metrics", metrics), self.backend)
        counts = self._case.count()
        device = self._device
        if device is not None:
            hardware.note_counting(device, counts)
        if groups:
            counted = self._case.count_metrics(groups)
            counts |= {name: counted.pop(name) for name in ("passes", "metrics_status")}
            counts["metrics"] = counted
        return counts

    @_keeps_current
    def close(self) -> None:
        """Free the buffers and the device; may be called again.

        Wait for a call of another thread, which gets its result. After Ctrl-C during the wait the case is still open.
        Raise ValueError from within a call of the case, such as its poll function, and RuntimeError while another
        thread measures its roofs; a later call closes it.
        """
        self._case.close()
        handle = vars(self).pop("_device", None)  # only one of several threads gets it
        if handle is None:
            return
        try:
            hardware.close_device(handle)
        except BaseException:  # still in use: a later call closes it
            self._device = handle
            raise

    def __enter__(self) -> Case:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            params = ", ".join(f"{name}={value}" for name, value in self.params.items())
        except ValueError:  # a closed case has no parameters
            return "<bwprof.Case, closed>"
        return f"<bwprof.Case {self.operation} {self.precision} {self.variant} on {self.device}: {params}>"


_NUMPY_FLOATS = {"fp32": "float32", "tf32": "float32", "fp16": "float16"}


def _to_bits(value: Any, operand: dict[str, Any]) -> bytes:
    import numpy as np

    from bwprof.formats import encode_rows

    array = np.asarray(value)
    name, dtype, shape = operand["name"], operand["dtype"], tuple(operand["shape"])
    whole, halves = dtype.startswith("int"), dtype in ("fp16", "bf16")
    stored_bytes = array.dtype == np.uint8 and not (whole or halves or dtype in _NUMPY_FLOATS)
    if stored_bytes:
        shape = (*shape[:-1], operand["bytes"] // math.prod(shape[:-1]))
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, {shape} is needed")
    if whole:
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name} holds {array.dtype}, whole numbers are needed")
        stored = array.astype(dtype)
        if not np.array_equal(stored, array):
            raise ValueError(f"{name} holds values that do not fit into {dtype}")
        return stored.tobytes()
    if stored_bytes or (halves and array.dtype == np.uint16):
        return array.tobytes()
    if halves and array.dtype.kind in "iu" and array.dtype.itemsize == 2:
        raise ValueError(
            f"{name} holds {array.dtype.str}: {dtype} takes floats, or its stored bits as {np.dtype(np.uint16).str}"
        )
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} holds {array.dtype}, numbers are needed")
    return encode_rows(dtype, array.reshape(-1, operand["row_elems"] or array.size))


def _from_bits(data: bytes, operand: dict[str, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    from bwprof.formats import decode_rows

    dtype, shape = operand["dtype"], operand["shape"]
    row = operand["row_elems"] or math.prod(shape)
    stored = dtype if dtype.startswith("int") else _NUMPY_FLOATS.get(dtype)
    values = np.frombuffer(data, stored).copy() if stored else decode_rows(dtype, data, math.prod(shape) // row, row)
    return values.reshape(shape)


def _decoded(bits: dict[str, bytes], operands: list[dict[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    by_name = {operand["name"]: operand for operand in operands}
    return {name: _from_bits(data, by_name[name]) for name, data in bits.items()}
