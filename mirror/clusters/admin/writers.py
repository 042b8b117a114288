"""Which topics transactional producers write to, as far as brokers remember.

Main functions: `find` and `transactional_ids`. Leaders know the producer ids that wrote
to their partitions lately (a day, unless `producer.id.expiration.ms` says otherwise);
coordinators know whose transactional ids these are.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka.protocol.admin import ListTransactionsRequest

from mirror.clusters import codes, hanging
from mirror.errors import UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic

_WITHOUT_PATTERNS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """What one look found."""

    topics: Mapping[str, frozenset[str]]
    """By transactional id, the topics that its producer wrote to."""
    unseen: Mapping[str, str]
    """Topics of which some leader did not tell, with the reason."""


def find(
    cluster: Cluster,
    topics: Mapping[str, Topic],
    ids: Mapping[int, str] | None = None,
) -> Writers:
    """Look at these topics. Brokers that are too old to tell have no writers. `ids`: an
    answer of `transactional_ids`, or the part of it that counts.

    Raises:
        ClusterError: a broker does not answer, or refuses.
    """
    keys = [
        (name, number) for name, topic in topics.items() for number in topic.leaders
    ]
    wrote: dict[int, set[str]] = {}
    unseen: dict[str, str] = {}
    sent = [
        hanging.ask(cluster, leader, names)
        for leader, names in hanging.by_leader(topics, keys).items()
    ]
    for each in sent:
        for topic in each.result().topics if each is not None else ():
            for part in topic.partitions:
                if part.error_code != codes.NONE:
                    unseen[topic.name] = codes.name_of(part.error_code)
                for producer in part.active_producers:
                    wrote.setdefault(producer.producer_id, set()).add(topic.name)
    if ids is None:
        ids = {}
        with contextlib.suppress(UnsupportedBrokerError):
            ids = transactional_ids(cluster) if wrote else {}
    return Writers(
        topics={
            name: frozenset(wrote[producer_id])
            for producer_id, name in ids.items()
            if producer_id in wrote
        },
        unseen=unseen,
    )


def transactional_ids(cluster: Cluster) -> dict[int, str]:
    """The transactional ids that we may see, by producer id.

    Raises:
        UnsupportedBrokerError: brokers before 3.0 do not tell.
        ClusterError: a broker does not answer, or refuses.
    """
    cluster.refresh()
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], duration_filter=-1
    )
    found: dict[int, str] = {}
    for node in cluster.nodes:
        answer = cluster.connection(node).call(request, at_most=_WITHOUT_PATTERNS)
        if answer.error_code != codes.NONE:
            what = f"cluster {cluster.alias}: listing transactions"
            raise codes.error_for(answer.error_code, what)
        found |= {
            each.producer_id: each.transactional_id
            for each in answer.transaction_states
        }
    return found
