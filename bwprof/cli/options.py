"""Command lines: the parser, the options that commands share, and the values of options.

Options stand in tables, a line each, which `Parser.add` reads::

    what to measure:
    --precision P,… ...    precisions, e.g. fp32,fp16
    --counters             count the DRAM and L2 bytes of a launch
      (a line with an indent goes on with the line above it)

A line that ends in a colon opens a group; "one of:" opens a group of options that exclude each other. A signature
without a value is a flag; "..." makes an option repeatable, brackets around its value make that optional, "--[no-]"
takes both forms. A positional argument is ``name=METAVAR``, with ``?``, ``*`` or ``+`` behind it.
"""

from __future__ import annotations

import argparse
import logging
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.prediction import DEFAULT_EFFICIENCY
from bwprof.cli.guard import OK, USAGE, coded, guarded
from bwprof.records.proof import ROOT
from bwprof.results import reader
from bwprof.results.reader import find_recorded
from bwprof.results.schema import range_of
from bwprof.roofs import store
from bwprof.roofs.model import ROOF_CHOICES, RoofsArgument, check_roofs
from bwprof.runs.channel import Interrupts
from bwprof.runs.plan import DEFAULT_CASE_SECONDS, SweepRequest
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

DEFAULT_OUTPUT = Path("bwprof-results")

OPERATIONS = """\
operations=OPERATION*  operations, or a suite's cases (see bwprof sweep --list)
"""

PARAM = """\
-p, --param NAME=V1,V2,… ...  values of a parameter; every combination of several lists is measured (repeatable)
"""

SINGLE_PARAM = """\
-p, --param NAME=VALUE ...  the value of a parameter (repeatable)
"""

KV_LENS = """\
--kv-lens N,…  lengths of a batch's entries, tokens, for operations that take them (100,7Ki)
"""

ONLY = """\
--only PATTERN,… ...  only cases whose name or operation matches a pattern: 'attention*'
"""

CASES = f"""\
{PARAM}
--seq-lengths N,…  sequence lengths in tokens: seq_len where an operation has it, else kv_len; without operations, every
  attention-like one
{KV_LENS}
--precision P,… ...  precisions, e.g. fp32,fp16
--suite NAME|FILE.toml  a list of cases; with operations, only theirs
{ONLY}"""

DEVICE = """\
--device D  cpu, cuda, cuda:1, or a number (default: the first device of the first backend that has one)
--backend NAME  cuda or cpu; --device cuda and --device cpu do the same
"""

CASES_AND_DEVICES = f"""\
what to measure:
{CASES}
--variant V,… ...  kernels to run, or 'all' (default: the best one)
--cache cold|hot|both ...  cold: inputs outside the cache at every launch; hot: one buffer set; both: a row each
  (default: the suite's, else cold)
--timer NAME  GPU: graph (default), events (a pair around each launch, microseconds of bias) or cupti (kernel
  timestamps); CPU: monotonic
--counters  count the DRAM and L2 bytes of a launch in hardware (needs privileges)
--metrics M,… ...  count more by replaying each launch many times: tensor, fma, occupancy, stalls, bank_conflicts,
  sectors, dram, sm, caches, or all (GPU; needs privileges)
--seed N  of the generated inputs (default: 0)

where:
--device D,…|all  cpu, cuda, cuda:1, or a number (default: the first device of the first backend that has one);
  several, one after the other: 0,1 or cuda:0,cpu, or all of the backend
--backend NAME  cuda or cpu; --device cuda and --device cpu do the same
"""

FILES = """\
--csv FILE|-  rows as CSV, '-' for standard output
--json FILE|-  rows and metadata as JSON, '-' likewise
--force  replace files that are there
"""

MARKDOWN = """\
--md FILE|-  tables in Markdown
"""

EFFICIENCY = f"""\
--efficiency SHARE|RUN|FILE  of a prediction: what share of its roof a kernel reaches, as 0.9 or 90%, or measured
  results to learn it from (default: {DEFAULT_EFFICIENCY})
"""

OUTPUT = f"""\
output:
--output DIR  parent of the run's folder (default: {DEFAULT_OUTPUT}), or one file ending in .json or .csv
{FILES}
--classic-csv FILE|-  at the end, the finished rows in the nine classic columns alone, for older tools
--proof-bundle [ROOT]  at the end, a bundle of reports, metadata, results and picture in ROOT/RUN_ID (default: {ROOT})
--trace FILE|-  at the end, when each case was measured and how fast it was, for Perfetto and chrome://tracing
--prometheus FILE|-  at the end, bandwidth, share of attainable and flags of each case, for the textfile collector of
  node_exporter (FILE.prom); such a file is replaced
--resume RUN  continue a run: its folder, or its id below --output
-q, --quiet  no progress and no summary, only warnings and errors
"""

