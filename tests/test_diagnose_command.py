"""`bwprof diagnose`: the answer first, evidence, next steps; whose file it is; Markdown, JSON, filters, complaints."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from words import words as words_of

import bwprof
from bwprof.analysis.diagnosis.diagnose import diagnose_rows
from bwprof.analysis.diagnosis.hypothesis import CANNOT_TELL
from bwprof.cli import main
from bwprof.importers import detect
from bwprof.importers.next_steps import suggest_commands

pytestmark = pytest.mark.usefixtures("one_thread")

ROCPROF = """\
Index,KernelName,gpu-id,grd,wgr,lds,scr,arch_vgpr,sgpr,VALUBusy,WriteSize,FetchSize,MemUnitStalled,LDSBankConflict,\
DispatchNs,BeginNs,EndNs,CompleteNs
0,"bodyForce(Body*, float, int) [clone .kd]",0,65536,256,0,0,20,16,68.1,7872.0,9429.2,0.0044,0,1,1000,26327497,26330000
"""
NCU = '==PROF== Connected\n\n"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
# A GPU's row far from both roofs, without stalls: what `bwprof sweep --counters` gives.
WIDE = {"sectors_per_load": 8.0, "sectors_per_store": 2.0}  # of wide lanes, or of scattered narrow ones
ROW: dict[str, Any] = {
    "operation": "gemm",
    "precision": "fp16",
    "M": 1,
    "N": 896,
    "K": 896,
    "case": "odd case; rm -rf",
    "beta": 0,
    "backend": "cuda",
    "variant": "gemv",
    "status": "ok",
    "timer": "graph",
    "time_ms": 0.1,
    "timer_floor_us": 0.5,
    "bytes_read": 10**8,
    "bytes_written": 0,
    "bandwidth_gb_s": 1000.0,
    "attainable_gb_s": 4000.0,
    "pct_attainable": 25.0,
    "traffic_ratio": 1.0,
    "flags": "",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bwprof.save(bwprof.load_example("h200"), tmp_path_factory.mktemp("recorded") / "h200.json")


STATED = " ".join(["the bytes", "that it", "must move"])  # what a caller states


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["diagnose", *map(str, arguments)]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["diagnose", *map(str, arguments)]) == 2
    return capsys.readouterr().err


def test_the_answer_comes_first_then_evidence_then_next_steps(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_ones = bwprof.load_example("h200").query("operation == 'gemm' and precision == 'fp32'")
    row = next(row for row in bwprof.rows(open_ones) if "more cannot be told yet" in diagnose_rows(row)[0].sentence)
    told = said(capsys, recorded, "--only", f"{row['case']},stream_copy", "--precision", "fp32")
    answer, _, rest = told.partition("\nEvidence\n")
    evidence, _, following = rest.partition("\nNext steps\n")
    assert re.match(r"stream_copy fp32: .*bandwidth .100", answer)
    assert re.search(rf"^{row['case']} fp32.*: not limited by", answer, re.M)
    assert "supported   memory_bound" in evidence
    assert "ncu preset full" in evidence
    command = next(line for line in following.splitlines() if line.strip().startswith("ncu --"))
    words = shlex.split(command)
    params = [word for name in ("M", "N", "K") for word in ("-p", f"{name}={row[name]}")]
    kernel = ["-p", "beta=0", "--precision", "fp32", "--variant", row["variant"], "--once"]
    assert words[words.index("python") :] == ["python", "-m", "bwprof.sweep", "gemm", *params, *kernel]
    assert "stream_copy" not in following, "what is at its roof needs no more figures"


def test_the_suggested_commands_parse(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its part after ncu, and the sweep itself, are taken by the sweep's own parser, and run the case."""
    from bwprof.cli.commands.sweep import main_sweep

    for found in diagnose_rows(bwprof.load(recorded)):
        for step in suggest_commands(found):
            words = shlex.split(step.command)
            by_ncu = words[0] == "ncu"
            given = main_sweep.parser().parse_args(words[words.index("bwprof.sweep" if by_ncu else "sweep") + 1 :])
            assert given.operations == [found.row["operation"]]
            assert bool(given.once) == by_ncu
    assert capsys.readouterr().err == ""


