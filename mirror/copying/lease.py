"""What the driver hands to a task: the flow's plan, and a lease on some partitions.

Main types: `LeasePlan`, `Assignment`, `Lease`. They are plain values and travel pickled
or as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.clusters.topics import NO_ID

if TYPE_CHECKING:
    from collections.abc import Mapping
    import uuid

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlan:
    """What all slots of a flow share. Holds credentials, so never print it."""

    flow: FlowConfig
    source: ClusterConfig = field(repr=False)
    target: ClusterConfig = field(repr=False)
    source_id: str
    target_id: str
    feeders: tuple[str, ...] = ()
    """Aliases of the clusters that the configured flows copy to the source."""
    appends: bool = True
    """Whether a partition without progress is copied although its copy has records."""
    service: uuid.UUID = NO_ID
    """Identifies the service process whose counters the flow's records add to."""
    slot_ids: Mapping[int, str] = field(default_factory=dict)
    """Producer ids of slots, of this run and of earlier ones, as the driver found them,
    with their transactional ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One source partition and where its copy goes."""

    topic: str
    partition: int
    target_topic: str
    topic_id: str
    """The source topic's id in hex; all zeros where brokers have none."""
    paused_since: float = 0.0
    """When it was paused, epoch seconds; 0: it is not paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a slot may do, and for how long."""

    slot: int
    number: int
    """Increases by one with each lease of the flow's driver run."""
    generation: str
    """Identifies the driver run; the progress topic says which run may write."""
    seconds: float
    assignments: tuple[Assignment, ...]
    bytes_per_second: float = 0.0
    """How much it may read; 0: without a limit."""
    takes_turns: bool = False
    """Whether the rate is for the time of this lease alone: others read afterwards."""
    credit: bool = False
    """Whether the slot may copy on after its report, until its next lease begins."""

    def follows(self, last: Lease) -> bool:
        """Whether it is the next one of the same run."""
        return (last.generation, last.number + 1) == (self.generation, self.number)
