"""The jobs for groups and heartbeats of one flow.

Main type: `GroupJobs`. It calls the steps of `offsets` in the right order and shows the
outcome in the store. One job serves checkpoints, group offsets and offset syncs, since
they come from the same look at the groups and the same map; heartbeats have their own,
since they have a different interval.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
import time
from typing import TYPE_CHECKING

import numpy as np
import structlog

from mirror.clusters import codes, error_counts
from mirror.clusters.admin import allowed, topic_admin
from mirror.clusters.topics import NO_ID
from mirror.clusters.wire import fetch
from mirror.config import own_topics
from mirror.errors import ClusterError, CorruptBatchError, MirrorError, UnreachableError
from mirror.log import LogThrottle
from mirror.offsets import group_offset_sync, retention
from mirror.offsets.checkpoints import Checkpoints
from mirror.offsets.group_offset_sync import GroupSyncResult
from mirror.offsets.groups import (
    COMMITS_TOPIC,
    CommitKey,
    GroupsStanding,
    decode_commit,
    decode_commit_key,
    look,
    translated,
)
from mirror.offsets.heartbeats import Heartbeats
from mirror.offsets.index import IndexKeeper
from mirror.offsets.joint import JointMap, MergedGroups, problems
from mirror.offsets.offset_syncs import OffsetSyncs
from mirror.offsets.translation import Exactness, OffsetMap
from mirror.policy.naming import HEARTBEATS
from mirror.policy.selection import GroupFilter
from mirror.service.scheduler import Job
from mirror.status.events import Event, EventKind
from mirror.status.values import GroupStatus
from mirror.status.wording import some
from mirror.topics import guarding
from mirror.topics.guarding import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mirror.clusters.admin.group_offsets import CommittedOffset
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.fetch import Fetched
    from mirror.config.schema import FlowConfig
    from mirror.offsets.checkpoints import Checkpoint, CheckpointsResult, Due
    from mirror.offsets.consumer_offsets_topic import CommitLog
    from mirror.offsets.groups import Copy, GroupPosition
    from mirror.offsets.joint import Settable
    from mirror.records.batch import Buffer, Rows
    from mirror.status.store import StatusStore
    from mirror.status.values import FlowStatus


log = structlog.get_logger()


CHECKPOINTS = "checkpoints"
OFFSET_MAP = "offset-map"
_RETENTION = "offset-map retention"
_RETENTION_SECONDS, _COPIES_SECONDS = 60.0, 600.0
"""How often to look at the map's retention, and at that of the copies."""
_MOST_SHOWN = 200
"""Groups in the status; those in trouble come first."""
_MOST_TOLD = 20
"""Groups with an event of their own in one round."""


