"""Reading very many runs in several processes, each of which reads the runs that have ended well."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, cast

from bwprof.records.index.reading import Content, Reader

_LEAST_RUNS = 400  # for each process: fewer are read before it has started
_MOST_PROCESSES = 16
_BATCH = 32  # runs that come back together
_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from bwprof.records.index import crew; crew.work()"

Found = tuple[list[tuple[str, Content]], dict[int, str]]  # runs by their paths, and the parts that came along


def read(root: Path, paths: Sequence[str]) -> Iterator[Found]:
    """Each run, in some order: in other processes where it is worth while, and in this one what they leave.

    They leave what takes care: unfinished, damaged and unreadable runs.
    """
    left = dict.fromkeys(paths)
    count = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES, len(paths) // _LEAST_RUNS)
    if count > 1:
        for found in _others(root, paths, count):
            for path, _ in found[0]:
                left.pop(path, None)
            yield found
    reader = Reader()
    rest = list(left)
    for start in range(0, len(rest), _BATCH):
        batch = [(path, reader.read(root / path)) for path in rest[start : start + _BATCH]]
        parts, reader.parts = reader.parts, {}
        yield batch, parts


def _others(root: Path, paths: Sequence[str], count: int) -> Iterator[Found]:
    """What `count` processes read; one that ends early leaves the rest of its share."""
    found: SimpleQueue[Found | None] = SimpleQueue()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CODE, json.dumps([one for one in sys.path if isinstance(one, str)])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0,
            )  # fmt: skip
            processes.append(process)
            share = os.path.abspath(root), list(paths[number::count])
            threading.Thread(target=_listen, args=(process, share, found), daemon=True).start()
        working = count
        while working:
            one = found.get()
            if one is None:
                working -= 1
            else:
                yield one
    except OSError:  # no process could be started
        return
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _listen(process: subprocess.Popen[bytes], share: tuple[str, list[str]], found: SimpleQueue[Found | None]) -> None:
    """Give a process its share and pass on what comes back, until its end."""
    asked, answered = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    with suppress(Exception), answered:  # an end, or anything at all where it was not our answer
        with asked:
            pickle.dump(share, asked)
        while True:
            found.put(pickle.load(answered))
    found.put(None)


def work() -> None:
    """What such a process does: it reads its share and writes what it has found, batch by batch."""
    root, paths = pickle.load(sys.stdin.buffer)
    reader = Reader()
    for start in range(0, len(paths), _BATCH):
        read = ((path, reader.read_finished(Path(root) / path)) for path in paths[start : start + _BATCH])
        batch = [(path, content) for path, content in read if content is not None]
        parts, reader.parts = reader.parts, {}
        pickle.dump((batch, parts), sys.stdout.buffer)
        sys.stdout.buffer.flush()
