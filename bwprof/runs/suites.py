"""Suites: lists of cases in TOML files; the ones that come with bwprof lie beside this module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bwprof import registry
from bwprof.text.parsing import describe_unknown, expand_ranges, finite_or_none, quote_text

_SUITE_KEYS = ("text", "precisions", "target_seconds", "on", "case")

_ON_KEYS = ("precisions", "target_seconds")

_CASE_KEYS = ("name", "operation", "params", "kv_lens", "precisions", "variants", "backends", "cache")

_CACHES = ("cold", "hot", "both")

_MOST_BYTES = 10_000_000

# A key of many parts: each of them makes the reader go through all before it.
_MOST_DOTS = 100

_QUOTED = rb"""(?:"[^"\n]*"|'[^'\n]*')"""

_PART = rb"(?:[\w-]++|" + _QUOTED + rb")"

_DOTTED = re.compile(_PART + rb"(?:[ \t]*+\.[ \t]*+" + _PART + rb")*+")


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """One entry of a suite; parameters are lists, and the entry stands for their product."""

    name: str
    operation: str
    params: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kv_lens: tuple[int, ...] | None = None
    precisions: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    backends: tuple[str, ...] | None = None
    caches: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases, the precisions they run in, and the time that the whole should take."""

    name: str
    text: str
    cases: tuple[SuiteCase, ...]
    precisions: tuple[str, ...]
    target_seconds: float | None
    on: dict[str, dict[str, Any]] = field(default_factory=dict)

    def precisions_on(self, backend: str) -> tuple[str, ...]:
        """The suite's precisions on a backend."""
        found: tuple[str, ...] = self.on.get(backend, {}).get("precisions", self.precisions)
        return found

    def target_on(self, backend: str) -> float | None:
        """Seconds that the cases should take together on a backend; None for no aim."""
        found: float | None = self.on.get(backend, {}).get("target_seconds", self.target_seconds)
        return found


def list_suites() -> dict[str, Path]:
    """Name -> file of the suites that come with bwprof."""
    return {path.stem: path for path in sorted((Path(__file__).parents[1] / "data" / "suites").glob("*.toml"))}


def load(name: str) -> Suite:
    """A suite by its name, or by the path of a .toml file.

    Raises
    ------
    ValueError
        For an unknown name (with the nearest one), or a file with a mistake: the message names the file, the key and
        the nearest right one.
    FileNotFoundError
        When there is no such file.

    Examples
    --------
    >>> load("default").cases[0].name
    'stream_read'
    """
    if name.endswith(".toml"):
        if Path(name).exists() and not Path(name).is_file():
            raise ValueError(f"suite {quote_text(name)} is no file")
        with Path(name).open("rb") as file:
            return parse(file.read(_MOST_BYTES + 1), source=name)
    found = list_suites()
    if name not in found:
        raise ValueError(describe_unknown("suite", name, [*found, "FILE.toml"]))
    return parse(found[name].read_bytes(), source=f"suite {name}", name=name)


def parse(content: bytes, *, source: str, name: str | None = None) -> Suite:
    """A suite from TOML text; ValueError with `source`, the key and the nearest right one for any mistake."""
    try:
        return _parsed(content, source, name or source)
    except RecursionError:
        raise ValueError(f"{source}: not a suite: it is nested too deeply") from None


def _parsed(content: bytes, source: str, name: str) -> Suite:
    import tomllib

    _check_size(content, source)
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except ValueError as error:  # not TOML, not text, a number of too many digits
        raise ValueError(f"{source}: not a TOML file: {error}") from None
    _check_keys(document, _SUITE_KEYS, source)
    entries = document.get("case", [])
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{source}: a suite needs at least one [[case]]")
    on = _table(document, "on", source)
    overrides: dict[str, dict[str, Any]] = {}
    for backend, table in on.items():
        where = f"{source}, on.{backend}"
        if backend not in registry.backend_names():
            raise ValueError(describe_unknown("backend", backend, registry.backend_names(), where=f"{source}, on"))
        if not isinstance(table, dict):
            raise ValueError(f"{where}: a table is needed")
        _check_keys(table, _ON_KEYS, where)
        overrides[backend] = {}
        if "precisions" in table:
            overrides[backend]["precisions"] = _precisions(table["precisions"], where)
        if "target_seconds" in table:
            overrides[backend]["target_seconds"] = _seconds(table["target_seconds"], where)
    return Suite(
        name=name,
        text=str(document.get("text", "")),
        cases=tuple(_case(entry, number, source) for number, entry in enumerate(entries, start=1)),
        precisions=_precisions(document.get("precisions", ["fp32", "fp16"]), source),
        target_seconds=_seconds(document["target_seconds"], source) if "target_seconds" in document else None,
        on=overrides,
    )