class GroupJobs:
    """The jobs for the groups of one flow."""

    def __init__(
        self,
        flow: FlowConfig,
        copies: Callable[[], Mapping[str, Copy]],
        *,
        store: StatusStore,
        tell: Callable[[str, Sequence[str]], None],
    ) -> None:
        """`copies`: the topics that are copied now; `tell` receives a job's name and
        its current problems.
        """
        self._flow = flow
        self._copies = copies
        self._store = store
        self._tell = tell
        self._filter = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
        self._follows_commits = flow.emit_checkpoints and flow.follow_commits != "off"
        self._commits = CommitReader()
        self._due = DueCommits(self._filter)
        self._commits_throttle = LogThrottle()
        self._maps: tuple[tuple[Cluster, Cluster], JointMap, MergedGroups] | None = None
        self._mapped: frozenset[str] | None = None
        """The copies in the map; None until it was read to its end."""
        self._kept: tuple[float, int] = (-float("inf"), 0)
        """When the copies were last asked, and the map's retention since."""
        self._keeper = IndexKeeper(flow)
        self._synced_at = -float("inf")
        self._group_sync = GroupSyncResult()
        self._throttle = LogThrottle()
        self._heartbeat_throttle = LogThrottle()
        on_source = flow.offset_syncs_location == "source"
        self._checkpoints = Checkpoints(
            flow.source,
            separator=flow.mm2_separator,
            replication_factor=own_topics.checkpoints(flow).replicas,
        )
        self._offset_syncs = OffsetSyncs(
            flow.target if on_source else flow.source,
            separator=flow.mm2_separator,
            replication_factor=own_topics.offset_syncs(flow).replicas,
        )
        self._heartbeats = Heartbeats(
            flow.source,
            flow.target,
            flow.replication_policy.target_topic(HEARTBEATS),
            on_target=flow.emit_heartbeats,
            on_source=flow.heartbeats_on_source,
            replication_factor=own_topics.heartbeats(flow, flow.target).replicas,
        )

    def jobs(self) -> list[Job]:
        """The jobs that the flow's settings ask for."""
        flow = self._flow
        jobs = []
        if flow.emit_checkpoints or flow.emit_offset_syncs:
            jobs.append(
                Job(
                    name=CHECKPOINTS,
                    seconds=flow.emit_checkpoints_seconds,
                    work=self._sync_groups,
                    waits=True,
                    meanwhile=self._follow_commits if self._follows_commits else None,
                )
            )
        jobs += self.heartbeats()
        jobs.append(
            Job(
                name=OFFSET_MAP,
                seconds=_RETENTION_SECONDS,
                work=self._keep_map,
            )
        )
        return jobs

    def heartbeats(self, *, rests: bool = False) -> list[Job]:
        """The one that a flow has that copies nothing, too; `rests`: it does not."""
        self._heartbeats.watches = not rests
        flow = self._flow
        if not (flow.emit_heartbeats or flow.heartbeats_on_source):
            return []
        seconds = flow.emit_heartbeats_seconds
        return [Job(name=HEARTBEATS, seconds=seconds, work=self._sync_heartbeats)]

    def _keep_map(self, source: Cluster, target: Cluster) -> None:
        flow, topic = self._flow, own_topics.OFFSET_MAP.of(self._flow)
        now = retention.present(target, topic.name)
        asked_at, kept = self._kept
        if now == kept and time.monotonic() - asked_at < _COPIES_SECONDS:
            return
        if not (flow.emit_checkpoints or flow.emit_offset_syncs):
            known = self._open_maps(source, target)[0].known  # no other job reads it
            known.refresh()
            self._mapped = frozenset(known.partitions().values())
            self._keep_index(known)
        copies = {copy.topic for copy in self._copies().values()}
        # It may have topics that are now left out, or that a pair has moved away.
        mapped, asked_at = self._mapped, time.monotonic()
        needed = retention.needed(target, copies | (mapped or frozenset()))
        then = retention.due(now, needed, all_known=mapped is not None)
        refused: dict[Wrong, ClusterError] = {}
        if then != now:
            wrong = Wrong(
                topic=topic,
                config=own_topics.RETENTION,
                now=str(now),
                then=str(then),
                loses=needed is not None and not retention.is_enough(now, needed),
            )
            refused = guarding.alter(target, [wrong])
        left = guarding.refusals(target, refused).values()
        self._tell(_RETENTION, [str(each) for each in left])
        if mapped is not None and not refused:
            self._kept = (asked_at, then)

    def _sync_groups(self, source: Cluster, target: Cluster) -> None:
        flow = self._flow
        copies = self._copies() if flow.emit_checkpoints else {}
        joint, merged = self._open_maps(source, target)
        joint.refresh(copies)
        self._mapped = frozenset(joint.known.partitions().values())
        if flow.emit_checkpoints:
            self._begin_to_follow(source)
            standing = look(source, target, self._filter, copies, joint)
            result, back = self._write(target, standing, copies, joint)
            self._due.surveyed(standing)
            if flow.sync_group_offsets and self._group_sync_due():
                wanted = {
                    g: k for g, k in result.known.items() if g not in back.refused
                }
                self._set_offsets(
                    target, merged.settable(wanted, standing, copies, joint), back
                )
            self._show(standing)
        if flow.emit_offset_syncs:
            on_source = flow.offset_syncs_location == "source"
            known = joint.known
            self._offset_syncs.sync(
                source if on_source else target, known, known.partitions()
            )
        self._keep_index(joint.known)

    def _keep_index(self, known: OffsetMap) -> None:
        """Without it, all else goes on: a failover only has more to read."""
        told = []
        try:
            known.keep_index(self._keeper)
        except MirrorError as error:
            told = [f"no index of the offset map is written: {error}"]
        self._tell(OFFSET_MAP, told)

    def _write(
        self,
        target: Cluster,
        standing: GroupsStanding,
        copies: Mapping[str, Copy],
        joint: JointMap,
        *,
        partly: bool = False,
    ) -> tuple[CheckpointsResult, GroupSyncResult]:
        due = self._checkpoints.decide(target, standing, joint, partly=partly)
        back = self._take_back(target, due, copies)
        result = self._checkpoints.write(
            due, waiting=back.waiting, refused=back.refused.keys()
        )
        self._report_groups(
            EventKind.GROUP_FOUND, "has its first checkpoints", result.found
        )
        self._report_groups(
            EventKind.GROUP_GONE, "is gone from the source", result.gone
        )
        return result, back

    def _begin_to_follow(self, source: Cluster) -> None:
        """Before a look at the groups, which then has what came before. Where commits
        cannot be followed, checkpoints are written with each look, as without it.
        """
        if self._follows_commits:
            try:
                self._commits.begin(source)
            except ClusterError as error:
                self._commits.stop(str(error))
            self._show_following()

    def _due_commits(
        self, topics: Collection[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Commits by group whose checkpoints are to be written now; `topics` are those
        that are copied.
        """
        try:
            self._due.add(self._commits.read(), topics)
        except ClusterError as error:
            self._commits.stop(str(error))
            self._show_following()
        skipped, text = self._due.undecodable, self._due.error
        if skipped and self._commits_throttle.due(text):
            log.warning("commits skipped", flow=self._flow.name, records=skipped,
                        error=text)  # fmt: skip
        return self._due.due()

    def _show_following(self) -> None:
        flow, why = self._flow, self._commits.reason
        if flow.follow_commits == "on":
            text = f"checkpoints do not follow commits on {flow.source}: {why}"
            self._tell("commits", [text] if why not in ("", NO_COMMITS) else [])
        self._store.update(
            flow.name, lambda status: replace(status, follows_commits=not why)
        )

    def _follow_commits(self, source: Cluster, target: Cluster) -> None:
        copies = self._copies()
        if not (commits := self._due_commits(copies)):
            return
        joint, _ = self._open_maps(source, target)
        joint.refresh(copies)
        # Partitions whose edges on the source matter are left to the next survey.
        places = translated(commits, copies, joint, edges={})
        standing = GroupsStanding(
            groups={}, places={name: tuple(found) for name, found in places.items()}
        )
        self._write(target, standing, copies, joint, partly=True)
        self._due.written(standing)
        at, followed = time.time(), standing.places.keys()
        self._store.update(
            self._flow.name,
            lambda flow: replace(
                flow,
                checkpoint_at=at,
                groups=tuple(
                    replace(each, position_at=at) if each.group in followed else each
                    for each in flow.groups
                ),
            ),
        )

    def _take_back(
        self, target: Cluster, due: Due, copies: Mapping[str, Copy]
    ) -> GroupSyncResult:
        """Move idle groups out of what is gone of their copies. Active groups commit
        their own offsets, and are left alone.
        """
        if not (due.withdrawn and self._flow.sync_group_offsets):
            return GroupSyncResult()
        known = {
            group: {key: due.known[group][key] for key in found}
            for group, found in due.withdrawn.items()
        }
        back = group_offset_sync.set_offsets(
            target, _of_one_writer(known, copies), due.withdrawn
        )
        self._report_moved(back.moved)
        return back

    def _set_offsets(
        self, target: Cluster, settable: Settable, back: GroupSyncResult
    ) -> None:
        """Set the offsets of all groups but those that could not move `back`."""
        done = group_offset_sync.set_offsets(target, settable.known)
        self._group_sync = replace(done, refused={**done.refused, **back.refused})
        self._synced_at = time.monotonic()
        self._report_moved(done.moved)
        self._tell("group offsets", problems(settable.refused))

    def _report_groups(self, kind: EventKind, what: str, names: Sequence[str]) -> None:
        for name in names[:_MOST_TOLD]:
            self._add(Event(kind=kind, subject=name, text=f"group {name} {what}"))
        if more := names[_MOST_TOLD:]:
            text = f"the same for {len(more)} more groups, such as {more[0]}"
            self._add(Event(kind=kind, text=text))

    def _report_moved(self, moved: Mapping[str, int]) -> None:
        if moved:
            self._add(
                Event(
                    kind=EventKind.GROUP_OFFSETS_SET,
                    text=f"offsets of {some(len(moved), 'group')} set, "
                    f"such as {min(moved)}",
                    details={"groups": dict(sorted(moved.items())[:_MOST_TOLD])},
                )
            )

    def _add(self, event: Event) -> None:
        flow = self._flow
        event = replace(event, flow=flow.name, cluster=flow.target)
        self._store.trail.add(event)

    def _group_sync_due(self) -> bool:
        pause = self._flow.sync_group_offsets_seconds or 0.0
        return time.monotonic() - self._synced_at >= pause

    def _open_maps(
        self, source: Cluster, target: Cluster
    ) -> tuple[JointMap, MergedGroups]:
        if self._maps is None or self._maps[0] != (source, target):
            known = OffsetMap.of(self._flow, target)
            joint = JointMap(self._flow, known, source, target)
            self._maps = (source, target), joint, MergedGroups(target)
            self._mapped = None
        return self._maps[1:]

    def _show(self, standing: GroupsStanding) -> None:
        sync = self._group_sync
        refused = {**(standing.refused or {}), **sync.refused}
        if refused:
            name, reason = next(iter(refused.items()))
            text = f"{len(refused)} groups, among them {name}: {reason}"
            if self._throttle.due(text):
                log.warning("groups left out", flow=self._flow.name, reason=text)
        else:
            self._throttle.clear()
        places = {
            **dict.fromkeys(refused.keys() & standing.groups.keys(), ()),
            **standing.places,
        }
        ends = {
            (each.topic, each.partition): each.end_offset
            for each in self._store.flow(self._flow.name).partitions
        }
        shown = [
            group_status(
                name,
                standing.groups[name].kind,
                found,
                reason=refused.get(name, ""),
                active=name in sync.active,
                ends=ends,
            )
            for name, found in places.items()
        ]
        shown.sort(key=by_trouble)
        at = time.time()
        self._store.update(
            self._flow.name,
            lambda flow: replace(
                flow,
                checkpoint_at=at,
                groups=positioned(shown[:_MOST_SHOWN], flow.groups, at),
                group_count=len(shown),
                share_groups=standing.not_covered,
            ),
        )

    def _sync_heartbeats(self, source: Cluster, target: Cluster) -> None:
        result = self._heartbeats.sync(source, target)
        self._store.update(
            self._flow.name,
            lambda flow: replace(
                flow,
                heartbeat_at=result.written_at,
                copied_heartbeat_at=result.copied_at,
            ),
        )
        if result.problem and self._heartbeat_throttle.due(result.problem):
            log.warning("no heartbeats on the source", flow=self._flow.name,
                        reason=result.problem)  # fmt: skip
        self._tell(
            HEARTBEATS,
            [f"no heartbeats on {self._flow.source}: {result.problem}"]
            if result.problem
            else [],
        )


def without_groups(flow: FlowStatus) -> FlowStatus:
    """A flow's status for groups and heartbeats before the jobs first ran."""
    return replace(
        flow,
        checkpoint_at=0.0,
        follows_commits=False,
        heartbeat_at=0.0,
        copied_heartbeat_at=0.0,
        groups=(),
        group_count=0,
        share_groups=(),
    )


def _of_one_writer(
    known: Mapping[str, Mapping[TopicPartition, Checkpoint]],
    copies: Mapping[str, Copy],
) -> dict[str, dict[TopicPartition, Checkpoint]]:
    """Offsets in copies that one flow writes: what is lost of others takes no group
    back, since what other flows wrote there may be there still.
    """
    merged = {copy.topic for copy in copies.values() if copy.merged}
    found = {
        group: {key: each for key, each in at.items() if key[0] not in merged}
        for group, at in known.items()
    }
    return {group: at for group, at in found.items() if at}


# ---- commits that were read from the source and whose checkpoints are still due ----
#
# Main type: `DueCommits`. A group's offset in a partition is due at most every other
# round, and again while its answer is BEHIND. Each survey of the groups knows what
# came before it, so what is left of that is dropped.


_GROUPS = 10_000
"""Whose names the filter has seen lately."""


class DueCommits:
    """Those of one flow."""

    def __init__(self, wanted: GroupFilter) -> None:
        self.undecodable = 0
        """Records so far that were skipped."""
        self.error = ""
        """What the last of them says."""
        self.of_other_types = 0
        """Records so far that are no commits."""
        self._matches = lru_cache(_GROUPS)(wanted.matches)
        self._due: dict[CommitKey, CommittedOffset] = {}
        self._just: set[CommitKey] = set()
        """Written in the last round."""
        self._seen: set[str] = set()
        self._hidden: set[str] = set()
        """Groups that commit, and that the source does not list to us."""

    def add(
        self, changes: Mapping[bytes, bytes | None], topics: Collection[str]
    ) -> None:
        """Changed records by key; `topics` are those that are copied."""
        for key, value in changes.items():
            try:
                if (found := decode_commit_key(key)) is None:
                    self.of_other_types += 1
                elif found.topic in topics and self._matches(found.group):
                    self._take(found, None if value is None else decode_commit(value))
            except CorruptBatchError as error:
                self.undecodable += 1
                self.error = str(error)

    def _take(self, key: CommitKey, committed: CommittedOffset | None) -> None:
        if committed is None:
            self._due.pop(key, None)
        elif key.group not in self._hidden:
            self._due[key] = committed
            self._seen.add(key.group)

    def due(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """By group, as `groups.translated` takes them."""
        just, self._just = self._just, set()
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for key, committed in self._due.items():
            if key not in just:
                found.setdefault(key.group, {})[key.topic, key.partition] = committed
        return found

    def written(self, standing: GroupsStanding) -> None:
        """What was due has its checkpoints."""
        for group, places in standing.places.items():
            for place in places:
                key = CommitKey(group, place.topic, place.partition)
                self._just.add(key)
                if place.translated.exactness is not Exactness.BEHIND:
                    del self._due[key]

    def surveyed(self, standing: GroupsStanding) -> None:
        """The survey has written the checkpoints of all groups."""
        known = {
            CommitKey(group, place.topic, place.partition): place.upstream
            for group in {key.group for key in self._due}
            for place in standing.places.get(group, ())
        }
        self._due = {
            key: committed
            for key, committed in self._due.items()
            if known.get(key) == committed.offset
        }
        hidden = (self._seen | self._hidden) - standing.groups.keys()
        if len(hidden) > _GROUPS:  # a forgotten one is followed until the next survey
            hidden = self._seen - standing.groups.keys()
        self._hidden = hidden
        self._seen.clear()


# ---- reads the source's `__consumer_offsets` as groups commit, if mirror may ----
#
# Main type: `CommitReader`, over all partitions, from their ends on. It follows their
# leaders. What it cannot read (a leader that is down, a damaged batch, what came
# before the end) the next survey of the groups has. Open transactions hold up
# nothing: `offsets.commits` knows what counts; it and the kernels behind it load with
# the first commit, since a start need not wait for them.


_PURPOSE = "commits"
_ASK_AGAIN_SECONDS = 60.0
"""Brokers may log each time that a right is missing."""
_READ_SECONDS = 2.0
"""For one call; the next one continues."""
_FETCH_BYTES, _PARTITION_BYTES = 4 << 20, 1 << 20
_OFFSET_OUT_OF_RANGE = 1
_NOT_STARTED = "not read yet"
NO_COMMITS = f"there is no {COMMITS_TOPIC} yet"
"""A reason that is no problem: the cluster makes its topic with the first commit."""


class CommitReader:
    """One reader of a source. Not thread-safe, like its cluster."""

    def __init__(self) -> None:
        self.reason = _NOT_STARTED
        """Why it does not follow; empty while it does."""
        self._source: Cluster | None = None
        self._topic: Topic | None = None
        """None: ask for the leaders."""
        self._topic_id = NO_ID
        self._logs: dict[int, CommitLog] = {}
        self._positions: dict[int, int] = {}
        self._ask_at = -float("inf")
        self._rows: Rows | None = None
        self._throttle = LogThrottle()

    def begin(self, source: Cluster) -> None:
        """Follow the partitions that are not followed, from their ends. For what came
        before, look at the groups after this.

        Raises:
            ClusterError: the source does not answer, or refuses.
        """
        if source is not self._source:
            self.stop(_NOT_STARTED)
            self._source = source
        if self.reason:
            if time.monotonic() < self._ask_at:
                return
            told = allowed.of_topics(source, [COMMITS_TOPIC])[COMMITS_TOPIC]
            if told is not None and "READ" not in told:
                self._ask_at = time.monotonic() + _ASK_AGAIN_SECONDS
                self.reason = f"no READ on topic {COMMITS_TOPIC}"
                return
            if source.topic(COMMITS_TOPIC) is None:
                self.reason = NO_COMMITS
                return
        topic = self._look(source)
        missing = [
            (COMMITS_TOPIC, p) for p in topic.leaders if p not in self._positions
        ]
        ends = topic_admin.list_offsets(
            source, missing, timestamp=topic_admin.LATEST, committed=False
        )
        for (_, partition), end in ends.items():
            self._positions[partition] = end
        self.reason = ""

    def stop(self, reason: str) -> None:
        """Follow no more, until `begin`."""
        self.reason = reason
        self._topic = None
        self._logs.clear()
        self._positions.clear()

    def read(self) -> dict[bytes, bytes | None]:
        """What has changed since the last call: values of commits by key, null if one
        is gone.

        A partition that is not read to its end has nothing to say: a survey in between
        may know newer commits.

        Raises:
            ClusterError: the source does not answer, or refuses.
        """
        if self.reason or self._source is None:
            return {}
        topic = self._look(self._source)
        at_end: set[int] = set()
        behind: Collection[int] = tuple(self._positions)
        deadline = time.monotonic() + _READ_SECONDS
        while behind and time.monotonic() < deadline:
            answered = dict(self._ask(self._source, topic, behind))
            at_end.update(p for p, ends in answered.items() if ends)
            behind = [p for p, ends in answered.items() if not ends]
        fresh: dict[bytes, bytes | None] = {}
        for partition in at_end & self._logs.keys():
            fresh.update(self._logs[partition].take())
        return fresh

    def _look(self, source: Cluster) -> Topic:
        """The leaders; another topic of the name is followed from its end."""
        if self._topic is None:
            topic = source.topics([COMMITS_TOPIC])[COMMITS_TOPIC]
            if topic.error != codes.NONE:
                what = f"cluster {source.alias}: reading {COMMITS_TOPIC}"
                raise codes.error_for(topic.error, what)
            if topic.topic_id != self._topic_id:
                self._topic_id = topic.topic_id
                self._logs.clear()
                self._positions.clear()
            self._topic = topic
        return self._topic

    def _forget(self, partition: int) -> None:
        self._logs.pop(partition, None)
        self._positions.pop(partition, None)

    def _ask(
        self, source: Cluster, topic: Topic, partitions: Collection[int]
    ) -> Iterator[tuple[int, bool]]:
        """The partitions that were read, and whether to their ends."""
        by_node: dict[int, list[fetch.Wanted]] = {}
        for partition in partitions:
            leader = topic.leaders[partition]
            wanted = fetch.Wanted(
                topic=COMMITS_TOPIC,
                partition=partition,
                offset=self._positions[partition],
                leader_epoch=leader.epoch,
            )
            by_node.setdefault(leader.node, []).append(wanted)
        if by_node.pop(-1, None):
            self._topic = None
        pending = []
        for node, asked in by_node.items():
            request = fetch.encode(
                asked,
                isolation=fetch.READ_UNCOMMITTED,
                max_wait_ms=0,
                max_bytes=_FETCH_BYTES,
                partition_max_bytes=_PARTITION_BYTES,
            )
            try:
                connection = source.connection(node, _PURPOSE)
                pending.append(
                    connection.send_buffers(
                        fetch.API_KEY, fetch.VERSION, [request], flexible=False
                    )
                )
            except UnreachableError as error:
                self._warn(error)
        for each in pending:
            try:
                body = each.result()
            except UnreachableError as error:
                self._warn(error)
                continue
            buffer = np.frombuffer(body, np.uint8)
            parts = fetch.decode(body)
            for fetched in error_counts.noting(source.alias, parts):
                if (ends := self._take(buffer, fetched)) is not None:
                    yield fetched.partition, ends

    def _take(self, buffer: Buffer, fetched: Fetched) -> bool | None:
        """Whether it is read to its end; None if it cannot be read now."""
        partition = fetched.partition
        if fetched.error == codes.TOPIC_AUTHORIZATION_FAILED:
            raise codes.error_for(fetched.error, f"reading {COMMITS_TOPIC}")
        if fetched.error != codes.NONE:
            self._topic = None
            if fetched.error == _OFFSET_OUT_OF_RANGE:
                self._forget(partition)
            return None
        position = self._positions[partition]
        if fetched.start == fetched.end:
            return position >= fetched.high_watermark
        from mirror.offsets.consumer_offsets_topic import CommitLog  # noqa: PLC0415
        from mirror.records import batch, former  # noqa: PLC0415  see the first lines

        if self._rows is None:
            self._rows = batch.scratch()
        try:
            buffer, start, end = former.modern(buffer, fetched.start, fetched.end)
            found = batch.read(
                buffer,
                start,
                end,
                position=position,
                aborted=(),
                scratch=self._rows,
            )
            if found.seen is not None:
                known = self._logs.setdefault(partition, CommitLog())
                known.read(buffer, found.seen, position)
        except CorruptBatchError as error:
            self._warn(error)
            self._forget(partition)
            return None
        self._positions[partition] = found.next_offset
        return found.next_offset >= fetched.high_watermark

    def _warn(self, error: Exception) -> None:
        assert self._source is not None
        self._topic = None
        if self._throttle.due(str(error)):
            log.warning("commits are not followed for now", error=str(error),
                        cluster=self._source.alias)  # fmt: skip


# ---- the statuses of a flow's groups, from one look at them ----
#
# Main functions: `group_status`, one group's; `by_trouble`, by which they are sorted;
# and `positioned`, since when their positions on the target have been as old as they
# are. Pure.


_WORST = (
    Exactness.UNKNOWN,
    Exactness.BEFORE,
    Exactness.EARLIER,
    Exactness.BEHIND,
    Exactness.TIP,
    Exactness.EXACT,
)


def group_status(
    name: str,
    kind: str,
    places: tuple[GroupPosition, ...],
    *,
    reason: str,
    active: bool,
    ends: Mapping[tuple[str, int], int],
) -> GroupStatus:
    """A group's status; `positioned` adds the time. `ends`: where source partitions
    end, -1 as long as that is not known.
    """
    ahead = [
        max(end - place.upstream, 0)
        for place in places
        if (end := ends.get((place.topic, place.partition), -1)) >= 0
    ]
    kinds = [place.translated.exactness for place in places]
    return GroupStatus(
        group=name,
        type=str(kind),
        partitions=len(places),
        source_offset=sum(place.upstream for place in places),
        target_offset=sum(max(place.downstream, 0) for place in places),
        behind=sum(place.behind for place in places),
        unknown=kinds.count(Exactness.UNKNOWN),
        exactness=str(min(kinds, key=_WORST.index, default=Exactness.UNKNOWN)),
        active_on_target=active,
        reason=reason,
        lag=sum(ahead) if places and len(ahead) == len(places) else -1,
    )


def positioned(
    shown: Sequence[GroupStatus], before: Sequence[GroupStatus], at: float
) -> tuple[GroupStatus, ...]:
    """With the time of this look, or of an earlier one if it says nothing new."""
    last = {each.group: each.position_at for each in before}
    return tuple(
        replace(
            each,
            position_at=last.get(each.group, 0.0)
            if each.reason or each.unknown == each.partitions
            else at,
        )
        for each in shown
    )


def by_trouble(status: GroupStatus) -> tuple[bool, int, int, str]:
    """A key by which groups in trouble come first."""
    worst = _WORST.index(Exactness(status.exactness))
    return (not status.reason, worst, -status.behind, status.group)
