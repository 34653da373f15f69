"""`parse_chrome_trace`: read the traces of torch.profiler as a stream, whatever their size."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bwprof.importers.reader import file_error, open_binary
from bwprof.importers.timeline import UNKNOWN, LaunchKind, LaunchSetup, TimelineLaunches
from bwprof.results import schema
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import finite_or_none, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

_BLOCK = 1 << 20  # letters read at once

_LONGEST = 4 << 20  # letters of one value: an event has some hundred

_MOST_BEFORE = 32 << 20  # letters before the events: what PyTorch says of devices and versions

_MOST_UNPACKED = 2 << 30  # bytes out of gzip

_SPACE = re.compile(r"[ \t\n\r]*")

_BETWEEN = re.compile(r"[ \t\n\r,]*")

_NEAR_END = 12  # letters: no word of JSON is longer, so what is wrong there may be cut off

_MANY, _SHORTEST = 1_000_000, 24  # events, and letters of one: a kernel's has more than that in its keys alone

_EVENTS, _DEVICES = "traceEvents", "deviceProperties"

_NEEDED = "a trace is needed, JSON that torch.profiler's export_chrome_trace wrote"


class TraceEvents:
    """The events of a trace's file; what it says of devices before them is in `devices`, what was left out in `notes`,
    when all are read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.devices: Any = None
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[Any]:
        with open_binary(self._path) as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            stream: Any = _Unpacked(self._path, gzip.GzipFile(fileobj=raw)) if packed else raw
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
            try:
                yield from self._events(_Window(self._path, text))
            finally:
                text.detach()
            if isinstance(stream, _Unpacked) and stream.cut_off:
                self.notes.append("the file is not whole: its gzip stream has no end")

    def _events(self, window: _Window) -> Iterator[Any]:
        opening = window.next_letter()
        if opening == "[":
            yield from self._listed(window)
            return
        if opening != "{":
            raise window.wrong(f"it begins with {repr_short(opening or '')}: {_NEEDED}")
        while True:
            letter = window.next_letter(_BETWEEN)
            if letter != '"':
                what = "it ends" if not letter else f"there is {repr_short(letter)}"
                raise window.wrong(f"{what} before any {_EVENTS}: {_NEEDED}", back=1)
            window.at -= 1
            if window.letters > _MOST_BEFORE:
                raise window.wrong(f"more than {format_bytes(_MOST_BEFORE)} stand before {_EVENTS}: {_NEEDED}")
            name = window.value()
            if window.next_letter() != ":":
                raise window.wrong(f"no ':' follows {repr_short(name)}: {_NEEDED}", back=1)
            if name != _EVENTS:
                value = window.value()
                if name == _DEVICES:  # all that is asked for of what may be of any size
                    self.devices = value
                continue
            if window.next_letter() != "[":
                raise window.wrong(f"{_EVENTS} is no list: {_NEEDED}", back=1)
            yield from self._listed(window)
            return

    def _listed(self, window: _Window) -> Iterator[Any]:
        """The events of the list that was just opened; one that the file's end cuts off is left out."""
        count = 0
        while True:
            count += 1
            if count % _MANY == 0 and window.letters < _SHORTEST * count:
                raise window.wrong(f"its {count} events have fewer than {_SHORTEST} letters each: {_NEEDED}")
            letter = window.next_letter(_BETWEEN)
            if letter == "]":
                return
            if not letter:
                self.notes.append("the list of events has no end: the file is not whole")
                return
            window.at -= 1
            value, whole = window.value_or_cut()
            if not whole:
                self.notes.append("the last event is cut off and left out: the file is not whole")
                return
            yield value


