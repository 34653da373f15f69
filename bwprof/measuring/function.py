"""Measuring a function of the caller's: any callable that launches GPU work, or works on the CPU."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bwprof import _core, hardware, registry
from bwprof.environment import new_run_id
from bwprof.hardware import Device
from bwprof.measuring import row as rows
from bwprof.measuring.callables import (
    check_callable,
    check_finished,
    do_nothing,
    do_nothing_with,
    name_callable,
    wrap_with_wait,
)
from bwprof.measuring.contexts import Contexts, check_threads
from bwprof.measuring.grade import AS_COUNTED, ELSEWHERE, WAITED, count_moved_bytes, explain_unknown_limiter
from bwprof.measuring.operation import DEFAULT_REL_CI
from bwprof.measuring.row import Context, Outcome, make_failed
from bwprof.measuring.verify import Expected, VerifyResult, make_expected
from bwprof.results import schema
from bwprof.results.row import Row as PublicRow
from bwprof.results.schema import RowDict
from bwprof.roofs.disturbance import References
from bwprof.roofs.model import RoofsArgument
from bwprof.roofs.model import check_roofs as check_given
from bwprof.text.parsing import (
    describe_unknown,
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

_GAPS = 0.9  # of a call's time: kernels that are busy for less than that left the GPU waiting

_LABEL_COLUMNS = ("case", "variant", "kv_lens", "seed")  # beside the operations' parameters: what a caller may fill

WORK = ("bytes_read", "bytes_written", "flops", "footprint_bytes")  # what a call may be said to do


@dataclass(frozen=True, slots=True)
class Subject:
    """A function with all that is said about it."""

    function: Callable[..., object]
    name: str
    precision: str = ""
    bytes_read: Any = None  # these four are ints when it is made
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
    tried: bool = False  # it was called already, and waits for what it returns

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
        if self.cache not in ("cold", "hot"):
            raise ValueError(describe_unknown("cache", str(self.cache), ("cold", "hot")))
        if "kv_lens" in self.labels:
            lens = registry.format_lengths(registry.parse_lengths(self.labels["kv_lens"]))
            object.__setattr__(self, "labels", {**self.labels, "kv_lens": lens})
        for name, value in self.labels.items():
            check_label(name, value)


def check_label(name: str, value: Any) -> None:
    """A label's name and value, for the row's column of that name or a new one.

    Raises
    ------
    ValueError
        For a column that bwprof fills, and for a value that the schema's column cannot hold.
    """
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
            f"{name} = {repr_short(value)}: the column of that name holds {schema.describe_kind(kind)}: "
            "take another for the label"
        ) from None


def check_spelling(names: Iterable[str], options: Iterable[str]) -> None:
    """ValueError for a name that is nearly an option's: it was meant for that one, and would have no effect."""
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
    """Measure a function of yours as bwprof measures its own kernels: same warm-up, stop rule, statistics, conditions.

    It is called without arguments, many times, in this thread; it should enqueue its GPU work and return (waiting in it
    costs accuracy only where the GPU then waits for the host). On a CPU it should do its work and return; a result of
    JAX, MLX, CuPy or PyTorch that is computed elsewhere is waited for. The thread is not pinned, and a flush before a
    call takes the interpreter's own code out of the cache as well.

    Parameters
    ----------
    fn : callable
        PyTorch, CuPy, Triton, a ctypes call: anything that launches work on the GPU, or works on the CPU.
    bytes_read, bytes_written : int, optional
        Bytes that one call must move, for the bandwidth columns. Left out, with `counters`, the counted DRAM bytes
        stand there, and `reason` says so; else those columns stay empty, or, where the other one is given, it is taken
        for 0.
    flops : int, optional
        Floating-point operations of one call.
    stream : optional
        That `fn` enqueues on: an int (cudaStream_t), or an object with ``__cuda_stream__``, ``cuda_stream`` or
        ``ptr``. Left out: PyTorch's current stream if PyTorch is loaded and has initialised CUDA, else the legacy
        default stream.
    name : str, optional
        `operation` in the row; the function's own name when left out.
    counters : bool
        Count the DRAM and L2 bytes of a call of its own, in hardware; `counters_status` says how it went.
    metrics : str or iterable of str, optional
        What else to count, by calling it many times more, beside the timing: names as `bwprof.Case.count` has them
        ("dram", "sm", "stalls", ...), or "all"; `metrics_status` says how it went.
    timer : {"cupti", "graph", "events"}, optional
        Left out: the kernels' timestamps (cupti); where CUPTI cannot be used a captured graph; where `fn` cannot be
        captured, event pairs, with the flag `event_bias`. On a CPU "monotonic".
    cache : {"cold", "hot"}
        Cold: before each call, outside the timing, other memory of four times the cache's size is read. Nothing else
        could be done with buffers that are not ours; a kernel's last writes (up to the size of the cache) may then be
        left for the next flush to pay for. With `sets` and a large enough footprint there is no flush.
    sets : int, optional
        `fn` takes a number from 0 to sets - 1 and works on the so-manieth of as many sets of buffers. Cold then needs
        no flush if sets x footprint is at least four times the cache.
    footprint_bytes : int, optional
        Distinct bytes that a call touches; bytes_read + bytes_written when left out.
    check : callable, optional
        Called after the timing; what it returns is taken for true (the results are right: `verified`) or not
        (RuntimeError). Without it and a reference the row has the flag `unverified`.
    output : array, tensor, list of them, or callable, optional
        What `fn` has written when it is looked at, after the timing, or a function that gives it then: an array of
        NumPy's, a tensor of PyTorch's or CuPy's on any device, ... A NaN or an infinity in it makes the row a failed
        one, without a time.
    reference : array, list of them, or callable, optional
        What `output` should be, best in float64 (it is compared in float64), of the same shapes.
    tolerance : float, optional
        The largest absolute error that is right; a larger one makes the row a failed one. Left out: each element may be
        off by 4 roundings of the output's type and 1024 of FP32 (FP64 where the output is), of its own size or of all
        elements' root mean square where that is larger; an error beyond that stands in `max_error` and `reason`, and is
        not judged: the row stays unverified.
    precision : str
        Label; one of `bwprof.registry`'s names ("fp16", ...) finds the device's peak FLOP rate.
    device : int, str or torch.device, optional
        "cpu", "cuda:1", 1, ...; when left out the preferred backend's current device (PyTorch's, where it is in use).
    backend : str, optional
        The same as the device's name without a number.
    roofs : {"auto", "stored", False} or Roofs
        Hold the row against the device's roofs. "stored": the stored ones as they are, if any; nothing is measured.
        "auto": the stored ones, checked, or measured now where none are stored that hold. False: against none. Or those
        given.
    roof_threads : int, optional
        On a CPU: against the roofs of so many of its threads. Left out: of all, or, where the calling thread did all of
        a cold call's work (the call is made once or a few times more to see that), of one; the flag `single_thread`
        and the row's reason then say so.
    rel_ci, min_samples, max_seconds, poll
        As in `bwprof.Case.measure`. `max_seconds` is for the samples after the first `min_samples`: a slow call is
        warmed up, and made so often, however long that takes.
    labels : mapping, optional
        Columns for whatever tells this row from others: name -> value. M, N, K, batch, ... fill the schema's columns of
        that name; `kv_lens` holds lengths, given as to `bwprof.cost`.
    **more_labels
        The same; a label that is called as an option of this function is (`name`, `sets`) goes into `labels`.

    Returns
    -------
    Row
        A dict with the columns of `bwprof.columns()` and the labels, which are attributes, too; None where something is
        not known. `bwprof.frame` makes a frame of such rows.

    Raises
    ------
    ValueError
        For what is out of range, a label that is nearly an option's name or does not fit the column of its name; where
        `fn` enqueues nothing on the GPU, or not on the stream given (event pairs cannot tell).
    TypeError
        For what is no function, one that returns a coroutine, a generator, a future or the like instead of doing all of
        its work, and for an argument of another type.
    RuntimeError
        When `check` says that the result is wrong.
    bwprof.errors.UnavailableError
        For a timer that cannot be had here.
    Exception
        Whatever `fn` raises, as it is.

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
    held_against = check_given(roofs)
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
        expected=make_expected(output, reference, tolerance),
        roof_threads=roof_threads,
        labels=merge_keywords(labels, more_labels, "labels"),
    )
    rel_ci, max_seconds = parse_fraction(rel_ci, "rel_ci"), parse_seconds(max_seconds, "max_seconds", from_zero=True)
    check_callable(poll, "poll")
    with hardware.borrow_current(backend, device) as (_, handle):
        registry.check_metrics(subject.metrics, handle.backend)
        contexts = Contexts(new_run_id(), handle, held_against, (cache,), poll=poll)
        check_threads(roof_threads, contexts.threads)
        outcome = measure_on(
            handle,
            subject,
            contexts,
            rel_ci=rel_ci,
            min_samples=min_samples,
            max_seconds=max_seconds,
            poll=poll,
        )
    return PublicRow(outcome.row, outcome.samples or ())


def call_once(subject: Subject) -> Callable[[], object]:
    """One call of the function."""
    return subject.function if subject.sets is None else functools.partial(subject.function, 0)


def measure_on(
    device: _core.Device,
    subject: Subject,
    contexts: Contexts,
    *,
    max_seconds: float,
    rel_ci: float = DEFAULT_REL_CI,
    min_samples: int = 10,
    deadline: float | None = None,
    poll: Callable[[], object] | None = None,
) -> Outcome:
    """Measure on an open device; what goes wrong is raised."""
    callable_so = subject.sets is None or (isinstance(subject.sets, int) and subject.sets > 0)  # else: refused below
    on_host = _core.backend_facts(device.backend)["runs_on_host"]  # elsewhere the stream tells what does no work
    if on_host and callable_so and not subject.tried:
        subject = replace(subject, function=wrap_with_wait(subject.function, call_once(subject)(), "fn"))
    context = contexts.of(subject.roof_threads)
    row = blank_row(subject, context)
    options = {"precision_target": rel_ci, "min_samples": min_samples, "max_seconds": max_seconds}
    result, waited, notes = time_call(device, subject, options, deadline, poll)
    result |= _counted(device, subject)
    result |= _metrics(device, subject)
    notes += _fill_bytes(row, subject, result)
    rows.add_method(row, result)
    if subject.check is not None:
        _ask(subject)
    verdict = _compared(row, subject)
    if verdict.wrong:
        return make_failed(row, "failed", f"wrong result: {verdict.wrong}")
    stated = subject.bytes_read, subject.bytes_written
    result |= {"variant_note": "", "footprint_bytes": row["footprint_bytes"] or 0, "stated_bytes": stated}
    alone = ""
    if subject.cache == "cold" and subject.roof_threads is None and count_moved_bytes(row) is not None:
        context, alone = contexts.for_call(context, call_once(subject))
    beaten = rows.add_time(row, result, context, waited)
    untold = explain_unknown_limiter(row) if contexts.given is not False else None
    _remark(row, result, alone, [*notes, *(said for said in (untold, alone, verdict.note) if said)])
    outcome = Outcome(row, list(result["samples_ns"]), beaten=beaten, references=References.of(result))
    contexts.learn(context, outcome)
    return outcome


def _remark(row: RowDict, result: dict[str, Any], alone: str, notes: list[str]) -> None:
    """Fill in what should make a reader doubt the row of a function, and what else is said of it."""
    flags = [row["flags"]] if row["flags"] else []
    if alone:
        flags.append("single_thread")
    if row["timer"] == "events":
        flags.append("event_bias")
    if not row["verified"]:
        flags.append("unverified")
    if row["timer"] == "graph" and result["flush_bytes"]:
        notes.append("the time of the flushes is subtracted; writing back what the call wrote is not")
    if result["kernels_elsewhere"] > 0:  # NaN where nobody looked
        flags += ["not_cold"] if row["cache"] == "cold" and "not_cold" not in (row["flags"] or "") else []
        notes.append(ELSEWHERE.format(result["kernels_elsewhere"]))
    if result["kernel_sum_ns"] < _GAPS * result["median_ns"]:
        share = 100 * (1 - result["kernel_sum_ns"] / result["median_ns"])
        notes.append(WAITED.format(share))
    row["flags"] = ";".join(flags)
    row["reason"] = "; ".join([row["reason"], *notes] if row["reason"] else notes) or None


def _ask(subject: Subject) -> None:
    assert subject.check is not None
    right = subject.check()
    check_finished(right, "check")
    name = quote_text(subject.name)
    if right is None:
        raise RuntimeError(f"{name}: its check returned nothing: it should return whether the result is right")
    if not right:
        raise RuntimeError(f"{name}: its check says that the result is wrong")


def _compared(row: RowDict, subject: Subject) -> VerifyResult:
    """Whether the results are right, as far as anything was said of them; the check has been asked by now."""
    verdict = VerifyResult(None) if subject.expected is None else subject.expected.compare()
    right = verdict.verified if verdict.verified is not None else True if subject.check is not None else None
    row.update(verified=right, max_error=verdict.max_error, tolerance=verdict.tolerance)
    return verdict


def blank_row(subject: Subject, context: Context) -> RowDict:
    """The row before anything has run."""
    labels = [(name, value) for name, value in subject.labels.items() if name != "kv_lens"]
    row = schema.empty_row()
    row.update(
        operation=subject.name,
        precision=subject.precision,
        case=" ".join([subject.name, *(f"{name}={value}" for name, value in labels)]),
        cache=subject.cache,
        bytes_read=subject.bytes_read,
        bytes_written=subject.bytes_written,
        flops=subject.flops,  # what it stores in between, and so its algorithmic bytes, nobody knows
        **rows.describe_origin(context),
    )
    row.update(context.labels)
    row.update(subject.labels)
    row["case"] = registry.case_name(row["case"], row["kv_lens"])
    return row


def _footprint(subject: Subject) -> int | None:
    if subject.footprint_bytes is not None:
        return int(subject.footprint_bytes)
    if subject.bytes_read is None and subject.bytes_written is None:
        return None
    return int(subject.bytes_read or 0) + int(subject.bytes_written or 0)


def _timers(device: _core.Device, asked: str | None) -> list[str | None]:
    """The timers to try, in order; None is the device's own."""
    if asked is not None:
        return [asked]
    return _core.backend_facts(device.backend)["call_timers"] or [None]


