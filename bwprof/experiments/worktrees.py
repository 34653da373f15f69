"""Git revisions of a package as folders to import from: worktrees, built, and removed again."""

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

_LOOK_SECONDS = 0.05

_END_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision as it was asked for, its commit, and the worktree that holds it."""

    name: str
    commit: str
    folder: Path

    @property
    def paths(self) -> tuple[str, ...]:
        """What is imported from it first."""
        inner = self.folder / "src"
        return (*((str(inner),) if inner.is_dir() else ()), str(self.folder))


def commits(repository: Path, names: Sequence[str]) -> list[str]:
    """The revisions' commits; ValueError for what is no repository, and for what names none."""
    if shutil.which("git") is None:
        raise ValueError("revisions need git, which is not on the PATH")
    top = _git(repository, "rev-parse", "--show-toplevel")
    if top is None:
        raise ValueError(f"{quote_text(repository)} is no git repository: --repo names one")
    found = []
    for side, name in zip("AB", names, strict=False):
        commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if commit is None:
            raise ValueError(f"side {side}: {quote_text(repository)} has no revision '{quote_text(name)}'")
        found.append(commit)
    return found


@contextmanager
def checked_out(
    repository: Path,
    names: Sequence[str],
    build: str | None,
    check: Callable[[], object],
    say: Callable[[str], object] = lambda _: None,
) -> Iterator[list[Revision]]:
    """The revisions, each in a worktree of its own in which `build` has run, by the shell; afterwards they are gone.

    What the command prints goes to standard error. `check` is called while it runs; what it raises ends it.

    Raises
    ------
    ValueError
        For what is no repository or revision, and for a build that fails.
    """
    found = commits(repository, names)
    home = Path(tempfile.mkdtemp(prefix="bwprof-ab-"))
    try:
        made = [Revision(name, commit, home / side) for side, name, commit in zip("AB", names, found, strict=True)]
        for side, one in zip("AB", made, strict=True):
            check()
            added = _run(
                ["git", "-C", str(repository), "worktree", "add", "--quiet", "--detach", str(one.folder), one.commit]
            )
            if added.returncode:
                raise ValueError(f"side {side}: revision {quote_text(one.name)}: {quote_text(added.stderr.strip())}")
            if build is not None:
                say(f"building side {side}, revision {one.name} ({one.commit[:10]})")
                _build(build, one.folder, side, check)
        yield made
    finally:
        left = [side for side in "AB" if not _removed(repository, home / side)]
        shutil.rmtree(home, ignore_errors=True)
        for side in left:  # git forgets one whose folder is gone; `prune` would forget other people's as well
            _removed(repository, home / side)


def _removed(repository: Path, folder: Path) -> bool:
    done = _run(["git", "-C", str(repository), "worktree", "remove", "--force", "--force", str(folder)])
    return done.returncode == 0


def _build(command: str, folder: Path, side: str, check: Callable[[], object]) -> None:
    process = subprocess.Popen(command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=2, process_group=0)
    try:
        while process.poll() is None:
            check()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
    finally:
        _end(process)
    if process.returncode:
        how = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise ValueError(f"side {side}: the build ended with {how}: {quote_text(command)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """With whatever it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + _END_SECONDS
        while process.poll() is None and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)


def _git(repository: Path, *arguments: str) -> str | None:
    """What git prints; None where it fails."""
    done = _run(["git", "-C", str(repository), *arguments])
    return done.stdout.strip() if done.returncode == 0 else None


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
