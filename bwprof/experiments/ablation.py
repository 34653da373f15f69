"""`bwprof.ablation`: measure an operation's variants in turn, beside PyTorch's counterparts, and make its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pandas as pd

from bwprof import hardware, kernels, registry
from bwprof.errors import SweepError, attach_frame
from bwprof.experiments import torch_peers
from bwprof.hardware import Choice, Device
from bwprof.measuring.operation import CACHES, DEFAULT_CACHE, Spec
from bwprof.results.frame import to_rows
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofsArgument, check_roofs
from bwprof.runs import api
from bwprof.runs.plan import DEFAULT_CASE_SECONDS, EVERY_VARIANT, SweepRequest
from bwprof.text import document
from bwprof.text.document import Document, Section
from bwprof.text.formatting import format_figure, format_gain, format_seconds, format_short, is_missing
from bwprof.text.parsing import check_known, merge_keywords, parse_fraction, parse_int, parse_names, parse_seconds

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
        and shape of the prediction), break_even_tokens (launches that save, over the first variant, the transform_ms of
        one that transforms its inputs once) and more. A variant that refuses the shape has a reason; ratios are of
        verified rows alone. ``attrs["run"]`` is the metadata, ``attrs["torch"]`` PyTorch's version, or why there is
        none.

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
    ['naive', 'gemv', 'blocked', 'separate', 'words', 'bytes']
    >>> data["predicted_gain"].tolist()[1:]
    [1.2, 6.0, 16.0, 1.5, 2.5]
    """
    if vs is not None:
        check_known("vs", vs, [torch_peers.TORCH])
    check_known("cache", cache, CACHES)
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
        common = {"operation": spec.operation, "precision": spec.precision}
        common |= {"backend": self.choice.backend, "device": self.choice.name}
        common["shape"] = registry.case_name(named, spec.kv_lens) or "default shape"
        names = {row["name"] for row in self.chosen}
        data = make_frame(
            [row for row in self.chosen if row["name"] not in missing] if self.rows else [],
            self.rows,
            self.described,
            self.peer_rows,
            common,
            {row["at"] for row in self.chosen if row["at"] is not None and _is_predicted_shape(spec, row["at"])},
            {after["name"] for before, after in pairwise(self.every) if before["name"] not in names},
        )
        data.attrs = {"run": self.run, torch_peers.TORCH: self.torch, MISSING: list(missing)}
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
        check_known(f"variant of {op} on {backend}", name, [*names, EVERY_VARIANT])
    if not every:
        others = [name for name, rows in registry.operation(op)["variants"].items() if rows]
        raise ValueError(f"{op} has no variant on {backend}: allowed are {', '.join(others)}")
    return [row for row in every if not requested or row["name"] in requested or EVERY_VARIANT in requested]


def _is_predicted_shape(spec: Spec, at: str) -> bool:
    precision, shape = registry.parse_point(at)
    complete = registry.complete_params(spec.operation, spec.precision, shape)
    return spec.kv_lens is None and precision == spec.precision and complete == spec.params


VARIANT, PEER = "variant", "peer"  # values of the column kind
MISSING = "missing"  # the attribute of a frame that names what an early end left unmeasured

_COLUMNS = """
operation precision shape backend device version kind status reason verified:boolean flags time_ms:float64
time_ms_lo:float64 time_ms_hi:float64 speedup_vs_torch:float64 speedup_vs_first:float64 measured_gain:float64
predicted_gain:float64 predicted_at predicted_here:boolean transform_ms:float64 break_even_tokens:float64
bandwidth_gb_s:float64 tflops:float64 pct_peak:float64 pct_limit:float64 theoretical_occupancy_pct:float64
achieved_occupancy_pct:float64 limiter registers:Int64 shared_bytes:Int64 local_bytes:Int64 changes because
default:boolean timer
"""

# Each column's type, "" for any, in order.
COLUMNS = {name: kind for name, _, kind in (word.partition(":") for word in _COLUMNS.split())}

_COPIED = (
    *("status", "reason", "verified", "flags", "time_ms", "time_ms_lo", "time_ms_hi", "transform_ms"),
    *("bandwidth_gb_s", "tflops", "pct_peak", "pct_limit", "timer"),
)


