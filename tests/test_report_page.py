"""A report's page in a browser, headless Chromium: nothing is logged or asked for, it fits phones and paper, tables are
sorted and searched, hostile text runs nothing. Skipped where there is none.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import browser as browsers
import pandas as pd
import pytest
from browser import Browser
from rows import hostile_frame

import bwprof
from bwprof.report import run as pictures
from bwprof.report.write import write_report

pytestmark = pytest.mark.skipif(not browsers.found(), reason=f"no browser: none of {', '.join(browsers.NAMES)} is here")

OVERFLOW = "document.scrollingElement.scrollWidth - window.innerWidth"
LETTER = (11 * 2.54 - 2 * 1.4) / 2.54 * 96  # the height of US letter within its margins
COLUMN = "Array.from(document.querySelectorAll('#rows tbody tr:not([hidden])'), row => row.cells[{}].textContent)"
HEADINGS = "Array.from(document.querySelectorAll('#rows thead th'), cell => cell.textContent)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A recorded run, and one that means harm."""
    folder = tmp_path_factory.mktemp("pages")
    recorded = bwprof.load_example("h200")
    few = recorded[recorded["case"].isin(list(dict.fromkeys(recorded["case"]))[:8])]
    frames: dict[str, pd.DataFrame] = {"run": few, "hostile": hostile_frame()}
    other = bwprof.load_example("h100")
    slower = few.assign(time_ms=few["time_ms"] * 1.2, sm_clock_mhz=1400.0, driver="1.2", variant="a_variant_of_mine")
    several = {"two": [other[other["case"].isin(few["case"])], few], "model": bwprof.load_example("h200_llama")}
    found = {name: write_report(value, folder / f"{name}.html").path for name, value in (frames | several).items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw_svg", lambda *_, **__: None)  # of this one the tables are looked at
        return found | {"slower": write_report([few, slower], folder / "slower.html").path}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all of this file."""
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def page(browser: Browser, pages: dict[str, Path]) -> Browser:
    """A recorded run's page, in a window of a desktop."""
    browser.media()
    browser.resize(1280)
    browser.open(pages["run"])
    return browser


@pytest.mark.parametrize("name", ["run", "hostile"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_and_is_quiet(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    """The colors follow the scheme while the page is open."""
    browser.media(scheme="dark")
    browser.resize(width, phone=width < 500)
    browser.open(pages[name])
    assert browser.run("document.querySelectorAll('main section').length") >= 8
    for scheme, behind, ink in (
        ("dark", "rgb(20, 23, 26)", "rgb(230, 233, 236)"),
        ("light", "rgb(255, 255, 255)", "rgb(27, 31, 36)"),
    ):
        browser.media(scheme=scheme)
        assert browser.run(OVERFLOW) <= 0
        colors = browser.run("['body', 'h1'].map(name => getComputedStyle(document.querySelector(name)))"
                           ".flatMap(style => [style.backgroundColor, style.color])")  # fmt: skip
        assert (colors[0], colors[3]) == (behind, ink), scheme
        assert browser.said == []
        assert browser.run("window.hacked") is None


def test_overflow_errors_and_requests_are_found(browser: Browser, tmp_path: Path) -> None:
    """The checks of the other tests find such faults."""
    path = tmp_path / "wrong.html"
    wide = '<div style="width: 2000px">wide</div>'
    path.write_text(f'<!DOCTYPE html>{wide}<img src="http://192.0.2.1/a.png"><script>throw new Error("wrong")</script>')
    browser.resize(390)
    browser.open(path)
    assert browser.run(OVERFLOW) > 0
    assert any("wrong" in said for said in browser.said)
    assert any("asked for http://192.0.2.1/a.png" in said for said in browser.said)


def test_a_heading_sorts_its_column_both_ways(page: Browser) -> None:
    place = page.run(HEADINGS).index("GB/s")
    click = f"document.querySelectorAll('#rows thead button')[{place}].click()"
    page.run(click)
    found = [float(text) for text in page.run(COLUMN.format(place))]
    assert found == sorted(found, reverse=True)
    assert found[0] == round(bwprof.load_example("h200")["bandwidth_gb_s"].max()), "the most that the run has"
    page.run(click)
    assert [float(text) for text in page.run(COLUMN.format(place))] == sorted(found)
    assert page.run(f"document.querySelectorAll('#rows thead th')[{place}].ariaSort") == "ascending"


def test_unknown_values_are_sorted_last(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    place = browser.run(HEADINGS).index("time, ms")
    for _ in range(2):
        browser.run(f"document.querySelectorAll('#rows thead button')[{place}].click()")
        times = browser.run(COLUMN.format(place))
        assert times[-10:] == ["-"] * 10
        assert "-" not in times[:-10]


def test_the_filter_shows_rows_with_all_its_words(page: Browser) -> None:
    typed = "input.dispatchEvent(new Event('input'))"
    page.run(f"{{ const input = document.querySelector('#rows input'); input.value = 'FP16  gemm'; {typed} }}")
    cases, precisions = (page.run(COLUMN.format(place)) for place in (0, 1))
    assert sorted(cases) == ["decode_gemm", "ffn_gemm", "prefill_gemm_medium", "prefill_gemm_small"]
    assert set(precisions) == {"fp16"}
    assert page.run("document.querySelector('#rows output').textContent") == "4 of 28 rows"


def test_a_page_works_without_scripts(browser: Browser, pages: dict[str, Path]) -> None:
    browser.script(enabled=False)
    try:
        browser.open(pages["run"])
    finally:
        browser.script(enabled=True)
    assert browser.said == []
    assert browser.run("document.querySelectorAll('#rows tbody tr').length") == 28
    assert browser.run("document.querySelectorAll('input, button').length") == 0


def test_a_link_leads_to_each_section(page: Browser) -> None:
    gone = "Array.from(document.querySelectorAll('nav a')).filter(a => !document.querySelector(a.getAttribute('href')))"
    assert page.run(f"{gone}.length") == 0
    assert page.run("document.querySelectorAll('nav a').length") == 9


def test_pictures_have_a_size_and_their_shapes(page: Browser) -> None:
    boxes = page.run(
        "Array.from(document.querySelectorAll('figure svg'), found => found.getBoundingClientRect().width)"
    )
    assert len(boxes) == 3
    assert all(400 < width <= 1200 for width in boxes)
    uses = "Array.from(document.querySelectorAll('svg use'), use => use.getAttribute('href'))"
    assert page.run(f"{uses}.filter(name => !document.querySelector(name)).length") == 0


@pytest.mark.parametrize(
    ("name", "section", "headings"),
    [("two", "change2", 10), ("slower", "change2", 10), ("model", "model", 7), ("model", "rows", 11)],
)
@pytest.mark.parametrize("paper", [False, True])
def test_tables_fit_a_desktop_and_paper(
    browser: Browser, pages: dict[str, Path], name: str, section: str, headings: int, paper: bool
) -> None:
    """Every column is in sight."""
    browser.media(kind="print" if paper else "")
    browser.resize(700 if paper else 1280)
    browser.open(pages[name])
    tables = f"Array.from(document.querySelectorAll('#{section} table'), found => found.closest('.scroll'))"
    assert max(browser.run(f"{tables}.map(found => found.querySelectorAll('thead th').length)")) >= headings
    beyond = browser.run(f"{tables}.map(found => found.scrollWidth - found.clientWidth)")
    assert max(beyond) <= 0


def test_a_phone_shows_whole_charts_and_a_tap_enlarges_one(browser: Browser, pages: dict[str, Path]) -> None:
    browser.media()
    browser.resize(390, phone=True)
    for name in ("run", "model"):
        browser.open(pages[name])
        browser.has_focus()
        wide = "Array.from(document.querySelectorAll('figure svg'), one => one.getBoundingClientRect().right)"
        assert 300 < max(browser.run(wide)) <= 390
        browser.run("document.querySelector('figure .scroll').focus()")
        assert max(browser.run(wide)) > 600
        assert browser.run(OVERFLOW) <= 0


def test_remarks_are_wide_on_a_phone(browser: Browser, pages: dict[str, Path]) -> None:
    """Narrow remarks would make high rows."""
    browser.media()
    browser.resize(390, phone=True)
    browser.open(pages["model"])
    wide = (
        "Array.from(document.querySelectorAll('#rows td:last-child:not(.s)'), one => one.getBoundingClientRect().width)"
    )
    assert min(browser.run(wide)) > 500
    assert browser.run(OVERFLOW) <= 0


@pytest.mark.parametrize("name", ["run", "model"])
def test_the_first_two_sections_fit_on_a_page_of_paper(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """The next page starts with a tall picture."""
    browser.media(kind="print")
    browser.resize(700)
    browser.open(pages[name])
    assert 300 < browser.run("document.querySelector('#measured').getBoundingClientRect().bottom") <= LETTER


def test_headings_repeat_on_each_page_of_paper(page: Browser, tmp_path: Path) -> None:
    """A table with empty, high cells is printed: the only letters of each page are the headings."""
    page.run("document.body.replaceChildren(document.querySelector('#rows table'))")
    page.run("document.querySelectorAll('td').forEach(cell => cell.replaceChildren())")
    page.run("document.querySelectorAll('tbody tr').forEach(row => { row.style.height = '150px' })")
    page.pdf(tmp_path / "r.pdf")
    streams = re.findall(rb"stream\r?\n(.*?)endstream", (tmp_path / "r.pdf").read_bytes(), re.DOTALL)
    pages = [drawn for drawn in map(_inflated, streams) if b" cm\n" in drawn[:80]]
    assert 4 <= len(pages) <= 9
    assert [drawn.count(b"Tj") for drawn in pages] == [pages[0].count(b"Tj")] * len(pages)
    assert pages[0].count(b"Tj") >= 8


def _inflated(part: bytes) -> bytes:
    try:
        return zlib.decompress(part)
    except zlib.error:  # it is not compressed: no page
        return b""


def test_the_picture_of_changes_is_on_the_first_page_of_paper(browser: Browser, pages: dict[str, Path]) -> None:
    """A picture of every row would start on the next page."""
    browser.media(kind="print")
    browser.resize(700)
    browser.open(pages["two"])
    assert 500 < browser.run("document.querySelector('#change2 figure').getBoundingClientRect().bottom") <= LETTER
    headings = "Array.from(document.querySelectorAll('main > section > h2'), one => "
    apart = f"{headings} [one.parentElement.id, getComputedStyle(one).breakBefore])"
    assert dict(browser.run(apart)) == {"runs": "auto", "change2": "auto", "run1": "page", "run2": "page"}


def test_a_printed_page(page: Browser, tmp_path: Path) -> None:
    page.media(scheme="dark", kind="print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    page.resize(700)  # the width of A4 within its margins
    assert page.run(OVERFLOW) <= 0
    cut = "Array.from(document.querySelectorAll('.scroll')).filter(found => found.scrollWidth > found.clientWidth + 1)"
    assert page.run(f"{cut}.length") == 0
    # A picture, however tall, stands below its heading: else the heading is alone on its page.
    page.run("document.querySelector('figure svg').style.height = '3000px'")
    figure, top = "document.querySelector('figure')", "getBoundingClientRect().top"
    height = page.run(f"{figure}.getBoundingClientRect().bottom - {figure}.closest('section').{top}")
    assert 700 < height <= LETTER
    page.pdf(tmp_path / "r.pdf")
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")
