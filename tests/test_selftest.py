"""The self-test: its parts, its verdicts, its command; and the rule by which two measurements differ."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import references
from rich.console import Console

import bwprof
from bwprof import _core
from bwprof.cli.commands import describe as cli
from bwprof.cli.guard import USAGE
from bwprof.measuring import operation as specs
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context
from bwprof.results.pairs import times_differ
from bwprof.selftest import Bench, PartReport
from bwprof.text import terminal

parts = sys.modules["bwprof.selftest"]  # the attribute of the package is the function
pytestmark = pytest.mark.usefixtures("ordinary_cache")

# ---- the rule ----


def row(low: float, median: float, high: float) -> dict[str, float]:
    return {"time_ms": median, "time_ms_lo": low, "time_ms_hi": high}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (row(0.99, 1.00, 1.01), row(1.04, 1.05, 1.06), True),
        (row(1.04, 1.05, 1.06), row(0.99, 1.00, 1.01), True),
        (row(0.99, 1.00, 1.045), row(1.04, 1.05, 1.06), False),  # the intervals overlap
        (row(0.999, 1.00, 1.001), row(1.028, 1.029, 1.030), False),  # apart, by less than the gate of 3 %
        (row(0.999, 1.00, 1.001), row(1.030, 1.031, 1.032), True),
        (row(0.99, 1.00, math.inf), row(1.99, 2.00, math.inf), False),  # too few samples for an interval
    ],
)
def test_rows_differ_by_interval_and_gate(one: dict[str, float], other: dict[str, float], expected: bool) -> None:
    assert times_differ(one, other) is expected


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (1, 100, 0.0018, 0.0545), (10, 10, 0.7225, 1.0)],
)
def test_wilson_against_published_values(successes: int, trials: int, low: float, high: float) -> None:
    assert parts.wilson(successes, trials) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_pairs_share_no_measurement() -> None:
    def measured(case: str, time_ms: float, status: str = "ok") -> dict[str, Any]:
        return {"case": case, "precision": "fp32", "variant": "v", "status": status, "time_ms": time_ms}

    rows = [measured(name, time) for time in (1, 2, 3, 4, 5) for name in ("a", "b")]
    rows.insert(2, measured("a", 99, "failed"))
    found = [(one["case"], one["time_ms"], other["time_ms"]) for one, other in parts._pairs(rows)]
    assert found == [("a", 1, 2), ("a", 3, 4), ("b", 1, 2), ("b", 3, 4)]


# ---- cold, by counters ----


def swept(monkeypatch: pytest.MonkeyPatch, rotation_reads: float, elements: int = 1 << 20) -> dict[str, Any]:
    """The row of a copy whose counted rotation reads so many bytes of each launch from DRAM."""
    requested: list[bool] = []

    class Counted(references.CaseWithin):
        def measure(self, **options: Any) -> dict[str, Any]:
            return self.case.measure(**options) | {"cold": True}

        def count(self, *, rotated: bool = False) -> dict[str, Any]:
            requested.append(rotated)
            found = dict.fromkeys(("dram_bytes_read", "dram_bytes_written", "l2_bytes"), 4.0 * elements)
            return found | ({"dram_bytes_read": rotation_reads} if rotated else {}) | {"counters_status": "ok"}

    monkeypatch.setattr(specs, "_core", type("Fake", (), vars(_core) | {"Case": Counted}))
    spec = Spec("copy", "stream_copy", "fp32", {"elements": elements}, None, None, "cold", 0, counters=True)
    with _core.Device("cpu") as device:
        outcome = specs.measure(device, spec, Context("r", "cpu", {}, None), max_seconds=0.0)
    assert outcome.row["status"] == "ok", outcome.row["reason"]
    assert outcome.row["dram_bytes_read"] == 4 * elements  # of the flushed launch
    assert requested == ([False, True] if elements >= 1 << 18 else [False])
    return outcome.row


def test_a_rotation_that_is_warm_by_its_counters_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = swept(monkeypatch, 0.96 * 4 * (1 << 20))
    assert "not_cold" in found["flags"].split(";")
    assert "96% of the inputs" in found["reason"]


@pytest.mark.parametrize("share", [0.98, math.nan])
def test_a_cold_or_unknown_rotation_is_not_flagged(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    assert "not_cold" not in swept(monkeypatch, share * 4 * (1 << 20))["flags"]


def test_small_footprints_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 Ki elements touch 1 MiB: not more than that."""
    assert "not_cold" not in swept(monkeypatch, 0.0, elements=1 << 17)["flags"]


# ---- flushes ----


@pytest.mark.parametrize("flush", ["read", "memset", "memset+read"])
def test_a_flush_takes_the_rotations_place(cpu: _core.Device, flush: str) -> None:
    with _core.Case(cpu, "stream_copy", "fp32", {"elements": 1 << 14}) as case:
        measured = case.measure(flush=flush, max_seconds=0.0, verify_budget_s=0.0)
    assert measured["verified"], measured["reason"]
    assert (measured["cache"], measured["buffer_sets"], measured["launches_per_sample"]) == ("cold", 1, 1)
    assert measured["flush_bytes"] == 4 * cpu.facts()["cache_bytes"]


