"""When a partition that lost its leader counts as led again."""

from __future__ import annotations

from contextlib import closing
import time
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.copying.slot import Elections
from tests.harness.fake_broker import Broker
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

_KEY, _OTHER = ("t", 0), ("t", 1)
_NOW = 1
"""The epoch in which the fake broker names leaders."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        made.leaders = {"t": [1, -1]}
        yield made


@pytest.fixture
def elections(broker: Broker) -> Iterator[Elections]:
    config = ClusterConfig(
        alias="A",
        bootstrap_servers=broker.address,
        request_timeout_seconds=1.0,
    )
    with closing(Elections(Cluster(config))) as made:
        yield made


def _rounds(broker: Broker, elections: Elections, count: int) -> list[tuple[str, int]]:
    """Which partitions are led again after so many questions more."""
    asked = broker.asked.count("Metadata") + count
    found = []

    def enough() -> bool:
        found.extend(elections.held())
        return broker.asked.count("Metadata") >= asked

    wait_for(enough, pause=0.01)
    return found


def _led_again(elections: Elections) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    wait_for(lambda: found.extend(elections.held()) or found, pause=0.01)
    return found


def test_only_a_newer_leader_counts(broker: Broker, elections: Elections) -> None:
    """A partition whose leader is still the one that was lost, and one that has none,
    go on waiting; a newer leader is told once, and then there is nothing to ask.
    """
    elections.wait_for(_KEY, _KEY, _NOW)
    elections.wait_for(_OTHER, _OTHER, _NOW - 1)
    assert not _rounds(broker, elections, 4)
    broker.leaders = {"t": [1, 1]}
    assert _led_again(elections) == [_OTHER]
    elections.keep_only(())
    assert elections.again_in > 1
    assert not elections.held()


def test_a_copy_has_a_leader_again(broker: Broker, elections: Elections) -> None:
    """What waits for the leader of its copy on the target is told by its own name, not
    by the copy's.
    """
    elections.wait_for(("s", 5), _KEY, _NOW - 1)
    assert _led_again(elections) == [("s", 5)]


def test_a_source_that_does_not_answer_holds_up_nothing(
    broker: Broker, elections: Elections
) -> None:
    """While the source is silent, asking takes no time; it is asked again after that,
    and then tells.
    """
    broker.silent_on = {"Metadata"}
    elections.wait_for(_KEY, _KEY, _NOW - 1)
    began = time.monotonic()
    for _ in range(100):
        assert not elections.held()
    assert time.monotonic() - began < 0.5
    wait_for(lambda: "Metadata" in broker.asked, pause=0.01)
    broker.silent_on = set()
    assert _led_again(elections) == [_KEY]


def test_a_retry_may_have_come_first(broker: Broker, elections: Elections) -> None:
    """An answer about a partition that is no longer waited for, or whose next leader
    was lost meanwhile, does not count.
    """
    elections.wait_for(_KEY, _KEY, _NOW - 1)
    elections.held()
    wait_for(lambda: broker.asked.count("Metadata") > 1, pause=0.01)
    elections.wait_for(_KEY, _KEY, _NOW)
    assert not _rounds(broker, elections, 2)
