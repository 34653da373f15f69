"""The options of commands: each option is declared and read here, once."""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.prediction import DEFAULT_EFFICIENCY
from bwprof.cli.guard import OK, USAGE, coded, data_stream, guarded
from bwprof.records.proof import ROOT
from bwprof.results import reader
from bwprof.results.reader import find_recorded
from bwprof.results.schema import range_of
from bwprof.roofs import store
from bwprof.roofs.model import ROOF_CHOICES, RoofsArgument, check_roofs
from bwprof.runs.interrupts import Interrupts
from bwprof.runs.plan import DEFAULT_CASE_SECONDS, SweepRequest
from bwprof.text.formatting import format_path
from bwprof.text.parsing import (
    describe_unknown,
    expand_ranges,
    number_or_nan,
    parse_count,
    parse_fraction,
    parse_names,
    parse_seconds,
    quote_text,
)

if TYPE_CHECKING:
    import pandas as pd

DEVICE = "cpu, cuda, cuda:1, or a number (default: the first device of the first backend that has one)"

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


def run_measuring(
    parser: Parser, arguments: Sequence[str] | None, command: Callable[[argparse.Namespace, Interrupts], int]
) -> int:
    """Run a command that measures, as `run` does the others; returns the exit code."""

    def begun(parsed: argparse.Namespace) -> int:
        logging.getLogger().setLevel(logging.DEBUG if getattr(parsed, "verbose", False) else logging.WARNING)
        for noisy in ("matplotlib", "PIL"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        with Interrupts() as interrupts:
            return command(parsed, interrupts)

    return run(parser, arguments, begun)


DEFAULT_OUTPUT = Path("bwprof-results")

ArgumentGroup = argparse.ArgumentParser | argparse._ArgumentGroup


def add_operations(parser: argparse.ArgumentParser) -> None:
    """The words that name operations."""
    parser.add_argument(
        "operations", nargs="*", metavar="OPERATION", help="operations, or a suite's cases (see bwprof sweep --list)"
    )


def add_cases(what: ArgumentGroup) -> None:
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
    read_fraction(what)


def read_fraction(what: ArgumentGroup) -> None:
    """The option that chooses cases; `split` reads it."""
    text = "of these, the cases whose name, or whose operation's, a pattern matches: 'attention*'"
    what.add_argument("--only", action="append", default=[], metavar="PATTERN,…", help=text)


def add_dry_run(how: ArgumentGroup) -> None:
    """Add the option that measures nothing."""
    how.add_argument("--dry-run", action="store_true", help="print the cases with bytes, FLOPs, memory and time")


def split(values: Iterable[str], name: str) -> tuple[str, ...]:
    """The words of an option that may be given several times, each with commas."""
    found: list[str] = []
    for value in values:
        words = [word.strip() for word in value.split(",") if word.strip()]
        if not words:
            raise ValueError(f"{name} is '{quote_text(value)}': at least one name is needed")
        found += words
    return tuple(found)


def add_param(what: ArgumentGroup) -> None:
    """The option that gives parameters values; `read_params` reads it."""
    text = "values of a parameter; of several lists every combination is measured (repeatable)"
    what.add_argument("-p", "--param", action="append", default=[], metavar="NAME=V1,V2,…", help=text)


def add_kv_lens(what: ArgumentGroup) -> None:
    """The option that says how long a batch's entries are."""
    what.add_argument(
        "--kv-lens", metavar="N,…", help="lengths of a batch's entries, tokens, for operations that take them (100,7Ki)"
    )


def add_files(out: ArgumentGroup, beside: str = ", samples and metadata") -> None:
    """The options that name files for the rows; `beside` is what JSON keeps with them."""
    out.add_argument("--csv", metavar="FILE|-", help="rows as CSV, '-' for standard output")
    out.add_argument("--json", metavar="FILE|-", help=f"rows{beside} as JSON, '-' likewise")
    out.add_argument("--force", action="store_true", help="replace files that are named for results")


def EFFICIENCY(where: ArgumentGroup) -> None:
    """The option that says how good the kernels of a prediction are."""
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


def add_limits(how: ArgumentGroup) -> None:
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


def add_sampling(how: ArgumentGroup) -> None:
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


def add_roofs(how: ArgumentGroup) -> None:
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


def read_roofs(options: argparse.Namespace) -> RoofsArgument | None:
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
    if options.roofs in ROOF_CHOICES:
        return check_roofs(options.roofs)
    if not find_recorded(Path(options.roofs)).exists():
        raise ValueError(describe_unknown("roofs", options.roofs, [*ROOF_CHOICES, "RUN", "FILE.json"], where="--roofs"))
    try:
        return store.read(Path(options.roofs))
    except ValueError as error:
        raise ValueError(f"--roofs {error}") from None


def read_seconds(options: argparse.Namespace) -> None:
    """ValueError for a file or folder without a name: a shell variable that was not set."""
    for name in ("suite", "output", "csv", "json", "classic_csv", "proof_bundle", "trace", "prometheus", "resume"):
        if getattr(options, name) == "":
            raise ValueError(f"--{name.replace('_', '-')} is '': a name is needed")


def read_seconds(given: str | None, name: str, *, from_zero: bool = False) -> float | None:
    """The value of an option in seconds, None where it was not given; ValueError when it is no such number."""
    return None if given is None else parse_seconds(given, name, from_zero=from_zero, text=True)


def read_share(given: str, name: str, what: str = "") -> float:
    """The value of an option that is a share, as 0.9 or 90%; ValueError, with `what` else is allowed, for no number."""
    found = number_or_nan(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    if math.isnan(found):
        raise ValueError(f"{name} is '{quote_text(given)}': a share such as 0.1 or 10% is needed{what}")
    return found


def read_positive(given: str | None, name: str, what: str) -> float | None:
    """Return an option's positive number, None without the option; ValueError for what no row can hold.

    The message says that `what` is needed.
    """
    found, (least, most, _) = None if given is None else number_or_nan(given), range_of("peak_gb_s")
    if found is not None and not least <= found <= most:
        raise ValueError(f"{name} is '{quote_text(given)}': {what} is needed")
    return found


def read_numbers(text: str, name: str) -> tuple[int, ...]:
    """The numbers of a list with commas, ranges among them; ValueError where there are none."""
    found = tuple(expand_ranges((word for word in text.split(",") if word.strip()), name))
    if not found:
        raise ValueError(f"{name}: no values in '{quote_text(text)}'")
    return found


def read_params(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """What `-p NAME=V1,V2,...` says, each time it is given."""
    result: dict[str, tuple[int, ...]] = {}
    for item in given:
        name, equals, values = item.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"--param is '{quote_text(item)}': NAME=V1,V2,... is needed")
        name = name.strip()
        if name in result:
            raise ValueError(f"--param {name} is given twice")
        result[name] = read_numbers(values, f"--param {name}")
    return result


def read_single_params(given: Sequence[str]) -> dict[str, int]:
    """The same where each parameter has one value."""
    result: dict[str, int] = {}
    for name, values in read_params(given).items():
        if name == "kv_lens":
            raise ValueError(registry.describe_unknown_param("", name, ()))
        if len(values) != 1:
            raise ValueError(f"--param {quote_text(name)} has {len(values)} values: one is needed")
        result[name] = values[0]
    return result


def read_efficiency(given: str | None) -> float | pd.DataFrame:
    """What predictions take for their kernels, from an option: a share, or measured results."""
    if given is None:
        return DEFAULT_EFFICIENCY
    if reader.find_recorded(Path(given)).exists():
        return reader.load(given)
    return read_share(given, "--efficiency", ", or a run's folder or file")


def typed(found: pd.DataFrame, targets: Mapping[str, str], *, quiet: bool = False) -> None:
    """Predictions as files, or on the standard output."""
    from bwprof.results import csv_file, frame, json_file

    for kind, name in targets.items():
        if name != "-":
            reader.save(found, name)
            if not quiet:
                sys.stderr.write(f"bwprof: predictions are in {format_path(name)}\n")
            continue
        rows = frame.to_rows(found)
        text = (
            csv_file.csv_text(rows)
            if kind == "csv"
            else json_file.json_text(rows, [None] * len(rows), found.attrs["run"])
        )
        data_stream(f"--{kind} -").write(text)


_DESCRIPTION = """\
Measure how fast memory goes in LLM operations, and what a narrower precision buys. Without arguments: the default
suite on the first GPU, or on the CPU where there is none. Rows are written as soon as they are measured.
"""

_EPILOG = """\
examples:
  %(prog)s                                        the default suite
  %(prog)s {first} -p {param}={values}
                                        one operation, the product of the lists
  %(prog)s --suite default --precision fp32,bf16  other precisions
  %(prog)s --seq-lengths 128..64Ki:x2             attention over sequence lengths, tokens
  %(prog)s --suite my.toml --dry-run              what would run: bytes, FLOPs, memory, time
  %(prog)s {first} --csv - | column -s, -t        rows to standard output
  ncu --set full python -m bwprof.sweep {first} --once

numbers take the suffixes k, M, G (1000) and Ki, Mi, Gi (1024); lists of them take ranges: 128..64Ki:x2 doubles,
1..64:+8 adds (1, 9, ..., 57: the end is among them where the steps meet it).
Times are in ms, bandwidths in GB/s (10^9 bytes).
exit codes: 0 ok (skipped cases included), 2 usage, 3 incomplete (a case failed or rows could not be written),
130 interrupted.
"""


def parser(program: str) -> Parser:
    """The argument parser."""
    result = Parser(program, _DESCRIPTION, _example_text())
    add_operations(result)
    add_what(result)
    add_output(result).add_argument(
        "--columns", metavar="A,B,…", help="print a line for each row, with these columns, instead of the summary"
    )
    how = result.add_argument_group("how")
    add_dry_run(how)
    how.add_argument(
        "--list",
        action="store_true",
        help="print operations, parameters, variants and suites; with --verbose the kernels, too",
    )
    add_limits(how)
    add_sampling(how)
    add_roofs(how)
    how.add_argument(
        "--once",
        action="store_true",
        help="launch each case exactly once, untimed, in this process (for ncu, nsys); a library runs the algorithm "
        "that its heuristic puts first, where measuring searches for the fastest; a profiler sees the kernels that "
        "fill the operands, too",
    )
    how.add_argument(
        "--nvtx",
        action=argparse.BooleanOptionalAction,
        help="whether tools that take NVTX ranges (nsys, ncu --nvtx) are told of cases, in the domain bwprof: by "
        "default where one watches; --nvtx also says where none does",
    )
    result.add_argument("--verbose", action="store_true", help="log what is going on")
    return result


def add_what(parser: argparse.ArgumentParser) -> None:
    """The options that say which cases to measure, and where."""
    what = parser.add_argument_group("what to measure")
    add_cases(what)
    what.add_argument(
        "--variant", action="append", default=[], metavar="V,…", help="kernels to run, or 'all'; else the best one"
    )
    what.add_argument(
        "--cache",
        action="append",
        default=[],
        metavar="cold|hot|both",
        help="cold: inputs outside the cache at every launch; hot: one buffer set; both: a row each (default: the "
        "suite's, else cold)",
    )
    what.add_argument(
        "--timer",
        metavar="NAME",
        help="GPU: graph (default), events (a pair around each launch, microseconds of bias) or cupti (kernel "
        "timestamps); CPU: monotonic",
    )
    what.add_argument(
        "--counters", action="store_true", help="count the DRAM and L2 bytes of a launch in hardware (needs privileges)"
    )
    what.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="M,…",
        help="what else to count, by replaying each launch many times: tensor, fma, occupancy, stalls, bank_conflicts, "
        "sectors, dram, sm, caches, or all (GPU; needs privileges)",
    )
    what.add_argument("--seed", default="0", metavar="N", help="of the generated inputs (default: 0)")
    where = parser.add_argument_group("where")
    where.add_argument(
        "--device",
        metavar="D,…|all",
        help=f"{DEVICE}; several, one after the other: 0,1 or cuda:0,cpu, or all of the backend",
    )
    where.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)


