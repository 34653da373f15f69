"""`bwprof.write_report`: a report of runs as a file."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bwprof.report import sections
from bwprof.report.html import page
from bwprof.report.run import ReportRun, read_runs
from bwprof.results.atomic import atomic_write, has_content
from bwprof.text.document import Document, Section, SvgPicture, make_section, present_sections, to_markdown
from bwprof.text.parsing import describe_unknown, parse_bool, parse_name, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    from bwprof.report.optimization_steps import Goal

_HTML, _MARKDOWN = (".html", ".htm"), (".md", ".markdown")


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """What `bwprof.write_report` wrote; as a path it is the report.

    Attributes
    ----------
    path : pathlib.Path
        The report.
    pictures : tuple of pathlib.Path
        The files beside a report in Markdown.
    goals : tuple
        The goals of an optimisation, with their values.
    """

    path: Path
    pictures: tuple[Path, ...] = ()
    goals: tuple[Goal, ...] = ()

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def passed(self) -> bool:
        """Whether all goals are reached; True without goals."""
        return all(goal.passed for goal in self.goals)


def write_report(
    runs: Any,
    path: str | PathLike[str],
    *,
    kind: str | None = None,
    title: str | None = None,
    goals: str | PathLike[str] | Mapping[str, Any] | None = None,
    case: str | None = None,
    precision: str | None = None,
    force: bool = False,
) -> WrittenReport:
    """Write a report of one run, or of several.

    An .html file is one page with its pictures, for light and dark screens and for paper; its tables can be sorted and
    searched. An .md file is the same in Markdown, with .svg files beside it.

    Parameters
    ----------
    runs : path, pandas.DataFrame, or a list of them
        Run folders, files of results, frames. Of several each later one is compared with the first.
    path : path
        The file, ending in .html or .md.
    kind : {"run", "optimisation"}, optional
        "optimisation" goes from the first run, through one for each change, to the last. By default a file with the
        name optimisation_report (or optimization_report) is one, and all others are of runs.
    title : str, optional
        The title.
    goals : path or mapping, optional
        The goals of an optimisation, as {"bandwidth_gb_s": ">200"}, or a TOML file of such lines.
    case, precision : str, optional
        The row of an optimisation; by default the one that lost the most time in the first run.
    force : bool
        Replace existing files.

    Returns
    -------
    WrittenReport
        Its path, pictures and goals.

    Raises
    ------
    FileNotFoundError
        For a path without results.
    FileExistsError
        For an existing file without `force`.
    TypeError, ValueError
        For wrong runs, goals or endings, and for an optimisation whose runs have no case in common.
    OSError
        When the file cannot be written, if possible before the work; an older file stays.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = bwprof.write_report(bwprof.load_example("h200"), f"{folder}/report.md")
    ...     found.path.name, [picture.name for picture in found.pictures][:1]
    ('report.md', ['report-comparison.svg'])
    """
    target = parse_path(path, "path")
    check_ending(target)
    if not parse_bool(force, "force"):
        _check_free(target)
    _check_folder(target)
    chosen = choose_kind(kind, target)
    if title is not None:
        parse_name(title, "title")
    read = read_runs(runs)
    results: tuple[Goal, ...] = ()
    if chosen == "optimisation":
        from bwprof.report.optimization import build_optimization

        document, results = build_optimization(read, goals=goals, title=title, case=case, precision=precision)
    else:
        for name, value in (("goals", goals), ("case", case), ("precision", precision)):
            if value is not None:
                raise ValueError(f"{name} is of an optimisation: kind='optimisation' is needed, or leave it out")
        document = build_document(read, title)
    return WrittenReport(target, _write(document, target, force=force), results)


def check_ending(target: Path) -> None:
    """Raise ValueError for a file that is neither HTML nor Markdown by its ending."""
    if target.suffix.lower() not in (*_HTML, *_MARKDOWN):
        problem = describe_unknown("ending of a report", target.suffix or target.name, (".html", ".md"))
        raise ValueError(f"{quote_text(target)}: {problem}")


def _check_free(target: Path) -> None:
    if has_content(target):
        raise FileExistsError(
            f"{quote_text(target)} exists already: name another file, or replace it (force=True, --force in a shell)"
        )


def _check_folder(target: Path) -> None:
    """Raise OSError for a folder, and for a file whose folder is missing or cannot be written to."""
    folder = Path(os.path.realpath(target)).parent
    code = 0
    if target.is_dir():
        code = errno.EISDIR
    elif not folder.is_dir():
        code = errno.ENOTDIR if folder.exists() else errno.ENOENT
    elif not os.access(folder, os.W_OK):
        code = errno.EACCES
    if code:
        raise OSError(code, os.strerror(code), str(target))


def choose_kind(kind: str | None, target: Path) -> str:
    """Return the kind of report, by default by the name of its file."""
    if kind is not None and not isinstance(kind, str):
        raise TypeError(f"kind is {repr_short(kind)}: allowed are run, optimisation")
    if kind not in (None, "run", "optimisation", "optimization"):
        raise ValueError(describe_unknown("kind", kind, ("run", "optimisation")))
    names = ("optimisation_report", "optimization_report")
    by_name = "optimisation" if target.stem.lower() in names else "run"
    return (kind or by_name).replace("optimization", "optimisation")


def build_document(runs: Sequence[ReportRun], title: str | None = None) -> Document:
    """Return the report of a run, or of several: the later ones beside the first, then a section for each."""
    devices = list(dict.fromkeys(name for run in runs for name in run.values("device")))
    on = f" on {', '.join(devices[:3])}" if devices else ""
    if len(runs) == 1:
        run = runs[0]
        model = run.part("model").get("architecture")
        name = model.get("name") if isinstance(model, Mapping) else ""
        version = run.joined("bwprof_version") or run.part("versions").get("bwprof")
        words = (run.name, run.minute and f"{run.minute} UTC", version and f"measured by bwprof {version}")
        subtitle = " · ".join(word for word in words if word)
        return Document(title or f"{name or 'Memory bandwidth'}{on}", subtitle, _describe(run))
    parts = [sections.list_runs(runs)]
    parts += [sections.compare_runs(runs[0], run, number) for number, run in enumerate(runs[1:], 2)]
    for number, run in enumerate(runs, 1):
        own = (_add_prefix(part, f"run{number}-") for part in _describe(run))
        parts.append(make_section(f"run{number}", f"{run.name}: {run.joined('device') or 'its rows'}", *own))
    names = ", ".join(run.name for run in runs)
    return Document(title or f"{len(runs)} runs{on}", f"bwprof: {names}", present_sections(parts))


def _describe(run: ReportRun) -> tuple[Section, ...]:
    return present_sections(describe(run) for describe in sections.OF_A_RUN)


def _add_prefix(block: Any, prefix: str) -> Any:
    """Return a block whose names, and those of the blocks in it, begin with a prefix."""
    if isinstance(block, Section):
        block = replace(block, blocks=tuple(_add_prefix(part, prefix) for part in block.blocks))
    return replace(block, name=f"{prefix}{block.name}") if isinstance(block, (Section, SvgPicture)) else block


def _write(document: Document, target: Path, *, force: bool) -> tuple[Path, ...]:
    if target.suffix.lower() in _HTML:
        atomic_write(target, page(document))
        return ()
    files = {id(picture): target.with_name(f"{target.stem}-{picture.name}.svg") for picture in document.pictures()}
    for path in files.values() if not force else ():
        _check_free(path)
    for picture in document.pictures():
        atomic_write(files[id(picture)], picture.svg)
    atomic_write(target, to_markdown(document, lambda picture: quote(files[id(picture)].name)))
    return tuple(files.values())
