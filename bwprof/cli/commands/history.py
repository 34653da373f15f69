"""The commands ``bwprof history`` (runs over time) and ``bwprof outliers`` (which device is slow)."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, OK
from bwprof.cli.options import DEFAULT_OUTPUT, RESULTS, command, load_rows
from bwprof.cli.output import check_picture, choose_targets, emit, writing
from bwprof.cli.render import print_lines
from bwprof.results.pairs import DEFAULT_GATE, find_disturbances, find_doubts
from bwprof.text.formatting import format_figure, format_short, is_missing, plural
from bwprof.text.parsing import parse_fraction, quote_text
from bwprof.text.terminal import make_console, new_table, print_fitted

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

_MOST_LINES = 20  # runs of a table, unless --last says otherwise
_BESIDE_NOTES = 58  # letters of a run's other columns
_LEAST_NOTES = 22  # both together fit into 80


@command(f"""\
cases=CASE*  list the runs of these cases: names of cases or operations, or patterns such as '*_8b'
--dir, --folder DIR = {DEFAULT_OUTPUT}  the folder that holds the runs' folders, at any depth
--precision LIST  only these precisions, such as fp32,fp16
--device LIST  only devices of these names or patterns, such as '*H200*'
--last N  only the last N runs (tables have {_MOST_LINES} without it)
--gate SHARE = {DEFAULT_GATE:.0%}  the smallest difference to report
--plot FILE  draw the times; the ending is the format
--force  replace an existing picture
one of:
--csv  print the rows as CSV instead
--json  print the rows as JSON instead
""")
def main_history(options: argparse.Namespace) -> int:
    """Print what the runs below a folder measured over time: a line for each case, or for each run of the CASEs.

    Marks show changes of time, driver, version of bwprof, variant or device.

    Examples:
      bwprof history                                     the last state of every case
      bwprof history decode_gemm --precision fp16        its runs
      bwprof history 'attention*' --plot attention.png   a picture of them
    """
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
            last=options.last,
            gate=options.gate,
            progress=None if quiet else lambda done, total: bar.update(task, completed=done, total=total),
        )
    if options.plot is not None:
        from bwprof.plot import regressions

        with writing():
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
            print_fitted(screen, _overview(screen, rows))
            screen.print("")
        days = f"{_day(data['started'].min())} to {_day(data['started'].max())}"
        changes = plural(len(_changes(data)), "change")
        screen.print(f"{plural(data['folder'].nunique(), 'run')}, {days}; {changes} of time")
        screen.print("its runs, case by case: bwprof history CASE")
        return
    several = len(data[["device", "hostname"]].drop_duplicates()) > 1
    for _, rows in data.groupby("series", sort=False):
        row = rows.iloc[-1]
        last = rows if options.last is not None else rows.iloc[-_MOST_LINES:]
        words = [_case(row), _word(row["precision"]), _word(row["variant"]), "(hot)" if row["cache"] == "hot" else ""]
        words += [f"[{_place(row)}]" if several else ""]
        words += [f"(the last {len(last)} of {len(rows)} runs: see --last)" if len(last) < len(rows) else ""]
        screen.print(" ".join(filter(None, words)))
        print_fitted(screen, runs_table(screen, last))
        screen.print("")


def _overview(screen: Console, data: pd.DataFrame) -> Table:
    """Make a table with a line for each case of a device: its last state, and how often it changed."""
    numbers = ["runs", "time", "GB/s", "before"]
    grid = new_table(screen, _place(data.iloc[-1]), ["case", "precision", *numbers, "changes"], numbers=numbers)
    grid.columns[0].max_width, grid.columns[-1].max_width = 22, 17
    cases = [rows for _, rows in data.groupby("series", sort=False)]
    names = Counter((rows["case"].iloc[-1], rows["precision"].iloc[-1]) for rows in cases)
    for rows in cases:
        row: Any = rows.iloc[-1]
        changed = _changes(rows)
        variant = f" {_word(row['variant'])}" if names[row["case"], row["precision"]] > 1 else ""
        doubts = ", ".join((*find_disturbances(row), *find_doubts(row)))
        if row["status"] != "ok":
            doubts = "" if is_missing(row["time_ms"]) else _word(row["status"])  # else it stands in place of the time
        count = f" ({len(changed)})" if len(changed) > 1 else ""
        change = f"{changed['change'].iloc[-1]} {_day(changed['started'].iloc[-1])}{count}" if len(changed) else ""
        time, _, speed, before = _figures(row)
        precision, notes = _word(row["precision"]), "; ".join(filter(None, (doubts, change)))
        grid.add_row(f"{_case(row)}{variant}", precision, str(len(rows)), time, speed, before, notes)
    return grid


def _changes(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["change"].isin(["slower", "faster"])]


def runs_table(screen: Console, rows: pd.DataFrame) -> Table:
    """Make a table with a line for each run of a case."""
    numbers = ["time", "+-%", "GB/s", "change"]
    grid = new_table(screen, "", ["started (UTC)", *numbers, "notes"], numbers=numbers)
    grid.columns[-1].max_width = max(_LEAST_NOTES, screen.width - _BESIDE_NOTES)
    for _, row in rows.iterrows():
        time, interval, speed, before = _figures(row)
        notes = (row["marks"], row["flags"], row["reason"] if row["status"] != "ok" else "")
        change = f"{row['change']} {before}".strip()  # of the time, from the run before
        text = "; ".join(filter(None, map(_word, notes)))
        grid.add_row(_day(row["started"], " %H:%M"), time, interval, speed, change, text)
    return grid


def _figures(row: Any) -> tuple[str, str, str, str]:
    """Return a run's time, half of its interval in %, bandwidth, and change of time in %; blank where unknown."""
    ms, speed, ratio = row["time_ms"], row["bandwidth_gb_s"], row["ratio"]
    half = (row["time_ms_hi"] - row["time_ms_lo"]) / 2 / ms * 100
    time = f"{ms:.4g} ms" if ms >= 1 else f"{ms * 1e3:.4g} us"
    return (
        _word(row["status"]) if is_missing(ms) else time,
        "" if is_missing(half) else f"{half:.2g}" if half < 99.5 else f"{half:.0f}",
        "" if is_missing(speed) else format_figure(speed, whole_from=1000),
        "" if is_missing(ratio) else f"{(ratio - 1) * 100:+.1f} %",
    )


