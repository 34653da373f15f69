"""Reports of runs: what stands in them, text that means harm, files that are there already; the page in a browser is
`test_report_page`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import time
from base64 import b64encode
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from rows import HOSTILE, hostile_frame, pair, row

import bwprof
from bwprof.cli.commands.results import main_report
from bwprof.report import run as pictures
from bwprof.report import sections, write
from bwprof.report.run import ReportRun, read_runs
from bwprof.report.sections import build_document
from bwprof.report.write import WrittenReport, choose_kind, embed_svg, page, write_report
from bwprof.results import json_file
from bwprof.results import row as results_row
from bwprof.text import document as text_document
from bwprof.text.document import to_markdown

EXAMPLE = "h200"
SECTIONS = (
    "The answer",
    "What was measured on what",
    "What a narrower precision brings",
    "Roofline",
    "Where time is lost, and what helps",
    "All rows",
    "Conditions and flags",
    "Method",
    "How to reproduce it",
)


class Seen(HTMLParser):
    """What a page holds as a browser would see it: tags, attributes, ids, texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out pictures, which take most of the time."""
    monkeypatch.setattr(pictures, "draw_svg", lambda *_, **__: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WrittenReport:
    """The page of a recorded run."""
    return bwprof.write_report(bwprof.load_example(EXAMPLE), tmp_path_factory.mktemp("page") / "r.html")


def decode_gemm() -> list[str]:
    """Its line, by hand: GB/s in FP32 and FP16, their ratio, that of bytes, and of times."""
    rows = bwprof.load_example(EXAMPLE).query("case == 'decode_gemm_8b'").set_index("precision")
    wide, half = (rows["bandwidth_gb_s"][name] for name in ("fp32", "fp16"))
    gain = rows["time_ms"]["fp32"] / rows["time_ms"]["fp16"]
    return [f"{wide:.0f}", f"{half:.0f}", f"{half / wide:.2f}x", "2.00x", f"{gain:.2f}x"]


def test_a_page_holds_every_section_of_a_run(whole: WrittenReport) -> None:
    text = whole.path.read_text()
    assert (whole.passed, whole.pictures, Path(whole)) == (True, (), whole.path)
    assert tuple(re.findall(r"<h2>(.*?)</h2>", text)) == SECTIONS
    seen = Seen(text)
    assert seen.tags.count("tr") > 63
    assert len(seen.values("id")) == len(set(seen.values("id")))
    assert {link[1:] for link in seen.values("href") if link.startswith("#")} <= set(seen.values("id"))
    limited = bwprof.load_example(EXAMPLE)["limiter"].value_counts()
    limits = f"memory {limited['memory']}, own kernel {limited['kernel']} (below half of the roof)"
    assert f"Limits of 63 measurements: {limits}" in text
    assert bwprof.load_example(EXAMPLE).attrs["run"]["facts"]["peak_source"] in text
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text)
    place = cells.index("decode_gemm_8b")
    assert cells[place + 1 : place + 6] == decode_gemm()


def test_a_page_loads_nothing_and_runs_one_script(whole: WrittenReport) -> None:
    text = whole.path.read_text()
    seen = Seen(text)
    assert not [tag for tag in seen.tags if tag in ("img", "iframe", "object", "embed", "base", "form")]
    assert seen.values("src") == []
    assert {value for value in seen.values("href") if not value.startswith("#")} == {"data:,"}
    assert "http" not in re.sub(r"http-equiv", "", text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (policy,) = [value for value in seen.values("content") if "default-src" in value]
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


def test_hostile_text_stays_text_in_a_page() -> None:
    found = Seen(page(build_document(read_runs(hostile_frame()), HOSTILE[0])))
    plain = Seen(page(build_document(read_runs(bwprof.frame(pair("a", 100.0, 80.0))))))
    own = {"code", "li", "ul", "pre", "h3", "h4", "dd", "dt", "dl", "ol", "g", "defs", "path", "use", "pattern"}
    assert set(found.tags) <= {*plain.tags, *own, "figcaption", "rect", "clippath", "text", "svg", "tspan"}
    assert found.tags.count("script") == found.tags.count("style") == 1
    assert not [name for _, name, _ in found.attributes if name.startswith("on") or name in ("autofocus", "src")]
    content = "".join(found.texts)
    assert HOSTILE[0] in content
    assert HOSTILE[1] in content
    assert "\\u202eright to left\\u202c \u05d0\u05d1" in content  # turned around for nobody
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", content)
    assert max(map(len, found.texts)) < 20_000  # the page's own style and script are the longest
    assert not [value for _, name, value in found.attributes if name == "aria-label" and "A" * 700 in value]


def test_hostile_text_stays_text_in_markdown(no_pictures: None) -> None:
    whole = to_markdown(build_document(read_runs(hostile_frame()), HOSTILE[0]))
    text, codes = re.subn(r"^(`{3,})\n.*?^\1$", "", whole, flags=re.MULTILINE | re.DOTALL)
    assert codes == 1
    assert not re.search(r"<[A-Za-z/!?]", text)
    assert "&lt;script>window.hacked=1&lt;/script>" in text
    assert not re.search(r"(?<!\\)\]\(", text)  # no link but those of pictures, of which there are none
    assert not re.search(r"(?<!\\)`", text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)
    tables = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in tables}
    assert len(widths) < 8  # each row has as many cells as its heading: pipes are none
    assert max(map(len, text.splitlines())) < 8_000


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("# no heading", "\\# no heading"),
        ("1. no list", "1\\. no list"),
        ("- no list", "\\- no list"),
        ("a_b and _c_", "a_b and \\_c\\_"),
        ("copy<float>(a*)", r"copy&lt;float>(a\*)"),
        ("[x](y)", r"\[x\](y)"),
        ("`c` \\", r"\`c\` " + "\\\\"),
        ("x < 3 & y > 2", "x < 3 & y > 2"),
        ("AT&T; <b>", "AT&amp;T; &lt;b>"),
        ("https://example.org", "https&#58;//example.org"),
        ("two\nlines", "two lines"),
    ],
)
def test_markup_is_escaped_in_markdown(value: str, escaped: str) -> None:
    document = text_document.Document("t", "s", (text_document.Section("n", "N", (text_document.Paragraph(value),)),))
    assert to_markdown(document).splitlines()[-1] == escaped


def test_markdown_has_the_sections_of_the_page(tmp_path: Path) -> None:
    found = write_report(bwprof.load_example(EXAMPLE), tmp_path / "r.md")
    text = found.path.read_text()
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == SECTIONS
    assert f"| decode_gemm_8b | {' | '.join(decode_gemm())} |" in text
    names = [f"r-{kind}.svg" for kind in ("comparison", "speedup", "roofline")]
    assert [path.name for path in found.pictures] == names
    assert all(f"]({path.name})" in text and ElementTree.parse(path) for path in found.pictures)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "r.md"}


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    data = bwprof.frame(pair("a", 100.0, 80.0))
    pages = [write_report(data, tmp_path / f"{name}.html").path.read_bytes() for name in "ab"]
    assert pages[0] == pages[1]


def test_without_matplotlib_texts_replace_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    found = write_report(bwprof.frame(pair("a", 100.0, 80.0)), tmp_path / "r.md")
    assert found.pictures == ()
    assert "matplotlib" in found.path.read_text()


def test_several_runs_are_compared_with_the_first(tmp_path: Path, no_pictures: None) -> None:
    base = bwprof.load_example(EXAMPLE)
    slower = base.assign(**{name: base[name] * 1.5 for name in ("time_ms", "time_ms_lo", "time_ms_hi")})
    for name, data in (("monday", base), ("friday", slower)):
        bwprof.save(data, tmp_path / f"{name}.json")
    names = [tmp_path / "monday.json", tmp_path / "friday.json"]
    text = write_report(names, tmp_path / "r.html").path.read_text()
    assert "<h2>friday against monday</h2>" in text
    judged = ~base["flags"].str.contains(r"\bnoisy\b|throttled")
    assert judged.sum() > 55
    counts = re.search(r"(\d+) slower, (\d+) faster, (\d+) same", text)
    assert counts is not None
    assert counts.groups() == (str(judged.sum()), "0", "0")
    seen = Seen(text)
    assert len(seen.values("id")) == len(set(seen.values("id")))
    assert {"run1-answer", "run2-answer", "run2-rows"} <= set(seen.values("id"))


def test_a_cause_of_changed_times_is_listed_once(no_pictures: None) -> None:
    """The cause is in a list, not in a column of the table."""
    base = bwprof.load_example(EXAMPLE).iloc[:6]
    times = {name: base[name] * 1.4 for name in ("time_ms", "time_ms_lo", "time_ms_hi")}
    both = [base, base.assign(**times, sm_clock_mhz=base["sm_clock_mhz"] * 0.7)]
    text = page(build_document(read_runs(both)))
    cause = "clock fell by 30.0 %"
    lines = [line for line in re.findall(r"<li>(.*?)</li>", text) if cause in line]
    assert len(lines) == text.count(cause) == 1
    assert lines[0].startswith("slower: stream_")
    assert lines[0].count("+40.0 %") == 6
    assert ">why<" not in text
    other = [base, base.assign(**times, sm_clock_mhz=base["sm_clock_mhz"] * 0.7, device="NVIDIA L4")]
    assert cause not in page(build_document(read_runs(other))), "another device needs no cause"


def test_ceilings_of_slow_memory_have_decimals(no_pictures: None) -> None:
    """Ceilings of 4.2 and 4.4 GB/s are not both 4."""
    data = bwprof.load_example(EXAMPLE)
    run = json.loads(json.dumps(data.attrs["run"]))
    for point in run["roofs"]["points"]:
        point["seconds"] *= 1000
    data.attrs = {"run": results_row.RunMetadata(run)}  # which pandas need not copy at every step
    assert len(re.findall(r"stream_[a-z]+ \d\.\d\d GB/s", page(build_document(read_runs(data))))) == 4


def test_runs_of_other_devices_are_compared(no_pictures: None) -> None:
    both = read_runs([bwprof.load_example("h100"), bwprof.load_example(EXAMPLE)])
    text = page(build_document(both))
    assert "other devices" in text
    old, new = (one.data.reset_index(drop=True) for one in both)
    assert (old["case"] == new["case"]).all(), "row beside row"
    apart = (old["time_ms_lo"] > new["time_ms_hi"]) & (old["time_ms"] > 1.03 * new["time_ms"])
    judged = ~(old["flags"] + new["flags"]).str.contains(r"\bnoisy\b|throttled")
    faster, same = (judged & apart).sum(), (judged & ~apart).sum()
    assert min(faster, same) > 10, "some of both"
    found = bwprof.compare(old, new, across=True)["verdict"].value_counts()
    assert (found["faster"], found["same"] + found["undecided"]) == (faster, same)
    assert found["undecided"] <= 3
    assert f"{faster} faster, {found['same']} same, {found['undecided']} undecided" in text


def test_a_models_run_shows_its_answer_and_tables(no_pictures: None) -> None:
    data = bwprof.load_example("h200_llama")
    text = page(build_document(read_runs(data)))
    assert "<h1>llama-3.1-8b on NVIDIA H200</h1>" in text
    assert "<h2>Model: llama-3.1-8b</h2>" in text
    assert bwprof.ModelStep.from_frame(data).answer.replace("'", "&#x27;") in text
    broken = data.copy()
    broken.attrs = {"run": {"model": {"architecture": 7}}}  # of a damaged file: its rows are shown all the same
    assert "<h2>Model" not in page(build_document(read_runs(broken)))


def test_the_nine_classic_columns_are_enough(tmp_path: Path, no_pictures: None) -> None:
    path = tmp_path / "old.csv"
    header = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written\n"
    path.write_text(f"{header}decode,FP32,1,8,8,0.004,400,1600000,1792\ndecode,FP16,1,8,8,0.002,400,800000,896\n")
    text = page(build_document(read_runs(path)))
    assert "<h1>Memory bandwidth</h1>" in text
    assert "roofs were not measured" in text
    assert "no roofs are beside" in text
    assert "not recorded" in text


def test_a_run_without_a_time_is_explained(no_pictures: None) -> None:
    text = page(build_document(read_runs(bwprof.frame([row("a", "fp32", gb_s=None, status="failed", reason="lost")]))))
    assert re.search(r"\(failed 1; .*lost\)", text)


def test_an_empty_frame_makes_a_page(no_pictures: None) -> None:
    assert "<h1>Memory bandwidth</h1>" in page(build_document(read_runs(bwprof.frame([]))))


def test_the_command_is_quoted_for_a_shell() -> None:
    data = bwprof.frame(pair("a", 1.0, 1.0))
    data.attrs = {"run": {"argv": ["-p", "N=1,2", "--suite", "my suite.toml"], "environment": {"A": "1", "B": None}}}
    found = sections.describe_command(ReportRun("r", data))
    assert found is not None
    assert isinstance(found.blocks[0], text_document.Code)
    command = ["bwprof", "sweep", "-p", "N=1,2", "--suite", "my suite.toml"]
    assert shlex.split(found.blocks[0].text) == command
    assert ("Environment", "A=1") in found.blocks[1].pairs  # type: ignore[union-attr]


def test_mostly_flagged_rows_come_first_in_the_answer() -> None:
    rows = [row("a", "fp32", flags="noisy"), row("b", "fp32", flags="noisy"), row("c", "fp32")]
    rows += [row(f"predicted {number}", "fp32", status="predicted") for number in range(2)]  # nobody doubts these
    content = "How sure: results verified: 0 of 3; rows with warnings: 2 (noisy)"
    for chosen, first in ((rows, True), (rows[1:], False)):
        found = sections.summarize(ReportRun("r", bwprof.frame(chosen)))
        assert found is not None
        assert found.blocks[0].text.startswith(content) == first  # type: ignore[union-attr]


def test_flags_list_their_rows() -> None:
    rows = [row("a", "fp32", flags="noisy;throttled"), row("b", "fp32", flags="noisy"), row("c", "fp32")]
    found = sections.describe_conditions(ReportRun("r", bwprof.frame(rows)))
    assert found is not None
    table = next(block for block in found.blocks if isinstance(block, text_document.DocumentTable))
    assert [(line[0], line[2]) for line in table.lines] == [
        ("noisy", ", ".join(f"{name} fp32 plain" for name in "ab")),
        ("throttled", "a fp32 plain"),
    ]


def test_large_runs_stay_small_pages(no_pictures: None) -> None:
    base = bwprof.load_example(EXAMPLE)
    parts = [base.assign(case=base["case"] + f"_{number}") for number in range(32)]
    begun = time.process_time()
    text = page(build_document(read_runs(pd.concat(parts, ignore_index=True))))
    assert text.count("<tr>") > 2016
    assert len(text) < 1_500_000
    assert time.process_time() - begun < 60  # it takes one or two; each row once more would take hundreds


def test_pictures_show_a_bounded_number_of_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "_MOST_CASES", 3)
    picture = pictures.draw_kind("comparison", bwprof.load_example(EXAMPLE), "bars")
    assert isinstance(picture, text_document.SvgPicture)
    assert set(re.findall(r">((?:stream|kv|decode|prefill|ffn|batch)\w+)</text>", picture.svg)) == {
        f"stream_{name}" for name in ("copy", "read", "write")
    }
    assert re.findall(r"\d+", picture.caption) == ["3", "18"]


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [({"N": (16,)}, "comparison"), ({"N": (16, 32)}, "lines"), ({"N": (1, 2, 4, 8), "M": (1, 2, 3, 4)}, "heatmap")],
)
def test_the_number_of_parameters_decides_the_picture(
    sizes: dict[str, tuple[int, ...]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(pictures, "draw_kind", lambda kind, *_: drawn.append(kind))
    shapes = [dict(zip(sizes, shape, strict=True)) for shape in product(*sizes.values())]
    rows = [row(f"case {number}", "fp32", **shape) for number, shape in enumerate(shapes)]
    sections.compare_precisions(ReportRun("r", bwprof.frame(rows)))
    assert drawn == [kind]


def test_an_embedded_svg_has_only_shapes() -> None:
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 72 36">'
        "<metadata>x</metadata><style>*{color:red}</style><script>window.hacked=1</script>"
        '<defs><path id="m1" d="M 0.123456 1"/><clipPath id="c1"><rect width="1" height="1"/></clipPath></defs>'
        '<g id="unused" onclick="window.hacked=1" clip-path="url(#c1)">'
        '<use xlink:href="#m1" style="fill: #FFFFFF; stroke: #ff0000"/>'
        '<use xlink:href="https://example.org/#m1"/><image xlink:href="https://example.org/a.png"/>'
        '<text style="font-family: Arial; fill: #ffffff">&lt;b&gt;</text></g></svg>'
    )
    found = embed_svg(svg, "p7-")
    assert found.width == 96.0
    expected = (
        '<svg viewBox="0 0 72 36" aria-hidden="true"><defs><path d="M 0.12 1" id="p7-m1" /><clipPath id="p7-c1">'
        '<rect width="1" height="1" /></clipPath></defs><g clip-path="url(#p7-c1)" id="p7-unused">'
        '<use style="fill: var(--ink4); stroke: #ff0000" href="#p7-m1" /><use /><image />'
        '<text style="fill: #ffffff">&lt;b&gt;</text></g></svg>'
    )
    assert found.svg == expected


@pytest.mark.parametrize("svg", ["", "<svg", "<html/>", '<svg viewBox="0 0 1 1"/>'])
def test_other_texts_than_svg_are_refused(svg: str) -> None:
    with pytest.raises(ValueError, match="no SVG"):
        embed_svg(svg, "p")


def test_a_file_is_replaced_with_force_only(tmp_path: Path, no_pictures: None) -> None:
    data, path = bwprof.frame(pair("a", 100.0, 80.0)), tmp_path / "r.html"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="exists already"):
        write_report(data, path)
    assert path.read_text() == "mine"
    write_report(data, path, force=True)
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert [found.name for found in tmp_path.iterdir()] == ["r.html"]


def test_a_picture_beside_markdown_is_replaced_with_force_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = text_document.SvgPicture("comparison", "<svg/>", "bars")
    monkeypatch.setattr(pictures, "draw_svg", lambda *_, **__: drawn)
    (tmp_path / "r-comparison.svg").write_text("mine")
    with pytest.raises(FileExistsError, match=r"r-comparison\.svg"):
        write_report(bwprof.frame(pair("a", 100.0, 80.0)), tmp_path / "r.md")
    assert [found.name for found in tmp_path.iterdir()] == ["r-comparison.svg"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("absent/r.html", FileNotFoundError),
        ("a file/r.html", NotADirectoryError),
        ("folder.html", IsADirectoryError),
        ("link.html", FileNotFoundError),
        ("closed/r.html", PermissionError),
    ],
)
def test_an_unwritable_target_is_refused_before_the_work(
    name: str, error: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file").touch()
    for folder in ("folder.html", "closed"):
        Path(folder).mkdir()
    Path("link.html").symlink_to("absent/r.html")
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed" and allowed(path, mode))
    monkeypatch.setattr(write, "read_runs", lambda _: pytest.fail("worked before it looked"))
    with pytest.raises(error, match=name):
        write_report("run", name, force=True)
    assert main_report(["run", "-o", name, "--force"]) == 2
    assert f"-o {name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("runs", "options", "error", "content"),
    [
        (None, {}, TypeError, "runs is None"),
        ([], {}, ValueError, "runs is empty"),
        ([7], {}, TypeError, "runs holds 7"),
        ("absent", {}, FileNotFoundError, "absent"),
        ("h", {"path": "r.txt"}, ValueError, "unknown ending of a report '.txt'"),
        ("h", {"kind": "optimization_report"}, ValueError, "unknown kind 'optimization_report': did you mean"),
        ("h", {"kind": 3}, TypeError, "kind is 3"),
        ("h", {"goals": {"speedup": ">1"}}, ValueError, "goals is of an optimization"),
        ("h", {"force": 1}, TypeError, "force is 1"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, runs: Any, options: dict[str, Any], error: type[Exception], content: str
) -> None:
    value = bwprof.frame(pair("a", 1.0, 1.0)) if runs == "h" else runs
    path = tmp_path / options.pop("path", "r.html")
    with pytest.raises(error, match=content.replace("(", r"\(")):
        write_report(value, path, **options)
    assert not path.exists()


def test_a_files_name_may_decide_the_kind() -> None:
    assert (
        choose_kind(None, Path("OPTIMIZATION_REPORT.md")) == choose_kind("optimization", Path("r.md")) == "optimization"
    )
    assert choose_kind(None, Path("report.md")) == choose_kind("run", Path("OPTIMIZATION_REPORT.md")) == "run"


@pytest.mark.usefixtures("here", "no_pictures")
def test_the_command_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bwprof.save(bwprof.frame(pair("a", 100.0, 80.0)), tmp_path / "a.json")
    assert main_report(["a.json", "-o", "r.html", "--title", "Ours <3"]) == 0
    assert "r.html" in capsys.readouterr().err
    assert "<h1>Ours &lt;3</h1>" in (tmp_path / "r.html").read_text()
    assert main_report(["a.json", "-o", "r.html"]) == 2
    err = capsys.readouterr().err
    assert "r.html" in err
    assert "(--force)" in err
    assert main_report(["a.json", "-o", "r.html", "--force"]) == 0


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        (["a.json", "a.json"], "2 runs are given: name a file for their report with -o"),
        (["a.json", "--title", "x"], "--title is of a report as a file"),
        (["a.json", "--force"], "--force is of a report as a file"),
        (["a.json", "-o", "r.html", "--checklist"], "--checklist is printed"),
        (["a.json", "-o", "r.pdf"], "unknown ending of a report '.pdf'"),
        (["a.json", "-o", "no/r.html"], "-o no/r.html: there is no folder no that can be written to"),
        (["a.json", "-o", "r.html", "--goals", "g.toml"], "goals is of an optimization"),
    ],
)
@pytest.mark.usefixtures("here", "no_pictures")
def test_wrong_options_of_the_command_are_refused(
    tmp_path: Path, arguments: list[str], content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bwprof.save(bwprof.frame(pair("a", 100.0, 80.0)), tmp_path / "a.json")
    assert main_report(arguments) == 2
    assert content in capsys.readouterr().err


def test_a_damaged_runs_metadata_make_a_page(no_pictures: None) -> None:
    damaged = {"argv": 7, "facts": [1], "roofs": {"points": [{"x": 1}]}, "host": "x", "versions": {"a": {}}, "build": 3}
    text = json_file.json_text([row("a", "fp32")], [None], {**damaged, "started": {"a": 1}, "environment": {"A": [1]}})
    rows, samples, run = json_file.parse_results(text, "t")
    from bwprof.results import frame

    assert "The answer" in page(build_document(read_runs(frame.from_rows(rows, run, samples))))


def test_sentences_keep_names_as_they_are() -> None:
    assert sections.as_sentence("fp8_e4m3 instead of fp16") == "fp8_e4m3 instead of fp16."
    assert sections.as_sentence("most of it. ") == "Most of it. ."[:-2] + " ."


def test_frames_with_repeated_columns_are_refused(tmp_path: Path) -> None:
    data = bwprof.frame(pair("a", 1.0, 1.0))
    for value, content in (
        (pd.concat([data, data], axis=1), "there twice"),
        (pd.concat({"x": data}, axis=1), "2 levels"),
    ):
        with pytest.raises(ValueError, match=f"runs: columns .*{content}"):
            write_report(value, tmp_path / "r.html")


def test_a_models_run_without_a_step_is_a_page(no_pictures: None) -> None:
    """All values of the rows are missing."""
    data = bwprof.load_example("h200_llama").head(14)
    gone = pd.DataFrame(float("nan"), index=data.index, columns=data.columns)
    gone.attrs = dict(data.attrs)
    assert "14 rows" in page(build_document(read_runs(gone)))
