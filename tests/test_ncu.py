"""Nsight Compute's pages as frames: a recorded copy of 1 GiB on an H200, checked by hand, and small pages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from profiled import DETAILS, FIRST, RAW, WHO, details_page, quoted, raw_page, recorded

from bwprof.cli.commands.importers import launch_table
from bwprof.importers.ncu.parse import parse_ncu
from bwprof.importers.reader import has_decimal_comma, parse_number, parse_unit, shorten_name

COPY = "cpy(const float4 *, float4 *, unsigned long)"


def parsed(folder: Path, text: str | bytes) -> Any:
    path = folder / "page.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return parse_ncu(path)


def test_the_raw_page_of_a_copy() -> None:
    """The page has bytes, time and sizes, from which rates follow: 1504 bytes a cycle at 3.1992 GHz are the peak."""
    found = parse_ncu(RAW)
    assert len(found) == 2
    row = found.iloc[0]
    assert row["dram_bytes_read"] + row["dram_bytes_written"] == 2_124_247_808
    assert row["time_ms"] == 0.501504
    assert row["dram_gb_s"] == pytest.approx(2_124_247_808 / 501_504, rel=1e-9) == pytest.approx(4235.75, abs=0.01)
    assert row["peak_gb_s"] == pytest.approx(1504 * 3.19921941467, rel=1e-9) == pytest.approx(4811.6, abs=0.1)
    assert row["pct_peak"] == pytest.approx(88.03, abs=0.01)
    assert (row["dram_pct"], row["sm_pct"], row["tensor_pct"], row["fma_pct"]) == (88.03, 9.70, 0, 1.62)
    assert (row["occupancy_pct"], row["theoretical_occupancy_pct"], row["occupancy_limiter"]) == (77.89, 100, "warps")
    assert (row["registers"], row["block_threads"], row["grid_blocks"], row["multiprocessors"]) == (
        16,
        256,
        262_144,
        132,
    )
    assert (row["waves"], row["shared_bytes"], row["active_threads"]) == (248.24, 0, 32)
    assert (row["sectors_per_load"], row["sectors_per_store"]) == (33_554_432 / 2_097_152, 16)
    assert (row["load_efficiency_pct"], row["store_efficiency_pct"]) == (100, 100)
    assert (row["bank_conflicts"], row["shared_wavefronts"], row["local_bytes"], row["flops"]) == (0, 0, 0, 0)
    assert (row["l1_hit_pct"], row["l2_hit_pct"], row["l2_bytes"]) == (0, 51.33, 32 * 103_903_555)
    assert row["peak_tflops"] == pytest.approx(33_792 * 1.97682221877 / 1e3, rel=1e-9)  # FP32: 2 * 128 a cycle * 132
    assert row["stall_reasons"].startswith("long_scoreboard=131.36;wait=2.46;drain=2.02;short_scoreboard=1.83;selected")
    assert "lg_throttle" not in row["stall_reasons"]
    texts = ("kernel", "case", "device", "compute_capability", "grid", "block", "status")
    assert [row[name] for name in texts] == [
        COPY,
        "cpy",
        "NVIDIA H200",
        "9.0",
        "262144x1x1",
        "256x1x1",
        "ok",
    ]
    assert [row[name] for name in ("launch", "device_index", "context", "stream", "pid")] == [0, 0, 1, 7, 562]
    assert found["launch"].tolist() == [0, 1]
    assert found["time_ms"].tolist() == [0.501504, 0.498336]


def test_other_metrics_keep_their_names_and_have_base_units() -> None:
    found = parse_ncu(RAW)
    row = found.iloc[1]
    assert row["gpu__time_duration.sum"] == pytest.approx(498_336e-9, rel=1e-15)
    assert row["profiler__pmsampler_interval_time"] == 1500e-9
    assert row["launch__func_cache_config"] == "CachePreferNone"
    assert math.isnan(row["derived_tempMetric4"])  # nan
    assert math.isnan(row["sass__inst_executed_register_spilling_mem_local"])  # no data
    assert math.isnan(row["FBSP.TriageCompute.dramc__throughput.avg.pct_of_peak_sustained_elapsed"])  # empty
    units = found.attrs["units"]
    assert units["gpu__time_duration.sum"] == "s"
    assert units["dram__bytes_read.sum"] == "byte"
    assert units["dram__bytes.sum.per_second"] == "byte/s"
    assert found.attrs["source"] == str(RAW)
    assert (found.attrs["tool"], found.attrs["page"], found.attrs["notes"]) == ("ncu", "raw", ())


def test_the_details_page_of_a_copy() -> None:
    found = parse_ncu(DETAILS)
    assert found["launch"].tolist() == [0, 1]
    row = found.iloc[0]
    assert (row["dram_bytes_read"], row["dram_bytes_written"]) == (1_073_787_648, 1_050_131_200)
    assert (row["time_ms"], row["dram_pct"], row["sm_pct"], row["pid"]) == (0.498272, 88.59, 9.67, 682)
    assert row["dram_gb_s"] == pytest.approx((1_073_787_648 + 1_050_131_200) / 498_272, rel=1e-9)
    assert row["pct_peak"] == 88.59
    assert "peak_gb_s" not in found.columns
    assert found.attrs["page"] == "details"
    assert any("pct_peak" in note for note in found.attrs["notes"])


@pytest.mark.parametrize(
    ("written", "value", "base"),
    [
        ("byte", 3, "byte"),
        ("Kbyte", 3e3, "byte"),  # 49 152 bytes are 49.15 Kbyte to ncu: powers of ten
        ("Mbyte", 3e6, "byte"),
        ("Gbyte", 3e9, "byte"),
        ("Tbyte", 3e12, "byte"),
        ("ns", 3e-9, "s"),
        ("us", 3e-6, "s"),
        ("ms", 3e-3, "s"),
        ("s", 3, "s"),
        ("nsecond", 3e-9, "s"),
        ("usecond", 3e-6, "s"),
        ("msecond", 3e-3, "s"),
        ("second", 3, "s"),
        ("hz", 3, "hz"),
        ("Khz", 3e3, "hz"),
        ("Mhz", 3e6, "hz"),
        ("Ghz", 3e9, "hz"),
        ("cycle/second", 3, "cycle/s"),
        ("cycle/nsecond", 3e9, "cycle/s"),
        ("byte/second", 3, "byte/s"),
        ("Gbyte/s", 3e9, "byte/s"),
        ("Kbyte/block", 3e3, "byte/block"),
        ("%", 3, "%"),
        ("register/thread", 3, "register/thread"),
        ("inst/cycle", 3, "inst/cycle"),
        ("", 3, ""),
        (" weird / unit ", 3, "weird/unit"),
    ],
)
def test_units(written: str, value: float, base: str) -> None:
    found = parse_unit(written)
    assert found.of(3) == pytest.approx(value, rel=1e-15)
    assert found.base == ("hz" if base == "cycle/s" else base)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1,073,741,824", 1_073_741_824),
        ("12.50", 12.5),
        ("-3", -3),
        ("1.5e3", 1500),
        ("46137344 (1; 2; 3)", 46_137_344),
        ("7 (IADD: 3; LDG: 4)", 7),
        ("1'234.5", 1234.5),
        ("1\u202f234", 1234),
        *((nothing, math.nan) for nothing in ("", "n/a", "N/A", "nan", "(!) n/a", "no data", "inf", "1e400")),
        *((text, None) for text in ("CachePreferNone", "(1; 2)", "1,23", "1 2", "0x10", "1_000", "=1+1")),
    ],
)
def test_numbers(written: str, value: float | None) -> None:
    found = parse_number(written)
    assert found == value or (found is not None and value is not None and math.isnan(found) and math.isnan(value))


def test_a_decimal_comma_is_detected() -> None:
    assert has_decimal_comma(["1.073.741.824,00", "9"])
    assert has_decimal_comma(["88,59", "1.234"])
    assert not has_decimal_comma(["1,234", "12"])
    assert not has_decimal_comma(["1,234.5", "88,59"])


@pytest.mark.parametrize("page_kind", ["raw", "details"])
def test_a_page_of_another_locale(tmp_path: Path, page_kind: str) -> None:
    """German: 1.073.794.048 and 88,03."""
    text = (RAW if page_kind == "raw" else DETAILS).read_text()
    before, _, table = text.partition('"ID"')
    lines = f'"ID"{table}'.splitlines()
    swapped = []
    for number_of, line in enumerate(lines):
        cells = line[1:-1].split('","')
        first = len(WHO) if page_kind == "raw" else len(cells) - 1
        if number_of >= (2 if page_kind == "raw" else 1):
            cells = [*cells[:first], *(_german(cell) for cell in cells[first:])]
        swapped.append('"' + '","'.join(cells) + '"')
    found = parsed(tmp_path, before + "\n".join(swapped) + "\n")
    plain = parse_ncu(RAW if page_kind == "raw" else DETAILS)
    for name in ("time_ms", "dram_bytes_read", "dram_gb_s", "pct_peak", "sm_pct"):
        assert found[name].tolist() == plain[name].tolist()


def _german(cell: str) -> str:
    try:
        value = float(cell)
    except ValueError:
        return cell
    places = len(cell.partition(".")[2])
    return cell if math.isnan(value) else f"{value:,.{places}f}".translate(str.maketrans(",.", ".,"))


def test_separators_of_thousands_are_removed(tmp_path: Path) -> None:
    before, rows = recorded()
    for row in rows[2:]:
        row[11:] = [f"{int(cell):,}" if cell.isdigit() else cell for cell in row[11:]]
    found, plain = parsed(tmp_path, before + quoted(rows)), parse_ncu(RAW)
    assert found.drop(columns="grid").equals(plain.drop(columns="grid"))


def test_scaled_units_are_the_same_figures(tmp_path: Path) -> None:
    """--print-units auto: each launch in the unit that suits it."""
    one = [
        ("Command line profiler metrics", "dram__bytes_read.sum", "Gbyte", "1.07"),
        ("Command line profiler metrics", "dram__bytes_write.sum", "Kbyte", "1,050.5"),
        ("Command line profiler metrics", "gpu__time_duration.sum", "us", "498.27"),
    ]
    other = [("Command line profiler metrics", "gpu__time_duration.sum", "ms", "1.5")]
    text = details_page(one) + details_page(other, ("1", *FIRST[1:])).split("\n", 1)[1]
    found = parsed(tmp_path, text)
    assert found["dram_bytes_read"].tolist()[0] == 1_070_000_000
    assert found["dram_bytes_written"].tolist()[0] == 1_050_500
    assert found["time_ms"].tolist() == [0.49827, 1.5]


def test_the_details_page_with_sections(tmp_path: Path) -> None:
    """Labels instead of names; the same one in two sections, with two units; rules."""
    lines = [
        ("GPU Speed Of Light Throughput", "DRAM Frequency", "Ghz", "3.2"),
        ("GPU Speed Of Light Throughput", "SM Frequency", "Mhz", "1,500"),
        ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "45.7"),
        ("GPU Speed Of Light Throughput", "DRAM Throughput", "%", "44.5"),
        ("GPU Speed Of Light Throughput", "Duration", "us", "117.98"),
        ("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "0.42"),
        ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "202.5"),
        ("Memory Workload Analysis", "L2 Hit Rate", "%", "99.76"),
        ("Launch Statistics", "Registers Per Thread", "register/thread", "40"),
        ("Launch Statistics", "Static Shared Memory Per Block", "Kbyte/block", "49.15"),
        ("Launch Statistics", "Dynamic Shared Memory Per Block", "byte/block", "0"),
        ("Launch Statistics", "Waves Per SM", "", "2.37"),
        ("Occupancy", "Block Limit Registers", "block", "2"),
        ("Occupancy", "Block Limit Shared Mem", "block", "3"),
        ("Occupancy", "Block Limit Warps", "block", "8"),
        ("Occupancy", "Theoretical Occupancy", "%", "25"),
        ("Occupancy", "Achieved Occupancy", "%", "22.01"),
        ("Occupancy", "Achieved Occupancy", "%", "23"),
    ]
    rule = quoted([[*FIRST, "SpeedOfLight", "", "", "", "SOLBottleneck", "OPT"]])
    row = parsed(tmp_path, details_page(lines) + rule).iloc[0]
    found = parse_ncu(tmp_path / "page.csv")
    assert (row["mem_clock_mhz"], row["sm_clock_mhz"], row["time_ms"]) == (3200, 1500, 0.11798)
    assert (row["dram_pct"], row["dram_gb_s"], row["sm_pct"], row["l2_hit_pct"]) == (44.5, 202.5, 0.42, 99.76)
    assert (row["registers"], row["shared_bytes"], row["waves"]) == (40, 49_150, 2.37)
    assert (row["occupancy_limiter"], row["occupancy_pct"], row["theoretical_occupancy_pct"]) == (
        "registers",
        22.01,
        25,
    )
    assert (row["Memory Throughput"], row["Memory Throughput (byte/s)"]) == (45.7, 202.5e9)
    assert (row["grid"], row["grid_blocks"]) == ("128x2x1", 256)
    notes = " ".join(found.attrs["notes"])
    assert "rule" in notes
    assert "has already" in notes  # the second Achieved Occupancy


def test_a_sections_own_table_is_left_out(tmp_path: Path) -> None:
    """``--print-details all`` prints one of GPUs and their NUMA nodes between the metrics."""
    page = details_page([("S", "gpu__time_duration.sum", "ns", "5000"), ("S", "dram__bytes_read.sum", "byte", "7")])
    lines = page.splitlines()
    table = ['"GPU ID","GPU Name","NUMA ID by CPU Affinity"', '"0","NVIDIA H200","0"']
    found = parsed(tmp_path, "\n".join([*lines[:2], *table, *lines[2:]]) + "\n")
    assert found[["time_ms", "dram_bytes_read"]].iloc[0].tolist() == [0.005, 7]
    (note,) = found.attrs["notes"]
    assert "table" in note
    assert note.endswith("2 times")
    with pytest.raises(ValueError, match="line 2: 4 cells"):  # a launch's that was cut off
        parsed(tmp_path, "\n".join([lines[0], '"0","682","n","h"', *lines[1:]]) + "\n")


def test_names_beside_labels(tmp_path: Path) -> None:
    lines = [("Section", "Duration (gpu__time_duration.sum)", "ns", "5000")]
    assert parsed(tmp_path, details_page(lines)).iloc[0]["time_ms"] == 0.005


@pytest.mark.parametrize(
    ("metrics", "column", "value"),
    [
        ([("dram__bytes_op_read.sum", "Mbyte", "1.5")], "dram_bytes_read", 1_500_000),  # GB20x
        ([("dram__bytes_op_write.sum", "byte", "64")], "dram_bytes_written", 64),
        ([("dram__sectors_read.sum", "sector", "2")], "dram_bytes_read", 64),
        ([("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%", "70")], "dram_pct", 70),
        ([("sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", "%", "40")], "tensor_pct", 40),
        ([("gpc__cycles_elapsed.avg.per_second", "cycle/usecond", "1410")], "sm_clock_mhz", 1410),
        ([("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", "%", "25")], "load_efficiency_pct", 25),
        (
            [("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio", "byte/sector", "8")],
            "store_efficiency_pct",
            25,
        ),
        (
            [
                ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector", "320"),
                ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "request", "10"),
            ],
            "sectors_per_load",
            32,
        ),
        (
            [
                ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "", "30"),
                ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", "", "1"),
            ],
            "bank_conflicts",
            31,
        ),
        (
            [
                ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "sector", "3"),
                ("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", "sector", "1"),
            ],
            "local_bytes",
            128,
        ),
        ([("lts__t_bytes.sum", "Kbyte", "2")], "l2_bytes", 2000),
        ([("gpu__time_duration.sum", "msecond", "2")], "time_ms", 2),
        ([("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "inst", "2.5")], "stall_reasons", None),
        (
            [
                ("device__attribute_global_memory_bus_width", "", "384"),
                ("device__attribute_max_mem_frequency_khz", "", "10501000"),
            ],
            "peak_gb_s",
            1008.096,  # RTX 4090: 2 * 10.501 GHz * 384 bits / 8
        ),
    ],
)
def test_other_names(tmp_path: Path, metrics: list[tuple[str, str, str]], column: str, value: float | None) -> None:
    found = parsed(tmp_path, raw_page(metrics)).iloc[0][column]
    assert found == ("barrier=2.50" if value is None else pytest.approx(value, rel=1e-12))


def test_flops_by_instructions(tmp_path: Path) -> None:
    """Additions and multiplications count one FLOP, fused ones two, and on half precision for each of a pair. With busy
    tensor cores the FLOPs are unknown.
    """
    counts = [
        (f"smsp__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum", "inst", str(count))
        for kind, counted in (("f", (10, 20, 30)), ("h", (1, 2, 3)), ("d", (100, 0, 0)))
        for op, count in zip(("add", "mul", "fma"), counted, strict=True)
    ]
    assert parsed(tmp_path, raw_page(counts)).iloc[0]["flops"] == 10 + 20 + 60 + 2 * (1 + 2 + 6) + 100
    busy = ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%", "50")
    assert "flops" not in parsed(tmp_path, raw_page([*counts, busy])).dropna(axis=1).columns
    assert "flops" not in parsed(tmp_path, raw_page(counts[1:])).columns


def test_flops_of_a_rate(tmp_path: Path) -> None:
    """ncu's rates are of all multiprocessors' mean cycles. An H200's full report, of a product of 2048 x 2048 matrices:
    17 179 869 184 FLOPs, 407194.06 a cycle, 42190.86 cycles on average and 42825 at most.
    """
    assert math.isclose(2 * 2048**3 / 407194.06, 42190.86, rel_tol=1e-6)
    rates = [
        (f"smsp__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum.per_cycle_elapsed", "inst/cycle", rate)
        for kind in "fhd"
        for op, rate in (("add", "0"), ("mul", "0"), ("fma", "407194.06" if kind == "f" else "0"))
    ]
    cycles = [("smsp__cycles_elapsed.max", "cycle", "42825"), ("smsp__cycles_elapsed.avg", "cycle", "42190.86")]
    found = parsed(tmp_path, raw_page([*rates, *cycles]))
    assert found["flops"][0] == pytest.approx(2 * 2048**3 * 2, rel=1e-6)
    assert "estimated" not in found.columns


@pytest.mark.parametrize(("kinds", "peak"), [("f", 65.2), ("d", 32.6), ("h", 130.4), ("fd", math.nan), ("", 65.2)])
def test_the_peak_depends_on_the_kind_of_instruction(tmp_path: Path, kinds: str, peak: float) -> None:
    """132 multiprocessors of 128, 64 and 2 x 128 lanes at 1.93 GHz, twice as many FLOPs; a mixture has no peak."""
    derived = "derived__sm__sass_thread_inst_executed_op_{}fma_pred_on_x{}"
    widths = [
        (derived.format(*of), "thread", str(132 * lanes * 2))
        for of, lanes in ((("f", 2), 128), (("d", 2), 64), (("h", 4), 256))
    ]
    counts = [
        (f"smsp__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum", "inst", "5" if kind in kinds else "0")
        for kind in "fhd"
        for op in ("add", "mul", "fma")
    ]
    idle = ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%", "0")
    clock = ("gpc__cycles_elapsed.avg.per_second", "hz", "1930000000")
    found = parsed(tmp_path, raw_page([*widths, *counts, idle, clock]))["peak_tflops"].to_numpy("float64")
    assert found[0] == pytest.approx(peak, rel=1e-3, nan_ok=True)


def test_flops_on_half_precision_are_marked_as_estimates(tmp_path: Path) -> None:
    counts = [
        (f"smsp__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum", "inst", "7" if kind == "h" else "0")
        for kind in "fhd"
        for op in ("add", "mul", "fma")
    ]
    assert parsed(tmp_path, raw_page(counts))["estimated"][0].startswith("flops: ")


def test_no_loads_have_no_efficiency(tmp_path: Path) -> None:
    """A kernel without loads has 0 sectors a request, as in ncu's own ratio, and no efficiency."""
    path = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
    counts = [
        (path.format(what, op), "", "0" if op == "ld" else "8")
        for what in ("sectors", "requests")
        for op in ("ld", "st")
    ]
    per_sector = "smsp__sass_average_data_bytes_per_sector_mem_global_op_"
    shares = [(f"{per_sector}ld.pct", "%", "0"), (f"{per_sector}st.pct", "%", "50")]
    found = parsed(tmp_path, raw_page([*counts, *shares]))
    assert found[["sectors_per_load", "sectors_per_store", "store_efficiency_pct"]].iloc[0].tolist() == [0, 1, 50]
    assert math.isnan(found["load_efficiency_pct"][0])
    table = launch_table([found.iloc[0].to_dict()])
    assert table is not None
    figures = {line[0]: line[2] for line in table.lines}
    assert [figures["sectors_per_store"], figures["store_efficiency_pct"]] == ["1", "50"]
    assert "load_efficiency_pct" not in figures


