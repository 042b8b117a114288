"""Gives copies the ACLs of their topics, and removes them when they are revoked.

Main functions: `look`, which changes nothing, and `sync`; both return a frozen
`AclsResult`. A cluster without an authorizer, or one that does not let us see its ACLs,
is a state, not an error. `acl_rules` has the rules, `acl_ownership` remembers what was
added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.clusters.admin import acls
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.errors import AuthorizationError
from mirror.status.states import AclState
from mirror.topics import acl_rules, topics
from mirror.topics.acl_notes import steady
from mirror.topics.acl_ownership import AclOwnership
from mirror.topics.acl_rules import AclChanges, Granted

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.admin.acls import Binding
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.topics.acl_rules import Skipped

_MOST_PROBLEMS = 10
"""Without the right to change ACLs every single one is refused."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundAcls:
    """Both clusters' ACLs, or why there is nothing to do."""

    plan: AclChanges = field(default_factory=AclChanges)
    wanted: tuple[Binding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    owned: AclOwnership | None = None
    state: AclState = AclState.SYNCED
    reason: str = ""


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
    found = _find(source, target, flow, rests)
    return AclsResult(
        state=found.state,
        reason=found.reason,
        wanted=found.wanted,
        added=tuple(found.plan.create),
        removed=found.plan.delete,
        skipped=found.skipped,
    )


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
    found = _find(source, target, flow, rests)
    if found.owned is None:
        return AclsResult(state=found.state, reason=found.reason)
    owned, plan = found.owned, found.plan
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
    return AclsResult(
        state=AclState.SYNCED,
        wanted=found.wanted,
        added=tuple(b for b in plan.create if b not in refused),
        removed=tuple(b for b in plan.delete if b not in kept),
        skipped=found.skipped,
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
) -> _FoundAcls:
    try:
        ruled, granted = steady(
            lambda: AclOwnership(source), lambda: acls.describe(source)
        )
        owned, present = steady(
            lambda: AclOwnership(target), lambda: acls.describe(target)
        )
    except NoAuthorizerError as error:
        return _FoundAcls(state=AclState.NO_AUTHORIZER, reason=str(error))
    except AuthorizationError as error:
        return _FoundAcls(state=AclState.NOT_PERMITTED, reason=str(error))
    brought = ruled.of_others("")
    wish = acl_rules.wanted(
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
    return _FoundAcls(
        plan=acl_rules.plan(
            wish,
            present=present,
            ours=[b for b in owned.of(flow.source) if not rests(b.topic)],
            others=owned.of_others(flow.source),
        ),
        wanted=tuple(wish.bindings),
        skipped=wish.skipped,
        owned=owned,
    )
