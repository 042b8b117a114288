"""The retention of the offset map: as long as that of the copies it describes.

Main function: `sync`, which looks once and sets the map's `retention.ms`; its caller
owns interval and retries. The rule, `longest`, is pure. Brokers delete whole segments,
so a copy outlives its topic's retention by up to one segment's time: the map's
retention adds that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import configs
from mirror.offsets.runs import topic_name

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


def sync(
    target: Cluster, source_alias: str, separator: str, copies: Iterable[str]
) -> int | None:
    """Set it for a map over these target topics; returns what it is now.

    Without copies, or if one cannot be asked, it changes nothing and returns None: a
    map that is kept too long does no harm.

    Raises:
        ClusterError: the target does not answer, or refuses the change.
    """
    found = configs.describe(target, copies).values()
    there = [topic for topic in found if not topic.missing]
    if not there or any(topic.error is not None for topic in there):
        return None
    wanted = longest(
        {key: config.value for key, config in topic.configs.items()} for topic in there
    )
    name = topic_name(source_alias, separator)
    present = configs.describe(target, [name])[name]
    if present.error is not None:
        raise present.error
    if present.configs[_RETENTION].value != str(wanted):
        refused = configs.alter(target, {name: {_RETENTION: str(wanted)}})
        if name in refused:
            raise refused[name]
    return wanted
