"""The commands ``bwprof history`` (runs over time) and ``bwprof outliers`` (which device is slow)."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwprof.cli.display import print_lines
from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, OK
from bwprof.cli.inputs import RESULTS, load_rows
from bwprof.cli.options import DEFAULT_OUTPUT, Parser, read_fraction, run
from bwprof.cli.output import check_picture, choose_targets, emit
from bwprof.results.pairs import DEFAULT_GATE, find_disturbances, find_doubts
from bwprof.text.formatting import format_short, plural
from bwprof.text.parsing import parse_count, parse_fraction, quote_text
from bwprof.text.terminal import make_console, new_table, print_fitted

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

_MOST_LINES = 20  # runs of a table, unless --last says otherwise
_BESIDE_NOTES = 58  # letters of a run's other columns
_LEAST_NOTES = 22  # both together fit into 80

_DESCRIPTION = """\
Print what all runs below a folder have measured, over time: a line for each case, or for each run of the CASEs. Marked
is where the time, driver, version of bwprof, variant or device of a case changes; devices and hosts stay apart.
"""

_TABLE = f"""\
cases=CASE*  cases whose runs are listed: names of cases or operations, or patterns as '*_8b'
--folder, --dir DIR  where run folders are, at any depth ({DEFAULT_OUTPUT})
--precision LIST  only these precisions: fp32,fp16
--device LIST  only devices of these names or patterns: '*H200*'
--last N  only the last N runs (tables have {_MOST_LINES} without it)
--gate FRACTION  smallest difference to report: 0.05, or 5% (default: {DEFAULT_GATE:g})
--plot FILE  draw the times into a picture; its ending says the format
--force  replace a picture that is there
one of:
--csv  print the rows as CSV instead
--json  print the rows as JSON instead
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
    parser = Parser("bwprof history", _DESCRIPTION, _TABLE, _EPILOG, folder=str(DEFAULT_OUTPUT))
    return run(parser, arguments, _run)


def _run(options: argparse.Namespace) -> int:
    from rich.progress import Progress

    from bwprof.records.history import history
    from bwprof.results import frame

    if options.plot is not None:
        check_picture("--plot", options.plot, force=options.force)
    targets = choose_targets(options)
    quiet = not sys.stderr.isatty()
    with Progress(console=make_console(sys.stderr), transient=True, disable=quiet) as bar:
        task = bar.add_task("reading runs", total=None)
        runs = history(
            options.folder,
            options.cases or None,
            options.precision,
            device=options.device,
            last=None if options.last is None else parse_count(options.last, "--last"),
            gate=DEFAULT_GATE if options.gate is None else options.gate,
            progress=None if quiet else lambda done, total: bar.update(task, completed=done, total=total),
        )
    if options.plot is not None:
        from bwprof.plot import regressions

        regressions.save_trend(runs, options.plot)
    texts = {
        "csv": lambda: frame.format_csv(runs),
        "json": lambda: runs.to_json(orient="records", date_format="iso", indent=1) + "\n",
    }
    is_printed = options.plot is None or options.cases
    return emit(targets, texts, (lambda screen: _show(runs, options, screen)) if is_printed else None)


def _show(data: pd.DataFrame, options: argparse.Namespace, screen: Console) -> None:
    if not len(data):
        runs = data.attrs["runs"]
        reason = f"{runs} runs without rows" if runs else "no runs; bwprof sweep makes one"
        screen.print(f"{quote_text(options.folder)}: {reason}")
        return
    if not options.cases:
        for _, rows in data.groupby(["hostname", "device"], sort=False, observed=True, dropna=False):
            print_fitted(screen, _overview(screen, rows, _place(rows.iloc[-1])))
            screen.print("")
        screen.print(_count_text(data))
        return
    several = len(data[["device", "hostname"]].drop_duplicates()) > 1
    for _, rows in data.groupby("series", sort=False):
        last = rows if options.last is not None else rows.iloc[-_MOST_LINES:]
        left_out = f" (the last {len(last)} of {len(rows)} runs: see --last)" if len(last) < len(rows) else ""
        screen.print(_title(rows.iloc[-1], several=several) + left_out)
        print_fitted(screen, _runs(screen, last))
        screen.print("")


def _place(row: Any) -> str:
    device, host = (_word(row[name]) for name in ("device", "hostname"))
    return " on ".join(part for part in (device, host) if part) or "a device"


def _overview(screen: Console, data: pd.DataFrame, title: str) -> Table:
    """Make a table with a line for each case: its last state, and how often it changed."""
    numbers = ["runs", "time", "GB/s", "before"]
    grid = new_table(screen, title, ["case", "precision", *numbers, "changes"], numbers=numbers)
    grid.columns[0].max_width = 22
    grid.columns[-1].max_width = 17
    cases = [rows for _, rows in data.groupby("series", sort=False)]
    names = Counter((rows["case"].iloc[-1], rows["precision"].iloc[-1]) for rows in cases)
    for rows in cases:
        row = rows.iloc[-1]
        name = f"{_name(row)} {_word(row['variant'])}" if names[row["case"], row["precision"]] > 1 else _name(row)
        grid.add_row(
            *(name, _word(row["precision"]), str(len(rows)), _time(row), _figure(row["bandwidth_gb_s"])),
            *(_percent(row), "; ".join(filter(None, (_doubts(row), _changes(rows))))),
        )
    return grid


def _doubts(row: Any) -> str:
    if row["status"] != "ok":
        return _word(row["status"]) if row["time_ms"] == row["time_ms"] else ""
    return ", ".join((*find_disturbances(row), *find_doubts(row)))


