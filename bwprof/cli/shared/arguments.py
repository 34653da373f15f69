"""The argument parser of every command, and the commands that only read and show."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from bwprof.cli.shared.guard import OK, USAGE, coded, guarded

DEVICE_HELP = "cpu, cuda, cuda:1, or a number (default: the first device of the first backend that has one)"
BACKEND_HELP = "cuda or cpu, as --device cuda and --device cpu say, too"


class _OldName(argparse.Action):
    """An option by the name that it had in the version before: it works, and says the new one."""

    def __init__(self, option_strings: Sequence[str], dest: str, const: str, **rest: Any) -> None:
        super().__init__(option_strings, dest, const=const, **rest)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        new = str(self.const)
        sys.stderr.write(f"bwprof: WARNING: {option_string} is now {new}\n")
        warnings.warn(f"{option_string} is now {new}", DeprecationWarning, stacklevel=2)
        parser._option_string_actions[new](parser, namespace, values, new)


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

    def add_old_name(self, old: str, new: str) -> None:
        """An option's name of the version before; the help does not show it."""
        dest = self._option_string_actions[new].dest
        self.add_argument(old, action=_OldName, dest=dest, const=new, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def refuse_others(parser: Parser, parsed: argparse.Namespace, why: str, *allowed: str) -> None:
    """ValueError where an option that does one thing alone stands beside others, which would be ignored.

    `allowed` are destinations, that option's own among them.
    """
    known = [action for action in parser.listed() if action.default != argparse.SUPPRESS]
    given = [action for action in known if getattr(parsed, action.dest) not in (action.default, [])]
    names = [_name(action) for action in given if action.dest not in allowed]
    if names:
        raise ValueError(f"{why}: leave out {', '.join(names)}")


def _name(action: argparse.Action) -> str:
    """An option as people type it, or what stands for a word of its own in the usage."""
    return action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)


def run(parser: Parser, arguments: Sequence[str] | None, command: Callable[[argparse.Namespace], int]) -> int:
    """The exit code of a command that measures nothing: 2, and a sentence, for what cannot be used or read."""

    def checked() -> int:
        try:
            options = parser.parse_args(arguments)
        except SystemExit as ended:
            return USAGE if ended.code else OK
        logging.basicConfig(stream=sys.stderr, format="bwprof: %(levelname)s: %(message)s", force=True)
        return coded(lambda: command(options))

    return guarded(checked)
