"""PyTorch's counterparts of operations, from `peers.toml`, measured like the functions of `bwprof.measure`."""

from __future__ import annotations

import importlib.util
import operator
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from bwprof import _core
from bwprof.environment import new_run_id
from bwprof.measuring.contexts import Contexts
from bwprof.measuring.function import Subject, measure_on
from bwprof.measuring.operation import DEFAULT_REL_CI, Spec
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofsArgument

TORCH = "torch"

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {"==": operator.eq, "!=": operator.ne}
_COLD = 4  # buffers of a cold case, in sizes of the cache, as for bwprof's own cases
_MAX_SETS = 2048
_MAX_BYTES = 1 << 31  # of operands, which are generated on the host


@dataclass(frozen=True, slots=True)
class Peer:
    """A PyTorch call that does the work of an operation; `peers.toml` describes the fields."""

    operation: str
    name: str
    call: str
    arguments: Sequence[Mapping[str, Any]]
    precisions: Sequence[str]
    out: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    keywords: Mapping[str, float] = field(default_factory=dict)
    flags: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    needs: Sequence[Sequence[Any]] = ()
    switches: Mapping[str, Sequence[str]] = field(default_factory=dict)
    within: str = ""
    choice: str = ""

    def refuses(self, spec: Spec) -> str:
        """Return why the call cannot do a case's work; "" if it can."""
        if spec.precision not in self.precisions:
            return f"it takes no {spec.precision}"
        if spec.kv_lens is not None:
            return "it takes no kv_lens"
        for left, sign, right in self.needs:
            if not check_comparison((left, sign, right), spec.params):
                return f"it needs {left} {sign} {right}"
        return ""


def check_comparison(comparison: Sequence[Any], params: Mapping[str, int]) -> bool:
    """Return whether a comparison of two parameters, or of one with a number, is true."""
    first, sign, second = comparison
    left, right = (params[term] if isinstance(term, str) else int(term) for term in (first, second))
    return _COMPARISONS[sign](left, right)


@cache
def _known() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parents[1] / "data" / "peers.toml").read_text(encoding="utf-8"))


def peers_of(operation: str) -> list[Peer]:
    """Return PyTorch's counterparts of an operation, one for each way to call it."""
    peers = []
    for entry in _known()["peer"]:
        if entry["operation"] == operation:
            rest = {name: value for name, value in entry.items() if name != "choices"}
            for name, choice in entry.get("choices", {"": ""}).items():
                peers.append(Peer(**{**rest, "name": f"{entry['name']} {name}".rstrip(), "choice": choice}))
    return peers


def why_unavailable(backend: str) -> str:
    """Return why PyTorch cannot run on a backend; "" if it can."""
    if importlib.util.find_spec(TORCH) is None:
        return "PyTorch is not installed"
    torch = importlib.import_module(TORCH)
    if not _core.backend_facts(backend)["runs_on_host"] and not torch.cuda.is_available():
        return f"this PyTorch ({torch.__version__}) has no CUDA"
    return ""


def version() -> str:
    """Return PyTorch's version."""
    return str(importlib.import_module(TORCH).__version__)


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """The case to measure, its timer (None: the device's default), roofs, time limit and precision."""

    spec: Spec
    timer: str | None
    roofs: RoofsArgument
    max_seconds: float
    rel_ci: float = DEFAULT_REL_CI


def measure_peers(device: _core.Device, request: PeerRequest, peers: Sequence[Peer]) -> Iterator[tuple[Peer, RowDict]]:
    """Measure each peer as `bwprof.measure` does; a peer that does not run gives a row with the reason."""
    spec = request.spec
    with spec.open(device) as case:
        bench = _PeerBench(device, request, case)
        for peer in peers:
            refusal = peer.refuses(spec) or bench.refusal
            yield peer, _empty(spec, peer, refusal) if refusal else bench.row_of(peer)


def _empty(spec: Spec, peer: Peer, reason: str, status: str = "skipped") -> RowDict:
    from bwprof.results import schema

    labels = {"operation": spec.operation, "precision": spec.precision, "variant": peer.name}
    return schema.empty_row() | labels | {"status": status, "reason": reason}


