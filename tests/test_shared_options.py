"""Options that several commands have: one declaration says what each is called, takes and means."""

from __future__ import annotations

import argparse
import itertools

import pytest

from bwprof.cli.commands.experiments import main_ab
from bwprof.cli.commands.model import main_model
from bwprof.cli.commands.predict import main_predict
from bwprof.cli.commands.sweep import main_sweep

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
