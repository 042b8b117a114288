"""Carries out a drill, has everything judged, and keeps the outcome in the journal.

Main functions: `rehearse`, for the command and the service, and `drill`, which keeps
nothing. It makes the checks of a failover and of a switch, and what only a drill has
time for: it compares the next records of each group, and the configs, users and quotas
of both clusters, which describes all that they have; it asks every broker for its
disks, and both registries for the schemas in use. While it does, others copy, so it
takes its time. It uses what a failover uses, and changes nothing. Main type: `Drill`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
import time
from typing import TYPE_CHECKING, Any

from mirror.clusters import cpu_share
from mirror.clusters.admin import brokers
from mirror.clusters.reach import at_once
from mirror.errors import AuthorizationError, MirrorError
from mirror.offsets import progress
from mirror.pairs import flow_roles, journal, roles
from mirror.pairs.journal import JournalReader, Kind
from mirror.recovery import procedure
from mirror.recovery.drilling import groups, schemas
from mirror.recovery.stage import Finding, Level, Stage, both_flows, in_order, verdict
from mirror.recovery.steps import assess, checks
from mirror.recovery.steps.checks import Seen
from mirror.service import ownership
from mirror.status.wording import duration, some
from mirror.topics import comparing
from mirror.topics.comparing import ACLS, CONFIG, GROUPS, NOTHING, QUOTAS, TOPIC, USERS
from mirror.topics.sides import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from mirror.clusters.admin.brokers import Disk, Replicas
    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.topics.comparing import Difference, Portrait


RECORDS = 100
MOST_KEPT = 20
"""Findings of a drill in the journal: the most serious ones."""
_MOST_TEXT = 300
_LONG = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """What a drill found, and what follows: whether a failover now would go well. The
    verdict is the worst finding.
    """

    pair: str
    source: str
    target: str
    at: float
    """When it began, epoch seconds."""
    seconds: float
    """How long it took."""
    groups: int
    groups_exact: int
    """Groups that would go on at the very next record in all partitions."""
    partitions: int
    partitions_exact: int
    """Partitions whose next records are the same on both sides for every group."""
    lost_seconds: float
    """What a failover now would lose, by time; -1: not known."""
    lost_records: int
    findings: tuple[Finding, ...]
    """The most serious first."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at, with the reason."""

    @property
    def verdict(self) -> Level:
        return verdict(self.findings)

    @property
    def ratio(self) -> float:
        """The share of groups and partitions that would go on exactly."""
        of = self.groups + self.partitions
        return (self.groups_exact + self.partitions_exact) / of if of else 1.0

    @property
    def text(self) -> str:
        """The first line."""
        lost = (
            "what a failover now would lose is not known"
            if self.lost_seconds < 0
            else f"a failover now would lose up to {_seconds(self.lost_seconds)}"
            if self.lost_records
            else "a failover now would lose nothing"
        )
        return (
            f"{self.verdict}: {self.groups_exact} of {some(self.groups, 'group')} and "
            f"{self.partitions_exact} of {some(self.partitions, 'partition')} would go "
            f"on exactly; {lost}"
        )

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **asdict(self),
            "verdict": str(self.verdict),
            "ratio": round(self.ratio, 4),
            "text": self.text,
        }

    def kept(self) -> Mapping[str, Any]:
        """A few KB for the journal: the most serious findings, and how many more."""
        told = self.document()
        told["findings"] = [
            {
                "level": str(each.level),
                "subject": each.subject[:_MOST_TEXT],
                "reason": each.reason[:_MOST_TEXT],
            }
            for each in self.findings[:MOST_KEPT]
        ]
        told["more_findings"] = max(len(self.findings) - MOST_KEPT, 0)
        told["unseen"] = [each[:_MOST_TEXT] for each in self.unseen[:MOST_KEPT]]
        return told


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _LONG else duration(seconds)


