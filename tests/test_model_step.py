"""Steps of models: from rows with known figures, from predictions, from a CPU."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from pretended import ROLES, TINY, Pretended
from rich.console import Console

import bwprof
from bwprof.analysis.prediction.catalog import Streams, bundled_streams, resolve_card
from bwprof.cli.commands import model as model_command
from bwprof.cli.commands import results as report_command
from bwprof.cli.render import print_step
from bwprof.llm import architecture
from bwprof.llm import executor as llm_executor
from bwprof.llm.executor import PiecesExecutor
from bwprof.llm.result import ModelStep
from bwprof.llm.workload import DECODE, LABELS, PREFILL, ModelRequest, StepPoint
from bwprof.measuring.function import Chain
from bwprof.measuring.row import Context
from bwprof.results import frame as frames
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofPoint, Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import loop

pytestmark = pytest.mark.usefixtures("one_thread")

LLAMA = architecture.find_model("llama-3.1-8b")


def answered(
    question: ModelRequest, executor: Pretended | None = None, *, backend: str = "cuda", **run: Any
) -> ModelStep:
    """Return the result of a request that the pretended device measures."""
    inner = executor or Pretended()
    pieces = llm_executor.list_all_pieces(question)
    whole = PiecesExecutor(question, inner)
    context = Context("run", backend, inner.open(None), inner.obtain_roofs(RoofRequest(), None))
    whole.set_context(context)
    rows = [whole.measure(piece, 1.0, None).row for piece in pieces]
    roofs = context.roofs.to_dict() if context.roofs else None
    known = {"model": question.to_dict(), "facts": inner.open(None), "run_id": "run", "roofs": roofs} | run
    return ModelStep.from_frame(frames.from_rows(rows, known))


def point(
    phase: str = DECODE, batch: int = 1, context: int = 4096, weights: str = "fp16", kv: str = "fp16"
) -> StepPoint:
    return StepPoint(phase, batch, context, weights, kv)


def test_a_step_is_the_sum_of_its_rows() -> None:
    """At 100 GB/s the time follows from the bytes. Llama's weights without embeddings are 7.50 billion."""
    found = answered(ModelRequest(LLAMA, (point(),)))
    assert found.frame["role"].tolist() == ROLES
    assert found.frame["count"].tolist() == [32, 32, 32, 32, 32, 32, 1]
    assert str(found.frame["count"].dtype) == "Int64"
    moved = int((found.frame["count"] * (found.frame["bytes_read"] + found.frame["bytes_written"])).sum())
    step = found.steps.iloc[0]
    weights = 2 * (LLAMA.parameters - LLAMA.embedding_elements)
    cache = 32 * 4096 * 2 * 8 * 128 * 2
    assert step["read_bytes"] == weights + cache
    assert step["moved_bytes"] == moved
    assert found.time_ms == pytest.approx(moved / 1e8)
    assert found.tokens_s == pytest.approx(1e11 / moved)
    # of a peak of 200 GB/s, half of which is reached, all bytes but activations
    assert found.mbu_pct == pytest.approx(100 * (weights + cache) / (moved / 1e11) / 200e9)
    assert step["limit_pct"] == pytest.approx(80)
    assert (step["limiter"], step["measured_pct"], bool(step["fits"])) == ("memory", pytest.approx(100), True)


def test_the_answer_has_the_figures_of_the_step() -> None:
    found = answered(ModelRequest(LLAMA, (point(batch=16),)))
    tokens = f"{found.tokens_s:.3g}"
    limit = "Decode is memory-bound: 80 % of what this device sustains"
    assert found.answer.startswith(f"{limit}; {tokens} tokens/s; FP8 weights would")
    fp8 = found.formats.set_index("weights").loc["fp8_e4m3"]
    assert f"FP8 weights would bring {found.time_ms / fp8['time_ms']:.2g} \u00d7" in found.answer
    assert str(found).startswith(found.answer[:60])
    assert found.answer in found._repr_html_()


