"""Sweeps: measure operations over a grid of parameters and precisions.

`bwprof.sweep(...)` is the function below; ``python -m bwprof.sweep`` is the command (see `bwprof.sweep.cli`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

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
    max_time: float | None = None,
    roofs: bool = True,
    output: str | PathLike[str] | None = None,
    progress: bool | Callable[[int, int, dict[str, Any]], object] | None = None,
    **params: int | Iterable[int],
) -> pd.DataFrame:
    """Measure operations in this process.

    Parameters
    ----------
    operations : str or iterable of str, optional
        Names from `bwprof.operations()`; the default suite when neither these nor `suite` are given.
    suite : str or path, optional
        A built-in suite's name, or a .toml file; with `operations`, only its cases of those.
    precision : str or iterable of str, optional
        The suite's when left out, else FP32 and FP16.
    backend, device : optional
        The preferred backend that has a device, and its first device, when left out.
    variant : str or iterable of str, optional
        Variants to run, "all" for every one; the device's choice when left out. Operations without a variant of that
        name keep their own choice.
    cache : {"cold", "hot"} or both, optional
        Cold when left out.
    seed : int
        Of the generated inputs.
    kv_lens : sequence of int, optional
        Lengths of a batch's entries, for operations that take it.
    timer : str, optional
        On a GPU "graph" (when left out), "events" or "cupti"; on a CPU "monotonic".
    counters : bool
        Count each case's DRAM and L2 bytes in hardware, on one cold launch beside the timed ones; where that cannot be
        done, `counters_status` says why.
    max_time : float, optional
        Seconds for the whole sweep, of which the roofs get at most half; cases that did not get their turn become
        skipped rows.
    roofs : bool
        Measure the device's roofs first (about 3 s); without them the roof columns stay empty.
    output : path, optional
        A .csv or .json file that gets the rows as they are measured.
    progress : bool or callable, optional
        True shows progress on standard error; a callable gets (done, total, row).
    **params : int or iterable of int
        Parameters of the operations; the sweep is the product of the lists.

    Returns
    -------
    pandas.DataFrame
        One row per case (see `bwprof.results.schema`); ``attrs["run"]`` holds the run's metadata.

    Raises
    ------
    ValueError
        For anything unknown, out of range or contradictory, before anything runs.
    SweepError
        When the device is lost in the middle; `frame` holds the finished rows.
    OSError
        When `output` cannot be written.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", M=[1, 2], N=64, K=64, backend="cpu", cache="hot", roofs=False)
    >>> frame["M"].tolist()
    [1, 1, 2, 2]
    """
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
    )
    return inprocess.run(request, max_time=max_time, with_roofs=roofs, output=output, progress=progress)


def _words(name: str, value: Words) -> tuple[str, ...]:
    if value is None:
        return ()
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    found = tuple(word.strip() if isinstance(word, str) else word for word in words)
    if not found:
        raise ValueError(f"{name} is {value!r}: at least one name is needed")
    for word in found:
        if not isinstance(word, str) or not word:
            raise ValueError(f"{name} is {value!r}: names are needed")
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
