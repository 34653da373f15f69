"""For users of PyTorch: `bwprof.torch.profile`. PyTorch itself is imported when that is called."""

from __future__ import annotations

from bwprof.profiler.torch_modules import profile

__all__ = ["profile"]
