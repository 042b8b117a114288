"""The index of an offset map, kept on the target: readers of the map begin behind it.

A map grows with each transaction for as long as the copies are kept: once it is days
old, it takes minutes to read. A service that follows it writes what it knows to the
standby topic now and then. Main types: `MapIndex`, which says of which map it is and
how far it reaches, and `IndexKeeper`, which writes it; `read` finds the last one. If
there is none, or none that fits, a reader takes the whole map, and answers the same.

Layout: kind `offset-map`; `docs/reference/formats.md` has the fields.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
import json
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID
import zlib

from mirror.errors import MALFORMED, ClusterError, CorruptBatchError
from mirror.offsets import runs, standby
from mirror.offsets.late import LateRuns
from mirror.offsets.progress import NO_ID
from mirror.offsets.standby import StandbyWriter
from mirror.offsets.track import Track

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.standby import Fields


KIND = "offset-map"
_MOST_ROWS = 32_768
"""Starts and runs in one index, over all partitions: a third of a megabyte."""
_LEAST_ROWS, _LARGEST_ROWS = 16, 4096
_PART_ROWS = 16_384
_TRACK_ROWS = 8
"""What else a partition takes."""
_PART_BYTES = 64 << 20
"""What a part takes at most when it is unpacked; far more than any has."""
_SECONDS = 60.0
_LEAST_GROWTH = 100_000
_GROWTH_OF_PARTITION = 20
"""Offsets of the map after which there is a new one, and more for each partition: to
read these takes longer than to read the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapIndex:
    """What there is to know about an offset map up to one of its offsets."""

    topic: str
    """The map's."""
    topic_id: UUID
    until: int
    epoch: int
    """Of the leader that showed the map up to there."""
    exactly_once: bool
    """Whether the flow is; if not, runs mean something else (see `Track.add`)."""
    tracks: Mapping[TopicPartition, Track]
    late: LateRuns

    def fields(self) -> tuple[dict[str, Fields], Fields]:
        """Its parts by name, and what the record of the look says."""
        parts = {
            str(number): {"until": self.until, "index": _packed(part)}
            for number, part in enumerate(self._parts())
        }
        return parts, {
            "topic": self.topic,
            "topic_id": self.topic_id.hex,
            "until": self.until,
            "epoch": self.epoch,
            "exactly_once": self.exactly_once,
            "parts": len(parts),
        }

    def _parts(self) -> Iterator[Fields]:
        epochs = sum(len(track.epochs) for track in self.tracks.values())
        most = _MOST_ROWS // max(2 * epochs, 1)  # starts, and runs
        most = min(max(most, _LEAST_ROWS), _LARGEST_ROWS)
        late = [
            base64.b64encode(value).decode()
            for block in self.late.blocks()
            for value in runs.encode([block])
        ]
        tracks: list[Fields] = []
        rows = 0
        for (topic, partition), track in self.tracks.items():
            tracks.append(
                {"topic": topic, "partition": partition, **track.document(most)}
            )
            rows += _TRACK_ROWS + sum(
                min(each.starts, most) + min(each.tail, most) for each in track.epochs
            )
            if rows >= _PART_ROWS:
                yield {"tracks": tracks, "late": late}
                tracks, late, rows = [], [], 0
        if tracks or late:
            yield {"tracks": tracks, "late": late}

    @classmethod
    def of(cls, look: Fields, parts: Sequence[Fields]) -> MapIndex:
        """The reverse of `fields`, with the parts in order. Raises one of
        `errors.MALFORMED`, or CorruptBatchError, if anything is damaged.
        """
        tracks: dict[TopicPartition, Track] = {}
        late = LateRuns()
        for part in parts:
            found = _unpacked(part["index"])
            for each in found["tracks"]:
                tracks[str(each["topic"]), int(each["partition"])] = Track.of(each)
            for value in found["late"]:
                for block in runs.decode(base64.b64decode(value, validate=True)):
                    late.add(block)
        return cls(
            topic=str(look["topic"]),
            topic_id=UUID(look["topic_id"]),
            until=int(look["until"]),
            epoch=int(look["epoch"]),
            exactly_once=bool(look["exactly_once"]),
            tracks=tracks,
            late=late,
        )


def read(
    target: Cluster, source_alias: str, topic: str, *, exactly_once: bool
) -> MapIndex | None:
    """The last index of this map that is there as a whole. None if there is none: why
    one that is there cannot be read is in the log.
    """
    try:
        kept = standby.read(target, source_alias, {KIND})
        look = None if kept is None else kept.looks.get(KIND)
        if kept is None or look is None:
            return None
        told, entries = look.fields, kept.entries[KIND]
        names = [str(number) for number in range(int(told["parts"]))]
        parts = [entries[name].fields for name in names if name in entries]
        if len(parts) < len(names) or {p["until"] for p in parts} != {told["until"]}:
            return None  # the next one is being written
        index = MapIndex.of(told, parts)
    except (ClusterError, CorruptBatchError, zlib.error, *MALFORMED) as error:
        import structlog  # noqa: PLC0415  takes a command a twentieth of a second

        where = standby.topic_name(source_alias)
        structlog.get_logger().warning(
            "the offset map is read whole, since its index cannot be read",
            cluster=target.alias, topic=where, reason=str(error),
        )  # fmt: skip
        return None
    fits = (index.topic, index.exactly_once) == (topic, exactly_once)
    return index if fits and index.topic_id != NO_ID else None


class IndexKeeper:
    """Writes the index of one flow's map. Not thread-safe."""

    def __init__(self, flow: FlowConfig) -> None:
        self._writer = StandbyWriter(flow, {KIND})
        self._at = -float("inf")

    def keep(self, target: Cluster, index: MapIndex) -> bool:
        """Write this one, if the map has grown enough since the last, or that was not
        of this map; returns whether it was written.

        Raises:
            MirrorError: it was not, or perhaps not as a whole.
        """
        at = time.time()
        if time.monotonic() < self._at + _SECONDS or index.topic_id == NO_ID:
            return False
        last = self._writer.known(target).looks.get(KIND)
        told: Fields = {} if last is None else last.fields
        before = told.get("until") if told.get("topic_id") == index.topic_id.hex else 0
        grown = index.until - (before if isinstance(before, int) else 0)
        least = _LEAST_GROWTH + _GROWTH_OF_PARTITION * len(index.tracks)
        if 0 <= grown < least:
            return False
        parts, look = index.fields()
        self._writer.keep(target, KIND, parts, at=at, look=look)
        self._at = time.monotonic()
        return True


def _packed(part: Fields) -> str:
    text = json.dumps(part, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(index: str) -> Any:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(base64.b64decode(index, validate=True), _PART_BYTES)
    if not unpacker.eof:
        raise ValueError("a part of the index is cut off, or too long")
    return json.loads(text)
