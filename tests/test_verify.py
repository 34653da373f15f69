"""Case.verify: interruptions and budgets. What it finds: test_mutations.py and tests/native/check_verify.c."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from bwprof import _core

# 2 048 reference rows of a megabyte of inputs each: seconds of work.
LONG = {"batch": 1, "seq_len": 256, "kv_len": 8192, "num_heads": 8, "num_kv_heads": 8, "head_dim": 64}


@pytest.fixture
def long_case() -> Iterator[Any]:
    with _core.Device("cpu") as device, _core.Case(device, "attention_prefill", "fp16", LONG) as case:
        yield case


def interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def verify_with_a_signal(case: Any) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    case.verify(budget_s=600)


def test_a_signal_ends_a_verification(long_case):
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            verify_with_a_signal(long_case)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    after = long_case.verify(budget_s=0)
    assert after["verified"]
    assert after["rows_checked"] < after["rows_total"] == 2048, "every row was worked out before the signal was served"


def test_a_signal_ends_the_verification_of_a_measurement(long_case):
    """The caller's own function is asked between rows, too: before the first, and the case is not even warmed up."""
    requested = []

    def stop() -> None:
        requested.append(True)
        raise LookupError("stop")

    with pytest.raises(LookupError, match="stop"):
        long_case.measure(verify_budget_s=600, poll=stop)
    assert requested == [True]
    assert long_case.verify(budget_s=0)["rows_checked"] == 4  # corners alone


def test_a_larger_budget_checks_more_rows_and_a_smaller_one_no_fewer():
    params = {"M": 3, "N": 160, "K": 64}
    with _core.Device("cpu") as device, _core.Case(device, "gemm", "fp32", params) as case:
        assert case.verify(budget_s=0)["rows_checked"] == 4
        assert case.verify(budget_s=20)["rows_checked"] == 30
        assert case.verify(budget_s=0)["rows_checked"] == 30
        with pytest.raises(ValueError, match="budget_s = -1"):
            case.verify(budget_s=-1)
