"""What variants launch: their kernels, and what these take of a GPU's multiprocessors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof import _core, errors, hardware, registry
from bwprof.analysis.occupancy_model import is_known, occupancy
from bwprof.text.formatting import format_gain
from bwprof.text.listing import Listing, format_html_table, format_table
from bwprof.text.parsing import quote_text

if TYPE_CHECKING:
    import pandas as pd

LADDER_KEYS = ("changes", "predicted", "because", "at")  # of a variant: its place in its ladder

# Of a row, in this order; None where it is not known.
_KEYS = (
    "operation",
    "backend",
    "variant",
    "text",
    *LADDER_KEYS,
    "precisions",
    "default",
    "precision",
    "kernel",
    "symbol",
    "registers",
    "static_shared_bytes",
    "dynamic_shared_bytes",
    "local_bytes",
    "threads",
    "blocks",
    "resident_blocks",
    "theoretical_pct",
    "limiter",
    "note",
    "instruction_set",
    "reason",
)

_HEADINGS = {
    "operation": "operation",
    "backend": "backend",
    "variant": "variant",
    "instruction_set": "ISA",
    "kernel": "kernel",
    "registers": "registers",
    "shared": "shared",
    "local_bytes": "local",
    "threads": "threads",
    "theoretical_pct": "occupancy",
    "limiter": "limiter",
    "reason": "reason",
}

_NO_REGISTERS = (
    "Registers, shared memory and occupancy are of a GPU's kernels, and none could be asked: the reasons say why. Run "
    "this where there is one, or work an occupancy out: bwprof.occupancy(registers, shared_bytes, threads, arch)."
)

_PART = re.compile(r"L?([1-9][0-9]*)")


class Variants(Listing):
    """Variants and their kernels: a list of dicts, also by a variant's or a kernel's name; shown as a table."""

    kind = "variant"
    widest = 200  # why a kernel is not known, and what to do

    def names_of(self, item: dict[str, Any]) -> Sequence[str]:
        """A variant's name, alone and behind its operation's, and its kernel's."""
        names = (item["variant"], f"{item['operation']} {item['variant']}", item["kernel"], item["symbol"])
        return [str(name) for name in names if name is not None] or [item["operation"]]

    def cells(self, item: dict[str, Any]) -> dict[str, str]:
        """A kernel's line in the table."""
        return {heading: _cell(item, key) for key, heading in _HEADINGS.items()}

    def lines(self) -> list[dict[str, str]]:
        """The table; without its empty columns where nothing is known of any kernel."""
        found = [self.cells(item) for item in self]
        if not self.lacking:
            return found
        shown = [heading for heading in _HEADINGS.values() if any(line[heading] for line in found)]
        return [{heading: line[heading] for heading in shown} for line in found]

    @property
    def lacking(self) -> str:
        """Why there are no registers, and what to do, where no kernel's are known; else ""."""
        if any(item["registers"] is not None for item in self):
            return ""
        return _NO_REGISTERS if len(self) else ""

    def __repr__(self) -> str:
        return "\n".join(filter(None, (format_table(self.lines(), self.widest), self.lacking))) or f"no {self.kind}"

    def _repr_html_(self) -> str:
        return format_html_table(self.lines(), self.lacking)

    def frame(self) -> pd.DataFrame:
        """All that is known as a pandas frame, a row for each kernel."""
        import pandas as pd

        return pd.DataFrame(list(self), columns=list(_KEYS)).convert_dtypes()

    @property
    def kernel_name(self) -> str:
        """What picks these kernels for Nsight Compute: ``ncu --kernel-name <this>``; "" where none is known."""
        names = dict.fromkeys(item["kernel"] for item in self if item["kernel"])
        return f"regex:^({'|'.join(map(re.escape, names))})$" if names else ""


