"""The command line of ``bwprof sweep``: its options, and what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from bwprof import registry
from bwprof.cli.shared.arguments import BACKEND_HELP, DEVICE_HELP, Parser
from bwprof.records.proof import ROOT
from bwprof.roofs import Given, files
from bwprof.roofs.given import WORDS, check
from bwprof.runs.plan import DEFAULT_CASE_SECONDS, Request
from bwprof.text import fraction, parse_count, quoted, seconds, spread, unknown, words

DEFAULT_OUTPUT = Path("bwprof-results")

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
    result.add_argument("operations", nargs="*", metavar="OPERATION", help="operations to run (see --list)")
    add_what(result)
    add_output(result).add_argument(
        "--columns", metavar="A,B,…", help="print a line for each row, with these columns, instead of the summary"
    )
    how = result.add_argument_group("how")
    how.add_argument("--dry-run", action="store_true", help="print the cases with bytes, FLOPs, memory and time")
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
    result.add_argument("--verbose", action="store_true", help="log what is going on")
    result.add_old_name("--max-time", "--max-total-seconds")
    result.add_old_name("--max-case-time", "--max-case-seconds")
    return result


def add_what(parser: argparse.ArgumentParser) -> None:
    """The options that say which cases to measure, and where."""
    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "-p",
        "--param",
        action="append",
        default=[],
        metavar="NAME=V1,V2,…",
        help="values of a parameter; several lists are swept as their product (repeatable)",
    )
    what.add_argument(
        "--seq-lengths",
        metavar="N,…",
        help="sequence lengths in tokens: seq_len where an operation has it, else kv_len; without operations, "
        "every attention-like one",
    )
    what.add_argument(
        "--kv-lens", metavar="N,…", help="lengths of a batch's entries, tokens, for operations that take them"
    )
    what.add_argument("--precision", action="append", default=[], metavar="P,…", help="precisions, e.g. fp32,fp16")
    what.add_argument("--suite", metavar="NAME|FILE.toml", help="a list of cases; with operations, only theirs")
    what.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN,…",
        help="of these, the cases whose name, or whose operation's, a pattern matches: 'attention*'",
    )
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
        "sectors, dram, sm, or all (GPU; needs privileges)",
    )
    what.add_argument("--seed", default="0", metavar="N", help="of the generated inputs (default: 0)")
    where = parser.add_argument_group("where")
    where.add_argument(
        "--device",
        metavar="D,…|all",
        help=f"{DEVICE_HELP}; several, one after the other: 0,1 or cuda:0,cpu, or all of the backend",
    )
    where.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)


def add_output(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The options that say where a run writes; their group."""
    out = parser.add_argument_group("output")
    out.add_argument(
        "--output",
        metavar="DIR",
        help=f"parent of the run's folder (default: {DEFAULT_OUTPUT}), or one file ending in .json or .csv",
    )
    out.add_argument("--csv", metavar="FILE|-", help="rows as CSV as well, '-' for standard output")
    out.add_argument("--json", metavar="FILE|-", help="rows, samples and metadata as JSON as well, '-' likewise")
    out.add_argument(
        "--classic-csv",
        metavar="FILE|-",
        help="at the end, the finished rows in the nine classic columns alone, for older tools: the case's name as "
        "operation, precisions in capital letters",
    )
    out.add_argument(
        "--proof-bundle",
        nargs="?",
        const=ROOT,
        metavar="ROOT",
        help=f"at the end, a bundle of reports, metadata, results and picture in ROOT/RUN_ID (default: {ROOT})",
    )
    out.add_argument("--resume", metavar="RUN", help="go on with a run: its folder, or its id below --output")
    out.add_argument("--force", action="store_true", help="replace files that these options name")
    out.add_argument("--quiet", action="store_true", help="no progress and no summary, only warnings and errors")
    return out


def add_limits(how: argparse._ArgumentGroup) -> None:
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


def add_sampling(how: argparse._ArgumentGroup) -> None:
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


def add_roofs(how: argparse._ArgumentGroup) -> None:
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


def _example_text() -> str:
    """The epilog, with an operation of the registry in its examples."""
    shown = next((row for row in registry.operations() if not row["is_stream"]), registry.operations()[0])
    param = shown["params"][0]
    values = ",".join(str(param["default"] * factor) for factor in (1, 2, 4))
    return _EPILOG.replace("{first}", shown["name"]).replace("{param}", param["name"]).replace("{values}", values)


