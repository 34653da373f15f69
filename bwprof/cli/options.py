"""Command lines: commands, their parsers, the options that they share, and the values of options.

Options stand in tables, a line each, which `Command.parser` reads::

    what to measure:
    --precision P,… ...    precisions, such as fp32,fp16
    --counters             count the DRAM and L2 bytes of a launch
      (a line with an indent goes on with the line above it)

A line that ends in a colon opens a group; "one of:" opens a group of options that exclude each other. A signature
without a value is a flag; "..." makes an option repeatable, brackets around its value make that optional, "--[no-]"
takes both forms. A positional argument is ``name=METAVAR``, with ``?``, ``*`` or ``+`` behind it. The name of a value
is its type where `_READERS` has it. ``--top N = 3`` has a default, of an optional value what stands for it.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.prediction import DEFAULT_EFFICIENCY
from bwprof.cli.guard import OK, USAGE, coded, guarded
from bwprof.records.proof import ROOT
from bwprof.results import reader
from bwprof.results.schema import range_of
from bwprof.roofs import store
from bwprof.roofs.model import ROOF_CHOICES, RoofsArgument, check_roofs
from bwprof.runs.channel import Interrupts
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.text.formatting import plural
from bwprof.text.parsing import (
    check_known,
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
operations=OPERATION*  operations or cases of a suite; bwprof sweep --list names them
"""

PARAM = """\
-p, --param NAME=V1,V2,… ...  values of a parameter: M=1,16, kv_len=1Ki..64Ki:x2 (doubled) or M=1..64:+8 (steps of 8);
  of several lists each combination is a case (repeatable)
"""

SINGLE_PARAM = """\
-p, --param NAME=VALUE ...  the value of a parameter (repeatable)
"""

KV_LENS = """\
--kv-lens LENGTH,…  cache length of each sequence of a batch, in tokens: 100,7Ki (for operations that take it)
"""

ONLY = """\
--only PATTERN,… ...  only cases whose name or operation matches a pattern, such as 'attention*'
"""

CASES = f"""\
{PARAM}
--seq-len, --seq-lengths N,…  sequence lengths in tokens: values of seq_len, or of kv_len if an operation lacks it;
  without OPERATION: measure the attention operations
{KV_LENS}
--precision P,… ...  precisions, such as fp32,fp16
--suite NAME|FILE.toml  a list of cases; with OPERATION only the cases that it names
{ONLY}"""

DEVICE = """\
--device D  cpu, cuda, cuda:1 or a number (default: the first GPU, else the CPU)
--backend NAME  cuda or cpu, like --device cuda and --device cpu
"""

CASES_AND_DEVICES = f"""\
what to measure:
{CASES}
--impl, --variant V,… ...  variants to run, or all (default: the best one for the shape)
--cache cold|hot|both,… ...  cold: inputs outside the cache; hot: inside; both: a row of each (default: the
  suite's, else cold)
--timer NAME  on a GPU: graph (default), events (biased by microseconds) or cupti (kernel timestamps); on a CPU:
  monotonic
--counters  count the DRAM and L2 bytes of a launch with hardware counters (GPU; needs privileges)
--metrics M,… ...  replay each launch many times and count tensor, fma, occupancy, stalls, bank_conflicts, sectors,
  dram, sm, caches, or all (GPU; needs privileges)
--seed N = 0  seed of the generated inputs

where:
--device D,…|all  cpu, cuda, cuda:1 or a number (default: the first GPU, else the CPU); several run in turn: 0,1 or
  cuda:0,cpu; all: every device of the backend
--backend NAME  cuda or cpu, like --device cuda and --device cpu
"""

FILES = """\
--csv FILE|-  write rows as CSV; - is standard output
--json FILE|-  write rows and metadata as JSON; - is standard output
--force  replace existing files
"""

MARKDOWN = """\
--md FILE|-  write tables as Markdown; - is standard output
"""

EFFICIENCY = f"""\
--efficiency SHARE|RUN|FILE  the share of its roof that a kernel reaches, such as 80%, or results to learn it from
  (default: {DEFAULT_EFFICIENCY:.0%})
"""

