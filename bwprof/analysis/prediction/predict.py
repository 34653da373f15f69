"""Predict times on a device that is not at hand from bytes, FLOPs and the device's roofs."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import _core, registry
from bwprof.analysis.prediction import DEFAULT_EFFICIENCY, catalog
from bwprof.analysis.prediction.catalog import Card, resolve_card, split_devices
from bwprof.analysis.prediction.efficiency import Efficiency
from bwprof.analysis.prediction.efficiency import efficiency as learn
from bwprof.analysis.prediction.workload import (
    PredictedCase,
    Workload,
    combine_params,
    estimate_by_share,
    make_workload,
)
from bwprof.results import schema
from bwprof.results.row import RunMetadata
from bwprof.roofs import limiter
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import finite_or_none, list_items, parse_names, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from bwprof.roofs.model import Roofs

_log = logging.getLogger("bwprof.predict")
DEFAULT_DEVICE = "A100-80GB"
PREDICTED = "predicted"
_LEAST_SHARE = 1e-6


def predict(
    op: str | Sequence[str] | pd.DataFrame,
    device: str | Roofs | Card | Sequence[str | Roofs | Card] = DEFAULT_DEVICE,
    *,
    precision: str | Sequence[str] | None = None,
    efficiency: float | pd.DataFrame | Efficiency = DEFAULT_EFFICIENCY,
    shapes: pd.DataFrame | None = None,
    kv_lens: str | Sequence[int | str] | None = None,
    **params: Any,
) -> pd.DataFrame:
    """Predict the times of operations on a device that is not at hand.

    A row takes the time of a stream of its bytes or of its FLOPs at the dense rate, whichever is longer, divided by the
    efficiency, and an empty launch. The times of streams are scaled from a device on which they were measured: the
    bandwidth part by bandwidth, the latency part by the clock.

    Parameters
    ----------
    op : str, sequence of str or DataFrame
        Operations of `bwprof.operations()`; or rows, whose operations, precisions and parameters are predicted.
    device : str, bwprof.Roofs or Card
        An id of `bwprof.analysis.catalog()` ("H100-SXM"), numbers ("bandwidth=3200,fp16=400": GB/s, TFLOP/s; also
        memory= in GB, clock= in MHz, units=, floor= in us), or the measured roofs of a device. "h100" takes the nearest
        id and logs it. Several devices are a list or a text with commas; a case's rows stand together.
    precision : str or sequence of str
        The default is fp32 and fp16, as far as an operation has them.
    efficiency : float, DataFrame or Efficiency
        The share of its roof that a kernel reaches, 1e-6 to 1; or a frame of measured rows from which to learn it; or
        the result of `bwprof.efficiency`.
    shapes : DataFrame, optional
        Parameters as columns, a row each.
    kv_lens : sequence of int, or str, optional
        One length per batch entry, for the operations that take it, as in `bwprof.cost`: [100, 7000], "100,7Ki".
    **params : int, array or list of int
        Parameters of the operation. NumPy arrays go together row by row, lists are swept as their product; missing
        parameters take their defaults.

    Returns
    -------
    pandas.DataFrame
        Rows as a sweep's, with the status "predicted". Where the efficiency was learned, nine of ten times should lie
        between `time_ms_lo` and `time_ms_hi`. `reason` names the sources. Where the device's arithmetic rate in a
        precision is not known, `time_ms` of an operation with FLOPs is a lower bound: `reason` says so, and it is not
        compared with other precisions.

    Raises
    ------
    ValueError
        For unknown names (with the nearest one), and for parameters or an efficiency out of range.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.predict("gemm", device="A100-80GB", precision="fp16", M=[1, 4096], N=4096, K=4096)
    >>> frame["bound"].tolist(), frame["status"].unique().tolist()
    (['memory', 'compute'], ['predicted'])
    """
    import pandas as pd

    op, shapes = to_pandas(op), to_pandas(shapes)
    devices, model = split_devices(device), resolve_efficiency(efficiency)
    if not devices:
        raise ValueError("device is empty: at least one is needed")
    if len(devices) > 1:
        more: dict[str, Any] = {"precision": precision, "efficiency": model, "shapes": shapes, "kv_lens": kv_lens}
        return interleave_devices([predict(op, single, **more, **params) for single in devices])
    if isinstance(op, pd.DataFrame):
        if params or shapes is not None or kv_lens is not None:
            raise ValueError("rows to predict have their parameters: leave out shapes= and the others")
        return predict_rows(_read_cases(op, precision), devices[0], model)
    card = resolve_card_for_model(devices[0], model)
    names = [op] if isinstance(op, str) else list_items(op, "op", "an operation, several, or a frame is needed")
    if shapes is not None:
        params = _merge_shapes(shapes, params)
    workloads = _make_workloads(names, precision, params, kv_lens)
    return _join([_predict_workload(workload, card, model) for workload in workloads], card)


def _make_workloads(
    names: Sequence[str],
    precision: str | Sequence[str] | None,
    params: Mapping[str, Any],
    kv_lens: str | Sequence[int | str] | None,
) -> list[Workload]:
    takes_lengths = {name: registry.operation(name)["takes_kv_lens"] for name in names}
    if kv_lens is not None and names and not any(takes_lengths.values()):
        raise ValueError(f"kv_lens: {', '.join(names)} takes none")
    lengths = registry.parse_lengths(kv_lens)
    workloads = []
    for name in names:
        columns, cases = combine_params(name, params)
        for chosen in _check_precisions(name, precision):
            if lengths is None or not takes_lengths[name]:
                workloads.append(make_workload(name, chosen, columns, names=cases))
                continue
            rows = zip(*np.broadcast_arrays(*map(np.ravel, columns.values())), strict=True) if columns else [()]
            for at, row in enumerate(rows):  # each with a batch of these lengths
                one, case = dict(zip(columns, row, strict=True)), cases and [cases[at]]
                workloads.append(make_workload(name, chosen, one, names=case, kv_lens=lengths))
    if not workloads:
        raise ValueError("no operation to predict")
    return workloads


def predict_rows(
    cases: Iterable[PredictedCase | tuple[str, Mapping[str, int], str]],
    device: str | Roofs | Card = DEFAULT_DEVICE,
    efficiency: float | pd.DataFrame | Efficiency = DEFAULT_EFFICIENCY,
) -> pd.DataFrame:
    """Predict a list of cases, (operation, parameters, precision) each: a row for each, in their order.

    Examples
    --------
    >>> frame = predict_rows([("gemm", {"M": 1}, "fp16"), ("kv_copy", {}, "fp16")], "H200")
    >>> frame[["operation", "status"]].values.tolist()
    [['gemm', 'predicted'], ['kv_copy', 'predicted']]
    """
    model = resolve_efficiency(efficiency)
    card = resolve_card_for_model(device, model)
    groups: dict[tuple[Any, ...], list[tuple[int, PredictedCase]]] = {}
    for at, fields in enumerate(cases):
        case = PredictedCase(*fields)
        alone = at if case.kv_lens is not None else None
        key = (case.operation, case.precision, case.variant, tuple(sorted(case.params)), alone)
        groups.setdefault(key, []).append((at, case))
    frames, places = [], []
    for (operation, precision, variant, names, _), members in groups.items():
        params = {name: np.array([case.params[name] for _, case in members]) for name in names}
        titles = [case.name or operation for _, case in members]
        lengths = members[0][1].kv_lens
        workload = make_workload(operation, precision, params, names=titles, kv_lens=lengths, variant=variant)
        more = np.array([case.more for _, case in members])
        read = {name: workload.cost[name] + more for name in ("bytes_read", "algorithmic_bytes_read")}
        workload = replace(workload, cost=replace(workload.cost, **read))
        frames.append(_predict_workload(workload, card, model))
        places += [at for at, _ in members]
    if not frames:
        raise ValueError("no case to predict")
    frame = _join(frames, card)
    ordered = frame.iloc[np.argsort(places, kind="stable")].reset_index(drop=True)
    ordered.attrs = frame.attrs
    return ordered


def interleave_devices(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join the rows of several devices, those of a case together; keep each device's metadata."""
    import pandas as pd

    by_device = {str(frame.attrs["run"]["predicted_for"]): frame for frame in frames}
    joined = pd.concat(by_device.values()).sort_index(kind="stable", ignore_index=True)
    runs = {name: dict(frame.attrs["run"]) for name, frame in by_device.items()}
    run = {**frames[0].attrs["run"], "predicted_for": ", ".join(by_device), "devices": runs}
    joined.attrs = {**frames[0].attrs, "run": RunMetadata(run)}
    return joined


