"""The topics of a flow: which it copies now, and what keeps their copies as they are.

Main types: `CopiedTopics`, which looks for topics on both clusters and passes them,
without the paused ones, to the run's leases; `TopicChanges`, which compares them with
those found before; and `TopicJobs`, the jobs that keep configs and ACLs of copies in
sync and guard mirror's own topics. `flow` decides when to look for topics, `scheduler`
when jobs run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
import math
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror.clusters import codes
from mirror.clusters.reach import Reach
from mirror.config import own_topics, scopes
from mirror.errors import ClusterError
from mirror.offsets.groups import copy_of
from mirror.offsets.progress import RunningCount
from mirror.pairs.control import Pauses, PausesReader
from mirror.policy.selection import select_topics
from mirror.service.scheduler import Job
from mirror.status.events import Event, EventKind
from mirror.status.states import AclState
from mirror.status.values import AclStatus
from mirror.topics import acls, configs, guarding, topics
from mirror.topics.merging import Merging, by_role
from mirror.topics.topics import MirroredTopic, TopicsResult, about_unmatched

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from mirror.clusters.admin.acls import Binding
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.groups import Copy
    from mirror.offsets.progress import Progress
    from mirror.pairs.control import Repair
    from mirror.service.flow_status import Problems
    from mirror.status.store import StatusStore
    from mirror.topics.guarding import Wrong


TOPICS = "topics"
"""The key under which `Problems` keeps the problems of topics."""


class CopiedTopics:
    """The topics of one flow, across its runs."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        problems: Problems,
        created: Callable[[], None],
        copy: Callable[[TopicsResult, Pauses], None],
    ) -> None:
        """`created` is called after target topics were created; `copy` gets the topics
        to copy from now on.
        """
        self._store = store
        self._problems = problems
        self._created = created
        self._copy = copy
        self._changes = TopicChanges(flow, store)
        self._found = TopicsResult(topics=())
        self._paused = Pauses()
        self._pauses: PausesReader | None = None
        self._repairs_known = False
        self._repair: Repair | None = None
        self._lock = threading.Lock()
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use new settings from the next look on."""
        self._flow = flow
        self._merging = Merging(config.enabled_flows)
        self._changes.adopt(flow)

    def begin(self, target: Cluster) -> None:
        """Start a run: read which topics are paused."""
        reader = PausesReader(target, self._flow)
        self._paused = reader.read()
        if self._repairs_known:  # a repair ends a run
            self._tell_of(reader.repair)
        self._repair, self._repairs_known = reader.repair, True
        self._changes.begin()

    def remember(self, known: Progress) -> None:
        """Take note of the topics that earlier runs copied, from their progress."""
        self._changes.remember(known)

    def look(self, source: Cluster, target: Cluster) -> TopicsResult:
        """Look for topics once, and report what changed."""
        found = topics.sync(source, target, self._flow)
        self._tell(EventKind.TOPIC_CREATED, "created", found.created)
        self._tell(EventKind.TOPIC_GROWN, "has more partitions", found.grown)
        if found.created:
            # Several flows may write to one topic, and must agree on its configs.
            self._created()
        wanted, problems = self._changes.look(source, target, found)
        self._problems.tell(TOPICS, problems)
        return wanted

    def follow_pauses(self, _source: Cluster, target: Cluster) -> None:
        """Pause and resume topics as users have asked."""
        if self._pauses is None or self._pauses.target is not target:
            self._pauses = PausesReader(target, self._flow)
        paused = self._pauses.read()
        if paused != self._paused:
            self._store.trail.add(paused.event(self._flow.name))
        self._paused = paused
        self._tell_of(self._pauses.repair)
        self.copy(self._found)

    def copy(self, found: TopicsResult) -> None:
        """Copy these topics from now on, except paused ones."""
        with self._lock:
            self._found = found
            self._copy(found, self._paused)

    def names(self) -> set[str]:
        """The names of the copied source topics, as of the last look."""
        return {each.topic for each in self._found.topics}

    def copies(self) -> dict[str, Copy]:
        """The copied topics, as of the last look."""
        return {
            each.topic: copy_of(
                self._flow,
                each.topic,
                each.target_topic,
                each.partitions,
                self._merging,
            )
            for each in self._found.topics
        }

    def _tell_of(self, repair: Repair | None) -> None:
        if repair is not None and repair != self._repair:
            self._store.trail.add(repair.event())
        self._repair = repair

    def _tell(self, kind: EventKind, what: str, names: Sequence[str]) -> None:
        for name in names:
            self._store.trail.add(
                Event(kind=kind, flow=self._flow.name, cluster=self._flow.target,
                      subject=name, text=f"target topic {name} {what}")
            )  # fmt: skip


# ---- detects topics that were deleted, re-created, or hidden from us ----
#
# Main type: `TopicChanges`, which remembers the topics found before, including
# those of earlier runs, compares each look with them, reports what changed, and
# returns what to copy from now on. `mirror.topics` finds topics and creates copies.


_NO_IDS = {"", "0" * 32}
"""Old brokers have no topic ids, and old progress records may have none either."""


class TopicChanges:
    """The known topics of one flow."""

    def __init__(self, flow: FlowConfig, store: StatusStore) -> None:
        self._flow = flow
        self._store = store
        self._known: dict[str, MirroredTopic] = {}
        self._created: set[str] = set()
        """Copies that this run has created."""
        self._remade: set[str] = set()
        """Those of them that were there before."""
        self._same: frozenset[str] = frozenset()
        """Copies with their topics' offsets: one that is gone is copied again."""
        self._not_yet: set[str] = set()
        """Copies that no look has seen, since they could not be created."""
        self._unmatched: tuple[str, ...] = ()

    def adopt(self, flow: FlowConfig) -> None:
        """Use new settings from the next look on."""
        self._flow = flow

    def begin(self) -> None:
        """Start a run: drop problems that were already reported."""
        self._created.clear()
        self._remade.clear()

    def remember(self, known: Progress) -> None:
        """Take note of the topics that were copied before, from their progress."""
        ids = {key: each.topic_id.hex for key, each in known.positions.items()}
        # A position alone may come from `start`, or from a switch.
        copied = {key[0] for key, count in known.running.items() if _has_copied(count)}
        name = self._flow.replication_policy.target_topic
        self._same = frozenset(
            name(topic)
            for topic, note in known.terms.items()
            if self._flow.offsets == "same" and note.ended is None
        )
        for topic in remembered(self._flow, ids):
            now = self._known.setdefault(topic.topic, topic)
            self._tell_recreated(topic, now)
            if topic.topic in copied and not _is_another(topic, now):
                self._remade |= {topic.target_topic} & self._created

    def look(
        self, source: Cluster, target: Cluster, found: TopicsResult
    ) -> tuple[TopicsResult, tuple[str, ...]]:
        """What to copy, and all problems with it.

        Hidden topics are still copied: their partitions report what is missing.

        Raises:
            ClusterError: a cluster does not answer.
        """
        missing = absent_topics(
            source, target, self._flow, self._known.values(), found.topics
        )
        for pattern in found.unmatched:
            if pattern not in self._unmatched:
                told = about_unmatched(pattern, self._flow, source.topics())
                log.warning(told, flow=self._flow.name)
        self._unmatched = found.unmatched
        copies = {topic.target_topic for topic in self._known.values()} - self._not_yet
        self._not_yet = set(found.missing) - copies
        self._remade |= copies.intersection(found.created)
        self._created.update(found.created)
        for topic in found.topics:
            self._tell_recreated(self._known.get(topic.topic, topic), topic)
        self._tell_gone(missing)
        for topic in missing.ended:
            del self._known[topic.topic]
        self._known |= {topic.topic: topic for topic in found.topics}
        wanted = replace(found, topics=(*found.topics, *missing.hidden))
        remade = (
            f"target topic {name} was gone and has been re-created without its "
            "earlier records: `mirror flow reset` copies them again"
            for name in sorted(self._remade - self._same)
        )
        return wanted, (*found.problems, *remade)

    def _tell_recreated(self, before: MirroredTopic, now: MirroredTopic) -> None:
        if _is_another(before, now):
            self._store.trail.add(
                Event(
                    kind=EventKind.TOPIC_RECREATED,
                    flow=self._flow.name,
                    cluster=self._flow.source,
                    subject=now.topic,
                    text=f"source topic {now.topic} was deleted and re-created",
                    details={"on_recreated_topic": self._flow.on_recreated_topic},
                )
            )

    def _tell_gone(self, missing: Absent) -> None:
        status = self._store.flow(self._flow.name)
        lags: Counter[str] = Counter()
        for each in status.partitions:
            lags[each.topic] += each.lag
        stay = {
            each.topic: f"source topic {each.topic} was deleted; its copy "
            f"{each.target_topic} stays"
            for each in missing.gone
        }
        # One that ended long ago is known from progress alone, and no news.
        news = stay | {
            each.topic: f"source topic {each.topic} was deleted, and its copy "
            f"{each.target_topic}, too"
            for each in missing.ended
            if each.topic in lags
        }
        for topic, text in news.items():
            if text not in status.gone:
                self._store.trail.add(
                    Event(
                        kind=EventKind.TOPIC_GONE,
                        flow=self._flow.name,
                        cluster=self._flow.source,
                        subject=topic,
                        text=text,
                        details={"not_copied": lags[topic]},
                    )
                )
        gone = tuple(stay.values())
        self._store.update(self._flow.name, lambda flow: replace(flow, gone=gone))


