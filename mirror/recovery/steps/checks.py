"""What a drill, a dry run and step 1 check of a pair: one list for all of them.

Main functions: `find`, over `OF_PAIR`, which needs no copy, and `OF_COPIES`; and
`refusal`. A planned switch asks both clusters, a failover the target alone, and a drill
makes the checks of both. What only a drill has time for is in `drilling.runner`.

`lacking` has what copies lack of what moves with the pair: the flow stops copying as
the role moves, so what it has not made by then, it never makes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, partial
import math
import time
from typing import TYPE_CHECKING

from mirror import patience
from mirror.clusters.admin import (
    acls,
    brokers,
    configs,
    group_offsets,
    groups,
    topic_admin,
)
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.clusters.reach import at_once
from mirror.config.schema import principals
from mirror.errors import (
    AuthorizationError,
    FenceError,
    MirrorError,
    UnreachableError,
)
from mirror.offsets import progress, standby
from mirror.offsets.groups import not_covered
from mirror.offsets.progress import NO_ID
from mirror.offsets.translation import Exactness
from mirror.pairs import access, journal, proofs, risk, roles
from mirror.pairs.control import PausesReader
from mirror.pairs.journal import JournalReader, Kind
from mirror.pairs.risk import next_to_copy
from mirror.policy.selection import GroupFilter
from mirror.recovery import closed, hooks, rights, schemas
from mirror.recovery.stage import Finding, Level
from mirror.recovery.steps import fence as fence_step
from mirror.recovery.steps import positions
from mirror.recovery.steps.positions import GroupPlaces
from mirror.status.values import RiskStatus
from mirror.status.wording import duration, moment, named, some
from mirror.topics import fences, topics
from mirror.topics.fences import KnownGrants, without_acls
from mirror.topics.merging import Merging
from mirror.topics.sides import Live
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.admin.acls import Acl
    from mirror.clusters.admin.brokers import Replicas
    from mirror.clusters.admin.groups import Group
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.standby import Standby
    from mirror.pairs.journal import Entry
    from mirror.recovery.stage import Stage
    from mirror.recovery.steps.positions import GroupPlace
    from mirror.topics.topics import MirroredTopic


EXACT = frozenset({Exactness.EXACT, Exactness.TIP, Exactness.BEHIND})
"""A group continues at the very next record."""
_SWITCH, _FAILOVER = Kind.SWITCH, Kind.FAILOVER
_BOTH = (_SWITCH, _FAILOVER)
_STALE_SECONDS = 600.0
"""The service writes what the target keeps of the source every minute at least."""
_OLD_PROOF_SECONDS = 7 * 86400.0
_EVERYONE = "allow.everyone.if.no.acl.found"
_CREATES = "auto.create.topics.enable"
_IN_SYNC = "min.insync.replicas"
_OPTIONAL_SECONDS = 5.0
"""How long a run waits for all checks without which it can be made: a broker that is
silent must not hold up a failover."""


@dataclass(kw_only=True)
class Seen:
    """What checks look at, each thing once."""

    stage: Stage
    at: float = field(default_factory=time.time)
    """Now."""
    risk: RiskStatus = field(default_factory=RiskStatus)
    places: GroupPlaces = field(
        default_factory=lambda: GroupPlaces(places={}, on_target={})
    )
    """Where groups continue. As `risk`, not known yet to `OF_PAIR`."""
    unseen: list[str] = field(default_factory=list)
    """What could not be looked at, with the reason."""

    @property
    def flow(self) -> FlowConfig:
        return self.stage.flow

    @property
    def drills(self) -> bool:
        """A failover has no source; only a drill of one has."""
        return not self.stage.planned and self.stage.source_or_none is not None

    @cached_property
    def topics(self) -> tuple[MirroredTopic, ...]:
        return select(self.stage.source, self.flow).topics

    @cached_property
    def copies(self) -> dict[str, str]:
        """By topic of the source."""
        policy = self.flow.replication_policy
        return {
            each.topic: policy.target_topic(each.topic)
            for each in self.risk.topics
            if not self.flow.is_heartbeats(each.topic)
        }

    @cached_property
    def there(self) -> dict[str, Topic]:
        """The topics of the target."""
        return self.stage.target.topics()

    @cached_property
    def groups(self) -> dict[str, Group]:
        """Of the source."""
        return groups.list_groups(self.stage.source)

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """Of the journals that answer."""
        if self.stage.source_or_none is not None:
            return self.stage.entries()
        reader = JournalReader(self.stage.target)
        found = reader.read(wait=False, seconds=journal.PATIENCE_SECONDS)
        return roles.merged(found, pair=self.stage.pair.name)

    @cached_property
    def kept(self) -> Standby | None:
        """What the target keeps of the source."""
        kinds = {*access.KINDS, risk.ENDS}
        return standby.read(self.stage.target, self.flow.source, kinds)

    @cached_property
    def told(self) -> access.Kept:
        """The part of it that is about ACLs, users and producers."""
        if self.kept is None:
            return access.Kept()
        return access.read(self.kept, self.flow.source)

    @cached_property
    def grants(self) -> tuple[KnownGrants | None, KnownGrants]:
        """With `fence: acl`, of the source, if it answers, and of the target. Raises as
        `fences.look`.
        """
        stage = self.stage
        here = partial(fences.look, stage.target, stage.config, (), probe=False)
        if stage.source_or_none is None:
            return None, here()
        moving = fence_step.topics_of(stage.source, stage.flow)
        there = partial(fence_step.known_of, stage, stage.source, stage.flow, moving,
                        probe=False)  # fmt: skip
        one, other = (each.result() for each in at_once([there, here]))
        return one, other

    @cached_property
    def starts(self) -> Mapping[TopicPartition, int]:
        """Where logs of the source begin from which a group has lost something."""
        wanted = {
            (place.along.topic, place.along.partition)
            for places in self.places.places.values()
            for place in places.values()
            if place.exactness is Exactness.BEFORE and place.along is not None
        }
        if not wanted or self.stage.source_or_none is None:
            return {}
        return topic_admin.list_offsets(
            self.stage.source, wanted, timestamp=topic_admin.EARLIEST
        )

    def setting(self, name: str) -> str | None:
        """Of the target's brokers; None if mirror may not see it."""
        try:
            return brokers.settings(self.stage.target, [name]).get(name)
        except AuthorizationError:
            self.unseen.append(f"{name} of {self.flow.target}: not permitted")
            return None


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of defect."""

    findings: Callable[[Seen], Iterable[Finding]]
    kinds: tuple[Kind, ...]
    """The runs that are checked for it. A check of a switch alone asks the source, or
    matters while that is there; a drill makes all."""
    required: tuple[Kind, ...] = ()
    """The runs that are refused if it cannot be checked."""


def find(seen: Seen, checks: Iterable[Check]) -> list[Finding]:
    """What the checks find. What cannot be looked at is in `seen.unseen`.

    Raises:
        MirrorError: a check that is required could not be made.
    """
    found: list[Finding] = []
    left = _OPTIONAL_SECONDS
    for check in checks:
        if not (seen.drills or seen.stage.kind in check.kinds):
            continue
        required = seen.stage.kind in check.required
        brief = not (required or seen.drills)
        what = check.findings.__name__.replace("_", " ")
        if brief and left <= 0:
            seen.unseen.append(f"{what}: brokers answer too slowly")
            continue
        began = time.monotonic()
        try:
            with patience.until(began + left if brief else math.inf):
                found += check.findings(seen)
        except MirrorError as error:
            if required or (seen.drills and isinstance(error, UnreachableError)):
                raise
            seen.unseen.append(f"{what}: {error}")
        left -= time.monotonic() - began if brief else 0.0
    return found


def refusal(found: Iterable[Finding], kind: Kind) -> str:
    """Why step 1 of such a run refuses, in words; empty: it does not."""
    return "; ".join(str(each) for each in found if kind in each.refuses)


def pair_is_free(seen: Seen) -> Iterator[Finding]:
    run = roles.open_run(seen.entries)
    if run is not None and run.first.run != seen.stage.run:
        yield Finding(
            level=Level.NOT_READY,
            subject=f"pair {seen.stage.pair.name}",
            reason=f"a run is open: {run.text}",
            fix="finish it, or undo it with --abort",
            command=f"mirror {run.first.kind.lower()} '{roles.way(run.first)}'",
        )
    elif pending := roles.owed(seen.entries):
        yield Finding(
            level=Level.DEGRADED,
            subject=f"cluster {pending.source}",
            reason="its fence is pending: producers may write there",
            fix="run a service that reaches it",
            command="mirror run",
        )


def paused_topics(seen: Seen) -> Iterator[Finding]:
    """Also where all is copied now: producers would be kept waiting for the next
    record. A failover takes what there is.
    """
    flow, reader = seen.flow, PausesReader(seen.stage.target, seen.flow)
    pauses = reader.read()
    names = [each.topic for each in seen.topics if not flow.is_heartbeats(each.topic)]
    for name in names:
        if (rebuild := reader.rebuilds.get(name)) is not None and rebuild.unfinished:
            yield Finding(
                level=Level.NOT_READY,
                subject=f"topic {name}",
                reason="its copy is being rebuilt",
                fix="finish that first, with the command that began it",
                refuses=(_SWITCH,),
            )
    resting = [name for name in names if pauses.since(name)]
    every = seen.stage.pair.scope is None and len(resting) > 1
    for name in resting:
        topic = "" if every else f" --topic '{name}'"
        yield Finding(
            level=Level.NOT_READY,
            subject=f"topic {name}",
            reason=f"it is paused since {moment(pauses.since(name))}",
            fix="resume it first",
            command=f"mirror resume {flow.source}/{flow.target}{topic}",
            refuses=(_SWITCH,),
        )


def copies_all_keys(seen: Seen) -> Iterator[Finding]:
    stage = seen.stage
    if stage.pair.leave_out_away:
        yield Finding(
            level=Level.NOT_READY,
            subject=f"pair {stage.pair.name}",
            reason=f"leave_out_away is on: what is written on {stage.flow.target} "
            f"after the move, of keys whose home is {stage.flow.source}, would never "
            "be copied there",
            fix="turn it off, for the service too",
            refuses=_BOTH,
        )


def hooks_are_usable(seen: Seen) -> Iterator[Finding]:
    return hooks.unusable(seen.stage.pair)


def fence(seen: Seen) -> Iterator[Finding]:
    if seen.stage.pair.fence != "acl":
        return
    subject = f"pair {seen.stage.pair.name}"
    try:
        there, _ = seen.grants
    except FenceError as error:
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason=f"no fence is possible: {error}",
            fix="change what it names",
            refuses=(_SWITCH,),
        )
        return
    except AuthorizationError as error:
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason="mirror may not see ACLs, so it can neither fence nor grant rights: "
            f"{error}",
            fix="give mirror what recovery needs",
            command="mirror config acls --for recovery",
            refuses=(_SWITCH,),
        )
        return
    if there is not None and there.everyone is None:
        moving = fence_step.topics_of(seen.stage.source, seen.flow)
        bare = without_acls(there.acls, moving)
        yield Finding(
            level=Level.READY,
            subject=f"cluster {seen.flow.source}",
            reason=f"{some(len(bare), 'topic')} without ACLs, such as {bare[0]}: "
            "whether everyone may write there, and so whether ACLs can fence them, "
            "only step 3 finds out",
            fix="nothing, or add ACLs",
        )


def lacking_rights(seen: Seen) -> Iterator[Finding]:
    stage, flow = seen.stage, seen.flow
    known = _known_acls(seen)
    if known is None:
        return
    there, here = known
    yield from rights.lacking(
        flow,
        topics=seen.copies,
        groups=seen.places.places,
        there=there,
        here=here,
        own=principals(stage.config, flow.source).values(),
        bootstrap=_bootstrap(seen),
        granted=stage.pair.fence == "acl",
        everyone=seen.setting(_EVERYONE) == "true",
    )


def _known_acls(seen: Seen) -> tuple[frozenset[Acl], KnownGrants] | None:
    """Of the source and of the target; None: there are none, or `fence` says why."""
    stage = seen.stage
    if stage.pair.fence == "acl":
        try:
            one, here = seen.grants
        except (FenceError, AuthorizationError):
            return None
        return seen.told.acls if one is None else one.acls, here
    try:
        here = KnownGrants(own="", acls=acls.describe_all(stage.target))
        if stage.source_or_none is None:
            return seen.told.acls, here
        return acls.describe_all(stage.source), here
    except NoAuthorizerError:
        return None


def _bootstrap(seen: Seen) -> str:
    return ",".join(seen.stage.config.clusters[seen.flow.target].bootstrap_servers)


def pair_is_closed(seen: Seen) -> Iterator[Finding]:
    return closed.findings(seen.stage, seen.unseen)


def copies_are_made(seen: Seen) -> Iterator[Finding]:
    """Step 1 waits for them."""
    flow = seen.flow
    for topic, lacks in lacking(seen.stage).items():
        yield Finding(
            level=Level.NOT_READY,
            subject=f"topic {topic}",
            reason=f"it {lacks}",
            fix=f"run a service of {flow.name}, which adds them within "
            f"{flow.refresh_topics_seconds:g} s (refresh_topics_seconds); a switch "
            "waits for that",
            command="mirror check",
        )


def unmade(stage: Stage) -> str:
    """What copies lack, in words. Empty: nothing. Raises as `lacking`."""
    lacks = lacking(stage)
    if not lacks:
        return ""
    more = f", and {some(len(lacks) - 1, 'topic')} more" if len(lacks) > 1 else ""
    first = min(lacks)
    return (
        f"topic {first} {lacks[first]}{more}: a service of {stage.flow.name} adds "
        f"them within {stage.flow.refresh_topics_seconds:g} s "
        "(refresh_topics_seconds), if it runs and may"
    )


def lacking(stage: Stage) -> dict[str, str]:
    """What copies lack, by topic, in words: partitions that their topics got on the
    source, or copies of new topics.

    Raises:
        ClusterError: a cluster does not answer.
    """
    flow = stage.flow
    plan = topics.plan(Live(stage.source), Live(stage.target), flow)
    return {
        each.topic: f"has {some(each.partitions, 'partition')} on {flow.source} and "
        f"{'fewer' if each.target_topic in plan.grow else 'no copy'} on {flow.target}"
        for each in sorted(plan.topics, key=lambda each: each.topic)
        if each.target_topic in {*plan.grow, *plan.create}
        if not flow.is_heartbeats(each.topic)
    }


def lag(seen: Seen) -> Iterator[Finding]:
    """Step 1 waits until it is known."""
    risk, pair, flow = seen.risk, seen.stage.pair, seen.flow
    subject = f"flow {flow.name}"
    if risk.seconds > pair.max_lag_seconds:
        worst = max(risk.partitions, key=lambda each: each.seconds)
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason=f"the copy of {worst.topic}-{worst.partition} is "
            f"{duration(risk.seconds)} behind, and max_lag_seconds is "
            f"{pair.max_lag_seconds:g}",
            fix="wait until it has caught up (`mirror status` says why it does not), "
            "or raise max_lag_seconds",
            command="mirror lag",
            refuses=(_SWITCH,),
        )
    elif risk.unknown or risk.seconds < 0:
        yield Finding(
            level=Level.DEGRADED,
            subject=subject,
            reason="how far behind the copy is, is not known"
            + (f" in {some(risk.unknown, 'partition')}" if risk.unknown else ""),
            fix="run a service, and see that all partitions have leaders",
            command="mirror risk",
        )


def faulted_partitions(seen: Seen) -> Iterator[Finding]:
    """By what the service saw last, of what is still not copied, or is gone: step 4
    waits for that as well, until somebody decides where to continue.
    """
    faults = {} if seen.kept is None else risk.faults(seen.kept)
    left = {
        (each.topic, each.partition) for each in seen.risk.partitions if each.records
    }
    for topic, number in sorted(faults.keys() & (left | _short(seen, faults))):
        yield Finding(
            level=Level.NOT_READY,
            subject=f"topic {topic}",
            reason=f"{topic}-{number} is FAULTED, so it is not copied: "
            f"{faults[topic, number]}",
            fix="correct that first",
            command="mirror status",
            refuses=(_SWITCH,),
        )


def _short(seen: Seen, keys: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Of these partitions, those whose position is not at the end, whatever is left of
    what stands between.
    """
    stage, flow = seen.stage, seen.flow
    if stage.source_or_none is None:
        return set()
    ids = {each.topic: each.topic_id for each in seen.topics}
    asked = [key for key in keys if key[0] in ids]
    if not asked:
        return set()
    name = progress.topic_name(flow.source)
    known = progress.reader(stage.target, name).read(wait=False)
    last = topic_admin.list_offsets(
        stage.source, asked, timestamp=topic_admin.LATEST, committed=False
    )
    return {
        key
        for key, end in last.items()
        if max(next_to_copy(known, key, ids[key[0]]) or 0, 0) < end
    }


