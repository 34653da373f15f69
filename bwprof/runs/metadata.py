"""What a run writes down about itself: when, where, with what, and the plan that --resume goes on with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bwprof import _core, environment
from bwprof.hardware import Choice
from bwprof.roofs import Given, Roofs
from bwprof.roofs.given import WORDS, check
from bwprof.runs.plan import Plan
from bwprof.text import shown

_CHOICE, _GIVEN = "roofs_choice", "given"


def describe_run(
    run_id: str, plan: Plan, choice: Choice, argv: Sequence[str] | None, roofs: Given = "auto"
) -> dict[str, Any]:
    """The metadata at the start of a run of operations."""
    return (
        describe(run_id, choice, argv)
        | {
            "suite": plan.suite,
            "target_seconds": plan.target_seconds,
            "max_seconds": plan.max_seconds,
            "seed": plan.specs[0].seed,
            "plan": [spec.to_dict() for spec in plan.specs],
        }
        | chosen_roofs(roofs)
    )


def chosen_roofs(given: Given) -> dict[str, Any]:
    """What rows are held against, as `--resume` reads it: `roofs=` of the sweep, and "given" for those that it got."""
    if isinstance(given, Roofs):
        return {_CHOICE: _GIVEN, "roofs": given.to_dict()}
    return {_CHOICE: given}


def earlier_roofs(data: dict[str, Any]) -> Given:
    """The inverse; "auto" for a run of before there was a choice.

    Raises
    ------
    ValueError
        For a word that is none, and given roofs that are damaged.
    """
    found = data.get(_CHOICE, "auto")
    if found == _GIVEN:
        return Roofs.from_dict(data.get("roofs") or {})
    if found is not False and found not in WORDS:
        raise ValueError(f"its {_CHOICE} is {shown(found)}")
    return check(found)


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
        "git_commit": environment.git_commit(),
        "build": dict(_core.build),
        "environment": environment.variables(),
    }
