"""Measurements of a flow besides its partitions: times, transactions, Spark's view.

Main types: `TopicTimes` with its two `HistogramStatus`, `TransactionStatus`,
`SparkStatus`; each is a part of the flow's status. `driver/lease_totals` adds them up.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramStatus:
    """Copied records by seconds. Counters are since the service started."""

    counts: tuple[int, ...] = ()
    """Records per bucket; the last one is beyond the flow's last bound."""
    sum_seconds: float = 0.0
    """Of all these records together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTimes:
    """How long records of one topic took, each as the newest of its transaction."""

    topic: str
    """Its name on the source."""
    target_topic: str
    """The name of the copy."""
    latency: HistogramStatus
    """From a record's timestamp to its commit on the target."""
    age: HistogramStatus
    """From a record's timestamp to its fetch from the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStatus:
    """The transactions of one flow. Counters are since the service started."""

    committed: int = 0
    """How many were committed."""
    seconds: float = 0.0
    """Their total time."""
    aborted: int = 0
    """How many were aborted; their records are copied again."""
    takeovers: int = 0
    """How often a slot took over: at its start, and after any error."""
    handovers: int = 0
    """How often a slot copied on from one lease into the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStatus:
    """Spark's report on a flow's streaming query, whose micro-batches are leases."""

    batches: int = 0
    """Since the service started."""
    failures: int = 0
    """Queries that ended with an exception, since the service started."""
    began_at: float = 0.0
    """When the last micro-batch began, epoch seconds."""
    phases: tuple[tuple[str, float], ...] = ()
    """Seconds that each of its phases took, by Spark's names."""
