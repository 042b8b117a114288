"""Carries out a drill: looks at both clusters, and has everything judged.

Main function: `drill`. It uses what a failover uses: positions from the last
checkpoints and the map, ACLs from the standby topic. Requests go out for many topics
and groups at once, and the two clusters are looked at side by side. It writes nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import abilities, disks, group_offsets, groups
from mirror.clusters.admin.groups import GroupKind
from mirror.drilling import (
    capacity,
    conditions,
    differences,
    next_records,
    positions,
    rights,
)
from mirror.drilling.findings import Drill, Finding, Level, in_order
from mirror.drilling.positions import Stand
from mirror.errors import AuthorizationError, FenceError, MirrorError
from mirror.metadata import comparing, portrait
from mirror.metadata.merging import Merging
from mirror.metadata.portrait import ACLS
from mirror.metadata.sides import Live
from mirror.metadata.topics import select
from mirror.offsets import checkpoints, group_survey, progress
from mirror.offsets.mm2_records import checkpoints_topic
from mirror.offsets.progress import ProgressReader
from mirror.policy.selection import GroupFilter
from mirror.recovery import access, ends, proofs, roles, standby
from mirror.recovery.journal import JournalReader
from mirror.recovery.looking import Looking
from mirror.switching import fences
from mirror.switching.fencing import Known
from mirror.switching.steps import assess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.admin.groups import Group
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.metadata.portrait import Portrait
    from mirror.metadata.topics import MirroredTopic
    from mirror.recovery.standby import Standby
    from mirror.status.risk import RiskStatus
    from mirror.switching.stage import Stage

TopicPartition = tuple[str, int]

RECORDS = 100
_LEAST_STALE_SECONDS = 60.0
_CHECKPOINT_ROUNDS = 3
_MOST_CHECKPOINT_SECONDS = 11.0
_PAUSE_SECONDS = 0.5
_EVERYONE = "allow.everyone.if.no.acl.found"
_IN_SYNC = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What several checks need."""

    stage: Stage
    topics: tuple[MirroredTopic, ...]
    source: Portrait
    target: Portrait
    kept: Standby | None

    @property
    def flow(self) -> FlowConfig:
        return self.stage.flow

    @property
    def config(self) -> MirrorConfig:
        return self.stage.config


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
    found = list(_role(stage))
    looked = _look(stage)
    risk = _risk(looked, at)
    judged = _positions(looked, records, at)
    found += judged.findings
    unseen: list[str] = []
    found += _differences(looked, reach, unseen)
    found += _rights(looked, list(judged.names), unseen)
    found += _capacity(looked, unseen)
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


def _role(stage: Stage) -> Iterator[Finding]:
    """Raises:
    MirrorError: there is nothing to rehearse.
    """
    flow = stage.flow
    name = progress.topic_name(flow.source)
    if stage.target.topic(name) is None:
        raise MirrorError(
            f"flow {flow.name} never ran: cluster {flow.target} has no topic {name}"
        )
    journals = (
        JournalReader(each).read(wait=False) for each in (stage.source, stage.target)
    )
    entries = roles.merged(*journals, pair=stage.pair.name)
    active = roles.role(entries, stage.pair).active
    if active != flow.source:
        raise MirrorError(
            f"{active} is the active cluster: the drill to make is "
            f"`mirror drill '{active}->{flow.source}'`"
        )
    if run := roles.open_run(entries):
        yield Finding(
            level=Level.NOT_READY,
            subject=f"pair {stage.pair.name}",
            reason=f"a run is open: {run.text}",
            cure="go on with it, or abort it",
            command=f"mirror {run.first.kind.lower()} "
            f"'{run.first.source}->{run.first.target}'",
        )
    elif owed := roles.owed(entries):
        yield Finding(
            level=Level.DEGRADED,
            subject=f"cluster {owed.source}",
            reason="it owes its fence: producers may write there",
            cure="run a service that reaches it",
            command="mirror run",
        )


def _look(stage: Stage) -> _Looked:
    """Both portraits, side by side: each cluster has a thread of its own."""
    flow, flows = stage.flow, stage.config.enabled_flows
    clusters = (stage.source, stage.target)
    with ThreadPoolExecutor(len(clusters)) as pool:
        one, other = pool.map(portrait.take, clusters)
        one, other = pool.map(
            portrait.complete,
            (one, other),
            clusters,
            (
                comparing.partners(other, flow.source, flows),
                comparing.partners(one, flow.target, flows),
            ),
        )
    return _Looked(
        stage=stage,
        topics=select(stage.source, flow).topics,
        source=one,
        target=other,
        kept=standby.read(stage.target, flow.source, {*access.KINDS, ends.KIND}),
    )


def _risk(looked: _Looked, at: float) -> RiskStatus:
    stage = looked.stage
    reader = ProgressReader(stage.target, progress.topic_name(looked.flow.source))
    known = {} if looked.kept is None else ends.read(looked.kept, looked.flow.source)
    looking = Looking(known, lambda: reader.read(wait=False))
    names = [each.topic for each in looked.topics]
    return looking.look(stage.source, names, at=at).risk


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged(positions.Judged):
    names: tuple[str, ...]
    """The groups that move."""


