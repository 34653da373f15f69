"""bwprof in pytest: the fixture `bandwidth`, the mark of that name, and the options `--bwprof-...`.

pytest loads it where bwprof is installed (`entry`). ``-p bwprof.pytest_plugin.plugin`` loads it where plugins are not
searched, and ``-p no:bwprof`` leaves it out. Everything but pytest is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bwprof.pytest_plugin.fixture import Bandwidth, Session

_MARK = "bandwidth(device=None): the fixture 'bandwidth' measures on this device; without it the test is skipped"
_OPTIONS = ("baseline", "fail_on", "save")  # each needs the package from the start
_KEY = pytest.StashKey[Any]()
_FIXTURES = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--bwprof-...`."""
    group = parser.getgroup("bwprof", "memory bandwidth (bwprof)")
    for option, metavar, what in (
        ("baseline", "NAME", "compare each measured row with this baseline (a name or a file)"),
        ("fail-on", "WHAT", "slower: fail if a row is slower twice; any: or faster twice; 5%%: slower, maybe by 5%%"),
        ("save", "NAME", "save the session's rows as a baseline"),
        ("dir", "FOLDER", "the folder of baselines (default: .bwprof/baselines)"),
    ):
        group.addoption(f"--bwprof-{option}", metavar=metavar, help=what)
    group.addoption("--bwprof-force", action="store_true", help="--bwprof-save replaces a baseline of that name")


def pytest_configure(config: pytest.Config) -> None:
    """Add the mark, and check the options before any test runs."""
    config.addinivalue_line("markers", _MARK)
    if any(config.getoption(f"bwprof_{name}") is not None for name in _OPTIONS):
        _session(config)


def _session(config: pytest.Config) -> Session:
    if _KEY not in config.stash:
        from bwprof.pytest_plugin.fixture import Session

        options = {name: config.getoption(f"bwprof_{name}") for name in (*_OPTIONS, "force", "dir")}
        try:
            config.stash[_KEY] = Session(here=config.invocation_params.dir, **options)
        except (OSError, ValueError) as error:
            raise pytest.UsageError(str(error)) from None
    session: Session = config.stash[_KEY]
    return session


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a marked test that uses the fixture where its device is absent."""
    marks = list(item.iter_markers("bandwidth"))
    if marks and "bandwidth" in getattr(item, "fixturenames", ()):
        from bwprof.pytest_plugin.fixture import explain_absence

        reason = explain_absence(marks)
        if reason:
            pytest.skip(reason)


@pytest.fixture
def bandwidth(request: pytest.FixtureRequest) -> Iterator[Bandwidth]:
    """Measure memory bandwidth of an operation of bwprof's, or of a function.

    ``row = bandwidth("gemm", M=1, N=4096, K=4096, precision="fp16")``, ``row = bandwidth(function, bytes_read=...)``:
    the row, as from `bwprof.Case.measure` and `bwprof.measure`. ``bandwidth.check(row, at_least="80% attainable")``
    fails the test when the row does not reach that ("500 GB/s", "70% peak" and "60% limit" are allowed as well).
    """
    from bwprof.pytest_plugin.fixture import Bandwidth, device_of

    device = device_of(list(request.node.iter_markers("bandwidth")))
    value = Bandwidth(request.node.nodeid, _session(request.config), device)
    request.node.stash[_FIXTURES] = value
    yield value
    value.forget()


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test that passed so far if a row fails the baseline's gate."""
    value = item.stash.get(_FIXTURES, None)
    if value is not None and value.slower:
        pytest.fail("\n".join(value.slower), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add the measured rows to the report, which pytest-xdist passes on."""
    outcome = yield
    value = item.stash.get(_FIXTURES, None)
    if value is not None:
        outcome.get_result().bwprof_rows = value.take_rows()


class _Collector:
    """Collects the rows of all reports, in the process that gets them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = getattr(report, "bwprof_rows", None)
        if rows:
            _session(self.config).add(rows)
            report.bwprof_rows = ""  # type: ignore[attr-defined] # pytest stores reports

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if _KEY in self.config.stash and not _session(self.config).finish(int(exitstatus)):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = _session(self.config).lines() if _KEY in self.config.stash else []
        if lines:
            terminalreporter.section("bandwidth")
            terminalreporter.line("\n".join(lines))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Collect rows in the main process; workers of pytest-xdist pass their reports on to it."""
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Collector(session.config), "bwprof-collector")
