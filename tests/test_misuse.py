"""The extension in the hands of code that means no good: an exception each time, never a crash or a hang.

What would crash or hang runs in a process of its own, with a time limit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from bwprof import _core

PARAMS = {"M": 3, "N": 5, "K": 7}
SECONDS = 300
START = """
import os, sys
import numpy as np
from bwprof import _core
device = _core.Device("cpu")
def make():
    return _core.Case(device, "gemm", "fp32", {"M": 3, "N": 5, "K": 7})
"""


def outcome_of(code: str) -> str:
    """What a process prints that runs `code` after START. Freed memory is overwritten there, so that its use shows."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(code)],
        env={**os.environ, "MALLOC_PERTURB_": "170"},
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
    assert said.splitlines() == ["this Device is closed", "this Device is closed"]


# Every entry of the three types, and an ordinary value of each parameter.
ENTRIES = """
import functools, gc, inspect
ORDINARY = {
    "operation": "gemm", "precision": "fp32", "params": {"M": 3, "N": 5, "K": 7}, "variant": "naive", "kv_lens": None,
    "function": int, "nothing": int, "stream": 0, "sets": 1, "footprint_bytes": 0, "cache": "hot", "groups": [],
    "precision_target": 0.5, "min_samples": 2, "max_seconds": 0.0, "verify_budget_s": 0.0, "budget_s": 0.0,
    "poll": None, "timer": None, "flush": None, "trace": False, "settled": True, "rotated": False, "outputs": {},
    "arrays": {}, "threads": 1, "countdown": 0, "plan": 0, "capacity": 4, "nvtx": False, "name": "x", "bytes": 1,
    "on": True, "seed": 0, "device": None, "bytes_read": 1, "bytes_written": 1,
}
def close(target):
    try:
        target.close()
    except (ValueError, RuntimeError):  # it is in use, or cases of it are open
        return False
    return True
class Closer:
    closed = False
    def __init__(self, value):
        self.value = value
    def close(self, *unused):
        Closer.closed |= close(Closer.target)
        return self.value
    __index__ = __bool__ = __float__ = __call__ = close
    def __len__(self):
        return len(self.close())
    def __iter__(self):
        return iter(self.close())
    def keys(self):
        return self.close().keys()
    def __getitem__(self, key):
        return self.close()[key]
class Name(str):
    def __eq__(self, other):
        Closer.closed |= close(Closer.target)
        return str.__eq__(self, other)
    __hash__ = str.__hash__
class Last:
    def __init__(self):
        self.itself = self
    def __del__(self):
        Closer.closed = close(Closer.target)
os.environ["BWPROF_CPU_THREADS"] = "1"
def target_of(kind):
    device = _core.Device("cpu")
    if kind == "Case":
        return _core.Case(device, "gemm", "fp32", ORDINARY["params"])
    if kind == "Profiler":
        profiler = _core.Profiler()
        profiler.open(device)
        profiler.switch(True)
        profiler.start("x")
        return profiler
    return device
def entries():
    for kind in ("Device", "Case", "Profiler"):
        for name in dir(getattr(_core, kind)):
            found = getattr(getattr(_core, kind), name)
            if name.startswith("__") or name in ("close", "open"):
                continue
            if callable(found):
                yield kind, name, found, list(inspect.signature(found).parameters.values())[1:]
            else:
                yield kind, name, found.__get__, []
    yield "Device", "Case", _core.Case, list(inspect.signature(_core.Case).parameters.values())[1:]
    opening = list(inspect.signature(_core.Profiler.open).parameters.values())[2:]
    yield "Device", "open", lambda device, *values, **named: _core.Profiler().open(device, *values, **named), opening
def bound(function, target, parameters, hostile=None, keys=False):
    positional, named = [target], {}
    for parameter in parameters:
        name, value = parameter.name, ORDINARY[parameter.name]
        if name == hostile:
            value = Closer(value)
        if parameter.kind is parameter.KEYWORD_ONLY or keys and parameter.default is not parameter.empty:
            named[Name(name) if keys else name] = value
        else:
            positional.append(value)
    return functools.partial(function, *positional, **named)
def answers(use):
    try:
        use()
    except (ValueError, TypeError, RuntimeError):
        return False
    return True
"""


def test_every_entry_whose_arguments_close_what_it_works_on():
    """What is closed meanwhile is refused."""
    said = outcome_of(
        ENTRIES
        + """
tried = 0
for kind, name, function, parameters in entries():
    for hostile, keys in [*((parameter.name, False) for parameter in parameters), (None, True)]:
        target = Closer.target = target_of(kind)
        use = bound(function, target, parameters, hostile, keys)
        Closer.closed = False
        if answers(use) and Closer.closed:
            print(kind, name, hostile or "keywords")
        tried += Closer.closed
print(tried > 20 or tried)
"""
    )
    assert said.splitlines() == ["True"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="since 3.12 no garbage is collected inside a call of C")
