"""A page's launches as a frame: a row a launch, in the columns that bwprof's own rows have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from bwprof.importers.frames import make_frame
from bwprof.importers.ncu import metrics
from bwprof.importers.ncu.launches import KERNEL_NAMES, PageLaunches
from bwprof.importers.ncu.metrics import FigureSource
from bwprof.importers.reader import parse_number, shorten_name, simplify_name
from bwprof.results.schema import clean_value
from bwprof.text.formatting import plural

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    LaunchFigures = NDArray[np.float64]

_GB = 1e9

_SIZE = re.compile(r"\(?\s*(\d{1,18})\s*,\s*(\d{1,18})\s*,\s*(\d{1,18})\s*\)?", re.ASCII)

_NAMES = {"Context": "context", "Stream": "stream", "Device": "device_index", "Process ID": "pid"}

_USED = {"ID", *KERNEL_NAMES, "Block Size", "Grid Size", "CC", *_NAMES}

_DIGITS = 15  # that count, of a figure that was scaled

_MOST_PCT = 101  # that counts of two passes may make of a part

_OF_PAIRS = (
    "flops: instructions on half precision count as on pairs, as in ncu's roofline; some are of one number, or move a "
    "constant"
)

_PEAK_UNKNOWN = "pct_peak is ncu's own DRAM throughput where the page does not tell the peak"


def build_frame(launches: PageLaunches, source: str, tool: str = "ncu") -> pd.DataFrame:
    """The frame that `bwprof.importers.parse_ncu` returns."""
    import numpy as np

    found = _Figures(launches)
    with np.errstate(all="ignore"):  # what is no finite number is left out of its row
        columns = {name: found.first(sources) for name, sources in metrics.FIGURES.items()}
        columns |= _sizes(launches, found)
        below = _drop_negative(columns)  # before anything is worked out of it
        beyond = _bound(columns)
        columns |= _dram(columns, found)
        columns |= _arithmetic(columns, found)
        below += _drop_negative(columns)
    text = _texts(launches, found)
    data = text | {name: _tidy(values) for name, values in columns.items() if values is not None}
    notes = launches.notes
    if found.own_pct:
        notes.append(_PEAK_UNKNOWN)
    if below:
        notes.append(f"{plural(below, 'negative figure')} cannot be and {'is' if below == 1 else 'are'} left out")
    if beyond:
        notes.append(f"{plural(beyond, 'share')} beyond 100 % cannot be and {'is' if beyond == 1 else 'are'} left out")
    if found.estimated is not None:
        data["estimated"] = found.estimated
    others = {name: values for name, values in _others(launches).items() if name not in data}
    result = make_frame(data | others, source=source, tool=tool, notes=notes)
    result.attrs["page"] = launches.page
    result.attrs["units"] = {name: metric.unit for name, metric in launches.metrics.items() if metric.unit}
    return result


def _drop_negative(columns: dict[str, LaunchFigures | None]) -> int:
    """No count, time or share is negative; how many were."""
    import numpy as np

    dropped = 0
    for name, values in columns.items():
        if values is not None and (values < 0).any():
            dropped += int((values < 0).sum())
            columns[name] = np.where(values < 0, np.nan, values)
    return dropped


def _bound(columns: dict[str, LaunchFigures | None]) -> int:
    """Parts are at most 100 %, of several passes a bit more; parts of nothing are unknown. How many cannot be."""
    import numpy as np

    beyond = 0
    for name in metrics.PARTS:
        values = columns.get(name)
        if values is None:
            continue
        far = values > _MOST_PCT
        beyond += int(far.sum())
        values = np.where(far, np.nan, np.minimum(values, 100))
        columns[name] = np.where(values == 0, np.nan, values) if name in metrics.OF_NOTHING else values
    return beyond


class _Figures:
    """Columns of figures, NaN where a launch has none; None where no launch has any."""

    def __init__(self, launches: PageLaunches) -> None:
        self._launches = launches
        self.own_pct = False
        self.estimated: list[str | None] | None = None

    def first(self, sources: tuple[FigureSource, ...]) -> LaunchFigures | None:
        """Of each launch the first source that it has."""
        import numpy as np

        result: LaunchFigures | None = None
        for source in sources:
            found = self._of(source)
            if found is not None:
                result = found if result is None else np.where(np.isnan(result), found, result)
        return None if result is None or np.isnan(result).all() else result

    def _of(self, source: FigureSource) -> LaunchFigures | None:
        import numpy as np

        above = self._sum(source.names, source.unit)
        if above is None:
            return None
        if not source.over:
            return above * source.times
        below = self._sum(source.over, "")
        if below is None:
            return None
        found = divide(above, below, source.times)
        return found if math.isnan(source.nothing) else np.where((above == 0) & (below == 0), source.nothing, found)

    def _sum(self, names: tuple[str, ...], unit: str) -> LaunchFigures | None:
        import numpy as np

        parts = [self._launches.numbers_of(name) for name in names]
        if any(part is None for part in parts):
            return None
        of_unit = {self._launches.metrics[name].unit for name in names}
        if unit and not of_unit <= ({unit} if unit == "s" else {unit, ""}):  # no other is the base where none is said
            return None
        return cast("LaunchFigures", np.sum(np.array(parts), axis=0))


def divide(above: LaunchFigures, below: LaunchFigures, times: float = 1.0) -> LaunchFigures:
    """`times` * above / below; NaN where nothing, or less, is below."""
    import numpy as np

    result = np.where(below > 0, times * above / np.where(below > 0, below, 1.0), np.nan)
    return cast("LaunchFigures", np.where(np.isfinite(result), result, np.nan))


def _sizes(launches: PageLaunches, found: _Figures) -> dict[str, LaunchFigures | None]:
    """Blocks of the grid and threads of a block: as the launch says, else as ncu counted them."""
    import numpy as np

    result: dict[str, LaunchFigures | None] = {}
    for column, name, of in (
        ("grid_blocks", "Grid Size", metrics.GRID),
        ("block_threads", "Block Size", metrics.BLOCK),
    ):
        told = launches.identity.get(name)
        sizes = None if told is None else np.array(_each(_product, told))
        of_metric = found.first(of)
        if sizes is not None and of_metric is not None:
            sizes = np.where(np.isnan(sizes), of_metric, sizes)
        result[column] = of_metric if sizes is None else sizes
    return result


def _product(text: str | None) -> float:
    size = _SIZE.fullmatch(text or "")
    return float(int(size[1]) * int(size[2]) * int(size[3])) if size else float("nan")


def _dram(columns: dict[str, LaunchFigures | None], found: _Figures) -> dict[str, LaunchFigures | None]:
    """DRAM's rate, its peak, and the share."""
    import numpy as np

    rate = found.first(metrics.DRAM_RATE)
    rate = None if rate is None else rate / _GB
    read, written, time = columns["dram_bytes_read"], columns["dram_bytes_written"], columns["time_ms"]
    if read is not None and written is not None and time is not None:
        exact = divide(read + written, time, 1e3 / _GB)
        rate = exact if rate is None else np.where(np.isnan(exact), rate, exact)
    width, clock = found.first(metrics.DRAM_WIDTH), columns["mem_clock_mhz"]
    peak = None if width is None or clock is None else width * clock * 1e6 / _GB
    bits, kilohertz = found.first(metrics.BUS_BITS), found.first(metrics.BUS_KHZ)
    if bits is not None and kilohertz is not None:
        nominal = 2 * kilohertz * 1e3 * bits / 8 / _GB  # two transfers a cycle
        peak = nominal if peak is None else np.where(np.isnan(peak), nominal, peak)
    share = None if rate is None or peak is None else divide(rate, peak, 100)
    own = columns["dram_pct"]
    if own is not None and (share is None or bool((np.isnan(share) & ~np.isnan(own)).any())):
        share = own if share is None else np.where(np.isnan(share), own, share)
        found.own_pct = True
    return {"dram_gb_s": rate, "peak_gb_s": peak, "pct_peak": share}


