"""A program: print a report's launches through NVIDIA's module `ncu_report`, a line of JSON each.

That module (of Nsight Compute 2025.3) has a segmentation fault in `IMetric.unit` where NumPy was imported before it:
import nothing here but the standard library.
"""

import importlib
import json
import sys
from typing import Any

NO_MODULE = 3  # exit code


def main(folder: str, path: str) -> int:
    """Print a report's launches with the module in a folder; return the exit code."""
    sys.path.insert(0, folder)
    try:
        module: Any = importlib.import_module("ncu_report")
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return NO_MODULE
    report = module.load_report(path)
    for number in range(report.num_ranges()):
        part = report.range_by_idx(number)
        for index in range(part.num_actions()):
            sys.stdout.write(f"{json.dumps(_read_launch(part.action_by_idx(index)))}\n")
    return 0


_NO_COLUMNS = ("breakdown:", "group:")  # metrics of a section's table: no page prints them


def _read_launch(action: Any) -> dict[str, Any]:
    """Return a kernel's demangled name, and each metric's value and unit."""
    base = getattr(action, "NameBase_DEMANGLED", None)
    kernel = action.name() if base is None else action.name(base)
    figures = {}
    for name in map(str, action.metric_names()):
        metric = None if name.startswith(_NO_COLUMNS) else action.metric_by_name(name)
        if metric is not None:
            value = metric.value() if _has_value(metric) else None
            figures[name] = ("" if value is None else str(value), str(metric.unit() or ""))
    return {"kernel": str(kernel), "figures": figures}


def _has_value(metric: Any) -> bool:
    """Whether a metric has a value; one sampled over time has values of its instances alone, and `value` gives 0."""
    try:
        return bool(metric.has_value())
    except TypeError:  # older versions need the kind of value
        return bool(metric.has_value(metric.kind()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