def test_tokens_of_a_batch_and_of_prompts() -> None:
    found = answered(ModelRequest(LLAMA, (point(batch=16), point(PREFILL, 2, 128))))
    first, second = (row for _, row in found.steps.iterrows())
    assert first["tokens_s"] == pytest.approx(16e3 / first["time_ms"])
    assert second["tokens_s"] == pytest.approx(256e3 / second["time_ms"])


def test_shares_of_operations() -> None:
    found = answered(ModelRequest(LLAMA, (point(),))).operations
    assert found["share_pct"].sum() == pytest.approx(100)
    rows = found.set_index("role")
    # 2 x 14336 rows of gate and up against 14336 columns of down: twice the bytes but for activations
    assert rows.loc["gate up", "share_pct"] == pytest.approx(2 * rows.loc["down", "share_pct"], rel=1e-3)


def test_formats_take_the_time_of_their_bytes() -> None:
    """At one speed the time follows from the bytes: FP32 takes twice as long."""
    found = answered(ModelRequest(LLAMA, (point(), point(weights="fp32", kv="fp32"))))
    lines = found.formats.set_index("weights")
    assert lines.loc["fp32", "source"] == "measured"
    assert lines.loc["fp32", "time_ms"] == pytest.approx(2 * lines.loc["fp16", "time_ms"])
    assert lines.loc["bf16", "time_ms"] == pytest.approx(lines.loc["fp16", "time_ms"])
    assert (lines.loc["int8", "source"], lines.loc["int8", "kv"]) == ("predicted", "fp16")
    moved = found.frame[found.frame["weights"] == "fp16"]
    weights = moved[moved["operation"] == "gemm"]
    others = moved[moved["operation"] != "gemm"]
    expected = (others["count"] * others["time_ms"]).sum() + sum(
        row["count"] * bwprof.cost("gemm", precision="int8", M=1, N=row["N"], K=row["K"]).bytes / 1e8
        for _, row in weights.iterrows()
    )
    assert lines.loc["int8", "time_ms"] == pytest.approx(expected)


@pytest.mark.parametrize("limiter", ["compute", "latency", "kernel"])
def test_no_gain_is_offered_if_memory_does_not_limit(limiter: str) -> None:
    found = answered(ModelRequest(LLAMA, (point(),)))
    rows = [{**row, "limiter": limiter} for row in frames.to_rows(found.frame)]
    other = ModelStep.from_frame(frames.from_rows(rows, found.frame.attrs["run"]))
    assert "FP8 weights" in other.answer
    assert "\u00d7" not in other.answer, "no gain is offered"
    lines = other.formats.set_index("weights")
    assert lines.loc["q4_0", "time_ms"] == pytest.approx(lines.loc["fp16", "time_ms"])
    assert lines.loc["fp32", "time_ms"] > lines.loc["fp16", "time_ms"]


def test_each_shape_is_measured_once() -> None:
    """Two contexts share their products, as do two caches; in a separate layout k and v have one shape."""
    executor = Pretended()
    points = (point(context=100), point(context=200), point(context=200, kv="fp32"))
    found = answered(ModelRequest(LLAMA, points, layout="separate"), executor)
    shapes = [(spec.operation, spec.precision, *sorted(spec.params.items())) for spec in executor.measured]
    assert len(set(shapes)) == len(shapes)
    assert len(found.frame) == 3 * 10
    products = found.frame[found.frame["role"].isin(["k", "v"])]
    assert products["time_ms"].nunique() == 1
    assert found.frame["case"].str.startswith("decode b=1 c=").all()


