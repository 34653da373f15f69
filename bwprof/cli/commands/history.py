"""The commands ``bwprof history`` (runs over time) and ``bwprof outliers`` (which device is slow)."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bwprof.cli.commands.analyze import wrapped
from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, OK, data_stream
from bwprof.cli.inputs import RESULT, load_rows
from bwprof.cli.options import Parser, run
from bwprof.cli.output import check_picture
from bwprof.results.pairs import DEFAULT_GATE, find_disturbances, find_doubts
from bwprof.text.formatting import format_short
from bwprof.text.parsing import parse_count, parse_fraction, quote_text
from bwprof.text.terminal import make_console, new_table, print_fitted

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

_FOLDER = "bwprof-results"

_MOST_LINES = 20  # runs of a table, unless --last says otherwise

_LEAST_FOR_BAR = 64  # runs to read: fewer take no time

_BESIDE_NOTES = 58  # letters of a run's other columns

_LEAST_NOTES = 22  # both together fit into 80

_DESCRIPTION = """\
What all runs below a folder have measured, over time: a line for each case, or each run of the CASEs (names of cases
or operations, or patterns as '*_8b'). Where the time of a case differs from the run's before, it is said; so is what
changed besides: driver, bwprof's version, variant, device. Devices and hosts are kept apart.
"""

_EPILOG = """\
examples:
  %(prog)s                                     the last state of every case
  %(prog)s decode_gemm --precision fp16        its runs
  %(prog)s 'attention*' --plot attention.png   a picture of them
  %(prog)s --csv > all.csv
"""


def main_history(arguments: Sequence[str] | None = None) -> int:
    """Print the history; returns the exit code."""
    return run(parser(), arguments, _print)


def parser() -> Parser:
    """The command's options."""
    made = Parser("bwprof history", _DESCRIPTION, _EPILOG)
    made.add_argument("cases", nargs="*", metavar="CASE", help="cases whose runs are listed")
    made.add_argument(
        "--folder", "--dir", default=_FOLDER, metavar="DIR", help=f"where run folders are, at any depth ({_FOLDER})"
    )
    made.add_argument("--precision", metavar="LIST", help="fp32,fp16: only these")
    made.add_argument("--device", metavar="LIST", help="only devices of these names; patterns will do: '*H200*'")
    made.add_argument("--last", metavar="N", help=f"only the last N runs (tables have {_MOST_LINES} without it)")
    made.add_argument(
        "--gate", metavar="FRACTION", help=f"smallest difference worth a word: 0.05, or 5%% (default: {DEFAULT_GATE:g})"
    )
    data = made.add_mutually_exclusive_group()
    data.add_argument("--csv", action="store_true", help="print the rows as CSV instead")
    data.add_argument("--json", action="store_true", help="print the rows as JSON instead")
    made.add_argument("--plot", metavar="FILE", help="draw the times into a picture; its ending says the format")
    made.add_argument("--force", action="store_true", help="replace a picture that is there")
    return made


def _print(options: argparse.Namespace) -> int:
    if options.plot is not None:
        check_picture("--plot", options.plot, force=options.force)
    if options.csv or options.json:
        data_stream("--csv" if options.csv else "--json")
    found = _found(options)
    if options.plot is not None:
        from bwprof.plot import regressions

        regressions.save_trend(found, options.plot)
    if options.csv:
        from bwprof.results import frame

        data_stream("--csv").write(frame.format_csv(found))
    elif options.json:
        data_stream("--json").write(found.to_json(orient="records", date_format="iso", indent=1) + "\n")
    elif options.plot is None or options.cases:
        _show(found, options)
    return OK


def _found(options: argparse.Namespace) -> pd.DataFrame:
    from bwprof.records.history.query import history

    with _bar() as progress:
        return history(
            options.folder,
            options.cases or None,
            options.precision,
            device=options.device,
            last=None if options.last is None else parse_count(options.last, "--last"),
            gate=DEFAULT_GATE if options.gate is None else options.gate,
            progress=progress,
        )


