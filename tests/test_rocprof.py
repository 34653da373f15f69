"""`bwprof.importers`: AMD's counters, from files as AMD's documentation shows them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import bwprof
from bwprof.importers.rocprof import parse_rocprof
from bwprof.importers.rocprof_session import (
    RocprofSession,
    profile_matmul_memory,
    profile_memory,
    profile_memory_detailed,
)
from bwprof.importers.timeline import add_peak

V1_IDENTITY = "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,sgpr,wave_size"
V1 = f"{V1_IDENTITY},sig,obj,VALUBusy,WriteSize,FetchSize,L2CacheHit,MemUnitStalled,DispatchNs,BeginNs,EndNs,CompleteNs"
# The worked values: 9429.1875 KiB and 7872 KiB, 26 326 497 ns.
FORCES = (
    '0,"bodyForce(Body*, float, int) [clone .kd]",0,0,0,77,77,65536,256,0,0,20,4,16,64,0x0,0x7f00,'
    "68.1476813493,7872.0000000000,9429.1875000000,96.5684331443,0.0044357832,"
    "1594244102859719,1594244111978746,1594244138305243,1594244138330792"
)
V3 = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",'
    '"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"'
)
ADD = "void add<float>(float*, float const*, int)"
AGENTS = (
    '"Node_Id","Logical_Node_Id","Agent_Type","Cpu_Cores_Count","Cu_Count","Name","Vendor_Name","Product_Name"\n'
    '0,0,"CPU",24,24,"some CPU","CPU","some CPU"\n'
    '1,1,"GPU",0,104,"gfx90a","AMD","AMD Instinct MI250X"\n'
)


def counted(dispatch: int, counter: str, value: float, *, kernel: str = ADD, pid: int = 9, ns: int = 50_000) -> str:
    """A record of rocprofv3's: a launch and one counter of it."""
    start = 3_200_098_838_431_081 + 1_000_000 * dispatch
    launched = f'{dispatch},{dispatch},"Agent 1",1,{pid},{pid},1048576,17,"{kernel}",64,512,0,8,4,16'
    return f'{launched},"{counter}",{value:.6f},{start},{start + ns}'