def test_bad_flushes_are_refused(cpu: _core.Device) -> None:
    with _core.Case(cpu, "stream_copy", "fp32", {"elements": 64}) as case:
        with pytest.raises(ValueError, match=r"flush = 'wash': .*memset\+read"):
            case.measure(flush="wash")
        with pytest.raises(ValueError, match=r"flush = 'read'.*'cold'"):
            case.measure(cache="hot", flush="read")
        with pytest.raises(_core.UnavailableError, match="no kernel timestamps"):
            case.measure(cache="hot", trace=True)


# ---- verdicts ----


class Timers:
    """A case whose timers give these figures, in us."""

    variant = "v"

    def __init__(self, graph: float, total: float, span: float, throttle: str = "") -> None:
        same = {"verified": True, "conditions": {"throttle": throttle}}
        self.graph = {"median_ns": 1e3 * graph, **same}
        self.traced = {"kernel_sum_ns": 1e3 * total, "kernel_span_ns": 1e3 * span, **same}
        self.alone = {"median_ns": 1e3 * (span + 1.0), **same}

    def measure(self, *, timer: str, trace: bool, **_: object) -> dict[str, Any]:
        return self.alone if timer == "cupti" else self.traced if trace else self.graph


@pytest.mark.parametrize(
    ("graph", "total", "span", "passed"),
    [
        (10.29, 10.0, 10.0, True), (10.31, 10.0, 10.0, False), (9.71, 10.0, 10.0, True), (9.69, 10.0, 10.0, False),
        (2.14, 2.0, 2.0, True), (2.16, 2.0, 2.0, False),
        (6.5, 6.3, 6.8, True), (6.1, 6.3, 6.8, False), (7.1, 6.3, 6.8, False),
    ],
)  # fmt: skip
def test_timers_agree_within_3_percent_or_150_ns(graph: float, total: float, span: float, passed: bool) -> None:
    """Of one kernel; of several, whose sum and span bound the launch."""
    bench = Bench(None, "cuda", 0, {}, ("graph", "cupti"), True, lambda _: None, lambda: None)
    spec = Spec("copy", "stream_copy", "fp32", {}, None, None, "cold", 0)
    row = parts._row_of_timers(spec, Timers(graph, total, span), bench)
    report = parts._report_timers([parts._row_of_timers(spec, Timers(5.0, 5.0, 5.0), bench), row], "")
    assert report.passed is passed
    assert report.summary[0].startswith(f"{1 + passed} of 2 cases agree")


@pytest.mark.parametrize(("throttle", "agrees"), [("sw_power_cap", "held"), ("none", "NO"), ("", "NO")])
def test_a_throttled_case_is_not_judged(throttle: str, agrees: str) -> None:
    bench = Bench(None, "cuda", 0, {}, ("graph", "cupti"), True, lambda _: None, lambda: None)
    spec = Spec("attention", "attention_prefill", "fp16", {}, None, None, "cold", 0)
    row = parts._row_of_timers(spec, Timers(11.0, 10.0, 10.0, throttle), bench)
    assert row["agrees"] == agrees
    others = parts._report_timers([parts._row_of_timers(spec, Timers(5.0, 5.0, 5.0), bench), row], "")
    assert others.passed is (agrees == "held")
    assert others.summary[0].startswith("1 of 1 cases" if agrees == "held" else "1 of 2 cases")
    assert any("cases: attention fp16" in line for line in others.summary) is (agrees == "held")
    alone = parts._report_timers([row], "")
    assert alone.passed is (None if agrees == "held" else False)
    assert ("not judged" in " ".join(alone.summary)) is (agrees == "held")


def test_no_rows_have_no_verdict() -> None:
    assert parts._report_timers([], "no memory").passed is None


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (None, 0), (False, 1)])
def test_the_exit_code_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], passed: bool | None, code: int
) -> None:
    def part(bench: Bench) -> PartReport:
        assert bench.backend == "cpu"
        return PartReport("cache", "A title", {"x": "x", "n": "count"}, [{"x": "a", "n": 12345}], "a gate", passed)

    monkeypatch.setitem(parts.PARTS, "cache", part)
    assert cli.main_selftest(["cache", "--backend", "cpu", "--quiet"]) == code
    out = capfd.readouterr().out
    assert "A title" in out
    assert "12,345" in out
    verdicts = {True: "passed", False: "FAILED", None: "nothing to judge"}
    assert f"gate: a gate: {verdicts[passed]}" in out


