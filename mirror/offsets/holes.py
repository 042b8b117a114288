"""Looks into single offsets of a log: records, markers, or nothing.

Main function: `look`, for many holes of one partition, with as few bytes per hole as a
broker sends: one batch, or a few. What `reverse_start` asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters import codes, error_counts
from mirror.clusters.topics import same_topic
from mirror.clusters.wire import fetch
from mirror.errors import ClusterError, CorruptBatchError, NoLeaderError, RecreatedError
from mirror.records import batch, former, scan
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Leader
    from mirror.records.batch import Buffer, Rows

_PURPOSE = "holes"
_SMALL_BYTES = 4 << 10
"""For holes of a few offsets; a broker sends at least one whole batch."""
_LARGE_BYTES = 1 << 20
_FEW = 8
_AT_ONCE = 16
_PATIENCE_SECONDS = 10.0

Hole = tuple[int, int]
"""From an offset up to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleLook:
    """What there is in a hole."""

    born: int = -1
    """The first record that readers of committed records see; -1 if there is none."""
    markers: int = 0
    """How many of its offsets may be markers of committed transactions."""


def look(
    cluster: Cluster,
    topic: str,
    partition: int,
    topic_id: uuid.UUID,
    wanted: Sequence[Hole],
) -> list[HoleLook]:
    """What is in each hole, as of now; all are below the last stable offset.

    Raises:
        RecreatedError: the topic has another id than this, if brokers have ids.
        ClusterError: the log cannot be read there.
    """
    looking = _Looking(cluster, topic, partition, topic_id)
    found: list[HoleLook] = []
    for at in range(0, len(wanted), _AT_ONCE):
        part = wanted[at : at + _AT_ONCE]
        found += patiently(partial(looking.at, part))
    return found


def outstanding(
    cluster: Cluster, topic: str, partition: int, topic_id: uuid.UUID, after: Hole
) -> int:
    """How many transactions had all their records before these offsets, and have their
    marker among them. A producer's records come before its marker, so these markers
    have none before them here.

    Raises:
        ClusterError: as `look`.
    """
    looking = _Looking(cluster, topic, partition, topic_id)
    return patiently(partial(looking.outstanding, after))


