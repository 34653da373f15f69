"""Pictures of results. Functions take `data=` and `ax=`, return the axes, and change no global settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature, unwrap
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.plot.bars import comparison, model, save
from bwprof.plot.canvas import Drawing, check_dpi, check_ending, endings
from bwprof.plot.gains import ablation, save_ablation, speedup
from bwprof.plot.inputs import read_frame
from bwprof.plot.regressions import ratios, save_ratios, save_trend, trend
from bwprof.plot.rooflines import roofline
from bwprof.plot.stream_curves import ridge, roofs
from bwprof.plot.styles import style
from bwprof.plot.sweeps import heatmap, lines
from bwprof.text.parsing import describe_unknown, list_items, parse_path

__all__ = ["KINDS", "PictureKind", "ablation", "check_ending", "compare", "comparison", "draw_kinds", "endings"]
__all__ += ["heatmap", "lines", "model", "ratios", "ridge", "roofline", "roofs", "save"]
__all__ += ["save_ablation", "save_ratios", "save_trend", "speedup", "style", "trend", "write"]
compare = ratios


@dataclass(frozen=True, slots=True)
class PictureKind:
    """A kind of picture: the function that draws it, a line on it, and the data that it needs."""

    function: Callable[..., Any]
    text: str
    needs: str = ""
    one_operation: bool = False

    @property
    def picture(self) -> Callable[..., Drawing]:
        """The function that returns the picture."""
        picture: Callable[..., Drawing] = unwrap(self.function)
        return picture

    @property
    def options(self) -> tuple[str, ...]:
        """The function's options."""
        return tuple(signature(self.function).parameters)[2:]


_FLOPS = "cases with a time and FLOPs: those here only move bytes, or the file does not tell"
_ONE = "one operation over a parameter: bwprof sweep OPERATION -p NAME=1,2,4,8"
_TWO = "one operation over two parameters: bwprof sweep OPERATION -p NAME=1,2,4 -p OTHER=16,32"
_BOTH = "cases timed in fp32 and in fp16; of other precisions: bwprof plot speedup RUN --from P --to P"
_MODEL = "a model's run: bwprof model NAME, and the folder that it writes"
_ROOFS = "a run's folder or .json, measured with roofs (without --no-roofs): a CSV does not hold them"
_DEVICE = "a device of the catalog (bwprof predict --devices); the catalog alone: bwprof plot ridge"
KINDS = {
    "comparison": PictureKind(comparison, "effective bandwidth per case and precision, below its roof"),
    "roofline": PictureKind(roofline, "arithmetic rate over intensity, below measured and theoretical roofs", _FLOPS),
    "lines": PictureKind(lines, "bandwidth, time, ... over a parameter", _ONE, one_operation=True),
    "heatmap": PictureKind(heatmap, "bandwidth, time, ... over two parameters", _TWO, one_operation=True),
    "speedup": PictureKind(speedup, "what a narrower precision gains: bytes x bandwidth", _BOTH),
    "model": PictureKind(model, "a model's time per token by operation", _MODEL),
    "roofs": PictureKind(roofs, "the device's measured streams over their sizes", _ROOFS),
    "ridge": PictureKind(ridge, "ridge points of known devices by year", _DEVICE),
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
    """Draw a picture once, and write it to each target in the format of its ending.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        The argument of the kind's function.
    targets : path or list of paths
        The files.
    kind : str
        A name of `KINDS`.
    dpi : int
        Dots per inch, 10 to 2000.
    dark : bool
        Whether the ground is dark.
    **options
        Other arguments of the kind's function.

    Returns
    -------
    list of pathlib.Path
        The targets.

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
    """Yield each kind's name with its picture of the data, or with what it needs."""
    frame = read_frame(data)
    KINDS["comparison"].picture(frame)
    several = frame["operation"].nunique() > 1
    for name, kind in KINDS.items():
        try:
            if kind.one_operation and several:
                raise ValueError
            yield name, kind.picture(frame)
        except ValueError:
            yield name, f"it needs {kind.needs}"
