"""Write a report as one HTML page without a network, a font or a framework; pictures are SVG."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from bwprof import _core
from bwprof.plot.styles import ON_DARK
from bwprof.text.document import (
    NOTHING,
    Block,
    Code,
    Document,
    DocumentTable,
    FactList,
    Items,
    Paragraph,
    Section,
    SvgPicture,
    to_printable,
)

_SVG = "{http://www.w3.org/2000/svg}"

_LINK = "{http://www.w3.org/1999/xlink}href"

# What is drawn; all else (metadata, styles of the whole page, whatever a later matplotlib thinks of) is left out.
_DRAWN = {"svg", "g", "path", "defs", "use", "clipPath", "pattern", "image", "text", "tspan"}

_DRAWN |= {"rect", "circle", "ellipse", "line", "polyline", "polygon"}

_LENGTHS = {"d", "x", "y", "width", "height", "points", "r", "rx", "ry", "cx", "cy", "x1", "y1", "x2", "y2"}

_ATTRIBUTES = _LENGTHS | {"id", "viewBox", "transform", "style", "clip-path", "patternUnits"}

_PAINT = ("fill", "stroke")  # attributes; in a style they may be variables

_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")

_COLOR = re.compile(r"#[0-9a-fA-F]{6}\b")

_REFERENCE = re.compile(r"url\(#([^)]*)\)")

_FONTS = re.compile(r"font-family:[^;]*;? ?")

_SPACES = re.compile(r"\s+")

_VARIABLES = {light.lower(): f"--ink{number}" for number, light in enumerate(ON_DARK)}  # of a page, by the colour


class EmbeddedSvg(NamedTuple):
    """A picture for a page: its SVG, and the width in which it is drawn (px)."""

    svg: str
    width: float


def embed_svg(svg: str, prefix: str) -> EmbeddedSvg:
    """A picture as a page holds it; `prefix` makes its ids those of no other.

    Raises
    ------
    ValueError
        For what is no SVG.
    """
    try:
        root = ElementTree.fromstring(svg.encode())
    except ElementTree.ParseError as error:
        raise ValueError(f"the picture is no SVG: {error}") from None
    if root.tag != f"{_SVG}svg":
        raise ValueError(f"the picture is no SVG: it is <{root.tag}>")
    _, _, width, height = (float(part) for part in root.get("viewBox", "0 0 0 0").split())
    used = {name for element in root.iter() for name in _references(element)}
    ids = dict.fromkeys(name for element in root.iter() if (name := element.get("id", "")) in used)
    names = {name: f"{prefix}{number}" for number, name in enumerate(ids)}
    _clean(root, names)
    root.attrib = {"viewBox": f"0 0 {width:g} {height:g}", "aria-hidden": "true"}
    return EmbeddedSvg(ElementTree.tostring(root, encoding="unicode"), width * 4 / 3)


def _references(element: ElementTree.Element) -> Iterator[str]:
    for name, value in element.attrib.items():
        if name in (_LINK, "href") and value.startswith("#"):
            yield value[1:]
        yield from _REFERENCE.findall(value)


def _clean(element: ElementTree.Element, names: dict[str, str]) -> None:
    """An element and all in it, in place."""
    element.tag = element.tag.removeprefix(_SVG)
    link = element.get(_LINK, element.get("href", ""))
    kept = {name: value for name, value in element.attrib.items() if name in _ATTRIBUTES}
    paint = [f"{name}: {value}" for name in _PAINT if (value := element.get(name))]
    style = "; ".join([*paint, *([kept.pop("style")] if "style" in kept else [])])
    if style:
        kept["style"] = _painted(_FONTS.sub("", style), letters=element.tag in ("text", "tspan")).strip("; ")
    kept = {name: _REFERENCE.sub(lambda found: f"url(#{names.get(found[1], '')})", kept[name]) for name in kept}
    kept = {name: _short(value) if name in _LENGTHS else value for name, value in kept.items()}
    if kept.pop("id", None) is not None and element.get("id") in names:
        kept["id"] = names[str(element.get("id"))]
    if link.startswith("#") and link[1:] in names:
        kept["href"] = f"#{names[link[1:]]}"
    elif element.tag == "image" and link.startswith("data:image/png;base64,"):
        kept["href"] = link
    element.attrib = kept
    if element.tag not in ("text", "tspan"):
        element.text = None
    element.tail = None if element.tag != "tspan" else element.tail
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.removeprefix(_SVG) not in _DRAWN:
            element.remove(child)
        else:
            _clean(child, names)
            if child.tag in ("g", "defs") and not len(child):
                element.remove(child)


def _short(value: str) -> str:
    """Lengths to a hundredth of a point."""
    found = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), value)
    return _SPACES.sub(" ", found).strip()


def _painted(style: str, *, letters: bool) -> str:
    """A style whose inks are the page's variables."""

    def named(found: re.Match[str]) -> str:
        color = found[0].lower()
        stays = color not in _VARIABLES or (letters and color == "#ffffff")
        return color if stays else f"var({_VARIABLES[color]})"

    return _COLOR.sub(named, style)


