"""Rebuilds the copy of one topic: deletes it, and lets the flow copy it again.

Main type: `Rebuilding`. Each step looks at the note of the rebuild on the target
(`recovery.rebuilds`), does what is missing and writes the next note, as the flow's only
writer: so it can die anywhere and go on here or elsewhere, and two of them end as one.
`begin` ends with the note from which on the only way is forward, `finish` goes that
way. The flow copies; a running service is fenced at each note, and begins again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
import time
from types import MappingProxyType
from typing import TYPE_CHECKING
import uuid

from mirror.clusters.admin import configs, topic_admin
from mirror.clusters.admin.configs import Origin
from mirror.clusters.admin.topic_admin import NewTopic
from mirror.clusters.cluster import Cluster
from mirror.config import own_topics
from mirror.errors import (
    ClusterChangedError,
    ClusterError,
    FencedError,
    MirrorError,
    NoLeaderError,
    RecreatedError,
)
from mirror.offsets import starting
from mirror.offsets.group_survey import known_of
from mirror.offsets.progress import NO_ID
from mirror.offsets.starting import StartPoint
from mirror.pairs import pauses, rebuilds, repairs
from mirror.pairs.pauses import PausesReader
from mirror.pairs.rebuilds import Rebuild, RebuildStep
from mirror.pairs.repairs import Repair
from mirror.proofs.of_flow import terms_of
from mirror.proofs.repairs import appending, copied_again, copy_groups, irreplaceable
from mirror.proofs.scope import Scope
from mirror.records.writing import ensure_topic
from mirror.service import ownership
from mirror.service.rewriting import Rewriting
from mirror.topics import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.offset_map import OffsetMap
    from mirror.offsets.progress import Position
    from mirror.pairs.rebuilds import KeptGroup
    from mirror.proofs.repairs.copied_again import Copied
    from mirror.proofs.repairs.irreplaceable import Irreplaceable
    from mirror.proofs.verification import Proven
    from mirror.topics.topics import MirroredTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a rebuild would do."""

    records: int
    """Of the source, to be copied again."""
    groups: tuple[KeptGroup, ...]
    """Those of the copy, and where they go on on the source."""
    irreplaceable: tuple[Irreplaceable, ...]
    """What would be lost: if there is any, the rebuild is refused."""


@contextlib.contextmanager
def rebuilding(
    config: MirrorConfig, flow: FlowConfig, name: str, *, dry_run: bool
) -> Iterator[Rebuilding]:
    """The rebuild of the copy of one source topic, begun or not. Unless it is a
    `dry_run`, what an earlier one that was killed left open ends first.

    Raises:
        MirrorError: it is not possible, for the reason given.
    """
    appending.refuse(config, flow, (), appends=False)
    with contextlib.ExitStack() as stack:
        source, target = (
            stack.enter_context(
                contextlib.closing(Cluster(config.clusters[alias]).connect())
            )
            for alias in (flow.source, flow.target)
        )
        found = topics.select(source, flow)
        for topic in found.topics:
            if topic.topic == name:
                appending.refuse(config, flow, [name], appends=False)
                if not dry_run:
                    ownership.abort_own(flow, target)
                yield Rebuilding(config, flow, source, target, topic)
                return
        raise MirrorError(f"flow {flow.name} copies no topic {name}")


