"""Git revisions of a package in worktrees, to import from: check out, build, remove."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bwprof.text.parsing import quote_text

_CHECK_SECONDS, _END_SECONDS = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision, its commit, and its worktree."""

    name: str
    commit: str
    folder: Path

    @property
    def paths(self) -> tuple[str, ...]:
        """The first folders of the import path."""
        inner = self.folder / "src"
        return (*((str(inner),) if inner.is_dir() else ()), str(self.folder))


def commits(repository: Path, names: Sequence[str]) -> list[str]:
    """Return the revisions' commits; ValueError for an unknown repository or revision."""
    if shutil.which("git") is None:
        raise ValueError("revisions need git, which is not on the PATH")
    top = _git(repository, "rev-parse", "--show-toplevel")
    if top is None:
        raise ValueError(f"{quote_text(repository)} is no git repository: --repo names one")
    hashes = []
    for side, name in zip("AB", names, strict=False):
        commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if commit is None:
            raise ValueError(f"side {side}: {quote_text(repository)} has no revision '{quote_text(name)}'")
        hashes.append(commit)
    return hashes


@contextmanager
def checked_out(
    repository: Path,
    names: Sequence[str],
    build: str | None,
    check: Callable[[], object],
    say: Callable[[str], object] = lambda _: None,
) -> Iterator[list[Revision]]:
    """Check each revision out in a worktree and run the shell command `build` there; remove them after the block.

    The output of the command goes to standard error. `check` is called while it runs; an exception of it ends it.
    ValueError for an unknown repository or revision, and for a build that fails.
    """
    hashes = commits(repository, names)
    home = Path(tempfile.mkdtemp(prefix="bwprof-ab-"))
    try:
        revisions = [
            Revision(name, commit, home / side) for side, name, commit in zip("AB", names, hashes, strict=True)
        ]
        for side, revision in zip("AB", revisions, strict=True):
            check()
            target = [str(revision.folder), revision.commit]
            added = _run(["git", "-C", str(repository), "worktree", "add", "--quiet", "--detach", *target])
            if added.returncode:
                error = quote_text(added.stderr.strip())
                raise ValueError(f"side {side}: revision {quote_text(revision.name)}: {error}")
            if build is not None:
                say(f"building side {side}, revision {revision.name} ({revision.commit[:10]})")
                _build(build, revision.folder, side, check)
        yield revisions
    finally:
        left = [side for side in "AB" if not _remove(repository, home / side)]
        shutil.rmtree(home, ignore_errors=True)
        for side in left:  # git forgets a worktree without a folder; `prune` would forget those of others, too
            _remove(repository, home / side)


def _remove(repository: Path, folder: Path) -> bool:
    done = _run(["git", "-C", str(repository), "worktree", "remove", "--force", "--force", str(folder)])
    return done.returncode == 0


def _build(command: str, folder: Path, side: str, check: Callable[[], object]) -> None:
    process = subprocess.Popen(command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=2, process_group=0)
    try:
        while process.poll() is None:
            check()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CHECK_SECONDS)
    finally:
        _end(process)
    if process.returncode:
        code = process.returncode
        reason = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise ValueError(f"side {side}: the build ended with {reason}: {quote_text(command)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + _END_SECONDS
        while process.poll() is None and time.monotonic() < until:
            time.sleep(_CHECK_SECONDS)


def _git(repository: Path, *arguments: str) -> str | None:
    """Return git's output; None if it fails."""
    done = _run(["git", "-C", str(repository), *arguments])
    return done.stdout.strip() if done.returncode == 0 else None


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
