"""PyTorch's counterparts of operations, from `peers.toml`, measured like the functions of `bwprof.measure`."""

from __future__ import annotations

import importlib.util
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from bwprof import _core, hardware
from bwprof.environment import new_run_id
from bwprof.hardware import Choice
from bwprof.measuring.function import Subject, measure_on
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Contexts
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofsArgument

TORCH = "torch"

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
        unmet = [need for need in self.needs if not _is_true(need, spec.params)]
        return f"it needs {' '.join(map(str, unmet[0]))}" if unmet else ""


def _is_true(comparison: Sequence[Any], params: Mapping[str, int]) -> bool:
    """Return whether two parameters, or one and a number, are equal, or differ, as the sign between them says."""
    left, sign, right = comparison
    equal: bool = params.get(left, left) == params.get(right, right)
    return equal if sign == "==" else not equal


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


def describe_torch(backend: str) -> tuple[str, bool]:
    """Return PyTorch's version, else why it cannot run on a backend; and whether it can."""
    try:
        if importlib.util.find_spec(TORCH) is None:
            return "PyTorch is not installed", False
        torch = importlib.import_module(TORCH)
        if not _core.backend_facts(backend)["runs_on_host"] and not torch.cuda.is_available():
            return f"this PyTorch ({torch.__version__}) has no CUDA", False
        return f"PyTorch {torch.__version__}", True
    except Exception as error:
        return f"PyTorch cannot be loaded: {_first_line(error)}", False


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """The device and the case to measure, its timer (None: the device's default), roofs, and time limit."""

    choice: Choice
    spec: Spec
    timer: str | None
    roofs: RoofsArgument
    max_seconds: float


