"""The rights that mirror needs, feature by feature: one table.

Main name: `TABLE`, whose rows are `Need`s. It leaves out implied operations (READ and
WRITE imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS). `rights` applies it to a
whole configuration.

More than 1,000 lines, since it is one table: a row is a call of eight or nine lines,
and all rows share the names of topics and the few words that are declared above them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
import re
from typing import TYPE_CHECKING

from mirror.config import own_topics
from mirror.config.own_topics import Guard
from mirror.config.pair_settings import pair_name
from mirror.copying import target
from mirror.offsets import progress, runs, standby
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.offsets.groups import COMMITS_TOPIC
from mirror.offsets.offset_syncs import offset_syncs_topic
from mirror.pairs import control, journal, losses, proofs
from mirror.policy.naming import HEARTBEATS
from mirror.schemas import claims
from mirror.topics import acl_notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirror.config.schema import FlowConfig, MirrorConfig

# ---- what an ACL can cover: one name, a prefix, or all names ----
#
# Main type: `Extent`. `extents` finds those of regular expressions: it splits
# alternatives, and a pattern that starts with plain text becomes a prefix. ACLs can
# express no more, so an extent may cover more than its pattern, never less. The one
# exception: in a pattern that is a plain name, such as `orders.eu`, dots mean dots.


LITERAL, PREFIXED = "LITERAL", "PREFIXED"
_MOST_CHOICES = 64
_PLAIN = re.compile(r"[^\\^$|?*+()\[\]{}]+")
_SIMPLE_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)?((?:[^()\\\[\]]|\\.)*)\)(?![*+?{])")
_PIECE = re.compile(r"(\\[^a-zA-Z0-9]|[^\\^$|?*+()\[\]{}.])([*+?{]?)")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Extent:
    """A resource's name, as an ACL gives it."""

    name: str
    """The literal `*` stands for all."""
    pattern: str = LITERAL

    def covers(self, other: Extent) -> bool:
        """Whether this one covers everything in the other."""
        if self == ALL:
            return True
        if self.pattern == PREFIXED:
            return other != ALL and other.name.startswith(self.name)
        return self == other

    def __str__(self) -> str:
        return f"{self.name}*" if self.pattern == PREFIXED else self.name


ALL = Extent(name="*")


def named(*names: str) -> tuple[Extent, ...]:
    """These names and no others."""
    return tuple(Extent(name=name) for name in names)


def beginning(start: str) -> Extent:
    """All names with this prefix."""
    return Extent(name=start, pattern=PREFIXED) if start else ALL


def extents(patterns: Iterable[str]) -> tuple[Extent, ...]:
    """The extents of names that match one of these patterns as a whole, sorted."""
    found = {_extent(choice) for each in patterns for choice in _choices(each)}
    return without_covered(found)


def without_covered(found: Iterable[Extent]) -> tuple[Extent, ...]:
    """Those that no other one covers, sorted."""
    known = set(found)
    return tuple(
        sorted(
            each
            for each in known
            if not any(other != each and other.covers(each) for other in known)
        )
    )


def _choices(pattern: str) -> list[str]:
    """A pattern for each alternative; the pattern's start if there are too many."""
    found, open_ = [], [pattern]
    while open_:
        each = open_.pop()
        alternatives = _alternatives(each)
        if len(alternatives) > 1:
            open_ += alternatives
        elif (group := _SIMPLE_GROUP.search(each)) and _is_first(each, group.start()):
            head, tail = each[: group.start()], each[group.end() :]
            open_ += [f"{head}{part}{tail}" for part in _alternatives(group[1])]
        else:
            found.append(each)
        if len(found) + len(open_) > _MOST_CHOICES:
            return [f"{_start(pattern)}.*" if "|" not in pattern else ".*"]
    return found


def _is_first(pattern: str, at: int) -> bool:
    """Whether no other bracket comes before: a group within one is not free."""
    return re.search(r"(?<!\\)[(\[]", pattern[:at]) is None


def _alternatives(pattern: str) -> list[str]:
    """The pattern, split at bars outside all brackets."""
    parts, depth, at = [""], 0, 0
    in_class = False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            char = pattern[at : at + 2]
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            parts.append("")
            at += 1
            continue
        parts[-1] += char
        at += len(char)
    return parts


