"""PyTorch's counterparts of operations, as `peers.toml` has them, measured as `bwprof.measure` measures functions."""

from __future__ import annotations

import importlib.util
import operator
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import Any

from bwprof import _core
from bwprof.environment import new_run_id
from bwprof.measuring.contexts import Contexts
from bwprof.measuring.function import Subject, measure_on
from bwprof.measuring.operation import DEFAULT_REL_CI, Spec
from bwprof.measuring.row import Outcome
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofsArgument

TORCH = "torch"

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {"==": operator.eq, "!=": operator.ne}

_COLD = 4  # sets of buffers are worth so many caches, as those of our own cases

_MOST_SETS = 2048

_MOST_BYTES = 1 << 31  # of operands that are made on the host: more would keep people waiting


@dataclass(frozen=True, slots=True)
class Peer:
    """One call of PyTorch's that does an operation's work."""

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
        """Why it does not do a case's work; "" where it does."""
        if spec.precision not in self.precisions:
            return f"it takes no {spec.precision}"
        if spec.kv_lens is not None:
            return "it takes no kv_lens"
        for one, sign, other in self.needs:
            if not check_comparison((one, sign, other), spec.params):
                return f"it needs {one} {sign} {other}"
        return ""


def check_comparison(comparison: Sequence[Any], params: Mapping[str, int]) -> bool:
    """Whether a comparison of two parameters, or of one with a number, is true."""
    one, sign, other = comparison
    left, right = (params[term] if isinstance(term, str) else int(term) for term in (one, other))
    return _COMPARISONS[sign](left, right)


@cache
def _known() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parents[1] / "data" / "peers.toml").read_text(encoding="utf-8"))


def peers_of(operation: str) -> list[Peer]:
    """What PyTorch has for an operation, a peer for each way to call it."""
    found = []
    for entry in _known()["peer"]:
        if entry["operation"] == operation:
            rest = {name: value for name, value in entry.items() if name != "choices"}
            choices = entry.get("choices", {"": ""})
            found += [
                Peer(**{**rest, "name": f"{entry['name']} {name}".rstrip(), "choice": choice})
                for name, choice in choices.items()
            ]
    return found


def why_unavailable(backend: str) -> str:
    """Why PyTorch cannot be measured on a backend; "" where it can."""
    if importlib.util.find_spec(TORCH) is None:
        return "PyTorch is not installed"
    torch = importlib.import_module(TORCH)
    if not _core.backend_facts(backend)["runs_on_host"] and not torch.cuda.is_available():
        return f"this PyTorch ({torch.__version__}) has no CUDA"
    return ""


def version() -> str:
    """PyTorch's, as it calls itself."""
    return str(importlib.import_module(TORCH).__version__)


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """What is measured, and how precisely: a case, its timer (None: the device's own), roofs and seconds."""

    spec: Spec
    timer: str | None
    roofs: RoofsArgument
    max_seconds: float
    rel_ci: float = DEFAULT_REL_CI


def measure_peers(device: _core.Device, asked: PeerRequest, peers: Sequence[Peer]) -> Iterator[tuple[Peer, RowDict]]:
    """A row for each peer, as `bwprof.measure` has them; what does not run is a row with its reason."""
    with asked.spec.open(device) as case:
        contexts = Contexts(new_run_id(), device, asked.roofs, (asked.spec.cache,))
        for peer in peers:
            refusal = peer.refuses(asked.spec)
            yield peer, _empty(asked.spec, peer, refusal) if refusal else _row(device, asked, peer, case, contexts)


def _empty(spec: Spec, peer: Peer, reason: str, status: str = "skipped") -> RowDict:
    from bwprof.results import schema

    return schema.empty_row() | {
        "operation": spec.operation,
        "precision": spec.precision,
        "variant": peer.name,
        "status": status,
        "reason": reason,
    }


