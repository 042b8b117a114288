"""An address that leads to another cluster than before is noticed before it matters."""

from __future__ import annotations

from contextlib import closing
import functools
import select
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import EndTxnRequest
import pytest

from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import fetch
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import ClusterChangedError
from mirror.service.flow import Flow
from mirror.service.pairs import PairFollower
from mirror.service.scheduler import Job, Jobs
from mirror.status.store import StatusStore
from tests.harness.configurations import configuration
from tests.harness.fake_broker import Broker
from tests.harness.micro_batches import MicroBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.clusters.wire.connection import Connection

pytestmark = pytest.mark.unit


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(cluster_id="old-id") as made:
        yield made


def _cluster(broker: Broker, cluster_id: str = "") -> Any:
    config = ClusterConfig.model_validate(
        {"alias": "A", "bootstrap_servers": broker.address}
    )
    return closing(Cluster(config, cluster_id=cluster_id))


def _names_both(error: ClusterChangedError, broker: Broker) -> bool:
    return all(each in str(error) for each in ("cluster A", "old-id", "new-id",
                                               broker.address))  # fmt: skip


def test_a_cluster_that_is_not_the_planned_one_is_refused(broker: Broker) -> None:
    """The error names both cluster ids, the alias and the address."""
    broker.cluster_id = "new-id"
    with _cluster(broker, "old-id") as cluster:
        with pytest.raises(ClusterChangedError) as caught:
            cluster.connect()
        assert _names_both(caught.value, broker)
        assert not cluster.cluster_id
        assert not caught.value.retriable


def test_the_planned_cluster_is_accepted(broker: Broker) -> None:
    """With the expected cluster there is no error."""
    with _cluster(broker, "old-id") as cluster:
        assert cluster.connect().group_coordinators(["g"]) == {"g": 1}


def _commit(connection: Connection) -> Any:
    return connection.call(
        EndTxnRequest(
            transactional_id="t", producer_id=7, producer_epoch=0, committed=True
        )
    )


def _produce(connection: Connection) -> Any:
    return connection.send_buffers(0, 7, [b"records"], flexible=False).result()


def _find(connection: Connection) -> Any:
    return connection.call(
        FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])
    )


def _fetch(connection: Connection) -> Any:
    request = fetch.encode(
        [fetch.Wanted(topic="t", partition=0, offset=0, leader_epoch=-1)],
        isolation=fetch.READ_COMMITTED,
        max_wait_ms=1,
        max_bytes=1,
        partition_max_bytes=1,
    )
    pending = connection.send_buffers(
        fetch.API_KEY, fetch.VERSION, [request], flexible=False
    )
    return pending.result()


@pytest.mark.parametrize(("ask", "api"), [(_commit, "EndTxn"), (_produce, "Produce")])
def test_nothing_is_written_to_another_cluster(
    broker: Broker, ask: Callable[[Connection], Any], api: str
) -> None:
    """A broker's address leads to another cluster after a reconnect: what changes
    something is not even sent there, although no metadata was requested since.
    """
    with _cluster(broker) as cluster:
        used = cluster.connect().connection(1, "produce")
        _find(used)
        used.close()
        broker.cluster_id = "new-id"
        with pytest.raises(ClusterChangedError) as caught:
            ask(cluster.connection(1, "produce"))
        assert _names_both(caught.value, broker)
        assert api not in broker.asked


@pytest.mark.parametrize("ask", [_find, _fetch])
def test_nothing_is_read_from_another_cluster(
    broker: Broker, ask: Callable[[Connection], Any]
) -> None:
    """With such an address, a question's answer is not accepted, and the connection can
    no longer be used.
    """
    with _cluster(broker) as cluster:
        _find(used := cluster.connect().connection(1, "fetch 0"))
        used.close()
        broker.cluster_id = "new-id"
        connection = cluster.connection(1, "fetch 0")
        with pytest.raises(ClusterChangedError):
            ask(connection)
        assert connection.closed


def test_it_goes_on_when_the_address_is_right_again(broker: Broker) -> None:
    """Once the address leads to the right cluster again, the same object works."""
    with _cluster(broker) as cluster:
        _find(cluster.connect().connection(1))
        broker.hang_up()
        broker.cluster_id = "new-id"
        with pytest.raises(ClusterChangedError):
            cluster.group_coordinators(["g"])
        broker.cluster_id = "old-id"
        assert cluster.group_coordinators(["g"]) == {"g": 1}


def test_reading_on_does_not_wait_behind_the_question_who_it_is(
    broker: Broker,
) -> None:
    """What has arrived is read without waiting for the requests behind it: a slot would
    stand still until a leader has new records.
    """
    broker.silent_on = {"Fetch"}
    with _cluster(broker) as cluster:
        connection = cluster.connect().connection(1, "fetch 0")
        pending = connection.send_buffers(1, 11, [b""], flexible=False)
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        assert poller.poll(5000)
        connection.read_on()
        assert not connection.whole
        assert not pending.answered


def test_a_job_does_nothing_at_another_cluster(broker: Broker) -> None:
    """Jobs beside the data work with the clusters of the flow's run, or not at all."""
    broker.cluster_id = "new-id"
    store, worked = StatusStore(("A->B",)), []
    source, target = (
        ClusterConfig.model_validate(
            {"alias": alias, "bootstrap_servers": broker.address}
        )
        for alias in "AB"
    )
    job = Job(name="work", seconds=1, work=lambda *clusters: worked.append(clusters))
    ids = {"A": "old-id", "B": "new-id"}
    Jobs("A->B", (source, target), [job], store=store, ids=ids).turn()
    (status,) = store.flow("A->B").jobs
    assert "old-id" in status.error
    assert "new-id" in status.error
    assert worked == []


def test_a_flow_does_not_run_with_another_cluster(
    broker: Broker, tmp_path: Path
) -> None:
    """A flow that runs again does not accept another cluster in place of the one that
    it had: the run fails with both ids before it changes anything.
    """
    with Broker(cluster_id="other-id") as target:
        config = configuration(
            {
                "clusters": {
                    "A": {"bootstrap_servers": broker.address},
                    "B": {"bootstrap_servers": target.address},
                },
                "flows": {"A->B": {"topics": ["t"]}},
                "service": {"state_dir": str(tmp_path)},
            }
        )
        store = StatusStore(("A->B",))
        pairs = PairFollower(config, store)
        flow = Flow(config.flows["A->B"], config, store=store, pairs=pairs)
        run = functools.partial(
            flow.run,
            preferred=cast("Any", SimpleNamespace(spark=MicroBatches())),
            most_slots=lambda: 1,
        )
        # A broker that has no topics is as far as this one gets.
        target.hangs_up_on = {"ListOffsets", "Produce", "InitProducerId"}
        with pytest.raises(Exception, match=r"."):
            run()
        target.taken.clear()
        broker.cluster_id = "new-id"
        with pytest.raises(ClusterChangedError) as caught:
            run()
        assert _names_both(caught.value, broker)
        assert target.asked == []
