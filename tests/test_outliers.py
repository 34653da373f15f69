"""Outliers among devices, with results calculated by hand."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rows import row

import bwprof
from bwprof.cli import main
from bwprof.results import frame

CASES = {"gemm": ("a", "b", "c"), "stream_read": ("r",)}


def device(name: str, factor: float = 1.0, operations: str = "", spread: float = 0.002, **more: Any) -> pd.DataFrame:
    """Return a run of one device; it takes `factor` us in `operations`, by default in all, and 1 us in the others."""
    rows = []
    for operation, cases in CASES.items():
        time = 1e-3 * (factor if operations in ("", operation) else 1.0)
        for case in cases:
            times = {"time_ms": time, "time_ms_lo": time * (1 - spread), "time_ms_hi": time * (1 + spread)}
            result = {"operation": operation, "hostname": "n1", "device_uuid": name, "run_id": f"run of {name}"}
            rows.append(row(case, "fp32", **times, **result | more))
    return frame.from_rows(rows)


def verdicts(found: pd.DataFrame) -> dict[tuple[str, str], str]:
    return {
        (line["device_uuid"], line["operation"]): line["verdict"]
        for line in found.to_dict(orient="records")  # type: ignore[misc]
    }


def test_one_slow_device_in_one_operation() -> None:
    found = bwprof.outliers([device("A"), device("B", 1.001), device("C", 1.10, "gemm"), device("D", 0.999)])
    assert verdicts(found) == {
        **{(name, operation): "same" for name in "ABCD" for operation in CASES},
        ("C", "gemm"): "slow",
    }
    first = found.iloc[0]
    assert (first["device_uuid"], first["hostname"], first["operation"]) == ("C", "n1", "gemm")
    assert (first["devices"], first["cases"], first["slower"], first["faster"], first["failed"]) == (4, 3, 3, 0, 0)
    middle = (1.0 + 1.001) / 2  # of 0.999, 1, 1.001 and 1.10
    assert first["slow_pct"] == pytest.approx(100 * (1.10 / middle - 1))
    assert first["worst_pct"] == pytest.approx(first["slow_pct"])
    assert first["worst_case"] == "a fp32"


def test_a_time_of_zero_is_no_measurement() -> None:
    found = bwprof.outliers([device("A"), device("B"), device("C"), device("D", 0.0)])
    assert verdicts(found) == {
        (name, operation): "undecided" if name == "D" else "same" for name in "ABCD" for operation in CASES
    }


def test_variants_of_a_case_count_each() -> None:
    """The variants of one case are 10 and 20 % slower: the median is 15 %."""
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
def test_two_devices_are_undecided(parts: list[pd.DataFrame]) -> None:
    found = bwprof.outliers(parts)
    assert set(found["verdict"]) == {"undecided"}
    assert found["reason"].str.contains(": 3 are needed").all()
    assert found["slower"].sum() == (4 if len(parts) == 2 else 0), "that they differ is said"


def test_devices_of_another_name_do_not_count() -> None:
    found = bwprof.outliers([device("A"), device("B"), device("C", 3.0, device="Other CPU")])
    assert set(found["verdict"]) == {"undecided"}


def test_intervals_that_overlap_and_differences_below_the_gate_are_the_same() -> None:
    wide = bwprof.outliers([device("A"), device("B"), device("C", 1.10, spread=0.2)])
    assert set(wide[wide["device_uuid"] == "C"]["verdict"]) == {"undecided"}
    assert wide["slower"].sum() == 0
    parts = [device("A"), device("B"), device("C", 1.10)]
    assert set(bwprof.outliers(parts, gate=0.2)["verdict"]) == {"same"}
    assert "slow" in set(bwprof.outliers(parts, gate=0.05)["verdict"])
    without = [part.assign(time_ms_lo=float("nan"), time_ms_hi=float("nan")) for part in parts]
    assert verdicts(bwprof.outliers(without))["C", "gemm"] == "slow", "then the gate alone decides"


def test_a_fast_device_makes_no_other_slow() -> None:
    found = verdicts(bwprof.outliers([device("A"), device("B"), device("C", 0.8)]))
    assert found["C", "gemm"] == "fast"
    assert found["A", "gemm"] == "same"


def test_noisy_rows_are_left_out_and_throttled_ones_stay() -> None:
    noisy = device("C", 1.5, flags="noisy")
    assert verdicts(bwprof.outliers([device("A"), device("B"), device("D"), noisy]))["C", "gemm"] == "undecided"
    hot = device("C", 1.5, flags="throttled", throttle="hw_thermal")
    found = bwprof.outliers([device("A"), device("B"), hot])
    assert found.iloc[0][["device_uuid", "verdict", "throttle"]].tolist() == ["C", "slow", "hw_thermal=3"]


def test_repeated_runs_of_a_device_count_once() -> None:
    slow_once = [device("C", 1.5), device("C"), device("C")]
    assert set(bwprof.outliers([device("A"), device("B"), *slow_once])["verdict"]) == {"same"}


def test_cases_that_fail_on_one_device() -> None:
    broken = device("C", status="failed").assign(time_ms=float("nan"))
    found = bwprof.outliers([device("A"), device("B"), device("D"), broken])
    assert verdicts(found)["C", "gemm"] == "failed"
    assert (found.iloc[0]["failed"], found.iloc[0]["reason"].split()[0]) == (3, "3")
    everywhere = [device(name, status="failed").assign(time_ms=float("nan")) for name in "ABC"]
    assert set(bwprof.outliers(everywhere)["verdict"]) == {"undecided"}


@pytest.mark.parametrize("gate", [0, 1, -0.1, "x", None, True])
def test_a_gate_is_a_fraction(gate: Any) -> None:
    with pytest.raises(ValueError, match="gate is"):
        bwprof.outliers(device("A"), gate=gate)


def test_outliers_need_frames() -> None:
    with pytest.raises(TypeError, match="DataFrame is needed"):
        bwprof.outliers(["run"])  # type: ignore[list-item]
    assert len(bwprof.outliers([])) == 0


def test_the_command_names_devices_and_operations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: Callable[..., None]
) -> None:
    parts = {"A": device("A"), "B": device("B"), "C": device("C", 1.10, "gemm")}
    paths = [str(bwprof.save(part, tmp_path / f"{name}.csv")) for name, part in parts.items()]
    assert main(["outliers", *paths]) == 0
    snapshot(capsys.readouterr().out, "slow")
    assert main(["outliers", *paths[:2]]) == 0
    snapshot(capsys.readouterr().out, "two")
    assert main(["outliers", *paths, "--gate", "20%"]) == 0
    snapshot(capsys.readouterr().out, "gate")
    assert main(["outliers", *paths, "--csv"]) == 0
    assert len(pd.read_csv(io.StringIO(capsys.readouterr().out))) == 6
    assert main(["outliers", paths[0], str(tmp_path / "no")]) == 2
    assert "no such file" in capsys.readouterr().err


# ---- the fleet's own spread ----

SIZES = {"gemm": 20, "attention": 15, "decode": 15, "kv": 8, "stream": 5}


@cache
def template(count: int) -> pd.DataFrame:
    """Return equal devices, by operation, then device, then case."""
    return frame.from_rows(
        row(f"{operation}{number}", "fp32", operation=operation, hostname=f"h{device:02}", device_uuid=str(device),
            time_ms_lo=0.9995, time_ms_hi=1.0005, time_ms=1.0)
        for operation, size in SIZES.items()
        for device in range(count)
        for number in range(size)
    )  # fmt: skip


def fleet(
    seed: int, spread: float, cases: float, count: int = 16, slow: float = 0.0, alone: float = 0.0
) -> pd.DataFrame:
    """Return devices with a normal `spread`, also of their `cases`; the first, or a case of it, is slower."""
    rng = np.random.default_rng(seed)
    factors = np.exp(rng.normal(0.0, spread, count))
    factors[0] *= 1 + slow
    parts = []
    for operation, size in SIZES.items():
        times = factors * np.exp(rng.normal(0.0, cases, (size, count)))
        if operation == "kv":
            times[3, 0] *= 1 + alone
        parts.append(times.T.ravel())
    data, factor = template(count), np.concatenate(parts)
    return data.assign(**{name: data[name] * factor for name in ("time_ms", "time_ms_lo", "time_ms_hi")})


@pytest.mark.parametrize(("spread", "cases"), [(0.005, 0.02), (0.02, 0.005), (0.05, 0.001)])
def test_a_healthy_fleet_has_no_slow_device(spread: float, cases: float) -> None:
    """5 % of fleets may have a false alarm: at most one of these five, with fixed seeds, has."""
    found = [set(bwprof.outliers(fleet(seed, spread, cases))["verdict"]) for seed in range(5)]
    assert sum(one != {"same"} for one in found) <= 1


def test_two_percent_are_found_at_a_spread_of_a_fifth_percent() -> None:
    for seed in range(2):
        found = bwprof.outliers(fleet(seed, 0.002, 0.001, slow=0.02))
        assert set(found[found["verdict"] == "slow"]["hostname"]) == {"h00"}
        assert len(found[found["verdict"] == "slow"]) == len(SIZES)
        assert (found["smallest_pct"].dropna() < 2.0).all()


def test_a_device_that_is_slow_in_one_case_is_found() -> None:
    found = bwprof.outliers(fleet(1, 0.005, 0.002, alone=0.05))
    (line,) = found[found["verdict"] == "slow"].to_dict(orient="records")
    assert (line["hostname"], line["operation"], line["worst_case"]) == ("h00", "kv", "kv3 fp32")
    assert "kv3 fp32" in line["reason"]
    assert abs(line["slow_pct"]) < 2.0


def test_several_slow_devices_do_not_hide_each_other() -> None:
    parts = [device(name, 1.0 + 1e-3 * number) for number, name in enumerate("ABCDEF")]
    found = verdicts(bwprof.outliers([*parts, device("G", 1.2), device("H", 1.2)]))
    assert {name for (name, operation), verdict in found.items() if (operation, verdict) == ("gemm", "slow")} == {
        "G",
        "H",
    }


def test_few_devices_that_spread_are_undecided() -> None:
    found = bwprof.outliers([device("A"), device("B", 1.02), device("C", 1.05)])
    assert set(found["verdict"]) <= {"undecided", "same"}
    worst = found[(found["device_uuid"] == "C") & (found["operation"] == "gemm")].iloc[0]
    assert worst["verdict"] == "undecided"
    assert worst["smallest_pct"] > 20.0


def test_the_gate_returns_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [device(name, 1.0 + 1e-4 * number) for number, name in enumerate("ABCDE")]
    paths = [str(bwprof.save(one, tmp_path / f"{number}.csv")) for number, one in enumerate(good)]
    slow = str(bwprof.save(device("S", 1.1), tmp_path / "slow.csv"))
    broken = str(bwprof.save(device("T", status="failed").assign(time_ms=float("nan")), tmp_path / "broken.csv"))
    for more, fail_on, code in (
        ([], "slow", 0),
        ([slow], "slow", 1),
        ([slow], "5%", 1),
        ([slow], "20%", 0),
        ([slow], "never", 0),
        ([broken], "slow", 3),
        ([slow, broken], "slow", 1),
        ([slow], "soon", 2),
    ):
        assert main(["outliers", *paths, *more, "--fail-on", fail_on]) == code, (more, fail_on)
        assert main(["outliers", *paths, *more, "--csv", "--fail-on", fail_on]) == code
    assert main(["outliers", *paths[:2], "--fail-on", "slow"]) == 3
    assert main(["outliers", *paths[:2]]) == 0
    capsys.readouterr()
