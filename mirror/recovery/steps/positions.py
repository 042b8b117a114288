"""Steps 5 and 6: consumers stop, and groups go on at the same record over there.

`places_of` says where the groups of a cluster go on. A group's offsets in topics that
the flow copies lead to the copies; those in copies that the reverse flow made lead back
to the originals. Where both flows write one topic the smaller answer counts: nothing is
skipped. What further flows write to it is taken for what producers write there, if the
source answers. What is left open, `skip_risks` names.

Consumers stop where they were, so that their positions stand still: a hook stops them,
or people do. A group stands still if it has no members and no open transaction is about
to set its offsets: such a transaction may be of a producer that only writes elsewhere.

Offsets are set, not only moved forward: what a group once read in a test there does not
count. They are read back afterwards. Without the source they come from the last
checkpoints, brought up to date by the map.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror.clusters import codes
from mirror.clusters.admin import group_offsets, groups, topic_admin
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.config import scopes
from mirror.offsets import checkpoints, group_survey, progress, runs
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.offsets.groups import metadata_of_more, not_covered
from mirror.policy.selection import GroupFilter
from mirror.recovery import hooks
from mirror.recovery.stage import Done, Stage, StepError
from mirror.status.wording import named, some
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.clusters.admin.groups import Group
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.group_survey import KnownMaps
    from mirror.offsets.groups import GroupPosition
    from mirror.offsets.translation import Exactness, OffsetMap


SUMS = "sums"
STANDING = "standing"
PARTIAL = "partial"
"""What the step notes."""


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
    skip_risks: Mapping[str, SkipRisk] = field(default_factory=dict)
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
            for topic, each in self.skip_risks.items()
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
        skip_risks=skip_risks(writers, flow, reverse, read),
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
class SkipRisk:
    """Why groups may skip something of a copy."""

    why: str
    both_ways: bool
    """Whether the pair copies the topic both ways: then a switch, which asks both
    clusters, skips nothing."""


def skip_risks(
    writers: Merging, flow: FlowConfig, reverse: FlowConfig, topics: Iterable[str]
) -> dict[str, SkipRisk]:
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
        found[topic] = SkipRisk(
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
    listed = {n: g for n, g in groups.list_groups(source).items() if wanted.matches(n)}
    left_out = not_covered(listed, source, target)
    read = group_offsets.fetch(source, listed.keys() - {*left_out})
    committed = {
        group: offsets
        for group, offsets in read.groups.items()
        if any(topic in copies for topic, _ in offsets)
    }
    found = group_survey.of_groups(reverse, known, source, committed, reverse=True)
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
                else metadata_of_more(offsets),
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


# ---- step 5: consumers stop ----


def stop_consumers(stage: Stage) -> Done:
    if not stage.planned:
        called, warnings = hooks.attempt(stage, hooks.STOP_CONSUMERS)
        text = "; ".join(filter(None, (called, stage.without_source)))
        return Done(text=text, warnings=warnings)
    called = hooks.call(stage, hooks.STOP_CONSUMERS)
    moving = places_of(stage, wait=False).places
    todo = f"; although {called}" if called else "; stop them"

    def left() -> str:
        text = busy(stage, moving)
        return text + todo if text else ""

    stage.wait(left, every=0.2)
    empty = f"{some(len(moving), 'group')} empty on {stage.flow.source}"
    return Done(text="; ".join(filter(None, (called, empty))))


def busy(stage: Stage, moving: Collection[str]) -> str:
    """The groups on the source that may still change their offsets, in words."""
    source, flow = stage.source, stage.flow
    listed = groups.list_groups(source)
    where = f"with members on {source.alias}"
    left = sorted(n for n in moving if n in listed and not listed[n].idle)
    if left:
        return f"{some(len(left), 'group')} {where}: {named(left)}"
    # One whose first offsets are not committed yet does not move so far.
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    matching = [name for name in listed if wanted.matches(name)]
    found = group_offsets.fetch(source, matching, require_stable=True)
    back = stage.reverse.replication_policy
    open_in = sorted(
        {
            group
            for group, topic, _ in found.unstable
            if group in moving
            or flow.topic_filter.matches(topic)
            or back.upstream_topic(topic)
        }
    )
    if open_in:
        return (
            f"{some(len(open_in), 'group')} with offsets in open transactions on "
            f"{source.alias}: {named(open_in)}"
        )
    return ""


# ---- step 6: positions are set ----


def set_positions(stage: Stage) -> Done:
    found = places_of(stage)
    if found.failures:
        raise StepError(_named(found.failures))
    unknown = found.unknown
    if unknown and stage.planned:
        raise StepError(
            f"the position of {unknown[0]} on {stage.flow.target} is not known, nor of "
            f"{len(unknown) - 1} more: `mirror group describe` shows them; leave the "
            "group out with groups_exclude, or set its offsets there afterwards"
        )
    wanted = _wanted(found)
    back, offset_sums = _apply(stage, wanted)
    exact = Counter(
        str(place.exactness)
        for places in found.places.values()
        for place in places.values()
    )
    partitions = sum(map(len, wanted.values()))
    counts = ", ".join(f"{count} {name}" for name, count in exact.most_common())
    return Done(
        text=f"{some(len(wanted), 'group')}, {some(partitions, 'partition')} set on "
        f"{stage.flow.target} and read back: {counts or 'none'}",
        notes={
            "groups": len(wanted),
            "exactness": dict(exact),
            "moved_back": back,
            SUMS: offset_sums,
            STANDING: group_ages(stage, found),
            PARTIAL: list(found.partial),
        },
        warnings=tuple(
            f"{name}: its position is not known; it begins where its "
            "auto.offset.reset says"
            for name in unknown
        ),
    )


def require_settled(stage: Stage) -> None:
    """Set again what groups have committed since; from here on they stand still.

    Raises:
        StepError: a group came back, or an offset cannot be set.
    """
    found = places_of(stage)
    if stage.planned and (found.failures or found.unknown):
        problems = (_named(found.failures), named(found.unknown))
        raise StepError(f"no longer known: {', '.join(filter(None, problems))}")
    _apply(stage, _wanted(found))
    if not stage.planned:
        return
    if left := busy(stage, found.places):
        raise StepError(f"{left}: they came back after the groups were empty")


def _named(failures: Iterable[tuple[str, str]]) -> str:
    return named([f"{group}: {why}" for group, why in failures])


def _wanted(found: GroupPlaces) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    return {
        group: {
            key: CommittedOffset(place.offset, place.metadata)
            for key, place in places.items()
            if place.offset >= 0
        }
        for group, places in found.places.items()
    }


def _apply(
    stage: Stage, wanted: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> tuple[list[str], dict[str, int]]:
    """Set offsets and read them back; returns what moved back, in words, and what
    `outcome.not_arrived` compares with later.

    Raises:
        StepError: they are not as they should be.
    """
    target = stage.target
    there = group_offsets.fetch(target, wanted)
    steps = {
        group: changed
        for group, places in wanted.items()
        if (
            changed := {
                key: value
                for key, value in places.items()
                if there.groups.get(group, {}).get(key) != value
            }
        )
    }
    back = [
        f"{group} in {key[0]}-{key[1]} from {old.offset} to {value.offset}"
        for group, changed in steps.items()
        for key, value in changed.items()
        if (old := there.groups.get(group, {}).get(key)) and old.offset > value.offset
    ]
    now = there
    if steps:
        stage.note({})
        refused = group_offsets.commit(target, steps)
        for group, answers in refused.items():
            key, code = next(iter(answers.items()))
            raise StepError(
                f"{target.alias} refuses to set group {group} in {key[0]}-{key[1]}: "
                f"{codes.name_of(code)}"
            )
        now = group_offsets.fetch(target, wanted)
    for group, places in wanted.items():
        for key, value in places.items():
            found = now.groups.get(group, {}).get(key)
            if found is None or found.offset != value.offset:
                raise StepError(
                    f"group {group} in {key[0]}-{key[1]} on {target.alias} is at "
                    f"{found.offset if found else 'no offset'}, not at {value.offset}: "
                    "something else sets it"
                )
    return back, sums(now.groups)


# ---- what a failover tells of groups ----


def group_ages(stage: Stage, found: GroupPlaces) -> list[list[Any]]:
    """Without the source: of each group its name, the age of its position in seconds
    when the source was last seen, how many records it reads again at most, and in how
    many partitions that is not known.

    The position in a copy is from the group's last checkpoint; what it committed after
    that, it reads again, and it cannot have read more than was copied. In topics that
    the flow back copies it is where the group stopped here, whatever it read of their
    copies since. Where it has no position, `auto.offset.reset` decides. -1: not known.

    Raises:
        ClusterError: the target does not answer.
    """
    if stage.planned:
        return []
    flow, target = stage.flow, stage.target
    seen = float(stage.notes["assess"].get("as_of", 0.0))
    written = checkpoints.times(
        target, checkpoints_topic(flow.source, flow.mm2_separator)
    )
    copies = {
        (flow.replication_policy.target_topic(topic), number)
        for topic, number in progress.read(
            target, progress.topic_name(flow.source), committed=False
        ).positions
    }
    known = {
        group: offsets | {k: p.offset for k, p in places.items() if p.offset >= 0}
        for group, offsets in _offsets(stage, found).items()
        if (places := found.places.get(group, {})) or offsets
    }
    topics = target.topics()  # somebody may have deleted a copy
    keys = {key for key in copies.union(*known.values()) if key[0] in topics}
    first, ends = (
        topic_admin.list_offsets(target, keys, timestamp=at)
        for at in (topic_admin.EARLIEST, topic_admin.LATEST)
    )
    filled = {key for key in copies if ends.get(key, 0) > first.get(key, 0)}
    rows: list[list[Any]] = []
    for group, offsets in sorted(known.items()):
        again = sum(max(ends[k] - at, 0) for k, at in offsets.items() if k in ends)
        unknown = len((filled | found.places.get(group, {}).keys()) - offsets.keys())
        age = max(seen - written[group], 0.0) if seen and group in written else -1.0
        if group in found.places or again or unknown:
            rows.append([group, round(age, 3), again, unknown])
    return rows


def _offsets(stage: Stage, found: GroupPlaces) -> dict[str, dict[tuple[str, int], int]]:
    """Where the pair's groups are on the target, in the topics of either flow."""
    flow, back = stage.flow, stage.reverse
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    names = {
        name
        for name in found.on_target
        if wanted.matches(name) and scopes.has_group(stage.pair, name)
    } | found.places.keys()
    upstream = flow.replication_policy.upstream_topic
    return {
        group: {
            key: committed.offset
            for key, committed in offsets.items()
            if back.topic_filter.matches(key[0]) or upstream(key[0])
        }
        for group, offsets in group_offsets.fetch(stage.target, names).groups.items()
    }


def sums(
    groups_offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
) -> dict[str, int]:
    """By group, the sum of its offsets: it changes when the group goes on."""
    return {
        group: sum(place.offset for place in places.values())
        for group, places in groups_offsets.items()
    }
