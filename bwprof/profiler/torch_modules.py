"""A PyTorch model's modules as rows: what each moves, and how long it takes, in calls of the whole model."""

from __future__ import annotations

import functools
import importlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from bwprof import _core, hardware, registry
from bwprof.environment import new_run_id
from bwprof.measuring.callables import check_finished
from bwprof.measuring.contexts import find_roofs
from bwprof.measuring.row import Context
from bwprof.profiler.torch_calls import (
    WHOLE,
    CallState,
    PartTimes,
    TimedPart,
    bytes_of,
    count_moved,
    make_row,
    packed_in,
    tensors_in,
    time_calls,
    weights_of,
)
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.text.parsing import list_items, merge_keywords, parse_int, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

TORCH = "torch"  # PyTorch, which nothing of this package imports before it is asked for

_REST = "(outside modules)"

_NOWHERE = "meta"

TensorShape = Sequence[int]


def import_torch() -> Any:
    """PyTorch.

    Raises
    ------
    ImportError
        Where it is not installed, or older than 2.0.
    """
    try:
        torch = importlib.import_module(TORCH)
    except ImportError as error:
        raise ImportError(f"bwprof.torch needs PyTorch, which cannot be imported: {error}") from error
    if int(str(torch.__version__).split(".")[0]) < 2:
        raise ImportError(f"bwprof.torch needs PyTorch 2.0 or newer, this is {torch.__version__}")
    return torch


@dataclass(slots=True)
class WatchedModule:
    """A module, and what its calls in one call of the model moved and computed."""

    name: str
    module: Any
    calls: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    flops: int | None = 0
    precision: str | None = None
    notes: dict[str, None] = field(default_factory=dict)
    is_known: bool = True  # what it moves
    varied: bool = False  # it moves more, or less, from call to call
    depth: int = 0  # of calls of it that run: one that calls itself is timed and counted once

    def average(self, first: WatchedModule) -> None:
        """Take the mean of this count and the `first`, if of as many calls: a cache that grows moves more in each."""
        if self.calls != first.calls:
            self.calls, self.flops = first.calls, first.flops
            self.bytes_read, self.bytes_written = first.bytes_read, first.bytes_written
        elif (self.bytes_read, self.bytes_written) != (first.bytes_read, first.bytes_written):
            self.varied = True
            self.bytes_read = (self.bytes_read + first.bytes_read) // 2
            self.bytes_written = (self.bytes_written + first.bytes_written) // 2
            self.flops = None if self.flops is None or first.flops is None else (self.flops + first.flops) // 2

    @property
    def kind(self) -> str:
        """The type's name; of a compiled module that of what was compiled."""
        return type(getattr(self.module, "_orig_mod", self.module)).__name__


