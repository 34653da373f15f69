"""Inspect a caller's functions: their names, whether a call does all of its work, whether what it writes is right."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import math
import re
import sys
from collections import UserList, deque
from collections.abc import AsyncIterator, Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bwprof.text.parsing import repr_short

# Methods of pending work: of futures, results of pools, threads and processes.
_PENDING = (
    *(("done", "result"), ("done", "wait"), ("ready", "get"), ("is_completed", "wait")),
    *(("is_alive", "join"), ("is_set", "wait"), ("poll", "wait")),
)

_CONTAINERS = (list, tuple, set, frozenset, deque, ItemsView, ValuesView, UserList)
_LAZY = ("__dask_graph__", "collect_async")  # of Dask's collections and of Polars' LazyFrame


def do_nothing() -> None:
    """Do nothing: what an empty call costs, for the floor."""


def do_nothing_with(number: int) -> None:
    """Do nothing, for functions that take a set's number."""


def is_generator_function(function: Callable[..., object]) -> bool:
    """Return whether a call returns a coroutine or a generator instead of working."""
    while isinstance(function, functools.partial):
        function = function.func
    return any(
        test(candidate)
        for candidate in (function, type(function).__call__)
        for test in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    )


def iterate_leaves(value: Any, is_leaf: Callable[[Any], object]) -> Iterator[Any]:
    """Yield the leaves in containers, mappings, namespaces and dataclasses, each once."""
    waiting, seen = [value], {id(value)}
    while waiting:
        item = waiting.pop()
        inner: Iterable[Any] = ()
        if is_leaf(item):
            yield item
        elif isinstance(item, Mapping):
            inner = item.values()
        elif isinstance(item, _CONTAINERS):
            inner = item
        elif isinstance(item, SimpleNamespace):
            inner = vars(item).values()
        elif dataclasses.is_dataclass(item) and not isinstance(item, type):
            inner = [getattr(item, field.name, None) for field in dataclasses.fields(item)]
        else:
            yield item
        fresh = [each for each in inner if id(each) not in seen]
        seen.update(map(id, fresh))
        waiting += reversed(fresh)


def check_finished(returned: object, what: str) -> None:
    """Raise TypeError for a result whose work is not done, and which cannot be waited for here."""
    for leaf in iterate_leaves(returned, _wait_of):
        if _wait_of(leaf) is not None:
            continue
        if inspect.iscoroutine(leaf):
            leaf.close()  # else Python warns that it was never awaited
        is_pending = any(all(hasattr(type(leaf), method) for method in pair) for pair in _PENDING)
        # What works only when it is iterated over, awaited or collected; files and cursors do not count.
        is_source = isinstance(leaf, io.IOBase) or _read_attribute(leaf, "fetchone")
        is_lazy = inspect.isawaitable(leaf) or any(hasattr(type(leaf), method) for method in _LAZY)
        is_lazy |= isinstance(leaf, (Iterator, AsyncIterator)) and not is_source
        if is_pending or is_lazy or _is_elsewhere(leaf):
            raise TypeError(
                f"{what} returned a {type(leaf).__name__}, whose work is not done: do all of it inside the function"
            )


def wrap_with_wait(function: Callable[..., object], returned: object, what: str) -> Callable[..., object]:
    """Return the function, with a wait for its result where `returned` is computed elsewhere; TypeError as above."""
    check_finished(returned, what)
    if all(_wait_of(leaf) is None for leaf in iterate_leaves(returned, _wait_of)):
        return function

    @functools.wraps(function)
    def finished(*args: Any) -> object:
        result = function(*args)
        for leaf in iterate_leaves(result, _wait_of):
            if (wait := _wait_of(leaf)) is not None:
                wait()
        return result

    return finished


