"""`bwprof.ablation` and its command: rows, tables, pictures; on the CPU, with a PyTorch made of NumPy."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import fake_torch
import pandas as pd
import pytest

import bwprof
from bwprof import _core, registry
from bwprof.cli import main
from bwprof.experiments import ablation as ablation_table
from bwprof.experiments import torch_peers
from bwprof.experiments.ablation import NOT_REQUESTED
from bwprof.plot.gains import build_ablation

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"device": "cpu", "cache": "hot", "max_seconds": 0.01, "roofs": False}
ONE = {**SMALL, "variant": "naive"}  # one variant is enough
THREE = {**SMALL, "variant": "naive,gemv,blocked"}  # of FP32
SHAPE = {"M": 4, "N": 32, "K": 48}
HEADINGS = ["Version", "Speedup vs PyTorch", "Memory BW", "Occupancy", "Key Change"]


# ---- ratios by hand ----

LADDER: list[dict[str, Any]] = [
    {"name": "plain", "changes": "the baseline", "predicted": None, "because": None, "at": "fp16 M=1"},
    {"name": "slow", "changes": "worse", "predicted": 0.5, "because": "so", "at": "fp16 M=1"},
    {"name": "gone", "changes": "elsewhere", "predicted": 9.0, "because": "so", "at": "fp16 M=2"},
    {"name": "wrong", "changes": "wrong", "predicted": 2.0, "because": "so", "at": "fp16 M=1"},
    {"name": "fast", "changes": "better", "predicted": 4.0, "because": "so", "at": "fp16 M=1"},
    {"name": "other", "changes": "for others", "predicted": 4.0, "because": "so", "at": "fp32 M=1"},
]


def measured(time_ms: float, **more: Any) -> dict[str, Any]:
    return {"status": "ok", "verified": True, "time_ms": time_ms, "flags": "", "bandwidth_gb_s": 120 / time_ms} | more


@pytest.fixture
def found() -> pd.DataFrame:
    ladder = [row | {"precisions": ["fp32"] if row["name"] == "other" else ["fp16"]} for row in LADDER]
    rows = {
        "plain": measured(8.0),
        "slow": measured(10.0, flags="noisy"),
        "gone": {"status": "skipped", "reason": "gemm: variant 'gone' does not run this case: M is 1"},
        "wrong": measured(0.001, verified=False, reason="row 3 is wrong"),
        "fast": measured(2.0),
    }
    kernel = {"registers": 40, "local_bytes": 0, "static_shared_bytes": 1024, "dynamic_shared_bytes": 512}
    kernels = [
        {"variant": "plain", "theoretical_pct": 100.0, "limiter": "threads", "default": False, "reason": "", **kernel},
        {"variant": "plain", "theoretical_pct": 25.0, "limiter": "shared", "default": False, "reason": "", **kernel},
        {"variant": "gone", "registers": None, "default": False, "reason": "M is 1"},
    ]
    beside = [
        ("A", measured(4.0)),
        ("B", measured(1.0, verified=None)),
        ("C", {"status": "failed", "reason": "no kernel"}),
    ]
    common = {"operation": "gemm", "precision": "fp16", "shape": "M=1", "backend": "cuda", "device": "Card"}
    made = ablation_table.make_frame(ladder, rows, kernels, beside, common, {"fp16 M=1"})
    made.attrs = {"torch": "PyTorch 2.9", "run": {}}
    return made


def test_gains_are_over_the_last_verified_variant(found: pd.DataFrame) -> None:
    line = found.set_index("version")
    assert line["measured_gain"].dropna().to_dict() == {"slow": 0.8, "fast": 5.0}
    assert line["speedup_vs_first"].dropna().to_dict() == {"plain": 1.0, "slow": 0.8, "fast": 4.0, "A": 2.0}
    assert line["predicted_gain"].dropna().to_dict() == {
        "slow": 0.5,
        "gone": 9.0,
        "wrong": 2.0,
        "fast": 4.0,
        "other": 4.0,
    }
    assert line["predicted_here"].dropna().to_dict() == {
        "slow": True,
        "gone": False,
        "wrong": True,
        "fast": True,
        "other": False,
    }


def test_a_transform_pays_after_the_launches_that_save_it(found: pd.DataFrame) -> None:
    """30 ms once, against the first variant: 8 ms a launch, of which `fast` saves 6, and `slow` none."""
    assert found["break_even_tokens"].isna().all()
    ladder = [row | {"precisions": ["fp16"]} for row in LADDER if row["name"] in ("plain", "slow", "fast")]
    rows = {"plain": measured(8.0), "slow": measured(10.0, transform_ms=30.0), "fast": measured(2.0, transform_ms=30.0)}
    common = {"operation": "gemm", "precision": "fp16", "shape": "M=1", "backend": "cuda", "device": "Card"}
    line = ablation_table.make_frame(ladder, rows, [], [], common, set()).set_index("version")
    assert line["break_even_tokens"].dropna().to_dict() == {"fast": 5.0}
    notes = [note for note in ablation_table.notes(line.reset_index()) if "fast" in note]
    assert len(notes) == 1
    assert "30 ms" in notes[0]
    assert "5.0" in notes[0]


def test_speedups_are_over_the_fastest_verified_peer(found: pd.DataFrame) -> None:
    """B is faster, but its result was not verified."""
    line = found.set_index("version")
    assert line["speedup_vs_torch"].dropna().to_dict() == {"plain": 0.5, "slow": 0.4, "fast": 2.0, "A": 1.0}


def test_a_variant_that_did_not_run_has_a_reason(found: pd.DataFrame) -> None:
    line = found.set_index("version")
    assert line.loc["gone", "reason"] == "M is 1"
    assert {"fp32", "fp16"} <= set(line.loc["other", "reason"].replace(",", "").split())
    table = ablation_table.table(found).set_index("Version")
    for name, reason in (("gone", "M is 1"), ("wrong", "row 3 is wrong")):
        assert table.loc[name].tolist()[:3] == ["", "", ""]
        assert table.loc[name, "Key Change"].endswith(reason)
    assert ablation_table.gains(found).set_index("Version").loc["wrong"].tolist()[:3] == ["", "", ""]


def test_tables_in_markdown(found: pd.DataFrame, snapshot: Callable[..., None]) -> None:
    """Gains, times, a prediction for another shape, and a flagged row, as they are printed."""
    table = ablation_table.table(found)
    assert list(table) == HEADINGS
    assert table.iloc[0].tolist() == ["plain", "0.50x", "15.0 GB/s", "25 %", "the baseline"]
    assert table.iloc[1].tolist() == ["slow", "0.40x", "12.0 GB/s*", "", "worse"]
    snapshot(ablation_table.markdown(found))


def test_a_prediction_for_another_shape_names_it(found: pd.DataFrame) -> None:
    reasons = ablation_table.gains(found).set_index("Version")["Reason of the prediction"]
    assert reasons.to_dict() == {
        **{"plain": "", "slow": "so", "gone": "(at fp16 M=2) so", "wrong": "so", "fast": "so"},
        **{"other": "(at fp32 M=1) so", "A": "", "B": "", "C": ""},
    }
    elsewhere = ablation_table.gains(found.assign(predicted_here=False)).set_index("Version")
    assert elsewhere.loc["fast", "Reason of the prediction"] == "(at fp16 M=1) so"


def test_small_ratios_keep_two_digits() -> None:
    assert [ablation_table._format_times(value) for value in (0.02749, 0.00075, 0.1, 12.345)] == [
        "0.027x",
        "0.00075x",
        "0.10x",
        "12.35x",
    ]


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        *((1.0, "0 %"), (1.0049, "0 %"), (0.9951, "0 %"), (1.0051, "+1 %"), (0.97, "-3 %"), (1.06, "+6 %")),
        *((0.5, "-50 %"), (1.994, "+99 %"), (1.996, "2.00x"), (2.0, "2.00x"), (0.494, "0.49x"), (0.015, "0.015x")),
    ],
)
def test_gains_are_formatted_alike_in_table_and_picture(found: pd.DataFrame, gain: float, said: str) -> None:
    """Predicted and measured gains have one format; the columns are ratios."""
    from matplotlib.figure import Figure

    one = found.assign(measured_gain=found["measured_gain"].where(found["version"] != "fast", gain))
    one["predicted_gain"] = one["predicted_gain"].where(one["version"] != "fast", gain)
    one.attrs = found.attrs
    line = ablation_table.gains(one).set_index("Version").loc["fast"]
    assert (line["Measured gain"], line["Predicted gain"]) == (said, said)
    (printed,) = (line for line in ablation_table.markdown(one).splitlines() if line.startswith("| fast | 2 ms "))
    assert printed.split(" | ")[2:5] == ["4.00x", said, said]
    assert one.set_index("version").loc["fast", ["measured_gain", "predicted_gain"]].tolist() == [gain, gain]
    drawn = [text.get_text() for text in bwprof.plot.ablation(one, Figure().add_subplot()).texts]
    assert f"4.00x ({said})" in [text.replace("\u00d7", "x") for text in drawn]


def torch_note(data: pd.DataFrame) -> str:
    """Return the note on PyTorch's column."""
    return next(note for note in ablation_table.notes(data) if "PyTorch" in note)


