"""Ladders: what `bwprof.ablation` and its command measure, say and draw; on the CPU, with a PyTorch made of NumPy."""

from __future__ import annotations

import json
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import fake_torch
import pandas as pd
import pytest

import bwprof
from bwprof import _core, registry
from bwprof.cli import main
from bwprof.experiments import ablation_table, torch_peers
from bwprof.experiments.ablation import NOT_REQUESTED
from bwprof.plot.gains import build_ablation

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"device": "cpu", "cache": "hot", "max_seconds": 0.01, "roofs": False}
ONE = {**SMALL, "variant": "naive"}  # variant: enough where the ladder itself is not asked about
SHAPE = {"M": 4, "N": 32, "K": 48}
HEADINGS = ["Version", "Speedup vs PyTorch", "Memory BW", "Occupancy", "Key Change"]


# ---- variants: ratios worked out by hand ----

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


def test_gains_are_over_the_last_rung_that_ran_with_a_right_result(found: pd.DataFrame) -> None:
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


def test_pytorch_is_its_fastest_peer_whose_result_was_verified(found: pd.DataFrame) -> None:
    """B would be faster, but nobody knows whether it is right."""
    line = found.set_index("version")
    assert line["speedup_vs_torch"].dropna().to_dict() == {"plain": 0.5, "slow": 0.4, "fast": 2.0, "A": 1.0}


def test_a_rung_that_did_not_run_is_a_row_with_its_reason(found: pd.DataFrame) -> None:
    line = found.set_index("version")
    assert line.loc["gone", "reason"] == "M is 1"
    assert line.loc["other", "reason"] == "it takes fp32, not fp16"
    table = ablation_table.table(found).set_index("Version")
    assert table.loc["gone"].tolist() == ["", "", "", "elsewhere; does not run here: M is 1"]
    assert table.loc["wrong"].tolist() == ["", "", "", "wrong; not verified: row 3 is wrong"]
    assert ablation_table.gains(found).set_index("Version").loc["wrong"].tolist()[:3] == ["", "", ""]


def test_the_table_is_the_one_that_was_promised(found: pd.DataFrame) -> None:
    table = ablation_table.table(found)
    assert list(table) == HEADINGS
    assert table.iloc[0].tolist() == ["plain", "0.50x", "15.0 GB/s", "25 %", "the baseline"]
    assert table.iloc[1].tolist() == ["slow", "0.40x", "12.0 GB/s*", "", "worse"]
    lines = ablation_table.markdown(found).splitlines()
    assert f"| {' | '.join(HEADINGS)} |" in lines
    assert "| slow | 10 ms | 0.80x | -20 % | -50 % | so |" in lines
    assert "| fast | 2 ms | 4.00x | 5.00x | 4.00x | so |" in lines
    assert "| gone | - | - | - | 9.00x | (at fp16 M=2) so |" in lines
    assert "* Speedup vs PyTorch: against A of PyTorch 2.9." in lines
    assert "* In doubt (\\*): slow: noisy." in lines
    others = "unless their line names another place"  # gone was predicted at M=2, and its line says so
    assert f"* Predictions are for fp16 M=1, {others}, over the previous variant of all." in lines
    elsewhere = ablation_table.notes(found.assign(predicted_here=False))
    assert any(f"for fp16 M=1, which is not what was measured, {others}, over" in note for note in elsewhere)
    alone = ablation_table.notes(found[~found["predicted_at"].isin(["fp16 M=2", "fp32 M=1"])])
    assert "Predictions are for fp16 M=1, over the previous variant of all." in alone


