"""Each command reads the CSV and JSON that another writes of ncu's, rocprof's and nsys' files and of traces."""

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
def test_a_saved_frame_is_equal_after_reading(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    whole = load(files[name])
    (tmp_path / "a.json").write_text(frames.to_json(whole))
    (tmp_path / "a.csv").write_text(frames.to_csv(whole))
    loaded = load(tmp_path / "a.json")
    pd.testing.assert_frame_equal(loaded, whole)
    assert loaded.attrs == whole.attrs
    pd.testing.assert_frame_equal(load(tmp_path / "a.csv"), whole)
    diagnosis = bwprof.diagnose(whole)
    for ending in ("json", "csv"):
        pd.testing.assert_frame_equal(bwprof.diagnose(load(tmp_path / f"a.{ending}")), diagnosis)


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize(("command", "name"), [("ncu", "raw"), ("rocprof", "rocprof"), ("trace", "trace")])
def test_commands_read_what_others_write(
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


def test_load_names_the_reader_of_other_profilers_files(files: dict[str, Path]) -> None:
    for name in ("raw", "details", "rocprof", "rocprofv3", "trace"):
        with pytest.raises(ValueError, match=r"bwprof\.importers\.load\(path\).*bwprof diagnose"):
            bwprof.load(files[name])


def test_a_file_of_another_profiler_is_named(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert profilers_main(["rocprof", str(files["raw"])]) == 2
    assert "bwprof import ncu FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("3", '"bwprof-profile"'),
        ("[3]", "row 0 is 3"),
        ('[{"kernel": "a", "time_ms": 1}, {"kernel": "a", "time_ms": "soon"}]', "row 1: time_ms is 'soon'"),
        ('[{"kernel": "a", "time_ms": 1e999}]', "row 0: time_ms is inf"),
        ('[{"kernel": ["a"]}]', r"row 0: kernel is \['a'\]"),
        ('[{"kernel": "a", "own": {}}]', "row 0: own is {}"),
        ('[{"case": "a"}]', "column kernel"),
        ("[", "no JSON"),
    ],
)
def test_damaged_documents_are_refused(rows: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(f'{{"format": "bwprof-profile", "source": "a", "tool": "ncu", "notes": [], "rows": {rows}}}')
    with pytest.raises(ValueError, match=match):
        load(path)


def test_damaged_tables_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    header = "kernel,case,status,time_ms\n"
    path.write_text(f"{header}a,a,ok,1\n\nb,b,ok,soon\n")
    with pytest.raises(ValueError, match=r"line 4: time_ms .*'soon'"):
        load(path)
    path.write_text(f"{header}a,a,ok\nb,b,ok,2\n")
    with pytest.raises(ValueError, match=r"line 2: .*\b3 cells\b.*\b4"):
        load(path)
    path.write_text(f"{header}a,a,ok,1\nb,b,ok,2")
    cut = load(path)
    assert cut["kernel"].tolist() == ["a"]
    (note,) = cut.attrs["notes"]
    assert note.startswith("line 3 ")
    path.write_text(header + "".join(f"k{at},k,ok,{at}\n" for at in range(1200)) + "late,k,ok,never\n")
    with pytest.raises(ValueError, match=r"line 1202: .*'never'"):
        load(path)