def test_shares_are_at_most_100_percent(tmp_path: Path) -> None:
    """Hits and accesses are counted in different passes: an H200 had 100.02 %. ncu's own column keeps its value."""
    of_l2, of_l1 = "lts__t_sector_hit_rate.pct", "l1tex__t_sector_hit_rate.pct"
    found = parsed(tmp_path, raw_page([(of_l2, "%", "100.02"), (of_l1, "%", "140")]))
    assert (found["l2_hit_pct"][0], found[of_l2][0], found[of_l1][0]) == (100, 100.02, 140)
    assert math.isnan(found["l1_hit_pct"][0])
    (note,) = found.attrs["notes"]
    assert "1 share" in note


def test_no_rate_follows_from_impossible_figures(tmp_path: Path) -> None:
    moved = [("dram__bytes_read.sum", "byte", "-1000"), ("dram__bytes_write.sum", "byte", "2000")]
    found = parsed(tmp_path, raw_page([("gpu__time_duration.sum", "ns", "5000"), *moved]))
    assert math.isnan(found["dram_gb_s"][0])
    found = parsed(tmp_path, raw_page([("gpu__time_duration.sum", "", "5000"), moved[1]]))
    assert "time_ms" not in found.columns  # seconds? cycles?
    assert found["dram_bytes_written"].tolist() == [2000]


