"""The history of all runs below a folder, as one frame."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from past import timed, week, write
from rows import row

import bwprof
from bwprof.records import history as scan
from bwprof.records.history import history

# ---- the frame ----


def test_a_row_per_run_and_case(tmp_path: Path) -> None:
    week(tmp_path, [1.0, 2.0, 3.0])
    found = bwprof.history(tmp_path)
    assert found["run_id"].tolist() == ["run-01", "run-01", "run-02", "run-02", "run-03", "run-03"]
    assert found["precision"].tolist() == ["fp32", "fp16"] * 3
    assert found["time_ms"].tolist() == [1.0, 0.5, 2.0, 1.0, 3.0, 1.5]
    assert found["bandwidth_gb_s"][2] == 10_000 / 2.0 / 1e6
    assert [str(time) for time in found["started"].unique()] == [f"2026-01-0{day} 10:00:00+00:00" for day in (1, 2, 3)]
    assert found.loc[0, ["M", "N", "K", "status", "driver", "hostname"]].tolist() == [1, 896, 896, "ok", "1.0", "box"]
    assert found["kv_len"].isna().all()
    assert found.attrs["runs"] == 3
    assert found.attrs["unread"] == {}


def test_columns_are_those_of_the_runs(tmp_path: Path) -> None:
    """The values equal those of `bwprof.load` to the last bit."""
    data = bwprof.load_example("h200")
    (tmp_path / "one").mkdir()
    bwprof.save(data, tmp_path / "one" / "results.json")
    found = history(tmp_path)
    assert len(found) == len(data)
    for name in set(found.columns) & set(data.columns) - {"timestamp", "reason", "hostname"}:
        expected = [None if pd.isna(value) else value for value in data[name].tolist()]
        assert [None if pd.isna(value) else value for value in found[name].tolist()] == expected, name
    assert found["timestamp"].tolist() == [pd.Timestamp(text) for text in data["timestamp"]]
    assert found["git_commit"].unique().tolist() == [data.attrs["run"]["commit"]]


def refused(_folder: Path) -> None:
    raise LookupError


def test_both_ways_of_reading_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [timed("a", "fp32", 1.0), timed("a", "fp16", 0.5, time_ms_hi=float("inf"), reason='with "quotes"\\')]
    rows += [row("failed", "fp32", gb_s=None, status="failed", reason="no"), timed("own", "fp32", 1.0, tag="x", size=3)]
    write(tmp_path, 1, rows, host={"name": "box"}, suite="mine", git_commit="abc", plan=[{"status": "odd"}])
    quick = history(tmp_path)
    monkeypatch.setattr(scan, "_read_finished", refused)
    careful = history(tmp_path)
    pd.testing.assert_frame_equal(quick, careful)
    assert quick["suite"].unique().tolist() == ["mine"]
    assert quick["size"].tolist()[3] == 3
    assert quick["time_ms_hi"][1] == pytest.approx(0.5005)


def test_filters(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        write(tmp_path, day, [timed("decode_8b", "fp32", 1), timed("decode_8b", "fp16", 1), timed("copy", "fp32", 1)])
    assert history(tmp_path, "decode_8b")["case"].tolist() == ["decode_8b"] * 6
    assert history(tmp_path, "*_8b,copy", "fp32")["case"].tolist() == ["decode_8b", "copy"] * 3
    assert len(history(tmp_path, case="gemm")) == 9  # the operation's name
    assert history(tmp_path, "copy", last=2)["run_id"].tolist() == ["run-02", "run-03"]
    assert len(history(tmp_path, operation="gemm", device="Test*", last=99)) == 9


@pytest.mark.parametrize(
    ("filters", "phrase"),
    [
        ({"case": "decod"}, "unknown case 'decod': did you mean 'decode'? Allowed: decode"),
        ({"precision": "fp61"}, "unknown precision 'fp61': did you mean 'fp16'?"),
        ({"last": 0}, "last is 0: a number of runs from 1 is needed"),
        ({"gate": 3}, "gate is 3: allowed is a fraction"),
        ({"case": ""}, "case is '': names are needed"),
    ],
)
def test_unknown_names_fail(tmp_path: Path, filters: dict[str, Any], phrase: str) -> None:
    week(tmp_path)
    with pytest.raises(ValueError, match="^" + phrase.replace("?", r"\?")):
        history(tmp_path, **filters)


def test_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        history(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="it is no folder"):
        history(tmp_path / "file")


def test_a_folder_without_runs(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    found = history(tmp_path)
    assert len(found) == 0
    assert found["time_ms"].dtype == float
    assert found["started"].dtype == "datetime64[us, UTC]"
    assert os.listdir(tmp_path) == ["notes"]


# ---- series, and what changed ----


def test_changes_beyond_the_gate_are_marked(tmp_path: Path) -> None:
    """1 to 1.02 is within the gate of 3 %; 1.02 to 1.10 and back is beyond it."""
    week(tmp_path, [1.0, 1.02, 1.10, 1.02])
    found = history(tmp_path, precision="fp32")
    assert found["change"].tolist() == ["", "", "slower", "faster"]
    assert found["ratio"].tolist()[1:] == pytest.approx([1.02, 1.10 / 1.02, 1.02 / 1.10])
    assert history(tmp_path, precision="fp32", gate="10%")["change"].tolist() == [""] * 4
    assert history(tmp_path, precision="fp32", gate=0.01)["change"].tolist() == ["", "slower", "slower", "faster"]
    assert history(tmp_path, precision="fp32", last=2)["change"].tolist() == ["slower", "faster"]


def test_intervals_that_overlap_leave_a_change_undecided(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0) | {"time_ms_hi": 1.2}])
    write(tmp_path, 2, [timed("a", "fp32", 1.1)])
    write(tmp_path, 3, [timed("a", "fp32", 1.12) | {"time_ms_hi": 1.2}])
    assert history(tmp_path)["change"].tolist() == ["", "undecided", ""], "the third is within the gate"


def test_disturbed_rows_and_rows_without_a_time_are_skipped(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    write(tmp_path, 2, [timed("a", "fp32", 2.0, flags="noisy")])
    write(tmp_path, 3, [timed("a", "fp32", 9.9) | {"time_ms": None, "status": "failed"}])
    write(tmp_path, 4, [timed("a", "fp32", 1.5, flags="near_timer_floor")])
    found = history(tmp_path)
    assert found["change"].tolist() == ["", "", "", "slower"]
    assert found["ratio"][3] == pytest.approx(1.5)


def test_other_changes_are_marked(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    write(tmp_path, 2, [timed("a", "fp32", 1.0, driver="2.0", variant="tiled")])
    write(tmp_path, 3, [timed("a", "fp32", 1.0, driver="2.0", variant="tiled", bwprof_version="0.2.0")])
    write(tmp_path, 4, [timed("a", "fp32", 1.0, driver="2.0", variant="tiled", bwprof_version="0.2.0")])
    found = history(tmp_path)
    assert found["series"].tolist() == [0, 0, 0, 0]
    assert [mark.split("; ") for mark in found["marks"]] == [
        [""],
        ["driver 1.0 -> 2.0", "variant plain -> tiled"],
        ["bwprof 0.1.0 -> 0.2.0"],
        [""],
    ]


def test_each_device_and_host_has_its_own_series(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0)])
    write(tmp_path, 2, [timed("a", "fp32", 5.0, hostname="tower")])
    write(tmp_path, 3, [timed("a", "fp32", 9.0, device="Other CPU")])
    write(tmp_path, 4, [timed("a", "fp32", 1.0)])
    found = history(tmp_path)
    assert found["series"].tolist() == [0, 1, 2, 0]
    assert set(found["change"]) == {""}
    assert found["marks"].str.partition(" -> ").values.tolist()[2] == ["device Test CPU", " -> ", "Other CPU"]
    assert found["marks"].eq("").tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"variant": "a"}, {"variant": "b"}),
        ({"device_uuid": "a"}, {"device_uuid": "b"}),
        ({"tag": 1}, {"tag": 2}),
        ({}, {}),
    ],
    ids=["variants", "devices", "labels", "twice the same"],
)
def test_repeated_rows_of_a_run_have_their_own_series(tmp_path: Path, one: Any, other: Any) -> None:
    for day in (1, 2):
        write(
            tmp_path, day, [timed("a", "fp32", 1.0, **one), timed("a", "fp32", 2.0, **other), timed("b", "fp32", 1.0)]
        )
    found = history(tmp_path)
    assert found["series"].tolist() == [0, 1, 2, 0, 1, 2]
    assert set(found["change"]) == {""}
    assert found["ratio"].tolist()[3:] == [1.0, 1.0, 1.0]


def test_another_device_of_the_same_name_is_marked(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0, device_uuid="GPU-1")])
    write(tmp_path, 2, [timed("a", "fp32", 1.0, device_uuid="GPU-2")])
    found = history(tmp_path)
    assert found["series"].tolist() == [0, 0]
    assert found["marks"].tolist() == ["", "device GPU-1 -> GPU-2"]


def test_labels_named_like_a_column_get_a_prefix(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0, ratio="16:9", color="red"), timed("b", "fp32", 1.0)])
    found = history(tmp_path)
    assert found["label_ratio"].tolist()[0] == "16:9"
    assert found["color"].tolist()[0] == "red"
    assert pd.isna(found["color"][1])


def test_history_writes_nothing(tmp_path: Path) -> None:
    week(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    history(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
