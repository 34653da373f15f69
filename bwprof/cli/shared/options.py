"""Options that several commands have: each is declared here, and read here, once."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from bwprof import registry
from bwprof.records.proof import ROOT
from bwprof.results import located
from bwprof.results.schema import range_of
from bwprof.roofs import Given, files
from bwprof.roofs.given import WORDS, check
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.text import quoted, read_number, seconds, spread, unknown

DEFAULT_OUTPUT = Path("bwprof-results")

Group = argparse.ArgumentParser | argparse._ArgumentGroup


def add_operations(parser: argparse.ArgumentParser) -> None:
    """The words that name operations."""
    parser.add_argument(
        "operations", nargs="*", metavar="OPERATION", help="operations, or a suite's cases (see bwprof sweep --list)"
    )


def add_cases(what: Group) -> None:
    """The options that say which cases."""
    add_param(what)
    what.add_argument(
        "--seq-lengths",
        metavar="N,…",
        help="sequence lengths in tokens: seq_len where an operation has it, else kv_len; without operations, "
        "every attention-like one",
    )
    add_kv_lens(what)
    what.add_argument("--precision", action="append", default=[], metavar="P,…", help="precisions, e.g. fp32,fp16")
    what.add_argument("--suite", metavar="NAME|FILE.toml", help="a list of cases; with operations, only theirs")
    add_only(what)


def add_only(what: Group) -> None:
    """The option that chooses cases; `split` reads it."""
    text = "of these, the cases whose name, or whose operation's, a pattern matches: 'attention*'"
    what.add_argument("--only", action="append", default=[], metavar="PATTERN,…", help=text)


def add_dry_run(how: Group) -> None:
    """Add the option that measures nothing."""
    how.add_argument("--dry-run", action="store_true", help="print the cases with bytes, FLOPs, memory and time")


def split(values: Iterable[str], name: str) -> tuple[str, ...]:
    """The words of an option that may be given several times, each with commas."""
    found: list[str] = []
    for value in values:
        words = [word.strip() for word in value.split(",") if word.strip()]
        if not words:
            raise ValueError(f"{name} is '{quoted(value)}': at least one name is needed")
        found += words
    return tuple(found)


def add_param(what: Group) -> None:
    """The option that gives parameters values; `read_params` reads it."""
    text = "values of a parameter; of several lists every combination is measured (repeatable)"
    what.add_argument("-p", "--param", action="append", default=[], metavar="NAME=V1,V2,…", help=text)


def add_kv_lens(what: Group) -> None:
    """The option that says how long a batch's entries are."""
    what.add_argument(
        "--kv-lens", metavar="N,…", help="lengths of a batch's entries, tokens, for operations that take them (100,7Ki)"
    )


def add_files(out: Group, beside: str = ", samples and metadata") -> None:
    """The options that name files for the rows; `beside` is what JSON keeps with them."""
    out.add_argument("--csv", metavar="FILE|-", help="rows as CSV, '-' for standard output")
    out.add_argument("--json", metavar="FILE|-", help=f"rows{beside} as JSON, '-' likewise")
    out.add_argument("--force", action="store_true", help="replace files that are named for results")


def add_efficiency(where: Group) -> None:
    """The option that says how good the kernels of a prediction are."""
    from bwprof.analysis.forecast.prediction import DEFAULT_EFFICIENCY  # sweeps do without what it loads

    where.add_argument(
        "--efficiency",
        metavar="SHARE|RUN|FILE",
        help="of a prediction: what share of its roof a kernel reaches, as 0.9 or 90%%, or measured results to learn "
        f"it from (default: {DEFAULT_EFFICIENCY})",
    )


