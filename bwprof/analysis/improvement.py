"""What a narrower precision brings, case by case: in GB/s, in bytes, and in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis import values
from bwprof.analysis.causes.rules import AT_ROOF
from bwprof.results.compare import moved_bytes
from bwprof.results.schema import Row
from bwprof.text import figure_text, measurable, short

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration in two precisions, both with a time."""

    label: str
    wide: Row
    narrow: Row
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

    wide, narrow = named(from_, to)
    names = ["Operation", f"{wide.upper()} (GB/s)", f"{narrow.upper()} (GB/s)", "Improvement"]
    names += ["Bytes ratio", "Time speed-up"]
    lines = []
    for pair in pairs(data, wide, narrow):
        speeds = [figure_text(row["bytes"] / row["time_ms"] / 1e6, whole_from=100) for row in (pair.wide, pair.narrow)]
        ratios = (pair.bandwidth_ratio, pair.byte_ratio, pair.time_ratio)
        lines.append([pair.label, *speeds, *(f"{short(ratio, '.2f')}x" for ratio in ratios)])
    return pd.DataFrame(lines, columns=names).astype("string")


def why_the_same(data: pd.DataFrame, *, from_: str = "fp32", to: str = "fp16") -> str:
    """Why cases show about 1x in GB/s and yet run faster: which do, and are at their roofs; "" where none is."""
    found = pairs(data, *named(from_, to))
    attained = values.attained(values.as_frame([row for pair in found for row in (pair.wide, pair.narrow)]))
    at_roofs = (attained[0::2] >= AT_ROOF) & (attained[1::2] >= AT_ROOF)  # both reach what a stream of their bytes does
    same = [pair.label for pair, at_roof in zip(found, at_roofs, strict=True) if at_roof and pair.time_ratio > 1.1]
    if not same:
        return ""
    more = f" and {len(same) - 3} more" if len(same) > 3 else ""
    return (
        "About 1x in GB/s is a memory at its roof in both precisions: it moves fewer bytes at the same rate, and takes "
        f"less time ({', '.join(same[:3])}{more})."
    )


def named(from_: str, to: str) -> tuple[str, str]:
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


def pairs(data: pd.DataFrame, wide: str, narrow: str) -> list[Pair]:
    """The configurations that have a time in both precisions, in the frame's order."""
    from bwprof.results import compare, frame

    every = frame.to_rows(data)
    groups = compare.groups((row for row in every if row["status"] in ("ok", "predicted")), every)
    found = []
    for label, group in zip(compare.labels(groups), groups, strict=True):
        rows = [_timed(group.rows[precision]) if precision in group.rows else None for precision in (wide, narrow)]
        if rows[0] is None or rows[1] is None:
            continue
        byte_ratio = rows[0]["bytes"] / rows[1]["bytes"]
        found.append(Pair(label, rows[0], rows[1], byte_ratio, rows[0]["time_ms"] / rows[1]["time_ms"]))
    return found


def _timed(row: Row) -> Row | None:
    """The row with all its bytes in `bytes`; None for one without a time, or bytes."""
    time_ms, moved = measurable(row["time_ms"]), moved_bytes(row)
    return {**row, "bytes": moved} if time_ms and time_ms > 0 and moved else None


def precisions_of(data: Any) -> list[str]:
    """The precisions of a frame's rows with a time, in the order of their first row."""
    frame = values.as_frame(data)
    return list(dict.fromkeys(word for word in values.words(frame[values.usable(frame)], "precision") if word))
