"""Rows, frames, CSV and JSON: files keep every value, missing is not zero, other files are refused."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rows import load_samples, pair, row, write_json

import bwprof
from bwprof.results import csv_file, frame, pairs, schema

CLASSIC = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written"


def test_csv_output(tmp_path: Path) -> None:
    """The header starts with the nine classic columns; a row is the same after writing and reading."""
    path = tmp_path / "rows.csv"
    original = row("decode", "fp32", gb_s=123.456, noise=0.0, verified=True, reason='a "quoted", text')
    with closing(csv_file.CsvWriter(path)) as writer:
        assert path.read_text().count("\n") == 1, "the header is written before anything is measured"
        writer.append(original)
        assert path.read_text().count("\n") == 2, "a row is on disk when append returns"
    assert path.read_text().startswith(CLASSIC + ",case,batch,seq_len,kv_len,num_heads,num_kv_heads,head_dim,")
    with path.open(newline="") as stream:
        (found,) = csv.DictReader(stream)
    assert found["operation"] == "gemm"
    assert found["precision"] == "fp32"
    assert float(found["bandwidth_gb_s"]) == 123.456
    assert found["noise"] == "0.0"
    assert found["energy_j"] == "", "not measured is empty, not zero"
    assert csv_file.read_csv(path) == [schema.normalize_row(original)]


def test_columns_are_those_of_the_schema() -> None:
    names = list(schema.column_names())
    assert names[:9] == CLASSIC.split(",")
    assert len(set(names)) == len(names)
    after = ["case", "batch", "seq_len", "kv_len", "num_heads", "num_kv_heads", "head_dim", "page_size", "causal"]
    assert names[9 : 9 + len(after)] == after
    groups = (
        "backend device variant status reason timer cache buffer_sets launches_per_sample samples converged seed "
        "time_ms_lo time_ms_hi time_ms_min noise timer_floor_us host_launch_us transform_ms flops tflops "
        "arithmetic_intensity algorithmic_bytes_read algorithmic_bytes_written footprint_bytes "
        "scratch_bytes peak_memory_bytes "
        "peak_gb_s ceiling_gb_s attainable_gb_s "
        "pct_peak pct_ceiling pct_attainable peak_tflops measured_tflops roofline_tflops pct_roofline ridge bound "
        "pct_limit limiter dram_bytes_read dram_bytes_written dram_gb_s l2_bytes traffic_ratio counters_status "
        "tensor_pct fma_pct occupancy_pct issue_pct dram_pct sm_pct shared_pct l1_pct l2_pct stall_reasons "
        "bank_conflicts shared_wavefronts sectors_per_load sectors_per_store lines_per_load local_bytes "
        "active_threads sm_cycles_ratio metrics_status grid_blocks block_threads registers shared_bytes waves "
        "energy_j power_w sm_clock_mhz mem_clock_mhz temperature_c throttle verified max_error tolerance "
        "rows_checked rows_total disturbed_pct flags speedup_vs_fp32 bandwidth_vs_fp32 byte_ratio_vs_fp32 run_id "
        "timestamp replaces process hostname device_uuid driver bwprof_version schema_version"
    ).split()
    assert names[-len(groups) :] == groups


def test_every_flag_is_raised_and_documented(source_tree: Path) -> None:
    """The page's table, the column's text and the code name the same flags, in the same order."""
    page = (source_tree / "notebooks" / "method.md").read_text(encoding="utf-8")
    table = page[page.index("## Flags") : page.index("## What limits a row")]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(schema.FLAGS)
    code = "".join(path.read_text(encoding="utf-8") for path in (source_tree / "bwprof").rglob("*.py"))
    raised = {word for said in re.findall(r"flags\.append\((.*)\)", code) for word in re.findall(r'"(\w+)"', said)}
    raised |= set(re.findall(r'flags ?= ?.*\["(\w+)"\] \*', code))
    rules = (source_tree / "bwprof/measuring/grade.py").read_text(encoding="utf-8")  # yield (flag, reason)
    raised |= set(re.findall(r'(?:yield \(?\s*|flag = |else |\(\()"(\w+)"', rules))
    assert raised == set(schema.FLAGS)


def test_every_parameter_of_every_operation_is_a_column() -> None:
    for operation in bwprof.operations():
        for param in operation["params"]:
            assert schema.column_kinds()[param["name"]] == "integer"


def test_frame_has_fixed_types_even_when_empty() -> None:
    wanted = {"text": "string", "integer": "Int64", "number": "float64", "boolean": "boolean"}
    for made in (frame.from_rows([]), frame.from_rows([row("a", "fp32")])):
        assert {name: str(made[name].dtype) for name in made} == {
            column.name: wanted[column.kind] for column in schema.all_columns()
        }
    assert frame.from_rows([]).attrs["schema_version"] == 1


def test_missing_is_missing_and_zero_is_zero() -> None:
    made = frame.from_rows([row("a", "fp32", noise=0.0, energy_j=None, kv_len=0, batch=None, flags="")])
    assert made.loc[0, "noise"] == 0.0
    assert math.isnan(made.loc[0, "energy_j"])
    assert made.loc[0, "kv_len"] == 0
    assert made.loc[0, "batch"] is pd.NA
    assert made.loc[0, "flags"] == ""
    back = frame.to_rows(made)[0]
    assert (back["noise"], back["energy_j"], back["kv_len"], back["batch"]) == (0.0, None, 0, None)


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_save_and_load_give_the_same_frame(tmp_path: Path, ending: str) -> None:
    rows = [
        *pair("a", 100.0, 90.0, max_error=1.5e-7, verified=True),
        row("b", "fp32", gb_s=None, status="skipped", flags=None),
    ]
    pairs.fill_comparisons(rows)
    made = frame.from_rows(rows, {"run_id": "run-1"})
    path = bwprof.save(made, tmp_path / f"rows.{ending}")
    assert path == tmp_path / f"rows.{ending}"
    pd.testing.assert_frame_equal(bwprof.load(path), made, check_exact=True)
    assert bwprof.load(path).attrs["run"] == ({"run_id": "run-1"} if ending == "json" else {})


def test_json_keeps_samples_and_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    rows = [row("a", "fp32"), row("b", "fp32")]
    run = {"facts": {"peak_gb_s": float("nan")}, "plan": []}
    write_json(path, rows, [[100.0, 101.5], None], run)

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    document = json.loads(path.read_text(), parse_constant=refuse)
    assert document["format"] == "bwprof-results"
    assert document["schema_version"] == 1
    assert document["run"]["facts"]["peak_gb_s"] is None
    assert load_samples(path) == [[100.0, 101.5], None]


def test_json_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.json"
    write_json(path, [row("a", "fp32")], [None], {})
    before = path.read_text()

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, [row("b", "fp32")], [None], {})
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path], "no temporary file stays"


@pytest.mark.parametrize("damaged", ["results.json", "results.csv"])
def test_one_whole_file_of_a_folder_is_enough(tmp_path: Path, damaged: str, caplog: pytest.LogCaptureFixture) -> None:
    first, second = pair("a", 100.0, 90.0)
    write_json(tmp_path / "results.json", [first, second], [[1.0], [2.0]], {"run_id": "run-1"})
    (tmp_path / "results.csv").write_text(csv_file.csv_text([first, second]))
    whole = (tmp_path / damaged).read_text()
    (tmp_path / damaged).write_text(whole[: len(whole) // 2].replace("operation", "oper"))
    found = bwprof.load(tmp_path)
    assert found["precision"].tolist() == ["fp32", "fp16"]
    assert f"{damaged} is not" in caplog.text
    assert load_samples(tmp_path) == ([None, None] if damaged == "results.json" else [[1.0], [2.0]])
    (tmp_path / "results.json").write_text("{")
    (tmp_path / "results.csv").write_text("?")
    with pytest.raises(ValueError, match=r"results\.json.*results\.csv is"):
        bwprof.load(tmp_path)


def test_a_good_file_is_never_replaced_by_one_that_cannot_be_loaded(tmp_path: Path) -> None:
    made = frame.from_rows([row("a", "fp32")], {"run_id": "run-1"})
    wrong = [made.assign(operation=None), made.assign(schema_version=99)]
    odd = made.copy()
    odd.attrs["run"] = "not a dict"
    for ending in ("csv", "json"):
        path = bwprof.save(made, tmp_path / f"rows.{ending}")
        before = path.read_bytes()
        for bad in [*wrong, odd] if ending == "json" else wrong:
            with pytest.raises(ValueError, match=f"rows.{ending}"):
                bwprof.save(bad, path)
            assert path.read_bytes() == before
        assert len(list(tmp_path.iterdir())) == (1 if ending == "csv" else 2), "no temporary file stays"


def test_equal_rows_of_both_files_count_once(tmp_path: Path) -> None:
    """Equal rows of one file are different rows; the other file has the same ones."""
    twice = [row("a", "", flags=""), row("a", "", flags="")]
    write_json(tmp_path / "results.json", twice, [[1.0], [2.0]], {})
    (tmp_path / "results.csv").write_text(csv_file.csv_text([*twice, row("b", "")]))
    assert bwprof.load(tmp_path)["case"].tolist() == ["a", "a", "b"]


# ---- a run's metadata ----


def test_a_frames_metadata_are_shared_by_its_copies() -> None:
    """pandas copies `attrs` deeply at every operation."""
    run = {"run_id": "run-1", "plan": [{"case": "a", "params": {"M": 1}}], "roofs": {"points": [1.5, None]}}
    made = frame.from_rows(pair("a", 100.0, 90.0), run, [[1.0], None])
    kept = made.attrs["run"]
    assert kept == run
    assert json.loads(json.dumps(kept)) == run
    assert kept["roofs"]["points"][0] == 1.5
    for derived in (made["time_ms"], made[made["precision"] == "fp16"], made.copy(), made.sort_values("case")):
        assert derived.attrs["run"] is kept
    assert copy.copy(kept) is copy.deepcopy(kept) is kept
    assert pd.concat([made, made]).attrs["run"] == run
    run["plan"][0]["case"] = "b"  # type: ignore[index]
    assert kept["plan"][0]["case"] == "a"
    back = pickle.loads(pickle.dumps(made)).attrs["run"]
    assert back == kept
    assert back.samples_of(frame.to_rows(made)) == [[1.0], None]


def test_a_frames_metadata_cannot_be_changed() -> None:
    kept = frame.from_rows([], {"plan": [1, 2], "facts": {"a": 1}}).attrs["run"]
    ways = {
        "kept": "clear() pop('plan') popitem() setdefault('a', 1) update(a=1) __setitem__('a', 1) __delitem__('plan')",
        "kept['facts']": "clear() update(a=2) __setitem__('a', 2) __ior__({})",
        "kept['plan']": "append(1) clear() extend([1]) insert(0,1) pop() remove(1) reverse() sort() __setitem__(0,3) "
        "__delitem__(0) __iadd__([1]) __imul__(2)",
    }
    for name, calls in ways.items():
        for call in re.findall(r"\w+\(.*?\)(?= |$)", calls):
            with pytest.raises(TypeError, match="read-only"):
                eval(f"{name}.{call}", {"kept": kept})
    assert kept == {"plan": [1, 2], "facts": {"a": 1}}
    assert dict(kept) | {"a": 1} == {**kept, "a": 1}


# ---- differences ----


@pytest.mark.parametrize("missing", [None, math.nan, math.inf, pd.NA])
def test_rows_without_a_time_differ(missing: Any) -> None:
    """A case that crashed in one of two runs must not pass a gate."""
    whole = {"time_ms": 1.0, "time_ms_lo": 0.99, "time_ms_hi": 1.01}
    crashed = dict.fromkeys(whole, missing)
    assert pairs.times_differ(whole, crashed)
    assert pairs.times_differ(crashed, whole)
    assert pairs.times_differ(crashed, crashed)
    assert pairs.times_differ(whole, {})
    assert pairs.times_differ(whole, pd.Series(crashed))
    missing = None if missing is math.inf else missing  # an interval without an end is one
    near, far = {"time_ms": 1.02, "time_ms_lo": missing}, {"time_ms": 1.04, "time_ms_lo": missing}
    assert not pairs.times_differ(whole, near), "without intervals the gate of 3 % decides"
    assert pairs.times_differ(whole, far)
    assert pairs.times_differ(far, whole)


def test_a_device_file_is_written_to_and_not_replaced() -> None:
    with pytest.raises(OSError, match="No space left"):
        write_json(Path("/dev/full"), [row("a", "fp32")], [None], {})
    assert Path("/dev/full").is_char_device()


def test_load_reads_a_run_folder_and_rows_that_only_the_csv_got(tmp_path: Path) -> None:
    first, second = pair("a", 100.0, 90.0)
    second["timestamp"] = "2026-01-01T00:00:01.000+00:00"
    write_json(tmp_path / "results.json", [first], [[1.0]], {"run_id": "run-1"})
    (tmp_path / "results.csv").write_text(csv_file.csv_text([first, second]))
    found = bwprof.load(tmp_path)
    assert found["precision"].tolist() == ["fp32", "fp16"]
    assert found.attrs["run"]["run_id"] == "run-1"


def test_load_reads_a_bare_nine_column_csv(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(
        f"{CLASSIC}\ndecode,FP32,1,896,896,0.008,402.3,3214848,3584\ndecode,FP16,1,896,896,0.005,321.8,1607424,1792\n"
    )
    found = bwprof.load(path)
    assert found["precision"].tolist() == ["fp32", "fp16"]
    assert found["case"].tolist() == ["decode", "decode"]
    assert found["status"].tolist() == ["ok", "ok"]
    assert found.loc[1, "speedup_vs_fp32"] == pytest.approx(1.6)  # 0.008 / 0.005
    assert found.loc[1, "bandwidth_vs_fp32"] == pytest.approx(321.8 / 402.3)
    assert found.loc[1, "byte_ratio_vs_fp32"] == pytest.approx(2.0)  # 3 218 432 / 1 609 216
    assert found["flags"].isna().all(), "nobody looked, so there is no promise"


def test_a_cut_off_last_line_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rows.csv"
    whole = csv_file.csv_text([row("a", "fp32"), row("b", "fp32")])
    path.write_text(whole[:-60])
    assert bwprof.load(path)["case"].tolist() == ["a"]
    assert "cut off" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "time,value\n1,2\n", "its header must start with operation,precision"),
        ("a.csv", "", "not a bwprof result file"),
        ("a.csv", f"{CLASSIC}\ndecode,FP32,1,896\n", "line 2: 4 values for 9 columns"),
        ("a.csv", f"{CLASSIC}\ndecode,FP32,one,2,3,4,5,6,7\n", "line 2: column M: 'one' is not a whole number"),
        ("a.csv", f"{CLASSIC}\n,FP32,1,2,3,4,5,6,7\n", "operation and precision must not be empty"),
        ("a.json", "[1, 2", "not a bwprof result file"),
        ("a.json", '{"rows": []}', 'it has no "format": "bwprof-results"'),
        ("a.json", '{"format": "bwprof-results", "schema_version": 1}', "rows or run are missing"),
        ("a.json", '{"format": "bwprof-results", "schema_version": 99}', "schema version 99"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=r"a\.(csv|json)") as caught:
        bwprof.load(path)
    assert said in str(caught.value)


def _edited(edit: Callable[[list[str]], str]) -> Callable[[pd.DataFrame], str]:
    return lambda data: edit(data.to_csv(index=False).splitlines())


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # of pandas 2.0 as it writes
@pytest.mark.parametrize(
    ("written", "encoding"),
    [
        (lambda data: data.to_csv(), "utf-8"),
        (lambda data: data.copy().rename_axis("index").reset_index().to_csv(), "utf-8"),
        (lambda data: data.to_csv(sep=";", index=False), "utf-8-sig"),
        (lambda data: data.to_csv(sep=";", decimal=","), "utf-8"),
        (lambda data: "sep=;\r\n" + data.to_csv(sep=";", index=False, lineterminator="\r\n"), "utf-8"),
        (lambda data: data.to_csv(sep="\t"), "utf-8"),
        (lambda data: data.to_csv(sep="\t", index=False), "utf-16"),
        (_edited(lambda lines: "\n".join([",,", "", *lines[:2], ",,", " ", *lines[2:], ",,,", ""])), "utf-8"),
        (_edited(lambda lines: "".join(f"{line},,\n" for line in lines)), "utf-8"),
        (_edited(lambda lines: "\n".join([lines[0], *(f"{line},," for line in lines[1:])])), "utf-8"),
    ],
)
def test_files_of_pandas_and_spreadsheets_load(
    written: Callable[[pd.DataFrame], str], encoding: str, tmp_path: Path
) -> None:
    """An index, semicolons with decimal commas, tabs, empty rows and columns give the same rows."""
    path = bwprof.save(bwprof.load_example("h200").head(4), tmp_path / "rows.csv")
    (tmp_path / "other.csv").write_bytes(written(pd.read_csv(path)).encode(encoding))
    pd.testing.assert_frame_equal(bwprof.load(tmp_path / "other.csv"), bwprof.load(path))


def test_a_workbook_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").write_bytes(b"PK\x03\x04\x14\xff\xfe")
    with pytest.raises(ValueError, match="CSV UTF-8"):
        bwprof.load(tmp_path / "rows.xlsx")


def test_binary_and_absent_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\x89PNG\xff\xfe\x00")
    with pytest.raises(ValueError, match="it is not text"):
        bwprof.load(tmp_path / "a.csv")
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv"):
        bwprof.load(tmp_path / "nothing.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"results\.json nor results\.csv"):
        bwprof.load(tmp_path / "empty")


def test_save_refuses_other_endings_and_other_frames(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rows\.parquet:.*\.csv or \.json"):
        bwprof.save(frame.from_rows([row("a", "fp32")]), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="column operation, precision"):
        bwprof.save(pd.DataFrame({"a": [1]}), tmp_path / "rows.csv")


def test_comparison_with_fp32() -> None:
    """FP16 at 0.8 x the GB/s and half the bytes is 1.6 x faster: bytes ratio 2 x bandwidth ratio 0.8."""
    rows = pair("a", 100.0, 80.0)
    assert pairs.fill_comparisons(rows)
    assert rows[1]["bandwidth_vs_fp32"] == pytest.approx(0.8)
    assert rows[1]["byte_ratio_vs_fp32"] == pytest.approx(2.0)
    assert rows[1]["speedup_vs_fp32"] == pytest.approx(1.6)
    assert [rows[0][name] for name in schema.COMPARISON_NAMES] == [1.0, 1.0, 1.0]
    assert not pairs.fill_comparisons(rows), "nothing changes the second time"


def test_comparison_across_different_default_variants() -> None:
    rows = pair("a", 100.0, 80.0)
    rows[1]["variant"] = "another"
    pairs.fill_comparisons(rows)
    assert rows[1]["speedup_vs_fp32"] == pytest.approx(1.6)
    assert len(pairs.group_precisions(rows)) == 1


def test_comparison_stays_within_a_variant_where_several_ran() -> None:
    slow, fast = pair("a", 50.0, 50.0, variant="slow"), pair("a", 100.0, 80.0, variant="fast")
    rows = [*slow, *fast]
    pairs.fill_comparisons(rows)
    assert slow[1]["speedup_vs_fp32"] == pytest.approx(2.0)
    assert fast[1]["speedup_vs_fp32"] == pytest.approx(1.6)


def test_other_shapes_failed_rows_and_other_runs_are_not_compared() -> None:
    for change in ({"K": 64}, {"status": "failed", "time_ms": None}, {"run_id": "run-2"}, {"cache": "hot"}):
        rows = pair("a", 100.0, 80.0)
        rows[0].update(change)
        pairs.fill_comparisons(rows)
        assert rows[1]["speedup_vs_fp32"] is None, change


def test_results_import_no_pandas() -> None:
    """`import bwprof` imports nothing; what is used then brings no pandas, matplotlib or NumPy, and no library of
    NVIDIA's; functions stay what they are when the folders of their names are imported before them.
    """
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import bwprof\n"
        "print(sorted(set(sys.modules) - before))\n"
        "import bwprof.info, bwprof.sweep\n"
        "from bwprof.selftest import __name__ as _\n"
        "heavy = {'pandas', 'matplotlib', 'numpy', 'rich', 'argparse', 'asyncio', 'multiprocessing'}\n"
        "print([callable(found) for found in (bwprof.sweep, bwprof.info, bwprof.selftest, bwprof.compare)])\n"
        "print(callable(bwprof.results.pairs.times_differ), callable(bwprof.results.schema.all_columns))\n"
        "print(bwprof.measure is bwprof.measure, bwprof.Case.__name__, sorted(heavy & set(sys.modules)))\n"
        "print([line for line in open('/proc/self/maps') if 'cublas' in line or 'cupti' in line or 'libcuda' in line])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "['bwprof']",
        "[True, True, True, True]",
        "True True",
        "True Case []",
        "[]",
    ]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = bwprof.results.nothing


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "'=1", "''-1", "'plain'", "a=b"])
def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path, name: str) -> None:
    path = bwprof.save(frame.from_rows([row(name, "fp32", temperature_c=-1.5)]), tmp_path / "a.csv")
    (cells,) = csv.DictReader(io.StringIO(path.read_text()))
    assert cells["case"][0] not in "=+-@"
    assert cells["temperature_c"] == "-1.5", "a number stays one"
    assert bwprof.load(path)["case"].tolist() == [name]


def test_rows_of_a_frame_do_not_depend_on_how_its_columns_are_stored() -> None:
    """Columns of the schema's own types are converted at once, others value by value."""
    data = bwprof.load_example("h200")
    data.loc[3, "time_ms"] = float("nan")
    data.loc[4, ["variant", "M", "verified"]] = None
    expected = frame.to_rows(data.astype(object))
    found = frame.to_rows(data)
    assert found == expected
    assert [{name: type(value) for name, value in one.items()} for one in found] == [
        {name: type(value) for name, value in one.items()} for one in expected
    ]
    assert found[3]["time_ms"] is None
    assert found[4]["M"] is None
