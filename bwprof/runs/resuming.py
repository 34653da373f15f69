"""Which cases of a plan a run has rows for, and which are still to be measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache

from bwprof import registry
from bwprof.measuring.spec import Spec
from bwprof.results import schema
from bwprof.results.schema import Row
from bwprof.runs.loop import ran_out_of_time

_FINISHED = ("ok", "skipped", "predicted")

_Key = tuple[object, ...]


def still_to_do(specs: Sequence[Spec], rows: Sequence[Row]) -> tuple[list[int], list[Spec], int]:
    """The rows to keep, the cases that have none among them, and how many of those rows belong to no case.

    Every row stands for one case. A row that is left out failed, or ran out of time, and its case is measured again.
    """
    keys = [key_of_spec(spec) for spec in specs]
    asked = set(keys)
    waiting: dict[_Key, dict[str | None, deque[int]]] = {}  # finished rows by case and variant
    kept: list[int] = []
    strangers = 0
    for place, row in enumerate(rows):
        key = key_of_row(row)
        if key not in asked:
            kept.append(place)
            strangers += 1
        elif is_finished(row):
            waiting.setdefault(key, {}).setdefault(row["variant"], deque()).append(place)
    found: set[int] = set()  # of the cases
    # Cases that name their variant choose first: those that name none take whatever row is left.
    for number, spec in sorted(enumerate(specs), key=lambda numbered: numbered[1].variant is None):
        taken = _taken(waiting.get(keys[number], {}), spec.variant)
        if taken is not None:
            kept.append(taken)
            found.add(number)
    spare = [place for variants in waiting.values() for places in variants.values() for place in places]
    missing = [spec for number, spec in enumerate(specs) if number not in found]
    return sorted(kept + spare), missing, strangers + len(spare)


def is_finished(row: Row) -> bool:
    """Whether a row stands for its case: measured, or never to be."""
    return row["status"] in _FINISHED and not ran_out_of_time(row)


def _taken(variants: dict[str | None, deque[int]], wanted: str | None) -> int | None:
    """The first row that is left, of the variant that is wanted; it is taken away."""
    if wanted is None:
        places = min((found for found in variants.values() if found), key=lambda found: found[0], default=None)
    else:
        places = variants.get(wanted)
    return places.popleft() if places else None


def key_of_spec(spec: Spec) -> _Key:
    """What a case has in common with its row, whichever variant was chosen."""
    lens = registry.lengths_text(spec.kv_lens)
    params = tuple(spec.params.get(name) for name in _param_names(spec.operation))
    lens = lens and schema.clean(lens)
    return schema.clean(spec.case), spec.operation, spec.precision, spec.seed, lens, spec.cache, params


def key_of_row(row: Row) -> _Key:
    """The same of a row."""
    params = tuple(row[name] for name in _param_names(row["operation"]))
    return row["case"], row["operation"], row["precision"], row["seed"], row["kv_lens"], row["cache"], params


@cache
def _param_names(operation: str) -> tuple[str, ...]:
    try:
        return tuple(registry.param_names(operation))
    except ValueError:  # no operation that this bwprof knows
        return ()