def test_rounded_figures_have_a_note(tmp_path: Path) -> None:
    for written, has_note in (("Gbyte", True), ("byte", False)):
        notes = parsed(tmp_path, raw_page([("dram__bytes_read.sum", written, "1.07")])).attrs["notes"]
        assert any("--print-units base" in note for note in notes) is has_note


def test_several_launches_processes_and_devices(tmp_path: Path) -> None:
    kernel = 'void ns::k<"a, b", (int)4>(const float4 *, char const*) const'
    other = ("1", "99", "m", "host", kernel, "2", "13", "(32, 2, 1)", "(1, 1, 1)", "3", "9.0", "7000")
    page = raw_page([("gpu__time_duration.sum", "ns", "5000")], other)
    found = parsed(tmp_path, page)
    assert found["kernel"].tolist() == ["cpy(int)", kernel]
    assert found["pid"].tolist() == [682, 99]
    assert found["device_index"].tolist() == [0, 3]
    assert found["device"].tolist() == ["cuda:0", "cuda:3"]
    assert found["block_threads"].tolist() == [256, 64]
    assert found["time_ms"].tolist() == [0.005, 0.007]
    lines = [("S", "gpu__time_duration.sum", "ns", "5000")]
    same_id = details_page(lines) + quoted([[*FIRST[:1], "700", *FIRST[2:], *lines[0], "", ""]])
    assert parsed(tmp_path, same_id)["pid"].tolist() == [682, 700]


