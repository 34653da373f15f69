"""Pictures of results. Functions take `data=` and `ax=`, return the Axes, and never show or change global settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.plot import bars, heatmaps, rooflines, series, stacked, stream_curves
from bwprof.plot.ablations import ablation, save_ablation
from bwprof.plot.bars import comparison, save
from bwprof.plot.canvas import Drawing, check_dpi, check_ending, endings
from bwprof.plot.data import frame_of
from bwprof.plot.heatmaps import heatmap
from bwprof.plot.regressions import ratios, save_ratios, save_trend, trend
from bwprof.plot.rooflines import roofline
from bwprof.plot.series import lines
from bwprof.plot.stacked import model, speedup
from bwprof.plot.stream_curves import ridge, roofs
from bwprof.plot.styles import style
from bwprof.text.parsing import describe_unknown, list_items, parse_path

__all__ = [
    "KINDS",
    "PictureKind",
    "ablation",
    "check_ending",
    "compare",
    "comparison",
    "endings",
    "draw_kinds",
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
class PictureKind:
    """A kind of picture: what it shows, how it is made of results, its options, whether it is of a sweep alone, and
    what it needs.
    """

    text: str
    picture: Callable[..., Drawing]
    options: tuple[str, ...] = ()
    of_a_sweep: bool = False
    needs: str = ""


# What results can be drawn as, by its name.
KINDS = {
    "comparison": PictureKind("effective bandwidth per case and precision, below its roof", bars.picture, ("layout",)),
    "roofline": PictureKind(
        "arithmetic rate over intensity, below measured and theoretical roofs",
        rooflines.picture,
        needs="cases with a time and FLOPs: those here only move bytes, or the file does not tell",
    ),
    "lines": PictureKind(
        "bandwidth, time, ... over a parameter",
        series.picture,
        ("x", "y"),
        of_a_sweep=True,
        needs="one operation over a parameter: bwprof sweep OPERATION -p NAME=1,2,4,8",
    ),
    "heatmap": PictureKind(
        "bandwidth, time, ... over two parameters",
        heatmaps.picture,
        ("x", "y", "value", "precision"),
        of_a_sweep=True,
        needs="one operation over two parameters: bwprof sweep OPERATION -p NAME=1,2,4 -p OTHER=16,32",
    ),
    "speedup": PictureKind(
        "what a narrower precision gains: bytes x bandwidth",
        stacked.speedup_picture,
        ("from_", "to"),
        needs="cases timed in fp32 and in fp16; of other precisions: bwprof plot speedup RUN --from P --to P",
    ),
    "model": PictureKind(
        "a model's time per token by operation",
        stacked.model_picture,
        ("phase",),
        needs="a model's run: bwprof model NAME, and the folder that it writes",
    ),
    "roofs": PictureKind(
        "the device's own streams over size",
        stream_curves.picture,
        needs="a run's folder or .json, measured with roofs (without --no-roofs): a CSV does not hold them",
    ),
    "ridge": PictureKind(
        "ridges of the catalogue by year",
        stream_curves.picture_ridges,
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
        raise ValueError(describe_unknown("kind of picture", str(kind), KINDS))
    each = [targets] if isinstance(targets, (str, os.PathLike)) else list_items(targets, "targets", "files are needed")
    files = [parse_path(target, "targets") for target in each]
    for file in files:
        check_ending(file)
    return KINDS[kind].picture(data, **options).write(files, dpi=check_dpi(dpi, "dpi"), dark=dark)


def draw_kinds(data: Any) -> Iterator[tuple[str, Drawing | str]]:
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
