"""What one offset of a log holds: a record, or why there is none.

Main function: `look`. Main type: `Held`, which says so in words, and has what a trace
needs of a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from mirror.clusters.admin import configs, topic_admin
from mirror.errors import CorruptBatchError, NoLeaderError
from mirror.records import codecs, scan, to_columns
from mirror.records.batch import CONTROL
from mirror.records.listing import headers_of, listed
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster

_FETCH_BYTES = 64 << 10


class OffsetHolds(Enum):
    """What is at an offset."""

    RECORD = auto()
    """A record that everybody can read."""
    EXPIRED = auto()
    """The log begins after it."""
    END = auto()
    """The log ends before it."""
    OPEN = auto()
    """A transaction is open there, or was opened before and is still open."""
    ABORTED = auto()
    """A record of a transaction that was aborted."""
    MARKER = auto()
    """The end of a transaction."""
    CLEANED = auto()
    """Nothing: the log cleaner removed what was there."""
    NOTHING = auto()
    """Nothing, for no reason that shows."""
    DAMAGED = auto()
    """It cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What an offset holds."""

    what: OffsetHolds
    time: int = -1
    """The record's, epoch ms."""
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    detail: str = ""
    """Why there is no record, in words; empty if there is one."""

    def values(self, header: str) -> tuple[str, ...]:
        """The values of a header, in order."""
        name = header.encode()
        return tuple(
            (value or b"").decode(errors="replace")
            for key, value in self.headers
            if key == name
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEdges:
    """Where a log begins and ends."""

    start: int
    stable: int
    """The last stable offset: from there on transactions may be open."""
    end: int


def edges(cluster: Cluster, topic: str, partition: int) -> LogEdges:
    """Where a log begins and ends now.

    Raises:
        ClusterError: its leader does not answer.
    """
    key = (topic, partition)
    # The end first: it only grows.
    end, stable, start = (
        topic_admin.list_offsets(
            cluster, [key], timestamp=timestamp, committed=committed
        ).get(key)
        for timestamp, committed in (
            (topic_admin.LATEST, False),
            (topic_admin.LATEST, True),
            (topic_admin.EARLIEST, True),
        )
    )
    if end is None or stable is None or start is None:
        raise NoLeaderError(
            f"cluster {cluster.alias}: {topic}-{partition} has no leader that answers"
        )
    return LogEdges(start=start, stable=stable, end=end)


def look(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    most_unpacked: int = codecs.MOST_UNPACKED,
) -> Held:
    """What is at an offset now.

    Raises:
        ClusterError: the cluster does not answer, or does not let us read it.
    """
    log = edges(cluster, topic, partition)
    if offset >= log.end:
        return Held(what=OffsetHolds.END, detail=f"the log ends at offset {log.end}")
    if offset < log.start:
        return Held(
            what=OffsetHolds.EXPIRED, detail=f"the log begins at offset {log.start}"
        )
    if offset >= log.stable:
        return Held(
            what=OffsetHolds.OPEN,
            detail=f"a transaction is open from offset {log.stable} on",
        )
    try:
        found, _ = _read(cluster, topic, partition, offset, most_unpacked)
        if found is not None:
            return found
        hidden, marker = _read(
            cluster, topic, partition, offset, most_unpacked, committed=False
        )
    except CorruptBatchError as error:
        return Held(what=OffsetHolds.DAMAGED, detail=str(error))
    if hidden is not None:
        return Held(what=OffsetHolds.ABORTED, detail="its transaction was aborted")
    if marker:
        return Held(
            what=OffsetHolds.MARKER, detail="the marker that ends a transaction"
        )
    described = configs.describe(cluster, [topic])[topic].configs
    policy = described.get("cleanup.policy")
    if policy is not None and "compact" in (policy.value or ""):
        return Held(
            what=OffsetHolds.CLEANED, detail="the log cleaner removed what was there"
        )
    return Held(what=OffsetHolds.NOTHING, detail="no record has this offset")


def _read(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    most_unpacked: int,
    *,
    committed: bool = True,
) -> tuple[Held | None, bool]:
    """The record at an offset, and whether a transaction's marker is there."""
    reader = TopicReader(
        cluster, topic, partition=partition, position=offset, committed=committed,
        fetch_bytes=_FETCH_BYTES,
    )  # fmt: skip
    marker = False
    end = offset + 1
    for buffer, found in reader.seen(end):
        rows = found.rows[found.rows[:, scan.BASE] < end]
        for part in listed(buffer, rows, offset, end, most_unpacked=most_unpacked):
            for place in part.places:
                time = int(place[to_columns.TIME])
                headers = tuple(headers_of(part.buffer, place))
                return Held(what=OffsetHolds.RECORD, time=time, headers=headers), False
        if found.seen is not None:
            covers = (found.seen[:, scan.BASE] <= offset) & (
                found.seen[:, scan.LAST] >= offset
            )
            control = (found.seen[:, scan.ATTRIBUTES] & CONTROL) != 0
            marker |= bool((covers & control).any())
    return None, marker
