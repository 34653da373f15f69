"""`bwprof.sweep` and `bwprof.benchmark_bandwidth`: measure operations over a grid of parameters and precisions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, cast, overload

from bwprof.errors import SweepError
from bwprof.hardware import Device
from bwprof.results import reader
from bwprof.results.atomic import Claim, is_plain_target
from bwprof.runs.api import ProgressArgument, RunOptions, run_sweep
from bwprof.runs.plan import SweepRequest
from bwprof.text.parsing import parse_names, parse_path, quote_text

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.roofs.model import RoofsArgument

WordsArgument = str | Iterable[str] | None


BytesArgument = int | str | Callable[..., int] | None


@overload
def sweep(
    operations: WordsArgument = None,
    *,
    suite: str | PathLike[str] | None = None,
    only: WordsArgument = None,
    precision: WordsArgument = None,
    backend: str | None = None,
    device: Device | Sequence[Device] = None,
    variant: WordsArgument = None,
    cache: WordsArgument = None,
    seed: int = 0,
    kv_lens: str | Sequence[int | str] | None = None,
    timer: str | None = None,
    counters: bool = False,
    metrics: WordsArgument = None,
    rel_ci: float | str | None = None,
    max_seconds: float | None = None,
    target_seconds: float | None = None,
    max_total_seconds: float | None = None,
    roofs: RoofsArgument = "auto",
    recalibrate: bool = False,
    output: str | PathLike[str] | None = None,
    trace: str | PathLike[str] | None = None,
    nvtx: bool | None = None,
    force: bool = False,
    progress: ProgressArgument = None,
    grid: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    **params: int | str | Iterable[int | str],
) -> pd.DataFrame: ...


@overload
def sweep(
    operations: Callable[..., object],
    *,
    bytes_read: BytesArgument = None,
    bytes_written: BytesArgument = None,
    flops: BytesArgument = None,
    footprint_bytes: BytesArgument = None,
    stream: Any = None,
    sets: int | None = None,
    name: str | None = None,
    check: Callable[..., object] | None = None,
    roof_threads: int | None = None,
    precision: WordsArgument = None,
    backend: str | None = None,
    device: Device = None,
    cache: WordsArgument = None,
    timer: str | None = None,
    counters: bool = False,
    rel_ci: float | str | None = None,
    max_seconds: float | None = None,
    max_total_seconds: float | None = None,
    roofs: RoofsArgument = "auto",
    recalibrate: bool = False,
    output: str | PathLike[str] | None = None,
    trace: str | PathLike[str] | None = None,
    force: bool = False,
    progress: ProgressArgument = None,
    grid: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    **params: Any,
) -> pd.DataFrame: ...


def sweep(
    operations: WordsArgument | Callable[..., object] = None,
    *,
    suite: str | PathLike[str] | None = None,
    only: WordsArgument = None,
    precision: WordsArgument = None,
    backend: str | None = None,
    device: Device | Sequence[Device] = None,
    variant: WordsArgument = None,
    cache: WordsArgument = None,
    seed: int = 0,
    kv_lens: str | Sequence[int | str] | None = None,
    timer: str | None = None,
    counters: bool = False,
    metrics: WordsArgument = None,
    rel_ci: float | str | None = None,
    max_seconds: float | None = None,
    target_seconds: float | None = None,
    max_total_seconds: float | None = None,
    roofs: RoofsArgument = "auto",
    recalibrate: bool = False,
    output: str | PathLike[str] | None = None,
    trace: str | PathLike[str] | None = None,
    nvtx: bool | None = None,
    force: bool = False,
    progress: ProgressArgument = None,
    grid: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    **params: Any,
) -> pd.DataFrame:
    """Measure operations, or a function of yours, in this process.

    ``sweep(fn, n=[1, 2], precision=["fp16", "fp32"])`` measures ``fn(n=1, precision="fp16")`` and so on, the whole
    product.
    Where the call returns something callable, that is measured and the call was its preparation; else the call itself
    is the work (and was made once more to find that out). The parameters become columns of the frame and of its files,
    behind the schema's; those that the schema knows (M, batch, ...) fill the columns there.

    Parameters
    ----------
    operations : str, iterable of str, or callable, optional
        Names from `bwprof.operations()`, or of a suite's cases; the default suite when neither these nor `suite` are
        given. A callable is measured as `bwprof.measure` does it, takes its further arguments here (bytes_read,
        bytes_written, flops, footprint_bytes: numbers, or functions of the parameters; check, called with them; stream,
        sets, name, roof_threads), and knows no suite, variant, seed or kv_lens. A point that raises an exception
        becomes a failed row.
    suite : str or path, optional
        A built-in suite's name, or a .toml file; with `operations`, only its cases of those.
    only : str or iterable of str, optional
        Of these, the cases whose name, or whose operation's, one of these patterns matches: "attention*", "*_8b".
    precision : str or iterable of str, optional
        The suite's when left out, else FP32 and FP16.
    device : int, str or torch.device, or a list of them, optional
        "cpu", "cuda:1", 1, ...; of operations several as well, one after the other: a list, "0,1", or "all" of the
        backend (the rows say which device, and `bwprof.outliers` which is slow). When left out the first device of the
        preferred backend that has one, for a callable that backend's current one.
    backend : str, optional
        The same as the device's name without a number.
    variant : str or iterable of str, optional
        Variants to run, "all" for every one; the device's choice when left out. Operations without a variant of that
        name keep their own choice.
    cache : {"cold", "hot", "both"} or iterable of str, optional
        Cold when left out; "both" gives a row for each.
    seed : int
        Of the generated inputs.
    kv_lens : sequence of int, or str, optional
        Lengths of a batch's entries, for operations that take it, given as to `bwprof.cost`: [100, 7000], "100,7Ki". A
        case's name ends with them.
    timer : str, optional
        On a GPU "graph" (when left out), "events" or "cupti"; on a CPU "monotonic".
    counters : bool
        Count each case's DRAM and L2 bytes in hardware, on one cold launch beside the timed ones; where that cannot be
        done, `counters_status` says why.
    metrics : str or iterable of str, optional
        What else to count by replaying each case's launch many times, as `bwprof.Case.count` has it; "all" for
        everything. It fills the last columns, and `metrics_status` says what could not be counted.
    rel_ci : float or str, optional
        Sampling of a case stops when its median is known to this fraction, 0.005 (or "0.5%") when left out (half of its
        95 % confidence interval, and the medians of both halves of the samples as close to each other).
    max_seconds : float, optional
        The most of sampling for a case, from 0 on, 2 when left out; it takes its ten samples, however slow it is.
        Instead of the suite's `target_seconds`.
    target_seconds : float, optional
        What the cases should take together, instead of the suite's wish: fewer samples each; nothing is skipped.
    max_total_seconds : float, optional
        For the whole sweep, of which the roofs get at most half; cases that did not get their turn become skipped rows.
        One that has begun is still warmed up and takes its ten samples.
    roofs : {"auto", "stored", False} or Roofs
        Hold rows against the device's roofs: measured at the first sweep (some seconds) and then kept in the user's
        cache folder, checked at every use; "stored": the kept ones as they are, if any, and nothing is measured; False:
        against none, those columns stay empty; or against given ones.
    recalibrate : bool
        Measure the roofs anew, whatever is kept.
    output : path, optional
        A .csv or .json file that gets the rows as they are measured.
    trace : path, optional
        A file that gets, however the sweep ends, when each case was measured and how fast it was, in the Trace Event
        format: Perfetto (ui.perfetto.dev) and chrome://tracing open it.
    nvtx : bool, optional
        Whether tools that take NVTX ranges (nsys, ncu) are told of the cases, in the domain ``bwprof``: where one
        watches the process (None); never (False). True: so, and a warning is logged where none does.
    force : bool
        Replace a file that `output` or `trace` names and that holds something already.
    progress : bool or callable, optional
        True shows progress on standard error; a callable gets (done, total, row), of each device.
    grid : mapping, optional
        Parameters, as in `params`, whatever they are called: a callable's own `seed`, `name` or `sets`.
    labels : mapping, optional
        Columns for all rows: name -> value.
    **params : int, str or iterable of them
        Parameters of the operations, 4096 or "4Ki"; the sweep is the product of the lists. "1..64:x2" is the range 1,
        2, 4, ..., 64, and "1..64:+8" is 1, 9, ..., 57: never beyond the end, which is there where the steps meet it. A
        callable's may be anything; lists, tuples, ranges (Python's) and arrays are several values.

    Returns
    -------
    pandas.DataFrame
        One row per case (see `bwprof.results.schema`); ``attrs["run"]`` holds the run's metadata, read-only.

    Raises
    ------
    ValueError
        For anything unknown, out of range or contradictory, before anything runs.
    SweepError
        When the device is lost in the middle; `frame` holds the finished rows.
    OSError
        When `output` cannot be written, or another run is writing to it; FileExistsError when it holds something
        already and `force` was not given.

    Whatever ends a sweep early (Ctrl-C, a full disk, an exception of `progress`) has the finished rows as `frame`.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", M=[1, 2], N=64, K=64, backend="cpu", cache="hot", roofs=False)
    >>> frame["M"].tolist()
    [1, 1, 2, 2]
    >>> import numpy as np
    >>> def fill(n):
    ...     a = np.empty(n)
    ...     return lambda: a.fill(1.0)
    >>> frame = bwprof.sweep(
    ...     fill, n=[1024, 4096], bytes_written=lambda n: 8 * n, device="cpu", cache="hot", roofs=False
    ... )
    >>> frame["n"].tolist(), frame["bytes_written"].tolist()
    ([1024, 4096], [8192, 32768])
    """
    from bwprof.roofs.model import check_roofs
    from bwprof.runs.api import RunOptions, run_sweep
    from bwprof.text.parsing import check_mapping, merge_keywords, parse_bool, parse_fraction, parse_seconds, repr_short

    parse_bool(counters, "counters")
    how = RunOptions(
        max_total_seconds,
        check_roofs(roofs),
        recalibrate,
        check_mapping(labels, "labels"),
        output,
        force,
        progress,
        trace,
        nvtx,
    )
    stop = (
        None if rel_ci is None else parse_fraction(rel_ci, "rel_ci"),
        None if max_seconds is None else parse_seconds(max_seconds, "max_seconds", from_zero=True),
    )
    if callable(operations):
        alone = {"suite": suite, "only": only, "variant": variant, "kv_lens": kv_lens, "seed": seed or None}
        _refuse(**alone, target_seconds=target_seconds, nvtx=nvtx)
        if isinstance(device, (list, tuple)):
            raise ValueError(f"device is {repr_short(device)}: a callable is measured on one device")
        return _sweep_calls(
            operations,
            params | ({"precision": precision} if precision is not None else {}),
            check_mapping(grid, "grid"),
            {"timer": timer, "counters": counters, "metrics": parse_names("metrics", metrics)},
            parse_names("cache", cache),
            (backend, cast("Device", device)),
            stop,
            how,
        )
    from bwprof import registry
    from bwprof.runs.plan import SweepRequest, parse_whole_numbers
    from bwprof.text.parsing import parse_int

    params = merge_keywords(grid, params, "grid")
    _check_names(params)
    _check_labels(how.labels)
    request = SweepRequest(
        operations=parse_names("operations", operations),
        params={name: parse_whole_numbers(name, value) for name, value in params.items()},
        kv_lens=registry.parse_lengths(kv_lens),
        precisions=parse_names("precision", precision),
        variants=parse_names("variant", variant),
        caches=parse_names("cache", cache),
        suite=str(suite) if suite is not None else None,
        backend=backend,
        device=device,
        seed=parse_int(seed, "seed"),
        timer=timer,
        counters=counters,
        metrics=parse_names("metrics", metrics),
        target_seconds=None if target_seconds is None else parse_seconds(target_seconds, "target_seconds"),
        rel_ci=stop[0],
        max_seconds=stop[1],
        only=parse_names("only", only),
    )
    return run_sweep(request, how)


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} goes with operations, not with a callable; one's own parameter of that name goes into grid="
            )


def _options() -> list[str]:
    """The names of all options."""
    import inspect

    every = inspect.signature(sweep).parameters.values()
    return [parameter.name for parameter in every if parameter.kind is parameter.KEYWORD_ONLY]


def _sweep_calls(
    function: Callable[..., object],
    keywords: dict[str, Any],
    grid: Mapping[str, Any],
    options: dict[str, Any],
    caches: tuple[str, ...],
    where: tuple[str | None, Device],
    stop: tuple[float | None, float | None],
    how: RunOptions,
) -> pd.DataFrame:
    from bwprof.runs import callables, plan
    from bwprof.runs.plan import parse_axes
    from bwprof.text.parsing import merge_keywords

    options |= {name: keywords.pop(name) for name in callables.OPTIONS if name in keywords}
    axes = parse_axes(merge_keywords(grid, keywords, "grid"))
    known = (*_options(), *callables.OPTIONS)
    request = callables.CallRequest(
        function, axes, options, plan.expand_caches(caches), *where, known, frozenset(grid), *stop
    )
    return callables.sweep_callable(request, how)


def _check_names(params: dict[str, Any]) -> None:
    """A misspelt option lands among the parameters: it is answered with all names there are."""
    from bwprof import registry
    from bwprof.text.parsing import describe_unknown

    known = {name: None for operation in registry.operations() for name in registry.param_names(operation["name"])}
    for name in params:
        if name not in known:
            raise ValueError(describe_unknown("argument", name, [*known, *_options()]))


def _check_labels(labels: Mapping[str, Any]) -> None:
    """A label of rows whose columns bwprof fills must have a name of its own."""
    from bwprof.results import schema

    for name in labels:
        if name in schema.column_names() or name == schema.SAMPLES:
            raise ValueError(f"'{name}' is a column that bwprof fills: take another name for the label")


def benchmark_bandwidth(
    path: str | PathLike[str],
    *,
    suite: str | PathLike[str] | None = None,
    only: str | None = None,
    device: Device = None,
    backend: str | None = None,
    progress: ProgressArgument = None,
) -> pd.DataFrame:
    """Measure a suite into a CSV of the nine classic columns, as the C library's `cuda_benchmark_bandwidth` does.

    ``operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written``: operation is the case's name,
    with its variant where the case has several; precisions are in capital letters, M, N and K are empty where they do
    not apply. `bwprof sweep --classic-csv FILE` is the same in a shell, ``bwprof.save(frame, path, classic=True)`` for
    a frame that is there.

    Parameters
    ----------
    path : path
        A file ending in .csv, which appears, or is replaced, in one step when all cases have run.
    suite : str or path, optional
        A built-in suite's name, or a .toml file; the default one when left out.
    only, device, backend, progress
        As in `bwprof.sweep`: the first GPU when nothing is said, or the CPU where there is none.

    Returns
    -------
    pandas.DataFrame
        The whole rows, as of `bwprof.sweep`, held against no roofs.

    Raises
    ------
    ValueError
        For another ending, and an unknown suite or device, before anything is measured.
    OSError
        When the file cannot be written, before anything is measured.
    SweepError
        When a case failed: `frame` holds the rows, and there is no file.

    Examples
    --------
    >>> import bwprof, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "classic.csv")
    ...     rows = bwprof.benchmark_bandwidth(path, suite="smoke", only="kv_append", device="cpu")
    ...     lines = path.read_text().splitlines()
    >>> lines[0]
    'operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written'
    >>> [line.split(",")[:5] for line in lines[1:]]
    [['kv_append', 'FP32', '', '', ''], ['kv_append', 'FP16', '', '', '']]
    """
    target = parse_path(path, "path")
    if target.suffix.lower() != ".csv":
        raise ValueError(f"{quote_text(path)}: the classic columns are saved as .csv")
    if is_plain_target(target):
        Claim(target).release()  # it can be written, and nobody else does
    request = SweepRequest(
        suite=None if suite is None else str(suite), only=parse_names("only", only), backend=backend, device=device
    )
    frame = run_sweep(request, RunOptions(roofs=False, progress=progress))
    failed = frame[frame["status"] == "failed"]
    if len(failed):
        first = failed.iloc[0]
        why = f"{first['case']} {first['precision']}: {first['reason']}"
        raise SweepError(f"{len(failed)} of {len(frame)} cases failed: {why}", frame)
    reader.save(frame, target, classic=True)
    return frame


if __name__ == "__main__":
    from bwprof.cli.guard import guarded

    def _main() -> int:
        from bwprof.cli.commands.sweep import main_sweep

        return main_sweep()

    sys.exit(guarded(_main))
