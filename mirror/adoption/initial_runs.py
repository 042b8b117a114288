"""The start of the offset map: what MirrorMaker 2 copied before mirror.

Main functions: `read_syncs`, MirrorMaker 2's offset syncs on either cluster, and
`initial_runs`, which is pure: the rows that a partition's map begins with. A sync is
one record known on both sides; the copies between two syncs are not known one by one,
so a floor follows each, which gives the answers that MirrorMaker 2 would give. The last
records are known exactly, from the copy (`plan`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.batches.reading import TopicReader
from mirror.clusters import codes
from mirror.errors import CorruptBatchError
from mirror.offsets.mm2_records import OffsetSync, offset_syncs_topic
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.runs import RunArray

Pair = tuple[int, int]
"""Offsets of one record, on the source and on the target."""

_MOST_SYNCS = 1000
"""Of a partition; the older ones are thinned out."""


def read_syncs(
    flow: FlowConfig, source: Cluster, target: Cluster
) -> dict[TopicPartition, list[Pair]]:
    """The pairs of every partition, in the order in which they were written; those on
    the cluster that the flow's `offset_syncs_location` does not name come first.

    Raises:
        ClusterError: a cluster does not answer.
    """
    places = [
        (source, offset_syncs_topic(flow.target, flow.mm2_separator)),
        (target, offset_syncs_topic(flow.source, flow.mm2_separator)),
    ]
    if flow.offset_syncs_location == "source":
        places.reverse()
    found: dict[TopicPartition, list[Pair]] = {}
    for cluster, topic in places:
        if cluster.topics([topic])[topic].error != codes.NONE:
            continue
        for _, key, value in TopicReader(cluster, topic, committed=False).read():
            try:
                sync = OffsetSync.decode(key, value)
            except CorruptBatchError:  # Java's reader would skip it too
                continue
            pairs = found.setdefault((sync.topic, sync.partition), [])
            pairs.append((sync.upstream, sync.downstream))
            if len(pairs) > 2 * _MOST_SYNCS:
                pairs[: 2 * _MOST_SYNCS - 100] = pairs[: 2 * _MOST_SYNCS - 100 : 2]
    return found


def ascending(pairs: Sequence[Pair]) -> list[Pair]:
    """Without those that later ones contradict: MirrorMaker 2 began again, or the copy
    was re-created.
    """
    kept: list[Pair] = []
    for pair in pairs:
        while kept and (kept[-1][0] >= pair[0] or kept[-1][1] >= pair[1]):
            kept.pop()
        kept.append(pair)
    return kept


def initial_runs(
    tail: RunArray,
    syncs: Sequence[Pair],
    *,
    begins: Pair,
    ends: Pair,
) -> RunArray:
    """Rows from `begins`, where nothing older is known, to `ends`: the next offset to
    copy, and the copy's end, where everything copied from now on follows.
    """
    if ends[0] < begins[0]:
        return np.array([(*ends, 0)], np.int64)  # everything is copied again
    tail = _behind(tail, begins)
    until = (int(tail[0, UPSTREAM]), int(tail[0, DOWNSTREAM])) if len(tail) else ends
    rows: list[tuple[int, int, int]] = []
    known = [
        (up, down)
        for up, down in ascending(syncs)
        if begins[0] <= up < until[0] and begins[1] <= down < until[1]
    ]
    if known[:1] != [begins] and until != begins:
        rows.append((*begins, 0))
    for up, down in known:
        rows += [(up, down, 1), (up + 1, down + 1, 0)]
    rows += [(int(up), int(down), int(count)) for up, down, count in tail.tolist()]
    if not rows or (rows[-1][0] + rows[-1][2], rows[-1][1] + rows[-1][2]) != ends:
        rows.append((*ends, 0))
    made = np.array(rows, np.int64)
    assert (made[:, COUNT] >= 0).all()
    return made


def _behind(tail: RunArray, begins: Pair) -> RunArray:
    """The rows, or parts of them, after a place on both sides."""
    over = np.maximum(
        np.maximum(begins[0] - tail[:, UPSTREAM], begins[1] - tail[:, DOWNSTREAM]), 0
    )
    cut = tail.copy()
    cut[:, UPSTREAM] += over
    cut[:, DOWNSTREAM] += over
    cut[:, COUNT] -= over
    kept: RunArray = cut[(over == 0) | (cut[:, COUNT] > 0)]
    return kept
