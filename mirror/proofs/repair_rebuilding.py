"""Rebuilds the copy of one topic: deletes it, and lets the flow copy it again.

Main type: `Rebuilding`. Each step looks at the note of the rebuild on the target
(`pairs.control`), does what is missing and writes the next note, as the flow's only
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

from mirror.clusters import codes
from mirror.clusters.admin import (
    allowed,
    configs,
    group_offsets,
    groups,
    topic_admin,
)
from mirror.clusters.admin.configs import Origin
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.admin.topic_admin import NewTopic
from mirror.config import own_topics
from mirror.errors import (
    BrokerError,
    ClusterChangedError,
    ClusterError,
    FencedError,
    MirrorError,
    NoLeaderError,
    RecreatedError,
)
from mirror.offsets import progress, starting
from mirror.offsets.group_survey import known_of
from mirror.offsets.progress import NO_ID
from mirror.offsets.starting import StartPoint
from mirror.pairs import control
from mirror.pairs.control import KeptGroup, PausesReader, Rebuild, RebuildStep, Repair
from mirror.proofs import repair_appending, sides
from mirror.proofs.account import FindingKind, Scope
from mirror.proofs.log_stream import OffsetRange
from mirror.proofs.survey import settled_ends
from mirror.proofs.verification import terms_of
from mirror.records import to_columns
from mirror.records.writing import ensure_topic
from mirror.retry import patiently
from mirror.service import ownership
from mirror.service.ownership import PositionUpdate
from mirror.status.wording import named
from mirror.topics import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.progress import Position
    from mirror.offsets.translation import OffsetMap
    from mirror.proofs.sides import ProofTerms
    from mirror.proofs.verification import Proven
    from mirror.topics.topics import MirroredTopic


_ATTEMPTS = 5
_NO_POSITIONS: Mapping[TopicPartition, Position] = MappingProxyType({})
_RENEW_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.1
STALLED_SECONDS = 120.0
"""Without any progress for so long, nothing copies the topic: a flow that was fenced
several times rests for half a minute before it begins again.
"""
_PROGRESS_SECONDS = 0.3
_MOST = 10
"""Groups that a message names."""
Places = dict[str, dict[int, CommittedOffset]]
"""By group and partition: what it has committed in the copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Irreplaceable:
    """Records of one partition of a copy."""

    partition: int
    first: int | None
    """Offsets in the copy; None if they are not known."""
    last: int | None
    count: int
    """0: not known."""
    why: str
    """They cannot be copied again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPreview:
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
    repair_appending.refuse(config, flow, (), appends=False)
    with sides.connected(config, flow) as (source, target):
        found = topics.select(source, flow)
        for topic in found.topics:
            if topic.topic == name:
                repair_appending.refuse(config, flow, [name], appends=False)
                if not dry_run:
                    ownership.abort_own(flow, target)
                yield Rebuilding(config, flow, source, target, topic)
                return
        raise MirrorError(f"flow {flow.name} copies no topic {name}")


class AheadError(MirrorError):
    """Somebody else went on with this rebuild, or ended it: run the command again."""


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

    @property
    def copy(self) -> str:
        return self.topic.target_topic

    def unfinished(self, *, withdraw: bool) -> Rebuild | None:
        """The rebuild of this topic that is under way. With `withdraw`, one that was
        killed before anything changed ends here.

        Raises:
            MirrorError: one of another topic of the flow is.
            ClusterChangedError: it began with another source.
        """
        reader = PausesReader(self.target, self.flow)
        reader.read()
        reader.refuse_other_rebuilds(self.topic.topic)
        found = reader.rebuilds.get(self.topic.topic)
        if found is None or not found.unfinished:
            return None
        if found.source_id != self.source.cluster_id:
            raise ClusterChangedError(
                f"flow {self.flow.name}: this rebuild began with cluster "
                f"{found.source_id}, but {self.flow.source} leads to cluster "
                f"{self.source.cluster_id}: point bootstrap_servers there again"
            )
        if withdraw and found.step is RebuildStep.PAUSED:
            self._withdraw(found)
            return None
        return found

    def begin(
        self,
        prove: Callable[[Proven | None], Proven],
        agree: Callable[[RebuildPreview], bool],
    ) -> Rebuild | None:
        """Go as far as one can go back: prove that nothing would be lost, pause the
        topic, and keep its groups. None if something would be lost, or not agreed.

        `prove` proves the copy of this topic from its first record on, or what came
        after an earlier proof; `agree` sees the preview, once or, if something would be
        lost after all, twice.

        Raises:
            MirrorError: it is refused, for the reason given; nothing has changed.
        """
        copy = self._check()
        self.groups()  # not after hours
        proven = prove(None)
        records = sum(each.account.records for each in proven.partitions)
        preview = RebuildPreview(
            records=records, groups=self.groups(), irreplaceable=self._judge([proven])
        )
        if not agree(preview) or preview.irreplaceable:
            return None
        paused = self._pause(copy, records=records)
        try:
            lost = self._judge([proven, prove(proven)])
            if not lost:
                return self._keep_groups(paused)
            agree(replace(preview, irreplaceable=lost))
        except BaseException:
            self._withdraw(paused)
            raise
        self._withdraw(paused)
        return None

    def finish(
        self, rebuild: Rebuild, *, show: Callable[[int, int], None] = lambda *_: None
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
                wait_until_copied(self.flow, self.target, note, show=show)
                return self._settle(note)
            except AheadError:
                note = self.unfinished(withdraw=False)
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

    def groups(self, rebuild_id: str = "") -> tuple[KeptGroup, ...]:
        """The groups of the copy, and where they go on, on the source.

        Raises:
            MirrorError: groups with members read it, or it is not sure where one is.
        """
        places = committed_offsets(self.target, self.copy)
        topic, known = self.topic.topic, self._known()
        return tuple(
            KeptGroup(
                topic=topic,
                group=group,
                id=rebuild_id,
                offsets={
                    number: (
                        known.reverse(topic, number, at.offset).offset,
                        at.metadata,
                    )
                    for number, at in offsets.items()
                },
            )
            for group, offsets in places.items()
        )

    def _judge(self, proofs: Sequence[Proven]) -> tuple[Irreplaceable, ...]:
        """What the copy has and the source does not, by proofs of all of it, and by
        what the logs' beginnings are now.
        """
        found = [
            each
            for proven in proofs
            for each in irreplaceable_by_proof(proven)
            if each.partition < self.topic.partitions  # the others have no proof
        ]
        found += irreplaceable_at_ends(
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
        self._write(None, made)
        return made

    def _withdraw(self, rebuild: Rebuild) -> None:
        """Let the topic be copied on, if nothing has changed yet.

        Raises:
            MirrorError: the rebuild went on meanwhile, or the target refuses.
        """
        self._write(rebuild, replace(rebuild, step=RebuildStep.DONE))

    def _keep_groups(self, rebuild: Rebuild) -> Rebuild:
        """Note where groups go on; from here on the only way is forward.

        Raises:
            MirrorError: groups with members read the copy; nothing has changed.
        """
        made = replace(rebuild, step=RebuildStep.DELETING)
        self._write(rebuild, made, groups=self._groups_of(rebuild))
        return made

    def _renew(self, rebuild: Rebuild) -> Rebuild:
        """Delete the copy, create it again, and let the flow begin at the first record.

        Raises:
            MirrorError: a cluster refuses, or does not answer; do it again.
        """
        if self._is_there(rebuild):
            # They may have gone on since: in the old copy, as long as it was there.
            kept = [*control.groups_to_move(self.target, self.flow, rebuild)]
            moved = [each for each in self._groups_of(rebuild) if each not in kept]
            if moved:
                self._write(rebuild, rebuild, groups=moved)
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
        self._write(rebuild, made, positions=firsts)
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
        for group in control.groups_to_move(self.target, self.flow, rebuild):
            try:
                put_back(self.target, group, self.copy, known)
            except MirrorError as error:
                refused[group.group] = str(error)
            else:
                settled.append(replace(group, settled=True))
        if refused:
            self._write(rebuild, rebuild, groups=settled)
            return refused
        note = Repair(
            flow=self.flow.name,
            at=time.time(),
            kind=control.REBUILD,
            topics={rebuild.topic: rebuild.records},
        )
        ended = replace(rebuild, step=RebuildStep.DONE)
        self._write(rebuild, ended, groups=settled, told=[note.record()])
        return {}

    def _write(
        self,
        before: Rebuild | None,
        after: Rebuild,
        *,
        groups: Iterable[KeptGroup] = (),
        positions: Mapping[TopicPartition, Position] = _NO_POSITIONS,
        told: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Write the next note as the flow's owner, and with it what changes: groups,
        the flow's positions, and further records of the topic. `before`: the unfinished
        one, if there is one. This fences a running service for a moment; of two
        rebuilds only one takes a step.

        Raises:
            AheadError: the note says something else by now; nothing was written.
            MirrorError: nothing was written, or the answer to the commit was lost.
        """
        topic = control.topic_name(self.flow.source)
        ensure_topic(
            self.target,
            own_topics.CONTROL,
            topic,
            replication_factor=self.flow.replication_factor,
        )
        name = self.flow.name
        notes = [*(g.record(name) for g in groups), after.record(name), *told]

        def decide(_: object) -> PositionUpdate:
            if self.unfinished(withdraw=False) != before:
                raise AheadError
            return PositionUpdate(positions=positions, notes=notes)

        for attempt in range(_ATTEMPTS):
            try:
                ownership.rewrite_progress(self.flow, self.target, decide)
            except FencedError:
                # The fenced service came back before we were done.
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _groups_of(self, rebuild: Rebuild) -> tuple[KeptGroup, ...]:
        """The groups of the copy, while it is there.

        Raises:
            MirrorError: groups with members read it, or it is not sure where one is.
            RecreatedError: it is not there any more.
        """
        groups = self.groups(rebuild.id)
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


