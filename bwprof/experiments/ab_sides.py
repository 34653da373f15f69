"""The sides of an A/B comparison: the task of each and its turns, as plain types that another process can receive.

On a CPU, the addresses of a case's pages decide how they share the sets of a cache. A gemm of 1 MiB took up to a third
longer in one process than in another for as long as both lived, because an allocator returns freed memory again. So
each opening first allocates a random amount of memory, which moves the buffers. Their placement becomes noise that the
interval covers (C. Curtsinger and E. D. Berger, Stabilizer, ASPLOS 2013; T. Mytkowicz et al., Producing wrong data
without doing anything obviously wrong, ASPLOS 2009).
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from bwprof import _core, registry
from bwprof.measuring import function as functions
from bwprof.measuring.callables import check_callable, check_finished, name_callable, wrap_with_wait
from bwprof.measuring.function import Subject
from bwprof.measuring.operation import Spec
from bwprof.text.formatting import format_bytes

_VERIFY_SECONDS = 0.1
_NEVER = 1e-9  # a precision that no turn reaches
_WARM_UP = {"precision_target": _NEVER, "min_samples": 3, "max_seconds": 0.02, "settled": False}
_PAGE, _MAX_SHIFT = 4096, 32 << 20  # bytes


class SideError(Exception):
    """A side cannot continue; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class SideInfo:
    """Facts of an open side, as plain types that another process can send.

    `renewable`: each opening gives it new buffers. `shape`: of the array that a function returns, None for none.
    """

    title: str
    timer: str
    sample_ns: float
    renewable: bool
    verified: bool | None = None
    operation: str | None = None
    precision: str | None = None
    params: dict[str, int] | None = None
    bytes_moved: int | None = None
    shape: list[int] | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SideInfo:
        """Read what `dataclasses.asdict` wrote; ignore the fields of later versions."""
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})


class ABSide(Protocol):
    """One of two sides: opened, then measured in turns, one at a time. Each method may raise SideError."""

    def open(self, timer: str | None = None) -> SideInfo:
        """Allocate new buffers where the side has its own, verify the result, warm up."""

    def turn(self, samples: int) -> list[float]:
        """Measure samples of a millisecond or one launch each; return ns per launch."""

    def close(self) -> None:
        """Free the buffers."""

    def end(self) -> None:
        """Free everything: no opening follows."""


@contextmanager
def shift_memory(device: _core.Device) -> Iterator[None]:
    """Move what the block allocates by a random amount of memory; no seed repeats it."""
    on_host = _core.backend_facts(device.backend)["runs_on_host"]
    padding = b"\1" * (random.randrange(_PAGE, _MAX_SHIFT) if on_host else 0)
    try:
        yield
    finally:
        del padding


@contextmanager
def _as_side_error() -> Iterator[None]:
    try:
        yield
    except SideError:
        raise
    except Exception as error:
        raise SideError(describe_error(error)) from error


class CaseSide:
    """An operation of bwprof on a device that both sides may share."""

    def __init__(self, device: _core.Device, spec: Spec) -> None:
        self._device, self._spec = device, spec
        self._timer = spec.timer
        self._case: _core.Case | None = None

    def open(self, timer: str | None = None) -> SideInfo:
        self.close()
        self._timer = timer or self._spec.timer
        with _as_side_error():
            self._case = case = self._spec.open(self._device)
            need = case.memory_needed(self._spec.cache)
            if not need["fits"]:
                needed, free = format_bytes(need["needed"]), format_bytes(need["free"])
                raise SideError(f"needs {needed} of memory, {free} are free")
            with shift_memory(self._device):
                verdict = case.verify(_VERIFY_SECONDS)
            if not verdict["verified"]:
                raise SideError(f"wrong result: {verdict['reason']}")
            result = self._measure(case, _WARM_UP)
        cost = case.cost
        return SideInfo(
            title=" ".join([self._spec.case, self._spec.precision, case.variant]),
            timer=result["timer"],
            sample_ns=_sample_ns(result),
            renewable=True,
            verified=True,
            operation=self._spec.operation,
            precision=self._spec.precision,
            params=case.params,
            bytes_moved=cost["bytes_read"] + cost["bytes_written"],
        )

    def turn(self, samples: int) -> list[float]:
        assert self._case is not None
        with _as_side_error():
            return list(self._measure(self._case, _turn_options(samples))["samples_ns"])

    def _measure(self, case: _core.Case, options: Mapping[str, Any]) -> dict[str, Any]:
        spec = self._spec
        result = case.measure(cache=spec.cache, verify_budget_s=0.0, timer=self._timer, **options)
        if not result["verified"]:
            raise SideError(f"wrong result: {result['reason']}")
        return result

    def close(self) -> None:
        case, self._case = self._case, None
        if case is not None:
            case.close()

    end = close