def _is_another(before: MirroredTopic, now: MirroredTopic) -> bool:
    """Whether the source's topic was deleted and re-created in between."""
    ids = {before.topic_id, now.topic_id}
    return len(ids) > 1 and not ids & _NO_IDS


# ---- mirrored topics that are no longer found: deleted, or hidden from us ----
#
# One function, `absent_topics`, which asks the source about each by name and returns
# a frozen `Absent`. The copy of a deleted topic stays as it is, and the flow
# remembers the topic for as long as there is a copy; a topic that we may no longer
# see stays in the flow, so that its partitions show what is missing.


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """What happened to topics that were found before."""

    gone: tuple[MirroredTopic, ...] = ()
    """Deleted at the source."""
    ended: tuple[MirroredTopic, ...] = ()
    """Deleted at the source, and their copies at the target."""
    hidden: tuple[MirroredTopic, ...] = ()
    """Deleted or not: the source does not let us see them."""


def absent_topics(
    source: Cluster,
    target: Cluster,
    flow: FlowConfig,
    known: Iterable[MirroredTopic],
    found: Iterable[MirroredTopic],
) -> Absent:
    """Ask what happened to `known` topics that are not `found` now. Those that the
    flow no longer wants are left out.

    Raises:
        ClusterError: a cluster does not answer.
    """
    there = {topic.topic for topic in found}
    missing = {topic.topic: topic for topic in known if topic.topic not in there}
    if not missing:
        return Absent()
    chosen = select_topics(
        missing, flow.topic_filter, flow.replication_policy, flow.target
    )
    shown = source.topics([mapping.topic for mapping in chosen.mappings])
    gone = set(_deleted(shown))
    copies = {missing[name].target_topic: name for name in gone}
    ended = {copies[copy] for copy in _deleted(target.topics(copies) if gone else {})}
    hidden = {
        name
        for name, topic in shown.items()
        if topic.error not in (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION)
    }
    return Absent(
        gone=tuple(missing[name] for name in sorted(gone - ended)),
        ended=tuple(missing[name] for name in sorted(ended)),
        hidden=tuple(missing[name] for name in sorted(hidden)),
    )


