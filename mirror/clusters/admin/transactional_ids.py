"""Which transactional ids a cluster knows, and shutting one out.

Main functions: `find`, over all brokers, and `fence`, by which a producer that still
has an id is refused, and what it left open is aborted. For taking over from programs
that are not ours; our own ids are `transactions`' duty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafka.protocol.admin import ListTransactionsRequest

from mirror.clusters import codes
from mirror.clusters.transactions import Producer
from mirror.errors import UnsupportedBrokerError

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster

_WITHOUT_PATTERNS = 1
_TIMEOUT_MS = 60_000


def find(cluster: Cluster, pattern: str) -> tuple[str, ...]:
    """Those whose whole name matches; none where brokers cannot say (before 3.0).

    Raises:
        ClusterError: a broker does not answer, or does not let us ask.
    """
    cluster.refresh()
    wanted = re.compile(pattern)
    found: set[str] = set()
    for node in cluster.nodes:
        request = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=-1
        )
        try:
            answer = cluster.connection(node).call(request, at_most=_WITHOUT_PATTERNS)
        except UnsupportedBrokerError:
            return ()
        if answer.error_code != codes.NONE:
            what = f"cluster {cluster.alias}: listing transactions"
            raise codes.error_for(answer.error_code, what)
        names = (each.transactional_id for each in answer.transaction_states)
        found.update(name for name in names if wanted.fullmatch(name))
    return tuple(sorted(found))


def fence(cluster: Cluster, transactional_id: str) -> None:
    """Abort what is open under an id, and refuse whoever wrote under it.

    Raises:
        ClusterError: the cluster refuses.
    """
    Producer(
        cluster,
        transactional_id=transactional_id,
        transaction_timeout_ms=_TIMEOUT_MS,
    ).take_over()
