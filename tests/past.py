"""Folders of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rows import row

from bwprof.results.writer import Store


def started(day: int) -> str:
    return f"2026-01-{day:02d}T10:00:00+00:00"


def timed(case: str, precision: str, time_ms: float, **more: Any) -> dict[str, Any]:
    """Return a row whose interval is 0.2 % wide."""
    found = row(case, precision, **more)
    moved = found["bytes_read"] + found["bytes_written"]
    return found | {
        "time_ms": time_ms,
        "time_ms_lo": time_ms * 0.999,
        "time_ms_hi": time_ms * 1.001,
        "bandwidth_gb_s": moved / time_ms / 1e6,
        "hostname": more.get("hostname", "box"),
        "driver": more.get("driver", "1.0"),
        "bwprof_version": more.get("bwprof_version", "0.1.0"),
    }


def write(root: Path, day: int, rows: list[dict[str, Any]], *, name: str | None = None, **about: Any) -> Path:
    """Write a finished run of that day, as the command does, and return its folder."""
    folder = root / (name or f"run-{day:02d}")
    folder.mkdir(parents=True)
    stamped = [one | {"run_id": folder.name, "timestamp": started(day)} for one in rows]
    run = {"run_id": folder.name, "started": started(day), "status": "complete", **about}
    writer = Store(run, csv_targets=[folder / "results.csv"], json_targets=[folder / "results.json"])
    for one in stamped:
        writer.add(one, [one["time_ms"] * 1e6] if one["time_ms"] else None)
    writer.finish(about.get("status", "complete"))
    return folder


def week(root: Path, times: list[float] | None = None, **more: Any) -> None:
    """Write a run a day of one case in two precisions, FP16 in half the time."""
    for day, time in enumerate(times or [1.0, 1.0, 1.0], start=1):
        write(root, day, [timed("decode", "fp32", time, **more), timed("decode", "fp16", time / 2, **more)])
