"""Carries out a drill: looks at both clusters, and has everything judged.

Main function: `drill`. It makes the checks of a failover and of a switch, and what only
a drill has time for: it compares the next records of each group, and the configs, users
and quotas of both clusters, which describes all that they have; it asks every broker
for its disks, and decodes records. While it does, others copy, so it takes its time. It
uses what a failover uses, and writes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
import time
from typing import TYPE_CHECKING

from mirror.clusters import cpu_share
from mirror.clusters.admin import disks
from mirror.clusters.at_once import at_once
from mirror.drilling import capacity, differences, group_looks, schemas
from mirror.drilling.outcome import Drill
from mirror.driver import role_notes
from mirror.errors import AuthorizationError
from mirror.metadata import comparing, portrait
from mirror.metadata.sides import Live
from mirror.offsets import progress
from mirror.recovery.journal import Kind
from mirror.switching import answers
from mirror.switching.findings import in_order
from mirror.switching.steps import assess, checks
from mirror.switching.steps.checks import Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.clusters.cluster import Cluster
    from mirror.metadata.portrait import Portrait
    from mirror.switching.findings import Finding
    from mirror.switching.stage import Stage

RECORDS = 100


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
    role_notes.require(stage.pair, seen.entries, (stage.source, stage.target))
    known = answers.Known(pair=stage.pair, entries=tuple(seen.entries))
    answers.answer(answers.Asks.DRILL, flow.source, flow.target, known)
    opened = [*assess.left_open(stage)]
    found = [*opened, *assess.left_open(replace(stage, kind=Kind.SWITCH))]
    found += checks.find(seen, checks.OF_PAIR)
    seen.risk = assess.look(stage, waits=False, at=seen.at)
    judged = group_looks.judge(seen, records=records, wait=not opened)
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


def _differences(seen: Seen, reach: Callable[[str], Cluster]) -> Iterable[Finding]:
    flow, config = seen.flow, seen.stage.config
    found = comparing.compare(
        *_portraits(seen), config.enabled_flows, lambda alias: Live(reach(alias))
    )
    seen.unseen += differences.unseen(found)
    names = {
        each.topic
        if each.topic == each.target_topic
        else f"{each.topic} ({each.target_topic})"
        for each in seen.topics
    }
    servers = config.clusters[flow.target].bootstrap_servers
    return differences.judge(
        found, names, flow=flow.name, target=flow.target, bootstrap=",".join(servers)
    )


def _portraits(seen: Seen) -> tuple[Portrait, Portrait]:
    """Of the source and the target, each in a thread of its own."""
    stage, flow = seen.stage, seen.flow
    flows = stage.config.enabled_flows
    clusters = (stage.source, stage.target)
    gentle = cpu_share.gently(cpu_share.current() / len(clusters))
    one, other = _both(partial(gentle(portrait.take), each) for each in clusters)
    partners = (
        comparing.partners(other, flow.source, flows),
        comparing.partners(one, flow.target, flows),
    )
    one, other = _both(
        partial(gentle(portrait.complete), *each)
        for each in zip((one, other), clusters, partners, strict=True)
    )
    return one, other


def _both(work: Iterable[Callable[[], Portrait]]) -> list[Portrait]:
    return [each.result() for each in at_once([*work])]


def _disks(seen: Seen) -> Iterable[Finding]:
    source, target = seen.stage.source, seen.stage.target

    def of(cluster: Cluster) -> tuple[disks.Disk, ...]:
        try:
            return disks.disks(cluster)
        except AuthorizationError:
            seen.unseen.append(f"disks of {cluster.alias}: not permitted")
            return ()

    return capacity.judge(
        seen.flow.target,
        seen.copies,
        here=disks.replicas(target, seen.copies.values()),
        there=disks.replicas(source, seen.copies),
        disks_here=of(target),
        disks_there=of(source),
    )
