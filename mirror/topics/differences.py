"""How what a flow copies differs from its source, and what explains it.

Main type: `Difference`; main function: `of_flow`, over two `Portrait`s and what
`configs.plan` found. The rules for configs are in `config_rules`, those for ACLs in
`acl_rules`; this module says in words which of them explains a difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import re
from typing import TYPE_CHECKING

from mirror.clusters.admin.acls import Acl, Binding
from mirror.clusters.admin.configs import Origin
from mirror.policy.selection import GroupFilter
from mirror.status.wording import some
from mirror.topics import acl_rules
from mirror.topics.acl_rules import Granted
from mirror.topics.portrait import ACLS, GROUPS, TOPIC_ACL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.config.schema import FlowConfig
    from mirror.status.values import TopicDrift
    from mirror.topics.portrait import Portrait

TOPIC, CONFIG = "topic", "config"
NOTHING, NOT_PERMITTED = "-", "not permitted"


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
        rows += _configs(source, target, flow, each)
    found = _acls(source, target, flow, copied)
    rows += [*found.differences, *_groups(source, target, flow, copied)]
    return replace(found, differences=tuple(rows))


def partitions(count: int) -> str:
    """As people read it."""
    return some(count, "partition") if count else NOTHING


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


def _configs(
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


def _acls(
    source: Portrait, target: Portrait, flow: FlowConfig, copied: Sequence[TopicDrift]
) -> OfFlow:
    """The source's ACLs of topics, and what the target should have by `acl_rules`."""
    rows, judged, explained = [], set(), set()
    unseen = ACLS in source.unseen or ACLS in target.unseen
    names = {each.topic for each in copied}
    off = "" if flow.sync_topic_acls else "sync_topic_acls is off"
    for acl in sorted(source.acls):
        if acl.kind != TOPIC_ACL:
            continue
        wish = acl_rules.wanted(
            [Granted(binding=_binding(acl))], flow, names,
            source_id=source.cluster_id, target_id=target.cluster_id,
        )  # fmt: skip
        made = {_acl(binding) for binding in wish.bindings}
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


def _binding(acl: Acl) -> Binding:
    return Binding(
        topic=acl.name,
        pattern=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )


def _acl(binding: Binding) -> Acl:
    return Acl(
        kind=TOPIC_ACL,
        name=binding.topic,
        pattern=binding.pattern,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission=binding.permission,
    )


def _groups(
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
