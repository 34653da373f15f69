"""`bwprof ncu compare` and `ncu_compare`: pairs of launches, changes, launches of one side alone, files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from profiled import FIRST, RAW, raw_page

from bwprof.cli import main
from bwprof.importers.detect import load
from bwprof.importers.frames import to_json
from bwprof.importers.ncu.compare import ncu_compare

LAUNCH: dict[str, Any] = {"kernel": "void copy<float>(float*)", "case": "copy<float>", "launch": 0, "time_ms": 0.5}


def frame(*launches: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([LAUNCH | {"launch": at} | launch for at, launch in enumerate(launches)])


def saved(path: Path, *launches: dict[str, Any]) -> Path:
    path.write_text(to_json(frame(*launches)))
    return path


def message(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["ncu", "compare", *map(str, arguments)]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["ncu", "compare", *map(str, arguments)]) == 2
    return capsys.readouterr().err


def cell(text: str, heading: str) -> list[str]:
    """The cells of a line of the table."""
    line = next(line for line in text.splitlines() if line.startswith(heading))
    return [part.strip() for part in line.split("|")[1:]]


def test_two_pages_of_a_kernel_are_compared_figure_by_figure() -> None:
    one = [("gpu__time_duration.sum", "ns", "1,000"), ("dram__bytes_read.sum", "Kbyte", "8")]
    stalls = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    both = [(stalls.format("long_scoreboard"), "inst", "3"), (stalls.format("barrier"), "inst", "1")]
    old, new = load_page([*one, *both]), load_page([("gpu__time_duration.sum", "us", "0.8"), *both[:1]])
    found = ncu_compare(old, new)
    assert found["pair"].unique().tolist() == [0]
    by_figure = found.set_index("figure")
    time = by_figure.loc["time_ms"]
    assert (time["base"], time["new"], time["unit"]) == (0.001, 0.0008, "ms")
    assert time["ratio"] == pytest.approx(0.8)
    assert time["difference"] == pytest.approx(-0.0002)
    assert by_figure.loc["dram_bytes_read", "base"] == 8000
    assert math.isnan(by_figure.loc["dram_bytes_read", "new"])
    assert by_figure.loc["stall long_scoreboard", ["base", "new", "difference"]].tolist() == [75, 100, 25]
    assert by_figure.loc["stall barrier", ["base", "new", "unit"]].tolist() == [25, 0, "%"]
    (note,) = found.attrs["notes"]
    assert note.startswith("new ")
    assert "dram_bytes_read" in note


def load_page(metrics: list[tuple[str, str, str]]) -> pd.DataFrame:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.csv"
        path.write_text(raw_page(metrics, who=FIRST))
        return load(path)


def test_launches_are_paired_by_name_and_order() -> None:
    other, third = {"kernel": "fill()", "case": "fill"}, {"kernel": "scan()", "case": "scan"}
    base = frame({}, other, {"time_ms": 2.0}, {"time_ms": 3.0}, {"time_ms": 4.0})
    new = frame(third, {"time_ms": 1.0}, third, {"time_ms": 8.0})
    found = ncu_compare(base, new)
    times = found[found["figure"] == "time_ms"]
    assert times[["base_launch", "new_launch", "base", "new"]].values.tolist() == [[0, 1, 0.5, 1.0], [2, 3, 2.0, 8.0]]
    alone = found[found["side"] != "both"]
    assert alone[["case", "side", "figure", "base", "new"]].values.tolist() == [
        ["copy<float>", "only_in_base", "launches", 2, 0],
        ["fill", "only_in_base", "launches", 1, 0],
        ["scan", "only_in_new", "launches", 0, 2],
    ]


def test_two_kernels_of_different_names_are_compared_but_not_more() -> None:
    renamed = {"kernel": "copy_v2(float*)", "case": "copy_v2", "time_ms": 0.25}
    found = ncu_compare(frame({}), frame(renamed))
    assert found.set_index("figure").loc["time_ms", "ratio"] == 0.5
    assert "copy<float> and copy_v2" in found.attrs["notes"][0]
    with pytest.raises(ValueError, match=r"copy<float>, fill.*copy_v2"):
        ncu_compare(frame({}, {"kernel": "fill()", "case": "fill"}), frame(renamed))


def test_notes_name_differences_of_the_sides() -> None:
    base = frame({"device": "NVIDIA H200", "sm_clock_mhz": 1980.0})
    slower = frame({"device": "NVIDIA H100", "sm_clock_mhz": 1800.0})
    devices, clocks = ncu_compare(base, slower).attrs["notes"]
    assert "NVIDIA H200" in devices
    assert "NVIDIA H100" in devices
    assert "clocks" in clocks
    assert "10 %" in clocks
    unnamed = frame({"device": "cuda:0", "sm_clock_mhz": 1990.0})
    assert ncu_compare(base, unnamed).attrs["notes"] == ()


def test_inputs_without_launches_are_refused(tmp_path: Path) -> None:
    import bwprof

    with pytest.raises(ValueError, match=r"^new .*\bkernel"):
        ncu_compare(frame({}), bwprof.load_example("h200"))
    with pytest.raises(ValueError, match=r"^base .*time line"):
        ncu_compare(frame({"count": 3}), frame({}))
    with pytest.raises(TypeError, match=r"^base is 3\b"):
        ncu_compare(3, frame({}))  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        ncu_compare(tmp_path / "nowhere.csv", frame({}))


def test_the_command_prints_the_change_of_each_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: Callable[..., None]
) -> None:
    figures = {
        "dram_bytes_read": 1 << 20,
        "occupancy_pct": 50.0,
        "registers": 40,
        "bank_conflicts": 0,
        "block_threads": 256,
        "stall_reasons": "long_scoreboard=9;wait=1;selected=1",
    }
    base = saved(tmp_path / "base.json", figures)
    changed = {"time_ms": 0.4, "registers": 80, "occupancy_pct": 62.5, "bank_conflicts": 7, "stall_reasons": "wait=1"}
    new = saved(tmp_path / "new.json", figures | changed)
    text = message(capsys, base, new)
    snapshot(text, "changes")
    assert cell(text, "time_ms") == ["ms", "0.5", "0.4", "-20.0 %"]
    assert cell(text, "dram_bytes_read") == ["B", "1 MiB", "1 MiB", "="]
    assert cell(text, "occupancy_pct") == ["%", "50", "62.5", "+12.5 points"]
    assert cell(text, "registers") == ["registers", "40", "80", "2 x"]
    assert cell(text, "bank_conflicts")[1:] == ["0", "7", "from none"]
    assert cell(text, "stall long_scoreboard") == ["%", "90", "0", "-90.0 points"]
    assert "block_threads" not in text
    assert "--all" in text
    assert max(map(len, text.partition("\nNotes")[0].splitlines())) <= 80
    assert cell(message(capsys, base, new, "--all"), "block_threads") == ["threads", "256", "256", "="]
    assert "1.25 times as long" in message(capsys, new, base)
    assert "the same\n" in message(capsys, base, base)


def test_many_launches_have_a_line_each_of_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bwprof.text.terminal.PLAIN_WIDTH", 80)
    long = "a_kernel_whose_name_is_longer_than_anything<" + "float, " * 60 + ">"
    figures = {
        "kernel": f"void {long}(int)",
        "case": long,
        "dram_gb_s": 4000.0,
        "pct_peak": 88.0,
        "occupancy_pct": 77.0,
    }
    base = saved(tmp_path / "base.json", *(figures | {"time_ms": 0.1 * at} for at in range(1, 7)))
    new = saved(tmp_path / "new.json", *(figures | {"time_ms": 0.05 * at} for at in range(1, 6)))
    text = message(capsys, base, new)
    first, _ = text.split("\n", 1)
    assert re.findall(r"[\d.]+", first) == ["5", "1.5", "0.75", "2"]
    assert max(map(len, text.splitlines()[:9])) <= 80
    assert cell(text, "4      ")[1:4] == ["0.5", "0.25", "-50.0 %"]
    assert re.search(r"base\.json:a_kernel_[^,]+<float,float,[^|]*\.\.\.,1launch", "".join(text.split()))


def test_the_command_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = saved(tmp_path / "base.json", {"case": "=1+1"}), saved(tmp_path / "new.json", {"time_ms": 1.0})
    table, document = tmp_path / "a.csv", tmp_path / "a.json"
    text = message(capsys, base, new, "--csv", table, "--json", document, "--md", "-")
    assert text.startswith(f"# {base} and {new}\n")
    assert "\n## =1+1" in text
    (row,) = (line for line in text.splitlines() if "time_ms" in line)
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["time_ms", "ms", "0.5", "1", "2 x"]
    found = pd.read_csv(table)
    assert found[["case", "figure", "base", "new"]].values.tolist() == [["'=1+1", "time_ms", 0.5, 1.0]]
    stored = json.loads(document.read_text())
    assert (stored["base"], stored["rows"][0]["ratio"]) == (str(base), 2.0)
    assert base.name in refused(capsys, base, new, "--json", base, "--force")
    assert table.name in refused(capsys, base, new, "--csv", table)
    assert document.name in refused(capsys, document, new)
    assert "--kernel gemm" in refused(capsys, base, new, "--kernel", "gemm")
    assert message(capsys, base, new, "--kernel", "copy").startswith("0.5 ms")


def test_ncu_has_the_other_commands_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ncu", "diagnose", str(RAW)]) == 0
    text = capsys.readouterr().out
    assert main(["diagnose", str(RAW)]) == 0
    assert capsys.readouterr().out == text
    assert main(["ncu", str(RAW)]) == 2
    err = capsys.readouterr().err
    assert {"show,", "diagnose"} <= set(err.split())


def test_names_with_and_without_namespaces_are_equal() -> None:
    """ncu's pages leave out some, reports none."""
    page = "void kernel<4, BinaryFunctor<float, binary_internal::MulFunctor<float>>, array<char *, 3>>(int, T2)"
    whole = (
        "void at::native::kernel<(int)4, at::native::BinaryFunctor<float, at::native::binary_internal::"
        "MulFunctor<float>>, std::array<char *, (unsigned long)3>>(int, T2)"
    )
    base = pd.DataFrame({"kernel": [page, "other"], "launch": [0, 1], "time_ms": [0.5, 0.1]})
    found = ncu_compare(base, base.assign(kernel=[whole, "third"]))
    assert found[found["side"] == "both"]["kernel"].tolist() == [page]