def written(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def one(folder: Path, **counters: float) -> dict[str, object]:
    """The row of one launch with these counters."""
    path = written(folder, "counters.csv", V3, *(counted(1, name, value) for name, value in counters.items()))
    return dict(parse_rocprof(path).iloc[0])


# ---- files ----


def test_a_file_of_version_1_gives_the_worked_values(tmp_path):
    found = parse_rocprof(written(tmp_path, "results.csv", V1, FORCES), peak_gb_s=800.0)
    row = found.iloc[0]
    assert list(found.index) == [0]
    assert (row["kernel"], row["launch"]) == ("bodyForce(Body*, float, int)", 0)
    assert (row["dram_bytes_read"], row["dram_bytes_written"]) == (9_655_488, 8_060_928)
    assert row["time_ms"] == 26.326497
    assert row["dram_gb_s"] == pytest.approx(0.673, abs=5e-4)
    assert row["l2_hit_pct"] == pytest.approx(96.57, abs=5e-3)
    assert row["mem_unit_stalled_pct"] == pytest.approx(0.0044, abs=5e-5)
    assert row["valu_busy_pct"] == pytest.approx(68.1, abs=0.05)
    assert (row["grid_blocks"], row["block_threads"], row["registers"], row["shared_bytes"]) == (256, 256, 24, 0)
    assert row["FetchSize"] == 9429.1875  # a counter stays under its own name, in its own unit
    assert "estimated" not in found
    assert found.attrs == {"source": "results.csv", "tool": "rocprof", "notes": ()}


def test_counted_bytes_are_compared_with_a_peak(tmp_path):
    frame = parse_rocprof(written(tmp_path, "results.csv", V1, FORCES))
    for results in (frame, frame.iloc[0], dict(frame.iloc[0]), [dict(frame.iloc[0])]):
        found = bwprof.BandwidthAnalysis.from_profiling_results(results, None, 800.0)
        assert (found.bytes_read, found.bytes_written, found.duration_s) == (9_655_488, 8_060_928, 0.026326497)
        assert found.bandwidth_gb_s == pytest.approx(0.673, abs=5e-4)
        assert found.rating == "poor"
        assert found.l2_hit_rate == pytest.approx(0.9657, abs=5e-5)
        assert found.stall_pct == pytest.approx(0.0044, abs=5e-5)


def test_a_rate_above_the_peak_has_a_note(tmp_path):
    """0.673 GB/s exceed a peak of 0.5, passed to the parser or added later."""
    path = written(tmp_path, "results.csv", V1, FORCES)
    for found in (parse_rocprof(path, peak_gb_s=0.5), add_peak(parse_rocprof(path), 0.5)):
        assert found["pct_peak"].iloc[0] == pytest.approx(134.6, abs=0.05)
        (note,) = (note for note in found.attrs["notes"] if "impossible" in note)
        assert note.startswith("1 launch is")
    assert parse_rocprof(path, peak_gb_s=0.675).attrs["notes"] == ()


def test_a_file_of_version_3_gives_a_row_for_each_launch(tmp_path):
    lines = [counted(1, "SQ_WAVES", 16384, ns=52_152), counted(2, "SQ_WAVES", 16384, kernel="subtract(int)", ns=50_174)]
    found = parse_rocprof(written(tmp_path, "counters.csv", V3, *lines))
    assert found["kernel"].tolist() == [ADD, "subtract(int)"]
    assert found["launch"].tolist() == [1, 2]
    assert found["SQ_WAVES"].tolist() == [16384.0, 16384.0]
    assert found["time_ms"].tolist() == [0.052152, 0.050174]
    assert found["grid_blocks"].tolist() == [16384, 16384]  # a grid is counted in work-items
    assert "dram_bytes_read" not in found
    assert "dram_bytes_written" not in found
    assert any("FETCH_SIZE" in note for note in found.attrs["notes"])


def test_instances_of_a_counter_are_summed(tmp_path):
    lines = [counted(1, "TCC_HIT", 3), counted(1, "TCC_HIT", 5), counted(1, "TCC_MISS", 2), counted(2, "TCC_HIT", 1)]
    found = parse_rocprof(written(tmp_path, "counters.csv", V3, *lines))
    assert found["TCC_HIT"].tolist() == [8.0, 1.0]
    assert found["l2_hit_pct"].tolist()[0] == 80.0
    assert np.isnan(found["l2_hit_pct"].tolist()[1])  # its misses were not counted


def test_runs_of_a_folder_are_joined_launch_by_launch(tmp_path):
    """Two runs, whose processes have other numbers; the launches' own file and the list of GPUs beside them."""
    written(
        tmp_path,
        "pmc_1/host/70_counter_collection.csv",
        V3,
        *(counted(n, "FETCH_SIZE", 10 * n, pid=70) for n in (1, 2)),
    )
    second = [counted(n, "WRITE_SIZE", n, pid=71, ns=90_000) for n in (2, 1)]
    written(tmp_path, "pmc_2/host/71_counter_collection.csv", V3, *second)
    written(tmp_path, "pmc_1/host/70_agent_info.csv", AGENTS.rstrip())
    written(
        tmp_path,
        "pmc_1/host/70_kernel_trace.csv",
        "Kind,Agent_Id,Queue_Id,Dispatch_Id,Kernel_Name,Start_Timestamp,End_Timestamp,Workgroup_Size_X,"
        "Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z",
        *(f'KERNEL_DISPATCH,"Agent 1",1,{n},"{ADD}",1,2,64,1,1,2048,512,1' for n in (1, 2)),
    )
    written(tmp_path, "pmc_1/host/70_hip_api_trace.csv", "a,b", "1,2")
    found = parse_rocprof(tmp_path)
    assert found["launch"].tolist() == [1, 2]
    assert found["dram_bytes_read"].tolist() == [10_240, 20_480]
    assert found["dram_bytes_written"].tolist() == [1024, 2048]
    assert found["time_ms"].tolist() == [0.05, 0.05]  # the first run's
    assert found["device"].tolist() == ["AMD Instinct MI250X (gfx90a)"] * 2
    assert found["multiprocessors"].tolist() == [104, 104]
    assert found["grid"].tolist() == ["32x512x1"] * 2
    assert found["block"].tolist() == ["64x1x1"] * 2


def test_runs_whose_launches_differ_are_not_joined(tmp_path):
    written(tmp_path, "pmc_1/70_counter_collection.csv", V3, counted(1, "FETCH_SIZE", 1))
    other = written(tmp_path, "pmc_2/71_counter_collection.csv", V3, counted(1, "WRITE_SIZE", 1, kernel="other"))
    with pytest.raises(ValueError, match=r"launch 1 .*void add.*\bother\b"):
        parse_rocprof(tmp_path)
    other.write_text(f"{V3}\n{counted(1, 'WRITE_SIZE', 1)}\n{counted(2, 'WRITE_SIZE', 1)}\n")
    with pytest.raises(ValueError, match="1 and 2 launches"):
        parse_rocprof(tmp_path)


def test_processes_of_one_run_are_separate(tmp_path):
    for pid in (70, 71):
        written(tmp_path, f"{pid}_counter_collection.csv", V3, counted(1, "FETCH_SIZE", pid, pid=pid))
    assert parse_rocprof(tmp_path)["FETCH_SIZE"].tolist() == [70.0, 71.0]


def test_version_2s_columns_are_read_as_well(tmp_path):
    header = (
        "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,"
        "Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,FETCH_SIZE,WRITE_SIZE"
    )
    path = written(tmp_path, "r.csv", header, '1,0,0,7,7,512,256,0,0,8,0,16,64,"f(int)",1000,3000,1,4.0,2.0')
    row = parse_rocprof(path).iloc[0]
    assert (row["dram_bytes_read"], row["dram_bytes_written"], row["time_ms"]) == (4096, 2048, 0.002)
    assert row["dram_gb_s"] == pytest.approx(3.072)


# ---- formulas ----


@pytest.mark.parametrize(
    ("counters", "read", "written_bytes"),
    [
        # MI200: 10 reads of which 4 are of 32 bytes; 7 writes of which 5 are of 64.
        (
            {"TCC_EA_RDREQ_sum": 10, "TCC_EA_RDREQ_32B_sum": 4, "TCC_EA_WRREQ_sum": 7, "TCC_EA_WRREQ_64B_sum": 5},
            4 * 32 + 6 * 64,
            5 * 64 + 2 * 32,
        ),
        # gfx906 has a second interface.
        (
            {
                **{
                    "TCC_EA_RDREQ_sum": 10,
                    "TCC_EA_RDREQ_32B_sum": 4,
                    "TCC_EA1_RDREQ_sum": 3,
                    "TCC_EA1_RDREQ_32B_sum": 1,
                },
                **{"TCC_EA_WRREQ_sum": 7, "TCC_EA_WRREQ_64B_sum": 5, "TCC_EA1_WRREQ_sum": 1},
            },
            5 * 32 + 8 * 64,
            5 * 64 + 3 * 32,
        ),
        # MI300: 3 of the 10 are of 128 bytes.
        (
            {
                **{"TCC_EA0_RDREQ_sum": 10, "TCC_EA0_RDREQ_32B_sum": 4, "TCC_BUBBLE_sum": 3},
                **{"TCC_EA0_WRREQ_sum": 7, "TCC_EA0_WRREQ_64B_sum": 7},
            },
            3 * 128 + 3 * 64 + 4 * 32,
            7 * 64,
        ),
        # MI350 counts each size.
        (
            {
                **{"TCC_EA0_RDREQ_32B_sum": 1, "TCC_EA0_RDREQ_64B_sum": 2, "TCC_EA0_RDREQ_128B_sum": 3},
                **{"TCC_EA0_WRREQ_sum": 1, "TCC_EA0_WRREQ_64B_sum": 0},
            },
            32 + 2 * 64 + 3 * 128,
            32,
        ),
        # RDNA
        (
            {
                **{f"GL2C_EA_RDREQ_{size}B_sum": 2 for size in (32, 64, 96, 128)},
                **{"GL2C_MC_WRREQ_sum": 5, "GL2C_EA_WRREQ_64B_sum": 1},
            },
            2 * (32 + 64 + 96 + 128),
            64 + 4 * 32,
        ),
    ],
    ids=["MI200", "gfx906", "MI300", "MI350", "RDNA"],
)
def test_bytes_follow_from_requests_by_their_sizes(tmp_path, counters, read, written_bytes):
    row = one(tmp_path, **counters)
    assert (row["dram_bytes_read"], row["dram_bytes_written"]) == (read, written_bytes)
    assert "estimated" not in row
    assert row["dram_gb_s"] == pytest.approx((read + written_bytes) / 50_000)


@pytest.mark.parametrize(
    ("counters", "read", "message"),
    [
        ({"TCC_EA_RDREQ_sum": 10}, 640, "TCC_EA_RDREQ x 64"),
        ({"TCC_EA0_RDREQ_sum": 10, "TCC_EA0_RDREQ_32B_sum": 4}, 512, "without TCC_BUBBLE"),
        ({"TCC_HIT_sum": 30, "TCC_MISS_sum": 10}, 1280, "TCC_MISS x 128 bytes"),
        ({"TCP_TOTAL_CACHE_ACCESSES": 40, "TCP_TOTAL_CACHE_MISSES": 10}, 640, "TCP_TOTAL_CACHE_MISSES x 64 bytes"),
    ],
)
def test_estimates_are_marked_and_written_bytes_are_never_estimated(tmp_path, counters, read, message):
    row = one(tmp_path, **counters)
    assert row["dram_bytes_read"] == read
    assert f"dram_bytes_read: {message}" in row["estimated"]
    assert "dram_bytes_written" not in row
    assert "dram_gb_s" not in row


def test_counted_bytes_replace_estimates(tmp_path):
    row = one(tmp_path, FETCH_SIZE=2, WRITE_SIZE=1, TCC_MISS_sum=10, TCC_EA_RDREQ_sum=7)
    assert (row["dram_bytes_read"], row["dram_bytes_written"]) == (2048, 1024)
    assert "estimated" not in row


def test_shares_are_at_most_100_percent(tmp_path):
    found = one(tmp_path, VALUBusy=100.3, L2CacheHit=104.0)
    assert found["valu_busy_pct"] == 100
    assert not found.get("l2_hit_pct", math.nan) >= 0


def test_hits_and_bank_conflicts_follow_from_counters(tmp_path):
    row = one(
        tmp_path,
        **{"TCC_HIT_sum": 30, "TCC_MISS_sum": 10, "SQ_LDS_BANK_CONFLICT": 5, "SQ_LDS_IDX_ACTIVE": 20},
        **{"TCP_TOTAL_CACHE_ACCESSES_sum": 40, "TCP_TCC_READ_REQ_sum": 10},
    )
    assert (row["l2_hit_pct"], row["lds_bank_conflict_pct"], row["l1_hit_pct"]) == (75.0, 25.0, 75.0)
    assert one(tmp_path, SQC_LDS_BANK_CONFLICT=1, SQC_LDS_IDX_ACTIVE=8)["lds_bank_conflict_pct"] == 12.5
    assert one(tmp_path, GL2C_HIT_sum=1, GL2C_MISS_sum=3)["l2_hit_pct"] == 25.0


# ---- commands ----


def test_a_command_of_rocprofv3_names_its_counters(tmp_path):
    session = RocprofSession(tmp_path / "out", ["FETCH_SIZE", "WRITE_SIZE"])
    assert session.build_command("./app", ["-n", "3"]) == [
        *("rocprofv3", "--pmc", "FETCH_SIZE", "WRITE_SIZE", "--kernel-trace", "--output-format", "csv"),
        *("-d", str(tmp_path / "out"), "--", "./app", "-n", "3"),
    ]
    assert RocprofSession(tmp_path / "out").build_command("a")[:4] == [
        "rocprofv3",
        "--pmc",
        "GRBM_GUI_ACTIVE",
        "FETCH_SIZE",
    ]


def test_rocprof_of_version_1_takes_its_counters_from_a_file(tmp_path):
    session = profile_memory(tmp_path / "new", version=1)
    command = session.build_command("./app", ["x"])
    results = str(tmp_path / "new" / "results.csv")
    expected = ["rocprof", "--timestamp", "on", "-i", str(tmp_path / "new" / "input.txt"), "-o", results, "./app", "x"]
    assert command == expected
    line = ["pmc", ":", "GRBM_GUI_ACTIVE", "FetchSize", "WriteSize"]
    assert (tmp_path / "new" / "input.txt").read_text() == f"{' '.join(line)}\n"
    written(tmp_path / "new", "results.csv", V1, FORCES)
    assert session.parse_results()["dram_bytes_read"].tolist() == [9_655_488]


def test_counters_are_divided_into_runs(tmp_path):
    """The L2 cache counts four at a time; counters of reads stay in one run."""
    session = profile_memory_detailed(tmp_path)
    assert len(session.passes) == 2
    assert session.passes[1] == ["TCC_HIT_sum", "TCC_MISS_sum"]
    assert {"GRBM_GUI_ACTIVE", "SQ_WAVES", "SQ_INSTS_VMEM", "SQ_LDS_BANK_CONFLICT"} < set(session.passes[0])
    assert {"TCC_EA_RDREQ_sum", "TCC_EA_RDREQ_32B_sum", "TCC_EA_WRREQ_sum"} < set(session.passes[0])
    command = session.build_command("./app")
    assert command[:3] == ["rocprofv3", "-i", str(tmp_path / "input.txt")]
    assert command[-2:] == ["--", "./app"]
    lines = (tmp_path / "input.txt").read_text().splitlines()
    assert [line.split(" ", 2)[:2] for line in lines] == [["pmc", ":"]] * 2
    written(tmp_path, "pmc_1/9_counter_collection.csv", V3, counted(1, "TCC_EA_RDREQ_sum", 1))
    assert session.parse_results()["TCC_EA_RDREQ_sum"].tolist() == [1.0]


@pytest.mark.parametrize("gfx", ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("preset", [profile_memory, profile_memory_detailed, profile_matmul_memory])
def test_presets_fit_the_gpu_and_its_runs(tmp_path, gfx, preset):
    session = preset(tmp_path, gfx=gfx)
    assert RocprofSession(tmp_path, session.counters, gfx=gfx).counters == session.counters
    for listed in session.passes:
        blocks = [name.partition("_")[0] for name in listed if name not in ("FETCH_SIZE", "WRITE_SIZE")]
        assert blocks.count("TCC") <= 4
        assert blocks.count("GL2C") <= 4
        assert blocks.count("SQ") + blocks.count("SQC") <= 8
    assert sorted(name for listed in session.passes for name in listed) == sorted(session.counters)


@pytest.mark.parametrize(
    ("counters", "gfx", "message"),
    [
        (["TCC_EA_RDREQ_sum"], "gfx942", "gfx942: .*'TCC_EA_RDREQ_sum'.*'TCC_EA0_RDREQ_sum'"),
        (["TCC_HIT"], "gfx1100", "'TCC_HIT'.*'GL2C_HIT'"),
        (["TCP_TOTAL_CACHE_MISSES"], "gfx1100", "'TCP_TOTAL_CACHE_MISSES'"),
        (["FETCH_SIZE\npmc : X"], "gfx90a", "unknown counter"),
        (["FETCH_SIZE"], "sm_90", "gfx 'sm_90'"),
    ],
)
def test_a_counter_that_the_gpu_lacks_is_refused(tmp_path, counters, gfx, message):
    with pytest.raises(ValueError, match=message):
        RocprofSession(tmp_path, counters, gfx=gfx)


def test_names_of_rocprofs_examples_are_replaced(tmp_path):
    counters = ["SQ_LDS_BANK_ACTIVE", "TCP_TOTAL_CACHE_MISSES", "TCP_TOTAL_CACHE_ACCESSES"]
    assert RocprofSession(tmp_path, counters).counters == [
        *("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE", "TCP_TCC_READ_REQ_sum", "TCP_TOTAL_CACHE_ACCESSES_sum"),
    ]
    rdna = RocprofSession(tmp_path, counters[:1], gfx="gfx1100")
    assert rdna.counters == ["SQC_LDS_BANK_CONFLICT", "SQC_LDS_IDX_ACTIVE"]
    assert RocprofSession(tmp_path, ["TCC_NEW_sum"], known=["TCC_NEW_sum"]).counters == ["TCC_NEW_sum"]


@pytest.mark.parametrize(
    ("program", "args", "options", "error"),
    [
        ("./app", "--size 4", {}, TypeError),
        ("./app", ["a\0b"], {}, ValueError),
        ("", [], {}, ValueError),
        ("-o", [], {"version": 1}, ValueError),
    ],
)
def test_bad_commands_are_refused(tmp_path, program, args, options, error):
    with pytest.raises(error):
        RocprofSession(tmp_path, **options).build_command(program, args)


def test_wrong_options_of_a_session_are_refused(tmp_path):
    for options in ({"version": 2}, {"version": True}, {"known": ["A B"]}):
        with pytest.raises(ValueError, match=r"version|known"):
            RocprofSession(tmp_path, ["FETCH_SIZE"], **options)
    assert RocprofSession("-d", ["FETCH_SIZE"]).build_command("a")[-3] == "./-d"


# ---- damage ----


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "empty"),
        (["a,b,c", "1,2,3"], "line 1: .*'a, b, c'"),
        ([V1], "no launches"),
        ([V1, "0,f", FORCES], r"line 2: .*\b2 cells\b.*\b26\b"),
        ([V1, FORCES, FORCES + ",1"], r"line 3: .*\b27 cells\b"),
        ([V1, FORCES.replace("7872.0000000000", "=1+1")], r"line 2: .*'WriteSize'.*'=1\+1'"),
        ([V1, FORCES.replace("1594244138305243", "1594244111978745")], "line 2: .*1594244111978745 ns"),
        ([V1, FORCES.replace("1594244138305243", "9" * 30)], "line 2: .*'EndNs'"),
        ([V1, FORCES.replace("1594244138305243", "9" * 5000)], "line 2: .*'EndNs'"),
        ([V1, FORCES.replace(" [clone", '" [clone')], "no CSV"),
        ([V1.replace("VALUBusy", "scratch")], "'scratch'"),
        ([AGENTS.rstrip()], "no launches"),
    ],
)
def test_errors_name_the_damaged_line(tmp_path, lines, message):
    with pytest.raises(ValueError, match=rf"damaged\.csv.*{message}"):
        parse_rocprof(written(tmp_path, "damaged.csv", *lines))


