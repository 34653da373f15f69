"""What a device that is not at hand would do: times worked out from bytes, FLOPs and the device's roofs."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import _core, registry
from bwprof.analysis.prediction import DEFAULT_EFFICIENCY, catalogue
from bwprof.analysis.prediction.catalogue import Card, resolve_card, split_devices
from bwprof.analysis.prediction.efficiency import Efficiency
from bwprof.analysis.prediction.efficiency import efficiency as learn
from bwprof.analysis.prediction.workload import (
    Estimate,
    PredictedCase,
    Workload,
    combine_params,
    expand_batches,
    make_workload,
)
from bwprof.results import columns as results_columns
from bwprof.results import schema
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
    """What operations would take on a device that is not at hand.

    A row takes the longer of its bytes over what a plain stream of as many bytes attains there and its FLOPs over the
    dense rate, divided by the efficiency, and an empty launch. What streams of all sizes attain is scaled from a device
    on which it was measured: its bandwidth part by bandwidth, its latency part by the clock.

    Parameters
    ----------
    op : str, sequence of str or DataFrame
        Operations of `bwprof.operations()`; or rows, whose operations, precisions and parameters are predicted again.
    device : str, bwprof.Roofs or Card
        An id of `bwprof.analysis.catalogue()` ("H100-SXM"), numbers ("bandwidth=3200,fp16=400": GB/s, TFLOP/s; also
        memory= in GB, clock= in MHz, units=, floor= in us), or the measured roofs of a device; "h100" takes the nearest
        id, which is logged. Of several, a list or a text with commas, a case's rows stand together.
    precision : str or sequence of str
        fp32 and fp16 when left out, as far as an operation has them.
    efficiency : float, DataFrame or Efficiency
        What share of its roof a kernel reaches, 1e-6 to 1; or a frame of measured rows, from which it is
        learnt; or what `bwprof.efficiency` has learnt from one.
    shapes : DataFrame, optional
        Parameters as columns, a row each.
    kv_lens : sequence of int, or str, optional
        One length per batch entry, for the operations that take it, given as to `bwprof.cost`: [100, 7000], "100,7Ki".
    **params : int, array or list of int
        Parameters of the operation. NumPy arrays go row by row together, lists are swept as their product; what is left
        out takes its default.

    Returns
    -------
    pandas.DataFrame
        Rows as a sweep's, status "predicted". `time_ms_lo` and `time_ms_hi` are what nine of ten times should lie
        between, where the efficiency was learnt. `reason` says what was used. Where the device's arithmetic rate in a
        precision is not known, `time_ms` of what calculates is a lower bound: `reason` says so, and it is compared with
        no other precision.

    Raises
    ------
    ValueError
        For unknown names (with the nearest one), parameters out of range, an efficiency that is none.

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
        return interleave_devices([predict(op, one, **more, **params) for one in devices])
    if isinstance(op, pd.DataFrame):
        if params or shapes is not None or kv_lens is not None:
            raise ValueError("rows to predict have their parameters: leave out shapes= and the others")
        return predict_rows(_cases(op, precision), devices[0], model)
    card = resolve_card_for_model(devices[0], model)
    names = [op] if isinstance(op, str) else list_items(op, "op", "an operation, several, or a frame is needed")
    if shapes is not None:
        params = _with_shapes(shapes, params)
    takes = {name: registry.operation(name)["takes_kv_lens"] for name in names}
    if kv_lens is not None and names and not any(takes.values()):
        raise ValueError(f"kv_lens: {', '.join(names)} takes none")
    lengths = registry.parse_lengths(kv_lens)
    works = []
    for name in names:
        columns, cases = combine_params(name, params)
        for chosen in _precisions(name, precision):
            if lengths is None or not takes[name]:
                works.append(make_workload(name, chosen, columns, names=cases))
            else:
                works += expand_batches(name, chosen, columns, cases, lengths)
    if not works:
        raise ValueError("no operation to predict")
    return _joined([_frame(work, card, model) for work in works], card)


