"""A leader dies while mirror asks what another leader has lost."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic
import pytest
import structlog

from mirror.clusters.cluster import Cluster
from mirror.copying import gaps
from mirror.copying.intake import Intake
from mirror.pairs import losses
from tests.harness.admin import delete_records
from tests.harness.load import keys, producer, send
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import PATIENCE_SECONDS, crowd, wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.copying.gaps import GapFinding, Suspect, Verdict
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH = 10


class Gate:
    """Holds inquiries back until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self._look = gaps.look

    def look(self, source: Cluster, suspects: Iterable[Suspect]) -> list[GapFinding]:
        self.reached.set()
        assert self.open.wait(PATIENCE_SECONDS * crowd())
        return self._look(source, suspects)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(gaps, "look", made.look)
    yield made
    made.open.set()


@pytest.fixture
def overdue(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each round of the slot, whether a partition was set aside for longer than it
    had to be.
    """
    rounds: list[bool] = []
    apply_verdicts = Intake.apply_verdicts

    def noted(intake: Intake, verdicts: Iterable[Verdict]) -> None:
        rounds.append(intake._faults.due())
        apply_verdicts(intake, verdicts)

    monkeypatch.setattr(Intake, "apply_verdicts", noted)
    return rounds


def test_a_leader_dies_while_a_loss_is_looked_into(
    clusters: dict[str, PlaygroundCluster],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    gate: Gate,
    overdue: list[bool],
) -> None:
    """While a slow source is asked about a lost beginning, the only other partition
    loses its leader: that partition alone is set aside, and is not tried again before
    the answer is there. The loss is then in the ledger once, what follows it is copied,
    and so is the other partition once its leader is back.
    """
    cluster, target = make_clusters("a", nodes=3)["a"], clusters["b"].bootstrap
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(
        topic_name,
        num_partitions=2,
        replica_assignment=[[1], [3]],
        config={"min.insync.replicas": "1"},
    )
    admin.create_topics([new])[topic_name].result(30)
    client = producer(cluster.bootstrap)
    copied, lost, late = (keys(2, _EACH, first=n * _EACH) for n in range(3))
    send(client, topic_name, copied, b"v")
    flow = SparklessFlow(
        source=cluster.bootstrap,
        target=target,
        topic=topic_name,
    ).own()
    with (
        Witness(target) as witness,
        contextlib.closing(Cluster(flow.plan.target).connect()) as reader,
        structlog.testing.capture_logs() as said,
    ):
        witness.begin(flow.copy)
        with flow.slot() as slot:
            copy_until(witness, slot, flow.lease(120), count=2 * _EACH, timeout=60)
        send(client, topic_name, {0: lost[0]}, b"v")
        delete_records(cluster.bootstrap, topic_name, 2 * _EACH)
        send(client, topic_name, {0: late[0]}, b"v")

        with flow.slot() as slot:
            lease = RunningLease(slot, flow.lease(300))
            try:
                wait_for(gate.reached.is_set)
                cluster.kill(3)
                wait_for(lambda: len(overdue) > 3 and all(overdue[-3:]))
                gate.open.set()
                witness.wait(3 * _EACH, 60, lease)
                cluster.start(3)
                send(producer(cluster.bootstrap), topic_name, {1: late[1]}, b"v")
                witness.wait(4 * _EACH, 90, lease)
            finally:
                lease.end()
        witness.assert_exactly(flow.copy, {p: copied[p] + late[p] for p in range(2)})
        (loss,) = losses.read(reader, flow.alias)
    assert (loss.partition, loss.first, loss.last) == (0, _EACH, 2 * _EACH - 1)
    assert "slot takes over again" not in {each["event"] for each in said}, said
