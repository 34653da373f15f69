"""Measure a caller's function, and chains of cases as one function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from bwprof import _core, hardware, registry
from bwprof.environment import new_run_id
from bwprof.hardware import Device
from bwprof.measuring import row as rows
from bwprof.measuring.callables import (
    Expected,
    VerifyResult,
    check_callable,
    check_finished,
    do_nothing,
    do_nothing_with,
    name_callable,
    wrap_with_wait,
)
from bwprof.measuring.grade import AS_COUNTED, ELSEWHERE, WAITED, count_moved_bytes, explain_unknown_limiter
from bwprof.measuring.operation import DEFAULT_CACHE, DEFAULT_REL_CI, Spec
from bwprof.measuring.row import Context, Contexts, Outcome, check_threads, make_failed, make_failed_by
from bwprof.results import schema
from bwprof.results.row import Row as PublicRow
from bwprof.results.schema import RowDict
from bwprof.roofs.model import References, RoofsArgument, check_roofs
from bwprof.text.parsing import (
    check_known,
    merge_keywords,
    nearest_name,
    parse_bool,
    parse_bytes,
    parse_fraction,
    parse_names,
    parse_seconds,
    quote_text,
    repr_short,
)

_BUSY_SHARE = 0.9  # kernels that are busy for less of a call's time leave the GPU waiting
_LABEL_COLUMNS = ("case", "variant", "kv_lens", "seed")  # a caller may fill these and the operations' parameters
WORK = ("bytes_read", "bytes_written", "flops", "footprint_bytes")


@dataclass(frozen=True, slots=True)
class Subject:
    """A function to measure, and its options; see `measure`."""

    function: Callable[..., object]
    name: str
    precision: str = ""
    bytes_read: Any = None  # the four of WORK become ints
    bytes_written: Any = None
    flops: Any = None
    footprint_bytes: Any = None
    sets: int | None = None
    stream: Any = None
    counters: bool = False
    metrics: tuple[str, ...] = ()
    timer: str | None = None
    cache: str = "cold"
    check: Callable[[], object] | None = None
    expected: Expected | None = None
    roof_threads: int | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    tried: bool = False  # it ran once already, and waits for its result

    def __post_init__(self) -> None:
        if self.function is None:
            raise TypeError("fn is None, a callable is needed")
        check_callable(self.function, "fn")
        check_callable(self.check, "check")
        if not isinstance(self.name, str):
            raise TypeError(f"name is {repr_short(self.name)}, a str is needed")
        parse_bool(self.counters, "counters")
        object.__setattr__(self, "roof_threads", check_threads(self.roof_threads))
        if not isinstance(self.precision, str):
            raise TypeError(f"precision is {repr_short(self.precision)}, a str is needed")
        for name in WORK:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, parse_bytes(getattr(self, name), name))
        object.__setattr__(self, "precision", registry.precision_name(self.precision))
        check_known("cache", self.cache, ("cold", "hot"))
        if "kv_lens" in self.labels:
            lens = registry.format_lengths(registry.parse_lengths(self.labels["kv_lens"]))
            object.__setattr__(self, "labels", {**self.labels, "kv_lens": lens})
        for name, value in self.labels.items():
            check_label(name, value)


def check_label(name: str, value: Any) -> None:
    """Raise ValueError for a label named like a column that bwprof fills, or a value that its column cannot hold."""
    if name == schema.SAMPLES:
        raise ValueError(f"'{name}' are a row's raw samples: take another name for the label")
    if name not in schema.column_names():
        return
    if name not in {*schema.param_names(), *_LABEL_COLUMNS}:
        raise ValueError(f"'{name}' is a column that bwprof fills: take another name for the label")
    if name == "kv_lens":
        registry.parse_lengths(value)
        return
    kind = schema.column_kinds()[name]
    try:
        schema.parse_value(value, kind)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} = {repr_short(value)}: the column of that name holds {schema.KIND_TEXTS[kind]}: "
            "take another for the label"
        ) from None


def check_spelling(names: Iterable[str], options: Iterable[str]) -> None:
    """Raise ValueError for a label that is spelled almost like an option."""
    known = list(options)
    for name in names:
        near = nearest_name(name, known, likeness=0.84)
        if near is not None:
            raise ValueError(
                f"'{quote_text(name)}' is no option: did you mean '{near}'? (for a label take a name less like it)"
            )


def measure(
    fn: Callable[..., object],
    *,
    bytes_read: int | str | None = None,
    bytes_written: int | str | None = None,
    flops: int | str | None = None,
    stream: Any = None,
    name: str | None = None,
    counters: bool = False,
    metrics: str | Iterable[str] | None = None,
    timer: str | None = None,
    cache: str = "cold",
    sets: int | None = None,
    footprint_bytes: int | str | None = None,
    check: Callable[[], object] | None = None,
    output: Any = None,
    reference: Any = None,
    tolerance: float | None = None,
    precision: str = "",
    device: Device = None,
    backend: str | None = None,
    roofs: RoofsArgument = "stored",
    roof_threads: int | None = None,
    rel_ci: float | str = DEFAULT_REL_CI,
    min_samples: int = 10,
    max_seconds: float = 2.0,
    poll: Callable[[], object] | None = None,
    labels: Mapping[str, Any] | None = None,
    **more_labels: Any,
) -> PublicRow:
    """Measure a function of yours with the warm-up, stop rule and statistics of bwprof's own kernels.

    bwprof calls it without arguments, many times, in this thread. On a GPU it should enqueue its work and return. On a
    CPU it should finish its work; results of JAX, MLX, CuPy or PyTorch on another device are waited for. The thread is
    not pinned, and the flush before a cold call also evicts the interpreter's code.

    Parameters
    ----------
    fn : callable
        PyTorch, CuPy, Triton, a ctypes call: anything that launches GPU work, or works on the CPU.
    bytes_read, bytes_written : int, optional
        Bytes that one call must move; 0 if only the other is given. Without both, the bandwidth columns stay empty,
        or, with `counters`, use the counted DRAM bytes; `reason` then says so.
    flops : int, optional
        Floating-point operations of one call.
    stream : optional
        The stream of `fn`: an int (cudaStream_t), or an object with ``__cuda_stream__``, ``cuda_stream`` or ``ptr``.
        Default: PyTorch's current stream if PyTorch has initialized CUDA, else the legacy default stream.
    name : str, optional
        `operation` in the row. Default: the function's name.
    counters : bool
        Count the DRAM and L2 bytes of one more call in hardware; `counters_status` reports failures.
    metrics : str or iterable of str, optional
        Names of `bwprof.Case.count` to count in further calls, or "all"; `metrics_status` reports failures.
    timer : {"cupti", "graph", "events"}, optional
        Default: kernel timestamps (cupti); without CUPTI a captured graph; where `fn` cannot be captured, event pairs
        with the flag `event_bias`. On a CPU "monotonic".
    cache : {"cold", "hot"}
        Cold: before each call, outside the timing, other memory of four times the cache's size is read. The next flush
        may then write back a kernel's last writes.
    sets : int, optional
        The number of buffer sets; `fn` takes the number of the set to work on, from 0. Cold needs no flush if
        sets x footprint is at least four times the cache.
    footprint_bytes : int, optional
        Distinct bytes that a call touches. Default: bytes_read + bytes_written.
    check : callable, optional
        Called after the timing; true means that the results are right (`verified`). Without it and a reference the
        row has the flag `unverified`.
    output : array, tensor, list of them, or callable, optional
        What `fn` has written, or a function that returns it, read after the timing: arrays of NumPy, tensors of PyTorch
        or CuPy on any device. A NaN or an infinity makes the row a failed one.
    reference : array, list of them, or callable, optional
        The right values of `output`, of the same shapes; compared in float64.
    tolerance : float, optional
        The largest allowed absolute error; a larger one makes the row a failed one. Default: 4 roundings of the
        output's type and 1024 of FP32 (FP64 for FP64), of the element or of all elements' root mean square, whichever
        is larger; a larger error is reported in `max_error` and `reason`, and the row stays unverified.
    precision : str
        A label; a name of `bwprof.registry` ("fp16", ...) finds the device's peak FLOP rate.
    device : int, str or torch.device, optional
        "cpu", "cuda:1", 1, ... Default: the preferred backend's current device (PyTorch's, where it is in use).
    backend : str, optional
        A device's name without a number.
    roofs : {"auto", "stored", False} or Roofs
        The roofs to grade the row with: stored ones, unchecked, if any ("stored"); stored ones that still hold, else
        measured now ("auto"); none (False).
    roof_threads : int, optional
        On a CPU: use the roofs of this many threads. Default: all, or one if the calling thread does all the work of a
        cold call (a few extra calls find that out; flag `single_thread`).
    rel_ci, min_samples, max_seconds, poll
        As in `bwprof.Case.measure`. `max_seconds` limits the samples after the first `min_samples` only.
    labels : mapping, optional
        Columns that distinguish this row: name -> value. M, N, K, batch, ... fill the schema's columns; `kv_lens` takes
        lengths as `bwprof.cost` does.
    **more_labels
        More labels; one named like an option (`name`, `sets`) goes into `labels`.

    Returns
    -------
    Row
        A dict with the columns of `bwprof.columns()` and the labels, also as attributes; None for unknown values.
        `bwprof.frame` makes a frame of such rows.

    Raises
    ------
    ValueError
        For a value out of range, a label spelled almost like an option or unfit for its column, and a function that
        enqueues nothing on the GPU or its stream (event pairs cannot detect that).
    TypeError
        For a wrong type, and a function that returns before its work is done: a coroutine, a generator, a future.
    RuntimeError
        When `check` returns false.
    bwprof.errors.UnavailableError
        For a timer that this machine lacks.
    Exception
        Whatever `fn` raises.

    Examples
    --------
    >>> import bwprof, numpy as np
    >>> a, b = np.ones(1 << 16), np.empty(1 << 16)
    >>> row = bwprof.measure(
    ...     lambda: np.copyto(b, a), name="copy", bytes_read=a.nbytes, bytes_written=b.nbytes,
    ...     device="cpu", cache="hot", check=lambda: (a == b).all(), elements=a.size, max_seconds=0.1,
    ... )
    >>> row["operation"], row["elements"], row["timer"], row["verified"]
    ('copy', 65536, 'monotonic', True)
    """
    check_spelling(more_labels, inspect.signature(measure).parameters)
    roofs = check_roofs(roofs)
    compares = any(value is not None for value in (output, reference, tolerance))
    expected = Expected(output, reference, tolerance) if compares else None
    subject = Subject(
        fn,
        name or name_callable(fn),
        precision=precision,
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        flops=flops,
        footprint_bytes=footprint_bytes,
        sets=sets,
        stream=stream,
        counters=counters,
        metrics=parse_names("metrics", metrics),
        timer=timer,
        cache=cache,
        check=check,
        expected=expected,
        roof_threads=roof_threads,
        labels=merge_keywords(labels, more_labels, "labels"),
    )
    rel_ci, max_seconds = parse_fraction(rel_ci, "rel_ci"), parse_seconds(max_seconds, "max_seconds", from_zero=True)
    check_callable(poll, "poll")
    with hardware.borrow_current(backend, device) as (_, handle):
        registry.check_metrics(subject.metrics, handle.backend)
        contexts = Contexts(new_run_id(), handle, roofs, (cache,), poll=poll)
        check_threads(roof_threads, contexts.threads)
        outcome = measure_on(subject, contexts, rel_ci=rel_ci, min_samples=min_samples, max_seconds=max_seconds)
    return PublicRow(outcome.row, outcome.samples or ())


def call_once(subject: Subject) -> Callable[[], object]:
    """Return a function that makes one call."""
    return subject.function if subject.sets is None else functools.partial(subject.function, 0)


def measure_on(
    subject: Subject,
    contexts: Contexts,
    *,
    max_seconds: float,
    rel_ci: float = DEFAULT_REL_CI,
    min_samples: int = 10,
    deadline: float | None = None,
) -> Outcome:
    """Measure on the device of the contexts; raise what goes wrong."""
    device = contexts.device
    is_valid = subject.sets is None or (isinstance(subject.sets, int) and subject.sets > 0)  # else: refused below
    on_host = _core.backend_facts(device.backend)["runs_on_host"]  # a GPU's stream shows what does no work
    if on_host and is_valid and not subject.tried:
        subject = replace(subject, function=wrap_with_wait(subject.function, call_once(subject)(), "fn"))
    context = contexts.of(subject.roof_threads)
    row = blank_row(subject, context)
    options = {"precision_target": rel_ci, "min_samples": min_samples, "max_seconds": max_seconds}
    result, waited, notes = time_call(device, subject, options, deadline, contexts.poll)
    result |= _count_traffic(device, subject)
    notes += _fill_bytes(row, subject, result)
    rows.add_method(row, result)
    verdict = _verify(row, subject)
    if verdict.wrong:
        return make_failed(row, "failed", f"wrong result: {verdict.wrong}")
    caller_bytes = subject.bytes_read, subject.bytes_written
    result |= {"variant_note": "", "footprint_bytes": row["footprint_bytes"] or 0, "caller_bytes": caller_bytes}
    alone = ""
    if subject.cache == "cold" and subject.roof_threads is None and count_moved_bytes(row) is not None:
        context, alone = contexts.for_call(context, call_once(subject))
    beaten = rows.add_time(row, result, context, waited)
    unknown = explain_unknown_limiter(row) if contexts.roofs is not False else None
    _add_notes(row, result, alone, [*notes, *(note for note in (unknown, alone, verdict.note) if note)])
    outcome = Outcome(row, list(result["samples_ns"]), beaten=beaten, references=References.of(result))
    contexts.learn(context, outcome)
    return outcome


def _add_notes(row: RowDict, result: dict[str, Any], alone: str, notes: list[str]) -> None:
    """Add the flags and reasons that only functions have."""
    flags = [row["flags"]] if row["flags"] else []
    if alone:
        flags.append("single_thread")
    if row["timer"] == "events":
        flags.append("event_bias")
    if not row["verified"]:
        flags.append("unverified")
    if row["timer"] == "graph" and result["flush_bytes"]:
        notes.append("the time of the flushes is subtracted; writing back what the call wrote is not")
    if result["kernels_elsewhere"] > 0:  # NaN: unknown
        flags += ["not_cold"] if row["cache"] == "cold" and "not_cold" not in (row["flags"] or "") else []
        notes.append(ELSEWHERE.format(result["kernels_elsewhere"]))
    if result["kernel_sum_ns"] < _BUSY_SHARE * result["median_ns"]:
        share = 100 * (1 - result["kernel_sum_ns"] / result["median_ns"])
        notes.append(WAITED.format(share))
    row["flags"] = ";".join(flags)
    row["reason"] = "; ".join([row["reason"], *notes] if row["reason"] else notes) or None


def _verify(row: RowDict, subject: Subject) -> VerifyResult:
    """Call the check, compare the output, and fill in the row's columns; RuntimeError where the check fails."""
    if subject.check is not None:
        right = subject.check()
        check_finished(right, "check")
        name = quote_text(subject.name)
        if right is None:
            raise RuntimeError(f"{name}: its check returned nothing: it should return whether the result is right")
        if not right:
            raise RuntimeError(f"{name}: its check says that the result is wrong")
    verdict = VerifyResult(None) if subject.expected is None else subject.expected.compare()
    verified = True if verdict.verified is None and subject.check is not None else verdict.verified
    row.update(verified=verified, max_error=verdict.max_error, tolerance=verdict.tolerance)
    return verdict


