"""Noisy neighbours: what is seen of them on a CPU, and which rows are flagged for it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import bwprof
from bwprof import _core
from bwprof.results.difference import comparable
from bwprof.results.schema import empty_row
from bwprof.sweep import measure as measuring

QUIET = {"waited_share": 0.006, "stolen_share": 0.0, "late_samples": 1, "count": 20}


@pytest.fixture
def crowded_cpu() -> Iterator[int]:
    """A process that never rests, on the last CPU that the tests may use."""
    cpu = max(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, [{cpu}]); print('on', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield cpu
        other.kill()


def test_a_crowded_cpu_is_seen_and_flagged(crowded_cpu: int) -> None:
    """Two on one CPU have half of it each; a fifth is enough to be sure."""
    with _core.Device("cpu") as device, _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 20}) as case:
        measured = case.measure(cache="hot", max_seconds=0.5, precision_target=1e-9)
    if math.isnan(measured["waited_share"]):
        pytest.skip("this system does not tell how long threads wait (/proc/self/task/*/schedstat)")
    assert 0.2 < measured["waited_share"] < 1.1
    row = bwprof.sweep("stream_copy", elements=1 << 24, precision="fp32", backend="cpu", cache="hot", roofs=False).iloc[
        0
    ]
    assert "noisy" in row["flags"].split(";")
    assert "waited for a CPU" in row["reason"]


@pytest.mark.parametrize(
    ("found", "spread", "said"),
    [
        ({}, 0.05, ""),
        ({"waited_share": math.nan, "stolen_share": math.nan}, 0.09, ""),  # a GPU's
        ({}, 0.12, "wide spread: half of the samples lie 12% apart"),
        ({"waited_share": 0.03}, 0.01, "threads waited for a CPU 3% of the time"),
        ({"late_samples": 3}, 0.01, "in 3 of 20 samples the GPU waited for the host"),
        ({"stolen_share": 0.3}, 0.01, "the hypervisor took the CPUs 30% of the time"),
    ],
)
def test_what_makes_a_row_noisy(found: dict[str, Any], spread: float, said: str) -> None:
    row = empty_row() | {"noise": spread}
    assert said in "; ".join(measuring._disturbances(row, QUIET | found))
    assert bool(said) == bool(measuring._disturbances(row, QUIET | found))


def test_disturbed_rows_are_not_compared() -> None:
    for flags, expected in [
        ("", True),
        (None, True),
        ("not_converged", True),
        ("noisy;x", False),
        ("throttled", False),
    ]:
        assert comparable({"status": "ok", "flags": flags}) is expected
    assert not comparable({"status": "failed", "flags": ""})


def test_threads_that_outnumber_the_cpus_wait_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWPROF_CPU_THREADS", str(2 * len(os.sched_getaffinity(0))))
    with _core.Device("cpu") as device, _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 16}) as case:
        assert math.isnan(case.measure(cache="hot", max_seconds=0.05)["waited_share"])
        assert f"threads pinned to {len(os.sched_getaffinity(0))} CPUs; pages of" in device.facts()["note"]