def test_nvtx_ranges_and_instances(tmp_path: Path) -> None:
    nvtx = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    header = [*WHO, nvtx, "gpu__time_duration.sum", "sass__inst_executed_per_opcode", "a b"]
    cell = "two\nlines, and a comma"
    text = quoted(
        [
            header,
            [""] * (len(WHO) + 1) + ["ns", "", ""],
            [*FIRST, '1  "bwprof:decode, gemm:none"', "5000", "12 (IADD: 5; LDG: 7)", cell],
        ]
    )
    row = parsed(tmp_path, text).iloc[0]
    assert row[nvtx] == '1  "bwprof:decode, gemm:none"'
    assert (row["time_ms"], row["sass__inst_executed_per_opcode"]) == (0.005, 12)
    assert row["a b"] == cell.replace("\n", " ")


def test_ranges_instead_of_kernels(tmp_path: Path) -> None:
    header = ["ID", "Process ID", "Range Name", "gpu__time_duration.sum"]
    text = quoted([header, ["", "", "", "us"], ["0", "1", "range", "7"]])
    row = parsed(tmp_path, text).iloc[0]
    assert (row["kernel"], row["case"], row["time_ms"]) == ("range", "range", 0.007)


def test_lines_between_launches_are_left_out(tmp_path: Path) -> None:
    """ncu's log, the program's output, a second table behind the first, another line end."""
    before, rows = recorded()
    lines = quoted(rows).splitlines()
    talk = 'step 1, loss "0.5\n==PROF== Profiling "cpy" - 2: 0%....50%....100%\n\n'
    text = "\r\n".join([before, lines[0], lines[1], lines[2], talk, lines[3], "", lines[0], lines[1], lines[3]])
    found = parsed(tmp_path, text + "\r\n")
    assert found["time_ms"].tolist() == [0.501504, 0.498336, 0.498336]
    assert found["launch"].tolist() == [0, 1, 1]
    assert any("program's own output" in note for note in found.attrs["notes"])