def blank_row(subject: Subject, context: Context) -> RowDict:
    """Return the row before anything has run."""
    labels = [f"{name}={value}" for name, value in subject.labels.items() if name != "kv_lens"]
    # Intermediate bytes are unknown, and so are the algorithmic ones.
    names = ("precision", "cache", "bytes_read", "bytes_written", "flops")
    identity = {"operation": subject.name, "case": " ".join([subject.name, *labels])}
    identity |= {name: getattr(subject, name) for name in names}
    row = rows.make_blank(context, identity, subject.labels)
    row["case"] = registry.case_name(row["case"], row["kv_lens"])
    return row


def _find_footprint(subject: Subject) -> int | None:
    """Return the distinct bytes of a call; None where nothing is known of its bytes."""
    if subject.footprint_bytes is None and (subject.bytes_read, subject.bytes_written) != (None, None):
        return int(subject.bytes_read or 0) + int(subject.bytes_written or 0)
    return None if subject.footprint_bytes is None else int(subject.footprint_bytes)


def _list_timers(device: _core.Device, timer: str | None) -> list[str | None]:
    """Return the timers to try; None: the device's own."""
    return [timer] if timer is not None else _core.backend_facts(device.backend)["call_timers"] or [None]


def time_call(
    device: _core.Device,
    subject: Subject,
    options: dict[str, Any],
    deadline: float | None,
    poll: Callable[[], object] | None,
) -> tuple[dict[str, Any], float, list[str]]:
    """Measure with the best timer that works; return the result, the seconds of cooling, and why no better timer."""
    has_streams = _core.backend_facts(device.backend)["has_streams"]
    stream = hardware.stream_handle(subject.stream, device.index) if has_streams else 0
    timers = _list_timers(device, subject.timer)
    notes: list[str] = []
    for timer in timers:

        def once(timer: str | None = timer) -> dict[str, Any]:
            return device.measure_call(
                subject.function,
                do_nothing if subject.sets is None else do_nothing_with,
                stream=stream,
                sets=subject.sets,
                footprint_bytes=_find_footprint(subject) or 0,
                cache=subject.cache,
                poll=poll,
                timer=timer,
                **options,
            )

        try:
            result, waited = rows.measure_cool(
                once, device.conditions, poll, deadline=deadline, max_seconds=options["max_seconds"]
            )
        except (_core.UnavailableError, _core.DeviceError) as error:  # lost records of CUPTI are a DeviceError
            if timer == timers[-1] or getattr(error, "fatal", False):
                raise
            notes.append(f"timer {timer} cannot be had: {error}")
        else:
            return result, waited, notes
    raise AssertionError("the last timer's failure is raised")


