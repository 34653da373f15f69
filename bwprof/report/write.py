"""Write a report as Markdown, or as one HTML page, which needs no network; pictures are SVG."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from os import PathLike
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from bwprof import _core
from bwprof.plot.styles import ON_DARK
from bwprof.report.run import read_runs
from bwprof.report.sections import build_document
from bwprof.results.atomic import atomic_write, has_content
from bwprof.text import document
from bwprof.text.document import Document
from bwprof.text.parsing import describe_unknown, parse_bool, parse_name, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    from bwprof.report.optimization_steps import Goal

_HTML, _MARKDOWN = (".html", ".htm"), (".md", ".markdown")
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_TEXTS = ("text", "tspan")

# Elements of a page's pictures; all others are left out.
_ELEMENTS = {"svg", "g", "path", "defs", "use", "clipPath", "pattern", "image", *_TEXTS}
_ELEMENTS |= {"rect", "circle", "ellipse", "line", "polyline", "polygon"}
_LENGTHS = {"d", "x", "y", "width", "height", "points", "r", "rx", "ry", "cx", "cy", "x1", "y1", "x2", "y2"}
_ATTRIBUTES = {"viewBox", "transform", "clip-path", "patternUnits"}
_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}\b")
_FONTS = re.compile(r"font-family:[^;]*;? ?")
_VARIABLES = {light.lower(): f"--ink{number}" for number, light in enumerate(ON_DARK)}  # of a page, by color
_LONGEST_WORD = 32  # letters of a cell that stays in one line
_LEAST_SEARCHED = 9  # lines of a table with a search field
_MANY = 9  # columns of a table without room for sentences


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
        The goals of an optimization, with their values.
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
    kind : {"run", "optimization"}, optional
        "optimization" goes from the first run, through one for each change, to the last. By default a file with the
        name optimization_report is one, and all others are of runs.
    title : str, optional
        The title.
    goals : path or mapping, optional
        The goals of an optimization, as {"bandwidth_gb_s": ">200"}, or a TOML file of such lines.
    case, precision : str, optional
        The row of an optimization; by default the one that lost the most time in the first run.
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
        For wrong runs, goals or endings, and for an optimization whose runs have no case in common.
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
    if chosen == "optimization":
        from bwprof.report.optimization import build_optimization

        report, results = build_optimization(read, goals=goals, title=title, case=case, precision=precision)
    else:
        for name, value in (("goals", goals), ("case", case), ("precision", precision)):
            if value is not None:
                raise ValueError(f"{name} is of an optimization: kind='optimization' is needed, or leave it out")
        report = build_document(read, title)
    return WrittenReport(target, _write(report, target, force=force), results)


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
    problems = {
        errno.EISDIR: target.is_dir(),
        errno.ENOENT: not folder.exists(),
        errno.ENOTDIR: not folder.is_dir(),
        errno.EACCES: not os.access(folder, os.W_OK),
    }
    for code in (code for code, applies in problems.items() if applies):
        raise OSError(code, os.strerror(code), str(target))


def choose_kind(kind: str | None, target: Path) -> str:
    """Return the kind of report, by default by the name of its file."""
    if kind is not None and not isinstance(kind, str):
        raise TypeError(f"kind is {repr_short(kind)}: allowed are run, optimization")
    if kind not in (None, "run", "optimization"):
        raise ValueError(describe_unknown("kind", kind, ("run", "optimization")))
    return kind or ("optimization" if target.stem.lower() == "optimization_report" else "run")


def _write(report: Document, target: Path, *, force: bool) -> tuple[Path, ...]:
    if target.suffix.lower() in _HTML:
        atomic_write(target, page(report))
        return ()
    files = {id(picture): target.with_name(f"{target.stem}-{picture.name}.svg") for picture in report.pictures()}
    for path in files.values() if not force else ():
        _check_free(path)
    for picture in report.pictures():
        atomic_write(files[id(picture)], picture.svg)
    atomic_write(target, document.to_markdown(report, lambda picture: quote(files[id(picture)].name)))
    return tuple(files.values())


class EmbeddedSvg(NamedTuple):
    """A picture of a page: its SVG, and its width in pixels."""

    svg: str
    width: float


def embed_svg(svg: str, prefix: str) -> EmbeddedSvg:
    """Return a picture for a page, with `prefix` before its ids, so that they are unique."""
    try:
        root = ElementTree.fromstring(svg.encode())
    except ElementTree.ParseError as error:
        raise ValueError(f"the picture is no SVG: {error}") from None
    if root.tag != f"{_SVG}svg":
        raise ValueError(f"the picture is no SVG: it is <{root.tag}>")
    _, _, width, height = (float(part) for part in root.get("viewBox", "0 0 0 0").split())
    _clean(root, prefix)
    root.attrib = {"viewBox": f"0 0 {width:g} {height:g}", "aria-hidden": "true"}
    return EmbeddedSvg(ElementTree.tostring(root, encoding="unicode"), width * 4 / 3)


def _clean(element: ElementTree.Element, prefix: str) -> None:
    """Remove from an element and its children, in place, everything but shapes and letters."""
    element.tag = element.tag.removeprefix(_SVG)
    element.attrib = dict(_attributes(element, prefix))
    if element.tag not in _TEXTS:
        element.text = None
    if element.tag != "tspan":
        element.tail = None
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.removeprefix(_SVG) not in _ELEMENTS:
            element.remove(child)
            continue
        _clean(child, prefix)
        if child.tag in ("g", "defs") and not len(child):
            element.remove(child)


def _attributes(element: ElementTree.Element, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the attributes of an element on a page, with colors as the page's variables; white letters stay white."""

    def use_variable(found: re.Match[str]) -> str:
        variable = "" if letters and found[0].lower() == "#ffffff" else _VARIABLES.get(found[0].lower())
        return f"var({variable})" if variable else found[0].lower()

    def shorten(number: re.Match[str]) -> str:
        return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

    letters = element.tag in _TEXTS
    for name, value in element.attrib.items():
        if name in _LENGTHS:
            yield name, " ".join(_LONG_NUMBER.sub(shorten, value).split())
        elif name in _ATTRIBUTES:
            yield name, value.replace("url(#", f"url(#{prefix}")
    paint = [f"{name}: {color}" for name in ("fill", "stroke") if (color := element.get(name))]
    declarations = _FONTS.sub("", "; ".join([*paint, element.get("style", "")]))
    if style := _COLOR.sub(use_variable, declarations).strip("; "):
        yield "style", style.replace("url(#", f"url(#{prefix}")
    if own := element.get("id"):
        yield "id", f"{prefix}{own}"
    link = element.get(_LINK, element.get("href", ""))
    if link[:1] == "#":
        yield "href", f"#{prefix}{link[1:]}"
    elif element.tag == "image" and link.startswith("data:image/png;base64,"):
        yield "href", link


