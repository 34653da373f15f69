"""The columns' names, units and directions, and files of the previous version, which have fewer columns."""

from __future__ import annotations

import inspect
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from rows import load_samples, pair

import bwprof
from bwprof.results import frame, schema

EARLIER = Path(__file__).parent / "data" / "first_schema"  # written by 0.1.0 before it had the column hostname
GROUPS = "case time work method roofs counters conditions trust comparison provenance metrics".split()


def test_columns_lists_unit_group_and_direction() -> None:
    found = bwprof.columns()
    assert found.columns.tolist() == ["name", "unit", "group", "better", "text"]
    assert found["name"].tolist() == list(schema.column_names())
    told = found.set_index("name")
    wanted = {
        "time_ms": ("ms", "time", "lower"),
        "bandwidth_gb_s": ("GB/s", "time", "higher"),
        "bytes_read": ("B", "work", ""),
        "kv_len": ("tokens", "case", ""),
        "tflops": ("TFLOP/s", "work", "higher"),
        "pct_attainable": ("%", "roofs", "higher"),
        "traffic_ratio": ("x", "counters", "lower"),
        "sm_clock_mhz": ("MHz", "conditions", ""),
        "max_error": ("", "trust", "lower"),
        "speedup_vs_fp32": ("x", "comparison", "higher"),
        "hostname": ("", "provenance", ""),
    }
    for name, (unit, group, better) in wanted.items():
        assert tuple(told.loc[name, ["unit", "group", "better"]]) == (unit, group, better), name


def test_every_column_has_text_group_unit_and_label() -> None:
    units = {"_ms": "ms", "_us": "us", "_gb_s": "GB/s", "_tflops": "TFLOP/s", "_mhz": "MHz", "_pct": "%", "_j": "J"}
    for column in schema.all_columns():
        assert column.text, column.name
        assert column.group in GROUPS, column.name
        assert column.better in ("higher", "lower", ""), column.name
        for ending, unit in units.items():
            if column.name.endswith(ending):
                assert column.unit == unit, column.name
        assert not column.name.startswith("pct_") or column.unit == "%"
        assert column.label == (
            f"{column.label[: -len(column.unit) - 3]} ({column.unit})" if column.unit else column.label
        )


def test_pictures_and_tables_take_their_labels_from_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    from dataclasses import replace

    from bwprof.cli import render
    from bwprof.text.terminal import make_console

    real = schema.find_column
    monkeypatch.setattr(schema, "find_column", lambda name: replace(real(name), unit=f"<{name}>", title="T"))
    data = frame.from_rows(pair("a", 100.0, 80.0, attainable_gb_s=120.0, peak_gb_s=150.0))
    ax = bwprof.plot.comparison(data)
    assert ax.get_xlabel() == "T (<bandwidth_gb_s>)"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "T" in labels
    assert any(label.startswith("T: ") for label in labels)
    stream = io.StringIO()
    render.print_summary(data, make_console(stream))
    assert "<bandwidth_gb_s>" in stream.getvalue()


@pytest.mark.parametrize("name", ["results.csv", "results.json", "."])
def test_files_of_the_previous_version_load(name: str, tmp_path: Path) -> None:
    found = bwprof.load(EARLIER / name)
    assert found["operation"].tolist() == ["gemm", "gemm", "attention_decode", "attention_decode"]
    assert found["precision"].tolist() == ["fp32", "fp16"] * 2
    assert found["hostname"].isna().all()
    assert found.columns.tolist() == list(schema.column_names())
    assert found["bytes_read"].tolist()[:2] == [(64 + 64 * 64) * 4, (64 + 64 * 64) * 2]
    assert found["speedup_vs_fp32"].notna().all()
    if name != "results.csv":
        samples = load_samples(EARLIER / name)
        assert [len(values or ()) for values in samples] == found["samples"].tolist()
        assert bwprof.load(EARLIER / name, samples=True)["samples_ns"].tolist() == samples
    again = bwprof.load(bwprof.save(found, tmp_path / "again.json"))
    assert again["time_ms"].tolist() == found["time_ms"].tolist()


def test_labels_of_a_file_of_the_previous_version_stay() -> None:
    found = bwprof.load(EARLIER / "function.csv")
    assert (found["n"].tolist(), found["kind"].tolist()) == ([1024, 4096], ["plain", "plain"])
    assert found["flags"].str.contains("unverified").all()


def test_a_run_of_the_previous_version_resumes(tmp_path: Path, here: object) -> None:
    """The case without rows is measured, the others stay."""
    import json

    folder = tmp_path / "run"
    shutil.copytree(EARLIER, folder)
    (folder / "results.csv").unlink()
    document = json.loads((folder / "results.json").read_text())
    document["rows"] = document["rows"][2:]
    (folder / "results.json").write_text(json.dumps(document))
    code, _, err = here("--resume", str(folder))  # type: ignore[operator]
    assert code == 0, err
    found = bwprof.load(folder)
    assert sorted(found["case"]) == ["attention_decode", "attention_decode", "gemm", "gemm"]
    assert found["hostname"].notna().sum() == 2


def test_cases_that_ran_out_of_time_are_recognized() -> None:
    from bwprof.runs.loop import ran_out_of_time

    late = {"status": "skipped", "reason": "the 12 s of --max-total-seconds were over"}
    large = {"status": "skipped", "reason": "needs 2 TiB of memory, 1 GiB are free"}
    assert ran_out_of_time(late)
    assert not ran_out_of_time(large)


def test_the_page_of_the_method_has_the_columns_and_their_units(source_tree: Path) -> None:
    text = (source_tree / "notebooks" / "method.md").read_text()
    part = text[text.index("## Columns") : text.index("## Flags")]
    lines = re.findall(r"^\| `([^`]+)` \| ([^|]*) \|", part, re.MULTILINE)
    assert len(lines) > 15
    told: set[str] = set()
    for names, unit in lines:
        columns = [schema.find_column(name) for name in names.split(", ")]
        assert unit.strip() == ", ".join(dict.fromkeys(column.unit for column in columns if column.unit)), names
        told |= {column.group for column in columns}
    assert told == set(GROUPS)
    lists = re.findall(r"`(\w+(?:, \w+)+)`", part)
    unknown = {name for names in lists for name in names.split(", ")} - set(schema.column_names())
    assert not unknown, "columns that the page names and no row has"


def test_parameters_clash_with_no_column_and_no_option() -> None:
    """A parameter is a column, and a keyword of `cost`, `Case` and `sweep`."""
    parameters = {param["name"] for operation in bwprof.operations() for param in operation["params"]}
    twice = [name for name, count in Counter(schema.column_names()).items() if count > 1]
    assert not twice, "parameters named as columns that bwprof fills"
    options = {name for used in (bwprof.cost, bwprof.Case, bwprof.sweep) for name in inspect.signature(used).parameters}
    assert not parameters & options
