"""The summary: what a run says, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwprof.results import schema
from bwprof.results.schema import FLAGS, Row

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, RenderableType

    from bwprof.results.compare import Group

_PAIR = ("fp32", "fp16")


def summary(data: pd.DataFrame) -> pd.DataFrame:
    """One row per case: FP32 and FP16 side by side, and the other precisions that were measured.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep` or `bwprof.load`; a frame with the nine classic columns will do.

    Returns
    -------
    pandas.DataFrame
        Columns: case, operation, variant, device, cache, status (the worst of the case's rows); per measured
        precision P: P_gb_s, P_time_ms, P_pct_attainable; bandwidth_ratio (FP16 GB/s / FP32 GB/s), byte_ratio (FP32
        bytes / FP16 bytes), time_speedup (their product: FP32 time / FP16 time), bound, flags, reason.

    Raises
    ------
    ValueError
        When a classic column is missing.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", N=64, K=64, backend="cpu", cache="hot", roofs=False)
    >>> bwprof.summary(frame)["case"].tolist()
    ['gemm']
    """
    import pandas as pd

    rows, names = _summary_rows(data)
    frame = pd.DataFrame(rows, columns=names)
    for name in names:
        frame[name] = frame[name].astype("float64" if _is_number(name) else "string")
    return frame


def _is_number(name: str) -> bool:
    return name.endswith(("_gb_s", "_time_ms", "_pct_attainable", "_ratio", "_speedup"))


def _summary_rows(data: pd.DataFrame) -> tuple[list[dict[str, Any]], list[str]]:
    from bwprof.results import compare, frame

    rows = frame.compared_rows(data)
    precisions = ordered_precisions(rows)
    names = ["case", "operation", "variant", "device", "cache", "status"]
    for precision in precisions:
        names += [f"{precision}_gb_s", f"{precision}_time_ms", f"{precision}_pct_attainable"]
    names += ["bandwidth_ratio", "byte_ratio", "time_speedup", "bound", "flags", "reason"]
    return [_line(group, precisions) for group in compare.groups(rows)], names


def ordered_precisions(rows: Sequence[Row]) -> list[str]:
    """The precisions in `rows`: FP32 and FP16 first, always; then the others in the order of their first row."""
    found = dict.fromkeys(row["precision"] for row in rows)
    return [*_PAIR, *(name for name in found if name not in _PAIR)]


def _line(group: Group, precisions: Sequence[str]) -> dict[str, Any]:
    first = group.first
    line: dict[str, Any] = {
        "case": first["case"],
        "operation": first["operation"],
        "variant": "/".join(group.variants) or None,
        "device": first["device"],
        "cache": first["cache"],
        "status": _worst(group),
    }
    for precision in precisions:
        row = group.rows.get(precision, {})
        line[f"{precision}_gb_s"] = row.get("bandwidth_gb_s")
        line[f"{precision}_time_ms"] = row.get("time_ms")
        line[f"{precision}_pct_attainable"] = row.get("pct_attainable")
    half = group.rows.get("fp16", {})
    line["bandwidth_ratio"] = half.get("bandwidth_vs_fp32")
    line["byte_ratio"] = half.get("byte_ratio_vs_fp32")
    line["time_speedup"] = half.get("speedup_vs_fp32")
    line["bound"] = _joined(group, "bound")
    line["flags"] = _flags(group)
    line["reason"] = _joined(group, "reason", prefix=True)
    return line


def _worst(group: Group) -> str:
    order = ("failed", "skipped", "predicted", "ok")
    found = [row["status"] for row in group.rows.values()]
    return next((status for status in order if status in found), "ok")


def _joined(group: Group, name: str, *, prefix: bool = False) -> str | None:
    """The rows' words where they differ; one word where they agree."""
    found = {precision: row[name] for precision, row in group.rows.items() if row.get(name)}
    if not found:
        return None
    values = list(dict.fromkeys(found.values()))
    if prefix:
        return "; ".join(f"{precision}: {value}" for precision, value in found.items())
    return "/".join(values)


def _flags(group: Group) -> str | None:
    """Each flag with the precisions that it stands for, unless it stands for all of them."""
    holders: dict[str, list[str]] = {}
    for precision, row in group.rows.items():
        for flag in (row.get("flags") or "").split(";"):
            if flag:
                holders.setdefault(flag, []).append(precision)
    words = [flag if len(found) == len(group.rows) else f"{flag}({','.join(found)})" for flag, found in holders.items()]
    return ";".join(words) or None


def print_summary(rows: Sequence[Row], screen: Console) -> None:
    """The summary of rows on a terminal or in a file, then what failed, was skipped, or should be doubted."""
    from bwprof.results import frame

    print_tables(frame.from_rows(rows), screen)


def print_tables(data: pd.DataFrame, screen: Console) -> None:
    """The same of a frame."""
    for renderable in tables(data, screen):
        screen.print(renderable)


def tables(data: pd.DataFrame, screen: Console) -> list[RenderableType]:
    """The summary as rich renderables, 118 columns wide at most."""
    from bwprof.terminal import table

    lines, _ = _summary_rows(data)
    others = [name for name in _measured(lines) if name not in _PAIR]
    gb_s, share = (schema.column(name).unit for name in ("bandwidth_gb_s", "pct_attainable"))
    headers = ["case", "variant", *(f"{name.upper()}\n{gb_s}" for name in (*_PAIR, *others))]
    ratios = [f"{gb_s}\nratio", "bytes\nratio", "time\ngain", f"{share}\nattain."]
    result: list[RenderableType] = []
    grid = table(screen, "", [*headers, *ratios, "bound"], numbers=[*headers[2:], *ratios])
    for line in lines:
        mark = " *" if line["flags"] else ""
        hot = " (hot)" if line["cache"] == "hot" else ""
        grid.add_row(
            f"{line['case']}{hot}{mark}",
            line["variant"] or "-",
            *(_bandwidth(line, name) for name in (*_PAIR, *others)),
            _times(line["bandwidth_ratio"]),
            _times(line["byte_ratio"]),
            _times(line["time_speedup"]),
            _attained(line, (*_PAIR, *others)),
            line["bound"] or "-",
        )
    result.append(grid)
    notes = _notes(lines)
    if notes:
        result.append("\n".join(notes))
    return result


def _measured(lines: Sequence[dict[str, Any]]) -> list[str]:
    found = [name.removesuffix("_gb_s") for name in (lines[0] if lines else {}) if name.endswith("_gb_s")]
    return [name for name in found if any(line[f"{name}_gb_s"] is not None for line in lines)]


def _bandwidth(line: dict[str, Any], precision: str) -> str:
    value = line[f"{precision}_gb_s"]
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _attained(line: dict[str, Any], precisions: Sequence[str]) -> str:
    values = [line[f"{name}_pct_attainable"] for name in precisions if f"{name}_gb_s" in line]
    if all(value is None for value in values):
        return "-"
    return "/".join("-" if value is None else f"{value:.0f}" for value in values)


def _notes(lines: Sequence[dict[str, Any]]) -> list[str]:
    notes = ["GB/s ratio: FP16 / FP32.  bytes ratio: FP32 / FP16.  time gain = GB/s ratio x bytes ratio."]
    notes[0] += "\n% attain.: of what a plain stream of the same bytes and mix reaches, per precision."
    flagged: dict[str, list[str]] = {}
    for line in lines:
        for flag in (line["flags"] or "").split(";"):
            if flag:
                name, _, precisions = flag.partition("(")
                flagged.setdefault(name, []).append(_named(line) + (f" ({precisions}" if precisions else ""))
    if flagged:
        notes.append("* to be read with care:")
        notes += [_listed(f"{name} ({FLAGS.get(name, name)})", held, len(lines)) for name, held in flagged.items()]
    broken: dict[str, list[str]] = {}
    for line in lines:
        if line["status"] in ("failed", "skipped"):
            broken.setdefault(f"{line['status']}: {line['reason']}", []).append(_named(line))
    notes += [_listed(reason, held, len(lines)) for reason, held in broken.items()]
    return notes


def _listed(head: str, names: Sequence[str], total: int) -> str:
    """What is said, and of which cases; wrapped."""
    import textwrap

    from bwprof.terminal import PLAIN_WIDTH

    said = "every case" if len(names) == total > 1 else ", ".join(names)
    return textwrap.fill(f"{head}: {said}", PLAIN_WIDTH, initial_indent="  ", subsequent_indent="    ")


def _named(line: dict[str, Any]) -> str:
    return " ".join(part for part in (line["case"], line["variant"]) if part)
