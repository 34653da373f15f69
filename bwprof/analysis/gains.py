"""Compute what a narrower precision brings: measured case by case, or predicted before its kernel exists."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bwprof import costs, registry
from bwprof.analysis import values
from bwprof.analysis.bottleneck import STEP
from bwprof.analysis.rules import AT_ROOF
from bwprof.analysis.summarize import PAIR
from bwprof.results import frame as results_frame
from bwprof.results import pairs as results_pairs
from bwprof.results.pairs import moved_bytes
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import FLOOR_FACTOR, classify_row, explain_no_gain, find_limiter
from bwprof.roofs.model import Roofs
from bwprof.text.formatting import format_figure, format_seconds, format_short, plural
from bwprof.text.parsing import measured_or_none, parse_name, quote_text


@dataclass(frozen=True, slots=True)
class PrecisionPair:
    """One configuration in two precisions, both with a time and bytes."""

    label: str
    wide: RowDict
    narrow: RowDict

    @property
    def byte_ratio(self) -> float:
        """The wide row's bytes over the narrow row's."""
        return (moved_bytes(self.wide) or 0) / (moved_bytes(self.narrow) or math.nan)

    @property
    def time_ratio(self) -> float:
        """The wide row's time over the narrow row's."""
        return float(self.wide["time_ms"] / self.narrow["time_ms"])

    @property
    def bandwidth_ratio(self) -> float:
        """The narrow row's GB/s over the wide row's."""
        return self.time_ratio / self.byte_ratio

    @property
    def is_measured(self) -> bool:
        """Whether neither row is predicted."""
        return {self.wide["status"], self.narrow["status"]} == {"ok"}


def improvement_table(data: pd.DataFrame, *, from_: str | None = None, to: str | None = None) -> pd.DataFrame:
    """Tabulate two precisions side by side, or each step to fewer bits.

    Parameters
    ----------
    data : pandas.DataFrame
        With rows in several precisions; the nine classic columns will do.
    from_, to : str, optional
        The precisions compared. By default, with precisions below 16 bits in the frame, each case's steps from 32 bits
        to 16, 8 and 4: FP32, FP16, the fastest of 8 and of 4 bits (beside FP16); else FP32, FP16, or the widest two.

    Returns
    -------
    pandas.DataFrame
        Columns Operation, FP32 (GB/s), FP16 (GB/s), Improvement (the ratio of the two), Bytes ratio, Time speed-up
        (the product of the two ratios); of steps Before (GB/s) and After (GB/s). A case without both is left out.

    Raises
    ------
    ValueError
        For an unknown precision, for the same precision twice, and for a frame without the classic columns.

    Examples
    --------
    >>> import pandas as pd
    >>> names = ["operation", "precision", "M", "N", "K", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written"]
    >>> wide = ["decode", "fp32", 1, 896, 896, 0.003, 1072.8, 3214848, 3584]
    >>> half = ["decode", "fp16", 1, 896, 896, 0.002, 804.6, 1607424, 1792]
    >>> improvement_table(pd.DataFrame([wide, half], columns=names)).values.tolist()
    [['decode', '1073', '805', '0.75x', '2.00x', '1.50x']]
    """
    chosen = choose_precisions(data, from_, to)
    both = [f"{name.upper()} (GB/s)" for name in chosen] or ["Before (GB/s)", "After (GB/s)"]
    names = ["Operation", *both, "Improvement", "Bytes ratio", "Time speed-up"]
    lines = []
    for pair in find_precision_pairs(data, chosen):
        speeds = ((moved_bytes(row) or 0) / row["time_ms"] / 1e6 for row in (pair.wide, pair.narrow))
        ratios = (pair.bandwidth_ratio, pair.byte_ratio, pair.time_ratio)
        cells = [format_figure(speed, whole_from=100) for speed in speeds]
        lines.append([pair.label, *cells, *(f"{format_short(ratio, '.2f')}x" for ratio in ratios)])
    return pd.DataFrame(lines, columns=names).astype("string")


def explain_equal_bandwidth(data: pd.DataFrame) -> str:
    """Explain cases at the memory roof in both precisions, whose GB/s are equal but whose times differ; "" for none."""
    pairs = find_precision_pairs(data, choose_precisions(data))
    attained = values.pct_attained(values.as_frame([row for pair in pairs for row in (pair.wide, pair.narrow)]))
    at_roofs = (attained[0::2] >= AT_ROOF) & (attained[1::2] >= AT_ROOF)
    names = [pair.label for pair, at_roof in zip(pairs, at_roofs, strict=True) if at_roof and pair.time_ratio > 1.1]
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        "About 1x in GB/s is a memory at its roof in both precisions: it moves fewer bytes at the same rate, and takes "
        f"less time ({', '.join(names[:3])}{more})."
    )


def check_precision_pair(from_: str, to: str) -> tuple[str, str]:
    """Return two precisions by their names; ValueError for an unknown one, or the same twice."""
    wide, narrow = registry.check_precision(from_), registry.check_precision(to)
    if wide == narrow:
        raise ValueError(f"to is '{narrow}', as from_ is: pass two different precisions")
    return wide, narrow


def choose_precisions(data: pd.DataFrame, from_: str | None = None, to: str | None = None) -> tuple[str, ...]:
    """Return the precisions named, else FP32 and FP16, else the widest two; () for steps to fewer bits."""
    from_, to = (
        None if value is None else registry.precision_name(parse_name(value, name))
        for value, name in ((from_, "from_"), (to, "to"))
    )
    words = set(map(registry.precision_name, list_precisions(data)))
    there = [name for name in registry.precision_names() if name in words]
    if from_ is to is None and any(map(registry.is_narrow, there)):
        return ()
    names = [*(PAIR if words.issuperset(PAIR) else ()), *there, *PAIR]
    wide = next(name for name in names if name != to) if from_ is None else from_
    return check_precision_pair(wide, next(name for name in names if name != wide) if to is None else to)


def find_precision_pairs(data: pd.DataFrame, precisions: Sequence[str]) -> list[PrecisionPair]:
    """Find the configurations that have a time in both precisions, or their steps, in the frame's order."""
    return _pair_rows(results_frame.to_rows(data), precisions)


def _pair_rows(rows: Sequence[RowDict], precisions: Sequence[str]) -> list[PrecisionPair]:
    groups = results_pairs.group_precisions((row for row in rows if row["status"] in ("ok", "predicted")), rows)
    pairs = []
    for label, group in zip(results_pairs.label_groups(groups), groups, strict=True):
        found = group.rows.items()
        timed = {name: row for name, row in found if (measured_or_none(row["time_ms"]) or 0) > 0 and moved_bytes(row)}
        if not precisions:
            for wide, narrow in pairwise(_narrowing(timed)):
                pairs.append(PrecisionPair(f"{label} {wide['precision']}->{narrow['precision']}", wide, narrow))
        elif all(name in timed for name in precisions):
            pairs.append(PrecisionPair(label, *(timed[name] for name in precisions)))
    return pairs


def _narrowing(rows: Mapping[str, RowDict]) -> list[RowDict]:
    """Return a configuration's rows of 32, 16, 8 and 4 bits: FP32, FP16, the fastest of others beside FP16."""
    best: dict[float, RowDict] = {}
    for name in sorted(rows, key=lambda n: (n not in PAIR, "fp16" in rows and "bf16" in n, rows[n]["time_ms"])):
        best.setdefault(registry.narrowest_bits(name), rows[name])
    return [best[bits] for bits in sorted(best, reverse=True)]


def list_precisions(data: Any) -> list[str]:
    """List the precisions of the rows with a time, in the order of their first row."""
    frame = values.as_frame(data)
    return list(dict.fromkeys(word for word in values.words(frame[values.has_time(frame)], "precision") if word))


_FLOATS = ("time_ms", "count", "byte_ratio", "efficiency_ratio", "speedup", "time_ms_then")
COLUMNS = (
    *("case", "operation", "variant", "limiter", "time_ms", "count", "byte_ratio", "efficiency_ratio"),
    *("efficiency_source", "speedup", "time_ms_then", "status", "reason"),
)

MEASURED, PREDICTED = "ok", "predicted"
ASSUMED = "assumed: 1"
NO_GAIN = ": no gain"
_LIMITER_TEXTS = {"compute": "arithmetic", "latency": "launch latency", "kernel": "own kernel", "link": "link to host"}
_SAME_TIME = 1.005


def speedup(frame: pd.DataFrame, from_: str = "fp16", to: str = "fp8_e4m3") -> pd.DataFrame:
    """Predict the speed-up of another precision: byte ratio times efficiency ratio, where memory limits.

    Parameters
    ----------
    frame : pandas.DataFrame
        With rows in `from_`. Rows in `to` are not needed: bytes follow from each row's own parameters.
    from_, to : str
        The precision of the rows, and the other one.

    Returns
    -------
    pandas.DataFrame
        One row for each row in `from_` that has a time: case, operation, variant, limiter, time_ms, count, byte_ratio
        (bytes now / then), efficiency_ratio (GB/s then / now), efficiency_source, speedup (their product, or less where
        arithmetic or latency would limit then), time_ms_then, status ("ok": measured in both, "predicted"), reason.

        The efficiency ratio is that of the row's own pair ("measured", or "predicted" where one of the two is); else
        the median of the measured pairs of its variant, else of its operation; else 1 ("assumed: 1"). With the roofs
        in the frame's metadata it includes the bandwidth that fewer bytes reach. Where arithmetic, latency or the
        kernel limits, the speed-up is 1. Where the limiter or the bytes are not known, it is NaN; see `reason`.

    Raises
    ------
    ValueError
        For an unknown precision, for the same precision twice, or if no row with a time is in `from_`.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.speedup(bwprof.load_example("h200")).dropna(subset="speedup")
    >>> found[["case", "byte_ratio"]].round(2).values.tolist()[0]
    ['decode_gemm', 1.99]
    """
    return _speedup_table(values.as_frame(frame, "frame"), *check_precision_pair(from_, to))[1]


def _speedup_table(data: pd.DataFrame, wide: str, narrow: str) -> tuple[list[int], pd.DataFrame]:
    """Return the places of the wide rows with a time, and their table."""
    rows = results_frame.to_rows(data) if len(data) else []
    timed = np.flatnonzero(values.has_time(data)).tolist()
    places = [place for place in timed if rows[place]["precision"] == wide]
    if timed and not places:
        names = ", ".join(dict.fromkeys(str(rows[place]["precision"]) for place in timed))
        raise ValueError(f"from_ is '{quote_text(wide)}', and no row with a time has it: there are {names}")
    narrower = [rows[place] for place in timed if rows[place]["precision"] == narrow]
    rates = (row["measured_tflops"] or row["peak_tflops"] for row in narrower)
    rate = next(map(float, filter(None, rates)), None)
    predictor = _SpeedupPredictor(narrow, _pair_rows(rows, (wide, narrow)), rate, read_run_roofs(data))
    lines = [predictor.predict(rows[place]) for place in places]
    kinds = {name: "float64" if name in _FLOATS else "string" for name in COLUMNS}
    return places, pd.DataFrame(lines, columns=list(COLUMNS)).astype(kinds)


class _SpeedupPredictor:
    """Predict rows in a narrower precision from measured pairs, its arithmetic rate and the device's roofs."""

    def __init__(self, narrow: str, pairs: Sequence[PrecisionPair], rate: float | None, roofs: Roofs | None) -> None:
        self.narrow = narrow
        self.pairs = {id(pair.wide): pair for pair in pairs}
        self.rate = rate
        self.roofs = roofs
        self._ratios: dict[tuple[str, str | None], list[float]] = defaultdict(list)
        for pair in pairs:
            wide, narrow_pct = values.pct_attained(values.as_frame([pair.wide, pair.narrow]))
            ratio = float(narrow_pct / wide) if wide > 0 else math.nan
            if pair.is_measured and not math.isnan(ratio) and classify_row(pair.wide).limiter == "memory":
                for variant in {None, pair.wide["variant"]}:
                    self._ratios[pair.wide["operation"], variant].append(ratio)

    def predict(self, row: RowDict) -> dict[str, Any]:
        """Return one line of the table."""
        count = measured_or_none(row.get("count"))
        line = {name: row[name] for name in ("case", "operation", "variant", "time_ms")}
        line |= {"limiter": find_limiter(row), "count": 1.0 if count is None else count, "status": PREDICTED}
        pair = self.pairs.get(id(row))
        if pair is None:
            return line | self._predict_by_bytes(row)
        source, status = ("measured", MEASURED) if pair.is_measured else (PREDICTED, PREDICTED)
        line |= {"byte_ratio": pair.byte_ratio, "efficiency_ratio": pair.bandwidth_ratio, "efficiency_source": source}
        return line | {"speedup": pair.time_ratio, "time_ms_then": pair.narrow["time_ms"], "status": status}

    def _predict_by_bytes(self, row: RowDict) -> dict[str, Any]:
        now, operation = moved_bytes(row), row["operation"]
        try:
            params = {name: row[name] for name in registry.param_names(operation) if row.get(name) is not None}
            cost = costs.cost(operation, precision=self.narrow, kv_lens=registry.row_lengths(row), **params)
        except ValueError as error:
            return {"reason": str(error)}
        if not now:
            return {"reason": "its bytes are not known (bytes_read=, bytes_written=)"}
        line: dict[str, Any] = {"byte_ratio": now / cost.bytes}
        if find_limiter(row) is None:
            return line | {"reason": classify_row(row).why or "what limits it is not known: measure with roofs"}
        no_gain_reason = explain_no_gain(row)
        if no_gain_reason is not None:
            return line | {"speedup": 1.0, "time_ms_then": row["time_ms"], "reason": no_gain_reason}
        ratio, source = self._efficiency_ratio(row, cost)
        time_ms, reason = self._bound_time(row, row["time_ms"] / (line["byte_ratio"] * ratio))
        line |= {"efficiency_ratio": ratio, "efficiency_source": source, "reason": reason}
        return line | {"speedup": row["time_ms"] / time_ms, "time_ms_then": time_ms}

    def _efficiency_ratio(self, row: RowDict, cost: costs.Cost) -> tuple[float, str]:
        """Take the median ratio of the variant's pairs, else of the operation's, times that of the streams."""
        operation = row["operation"]
        ratios = self._ratios.get((operation, row["variant"])) or self._ratios.get((operation, None), [])
        ratio = median(ratios) if ratios else 1.0
        source = f"median of {plural(len(ratios), 'measured pair')}" if ratios else ASSUMED
        now = measured_or_none(row["attainable_gb_s"])
        then = math.nan if self.roofs is None else self.roofs.attainable_gb_s(cost.bytes_read, cost.bytes_written)
        if not now or math.isnan(then):
            return ratio, source
        return ratio * (then / now), f"{source}; bandwidth at these bytes {format_short(then / now, '.2f')}x"

    def _bound_time(self, row: RowDict, time_ms: float) -> tuple[float, str | None]:
        """Bound a time by arithmetic and the launch, and by the present time; say which bound applies."""
        tflops = self.rate or measured_or_none(row["measured_tflops"]) or measured_or_none(row["peak_tflops"])
        floors = {"": time_ms}
        if row["flops"] and tflops:
            floors["arithmetic limits then"] = row["flops"] / tflops / 1e9
        if row["timer_floor_us"]:
            floors["launch latency limits then"] = FLOOR_FACTOR * row["timer_floor_us"] / 1e3
        reason = max(floors, key=lambda name: floors[name])
        if floors[reason] >= row["time_ms"]:
            return row["time_ms"], reason or "a stream of so few bytes takes as long"
        return floors[reason], reason or None


def read_run_roofs(data: pd.DataFrame) -> Roofs | None:
    """Read the roofs from the metadata of the frame's run; None for none."""
    run = data.attrs.get("run")
    roofs = run.get("roofs") if isinstance(run, Mapping) else None
    try:
        return Roofs.from_dict(dict(roofs)) if isinstance(roofs, Mapping) else None
    except ValueError:
        return None


def summarize_speedup(frame: pd.DataFrame, from_: str = "fp16", to: str = "fp8_e4m3") -> str:
    """Summarize `speedup` in a line: the time of a model's step, else the cases that gain and by how much."""
    data = values.as_frame(frame, "frame")
    places, table = _speedup_table(data, *check_precision_pair(from_, to))
    change = f"{to} instead of {from_}"
    known = table[table["speedup"].notna()]
    if not len(known):
        reasons = table["reason"].dropna()
        return f"{change}: not known" + (f" ({reasons.iloc[0]})" if len(reasons) else "")
    source = {1.0: "measured", 0.0: "predicted"}.get((known["status"] == MEASURED).mean(), "partly predicted")
    if known["efficiency_source"].str.contains(ASSUMED).any():
        source += ", if its kernels are as efficient"
    times = _step_times(data, places, table)
    if times is not None:
        now, then = (format_seconds(time_ms / 1e3) for time_ms in times)
        cached = " (weights and cache)" if "kv" in data.columns else ""
        factor = _factor_text(np.array([times[0] / times[1]]))
        return f"{change}{cached}: a step takes {then} instead of {now}, {factor} ({source})"
    gains = known["speedup"].to_numpy(float)
    more, less = gains > _SAME_TIME, gains < 1 / _SAME_TIME
    same = known["limiter"][~more & ~less].fillna("").value_counts()
    limits = ", ".join(f"{limiter_text(str(name)) if name else 'not known'} {count}" for name, count in same.items())
    limits = f" (limited by: {limits})" if limits else ""
    unknown = int((table["speedup"].isna() & table["byte_ratio"].notna()).sum())
    cases = plural(len(known) + unknown, "case")
    parts = [f"{change}{NO_GAIN} in {len(known)} of {cases}{limits}"]
    if more.any():
        parts = [f"{change}: {_factor_text(gains[more])} in {more.sum()} of {cases} ({source})"]
        parts += [f"no gain in {same.sum()}{limits}"] if len(same) else []
    parts += [f"slower in {less.sum()}, {_factor_text(gains[less])}"] if less.any() else []
    return "; ".join([*parts, *([f"not known in {unknown}"] if unknown else [])])


def limiter_text(limiter: str) -> str:
    """Name a limiter in a sentence: "arithmetic" for compute, "own kernel" for kernel."""
    return _LIMITER_TEXTS.get(limiter) or quote_text(limiter)


def _factor_text(gains: NDArray[np.float64]) -> str:
    """Format speed-ups: '1.11 to 1.89 times as fast'."""
    least, most = (format_short(gain, ".2f") for gain in (gains.min(), gains.max()))
    return f"{most if least == most else f'{least} to {most}'} times as fast"


def _step_times(data: pd.DataFrame, places: list[int], table: pd.DataFrame) -> tuple[float, float] | None:
    """Compute the time of a model's first step with such rows now and then, in ms; None for other frames."""
    if "count" not in data.columns:
        return None
    now = values.total_ms(data)
    then = now.copy()
    then[places] = now[places] / table["speedup"].fillna(1.0).to_numpy(float)
    step = np.ones(len(data), bool)
    for name in STEP:
        if name in data.columns:
            key = values.words(data, name).astype(str)
            step &= (key == key.iloc[places[0]]).to_numpy(bool)
    times = (float(now[step].sum()), float(then[step].sum()))
    return times if times[1] > 0 else None  # NaN: a row of the step has no time