def describe_torch_error(error: Exception) -> str:
    """What an exception of PyTorch's says, in a line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def failed_row(spec: Spec, peer: Peer, error: Exception) -> RowDict:
    """The row of a peer that raised."""
    return _empty(spec, peer, describe_torch_error(error), "failed")


def _row(device: _core.Device, asked: PeerRequest, peer: Peer, case: _core.Case, contexts: Contexts) -> RowDict:
    needed = sum(operand["bytes"] for operand in case.operands)
    if needed > _MOST_BYTES:
        return _empty(asked.spec, peer, "its inputs, which are made on the host, would take more than 2 GiB")
    torch = importlib.import_module(TORCH)
    try:
        with _with_peer_settings(torch, device, asked.spec, peer) as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's on kernels that it does not use: an exception follows
            outcome = _measured(torch, place, device, asked, peer, case, contexts)
    except Exception as error:  # whatever PyTorch raises: the ladder stands without it
        if getattr(error, "fatal", False):
            raise
        return failed_row(asked.spec, peer, error)
    finally:
        if not _core.backend_facts(device.backend)["runs_on_host"]:
            torch.cuda.empty_cache()
    return outcome.row | {"operation": asked.spec.operation, "variant": peer.name}


@contextmanager
def _with_peer_settings(torch: Any, device: _core.Device, spec: Spec, peer: Peer) -> Iterator[Any]:
    """With PyTorch's settings for a peer, on our own stream; gives torch's name of the device."""
    on_host = _core.backend_facts(device.backend)["runs_on_host"]
    stream = nullcontext() if on_host else torch.cuda.stream(torch.cuda.ExternalStream(device.stream))
    with ExitStack() as kept:
        for name, precisions in peer.switches.items():
            owner, _, attribute = name.rpartition(".")
            home = found(owner)
            kept.callback(setattr, home, attribute, getattr(home, attribute))
            setattr(home, attribute, spec.precision in precisions)
        if not on_host:
            kept.enter_context(torch.cuda.device(device.index))
        with stream, torch.no_grad():
            yield torch.device(f"{device.backend}:{device.index}")  # PyTorch calls devices as we do


def _measured(
    torch: Any,
    place: Any,
    device: _core.Device,
    asked: PeerRequest,
    peer: Peer,
    case: _core.Case,
    contexts: Contexts,
) -> Outcome:
    cost = case.cost
    footprint = cost["bytes_read"] + cost["bytes_written"]
    cached = device.facts()["cache_bytes"]
    sets = min(_MOST_SETS, max(1, -(-_COLD * cached // footprint))) if asked.spec.cache == "cold" else 1
    first = _tensors(torch, place, peer, case)
    tensors = [first, *({name: one.clone() for name, one in first.items()} for _ in range(sets - 1))]
    calls = [_call_of(peer, asked.spec, one) for one in tensors]
    subject = Subject(
        lambda number: calls[number](),
        peer.name,
        precision=asked.spec.precision,
        bytes_read=cost["bytes_read"],
        bytes_written=cost["bytes_written"],
        flops=cost["flops"],
        footprint_bytes=footprint,
        sets=sets,
        timer=asked.timer,
        cache=asked.spec.cache,
    )
    outcome = measure_on(device, subject, contexts, max_seconds=asked.max_seconds, rel_ci=asked.rel_ci)
    _verify(torch, peer, case, calls[0](), first, outcome.row)
    return outcome


def _verify(torch: Any, peer: Peer, case: _core.Case, returned: Any, tensors: Mapping[str, Any], row: RowDict) -> None:
    """Held against the operation's float64 reference, as our own variants are."""
    name = peer.out or str(peer.result["operand"])
    result = tensors[peer.out] if peer.out else _turned(returned, peer.result)
    stored = result.contiguous().cpu().reshape(-1).view(torch.uint8)
    verdict = case.verify(outputs={name: bytes(stored.numpy())})
    row.update(verified=verdict["verified"], max_error=verdict["max_error"], tolerance=verdict["tolerance"])
    flags = [flag for flag in str(row["flags"] or "").split(";") if flag and flag != "unverified"]
    if not verdict["verified"]:
        flags.append("unverified")
        row["reason"] = f"wrong result: {verdict['reason']}"
    row["flags"] = ";".join(flags)


def _tensors(torch: Any, place: Any, peer: Peer, case: _core.Case) -> dict[str, Any]:
    """The operands that a peer takes: inputs as a case of ours has them, and what it writes, empty."""
    bits = case.inputs()
    wanted = {str(argument["operand"]) for argument in peer.arguments} | ({peer.out} if peer.out else set())
    made = {}
    for operand in case.operands:
        if operand["name"] in wanted:
            kind = getattr(torch, _known()["types"][operand["dtype"]])
            if operand["name"] in bits:
                flat = torch.frombuffer(bytearray(bits[operand["name"]]), dtype=kind)
                made[operand["name"]] = flat.reshape(operand["shape"]).to(place)
            else:
                made[operand["name"]] = torch.empty(operand["shape"], dtype=kind, device=place)
    return made


def _turned(tensor: Any, said: Mapping[str, Any]) -> Any:
    return tensor.transpose(*said["swapped"]) if "swapped" in said else tensor


def _call_of(peer: Peer, spec: Spec, tensors: Mapping[str, Any]) -> Callable[[], object]:
    """The call, on one set of tensors."""
    call = found(peer.call)
    arguments = [_turned(tensors[str(argument["operand"])], argument) for argument in peer.arguments]
    keywords: dict[str, Any] = {**peer.keywords}
    keywords |= {name: check_comparison(comparison, spec.params) for name, comparison in peer.flags.items()}
    if peer.out:
        keywords["out"] = tensors[peer.out]
    if not peer.within:
        return lambda: call(*arguments, **keywords)
    manager, choice = found(peer.within), found(peer.choice)

    def within() -> object:
        with manager(choice):
            return call(*arguments, **keywords)

    return within


def found(name: str) -> Any:
    """What a whole name stands for: the longest part of it that is a module, and its attributes."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            home = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        return reduce(getattr, parts[count:], home)
    raise ImportError(f"there is no {name}")