def test_whole_launches_of_a_cut_file_are_read(tmp_path):
    path = written(tmp_path, "r.csv", V1, FORCES, FORCES.replace("0,", "1,", 1))
    text = path.read_text()
    path.write_text(text[:-100])
    found = parse_rocprof(path)
    assert len(found) == 1
    (note,) = found.attrs["notes"]
    assert note.startswith("line 3 ")
    path.write_text(text[:-1])
    found = parse_rocprof(path)
    assert len(found) == 2
    (note,) = found.attrs["notes"]
    assert "last line" in note


def test_impossible_figures_are_left_out(tmp_path):
    lines = [counted(n, "FETCH_SIZE", value) for n, value in enumerate((1, -1, np.nan, np.inf, 1e300, 1e17))]
    found = parse_rocprof(written(tmp_path, "r.csv", V3, *lines))
    assert found["dram_bytes_read"].isna().tolist() == [False, True, True, True, True, True]
    assert any(note.startswith("3 figures ") for note in found.attrs["notes"])


def test_counters_never_replace_columns(tmp_path):
    found = parse_rocprof(written(tmp_path, "r.csv", V3, counted(1, "time_ms", 7), counted(1, "kernel", 1)))
    assert found["time_ms"].tolist() == [0.05]
    assert found["kernel"].tolist() == [ADD]
    assert any("kernel, time_ms" in note for note in found.attrs["notes"])


def test_pipes_binaries_and_missing_files_are_refused(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="no regular file"):
        parse_rocprof(tmp_path / "pipe.csv")
    (tmp_path / "binary.csv").write_bytes(b"\x7fELF\0\0\1")
    with pytest.raises(ValueError, match="no text"):
        parse_rocprof(tmp_path / "binary.csv")
    with pytest.raises(OSError, match=r"missing\.csv"):
        parse_rocprof(tmp_path / "missing.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no file below it"):
        parse_rocprof(tmp_path / "empty")
    for peak in (-1, 0):
        with pytest.raises(ValueError, match=f"peak_gb_s is {peak}"):
            parse_rocprof(tmp_path / "binary.csv", peak_gb_s=peak)