def _extent(pattern: str) -> Extent:
    bare = pattern.removeprefix("^").removesuffix("$")
    if _PLAIN.fullmatch(bare):
        return Extent(name=bare)
    start = _start(bare)
    if re.fullmatch(r"(?:\\[^a-zA-Z0-9]|[^\\^$|?*+()\[\]{}.])+", bare):
        return Extent(name=start)
    return beginning(start)


def _start(pattern: str) -> str:
    """The text that every match begins with."""
    return "".join(_pieces(pattern.removeprefix("^")))


def _pieces(pattern: str) -> Iterator[str]:
    at = 0
    while piece := _PIECE.match(pattern, at):
        text, count = piece.groups()
        if count and count != "+":
            return  # it is optional
        yield text[-1]
        if count:
            return
        at = piece.end()


# ---- a row of the table, in Kafka's own terms ----
#
# Main type: `Need`, one required right: on which side of a flow, for which names, and
# when.


if TYPE_CHECKING:
    Names = Callable[[FlowConfig, MirrorConfig], Iterable[Extent]]
    Condition = Callable[[FlowConfig, MirrorConfig], bool]


class FlowSide(StrEnum):
    """The side of a flow."""

    SOURCE = "source"
    TARGET = "target"


class ResourceKind(StrEnum):
    """The kind of resource, as in `kafka-acls.sh`."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """The operation, as in Kafka's protocol."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class Who(StrEnum):
    """Who needs it."""

    SERVICE = "service"
    COMMANDS = "commands"
    """The command line, on top of what the service needs."""
    RECOVERY = "recovery"
    """`mirror switch` and `mirror failover`, on top of what the service needs."""
    CLIENTS = "clients"
    """Applications that translate a group's offsets (`mirror.client`, or Java's)."""


class Login(StrEnum):
    """As which of mirror's users on a cluster; often they are one."""

    OWN = "own"
    """The cluster's own: the driver, its jobs, and commands."""
    TASKS = "tasks"
    """The one that a flow names for its tasks (`source_login`, `target_login`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One required right."""

    feature: str
    side: FlowSide
    kind: ResourceKind
    operations: tuple[Operation, ...]
    names: Names
    called: str
    """The names, in words."""
    when: Condition = lambda _flow, _config: True
    setting: str = ""
    """When, in words; empty: always."""
    who: Who = Who.SERVICE
    login: Login = Login.OWN


_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_DESCRIBE, _CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS


# ---- the names that a flow's rights cover ----
#
# Topics, copies, heartbeats, transactions: functions from flows to extents, all pure.
# Internal topics are named by the modules that own them. Exclude filters are ignored:
# ACLs cannot express them.


CLUSTER = "kafka-cluster"
"""The only name of the only resource of its kind."""


