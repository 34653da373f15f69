"""A picture in a page: matplotlib's SVG without what a page has no use for, its colours light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree

from bwprof.plot.looks import ON_DARK

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


class Drawing(NamedTuple):
    """A picture for a page: its SVG, and the width in which it is drawn (px)."""

    svg: str
    width: float


def drawing(svg: str, prefix: str) -> Drawing:
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
    return Drawing(ElementTree.tostring(root, encoding="unicode"), width * 4 / 3)


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
