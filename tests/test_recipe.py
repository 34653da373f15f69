"""The example workflow: its commands parse, and its steps run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from commands import environment
from past import timed, write

import bwprof
from bwprof import environment as names_of
from bwprof.cli import main
from bwprof.records.source import load_source

WORKFLOW = Path(bwprof.__file__).parent / "data" / "examples" / "bandwidth.yml"
TINY = """
precisions = ["fp32"]
[[case]]
name = "decode"
operation = "gemm"
params = { M = 1, N = 64, K = 64 }
cache = "hot"
"""


def steps() -> dict[str, str]:
    """Return each step's shell by the step's name: of `run: one line`, or of a block."""
    found: dict[str, str] = {}
    name = ""
    lines = WORKFLOW.read_text().splitlines()
    for number, line in enumerate(lines):
        if match := re.fullmatch(r"      - name: (.*)", line):
            name = match[1]
        elif match := re.fullmatch(r"        run: (.*)", line):
            rest = lines[number + 1 :]
            block = rest[: next((n for n, one in enumerate(rest) if not one.startswith(" " * 10)), len(rest))]
            found[name] = textwrap.dedent("\n".join(block)) if match[1] == "|" else match[1]
    return found


def commands() -> list[list[str]]:
    """Return the arguments of every `bwprof`, variables as words."""
    lines = [line for shell in steps().values() for line in shell.splitlines() if line.startswith("bwprof ")]
    return [shlex.split(line)[1:] for line in lines]


def test_the_workflow_is_yaml() -> None:
    """PyYAML reads it if it is installed."""
    text = WORKFLOW.read_text()
    assert "\t" not in text
    assert all((len(line) - len(line.lstrip())) % 2 == 0 for line in text.splitlines())
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    document = yaml.safe_load(text)
    shells = {
        step["name"]: step["run"].rstrip("\n") for step in document["jobs"]["bandwidth"]["steps"] if "run" in step
    }
    assert shells == steps()


def test_the_workflow_measures_compares_and_uploads() -> None:
    assert [words[:2] for words in commands()] == [
        ["sweep", "--suite"],
        ["compare", "baseline:main"],
        ["baseline", "save"],
    ]
    assert [
        word for words in commands() for word in words if word in ("--proof-bundle", "--md", "--github", "--fail-on")
    ]
    names = list(steps())
    assert names.index("Measure") < names.index("Compare") < names.index("Make the baseline")


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[0])
def test_commands_of_the_workflow_parse(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown options are the first error; --help replaces the run."""
    words = ["5" if word == "$PROCESSES" else word for word in words]
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    for option in (word for word in words if word.startswith("--")):
        assert option in shown, option
    assert main([*words, "--no-such-option"]) == 2
    said = capsys.readouterr().err
    assert "--no-such-option" in said
    assert not re.search(r"arguments: .*--(?!no-such-option)", said)


def shell(folder: Path, name: str, variables: dict[str, str]) -> tuple[int, str]:
    """Run a step as GitHub does; return its exit code and output."""
    process = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps()[name]],
        cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "Traceback" not in process.stderr, process.stderr
    return process.returncode, process.stdout + process.stderr


def test_the_workflow_installs_the_package_of_its_variable(tmp_path: Path) -> None:
    """pip gets the value of BWPROF with its spaces, and later steps find the command."""
    (line,) = re.findall(r"(?m)^  BWPROF: (\S+)", WORKFLOW.read_text())
    assert line == "./bwprof", "there is no package of that name to be had"
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "python3"
    tool.write_text(
        "#!/bin/sh\nmkdir -p .venv/bin\n"
        "printf '#!/bin/sh\\necho \"$#:$2\"\\n' > .venv/bin/pip\nchmod +x .venv/bin/pip\n"
    )
    tool.chmod(0o755)
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "BWPROF": "./my bwprof", "GITHUB_PATH": str(tmp_path / "path")}
    assert shell(tmp_path, "Install", variables) == (0, "2:./my bwprof\n")
    assert (tmp_path / "path").read_text() == f"{tmp_path}/.venv/bin\n"


def test_steps_of_the_workflow_run(tmp_path: Path) -> None:
    """A tiny suite runs on the CPU: a pull request is compared with main's baseline."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "bwprof"
    ours = "import sys; from bwprof.cli import main; sys.exit(main())"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{ours}" "$@"\n')
    command.chmod(0o755)
    (tmp_path / "tiny.toml").write_text(TINY)
    summary = tmp_path / "summary.md"
    variables = environment(tmp_path) | {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "SUITE": "tiny.toml",
        "DEVICE": "cpu",
        "PROCESSES": "2",
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    summary.touch()
    code, said = shell(tmp_path, "Make the baseline", variables)
    told = [line for line in said.splitlines() if "disturbed (noisy)" not in line]  # the machine may be busy
    assert (code, len(told)) == (0, 1)
    assert told[0].endswith(" .bwprof/baselines/main.json")
    code, said = shell(tmp_path, "Measure", variables)
    assert code == 0, said
    (run,) = (tmp_path / "r").iterdir()
    assert (tmp_path / ".test-results" / "bandwidth" / run.name / "bandwidth_report.json").is_file()
    code, said = shell(tmp_path, "Compare", variables)
    assert code in (0, 1, 3), said  # a busy machine may well be slower, or disturb all there is to judge
    assert "decode" in summary.read_text()
    assert len(bwprof.history(tmp_path / "r")) == 1
    code, said = shell(tmp_path, "Make the baseline", variables)  # main goes on
    assert code == 0, said


def test_a_folder_of_one_run_is_that_run(tmp_path: Path) -> None:
    write(tmp_path / "r", 1, [timed("a", "fp32", 1.0)])
    assert [row["case"] for row in load_source(tmp_path / "r").rows] == ["a"]
    write(tmp_path / "r", 2, [timed("a", "fp32", 1.0)])
    with pytest.raises(ValueError, match=r"r holds 2 runs:.*run-02"):
        load_source(tmp_path / "r")
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="holds neither"):
        load_source(tmp_path / "none")


@pytest.mark.parametrize(
    "command",
    [
        ["report", "r"],
        ["report", "r", "-o", "page.html"],
        ["plot", "r", "-o", "x.svg"],
        ["analyze", "r"],
        ["diagnose", "r"],
        ["compare", "r", "r"],
        ["show", "r"],
        ["baseline", "save", "x", "r"],
    ],
    ids=" ".join,
)
def test_every_command_takes_an_output_folder(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of `--output r` stands for its only run; of several runs one is named."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "r", 1, [timed("a", "fp32", 1.0)])
    (tmp_path / "r" / ".hidden").mkdir()
    assert main(command) == 0, capsys.readouterr().err
    if "page.html" in command:
        assert "run-01" in (tmp_path / "page.html").read_text().partition("<main>")[0]  # not r
    write(tmp_path / "r", 2, [timed("a", "fp32", 1.0)])
    assert main([*command, *(["--force"] if {"-o", "save"} & {*command} else [])]) == 2
    err = capsys.readouterr().err
    assert "r holds 2 runs" in err
    assert "r/run-02" in err


def test_a_run_records_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_of, "git_commit", lambda: "0123abc")
    data = bwprof.sweep("gemm", N=16, K=16, precision="fp32", device="cpu", cache="hot", roofs=False, max_seconds=0.0)
    (tmp_path / "run").mkdir()
    bwprof.save(data, tmp_path / "run" / "results.json")
    assert bwprof.history(tmp_path)["git_commit"].tolist() == ["0123abc"]
