"""Measure several cases back to back as one; on a GPU they are one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from bwprof import _core, hardware, registry
from bwprof.measuring.contexts import Contexts
from bwprof.measuring.function import Subject, measure_on
from bwprof.measuring.operation import DEFAULT_CACHE, Spec
from bwprof.measuring.row import Context, Outcome, describe_origin, make_failed_by
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofsArgument

_VERIFY_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Chain:
    """Cases in launch order, each on its own buffers; `name` is the row's operation."""

    case: str
    name: str
    precision: str
    specs: tuple[Spec, ...]
    labels: dict[str, Any] = field(default_factory=dict)
    cache: str = DEFAULT_CACHE
    repeatable: ClassVar[bool] = False

    @property
    def title(self) -> str:
        """Case and precision, for progress lines."""
        return f"{self.case} {self.precision}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Chain:
        """Read what `to_dict` returns."""
        return cls(**{**found, "specs": tuple(map(Spec.from_dict, found["specs"]))})

    @property
    def work(self) -> dict[str, int]:
        """The sums of the cases' bytes and FLOPs."""
        costs = [_core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens) for spec in self.specs]
        return {name: sum(cost[name] for cost in costs) for name in costs[0]}

    def blank_row(self, context: Context) -> RowDict:
        """Return the row before anything has run."""
        work = self.work
        identity = {
            "operation": self.name,
            "precision": self.precision,
            "case": self.case,
            "cache": self.cache,
            **{name: work[name] for name in ("bytes_read", "bytes_written", "flops")},
        }
        return schema.empty_row() | identity | describe_origin(context) | context.labels | self.labels


def measure(
    device: _core.Device,
    chain: Chain,
    context: Context,
    *,
    max_seconds: float,
    poll: Callable[[], object] | None = None,
) -> Outcome:
    """Measure a chain; an error becomes a skipped or failed row."""
    row = chain.blank_row(context)
    try:
        return _measured(device, chain, context, max_seconds, poll)
    except (ValueError, RuntimeError, MemoryError, OSError) as error:
        return make_failed_by(error, row)


def _measured(
    device: _core.Device, chain: Chain, context: Context, max_seconds: float, poll: Callable[[], object] | None
) -> Outcome:
    work = chain.work
    with ExitStack() as stack:
        cases = [stack.enter_context(spec.open(device)) for spec in chain.specs]
        for case in cases:  # this prepares it, too: nothing may be searched during a capture
            found = case.verify(_VERIFY_SECONDS)
            if not found["verified"]:
                raise RuntimeError(f"{case.operation} ({case.variant}, {case.precision}) is wrong: {found['reason']}")

        def launch(_set: int = 0) -> None:
            for case in cases:
                case.enqueue()

        has_streams = _core.backend_facts(device.backend)["has_streams"]
        subject = Subject(
            launch,
            chain.name,
            precision=chain.precision,
            bytes_read=work["bytes_read"],
            bytes_written=work["bytes_written"],
            flops=work["flops"],
            footprint_bytes=work["footprint_bytes"],
            sets=1,
            stream=device.stream if has_streams else None,
            timer=registry.timer_names(device.backend)[0],
            cache=chain.cache,
            check=lambda: True,  # each case is verified above
        )
        # The cases' handle is in use while they launch: another one measures.
        with hardware.borrow_device(device.backend, device.index) as handle:
            roofs: RoofsArgument = context.roofs if context.roofs is not None else False
            contexts = Contexts(context.run_id, handle, roofs, (chain.cache,), poll=poll)
            outcome = measure_on(handle, subject, contexts, max_seconds=max_seconds, poll=poll)
        names = ("algorithmic_bytes_read", "algorithmic_bytes_written")  # with intermediate results
        stored = {name: sum(case.cost[name] for case in cases) for name in names}
    outcome.row.update({"case": chain.case, **stored, **context.labels, **chain.labels})
    return outcome
