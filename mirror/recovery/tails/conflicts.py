"""Keys that applications wrote on both clusters, or on the one that is not their home.

Main functions: `conflicts` and `away`. Both read the topic of the same name on both
sides, without what was copied there: `away` once, `conflicts`, for long logs, several
times, each time for a part of the keys. It finds keys by their marks, and compares byte
by byte those that are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.clusters.admin import topic_admin
from mirror.clusters.wire import fetch
from mirror.copying.provenance import HEADER, prefixes
from mirror.proofs.explaining import NO_STAMP
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.records import alignment, looped, to_columns
from mirror.records.listing import Listed, Loops, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.pair_settings import PairConfig
    from mirror.records.batch import Buffer, Rows

Numbers = npt.NDArray[np.int64]

_MOST_OFFSETS = 2_000_000
"""Offsets of one pass, 40 bytes each; more only if a few keys have most records."""
_MARK, _TIME, _SIDE, _PARTITION, _OFFSET = range(5)
_COLUMNS = 5
_STAMPS = Loops(via=np.frombuffer(bytearray(HEADER.encode()), np.uint8))
"""Counts the headers of each record that say where it was copied from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One record."""

    cluster: str
    partition: int
    offset: int
    time: int
    """Epoch milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two records with one key, born on different clusters."""

    topic: str
    key: bytes
    first: Written
    """By the times of both."""
    then: Written


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A record that was born on the cluster that is not its key's home."""

    topic: str
    key: bytes
    home: str
    written: Written


