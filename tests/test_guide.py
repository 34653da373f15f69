"""The guide's recipes: their commands run, and their output is what the commands print today."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import make_brief
from recipes import GUIDE, Block, Recipe, fit_output, read_recipes

import bwprof
from bwprof.cli import COMMANDS
from bwprof.cli import main as bwprof_command

TEXT = GUIDE.read_text(encoding="utf-8")
RECIPES = read_recipes(TEXT)
NEEDS = re.compile(r"# needs (a|an|ncu|nsys|PyTorch)\b")
DESCRIBES = {"--dry-run", "--list"}  # such a command measures nothing

# Options and sizes that keep a recipe short in a test.
BRIEF = {
    "ab": ["--max-seconds", "0.5", "--device", "cpu"],
    "ablation": ["--max-seconds", "0.05", "--no-roofs", "--device", "cpu"],
    "compare": ["--no-confirm"],
    "sweep": ["--device", "cpu"],
}
SMALL = {'roofs="auto"': "roofs=False", "(4096, 4096)": "(64, 64)", "empty(4096": "empty(64"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the recipes name."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copy(Path(__file__).parent / "data" / "profilers" / "ncu_raw.csv", folder / "raw.csv")
    run = bwprof.load("h200")
    run.attrs.clear()
    later = slow_down(run, "kv_gather").assign(run_id="later", process="later")
    bwprof.save(later, folder / "later.json")
    for gpu in range(4):
        rows = slow_down(run, "kv_") if gpu == 2 else run
        bwprof.save(rows.assign(run_id=f"gpu{gpu}", device_uuid=f"GPU-{gpu}"), folder / f"gpu{gpu}.json")
    for name, rows in (("first", run), ("second", later.assign(driver="590.10"))):
        (folder / "runs" / name).mkdir(parents=True)
        bwprof.save(rows, folder / "runs" / name / "results.json")
    return folder


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder with those files."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    make_brief(monkeypatch)
    return tmp_path


def cells(text: str) -> list[str]:
    """Return the words of a table."""
    return re.split(r"[\s|]+", text)


def slow_down(run: Any, cases: str) -> Any:
    """Return the run with 8 % more time in the cases whose names begin so."""
    slower = run.copy()
    slower.loc[slower["case"].str.startswith(cases), ["time_ms", "time_ms_lo", "time_ms_hi"]] *= 1.08
    return slower


def split_command(line: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a shell command sets, and bwprof's arguments: none if it does not call bwprof."""
    words = shlex.split(line, comments=True)
    variables = {}
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    if words[0] == "bwprof":
        return variables, words[1:]
    for place, word in enumerate(words):
        if word.startswith("bwprof.") and words[place - 1] == "-m":
            module = word.removeprefix("bwprof.")
            return variables, [module if module in COMMANDS else word, *words[place + 1 :]]
    return variables, []


def run_bwprof(arguments: list[str]) -> int:
    """Run a command, or a module as `python -m` does, in this process."""
    name, *options = arguments
    if name.startswith("bwprof."):
        return importlib.import_module(f"{name}.__main__").main(options)
    return bwprof_command(arguments)


class ParsedError(BaseException):
    """Ends a command once its arguments are parsed; no command catches it."""


