"""Finds a record by its key and time.

Main function: `find`, which reads a topic from a time on, partition by partition, until
the key is there. Keys are compared byte by byte, all of an answer at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import topic_admin
from mirror.clusters.wire import fetch
from mirror.errors import NoLeaderError
from mirror.proofs.log_stream import LogStream, Stretch
from mirror.proofs.traces.tracing import RecordPlace
from mirror.records import to_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.records.batch import Rows
    from mirror.records.listing import Listed


def find(
    cluster: Cluster, topic: Topic, key: bytes, time: int, tell: Callable[[str], None]
) -> RecordPlace | None:
    """The first committed record with this key at `time` (epoch ms,
    `topic_admin.EARLIEST` for any) or after it; None if there is none.

    `tell` is called with what is being read.

    Raises:
        ClusterError: a partition cannot be read.
    """
    name = topic.name
    keys = [(name, partition) for partition in topic.leaders]
    firsts = topic_admin.list_offsets(cluster, keys, timestamp=time)
    ends = topic_admin.list_offsets(cluster, keys, timestamp=topic_admin.LATEST)
    best: tuple[int, RecordPlace] | None = None
    for where in keys:
        if where not in firsts or where not in ends:
            raise NoLeaderError(
                f"{cluster.alias}: no leader answers for {name}-{where[1]}, which may "
                "have the key"
            )
        first, end = firsts[where], ends[where]
        if first < 0:
            continue  # no record is so new
        if best is not None:  # later records cannot be first
            until = topic_admin.list_offsets(cluster, [where], timestamp=best[0])
            end = min(end, until[where]) if until.get(where, -1) >= 0 else end
        tell(f"reading {name}-{where[1]} from offset {first} on")
        stretch = Stretch(
            topic=name, partition=where[1], topic_id=topic.topic_id,
            first=first, end=end,
        )  # fmt: skip
        stream = LogStream(cluster, stretch, isolation=fetch.READ_COMMITTED)
        for part in stream.listed():
            rows = _with(part, key, time)
            if len(rows):
                at, offset = rows[0, [to_columns.TIME, to_columns.OFFSET]].tolist()
                if best is None or at < best[0]:
                    best = at, RecordPlace(cluster.alias, name, where[1], offset)
                break
    return None if best is None else best[1]


def _with(part: Listed, key: bytes, time: int) -> Rows:
    """The records with this key, from `time` on."""
    places = part.places
    rows = places[
        (places[:, to_columns.KEY_SIZE] == len(key))
        & (places[:, to_columns.TIME] >= time)
    ]
    at = rows[:, to_columns.KEY_AT, None] + np.arange(len(key))
    found: Rows = rows[(part.buffer[at] == np.frombuffer(key, np.uint8)).all(axis=1)]
    return found
