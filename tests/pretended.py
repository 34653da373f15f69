"""An executor of steps of models whose figures are known, and a model that is small."""

from __future__ import annotations

import json
from typing import Any

from bwprof.measuring.function import Chain
from bwprof.measuring.row import Context, Outcome
from bwprof.roofs.model import Roofs
from bwprof.roofs.obtain import RoofRequest

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
}
ROLES = ["qkv", "kv append", "attention", "o", "gate up", "down", "lm head"]


class Pretended:
    """An executor whose device moves every byte at 100 GB/s; FP8 has no kernel. It remembers what it measured."""

    def __init__(self, *, facts: dict[str, Any] | None = None, roofs: Roofs | None = None) -> None:
        self._facts = {"name": "Test", "memory_bytes": 100_000_000_000, "peak_gb_s": 200.0} | (facts or {})
        self._roofs = roofs
        self._context: Context | None = None
        self.measured: list[Any] = []

    def open(self, _deadline: float | None) -> dict[str, Any]:
        return dict(self._facts)

    def obtain_roofs(self, _wanted: RoofRequest, _deadline: float | None) -> Roofs | None:
        return self._roofs

    def set_context(self, context: Context) -> None:
        self._context = context

    def measure(self, spec: Any, _max_seconds: float, _deadline: float | None) -> Outcome:
        assert self._context is not None
        self.measured.append(spec)
        row = spec.blank_row(self._context)
        if isinstance(spec, Chain):
            assert Chain.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
        moved = row["bytes_read"] + row["bytes_written"]
        row.update(
            status="ok",
            variant="v",
            time_ms=moved / 1e8,
            time_ms_lo=moved / 1e8,
            time_ms_hi=moved / 1e8,
            bandwidth_gb_s=100.0,
            peak_gb_s=200.0,
            pct_attainable=80.0,
            pct_limit=80.0,
            limiter="memory",
            tflops=row["flops"] / moved / 10,
            bound="memory",
            flags="",
        )
        return Outcome(row, [moved * 10.0])

    def close(self) -> None:
        pass