def _arithmetic(columns: dict[str, LaunchFigures | None], found: _Figures) -> dict[str, LaunchFigures | None]:
    """FLOPs by the instructions that threads ran, if all kinds were counted; the peak of the kind that nearly all were
    of, if no tensor core ran.
    """
    import numpy as np

    cycles = found.first(metrics.CYCLES)
    of_kind: dict[str, LaunchFigures] = {}
    for kind, name, each in metrics.FLOPS:
        ran = found.first((FigureSource((name,)),))
        if ran is None and cycles is not None:
            a_cycle = found.first((FigureSource((name + metrics.PER_CYCLE,)),))
            ran = None if a_cycle is None else a_cycle * cycles
        if ran is None:
            return {}
        of_kind[kind] = each * ran + of_kind.get(kind, 0.0)
    plain = cast("LaunchFigures", np.sum(list(of_kind.values()), axis=0))
    tensor, busy = found.first((FigureSource(metrics.TENSOR_FLOPS),)), columns["tensor_pct"]
    idle = np.zeros_like(plain) if busy is None else busy
    flops = plain + tensor if tensor is not None else np.where(idle > 0, np.nan, plain)
    half = (of_kind["h"] > 0) & ~np.isnan(flops)
    if half.any():
        found.estimated = [_OF_PAIRS if there else None for there in half.tolist()]
    if tensor is None and busy is None:
        return {"flops": flops}
    return {"flops": flops, "peak_tflops": _peak_tflops(of_kind, plain, idle, columns["sm_clock_mhz"], found)}


