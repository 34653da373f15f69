"""The command for tests: as a process with code planted into it and its child, or quickly, in this process."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import bwprof
from bwprof.cli import runner as sweep_command
from bwprof.cli.commands.sweep import main_sweep
from bwprof.plot import bars
from bwprof.records.regression import compare
from bwprof.runs import executors, loop

# Hot: to find a tiny case's inputs cold, a whole cache has to be read before every sample.
TINY = ["--backend", "cpu", "-p", "N=16", "-p", "K=16", "--cache", "hot"]

BRIEF_SECONDS = 0.01
GIVE_UP_SECONDS = 300  # on a process that hangs: with others busy, a quick one may take a minute
# Planted through sitecustomize: it runs before anything of ours in the command and in its child, and changes modules as
# soon as they are there, so that none is loaded for its sake. What such a process imports is no garbage.
WHEN_LOADED = """
import gc, sys
from importlib.machinery import PathFinder
gc.disable()
changes = {}
class Changing:
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path) if name in changes else None
        if spec is not None:
            load, change = spec.loader.exec_module, changes[name]
            spec.loader.exec_module = lambda module: (load(module), change(module))
        return spec
sys.meta_path.insert(0, Changing())
"""
BRIEFLY = f"""
def change(module):
    module.LocalExecutor.obtain_roofs = lambda self, wanted, deadline: None
changes["bwprof.runs.executors"] = change
def change(module):
    module.DEFAULT_CASE_SECONDS = {BRIEF_SECONDS}
changes["bwprof.runs.loop"] = change
"""
# A picture takes longer than the rest of a tiny run: those are drawn that a test is about.
NO_PICTURE = """
def change(module):
    module._draw = lambda *_: None
changes["bwprof.cli.runner"] = change
"""
DRAW = bars.save
# Of `bwprof sweep`, where it is not the child that a test is about: starting one takes as long as the rest.
IN_ONE = """
from bwprof.cli import runner as run
from bwprof.runs import executors
run.ChildExecutor = lambda backend, index, _interrupts, **_options: executors.LocalExecutor(backend, index)
"""
PLANT = """
import os, signal, time
from bwprof.measuring import operation as measuring
real = measuring.measure
def planted(device, spec, context, **options):
    {body}
    return real(device, spec, context, **options)
measuring.measure = planted
"""


def environment(folder: Path, plant: str = "", *, briefly: bool = True, draws: bool = False) -> dict[str, str]:
    """The environment of a command with code planted into it and its child, by way of a folder in `folder`."""
    planted = folder / "planted"
    planted.mkdir(exist_ok=True)
    code = textwrap.dedent(f"{WHEN_LOADED}{BRIEFLY if briefly else ''}{'' if draws else NO_PICTURE}{plant}")
    # Python goes on after an exception in this module: what a test plants would be missing.
    end = "except Exception as error:\n    raise SystemExit(f'planted: {error!r}')\n"
    (planted / "sitecustomize.py").write_text(f"try:\n{textwrap.indent(code, '    ')}\n{end}")
    source = str(Path(bwprof.__file__).parent.parent)
    given = [path for path in (os.environ.get("PYTHONPATH"),) if path]  # where packages may be, too
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(planted), source, *given]), "COLUMNS": "120"}


def command(
    *arguments: str, folder: Path, plant: str = "", draws: bool = False, **options: Any
) -> subprocess.Popen[str]:
    """The command as a process of its own, in `folder`, with code planted into it and its child."""
    return subprocess.Popen(
        [sys.executable, "-m", "bwprof.sweep", *arguments],
        cwd=folder,
        env=environment(folder, plant, draws=draws),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def finished(*arguments: str, folder: Path, plant: str = "", **options: Any) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    process = command(*arguments, folder=folder, plant=plant, **options)
    out, err = process.communicate(timeout=GIVE_UP_SECONDS)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def _executor(backend: str, index: int, _interrupts: object, **_options: object) -> executors.LocalExecutor:
    """Runs a command's cases in this process."""
    return executors.LocalExecutor(backend, index)


class Here:
    """The command in this process and in a folder of its own."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], command: Callable[[Sequence[str]], int] = main_sweep
    ) -> None:
        self._capsys = capsys
        self._command = command

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._capsys.readouterr()
        code = self._command(arguments)
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err


def make_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases of a command take no longer than they must, have no roofs and no picture, and run in this process."""
    monkeypatch.setattr(sweep_command, "ChildExecutor", _executor)
    monkeypatch.setattr(compare, "ChildExecutor", _executor)
    monkeypatch.setattr(executors.LocalExecutor, "obtain_roofs", lambda _self, _wanted, _deadline: None)
    monkeypatch.setattr(loop, "DEFAULT_CASE_SECONDS", BRIEF_SECONDS)
    monkeypatch.setattr("bwprof.plot.bars.save", lambda *_: None)


def run_folder(folder: Path) -> Path:
    """The one run's."""
    (found,) = (folder / "bwprof-results").iterdir()
    return found


def csv_rows(text: str) -> list[dict[str, str]]:
    """The rows of a CSV's text."""
    return list(csv.DictReader(io.StringIO(text)))


def plant_in_child(monkeypatch: pytest.MonkeyPatch, folder: Path, plant: str = "") -> None:
    """Cases of a command are brief, and run in a real child process with code planted into it alone."""
    monkeypatch.setenv("PYTHONPATH", environment(folder, plant)["PYTHONPATH"])
    monkeypatch.setattr(loop, "DEFAULT_CASE_SECONDS", BRIEF_SECONDS)