def conflicts(
    clusters: tuple[Cluster, Cluster],
    topic: str,
    *,
    window_ms: int,
    since_ms: int | None = None,
    most_unpacked: int,
) -> Iterator[Conflict]:
    """Where a key changed sides within the window: of each such change, the last record
    on one side and the first on the other. Both clusters are connected.

    Raises:
        ClusterError: a cluster cannot be read.
    """
    sides = [_Side(each, topic, since_ms, most_unpacked) for each in clusters]
    offsets = sum(end - first for side in sides for first, end in side.spans.values())
    passes = -(-offsets // _MOST_OFFSETS)
    for number in range(passes):
        rows = np.concatenate(
            [side.rows(place, number, passes) for place, side in enumerate(sides)]
        )
        pairs = near(rows, window_ms)
        keys = [
            side.keys(pairs[pairs[:, _SIDE] == place])
            for place, side in enumerate(sides)
        ]
        for first, then in zip(pairs[::2].tolist(), pairs[1::2].tolist(), strict=True):
            key, other = (
                keys[row[_SIDE]].get((row[_PARTITION], row[_OFFSET]))
                for row in (first, then)
            )
            # None: deleted since.
            if key is not None and key == other:
                yield Conflict(
                    topic=topic,
                    key=key,
                    first=_written(clusters, first),
                    then=_written(clusters, then),
                )


def away(
    clusters: tuple[Cluster, Cluster],
    topic: str,
    *,
    pair: PairConfig,
    since_ms: int | None = None,
    most_unpacked: int,
) -> Iterator[Away]:
    """Records whose key has its home on the other cluster, one cluster after the other.
    The pair has their homes. Raises as `conflicts`.
    """
    for cluster, other in (clusters, clusters[::-1]):
        homes = prefixes(pair.homes_seen_from(cluster.alias))
        side = _Side(cluster, topic, since_ms, most_unpacked)
        for partition, part in side.parts():
            found = np.empty(len(part.places), np.uint8)
            looped.away(part.buffer, np.ascontiguousarray(part.places), homes, found)
            for row in np.flatnonzero(found).tolist():
                place = part.places[row]
                yield Away(
                    topic=topic,
                    key=_key(part.buffer, place),
                    home=other.alias,
                    written=Written(
                        cluster=cluster.alias,
                        partition=partition,
                        offset=int(place[to_columns.OFFSET]),
                        time=int(place[to_columns.TIME]),
                    ),
                )


def near(rows: Numbers, window_ms: int) -> Numbers:
    """Of these records those that follow one of the same key on the other side within
    the window, each right behind that one.
    """
    by_key = rows[
        np.lexsort((rows[:, _OFFSET], rows[:, _SIDE], rows[:, _TIME], rows[:, _MARK]))
    ]
    one, other = by_key[:-1], by_key[1:]
    found = np.flatnonzero(
        (one[:, _MARK] == other[:, _MARK])
        & (one[:, _SIDE] != other[:, _SIDE])
        & (other[:, _TIME] - one[:, _TIME] <= window_ms)
    )
    return by_key[np.stack([found, found + 1], axis=1).ravel()]


class _Side:
    """The topic on one cluster."""

    def __init__(
        self, cluster: Cluster, name: str, since_ms: int | None, most_unpacked: int
    ) -> None:
        self._cluster = cluster
        self._topic: Topic = cluster.topics([name])[name]
        self._lister = partial(_born, most_unpacked=most_unpacked)
        where = [(name, number) for number in self._topic.leaders]
        begin = topic_admin.EARLIEST if since_ms is None else since_ms
        firsts = topic_admin.list_offsets(cluster, where, timestamp=begin)
        ends = topic_admin.list_offsets(cluster, where, timestamp=topic_admin.LATEST)
        self.spans: Mapping[int, tuple[int, int]] = {
            key[1]: (first, ends[key])
            for key, first in firsts.items()
            if 0 <= first < ends.get(key, 0)
        }
        """What to read, by partition."""

    def parts(self) -> Iterator[tuple[int, Listed]]:
        """All records, each part with its partition."""
        for partition, (first, end) in self.spans.items():
            for part in self._read(partition, first, end):
                yield partition, part

    def rows(self, place: int, number: int, passes: int) -> Numbers:
        """The records with a key of one part of the keys."""
        found = [np.empty((0, _COLUMNS), np.int64)]
        for partition, part in self.parts():
            places = np.ascontiguousarray(part.places)
            made, keys = np.empty((2, len(places)), np.int64)
            alignment.describe(part.buffer, places, NO_STAMP, 0, made, keys)
            taken = places[:, to_columns.KEY_SIZE] >= 0
            taken &= keys % passes == number
            rows = np.empty((int(taken.sum()), _COLUMNS), np.int64)
            rows[:, _MARK] = keys[taken]
            rows[:, _TIME] = places[taken, to_columns.TIME]
            rows[:, _SIDE], rows[:, _PARTITION] = place, partition
            rows[:, _OFFSET] = places[taken, to_columns.OFFSET]
            found.append(rows)
        return np.concatenate(found)

    def keys(self, rows: Numbers) -> dict[tuple[int, int], bytes]:
        """The keys of these records, by partition and offset."""
        found = {}
        for partition in np.unique(rows[:, _PARTITION]).tolist():
            wanted = np.unique(rows[rows[:, _PARTITION] == partition, _OFFSET])
            first, end = int(wanted[0]), int(wanted[-1]) + 1
            for part in self._read(partition, first, end):
                there = np.isin(part.places[:, to_columns.OFFSET], wanted)
                for place in part.places[there]:
                    where = partition, int(place[to_columns.OFFSET])
                    found[where] = _key(part.buffer, place)
        return found

    def _read(self, partition: int, first: int, end: int) -> Iterable[Listed]:
        stream = LogStream(
            self._cluster,
            OffsetRange(
                topic=self._topic.name,
                partition=partition,
                topic_id=self._topic.topic_id,
                first=first,
                end=end,
            ),
            isolation=fetch.READ_COMMITTED,
            lister=self._lister,
        )
        return stream.listed()


def _born(
    buffer: Buffer, rows: Rows, position: int, end: int, *, most_unpacked: int
) -> Iterator[Listed]:
    """Lists records that no one has copied to where they are."""
    for part in listed(
        buffer, rows, position, end, loops=_STAMPS, most_unpacked=most_unpacked
    ):
        copied = part.places[:, to_columns.HIDDEN] > 0
        yield Listed(part.buffer, part.places[~copied], int(copied.sum()))


def _key(buffer: Buffer, place: Rows) -> bytes:
    at = int(place[to_columns.KEY_AT])
    return buffer[at : at + int(place[to_columns.KEY_SIZE])].tobytes()


def _written(clusters: tuple[Cluster, Cluster], row: list[int]) -> Written:
    return Written(
        cluster=clusters[row[_SIDE]].alias,
        partition=row[_PARTITION],
        offset=row[_OFFSET],
        time=row[_TIME],
    )