def rehearse(
    config: MirrorConfig,
    pair: PairConfig,
    flow: FlowConfig,
    reach: Callable[[str], Cluster],
    *,
    by: str,
    records: int = RECORDS,
) -> tuple[Drill, str]:
    """The drill of a failover along this flow, and why it was not kept, if so.

    Raises:
        MirrorError: as `drill`.
    """
    stage = stage_of(config, pair, flow, reach)
    done = drill(stage, reach, records=records)
    try:
        return done, _keep(stage, done, by)
    except MirrorError as error:
        return done, str(error)


def stage_of(
    config: MirrorConfig,
    pair: PairConfig,
    flow: FlowConfig,
    reach: Callable[[str], Cluster],
) -> Stage:
    """Both clusters, and a journal that takes no notes.

    Raises:
        ClusterError: a cluster does not answer.
    """
    ours, reverse = both_flows(config, pair, flow.source, flow.target)
    return Stage(
        kind=Kind.FAILOVER,
        config=flow_roles.copying(config, reach, flow.name),
        pair=pair,
        flow=ours,
        reverse=reverse,
        source_or_none=reach(flow.source),
        target_or_none=reach(flow.target),
        notes={},
        note=lambda _notes: None,
        tell=lambda _text: None,
        deadline=time.monotonic(),
    )


