"""Files that would fill memory or wait for ever: small ones, against lowered bounds."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from profiled import details_page, raw_page

from bwprof.importers import chrome, nsys, reader, timeline
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.detect import detect_kind
from bwprof.importers.ncu.parse import parse_ncu
from bwprof.importers.nsys import parse_nsys
from bwprof.importers.rocprof import parse_rocprof

TIME = ("gpu__time_duration.sum", "ns", "5000")


def event(name: str, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "dur": 1.0, "args": args}


def test_pipes_are_refused_at_once(tmp_path: Path) -> None:
    for name in ("x.ncu-rep", "x.csv"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match="no regular file"):
            parse_ncu(tmp_path / name)
    assert detect_kind(tmp_path) == "bwprof"  # whose reader refuses the folder


def test_folders_of_very_many_files_are_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / f"{number}.csv").write_text("Index,KernelName\n0,k\n")
    assert detect_kind(tmp_path) == "rocprof"
    monkeypatch.setattr(reader, "_MOST_FILES", 4)
    assert detect_kind(tmp_path) == "bwprof"
    with pytest.raises(ValueError, match="more than 4 files"):
        parse_rocprof(tmp_path)


def test_lines_of_countless_cells_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 million commas take 14 s and more than a gigabyte."""
    path = tmp_path / "x.csv"
    monkeypatch.setattr(reader, "_BLOCK", 64)
    monkeypatch.setattr(reader, "_MOST_COMMAS", 100)
    for header, read in (("ID,Kernel Name", parse_ncu), ("Index,KernelName", parse_rocprof)):
        path.write_text(f"{header}{',' * 500}\n")
        with pytest.raises(ValueError, match=r"line 1: .*\b100 commas"):
            read(path)


def test_records_of_countless_cells_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 150 lines with a million commas each is refused at its second line."""
    path = tmp_path / "x.csv"
    path.write_text("Index,KernelName,A\n" + "0,k,1\n" * 400)
    with path.open() as stream:
        assert len(list(reader.read_complete(path, reader.FileLines(path, stream), []))) == 401
    path.write_text("Index,KernelName,A\n" + f"0,k{',' * 100}\n" * 400)
    monkeypatch.setattr(reader, "_BLOCK", 64)
    read_records = reader.read_records
    taken: list[int] = []

    def count(*arguments: Any) -> Any:
        for record in read_records(*arguments):
            taken.append(len(record[1]))
            yield record

    monkeypatch.setattr(reader, "read_records", count)
    with path.open() as stream, pytest.raises(ValueError, match=r"line 2: .*\b102 cells\b.*\b3"):
        list(reader.read_complete(path, reader.FileLines(path, stream), []))
    assert len(taken) <= 16
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"line 2: .*\b102 cells\b.*\b3"):
        parse_rocprof(path)


def test_a_tail_of_empty_cells_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bwprof.importers.ncu import pages

    lengths: list[int] = []
    put = pages._DetailsPage.put

    def watched(page: Any, rows: list[tuple[int, list[str]]]) -> None:
        lengths.extend(len(cells) for _, cells in rows)
        put(page, rows)

    monkeypatch.setattr(pages._DetailsPage, "put", watched)
    page = details_page([("S", *TIME)])
    (tmp_path / "x.csv").write_text(page.rstrip("\n") + "," * 5000 + "\n")
    assert parse_ncu(tmp_path / "x.csv")["time_ms"].tolist() == [0.005]
    assert max(lengths) <= page.split("\n")[0].count(",") + 1


def test_values_beside_events_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few megabytes may unpack to a gigabyte."""
    about = {f"a{number}": "x" * 1000 for number in range(50)}
    devices = [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}]
    path = tmp_path / "t.json.gz"
    whole = {**about, "deviceProperties": devices, "traceEvents": [event("k", device=0)]}
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    trace = chrome.TraceEvents(path)
    assert len(list(trace)) == 1
    assert sum(len(str(value)) for value in vars(trace).values()) < 500
    assert parse_chrome_trace(path)["device"].tolist() == ["NVIDIA H200"]
    monkeypatch.setattr(chrome, "_BLOCK", 1000)
    monkeypatch.setattr(chrome, "_MOST_BEFORE", 20_000)
    with pytest.raises(ValueError, match=r"19\.5 KiB.*traceEvents"):
        parse_chrome_trace(path)


