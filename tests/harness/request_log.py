"""What brokers sent to whom, by their own request logs.

`LOGGED` makes a broker of the playground write one; `sent` reads it, and `sent_bytes`
adds it up. mirror has no part in it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster

LOGGED = ("-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug",)
"""Java options."""
_COMPLETED = "Completed request:"


class Sent(NamedTuple):
    """Records of one partition in one answer."""

    client: str
    partition: int
    offset: int
    """From where on the client asked."""
    size: int
    """In bytes."""


def sent(
    cluster: PlaygroundCluster,
    node: int,
    topic: str,
    client: str,
    *,
    topic_id: str = "",
) -> Iterator[Sent]:
    """The records of a topic that this broker sent to clients whose id begins so. The
    topic is named or, in newer requests, has this id; without one it is the only topic
    of these clients.
    """
    assert cluster.folder is not None
    log = cluster.folder / f"node-{node}" / "broker.log"
    asked: dict[tuple[str, int], int] = {}

    def is_of(each: dict[str, object]) -> bool:
        return each.get("topic", topic) == topic and (
            not topic_id or each.get("topicId", topic_id) == topic_id
        )

    # What stands behind the last line break is still being written.
    for line in log.read_text(errors="replace").split("\n")[:-1]:
        _, found, text = line.partition(_COMPLETED)
        if not found or '"FETCH"' not in text:
            continue
        entry = json.loads(text)
        name, where = str(entry["requestHeader"]["clientId"]), entry["connection"]
        if not name.startswith(client):
            continue
        for each in filter(is_of, entry["request"]["topics"]):
            for part in each["partitions"]:  # in a session, only what has changed
                asked[where, part["partition"]] = part["fetchOffset"]
        for each in filter(is_of, entry["response"]["responses"]):
            for part in each["partitions"]:
                number, size = part["partitionIndex"], part.get("recordsSizeInBytes", 0)
                if size > 0:
                    yield Sent(name, number, asked.get((where, number), -1), size)


def sent_bytes(cluster: PlaygroundCluster, node: int, topic: str, client: str) -> int:
    """Bytes of the only topic of these clients."""
    return sum(each.size for each in sent(cluster, node, topic, client))
