"""`bwprof.sweep` and `bwprof.benchmark_bandwidth`: measure operations over a grid of parameters and precisions."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from bwprof import registry
from bwprof.errors import SweepError
from bwprof.hardware import Device
from bwprof.results import reader, schema
from bwprof.results.atomic import Claim, is_plain_target
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.runs import api
from bwprof.runs.api import ProgressArgument, RunOptions, run_sweep
from bwprof.runs.plan import SweepRequest, expand_caches, parse_axes, parse_whole_numbers
from bwprof.text.parsing import (
    check_mapping,
    describe_unknown,
    merge_keywords,
    parse_bool,
    parse_fraction,
    parse_int,
    parse_names,
    parse_path,
    parse_seconds,
    quote_text,
    repr_short,
)

if TYPE_CHECKING:
    import pandas as pd

NamesArgument = str | Iterable[str] | None


def sweep(
    operations: NamesArgument | Callable[..., object] = None,
    *,
    suite: str | PathLike[str] | None = None,
    only: NamesArgument = None,
    precision: NamesArgument = None,
    backend: str | None = None,
    device: Device | Sequence[Device] = None,
    variant: NamesArgument = None,
    cache: NamesArgument = None,
    seed: int = 0,
    kv_lens: str | Sequence[int | str] | None = None,
    timer: str | None = None,
    counters: bool = False,
    metrics: NamesArgument = None,
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
    product. If the call returns a callable, that is measured, and the call is its preparation; else the call itself is
    measured (after one call to find that out). The parameters become columns, behind the schema's unless the schema
    has them (M, batch, ...).

    Parameters
    ----------
    operations : str, iterable of str, or callable, optional
        Names from `bwprof.operations()`, or of a suite's cases; default: the suite, else the default suite. A callable
        is measured as by `bwprof.measure`, with its further arguments: bytes_read, bytes_written, flops,
        footprint_bytes (numbers, or functions of the parameters), check (called with the parameters), stream, sets,
        name, roof_threads; without suite, variant, seed or kv_lens. A point that raises an exception becomes a failed
        row.
    suite : str or path, optional
        A built-in suite's name, or a .toml file; with `operations`, only its cases of those.
    only : str or iterable of str, optional
        Patterns of case or operation names: "attention*", "*_8b".
    precision : str or iterable of str, optional
        Default: the suite's, else FP32 and FP16.
    device : int, str or torch.device, or a list of them, optional
        "cpu", "cuda:1", 1, ...; for operations also several, one after the other: a list, "0,1", or "all" of the
        backend. Default: the first device of the preferred backend; for a callable its current device.
    backend : str, optional
        The same as the device's name without a number.
    variant : str or iterable of str, optional
        Variants to run, "all" for every one. Operations without a variant of that name, and the default, run the
        device's choice.
    cache : {"cold", "hot", "both"} or iterable of str, optional
        Default: cold; "both" makes a row for each.
    seed : int
        Seed of the generated inputs.
    kv_lens : sequence of int, or str, optional
        Lengths of a batch's entries as in `bwprof.cost`: [100, 7000], "100,7Ki". A case's name ends with them.
    timer, rel_ci
        As in `bwprof.Case.measure`; default of `rel_ci`: 0.005 or "0.5%".
    counters : bool
        Count each case's DRAM and L2 bytes in hardware, on a cold launch beside the timed ones; if that fails,
        `counters_status` has the reason.
    metrics : str or iterable of str, optional
        Metrics to count by replaying each case's launch, as in `bwprof.Case.count`; `metrics_status` has the reason
        for missing ones.
    max_seconds : float, optional
        Time limit of sampling per case, instead of the suite's `target_seconds`; ten samples in any case. Default: 2.
    target_seconds : float, optional
        Total time to aim at, instead of the suite's, with fewer samples per case; no case is skipped.
    max_total_seconds : float, optional
        Time limit of the sweep, at most half of it for roofs; cases after it become skipped rows. A case that has
        begun is warmed up and takes its ten samples.
    roofs : {"auto", "stored", False} or Roofs
        Roofs to compare with. "auto": the device's, measured at the first sweep (some seconds), stored in the user's
        cache folder and checked at every use; "stored": the stored ones, if any, without measuring; False: none, their
        columns stay empty.
    recalibrate : bool
        Measure the roofs again.
    output : path, optional
        A .csv or .json file for the rows, written while they are measured.
    trace : path, optional
        A file for the times and figures of the cases, in the Trace Event format of Perfetto (ui.perfetto.dev) and
        chrome://tracing; written however the sweep ends.
    nvtx : bool, optional
        Mark the cases with NVTX ranges for tools such as nsys and ncu: if one watches the process (None), never
        (False), or with a warning if none does (True).
    force : bool
        Replace an `output` or `trace` file that is not empty.
    progress : bool or callable, optional
        True prints progress on standard error; a callable is called with (done, total, row), per device.
    grid : mapping, optional
        The same as `params`, for any names: a callable's own `seed`, `name` or `sets`.
    labels : mapping, optional
        Columns for all rows: name -> value.
    **params : int, str or iterable of them
        Parameters of the operations, 4096 or "4Ki"; the sweep is the product of the lists. "1..64:x2" is the range 1,
        2, 4, ..., 64, and "1..64:+8" is 1, 9, ..., 57. A callable's parameters have any type; lists, tuples, ranges
        and arrays are several values.

    Returns
    -------
    pandas.DataFrame
        One row per case (see `bwprof.columns`); ``attrs["run"]`` holds the run's metadata, read-only.

    Raises
    ------
    ValueError
        For unknown names, values out of range and contradictions, before anything runs.
    SweepError
        If the device is lost. Any exception that ends a sweep early (Ctrl-C, a full disk) has the finished rows as
        `frame`.
    OSError
        If `output` cannot be written, or another run is writing to it; FileExistsError if it is not empty, without
        `force`.

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
    parse_bool(counters, "counters")
    label_columns = check_mapping(labels, "labels")
    options = RunOptions(
        max_total_seconds, check_roofs(roofs), recalibrate, label_columns, output, force, progress, trace, nvtx
    )
    counting: dict[str, Any] = {"timer": timer, "counters": counters, "metrics": parse_names("metrics", metrics)}
    stop: dict[str, Any] = {
        "rel_ci": None if rel_ci is None else parse_fraction(rel_ci, "rel_ci"),
        "max_seconds": None if max_seconds is None else parse_seconds(max_seconds, "max_seconds", from_zero=True),
    }
    if callable(operations):
        names = ("suite", "only", "variant", "kv_lens", "seed", "target_seconds", "nvtx")
        values = (suite, only, variant, kv_lens, seed or None, target_seconds, nvtx)
        for option, value in zip(names, values, strict=True):
            if value is not None:
                raise ValueError(f"{option} goes with operations, not with a callable; your own goes into grid=")
        if isinstance(device, (list, tuple)):
            raise ValueError(f"device is {repr_short(device)}: a callable is measured on one device")
        if precision is not None:
            params["precision"] = precision
        call_options = counting | {name: params.pop(name) for name in api.OPTIONS if name in params}
        call_request = api.CallRequest(
            operations,
            parse_axes(merge_keywords(grid, params, "grid")),
            call_options,
            expand_caches(parse_names("cache", cache)),
            backend,
            cast("Device", device),
            (*_option_names(), *api.OPTIONS),
            frozenset(grid or ()),
            **stop,
        )
        return api.sweep_callable(call_request, options)
    params = merge_keywords(grid, params, "grid")
    _check_names(params, label_columns)
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
        target_seconds=None if target_seconds is None else parse_seconds(target_seconds, "target_seconds"),
        only=parse_names("only", only),
        **counting,
        **stop,
    )
    return run_sweep(request, options)


def _option_names() -> list[str]:
    parameters = inspect.signature(sweep).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _check_names(params: Mapping[str, Any], labels: Mapping[str, Any]) -> None:
    """Raise ValueError for unknown parameters, misspelled options among them, and for labels with a column's name."""
    known = {name: None for operation in registry.operations() for name in registry.param_names(operation["name"])}
    for name in params:
        if name not in known:
            raise ValueError(describe_unknown("argument", name, [*known, *_option_names()]))
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

    `bwprof.save` with ``classic=True`` writes the same for a frame.

    Parameters
    ----------
    path : path
        A file ending in .csv, written in one step when all cases have run.
    suite, only, device, backend, progress
        As in `bwprof.sweep`.

    Returns
    -------
    pandas.DataFrame
        The rows as of `bwprof.sweep`, without roofs.

    Raises
    ------
    ValueError
        For another ending, and an unknown suite or device, before anything is measured.
    OSError
        If the file cannot be written, before anything is measured.
    SweepError
        If a case failed: `frame` holds the rows, and there is no file.

    Examples
    --------
    >>> import bwprof, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "classic.csv")
    ...     rows = bwprof.benchmark_bandwidth(path, suite="smoke", only="kv_append", device="cpu")
    ...     [line.split(",")[:2] for line in path.read_text().splitlines()]
    [['operation', 'precision'], ['kv_append', 'FP32'], ['kv_append', 'FP16']]
    """
    target = parse_path(path, "path")
    if target.suffix.lower() != ".csv":
        raise ValueError(f"{quote_text(path)}: the classic columns are saved as .csv")
    if is_plain_target(target):
        Claim(target).release()  # fails before the measurement if the file cannot be written
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
    from bwprof.cli import main

    sys.exit(main(["sweep", *sys.argv[1:]]))