# ---- what a copy has and its source does not: what would be lost ----
#
# `irreplaceable_by_proof`, which is pure, judges by a proof of the copy;
# `irreplaceable_at_ends` reads what no proof looks at: copies of what the source has
# deleted at its beginning, and partitions that the source does not have. What cannot be
# read, or is hidden, counts too: nothing says whether the source has it.


_REASONS = {
    "foreign": "others than the flow have written them",
    "older": "copied from a deleted topic with the source topic's name",
    "compacted_source": "the source has compacted them away",
    "expired_source": "the source has deleted them at its beginning",
}
"""By field of the account."""
_UNSURE = {
    FindingKind.UNEXPECTED: "says that it comes from the source, which does not have "
    "it",
    FindingKind.DAMAGED: "cannot be read",
    FindingKind.UNPROVEN: "not compared",
}
"""By kind of a finding; copying again repairs the others."""


def irreplaceable_by_proof(proven: Proven) -> Iterator[Irreplaceable]:
    """What a proof of one topic says, from its first record on."""
    for proof in proven.partitions:
        for name, why in _REASONS.items():
            if count := getattr(proof.account, name):
                first, last = proof.spans.get(name, (None, None))
                yield Irreplaceable(
                    partition=proof.of.partition, first=first, last=last,
                    count=count, why=why,
                )  # fmt: skip
        if proof.of.has_open_end:
            yield Irreplaceable(
                partition=proof.of.partition, first=proof.target_end, last=None,
                count=0, why="an open transaction hides what follows in the copy",
            )  # fmt: skip
    for each in proven.findings:
        if each.kind in _UNSURE:
            known = each.target is not None
            yield Irreplaceable(
                partition=each.partition,
                first=each.target,
                last=None if each.target is None else each.target + each.count - 1,
                count=each.count if known else 0,
                why=": ".join(filter(None, (_UNSURE[each.kind], each.detail))),
            )


