"""The command line of ``bwprof sweep``: its options, and what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from bwprof import registry
from bwprof.cli.shared.arguments import BACKEND_HELP, DEVICE_HELP, Parser
from bwprof.cli.shared.options import (
    add_cases,
    add_limits,
    add_operations,
    add_output,
    add_roofs,
    add_sampling,
    limit,
    numbers,
    read_params,
)
from bwprof.runs.plan import Request
from bwprof.text import fraction, parse_count, quoted, words

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
    how.add_argument(
        "--nvtx",
        action=argparse.BooleanOptionalAction,
        help="whether tools that take NVTX ranges (nsys, ncu --nvtx) are told of cases, in the domain bwprof: by "
        "default where one watches; --nvtx also says where none does",
    )
    result.add_argument("--verbose", action="store_true", help="log what is going on")
    result.add_old_name("--max-time", "--max-total-seconds")
    result.add_old_name("--max-case-time", "--max-case-seconds")
    return result


def add_what(parser: argparse.ArgumentParser) -> None:
    """The options that say which cases to measure, and where."""
    what = parser.add_argument_group("what to measure")
    add_cases(what)
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
        "sectors, dram, sm, caches, or all (GPU; needs privileges)",
    )
    what.add_argument("--seed", default="0", metavar="N", help="of the generated inputs (default: 0)")
    where = parser.add_argument_group("where")
    where.add_argument(
        "--device",
        metavar="D,…|all",
        help=f"{DEVICE_HELP}; several, one after the other: 0,1 or cuda:0,cpu, or all of the backend",
    )
    where.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)


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
        kv_lens=registry.lengths(options.kv_lens, "--kv-lens"),
        rel_ci=fraction(options.rel_ci, "--rel-ci") if options.rel_ci is not None else None,
        max_seconds=limit(options.max_seconds, "--max-seconds", from_zero=True),
        only=_words(options.only, "--only"),
    )


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
    of_time = instead != "--dry-run"  # which estimates it
    given = {
        "--once": options.once and instead != "--once",
        "--dry-run": options.dry_run and instead == "--list",
        "--recalibrate": options.recalibrate and of_time,
        "--roofs": options.roofs and of_time,
        "--no-roofs": options.no_roofs and of_time,
        "--target-seconds": options.target_seconds and of_time,
        "--max-seconds": options.max_seconds and of_time,
        "--rel-ci": options.rel_ci,
        "--output": options.output,
        "--csv": options.csv,
        "--json": options.json,
        "--classic-csv": options.classic_csv,
        "--proof-bundle": options.proof_bundle,
        "--trace": options.trace,
        "--prometheus": options.prometheus,
        "--force": options.force,
        "--columns": options.columns,
        "--resume": options.resume if instead == "--list" else None,
        "--max-total-seconds": options.max_total_seconds,
        "--max-case-seconds": options.max_case_seconds,
        "--nvtx": options.nvtx is not None and instead != "--once",
    }
    if instead == "--once":
        given |= {"--timer": options.timer, "--counters": options.counters, "--metrics": options.metrics}
    if instead == "--list":
        given |= dict.fromkeys(asks_for_cases(options), True)
    return [name for name, value in given.items() if value]


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
