"""Reports of an optimization: its steps, their figures, and its goals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rows import row

import bwprof
from bwprof.analysis.rules import RULES
from bwprof.cli.commands.results import main_report
from bwprof.report import run as pictures
from bwprof.report.optimization_steps import FIGURES, NO_PEER, Goal, Story, read_goals, read_story
from bwprof.report.run import read_runs
from bwprof.report.write import write_report
from bwprof.results.schema import RowDict
from bwprof.text.parsing import measured_or_nan

SECTIONS = [
    "Objective",
    "Initial State",
    "Methodology",
    "Bottlenecks Identified",
    "Fixes Applied",
    "Final Results",
    "Key Learnings",
    "References",
]
# A kernel that stores intermediates, then one that does not, then one at its roof: 400, 100 and 80 us; a stream of its
# bytes takes 76.
BEFORE, BETWEEN, AFTER = 0.4, 0.1, 0.08
BYTES = 80_000_000


def step(ms: float, variant: str, number: int, **more: Any) -> RowDict:
    """One run's row of the case: 64 MB read and 16 MB written in so many ms, of 1000 GB/s in theory."""
    times = {"time_ms": ms, "time_ms_lo": 0.995 * ms, "time_ms_hi": 1.005 * ms, "bandwidth_gb_s": BYTES / ms / 1e6}
    stored = BYTES * (4 if variant == "stored" else 1)
    columns = {
        "seq_len": 512,
        "algorithmic_bytes_read": stored // 5 * 4,
        "algorithmic_bytes_written": stored // 5,
        "attainable_gb_s": BYTES / 0.076 / 1e6,
        "peak_gb_s": 1250.0,
        "pct_limit": 100 * 0.076 / ms,
        "limiter": "memory" if ms < 0.15 else "kernel",
        "bound": "memory",
        "timer": "graph",
        "driver": "1.0",
        "verified": True,
        "rows_checked": 8,
        "rows_total": 64,
        "max_error": 0.001,
        "tolerance": 0.01,
        "bwprof_version": "0.1.0",
        "run_id": f"run-{number}",
        "timestamp": f"2026-01-0{number}T00:00:00.000+00:00",
        "occupancy_pct": 25.0 * number,
    }
    return row("decode", "fp16", bytes_read=BYTES // 5 * 4, variant=variant, **columns, **times) | more


def runs(*more: RowDict, **last: Any) -> list[Any]:
    frames = [step(BEFORE, "stored", 1), step(BETWEEN, "fused", 2), step(AFTER, "fused", 3, **last)]
    return [bwprof.frame([*more, found]) for found in frames]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of the three runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw_svg", lambda *_, **__: None)
        path = tmp_path_factory.mktemp("optimization") / "OPTIMIZATION_REPORT.md"
        return write_report(runs(), path).path.read_text()


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "draw_svg", lambda *_, **__: None)


def story(frames: list[Any], **options: Any) -> Story:
    return read_story(read_runs(frames), **options)


def tables(text: str) -> dict[str, list[list[str]]]:
    """The lines of each table by its first heading, as lists of cells."""
    found: dict[str, list[list[str]]] = {}
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        first, _, *lines = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines())
        found.setdefault(first[0], []).extend(lines)
    return found


def facts(text: str, heading: str) -> dict[str, str]:
    """The facts below a heading."""
    block = re.split(r"^#+ ", text, flags=re.MULTILINE)
    (own,) = (part.partition("\n")[2] for part in block if part.startswith(f"{heading}\n"))
    return dict(re.findall(r"^(?:\* )?([^:\n]+): (.*)$", own, re.MULTILINE))


def test_a_report(text: str, snapshot: Callable[[str], None]) -> None:
    snapshot(text)


def test_its_sections_stand_in_their_order(text: str) -> None:
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


def test_its_tables(text: str) -> None:
    """4 x the compulsory bytes, then 1 x; 400 us to 100 us; then the share of the roof, 76 of 100 and of 80 us."""
    found = tables(text)
    assert [line[2:] for line in found["Fix"][:2]] == [["4x", "1x", "4.00x"], ["76.0 %", "95 %", "1.25x"]]
    assert [line[0] for line in found["Fix"]] == ["stored to fused", "run-3"] * 2
    assert found["Fix"][0][1] == FIGURES["materialized"][0]
    assert found["Version"][:2] == [
        ["Baseline", "not measured", "200 GB/s", "25 %", "original", "1.00x"],
        ["fused", "not measured", "800 GB/s", "50 %", "variant: stored to fused", "4.00x"],
    ]
    assert len(found["Priority"]) == 1


