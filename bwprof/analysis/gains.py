"""What a narrower precision brings, measured case by case, or estimated before its kernel exists."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import costs, registry
from bwprof.analysis import values
from bwprof.analysis.bottleneck import STEP
from bwprof.analysis.rules import AT_ROOF
from bwprof.results.pairs import moved_bytes
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import FLOOR_FACTOR, classify_row, explain_no_gain, find_limiter
from bwprof.roofs.model import Roofs
from bwprof.text.formatting import format_figure, format_seconds, format_short, plural
from bwprof.text.parsing import measured_or_none, quote_text

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PrecisionPair:
    """One configuration in two precisions, both with a time."""

    label: str
    wide: RowDict
    narrow: RowDict
    byte_ratio: float
    time_ratio: float

    @property
    def bandwidth_ratio(self) -> float:
        """The narrow one's GB/s over the wide one's."""
        return self.time_ratio / self.byte_ratio


def improvement_table(data: pd.DataFrame, *, from_: str = "fp32", to: str = "fp16") -> pd.DataFrame:
    """Two precisions side by side.

    Parameters
    ----------
    data : pandas.DataFrame
        With rows in both precisions; the nine classic columns will do.
    from_, to : str
        The precisions compared.

    Returns
    -------
    pandas.DataFrame
        Columns Operation, FP32 (GB/s), FP16 (GB/s), Improvement (the ratio of the two), Bytes ratio, Time speed-up
        (their product). A case without both is left out.

    Raises
    ------
    ValueError
        For an unknown precision, or the same twice, and for a frame without the classic columns.

    Examples
    --------
    >>> import pandas as pd
    >>> names = ["operation", "precision", "M", "N", "K", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written"]
    >>> wide = ["decode", "fp32", 1, 896, 896, 0.003, 1072.8, 3214848, 3584]
    >>> half = ["decode", "fp16", 1, 896, 896, 0.002, 804.6, 1607424, 1792]
    >>> improvement_table(pd.DataFrame([wide, half], columns=names)).values.tolist()
    [['decode', '1073', '805', '0.75x', '2.00x', '1.50x']]
    """
    import pandas as pd

    wide, narrow = check_precision_pair(from_, to)
    names = ["Operation", f"{wide.upper()} (GB/s)", f"{narrow.upper()} (GB/s)", "Improvement"]
    names += ["Bytes ratio", "Time speed-up"]
    lines = []
    for pair in find_precision_pairs(data, wide, narrow):
        speeds = [
            format_figure(row["bytes"] / row["time_ms"] / 1e6, whole_from=100) for row in (pair.wide, pair.narrow)
        ]
        ratios = (pair.bandwidth_ratio, pair.byte_ratio, pair.time_ratio)
        lines.append([pair.label, *speeds, *(f"{format_short(ratio, '.2f')}x" for ratio in ratios)])
    return pd.DataFrame(lines, columns=names).astype("string")


def explain_equal_bandwidth(data: pd.DataFrame, *, from_: str = "fp32", to: str = "fp16") -> str:
    """Why cases show about 1x in GB/s and yet run faster: which do, and are at their roofs; "" where none is."""
    found = find_precision_pairs(data, *check_precision_pair(from_, to))
    attained = values.pct_attained(values.as_frame([row for pair in found for row in (pair.wide, pair.narrow)]))
    at_roofs = (attained[0::2] >= AT_ROOF) & (attained[1::2] >= AT_ROOF)  # both reach what a stream of their bytes does
    same = [pair.label for pair, at_roof in zip(found, at_roofs, strict=True) if at_roof and pair.time_ratio > 1.1]
    if not same:
        return ""
    more = f" and {len(same) - 3} more" if len(same) > 3 else ""
    return (
        "About 1x in GB/s is a memory at its roof in both precisions: it moves fewer bytes at the same rate, and takes "
        f"less time ({', '.join(same[:3])}{more})."
    )


def check_precision_pair(from_: str, to: str) -> tuple[str, str]:
    """Two precisions by their names; ValueError for unknown ones, and for one given twice."""
    found = []
    for name, given in (("from_", from_), ("to", to)):
        try:
            found.append(registry.check_precision(given))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if found[0] == found[1]:
        raise ValueError(f"to is '{found[1]}', as from_ is: two different precisions are compared")
    return found[0], found[1]


def find_precision_pairs(data: pd.DataFrame, wide: str, narrow: str) -> list[PrecisionPair]:
    """The configurations that have a time in both precisions, in the frame's order."""
    from bwprof.results import frame as results_frame
    from bwprof.results import pairs as results_pairs

    every = results_frame.to_rows(data)
    groups = results_pairs.group_precisions((row for row in every if row["status"] in ("ok", "predicted")), every)
    found = []
    for label, group in zip(results_pairs.label_groups(groups), groups, strict=True):
        rows = [_timed(group.rows[precision]) if precision in group.rows else None for precision in (wide, narrow)]
        if rows[0] is None or rows[1] is None:
            continue
        byte_ratio = rows[0]["bytes"] / rows[1]["bytes"]
        found.append(PrecisionPair(label, rows[0], rows[1], byte_ratio, rows[0]["time_ms"] / rows[1]["time_ms"]))
    return found


def _timed(row: RowDict) -> RowDict | None:
    """The row with all its bytes in `bytes`; None for one without a time, or bytes."""
    time_ms, moved = measured_or_none(row["time_ms"]), moved_bytes(row)
    return {**row, "bytes": moved} if time_ms and time_ms > 0 and moved else None


def list_precisions(data: Any) -> list[str]:
    """The precisions of a frame's rows with a time, in the order of their first row."""
    frame = values.as_frame(data)
    return list(dict.fromkeys(word for word in values.words(frame[values.has_time(frame)], "precision") if word))


COLUMNS = (
    "case",
    "operation",
    "variant",
    "limiter",
    "time_ms",
    "count",
    "byte_ratio",
    "efficiency_ratio",
    "efficiency_source",
    "speedup",
    "time_ms_then",
    "status",
    "reason",
)

_NUMBERS = ("time_ms", "count", "byte_ratio", "efficiency_ratio", "speedup", "time_ms_then")

MEASURED, PREDICTED = "ok", "predicted"

ASSUMED = "assumed: 1"

NO_GAIN = "would win nothing as the kernels are"

# What limits rows, as sentences say it.
_LIMITED_BY = {
    "memory": "memory",
    "compute": "arithmetic",
    "latency": "the time that a launch takes",
    "kernel": "{} own kernel (below half of what the device allows)",
}

_ASSUMING = ", if its kernels are as efficient"


def speedup(frame: pd.DataFrame, from_: str = "fp16", to: str = "fp8_e4m3") -> pd.DataFrame:
    """What another precision would buy in time: byte ratio times efficiency ratio, where memory limits.

    Parameters
    ----------
    frame : pandas.DataFrame
        With rows in `from_`; rows in `to` are not needed: their bytes follow from each row's own parameters.
    from_, to : str
        The precision that the rows have, and the one that is thought of.

    Returns
    -------
    pandas.DataFrame
        One row for each row in `from_` that has a time: case, operation, variant, limiter, time_ms, count, byte_ratio
        (bytes now / then), efficiency_ratio (GB/s then / now), efficiency_source, speedup (their product, or less where
        arithmetic or latency would limit then), time_ms_then, status ("ok": measured in both, "predicted"), reason.

        The efficiency ratio is that of the pair in both ("measured", or "predicted" where one of the two is); else the
        median of the measured pairs of its variant, or else of its operation, in this frame; else 1, and the source
        says so. Where the roofs are in the frame's metadata, the bandwidth that fewer bytes can reach is part of it.
        Where arithmetic, latency or the kernel limits, the speed-up is 1; where the limiter or the bytes are not known
        it is NaN, and `reason` says why.

    Raises
    ------
    ValueError
        For an unknown precision, the same twice, or a `from_` that no row with a time has.

    Examples
    --------
    >>> import bwprof
    >>> now = {"operation": "gemm", "precision": "fp16", "M": 1, "N": 4096, "K": 4096, "time_ms": 0.01}
    >>> cost = bwprof.cost("gemm", precision="fp16", M=1, N=4096, K=4096)
    >>> now |= {"bytes_read": cost.bytes_read, "bytes_written": cost.bytes_written, "bandwidth_gb_s": 3357.0}
    >>> now |= {"attainable_gb_s": 4000.0, "flops": 0}
    >>> bwprof.speedup(bwprof.frame(now))[["byte_ratio", "efficiency_source"]].round(2).values.tolist()
    [[2.0, 'assumed: 1']]
    """
    return _table(values.as_frame(frame, "frame"), *check_precision_pair(from_, to))[1]


def _table(data: pd.DataFrame, wide: str, narrow: str) -> tuple[list[int], pd.DataFrame]:
    """The rows in `wide` that have a time, by their places, and what becomes of them."""
    import pandas as pd

    from bwprof.results.frame import to_rows

    rows = to_rows(data) if len(data) else []
    timed = [
        place for place, row in enumerate(rows) if row["status"] in ("ok", "predicted") and (row["time_ms"] or 0) > 0
    ]
    ours = [place for place in timed if rows[place]["precision"] == wide]
    if timed and not ours:
        there = ", ".join(dict.fromkeys(str(rows[place]["precision"]) for place in timed))
        raise ValueError(f"from_ is '{quote_text(wide)}', and no row with a time has it: there are {there}")
    known = _Known(
        find_precision_pairs(data, wide, narrow) if len(data) else [],
        _rates((rows[place] for place in timed), narrow),
        read_run_roofs(data),
    )
    table = pd.DataFrame([_line(rows[place], narrow, known) for place in ours], columns=list(COLUMNS))
    for name in COLUMNS:
        table[name] = table[name].astype("float64" if name in _NUMBERS else "string")
    return ours, table


def _is_measured(pair: PrecisionPair) -> bool:
    return {pair.wide["status"], pair.narrow["status"]} == {"ok"}


_SAME = ("case", "variant", "run_id", "timestamp", "time_ms", "bytes_read", "bytes_written")


class _Known:
    """What a frame tells of the narrower precision: pairs measured in both, its arithmetic rate, the device's roofs."""

    def __init__(self, found: Sequence[PrecisionPair], rate: float, roofs: Roofs | None) -> None:
        self.own = {self.key(pair.wide): pair for pair in found}
        self.rate = rate
        self.roofs = roofs
        self._ratios: dict[tuple[str, str | None], list[float]] = {}
        for pair in found:
            wide, narrow = values.pct_attained(values.as_frame([pair.wide, pair.narrow]))
            ratio = float(narrow / wide) if wide > 0 else math.nan
            if _is_measured(pair) and not math.isnan(ratio) and classify_row(pair.wide).limiter == "memory":
                for variant in {None, pair.wide["variant"]}:
                    self._ratios.setdefault((pair.wide["operation"], variant), []).append(ratio)

    @staticmethod
    def key(row: RowDict) -> tuple[object, ...]:
        """What tells a row from the others."""
        return tuple(row[name] for name in _SAME)

    def efficiency(self, row: RowDict) -> tuple[float, str]:
        """The ratio of the shares of the attainable that pairs of the row's variant reach, else of its operation."""
        operation = row["operation"]
        found = self._ratios.get((operation, row["variant"])) or self._ratios.get((operation, None), [])
        if not found:
            return 1.0, ASSUMED
        return median(found), f"median of {len(found)} measured pair{'s' if len(found) > 1 else ''}"


def _line(row: RowDict, narrow: str, known: _Known) -> dict[str, Any]:
    """One row of the result."""
    limiter = find_limiter(row)
    count = measured_or_none(row.get("count"))
    line: dict[str, Any] = dict.fromkeys(COLUMNS)
    line |= {name: row[name] for name in ("case", "operation", "variant", "time_ms")}
    line |= {"limiter": limiter, "count": 1.0 if count is None else count, "status": PREDICTED}
    pair = known.own.get(known.key(row))
    if pair is not None:
        return line | {
            "byte_ratio": pair.byte_ratio,
            "efficiency_ratio": pair.bandwidth_ratio,
            "efficiency_source": "measured" if _is_measured(pair) else PREDICTED,
            "speedup": pair.time_ratio,
            "time_ms_then": pair.narrow["time_ms"],
            "status": MEASURED if _is_measured(pair) else PREDICTED,
        }
    moved, why = _bytes_in(row, narrow)
    now = moved_bytes(row)
    if moved is None or not now:
        return line | {"reason": why or "its bytes are not known (bytes_read=, bytes_written=)"}
    line["byte_ratio"] = now / sum(moved)
    if limiter is None:
        return line | {"reason": classify_row(row).why or "what limits it is not known: measure with roofs"}
    held = explain_no_gain(row)
    if held is not None:
        return line | {"speedup": 1.0, "time_ms_then": row["time_ms"], "reason": held}
    ratio, source = known.efficiency(row)
    reach = _reach(row, moved, known.roofs)
    if reach is not None:
        ratio, source = ratio * reach, f"{source}; bandwidth at these bytes {format_short(reach, '.2f')}x"
    then, reason = _at_least(row["time_ms"] / (line["byte_ratio"] * ratio), row, known.rate)
    if registry.lacks_kernel(row["operation"], narrow, str(row["backend"])):
        reason = "; ".join([*([reason] if reason else []), f"no kernel takes {narrow} here yet"])
    gain = row["time_ms"] / then
    line |= {"efficiency_ratio": ratio, "efficiency_source": source}
    return line | {"speedup": gain, "time_ms_then": then, "reason": reason}


def _at_least(time_ms: float, row: RowDict, rate: float) -> tuple[float, str | None]:
    """A time that neither arithmetic nor launching undercuts, and which of them holds it."""
    own = measured_or_none(row["measured_tflops"]) or measured_or_none(row["peak_tflops"])
    tflops = rate if not math.isnan(rate) else own
    floors = {"": time_ms}
    if row["flops"] and tflops:
        floors["arithmetic limits then"] = row["flops"] / tflops / 1e9
    if row["timer_floor_us"]:
        floors["launch latency limits then"] = FLOOR_FACTOR * row["timer_floor_us"] / 1e3
    reason = max(floors, key=lambda name: floors[name])
    if floors[reason] >= row["time_ms"]:
        return row["time_ms"], reason or "a stream of so few bytes takes as long"
    return floors[reason], reason or None


def _bytes_in(row: RowDict, precision: str) -> tuple[tuple[int, int] | None, str]:
    """Bytes read and written in another precision, by the row's own parameters; or why they are not known."""
    try:
        names = registry.param_names(row["operation"])
        params = {name: row[name] for name in names if row.get(name) is not None}
        lengths = registry.row_lengths(row)
        found = costs.cost(row["operation"], precision=precision, kv_lens=lengths, **params)
    except ValueError as error:
        return None, str(error)
    return (found.bytes_read, found.bytes_written), ""


def _reach(row: RowDict, moved: tuple[int, int], roofs: Roofs | None) -> float | None:
    """What a stream of the new bytes reaches over what one of the present bytes does; None without the roofs."""
    now = measured_or_none(row["attainable_gb_s"])
    then = math.nan if roofs is None else roofs.attainable_gb_s(*moved)
    return None if not now or math.isnan(then) else then / now


def _rates(rows: Iterable[RowDict], precision: str) -> float:
    """The arithmetic rate of a precision that the frame's rows know; NaN where none does."""
    found = [row["measured_tflops"] or row["peak_tflops"] for row in rows if row["precision"] == precision]
    return next((float(rate) for rate in found if rate), math.nan)


def read_run_roofs(data: pd.DataFrame) -> Roofs | None:
    """The roofs in the metadata of the run that the frame is of."""
    run = data.attrs.get("run")
    found = run.get("roofs") if isinstance(run, Mapping) else None
    try:
        return Roofs.from_dict(dict(found)) if isinstance(found, Mapping) else None
    except ValueError:
        return None


def summarize_speedup(frame: pd.DataFrame, from_: str = "fp16", to: str = "fp8_e4m3") -> str:
    """The same in a line: of a model's step its time; else the cases that gain, and by how much at most."""
    data = values.as_frame(frame, "frame")
    places, found = _table(data, *check_precision_pair(from_, to))
    what = f"storing numbers in {to} instead of {from_}"
    known = found[found["speedup"].notna()]
    if not len(known):
        why = found["reason"].dropna()
        return f"{what}: not known" + (f" ({why.iloc[0]})" if len(why) else "")
    assumed = _ASSUMING if known["efficiency_source"].str.contains(ASSUMED).any() else ""
    steps = _steps(data, places, found)
    if steps is not None:
        now, then = (format_seconds(time_ms / 1e3) for time_ms in steps)
        cached = " (weights and cache)" if "kv" in data.columns else ""
        return f"{what}{cached} would make a step {_gain(steps[0] / steps[1])}, {then} instead of {now}{assumed}"
    gains = known["speedup"].to_numpy(float)
    more, less = gains > _SAME_TIME, gains < 1 / _SAME_TIME
    held = known["limiter"][~more & ~less].fillna("").value_counts()
    told = [
        f"{count} by {limiter_text(str(name), count).partition(' (')[0]}" if name else f"{count} not known"
        for name, count in held.items()
    ]
    held_by = f" (limited: {', '.join(told)})" if told else ""
    measured = bool((known["status"] == MEASURED).all())
    slower = _slower(gains[less], measured=measured)
    unknown = int((found["speedup"].isna() & found["byte_ratio"].notna()).sum())  # there, but not what limits them
    total = len(known) + unknown
    left = f"; of {unknown} it is not known" if unknown else ""
    if not more.any():
        where = f" for {len(known)} of {plural(total, 'case')}" if unknown else ""
        return f"{what} {NO_GAIN}{where}{held_by}{slower}{left}"
    span = _span(gains[more])
    every = more.sum() == total > 1
    cases = f"all {plural(total, 'case')}" if every else f"{more.sum()} of {plural(total, 'case')}"
    said = f"{what} {'makes' if measured else 'would make'} {cases if total > 1 else 'the case'} {span}{assumed}"
    rest = int((~more & ~less).sum())
    gain = ("gains" if rest == 1 else "gain") if measured else "would gain"
    return (f"{said}; {rest} {gain} nothing{held_by}" if rest else said) + slower + left


_SAME_TIME = 1.005


def _slower(gains: NDArray[np.float64], *, measured: bool) -> str:
    """How many become slower, and by how much; "" for none."""
    if not len(gains):
        return ""
    become = ("becomes" if len(gains) == 1 else "become") if measured else "would become"
    return f"; {len(gains)} {become} slower, {_span(gains)}"


def _span(gains: NDArray[np.float64]) -> str:
    """'1.11 to 1.89 times as fast'."""
    least, most = (format_short(found, ".2f") for found in (gains.min(), gains.max()))
    return _gain(gains.max()) if least == most else f"{least} to {_gain(gains.max())}"


def limiter_text(limiter: str, count: int) -> str:
    """What limits so many rows, as a sentence says it.

    Examples
    --------
    >>> limited_by("compute", 2), limited_by("kernel", 1)
    ('arithmetic', 'its own kernel (below half of what the device allows)')
    """
    known = _LIMITED_BY.get(limiter)
    return quote_text(limiter) if known is None else known.format("its" if count == 1 else "their")


def _gain(ratio: float) -> str:
    return f"{format_short(ratio, '.2f')} times as fast"


def _steps(data: pd.DataFrame, places: list[int], found: pd.DataFrame) -> tuple[float, float] | None:
    """Of a model's frame, the first step that has such rows: its time now and then, ms; None for any other frame."""
    times = values.total_ms(data)
    if "count" not in data.columns:
        return None
    then = times.copy()
    gains = found["speedup"].fillna(1.0).to_numpy(float)
    then[places] = times[places] / gains
    step = np.ones(len(data), bool)
    for name in STEP:
        if name in data.columns:
            key = values.words(data, name).astype(str)
            step &= (key == key.iloc[places[0]]).to_numpy(bool)
    whole = (float(times[step].sum()), float(then[step].sum()))
    return whole if whole[1] > 0 else None  # NaN: a row of it has no time
