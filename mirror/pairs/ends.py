"""Ends of source partitions: the kind `ends` of the standby topic.

Main types: `PartitionEnd`, and `TopicEnds` of one topic. Layout of `ends/<topic>`:
`topic_id` (hex), and per partition, in their order, `ends`, `stable`, `starts`,
`epochs` and `since`; `silent` maps the partitions that did not answer to when they last
did, and `faulted`, if it is there, those that were set aside to the reason. Times are
epoch milliseconds; -1 is not known. All others are as of `looks/ends`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.errors import MALFORMED
from mirror.offsets import standby

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.offsets.standby import Fields, Standby, StandbyEntry

KIND = "ends"
NOT_KNOWN = -1
_FAULTED = "faulted"
_COLUMNS = ("ends", "stable", "starts", "epochs", "since")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnd:
    """What the source said about one partition. -1: not known."""

    end: int
    """The high watermark: the source has accepted all below it, and keeps it when a
    broker dies."""
    stable: int
    """The last stable offset; after it stands what is not decided yet. As `end` where
    everything is copied."""
    start: int = NOT_KNOWN
    """The first offset; looked up only where much is not copied."""
    epoch: int = NOT_KNOWN
    """Of the leader that said so."""
    since: float = NOT_KNOWN
    """All that the source accepted before this time was copied at the look, epoch
    seconds; see `sightings`. -1 as well if everything was."""
    at: float
    """When the source said so, epoch seconds; 0: never."""


UNHEARD = PartitionEnd(end=NOT_KNOWN, stable=NOT_KNOWN, at=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """The ends of one topic's partitions."""

    topic_id: str
    """Of the topic that the offsets belong to, in hex; zeros if brokers have none."""
    partitions: tuple[PartitionEnd, ...]

    def fields(
        self, looked_at: float, faulted: Mapping[int, str] = MappingProxyType({})
    ) -> Fields:
        """As in the topic, with a look at this time. `faulted`: why partitions were set
        aside.
        """
        each = self.partitions
        told: Fields = {
            "topic_id": self.topic_id,
            "ends": [p.end for p in each],
            "stable": [p.stable for p in each],
            "starts": [p.start for p in each],
            "epochs": [p.epoch for p in each],
            "since": [_ms(p.since) for p in each],
            "silent": {
                str(number): _ms(p.at)
                for number, p in enumerate(each)
                if p.at < looked_at
            },
        }
        if faulted:
            told[_FAULTED] = {str(n): why for n, why in sorted(faulted.items())}
        return told


def read(found: Standby, source_alias: str) -> dict[str, TopicEnds]:
    """The ends of all topics, by name.

    Raises:
        ClusterError: an entry is damaged.
    """
    standby_topic, looked_at = standby.topic_name(source_alias), at(found)
    return {
        name: decode(standby_topic, name, entry, looked_at)
        for name, entry in found.entries[KIND].items()
    }


def faults(found: Standby) -> dict[tuple[str, int], str]:
    """Why partitions were set aside at the last look, by topic and number."""
    return {
        (name, int(number)): str(why)
        for name, entry in found.entries[KIND].items()
        for number, why in entry.fields.get(_FAULTED, {}).items()
    }


def at(found: Standby) -> float:
    """When the service last looked at the ends, epoch seconds; 0 for never."""
    look = found.looks.get(KIND)
    return look.at if look is not None else 0.0


def decode(topic: str, name: str, entry: StandbyEntry, looked_at: float) -> TopicEnds:
    """The ends of one topic.

    Raises:
        ClusterError: the entry is damaged.
    """
    told = entry.fields
    try:
        silent = {int(n): int(ms) / 1000 for n, ms in told["silent"].items()}
        rows = zip(*(map(int, told[name]) for name in _COLUMNS), strict=True)
        return TopicEnds(
            topic_id=str(told["topic_id"]),
            partitions=tuple(
                PartitionEnd(
                    end=end,
                    stable=stable,
                    start=start,
                    epoch=epoch,
                    since=since / 1000 if since >= 0 else NOT_KNOWN,
                    at=silent.get(number, looked_at),
                )
                for number, (end, stable, start, epoch, since) in enumerate(rows)
            ),
        )
    except MALFORMED as error:
        raise standby.damaged(topic, f"{KIND}/{name}", error) from error


def _ms(seconds: float) -> int:
    return round(seconds * 1000) if seconds >= 0 else NOT_KNOWN
