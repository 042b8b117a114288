"""Examines mirror's own topics, and corrects configs that may lose what is kept there.

Main functions: `look`, which changes nothing, and `correct`, which also alters what is
wrong. The rule, `wrong`, is pure; `config.own_topics` says what there is. Somebody may
have made such a topic beforehand, or changed its configs since. What only an operator
can mend comes with the command that does.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import shlex
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import configs, topic_admin
from mirror.config.own_topics import (
    FOR_EVER,
    IN_SYNC,
    LARGEST,
    POLICY,
    RETENTION,
    Guard,
    in_sync,
)
from mirror.errors import AuthorizationError, BrokerError, ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.own_topics import OwnTopic

_BYTES = "retention.bytes"
_UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One config of a topic."""

    topic: OwnTopic
    config: str
    now: str
    then: str
    loses: bool = False
    """Whether brokers may delete what is needed, any time now."""

    def __str__(self) -> str:
        return f"{self.config} from {self.now or 'nothing'} to {self.then}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look at the topics of one cluster found."""

    wrong: tuple[Wrong, ...] = ()
    thin: Mapping[OwnTopic, Topic]
    """Those with fewer replicas than they are to have."""
    hidden: tuple[OwnTopic, ...] = ()
    """Those whose configs mirror may not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What mirror cannot correct."""

    text: str
    remedy: str
    """The command that does, or else what to do."""

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """What `correct` did."""

    corrected: tuple[Wrong, ...]
    left: tuple[Left, ...]
    unsafe: tuple[Left, ...]
    """Those of them for which no run may copy."""


def wrong(
    topic: OwnTopic, found: Mapping[str, str | None], *, replicas: int
) -> tuple[Wrong, ...]:
    """What is wrong with these configs of a topic with so many replicas (0: unknown).
    Only what may lose records, or keep them from being written, counts; the rest is its
    operator's.
    """
    if topic.kind.guard is Guard.NONE:
        return ()
    declared = topic.kind.configs
    wanted: dict[str, str] = {}
    loses: set[str] = set()
    finite = {key for key in (RETENTION, _BYTES) if _number(found, key) >= 0}
    policies = set(filter(None, (found.get(POLICY) or "").split(",")))
    if policies != {declared[POLICY]}:
        wanted[POLICY] = declared[POLICY]
        deletes = "delete" in policies and finite
        if deletes or "compact" in policies - {declared[POLICY]}:
            loses.add(POLICY)
    if declared[POLICY] == "delete":
        for key in finite - ({RETENTION} if topic.kind.as_copies else set()):
            wanted[key] = FOR_EVER
            loses.add(key)
    if _number(found, LARGEST, none=1 << 62) < int(declared.get(LARGEST, 0)):
        wanted[LARGEST] = declared[LARGEST]
    least, safe = _number(found, IN_SYNC), int(in_sync(replicas).get(IN_SYNC, 1))
    if replicas and IN_SYNC in found and not safe <= least <= replicas:
        wanted[IN_SYNC] = str(safe)
    if found.get(_UNCLEAN) == "true":
        wanted[_UNCLEAN] = "false"
    return tuple(
        Wrong(
            topic=topic,
            config=key,
            now=found.get(key) or "",
            then=then,
            loses=key in loses,
        )
        for key, then in wanted.items()
    )


def _number(found: Mapping[str, str | None], key: str, none: int = -1) -> int:
    text = found.get(key)
    return none if text is None else int(text)


def look(cluster: Cluster, topics: Sequence[OwnTopic]) -> Seen:
    """Examine those of the topics that exist on this cluster; changes nothing.

    Raises:
        ClusterError: the cluster does not answer, or not for all of them now.
    """
    guarded = [t for t in topics if t.kind.guard is not Guard.NONE]
    names = [topic.name for topic in guarded]
    shown = cluster.topics(names)
    described = configs.describe(cluster, names)
    found: list[Wrong] = []
    thin, hidden = {}, []
    for topic in guarded:
        there, its = shown[topic.name], described[topic.name]
        if isinstance(its.error, AuthorizationError):
            hidden.append(topic)
        elif its.error is not None and not its.missing:
            raise its.error
        values = {key: config.value for key, config in its.configs.items()}
        if values:
            found += wrong(topic, values, replicas=there.replication_factor)
        if there.error == codes.NONE and there.replication_factor < topic.replicas:
            thin[topic] = there
    return Seen(wrong=tuple(found), thin=thin, hidden=tuple(hidden))


