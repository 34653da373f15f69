"""Plans of many cases, and suites that would take for ever to read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rows import pair

from bwprof import hardware
from bwprof.cli.commands import sweep
from bwprof.measuring.operation import Spec
from bwprof.plot import bars
from bwprof.results import frame
from bwprof.runs import plan, suites
from bwprof.runs.plan import Plan, SweepRequest
from bwprof.runs.suites import SuiteCase


class Counted(tuple[int, ...]):
    """A tuple that counts how often it is gone through."""

    passes = 0

    def __iter__(self) -> Iterator[int]:
        Counted.passes += 1
        return super().__iter__()


def test_a_plan_goes_through_its_lists_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "passes", 0)
    entry = SuiteCase("many", "gemm", {"M": Counted(range(1, 401)), "N": Counted((8, 16)), "K": (8,)})
    specs = plan.expand_entry(entry, SweepRequest(precisions=("fp32",)), (), "cpu")
    assert len({spec.case for spec in specs}) == 800
    assert Counted.passes <= 8


def test_a_plan_has_at_most_so_many_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SuiteCase("a", "gemm", {"M": tuple(range(1, 51))})
    monkeypatch.setattr(plan, "MAX_CASES", 100)
    for count, fits in ((2, True), (3, False)):
        found = suites.Suite("a.toml", "", (entry,) * count, ("fp32",), None)
        monkeypatch.setattr(suites, "load", lambda _name, found=found: found)
        if fits:
            assert len(plan.make_plan(SweepRequest(suite="a.toml"), "cpu").specs) == 50, "each once"
        else:
            with pytest.raises(ValueError, match="150 cases"):
                plan.make_plan(SweepRequest(suite="a.toml"), "cpu")


def test_the_first_lines_of_a_long_plan_do_not_wait_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    estimated: list[int] = []
    first: list[int] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            first.append(len(estimated))
            return super().write(text)

    def made(_device: object, _facts: object, _spec: Spec, *_: object) -> list[str]:
        estimated.append(1)
        return ["gemm\x1b", *["-"] * 9]

    monkeypatch.setattr(sweep, "_estimated", made)
    spec = plan.make_plan(SweepRequest(("gemm",)), "cpu").specs[0]
    stream = Stream()
    sweep.print_plan(stream, Plan((spec,) * 1200, None, None), hardware.choose_device("cpu", 0))
    lines = stream.getvalue().splitlines()
    assert sum(line.startswith("gemm") for line in lines) == 1200
    assert first[0] == 500
    assert "\x1b" not in stream.getvalue()
    assert sum(line.startswith("case ") for line in lines) == 3, "a table for each 500 lines"
    assert lines[-1].startswith("1200 cases on cpu:0")


def test_a_picture_has_as_many_cases_as_fit(caplog: pytest.LogCaptureFixture) -> None:
    """Of axes of 8 inches 0.51 are the legend's; a case has 0.12: 62 of them."""
    rows = [made for number in range(70) for made in pair(f"case {number}", 100.0, 80.0)]
    axes = bars.comparison(frame.from_rows(rows), ax=plot_axes())
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"case {number}" for number in range(62)]
    assert "62 of 70 cases" in axes.get_title(loc="left")
    assert "62 of 70 cases" in caplog.text


def plot_axes() -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(8, 10)).add_axes((0.2, 0.1, 0.7, 0.8))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text = " + "[" * 900 + "]" * 900, "nested too deeply"),
        ("a = " + "{a = " * 900 + "1" + "}" * 900, "nested too deeply"),
        ("#" * 10_000_001, "more than 10000000 bytes"),
        ("target_seconds = " + "9" * 5000, "not a TOML file"),
    ],
)
def test_nested_and_large_suites_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"a.toml: .*{message}"):
        suites.parse(text.encode(), source="a.toml")
