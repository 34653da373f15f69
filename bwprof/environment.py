"""What a run depends on beside its device: host, versions, environment variables, commit. And what it is called."""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import sys
from datetime import UTC, datetime
from functools import cache
from typing import Any

from bwprof import _core

_GIT_SECONDS = 5.0

_VERSION_SECONDS = 3.0  # that a profiler may take to say its version

# Profilers whose files bwprof reads, and the folders beside PATH where they are installed.
PROFILERS = {
    "ncu": ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute"),
    "nsys": ("/usr/local/cuda/bin", "/opt/nvidia/nsight-systems"),
    "rocprof": ("/opt/rocm/bin",),
    "rocprofv3": ("/opt/rocm/bin",),
}

_VERSION = re.compile(r"[vV]?ersion:?\s*(\S*[0-9]\S*)|\b([0-9]+\.[0-9]+[\w.-]*)")

# Settings that change what is measured.
_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUBLAS_WORKSPACE_CONFIG",
    "OMP_NUM_THREADS",
    "MALLOC_ARENA_MAX",
)


def new_run_id() -> str:
    """Sorts by time, and two runs of one second differ."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def process_token() -> str:
    """A word that no other process has: rows that carry the same one were measured by one process."""
    return _token(os.getpid())  # what is forked is a process of its own


@cache
def _token(_process: int) -> str:
    return secrets.token_hex(8)


def host_facts() -> dict[str, Any]:
    """The machine that the run was on."""
    return {
        "name": platform.node(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": len(os.sched_getaffinity(0)),
    }


def package_versions() -> dict[str, str]:
    """bwprof, Python, and the packages that are loaded."""
    found = {"bwprof": _core.__version__, "python": platform.python_version()}
    for name in ("numpy", "pandas", "matplotlib"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found


def git_commit() -> str | None:
    """The commit of the working directory's repository; None where there is none, or no git."""
    import subprocess  # seldom needed, and slow to load

    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):  # ValueError: what is no text
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None


def environment_variables() -> dict[str, str | None]:
    """Environment variables that change what is measured; None where they are not set."""
    return {name: os.environ.get(name) for name in _VARIABLES}


def find_profiler(name: str) -> str | None:
    """Where a profiler's program is: on PATH, in the toolkit of CUDA_HOME or CUDA_PATH, or where it is installed."""
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")]
    folders = [*(f"{home}/bin" for home in homes if home), *PROFILERS.get(name, ())]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def find_profilers() -> dict[str, dict[str, str] | None]:
    """Profiler -> path and version (empty where it does not say); None for one that is not found."""
    found: dict[str, dict[str, str] | None] = {}
    for name in PROFILERS:
        path = find_profiler(name)
        found[name] = None if path is None else {"path": path, "version": _version_of(path)}
    return found


def _version_of(program: str) -> str:
    import subprocess  # seldom needed, and slow to load

    try:
        told = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = _VERSION.search(told.stdout or told.stderr)
    return (match[1] or match[2]).rstrip(",;")[:40] if match else ""