def _read_attribute(value: Any, name: str) -> Any:
    """Return an attribute of a result; None where it is missing or raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _wait_of(value: Any) -> Callable[[], object] | None:
    """Return what waits for a result that is computed elsewhere; None where nothing does."""
    if isinstance(value, type) or _read_attribute(value, "is_cpu") is True:
        return None
    device = _read_attribute(value, "device")
    if isinstance(kind := _read_attribute(device, "type"), str):  # PyTorch
        wait = getattr(getattr(sys.modules.get("torch"), kind, None), "synchronize", None)
        return wait if wait is None or kind == "mps" else functools.partial(wait, device)
    if type(value).__module__.partition(".")[0] == "mlx":
        return functools.partial(sys.modules["mlx.core"].eval, value)
    for owner, name in ((value, "block_until_ready"), (value, "synchronize"), (device, "synchronize")):
        found: Callable[[], object] | None = _read_attribute(owner, name)
        if callable(found):  # JAX; streams and events; CuPy
            return found
    return getattr(sys.modules.get("numba.cuda"), "synchronize", None) if _is_elsewhere(value) else None


def _is_elsewhere(value: Any) -> bool:
    """Return whether it is an array or tensor outside the host's memory."""
    is_away = _read_attribute(value, "is_cpu") is False and _read_attribute(value, "is_meta") is not True
    return is_away or _read_attribute(value, "__cuda_array_interface__") is not None


def check_callable(value: object, name: str) -> None:
    """Raise TypeError unless it is None, or a function that works when it is called."""
    if value is None:
        return
    if not callable(value):
        raise TypeError(f"{name} is {repr_short(value)}, a callable is needed")
    if is_generator_function(value):
        raise TypeError(
            f"{name} is {repr_short(value)}: calling it only makes a coroutine or generator, it does no work"
        )


def name_callable(fn: Any) -> str:
    """Return the name of a callable."""
    inner = getattr(fn, "func", fn)  # functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__))


if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]
    _Arrays = dict[str, tuple[Array, float]]  # by name: an array, and what rounding does, as a fraction of an element
    _Shapes = dict[str, tuple[int, ...]]

OWN_ROUNDINGS = 4
SUM_ROUNDINGS = 1024

