"""The command ``bwprof compare``: what it prints and writes, the gate, its exit codes, what it refuses."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Here, csv_rows, make_brief, run_folder
from test_compare import baseline, run, timed
from words import numbers, words

import bwprof
from bwprof.cli import main
from bwprof.cli.guard import coded, guarded
from bwprof.measuring.operation import Spec
from bwprof.plot import regressions
from bwprof.records import baselines
from bwprof.records.regression import verdicts
from bwprof.results import frame
from bwprof.results.schema import RowDict
from bwprof.runs import remeasure
from bwprof.runs.executors import LocalExecutor


@pytest.fixture
def bw(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    """The command in this process and in the test's folder; its cases are brief."""
    make_brief(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return Here(capsys, main)


def saved(name: str, rows: list[RowDict], folder: Path = Path(), **metadata: Any) -> str:
    """A result file of these rows."""
    return str(bwprof.save(frame.from_rows(rows, {"run_id": name, **metadata}), folder / f"{name}.json"))


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str, str]:
    """A base, the same again, and one with a slow, a fast, a failed, a missing and a new case."""
    worse = run(a=0.10, b=-0.50)
    worse[2] |= {"status": "failed", "reason": "out of memory", "time_ms": None}
    del worse[3]
    return (
        saved("base", run(), tmp_path),
        saved("same", run(1.001, "run-2"), tmp_path),
        saved("worse", [*worse, timed("new", 1.0)], tmp_path),
    )


def gate(out: str) -> str:
    """What the line of the gate says behind its threshold."""
    return " ".join(out.split()).partition("gate --fail-on ")[2].partition(": ")[2]


def test_the_table_and_the_summary(bw: Here, sides: tuple[str, str, str]) -> None:
    base, _, worse = sides
    code, out, _ = bw("compare", base, worse)
    assert code == 0, "no gate was asked for"
    lines = [line.rstrip() for line in out.splitlines()]
    assert max(map(len, lines)) <= 120
    assert all(len(line) <= 80 for line in lines if "|" in line), "a terminal of 80 columns shows it"
    rows = [line.split("|") for line in lines if "|" in line]
    result = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows}
    assert result["a fp32"] == ["1 ms", "1.1 ms", "+10.0", "+9.8..+10.2", "+3.0", "slower"]
    assert [cells[0].strip() for cells in rows][2:5] == ["a fp32", "c fp32", "b fp32"]
    assert result["c fp32"] == ["1 ms", "failed", "-", "-", "-", "failed"] or result["c fp32"][-1] == "failed"
    assert {"d fp32", "new fp32"}.isdisjoint(result), "a table of what both have"
    assert any(line.startswith("only in base: d ") for line in lines)
    assert "failed: c fp32:" in out
    assert "out of memory" in out
    summary = next(line for line in " ".join(out.split()).split("1 slower") if line.startswith(", 1 faster"))
    assert numbers(summary)[:7] == [1, 6, 1, 1, 1, 3, 10.0]
    assert {"a", "fp32", "+10.0", "b", "2.00x"} <= words(summary)
    assert "--repeat 5" in " ".join(out.split())


def test_cases_of_one_side_are_a_line(bw: Here) -> None:
    """However much it is: a small baseline and a whole run."""
    base, whole = saved("x", run()[:2]), saved("y", [*run(), timed("<b>", 1.0)])
    code, out, _ = bw("compare", base, whole, "--md", "it.md", "--csv", "it.csv")
    rows = [line.split("|")[0].strip() for line in out.splitlines() if "|" in line]
    assert (code, rows) == (0, []), "two are unchanged, and a line"
    assert re.search("^2 unchanged.*--all", out, re.MULTILINE)
    line = "only in new (9): c fp32, d fp32, e fp32, f fp32, g fp32, h fp32, i fp32, j fp32, <b> fp32: the base"
    assert line in " ".join(out.split())
    assert [row.split(",")[0] for row in Path("it.csv").read_text().splitlines()][-9:] == [*"cdefghij", "<b>"]
    page = Path("it.md").read_text()
    assert "<details><summary>9 on " in page
    assert "only in new (9):" in page
    _, out, _ = bw("compare", base, whole, "--all")
    assert [line.split("|")[0].strip() for line in out.splitlines() if "|" in line][2:11] == [
        f"{name} fp32" for name in [*"cdefghij", "<b>"]
    ]
    more = saved("z", [*run(), *(timed(f"n{number}", 1.0) for number in range(5))])
    assert re.search(r"i fp32, j fp32,.*5", " ".join(bw("compare", base, more)[1].split()))