def _check_size(content: bytes, source: str) -> None:
    """ValueError for what a TOML reader would take minutes for."""
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{source}: not a suite: it has more than {_MOST_BYTES} bytes")
    for found in _DOTTED.finditer(content):
        if found[0].count(b".") > _MOST_DOTS and re.sub(_QUOTED, b"", found[0]).count(b".") > _MOST_DOTS:
            key = quote_text(found[0].decode(errors="replace"))
            raise ValueError(f"{source}: not a suite: the key '{key}' is nested too deeply")


def _case(entry: dict[str, Any], number: int, source: str) -> SuiteCase:
    given = entry.get("name", entry.get("operation", ""))
    where = f"{source}, case {number}" + (f" ({_quote_value(given)})" if given else "")
    _check_keys(entry, _CASE_KEYS, where)
    if not isinstance(entry.get("operation"), str):
        raise ValueError(f"{where}: operation is missing")
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise ValueError(f"{where}: name is {_quote_value(given)}: text in one line is needed")
    operation = entry["operation"]
    try:
        allowed = registry.param_names(operation)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    params: dict[str, tuple[int, ...]] = {}
    for key, value in _table(entry, "params", where).items():
        if key not in allowed:
            raise ValueError(registry.describe_unknown_param(operation, key, allowed, where=where))
        params[key] = _counts(value, key, where)
    kv_lens = registry.parse_lengths(entry.get("kv_lens"), f"{where}: kv_lens")
    if kv_lens is not None and not registry.operation(operation)["takes_kv_lens"]:
        raise ValueError(f"{where}: {operation} takes no kv_lens")
    known = {row["name"] for rows in registry.operation(operation)["variants"].values() for row in rows}
    variants = [*sorted(known), "all"]
    return SuiteCase(
        name=given,
        operation=operation,
        params=params,
        kv_lens=kv_lens,
        precisions=_precisions(entry["precisions"], where) if "precisions" in entry else None,
        variants=_words(entry["variants"], f"variant of {operation}", variants, where) if "variants" in entry else None,
        backends=_words(entry["backends"], "backend", registry.backend_names(), where) if "backends" in entry else None,
        caches=_words(entry["cache"], "cache", _CACHES, where) if "cache" in entry else None,
    )


def _check_keys(table: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise ValueError(describe_unknown("key", key, allowed, where=where))


def _table(table: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise ValueError(f"{where}: {key} must be a table, not {_quote_value(found)}")
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _counts(value: Any, key: str, where: str) -> tuple[int, ...]:
    items = _listed(value)
    for item in items:
        if not isinstance(item, (int, str)) or (isinstance(item, bool) and key not in registry.flag_names()):
            raise ValueError(f"{where}: {key} is {_quote_value(item)}, a whole number is needed")
    if not items:
        raise ValueError(f"{where}: {key} is an empty list")
    return tuple(map(int, expand_ranges(items, f"{where}: {key}")))


def _words(value: Any, kind: str, allowed: list[str] | tuple[str, ...], where: str) -> tuple[str, ...]:
    words = _listed(value)
    for word in words:
        if word not in allowed:
            raise ValueError(describe_unknown(kind, str(word), allowed, where=where))
    if not words:
        raise ValueError(f"{where}: the list of {kind}s is empty")
    return tuple(words)


def _precisions(value: Any, where: str) -> tuple[str, ...]:
    if value == []:
        raise ValueError(f"{where}: the list of precisions is empty")
    return tuple(registry.check_precision(word, where=where) for word in _listed(value))


def _seconds(value: Any, where: str) -> float:
    found = finite_or_none(value) or 0.0
    if not found > 0:
        raise ValueError(f"{where}: target_seconds is {_quote_value(value)}, a positive number is needed")
    return found


def _quote_value(value: Any) -> str:
    """What a file gave, as a message repeats it."""
    try:
        return quote_text(repr(value))
    except ValueError:  # an int of too many digits to be written
        return f"an {type(value).__name__} of too many digits"