def test_the_measured_piece_can_be_measured_again() -> None:
    """Copies get the newer row."""
    question = ModelRequest(LLAMA, (point(context=100), point(context=200)))
    inner = Pretended()
    executor = PiecesExecutor(question, inner)
    executor.set_context(Context("run", "cpu", inner.open(None), None))
    pieces = llm_executor.list_pieces(question)
    first, copy = pieces[0], next(piece for piece in pieces[7:] if piece.labels["role"] == "qkv")
    executor.measure(first, 1.0, None)
    executor.measure(copy, 1.0, None)
    assert len(inner.measured) == 1
    executor.measure(first, 1.0, None)
    assert len(inner.measured) == 2
    row = executor.measure(copy, 1.0, None).row
    assert len(inner.measured) == 2
    assert (row["context"], row["case"]) == (200, "decode b=1 c=200 qkv")


def roofs() -> Roofs:
    """Return streams of 200 GB/s at every size, twice the speed of the pretended device."""
    streams = {"stream_read": 1.0, "stream_write": 0.0, "stream_copy": 0.5}
    sizes = (1 << 16, 1 << 24, 1 << 32)
    points = [RoofPoint(name, share, size, size / 200e9) for name, share in streams.items() for size in sizes]
    return Roofs("Test", "", "", "", 1e-6, tuple(points))


def test_a_narrow_cache_stays_narrow_in_other_formats() -> None:
    """BF16 and FP16 have the same bytes of weights and cache, and so the same time."""
    lines = bwprof.model_step("llama-3.1-8b", device="H200", batch=16, kv="int8").formats.set_index("weights")
    assert set(lines["kv"]) == {"int8"}
    assert lines.loc["bf16", "time_ms"] == pytest.approx(lines.loc["fp16", "time_ms"])
    plain = bwprof.model_step("llama-3.1-8b", device="H200").formats.set_index("weights")["kv"]
    assert plain[["fp32", "fp16", "bf16", "int8"]].tolist() == ["fp32", "fp16", "bf16", "fp16"]


def test_a_note_names_unknown_limits() -> None:
    found = answered(ModelRequest(LLAMA, (point(),)))
    rows = [{**row, "pct_limit": None, "pct_attainable": None, "limiter": None} for row in frames.to_rows(found.frame)]
    other = ModelStep.from_frame(frames.from_rows(rows, found.frame.attrs["run"]))
    assert ["--no-roofs" in note for note in other.notes()].count(True) == 1
    known = [{**row, "attainable_gb_s": 200.0} for row in rows]
    assert "--no-roofs" not in str(ModelStep.from_frame(frames.from_rows(known, found.frame.attrs["run"])))


def test_a_model_that_does_not_fit_has_no_tokens() -> None:
    executor = Pretended(facts={"memory_bytes": 17_000_000_000})
    found = answered(ModelRequest(LLAMA, (point(), point(weights="int8"))), executor)
    assert "does not fit" not in found.answer  # INT8 does, and is the first that has a time
    too_large = found.answer.partition("Too large")[2]
    assert all(fact in too_large for fact in ("weights FP16", "batch 1", "context 4096"))
    assert "INT8" not in too_large
    assert not any(spec.precision == "fp16" and spec.operation == "gemm" for spec in executor.measured)
    large = answered(ModelRequest(LLAMA, (point(),)), Pretended(facts={"memory_bytes": 17_000_000_000}))
    assert large.tokens_s is None
    device = large.frame["device"].iloc[0]
    sizes = ("16.1 GB", "0.537 GB", "17 GB", "15.3 GB", "Q8_0", "9.02 GB")
    assert all(fact in large.answer for fact in ("llama-3.1-8b", "weights FP16", f"on {device}", *sizes))
    assert "does not fit" in large.answer
    assert "tokens/s" not in large.answer
    assert set(large.frame["status"]) == {"skipped"}
    tiny = answered(ModelRequest(LLAMA, (point(),), memory_bytes=1_000_000_000))
    assert "19 such devices" in tiny.answer  # 16.6 GB, 0.9 each