def cluster(_flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    """The cluster as a whole."""
    return named(CLUSTER)


def groups(flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    """The groups whose positions a flow mirrors, named alike on both sides."""
    return extents(flow.groups)


def copied(flow: FlowConfig, config: MirrorConfig) -> tuple[Extent, ...]:
    """The source's topics that a flow copies."""
    heartbeats = _heartbeats(flow, config.enabled_flows)
    return without_covered([*extents(flow.topics), *heartbeats])


def copies(flow: FlowConfig, config: MirrorConfig) -> tuple[Extent, ...]:
    """The names of their copies on the target."""
    policy = flow.replication_policy
    found = [
        Extent(name=policy.target_topic(each.name))
        for each in _heartbeats(flow, config.enabled_flows)
    ]
    for each in extents(flow.topics):
        found += _copies_of(each, flow)
    return without_covered(found)


def heartbeats_on(alias: str, flows: Sequence[FlowConfig]) -> tuple[Extent, ...]:
    """The cluster's own topic of heartbeats, and the copies that flows bring there,
    over any number of hops.
    """
    return named(*sorted(_known_heartbeats(flows).get(alias, {HEARTBEATS})))


def transactional_ids(flow: FlowConfig) -> str:
    """The prefix of all transactional ids of a flow, for every slot."""
    first = target.transactional_ids(flow.name, 0)[0]
    return first.removesuffix("0.0")


def acl_topics(_flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    """The topics that say which ACLs of a cluster are mirror's, for every source."""
    return (beginning(acl_notes.topic_name("").partition(".")[0] + "."),)


CALLED_ACL_TOPICS = "`mirror-acls.` as a prefix"


def is_paired(flow: FlowConfig, config: MirrorConfig) -> bool:
    """Whether the flow is one of the two of a pair."""
    return bool(config.pairs_of(flow.source, flow.target))


def is_fenced(flow: FlowConfig, config: MirrorConfig) -> bool:
    """Whether switches of one of the flow's pairs keep producers out by ACLs."""
    pairs = config.pairs_of(flow.source, flow.target)
    return any(pair.fence == "acl" for pair in pairs)


def is_protected(flow: FlowConfig, _config: MirrorConfig) -> bool:
    """Whether the flow keeps others from writing to its copies."""
    return flow.protect == "acl"


def pairs(flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    """The transactional id under which operators of the flow's pair write."""
    return named(journal.transactional_id(pair_name(flow.source, flow.target)))


def _copies_of(each: Extent, flow: FlowConfig) -> list[Extent]:
    policy = flow.replication_policy
    if each.pattern == LITERAL and each != ALL:
        return [Extent(name=policy.target_topic(each.name))]
    return [
        Extent(name=names.start) if names.whole else beginning(names.start)
        for names in policy.target_names("" if each == ALL else each.name)
    ]


def _heartbeats(flow: FlowConfig, flows: Sequence[FlowConfig]) -> tuple[Extent, ...]:
    """The source's heartbeats that a flow copies, whatever its patterns say."""
    if not flow.heartbeats_replication:
        return ()
    policy = flow.replication_policy
    return tuple(
        each
        for each in heartbeats_on(flow.source, flows)
        if not policy.is_cycle(each.name, flow.target)
    )


def _known_heartbeats(flows: Iterable[FlowConfig]) -> dict[str, set[str]]:
    """By cluster, the heartbeat topics that will exist."""
    flows = list(flows)
    known = {alias: {HEARTBEATS} for f in flows for alias in (f.source, f.target)}
    # One round per cluster: no path without a cycle is longer.
    for _ in range(len(known)):
        for flow in flows:
            policy, wants = flow.replication_policy, flow.topic_filter
            known[flow.target] |= {
                policy.target_topic(name)
                for name in known[flow.source]
                if wants.matches(name) and not policy.is_cycle(name, flow.target)
            }
    return known


# ---- the audit topic, whose cluster may be on either side of a flow ----


def _of_audit(feature: str, who: Who, *operations: Operation) -> tuple[Need, ...]:
    """Rows on the side of each flow that has its cluster."""

    def there(side: FlowSide) -> Condition:
        def has(flow: FlowConfig, config: MirrorConfig) -> bool:
            alias = flow.source if side is FlowSide.SOURCE else flow.target
            return config.service.audit is not None and config.service.audit[0] == alias

        return has

    return tuple(
        Need(
            feature=feature,
            side=side,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=lambda _, config: named((config.service.audit or ("", ""))[1]),
            called="`audit_topic`",
            when=there(side),
            setting="`audit_topic` is on this cluster",
            who=who,
        )
        for side in FlowSide
    )


# ---- a running service, on the source first, then on the target ----


_KEPT = (_CREATE, _READ, _WRITE)
"""For a topic that mirror creates, writes, and reads back."""


def _guarded(side: FlowSide) -> Need:
    """The service examines what it keeps, and corrects configs that may lose it."""

    def names_of(flow: FlowConfig, config: MirrorConfig) -> tuple[Extent, ...]:
        alias = flow.source if side is FlowSide.SOURCE else flow.target
        return named(
            *(
                topic.name
                for topic in own_topics.of_flow(config, flow)
                if topic.alias == alias and topic.kind.guard is not Guard.NONE
            )
        )

    return Need(
        feature="guard of mirror's own topics",
        side=side,
        kind=ResourceKind.TOPIC,
        operations=(Operation.ALTER_CONFIGS,),
        names=names_of,
        called="[all that is guarded](formats.md#mirrors-own-topics)",
    )


_OF_SERVICE: tuple[Need, ...] = (
    _guarded(FlowSide.SOURCE),
    _guarded(FlowSide.TARGET),
    *_of_audit("audit", Who.SERVICE, _CREATE, _WRITE),
    Need(
        feature="topics",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_DESCRIBE,),
        names=copied,
        called="mirrored topics",
    ),
    Need(
        feature="configs of copies",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CONFIGS,),
        names=copied,
        called="mirrored topics",
    ),
    Need(
        feature="checkpoints",
        side=FlowSide.SOURCE,
        kind=ResourceKind.GROUP,
        operations=(_DESCRIBE,),
        names=groups,
        called="mirrored groups",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
    ),
    Need(
        feature="checkpoints that follow commits",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda *_: named(COMMITS_TOPIC),
        called=f"`{COMMITS_TOPIC}`",
        when=lambda flow, _: flow.emit_checkpoints and flow.follow_commits == "on",
        setting="`follow_commits: on`; optional with `auto`",
    ),
    Need(
        feature="ACLs of copies",
        side=FlowSide.SOURCE,
        kind=ResourceKind.CLUSTER,
        operations=(_DESCRIBE,),
        names=cluster,
        called="",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs that came from elsewhere",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=acl_topics,
        called=CALLED_ACL_TOPICS,
        when=lambda flow, config: (
            flow.sync_topic_acls
            and any(
                other.sync_topic_acls and other.target == flow.source
                for other in config.enabled_flows
            )
        ),
        setting="`sync_topic_acls`, also of a flow into this cluster",
    ),
    Need(
        feature="heartbeats on the source",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda *_: named(HEARTBEATS),
        called=f"`{HEARTBEATS}`",
        when=lambda flow, _: flow.heartbeats_on_source,
        setting="`heartbeats_on_source`",
    ),
    Need(
        feature="offset syncs",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(
            offset_syncs_topic(flow.target, flow.mm2_separator)
        ),
        called="`mm2-offset-syncs.<target>.internal`",
        when=lambda flow, _: (
            flow.emit_offset_syncs and flow.offset_syncs_location == "source"
        ),
        setting="`emit_offset_syncs`, `offset_syncs_location: source`",
    ),
    Need(
        feature="records",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE, Operation.ALTER),
        names=copies,
        called="the copies",
    ),
    Need(
        feature="configs of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.ALTER_CONFIGS,),
        names=copies,
        called="the copies",
        when=lambda flow, _: flow.sync_topic_configs,
        setting="`sync_topic_configs`",
    ),
    Need(
        feature="limits and drift of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CONFIGS,),
        names=copies,
        called="the copies",
        when=lambda flow, _: not flow.sync_topic_configs,
        setting="`sync_topic_configs: false`",
    ),
    Need(
        feature="exactly once",
        side=FlowSide.TARGET,
        kind=ResourceKind.TRANSACTIONAL_ID,
        operations=(_WRITE,),
        names=lambda flow, _: (beginning(transactional_ids(flow)),),
        called="`mirror.<source>-><target>.` as a prefix",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
    ),
    Need(
        feature="transactions that brokers left open",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=copies,
        called="the copies",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
    ),
    Need(
        feature="padding of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.DELETE,),
        names=copies,
        called="the copies",
        when=lambda flow, _: flow.offsets == "same",
        setting="`offsets: same`",
    ),
    Need(
        feature="progress",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(progress.topic_name(flow.source)),
        called=f"`{progress.topic_name('<source>')}`",
    ),
    Need(
        feature="offset map",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(runs.topic_name(flow.source, flow.separator)),
        called=f"`{runs.topic_name('<source>', '.')}`",
    ),
    Need(
        feature="loss ledger",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(losses.topic_name(flow.source)),
        called=f"`{losses.topic_name('<source>')}`",
    ),
    Need(
        feature="standby",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(standby.topic_name(flow.source)),
        called=f"`{standby.topic_name('<source>')}`",
    ),
    Need(
        feature="pauses",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(control.topic_name(flow.source)),
        called=f"`{control.topic_name('<source>')}`",
    ),
    *(
        Need(
            feature="roles of pairs",
            side=side,
            kind=ResourceKind.TOPIC,
            operations=_KEPT,
            names=lambda *_: named(journal.TOPIC),
            called=f"`{journal.TOPIC}`",
            when=is_paired,
            setting="`recovery`",
        )
        for side in (FlowSide.SOURCE, FlowSide.TARGET)
    ),
    Need(
        feature="tails of pairs",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(losses.topic_name(flow.source)),
        called=f"`{losses.topic_name('<source>')}`",
        when=is_paired,
        setting="`recovery`",
    ),
    *(
        Need(
            feature=feature,
            side=side,
            kind=kind,
            operations=operations,
            names=which,
            called=called,
            when=when,
            setting=setting,
        )
        for feature, side, when, setting in (
            (
                "fences of pairs",
                FlowSide.SOURCE,
                is_fenced,
                "`recovery` with `fence: acl`",
            ),
            (
                "protection of copies",
                FlowSide.TARGET,
                is_protected,
                "`protect: acl`",
            ),
        )
        for kind, operations, which, called in (
            (ResourceKind.CLUSTER, (Operation.ALTER,), cluster, ""),
            (
                ResourceKind.TOPIC,
                (_CREATE, _WRITE),
                lambda *_: named(acl_notes.TOPIC),
                f"`{acl_notes.TOPIC}`",
            ),
            (
                ResourceKind.TOPIC,
                (_READ,),
                acl_topics,
                CALLED_ACL_TOPICS,
            ),
        )
    ),
    *(
        Need(
            feature="proofs in the service",
            side=side,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            when=lambda flow, _: flow.verify != "off",
            setting="`verify`",
        )
        for side, operations, which, called in (
            (FlowSide.SOURCE, (_CONFIGS,), copied, "mirrored topics"),
            (FlowSide.TARGET, (_READ, _CONFIGS), copies, "the copies"),
            (
                FlowSide.TARGET,
                _KEPT,
                lambda flow, _: named(proofs.topic_name(flow.source)),
                f"`{proofs.topic_name('<source>')}`",
            ),
        )
    ),
    Need(
        feature="leadership",
        side=FlowSide.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_READ,),
        names=lambda _, config: named(config.service.group or ""),
        called="`service.group`",
        when=lambda _, config: config.service.group is not None,
        setting="`service.group`",
    ),
    Need(
        feature="checkpoints",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=_KEPT,
        names=lambda flow, _: named(checkpoints_topic(flow.source, flow.mm2_separator)),
        called=f"`{checkpoints_topic('<source>')}`",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
    ),
    Need(
        feature="group offsets",
        side=FlowSide.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_READ,),
        names=groups,
        called="mirrored groups",
        when=lambda flow, _: flow.sync_group_offsets,
        setting="`sync_group_offsets`",
    ),
    Need(
        feature="group offsets",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=copies,
        called="the copies",
        when=lambda flow, _: flow.sync_group_offsets,
        setting="`sync_group_offsets`",
    ),
    Need(
        feature="heartbeats",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda *_: named(HEARTBEATS),
        called=f"`{HEARTBEATS}`",
        when=lambda flow, _: flow.emit_heartbeats,
        setting="`emit_heartbeats`",
    ),
    Need(
        feature="age of copied heartbeats",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(flow.replication_policy.target_topic(HEARTBEATS)),
        called=f"`<source>.{HEARTBEATS}`",
        when=lambda flow, _: flow.emit_heartbeats or flow.heartbeats_on_source,
        setting="`emit_heartbeats` or `heartbeats_on_source`",
    ),
    Need(
        feature="offset syncs",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(
            offset_syncs_topic(flow.source, flow.mm2_separator)
        ),
        called="`mm2-offset-syncs.<source>.internal`",
        when=lambda flow, _: (
            flow.emit_offset_syncs and flow.offset_syncs_location == "target"
        ),
        setting="`emit_offset_syncs`, `offset_syncs_location: target`",
    ),
    Need(
        feature="ACLs of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.CLUSTER,
        operations=(Operation.ALTER,),
        names=cluster,
        called="",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(acl_notes.topic_name(flow.source)),
        called=f"`{acl_notes.topic_name('<source>')}`",
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="ACLs of copies",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=acl_topics,
        called=CALLED_ACL_TOPICS,
        when=lambda flow, _: flow.sync_topic_acls,
        setting="`sync_topic_acls`",
    ),
    Need(
        feature="dead letters",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(flow.dead_letter_topic or ""),
        called="`dead_letter_topic`",
        when=lambda flow, _: flow.dead_letter_topic is not None,
        setting="`dead_letter_topic`",
    ),
)