def _case(row: Any) -> str:
    return quote_text(row["case"] if isinstance(row["case"], str) else row["operation"])


def _place(row: Any) -> str:
    return " on ".join(filter(None, (_word(row["device"]), _word(row["hostname"])))) or "a device"


def _word(value: Any) -> str:
    return quote_text(value) if isinstance(value, str) else ""


def _day(time: Any, more: str = "") -> str:
    return "?" if is_missing(time) else f"{time:{'%Y-%m-%d' + more}}"


@command(f"""\
{RESULTS}
--gate SHARE = 1%  the smallest difference to report
--fail-on slow|SHARE = never  slow: exit with 1 if a device is slow; 5%: if one is slow by 5 % or more
--csv  print CSV instead: a line for each device and operation
""")
def main_outliers(options: argparse.Namespace) -> int:
    """Print which of several devices is slow, by how much, and in which operation.

    A device is slow if the spread of the other devices of its name does not explain its times.

    Examples:
      bwprof outliers RUN                       a run of several devices (bwprof sweep --device all)
      bwprof outliers HOST1 HOST2 HOST3         runs of one device each
      bwprof outliers RUN --only 'attention*' --fail-on 5%

    exit codes: 0 ok, 1 a device is slow (--fail-on), 2 usage, 3 incomplete (--fail-on: none is slow, but one failed or
    is undecided).
    """
    from bwprof.records.regression import outliers
    from bwprof.results import frame

    least = {"never": None, "slow": 0.0}.get(options.fail_on, options.fail_on)
    if isinstance(least, str):
        least = parse_fraction(least, "--fail-on")
    targets = choose_targets(options)
    data = outliers.outliers([load_rows(path, options.only) for path in options.results], gate=options.gate)
    texts = {"csv": lambda: frame.format_csv(data)}
    code = emit(targets, texts, lambda screen: print_lines(screen, _answer(data, options.gate)))
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
    return [f"{device}: none of {count} devices is slow (gate {100 * gate:.3g} %, {cases} cases each)"]


def _device(line: dict[str, Any]) -> str:
    return " ".join(filter(None, (_word(line[name]) for name in ("hostname", "device", "device_uuid")))) or "a device"


def _describe_outlier(line: dict[str, Any]) -> str:
    slow, worst = (format_short(line[name], "+.1f") for name in ("slow_pct", "worst_pct"))
    parts = {
        f"{slow} % of time (median of {line['cases']} cases, {line['slower']} slower)": line["cases"],
        f"at most {worst} % ({line['worst_case']})": line["cases"],
        f"{line['failed']} failed here alone": line["failed"],
        f"clock held down: {line['throttle']}": isinstance(line["throttle"], str),
    }
    return "; ".join(text for text, applies in parts.items() if applies)
