"""Whether a leader that is asked by name still means the topics that a slot reads.

Brokers before 3.1 fetch by name. A fetch that waits there is answered when its topic is
deleted. While none waits, a topic may be deleted and created again, and a slot would go
on in the middle of the new one. So after a pause (a process was suspended, the target
is slow) it asks the leader for the topics' ids before it fetches on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.errors import UnreachableError
from mirror.offsets.progress import NO_ID
from mirror.relay.fetch_channel import MAX_WAIT_MS

if TYPE_CHECKING:
    from collections.abc import Mapping
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.relay.fetch_channel import FetchChannel

_PAUSE_SECONDS = 2 * MAX_WAIT_MS / 1000
"""After this time since the last request, the broker must have answered it."""


def require_same_topics(
    cluster: Cluster, channel: FetchChannel, ids: Mapping[str, uuid.UUID]
) -> None:
    """Check the topics of a channel that goes on by name after a pause. `ids`: of the
    topics that are read; brokers before 2.8 have none.

    Raises:
        UnreachableError: the broker does not answer, or means another topic.
    """
    paused = 0 < channel.sent < time.monotonic() - _PAUSE_SECONDS
    if channel.by_id or not paused or NO_ID in ids.values():
        return
    read = {name for name, _ in channel.asked}
    for name, topic in cluster.topics(read, node=channel.node).items():
        if topic.topic_id != ids.get(name, topic.topic_id):
            raise UnreachableError(f"source topic {name} was deleted or created again")
