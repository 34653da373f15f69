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
            sys.stdout.write(f"{json.dumps(_told(part.action_by_idx(index)))}\n")
    return 0


def _told(action: Any) -> dict[str, Any]:
    """A kernel's demangled name (by itself it gives the bare one), and each metric's value and unit."""
    base = getattr(action, "NameBase_DEMANGLED", None)
    kernel = action.name() if base is None else action.name(base)
    figures = {}
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = None if metric is None else metric.value()
        if value is not None:
            figures[str(name)] = (str(value), str(metric.unit() or ""))
    return {"kernel": str(kernel), "figures": figures}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
