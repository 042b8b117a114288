"""Gives copies the ACLs of their topics, and removes them when they are revoked.

Main functions: `look`, which changes nothing, and `sync`; both return a frozen
`AclsResult`. `withdraw` removes what a flow has added. A cluster without an
authorizer, or one that does not let us see its ACLs, is a state, not an error.
`acl_notes` remembers what was added. The rules are MirrorMaker 2's, and what revocation
adds: `translated`, what a source's ACLs mean on the target, and `changes`, what must
change there; both are pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirror.clusters.admin import acls
from mirror.clusters.admin.acls import ANY_TOPIC, Binding, NoAuthorizerError
from mirror.errors import AuthorizationError
from mirror.status.states import AclState
from mirror.topics import topics
from mirror.topics.acl_notes import AclOwnership, steady

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.errors import ClusterError
    from mirror.policy.naming import ReplicationPolicy

_LITERAL, _PREFIXED = "LITERAL", "PREFIXED"
_MOST_PROBLEMS = 10
"""Without the right to change ACLs every single one is refused."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsResult:
    """What one look found, and what was done about it."""

    state: AclState
    reason: str = ""
    """Why there is nothing to do."""
    wanted: tuple[Binding, ...] = ()
    """What copies should have."""
    added: tuple[Binding, ...] = ()
    """Added to copies; from `look`, still to be added."""
    removed: tuple[Binding, ...] = ()
    """Removed from copies; from `look`, still to be removed."""
    skipped: tuple[Skipped, ...] = ()
    problems: tuple[str, ...] = ()
    """What a cluster refused, each with its reason."""


def look(
    source: Cluster,
    target: Cluster,
    flow: FlowConfig,
    *,
    rests: Callable[[str], bool] = lambda _copy: False,
) -> AclsResult:
    """What `sync` would do; nothing is changed.

    Raises:
        ClusterError: a cluster does not answer.
    """
    found, _, _ = _find(source, target, flow, rests)
    return found


def sync(
    source: Cluster,
    target: Cluster,
    flow: FlowConfig,
    *,
    rests: Callable[[str], bool] = lambda _copy: False,
) -> AclsResult:
    """Give copies the ACLs of their topics, by MirrorMaker 2's rules, and remove those
    added earlier that are no longer justified. `rests`: whether a copy keeps what it
    has.

    Raises:
        ClusterError: a cluster does not answer.
    """
    found, plan, owned = _find(source, target, flow, rests)
    if owned is None:
        return found
    try:
        owned.add(
            flow.source,
            {**plan.create, **plan.adopt},
            replication_factor=flow.replication_factor,
        )
    except AuthorizationError as error:
        # Without this note it looks like an ACL that a user made.
        return AclsResult(
            state=AclState.NOT_PERMITTED, reason=str(error), skipped=found.skipped
        )
    refused = acls.create(target, plan.create)
    kept = acls.delete(target, plan.delete)
    owned.remove(
        flow.source,
        [*refused, *plan.release, *(b for b in plan.delete if b not in kept)],
    )
    return replace(
        found,
        added=tuple(b for b in plan.create if b not in refused),
        removed=tuple(b for b in plan.delete if b not in kept),
        problems=_some(sorted(map(str, (refused | kept).values()))),
    )


def _some(problems: list[str]) -> tuple[str, ...]:
    if len(problems) <= _MOST_PROBLEMS:
        return tuple(problems)
    shown = problems[:_MOST_PROBLEMS]
    return (*shown, f"and {len(problems) - len(shown)} more ACLs refused")


def _find(
    source: Cluster,
    target: Cluster,
    flow: FlowConfig,
    rests: Callable[[str], bool],
) -> tuple[AclsResult, AclChanges, AclOwnership | None]:
    """What is to be done, and the notes about the target; None: why there is nothing to
    do.
    """
    try:
        ruled, granted = steady(
            lambda: AclOwnership(source), lambda: acls.describe(source)
        )
        owned, present = steady(
            lambda: AclOwnership(target), lambda: acls.describe(target)
        )
    except NoAuthorizerError as error:
        return _nothing(AclState.NO_AUTHORIZER, error)
    except AuthorizationError as error:
        return _nothing(AclState.NOT_PERMITTED, error)
    brought = ruled.of_others("")
    wanted = translated(
        # A fence is about its own cluster: its copies would fence the target as well.
        [
            Granted(binding=b, via=brought.get(b, ()))
            for b in ruled.without_fences(granted)
        ],
        flow,
        [topic.topic for topic in topics.select(source, flow).topics],
        source_id=source.cluster_id,
        target_id=target.cluster_id,
    )
    plan = changes(
        wanted,
        present=present,
        ours=[b for b in owned.of_source(flow.source) if not rests(b.topic)],
        others=owned.of_others(flow.source),
    )
    found = AclsResult(
        state=AclState.SYNCED,
        wanted=tuple(wanted.bindings),
        added=tuple(plan.create),
        removed=plan.delete,
        skipped=wanted.skipped,
    )
    return found, plan, owned


def _nothing(
    state: AclState, error: ClusterError
) -> tuple[AclsResult, AclChanges, None]:
    return AclsResult(state=state, reason=str(error)), AclChanges(), None


# ---- a flow that is taken away ----


def added_by(target: Cluster, source: str) -> tuple[Binding, ...]:
    """What flows from this source have added to the target, and nothing else wants;
    changes nothing.

    Raises:
        ClusterError: the target does not answer, or does not show its ACLs.
    """
    return _to_withdraw(target, source)[1].delete


def withdraw(target: Cluster, source: str) -> None:
    """Remove these, and the notes about them. Raises as `added_by`, or if the target
    refuses to remove some; the others are gone then.
    """
    owned, plan = _to_withdraw(target, source)
    kept = acls.delete(target, plan.delete)
    owned.remove(
        source, [*plan.release, *(each for each in plan.delete if each not in kept)]
    )
    for error in kept.values():
        raise error


def _to_withdraw(target: Cluster, source: str) -> tuple[AclOwnership, AclChanges]:
    owned, present = steady(lambda: AclOwnership(target), lambda: acls.describe(target))
    plan = changes(
        WantedAcls(bindings={}, justified=frozenset()),
        present=present,
        ours=owned.of_source(source),
        others=owned.of_others(source),
    )
    return owned, plan


# ---- the rules ----


def translated(
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


def changes(
    wanted: WantedAcls,
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
    gone = mine - wanted.justified
    return AclChanges(
        create={b: via for b, via in wanted.bindings.items() if b not in there},
        adopt={
            b: via
            for b, via in wanted.bindings.items()
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
