"""The kernels of variants, and their use of a GPU's multiprocessors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof import _core, errors, hardware, registry
from bwprof.analysis.occupancy_model import ARCHITECTURES, occupancy
from bwprof.text.listing import Listing, format_html_table, format_table
from bwprof.text.parsing import quote_text

if TYPE_CHECKING:
    import pandas as pd

LADDER_KEYS = ("changes", "predicted", "because", "at")  # compare a variant with the one before it

# Keys of a row, in order; unknown values are None.
_KEYS = (
    *("operation", "backend", "variant", "text", *LADDER_KEYS, "precisions", "default", "precision"),
    *("kernel", "symbol", "registers", "static_shared_bytes", "dynamic_shared_bytes", "local_bytes"),
    *("threads", "blocks", "resident_blocks", "theoretical_pct", "limiter", "note", "instruction_set", "reason"),
)

_CELLS = (
    *("operation", "backend", "variant", "instruction_set", "kernel", "registers"),
    *("shared", "local_bytes", "threads", "theoretical_pct", "limiter", "reason"),
)
_TITLES = {"instruction_set": "ISA", "local_bytes": "local", "theoretical_pct": "occupancy"}
_HEADINGS = {name: _TITLES.get(name, name) for name in _CELLS}

_NO_REGISTERS = (
    "Registers, shared memory and occupancy need a GPU; the reasons say why there is none. "
    "To calculate an occupancy: bwprof.occupancy(registers, shared_bytes, threads, arch)."
)

_PART = re.compile(r"L?([1-9][0-9]*)")


class Variants(Listing):
    """Variants and their kernels: a list of dicts, also indexed by their names; displays as a table."""

    kind = "variant"
    widest = 200  # for reasons

    def names_of(self, item: dict[str, Any]) -> Sequence[str]:
        """Return the variant's name, alone and after its operation's, and its kernel's."""
        names = (item["variant"], f"{item['operation']} {item['variant']}", item["kernel"], item["symbol"])
        return [str(name) for name in names if name is not None] or [item["operation"]]

    def cells(self, item: dict[str, Any]) -> dict[str, str]:
        return {heading: _cell(item, key) for key, heading in _HEADINGS.items()}

    def lines(self) -> list[dict[str, str]]:
        """Return the table; without its empty columns if no kernel is known."""
        lines = [self.cells(item) for item in self]
        if not self.lacking:
            return lines
        headings = [heading for heading in _HEADINGS.values() if any(line[heading] for line in lines)]
        return [{heading: line[heading] for heading in headings} for line in lines]

    @property
    def lacking(self) -> str:
        """Return why no kernel's registers are known, and what to do; "" if any are."""
        if any(item["registers"] is not None for item in self):
            return ""
        return _NO_REGISTERS if len(self) else ""

    def __repr__(self) -> str:
        return "\n".join(filter(None, (format_table(self.lines(), self.widest), self.lacking))) or f"no {self.kind}"

    def _repr_html_(self) -> str:
        return format_html_table(self.lines(), self.lacking)

    def frame(self) -> pd.DataFrame:
        """Return all columns as a pandas frame, a row per kernel."""
        import pandas as pd

        return pd.DataFrame(list(self), columns=list(_KEYS)).convert_dtypes()

    @property
    def kernel_name(self) -> str:
        """Return the filter for ``ncu --kernel-name``; "" if no kernel is known."""
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
    """List the variants of operations and, on a GPU, the kernels that they launch: names, registers, occupancy.

    Nothing is launched or allocated.

    Parameters
    ----------
    op : str, optional
        One operation; default: all.
    device : int, str or torch.device, optional
        "cuda", "cuda:1", "cpu", ...; default: the first device of every backend.
    precision : str
        Storage type of the operands; the kernels depend on it.
    kv_lens : sequence of int, or str, optional
        One length per batch entry, as in `bwprof.cost`: [100, 7000], "100,7Ki".
    **params : int
        The operation's parameters, also as text ("4Ki"): kernels depend on sizes. Others take their defaults.

    Returns
    -------
    Variants
        A list of dicts, one per kernel of a variant; displays as a table, which ``frame()`` returns with all columns.
        ``variants("gemm")["tiled"]`` finds a variant, and ``kernel_name`` is the filter for ``ncu --kernel-name``.
        Keys: operation, backend, variant, text; compared with the variant before it: changes, predicted (speed-up,
        written before it was measured; None for the first one), because, at (precision and parameters of the
        prediction: "fp16 M=1 N=4096"); precisions (all supported ones), default (whether it runs by default),
        precision; kernel (source name), symbol (linker's name); registers and local_bytes (spills and local arrays)
        of a thread; static_shared_bytes, dynamic_shared_bytes and threads of a block; blocks of the grid;
        resident_blocks on a multiprocessor, from the runtime; theoretical_pct, limiter and note of
        `bwprof.occupancy`; instruction_set of a CPU's variant. Unknown values are None, and `reason` says why.

    Raises
    ------
    ValueError
        For unknown names, values out of range, and parameters without an operation.
    DeviceError
        If the device is lost.

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
    params_of: dict[str, dict[str, int]] = {}
    lengths = registry.parse_lengths(kv_lens)
    for operation in operations:
        if op is not None or precision in operation["precisions"]:
            params_of[operation["name"]] = registry.complete_params(operation["name"], precision, params, lengths)
    rows = Variants()
    backend, index = hardware.parse_device(device)
    if backend is None and index is not None:
        backend = hardware.choose_device(device=device).backend
    for row in _core.backends():
        if backend in (None, row["name"]):
            rows += _rows_on(row, index or 0, operations, params_of, precision, lengths)
    order = [operation["name"] for operation in operations]
    return Variants(sorted(rows, key=lambda row: order.index(row["operation"])))


def base_name(symbol: str) -> str:
    """Return the source name of a mangled C++ symbol, without namespaces and template arguments.

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


