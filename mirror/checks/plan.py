"""What a run would create and change on the clusters, without doing any of it.

Main function: `plan`, which returns a frozen `RunPlan`. It follows the service's rules
(`topics.topics`, `topics.configs`, `topics.acls`, `offsets.checkpoints`) and goes
on until nothing new comes of it: what one flow makes, the next one may copy.
Records are not planned, nor what depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mirror.checks.schema_writes import SchemaToWrite, schema_writes
from mirror.clusters import codes
from mirror.clusters.admin.configs import Origin
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.admin.topic_admin import NewTopic
from mirror.clusters.reach import Reach
from mirror.config import own_topics, scopes
from mirror.errors import ClusterError
from mirror.offsets import checkpoints, group_offset_sync, progress
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.offsets.group_survey import copies, known_of
from mirror.offsets.groups import look
from mirror.offsets.joint import JointMap, MergedGroups, problems
from mirror.offsets.runs import topic_name
from mirror.pairs.flow_roles import flow_roles
from mirror.policy.selection import GroupFilter
from mirror.service import same_offsets
from mirror.status.states import AclState
from mirror.status.wording import named, some
from mirror.topics import acls, configs, guarding, topics
from mirror.topics.merging import Merging
from mirror.topics.sides import Foreseen, Live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirror.clusters.admin.acls import Binding
    from mirror.clusters.admin.configs import Config
    from mirror.clusters.cluster import Cluster
    from mirror.config.own_topics import OwnTopic
    from mirror.config.schema import FlowConfig, MirrorConfig


COPY = "copy"
"""The purpose of a copy; of other topics, it says what they are for."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicToCreate:
    """A topic that is missing."""

    cluster: str
    topic: str
    flow: str
    """The first flow that would create it."""
    purpose: str
    """`COPY`, or what an internal topic is for."""
    partitions: int
    replication_factor: int
    """-1: the brokers' default."""
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicToGrow:
    """A copy with fewer partitions than its topic."""

    cluster: str
    topic: str
    flow: str
    partitions: int
    then: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ConfigToChange:
    """A config of an existing copy, or of one of mirror's own topics."""

    cluster: str
    topic: str
    config: str
    flow: str
    now: str | None
    """None: not set on the topic itself."""
    then: str | None
    """None: no longer set on the topic itself."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AclToChange:
    """An ACL of a copy."""

    cluster: str
    flow: str
    change: str
    """`add` or `remove`."""
    binding: Binding


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicOffsets:
    """Which offsets a copy gets, in a flow with `offsets: same`."""

    cluster: str
    topic: str
    flow: str
    offsets: str
    """`same`, `translated`, or empty: it is not copied until that is known."""
    reason: str = ""
    """Why they are not the same, or what that costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything that a run would do besides copying records."""

    create: tuple[TopicToCreate, ...] = ()
    grow: tuple[TopicToGrow, ...] = ()
    configs: tuple[ConfigToChange, ...] = ()
    acls: tuple[AclToChange, ...] = ()
    schemas: tuple[SchemaToWrite, ...] = ()
    """In the order of writing."""
    groups: tuple[GroupMove, ...] = ()
    offsets: tuple[TopicOffsets, ...] = ()
    notes: tuple[str, ...] = ()
    """What is not known yet, and why."""
    problems: tuple[str, ...] = ()
    """What the run could not do, or would leave out, each with its reason."""
    failures: tuple[str, ...] = ()
    """Clusters that do not answer: what depends on them is not in the plan."""

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.grow or self.configs or self.acls
                    or self.schemas or self.groups)  # fmt: skip


def plan(config: MirrorConfig) -> RunPlan:
    """Ask the clusters of the enabled flows; failures are returned, never raised."""
    with Reach(config.clusters, client_id="mirror.plan") as reach:
        return Planner(config, reach).plan()


class Planner:
    """The clusters as they will be, and the flows that make them so."""

    def __init__(self, config: MirrorConfig, reach: Callable[[str], Cluster]) -> None:
        """`reach` gives a cluster by its alias, or raises `ClusterError`."""
        self._reach = reach
        self._config = config
        roles = flow_roles(config, reach)
        flows = tuple(each for each in roles.applying if each.name not in roles.unfed)
        self.unsure = roles.notes
        self._roles = roles
        self.merging = Merging(flows)
        # Schemas belong to subjects, which pairs with names do not share out.
        self._order = tuple(e for e in roles.flows if e.name not in roles.unfed)
        self._sides: dict[str, Foreseen] = {}
        self._by: dict[tuple[str, ...], tuple[str, str]] = {}
        """Flow and purpose of each decision; the first flow's count."""
        self._problems: dict[str, tuple[str, ...]] = {}
        self._failures: dict[str, None] = {}
        self._notes: dict[str, None] = dict.fromkeys(self.unsure)
        now = {flow.name: flow for flow in flows}
        enabled = [f for f in config.flows.values() if f.enabled]
        self._flows = [now[flow.name] for flow in enabled if flow.name in now]
        self.resting = tuple(
            f"flow {flow.name} rests: the active cluster feeds {flow.target}"
            for flow in enabled
            if flow.name not in now
        )
        self._notes |= dict.fromkeys(self.resting)
        self._notes |= dict.fromkeys(
            f"flow {flow.name} unpacks all batches to find ids of schemas (schemas: "
            "require), also those that provenance: false would copy byte for byte"
            for flow in self._flows
            if flow.requires_schemas and not flow.provenance
        )

    def plan(self) -> RunPlan:
        flows = [flow for flow in self._flows if self._answers(flow)]
        moved = True
        while moved:
            moved = sum(self._step(flow) for flow in flows) > 0
        added = self._acls(flows)
        written = self._schemas(flows)
        moves = self._groups(flows)
        offsets = self._offsets(flows)
        return RunPlan(
            offsets=tuple(sorted(offsets)),
            create=tuple(sorted(self._created())),
            grow=tuple(sorted(self._grown())),
            configs=tuple(sorted(self._altered(), key=_by_name)),
            acls=tuple(sorted(added)),
            schemas=written,
            groups=tuple(sorted(moves)),
            notes=tuple(self._notes),
            problems=tuple(
                dict.fromkeys(
                    f"flow {flow}: {text}"
                    for flow, texts in self._problems.items()
                    for text in texts
                )
            ),
            failures=tuple(self._failures),
        )

    def _answers(self, flow: FlowConfig) -> bool:
        try:
            source, target = self._reach(flow.source), self._reach(flow.target)
        except ClusterError as error:
            self._failures[f"flow {flow.name}: {error}"] = None
            return False
        if source.cluster_id == target.cluster_id:
            self._failures[
                f"flow {flow.name}: {flow.source} and {flow.target} are the same "
                f"cluster ({source.cluster_id})"
            ] = None
            return False
        return True

    def side(self, alias: str) -> Foreseen:
        """A cluster as it will be after the decisions so far."""
        if alias not in self._sides:
            self._sides[alias] = Foreseen(Live(self._reach(alias)))
        return self._sides[alias]

    def _step(self, flow: FlowConfig) -> bool:
        """Decide what a flow does in that state; whether it does anything new."""
        try:
            return self._made_internal(flow) | self._made_copies(flow)
        except ClusterError as error:
            self._failures[f"flow {flow.name}: {error}"] = None
            return False

    def _made_internal(self, flow: FlowConfig) -> bool:
        moved = False
        for each in own_topics.of_run(flow):
            moved |= self._make(flow, each)
        every = own_topics.of_flow(self._config, flow)
        for side in (self.side(flow.source), self.side(flow.target)):
            names = [each.name for each in every if each.alias == side.alias]
            side.topics(names), side.configs(names)  # all with one request each
        for each in every:
            moved |= self._correct(flow, each)
        return moved

    def _make(self, flow: FlowConfig, own: OwnTopic) -> bool:
        side = self.side(own.alias)
        if side.topics([own.name])[own.name].error != codes.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        side.create(
            NewTopic(
                name=own.name,
                partitions=1,
                replication_factor=own.replicas,
                configs=own.configs,
            )
        )
        self._by[own.alias, own.name] = (flow.name, own.kind.purpose)
        return True

    def _correct(self, flow: FlowConfig, own: OwnTopic) -> bool:
        """An existing one, with the configs that it should have."""
        side = self.side(own.alias)
        there, found = side.topics([own.name])[own.name], side.configs([own.name])
        values = {key: each.value for key, each in found[own.name].configs.items()}
        if there.error or not values or own.name in side.created:
            return False
        wrong = guarding.wrong(own, values, replicas=there.replication_factor)
        side.alter(own.name, {each.config: each.then for each in wrong})
        for each in wrong:
            self._by.setdefault((own.alias, own.name, each.config), (flow.name, ""))
        return bool(wrong)

    def _made_copies(self, flow: FlowConfig) -> bool:
        source, target = self.side(flow.source), self.side(flow.target)
        planned = topics.plan(source, target, flow)
        models = source.configs(planned.like.values())
        for name, new in planned.create.items():
            target.create(new, models[planned.like[name]].configs)
            self._by[flow.target, name] = (flow.name, COPY)
        for name, count in planned.grow.items():
            target.grow(name, count)
            self._by.setdefault((flow.target, name), (flow.name, COPY))
        problems = planned.problems
        changes: configs.Changes = {}
        if flow.sync_topic_configs:
            drift, changes = configs.plan(source, target, flow, self.merging, self.side)
            problems += tuple(each.problem for each in drift if each.problem)
            for name, change in changes.items():
                target.alter(name, change)
                for key in change:
                    self._by.setdefault((flow.target, name, key), (flow.name, ""))
        self._problems[flow.name] = tuple(dict.fromkeys(problems))
        return bool(planned.create or planned.grow or changes)

    def _created(self) -> list[TopicToCreate]:
        return [
            TopicToCreate(
                cluster=alias,
                topic=name,
                flow=self._by[alias, name][0],
                purpose=self._by[alias, name][1],
                partitions=new.partitions,
                replication_factor=new.replication_factor,
                configs=tuple(sorted(new.configs.items())),
            )
            for alias, side in self._sides.items()
            for name, new in side.created.items()
        ]

    def _grown(self) -> list[TopicToGrow]:
        return [
            TopicToGrow(
                cluster=alias,
                topic=name,
                flow=self._by[alias, name][0],
                partitions=side.present(name)[0].partitions,
                then=count,
            )
            for alias, side in self._sides.items()
            for name, count in side.grown.items()
        ]

    def _altered(self) -> list[ConfigToChange]:
        found = []
        for alias, side in self._sides.items():
            for name, changes in side.altered.items():
                present = side.present(name)[1]
                found += [
                    ConfigToChange(
                        cluster=alias,
                        topic=name,
                        config=key,
                        flow=self._by[alias, name, key][0],
                        now=_override(present.get(key)),
                        then=value,
                    )
                    for key, value in changes.items()
                ]
        return found

    def _offsets(self, flows: Sequence[FlowConfig]) -> list[TopicOffsets]:
        """Which copies get the source's offsets; also in words."""
        found = []
        for flow in flows:
            if flow.offsets != "same":
                continue
            try:
                source, target = self._reach(flow.source), self._reach(flow.target)
                name = progress.topic_name(flow.source)
                judged = same_offsets.judge(
                    flow, self._config, source, target,
                    topics.select(source, flow).topics,
                    known=progress.read_existing(target, name), compared={},
                )  # fmt: skip
            except ClusterError as error:
                self._failures[f"flow {flow.name}: {error}"] = None
                continue
            if (judged.notes or judged.able) and flow.fill == "visible":
                self._notes[
                    f"flow {flow.name}: consumers of these copies see a record without "
                    "a value where the source has none at an offset (fill: visible)"
                ] = None
            told = [(name, "same", "") for name in judged.notes]
            told += [(n, "same", _padding(each)) for n, each in judged.able.items()]
            told += [(n, "translated", why) for n, why in judged.translated.items()]
            told += [(n, "", why) for n, why in judged.waiting.items()]
            found += [
                TopicOffsets(
                    cluster=flow.target,
                    topic=flow.replication_policy.target_topic(name),
                    flow=flow.name,
                    offsets=offsets,
                    reason=reason,
                )
                for name, offsets, reason in told
            ]
        self._notes |= dict.fromkeys(_in_words(found))
        return found

    def _acls(self, flows: Sequence[FlowConfig]) -> list[AclToChange]:
        """One flow after the other: what two of them would add is added once."""
        found: dict[tuple[str, str, Binding], AclToChange] = {}
        for flow in flows:
            if not flow.sync_topic_acls:
                continue
            try:
                result = acls.look(
                    self._reach(flow.source),
                    self._reach(flow.target),
                    flow,
                    rests=partial(
                        scopes.left_alone, self._config.flows[flow.name], flow
                    ),
                )
            except ClusterError as error:
                self._failures[f"flow {flow.name}: {error}"] = None
                continue
            if result.state is AclState.NOT_PERMITTED:
                known = self._problems.get(flow.name, ())
                text = f"ACLs are not synced: {result.reason}"
                self._problems[flow.name] = (*known, text)
            if result.added:
                self._make(flow, own_topics.ACL_CLAIMS.of(flow))
            for change, bindings in (("add", result.added), ("remove", result.removed)):
                for binding in bindings:
                    found.setdefault(
                        (flow.target, change, binding),
                        AclToChange(
                            cluster=flow.target,
                            flow=flow.name,
                            change=change,
                            binding=binding,
                        ),
                    )
        return list(found.values())

    def _schemas(self, flows: Sequence[FlowConfig]) -> tuple[SchemaToWrite, ...]:
        answering = {flow.name for flow in flows} - self._roles.resting.keys()
        order = [flow for flow in self._order if flow.name in answering]
        found = schema_writes(self._config, order, self._reach)
        self._failures |= dict.fromkeys(found.failures)
        for name, texts in found.problems.items():
            self._problems[name] = (*self._problems.get(name, ()), *texts)
        for flow in flows:
            if any(each.flow == flow.name for each in found.writes):
                self._make(flow, own_topics.SCHEMA_CLAIMS.of(flow))
        return found.writes

    def _groups(self, flows: Sequence[FlowConfig]) -> list[GroupMove]:
        found: list[GroupMove] = []
        for flow in flows:
            if not flow.sync_group_offsets:
                continue
            try:
                moves, notes = group_moves(
                    flow,
                    self.merging,
                    self._reach(flow.source),
                    self._reach(flow.target),
                )
            except ClusterError as error:
                self._failures[f"flow {flow.name}: {error}"] = None
                continue
            found += moves
            self._notes.update(dict.fromkeys(notes))
        return found