def test_its_figures_are_those_of_the_rows(text: str) -> None:
    first, last = facts(text, "Initial State"), facts(text, "Final Results")
    assert first["Performance"].split()[:4] == ["0.4", "ms", "@", "S=512"]
    assert last["Performance"].split()[:4] == ["0.08", "ms", "@", "S=512"]
    assert re.findall(r"[\d.]+", last["Memory bandwidth"]) == ["1000", "80.0"]
    assert last["Occupancy"].split()[0] == "75%"
    assert [text for name, text in last.items() if name.startswith("Speed-up")] == ["5.00x"]
    assert re.findall(r"[\d.]+", last["Correctness"]) == ["64", "8", "64", "0.001", "0.01"]


def test_a_row_above_its_roof_has_no_gap(tmp_path: Path, no_pictures: None) -> None:
    rows = [bwprof.frame([step(0.06, "fused", 1)]), bwprof.frame([step(0.05, "fused", 2)])]  # the roof is 76 us
    text = write_report(rows, tmp_path / "r.md", kind="optimization").path.read_text()
    identify = facts(text, "Fix 1: run-2")["Identify"]
    assert (re.findall(r"[\d.]+", identify), "gap" in identify) == (["126.7", "90"], False)
    assert "Priority" not in tables(text)


def test_a_fix_has_five_facts(text: str) -> None:
    found = facts(text, "Fix 1: stored to fused")
    assert list(found) == ["Identify", "Hypothesize", "Implement", "Validate", "Document"]
    assert re.findall(r"[\d.]+", found["Identify"]) == ["4", "1.50", "167"]  # (4 - 1.5) / 1.5
    assert re.findall(r"[\d.]+x", found["Hypothesize"].partition("Predicted")[2]) == ["5.26x", "4.00x"]  # 400 / 76
    assert found["Implement"] == "variant: stored to fused"
    assert re.findall(r"[\d.]+ ms|[\d.]+x", found["Validate"])[2:5] == ["0.4 ms", "0.1 ms", "4.00x"]
    assert {"faster", "verified"} <= set(re.findall(r"\w+", found["Validate"]))


def test_predictions_stand_beside_measurements(text: str) -> None:
    """Of 324 us lost 300 are won; then of 24 us 20."""
    one, other = tables(text)["Fix"][2:]
    assert one[1:5] == ["-", "up to 5.26x", "4.00x", "4.00x"]
    assert other[1:5] == ["-", "up to 1.32x", "the same bytes", "1.25x"]
    assert [re.findall(r"\d+ %", line[5]) for line in (one, other)] == [["93 %"], ["83 %"]]


def test_the_registry_predicts_a_variant(tmp_path: Path, no_pictures: None) -> None:
    before, after = bwprof.operations()["gemm"]["variants"]["cpu"][:2]
    rows = [bwprof.frame([step(ms, found["name"], 1)]) for ms, found in ((BEFORE, before), (BETWEEN, after))]
    text = write_report(rows, tmp_path / "r.md", kind="optimization").path.read_text()
    name = f"{before['name']} to {after['name']}"
    assert tables(text)["Fix"][-1][:2] == [name, f"{after['predicted']:.2f}x at {after['at']}"]
    assert tables(text)["Version"][-1][4:] == [after["changes"], "4.00x"]
    assert facts(text, f"Fix 1: {name}")["Implement"] == f"variant: {name}. {after['text']}"
    other = [bwprof.frame([step(ms, name, 1)]) for ms, name in ((BEFORE, after["name"]), (BETWEEN, before["name"]))]
    assert story(other).steps[0].variant == {}  # to the simpler variant


def test_equal_times_teach_nothing(tmp_path: Path, no_pictures: None) -> None:
    same = [bwprof.frame([step(BEFORE, "stored", number)]) for number in (1, 2)]
    text = write_report(same, tmp_path / "r.md", kind="optimization").path.read_text()
    assert tables(text)["Fix"][-1][5].startswith("no difference")
    assert facts(text, "Fix 1: run-2")["Implement"].startswith("not recorded")