def add_output(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The options that say where a run writes; their group."""
    out = parser.add_argument_group("output")
    out.add_argument(
        "--output",
        metavar="DIR",
        help=f"parent of the run's folder (default: {DEFAULT_OUTPUT}), or one file ending in .json or .csv",
    )
    add_files(out)
    out.add_argument(
        "--classic-csv",
        metavar="FILE|-",
        help="at the end, the finished rows in the nine classic columns alone, for older tools: the case's name as "
        "operation, with its variant where the case has several; precisions in capital letters",
    )
    out.add_argument(
        "--proof-bundle",
        nargs="?",
        const=ROOT,
        metavar="ROOT",
        help=f"at the end, a bundle of reports, metadata, results and picture in ROOT/RUN_ID (default: {ROOT})",
    )
    out.add_argument(
        "--trace",
        metavar="FILE|-",
        help="at the end, when each case was measured and how fast it was, for Perfetto and chrome://tracing",
    )
    out.add_argument(
        "--prometheus",
        metavar="FILE|-",
        help="at the end, bandwidth, share of attainable and flags of each case as Prometheus' text, for the textfile "
        "collector of its node_exporter (FILE.prom); a file of that kind is replaced",
    )
    out.add_argument("--resume", metavar="RUN", help="go on with a run: its folder, or its id below --output")
    out.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary, only warnings and errors")
    return out


def add_limits(how: Group) -> None:
    """The options that say how long a run and its cases may take."""
    how.add_argument(
        "--max-total-seconds",
        metavar="SECONDS",
        help="for the whole run, the device's opening and roofs included; what is left is skipped, and the picture has "
        "five seconds more",
    )
    how.add_argument(
        "--max-case-seconds",
        metavar="SECONDS",
        help="for one case, which is then ended and fails (default: ten minutes and fifty times its estimate)",
    )
    how.add_argument(
        "--max-seconds",
        metavar="SECONDS",
        help=f"of sampling for one case (default: {DEFAULT_CASE_SECONDS:g}), instead of the suite's wish",
    )


def add_sampling(how: Group) -> None:
    """The options that say how precisely cases are measured."""
    how.add_argument(
        "--target-seconds",
        metavar="SECONDS",
        help="what the cases should take together, instead of the suite's wish: fewer samples each; nothing is skipped",
    )
    how.add_argument(
        "--rel-ci",
        metavar="FRACTION",
        help="sampling stops when the median is known to this: 0.01, or 1%% (default: 0.5%%)",
    )


def add_roofs(how: Group) -> None:
    """The options that say what rows are held against."""
    how.add_argument(
        "--roofs",
        metavar="auto|stored|RUN|FILE",
        help="what rows are held against: stored roofs, checked, or measured now (auto, the default); stored ones as "
        "they are; those of a run, or of a file that bwprof roofs export wrote",
    )
    how.add_argument("--no-roofs", action="store_true", help="a quick look: leave the columns that need roofs empty")
    how.add_argument(
        "--recalibrate",
        action="store_true",
        help="measure the device's roofs anew, whatever the cache folder ($XDG_CACHE_HOME or ~/.cache) holds",
    )


def roofs(options: argparse.Namespace) -> Given | None:
    """What rows are held against; None where no option says it.

    Raises
    ------
    ValueError
        For a word that is none, a file without roofs, and options that contradict each other.
    """
    for name, given in (("--roofs", options.roofs), ("--recalibrate", options.recalibrate)):
        if options.no_roofs and given:
            raise ValueError(f"--no-roofs and {name} contradict each other: leave one out")
    if options.no_roofs:
        return False
    if options.recalibrate and options.roofs not in (None, "auto"):
        raise ValueError("--roofs and --recalibrate contradict each other: leave one out")
    if options.roofs is None:
        return "auto" if options.recalibrate else None
    if options.roofs in WORDS:
        return check(options.roofs)
    if not located(Path(options.roofs)).exists():
        raise ValueError(unknown("roofs", options.roofs, [*WORDS, "RUN", "FILE.json"], where="--roofs"))
    try:
        return files.read(Path(options.roofs))
    except ValueError as error:
        raise ValueError(f"--roofs {error}") from None


def check_paths(options: argparse.Namespace) -> None:
    """ValueError for a file or folder without a name: a shell variable that was not set."""
    for name in ("suite", "output", "csv", "json", "classic_csv", "proof_bundle", "trace", "prometheus", "resume"):
        if getattr(options, name) == "":
            raise ValueError(f"--{name.replace('_', '-')} is '': a name is needed")


def limit(given: str | None, name: str, *, from_zero: bool = False) -> float | None:
    """The value of an option in seconds, None where it was not given; ValueError when it is no such number."""
    return None if given is None else seconds(given, name, from_zero=from_zero, text=True)


def share(given: str, name: str, what: str = "") -> float:
    """The value of an option that is a share, as 0.9 or 90%; ValueError, with `what` else is allowed, for no number."""
    found = read_number(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    if math.isnan(found):
        raise ValueError(f"{name} is '{quoted(given)}': a share such as 0.1 or 10% is needed{what}")
    return found


def positive(given: str | None, name: str, what: str) -> float | None:
    """Return an option's positive number, None without the option; ValueError for what no row can hold.

    The message says that `what` is needed.
    """
    found, (least, most, _) = None if given is None else read_number(given), range_of("peak_gb_s")
    if found is not None and not least <= found <= most:
        raise ValueError(f"{name} is '{quoted(given)}': {what} is needed")
    return found


def numbers(text: str, name: str) -> tuple[int, ...]:
    """The numbers of a list with commas, ranges among them; ValueError where there are none."""
    found = tuple(spread((word for word in text.split(",") if word.strip()), name))
    if not found:
        raise ValueError(f"{name}: no values in '{quoted(text)}'")
    return found


def read_params(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """What `-p NAME=V1,V2,...` says, each time it is given."""
    result: dict[str, tuple[int, ...]] = {}
    for item in given:
        name, equals, values = item.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"--param is '{quoted(item)}': NAME=V1,V2,... is needed")
        name = name.strip()
        if name in result:
            raise ValueError(f"--param {name} is given twice")
        result[name] = numbers(values, f"--param {name}")
    return result


def read_single(given: Sequence[str]) -> dict[str, int]:
    """The same where each parameter has one value."""
    result: dict[str, int] = {}
    for name, values in read_params(given).items():
        if name == "kv_lens":
            raise ValueError(registry.unknown_param("", name, ()))
        if len(values) != 1:
            raise ValueError(f"--param {quoted(name)} has {len(values)} values: one is needed")
        result[name] = values[0]
    return result