def correct(cluster: Cluster, topics: Sequence[OwnTopic]) -> Guarded:
    """Examine the topics, and alter what is wrong.

    Raises:
        ClusterError: as `look`.
    """
    seen = look(cluster, topics)
    refused = alter(cluster, seen.wrong)
    lefts = refusals(cluster, refused)
    unsafe = {each.topic for each in refused if each.loses}
    return Guarded(
        corrected=tuple(each for each in seen.wrong if each not in refused),
        left=(*lefts.values(), *beyond(cluster, seen)),
        unsafe=tuple(
            left
            for topic, left in lefts.items()
            if topic in unsafe and topic.kind.guard is Guard.VITAL
        ),
    )


def alter(
    cluster: Cluster, found: Sequence[Wrong], *, validate_only: bool = False
) -> dict[Wrong, ClusterError]:
    """Correct these; returns what is refused. With `validate_only`, only ask.

    Raises:
        ClusterError: the cluster does not answer, or cannot do it now.
    """
    refused: dict[Wrong, ClusterError] = {}
    # A topic's changes are refused together: what loses records goes first, alone.
    for loses in (True, False):
        some = [each for each in found if each.loses is loses]
        changes: dict[str, dict[str, str | None]] = {}
        for each in some:
            changes.setdefault(each.topic.name, {})[each.config] = each.then
        answers = configs.alter(cluster, changes, validate_only=validate_only)
        for error in answers.values():
            if isinstance(error, BrokerError) and error.retriable:
                raise error
        refused |= {e: answers[e.topic.name] for e in some if e.topic.name in answers}
    return refused


def refusals(
    cluster: Cluster, refused: Mapping[Wrong, ClusterError]
) -> dict[OwnTopic, Left]:
    """By topic, what mirror could not alter."""
    found: dict[OwnTopic, Left] = {}
    for topic in dict.fromkeys(each.topic for each in refused):
        of_topic = [each for each in refused if each.topic == topic]
        errors = dict.fromkeys(str(refused[each]) for each in of_topic)
        losing = " and may lose records" if any(e.loses for e in of_topic) else ""
        found[topic] = Left(
            text=f"{topic.name} has wrong configs{losing}, and mirror cannot change "
            f"{', '.join(map(str, of_topic))} ({'; '.join(errors)})",
            remedy=shlex.join(
                [
                    *cluster.tool("kafka-configs.sh"),
                    *("--alter", "--entity-type", "topics"),
                    *("--entity-name", topic.name, "--add-config"),
                    ",".join(f"{each.config}={each.then}" for each in of_topic),
                ]
            ),
        )
    return found


def beyond(cluster: Cluster, seen: Seen) -> Iterator[Left]:
    """What no change of configs corrects."""
    if seen.thin:
        yield _thin(cluster, seen.thin)
    if seen.hidden:
        names = sorted(topic.name for topic in seen.hidden)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Left(
            text=f"cluster {cluster.alias}: mirror may not read and correct the "
            f"configs of {names[0]}{more}, so what it keeps there may be lost unseen",
            remedy="grant ALTER_CONFIGS, as `mirror config acls` lists it",
        )


def _thin(cluster: Cluster, found: Mapping[OwnTopic, Topic]) -> Left:
    most = max(topic.replicas for topic in found)
    text = (
        f"cluster {cluster.alias}: fewer replicas than the {most} that "
        "replication_factor asks for: "
        + ", ".join(
            f"{name} ({there.replication_factor})"
            for name, there in sorted((t.name, there) for t, there in found.items())
        )
    )
    partitions = []
    for topic, there in found.items():
        others = (node for node in cluster.nodes if node not in there.replicas)
        replicas = [*there.replicas, *others][: topic.replicas]
        if len(replicas) < topic.replicas:
            return Left(
                text=text,
                remedy=f"add brokers to the {cluster.brokers}, or lower the setting",
            )
        partitions.append({"topic": topic.name, "partition": 0, "replicas": replicas})
    plan = json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
    tool = shlex.join(cluster.tool("kafka-reassign-partitions.sh"))
    return Left(
        text=text,
        remedy=f"echo {shlex.quote(plan)} > replicas.json; "
        f"{tool} --reassignment-json-file replicas.json --execute",
    )


def begins_at(cluster: Cluster, name: str) -> int:
    """The first offset of a topic's partition 0; above 0 its beginning was deleted."""
    where = (name, 0)
    first = topic_admin.list_offsets(cluster, [where], timestamp=topic_admin.EARLIEST)
    return first.get(where, 0)
