"""Several cases back to back, timed as one: on a GPU captured in one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from bwprof import _core, hardware, registry
from bwprof.measuring.contexts import Contexts
from bwprof.measuring.function import Subject, measure_on
from bwprof.measuring.operation import DEFAULT_CACHE, Spec
from bwprof.measuring.row import Context, Outcome, describe_origin, make_failed
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofsArgument

_VERIFY_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Chain:
    """Cases in the order in which they are launched, each on buffers of its own. `name` is the row's operation."""

    case: str
    name: str
    precision: str
    specs: tuple[Spec, ...]
    labels: dict[str, Any] = field(default_factory=dict)
    cache: str = DEFAULT_CACHE
    repeatable: ClassVar[bool] = False

    @property
    def title(self) -> str:
        """For progress lines."""
        return f"{self.case} {self.precision}"

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Chain:
        """The inverse of `to_dict`."""
        return cls(**{**found, "specs": tuple(map(Spec.from_dict, found["specs"]))})

    @property
    def work(self) -> dict[str, int]:
        """The cases' bytes and FLOPs, added up."""
        costs = [_core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens) for spec in self.specs]
        return {name: sum(cost[name] for cost in costs) for name in costs[0]}

    def blank_row(self, context: Context) -> RowDict:
        """Its row before it has run."""
        return schema.empty_row() | self._identity() | describe_origin(context) | context.labels | self.labels

    def _identity(self) -> RowDict:
        work = self.work
        return {
            "operation": self.name,
            "precision": self.precision,
            "case": self.case,
            "cache": self.cache,
            **{name: work[name] for name in ("bytes_read", "bytes_written", "flops")},
        }


def measure(
    device: _core.Device,
    chain: Chain,
    context: Context,
    *,
    max_seconds: float,
    poll: Callable[[], object] | None = None,
) -> Outcome:
    """Measure a chain. What goes wrong becomes a skipped or failed row, never an exception of bwprof's."""
    row = chain.blank_row(context)
    try:
        return _measured(device, chain, context, max_seconds, poll)
    except (_core.UnsupportedError, MemoryError) as error:
        return make_failed(row, "skipped", str(error) or "out of memory")
    except _core.DeviceError as error:
        return make_failed(row, "failed", str(error), fatal=bool(getattr(error, "fatal", False)))
    except (ValueError, RuntimeError, OSError) as error:
        return make_failed(row, "failed", f"{type(error).__name__}: {error}")


def _measured(
    device: _core.Device, chain: Chain, context: Context, max_seconds: float, poll: Callable[[], object] | None
) -> Outcome:
    work = chain.work
    with ExitStack() as stack:
        cases = [stack.enter_context(spec.open(device)) for spec in chain.specs]
        for case in cases:  # prepared by it, too: nothing is searched for while it is captured
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
            check=lambda: True,  # each case was, above
            labels={},
        )
        # The cases' own handle is in use while it launches: the one that measures is another.
        with hardware.borrow_device(device.backend, device.index) as handle:
            roofs: RoofsArgument = context.roofs if context.roofs is not None else False
            contexts = Contexts(context.run_id, handle, roofs, (chain.cache,), poll=poll)
            outcome = measure_on(handle, subject, contexts, max_seconds=max_seconds, poll=poll)
        names = ("algorithmic_bytes_read", "algorithmic_bytes_written")  # with what the variants store in between
        stored = {name: sum(case.cost[name] for case in cases) for name in names}
    outcome.row.update({"case": chain.case, **stored, **context.labels, **chain.labels})
    return outcome