def inks(*, dark: bool) -> str:
    """The declarations of a page's inks: as they are drawn, or as they are on dark paper.

    Examples
    --------
    >>> inks(dark=True).split("; ")[-1]
    '--ink4: #14171a'
    """
    return "; ".join(f"{_VARIABLES[light.lower()]}: {(on if dark else light).lower()}" for light, on in ON_DARK.items())


_LONGEST_WORD = 32  # letters of a cell that is never broken into lines

_LEAST_SEARCHED = 9  # lines: fewer are seen at once

_MANY = 9  # columns, which leave a column of sentences little room


def page(document: Document) -> str:
    """The whole page. Whatever a report holds is text in it."""
    drawn = {id(picture): embed_svg(picture.svg, f"p{n}-") for n, picture in enumerate(document.pictures())}
    script = _part("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    style = [
        _part("page.css"),
        f":root {{ {inks(dark=False)} }}",
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {inks(dark=True)} }} }}",
    ]
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        f'<meta name="generator" content="bwprof {escape(_core.__version__)}">',
        '<link rel="icon" href="data:,">',
        f"<title>{_text(document.title)}</title>",
        "<style>",
        *style,
        "</style>",
        "</head>",
        "<body>",
        f'<header><h1>{_text(document.title)}</h1><p class="subtitle">{_text(document.subtitle)}</p>',
        *(_block(block, drawn) for block in document.lead),
        _links(document),
        "</header>",
        "<main>",
        *(_section(section, drawn, 2) for section in document.sections),
        "</main>",
        f"<footer>bwprof {escape(_core.__version__)}. GB are 10<sup>9</sup> bytes; {NOTHING} is what was not measured."
        "</footer>",
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


@cache
def _part(name: str) -> str:
    return (Path(__file__).parents[1] / "data" / name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return escape(to_printable(text))


def _links(document: Document) -> str:
    links = (f'<li><a href="#{escape(one.name)}">{_text(one.title)}</a></li>' for one in document.sections)
    return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'


def _section(section: Section, drawn: dict[int, EmbeddedSvg], level: int) -> str:
    head = f'<section id="{escape(section.name)}"><h{level}>{_text(section.title)}</h{level}>'
    parts = [
        _section(block, drawn, min(level + 1, 4)) if isinstance(block, Section) else _block(block, drawn)
        for block in section.blocks
    ]
    return "\n".join([head, *parts, "</section>"])


def _block(block: Block, drawn: dict[int, EmbeddedSvg]) -> str:
    if isinstance(block, Paragraph):
        return f"<p{' class=lead' if block.lead else ''}>{_text(block.text)}</p>"
    if isinstance(block, Items):
        tag = "ol" if block.numbered else "ul"
        return f"<{tag}>{''.join(f'<li>{_text(line)}</li>' for line in block.lines)}</{tag}>"
    if isinstance(block, FactList):
        name, begin, end = ("figures", "<div>", "</div>") if block.lead else ("facts", "", "")
        pairs = (f"{begin}<dt>{_text(n)}</dt><dd>{_text(v)}</dd>{end}" for n, v in block.pairs)
        return f'<dl class="{name}">{"".join(pairs)}</dl>'
    if isinstance(block, Code):
        lines = "\n".join(map(_text, block.text.splitlines()))
        return f"<pre>{lines}</pre>"
    if isinstance(block, DocumentTable):
        return _table(block)
    return _picture(block, *drawn[id(block)])


def _table(found: DocumentTable) -> str:
    numeric = [heading in found.numbers for heading in found.headings]
    headings = (
        f'<th scope="col"{" class=n" if right else ""}>{_text(heading)}</th>'
        for heading, right in zip(found.headings, numeric, strict=True)
    )
    lines = []
    for line in found.lines:
        cells = zip(line, found.headings, numeric, strict=True)
        lines.append(f"<tr>{''.join(_cell(text, of if found.wordy else '', right) for text, of, right in cells)}</tr>")
    searched = found.tools and len(found.lines) >= _LEAST_SEARCHED
    marks = (("searched", searched), ("wordy", found.wordy), ("many", not found.wordy and len(numeric) >= _MANY))
    names = [name for name, holds in marks if holds]
    kind = f' class="{" ".join(names)}"' if names else ""
    caption = f'<p class="caption">{_text(found.caption)}</p>' if found.caption else ""  # narrower than a wide table
    label = _text(found.caption or "Table")
    body = f"<thead><tr>{''.join(headings)}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>"
    region = f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
    return f"{caption}{region}<table{kind}>{body}</table></div>"


def _cell(text: str, of: str, right: bool) -> str:
    said = f' data-of="{_text(of)}"' if of else ""
    kind = " class=n" if right else " class=s" if len(text) <= _LONGEST_WORD else ""
    return f"<td{kind}{said}>{_text(text)}</td>"


def _picture(picture: SvgPicture, svg: str, width: float) -> str:
    caption = f"<figcaption>{_text(picture.caption)}</figcaption>" if picture.caption else ""
    label = _text(picture.text)
    return (
        f'<figure><div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f'<div class="drawing" role="img" aria-label="{label}" style="max-width: {width:.0f}px">{svg}</div>'
        f"</div>{caption}</figure>"
    )
