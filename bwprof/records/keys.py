"""What identifies a case across runs: the keys by which the rows of two runs are joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

from bwprof.results import schema
from bwprof.results.schema import Row

Key = tuple[object, ...]

# Two times are of the same thing on the same ground only where these agree, too.
GROUND = {
    "backend": "another backend",
    "device": "another device",
    "driver": "another driver",
    "timer": "another timer",
    "flops": "other work",
    "bytes_read": "other work",
    "bytes_written": "other work",
}


@cache
def bare_names() -> tuple[str, ...]:
    """What a case is, wherever and however it ran."""
    return ("operation", *schema.all_param_names(), "kv_lens", "case", "precision", "cache")


@cache
def loose_names() -> tuple[str, ...]:
    """The same on one kind of device under one timer, whichever variant ran."""
    return (*bare_names(), "timer", "backend", "device")


@cache
def key_names() -> tuple[str, ...]:
    """All that identifies a case."""
    return (*loose_names(), "variant")


def key(row: Row) -> Key:
    """What a row of another run must have in common with this one to be the same case.

    Examples
    --------
    >>> one = {"operation": "gemm", "M": 1, "precision": "fp16", "variant": "tiled", "run_id": "a"}
    >>> key(one) == key({**one, "run_id": "b"}), key(one) == key({**one, "variant": "gemv"})
    (True, False)
    """
    return _values(row, key_names())


def loose(row: Row) -> Key:
    """The same without the variant: joins rows of which another variant ran."""
    return _values(row, loose_names())


def bare(row: Row) -> Key:
    """The case alone: joins rows that another device, backend or timer measured, which are not to be compared."""
    return _values(row, bare_names())


def keys_of(*sides: Sequence[Row]) -> list[list[Key]]:
    """Each side's keys, none of them twice within a side.

    Where `key` does not tell two rows of a side apart, what both sides know of the caller's own columns does (the
    arguments of a function that was swept), then the device's UUID where the sides have one in common, then the order.
    """
    return [_in_turns(keys, [None] * len(keys)) for keys in _told_apart(sides)]


def keys_within_runs(*sides: Sequence[Row]) -> list[list[Key]]:
    """The same, but none of them twice within a run of a side: of several runs the same case has the same key.

    Rows on different ground are different ones.
    """
    return [
        _in_turns(
            [(*told, *_values(row, tuple(GROUND))) for told, row in zip(keys, rows, strict=True)],
            [row.get("run_id") for row in rows],
        )
        for keys, rows in zip(_told_apart(sides), sides, strict=True)
    ]


def _told_apart(sides: Sequence[Sequence[Row]]) -> list[list[Key]]:
    """Each row's key, with what else tells rows of a side apart where it does not."""
    found = [[key(row) for row in rows] for rows in sides]
    for names in (_labels(sides), _common_devices(sides)):
        unclear = _unclear(found)
        if names and unclear:
            found = [
                [
                    (*told, *_values(row, names)) if told in unclear else told
                    for told, row in zip(keys, rows, strict=True)
                ]
                for keys, rows in zip(found, sides, strict=True)
            ]
    return found


def process_of(row: Row) -> str:
    """What tells the process that measured a row from others: its own word, in older files its run's; "" for neither.

    Examples
    --------
    >>> process_of({"process": "d0", "run_id": "a"}), process_of({"run_id": "a"}), process_of({})
    ('d0', 'a', '')
    """
    return str(row.get("process") or row.get("run_id") or "")


def unlike(one: Row, other: Row) -> list[str]:
    """Why two rows of a case cannot be compared, in words; none where they can.

    What one side does not know is no reason.

    Examples
    --------
    >>> unlike({"device": "H100", "timer": "graph"}, {"device": "H200", "timer": "graph"})
    ['another device: H100, H200']
    """
    found: dict[str, str] = {}
    for name, words in GROUND.items():
        values = one.get(name), other.get(name)
        if values[0] != values[1] and not any(value == "" or schema.is_missing(value) for value in values):
            found.setdefault(words, f"{words}: {values[0]}, {values[1]}")
    return list(found.values())


def _values(row: Row, names: Sequence[str]) -> Key:
    """The same of a CSV file, where an empty text is a missing one."""
    return tuple(None if (value := schema.free(row.get(name))) == "" else value for name in names)


def _labels(sides: Sequence[Sequence[Row]]) -> tuple[str, ...]:
    """The columns that are not the schema's and that every side has."""
    each = [set(schema.more_names(rows)) for rows in sides]
    return tuple(sorted(set.intersection(*each))) if each else ()


def _common_devices(sides: Sequence[Sequence[Row]]) -> tuple[str, ...]:
    each = [{row.get("device_uuid") for row in rows} - {None, ""} for rows in sides]
    return ("device_uuid",) if each and set.intersection(*each) else ()


def _unclear(found: Sequence[Sequence[Key]]) -> set[Key]:
    """The keys that a side has more than once."""
    return {told for keys in found for told, count in Counter(keys).items() if count > 1}


def _in_turns(keys: Sequence[Key], runs: Sequence[object]) -> list[Key]:
    """The keys with the number of their turn where a run has them more than once."""
    seen: Counter[tuple[object, Key]] = Counter()
    result = []
    for told, run in zip(keys, runs, strict=True):
        seen[run, told] += 1
        turn = seen[run, told]
        result.append(told if turn == 1 else (*told, turn))
    return result
