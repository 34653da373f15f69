"""`bwprof.ablation`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bwprof import hardware, kernels, registry
from bwprof.errors import SweepError, attach_frame
from bwprof.experiments import ablation_table, torch_peers
from bwprof.hardware import Choice, Device
from bwprof.measuring.operation import CACHES, DEFAULT_CACHE, Spec
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.runs.plan import DEFAULT_CASE_SECONDS, EVERY_VARIANT, SweepRequest
from bwprof.text.parsing import describe_unknown, merge_keywords, parse_fraction, parse_int, parse_names, parse_seconds

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.results.schema import RowDict

NOT_REQUESTED = "it was not asked for (vs='torch', --vs torch)"


def ablation(
    op: str,
    *,
    precision: str | None = None,
    vs: str | None = None,
    variant: str | Iterable[str] | None = None,
    device: Device = None,
    backend: str | None = None,
    kv_lens: str | Sequence[int | str] | None = None,
    cache: str = DEFAULT_CACHE,
    seed: int = 0,
    timer: str | None = None,
    metrics: str | Iterable[str] | None = None,
    rel_ci: float | str | None = None,
    max_seconds: float = DEFAULT_CASE_SECONDS,
    roofs: RoofsArgument = "auto",
    progress: bool = False,
    grid: Mapping[str, Any] | None = None,
    **params: int | str,
) -> pd.DataFrame:
    """An operation's ladder of variants on one shape: what each rung changes, and what that brings.

    Every rung is measured as a sweep does it, in this process: verified, cold, by the same timer. Beside the gain of
    each over the last rung before it that runs the shape stands the one that was predicted before it was measured.

    Parameters
    ----------
    op : str
        The operation.
    precision : str, optional
        With no parameters and lengths either, the shape and the precision that the ladder's predictions are for; FP32
        with some.
    vs : {"torch"}, optional
        Measure PyTorch's counterpart, too, where it is installed and has one: on tensors of the same values, verified
        against the same reference, timed by the same timer.
    variant : str or iterable of str, optional
        Only these rungs.
    device, backend, kv_lens, cache, seed, timer, metrics, rel_ci, max_seconds, roofs, progress
        As in `bwprof.sweep`; ``metrics="occupancy"`` counts the achieved occupancy beside the theoretical one.
    grid : mapping, optional
        Parameters, as in `params`, whatever they are called.
    **params : int or str
        The operation's parameters, a value each; those left out take their defaults.

    Returns
    -------
    pandas.DataFrame
        A row for each rung, cheapest first, then one for each counterpart (`kind` is "rung" or "peer"): version,
        status, reason, time_ms, speedup_vs_torch (the fastest counterpart's time divided by its own), speedup_vs_first,
        measured_gain and predicted_gain (the time of the rung before divided by its own: 1.0 where it brings nothing,
        which tables and pictures call 0 %), predicted_at (the precision and shape that the
        prediction is for), bandwidth_gb_s, occupancy, registers, changes, because and more. A rung that refuses the
        shape says why; ratios are of verified rows alone. ``attrs["run"]`` is the run's metadata, ``attrs["torch"]``
        says which PyTorch there was, or why none.

    Raises
    ------
    ValueError
        For what is unknown or out of range, before anything runs.
    SweepError
        When the device is lost.

    As of a sweep, an exception that ends it early (KeyboardInterrupt, too) has the rungs finished so far as `frame`,
    and ``frame.attrs["missing"]`` names the others.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.ablation("gemm", M=4, N=64, K=64, device="cpu", cache="hot", max_seconds=0.01, roofs=False)
    >>> found["version"].tolist()
    ['naive', 'gemv', 'blocked']
    >>> found["predicted_gain"].tolist()[1:]
    [1.2, 6.0]
    """
    from bwprof.runs.api import RunOptions, run_sweep

    if vs not in (None, torch_peers.TORCH):
        raise ValueError(describe_unknown("vs", str(vs), [torch_peers.TORCH]))
    if cache not in CACHES:
        raise ValueError(describe_unknown("cache", str(cache), CACHES))
    choice = hardware.choose_device(backend, device)
    ladder = _ladder(op, choice.backend, parse_names("variant", variant))
    lens = registry.parse_lengths(kv_lens)
    precision, given = _place(ladder, precision, merge_keywords(grid, params, "grid"), lens)
    whole = registry.complete_params(op, precision, given, lens)
    known = [row["name"] for row in ladder if precision in row["precisions"]]
    registry.check_kernels((op, row["name"] if variant else None, precision, choice.backend) for row in ladder)
    place = f"{choice.backend}:{choice.index}"
    kept = _LadderState(
        ladder,
        precision,
        # Before anything is measured: what fails here must cost nobody a result.
        described=kernels.variants(op, place, precision=precision, kv_lens=lens, **whole),
        here={at for at in {row["at"] for row in ladder} - {None} if lens is None and _is(op, precision, whole, at)},
        behind_gaps=_behind_gaps(op, choice.backend, ladder),
        same={
            "operation": op,
            "precision": precision,
            "shape": _shape(op, precision, whole, lens),
            "backend": choice.backend,
            "device": choice.name,
        },
        wanted=[] if vs is None else torch_peers.peers_of(op),
    )
    request = SweepRequest(
        operations=(op,),
        params={name: (value,) for name, value in whole.items()},
        kv_lens=lens,
        precisions=(precision,),
        variants=tuple(known) if variant is not None else (EVERY_VARIANT,),
        caches=(cache,),
        device=place,
        seed=parse_int(seed, "seed"),
        timer=timer,
        metrics=parse_names("metrics", metrics),
        rel_ci=None if rel_ci is None else parse_fraction(rel_ci, "rel_ci"),
        max_seconds=parse_seconds(max_seconds, "max_seconds", from_zero=True),
    )
    spec = Spec(op, op, precision, whole, None if lens is None else tuple(lens), None, cache, seed)
    try:
        kept.take(run_sweep(request, RunOptions(roofs=check_roofs(roofs), progress=progress)))
        if vs is not None:
            _measure_peers(kept, choice, spec, roofs, max_seconds)
    except BaseException as error:
        ended = _ending(error, kept, known)
        if ended is error:
            raise
        raise ended from error
    return kept.frame()


@dataclass
class _LadderState:
    """What is known of a ladder, and what was measured of it so far."""

    ladder: Sequence[Mapping[str, Any]]
    precision: str
    described: Sequence[Mapping[str, Any]]
    here: Collection[str]
    behind_gaps: Collection[str]
    same: Mapping[str, Any]
    wanted: Sequence[torch_peers.Peer]
    rows: dict[str, RowDict] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    torch: str = NOT_REQUESTED
    beside: list[tuple[str, RowDict]] = field(default_factory=list)

    def take(self, measured: pd.DataFrame) -> None:
        """A run's rows, also of one that ended early."""
        from bwprof.results.frame import to_rows

        self.rows = {str(row["variant"]): row for row in to_rows(measured)}
        self.run = dict(measured.attrs.get("run", {}))

    def frame(self, missing: Sequence[str] = ()) -> pd.DataFrame:
        """The ladder without what is `missing`; no row where nothing at all was measured."""
        there = [row for row in self.ladder if row["name"] not in missing] if self.rows else []
        found = ablation_table.frame(
            ablation_table.make_frame(
                there, self.rows, self.described, self.beside, self.precision, self.here, self.behind_gaps
            ),
            self.same,
        )
        found.attrs = {"run": self.run, torch_peers.TORCH: self.torch, ablation_table.MISSING: list(missing)}
        return found


def _ending(error: BaseException, kept: _LadderState, known: Sequence[str]) -> BaseException:
    """What ended a ladder early, with its finished rungs as `frame`; what came before any was begun, as it is."""
    of_run = getattr(error, "frame", None)
    if of_run is not None and not kept.run:
        kept.take(of_run)
    if not kept.run:
        return error
    kept.run["status"] = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    found = kept.frame(
        [*(name for name in known if name not in kept.rows), *(peer.name for peer in kept.wanted[len(kept.beside) :])]
    )
    if getattr(error, "fatal", False):
        return SweepError(f"the device is lost, only a new process can use it again: {error}", found)
    return attach_frame(error, found)


def _ladder(op: str, backend: str, asked: Sequence[str]) -> list[dict[str, Any]]:
    """The rungs that are asked for."""
    ladder = registry.operation(op)["variants"].get(backend, [])
    names = [row["name"] for row in ladder]
    for name in asked:
        if name != EVERY_VARIANT and name not in names:
            raise ValueError(describe_unknown(f"variant of {op} on {backend}", name, [*names, EVERY_VARIANT]))
    if not ladder:
        having = [name for name, rows in registry.operation(op)["variants"].items() if rows]
        raise ValueError(f"{op} has no variant on {backend}: allowed are {', '.join(having)}")
    return [row for row in ladder if not asked or row["name"] in asked or EVERY_VARIANT in asked]


def _behind_gaps(op: str, backend: str, asked: Sequence[Mapping[str, Any]]) -> set[str]:
    """The rungs right behind those that were not asked for."""
    ladder = [row["name"] for row in registry.operation(op)["variants"][backend]]
    names = {row["name"] for row in asked}
    return {name for before, name in pairwise(ladder) if name in names and before not in names}


def _place(
    ladder: Sequence[Mapping[str, Any]],
    precision: str | None,
    params: Mapping[str, Any],
    kv_lens: Sequence[int] | None,
) -> tuple[str, dict[str, Any]]:
    """The precision and the parameters: with none given, those that the ladder is predicted for."""
    at = ladder[0]["at"]
    if at is None or params or kv_lens is not None:
        return registry.check_precision("fp32" if precision is None else precision), dict(params)
    predicted_for, shape = registry.parse_point(at)
    return registry.check_precision(predicted_for if precision is None else precision), dict(shape)


def _is(op: str, precision: str, params: Mapping[str, int], at: str) -> bool:
    """Whether a ladder's name of a precision and a shape means this one."""
    predicted_for, shape = registry.parse_point(at)
    return predicted_for == precision and registry.complete_params(op, precision, shape) == params


def _shape(op: str, precision: str, params: Mapping[str, int], kv_lens: Sequence[int] | None) -> str:
    """The parameters that are not what they would be anyway."""
    told = registry.unusual_params(op, precision, params, kv_lens)
    named = " ".join(f"{name}={params[name]}" for name in told)
    return registry.case_name(named, kv_lens) or "default shape"


def _measure_peers(kept: _LadderState, choice: Choice, spec: Spec, roofs: RoofsArgument, max_seconds: float) -> None:
    """PyTorch's rows, each kept as soon as it is there; whatever PyTorch raises is said, and costs no rung."""
    if not kept.wanted:
        kept.torch = f"nothing of PyTorch's is known to do the work of {spec.operation}"
        return
    try:
        lacking = torch_peers.why_unavailable(choice.backend)
        kept.torch = lacking or f"PyTorch {torch_peers.version()}"
    except Exception as error:
        lacking = kept.torch = f"PyTorch cannot be loaded: {torch_peers.describe_torch_error(error)}"
    if lacking:
        kept.wanted = []
        return
    timer = next((str(row["timer"]) for row in kept.rows.values() if row["timer"]), None)
    asked = torch_peers.PeerRequest(spec, timer, "stored" if roofs == "auto" else roofs, max_seconds)
    try:
        with hardware.borrow_device(choice.backend, choice.index) as device:
            for peer, row in torch_peers.measure_peers(device, asked, kept.wanted):
                kept.beside.append((peer.name, row))
    except Exception as error:
        if getattr(error, "fatal", False):
            raise
        kept.beside += [
            (peer.name, torch_peers.failed_row(spec, peer, error)) for peer in kept.wanted[len(kept.beside) :]
        ]
