"""Transactional ids of a cluster: find them, fence one.

Main functions: `find`, over all brokers, and `fence`, which shuts out a producer that
still uses an id and aborts its open transaction. They are for taking over from other
programs; for our own ids see `transactions`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafka.protocol.admin import ListTransactionsRequest

from mirror.clusters import codes
from mirror.clusters.transactions import Producer

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster

_WITHOUT_PATTERNS = 1
_TIMEOUT_MS = 60_000


def find(cluster: Cluster, pattern: str) -> tuple[str, ...]:
    """The ids that match `pattern` as a whole.

    Raises:
        UnsupportedBrokerError: brokers before 3.0 do not list them.
        ClusterError: a broker does not answer, or refuses.
    """
    cluster.refresh()
    wanted = re.compile(pattern)
    found: set[str] = set()
    for node in cluster.nodes:
        request = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=-1
        )
        answer = cluster.connection(node).call(request, at_most=_WITHOUT_PATTERNS)
        if answer.error_code != codes.NONE:
            what = f"cluster {cluster.alias}: listing transactions"
            raise codes.error_for(answer.error_code, what)
        names = (each.transactional_id for each in answer.transaction_states)
        found.update(name for name in names if wanted.fullmatch(name))
    return tuple(sorted(found))


def fence(cluster: Cluster, transactional_id: str) -> None:
    """Abort the open transaction of an id and fence the producers that used it.

    Raises:
        ClusterError: the cluster refuses.
    """
    Producer(
        cluster,
        transactional_id=transactional_id,
        transaction_timeout_ms=_TIMEOUT_MS,
    ).take_over()
