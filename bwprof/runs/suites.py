"""Read suites: lists of cases in TOML files; those of bwprof are in `bwprof/data/suites`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bwprof import registry
from bwprof.text.parsing import check_known, describe_unknown, expand_ranges, finite_or_none, quote_text, repr_short

_SUITE_KEYS = ("text", "precisions", "target_seconds", "on", "case")
_ON_KEYS = ("precisions", "target_seconds")
_CASE_KEYS = ("name", "operation", "params", "kv_lens", "precisions", "variants", "backends", "cache")
_CACHES = ("cold", "hot", "both")
_MOST_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """One entry of a suite: a case for each combination of the parameters' values."""

    name: str
    operation: str
    params: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kv_lens: tuple[int, ...] | None = None
    precisions: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    backends: tuple[str, ...] | None = None
    caches: tuple[str, ...] | None = None

    def runs_on(self, backend: str) -> bool:
        """Return whether the entry is for a backend."""
        return self.backends is None or backend in self.backends


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases, their precisions, the seconds they should take together, and overrides for backends (`on`)."""

    name: str
    text: str
    cases: tuple[SuiteCase, ...]
    precisions: tuple[str, ...]
    target_seconds: float | None
    on: dict[str, dict[str, Any]] = field(default_factory=dict)

    def precisions_on(self, backend: str) -> tuple[str, ...]:
        """Return the suite's precisions on a backend."""
        found: tuple[str, ...] = self.on.get(backend, {}).get("precisions", self.precisions)
        return found

    def target_on(self, backend: str) -> float | None:
        """Return the seconds that the cases should take together on a backend; None: no target."""
        found: float | None = self.on.get(backend, {}).get("target_seconds", self.target_seconds)
        return found


def list_suites() -> dict[str, Path]:
    """Return name -> file of bwprof's own suites."""
    return {path.stem: path for path in sorted((Path(__file__).parents[1] / "data" / "suites").glob("*.toml"))}


def load(name: str) -> Suite:
    """Read a suite by its name, or by the path of a .toml file; ValueError for an unknown name, or as for `parse`.

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
    known = list_suites()
    if name not in known:
        raise ValueError(describe_unknown("suite", name, [*known, "FILE.toml"]))
    return parse(known[name].read_bytes(), source=f"suite {name}", name=name)


def parse(content: bytes, *, source: str, name: str | None = None) -> Suite:
    """Read a suite from TOML text; ValueError with `source`, the key and the nearest right one for a mistake."""
    import tomllib

    if len(content) > _MOST_BYTES:
        raise ValueError(f"{source}: not a suite: it has more than {_MOST_BYTES} bytes")
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError(f"{source}: not a suite: it is nested too deeply") from None
    except ValueError as error:  # not TOML, not text, a number of too many digits
        raise ValueError(f"{source}: not a TOML file: {error}") from None
    _check_keys(document, _SUITE_KEYS, source)
    entries = document.get("case", [])
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{source}: a suite needs at least one [[case]]")
    backends = registry.backend_names()
    overrides: dict[str, dict[str, Any]] = {}
    for backend in _read_table(document, "on", source):
        check_known("backend", backend, backends, where=f"{source}, on")
        table = _read_table(document["on"], backend, f"{source}, on")
        _check_keys(table, _ON_KEYS, f"{source}, on.{backend}")
        overrides[backend] = _read_settings(table, f"{source}, on.{backend}")
    cases = tuple(_parse_case(entry, number, source) for number, entry in enumerate(entries, start=1))
    own = {"precisions": ("fp32", "fp16"), "target_seconds": None} | _read_settings(document, source)
    return Suite(name or source, str(document.get("text", "")), cases, **own, on=overrides)


def _read_settings(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the precisions and target_seconds of a table, checked."""
    settings: dict[str, Any] = {}
    if "precisions" in table:
        settings["precisions"] = _parse_precisions(table["precisions"], where)
    if "target_seconds" in table:
        value = table["target_seconds"]
        seconds = settings["target_seconds"] = finite_or_none(value) or 0.0
        if not seconds > 0:
            raise ValueError(f"{where}: target_seconds is {repr_short(value)}, a positive number is needed")
    return settings


def _parse_case(entry: dict[str, Any], number: int, source: str) -> SuiteCase:
    name, operation = entry.get("name", entry.get("operation", "")), entry.get("operation")
    where = f"{source}, case {number}" + (f" ({repr_short(name)})" if name else "")
    _check_keys(entry, _CASE_KEYS, where)
    if not isinstance(operation, str):
        raise ValueError(f"{where}: operation is missing")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ValueError(f"{where}: name is {repr_short(name)}: text in one line is needed")
    try:
        known_params = registry.param_names(operation)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    params: dict[str, tuple[int, ...]] = {}
    for key, value in _read_table(entry, "params", where).items():
        if key not in known_params:
            raise ValueError(registry.describe_unknown_param(operation, key, known_params, where=where))
        params[key] = _parse_counts(value, key, where)
    kv_lens = registry.parse_lengths(entry.get("kv_lens"), f"{where}: kv_lens")
    if kv_lens is not None and not registry.operation(operation)["takes_kv_lens"]:
        raise ValueError(f"{where}: {operation} takes no kv_lens")
    variants = {row["name"] for rows in registry.operation(operation)["variants"].values() for row in rows}
    allowed = [*sorted(variants), "all"] if variants else entry.get("variants", [])  # of a backend not in this build
    return SuiteCase(
        name=name,
        operation=operation,
        params=params,
        kv_lens=kv_lens,
        precisions=_parse_precisions(entry["precisions"], where) if "precisions" in entry else None,
        variants=_parse_words(entry, "variants", f"variant of {operation}", allowed, where),
        backends=_parse_words(entry, "backends", "backend", registry.backend_names(), where),
        caches=_parse_words(entry, "cache", "cache", _CACHES, where),
    )


def _check_keys(table: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in table:
        check_known("key", key, allowed, where=where)


def _read_table(table: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise ValueError(f"{where}: {key} must be a table, not {repr_short(found)}")
    return found


def _as_list(value: Any, key: str, where: str) -> list[Any]:
    if value == []:
        raise ValueError(f"{where}: {key} is an empty list")
    return value if isinstance(value, list) else [value]


def _parse_counts(value: Any, key: str, where: str) -> tuple[int, ...]:
    items = _as_list(value, key, where)
    for item in items:
        if not isinstance(item, (int, str)) or (isinstance(item, bool) and key not in registry.flag_names()):
            raise ValueError(f"{where}: {key} is {repr_short(item)}, a whole number is needed")
    return tuple(map(int, expand_ranges(items, f"{where}: {key}")))


def _parse_words(
    entry: Mapping[str, Any], key: str, kind: str, allowed: Sequence[str], where: str
) -> tuple[str, ...] | None:
    """Return an entry's words, each an allowed one; None where the key is missing."""
    if key not in entry:
        return None
    words = _as_list(entry[key], key, where)
    for word in words:
        check_known(kind, word, allowed, where=where)
    return tuple(words)


def _parse_precisions(value: Any, where: str) -> tuple[str, ...]:
    return tuple(registry.check_precision(word, where=where) for word in _as_list(value, "precisions", where))