class CallSide:
    """A function, or the function that it returns; an exception of it becomes the cause of a SideError."""

    def __init__(
        self,
        device: _core.Device,
        function: Callable[[], object],
        *,
        name: str | None = None,
        cache: str = "cold",
        timer: str | None = None,
        stream: Any = None,
    ) -> None:
        self._device, self._function = device, function
        self._name = name or name_callable(function)
        self._subject = Subject(function, self._name, cache=cache, timer=timer, stream=stream, tried=True)
        self.returned: object = None

    def open(self, timer: str | None = None) -> SideInfo:
        """Call the function; if it returns a callable, measure that instead."""
        with _as_side_error():
            with shift_memory(self._device):
                returned = self._function()
            prepared = callable(returned)
            function, name = self._function, self._name
            if callable(returned):
                function, name = returned, f"what {self._name} returned"
                returned = function()
            self.returned = returned
            check_finished(returned, name)
            if _core.backend_facts(self._device.backend)["runs_on_host"]:
                function = wrap_with_wait(function, returned, name)
            self._subject = replace(self._subject, function=function, timer=timer or self._subject.timer)
            result = self._measure(_WARM_UP)
        self._subject = replace(self._subject, timer=result["timer"])
        return SideInfo(self._name, result["timer"], _sample_ns(result), prepared, shape=_shape_of(returned))

    def turn(self, samples: int) -> list[float]:
        with _as_side_error():
            return list(self._measure(_turn_options(samples))["samples_ns"])

    def _measure(self, options: dict[str, Any]) -> dict[str, Any]:
        result, _, _ = functions.time_call(self._device, self._subject, options, 0.0, None)
        return result

    def close(self) -> None:
        """Drop what the function prepared."""
        self._subject = replace(self._subject, function=self._function)
        self.returned = None

    end = close


def later_timer(a: str, b: str, backend: str) -> str:
    """Return the timer that both sides can use: the later of two in the order in which the backend tries them."""
    order = registry.timer_names(backend)
    if a == b or a not in order or b not in order:
        return b
    tried = _core.backend_facts(backend)["call_timers"]
    return max(a, b, key=lambda name: tried.index(name) if name in tried else len(tried))


def _turn_options(samples: int) -> dict[str, Any]:
    return {"precision_target": _NEVER, "min_samples": samples, "max_seconds": 0.0, "settled": True}


def _sample_ns(result: dict[str, Any]) -> float:
    return float(result["median_ns"] * result["launches_per_sample"])


def _shape_of(returned: object) -> list[int] | None:
    shape = getattr(returned, "shape", None)
    try:
        return None if shape is None else [int(extent) for extent in shape]
    except (TypeError, ValueError):
        return None


def describe_error(error: BaseException) -> str:
    """Return an exception's text, with its type unless it is bwprof's own."""
    text, name = str(error), type(error).__name__
    return text if text and isinstance(error, (_core.BwprofError, SideError)) else f"{name}: {text}" if text else name


_DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_NAME = re.compile(rf"(.+\.py|{_DOTTED}):{_DOTTED}")


@dataclass(frozen=True, slots=True)
class Call:
    """A function by name, module:function or file.py:function, with its arguments."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    cache: str = "cold"
    timer: str | None = None

    @property
    def title(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.params.items())])

    def function(self, folder: Path) -> Callable[..., object]:
        """Import the function, files relative to `folder`; an exception of the import is not caught."""
        home, _, path = self.name.rpartition(":")
        module = _import_file(folder / home) if home.endswith(".py") else importlib.import_module(home)
        target = attrgetter(path)(module)
        check_callable(target, path)
        return target  # type: ignore[no-any-return]


ABTask = Spec | Call


def task_to_dict(task: ABTask) -> dict[str, Any]:
    return {"call": asdict(task)} if isinstance(task, Call) else {"case": task.to_dict()}


def task_from_dict(data: Mapping[str, Any]) -> ABTask:
    return Call(**data["call"]) if "call" in data else Spec.from_dict(data["case"])


def side_of(device: _core.Device, task: ABTask, folder: Path) -> CaseSide | CallSide:
    """Make the side that runs a task on an open device."""
    if isinstance(task, Spec):
        return CaseSide(device, task)
    function = task.function(folder)
    call = partial(function, **task.params) if task.params else function
    return CallSide(device, call, name=task.title, cache=task.cache, timer=task.timer)


def is_call(text: str) -> bool:
    """Return whether a text has the form of a function's name, as in pack.module:function or path/file.py:function."""
    return _NAME.fullmatch(text) is not None


def _import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
