"""`bwprof.importers`: kernels of PyTorch's traces and of Nsight Systems' exports, made as their documentation shows."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import bwprof
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.nsys import parse_nsys

GEMM = "void gemm<float>(float*)"


def kernel(name: str = GEMM, us: Any = 10.0, **args: Any) -> dict[str, Any]:
    """An event as PyTorch writes one of a kernel."""
    launched = {"device": 0, "stream": 7, "registers per thread": 32, "shared memory": 1024}
    sizes = {"grid": [64, 2, 1], "block": [128, 1, 1], "est. achieved occupancy %": 50}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 1.5, "dur": us, "args": launched | sizes | args}


def copy(way: str, count: int, us: float) -> dict[str, Any]:
    args = {"device": 0, "bytes": count}
    return {"ph": "X", "cat": "gpu_memcpy", "name": f"Memcpy {way} (x -> y)", "ts": 1, "dur": us, "args": args}


def operator(name: str, us: float, ts: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": us, "pid": 1, "tid": 1}


def trace(folder: Path, events: list[Any], name: str = "trace.json", **about: Any) -> Path:
    path = folder / name
    whole = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9}], **about}
    path.write_text(json.dumps(whole | {"traceEvents": events, "traceName": "x"}, indent=1))
    return path


# ---- traces ----


def test_a_tab_in_a_name_is_read(tmp_path):
    path = trace(tmp_path, [kernel("a b")])
    path.write_text(path.read_text().replace("a b", "a\tb"))
    assert len(parse_chrome_trace(path)) == 1


def test_a_trace_gives_a_row_for_each_kernel(tmp_path):
    events = [
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        operator("aten::mm", 500.0, 1.0),
        *(kernel(us=us) for us in (10.0, 40.0, 12.5)),
        kernel("relu", 5.0, grid=[8, 1, 1]),
        kernel("relu", 2.0, grid=[4, 1, 1]),
        {"ph": "X", "cat": "gpu_user_annotation", "name": "step", "ts": 1, "dur": 1e6},
    ]
    properties = [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}]
    found = parse_chrome_trace(trace(tmp_path, events, deviceProperties=properties))
    assert found["kernel"].tolist() == [GEMM, "relu"]
    assert found["kind"].tolist() == ["kernel", "kernel"]
    assert found["count"].tolist() == [3, 2]
    assert found["time_ms"].tolist() == pytest.approx([0.0125, 0.0035])  # medians, of an even number the mean of two
    assert found["total_ms"].tolist() == pytest.approx([0.0625, 0.007])
    assert found["min_ms"].tolist() == pytest.approx([0.01, 0.002])
    assert found["max_ms"].tolist() == pytest.approx([0.04, 0.005])
    assert found["share_pct"].tolist() == pytest.approx([100 * 62.5 / 69.5, 100 * 7 / 69.5])
    first = found.iloc[0]
    assert (first["grid"], first["block"], first["blocks"], first["threads"]) == ("64x2x1", "128x1x1", 128, 128)
    assert (first["registers"], first["shared_bytes"], first["occupancy_pct"]) == (32, 1024, 50.0)
    assert "PyTorch's estimate" in first["estimated"]
    assert (first["device"], first["compute_capability"], first["multiprocessors"]) == ("NVIDIA H200", "9.0", 132)
    assert found.iloc[1].isna()["grid"]  # launched with two
    assert found.iloc[1]["block"] == "128x1x1"
    assert found.attrs == {"source": "trace.json", "tool": "torch.profiler", "notes": ()}


def test_bytes_of_a_name_give_its_bandwidth(tmp_path):
    path = trace(tmp_path, [kernel(us=10.0), kernel("relu", 4.0), kernel("relu_backward", 8.0), kernel("other", 1.0)])
    cost = bwprof.Cost(300_000, 100_000, 1, 0, 0, 0)
    bytes_by_name = {
        GEMM: (60_000, 40_000),
        "relu*": lambda row: (row["blocks"] * row["threads"] * 4, row["count"]),
        "o*": cost,
    }
    found = parse_chrome_trace(path, bytes=bytes_by_name).set_index("kernel")
    assert found.loc[GEMM, "bandwidth_gb_s"] == pytest.approx(10.0)
    assert found.loc["relu", "bytes_read"] == 65_536
    assert found.loc["relu", "bandwidth_gb_s"] == pytest.approx(65_537 / 4e3)
    assert found.loc["relu_backward", "bandwidth_gb_s"] == pytest.approx(65_537 / 8e3)
    assert found.loc["other", "bandwidth_gb_s"] == pytest.approx(400.0)
    with pytest.raises(ValueError, match=r"'rleu'.*'relu'"):
        parse_chrome_trace(path, bytes={"rleu": (1, 1)})
    with pytest.raises(ValueError, match=r"\brelu are 3\b"):
        parse_chrome_trace(path, bytes={"relu": 3})


def test_copies_and_fills_have_the_bytes_that_were_recorded(tmp_path):
    fill = {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 2, "args": {"bytes": 4000}}
    events = [copy("HtoD", 1000, 1.0), copy("HtoD", 1000, 3.0), copy("DtoD", 500, 1.0), copy("DtoH", 8, 1.0), fill]
    found = parse_chrome_trace(trace(tmp_path, [*events, copy("PtoP", 9, 1.0)])).set_index("kernel")
    rows = found[["bytes_read", "bytes_written"]].astype(object).where(found["bytes_read"].notna(), None)
    expected = {"HtoD": [0, 1000], "DtoD": [500, 500], "DtoH": [8, 0], "PtoP": [None, None]}
    for way, moved in expected.items():
        assert rows.loc[copy(way, 0, 0)["name"]].tolist() == moved
    assert rows.loc["Memset (Device)"].tolist() == [0, 4000]
    assert found.loc["Memset (Device)", "bandwidth_gb_s"] == pytest.approx(2.0)


def test_bandwidth_of_calls_with_different_bytes_is_all_bytes_over_all_time(tmp_path):
    events = [copy("HtoD", size, us) for size, us in ((1000, 1.0), (9000, 9.0), (2000, 2.0))]
    events += [kernel("relu", 2.0), kernel("relu", 8.0), kernel("other", 1.0)]
    bytes_by_name = {"relu": [(1000, 1000), (6000, 2000)], "other": [(500, 500)]}
    found = parse_chrome_trace(trace(tmp_path, events), bytes=bytes_by_name).set_index("kernel")
    copied, relu, other = (found.loc[name] for name in ("Memcpy HtoD (x -> y)", "relu", "other"))
    assert (copied["time_ms"], copied["bytes_written"], copied["flags"]) == (0.002, 4000, "bytes_vary")
    assert copied["bandwidth_gb_s"] == pytest.approx(1.0)
    assert (relu["bytes_read"], relu["bytes_written"], relu["flags"]) == (3500, 1500, "bytes_vary")
    assert relu["bandwidth_gb_s"] == pytest.approx(1.0)
    assert other["bandwidth_gb_s"] == pytest.approx(1.0)
    assert found["flags"].notna().tolist() == [True, True, False]
    with pytest.raises(ValueError, match=r"relu .*\b1 call\b.*\b2"):
        parse_chrome_trace(trace(tmp_path, events), bytes={"relu": [(1, 1)]})


def test_on_a_cpu_operators_are_rows(tmp_path):
    found = parse_chrome_trace(
        trace(tmp_path, [operator("aten::mm", 80.0, 100.0), operator("aten::relu", 20.0, 180.0)])
    )
    assert found["kernel"].tolist() == ["aten::mm", "aten::relu"]
    assert set(found["kind"]) == {"operator"}
    assert found["share_pct"].tolist() == [80.0, 20.0]  # of the 100 us that the trace spans
    assert "no kernels" in found.attrs["notes"][0]


def test_impossible_begins_do_not_extend_a_trace(tmp_path):
    events = [operator("aten::mm", 80.0, 100.0), operator("aten::relu", 20.0, 180.0), operator("late", 0.0, 1e301)]
    found = parse_chrome_trace(trace(tmp_path, events)).set_index("kernel")
    assert found["share_pct"].to_dict() == {"aten::mm": 80.0, "aten::relu": 20.0, "late": 0.0}


def test_lists_packed_files_and_files_without_an_end_are_read(tmp_path):
    events = [kernel(us=10.0), kernel("relu", 5.0)]
    whole = json.dumps(events)
    for name, text in {"list": whole, "no_end": whole[:-1], "comma": whole[:-1] + ",\n"}.items():
        (tmp_path / name).write_text(text)
        found = parse_chrome_trace(tmp_path / name)
        assert found["kernel"].tolist() == [GEMM, "relu"]
        assert ("no end" in "".join(found.attrs["notes"])) == (name != "list")
    packed = gzip.compress(trace(tmp_path, events).read_bytes())
    (tmp_path / "t.json.gz").write_bytes(packed)
    assert parse_chrome_trace(tmp_path / "t.json.gz")["count"].tolist() == [1, 1]


def test_events_across_windows_are_read(tmp_path):
    """The trace has some megabytes, and is read in windows of one."""
    padding = {"Input Dims": [[1, 2]] * 400}
    events = [kernel("a" if n % 3 else "b", float(n), **padding) for n in range(400)]
    path = trace(tmp_path, events, traceId="x" * 1_500_000)
    assert path.stat().st_size > 3 << 20
    found = parse_chrome_trace(path).set_index("kernel")
    assert found.loc["b", "count"] == 134
    assert found.loc["a", "total_ms"] + found.loc["b", "total_ms"] == pytest.approx(sum(range(400)) / 1e3)


@pytest.mark.parametrize("cut", range(1, 40))
def test_whole_events_of_a_cut_trace_are_read(tmp_path, cut):
    text = json.dumps({"traceEvents": [kernel("a", 1.0), kernel('b \u00e9 \\ "', 2.0, x=[None, True, 1e9])]})
    path = tmp_path / "cut.json"
    path.write_bytes(text.encode()[: -6 * cut])
    if 6 * cut > len(text) - text.index("}}, {") - 2:
        with pytest.raises(ValueError, match=r"cut\.json"):
            parse_chrome_trace(path)
        return
    found = parse_chrome_trace(path)
    assert found["kernel"].tolist() == ["a"]
    assert any("not whole" in note for note in found.attrs["notes"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: .*''"),
        ("hello", "line 1: .*'h'"),
        ("3", "line 1: .*'3'"),
        ("{}", r"line 1: .*'\}'.*traceEvents"),
        ('{"a": 1,\n"b" 2}', "line 2: .*':'.*'b'"),
        ('{"traceEvents": 3}', "traceEvents is no list"),
        ('{"traceEvents": [\n{"ph": "X",,}\n]}            ', "line 2: .*no JSON"),
        ('{"traceEvents": [\n{"ph": oops}]}          ', "line 2: .*no JSON"),
        ('{"traceEvents": []}', "categories.*none"),
        ('[{"ph": "X", "cat": "bwprof", "name": "a", "dur": 1}]', r"categories.*bwprof \(1\)"),
        ("[" * 100_000, "nested too deep"),
        ('[{"dur": ' + "9" * 5000 + "}]", "line 1: .*cannot be read"),
        ('{"a": ' + "[" * 100_000, "nested too deep"),
    ],
)
def test_errors_name_the_line_of_a_bad_trace(tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        parse_chrome_trace(tmp_path / "bad.json")


def test_impossible_events_are_left_out(tmp_path):
    odd = (-1.0, float("nan"), float("inf"), "5", None, True, 10**400, 1e300)
    text = json.dumps([kernel("good", 1.0), *(kernel("odd", us) for us in odd), kernel("good", 3.0)])
    (tmp_path / "t.json").write_text(text + " ")
    found = parse_chrome_trace(tmp_path / "t.json")
    assert found["kernel"].tolist() == ["good"]
    assert found["total_ms"].tolist() == [0.004]
    (note,) = found.attrs["notes"]
    assert note.startswith("8 events ")
    shapes = [
        kernel("f", 1.0, grid=[0, -1, 2], block="x", device=[1]),
        kernel("f", 1.0, **{"registers per thread": -1}),
    ]
    assert parse_chrome_trace(trace(tmp_path, [*shapes, 3, None, [], "x", {"ph": "X", "cat": 3}]))[
        "count"
    ].tolist() == [2]


def test_names_become_one_line_and_never_run(tmp_path):
    names = ["=cmd|' /C calc'!A0", "two\nlines", "\ud800", "x'; DROP TABLE y; --"]
    found = parse_chrome_trace(trace(tmp_path, [kernel(name, 9.0 - n) for n, name in enumerate(names)]))
    assert found["kernel"].tolist() == [names[0], "two lines", "\\ud800", names[3]]


def test_gzip_streams_that_are_damaged_or_endless_are_refused(tmp_path, monkeypatch):
    from bwprof.importers import chrome

    packed = gzip.compress(json.dumps([kernel(str(n), 1.0) for n in range(2000)]).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[:-200])
    found = parse_chrome_trace(path)
    assert 0 < len(found) < 2000
    assert any("gzip" in note for note in found.attrs["notes"])
    path.write_bytes(packed[:60] + b"damaged!" + packed[68:])
    with pytest.raises(ValueError, match=r"t\.json\.gz"):
        parse_chrome_trace(path)
    monkeypatch.setattr(chrome, "_MOST_UNPACKED", 1 << 20)
    path.write_bytes(gzip.compress(b"[" + b" " * (2 << 20) + b"]"))
    with pytest.raises(ValueError, match=r"more than 1 MiB"):
        parse_chrome_trace(path)


# ---- Nsight Systems ----

KERNELS = (
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " streamId INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,"
    " blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, {})"
)
NOW = KERNELS.format("demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER")
BEFORE = KERNELS.format("shortName INTEGER NOT NULL")
STRINGS = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)"
GPUS = (
    "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, computeMajor INTEGER, computeMinor INTEGER, smCount INTEGER)"
)
SETUP = (0, 7, 32, 64, 2, 1, 128, 1, 1, 512, 1024)


def export(folder: Path, script: str, *rows: tuple[str, tuple[Any, ...]], name: str = "r.sqlite") -> Path:
    """An export of these statements, and rows of tables."""
    path = folder / name
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.executescript(script)
    for table, values in rows:
        database.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(values))})", values)
    database.commit()
    database.close()
    return path


def launched(name: Any, start: Any, ns: int, *more: Any) -> tuple[str, tuple[Any, ...]]:
    end = start + ns if isinstance(start, int) else start
    return "CUPTI_ACTIVITY_KIND_KERNEL", (start, end, *SETUP, name, *more)


def strings(**texts: str) -> list[tuple[str, tuple[Any, ...]]]:
    return [("StringIds", (int(key[1:]), text)) for key, text in texts.items()]


@pytest.mark.parametrize("layout", [NOW, BEFORE], ids=["now", "before"])
def test_an_export_gives_a_row_for_each_kernel(tmp_path, layout):
    more = (3, 4) if layout is NOW else ()
    path = export(
        tmp_path,
        f"{layout}; {STRINGS}; {GPUS};",
        *strings(n1=GEMM, n2="relu", n3="gemm"),
        ("TARGET_INFO_GPU", (0, "NVIDIA H200", 9, 0, 132)),
        *(launched(1, 1000 * n, ns, *more) for n, ns in enumerate((10_000, 40_000, 12_500))),
        launched(2, 9, 5_000, *more),
    )
    found = parse_nsys(path, bytes={GEMM: (60_000, 65_000)})
    assert found["kernel"].tolist() == [GEMM, "relu"]
    assert found["count"].tolist() == [3, 1]
    assert found["time_ms"].tolist() == [0.0125, 0.005]
    assert found["total_ms"].tolist() == [0.0625, 0.005]
    assert found["share_pct"].tolist() == pytest.approx([100 * 62.5 / 67.5, 100 * 5 / 67.5])
    assert found["bandwidth_gb_s"].tolist()[0] == pytest.approx(10.0)
    first = found.iloc[0]
    assert (first["device"], first["compute_capability"], first["multiprocessors"]) == ("NVIDIA H200", "9.0", 132)
    assert (first["grid"], first["block"], first["blocks"], first["threads"]) == ("64x2x1", "128x1x1", 128, 128)
    assert (first["registers"], first["shared_bytes"]) == (32, 1536)
    assert found.attrs == {"source": "r.sqlite", "tool": "Nsight Systems", "notes": ()}


def test_copies_fills_and_graphs_of_an_export(tmp_path):
    path = export(
        tmp_path,
        f"{NOW}; {STRINGS}; CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, bytes INT, copyKind INT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INT, end INT, bytes INT, value INT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT)",
        ("CUPTI_ACTIVITY_KIND_MEMCPY", (0, 2000, 8000, 1)),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", (5, 1, 8000, 1)),
        ("CUPTI_ACTIVITY_KIND_MEMSET", (0, 1000, 4000, 0)),
    )
    found = parse_nsys(path)
    assert found["kernel"].tolist() == ["[CUDA memcpy HtoD]", "[CUDA memset]"]
    assert found["kind"].tolist() == ["copy", "fill"]
    assert found["bytes_written"].tolist() == [8000, 4000]
    assert found["bandwidth_gb_s"].tolist() == [4.0, 4.0]
    notes = " ".join(found.attrs["notes"])
    assert "1 rows of CUPTI_ACTIVITY_KIND_MEMCPY" in notes
    assert "--cuda-graph-trace=node" in notes


@pytest.mark.parametrize(
    ("script", "rows", "message"),
    [
        ("CREATE TABLE other (a)", (), "CUPTI_ACTIVITY_KIND_KERNEL .*other"),
        (f"{NOW}; {STRINGS}", (), "no kernel"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, name INT)", (), "no columns start, end"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT)", (), "no column demangledName"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT)", (), "CUPTI_ACTIVITY_KIND_MEMCPY .*bytes"),
        (
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS"
            " (SELECT 1 UNION ALL SELECT start FROM n) SELECT start, 2 AS end, 'x' AS name FROM n",
            (),
            "CUPTI_ACTIVITY_KIND_KERNEL .*view",
        ),
        (
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, name TEXT AS (printf('%.*c', 1e9, 'x')))",
            (),
            "CUPTI_ACTIVITY_KIND_KERNEL .*computed",
        ),
        (
            "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts4(start, end, name)",
            (),
            "CUPTI_ACTIVITY_KIND_KERNEL .*virtual",
        ),
        (
            f"{NOW}; CREATE VIEW StringIds AS SELECT 1 AS id, 'x' AS value",
            (launched(1, 0, 5, 1, 1),),
            "StringIds .*view",
        ),
        (f"{NOW}; {STRINGS}", (launched(1, "a'; --", 5, 1, 1),), "row 1 .*a'; --"),
    ],
)
def test_bad_exports_are_refused_and_nothing_of_them_runs(tmp_path, script, rows, message):
    with pytest.raises(ValueError, match=rf"r\.sqlite.*{message}"):
        parse_nsys(export(tmp_path, script, *rows))


def test_names_of_an_export_never_run(tmp_path):
    injection = "'); DROP TABLE StringIds; --"
    path = export(
        tmp_path,
        f"{NOW}; {STRINGS}; CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN SELECT 1; END",
        *strings(n1=injection, n2="=1+1"),
        launched(1, 0, 30, 1, 1),
        launched(2, 0, 20, 1, 1),
        launched(77, 0, 10, 1, 1),
        launched(1, 10, -5, 1, 1),
    )
    before = path.read_bytes()
    found = parse_nsys(path)
    assert found["kernel"].tolist() == [injection, "=1+1", "kernel 77"]
    assert found.attrs["notes"][0].startswith("1 rows of CUPTI_ACTIVITY_KIND_KERNEL")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["r.sqlite"]  # no journal beside it


def test_damaged_exports_are_refused(tmp_path):
    rows = [launched(n % 3, n, 5, 1, 1) for n in range(2000)]
    path = export(tmp_path, f"{NOW}; {STRINGS}", *strings(n0="a", n1="b", n2="c"), *rows)
    whole = path.read_bytes()
    for content in (whole[:100], whole[: len(whole) // 2], whole[:4096] + b"\xff" * 4096 + whole[8192:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"r\.sqlite.*(SQLite cannot|no table)"):
            parse_nsys(path)
    for content, message in (
        (b"", "empty"),
        (b"\x7fELF\0", "no SQLite"),
        (b"a,b\n1,2\n", "header"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            parse_nsys(path)


def test_a_summary_of_nsys_stats_is_read(tmp_path):
    path = tmp_path / "kernels.csv"
    header = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
    lines = ["Processing [r.sqlite] with [cuda_gpu_kern_sum.py]...", "", header]
    lines.append("75.0,3000,2,1500.0,1400.0,1000,2000,1.0,gemm")
    lines.append('25.0,1000,1,1000.0,1000.0,1000,1000,0.0,"relu(float*, int)"')
    path.write_text("\n".join(lines) + "\n")
    found = parse_nsys(path, bytes={"gemm": (1400, 1400)})
    assert found["kernel"].tolist() == ["gemm", "relu(float*, int)"]
    assert found["count"].tolist() == [2, 1]
    assert found["time_ms"].tolist() == [0.0014, 0.001]
    assert found["share_pct"].tolist() == [75.0, 25.0]
    assert found["bandwidth_gb_s"].tolist()[0] == pytest.approx(2.0)
    path.write_text("Time(%),Total Time (us),Instances,Average,Minimum,Maximum,Name\n100.0,3,2,1500,1000,2000,gemm\n")
    found = parse_nsys(path)
    assert found["time_ms"].tolist() == [0.0015]  # the mean
    assert "mean" in found.attrs["notes"][0]
    path.write_text(f"{header}\n1,x,2,3,4,5,6,7,gemm\n")
    with pytest.raises(ValueError, match=r"line 2: .*Total Time.*'x'"):
        parse_nsys(path)
    path.write_text(f"{header}\n1,2\n")
    with pytest.raises(ValueError, match=r"line 2: .*\b2 cells\b.*\b9\b"):
        parse_nsys(path)


# ---- the command ----


def command(*arguments: object) -> int:
    from bwprof.cli.commands.importers import main_import

    return main_import([str(argument) for argument in arguments])


def test_the_command_prints_time_lines_and_launches(tmp_path, capsys):
    path = trace(tmp_path, [kernel(us=10.0), kernel(us=20.0), kernel("relu", 5.0), copy("DtoD", 30_000, 2.0)])
    assert command("trace", path) == 0
    printed = capsys.readouterr().out
    first, _, table = printed.partition("\n")
    assert re.findall(r"trace\.json|\d+", first) == ["trace.json", "4", "3"]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if "|" in line]
    assert ["2", "gemm<float>", "0.015", "0.03", "81.08"] in [row[:5] for row in rows]
    assert rows[-1][1].startswith("Memcpy DtoD")
    assert "30" in rows[-1]
    exported = export(tmp_path, f"{NOW}; {STRINGS}", *strings(n1="=1+1"), launched(1, 0, 30, 1, 1))
    assert command("nsys", exported, "--csv", "-") == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith("kernel,case,")
    assert row.startswith("'=1+1,'=1+1,")  # no spreadsheet runs it
    assert command("trace", exported) == 2
    assert "r.sqlite, line 1:" in capsys.readouterr().err


def test_kinds_of_files_are_detected_by_content(tmp_path):
    from bwprof.importers.detect import detect_kind, load

    path = trace(tmp_path, [kernel()])
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "s.csv").write_text("Time (%),Total Time (ns),Instances,Name\n100,10,1,gemm\n")
    for name in ("trace.json", "t.json.gz"):
        assert detect_kind(tmp_path / name) == "trace"
        assert load(tmp_path / name)["kernel"].tolist() == [GEMM]
    assert detect_kind(export(tmp_path, NOW)) == "nsys"
    assert load(tmp_path / "s.csv")["kernel"].tolist() == ["gemm"]
    page = "[8366] k@127.0.0.1\n  add(int) (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n"
    (tmp_path / "page.txt").write_text(page)
    assert detect_kind(tmp_path / "page.txt") == "ncu"  # and no list of JSON


def test_a_summary_of_countless_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bwprof.importers import nsys

    monkeypatch.setattr(nsys, "MOST_NAMES", 100)
    path = tmp_path / "sums.csv"
    path.write_text("Total Time (ns),Instances,Name\n" + "".join(f"1000,1,k{at}\n" for at in range(100)))
    assert len(parse_nsys(path)) == 100
    path.write_text(path.read_text() + "1,1,k\n")
    with pytest.raises(ValueError, match="different names"):
        parse_nsys(path)
