"""Runs of a report: their names, rows, metadata and pictures."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.results.reader import find_run, load
from bwprof.roofs.limiter import with_limits
from bwprof.text.document import Block, Paragraph, SvgPicture
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import check_frame, parse_path, repr_short

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.analysis.answer import Answer
    from bwprof.llm.result import ModelStep
    from bwprof.results.schema import RowDict

_MOST_CASES = 60
_log = logging.getLogger("bwprof.report")


@dataclass(frozen=True)
class ReportRun:
    """A run, and the file or folder that it comes from; "" for a frame."""

    name: str
    data: pd.DataFrame
    source: str = ""

    @cached_property
    def answer(self) -> Answer:
        """What its rows say."""
        from bwprof.analysis.answer import Answer

        return Answer(self.data, top=5)

    @cached_property
    def step(self) -> ModelStep | None:
        """The steps of a model's run; None for other runs, and for damaged rows."""
        from bwprof.llm.result import ModelStep

        if self.metadata.get("model") is None:
            return None
        try:
            return ModelStep.from_frame(self.data)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    @cached_property
    def rows(self) -> list[RowDict]:
        """Its rows as dicts."""
        from bwprof.results import frame

        return frame.rows_with_comparisons(self.data)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the run recorded about itself; {} where there is nothing."""
        run = self.data.attrs.get("run")
        return run if isinstance(run, Mapping) else {}

    @property
    def minute(self) -> str:
        """The minute of its start; "" where that is unknown."""
        return min(self.values("timestamp"), default=str(self.metadata.get("started") or ""))[:16].replace("T", " ")

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a mapping of the metadata; {} where there is none."""
        value = self.metadata.get(name)
        return value if isinstance(value, Mapping) else {}

    def values(self, name: str) -> list[str]:
        """Return the values of a column in their order, each once."""
        return list(dict.fromkeys(str(row[name]) for row in self.rows if row.get(name) not in (None, "")))

    def joined(self, name: str) -> str:
        """Return the values of a column as one text."""
        return ", ".join(self.values(name))


def read_runs(runs: Any) -> list[ReportRun]:
    """Read the runs of a path, a frame, or a list of them, and give each a name of its own."""
    import pandas as pd

    runs = to_pandas(runs)
    if isinstance(runs, (str, PathLike, pd.DataFrame)):
        runs = [runs]
    if not isinstance(runs, Sequence):
        raise TypeError(f"runs is {repr_short(runs)}: a run's folder, a file of results, a frame or a list is needed")
    if not runs:
        raise ValueError("runs is empty: at least one is needed")
    found = [_read_run(run) for run in runs]
    names = Counter(run.name for run in found)
    return [
        replace(run, name=f"{run.name} ({number})") if names[run.name] > 1 else run
        for number, run in enumerate(found, 1)
    ]


def _read_run(run: Any) -> ReportRun:
    import pandas as pd

    if isinstance(run, (str, PathLike)):
        path = find_run(parse_path(run, "runs"))
        name = path.name if path.is_dir() else path.stem
        return ReportRun(name or str(Path(path).resolve().name), with_limits(load(path)), str(path))
    data = to_pandas(run)
    if not isinstance(data, pd.DataFrame):
        raise TypeError(f"runs holds {repr_short(data)}: a run's folder, a file of results or a frame is needed")
    check_frame(data, "runs")
    frame = ReportRun("frame", with_limits(data))
    ids = list(data["run_id"].dropna().unique()) if "run_id" in data.columns else []
    return replace(frame, name=str(frame.metadata.get("run_id") or (ids[0] if len(ids) == 1 else "frame")))


def draw_svg(name: str, write: Callable[[Path], object], text: str, caption: str = "") -> Block:
    """Return the picture that `write` puts into a file; without matplotlib a paragraph instead.

    `name` is its file's beside a report in Markdown; `text` describes it to readers who cannot see it; `caption` is a
    line below it.
    """
    try:
        import matplotlib
    except ImportError as error:
        _log.warning("no pictures: %s", error)
        return Paragraph(f"The picture is left out ({text}): {error}.")
    with tempfile.TemporaryDirectory(prefix="bwprof-report-") as folder:
        target = Path(folder) / "picture.svg"
        # Letters can be searched and read aloud, which outlines cannot; the salt makes ids the same each time.
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            write(target)
        return SvgPicture(name, target.read_text(encoding="utf-8"), text, caption)


def draw_kind(kind: str, data: pd.DataFrame, text: str) -> Block | None:
    """Return a picture of a kind of `bwprof.plot`, of at most 60 cases; None where the rows do not fit it."""
    from bwprof import plot
    from bwprof.analysis import values

    names = values.words(data, "case").astype(str)
    names = names.where(names != "", values.words(data, "operation").astype(str))
    cases = names.unique()
    try:
        picture = plot.KINDS[kind].picture(data[names.isin(cases[:_MOST_CASES])])
    except ValueError:
        return None
    caption = f"The first {_MOST_CASES} of {len(cases)} cases; the table of all rows has the others."
    return draw_svg(kind, lambda target: picture.write([target]), text, caption if len(cases) > _MOST_CASES else "")
