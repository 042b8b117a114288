"""Where two clusters differ, and which differences the configuration explains.

Main function: `compare`, over two `Portrait`s and all flows. A flow's names say which
topics belong together (`differences`); topics and ACLs of no flow are compared with
those of the same name, and so is everything that no flow copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin.configs import Origin
from mirror.clusters.topics import NO_ID, Topic
from mirror.policy.naming import is_internal
from mirror.topics import configs
from mirror.topics.differences import (
    CONFIG,
    NOT_PERMITTED,
    NOTHING,
    TOPIC,
    Difference,
    of_flow,
    partitions,
)
from mirror.topics.merging import Merging
from mirror.topics.portrait import ACLS, GROUPS, QUOTAS, TOPIC_ACL, USERS, Portrait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.admin.acls import Acl
    from mirror.clusters.admin.configs import TopicConfigs
    from mirror.config.schema import FlowConfig
    from mirror.topics.sides import Side

VERSION = "version"
_ORDER = (TOPIC, CONFIG, ACLS, GROUPS, QUOTAS, USERS, VERSION)
_NO_FLOW = "no flow copies it"


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


def _absent(name: str) -> Topic:
    return Topic(
        name=name, topic_id=NO_ID, leaders={}, replication_factor=0,
        error=codes.UNKNOWN_TOPIC_OR_PARTITION,
    )  # fmt: skip
