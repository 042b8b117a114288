"""Whether a cluster answers, as a service sees it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
import pytest

from mirror.observing.exposition import exposition
from mirror.service import service
from mirror.service.service import ClusterWatch
from mirror.status.store import StatusStore
from tests.harness.configurations import configuration
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def id_of(cluster: PlaygroundCluster) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return str(admin.list_topics(timeout=30).cluster_id)


def test_a_cluster_that_stops_answering_and_comes_back(
    clusters: dict[str, PlaygroundCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric of the cluster is 0 on both its sides and an event says why while its
    broker answers nothing, and 1 again afterwards; the other cluster's stays 1. The
    status has both clusters' ids, as an ordinary client sees them, meanwhile, too.
    """
    monkeypatch.setattr(service, "ASK_SECONDS", 0.1)
    store = StatusStore(("A->B", "B->A"))
    with BrokerProxy(clusters["a"].bootstrap) as proxy:
        config = configuration(
            {
                "clusters": {
                    "A": {"bootstrap_servers": proxy.bootstrap},
                    "B": {"bootstrap_servers": clusters["b"].bootstrap},
                    "UNUSED": {"bootstrap_servers": "127.0.0.1:1"},
                },
                "flows": {"A->B": {}, "B->A": {}},
            }
        )

        def shown() -> set[str]:
            _, body = exposition(store, per_partition=True)("")
            lines = body.decode().splitlines()
            return {line for line in lines if line.startswith("mirror_cluster_answers")}

        def values(a: float, b: float) -> set[str]:
            return {
                f'mirror_cluster_answers{{cluster="{alias}",side="{side}"}} {value}'
                for alias, value in (("A", a), ("B", b))
                for side in ("source", "target")
            }

        with contextlib.closing(ClusterWatch(store)) as asking:
            asking.follow(config)
            wait_for(lambda: shown() == values(1.0, 1.0))
            with proxy.rules(Rule(api="Metadata", mishap=Mishap.LOST, times=None)):
                wait_for(lambda: shown() == values(0.0, 1.0), 60)
                reason = store.read().clusters[0].reason
                ids = {each.alias: each.cluster_id for each in store.clusters}
                assert ids == {"A": id_of(clusters["a"]), "B": id_of(clusters["b"])}
                asking.follow(config)  # as after a reload: nothing begins again
            wait_for(lambda: shown() == values(1.0, 1.0))
        wait_for(lambda: len(store.trail.read()) == 2)  # the metric comes first
        assert [(event.cluster, event.text) for event in store.trail.read()] == [
            ("A", f"cluster A does not answer: {reason}"),
            ("A", "cluster A answers again"),
        ]