def settled_tail(seen: Seen) -> Iterator[Finding]:
    """What an earlier failover to the source left on the target: applications would
    meet records that the cluster they come from does not have.
    """
    stage, reverse = seen.stage, seen.stage.reverse
    if not roles.leaves_tail(seen.entries, reverse.source):
        return
    from mirror.recovery.tails.survey import unsettled  # noqa: PLC0415  with kernels

    known = stage.tails.get(reverse.name)
    tail = unsettled(reverse, stage.target, stage.source, seen.entries, seen=known)
    if left := tail.left(reverse):
        yield Finding(
            level=Level.DEGRADED,
            subject=f"cluster {reverse.source}",
            reason=f"since the failover to {reverse.target}, {left}",
            fix="replay, export or skip these first",
            command=f"mirror tail list '{stage.way_back}'",
            refuses=(_SWITCH,),
        )


def partitions(seen: Seen) -> Iterator[Finding]:
    """Keys move if producers meet another number of partitions."""
    flow = seen.flow
    for each in seen.topics:
        written = rights.next_topic(flow, each.topic)
        for name in sorted({written, each.target_topic}):
            there = seen.there.get(name)
            here = max(each.partitions, seen.stage.growing.get(each.topic, 0))
            if there is not None and there.partitions > here:
                yield Finding(
                    level=Level.NOT_READY,
                    subject=f"topic {name}",
                    reason=f"it has {there.partitions} partitions on {flow.target}, "
                    f"and {each.topic} has {here} on {flow.source}: keys would move to "
                    "other partitions",
                    fix=f"add partitions on {flow.source} first",
                    refuses=(_SWITCH,) if name == written else (),
                )


