"""BWPROF_RANGE and its like: nothing at all unless BWPROF_ENABLE is defined; else ranges that end with their block."""

from __future__ import annotations

import csv
import os
import shlex
import shutil
from pathlib import Path

import pytest
from test_library import WARNINGS, flags, run, sanitizer

import bwprof

# Of nothing that is named here there is a declaration, and what could be evaluated counts.
OFF = """
#include <bwprof.h>
static int evaluated;
static int count(void) { return ++evaluated; }
int main(void) {
    BWPROF_RANGE(no_profiler, no_stream, count(), count());
    BWPROF_RANGE_NAMED(no_profiler, no_name, no_stream, count(), count());
    BWPROF_RANGE_BEGIN(range, no_profiler, no_name, no_stream, count(), count());
    BWPROF_START(no_profiler, no_name, no_stream);
    BWPROF_STOP(no_profiler, no_name, no_stream);
    BWPROF_RANGE_END(range);
    return evaluated ? 10 : count() - 1;
}
"""

# A link to a file that is not there yet is followed, one after the other; one that leads into nowhere is an error.
LINKS = """
#include <bwprof.h>
#include <stdio.h>
int main(int count, char **paths) {
    bwprof_profiler *profiler;
    if (bwprof_profiler_create("cpu", 0, &profiler)) return 1;
    for (int i = 1; i < count; i++) printf("%d\\n", bwprof_profiler_write_csv(profiler, paths[i]));
    return bwprof_profiler_destroy(profiler);
}
"""

# Ends by return, break and END, a nested range, one that is switched off, a profiler that is none.
ON = """
#define BWPROF_ENABLE
#include <bwprof.h>
static bwprof_profiler *profiler;
static int gemm(int early) {
    BWPROF_RANGE(profiler, NULL, 3000, 1000);
    if (early) return 1;
    for (;;) {
        BWPROF_RANGE_NAMED(profiler, "inner", NULL, 0, 0);
        break;
    }
    return 0;
}
static void kv_cache(uint64_t bytes) {
    BWPROF_RANGE_BEGIN(range, profiler, "kv", &profiler, bytes, bytes);
    gemm(0);
    BWPROF_RANGE_END(range);
    BWPROF_RANGE_END(range);
}
int main(void) {
    gemm(1);
    if (bwprof_last_error()[0] == '\\0') return 3;
    if (bwprof_profiler_create("cpu", 0, &profiler)) return 4;
    gemm(1);
    kv_cache(10);
    kv_cache(20);
    if (bwprof_profiler_enable(profiler, 0)) return 5;
    gemm(0);
    bwprof_range range;
    if (bwprof_range_begin(profiler, "off", NULL, 1, 1, &range) || range.profiler) return 6;
    if (bwprof_profiler_enable(profiler, 1)) return 7;
    if (bwprof_range_end(&range) || bwprof_range_end(NULL)) return 8;
    if (bwprof_range_begin(profiler, "bad", NULL, 0, 0, NULL) != BWPROF_INVALID) return 9;
    if (bwprof_range_begin(profiler, "", NULL, 0, 0, &range) != BWPROF_INVALID || range.profiler) return 10;
    if (bwprof_range_begin(profiler, "dropped", NULL, 0, 0, &range)) return 11;
    if (bwprof_profiler_enable(profiler, 0) || bwprof_profiler_enable(profiler, 1)) return 12;
    if (bwprof_range_end(&range) != BWPROF_INVALID) return 13;
    return bwprof_profiler_write_csv(profiler, "ranges.csv") || bwprof_profiler_destroy(profiler);
}
"""

LANGUAGES = {"c99": ("CC", "cc", "c"), "c11": ("CC", "cc", "c"), "c++11": ("CXX", "c++", "cpp")}


def program(source: str, language: str, folder: Path, *libraries: str) -> Path:
    variable, usual, ending = LANGUAGES[language]
    compiler = shlex.split(os.environ.get(variable, usual))
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no compiler: {compiler[0]} was not found")
    (folder / f"program.{ending}").write_text(source)
    options = [*WARNINGS, f"-std={language}", *flags("--cflags"), *(sanitizer() if libraries else [])]
    run(*compiler, *options, "-c", f"program.{ending}", "-o", "program.o", cwd=folder)
    run(*compiler, *(sanitizer() if libraries else []), "program.o", *libraries, "-o", "program", cwd=folder)
    return folder / "program"


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_enable_ranges_are_nothing(language: str, tmp_path: Path) -> None:
    """Neither an argument nor the library: the program is linked without it, and its object asks for nothing."""
    run(program(OFF, language, tmp_path), cwd=tmp_path)
    if shutil.which("nm") is not None:
        assert "bwprof" not in run("nm", "-a", "program.o", cwd=tmp_path)


@pytest.mark.parametrize("language", LANGUAGES)
def test_ranges_end_with_their_block(language: str, tmp_path: Path) -> None:
    run(program(ON, language, tmp_path, *flags("--libs")), cwd=tmp_path)
    rows = {row["range"]: row for row in csv.DictReader((tmp_path / "ranges.csv").read_text().splitlines())}
    found = {name: (row["count"], row["bytes_read"], row["bytes_written"]) for name, row in rows.items()}
    bytes_of = {
        "gemm": ("3", "3000", "1000"),
        "inner": ("2", "", ""),
        "kv": ("2", "15", "15"),  # 10 and 20 each: their mean
        "dropped": ("0", "", ""),
    }
    assert found == bytes_of
    assert ["bytes_vary" in row["flags"] for row in rows.values()] == [name == "kv" for name in rows]
    assert float(rows["kv"]["bandwidth_gb_s"]) == pytest.approx(60e-6 / float(rows["kv"]["total_ms"]), rel=1e-9)
    inside, outside = float(rows["inner"]["total_ms"]), float(rows["gemm"]["total_ms"])
    assert inside <= outside


def test_a_file_is_written_where_its_links_lead(tmp_path: Path) -> None:
    """As Python's does, also where nothing is there yet."""
    (tmp_path / "real").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "first.csv").symlink_to("second.csv")
    (tmp_path / "links" / "second.csv").symlink_to("../real/there.csv")
    (tmp_path / "absolute.csv").symlink_to(tmp_path / "real" / "other.csv")
    (tmp_path / "lost.csv").symlink_to("nowhere/lost.csv")
    (tmp_path / "round.csv").symlink_to("round.csv")
    paths = ["links/first.csv", "links/first.csv", "absolute.csv", "lost.csv", "round.csv"]
    printed = run(program(LINKS, "c11", tmp_path, *flags("--libs")), *paths, cwd=tmp_path)
    assert printed.split() == ["0", "0", "0", "9", "9"]
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == ["other.csv", "there.csv"]
    assert all((tmp_path / name).is_symlink() for name in (*paths, "links/second.csv"))
    with bwprof.Profiler(device="cpu") as profiler:
        (tmp_path / "links" / "trace.json").symlink_to("../real/trace.json")
        profiler.write_chrome_trace(tmp_path / "links" / "trace.json")
    assert (tmp_path / "links" / "trace.json").is_symlink()
    assert (tmp_path / "real" / "trace.json").is_file()