def time_call(
    device: _core.Device,
    subject: Subject,
    options: dict[str, Any],
    deadline: float | None,
    poll: Callable[[], object] | None,
) -> tuple[dict[str, Any], float, list[str]]:
    """The measurement under the best timer there is, the seconds waited for the GPU to cool, why not a better one."""
    has_streams = _core.backend_facts(device.backend)["has_streams"]
    stream = hardware.stream_handle(subject.stream, device.index) if has_streams else 0
    timers = _timers(device, subject.timer)
    notes: list[str] = []
    for timer in timers:

        def once(timer: str | None = timer) -> dict[str, Any]:
            return device.measure_call(
                subject.function,
                do_nothing if subject.sets is None else do_nothing_with,
                stream=stream,
                sets=subject.sets,
                footprint_bytes=_footprint(subject) or 0,
                cache=subject.cache,
                poll=poll,
                timer=timer,
                **options,
            )

        try:
            result, waited = rows.measure_cool(
                once, device.conditions, poll, may_repeat=rows.may_repeat(deadline, options["max_seconds"])
            )
        except (_core.UnavailableError, _core.DeviceError) as error:  # CUPTI's lost records are a device's error
            if timer == timers[-1] or getattr(error, "fatal", False):
                raise
            notes.append(f"timer {timer} cannot be had: {error}")
        else:
            return result, waited, notes
    raise AssertionError("the last timer's failure is raised")


