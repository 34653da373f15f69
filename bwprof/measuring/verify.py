"""What a caller's function has written, held against a reference in float64. Arrays only: no device here.

An output is an array of NumPy's, a tensor of PyTorch's on any device, or whatever else gives its numbers to NumPy; or a
list of them; or a function that gives either. Errors are absolute. Without a tolerance an element may be off by
`OWN_ROUNDINGS` roundings of the output's type and `SUM_ROUNDINGS` of FP32 (FP64 where the output is), where sums of a
million terms stay, as chance adds errors up: of its own size, or of all elements' root mean square where that is
larger, since sums cancel. What is further off is shown, and judged by nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof.measuring.callables import check_callable, check_finished
from bwprof.text.parsing import repr_short

if TYPE_CHECKING:
    import numpy as np

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]
    _Typed = tuple[Array, float]  # with what rounding may do to an element, as a fraction of it

OWN_ROUNDINGS = 4

SUM_ROUNDINGS = 1024

_BLOCK = 1 << 20  # elements that are float64 at a time

# Bits of the significand, the hidden one included, of what NumPy does not know by itself.
_SIGNIFICANDS = {"bfloat16": 8, "float8_e4m3fn": 4, "float8_e4m3fnuz": 4, "float8_e5m2": 3, "float8_e5m2fnuz": 3}


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a comparison found. `wrong` says in words why the output is wrong, `note` what else should be known.

    `max_error` is the error nearest to its `tolerance`, or furthest past it; None where nothing was compared.
    """

    verified: bool | None
    max_error: float | None = None
    tolerance: float | None = None
    wrong: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is to be compared, and what the error may be; checked when it is made, as far as nothing need be called."""

    output: Any
    reference: Any = None
    tolerance: Any = None  # a float when it is made, or None

    def __post_init__(self) -> None:
        if self.output is None:
            given = "reference" if self.reference is not None else "tolerance"
            raise ValueError(f"{given}= goes with output=: what the function has written")
        if self.tolerance is not None and self.reference is None:
            raise ValueError("tolerance= goes with reference=: what the output should be, in float64")
        object.__setattr__(self, "tolerance", _tolerance(self.tolerance))
        for name in ("output", "reference"):
            given = getattr(self, name)
            if callable(given):
                check_callable(given, name)
            elif given is not None:
                _shapes_of(given, name)
        if not (self.reference is None or callable(self.output) or callable(self.reference)):
            _check_shapes(_shapes_of(self.output, "output"), _shapes_of(self.reference, "reference"))

    def compare(self) -> VerifyResult:
        """Call what is to be called, and compare.

        Raises
        ------
        TypeError, ValueError
            For what is no array of numbers, or of another shape than the other; for a reference that is not finite.
        Exception
            Whatever the caller's functions raise, as it is.
        """
        outputs = _arrays_of(_called(self.output, "output"), "output")
        for number, (output, _) in enumerate(outputs):
            found = _not_finite(output)
            if found:
                return VerifyResult(False, wrong=f"{_named('output', number, outputs)} is not finite: {found}")
        if self.reference is None:
            return VerifyResult(None, note="the output is finite, and was compared with nothing")
        references = _arrays_of(_called(self.reference, "reference"), "reference")
        _check_shapes([output.shape for output, _ in outputs], [reference.shape for reference, _ in references])
        for number, (reference, _) in enumerate(references):
            found = _not_finite(reference)
            if found:
                raise ValueError(f"{_named('reference', number, references)} is not finite: {found}")
        return _judged(outputs, references, self.tolerance)


def make_expected(output: Any, reference: Any, tolerance: Any) -> Expected | None:
    """What is to be compared; None where nothing was said of it."""
    if output is None and reference is None and tolerance is None:
        return None
    return Expected(output, reference, tolerance)


def _judged(outputs: list[_Typed], references: list[_Typed], given: float | None) -> VerifyResult:
    found = []
    for number, ((output, rounding), (reference, _)) in enumerate(zip(outputs, references, strict=True)):
        share, error, allowed, where = _worst(output, reference, rounding, given)
        said = f"{_named('output', number, outputs)}{_place(where, output.shape)}"
        values = f"{said} is {_figure(output.flat[where])}, the reference {_figure(reference.flat[where])}"
        found.append((share, error, allowed, f"{values}: the error {error:.3g} is above"))
    share, error, allowed, said = max(found, key=lambda one: one[0])
    if share <= 1:
        return VerifyResult(True, error, allowed)
    if given is not None:
        return VerifyResult(False, error, allowed, wrong=f"{said} the tolerance {given:.3g}")
    return VerifyResult(
        None, error, allowed, note=f"{said} what rounding does, {allowed:.3g}: tolerance= says what it may be"
    )


def _worst(
    output: Array, reference: Array, rounding: float, tolerance: float | None
) -> tuple[float, float, float, int]:
    """Of the element furthest past what it may be off by, or nearest to it: the share, the error, that, its number."""
    import numpy as np

    worst = (-1.0, 0.0, 0.0, 0)
    typical = 0.0
    if tolerance is None:
        typical = _root_mean_square(reference)
    for start, ours, theirs in _blocks(output, reference):
        with np.errstate(over="ignore", under="ignore"):
            errors = np.minimum(np.abs(ours - theirs).astype(float), np.finfo(float).max)  # a row's numbers are finite
            allowed = (
                rounding * np.maximum(np.abs(theirs), typical) if tolerance is None else np.full_like(errors, tolerance)
            )
            shares = np.divide(errors, allowed, out=np.where(errors > 0, np.inf, 0.0), where=allowed > 0)
        at = int(shares.argmax())
        if shares[at] > worst[0]:
            worst = (float(shares[at]), float(errors[at]), float(allowed[at]), start + at)
    return worst


def _root_mean_square(array: Array) -> float:
    """Of finite elements, by their shares of the largest one: squares of their own may be more than a float holds."""
    import numpy as np

    peak = max(float(np.abs(part).max()) for _, part in _blocks(array))
    if peak == 0:
        return 0.0
    with np.errstate(under="ignore"):
        total = sum(float(np.square(part / peak).sum()) for _, part in _blocks(array))
    return peak * math.sqrt(total / array.size)


def _not_finite(array: Array) -> str:
    """How many elements are NaN or infinite, and the first of them; "" where none is."""
    import numpy as np

    count, first = 0, -1
    for start, values in _blocks(array):
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size and not count:
            first = start + int(wrong[0])
        count += wrong.size
    if not count:
        return ""
    return f"{count} of {array.size} elements; the first{_place(first, array.shape)} is {float(array.flat[first])}"


def _blocks(*arrays: Array) -> Iterator[tuple[Any, ...]]:
    """The first element's number and the arrays' elements from there on, in float64, so many at a time; where all are
    whole numbers in a type that holds each of them (64 bits of significand and more).
    """
    import numpy as np

    whole = len(arrays) > 1 and all(array.dtype.kind in "iub" for array in arrays)
    dtype = "longdouble" if whole else "float64"
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _BLOCK):
        with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is infinite
            yield start, *(part[start : start + _BLOCK].astype(dtype) for part in flat)


def _figure(value: Any) -> str:
    return str(int(value)) if value.dtype.kind in "iu" else f"{float(value):.6g}"


def _place(flat: int, shape: tuple[int, ...]) -> str:
    import numpy as np

    return f"[{', '.join(str(int(index)) for index in np.unravel_index(flat, shape))}]" if shape else ""


def _named(name: str, number: int, arrays: list[Any]) -> str:
    return f"{name} {number}" if len(arrays) > 1 else name


def _called(given: Any, name: str) -> Any:
    if not callable(given):
        return given
    made = given()
    check_finished(made, name)
    if made is None:
        raise TypeError(f"{name} returned nothing: it should return an array, or a list of them")
    return made


def _tolerance(given: Any) -> float | None:
    if given is None:
        return None
    try:
        found = math.nan if isinstance(given, (str, bytes, bool)) else float(given)
    except (OverflowError, TypeError, ValueError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise ValueError(f"tolerance is {repr_short(given)}: allowed is a number from 0, the largest absolute error")
    return found


def _check_shapes(outputs: list[tuple[int, ...]], references: list[tuple[int, ...]]) -> None:
    if len(outputs) != len(references):
        raise ValueError(f"there are {len(outputs)} outputs and {len(references)} references: one for each is needed")
    for number, (output, reference) in enumerate(zip(outputs, references, strict=True)):
        if output != reference:
            said = f"{_named('output', number, outputs)} has the shape {output}, its reference {reference}"
            raise ValueError(f"{said}: the same is needed")


def _shapes_of(given: Any, name: str) -> list[tuple[int, ...]]:
    """The shapes of what need not be copied for that; TypeError or ValueError for what is no array."""
    listed = _listed(given, name)
    return [
        tuple(map(int, one.shape)) if _is_elsewhere(one) else _array_of(one, _named(name, number, listed))[0].shape
        for number, one in enumerate(listed)
    ]


def _is_elsewhere(given: Any) -> bool:
    return hasattr(given, "shape") and (hasattr(given, "detach") or hasattr(given, "__cuda_array_interface__"))


def _arrays_of(given: Any, name: str) -> list[_Typed]:
    """The arrays on the host, each with what rounding may do to it; TypeError or ValueError for what is none."""
    listed = _listed(given, name)
    return [_array_of(one, _named(name, number, listed)) for number, one in enumerate(listed)]


def _listed(given: Any, name: str) -> list[Any]:
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not listed:
        raise ValueError(f"{name} is empty: an array is needed, or a list of them")
    return listed


def _array_of(given: Any, name: str) -> _Typed:
    import numpy as np

    said = f"{name} is a {type(given).__name__}: an array of numbers is needed (NumPy, PyTorch, CuPy, ...)"
    if given is None or isinstance(given, (str, bytes, dict, set)) or callable(given):
        raise TypeError(said)
    dtype = str(getattr(given, "dtype", "")).rpartition(".")[2]
    try:
        found = np.asarray(_on_the_host(given, dtype))
    except (BufferError, OverflowError, TypeError, ValueError) as error:
        raise TypeError(f"{said}; {type(error).__name__}: {error}") from None
    if found.dtype.kind == "c":
        raise TypeError(f"{name} holds complex numbers: compare .real and .imag, as a list of two")
    if found.dtype.kind not in "fiub" and dtype not in _SIGNIFICANDS:
        raise TypeError(f"{said}, not of {found.dtype}")
    if not found.size:
        raise ValueError(f"{name} has the shape {found.shape} and no elements: there is nothing to compare")
    if dtype in _SIGNIFICANDS:
        return found, _rounding(2.0 ** -_SIGNIFICANDS[dtype])
    return found, _rounding(float(np.finfo(found.dtype).eps) / 2) if found.dtype.kind == "f" else 0.0


def _rounding(own: float) -> float:
    return OWN_ROUNDINGS * own + SUM_ROUNDINGS * min(own, 2.0**-24)


def _on_the_host(given: Any, dtype: str) -> Any:
    """What NumPy can read: a tensor's numbers, wider where NumPy has no such type; an array's copy out of a GPU."""
    if hasattr(given, "detach"):
        tensor = given.detach().cpu()
        return (tensor.float() if dtype in _SIGNIFICANDS else tensor).numpy()
    for copy in ("get", "copy_to_host"):  # CuPy's, Numba's
        if hasattr(given, "__cuda_array_interface__") and hasattr(given, copy):
            return getattr(given, copy)()
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array__"):
        import numpy as np

        return np.from_dlpack(given)
    return given