def _positions(looked: _Looked, records: int, at: float) -> _Judged:
    stage, flow = looked.stage, looked.flow
    writers = Merging(looked.config.enabled_flows)
    committed, listed, refused = _committed(looked)
    _wait_for_checkpoints(looked, committed)
    # Without the source: as a failover does.
    survey = group_survey.survey(flow, stage.target, None, writers)
    stands: dict[str, Mapping[TopicPartition, Stand]] = {
        each.group: {
            (place.topic, place.partition): Stand(
                upstream=place.upstream,
                downstream=place.downstream,
                exactness=place.translated.exactness,
            )
            for place in each.places
        }
        for each in survey.groups
    }
    asked: dict[TopicPartition, set[int]] = {}
    for name in committed:
        for key, stand in stands.get(name, {}).items():
            asked.setdefault(key, set()).add(stand.upstream)
    compared = next_records.compare(
        looked.config, flow, stage.source, stage.target, asked, records=records
    )
    known = positions.Known(
        source=flow.source,
        target=flow.target,
        stands=stands,
        committed=committed,
        written=checkpoints.times(
            stage.target, checkpoints_topic(flow.source, flow.separator)
        ),
        on_target=groups.list_groups(stage.target),
        wrong=compared.wrong,
        unread=compared.unread,
        undecided=compared.undecided,
        not_covered=tuple(
            sorted(n for n, each in listed.items() if each.kind is GroupKind.SHARE)
        ),
        refused=refused,
        records=records,
        stale_seconds=max(
            _CHECKPOINT_ROUNDS * flow.emit_checkpoints_seconds, _LEAST_STALE_SECONDS
        ),
    )
    judged = positions.judge(known, compared.partitions, at=at)
    return _Judged(
        names=tuple(committed),
        groups=judged.groups,
        groups_exact=judged.groups_exact,
        partitions=judged.partitions,
        partitions_exact=judged.partitions_exact,
        findings=judged.findings,
    )


def _committed(
    looked: _Looked,
) -> tuple[
    dict[str, dict[TopicPartition, int]], Mapping[str, Group], Mapping[str, str]
]:
    """What the source's groups have committed in copied topics, all groups of the flow
    there, and those that could not be read.
    """
    source, flow = looked.stage.source, looked.flow
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    listed = {n: g for n, g in groups.list_groups(source).items() if wanted.matches(n)}
    covered = [n for n, group in listed.items() if group.kind is not GroupKind.SHARE]
    fetched = group_offsets.fetch(source, covered)
    topics = {each.topic for each in looked.topics}
    found = {
        name: {key: each.offset for key, each in offsets.items() if key[0] in topics}
        for name, offsets in fetched.groups.items()
    }
    return {n: each for n, each in found.items() if each}, listed, fetched.refused


def _wait_for_checkpoints(
    looked: _Looked, committed: Mapping[str, Mapping[TopicPartition, int]]
) -> None:
    """What a group has just committed for the first time has its checkpoint soon."""
    flow, target = looked.flow, looked.stage.target
    copies = {each.topic: each.target_topic for each in looked.topics}
    wanted = {
        (group, copies[topic], number)
        for group, places in committed.items()
        for topic, number in places
    }
    until = time.monotonic() + min(
        flow.emit_checkpoints_seconds + 1, _MOST_CHECKPOINT_SECONDS
    )
    while True:
        known = checkpoints.read(target, checkpoints_topic(flow.source, flow.separator))
        there = {(group, *key) for group, places in known.items() for key in places}
        if not (wanted - there) or time.monotonic() > until:
            return
        time.sleep(_PAUSE_SECONDS)


def _differences(
    looked: _Looked, reach: Callable[[str], Cluster], unseen: list[str]
) -> Iterable[Finding]:
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
    return differences.judge(found, names, flow=flow.name, target=flow.target)


def _rights(
    looked: _Looked, names: Sequence[str], unseen: list[str]
) -> Iterator[Finding]:
    stage, flow = looked.stage, looked.flow
    there, here = looked.source.acls, Known(own="", acls=looked.target.acls)
    settings = looked.config.clusters
    if stage.pair.fence == "acl":
        try:
            there = fences.look(
                stage.source, settings[flow.source], (), probe=False
            ).acls
            here = fences.look(stage.target, settings[flow.target], (), probe=False)
        except FenceError as error:
            yield Finding(
                level=Level.NOT_READY,
                subject=f"pair {stage.pair.name}",
                reason=f"no fence is possible: {error}",
                cure="as it says",
            )
            return
        except AuthorizationError as error:
            yield Finding(
                level=Level.NOT_READY,
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
        rights.Terms(
            flow=flow,
            topics=[each.topic for each in looked.topics],
            groups=names,
            own=settings[flow.source].own_principal,
            granted=stage.pair.fence == "acl",
            everyone=_everyone(stage.target, unseen),
        ),
        there,
        here,
    )


def _everyone(target: Cluster, unseen: list[str]) -> bool:
    try:
        return abilities.settings(target, [_EVERYONE]).get(_EVERYONE) == "true"
    except AuthorizationError:
        unseen.append(f"{_EVERYONE} of {target.alias}: not permitted")
        return False


def _capacity(looked: _Looked, unseen: list[str]) -> Iterable[Finding]:
    stage, flow = looked.stage, looked.flow
    copies = {each.topic: each.target_topic for each in looked.topics}

    def seen(cluster: Cluster) -> tuple[disks.Disk, ...]:
        try:
            return disks.disks(cluster)
        except AuthorizationError:
            unseen.append(f"disks of {cluster.alias}: not permitted")
            return ()

    return capacity.judge(
        capacity.Seen(
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


def _warnings(stage: Stage) -> Iterator[Finding]:
    for text in assess.renewed(stage):
        yield Finding(
            level=Level.DEGRADED,
            subject=f"pair {stage.pair.name}",
            reason=text,
            cure="let the flow copy the new topics",
        )