def resolve_card_for_model(device: str | Roofs | Card, model: float | Efficiency) -> Card:
    """Return the device as a model's predictions use it, and log the id that stands for another name."""
    if isinstance(device, str) and "=" not in device and catalog.find(device) is None:
        taken, *others = (entry.id for entry in catalog.find_similar(device) or [catalog.find_entry(device)])
        rest = f", not {', '.join(others)}" if others else ""
        _log.warning("device '%s' is %s here%s", quote_text(device), taken, rest)
    return resolve_card(device, model.streams if isinstance(model, Efficiency) else None)


def resolve_efficiency(efficiency: object) -> float | Efficiency:
    """Check an efficiency; learn it from a frame. Raise ValueError for a number that is no share, else TypeError."""
    import pandas as pd

    efficiency = to_pandas(efficiency)
    if isinstance(efficiency, pd.DataFrame):
        return learn(efficiency)
    if isinstance(efficiency, Efficiency):
        return efficiency
    if isinstance(efficiency, bool) or not hasattr(efficiency, "__float__"):
        raise TypeError(f"efficiency is {repr_short(efficiency)}: a share, a frame or a bwprof.efficiency is needed")
    share = finite_or_none(efficiency)
    if share is None or not _LEAST_SHARE <= share <= 1:
        raise ValueError(f"efficiency is {repr_short(efficiency)}: allowed is a share from {_LEAST_SHARE:g} to 1")
    return share


