"""The counters equal what is on the target, whichever slot died on the way."""

from __future__ import annotations

from dataclasses import replace
import signal
import time
from typing import TYPE_CHECKING
import uuid

from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
import pytest

from mirror.observing.exposition import exposition
from mirror.service.flow_status import LeaseTotals
from mirror.status.store import StatusStore
from tests.harness.admin import create_topic
from tests.harness.load import keys, send
from tests.harness.slot_processes import Point, SignalAt, SlotProcess
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import PATIENCE_SECONDS, wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from mirror.copying.lease import PartitionReport
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_EACH = 50
"""Records of a partition that are sent at a time."""


class Shown:
    """What one process of the service shows of the leases that reported to it."""

    def __init__(self) -> None:
        self.service = uuid.uuid4()
        self._totals = LeaseTotals()
        self._store = StatusStore(("flow",))
        self._answer = exposition(self._store, per_partition=True)

    def take(self, reports: list[PartitionReport]) -> int:
        """The records that status and metrics agree on."""
        partitions = self._totals.add(reports, time.monotonic())
        self._store.update("flow", lambda old: replace(old, partitions=partitions))
        families = text_string_to_metric_families(self._answer("")[1].decode())
        (metric,) = (f for f in families if f.name == "mirror_records")
        (flow,) = self._store.read().to_json()["flows"]
        assert sum(s.value for s in metric.samples) == flow["records"]
        assert sum(p["records"] for p in flow["partitions"]) == flow["records"]
        return flow["records"]


class Sent:
    """Records of the source, a little at a time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.total = 0
        self._topic = topic
        self._client = Producer({"bootstrap.servers": bootstrap})

    def more(self) -> None:
        first = self.total // _PARTITIONS
        send(self._client, self._topic, keys(_PARTITIONS, _EACH, first=first), b"v")
        self.total += _PARTITIONS * _EACH

    def until_dead(self, slot: SlotProcess) -> None:
        """Send until a slot that dies at its work is dead."""

        def dead() -> bool:
            self.more()
            return not slot.alive

        wait_for(dead)


@pytest.mark.parametrize(
    "point",
    [
        Point.BEFORE_WRITE,
        Point.AFTER_WRITE,
        Point.AFTER_COMMIT_REQUEST,
        Point.AFTER_COMMIT,
    ],
)
def test_what_a_killed_slot_had_committed_is_counted(
    clusters: dict[str, PlaygroundCluster], topic_name: str, point: Point
) -> None:
    """Slots are killed before they report, in leases of one run and of the next: status
    and metrics show every record that an ordinary consumer finds, and none twice.
    Another process of the service counts what it copies itself, from zero on.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    flow = SparklessFlow(source=source, target=target, topic=topic_name, alias="counts")
    sent, shown = Sent(source, topic_name), Shown()
    with Witness(target) as witness:

        def begin(shown: Shown) -> None:
            """A driver's run."""
            flow.own()
            flow.plan = replace(flow.plan, service=shown.service)

        def copy_all() -> list[PartitionReport]:
            """A lease that reports, until all that was sent is there."""
            witness.begin(flow.copy)
            with flow.slot() as slot:
                lease = flow.lease(PATIENCE_SECONDS)
                return copy_until(
                    witness, slot, lease, count=sent.total, timeout=PATIENCE_SECONDS
                )

        def kill_at(passes: int) -> None:
            """A lease that does not report."""
            at = SignalAt(point=point, number=signal.SIGKILL, passes=passes)
            with SlotProcess(flow, signal_at=at) as slot:
                sent.until_dead(slot)

        begin(shown)
        sent.more()
        assert shown.take(copy_all()) == sent.total
        kill_at(3)
        assert shown.take(copy_all()) == sent.total
        kill_at(6)
        begin(shown)
        assert shown.take(copy_all()) == sent.total
        assert shown.take(copy_all()) == sent.total

        other, before = Shown(), sent.total
        begin(other)
        sent.more()
        assert other.take(copy_all()) == sent.total - before
        witness.assert_exactly(flow.copy, keys(_PARTITIONS, sent.total // 2))

        begin(shown)
        middle = sent.total
        sent.more()
        assert shown.take(copy_all()) == before + sent.total - middle
