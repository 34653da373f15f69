"""Kernels of variants: names, registers, occupancy, and what is known without a GPU."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from operations import small_cases
from test_objects import object_files

import bwprof
from bwprof import _core, registry
from bwprof import kernels as bwprof_kernels
from bwprof.cli import main
from bwprof.kernels import base_name, variants

NAMES = [operation["name"] for operation in _core.operations()]
PREPARED = {
    "symbol": "_ZN39_GLOBAL__N__3d8454c4_7_move_cu_423834ce14kv_move_kernelI5uint4Li4ENS_8same_mapES2_EEvNS_4moveIT_EE",
    "registers": 64,
    "local_bytes": 24,
    "static_shared_bytes": 512,
    "dynamic_shared_bytes": 1024,
    "threads": 256,
    "blocks": 1000,
    "resident_blocks": 4,
}


class Card:
    """A device made by the test, with every variant of the first backend that runs here."""

    facts_: dict[str, Any] = {"major": 9, "minor": 0, "runtime": "13.0"}  # noqa: RUF012
    kernels_: list[dict[str, Any]] | Exception = [PREPARED]  # noqa: RUF012
    refusal = ""
    opened: list[tuple[str, int]] = []  # noqa: RUF012

    def __init__(self, backend: str, index: int = 0) -> None:
        type(self).opened.append((backend, index))

    def __enter__(self) -> Card:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def facts(self) -> dict[str, Any]:
        return self.facts_

    def variants(self, *_: object) -> list[dict[str, Any]]:
        one = {"text": "made up", "precisions": ["fp32", "fp16"], "refuses": self.refusal, "default": True}
        one |= {"changes": "nothing", "predicted": None, "because": None, "at": None}
        return [{"name": "one", **one}]

    def kernels(self, *_: object) -> list[dict[str, Any]]:
        if isinstance(self.kernels_, Exception):
            raise self.kernels_
        return [dict(kernel) for kernel in self.kernels_]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> type[Card]:
    """The first backend has one device, `Card`."""
    listed = _core.backends()
    listed[0] |= {"built": True, "reason": "", "devices": [{"index": 0, "name": "Card"}]}

    class Fresh(Card):
        opened: list[tuple[str, int]] = []  # noqa: RUF012

    monkeypatch.setattr(_core, "backends", lambda: listed[:1])
    monkeypatch.setattr(_core, "Device", Fresh)
    return Fresh


def test_every_variant_is_listed() -> None:
    """Variants without known kernels have a reason."""
    found = variants()
    listed = {(row["operation"], row["backend"], row["variant"]) for row in found}
    for operation in bwprof.operations():
        for backend, rows in operation["variants"].items():
            assert {(operation["name"], backend, row["name"]) for row in rows} <= listed
    assert [name for name in NAMES if name in {row["operation"] for row in found}] == NAMES
    for row in found:
        assert (row["registers"] is None) <= bool(row["reason"])
        assert list(row) == list(found[0])


def test_on_a_cpu() -> None:
    with _core.Device("cpu") as device:
        isa = device.facts()["runtime"]
    for operation in bwprof.operations():
        rows = operation["variants"]["cpu"]
        if not rows:
            continue
        precision = operation["precisions"][0]
        found = variants(operation["name"], "cpu", precision=precision)
        assert [(row["variant"], row["text"], row["precisions"]) for row in found] == [
            (row["name"], row["text"], row["precisions"]) for row in rows
        ]
        assert {row["instruction_set"] for row in found} == {isa}
        assert all(row["symbol"] is row["theoretical_pct"] is row["threads"] is None for row in found)
        assert all("on the host" in row["reason"] for row in found if precision in row["precisions"])
        assert sum(row["default"] for row in found) == 1
        assert found.kernel_name == ""


def test_a_backend_that_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = _core.backends()
    reason = "nvcc was not found"
    listed[0] |= {"built": False, "reason": reason, "devices": []}
    operations = [{**operation, "variants": {}} for operation in _core.operations()]
    monkeypatch.setattr(_core, "backends", lambda: listed)
    monkeypatch.setattr(bwprof_kernels.registry, "operations", lambda: operations)
    found = [row for row in variants() if row["backend"] == listed[0]["name"]]
    assert [(row["operation"], row["variant"]) for row in found] == [(name, None) for name in NAMES]
    assert {row["reason"].partition("; ")[0] for row in found} == {"not in this build: " + reason}


def test_a_backend_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and precisions are known."""
    listed = _core.backends()
    for backend in listed:
        backend |= {"built": True, "reason": "no driver", "devices": []}
    monkeypatch.setattr(_core, "backends", lambda: listed)
    for operation in bwprof.operations():
        for precision in operation["precisions"]:
            for row in variants(operation["name"], precision=precision):
                if row["variant"] is None:  # in this build nobody knows even the names
                    continue
                fits = precision in row["precisions"]
                assert row["reason"] == ("no driver" if fits else "not in this precision")
                assert row["text"]