DRY_RUN = """\
--dry-run  print the cases with bytes, FLOPs, memory and time; measure nothing
"""

LIMITS = f"""\
--max-total-seconds SECONDS  for the whole run, opening the device and roofs included; the remaining cases are skipped,
  and the picture has five seconds more
--max-case-seconds SECONDS  for one case, which then fails (default: ten minutes and fifty times its estimate)
--max-seconds SECONDS  of sampling for one case (default: the suite's, else {DEFAULT_CASE_SECONDS:g})
"""

SAMPLING = """\
--target-seconds SECONDS  time for all cases together: fewer samples each, nothing is skipped (default: the suite's)
--rel-ci FRACTION  sampling stops when the median is known to this: 0.01, or 1% (default: 0.5%)
"""

ROOFS = """\
--roofs auto|stored|RUN|FILE  what rows are compared with: roofs that are stored and checked, or measured now (auto, the
  default); stored ones, unchecked; those of a run, or of a file of bwprof roofs export
--no-roofs  a quick look: leave the columns that need roofs empty
--recalibrate  measure the device's roofs again and store them (in $XDG_CACHE_HOME or ~/.cache)
"""

VERBOSE = """\
--verbose  log each step
"""


class _StoreOnce(argparse.Action):
    """An option with one value: it may stand once, and its value is not empty."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        seen = vars(namespace).setdefault("_seen", {})
        if option_string is not None and self.dest in seen:
            parser.error(f"{option_string} is given twice: '{seen[self.dest]}' and '{values}'")
        if option_string is not None and values == "":
            raise ValueError(f"{option_string} is '': a value is needed")
        seen[self.dest] = values
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser of a command, its options in a table: no abbreviations, and no option with one value twice.

    `defaults` are the values of options that are not typed; of one with an optional value, that value.
    """

    def __init__(self, program: str, description: str, table: str = "", epilog: str = "", **defaults: Any) -> None:
        super().__init__(
            prog=program,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)
        self._add(table, defaults)
        self.set_defaults(parser=self, **defaults)

    def _add(self, table: str, defaults: dict[str, Any]) -> None:
        group: argparse._ActionsContainer = self
        for line in re.sub(r"\n +", " ", table).splitlines():
            if line == "one of:":
                group = group.add_mutually_exclusive_group()
            elif line.endswith(":"):
                group = self.add_argument_group(line[:-1])
            elif line:
                signature, _, text = line.partition("  ")
                names, keywords = _declaration(signature, defaults)
                group.add_argument(*names, help=text.strip().replace("%", "%%"), **keywords)

    def names(self, options: argparse.Namespace) -> dict[str, str]:
        """List the options that were typed: by destination, as people type them."""
        known = [action for action in self._actions if action.default != argparse.SUPPRESS]
        typed = [action for action in known if getattr(options, action.dest) not in (action.default, [])]
        return {
            action.dest: action.option_strings[-1] if action.option_strings else str(action.metavar) for action in typed
        }


