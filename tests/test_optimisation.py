"""Reports of an optimisation: what was wrong, what each change did, which goals are reached; nothing that was not
measured.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from rows import row

import bwprof
from bwprof.analysis.rules import RULES
from bwprof.cli.commands.results import main_report
from bwprof.report import pictures
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
    told = {
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
    return row("decode", "fp16", bytes_read=BYTES // 5 * 4, variant=variant, **told, **times) | more


def runs(*more: RowDict, **last: Any) -> list[Any]:
    frames = [step(BEFORE, "stored", 1), step(BETWEEN, "fused", 2), step(AFTER, "fused", 3, **last)]
    return [bwprof.frame([*more, found]) for found in frames]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of the three runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw_svg", lambda *_, **__: None)
        path = tmp_path_factory.mktemp("optimisation") / "OPTIMIZATION_REPORT.md"
        return write_report(runs(), path).path.read_text()


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "draw_svg", lambda *_, **__: None)


def story(given: list[Any], **options: Any) -> Story:
    return read_story(read_runs(given), **options)


def test_its_sections_stand_in_their_order(text: str) -> None:
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


def test_its_tables_are_those_that_were_promised(text: str) -> None:
    assert "| Fix | Metric Improved | Before | After | Speedup |" in text
    assert "| Priority | Kernel | Issue | Impact | Fix | Expected gain | Evidence |" in text
    assert "| Version | Speedup vs PyTorch | Memory BW | Occupancy | Key Change |" in text
    # 4 x the compulsory bytes, then 1 x; 400 us to 100 us; then the share of the roof, 76 of 100 and of 80 us.
    assert "| stored to fused | bytes over the compulsory ones | 4x | 1x | 4.00x |" in text
    assert "| run-3 | share of the roof | 76.0 % | 95 % | 1.25x |" in text
    assert "| Baseline | not measured | 200 GB/s | 25 % | original | 1.00x |" in text
    assert "| fused | not measured | 800 GB/s | 50 % | variant: stored to fused | 4.00x |" in text


def test_its_figures_are_those_of_the_rows(text: str) -> None:
    assert "Performance: 0.4 ms @ S=512 (not measured vs PyTorch)" in text
    assert "Performance: 0.08 ms @ S=512 (not measured vs PyTorch)" in text
    assert "Memory bandwidth: 1000 GB/s (80.0% of peak)" in text
    assert "Occupancy: 75% (theoretical not measured)" in text
    assert "Speed-up over the first run: 5.00x" in text
    assert "Correctness: verified against float64, 8 of 64 rows, error 0.001 of the 0.01 allowed" in text


def test_what_is_at_its_roof_has_no_gap_and_nothing_is_allowed_it(tmp_path: Path, no_pictures: None) -> None:
    given = [bwprof.frame([step(0.06, "fused", 1)]), bwprof.frame([step(0.05, "fused", 2)])]  # of 76 us
    told = write_report(given, tmp_path / "r.md", kind="optimisation").path.read_text()
    assert "0.06 ms at the start. It is at the roof that applies to it, or above." in told
    assert re.search(r"^\* Identify: share of the roof = 126.7 %, target >= 90 %$", told, re.MULTILINE)
    assert "decode fp16" not in told[told.index("## Bottlenecks") : told.index("## Fixes")]


def test_each_fix_is_told_in_five_lines(text: str) -> None:
    block = text[text.index("### Fix 1: stored to fused") : text.index("### Fix 2: run-3")]
    names = re.findall(r"^\* (\w+):", block, re.MULTILINE)
    assert names == ["Identify", "Hypothesize", "Implement", "Validate", "Document"]
    assert "bytes over the compulsory ones = 4x, target <= 1.50x, gap 167 %" in block  # (4 - 1.5) / 1.5
    assert "intermediates go through memory" in block
    assert "Predicted: up to 5.26x at the roof; 4.00x by fewer bytes" in block  # 400 / 76
    assert "variant: stored to fused" in block
    assert "0.4 ms to 0.1 ms, speed-up 4.00x (95 %:" in block
    assert "faster; verified against float64" in block


def test_what_was_learnt_is_predicted_beside_measured(text: str) -> None:
    learnt = text[text.index("## Key Learnings") : text.index("## References")]
    # Of 324 us lost 300 are won; then of 24 us 20.
    won = "it helped: {} % of the time that was lost is won back"
    assert f"| stored to fused | - | up to 5.26x | 4.00x | 4.00x | {won.format(93)} |" in learnt
    assert f"| run-3 | - | up to 1.32x | the same bytes | 1.25x | {won.format(83)} |" in learnt


def test_a_rung_of_a_ladder_was_predicted_before(tmp_path: Path, no_pictures: None) -> None:
    before, after = bwprof.operations()["gemm"]["variants"]["cpu"][:2]
    given = [bwprof.frame([step(ms, found["name"], 1)]) for ms, found in ((BEFORE, before), (BETWEEN, after))]
    text = write_report(given, tmp_path / "r.md", kind="optimisation").path.read_text()
    assert f"| {before['name']} to {after['name']} | {after['predicted']:.2f}x at {after['at']} |" in text
    assert f"| {after['changes']} | 4.00x |" in text
    assert f"variant: {before['name']} to {after['name']}. {after['text']}" in text
    other = [bwprof.frame([step(ms, name, 1)]) for ms, name in ((BEFORE, after["name"]), (BETWEEN, before["name"]))]
    assert story(other).steps[0].variant == {}  # down, not up


def test_nothing_is_learnt_of_what_does_not_differ(tmp_path: Path, no_pictures: None) -> None:
    same = [bwprof.frame([step(BEFORE, "stored", number)]) for number in (1, 2)]
    text = write_report(same, tmp_path / "r.md", kind="optimisation").path.read_text()
    assert "| no difference beyond noise |" in text
    assert "Implement: not recorded: variant, commit and version are the same in both runs" in text


def test_a_kernels_own_columns_are_told(tmp_path: Path, no_pictures: None) -> None:
    more = {"tile": "64x32", "block_threads": 256, "shared_bytes": 4096, "theoretical_occupancy_pct": 100.0}
    given = [bwprof.frame([step(BEFORE, "stored", 1, **more)]), bwprof.frame([step(AFTER, "fused", 3, **more)])]
    text = write_report(given, tmp_path / "r.md", kind="optimisation").path.read_text()
    assert "Kernel: tile: 64x32, threads a block: 256, bytes of shared memory a block: 4096" in text
    assert "Occupancy: 75% (75% of theoretical)" in text


def test_pytorchs_row_of_the_same_bytes_is_the_peer() -> None:
    peer = step(0.04, "torch", 3, case="sdpa")
    other = step(0.001, "torch", 3, case="sdpa", bytes_read=8)  # of other work
    found = story([bwprof.frame([step(BEFORE, "stored", 1)]), bwprof.frame([peer, other, step(AFTER, "fused", 3)])])
    assert [round(found.vs_torch(each), 3) for each in (found.first, found.last)] == [0.1, 0.5]


def test_an_absurd_number_is_none() -> None:
    """Its place takes what is known otherwise, or nothing."""
    peer = step(0.04, "torch", 3, case="sdpa")
    last = step(AFTER, "fused", 3, speedup_vs_torch=1e200)
    found = story([bwprof.frame([step(BEFORE, "stored", 1)]), bwprof.frame([peer, last])])
    assert round(found.vs_torch(found.last), 3) == 0.5
    assert all(math.isnan(measured_or_nan(value)) for value in (1e200, -1e200, 1e-200, "3", None, True))


def test_it_is_about_the_row_that_lost_the_most_time_or_the_one_asked_for() -> None:
    small = {"case": "other", "time_ms": 0.01, "time_ms_lo": 0.01, "time_ms_hi": 0.01, "pct_limit": 5.0}
    given = [bwprof.frame([step(1, "fused", number, **small), step(BEFORE, "stored", number)]) for number in (1, 2)]
    assert story(given).track.name == "decode fp16"
    assert story(given, case="other").track.name == "other fp16"
    with pytest.raises(ValueError, match="no case 'none' is in all runs: there are other, decode"):
        story(given, case="none")
    with pytest.raises(ValueError, match="no precision 'fp8' is in all runs: there are fp16"):
        story(given, precision="fp8")


def test_a_bottleneck_is_gone_when_less_than_half_of_it_is_left() -> None:
    # 324 us are lost at first; 163 and 161 later: half is 162.
    for ms, gone in ((0.239, 0), (0.237, 1)):
        given = [bwprof.frame([step(BEFORE, "stored", 1)]), bwprof.frame([step(ms, "fused", 2)])]
        found, fixed = story(given).fixed()
        assert (len(found), len(fixed)) == (1, gone)


def test_the_row_that_it_is_about_is_among_the_bottlenecks(tmp_path: Path, no_pictures: None) -> None:
    """Three others lose more time than it does; it is named first, and judged with them."""
    others = [step(BEFORE, "stored", 1, case=f"other {number}") for number in range(3)]
    given = [bwprof.frame([*others, step(ms, "stored", 1, case="small", pct_limit=0.25 / ms)]) for ms in (0.010, 0.003)]
    found, fixed = story(given, case="small").fixed()
    assert [finding.label.split(" fp16")[0] for finding in found] == ["small", "other 0", "other 1"]
    assert fixed == found[:1]
    assert len(story(given, case="other 2").fixed()[0]) == 3
    text = write_report(given, tmp_path / "r.md", kind="optimisation", case="small").path.read_text()
    identified = text.partition("## Bottlenecks Identified")[2].partition("## Fixes Applied")[0]
    assert "| small fp16" in identified.splitlines()[4]
    assert "Of the 3 bottlenecks named above, 1 costs less than half of that time now." in text


def test_runs_need_a_case_in_common() -> None:
    with pytest.raises(ValueError, match="two runs at least"):
        story([bwprof.frame([step(1, "fused", 1)])])
    other = bwprof.frame([step(1, "fused", 1, case="other", seq_len=7)])
    with pytest.raises(ValueError, match="no case in common that each has a time of"):
        story([bwprof.frame([step(1, "fused", 1)]), other])


def test_every_rule_tells_a_figure_or_doubts_or_says_yes() -> None:
    yes_or_no = {"throttled", "noisy", "latency", "compute", "at_memory_roof"}
    assert {rule.id for rule in RULES} == {*FIGURES, *yes_or_no}


# ---- goals ----


def test_goals_are_held_against_the_last_run(tmp_path: Path, no_pictures: None) -> None:
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
    found = write_report(runs(), tmp_path / "r.md", kind="optimisation", goals=wanted)
    results = {goal.name: (goal.result, goal.figure) for goal in found.goals}
    assert results == {
        "speedup": ("pass", "5.00x"),
        "speedup_vs_torch": ("fail", f"not measured: {NO_PEER}"),
        "bandwidth_gb_s": ("fail", "1000 GB/s"),
        "occupancy_pct": ("pass", "75.0 %"),
        "time_ms": ("pass", "0.08 ms"),
        "bottlenecks_fixed": ("pass", "1"),
        "verified": ("pass", "yes"),
        "tensor_pct": ("fail", "not measured: --metrics all measures it"),
    }
    assert not found.passed
    assert "| bandwidth_gb_s | > 1000 GB/s | 1000 GB/s | fail |" in found.path.read_text()


def test_one_wrong_result_fails_the_goal_of_right_ones(tmp_path: Path, no_pictures: None) -> None:
    wrong = step(0.5, "fused", 3, case="other", verified=False)
    found = write_report(runs(wrong), tmp_path / "r.md", kind="optimisation", goals={"verified": True}, case="decode")
    assert [(goal.figure, goal.passed) for goal in found.goals] == [("no", False)]


@pytest.mark.parametrize(
    ("text", "code"),
    [('speedup = ">=5"', 0), ('[goals]\nspeedup = ">5"', 1), ("verified = true", 0), ("speedup = 5", 2)],
)
def test_the_exit_code_is_that_of_the_goals(
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
    shown = capsys.readouterr()
    if code == 2:
        assert 'goals.toml: speedup is 5: a comparison is needed, as ">=0.5"' in shown.err
        assert not Path("OPTIMIZATION_REPORT.md").exists()
    else:
        assert "bwprof: the report is OPTIMIZATION_REPORT.md" in shown.err
        assert ("fail" if code else "pass") in shown.out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bandwith_gb_s": ">1"}, "unknown goal 'bandwith_gb_s': did you mean 'bandwidth_gb_s'"),
        ({"device": ">1"}, "unknown goal 'device'"),
        ({"speedup": "fast"}, "speedup is 'fast': a comparison is needed"),
        ({"speedup": ">inf"}, "speedup is '>inf'"),
        ({"verified": "yes"}, "verified is 'yes': true is needed"),
        ({}, "holds no goals"),
    ],
)
def test_what_is_no_goal(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        read_goals(given)


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "goals.toml"
    path.write_text("speedup >= 5")
    with pytest.raises(ValueError, match=r"goals\.toml is not a TOML file"):
        read_goals(path)


def test_no_goal_beside_the_others_is_ignored() -> None:
    for given in ({"goals": {"speedup": ">1"}, "verified": True}, {"goals": {}, "verified": True}):
        with pytest.raises(ValueError, match="verified stands outside goals, and would be ignored"):
            read_goals(given)


def test_a_goal_at_its_limit() -> None:
    assert Goal("speedup", ">=", 2.0, 2.0).passed
    assert not Goal("speedup", ">", 2.0, 2.0).passed
    assert not Goal("speedup", "<", 2.0).passed  # not measured


def test_runs_of_different_devices_are_refused() -> None:
    given = runs()
    given[-1] = given[-1].assign(device="another card")
    with pytest.raises(ValueError, match=r"the runs are of different devices \(.*another card\).*--kind run"):
        story(given)