def _override(config: Config | None) -> str | None:
    """Its value, where it is set on the topic itself."""
    return config.value if config and config.origin is Origin.TOPIC else None


def _by_name(each: ConfigToChange) -> tuple[str, str, str]:
    return each.cluster, each.topic, each.config


def summary(found: RunPlan) -> Mapping[str, int]:
    """How many of each kind, without the zeros."""
    counts = {
        "topics to create": len(found.create),
        "topics to grow": len(found.grow),
        "configs to change": len(found.configs),
        "ACLs to change": len(found.acls),
        "schemas to write": len(found.schemas),
        "group offsets to set": len(found.groups),
    }
    return {what: count for what, count in counts.items() if count}


# ---- the group offsets that the service would set on the target now ----
#
# Main function: `group_moves`. It takes the same steps as the service's job: it
# reads the groups' offsets on the source, translates them with the current offset
# map, and keeps those that are ahead of idle groups' offsets on the target.


_GROUPS = "__consumer_offsets"
NOWHERE = CommittedOffset(-1)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GroupMove:
    """One offset of one group."""

    cluster: str
    flow: str
    group: str
    topic: str
    partition: int
    now: int
    """-1: none."""
    then: int


def group_moves(
    flow: FlowConfig, merging: Merging, source: Cluster, target: Cluster
) -> tuple[list[GroupMove], list[str]]:
    """The offsets, and notes about them.

    Raises:
        ClusterError: a cluster does not answer.
    """
    topic = topic_name(flow.source, flow.separator)
    if target.topic(topic) is None:
        return [], [f"flow {flow.name}: group offsets follow once records are copied"]
    copied = copies(flow, source, merging)
    joint = JointMap(flow, known_of(flow, target), source, target, patient=True)
    joint.refresh(copied)
    standing = look(
        source,
        target,
        GroupFilter(include=flow.groups, exclude=flow.groups_exclude),
        copied,
        joint,
    )
    before = checkpoints.read(
        target, checkpoints_topic(flow.source, flow.mm2_separator)
    )
    _, known = checkpoints.decide(before, standing)
    settable = MergedGroups(target, cautious=False).settable(
        known, standing, copied, joint
    )
    wanted = settable.known
    # Brokers create the topic for groups when they are first asked for one.
    if target.topics([_GROUPS])[_GROUPS].error == codes.UNKNOWN_TOPIC_OR_PARTITION:
        steps = group_offset_sync.first_steps(wanted)
    else:
        steps = group_offset_sync.steps_due(
            target, {g: p for g, p in wanted.items() if p}
        )
    moves = [
        GroupMove(
            cluster=flow.target,
            flow=flow.name,
            group=group,
            topic=name,
            partition=partition,
            now=steps.present[group].get((name, partition), NOWHERE).offset,
            then=committed.offset,
        )
        for group, each in steps.wanted.items()
        for (name, partition), committed in each.items()
    ]
    notes = [
        f"flow {flow.name}: group {group} has members on {flow.target}: mirror leaves "
        "its offsets there alone"
        for group in sorted(steps.active)
    ]
    notes += [f"flow {flow.name}: {each}" for each in problems(settable.refused)]
    return moves, notes


def _padding(copy: same_offsets.Beginning) -> str:
    """What a copy gets before the first record, in words."""
    count = sum(copy.firsts.values())
    return f"{some(count, 'offset')} of padding" if count else ""


def _in_words(found: Sequence[TopicOffsets]) -> Iterator[str]:
    """A sentence for all copies of a flow that share a reason."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        alike.setdefault((each.flow, each.offsets, each.reason), []).append(each.topic)
    for (flow, offsets, reason), names in alike.items():
        copies = named(sorted(names))
        if offsets == "same":
            cost = f", after {reason}" if reason else ""
            yield f"flow {flow}: records have the source's offsets in {copies}{cost}"
        elif offsets:
            yield f"flow {flow}: offsets are translated in {copies}: {reason}"
        else:
            yield f"flow {flow}: not copied for now: {copies}: {reason}"
