"""The sides of a comparison: what each runs, as plain types that another process can get, and its turns.

On a CPU, where a case's pages lie decides how they share a cache's sets: a gemm of 1 MiB took up to a third longer in
one process than in another, for as long as both lived, because memory that is freed and asked for again is the same
memory. So a side that is opened holds back a random amount of it while it gets its buffers: the luck is then drawn
anew each time, and becomes noise that the interval knows of (compare C. Curtsinger and E. D. Berger, Stabilizer,
ASPLOS 2013, on randomised layouts, and T. Mytkowicz et al., Producing wrong data without doing anything obviously
wrong, ASPLOS 2009).
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from bwprof import _core, registry
from bwprof.measuring import function as functions
from bwprof.measuring.callables import check_callable, check_finished, name_callable, wrap_with_wait
from bwprof.measuring.function import Subject
from bwprof.measuring.operation import Spec
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import quote_text

_FIRST_SAMPLES, _FIRST_SECONDS = 3, 0.02  # of the turn that warms everything up

_NEVER = 1e-9  # a precision that no turn reaches

_VERIFY_SECONDS = 0.1

_PAGE, _MOST_BUFFERED = 4096, 32 << 20  # bytes


class SideError(Exception):
    """A side cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class SideInfo:
    """What a side says of itself once it is open.

    `renewable`: opened again, it has buffers of its own in other places. `shape` is of the array that a function
    returns, None for none. Plain types, since other processes send it.
    """

    title: str
    timer: str
    sample_ns: float
    renewable: bool
    verified: bool | None = None
    operation: str | None = None
    precision: str | None = None
    params: dict[str, int] | None = None
    variant: str | None = None
    bytes_moved: int | None = None
    shape: list[int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> SideInfo:
        """The inverse of `to_dict`; what a later version says beside it is left out."""
        return cls(**{one.name: found[one.name] for one in fields(cls) if one.name in found})


class ABSide(Protocol):
    """One of the two: opened, then asked for turns, one at a time."""

    def open(self, timer: str | None = None) -> SideInfo:
        """Make everything ready, on fresh buffers where that is possible, and warm it up.

        Raises
        ------
        SideError
            For whatever cannot be opened, and for results that are wrong.
        """
        ...

    def turn(self, samples: int) -> list[float]:
        """So many samples, each a millisecond or one launch, in ns per launch; SideError as above."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


@contextmanager
def shift_memory(device: _core.Device) -> Iterator[None]:
    """A block whose memory is not where it was the last time: see above. Drawn by chance, which no seed can repeat."""
    on_host = _core.backend_facts(device.backend)["runs_on_host"]
    held = b"\1" * (random.randrange(_PAGE, _MOST_BUFFERED) if on_host else 0)
    try:
        yield
    finally:
        del held


class CaseSide:
    """An operation of bwprof's, on a device that both sides may share."""

    def __init__(self, device: _core.Device, spec: Spec, poll: Callable[[], object] | None = None) -> None:
        self._device, self._spec, self._poll = device, spec, poll
        self._timer = spec.timer
        self._case: _core.Case | None = None

    def open(self, timer: str | None = None) -> SideInfo:
        """Fresh buffers, verified."""
        self.close()
        self._timer = timer or self._spec.timer
        try:
            self._case = self._spec.open(self._device)
            need = self._case.memory_needed(self._spec.cache)
            if not need["fits"]:
                raise SideError(
                    f"needs {format_bytes(need['needed'])} of memory, {format_bytes(need['free'])} are free"
                )
            with shift_memory(self._device):
                verdict = self._case.verify(_VERIFY_SECONDS)
            if not verdict["verified"]:
                raise SideError(f"wrong result: {verdict['reason']}")
            result = self._measured(self._case, _FIRST_SAMPLES, _FIRST_SECONDS, settled=False)
        except (_core.BwprofError, ValueError, RuntimeError, MemoryError, OSError) as error:
            raise SideError(str(error) or type(error).__name__) from error
        cost = self._case.cost
        return SideInfo(
            title=" ".join([self._spec.case, self._spec.precision, self._case.variant]),
            timer=result["timer"],
            sample_ns=_sample_ns(result),
            renewable=True,
            verified=True,
            operation=self._spec.operation,
            precision=self._spec.precision,
            params=self._case.params,
            variant=self._case.variant,
            bytes_moved=cost["bytes_read"] + cost["bytes_written"],
        )

    def turn(self, samples: int) -> list[float]:
        """So many samples."""
        assert self._case is not None
        try:
            return list(self._measured(self._case, samples, 0.0, settled=True)["samples_ns"])
        except (_core.BwprofError, ValueError, RuntimeError, MemoryError, OSError) as error:
            raise SideError(str(error) or type(error).__name__) from error

    def _measured(self, case: _core.Case, samples: int, max_seconds: float, *, settled: bool) -> dict[str, Any]:
        result = case.measure(
            cache=self._spec.cache,
            precision_target=_NEVER,
            min_samples=samples,
            max_seconds=max_seconds,
            verify_budget_s=0.0,
            poll=self._poll,
            timer=self._timer,
            settled=settled,
        )
        if not result["verified"]:
            raise SideError(f"wrong result: {result['reason']}")
        return result

    def close(self) -> None:
        """Free the buffers."""
        case, self._case = self._case, None
        if case is not None:
            case.close()


class CallSide:
    """A function, or what it prepares; what it raises is a SideError that has the exception as its cause."""

    def __init__(
        self,
        device: _core.Device,
        function: Callable[[], object],
        *,
        name: str | None = None,
        cache: str = "cold",
        timer: str | None = None,
        stream: Any = None,
        poll: Callable[[], object] | None = None,
    ) -> None:
        self._device, self._function, self._poll = device, function, poll
        self._name = name or name_callable(function)
        self._subject = Subject(function, self._name, cache=cache, timer=timer, stream=stream, tried=True)
        self.returned: object = None

    def open(self, timer: str | None = None) -> SideInfo:
        """Call it; where that gives something callable, it is what is measured."""
        try:
            with shift_memory(self._device):
                made = self._function()
            prepared = callable(made)
            function, name = (made, f"what {self._name} returned") if callable(made) else (self._function, self._name)
            self.returned = function() if prepared else made
            check_finished(self.returned, name)
            if _core.backend_facts(self._device.backend)["runs_on_host"]:
                function = wrap_with_wait(function, self.returned, name)
            self._subject = replace(self._subject, function=function, timer=timer or self._subject.timer)
            result = self._timed(_FIRST_SAMPLES, _FIRST_SECONDS, settled=False)
        except Exception as error:
            raise SideError(describe_error(error)) from error
        self._subject = replace(self._subject, timer=result["timer"])
        return SideInfo(self._name, result["timer"], _sample_ns(result), prepared, shape=_shape(self.returned))

    def turn(self, samples: int) -> list[float]:
        """So many samples."""
        try:
            return list(self._timed(samples, 0.0, settled=True)["samples_ns"])
        except Exception as error:
            raise SideError(describe_error(error)) from error

    def _timed(self, samples: int, max_seconds: float, *, settled: bool) -> dict[str, Any]:
        options = {
            "precision_target": _NEVER,
            "min_samples": samples,
            "max_seconds": max_seconds,
            "settled": settled,
        }
        result, _, _ = functions.time_call(self._device, self._subject, options, 0.0, self._poll)
        return result

    def close(self) -> None:
        """Let go of what was prepared."""
        self._subject = replace(self._subject, function=self._function)
        self.returned = None


def later_timer(one: str, other: str, backend: str) -> str:
    """Of two timers the one that both sides can have: what one fell back to, in the order in which they are tried."""
    order = registry.timer_names(backend)
    if one == other or one not in order or other not in order:
        return other
    tried = _core.backend_facts(backend)["call_timers"]
    return max(one, other, key=lambda name: tried.index(name) if name in tried else len(tried))


def _sample_ns(result: dict[str, Any]) -> float:
    return float(result["median_ns"] * result["launches_per_sample"])


def _shape(returned: object) -> list[int] | None:
    """Of an array or a tensor."""
    found = getattr(returned, "shape", None)
    try:
        return [int(extent) for extent in found] if found is not None else None
    except (TypeError, ValueError):
        return None


def describe_error(error: BaseException) -> str:
    """An exception in words: bwprof's own as they are, another's with the name of what it is."""
    text, name = str(error), type(error).__name__
    return text if text and isinstance(error, (_core.BwprofError, SideError)) else f"{name}: {text}" if text else name


_NAME = re.compile(r"(?P<home>.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<path>[^\W\d]\w*(\.[^\W\d]\w*)*)")


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its name, module:function or file.py:function, with its arguments.

    Where a call returns something callable, that is measured, and the call was its preparation.
    """

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    cache: str = "cold"
    timer: str | None = None

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(
                f"'{quote_text(self.name)}' names no function: module:function or file.py:function is needed"
            )

    @property
    def title(self) -> str:
        """The function with its arguments."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.params.items())])

    def function(self, folder: Path) -> Callable[..., object]:
        """The function itself; a file is looked for from `folder`.

        Raises
        ------
        ValueError
            Where there is none, in words.
        Exception
            Whatever its module raises.
        """
        match = _NAME.fullmatch(self.name)
        assert match is not None
        home, path = match["home"], match["path"]
        found: Any = _file(folder / home) if home.endswith(".py") else _module(home)
        for name in path.split("."):
            if not hasattr(found, name):
                raise ValueError(f"{home} has no '{path}'")
            found = getattr(found, name)
        try:
            check_callable(found, path)
        except TypeError as error:
            raise ValueError(f"{home}: {error}") from None
        if found is None:
            raise ValueError(f"{home}: {path} is None, a function is needed")
        return found  # type: ignore[no-any-return]


ABTask = Spec | Call


def task_to_dict(work: ABTask) -> dict[str, Any]:
    """Plain types for JSON."""
    return {"call": asdict(work)} if isinstance(work, Call) else {"case": work.to_dict()}


def task_from_dict(found: Mapping[str, Any]) -> ABTask:
    """The inverse of `to_dict`."""
    return Call(**found["call"]) if "call" in found else Spec.from_dict(found["case"])


def is_call(text: str) -> bool:
    """Whether a text names a function, as far as its letters tell.

    Examples
    --------
    >>> is_call("kernels.attention:decode"), is_call("bench/old.py:run"), is_call("copy")
    (True, True, False)
    """
    return _NAME.fullmatch(text) is not None


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(
                f"there is no module {error.name} (looked for in {', '.join(sys.path[:3])}, ...)"
            ) from None
        raise


def _file(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