def variants(
    op: str | None = None,
    device: hardware.Device = None,
    *,
    precision: str = "fp32",
    kv_lens: str | Sequence[int | str] | None = None,
    **params: Any,
) -> Variants:
    """The variants of operations and, on a GPU, the kernels that each launches: names, registers, occupancy.

    Nothing is launched, and no memory is taken.

    Parameters
    ----------
    op : str, optional
        One operation; all of them when it is left out.
    device : int, str or torch.device, optional
        "cuda", "cuda:1", "cpu", ...; the first of every kind when it is left out.
    precision : str
        Kernels are other ones in another precision.
    kv_lens : sequence of int, or str, optional
        One length per batch entry, for an operation that takes it, given as to `bwprof.cost`: [100, 7000], "100,7Ki".
    **params : int
        The operation's parameters ("4Ki" among them): kernels depend on sizes. Those left out take their defaults.

    Returns
    -------
    Variants
        A list of dicts, one for each kernel of a variant, shown as a table, which ``frame()`` gives with all columns;
        ``variants("gemm")["tiled"]`` finds one by its name, and ``kernel_name`` is what ``ncu --kernel-name`` takes.
        Keys: operation, backend, variant, text; as a rung of its ladder what it changes against the one before it,
        predicted (how many times faster that should make it, written before it was measured; None where nothing is
        before it), because, at (the precision and parameters that this is about: "fp16 M=1 N=4096"); precisions (all
        that it takes), default (whether it runs when none is named), precision; kernel (the name in the source), symbol
        (the linker's); registers and local_bytes of a thread (what registers spill to, and local arrays);
        static_shared_bytes, dynamic_shared_bytes and threads of a block,
        blocks of the grid; resident_blocks on a multiprocessor at once, as the runtime has it; theoretical_pct, limiter
        and note of `bwprof.occupancy`; instruction_set of a CPU's. What is not known is None, and `reason` says why.

    Raises
    ------
    ValueError
        For unknown names, with the nearest one, and values out of range; for parameters without an operation.
    DeviceError
        When the device is lost.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.variants("gemm", "cpu", M=1, N=4096, K=4096)
    >>> found[0]["variant"], found[0]["registers"], found[0]["reason"]
    ('naive', None, 'it runs on the host: no registers or shared memory of blocks')
    """
    precision = registry.check_precision(precision)
    if op is None and (params or kv_lens is not None):
        named = ", ".join(map(quote_text, params)) or "kv_lens"
        raise ValueError(f"{named}: which operation's? variants(op, ...) is needed")
    operations = registry.operations() if op is None else [registry.operation(op)]
    wanted: dict[str, dict[str, int]] = {}
    lengths = registry.parse_lengths(kv_lens)
    for operation in operations:
        if op is not None or precision in operation["precisions"]:
            wanted[operation["name"]] = registry.complete_params(operation["name"], precision, params, lengths)
    found = Variants()
    for backend, index in _places(device):
        found += _on(backend, index, operations, wanted, precision, lengths)
    order = [operation["name"] for operation in operations]
    return Variants(sorted(found, key=lambda row: order.index(row["operation"])))


def format_kernel(row: Mapping[str, Any]) -> str:
    """A row of `variants` in a line, the variant's own words left out."""
    if row["registers"] is None:
        isa = f"{row['instruction_set']}: " if row["instruction_set"] else ""
        return f"{row['precision']}: {isa}{row['reason']}"
    said = (
        f"{row['registers']} registers",
        f"{_cell(row, 'shared')} bytes of shared memory (static + dynamic)",
        f"{row['local_bytes']} bytes of local memory",
        f"{row['threads']} threads",
        f"occupancy {_cell(row, 'theoretical_pct') or 'not known'}"
        + (f" ({row['limiter']})" if row["limiter"] else ""),
        *filter(None, (row["note"], row["reason"])),
    )
    name = f"{row['kernel']} ({row['symbol']})" if row["symbol"] else "a kernel"
    return f"{row['precision']}: {name}: {', '.join(said)}"


def format_variant(variant: Mapping[str, Any]) -> str:
    """What a variant changes against the rung before it, and what that should bring, in a line.

    Examples
    --------
    >>> variant_line({"changes": "no bank conflicts", "predicted": 3.0, "because": "2 turns, not 8", "at": "fp16 M=1"})
    'changes: no bank conflicts; predicted 3.00x at fp16 M=1: 2 turns, not 8'
    """
    said = f"changes: {variant['changes']}"
    if variant["predicted"] is None:
        return said
    return f"{said}; predicted {format_gain(variant['predicted'])} at {variant['at']}: {variant['because']}"


def base_name(symbol: str) -> str:
    """The name in the source of a symbol as C++ compilers mangle them, without namespaces and template arguments.

    Examples
    --------
    >>> base_name("_ZN4bits11copy_kernelI6__halfEEvPKT_")
    'copy_kernel'
    """
    at = 3 if symbol.startswith("_ZN") else 2
    name = ""
    while symbol.startswith("_Z") and (part := _PART.match(symbol, at)):
        at = part.end() + int(part[1])
        name = symbol[part.end() : at]
        if not symbol.startswith("_ZN"):
            break
    return name or symbol