def _inks(*, dark: bool) -> str:
    """Return the declarations of a page's colors, on a light or a `dark` ground."""
    return "; ".join(f"{_VARIABLES[light.lower()]}: {(on if dark else light).lower()}" for light, on in ON_DARK.items())


def page(report: Document) -> str:
    """Return the page of a report; everything in the report is text in it."""
    drawn = {id(picture): embed_svg(picture.svg, f"p{n}-") for n, picture in enumerate(report.pictures())}
    script = _read("page.js")
    links = (f'<li><a href="#{escape(part.name)}">{_text(part.title)}</a></li>' for part in report.sections)
    return Template(_read("page.html")).substitute(
        title=_text(report.title),
        subtitle=_text(report.subtitle),
        lead="".join(f"{_block(block, drawn)}\n" for block in report.lead),
        links="".join(links),
        sections="\n".join(_block(section, drawn) for section in report.sections),
        style=_read("page.css"),
        inks=_inks(dark=False),
        dark_inks=_inks(dark=True),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=escape(_core.__version__),
        nothing=document.NOTHING,
    )


@cache
def _read(name: str) -> str:
    return (Path(__file__).parents[1] / "data" / name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return escape(document.to_printable(text))


def _block(block: document.Block | document.Section, drawn: dict[int, EmbeddedSvg], level: int = 2) -> str:
    if isinstance(block, document.Section):
        head = f'<section id="{escape(block.name)}"><h{level}>{_text(block.title)}</h{level}>'
        inner = (_block(part, drawn, min(level + 1, 4)) for part in block.blocks)
        return "\n".join([head, *inner, "</section>"])
    if isinstance(block, document.Paragraph):
        return f"<p{' class=lead' if block.lead else ''}>{_text(block.text)}</p>"
    if isinstance(block, document.Items):
        tag = "ol" if block.numbered else "ul"
        return f"<{tag}>{''.join(f'<li>{_text(line)}</li>' for line in block.lines)}</{tag}>"
    if isinstance(block, document.FactList):
        name, begin, end = ("figures", "<div>", "</div>") if block.lead else ("facts", "", "")
        pairs = (f"{begin}<dt>{_text(n)}</dt><dd>{_text(v)}</dd>{end}" for n, v in block.pairs)
        return f'<dl class="{name}">{"".join(pairs)}</dl>'
    if isinstance(block, document.Code):
        return "<pre>{}</pre>".format("\n".join(map(_text, block.text.splitlines())))
    if isinstance(block, document.DocumentTable):
        return _table(block)
    svg, width = drawn[id(block)]
    caption = f"<figcaption>{_text(block.caption)}</figcaption>" if block.caption else ""
    attributes = f'role="img" aria-label="{_text(block.text)}" style="max-width: {width:.0f}px"'
    return f'<figure>{_scroll(block.text)}<div class="drawing" {attributes}>{svg}</div></div>{caption}</figure>'


def _table(table: document.DocumentTable) -> str:
    numeric = [heading in table.numbers for heading in table.headings]
    of = table.headings if table.wordy else [""] * len(numeric)
    headings = (
        f'<th scope="col"{" class=n" if number else ""}>{_text(heading)}</th>'
        for heading, number in zip(table.headings, numeric, strict=True)
    )
    lines = (f"<tr>{''.join(map(_cell, line, of, numeric))}</tr>" for line in table.lines)
    marks = {
        "searched": table.tools and len(table.lines) >= _LEAST_SEARCHED,
        "wordy": table.wordy,
        "many": not table.wordy and len(numeric) >= _MANY,
    }
    kind = " ".join(name for name, applies in marks.items() if applies)
    attribute = f' class="{kind}"' if kind else ""
    caption = f'<p class="caption">{_text(table.caption)}</p>' if table.caption else ""  # narrower than a wide table
    body = "\n".join([f"<thead><tr>{''.join(headings)}</tr></thead>", "<tbody>", *lines, "</tbody>"])
    return f"{caption}{_scroll(table.caption or 'Table')}<table{attribute}>{body}</table></div>"


def _cell(text: str, heading: str, number: bool) -> str:
    of = f' data-of="{_text(heading)}"' if heading else ""
    kind = " class=n" if number else " class=s" if len(text) <= _LONGEST_WORD else ""
    return f"<td{kind}{of}>{_text(text)}</td>"


def _scroll(label: str) -> str:
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(label)}">'
