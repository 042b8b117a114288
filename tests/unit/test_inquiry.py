"""Which brokers an inquiry asks, and what it finds if some of them do not answer."""

from __future__ import annotations

from contextlib import ExitStack, closing
import random
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.copying.gaps import Inquiry, Suspect
from mirror.offsets.progress import Position
from mirror.pairs.losses import Cause
from tests.harness.fake_broker import Broker
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.copying.gaps import GapFinding

pytestmark = pytest.mark.unit

_POSITION = Position(offset=3, leader_epoch=1)
_FIRST, _END = 5, 9


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Broker]]:
    """Three brokers that all lost the records before offset 5; a question to any of
    them goes to the first one that is up.
    """
    monkeypatch.setattr(random, "sample", lambda nodes, count: list(nodes)[:count])
    with ExitStack() as stack:
        made = [stack.enter_context(Broker(node=node)) for node in (1, 2, 3)]
        for broker in made:
            broker.names, broker.logs = made, (_FIRST, _END)
        yield made


@pytest.fixture
def inquiry(brokers: list[Broker]) -> Iterator[Inquiry]:
    config = ClusterConfig.model_validate(
        {
            "alias": "A",
            "bootstrap_servers": ",".join(broker.address for broker in brokers),
            "request_timeout_seconds": 1.0,
        }
    )
    with closing(Inquiry(Cluster(config))) as made:
        yield made


def _lead(brokers: Sequence[Broker], leaders: list[int]) -> None:
    for broker in brokers:
        broker.leaders = {"t": leaders}


def _ask(inquiry: Inquiry, partitions: int) -> dict[int, GapFinding]:
    """What happens to these partitions of the topic."""
    for partition in range(partitions):
        inquiry.open(Suspect(topic="t", partition=partition, position=_POSITION))
    found: dict[int, GapFinding] = {}

    def all_found() -> bool:
        found.update({each.suspect.partition: each for each in inquiry.findings()})
        return len(found) == partitions

    wait_for(all_found, 20, pause=0.01)
    return found


def _is_lost(finding: GapFinding) -> bool:
    return finding.gap is not None and (
        (finding.gap.cause, finding.gap.first, finding.gap.last)
        == (Cause.DELETED, _POSITION.offset, _FIRST - 1)
    )


def test_brokers_that_are_gone_for_good_do_not_count(
    brokers: list[Broker], inquiry: Inquiry
) -> None:
    """An inquiry that knew three brokers believes the only one that is left: it does
    not ask the two that the cluster no longer names, nor counts them.
    """
    _lead(brokers, [1])
    assert _is_lost(_ask(inquiry, 1)[0])
    left, *gone = brokers
    left.names = [left]
    for broker in gone:
        broker.silent_on = {"Metadata"}
    asked = [len(broker.asked) for broker in gone]
    assert _is_lost(_ask(inquiry, 1)[0])
    assert [len(broker.asked) for broker in gone] == asked


@pytest.mark.parametrize("silent", [1, 2, 3])
def test_a_broker_that_answers_nothing_holds_up_its_own_partitions_alone(
    brokers: list[Broker], inquiry: Inquiry, silent: int
) -> None:
    """A broker that leads a partition and answers nothing any more does not affect the
    partitions of others, whichever broker is asked first.
    """
    _lead(brokers, [1, 2, 3])
    assert all(_is_lost(each) for each in _ask(inquiry, 3).values())
    brokers[silent - 1].silent_on = {"Metadata", "ListOffsets", "OffsetForLeaderEpoch"}
    found = _ask(inquiry, 3)
    assert {p + 1 for p, each in found.items() if not _is_lost(each)} == {silent}
    assert "does not say which offsets it has" in found[silent - 1].reason
