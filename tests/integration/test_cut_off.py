"""A broker that loses its cluster and keeps its clients is not believed.

Three brokers, of which one at a time is cut off from its peers and its controller while
it goes on answering us: it still names itself as leader, and shows what it had then.
Slots are killed and taken over again and again meanwhile, now asking that broker first,
now the others.
"""

from __future__ import annotations

from functools import partial
import signal
import time
from typing import TYPE_CHECKING

import pytest

from mirror.offsets import progress
from mirror.pairs import losses
from tests.harness.admin import copied_records, create_topic
from tests.harness.cut_off import (
    SplitCluster,
    in_sync,
    leader_of,
    move_leader,
    wait_for_another_leader,
)
from tests.harness.load import NumberedLoad
from tests.harness.slot_processes import Point, SignalAt, SlotProcess
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import assert_exactly_once, order_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 3
_TAKE_OVERS = pytest.mark.parametrize(
    "take_overs", [2, pytest.param(20, marks=pytest.mark.full)]
)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SplitCluster]:
    with SplitCluster(tmp_path_factory.mktemp("split")) as cluster:
        yield cluster


@pytest.fixture
def split(brokers: SplitCluster) -> Iterator[SplitCluster]:
    """The brokers, joined again for the next test, however this one ended."""
    yield brokers
    brokers.heal()


class Mirrored:
    """A topic, what was sent to it, and slots of one generation that copy it."""

    def __init__(
        self,
        flow: SparklessFlow,
        *,
        source: str,
        target: str,
        start: Callable[..., SlotProcess],
    ) -> None:
        """`source` and `target` are for the test's own clients."""
        self.target = target
        self.copy = flow.copy
        self._losses = losses.topic_name(flow.alias)
        create_topic(source, flow.topic, _PARTITIONS)
        create_topic(target, self.copy, _PARTITIONS)
        self.load = NumberedLoad(source, flow.topic, _PARTITIONS, seed=1)
        # Of one driver run: another generation alone would tell an old view.
        self.start = partial(start, flow.own())

    def look_at(self, target: str) -> None:
        """Read the copy from this address of the target from here on."""
        self.target = target

    def send_and_copy(self, count: int) -> None:
        """Have one slot copy all that was sent, and kill it."""
        self.load.send(count)
        slot = self.start()
        wanted = self.load.order
        wait_for(lambda: order_of(self.target, self.copy) == wanted, pause=0.5)
        slot.kill()

    def copied(self) -> int:
        return copied_records(self.target, self.copy)

    def wait_copied_after(self, before: int) -> None:
        wait_for(lambda: self.copied() > before, pause=0.3)

    def check(self) -> None:
        """Everything is there once, in order, and the ledger knows of no loss."""
        assert_exactly_once(order_of(self.target, self.copy), self.load.order)
        found = read_topic(self.target, self._losses)
        assert sum(map(len, found.values())) == 0


def _cut_leader_off(
    split: SplitCluster, topic: str, mirrored: Mirrored, use: Callable[[str], None]
) -> int:
    """Copy, cut off the broker that leads `topic`, and copy without it; that broker.
    `use` takes the address of the others, for the test's own clients.
    """
    mirrored.send_and_copy(1500)
    stale = leader_of(split.witness(), topic)
    reachable = split.witness(*split.others(stale))
    split.cut(stale)
    wait_for_another_leader(reachable, topic, stale)
    use(reachable)
    with split.hidden(stale):
        mirrored.send_and_copy(1500)
    return stale


@_TAKE_OVERS
def test_a_source_broker_cut_off(
    split: SplitCluster,
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    start_slot: Callable[..., SlotProcess],
    take_overs: int,
) -> None:
    """The source's cut-off broker lacks what was copied from its successor. Slots that
    at first reach only that broker neither record a loss nor copy anything again.
    """
    target = clusters["b"].bootstrap
    flow = SparklessFlow(
        source=split.bootstrap,
        target=target,
        topic=topic_name,
        timeout=5.0,
        alias=f"S{topic_name[-8:]}",
    )
    mirrored = Mirrored(flow, source=split.witness(), target=target, start=start_slot)
    stale = _cut_leader_off(split, topic_name, mirrored, mirrored.load.reconnect)
    others = split.others(stale)
    for _ in range(take_overs):
        with split.hidden(*others):
            asked, before = split.asked(stale), mirrored.copied()
            slot = mirrored.start()
            wait_for(lambda asked=asked: split.asked(stale) >= asked + 3)
            time.sleep(1)  # for as long as that it reaches no other
        mirrored.load.send(200)
        mirrored.wait_copied_after(before)
        slot.kill()
    split.heal()
    mirrored.send_and_copy(200)
    mirrored.check()


@_TAKE_OVERS
def test_a_target_broker_cut_off(
    split: SplitCluster,
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    start_slot: Callable[..., SlotProcess],
    take_overs: int,
) -> None:
    """The target's cut-off broker led the progress topic, and shows old progress. Slots
    that reach only that broker while they read progress do not go back to it: nothing
    is copied twice.
    """
    source = clusters["a"].bootstrap
    flow = SparklessFlow(
        source=source,
        target=split.bootstrap,
        topic=topic_name,
        timeout=5.0,
        alias="Z",
    )
    mirrored = Mirrored(flow, source=source, target=split.witness(), start=start_slot)
    own = progress.topic_name(flow.alias)
    stale = _cut_leader_off(split, own, mirrored, mirrored.look_at)
    others = split.others(stale)
    stops = [
        SignalAt(point=point, number=signal.SIGSTOP)
        for point in (Point.AFTER_TAKE_OVER, Point.AFTER_PROGRESS)
    ]
    for _ in range(take_overs // 2):
        before = mirrored.copied()
        slot = mirrored.start(signal_at=stops)
        wait_for(lambda slot=slot: slot.suspended)
        with split.hidden(*others):
            slot.resume()
            # Here it may read the old progress, and stop again behind it.
            ends = time.monotonic() + 2
            wait_for(
                lambda slot=slot, ends=ends: slot.suspended or time.monotonic() > ends
            )
        mirrored.load.send(200)
        wait_for(
            lambda slot=slot, before=before: (
                slot.resume() or mirrored.copied() > before
            ),
            60 * crowd(),
            pause=0.2,
        )
        slot.kill()
    split.heal()
    mirrored.send_and_copy(200)
    mirrored.check()


def test_a_leader_that_became_a_follower_is_left(
    split: SplitCluster,
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    start_slot: Callable[..., SlotProcess],
) -> None:
    """A partition's leader moves while a slot reads it, and the old leader replicates
    nothing from then on. As a follower it would answer, but not with new records: the
    slot goes to the new leader, and they arrive.
    """
    target = clusters["b"].bootstrap
    flow = SparklessFlow(
        source=split.bootstrap,
        target=target,
        topic=topic_name,
        alias=f"S{topic_name[-8:]}",
    )
    mirrored = Mirrored(flow, source=split.witness(), target=target, start=start_slot)
    mirrored.load.send(300)
    slot = mirrored.start()
    mirrored.wait_copied_after(0)
    old = leader_of(split.witness(), topic_name)
    new = split.others(old)[0]
    split.starve(old)
    move_leader(split.witness(), topic_name, new)
    mirrored.load.send(2000)
    wanted = mirrored.load.order
    wait_for(lambda: order_of(target, mirrored.copy) == wanted, pause=0.5)
    wait_for(lambda: old not in in_sync(split.witness(), topic_name))
    slot.kill()
    mirrored.check()
