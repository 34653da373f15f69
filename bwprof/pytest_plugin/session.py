"""A pytest session's rows, its baselines, and its summary."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from bwprof.environment import new_run_id
from bwprof.hardware import Choice
from bwprof.records import baselines
from bwprof.records.baselines import Baseline
from bwprof.records.keys import case_key, portable_names
from bwprof.records.regression.comparison import compare_sources, parse_fail_on
from bwprof.records.regression.report import describe_undecided, format_change
from bwprof.records.regression.verdicts import FASTER, SAME, SLOWER
from bwprof.records.source import describe_disturbed, load_source, make_source, save_baseline
from bwprof.results.row import Row
from bwprof.text.formatting import format_path, plural
from bwprof.text.terminal import make_console, print_table

_WIDTH = 400  # a test is on one line, so that a search finds it
_TEXTS = {"test": "case", "precision": "precision"}
_NUMBERS = {"time ms": ("time_ms", ".4g"), "GB/s": ("bandwidth_gb_s", ".4g"), "% attainable": ("pct_attainable", ".1f")}


class Session:
    """One process's part of a session: each worker of pytest-xdist has its own, and the main process gets all rows."""

    def __init__(
        self, *, here: Path, baseline: str | None, fail_on: str | None, save: str | None, force: bool, dir: str | None
    ) -> None:
        """Check the options; raise OSError or ValueError for a wrong one."""
        self.run_id = new_run_id()
        self.roofs_missing = False  # measuring roofs did not help a row without them
        self._folder = here / (baselines.FOLDER if dir is None else dir)
        self._fail_on = parse_fail_on(fail_on, "--bwprof-fail-on")
        if fail_on is not None and baseline is None:
            raise ValueError("--bwprof-fail-on needs what to compare with: --bwprof-baseline NAME")
        self._base = None if baseline is None else load_source(baseline, folder=self._folder)
        self._save, self._force = save, force
        if save is not None:
            try:
                baselines.check_free(save, self._folder, force=force)
            except FileExistsError:
                raise ValueError(
                    f"--bwprof-save: there is a baseline '{save}' already; --bwprof-force replaces it"
                ) from None
        self._devices: set[tuple[str, int, str]] = set()
        self._verdicts: dict[object, dict[str, str]] = {}
        self._rows: dict[object, dict[str, Any]] = {}
        self._notes: list[str] = []

    def roofs(self, choice: Choice, cache: str) -> Literal["auto", "stored"]:
        """Return "auto" once a device, then "stored": roofs are checked once a session."""
        device = (choice.backend, choice.index, cache)
        first = device not in self._devices
        self._devices.add(device)
        return "auto" if first else "stored"

    def check_row(self, row: Row, retry: Callable[[], tuple[Row, str]], *, tries: int) -> str:
        """Compare a row with the baseline; return a description if it fails the gate, else "".

        The row replaces the baseline's own in a comparison of all rows, which share the chance of a false alarm. One
        that would fail is measured once more by `retry`, and both must agree; `tries`: in how many processes.
        """
        if self._base is None:
            return ""
        base, key = self._base, case_key(row)
        name, alike = _find_name(base, str(row["case"]))
        tested = {**row, "case": name}
        names = portable_names()
        others = [entry for entry in base.rows if case_key(entry, names) != case_key(tested, names)]
        samples = [*[None] * len(others), list(row.samples_ns)]
        comparison = compare_sources(base, make_source("this session", [*others, tested], samples), tries=tries)
        rows = [line.pair.new for line in comparison.lines]
        place = next(n for n, new in enumerate(rows) if new is not None and case_key(new) == case_key(tested))
        failed, where = False, ""
        if comparison.lines[place].is_doubted(self._fail_on):
            second, where = retry()
            comparison = comparison.after_second_try({place: Row({**second, "case": name}, second.samples_ns)})
            failed = comparison.lines[place].fails(self._fail_on)
        line = comparison.lines[place]
        change = f"{format_change(line)} " if line.is_tested else ""
        verdict = line.verdict.replace("_", " ")
        outcome = self._verdicts[key] = {"verdict": f"{change}{verdict}"}
        if line.verdict not in (SLOWER, FASTER, SAME):
            why = f"{alike} of its tests end alike: pytest's --rootdir tells which" if alike else line.reason
            outcome["unjudged"] = f"{verdict}: {why}" if why else verdict
        if line.is_undecided(self._fail_on):
            outcome["undecided"] = describe_undecided(comparison, [place])
        if not failed:
            return ""
        head = f"{line.verdict} than baseline '{base.name}': {row['case']}: {change.strip()}"
        return "\n  ".join([head, *filter(None, (comparison.cause(place), line.reason, where))])

    def encode_rows(self, rows: Sequence[Row]) -> str:
        """Return rows as text, which a report carries; "" for none."""
        documents = [
            {
                "row": dict(row),
                "samples": row.samples_ns if self._save else None,
                **self._verdicts.get(case_key(row), {}),
            }
            for row in rows
        ]
        return json.dumps(documents, default=str) if documents else ""

    def add(self, text: str) -> None:
        """Add the rows that a report carries; those of a repeated test replace earlier ones."""
        for document in json.loads(text):
            self._rows[case_key(document["row"])] = document

    def finish(self, exit_status: int) -> bool:
        """Judge the gate and save the baseline, once all rows are there; False where either fails."""
        judged = self._judge()
        return (self._save is None or self._write(self._save, exit_status)) and judged

    def _judge(self) -> bool:
        if self._base is None or not self._rows:
            return True
        rows = self._rows.values()
        reasons = Counter(row["unjudged"] for row in rows if row.get("unjudged"))
        self._notes += [f"{count} of {len(rows)} rows {reason}" for reason, count in reasons.items()]
        failures = [row["undecided"] for row in rows if row.get("undecided")]
        if not failures and self._fail_on != "never" and reasons.total() == len(rows):
            failures = [f"baseline '{self._base.name}' could judge none of the rows"]
        self._notes += [f"--bwprof-fail-on failed: {failure}" for failure in failures]
        return not failures

    def _write(self, name: str, exit_status: int) -> bool:
        rows = list(self._rows.values())
        if exit_status:
            self._notes.append(f"baseline '{name}' was not saved: the session failed")
            return True
        source = make_source("session", [entry["row"] for entry in rows], [entry["samples"] for entry in rows])
        try:
            if not rows:
                raise ValueError("no test measured anything with the fixture 'bandwidth'")
            path = save_baseline(name, source, folder=self._folder, force=self._force)
        except (OSError, ValueError) as error:
            self._notes.append(f"baseline '{name}' was not saved: {error}")
            return False
        self._notes.append(f"baseline '{name}' ({plural(len(rows), 'case')}) is in {format_path(path)}")
        self._notes += filter(None, [describe_disturbed(name, source.rows)])
        return True

    def lines(self) -> list[str]:
        """Return the summary: a table of the rows, and notes; nothing for a session without either."""
        if not self._rows:
            return list(self._notes)
        more = [] if self._base is None else ["baseline"]
        cells = [
            [
                *_figures(entry["row"]),
                *([entry.get("verdict", "")] if more else []),
                str(entry["row"].get("flags") or ""),
            ]
            for entry in self._rows.values()
        ]
        text = io.StringIO()
        screen = make_console(text)
        screen.width = _WIDTH
        print_table(screen, [*_TEXTS, *_NUMBERS, *more, "flags"], cells, numbers=[*_NUMBERS, *more])
        return [line.rstrip() for line in text.getvalue().splitlines() if line.strip()] + self._notes


def _find_name(base: Baseline, case: str) -> tuple[str, int]:
    """Return a test's name in the baseline, and how many names there end alike where it has none.

    A node id begins at pytest's root folder, which an option can change: the end of the id identifies the test.
    """
    names = {str(row["case"]) for row in base.rows}
    alike = [name for name in names if name.endswith(f"/{case}") or case.endswith(f"/{name}")]
    if case in names or len(alike) != 1:
        return case, 0 if case in names else len(alike)
    return alike[0], 0


def _figures(row: dict[str, Any]) -> list[str]:
    texts = [str(row.get(name) or "") for name in _TEXTS.values()]
    numbers = [(row.get(name), form) for name, form in _NUMBERS.values()]
    return [*texts, *("-" if value is None else format(value, form) for value, form in numbers)]
