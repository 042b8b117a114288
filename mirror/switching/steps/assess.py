"""Step 1: whether the switch can be made, and what it would move. It changes nothing
but ends a transaction that is left open in the progress of a flow.

A switch needs a copy that is nearly up to date, groups that are known and idle on the
target, and as many partitions on both sides. A failover takes what there is, and says
what is lost.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.clusters.admin.topic_admin import LATEST, list_offsets
from mirror.config import scopes
from mirror.driver import role_notes
from mirror.driver.ownership import take_over
from mirror.metadata.merging import Merging
from mirror.metadata.topics import select
from mirror.offsets import progress, standby
from mirror.offsets.progress import NO_ID
from mirror.recovery import ends, roles
from mirror.recovery.journal import JournalReader
from mirror.recovery.looking import Looking, from_standby
from mirror.recovery.risk import position
from mirror.status.wording import duration, named, some
from mirror.switching import (
    applications,
    closed,
    failover_report,
    fences,
    group_places,
    hooks,
    schemas,
    whole,
)
from mirror.switching.stage import Done, Stage, Step, StepError, nothing_to_undo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.status.risk import RiskStatus
    from mirror.switching.group_places import GroupPlaces

_MOST_NAMED = 5
_WATCH_SECONDS = 2.0
"""Longer than a service that copies leaves a transaction open."""


def _assess(stage: Stage) -> Done:
    if (found := _left_open(stage)) is not None:
        take_over(*found)
    return assessed(stage)[0]


def require_readable(stage: Stage) -> None:
    """For a plan, which ends no transaction.

    Raises:
        StepError: one that is left open hides what the plan needs.
    """
    if (found := _left_open(stage)) is not None:
        flow, cluster = found
        raise StepError(
            f"a transaction is open in the progress of flow {flow.name} on "
            f"{cluster.alias}, so where groups go on is not known: without --dry-run "
            "the command ends it, and brokers abort it after its time-out"
        )


def _left_open(stage: Stage) -> tuple[FlowConfig, Cluster] | None:
    """A canary or service that was killed while it copied may have left a transaction
    open: until brokers abort it, no one can read that flow's progress. Of a switch it
    is the flow back, which rests, so to take over fences nothing that may copy. Of a
    failover it is the flow there, and a transaction counts as left open if it goes on
    while this watches.
    """
    if stage.planned:
        flow, cluster = stage.reverse, stage.source
        looks = not stage.pair.both_ways and stage.pair.scope is None
    else:
        flow, cluster, looks = stage.flow, stage.target, True
    if not looks or cluster.topic(progress.topic_name(flow.source)) is None:
        return None
    found = _open_from(flow, cluster)
    if found and not stage.planned:
        time.sleep(_WATCH_SECONDS)
        found &= _open_from(flow, cluster)
    return (flow, cluster) if found else None


def _open_from(flow: FlowConfig, cluster: Cluster) -> set[tuple[tuple[str, int], int]]:
    """The partitions of a flow's progress in which a transaction is open, and from
    which offset on.
    """
    name = progress.topic_name(flow.source)
    topics = cluster.topics([name])
    ends, stable = (
        list_offsets(
            cluster,
            [(name, 0)],
            timestamp=LATEST,
            committed=committed,
            topics=topics,
        )
        for committed in (False, True)
    )
    return {(k, stable[k]) for k, end in ends.items() if stable.get(k, end) < end}


def assessed(stage: Stage, *, waits: bool = True) -> tuple[Done, GroupPlaces]:
    """What the step finds out, and where groups go on. Without `waits`, copies that a
    service has still to make are warnings.

    Raises:
        StepError: the switch cannot be made now.
        MirrorError: a cluster does not answer, or cannot be fenced.
    """
    flow = stage.flow
    name = progress.topic_name(flow.source)
    if stage.target.topic(name) is None:
        raise StepError(
            f"flow {flow.name} never ran: cluster {flow.target} has no topic {name}"
        )
    _require_role(stage)
    require_all_keys(stage)
    seen = whole.require_selection(stage)
    _require_unpaused(stage)
    warnings = [*seen, *_require_closed(stage)]
    lacks: list[str] = []
    if stage.planned and waits:
        stage.wait(lambda: whole.unmade(stage), every=0.5)
    elif stage.planned:
        lacks = whole.lacking(stage)
        warnings += [f"the switch waits for this: {each}" for each in lacks]
    risk = look(stage, waits=not lacks)
    # A plan shows places; while the flow copies, a transaction takes up to a second.
    found = places_of(stage, wait=not (waits and stage.planned))
    topics = len(risk.topics)
    lag = risk.seconds
    if stage.planned:
        _require_ready(stage, risk)
    if found.failures:
        raise StepError(named(found.failures))
    _require_idle(stage, found)
    if found.unknown:
        warnings.append(f"positions that are not known: {named(found.unknown)}")
    if found.not_covered:
        warnings.append(
            f"share groups have no offsets to move: {named(found.not_covered)}"
        )
    warnings += [f"without {flow.source}, not known: {each}" for each in found.unseen]
    warnings += found.partial
    warnings += applications.own_topics(stage, risk)
    if stage.planned:
        warnings += [*_other_writers(stage), *renewed(stage)]
        warnings += applications.subscriptions(stage, risk, found)
        warnings += schemas.differences(stage)
    else:
        warnings += applications.in_transactions(stage)
    text = f"{some(topics, 'topic')}, {some(len(found.places), 'group')}, "
    if stage.planned:
        text += "lag not known" if lag < 0 else f"lag {duration(lag)}"
    else:
        text += failover_report.lost(risk)
    done = Done(
        text=text,
        notes={
            "topics": topics,
            "groups": len(found.places),
            "records_at_risk": risk.records,
            "as_of": risk.at,
        },
        warnings=tuple(warnings),
    )
    return done, found


def _require_role(stage: Stage) -> None:
    """For a plan: an operator does not begin without.

    Raises:
        MirrorError: the journals do not tell which cluster is active.
    """
    clusters = [each for each in (stage.source_or_none, stage.target) if each]
    journals = (JournalReader(each).read(wait=False) for each in clusters)
    entries = roles.merged(*journals, pair=stage.pair.name)
    role_notes.require(stage.pair, entries, clusters)


def require_all_keys(stage: Stage) -> None:
    """
    Raises:
        StepError: the flow home would leave some keys out.
    """
    if stage.pair.leave_out_away:
        raise StepError(
            f"leave_out_away is on: what is written on {stage.flow.target} from now "
            f"on, of keys whose home is {stage.flow.source}, would never be copied "
            "there; turn it off, for the service too"
        )


def look(stage: Stage, *, waits: bool = True) -> RiskStatus:
    """What is not copied: now, or without the source as of the service's last look.
    `waits`: until it is known, which it is not of what has no copy.

    Raises:
        ClusterError: a cluster does not answer.
    """
    flow = stage.flow
    reader = progress.reader(stage.target, progress.topic_name(flow.source))
    if not stage.planned:
        return from_standby(
            stage.target,
            flow,
            lambda: reader.read(wait=False),
            counts=lambda name: scopes.has_topic(stage.pair, name, stage.reverse),
        )
    names = [topic.topic for topic in select(stage.source, flow).topics]
    # What the service saw says since when something is not copied.
    kept = standby.read(stage.target, flow.source, {ends.KIND})
    known = {} if kept is None else ends.read(kept, flow.source)
    looking = Looking(known, lambda: reader.read(wait=False))
    found = looking.look(stage.source, names, at=time.time()).risk

    def unknown() -> str:
        nonlocal found
        if found.seconds < 0:
            found = looking.look(stage.source, names, at=time.time()).risk
        left = f"{flow.name} has not copied everything, and since when is not known: "
        left += f"does its service run, and reach {flow.source}? (`mirror status`)"
        return left if found.seconds < 0 else ""

    if waits:
        stage.wait(unknown)
    return found


def _require_ready(stage: Stage, risk: RiskStatus) -> None:
    hooks.require_usable(stage.pair)
    _require_unfaulted(stage, risk)
    _require_current(stage, risk)
    _require_settled(stage)
    _require_partitions(stage)
    if stage.pair.fence == "acl":
        fences.look_at(stage.config, stage.source, stage.target, probe=False)


def _require_unfaulted(stage: Stage, risk: RiskStatus) -> None:
    """By what the service saw last, of what is still not copied, or is gone: step 4
    waits for that as well, until somebody decides where to continue.
    """
    kept = standby.read(stage.target, stage.flow.source, {ends.KIND})
    faults = {} if kept is None else ends.faults(kept)
    behind = {(each.topic, each.partition) for each in risk.partitions if each.records}
    if stuck := sorted(faults.keys() & (behind | _short(stage, faults))):
        (topic, number), more = stuck[0], len(stuck) - 1
        also = f", as are {some(more, 'partition')} more" if more else ""
        raise StepError(
            f"{topic}-{number} is FAULTED{also}, so it is not copied: "
            f"{faults[topic, number]}. `mirror status` shows it: correct that first"
        )


def _short(stage: Stage, keys: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Of these partitions, those whose position is not at the end, whatever is left of
    what stands between.
    """
    flow = stage.flow
    ids = {each.topic: each.topic_id for each in select(stage.source, flow).topics}
    asked = [key for key in keys if key[0] in ids]
    if not asked:
        return set()
    name = progress.topic_name(flow.source)
    known = progress.reader(stage.target, name).read(wait=False)
    last = list_offsets(stage.source, asked, timestamp=LATEST, committed=False)
    return {
        key
        for key, end in last.items()
        if max(position(known, key, ids[key[0]]) or 0, 0) < end
    }


