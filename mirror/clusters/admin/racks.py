"""Where a cluster's brokers are.

One function, `racks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.metadata import MetadataRequest

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster


def racks(cluster: Cluster) -> frozenset[str]:
    """The racks of all brokers (`broker.rack`); those without one do not count.

    Raises:
        ClusterError: the cluster does not answer.
    """
    answer = cluster.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    return frozenset(broker.rack for broker in answer.brokers if broker.rack)
