"""What a failover would lose, as values: a part of the status.

Main types: `PartitionRisk`, `TopicRisk`, and `RiskStatus` of a flow. -1 means not
known. `recovery.risk` computes them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRisk:
    """What is not copied of one source partition."""

    topic: str
    """Its name on the source."""
    partition: int
    """Its number."""
    records: int
    """Offsets that the source accepted and that are not copied: at most as many
    records, since some may be transaction markers, or compacted away."""
    open: int = 0
    """How many of them stand behind the beginning of an open transaction."""
    bytes: int
    """Estimated from the records that were copied of the partition, or of its topic."""
    seconds: float
    """How long before `at` the oldest of them was accepted, at most."""
    at: float
    """When the source last said where the partition ends, epoch seconds; 0: never."""
    reason: str = ""
    """Why the records are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRisk:
    """The sum over a topic's partitions, and their largest `seconds`."""

    topic: str
    """Its name on the source."""
    records: int
    """As of its partitions."""
    bytes: int
    """-1: no estimate for some of its records."""
    seconds: float
    """The largest of its partitions."""
    unknown: int = 0
    """Partitions of which nothing is known; the sums leave them out."""
    at: float = 0.0
    """As of when, epoch seconds: the earliest of the others' times; 0: there are
    none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskStatus:
    """The sum over a flow's topics, and their largest `seconds`."""

    at: float = 0.0
    """As of when, epoch seconds: the earliest of the topics' times; 0: never looked.
    What the source accepted later is not known."""
    records: int = 0
    """Over all topics."""
    bytes: int = 0
    """Over all topics; -1: no estimate for some."""
    seconds: float = 0.0
    """The largest of its topics; -1: not known."""
    unknown: int = 0
    """Partitions of which nothing is known."""
    topics: tuple[TopicRisk, ...] = ()
    """Each topic of the flow."""
    partitions: tuple[PartitionRisk, ...] = ()
    """Only those that are not completely copied, not known, or did not answer."""
