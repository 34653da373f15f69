"""Profile a PyTorch model: one row for each module, with its time and its bytes in a call of the model."""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from bwprof import _core, hardware, registry
from bwprof.environment import new_run_id
from bwprof.measuring.callables import check_finished
from bwprof.measuring.row import Context, find_roofs
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

TORCH = "torch"  # the module of PyTorch, which this package imports only when it is used


def import_torch() -> Any:
    """Import PyTorch; raise ImportError where it is missing, or older than 2.0."""
    try:
        torch = importlib.import_module(TORCH)
    except ImportError as error:
        raise ImportError(f"bwprof.torch needs PyTorch, which cannot be imported: {error}") from error
    if int(str(torch.__version__).partition(".")[0]) < 2:
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
    is_known: bool = True  # the bytes are known
    varied: bool = False  # the bytes differ from call to call
    depth: int = 0  # of its running calls: a recursive module is timed and counted once

    def average(self, first: WatchedModule) -> None:
        """Average this count and the `first`, if of as many calls: a cache that grows moves more in each."""
        if self.calls != first.calls:
            self.calls, self.flops = first.calls, first.flops
            self.bytes_read, self.bytes_written = first.bytes_read, first.bytes_written
        elif (self.bytes_read, self.bytes_written) != (first.bytes_read, first.bytes_written):
            self.varied = True
            self.bytes_read = (self.bytes_read + first.bytes_read) // 2
            self.bytes_written = (self.bytes_written + first.bytes_written) // 2
            self.flops = None if self.flops is None or first.flops is None else (self.flops + first.flops) // 2


@contextmanager
def hook_modules(torch: Any, watched: list[WatchedModule]) -> Iterator[Hooks]:
    """Put hooks on modules, and remove all of them at the end, whatever happens."""
    hooks = Hooks(torch, watched)
    with ExitStack() as stack:
        for number, entry in enumerate(watched):
            before, after = hooks.make(str(number), entry)
            stack.callback(entry.module.register_forward_pre_hook(before, with_kwargs=True).remove)
            stack.callback(entry.module.register_forward_hook(after, with_kwargs=True, always_call=True).remove)
        yield hooks


