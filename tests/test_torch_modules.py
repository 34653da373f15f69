"""bwprof.torch.profile and bwprof.torch_profiler_rows; tests that need PyTorch run where it is installed."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bwprof
from bwprof.profiler import torch_modules
from bwprof.profiler.torch_calls import CallState, bytes_of, count_moved, tensors_in, weights_of

KIB = 1 << 10


# ---- bytes of a call, on stand-ins for PyTorch's tensors ----


class Storage:
    """A tensor's memory."""

    def __init__(self) -> None:
        self._cdata = id(self)


class Toy:
    """A dense tensor."""

    layout = "torch.strided"
    device = "cpu"

    def __init__(
        self, *shape: int, dtype: str = "float32", size: int = 4, of: Toy | None = None, offset: int = 0
    ) -> None:
        self.shape, self.dtype, self._size = shape, f"torch.{dtype}", size
        self._storage = of._storage if of else Storage()
        self._offset, self._version = offset, 0
        self.steps = tuple(int(np.prod(shape[place + 1 :])) for place in range(len(shape)))

    def element_size(self) -> int:
        return self._size

    def numel(self) -> int:
        return int(np.prod(self.shape))

    def stride(self) -> tuple[int, ...]:
        return self.steps

    def untyped_storage(self) -> Storage:
        return self._storage

    def storage_offset(self) -> int:
        return self._offset


def of_call(argument: Any, own: list[Any], output: Any, **how: Any) -> tuple[int, int]:
    found = count_moved(CallState(list(tensors_in(argument)), own), output, **how)
    return found.read, found.written


def test_bytes_of_a_call() -> None:
    x, w, b, y = Toy(8, 64), Toy(256, 64), Toy(256), Toy(8, 256, dtype="float16", size=2)
    assert of_call(((x,), {}), [w, b], y) == (4 * (8 * 64 + 256 * 64 + 256), 2 * 8 * 256)
    assert of_call(((x, x), {"again": [x]}), [w, w], {"a": y, "b": (y, None)}) == (4 * (8 * 64 + 256 * 64), 4096)
    assert of_call(((), {}), [], None) == (0, 0)
    assert of_call((3, "text"), [w], 3.5) == (4 * 256 * 64, 0)
    assert count_moved(CallState([x], []), y).precision == "fp16"


def test_views_and_writes_in_place() -> None:
    x = Toy(1024)
    assert of_call(x, [], Toy(512, of=x)) == (0, 0), "a view of an argument"
    before = CallState([x], [])
    x._version += 1
    assert count_moved(before, x) == count_moved(before, None)
    assert (count_moved(before, x).read, count_moved(before, x).written) == (4096, 4096)
    x._version = None  # type: ignore[assignment] # nobody counts
    assert of_call(x, [], x, in_place=True) == (4096, 4096)
    assert of_call(x, [], x) == (0, 0)


def test_expanded_elements_count_once() -> None:
    x = Toy(64, 1024)
    x.steps = (0, 1)
    assert bytes_of(x) == 4096


def test_sparse_tensors_are_their_parts() -> None:
    x = Toy(1024, 1024)
    x.layout = "torch.sparse_coo"
    x._indices = lambda: Toy(2, 10, dtype="int64", size=8)  # type: ignore[attr-defined]
    x._values = lambda: Toy(10)  # type: ignore[attr-defined]
    assert bytes_of(x) == 2 * 10 * 8 + 10 * 4


def test_quantized_weights_have_their_stored_bytes() -> None:
    class Quantized(Toy):
        def __tensor_flatten__(self) -> tuple[list[str], None]:
            return ["values", "scale"], None

    weight = Quantized(64, 32, dtype="bfloat16", size=2)
    weight.values, weight.scale = Toy(64, 16, dtype="uint8", size=1), Toy(64)  # type: ignore[attr-defined]
    assert bytes_of(weight) == 64 * 16 + 64 * 4
    packed = Toy(1024, 1, dtype="uint8", size=1)
    packed.quant_state = SimpleNamespace(absmax=Toy(32), code=Toy(16), dtype="bf16")  # type: ignore[attr-defined]
    module = SimpleNamespace(parameters=lambda: [packed], buffers=list)
    assert sum(map(bytes_of, weights_of(module))) == 1024 + 4 * (32 + 16)
    hidden = SimpleNamespace(
        parameters=list, buffers=list, _packed_params=None, weight=lambda: Toy(8, size=1), bias=list
    )
    assert sum(map(bytes_of, weights_of(hidden))) == 8


