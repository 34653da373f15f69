"""Quantize weights to the formats of precisions, and read them back: arrays as `bwprof.Case.run` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bwprof import _core, registry

_Array = np.ndarray[Any, Any]

# The largest number of a type: a scale maps the largest weight of its group to it.
_LARGEST = {"int8": 127.0, "fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "fp4_e2m1": 6.0, "uint4": 15.0, "fp16": 65504.0}
# NumPy's types of what is stored; of the others it has the bytes.
_STORED = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "uint16", "int8": "int8"}


def quantize(weights: Any, precision: str) -> dict[str, _Array]:
    """Quantize a matrix to a precision's format of weights.

    A scale maps the largest magnitude that it is for to 127 (INT8), 448 (E4M3) or 6 (E2M1); int4 maps a group's
    range, with zero, to 0 … 15. MXFP4's scale is 2^(floor(log2(largest)) - 2) (OCP Microscaling Formats v1.0): numbers
    above 6 of it become 6. NVFP4 has E4M3 scales, times largest / (6 · 448) of the matrix. q4_0 and q8_0 are ggml's bit
    for bit; q4_k has ggml's layout. FP16 scales end at 65504: numbers that need larger ones become their largest.

    Parameters
    ----------
    weights : array-like
        N rows of K finite numbers, rounded to FP32 first.
    precision : str
        As in `bwprof.cost`.

    Returns
    -------
    dict of numpy.ndarray
        "B"; where the format has them "B_scale", "B_zero" and "B_whole_scale". BF16 is uint16; what NumPy has no type
        for is uint8: the bytes of each row, the first of two numbers in the lower half.

    Raises
    ------
    ValueError
        For an unknown precision, anything but a matrix of numbers, NaN and infinities.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.formats.quantize([[0.5, -1.0, 6.0]], "mxfp4")["B"].tolist()  # 0.5 is 1, -1.0 is 10, 6.0 is 7
    [[161, 7]]
    """
    matrix = np.asarray(weights)
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "fiu":
        raise ValueError(f"weights are {matrix.dtype} of shape {matrix.shape}: a matrix (N, K) of numbers is needed")
    if not np.abs(matrix).max() <= np.finfo(np.float32).max:
        raise ValueError("weights hold NaN, infinities or numbers beyond FP32: finite numbers are needed")
    dtype, scaling = _find_format(precision)
    if scaling is None:
        return {"B": _store(dtype, matrix)}
    groups, largest, parts = _group(matrix.astype(np.float32), scaling), _LARGEST[dtype], {}
    low, high, whole = np.minimum(groups.min((1, 3)), 0.0), np.maximum(groups.max((1, 3)), 0.0), np.float32(1)
    size = np.maximum(high, -low)
    scales = np.minimum(high / largest - low / largest, _LARGEST["fp16"]) if scaling["zero"] else size / largest
    if scaling["type"] == "e8m0":
        scales = np.ldexp(np.float32(1), np.frexp(size)[1] - 3)  # frexp: from a half up to 1
    if scaling["whole"]:
        parts["B_whole_scale"] = whole = scales.max().reshape(1) / np.float32(_LARGEST[scaling["type"]])
        scales /= whole or np.inf
    parts["B_scale"] = _store(scaling["type"], scales).reshape(scales.shape if scaling["columns"] else -1)
    steps = _read(scaling["type"], parts["B_scale"]).reshape(scales.shape) * whole
    steps[steps == 0] = np.inf  # a group of zeros
    groups /= steps[:, None, :, None]
    if scaling["zero"]:
        parts["B_zero"] = _store(scaling["zero"], -low / steps)
        groups += _read(scaling["zero"], parts["B_zero"], steps.shape[1])[:, None, :, None]
    numbers = groups.clip(-largest, largest).reshape(-1, groups[0, 0].size)[: len(matrix), : matrix.shape[1]]
    return {"B": _store(dtype, numbers), **parts}


def dequantize(parts: Mapping[str, Any], precision: str, columns: int | None = None) -> _Array:
    """Return the weights that stored parts stand for.

    Parameters
    ----------
    parts, precision
        As `quantize` returns and takes them; also values, as `bwprof.Case.inputs` returns them.
    columns : int, optional
        K, where a row ends within a byte or a block; default: all that the bytes hold.

    Returns
    -------
    numpy.ndarray
        float32 of shape (N, K).

    Raises
    ------
    KeyError, ValueError
        For a missing part; for an unknown precision and wrong shapes.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.formats.dequantize({"B": [[20, -41, 127]], "B_scale": [0.5]}, "int8_w8a16").tolist()
    [[10.0, -20.5, 63.5]]
    """
    dtype, scaling = _find_format(precision)
    values = _read(dtype, parts["B"], columns)
    if np.ndim(parts["B"]) != 2 or columns not in (None, values.shape[1]):
        raise ValueError(f"B has shape {np.shape(parts['B'])}, columns = {columns}: rows of so many numbers are needed")
    if scaling is None:
        return values
    groups = _group(values, scaling)
    steps = _read(scaling["type"], parts["B_scale"]).reshape(len(groups), 1, -1, 1)
    if scaling["zero"]:
        groups -= _read(scaling["zero"], parts["B_zero"], groups.shape[2])[:, None, :, None]
    if scaling["whole"]:
        steps *= np.float32(parts["B_whole_scale"])
    return (groups * steps).reshape(-1, groups[0, 0].size)[: len(values), : values.shape[1]]


def _find_format(precision: str) -> tuple[str, dict[str, Any] | None]:
    """Return a precision's type of weights, and their scales."""
    name = registry.check_precision(precision)
    return next((row["weight"], row["weight_scales"]) for row in _core.precisions() if row["name"] == name)


def _group(matrix: _Array, scaling: dict[str, Any]) -> _Array:
    """Return the numbers by rows and columns of scales, on axes 0 and 2, filled up with zeros."""
    high, wide, k = scaling["rows"] or len(matrix), scaling["columns"] or matrix.shape[1], matrix.shape[1]
    return np.pad(matrix, ((0, -len(matrix) % high), (0, -k % wide))).reshape(-1, high, -(-k // wide), wide)


def _store(dtype: str, rows: _Array) -> _Array:
    return np.frombuffer(bytearray(encode_rows(dtype, rows)), _STORED.get(dtype, "uint8")).reshape(len(rows), -1)


def _read(dtype: str, stored: Any, columns: int | None = None) -> _Array:
    array: _Array = np.asarray(stored)
    if array.dtype == _STORED.get(dtype, "uint8"):
        return decode_rows(dtype, array.tobytes(), len(array), columns)
    return array.astype(np.float32)


def encode_rows(dtype: str, rows: _Array) -> bytes:
    """Return rows of numbers as a type stores them, each from a block of its own."""
    elems = next(known["block_elems"] for known in _core.dtypes() if known["name"] == dtype)
    return _core.encode(dtype, np.pad(rows.astype(np.float32, order="C"), ((0, 0), (0, -rows.shape[1] % elems))))


def decode_rows(dtype: str, data: bytes, rows: int, columns: int | None) -> _Array:
    """Return the first numbers of stored rows, as float32."""
    return np.frombuffer(_core.decode(dtype, data), np.float32).reshape(rows, -1)[:, :columns].copy()