def test_kernels_of_different_namespaces_are_different() -> None:
    base = pd.DataFrame({"kernel": ["void a::copy(int)", "void b::copy(int)"], "launch": [0, 1], "time_ms": [1.0, 9.0]})
    swapped = base.assign(kernel=base["kernel"].to_list()[::-1], time_ms=[9.0, 1.0])
    assert ncu_compare(base, swapped)["ratio"].tolist() == [1.0, 1.0]
    page = base.assign(kernel="void copy(int)")  # which of them it is nothing tells but their order
    for found in (ncu_compare(base, page), ncu_compare(page, base)):
        assert found["ratio"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"a::copy.*c::copy"):
        ncu_compare(base.iloc[:1], base.assign(kernel=["void c::copy(int)", "void other(int)"]))


def test_a_kernel_is_also_found_by_its_short_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, kernel = tmp_path / "page.csv", "void ns::copy<float4, (int)4>(int)"
    page.write_text(raw_page([("gpu__time_duration.sum", "ns", "5000")], who=[*FIRST[:4], kernel, *FIRST[5:]]))
    for name in ("ns::copy<float4, (int)4>", "copy<float4, 4>"):
        assert main(["ncu", "show", str(page), "--kernel", name]) == 0
        assert f"launch 0: {kernel}" in capsys.readouterr().out
