"""The argument parser of every command, and the commands that only read and show."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bwprof.cli.shared.guard import OK, USAGE, coded, guarded

DEVICE_HELP = "cpu, cuda, cuda:1, or a number (default: the first device of the first backend that has one)"
BACKEND_HELP = "cuda or cpu, as --device cuda and --device cpu say, too"


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

    def listed(self) -> list[argparse.Action]:
        """What the parser takes."""
        return list(self._actions)


class MixedParser(Parser):
    """A parser to which options may come between the words."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        return self.parse_intermixed_args(args, namespace)


def refuse_others(parser: Parser, parsed: argparse.Namespace, why: str, *allowed: str) -> None:
    """ValueError where an option that does one thing alone stands beside others, which would be ignored.

    `allowed` are destinations, that option's own among them.
    """
    known = [action for action in parser.listed() if action.default != argparse.SUPPRESS]
    given = [action for action in known if getattr(parsed, action.dest) not in (action.default, [])]
    others = [action for action in given if action.dest not in allowed]
    if others:  # as people type them, or as the usage has a word of its own
        names = (action.option_strings[-1] if action.option_strings else action.metavar for action in others)
        raise ValueError(f"{why}: leave out {', '.join(map(str, names))}")


def run(parser: Parser, arguments: Sequence[str] | None, command: Callable[[argparse.Namespace], int]) -> int:
    """The exit code of a command: 2, and a sentence, for what cannot be used or read."""

    def checked() -> int:
        try:
            options = parser.parse_args(arguments)
        except SystemExit as ended:
            return USAGE if ended.code else OK
        logging.basicConfig(stream=sys.stderr, format="bwprof: %(levelname)s: %(message)s", force=True)
        return coded(lambda: command(options))

    return guarded(checked)