def test_a_note_has_the_reason_of_a_failed_peer(found: pd.DataFrame) -> None:
    alone = found[found["version"].isin(["plain", "C"])].assign(speedup_vs_torch=float("nan"))
    alone.attrs = found.attrs
    assert "C: no kernel" in torch_note(alone)


# ---- on the CPU ----


def test_an_ablation_on_the_cpu() -> None:
    found = bwprof.ablation("gemm", **SHAPE, **SMALL)
    rows = registry.operation("gemm")["variants"]["cpu"]
    names = [row["name"] for row in rows]
    assert found["version"].tolist() == names
    found = found[["fp32" in row["precisions"] for row in rows]]
    assert found["verified"].all()
    times = found["time_ms"].tolist()
    assert found["measured_gain"].tolist()[1:] == pytest.approx([a / b for a, b in pairwise(times)], nan_ok=True)
    assert found["speedup_vs_torch"].isna().all()
    assert NOT_REQUESTED in torch_note(found)
    assert found["default"].sum() == 1


def test_without_parameters_it_is_the_shape_of_the_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    from bwprof.runs import api

    asked: list[Any] = []

    def seen(request: Any, how: Any) -> pd.DataFrame:
        asked.append(request)
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "run_sweep", seen)
    with pytest.raises(KeyboardInterrupt):
        bwprof.ablation("gemm", **SMALL)
    precision, params = registry.parse_point(registry.operation("gemm")["variants"]["cpu"][0]["at"])
    assert asked[0].precisions == (precision,)
    assert asked[0].params == {
        name: (value,) for name, value in registry.complete_params("gemm", precision, params).items()
    }
    with pytest.raises(KeyboardInterrupt):
        bwprof.ablation("gemm", M=3, **SMALL)
    assert asked[1].precisions == ("fp32",)
    assert asked[1].params["M"] == (3,)


