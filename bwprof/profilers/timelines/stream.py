"""A trace's events one after the other, whatever its size: JSON read through a window, of gzip too."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from bwprof.profilers.reading import opened_raw, wrong
from bwprof.text import bytes_text, shown

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


class Trace:
    """The events of a trace's file; what it says of devices before them is in `devices`, what was left out in `notes`,
    when all are read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.devices: Any = None
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[Any]:
        with opened_raw(self._path) as raw:
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
            raise window.wrong(f"it begins with {shown(opening or '')}: {_NEEDED}")
        while True:
            letter = window.next_letter(_BETWEEN)
            if letter != '"':
                what = "it ends" if not letter else f"there is {shown(letter)}"
                raise window.wrong(f"{what} before any {_EVENTS}: {_NEEDED}", back=1)
            window.at -= 1
            if window.letters > _MOST_BEFORE:
                raise window.wrong(f"more than {bytes_text(_MOST_BEFORE)} stand before {_EVENTS}: {_NEEDED}")
            name = window.value()
            if window.next_letter() != ":":
                raise window.wrong(f"no ':' follows {shown(name)}: {_NEEDED}", back=1)
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
                raise self.wrong(f"a value cannot be read: {shown(str(error))}") from None
            else:
                place, said = end, "a value is cut off"
            if self._ended or len(self._text) - self.at > _LONGEST:
                cut = self._ended and (place >= len(self._text) - _NEAR_END or said.startswith("Unterminated"))
                if cut:
                    return None, False
                if not self._ended and place >= len(self._text) - _NEAR_END:
                    raise self.wrong(f"a value is longer than {bytes_text(_LONGEST)}: {_NEEDED}")
                self.at = place
                raise self.wrong(f"this is no JSON: {said}")
            self._more()

    def wrong(self, said: str, back: int = 0) -> ValueError:
        """What is wrong here, with its line."""
        line = self._line + self._text.count("\n", 0, max(0, self.at - back))
        return wrong(self._path, line, said)

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
            raise wrong(self._path, None, f"more than {bytes_text(_MOST_UNPACKED)} come out of it: unpack it first")
        buffer[: len(found)] = found
        return len(found)
