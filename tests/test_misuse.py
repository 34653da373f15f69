"""The extension in the hands of code that means no good: an exception each time, never a crash or a hang.

What would crash or hang runs in a process of its own, with a time limit.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from bwprof import _core

PARAMS = {"M": 3, "N": 5, "K": 7}
SECONDS = 60
START = """
import os, sys
import numpy as np
from bwprof import _core
device = _core.Device("cpu")
def make():
    return _core.Case(device, "gemm", "fp32", {"M": 3, "N": 5, "K": 7})
"""


def outcome_of(code: str) -> str:
    """What a process prints that runs `code` after START."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_numbers_that_close_the_device():
    said = outcome_of("""
        class Closer:
            def __index__(self):
                device.close()
                return 3
        for use in (lambda p: _core.Case(device, "gemm", "fp32", p), lambda p: device.variants("gemm", "fp32", p)):
            device = _core.Device("cpu")
            try:
                use({"M": Closer()})
            except ValueError as error:
                print(error)
        """)
    assert said.splitlines() == ["the Device is closed", "this Device is closed"]


def test_a_number_that_opens_the_case_itself():
    said = outcome_of("""
        case = _core.Case.__new__(_core.Case)
        class Opener:
            def __index__(self):
                case.__init__(device, "gemm", "fp32", {"M": 3, "N": 5, "K": 7})
                return 4
        try:
            case.__init__(device, "gemm", "fp32", {"M": Opener()})
        except ValueError as error:
            print(error)
        case.close()
        device.close()
        print("closed")
        """)
    assert said.splitlines() == ["this Case is open already", "closed"]


def test_mappings_whose_items_are_no_pairs():
    said = outcome_of("""
        class Items:
            def items(self):
                return [1, ("M",), ()]
            def __getitem__(self, key):
                return 1
        for use in (lambda m: _core.complete("gemm", "fp32", m), lambda m: make().run(m)):
            for given in (Items(), None, "M", 5):
                try:
                    use(given)
                except TypeError as error:
                    print(str(error).partition(",")[0])
        """)
    assert (
        said.splitlines()
        == ["params must be a mapping of names to values"] * 4 + ["arrays must be a mapping of names to values"] * 4
    )


def test_lengths_that_change_while_they_are_read():
    said = outcome_of("""
        lens = [1] * 1000
        class Clearer:
            def __index__(self):
                lens.clear()
                return 3
        lens[0] = Clearer()
        print(_core.complete("attention_decode", "fp32", {}, lens)["batch"])
        """)
    assert said == "1000"


@pytest.mark.parametrize(
    ("lens", "kind", "message"),
    [
        (5, TypeError, "sequence of lengths, not 5"),
        ("12", TypeError, "sequence of lengths, not '12'"),
        (b"12", TypeError, "sequence of lengths"),
        ([], ValueError, "kv_lens is empty"),
        ([3, 0], ValueError, r"kv_lens\[1\] = 0: allowed is 1 or more"),
        ([-1], ValueError, r"kv_lens\[0\] = -1: allowed is 1 or more"),
        ([2**63], ValueError, "overflows 64 bits"),
        ([1.5], ValueError, "kv_lens = 1.5: allowed is a whole number"),
    ],
)
def test_bad_lengths(lens, kind, message):
    with pytest.raises(kind, match=message):
        _core.complete("attention_decode", "fp32", {}, lens)


@pytest.mark.parametrize("name", ["M\0x", "\udcff", 5, None, b"M"])
def test_names_that_are_no_names(device, name):
    with pytest.raises(ValueError, match="gemm has no parameter"):
        _core.complete("gemm", "fp32", {name: 5})
    with _core.Case(device, "gemm", "fp32", PARAMS) as case, pytest.raises(ValueError, match="gemm has no input array"):
        case.run({name: np.zeros((3, 7), np.float32)})


@pytest.mark.parametrize("seed", [-1, 2**64, 2**200])
def test_a_seed_out_of_range_is_not_wrapped(device, seed):
    with pytest.raises(ValueError, match=f"seed = {seed}: allowed is 0 to 2"):
        _core.Case(device, "gemm", "fp32", PARAMS, seed=seed)


@pytest.mark.parametrize("index", [-1, -(2**40), 2**31, 2**70, 1.5, None])
def test_no_such_device_number(index):
    with pytest.raises(ValueError, match=r"allowed is|overflows"):
        _core.Device("cpu", index)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("precision_target", float("nan")),
        ("precision_target", 0.0),
        ("max_seconds", -1.0),
        ("max_seconds", float("nan")),
        ("verify_budget_s", -1.0),
        ("min_samples", 0),
        ("min_samples", 2**70),
        ("min_samples", 1.5),
    ],
)
def test_options_of_a_measurement_name_themselves(device, name, value):
    with _core.Case(device, "gemm", "fp32", PARAMS) as case, pytest.raises(ValueError, match=f"{name} = "):
        case.measure(**{name: value})


@pytest.mark.parametrize("budget", [float("nan"), -1.0])
def test_budget_of_a_verification(device, budget):
    with _core.Case(device, "gemm", "fp32", PARAMS) as case, pytest.raises(ValueError, match="budget_s = "):
        case.verify(budget)


def test_a_poll_function_that_drops_other_cases_of_the_device():
    said = outcome_of("""
        case, other = make(), make()
        other.run({})
        def poll():
            other.close()
            made = make()
            made = None
        print(case.measure(cache="hot", max_seconds=0.01, poll=poll)["verified"])
        device.close() if case.close() is None else None
        print("closed")
        """)
    assert said.splitlines() == ["True", "closed"]


def test_a_handle_does_not_outlive_a_fork():
    said = outcome_of("""
        case = _core.Case(device, "gemm", "fp32", {"M": 300, "N": 300, "K": 300})
        case.run({})
        child = os.fork()
        if child == 0:
            for use in (case.launch, lambda: case.run({}), device.memory, lambda: case.measure(max_seconds=0.01)):
                try:
                    use()
                except _core.UnavailableError as error:
                    print("fork" in str(error), flush=True)
            case.close()
            device.close()
            with _core.Device("cpu") as fresh:
                with _core.Case(fresh, "gemm", "fp32", {"M": 3, "N": 5, "K": 7}) as again:
                    print(again.verify()["verified"], flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], case.verify()["verified"])
        """)
    assert said.splitlines() == ["True"] * 5 + ["0 True"]
