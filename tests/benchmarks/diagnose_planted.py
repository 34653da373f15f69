"""How often `bwprof.diagnose` names a planted cause: diagnose_planted.py [--save FILE.json]

Kernels that are slow for one cause each (diagnose_planted.cu, compiled with nvcc) are measured by `bwprof.measure` with
all counters, and so are built-in variants whose files say what limits them. Printed is a confusion table: what was
planted, what is said first of it, what else is said, and whether that is right, open (nothing is claimed, something is
missing) or wrong. Needs a GPU, nvcc, and the right to read its counters.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from common import show, table

import bwprof
from bwprof.analysis.diagnosis.diagnose import Diagnosis, diagnose_rows
from bwprof.analysis.diagnosis.hypothesis import SUPPORTED

Case = tuple[str, list[str], Mapping[str, Any]]
SOURCE = Path(__file__).with_suffix(".cu")
SECONDS = 0.5  # of samples a kernel: medians are needed, not their last percent
PRODUCTS = {"M": 2048, "N": 2048, "K": 2048}
PREFILL = {"batch": 1, "seq_len": 2048, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "causal": 1}
DECODE = {"batch": 1, "kv_len": 32768, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
# Built-in variants, and what their files say limits them: any of these words is right.
RUNGS: tuple[tuple[str, str, dict[str, int], str], ...] = (
    ("stream_copy", "direct", {"elements": 1 << 27}, "memory_bound"),
    ("gemm", "naive", PRODUCTS, "uncoalesced"),
    ("gemm", "shared", PRODUCTS, "bank_conflicts"),
    ("gemm", "padded", PRODUCTS, "shared_memory_bound"),
    ("gemm", "cublaslt", {"M": 8192, "N": 8192, "K": 8192}, "compute_bound"),
    ("attention_prefill", "unfused", PREFILL, "materialized"),
    ("attention_prefill", "strided", PREFILL, "uncoalesced"),
    ("attention_prefill", "shared", PREFILL, "bank_conflicts"),
    # A query a warp: a shuffle, a load from shared memory and its address for each multiply-add. On an H200 the
    # schedulers are busier with them (81 % of the cycles) than shared memory is (66 %).
    ("attention_prefill", "padded", PREFILL, "issue_bound shared_memory_bound"),
    ("attention_decode", "simple", DECODE, "small_grid latency_bound"),
    ("attention_decode", "split", DECODE, "latency_bound"),
    ("attention_decode", "splitkv", DECODE, "memory_bound"),
)


class Planted:
    """The shared object of kernels."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        text, number = ctypes.c_char_p, ctypes.c_uint64
        for name, result in (("name", text), ("causes", text), ("work", number), ("open", text), ("launch", text)):
            getattr(self._library, f"planted_{name}").restype = result
        self._library.planted_stream.restype = number
        self.count: int = self._library.planted_count()

    def open(self) -> None:
        self._check(self._library.planted_open())

    @property
    def stream(self) -> int:
        return int(self._library.planted_stream())

    def name(self, at: int) -> str:
        return str(self._library.planted_name(at).decode())

    def causes(self, at: int) -> list[str]:
        return str(self._library.planted_causes(at).decode()).split()

    def work(self, at: int) -> dict[str, int]:
        """Bytes and FLOPs of a launch; no FLOPs where none are its point."""
        read, written, flops = (int(self._library.planted_work(at, which)) for which in range(3))
        return {"bytes_read": read, "bytes_written": written} | ({"flops": flops} if flops else {})

    def launch(self, at: int) -> Callable[[], None]:
        return lambda: self._check(self._library.planted_launch(at))

    @staticmethod
    def _check(said: bytes | None) -> None:
        if said is not None:
            raise SystemExit(f"CUDA: {said.decode()}")


def compiled(folder: Path) -> Path:
    """The shared object, for the oldest GPU that bwprof runs on and every newer one."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        raise SystemExit("no nvcc on PATH, nor in /usr/local/cuda: it compiles the planted kernels")
    made = folder / "planted.so"
    flags = ["-O3", "-std=c++17", "-gencode", "arch=compute_80,code=[sm_80,compute_80]", "-shared"]
    subprocess.run([nvcc, *flags, "-Xcompiler", "-fPIC", str(SOURCE), "-o", str(made)], check=True)
    return made


def measured(planted: Planted) -> Iterator[Case]:
    """A row of each planted kernel."""
    for at in range(planted.count):
        row = bwprof.measure(
            planted.launch(at),
            name=planted.name(at),
            stream=planted.stream,
            counters=True,
            metrics="all",
            roofs="auto",
            precision="fp32",
            device="cuda",
            max_seconds=SECONDS,
            **planted.work(at),
        )
        yield planted.name(at), planted.causes(at), row


def rungs() -> Iterator[Case]:
    """A row of each built-in variant."""
    for operation, variant, params, causes in RUNGS:
        frame = bwprof.sweep(
            operation,
            variant=variant,
            precision="fp16",
            device="cuda",
            counters=True,
            metrics="all",
            max_seconds=SECONDS,
            **params,
        )
        yield f"{operation} {variant}", causes.split(), frame.iloc[0].to_dict()


def judged(causes: Sequence[str], found: Diagnosis) -> tuple[str, str, str]:
    """What is said first, what else, and whether that is right, open or wrong."""
    names = [held.hypothesis.name for held in found.of(SUPPORTED)]
    if not names:
        return "-", "", "open"
    return names[0], ", ".join(names[1:]), "right" if names[0] in causes else "wrong"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", metavar="FILE.json", help="keep the rows, too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        planted = Planted(compiled(Path(folder)))
        show(f"compiled {planted.count} kernels")
        if not any(device["backend"] == "cuda" for device in bwprof.devices()):
            show("no CUDA device: nothing can be measured here")
            return 3
        planted.open()
        rows, lines = [], []
        for name, causes, row in chain(measured(planted), rungs()):
            found = diagnose_rows([dict(row)])[0]
            rows.append(row)
            lines.append((name, " or ".join(causes), *judged(causes, found)))
            show(f"{lines[-1][-1]}: {' or '.join(causes)}: {found.sentence}")
    table("planted causes", ["kernel", "planted", "said first", "said besides", "verdict"], lines)
    counts = {verdict: sum(line[-1] == verdict for line in lines) for verdict in ("right", "open", "wrong")}
    show(f"\n{counts}, of {len(lines)}\n")
    if options.save:
        bwprof.save(bwprof.frame(rows), options.save)
    return 1 if counts["wrong"] or counts["right"] < 0.9 * len(lines) else 0


if __name__ == "__main__":
    sys.exit(main())
