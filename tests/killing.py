"""Baselines and reports saved by processes that are killed, or whose writes fail, at every step in turn. A script of
its own: it imports no NumPy, so that its one thread may fork.

Usage: killing.py WHAT FOLDER; prints what went wrong, and ends with "N steps".
"""

from __future__ import annotations

import errno
import io
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rows import row

from bwprof import environment
from bwprof.records import baselines
from bwprof.records.proof import BandwidthReport
from bwprof.results import atomic
from bwprof.results.reader import read_rows

NAME = "main"
_STEPS = ("open", "mkdir", "write", "ftruncate", "fsync", "chmod", "replace", "unlink", "close")


def made(number: int) -> baselines.Baseline:
    """A baseline that is told from all others by its times."""
    rows = [row(f"case {place}", "fp16", time_ms=float(number)) for place in range(20)]
    return baselines.make_baseline(NAME, [(rows, [[float(number)] * 50] * len(rows), {"run_id": f"run-{number}"})])


def number_of(folder: Path) -> int:
    """Which one is there: whole, or an error."""
    found = baselines.load_baseline(NAME, folder=folder)
    number = int(found.rows[0]["time_ms"])
    assert found == made(number)
    return number


class Stream:
    """A file whose writing is a step; one that dies in it leaves half."""

    def __init__(self, stream: Any, step: Callable[[str], bool], ending: Callable[[], None]) -> None:
        self._stream, self._step, self._ending = stream, step, ending

    def write(self, text: str) -> None:
        if self._step("write"):
            self._stream.write(text[: len(text) // 2])
            self._stream.flush()
            self._ending()
        self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def die() -> None:
    """As if by kill -9: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def plant(last: int, ending: Callable[[], None]) -> list[str]:
    """From here on the step of this number ends with `ending`; the steps so far are listed."""
    seen: list[str] = []

    def step(name: str) -> bool:
        seen.append(name)
        return len(seen) - 1 == last

    def planted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if step(name):
                ending()
            return real(*arguments, **options)

        return call

    for name in _STEPS:
        if name != "write":
            setattr(os, name, planted(name))
    real = io.open
    atomic.open = lambda *given, **more: Stream(real(*given, **more), step, ending)  # type: ignore[attr-defined]
    return seen


def in_child(work: Callable[[], None]) -> int:
    """The wait status of a process that does it: 0 when all went well."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except OSError as error:
            code = 2 if f"{NAME}.json" in str(error) else 3  # it names the file
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def save(folder: Path, number: int, *, force: bool = True) -> None:
    baselines.write_baseline(made(number), folder=folder, force=force)


def count_steps(folder: Path) -> int:
    save(folder, 1)
    reader, writer = os.pipe()

    def work() -> None:
        seen = plant(-1, die)
        save(folder, 2)
        os.write(writer, ",".join(seen).encode())

    assert in_child(work) == 0
    os.set_blocking(reader, False)
    steps = os.read(reader, 10_000).decode().split(",")
    assert steps.index("write") < steps.index("fsync") < steps.index("replace"), "on the disk before it has the name"
    return len(steps)


def killed_at_every_step(folder: Path) -> int:
    """A kill before each step in turn, and in the middle of a write: the old file or the new one is whole."""
    count = count_steps(folder)
    for last in range(count):
        save(folder, 1)

        def work(last: int = last) -> None:
            plant(last, die)
            save(folder, 2)

        status = in_child(work)
        assert os.WIFSIGNALED(status), (last, status)
        assert number_of(folder) in (1, 2), last
        save(folder, 3)  # whatever it left does not stand in the way
        assert number_of(folder) == 3
        assert baselines.baseline_names(folder) == [NAME], "what it left is no baseline"
    return count


def failing_at_every_step(folder: Path) -> int:
    """A disk that is full at each step in turn: an error that names the file, and the old one or the new one whole."""
    count = count_steps(folder)

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    failed = 0
    for last in range(count):
        save(folder, 1)

        def work(last: int = last) -> None:
            plant(last, full)
            save(folder, 2)

        code = os.waitstatus_to_exitcode(in_child(work))
        assert code in (0, 2), (last, code)
        failed += code == 2
        assert number_of(folder) in ((1, 2) if code else (2,)), last
        assert baselines.baseline_names(folder) == [NAME]
    assert failed >= 4
    return count


def full_disk(folder: Path) -> int:
    """The system itself refuses to write on in the middle of the file."""
    save(folder, 1)

    def work() -> None:
        sys.dont_write_bytecode = True  # it would be cut off in silence, for whoever reads it
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        save(folder, 2)

    assert os.waitstatus_to_exitcode(in_child(work)) == 2
    assert number_of(folder) == 1
    assert [path.name for path in folder.iterdir()] == [f"{NAME}.json"], "nothing is left behind"
    return 1


def killed_at_any_moment(folder: Path) -> int:
    """SIGKILL while one baseline after the other is saved."""
    chance = random.Random(7)
    save(folder, 1)
    for _ in range(25):
        child = os.fork()
        if child == 0:
            for number in range(2, 10_000):
                save(folder, number)
            os._exit(0)
        time.sleep(chance.uniform(0.001, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert number_of(folder) >= 1
    return 25


def together(works: Sequence[Callable[[], None]]) -> list[int]:
    """The exit codes of processes that do these at the same time; 4 for a file that is there already."""
    started = []
    for work in works:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 0
            except FileExistsError:
                code = 4
            finally:
                os._exit(code)
        started.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in started]


def at_once(folder: Path) -> int:
    """Several processes save one baseline: each of them whole, one after the other."""

    def ten(first: int) -> None:
        for number in range(first, first + 10):
            save(folder, number)

    assert together([partial(ten, first) for first in (100, 200, 300, 400)]) == [0] * 4
    assert number_of(folder) % 100 == 9
    return 40


def report(number: int) -> BandwidthReport:
    return BandwidthReport("gemm", "FP16", number + 0.5, 1.0, 2, 3)


def reported(root: Path) -> list[int]:
    """The numbers of the reports that are there."""
    return sorted(int(row["time_ms"]) for row in read_rows(root / "run" / "bandwidth_report.json")[0])


def reports_at_once(root: Path) -> int:
    """Several processes save reports of one run: none is lost."""

    def ten(first: int) -> None:
        for number in range(first, first + 10):
            report(number).save_to_proof_bundle("run", root)

    assert together([partial(ten, first) for first in (100, 200, 300, 400)]) == [0] * 4
    assert reported(root) == [first + number for first in (100, 200, 300, 400) for number in range(10)]
    return 40


def reports_killed_at_every_step(root: Path) -> int:
    """A kill before each step, and in the middle of a write: the reports that were there stay."""
    steps = 0
    while True:
        seen_before = reported(root) if steps else []

        def work(steps: int = steps) -> None:
            plant(steps, die)
            report(steps).save_to_proof_bundle("run", root)

        status = in_child(work)
        if not os.WIFSIGNALED(status):
            assert status == 0
            assert steps in reported(root)
            assert steps > 10
            return steps
        steps += 1
        report(1000 + steps).save_to_proof_bundle("run", root)
        assert set(reported(root)) >= {*seen_before, 1000 + steps}


def one_wins(folder: Path) -> int:
    """Without force the first one stays, and the others are told."""
    codes = together([partial(save, folder, number, force=False) for number in range(1, 6)])
    assert sorted(codes) == [0, 4, 4, 4, 4], codes
    assert codes[number_of(folder) - 1] == 0
    return 5


if __name__ == "__main__":
    environment.git_commit = lambda: None  # it starts a process
    sys.stdout.write(f"{globals()[sys.argv[1]](Path(sys.argv[2]))} steps\n")
