"""`Case.launch`, which --once calls: on a GPU the kernels are counted by CUPTI, at the driver's door."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from operations import small_cases

from bwprof import _core, registry

DRIVER_API, ENTER = 1, 0  # CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_API_ENTER


class CallbackData(ctypes.Structure):
    """CUpti_CallbackData, as far as it is read."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("arguments", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
    )


Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(CallbackData))


class Launches:
    """What this process launches while `during` runs: a kernel's symbol each; for a graph, the driver's function."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._callback = Callback(self._note)
        self._found: list[str] = []

    def _note(self, _user: object, _domain: int, _id: int, data: ctypes._Pointer[CallbackData]) -> None:
        call = data.contents
        if call.site == ENTER and b"Launch" in call.function:
            kernel = b"Graph" not in call.function  # only a kernel's launch has a symbol
            self._found.append((call.symbol if kernel else call.function).decode())

    def during(self, work: Callable[[], object]) -> list[str]:
        self._found = []
        subscriber = ctypes.c_void_p()
        assert self._library.cuptiSubscribe(ctypes.byref(subscriber), self._callback, None) == 0
        try:
            assert self._library.cuptiEnableDomain(1, subscriber, DRIVER_API) == 0
            work()
        finally:
            self._library.cuptiUnsubscribe(subscriber)
        return self._found


@pytest.fixture(scope="module")
def gpu() -> Iterator[_core.Device]:
    with _core.Device("cuda", 0) as device:
        yield device


@pytest.fixture(scope="module")
def launches(gpu: _core.Device) -> Launches:
    try:
        gpu.floor_ns("cupti")  # opens the library that bwprof finds
    except _core.UnavailableError as error:
        pytest.skip(f"nothing to count with: {error}")
    found = re.search(r"\S*/libcupti\.so\S*", Path("/proc/self/maps").read_text())
    assert found is not None
    return Launches(ctypes.CDLL(found.group()))


def open_case(gpu: _core.Device, one: tuple[str, str, dict[str, int]], variant: str | None = None) -> _core.Case:
    try:
        return _core.Case(gpu, *one, variant=variant)
    except _core.UnsupportedError as error:
        pytest.skip(str(error))


@pytest.mark.cuda
@pytest.mark.parametrize(
    "one", [one for one in small_cases("cuda") if not registry.is_link(one[0])], ids=lambda one: f"{one[0]}-{one[1]}"
)
def test_a_case_is_launched_once(gpu: _core.Device, launches: Launches, one: tuple[str, str, dict[str, int]]) -> None:
    """The first launch fills the buffers and does what the second one does, no more."""
    with open_case(gpu, one) as case:
        first, second = launches.during(case.launch), launches.during(case.launch)
    assert second
    assert first[-len(second) :] == second
    assert all("fill_kernel" in name for name in first[: -len(second)]), first


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 896, 896), (128, 4864, 896)])
def test_a_search_needs_a_measurement(
    gpu: _core.Device, launches: Launches, precision: str, m: int, n: int, k: int
) -> None:
    with open_case(gpu, ("gemm", precision, {"M": m, "N": n, "K": k}), "cublaslt") as case:
        first, second = launches.during(case.launch), launches.during(case.launch)
        checked = launches.during(case.verify)
        after = launches.during(case.launch)
    assert first[-len(second) :] == second
    assert len([name for name in first if "fill_kernel" not in name]) == len(second) <= 2  # one may add up splits of K
    assert sum("GraphLaunch" in name for name in checked) > 4, "candidates are timed as graphs"
    assert len(after) <= 2
    assert not any("GraphLaunch" in name or "fill_kernel" in name for name in after)


def test_a_launch_can_be_followed_by_a_measurement(cpu: _core.Device) -> None:
    with _core.Case(cpu, "gemm", "fp32", {"M": 3, "N": 17, "K": 29}) as case:
        case.launch()
        assert case.measure(cache="hot", max_seconds=0.0)["verified"]
        case.launch()
        assert case.verify()["verified"]
