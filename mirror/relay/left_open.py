"""What other slots' ids have left open where a slot writes.

Main function: `left_by_others`. A slot ends what its own ids left open
(`clusters.hanging`) but takes over no other id: two slots that did so for the same one
would abort each other's ending, and with it records that were committed. Only a driver
ends it, when a run begins; so the slot has one begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters import hanging
from mirror.clusters.hanging import Hanging
from mirror.errors import LeftOpenError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.hanging import OutcomeSearch

TopicPartition = tuple[str, int]
Open = dict[tuple[int, int], list[TopicPartition]]
"""Partitions with an open transaction, by its producer id and epoch."""


def left_by_others(
    target: Cluster,
    slot_ids: Mapping[int, str],
    others: Mapping[tuple[int, int], Sequence[TopicPartition]],
    search: OutcomeSearch,
    *,
    copies: set[TopicPartition],
    dead_letters: set[TopicPartition],
) -> list[Hanging]:
    """Transactions of slots that have ended but are open in these partitions, and that
    no run could end there. `others`: what producers other than this slot's have open.

    Raises:
        LeftOpenError: a run that begins can end one of them.
        ClusterError: the target does not answer, or the search cannot look.
    """
    by_epoch = target.feature("transaction.version") >= 2
    # All slots write dead letters. Without an epoch of its own, a transaction that has
    # just begun there would look like one that was left open.
    partitions = copies | dead_letters if by_epoch else copies
    found: Open = {
        of: kept
        for of, where in others.items()
        if of[0] in slot_ids
        and (kept := sorted(partitions.intersection(where)))
        and hanging.has_ended(target, slot_ids[of[0]], *of)
    }
    left = []
    for of, where in _still(target, found).items():  # else it ended just now
        name = slot_ids[of[0]]
        if by_epoch and search.was_committed(*of, where) is not None:
            topic, number = where[0]
            raise LeftOpenError(
                f"a transaction of {name} was left open in {topic}-{number}, "
                "where another slot writes now: a new run of the flow ends it"
            )
        left.append(
            Hanging(transactional_id=name, partitions=tuple(where), committed=None)
        )
    return left


def _still(target: Cluster, found: Open) -> Open:
    """Of these, what is open now."""
    if not found:
        return {}
    partitions = {each for where in found.values() for each in where}
    topics = target.topics({topic for topic, _ in partitions})
    now, _ = hanging.open_in(target, hanging.by_leader(topics, partitions))
    open_ = {
        of: [each for each in where if each in now.get(of, ())]
        for of, where in found.items()
    }
    return {of: where for of, where in open_.items() if where}