def _places(device: hardware.Device) -> list[tuple[dict[str, Any], int]]:
    """The backends asked about, and which device of each."""
    backend, index = hardware.parse_device(device)
    listed = _core.backends()
    if backend is None and index is not None:
        backend = hardware.choose_device(device=device).backend
    return [(row, index or 0) for row in listed if backend in (None, row["name"])]


def _on(
    backend: dict[str, Any],
    index: int,
    operations: Sequence[dict[str, Any]],
    wanted: Mapping[str, Mapping[str, int]],
    precision: str,
    kv_lens: Sequence[int] | None,
) -> list[dict[str, Any]]:
    """The rows of one device, or of a backend that has none."""
    name = backend["name"]
    if not backend["devices"]:
        return [row for operation in operations for row in _named(operation, name, precision, _absence(backend))]
    try:
        device = _core.Device(name, index)
    except (errors.UnavailableError, errors.DeviceError) as error:
        return [row for operation in operations for row in _named(operation, name, precision, str(error))]
    with device:
        facts = device.facts()
        found: list[dict[str, Any]] = []
        for operation in operations:
            params = wanted.get(operation["name"])
            if params is None:
                found += _named(operation, name, precision, "")
                continue
            for variant in device.variants(operation["name"], precision, params, kv_lens):
                row = _row(operation, name, variant, precision) | {"default": variant["default"]}
                if _core.backend_facts(name)["runs_on_host"]:
                    row["instruction_set"] = facts["runtime"]
                if variant["refuses"]:
                    found.append(row | {"reason": variant["refuses"]})
                else:
                    found += _kernels(device, facts, row, params, kv_lens)
        return found


def _absence(backend: dict[str, Any]) -> str:
    if backend["built"]:
        return str(backend["reason"])
    return f"not in this build: {backend['reason']}; {_core.backend_facts(backend['name'])['remedy']}"


def _row(operation: dict[str, Any], backend: str, variant: dict[str, Any] | None, precision: str) -> dict[str, Any]:
    known_of = ("text", *LADDER_KEYS, "precisions")
    named = {name: variant[name] for name in known_of} | {"variant": variant["name"]} if variant else {}
    known = {"operation": operation["name"], "backend": backend, "precision": precision, "note": "", "reason": ""}
    return dict.fromkeys(_KEYS) | known | named


def _named(operation: dict[str, Any], backend: str, precision: str, reason: str) -> Iterator[dict[str, Any]]:
    """What is known without a device: names; of a backend that is not built, not even these."""
    for variant in operation["variants"].get(backend, [None]):
        fits = variant is None or precision in variant["precisions"]
        why = reason if fits else "not in this precision"
        yield _row(operation, backend, variant, precision) | {"reason": why}


def _kernels(
    device: _core.Device,
    facts: dict[str, Any],
    row: dict[str, Any],
    params: Mapping[str, int],
    kv_lens: Sequence[int] | None,
) -> list[dict[str, Any]]:
    try:
        kernels = device.kernels(row["operation"], row["precision"], params, row["variant"], kv_lens)
    except (errors.UnsupportedError, errors.UnavailableError) as error:
        return [row | {"reason": str(error)}]
    arch = f"{facts.get('major', 0)}.{facts.get('minor', 0)}"
    return [row | _known(kernel, arch) for kernel in kernels]


def _known(kernel: dict[str, Any], arch: str) -> dict[str, Any]:
    """A kernel's part of a row."""
    symbol = kernel["symbol"]
    said = [] if symbol else ["kernels' names need CUDA 12.3: its driver, and a build with its toolkit"]
    shared = kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"]
    part = kernel | {"kernel": base_name(symbol) if symbol else None}
    if is_known(arch):
        found = occupancy(kernel["registers"], shared, kernel["threads"], arch)
        part |= {"theoretical_pct": found.theoretical_pct, "limiter": found.limiter, "note": found.note}
    else:
        said.append(f"the limits of compute capability {arch} are not known")
    return part | {"reason": "; ".join(said)}


def _cell(item: Mapping[str, Any], key: str) -> str:
    if key == "shared":
        parts = item["static_shared_bytes"], item["dynamic_shared_bytes"]
        return "" if None in parts else " + ".join(map(str, parts))
    value = item[key]
    if key == "variant" and item["default"]:
        return f"{value} (default)"
    if value is None:
        return ""
    return f"{value:.3g} %" if key == "theoretical_pct" else str(value)
