"""What bwprof tells of itself: operations, devices and facts that show themselves, and names that can be found."""

from __future__ import annotations

import copy
import json
import pickle
import re
from pathlib import Path

import pytest

import bwprof
from bwprof import _core, hardware
from bwprof.results.json_file import to_json_value


def test_operations_are_a_list_with_names() -> None:
    found = bwprof.operations()
    assert found == _core.operations()
    assert [operation["name"] for operation in found] == [operation["name"] for operation in _core.operations()]
    assert found["gemm"] == next(operation for operation in _core.operations() if operation["name"] == "gemm")
    assert (found[0], found[-1], found[:2]) == (_core.operations()[0], _core.operations()[-1], _core.operations()[:2])
    with pytest.raises(KeyError, match=r"'gem'.*'gemm'"):
        _ = found["gem"]
    lines = repr(found).splitlines()
    assert lines[0].split() == ["operation", "parameters", "precisions", "what", "it", "does"]
    assert [line.split()[0] for line in lines[1:]] == [operation["name"] for operation in found]
    frame = found.frame()
    assert frame["operation"].tolist() == [operation["name"] for operation in found]
    assert frame.set_index("operation").loc["gemm", "parameters"] == "M, N, K, beta"
    assert "<th>operation</th>" in found._repr_html_()
    assert "<td>gemm</td>" in found._repr_html_()


def test_names_are_in_a_list_that_finds_them() -> None:
    operations = bwprof.operations()
    assert "gemm" in operations
    assert "gem" not in operations
    assert operations[0] in operations
    assert {} not in operations
    assert "cpu" in bwprof.devices()


def test_devices_are_found_by_the_names_that_device_takes() -> None:
    found = bwprof.devices()
    assert list(found) == [dict(device) for device in found]
    cpu = found["cpu"]
    assert found["cpu:0"] is cpu
    assert hardware.choose_device(device="cpu").name == cpu["name"]
    assert repr(found).splitlines()[0].split() == ["device", "name"]
    assert f"cpu:0   {cpu['name']}" in re.sub(r"(cpu:0) +", r"\1   ", repr(found))
    with pytest.raises(KeyError, match=r"'cpu:7'.*'cpu:0'"):
        _ = found["cpu:7"]
    assert repr(hardware.Devices()) == "no device"


@pytest.mark.parametrize("way", [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))])
def test_copies_keep_their_type(way: object) -> None:
    for found in (bwprof.operations(), bwprof.devices()):
        again = way(found)  # type: ignore[operator]
        assert (type(again), again) == (type(found), found)


def test_info_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    from bwprof.cli.commands.describe import main_info

    found = bwprof.info()
    assert found["devices"]["cpu:0"]["facts"]["name"] == found["devices"][-1]["facts"]["name"]
    shown = repr(found)
    assert shown.startswith(f"bwprof {bwprof.__version__}\n")
    assert "\n\ncpu:0\n" in shown
    assert main_info([]) == 0
    printed = capsys.readouterr().out
    names = [line.split("|")[0].strip() for line in printed.splitlines() if "|" in line]
    assert [name for name in names if name and name not in shown] == []
    assert "<caption>cpu:0</caption>" in found._repr_html_()
    assert json.loads(json.dumps(to_json_value(found)))["version"] == bwprof.__version__
    assert repr(type(found)(a=1)) == "{'a': 1}"


def test_roofs_have_a_repr() -> None:
    point = bwprof.roofs.model.RoofPoint("stream_copy", 0.5, 1 << 30, (1 << 30) / 40e9)
    made = bwprof.Roofs("CPU", "", "", "", 0.0, (point,), measured="2026-01-01")
    assert re.match(r"<bwprof\.Roofs of CPU:.*40.*2026-01-01>", repr(made))
    assert "no streams" in repr(bwprof.Roofs("", "", "", "", 0.0, ()))


def test_errors_have_one_base() -> None:
    for name in bwprof.errors.__all__:
        assert issubclass(getattr(bwprof.errors, name), bwprof.errors.BwprofError)


def test_dir_shows_what_the_readme_tells_people_to_use(source_tree: Path) -> None:
    pages = ("README.md", "notebooks/guide.md", "notebooks/method.md")
    text = "".join((source_tree / page).read_text() for page in pages)
    told = set(re.findall(r"(?<!-[mp] )(?<![\w./-])bwprof\.([A-Za-z_]+)", text))
    assert {"measure", "Case", "columns", "frame", "Row", "Profiler"} <= told
    assert told - {"h", "hpp"} <= set(dir(bwprof))  # which are the C library's headers
    assert len(set(dir(bwprof))) == len(dir(bwprof))
    for name in dir(bwprof):
        assert getattr(bwprof, name) is not None
