"""Which rows of two sides belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bwprof.records.baseline import Kept
from bwprof.records.comparing.distributions import fits_time
from bwprof.records.keys import Key, bare, keys_of, loose
from bwprof.records.sides import Side
from bwprof.results import schema
from bwprof.results.schema import Row


@dataclass(frozen=True, slots=True)
class Pair:
    """A case: its row on each side, None where a side lacks it; of the processes behind each the medians, ms, and the
    samples, ns, that belong to them.

    `others`: where a side lacks it, the variants of the same case there that nothing belongs to.
    """

    base: Row | None
    new: Row | None
    base_ms: tuple[float, ...] = ()
    new_ms: tuple[float, ...] = ()
    base_ns: tuple[Sequence[float], ...] = ()
    new_ns: tuple[Sequence[float], ...] = ()
    others: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        """The row that says which case it is."""
        found = self.new if self.new is not None else self.base
        assert found is not None
        return found


def join(base: Side, new: Side) -> list[Pair]:
    """The cases of two sides, in the base's order, then what only the new side has.

    Rows with the same key are a pair. Of what is left, a row of another variant is, where each side has just one of the
    case; then the same variant on another device, backend or timer; at last another one there, of which there is one.
    """
    base_keys, new_keys = keys_of(base.rows, new.rows)
    place_of = {told: place for place, told in enumerate(new_keys)}
    partner: dict[int, int] = {}
    for place, told in enumerate(base_keys):
        if told in place_of:
            partner[place] = place_of[told]
    _join_rest(base, new, partner, loose, only_single=True)
    _join_rest(base, new, partner, _bare_variant, only_single=False)
    _join_rest(base, new, partner, bare, only_single=True)
    taken = set(partner.values())
    found = [_pair(base, place, new, partner.get(place)) for place in range(len(base.rows))]
    found += [_pair(base, None, new, place) for place in range(len(new.rows)) if place not in taken]
    return _with_others(found)


def _with_others(pairs: list[Pair]) -> list[Pair]:
    """What one side lacks, with the variants of the same case that the other one lacks."""
    single = [pair for pair in pairs if pair.base is None or pair.new is None]
    found: dict[tuple[bool, Key], list[str]] = {}
    for pair in single:
        found.setdefault((pair.base is None, loose(pair.row)), []).append(str(pair.row.get("variant") or "unnamed"))
    if len({of_new for of_new, _ in found}) < 2:
        return pairs
    return [
        replace(pair, others=tuple(found.get((pair.base is not None, loose(pair.row)), ())))
        if pair.base is None or pair.new is None
        else pair
        for pair in pairs
    ]


def _bare_variant(row: Row) -> Key:
    return (*bare(row), row.get("variant"))


def _join_rest(base: Side, new: Side, partner: dict[int, int], key: Callable[[Row], Key], *, only_single: bool) -> None:
    """Pairs of what has no partner yet, by another key; in order, or only where there is no choice."""
    taken = set(partner.values())
    open_base = [place for place in range(len(base.rows)) if place not in partner]
    open_new = [place for place in range(len(new.rows)) if place not in taken]
    if not open_base or not open_new:
        return
    told = [[key(row) for row in one.rows] for one in (base, new)]
    # A function that was swept has rows that its arguments tell apart, which are the caller's own columns.
    unclear = {found for keys in told for found, count in Counter(keys).items() if count > 1}
    own = sorted(set(schema.more_names(base.rows)) & set(schema.more_names(new.rows)))

    def grouped(side: Side, keys: list[Key], places: list[int]) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for place in places:
            labels = tuple(str(side.rows[place].get(name)) for name in own) if keys[place] in unclear else ()
            found.setdefault((*keys[place], *labels), []).append(place)
        return found

    right = grouped(new, told[1], open_new)
    for one, places in grouped(base, told[0], open_base).items():
        others = right.get(one, [])
        if not only_single or len(places) == len(others) == 1:
            partner.update(zip(places, others, strict=False))


def _pair(base: Side, place: int | None, new: Side, other: int | None) -> Pair:
    return Pair(
        None if place is None else base.rows[place],
        None if other is None else new.rows[other],
        () if place is None or not base.learnt else base.learnt[place],
        () if other is None or not new.learnt else new.learnt[other],
        _samples(base, place),
        _samples(new, other),
    )


def _samples(side: Side, place: int | None) -> tuple[Sequence[float], ...]:
    """Those of each process that counts; none where they are not known, or are those of another measurement."""
    if place is None or not side.samples:
        return ()
    kept = side.cases[place] if side.cases else Kept((side.rows[place],), (side.samples[place],))
    found: dict[object, Sequence[float]] = {}
    for number in kept.timed:
        samples, time = kept.samples[number], kept.rows[number]["time_ms"]
        if samples is not None and fits_time(samples, time):
            found.setdefault(kept.process(number), samples)
    return tuple(found.values())
