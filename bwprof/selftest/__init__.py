"""Check bwprof's figures against independent measurements; ``python -m bwprof.selftest`` prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from bwprof import _core, hardware, registry
from bwprof.selftest.parts import PARTS, Bench, PartReport
from bwprof.text.parsing import describe_unknown, parse_bool, parse_names


def selftest(
    parts: str | Iterable[str] | None = None,
    *,
    quick: bool = False,
    backend: str | None = None,
    device: hardware.Device = None,
    progress: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Compare bwprof's figures with independent measurements.

    Parameters
    ----------
    parts : str or iterable of str, optional
        "timers" (graph against kernel timestamps), "cache" (ways of making the cache cold), "counters" (DRAM reads of a
        cold rotation), "repeat" (how often two measurements of the same case differ). Default: all.
    quick : bool
        Fewer cases and repetitions.
    device : int, str or torch.device, optional
        "cpu", "cuda:1", 1, ... Default: the first device of the preferred backend.
    backend : str, optional
        A device's name without a number.
    progress : callable, optional
        Gets lines of text.

    Returns
    -------
    dict
        passed (bool: no gate failed), bwprof, backend, device, facts, and parts: a list of dicts with name, title,
        columns, rows (dicts column -> value), gate (the rule in words; "": not judged), passed (bool or None), summary
        (lines) and left_out (what did not run and why).

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
    names, quick = parse_names("parts", parts), parse_bool(quick, "quick")
    return run(names, quick=quick, backend=backend, device=device, progress=progress)


def run(
    parts: Sequence[str],
    *,
    quick: bool,
    backend: str | None,
    device: hardware.Device,
    progress: Callable[[str], object] | None = None,
    poll: Callable[[], object] | None = None,
    show: Callable[[PartReport], object] | None = None,
) -> dict[str, Any]:
    """Return what `bwprof.selftest` returns; `show` gets each part's report when it is ready."""
    for name in parts:
        if name not in PARTS:
            raise ValueError(describe_unknown("part of the self-test", name, PARTS))
    choice = hardware.choose_device(backend, device)
    reports: list[PartReport] = []
    with hardware.borrow_device(choice.backend, choice.index) as opened:
        facts = hardware.facts(opened)
        bench = Bench(
            device=opened,
            backend=choice.backend,
            index=choice.index,
            facts=facts,
            timers=tuple(registry.timer_names(choice.backend)),
            quick=quick,
            say=progress or (lambda _: None),
            poll=poll or (lambda: None),
        )
        for name, part in PARTS.items():
            if parts and name not in parts:
                continue
            reports.append(part(bench))
            if show is not None:
                show(reports[-1])
    return {
        "passed": all(report.passed is not False for report in reports),
        "bwprof": _core.__version__,
        "backend": choice.backend,
        "device": choice.name,
        "quick": quick,
        "facts": facts,
        "parts": [asdict(report) for report in reports],
    }
