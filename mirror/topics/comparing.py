"""Where two clusters differ, and which differences the configuration explains.

Main types and functions: `Portrait`, everything about a cluster that two can be
compared by, which `take_portrait` takes, and `compare`, over two of them and all flows:
it gives `Difference`s. A flow's names say which topics belong together; topics and ACLs
of no flow are compared with those of the same name, and so is everything that no flow
copies. `of_schemas` adds those of two registries.

The rules for what a flow copies are in `configs` and `acls`; here it is said in words
which of them explains a difference. What we may not see is left out and named with its
reason: the rest is compared all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from mirror.clusters import codes
from mirror.clusters.admin import brokers, group_offsets, groups
from mirror.clusters.admin.acls import (
    Acl,
    NoAuthorizerError,
    describe_all,
    quotas,
    scram_users,
)
from mirror.clusters.admin.configs import Origin, describe
from mirror.clusters.topics import NO_ID, Topic
from mirror.errors import AuthorizationError, UnsupportedBrokerError
from mirror.policy.naming import is_internal
from mirror.policy.selection import GroupFilter
from mirror.status.states import SchemaState
from mirror.status.wording import some
from mirror.topics import acls, configs
from mirror.topics.acls import Granted
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.admin.configs import TopicConfigs
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.schemas.rules import SchemasResult
    from mirror.status.values import TopicDrift
    from mirror.topics.sides import Side

TOPIC_ACL = "TOPIC"
TOPIC, CONFIG, ACLS, GROUPS = "topic", "config", "acl", "group"
QUOTAS, USERS, VERSION, SCHEMA = "quota", "user", "version", "schema"
_ORDER = (TOPIC, CONFIG, ACLS, GROUPS, QUOTAS, USERS, VERSION)
_NO_FLOW = "no flow copies it"
NOTHING, NOT_PERMITTED = "-", "not permitted"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """A cluster at one moment."""

    alias: str
    cluster_id: str
    version: tuple[int, ...]
    topics: Mapping[str, Topic]
    configs: Mapping[str, TopicConfigs]
    acls: frozenset[Acl] = frozenset()
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The topics for which each group has committed offsets."""
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    users: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Iterations by SCRAM mechanism."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Kinds that we may not see, or that the cluster does not have, with the reason."""


def take_portrait(cluster: Cluster) -> Portrait:
    """Look at a cluster; nothing is changed.

    Raises:
        ClusterError: it does not answer.
    """
    unseen: dict[str, str] = {}

    def seen(kind: str, ask: Callable[[], _T], nothing: _T) -> _T:
        try:
            return ask()
        except AuthorizationError:
            unseen[kind] = "not permitted"
        except NoAuthorizerError:
            unseen[kind] = "no authorizer"
        except UnsupportedBrokerError:
            unseen[kind] = "unknown to these brokers"
        return nothing

    topics = cluster.topics()
    return Portrait(
        alias=cluster.alias,
        cluster_id=cluster.cluster_id,
        version=brokers.version(cluster),
        topics=topics,
        configs=describe(cluster, topics),
        acls=seen(ACLS, lambda: describe_all(cluster), frozenset()),
        groups=seen(GROUPS, lambda: _committed(cluster), {}),
        quotas=seen(QUOTAS, lambda: quotas(cluster), {}),
        users=seen(USERS, lambda: scram_users(cluster), {}),
        unseen=unseen,
    )


def complete_portrait(
    portrait: Portrait, cluster: Cluster, names: Iterable[str]
) -> Portrait:
    """Add topics that are there, but hidden from us: with their errors. Brokers list
    only those that we may describe.

    Raises:
        ClusterError: the cluster does not answer.
    """
    hidden = {
        name: topic
        for name, topic in cluster.topics(set(names) - portrait.topics.keys()).items()
        if topic.error == codes.TOPIC_AUTHORIZATION_FAILED
    }
    return replace(
        portrait,
        topics={**portrait.topics, **hidden},
        configs={**portrait.configs, **describe(cluster, hidden)},
    )