def test_a_causal_query_attends_the_keys_up_to_its_position() -> None:
    """4 queries of 3 keys: 1 + 2 + 3 + 3 pairs; 2 of 5: 1 + 2."""
    for queries, keys, pairs in ((4, 3, 9), (2, 5, 3), (3, 3, 6)):
        q, k = (2, 1, queries, 8), (2, 1, keys, 8)
        assert torch_modules._attention_flops(4, q, k, k, 0.0, True) == 2 * 2 * pairs * (8 + 8)
        assert torch_modules._attention_flops(4, q, k, k, is_causal=True) == 2 * 2 * pairs * (8 + 8)
        assert torch_modules._attention_flops(4, q, k, k) == 2 * 2 * queries * keys * (8 + 8)


def test_recursive_containers_are_searched_once() -> None:
    x = Toy(4)
    container: list[Any] = [x]
    container.append(container)
    assert set(tensors_in(container)) == {x}


def test_bwprof_torch_needs_pytorch_only_when_it_is_used() -> None:
    program = """
import sys
sys.modules["torch"] = None
import bwprof
bwprof.torch
try:
    bwprof.torch.profile(None)
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("bwprof.torch needs PyTorch")


# ---- with PyTorch ----


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    found.manual_seed(0)
    return found


def profiled(model: Any, *inputs: Any, **how: Any) -> dict[str, bwprof.Row]:
    frame = bwprof.torch.profile(model, *inputs, **{"roofs": False, "runs": 2, "warmup": 0} | how)
    return {row.case: row for row in bwprof.rows(frame)}


def hooks_on(model: Any) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_modules_of_a_model(torch: Any) -> None:
    nn = torch.nn
    first = nn.Linear(64, 256)
    model = nn.Sequential(first, nn.GELU(), nn.Linear(256, 64, bias=False), first, nn.ReLU(inplace=True), nn.Flatten())
    x = torch.ones(8, 64)
    with torch.no_grad():
        wanted = model(x)
        rows = profiled(model, x)
        assert torch.equal(model(x), wanted)
    assert hooks_on(model) == 0
    assert list(rows) == ["0", "1", "2", "4", "5", "(outside modules)"]
    assert (rows["0"].operation, rows["0"].precision, rows["0"].calls) == ("Linear", "fp32", 2)
    assert (rows["0"].bytes_read, rows["0"].bytes_written) == (2 * 4 * (8 * 64 + 64 * 256 + 256), 2 * 4 * 8 * 256)
    assert rows["0"].flops == 2 * 2 * 8 * 64 * 256
    assert rows["2"].arithmetic_intensity == pytest.approx(2 * 8 * 64 * 256 / (4 * (8 * 256 + 64 * 256 + 8 * 64)))
    assert (rows["4"].bytes_read, rows["4"].bytes_written) == (8 * KIB, 8 * KIB), "what it changes it reads and writes"
    assert (rows["5"].bytes_read, rows["5"].bandwidth_gb_s) == (0, None), "a view"
    moved_bytes = rows["1"].bytes_read + rows["1"].bytes_written
    assert rows["1"].bandwidth_gb_s == pytest.approx(moved_bytes / rows["1"].time_ms / 1e6)
    assert sum(row.share_pct for row in rows.values()) == pytest.approx(100)
    assert all(row.time_ms > 0 for name, row in rows.items() if name != "(outside modules)")


def test_arguments_and_results_of_any_shape_are_counted(torch: Any) -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: Any, *, scale: Any = None, runs: int = 0) -> Any:
            return {"a": (x * scale, [x + runs]), "n": None}

    class Nothing(torch.nn.Module):
        def forward(self, x: Any) -> None:
            x.add_(1)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd, self.nothing, self.unused = Odd(), Nothing(), torch.nn.Linear(4, 4)

        def forward(self, x: Any, *, scale: Any, runs: int = 1) -> Any:
            self.nothing(x)
            return self.odd(x, scale=scale, runs=runs)

    frame = bwprof.torch.profile(
        Model(), torch.ones(256), scale=torch.ones(1), kwargs={"runs": 3}, roofs=False, runs=1, warmup=0
    )
    rows = {row.case: row for row in bwprof.rows(frame)}
    assert (rows["odd"].bytes_read, rows["odd"].bytes_written) == (1024 + 4, 2048)
    assert (rows["nothing"].bytes_read, rows["nothing"].bytes_written) == (1024, 1024)
    assert frame.attrs["model"]["not_called"] == ["unused"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_hooks_are_removed_after_any_error(torch: Any, error: type[BaseException], at: int) -> None:
    """In the warm-up, the counting, the rehearsal and the timing."""

    class Fails(torch.nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            if self.calls == at:
                raise error("planned")
            return x + 1

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Fails())
    with pytest.raises(error, match="planned"):
        profiled(model, torch.ones(1, 4), warmup=1)
    assert hooks_on(model) == 0
    model[1].calls = at
    assert torch.isfinite(model(torch.ones(1, 4))).all()
    assert profiled(model, torch.ones(1, 4))["0"].calls == 1, "and it can be done again"


def test_others_hooks_stay(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model[0].register_forward_hook(lambda _module, _arguments, output: output + 1)
    wanted = model(torch.ones(1, 4))
    profiled(model, torch.ones(1, 4))
    assert torch.equal(model(torch.ones(1, 4)), wanted)
    assert hooks_on(model) == 1


def test_random_numbers_are_the_same_after_profiling(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.5))
    torch.manual_seed(1)
    wanted = torch.rand(4)
    torch.manual_seed(1)
    profiled(model, torch.ones(64))
    assert torch.equal(torch.rand(4), wanted)


def test_autocast_and_inference_mode(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(inplace=True))
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        rows = profiled(model, torch.ones(4, 64))
    assert rows["0"].precision == "bf16"
    assert rows["0"].bytes_written == 2 * 4 * 64
    assert (rows["1"].bytes_read, rows["1"].bytes_written) == (512, 512)


@pytest.mark.parametrize("counted", [True, False], ids=["PyTorch counts it", "an older PyTorch does not"])
def test_tables_and_attention(torch: Any, monkeypatch: pytest.MonkeyPatch, counted: bool) -> None:
    if not counted:
        known = importlib.import_module("torch.utils.flop_counter").flop_registry
        monkeypatch.delitem(known, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, raising=False)
    table = profiled(torch.nn.Embedding(1000, 64), torch.tensor([[1, 5, 5]]))["(model)"]
    assert (table.bytes_read, table.bytes_written) == (3 * 8 + 3 * 256, 3 * 256)
    model = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    with torch.no_grad():
        rows = profiled(model, torch.ones(2, 16, 64))
    attention = rows["self_attn"]
    products = 2 * 2 * 16 * 64 * (3 * 64 + 64)  # in and out
    scores = 2 * 2 * 2 * 16 * 16 * 64
    assert attention.flops == products + scores
    assert "self_attn.out_proj" not in rows
    whole = profiled(model, torch.ones(2, 16, 64), units=[torch.nn.TransformerEncoderLayer])
    assert list(whole) == ["(model)", "(outside modules)"]


def test_meta_tensors_are_counted(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU()).to("meta")
    rows = profiled(model, torch.ones(8, 64, device="meta"))
    assert [row.status for row in rows.values()] == ["predicted", "predicted"]
    assert (rows["0"].bytes_written, rows["0"].time_ms) == (4 * 8 * 256, None)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_sparse_and_quantized_tensors(torch: Any) -> None:
    class Multiply(torch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return torch.sparse.mm(a, b)

    sparse = torch.eye(64).to_sparse()
    row = profiled(Multiply(), sparse, torch.ones(64, 4))["(model)"]
    assert row.bytes_read == 64 * (2 * 8 + 4) + 64 * 4 * 4
    quantized = torch.quantize_per_tensor(torch.ones(4, 64), 0.1, 0, torch.quint8)
    row = profiled(torch.nn.Flatten(0), quantized)["(model)"]
    assert (row.status, row.bytes_read) == ("ok", 0)


def test_bad_models(torch: Any) -> None:
    with pytest.raises(TypeError, match=r"model is 3: .*torch\.nn\.Module"):
        bwprof.torch.profile(3)
    model = torch.nn.Linear(4, 4)
    with pytest.raises(ValueError, match="runs is 0"):
        bwprof.torch.profile(model, torch.ones(4), runs=0)
    with pytest.raises(ValueError, match=r"timer is 'kernels': .*monotonic"):
        bwprof.torch.profile(model, torch.ones(4), timer="kernels", roofs=False)
    with pytest.raises(ValueError, match=r"several devices \(cpu, meta\)"):
        bwprof.torch.profile(model, torch.ones(4, device="meta"))
    model._orig_mod = None
    with pytest.raises(ValueError, match=r"\bcompiled\b"):
        bwprof.torch.profile(model, torch.ones(4))

    class Bypass(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.linear(x, self.inner.weight)

    with pytest.raises(ValueError, match=r"^none\b.*\bmodules\b"):
        profiled(Bypass(), torch.ones(4))
    assert [row.operation for row in profiled(Bypass(), torch.ones(4), units=[Bypass]).values()] == ["Bypass", None]


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_a_module_that_runs_in_some_calls_only(torch: Any) -> None:
    class Sometimes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.calls = torch.nn.Linear(8, 8), torch.nn.ReLU(), 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return self.first(x) if self.calls % 2 else self.second(x)

    rows = profiled(Sometimes(), torch.ones(4, 8), runs=4)
    first, second, rest = rows["first"], rows["second"], rows["(outside modules)"]
    assert (first.calls, first.samples, first.bytes_read) == (1, 2, 4 * (32 + 64 + 8))
    assert first.bandwidth_gb_s == pytest.approx((first.bytes_read + 128) / first.time_ms / 1e6)
    assert re.findall(r"\d+", first.reason.partition(";")[0]) == ["0", "1", "1"]
    assert (second.calls, second.samples, second.bytes_read, second.bandwidth_gb_s) == (1, 2, None, None)
    assert "bytes were not counted" in second.reason
    assert second.time_ms > 0
    assert first.share_pct + second.share_pct + rest.share_pct == pytest.approx(100)


@pytest.mark.filterwarnings("ignore")  # PyTorch's, of what it will drop
def test_modules_that_run_as_one(torch: Any) -> None:
    nn = torch.nn

    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.ones(8, 8))])

        def forward(self, x: Any) -> Any:
            return x @ self.weights[0]

    class Itself(nn.Module):
        left = 2

        def forward(self, x: Any) -> Any:
            if not self.left:
                return x + 1
            self.left -= 1
            try:
                return self(x)
            finally:
                self.left += 1

    x = torch.ones(4, 8)
    model = nn.Sequential(Listed(), nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), Itself())
    rows = profiled(model, x)
    assert list(rows) == ["0", "1", "2", "(outside modules)"]
    assert (rows["0"].bytes_read, rows["0"].flops) == (4 * (32 + 64), 2 * 4 * 64)
    assert rows["1"].bytes_read == 4 * (32 + 64 + 8 + 8), "direction, length, bias"
    assert (rows["2"].calls, rows["2"].bytes_read, rows["2"].bytes_written) == (1, 128, 128)
    assert rows["2"].share_pct < 100
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 8)), {nn.Linear}, dtype=torch.qint8)
    packed = profiled(quantized, x)["0"]
    assert (packed.operation, packed.calls, packed.flops) == ("Linear", 1, None)
    assert packed.bytes_read == 4 * 32 + 64 + 4 * 8, "weights of a byte each, a bias of four"
    quantized[0].weight = None
    unknown = profiled(quantized, x)["0"]
    assert (unknown.bytes_read, unknown.bytes_written, unknown.bandwidth_gb_s) == (None, None, None)
    assert "not known" in unknown.reason


def test_a_cache_that_grows_from_call_to_call(torch: Any) -> None:
    """Each of 1 + 1 + 3 + 1 calls, of which the first and the last are counted, reads ten rows more than before."""

    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("container", torch.ones(0, 16))

        def forward(self, x: Any) -> Any:
            self.container = torch.ones(10 + len(self.container), 16)
            return x + 1

    row = profiled(Cache(), torch.ones(16), runs=3, warmup=0)["(model)"]
    assert row.flags.split(";").count("bytes_vary") == 1
    assert row.bytes_read == 64 + (0 + 50 * 64) // 2


@pytest.mark.parametrize(("causal", "pairs"), [(False, 12 * 20), (True, 12 * 13 // 2)])
def test_flops_of_causal_attention_are_those_of_attended_pairs(torch: Any, causal: bool, pairs: int) -> None:
    class Attend(torch.nn.Module):
        def forward(self, q: Any, k: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=causal)

    with torch.no_grad():
        row = profiled(Attend(), torch.ones(2, 3, 12, 16), torch.ones(2, 3, 20, 16))["(model)"]
    assert row.flops == 4 * 2 * 3 * 16 * pairs


@pytest.mark.filterwarnings("ignore")  # PyTorch's, of what it will drop and of what it does while it compiles
def test_compiled_and_scripted_parts(torch: Any) -> None:
    nn = torch.nn

    def part() -> Any:
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    x, in_place = torch.ones(4, 8), part()
    in_place.compile(backend="eager")
    model = nn.Sequential(torch.compile(part(), backend="eager"), in_place, torch.jit.script(part()), nn.GELU())
    rows = profiled(model, x, warmup=1)
    assert list(rows) == ["0", "1", "3", "(outside modules)"]
    for name in ("0", "1"):
        assert (rows[name].operation, rows[name].calls, rows[name].bytes_read) == ("Sequential", 1, 416)
    assert rows["(outside modules)"].reason.startswith("with 2: ")
    for whole in (in_place, model[0], model[2], torch.jit.trace(part(), x)):
        with pytest.raises(ValueError, match=r"\b(compiled|scripted)\b"):
            profiled(whole, x)
    assert hooks_on(model) == 0


def test_flops_that_pytorchs_counter_lacks(torch: Any) -> None:
    class Does(torch.nn.Module):
        def __init__(self, work: Any) -> None:
            super().__init__()
            self.work = work

        def forward(self, *argument: Any) -> Any:
            return self.work(*argument)

    a, v, many = torch.ones(4, 8), torch.ones(8), torch.ones(2, 8, 3)
    bytes_ = torch.ones(32, 32, dtype=torch.int8)
    for work, argument, flops in (
        (torch.mv, (a, v), 2 * 4 * 8),
        (torch.addmv, (torch.ones(4), a, v), 2 * 4 * 8),
        (torch.dot, (v, v), 2 * 8),
        (torch.addbmm, (torch.ones(4, 3), torch.ones(2, 4, 8), many), 2 * 2 * 4 * 8 * 3),
        (torch._int_mm, (bytes_, bytes_), 2 * 32**3),
    ):
        assert profiled(Does(work), *argument)["(model)"].flops == flops, work.__name__
    for gates, kind in ((4, "LSTM"), (3, "GRU")):
        layer = getattr(torch.nn, kind)(8, 6, num_layers=2, bidirectional=True)
        inner = 2 * gates * 6 * ((8 + 6) + (2 * 6 + 6))  # two directions of two layers: what comes in, the state
        with torch.no_grad():
            assert profiled(layer, torch.ones(5, 3, 8))["(model)"].flops == 2 * 5 * 3 * inner, kind
    assert torch_modules._UNCOUNTED["_cudnn_rnn"]((5, 3, 8), [(24, 8), (24, 6), (24,), (24,)], 4) == 2 * 15 * 24 * 14


def test_bad_models_and_units_are_refused(torch: Any) -> None:
    class Later(torch.nn.Module):
        async def forward(self, x: Any) -> Any:
            return x

    with pytest.raises(TypeError, match=r"\bmodel returned a coroutine"):
        profiled(Later(), torch.ones(1))
    for units in (3, torch.nn.Linear, None):
        with pytest.raises(TypeError, match=r"units is .*\[Attention\]"):
            profiled(torch.nn.Linear(1, 1), torch.ones(1), units=units)
    with pytest.raises(TypeError, match="units has 'L'"):
        profiled(torch.nn.Linear(1, 1), torch.ones(1), units="Linear")


def test_a_profile_of_pytorchs(torch: Any) -> None:
    a, b = torch.ones(64, 64), torch.ones(64, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions warn whoever profiles
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
            for _ in range(3):
                a @ b
    rows = {row.case: row for row in bwprof.torch_profiler_rows(prof, {"aten::mm": (a.nbytes + b.nbytes, a.nbytes)})}
    assert (rows["aten::mm"].calls, rows["aten::mm"].bytes_read) == (3, 2 * 4 * 64 * 64)
    assert rows["aten::mm"].bandwidth_gb_s > 0


@pytest.mark.cuda
def test_modules_on_the_gpu_against_kernel_times(torch: Any) -> None:
    """The goal is 5 %; a test allows what events and another program may add."""
    model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096, bias=False) for _ in range(4))).cuda().half()
    x = torch.ones(2048, 4096, device="cuda", dtype=torch.half)

    def inside(**how: Any) -> float:
        rows = profiled(model, x, runs=5, warmup=3, **how)
        assert rows["0"].backend == "cuda"
        return float(sum(row.time_ms for name, row in rows.items() if name != "(outside modules)"))

    with torch.no_grad():
        by_kernels, by_events = inside(), inside(timer="events")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
                for _ in range(5):
                    model(x)
                torch.cuda.synchronize()
    kernels = bwprof.torch_profiler_rows(prof)
    total = sum(row.total_ms for row in kernels) / 5
    assert by_kernels == pytest.approx(total, rel=0.05)
    assert by_events == pytest.approx(total, rel=0.15)
    assert hooks_on(model) == 0
