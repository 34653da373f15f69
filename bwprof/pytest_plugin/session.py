"""What a session of pytest measures, is held against, and leaves behind."""

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
from bwprof.records.keys import case_key, portable_key
from bwprof.records.regression.comparison import compare_sources, parse_fail_on
from bwprof.records.regression.report import describe_undecided, format_change
from bwprof.records.regression.verdicts import FASTER, SAME, SLOWER
from bwprof.records.save_baseline import describe_disturbed, save_baseline
from bwprof.records.source import Source, load_source
from bwprof.results.row import Row
from bwprof.text.formatting import format_path, plural
from bwprof.text.terminal import make_console, new_table

_COLUMNS = ("test", "precision", "time ms", "GB/s", "% attainable", "baseline", "flags")

_WIDTH = 400  # a test keeps its line, to be searched for

_NUMBERS = ("time ms", "GB/s", "% attainable", "baseline")


class Session:
    """One process's part of a session: of workers of pytest-xdist each has its own, and one gets all rows."""

    def __init__(
        self, *, here: Path, baseline: str | None, fail_on: str | None, save: str | None, force: bool, dir: str | None
    ) -> None:
        """Options as given.

        Raises
        ------
        OSError, ValueError
            For a baseline that is not there or cannot be read, one to save that is there, and words that say nothing.
        """
        self.run_id = new_run_id()
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
        self._seen: set[tuple[str, int, str]] = set()
        self._verdicts: dict[object, dict[str, str]] = {}
        self._hopeless = False
        self._rows: dict[object, dict[str, Any]] = {}
        self._notes: list[str] = []

    def roofs(self, choice: Choice, cache: str) -> Literal["auto", "stored"]:
        """Stored roofs are checked once a session, not before each row."""
        seen = (choice.backend, choice.index, cache)
        first = seen not in self._seen
        self._seen.add(seen)
        return "auto" if first else "stored"

    def may_lack_roofs(self, *, found: bool | None = None) -> bool:
        """Whether a row without roofs is worth another try with "auto"; `found`: whether one brought them."""
        if found is not None:
            self._hopeless = not found
        return not self._hopeless

    def hold(self, row: Row, again: Callable[[], tuple[Row, str]], *, tries: int) -> str:
        """Hold a row against the baseline; "", or in words what fails the test.

        The row stands among the baseline's own: what cases wander is learnt from all of them, and all share the chance
        of a false alarm. One that would fail is measured once more by `again`, which says where, and both must say so;
        `tries`: in how many processes that makes.
        """
        if self._base is None:
            return ""
        base, own = self._base, case_key(row)
        name, alike = _name_in(base, str(row["case"]))
        tested = {**row, "case": name}
        others = [one for one in base.rows if portable_key(one) != portable_key(tested)]
        samples = [*[None] * len(others), list(row.samples_ns)]
        found = compare_sources(base, Source("this session", [*others, tested], samples), tries=tries)
        place = next(
            n
            for n, line in enumerate(found.lines)
            if line.pair.new is not None and case_key(line.pair.new) == case_key(tested)
        )
        failed, where = False, ""
        if found.doubted(found.lines[place], self._fail_on):
            second, where = again()
            found = found.after_second_try({place: Row({**second, "case": name}, second.samples_ns)})
            failed = found.fails(found.lines[place], self._fail_on)
        line = found.lines[place]
        change = "" if line.test is None else f"{format_change(line)} "
        word = line.verdict.replace("_", " ")
        self._verdicts[own] = {"verdict": f"{change}{word}"}
        if line.verdict not in (SLOWER, FASTER, SAME):
            why = f"{alike} of its tests end alike: pytest's --rootdir tells which" if alike else line.reason
            self._verdicts[own]["unjudged"] = f"{word}: {why}" if why else word
        if found.undecided(line, self._fail_on):
            self._verdicts[own]["undecided"] = describe_undecided(found, [place])
        if not failed:
            return ""
        words = [f"{line.verdict} than baseline '{base.name}': {row['case']}: {change.strip()}"]
        words += [f"  {said}" for said in (found.cause(place), line.reason, where) if said]
        return "\n".join(words)

    def told(self, rows: Sequence[Row]) -> str:
        """Rows as text, which a report can carry; "" for none."""
        found = [
            {
                "row": dict(row),
                "samples": row.samples_ns if self._save else None,
                **self._verdicts.get(case_key(row), {}),
            }
            for row in rows
        ]
        return json.dumps(found, default=str) if found else ""

    def add(self, told: str) -> None:
        """What a report carried. Of a test that is run again the last row counts."""
        for one in json.loads(told):
            self._rows[case_key(one["row"])] = one

    def finish(self, exit_status: int) -> bool:
        """At the end, where all rows are: what the gate could judge, and the baseline. False when it was no gate, or
        nothing could be saved.
        """
        judged = self._judged()
        return (self._save is None or self._saved(self._save, exit_status)) and judged

    def _judged(self) -> bool:
        """Says what the baseline did not judge; False when a gate judged nothing of what was measured."""
        if self._base is None or not self._rows:
            return True
        why = Counter(one["unjudged"] for one in self._rows.values() if one.get("unjudged"))
        self._notes += [f"{count} of {len(self._rows)} rows {said}" for said, count in why.items()]
        gated = self._fail_on != "never"
        undecided = [one["undecided"] for one in self._rows.values() if one.get("undecided")]
        if undecided:
            self._notes += [f"--bwprof-fail-on failed: {said}" for said in undecided]
            return False
        if gated and why.total() == len(self._rows):
            self._notes.append(f"--bwprof-fail-on failed: baseline '{self._base.name}' could judge none of the rows")
            return False
        return True

    def _saved(self, name: str, exit_status: int) -> bool:
        known = list(self._rows.values())
        if exit_status:
            self._notes.append(f"baseline '{name}' was not saved: the session failed")
            return True
        source = Source("session", [one["row"] for one in known], [one["samples"] for one in known])
        try:
            if not known:
                raise ValueError("no test measured anything with the fixture 'bandwidth'")
            path = save_baseline(name, source, folder=self._folder, force=self._force)
        except (OSError, ValueError) as error:
            self._notes.append(f"baseline '{name}' was not saved: {error}")
            return False
        self._notes.append(f"baseline '{name}' ({plural(len(known), 'case')}) is in {format_path(path)}")
        self._notes += filter(None, [describe_disturbed(name, source.rows)])
        return True

    def lines(self) -> list[str]:
        """The summary: a table of the rows, and what was saved; nothing where nothing was measured or asked for."""
        if not self._rows:
            return list(self._notes)
        text = io.StringIO()
        screen = make_console(text)
        screen.width = _WIDTH
        hidden = {"baseline"} if self._base is None else set()
        shown = [name for name in _COLUMNS if name not in hidden]
        made = new_table(screen, "", shown, numbers=[name for name in _NUMBERS if name not in hidden])
        for one in self._rows.values():
            cells = _cells(one)
            made.add_row(*(cells[name] for name in shown))
        screen.print(made)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return [line for line in lines if line] + self._notes


def _name_in(base: Source, case: str) -> tuple[str, int]:
    """Return a test's name in the baseline, and how many names there end alike where it has none.

    An id begins at pytest's root folder, which an option can move: the end of the id tells the test.
    """
    names = {str(row["case"]) for row in base.rows}
    alike = [name for name in names if name.endswith(f"/{case}") or case.endswith(f"/{name}")]
    if case in names or len(alike) != 1:
        return case, 0 if case in names else len(alike)
    return alike[0], 0


def _cells(one: dict[str, Any]) -> dict[str, str]:
    row = one["row"]

    def figure(name: str, form: str) -> str:
        return "-" if row.get(name) is None else format(row[name], form)

    values = (
        str(row["case"]),
        str(row.get("precision") or ""),
        figure("time_ms", ".4g"),
        figure("bandwidth_gb_s", ".4g"),
        figure("pct_attainable", ".1f"),
        one.get("verdict", ""),
        str(row.get("flags") or ""),
    )
    return dict(zip(_COLUMNS, values, strict=True))