def _deleted(shown: Mapping[str, Topic]) -> Iterator[str]:
    for name, topic in shown.items():
        if topic.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
            yield name


def _has_copied(count: bytes) -> bool:
    """Whether a running count says that records were copied."""
    running = RunningCount.decode(count)
    return running is not None and running.counts.records > 0


def remembered(
    flow: FlowConfig, ids: Mapping[tuple[str, int], str]
) -> tuple[MirroredTopic, ...]:
    """The topics of copied partitions, which are given with their topic ids in hex."""
    topics: dict[str, MirroredTopic] = {}
    chosen = select_topics(
        {topic for topic, _ in ids},
        flow.topic_filter,
        flow.replication_policy,
        flow.target,
    )
    names = {mapping.topic: mapping.target_topic for mapping in chosen.mappings}
    for (topic, partition), topic_id in ids.items():
        if topic not in names:
            continue
        count = topics[topic].partitions if topic in topics else 0
        topics[topic] = MirroredTopic(
            topic=topic,
            target_topic=names[topic],
            partitions=max(count, partition + 1),
            topic_id=topic_id,
        )
    return tuple(topics.values())


# ---- configs, ACLs, and topics of mirror itself ----


CONFIGS = "topic-configs"
ACLS = "topic-acls"
OWN = "own-topics"
_OWN_SECONDS, _RECENT_SECONDS = 60.0, 300.0
"""Brokers look every five minutes for what they may delete."""

