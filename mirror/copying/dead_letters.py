"""Dead letters: records on which a flow's function fails, and the topic for them.

`letters` builds them from the source records, unchanged except for headers that say
where each comes from and what went wrong. `prepare` creates the topic before the flow
needs it. `transforming` decides which records are dead letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mirror.config import own_topics
from mirror.records.schema import HEADERS, KEPT
from mirror.records.writing import ensure_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig

PREFIX = "mirror.error."


def letters(
    batch: pa.RecordBatch, failed: Sequence[tuple[int, str]], *, cluster: str
) -> pa.RecordBatch:
    """Dead letters for the failed records of a batch, in order.

    `failed`: their indexes and what went wrong. `cluster`: the source's alias.
    """
    indexes = [index for index, _ in failed]
    rows = batch.take(pa.array(indexes, pa.int64()))
    origin = zip(
        rows.column("topic").to_pylist(),
        rows.column("partition").to_pylist(),
        rows.column("offset").to_pylist(),
        [reason for _, reason in failed],
        strict=True,
    )
    headers = rows.column("headers")
    added = pa.array(
        [
            {"key": PREFIX + name, "value": str(value).encode()}
            for topic, partition, offset, reason in origin
            for name, value in (
                ("cluster", cluster),
                ("topic", topic),
                ("partition", partition),
                ("offset", offset),
                ("message", reason),
            )
        ],
        HEADERS.value_type,
    )
    each = len(added) // len(failed)
    own = headers.flatten()
    ends = headers.offsets.to_numpy()
    order = [
        part
        for row in range(len(failed))
        for part in (
            np.arange(ends[row], ends[row + 1]),
            np.arange(len(own) + row * each, len(own) + (row + 1) * each),
        )
    ]
    pairs = pa.concat_arrays([own, added]).take(pa.array(np.concatenate(order)))
    behind = (ends + each * np.arange(len(ends))).astype(np.int32)
    whole = pa.ListArray.from_arrays(pa.array(behind), pairs, type=HEADERS)
    return pa.RecordBatch.from_arrays(
        [*(rows.column(name) for name in KEPT.names[:-1]), whole], schema=KEPT
    )


def prepare(target: Cluster, flow: FlowConfig) -> None:
    """Create the flow's dead-letter topic if one is configured and does not exist.

    Raises:
        ClusterError: it cannot be created.
    """
    if flow.dead_letter_topic is not None:
        ensure_topic(
            target,
            own_topics.DEAD_LETTERS,
            flow.dead_letter_topic,
            replication_factor=flow.replication_factor,
        )
