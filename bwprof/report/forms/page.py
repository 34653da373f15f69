"""A report as one page of HTML that needs nothing else: no network, no font, no framework."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from pathlib import Path

from bwprof import _core
from bwprof.report.blocks import NOTHING, Block, Code, Document, Facts, Items, Picture, Section, Table, Words, shown
from bwprof.report.forms.drawing import Drawing, drawing, inks

_LONGEST_WORD = 32  # letters of a cell that is never broken into lines

_LEAST_SEARCHED = 9  # lines: fewer are seen at once
_MANY = 9  # columns, which leave a column of sentences little room


def page(document: Document) -> str:
    """The whole page. Whatever a report holds is text in it."""
    drawn = {id(picture): drawing(picture.svg, f"p{n}-") for n, picture in enumerate(document.pictures())}
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
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return escape(shown(text))


def _links(document: Document) -> str:
    links = (f'<li><a href="#{escape(one.name)}">{_text(one.title)}</a></li>' for one in document.sections)
    return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'


def _section(section: Section, drawn: dict[int, Drawing], level: int) -> str:
    head = f'<section id="{escape(section.name)}"><h{level}>{_text(section.title)}</h{level}>'
    parts = [
        _section(block, drawn, min(level + 1, 4)) if isinstance(block, Section) else _block(block, drawn)
        for block in section.blocks
    ]
    return "\n".join([head, *parts, "</section>"])


def _block(block: Block, drawn: dict[int, Drawing]) -> str:
    if isinstance(block, Words):
        return f"<p{' class=lead' if block.lead else ''}>{_text(block.text)}</p>"
    if isinstance(block, Items):
        tag = "ol" if block.numbered else "ul"
        return f"<{tag}>{''.join(f'<li>{_text(line)}</li>' for line in block.lines)}</{tag}>"
    if isinstance(block, Facts):
        name, begin, end = ("figures", "<div>", "</div>") if block.lead else ("facts", "", "")
        pairs = (f"{begin}<dt>{_text(n)}</dt><dd>{_text(v)}</dd>{end}" for n, v in block.pairs)
        return f'<dl class="{name}">{"".join(pairs)}</dl>'
    if isinstance(block, Code):
        lines = "\n".join(map(_text, block.text.splitlines()))
        return f"<pre>{lines}</pre>"
    if isinstance(block, Table):
        return _table(block)
    return _picture(block, *drawn[id(block)])


def _table(found: Table) -> str:
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


def _picture(picture: Picture, svg: str, width: float) -> str:
    caption = f"<figcaption>{_text(picture.caption)}</figcaption>" if picture.caption else ""
    label = _text(picture.text)
    return (
        f'<figure><div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f'<div class="drawing" role="img" aria-label="{label}" style="max-width: {width:.0f}px">{svg}</div>'
        f"</div>{caption}</figure>"
    )
