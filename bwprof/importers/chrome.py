"""`parse_chrome_trace`: read the traces of torch.profiler as a stream, whatever their size."""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.importers.reader import file_error, open_binary
from bwprof.importers.timeline import UNKNOWN, EventBytes, LaunchKind, LaunchSetup, TimelineLaunches, to_count
from bwprof.results import schema
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import finite_or_none, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

_BLOCK = 1 << 20  # letters read at once
_LONGEST = 4 << 20  # letters of one value: an event has some hundred
_MOST_BEFORE = 32 << 20  # letters before the events: PyTorch's facts of devices and versions
_MOST_UNPACKED = 2 << 30  # bytes out of gzip
_SPACE = re.compile(r"[ \t\n\r]*")
_BETWEEN = re.compile(r"[ \t\n\r,]*")
_NEAR_END = 12  # letters: no word of JSON is longer, so an error there may be a cut
_MANY, _SHORTEST = 1_000_000, 24  # events, and letters of one: the keys of a kernel's event alone have more
_EVENTS, _DEVICES = "traceEvents", "deviceProperties"
_NEEDED = "a trace is needed, JSON that torch.profiler's export_chrome_trace wrote"

# PyTorch's categories (libkineto's ActivityType), in small letters; later versions prefix those of devices.
_ON_DEVICE: dict[str, LaunchKind] = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "fill",
    "memset": "fill",
}
_ON_HOST = ("cpu_op", "operator", "user_annotation")
_DEVICE_KEYS = ("device", "registers per thread", "shared memory", "est. achieved occupancy %")
_MOST_MS = 1e12  # thirty years
_MOST_US = 1e300  # of an event's begin
_MOST_CATEGORIES = 100


class TraceEvents:
    """Iterate over the events of a trace's file.

    `devices` has the file's facts of devices, and `notes` what was left out, when all events are read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.devices: Any = None
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[Any]:
        with open_binary(self._path) as raw:
            window = _Window(self._path, _read_text(self._path, raw, self.notes))
            self._find_list(window)
            count = 0
            while (letter := window.next_letter(_BETWEEN)) != "]":
                count += 1
                if count % _MANY == 0 and window.letters < _SHORTEST * count:
                    raise window.error(f"its {count} events have fewer than {_SHORTEST} letters each: {_NEEDED}")
                if not letter:
                    self.notes.append("the list of events has no end: the file is not whole")
                    return
                window.at -= 1
                value, whole = window.value_or_cut()
                if not whole:
                    self.notes.append("the last event is cut off and left out: the file is not whole")
                    return
                yield value

    def _find_list(self, window: _Window) -> None:
        """Read up to the beginning of the list of events."""
        opening = window.next_letter()
        if opening not in ("[", "{"):
            raise window.error(f"it begins with {repr_short(opening)}: {_NEEDED}")
        while opening == "{":
            letter = window.next_letter(_BETWEEN)
            if letter != '"':
                what = "it ends" if not letter else f"there is {repr_short(letter)}"
                raise window.error(f"{what} before any {_EVENTS}: {_NEEDED}", back=1)
            window.at -= 1
            if window.letters > _MOST_BEFORE:
                raise window.error(f"more than {format_bytes(_MOST_BEFORE)} stand before {_EVENTS}: {_NEEDED}")
            name = window.value()
            if window.next_letter() != ":":
                raise window.error(f"no ':' follows {repr_short(name)}: {_NEEDED}", back=1)
            if name == _EVENTS:
                if window.next_letter() != "[":
                    raise window.error(f"{_EVENTS} is no list: {_NEEDED}", back=1)
                return
            value = window.value()
            if name == _DEVICES:  # other values may have any size
                self.devices = value


class _Window:
    """A part of a text, and the place `at` in it that is read next."""

    def __init__(self, path: Path, blocks: Iterator[str]) -> None:
        self._path, self._blocks = path, blocks
        self._text, self._line, self._ended = "", 1, False
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self.at = self.letters = 0

    def next_letter(self, passing: re.Pattern[str] = _SPACE) -> str:
        """Read the next letter after white space, "" at the end."""
        while True:
            match = passing.match(self._text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self._text):
                self.at += 1
                return self._text[self.at - 1]
            if not self._more():
                return ""

    def value(self) -> Any:
        """Read the next value; ValueError for what is none."""
        if self.next_letter():
            self.at -= 1
        value, whole = self.value_or_cut()
        if not whole:
            raise self.error(f"it ends before any {_EVENTS}: {_NEEDED}")
        return value

    def value_or_cut(self) -> tuple[Any, bool]:
        """Read the value that begins here, and whether it is whole; ValueError for what is none."""
        while True:
            try:
                value, end = self._decode(self._text, self.at)
                if end < len(self._text) or self._ended:
                    self.at = end
                    return value, True
            except RecursionError:
                raise self.error("a value is nested too deep") from None
            except json.JSONDecodeError as error:
                place, problem = error.pos, error.msg
            except ValueError as error:  # a number of too many digits
                raise self.error(f"a value cannot be read: {repr_short(str(error))}") from None
            else:
                place, problem = end, "a value is cut off"
            if self._ended or len(self._text) - self.at > _LONGEST:
                near_end = place >= len(self._text) - _NEAR_END
                if self._ended and (near_end or problem.startswith("Unterminated")):
                    return None, False
                if near_end and not self._ended:
                    raise self.error(f"a value is longer than {format_bytes(_LONGEST)}: {_NEEDED}")
                self.at = place
                raise self.error(f"this is no JSON: {problem}")
            self._more()

    def error(self, problem: str, back: int = 0) -> ValueError:
        line = self._line + self._text.count("\n", 0, max(0, self.at - back))
        return file_error(self._path, line, problem)

    def _more(self) -> bool:
        """Read the next block, and drop the text before `at`."""
        if self._ended:
            return False
        rest = self._text[self.at :]
        try:
            block = next(self._blocks, "")
        except zlib.error as error:
            raise self.error(f"its gzip stream is damaged: {error}") from None
        self._line += self._text.count("\n", 0, self.at)
        self.letters += len(block)
        self._text, self.at, self._ended = rest + block, 0, not block
        return bool(block)


def _read_text(path: Path, raw: BufferedReader, notes: list[str]) -> Iterator[str]:
    """Yield a file's text in blocks; unpack a gzip stream, up to a bound, and note one that is cut off."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    gzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if raw.peek(2)[:2] == b"\x1f\x8b" else None
    unpacked = 0
    while block := (gzip and gzip.unconsumed_tail) or raw.read(_BLOCK):
        if gzip:
            block = gzip.decompress(block, _BLOCK)
            unpacked += len(block)
            if unpacked > _MOST_UNPACKED:
                raise file_error(
                    path, None, f"more than {format_bytes(_MOST_UNPACKED)} come out of it: unpack it first"
                )
        if text := decoder.decode(block):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text
    if gzip and not gzip.eof:
        notes.append("the file is not whole: its gzip stream has no end")


