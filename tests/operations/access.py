"""Access patterns: strided elements, and granules in random order."""

from __future__ import annotations

import numpy as np

from operations import Arrays, Operation, Shape


def strided(elements: int, stride: int = 1, offset: int = 0, readers: int | None = None) -> Shape:
    shape = {"elements": elements, "stride": stride, "offset": offset}
    return shape if readers is None else shape | {"readers": readers}


def random(array_bytes: int, granule_bytes: int) -> Shape:
    return {"array_bytes": array_bytes, "granule_bytes": granule_bytes}


PLACES = [
    (1, 1, 0),
    (8, 1, 5),
    (1, 65_536, 0),
    (5000, 3, 4096),
    (1023, 1, 0),
    (2048, 1, 1),
    (70_001, 1, 7),
    (8197, 2, 0),
    (3074, 3, 1),
    (14_347, 7, 3),
    (24_016, 16, 31),
    (160_065, 32, 0),
    (127_553, 128, 64),
    (1_125_380, 1024, 5),
    (600_011, 1, 3),  # large: CPUs write past their caches
]
READ_SHAPES = [strided(*place, 1) for place in PLACES] + [
    strided(1, 1, 0, 1024),
    strided(4099, 1, 0, 32),
    strided(5153, 5, 2, 2),
    strided(16_394, 8, 1, 256),
]
WRITE_SHAPES = [strided(*place) for place in PLACES]
RANDOM_SHAPES = [
    random(1, 4),
    random(1, 4096),
    random(47, 16),
    random(4 * 4099, 4),
    random(8 * 2053 - 3, 8),
    random(16 * 1031, 16),
    random(32 * 65, 32),
    random(32 * 70_001, 32),
    random(64 * 1021, 64),
    random(256 * 129, 256),
    random(1024 * 67 - 1000, 1024),
    random(4096 * 1009, 4096),
]


def words_of(units: np.ndarray, readers: int = 1) -> np.ndarray:
    """Sums of 4096 bytes of units each: of rows of bytes, in the order in which they are read."""
    count, size = units.shape
    words = units.view(np.uint32 if size >= 4 else np.uint16).astype(np.uint64).sum(axis=1)
    each = 4096 // size
    padded = np.concatenate([words, np.zeros(-count % each, dtype=np.uint64)]).reshape(-1, each)
    return (padded.sum(axis=1) * readers).astype(np.uint32).view(np.int32)


def read_strided(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    a = np.frombuffer(bits["a"], dtype=np.uint8).reshape(p["elements"], -1)
    return {"checksum": words_of(np.ascontiguousarray(a[p["offset"] :: p["stride"]]), p["readers"])}


def write_strided(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    b = x["b"].copy()
    written = b[p["offset"] :: p["stride"]]
    written[:] = (np.arange(len(written)) % 64 - 32) / 32
    return {"b": b}


def granules_of(bits: dict[str, bytes], p: Shape) -> np.ndarray:
    index, count = np.frombuffer(bits["index"], dtype=np.int32), -(-p["array_bytes"] // p["granule_bytes"])
    assert np.array_equal(np.sort(index), np.arange(count)), "index is no permutation"
    assert count < 1000 or abs(np.diff(index.astype(float))).mean() > count / 4, "index has an order"
    return index


def read_random(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    a = np.frombuffer(bits["a"], dtype=np.uint8).reshape(-1, p["granule_bytes"])
    return {"checksum": words_of(a[granules_of(bits, p)])}


def write_random(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    index = granules_of(bits, p)
    b = np.empty((len(index), p["granule_bytes"] // 4))
    b[index] = ((np.arange(len(index)) % 64 - 32) / 32)[:, None]
    return {"b": b.ravel()}


OPERATIONS = {
    "strided_read": Operation(
        shapes=READ_SHAPES,
        small=strided(9000, 3, 1, 2),
        reference=read_strided,
        worked=[
            ("fp32", strided(128_000, 128, 3, 32), 4_000, 0, 0),
            ("bf16", strided(1000, 1, 10, 1), 1_980, 0, 0),
        ],
    ),
    "strided_write": Operation(
        shapes=WRITE_SHAPES,
        small=strided(9000, 3, 1),
        reference=write_strided,
        worked=[("fp16", strided(1001, 10, 0), 0, 202, 0)],
    ),
    "random_read": Operation(
        shapes=RANDOM_SHAPES,
        small=random(22_400, 32),
        reference=read_random,
        worked=[("fp32", random(127_999, 128), 128_000, 0, 0)],
    ),
    "random_write": Operation(
        shapes=RANDOM_SHAPES,
        small=random(22_400, 32),
        reference=write_random,
        worked=[("fp32", random(128_000, 128), 0, 128_000, 0)],
    ),
}
