"""Measuring rows again for a comparison."""

from __future__ import annotations

from dataclasses import replace

from test_compare import timed
from toy_roofs import ROOFS

import bwprof
from bwprof import _core
from bwprof.runs import progress, remeasure
from bwprof.runs.executors import LocalExecutor


def _never(*_: object) -> LocalExecutor:
    raise AssertionError("no device is opened")


def test_functions_and_unknown_cases_are_not_measured_again() -> None:
    own = timed("f", 1.0, operation="my_function", device=bwprof.devices()["cpu:0"]["name"])
    (reason,) = remeasure.measure_again([own], {}, _never, progress.SilentProgress())
    assert isinstance(reason, str)
    assert "my_function" in reason
    other = own | {"operation": "gemm", "precision": "fp99"}
    (reason,) = remeasure.measure_again([other], {}, _never, progress.SilentProgress())
    assert isinstance(reason, str)
    assert "gemm" in reason
    assert remeasure.measure_again([own | {"status": "failed"}], {}, _never, progress.SilentProgress()) == [
        "it is failed"
    ]


def test_a_device_of_another_host_is_not_measured() -> None:
    device = bwprof.devices()["cpu:0"]
    row = timed("a", 1.0, device=device["name"], variant="naive", hostname="elsewhere")
    (reason,) = remeasure.measure_again([row], {}, LocalExecutor, progress.SilentProgress())
    assert isinstance(reason, str)
    assert device["name"] in reason


def test_a_row_is_measured_again_with_its_options_and_roofs(cpu: _core.Device) -> None:
    facts = cpu.facts()
    roofs = replace(ROOFS, device=facts["name"], device_uuid=facts["uuid"], driver=facts["driver"])
    with bwprof.Case("stream_copy", elements=1 << 12, precision="fp16", seed=7, backend="cpu") as case:
        row = case.measure(roofs=roofs, max_seconds=0.01, rel_ci=0.5)
    run = {"max_seconds": 0.01, "rel_ci": 0.5}
    (found,) = remeasure.measure_again([row], run, LocalExecutor, progress.SilentProgress(), roofs=roofs)
    assert not isinstance(found, str)
    same = ("case", "operation", "precision", "seed", "variant", "timer", "cache", "bytes_read", "attainable_gb_s")
    assert [found[name] for name in same] == [row[name] for name in same]
    assert found.attainable_gb_s > 0
    assert len(found.samples_ns) == found.samples
    (bare,) = remeasure.measure_again([row], run, LocalExecutor, progress.SilentProgress())
    assert not isinstance(bare, str)
    assert bare.attainable_gb_s is None