def group_positions(seen: Seen) -> Iterator[Finding]:
    found = seen.places
    for group, why in found.failures:
        yield Finding(
            level=Level.NOT_READY,
            subject=f"group {group}",
            reason=f"its positions are not known: {why}",
            fix="give mirror DESCRIBE on the group, or leave it out",
            command="mirror config acls",
            refuses=_BOTH,
        )
    for group, places in sorted(found.places.items()):
        yield from _of_group(seen, group, [*places.values()])


def _of_group(
    seen: Seen, group: str, places: Sequence[GroupPlace]
) -> Iterator[Finding]:
    flow, found = seen.flow, seen.places
    there = found.on_target.get(group)
    subject = f"group {group}"
    if there is not None and not there.idle:
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason=f"it has members on {flow.target}, so its position cannot be set "
            "there",
            fix=f"stop its consumers on {flow.target} first",
            refuses=_BOTH,
        )
    if unknown := sorted(each.came_from for each in places if each.offset < 0):
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason=f"no position in {named(unknown)}: it would begin where "
            "auto.offset.reset says",
            fix="let the flow copy and checkpoint it, or leave the group out",
            command=f"mirror group describe --flow '{flow.name}' {group}",
        )
    placed = [each for each in places if each.offset >= 0]
    if older := [each for each in placed if each.exactness is Exactness.BEFORE]:
        # Of an expired position, the group has lost the next records on both sides.
        kept = any(
            each.along is None
            or each.along.upstream
            >= seen.starts.get((each.along.topic, each.along.partition), 0)
            for each in older
        )
        where = named(sorted(each.came_from for each in older))
        yield Finding(
            level=Level.NOT_READY if kept else Level.DEGRADED,
            subject=subject,
            reason=f"its position in {where} is older than all that the copy has, or "
            "mirror knows of it: it would begin at the copy's start, and miss what is "
            f"gone there{'' if kept else f'; {flow.source} has lost it, too'}",
            fix="let it read on; compare the retention of both sides",
            command=f"mirror topic configs --flow '{flow.name}'",
        )
    inexact = {Exactness.EARLIER, Exactness.UNKNOWN}
    if vague := sorted(e.came_from for e in placed if e.exactness in inexact):
        yield Finding(
            level=Level.DEGRADED,
            subject=subject,
            reason=f"its position in {named(vague)} is only a lower bound: it would "
            "read records again",
            fix="let it read on until it is behind what mirror has copied",
        )
    read = {each.along.topic for each in places if each.along is not None}
    for both_ways in (True, False):
        beside = {
            topic: each.why
            for topic, each in found.skip_risks.items()
            if topic in read and each.both_ways is both_ways
        }
        if beside:
            yield Finding(
                level=Level.NOT_READY if both_ways else Level.DEGRADED,
                subject=subject,
                reason=f"in {named(sorted(beside))}: {beside[min(beside)]}",
                fix=f"switch while {flow.source} is there, which asks both clusters"
                if both_ways
                else "copy what others write under another name",
            )


