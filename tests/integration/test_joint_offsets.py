"""Groups that move between clusters which copy one topic both ways, on real brokers.

Two flows with the identity policy copy for each other; the service's own job sets group
offsets. What a group may read and has read is counted by an ordinary consumer.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.offsets.group_survey import copies, survey
from mirror.offsets.translation import Exactness
from mirror.service.groups import CHECKPOINTS, GroupJobs
from mirror.status.store import StatusStore
from mirror.topics.merging import Merging
from tests.harness.admin import create_topic, end_offsets
from tests.harness.group_moves import Seen
from tests.harness.load import producer
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


@dataclass(eq=False)
class Side:
    alias: str
    bootstrap: str
    cluster: Cluster


class Pair:
    """Two clusters, both flows, and the job for groups of each."""

    def __init__(self, a: Side, b: Side, topic: str) -> None:
        self.a, self.b, self.topic = a, b, topic
        self._numbers = count()
        self._copying = {
            into.alias: SparklessFlow(
                source=origin.bootstrap, target=into.bootstrap, topic=topic,
                alias=origin.alias, into=into.alias,
                settings={"policy": "identity", "sync_group_offsets": True},
            ).own()
            for into, origin in ((b, a), (a, b))
        }  # fmt: skip
        self._flows = {
            flow.name: flow.config().flows[flow.name] for flow in self._copying.values()
        }
        self.writers = Merging(self._flows.values())

    def other(self, side: Side) -> Side:
        return self.b if side is self.a else self.a

    def flow_from(self, side: Side) -> FlowConfig:
        return self._flows[f"{side.alias}->{self.other(side).alias}"]

    def produce(self, side: Side, number: int, *, aborted: bool = False) -> None:
        """In a transaction; what is aborted leaves holes."""
        client = producer(side.bootstrap, transactional_id=f"{self.topic}-{side.alias}")
        client.init_transactions(30)
        end = end_offsets(side.bootstrap, self.topic)[0]
        client.begin_transaction()
        for _ in range(number):
            key = "aborted" if aborted else f"{side.alias} {next(self._numbers)}"
            client.produce(self.topic, key=key, value=b"v", partition=0)
        assert client.flush(30) == 0
        (client.abort_transaction if aborted else client.commit_transaction)(30)
        # A transaction has ended before its marker is in the log.
        wait_for(lambda: end_offsets(side.bootstrap, self.topic)[0] > end + number)

    def copy(self, into: Side) -> None:
        """Until a witness finds all that there is on either side."""
        flow = self._copying[into.alias]
        keys = {r.key for side in (self.a, self.b) for r in self.log(side)}
        with flow.slot() as slot, Witness(into.bootstrap) as witness:
            witness.begin(self.topic)
            copy_until(witness, slot, flow.lease(60), count=len(keys), timeout=60)

    def log(self, side: Side) -> list[Seen]:
        quick = {"fetch.wait.max.ms": 20}
        found = read_topic(side.bootstrap, self.topic, **quick)[0]
        return [Seen(each.offset(), each.key()) for each in found]

    def commit(self, side: Side, group: str, offset: int) -> None:
        assert not group_offsets.fetch(side.cluster, [group]).refused
        wanted = {group: {(self.topic, 0): CommittedOffset(offset)}}
        assert not group_offsets.commit(side.cluster, wanted)

    def committed(self, side: Side, group: str) -> int:
        found = group_offsets.fetch(side.cluster, [group]).groups[group]
        return found[self.topic, 0].offset

    def sync(self, source: Side) -> list[str]:
        """One round of the service's job for groups of a side; its problems."""
        flow = self.flow_from(source)
        problems: list[str] = []
        jobs = GroupJobs(
            flow,
            lambda: copies(flow, source.cluster, self.writers),
            store=StatusStore((flow.name,)),
            tell=lambda _, told: problems.extend(told),
        ).jobs()
        (job,) = (job for job in jobs if job.name == CHECKPOINTS)
        job.work(source.cluster, self.other(source).cluster)
        return problems

    def check(
        self, source: Side, group: str, here: list[Seen], there: list[Seen]
    ) -> int:
        """A group goes on at the first record on the other side that it has not read;
        returns how many records it reads there again. Given what an ordinary consumer
        sees on both.
        """
        offset = self.committed(source, group)
        read = {record.key for record in here if record.offset < offset}
        at = self.committed(self.other(source), group)
        rest = [record.key for record in there if record.offset >= at]
        unread = [record.key for record in there if record.key not in read]
        assert set(unread) <= set(rest)
        assert rest[:1] == unread[:1]
        return len(rest) - len(unread)


