"""What a report is about: runs, each with a name, its rows as a frame, and what it wrote down about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.results.reader import find_run, load
from bwprof.roofs.limiter import with_limits
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import check_frame, parse_path, repr_short

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.analysis.answer import Answer
    from bwprof.llm.result import ModelStep
    from bwprof.results.schema import RowDict

MOST_BOTTLENECKS = 5


@dataclass(frozen=True)
class ReportRun:
    """One run: `source` is the file or folder that it was read from, "" of a frame."""

    name: str
    data: pd.DataFrame
    source: str = ""

    @cached_property
    def answer(self) -> Answer:
        """What its rows say."""
        from bwprof.analysis.answer import Answer

        return Answer(self.data, top=MOST_BOTTLENECKS)

    @cached_property
    def step(self) -> ModelStep | None:
        """The steps of a model's run; None of any other, and where not all of what was asked is there."""
        from bwprof.llm.result import ModelStep

        if self.told.get("model") is None:
            return None
        try:
            return ModelStep.from_frame(self.data)
        except (AttributeError, KeyError, TypeError, ValueError):  # damaged: it has rows all the same
            return None

    @cached_property
    def rows(self) -> list[RowDict]:
        """Its rows as dicts."""
        from bwprof.results import frame

        return frame.rows_with_comparisons(self.data)

    @property
    def told(self) -> Mapping[str, Any]:
        """What the run wrote down about itself; {} where nothing is known."""
        found = self.data.attrs.get("run")
        return found if isinstance(found, Mapping) else {}

    @property
    def minute(self) -> str:
        """The minute in which it began; "" where that is not known."""
        return min(self.each("timestamp"), default=str(self.told.get("started") or ""))[:16].replace("T", " ")

    def part(self, name: str) -> Mapping[str, Any]:
        """A part of that which is a mapping; {} where there is none."""
        found = self.told.get(name)
        return found if isinstance(found, Mapping) else {}

    def each(self, name: str) -> list[str]:
        """What a column holds, each once, in its order."""
        return list(dict.fromkeys(str(row[name]) for row in self.rows if row.get(name) not in (None, "")))


def read_runs(given: Any) -> list[ReportRun]:
    """Runs of a path, a frame, or several of them.

    Raises
    ------
    FileNotFoundError, ValueError
        When one cannot be read, or there is none.
    TypeError
        For anything else.
    """
    import pandas as pd

    given = to_pandas(given)
    if isinstance(given, (str, PathLike, pd.DataFrame)):
        given = [given]
    if not isinstance(given, Sequence):
        raise TypeError(
            f"runs is {repr_short(given)}: a run's folder, a file of results or a frame is needed, or a list"
        )
    if not given:
        raise ValueError("runs is empty: at least one is needed")
    found = [_run(one) for one in given]
    names = [run.name for run in found]
    for place, run in enumerate(found):
        if names.count(run.name) > 1:
            found[place] = ReportRun(f"{run.name} ({place + 1})", run.data, run.source)
    return found


def _run(given: Any) -> ReportRun:
    if isinstance(given, (str, PathLike)):
        path = find_run(parse_path(given, "runs"))
        data, source = load(path), str(path)
        name = path.name if path.is_dir() else path.stem
        return ReportRun(name or str(Path(path).resolve().name), with_limits(data), source)
    given = to_pandas(given)
    if type(given).__name__ == "DataFrame" or hasattr(given, "attrs"):
        run = given.attrs.get("run")
        told = run if isinstance(run, Mapping) else {}
        check_frame(given, "runs")
        ids = list(given["run_id"].dropna().unique()) if "run_id" in given.columns else []
        return ReportRun(str(told.get("run_id") or (ids[0] if len(ids) == 1 else "frame")), with_limits(given))
    raise TypeError(f"runs holds {repr_short(given)}: a run's folder, a file of results or a frame is needed")