def _keep(stage: Stage, done: Drill, by: str) -> str:
    target, pair = stage.target, stage.pair
    if target.topic(journal.TOPIC) is None:
        return f"cluster {target.alias} has no journal yet"
    entries = JournalReader(target).read(wait=False)
    role = roles.role(roles.merged(entries, pair=pair.name), pair)
    roles.keep_drill(
        target,
        pair.name,
        stage.flow.source,
        epoch=role.epoch,
        at=done.at,
        by=by,
        details=done.kept(),
    )
    return ""


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
        MirrorError: a cluster does not answer, the flow never ran, its source is not
            the active cluster, or journals have lost entries.
    """
    began = time.monotonic()
    flow = stage.flow
    seen = Seen(stage=stage, at=time.time() if at is None else at)
    assess.require_begun(stage)
    ownership.require_whole_journals(
        stage.pair, seen.entries, (stage.source, stage.target)
    )
    known = procedure.Known(pair=stage.pair, entries=tuple(seen.entries))
    procedure.answer(procedure.Asks.DRILL, flow.source, flow.target, known)
    opened = [*assess.left_open(stage)]
    found = [*opened, *assess.left_open(replace(stage, kind=Kind.SWITCH))]
    found += checks.find(seen, checks.OF_PAIR)
    seen.risk = assess.look(stage, waits=False, at=seen.at)
    judged = groups.judge(seen, records=records, wait=not opened)
    found += checks.find(seen, checks.OF_COPIES)
    found += judged.findings
    found += _differences(seen, reach)
    found += _disks(seen)
    found += schemas.judge(seen, records=records)
    return Drill(
        pair=stage.pair.name,
        source=flow.source,
        target=flow.target,
        at=seen.at,
        seconds=round(time.monotonic() - began, 3),
        groups=judged.groups,
        groups_exact=judged.groups_exact,
        partitions=judged.partitions,
        partitions_exact=judged.partitions_exact,
        lost_seconds=seen.risk.seconds,
        lost_records=seen.risk.records,
        findings=in_order(found),
        unseen=tuple(dict.fromkeys(seen.unseen)),
    )


# ---- which differences between the clusters would hurt after a failover ----
#
# Among what `mirror compare` finds between the source, first, and the target.
# Differences that only the service's configuration explains may hurt too: retention
# that follows from the brokers' defaults. `checks` has partitions.


_KEEPS = ("retention.ms", "retention.bytes", "cleanup.policy")
"""They decide what an application still finds."""
_ENTITIES = {"user": "users", "client-id": "clients", "ip": "ips"}
_ALL = "(default)"
_DEFAULT = "a default of the brokers"


def _differences(seen: Seen, reach: Callable[[str], Cluster]) -> Iterable[Finding]:
    flow, config = seen.flow, seen.stage.config
    found = comparing.compare(
        *_portraits(seen), config.enabled_flows, lambda alias: Live(reach(alias))
    )
    seen.unseen += _unseen(found)
    names = {
        each.topic
        if each.topic == each.target_topic
        else f"{each.topic} ({each.target_topic})"
        for each in seen.topics
    }
    servers = config.clusters[flow.target].bootstrap_servers
    return judge_differences(
        found, names, flow=flow.name, target=flow.target, bootstrap=",".join(servers)
    )


def _portraits(seen: Seen) -> tuple[Portrait, Portrait]:
    """Of the source and the target, each in a thread of its own."""
    stage, flow = seen.stage, seen.flow
    flows = stage.config.enabled_flows
    clusters = (stage.source, stage.target)
    gentle = cpu_share.gently(cpu_share.current() / len(clusters))
    one, other = _both(
        partial(gentle(comparing.take_portrait), each) for each in clusters
    )
    partners = (
        comparing.partners(other, flow.source, flows),
        comparing.partners(one, flow.target, flows),
    )
    one, other = _both(
        partial(gentle(comparing.complete_portrait), *each)
        for each in zip((one, other), clusters, partners, strict=True)
    )
    return one, other


def _both(work: Iterable[Callable[[], Portrait]]) -> list[Portrait]:
    return [each.result() for each in at_once([*work])]


def judge_differences(
    differences: Collection[Difference],
    names: Collection[str],
    *,
    flow: str,
    target: str,
    bootstrap: str,
) -> Iterator[Finding]:
    """`names`: how the differences name the flow's topics; `target`: the cluster that
    applications would move to, at `bootstrap`.
    """
    for each in differences:
        if each.what in (TOPIC, CONFIG) and each.name in names:
            yield from _of_topic(each, flow)
        elif each.what == QUOTAS:
            yield from _quota(each, target, bootstrap)
        elif each.what == USERS and each.expected is not None:
            yield from _user(each, target, bootstrap)


def _unseen(differences: Collection[Difference]) -> Iterator[str]:
    """Kinds that one side may not see. Groups and ACLs are looked at elsewhere."""
    for each in differences:
        if each.expected is None and each.name == "(all)" and each.what != GROUPS:
            side = each.a if each.a != "seen" else each.b
            yield f"{_PLURAL.get(each.what, each.what)}: {side}"


_PLURAL = {ACLS: "ACLs", QUOTAS: "quotas", USERS: "SCRAM users"}


def _of_topic(each: Difference, flow: str) -> Iterator[Finding]:
    subject = f"topic {each.name}"
    if each.expected is None:
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason=f"mirror cannot look at its {each.what}: {each.reason or each.b}",
            fix="give mirror DESCRIBE and DESCRIBE_CONFIGS on it, on both sides",
            command="mirror config acls --for recovery",
        )
    elif each.what == CONFIG:
        key = next((v.partition("=")[0] for v in (each.a, each.b) if v != NOTHING), "")
        keeps = key in _KEEPS
        if each.expected and not (keeps and each.reason == _DEFAULT):
            return
        yield Finding(
            level=Level.NOT_READY if key == "cleanup.policy" else Level.DEGRADED,
            subject=subject,
            reason=f"{each.a} on the source, {each.b} on the target"
            + (": records are kept for another time" if keeps else ""),
            fix="correct the copy's config",
            command=f"mirror topic configs --flow '{flow}'",
        )


def _quota(each: Difference, target: str, bootstrap: str) -> Iterator[Finding]:
    if each.expected is False:
        yield Finding(
            level=Level.DEGRADED,
            subject=f"quota {each.name}",
            reason=f"{each.a} on the source, {each.b} on {target}",
            fix=f"set the same quota on {target}",
            command=f"kafka-configs.sh --bootstrap-server {bootstrap} --alter "
            f"{_entity(each.name)} {_change(each)}",
        )


def _entity(name: str) -> str:
    """As kafka-configs.sh has it, of `user alice, client-id (default)`."""
    words = []
    for part in name.split(", "):
        kind, _, entity = part.partition(" ")
        words.append(f"--entity-type {_ENTITIES.get(kind, kind)}")
        words.append(
            "--entity-default" if entity == _ALL else f"--entity-name '{entity}'"
        )
    return " ".join(words)


def _change(each: Difference) -> str:
    if each.a != NOTHING:
        return f"--add-config {','.join(each.a.split())}"
    keys = [word.partition("=")[0] for word in each.b.split()]
    return f"--delete-config {','.join(keys)}"


def _user(each: Difference, target: str, bootstrap: str) -> Iterator[Finding]:
    """The number of iterations may differ; a mechanism that is missing may not."""
    mine, theirs = (
        {word.partition("=")[0] for word in side.split()} - {NOTHING}
        for side in (each.a, each.b)
    )
    if lacking := sorted(mine - theirs):
        yield Finding(
            level=Level.NOT_READY,
            subject=f"user {each.name}",
            reason=f"it has no {', '.join(lacking)} password on {target}, so it cannot "
            "log in there",
            fix=f"create the user on {target}: passwords cannot be copied",
            command=f"kafka-configs.sh --bootstrap-server {bootstrap} --alter "
            f"--entity-type users --entity-name {each.name} --add-config "
            f"'{lacking[0]}=[password=...]'",
        )


# ---- whether the target has the disk to take over ----
#
# It should have room for what the source keeps of these topics now, in as many
# replicas as the copies have.


_LEAST_SHARE = 0.05
"""Of a disk that should be free."""
_GB = 1e9


def _disks(seen: Seen) -> Iterable[Finding]:
    source, target = seen.stage.source, seen.stage.target

    def disks_of(cluster: Cluster) -> tuple[brokers.Disk, ...]:
        try:
            return brokers.disks(cluster)
        except AuthorizationError:
            seen.unseen.append(f"disks of {cluster.alias}: not permitted")
            return ()

    return judge_capacity(
        seen.flow.target,
        seen.copies,
        here=brokers.replicas(target, seen.copies.values()),
        there=brokers.replicas(source, seen.copies),
        disks_here=disks_of(target),
        disks_there=disks_of(source),
    )


def judge_capacity(
    target: str,
    copies: Mapping[str, str],
    *,
    here: Mapping[str, Replicas],
    there: Mapping[str, Replicas],
    disks_here: Collection[Disk],
    disks_there: Collection[Disk],
) -> Iterator[Finding]:
    """What is missing. `copies`: by source topic; `here`: on the target, of the copies,
    and `there`: on the source, of the topics.
    """
    cluster = f"cluster {target}"
    for disk in disks_here:
        if disk.failed:
            yield Finding(
                level=Level.NOT_READY,
                subject=cluster,
                reason=f"a log directory of broker {disk.node} has failed",
                fix="replace the disk",
            )
        elif 0 <= disk.usable < _LEAST_SHARE * disk.total:
            yield Finding(
                level=Level.DEGRADED,
                subject=cluster,
                reason=f"a disk of broker {disk.node} has {_gb(disk.usable)} left of "
                f"{_gb(disk.total)}",
                fix="add disk, or shorten retention",
            )
    known = [disk for disk in disks_here if disk.usable >= 0]
    if not known or not disks_there:
        return
    growth = 0.0
    for topic, copy in copies.items():
        if topic in there and copy in here:
            factor = here[copy].least / there[topic].least
            wanted = sum(d.sizes.get(topic, 0) for d in disks_there) * factor
            had = sum(d.sizes.get(copy, 0) for d in disks_here)
            growth += max(wanted - had, 0.0)
    if growth > (usable := sum(disk.usable for disk in known)):
        yield Finding(
            level=Level.NOT_READY,
            subject=cluster,
            reason=f"the copies have {_gb(growth)} to grow until they are as large as "
            f"their topics, and {_gb(usable)} of disk are left",
            fix="add disk, or shorten retention",
        )


def _gb(size: float) -> str:
    return f"{size / _GB:,.1f} GB"