@contextmanager
def _bar() -> Iterator[Callable[[int, int], object] | None]:
    """Show on a terminal how many runs are read, if there are many."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("left:"), TimeRemainingColumn(compact=True))
    bar = Progress(TextColumn("reading runs"), *columns, console=make_console(sys.stderr), transient=True)
    task = bar.add_task("", total=None)

    def progress(done: int, total: int) -> None:
        if total >= _LEAST_FOR_BAR:
            bar.start()
            bar.update(task, completed=done, total=total)

    try:
        yield progress
    finally:
        bar.stop()


def _show(found: pd.DataFrame, options: argparse.Namespace) -> None:
    screen = make_console(sys.stdout)
    if not len(found):
        runs = found.attrs["runs"]
        said = f"{runs} runs without rows" if runs else "no runs; bwprof sweep makes one"
        screen.print(f"{quote_text(options.folder)}: {said}")
        return
    several = found[["device", "hostname"]].drop_duplicates().shape[0] > 1
    if not options.cases:
        for _, rows in found.groupby(["hostname", "device"], sort=False, observed=True, dropna=False):
            print_fitted(screen, _overview(screen, rows, _place(rows.iloc[-1])))
            screen.print("")
        screen.print(_count(found))
        return
    for _, rows in found.groupby("series", sort=False):
        shown = rows if options.last is not None else rows.iloc[-_MOST_LINES:]
        left_out = f" (the last {len(shown)} of {len(rows)} runs: see --last)" if len(shown) < len(rows) else ""
        screen.print(_title(rows.iloc[-1], several=several) + left_out)
        print_fitted(screen, _runs(screen, shown))
        screen.print("")


def _place(row: Any) -> str:
    device, host = (quote_text(row[name]) if isinstance(row[name], str) else "" for name in ("device", "hostname"))
    return " on ".join(part for part in (device, host) if part) or "a device"


def _overview(screen: Console, found: pd.DataFrame, where: str) -> Table:
    """A line for each case: where it stands, and how often it changed."""
    numbers = ["runs", "time", "GB/s", "before"]
    grid = new_table(screen, where, ["case", "precision", *numbers, "changes"], numbers=numbers)
    grid.columns[0].max_width = 22
    grid.columns[-1].max_width = 17
    lines = [rows for _, rows in found.groupby("series", sort=False)]
    names = Counter((rows["case"].iloc[-1], rows["precision"].iloc[-1]) for rows in lines)
    for rows in lines:
        row = rows.iloc[-1]
        name = f"{_name(row)} {_word(row['variant'])}" if names[row["case"], row["precision"]] > 1 else _name(row)
        grid.add_row(
            *(name, _word(row["precision"]), str(len(rows)), _time(row), _figure(row["bandwidth_gb_s"])),
            *(_percent(row), "; ".join(filter(None, (_doubts(row), _changes(rows))))),
        )
    return grid


def _doubts(row: Any) -> str:
    """Why the time that stands for a case is not to be taken for a good one."""
    if row["status"] != "ok":
        return _word(row["status"]) if row["time_ms"] == row["time_ms"] else ""
    return ", ".join((*find_disturbances(row), *find_doubts(row)))


def _changes(rows: pd.DataFrame) -> str:
    """How often a case became slower or faster, and when last."""
    changed = rows[rows["change"].isin(["slower", "faster"])]
    if not len(changed):
        return ""
    last = changed.iloc[-1]
    count = f" ({len(changed)})" if len(changed) > 1 else ""
    return f"{last['change']} {_day(last['started'])}{count}"


def _title(row: Any, *, several: bool) -> str:
    words = [_name(row), _word(row["precision"]), _word(row["variant"])]
    words += ["(hot)"] if row["cache"] == "hot" else []
    words += [f"[{_place(row)}]"] if several else []
    return " ".join(filter(None, words))


def _runs(screen: Console, rows: pd.DataFrame) -> Table:
    """A line for each run of a case."""
    numbers = ["time", "+-%", "GB/s", "change"]
    grid = new_table(screen, "", ["started (UTC)", *numbers, "notes"], numbers=numbers)
    grid.columns[-1].max_width = max(_LEAST_NOTES, screen.width - _BESIDE_NOTES)
    for _, row in rows.iterrows():
        figures = (_time(row), _interval(row), _figure(row["bandwidth_gb_s"]))
        change = f"{row['change']} {_percent(row)}".strip()  # how much longer it took than in the run before
        grid.add_row(_day(row["started"], " %H:%M"), *figures, change, _notes(row))
    return grid


def _name(row: Any) -> str:
    return quote_text(row["case"] if isinstance(row["case"], str) else row["operation"])


def _word(value: Any) -> str:
    return quote_text(value) if isinstance(value, str) else ""


def _day(time: Any, more: str = "") -> str:
    return f"{time:{'%Y-%m-%d' + more}}" if time == time else "?"  # noqa: PLR0124 - NaT is missing


def _figure(value: Any) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}" if value == value else ""  # noqa: PLR0124 - NaN is missing


def _time(row: Any) -> str:
    milliseconds = row["time_ms"]
    if milliseconds != milliseconds:  # noqa: PLR0124 - NaN is missing
        return _word(row["status"])
    return f"{milliseconds:.4g} ms" if milliseconds >= 1 else f"{milliseconds * 1e3:.4g} us"


def _interval(row: Any) -> str:
    half = (row["time_ms_hi"] - row["time_ms_lo"]) / 2 / row["time_ms"] * 100
    return f"{half:.2g}" if half < 99.5 else f"{half:.0f}" if half == half else ""  # noqa: PLR0124


def _percent(row: Any) -> str:
    ratio = row["ratio"]
    return f"{(ratio - 1) * 100:+.1f} %" if ratio == ratio else ""  # noqa: PLR0124 - NaN is missing


def _notes(row: Any) -> str:
    parts = (row["marks"], row["flags"], row["reason"] if row["status"] != "ok" else "")
    return "; ".join(_word(part) for part in parts if isinstance(part, str) and part)


def _count(found: pd.DataFrame) -> str:
    first, last = found["started"].min(), found["started"].max()
    changed = int(found["change"].isin(["slower", "faster"]).sum())
    runs = found["folder"].nunique()
    said = (
        f"{runs} run{'s' * (runs != 1)}, {_day(first)} to {_day(last)}; {changed} change{'s' * (changed != 1)} of time"
    )
    return f"{said}\nits runs, case by case: bwprof history CASE"


_OUTLIERS_DESCRIPTION = """\
Which of several devices is slow, by how much, in which operation: each is held against the others of its name, and
their own spread is the threshold. RUNs are of one device each (on several machines, say), or one is of several (bwprof
sweep --device all).
"""

_OUTLIERS_EPILOG = """\
exit codes: 0, 1 (the gate of --fail-on failed), 2 (what was asked for cannot be), 3 (with --fail-on: no device
is slow, and one has failed or is undecided)
"""


def main_outliers(arguments: Sequence[str] | None = None) -> int:
    """Print which devices are slow; returns the exit code."""
    parser = Parser("bwprof outliers", _OUTLIERS_DESCRIPTION, _OUTLIERS_EPILOG)
    RESULT(parser, nargs="+")
    parser.add_argument(
        "--gate", metavar="FRACTION", help="smallest difference worth naming: 0.05, or 5%% (default: 0.01)"
    )
    parser.add_argument(
        "--fail-on",
        metavar="WHAT",
        default="never",
        help="exit with 1 when: slow (any device is), 5%% (one is slow, by so much or more), never (default)",
    )
    parser.add_argument("--csv", action="store_true", help="print CSV instead: a line for each device and operation")
    return run(parser, arguments, _print_outliers)


def _print_outliers(options: argparse.Namespace) -> int:
    from bwprof.records.regression.outliers import DEFAULT_GATE, outliers

    gate = DEFAULT_GATE if options.gate is None else parse_fraction(options.gate, "--gate")
    fail_on = {"never": None, "slow": 0.0}.get(options.fail_on, options.fail_on)
    least = parse_fraction(fail_on, "--fail-on") if isinstance(fail_on, str) else fail_on
    found = outliers([load_rows(path, options.only) for path in options.results], gate=gate)
    if options.csv:
        from bwprof.results import frame

        data_stream("--csv").write(frame.format_csv(found))
        return _code(found, least)
    screen = make_console(sys.stdout)
    for line in _answer(found, gate):
        screen.print(wrapped(line, screen))
    return _code(found, least)


def _code(found: pd.DataFrame, least: float | None) -> int:
    """The exit code: whether a device is slow by `least` or more, as a fraction; None: nobody asks."""
    if least is None:
        return OK
    slow = found[found["verdict"] == "slow"]
    if (slow[["slow_pct", "worst_pct"]].max(axis=1) >= 100 * least).any():
        return GATE_FAILED
    return INCOMPLETE if found.empty or found["verdict"].isin(["undecided", "failed"]).any() else OK


def _answer(found: pd.DataFrame, gate: float) -> list[str]:
    """The answer first: a line for each device and operation that stands out."""
    lines = []
    records = [{str(name): value for name, value in line.items()} for line in found.to_dict(orient="records")]
    for line in records:
        if line["verdict"] in ("slow", "failed", "fast"):
            lines.append(f"{_device(line)}: {line['verdict']} in {line['operation']}: {_describe_outlier(line)}")
    kinds = {line["device"]: line["devices"] for line in records}
    for device, count in kinds.items():
        of_kind = [line for line in records if line["device"] == device]
        if all(line["verdict"] == "undecided" for line in of_kind):
            lines.append(f"{quote_text(device)}: undecided: {of_kind[0]['reason']}")
            lines += [
                f"{_device(line)}: {line['operation']}: {_describe_outlier(line)}" for line in of_kind if line["slower"]
            ]
            continue
        unsure = [line for line in of_kind if line["verdict"] == "undecided"]
        lines += [f"{_device(line)}: undecided in {line['operation']}: {line['reason']}" for line in unsure]
        if not unsure and not any(line["verdict"] == "slow" for line in of_kind):
            cases = sum(line["cases"] for line in of_kind) // count
            lines.append(f"{quote_text(device)}: none of {count} devices is slow (gate {gate:.3g}, {cases} cases each)")
    return lines or ["no results"]


def _device(line: dict[str, Any]) -> str:
    named = (line[name] for name in ("hostname", "device", "device_uuid"))
    return " ".join(quote_text(name) for name in named if isinstance(name, str) and name) or "a device"


def _describe_outlier(line: dict[str, Any]) -> str:
    parts = []
    if line["cases"]:
        parts.append(
            f"{format_short(line['slow_pct'], '+.1f')} % of time (median of {line['cases']} cases, {line['slower']} slower)"
        )
        parts.append(f"at most {format_short(line['worst_pct'], '+.1f')} % ({line['worst_case']})")
    if line["failed"]:
        parts.append(f"{line['failed']} failed here alone")
    if isinstance(line["throttle"], str):
        parts.append(f"clock held down: {line['throttle']}")
    return "; ".join(parts)
