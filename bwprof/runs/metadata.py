"""What a run writes down about itself: when, where, with what, and the plan that --resume goes on with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bwprof import _core, environment
from bwprof.hardware import Choice
from bwprof.runs.plan import Plan


def describe_run(run_id: str, plan: Plan, choice: Choice, argv: Sequence[str] | None) -> dict[str, Any]:
    """The metadata at the start of a run of operations."""
    return describe(run_id, choice, argv) | {
        "suite": plan.suite,
        "target_seconds": plan.target_seconds,
        "max_seconds": plan.max_seconds,
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
        "host": environment.host(),
        "versions": environment.versions(),
        "build": dict(_core.build),
        "environment": environment.variables(),
    }