def check_arguments(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the arguments, and run nothing."""

    def end_after(parse: Any) -> Any:
        def parse_and_end(*words: Any, **options: Any) -> None:
            parse(*words, **options)
            raise ParsedError

        return parse_and_end

    with monkeypatch.context() as patch:
        for name in ("parse_args", "parse_intermixed_args"):
            patch.setattr(argparse.ArgumentParser, name, end_after(getattr(argparse.ArgumentParser, name)))
        with pytest.raises(ParsedError):
            run_bwprof(arguments)


class Runner:
    """Runs the blocks of a recipe, and records what the latest one printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.printed = ""
        self.complete = True  # every command of the latest block ran
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run_shell(self, block: Block) -> None:
        """Run the lines of a shell block; of those that need more than a CPU, check the arguments."""
        self.printed, self.complete = "", True
        for line in block.text.splitlines():
            variables, arguments = split_command(line)
            assert arguments or NEEDS.search(line), f"{line}: it calls no bwprof, and does not say what it needs"
            if not NEEDS.search(line):
                self._run_line(line, variables, arguments)
                continue
            self.complete = False
            if arguments:
                check_arguments(arguments, self._monkeypatch)

    def _run_line(self, line: str, variables: dict[str, str], arguments: list[str]) -> None:
        if DESCRIBES.isdisjoint(arguments) and "--device" not in arguments:
            arguments = [*arguments, *BRIEF.get(arguments[0], [])]
        self._capsys.readouterr()
        with self._monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code = run_bwprof(arguments)
        printed = self._capsys.readouterr()
        self.printed += printed.out
        expected = re.search(r"# exit code (\d)", line)
        assert code == (int(expected[1]) if expected else 0), f"{line}\n{printed.err}"

    def run_python(self, block: Block) -> None:
        """Run a Python block with small arrays and without roofs, or compile it if it needs more than a CPU."""
        code = block.text
        for long, short in SMALL.items():
            code = code.replace(long, short)
        program = compile(code, GUIDE.name, "exec")
        self.complete = not NEEDS.search(code)
        self._capsys.readouterr()
        if self.complete:
            exec(program, {"__name__": "recipe"})
        self.printed = self._capsys.readouterr().out

    def check_output(self, block: Block, *, update: bool) -> None:
        """Compare a block of output with what was printed; of measured output, the words of the first line."""
        if block.measured:
            first = next(line for line in block.text.splitlines() if line != "…")
            assert not self.complete or set(cells(first)) <= set(cells(self.printed))
            return
        fitted = fit_output(block.text, self.printed)
        if update:
            page = GUIDE.read_text(encoding="utf-8")
            GUIDE.write_text(page.replace(f"```text\n{block.text}```", f"```text\n{fitted}```"), encoding="utf-8")
        else:
            assert fitted == block.text, "pytest tests/test_guide.py --update-snapshots writes today's output"


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_commands_of_a_recipe_print_what_it_shows(
    recipe: Recipe, folder: Path, request: pytest.FixtureRequest, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(capsys, monkeypatch)
    for block in recipe.blocks:
        match block.language:
            case "sh":
                runner.run_shell(block)
            case "python":
                runner.run_python(block)
            case "toml":
                for name in re.findall(r"\w+\.toml", recipe.text):
                    (folder / name).write_text(block.text)
            case "text":
                runner.check_output(block, update=request.config.getoption("--update-snapshots"))
            case language:
                assert language == "c"  # tests/test_library.py compiles it


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`(bwprof [a-z]+ [^`]+)`", TEXT)) - {"bwprof ncu capture"}))
def test_arguments_in_a_sentence_are_allowed(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_arguments(split_command(command)[1], monkeypatch)


def test_guide_is_short() -> None:
    assert sum(bool(re.search(r"[^\W_]", word)) for word in TEXT.split()) <= 4_500
    for recipe in RECIPES:
        assert recipe.question.endswith("?")
        assert len(recipe.text.splitlines()) + 2 <= 25, recipe.question
        prose = re.sub(r"^```.*?^```$|^[|*][^\n]*$", "", recipe.text, flags=re.MULTILINE | re.DOTALL)
        assert all(len(paragraph.splitlines()) <= 6 for paragraph in prose.split("\n\n")), recipe.question


def test_fourteen_questions_come_first() -> None:
    sections = [recipe.section for recipe in RECIPES]
    assert sections[:14] == ["First questions"] * 14
    assert "First questions" not in sections[14:]


def test_guide_shows_a_bottleneck() -> None:
    assert re.search(r"^\s+1\s\(HIGH\)\s.*\n\s+impact:.*\n\s+fix:", TEXT, re.MULTILINE)


def test_every_command_is_in_the_guide() -> None:
    assert set(COMMANDS) <= set(re.findall(r"(?:^|`)bwprof ([a-z]+)", TEXT, re.MULTILINE))


def test_report_of_ranges_has_the_columns_of_the_guide() -> None:
    profiler = bwprof.Profiler(device="cpu")
    with profiler.range("norm"):
        pass
    header, rule, _ = str(profiler.report()).splitlines()
    (block,) = [block for recipe in RECIPES for block in recipe.blocks if block.text.startswith("range |")]
    expected, expected_rule, _ = block.text.splitlines()
    assert expected.split("|")[0] == header.split("|")[0]
    assert [word.strip() for word in expected.split("|")] == [word.strip() for word in header.split("|")]
    assert expected_rule.count("+") == rule.count("+")


@pytest.mark.parametrize(
    ("block", "fitted"),
    [
        ("a\nb\n", "one\ntwo\nthree\nfour\n"),
        ("one\n…\n", "one\n…\n"),
        ("…\nfour\n", "…\nfour\n"),
        ("…\nthere\n…\n", "…\nthree\n…\n"),
        ("…\nth…\n…\n", "…\nth…\n…\n"),
        ("one\n…\nfive\n", "one\n…\nfour\n"),
    ],
)
def test_output_fits_where_the_block_has_it(block: str, fitted: str) -> None:
    assert fit_output(block, "one  \ntwo\nthree\nfour\n") == fitted
    assert fit_output(fitted, "one\ntwo\nthree\nfour\n") == fitted
