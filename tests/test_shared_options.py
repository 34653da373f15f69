"""Options that several commands have: one declaration says what each is called, takes and means."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import pytest

from bwprof import _core
from bwprof.cli.commands.experiments import main_ab
from bwprof.cli.commands.model import main_model
from bwprof.cli.commands.predict import main_predict
from bwprof.cli.commands.sweep import main_sweep
from bwprof.measuring.operation import Spec

# What these commands call alike, but is another thing in each: what may be named, and what it is for.
OWN = {"--device", "--roofs", "--list", "--help"}
PARSERS = {"sweep": main_sweep.parser(), "model": main_model.parser(), "predict": main_predict.parser()}


def declared(parser: argparse.ArgumentParser) -> dict[str, tuple[object, ...]]:
    """Each option's declaration, but for its group."""
    return {
        name: (action.dest, action.metavar, action.help, action.default, action.nargs, type(action))
        for action in parser._actions
        for name in action.option_strings or [str(action.metavar)]
    }


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(PARSERS, 2)))
def test_an_option_is_the_same_in_every_command(one: str, other: str) -> None:
    first, second = declared(PARSERS[one]), declared(PARSERS[other])
    common = (first.keys() & second.keys()) - OWN
    assert {"--csv", "--json", "--force"} <= common
    assert {name: first[name] for name in common} == {name: second[name] for name in common}


def test_two_sides_get_their_parameters_as_a_sweep_does() -> None:
    first, second = declared(PARSERS["sweep"]), declared(main_ab.parser())
    for name in ("-p", "--param", "--kv-lens"):
        assert first[name] == second[name]


def test_shared_options_are_in_every_command() -> None:
    """So that none of them is a list of its own again."""
    sets = {name: declared(parser).keys() for name, parser in PARSERS.items()}
    assert {"--efficiency"} <= sets["model"] & sets["predict"]
    assert {"OPERATION", "-p", "--param", "--seq-lengths", "--kv-lens", "--precision", "--suite", "--only"} <= (
        sets["sweep"] & sets["predict"]
    )
    assert {"--output", "--resume", "--quiet", "--max-seconds", "--max-total-seconds"} <= sets["sweep"] & sets["model"]


def test_once_several_times(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """--once N launches each case N times; what is no number after --once is an operation."""
    launches: list[str] = []
    real = Spec.open

    def open_case(spec: Spec, device: _core.Device, **how: bool) -> Any:
        case = real(spec, device, **how)
        return Watched(case, launches)

    class Watched:
        def __init__(self, case: _core.Case, launches: list[str]) -> None:
            self.case, self.launches, self.variant = case, launches, case.variant

        def launch(self) -> None:
            self.launches.append(self.variant)
            self.case.launch()

        def __enter__(self) -> Watched:
            return self

        def __exit__(self, *_: object) -> None:
            self.case.close()

    monkeypatch.setattr(Spec, "open", open_case)
    one = ["-p", "M=2", "-p", "N=3", "-p", "K=4", "--precision", "fp32", "--device", "cpu", "--impl", "naive"]
    for arguments, times in ((["gemm", "--once", "3"], 3), (["--once", "2", "gemm"], 2), (["--once", "gemm"], 1)):
        launches.clear()
        assert main_sweep([*arguments, *one]) == 0
        assert launches == ["naive"] * times
        assert capsys.readouterr().err.count("launched gemm") == 1
    for wrong in ("0", "-1", "1.5", "nosuch"):
        assert main_sweep(["gemm", "--once", wrong, *one]) == 2
    assert launches == ["naive"]


def test_seq_len_and_impl_are_other_names(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for lengths, variants in (("--seq-len", "--impl"), ("--seq-lengths", "--variant")):
        assert main_sweep(["attention_prefill", lengths, "16", variants, "flash", "--dry-run", "--device", "cpu"]) == 0
        rows.append(capsys.readouterr().out)
    assert "flash" in rows[0]
    assert rows[0] == rows[1]
