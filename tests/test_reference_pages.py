"""Generated pages equal today's output."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import bwprof
from bwprof.cli.commands import describe

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


@pytest.mark.parametrize("name", ["columns", "operations"])
def test_page_is_up_to_date(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert getattr(describe, f"main_{name}")(["--md"]) == 0
    page = (NOTEBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert page == capsys.readouterr().out, f"write it anew: bwprof {name} --md > notebooks/{name}.md"


def test_operations_as_json_and_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert describe.main_operations(["gemm", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["formulas"]["flops"] == "2*M*N*K"
    # 2*4096*4096 FLOPs; 4096 + 4096*4096 + 4096 elements of 4 bytes
    assert told["intensity"]["fp32"] == pytest.approx(33_554_432 / (4 * 16_785_408))
    assert describe.main_operations(["kv_copy", "kv_copy"]) == 0
    said = capsys.readouterr().out
    assert said.count("kv_copy: ") == 1
    formula = "bytes_written = 2*batch*kv_len*num_kv_heads*head_dim*e_cache + 2*cache_scales("
    assert formula in said


def test_an_unknown_operation_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert describe.main_operations(["gemmm"]) == 2
    assert re.search(r"operation 'gemmm': .* 'gemm' or 'moe_gemm'\?", capsys.readouterr().err)


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    root = NOTEBOOKS.parent
    assert len((root / "README.md").read_text(encoding="utf-8").splitlines()) <= 130
    for page in [root / "README.md", root / "CONTRIBUTING.md", *NOTEBOOKS.glob("*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "notebooks/guide.md", "notebooks/method.md"])
def test_names_on_pages_exist(page: str) -> None:
    """`bwprof.x.y` is a public name or a header of the library."""
    text = (NOTEBOOKS.parent / page).read_text(encoding="utf-8")
    names = set(re.findall(r"(?<![\w/.-])bwprof(?:\.[A-Za-z_]\w*)+", text)) - {"bwprof.h", "bwprof.hpp"}
    assert len(names) > 5
    for name in names:
        found: Any = bwprof
        parts = name.split(".")
        for count, part in enumerate(parts[1:], start=2):
            found = getattr(found, part, None) or importlib.import_module(".".join(parts[:count]))
        if inspect.ismodule(found):
            assert found is getattr(bwprof, parts[-1], found), name


def test_commands_on_pages_exist() -> None:
    from bwprof.cli import COMMANDS

    for page in (NOTEBOOKS.parent / "README.md", NOTEBOOKS / "guide.md"):
        told = set(re.findall(r"(?:^|`)bwprof ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert {"sweep", "analyze", "compare"} <= told <= set(COMMANDS), page.name


def test_the_guide_names_every_kind_of_picture_and_every_notebook() -> None:
    from bwprof import plot

    guide = (NOTEBOOKS / "guide.md").read_text(encoding="utf-8")
    kinds = (*plot.KINDS, "ablation", "compare", "trend")
    assert [kind for kind in kinds if not re.search(rf"# kinds: .*\b{kind}\b", guide)] == []
    readme = (NOTEBOOKS.parent / "README.md").read_text(encoding="utf-8")
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        assert f"({notebook.name})" in guide, notebook.name
        assert f"(notebooks/{notebook.name})" in readme, notebook.name