def _counted(device: _core.Device, subject: Subject) -> dict[str, Any]:
    if not subject.counters:
        return {}
    if subject.cache != "cold":
        return {"counters_status": "not counted: counters see a cold call, this row is hot"}
    try:
        return hardware.note_counting(device, device.count_call(subject.function, sets=subject.sets))
    except _core.DeviceError as error:
        if error.fatal:
            raise
        return {"counters_status": str(error)}
    except _core.MemoryLimitError as error:
        return {"counters_status": str(error)}


def _metrics(device: _core.Device, subject: Subject) -> dict[str, Any]:
    if not subject.metrics:
        return {}
    if subject.cache != "cold":
        return {"metrics_status": "not counted: metrics see a cold call, this row is hot"}
    groups = registry.check_metrics(subject.metrics, device.backend)
    try:
        found = device.count_call_metrics(subject.function, groups, sets=subject.sets)
    except (_core.DeviceError, _core.MemoryLimitError) as error:
        if getattr(error, "fatal", False):
            raise
        return {"metrics_status": str(error)}
    return {"metrics_status": found.pop("metrics_status"), "metrics": found}


def _fill_bytes(row: RowDict, subject: Subject, result: dict[str, Any]) -> list[str]:
    """Bytes that nobody stated are the counted ones, if any were counted; says so."""
    taken = []
    if result.get("counters_status") == "ok":
        for name in ("bytes_read", "bytes_written"):
            if row[name] is None:
                row[name] = round(result[f"dram_{name}"])
                taken.append(name)
    row["footprint_bytes"] = _footprint(subject)
    moved = count_moved_bytes(row)
    if row["flops"] is not None and moved:
        row["arithmetic_intensity"] = row["flops"] / moved
    return [f"{' and '.join(taken)}: {AS_COUNTED}"] if taken else []