def irreplaceable_at_ends(
    terms: ProofTerms,
    source: Cluster,
    target: Cluster,
    known: OffsetMap,
    topic: MirroredTopic,
) -> Iterator[Irreplaceable]:
    """What a proof leaves out, as the logs are now.

    Raises:
        ClusterError: a cluster does not answer, or the copy cannot be read.
    """
    copy = target.wait_for_topic(topic.target_topic)
    starts = _starts(source, topic.topic, range(topic.partitions))
    firsts = _starts(target, copy.name, copy.leaders)
    ends, hidden = settled_ends(
        target, [(copy.name, number) for number in copy.leaders]
    )
    for number in copy.leaders:
        end = ends[copy.name, number]
        if number >= topic.partitions:
            why = "the source does not have this partition"
            if (copy.name, number) in hidden:
                yield Irreplaceable(
                    partition=number, first=end, last=None, count=0, why=why
                )
        else:
            start = starts[number]
            end = min(known.translate(topic.topic, number, start).offset, end)
            why = f"the source has deleted them: its log begins at {start}"
        wanted = OffsetRange(
            topic=copy.name, partition=number, topic_id=copy.topic_id,
            first=firsts[number], end=end,
        )  # fmt: skip
        if seen := _seen(terms, target, wanted):
            first, last, count = seen
            yield Irreplaceable(
                partition=number, first=first, last=last, count=count, why=why
            )


