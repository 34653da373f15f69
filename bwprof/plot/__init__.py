"""Pictures of results. Functions take `data=` and `ax=`, return the Axes, and never show or change global settings."""

from __future__ import annotations

from bwprof.plot.bars import comparison, save, write
from bwprof.plot.ladders import ablation, save_ablation
from bwprof.plot.looks import style
from bwprof.plot.paper import check_ending, endings
from bwprof.plot.ratios import ratios, save_ratios
from bwprof.plot.rooflines import roofline
from bwprof.plot.series import lines
from bwprof.plot.stacks import model, speedup
from bwprof.plot.trends import save_trend, trend

__all__ = [
    "ablation",
    "check_ending",
    "comparison",
    "endings",
    "lines",
    "model",
    "ratios",
    "roofline",
    "save",
    "save_ablation",
    "save_ratios",
    "save_trend",
    "speedup",
    "style",
    "trend",
    "write",
]
