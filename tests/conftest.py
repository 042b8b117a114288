"""What every test may lean on: a clean environment, real clusters, fresh names.

`clusters` are two plain clusters, started once per session when first asked
for; a test must not stop or reconfigure them. `make_clusters` gives a test
clusters of its own, which it may kill.
"""

from __future__ import annotations

from contextlib import ExitStack
import itertools
import os
import re
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.playground.brokers import playground
from mirror.playground.cluster import PlaygroundCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

# A developer's own settings must not reach the tests, whatever imports first.
_KEPT = ("MIRROR_TEST_", "MIRROR_CACHE", "MIRROR_IVY_SETTINGS", "MIRROR_CLASS_DATA")
for _name in list(os.environ):
    if _name.startswith("MIRROR_") and not _name.startswith(_KEPT):
        del os.environ[_name]

Clusters = dict[str, PlaygroundCluster]

_RUNNING = pytest.StashKey[list[PlaygroundCluster]]()

# What the harness ends with where records are missing, doubled or out of order.
_COUNTS = ("in assert_exactly_once", "in assert_at_least_once")

COUNTED_WRONG = 9
"""The exit code of a run in which records were lost or doubled: `make test` gives
tests that failed for another reason one more go.
"""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RUNNING] = []


def _counted_wrong(config: pytest.Config) -> list[str]:
    """The tests that did, of this whole run: a worker of it reports to the first."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [
        report.nodeid
        for outcome in ("failed", "error")
        for report in (reporter.stats.get(outcome, ()) if reporter else ())
        if any(each in report.longreprtext for each in _COUNTS)
    ]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _counted_wrong(session.config):
        session.exitstatus = COUNTED_WRONG


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if wrong := _counted_wrong(config):
        terminalreporter.section("Records lost, doubled or out of order")
        for nodeid in wrong:
            terminalreporter.line(nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for cluster in item.config.stash[_RUNNING]:
            report.sections.append((f"Brokers of {cluster.name}", cluster.log_tail()))
    return report


@pytest.fixture(scope="session")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Clusters]:
    """Clusters a and b, one node each, shared by the whole session."""
    running = pytestconfig.stash[_RUNNING]
    with playground(("a", "b"), root=tmp_path_factory.mktemp("clusters")) as made:
        running.extend(made.values())
        yield made
        running.clear()


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