def test_small_ratios_keep_two_digits() -> None:
    assert [ablation_table._times_text(value) for value in (0.02749, 0.00075, 0.1, 12.345)] == [
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
def test_a_rung_that_brings_nothing_says_so_wherever_it_is_told(found: pd.DataFrame, gain: float, said: str) -> None:
    """Predicted and measured alike; the numbers stay ratios."""
    from matplotlib.figure import Figure

    one = found.assign(measured_gain=found["measured_gain"].where(found["version"] != "fast", gain))
    one["predicted_gain"] = one["predicted_gain"].where(one["version"] != "fast", gain)
    one.attrs = found.attrs
    line = ablation_table.gains(one).set_index("Version").loc["fast"]
    assert (line["Measured gain"], line["Predicted gain"]) == (said, said)
    assert f"| fast | 2 ms | 4.00x | {said} | {said} | so |" in ablation_table.markdown(one).splitlines()
    assert one.set_index("version").loc["fast", ["measured_gain", "predicted_gain"]].tolist() == [gain, gain]
    drawn = [text.get_text() for text in bwprof.plot.ablation(one, Figure().add_subplot()).texts]
    assert f"4.00x ({said})" in [text.replace("\u00d7", "x") for text in drawn]


def test_what_a_gain_is_stands_below_the_table(found: pd.DataFrame) -> None:
    told = "within a factor of two in per cent, +25 % for 1.25, and 0 % for no change."
    assert any(note.endswith(told) for note in ablation_table.notes(found))


def test_a_peer_that_fails_says_why_the_column_is_empty(found: pd.DataFrame) -> None:
    alone = found[found["version"].isin(["plain", "C"])].assign(speedup_vs_torch=float("nan"))
    alone.attrs = found.attrs
    assert "PyTorch's column is empty: C: no kernel." in ablation_table.notes(alone)


# ---- on the CPU ----


def test_a_ladder_of_the_cpu() -> None:
    found = bwprof.ablation("gemm", **SHAPE, **SMALL)
    names = [row["name"] for row in registry.operation("gemm")["variants"]["cpu"]]
    assert found["version"].tolist() == names
    assert found["verified"].all()
    times = found["time_ms"].tolist()
    assert found["measured_gain"].tolist()[1:] == pytest.approx([a / b for a, b in pairwise(times)])
    assert found["speedup_vs_torch"].isna().all()
    assert f"PyTorch's column is empty: {NOT_REQUESTED}." in ablation_table.notes(found)
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


def test_a_prediction_does_not_count_over_a_rung_that_was_left_out() -> None:
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


def test_a_rung_in_another_precision_is_a_row_too() -> None:
    found = bwprof.ablation("gemm", precision="q4_0", **SHAPE, **SMALL).set_index("version")
    assert found.loc["naive", "status"] == "ok"
    assert "not q4_0" in found.loc["blocked", "reason"]
    assert found["speedup_vs_first"].dropna().to_dict() == {"naive": 1.0}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"op": "gem"}, "gemm"),
        ({"vs": "tensorflow"}, "vs 'tensorflow'"),
        ({"variant": "tild"}, "variant of gemm on cpu"),
        ({"precision": "fp33"}, "fp33"),
        ({"precision": "int8"}, "no kernel takes int8: gemm on cpu runs in fp32, fp16, bf16, q4_0"),
        ({"Q": 3}, "Q"),
        ({"cache": "warm"}, "warm"),
        ({"cache": "both"}, "unknown cache 'both': .*Allowed: cold, hot"),
        ({"precision": ""}, "unknown precision ''"),
        ({"max_seconds": -1}, "max_seconds"),
    ],
)
def test_mistakes_are_said_before_anything_runs(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bwprof.ablation(**{"op": "gemm", **SMALL, **how})


def test_an_operation_without_kernels_on_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    described = registry.operation("gemm")
    monkeypatch.setattr(registry, "operation", lambda name: described | {"variants": {"cpu": [], "cuda": [{}]}})
    with pytest.raises(ValueError, match="gemm has no variant on cpu: allowed are cuda"):
        bwprof.ablation("gemm", **SMALL)


# ---- PyTorch ----


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    return fake_torch.plant(monkeypatch)


def test_pytorch_beside_the_ladder(torch: Any) -> None:
    found = bwprof.ablation("gemm", vs="torch", **SHAPE, **SMALL)
    peer = found[found["kind"] == "peer"].iloc[0]
    assert (peer["version"], peer["status"], peer["verified"]) == ("torch.matmul", "ok", True)
    assert peer["speedup_vs_torch"] == 1.0
    ours = found[found["kind"] == "variant"]
    assert ours["speedup_vs_torch"].tolist() == pytest.approx((peer["time_ms"] / ours["time_ms"]).tolist())
    assert "Speedup vs PyTorch: against torch.matmul of PyTorch 0.0-fake." in ablation_table.notes(found)
    assert set(torch.seen) == {False}  # FP32 is no TF32
    assert torch.settings.allow_tf32 == "before"


def test_a_wrong_pytorch_is_no_yardstick(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_each_way_to_attend_is_a_peer(torch: Any, causal: int) -> None:
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
def test_a_peer_that_does_other_work_says_so(operation: str, precision: str, params: dict[str, int], said: str) -> None:
    variant = registry.variant_names(operation, "cpu", precision)[0]
    found = bwprof.ablation(operation, precision=precision, vs="torch", variant=variant, **params, **SMALL)
    assert set(found[found["kind"] == "peer"]["reason"]) == {said}


def test_without_pytorch_the_column_is_empty_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(torch_peers.importlib.util, "find_spec", lambda name: None)
    found = bwprof.ablation("gemm", vs="torch", **SHAPE, **ONE)
    assert found["kind"].eq("variant").all()
    assert "PyTorch's column is empty: PyTorch is not installed." in ablation_table.notes(found)
    assert found["speedup_vs_first"].notna().all()


def test_an_operation_that_pytorch_has_not() -> None:
    found = bwprof.ablation("rmsnorm", vs="torch", tokens=2, hidden=16, **SMALL)
    assert found.attrs["torch"] == "PyTorch has no known counterpart of rmsnorm"


@pytest.mark.parametrize("operation", _core.operations(), ids=lambda operation: operation["name"])
def test_peers_belong_to_operations_as_they_are(operation: dict[str, Any]) -> None:
    """Operands, parameters and precisions are the operation's own; each entry of the file is some operation's."""
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


def test_every_entry_is_some_operations() -> None:
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
    assert "gemm fp32, M=4 N=32 K=48, on " in out
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
    assert "ladder.csv is a ladder: bwprof plot ablation" in capsys.readouterr().err
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


def test_lengths_in_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """They are a shape, too: none of the predictions' parameters stands beside them."""
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
    assert ax.get_xlabel() == "times as fast as plain (and over the variant before)"
    alone = bwprof.plot.ablation(found[found["version"].isin(["plain", "A"])], Figure().add_subplot())
    assert alone.get_xlabel() == "times as fast as plain", "no variant is behind another"
    bars = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in ax.patches}
    assert bars == {0: 1.0, 1: 0.8, 4: 4.0, 6: 2.0}
    marks = {int(line.get_ydata()[0]): float(line.get_xdata()[0]) for line in ax.lines if line.get_marker() == "D"}
    assert marks == {1: 0.5, 4: pytest.approx(0.8 * 4)}  # those that are for this shape, of variants that ran
    said = {text.get_text() for text in ax.texts}
    assert {"1.00\u00d7", "0.80\u00d7* (-20 %)", "4.00\u00d7 (5.00\u00d7)", "does not run here: M is 1"} <= said
    assert "not verified: row 3 is wrong" in said
    struck = [text.get_text() for text in ax.texts if text.get_bbox_patch() is None]
    assert not struck  # by the line of one, which stands behind them
    assert dict(mpl.rcParams) == before


def test_a_wide_ladder_has_an_axis_of_factors(found: pd.DataFrame) -> None:
    from matplotlib.figure import Figure

    wide = found.assign(speedup_vs_first=found["speedup_vs_first"] ** 5)
    ax = bwprof.plot.ablation(wide, Figure().add_subplot())
    assert ax.get_xscale() == "log"
    fast = next(bar for bar in ax.patches if round(bar.get_y() + bar.get_height() / 2) == 4)
    assert (fast.get_x(), fast.get_x() + fast.get_width()) == pytest.approx((1.0, 4.0**5))


def test_of_a_long_ladder_the_first_rungs_are_drawn(found: pd.DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    """As many as stand below each other on so many inches, 150 at most; it says so."""
    from matplotlib.figure import Figure

    many = pd.concat([found] * 700, ignore_index=True)
    size = build_ablation(many).size
    assert size[1] == pytest.approx(build_ablation(many.head(150)).size[1])
    ax = bwprof.plot.ablation(many, Figure(size).add_subplot())
    assert 100 < len(ax.get_yticklabels()) <= 150
    said = f"the first {len(ax.get_yticklabels())} of {len(many)} variants"
    assert said in ax.get_title(loc="left")
    assert f"the picture shows {said}" in caplog.text
    with pytest.raises(ValueError, match="none of the first 1 of 2 variants ran with a right result"):
        bwprof.plot.ablation(found.iloc[[2, 0]], Figure((4, 0.05)).add_subplot())


def test_what_is_no_ladder_cannot_be_drawn(found: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="not a ladder"):
        bwprof.plot.ablation(found.drop(columns="predicted_gain"))
    with pytest.raises(ValueError, match="none ran with a right result"):
        bwprof.plot.ablation(found[found["version"] == "wrong"])