def test_endless_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "_BLOCK", 1000)
    monkeypatch.setattr(chrome, "_LONGEST", 4096)
    (tmp_path / "t.json").write_text(json.dumps([event("k", list=[0] * 9000), event("k")]))
    with pytest.raises(ValueError, match=r"line 1: .*\b4 KiB"):
        parse_chrome_trace(tmp_path / "t.json")


def test_countless_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.5 million names in 200 MB take 45 s and 2.4 GB; a program has some thousand kernels."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps([event(f"k{number}") for number in range(20)]))
    assert len(parse_chrome_trace(path)) == 20
    table = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, name)"
    database = tmp_path / "r.sqlite"
    with sqlite3.connect(database) as made:
        made.execute(table)
        made.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1, 2, ?)", [(f"k{at}",) for at in range(20)])
    made.close()
    assert len(parse_nsys(database)) == 20
    for module in (timeline, nsys):
        monkeypatch.setattr(module, "MOST_NAMES", 10)
    for read, file in ((parse_chrome_trace, path), (parse_nsys, database)):
        with pytest.raises(ValueError, match=r"\b10 different names"):
            read(file)


def test_endless_names_are_cut_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([event("k" * 100_000 + str(number)) for number in range(3)]))
    assert parse_chrome_trace(path)["kernel"].str.len().tolist() == [32_000] * 3
    monkeypatch.setattr(timeline, "_MOST_LETTERS", 70_000)
    with pytest.raises(ValueError, match="or very long ones"):
        parse_chrome_trace(path)


def test_setups_of_anything_but_numbers_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    odd = [event("k", device="x" * 1000 + str(number), bytes=[1], **{"shared memory": {}}) for number in range(3)]
    path.write_text(json.dumps([*odd, event("j", device=1, **{"registers per thread": 32})]))
    found = parse_chrome_trace(path).set_index("kernel")
    assert found["device"].isna().tolist() == [True, False]
    assert found["registers"]["j"] == 32


def test_times_that_are_no_whole_nanoseconds_are_refused(tmp_path: Path) -> None:
    """Seconds as fractions would all become 0 ns."""
    path = tmp_path / "r.sqlite"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start REAL, end REAL, name)")
        made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(0.25, 0.75, 'k')")
    made.close()
    with pytest.raises(ValueError, match=r"row 1 .*0\.25.*0\.75"):
        parse_nsys(path)


def test_pages_of_two_kinds_in_one_file_are_refused(tmp_path: Path) -> None:
    """A details page behind a raw one would be launches without figures."""
    raw, details = raw_page([TIME]), details_page([("S", *TIME)])
    for pages_ in (raw + details, details + raw):
        (tmp_path / "x.csv").write_text(pages_)
        with pytest.raises(ValueError, match=r"line \d: .*(kind|header)"):
            parse_ncu(tmp_path / "x.csv")


def test_a_message_is_one_line_whatever_the_path_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bwprof.cli.commands.importers import main_import

    for name in ("none\n\x1b[31m.csv", "some\nnoise.csv"):
        path = tmp_path / name
        if name.startswith("some"):
            path.write_text("noise\n")
        assert main_import(["ncu", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_an_error_escapes_a_foreign_header(tmp_path: Path) -> None:
    from bwprof.importers.detect import load

    (tmp_path / "x.csv").write_text("a\x1b[31m,b\n1,2\n")
    with pytest.raises(ValueError, match=r"not with 'a\\x1b\[31m,b'"):
        load(tmp_path / "x.csv")