def test_a_prediction_does_not_hold_without_its_predecessor() -> None:
    """`blocked` is predicted over the variant before it, not over `naive`."""
    names = registry.variant_names("gemm", "cpu")
    at = registry.parse_point(registry.operation("gemm")["variants"]["cpu"][-1]["at"])
    shape = {name: value // 8 for name, value in at[1].items()}
    found = bwprof.ablation("gemm", variant=[names[0], names[-1]], **shape, **SMALL)
    assert found["predicted_here"].tolist()[1:] == [False]
    ladder = registry.operation("gemm")["variants"]["cpu"]
    rows = {name: measured(1.0) for name in names}
    for left_out, here in ((set(), True), ({names[-1]}, False)):
        data = ablation_table.make_frame(ladder, rows, [], [], {"precision": "fp32"}, {ladder[-1]["at"]}, left_out)
        assert data["predicted_here"].tolist()[-1] is here


def test_a_variant_of_other_precisions_is_a_row() -> None:
    found = bwprof.ablation("gemm", precision="q4_0", **SHAPE, **SMALL).set_index("version")
    assert found.loc["naive", "status"] == "ok"
    assert "not q4_0" in found.loc["blocked", "reason"]
    assert found["speedup_vs_first"].dropna().index.tolist() == ["naive", "gemv", "separate"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"op": "gem"}, "gemm"),
        ({"vs": "tensorflow"}, "vs 'tensorflow'"),
        ({"variant": "tild"}, "variant of gemm on cpu"),
        ({"precision": "fp33"}, "fp33"),
        ({"precision": "tf32"}, "tf32: gemm on cpu .*fp32, fp16, bf16, fp8_e4m3"),
        ({"Q": 3}, "Q"),
        ({"cache": "warm"}, "warm"),
        ({"cache": "both"}, "unknown cache 'both': .*Allowed: cold, hot"),
        ({"precision": ""}, "unknown precision ''"),
        ({"max_seconds": -1}, "max_seconds"),
    ],
)
def test_arguments_are_checked_before_the_measurement(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bwprof.ablation(**{"op": "gemm", **SMALL, **how})


def test_an_operation_without_kernels_on_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    described = registry.operation("gemm")
    monkeypatch.setattr(registry, "operation", lambda name: described | {"variants": {"cpu": [], "cuda": [{}]}})
    with pytest.raises(ValueError, match=r"gemm .* cpu: .*cuda"):
        bwprof.ablation("gemm", **SMALL)


# ---- PyTorch ----


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    return fake_torch.plant(monkeypatch)


def test_pytorch_is_measured_beside_the_variants(torch: Any) -> None:
    found = bwprof.ablation("gemm", vs="torch", **SHAPE, **THREE)
    peer = found[found["kind"] == "peer"].iloc[0]
    assert (peer["version"], peer["status"], peer["verified"]) == ("torch.matmul", "ok", True)
    assert peer["speedup_vs_torch"] == 1.0
    ours = found[found["kind"] == "variant"]
    assert ours["speedup_vs_torch"].tolist() == pytest.approx((peer["time_ms"] / ours["time_ms"]).tolist(), nan_ok=True)
    assert "torch.matmul of PyTorch 0.0-fake" in torch_note(found)
    assert set(torch.seen) == {False}  # FP32 is no TF32
    assert torch.settings.allow_tf32 == "before"


def test_a_wrong_result_of_pytorch_gives_no_speedup(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.matmul

    def wrong(a: fake_torch.Tensor, b: fake_torch.Tensor, *, out: fake_torch.Tensor) -> fake_torch.Tensor:
        right(a, b, out=out)
        out.array[0, 0] += 1
        return out

    monkeypatch.setattr(torch, "matmul", wrong)
    found = bwprof.ablation("gemm", vs="torch", **SHAPE, **ONE)
    assert found["speedup_vs_torch"].isna().all()
    peer = found[found["kind"] == "peer"].iloc[0]
    assert not peer["verified"]
    assert peer["reason"].startswith("wrong result: ")
    assert ablation_table.table(found).iloc[-1].tolist()[:4] == ["torch.matmul", "", "", ""]


@pytest.mark.parametrize("causal", [0, 1])
def test_each_attention_backend_is_a_peer(torch: Any, causal: int) -> None:
    shape = {"batch": 1, "seq_len": 9, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "causal": causal}
    found = bwprof.ablation("attention_prefill", precision="fp16", vs="torch", variant="flash", **shape, **SMALL)
    found = found.set_index("version")
    peer = found[found["kind"] == "peer"]
    assert peer["status"].to_dict() == {"SDPA FLASH": "ok", "SDPA CUDNN": "ok", "SDPA MATH": "failed"}
    assert peer["reason"]["SDPA MATH"] == "no available kernel"
    assert peer["verified"].dropna().all()
    assert peer["speedup_vs_torch"].max() == 1.0
    assert {"flash", "cudnn"} <= set(torch.seen)


@pytest.mark.parametrize(
    ("operation", "precision", "params", "said"),
    [
        ("gemm", "fp32", {**SHAPE, "beta": 1}, "it needs beta == 0"),
        ("gemm", "q4_0", SHAPE, "it takes no q4_0"),
        ("attention_prefill", "fp32", {"seq_len": 4, "kv_len": 8, "head_dim": 8}, "it needs seq_len == kv_len"),
    ],
)
@pytest.mark.usefixtures("torch")
def test_a_peer_refuses_other_work(operation: str, precision: str, params: dict[str, int], said: str) -> None:
    variant = registry.variant_names(operation, "cpu", precision)[0]
    found = bwprof.ablation(operation, precision=precision, vs="torch", variant=variant, **params, **SMALL)
    assert set(found[found["kind"] == "peer"]["reason"]) == {said}


def test_without_pytorch_the_column_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(torch_peers.importlib.util, "find_spec", lambda name: None)
    found = bwprof.ablation("gemm", vs="torch", **SHAPE, **ONE)
    assert found["kind"].eq("variant").all()
    assert found.attrs["torch"] == "PyTorch is not installed"
    assert found.attrs["torch"] in torch_note(found)
    assert found["speedup_vs_first"].notna().all()


def test_an_operation_without_a_counterpart() -> None:
    found = bwprof.ablation("rmsnorm", vs="torch", tokens=2, hidden=16, **SMALL)
    assert "rmsnorm" in found.attrs["torch"]
    assert found["kind"].eq("variant").all()


@pytest.mark.parametrize("operation", _core.operations(), ids=lambda operation: operation["name"])
def test_peers_name_operands_of_their_operation(operation: dict[str, Any]) -> None:
    """Operands, parameters and precisions exist in the operation."""
    params = {param["name"] for param in operation["params"]}
    for peer in torch_peers.peers_of(operation["name"]):
        assert set(peer.precisions) <= set(operation["precisions"])
        comparisons = [*peer.needs, *peer.flags.values()]
        assert {term for one, _, other in comparisons for term in (one, other) if isinstance(term, str)} <= params
        shape = {"seq_len": 4, "kv_len": 4, "elements": 64, "head_dim": 8, "M": 2, "N": 3, "K": 4}
        small = {name: value for name, value in shape.items() if name in params}
        with _core.Device("cpu") as device, _core.Case(device, operation["name"], "fp32", small) as case:
            operands = {operand["name"] for operand in case.operands}
        named = {argument["operand"] for argument in peer.arguments} | {peer.out or peer.result["operand"]}
        assert named <= operands
        assert bool(peer.out) != bool(peer.result)
        assert bool(peer.within) == bool(peer.choice)


def test_every_peer_has_an_operation() -> None:
    assert {entry["operation"] for entry in torch_peers._known()["peer"]} <= set(bwprof.operations().names())


# ---- the command ----


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    picture = tmp_path / "ladder.svg"
    given = ["ablation", "gemm", "--device", "cpu", "--cache", "hot", "--max-seconds", "0.01", "--no-roofs", "-q"]
    given += ["--variant", "naive"]
    given += [word for name, value in SHAPE.items() for word in ("-p", f"{name}={value}")]
    files = {kind: tmp_path / f"ladder.{kind}" for kind in ("csv", "json", "md")}
    named = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    assert main([*given, *named, "-o", str(picture)]) == 0
    out = capsys.readouterr().out
    assert all(fact in out for fact in ("gemm fp32", *(f"{name}={value}" for name, value in SHAPE.items())))
    assert "Predicted and measured" in out
    assert picture.read_text().startswith("<?xml")
    assert files["md"].read_text().splitlines()[2] == f"| {' | '.join(HEADINGS)} |"
    read = json.loads(files["json"].read_text())
    assert [row["version"] for row in read["rows"]] == pd.read_csv(files["csv"])["version"].tolist()
    assert read["torch"] == NOT_REQUESTED
    again = tmp_path / "again.svg"
    assert main(["plot", "ablation", str(files["json"]), "-o", str(again)]) == 0
    assert again.read_text().startswith("<?xml")
    assert main(["plot", "ablation", str(files["json"]), str(files["json"]), "-o", str(again), "--force"]) == 2
    of_table = tmp_path / "table.svg"
    assert main(["plot", "ablation", str(files["csv"]), "-o", str(of_table)]) == 0
    told = [
        [text.get_text() for text in bwprof.plot.ablation(files[kind], Figure().add_subplot()).texts]
        for kind in ("csv", "json")
    ]
    assert told[0] == told[1] != []
    assert main(["plot", str(files["csv"]), "-o", str(again), "--force"]) == 2
    error = capsys.readouterr().err
    assert "ladder.csv" in error
    assert "plot ablation" in error
    assert main([*given, "--csv", "-"]) == 0
    assert capsys.readouterr().out.startswith("operation,precision,")
    assert main([*given, "--csv", str(files["csv"])]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["gemm", "-p", "M=1,2"], "--param M has 2 values"),
        (["gemm", "--kv-lens", "1,2"], "gemm takes no kv_lens"),
        (["attention_decode", "-p", "kv_lens=1,2"], "lengths are given by --kv-lens 100,7000 (in Python kv_lens=["),
        (["gemm", "-o", "x.docx"], "ending of a picture"),
        (["gemm", "-o", "absent/x.png"], "-o absent/x.png: there is no folder absent that can be written to"),
        (["gemm", "--vs", "jax"], "vs 'jax'"),
        (["gem"], "gemm"),
    ],
)
def test_mistakes_in_the_command(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablation", *given, "--device", "cpu"]) == 2
    assert said in capsys.readouterr().err


def test_lengths_replace_the_predicted_shape(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["attention_decode", "--kv-lens", "10,70", "--variant", "simple", "--device", "cpu", "--no-roofs", "-q"]
    assert main(["ablation", *given, "--cache", "hot", "--max-seconds", "0.01"]) == 0
    assert "attention_decode fp32, kv_lens=10,70, on " in capsys.readouterr().out


# ---- the picture ----


def test_the_picture(found: pd.DataFrame) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    before = dict(mpl.rcParams)
    ax = Figure().add_subplot()
    assert bwprof.plot.ablation(found, ax) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == found["version"].tolist()
    assert "plain" in ax.get_xlabel()
    assert "(" in ax.get_xlabel(), "gains over the variant before are in parentheses"
    alone = bwprof.plot.ablation(found[found["version"].isin(["plain", "A"])], Figure().add_subplot())
    assert "plain" in alone.get_xlabel()
    assert "(" not in alone.get_xlabel(), "no variant is behind another"
    bars = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in ax.patches}
    assert bars == {0: 1.0, 1: 0.8, 4: 4.0, 6: 2.0}
    marks = {int(line.get_ydata()[0]): float(line.get_xdata()[0]) for line in ax.lines if line.get_marker() == "D"}
    assert marks == {1: 0.5, 4: pytest.approx(0.8 * 4)}  # those that are for this shape, of variants that ran
    texts = {text.get_text() for text in ax.texts}
    assert {"1.00\u00d7", "0.80\u00d7* (-20 %)", "4.00\u00d7 (5.00\u00d7)"} <= texts
    rows = found.set_index("version")
    assert all(any(rows.loc[name, "reason"] in text for text in texts) for name in ("gone", "wrong"))
    struck = [text.get_text() for text in ax.texts if text.get_bbox_patch() is None]
    assert not struck  # by the line of one, which stands behind them
    assert dict(mpl.rcParams) == before


def test_large_speedups_have_a_logarithmic_axis(found: pd.DataFrame) -> None:
    from matplotlib.figure import Figure

    wide = found.assign(speedup_vs_first=found["speedup_vs_first"] ** 5)
    ax = bwprof.plot.ablation(wide, Figure().add_subplot())
    assert ax.get_xscale() == "log"
    fast = next(bar for bar in ax.patches if round(bar.get_y() + bar.get_height() / 2) == 4)
    assert (fast.get_x(), fast.get_x() + fast.get_width()) == pytest.approx((1.0, 4.0**5))


def test_a_picture_shows_150_variants_at_most(found: pd.DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    """The title and a warning tell how many of them."""
    from matplotlib.figure import Figure

    many = pd.concat([found] * 700, ignore_index=True)
    size = build_ablation(many).size
    assert size[1] == pytest.approx(build_ablation(many.head(150)).size[1])
    ax = bwprof.plot.ablation(many, Figure(size).add_subplot())
    assert 100 < len(ax.get_yticklabels()) <= 150
    said = f"the first {len(ax.get_yticklabels())} of {len(many)} variants"
    assert said in ax.get_title(loc="left")
    assert f"the picture shows {said}" in caplog.text
    with pytest.raises(ValueError, match="1 of 2"):
        bwprof.plot.ablation(found.iloc[[2, 0]], Figure((4, 0.05)).add_subplot())


def test_other_frames_cannot_be_drawn(found: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="not a ladder"):
        bwprof.plot.ablation(found.drop(columns="predicted_gain"))
    with pytest.raises(ValueError, match="none ran"):
        bwprof.plot.ablation(found[found["version"] == "wrong"])
