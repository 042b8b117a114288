"""Takes a flow away: what it keeps on both clusters, and the ACLs that it has set.

Main type: `Removal`. Its `look` says what goes and what stays, each with the reason,
and changes nothing; `remove` does it. First it fences every run and marks the flow in
its progress, so that no run begins any more (`ownership`); the topic with that mark
goes last. So a removal that was killed is ended by another one, which does the same.

What others use stays. They are found in the configuration, and on the clusters: other
flows have progress there, which names the id of their source; heartbeats name flows;
what somebody still writes to is not this flow's. Copies stay unless asked for. Then
only those go whose names say that they are copies, and which the offset map names by
their ids, or which are empty.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import StrEnum
import time
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.config import own_topics
from mirror.copying.target import owner_id
from mirror.errors import (
    AuthorizationError,
    ClusterError,
    CorruptBatchError,
    FencedError,
    MirrorError,
)
from mirror.offsets import progress, runs, standby
from mirror.offsets.heartbeats import Heartbeat
from mirror.offsets.translation import MapFollower
from mirror.pairs import selection
from mirror.records.reading import TopicReader
from mirror.schemas.claims import SchemaClaims
from mirror.service import ownership
from mirror.status.wording import named, some
from mirror.topics import acls, fences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.own_topics import Kind, OwnTopic
    from mirror.config.schema import FlowConfig, MirrorConfig

_WATCH_SECONDS = 7.0
"""A running service writes to the standby topic every five."""
_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.1
_OF_MM2 = (own_topics.CHECKPOINTS, own_topics.OFFSET_SYNCS, own_topics.HEARTBEATS)
"""What other tools write, too."""
_GONE = codes.UNKNOWN_TOPIC_OR_PARTITION


class Action(StrEnum):
    """What a removal does with a part."""

    REMOVE = "remove"
    RETURN = "give back"
    """An ACL that was there before the flow took it away."""
    STAY = "stay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something that a flow has left on a cluster."""

    cluster: str
    kind: str
    name: str
    action: Action
    why: str
    topic: Topic | None = None
    """If it is one that goes."""


def require_alone(config: MirrorConfig, flow: FlowConfig) -> None:
    """
    Raises:
        MirrorError: the flow belongs to a pair, which would lose it.
    """
    pairs = [each.name for each in config.pairs_of(flow.source, flow.target)]
    if pairs:
        raise MirrorError(
            f"flow {flow.name} belongs to the pair {named(pairs)}: take that out of "
            "`recovery` first"
        )
    if (pair := config.pair_feeding(flow.source, flow.target)) is not None:
        raise MirrorError(
            f"flow {flow.name}: the pair {pair.name} feeds {flow.target}: take that "
            "out of its `feeds` first"
        )