def test_a_kernel_has_its_registers_memory_and_occupancy(card: type[Card]) -> None:
    (row,) = variants(NAMES[0])
    assert card.opened == [(_core.backends()[0]["name"], 0)]
    assert (row["variant"], row["kernel"], row["symbol"]) == ("one", "kv_move_kernel", PREPARED["symbol"])
    assert (row["registers"], row["static_shared_bytes"], row["dynamic_shared_bytes"]) == (64, 512, 1024)
    assert (row["local_bytes"], row["threads"], row["blocks"], row["resident_blocks"]) == (24, 256, 1000, 4)
    # 64 registers: 8 warps of 2 048 in each quarter of 16 384, so 32 of 64 warps
    assert (row["theoretical_pct"], row["limiter"], row["reason"], row["note"]) == (50.0, "registers", "", "")


def test_variants_print_and_index(card: type[Card]) -> None:
    found = variants(NAMES[0])
    assert found["one"] is found["kv_move_kernel"] is found[f"{NAMES[0]} one"] is found[0]
    assert "kv_move_kernel" in found
    with pytest.raises(KeyError, match="unknown variant 'kv_moves'"):
        found["kv_moves"]
    head, line = repr(found).splitlines()
    names = ["operation", "backend", "variant", "ISA", "kernel", "registers", "shared", "local", "threads"]
    assert head.split() == [*names, "occupancy", "limiter", "reason"]
    assert "one (default)" in line
    assert line.split()[-9:] == ["64", "512", "+", "1024", "24", "256", "50", "%", "registers"]
    assert "<td>kv_move_kernel</td>" in found._repr_html_()
    frame = found.frame()
    assert list(frame.columns) == list(found[0])
    assert int(frame.loc[0, "registers"]) == 64
    assert found.kernel_name == "regex:^(kv_move_kernel)$"


def test_several_kernels_of_one_launch(card: type[Card]) -> None:
    card.kernels_ = [PREPARED, PREPARED | {"symbol": "_Z18stream_read_kernelPKvlPj"}, PREPARED]
    found = variants(NAMES[0])
    assert [row["kernel"] for row in found] == ["kv_move_kernel", "stream_read_kernel", "kv_move_kernel"]
    assert found.kernel_name == "regex:^(kv_move_kernel|stream_read_kernel)$"
    assert re.search(found.kernel_name.removeprefix("regex:"), "stream_read_kernel")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"refusal": "more rows than a grid holds"}, "more rows than a grid holds"),
        ({"kernels_": bwprof.errors.UnsupportedError("a library's")}, "a library's"),
        ({"kernels_": bwprof.errors.UnavailableError("no library")}, "no library"),
    ],
)
def test_kernels_without_facts(card: type[Card], change: dict[str, Any], reason: str) -> None:
    for name, value in change.items():
        setattr(card, name, value)
    (row,) = variants(NAMES[0])
    assert (row["variant"], row["default"], row["registers"], row["reason"]) == ("one", True, None, reason)