def share_groups(seen: Seen) -> Iterator[Finding]:
    wanted = GroupFilter(include=seen.flow.groups, exclude=seen.flow.groups_exclude)
    listed = {name: g for name, g in seen.groups.items() if wanted.matches(name)}
    for name in not_covered(listed, seen.stage.source, seen.stage.target):
        yield Finding(
            level=Level.DEGRADED,
            subject=f"group {name}",
            reason=f"a share group, and {seen.flow.source} or {seen.flow.target} "
            "does not tell or set their start offsets",
            fix="use brokers of 4.2 or newer with share.version 1 on both sides, or "
            f"set where it begins on {seen.flow.target} (share.auto.offset.reset)",
        )


def positions_that_only_the_source_knows(seen: Seen) -> Iterator[Finding]:
    """A group that has read, on the source, copies of the target's topics: without the
    source it continues where it was when it last read on the target.
    """
    stage, source, target = seen.stage, seen.flow.source, seen.flow.target
    if stage.source_or_none is None:
        seen.unseen.append(f"positions in copies of {target}'s topics: only {source} "
                           "has them")  # fmt: skip
        return
    back = positions.back(
        *(stage.reverse, stage.source, stage.target), stage.maps, wait=True
    )
    there = group_offsets.fetch(stage.target, back).groups
    for group, places in sorted(back.items()):
        known = {key: each.offset for key, each in there.get(group, {}).items()}
        lost = [
            f"{key[0]}-{key[1]}"
            for key, place in sorted(places.items())
            if key not in seen.places.places.get(group, {})
            if place.offset > known.get(key, 0)
        ]
        if lost:
            yield Finding(
                level=Level.DEGRADED,
                subject=f"group {group}",
                reason=f"how far it has read {named(lost)} since it left {target}, "
                f"only {source} knows: it would read that again",
                fix=f"switch while {source} is there, which asks both clusters",
            )