OUTPUT = f"""\
output:
--output DIR  parent of the run's folder (default: {DEFAULT_OUTPUT}), or one file ending in .json or .csv
{FILES}
--classic-csv FILE|-  at the end write a CSV of nine columns, operation to bytes_written, for older tools
--proof-bundle [ROOT] = {ROOT}  at the end write reports, metadata, results and a picture to ROOT/RUN_ID
--trace FILE|-  at the end write a timeline of the cases, for Perfetto and chrome://tracing
--prometheus FILE|-  at the end replace FILE: bandwidth, % attainable and flags of each case, for node_exporter
--resume RUN  continue a run: its folder, or its id below --output
-q, --quiet  print warnings and errors only
"""

DRY_RUN = """\
--dry-run  print the cases with bytes, FLOPs, memory and time; measure nothing
"""

LIMITS = f"""\
--max-total-seconds SECONDS  limit of the whole run: bwprof skips later cases (drawing may take five seconds more)
--max-case-seconds SECONDS  limit of one case, which then fails (default: ten minutes plus fifty times its estimate)
--max-seconds SECONDS|0  limit of one case's sampling, after its first ten samples (default: the suite's, else
  {DEFAULT_CASE_SECONDS:g})
"""

SAMPLING = """\
--target-seconds SECONDS  sampling time of the whole run, divided among its cases (default: the suite's)
--rel-ci SHARE  stop sampling when the median is known within this share, such as 1% (default: 0.5%)
"""

ROOFS = """\
--roofs auto|stored|RUN|FILE  the roofs to compare rows with. auto (default): stored ones if they pass a check, else
  measured now; stored: without a check; RUN or FILE: those of a run, or of bwprof roofs export
--no-roofs  use no roofs: quicker, but leaves columns empty
--recalibrate  measure the device's roofs again, and store them in $XDG_CACHE_HOME or ~/.cache
"""

VERBOSE = """\
--verbose  log each step
"""

CALLER_FIGURES = """\
--bytes NAME=READ,WRITTEN ...  bytes that a launch must move: '*copy*=64Mi,64Mi' (kernel's name or pattern; repeatable)
--peak GB/S  theoretical memory bandwidth, for rows without one
"""

_RESULT_HELP = "a run's folder, a .csv or .json file of results, or a recorded run (bwprof --help): h200"

RESULT = f"""\
results=RUN|FILE  {_RESULT_HELP}
{ONLY}"""

RESULTS = f"""\
results=RUN|FILE+  {_RESULT_HELP}
{ONLY}"""

_MOST_NAMES = 12  # in a message


def split(text: str, name: str) -> tuple[str, ...]:
    """Split the value of an option at commas."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError(f"{name} is '{quote_text(text)}': at least one name is needed")
    return words


def read_share(text: str, name: str, alternative: str = "") -> float:
    """Read a share, as 0.9 or 90%; the message names the `alternative` that is allowed, too."""
    value = number_or_nan(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is '{quote_text(text)}': a share such as 10% is needed{alternative}")
    return value


def _read_positive(text: str, name: str, needed: str) -> float:
    """Read a positive number that a row can hold."""
    value, (least, most, _) = number_or_nan(text), range_of("peak_gb_s")
    if not least <= value <= most:
        raise ValueError(f"{name} is '{quote_text(text)}': {needed} is needed")
    return value


def _read_numbers(text: str, name: str) -> tuple[int, ...]:
    """Read a list of numbers with commas and ranges."""
    numbers = tuple(expand_ranges((word for word in text.split(",") if word.strip()), name))
    if not numbers:
        raise ValueError(f"{name}: no values in '{quote_text(text)}'")
    return numbers


# By the name of an option's value in the tables: what reads it.
_READERS: dict[str, Callable[[str, str], Any]] = {
    "N": parse_count,
    "BYTES": parse_count,
    "N,…": _read_numbers,
    "LENGTH,…": registry.parse_lengths,
    "SECONDS": partial(parse_seconds, text=True),
    "SECONDS|0": partial(parse_seconds, from_zero=True, text=True),
    "SHARE": parse_fraction,
    "SHARE|0": read_share,
    "GB/S": partial(_read_positive, needed="a bandwidth in GB/s"),
    "US": partial(_read_positive, needed="a positive number of microseconds"),
    **dict.fromkeys(("P,…", "V,…", "M,…", "PATTERN,…", "cold|hot|both,…"), split),
}


def read_value(value: Any, metavar: Any, name: str) -> Any:
    """Read the text of an option's value as its table says."""
    return _READERS[metavar](value, name) if metavar in _READERS and isinstance(value, str) else value


