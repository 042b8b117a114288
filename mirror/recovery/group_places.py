"""Where the groups of a cluster go on when the pair's other cluster becomes active.

Main function: `places_of`. A group's offsets in topics that the flow copies lead to the
copies; those in copies that the reverse flow made lead back to the originals. Where
both flows write one topic the smaller answer counts: nothing is skipped. What further
flows write to it is taken for what producers write there, if the source answers. What
is left open, `unjoined` names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.clusters.admin import group_offsets, groups, topic_admin
from mirror.config import scopes
from mirror.offsets import answers, group_survey, runs
from mirror.policy.selection import GroupFilter
from mirror.status.wording import some
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.admin.groups import Group
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.group_survey import KnownMaps
    from mirror.offsets.groups import GroupPosition
    from mirror.offsets.offset_map import OffsetMap
    from mirror.offsets.translation import Exactness
    from mirror.recovery.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Where a group goes on in one partition."""

    came_from: str
    """The partition that it read, for people."""
    offset: int
    """The next one to read; -1 if it is not known."""
    exactness: Exactness
    metadata: str = ""
    along: GroupPosition | None = None
    """The same along the flow; None if it leads back to an original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlaces:
    """Of all groups that move."""

    places: Mapping[str, Mapping[TopicPartition, GroupPlace]]
    """By group and by partition of the cluster that is to be active."""
    on_target: Mapping[str, Group]
    """The groups that are there already."""
    failures: tuple[tuple[str, str], ...] = ()
    """Groups that could not be read, each with the reason."""
    unjoined: Mapping[str, Unjoined] = field(default_factory=dict)
    """Topics of the source in which groups may skip something."""

    @property
    def partial(self) -> tuple[str, ...]:
        """These, in words."""
        readers = Counter(
            topic
            for places in self.places.values()
            for topic in {each.along.topic for each in places.values() if each.along}
        )
        return tuple(
            f"{some(readers[topic], 'group')} in {topic}: {each.why}"
            for topic, each in self.unjoined.items()
        )

    @property
    def unknown(self) -> list[str]:
        """The places that are not known, named."""
        return [
            f"group {group} in {place.came_from}"
            for group, places in sorted(self.places.items())
            for place in places.values()
            if place.offset < 0
        ]


def places_of(stage: Stage, *, wait: bool = True) -> GroupPlaces:
    """Look at both clusters, or in a failover at the target alone: then what groups
    read in copies there is not known. Without `wait`, as far as that can be told while
    the flow writes: names are right, places are about so.

    Raises:
        ClusterError: a cluster does not answer, or the flow has never run.
    """
    flow, reverse, maps = stage.flow, stage.reverse, stage.maps
    target, source = stage.target, stage.source if stage.planned else None
    # Without the source, checkpoints answer, which other flows are not part of.
    ends = () if source is None else (flow.name, reverse.name)
    writers = Merging(stage.config.enabled_flows, pair=ends)
    found = group_survey.survey(flow, target, source, writers, maps=maps, wait=wait)
    moving = {
        each.group: each.places
        for each in found.groups
        if scopes.has_group(stage.pair, each.group)  # checkpoints are of all groups
    }
    # Groups that stand at one place share it: 1,000 groups have 100,000 places.
    along = {id(place): place for places in moving.values() for place in places}
    shared = {
        number: _along(place)
        for number, place in along.items()
        if scopes.has_topic(stage.pair, place.topic, reverse)
    }
    places: dict[str, dict[TopicPartition, GroupPlace]] = {
        group: {
            (each.target_topic, each.partition): shared[id(each)]
            for each in found_there
            if id(each) in shared
        }
        for group, found_there in moving.items()
    }
    read = {
        place.along.topic
        for those in places.values()
        for place in those.values()
        if place.along is not None
    }
    if source is not None:
        for group, others in back(reverse, source, target, maps, wait=wait).items():
            # Where one topic goes both ways, the survey has looked at both maps.
            places[group] = {**others, **places.get(group, {})}
    return GroupPlaces(
        places=places,
        on_target=found.on_target,
        failures=found.failures,
        unjoined=unjoined(writers, flow, reverse, read),
    )


def _along(place: GroupPosition) -> GroupPlace:
    return GroupPlace(
        came_from=f"{place.topic}-{place.partition}",
        offset=place.downstream,
        exactness=place.translated.exactness,
        metadata=place.metadata,
        along=place,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjoined:
    """Why groups may skip something of a copy."""

    why: str
    both_ways: bool
    """Whether the pair copies the topic both ways: then a switch, which asks both
    clusters, skips nothing."""


def unjoined(
    writers: Merging, flow: FlowConfig, reverse: FlowConfig, topics: Iterable[str]
) -> dict[str, Unjoined]:
    """Those of the flow's topics whose copies further flows write, or lead to, so that
    the flow's own map does not place groups among all of their records. `writers` knows
    the pair if both clusters are asked: then only those are left that the pair does not
    copy both ways.
    """
    ends = {flow.name, reverse.name}
    found = {}
    for topic in sorted(set(topics)):
        if writers.is_alone(flow, topic) or writers.back(flow, topic) is not None:
            continue
        copy = flow.replication_policy.target_topic(topic)
        theirs = {e.flow.name for e in writers.contributors(flow.target, copy)}
        back = writers.contributors(flow.source, topic)
        others = sorted((theirs | {each.flow.name for each in back}) - ends)
        found[topic] = Unjoined(
            why=f"{copy} is also written by {' and '.join(others) or reverse.name}, "
            f"and only what {flow.name} has copied tells where groups stand in it: "
            f"what else came to {flow.target} may be skipped",
            both_ways=reverse.name in {each.flow.name for each in back},
        )
    return found


def back(
    reverse: FlowConfig,
    source: Cluster,
    target: Cluster,
    maps: KnownMaps,
    *,
    wait: bool,
) -> dict[str, dict[TopicPartition, GroupPlace]]:
    """Groups of `source` that read what the reverse flow copied there, by partition of
    its original, which is on `target`. Raises as `places_of`.
    """
    if source.topic(runs.topic_name(reverse.source, reverse.separator)) is None:
        return {}  # it never ran
    known = group_survey.known_of(reverse, source, maps, wait=wait)
    copies = {topic for topic, _ in known.origins()}
    wanted = GroupFilter(include=reverse.groups, exclude=reverse.groups_exclude)
    listed = [name for name in groups.list_groups(source) if wanted.matches(name)]
    committed = {
        group: offsets
        for group, offsets in group_offsets.fetch(source, listed).groups.items()
        if any(topic in copies for topic, _ in offsets)
    }
    found = answers.of_groups(reverse, known, source, committed, reverse=True)
    first = _unread(
        known,
        target,
        {(e.other_topic, e.partition) for those in found.values() for e in those},
    )
    return {
        group: {
            (each.other_topic, each.partition): GroupPlace(
                came_from=f"{each.topic}-{each.partition}",
                offset=first.get(
                    (each.other_topic, each.partition), each.translated.offset
                ),
                exactness=each.translated.exactness,
                metadata=offsets[each.topic, each.partition].metadata
                if (each.topic, each.partition) in offsets
                else "",
            )
            for each in found[group]
        }
        for group, offsets in committed.items()
    }


def _unread(
    known: OffsetMap, target: Cluster, originals: set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where those originals begin whose topics were made again, and of which nothing
    was copied since, so that no group has read them in copies.
    """
    there = target.topics({topic for topic, _ in originals})
    unread = [key for key in originals if not known.is_of(*key, there[key[0]].topic_id)]
    return topic_admin.list_offsets(target, unread, timestamp=topic_admin.EARLIEST)
