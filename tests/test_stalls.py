"""Stalls: percent by reason and group, the text, and rows without any."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import bwprof
from bwprof.analysis.diagnosis.stalls import GROUPS, Stalls, _round_parts

# An H200's copy under ncu: 138.76 warps wait for each instruction that is issued, 131.36 of them for memory (94.7 %).
COPY = (
    "long_scoreboard=131.36;wait=2.46;drain=2.02;short_scoreboard=1.83;branch_resolving=0.36;no_instruction=0.34;"
    "not_selected=0.19;mio_throttle=0.1;math_pipe_throttle=0.07;dispatch_stall=0.03;selected=1"
)
TEXT = """\
Warp Stall Reasons:
  Memory Dependency: 95%
  Execution Dependency: 3%
  Memory Throttle: 0%
  Synchronization: 0%
  Other: 2%"""


def test_a_copys_stalls() -> None:
    found = bwprof.stalls({"stall_reasons": COPY})
    assert found.groups["Memory Dependency"] == pytest.approx(100 * 131.36 / 138.76)
    assert found.groups["Execution Dependency"] == pytest.approx(100 * 4.29 / 138.76)
    assert found.text() == str(found) == TEXT


def test_the_table_adds_up_and_names_a_cure_for_each_group() -> None:
    found = bwprof.stall_table(pd.Series({"stall_reasons": COPY}))
    assert list(found.columns) == ["group", "reason", "pct", "cure"]
    assert found["pct"].sum() == pytest.approx(100)
    assert found["reason"].tolist()[0] == "long_scoreboard"
    assert "selected" not in set(found["reason"])
    assert (found["cure"] != "").all()
    per_group = found.groupby("group")["pct"].sum()
    assert found["group"].drop_duplicates().tolist() == per_group.sort_values(ascending=False).index.tolist()


def test_every_reason_has_its_group() -> None:
    """Unknown reasons belong to the group Other."""
    groups = {
        "Memory Dependency": ["long_scoreboard"],
        "Memory Throttle": ["lg_throttle", "mio_throttle", "tex_throttle"],
        "Execution Dependency": ["wait", "short_scoreboard", "gmma"],
        "Synchronization": ["barrier", "membar"],
        "Other": "drain not_selected math_pipe_throttle no_instruction branch_resolving imc_miss new".split(),
    }
    assert sorted(groups) == sorted(group.name for group in GROUPS)
    for name, reasons in groups.items():
        for reason in reasons:
            assert bwprof.stalls({"stall_reasons": f"{reason}=2;selected=7"}).groups[name] == 100


def test_whole_percents_add_up() -> None:
    """Three thirds, and five parts that all round down."""
    assert _round_parts([100 / 3] * 3) == [34, 33, 33]
    assert _round_parts([20.4, 20.4, 20.4, 20.4, 18.4]) == [21, 21, 20, 20, 18]
    assert sum(_round_parts([0.5] * 200)) == 100
    assert Stalls({"wait": 50.5, "barrier": 49.5}).text().count("%") == 5


@pytest.mark.parametrize(
    "row", [{}, {"stall_reasons": None}, {"stall_reasons": "selected=3"}, {"stall_reasons": "x=y"}]
)
def test_a_row_without_stalls_names_the_option(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no stall_reasons: .*metrics='stalls'"):
        bwprof.stalls(row)
    message = {"metrics_status": "not counted: metrics see a cold call, this row is hot"}
    with pytest.raises(ValueError, match=r"no stall_reasons \(not counted: "):
        bwprof.stall_table(row | message)
    with pytest.raises(TypeError, match="a row is needed"):
        bwprof.stalls("long_scoreboard=3")