# ---- the user that a flow's tasks log in as ----
#
# Without `source_login` and `target_login` it is the cluster's own user, who needs
# these beside the others. Some are the service's as well: the driver ends what tasks
# left open. Commands read records as the own user.


_OF_TASKS: tuple[Need, ...] = (
    Need(
        feature="records",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=copied,
        called="mirrored topics",
        login=Login.TASKS,
    ),
    Need(
        feature="exactly once",
        side=FlowSide.TARGET,
        kind=ResourceKind.TRANSACTIONAL_ID,
        operations=(_WRITE,),
        names=lambda flow, _: (beginning(transactional_ids(flow)),),
        called="`mirror.<source>-><target>.` as a prefix",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
        login=Login.TASKS,
    ),
    Need(
        feature="transactions that brokers left open",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=copies,
        called="the copies",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
        login=Login.TASKS,
    ),
    *(
        Need(
            feature=feature,
            side=FlowSide.TARGET,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            login=Login.TASKS,
        )
        for feature, operations, which, called in (
            (
                "records, limits of copies",
                (_WRITE, _CONFIGS),
                copies,
                "the copies",
            ),
            (
                "progress",
                (_READ, _WRITE),
                lambda flow, _: named(progress.topic_name(flow.source)),
                f"`{progress.topic_name('<source>')}`",
            ),
            (
                "offset map",
                (_READ, _WRITE),
                lambda flow, _: named(runs.topic_name(flow.source, flow.separator)),
                f"`{runs.topic_name('<source>', '.')}`",
            ),
            (
                "loss ledger",
                (_WRITE,),
                lambda flow, _: named(losses.topic_name(flow.source)),
                f"`{losses.topic_name('<source>')}`",
            ),
        )
    ),
    Need(
        feature="dead letters",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_WRITE,),
        names=lambda flow, _: named(flow.dead_letter_topic or ""),
        called="`dead_letter_topic`",
        when=lambda flow, _: flow.dead_letter_topic is not None,
        setting="`dead_letter_topic`",
        login=Login.TASKS,
    ),
    Need(
        feature="proofs in the service",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=copies,
        called="the copies",
        when=lambda flow, _: flow.verify != "off",
        setting="`verify`",
        login=Login.TASKS,
    ),
    Need(
        feature="mirror verify",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=copies,
        called="the copies",
        who=Who.COMMANDS,
        login=Login.TASKS,
    ),
    *(
        Need(
            feature=feature,
            side=FlowSide.SOURCE,
            kind=ResourceKind.TOPIC,
            operations=(_READ,),
            names=copied,
            called="mirrored topics",
            when=lambda flow, _: flow.source_login is not None,
            setting="`source_login`",
            who=who,
        )
        for who, feature in (
            (Who.COMMANDS, "mirror trace, repair, conflicts"),
            (Who.RECOVERY, "mirror tail, failback"),
        )
    ),
)


