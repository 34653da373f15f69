"""cuBLASLt's algorithms and the search among them, without a card: cublaslt_search.c on a toy runtime."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compiled import FLAGS, call, clean_environment, sanitizers
from test_cupti import NATIVE, Native, includes  # noqa: F401 - a fixture

SOURCES = (
    "csrc/base/names.c",
    "csrc/base/status.c",
    "csrc/base/types/precision.c",
    "csrc/cuda/libraries/cublaslt.c",
    "csrc/cuda/libraries/find.c",
    "csrc/cuda/kernels/gemm/cublaslt_search.c",
    "csrc/cuda/launch/search.c",
    "csrc/cuda/runtime/attachments.c",
    "csrc/cuda/launch/graph.c",
    "csrc/cuda/launch/replay.c",
)
CHECKS = re.findall(r'\{"(\w+)", check_\w+\}', (NATIVE / "check_search.c").read_text())


@pytest.fixture(scope="session")
def program(source_tree: Path, includes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Native:  # noqa: F811
    if not any(Path(folder.removeprefix("-isystem"), "cublasLt.h").is_file() for folder in includes):
        pytest.skip("needs cuBLASLt's header")
    folder = tmp_path_factory.mktemp("cublaslt")
    flags, options = sanitizers(["cc"], folder)
    flags = [*flags, *includes, "-Itests/native_cuda"]
    library = folder / "libcublasLt.so.13"
    shared = ["-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{library.name}"]
    call(["cc", *FLAGS, *includes, *shared, str(NATIVE / "fake_cublaslt.c"), "-o", str(library)])
    sources = [*(str(source_tree / source) for source in SOURCES), str(NATIVE / "check_search.c")]
    built = folder / "check_search"
    call(["cc", *FLAGS, *flags, *sources, "-pthread", "-ldl", "-lm", "-o", str(built)])
    return Native(built, library, clean_environment() | options)


@pytest.mark.parametrize("check", CHECKS)
def test_search(program: Native, check: str) -> None:
    done = program.run(check, BWPROF_TEST_CUBLASLT=str(program.library))
    assert done.returncode == 0, done.stdout + done.stderr
