"""The pair that a canary switches, and the clearing of what canaries leave.

Main functions: `of`, a pair of the same clusters with the canary's topic and group
alone, so that the journal keeps a role of its own for it; `clear`, before a canary and
after it: no run is open, no ACL is left, and the role is where the next one begins.
Clearing can be done again after any failure, on any machine. It fences a canary that
still runs; it refuses while a switch of the same clusters is under way.
"""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING
import uuid

from mirror.clusters.admin import groups
from mirror.config import scopes
from mirror.config.pair_settings import PairConfig
from mirror.errors import MirrorError
from mirror.metadata.acl_notes import AclNotes, AclPlan
from mirror.policy.naming import CANARY
from mirror.policy.selection import GroupFilter
from mirror.recovery import journal, roles
from mirror.recovery.journal import Entry, JournalReader, JournalWriter, StepState
from mirror.switching import fences, fencing, procedure, rights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import MirrorConfig

PRINCIPAL = f"User:{CANARY}"
"""Who may write to the canary's topic, so that a fence has somebody to keep out."""


def of(pair: PairConfig, active: str) -> PairConfig:
    """The canary's pair, beside the one that is rehearsed."""
    hooks = None if pair.hooks is None else pair.hooks.of_canary()
    by_hook = hooks is not None and hooks.stop_producers is not None
    return PairConfig(
        one=pair.one,
        other=pair.other,
        scope=CANARY,
        topics=(CANARY,),
        groups=(CANARY,),
        active=active,
        # Without the hook only our own producer has to stop.
        fence="confirmed" if pair.fence == "hook" and not by_hook else pair.fence,
        max_lag_seconds=pair.max_lag_seconds,
        block_seconds=pair.block_seconds,
        hooks=hooks,
    )


def require_free(canary: PairConfig, clusters: Sequence[Cluster]) -> None:
    """
    Raises:
        MirrorError: a switch or failover of these clusters is under way, or a cluster
            does not answer.
    """
    journals = [JournalReader(each).read(wait=False) for each in clusters]
    if (run := roles.open_beside(canary, *journals)) is not None:
        raise procedure.is_open(run)


def clear(
    canary: PairConfig, clusters: Sequence[Cluster], *, by: str
) -> tuple[str, ...]:
    """Bring everything to where a canary begins, at `canary.active`; returns what was
    left of an earlier one, in words. `clusters`: both.

    Raises:
        FencedError: another operator of these clusters took over.
        MirrorError: as `require_free`, or a cluster refuses.
    """
    require_free(canary, clusters)
    writers = [JournalWriter(each, canary.name) for each in clusters]
    # What began right before they were fenced.
    require_free(canary, clusters)
    found = [each.entries(seconds=journal.PATIENCE_SECONDS) for each in writers]
    entries = roles.merged(*found, pair=canary.name)
    left: list[str] = []
    for run in roles.runs(entries):
        if run.open:
            left.append(f"{run.text} is ended")
            _write(writers, _end_of(run, by))
    for cluster in clusters:
        # Whatever the fence is now: it may have been another one then.
        notes = AclNotes(cluster)
        left += [
            f"{name} on {cluster.alias} is taken back"
            for name in (
                fencing.name(canary.name),
                rights.name(canary.name),
                _planted(canary),
            )
            if notes.noted(name).changes
            if fences.lift(cluster, name)
        ]
    for cluster in clusters:
        groups.delete(cluster, [CANARY])
    if roles.role(entries, canary).active != canary.active:
        _write(writers, *_role(canary, entries, by))
    return tuple(left)


def plant(canary: PairConfig, config: MirrorConfig, cluster: Cluster) -> None:
    """Let somebody write to the canary's topic, unless everyone may.

    Raises:
        FenceError: ACLs cannot fence this cluster.
        ClusterError: it does not answer, or refuses.
    """
    known = fences.look(cluster, config, [CANARY])
    if known.everyone:
        return
    acl = fencing.literal(CANARY, PRINCIPAL, "WRITE")
    fences.lay(cluster, AclPlan(by=_planted(canary), adds=(acl,), topics=(CANARY,)))


def _planted(canary: PairConfig) -> str:
    return f"writer {canary.name}"


def _write(writers: Sequence[JournalWriter], *entries: Entry) -> None:
    for entry in entries:
        for each in writers:
            each.write(entry)


def _end_of(run: roles.Run, by: str) -> Entry:
    return replace(
        run.first,
        number=procedure.number(run.entries),
        step=roles.END,
        state=StepState.DONE if run.moved else StepState.UNDONE,
        at=time.time(),
        by=by,
        details={},
    )


def _role(canary: PairConfig, entries: Sequence[Entry], by: str) -> list[Entry]:
    """What makes the cluster active at which the next canary begins."""
    epoch = max((each.epoch for each in entries), default=0) + 1
    run = uuid.uuid4().hex
    return [
        replace(each, run=run, epoch=epoch)
        for each in roles.first_role(canary, at=time.time(), by=by)
    ]


def require_copied(config: MirrorConfig, pair: PairConfig) -> None:
    """
    Raises:
        MirrorError: a flow of the pair leaves the canary's topic or group out, or they
            belong to a pair with a name, which moves them with its applications.
    """
    canary = of(pair, pair.active)
    for each in config.pairs_of(*pair.members):
        if each.scope is not None and (taken := scopes.overlap(canary, each)):
            raise MirrorError(
                f"the pair {each.name} has {taken}, which a canary switches by itself: "
                f"narrow the topics and groups of {each.name}"
            )
    for source, target in (pair.members, pair.members[::-1]):
        name = f"{source}->{target}"
        flow = next(f for f in config.enabled_flows if f.name == name)
        if not flow.topic_filter.matches(CANARY):
            raise MirrorError(
                f'flow {name} does not copy the topic {CANARY}: add "{CANARY}" to its '
                "topics"
            )
        copy = flow.replication_policy.target_topic(CANARY)
        if not flow.replication_policy.names_source and copy != CANARY:
            raise MirrorError(
                f"flow {name} calls the copy of {CANARY} {copy}: a canary needs the "
                "same name on both clusters; leave it out of rename"
            )
        wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
        if not wanted.matches(CANARY):
            raise MirrorError(
                f'flow {name} leaves the group {CANARY} out: add "{CANARY}" to its '
                "groups"
            )