def _example_text() -> str:
    """The epilog, with an operation of the registry in its examples."""
    shown = next((row for row in registry.operations() if not row["is_stream"]), registry.operations()[0])
    param = shown["params"][0]
    values = ",".join(str(param["default"] * factor) for factor in (1, 2, 4))
    return _EPILOG.replace("{first}", shown["name"]).replace("{param}", param["name"]).replace("{values}", values)


def read_request(options: argparse.Namespace) -> SweepRequest:
    """What the options ask for; ValueError for values that cannot be read."""
    return SweepRequest(
        operations=split(options.operations, "OPERATION"),
        params=read_params(options.param),
        seq_lengths=read_numbers(options.seq_lengths, "--seq-lengths") if options.seq_lengths is not None else (),
        precisions=split(options.precision, "--precision"),
        variants=split(options.variant, "--variant"),
        caches=split(options.cache, "--cache"),
        suite=options.suite,
        backend=options.backend,
        device=options.device,
        seed=parse_count(options.seed, "--seed"),
        timer=options.timer,
        counters=options.counters,
        metrics=split(options.metrics, "--metrics"),
        target_seconds=read_seconds(options.target_seconds, "--target-seconds"),
        kv_lens=registry.parse_lengths(options.kv_lens, "--kv-lens"),
        rel_ci=parse_fraction(options.rel_ci, "--rel-ci") if options.rel_ci is not None else None,
        max_seconds=read_seconds(options.max_seconds, "--max-seconds", from_zero=True),
        only=split(options.only, "--only"),
    )