def test_a_page_saved_by_another_program(tmp_path: Path) -> None:
    """Without quotation marks, without the row of units, in UTF-16, with a byte-order mark."""
    text = "ID,Process ID,Kernel Name,gpu__time_duration.sum,dram__bytes_read.sum\n0,7,k,5000,640\n1,7,k,6000,\n"
    found = parsed(tmp_path, text)
    assert found["time_ms"].tolist() == [0.005, 0.006]  # ncu's base unit is ns
    assert found["dram_bytes_read"].isna().tolist() == [False, True]
    assert any("no row of units" in note for note in found.attrs["notes"])
    for encoding in ("utf-16", "utf-8-sig"):
        assert parsed(tmp_path, RAW.read_text().encode(encoding)).equals(parse_ncu(RAW))


def test_a_summary_of_kernels(tmp_path: Path) -> None:
    header = ["Process ID", "Kernel Name", "Block Size", "Grid Size", "Invocations", "Section Name", "Metric Name"]
    header += ["Metric Unit", "Minimum", "Maximum", "Average"]
    who = ["1", "gemm", "(128, 1, 1)", "(96, 1, 1)", "3", "Command line profiler metrics"]
    text = quoted([header, [*who, "dram__bytes_read.sum", "byte", "1,000.00", "2,000.00", "1,500.00"]])
    found = parsed(tmp_path, text)
    assert found.iloc[0]["dram_bytes_read"] == 1500
    assert found.iloc[0]["Invocations"] == "3"
    assert found.attrs["page"] == "summary"
    assert any("average" in note for note in found.attrs["notes"])