def _seen(
    terms: ProofTerms, target: Cluster, wanted: OffsetRange
) -> tuple[int, int, int] | None:
    """The first and the last record of the copy there, and how many they are."""
    stream = sides.stream(terms, target, wanted, on_source=False)
    spans = [
        (*part.places[[0, -1], to_columns.OFFSET].tolist(), len(part.places))
        for part in stream.listed()
        if len(part.places)
    ]
    # What is damaged may be anything.
    spans += [(x.first, x.end - 1, x.end - x.first) for x in stream.damages]
    if not spans:
        return None
    firsts, lasts, counts = zip(*spans, strict=True)
    return min(firsts), max(lasts), sum(counts)


def _starts(cluster: Cluster, topic: str, numbers: Iterable[int]) -> dict[int, int]:
    """Where the logs begin."""
    asked = [(topic, number) for number in numbers]
    found = topic_admin.offsets_of_all(cluster, asked, timestamp=topic_admin.EARLIEST)
    return {number: offset for (_, number), offset in found.items()}


# ---- groups that read the copy: where they go on, there and back ----
#
# A group with members is never moved: its members would go on where they were in the
# copy that is gone.


def committed_offsets(target: Cluster, copy: str) -> Places:
    """What groups have committed in a copy.

    Raises:
        MirrorError: a group that reads it has members, or it is not sure where a
            group goes on; all such groups are named.
        ClusterError: the target does not answer.
    """
    listed = groups.list_groups(target)
    read = group_offsets.fetch(target, listed, require_stable=True)
    found: Places = {}
    for name, offsets in read.groups.items():
        if here := {key[1]: at for key, at in offsets.items() if key[0] == copy}:
            found[name] = here
    if read.refused:
        whys = named([f"{x}: {why}" for x, why in sorted(read.refused.items())], _MOST)
        raise MirrorError(
            f"cluster {target.alias}: it is not known where groups go on: {whys}"
        )
    open_ends = {name for name, topic, _ in read.unstable if topic == copy}
    active = [group for group in listed.values() if not group.idle]
    reading = {group.group for group in active if group.group in found} | {
        name
        for name, members in groups.members(target, active).items()
        if any(copy in member.topics for member in members)
    }
    if reading:
        raise MirrorError(
            f"cluster {target.alias}: groups that read {copy} have members: "
            f"{named(sorted(reading), _MOST)}: stop them first"
        )
    if open_ends:
        raise MirrorError(
            f"cluster {target.alias}: groups commit offsets in {copy} in transactions "
            f"that are open: {named(sorted(open_ends), _MOST)}: stop what they belong "
            "to first"
        )
    return found