def _count_traffic(device: _core.Device, subject: Subject) -> dict[str, Any]:
    """Count the bytes and the metrics of further calls, where they are asked for; raise what loses the device."""
    found: dict[str, Any] = {}

    def count_metrics() -> dict[str, Any]:
        groups = registry.check_metrics(subject.metrics, device.backend)
        return rows.split_metrics(device.count_call_metrics(subject.function, groups, sets=subject.sets))

    def count_bytes() -> dict[str, Any]:
        return hardware.note_counting(device, device.count_call(subject.function, sets=subject.sets))

    if subject.counters:
        found |= rows.try_count("counters_status", subject.cache, count_bytes)
    if subject.metrics and "lost" not in found:
        found |= rows.try_count("metrics_status", subject.cache, count_metrics)
    if "lost" in found:
        raise found["lost"]
    return found


def _fill_bytes(row: RowDict, subject: Subject, result: dict[str, Any]) -> list[str]:
    """Fill bytes that the caller leaves out with the counted ones; return a note about them."""
    taken = []
    if result.get("counters_status") == "ok":
        for name in ("bytes_read", "bytes_written"):
            if row[name] is None:
                row[name] = round(result[f"dram_{name}"])
                taken.append(name)
    row["footprint_bytes"] = _find_footprint(subject)
    moved = count_moved_bytes(row)
    if row["flops"] is not None and moved:
        row["arithmetic_intensity"] = row["flops"] / moved
    return [f"{' and '.join(taken)}: {AS_COUNTED}"] if taken else []


