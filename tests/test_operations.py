"""The registry and tests/operations know the same operations, of which each has all that the other tests use."""

from __future__ import annotations

import re

import pytest
from operations import OPERATIONS
from references import REGISTRY


def test_every_operation_has_its_tests() -> None:
    assert not set(REGISTRY) - set(OPERATIONS), "tests/operations has no entry for these: add one as its __init__ says"
    assert not set(OPERATIONS) - set(REGISTRY), "csrc/ops has no operation of these names: remove their entries"


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
