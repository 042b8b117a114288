"""Records on which a flow's function fails, and the topic that they go to instead.

`letters` makes them of the records as they were on the source, with headers that say
where they come from and what is wrong; `prepare` sees that the topic is there before
a flow needs it. When a record is a dead letter is decided in `transforming`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mirror.batches.schema import HEADERS, KEPT
from mirror.batches.writing import ensure_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig

PREFIX = "mirror.error."


def letters(
    batch: pa.RecordBatch, failed: Sequence[tuple[int, str]], *, cluster: str
) -> pa.RecordBatch:
    """These records of a batch, each with what is wrong with it, in order.

    `cluster`: the alias of the source.
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
    """Have the flow's dead-letter topic, if it wants one.

    Raises:
        ClusterError: it cannot be made.
    """
    if flow.dead_letter_topic is not None:
        ensure_topic(
            target,
            flow.dead_letter_topic,
            replication_factor=flow.replication_factor,
            configs={},
        )