def read_columns(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The columns to print instead of the summary, None for that; ValueError for an unknown one."""
    from bwprof.analysis.views import check_columns

    given = getattr(options, "columns", None)
    if given is not None and options.quiet:
        raise ValueError("--columns says what to print, --quiet prints nothing: leave one out")
    return None if given is None else check_columns(parse_names("--columns", given))


# Options that say which cases to run, and those of a run: names with spaces between them.
_CASES = (
    "operations param seq_lengths kv_lens precision suite only variant cache seed backend device timer counters "
    "metrics target_seconds max_seconds rel_ci"
)

_RUNS = (
    "once dry_run recalibrate roofs no_roofs target_seconds max_seconds rel_ci output csv json classic_csv "
    "proof_bundle trace prometheus force columns resume max_total_seconds max_case_seconds nvtx"
)

# What takes a run's place has a use for some of them, and has none for others.
_TIME = "recalibrate roofs no_roofs target_seconds max_seconds"  # what an estimate of the time depends on

_USED = {"--once": "once dry_run resume nvtx", "--dry-run": f"dry_run resume {_TIME}", "--list": ""}

_UNUSED = {"--once": "timer counters metrics", "--dry-run": "", "--list": _CASES}


def case_options(options: argparse.Namespace) -> list[str]:
    """The options given that say which cases to run."""
    return _typed(options, _CASES.split())


def unused_options(options: argparse.Namespace, instead: str) -> list[str]:
    """The options given that `instead` (--once, --dry-run, --list), which measures and writes nothing, cannot use."""
    names = [name for name in _RUNS.split() if name not in _USED[instead].split()]
    return _typed(options, [*names, *_UNUSED[instead].split()])


def _typed(options: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """Of these options those that were given, each once, as people type them."""
    unset: dict[str, tuple[object, ...]] = {"seed": ("0",), "nvtx": (None,)}
    unset |= {name: (None, False, [], "") for name in names if name not in unset}
    given = [name for name in dict.fromkeys(names) if getattr(options, name) not in unset[name]]
    return ["OPERATION" if name == "operations" else f"--{name.replace('_', '-')}" for name in given]