def test_room() -> None:
    """Of 80 GB a tenth is reserved: 55.9 GB beside 16.06 GB of weights, at 131 072 bytes a token."""
    found = answered(ModelRequest(LLAMA, (point(batch=4, context=8192),), memory_bytes=80_000_000_000)).room
    left = 72_000_000_000 - 2 * LLAMA.parameters
    assert found["largest_batch"].dropna().tolist() == [left // (131_072 * 8192)]
    assert found["longest_context"].dropna().tolist() == [left // (131_072 * 4)]


def test_omitted_work_is_listed() -> None:
    found = answered(ModelRequest(LLAMA, (point(),)))
    assert set(found.left_out["what"]) >= {"norms", "residual additions", "sampling"}
    text = " ".join(" ".join(found.notes()).split())
    assert all(work in text for work in (*found.left_out["what"], "communication"))
    assert found.left_out.set_index("what").loc["residual additions", "time_ms"] == pytest.approx(
        64 * 3 * 4096 * 2 / 200e9 * 1e3
    )


def test_a_note_explains_experts() -> None:
    found = answered(ModelRequest(architecture.find_model("mixtral-8x7b"), (point(),), memory_bytes=10**12))
    assert any("2 of 8 experts" in note for note in found.notes())


# ---- a layer in one graph ----


def test_one_layer_is_of_the_most_frequent_kind() -> None:
    def roles(name: str, batch: int = 1) -> dict[str, int]:
        question = ModelRequest(architecture.find_model(name), (point(batch=batch),))
        return {part.role: part.count for part in question.parts(question.points[0], one_layer=True)}

    assert roles("llama-3.1-8b") == dict.fromkeys(ROLES[:-1], 1)
    assert "attention, window" in roles("gemma-3-4b")
    assert "attention" not in roles("gemma-3-4b")
    assert roles("mixtral-8x7b")["expert down"] == 1
    assert roles("mixtral-8x7b", batch=64)["expert down"] == 1


def test_a_layer_in_one_graph_and_the_sum_of_its_operations() -> None:
    """At one speed they are equal; the step's time is the sum of the operations alone."""
    executor = Pretended()
    found = answered(ModelRequest(LLAMA, (point(), point(context=100)), chain=True), executor)
    assert [type(spec) is Chain for spec in executor.measured[-2:]] == [True, True]
    layers = found.layers
    assert layers["together_ms"].tolist() == pytest.approx(layers["sum_ms"].tolist())
    rows = found.frame[found.frame["role"] == "layer"]
    assert rows["count"].tolist() == [0, 0]
    assert found.time_ms == pytest.approx(answered(ModelRequest(LLAMA, (point(),))).time_ms)
    assert "back to back" in str(found)


def test_a_layer_on_this_machine() -> None:
    found = bwprof.model_step(TINY, context=16, weights="fp32", device="cpu", roofs=False, max_seconds=0.01, chain=True)
    rows = found.frame[found.frame["role"] == "layer"].set_index("weights")
    assert rows.loc["fp32", "status"] == "ok"
    assert rows.loc["fp32", "verified"]
    parts = found.frame[(found.frame["weights"] == "fp32") & (found.frame["count"] == 2)]
    for name in ("bytes_read", "algorithmic_bytes_read", "algorithmic_bytes_written"):
        assert rows.loc["fp32", name] == parts[name].sum()
    assert found.layers["together_ms"].iloc[0] > 0
    assert (list(rows.index), found.layers["weights"].tolist()) == (["fp32"], ["fp32"])


@pytest.mark.cuda
def test_a_layer_in_one_graph() -> None:
    small = architecture.Architecture("small", 1024, 4096, 2, 8, 2, 128, 1000)
    found = bwprof.model_step(small, context=512, device="cuda", roofs=False, max_seconds=0.1, chain=True)
    row = found.frame.iloc[-1]
    assert (row["role"], row["status"], row["timer"]) == ("layer", "ok", "graph")
    assert row["verified"]


# ---- predictions ----


def test_a_prediction_has_the_columns_of_a_sweep() -> None:
    found = bwprof.model_step("llama-3.1-8b", device="A100-80GB", batch=[1, 16], prefill=True)
    assert list(found.frame.columns[-len(LABELS) :]) == list(LABELS)
    assert set(schema.column_names()) <= set(found.frame.columns)
    assert set(found.frame["status"]) == {"predicted"}
    # 16.1 GB less embeddings at 90 % of a stream's speed, which is below 2 039 GB/s
    assert 15.0 / 2039 * 1e3 / 0.9 < found.time_ms < 1.2 * 15.5 / 2039 * 1e3 / 0.9
    assert found.answer.startswith("Decode is memory-bound; ")
    assert "predicted at 90 %" in found.answer
    assert found.steps["limiter"].tolist() == ["memory", "memory", "compute", "compute"]


@pytest.mark.parametrize("width", [80, 120])
def test_words_stay_whole_on_a_narrow_terminal(width: int) -> None:
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_step(bwprof.model_step("llama-3.1-8b", device="L4").frame, screen)
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    (line,) = (said for said in lines if "1x4096x14336" in said)
    assert all(word in line for word in ("down", "memory", "predicted", *(["fp16"] if width > 80 else [])))
    assert any(said.startswith("decode ") and said.rstrip().endswith("yes") for said in lines)
    assert max(map(len, lines)) <= width


def test_a_report_of_a_models_run_is_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = bwprof.model_step("qwen2.5-0.5b", device="L4", output=tmp_path / "step.json")
    assert report_command.main_report([str(tmp_path / "step.json")]) == 0
    assert capsys.readouterr().out.rstrip() == str(found)
    assert (
        report_command.main_report([str(bwprof.save(found.frame, tmp_path / "step.csv"))]) == 0
    )  # without what was asked
    assert "decode b=1 c=4096 qkv" in capsys.readouterr().out


def test_zero_seconds_are_a_limit() -> None:
    with pytest.raises(ValueError, match="unknown model 'none'"):
        bwprof.model_step("none", max_seconds=0)


def test_without_a_memory_nothing_fits_or_does_not() -> None:
    found = bwprof.model_step("llama-3.1-8b", device="bandwidth=1000,fp16=100")
    assert (found.steps["fits"].iloc[0], found.room.empty) == (None, True)
    assert any("--memory" in note and "not known" in note for note in found.notes())
    known = bwprof.model_step("llama-3.1-8b", device="bandwidth=1000,fp16=100", memory=24 * 10**9)
    assert not any("not known" in note for note in known.notes())


def test_a_prediction_by_numbers() -> None:
    found = bwprof.model_step("llama-3.1-8b", device="bandwidth=1000,fp16=100,memory=24", efficiency=0.5)
    slow = found.time_ms
    fast = bwprof.model_step("llama-3.1-8b", device="bandwidth=1000,fp16=100,memory=24", efficiency=1.0).time_ms
    assert slow is not None
    assert fast is not None
    assert slow == pytest.approx(2 * fast, rel=0.01)


def test_a_prediction_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    found = bwprof.model_step("qwen2.5-0.5b", device="L4", output=path)
    again = bwprof.ModelStep.from_frame(bwprof.load(path))
    assert again.answer == found.answer
    assert again.formats.equals(found.formats)
    with pytest.raises(FileExistsError):
        bwprof.model_step("qwen2.5-0.5b", device="L4", output=path)
    bwprof.model_step("qwen2.5-0.5b", device="L4", output=path, force=True)


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("facts", [1], r"facts .*\[1\]"),
        ("facts", {"memory_bytes": "many"}, "memory_bytes.*'many'"),
        ("facts", {"memory_bytes": 10**400}, "memory_bytes.* is 10*"),
        ("memory_bytes", 10**30, "memory_bytes is 10*"),
        ("memory_bytes", -1, "memory_bytes is -1"),
        ("role", "atention", "column role: .*'atention'.*'attention'"),
        ("role", None, "column role: .*'None'"),
    ],
)
def test_a_damaged_file_is_refused(where: str, value: Any, said: str) -> None:
    found = bwprof.load_example("h200_llama")
    run = dict(found.attrs["run"])
    if where == "role":
        found = found.assign(role=value)
    else:
        run |= {"model": {**run["model"], where: value}} if where == "memory_bytes" else {where: value}
    found.attrs = {"run": run}
    with pytest.raises(ValueError, match=said):
        str(ModelStep.from_frame(found))