# ---- topics of flows with schemas; the registries have rights of their own ----


_ALL_CLAIMS = claims.topic_name("").partition(".")[0] + "."


def _copies_schemas(flow: FlowConfig, _config: MirrorConfig) -> bool:
    return flow.schemas != "off"


def _moves_registries(flow: FlowConfig, config: MirrorConfig) -> bool:
    return _copies_schemas(flow, config) and is_paired(flow, config)


def _every_source(_flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    return (beginning(_ALL_CLAIMS),)


_OF_SCHEMAS: tuple[Need, ...] = (
    Need(
        feature="schemas",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(claims.topic_name(flow.source)),
        called=f"`{claims.topic_name('<source>')}`",
        when=_copies_schemas,
        setting="`schemas`",
    ),
    Need(
        feature="schemas",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=_every_source,
        called=f"`{_ALL_CLAIMS}` as a prefix",
        when=_copies_schemas,
        setting="`schemas`",
    ),
    *(
        Need(
            feature="schemas that records wait for",
            side=FlowSide.TARGET,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            when=lambda flow, _: flow.requires_schemas,
            setting="`schemas: require`",
            login=Login.TASKS,
        )
        for operations, which, called in (
            (
                (_CREATE, _WRITE),
                lambda flow, _: named(claims.topic_name(flow.source)),
                f"`{claims.topic_name('<source>')}`",
            ),
            ((_READ,), _every_source, f"`{_ALL_CLAIMS}` as a prefix"),
        )
    ),
    *(
        Need(
            feature="step 2 and `mirror schema close`: former modes",
            side=FlowSide.SOURCE,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            when=_moves_registries,
            setting="`schemas`",
            who=Who.RECOVERY,
        )
        for operations, which, called in (
            (
                (_CREATE, _WRITE),
                lambda flow, _: named(claims.topic_name(flow.target)),
                f"`{claims.topic_name('<target>')}`",
            ),
            ((_READ,), _every_source, f"`{_ALL_CLAIMS}` as a prefix"),
        )
    ),
)


# ---- commands, one by one, then applications ----


def _of_compare() -> tuple[Need, ...]:
    """It reads the same on both clusters; what it may not read, it says."""
    return tuple(
        Need(
            feature="mirror compare, drill, switch (optional)",
            side=side,
            kind=kind,
            operations=operations,
            names=which,
            called=called,
            who=Who.COMMANDS,
        )
        for side, topics, called_topics in (
            (FlowSide.SOURCE, copied, "mirrored topics"),
            (FlowSide.TARGET, copies, "the copies"),
        )
        for kind, operations, which, called in (
            (ResourceKind.TOPIC, (_CONFIGS,), topics, called_topics),
            (ResourceKind.GROUP, (_DESCRIBE,), groups, "mirrored groups"),
            (ResourceKind.CLUSTER, (_DESCRIBE, _CONFIGS), cluster, ""),
        )
    )


def _left_by(side: FlowSide) -> Names:
    """What a flow may have left on one side."""

    def names_of(flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
        alias = flow.source if side is FlowSide.SOURCE else flow.target
        left = own_topics.left_by(flow)
        return named(*dict.fromkeys(each.name for each in left if each.alias == alias))

    return names_of


_OF_COMMANDS: tuple[Need, ...] = (
    Need(
        feature="mirror pause, resume, repair",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _WRITE),
        names=lambda flow, _: named(control.topic_name(flow.source)),
        called=f"`{control.topic_name('<source>')}`",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror loss list, verify, trace, repair",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(losses.topic_name(flow.source)),
        called=f"`{losses.topic_name('<source>')}`",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror verify, trace, repair",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_CONFIGS,),
        names=copied,
        called="mirrored topics",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror verify, trace, repair",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ, _CONFIGS),
        names=copies,
        called="the copies",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror verify",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_CREATE, _READ, _WRITE),
        names=lambda flow, _: named(proofs.topic_name(flow.source)),
        called=f"`{proofs.topic_name('<source>')}`",
        who=Who.COMMANDS,
    ),
    Need(
        feature="mirror verify, trace, repair",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(flow.dead_letter_topic or ""),
        called="`dead_letter_topic`",
        when=lambda flow, _: flow.dead_letter_topic is not None,
        setting="`dead_letter_topic`",
        who=Who.COMMANDS,
    ),
    *_of_audit("mirror events --config", Who.COMMANDS, _READ),
    *_of_compare(),
    Need(
        feature="mirror repair rebuild",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.DELETE,),
        names=copies,
        called="the copies",
        who=Who.COMMANDS,
    ),
    *(
        Need(
            feature="mirror flow remove",
            side=side,
            kind=ResourceKind.TOPIC,
            operations=(Operation.DELETE,),
            names=_left_by(side),
            called="mirror's own topics; with `--delete-copies` the copies, too"
            if side is FlowSide.TARGET
            else "mirror's own topics",
            who=Who.COMMANDS,
        )
        for side in FlowSide
    ),
    Need(
        feature="mirror group, risk",
        side=FlowSide.TARGET,
        kind=ResourceKind.GROUP,
        operations=(_DESCRIBE,),
        names=groups,
        called="mirrored groups",
        who=Who.COMMANDS,
    ),
    Need(
        feature="where a group goes on",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=lambda flow, _: named(checkpoints_topic(flow.source, flow.mm2_separator)),
        called=f"`{checkpoints_topic('<source>')}`",
        when=lambda flow, _: flow.emit_checkpoints,
        setting="`emit_checkpoints`",
        who=Who.CLIENTS,
    ),
    Need(
        feature="clusters and hops",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_DESCRIBE,),
        names=lambda flow, config: heartbeats_on(flow.target, config.enabled_flows),
        called=f"`{HEARTBEATS}` and its copies",
        when=lambda flow, _: flow.heartbeats_replication,
        setting="`heartbeats_replication`",
        who=Who.CLIENTS,
    ),
)