class _Looking:
    """One partition, and the batches that were read last."""

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, topic_id: uuid.UUID
    ) -> None:
        self._cluster = cluster
        self._key = (topic, partition)
        self._topic_id = topic_id
        self._where = f"cluster {cluster.alias}: {topic}-{partition}"
        self._leader: Leader | None = None
        self._scratch = batch.scratch()

    def at(self, holes: Sequence[Hole]) -> list[HoleLook]:
        """Ask for all at once, then read on where one answer was not enough."""
        leader = self._leader = self._leader or self._present_leader()
        try:
            connection = self._cluster.connection(leader.node, _PURPOSE)
            asked = [
                connection.send_buffers(
                    fetch.API_KEY,
                    fetch.VERSION,
                    [self._request(leader, hole[0], hole)],
                    flexible=False,
                )
                for hole in holes
            ]
            found = []
            rest = []
            for hole, pending in zip(holes, asked, strict=True):
                part = _Part(hole)
                self._read(part, np.frombuffer(bytearray(pending.result()), np.uint8))
                found.append(part)
                rest += [part] if part.position < hole[1] else []
            for part in rest:
                self._read_on(part, leader)
        except ClusterError:
            self._leader = None
            raise
        return [part.looked() for part in found]

    def outstanding(self, after: Hole) -> int:
        leader = self._leader = self._leader or self._present_leader()
        connection = self._cluster.connection(leader.node, _PURPOSE)
        position, count = after[0], 0
        writing: set[int] = set()
        while position < after[1]:
            request = self._request(
                leader, position, (position, after[1]), fetch.READ_UNCOMMITTED
            )
            body = connection.send_buffers(
                fetch.API_KEY, fetch.VERSION, [request], flexible=False
            ).result()
            (fetched,) = error_counts.noting(self._cluster.alias, fetch.decode(body))
            if fetched.error != codes.NONE:
                self._leader = None
                raise codes.error_for(fetched.error, f"reading {self._where}")
            buffer = np.frombuffer(body, np.uint8)
            found, _ = scan.index(buffer, fetched.start, fetched.end, self._scratch)
            if found <= 0:
                raise ClusterError(
                    f"{self._where} cannot be read from offset {position} on"
                )
            rows = self._scratch[:found]
            rows = rows[rows[:, scan.LAST] >= position]
            columns = [scan.PRODUCER, scan.ATTRIBUTES]
            for producer, attributes in rows[:, columns].tolist():
                if not attributes & batch.CONTROL:
                    writing.add(producer)
                    continue
                count += producer not in writing
                writing.discard(producer)
            position = int(rows[-1, scan.LAST]) + 1
        return count

    def _read_on(self, part: _Part, leader: Leader) -> None:
        connection = self._cluster.connection(leader.node, _PURPOSE)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while part.position < part.end:
            request = self._request(leader, part.position, (part.position, part.end))
            body = connection.send_buffers(
                fetch.API_KEY, fetch.VERSION, [request], flexible=False
            ).result()
            begun = part.position
            self._read(part, np.frombuffer(bytearray(body), np.uint8))
            if part.position > begun:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                raise ClusterError(
                    f"{self._where} does not show offset {begun}, which was committed: "
                    "is its leader cut off?"
                )

    def _request(
        self,
        leader: Leader,
        offset: int,
        hole: Hole,
        isolation: int = fetch.READ_COMMITTED,
    ) -> bytes:
        size = _SMALL_BYTES if hole[1] - offset <= _FEW else _LARGE_BYTES
        return fetch.encode(
            [
                fetch.Wanted(
                    topic=self._key[0],
                    partition=self._key[1],
                    offset=offset,
                    leader_epoch=leader.epoch,
                )
            ],
            isolation=isolation,
            max_wait_ms=10,
            max_bytes=size,
            partition_max_bytes=size,
        )

    def _read(self, part: _Part, body: Buffer) -> None:
        parts = fetch.decode(body.data)
        (fetched,) = error_counts.noting(self._cluster.alias, parts)
        if fetched.error != codes.NONE:
            raise codes.error_for(fetched.error, f"reading {self._where}")
        try:
            body, start, end = former.modern(body, fetched.start, fetched.end)
            found = batch.read(
                body,
                start,
                end,
                position=part.position,
                aborted=fetched.aborted,
                scratch=self._scratch,
            )
        except CorruptBatchError:
            part.cannot_be_read()
            return
        if found.seen is not None:
            part.take(body, found.seen, found.rows)
        part.position = max(part.position, found.next_offset)

    def _present_leader(self) -> Leader:
        shown = self._cluster.topics([self._key[0]])[self._key[0]]
        if shown.error != codes.NONE:
            raise codes.error_for(shown.error, self._where)
        if not same_topic(self._topic_id, shown.topic_id):
            raise RecreatedError(f"{self._where} was re-created")
        leader = shown.leaders.get(self._key[1])
        if leader is None or leader.node < 0:
            raise NoLeaderError(f"{self._where} has no leader")
        return leader


class _Part:
    """One hole, as far as it was read."""

    def __init__(self, hole: Hole) -> None:
        self.position, self.end = hole
        self._born = -1
        self._markers = hole[1] - hole[0]
        self._others: set[int] = set()

    def take(self, buffer: Buffer, seen: Rows, visible: Rows) -> None:
        """All batches from `position` on, and those that readers see."""
        for base, _ in self._within(visible):
            if self._born < 0 or base < self._born:
                self._born = base
        is_record = (seen[:, scan.ATTRIBUTES] & batch.CONTROL) == 0
        self._markers -= sum(
            last - base + 1 for base, last in self._within(seen[is_record])
        )
        for row in seen[is_record]:
            if any(self._within(row[None])):
                self._others.add(int(row[scan.PRODUCER]))
        # What the cleaner left empty may have been such a marker as well.
        markers = seen[~is_record & (seen[:, scan.COUNT] > 0)]
        ended = batch.markers(buffer, markers) == batch.ABORT_MARKER
        for row, aborts in zip(markers, ended.tolist(), strict=True):
            if any(self._within(row[None])):
                # One that ends records in this hole ends nothing that the map names.
                self._markers -= int(row[scan.PRODUCER]) in self._others or aborts

    def cannot_be_read(self) -> None:
        """It is not known what stands there: perhaps a record."""
        if self._born < 0:
            self._born = self.position
        self.position = self.end

    def looked(self) -> HoleLook:
        return HoleLook(born=self._born, markers=self._markers)

    def _within(self, rows: Rows) -> Iterator[Hole]:
        """The offsets of these batches that belong to what is left of the hole."""
        for base, last in rows[:, [scan.BASE, scan.LAST]].tolist():
            if base < self.end and last >= self.position:
                yield max(base, self.position), min(last, self.end - 1)
