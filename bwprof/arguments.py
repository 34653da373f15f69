"""The argument parser of every command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class _StoreOnce(argparse.Action):
    """An option with one value: of two, one would be dropped without a word."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault("_given", {})
        if option_string is not None and self.dest in given:
            parser.error(f"{option_string} is given twice: '{given[self.dest]}' and '{values}'")
        given[self.dest] = values
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that takes no abbreviations, and no option with a value twice."""

    def __init__(self, program: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=program,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)
