"""bwprof in pytest: the fixture `bandwidth`, the mark of that name, and the options `--bwprof-...`.

pytest finds it where bwprof is installed (`entry`); ``-p bwprof.testing.plugin`` names it where plugins are not looked
for, and ``-p no:bwprof`` leaves it out. What they do is imported when one of them is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bwprof.pytest_plugin.fixture import Bandwidth
    from bwprof.pytest_plugin.session import Session

_MARK = (
    "bandwidth(device=None): the fixture 'bandwidth' measures on this device; where there is none, the test that takes "
    "it is skipped with the reason"
)

_OPTIONS = ("baseline", "fail_on", "save")  # each needs the package from the start

_KEY = pytest.StashKey[Any]()

_FIXTURES = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options `--bwprof-...`."""
    group = parser.getgroup("bwprof", "memory bandwidth (bwprof)")
    group.addoption(
        "--bwprof-baseline", metavar="NAME", help="hold each measured row against this baseline (a name or a file)"
    )
    group.addoption(
        "--bwprof-fail-on",
        metavar="WHAT",
        help="a test fails when a row of it is: slower, any (differs), 5%% (slower, and 5%% is within its interval); "
        "measured twice before it counts, an operation in a fresh process",
    )
    group.addoption("--bwprof-save", metavar="NAME", help="keep the session's rows as a baseline")
    group.addoption("--bwprof-force", action="store_true", help="--bwprof-save replaces a baseline of that name")
    group.addoption(
        "--bwprof-dir", metavar="FOLDER", help="where baselines are (default: .bwprof/baselines, as the command has it)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The mark; and what is wrong with the options, before any test runs."""
    config.addinivalue_line("markers", _MARK)
    if any(config.getoption(f"bwprof_{name}") is not None for name in _OPTIONS):
        _session(config)


def _session(config: pytest.Config) -> Session:
    """What this session measures and compares with; made when it is first asked for."""
    if _KEY not in config.stash:
        from bwprof.pytest_plugin.session import Session

        given = {name: config.getoption(f"bwprof_{name}") for name in (*_OPTIONS, "force", "dir")}
        try:
            config.stash[_KEY] = Session(here=config.invocation_params.dir, **given)
        except (OSError, ValueError) as error:
            raise pytest.UsageError(str(error)) from None
    found: Session = config.stash[_KEY]
    return found


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marked test is skipped where its device is absent; a mark without the fixture is not ours."""
    marks = list(item.iter_markers("bandwidth"))
    if marks and "bandwidth" in getattr(item, "fixturenames", ()):
        from bwprof.pytest_plugin.fixture import explain_absence

        reason = explain_absence(marks)
        if reason:
            pytest.skip(reason)


@pytest.fixture
def bandwidth(request: pytest.FixtureRequest) -> Iterator[Bandwidth]:
    """Measure memory bandwidth: of an operation of bwprof's, or of a function.

    ``row = bandwidth("gemm", M=1, N=4096, K=4096, precision="fp16")``, ``row = bandwidth(function, bytes_read=...)``:
    the row, as from `bwprof.Case.measure` and `bwprof.measure`. ``bandwidth.check(row, at_least="80% attainable")``
    fails the test when that is not reached ("500 GB/s", "70% peak" and "60% limit" are understood as well).
    """
    from bwprof.pytest_plugin.fixture import Bandwidth, device_of

    made = Bandwidth(
        request.node.nodeid, _session(request.config), device_of(list(request.node.iter_markers("bandwidth")))
    )
    request.node.stash[_FIXTURES] = made
    yield made
    made.forget()


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """After a test that passed so far: what became slower than the baseline says."""
    made = item.stash.get(_FIXTURES, None)
    if made is not None and made.slower:
        pytest.fail("\n".join(made.slower), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A report takes the measured rows along, from a worker of pytest-xdist, too."""
    outcome = yield
    made = item.stash.get(_FIXTURES, None)
    if made is not None:
        outcome.get_result().bwprof_rows = made.taken()


class _Collector:
    """What reports bring, in the process that has them all."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = getattr(report, "bwprof_rows", None)
        if rows:
            _session(self.config).add(rows)
            report.bwprof_rows = ""  # type: ignore[attr-defined] # reports are kept

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if _KEY in self.config.stash and not _session(self.config).finish(int(exitstatus)):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if _KEY in self.config.stash:
            lines = _session(self.config).lines()
            if lines:
                terminalreporter.section("bandwidth")
                for line in lines:
                    terminalreporter.line(line)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Workers of pytest-xdist hand their reports on; whoever gets them collects."""
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Collector(session.config), "bwprof-collector")
