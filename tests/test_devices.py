"""Names of devices, equal in every function and in the shell; sizes with suffixes."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bwprof
from bwprof import _core, hardware

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT: dict[str, Any] = {"cache": "hot", "max_seconds": 0.02}


@pytest.mark.parametrize(
    ("given", "backend", "found"),
    [
        (None, None, (None, None)),
        (None, "CPU", ("cpu", None)),
        ("cpu", None, ("cpu", None)),
        ("cuda:1", None, ("cuda", 1)),
        (" CUDA:10 ", "cuda", ("cuda", 10)),
        (1, None, (None, 1)),
        (np.int64(1), "cuda", ("cuda", 1)),
        ("1", "cuda", ("cuda", 1)),
        (types.SimpleNamespace(type="cuda", index=2), None, ("cuda", 2)),  # a torch.device
        (types.SimpleNamespace(type="cpu", index=None), None, ("cpu", None)),
    ],
)
def test_names_of_devices(given: Any, backend: str | None, found: object) -> None:
    assert hardware.parse_device(given, backend) == found


@pytest.mark.parametrize(
    "given", ["gpu", "cuda:", "cuda:x", "cuda:-1", ":1", "", "cpu:0:0", 1.5, True, b"cpu", [0], "²"]
)
def test_other_values_are_no_devices(given: Any) -> None:
    with pytest.raises(ValueError, match=r"'cuda', 'cuda:0', 'cpu'"):
        hardware.parse_device(given)


def test_devices_and_backends_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match=r"device.*'cuda:1'.*backend.*'cpu'"):
        hardware.parse_device("cuda:1", "cpu")
    with pytest.raises(ValueError, match=r"'cpu'.*device 7:.*0"):
        hardware.choose_device(device="cpu:7")
    with pytest.raises(ValueError, match=r"'cpu'.*device -1"):
        hardware.choose_device("cpu", -1)


def of_case(device: Any, **more: Any) -> str:
    with bwprof.Case("gemm", M=1, N=8, K=8, device=device, **more) as case:
        return f"{case.backend}:{case.device}"


def of_measure(device: Any, **more: Any) -> str:
    row = bwprof.measure(lambda: None, device=device, roofs=False, **SHORT, **more)
    return f"{row.backend}:{row.device}"


def of_sweep(device: Any, **more: Any) -> str:
    frame = bwprof.sweep("gemm", M=1, N=8, K=8, precision="fp32", device=device, cache="hot", roofs=False, **more)
    return f"{frame['backend'][0]}:{frame['device'][0]}"


def of_sweep_of_a_function(device: Any, **more: Any) -> str:
    frame = bwprof.sweep(lambda: None, device=device, cache="hot", roofs=False, **more)
    return f"{frame['backend'][0]}:{frame['device'][0]}"


def of_profiler(device: Any, **more: Any) -> str:
    with bwprof.Profiler(device=device, **more) as profiler, profiler.range("a"):
        pass
    with bwprof.Profiler(device=device, **more) as profiler:
        attrs = profiler.frame().attrs
        return f"{attrs['backend']}:{attrs['device']}"


def of_selftest(device: Any, **more: Any) -> str:
    found = bwprof.selftest("timers", quick=True, device=device, **more)
    return f"{found['backend']}:{found['device']}"


EVERYWHERE = [of_case, of_measure, of_sweep, of_sweep_of_a_function, of_profiler, of_selftest]


@pytest.mark.parametrize("way", EVERYWHERE)
def test_every_function_takes_the_same_names(way: Callable[..., str]) -> None:
    cpu = next(device for device in bwprof.devices() if device["backend"] == "cpu")
    wanted = f"cpu:{cpu['name']}"
    assert way("cpu") == way("CPU:0") == way(0, backend="cpu") == way(None, backend="cpu") == wanted
    with pytest.raises(ValueError, match="device is 'gpu'"):
        way("gpu")


@pytest.mark.parametrize("option", [["--device", "cpu"], ["--device", "cpu:0"], ["--backend", "cpu", "--device", "0"]])
def test_the_command_takes_the_same_names(here: Any, option: list[str]) -> None:
    code, out, err = here("gemm", "--dry-run", *option)
    assert (code, err) == (0, "")
    assert "on cpu:0" in out


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--device", "gpu"], "device is 'gpu': allowed are a number and names like 'cuda'"),
        (["--device", "cpu", "--backend", "cuda"], "device is 'cpu' and backend is 'cuda'"),
    ],
)
def test_the_command_refuses_the_same_names(here: Any, option: list[str], said: str) -> None:
    code, _, err = here("gemm", "--dry-run", *option)
    assert code == 2
    assert said in err


@pytest.mark.cuda
def test_a_gpu_by_its_backends_name() -> None:
    assert of_case("cuda") == of_case("cuda:0") == of_case(0, backend="cuda")


def test_sizes_with_suffixes_everywhere() -> None:
    with bwprof.Case("gemm", M="1", N="1Ki", K="2k", device="cpu") as case:
        assert case.params == {"M": 1, "N": 1024, "K": 2000, "beta": 0}
    assert bwprof.cost("gemm", M=1, N="1Ki", K=8) == bwprof.cost("gemm", M=1, N=1024, K=8)
    many = bwprof.cost("gemm", M=1, N=["1Ki", 2, "4Mi"], K=8)
    assert many == bwprof.cost("gemm", M=1, N=[1024, 2, 1 << 22], K=8)
    assert bwprof.cost("gemm", M=1, N=np.array(["1Ki"]), K=8).bytes.shape == (1,)
    lens = bwprof.cost("attention_decode", batch=2, kv_lens=["1Ki", 5])
    assert lens == bwprof.cost("attention_decode", batch=2, kv_lens=[1024, 5])
    frame = bwprof.sweep(
        "gemm", M=1, N=["1Ki", "64"], K=8, precision="fp32", device="cpu", cache="hot", roofs=False, seed="1k"
    )
    assert (frame["N"].tolist(), frame["seed"].tolist()) == ([1024, 64], [1000, 1000])
    row = bwprof.measure(
        lambda: None, device="cpu", roofs=False, bytes_read="4Ki", bytes_written="1k", flops="1M", **SHORT
    )
    assert (row.bytes_read, row.bytes_written, row.flops) == (4096, 1000, 1_000_000)
    profiler = bwprof.Profiler(device="cpu", enabled=False)
    profiler.set_bytes("a", "1Mi", 0)


@pytest.mark.parametrize("wrong", ["4Kib", "1.5Ki", "", "Ki", "4 4"])
def test_wrong_sizes_are_refused(wrong: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: bwprof.cost("gemm", M=wrong),
        lambda: bwprof.cost("gemm", M=[wrong]),
        lambda: bwprof.Case("gemm", M=wrong, device="cpu"),
        lambda: bwprof.sweep("gemm", M=wrong, device="cpu"),
        lambda: bwprof.cost("attention_decode", kv_lens=[wrong]),
        lambda: bwprof.measure(lambda: None, bytes_read=wrong, device="cpu"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"'{wrong}' is not a whole number \\(suffixes k, M, G, Ki, Mi, Gi"):
            call()


def test_the_registry_knows_every_backend_that_a_name_may_have() -> None:
    assert {name for name, _ in (hardware.parse_device(backend["name"]) for backend in _core.backends())} == {
        "cuda",
        "cpu",
    }