class _Window:
    """A part of a text, and the place in it that is read next."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        self._path, self._stream = path, stream
        self._text, self._line, self._ended = "", 1, False
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self.at = self.letters = 0

    def next_letter(self, passing: re.Pattern[str] = _SPACE) -> str:
        """The next letter after white space, "" at the end."""
        while True:
            found = passing.match(self._text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self._text):
                self.at += 1
                return self._text[self.at - 1]
            if not self._more():
                return ""

    def value(self) -> Any:
        """The value that comes next; ValueError for what is none."""
        if self.next_letter():
            self.at -= 1
        value, whole = self.value_or_cut()
        if not whole:
            raise self.wrong(f"it ends before any {_EVENTS}: {_NEEDED}")
        return value

    def value_or_cut(self) -> tuple[Any, bool]:
        """The value that begins here, or False where the file ends in the middle of it; ValueError for what is none."""
        while True:
            try:
                value, end = self._decode(self._text, self.at)
                if end < len(self._text) or self._ended:
                    self.at = end
                    return value, True
            except RecursionError:
                raise self.wrong("a value is nested too deep") from None
            except json.JSONDecodeError as error:
                place, said = error.pos, error.msg
            except ValueError as error:  # a number of too many digits
                raise self.wrong(f"a value cannot be read: {repr_short(str(error))}") from None
            else:
                place, said = end, "a value is cut off"
            if self._ended or len(self._text) - self.at > _LONGEST:
                cut = self._ended and (place >= len(self._text) - _NEAR_END or said.startswith("Unterminated"))
                if cut:
                    return None, False
                if not self._ended and place >= len(self._text) - _NEAR_END:
                    raise self.wrong(f"a value is longer than {format_bytes(_LONGEST)}: {_NEEDED}")
                self.at = place
                raise self.wrong(f"this is no JSON: {said}")
            self._more()

    def wrong(self, said: str, back: int = 0) -> ValueError:
        """What is wrong here, with its line."""
        line = self._line + self._text.count("\n", 0, max(0, self.at - back))
        return file_error(self._path, line, said)

    def _more(self) -> bool:
        """Read on; what was read through is let go."""
        if self._ended:
            return False
        rest = self._text[self.at :]
        try:
            block = self._stream.read(max(_BLOCK, len(rest)))
        except (gzip.BadGzipFile, zlib.error) as error:
            raise self.wrong(f"its gzip stream is damaged: {error}") from None
        self._line += self._text.count("\n", 0, self.at)
        self.letters += len(block)
        self._text, self.at, self._ended = rest + block, 0, not block
        return bool(block)


class _Unpacked(io.RawIOBase):
    """What gzip packed, up to a bound; a stream that was cut off just ends."""

    def __init__(self, path: Path, packed: gzip.GzipFile) -> None:
        self._path, self._packed = path, packed
        self._count = 0
        self.cut_off = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            found = self._packed.read1(len(buffer))
        except EOFError:
            self.cut_off = True
            return 0
        self._count += len(found)
        if self._count > _MOST_UNPACKED:
            raise file_error(
                self._path, None, f"more than {format_bytes(_MOST_UNPACKED)} come out of it: unpack it first"
            )
        buffer[: len(found)] = found
        return len(found)


# PyTorch's categories (libkineto's ActivityType), in small letters; later versions prefix those of devices.
_ON_DEVICE = {
    "kernel": LaunchKind,
    "gpu_memcpy": LaunchKind,
    "memcpy": LaunchKind,
    "gpu_memset": LaunchKind,
    "memset": LaunchKind,
}

_ON_HOST = {"cpu_op": LaunchKind, "operator": LaunchKind, "user_annotation": LaunchKind}

_DEVICE_COLUMNS = ("device", "registers per thread", "shared memory", "est. achieved occupancy %")

_MOST_MS = 1e12  # thirty years

_MOST_SETUPS = 100_000  # kept at once, so that equal ones are made once

EventBytes = Mapping[str, "tuple[int, int] | Callable[[dict[str, Any]], tuple[int, int]] | Any"]


def parse_chrome_trace(path: str | PathLike[str], *, bytes: EventBytes | None = None) -> pd.DataFrame:
    """The kernels of a trace that `torch.profiler` wrote (`export_chrome_trace`), a row for each name.

    Where it has no kernels, copies or fills (a CPU), each operator is a row, with those that it called in its time.

    Parameters
    ----------
    path : str or path
        JSON, or packed by gzip: an object with ``traceEvents``, or a list of events, which need not have its end.
    bytes : mapping, optional
        What one call moves, by name: (bytes_read, bytes_written), a `bwprof.Cost`, a list of as many as there are calls
        where these differ, or a function that is given the row as a dict (``kernel``, ``grid``, ``block``, ``count``,
        ...) and gives them. A name may be a pattern ("*gemm*"), of which the first that matches counts.

    Returns
    -------
    pandas.DataFrame
        The longest in all first: ``kernel``, ``kind`` (kernel, copy, fill, operator), ``count``, ``time_ms`` (the
        median of one), ``total_ms``, ``min_ms``, ``max_ms``, ``share_pct`` (of all kernels' time; on a CPU of the
        trace's), ``device``, ``grid``, ``block``, ``registers``, ``shared_bytes`` and ``occupancy_pct`` (PyTorch's
        estimate) where each launch had the same; with bytes ``bytes_read``, ``bytes_written`` and ``bandwidth_gb_s``
        (their sum over ``time_ms``, 10^9 bytes a second); where calls move different bytes ``flags`` is ``bytes_vary``,
        the bytes are means and the bandwidth is all bytes over all time. ``attrs["notes"]`` says what was left out.

    Raises
    ------
    ValueError
        For what is no trace or damaged, with its line; for a name in `bytes` that it does not have.
    OSError
        When it cannot be read.

    Examples
    --------
    >>> from bwprof.importers import parse_chrome_trace
    >>> frame = parse_chrome_trace("trace.json.gz", bytes={"*gemm*": (a.nbytes + b.nbytes, c.nbytes)})  # doctest: +SKIP
    >>> frame[["kernel", "count", "time_ms", "bandwidth_gb_s"]]  # doctest: +SKIP
    """
    place = parse_path(path, "path")
    trace = TraceEvents(place)
    reader = _Reader(place, trace)
    reader.read()
    on_device = len(reader.on_device) > 0
    found = reader.on_device if on_device else reader.on_host
    notes = [*trace.notes, *reader.notes()]
    if not len(found):
        seen = ", ".join(f"{quote_text(name)} ({count})" for name, count in reader.categories.most_common(5))
        said = f"its events are of the categories {seen}" if seen else "it has no events of any category"
        raise file_error(place, None, f"no kernel and no operator is in it: {said}")
    if not on_device:
        notes.append("it has no kernels: these are operators on a CPU, those that they called in their time")
    whole_ms = None if on_device else max(0.0, (reader.end_us - reader.begin_us) / 1e3)
    return found.frame(source=place.name, tool="torch.profiler", notes=notes, bytes=bytes, whole_ms=whole_ms)


class _Reader:
    """Goes through a trace's events."""

    def __init__(self, path: Path, trace: TraceEvents) -> None:
        self._trace = trace
        self._setups: dict[Any, LaunchSetup] = {}
        self._odd = 0
        self.on_device, self.on_host = TimelineLaunches(path), TimelineLaunches(path)
        self.categories: Counter[str] = Counter()
        self.begin_us, self.end_us = float("inf"), float("-inf")

    def read(self) -> None:
        for event in self._trace:
            if not isinstance(event, dict) or event.get("ph") != "X":
                continue
            category = event.get("cat")
            if not isinstance(category, str):
                continue
            kind = _ON_DEVICE.get(category) or _ON_DEVICE.get(category.lower())
            if kind is not None:
                self._add(self.on_device, event, kind, self._setup(event.get("args")))
            elif (kind := _ON_HOST.get(category) or _ON_HOST.get(category.lower())) is not None:
                if self._add(self.on_host, event, kind, UNKNOWN):
                    self._span(event)
            elif category in self.categories or len(self.categories) < 100:
                self.categories[schema.clean_text(category)[:80]] += 1

    def notes(self) -> list[str]:
        """What was left out."""
        return [f"{self._odd} events have no name, or no time that could be, and are left out"] if self._odd else []

    def _add(self, launches: TimelineLaunches, event: Mapping[str, Any], kind: str, setup: LaunchSetup) -> bool:
        name: Any = event.get("name")
        took: Any = event.get("dur")
        if type(took) not in (int, float) or not isinstance(name, str) or not 0 <= took <= 1e3 * _MOST_MS:
            self._odd += 1
            return False
        args = event.get("args")
        count = _count(args.get("bytes")) if kind in (LaunchKind, LaunchKind) and isinstance(args, dict) else None
        launches.add(name, kind, took / 1e3, setup, count)
        return True

    def _span(self, event: Mapping[str, Any]) -> None:
        begin: Any = event.get("ts")
        if type(begin) in (int, float) and abs(begin) < 1e300:
            self.begin_us = min(self.begin_us, begin)
            self.end_us = max(self.end_us, begin + event["dur"])

    def _setup(self, args: Any) -> LaunchSetup:
        if not isinstance(args, dict):
            return UNKNOWN
        grid, block = _axes(args.get("grid")), _axes(args.get("block"))
        numbers = [value if type(value) in (int, float) else None for value in map(args.get, _DEVICE_COLUMNS)]
        key = (grid, block, *numbers)
        found = self._setups.get(key)
        if found is None:
            if len(self._setups) >= _MOST_SETUPS:
                self._setups.clear()
            found = self._setups[key] = self._new_setup(key)
        return found

    def _new_setup(self, key: tuple[Any, ...]) -> LaunchSetup:
        grid, block, device, registers, shared, occupancy = key
        name, capability, units = self._device(device)
        return LaunchSetup(
            name,
            capability,
            units,
            "x".join(map(str, grid)) if grid else None,
            "x".join(map(str, block)) if block else None,
            math.prod(grid) if grid else None,
            math.prod(block) if block else None,
            _count(registers),
            _count(shared),
            _percent(occupancy),
        )

    def _device(self, number: Any) -> tuple[str | None, str | None, int | None]:
        """A device's name, compute capability and multiprocessors, as the trace says them."""
        listed = self._trace.devices
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, dict) and type(number) is int and one.get("id") == number:
                major, minor = one.get("computeMajor"), one.get("computeMinor")
                known = type(major) is int and type(minor) is int and 0 < major < 1000 and 0 <= minor < 1000
                name = one.get("name")
                return (
                    schema.clean_text(name) if isinstance(name, str) else f"GPU {number}",
                    f"{major}.{minor}" if known else None,
                    _count(one.get("numSms")),
                )
        return (f"GPU {number}", None, None) if type(number) is int and 0 <= number < 10_000 else (None, None, None)


def _axes(given: Any) -> tuple[int, ...] | None:
    """A grid's or a block's three sizes."""
    if isinstance(given, list) and len(given) == 3 and all(type(size) is int and 0 < size < 2**31 for size in given):
        return tuple(given)
    return None


def _count(value: Any) -> int | None:
    number = finite_or_none(value)
    return int(number) if number is not None and 0 <= number < 2**62 else None


def _percent(value: Any) -> float | None:
    number = finite_or_none(value)
    return number if number is not None and 0 <= number <= 100 else None