_BLOCK = 1 << 20  # elements that are float64 at a time
_NUMPY_LACKS = re.compile(r"bfloat16|float8_e\d+m(\d+)[a-z]*")  # m: stored bits of the significand; bfloat16 has 7


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of a comparison."""

    verified: bool | None  # None: not compared, or no tolerance
    max_error: float | None = None  # the error nearest to its tolerance, or furthest past it
    tolerance: float | None = None
    wrong: str = ""  # why the output is wrong
    note: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """An output, its reference and the tolerance; checked as far as possible without calling a function.

    Each is an array (NumPy, PyTorch, CuPy, ...), a list of arrays, or a function that returns either. Errors are
    absolute, in float64. Without a tolerance, an element may be off by `OWN_ROUNDINGS` roundings of the output's type
    and `SUM_ROUNDINGS` of FP32 (of FP64 for FP64), which holds for sums of a million terms with random errors. The
    roundings are those of the element, or of all elements' root mean square where that is larger, since sums cancel.
    """

    output: Any
    reference: Any = None
    tolerance: Any = None  # becomes a float

    def __post_init__(self) -> None:
        if self.output is None:
            name = "reference" if self.reference is not None else "tolerance"
            raise ValueError(f"{name}= goes with output=: what the function has written")
        if self.tolerance is not None and self.reference is None:
            raise ValueError("tolerance= goes with reference=: what the output should be, in float64")
        object.__setattr__(self, "tolerance", _parse_tolerance(self.tolerance))
        shapes = []
        for name in ("output", "reference"):
            value = getattr(self, name)
            if callable(value):
                check_callable(value, name)
            elif value is not None:
                shapes.append(_read_shapes(value, name))
        if len(shapes) == 2:
            _check_shapes(*shapes)

    def compare(self) -> VerifyResult:
        """Call the functions and compare.

        TypeError or ValueError for what is no array of numbers, has another shape than the reference, and for a
        reference that is not finite; and whatever the caller's functions raise.
        """
        outputs = _read_arrays(_call(self.output, "output"), "output")
        for name, (array, _) in outputs.items():
            if flaw := _describe_nonfinite(array):
                return VerifyResult(False, wrong=f"{name} is not finite: {flaw}")
        if self.reference is None:
            return VerifyResult(None, note="the output is finite, and was compared with nothing")
        references = _read_arrays(_call(self.reference, "reference"), "reference")
        _check_shapes(*({name: array.shape for name, (array, _) in side.items()} for side in (outputs, references)))
        for name, (array, _) in references.items():
            if flaw := _describe_nonfinite(array):
                raise ValueError(f"{name} is not finite: {flaw}")
        return self._judge(outputs, [array for array, _ in references.values()])

    def _judge(self, outputs: _Arrays, references: list[Array]) -> VerifyResult:
        errors = []
        for (name, (output, rounding)), reference in zip(outputs.items(), references, strict=True):
            share, error, allowed, at = _find_worst(output, reference, rounding, self.tolerance)
            values = [array.flat[at] for array in (output, reference)]
            found, right = (str(int(one)) if one.dtype.kind in "iu" else f"{float(one):.6g}" for one in values)
            where = f"{name}{_format_index(at, output.shape)}"
            errors.append((share, error, allowed, f"{where} is {found}, the reference {right}: the error {error:.3g}"))
        share, error, allowed, text = max(errors, key=lambda entry: entry[0])
        if share <= 1:
            return VerifyResult(True, error, allowed)
        if self.tolerance is not None:
            return VerifyResult(False, error, allowed, wrong=f"{text} is above the tolerance {self.tolerance:.3g}")
        note = f"{text} is above what rounding does, {allowed:.3g}: tolerance= says what it may be"
        return VerifyResult(None, error, allowed, note=note)


def _find_worst(
    output: Array, reference: Array, rounding: float, tolerance: float | None
) -> tuple[float, float, float, int]:
    """Return error / allowed, error, allowed and the flat index of the element with the largest share."""
    import numpy as np

    worst = (-1.0, 0.0, 0.0, 0)
    typical = _root_mean_square(reference) if tolerance is None else 0.0
    for start, ours, theirs in _blocks(output, reference):
        with np.errstate(over="ignore", under="ignore"):
            errors = np.minimum(np.abs(ours - theirs).astype(float), np.finfo(float).max)  # a row's numbers are finite
            allowed = np.full_like(errors, tolerance or 0.0)
            if tolerance is None:
                allowed = rounding * np.maximum(np.abs(theirs), typical)
            shares = np.divide(errors, allowed, out=np.where(errors > 0, np.inf, 0.0), where=allowed > 0)
        at = int(shares.argmax())
        if shares[at] > worst[0]:
            worst = (float(shares[at]), float(errors[at]), float(allowed[at]), start + at)
    return worst


def _root_mean_square(array: Array) -> float:
    """Return it for finite elements, scaled by the largest, whose square may overflow."""
    import numpy as np

    peak = max(float(np.abs(part).max()) for _, part in _blocks(array))
    with np.errstate(under="ignore"):
        total = sum(float(np.square(part / (peak or 1.0)).sum()) for _, part in _blocks(array))
    return peak * math.sqrt(total / array.size)


def _describe_nonfinite(array: Array) -> str:
    """Return how many elements are NaN or infinite, and the first one; "" where none is."""
    import numpy as np

    count, first = 0, -1
    for start, values in _blocks(array):
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size and not count:
            first = start + int(wrong[0])
        count += wrong.size
    if not count:
        return ""
    where = f"the first{_format_index(first, array.shape)} is {float(array.flat[first])}"
    return f"{count} of {array.size} elements; {where}"


def _blocks(*arrays: Array) -> Iterator[tuple[Any, ...]]:
    """Yield the start and the arrays' elements from there, a block at a time, in float64.

    Several arrays of integers are long doubles, which hold all 64 bits.
    """
    import numpy as np

    integers = len(arrays) > 1 and all(array.dtype.kind in "iub" for array in arrays)
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _BLOCK):
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite
            yield start, *(part[start : start + _BLOCK].astype("longdouble" if integers else float) for part in flat)


def _format_index(flat: int, shape: tuple[int, ...]) -> str:
    import numpy as np

    return f"[{', '.join(str(int(index)) for index in np.unravel_index(flat, shape))}]" if shape else ""


def _call(value: Any, name: str) -> Any:
    if not callable(value):
        return value
    result = value()
    check_finished(result, name)
    if result is None:
        raise TypeError(f"{name} returned nothing: it should return an array, or a list of them")
    return result


def _parse_tolerance(value: Any) -> float | None:
    if value is None:
        return None
    try:
        tolerance = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (OverflowError, TypeError, ValueError):
        tolerance = math.nan
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance is {repr_short(value)}: allowed is a number from 0, the largest absolute error")
    return tolerance


def _check_shapes(outputs: _Shapes, references: _Shapes) -> None:
    if len(outputs) != len(references):
        raise ValueError(f"there are {len(outputs)} outputs and {len(references)} references: one for each is needed")
    for (name, output), reference in zip(outputs.items(), references.values(), strict=True):
        if output != reference:
            raise ValueError(f"{name} has the shape {output}, its reference {reference}: the same is needed")


def _read_shapes(value: Any, name: str) -> _Shapes:
    """Return the shapes of arrays, without a copy of what may be on a GPU; TypeError or ValueError for others."""
    shapes = {}
    for label, array in _name_arrays(value, name).items():
        may_be_away = hasattr(array, "detach") or hasattr(array, "__cuda_array_interface__")
        known = array if may_be_away and hasattr(array, "shape") else _read_array(array, label)[0]
        shapes[label] = tuple(map(int, known.shape))
    return shapes


def _read_arrays(value: Any, name: str) -> _Arrays:
    return {label: _read_array(array, label) for label, array in _name_arrays(value, name).items()}


def _name_arrays(value: Any, name: str) -> dict[str, Any]:
    """Return one array under the name, several under the name and their numbers."""
    arrays = list(value) if isinstance(value, (list, tuple)) else [value]
    if not arrays:
        raise ValueError(f"{name} is empty: an array is needed, or a list of them")
    return {f"{name} {number}" if len(arrays) > 1 else name: array for number, array in enumerate(arrays)}


def _read_array(value: Any, name: str) -> tuple[Array, float]:
    """Return the array on the host, and what rounding does to an element of its type, as a fraction of it."""
    import numpy as np

    problem = f"{name} is a {type(value).__name__}: an array of numbers is needed (NumPy, PyTorch, CuPy, ...)"
    if value is None or isinstance(value, (str, bytes, dict, set)) or callable(value):
        raise TypeError(problem)
    dtype = str(getattr(value, "dtype", "")).rpartition(".")[2]
    try:
        array = np.asarray(_copy_to_host(value, dtype))
    except (BufferError, OverflowError, TypeError, ValueError) as error:
        raise TypeError(f"{problem}; {type(error).__name__}: {error}") from None
    if array.dtype.kind == "c":
        raise TypeError(f"{name} holds complex numbers: compare .real and .imag, as a list of two")
    if not (lacking := _NUMPY_LACKS.fullmatch(dtype)) and array.dtype.kind not in "fiub":
        raise TypeError(f"{problem}, not of {array.dtype}")
    if not array.size:
        raise ValueError(f"{name} has the shape {array.shape} and no elements: there is nothing to compare")
    own = 0.0
    if lacking:
        own = 0.5 ** (int(lacking[1] or 7) + 1)
    elif array.dtype.kind == "f":
        own = float(np.finfo(array.dtype).eps) / 2
    return array, OWN_ROUNDINGS * own + SUM_ROUNDINGS * min(own, 2.0**-24)


def _copy_to_host(value: Any, dtype: str) -> Any:
    """Return what NumPy can read; types that NumPy lacks become FP32."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        return (tensor.float() if _NUMPY_LACKS.fullmatch(dtype) else tensor).numpy()
    for copy in ("get", "copy_to_host"):  # CuPy's, Numba's
        if hasattr(value, "__cuda_array_interface__") and hasattr(value, copy):
            return getattr(value, copy)()
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        import numpy as np

        return np.from_dlpack(value)
    return value