class _Store(argparse.Action):
    """An option with one value: it may stand once, and its value is not empty."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        seen = vars(namespace).setdefault("seen", {})
        if option_string is not None and self.dest in seen:
            parser.error(f"{option_string} is given twice: '{seen[self.dest]}' and '{values}'")
        if option_string is not None:
            if values == "":
                raise ValueError(f"{option_string} is '': a value is needed")
            seen[self.dest] = values
        setattr(namespace, self.dest, read_value(values, self.metavar, "".join(self.option_strings[-1:])))


class _Extend(_Store):
    """A repeatable option: a list of its values."""

    def __call__(self, _parser: Any, namespace: Any, values: Any, _option: str | None = None) -> None:
        value = read_value(values, self.metavar, self.option_strings[-1])
        words = value if isinstance(value, tuple) else [value]
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *words])


def _declaration(line: str) -> tuple[list[str], dict[str, Any]]:
    """Read a table's line: the arguments of `add_argument`."""
    signature, _, text = line.partition("  ")
    signature, _, default = signature.partition(" = ")
    more = f" (default: {default})" if default not in ("", "-") else ""
    keywords: dict[str, Any] = {"help": (text.strip() + more).replace("%", "%%")}
    if not signature.startswith("-"):
        found = re.fullmatch(r"(\w+)=(.+?)([?*+]?)", signature)
        assert found
        return [found[1]], keywords | {"metavar": found[2], "nargs": found[3] or None, "default": default or None}
    flags, _, value = re.fullmatch(r"(-[^ ,]+(, -[^ ,]+)*) ?(.*)", signature).groups()  # type: ignore[union-attr]
    names = flags.split(", ")
    if flags.startswith("--[no-]"):
        return [f"--{flags[7:]}"], keywords | {"action": argparse.BooleanOptionalAction}
    keywords["dest"] = names[-1].lstrip("-").replace("-", "_")
    if not value:
        return names, keywords | {"action": "store_true"}
    if value.endswith(" ..."):
        return names, keywords | {"action": _Extend, "default": [], "metavar": value[:-4]}
    if value.startswith("["):
        return names, keywords | {"metavar": value[1:-1], "nargs": "?", "const": default}
    if default:
        keywords["default"] = read_value(default, value, names[-1])
    return names, keywords | {"metavar": value}


def typed(options: argparse.Namespace, only: Collection[str] | None = None) -> dict[str, str]:
    """Return the options that were typed, of `only` some destinations: by destination, as people type them."""
    return {
        action.dest: action.option_strings[-1] if action.option_strings else str(action.metavar)
        for action in options.parser._actions
        if action.default != argparse.SUPPRESS
        and (action.dest in getattr(options, "seen", ()) or getattr(options, action.dest) not in (action.default, []))
        and (only is None or action.dest in only)
    }


def refuse_others(options: argparse.Namespace, reason: str, *allowed: str) -> None:
    """Raise ValueError, with the reason, where options other than the `allowed` destinations were typed."""
    if others := [name for dest, name in typed(options).items() if dest not in allowed]:
        raise ValueError(f"{reason}: leave out {', '.join(others)}")