def may_hide_groups(target: Cluster) -> bool:
    """Whether there may be groups that the cluster does not show us.

    Raises:
        ClusterError: the cluster does not answer.
    """
    rights = allowed.of_cluster(target)
    return rights is not None and "DESCRIBE" not in rights


def put_back(
    target: Cluster, group: KeptGroup, copy: str, known: OffsetMap | None
) -> None:
    """Commit a group's offsets in the new copy. Without `known`, it is the copy of
    another topic by now: the group begins at its first record.

    Raises:
        MirrorError: the group has members, or the target refuses.
        ClusterError: the target does not answer.
    """
    there: dict[TopicPartition, CommittedOffset] = {}
    for number, (offset, metadata) in group.offsets.items():
        at = 0
        if known is not None and offset >= 0:
            at = max(known.translate(group.topic, number, offset).offset, 0)
        there[copy, number] = CommittedOffset(at, metadata)

    def commit() -> None:
        for refused in group_offsets.commit(target, {group.group: there}).values():
            for (topic, number), code in refused.items():
                if code in codes.GROUP_IS_ACTIVE:
                    raise MirrorError(
                        f"cluster {target.alias}: group {group.group} has members: "
                        "stop them"
                    )
                raise BrokerError(
                    name=codes.name_of(code),
                    what=f"cluster {target.alias}: setting the offset of group "
                    f"{group.group} in {topic}-{number}",
                    retriable=codes.is_retriable(code),
                )

    patiently(commit)


# ---- deletes a copy and creates it again as it was: partitions, replicas, configs ----
#
# It may be repeated at any time: what was deleted is not looked for by name, and a new
# topic, which a running service may have created first, only gets what it does not
# have. ACLs stay when a topic is deleted, and apply to its successor.


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


# ---- waits until the flow has copied the topic again ----


def wait_until_copied(
    flow: FlowConfig,
    target: Cluster,
    rebuild: Rebuild,
    *,
    show: Callable[[int, int], None],
) -> None:
    """Wait until the flow has copied what the source had when it began again. `show` is
    called with source offsets, of all partitions: how many it has passed, of how many.

    Raises:
        MirrorError: nothing copies it.
        ClusterError: the target does not answer.
    """
    reader = progress.ProgressReader(target, progress.topic_name(flow.source))
    passed, since = -1, time.monotonic()
    whole = sum(rebuild.ends)
    while True:
        positions = reader.read().positions
        reached = 0
        for number, end in enumerate(rebuild.ends):
            known = positions.get((rebuild.topic, number))
            if known is not None and known.topic_id.hex == rebuild.topic_id:
                reached += min(known.offset, end)
            elif known is not None:  # the source's topic was re-created meanwhile
                reached += end
        show(reached, whole)
        if reached >= whole:
            return
        if reached > passed:
            passed, since = reached, time.monotonic()
        if time.monotonic() - since > STALLED_SECONDS:
            raise MirrorError(_stalled(flow, target, rebuild, whole - reached))
        time.sleep(_PROGRESS_SECONDS)


def _stalled(flow: FlowConfig, target: Cluster, rebuild: Rebuild, left: int) -> str:
    why = "does a service run? See `mirror status`"
    if PausesReader(target, flow).read().since(rebuild.topic):
        why = f"the topic is paused: `mirror resume {flow.name}`"
    return (
        f"flow {flow.name}: nothing copies {rebuild.topic}, of which {left:,} offsets "
        f"are missing: {why}. Run the same command again later: it moves the groups"
    )