def parse_chrome_trace(path: str | PathLike[str], *, bytes: EventBytes | None = None) -> pd.DataFrame:
    """Read the kernels of a trace of `torch.profiler` (`export_chrome_trace`): a row for each name.

    A trace without kernels, copies and fills (of a CPU) has a row for each operator; its time includes the operators
    that it called.

    Parameters
    ----------
    path : str or path
        JSON, or packed by gzip: an object with ``traceEvents``, or a list of events, which may be cut off.
    bytes : mapping, optional
        Bytes that one call moves, by name: (bytes_read, bytes_written), a `bwprof.Cost`, a list of one for each call,
        or a function that returns them for the row as a dict (``kernel``, ``grid``, ``block``, ``count``, ...). A name
        may be a pattern ("*gemm*"), of which the first that matches counts.

    Returns
    -------
    pandas.DataFrame
        The longest in total first: ``kernel``, ``kind`` (kernel, copy, fill, operator), ``count``, ``time_ms`` (the
        median, ms), ``total_ms``, ``min_ms``, ``max_ms``, ``share_pct`` (of all kernels' time, on a CPU of the
        trace's, %), ``device``, ``grid``, ``block``, ``registers``, ``shared_bytes`` and ``occupancy_pct`` (PyTorch's
        estimate, %) where each launch had the same; with bytes ``bytes_read``, ``bytes_written`` and
        ``bandwidth_gb_s`` (their sum over ``time_ms``, 10^9 bytes/s). Where calls move different bytes ``flags`` is
        ``bytes_vary``, the bytes are means and the bandwidth is all bytes over all time. ``attrs["notes"]`` has what
        was left out.

    Raises
    ------
    ValueError, OSError
        For what is no trace or damaged, with its line; for a name in `bytes` that it does not have.

    Examples
    --------
    >>> frame = parse_chrome_trace("trace.json.gz", bytes={"*gemm*": (a.nbytes + b.nbytes, c.nbytes)})  # doctest: +SKIP
    >>> frame[["kernel", "count", "time_ms", "bandwidth_gb_s"]]  # doctest: +SKIP
    """
    place = parse_path(path, "path")
    trace = TraceEvents(place)
    reader = _TraceReader(place, trace)
    reader.read()
    on_device = len(reader.on_device) > 0
    launches = reader.on_device if on_device else reader.on_host
    notes = trace.notes
    if reader.left_out:
        notes.append(f"{reader.left_out} events have no name, or no time that could be, and are left out")
    if not len(launches):
        seen = ", ".join(f"{quote_text(name)} ({count})" for name, count in reader.categories.most_common(5))
        raise file_error(place, None, f"no kernel and no operator is in it; categories of its events: {seen or 'none'}")
    if not on_device:
        notes.append("it has no kernels: rows are operators on a CPU, each with those that it called")
    span_ms = None if on_device else max(0.0, (reader.end_us - reader.begin_us) / 1e3)
    return launches.frame(source=place.name, tool="torch.profiler", notes=notes, bytes=bytes, span_ms=span_ms)


