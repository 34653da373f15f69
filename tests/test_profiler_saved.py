"""What one command writes of a profiler's file, the others read: CSV and JSON of ncu, rocprof, traces and nsys."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from profiled import DETAILS, RAW

import bwprof
from bwprof.cli import main
from bwprof.cli.commands.importers import main_import as profilers_main
from bwprof.importers import frames
from bwprof.importers.detect import load

EVENT = {"ph": "X", "cat": "kernel", "name": "void copy<float>(float*)", "ts": 1, "dur": 50, "pid": 0, "tid": 7}
ROCPROF = """\
Index,KernelName,gpu-id,grd,wgr,lds,scr,arch_vgpr,sgpr,VALUBusy,WriteSize,FetchSize,MemUnitStalled,LDSBankConflict,\
DispatchNs,BeginNs,EndNs,CompleteNs
0,"bodyForce(Body*, float, int) [clone .kd]",0,65536,256,0,0,20,16,68.1,7872.0,9429.2,0.0044,0,1,1000,26327497,26330000
"""
ROCPROFV3 = """\
"Correlation_Id","Dispatch_Id","Agent_Id","Grid_Size","Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size",\
"VGPR_Count","SGPR_Count","Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"
1,1,"Agent 1",1048576,"add(float*, int)",64,0,0,8,16,"SQ_WAVES",16384.000000,3200098838431081,3200098838483232
2,2,"Agent 1",1048576,"subtract(float*, int)",64,0,0,8,16,"SQ_WAVES",16384.000000,3200098838589014,3200098838638794
"""
NSYS = """\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,300,3,100.0,100.0,90,110,10.0,copy(float*)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("profilers")
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [EVENT, EVENT | {"ts": 99, "name": "=1+1"}]}))
    texts = {"nsys": NSYS, "rocprof": ROCPROF, "rocprofv3": ROCPROFV3}
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return {
        "raw": RAW,
        "details": DETAILS,
        "trace": folder / "trace.json",
        **{name: folder / f"{name}.csv" for name in texts},
    }


@pytest.mark.parametrize("name", ["raw", "details", "rocprof", "rocprofv3", "trace", "nsys"])
def test_a_frame_comes_back_as_it_was(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    whole = load(files[name])
    (tmp_path / "a.json").write_text(frames.to_json(whole))
    (tmp_path / "a.csv").write_text(frames.to_csv(whole))
    loaded = load(tmp_path / "a.json")
    pd.testing.assert_frame_equal(loaded, whole)
    assert loaded.attrs == whole.attrs
    pd.testing.assert_frame_equal(load(tmp_path / "a.csv"), whole)
    message = bwprof.diagnose(whole)
    for ending in ("json", "csv"):
        pd.testing.assert_frame_equal(bwprof.diagnose(load(tmp_path / f"a.{ending}")), message)


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize(("command", "name"), [("ncu", "raw"), ("rocprof", "rocprof"), ("trace", "trace")])
def test_what_a_command_writes_the_others_read(
    command: str, name: str, ending: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / f"rows.{ending}")
    assert profilers_main([command, str(files[name]), f"--{ending}", target]) == 0
    printed = capsys.readouterr().out
    assert profilers_main([command, target]) == 0
    assert capsys.readouterr().out.partition("\n")[2] == printed.partition("\n")[2]
    assert main(["diagnose", str(files[name])]) == 0
    diagnosis = capsys.readouterr().out
    assert main(["diagnose", target]) == 0
    assert capsys.readouterr().out == diagnosis
    for reader in ("analyze", "show", "report"):
        assert main([reader, target]) == 2
        message = capsys.readouterr().err
        assert "bwprof.importers.load(path)" in message
        assert "bwprof diagnose FILE" in message


def test_other_profilers_own_files_are_named_by_what_reads_results(files: dict[str, Path]) -> None:
    for name in ("raw", "details", "rocprof", "rocprofv3", "trace"):
        with pytest.raises(ValueError, match=r"bwprof\.importers\.load\(path\).* bwprof diagnose"):
            bwprof.load(files[name])


def test_a_file_of_another_profiler_is_named(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert profilers_main(["rocprof", str(files["raw"])]) == 2
    assert "it looks like a file of ncu: bwprof import ncu FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("3", '"format": "bwprof-profile" with a list of rows is needed'),
        ("[3]", "row 0 is 3: a row is needed"),
        ('[{"kernel": "a", "time_ms": 1}, {"kernel": "a", "time_ms": "soon"}]', "row 1: time_ms is 'soon': a number"),
        ('[{"kernel": "a", "time_ms": 1e999}]', "row 0: time_ms is inf: a number is needed"),
        ('[{"kernel": ["a"]}]', r"row 0: kernel is \['a'\]: text is needed"),
        ('[{"kernel": "a", "own": {}}]', "row 0: own is {}: a number or text is needed"),
        ('[{"case": "a"}]', "it has no column kernel"),
        ("[", "this is no JSON"),
    ],
)
def test_damaged_documents_are_refused(rows: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(f'{{"format": "bwprof-profile", "source": "a", "tool": "ncu", "notes": [], "rows": {rows}}}')
    with pytest.raises(ValueError, match=words):
        load(path)


def test_damaged_tables_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    header = "kernel,case,status,time_ms\n"
    path.write_text(f"{header}a,a,ok,1\n\nb,b,ok,soon\n")
    with pytest.raises(ValueError, match="line 4: time_ms is 'soon': a number is needed"):
        load(path)
    path.write_text(f"{header}a,a,ok\nb,b,ok,2\n")
    with pytest.raises(ValueError, match="line 2: it has 3 cells where the header has 4"):
        load(path)
    path.write_text(f"{header}a,a,ok,1\nb,b,ok,2")
    cut = load(path)
    assert cut["kernel"].tolist() == ["a"]
    assert cut.attrs["notes"] == ("line 3 is cut off and left out: the file is not whole",)
    path.write_text(header + "".join(f"k{at},k,ok,{at}\n" for at in range(1200)) + "late,k,ok,never\n")
    with pytest.raises(ValueError, match="line 1202: time_ms is 'never'"):
        load(path)