class Removal:
    """Of one flow. Not thread-safe, like its clusters."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        source: Cluster | None,
        target: Cluster,
        *,
        copies: bool,
    ) -> None:
        """`source`: None leaves there what is there. `flow`: as it is or was in a file.
        `copies`: whether these go as well.

        Raises:
            MirrorError: the flow has copied from another cluster than this source, or
                the target does not answer.
        """
        self._config = config
        self._flow = flow
        self._ends = {each.alias: each for each in (source, target) if each is not None}
        self._target = target
        ids = self._generation().source_ids
        if source is not None and source.cluster_id and ids:
            _require_same(flow, source, ids)
        kinds = own_topics.PROGRESS, own_topics.LOSSES, own_topics.STANDBY
        names = [kind.named(flow.source) for kind in kinds]
        shown = target.topics(names)
        self._has_run = any(shown[each].error != _GONE for each in names)
        self._takes_copies = copies
        self._written: frozenset[tuple[str, str]] = frozenset()
        self._running: frozenset[str] = frozenset()

    # ---- whether a service runs it ----

    def runs_at(self) -> str:
        """Who runs the flow, in words; empty if no service does. It watches for seven
        seconds, unless there is nothing to watch.

        Raises:
            ClusterError: the target does not answer.
        """
        if found := self._leaders():
            return f"the service {named(sorted(found))} runs it"
        name = standby.topic_name(self._flow.source)
        if not self._has_run:
            return ""
        before = self._log_ends()
        time.sleep(_WATCH_SECONDS)
        after = self._log_ends()
        self._written = frozenset(
            key for key, end in after.items() if end != before.get(key, end)
        )
        grew = (self._target.alias, name) in self._written
        return f"a service runs it, and writes to {name}" if grew else ""

    def _leaders(self) -> frozenset[str]:
        known = {self._config.service.group or "", self._generation().group}
        return frozenset().union(
            *(
                ownership.leaders(self._flow.name, group, self._target)
                for group in known
            )
        )

    def _log_ends(self) -> dict[tuple[str, str], int]:
        """Of topics that only a service writes, by alias and name."""
        found: dict[tuple[str, str], int] = {}
        for alias, cluster in self._ends.items():
            mine = self._own_on(cluster)
            names = [each.name for each, shown in mine if shown.error == codes.NONE]
            ends = topic_admin.list_offsets(
                cluster,
                [(name, 0) for name in names],
                timestamp=topic_admin.LATEST,
                committed=False,
            )
            found.update({(alias, name): end for (name, _), end in ends.items()})
        return found

    # ---- what goes, and what stays ----

    def look(self) -> tuple[Part, ...]:
        """All parts, those of mirror's own topics in the order of their deletion.

        Raises:
            MirrorError: another flow has the same topics, a cluster does not answer, or
                what is kept there is damaged.
        """
        if others := selection.others_noted(self._flow, self._target):
            raise MirrorError(
                f"flow {self._flow.name}: {named(others)} keeps its state in the same "
                f"topics of {self._target.alias}: its target is the same cluster under "
                "another alias. Nothing was changed"
            )
        found = [*self._copies(), *self._acls()]
        for cluster in self._ends.values():
            mine = [*self._own_on(cluster)]
            found += [self._own_part(topic, cluster, shown) for topic, shown in mine]
        return (*found, *self._staying())

    def _own_on(self, cluster: Cluster) -> Iterator[tuple[OwnTopic, Topic]]:
        wanted = [
            topic
            for topic in dict.fromkeys(own_topics.left_by(self._flow))
            if topic.alias == cluster.alias
        ]
        shown = cluster.topics([topic.name for topic in wanted])
        for topic in wanted:
            if shown[topic.name].error != _GONE:
                yield topic, shown[topic.name]

    def _own_part(self, topic: OwnTopic, cluster: Cluster, shown: Topic) -> Part:
        why = "mirror may not see whether it is there"
        if shown.error != codes.TOPIC_AUTHORIZATION_FAILED:
            why = self._why_stays(topic, cluster)
        return Part(
            cluster=topic.alias,
            kind=topic.kind.purpose,
            name=topic.name,
            action=Action.STAY if why else Action.REMOVE,
            why=why or "no other flow uses it",
            topic=None if why else shown,
        )

    def _why_stays(self, topic: OwnTopic, cluster: Cluster) -> str:
        """Why one of mirror's topics stays; empty if it goes."""
        kind = topic.kind
        users = [
            other.name
            for other in self._config.enabled_flows
            if other.name != self._flow.name
            for used in own_topics.of_flow(self._config, other)
            if (used.alias, used.name) == (topic.alias, topic.name)
        ]
        if kind in (own_topics.OFFSET_SYNCS, own_topics.HEARTBEATS):
            users += self._back()
        if kind is own_topics.OFFSET_SYNCS and cluster is not self._target:
            users += self._beside()
        if users:
            return f"{named(sorted(set(users)))} uses it, too"
        if kind in _OF_MM2 and not self._has_run:
            return "nothing shows that this flow has written to it"
        if kind in _OF_MM2 and (topic.alias, topic.name) in self._written:
            return "somebody writes to it, although no service runs the flow"
        if kind is own_topics.HEARTBEATS:
            return self._foreign_beats(cluster)
        if kind is own_topics.SCHEMA_CLAIMS:
            claims = SchemaClaims(cluster, self._flow.source, replication_factor=-1)
            claims.refresh()
            if claims.modes:
                return (
                    f"it has the former modes of {some(len(claims.modes), 'subject')}: "
                    f"`mirror schema open {topic.alias}` gives them back"
                )
        return ""

    def _back(self) -> list[str]:
        """Flows from this flow's target to its source that have progress there."""
        source = self._ends.get(self._flow.source)
        if source is None:
            return []
        return [
            f"{alias}->{source.alias}"
            for alias, of_source in _flows_into(source).items()
            if of_source in {None, self._target.cluster_id}
        ]

    def _beside(self) -> list[str]:
        """Flows between the same clusters under other aliases, likewise."""
        return [
            f"{alias}->{self._target.alias}"
            for alias, of_source in _flows_into(self._target).items()
            if alias != self._flow.source
            if of_source in {None, self._ends[self._flow.source].cluster_id}
        ]

    def _foreign_beats(self, cluster: Cluster) -> str:
        ours = {(self._flow.source, self._flow.target)}
        ours |= {each[::-1] for each in ours}
        others: set[str] = set()
        name = own_topics.HEARTBEATS.named()
        for _, key, value in TopicReader(cluster, name).read(wait=False):
            try:
                beat = Heartbeat.decode(key, value)
            except CorruptBatchError:
                return "it has other records than heartbeats"
            if (beat.source, beat.target) not in ours:
                others.add(f"{beat.source}->{beat.target}")
        return f"{named(sorted(others))} has heartbeats there" if others else ""

    def _staying(self) -> Iterator[Part]:
        """What never goes."""
        for alias, cluster in self._ends.items():
            for kind, why in (
                (own_topics.JOURNAL, "it belongs to the cluster's pairs"),
                (own_topics.ACL_NOTES, "it belongs to the cluster; this flow's go"),
            ):
                if cluster.topics([kind.named()])[kind.named()].error == codes.NONE:
                    yield _stays(alias, kind, kind.named(), why)
        here, dead = self._target.alias, self._flow.dead_letter_topic
        if dead is not None and self._target.topic(dead) is not None:
            why = "its records are nowhere else on this cluster"
            yield _stays(here, own_topics.DEAD_LETTERS, dead, why)
        if self._target.topic(progress.topic_name(self._flow.source)) is not None:
            yield Part(
                cluster=here,
                kind="transactional ids",
                name=owner_id(self._flow.name).removesuffix("owner") + "*",
                action=Action.STAY,
                why="fenced; brokers forget them (transactional.id.expiration.ms)",
            )

    def _generation(self) -> ownership.Generation:
        name = progress.topic_name(self._flow.source)
        text = progress.read_existing(self._target, name).generation
        return ownership.Generation.parse(text)

    # ---- copies ----

    def _copies(self) -> Iterator[Part]:
        ids = self._noted_copies()
        shown = self._target.topics()
        there = {name: shown[name] for name in sorted(ids) if name in shown}
        there |= {name: shown[name] for name in self._empty_copies(shown) - ids.keys()}
        alias = self._target.alias
        if there and not self._takes_copies:
            text = some(len(there), "topic")
            why = "copies stay; --delete-copies deletes them"
            yield Part(
                cluster=alias, kind="copies", name=text, action=Action.STAY, why=why
            )
            return
        for name, topic in there.items():
            why = self._why_copy_stays(name, topic, ids)
            reason = "it was made for this flow, and is empty"
            if name in ids:
                reason = "the offset map names it by its id"
            yield Part(
                cluster=alias,
                kind="copy",
                name=name,
                action=Action.STAY if why else Action.REMOVE,
                why=why or reason,
                topic=None if why else topic,
            )

    def _why_copy_stays(
        self, name: str, topic: Topic, ids: Mapping[str, set[uuid.UUID]]
    ) -> str:
        flow = self._flow
        if not flow.replication_policy.names_source:
            return f"policy {flow.policy}: its name does not say that it is a copy"
        if name in ids and (
            topic.topic_id == progress.NO_ID or topic.topic_id not in ids[name]
        ):
            return "it is not the topic that the flow wrote to"
        readers = [
            each.name
            for each in self._config.enabled_flows
            if each.source == flow.target and each.topic_filter.matches(name)
            if not each.replication_policy.is_cycle(name, each.target)
        ]
        return f"{named(readers)} copies it" if readers else ""

    def _noted_copies(self) -> dict[str, set[uuid.UUID]]:
        """The ids that the offset map has of each copy that was written."""
        flow = self._flow
        found: dict[str, set[uuid.UUID]] = {}
        if self._target.topic(runs.topic_name(flow.source, flow.separator)) is None:
            return found
        follower = MapFollower(
            self._target, flow.source, flow.separator, fenced=flow.exactly_once
        )
        follower.follow(wait=False)
        for track in follower.tracks.values():
            found.setdefault(track.target_topic, set()).add(track.copy_id)
        return found

    def _empty_copies(self, shown: Mapping[str, Topic]) -> set[str]:
        """Topics under names of copies that never had a record."""
        name = self._flow.replication_policy.target_topic
        known = selection.known_topics(self._flow, self._target)
        found = {name(each) for each in known} & shown.keys()
        places = [(each, n) for each in found for n in shown[each].leaders]
        empty = topic_admin.empty(self._target, places)
        return {
            each
            for each in found
            if all(empty.get((each, n)) == 0 for n in shown[each].leaders)
        }

    # ---- ACLs ----

    def _acls(self) -> Iterator[Part]:
        target, name = self._target, self._flow.name
        with contextlib.suppress(NoAuthorizerError):  # then it has none
            if self._has_claims():
                for each in acls.added_by(target, self._flow.source):
                    why = "the flow added it to copies (sync_topic_acls)"
                    yield _acl(target.alias, str(each), Action.REMOVE, why)
            plan = fences.lifting_of(target, fences.fence_name(name))
            for laid in plan.removes:
                why = "the flow protects copies with it (protect: acl)"
                yield _acl(target.alias, str(laid), Action.REMOVE, why)
            for taken in plan.adds:
                why = "the flow took it away (protect: acl)"
                yield _acl(target.alias, str(taken), Action.RETURN, why)

    def _has_claims(self) -> bool:
        name = own_topics.ACL_CLAIMS.named(self._flow.source)
        return self._target.topic(name) is not None

    # ---- taking it away ----

    def require_possible(self, parts: Iterable[Part]) -> None:
        """
        Raises:
            MirrorError: a cluster would refuse to delete a topic.
        """
        for alias, cluster in self._ends.items():
            names = [
                each.name for each in parts if each.topic and each.cluster == alias
            ]
            if names and (why := topic_admin.deletion_obstacle(cluster, *names)):
                raise MirrorError(f"flow {self._flow.name}: {why}")

    def remove(self, parts: Iterable[Part]) -> None:
        """Take away what goes, given what `look` has found.

        Raises:
            MirrorError: a service has started meanwhile, and nothing was changed; or a
                cluster does not answer or refuses: do it again.
        """
        flow, parts = self._flow, tuple(parts)
        if self._target.topic(progress.topic_name(flow.source)) is not None:
            self._begin()
        going = [each for each in parts if each.topic is not None]
        own = [each for each in going if each.kind != "copy"]
        self._delete([each for each in going if each not in own])
        with contextlib.suppress(NoAuthorizerError):
            if self._has_claims():
                acls.withdraw(self._target, flow.source)
            fences.lift(self._target, fences.fence_name(flow.name))
        last = [each for each in own if each.kind == own_topics.PROGRESS.purpose]
        self._delete([each for each in own if each not in last])
        self._delete(last)

    def _begin(self) -> None:
        name = self._flow.name
        try:
            withdraw = ownership.begin_removal(self._flow, self._target)
        except FencedError as error:
            raise MirrorError(
                f"flow {name}: a run has begun meanwhile, and nothing was changed: "
                f"stop its service, and run this again ({error})"
            ) from error
        if found := self._leaders():
            withdraw()
            raise MirrorError(
                f"flow {name}: the service {named(sorted(found))} has started "
                "meanwhile, and nothing was changed: stop it, and run this again"
            )

    def _delete(self, parts: Iterable[Part]) -> None:
        """Delete topics, and wait until the clusters show them no longer."""
        parts = tuple(parts)
        for each in parts:
            assert each.topic is not None
            cluster = self._ends[each.cluster]
            topic_admin.delete_topic(cluster, each.topic.topic_id, each.name)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for alias, cluster in self._ends.items():
            left = {each.name: each.topic for each in parts if each.cluster == alias}
            while left:
                shown = cluster.topics(left)
                left = {n: t for n, t in left.items() if shown[n].error != _GONE}
                for name, topic in left.items():
                    assert topic is not None
                    if shown[name].topic_id not in (topic.topic_id, progress.NO_ID):
                        raise MirrorError(
                            f"flow {self._flow.name}: somebody has made {name} of "
                            f"{alias} again: if it was a service that runs the flow, "
                            "stop it; then run this again"
                        )
                if left and time.monotonic() > deadline:
                    raise ClusterError(
                        f"cluster {alias} still shows {named(sorted(left))}, which "
                        "was deleted: run this again"
                    )
                if left:
                    time.sleep(_PAUSE_SECONDS)