def test_kernels_without_names(card: type[Card]) -> None:
    card.kernels_ = [PREPARED | {"symbol": None}]
    (row,) = variants(NAMES[0])
    assert (row["kernel"], row["symbol"], row["registers"], row["theoretical_pct"]) == (None, None, 64, 50.0)
    assert "CUDA 12.3" in row["reason"]


def test_an_architecture_without_a_table(card: type[Card]) -> None:
    card.facts_ = card.facts_ | {"major": 13, "minor": 0}
    (row,) = variants(NAMES[0])
    assert (row["registers"], row["resident_blocks"], row["theoretical_pct"], row["limiter"]) == (64, 4, None, None)
    assert "13.0" in row["reason"]


def test_a_device_that_does_not_open(card: type[Card], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise bwprof.errors.UnavailableError("an old driver")

    monkeypatch.setattr(_core, "Device", broken)
    for row in variants():
        taken = "fp32" in (row["precisions"] or ["fp32"])
        assert row["reason"] == ("an old driver" if taken else "not in this precision")


def test_a_lost_device_raises(card: type[Card]) -> None:
    card.kernels_ = bwprof.errors.DeviceError("an illegal address")
    with pytest.raises(bwprof.errors.DeviceError, match="an illegal address"):
        variants(NAMES[0])


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (("gem",), {}, "unknown operation 'gem': did you mean 'gemm'"),
        ((3,), {}, "unknown operation '3'"),
        ((), {"precision": "fp61"}, "unknown precision 'fp61'"),
        ((), {"M": 3}, r"M: which operation's\? variants\(op, ...\) is needed"),
        ((), {"kv_lens": [3]}, r"kv_lens: which operation's\?"),
        (("gemm",), {"M": 0}, "M"),
        (("gemm",), {"m": 1}, "unknown parameter of gemm 'm': did you mean 'M'"),
        (("gemm",), {"M": 10**400}, "does not fit in 64 bits"),
        (("gemm",), {"kv_lens": [3]}, "gemm takes no kv_lens"),
        (("gemm", "cpu:99"), {}, "cpu device 99: allowed is 0 to 0"),
        (("gemm", "gpu"), {}, "device is 'gpu'"),
        (("gemm", 1.5), {}, "device is 1.5"),
    ],
)
def test_wrong_arguments_are_refused(given: tuple[Any, ...], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        variants(*given, **options)


def test_a_precision_that_only_some_have() -> None:
    """Operations without the precision have it as the reason."""
    narrow = next(row["name"] for row in _core.precisions() if bwprof_kernels.registry.is_narrow(row["name"]))
    for row in variants(device="cpu", precision=narrow):
        takes = narrow in bwprof.operations()[row["operation"]]["precisions"]
        assert takes or row["reason"] == "not in this precision"


def test_the_core_refuses_bad_arguments() -> None:
    with _core.Device("cpu") as device:
        with pytest.raises(bwprof.errors.UnsupportedError, match="on the host"):
            device.kernels("gemm", "fp32", {}, "naive")
        with pytest.raises(ValueError, match="nave"):
            device.kernels("gemm", "fp32", {}, "nave")
        with pytest.raises(bwprof.errors.UnsupportedError, match="not in this precision"):
            device.kernels("gemm", "q4_0", {}, "blocked")
        for mistake in ((), ("gemm", "fp32", {}), ("gemm", 3, {}, "naive"), ("gemm", "fp32", 3, "naive")):
            with pytest.raises(TypeError):
                device.kernels(*mistake)

        class Closing:
            def __index__(self) -> int:
                device.close()
                return 1

        with pytest.raises(ValueError, match="this Device is closed"):
            device.kernels("gemm", "fp32", {"M": Closing()}, "naive")  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="this Device is closed"):
        device.kernels("gemm", "fp32", {}, "naive")


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (PREPARED["symbol"], "kv_move_kernel"),
        ("_Z17gemm_tiled_kernelI6__halfEvPKT_S3_S3_PS1_llll", "gemm_tiled_kernel"),
        ("_ZL12empty_kernelv", "empty_kernel"),
        ("_ZN12_GLOBAL__N_1L18stream_read_kernelEPKv", "stream_read_kernel"),
        ("_ZN3abc3def7kernel1Ev", "kernel1"),
        ("plain_c_kernel", "plain_c_kernel"),
        ("_Z", "_Z"),
        ("_ZN", "_ZN"),
        ("_Z999short", "short"),
        ("", ""),
    ],
)
def test_base_name(symbol: str, name: str) -> None:
    assert base_name(symbol) == name


