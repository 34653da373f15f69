"""What a run writes down about itself: when, where, with what, and the plan that --resume goes on with."""

from __future__ import annotations

import os
import platform
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bwprof import _core
from bwprof.hardware import Choice
from bwprof.sweep.plan import Plan

# Settings that change what is measured.
_ENVIRONMENT = (
    "NVIDIA_TF32_OVERRIDE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUBLAS_WORKSPACE_CONFIG",
    "OMP_NUM_THREADS",
    "MALLOC_ARENA_MAX",
)


def new_run_id() -> str:
    """Sorts by time, and two runs of one second differ."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def describe_run(run_id: str, plan: Plan, choice: Choice, argv: Sequence[str] | None) -> dict[str, Any]:
    """The metadata at the start of a run of operations."""
    return describe(run_id, choice, argv) | {
        "suite": plan.suite,
        "target_seconds": plan.target_seconds,
        "seed": plan.specs[0].seed,
        "plan": [spec.to_dict() for spec in plan.specs],
    }


def describe(run_id: str, choice: Choice, argv: Sequence[str] | None) -> dict[str, Any]:
    """The metadata of any run at its start; facts and roofs follow when the device is open."""
    return {
        "run_id": run_id,
        "status": "running",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": None,
        "argv": list(argv) if argv is not None else None,
        "backend": choice.backend,
        "device_index": choice.index,
        "device": choice.name,
        "device_reason": choice.reason,
        "host": host(),
        "versions": versions(),
        "build": dict(_core.build),
        "environment": environment(),
    }


def host() -> dict[str, Any]:
    """The machine that the run was on."""
    return {
        "name": platform.node(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": len(os.sched_getaffinity(0)),
    }


def versions() -> dict[str, str]:
    """bwprof, Python, and the packages that are loaded."""
    found = {"bwprof": _core.__version__, "python": platform.python_version()}
    for name in ("numpy", "pandas", "matplotlib"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found


def environment() -> dict[str, str | None]:
    """Environment variables that change what is measured; None where they are not set."""
    return {name: os.environ.get(name) for name in _ENVIRONMENT}
