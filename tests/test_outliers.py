"""Which of several devices is slow: worked out by hand on rows made by hand."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rows import row

import bwprof
from bwprof.cli import main
from bwprof.results import frame

CASES = {"gemm": ("a", "b", "c"), "stream_read": ("r",)}


def device(name: str, factor: float = 1.0, operations: str = "", spread: float = 0.002, **more: Any) -> pd.DataFrame:
    """A run of one device; `factor` times as slow as 1 us in those `operations`, everywhere when none is named."""
    rows = []
    for operation, cases in CASES.items():
        time = 1e-3 * (factor if operations in ("", operation) else 1.0)
        for case in cases:
            times = {"time_ms": time, "time_ms_lo": time * (1 - spread), "time_ms_hi": time * (1 + spread)}
            told = {"operation": operation, "hostname": "n1", "device_uuid": name, "run_id": f"run of {name}"}
            rows.append(row(case, "fp32", **times, **told | more))
    return frame.from_rows(rows)


def verdicts(found: pd.DataFrame) -> dict[tuple[str, str], str]:
    return {
        (line["device_uuid"], line["operation"]): line["verdict"]
        for line in found.to_dict(orient="records")  # type: ignore[misc]
    }


def test_one_slow_device_in_one_operation() -> None:
    found = bwprof.outliers([device("A"), device("B", 1.01), device("C", 1.10, "gemm"), device("D", 0.99)])
    assert verdicts(found) == {
        **{(name, operation): "same" for name in "ABCD" for operation in CASES},
        ("C", "gemm"): "slow",
    }
    first = found.iloc[0]
    assert (first["device_uuid"], first["hostname"], first["operation"]) == ("C", "n1", "gemm")
    assert (first["devices"], first["cases"], first["slower"], first["faster"], first["failed"]) == (4, 3, 3, 0, 0)
    middle = (1.0 + 1.01) / 2  # of 0.99, 1, 1.01 and 1.10
    assert first["slow_pct"] == pytest.approx(100 * (1.10 / middle - 1))
    assert first["worst_pct"] == pytest.approx(first["slow_pct"])
    assert first["worst_case"] == "a fp32"
    assert first["reason"] == "slower than the median of 4 devices in 3 of 3 cases"


def test_variants_of_a_case_count_each() -> None:
    """Of one case +10 and +20 %: a median of +15 %."""
    runs = []
    for name, factors in (("A", (1.0, 1.0)), ("B", (1.0, 1.0)), ("C", (1.1, 1.2))):
        both = [device(name, factor, variant=word) for word, factor in zip(("flash", "unfused"), factors, strict=True)]
        runs.append(pd.concat([one[one["case"] == "r"] for one in both]))
    found = bwprof.outliers(runs).iloc[0]
    assert (found["device_uuid"], found["cases"], found["slower"]) == ("C", 2, 2)
    assert found["slow_pct"] == pytest.approx(15.0)
    assert (found["worst_pct"], found["worst_case"]) == (pytest.approx(20.0), "r fp32 unfused cold")


def test_one_frame_of_several_devices_is_the_same() -> None:
    parts = [device("A"), device("B"), device("C", 1.2)]
    whole = pd.concat([part.assign(run_id="one") for part in parts])
    pd.testing.assert_frame_equal(bwprof.outliers(whole), bwprof.outliers(parts))


@pytest.mark.parametrize("parts", [[device("A")], [device("A"), device("B", 2.0)]])
def test_of_two_that_differ_nobody_knows_which_is_slow(parts: list[pd.DataFrame]) -> None:
    found = bwprof.outliers(parts)
    assert set(found["verdict"]) == {"undecided"}
    assert found["reason"].str.contains(": 3 are needed to tell which is slow").all()
    assert found["slower"].sum() == (4 if len(parts) == 2 else 0), "that they differ is said"


def test_two_of_another_kind_do_not_count() -> None:
    found = bwprof.outliers([device("A"), device("B"), device("C", 3.0, device="Other CPU")])
    assert set(found["verdict"]) == {"undecided"}


def test_intervals_that_overlap_and_differences_below_the_gate_are_the_same() -> None:
    wide = bwprof.outliers([device("A"), device("B"), device("C", 1.10, spread=0.2)])
    assert set(wide["verdict"]) == {"same"}
    parts = [device("A"), device("B"), device("C", 1.10)]
    assert set(bwprof.outliers(parts, gate=0.2)["verdict"]) == {"same"}
    assert "slow" in set(bwprof.outliers(parts, gate=0.05)["verdict"])
    without = [part.assign(time_ms_lo=float("nan"), time_ms_hi=float("nan")) for part in parts]
    assert verdicts(bwprof.outliers(without))["C", "gemm"] == "slow", "then the gate alone decides"


def test_a_fast_device_is_no_slow_other() -> None:
    found = verdicts(bwprof.outliers([device("A"), device("B"), device("C", 0.8)]))
    assert found["C", "gemm"] == "fast"
    assert found["A", "gemm"] == "same"


def test_noise_is_left_out_and_throttling_is_the_answer() -> None:
    noisy = device("C", 1.5, flags="noisy")
    assert verdicts(bwprof.outliers([device("A"), device("B"), device("D"), noisy]))["C", "gemm"] == "undecided"
    hot = device("C", 1.5, flags="throttled", throttle="hw_thermal")
    found = bwprof.outliers([device("A"), device("B"), hot])
    assert found.iloc[0][["device_uuid", "verdict", "throttle"]].tolist() == ["C", "slow", "hw_thermal=3"]


def test_a_device_that_measured_twice_has_one_say() -> None:
    slow_once = [device("C", 1.5), device("C"), device("C")]
    assert set(bwprof.outliers([device("A"), device("B"), *slow_once])["verdict"]) == {"same"}


def test_what_fails_on_one_device_alone() -> None:
    broken = device("C", status="failed").assign(time_ms=float("nan"))
    found = bwprof.outliers([device("A"), device("B"), device("D"), broken])
    assert verdicts(found)["C", "gemm"] == "failed"
    assert found.iloc[0]["reason"] == "3 failed here and not on most other devices"
    everywhere = [device(name, status="failed").assign(time_ms=float("nan")) for name in "ABC"]
    assert set(bwprof.outliers(everywhere)["verdict"]) == {"undecided"}


@pytest.mark.parametrize("gate", [0, 1, -0.1, "x", None, True])
def test_a_gate_is_a_fraction(gate: Any) -> None:
    with pytest.raises(ValueError, match="gate is"):
        bwprof.outliers(device("A"), gate=gate)


def test_what_is_no_frame() -> None:
    with pytest.raises(TypeError, match="DataFrame is needed"):
        bwprof.outliers(["run"])  # type: ignore[list-item]
    assert len(bwprof.outliers([])) == 0


def test_the_command_says_it_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = {"A": device("A"), "B": device("B"), "C": device("C", 1.10, "gemm")}
    paths = [str(bwprof.save(part, tmp_path / f"{name}.csv")) for name, part in parts.items()]
    assert main(["outliers", *paths]) == 0
    out = capsys.readouterr().out
    assert out == (
        "n1 Test CPU C: slow in gemm: +10.0 % of time (median of 3 cases, 3 slower); at most +10.0 % (a fp32)\n"
    )
    assert main(["outliers", *paths[:2]]) == 0
    assert (
        capsys.readouterr().out == "Test CPU: undecided: 2 devices of this name: 3 are needed to tell which is slow\n"
    )
    assert main(["outliers", *paths, "--gate", "20%"]) == 0
    assert capsys.readouterr().out == "Test CPU: none of 3 devices is slow (gate 0.2, 4 cases each)\n"
    assert main(["outliers", *paths, "--csv"]) == 0
    assert len(pd.read_csv(io.StringIO(capsys.readouterr().out))) == 6
    assert main(["outliers", paths[0], str(tmp_path / "no")]) == 2
    assert "no such file" in capsys.readouterr().err
