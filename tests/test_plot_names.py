"""Names in pictures: none cut where cases differ, none struck through, none outside."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import outside, overlapping, render, words
from matplotlib.axes import Axes
from matplotlib.colors import same_color
from matplotlib.text import Annotation, Text
from rows import row

import bwprof
from bwprof import plot
from bwprof.plot.canvas import distinguish_names, wrap_name
from bwprof.results import frame

EXAMPLES = ("h100", "h200", "h100_llama", "h200_llama")
SHARED = "decode_attention num_heads=32 head_dim=128"


@cache
def long_names() -> pd.DataFrame:
    """Cases as a sweep over a grid names them: the first 60 letters of some are the same."""
    made = []
    for place, (batch, length, heads) in enumerate(product((1, 4, 8), (1024, 2048), (8, 32))):
        name = f"decode_attention batch={batch} kv_len={length} num_heads=32 head_dim=128 num_kv_heads={heads}"
        for precision, share in (("fp32", 1.0), ("fp16", 0.5)):
            moved = int(share * 4e6 * batch * length)
            speeds = {"gb_s": 100.0 + 9 * place, "bytes_read": moved, "flops": heads * moved}
            sizes = {"M": None, "N": None, "K": None, "beta": None, "batch": batch, "kv_len": length}
            sizes |= {"num_heads": 32, "head_dim": 128, "num_kv_heads": heads}
            made.append(row(name, precision, operation="attention_decode", **speeds, **sizes))
    return frame.from_rows(made)


@cache
def drawn(kind: str, example: str = "") -> Axes:
    """A picture of an example, or of the long names, once for all tests."""
    options = {"x": "M"} if kind == "lines" else {}
    return render(plot.KINDS[kind].picture(bwprof.load_example(example) if example else long_names(), **options))


@pytest.mark.parametrize("kind", ["comparison", "roofline", "speedup"])
def test_long_names_are_distinct(kind: str) -> None:
    axes = drawn(kind)
    texts = [" ".join(text.get_text().split()) for text in words(axes)]
    names = [name for name in texts if name.startswith("batch=")]
    assert len(names) == len(set(names)) == 12
    assert "batch=8 kv_len=2048 num_kv_heads=32" in names
    assert [name for name in texts if "\N{HORIZONTAL ELLIPSIS}" in name] == []
    assert SHARED in axes.get_title(loc="left")
    assert (overlapping(axes), outside(axes)) == ([], [])


def test_cases_without_flops_are_named() -> None:
    copies = drawn("roofline", "h200_llama").get_xlabel().partition("\n")[2]
    assert copies.removeprefix("without FLOPs: ").replace("\n", " ").split(", ") == [
        f"{phase} b={batch} kv append" for phase in ("decode", "prefill") for batch in (1, 16)
    ]


def seen(axes: Axes) -> list[Annotation]:
    return [text for text in axes.texts if isinstance(text, Annotation) and text.get_visible()]


def corners(text: Text) -> np.ndarray[Any, Any]:
    return np.array(Text.get_window_extent(text).get_points())


@pytest.mark.parametrize("example", [*EXAMPLES, ""])
def test_names_are_inside_the_axes_and_no_leader_crosses_a_name(example: str) -> None:
    axes = drawn("roofline", example)
    assert (overlapping(axes), outside(axes)) == ([], [])
    low, high = axes.get_window_extent().get_points()
    notes = {note: corners(note) for note in seen(axes)}
    assert len(notes) > 8
    for note, box in notes.items():
        assert (box[0] >= low).all(), note
        assert (box[1] <= high).all(), note
    crossed = []
    for note, box in notes.items():
        if note.arrow_patch is not None and note.arrow_patch.get_visible():
            way = np.linspace(axes.transData.transform(note.xy), box.mean(axis=0), 400)
            others = {other: at for other, at in notes.items() if other is not note}
            inside = {other: ((way > at[0]) & (way < at[1])).all(axis=1).any() for other, at in others.items()}
            crossed += [(note.get_text(), other.get_text()) for other, is_crossed in inside.items() if is_crossed]
    assert crossed == []


@pytest.mark.parametrize("kind", ["roofline", "ridge"])
def test_names_are_above_lines_and_below_marks(kind: str) -> None:
    axes = drawn(kind, "h200")
    marked = [line for line in axes.lines if line.get_marker() not in ("None", "|") and not hollow(line)]
    plain = [line for line in axes.lines if line.get_marker() == "None"]
    assert marked
    assert plain
    assert seen(axes)
    for note in seen(axes):
        ground: Any = note.get_bbox_patch()
        assert same_color(ground.get_facecolor()[:3], axes.get_facecolor()[:3])
        assert max(line.get_zorder() for line in plain) < note.get_zorder() < min(line.get_zorder() for line in marked)


def hollow(line: Any) -> bool:
    """The ring of a ridge: what is below shows."""
    return bool(line.get_markerfacecolor() == "none")


def test_shared_words_are_split_off() -> None:
    assert distinguish_names(["gemm M=1 N=4096 K=4096", "gemm M=16 N=64 K=4096"]) == (
        "gemm K=4096",
        ["M=1 N=4096", "M=16 N=64"],
    )
    steps = [f"decode b=1 c=4096 {role}" for role in ("qkv", "gate up", "qkv")]
    assert distinguish_names(steps) == ("decode b=1 c=4096", ["qkv", "gate up", "qkv"])


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["case 1", "case 2"],  # short
        ["one name of many letters"],
        ["the same name, twice here", "the same name, twice here"],
        ["a name within another one", "a name within another one M=1"],
        ["the same words elsewhere", "elsewhere the same words"],
        ["nothing that both would share", "stream_copy"],
    ],
)
def test_names_that_stay_whole(names: list[str]) -> None:
    assert distinguish_names(names) == ("", names)


def test_a_long_name_takes_several_lines() -> None:
    assert wrap_name("batch=8 kv_len=2048 num_kv_heads=32", 20, 3) == "batch=8 kv_len=2048\nnum_kv_heads=32"
    assert wrap_name("short", 20, 3) == "short"
    cut_off = wrap_name("word " * 40, 20, 3)
    assert [len(line) <= 20 for line in cut_off.split("\n")] == [True] * 3
    assert cut_off.endswith("\N{HORIZONTAL ELLIPSIS}")