def test_rows_without_counters_are_measured_again_first() -> None:
    (only,) = suggest_commands(diagnose_rows(ROW)[0])
    assert "waves" in only.tells, "bwprof counts what it takes to tell"
    first, second = suggest_commands(diagnose_rows(ROW | WIDE)[0])
    params = ["-p", "M=1", "-p", "N=896", "-p", "K=896", "-p", "beta=0"]
    how = ["--precision", "fp16", "--variant", "gemv", "--counters", "--metrics", "all"]
    assert shlex.split(first.command) == ["bwprof", "sweep", "gemm", *params, *how]
    assert "stall_reasons" in first.tells
    assert second.command.startswith("ncu ")
    assert second.tells == ("load_efficiency_pct",), "of how wide lanes load, an instrumented run knows"
    lens = ROW | {"operation": "attention_decode", "kv_lens": "10;20", "kv_len": 20, "batch": 2}
    assert "--kv-lens 10,20" in suggest_commands(diagnose_rows(lens)[0])[0].command
    assert "kv_len=" not in suggest_commands(diagnose_rows(lens)[0])[0].command


def test_functions_and_profiled_kernels_have_their_own_next_steps() -> None:
    function = ROW | {"operation": "my $(rm) kernel", "variant": None}
    first, second = suggest_commands(diagnose_rows(function | WIDE)[0])
    assert first.command.startswith("bwprof.measure(fn, ..., ")
    assert re.findall(r"(\w+)=", first.command) == ["counters", "metrics", "roofs"]
    assert shlex.split(second.command)[-1] == "YOUR_PROGRAM"
    kernel = {"kernel": "void ns::copy<float, 4>(float const*, int)", "time_ms": 1.0, "dram_pct": 20.0}
    (only,) = suggest_commands(diagnose_rows(kernel)[0])
    words = shlex.split(only.command)
    assert words[words.index("--kernel-name") + 1] == "copy"
    hostile = kernel | {"kernel": "$(touch x); `y`"}
    (only,) = suggest_commands(diagnose_rows(hostile)[0])
    assert "touch" not in only.command


def test_no_steps_where_nothing_can_be_counted() -> None:
    for row in (ROW | {"backend": "cpu"}, ROW | {"status": "failed"}, {"time_ms": 1.0, "valu_busy_pct": 3.0}):
        assert suggest_commands(diagnose_rows(row)[0]) == []
    assert any(held.verdict == CANNOT_TELL for held in diagnose_rows(ROW | {"backend": "cpu"})[0].verdicts)


