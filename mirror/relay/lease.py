"""What the driver hands a task: the flow's plan, and a lease on some partitions.

Main types: `LeasePlan`, `Assignment`, `Lease`. Values only; they travel pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.clusters.topics import NO_ID

if TYPE_CHECKING:
    import uuid

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlan:
    """What a flow's slots have in common. Holds credentials: never printed."""

    flow: FlowConfig
    source: ClusterConfig = field(repr=False)
    target: ClusterConfig = field(repr=False)
    source_id: str
    target_id: str
    feeders: tuple[str, ...] = ()
    """The aliases of clusters that the configuration's flows copy to the source."""
    service: uuid.UUID = NO_ID
    """Whose counters its records count for: the flow's in one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One source partition and where its copy goes."""

    topic: str
    partition: int
    target_topic: str
    topic_id: str
    """The source topic's id in hex; all zeros where brokers have none."""
    paused_since: float = 0.0
    """Since when it shall rest, epoch seconds; 0: it shall be copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a slot may do, and for how long."""

    slot: int
    number: int
    """Counts up by one per lease of the flow's driver run."""
    generation: str
    """Names the driver run; the progress topic says which one may write."""
    seconds: float
    assignments: tuple[Assignment, ...]