def _require_current(stage: Stage, risk: RiskStatus) -> None:
    if risk.seconds > stage.pair.max_lag_seconds:
        worst = max(risk.partitions, key=lambda each: each.seconds)
        raise StepError(
            f"the copy of {worst.topic}-{worst.partition} is {duration(risk.seconds)} "
            f"behind, and max_lag_seconds is {stage.pair.max_lag_seconds:g}: wait "
            "until it has caught up (`mirror lag`; `mirror status` says why it does "
            "not), or raise max_lag_seconds"
        )


def _require_unpaused(stage: Stage) -> None:
    """A failover takes what there is."""
    if stage.planned and (reason := whole.paused(stage)):
        raise StepError(reason)


def _require_closed(stage: Stage) -> tuple[str, ...]:
    """Returns what is not known about it."""
    if not stage.planned:
        return ()
    found = closed.findings(stage)
    if found.refused:
        raise StepError("; ".join(found.refused[:_MOST_NAMED]))
    return found.warnings


def _require_settled(stage: Stage) -> None:
    """Applications would meet records that the cluster they come from does not have."""
    reverse, clusters = stage.reverse, (stage.target, stage.source)
    if not roles.leaves_tail(entries := stage.entries(), reverse.source):
        return
    from mirror.tails.unsettled import unsettled  # noqa: PLC0415  loads kernels

    seen = stage.tails.get(reverse.name)
    if left := unsettled(reverse, *clusters, entries, seen=seen).left(reverse):
        raise StepError(
            f"since the failover to {reverse.target}, {left}: settle that first, with "
            f"`mirror tail replay '{stage.way_back}'`, `export` or `skip`"
        )