def request(options: argparse.Namespace) -> Request:
    """What the options ask for; ValueError for values that cannot be read."""
    return Request(
        operations=_words(options.operations, "OPERATION"),
        params=read_params(options.param),
        seq_lengths=numbers(options.seq_lengths, "--seq-lengths") if options.seq_lengths is not None else (),
        precisions=_words(options.precision, "--precision"),
        variants=_words(options.variant, "--variant"),
        caches=_words(options.cache, "--cache"),
        suite=options.suite,
        backend=options.backend,
        device=options.device,
        seed=_number(options.seed, "--seed"),
        timer=options.timer,
        counters=options.counters,
        metrics=_words(options.metrics, "--metrics"),
        target_seconds=limit(options.target_seconds, "--target-seconds"),
        kv_lens=numbers(options.kv_lens, "--kv-lens") if options.kv_lens is not None else None,
        rel_ci=fraction(options.rel_ci, "--rel-ci") if options.rel_ci is not None else None,
        max_seconds=limit(options.max_seconds, "--max-seconds", from_zero=True),
        only=_words(options.only, "--only"),
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
    if not Path(options.roofs).exists():
        raise ValueError(unknown("roofs", options.roofs, [*WORDS, "RUN", "FILE.json"], where="--roofs"))
    try:
        return files.read(Path(options.roofs))
    except ValueError as error:
        raise ValueError(f"--roofs {error}") from None


def check_paths(options: argparse.Namespace) -> None:
    """ValueError for a file or folder without a name: a shell variable that was not set."""
    for name in ("suite", "output", "csv", "json", "classic_csv", "proof_bundle", "resume"):
        if getattr(options, name) == "":
            raise ValueError(f"--{name.replace('_', '-')} is '': a name is needed")


def columns(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The columns to print instead of the summary, None for that; ValueError for an unknown one."""
    from bwprof.analysis.views import check_columns

    given = getattr(options, "columns", None)
    if given is not None and options.quiet:
        raise ValueError("--columns says what to print, --quiet prints nothing: leave one out")
    return None if given is None else check_columns(words("--columns", given))


def asks_for_cases(options: argparse.Namespace) -> list[str]:
    """The options given that say which cases to run."""
    given = {
        "OPERATION": options.operations,
        "--param": options.param,
        "--seq-lengths": options.seq_lengths,
        "--kv-lens": options.kv_lens,
        "--precision": options.precision,
        "--suite": options.suite,
        "--only": options.only,
        "--variant": options.variant,
        "--cache": options.cache,
        "--seed": options.seed != "0",
        "--backend": options.backend,
        "--device": options.device,
        "--timer": options.timer,
        "--counters": options.counters,
        "--metrics": options.metrics,
        "--target-seconds": options.target_seconds,
        "--max-seconds": options.max_seconds,
        "--rel-ci": options.rel_ci,
    }
    return [name for name, value in given.items() if value]


def meaningless(options: argparse.Namespace, instead: str) -> list[str]:
    """The options given that `instead` (--once, --dry-run, --list), which measures and writes nothing, cannot use."""
    given = {
        "--once": options.once and instead != "--once",
        "--dry-run": options.dry_run and instead == "--list",
        "--recalibrate": options.recalibrate,
        "--roofs": options.roofs,
        "--no-roofs": options.no_roofs,
        "--target-seconds": options.target_seconds,
        "--max-seconds": options.max_seconds,
        "--rel-ci": options.rel_ci,
        "--output": options.output,
        "--csv": options.csv,
        "--json": options.json,
        "--classic-csv": options.classic_csv,
        "--proof-bundle": options.proof_bundle,
        "--force": options.force,
        "--columns": options.columns,
        "--resume": options.resume if instead == "--list" else None,
        "--max-total-seconds": options.max_total_seconds,
        "--max-case-seconds": options.max_case_seconds,
    }
    if instead == "--once":
        given |= {"--timer": options.timer, "--counters": options.counters, "--metrics": options.metrics}
    if instead == "--list":
        given |= dict.fromkeys(asks_for_cases(options), True)
    return [name for name, value in given.items() if value]


def limit(given: str | None, name: str, *, from_zero: bool = False) -> float | None:
    """The value of an option in seconds, None where it was not given; ValueError when it is no such number."""
    return None if given is None else seconds(given, name, from_zero=from_zero, text=True)


def _words(values: Iterable[str], name: str) -> tuple[str, ...]:
    found: list[str] = []
    for value in values:
        words = [word.strip() for word in value.split(",") if word.strip()]
        if not words:
            raise ValueError(f"{name} is '{quoted(value)}': at least one name is needed")
        found += words
    return tuple(found)


def _number(text: str, name: str) -> int:
    return parse_count(text, name)


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