@pytest.mark.parametrize(
    ("fail_on", "expected"),
    [("slower", 1), ("any", 1), ("5%", 1), ("0.05", 1), ("20%", 3), ("never", 0)],
)
def test_exit_codes(bw: Here, sides: tuple[str, str, str], fail_on: str, expected: int) -> None:
    base, same, worse = sides
    assert bw("compare", base, worse, "--fail-on", fail_on, "--no-confirm")[0] == expected
    code, out, _ = bw("compare", base, same, "--fail-on", fail_on)
    assert code == 0
    assert ("gate --fail-on" in out) == (fail_on != "never")


def test_a_gate_names_the_failing_cases(bw: Here, sides: tuple[str, str, str]) -> None:
    base, _, worse = sides
    _, out, _ = bw("compare", base, worse, "--fail-on", "5%", "--github", "--no-confirm")
    assert gate(out).startswith("failed: 1 ")
    assert numbers(gate(out))[:3] == [1, 8, 2]
    errors = [line for line in out.splitlines() if line.startswith("::error ")]
    assert errors[0].startswith(f"::error file={worse},title=a fp32%3A slower::+10.0 %25")
    assert [line.partition("title=")[2].partition("::")[0] for line in errors[1:]] == [
        "c fp32%3A failed",
        "%3A ".join(["d fp32", "only in base"]),
    ]


def test_a_passed_gate_counts_the_cases_that_it_could_not_judge(bw: Here) -> None:
    noisy = [one | {"flags": "noisy"} for one in run(1.05, "run-2")[:3]]
    code, out, _ = bw("compare", saved("x", run()), saved("y", noisy + run()[3:]), "--fail-on", "5%")
    assert code == 0
    assert gate(out).startswith("passed;")
    assert numbers(gate(out))[:2] == [3, 10]


def test_a_slowdown_beyond_the_disturbance_fails_the_gate(bw: Here) -> None:
    noisy = [one | {"flags": "noisy", "disturbed_pct": 20.0} for one in run(a=0.56, b=0.15)[:2]]
    base, new = saved("x", run()), saved("y", [*noisy, *run()[2:]])
    code, out, _ = bw("compare", base, new, "--fail-on", "5%", "--no-confirm", "--md", "it.md", "--github")
    phrase = " ".join(out.split())
    assert code == 3
    assert gate(out).startswith("incomplete;")
    assert numbers(gate(out))[:3] == [1, 2, 10]
    assert "measure NEW again" in phrase
    assert "a fp32 +56.0 %" in phrase
    assert re.search("noisy in .*new.*20 %", phrase)
    assert "::error file=" in out
    assert re.match("### bwprof: .*disturbed\n", Path("it.md").read_text())
    assert bw("compare", base, new, "--fail-on", "60%", "--no-confirm")[0] == 0, "by less than is asked for"
    assert bw("compare", base, new)[0] == 0, "no gate was asked for"