class Hooks:
    """Hooks on modules: they mark the beginning and the end of each call, or count what it moves.

    They return nothing, so that no argument and no result is changed by them.
    """

    def __init__(self, torch: Any, watched: list[WatchedModule]) -> None:
        self._torch = torch
        self._watched = watched
        self._handles: list[Any] = []
        self._thread = threading.get_ident()
        self._start: Callable[[str], object] | None = None
        self._stop: Callable[[str], object] | None = None
        self._counts = False
        self._flops: Callable[[], int] | None = None
        self._running: list[tuple[CallState, int | None]] = []

    def __enter__(self) -> Hooks:
        try:
            for number, one in enumerate(self._watched):
                before, after = self._pair(number, one)
                self._handles.append(one.module.register_forward_pre_hook(before, with_kwargs=True))
                self._handles.append(one.module.register_forward_hook(after, with_kwargs=True, always_call=True))
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        self._start = self._stop = None  # one that is left, whatever for, does nothing
        self._counts = False
        with ExitStack() as stack:  # all of them, whatever one raises
            for handle in self._handles:
                stack.callback(handle.remove)
        self._handles = []

    @contextmanager
    def timing(self, start: Callable[[str], object], stop: Callable[[str], object]) -> Iterator[None]:
        """The beginnings and ends of calls are told meanwhile, by modules' numbers."""
        self._start, self._stop = start, stop
        try:
            yield
        finally:
            self._start = self._stop = None

    @contextmanager
    def counting(self, flops: Callable[[], int] | None) -> Iterator[None]:
        """Bytes are counted meanwhile, and FLOPs, which `flops` has so far."""
        for one in self._watched:
            one.calls = one.bytes_read = one.bytes_written = 0
            one.flops = None if flops is None else 0
        self._counts, self._flops = True, flops
        try:
            yield
        finally:
            self._counts = False
            self._running.clear()

    def _pair(self, number: int, one: WatchedModule) -> tuple[Callable[..., None], Callable[..., None]]:
        name = str(number)

        def before(module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            if threading.get_ident() != self._thread:
                return
            one.depth += 1
            if one.depth > 1:
                return
            if self._counts:
                own = weights_of(module)
                known = CallState(list(tensors_in((arguments, keywords))), own)
                self._running.append((known, self._flops() if self._flops else None))
            if self._start is not None:
                self._start(name)

        def after(module: Any, _arguments: tuple[Any, ...], _keywords: dict[str, Any], output: Any) -> None:
            if threading.get_ident() != self._thread or one.depth == 0:
                return
            one.depth -= 1
            if one.depth:
                return
            if self._stop is not None:
                self._stop(name)
            if self._counts and self._running:
                self._count(one, module, output)

        if getattr(one.module, "_compiled_call_impl", None) is not None:  # else they would be compiled with it
            disable = self._torch.compiler.disable
            return disable(before), disable(after)
        return before, after

    def _count(self, one: WatchedModule, module: Any, output: Any) -> None:
        before, flops = self._running.pop()
        try:
            looked_up = self._rows_looked_up(module, before)
            found = count_moved(before, output, looked_up=looked_up, in_place=bool(getattr(module, "inplace", False)))
        except (RuntimeError, NotImplementedError, TypeError, AttributeError, ValueError) as error:
            one.notes[f"its bytes cannot be counted: {error}"] = None
            return
        one.calls += 1
        one.bytes_read += found.read
        one.bytes_written += found.written
        one.precision = one.precision or found.precision
        if self._flops is not None and flops is not None and one.flops is not None:
            one.flops += self._flops() - flops
        if hasattr(module, "_packed_params"):
            one.flops = None
            one.notes["the products of its packed weights are not counted"] = None
            if not packed_in(module):
                one.is_known = False
                one.notes["the bytes of its packed weights are not known"] = None

    def _rows_looked_up(self, module: Any, before: CallState) -> int | None:
        """Of a table: as many of its rows as there are numbers, at most all."""
        nn = self._torch.nn
        if not isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return None
        numbers = int(before.given[0].numel()) if before.given else 0
        table = module.weight
        whole = bytes_of(table)
        return min(whole, numbers * (whole // max(1, int(table.shape[0]))))


def find_modules(torch: Any, model: Any, units: Iterable[type]) -> tuple[list[WatchedModule], list[str]]:
    """The modules that compute by themselves, and those that are to be taken as one; beside them the names of those
    that nothing can be hooked on.

    Raises
    ------
    TypeError
        For `units` that are no types.
    """
    wanted = "types of modules are needed, as [Attention]"
    whole = tuple(list_items(units, "units", wanted))
    for kind in whole:
        if not isinstance(kind, type):
            raise TypeError(f"units has {repr_short(kind)}: {wanted}")
    found: list[WatchedModule] = []
    closed: list[str] = []
    inside: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        scripted = isinstance(module, torch.jit.ScriptModule)
        is_whole = not scripted and (_runs_as_one(torch, module) or isinstance(module, whole))
        if scripted:
            closed.append(name)
        elif is_whole or _computes_alone(torch, module):
            found.append(WatchedModule(name or "(model)", module))
        if is_whole or scripted:
            inside.append(f"{name}." if name else "")
    return found, closed


def _computes_alone(torch: Any, module: Any) -> bool:
    """Whether it can be called, and nothing in it can: lists of parameters cannot."""
    calls = [
        "forward" in vars(one) or type(one).forward is not torch.nn.Module.forward for one in module.modules()
    ]  # itself first
    return calls[0] and not any(calls[1:])


def _runs_as_one(torch: Any, module: Any) -> bool:
    """It computes with its parts' parameters and calls none of them, or with what they make of its own."""
    return (
        isinstance(module, torch.nn.MultiheadAttention)
        or hasattr(module, "_packed_params")
        or isinstance(getattr(module, "parametrizations", None), torch.nn.ModuleDict)
        or _is_compiled(module)
    )


def _is_compiled(module: Any) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def find_device(model: Any, inputs: Iterable[Any]) -> Any:
    """The one device that a model and its inputs are on; None where they have no tensor.

    Raises
    ------
    ValueError
        For several.
    """
    tensors = [*model.parameters(), *model.buffers(), *inputs]
    places = list(dict.fromkeys(tensor.device for tensor in tensors))
    if len(places) > 1:
        named = ", ".join(str(place) for place in places)
        raise ValueError(f"the model and its inputs are on several devices ({named}): one is needed")
    return places[0] if places else None


def profile(
    model: Any,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    runs: int = 5,
    warmup: int = 2,
    units: Iterable[type] = (),
    timer: str | None = None,
    roofs: RoofsArgument = "auto",
    **more_kwargs: Any,
) -> pd.DataFrame:
    """Where a PyTorch model's time goes, and how near each module comes to its memory's bandwidth.

    The model is called ``warmup + runs`` times and three or four times more, as the caller would call it (so under the
    caller's autocast, ``no_grad`` and ``eval``): its modules' counters, caches and running statistics move on as in any
    call. Forward hooks on the modules without modules of their own mark beginnings and ends; a module's time on a GPU
    is that of its kernels, without the gaps between them. The hooks are removed however it ends. Random numbers are
    drawn as if it had not been called.

    A row's bytes are what its calls in one call of the model move at least: parameters, buffers and arguments read
    once a call, results and what is changed in place written; a view costs nothing, of an embedding the rows that are
    looked up are read. FLOPs are those of matrix products, convolutions and attention.

    Parameters
    ----------
    model : torch.nn.Module
        On one device, as its inputs. A compiled or scripted model runs as one: pass what it was made of. Of its parts
        a compiled one is a row, and scripted ones are among what runs outside modules. Work on other threads or
        streams is not timed.
    *inputs, **more_kwargs
        What it is called with.
    kwargs : mapping, optional
        The same by name, for names that this function has: runs, roofs, ...
    runs, warmup : int
        Calls that are timed, and calls before that.
    units : iterable of types
        Modules to take as one, however many they have inside; `torch.nn.MultiheadAttention`, quantised, parametrised
        and compiled ones always are.
    timer : {"kernels", "events"}, optional
        On a GPU: timestamps of kernels, which `torch.profiler` collects (left out, where that can be had), or pairs of
        events on the current stream, less the time of an empty pair; the stream is then held back until the host has
        enqueued a call, so that no gap of the host's is timed. On a CPU "monotonic".
    roofs : {"auto", "stored", False} or Roofs
        What rows are held against; see `bwprof.measure`.

    Returns
    -------
    pandas.DataFrame
        A frame as `bwprof.frame` makes it: a row per module in the order of their names (``case`` its name,
        ``operation`` its type), and one for what runs outside them. ``time_ms`` is the median over runs of all its
        calls in one call of the model, ``calls`` how many these are, ``share_pct`` their share of the time of all runs;
        `noisy` where half of the runs lie more than 10 % apart. Where runs differ in ``calls``, ``reason`` says so.
        Modules that move nothing have no bandwidth. On the meta device nothing runs: rows are predicted ones, of bytes
        alone. ``attrs["model"]`` holds total_ms, runs, and the names of modules that were not called.

    Raises
    ------
    ImportError
        Without PyTorch 2.0.
    TypeError, ValueError
        For what is no module, is on several devices, or runs none of its modules as modules.
    Exception
        Whatever the model raises, as it is.

    Examples
    --------
    >>> import bwprof, torch  # doctest: +SKIP
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU())  # doctest: +SKIP
    >>> rows = bwprof.torch.profile(model, torch.ones(8, 64), roofs=False)  # doctest: +SKIP
    >>> rows[["case", "calls", "bytes_read", "bytes_written"]].values.tolist()  # doctest: +SKIP
    [['0', 1, 68608, 8192], ['1', 1, 8192, 8192], ['(outside modules)', <NA>, <NA>, <NA>]]
    """
    torch = import_torch()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is {repr_short(model)}: a torch.nn.Module is needed")
    if _is_compiled(model) or isinstance(model, torch.jit.ScriptModule):
        how = "compiled" if _is_compiled(model) else "scripted, or traced,"
        raise ValueError(f"a {how} model runs as one, without its modules: pass what it was made of")
    held_against = check_roofs(roofs)
    keywords = merge_keywords(kwargs, more_kwargs, "kwargs")
    runs, warmup = _at_least(runs, "runs", 1), _at_least(warmup, "warmup", 0)
    place = find_device(model, tensors_in((inputs, keywords)))
    watched, closed = find_modules(torch, model, units)

    def call() -> None:
        check_finished(model(*inputs, **keywords), "the model")

    if place is not None and place.type == _NOWHERE:
        with Hooks(torch, watched) as hooks:
            _count(hooks, call)
        context = Context(new_run_id(), _NOWHERE, {}, None)
        return _frame([_ran(one, [], {}) for one in watched if one.calls], context, watched, None, 0)
    choice = hardware.choose_current(*((_host(), None) if place is None else (None, place)))
    with _preserve_random_state(torch, choice), hardware.borrow_device(choice.backend, choice.index) as device:
        facts = hardware.device_facts(device)
        kept = find_roofs(device, facts, held_against, ("cold",))
        context = Context(new_run_id(), choice.backend, facts, kept)
        for _ in range(warmup):
            call()
        with Hooks(torch, watched) as hooks:
            _count(hooks, call)
            first = [replace(one) for one in watched]
            taken = time_calls(torch, device, place, call, hooks.timing, runs, timer)
            try:
                _count(hooks, call)
            except Exception as error:  # the times are there
                watched = [replace(one, notes=one.notes | {f"a further call failed: {error}": None}) for one in first]
        for one, counted in zip(watched, first, strict=True):
            one.average(counted)
    return _rows(watched, closed, taken, context)


def _at_least(given: Any, name: str, least: int) -> int:
    number = parse_int(given, name)
    if number < least:
        raise ValueError(f"{name} is {repr_short(given)}: at least {least} is needed")
    return number


def _host() -> str:
    """The backend whose devices are the host's processors: of a model without any tensor."""
    return next(name for name in registry.backend_names() if _core.backend_facts(name)["runs_on_host"])


@contextmanager
def _preserve_random_state(torch: Any, choice: hardware.Choice) -> Iterator[None]:
    on_host = _core.backend_facts(choice.backend)["runs_on_host"]
    where: dict[str, Any] = {"devices": []} if on_host else {"devices": [choice.index], "device_type": choice.backend}
    with torch.random.fork_rng(**where):
        yield


def _steps(given: TensorShape, *weights: TensorShape) -> int:
    """Of a recurrent layer: each row of what is given, and each state, times the matrices among its weights."""
    return 2 * math.prod(given[:-1]) * sum(math.prod(one) for one in weights if len(one) == 2)


# Where attention says that it is causal, of which PyTorch's counter takes no notice: the argument's place.
_CAUSAL = {
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_fused_attention_overrideable": 5,
}


def _attention(place: int, *arguments: Any, **keywords: Any) -> int:
    """The FLOPs of attention: a causal query attends the keys up to its own position."""
    q, k, v = arguments[:3]
    queries, keys = q[-2], k[-2]
    pairs = queries * keys
    if keywords.get("is_causal", len(arguments) > place and arguments[place]):
        first = min(queries, keys)
        pairs -= first * (first - 1) // 2 + first * (keys - first)
    return int(2 * math.prod(q[:-2]) * pairs * (q[-1] + v[-1]))


# FLOPs from shapes, of products that PyTorch's counter passes over, in some versions.
_PASSED_OVER: dict[str, Callable[..., int]] = {
    "mv": lambda a, *_, **__: 2 * math.prod(a),
    "addmv": lambda _, a, *__, **___: 2 * math.prod(a),
    "dot": lambda a, *_, **__: 2 * math.prod(a),
    "vdot": lambda a, *_, **__: 2 * math.prod(a),
    "addbmm": lambda _, a, b, *__, **___: 2 * math.prod(a) * b[-1],
    "_int_mm": lambda a, b, *_, **__: 2 * math.prod(a) * b[-1],
    "mkldnn_rnn_layer": lambda given, one, two, *_, **__: _steps(given, one, two),
    "_cudnn_rnn": lambda given, weights, *_, **__: _steps(given, *weights),
}


def _formulas(counters: Any) -> dict[Any, Callable[..., int]]:
    """What PyTorch's counter lacks, and attention, which it counts without regard to what is causal."""
    operators = importlib.import_module(TORCH).ops.aten
    attention = {name: functools.partial(_attention, place) for name, place in _CAUSAL.items()}
    named = [(name, getattr(operators, name, None), how) for name, how in (_PASSED_OVER | attention).items()]
    return {
        one: how
        for name, one, how in named
        if one is not None and (name in _CAUSAL or one not in counters.flop_registry)
    }


def _count(hooks: Hooks, call: Callable[[], None]) -> None:
    """One call in which bytes and FLOPs are counted."""
    try:
        counters: Any = importlib.import_module(f"{TORCH}.utils.flop_counter")
        counting = counters.FlopCounterMode(display=False, custom_mapping=_formulas(counters))
    except (ImportError, AttributeError):
        counting = None
    if counting is None:
        with hooks.counting(None):
            call()
        return
    with counting, _in_parts(), hooks.counting(counting.get_total_flops):
        call()


@contextmanager
def _in_parts() -> Iterator[None]:
    """Attention runs as the products that it is made of: as one native call nobody counts its FLOPs."""
    switch: Any = getattr(importlib.import_module(f"{TORCH}.backends"), "mha", None)
    before = bool(switch is not None and switch.get_fastpath_enabled())
    try:
        if before:
            switch.set_fastpath_enabled(False)
        yield
    finally:
        if before:
            switch.set_fastpath_enabled(True)


def _rows(watched: list[WatchedModule], closed: list[str], taken: PartTimes, context: Context) -> pd.DataFrame:
    times = taken.times_ms
    called = [(number, one) for number, one in enumerate(watched) if str(number) in times]
    if not called:
        raise ValueError(
            "none of the model's modules was called as a module: a scripted, traced or compiled model runs without "
            "them; pass what it was made of"
        )
    whole = times[WHOLE]
    shared = {"timer": taken.timer, "floor_ms": taken.floor_ms, "notes": taken.notes, "flags": taken.flags}
    rows = [_timed(one, times[str(number)], taken.counts[str(number)], shared, whole) for number, one in called]
    inside = [sum(times[str(number)][run] for number, _ in called) for run in range(len(whole))]
    rest = [max(0.0, one - part) for one, part in zip(whole, inside, strict=True)]
    names = ", ".join(quote_text(name) for name in closed)
    notes = [f"with {names}: nothing can be hooked on scripted modules"] if closed else []
    rows.append(TimedPart(_REST, "", rest, timer=taken.timer, notes=notes, labels=_labels(0, rest, whole), alike=True))
    return _frame(rows, context, watched, median(whole), len(whole))


def _timed(
    one: WatchedModule, times: list[float], counts: list[int], shared: Mapping[str, Any], whole: Sequence[float]
) -> TimedPart:
    """A module's times: of those calls of the model in which it ran as often as in the one whose bytes were counted."""
    found = _ran(one, times, shared, whole)
    if set(counts) == {one.calls}:
        return found
    known = one.calls > 0 and one.calls in counts
    calls = one.calls if known else next(filter(None, counts))
    found.times_ms = [time for time, count in zip(times, counts, strict=True) if count == calls]
    found.labels = dict(found.labels) | {"calls": calls}
    notes = [f"ran {min(counts)} to {max(counts)} times in a call of the model: this is of {calls}"]
    if not known:
        found.bytes_read = found.bytes_written = found.flops = None
        notes = ["its bytes were not counted"] * (not one.notes) + notes
    found.notes = [*found.notes, *(notes if len(set(counts)) > 1 else notes[:-1])]
    return found


def _labels(calls: int, times: list[float], whole: Sequence[float]) -> dict[str, Any]:
    return {"calls": calls, "share_pct": 100 * sum(times) / sum(whole) if sum(whole) else None}


def _ran(one: WatchedModule, times: list[float], shared: Mapping[str, Any], whole: Sequence[float] = ()) -> TimedPart:
    return TimedPart(
        one.name,
        one.kind,
        times,
        one.bytes_read if one.is_known else None,
        one.bytes_written if one.is_known else None,
        one.flops if one.bytes_read or one.bytes_written else None,
        one.precision,
        labels=_labels(one.calls, times, whole),
        alike=True,
        **dict(shared)
        | {
            "notes": [*one.notes, *shared.get("notes", ())],
            "flags": [*shared.get("flags", ()), *(["bytes_vary"] if one.varied else [])],
        },
    )


def _frame(
    ran: list[TimedPart], context: Context, watched: list[WatchedModule], total: float | None, runs: int
) -> pd.DataFrame:
    from bwprof.results.frame import frame

    found = frame([make_row(one, context) for one in ran])
    names = {one.name for one in ran}
    unused = [one.name for one in watched if one.name not in names]
    found.attrs["model"] = {"total_ms": total, "runs": runs, "not_called": unused}
    return found
