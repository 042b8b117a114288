"""The ACLs that copies should have: MirrorMaker 2's rules, and revocation.

Main functions: `wanted`, what a source's ACLs mean on the target, and `plan`, what must
change there. Pure: the inputs are ACLs as `clusters.admin.acls` reads them, and who
added them as `acl_ownership` keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirror.clusters.admin.acls import ANY_TOPIC, Binding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.config.schema import FlowConfig
    from mirror.policy.naming import ReplicationPolicy

_LITERAL, _PREFIXED = "LITERAL", "PREFIXED"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Granted:
    """An ACL on the source, and how it got there."""

    binding: Binding
    via: tuple[str, ...] = ()
    """Ids of the clusters that mirrors brought it through; empty: created there."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Skipped:
    """An ACL on the source that copies do not get."""

    binding: Binding
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedAcls:
    """What a source's ACLs mean on the target."""

    bindings: Mapping[Binding, tuple[str, ...]]
    """What copies should have, each with the clusters it came through."""
    justified: frozenset[Binding]
    """What the source's ACLs justify, even on topics that are no longer copied."""
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AclChanges:
    """What must change on the target."""

    create: Mapping[Binding, tuple[str, ...]] = field(default_factory=dict)
    adopt: Mapping[Binding, tuple[str, ...]] = field(default_factory=dict)
    """Already there, and added by another flow: now ours as well."""
    delete: tuple[Binding, ...] = ()
    """Added by us, and no longer justified by anything."""
    release: tuple[Binding, ...] = ()
    """No longer ours, but left alone: already gone, or also another flow's."""


def wanted(
    granted: Iterable[Granted],
    flow: FlowConfig,
    topics: Collection[str],
    *,
    source_id: str,
    target_id: str,
) -> WantedAcls:
    """Translate a source's ACLs; `topics` are those that the flow copies."""
    bindings: dict[Binding, tuple[str, ...]] = {}
    justified, skipped = set(), []
    naming, wants = flow.replication_policy, flow.topic_filter
    for each in sorted(granted):
        binding = each.binding
        if target_id in each.via:
            # It would justify itself, and could never be revoked.
            skipped.append(Skipped(binding=binding, reason="came from the target"))
            continue
        made = _translate(binding, flow, naming)
        if isinstance(made, str):
            skipped.append(Skipped(binding=binding, reason=made))
            continue
        justified.add(made)
        if binding.pattern == _PREFIXED:
            ours = any(topic.startswith(binding.topic) for topic in topics)
        else:
            # Including topics that do not exist yet, as in MirrorMaker 2.
            ours = wants.matches(binding.topic) and not naming.is_cycle(
                binding.topic, flow.target
            )
        if ours:
            bindings.setdefault(made, (*each.via, source_id))
    return WantedAcls(
        bindings=bindings, justified=frozenset(justified), skipped=tuple(skipped)
    )


def plan(
    wish: WantedAcls,
    *,
    present: Collection[Binding],
    ours: Collection[Binding],
    others: Collection[Binding],
) -> AclChanges:
    """What to do, given what the target has, what of it this flow has added, and what
    other flows have.

    An ACL created by hand is never touched: it is not ours, even if it is the same as
    one we would create.
    """
    there, mine, theirs = set(present), set(ours), set(others)
    gone = mine - wish.justified
    return AclChanges(
        create={b: via for b, via in wish.bindings.items() if b not in there},
        adopt={
            b: via
            for b, via in wish.bindings.items()
            if b in there and b in theirs and b not in mine
        },
        delete=tuple(sorted((gone & there) - theirs)),
        release=tuple(sorted((gone - there) | (gone & theirs))),
    )


def _translate(
    binding: Binding, flow: FlowConfig, naming: ReplicationPolicy
) -> Binding | str:
    """The ACL on the target; or why there is none."""
    if (binding.permission, binding.operation) == ("ALLOW", "WRITE"):
        return "copies are read-only"
    operation = binding.operation
    if (binding.permission, operation) == ("ALLOW", "ALL"):
        operation = "READ"
    made = replace(binding, operation=operation)
    if binding.pattern == _LITERAL and binding.topic != ANY_TOPIC:
        return replace(made, topic=naming.target_topic(binding.topic))
    if binding.pattern == _PREFIXED and not flow.sync_prefixed_acls:
        return "PREFIXED, and sync_prefixed_acls is off"
    # Under a prefix, all topics of the source are those that have it on the target.
    ranges = naming.target_names("" if binding.topic == ANY_TOPIC else binding.topic)
    if len(ranges) > 1:
        return f"policy {flow.policy} does not preserve topic name prefixes"
    start = ranges[0].start
    return replace(made, topic=start, pattern=_PREFIXED) if start else made