def _require_same(flow: FlowConfig, source: Cluster, ids: Iterable[str]) -> None:
    """
    Raises:
        MirrorError: it is none of the clusters with these ids.
    """
    if source.cluster_id not in (known := tuple(ids)):
        raise MirrorError(
            f"flow {flow.name}: {flow.source} leads to the cluster with id "
            f"{source.cluster_id}, and the flow has copied from the one with id "
            f"{known[-1]}: point bootstrap_servers there, or leave what is there with "
            "--without-source"
        )


def _flows_into(cluster: Cluster) -> dict[str, str | None]:
    """The aliases of sources whose flows into a cluster have progress there, with the
    sources' ids; None: it may not be read.
    """
    found: dict[str, str | None] = {}
    for name in cluster.topics():
        if (alias := own_topics.PROGRESS.alias_in(name)) is None:
            continue
        try:
            text = progress.read(cluster, name, wait=False).generation
            found[alias] = ownership.Generation.parse(text).source_id
        except AuthorizationError:
            found[alias] = None
    return found


def _stays(alias: str, kind: Kind, name: str, why: str) -> Part:
    return Part(
        cluster=alias, kind=kind.purpose, name=name, action=Action.STAY, why=why
    )


def _acl(alias: str, name: str, action: Action, why: str) -> Part:
    return Part(cluster=alias, kind="ACL", name=name, action=action, why=why)