def topics_of_producers(seen: Seen) -> Iterator[Finding]:
    """Where copies have other names, producers write to topics of their own."""
    flow = seen.flow
    missing = sorted(
        topic
        for topic, copy in seen.copies.items()
        if (written := rights.next_topic(flow, topic)) != copy
        if written not in seen.there
    )
    if not missing or seen.setting(_CREATES) == "true":
        return
    copy = seen.there.get(seen.copies[missing[0]])
    count = f" --partitions {copy.partitions}" if copy and copy.partitions else ""
    yield Finding(
        level=Level.NOT_READY,
        subject=f"cluster {flow.target}",
        reason=f"it does not have {named(missing)}, to which producers of "
        f"{flow.source} write, and its brokers do not create topics ({_CREATES})",
        fix="use `policy: identity`, under which topics keep their names, or create "
        "each of them",
        command=f"kafka-topics.sh --bootstrap-server {_bootstrap(seen)} --create "
        f"--topic '{missing[0]}'{count}",
    )


def subscriptions(seen: Seen) -> Iterator[Finding]:
    """Where copies have other names, consumers read topics of other names, too."""
    renamed = {topic: copy for topic, copy in seen.copies.items() if topic != copy}
    if not renamed:
        return
    back = seen.stage.reverse.replication_policy
    moved = [seen.groups[group] for group in seen.places.places if group in seen.groups]
    for group, consumers in sorted(groups.members(seen.stage.source, moved).items()):
        read = {topic for each in consumers for topic in each.topics}
        missing = sorted(
            renamed[topic]
            for topic in read & renamed.keys()
            if not {back.target_topic(topic), renamed[topic]} & read
        )
        if missing:
            yield Finding(
                level=Level.DEGRADED,
                subject=f"group {group}",
                reason=f"its consumers have to subscribe to {named(missing)} on "
                f"{seen.flow.target}, where it continues",
                fix="use `policy: identity`, under which topics keep their names, or "
                "have it subscribe to both names",
            )