def test_every_entry_beside_garbage_that_closes_what_it_works_on():
    said = outcome_of(
        ENTRIES
        + """
gc.disable()
filled = []
for kind, name, function, parameters in entries():
    for allocations in range(1, 8):
        target = Closer.target = target_of(kind)
        use = bound(function, target, parameters)
        gc.collect()
        Last()
        filled += [[{} for _ in range(100)], [[] for _ in range(100)]]  # none comes from a list of free ones
        gc.set_threshold(gc.get_count()[0] + allocations)
        gc.enable()
        Closer.closed = False
        if answers(use) and Closer.closed and name == "variants":
            print("rows of a device that is closed")
        gc.disable()
print("done")
"""
    )
    assert said == "done"


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
    assert re.fullmatch("this Case .*open.*\nclosed", said)


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
    assert [line.split()[0] for line in said.splitlines()] == ["params"] * 4 + ["arrays"] * 4
    assert said.count(" mapping ") == 8


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


def test_lengths_beyond_what_the_parameters_say():
    """Keys behind kv_len, or of a sequence too many, would be read from memory that is nobody's."""
    assert _core.complete("attention_decode", "fp32", {"kv_len": 8, "batch": 2}, [8, 1])["kv_len"] == 8
    with pytest.raises(ValueError, match=r"kv_lens\[1\] = 9:.* 8"):
        _core.complete("attention_decode", "fp32", {"kv_len": 8}, [8, 9])
    with pytest.raises(ValueError, match=r"kv_lens has 3 .*2"):
        _core.complete("attention_decode", "fp32", {"batch": 2}, [1, 1, 1])


@pytest.mark.parametrize("name", ["M\0x", "\udcff", 5, None, b"M"])
def test_names_that_are_no_names(device, name):
    with pytest.raises(ValueError, match="gemm has no parameter"):
        _core.complete("gemm", "fp32", {name: 5})
    with _core.Case(device, "gemm", "fp32", PARAMS) as case, pytest.raises(ValueError, match="no input array"):
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
        ("max_seconds", float("inf")),
        ("verify_budget_s", -1.0),
        ("verify_budget_s", float("inf")),
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


# ---- exceptions of others ----


class Stop:
    """Whatever is asked of it, somebody presses Ctrl-C."""

    def __index__(self):
        raise KeyboardInterrupt

    def __getattr__(self, name):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "use",
    [
        lambda device: _core.complete("gemm", "fp32", {"M": Stop()}),
        lambda device: _core.complete("gemm", "fp32", Stop()),
        lambda device: _core.complete("attention_decode", "fp32", {}, [Stop()]),
        lambda device: _core.Case(device, "gemm", "fp32", PARAMS, seed=Stop()),
        lambda device: _core.Device("cpu", Stop()),
        lambda device: device.measure_call(print, print, sets=Stop()),
    ],
)
def test_an_interrupt_while_a_number_is_converted_is_raised(cpu, use):
    with pytest.raises(KeyboardInterrupt):
        use(cpu)


@pytest.mark.parametrize("value", [1.5, "3", None, [3], np.array([1, 2])])
def test_fractions_as_sizes(value):
    with pytest.raises(ValueError, match=r"gemm: M = .*whole"):
        _core.complete("gemm", "fp32", {"M": value})


def test_text_that_is_not_utf_8(monkeypatch):
    monkeypatch.setenv("BWPROF_CPU_ISA", "\udcff\u00e9")
    with pytest.raises(ValueError, match=r"^BWPROF_CPU_ISA is '\\xff\u00e9'"):
        _core.Device("cpu")


# ---- names and arrays given in a strange way ----


class Name(str):
    """Equal to nothing but itself, so that a dict holds two of one text."""

    __slots__ = ()

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)


def test_an_array_given_twice_under_one_name(cpu):
    first, second = np.zeros((3, 7), np.float32), np.zeros((3, 7), np.float32)
    counts = sys.getrefcount(first), sys.getrefcount(second)
    with _core.Case(cpu, "gemm", "fp32", PARAMS) as case, pytest.raises(ValueError, match="gemm: A "):
        case.run({"A": first, Name("A"): second})
    assert (sys.getrefcount(first), sys.getrefcount(second)) == counts
    with pytest.raises(ValueError, match="gemm: M "):
        _core.complete("gemm", "fp32", {"M": 1, Name("M"): 2})


A32 = np.linspace(-1, 1, 21, dtype=np.float32).reshape(3, 7)
A16 = A32.astype(np.float16)