@pytest.mark.parametrize(
    ("second", "disturbed", "expected", "words"),
    [
        (1.50, 20.0, 1, "measured again: 1.5 ms, +50.0 %, noisy: slower as well"),
        (1.50, None, 1, "measured again: 1.5 ms, +50.0 %: slower as well"),
        (1.15, 20.0, 0, "measured again: 1.15 ms, +15.0 %, noisy: no more than that explains"),
        (1.50, 60.0, 0, "measured again: 1.5 ms, +50.0 %, noisy: no more than that explains"),
        (1.00, None, 0, "measured again: 1 ms, +0.0 %"),
        (0.50, None, 0, "measured again: 500 us, -50.0 %"),
    ],
)
def test_both_tries_must_exceed_their_disturbance(
    bw: Here, monkeypatch: pytest.MonkeyPatch, second: float, disturbed: float | None, expected: int, words: str
) -> None:
    noisy = timed("a", 1.56, flags="noisy", disturbed_pct=20.0)
    more = {} if disturbed is None else {"flags": "noisy", "disturbed_pct": disturbed}
    monkeypatch.setattr(remeasure, "measure_again", lambda *_, **__: [timed("a", second, **more)])
    base, new = saved("x", run()), saved("y", [noisy, *run()[1:]])
    code, out, _ = bw("compare", base, new, "--fail-on", "5%")
    assert code == expected
    assert words in " ".join(out.split())
    assert ("(measured again)" in out) == (expected == 1)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"flags": "noisy"}, 0.10),
        ({"flags": "noisy", "noise": 0.4}, 0.4),
        ({"flags": "noisy", "noise": 0.4, "disturbed_pct": 25.0}, 0.25),  # known, not guessed
        ({"flags": "throttled", "sm_clock_mhz": 1000.0}, 0.5),  # of 1500
        ({"flags": "throttled", "sm_clock_mhz": 1600.0}, 0.10),
        ({"flags": "near_timer_floor", "disturbed_pct": 25.0}, 0.0),
    ],
)
def test_how_much_a_disturbance_may_explain(more: dict[str, Any], expected: float) -> None:
    base = timed("a", 1.0, sm_clock_mhz=1500.0)
    assert verdicts.disturbance_allowance(base, timed("a", 1.0, **more)) == pytest.approx(math.log1p(expected))


def test_the_advice_names_the_disturbed_side(bw: Here) -> None:
    noisy = [one | {"flags": "noisy"} for one in run()]
    base, same, slower = saved("x", noisy), saved("y", run(1.0, "run-2")), saved("z", run(1.3, "run-2"))
    code, out, _ = bw("compare", base, same, "--fail-on", "5%")
    assert code == 3
    assert "measure BASE again" in " ".join(out.split())
    code, out, _ = bw("compare", base, saved("w", noisy), "--fail-on", "5%")
    assert "BASE and NEW again" in " ".join(out.split())
    code, out, _ = bw("compare", base, slower, "--fail-on", "5%", "--no-confirm")
    assert code == 3
    assert "noisy in the base" in " ".join(out.split())


