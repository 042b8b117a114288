"""Steps 2 and 3: services hold still, producers stop, the logs of the source end.

Step 2 is done by the open run in the journals: services read them every second, and
their jobs for group offsets, configs, ACLs and schemas of both flows wait until it
ends. The registry of the cluster that is left takes no new schemas from here on.

In step 3 ACLs keep producers from writing, or people stop them; whatever it is, its
effect is what counts: no log grows and no transaction is open for a second. The cut,
where each log ends then, is what the next steps work with. They begin before that
second is over, and step 6 waits for the rest of it (`require_still`). If somebody has
written by then, steps 3, 4 and 6 are done again, and step 3 waits for a whole second.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mirror.config import scopes
from mirror.pairs import roles, selection
from mirror.recovery import hooks, outcome, quiet, schemas
from mirror.recovery.quiet import ActivityReason, QuiesceCheck
from mirror.recovery.stage import NOTHING, CutMovedError, Done, Stage, StepError
from mirror.status.wording import some
from mirror.topics import fences
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.topics.acl_notes import AclPlan
    from mirror.topics.fences import KnownGrants
    from mirror.topics.topics import MirroredTopic


_BRIEF_SECONDS = 0.1


def hold(stage: Stage) -> Done:
    closed, warnings = schemas.close(stage)
    return Done(
        text=f"{closed}group offsets, configs and ACLs of {stage.flow.name} and "
        f"{stage.reverse.name} are held",
        warnings=warnings,
    )


# ---- step 3: producers stop ----


def stop_producers(stage: Stage) -> Done:
    if not stage.planned:
        called, warnings = hooks.attempt(stage, hooks.STOP_PRODUCERS)
        left = "its fence is pending"
        if stage.pair.fence != "acl":
            left = "keep its producers stopped"
        text = f"{stage.without_source}: {left}"
        return Done(
            text="; ".join(filter(None, (called, text))),
            notes={} if stage.pair.fence != "acl" else {roles.OWED: _owed(stage)},
            warnings=warnings,
        )
    outcome.load_comparing()  # while hooks work
    again = roles.AGAIN in stage.notes["fence"]
    called = "" if again else hooks.call(stage, hooks.STOP_PRODUCERS)
    fenced = called or "producers stopped"
    if stage.pair.fence == "confirmed" and not (called or again):
        _require_agreed(stage)
    if stage.pair.fence == "acl":
        plan = lay(stage, stage.source, stage.flow)
        denied = {acl.principal for acl in plan.adds if acl.permission == "DENY"}
        laid = f"{some(len(denied), 'principal')} fenced on {stage.flow.source}"
        fenced = "; ".join(filter(None, (called, laid)))
    moving = _moving(stage.source, stage.flow)
    topics = {each.topic: each.partitions for each in moving}
    found = QuiesceCheck(cuts={})
    pause = quiet.PAUSE_SECONDS if again else _BRIEF_SECONDS
    # Transactions first get time to end by themselves.
    patience = time.monotonic() + (stage.deadline - time.monotonic()) / 2
    aborted: set[str] = set()

    def busy() -> str:
        nonlocal found
        found = quiet.look(stage.source, topics, pause=pause, after=found)
        text = found.text
        if stage.abort_transactions and time.monotonic() > patience:
            text = "; ".join(filter(None, (text, *_abort(stage, found, aborted))))
        return f"although {called}: {text}" if called and text else text

    stage.wait(busy)
    stage.ends[stage.flow.source] = found
    return Done(
        text=f"{fenced}; no write for {pause} s, no open transaction",
        notes={
            "cut": {
                topic: [found.cuts[topic, number] for number in range(count)]
                for topic, count in topics.items()
            },
            "ids": {each.topic: each.topic_id for each in moving},
        },
        warnings=(f"transactions aborted: {', '.join(sorted(aborted))}",)
        if aborted
        else (),
    )


def _owed(stage: Stage) -> dict[str, Any]:
    """What to fence once the source answers, also by a service that selects less: what
    is selected now, and the names that are known.
    """
    flow = stage.flow
    noted = selection.noted(stage.config, flow.name)[flow.name]
    topics = sorted(
        name
        for name in selection.known_topics(flow, stage.target)
        if flow.topic_filter.matches(name) and not flow.is_heartbeats(name)
    )
    return {roles.OWED_SELECTION: noted, roles.OWED_TOPICS: topics}


def _abort(stage: Stage, found: QuiesceCheck, aborted: set[str]) -> list[str]:
    """Abort what is open; `aborted` gets the names. Returns why some are not."""
    names = {each.transactional_id for each in found.open if each.transactional_id}
    if names - aborted:
        stage.note({"aborting": sorted(names | aborted)})
    fenced, refused = quiet.abort(stage.source, found.open)
    aborted.update(fenced)
    return [f"{name} cannot be aborted: {why}" for name, why in refused.items()]


def _require_agreed(stage: Stage) -> None:
    """Logs that stand still for a second do not say that no one will write again."""
    source = stage.flow.source
    stage.tell(f"stop the producers of {source} now")
    if not stage.agree(f"Have all producers of {source} stopped?"):
        raise StepError(f"the producers of {source} are not confirmed to have stopped")


def lay(
    stage: Stage, cluster: Cluster, flow: FlowConfig, *, more: Collection[str] = ()
) -> AclPlan:
    """Fence what a flow copies from this cluster, and `more` topics that are there;
    copies there are mirror's alone.

    Raises:
        FenceError: ACLs cannot do it.
        ClusterError: the cluster does not answer, or refuses.
    """
    topics = {*topics_of(cluster, flow), *more}
    known = known_of(stage, cluster, flow, topics)
    plan = fences.plan_fence(known, topics, pair=stage.pair.name)
    stage.note({})
    fences.lay(cluster, plan, hold=stage.hold)
    return plan


def known_of(
    stage: Stage,
    cluster: Cluster,
    flow: FlowConfig,
    topics: Collection[str],
    *,
    probe: bool = True,
) -> KnownGrants:
    """Who may write to these topics, which a flow copies. Raises as `fences.look`."""
    back = _back(stage, flow)
    upstream = back.replication_policy.upstream_topic
    copies = {
        name
        for name in cluster.topics()
        if upstream(name) and scopes.has_topic(stage.pair, name, back)
    }
    return fences.look(
        cluster, stage.config, topics, copies=copies.difference(topics), probe=probe
    )


def require_still(stage: Stage) -> None:
    """Wait until the source's logs have ended where they were cut for a second.

    Raises:
        CutMovedError: somebody wrote, and that was not waited for before.
        StepError: a transaction is open, or a leader does not tell.
        ClusterError: the source does not answer, or refuses.
    """
    if not stage.planned or roles.AGAIN in stage.notes["fence"]:
        return  # then right before the role moves
    cut, source = cut_of(stage), stage.source
    found = stage.ends.get(source.alias)
    names = {topic for topic, _ in cut}

    def busy() -> str:
        nonlocal found
        found = quiet.look(source, names, after=found)
        moved = [k for k, why in found.active.items() if why is ActivityReason.WRITES]
        moved += [key for key, end in found.cuts.items() if end != cut.get(key, 0)]
        if moved:
            raise CutMovedError(_grown(source, moved, "its logs were cut"))
        return found.text

    stage.wait(busy)


def _grown(source: Cluster, moved: Collection[TopicPartition], after: str) -> str:
    topic, number = min(moved)
    return (
        f"somebody wrote to {source.alias} after {after}: "
        f"{some(len(moved), 'partition')}, such as {topic}-{number}"
    )


def require_cut(stage: Stage) -> None:
    """Look once more, right before the role moves: the source is fenced, and its logs
    end where they were drained to. An ACL that somebody took away is added again.

    Raises:
        StepError: somebody wrote after the cut, and that is not copied.
        MirrorError: as `lay`.
    """
    source = stage.source
    if stage.pair.fence == "acl":
        lay(stage, source, stage.flow)
    ids = {each.topic: each.topic_id for each in _moving(source, stage.flow)}
    cut = cut_of(stage)
    noted: Mapping[str, str] = stage.notes["fence"].get("ids", {})
    if other := sorted(t for t, known in noted.items() if ids.get(t) != known):
        raise StepError(
            f"topic {other[0]} on {source.alias} was deleted or re-created meanwhile"
        )

    def busy() -> str:
        found = quiet.look(source, ids, pause=0.0)
        moved = [key for key, end in found.cuts.items() if end != cut.get(key, 0)]
        if moved:
            ended, ends = cut.get(min(moved), 0), found.cuts[min(moved)]
            raise StepError(
                f"{_grown(source, moved, 'everything was copied')}, which ended at "
                f"{ended} and ends at {ends} now"
            )
        return found.text

    stage.wait(busy)


def topics_of(source: Cluster, flow: FlowConfig) -> dict[str, int]:
    """The topics that a flow copies, with their partitions."""
    return {each.topic: each.partitions for each in _moving(source, flow)}


def _moving(source: Cluster, flow: FlowConfig) -> list[MirroredTopic]:
    """Not heartbeats: services write them all the time, also those of flows that rest,
    and no application reads on in them.
    """
    return [
        each
        for each in select(source, flow).topics
        if not flow.is_heartbeats(each.topic)
    ]


def cut_of(stage: Stage) -> dict[TopicPartition, int]:
    """Where each log of the source ended when it stood still."""
    return roles.cut(stage.notes["fence"]) or {}


def _back(stage: Stage, flow: FlowConfig) -> FlowConfig:
    return stage.reverse if flow.name == stage.flow.name else stage.flow


def let_producers_write(stage: Stage) -> str:
    if not stage.planned:
        return NOTHING
    if stage.pair.fence == "acl":
        stage.note({})
        fences.lift(stage.source, fences.fence_name(stage.pair.name), hold=stage.hold)
    return f"producers may write to {stage.flow.source}"