class _TraceReader:
    """Sort a trace's events into launches on the device and operators on the host."""

    def __init__(self, path: Path, trace: TraceEvents) -> None:
        self._trace = trace
        self._make_setup = lru_cache(maxsize=100_000)(self._make_setup_once)  # most launches of a name have the same
        self.left_out = 0
        self.on_device, self.on_host = TimelineLaunches(path), TimelineLaunches(path)
        self.categories: Counter[str] = Counter()
        self.begin_us, self.end_us = float("inf"), float("-inf")

    def read(self) -> None:
        for event in self._trace:
            category = event.get("cat") if isinstance(event, dict) and event.get("ph") == "X" else None
            if not isinstance(category, str):
                continue
            kind = _ON_DEVICE.get(category.lower())
            if kind is not None:
                self._add(self.on_device, event, kind, self._setup(event.get("args")))
            elif category.lower() in _ON_HOST:
                begin = finite_or_none(event.get("ts"))
                if self._add(self.on_host, event, "operator", UNKNOWN) and begin is not None and abs(begin) < _MOST_US:
                    self.begin_us = min(self.begin_us, begin)
                    self.end_us = max(self.end_us, begin + event["dur"])
            elif category in self.categories or len(self.categories) < _MOST_CATEGORIES:
                self.categories[schema.clean_text(category)[:80]] += 1

    def _add(self, launches: TimelineLaunches, event: Mapping[str, Any], kind: LaunchKind, setup: LaunchSetup) -> bool:
        name: Any = event.get("name")
        time_us: Any = event.get("dur")
        if type(time_us) not in (int, float) or not isinstance(name, str) or not 0 <= time_us <= 1e3 * _MOST_MS:
            self.left_out += 1
            return False
        args = event.get("args")
        count = to_count(args.get("bytes")) if kind in ("copy", "fill") and isinstance(args, dict) else None
        launches.add(name, kind, time_us / 1e3, setup, count)
        return True

    def _setup(self, args: Any) -> LaunchSetup:
        if not isinstance(args, dict):
            return UNKNOWN
        axes = (_parse_axes(args.get("grid")), _parse_axes(args.get("block")))
        numbers = [value if type(value) in (int, float) else None for value in map(args.get, _DEVICE_KEYS)]
        return self._make_setup(axes, *numbers)

    def _make_setup_once(
        self, axes: Any, number: Any, registers: Any, shared: Any, occupancy: float | None
    ) -> LaunchSetup:
        devices = self._trace.devices if isinstance(self._trace.devices, list) else []
        device = next((facts for facts in devices if isinstance(facts, dict) and facts.get("id") == number), {})
        percent = occupancy if occupancy is not None and 0 <= occupancy <= 100 else None
        return LaunchSetup.make(number, device, axes, to_count(registers), to_count(shared), percent)


def _parse_axes(sizes: Any) -> tuple[int, ...] | None:
    if isinstance(sizes, list) and len(sizes) == 3 and all(type(size) is int and 0 < size < 2**31 for size in sizes):
        return tuple(sizes)
    return None
