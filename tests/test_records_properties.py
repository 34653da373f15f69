"""Baselines, bundles, keys and file names under generated input."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rows import row

import bwprof
from bwprof.records import baselines, keys
from bwprof.records.baselines import check_file_name
from bwprof.results import schema

PLAIN = set(string.ascii_letters + string.digits + "._-")
times = st.floats(1e-9, 1e9, allow_nan=False)
texts = st.text(max_size=30)
rows = st.builds(
    lambda case, precision, variant, time, more: schema.normalize_row(
        row(case or "case", precision, variant=variant, time_ms=time, timer="graph") | more
    ),
    case=texts,
    precision=st.sampled_from(["fp32", "fp16", "", "mine"]),
    variant=st.one_of(st.none(), texts),
    time=times,
    more=st.fixed_dictionaries(
        {},
        optional={
            "M": st.integers(0, 2**63 - 1),
            "reason": texts,
            "verified": st.booleans(),
            "label": st.one_of(st.none(), texts, st.integers(), st.floats(allow_nan=False), st.booleans()),
            "flags": st.sampled_from(["", "noisy", "throttled;noisy"]),
        },
    ),
)
samples = st.one_of(st.none(), st.lists(st.integers(0, 2**40).map(lambda number: number / 8), max_size=5))
runs = st.lists(st.lists(st.tuples(rows, samples), min_size=1, max_size=4), min_size=1, max_size=3)


def made(run_lists: list[list[tuple[Any, Any]]]) -> baselines.Baseline:
    parts = [
        ([one for one, _ in run], [values for _, values in run], {"run_id": f"r{number}"})
        for number, run in enumerate(run_lists)
    ]
    return baselines.make_baseline("b", parts)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(runs)
def test_a_baseline_comes_back_whatever_its_rows_hold(run_lists: list[list[tuple[Any, Any]]]) -> None:
    written = made(run_lists)
    with tempfile.TemporaryDirectory() as folder:
        baselines.write_baseline(written, folder=folder)
        found = baselines.load_baseline("b", folder=folder)
    assert baselines.format_baseline(found) == baselines.format_baseline(written)
    for one, other in zip(found.cases, written.cases, strict=True):
        assert one.samples == other.samples
        assert [r["time_ms"] for r in one.rows] == [r["time_ms"] for r in other.rows]
        assert [keys.case_key(r) for r in one.rows] == [keys.case_key(r) for r in other.rows]
    assert sum(len(stored.rows) for stored in found.cases) == sum(map(len, run_lists)), "no row is lost"


@settings(max_examples=20, deadline=None, derandomize=True)
@given(runs, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(run_lists: list[list[tuple[Any, Any]]], chance: Any) -> None:
    """Rows that only their order distinguishes are left out."""
    unique = [list({keys.case_key(one): (one, values) for one, values in run}.values()) for run in run_lists]
    mixed = [chance.sample(run, len(run)) for run in unique]
    assert baselines.format_baseline(made(mixed)) == baselines.format_baseline(made(unique))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(rows, max_size=5), st.lists(rows, max_size=5))
def test_keys_are_unique_and_mutual(one: list[Any], other: list[Any]) -> None:
    ours, theirs = keys.unique_keys(one, other)
    assert len(set(ours)) == len(one)
    assert len(set(theirs)) == len(other)
    assert keys.unique_keys(other, one) == [theirs, ours]
    for result, found in zip(ours, one, strict=True):
        for their_key, theirs_found in zip(theirs, other, strict=True):
            assert result != their_key or keys.case_key(found) == keys.case_key(theirs_found)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(times, times, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), texts, texts)
def test_a_report_comes_back(time: float, speed: float, read: int, written: int, case: str, device: str) -> None:
    report = bwprof.BandwidthReport("gemm", "fp16", time, speed, read, written, case=case, device=device, verified=True)
    with tempfile.TemporaryDirectory() as root:
        path = report.save_to_proof_bundle("run", root)
        (found,) = bwprof.rows(bwprof.load(path))
    assert (found.time_ms, found.bandwidth_gb_s, found.bytes_read, found.bytes_written) == (time, speed, read, written)
    assert (found.precision, found.verified) == ("fp16", True)
    assert found.case == (schema.clean_text(case) or "gemm")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(st.text(max_size=140), st.text(alphabet=sorted(PLAIN | {"/"}), max_size=140)))
def test_only_plain_names_are_allowed(name: str) -> None:
    allowed = 1 <= len(name) <= 128 and set(name) <= PLAIN and not name.startswith(".")
    try:
        assert check_file_name(name, "run_id") == name
    except ValueError:
        assert not allowed
    else:
        assert allowed
        assert (Path("/root") / name).resolve() == Path("/root", name)