def test_a_profilers_columns_are_in_the_report(tmp_path: Path, no_pictures: None) -> None:
    more = {"tile": "64x32", "block_threads": 256, "shared_bytes": 4096, "theoretical_occupancy_pct": 100.0}
    rows = [bwprof.frame([step(BEFORE, "stored", 1, **more)]), bwprof.frame([step(AFTER, "fused", 3, **more)])]
    text = write_report(rows, tmp_path / "r.md", kind="optimization").path.read_text()
    assert re.findall(r": (\w+)", facts(text, "Initial State")["Kernel"]) == ["64x32", "256", "4096"]
    assert facts(text, "Final Results")["Occupancy"] == "75% (75% of theoretical)"


def test_the_peer_is_pytorchs_row_of_the_same_bytes() -> None:
    peer = step(0.04, "torch", 3, case="sdpa")
    other = step(0.001, "torch", 3, case="sdpa", bytes_read=8)  # of other work
    found = story([bwprof.frame([step(BEFORE, "stored", 1)]), bwprof.frame([peer, other, step(AFTER, "fused", 3)])])
    assert [round(found.vs_torch(each), 3) for each in (found.first, found.last)] == [0.1, 0.5]


def test_absurd_numbers_count_as_missing() -> None:
    peer = step(0.04, "torch", 3, case="sdpa")
    last = step(AFTER, "fused", 3, speedup_vs_torch=1e200)
    found = story([bwprof.frame([step(BEFORE, "stored", 1)]), bwprof.frame([peer, last])])
    assert round(found.vs_torch(found.last), 3) == 0.5
    assert all(math.isnan(measured_or_nan(value)) for value in (1e200, -1e200, 1e-200, "3", None, True))


def test_the_row_that_lost_the_most_time_or_the_named_one_is_chosen() -> None:
    small = {"case": "other", "time_ms": 0.01, "time_ms_lo": 0.01, "time_ms_hi": 0.01, "pct_limit": 5.0}
    frames = [bwprof.frame([step(1, "fused", number, **small), step(BEFORE, "stored", number)]) for number in (1, 2)]
    assert story(frames).name == "decode fp16"
    assert story(frames, case="other").name == "other fp16"
    with pytest.raises(ValueError, match=r"case 'none'.* other, decode"):
        story(frames, case="none")
    with pytest.raises(ValueError, match=r"precision 'fp8'.* fp16"):
        story(frames, precision="fp8")


def test_a_bottleneck_is_fixed_when_less_than_half_is_left() -> None:
    # 324 us are lost at first; 163 and 161 later: half is 162.
    for ms, gone in ((0.239, 0), (0.237, 1)):
        frames = [bwprof.frame([step(BEFORE, "stored", 1)]), bwprof.frame([step(ms, "fused", 2)])]
        found, fixed = story(frames).fixed()
        assert (len(found), len(fixed)) == (1, gone)


def test_the_chosen_row_is_among_the_bottlenecks(tmp_path: Path, no_pictures: None) -> None:
    """Three other rows lose more time; the chosen one is the first of three."""
    others = [step(BEFORE, "stored", 1, case=f"other {number}") for number in range(3)]
    frames = [
        bwprof.frame([*others, step(ms, "stored", 1, case="small", pct_limit=0.25 / ms)]) for ms in (0.010, 0.003)
    ]
    found, fixed = story(frames, case="small").fixed()
    assert [finding.label.split(" fp16")[0] for finding in found] == ["small", "other 0", "other 1"]
    assert fixed == found[:1]
    assert len(story(frames, case="other 2").fixed()[0]) == 3
    text = write_report(frames, tmp_path / "r.md", kind="optimization", case="small").path.read_text()
    identified = text.partition("## Bottlenecks Identified")[2].partition("## Fixes Applied")[0]
    assert "| small fp16" in identified.splitlines()[4]
    fixed_text = next(line for line in text.splitlines() if line.startswith("Of the "))
    assert re.findall(r"\d+", fixed_text) == ["3", "1"]


def test_runs_need_a_case_in_common() -> None:
    with pytest.raises(ValueError, match="two runs at least"):
        story([bwprof.frame([step(1, "fused", 1)])])
    other = bwprof.frame([step(1, "fused", 1, case="other", seq_len=7)])
    with pytest.raises(ValueError, match="no case in common"):
        story([bwprof.frame([step(1, "fused", 1)]), other])


def test_every_rule_has_a_figure_or_is_known_to_have_none() -> None:
    yes_or_no = {"throttled", "noisy", "latency", "compute", "at_memory_roof"}
    assert {rule.id for rule in RULES} == {*FIGURES, *yes_or_no}


