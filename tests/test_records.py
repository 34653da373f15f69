"""Keys that join rows of two runs, and sources of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rows import pair, row

import bwprof
from bwprof.records import baselines, keys
from bwprof.records import source as records_source
from bwprof.results import frame, schema


def processes(*times_ms: float, **more: Any) -> list[tuple[list[Any], list[Any], dict[str, Any]]]:
    """Return a run of one case for each time, each in its own process."""
    return [
        (
            [row("decode", "fp16", **({"time_ms": time, "run_id": f"r{number}"} | more))],
            [[time * 1e6, time * 1e6 + 1]],
            {"run_id": f"r{number}"},
        )
        for number, time in enumerate(times_ms)
    ]


def test_a_key_is_what_identifies_a_case() -> None:
    one = row("decode", "fp16", timer="graph", kv_lens="1;2")
    same = one | {"time_ms": 9.0, "run_id": "x", "timestamp": "y", "driver": "z", "flags": "noisy", "device_uuid": "u"}
    assert keys.case_key(one) == keys.case_key(same)
    for name in ("operation", "case", "precision", "variant", "cache", "timer", "backend", "device", "kv_lens"):
        assert keys.case_key(one) != keys.case_key(one | {name: "other"}), name
    for name in schema.param_names():
        assert keys.case_key(one) != keys.case_key(one | {name: 12345}), name


def test_keys_of_fewer_columns() -> None:
    one = row("decode", "fp16", timer="graph")
    names = keys.variantless_names()
    assert keys.case_key(one, names) == keys.case_key(one | {"variant": "other"}, names)
    assert keys.case_key(one, names) != keys.case_key(one | {"timer": "cupti"}, names)
    elsewhere = one | {"variant": "b", "timer": "cupti", "backend": "cuda", "device": "Other"}
    portable = keys.portable_names()
    assert keys.case_key(one, portable) == keys.case_key(elsewhere, portable)
    assert keys.case_key(one, portable) != keys.case_key(one | {"cache": "hot"}, portable)


def test_keys_of_a_csv_are_those_of_the_json(tmp_path: Path) -> None:
    data = frame.from_rows(pair("decode", 100, 90, timer="", variant=""))
    found = [records_source.load_source(bwprof.save(data, tmp_path / f"r.{kind}")).rows for kind in ("csv", "json")]
    assert keys.unique_keys(found[0]) == keys.unique_keys(found[1])


def test_rows_of_one_key_differ_by_labels_then_devices_then_turns() -> None:
    labeled = [row("f", "", n=n) for n in (1, 2)]
    ours, theirs = keys.unique_keys(labeled, list(reversed(labeled)))
    assert ours == list(reversed(theirs))
    assert len(set(ours)) == 2
    devices = [row("f", "fp16", device_uuid=uuid) for uuid in "ab"]
    ours, theirs = keys.unique_keys(devices, devices[1:])
    assert theirs == ours[1:], "where one side has two, the other's single row is told apart as well"
    ours, theirs = keys.unique_keys(devices, [*reversed(devices)])
    assert ours == list(reversed(theirs))
    twice = [row("f", "fp16"), row("f", "fp16")]
    ours, theirs = keys.unique_keys(twice, twice)
    assert ours == theirs
    assert len(set(ours)) == 2
    assert keys.unique_keys() == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("device", "another device"),
        ("driver", "another driver"),
        ("timer", "another timer"),
        ("bytes_read", "other work"),
    ],
)
def test_differences_that_prevent_a_comparison_are_named(name: str, words: str) -> None:
    one = row("decode", "fp16", driver="1.0", timer="graph")
    assert keys.list_differences(one, one | {name: 77}) == [f"{words}: {one[name]}, 77"]
    assert keys.list_differences(one, one | {name: None}) == []
    assert keys.list_differences(one, one | {"variant": "other", "time_ms": 5.0}) == []


def test_the_row_of_the_median_process_represents_a_case() -> None:
    found = baselines.make_baseline("b", processes(3.0, 1.0, 2.0))
    assert found.rows[0]["time_ms"] == 2.0
    assert found.samples == [[2e6, 2e6 + 1]]
    assert found.process_ms == [(3.0, 1.0, 2.0)]
    assert baselines.make_baseline("b", processes(3.0, 1.0)).rows[0]["time_ms"] == 1.0
    assert found.device == "Test CPU"
    assert [process["run_id"] for process in found.processes] == ["r0", "r1", "r2"]


def test_disturbed_and_failed_processes_do_not_count() -> None:
    runs = processes(3.0, 1.0, 2.0)
    runs[0][0][0]["flags"] = "noisy"
    runs[1][0][0].update(status="failed", time_ms=None)
    found = baselines.make_baseline("b", runs)
    assert found.process_ms == [(2.0,)]
    assert found.rows[0]["time_ms"] == 2.0
    assert len(found.cases[0].rows) == 3, "nothing is thrown away"
    noisy = baselines.make_baseline("b", processes(3.0, 1.0, flags="noisy"))
    assert noisy.process_ms == [(3.0, 1.0)], "better than nothing"


def test_a_baseline_comes_back_from_its_file(tmp_path: Path) -> None:
    runs = processes(3.0, 1.0, 2.0, label="mine", verified=True)
    written = baselines.make_baseline("b", runs, saved="2026-01-01T00:00:00+00:00")
    path = baselines.write_baseline(written, folder=tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "b.json"
    found = baselines.load_baseline("b", folder=path.parent)
    assert found == written
    assert baselines.format_baseline(found) == path.read_text()
    assert list(path.parent.iterdir()) == [path], "no lock, no temporary file is left"


def test_the_file_is_the_same_whatever_the_order() -> None:
    rows = [*pair("b_case", 100, 90), *pair("a_case", 80, 70)]
    texts = {
        baselines.format_baseline(baselines.make_baseline("b", [(list(order), [None] * 4, {"run_id": "r"})]))
        for order in (rows, rows[::-1])
    }
    assert len(texts) == 1
    lines = texts.pop().splitlines()
    assert max(map(len, lines)) <= 150
    assert sum('"time_ms"' in line for line in lines) == 4, "a value has its own line"


def test_files_frames_and_rows_are_sources(tmp_path: Path) -> None:
    data = frame.from_rows(pair("decode", 100, 90), {"run_id": "r1"}, [[1.0, 2.0], None])
    wanted = [schema.normalize_row(found) for found in pair("decode", 100, 90)]
    csv, json = (bwprof.save(data, tmp_path / f"results.{kind}") for kind in ("csv", "json"))
    for source in (data, json, str(csv), tmp_path, pair("decode", 100, 90), bwprof.rows(data), iter(bwprof.rows(data))):
        found = records_source.load_source(source)
        assert [{k: v for k, v in one.items() if k in wanted[0]} for one in found.rows] == wanted
        assert found.processes == ()
        assert len(found.samples) == 2
    assert records_source.load_source(json).samples == [[1.0, 2.0], None]
    assert records_source.load_source(data).samples == [[1.0, 2.0], None]
    assert records_source.load_source(data).run["run_id"] == "r1"
    assert records_source.load_source(bwprof.rows(data)[0]).samples == [[1.0, 2.0]]
    assert records_source.load_source(found) is found


def test_baselines_are_sources(tmp_path: Path) -> None:
    path = baselines.write_baseline(baselines.make_baseline("main", processes(3.0, 1.0, 2.0)), folder=tmp_path)
    for source in ("baseline:main", "main", path, str(path), baselines.load_baseline("main", folder=tmp_path)):
        found = records_source.load_source(source, folder=tmp_path)
        assert (found.name, found.process_ms) == ("main", [(3.0, 1.0, 2.0)])
        assert found.rows[0]["time_ms"] == 2.0


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("mian", FileNotFoundError, "mian.*'mian'.*'main'"),
        ("baseline:mian", FileNotFoundError, "'mian'.*'main'"),
        ("no/such", FileNotFoundError, "no/such$"),
        ("baseline:../x", ValueError, "the name of a baseline is '../x'"),
        (5, TypeError, "5 holds no rows"),
        ([], ValueError, "empty"),
        ("baseline:damaged", ValueError, "damaged.json is not a whole baseline"),
        ("damaged", ValueError, "damaged.json is not a whole baseline"),
    ],
)
def test_other_sources_are_refused(source: Any, kind: type[Exception], words: str, tmp_path: Path) -> None:
    baselines.write_baseline(baselines.make_baseline("main", processes(1.0)), folder=tmp_path)
    (tmp_path / "damaged.json").write_text('{"format": "bwprof-baseline", "cases": [')
    with pytest.raises(kind, match=words):
        records_source.load_source(source, folder=tmp_path)