def test_markdown_and_json(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, both = tmp_path / "why.md", "ffn_gemm,prefill_attention_4k"
    told = json.loads(said(capsys, recorded, "--only", both, "--json", "--md", target))
    names = [*(f"ffn_gemm {name}" for name in ("fp32", "tf32", "fp16", "bf16"))]
    names += [f"prefill_attention_4k {name}" for name in ("fp32", "fp16", "bf16")]
    assert [case["case"] for case in told["cases"]] == names
    first, limited = told["cases"][0], told["cases"][5]
    row = bwprof.load_example("h200").query("case == 'prefill_attention_4k' and precision == 'fp16'").iloc[0]
    assert limited["verdicts"][0]["hypothesis"] == "compute_bound"
    assert limited["verdicts"][0]["expected_gain"] == pytest.approx(row["measured_tflops"] / row["tflops"])
    assert [held["verdict"] for held in limited["verdicts"]] == sorted(
        (held["verdict"] for held in limited["verdicts"]), key=["supported", "cannot tell", "refuted"].index
    )
    assert {"figure", "option", "preset"} == set(first["verdicts"][0]["needs"][0])
    text = target.read_text(encoding="utf-8")
    assert text.startswith("# Why ")
    for case in (first, limited):
        assert case["answer"].removeprefix(case["case"]) in text
    assert ["Verdict", "Hypothesis", "Evidence"] in [line.strip("| ").split(" | ") for line in text.splitlines()]
    assert "```sh\nncu " in text
    assert "exists already" in refused(capsys, recorded, "--md", target)
    assert said(capsys, recorded, "--only", "ffn_gemm", "--md", "-").startswith("# Why ")
    assert {"--json", "--md"} <= words_of(refused(capsys, recorded, "--json", "--md", "-"))
    written = tmp_path / "why.json"
    assert said(capsys, recorded, "--only", both, "--json", written) == ""
    assert json.loads(written.read_text(encoding="utf-8")) == told
    for order in ((recorded, "--only", both, "--json", "-"), ("--only", both, "--json", recorded)):
        assert json.loads(said(capsys, *order)) == told
    assert "exists already" in refused(capsys, recorded, "--json", written)
    assert "RUN|FILE is missing" in refused(capsys, "--json")
    assert "end in .json" in refused(capsys, recorded, "--json", tmp_path / "why.txt")


def test_filters_and_what_is_left_out(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    complaint = refused(capsys, recorded, "--only", "nothing")
    assert {"--only", "nothing", "63", "stream_read", "fp32", "tf32"} <= words_of(complaint)
    assert "and 6 more;" in complaint
    both = refused(capsys, recorded, "--only", "ffn_gemm", "--precision", "fp23")
    assert {"--only", "ffn_gemm", "--precision", "fp23", "63"} <= words_of(both)
    short, whole = said(capsys, recorded), said(capsys, recorded, "--all")
    assert "and 43 cases more" in short
    assert "more: --all" not in whole
    assert short.partition("\nEvidence")[0] == whole.partition("\nEvidence")[0]
    assert {"--latency", "-1"} <= words_of(refused(capsys, recorded, "--latency", "-1"))
    assert "(1 us of latency)" in " ".join(said(capsys, recorded, "--only", "batch16*", "--latency", "1").split())


def test_shared_verdicts_are_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = bwprof.load_example("h200").query("case == 'stream_copy'").assign(active_threads=None)  # not counted
    recorded = bwprof.save(run, tmp_path / "copies.json")
    told = said(capsys, recorded, "--only", "stream_copy")
    answer = told.partition("\nEvidence\n")[0]
    assert re.match(r"stream_copy fp32, fp16, bf16:.*100", answer)
    assert "these 3 cases" in told
    assert told.count("missing: active_threads") == 1, "what one cannot be told of none of them can"
    alone = said(capsys, recorded, "--only", "stream_copy", "--precision", "fp32")
    assert "each of these" not in alone


def test_long_lists_of_what_is_missing_are_cut_short() -> None:
    (found,) = diagnose_rows({"case": "a", "time_ms": 1.0, "dram_pct": 30.0})
    assert re.search(r"stall_reasons(, \w+){2} and [0-9]+", found.sentence)


def test_cpu_operators_and_copies_get_no_ncu_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    event = {"ph": "X", "name": "aten::mm", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event | {"cat": "cpu_op"}]}))
    told = said(capsys, path)
    assert told.startswith("aten::mm: more cannot")
    assert "ncu" not in told
    near = said(capsys, path, "--bytes", "*mm=1k,1k", "--peak", "2.2")
    assert re.match(r"aten::mm: limited .*90\.9 %.*theoretical", near)
    copy = {"kernel": "Memcpy HtoD (Pageable -> Device)", "kind": "copy", "time_ms": 3.0}
    assert suggest_commands(diagnose_rows(copy)[0]) == []


def test_counted_bytes_need_only_the_callers_bytes() -> None:
    row = {"kernel": "void ns::copy<float>(float*)", "time_ms": 1.0, "dram_bytes_read": 10**8, "peak_gb_s": 4800.0}
    row |= {"dram_bytes_written": 0, "sm_pct": 3.0, "launch": 0}
    (command,) = [step.command for step in suggest_commands(diagnose_rows(row)[0]) if STATED in step.tells]
    assert shlex.split(command) == ["bwprof", "diagnose", "FILE", "--bytes", "*copy*=READ,WRITTEN"]
    stated = suggest_commands(diagnose_rows(row | {"bytes_read": 10**8, "bytes_written": 0})[0])
    assert not any(STATED in step.tells for step in stated)


def test_launches_with_one_answer_stand_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.csv"
    launch = "copy(float*),{},copy,ok,0.5,88"
    rows = [launch.format(at) for at in range(3)]
    path.write_text("\n".join(["kernel,launch,case,status,time_ms,dram_pct", *rows, ""]))
    assert re.match(r"copy \(launch 0, 1,.*2\):.*88", said(capsys, path))