def other_writers(seen: Seen) -> Iterator[Finding]:
    """Flows that copy into what is to be quiet: no ACL keeps mirror from writing."""
    source, reverse = seen.flow.source, seen.stage.reverse.name
    writers = Merging(seen.stage.config.enabled_flows)
    into: dict[str, list[str]] = {}
    for topic in seen.topics:
        for each in writers.contributors(source, topic.topic):
            if each.flow.name != reverse:
                into.setdefault(each.flow.name, []).append(topic.topic)
    for name, written in into.items():
        yield Finding(
            level=Level.READY,
            subject=f"flow {name}",
            reason=f"it copies into {named(written)} on {source}, which gets quiet "
            "only while it copies nothing",
            fix="pause these topics there for a switch",
        )


def topics_made_again(seen: Seen) -> Iterator[Finding]:
    """Since they were copied."""
    stage = seen.stage
    for flow, source, target in (
        (stage.flow, stage.source, stage.target),
        (stage.reverse, stage.target, stage.source),
    ):
        name = progress.topic_name(flow.source)
        if target.topic(name) is None:
            continue
        known = progress.read(target, name, wait=False)
        ids = {topic.topic: topic.topic_id for topic in select(source, flow).topics}
        again = {
            topic
            for (topic, _), each in known.positions.items()
            if topic in ids and each.topic_id != NO_ID
            if ids[topic] not in {NO_ID.hex, each.topic_id.hex}
        }
        if again:
            yield Finding(
                level=Level.DEGRADED,
                subject=f"flow {flow.name}",
                reason=f"made again on {source.alias} since it was copied: "
                f"{named(sorted(again))}",
                fix="let it copy the new topics; its on_recreated_topic decides",
            )