@pytest.mark.parametrize("roofs", [[1], 5, "x", {"points": [1]}])
def test_damaged_roofs_are_ignored(roofs: Any) -> None:
    found = bwprof.load_example("h200_llama")
    found.attrs = {"run": {**found.attrs["run"], "roofs": roofs}}
    assert ModelStep.from_frame(found).answer


def test_frames_without_a_model_are_refused() -> None:
    with pytest.raises(ValueError, match="column model is missing"):
        ModelStep.from_frame(bwprof.predict("gemm", precision="fp16"))
    found = bwprof.model_step("qwen2.5-0.5b", device="L4").frame
    found.attrs = {}
    with pytest.raises(ValueError, match="load the run's folder"):
        ModelStep.from_frame(found)


# ---- on a device ----


def test_a_step_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "DEFAULT_CASE_SECONDS", 0.05)
    seen: list[RowDict] = []
    found = bwprof.model_step(
        TINY,
        context=16,
        weights="fp32",
        device="cpu",
        roofs=False,
        max_seconds=0.01,
        progress=lambda done, total, row: seen.append(row),
    )
    assert [row["role"] for row in seen] == ROLES
    assert found.frame["verified"].all()
    assert (found.frame["time_ms"] > 0).all()
    assert found.time_ms == pytest.approx(float((found.frame["count"] * found.frame["time_ms"]).sum()))
    assert found.frame.attrs["run"]["model"]["architecture"]["hidden"] == 64


