"""A picture in a page: matplotlib's SVG without what a page has no use for, its colours light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

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

PAPER = ((255, 255, 255), (20, 23, 26))  # page.css has them as --paper and --ink
INK = ((27, 31, 36), (230, 233, 236))
_LEAST_CONTRAST = 4.5  # of a colour on dark paper: WCAG's, for text
_GREY = 24  # levels between the channels of what is still a grey

Color = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture for a page: its SVG, the width in which it is drawn (px), the colours that it names as variables."""

    svg: str
    width: float
    colors: frozenset[str]


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
    names = {name: f"{prefix}{number}" for number, name in enumerate(dict.fromkeys(_ids(root, used)))}
    colors: set[str] = set()
    _clean(root, names, colors)
    root.attrib = {"viewBox": f"0 0 {width:g} {height:g}", "aria-hidden": "true"}
    text = ElementTree.tostring(root, encoding="unicode")
    return Drawing(text, width * 4 / 3, frozenset(colors))


def _ids(root: ElementTree.Element, used: set[str]) -> Iterator[str]:
    return (name for element in root.iter() if (name := element.get("id")) in used and name is not None)


def _references(element: ElementTree.Element) -> Iterator[str]:
    for name, value in element.attrib.items():
        if name in (_LINK, "href") and value.startswith("#"):
            yield value[1:]
        yield from _REFERENCE.findall(value)


def _clean(element: ElementTree.Element, names: dict[str, str], colors: set[str]) -> None:
    """An element and all in it, in place."""
    element.tag = element.tag.removeprefix(_SVG)
    link = element.get(_LINK, element.get("href", ""))
    kept = {name: value for name, value in element.attrib.items() if name in _ATTRIBUTES}
    paint = [f"{name}: {value}" for name in _PAINT if (value := element.get(name))]
    style = "; ".join([*paint, *([kept.pop("style")] if "style" in kept else [])])
    if style:
        kept["style"] = _painted(_FONTS.sub("", style), colors).strip("; ")
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
            _clean(child, names, colors)
            if child.tag in ("g", "defs") and not len(child):
                element.remove(child)


def _short(value: str) -> str:
    """Lengths to a hundredth of a point."""
    found = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), value)
    return _SPACES.sub(" ", found).strip()


def _painted(style: str, colors: set[str]) -> str:
    """A style whose colours are the page's variables."""

    def named(found: re.Match[str]) -> str:
        colors.add(found[0].lower())
        return f"var(--c{found[0][1:].lower()})"

    return _COLOR.sub(named, style)


def variables(colors: frozenset[str] | set[str], *, dark: bool) -> str:
    """The declarations of a page's colours: as they are drawn, or as they are seen on dark paper."""
    return " ".join(f"--c{color[1:]}: {on_dark(color) if dark else color};" for color in sorted(colors))


def on_dark(color: str) -> str:
    """A colour as it is drawn on dark paper: greys the other way round, others light enough to be seen.

    Examples
    --------
    >>> on_dark("#ffffff"), on_dark("#e69f00"), on_dark("#0072b2")
    ('#14171a', '#e69f00', '#2687be')
    """
    found = _channels(color)
    if max(found) - min(found) <= _GREY:
        share = sum(found) / 3 / 255
        return _hex(tuple(round(ink + (paper - ink) * share) for ink, paper in zip(INK[1], PAPER[1], strict=True)))
    for step in range(20):
        lighter = tuple(round(part + (255 - part) * step / 20) for part in found)
        if _contrast(lighter, PAPER[1]) >= _LEAST_CONTRAST:
            return _hex(lighter)
    return _hex(INK[1])


def _channels(color: str) -> Color:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _hex(color: tuple[int, ...]) -> str:
    return "#" + "".join(f"{part:02x}" for part in color)


def _contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """As WCAG 2 defines it: of the lighter one's luminance over the darker one's."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: tuple[int, ...]) -> float:
    linear = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