@pytest.mark.parametrize(
    ("precision", "array", "said"),
    [
        ("fp32", A32.astype(">f4"), "items '>f' of 4 bytes: allowed are bytes, or fp32 items of 4 bytes in this"),
        ("fp32", A16.repeat(2).reshape(3, 14), "items 'e' of 2 bytes"),
        ("fp32", A32.astype(np.int32), "items 'i' of 4 bytes"),
        ("fp16", A16.view(np.uint16).astype(">u2"), "items '>H' of 2 bytes"),
        ("fp16", A16.view(np.int16), "items 'h' of 2 bytes"),
        ("bf16", A16, "items 'e' of 2 bytes: allowed are bytes, or bf16 items"),
        ("fp16", A32[:, :3], "not C-contiguous"),
        ("fp16", np.zeros(21, [("a", "u2")]), "items 'T{H:a:}' of 2 bytes"),
    ],
)
def test_arrays_of_another_kind(cpu, precision, array, said):
    with (
        _core.Case(cpu, "gemm", precision, PARAMS) as case,
        pytest.raises(ValueError, match=f"{re.escape(said)}"),
    ):
        case.run({"A": array})


@pytest.mark.parametrize("array", [A16, A16.view(np.uint16), A16.tobytes(), A16.view(np.int8), A16.astype("=f2")])
def test_arrays_of_the_right_kind(cpu, array):
    with _core.Case(cpu, "gemm", "fp16", PARAMS) as case:
        assert case.run({"A": array}) == case.run({"A": A16.tobytes()})
        assert case.run({"A": array}) != case.run({})


# ---- other code in between ----


def test_objects_made_for_a_case_that_closes_meanwhile():
    """Where making an object collects garbage, a finalizer may close what the object is made of."""
    said = outcome_of("""
        import gc
        gc.disable()
        class Closer:
            def __init__(self, target):
                self.target, self.itself = target, self
            def __del__(self):
                self.target.close()
        for name in ("params", "operands", "cost", "variant"):
            case = make()
            gc.collect()
            Closer(case)
            gc.set_threshold(1)
            gc.enable()
            value = getattr(case, name)
            gc.disable()
            print(repr(value)[:1])
        other = _core.Device("cpu")
        gc.collect()
        Closer(other)
        gc.enable()
        facts = other.facts()
        gc.disable()
        print(facts["timer"])
        """)
    assert said.split() == ["{", "[", "{", "'", "monotonic"]


def test_a_device_that_closes_as_soon_as_a_measurement_ends():
    """The result names the timer, which is the device's."""
    said = outcome_of("""
        import threading
        sys.setswitchinterval(1e-6)
        for _ in range(30):
            device = _core.Device("cpu")
            started = threading.Event()
            def close():
                started.wait()
                while True:
                    try:
                        return device.close()
                    except RuntimeError:
                        pass
            thread = threading.Thread(target=close)
            thread.start()
            said = device.measure_call(started.set, lambda: None, cache="hot", max_seconds=0.0)["timer"]
            thread.join()
            assert said == "monotonic", said
        print("done")
        """)
    assert said == "done"


def test_a_device_that_four_threads_open():
    """One of them does; the others are told so, and nothing of theirs stays."""
    said = outcome_of("""
        import threading
        target = _core.Device.__new__(_core.Device)
        start = threading.Barrier(4)
        said = []
        def use():
            start.wait()
            try:
                target.__init__("cpu")
                said.append("open")
            except ValueError as error:
                said.append(str(error))
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        target.close()
        told = [line for line in said if line.startswith("this Device is")]
        print(len(told), said.count("open"))
        """)
    assert said == "3 1"


def test_a_case_that_a_poll_function_closes_after_another_threads_call():
    """Two threads use one case; the call that is left, not the one that came first, is what must not be closed."""
    said = outcome_of("""
        import threading
        case = make()
        inside, go = threading.Event(), threading.Event()
        class Slow:
            def keys(self):
                inside.set()
                go.wait()
                return []
        def run():
            try:
                case.run(Slow())
            except RuntimeError as error:
                print("another thread" in str(error))
        thread = threading.Thread(target=run)
        thread.start()
        inside.wait()
        def poll():
            if thread.is_alive():
                go.set()
                thread.join()
                try:
                    case.close()
                except ValueError as error:
                    print(error)
        print(case.measure(cache="hot", max_seconds=0.01, poll=poll)["verified"])
        case.close()
        """)
    assert re.fullmatch("True\nthis Case.*closed.*\nTrue", said)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="since 3.12 no garbage is collected inside a call of C")
def test_a_profiler_is_not_closed_while_its_floor_is_read():
    said = outcome_of("""
        import gc
        profiler = _core.Profiler()
        profiler.open(device)
        profiler.switch(True)
        for number in range(300):
            profiler.start(str(number))
            profiler.stop(str(number))
        class Closer:
            def __init__(self):
                self.itself = self
            def __del__(self):
                profiler.floor_ns()
                try:
                    profiler.close()
                except RuntimeError as error:
                    print(error)
        gc.disable()
        gc.collect()
        Closer()
        gc.set_threshold(1)
        gc.enable()
        events = profiler.events()
        gc.disable()
        print(sum(len(ranges) for ranges in events.values()))
        profiler.close()
        """)
    assert re.fullmatch("this Profiler .*read.*\n300", said)
