"""Ranges of numbers as people type them: one reading in Python, in the shell and in suites."""

from __future__ import annotations

import re
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bwprof
from bwprof import registry
from bwprof.cli.commands.sweep import main_sweep, read_request
from bwprof.runs import suites
from bwprof.text.parsing import MOST_IN_RANGE, expand_ranges, parse_counts

pytestmark = pytest.mark.usefixtures("one_thread")

if TYPE_CHECKING:
    from commands import Here


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("7", (7,)),
        ("4Ki", (4096,)),
        ("128..1Ki:x2", (128, 256, 512, 1024)),
        ("1..100:x10", (1, 10, 100)),
        ("1..99:x10", (1, 10)),
        ("5..5:x2", (5,)),
        ("0..3:+1", (0, 1, 2, 3)),
        ("1..64:+8", (1, 9, 17, 25, 33, 41, 49, 57)),
        ("8..64:+8", (8, 16, 24, 32, 40, 48, 56, 64)),
        ("1k .. 4k : + 1k", (1000, 2000, 3000, 4000)),
        ("1..8Ei:x2".replace("8Ei", str(2**63 - 1)), tuple(2**power for power in range(63))),
    ],
)
def test_values_of_a_range(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_counts(text, "M") == numbers


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_range_is_complete_and_ends_at_its_end(start: int, more: int, step: int) -> None:
    end = start + more
    if more // step < MOST_IN_RANGE:
        assert parse_counts(f"{start}..{end}:+{step}", "M") == tuple(number for number in range(start, end + 1, step))
    powers = (start * (step + 1) ** power for power in count())
    assert parse_counts(f"{start}..{end}:x{step + 1}", "M") == tuple(takewhile(lambda number: number <= end, powers))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1..8", r"M: '1\.\.8' is not a range: START\.\.END:xFACTOR or START\.\.END:\+STEP is needed"),
        ("1..8:2", "is not a range"),
        ("1..8:-2", "is not a range"),
        ("1...8:x2", "is not a range"),
        ("1..4..8:x2", "is not a range"),
        ("..8:x2", "M: '' is not a whole number"),
        ("1..8:x", "M: '' is not a whole number"),
        ("1..8Q:x2", "M: '8Q' is not a whole number"),
        ("0..8:x2", "starts at 0: allowed is 1 or more"),
        ("-4..8:+2", "starts at -4: allowed is 0 or more"),
        ("1..8:x1", "multiplies by 1: allowed is 2 or more"),
        ("1..8:+0", "adds 0: allowed is 1 or more"),
        ("8..1:+1", "ends before it starts"),
        ("1..10001:+1", "holds 10001 values: allowed are 10000"),
        ("1..9223372036854775807:+1", "holds 9223372036854775807 values: allowed are 10000"),
        ("1..9223372036854775808:x2", "does not fit in 64 bits"),
        ("1.." + "9" * 900 + ":x2", "does not fit in 64 bits"),
        ("1.." + "9" * 5000 + ":x2", "M: a number of 5000 digits does not fit in 64 bits"),
        ("." * 100_000, "is not a range"),
        ("1..8:x2" * 20_000, "is not a range"),
    ],
)
def test_malformed_ranges_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_counts(text, "M")
    assert len(str(caught.value)) < 600


def test_a_list_of_ranges_has_a_limit() -> None:
    assert expand_ranges([1, "2..8:x2", "4Ki", 5.5], "M") == [1, 2, 4, 8, 4096, 5.5]
    with pytest.raises(ValueError, match=r"M: .* 100000 values"):
        expand_ranges(["1..10000:+1"] * 1000, "M")
    assert len(expand_ranges(["7"] * 200_000, "M")) == 200_000


SUITE = b'[[case]]\nname = "x"\noperation = "attention_decode"\n'


def test_python_shell_and_suites_read_ranges_alike() -> None:
    wanted = (1, 2, 4, 8, 100)
    shell = read_request(main_sweep.parser().parse_args(["-p", "M=1..8:x2,100", "--kv-lens", "1..8:x2,100"]))
    assert shell.params == {"M": wanted}
    assert shell.kv_lens == wanted
    requested = main_sweep.parser().parse_args(["--seq-lengths", "1..8:x2,100"])
    assert read_request(requested).seq_lengths == wanted
    suite = suites.parse(SUITE + b'params = { kv_len = ["1..8:x2", 100] }\nkv_lens = "1..3:+1"', source="a.toml")
    assert suite.cases[0].params == {"kv_len": wanted}
    assert suite.cases[0].kv_lens == (1, 2, 3)
    assert registry.parse_lengths(["1..8:x2", 100]) == wanted
    assert registry.parse_lengths("1..8:x2") == (1, 2, 4, 8)


def test_a_sweep_over_a_range() -> None:
    how: dict[str, Any] = {"precision": "fp32", "device": "cpu", "cache": "hot", "roofs": False, "max_seconds": 0}
    assert bwprof.sweep("gemm", M="1..4:x2", N=["8", "9..13:+2"], K=8, **how)[["M", "N"]].to_numpy().tolist() == [
        [m, n] for m in (1, 2, 4) for n in (8, 9, 11, 13)
    ]
    lens = bwprof.sweep("attention_decode", kv_lens="8..32:x2", batch=3, num_heads=2, num_kv_heads=1, **how)
    assert lens["kv_lens"].unique().tolist() == ["8;16;32"]


def test_a_cost_and_a_case_take_lengths_as_ranges() -> None:
    shape = {"num_heads": 2, "num_kv_heads": 1, "batch": 3}
    one = bwprof.cost("attention_decode", kv_lens="8..32:x2", **shape)
    assert one == bwprof.cost("attention_decode", kv_lens=[8, 16, 32], **shape)


def test_the_command_refuses_a_hostile_range(here: Here) -> None:
    code, _, err = here("gemm", "-p", "M=1..1G:+1", "--dry-run")
    assert code == 2
    assert re.search(r"--param M:.*'1\.\.1G:\+1'.* 1000000000.* 10000$", err, re.MULTILINE)
