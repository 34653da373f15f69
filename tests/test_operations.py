"""The registry and tests/operations know the same operations, of which each has all that the other tests use."""

from __future__ import annotations

import re

import pytest
from operations import OPERATIONS
from references import REGISTRY


def test_every_operation_has_its_tests() -> None:
    missing, unknown = sorted(set(REGISTRY) - set(OPERATIONS)), sorted(set(OPERATIONS) - set(REGISTRY))
    assert not missing, f"describe {', '.join(missing)} in a module of tests/operations, as its __init__.py says"
    assert not unknown, f"csrc/ops has no {', '.join(unknown)}: remove them from tests/operations"


@pytest.mark.parametrize("name", OPERATIONS)
def test_entries_are_complete(name: str) -> None:
    operation, params = OPERATIONS[name], REGISTRY[name]["params"]
    assert operation.shapes, "shapes is empty"
    assert operation.worked, "worked is empty: calculate bytes and FLOPs by hand"
    known = {p["name"] for p in params}
    assert set(operation.small) <= known, "small names parameters that there are not"
    sizes = {p["name"] for p in params if p["unit"]} - {"page_size"}  # 0: not paged
    assert sizes <= set(operation.small), "small does not name these sizes"
    assert all(re.fullmatch(r"\w+", one) for one in known)
