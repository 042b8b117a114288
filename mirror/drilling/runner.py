"""Carries out a drill: looks at both clusters, and has everything judged.

Main function: `drill`. It uses what a failover uses: positions from the last
checkpoints and the map, ACLs from the standby topic. Requests go out for many topics
and groups at once, and the two clusters are looked at side by side. It writes nothing,
and takes its time, as others copy meanwhile.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.clusters import cpu_share
from mirror.clusters.admin import abilities, disks
from mirror.config.login_settings import principals
from mirror.drilling import (
    capacity,
    conditions,
    differences,
    group_looks,
    rights,
    schemas,
)
from mirror.drilling.findings import Drill, DrillFinding, FindingLevel, in_order
from mirror.drilling.looked import look
from mirror.driver import role_notes
from mirror.errors import AuthorizationError, FenceError, MirrorError
from mirror.metadata import comparing
from mirror.metadata.portrait import ACLS
from mirror.metadata.sides import Live
from mirror.offsets import progress
from mirror.recovery import access, ends, proofs, roles
from mirror.recovery.looking import Looking
from mirror.switching import answers, fences, whole
from mirror.switching.fencing import KnownGrants
from mirror.switching.steps import assess
from mirror.tails.unsettled import unsettled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.drilling.looked import Looked
    from mirror.recovery.journal import Entry
    from mirror.status.risk import RiskStatus
    from mirror.switching.stage import Stage

TopicPartition = tuple[str, int]

RECORDS = 100
_EVERYONE = "allow.everyone.if.no.acl.found"
_IN_SYNC = "min.insync.replicas"


@cpu_share.gently()
@progress.reading_once()
def drill(
    stage: Stage,
    reach: Callable[[str], Cluster],
    *,
    records: int = RECORDS,
    at: float | None = None,
) -> Drill:
    """Rehearse a failover from the stage's source to its target. `reach` gives further
    clusters; `at`: now.

    Raises:
        MirrorError: a cluster does not answer, the flow never ran, or its source is not
            the active cluster.
    """
    began = time.monotonic()
    at = time.time() if at is None else at
    flow, pair = stage.flow, stage.pair
    entries = stage.entries()
    found = [*_role(stage, entries), *_tail(stage, entries)]
    looked = look(stage)
    risk = _risk(looked, at)
    judged = group_looks.judge(looked, records=records, at=at)
    found += judged.findings
    unseen: list[str] = []
    found += _differences(looked, reach, unseen)
    found += _rights(looked, list(judged.names), unseen)
    found += _capacity(looked, unseen)
    found += schemas.judge(looked, records=records, unseen=unseen)
    found += conditions.of_risk(risk, pair, flow)
    found += conditions.of_proofs(proofs.read(stage.target, flow.source), flow, at=at)
    kept = looked.kept
    found += conditions.of_standby(
        access.read(kept, flow.source) if kept is not None else None,
        ends.at(kept) if kept is not None else 0.0,
        flow,
        at=at,
    )
    found += conditions.of_hooks(pair)
    found += _warnings(stage)
    return Drill(
        pair=pair.name,
        source=flow.source,
        target=flow.target,
        at=at,
        seconds=round(time.monotonic() - began, 3),
        groups=judged.groups,
        groups_exact=judged.groups_exact,
        partitions=judged.partitions,
        partitions_exact=judged.partitions_exact,
        lost_seconds=risk.seconds,
        lost_records=risk.records,
        findings=in_order(found),
        unseen=tuple(unseen),
    )


def _role(stage: Stage, entries: Sequence[Entry]) -> Iterator[DrillFinding]:
    """Raises:
    MirrorError: there is nothing to rehearse.
    """
    flow = stage.flow
    known = answers.Known(pair=stage.pair, entries=tuple(entries))
    answers.answer(answers.Asks.DRILL, flow.source, flow.target, known)
    name = progress.topic_name(flow.source)
    if stage.target.topic(name) is None:
        raise MirrorError(
            f"flow {flow.name} never ran: cluster {flow.target} has no topic {name}"
        )
    role_notes.require(stage.pair, entries, (stage.source, stage.target))
    unselected = whole.require_selection(stage)
    for text in unselected:
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=f"pair {stage.pair.name}",
            reason=text,
            cure="use the service's configuration",
        )
    if run := roles.open_run(entries):
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=f"pair {stage.pair.name}",
            reason=f"a run is open: {run.text}",
            cure="finish it, or undo it with --abort",
            command=f"mirror {run.first.kind.lower()} '{roles.way(run.first)}'",
        )
    elif owed := roles.owed(entries):
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=f"cluster {owed.source}",
            reason="its fence is pending: producers may write there",
            cure="run a service that reaches it",
            command="mirror run",
        )


def _tail(stage: Stage, entries: Sequence[Entry]) -> Iterator[DrillFinding]:
    """What an earlier failover to the source left on the target."""
    reverse = stage.reverse
    tail = unsettled(reverse, stage.target, stage.source, entries)
    if left := tail.left(reverse):
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=f"cluster {reverse.source}",
            reason=f"since the failover to {reverse.target}, {left}",
            cure="replay, export or skip the tail",
            command=f"mirror tail list '{stage.way_back}'",
        )


def _risk(looked: Looked, at: float) -> RiskStatus:
    stage = looked.stage
    reader = progress.reader(stage.target, progress.topic_name(looked.flow.source))
    known = {} if looked.kept is None else ends.read(looked.kept, looked.flow.source)
    looking = Looking(known, lambda: reader.read(wait=False))
    names = [each.topic for each in looked.topics]
    return looking.look(stage.source, names, at=at).risk


def _differences(
    looked: Looked, reach: Callable[[str], Cluster], unseen: list[str]
) -> Iterable[DrillFinding]:
    flow = looked.flow
    found = comparing.compare(
        looked.source,
        looked.target,
        looked.config.enabled_flows,
        lambda alias: Live(reach(alias)),
    )
    unseen += differences.unseen(found)
    names = {
        each.topic
        if each.topic == each.target_topic
        else f"{each.topic} ({each.target_topic})"
        for each in looked.topics
    }
    return differences.judge(
        found, names, flow=flow.name, target=flow.target, bootstrap=_bootstrap(looked)
    )


def _rights(
    looked: Looked, names: Sequence[str], unseen: list[str]
) -> Iterator[DrillFinding]:
    stage, flow = looked.stage, looked.flow
    there, here = looked.source.acls, KnownGrants(own="", acls=looked.target.acls)
    config = looked.config
    if stage.pair.fence == "acl":
        try:
            there = fences.look(stage.source, config, (), probe=False).acls
            here = fences.look(stage.target, config, (), probe=False)
        except FenceError as error:
            yield DrillFinding(
                level=FindingLevel.NOT_READY,
                subject=f"pair {stage.pair.name}",
                reason=f"no fence is possible: {error}",
                cure="correct that, or use another `fence` of the pair",
            )
            return
        except AuthorizationError as error:
            yield DrillFinding(
                level=FindingLevel.NOT_READY,
                subject=f"pair {stage.pair.name}",
                reason=f"mirror may not see ACLs, so it can neither fence nor grant "
                f"rights: {error}",
                cure="give mirror what recovery needs",
                command="mirror config acls --for recovery",
            )
            return
    elif ACLS in looked.target.unseen or ACLS in looked.source.unseen:
        return  # no authorizer, or `differences` has said that we may not see them
    yield from rights.judge(
        rights.RightsTerms(
            flow=flow,
            topics=[each.topic for each in looked.topics],
            groups=names,
            own=principals(config, flow.source).values(),
            bootstrap=_bootstrap(looked),
            granted=stage.pair.fence == "acl",
            everyone=_everyone(stage.target, unseen),
        ),
        there,
        here,
    )


def _bootstrap(looked: Looked) -> str:
    return ",".join(looked.config.clusters[looked.flow.target].bootstrap_servers)


def _everyone(target: Cluster, unseen: list[str]) -> bool:
    try:
        return abilities.settings(target, [_EVERYONE]).get(_EVERYONE) == "true"
    except AuthorizationError:
        unseen.append(f"{_EVERYONE} of {target.alias}: not permitted")
        return False


def _capacity(looked: Looked, unseen: list[str]) -> Iterable[DrillFinding]:
    stage, flow = looked.stage, looked.flow
    copies = {each.topic: each.target_topic for each in looked.topics}

    def seen(cluster: Cluster) -> tuple[disks.Disk, ...]:
        try:
            return disks.disks(cluster)
        except AuthorizationError:
            unseen.append(f"disks of {cluster.alias}: not permitted")
            return ()

    return capacity.judge(
        capacity.CapacitySeen(
            target=flow.target,
            brokers=stage.target.brokers,
            replication_factor=flow.replication_factor,
            copies=copies,
            here=disks.replicas(stage.target, copies.values()),
            there=disks.replicas(stage.source, copies),
            needed_in_sync={
                name: int(found.value)
                for name in copies.values()
                if name in looked.target.configs
                and (found := looked.target.configs[name].configs.get(_IN_SYNC))
                and found.value
            },
            disks_here=seen(stage.target),
            disks_there=seen(stage.source),
        )
    )


def _warnings(stage: Stage) -> Iterator[DrillFinding]:
    if stage.pair.leave_out_away:
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=f"pair {stage.pair.name}",
            reason="leave_out_away is on, and a failover is refused",
            cure="be ready to turn it off, for the service too",
        )
    for text in assess.renewed(stage):
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=f"pair {stage.pair.name}",
            reason=text,
            cure="let the flow copy the new topics",
        )
