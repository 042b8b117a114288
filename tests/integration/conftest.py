"""What several files share: a flow of the standing service, injected errors, two
registries, and slots that die with their test.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness import registries
from tests.harness.injected_errors import InjectedErrors
from tests.harness.service import config_for
from tests.harness.slot_processes import SlotProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.registry_process import RegistryProcess
    from tests.harness.service import RunningMirror
    from tests.harness.slots import SparklessFlow
    from tests.harness.standing import StandingMirror


@pytest.fixture(scope="module")
def shared_mirror(
    clusters: dict[str, PlaygroundCluster], standing: StandingMirror
) -> Iterator[RunningMirror]:
    """A flow A->B of all topics `it-...`; tests must not stop it or kill its parts.

    It ends with its file: other files run a flow A->B of their own, which would have
    to stand by beside it.
    """
    config = config_for(
        clusters["a"].bootstrap,
        clusters["b"].bootstrap,
        topics=["it-.*"],
        tasks=2,
        # Tests give copies configs of their own.
        sync_topic_configs=False,
    )
    with standing.hosting(config) as mirror:
        mirror.wait_running()
        yield mirror


@pytest.fixture(scope="module")
def errors(clusters: dict[str, PlaygroundCluster]) -> Iterator[InjectedErrors]:
    with InjectedErrors(clusters["a"].bootstrap, clusters["b"].bootstrap) as errors:
        yield errors


@pytest.fixture
def shared_topic(topic_name: str) -> str:
    """A topic name that the shared service copies."""
    return f"it-{topic_name}"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[tuple[RegistryProcess, RegistryProcess]]:
    """Two empty registries."""
    with registries.two(tmp_path) as both:
        yield both


@pytest.fixture
def start_slot() -> Iterator[Callable[..., SlotProcess]]:
    """Start slots in processes that die with the test."""
    with ExitStack() as stack:

        def start(flow: SparklessFlow, **options: Any) -> SlotProcess:
            return stack.enter_context(SlotProcess(flow, **options))

        yield start