_VERIFY_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Chain:
    """Cases in launch order, each on its own buffers; `name` is the row's operation."""

    case: str
    name: str
    precision: str
    specs: tuple[Spec, ...]
    labels: dict[str, Any] = field(default_factory=dict)
    cache: str = DEFAULT_CACHE
    repeatable: ClassVar[bool] = False

    @property
    def title(self) -> str:
        """Case and precision, for progress lines."""
        return f"{self.case} {self.precision}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Chain:
        """Read what `to_dict` returns."""
        return cls(**{**found, "specs": tuple(map(Spec.from_dict, found["specs"]))})

    @property
    def work(self) -> dict[str, int]:
        """The sums of the cases' bytes and FLOPs."""
        costs = [_core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens) for spec in self.specs]
        return {name: sum(cost[name] for cost in costs) for name in costs[0]}

    def blank_row(self, context: Context) -> RowDict:
        """Return the row before anything has run."""
        names = {"operation": self.name, "precision": self.precision, "case": self.case, "cache": self.cache}
        work = {name: value for name, value in self.work.items() if name in ("bytes_read", "bytes_written", "flops")}
        return rows.make_blank(context, names | work, self.labels)


def measure_chain(
    device: _core.Device,
    chain: Chain,
    context: Context,
    *,
    max_seconds: float,
    poll: Callable[[], object] | None = None,
) -> Outcome:
    """Measure a chain; an error becomes a skipped or failed row."""
    row = chain.blank_row(context)
    work: dict[str, Any] = {name: chain.work[name] for name in WORK}
    try:
        with ExitStack() as stack:
            cases = [stack.enter_context(spec.open(device)) for spec in chain.specs]
            for case in cases:  # this prepares it, too: nothing may be searched during a capture
                found = case.verify(_VERIFY_SECONDS)
                if not found["verified"]:
                    name = f"{case.operation} ({case.variant}, {case.precision})"
                    raise RuntimeError(f"{name} is wrong: {found['reason']}")

            def launch(_set: int = 0) -> None:
                for case in cases:
                    case.enqueue()

            subject = Subject(
                launch,
                chain.name,
                precision=chain.precision,
                **work,
                sets=1,
                stream=device.stream if _core.backend_facts(device.backend)["has_streams"] else None,
                timer=registry.timer_names(device.backend)[0],
                cache=chain.cache,
                check=lambda: True,  # each case is verified above
            )
            # The cases' handle is in use while they launch: another one measures.
            with hardware.borrow_device(device.backend, device.index) as handle:
                contexts = Contexts(context.run_id, handle, context.roofs or False, (chain.cache,), poll=poll)
                outcome = measure_on(subject, contexts, max_seconds=max_seconds)
            names = ("algorithmic_bytes_read", "algorithmic_bytes_written")  # with intermediate results
            stored = {name: sum(case.cost[name] for case in cases) for name in names}
    except (ValueError, RuntimeError, MemoryError, OSError) as error:
        return make_failed_by(error, row)
    outcome.row.update({"case": chain.case, **stored, **context.labels, **chain.labels})
    return outcome