class Rebuilding:
    """One of them, for as long as both clusters are connected."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        source: Cluster,
        target: Cluster,
        topic: MirroredTopic,
    ) -> None:
        self.flow = flow
        self.topic = topic
        self.source, self.target = source, target
        self._terms = terms_of(config, flow, source, target, Scope())
        self._notes = RebuildNotes(
            flow=flow, source=source, target=target, topic=topic.topic
        )

    @property
    def copy(self) -> str:
        return self.topic.target_topic

    def unfinished(self, *, withdraw: bool) -> Rebuild | None:
        """The rebuild of this topic that is under way. With `withdraw`, one that was
        killed before anything changed ends here.

        Raises:
            MirrorError: one of another topic of the flow is, or it began with another
                source.
        """
        found = self._notes.unfinished()
        if withdraw and found is not None and found.step is RebuildStep.PAUSED:
            self._withdraw(found)
            return None
        return found

    def begin(
        self,
        prove: Callable[[Proven | None], Proven],
        agree: Callable[[Outlook], bool],
    ) -> Rebuild | None:
        """Go as far as one can go back: prove that nothing would be lost, pause the
        topic, and keep its groups. None if something would be lost, or not agreed.

        `prove` proves the copy of this topic from its first record on, or what came
        after an earlier proof; `agree` sees the outlook, once or, if something would be
        lost after all, twice.

        Raises:
            MirrorError: it is refused, for the reason given; nothing has changed.
        """
        copy = self._check()
        self.groups()  # not after hours
        proven = prove(None)
        records = sum(each.account.records for each in proven.partitions)
        outlook = Outlook(
            records=records, groups=self.groups(), irreplaceable=self._judge([proven])
        )
        if not agree(outlook) or outlook.irreplaceable:
            return None
        paused = self._pause(copy, records=records)
        try:
            lost = self._judge([proven, prove(proven)])
            if not lost:
                return self._keep_groups(paused)
            agree(replace(outlook, irreplaceable=lost))
        except BaseException:
            self._withdraw(paused)
            raise
        self._withdraw(paused)
        return None

    def finish(
        self, rebuild: Rebuild, *, show: Callable[[Copied], None] = lambda _: None
    ) -> dict[str, str]:
        """Go on from the note to the end. Returns groups that do not have their offsets
        yet, with the reason; without any, it is over.

        Raises:
            MirrorError: it cannot go on for now: call it again later.
        """
        note: Rebuild | None = rebuild
        while note is not None and note.id == rebuild.id:
            try:
                if note.step is RebuildStep.DELETING:
                    note = self._renew(note)
                copied_again.wait(self.flow, self.target, note, show=show)
                return self._settle(note)
            except AheadError:
                note = self._notes.unfinished()
        return {}

    def _check(self) -> Topic:
        """The copy, if a rebuild can begin.

        Raises:
            MirrorError: it cannot, for the reason given.
        """
        copy = self.target.topic(self.copy)
        if copy is None:
            raise MirrorError(
                f"cluster {self.target.alias}: there is no copy {self.copy} to rebuild"
            )
        if obstacle := topic_admin.deletion_obstacle(self.target, self.copy):
            raise MirrorError(obstacle)
        if NO_ID in (copy.topic_id, uuid.UUID(self.topic.topic_id)):
            raise MirrorError(
                f"flow {self.flow.name}: a rebuild needs topic ids on both clusters, "
                "which Kafka has since 2.8"
            )
        known_of(self.flow, self.target)
        return copy

    def groups(self) -> tuple[KeptGroup, ...]:
        """The groups of the copy, and where they would go on now.

        Raises:
            MirrorError: groups with members read it, or it is not sure where one is.
        """
        found = copy_groups.committed(self.target, self.copy)
        return tuple(copy_groups.kept(found, self.topic.topic, "", self._known()))

    def _judge(self, proofs: Sequence[Proven]) -> tuple[Irreplaceable, ...]:
        """What the copy has and the source does not, by proofs of all of it, and by
        what the logs' beginnings are now.
        """
        found = [
            each
            for proven in proofs
            for each in irreplaceable.of_proof(proven)
            if each.partition < self.topic.partitions  # `of_edges` looks at the others
        ]
        found += irreplaceable.of_edges(
            self._terms, self.source, self.target, self._known(), self.topic
        )
        return tuple(sorted(found, key=lambda each: (each.partition, each.first or 0)))

    def _pause(self, copy: Topic, *, records: int) -> Rebuild:
        """Begin: the topic is not copied from now on. `copy`: the proven one.

        Raises:
            MirrorError: it was re-created since, or another rebuild began.
        """
        shown = configs.describe(self.target, [self.copy])[self.copy]
        if shown.error is not None:
            raise shown.error
        made = Rebuild(
            topic=self.topic.topic,
            target_topic=self.copy,
            step=RebuildStep.PAUSED,
            at=time.time(),
            source_id=self.source.cluster_id,
            topic_id=self.topic.topic_id,
            copy_id=copy.topic_id.hex,
            partitions=copy.partitions,
            replication_factor=copy.replication_factor or -1,
            configs={
                name: each.value
                for name, each in shown.configs.items()
                if each.origin is Origin.TOPIC and each.value is not None
            },
            records=records,
        )
        self._notes.write(None, made)
        return made

    def _withdraw(self, rebuild: Rebuild) -> None:
        """Let the topic be copied on, if nothing has changed yet.

        Raises:
            MirrorError: the rebuild went on meanwhile, or the target refuses.
        """
        self._notes.write(rebuild, replace(rebuild, step=RebuildStep.DONE))

    def _keep_groups(self, rebuild: Rebuild) -> Rebuild:
        """Note where groups go on; from here on the only way is forward.

        Raises:
            MirrorError: groups with members read the copy; nothing has changed.
        """
        made = replace(rebuild, step=RebuildStep.DELETING)
        self._notes.write(rebuild, made, groups=self._groups_of(rebuild))
        return made

    def _renew(self, rebuild: Rebuild) -> Rebuild:
        """Delete the copy, create it again, and let the flow begin at the first record.

        Raises:
            MirrorError: a cluster refuses, or does not answer; do it again.
        """
        if self._is_there(rebuild):
            # They may have gone on since: in the old copy, as long as it was there.
            kept = self._notes.groups(rebuild)
            moved = [g for g in self._groups_of(rebuild) if kept.get(g.group) != g]
            if moved:
                self._notes.write(rebuild, rebuild, groups=moved)
        wanted = NewTopic(
            name=self.copy,
            partitions=max(rebuild.partitions, self.topic.partitions),
            replication_factor=rebuild.replication_factor,
            configs=rebuild.configs,
        )
        renew(self.target, uuid.UUID(rebuild.copy_id), wanted)
        numbers = range(self.topic.partitions)
        here = {(self.topic.topic, n): self.topic.topic_id for n in numbers}
        ends = topic_admin.list_offsets(
            self.source,
            here,
            timestamp=topic_admin.LATEST,
            committed=self.flow.isolation_level == "read_committed",
        )
        firsts = starting.find(self.source, here, StartPoint())
        if len(ends) < len(here) or len(firsts) < len(here):
            raise NoLeaderError(
                f"cluster {self.source.alias}: a partition of {self.topic.topic} has "
                "no leader: run the same command again when it has"
            )
        made = replace(
            rebuild,
            step=RebuildStep.COPYING,
            ends=tuple(ends[self.topic.topic, number] for number in numbers),
        )
        self._notes.write(rebuild, made, positions=firsts)
        return made

    def _settle(self, rebuild: Rebuild) -> dict[str, str]:
        """Move groups to where they go on in the new copy, and end the rebuild if all
        are there. Returns those that are not, with the reason.

        Raises:
            ClusterError: the target does not answer; do it again.
        """
        known = self._known() if rebuild.topic_id == self.topic.topic_id else None
        refused: dict[str, str] = {}
        settled: list[KeptGroup] = []
        for group in self._notes.groups(rebuild).values():
            try:
                copy_groups.put_back(self.target, group, self.copy, known)
            except MirrorError as error:
                refused[group.group] = str(error)
            else:
                settled.append(replace(group, settled=True))
        if refused:
            self._notes.write(rebuild, rebuild, groups=settled)
            return refused
        note = Repair(
            flow=self.flow.name,
            at=time.time(),
            kind=repairs.REBUILD,
            topics={rebuild.topic: rebuild.records},
        )
        ended = replace(rebuild, step=RebuildStep.DONE)
        self._notes.write(rebuild, ended, groups=settled, told=[note.record()])
        return {}

    def _groups_of(self, rebuild: Rebuild) -> tuple[KeptGroup, ...]:
        """The groups of the copy, while it is there.

        Raises:
            MirrorError: groups with members read it, or it is not sure where one is.
            RecreatedError: it is not there any more.
        """
        found = copy_groups.committed(self.target, self.copy)
        kept = copy_groups.kept(found, rebuild.topic, rebuild.id, self._known())
        groups = tuple(kept)
        if not self._is_there(rebuild):
            raise RecreatedError(
                f"cluster {self.target.alias}: {self.copy} was deleted or re-created "
                "by somebody else: run the same command again"
            )
        return groups

    def _is_there(self, rebuild: Rebuild) -> bool:
        """Whether the copy to delete is still there."""
        copy = self.target.views([self.copy]).agreed(self.copy)
        return copy is not None and copy.topic_id.hex == rebuild.copy_id

    def _known(self) -> OffsetMap:
        return known_of(self.flow, self.target)


# ---- the note of a rebuild, which the flow's owner writes ----
#
# Main type: `RebuildNotes` of one topic. Each write fences a running service for a
# moment and then checks that the note still says what the writer believes, so of
# two rebuilds only one takes a step.


_ATTEMPTS = 5
_NOTHING: Mapping[TopicPartition, Position] = MappingProxyType({})


class AheadError(MirrorError):
    """Somebody else went on with this rebuild, or ended it: run the command again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildNotes:
    """The notes about one topic of a flow."""

    flow: FlowConfig
    source: Cluster
    target: Cluster
    topic: str

    def unfinished(self) -> Rebuild | None:
        """The rebuild that is under way.

        Raises:
            MirrorError: one of another topic of the flow is.
            ClusterChangedError: it began with another source.
        """
        reader = PausesReader(self.target, self.flow)
        reader.read()
        reader.refuse_beside(self.topic)
        found = reader.rebuilds.get(self.topic)
        if found is None or not found.unfinished:
            return None
        if found.source_id != self.source.cluster_id:
            raise ClusterChangedError(
                f"flow {self.flow.name}: this rebuild began with cluster "
                f"{found.source_id}, but {self.flow.source} leads to cluster "
                f"{self.source.cluster_id}: point bootstrap_servers there again"
            )
        return found

    def groups(self, rebuild: Rebuild) -> dict[str, KeptGroup]:
        """Groups that do not have their offsets in the new copy yet, by name."""
        control = pauses.topic_name(self.flow.source)
        found = rebuilds.groups(self.target, control, self.flow.name, rebuild)
        return {each.group: each for each in found}

    def write(
        self,
        before: Rebuild | None,
        after: Rebuild,
        *,
        groups: Iterable[KeptGroup] = (),
        positions: Mapping[TopicPartition, Position] = _NOTHING,
        told: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Write the next note, and with it what changes: groups, the flow's positions,
        and further records of the topic. `before`: the unfinished one, if there is one.

        Raises:
            AheadError: the note says something else by now; nothing was written.
            MirrorError: nothing was written, or the answer to the commit was lost.
        """
        control = pauses.topic_name(self.flow.source)
        ensure_topic(
            self.target,
            own_topics.CONTROL,
            control,
            replication_factor=self.flow.replication_factor,
        )
        name = self.flow.name
        notes = [*(g.record(name) for g in groups), after.record(name), *told]

        def decide(_: object) -> Rewriting:
            if self.unfinished() != before:
                raise AheadError
            return Rewriting(positions=positions, notes=notes)

        for attempt in range(_ATTEMPTS):
            try:
                ownership.rewrite_progress(self.flow, self.target, decide)
            except FencedError:
                # The fenced service came back before we were done.
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return


# ---- deletes a copy and creates it again as it was: partitions, replicas, configs ----
#
# Main function: `renew`. It may be repeated at any time: what was deleted is not
# looked for by name, and a new topic, which a running service may have created first,
# only gets what it does not have. ACLs stay when a topic is deleted, and apply to its
# successor.


_RENEW_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.1


def renew(target: Cluster, old: uuid.UUID, wanted: NewTopic) -> Topic:
    """Delete the topic with the id `old`, and create its successor; returns that.

    Raises:
        ClusterError: the cluster refuses, or does not answer; do it again.
    """
    deadline = time.monotonic() + _RENEW_SECONDS
    while (found := target.views([wanted.name]).agreed(wanted.name)) is None or (
        found.topic_id == old
    ):
        if time.monotonic() > deadline:
            raise ClusterError(
                f"cluster {target.alias}: {wanted.name} was deleted, and brokers do "
                "not show its successor"
            )
        if found is not None:  # under this name: a wrong id deletes no other topic
            topic_admin.delete_topic(target, old, wanted.name)
        else:
            _, problems = topics.create(target, {wanted.name: wanted})
            if problems:
                raise ClusterError("; ".join(problems))
        time.sleep(_LOOK_AGAIN_SECONDS)
    made = target.wait_for_topic(wanted.name)
    if made.partitions < wanted.partitions:
        topic_admin.add_partitions(target, wanted.name, count=wanted.partitions)
        made = target.wait_for_topic(wanted.name, partitions=wanted.partitions)
    _correct(target, wanted)
    return made


def _correct(target: Cluster, wanted: NewTopic) -> None:
    """Set the configs that somebody else who created the topic did not set."""
    shown = configs.describe(target, [wanted.name])[wanted.name]
    if shown.error is not None:
        raise shown.error
    there = {
        name: each.value
        for name, each in shown.configs.items()
        if each.origin is Origin.TOPIC
    }
    missing = {k: v for k, v in wanted.configs.items() if there.get(k) != v}
    if missing:
        for error in configs.alter(target, {wanted.name: missing}).values():
            raise error
