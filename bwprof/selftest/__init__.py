"""The profiler's figures against independent witnesses, on this machine. ``python -m bwprof.selftest`` prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwprof.hardware import Device

__all__ = ["selftest"]


def selftest(
    parts: str | Iterable[str] | None = None,
    *,
    quick: bool = False,
    backend: str | None = None,
    device: Device = None,
    progress: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Hold bwprof's figures against other ways of getting them.

    Parameters
    ----------
    parts : str or iterable of str, optional
        Any of "timers" (the graph's time against kernel timestamps), "cache" (ways of making the cache cold),
        "counters" (DRAM reads of a cold rotation) and "repeat" (how often two measurements of the same thing differ);
        all when left out.
    quick : bool
        Fewer cases and repetitions.
    device : int, str or torch.device, optional
        "cpu", "cuda:1", 1, ...; the first device of the preferred backend that has one when left out.
    backend : str, optional
        The same as the device's name without a number.
    progress : callable, optional
        Gets a line of text now and then.

    Returns
    -------
    dict
        passed (bool: no gate failed), bwprof, backend, device, facts, and parts: a list of dicts with name, title,
        columns, rows (dicts column -> value), gate (the rule in words; "" = nothing is judged), passed (bool; None =
        not judged), summary (lines) and left_out (why the part, or some of it, did not run; "" = it all ran).

    Raises
    ------
    ValueError
        For an unknown part, backend or device.
    bwprof.errors.UnavailableError
        When the backend has no device.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.selftest("timers", backend="cpu", quick=True)["parts"][0]["left_out"]
    'cpu has one timer: there is nothing to compare it with'
    """
    from bwprof.selftest import run
    from bwprof.text import truth

    truth(quick, "quick")
    names = parts.split(",") if isinstance(parts, str) else list(parts or ())
    return run.run(names, quick=quick, backend=backend, device=device, progress=progress)