def test_a_disturbed_second_try_advises_another(bw: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    base, new = saved("x", run()[:1]), saved("y", run(1.3, "run-2")[:1])
    monkeypatch.setattr(remeasure, "measure_again", lambda *_arguments, **_more: [run()[0] | {"flags": "noisy"}])
    code, out, _ = bw("compare", base, new, "--fail-on", "5%")
    assert code == 3
    assert "measure NEW again when" in " ".join(out.split())


@pytest.mark.parametrize(
    ("more", "expected", "line", "title"),
    [
        ({"status": "predicted"}, 3, "incomplete; 10 failed or missing", "cases failed or are missing"),
        ({"status": "failed", "time_ms": None}, 3, "incomplete; 10 failed or missing", "cases failed or are missing"),
        (
            {"driver": "another"},
            3,
            "nothing to judge by; 10 of 10 cases could not be judged",
            "no case could be judged",
        ),
        (
            {"flags": "noisy"},
            3,
            "nothing to judge by; 10 of 10 cases could not be judged; measure NEW again when nothing else uses",
            "no case could be judged",
        ),
    ],
)
def test_unmeasured_cases_do_not_pass_a_gate(bw: Here, more: RowDict, expected: int, line: str, title: str) -> None:
    before = [one | {"driver": "one"} for one in run()]
    base, new = saved("x", before), saved("y", [one | more for one in before])
    code, out, _ = bw("compare", base, new, "--fail-on", "5%", "--md", "it.md")
    assert code == expected
    assert f"gate --fail-on 5%: {line}" in " ".join(out.split())
    assert Path("it.md").read_text().startswith(f"### bwprof: {title}\n")
    assert bw("compare", base, new)[0] == 0, "no gate was asked for"


def test_absurd_limits_are_shortened(bw: Here) -> None:
    baselines.write_baseline(baseline(2.0))
    out = bw("compare", "main", saved("new", run()), "--power")[1]
    assert ">999" in out
    assert max(len(line.rstrip()) for line in out.splitlines() if "|" in line) <= 80


def test_every_format(bw: Here, sides: tuple[str, str, str], tmp_path: Path) -> None:
    base, _, worse = sides
    assert bw("compare", base, worse, "--json", "c.json", "--md", "c.md", "--csv", "c.csv")[0] == 0
    out = (tmp_path / "c.csv").read_text()
    rows = csv_rows(out)
    expected = bwprof.compare(base, worse)
    assert [row["verdict"] for row in rows] == expected["verdict"].tolist()
    assert list(rows[0]) == list(expected.columns)
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["counts"]["slower"] == 1
    assert [row["case"] for row in document["rows"]] == expected["case"].tolist()
    assert document["rows"][2]["new_ms"] is None
    text = (tmp_path / "c.md").read_text()
    assert text.startswith("### bwprof: comparison\n")
    assert ["a fp32", "1 ms", "1.1 ms", "+10.0"] in [line.strip("| ").split(" | ")[:4] for line in text.splitlines()]
    assert "<details><summary>6 the same</summary>" in text
    assert bw("compare", base, worse, "--md", "-")[1] == text
    assert json.loads(bw("compare", base, worse, "--json", "-")[1]) == document
    _, piped, err = bw("compare", base, worse, "--csv", "-")
    assert piped == out
    assert "1 slower, 1 faster" in err


def test_names_are_escaped_in_markdown(bw: Here) -> None:
    odd = "a|b<script>\x1b[31m"
    base, new = saved("x", [timed(odd, 1.0)]), saved("y", [timed(odd, 2.0)])
    out = bw("compare", base, new, "--md", "-")[1]
    assert "\x1b" not in out
    assert "<script>" not in out
    assert "\x1b" not in bw("compare", base, new)[1]


def test_a_baseline_by_its_name(bw: Here, tmp_path: Path) -> None:
    baselines.write_baseline(baseline(0.0005))
    new = saved("new", run(a=0.03))
    for name in ("main", "baseline:main", ".bwprof/baselines/main.json"):
        code, out, _ = bw("compare", name, new, "--fail-on", "slower", "--no-confirm")
        assert code == 1
        found = " ".join(out.split())
        assert re.search("5 processes.*2 %.*a fp32.*3.0", found)
        assert re.search("chance.*10 cases.*: .*5 %", found)
    (tmp_path / ".bwprof").rename(tmp_path / "elsewhere")
    for option in ("--dir", "--store"):
        assert bw("compare", "main", new, option, "elsewhere/baselines")[0] == 0
    code, _, err = bw("compare", "mian", new, "--dir", "elsewhere/baselines")
    assert code == 2
    assert "did you mean 'main'" in err


def test_power_is_the_smallest_change_that_is_found(bw: Here) -> None:
    baselines.write_baseline(baseline(0.01))
    new = saved("new", run())
    code, out, _ = bw("compare", "main", new, "--power", "--no-confirm")
    assert code == 0
    twice = bw("compare", "main", new, "--power")[1]
    table = out[out.index("The smallest change that is found 95 times in 100") :]
    cells = [cell.strip() for cell in next(line for line in table.splitlines() if line.startswith("a fp32")).split("|")]
    (line,) = bwprof.compare("main", new).query("case == 'a'").to_dict(orient="records")
    assert cells[1] == "5"
    assert float(cells[3]) == pytest.approx(line["threshold_pct"], abs=0.006)
    assert float(cells[4]) == pytest.approx(line["smallest_pct"], abs=0.006)
    assert float(cells[4]) > float(cells[3])
    line_twice = next(
        line for line in twice[twice.index(", and confirmed") :].splitlines() if line.startswith("a fp32")
    )
    assert float(line_twice.split("|")[4]) > float(cells[4]), "what two tries must find is larger"


def test_many_cases_are_folded(bw: Here) -> None:
    rows = [timed(f"case{number}", 1.0) for number in range(150)]
    new = [{**rows[0], "time_ms": 2.0, "time_ms_lo": 1.99, "time_ms_hi": 2.01}, *rows[1:]]
    base, other = saved("x", rows), saved("y", new)
    out = bw("compare", base, other)[1]
    assert re.search("^149 unchanged.*--all", out, re.MULTILINE)
    assert "case149" not in out
    assert "case149" in bw("compare", base, other, "--all")[1]


def test_a_picture(bw: Here, sides: tuple[str, str, str], tmp_path: Path) -> None:
    base, _, worse = sides
    assert bw("compare", base, worse, "--plot", "c.png")[0] == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = bw("compare", base, worse, "--plot", "c.pgn")
    assert code == 2
    assert "did you mean '.png'" in err
    axes = regressions.ratios(bwprof.compare(base, worse))
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[0] == "a fp32"
    assert names[-1] == "b fp32"
    assert len(names) == 8, "what was not compared has no ratio"
    found = bwprof.compare(base, worse)
    far = regressions.ratios(found.assign(ratio=[10.0 ** (place % 4 - 3) for place in range(len(found))]))
    far.figure.canvas.draw()
    boxes = sorted(label.get_window_extent().extents[[0, 2]].tolist() for label in far.get_xticklabels())
    assert len(boxes) >= 3
    assert all(one[1] < other[0] for one, other in itertools.pairwise(boxes)), "the axis' factors run into each other"
    with pytest.raises(ValueError, match="no case was compared"):
        regressions.ratios(bwprof.compare(run()[:1], run()[1:2]))
    with pytest.raises(ValueError, match="not a comparison"):
        regressions.ratios(bwprof.load(base))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": "bwprof-results", "schema_ver', "is not a bwprof result file"),
        ('{"format": "other"}', "not a"),
        ('{"format": "bwprof-results", "schema_version": 99, "run": {}, "rows": []}', "install a newer one"),
        ('{"format": "bwprof-results", "schema_version": 1, "run": {}, "rows": []}', "is empty"),
        ("", "not"),
        ('{"format": "bwprof-baseline", "version": 9, "schema_version": 1}', "install a newer one"),
    ],
)
def test_unreadable_files_give_an_error(bw: Here, sides: tuple[str, str, str], content: str, words: str) -> None:
    Path("bad.json").write_text(content)
    for arguments in (("bad.json", sides[0]), (sides[0], "bad.json")):
        code, _, err = bw("compare", *arguments)
        assert code == 2
        assert err.startswith("bwprof: error: ")
        assert words in err
        assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fail-on", "slow"), "did you mean 'slower'"),
        (("--fail-on", "500%"), "--fail-on is '500%'"),
        (("--gate", "x"), "--gate is 'x'"),
        (("--metric", "time"), "did you mean 'time_ms'"),
    ],
)
def test_bad_options(bw: Here, sides: tuple[str, str, str], arguments: tuple[str, ...], words: str) -> None:
    code, _, err = bw("compare", *sides[:2], *arguments)
    assert code == 2
    assert words in err