TEXT_PAGE = """\
==PROF== Connected to process 1433 (/tmp/smoke)
[1433] smoke@127.0.0.1
  void k<float, (int)4>(const T1 *, unsigned long) (128, 1, 1)x(32, 2, 1), Context 1, Stream 7, Device 2, CC 8.6
    Section: GPU Speed Of Light Throughput
    ----------------------- ------------- ------------
    Metric Name               Metric Unit Metric Value
    ----------------------- ------------- ------------
    DRAM Frequency          cycle/nsecond         6.71
    SM Frequency                      Ghz         1.38
    Elapsed Cycles                  cycle   56,344,784
    DRAM Throughput                     %         1.42
    Duration                           us         1.89
    SM Active Cycles                cycle    23,123.58
    ----------------------- ------------- ------------

    OPT   This kernel grid is too small to fill the available resources on this device, resulting in only 0.0 full
          waves across all SMs. ----- ----- -----

    Section: Launch Statistics
    ---------------------------------------------------------------------- --------------- ----------------------------
    Registers Per Thread                                                   register/thread                           16
    Function Cache Configuration                                                                        CachePreferNone
    ---------------------------------------------------------------------- --------------- ----------------------------

  other(int), 2021-May-04 12:00:00, Context 1, Stream 8
    Section: Command line profiler metrics
    ---------------------------------------------------------------------- --------------- ----------------------------
    dram__bytes_read.sum                                                             Mbyte                        12.50
    ---------------------------------------------------------------------- --------------- ----------------------------
"""


