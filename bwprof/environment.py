"""The facts of a run beside its device: id, host, versions, environment variables, commit."""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import sys
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from bwprof import _core

if TYPE_CHECKING:
    import subprocess

_VERSION_SECONDS = 5.0

# Profilers whose files bwprof reads, and their folders beside PATH.
PROFILERS = {
    "ncu": ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute"),
    "nsys": ("/usr/local/cuda/bin", "/opt/nvidia/nsight-systems"),
    "rocprof": ("/opt/rocm/bin",),
    "rocprofv3": ("/opt/rocm/bin",),
}

_VERSION = re.compile(r"[vV]?ersion:?\s*(\S*[0-9]\S*)|\b([0-9]+\.[0-9]+[\w.-]*)")

# Settings that change measurements.
_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUBLAS_WORKSPACE_CONFIG",
    "OMP_NUM_THREADS",
    "MALLOC_ARENA_MAX",
)


def new_run_id() -> str:
    """Return a run's id: it sorts by time, and runs of the same second differ."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def process_token() -> str:
    """Return a token of this process, which the rows it measures carry."""
    return _token(os.getpid())  # a forked process has its own


@cache
def _token(_process: int) -> str:
    return secrets.token_hex(8)


def host_facts() -> dict[str, Any]:
    """Return the facts of the machine."""
    return {
        "name": platform.node(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": len(os.sched_getaffinity(0)),
    }


def package_versions() -> dict[str, str]:
    """Return the versions of bwprof, Python and the loaded packages."""
    loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in ("numpy", "pandas", "matplotlib")}
    versions = {"bwprof": _core.__version__, "python": platform.python_version()}
    return versions | {name: version for name, version in loaded.items() if isinstance(version, str)}


def git_commit() -> str | None:
    """Return the commit of the working directory's repository; None without a repository or git."""
    process = _run(["git", "rev-parse", "HEAD"])
    return process.stdout.strip() or None if process is not None and process.returncode == 0 else None


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a program; return None if it cannot be started, or does not end in time."""
    import subprocess  # slow to import

    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def environment_variables() -> dict[str, str | None]:
    """Return environment variables that change measurements; None for unset ones."""
    return {name: os.environ.get(name) for name in _VARIABLES}


def find_profiler(name: str) -> str | None:
    """Return a profiler's program: on PATH, in CUDA_HOME, CUDA_PATH or ROCM_PATH, or where it is installed."""
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")]
    folders = [*(f"{home}/bin" for home in homes if home), *PROFILERS.get(name, ())]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def find_profilers() -> dict[str, dict[str, str] | None]:
    """Return each profiler's path and version ("" if unknown); None for a missing one."""
    profilers: dict[str, dict[str, str] | None] = {}
    for name in PROFILERS:
        path = find_profiler(name)
        process = None if path is None else _run([path, "--version"])
        match = _VERSION.search(process.stdout or process.stderr) if process is not None else None
        version = (match[1] or match[2]).rstrip(",;")[:40] if match else ""
        profilers[name] = None if path is None else {"path": path, "version": version}
    return profilers