def make_frame(
    variants: Sequence[Mapping[str, Any]],
    rows: Mapping[str, RowDict],
    kernels: Sequence[Mapping[str, Any]],
    peers: Sequence[tuple[str, RowDict]],
    common: Mapping[str, Any],
    here: Collection[str],
    left_out: Collection[str] = (),
) -> pd.DataFrame:
    """Make a frame with a row for each variant, then for each peer.

    `variants` are the registry's, `rows` were measured, by variant, `kernels` are as `bwprof.variants` describes them,
    `peers` have names; `common` columns are of all rows. Predictions hold for the registry's names `here` of this
    precision and shape, but not for variants in `left_out`, whose predecessor was not measured.
    """
    lines = []
    for variant in variants:
        row = rows.get(variant["name"]) or _unmeasured_row(variant, common["precision"])
        own = [kernel for kernel in kernels if kernel["variant"] == variant["name"]]
        line = _line(variant["name"], VARIANT, row) | _kernel_columns(own)
        reason = own[0]["reason"] if own and row["status"] == "skipped" else ""
        if reason and reason in str(row["reason"]):
            line["reason"] = reason  # the row's repeats operation, variant and precision
        if variant["predicted"] is not None:
            holds = variant["at"] in here and variant["name"] not in left_out
            line |= {"predicted_gain": variant["predicted"], "predicted_at": variant["at"], "predicted_here": holds}
        lines.append(line | {"changes": variant["changes"], "because": variant["because"]})
    lines += [_line(name, PEER, row) for name, row in peers]
    data = pd.DataFrame([{**line, **common} for line in lines], columns=[*COLUMNS])
    data = data.astype({name: kind for name, kind in COLUMNS.items() if kind})
    ours = data["kind"].eq(VARIANT)
    time = data["time_ms"].where(data["status"].eq("ok") & data["verified"].fillna(value=False) & data["time_ms"].gt(0))
    first = next(iter(time[ours].dropna()), float("nan"))
    data["speedup_vs_torch"] = time[~ours].min() / time
    data["speedup_vs_first"] = first / time
    data["break_even_tokens"] = data["transform_ms"] / (first - time).where(time < first)
    data["measured_gain"] = (time.ffill().shift() / time).where(ours)
    return data


def _unmeasured_row(variant: Mapping[str, Any], precision: str) -> RowDict:
    takes = variant["precisions"]
    reason = "it was not measured" if precision in takes else f"it takes {', '.join(takes)}, not {precision}"
    return {"status": "skipped", "reason": reason}


def _line(version: str, kind: str, row: RowDict) -> dict[str, Any]:
    copied = {name: row.get(name) for name in _COPIED}
    return {"version": version, "kind": kind, "achieved_occupancy_pct": row.get("occupancy_pct"), **copied}


