"""Step 1: whether the switch can be made, and what it would move. It changes nothing
but mirror's own topics: it ends a transaction that is left open in the progress of a
flow, and a failover makes those of a flow back that had no time to begin.

A switch needs a copy that is nearly up to date, groups that are known and idle on the
target, and as many partitions on both sides. A failover takes what there is, and says
what is lost. `checks` has what is checked, also for a drill.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin.topic_admin import LATEST, list_offsets
from mirror.config import scopes
from mirror.offsets import progress, standby
from mirror.pairs import risk, roles
from mirror.pairs.journal import JournalReader
from mirror.pairs.risk import RiskTracker, from_standby
from mirror.recovery import outcome
from mirror.recovery.stage import (
    Done,
    Finding,
    Level,
    Stage,
    StepError,
    in_order,
)
from mirror.recovery.steps import checks
from mirror.recovery.steps.checks import Seen
from mirror.recovery.steps.positions import places_of
from mirror.service.ownership import make_topics, take_over
from mirror.status.values import RiskStatus
from mirror.status.wording import duration, some
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.recovery.steps.positions import GroupPlaces

_WATCH_SECONDS = 2.0
"""Longer than a service that copies leaves a transaction open."""
_PLAN_SECONDS = 2.0
"""How long a plan waits until the lag is known."""


def assess(stage: Stage) -> Done:
    if not stage.planned and not _has_begun(stage) and _was_active(stage):
        # The cluster that is gone was active too briefly for a flow back to begin: this
        # one has what it had then.
        make_topics(stage.flow, stage.target)
    if (found := _left_open(stage)) is not None:
        take_over(*found)
    return assessed(stage)[0]


def left_open(stage: Stage) -> Iterator[Finding]:
    """For a plan and a drill, which end no transaction."""
    if (found := _left_open(stage)) is not None:
        flow, cluster = found
        yield Finding(
            level=Level.DEGRADED,
            subject=f"flow {flow.name}",
            reason=f"a transaction is open in its progress on {cluster.alias}, so "
            "where groups continue is not known",
            fix="wait until brokers abort it after its time-out; a switch or failover "
            "ends it",
        )


def _left_open(stage: Stage) -> tuple[FlowConfig, Cluster] | None:
    """A service that was killed while it copied may have left a transaction open: until
    brokers abort it, no one can read that flow's progress. Of a switch it is the flow
    back, which rests, so to take over fences nothing that may copy. Of a failover it is
    the flow there, and a transaction counts as left open if it goes on while this
    watches.
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


def require_begun(stage: Stage) -> None:
    """Without this there is nothing to assess, nor to rehearse.

    Raises:
        StepError: the flow never ran.
        ClusterError: a cluster does not answer.
    """
    if not _has_begun(stage):
        flow, name = stage.flow, progress.topic_name(stage.flow.source)
        more = "; a failover goes on all the same" if _was_active(stage) else ""
        raise StepError(
            f"flow {flow.name} never ran: cluster {flow.target} has no topic {name}"
            + more
        )


def _has_begun(stage: Stage) -> bool:
    return stage.target.topic(progress.topic_name(stage.flow.source)) is not None


def _was_active(stage: Stage) -> bool:
    entries = JournalReader(stage.target).read(wait=False)
    mine = roles.merged(entries, pair=stage.pair.name)
    return roles.was_active(mine, stage.flow.target)


def assessed(stage: Stage, *, waits: bool = True) -> tuple[Done, GroupPlaces]:
    """What the step finds out, and where groups go on. Without `waits`, for a plan,
    copies that a service has still to make are findings.

    Raises:
        StepError: the switch cannot be made now.
        MirrorError: a cluster does not answer, or cannot be fenced.
    """
    require_begun(stage)
    seen = Seen(stage=stage)
    found = checks.find(seen, checks.OF_PAIR)
    waits = waits and not checks.refusal(found, stage.kind)
    if stage.planned and waits:
        stage.wait(lambda: checks.unmade(stage), every=0.5)
    seen.risk = risk = look(stage, waits=waits)
    # A plan shows places; while the flow copies, a transaction takes up to a second.
    seen.places = places_of(stage, wait=not (waits and stage.planned))
    found += checks.find(seen, checks.OF_COPIES)
    stage.show(in_order(found), [*dict.fromkeys(seen.unseen)])
    if why := checks.refusal(found, stage.kind):
        raise StepError(why)
    topics, groups, lag = len(risk.topics), len(seen.places.places), risk.seconds
    text = f"{some(topics, 'topic')}, {some(groups, 'group')}, "
    if stage.planned:
        text += "lag not known" if lag < 0 else f"lag {duration(lag)}"
    else:
        text += outcome.lost(risk)
    done = Done(
        text=text,
        notes={
            "topics": topics,
            "groups": groups,
            "records_at_risk": risk.records,
            "as_of": risk.at,
        },
    )
    return done, seen.places


def look(stage: Stage, *, waits: bool = True, at: float | None = None) -> RiskStatus:
    """What is not copied: now, or without the source as of the service's last look.
    `waits`: for as long as the step may until it is known, which it is not of what has
    no copy; else two seconds. `at`: now.

    Raises:
        StepError: it is still not known.
        ClusterError: a cluster does not answer.
    """
    flow = stage.flow
    reader = progress.reader(stage.target, progress.topic_name(flow.source))
    if stage.source_or_none is None:
        return from_standby(
            stage.target,
            flow,
            lambda: reader.read(wait=False),
            counts=lambda name: scopes.has_topic(stage.pair, name, stage.reverse),
        )
    names = [topic.topic for topic in select(stage.source, flow).topics]
    # What the service saw says since when something is not copied.
    kept = standby.read(stage.target, flow.source, {risk.ENDS})
    known = {} if kept is None else risk.read_ends(kept, flow.source)
    tracker = RiskTracker(known, lambda: reader.read(wait=False))
    found = RiskStatus(seconds=-1.0)

    def unknown() -> str:
        nonlocal found
        now = time.time() if at is None else at
        found = tracker.look(stage.source, names, at=now).risk
        left = f"{flow.name} has not copied everything, and since when is not known: "
        left += f"does its service run, and reach {flow.source}? (`mirror status`)"
        return left if found.seconds < 0 else ""

    if waits:
        stage.wait(unknown)
    else:
        with suppress(StepError):
            replace(stage, deadline=time.monotonic() + _PLAN_SECONDS).wait(unknown)
    return found
