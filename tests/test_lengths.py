"""Lengths of a batch's entries: one rule for what may be given, and names that tell cases of other lengths apart."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import words
from past import timed, write
from rows import row

import bwprof
from bwprof import _core, plot, registry
from bwprof.cli import main
from bwprof.cli.commands.plot import means
from bwprof.cli.commands.sweep import main_sweep, read_request
from bwprof.measuring.operation import Spec
from bwprof.plot.canvas import cut
from bwprof.results import frame, pairs
from bwprof.results.json_file import parse_row
from bwprof.runs import suites
from bwprof.runs.metadata import key_of_row, key_of_spec

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS: dict[str, Any] = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 8}
QUICK: dict[str, Any] = {"cache": "hot", "roofs": False, "max_seconds": 0, "device": "cpu", "precision": "fp32"}
RAGGED = {"operation": "attention_decode", "batch": 3, "kv_len": 64}
LISTS = ("64;32;16", "64;48;1", "64;32;16;8", "64;16;32;8", None)

# ---- what may be given ----

FORMS: dict[str, Callable[[], Any]] = {
    "list": lambda: [64, 1024],
    "tuple": lambda: (64, 1024),
    "words": lambda: ["64", "1Ki"],
    "commas": lambda: "64,1Ki",
    "spaces": lambda: " 64 , 1024 ",
    "as in a row": lambda: "64;1024",
    "range": lambda: "64..1024:x16",
    "range in a list": lambda: ["64..1Ki:x16"],
    "numpy": lambda: np.array([64, 1024]),
    "numpy, narrow": lambda: np.array([64, 1024], dtype=np.int16),
    "pandas": lambda: pd.Series([64, 1024], index=[5, 6], dtype="Int64"),
    "generator": lambda: (value for value in (64, 1024)),
}
WRONG: dict[str, Any] = {
    "nothing": [],
    "no text": "",
    "a gap": "64,,1024",
    "words": "long",
    "a fraction": [64.5],
    "a text's fraction": "64.0",
    "floats": np.array([64.0]),
    "boolean": [True],
    "bytes": b"64",
    "nested": [[64, 1024]],
    "a set": {64, 1024},
    "a mapping": {64: 1024},
    "nan": float("nan"),
}


def of_suite(inputs: Any) -> Any:
    text = json.dumps(
        inputs if isinstance(inputs, str) else [item.item() if hasattr(item, "item") else item for item in inputs]
    )
    found = f'[[case]]\nname = "x"\noperation = "attention_decode"\nkv_lens = {text}'
    return suites.parse(found.encode(), source="a.toml").cases[0].kv_lens


def of_shell(inputs: Any) -> Any:
    text = inputs if isinstance(inputs, str) else ",".join(map(str, inputs))
    return read_request(main_sweep.parser().parse_args(["--kv-lens", text])).kv_lens


def of_case(inputs: Any) -> Any:
    with bwprof.Case("attention_decode", precision="fp32", device="cpu", kv_lens=inputs, **HEADS) as case:
        assert case.params["batch"] == 2
        return registry.row_lengths(case.measure(cache="hot", max_seconds=0, roofs=False))


def of_ab(inputs: Any) -> Any:
    how: dict[str, Any] = {"precision": "fp32", "cache": "hot", "device": "cpu", "max_seconds": 0.01, "seed": 1}
    found = bwprof.ab("attention_decode:simple", "attention_decode:splitkv", kv_lens=inputs, **HEADS, **how)
    return (64, 1024) if found["case"].item().endswith(" kv_lens=64,1024 fp32") else found["case"]


def of_cost(inputs: Any) -> Any:
    whole = bwprof.cost("attention_decode", kv_lens=inputs, **HEADS)
    return (64, 1024) if whole == bwprof.cost("attention_decode", kv_lens=[64, 1024], **HEADS) else whole


def of_sweep(inputs: Any) -> Any:
    return registry.row_lengths(bwprof.sweep("attention_decode", kv_lens=inputs, **HEADS, **QUICK).iloc[0].to_dict())


def of_predict(inputs: Any) -> Any:
    return registry.row_lengths(bwprof.predict("attention_decode", kv_lens=inputs, **HEADS).iloc[0].to_dict())


def of_measure(inputs: Any) -> Any:
    return registry.row_lengths(
        bwprof.measure(lambda: None, name="f", kv_lens=inputs, device="cpu", roofs=False, max_seconds=0)
    )


def of_variants(inputs: Any) -> Any:
    bwprof.variants("attention_decode", "cpu", kv_lens=inputs, batch=2, **HEADS)
    return 64, 1024


def of_ablation(inputs: Any) -> Any:
    found = bwprof.ablation("attention_decode", variant="simple", kv_lens=inputs, **HEADS, **QUICK)
    assert found["shape"].unique().tolist() == ["num_heads=2 num_kv_heads=1 head_dim=8 kv_lens=64,1024"]
    return 64, 1024


USES: dict[str, Callable[[Any], Any]] = {
    name[3:]: use for name, use in sorted(globals().items()) if name.startswith("of_") and callable(use)
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", USES)
def test_lengths_are_read_alike_everywhere(use: str, form: str) -> None:
    assert USES[use](FORMS[form]()) == (64, 1024)


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("use", sorted(USES.keys() - {"suite", "shell"}))
def test_malformed_lengths_are_refused(use: str, kind: str) -> None:
    with pytest.raises(ValueError, match="kv_lens"):
        USES[use](WRONG[kind])


@pytest.mark.parametrize("message", ["", "64,,1", "long", "64.5"])
def test_shell_and_suite_refuse_malformed_lengths(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"a\.toml, .*'x'.* kv_lens"):
        of_suite(message)
    for command in (
        ["sweep"],
        ["variants"],
        ["ablation"],
        ["predict"],
        ["ab", "--device", "cpu", "attention_decode:simple"],
    ):
        assert main([*command, "attention_decode", "--kv-lens", message]) == 2
        assert "--kv-lens" in capsys.readouterr().err, command


# ---- names ----


def test_two_lists_never_have_one_name() -> None:
    lists = [
        *itertools.permutations((1, 2, 3, 4)),
        *itertools.product((1, 9), repeat=6),
        (7,) * 4,
        (7,) * 5,
        (1,),
        (1, 1),
    ]
    names = {registry.case_name("decode", found) for found in lists}
    assert len(names) == len(lists)
    assert max(map(len, names)) < 50


def test_a_name_has_lengths_once_and_only_where_there_are_some() -> None:
    assert registry.case_name("decode kv_len=64", None) == "decode kv_len=64"
    for message in LISTS[:-1]:
        once = registry.case_name("decode", message)
        assert registry.case_name(once, registry.parse_lengths(message)) == once != "decode"
    assert registry.case_name("decode", "of its own") == "decode"
    assert registry.case_name("decode kv_lens=64,32", "64;3") == "decode kv_lens=64,32 kv_lens=64,3"


def ragged(case: str = "decode") -> list[dict[str, Any]]:
    """As files had them that were written before names told lengths."""
    made = []
    for number, message in enumerate(LISTS):
        for precision, speed in (("fp32", 100.0 + number), ("fp16", 90.0 + number)):
            made.append(row(case, precision, gb_s=speed, **RAGGED, num_heads=8, kv_lens=message))
    return made


def own(one: dict[str, Any]) -> dict[str, Any]:
    """What tells such a row from others of its name."""
    return {name: one[name] for name in (*RAGGED, "kv_lens")}


NAMES = [registry.case_name("decode", message) for message in LISTS]


def test_rows_of_older_files_differ_by_their_lengths(tmp_path: Path) -> None:
    data = frame.from_rows(ragged())
    assert [one["case"] for one in frame.to_rows(data)][::2] == NAMES
    for name in ("a.csv", "a.json"):
        path = tmp_path / name
        text = bwprof.save(data, path).read_text()
        for described, message in zip(NAMES, LISTS, strict=True):  # as an older version wrote it
            text = text.replace(described, "decode") if message else text
        path.write_text(text)
        assert bwprof.load(path)["case"].tolist()[::2] == NAMES
    parsed, _ = parse_row({**ragged()[0], "schema_version": 1}, "x")
    assert parsed["case"] == NAMES[0]


def test_a_run_of_an_older_version_is_resumed() -> None:
    spec = Spec.from_dict(
        {
            "case": "decode",
            "operation": "attention_decode",
            "precision": "fp32",
            "params": {"batch": 3},
            "cache": "cold",
        }
        | {"kv_lens": [64, 32, 16], "variant": None, "seed": 0}
    )
    assert spec.case == NAMES[0]
    found = dict.fromkeys(registry.param_names("attention_decode")) | ragged()[0] | {"case": NAMES[0], "kv_len": None}
    assert key_of_row(found | {"num_heads": None, "N": None})[:6] == key_of_spec(spec)[:6]


def test_nothing_is_merged_or_named_alike(tmp_path: Path) -> None:
    data = frame.from_rows(frame.to_rows(frame.from_rows(ragged())))
    assert bwprof.summary(data)["case"].tolist() == NAMES
    assert len(pairs.group_precisions(frame.to_rows(data))) == len(LISTS)
    assert list(means(data)[0]) == NAMES
    found = bwprof.compare(data, data)
    assert found["case"].tolist()[::2] == NAMES
    for day, time_ms in ((1, 1.0), (2, 2.0)):
        write(tmp_path, day, [timed(one["case"], one["precision"], time_ms, **own(one)) for one in ragged()])
    described = bwprof.history(tmp_path)
    assert sorted(described["case"].unique()) == sorted(NAMES)
    assert described["series"].nunique() == 2 * len(LISTS)


def test_pictures_distinguish_lengths() -> None:
    long = "attention_decode num_heads=8 num_kv_heads=2 head_dim=64"
    data = frame.from_rows(frame.to_rows(frame.from_rows(ragged(long))))
    for kind in (plot.comparison, plot.speedup):
        ax = kind(data)
        labels = [tick.get_text() for tick in ax.get_yticklabels()] + [text.get_text() for text in ax.texts]
        for message in LISTS[:-1]:
            described = registry.case_name("", message)
            assert any(described in label for label in labels), (kind, described, labels)


def test_a_picture_keeps_the_lengths_of_a_name() -> None:
    name = "attention_decode num_heads=8 kv_lens=16 of 12..8192 #2ba358d9"
    assert cut(name, 80) == name
    assert cut(name, 44) == "attention_… " + name.partition("num_heads=8 ")[2]
    assert cut(name, 20) == "… 12..8192 #2ba358d9"
    assert cut("attention_decode num_heads=8", 12) == "attention_d…"


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in words(ax)]


def grid(*lists: str | None) -> pd.DataFrame:
    rows = [
        row(
            "x",
            "fp32",
            gb_s=100.0 + heads + place,
            **RAGGED,
            num_heads=heads,
            num_kv_heads=2,
            kv_lens=message,
        )
        for place, message in enumerate(lists)
        for heads in ((8, 16) if place else (8, 16, 32))
    ]
    return frame.from_rows(rows)


def test_a_cell_of_a_heatmap_stands_for_one_list() -> None:
    ax = plot.heatmap(grid("64;32;16", "64;48;1", None), x="num_heads", y="num_kv_heads")
    described = " ".join(texts(ax))
    assert "kv_lens=64,32,16" in described
    assert "4 rows of other" in described
    assert "fastest of several" not in described
    assert {"108", "116", "132"} <= set(described.split())
    alone = " ".join(texts(plot.heatmap(grid("64;32;16"), x="num_heads", y="num_kv_heads")))
    assert "kv_lens=64,32,16" in alone
    assert "not drawn" not in alone


def test_lines_are_called_by_their_lengths() -> None:
    ax = plot.lines(grid("64;32;16;8", "64;16;32;8", None), x="num_heads")
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert {registry.case_name("", "64;32;16;8"), registry.case_name("", "64;16;32;8")} <= labels


def test_measured_cases_are_named_by_their_lengths(tmp_path: Path) -> None:
    found = bwprof.sweep("attention_decode", kv_lens=[9, 5], **HEADS, **QUICK, output=tmp_path / "a.json")
    heads = " ".join(f"{name}={value}" for name, value in HEADS.items())
    assert found["case"].tolist() == [f"attention_decode {heads} kv_lens=9,5"]
    assert bwprof.load(tmp_path / "a.json")["case"].tolist() == found["case"].tolist()
    alike = bwprof.sweep("attention_decode", batch=2, kv_len=9, **HEADS, **QUICK)
    assert alike["case"].tolist() == [f"attention_decode batch=2 kv_len=9 {heads}"]
    with bwprof.Case("attention_decode", device="cpu", kv_lens="9,5", **HEADS) as case:
        assert case.measure(cache="hot", max_seconds=0, roofs=False).case == found["case"].item()
    own = bwprof.measure(lambda: None, name="f", n=3, kv_lens=[9, 5], device="cpu", roofs=False, max_seconds=0)
    assert (own.case, own.kv_lens) == ("f n=3 kv_lens=9,5", "9;5")
    assert frame.to_rows(frame.from_rows([own]))[0]["case"] == own.case


def test_cases_of_a_suite_with_one_name(tmp_path: Path) -> None:
    one = '[[case]]\nname = "decode"\noperation = "attention_decode"\nparams = { num_heads = 2, num_kv_heads = 1 }\n'
    path = tmp_path / "s.toml"
    path.write_text(
        'precisions = ["fp32"]\n' + "".join(f'{one}kv_lens = "{message}"\n' for message in ("9,5", "9,4")) + one
    )
    found = bwprof.sweep(suite=path, only="decode", **{**QUICK, "precision": None})
    assert found["case"].tolist() == ["decode kv_lens=9,5", "decode kv_lens=9,4", "decode"]


# ---- variants that a build cannot know ----


def test_a_build_without_a_backend_has_no_variant_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = _core.backends()
    listed[0] |= {"built": False, "reason": "no compiler was found", "devices": []}
    monkeypatch.setattr(_core, "backends", lambda: listed)
    name, remedy = listed[0]["name"], _core.backend_facts(listed[0]["name"])["remedy"]
    message = f"bwprof: this build has no {name} backend, hence no {name} variants: no compiler was found; {remedy}\n"
    assert main(["variants", "gemm", "--precision", "fp32,fp16"]) == 0
    assert capsys.readouterr().err == message
    assert main(["variants", "gemm", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == message
    assert {item["backend"] for item in json.loads(out)} >= {name, "cpu"}
    assert main(["variants", "gemm", "--device", "cpu"]) == 0
    assert capsys.readouterr().err == ""
    listed[0] |= {"built": True}
    assert main(["variants", "gemm"]) == 0
    assert capsys.readouterr().err == ""
