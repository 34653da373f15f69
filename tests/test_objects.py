"""Compiled objects have no global variables that change between calls."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def object_files(root: Path) -> list[Path]:
    """Return the objects of the newest configuration and the shared ones; none for an installed wheel."""
    configured = [path.parent for path in (root / "build").glob("c*-*/build_info.h") if any(path.parent.rglob("*.o"))]
    if not configured or shutil.which("objdump") is None:
        pytest.skip("needs the objects of a build in this checkout, and objdump")
    newest = max(configured, key=lambda path: (path / "build_info.h").stat().st_mtime)
    shared = newest.name.replace(f"-{sys.implementation.cache_tag}", "").replace(newest.name.partition("-")[0], "c", 1)
    return sorted([*newest.rglob("*.o"), *(root / "build" / shared).rglob("*.o")])


def mutable_globals(listing: str) -> list[str]:
    """From `objdump -t`: objects of some size in .data, .bss or thread-local storage.

    Not counted: what CPython, C++ and nvcc insist on, which are definitions of modules and types, names of keyword
    arguments, references to a run-time, and handles to a file's kernels; and CUPTI: its buffer callbacks carry no
    pointer of ours, so where kernel records go cannot be in a handle; NVTX, whose header asks the tool once for a
    process; what was measured of the last-level cache, once a process; and in the C library the text of a thread's last
    failure, which C has no other place for, and the table that tells a handle from one that was destroyed."""
    insisted = re.compile(
        r"(_methods|_slots|_spec|_members|_getset|_module|^names)(\.\d+)?$"
        r"|^bw_cupti_sink$|^bw_cpu_cache_known$|^(nvtxGlobals_v\d+|InitializeInjectionNvtx2_fnptr)$|^bw_api_(last_error|thread_number|handles)$"
        r"|^DW\.ref\.|__cuda|__nv_|fatbin|__device_stub__|__odr_asan"
    )
    found = []
    for line in listing.splitlines():
        row = re.match(r"[0-9a-f]{16} .{6}[O ] (\S+)\t([0-9a-f]+) +(?:\.hidden )?(\S+)$", line)
        if row is None:
            continue
        section, size, name = row[1], int(row[2], 16), row[3]
        mutable = re.match(r"\.(data|bss|tdata|tbss)|\*COM\*", section) and not section.startswith(".data.rel.ro")
        if mutable and size and not insisted.search(name):
            found.append(f"{name} in {section}")
    return found


def test_mutable_globals_are_recognized() -> None:
    listing = """
0000000000000000 l    df *ABS*\t0000000000000000 gcc.c
0000000000000000 l     O .rodata\t0000000000000004 constant
0000000000000000 l     O .data.rel.ro.local\t0000000000000008 names
0000000000000000 l     O .bss\t0000000000000004 counter.0
0000000000000000 g     O .data\t0000000000000004 .hidden level
0000000000000000 g       .tbss\t0000000000000004 last
0000000000000004       O *COM*\t0000000000000004 shared
0000000000000000 l     O .data\t0000000000000068 core_module
0000000000000000 g     F .text\t0000000000000025 function
"""
    assert mutable_globals(listing) == ["counter.0 in .bss", "level in .data", "last in .tbss", "shared in *COM*"]


def test_no_mutable_globals(source_tree: Path) -> None:
    wrong = []
    for path in object_files(source_tree):
        listing = subprocess.run(["objdump", "-t", path], capture_output=True, text=True, check=True).stdout
        assert "SYMBOL TABLE" in listing
        wrong += [f"{path.name}: {found}" for found in mutable_globals(listing)]
    assert not wrong, "\n".join(wrong)
