"""The options that state what a profiler's file does not tell: ``--bytes``, ``--peak``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwprof.results.schema import range_of
from bwprof.text import parse_count, quoted, read_number

if TYPE_CHECKING:
    import pandas as pd


def add_stated(parser: argparse.ArgumentParser) -> None:
    """Take the options."""
    parser.add_argument(
        "--bytes",
        metavar="NAME=READ,WRITTEN",
        action="append",
        help="what a launch of a kernel must move: '*copy*=64Mi,64Mi' (a name or a pattern; again for others)",
    )
    parser.add_argument("--peak", metavar="GB/S", help="the memory's theoretical bandwidth, where the rows have none")


def apply(found: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """The rows with what the options state; ValueError for what cannot be."""
    from bwprof.profilers.stated import with_bytes, with_peak

    if options.bytes is not None:
        found = with_bytes(found, _bytes(options.bytes))
    return found if options.peak is None else with_peak(found, peak_of(options.peak))


def _bytes(given: Sequence[str]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for text in given:
        name, _, counts = text.rpartition("=")
        read, _, written = counts.partition(",")
        if not name or not written:
            raise ValueError(
                f"--bytes is '{quoted(text)}': NAME=READ,WRITTEN is needed, bytes of a launch, '*copy*=64Mi,64Mi' say"
            )
        if name in found:
            raise ValueError(f"--bytes {quoted(name)} is given twice")
        found[name] = (parse_count(read, "--bytes"), parse_count(written, "--bytes"))
    return found


def peak_of(text: str) -> float:
    """Read a theoretical bandwidth; ValueError for what no row can have."""
    found, (least, most, _) = read_number(text), range_of("peak_gb_s")
    if not least <= found <= most:
        raise ValueError(f"--peak is '{quoted(text)}': a bandwidth in GB/s is needed")
    return found