log = structlog.get_logger()


class TopicJobs:
    """The jobs of one flow, for all of its runs."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        tell: Callable[[str, Sequence[str]], None],
        passive: Callable[[], Collection[str]] = frozenset,
        narrowed: Callable[[FlowConfig], FlowConfig] = lambda flow: flow,
        unsafe: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` receives a job's name and its current problems. `passive`: the names
        of flows out of clusters that are not active now; `narrowed`: a flow with what
        it copies now. `unsafe` is called if the flow must not go on copying.
        """
        self._unsafe = unsafe
        self._guarded_at = -math.inf
        self._passive = passive
        self._narrowed = narrowed
        self._store = store
        self._tell = tell
        self._acls = AclStatus()
        self._corrected: frozenset[str] = frozenset()
        """Configs that the last round changed, in words."""
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use other settings from each job's next run on."""
        self._flow = flow
        self._config = config
        self._clusters = config.clusters
        self._flows = tuple(config.enabled_flows)
        if flow.sync_topic_acls == (self._acls.state is AclState.OFF):
            waiting = AclState.WAITING if flow.sync_topic_acls else AclState.OFF
            self._acls = replace(self._acls, state=waiting, reason="")
        self._show_acls()

    def jobs(self) -> list[Job]:
        flow = self._flow
        found = [
            Job(
                name=CONFIGS,
                seconds=flow.sync_topic_configs_seconds,
                work=self._sync_configs,
                waits=True,
            ),
            self.guard(),
        ]
        if flow.sync_topic_acls:
            found.append(
                Job(
                    name=ACLS,
                    seconds=flow.sync_topic_acls_seconds,
                    work=self._sync_acls,
                    waits=True,
                )
            )
        return found

    def guard(self) -> Job:
        """The one that a flow has that copies nothing, too."""
        return Job(name=OWN, seconds=_OWN_SECONDS, work=self._guard)

    def require_guarded(self, source: Cluster, target: Cluster) -> None:
        """Correct mirror's own topics, unless that was done lately: after a fault, runs
        begin without it.

        Raises:
            ClusterError: one of them may lose what a run relies on, and cannot be
                corrected.
        """
        if time.monotonic() - self._guarded_at < _RECENT_SECONDS:
            return
        if unsafe := self._correct(source, target):
            raise ClusterError("; ".join(unsafe))

    def _guard(self, source: Cluster, target: Cluster) -> None:
        if self._correct(source, target):
            self._unsafe()

    def _correct(self, source: Cluster, target: Cluster) -> list[str]:
        """Returns why no run may copy."""
        problems: list[str] = []
        unsafe: list[str] = []
        every = own_topics.of_flow(self._config, self._flow)
        for cluster in (source, target):
            found = guarding.correct(
                cluster, [each for each in every if each.alias == cluster.alias]
            )
            for wrong in found.corrected:
                self._store.trail.add(corrected(cluster, wrong, self._flow.name))
            problems += map(str, found.left)
            unsafe += map(str, found.unsafe)
        self._tell(OWN, problems)
        self._guarded_at = -math.inf if unsafe else time.monotonic()
        return unsafe

    def _sync_configs(self, source: Cluster, target: Cluster) -> None:
        name = self._flow.name
        flows = map(self._narrowed, self._flows)
        merging = Merging(by_role(flows, self._passive()))
        work = configs.sync if self._flow.sync_topic_configs else configs.look
        with Reach(self._clusters, client_id=f"mirror.{name}") as reach:
            found = work(source, target, self._flow, merging, reach)
        in_vain = [each for each in found.corrected if each in self._corrected]
        self._corrected = frozenset(found.corrected)
        for change in sorted(self._corrected.difference(in_vain)):
            self._store.trail.add(
                Event(
                    kind=EventKind.CONFIG_CHANGED,
                    flow=name,
                    cluster=self._flow.target,
                    subject=change.partition(": ")[0],
                    text=f"config of copy {change}",
                )
            )
        self._store.update(name, lambda flow: replace(flow, drift=found.drift))
        taken = (
            f"config of copy {each}: the cluster took it, and does not have it now: if "
            "no one changes it back, leave it out with config_properties_exclude"
            for each in in_vain
        )
        self._tell(CONFIGS, [*found.problems, *taken])

    def _sync_acls(self, source: Cluster, target: Cluster) -> None:
        name = self._flow.name
        whole = next(flow for flow in self._flows if flow.name == name)
        # ACLs of topics that a named pair has moved are no matter of this flow now.
        rests = partial(scopes.left_alone, whole, self._flow)
        found = acls.sync(source, target, self._flow, rests=rests)
        self._tell_acls(EventKind.ACL_ADDED, "ACL added", found.added)
        self._tell_acls(EventKind.ACL_REMOVED, "ACL removed", found.removed)
        if found.reason and found.reason != self._acls.reason:
            log.info("ACLs are not synced", flow=name, reason=found.reason)
        self._acls = replace(
            self._acls,
            state=found.state,
            reason=found.reason,
            bindings=len(found.wanted),
            added=self._acls.added + len(found.added),
            removed=self._acls.removed + len(found.removed),
        )
        self._show_acls()
        not_permitted = found.state is AclState.NOT_PERMITTED
        self._tell(ACLS, [found.reason] if not_permitted else found.problems)

    def _show_acls(self) -> None:
        self._store.update(self._flow.name, lambda flow: replace(flow, acls=self._acls))

    def _tell_acls(
        self, kind: EventKind, what: str, bindings: Sequence[Binding]
    ) -> None:
        for binding in bindings:
            self._store.trail.add(
                Event(
                    kind=kind,
                    flow=self._flow.name,
                    cluster=self._flow.target,
                    subject=binding.topic,
                    text=f"{what}: {binding}",
                )
            )


def corrected(cluster: Cluster, wrong: Wrong, flow: str = "") -> Event:
    """What tells that one of mirror's own topics was corrected."""
    text = f"config of {wrong.topic.name} corrected: {wrong}"
    compacted = wrong.config == own_topics.POLICY and wrong.then == "compact"
    if compacted and (first := guarding.begins_at(cluster, wrong.topic.name)):
        text += f"; what stood before its offset {first} is deleted"
    return Event(
        kind=EventKind.CONFIG_CHANGED,
        flow=flow,
        cluster=cluster.alias,
        subject=wrong.topic.name,
        text=text,
    )
