"""A program of its own: what NVIDIA's module `ncu_report` says of a report, a line of JSON a launch.

Where NumPy was loaded before that module (of Nsight Compute 2025.3), it ends its process: a segmentation fault in
`IMetric.unit`. So nothing but the standard library may stand here, and nothing of bwprof is imported.
"""

import importlib
import json
import sys
from typing import Any

NO_MODULE = 3  # exit code


def main(folder: str, path: str) -> int:
    """Print a report's launches with the module that lies in a folder; the exit code."""
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


_NO_COLUMNS = ("breakdown:", "group:")  # of a section's table: no page prints them


def _read_launch(action: Any) -> dict[str, Any]:
    """A kernel's demangled name (by itself it gives the bare one), and each metric's value and unit."""
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
    """Whether it has a value as a whole: of what was sampled over time it has those of its instances alone, and
    `value` gives 0, where ncu's pages say nothing.
    """
    try:
        return bool(metric.has_value())
    except TypeError:  # of older ones: a value of which kind
        return bool(metric.has_value(metric.kind()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
