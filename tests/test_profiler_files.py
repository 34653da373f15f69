"""Readers of other profilers' files and damaged copies of them: a frame, or a ValueError that names the file.

By hand, with many more: ``survives`` of `mutated` with a large count.
"""

from __future__ import annotations

import gzip
import json

import pandas as pd
import pytest
from mutated import survives
from profiled import details_page
from test_rocprof import FORCES, V1, V3, counted
from test_timelines import GEMM, GPUS, NOW, STRINGS, copy, export, kernel, launched, operator, strings

from bwprof.importers import frames
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.ncu.parse import parse_ncu
from bwprof.importers.nsys import parse_nsys
from bwprof.importers.rocprof import parse_rocprof

COUNT = 120


def rocprof_files() -> dict[str, bytes]:
    long = [counted(n, name, 10.0 * n) for n in (1, 2, 3) for name in ("FETCH_SIZE", "WRITE_SIZE", "TCC_HIT")]
    return {
        "v1.csv": "\n".join([V1, FORCES, FORCES.replace("0,", "1,", 1), ""]).encode(),
        "v3.csv": "\n".join([V3, *long, ""]).encode(),
    }


def trace_files() -> dict[str, bytes]:
    events = [kernel(), kernel("relu", 3.0), copy("HtoD", 100, 2.0), operator("aten::mm", 9.0, 1.0)]
    whole = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H200"}], "traceEvents": events, "x": "y"}
    text = json.dumps(whole, indent=1).encode()
    return {"t.json": text, "list.json": json.dumps(events).encode(), "t.json.gz": gzip.compress(text, mtime=0)}


def stats_files() -> dict[str, bytes]:
    header = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
    return {
        "stats.csv": f"{header}\n75.0,3000,2,1500.0,1400.0,1000,2000,1.0,gemm\n25.0,1000,1,1,1,1,1,0.0,relu\n".encode()
    }


def saved_files() -> dict[str, bytes]:
    launches = [
        {"kernel": "a(int)", "launch": 0, "case": "a", "status": "ok", "time_ms": 1.5, "registers": 32, "own": 2.0},
        {"kernel": "=1", "launch": 1, "case": "b", "status": "ok", "time_ms": None, "registers": None, "own": None},
    ]
    rows = pd.DataFrame(launches)
    rows.attrs = {"source": "page.csv", "tool": "ncu", "notes": ("cut off",), "page": "raw", "units": {"own": "byte"}}
    return {"rows.json": frames.to_json(rows).encode(), "rows.csv": frames.to_csv(rows).encode()}


@pytest.mark.parametrize(
    ("read", "files"),
    [
        (parse_rocprof, rocprof_files),
        (parse_chrome_trace, trace_files),
        (parse_nsys, stats_files),
        (frames.read_saved, saved_files),
    ],
    ids=["rocprof", "trace", "nsys stats", "saved"],
)
def test_damaged_copies_are_read_or_refused(tmp_path, read, files):
    for name, whole in files().items():
        good, refused = survives(read, tmp_path / name, whole, COUNT, seed=15)
        assert good + refused == COUNT
        assert good > 0
        assert refused > 0


def database(tmp_path) -> bytes:
    rows = [launched(n % 2 + 1, 1000 * n, 500, 1, 1) for n in range(30)]
    gpus = ("TARGET_INFO_GPU", (0, "H200", 9, 0, 132))
    return export(tmp_path, f"{NOW}; {STRINGS}; {GPUS}", *strings(n1=GEMM, n2="relu"), gpus, *rows).read_bytes()


def test_damaged_copies_of_an_export_are_read_or_refused(tmp_path):
    good, refused = survives(parse_nsys, tmp_path / "r.sqlite", database(tmp_path), 2 * COUNT, seed=15)
    assert good > 0
    assert refused > 0


def test_files_of_countless_short_records_are_refused(tmp_path, monkeypatch):
    from bwprof.importers import chrome, rocprof

    monkeypatch.setattr(rocprof, "_MOST_RECORDS", 50)
    (tmp_path / "r.csv").write_text("Index,KernelName,FETCH_SIZE\n" + "0,a,1\n" * 60)
    with pytest.raises(ValueError, match="more than 50 records"):
        parse_rocprof(tmp_path / "r.csv")
    monkeypatch.setattr(chrome, "_MANY", 50)
    (tmp_path / "t.json").write_text("[" + "{}," * 60 + "{}]")
    with pytest.raises(ValueError, match=r"\b50 events\b.*\b24\b"):
        parse_chrome_trace(tmp_path / "t.json")
    monkeypatch.setattr(chrome, "_MANY", 2)
    (tmp_path / "t.json").write_text(json.dumps([kernel()] * 9))
    assert parse_chrome_trace(tmp_path / "t.json")["count"].tolist() == [9]


def test_tables_larger_than_any_profiler_writes_are_refused(tmp_path, monkeypatch):
    from bwprof.importers import rocprof
    from bwprof.importers.ncu import pages

    for name, content in rocprof_files().items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(rocprof, "_MOST_COLUMNS", 20)
    with pytest.raises(ValueError, match=r"v1\.csv.*\b26 columns"):
        parse_rocprof(tmp_path / "v1.csv")
    monkeypatch.setattr(rocprof, "_MOST_CELLS", 8)
    with pytest.raises(ValueError, match=r"v3\.csv: .*\b3 .*\b3 launches"):
        parse_rocprof(tmp_path / "v3.csv")
    monkeypatch.setattr(pages, "_MOST_COLUMNS", 17)
    (tmp_path / "page.csv").write_text(details_page([("S", f"m{number}", "", "1") for number in range(18)]))
    with pytest.raises(ValueError, match=r"line 19: .*\b17 metrics"):
        parse_ncu(tmp_path / "page.csv")


def test_batches_are_put_together(tmp_path, monkeypatch):
    from bwprof.importers import rocprof

    (tmp_path / "v3.csv").write_bytes(rocprof_files()["v3.csv"])
    whole = parse_rocprof(tmp_path / "v3.csv")
    for size in (1, 2, 9, 10):
        monkeypatch.setattr(rocprof, "_BATCH", size)
        assert parse_rocprof(tmp_path / "v3.csv").equals(whole)
    text = (tmp_path / "v3.csv").read_text()
    (tmp_path / "v3.csv").write_text(text.replace("20.000000", "twenty", 1))
    line = text[: text.index("20.000000")].count("\n") + 1
    with pytest.raises(ValueError, match=rf"line {line}: column 'Counter_Value' holds 'twenty'"):
        parse_rocprof(tmp_path / "v3.csv")