def predict_rows(
    cases: Iterable[PredictedCase | tuple[str, Mapping[str, int], str]],
    device: str | Roofs | Card = DEFAULT_DEVICE,
    efficiency: float | pd.DataFrame | Efficiency = DEFAULT_EFFICIENCY,
) -> pd.DataFrame:
    """The same for a list of cases, (operation, parameters, precision) each: a row for each, in their order.

    Examples
    --------
    >>> found = predict_rows([("gemm", {"M": 1}, "fp16"), ("kv_copy", {}, "fp16")], "H200")
    >>> found[["operation", "status"]].values.tolist()
    [['gemm', 'predicted'], ['kv_copy', 'predicted']]
    """
    model = resolve_efficiency(efficiency)
    card = resolve_card_for_model(device, model)
    groups: dict[tuple[Any, ...], list[tuple[int, PredictedCase]]] = {}
    for at, found in enumerate(cases):
        case = PredictedCase(*found)
        alone = at if case.kv_lens is not None else None
        key = (case.operation, case.precision, case.variant, tuple(sorted(case.params)), alone)
        groups.setdefault(key, []).append((at, case))
    frames, places = [], []
    for (operation, precision, variant, given, _), members in groups.items():
        params = {name: np.array([case.params[name] for _, case in members]) for name in given}
        titles = [case.name or operation for _, case in members]
        lengths = members[0][1].kv_lens
        work = make_workload(operation, precision, params, names=titles, kv_lens=lengths, variant=variant)
        work = work.reading(np.array([case.more for _, case in members]))
        frames.append(_frame(work, card, model))
        places += [at for at, _ in members]
    if not frames:
        raise ValueError("no case to predict")
    whole = _joined(frames, card)
    attrs = whole.attrs
    whole = whole.iloc[np.argsort(places, kind="stable")].reset_index(drop=True)
    whole.attrs = attrs
    return whole