def test_a_page_as_text(tmp_path: Path) -> None:
    found = parsed(tmp_path, TEXT_PAGE)
    row, other = found.iloc[0], found.iloc[1]
    name = TEXT_PAGE.splitlines()[2].strip().partition(" (128")[0]
    assert (row["kernel"], row["case"]) == (name, "k<float, 4>")
    assert name.startswith("void k<float, (int)4>(const")
    assert (row["grid"], row["block"], row["block_threads"], row["device"]) == ("128x1x1", "32x2x1", 64, "cuda:2")
    assert (row["mem_clock_mhz"], row["sm_clock_mhz"], row["time_ms"]) == (6710, 1380, 0.00189)
    assert (row["dram_pct"], row["registers"], row["Elapsed Cycles"]) == (1.42, 16, 56_344_784)
    assert (row["SM Active Cycles"], row["Function Cache Configuration"]) == (23_123.58, "CachePreferNone")
    assert (row["pid"], row["compute_capability"]) == (1433, "8.6")
    assert (other["kernel"], other["stream"], other["dram_bytes_read"]) == ("other(int)", 8, 12_500_000)
    assert any("rounded" in note for note in found.attrs["notes"])


VECTORIZED = "vectorized_elementwise_kernel"


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("void ns::copy<float4, (int)4>(const float4 *, unsigned long)", "ns::copy<float4, (int)4>"),
        ("void at::native::(anonymous namespace)::k<float>(int)", "k<float>"),
        (
            "void at::<unnamed>::k<a::b<int>::[lambda() (instance 1)]::operator ()() const>(T1)",
            "k<a::b<int>::[lambda() (instance 1)]::operator ()() const>",
        ),
        ("void f<(anonymous namespace)::g>(int)", "f<g>"),
        ("bodyForce(Body*, float, int) [clone .kd]", "bodyForce"),
        ("std::enable_if<(1 > 0), void>::type f<int>(int)", "f<int>"),
        ("void big<" + "float, " * 30 + "int>(int)", "big<...>"),
        ("((((", "(((("),
        ("x" * 100, "x" * 61 + "..."),
        (
            f"void at::native::{VECTORIZED}<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
            f"{VECTORIZED}<4, FillFunctor<float>, ...>",
        ),
        (
            f"void {VECTORIZED}<4, CUDAFunctor_add<float>, array<char *, 3>>(int)",
            f"{VECTORIZED}<4, CUDAFunctor_add<float>, ...>",
        ),
        (
            f"void {VECTORIZED}<4, BinaryFunctor<float, float, float, MulFunctor<float>>, array<char *, 3>>(int)",
            f"{VECTORIZED}<BinaryFunctor<MulFunctor>, ...>",
        ),
        (f"void {VECTORIZED}<4, at::native::Half, std::array<x, 1>>(int)", f"{VECTORIZED}<4, Half, array<x, 1>>"),
        (f"void k<int<{', '.join(['1'] * 60)}>>(int)", "k<int>"),  # no C++
        ("void a_namespace_of_a_long_name::and_another_one::copy<unsigned int, (int)4>(int)", "copy<unsigned int, 4>"),
    ],
)
def test_short_names(kernel: str, short: str) -> None:
    assert shorten_name(kernel) == short
