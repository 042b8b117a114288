"""Fixtures for every test: a clean environment, real clusters, fresh names.

`clusters` are two plain clusters, started once per session when first asked
for; a test must not stop or reconfigure them. `make_clusters` gives a test
clusters of its own, which it may kill. `@pytest.mark.needs("promtool")` skips a test
where that tool of tests/tools.py is missing; the end of the run counts such tests.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
import functools
import itertools
import logging
import os
from pathlib import Path
import re
import sys
from typing import TYPE_CHECKING, Any
import uuid

import pytest
import structlog
from xdist.scheduler import LoadScopeScheduling

from mirror.playground import ports
from mirror.playground.brokers import playground
from mirror.playground.cluster import PlaygroundCluster
from tests import tools
from tests.harness.standing import StandingMirror

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

# A developer's own settings must not reach the tests, whatever imports first.
_KEPT = ("MIRROR_TEST_", "MIRROR_CACHE", "MIRROR_IVY_SETTINGS", "MIRROR_CLASS_DATA")
for _name in list(os.environ):
    if _name.startswith("MIRROR_") and not _name.startswith(_KEPT):
        del os.environ[_name]

# Else each process compiles all of it: a third of a worker's start, and of mirror's.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A broker that a test has killed must find its port free, whatever other workers start.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_share = 12_000 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
os.environ[ports.VARIABLE] = "-".join(
    str(20_000 + number * _share) for number in (_worker, _worker + 1)
)

# The tests' token providers, for this process and those that it starts.
_REGISTERED = str(Path(__file__).parent / "harness" / "registered")
sys.path.append(_REGISTERED)
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [os.environ.get("PYTHONPATH"), _REGISTERED])
)

Clusters = dict[str, PlaygroundCluster]

_RUNNING = pytest.StashKey[list[PlaygroundCluster]]()

_LACKS = "lacks"
"""A report's property that names the tool it was skipped for."""

_SHARES = re.compile(
    r'scope="module"|\b(shared_mirror|four_clusters|secured_pair|InjectedErrors)\b'
    r"|@(functools\.)?cache\b"
)
"""In files whose tests share what takes long to set up."""


class _OneByOne(LoadScopeScheduling):
    """A worker gets the next test as it finishes one, or the next file if its tests
    share a fixture. (`--dist loadgroup` would do, but xdist 3.8 does not see its marks
    under pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _shares(self.config.rootpath / file) else nodeid


@functools.cache
def _shares(file: Path) -> bool:
    return bool(file.is_file() and _SHARES.search(file.read_text()))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _OneByOne:
    return _OneByOne(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RUNNING] = []


def _lacking(item: pytest.Item) -> list[str]:
    """The tools that a test needs and that are not here."""
    needed = (name for mark in item.iter_markers("needs") for name in mark.args)
    return [tool for tool in needed if tools.missing(tool)]


def pytest_itemcollected(item: pytest.Item) -> None:
    for tool in _lacking(item):
        if tool not in tools.required():
            item.user_properties.append((_LACKS, tool))  # it travels with the report
            item.add_marker(pytest.mark.skip(reason=tools.missing(tool)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before fixtures, so that no cluster is started for a test that cannot run."""
    for tool in set(_lacking(item)) & tools.required():
        reason = f"{tools.missing(tool)} ({tools.REQUIRE} names {tool})"
        pytest.fail(reason, pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None]:
    """After pytest's own summary, where it is noticed."""
    yield
    lacking = Counter(
        value
        for report in terminalreporter.stats.get("skipped", ())
        for name, value in getattr(report, "user_properties", ())
        if name == _LACKS
    )
    if lacking:
        terminalreporter.section("Skipped for want of a tool")
        for tool, count in lacking.items():
            cases = "1 case" if count == 1 else f"{count} cases"
            terminalreporter.line(f"{cases}: {tools.missing(tool)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for cluster in item.config.stash[_RUNNING]:
            report.sections.append((f"Brokers of {cluster.name}", cluster.log_tail()))
    return report


@pytest.fixture(scope="session", autouse=True)
def _state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Services that name no state folder leave nothing in the developer's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.delenv("STATE_DIRECTORY", raising=False)
        yield


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that sets up logging in this process does so for its own test only.
    Events go to stderr otherwise: a service's threads log beside invoked commands,
    whose output would have them.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Clusters]:
    """Clusters a and b, one node each, shared by the whole session."""
    running = pytestconfig.stash[_RUNNING]
    # A stall of the machine must not fence brokers that no test restarts.
    settings = {"broker.session.timeout.ms": "60000"}
    with playground(
        ("a", "b"),
        root=tmp_path_factory.mktemp("clusters"),
        settings=None if "MIRROR_TEST_BOOTSTRAP_A" in os.environ else settings,
    ) as made:
        running.extend(made.values())
        yield made
        running.clear()


@pytest.fixture(scope="session")
def standing(
    clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandingMirror]:
    """A service in which tests have their flows, one test after the other."""
    mirror = StandingMirror(
        clusters["a"].bootstrap,
        clusters["b"].bootstrap,
        tmp_path_factory.mktemp("standing"),
    )
    yield mirror
    mirror.close()


@pytest.fixture(scope="module")
def secured_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Clusters a and b with authorizers, on which the user may do nothing yet."""
    root = tmp_path_factory.mktemp("secured")
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        yield made


@pytest.fixture
def make_clusters(
    tmp_path: Path, pytestconfig: pytest.Config
) -> Iterator[Callable[..., Clusters]]:
    """Make clusters for one test alone; takes `playground`'s arguments.

    Clusters given by the environment are never used: they are not ours to kill.
    """
    running = pytestconfig.stash[_RUNNING]
    before = list(running)
    number = itertools.count(1)
    with ExitStack() as stack:

        def make(*names: str, **options: Any) -> Clusters:
            options.setdefault("root", tmp_path / f"playground-{next(number)}")
            made = stack.enter_context(
                playground(names or ("a", "b"), given=False, **options)
            )
            running.extend(made.values())
            return made

        yield make
    running[:] = before


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has, and that tells whose it is."""
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
    return f"{test[:60]}-{uuid.uuid4().hex[:8]}"