def describe_torch_error(error: Exception) -> str:
    """Return the first line of an exception's text, else its type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def failed_row(spec: Spec, peer: Peer, error: Exception) -> RowDict:
    """Return the row of a peer that raised an exception."""
    return _empty(spec, peer, describe_torch_error(error), "failed")


class _PeerBench:
    """A case of bwprof, on whose inputs peers are measured."""

    def __init__(self, device: _core.Device, request: PeerRequest, case: _core.Case) -> None:
        self._device, self._request, self._case, self._spec = device, request, case, request.spec
        self._contexts = Contexts(new_run_id(), device, request.roofs, (request.spec.cache,))
        self._on_host = _core.backend_facts(device.backend)["runs_on_host"]
        needed = sum(operand["bytes"] for operand in case.operands)
        too_large = "its inputs, which are made on the host, would take more than 2 GiB"
        self.refusal = too_large if needed > _MAX_BYTES else ""

    def row_of(self, peer: Peer) -> RowDict:
        """Measure a peer; return its row."""
        torch = importlib.import_module(TORCH)
        try:
            with self._settings(torch, peer) as place, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of unusable kernels: an exception follows
                row = self._measure(torch, place, peer)
        except Exception as error:  # whatever PyTorch raises: it must not cost the variants
            if getattr(error, "fatal", False):
                raise
            return failed_row(self._spec, peer, error)
        finally:
            if not self._on_host:
                torch.cuda.empty_cache()
        return row | {"operation": self._spec.operation, "variant": peer.name}

    @contextmanager
    def _settings(self, torch: Any, peer: Peer) -> Iterator[Any]:
        """Apply a peer's settings of PyTorch on bwprof's stream; give PyTorch's device."""
        device = self._device
        stream = nullcontext() if self._on_host else torch.cuda.stream(torch.cuda.ExternalStream(device.stream))
        with ExitStack() as stack:
            for name, precisions in peer.switches.items():
                owner, _, attribute = name.rpartition(".")
                home = resolve_name(owner)
                stack.callback(setattr, home, attribute, getattr(home, attribute))
                setattr(home, attribute, self._spec.precision in precisions)
            if not self._on_host:
                stack.enter_context(torch.cuda.device(device.index))
            with stream, torch.no_grad():
                yield torch.device(f"{device.backend}:{device.index}")

    def _measure(self, torch: Any, place: Any, peer: Peer) -> RowDict:
        cost, spec, request = self._case.cost, self._spec, self._request
        footprint = cost["bytes_read"] + cost["bytes_written"]
        cached = self._device.facts()["cache_bytes"]
        sets = min(_MAX_SETS, max(1, -(-_COLD * cached // footprint))) if spec.cache == "cold" else 1
        first = self._tensors(torch, place, peer)
        copies = [{name: tensor.clone() for name, tensor in first.items()} for _ in range(sets - 1)]
        calls = [_call_of(peer, spec, tensors) for tensors in (first, *copies)]
        subject = Subject(
            lambda number: calls[number](),
            peer.name,
            precision=spec.precision,
            bytes_read=cost["bytes_read"],
            bytes_written=cost["bytes_written"],
            flops=cost["flops"],
            footprint_bytes=footprint,
            sets=sets,
            timer=request.timer,
            cache=spec.cache,
        )
        seconds, rel_ci = request.max_seconds, request.rel_ci
        row = measure_on(subject, self._contexts, max_seconds=seconds, rel_ci=rel_ci).row
        self._verify(torch, peer, calls[0](), first, row)
        return row

    def _verify(self, torch: Any, peer: Peer, returned: Any, tensors: Mapping[str, Any], row: RowDict) -> None:
        """Verify the result against the operation's float64 reference."""
        name = peer.out or str(peer.result["operand"])
        result = tensors[peer.out] if peer.out else _swapped(returned, peer.result)
        stored = result.contiguous().cpu().reshape(-1).view(torch.uint8)
        verdict = self._case.verify(outputs={name: bytes(stored.numpy())})
        row.update({key: verdict[key] for key in ("verified", "max_error", "tolerance")})
        flags = [flag for flag in str(row["flags"] or "").split(";") if flag and flag != "unverified"]
        if not verdict["verified"]:
            flags.append("unverified")
            row["reason"] = f"wrong result: {verdict['reason']}"
        row["flags"] = ";".join(flags)

    def _tensors(self, torch: Any, place: Any, peer: Peer) -> dict[str, Any]:
        """Make the operands of a peer: the case's inputs, and an empty output."""
        inputs = self._case.inputs()
        names = {str(argument["operand"]) for argument in peer.arguments} | ({peer.out} if peer.out else set())
        tensors = {}
        for operand in self._case.operands:
            name = operand["name"]
            if name not in names:
                continue
            kind = getattr(torch, _known()["types"][operand["dtype"]])
            if name in inputs:
                flat = torch.frombuffer(bytearray(inputs[name]), dtype=kind)
                tensors[name] = flat.reshape(operand["shape"]).to(place)
            else:
                tensors[name] = torch.empty(operand["shape"], dtype=kind, device=place)
        return tensors


def _swapped(tensor: Any, entry: Mapping[str, Any]) -> Any:
    return tensor.transpose(*entry["swapped"]) if "swapped" in entry else tensor


def _call_of(peer: Peer, spec: Spec, tensors: Mapping[str, Any]) -> Callable[[], object]:
    """Return the call on one set of tensors."""
    call = resolve_name(peer.call)
    arguments = [_swapped(tensors[str(argument["operand"])], argument) for argument in peer.arguments]
    keywords: dict[str, Any] = {**peer.keywords}
    keywords |= {name: check_comparison(comparison, spec.params) for name, comparison in peer.flags.items()}
    if peer.out:
        keywords["out"] = tensors[peer.out]
    if not peer.within:
        return lambda: call(*arguments, **keywords)
    manager, choice = resolve_name(peer.within), resolve_name(peer.choice)

    def within() -> object:
        with manager(choice):
            return call(*arguments, **keywords)

    return within