def test_of_many_cases_the_longest_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.csv"
    rows = [f"k{at}(),{at},k{at},ok,{1000 + at},{at / 10}" for at in range(110)]
    path.write_text("\n".join(["kernel,launch,case,status,time_ms,dram_pct", *rows, ""]))
    told = said(capsys, path).partition("\nEvidence\n")[0]
    names = re.findall(r"^k(\d+):", told, re.MULTILINE)
    assert names == [str(at) for at in range(10, 110)]
    assert "100 of 110 cases" in " ".join(told.split())
    assert len(re.findall(r"^k\d+:", said(capsys, path, "--all"), re.MULTILINE)) == 110


def test_the_callers_bytes_and_peak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.csv"
    path.write_text(ROCPROF.replace(",68.1,", ",8.1,").replace("0.0044", "60"))
    counted = 1024 * (7872.0 + 9429.2)  # bytes, in 26.326497 ms: 0.673 GB/s
    for written in (1, 8):  # of 8 million that went there
        told = said(capsys, path, "--peak", "0.7", "--bytes", f"body*=1000k,{written}M")
        assert told.startswith("bodyForce: limited by")
        assert f" {counted / (1 + written) / 1e6:.3g} times " in " ".join(told.split())
    assert {"--bytes", "body", "NAME=READ,WRITTEN"} <= words_of(refused(capsys, path, "--bytes", "body"))
    assert "--bytes a* " in refused(capsys, path, "--bytes", "a*=1,1", "--bytes", "a*=1,1")
    assert "bytes: unknown name 'copy'" in refused(capsys, path, "--bytes", "copy=1,1")
    assert "--bytes: '1.5' " in refused(capsys, path, "--bytes", "body*=1.5,1")
    assert "--peak is '0'" in refused(capsys, path, "--peak", "0")
    run = bwprof.save(bwprof.load_example("h200"), tmp_path / "h200.json")
    assert "leave it out" in refused(capsys, run, "--peak", "4800")
    assert "rows of bwprof" in refused(capsys, run, "--bytes", "a=1,1")


def test_a_stated_peak_fills_rows_without_one_alone() -> None:
    from bwprof.importers.timeline import add_peak

    nan = float("nan")
    data = pd.DataFrame(
        {
            "kernel": ["own", "none", "own share", "no rate", "no peak"],
            "dram_gb_s": [1000.0, 1000.0, 1000.0, nan, 1000.0],
            "peak_gb_s": [4000.0, nan, 4000.0, 4000.0, 0.0],
            "pct_peak": [nan, nan, 30.0, nan, nan],
        }
    )
    found = add_peak(data, 2000)
    assert found["peak_gb_s"].tolist() == [4000, 2000, 4000, 4000, 0]
    assert found["pct_peak"].fillna(-1).tolist() == [25, 50, 30, -1, -1]


def test_rows_of_a_model_stand_once_and_predicted_ones_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bwprof.save(bwprof.load_example("h200_llama"), tmp_path / "model.json")
    told = json.loads(said(capsys, path, "--json"))
    frame = bwprof.load_example("h200_llama")
    assert (frame["status"] == "predicted").sum() == 40
    assert told["without_measurement"] == len(frame) - len(told["cases"]), "predicted, and copies of a row"
    assert not any("nothing was measured" in case["answer"] for case in told["cases"])
    names = [case["case"] for case in told["cases"]]
    assert len(names) == len(set(names))


