"""`bwprof.write_report`: a report of runs as a file."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from bwprof.report import conditions, findings
from bwprof.report.html import page
from bwprof.report.run import ReportRun, read_runs
from bwprof.results.atomic import atomic_write, has_content
from bwprof.text.document import Document, Section, SvgPicture, make_section, present_sections, to_markdown
from bwprof.text.parsing import describe_unknown, parse_bool, parse_name, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    from bwprof.report.optimization_steps import Goal

KINDS = ("run", "optimisation")

_MARKDOWN = (".html", ".htm", ".md", ".markdown")

_NAMED_SO = "optimisation_report"  # a file that is called so is one

ReportKind = Literal["run", "optimisation"]


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """What `bwprof.write_report` wrote; as a path it is the report itself.

    Attributes
    ----------
    path : pathlib.Path
        The report.
    pictures : tuple of pathlib.Path
        The files beside a report in Markdown.
    goals : tuple
        Each goal of an optimisation with its figure, and whether it is reached.
    """

    path: Path
    pictures: tuple[Path, ...] = ()
    goals: tuple[Goal, ...] = ()

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def passed(self) -> bool:
        """Whether all goals are reached; True where there are none."""
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

    An .html file is one page that needs nothing else: pictures, tables that are sorted and searched, light and dark,
    for paper, too. An .md file is the same in Markdown, its pictures are .svg files beside it.

    Parameters
    ----------
    runs : path, pandas.DataFrame, or a list of them
        Run folders, files of results, frames. Of several each later one is compared with the first.
    path : path
        The file, ending in .html or .md.
    kind : {"run", "optimisation"}, optional
        "optimisation": from the first run, through one for each change, to the last. When left out, a file that is
        called optimisation_report (optimization_report) is one, and all others are of runs.
    title : str, optional
        What stands above it.
    goals : path or mapping, optional
        Of an optimisation: what the last run should reach, as {"bandwidth_gb_s": ">200"}, or a TOML file of such lines.
    case, precision : str, optional
        Of an optimisation: the row that it is about; what lost the most time in the first run, when left out.
    force : bool
        Replace files that are there.

    Returns
    -------
    Report
        Its path, pictures and goals.

    Raises
    ------
    FileNotFoundError
        When there are no such results.
    FileExistsError
        When a file would be replaced, and `force` was not given.
    TypeError, ValueError
        For what are no runs, no goals, another ending; runs that have no case in common, where that is needed.
    OSError
        When it cannot be written; what can be known of that is said before the work. An older file is then untouched.

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
    found = read_runs(runs)
    judged: tuple[Goal, ...] = ()
    if chosen == "optimisation":
        from bwprof.report.optimization import build_optimization

        document, judged = build_optimization(found, goals=goals, title=title, case=case, precision=precision)
    else:
        for name, given in (("goals", goals), ("case", case), ("precision", precision)):
            if given is not None:
                raise ValueError(f"{name} is of an optimisation: kind='optimisation' is needed, or leave it out")
        document = build_document(found, title)
    return WrittenReport(target, _write(document, target, force=force), judged)


def check_ending(target: Path) -> None:
    """ValueError for a file that is neither a page nor Markdown by its ending."""
    if target.suffix.lower() not in _MARKDOWN:
        said = describe_unknown("ending of a report", target.suffix or target.name, (".html", ".md"))
        raise ValueError(f"{quote_text(target)}: {said}")


def _check_free(target: Path) -> None:
    """FileExistsError for a file that is there."""
    if has_content(target):
        raise FileExistsError(
            f"{quote_text(target)} exists already: name another file, or replace it (force=True, --force in a shell)"
        )


def _check_folder(target: Path) -> None:
    """OSError for a file whose folder is not there or cannot be written to, and for what is a folder itself."""
    folder = Path(os.path.realpath(target)).parent
    wrong = 0
    if target.is_dir():
        wrong = errno.EISDIR
    elif not folder.is_dir():
        wrong = errno.ENOTDIR if folder.exists() else errno.ENOENT
    elif not os.access(folder, os.W_OK):
        wrong = errno.EACCES
    if wrong:
        raise OSError(wrong, os.strerror(wrong), str(target))


def choose_kind(kind: str | None, target: Path) -> ReportKind:
    """What kind of report it is: as it was said, else as the file is called."""
    if kind is None:
        called = target.stem.lower().replace("optimization", "optimisation")
        return "optimisation" if called == _NAMED_SO else "run"
    if not isinstance(kind, str):
        raise TypeError(f"kind is {repr_short(kind)}: allowed are {', '.join(KINDS)}")
    if kind not in (*KINDS, "optimization"):
        raise ValueError(describe_unknown("kind", kind, KINDS))
    return "run" if kind == "run" else "optimisation"


def build_document(runs: Sequence[ReportRun], title: str | None = None) -> Document:
    """The report of a run, or of several: each in its section, after how the later ones differ from the first."""
    devices = list(dict.fromkeys(name for run in runs for name in run.each("device")))
    on = f" on {', '.join(devices[:3])}" if devices else ""
    if len(runs) == 1:
        run = runs[0]
        model = run.part("model").get("architecture")
        name = model.get("name") if isinstance(model, Mapping) else ""
        return Document(title or f"{name or 'Memory bandwidth'}{on}", _subtitle(run), present_sections(_sections(run)))
    sections = [findings.list_runs(runs), *findings.compare_runs(runs)]
    for number, run in enumerate(runs, 1):
        parts = (_renamed(part, f"run{number}-") for part in present_sections(_sections(run)))
        sections.append(
            make_section(f"run{number}", f"{run.name}: {', '.join(run.each('device')) or 'its rows'}", *parts)
        )
    names = ", ".join(run.name for run in runs)
    return Document(title or f"{len(runs)} runs{on}", f"bwprof: {names}", present_sections(sections))


def _subtitle(run: ReportRun) -> str:
    said = [run.name, *([f"{run.minute} UTC"] if run.minute else [])]
    version = ", ".join(run.each("bwprof_version")) or run.part("versions").get("bwprof")
    said += [f"measured by bwprof {version}"] if version else []
    return " · ".join(said)


def _sections(run: ReportRun) -> list[Section | None]:
    return [
        findings.summarize(run),
        conditions.describe_device(run),
        findings.compare_precisions(run),
        findings.draw_roofline(run),
        findings.list_losses(run),
        findings.describe_model(run),
        findings.list_rows(run),
        conditions.describe_conditions(run),
        conditions.describe_method(run),
        conditions.describe_command(run),
    ]


def _renamed(block: Any, prefix: str) -> Any:
    """The same with names that no other run's sections have."""
    if isinstance(block, Section):
        block = replace(block, blocks=tuple(_renamed(part, prefix) for part in block.blocks))
    return replace(block, name=f"{prefix}{block.name}") if isinstance(block, (Section, SvgPicture)) else block


def _write(document: Document, target: Path, *, force: bool) -> tuple[Path, ...]:
    """The file, each picture of Markdown first; returns those."""
    if target.suffix.lower() in (".html", ".htm"):
        atomic_write(target, page(document))
        return ()
    found = document.pictures()
    files = [target.with_name(f"{target.stem}-{picture.name}.svg") for picture in found]
    for path in files if not force else ():
        _check_free(path)
    for path, picture in zip(files, found, strict=True):
        atomic_write(path, picture.svg)
    names = {id(picture): quote(path.name) for path, picture in zip(files, found, strict=True)}
    atomic_write(target, to_markdown(document, lambda picture: names[id(picture)]))
    return tuple(files)