def _peak_tflops(
    of_kind: dict[str, LaunchFigures],
    plain: LaunchFigures,
    tensor_pct: LaunchFigures,
    clock: LaunchFigures | None,
    found: _Figures,
) -> LaunchFigures | None:
    import numpy as np

    if clock is None:
        return None
    peak: LaunchFigures | None = None
    for kind, sources in metrics.WIDTHS.items():  # single precision first: of what has no FLOPs it is the peak
        width = found.first(sources)
        if width is not None:
            own = np.where(of_kind[kind] >= metrics.MOST_OF_THEM * plain, width * clock / 1e6, np.nan)
            peak = own if peak is None else np.where(np.isnan(peak), own, peak)
    return None if peak is None else np.where(tensor_pct > 0, np.nan, peak)


def _texts(launches: PageLaunches, found: _Figures) -> dict[str, list[Any]]:
    """The columns that are text, and what says which launch it was."""
    count, told = launches.count, launches.identity
    kernel = next((told[name] for name in KERNEL_NAMES if name in told), [None] * count)
    result: dict[str, list[Any]] = {"kernel": list(kernel), "status": ["ok"] * count}
    numbered = [_whole(text) for text in told.get("ID", [None] * count)]
    result["launch"] = [at if number is None else number for at, number in enumerate(numbered)]
    short = {name: shorten_name(simplify_name(name)) for name in set(kernel) if name}  # as newer ones of ncu print it
    result["case"] = [short.get(name or "") for name in kernel]
    result |= {column: _each(_whole, told[name]) for name, column in _NAMES.items() if name in told}
    named = launches.metrics.get("device__attribute_display_name")
    devices = [named.texts.get(at) for at in range(count)] if named else [None] * count
    numbers = result.get("device_index", [None] * count)
    result["device"] = [
        name or (None if number is None else f"cuda:{number}") for name, number in zip(devices, numbers, strict=True)
    ]
    if "CC" in told:
        result["compute_capability"] = told["CC"]
    for column, name in (("grid", "Grid Size"), ("block", "Block Size")):
        if name in told:
            result[column] = _each(_size, told[name])
    of_warps = {"occupancy_limiter": _limiters(count, found), "stall_reasons": _stalls(launches, found)}
    return result | {name: values for name, values in of_warps.items() if any(values)}


def _each(read: Callable[[str | None], Any], texts: list[str | None]) -> list[Any]:
    """Of each text what is read of it, once of those that are the same."""
    found = {text: read(text) for text in set(texts)}
    return [found[text] for text in texts]


def _whole(text: str | None) -> int | None:
    value = parse_number(text or "")
    return int(value) if value is not None and abs(value) < 2**53 else None


def _size(text: str | None) -> str | None:
    size = _SIZE.fullmatch(text or "")
    return "x".join(size.groups()) if size else text or None


def _limiters(count: int, found: _Figures) -> list[str | None]:
    """What allows a multiprocessor the fewest blocks."""
    limits = {name: values for name, source in metrics.LIMITS.items() if (values := found.first(source)) is not None}
    if not {"warps", "registers", "shared"} <= limits.keys():
        return [None] * count
    return [
        min((float(values[at]), order, name) for order, (name, values) in enumerate(limits.items()))[2]
        if all(values[at] == values[at] for values in limits.values())
        else None
        for at in range(count)
    ]


def _stalls(launches: PageLaunches, found: _Figures) -> list[str | None]:
    """Why warps waited, as bwprof's rows have it, the most frequent first."""
    reasons = {
        reason: values
        for name in launches.metrics
        if (reason := metrics.stall_reason(name)) and (values := found.first((FigureSource((name,)),))) is not None
    }
    result: list[str | None] = []
    for at in range(launches.count):
        here = sorted(((float(values[at]), reason) for reason, values in reasons.items()), key=lambda one: -one[0])
        said = ";".join(f"{reason}={value:.2f}" for value, reason in here if value >= 0.005)
        result.append(said or None)
    return result


def _tidy(values: LaunchFigures) -> LaunchFigures:
    """Figures without the last digits, which scaling makes; NaN for what is not finite."""
    import numpy as np

    return np.array([float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else math.nan for value in values.tolist()])


def _others(launches: PageLaunches) -> dict[str, Any]:
    """Every metric under its own name, in base units; where one is text, as an object."""
    result: dict[str, Any] = {}
    for name, told in launches.identity.items():
        if name not in _USED:
            result[name] = [clean_value(text) if text else None for text in told]
    for name, metric in launches.metrics.items():
        values = launches.numbers_of(name)
        assert values is not None
        if metric.texts:
            figures = [None if math.isnan(value) else value for value in values.tolist()]
            result[name] = [metric.texts.get(at, value) for at, value in enumerate(figures)]
        else:
            result[name] = values
    return result