def _committed(cluster: Cluster) -> dict[str, frozenset[str]]:
    found = group_offsets.fetch(cluster, groups.list_groups(cluster))
    return {
        group: frozenset(topic for topic, _ in offsets)
        for group, offsets in found.groups.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same on both clusters."""

    what: str
    """topic, config, acl, group, quota, user or version."""
    name: str
    a: str
    b: str
    expected: bool | None
    """Whether the configuration explains it; None: one side cannot be seen."""
    reason: str = ""

    @property
    def turned(self) -> Difference:
        """As seen from the other cluster."""
        return replace(self, a=self.b, b=self.a)

    def excused(self, reason: str) -> Difference:
        """Expected for this reason, if there is one."""
        return replace(self, expected=True, reason=reason) if reason else self


def partitions(count: int) -> str:
    """As people read it."""
    return some(count, "partition") if count else NOTHING


# ---- both clusters, and all flows ----


@dataclass(frozen=True, slots=True)
class _Seen:
    """A portrait in the place of a cluster."""

    portrait: Portrait

    @property
    def alias(self) -> str:
        return self.portrait.alias

    def topics(self, names: Iterable[str] | None = None) -> Mapping[str, Topic]:
        known = self.portrait.topics
        if names is None:
            return known
        return {name: known.get(name) or _absent(name) for name in names}

    def configs(self, names: Iterable[str]) -> Mapping[str, TopicConfigs]:
        return {name: self.portrait.configs[name] for name in names}


def _absent(name: str) -> Topic:
    return Topic(
        name=name, topic_id=NO_ID, leaders={}, replication_factor=0,
        error=codes.UNKNOWN_TOPIC_OR_PARTITION,
    )  # fmt: skip


def compare(
    a: Portrait,
    b: Portrait,
    flows: Sequence[FlowConfig],
    reach: Callable[[str], Side],
    *,
    resting: Mapping[str, str] = MappingProxyType({}),
) -> list[Difference]:
    """All differences, by kind and name. `flows` are all enabled ones of the
    configuration, in order of precedence; `reach` gives the sources of others that
    write the same copies. `resting`: why a flow copies nothing now, by its name.

    Raises:
        ClusterError: one of these does not answer.
    """
    rows: list[Difference] = []
    paired: dict[str, set[str]] = {a.alias: set(), b.alias: set()}
    copies: dict[str, set[str]] = {a.alias: set(), b.alias: set()}
    judged: dict[str, set[Acl]] = {a.alias: set(), b.alias: set()}
    merging, sides = Merging(flows), {a.alias: a, b.alias: b}
    ours = [f for f in flows if {f.source, f.target} == {a.alias, b.alias}]
    for flow in ours:
        source, target = sides[flow.source], sides[flow.target]
        copied, _ = configs.plan(_Seen(source), _Seen(target), flow, merging, reach)
        paired[source.alias] |= {each.topic for each in copied}
        paired[target.alias] |= {each.target_topic for each in copied}
        copies[target.alias] |= {each.target_topic for each in copied}
        found = of_flow(source, target, flow, copied)
        why = resting.get(flow.name, "")
        if not why:
            judged[source.alias] |= found.of_source
        judged[target.alias] |= found.of_target
        rows += (
            (each if source is a else each.turned).excused(why)
            for each in found.differences
            if not (why and each.what == ACLS)  # no flow judges them, then
        )
    no_flow = _NO_FLOW if ours else ""
    rows += _topics(a, b, paired, merging, no_flow)
    rows += _acls(a, b, judged, copies, no_flow)
    rows += _groups(a, b, {flow.source for flow in ours})
    rows += _values(QUOTAS, a, b, a.quotas, b.quotas)
    rows += _values(USERS, a, b, a.users, b.users)
    if a.version != b.version:
        versions = [".".join(map(str, side.version)) for side in (a, b)]
        rows.append(
            _row(VERSION, "brokers", versions, "mirror works with both versions")
        )
    rows += _unseen(a, b)
    return sorted(
        dict.fromkeys(rows), key=lambda row: (_ORDER.index(row.what), row.name, row.a)
    )


def partners(side: Portrait, alias: str, flows: Sequence[FlowConfig]) -> set[str]:
    """The names under which a cluster's topics should be on the other one."""
    names = {name for name in side.topics if not is_internal(name)}
    found: set[str] = set()
    in_flows: set[str] = set()
    for flow in flows:
        naming, chosen = flow.replication_policy, flow.topic_filter
        if (flow.source, flow.target) == (side.alias, alias):
            copied = {
                name
                for name in names
                if chosen.matches(name) and not naming.is_cycle(name, alias)
            }
            found |= {naming.target_topic(name) for name in copied}
            in_flows |= copied
        if (flow.source, flow.target) == (alias, side.alias):
            for name in names:
                model = naming.upstream_topic(name)
                if model is not None and chosen.matches(model):
                    found.add(model)
                    in_flows.add(name)
    return found | (names - in_flows)


# ---- what no flow copies ----


def _row(what: str, name: str, sides: Sequence[str], reason: str) -> Difference:
    """Expected if there is a reason."""
    return Difference(
        what=what,
        name=name,
        a=sides[0],
        b=sides[1],
        expected=bool(reason),
        reason=reason,
    )


def _topics(
    a: Portrait,
    b: Portrait,
    paired: Mapping[str, set[str]],
    merging: Merging,
    no_flow: str,
) -> Iterator[Difference]:
    """Topics that no flow between the two copies, by equal names."""
    in_flows = paired[a.alias] | paired[b.alias]
    for name in sorted((a.topics.keys() | b.topics.keys()) - in_flows):
        shown = [side.topics.get(name) for side in (a, b)]
        counts = [
            NOT_PERMITTED if t and t.error else partitions(t.partitions if t else 0)
            for t in shown
        ]
        why = "internal" if is_internal(name) else ""
        if NOT_PERMITTED in counts:
            # Brokers also refuse names that are not there: one side must know it.
            if None not in shown:
                yield Difference(
                    what=TOPIC, name=name, a=counts[0], b=counts[1], expected=None
                )
        elif None in shown:
            there, other = (b, a) if shown[0] is None else (a, b)
            models = [
                each.topic
                for each in merging.contributors(there.alias, name)
                if each.flow.source == other.alias
            ]
            hidden = any(model in other.topics for model in models)
            if models and not why:
                yield Difference(
                    what=TOPIC, name=name, a=counts[0], b=counts[1],
                    expected=None if hidden else False,
                    reason=f"a copy of {models[0]}, which "
                    + ("we may not see" if hidden else "is gone"),
                )  # fmt: skip
            else:
                yield _row(TOPIC, name, counts, why or no_flow)
        else:
            if counts[0] != counts[1]:
                yield _row(TOPIC, name, counts, why)
            if not why:
                yield from _configs(name, a, b)


def _configs(name: str, a: Portrait, b: Portrait) -> Iterator[Difference]:
    sides = [side.configs[name] for side in (a, b)]
    for each in sides:
        if each.error is not None:
            yield Difference(
                what=CONFIG, name=name, a=NOTHING, b=NOTHING, expected=None,
                reason=str(each.error),
            )  # fmt: skip
            return
    for key in sorted(sides[0].configs.keys() | sides[1].configs.keys()):
        found = [side.configs.get(key) for side in sides]
        values = [each and each.value for each in found]
        if values[0] != values[1]:
            own = any(
                each is not None and each.origin is Origin.TOPIC for each in found
            )
            texts = [
                NOTHING if each is None else f"{key}={each.value}" for each in found
            ]
            yield _row(CONFIG, name, texts, "" if own else "a default of the brokers")


def _acls(
    a: Portrait,
    b: Portrait,
    judged: Mapping[str, set[Acl]],
    copies: Mapping[str, set[str]],
    no_flow: str,
) -> Iterator[Difference]:
    """ACLs that are on one side only, without those that a flow's rules judge."""
    if ACLS in a.unseen or ACLS in b.unseen:
        return
    for side, other in ((a, b), (b, a)):
        for acl in side.acls - other.acls - judged[side.alias]:
            topic = acl.kind == TOPIC_ACL
            name = acl.name if topic else f"{acl.kind.lower()} {acl.name}"
            texts = (acl.text, NOTHING) if side is a else (NOTHING, acl.text)
            ours = not topic or any(map(acl.covers, copies[side.alias]))
            yield _row(ACLS, name, texts, "" if ours else no_flow)


def _groups(a: Portrait, b: Portrait, sources: set[str]) -> Iterator[Difference]:
    """Groups that are on one side only; `sources` are judged with their flows."""
    if GROUPS in a.unseen or GROUPS in b.unseen:
        return
    for side, other in ((a, b), (b, a)):
        if side.alias in sources:
            continue
        for group in side.groups.keys() - other.groups.keys():
            texts = ("exists", NOTHING) if side is a else (NOTHING, "exists")
            why = "no flow translates its offsets" if sources else ""
            yield _row(GROUPS, group, texts, why)


def _values(
    what: str,
    a: Portrait,
    b: Portrait,
    ours: Mapping[str, Mapping[str, float]],
    theirs: Mapping[str, Mapping[str, float]],
) -> Iterator[Difference]:
    """Things with a name and values, which no flow copies."""
    if what in a.unseen or what in b.unseen:
        return
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            yield _row(what, name, [_text(s.get(name)) for s in (ours, theirs)], "")


def _text(values: Mapping[str, float] | None) -> str:
    if values is None:
        return NOTHING
    return " ".join(f"{k}={v:g}" for k, v in sorted(values.items()))


def _unseen(a: Portrait, b: Portrait) -> Iterator[Difference]:
    for what in sorted(a.unseen.keys() | b.unseen.keys()):
        if a.unseen.get(what) == b.unseen.get(what) == "no authorizer":
            continue
        texts = [side.unseen.get(what, "seen") for side in (a, b)]
        yield Difference(
            what=what, name="(all)", a=texts[0], b=texts[1], expected=None,
            reason="one side cannot be compared",
        )  # fmt: skip


# ---- what a flow copies ----


@dataclass(frozen=True, slots=True, kw_only=True)
class OfFlow:
    """What one flow's copies have to do with."""

    differences: tuple[Difference, ...]
    of_source: frozenset[Acl]
    """The source's ACLs that the flow's rules judge."""
    of_target: frozenset[Acl]
    """The target's ACLs that follow from them."""


def of_flow(
    source: Portrait, target: Portrait, flow: FlowConfig, copied: Sequence[TopicDrift]
) -> OfFlow:
    """Compare all that a flow copies; `copied` is what `configs.plan` found."""
    rows: list[Difference] = []
    for each in copied:
        rows += _partitions(each)
        rows += _configs_of_flow(source, target, flow, each)
    found = _acls_of_flow(source, target, flow, copied)
    rows += [*found.differences, *_groups_of_flow(source, target, flow, copied)]
    return replace(found, differences=tuple(rows))


def _name(each: TopicDrift) -> str:
    if each.topic == each.target_topic:
        return each.topic
    return f"{each.topic} ({each.target_topic})"


def _partitions(each: TopicDrift) -> Iterator[Difference]:
    if each.problem and not each.target_partitions:
        yield Difference(
            what=TOPIC,
            name=_name(each),
            a=partitions(each.partitions),
            b=NOT_PERMITTED,
            expected=None,
            reason=each.problem,
        )
    elif each.partitions != each.target_partitions:
        shared = each.merged and each.target_partitions > each.partitions
        yield Difference(
            what=TOPIC,
            name=_name(each),
            a=partitions(each.partitions),
            b=partitions(each.target_partitions),
            expected=shared,
            reason="another flow writes this copy too" if shared else "",
        )


def _configs_of_flow(
    source: Portrait, target: Portrait, flow: FlowConfig, each: TopicDrift
) -> Iterator[Difference]:
    if not each.target_partitions:
        return
    if each.problem and not each.configs:
        yield Difference(
            what=CONFIG, name=_name(each), a=NOTHING, b=NOTHING, expected=None,
            reason=each.problem,
        )  # fmt: skip
        return
    ours, theirs = source.configs[each.topic], target.configs[each.target_topic]
    wrong = {drift.name for drift in each.configs}
    off = "" if flow.sync_topic_configs else "not excluded, sync_topic_configs is off"
    for key in sorted(ours.configs.keys() | theirs.configs.keys()):
        one, other = ours.configs.get(key), theirs.configs.get(key)
        if (one and one.value) == (other and other.value) and key not in wrong:
            continue
        yield Difference(
            what=CONFIG,
            name=_name(each),
            a=NOTHING if one is None else f"{key}={one.value}",
            b=NOTHING if other is None else f"{key}={other.value}",
            expected=key not in wrong,
            reason=(off or "not corrected yet")
            if key in wrong
            else _why(flow, each, key, source, target),
        )


def _why(
    flow: FlowConfig, each: TopicDrift, key: str, source: Portrait, target: Portrait
) -> str:
    """What explains that a config differs."""
    sides = (source.configs[each.topic], target.configs[each.target_topic])
    if any(re.fullmatch(p, key) for p in flow.config_properties_exclude):
        return "config_properties_exclude"
    if any(key not in side.configs for side in sides):
        return "only one cluster's brokers know it"
    if all(side.configs[key].origin is not Origin.TOPIC for side in sides):
        return "a default of the brokers"
    return "another flow decides it"


def _acls_of_flow(
    source: Portrait, target: Portrait, flow: FlowConfig, copied: Sequence[TopicDrift]
) -> OfFlow:
    """The source's ACLs of topics, and what the target should have by `acls`."""
    rows, judged, explained = [], set(), set()
    unseen = ACLS in source.unseen or ACLS in target.unseen
    names = {each.topic for each in copied}
    off = "" if flow.sync_topic_acls else "sync_topic_acls is off"
    for acl in sorted(source.acls):
        if acl.kind != TOPIC_ACL:
            continue
        wish = acls.translated(
            [Granted(binding=acl.binding)], flow, names,
            source_id=source.cluster_id, target_id=target.cluster_id,
        )  # fmt: skip
        made = {binding.acl for binding in wish.bindings}
        skipped = wish.skipped[0].reason if wish.skipped else ""
        explained |= made
        if made or skipped:
            judged.add(acl)
        if not unseen and (made - target.acls or skipped):
            rows.append(
                Difference(
                    what=ACLS,
                    name=acl.name,
                    a=acl.text,
                    b=NOTHING,
                    expected=bool(skipped),
                    reason=skipped or off or "not added yet",
                )
            )
    return OfFlow(
        differences=tuple(rows),
        of_source=frozenset(judged),
        of_target=frozenset(explained),
    )


def _groups_of_flow(
    source: Portrait, target: Portrait, flow: FlowConfig, copied: Sequence[TopicDrift]
) -> Iterator[Difference]:
    """Groups of the source that have committed offsets."""
    if GROUPS in source.unseen or GROUPS in target.unseen:
        return
    wants = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    names = {each.topic for each in copied}
    for group, read in sorted(source.groups.items()):
        if group in target.groups or not read:
            continue
        if not wants.matches(group):
            why = "not in groups"
        elif not read & names:
            why = "it reads no topic of the flow"
        elif not flow.sync_group_offsets:
            why = "sync_group_offsets is off; checkpoints have its offsets"
        else:
            why = ""
        yield Difference(
            what=GROUPS,
            name=group,
            a=f"offsets in {len(read)} topics",
            b=NOTHING,
            expected=bool(why),
            reason=why or "not synced yet",
        )


# ---- schemas ----


def of_schemas(found: SchemasResult) -> Iterator[Difference]:
    """A row for each subject that is not the same; of a remark, one that is expected.
    Seen from the source.
    """
    for each in found.subjects:
        if each.state is not SchemaState.SYNCED or each.reason:
            yield Difference(
                what=SCHEMA,
                name=str(each.subject),
                a=some(each.versions, "version"),
                b=f"{each.there} of {each.versions}",
                expected=each.state is SchemaState.SYNCED,
                reason=each.reason or "not copied yet",
            )
    for level in found.levels:
        yield Difference(
            what=SCHEMA,
            name=str(level.subject) or "(level)",
            a=f"level {level.then or 'not set'}",
            b=f"level {level.now or 'not set'}",
            expected=False,
            reason="not copied yet",
        )