def test_no_such_file(bw: Here, sides: tuple[str, str, str]) -> None:
    code, _, err = bw("compare", sides[0], "nowhere/run")
    assert code == 2
    assert err.endswith(": nowhere/run\n")
    assert bw("compare", sides[0])[0] == 2


def test_the_same_file_twice(bw: Here, sides: tuple[str, str, str]) -> None:
    out = bw("compare", sides[0], sides[0])[1]
    assert "the same run" in out
    assert re.search("0 slower.*0 faster.*10 same", out)


# What a second try is worth.


def test_a_case_that_fails_is_measured_again(
    bw: Here, sides: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[RowDict] = []
    times = {"a": 1.12, "b": 1.0}

    def second(rows: list[RowDict], run: dict[str, Any], *_: object, **__: object) -> list[RowDict | str]:
        measured.extend(rows)
        assert run["run_id"] == "two"
        return [timed(row["case"], times[row["case"]]) for row in rows]

    monkeypatch.setattr(remeasure, "measure_again", second)
    new = saved("two", run(a=0.10, b=0.10))
    code, out, err = bw("compare", sides[0], new, "--fail-on", "5%")
    assert [row["case"] for row in measured] == ["a", "b", *"aaaa"], "five times against a single process"
    assert code == 1
    assert numbers(gate(out)) == [1, 10]
    assert "again" in words(gate(out))
    assert "again: 1 ms, +0.0" in " ".join(out.split())
    assert not err, "what measures it says so"
    times["a"] = 1.0
    assert bw("compare", sides[0], new, "--fail-on", "5%")[0] == 0
    measured.clear()
    assert bw("compare", sides[0], new, "--fail-on", "5%", "--no-confirm")[0] == 1
    assert bw("compare", sides[0], new)[0] == 0
    assert not measured, "without a gate, and where it is not wanted, nothing is measured"


def test_the_second_try_has_the_runs_settings(bw: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run held against itself with a fiftieth of its times: its case is slower, and measured again."""
    options = ("--device", "cpu", "-p", "M=64", "-p", "N=16", "-p", "K=16", "--seed", "5", "--cache", "hot")
    assert bw("sweep", "gemm", *options, "--precision", "fp32", "--no-roofs")[0] == 0
    folder = run_folder(tmp_path)
    ran = bwprof.load(folder)
    sure = ran.assign(flags="", time_ms_lo=ran["time_ms"] * 0.999, time_ms_hi=ran["time_ms"] * 1.001)
    quicker = sure.assign(**{name: sure[name] / 50 for name in ("time_ms", "time_ms_lo", "time_ms_hi")})
    bwprof.save(sure, "new.json")
    bwprof.save(quicker, "base.json")
    specs = []
    measure = LocalExecutor.measure

    def noted(self: LocalExecutor, spec: Spec, *rest: Any) -> Any:
        specs.append(spec)
        found = measure(self, spec, *rest)
        time = found.row["time_ms"]  # of few samples the interval has no end, and decides nothing
        found.row.update(time_ms_lo=time * 0.999, time_ms_hi=time * 1.001)
        return found

    monkeypatch.setattr(LocalExecutor, "measure", noted)
    code, out, err = bw("compare", "base.json", "new.json", "--fail-on", "slower")
    assert code == 1, err
    planned = Spec.from_dict(ran.attrs["run"]["plan"][0])
    (row,) = bwprof.rows(ran)
    assert row.variant
    assert (planned.seed, planned.cache, planned.variant, planned.timer) == (5, "hot", None, None)
    assert set(map(str, specs)) == {str(replace(planned, variant=row.variant, timer=row.timer))}
    assert "slower as well" in " ".join(out.split())
    assert "M=64" in err
    assert re.match(rf"bwprof: .*: 1 case.*{row.device}\n", err)


def test_reasons_against_a_second_measurement(bw: Here, sides: tuple[str, str, str]) -> None:
    base, _, worse = sides
    code, out, err = bw("compare", base, worse, "--fail-on", "5%")
    assert (code, err) == (1, ""), "what cannot be measured again counts"
    assert "measured again: Test CPU" in " ".join(out.split())
    assert "(measured again)" not in out


def test_compared_files_are_never_overwritten(bw: Here, sides: tuple[str, str, str]) -> None:
    base, _, worse = sides
    before = Path(base).read_bytes()
    for option in ("--json", "--md"):
        code, out, err = bw("compare", base, worse, option, base, "--force")
        assert (code, out) == (2, "")
        assert f"{option} {base} is what is read" in err
    assert Path(base).read_bytes() == before


def test_an_older_file_is_replaced_only_with_force(bw: Here, sides: tuple[str, str, str]) -> None:
    base, _, worse = sides
    for name in ("o.csv", "o.json", "o.md"):
        kind = Path(name).suffix[1:]
        Path(name).write_text("mine")
        code, _, err = bw("compare", base, worse, f"--{kind}", name)
        assert (code, Path(name).read_text()) == (2, "mine")
        assert f"{name} exists already" in err
        assert bw("compare", base, worse, f"--{kind}", name, "--force")[0] == 0
        assert Path(name).read_text() != "mine"
    Path("empty.md").touch()
    assert bw("compare", base, worse, "--md", "empty.md")[0] == 0, "nothing is lost with it"


def test_an_empty_name_is_not_the_current_folder(bw: Here, sides: tuple[str, str, str]) -> None:
    for arguments in (("", sides[0]), (sides[0], "")):
        code, out, err = bw("compare", *arguments)
        assert (code, out) == (2, "")
        assert "'' is given" in err


def test_a_function_is_compared_with_its_baseline(bw: Here) -> None:
    """As the README says it: in Python, and in a shell."""
    work = bytearray(1 << 16)
    row = bwprof.measure(lambda: sum(work), name="sum", device="cpu", cache="hot", roofs=False, max_seconds=0.02)
    assert bwprof.save_baseline("mine", row).is_file()
    again = bwprof.measure(lambda: sum(work), name="sum", device="cpu", cache="hot", roofs=False, max_seconds=0.02)
    assert bwprof.compare("baseline:mine", again)["case"].tolist() == ["sum"]
    still = {"flags": "", "status": "ok", "time_ms": 1.0, "time_ms_lo": 0.99, "time_ms_hi": 1.01}
    bwprof.save_baseline("mine", bwprof.frame([row]).assign(**still), force=True)
    slow = bwprof.frame([again]).assign(**still | {"time_ms": 2.0, "time_ms_lo": 1.98, "time_ms_hi": 2.02})
    assert bwprof.compare("baseline:mine", slow)["verdict"].tolist() == ["slower"]
    bwprof.save(slow, "today.json")
    code, out, _ = bw("compare", "baseline:mine", "today.json", "--fail-on", "5%")
    assert code == 1
    assert "not measured again: sum" in " ".join(out.split())


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_step_summary_is_appended(
    bw: Here, sides: tuple[str, str, str], force: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other commands of the step write there as well; a link to it is the same file."""
    base, same, worse = sides
    summary = Path("summary")
    summary.write_text("### tests\nall well")
    Path("link.md").symlink_to(summary)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary.absolute()))
    for new, name in ((worse, str(summary)), (same, "link.md")):
        assert bw("compare", base, new, "--md", name, *force)[0] == 0
    text = summary.read_text()
    assert text.splitlines()[:3] == ["### tests", "all well", "### bwprof: comparison"]
    assert text.count("\n### bwprof: comparison\n") == 2
    Path("other.md").write_text("mine")
    assert bw("compare", base, worse, "--md", "other.md")[0] == 2