@pytest.fixture
def pair(clusters: dict[str, PlaygroundCluster], topic_name: str) -> Iterator[Pair]:
    sides = {
        name: (f"{name}{topic_name[-8:]}", clusters[name].bootstrap) for name in "ab"
    }
    for _, bootstrap in sides.values():
        create_topic(bootstrap, topic_name)
    with ExitStack() as stack:
        made = SparklessFlow(
            source=sides["a"][1], target=sides["b"][1], topic=topic_name,
            alias=sides["a"][0], into=sides["b"][0],
        )  # fmt: skip
        a, b = stack.enter_context(made.connected())
        yield Pair(Side(*sides["a"], a), Side(*sides["b"], b), topic_name)


def test_groups_go_on_on_the_other_side(pair: Pair) -> None:
    """While one side at a time is written, groups of any lag go on at exactly the next
    record, there and back, with transactions and aborted records on both sides. Once
    both were written at a time they skip none and read some again; with a cluster
    gone, the other one alone gives the same answer.
    """
    lags: tuple[int, ...] = (0, 1, 30, 75)
    pair.produce(pair.a, 60)
    pair.produce(pair.a, 5, aborted=True)
    pair.produce(pair.a, 60)
    pair.copy(pair.b)

    def stand(side: Side, name: str) -> None:
        log = pair.log(side)
        for lag in lags:
            offset = log[-lag].offset if lag else log[-1].offset + 1
            pair.commit(side, f"{pair.topic}-{name}-{lag}", offset)

    def moved(side: Side, name: str) -> list[int]:
        assert pair.sync(side) == []
        logs = pair.log(side), pair.log(pair.other(side))
        return [pair.check(side, f"{pair.topic}-{name}-{lag}", *logs) for lag in lags]

    stand(pair.a, "there")
    assert moved(pair.a, "there") == [0] * len(lags)
    pair.produce(pair.b, 50)
    pair.produce(pair.b, 5, aborted=True)
    pair.copy(pair.a)
    lags = (0, 1, 30, 75, 140)
    stand(pair.b, "back")
    assert moved(pair.b, "back") == [0] * len(lags)
    pair.produce(pair.a, 20)
    pair.copy(pair.b)
    stand(pair.a, "again")
    assert moved(pair.a, "again") == [0] * len(lags)
    # Now both at a time: the logs have their records in another order.
    pair.produce(pair.a, 40)
    pair.produce(pair.b, 40)
    pair.copy(pair.a)
    pair.produce(pair.b, 10)
    pair.copy(pair.b)
    stand(pair.a, "both")
    repeated = moved(pair.a, "both")
    assert max(repeated) > 0
    flow = pair.flow_from(pair.a)
    known, alone = (
        {
            group.group: group.places[0].translated
            for group in survey(flow, pair.b.cluster, source, pair.writers).groups
        }
        for source in (pair.a.cluster, None)
    )
    for lag in lags:
        group = f"{pair.topic}-both-{lag}"
        assert known[group].offset == alone[group].offset
        assert known[group].offset == pair.committed(pair.b, group)
        assert known[group].exactness in (Exactness.EXACT, Exactness.TIP)
    # A group ahead of the copy; what it has read is copied after its checkpoint.
    pair.copy(pair.a)
    pair.produce(pair.a, 20)
    ahead = f"{pair.topic}-ahead"
    pair.commit(pair.a, ahead, pair.log(pair.a)[-5].offset)
    assert pair.sync(pair.a) == []
    pair.copy(pair.b)
    there = {
        group.group: group.places[0].translated
        for group in survey(flow, pair.b.cluster, None, pair.writers).groups
    }
    log = pair.log(pair.b)
    assert [r for r in log if r.offset >= there[ahead].offset] == log[-5:]