# ---- goals ----


def test_goals_are_compared_with_the_last_run(tmp_path: Path, no_pictures: None) -> None:
    wanted = {
        "speedup": ">=5",
        "speedup_vs_torch": ">=0.5",
        "bandwidth_gb_s": ">1000",
        "occupancy_pct": "> 50 %",
        "time_ms": "<0.1",
        "bottlenecks_fixed": ">=1",
        "verified": True,
        "tensor_pct": ">1",
    }
    found = write_report(runs(), tmp_path / "r.md", kind="optimization", goals=wanted)
    results = {goal.name: (goal.result, goal.figure) for goal in found.goals}
    figures = {goal.name: goal.figure for goal in found.goals}
    assert results == {
        "speedup": ("pass", "5.00x"),
        "speedup_vs_torch": ("fail", f"not measured: {NO_PEER}"),
        "bandwidth_gb_s": ("fail", "1000 GB/s"),
        "occupancy_pct": ("pass", "75.0 %"),
        "time_ms": ("pass", "0.08 ms"),
        "bottlenecks_fixed": ("pass", "1"),
        "verified": ("pass", "yes"),
        "tensor_pct": ("fail", figures["tensor_pct"]),
    }
    assert "--metrics all" in figures["tensor_pct"]
    assert not found.passed
    assert tables(found.path.read_text())["Goal"][2] == ["bandwidth_gb_s", "> 1000 GB/s", "1000 GB/s", "fail"]


def test_one_wrong_result_fails_the_goal_verified(tmp_path: Path, no_pictures: None) -> None:
    wrong = step(0.5, "fused", 3, case="other", verified=False)
    found = write_report(runs(wrong), tmp_path / "r.md", kind="optimization", goals={"verified": True}, case="decode")
    assert [(goal.figure, goal.passed) for goal in found.goals] == [("no", False)]


@pytest.mark.parametrize(
    ("text", "code"),
    [('speedup = ">=5"', 0), ('[goals]\nspeedup = ">5"', 1), ("verified = true", 0), ("speedup = 5", 2)],
)
def test_goals_decide_the_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_pictures: None,
    capsys: pytest.CaptureFixture[str],
    text: str,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("goals.toml").write_text(text)
    names = [str(bwprof.save(found, f"run{number}.json")) for number, found in enumerate(runs())]
    assert main_report([*names, "-o", "OPTIMIZATION_REPORT.md", "--goals", "goals.toml"]) == code
    output = capsys.readouterr()
    if code == 2:
        assert "goals.toml: speedup is 5" in output.err
        assert not Path("OPTIMIZATION_REPORT.md").exists()
    else:
        assert "OPTIMIZATION_REPORT.md" in output.err
        assert ("fail" if code else "pass") in output.out


@pytest.mark.parametrize(
    ("frames", "content"),
    [
        ({"bandwith_gb_s": ">1"}, "unknown goal 'bandwith_gb_s': did you mean 'bandwidth_gb_s'"),
        ({"device": ">1"}, "unknown goal 'device'"),
        ({"speedup": "fast"}, "speedup is 'fast': a comparison is needed"),
        ({"speedup": ">inf"}, "speedup is '>inf'"),
        ({"verified": "yes"}, "verified is 'yes': true is needed"),
        ({}, "holds no goals"),
    ],
)
def test_invalid_goals_are_refused(frames: dict[str, Any], content: str) -> None:
    with pytest.raises(ValueError, match=re.escape(content)):
        read_goals(frames)


def test_an_invalid_toml_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "goals.toml"
    path.write_text("speedup >= 5")
    with pytest.raises(ValueError, match=r"goals\.toml .* TOML"):
        read_goals(path)


def test_a_goal_outside_the_table_is_refused() -> None:
    for frames in ({"goals": {"speedup": ">1"}, "verified": True}, {"goals": {}, "verified": True}):
        with pytest.raises(ValueError, match=r"verified .* goals"):
            read_goals(frames)


def test_a_goal_at_its_limit() -> None:
    assert Goal("speedup", ">=", 2.0, 2.0).passed
    assert not Goal("speedup", ">", 2.0, 2.0).passed
    assert not Goal("speedup", "<", 2.0).passed  # not measured


def test_runs_of_different_devices_are_refused() -> None:
    frames = runs()
    frames[-1] = frames[-1].assign(device="another card")
    with pytest.raises(ValueError, match=r"another card.*--kind run"):
        story(frames)