def test_kinds_of_files(tmp_path: Path) -> None:
    def kind(name: str, content: bytes | str) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return detect.detect_kind(path)

    assert kind("a.csv", ROCPROF) == "rocprof"
    assert kind("b.csv", '"Correlation_Id","Dispatch_Id","Kernel_Name","Counter_Name"\n') == "rocprof"
    assert kind("c.csv", NCU) == "ncu"
    assert kind("d.txt", "\n==WARNING== Note\n==PROF== Disconnected\n") == "ncu"
    assert kind("e.ncu-rep", b"NVR\0\1") == "ncu"
    assert kind("f.json", json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X"}]})) == "trace"
    assert kind("g.json", '[{"ph": "X", "cat": "kernel"}]') == "trace"
    assert kind("h.csv", "operation,precision,M\n") == "bwprof"
    assert kind("i.json", '{"format": "bwprof"}') == "bwprof"
    assert kind("j.csv", b"\0\1\2") == "bwprof"
    with sqlite3.connect(tmp_path / "k.db") as database:
        database.execute("CREATE TABLE a (b)")
    database.close()
    assert detect.detect_kind(tmp_path / "k.db") == "nsys"
    assert detect.detect_kind(tmp_path / "not there") == "bwprof"
    run = tmp_path / "run"
    run.mkdir()
    assert detect.detect_kind(run) == "bwprof"
    (run / "counters.csv").write_text(ROCPROF)
    assert detect.detect_kind(run) == "rocprof"


def test_a_file_of_rocprof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.csv"
    path.write_text(ROCPROF)
    told = said(capsys, path)
    assert re.match(r"bodyForce: .* arithmetic .*68\.1", told)
    assert "Next steps" not in told, "ncu knows nothing of this card"
    assert "--metrics" not in told
    assert " ".join(told.split()).count("no counter of this") == 1


def test_uncounted_bytes_get_a_rocprof_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.csv"
    path.write_text(
        '"Correlation_Id","Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value","Start_Timestamp",'
        '"End_Timestamp"\n1,1,"Agent 1","add(float*)","SQ_WAVES",16384,1000,60000\n'
    )
    told = said(capsys, path)
    assert re.match("add: .*DRAM bytes.*time", told)
    command = next(line for line in told.splitlines() if line.strip().startswith("rocprofv3 --pmc "))
    assert {"FETCH_SIZE", "WRITE_SIZE", "YOUR_PROGRAM"} <= set(shlex.split(command))
    assert "bwprof diagnose counted --peak" in told
    assert "ncu" not in told


def test_a_file_of_ncu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", "30"),
        ("gpu__time_duration.sum", "ns", "500000"),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "9"),
    ]
    lines = [f'"0","7","cpy(float *)","{name}","{unit}","{value}"' for name, unit, value in names]
    path = tmp_path / "page.csv"
    path.write_text(NCU + "\n".join(lines) + "\n")
    told = said(capsys, path)
    assert told.startswith("cpy: not limited by")
    command = next(line for line in told.splitlines() if line.strip().startswith("ncu --"))
    words = shlex.split(command)
    assert (words[words.index("--kernel-name") + 1], words[-1]) == ("cpy", "YOUR_PROGRAM")


def test_a_trace_of_pytorchs_profiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "void copy<float>(float*)", "ts": 1, "dur": 50, "pid": 0, "tid": 7}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event | {"args": {"device": 0, "stream": 7}}]}))
    told = said(capsys, path)
    assert re.match("copy<float>: .*missing: ", told)
    assert "--kernel-name copy -o profile" in told


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", "holds no"),
        ("b.csv", b"\0\1\2\3", "read are results of bwprof, and files of ncu, rocprof or rocprofv3"),
        ("c.json", '{"a": 1}', "read are results of bwprof"),
        ("d.csv", ROCPROF[:150], "line"),
        ("e.json.gz", gzip.compress(b"{}", mtime=0), "bwprof"),
    ],
    ids=["empty", "binary", "other-json", "truncated", "compressed"],
)
def test_an_unreadable_file_is_one_line_of_error(
    name: str, content: bytes | str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["diagnose", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("bwprof: error: ")
    assert "Traceback" not in told
    assert told.count("\n") == 1
    if name != "a.csv":
        assert words in told


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert "/nowhere/at/all.csv" in refused(capsys, "/nowhere/at/all.csv")


def test_names_of_others_are_no_markup_and_python_is_no_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"case": "add<float>(a*) [x](y)", "operation": "mine"}
    path = bwprof.save(pd.DataFrame([{**ROW, **named}]), tmp_path / "named.json")
    text = said(capsys, path, "--md", "-")
    assert r"* add&lt;float>(a\*) \[x\](y) fp16" in text
    assert "add<" not in text
    assert "```python\nbwprof.measure(fn" in text
    assert "```sh\nbwprof.measure" not in text
