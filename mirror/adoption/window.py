"""The records of a range of one partition, as marks (hashes) of their content.

Main type: `Window`, offsets with their marks; `read` fetches one. Two records with the
same mark are the same record, on either cluster. `partitions` draws the conclusions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.batches import listing, marks, scan, to_columns
from mirror.batches.batch import LOG_APPEND_TIME
from mirror.batches.reading import TopicReader
from mirror.relay import provenance

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster

Longs = npt.NDArray[np.int64]
Marks = npt.NDArray[np.uint64]

_VIA = np.frombuffer(bytearray(provenance.HEADER.encode()), np.uint8)
"""mirror itself adds this one on every hop: it says nothing about what was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Records in the order of their log; offsets ascend, and may have holes."""

    offsets: Longs
    marks: Marks
    own_times: bool = True
    """Off: the brokers wrote the time when they got the record (LogAppendTime)."""


def read(
    cluster: Cluster,
    topic: str,
    partition: int,
    *,
    first: int,
    end: int,
    timed: bool = True,
    committed: bool = True,
) -> Window:
    """The records from `first` up to `end`; with `timed` their times count.

    Raises:
        ClusterError: the partition cannot be read.
        CorruptBatchError: a batch is damaged.
    """
    reader = TopicReader(
        cluster, topic, partition=partition, position=first, committed=committed
    )
    offsets: list[Longs] = []
    found: list[Marks] = []
    own_times = True
    for buffer, rows in reader.batches(end):
        if (rows[:, scan.ATTRIBUTES] & LOG_APPEND_TIME).any():
            own_times = False
        for source, places, *_ in listing.listed(buffer, rows, position=first):
            made = np.empty(len(places), np.uint64)
            marks.mark(source, places, _VIA, int(timed), made)
            offsets.append(places[:, to_columns.OFFSET].copy())
            found.append(made)
    if not offsets:
        return Window(offsets=np.empty(0, np.int64), marks=np.empty(0, np.uint64))
    all_offsets, all_marks = np.concatenate(offsets), np.concatenate(found)
    wanted = int(np.searchsorted(all_offsets, end))
    return Window(
        offsets=all_offsets[:wanted], marks=all_marks[:wanted], own_times=own_times
    )