# ---- switches and failovers, step by step ----
#
# Each cluster of a pair is the source of one flow and the target of the other, so both
# get all of them.


_BY_ACLS = "`fence: acl`"


def _both(
    feature: str,
    kind: ResourceKind,
    operations: tuple[Operation, ...],
    which: Names,
    called: str,
    *,
    when: Condition = is_paired,
    setting: str = "`recovery`",
) -> tuple[Need, ...]:
    """A row for either side."""
    return tuple(
        Need(
            feature=feature,
            side=side,
            kind=kind,
            operations=operations,
            names=which,
            called=called,
            when=when,
            setting=setting,
            who=Who.RECOVERY,
        )
        for side in FlowSide
    )


def _restores(flow: FlowConfig, config: MirrorConfig) -> bool:
    keeps_names = flow.replication_policy.target_topic("topic") == "topic"
    return is_paired(flow, config) and keeps_names


_OF_RECOVERY: tuple[Need, ...] = (
    *_both(
        "every step: the journal",
        ResourceKind.TRANSACTIONAL_ID,
        (_WRITE,),
        pairs,
        "`mirror.pair.<a>.<b>`",
    ),
    *_both(
        "every step: the journal",
        ResourceKind.TOPIC,
        (_CREATE, _READ, _WRITE),
        lambda *_: named(journal.TOPIC),
        f"`{journal.TOPIC}`",
    ),
    *_both(
        "steps 3 and 7: fences and rights",
        ResourceKind.CLUSTER,
        (Operation.ALTER,),
        cluster,
        "",
        when=is_fenced,
        setting=_BY_ACLS,
    ),
    *_both(
        "steps 3 and 7: fences and rights",
        ResourceKind.TOPIC,
        (_CREATE, _READ, _WRITE),
        lambda *_: named(acl_notes.TOPIC),
        f"`{acl_notes.TOPIC}`",
        when=is_fenced,
        setting=_BY_ACLS,
    ),
    *(
        Need(
            feature="steps 1 and 6: positions of groups",
            side=FlowSide.TARGET,
            kind=kind,
            operations=(_READ,),
            names=which,
            called=called,
            when=is_paired,
            setting="`recovery`",
            who=Who.RECOVERY,
        )
        for kind, which, called in (
            (ResourceKind.GROUP, groups, "mirrored groups"),
            (ResourceKind.TOPIC, copies, "the copies"),
        )
    ),
    *(
        Need(
            feature="`mirror failback --restore`",
            side=FlowSide.TARGET,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            when=_restores,
            setting="`recovery` with `policy: identity`",
            who=Who.RECOVERY,
        )
        for operations, which, called in (
            ((Operation.DELETE,), copies, "the copies"),
            (
                (_CREATE, _WRITE),
                lambda flow, _: named(control.topic_name(flow.source)),
                f"`{control.topic_name('<source>')}`",
            ),
        )
    ),
)


# ---- the whole table ----


TABLE: tuple[Need, ...] = (
    *_OF_SERVICE,
    *_OF_TASKS,
    *_OF_SCHEMAS,
    *_OF_COMMANDS,
    *_OF_RECOVERY,
)
