"""Pictures of results. Functions take `data=` and `ax=`, return the Axes, and never show or change global settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.plot.given import frame_of
from bwprof.plot.kinds import bars, curves, grids, rooflines, series, stacks, years
from bwprof.plot.kinds.bars import comparison, save
from bwprof.plot.kinds.curves import roofs
from bwprof.plot.kinds.grids import heatmap
from bwprof.plot.kinds.ladders import ablation, save_ablation
from bwprof.plot.kinds.ratios import ratios, save_ratios
from bwprof.plot.kinds.rooflines import roofline
from bwprof.plot.kinds.series import lines
from bwprof.plot.kinds.stacks import model, speedup
from bwprof.plot.kinds.trends import save_trend, trend
from bwprof.plot.kinds.years import ridge
from bwprof.plot.looks import style
from bwprof.plot.paper import Picture, check_dpi, check_ending, endings
from bwprof.text import listed, path_of, unknown

__all__ = [
    "KINDS",
    "Kind",
    "ablation",
    "check_ending",
    "compare",
    "comparison",
    "endings",
    "fitting",
    "heatmap",
    "lines",
    "model",
    "ratios",
    "ridge",
    "roofline",
    "roofs",
    "save",
    "save_ablation",
    "save_ratios",
    "save_trend",
    "speedup",
    "style",
    "trend",
    "write",
]

compare = ratios


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of picture: what it shows, how it is made of results, its options, whether it is of a sweep alone, and
    what it needs.
    """

    text: str
    picture: Callable[..., Picture]
    options: tuple[str, ...] = ()
    of_a_sweep: bool = False
    needs: str = ""


# What results can be drawn as, by its name.
KINDS = {
    "comparison": Kind("effective bandwidth per case and precision, below its roof", bars.picture, ("layout",)),
    "roofline": Kind(
        "arithmetic rate over intensity, below measured and theoretical roofs",
        rooflines.picture,
        needs="cases with a time and FLOPs: those here only move bytes, or the file does not tell",
    ),
    "lines": Kind(
        "bandwidth, time, ... over a parameter",
        series.picture,
        ("x", "y"),
        of_a_sweep=True,
        needs="one operation over a parameter: bwprof sweep OPERATION -p NAME=1,2,4,8",
    ),
    "heatmap": Kind(
        "bandwidth, time, ... over two parameters",
        grids.picture,
        ("x", "y", "value", "precision"),
        of_a_sweep=True,
        needs="one operation over two parameters: bwprof sweep OPERATION -p NAME=1,2,4 -p OTHER=16,32",
    ),
    "speedup": Kind(
        "what a narrower precision gains: bytes x bandwidth",
        stacks.speedup_picture,
        ("from_", "to"),
        needs="cases timed in fp32 and in fp16; of other precisions: bwprof plot speedup RUN --from P --to P",
    ),
    "model": Kind(
        "a model's time per token by operation",
        stacks.model_picture,
        ("phase",),
        needs="a model's run: bwprof model NAME, and the folder that it writes",
    ),
    "roofs": Kind(
        "the device's own streams over size",
        curves.picture,
        needs="a run's folder or .json, measured with roofs (without --no-roofs): a CSV does not hold them",
    ),
    "ridge": Kind(
        "ridges of the catalogue by year",
        years.picture,
        ("precisions",),
        needs="a device of the catalogue (bwprof predict --devices); the catalogue alone: bwprof plot ridge",
    ),
}


def write(
    data: Any,
    targets: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    kind: str = "comparison",
    dpi: int = 150,
    dark: bool = False,
    **options: Any,
) -> list[Path]:
    """Draw a picture of a kind once and write it to each target, in the format of its ending; returns the targets.

    `options` are those of the kind's function; no window and no global state is touched.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "roofline.svg"
    >>> [path.name for path in write(bwprof.load_example("h200"), [target], kind="roofline", dark=True)]
    ['roofline.svg']
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(unknown("kind of picture", str(kind), KINDS))
    each = [targets] if isinstance(targets, (str, os.PathLike)) else listed(targets, "targets", "files are needed")
    files = [path_of(target, "targets") for target in each]
    for file in files:
        check_ending(file)
    return KINDS[kind].picture(data, **options).write(files, dpi=check_dpi(dpi, "dpi"), dark=dark)


def fitting(data: Any) -> Iterator[tuple[str, Picture | str]]:
    """Every kind, as a picture of what was given, or what it would need.

    Raises
    ------
    TypeError, FileNotFoundError, ValueError
        For what holds no results.
    """
    frame = frame_of(data)
    bars.picture(frame)
    several = frame["operation"].nunique() > 1
    for name, kind in KINDS.items():
        needs = f"it needs {kind.needs}"
        if kind.of_a_sweep and several:
            yield name, needs
            continue
        try:
            yield name, kind.picture(frame)
        except ValueError:
            yield name, needs