def _require_partitions(stage: Stage) -> None:
    """Keys would move if producers met another number of partitions."""
    source, target = stage.source.topics(), stage.target.topics()
    for topic in select(stage.source, stage.flow).topics:
        there = target.get(topic.topic)
        if there is None or not there.partitions:
            continue  # producers create it, or it is a copy under another name
        here = source[topic.topic].partitions
        if there.partitions > max(here, stage.growing.get(topic.topic, 0)):
            raise StepError(
                f"topic {topic.topic} has {there.partitions} partitions on "
                f"{stage.flow.target} and {here} on {stage.flow.source}: keys would "
                f"move to other partitions; add partitions on {stage.flow.source} first"
            )


def _other_writers(stage: Stage) -> Iterator[str]:
    """Flows that copy into what is to be quiet: no ACL keeps mirror from writing."""
    source, reverse = stage.flow.source, stage.reverse.name
    writers = Merging(stage.config.enabled_flows)
    into: dict[str, list[str]] = {}
    for topic in select(stage.source, stage.flow).topics:
        for each in writers.contributors(source, topic.topic):
            if each.flow.name != reverse:
                into.setdefault(each.flow.name, []).append(topic.topic)
    for name, topics in into.items():
        yield (
            f"flow {name} copies into {named(topics)} on {source}, which gets quiet "
            "only while it copies nothing: pause these topics there"
        )


def renewed(stage: Stage) -> Iterator[str]:
    """Topics that were made again since they were copied."""
    ends = ((stage.flow, stage.source, stage.target),
            (stage.reverse, stage.target, stage.source))  # fmt: skip
    for flow, source, target in ends:
        if target.topic(progress.topic_name(flow.source)) is None:
            continue
        known = progress.read(target, progress.topic_name(flow.source), wait=False)
        ids = {topic.topic: topic.topic_id for topic in select(source, flow).topics}
        again = {
            topic
            for (topic, _), each in known.positions.items()
            if topic in ids and each.topic_id != NO_ID
            if ids[topic] not in {NO_ID.hex, each.topic_id.hex}
        }
        if again:
            yield (
                f"made again on {source.alias} since {flow.name} copied it: "
                f"{named(sorted(again))}; the flow's on_recreated_topic decides"
            )


def _require_idle(stage: Stage, found: GroupPlaces) -> None:
    there = found.on_target
    active = [name for name in found.places if name in there and not there[name].idle]
    if active:
        raise StepError(
            f"groups with members on {stage.flow.target}: {named(sorted(active))}. "
            "Their positions cannot be set: stop them there first"
        )


def places_of(stage: Stage, *, wait: bool = True) -> GroupPlaces:
    """Where groups go on. Raises as `group_places.survey`. Without `wait`, as far as
    that can be told while the flow writes: names are right, places are about so.
    """
    source = stage.source if stage.planned else None
    return group_places.survey(
        stage.config,
        stage.flow,
        stage.reverse,
        stage.target,
        source,
        pair=stage.pair,
        maps=stage.maps,
        wait=wait,
    )


STEP = Step(do=_assess, undo=nothing_to_undo)