def interleave_devices(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of several devices in one frame, those of a case together; its metadata have each device's."""
    import pandas as pd

    from bwprof.results.row import RunMetadata

    own = {str(frame.attrs["run"]["predicted_for"]): frame for frame in frames}
    whole = pd.concat(own.values()).sort_index(kind="stable", ignore_index=True)
    runs = {name: dict(frame.attrs["run"]) for name, frame in own.items()}
    run = {**frames[0].attrs["run"], "predicted_for": ", ".join(own), "devices": runs}
    whole.attrs = {**frames[0].attrs, "run": RunMetadata(run)}
    return whole


def resolve_card_for_model(device: str | Roofs | Card, model: float | Efficiency) -> Card:
    """The device as predictions by a model see it: streams that are not its own are scaled from those of the device
    that the model was learnt on, else from those that come with bwprof. A name that is none of the catalogue's own is
    logged with the one that is taken.
    """
    if isinstance(device, str) and "=" not in device and catalogue.find(device) is None:
        taken, *others = (entry.id for entry in catalogue.find_similar(device) or [catalogue.find_entry(device)])
        _log.warning(
            "device '%s' is %s here%s", quote_text(device), taken, f", not {', '.join(others)}" if others else ""
        )
    return resolve_card(device, model.streams if isinstance(model, Efficiency) else None)


def resolve_efficiency(efficiency: object) -> float | Efficiency:
    """What was given as an efficiency: a share, or what was learnt; a frame is learnt from.

    Raises
    ------
    ValueError
        For a number that is no share.
    TypeError
        For anything else.
    """
    import pandas as pd

    efficiency = to_pandas(efficiency)
    if isinstance(efficiency, pd.DataFrame):
        return learn(efficiency)
    if isinstance(efficiency, Efficiency):
        return efficiency
    if isinstance(efficiency, bool) or not hasattr(efficiency, "__float__"):
        raise TypeError(
            f"efficiency is {repr_short(efficiency)}: a share, a frame of measured rows, or a bwprof.efficiency"
        )
    share = finite_or_none(efficiency)
    if share is None or not _LEAST_SHARE <= share <= 1:
        raise ValueError(f"efficiency is {repr_short(efficiency)}: allowed is a share from {_LEAST_SHARE:g} to 1")
    return share


def _precisions(operation: str, given: str | Sequence[str] | None) -> list[str]:
    allowed = registry.operation(operation)["precisions"]
    if given is None:
        return [name for name in ("fp32", "fp16") if name in allowed] or allowed[:1]
    return list(dict.fromkeys(registry.check_precision(word) for word in parse_names("precision", given)))


def _with_shapes(shapes: pd.DataFrame, params: Mapping[str, Any]) -> dict[str, Any]:
    import pandas as pd

    if not isinstance(shapes, pd.DataFrame):
        raise TypeError(
            f"shapes is {repr_short(shapes)}: a pandas.DataFrame with a column for each parameter is needed"
        )
    if not len(shapes):
        raise ValueError("shapes has no rows")
    twice = [name for name in params if name in shapes.columns]
    if twice:
        raise ValueError(f"{twice[0]} is given twice: in shapes= and as {twice[0]}=")
    return {str(name): shapes[name].to_numpy() for name in shapes.columns} | dict(params)


def _cases(frame: pd.DataFrame, precision: str | Sequence[str] | None) -> list[PredictedCase]:
    """The cases of rows; each as often as there are precisions asked for."""
    from bwprof.results.frame import to_rows

    if precision is not None and "precision" in frame.columns:
        frame = frame.drop_duplicates([name for name in frame.columns if name in (*_SHAPE, *schema.param_names())])
    made = []
    for row in to_rows(frame):
        operation = row["operation"]
        params = {name: row[name] for name in registry.param_names(operation) if row[name] is not None}
        lengths = registry.row_lengths(row)
        for name in [row["precision"]] if precision is None else _precisions(operation, precision):
            made.append(PredictedCase(operation, params, name, row["case"] or "", lengths))
    return made


_SHAPE = ("operation", "case", "kv_lens")


def _joined(frames: list[pd.DataFrame], card: Card) -> pd.DataFrame:
    import pandas as pd

    from bwprof.results import frame as results_frame
    from bwprof.results import pairs
    from bwprof.results.row import RunMetadata

    whole = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    run = {"predicted_for": card.name, "source": card.source, "bwprof_version": _core.__version__}
    if len(frames) > 1 and len(whole) <= MAX_COMPARED:
        rows = results_frame.to_rows(whole)
        pairs.fill_comparisons(rows)
        for name in results_columns.COMPARISON_NAMES:
            whole[name] = [math.nan if row[name] is None else row[name] for row in rows]
        # Of a lower bound no ratio is known; where FP32 has no rate, all that is calculated is held against bounds.
        least = is_lower_bound(whole)
        if (least & (whole["precision"] == pairs.BASELINE).to_numpy(bool)).any():
            least |= limiter.read_numbers(whole, "flops") > 0
        whole.loc[least, ["speedup_vs_fp32", "bandwidth_vs_fp32"]] = math.nan
    whole.attrs = {"schema_version": schema.SCHEMA_VERSION, "run": RunMetadata(run)}
    return whole


MAX_COMPARED = 20_000  # rows that are also compared with FP32, one by one


def is_lower_bound(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Where a predicted time is a lower bound: it has arithmetic whose rate on the device nobody knows."""
    flops, dense, best = (limiter.read_numbers(frame, name) for name in ("flops", "peak_tflops", "measured_tflops"))
    found: NDArray[np.bool_] = (flops > 0) & np.isnan(dense) & np.isnan(best)
    return found


def _by_share(work: Workload, card: Card, share: float, stream: Any) -> Estimate:
    """Times at a share of the nearer roof; `stream` is what streams of these bytes take."""
    floor = card.streams.floor_seconds
    rate, kind = card.rate(work.precision)
    memory = np.maximum(stream - floor, 0.0)
    arithmetic = work.flops / (rate * 1e12) if kind else np.zeros(work.count)
    said = f"predicted: {share:.0%} of the nearer roof and an empty launch; {card.text(work.precision)}"
    nothing = np.full(work.count, math.nan)
    return Estimate(np.maximum(memory, arithmetic) / share + floor, nothing, nothing, said)


def _frame(work: Workload, card: Card, model: float | Efficiency) -> pd.DataFrame:
    """The rows of some shapes."""
    from bwprof.results.frame import from_columns

    stream = card.streams.seconds(work.read, work.written)
    found = _by_share(work, card, model, stream) if isinstance(model, float) else model.estimate(work, card, stream)
    seconds, moved = found.seconds, work.read + work.written
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
        "variant": found.variant,
        "status": PREDICTED,
        "reason": found.reason,
        "cache": "cold",
        "time_ms_lo": found.low * 1e3,
        "time_ms_hi": found.high * 1e3,
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
