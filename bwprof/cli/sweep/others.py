"""What a run leaves for others at its end: rows in the classic columns and for Prometheus, a trace, a proof bundle."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bwprof import registry
from bwprof.cli.sweep.targets import Targets, UnwritableError, is_kept
from bwprof.records import proof
from bwprof.results import csvfile
from bwprof.results.files import atomic_write, is_plain_target
from bwprof.results.others import prometheus
from bwprof.results.writer import Store
from bwprof.runs.timeline import Timeline
from bwprof.text import quoted

if TYPE_CHECKING:
    import pandas as pd


def check(parsed: argparse.Namespace, targets: Targets) -> None:
    """Before anything is measured: what cannot be written then.

    Raises
    ------
    ValueError
        When it is so.
    """
    root = parsed.proof_bundle
    if root in {operation["name"] for operation in registry.operations()} and not os.path.isdir(root):
        raise ValueError(
            f"--proof-bundle {root} would be a folder: put operations before the option, or write ./{root}"
        )
    try:
        if root is not None:
            proof.check_root(root)
        for target in targets.late:
            if not isinstance(target, Path):
                continue
            if target.is_dir():
                raise OSError(None, "it is a folder", str(target))
            if is_plain_target(target) and not os.access(Path(os.path.realpath(target)).parent, os.W_OK):
                raise OSError(None, "its folder cannot be written to, or is not there", str(target))
    except OSError as error:
        raise UnwritableError(f"{quoted(error.filename)} cannot be written: {error.strerror}") from None


def write_late(store: Store, targets: Targets, timeline: Timeline | None) -> None:
    """The rows as older tools read them, and as Prometheus does, and when they were measured; OSError when they cannot
    be written.
    """
    if targets.classic:
        _write(targets.classic, csvfile.classic_text(store.rows))
    if targets.prometheus:
        _write(targets.prometheus, prometheus.text(store.rows))
    if targets.trace and timeline is not None:
        _write(targets.trace, timeline.text(store.run))


def write_stopped(store: Store, targets: Targets, timeline: Timeline | None) -> None:
    """Of a run that a signal ended the trace, into files alone: who reads a pipe may be waiting for that end.

    Metrics, and rows in the classic columns, stay those of the last run that went to its end.
    """
    for listed in (targets.classic, targets.trace, targets.prometheus):  # which are told to be there
        listed[:] = [one for one in listed if not isinstance(one, Path) or (listed is targets.trace and is_kept(one))]
    write_late(store, Targets(trace=[one for one in targets.trace if isinstance(one, Path)]), timeline)


def _write(targets: Iterable[Path | TextIO], text: str) -> None:
    for target in targets:
        if isinstance(target, Path):
            atomic_write(target, text)
        else:
            target.write(text)
            target.flush()


def write_bundle(parsed: argparse.Namespace, store: Store, targets: Targets) -> bool:
    """The bundle, with the pictures that the run has drawn; False, and a sentence, when it cannot be written."""
    if parsed.proof_bundle is None:
        return True
    from bwprof.results import frame as frames

    def draw(data: pd.DataFrame, folder: Path) -> None:
        drawn = sorted(targets.folder.glob(f"{proof.PICTURE}*")) if targets.folder is not None else []
        for path in drawn:
            shutil.copyfile(path, folder / path.name)
        if not drawn and targets.folder is None:
            proof.drawn(data, folder)

    whole = frames.from_rows(store.rows, store.run, store.samples)
    try:
        run_id = str(store.run["run_id"])
        targets.bundle = proof.write_bundle(whole, run_id, parsed.proof_bundle, force=True, draw=draw)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"bwprof: error: the proof bundle cannot be written: {error}\n")
        return False
    return True