def _check_precisions(operation: str, precision: str | Sequence[str] | None) -> list[str]:
    allowed = registry.operation(operation)["precisions"]
    if precision is None:
        return [name for name in ("fp32", "fp16") if name in allowed] or allowed[:1]
    return list(dict.fromkeys(registry.check_precision(word) for word in parse_names("precision", precision)))


def _merge_shapes(shapes: pd.DataFrame, params: Mapping[str, Any]) -> dict[str, Any]:
    import pandas as pd

    if not isinstance(shapes, pd.DataFrame):
        raise TypeError(f"shapes is {repr_short(shapes)}: a pandas.DataFrame with parameters as columns is needed")
    if not len(shapes):
        raise ValueError("shapes has no rows")
    twice = [name for name in params if name in shapes.columns]
    if twice:
        raise ValueError(f"{twice[0]} is given twice: in shapes= and as {twice[0]}=")
    return {str(name): shapes[name].to_numpy() for name in shapes.columns} | dict(params)


def _read_cases(frame: pd.DataFrame, precision: str | Sequence[str] | None) -> list[PredictedCase]:
    """Read the cases of rows, each in its own precision or in all that are passed."""
    from bwprof.results.frame import to_rows

    if precision is not None and "precision" in frame.columns:
        shape = ("operation", "case", "kv_lens", *schema.param_names())
        frame = frame.drop_duplicates([name for name in frame.columns if name in shape])
    cases = []
    for row in to_rows(frame):
        operation = row["operation"]
        params = {name: row[name] for name in registry.param_names(operation) if row[name] is not None}
        for name in [row["precision"]] if precision is None else _check_precisions(operation, precision):
            cases.append(PredictedCase(operation, params, name, row["case"] or "", registry.row_lengths(row)))
    return cases


MAX_COMPARED = 20_000  # rows that are also compared with FP32, one by one


def _join(frames: list[pd.DataFrame], card: Card) -> pd.DataFrame:
    """Join the frames of a device, compare precisions, and add the metadata."""
    import pandas as pd

    joined = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    if len(frames) > 1 and len(joined) <= MAX_COMPARED:
        _compare_precisions(joined)
    run = {"predicted_for": card.name, "source": card.source, "bwprof_version": _core.__version__}
    joined.attrs = {"schema_version": schema.SCHEMA_VERSION, "run": RunMetadata(run)}
    return joined