def measure_peer(request: PeerRequest, peer: Peer) -> RowDict:
    """Measure a peer as `bwprof.measure` does; one that does not run gives a row with the reason.

    Whatever PyTorch raises must not cost the variants; only a lost device ends an ablation.
    """
    spec, choice = request.spec, request.choice
    reason, status = peer.refuses(spec), "skipped"
    try:
        if not reason:
            with hardware.borrow_device(choice.backend, choice.index) as device, spec.open(device) as case:
                if sum(operand["bytes"] for operand in case.operands) <= _MAX_BYTES:
                    return _PeerBench(device, case, request, peer).measure()
            reason = "its inputs, which are made on the host, would take more than 2 GiB"
    except Exception as error:
        if getattr(error, "fatal", False):
            raise
        reason, status = _first_line(error), "failed"
    labels = {"operation": spec.operation, "precision": spec.precision, "variant": peer.name}
    return schema.empty_row() | labels | {"status": status, "reason": reason}


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class _PeerBench:
    """A peer on the inputs of a case of bwprof."""

    def __init__(self, device: _core.Device, case: _core.Case, request: PeerRequest, peer: Peer) -> None:
        self._device, self._case, self._request, self._peer = device, case, request, peer
        self._spec = request.spec
        self._on_host = _core.backend_facts(device.backend)["runs_on_host"]

    def measure(self) -> RowDict:
        """Measure the peer; return its row."""
        torch = importlib.import_module(TORCH)
        try:
            with self._settings(torch) as place, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of unusable kernels: an exception follows
                row = self._measure(torch, place)
        finally:
            if not self._on_host:
                torch.cuda.empty_cache()
        return row | {"operation": self._spec.operation, "variant": self._peer.name}

    @contextmanager
    def _settings(self, torch: Any) -> Iterator[Any]:
        """Apply the peer's settings of PyTorch on bwprof's stream; give PyTorch's device."""
        device = self._device
        stream = nullcontext() if self._on_host else torch.cuda.stream(torch.cuda.ExternalStream(device.stream))
        with ExitStack() as stack:
            for name, precisions in self._peer.switches.items():
                owner, _, attribute = name.rpartition(".")
                home = resolve_name(owner)
                stack.callback(setattr, home, attribute, getattr(home, attribute))
                setattr(home, attribute, self._spec.precision in precisions)
            if not self._on_host:
                stack.enter_context(torch.cuda.device(device.index))
            with stream, torch.no_grad():
                yield torch.device(f"{device.backend}:{device.index}")

    def _measure(self, torch: Any, place: Any) -> RowDict:
        cost, spec, request = self._case.cost, self._spec, self._request
        footprint = cost["bytes_read"] + cost["bytes_written"]
        cached = self._device.facts()["cache_bytes"]
        sets = min(_MAX_SETS, max(1, -(-_COLD * cached // footprint))) if spec.cache == "cold" else 1
        first = self._make_tensors(torch, place)
        copies = [{name: tensor.clone() for name, tensor in first.items()} for _ in range(sets - 1)]
        calls = [_make_call(self._peer, spec, tensors) for tensors in (first, *copies)]
        subject = Subject(
            lambda number: calls[number](),
            self._peer.name,
            precision=spec.precision,
            bytes_read=cost["bytes_read"],
            bytes_written=cost["bytes_written"],
            flops=cost["flops"],
            footprint_bytes=footprint,
            sets=sets,
            timer=request.timer,
            cache=spec.cache,
        )
        contexts = Contexts(new_run_id(), self._device, request.roofs, (spec.cache,))
        row = measure_on(subject, contexts, max_seconds=request.max_seconds).row
        return row | self._verify(torch, calls[0](), first, str(row["flags"] or ""))

    def _verify(self, torch: Any, returned: Any, tensors: Mapping[str, Any], flags: str) -> RowDict:
        """Verify the result against the operation's float64 reference; return what changes in the row."""
        peer = self._peer
        name = peer.out or str(peer.result["operand"])
        result = tensors[peer.out] if peer.out else _swapped(returned, peer.result)
        stored = result.contiguous().cpu().reshape(-1).view(torch.uint8)
        verdict = self._case.verify(outputs={name: bytes(stored.numpy())})
        found = {key: verdict[key] for key in ("verified", "max_error", "tolerance")}
        others = [flag for flag in flags.split(";") if flag and flag != "unverified"]
        if verdict["verified"]:
            return found | {"flags": ";".join(others)}
        return found | {"flags": ";".join([*others, "unverified"]), "reason": f"wrong result: {verdict['reason']}"}

    def _make_tensors(self, torch: Any, place: Any) -> dict[str, Any]:
        """Make the operands of the peer: the case's inputs, and an empty output."""
        inputs = self._case.inputs()
        names = {str(argument["operand"]) for argument in self._peer.arguments} | {self._peer.out}
        tensors = {}
        for operand in (operand for operand in self._case.operands if operand["name"] in names):
            name, kind = operand["name"], getattr(torch, _known()["types"][operand["dtype"]])
            if name in inputs:
                flat = torch.frombuffer(bytearray(inputs[name]), dtype=kind)
                tensors[name] = flat.reshape(operand["shape"]).to(place)
            else:
                tensors[name] = torch.empty(operand["shape"], dtype=kind, device=place)
        return tensors


def _swapped(tensor: Any, entry: Mapping[str, Any]) -> Any:
    return tensor.swapaxes(*entry["swapped"]) if "swapped" in entry else tensor


def _make_call(peer: Peer, spec: Spec, tensors: Mapping[str, Any]) -> Callable[[], object]:
    call = resolve_name(peer.call)
    arguments = [_swapped(tensors[str(argument["operand"])], argument) for argument in peer.arguments]
    keywords: dict[str, Any] = {**peer.keywords}
    keywords |= {name: _is_true(comparison, spec.params) for name, comparison in peer.flags.items()}
    if peer.out:
        keywords["out"] = tensors[peer.out]
    if not peer.within:
        return lambda: call(*arguments, **keywords)
    manager, choice = resolve_name(peer.within), resolve_name(peer.choice)

    def within() -> object:
        with manager(choice):
            return call(*arguments, **keywords)

    return within