@pytest.mark.parametrize("device", ["H200", "H100-SXM", "A100-80GB"])
def test_a_step_is_predicted_as_its_operations_are(device: str, tmp_path: Path) -> None:
    """Streams are scaled from those of the measured run, in rows and in omitted work."""
    rows = bwprof.load_example("h100_llama")
    step = bwprof.model_step("llama-3.1-8b", device=device, efficiency=rows, output=tmp_path / "step.json")
    alone = bwprof.predict(step.frame, device=device, efficiency=bwprof.efficiency(rows))
    for name in ("time_ms", "time_ms_lo", "time_ms_hi", "attainable_gb_s"):
        assert step.frame[name].tolist() == alone[name].tolist(), name
    assert "NVIDIA H100" in step.frame["reason"].iloc[0]
    norms = step.left_out.set_index("what").loc["norms"]
    card = resolve_card(device, Streams.of(Roofs.from_dict(dict(rows.attrs["run"]["roofs"]))))
    each = card.streams.seconds(norms["bytes"] * 2 / 3, norms["bytes"] / 3)
    assert norms["time_ms"] == pytest.approx(1e3 * norms["count"] * float(each), rel=0.1)
    kept = ModelStep.from_frame(bwprof.load(tmp_path / "step.json"))
    assert kept.left_out["time_ms"].tolist() == pytest.approx(step.left_out["time_ms"].tolist(), rel=1e-12)


def streams_dict(floor: object = 1, mix: object = 1, sizes: object = (1, 2), times: object = (1, 2)) -> dict[str, Any]:
    curve = {"read_fraction": mix, "bytes": sizes, "microseconds": times}
    return {"device": "H100", "floor_microseconds": floor, "curves": [curve]}


