"""The commands bwprof and bwprof info, and bwprof.info()."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bwprof
from bwprof import _core, hardware
from bwprof.cli import main
from bwprof.info import device_lines

PACKAGE = Path(bwprof.__file__).parent


def test_the_console_script_and_info(capsys: pytest.CaptureFixture[str]) -> None:
    from bwprof.cli import main as bwprof_main

    assert bwprof_main(["--version"]) == 0
    assert capsys.readouterr().out == f"bwprof {bwprof.__version__}\n"
    assert bwprof_main(["--list"]) == bwprof_main(["sweep", "--list"]) == 0
    out = capsys.readouterr().out
    assert out[: len(out) // 2] == out[len(out) // 2 :]
    assert bwprof_main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == bwprof.__version__
    assert [device["backend"] for device in found["devices"]][-1] == "cpu"
    assert bwprof_main(["info"]) == 0
    assert "cpu:0" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["sweep", "report", "plot", "selftest", "info"])
def test_a_module_is_the_subcommand_of_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bwprof.cli import main as bwprof_main

    shown = []
    assert bwprof_main([name, "--help"]) == 0
    shown.append(capsys.readouterr())
    own = PACKAGE / name / "__main__.py" if (PACKAGE / name).is_dir() else PACKAGE / f"{name}.py"
    for script, arguments in ((own, ["--help"]), (PACKAGE / "__main__.py", [name, "--help"])):
        monkeypatch.setattr("sys.argv", ["anything", *arguments])
        with pytest.raises(SystemExit) as ended:  # by its path: pytest's own loader knows no run_module
            runpy.run_path(str(script), run_name="__main__")
        assert ended.value.code == 0
        shown.append(capsys.readouterr())
    assert shown[0].out.startswith(f"usage: bwprof {name} ")
    assert shown == [shown[0]] * 3


def test_the_command_columns_lists_all_or_named_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """All columns are in the schema's order."""
    from bwprof.cli import main as bwprof_main
    from bwprof.results import schema

    assert bwprof_main(["columns"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    named = [line.split("|")[0].strip() for line in lines]
    assert [name for name in named if name] == list(schema.column_names())
    assert bwprof_main(["columns", "throttle", "time_ms"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["throttle", "time_ms"]
    assert "median time" in lines[-1]
    assert bwprof_main(["columns", "tim_ms"]) == 2
    assert "did you mean 'time_ms', " in capsys.readouterr().err


def test_info_is_a_dict() -> None:
    found = bwprof.info()
    assert {backend["name"] for backend in found["backends"]} == {"cuda", "cpu"}
    cpu = found["devices"][-1]
    assert cpu["facts"]["memory_bytes"] > 0
    assert cpu["libraries"] == []
    assert cpu["works"]["counters"].startswith("not probed")
    assert cpu["works"]["timer monotonic"].startswith("ok")


def test_the_error_of_an_unbuilt_checkout_names_the_build_command(tmp_path: Path) -> None:
    (tmp_path / "bwprof").mkdir()
    for name in ("__init__.py", "__init__.pyi"):
        shutil.copy(Path(bwprof.__file__).with_name(name), tmp_path / "bwprof")
    for words in (["-c", "import bwprof"], ["-m", "bwprof.sweep"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert all(word in last for word in ("python3 setup.py build_ext --inplace", "BWPROF_CUDA=0", "Linux"))


def test_an_amd_gpu_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver's device, or a card of the vendor 0x1002, shows the GPU; a card that is measured hides it."""
    monkeypatch.setattr(hardware, "_GPU_SIGNS", ())
    monkeypatch.setattr(hardware, "_DRM", str(tmp_path))
    monkeypatch.setattr(hardware, "_AMD_DRIVER", str(tmp_path / "kfd"))
    card = tmp_path / "card0" / "device"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    rows = {
        row["name"]: row | {"devices": row["devices"][:1] if row["name"] == "cpu" else []} for row in _core.backends()
    }
    monkeypatch.setattr(_core, "backends", lambda: list(rows.values()))
    assert hardware.choose_device().warning == ""
    (card / "vendor").write_text("0x1002\n")
    assert "rocprof FILE" in hardware.choose_device().warning
    (card / "vendor").unlink()
    (tmp_path / "kfd").touch()
    assert "CPU backend works here" in hardware.choose_device().warning
    assert main(["info"]) == 0
    assert "AMD GPU" in capsys.readouterr().out
    rows["cuda"] |= {"built": True, "devices": [{"index": 0, "name": "one"}]}
    assert hardware.choose_device().warning == ""


def test_info_probes_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    from bwprof.cli.commands.describe import main_info as info_main

    assert info_main(["--probe", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["devices"][-1]["works"]["counters"].startswith("the cpu backend")
    assert not [said for device in found["devices"] for said in device["works"].values() if "not probed" in said]


def test_info_lists_libraries_with_path_version_and_note() -> None:
    found = {"name": "CUPTI", "purpose": "counters", "path": "/opt/libcupti.so.13", "version": "13.0", "note": ""}
    missing = found | {"name": "NVML", "path": "", "version": "", "note": "not found"}
    device = bwprof.info()["devices"]["cpu:0"] | {"libraries": [found, missing]}
    lines = dict(device_lines(device))
    assert lines["library CUPTI"] == "13.0 /opt/libcupti.so.13 (counters)"
    assert lines["library NVML"] == "none (counters): not found"


@pytest.mark.cuda
def test_info_on_a_gpu() -> None:
    """Every library has a path and a version, or a reason."""
    (device,) = [device for device in bwprof.info()["devices"] if device["backend"] == "cuda"][:1]
    assert [library["name"] for library in device["libraries"]] == ["cuBLASLt", "CUPTI", "NVML"]
    for library in device["libraries"]:
        assert (library["path"] and re.match(r"\d+\.\d+|API \d+", library["version"])) or library["note"], library
