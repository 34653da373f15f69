"""Make an example of a run: one of the recorded runs that `bwprof.load_example` gives.

    python3 tests/benchmarks/record_example.py RUN --name h200 --commit SHA [--folder FOLDER]

RUN is a run's folder or its .json file. What the run says of its device, driver and versions stays, with the raw
samples; what tells on which machine it was made goes: host, user's paths, command line, environment, identifiers of the
board. The same run gives the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bwprof.results import json_file, reader

FOLDER = Path(__file__).resolve().parents[2] / "bwprof" / "data" / "examples"
# Keys of the run's metadata that are left out, wherever they stand in it.
MACHINE = {
    "argv",
    "compiler",
    "cuda_reason",
    "device_reason",
    "environment",
    "host",
    "hostname",
    "management_library",
    "pci_bus_id",
    "platform",
    "resumed",
}
EMPTIED = {"device_uuid", "source", "uuid"}  # texts that readers need: of roofs, the file that they are from
_IDENTIFIER = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-")
_PATH = re.compile(r"(?:^|[\s='\"(])/\w|\bfile:|\\\\")


def texts(value: Any) -> Iterator[str]:
    """Every text in a document, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)


def without_machine(value: Any) -> Any:
    """Metadata without what tells on which machine they were written."""
    if isinstance(value, dict):
        kept = {key: without_machine(item) for key, item in value.items() if key not in MACHINE}
        return {key: "" if key in EMPTIED else item for key, item in kept.items()}
    return [without_machine(item) for item in value] if isinstance(value, (list, tuple)) else value


def telling(document: Any, secrets: set[str]) -> list[str]:
    """The texts in a document that name a machine, or a place on one."""
    return [
        text
        for text in texts(document)
        if text in secrets or _IDENTIFIER.search(text) or (_PATH.search(text) and " / " not in text)
    ]


def example_of(path: Path, commit: str) -> bytes:
    """The file's content; ValueError for what is no commit, and for a run that would tell where it was made."""
    if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        raise ValueError(f"--commit is '{commit}': 7 to 40 hexadecimal digits are needed")
    rows, samples, run = reader.read_rows(path)
    secrets = {str(row[name]) for row in rows for name in ("hostname", "device_uuid") if row[name]}
    rows = [row | {"hostname": None, "device_uuid": None} for row in rows]
    run = without_machine(run) | {"commit": commit}
    found = telling([run, rows], secrets)
    if found:
        raise ValueError(f"{path} would tell where it was made: {found[:3]}")
    return gzip.compress(json_file.json_text(rows, samples, run).encode(), compresslevel=9, mtime=0)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--name", required=True)
    parser.add_argument("--commit", required=True, metavar="SHA", help="of the bwprof that measured it")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    content = example_of(given.run, given.commit)
    (given.folder / f"{given.name}.json.gz").write_bytes(content)


if __name__ == "__main__":
    main()
