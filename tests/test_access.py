"""Access patterns: the useful share of the moved bytes, and its source."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bwprof
from bwprof import AccessPattern
from bwprof.analysis.bottleneck import bottlenecks, find_cliffs


@pytest.mark.parametrize(
    ("element_bytes", "by_stride"),
    [
        (4, {1: 1.0, 2: 0.5, 4: 0.25, 8: 0.125, 9: 0.125, 128: 0.125}),
        (2, {1: 1.0, 2: 0.5, 8: 0.125, 16: 0.0625, 128: 0.0625}),
        (16, {1: 1.0, 2: 0.5, 4: 0.5}),
        (64, {1: 1.0, 4: 1.0}),
    ],
)
def test_sectors_of_a_gpu(element_bytes: int, by_stride: dict[int, float]) -> None:
    for stride, share in by_stride.items():
        found = AccessPattern.STRIDED.expected_efficiency(stride, element_bytes, "cuda:0")
        assert (found, found.source) == (share, "sector model")


def test_lines_of_a_cpu() -> None:
    shares = [AccessPattern.STRIDED.expected_efficiency(stride, 4, "cpu") for stride in (1, 8, 16, 128)]
    assert shares == [1.0, 0.125, 0.0625, 0.0625]
    assert AccessPattern.MISALIGNED.expected_efficiency(device="cpu") == 1.0


@pytest.mark.parametrize(
    ("pattern", "share", "source"),
    [
        ("sequential", 1.0, "sector model"),
        ("coalesced", 1.0, "sector model"),
        ("strided:8", 0.125, "sector model"),
        ("broadcast", 0.125, "sector model"),
        ("misaligned", 0.8, "sector model"),  # 128 bytes in 5 sectors of 32
        ("uncoalesced", 0.40, "table"),
        ("random", 0.20, "table"),
    ],
)
def test_source_of_an_efficiency(pattern: str, share: float, source: str) -> None:
    found = AccessPattern.parse(pattern).expected_efficiency()
    assert (found, found.source) == (share, source)
    assert repr(found) == f"{share:.4g} ({source})"
    assert pickle.loads(pickle.dumps(found)).source == source


@pytest.mark.parametrize(
    ("pattern", "stride", "share"),
    [
        ("sequential", 1, 0.95),
        ("coalesced", 1, 0.90),
        ("strided", 8, 0.75),
        ("strided", 9, 0.50),
        ("strided", 32, 0.50),
        ("strided", 33, 0.30),
        ("uncoalesced", 1, 0.40),
        ("random", 1, 0.20),
    ],
)
def test_efficiencies_of_the_table(pattern: str, stride: int, share: float) -> None:
    assert AccessPattern(pattern).expected_efficiency(stride, source="table") == share


def test_measurements_come_first() -> None:
    measured = pd.DataFrame(
        {
            "pattern": ["strided", "strided", "strided", "random"],
            "stride": [128, 128, 2, 1],
            "element_bytes": [4, 4, 4, 4],
            "load_efficiency": [13.0, 15.0, 49.0, 12.5],
            "device": ["NVIDIA H200", "NVIDIA H100", "NVIDIA H200", "NVIDIA H200"],
        }
    )
    strided = AccessPattern.parse("strided:128")
    found = strided.expected_efficiency(measured=measured, device="NVIDIA H200")
    assert (found, found.source) == (0.13, "measured")
    assert strided.expected_efficiency(measured=measured) == pytest.approx(0.14)
    assert strided.expected_efficiency(measured=measured, element_bytes=2).source == "sector model"
    assert AccessPattern.RANDOM.expected_efficiency(measured=measured) == 0.125
    assert AccessPattern.COALESCED.expected_efficiency(measured=measured).source == "sector model"
    with pytest.raises(ValueError, match=r"^measured .*pattern .*load_efficiency"):
        strided.expected_efficiency(measured=measured.drop(columns="pattern"))


def test_a_run_of_the_access_suite_is_a_measurement() -> None:
    """Cold reads count, by their parameters; a granule is an element of a random pattern."""
    rows = [
        ("strided_read", "fp32", {"stride": 1}, 97.0),
        ("strided_read", "fp32", {"stride": 128}, 6.0),
        ("strided_read", "fp32", {"stride": 128, "cache": "hot"}, 60.0),
        ("strided_read", "fp32", {"stride": 128, "status": "failed"}, 70.0),
        ("strided_read", "fp16", {"stride": 128}, 3.0),
        ("strided_read", "fp32", {"stride": 128, "backend": "cpu"}, 2.0),
        ("strided_write", "fp32", {"stride": 128, "bytes_written": 100}, 1.0),
        ("strided_read", "fp32", {"stride": 1, "offset": 1}, 96.0),
        ("strided_read", "fp32", {"stride": 1, "readers": 32}, 25.0),
        ("random_read", "fp32", {"granule_bytes": 32}, 40.0),
        ("random_read", "fp32", {"granule_bytes": 4}, 5.0),
        ("gemm", "fp32", {}, 90.0),
    ]
    same = {"backend": "cuda", "status": "ok", "cache": "cold", "bytes_written": 0, "granule_bytes": None}
    run = pd.DataFrame(
        [
            {"operation": name, "precision": precision, **same, **own, "pct_ceiling": share}
            for name, precision, own, share in rows
        ]
    )

    def found(pattern: str, element_bytes: int = 4, device: str = "cuda:0") -> tuple[float, str]:
        share = AccessPattern.parse(pattern).expected_efficiency(
            element_bytes=element_bytes, device=device, measured=run
        )
        return float(share), share.source

    assert found("strided:128") == (0.06, "measured")
    assert found("strided:128", 2) == (0.03, "measured")
    assert found("strided:128", device="cpu") == (0.02, "measured")
    assert found("strided:64") == (0.125, "sector model")
    assert found("sequential") == found("coalesced") == (0.97, "measured")
    assert found("misaligned") == (0.96, "measured")
    assert found("broadcast") == (0.25, "measured")
    assert found("random", 32) == (0.4, "measured")
    assert found("random") == found("uncoalesced") == (0.05, "measured")
    assert found("random", 8) == (0.2, "table")
    with pytest.raises(ValueError, match="pattern"):
        AccessPattern.STRIDED.expected_efficiency(measured=run.drop(columns="granule_bytes"))


@pytest.mark.parametrize("wrong", [int, np.array([1, 2]), 1.5, "2"])
def test_a_stride_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        AccessPattern.STRIDED.expected_efficiency(stride=wrong)


def test_names() -> None:
    assert [pattern.name for pattern in AccessPattern] == [
        "SEQUENTIAL",
        "COALESCED",
        "STRIDED",
        "UNCOALESCED",
        "RANDOM",
        "BROADCAST",
        "MISALIGNED",
    ]
    for pattern in AccessPattern:
        assert AccessPattern.parse(f" {pattern.name} ") is pattern
        assert AccessPattern.parse(pattern) is pattern
        assert pattern.stride is None
        assert len(pattern.description) > 20


def test_a_pattern_with_a_stride() -> None:
    found = AccessPattern.parse("Strided:4Ki")
    assert (found.stride, found.name, found.value) == (4096, "STRIDED", "strided:4096")
    assert "4096 elements" in found.description
    assert found == AccessPattern.STRIDED
    assert found != AccessPattern.parse("strided:2")
    assert found != AccessPattern.RANDOM
    assert hash(found) == hash(AccessPattern.STRIDED)
    assert found != "strided:4096"
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), AccessPattern("strided:4096")):
        assert (again, again.stride) == (found, 4096)
    assert found.expected_efficiency(stride=2) == 0.5  # what is asked for comes first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coalesed", "unknown access pattern 'coalesed': did you mean 'coalesced'"),
        ("strided:0", "stride is 0: a whole number from 1 is needed"),
        ("strided:-4", "stride is -4"),
        ("strided:", "stride: '' is not a whole number"),
        ("strided:x", "stride: 'x' is not a whole number"),
        ("random:4", "only strided takes a stride"),
        ("", "unknown access pattern ''"),
    ],
)
def test_unknown_patterns_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AccessPattern.parse(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stride": 0}, "stride is 0: a whole number from 1"),
        ({"stride": 1.5}, "stride is 1.5"),
        ({"stride": True}, "stride is True"),
        ({"element_bytes": 0}, "element_bytes is 0"),
        ({"source": "guess"}, "unknown source 'guess'.*Allowed: measured, sector model, table"),
        ({"source": "measured"}, "does not know the pattern coalesced"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AccessPattern.COALESCED.expected_efficiency(**arguments)


def test_no_advice_to_fuse_an_access_pattern() -> None:
    """Unused parts of sectors are no intermediates; half of the work is 50 % less."""
    run = bwprof.load("h200_access")
    assert (run["algorithmic_bytes_read"] > 1.5 * run["bytes_read"]).sum() > 10
    found = bottlenecks(run, top=100)
    assert len(found) > 5
    assert not found["Fix"].str.contains("fuse").any()
    assert any("50 % less work" in cliff.text for cliff in find_cliffs(run))
