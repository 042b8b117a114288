"""The retention of the offset map: as long as that of the copies it describes.

Main functions: `due`, the `retention.ms` that the map is to have, which is pure, and
`needed`, what its copies need. Brokers delete whole segments, so a copy outlives its
topic's retention by up to one segment's time: the map's retention adds that. What is
deleted too early is gone for good, so it becomes shorter only for somebody who knows
every copy in the map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import configs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster

FOR_EVER = -1
_RETENTION = "retention.ms"


def longest(topics: Iterable[Mapping[str, str | None]]) -> int:
    """Milliseconds for which a copy may be there, given its topic's configs each;
    FOR_EVER if one keeps its records, as compacted topics do.
    """
    kept = 0
    for topic in topics:
        retention = int(topic.get(_RETENTION) or FOR_EVER)
        if retention < 0 or "delete" not in (topic.get("cleanup.policy") or ""):
            return FOR_EVER
        kept = max(kept, retention + int(topic.get("segment.ms") or 0))
    return kept


def is_enough(present: int, needed: int) -> bool:
    """Whether nothing is deleted that is needed for so long; milliseconds each, or
    FOR_EVER.
    """
    return present < 0 or 0 <= needed <= present


def due(present: int, needed: int | None, *, all_known: bool) -> int:
    """What it is to be, now that it is `present`. `needed`: by the copies that are
    known, which are all that the map has if `all_known`; None: that is not known.
    """
    if needed is None:  # a map that is kept too long does no harm
        return present
    if all_known:
        return needed
    return present if is_enough(present, needed) else FOR_EVER


def present(target: Cluster, map_topic: str) -> int:
    """What it is now.

    Raises:
        ClusterError: the target does not answer, or does not tell.
    """
    found = configs.describe(target, [map_topic])[map_topic]
    if found.error is not None:
        raise found.error
    return int(found.configs[_RETENTION].value or FOR_EVER)


def needed(target: Cluster, copies: Iterable[str]) -> int | None:
    """How long a map over these target topics is needed; None if there are none, or one
    cannot be asked.

    Raises:
        ClusterError: the target does not answer.
    """
    found = configs.describe(target, copies).values()
    there = [topic for topic in found if not topic.missing]
    if not there or any(topic.error is not None for topic in there):
        return None
    return longest(
        {key: config.value for key, config in topic.configs.items()} for topic in there
    )