@dataclass(frozen=True, slots=True)
class Command:
    """A command: it takes the arguments and returns the exit code.

    Its function gets the options, with `argv`, the time of the `started` command (time.monotonic()), and where it is
    `measuring`, `interrupts`. The function's docstring is the text of --help, options and `epilog` before its examples.
    In a `mixed` command line options stand between positional arguments. `defaults` are attributes of the options that
    the command line does not have.
    """

    program: str
    function: Callable[[argparse.Namespace], int]
    table: str
    epilog: str = ""
    defaults: dict[str, Any] = field(default_factory=dict)
    measuring: bool = False
    mixed: bool = False

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        started = time.monotonic()
        argv = list(sys.argv[1:] if arguments is None else arguments)
        return guarded(lambda: coded(lambda: self._run(argv, started)))

    def parser(self) -> argparse.ArgumentParser:
        """Make the parser of the command line: no abbreviations, and no option with one value twice."""
        text = inspect.cleandoc(self.function.__doc__ or "")
        description, title, examples = text.partition("\n\nExamples:\n")
        parser = argparse.ArgumentParser(
            prog=self.program,
            usage=self.defaults.get("usage"),
            description=description,
            epilog=f"{self.epilog}{title.strip()}\n{examples}" if examples else self.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.register("action", None, _Store)
        group: argparse._ActionsContainer = parser
        for line in re.sub(r"\n +", " ", self.table).splitlines():
            if line == "one of:":
                group = group.add_mutually_exclusive_group()
            elif line.endswith(":"):
                group = parser.add_argument_group(line[:-1])
            elif line:
                names, keywords = _declaration(line)
                group.add_argument(*names, **keywords)
        parser.set_defaults(parser=parser, **self.defaults)
        return parser

    def _run(self, argv: list[str], started: float) -> int:
        parser = self.parser()
        try:
            options = parser.parse_intermixed_args(argv) if self.mixed else parser.parse_args(argv)
        except SystemExit as ended:
            return USAGE if ended.code else OK
        logging.basicConfig(stream=sys.stderr, format="bwprof: %(levelname)s: %(message)s", force=True)
        logging.getLogger().setLevel(logging.DEBUG if getattr(options, "verbose", False) else logging.WARNING)
        for noisy in ("matplotlib", "PIL"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        options.argv, options.started = argv, started
        if not self.measuring:
            return self.function(options)
        with Interrupts() as options.interrupts:
            try:
                return self.function(options)
            finally:
                if unused := getattr(options, "early", None):
                    unused.end()


def command(
    table: str = "", epilog: str = "", *, measuring: bool = False, mixed: bool = False, **defaults: Any
) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Make a function ``main_NAME`` the command ``bwprof NAME``; see `Command`."""

    def make(function: Callable[[argparse.Namespace], int]) -> Command:
        program = function.__name__.replace("main_", "bwprof ").replace("_", " ")
        return Command(program, function, table, epilog, defaults, measuring, mixed)

    return make


measuring_command = partial(command, measuring=True)


def read_roofs(options: argparse.Namespace) -> RoofsArgument | None:
    """Read what rows are compared with; None where no option is typed."""
    others = {"--no-roofs": options.no_roofs, "--roofs": options.roofs, "--recalibrate": options.recalibrate}
    several = [name for name, value in others.items() if value]
    if len(several) > 1 and (options.no_roofs or options.roofs not in (None, "auto")):
        raise ValueError(f"{' and '.join(several)} contradict each other: leave one out")
    if options.no_roofs:
        return False
    if options.roofs is None:
        return "auto" if options.recalibrate else None
    if options.roofs in ROOF_CHOICES:
        return check_roofs(options.roofs)
    if not reader.find_recorded(Path(options.roofs)).exists():
        raise ValueError(describe_unknown("roofs", options.roofs, [*ROOF_CHOICES, "RUN", "FILE.json"], where="--roofs"))
    try:
        return store.read(Path(options.roofs))
    except ValueError as error:
        raise ValueError(f"--roofs {error}") from None


def read_params(values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read the values of `-p NAME=V1,V2,...`."""
    params: dict[str, tuple[int, ...]] = {}
    for item in values:
        name, equals, numbers = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise ValueError(f"--param is '{quote_text(item)}': NAME=V1,V2,... is needed")
        if name in params:
            raise ValueError(f"--param {name} is given twice")
        params[name] = _read_numbers(numbers, f"--param {name}")
    return params


def read_single_params(values: Sequence[str]) -> dict[str, int]:
    """Read the values of `-p NAME=VALUE`."""
    params = read_params(values)
    if "kv_lens" in params:
        raise ValueError(registry.describe_unknown_param("", "kv_lens", ()))
    for name, numbers in params.items():
        if len(numbers) != 1:
            raise ValueError(f"--param {quote_text(name)} has {len(numbers)} values: one is needed")
    return {name: numbers[0] for name, numbers in params.items()}


def read_efficiency(text: str | None) -> float | pd.DataFrame:
    """Read the efficiency of predicted kernels: a share, or the rows of measured results."""
    if text is None:
        return DEFAULT_EFFICIENCY
    if reader.find_recorded(Path(text)).exists():
        return reader.load(text)
    return read_share(text, "--efficiency", ", or a run's folder or file")


def load_rows(name: str, only: Sequence[str]) -> pd.DataFrame:
    """Read the rows of results that --only selects."""
    return select_rows(reader.load(name), only)


def select_rows(data: pd.DataFrame, only: Sequence[str], precision: str | None = None) -> pd.DataFrame:
    """Select the rows that --only and --precision match; ValueError where they match none."""
    import numpy as np

    from bwprof.analysis import values

    matches = np.ones(len(data), bool)
    if precision is not None:
        names = map(registry.precision_name, parse_names("--precision", precision))
        matches &= values.is_word(data, "precision", *names)
    if only:
        columns = [values.words(data, name).astype(str) for name in ("case", "operation", "kernel")]
        rows = zip(*columns, strict=True)
        matches &= [any(fnmatchcase(name, pattern) for name in row for pattern in only) for row in rows]
    if len(data) and not matches.any():
        options = [("only", ",".join(only)), ("precision", precision)]
        filters = " and ".join(f"--{name} '{quote_text(value)}'" for name, value in options if value)
        known = [f"{name}s are {_list_words(data, name)}" for name in ("case", "precision") if name in data.columns]
        raise ValueError(f"{filters}: none is left of {plural(len(data), 'row')}: {'; '.join(known)}")
    return data if matches.all() else data[matches]


def _list_words(data: pd.DataFrame, name: str) -> str:
    words = list(dict.fromkeys(map(quote_text, data[name].dropna().astype(str))))
    more = f" and {len(words) - _MOST_NAMES} more" if len(words) > _MOST_NAMES else ""
    return f"{', '.join(words[:_MOST_NAMES]) or 'not known'}{more}"


def add_caller_figures(data: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """Fill in the bytes and the peak of --bytes and --peak; ValueError where the rows cannot have them."""
    from bwprof.importers.timeline import add_bytes, add_peak

    if options.bytes:
        data = add_bytes(data, _read_bytes(options.bytes))
    return data if options.peak is None else add_peak(data, options.peak)


def _read_bytes(values: Sequence[str]) -> dict[str, tuple[int, int]]:
    result: dict[str, tuple[int, int]] = {}
    for text in values:
        name, _, counts = text.rpartition("=")
        read, _, written = counts.partition(",")
        if not name or not written:
            example = "NAME=READ,WRITTEN is needed, such as '*copy*=64Mi,64Mi'"
            raise ValueError(f"--bytes is '{quote_text(text)}': {example}")
        if name in result:
            raise ValueError(f"--bytes {quote_text(name)} is given twice")
        result[name] = (parse_count(read, "--bytes"), parse_count(written, "--bytes"))
    return result


def run_group(name: str, words: Sequence[str], usage: str, commands: Mapping[str, Callable[[list[str]], int]]) -> int:
    """Run one of a command's own commands, or print the usage; returns the exit code."""

    def choose() -> int:
        if not words or words[0] in ("-h", "--help", "help"):
            (sys.stdout if words else sys.stderr).write(usage)
            return OK if words else USAGE
        check_known("command", words[0], commands, where=f"bwprof {name}")
        return commands[words[0]](list(words[1:]))

    return guarded(lambda: coded(choose))
