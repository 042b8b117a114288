"""What brokers sent to whom, by their own request logs.

`LOGGED` makes a broker of the playground write one; `sent_bytes` reads it. mirror has
no part in it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

LOGGED = ("-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug",)
"""Java options."""
_COMPLETED = "Completed request:"


def sent_bytes(
    cluster: PlaygroundCluster,
    node: int,
    topic: str,
    client: str,
    *,
    topic_id: str = "",
) -> int:
    """Bytes of records of a topic that this broker sent to clients whose id begins so.
    The topic is named or, in newer requests, has this id; without one it is the only
    topic of these clients.
    """
    assert cluster.folder is not None
    log = cluster.folder / f"node-{node}" / "broker.log"
    total = 0
    # What stands behind the last line break is still being written.
    for line in log.read_text(errors="replace").split("\n")[:-1]:
        _, found, text = line.partition(_COMPLETED)
        if not found or '"FETCH"' not in text:
            continue
        entry = json.loads(text)
        if not str(entry["requestHeader"]["clientId"]).startswith(client):
            continue
        total += sum(
            partition.get("recordsSizeInBytes", 0)
            for each in entry["response"]["responses"]
            if each.get("topic", topic) == topic
            and (not topic_id or each.get("topicId", topic_id) == topic_id)
            for partition in each["partitions"]
        )
    return total
