"""What a document in the Trace Event format may hold, read strictly."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

KEYS = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "ts", "pid", "tid", "args"},
}
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def checked(text: str) -> list[dict[str, Any]]:
    """The events of a document that Perfetto and chrome://tracing can open; AssertionError for any other."""
    document = json.loads(text, parse_constant=refuse)
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str | int | float) for value in document["otherData"].values())
    events: list[dict[str, Any]] = document["traceEvents"]
    named: set[tuple[str, int, int]] = set()
    for event in events:
        assert set(event) == KEYS[event["ph"]], event
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int
        assert event["pid"] > 0
        assert math.isfinite(event["ts"])
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert {("process_name", event["pid"], 0), ("thread_name", event["pid"], event["tid"])} <= named
        if event["ph"] == "M":
            assert set(event["args"]) == {METADATA[event["name"]]}
            named.add((event["name"], event["pid"], event["tid"]))
        if event["ph"] == "C":
            assert event["args"]
            assert all(type(value) in (int, float) for value in event["args"].values())
    check_nesting(events)
    return events


def check_nesting(events: list[dict[str, Any]]) -> None:
    """Of two slices of a track one lies in the other, or they do not overlap: anything else is drawn wrongly."""
    for track in {event["tid"] for event in events if event["ph"] == "X"}:
        around: list[float] = []
        slices = [event for event in events if event["ph"] == "X" and event["tid"] == track]
        for one in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
            end = one["ts"] + one["dur"]
            while around and around[-1] <= one["ts"] + 1e-6:
                around.pop()
            assert not around or end <= around[-1] + 1.5e-3, one  # ns are what is written
            around.append(end)


def track_names(events: list[dict[str, Any]]) -> list[str]:
    """The tracks' names, in their order."""
    return [event["args"]["name"] for event in events if event["name"] == "thread_name"]


def slices(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The slices, by their beginnings."""
    return sorted((event for event in events if event["ph"] == "X"), key=lambda event: (event["ts"], -event["dur"]))


def counters(events: list[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    """A counter's points."""
    found = [(event["ts"], event["args"]["value"]) for event in events if (event["ph"], event["name"]) == ("C", name)]
    assert all(one[0] <= other[0] for one, other in pairwise(found))
    return found