def schemas_that_differ(seen: Seen) -> Iterator[Finding]:
    return schemas.differences(seen.stage)


def transactions(seen: Seen) -> Iterator[Finding]:
    """What an application has read and what it has written are copied one by one."""
    source, told = seen.flow.source, seen.told
    if access.PRODUCERS not in told.at or access.PRODUCERS in told.unseen:
        seen.unseen.append(f"who writes to {source} in transactions: not known")
    found = sorted(
        name
        for name, topics in told.producers.items()
        if any(map(seen.flow.topic_filter.matches, topics))
    )
    if found:
        yield Finding(
            level=Level.READY,
            subject=f"cluster {source}",
            reason=f"the last transactions of {named(found)} may be copied in part by "
            "a failover",
            fix=f"switch while {source} is there, which copies them whole",
        )


def proofs_of_copies(seen: Seen) -> Iterator[Finding]:
    """Whether the last ones found something, or are old; none is no finding."""
    flow = seen.flow
    read = proofs.read(seen.stage.target, flow.source).values()
    found = [proof for proof in read if proof.topic in seen.copies]
    topics: Counter[str] = Counter()
    for proof in found:
        topics[proof.topic] += proof.findings
    for topic, count in sorted((+topics).items()):
        yield Finding(
            level=Level.NOT_READY,
            subject=f"topic {topic}",
            reason=f"the last proof has {some(count, 'finding')}",
            fix="see what differs, then repair the copy",
            command=f"mirror verify --flow '{flow.name}' --topic '{topic}'",
        )
    oldest = min((proof.at for proof in found), default=seen.at)
    if seen.at - oldest > _OLD_PROOF_SECONDS:
        yield Finding(
            level=Level.DEGRADED,
            subject=f"flow {flow.name}",
            reason=f"the oldest proof is {duration(seen.at - oldest)} old",
            fix="prove the copies",
            command=f"mirror verify --flow '{flow.name}'",
        )


def age_of_what_the_target_keeps(seen: Seen) -> Iterator[Finding]:
    """Not for a failover: nothing is newer than when the source was lost."""
    at = 0.0 if seen.kept is None else risk.ends_at(seen.kept)
    if seen.at - at > _STALE_SECONDS:
        when = f"{duration(seen.at - at)} old" if at else "missing"
        yield Finding(
            level=Level.DEGRADED,
            subject=f"cluster {seen.flow.target}",
            reason=f"what it keeps about {seen.flow.source} is {when}: after a "
            "failover the loss would not be known",
            fix="run a service for this flow",
            command="mirror run",
        )


def acls_that_the_target_keeps(seen: Seen) -> Iterator[Finding]:
    kept, source, subject = seen.told, seen.flow.source, f"cluster {seen.flow.target}"
    if access.ACLS not in kept.at:
        yield Finding(
            level=Level.DEGRADED,
            subject=subject,
            reason=f"it does not keep the ACLs of {source}: a failover could grant no "
            "rights",
            fix="run a service for this flow",
            command="mirror run",
        )
    elif kept.unseen.get(access.ACLS, "no authorizer") != "no authorizer":
        yield Finding(
            level=Level.DEGRADED,
            subject=subject,
            reason=f"mirror may not see the ACLs of {source}: a failover could grant "
            "no rights",
            fix="give mirror DESCRIBE on the source cluster",
            command="mirror config acls --for recovery",
        )


