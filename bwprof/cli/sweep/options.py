"""The command line of ``bwprof sweep``: its options, and what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bwprof import registry
from bwprof.cli.shared.arguments import BACKEND_HELP, DEVICE_HELP, Parser
from bwprof.cli.shared.options import (
    add_cases,
    add_dry_run,
    add_limits,
    add_operations,
    add_output,
    add_roofs,
    add_sampling,
    limit,
    numbers,
    read_params,
    split,
)
from bwprof.runs.plan import Request
from bwprof.text import fraction, parse_count, words

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
        operations=split(options.operations, "OPERATION"),
        params=read_params(options.param),
        seq_lengths=numbers(options.seq_lengths, "--seq-lengths") if options.seq_lengths is not None else (),
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
        target_seconds=limit(options.target_seconds, "--target-seconds"),
        kv_lens=registry.lengths(options.kv_lens, "--kv-lens"),
        rel_ci=fraction(options.rel_ci, "--rel-ci") if options.rel_ci is not None else None,
        max_seconds=limit(options.max_seconds, "--max-seconds", from_zero=True),
        only=split(options.only, "--only"),
    )


def columns(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The columns to print instead of the summary, None for that; ValueError for an unknown one."""
    from bwprof.analysis.views import check_columns

    given = getattr(options, "columns", None)
    if given is not None and options.quiet:
        raise ValueError("--columns says what to print, --quiet prints nothing: leave one out")
    return None if given is None else check_columns(words("--columns", given))


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


def asks_for_cases(options: argparse.Namespace) -> list[str]:
    """The options given that say which cases to run."""
    return _typed(options, _CASES.split())


def meaningless(options: argparse.Namespace, instead: str) -> list[str]:
    """The options given that `instead` (--once, --dry-run, --list), which measures and writes nothing, cannot use."""
    names = [name for name in _RUNS.split() if name not in _USED[instead].split()]
    return _typed(options, [*names, *_UNUSED[instead].split()])


def _typed(options: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """Of these options those that were given, each once, as people type them."""
    unset: dict[str, tuple[object, ...]] = {"seed": ("0",), "nvtx": (None,)}
    unset |= {name: (None, False, [], "") for name in names if name not in unset}
    given = [name for name in dict.fromkeys(names) if getattr(options, name) not in unset[name]]
    return ["OPERATION" if name == "operations" else f"--{name.replace('_', '-')}" for name in given]