@pytest.mark.parametrize(
    "streams",
    [
        [], "H100", {}, streams_dict() | {"curves": []}, streams_dict() | {"curves": 2 * streams_dict()["curves"]},
        streams_dict(floor=math.nan), streams_dict(floor=-1), streams_dict(mix=2), streams_dict(mix=math.nan),
        streams_dict(sizes=[2, 1]), streams_dict(sizes=[0, 2]), streams_dict(sizes=[1, "x"]),
        streams_dict(times=[2, 1]), streams_dict(times=[1]), streams_dict(times=[1, math.inf]),
        streams_dict(sizes=[], times=[]), streams_dict(sizes=1, times=1),
    ],
)  # fmt: skip
def test_damaged_streams_are_refused(streams: object) -> None:
    with pytest.raises(ValueError, match="these are no streams"):
        Streams.from_dict(streams)
    assert llm_executor.card_of_run({"predict_device": "H200", "predict_streams": streams}) is None
    assert llm_executor.card_of_run({"predict_device": "H200", "predict_streams": streams_dict()}) is not None


def test_streams_are_written_and_read() -> None:
    again = Streams.from_dict(json.loads(json.dumps(bundled_streams().to_dict())))
    assert again.seconds(1e6, 2e6) == pytest.approx(bundled_streams().seconds(1e6, 2e6), rel=1e-12)
    assert (again.measured_on, again.floor_seconds) == (bundled_streams().measured_on, bundled_streams().floor_seconds)


# ---- several devices ----


@pytest.mark.parametrize("devices", ["h100,L4", ["H100-SXM", "L4"]])
def test_several_devices_share_a_table_of_steps(devices: str | list[str], tmp_path: Path) -> None:
    """Each has its own times and memory; the answer is about the first; a file has all of them."""
    target = tmp_path / "step.json"
    found = bwprof.model_step("llama-3.1-8b", batch=[1, 64], device=devices, output=target)
    assert found.steps["device"].tolist() == ["H100-SXM", "L4"] * 2
    for name in ("H100-SXM", "L4"):
        alone = bwprof.model_step("llama-3.1-8b", batch=[1, 64], device=name).steps
        own = found.steps[found.steps["device"] == name].reset_index(drop=True)
        assert own[["time_ms", "fits", "weight_bytes"]].equals(alone[["time_ms", "fits", "weight_bytes"]])
    assert found.steps["fits"].tolist() == [True, True, True, False]
    assert "on H100-SXM" in found.answer
    assert [one.frame["device"].unique().tolist() for one in found.others] == [["L4"]]
    again = ModelStep.from_frame(bwprof.load(target))
    assert again.steps.equals(found.steps)
    steps = next(table for table in again.tables() if table.caption == "Steps")
    assert steps.headings[0] == "device"
    assert [line[0] for line in steps.lines] == ["H100-SXM", "L4"] * 2
    frame = found.frame.copy()
    frame.attrs = {"run": {**found.frame.attrs["run"], "devices": {}}}
    with pytest.raises(ValueError, match="'H100-SXM'"):
        ModelStep.from_frame(frame)


def test_several_devices_are_not_measured() -> None:
    with pytest.raises(ValueError, match="'cpu' is measured"):
        bwprof.model_step(TINY, device="cpu,H200")
    with pytest.raises(ValueError, match="unknown device 'nothing'"):
        bwprof.model_step(TINY, device=["H200", "nothing"])
    with pytest.raises(ValueError, match="device is empty"):
        bwprof.model_step(TINY, device=[])


def test_a_dry_run_lists_each_shape_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It measures nothing."""
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    given = [str(tmp_path), "--context", "16,32", "--device", "cpu", "--dry-run", "--output", str(tmp_path / "runs")]
    assert model_command.main_model(given) == 0
    out = capsys.readouterr().out
    assert out.count("lm head") == 1
    assert "9 cases on cpu:0" in out  # 7 of one context, of which the cache's two differ in the other
    assert not (tmp_path / "runs").exists()
    assert model_command.main_model(["llama-3.1-8b", "--device", "H200", "--dry-run"]) == 2
    assert "leave out --dry-run" in capsys.readouterr().err


def test_a_picture_has_a_bar_for_each_device() -> None:
    found = bwprof.model_step("llama-3.1-8b", device="H200,L4")
    axes = bwprof.plot.model(found.frame)
    assert [label.get_text().split(",")[0] for label in axes.get_yticklabels()] == ["H200", "L4"]
