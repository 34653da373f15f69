"""Sweeps: measure operations over a grid of parameters and precisions.

`bwprof.sweep(...)` is the function below; ``python -m bwprof.sweep`` is the command (see `bwprof.sweep.cli`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.roofs import Roofs
    from bwprof.sweep.plan import Request

__all__ = ["SweepError", "sweep"]

Words = str | Iterable[str] | None


class SweepError(RuntimeError):
    """A sweep could not go on; `frame` holds the finished rows."""

    def __init__(self, message: str, frame: pd.DataFrame) -> None:
        super().__init__(message)
        self.frame = frame

    def __reduce__(self) -> tuple[type[SweepError], tuple[str, pd.DataFrame]]:
        """What a pool of processes sends: without it the pool would wait for ever."""
        return type(self), (str(self), self.frame)


Work = int | Callable[..., int] | None


@overload
def sweep(
    operations: Words = None,
    *,
    suite: str | PathLike[str] | None = None,
    precision: Words = None,
    backend: str | None = None,
    device: int | None = None,
    variant: Words = None,
    cache: Words = None,
    seed: int = 0,
    kv_lens: Sequence[int] | None = None,
    timer: str | None = None,
    counters: bool = False,
    metrics: Words = None,
    max_time: float | None = None,
    roofs: bool = True,
    recalibrate: bool = False,
    output: str | PathLike[str] | None = None,
    force: bool = False,
    progress: bool | Callable[[int, int, dict[str, Any]], object] | None = None,
    **params: int | Iterable[int],
) -> pd.DataFrame: ...


@overload
def sweep(
    operations: Callable[..., object],
    *,
    bytes_read: Work = None,
    bytes_written: Work = None,
    flops: Work = None,
    footprint_bytes: Work = None,
    stream: Any = None,
    sets: int | None = None,
    name: str | None = None,
    check: Callable[..., object] | None = None,
    roof_threads: int | None = None,
    precision: Words = None,
    backend: str | None = None,
    device: int | str | None = None,
    cache: Words = None,
    timer: str | None = None,
    counters: bool = False,
    max_time: float | None = None,
    roofs: bool | Roofs = True,
    recalibrate: bool = False,
    output: str | PathLike[str] | None = None,
    force: bool = False,
    progress: bool | Callable[[int, int, dict[str, Any]], object] | None = None,
    **params: Any,
) -> pd.DataFrame: ...


def sweep(
    operations: Words | Callable[..., object] = None,
    *,
    suite: str | PathLike[str] | None = None,
    precision: Words = None,
    backend: str | None = None,
    device: int | str | None = None,
    variant: Words = None,
    cache: Words = None,
    seed: int = 0,
    kv_lens: Sequence[int] | None = None,
    timer: str | None = None,
    counters: bool = False,
    metrics: Words = None,
    max_time: float | None = None,
    roofs: bool | Roofs = True,
    recalibrate: bool = False,
    output: str | PathLike[str] | None = None,
    force: bool = False,
    progress: bool | Callable[[int, int, dict[str, Any]], object] | None = None,
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
        Names from `bwprof.operations()`; the default suite when neither these nor `suite` are given. A callable is
        measured as `bwprof.measure` does it, takes its further arguments here (bytes_read, bytes_written, flops,
        footprint_bytes: numbers, or functions of the parameters; check, called with them; stream, sets, name,
        roof_threads), and knows no suite, variant, seed, kv_lens or metrics. A point that raises an exception becomes
        a failed row.
    suite : str or path, optional
        A built-in suite's name, or a .toml file; with `operations`, only its cases of those.
    precision : str or iterable of str, optional
        The suite's when left out, else FP32 and FP16.
    backend, device : optional
        The preferred backend that has a device, and its first device, when left out.
    variant : str or iterable of str, optional
        Variants to run, "all" for every one; the device's choice when left out. Operations without a variant of that
        name keep their own choice.
    cache : {"cold", "hot", "both"} or iterable of str, optional
        Cold when left out; "both" gives a row for each.
    seed : int
        Of the generated inputs.
    kv_lens : sequence of int, optional
        Lengths of a batch's entries, for operations that take it.
    timer : str, optional
        On a GPU "graph" (when left out), "events" or "cupti"; on a CPU "monotonic".
    counters : bool
        Count each case's DRAM and L2 bytes in hardware, on one cold launch beside the timed ones; where that cannot be
        done, `counters_status` says why.
    metrics : str or iterable of str, optional
        What else to count by replaying each case's launch many times, as `bwprof.Case.count` has it; "all" for
        everything. It fills the last columns, and `metrics_status` says what could not be counted.
    max_time : float, optional
        Seconds for the whole sweep, of which the roofs get at most half; cases that did not get their turn become
        skipped rows. One that has begun is still warmed up and takes its ten samples, however slow it is.
    roofs : bool, or Roofs for a callable
        Hold rows against the device's roofs: measured at the first sweep (some seconds) and then kept in the user's
        cache folder, checked at every use. Without them the roof columns stay empty.
    recalibrate : bool
        Measure the roofs anew, whatever is kept.
    output : path, optional
        A .csv or .json file that gets the rows as they are measured.
    force : bool
        Replace a file that `output` names and that holds something already.
    progress : bool or callable, optional
        True shows progress on standard error; a callable gets (done, total, row).
    **params : int or iterable of int
        Parameters of the operations; the sweep is the product of the lists. A callable's may be anything; lists,
        tuples, ranges and arrays are several values.

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
    if callable(operations):
        _refuse(suite=suite, variant=variant, kv_lens=kv_lens, seed=seed or None, metrics=metrics)
        given = {"precision": precision} if precision is not None else {}
        return _sweep_calls(
            operations,
            params | given,
            options={"timer": timer, "counters": counters},
            caches=_words("cache", cache),
            backend=backend,
            device=device,
            max_time=max_time,
            with_roofs=roofs,
            recalibrate=recalibrate,
            output=output,
            force=force,
            progress=progress,
        )
    if not isinstance(roofs, bool):
        raise ValueError("roofs= must be true or false where operations are measured")
    from bwprof.names import whole_number
    from bwprof.sweep import inprocess
    from bwprof.sweep.plan import Request

    _check_names(params)
    request: Request = Request(
        operations=_words("operations", operations),
        params={name: _whole_numbers(name, value) for name, value in params.items()},
        kv_lens=_whole_numbers("kv_lens", kv_lens) if kv_lens is not None else None,
        precisions=_words("precision", precision),
        variants=_words("variant", variant),
        caches=_words("cache", cache),
        suite=str(suite) if suite is not None else None,
        backend=backend,
        device=whole_number(device, "device") if device is not None else None,
        seed=whole_number(seed, "seed"),
        timer=timer,
        counters=counters,
        metrics=_words("metrics", metrics),
    )
    return inprocess.run(
        request,
        max_time=max_time,
        with_roofs=roofs,
        recalibrate=recalibrate,
        output=output,
        force=force,
        progress=progress,
    )


CALL_OPTIONS = (
    *("bytes_read", "bytes_written", "flops", "footprint_bytes", "stream", "sets", "name", "check"),
    "roof_threads",
)


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} goes with operations, not with a callable")


def _sweep_calls(
    function: Callable[..., object],
    params: dict[str, Any],
    *,
    options: dict[str, Any],
    caches: tuple[str, ...],
    backend: str | None,
    device: int | str | None,
    **how: Any,
) -> pd.DataFrame:
    from bwprof.sweep import calls, plan

    options |= {name: params.pop(name) for name in CALL_OPTIONS if name in params}
    request = calls.Request(function, calls.axes_of(params), options, plan.caches_of(caches), backend, device)
    return calls.run(request, **how)


def _words(name: str, value: Words) -> tuple[str, ...]:
    from bwprof.names import shown

    if value is None:
        return ()
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    found = tuple(word.strip() if isinstance(word, str) else word for word in words)
    if not found:
        raise ValueError(f"{name} is {shown(value)}: at least one name is needed")
    for word in found:
        if not isinstance(word, str) or not word:
            raise ValueError(f"{name} is {shown(value)}: names are needed")
    return found


def _check_names(params: dict[str, Any]) -> None:
    """A misspelt option lands among the parameters: it is answered with all names there are."""
    from bwprof import registry
    from bwprof.names import unknown

    known = {name: None for operation in registry.operations() for name in registry.param_names(operation["name"])}
    for name in params:
        if name not in known:
            raise ValueError(unknown("argument", name, [*known, *(sweep.__kwdefaults__ or {})]))


def _whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    from bwprof.names import whole_number

    try:
        items = [value] if isinstance(value, (str, bytes)) else list(value)
    except TypeError:  # one number, NumPy's scalars and arrays without a dimension among them
        items = [value]
    if not items:
        raise ValueError(f"{name} has no values")
    return tuple(whole_number(item, name) for item in items)
