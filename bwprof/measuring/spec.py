"""One case to measure, as a plan lists it and as a run's file keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from bwprof import _core, registry
from bwprof.measuring.row import Context, add_work, provenance
from bwprof.results import schema
from bwprof.results.schema import Row
from bwprof.text import fraction, shown, truth, unknown

CACHES = ("cold", "hot")
DEFAULT_CACHE = "cold"
DEFAULT_REL_CI = 0.005


@dataclass(frozen=True, slots=True)
class Spec:
    """One case to measure. `variant` and `timer` None leave the choice to the device."""

    case: str
    operation: str
    precision: str
    params: dict[str, int]
    kv_lens: tuple[int, ...] | None
    variant: str | None
    cache: str
    seed: int
    timer: str | None = None
    counters: bool = False
    metrics: tuple[str, ...] = ()
    rel_ci: float | None = None  # None: DEFAULT_REL_CI
    repeatable: ClassVar[bool] = True

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Spec:
        """The inverse of `to_dict`."""
        lens = found["kv_lens"]
        metrics = tuple(found.get("metrics", ()))
        spec = cls(**{**found, "kv_lens": tuple(lens) if lens is not None else None, "metrics": metrics})
        return replace(spec, case=registry.case_name(spec.case, spec.kv_lens))  # a plan that was written before

    def open(self, device: _core.Device, *, nvtx: bool = True) -> _core.Case:
        """The case on a device, nothing allocated yet. `nvtx`: tools that watch the process are told of it."""
        return _core.Case(
            device,
            self.operation,
            self.precision,
            self.params,
            kv_lens=self.kv_lens,
            variant=self.variant,
            seed=self.seed,
            name=self.case,
            nvtx=nvtx,
        )

    @classmethod
    def checked(cls, found: Mapping[str, Any], backend: str) -> Spec:
        """The same from a file that may not be bwprof's own writing; ValueError for what cannot be run."""
        spec = cls.from_dict(found)
        for name in ("case", "cache", "timer", "variant"):
            value = getattr(spec, name)
            if not isinstance(value, str) and not (value is None and name in ("timer", "variant")):
                raise ValueError(f"{name} is {shown(value)}, text is needed")
        registry.check_timer(spec.timer, backend)
        truth(spec.counters, "counters")
        if spec.cache not in CACHES:
            raise ValueError(unknown("cache", spec.cache, CACHES))
        known = registry.variant_names(spec.operation, backend)
        if spec.variant is not None and spec.variant not in known:
            raise ValueError(unknown(f"variant of {spec.operation} on {backend}", spec.variant, known))
        registry.check_seed(spec.seed)
        registry.check_metrics(spec.metrics, backend)
        if spec.rel_ci is not None:
            fraction(spec.rel_ci, "rel_ci")
        allowed = registry.operation(spec.operation)["precisions"]
        precision = registry.check_precision(spec.precision)
        usable = precision if precision in allowed else allowed[0]  # one that is not leaves a skipped row
        whole = registry.complete(spec.operation, usable, spec.params, spec.kv_lens)
        return replace(spec, precision=precision, params=whole)

    def blank_row(self, context: Context) -> Row:
        """The case's row before it has run: identity, work and provenance."""
        row = schema.empty_row()
        row.update(self.params)
        row.update(
            operation=self.operation,
            precision=self.precision,
            case=self.case,
            kv_lens=registry.lengths_text(self.kv_lens),
            variant=self.variant,
            cache=self.cache,
            seed=self.seed,
            **provenance(context),
        )
        row.update(context.labels)
        with suppress(ValueError):  # a precision that the operation does not have: the row says so when it has run
            add_work(row, _core.cost(self.operation, self.precision, self.params, self.kv_lens, None, None))
        return row

    @property
    def title(self) -> str:
        """For progress lines: case, precision, variant."""
        words = [self.case, self.precision, self.variant or "", "" if self.cache == DEFAULT_CACHE else self.cache]
        return " ".join(word for word in words if word)