def test_the_command_writes_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main_selftest(["timers", "counters", "--backend", "cpu", "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["passed"], found["backend"]) == (True, "cpu")
    assert [part["name"] for part in found["parts"]] == ["timers", "counters"]
    assert "one timer" in found["parts"][0]["left_out"]
    assert "cpu" in found["parts"][1]["left_out"]
    capfd.readouterr()
    assert cli.main_selftest(["counters", "--backend", "cpu", "--json", "-", "--quiet"]) == 0
    assert json.loads(capfd.readouterr().out)["parts"][0]["passed"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["timer"], "unknown part of the self-test 'timer': did you mean 'timers'?"),
        (["--backend", "cudda"], "unknown backend 'cudda'"),
        (["--device", "x"], "device is 'x': allowed are a number"),
        (["timers", "--backend", "cpu", "--device", "7"], "has no device 7"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main_selftest(arguments) == 2
    assert message in capfd.readouterr().err


def test_the_methods_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method gives a time; without kernel timestamps nothing is judged."""
    monkeypatch.setitem(parts._QUICK, True, ((1,), ()))
    monkeypatch.setattr(parts, "CACHE_SECONDS", 0.0)
    (part,) = bwprof.selftest("cache", backend="cpu", quick=True)["parts"]
    (found,) = part["rows"]
    assert found["case"] == "read 1 MiB"
    assert all(found[name] > 0 for name in parts._METHODS)
    assert part["passed"] is None


def test_repeated_measurements_on_the_cpu(monkeypatch: pytest.MonkeyPatch, cpu: _core.Device) -> None:
    """Two rounds here and two in new processes: a pair each per case, whatever they say."""
    monkeypatch.setattr(parts, "REPEAT_SECONDS", 0.0)
    spec = Spec("copy", "stream_copy", "fp32", {"elements": 1 << 12}, None, None, "hot", 0)
    monkeypatch.setattr(Bench, "specs", lambda _: [spec])
    bench = Bench(cpu, "cpu", 0, cpu.facts(), ("monotonic",), True, lambda _: None, lambda: None)
    report = parts.run_repeat(bench)
    assert report.left_out == ""
    assert [(found["where"], found["pairs"]) for found in report.rows] == [("one process", 2)] * 3 + [
        ("fresh processes", 2)
    ] * 3


@pytest.mark.parametrize("target", ["missing/x.json", "."])
def test_where_the_json_goes_is_checked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], target: str
) -> None:
    monkeypatch.setattr(parts, "run", lambda *_, **__: pytest.fail("measured before it looked"))
    assert cli.main_selftest(["--json", str(tmp_path / target)]) == USAGE
    assert f"--json {tmp_path / target}" in capfd.readouterr().err


@pytest.mark.parametrize(("width", "same"), [(150, True), (80, False), (40, False)])
def test_tables_on_a_narrow_screen_keep_their_words(width: int, same: bool) -> None:
    stream = io.StringIO()
    screen = Console(file=stream, width=width)
    found = terminal.new_table(screen, "A title", ["case", "timed by", *(f"number {i}" for i in range(8))])
    found.add_row("read 16 MiB", "graph, events", *(f"{i}.123" for i in range(8)))
    terminal.print_fitted(screen, found)
    text = stream.getvalue()
    assert all(word in text for word in ("case", "timed by", "read 16 MiB", "graph, events", "number 7", "7.123"))
    assert (max(map(len, text.splitlines())) <= width) == same


# ---- the card ----


@pytest.mark.cuda
def test_graph_agrees_with_the_timestamps_of_its_kernels() -> None:
    """In every quick case. In a process of its own: once a process has worked on a second stream, a graph's kernels
    follow one another 0.18 us later, which is no kernel's own time."""
    command = [sys.executable, "-m", "bwprof.selftest", "timers", "--backend", "cuda", "--quick", "--quiet"]
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    (part,) = json.loads(done.stdout)["parts"]
    if not part["rows"]:
        pytest.skip(part["left_out"])
    assert done.returncode == 0, part["rows"]
    assert part["passed"]
    for found in part["rows"]:
        assert found["sum_us"] <= found["span_us"] * 1.001


@pytest.mark.cuda
def test_a_memset_flush_is_charged_to_the_next_kernel() -> None:
    """A 64 MiB read looks longer after a memset than after a read flush; rotation agrees with the latter."""
    (part,) = bwprof.selftest("cache", backend="cuda", quick=True)["parts"]
    if part["passed"] is None:
        pytest.skip(part["left_out"])
    assert part["passed"], part["rows"]
    (found,) = [one for one in part["rows"] if one["case"] == "read 64 MiB" and one["timed_by"] == "kernel"]
    assert found["memset_flush_us"] > 1.05 * found["read_flush_us"]


@pytest.mark.cuda
def test_cold_rotations_read_from_dram() -> None:
    (part,) = bwprof.selftest("counters", backend="cuda", quick=True)["parts"]
    if part["passed"] is None:
        pytest.skip(part["left_out"])
    assert part["passed"], part["rows"]


@pytest.mark.cuda
def test_counted_rotation_of_a_small_case() -> None:
    """2 MiB read by each launch, many sets: all of it from DRAM; of writes nothing is said."""
    with _core.Device("cuda", 0) as device, _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 19}) as case:
        rotated = case.count(rotated=True)
        if rotated["counters_status"] != "ok":
            pytest.skip(rotated["counters_status"])
        assert math.isnan(rotated["dram_bytes_written"])
        assert rotated["dram_bytes_read"] == pytest.approx(4 << 19, rel=0.03)
