"""`bwprof.ablation`: measure an operation's variants one after the other, beside PyTorch's counterparts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pandas as pd

from bwprof import hardware, kernels, registry
from bwprof.errors import SweepError, attach_frame
from bwprof.experiments import ablation_table, torch_peers
from bwprof.hardware import Choice, Device
from bwprof.measuring.operation import CACHES, DEFAULT_CACHE, Spec
from bwprof.results.frame import to_rows
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.runs import api
from bwprof.runs.plan import DEFAULT_CASE_SECONDS, EVERY_VARIANT, SweepRequest
from bwprof.text.parsing import describe_unknown, merge_keywords, parse_fraction, parse_int, parse_names, parse_seconds

DEFAULT_PRECISION = "fp32"

NOT_REQUESTED = "it was not requested (vs='torch', --vs torch)"


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
    """Measure all variants of an operation on one shape, and compare each gain with its prediction.

    Every variant is measured as in a sweep, in this process: verified, cold, by the same timer. Its gain over the last
    variant before it that runs the shape stands beside the predicted gain.

    Parameters
    ----------
    op : str
        The operation.
    precision : str, optional
        Left out: the predictions' precision if there are no parameters and lengths, else FP32.
    vs : {"torch"}, optional
        Measure PyTorch's counterparts, too, if it is installed: on tensors of the same values, verified against the
        same reference, timed by the same timer.
    variant : str or iterable of str, optional
        Measure these variants alone.
    device, backend, kv_lens, cache, seed, timer, metrics, rel_ci, max_seconds, roofs, progress
        As in `bwprof.sweep`; ``metrics="occupancy"`` counts the achieved occupancy beside the theoretical one.
    grid : mapping, optional
        Parameters, as in `params`, for names that are also keywords.
    **params : int or str
        One value for each parameter of the operation. Without any, and without lengths, the predictions' shape.

    Returns
    -------
    pandas.DataFrame
        A row for each variant, cheapest first, then one for each counterpart (`kind` is "variant" or "peer"): version,
        status, reason, time_ms, speedup_vs_torch (the fastest counterpart's time divided by its own), speedup_vs_first,
        measured_gain and predicted_gain (the previous variant's time divided by its own), predicted_at (the precision
        and shape of the prediction) and more. A variant that refuses the shape has a reason; ratios are of verified
        rows alone. ``attrs["run"]`` is the metadata, ``attrs["torch"]`` PyTorch's version, or why there is none.

    Raises
    ------
    ValueError
        For anything unknown or out of range, before the measurement.
    SweepError
        When the device is lost.

    Any exception that ends it early, such as KeyboardInterrupt, has the finished rows as `frame`;
    ``frame.attrs["missing"]`` names the other variants and counterparts.

    Examples
    --------
    >>> import bwprof
    >>> data = bwprof.ablation("gemm", M=4, N=64, K=64, device="cpu", cache="hot", max_seconds=0.01, roofs=False)
    >>> data["version"].tolist()
    ['naive', 'gemv', 'blocked']
    >>> data["predicted_gain"].tolist()[1:]
    [1.2, 6.0]
    """
    if vs not in (None, torch_peers.TORCH):
        raise ValueError(describe_unknown("vs", str(vs), [torch_peers.TORCH]))
    if cache not in CACHES:
        raise ValueError(describe_unknown("cache", str(cache), CACHES))
    choice = hardware.choose_device(backend, device)
    every = registry.operation(op)["variants"].get(choice.backend, [])
    chosen = _choose_variants(op, choice.backend, every, parse_names("variant", variant))
    lens = registry.parse_lengths(kv_lens)
    precision, sizes = _complete_shape(chosen[0]["at"], precision, merge_keywords(grid, params, "grid"), lens)
    shape = registry.complete_params(op, precision, sizes, lens)
    names = tuple(row["name"] for row in chosen if precision in row["precisions"])
    registry.check_kernels((op, row["name"] if variant else None, precision, choice.backend) for row in chosen)
    place = f"{choice.backend}:{choice.index}"
    # Describe the kernels before the measurement: an error must not cost results.
    described = kernels.variants(op, place, precision=precision, kv_lens=lens, **shape)
    spec = Spec(op, op, precision, shape, None if lens is None else tuple(lens), None, cache, seed)
    result = _Ablation(every, chosen, spec, choice, described, None if vs is None else torch_peers.peers_of(op))
    request = SweepRequest(
        operations=(op,),
        params={name: (value,) for name, value in shape.items()},
        kv_lens=lens,
        precisions=(precision,),
        variants=names if variant is not None else (EVERY_VARIANT,),
        caches=(cache,),
        device=place,
        seed=parse_int(seed, "seed"),
        timer=timer,
        metrics=parse_names("metrics", metrics),
        rel_ci=None if rel_ci is None else parse_fraction(rel_ci, "rel_ci"),
        max_seconds=parse_seconds(max_seconds, "max_seconds", from_zero=True),
    )
    return result.measure(request, api.RunOptions(roofs=check_roofs(roofs), progress=progress))


@dataclass
class _Ablation:
    """The variants of an ablation, and what was measured so far."""

    every: Sequence[Mapping[str, Any]]
    chosen: Sequence[Mapping[str, Any]]
    spec: Spec
    choice: Choice
    described: Sequence[Mapping[str, Any]]
    peers: Sequence[torch_peers.Peer] | None  # None: not requested
    rows: dict[str, RowDict] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    torch: str = NOT_REQUESTED
    peer_rows: list[tuple[str, RowDict]] = field(default_factory=list)

    def measure(self, request: SweepRequest, options: api.RunOptions) -> pd.DataFrame:
        """Measure the variants, then the peers; an exception has the finished rows, unless it came before the run."""
        try:
            self._add_run(api.run_sweep(request, options))
            if self.peers is not None:
                self._measure_peers(self.peers, options.roofs, request.max_seconds or 0.0)
        except BaseException as error:
            if not self.run and getattr(error, "frame", None) is not None:
                self._add_run(error.frame)  # type: ignore[attr-defined]
            final = self._attach_to(error) if self.run else error
            if final is error:
                raise
            raise final from error
        return self.frame()

    def _add_run(self, measured: pd.DataFrame) -> None:
        self.rows = {str(row["variant"]): row for row in to_rows(measured)}
        self.run = dict(measured.attrs.get("run", {}))

    def _measure_peers(self, peers: Sequence[torch_peers.Peer], roofs: RoofsArgument, max_seconds: float) -> None:
        if not peers:
            self.torch = f"PyTorch has no known counterpart of {self.spec.operation}"
            return
        self.torch, runs = torch_peers.describe_torch(self.choice.backend)
        self.peers = peers if runs else []
        timer = next((str(row["timer"]) for row in self.rows.values() if row["timer"]), None)
        stored_roofs: RoofsArgument = "stored" if roofs == "auto" else roofs
        request = torch_peers.PeerRequest(self.choice, self.spec, timer, stored_roofs, max_seconds)
        for peer in self.peers:
            self.peer_rows.append((peer.name, torch_peers.measure_peer(request, peer)))

    def frame(self, missing: Sequence[str] = ()) -> pd.DataFrame:
        """Return the rows without the `missing` ones; none if nothing was measured."""
        spec = self.spec
        unusual = registry.unusual_params(spec.operation, spec.precision, spec.params, spec.kv_lens)
        named = " ".join(f"{name}={spec.params[name]}" for name in unusual)
        common = {
            "operation": spec.operation,
            "precision": spec.precision,
            "shape": registry.case_name(named, spec.kv_lens) or "default shape",
            "backend": self.choice.backend,
            "device": self.choice.name,
        }
        names = {row["name"] for row in self.chosen}
        data = ablation_table.make_frame(
            [row for row in self.chosen if row["name"] not in missing] if self.rows else [],
            self.rows,
            self.described,
            self.peer_rows,
            common,
            {row["at"] for row in self.chosen if row["at"] is not None and _is_predicted_shape(spec, row["at"])},
            {after["name"] for before, after in pairwise(self.every) if before["name"] not in names},
        )
        data.attrs = {"run": self.run, torch_peers.TORCH: self.torch, ablation_table.MISSING: list(missing)}
        return data

    def _attach_to(self, error: BaseException) -> BaseException:
        """Return an early end with the finished rows as `frame`: a SweepError for a lost device."""
        self.run["status"] = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        names = [row["name"] for row in self.chosen if self.spec.precision in row["precisions"]]
        peers = [peer.name for peer in self.peers or ()][len(self.peer_rows) :]
        data = self.frame([name for name in names if name not in self.rows] + peers)
        if getattr(error, "fatal", False):
            return SweepError(f"the device is lost, only a new process can use it again: {error}", data)
        return attach_frame(error, data)


def _complete_shape(
    at: str | None, precision: str | None, params: Mapping[str, Any], kv_lens: Sequence[int] | None
) -> tuple[str, Mapping[str, Any]]:
    """Return precision and parameters; those of the predictions if no parameter and no length is named."""
    default = DEFAULT_PRECISION
    if at is not None and not params and kv_lens is None:
        default, params = registry.parse_point(at)
    return registry.check_precision(default if precision is None else precision), params


def _choose_variants(
    op: str, backend: str, every: Sequence[dict[str, Any]], requested: Sequence[str]
) -> list[dict[str, Any]]:
    names = [row["name"] for row in every]
    for name in requested:
        if name not in (*names, EVERY_VARIANT):
            raise ValueError(describe_unknown(f"variant of {op} on {backend}", name, [*names, EVERY_VARIANT]))
    if not every:
        others = [name for name, rows in registry.operation(op)["variants"].items() if rows]
        raise ValueError(f"{op} has no variant on {backend}: allowed are {', '.join(others)}")
    return [row for row in every if not requested or row["name"] in requested or EVERY_VARIANT in requested]


def _is_predicted_shape(spec: Spec, at: str) -> bool:
    precision, shape = registry.parse_point(at)
    complete = registry.complete_params(spec.operation, spec.precision, shape)
    return spec.kv_lens is None and precision == spec.precision and complete == spec.params
