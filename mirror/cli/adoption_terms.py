"""The options of `mirror adopt` and the clusters it works on, for both directions.

Main types: `AdoptOptions`, the options, and `Taken`, one flow with its connections.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.adoption import activity, plan
from mirror.cli.output import complain
from mirror.clusters.cluster import Cluster
from mirror.driver.reset import matching
from mirror.errors import MirrorError
from mirror.metadata import topics
from mirror.offsets import mm2_records
from mirror.recovery import selection

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.metadata.topics import MirroredTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptOptions:
    """The options of the command."""

    offsets_topic: str | None
    connector: str
    topic: str
    most_records: int
    replace: bool
    although_written: bool
    dry_run: bool
    yes: bool

    def terms(self, flow: FlowConfig) -> plan.AdoptionTerms:
        return plan.AdoptionTerms(
            offsets_topic=self.offsets_topic or mm2_records.offsets_topic(flow.source),
            connector=self.connector,
            most_records=self.most_records,
        )

    def group(self, flow: FlowConfig) -> str | None:
        """Only in dedicated mode does a group of workers do nothing else."""
        return None if self.offsets_topic else activity.connect_group(flow.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One flow and the connections to its clusters."""

    flow: FlowConfig
    source: Cluster
    target: Cluster
    topics: tuple[MirroredTopic, ...]
    service_group: str | None
    """The consumer group in which mirror's instances meet."""
    selected: frozenset[str]
    """All topics that the flow copies, selected by `--topic` or not."""


def reach(
    stack: contextlib.ExitStack, chosen: MirrorConfig, flow: FlowConfig, pattern: str
) -> Taken:
    source, target = (
        stack.enter_context(
            contextlib.closing(Cluster(chosen.clusters[alias]).connect())
        )
        for alias in (flow.source, flow.target)
    )
    complain(*selection.require(chosen, flow.name, None, (source, target)))
    selected = topics.select(source, flow).topics
    found = matching(selected, pattern)
    if not found:
        raise MirrorError(
            f"flow {flow.name}: no topic that it copies matches {pattern}"
        )
    return Taken(
        flow=flow,
        source=source,
        target=target,
        topics=tuple(found),
        service_group=chosen.service.group,
        selected=frozenset(topic.topic for topic in selected),
    )


def check_activity(
    seen: activity.Activity, flow: FlowConfig, wishes: AdoptOptions
) -> None:
    try:
        activity.require_rest(seen, source_alias=flow.source)
    except MirrorError as error:
        if not wishes.dry_run:
            raise
        complain(f"warning: {error}")