def test_base_names_of_what_is_built(source_tree: Path) -> None:
    """Names of all built kernels equal those in the source."""
    found = set()
    for path in object_files(source_tree):
        if path.name.endswith(".cu.o"):
            found |= set(re.findall(rb"\.nv\.info\.(_Z\w+)", path.read_bytes()))
    if not found:
        pytest.skip("needs the objects of a build with CUDA")
    sources = [path.read_text() for path in (source_tree / "csrc" / "cuda").rglob("*.cu*")]
    kernel = re.compile(r"__global__\s+void\s+(?:__\w+__\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)*(\w+)\(")
    assert {base_name(symbol.decode()) for symbol in found} == {
        name for text in sources for name in kernel.findall(text)
    }


# ---- the command ----


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["variants", "gemm", "--device", "cpu", "--precision", "fp32,fp16", "-p", "M=1", "-p", "N=4Ki"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["precision", "|operation", "|backend", "|variant", "|ISA", "|reason"]
    assert printed.count("fp32 ") == printed.count("fp16 ") == len(registry.operation("gemm")["variants"]["cpu"])
    assert printed.count("(default)") == 2


def test_the_command_with_kernels(card: type[Card], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["variants", NAMES[0]]) == 0
    printed = capsys.readouterr().out
    (cells,) = [line.split("|") for line in printed.splitlines() if "|kv_move_kernel" in line]
    cells = [cell.strip() for cell in cells]
    figures = ["64", "512 + 1024", "24", "256", "50 %", "registers"]
    assert cells[cells.index("kv_move_kernel") + 1 :][:6] == figures
    assert printed.endswith("\nncu --kernel-name 'regex:^(kv_move_kernel)$'\n")


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["variants", "gemm", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == list(variants("gemm", "cpu"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["gem"], "did you mean 'gemm'"),
        (["gemm", "-p", "M"], "NAME=V1,V2"),
        (["gemm", "-p", "M=1,2"], "--param M has 2 values: one is needed"),
        (["gemm", "-p", "X=1"], "unknown parameter of gemm 'X'"),
        (["attention_decode", "-p", "kv_lens=1,2"], "lengths are given by --kv-lens 100,7000 (in Python kv_lens=["),
        (["attention_decode", "-p", "batch=3", "--kv-lens", "1,2"], "kv_lens has 2 lengths"),
        (["gemm", "--kv-lens", "1"], "gemm takes no kv_lens"),
        (["-p", "M=1"], "M: which operation's?"),
        (["gemm", "--precision", ""], "--precision is ''"),
        (["gemm", "--device", "tpu"], "device is 'tpu'"),
    ],
)
def test_mistakes_in_the_command(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["variants", *given]) == 2
    assert said in capsys.readouterr().err


def test_list_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    """The list, then what `bwprof variants` prints."""
    assert main(["--list"]) == main(["variants"]) == 0
    both = capsys.readouterr().out
    assert main(["--list", "--verbose"]) == 0
    assert capsys.readouterr().out == both
    assert len(both.splitlines()) > 100


@pytest.mark.parametrize("operation", _core.operations(), ids=lambda operation: operation["name"])
def test_every_variant_has_a_change_and_a_prediction(operation: dict[str, Any]) -> None:
    """Each is one line, and the prediction is for a shape that the operation allows. A precision's first has none."""
    for rows in operation["variants"].values():
        for number, row in enumerate(rows):
            first = not any(set(row["precisions"]) & set(before["precisions"]) for before in rows[:number])
            assert re.fullmatch(r"[^\n]{10,160}", row["changes"]), row
            assert not row["changes"].endswith("."), row
            assert (row["predicted"] is None) == (row["because"] is None) == first, row
            if not first:
                assert 0 < row["predicted"] < 1000, row
                assert re.fullmatch(r"[^\n]{10,160}", row["because"]), row
                precision, params = registry.parse_point(row["at"])
                assert precision in row["precisions"], row
                assert registry.complete_params(operation["name"], precision, params).items() >= params.items(), row


def test_the_cells_of_a_kernel(card: type[Card]) -> None:
    rows = variants(NAMES[0])
    cells = rows.cells(rows[0])
    assert (cells["kernel"], cells["registers"], cells["threads"]) == ("kv_move_kernel", "64", "256")
    assert (cells["shared"], cells["local"]) == ("512 + 1024", "24"), "bytes: static + dynamic, of a thread"
    assert (cells["occupancy"], cells["limiter"]) == ("50 %", "registers")
    assert (rows[0]["precision"], rows[0]["symbol"]) == ("fp32", PREPARED["symbol"])
    assert variants("gemm", None, precision="q4_0")[0]["precision"] == "q4_0"


# ---- on a GPU ----

CUDA = pytest.mark.cuda


@CUDA
@pytest.mark.parametrize(
    "one",
    [
        *small_cases("cuda"),
        *{
            op: (op, kind, {}) for op, kind, _ in sorted(small_cases("cuda"), key=lambda case: case[1] == "fp16")
        }.values(),
    ],
    ids=lambda one: f"{one[0]}-{one[1]}-{'small' if one[2] else 'default'}",
)
def test_kernels_of_a_gpu(one: tuple[str, str, dict[str, int]]) -> None:
    """The runtime's number of blocks equals the theory; unknown values have a reason."""
    operation, precision, params = one
    with _core.Device("cuda") as device:
        facts = device.facts()
    arch = f"{facts['major']}.{facts['minor']}"
    found = variants(operation, "cuda", precision=precision, **params)
    told = [row for row in found if not row["reason"]]
    assert told or all(re.search("copy engines|a library's", row["reason"]) for row in found)
    for row in told:
        assert 0 < row["registers"] <= 255
        assert 0 < row["threads"] <= 1024
        assert min(row["blocks"], row["resident_blocks"]) > 0
        assert min(row["local_bytes"], row["static_shared_bytes"], row["dynamic_shared_bytes"]) >= 0
        assert re.fullmatch(r"\w+_kernel", row["kernel"])
        assert row["kernel"] in row["symbol"]
        shared = row["static_shared_bytes"] + row["dynamic_shared_bytes"]
        of = bwprof.occupancy(row["registers"], shared, row["threads"], arch)
        assert of.active_blocks == row["resident_blocks"]
        assert (of.theoretical_pct, of.limiter) == (row["theoretical_pct"], row["limiter"])
    for row in found:
        assert (row["registers"] is None) == bool(row["reason"])


@CUDA
def test_listing_kernels_allocates_and_launches_nothing() -> None:
    with _core.Device("cuda") as device:
        told = device.kernels("attention_prefill", "fp16", {}, "padded")  # which has one kernel for all sizes
        free = device.memory()[0]
        huge = {"batch": 64, "seq_len": 1 << 20}  # more than any card holds
        assert device.kernels("attention_prefill", "fp16", huge, "padded")[0]["registers"] == told[0]["registers"]
        assert device.memory()[0] == free


@CUDA
def test_every_cuda_call_of_listing_kernels_fails_in_turn() -> None:
    with _core.Device("cuda") as device:
        before = device._inject_fault(0)
        device.kernels("attention_prefill", "fp32", {}, "unfused")
        calls = device._inject_fault(0) - before
        assert calls > 3
        for call in range(1, calls + 1):
            device._inject_fault(call)
            with pytest.raises(bwprof.errors.DeviceError, match="CUDA call"):
                device.kernels("attention_prefill", "fp32", {}, "unfused")
        assert len(device.kernels("attention_prefill", "fp32", {}, "unfused")) == 3


def without_namespace(symbol: str) -> str:
    """Return a symbol without the number of its unnamed namespace, which each compilation chooses."""
    return re.sub(r"\d+_GLOBAL__N__\w{8}_\d+_\w+?_cu_\w{8}", "", symbol)


def assembler_says(source_tree: Path, source: str, folder: Path, arch: str) -> dict[str, tuple[int, int, int]]:
    """Return registers, stack frame and static shared memory of a file's kernels, compiled as in the build."""
    commands = sorted((source_tree / "build").glob(f"cuda-*/{source}.command"), key=lambda path: path.stat().st_mtime)
    if not commands or not shutil.which("nvcc"):
        pytest.skip("needs a build with CUDA in this checkout, and nvcc")
    words = shlex.split(commands[-1].read_text().splitlines()[-1])
    words[words.index("-o") + 1] = str(folder / "kernel.o")
    words[words.index("-MF") + 1] = str(folder / "kernel.d")
    done = subprocess.run([*words, "-Xptxas", "-v"], cwd=source_tree, capture_output=True, text=True, check=True)
    kernel = re.compile(
        rf"entry function '(\w+)' for '{arch}'.*?(\d+) bytes stack frame.*?Used (\d+) registers([^\n]*)", re.DOTALL
    )
    found = {}
    for symbol, frame, registers, rest in kernel.findall(done.stderr + done.stdout):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[without_namespace(symbol)] = (int(registers), int(frame), int(shared[1]) if shared else 0)
    return found


@CUDA
@pytest.mark.parametrize(
    ("source", "operations"),
    [
        ("cuda/kernels/gemm/tiled.cu", ("gemm",)),
        ("cuda/kernels/kv/move.cu", ("kv_append", "kv_gather", "kv_copy")),
        ("cuda/kernels/attention/prefill/mma.cu", ("attention_prefill",)),
    ],
)
def test_registers_equal_those_of_the_assembler(
    source_tree: Path, tmp_path: Path, source: str, operations: tuple[str, ...]
) -> None:
    """Registers, spills and static shared memory equal those of ptxas -v."""
    with _core.Device("cuda") as device:
        facts = device.facts()
    arch = rf"sm_{facts['major']}{facts['minor']}a?"
    said = assembler_says(source_tree, source, tmp_path, arch)
    if not said:
        pytest.skip(f"the build has no code for {arch}, but PTX")
    seen = 0
    for operation in operations:
        for precision in ("fp32", "fp16", "bf16"):
            for row in variants(operation, "cuda", precision=precision):
                expected = said.get(without_namespace(row["symbol"] or ""))
                if expected:
                    assert (row["registers"], row["local_bytes"], row["static_shared_bytes"]) == expected, row["symbol"]
                    seen += 1
    assert seen >= 2


def test_a_table_without_registers_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    found = variants("gemm", "cpu")
    assert list(found.lines()[0]) == ["operation", "backend", "variant", "ISA", "reason"]
    for said in (repr(found), found._repr_html_()):
        assert "on the host" in said
        assert "GPU" in found.lacking
        assert "bwprof.occupancy(registers, shared_bytes, threads, arch)" in said.replace("&#x27;", "'")
    assert main(["variants", "gemm", "--device", "cpu"]) == 0
    assert found.lacking in " ".join(capsys.readouterr().out.split())
    assert bwprof_kernels.Variants().lacking == ""
    assert repr(bwprof_kernels.Variants()) == "no variant"


def test_long_reasons_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = _core.backends()
    listed[0] |= {"built": True, "reason": f"{'no driver ' * 10}: install one", "devices": []}
    monkeypatch.setattr(_core, "backends", lambda: listed)
    assert listed[0]["reason"] in repr(variants("gemm"))


def test_a_table_with_registers_has_no_reason(card: type[Card], capsys: pytest.CaptureFixture[str]) -> None:
    found = variants("gemm")
    assert found.lacking == ""
    assert "registers" in repr(found).splitlines()[0]
    assert main(["variants", "gemm"]) == 0
    assert "bwprof.occupancy(" not in capsys.readouterr().out
