"""Pictures of results. Functions take `data=` and `ax=`, return the Axes, and never show or change global settings."""

from __future__ import annotations

from bwprof.plot.kinds.bars import comparison, save, write
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
from bwprof.plot.paper import check_ending, endings

compare = ratios

__all__ = [
    "ablation",
    "check_ending",
    "compare",
    "comparison",
    "endings",
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