def _declaration(signature: str, defaults: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Read the left side of a table's line: the arguments of `add_argument`."""
    if not signature.startswith("-"):
        found = re.fullmatch(r"(\w+)=(.+?)([?*+]?)", signature)
        assert found
        return [found[1]], {"metavar": found[2], "nargs": found[3] or None}
    names, _, value = re.fullmatch(r"(-[^ ,]+(, -[^ ,]+)*) ?(.*)", signature).groups()  # type: ignore[union-attr]
    if names.startswith("--[no-]"):
        return [f"--{names[7:]}"], {"action": argparse.BooleanOptionalAction}
    if not value:
        return names.split(", "), {"action": "store_true"}
    if value.endswith(" ..."):
        return names.split(", "), {"action": "append", "default": [], "metavar": value[:-4]}
    if value.startswith("["):
        const = defaults.pop(names[2:].replace("-", "_"))
        return [names], {"metavar": value[1:-1], "nargs": "?", "const": const}
    return names.split(", "), {"metavar": value}


class MixedParser(Parser):
    """A parser that takes options between the positional arguments."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        return self.parse_intermixed_args(args, namespace)


def typed(
    options: argparse.Namespace, ignored: Collection[str] = (), *, only: Collection[str] | None = None
) -> list[str]:
    """List the options that were typed, as people type them, but for the `ignored` destinations, or `only` some."""
    names = options.parser.names(options).items()
    return [name for dest, name in names if dest not in ignored and (only is None or dest in only)]


def refuse_others(options: argparse.Namespace, reason: str, *allowed: str) -> None:
    """Raise ValueError, with the reason, where options other than the `allowed` destinations were typed."""
    if others := typed(options, allowed):
        raise ValueError(f"{reason}: leave out {', '.join(others)}")


def run(parser: Parser, arguments: Sequence[str] | None, command: Callable[[argparse.Namespace], int]) -> int:
    """Parse the arguments and run a command; returns its exit code."""

    def parse_and_run() -> int:
        try:
            options = parser.parse_args(arguments)
        except SystemExit as ended:
            return USAGE if ended.code else OK
        logging.basicConfig(stream=sys.stderr, format="bwprof: %(levelname)s: %(message)s", force=True)
        return command(options)

    return guarded(lambda: coded(parse_and_run))


def run_measuring(
    parser: Parser, arguments: Sequence[str] | None, command: Callable[[argparse.Namespace, Interrupts], int]
) -> int:
    """Run a command that measures, as `run` does the others; returns the exit code."""

    def run_with_interrupts(options: argparse.Namespace) -> int:
        logging.getLogger().setLevel(logging.DEBUG if getattr(options, "verbose", False) else logging.WARNING)
        for noisy in ("matplotlib", "PIL"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        with Interrupts() as interrupts:
            return command(options, interrupts)

    return run(parser, arguments, run_with_interrupts)


def split(values: Iterable[str], name: str) -> tuple[str, ...]:
    """Split the values of a repeatable option at commas."""
    result: list[str] = []
    for value in values:
        words = [word.strip() for word in value.split(",") if word.strip()]
        if not words:
            raise ValueError(f"{name} is '{quote_text(value)}': at least one name is needed")
        result += words
    return tuple(result)


def read_roofs(options: argparse.Namespace) -> RoofsArgument | None:
    """Read what rows are compared with; None where no option is typed."""
    for name, value in (("--roofs", options.roofs), ("--recalibrate", options.recalibrate)):
        if options.no_roofs and value:
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


def read_seconds(options: argparse.Namespace, name: str, *, from_zero: bool = False) -> float | None:
    """Read an option in seconds by its destination; None where it is not typed."""
    value = getattr(options, name)
    option = f"--{name.replace('_', '-')}"
    return None if value is None else parse_seconds(value, option, from_zero=from_zero, text=True)


def read_fraction(options: argparse.Namespace, name: str) -> float | None:
    """Read an option that is a fraction or per cent by its destination; None where it is not typed."""
    value = getattr(options, name)
    return None if value is None else parse_fraction(value, f"--{name.replace('_', '-')}")


def read_share(text: str, name: str, alternative: str = "") -> float:
    """Read a share, as 0.9 or 90%; the message names the `alternative` that is allowed, too."""
    value = number_or_nan(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if math.isnan(value):
        raise ValueError(f"{name} is '{quote_text(text)}': a share such as 0.1 or 10% is needed{alternative}")
    return value


def read_positive(text: str | None, name: str, allowed: str) -> float | None:
    """Read a positive number that a row can hold; None where the option is not typed."""
    value, (least, most, _) = None if text is None else number_or_nan(text), range_of("peak_gb_s")
    if value is not None and not least <= value <= most:
        raise ValueError(f"{name} is '{quote_text(text)}': {allowed} is needed")
    return value


def read_numbers(text: str, name: str) -> tuple[int, ...]:
    """Read a list of numbers with commas and ranges."""
    numbers = tuple(expand_ranges((word for word in text.split(",") if word.strip()), name))
    if not numbers:
        raise ValueError(f"{name}: no values in '{quote_text(text)}'")
    return numbers


def read_params(values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read the values of `-p NAME=V1,V2,...`."""
    params: dict[str, tuple[int, ...]] = {}
    for item in values:
        name, equals, numbers = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise ValueError(f"--param is '{quote_text(item)}': NAME=V1,V2,... is needed")
        if name in params:
            raise ValueError(f"--param {name} is given twice")
        params[name] = read_numbers(numbers, f"--param {name}")
    return params


def read_single_params(values: Sequence[str]) -> dict[str, int]:
    """Read the values of `-p NAME=VALUE`."""
    params: dict[str, int] = {}
    for name, numbers in read_params(values).items():
        if name == "kv_lens":
            raise ValueError(registry.describe_unknown_param("", name, ()))
        if len(numbers) != 1:
            raise ValueError(f"--param {quote_text(name)} has {len(numbers)} values: one is needed")
        params[name] = numbers[0]
    return params


def read_efficiency(text: str | None) -> float | pd.DataFrame:
    """Read the efficiency of predicted kernels: a share, or the rows of measured results."""
    if text is None:
        return DEFAULT_EFFICIENCY
    if reader.find_recorded(Path(text)).exists():
        return reader.load(text)
    return read_share(text, "--efficiency", ", or a run's folder or file")


_DESCRIPTION = """\
Measure the memory bandwidth of LLM operations, and what a narrower precision brings. Without arguments: the default
suite on the first GPU, or on the CPU where there is none.
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

Numbers take the suffixes k, M, G (1000) and Ki, Mi, Gi (1024). Lists of them take ranges: 128..64Ki:x2 doubles,
1..64:+8 adds (1, 9, ..., 57).
Times are in ms, bandwidths in GB/s (10^9 bytes). Rows are written as soon as they are measured.
exit codes: 0 ok (skipped cases included), 2 usage, 3 incomplete (a case failed or rows could not be written),
130 interrupted.
"""

_COLUMNS = """\
--columns A,B,…  print a line for each row, with these columns, instead of the summary
"""

_HOW = f"""\
how:
{DRY_RUN}
--list  print operations, parameters, variants and suites; with --verbose the kernels, too
{LIMITS}
{SAMPLING}
{ROOFS}
--once  launch each case exactly once, untimed, in this process (for ncu, nsys); a library runs the algorithm that its
  heuristic puts first; a profiler also sees the kernels that fill the operands
--[no-]nvtx  mark cases with NVTX ranges, in the domain bwprof (default: where nsys or ncu --nvtx watches; --nvtx warns
  where none does)
"""


def parser(program: str) -> Parser:
    """Make the parser of ``bwprof sweep``."""
    example = next((row for row in registry.operations() if not row["is_stream"]), registry.operations()[0])
    param = example["params"][0]
    values = ",".join(str(param["default"] * factor) for factor in (1, 2, 4))
    epilog = _EPILOG.replace("{first}", example["name"]).replace("{param}", param["name"]).replace("{values}", values)
    table = OPERATIONS + VERBOSE + CASES_AND_DEVICES + OUTPUT + _COLUMNS + _HOW
    return Parser(program, _DESCRIPTION, table, epilog, seed="0", proof_bundle=ROOT)


def read_request(options: argparse.Namespace) -> SweepRequest:
    """Read which cases to measure; ValueError for values that cannot be read."""
    return SweepRequest(
        operations=split(options.operations, "OPERATION"),
        params=read_params(options.param),
        seq_lengths=() if options.seq_lengths is None else read_numbers(options.seq_lengths, "--seq-lengths"),
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
        target_seconds=read_seconds(options, "target_seconds"),
        kv_lens=registry.parse_lengths(options.kv_lens, "--kv-lens"),
        rel_ci=read_fraction(options, "rel_ci"),
        max_seconds=read_seconds(options, "max_seconds", from_zero=True),
        only=split(options.only, "--only"),
    )


def read_columns(options: argparse.Namespace) -> tuple[str, ...] | None:
    """Read the columns to print instead of the summary; None where the option is not typed."""
    from bwprof.analysis.summarize import check_columns

    names = getattr(options, "columns", None)
    if names is not None and options.quiet:
        raise ValueError("--columns says what to print, --quiet prints nothing: leave one out")
    return None if names is None else check_columns(parse_names("--columns", names))


# Options that choose cases, those of them that say how precisely to measure, and those that an estimate depends on.
_PRECISION = {"target_seconds", "max_seconds", "rel_ci"}
_CASES = _PRECISION | {
    "operations",
    "param",
    "seq_lengths",
    "kv_lens",
    "precision",
    "suite",
    "only",
    "variant",
    "cache",
}
_CASES |= {"seed", "backend", "device", "timer", "counters", "metrics"}
_USED = {
    "--once": _CASES - _PRECISION - {"timer", "counters", "metrics"} | {"once", "dry_run", "resume", "nvtx"},
    "--dry-run": _CASES - {"rel_ci"} | {"dry_run", "resume", "recalibrate", "roofs", "no_roofs"},
    "--list": set(),
}


def case_options(options: argparse.Namespace) -> list[str]:
    """List the typed options that choose cases."""
    return typed(options, only=_CASES)


def unused_options(options: argparse.Namespace, mode: str) -> list[str]:
    """List the typed options that a mode (--once, --dry-run, --list), which measures and writes nothing, cannot use."""
    return typed(options, _USED[mode] | {"list", "quiet", "verbose"})