def replicas(seen: Seen) -> Iterator[Finding]:
    target, flow = seen.stage.target, seen.flow
    if flow.replication_factor > target.brokers:
        yield Finding(
            level=Level.NOT_READY,
            subject=f"cluster {flow.target}",
            reason=f"replication_factor is {flow.replication_factor}, and "
            f"{some(target.brokers, 'broker')} are up: no copy can be created",
            fix="start the brokers, or lower replication_factor",
        )
    source = seen.stage.source_or_none
    here = brokers.replicas(target, seen.copies.values())
    there = {} if source is None else brokers.replicas(source, seen.copies)
    described = configs.describe(target, here, keys=[_IN_SYNC])
    for topic, copy in sorted(seen.copies.items()):
        if copy not in here:
            continue
        given = described.get(copy)
        if given is not None and given.error is not None:
            seen.unseen.append(f"{_IN_SYNC} of {copy}: {given.error}")
        found = given.configs.get(_IN_SYNC) if given is not None else None
        needed = int(found.value) if found is not None and found.value else 1
        yield from of_replicas(
            flow, copy, here[copy], there.get(topic),
            needed=needed, brokers=target.brokers,
        )  # fmt: skip


def of_replicas(
    flow: FlowConfig,
    copy: str,
    found: Replicas,
    model: Replicas | None,
    *,
    needed: int,
    brokers: int,
) -> Iterator[Finding]:
    """What a copy is missing. `model`: of the topic on the source; `needed`:
    `min.insync.replicas`; `brokers`: of the target.
    """
    subject, target = f"topic {copy}", flow.target
    if found.leaderless:
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason=f"{some(found.leaderless, 'partition')} without a leader on "
            f"{target}",
            fix="start the brokers that have its replicas",
        )
    elif found.out_of_sync:
        yield Finding(
            level=Level.DEGRADED,
            subject=subject,
            reason=f"{some(found.out_of_sync, 'partition')} on {target} with replicas "
            "that are not in sync, or offline",
            fix="start the brokers that have them, and wait until they are in sync",
        )
    if found.least < needed:
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason=f"{_IN_SYNC} is {needed}, and it has "
            f"{some(found.least, 'replica')}: producers with acks=all are refused",
            fix=f"add replicas, or lower {_IN_SYNC} of the copy",
            command="kafka-reassign-partitions.sh",
        )
    if model is not None and found.least < min(model.least, brokers):
        yield Finding(
            level=Level.DEGRADED,
            subject=subject,
            reason=f"{some(found.least, 'replica')} on {target}, {model.least} on "
            f"{flow.source}",
            fix="add replicas",
            command="kafka-reassign-partitions.sh",
        )


OF_PAIR = (
    Check(pair_is_free, _BOTH),
    Check(paused_topics, (_SWITCH,), required=_BOTH),
    Check(copies_all_keys, _BOTH, required=_BOTH),
    Check(hooks_are_usable, _BOTH, required=_BOTH),
    Check(fence, _BOTH, required=(_SWITCH,)),
    Check(pair_is_closed, (_SWITCH,), required=_BOTH),
)
OF_COPIES = (
    Check(copies_are_made, (_SWITCH,), required=_BOTH),
    Check(lag, _BOTH, required=_BOTH),
    Check(faulted_partitions, _BOTH),
    Check(settled_tail, (_SWITCH,), required=_BOTH),
    Check(partitions, (_SWITCH,), required=_BOTH),
    Check(group_positions, _BOTH, required=_BOTH),
    Check(positions_that_only_the_source_knows, (_FAILOVER,)),
    Check(share_groups, (_SWITCH,)),
    Check(topics_of_producers, _BOTH),
    Check(subscriptions, (_SWITCH,)),
    Check(lacking_rights, _BOTH),
    Check(other_writers, (_SWITCH,)),
    Check(topics_made_again, (_SWITCH,)),
    Check(schemas_that_differ, (_SWITCH,)),
    Check(transactions, (_FAILOVER,)),
    Check(proofs_of_copies, _BOTH),
    Check(age_of_what_the_target_keeps, (_SWITCH,)),
    Check(acls_that_the_target_keeps, _BOTH),
    Check(replicas, _BOTH),
)
