"""What commands that list something print instead of tables: JSON, or a page of Markdown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bwprof.cli.shared.guard import data_stream


def add_forms(parser: argparse.ArgumentParser) -> None:
    """The options that say which form."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of tables")
    form.add_argument("--md", action="store_true", help="as Markdown")


def print_in_form(options: argparse.Namespace, told: Callable[[], Any], parts: Callable[[], Sequence[str]]) -> bool:
    """Print what `told` gives as JSON, or `parts` as Markdown; False where tables are wanted."""
    if options.json:
        data_stream("--json").write(json.dumps(told(), indent=1, ensure_ascii=False) + "\n")
    elif options.md:
        data_stream("--md")
        sys.stdout.write("\n\n".join(parts()) + "\n")
    return bool(options.json or options.md)