def _rows_on(
    backend: dict[str, Any],
    index: int,
    operations: Sequence[dict[str, Any]],
    params_of: Mapping[str, Mapping[str, int]],
    precision: str,
    kv_lens: Sequence[int] | None,
) -> list[dict[str, Any]]:
    """Return the rows of a device, or of a backend without one."""
    name, reason = backend["name"], str(backend["reason"])
    if not backend["devices"]:
        if not backend["built"]:
            reason = f"not in this build: {reason}; {_core.backend_facts(name)['remedy']}"
        return [row for operation in operations for row in _unopened(operation, name, precision, reason)]
    try:
        device = _core.Device(name, index)
    except (errors.UnavailableError, errors.DeviceError) as error:
        return [row for operation in operations for row in _unopened(operation, name, precision, str(error))]
    with device:
        facts = device.facts()
        rows: list[dict[str, Any]] = []
        for operation in operations:
            params = params_of.get(operation["name"])
            if params is None:
                rows += _unopened(operation, name, precision, "")
                continue
            for variant in device.variants(operation["name"], precision, params, kv_lens):
                row = _row(operation, name, variant, precision) | {"default": variant["default"]}
                if _core.backend_facts(name)["runs_on_host"]:
                    row["instruction_set"] = facts["runtime"]
                if variant["refuses"]:
                    rows.append(row | {"reason": variant["refuses"]})
                    continue
                try:
                    kernels = device.kernels(row["operation"], precision, params, row["variant"], kv_lens)
                    rows += [row | _describe_kernel(kernel, facts) for kernel in kernels]
                except (errors.UnsupportedError, errors.UnavailableError) as error:
                    rows.append(row | {"reason": str(error)})
        return rows


def _row(operation: dict[str, Any], backend: str, variant: dict[str, Any] | None, precision: str) -> dict[str, Any]:
    own = {name: variant[name] for name in ("text", *LADDER_KEYS, "precisions")} if variant else {}
    own |= {"variant": variant["name"]} if variant else {}
    known = {"operation": operation["name"], "backend": backend, "precision": precision, "note": "", "reason": ""}
    return dict.fromkeys(_KEYS) | known | own


def _unopened(operation: dict[str, Any], backend: str, precision: str, reason: str) -> Iterator[dict[str, Any]]:
    """Yield rows of what is known without a device."""
    for variant in operation["variants"].get(backend, [None]):
        fits = variant is None or precision in variant["precisions"]
        yield _row(operation, backend, variant, precision) | {"reason": reason if fits else "not in this precision"}


def _describe_kernel(kernel: dict[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    symbol, arch = kernel["symbol"], f"{facts.get('major', 0)}.{facts.get('minor', 0)}"
    reasons = [] if symbol else ["kernels' names need CUDA 12.3: its driver, and a build with its toolkit"]
    part = kernel | {"kernel": base_name(symbol) if symbol else None}
    if arch in ARCHITECTURES:
        shared = kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"]
        limits = occupancy(kernel["registers"], shared, kernel["threads"], arch)
        part |= {"theoretical_pct": limits.theoretical_pct, "limiter": limits.limiter, "note": limits.note}
    else:
        reasons.append(f"the limits of compute capability {arch} are not known")
    return part | {"reason": "; ".join(reasons)}


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