class Hooks:
    """Hooks that mark the begin and end of each call, or count its bytes; they change no argument and no result."""

    def __init__(self, torch: Any, watched: list[WatchedModule]) -> None:
        self._torch = torch
        self._watched = watched
        self._thread = threading.get_ident()
        self._start: Callable[[str], object] | None = None
        self._stop: Callable[[str], object] | None = None
        self._counts = False
        self._flops: Callable[[], int] | None = None
        self._running: list[tuple[CallState, int | None]] = []

    @contextmanager
    def timing(self, start: Callable[[str], object], stop: Callable[[str], object]) -> Iterator[None]:
        """Call `start` and `stop` at the begin and end of each call, with the module's number."""
        self._start, self._stop = start, stop
        try:
            yield
        finally:
            self._start = self._stop = None

    @contextmanager
    def counting(self, flops: Callable[[], int] | None) -> Iterator[None]:
        """Count bytes, and FLOPs, whose sum so far `flops` returns."""
        for entry in self._watched:
            entry.calls = entry.bytes_read = entry.bytes_written = 0
            entry.flops = None if flops is None else 0
        self._counts, self._flops = True, flops
        try:
            yield
        finally:
            self._counts = False
            self._running.clear()

    def make(self, name: str, entry: WatchedModule) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return the hooks before and after a module's calls, which work in this thread alone."""

        def before(module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            if threading.get_ident() == self._thread:
                entry.depth += 1
                if entry.depth == 1:
                    if self._counts:
                        state = CallState(tensors_in((arguments, keywords)), weights_of(module))
                        self._running.append((state, self._flops() if self._flops else None))
                    if self._start is not None:
                        self._start(name)

        def after(module: Any, _arguments: tuple[Any, ...], _keywords: dict[str, Any], output: Any) -> None:
            if threading.get_ident() == self._thread and entry.depth:
                entry.depth -= 1
                if not entry.depth:
                    if self._stop is not None:
                        self._stop(name)
                    if self._counts and self._running:
                        self._count(entry, module, output)

        if getattr(entry.module, "_compiled_call_impl", None) is not None:  # the hooks would be compiled, too
            disable = self._torch.compiler.disable
            return disable(before), disable(after)
        return before, after

    def _count(self, entry: WatchedModule, module: Any, output: Any) -> None:
        before, flops = self._running.pop()
        try:
            looked_up = None
            if isinstance(module, (self._torch.nn.Embedding, self._torch.nn.EmbeddingBag)):  # as many rows as indices
                indices = int(before.arguments[0].numel()) if before.arguments else 0
                whole = bytes_of(module.weight)
                looked_up = min(whole, indices * (whole // max(1, int(module.weight.shape[0]))))
            moved = count_moved(before, output, looked_up=looked_up, in_place=bool(getattr(module, "inplace", False)))
        except (RuntimeError, NotImplementedError, TypeError, AttributeError, ValueError) as error:
            entry.notes[f"its bytes cannot be counted: {error}"] = None
            return
        entry.calls += 1
        entry.bytes_read += moved.read
        entry.bytes_written += moved.written
        entry.precision = entry.precision or moved.precision
        if self._flops is not None and flops is not None and entry.flops is not None:
            entry.flops += self._flops() - flops
        if hasattr(module, "_packed_params"):
            entry.flops = None
            entry.notes["the products of its packed weights are not counted"] = None
            if not packed_in(module):
                entry.is_known = False
                entry.notes["the bytes of its packed weights are not known"] = None


def find_modules(torch: Any, model: Any, units: Iterable[type]) -> tuple[list[WatchedModule], list[str]]:
    """Return the modules to watch: those that compute by themselves, and units; and the names of scripted ones."""
    needed = "types of modules are needed, as [Attention]"
    types = tuple(list_items(units, "units", needed))
    for kind in types:
        if not isinstance(kind, type):
            raise TypeError(f"units has {repr_short(kind)}: {needed}")
    watched: list[WatchedModule] = []
    scripted_names: list[str] = []
    inside: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        is_unit = (  # it computes with its parts' parameters, without calling them
            isinstance(module, (torch.nn.MultiheadAttention, *types))
            or hasattr(module, "_packed_params")
            or isinstance(getattr(module, "parametrizations", None), torch.nn.ModuleDict)
            or _is_compiled(module)
        )
        if isinstance(module, torch.jit.ScriptModule):  # hooks cannot be added to it
            is_unit = True
            scripted_names.append(name)
        elif is_unit or _computes_alone(torch, module):
            watched.append(WatchedModule(name or "(model)", module))
        if is_unit:
            inside.append(f"{name}." if name else "")
    return watched, scripted_names


def _computes_alone(torch: Any, module: Any) -> bool:
    itself, *parts = (
        "forward" in vars(entry) or type(entry).forward is not torch.nn.Module.forward for entry in module.modules()
    )
    return itself and not any(parts)


def _is_compiled(module: Any) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _check_model(torch: Any, model: Any) -> None:
    """Refuse anything but a module whose parts are called."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is {repr_short(model)}: a torch.nn.Module is needed")
    if _is_compiled(model) or isinstance(model, torch.jit.ScriptModule):
        kind = "compiled" if _is_compiled(model) else "scripted, or traced,"
        raise ValueError(f"a {kind} model runs as one, without its modules: pass what it was made of")


def _find_device(model: Any, inputs: Iterable[Any]) -> Any:
    """Return the one device of a model and its inputs; None where they have no tensor."""
    tensors = [*model.parameters(), *model.buffers(), *inputs]
    devices = list(dict.fromkeys(tensor.device for tensor in tensors))
    if len(devices) > 1:
        raise ValueError(f"the model and its inputs are on several devices ({', '.join(map(str, devices))})")
    return devices[0] if devices else None


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
    """Measure the time of each module of a PyTorch model, and how near it comes to its memory's bandwidth.

    The model is called ``warmup + runs`` times and three or four times more, under the caller's autocast, ``no_grad``
    and ``eval``: its counters, caches and running statistics change as in any call; random numbers are drawn as if it
    had not been called. Forward hooks on the modules without submodules mark begin and end, and are always removed. A
    module's time on a GPU is that of its kernels, without the gaps between them.

    A row's bytes are those that its calls in one call of the model move at least: parameters, buffers and arguments
    read once a call, results and changed tensors written; views cost nothing, an embedding reads the rows that are
    looked up. FLOPs are those of matrix products, convolutions and attention.

    Parameters
    ----------
    model : torch.nn.Module
        On one device, as its inputs. A compiled or scripted model runs as one: pass the original. Compiled parts are
        rows, scripted parts run outside modules. Work on other threads or streams is not timed.
    *inputs, **more_kwargs
        The model's arguments.
    kwargs : mapping, optional
        Arguments by name, for names that this function has: runs, roofs, ...
    runs, warmup : int
        Timed calls, and calls before them.
    units : iterable of types
        Modules to watch as one, with all inside; `torch.nn.MultiheadAttention`, quantized, parametrized and compiled
        ones always are.
    timer : {"kernels", "events"}, optional
        On a GPU: timestamps of kernels, which `torch.profiler` collects (default, where available), or pairs of events
        on the current stream, less the time of an empty pair. On a CPU "monotonic".
    roofs : {"auto", "stored", False} or Roofs
        The roofs to grade rows by; see `bwprof.measure`.

    Returns
    -------
    pandas.DataFrame
        A frame as `bwprof.frame` makes it: a row per module in the order of their names (``case`` its name,
        ``operation`` its type), and one for what runs outside them. ``time_ms`` is the median over runs of all its
        calls in one call of the model, ``calls`` their number, ``share_pct`` their share of the time of all runs. On
        the meta device nothing runs: rows are predicted, with bytes alone. ``attrs["model"]`` has total_ms, runs, and
        the names of modules that were not called.

    Raises
    ------
    ImportError, TypeError, ValueError
        Without PyTorch 2.0; for anything but a module, several devices, and a model that calls none of its modules.

    Examples
    --------
    >>> rows = bwprof.torch.profile(model, torch.ones(8, 64))  # doctest: +SKIP
    >>> rows[["case", "calls", "time_ms", "bytes_read", "bandwidth_gb_s"]]  # doctest: +SKIP
    """
    torch = import_torch()
    _check_model(torch, model)
    roofs = check_roofs(roofs)
    keywords = merge_keywords(kwargs, more_kwargs, "kwargs")
    runs, warmup = parse_int(runs, "runs"), parse_int(warmup, "warmup")
    if runs < 1 or warmup < 0:
        raise ValueError(f"runs is {runs} and warmup is {warmup}: at least 1 and 0 are needed")
    place = _find_device(model, tensors_in((inputs, keywords)))
    watched, scripted = find_modules(torch, model, units)

    def call() -> None:
        check_finished(model(*inputs, **keywords), "the model")

    if place is not None and place.type == "meta":
        with hook_modules(torch, watched) as hooks:
            _count(hooks, call)
        context = Context(new_run_id(), "meta", {}, None)
        nothing = PartTimes({}, {}, "")
        return _make_frame([_make_part(entry, "", nothing) for entry in watched if entry.calls], context, watched, [])
    choice, seeded = _choose_device(place)
    with torch.random.fork_rng(**seeded), hardware.borrow_device(choice.backend, choice.index) as device:
        facts = hardware.facts(device)
        context = Context(new_run_id(), choice.backend, facts, find_roofs(device, facts, roofs, ("cold",)))
        for _ in range(warmup):
            call()
        with hook_modules(torch, watched) as hooks:
            _count(hooks, call)
            first = [replace(entry) for entry in watched]
            times = time_calls(torch, device, place, call, hooks.timing, runs, timer)
            try:
                _count(hooks, call)
            except Exception as error:  # the times are complete
                watched = [
                    replace(entry, notes=entry.notes | {f"a further call failed: {error}": None}) for entry in first
                ]
        for entry, count in zip(watched, first, strict=True):
            entry.average(count)
    return _make_frame(_make_parts(watched, scripted, times), context, watched, times.times_ms[WHOLE])


def _choose_device(place: Any) -> tuple[hardware.Choice, dict[str, Any]]:
    """Return bwprof's device of PyTorch's, and the arguments that preserve its random numbers."""
    host = next(name for name in registry.backend_names() if _core.backend_facts(name)["runs_on_host"])
    choice = hardware.choose_current(*((host, None) if place is None else (None, place)))
    seeded: dict[str, Any] = {"devices": [choice.index], "device_type": choice.backend}
    return choice, {"devices": []} if choice.backend == host else seeded


def _make_frame(
    parts: list[TimedPart], context: Context, watched: list[WatchedModule], whole: list[float]
) -> pd.DataFrame:
    from bwprof.results.frame import frame

    data = frame([make_row(part, context) for part in parts])
    names = {part.name for part in parts}
    unused = [entry.name for entry in watched if entry.name not in names]
    total_ms = median(whole) if whole else None
    data.attrs["model"] = {"total_ms": total_ms, "runs": len(whole), "not_called": unused}
    return data


def _recurrent_flops(x: Sequence[int], *weights: Sequence[int]) -> int:
    """Multiply each row of the input, and each state, by the matrices among the weights."""
    return 2 * math.prod(x[:-1]) * sum(math.prod(entry) for entry in weights if len(entry) == 2)


# The index of attention's argument is_causal, which PyTorch's counter ignores.
_CAUSAL = {
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_fused_attention_overrideable": 5,
}


def _attention_flops(place: int, *arguments: Any, **keywords: Any) -> int:
    """Return the FLOPs of attention; a causal query attends the keys up to its own position."""
    q, k, v = arguments[:3]
    queries, keys = q[-2], k[-2]
    pairs = queries * keys
    if keywords.get("is_causal", len(arguments) > place and arguments[place]):
        first = min(queries, keys)
        pairs -= first * (first - 1) // 2 + first * (keys - first)
    return int(2 * math.prod(q[:-2]) * pairs * (q[-1] + v[-1]))


# FLOPs by shapes of operators that PyTorch's counter lacks, in some versions.
_UNCOUNTED: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("mv", "dot", "vdot"), lambda a, *_, **__: 2 * math.prod(a)),
    "addmv": lambda _, a, *__, **___: 2 * math.prod(a),
    "addbmm": lambda _, a, b, *__, **___: 2 * math.prod(a) * b[-1],
    "_int_mm": lambda a, b, *_, **__: 2 * math.prod(a) * b[-1],
    "mkldnn_rnn_layer": lambda x, w, u, *_, **__: _recurrent_flops(x, w, u),
    "_cudnn_rnn": lambda x, weights, *_, **__: _recurrent_flops(x, *weights),
}


def _formulas(counters: Any) -> dict[Any, Callable[..., int]]:
    """Return formulas for the operators that PyTorch's counter lacks, and for causal attention."""
    operators = importlib.import_module(TORCH).ops.aten
    formulas = {getattr(operators, name, None): formula for name, formula in _UNCOUNTED.items()}
    formulas = {operator: formula for operator, formula in formulas.items() if operator not in counters.flop_registry}
    formulas |= {getattr(operators, name, None): partial(_attention_flops, place) for name, place in _CAUSAL.items()}
    formulas.pop(None, None)  # of operators that this version lacks
    return formulas


def _count(hooks: Hooks, call: Callable[[], None]) -> None:
    flops: Callable[[], int] | None = None
    with ExitStack() as stack:
        with suppress(ImportError, AttributeError):  # a PyTorch without a counter
            counters: Any = importlib.import_module(f"{TORCH}.utils.flop_counter")
            counter = counters.FlopCounterMode(display=False, custom_mapping=_formulas(counters))
            flops = stack.enter_context(counter).get_total_flops
        switch: Any = getattr(importlib.import_module(f"{TORCH}.backends"), "mha", None)
        if flops is not None and switch is not None and switch.get_fastpath_enabled():
            switch.set_fastpath_enabled(False)  # the counter knows attention's products, and not the fused call
            stack.callback(switch.set_fastpath_enabled, True)
        stack.enter_context(hooks.counting(flops))
        call()


def _make_parts(watched: list[WatchedModule], scripted: list[str], times: PartTimes) -> list[TimedPart]:
    """Return the modules that were called, and what ran outside them; ValueError where none was called."""
    numbers = [number for number in range(len(watched)) if str(number) in times.times_ms]
    if not numbers:
        raise ValueError("none of the modules was called: pass what a scripted, traced or compiled model was made of")
    parts = [_make_part(watched[number], str(number), times) for number in numbers]
    whole = times.times_ms[WHOLE]
    inside = [sum(times.times_ms[str(number)][run] for number in numbers) for run in range(len(whole))]
    rest = [max(0.0, total - modules) for total, modules in zip(whole, inside, strict=True)]
    names = ", ".join(map(quote_text, scripted))
    notes = [f"with {names}: nothing can be hooked on scripted modules"] if scripted else []
    labels = {"calls": 0, "share_pct": _share_pct(rest, whole)}
    return [*parts, TimedPart("(outside modules)", "", rest, timer=times.timer, notes=notes, labels=labels, alike=True)]


def _share_pct(times: Sequence[float], whole: Sequence[float]) -> float | None:
    return 100 * sum(times) / sum(whole) if sum(whole) else None


def _make_part(entry: WatchedModule, number: str, times: PartTimes) -> TimedPart:
    """Return a module's times, of the runs in which it was called as often as when its bytes were counted."""
    all_times, counts = times.times_ms.get(number, []), times.counts.get(number, [])
    calls = entry.calls
    if counts and (calls == 0 or calls not in counts):
        calls = next(filter(None, counts))
    known = calls == entry.calls
    moved = known and entry.is_known
    notes = [*entry.notes, *times.notes]
    if not known and not entry.notes:
        notes.append("its bytes were not counted")
    if len(set(counts)) > 1:
        notes.append(f"ran {min(counts)} to {max(counts)} times in a call of the model: this is of {calls}")
    return TimedPart(
        entry.name,
        type(getattr(entry.module, "_orig_mod", entry.module)).__name__,
        [time for time, count in zip(all_times, counts, strict=True) if count == calls],
        entry.bytes_read if moved else None,
        entry.bytes_written if moved else None,
        entry.flops if known and entry.bytes_read + entry.bytes_written else None,
        entry.precision,
        timer=times.timer,
        floor_ms=times.floor_ms,
        notes=notes,
        flags=[*times.flags, *["bytes_vary"] * entry.varied],
        labels={"calls": calls, "share_pct": _share_pct(all_times, times.times_ms.get(WHOLE, []))},
        alike=True,
    )