def _changes(rows: pd.DataFrame) -> str:
    """Describe when a case became slower or faster last, and how often it did."""
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
    """Make a table with a line for each run of a case."""
    numbers = ["time", "+-%", "GB/s", "change"]
    grid = new_table(screen, "", ["started (UTC)", *numbers, "notes"], numbers=numbers)
    grid.columns[-1].max_width = max(_LEAST_NOTES, screen.width - _BESIDE_NOTES)
    for _, row in rows.iterrows():
        figures = (_time(row), _interval(row), _figure(row["bandwidth_gb_s"]))
        change = f"{row['change']} {_percent(row)}".strip()  # of the time, from the run before
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


def _count_text(data: pd.DataFrame) -> str:
    runs = plural(data["folder"].nunique(), "run")
    days = f"{_day(data['started'].min())} to {_day(data['started'].max())}"
    changes = plural(int(data["change"].isin(["slower", "faster"]).sum()), "change")
    return f"{runs}, {days}; {changes} of time\nits runs, case by case: bwprof history CASE"


_OUTLIERS_DESCRIPTION = """\
Print which of several devices is slow, by how much, in which operation. The others of its name are the reference, and
their scatter is the threshold; RUNs are of one device each, or one is of several (bwprof sweep --device all).
"""

_OUTLIERS_TABLE = f"""\
{RESULTS}
--gate FRACTION  smallest difference to report: 0.05, or 5% (default: 0.01)
--fail-on WHAT  exit with 1 when: slow (any device is), 5% (one is slow, by so much or more), never (default)
--csv  print CSV instead: a line for each device and operation
"""

_OUTLIERS_EPILOG = """\
exit codes: 0, 1 (the gate of --fail-on failed), 2 (usage), 3 (with --fail-on: no device is slow, and one has failed or
is undecided)

examples:
  %(prog)s RUN                       a run of several devices
  %(prog)s HOST1 HOST2 HOST3         runs of one device each
  %(prog)s RUN --only 'attention*' --fail-on 5%%
"""


def main_outliers(arguments: Sequence[str] | None = None) -> int:
    """Print which devices are slow; returns the exit code."""
    parser = Parser("bwprof outliers", _OUTLIERS_DESCRIPTION, _OUTLIERS_TABLE, _OUTLIERS_EPILOG, fail_on="never")
    return run(parser, arguments, _run_outliers)


def _run_outliers(options: argparse.Namespace) -> int:
    from bwprof.records.regression.outliers import DEFAULT_GATE as SMALLEST
    from bwprof.records.regression.outliers import outliers
    from bwprof.results import frame

    gate = read_fraction(options, "gate")
    gate = SMALLEST if gate is None else gate
    fail_on = {"never": None, "slow": 0.0}.get(options.fail_on, options.fail_on)
    least = parse_fraction(fail_on, "--fail-on") if isinstance(fail_on, str) else fail_on
    targets = choose_targets(options)
    data = outliers([load_rows(path, options.only) for path in options.results], gate=gate)
    code = emit(
        targets, {"csv": lambda: frame.format_csv(data)}, lambda screen: print_lines(screen, _answer(data, gate))
    )
    return code or _gate_code(data, least)


def _gate_code(data: pd.DataFrame, least: float | None) -> int:
    """Return the exit code of a gate: a device is slow by `least` or more, as a fraction; None for no gate."""
    if least is None:
        return OK
    slow = data[data["verdict"] == "slow"]
    if (slow[["slow_pct", "worst_pct"]].max(axis=1) >= 100 * least).any():
        return GATE_FAILED
    return INCOMPLETE if data.empty or data["verdict"].isin(["undecided", "failed"]).any() else OK


def _answer(data: pd.DataFrame, gate: float) -> list[str]:
    """List the devices and operations that stand out, then a line for each kind of device."""
    records = [{str(name): value for name, value in line.items()} for line in data.to_dict(orient="records")]
    lines = [
        f"{_device(line)}: {line['verdict']} in {line['operation']}: {_describe_outlier(line)}"
        for line in records
        if line["verdict"] in ("slow", "failed", "fast")
    ]
    for device in dict.fromkeys(line["device"] for line in records):
        lines += _describe_kind(quote_text(device), [line for line in records if line["device"] == device], gate)
    return lines or ["no results"]


def _describe_kind(device: str, lines: list[dict[str, Any]], gate: float) -> list[str]:
    undecided = [line for line in lines if line["verdict"] == "undecided"]
    if len(undecided) == len(lines):
        slower = [line for line in lines if line["slower"]]
        texts = [f"{_device(line)}: {line['operation']}: {_describe_outlier(line)}" for line in slower]
        return [f"{device}: undecided: {lines[0]['reason']}", *texts]
    if undecided:
        return [f"{_device(line)}: undecided in {line['operation']}: {line['reason']}" for line in undecided]
    if any(line["verdict"] == "slow" for line in lines):
        return []
    count = lines[0]["devices"]
    cases = sum(line["cases"] for line in lines) // count
    return [f"{device}: none of {count} devices is slow (gate {gate:.3g}, {cases} cases each)"]


def _device(line: dict[str, Any]) -> str:
    return " ".join(filter(None, (_word(line[name]) for name in ("hostname", "device", "device_uuid")))) or "a device"


def _describe_outlier(line: dict[str, Any]) -> str:
    parts = []
    if line["cases"]:
        share = f"{format_short(line['slow_pct'], '+.1f')} % of time"
        parts.append(f"{share} (median of {line['cases']} cases, {line['slower']} slower)")
        parts.append(f"at most {format_short(line['worst_pct'], '+.1f')} % ({line['worst_case']})")
    if line["failed"]:
        parts.append(f"{line['failed']} failed here alone")
    if isinstance(line["throttle"], str):
        parts.append(f"clock held down: {line['throttle']}")
    return "; ".join(parts)