def _compare_precisions(frame: pd.DataFrame) -> None:
    """Fill the columns that compare a row with its FP32 row; lower bounds have no ratio of times."""
    from bwprof.results import frame as results_frame
    from bwprof.results import pairs

    rows = results_frame.to_rows(frame)
    pairs.fill_comparisons(rows)
    for name in schema.COMPARISON_NAMES:
        frame[name] = [math.nan if row[name] is None else row[name] for row in rows]
    bounds = is_lower_bound(frame)
    if (bounds & (frame["precision"] == pairs.BASELINE).to_numpy(bool)).any():  # then all ratios are of bounds
        bounds |= limiter.read_numbers(frame, "flops") > 0
    frame.loc[bounds, ["speedup_vs_fp32", "bandwidth_vs_fp32"]] = math.nan


def is_lower_bound(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Check which predicted times are lower bounds: they have FLOPs whose rate on the device is not known."""
    flops, dense, best = (limiter.read_numbers(frame, name) for name in ("flops", "peak_tflops", "measured_tflops"))
    return np.asarray((flops > 0) & np.isnan(dense) & np.isnan(best), bool)


def _predict_workload(work: Workload, card: Card, model: float | Efficiency) -> pd.DataFrame:
    """Predict the rows of a workload."""
    from bwprof.results.frame import from_columns

    if registry.is_link(work.operation) or registry.is_pattern(work.operation):
        raise ValueError(f"{work.operation} is not predicted by memory streams: measure it")
    stream = card.streams.seconds(work.read, work.written)
    if isinstance(model, float):
        source = f"{model:.0%} of the nearer roof and an empty launch"
        estimate = estimate_by_share(work, card, stream, model, source)
    else:
        estimate = model.estimate(work, card, stream)
    seconds, moved = estimate.seconds, work.read + work.written
    ceiling = card.streams.ceiling_gb_s(work.read, work.written)
    dense = card.dense(work.precision)[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        intensity = np.where(moved > 0, work.flops / moved, np.nan)
        roofs = {
            "timer_floor_us": card.streams.floor_seconds * 1e6,
            "time_ms": seconds * 1e3,
            "bandwidth_gb_s": moved / seconds * 1e-9,
            "tflops": work.flops / seconds * 1e-12,
            "arithmetic_intensity": intensity,
            "peak_gb_s": card.bandwidth_gb_s,
            "ceiling_gb_s": ceiling,
            "attainable_gb_s": np.where(moved > 0, moved / stream * 1e-9, np.nan),
            "peak_tflops": dense,
            "measured_tflops": card.best.get(work.precision, math.nan),
        }
        roofline = limiter.attainable(np.where(work.flops > 0, intensity, np.nan), dense, ceiling)
    limit = limiter.classify_columns(
        {**roofs, "bytes_read": work.read, "bytes_written": work.written, "flops": work.flops}
    )
    columns: dict[str, Any] = dict(work.params)
    columns |= {name: work.cost[name] for name in work.cost}
    columns |= roofs
    columns |= {
        "operation": work.operation,
        "precision": work.precision,
        "case": work.operation if work.names is None else np.array(work.names, dtype=object),
        "kv_lens": work.kv_lens,
        "device": card.name,
        "variant": estimate.variant,
        "status": PREDICTED,
        "reason": estimate.reason,
        "cache": "cold",
        "time_ms_lo": estimate.low * 1e3,
        "time_ms_hi": estimate.high * 1e3,
        "pct_peak": 100 * roofs["bandwidth_gb_s"] / card.bandwidth_gb_s,
        "pct_ceiling": 100 * roofs["bandwidth_gb_s"] / ceiling,
        "pct_attainable": 100 * roofs["bandwidth_gb_s"] / roofs["attainable_gb_s"],
        "roofline_tflops": roofline,
        "pct_roofline": 100 * roofs["tflops"] / roofline,
        "bound": limit.bound,
        "ridge": limit.ridge,
        "pct_limit": limit.pct_limit,
        "limiter": limit.limiter,
        "bwprof_version": _core.__version__,
        "schema_version": schema.SCHEMA_VERSION,
    }
    return from_columns(columns, work.count)
