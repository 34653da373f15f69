"""Hypotheses of how a kernel is launched: too few warps on a multiprocessor, too few blocks, too many barriers."""

from __future__ import annotations

import math

from bwprof.analysis.causes.rules import rule
from bwprof.analysis.diagnosis.figures import Figures, ratio
from bwprof.analysis.diagnosis.judging import (
    REFUTED,
    STALLS,
    SUPPORTED,
    Band,
    Judgement,
    Need,
    at_part,
    at_roof,
    refuted,
    supported,
    untold,
    without,
)
from bwprof.analysis.diagnosis.limits import compute_bound, memory_bound

OCCUPANCY = rule("low_occupancy").threshold  # percent
HIDDEN = 20.0  # percent of the stalls that are warps ready to issue: from here on more warps would find no turn
TAIL = 0.2  # of the rounds that blocks take, empty
UNEVEN = Band(1.5, 1.1)  # busiest over mean multiprocessor
BARRIERS = Band(30.0, 15.0)  # percent of the stalls
_RESOURCES = {
    "registers": "registers",
    "shared": "shared memory",
    "threads": "the size of its blocks",
    "warps": "the size of its blocks",
    "blocks": "the number of blocks that fit",
}
_GRID = Need("waves", "--metrics sm", "full")
_RESIDENT = Need("theoretical_occupancy_pct, occupancy_limiter", "bwprof variants", "full")


def low_occupancy(figures: Figures) -> Judgement:
    """Few warps are resident, resources are why, and warps wait as if there were too few of them."""
    found, could = figures.number("occupancy_pct"), figures.theoretical_pct
    if math.isnan(found):
        return untold("occupancy was not counted", Need("occupancy_pct", "--metrics occupancy", "compute"))
    said = f"occupancy {found:.3g} %"
    if found >= OCCUPANCY:
        return refuted(said)
    near = at_roof(figures)
    if near:
        return refuted(f"{said}, which does not matter: {near}")
    if at_part(figures):
        return refuted(f"{said}, which does not matter: {at_part(figures)}")
    ready = figures.waiting("not_selected")
    if ready >= HIDDEN:
        return refuted(f"{said}, which does not matter: {ready:.0f} % of the waiting warps are ready to issue")
    if math.isnan(could):
        return untold(f"{said}; whether its resources or its grid hold it down is not known", _RESIDENT)
    if could >= OCCUPANCY:
        return refuted(f"{said} of {could:.3g} % that its resources allow: the grid or its tail holds it down")
    said = f"{said} of at most {could:.3g} %, limited by {_RESOURCES.get(figures.limiter, 'resources')}"
    if figures.waves < 1:
        return refuted(f"{said}, but its grid does not fill even that ({figures.waves:.2g} waves)")
    if math.isnan(ready):
        return untold(said, STALLS)
    unknown = [found for found in (compute_bound(figures), memory_bound(figures)) if found.verdict != REFUTED]
    if unknown:
        needs = dict.fromkeys(need for found in unknown for need in found.needs)
        return untold(f"{said}; it may be near a roof, where that does not matter", *needs)
    return supported(said, figures.bounded(ratio(100.0, found)))


def small_grid(figures: Figures) -> Judgement:
    """Fewer blocks than the device holds at once, or a last round that leaves most of it idle."""
    waves = figures.waves if figures.waves > 0 else math.nan
    blocks, units = figures.number("blocks"), figures.units
    near = at_roof(figures)
    if math.isnan(waves) and not blocks < units:
        return _by_units(figures, near)
    said = f"{waves:.3g} waves" if not math.isnan(waves) else f"{blocks:.0f} blocks"
    if blocks < units:
        said = f"{blocks:.0f} {'block' if blocks == 1 else 'blocks'} for {units:.0f} multiprocessors"
    if near:
        return refuted(f"{said}; {near}")
    if blocks < units:
        return supported(said, figures.bounded(ratio(units, blocks)))
    rounds = math.ceil(waves)
    empty = (rounds - waves) / rounds
    if empty > TAIL and rounds == 1:
        return supported(f"{said}: the device could hold more blocks", figures.bounded(ratio(1.0, waves)))
    if empty > TAIL:
        return supported(f"{said}: {100 * empty:.0f} % of {rounds} rounds are empty", figures.bounded(rounds / waves))
    return refuted(said)


def _by_units(figures: Figures, near: str) -> Judgement:
    """Without the grid: how unevenly multiprocessors were busy."""
    uneven = figures.number("sm_cycles_ratio")
    verdict = UNEVEN.place(uneven)
    said = f"the busiest multiprocessor worked {uneven:.3g} times as long as the mean"
    if near:
        return refuted(near)
    if verdict == SUPPORTED:
        return supported(said, figures.bounded(uneven))
    return refuted(said) if verdict == REFUTED else untold("its grid is not known", _GRID)


def barriers(figures: Figures) -> Judgement:
    """Warps wait for each other."""
    share = figures.waiting("barrier", "membar")
    if math.isnan(share):
        return untold("what warps wait for was not counted", STALLS)
    said = f"{share:.0f} % of the stalls are barriers and fences"
    near = at_roof(figures)
    if near:
        return refuted(f"{said}; {near}")
    verdict = BARRIERS.place(share)
    if verdict == SUPPORTED:
        return supported(said, figures.bounded(without(share)))
    return refuted(said) if verdict == REFUTED else untold(said)