def test_a_step_summary_on_a_full_disk_is_unchanged(
    bw: Here, sides: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, _, worse = sides
    summary = Path("summary.md")
    summary.write_text("all well\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setattr(os, "write", _full_after(100))
    code, out, err = bw("compare", base, worse, "--md", str(summary))
    assert (code, summary.read_text()) == (3, "all well\n")
    assert "a fp32" in out
    assert f"summary.md: {os.strerror(errno.ENOSPC)}" in err


def _full_after(count: int) -> Callable[[int, memoryview], int]:
    """`os.write` on a disk that has room for so many bytes more."""
    real, left = os.write, [count]

    def write(number: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(number, data[: left[0]])
        left[0] -= written
        return written

    return write


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--csv", "x.csv", "--md", "x.csv"], "--csv x.csv and --md x.csv cannot both have the same file"),
        (["--csv", "-", "--json", "-"], "--csv - and --json - cannot both have the standard output"),
        (["--md", "nowhere/x.md"], "--md nowhere/x.md: there is no folder nowhere"),
        (["--json", ""], "--json is ''"),
        (["--dir", ""], "--dir is ''"),
    ],
)
def test_unwritable_outputs_fail_before_work(
    bw: Here, sides: tuple[str, str, str], options: list[str], words: str
) -> None:
    base, _, worse = sides
    code, out, err = bw("compare", base, worse, *options)
    assert (code, out) == (2, "")
    assert words in err


def test_a_file_size_limit_is_handled_as_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> int:
        raise OSError(errno.EFBIG, "File too large", "o.json")

    assert guarded(lambda: coded(full)) == 3
    assert "o.json: File too large" in capsys.readouterr().err