def _kernel_columns(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the lowest occupancy of several kernels, and their most registers and bytes."""
    columns: dict[str, Any] = {"default": any(kernel["default"] for kernel in kernels)}
    compiled = [kernel for kernel in kernels if kernel["registers"] is not None]
    known = [kernel for kernel in compiled if kernel["theoretical_pct"] is not None]
    if known:
        least = min(known, key=itemgetter("theoretical_pct"))
        columns |= {"theoretical_occupancy_pct": least["theoretical_pct"], "limiter": least["limiter"]}
    if compiled:
        columns |= {name: max(kernel[name] for kernel in compiled) for name in ("registers", "local_bytes")}
        columns["shared_bytes"] = max(k["static_shared_bytes"] + k["dynamic_shared_bytes"] for k in compiled)
    return columns


def is_verified(row: pd.Series[Any]) -> bool:
    """Return whether a row was measured and its result is right, so that its time may be compared."""
    return row["status"] == "ok" and not is_missing(row["verified"]) and bool(row["verified"])


NUMBERS = ("Speedup vs PyTorch", "Memory BW", "Occupancy")
GAINS_NUMBERS = ("Time", "vs first", "Measured gain", "Predicted gain")


def title(data: pd.DataFrame) -> str:
    """Return operation, precision, shape and device."""
    first = data.iloc[0]
    return f"{first['operation']} {first['precision']}, {first['shape']}, on {first['device']}"


def table(data: pd.DataFrame) -> pd.DataFrame:
    """Return each version's speed-up over PyTorch, bandwidth, occupancy and change, as text."""
    columns = {
        "Version": data["version"],
        "Speedup vs PyTorch": data["speedup_vs_torch"].map(_format_times),
        "Memory BW": data.apply(_format_bandwidth, axis=1),
        "Occupancy": data.apply(_format_occupancy, axis=1),
        "Key Change": data.apply(_describe_change, axis=1),
    }
    return pd.DataFrame(columns)


def gains(data: pd.DataFrame) -> pd.DataFrame:
    """Return each version's measured and predicted gains, as text."""
    columns = {
        "Version": data["version"],
        "Time": data.apply(lambda row: format_seconds(row["time_ms"] / 1e3) if is_verified(row) else "", axis=1),
        "vs first": data["speedup_vs_first"].map(_format_times),
        "Measured gain": data["measured_gain"].map(_format_gain),
        "Predicted gain": data["predicted_gain"].map(_format_gain),
        "Reason of the prediction": data.apply(_describe_reason, axis=1),
    }
    return pd.DataFrame(columns)


def notes(data: pd.DataFrame) -> list[str]:
    """Return notes on the tables: which PyTorch, what a gain is, where predictions hold, which rows are in doubt."""
    lines = [_torch_note(data)]
    if missing := data.attrs.get(MISSING):
        lines.append(f"Not measured, as the run ended early: {', '.join(missing)}.")
    lines.append(
        "A gain is the time of the last variant before that ran, divided by the variant's own: within a factor of two "
        "in percent, +25 % for 1.25, and 0 % for no change."
    )
    if data["predicted_at"].notna().any():
        lines.append("Predictions are over the previous variant of all, of this shape or of that behind (at ...).")
    if data["theoretical_occupancy_pct"].notna().any():
        lines.append("Occupancy is the theoretical one, of several kernels the lowest.")
    pays = "{} transforms its inputs once, in {}, which pays over the first variant after {:.1f} tokens (launches)."
    for _, row in data[data["break_even_tokens"].notna()].iterrows():
        lines.append(pays.format(row["version"], format_seconds(row["transform_ms"] / 1e3), row["break_even_tokens"]))
    flagged = data[data["flags"].fillna("").ne("") & data["status"].eq("ok")]
    if len(flagged):
        lines.append(f"In doubt (*): {_join(flagged, 'flags')}.")
    return lines


def _torch_note(data: pd.DataFrame) -> str:
    torch, peers = data.attrs.get("torch"), data[data["kind"].eq(PEER)]
    if data["speedup_vs_torch"].isna().all():
        reasons = _join(peers, "reason") or torch or "its times are not among the rows"
        return f"PyTorch's column is empty: {reasons}."
    fastest = peers.sort_values("speedup_vs_torch", ascending=False)["version"].iloc[0]
    return f"Speedup vs PyTorch: against {fastest} of {torch or 'PyTorch'}."


def markdown(data: pd.DataFrame) -> str:
    """Return title, tables and notes as Markdown."""
    blocks = (document.make_frame_table(gains(data), numbers=GAINS_NUMBERS), document.make_list(notes(data)))
    sections = (Section("gains", "Predicted and measured", tuple(block for block in blocks if block)),)
    lead = document.make_frame_table(table(data), numbers=NUMBERS)
    return document.to_markdown(Document(f"Variants: {title(data)}", "", sections, lead=(lead,) if lead else ()))


def _join(data: pd.DataFrame, column: str) -> str:
    return "; ".join(f"{version}: {text}" for version, text in zip(data["version"], data[column], strict=True))


def _format_times(value: Any) -> str:
    """Write a ratio, a small one with two digits."""
    return "" if is_missing(value) else f"{format_short(value, '.2f' if value >= 0.1 else '.2g')}x"


def _format_gain(value: Any) -> str:
    return "" if is_missing(value) else format_gain(value)


def _format_bandwidth(row: pd.Series[Any]) -> str:
    if not is_verified(row) or is_missing(row["bandwidth_gb_s"]):
        return ""
    return f"{format_figure(row['bandwidth_gb_s'], whole_from=100)} GB/s{'*' if row['flags'] else ''}"


def _format_occupancy(row: pd.Series[Any]) -> str:
    theoretical, achieved = row["theoretical_occupancy_pct"], row["achieved_occupancy_pct"]
    if is_missing(theoretical):
        return ""
    return f"{theoretical:.0f} %" + ("" if is_missing(achieved) else f" ({achieved:.0f} % achieved)")


def _describe_change(row: pd.Series[Any]) -> str:
    changes, reason = ("" if is_missing(row[name]) else str(row[name]) for name in ("changes", "reason"))
    if is_verified(row):
        return changes or "for comparison"
    status = {"ok": "not verified", "skipped": "does not run here"}.get(row["status"], str(row["status"]))
    return ": ".join(filter(None, ("; ".join(filter(None, (changes, status))), reason)))


def _describe_reason(row: pd.Series[Any]) -> str:
    if is_missing(row["because"]):
        return ""
    return str(row["because"]) if row["predicted_here"] else f"(at {row['predicted_at']}) {row['because']}"
