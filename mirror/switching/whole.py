"""Whether a flow has made, and a configuration selects, all that moves with a pair.

Main functions: `require_selection`, before a run changes anything: roles are the
pair's, so all services follow them, and whatever the operator's configuration leaves
out would change sides without being fenced, drained or translated. `paused`, the topics
that stay behind, and `unmade`: the flow stops copying as the role moves, so what it has
not made by then, it never makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.metadata import topics
from mirror.metadata.sides import Live
from mirror.policy.names import is_heartbeats
from mirror.recovery import selection
from mirror.recovery.pauses import PausesReader
from mirror.status.wording import moment, named, some

if TYPE_CHECKING:
    from mirror.switching.stage import Stage


def require_selection(stage: Stage) -> tuple[str, ...]:
    """Check that the configuration selects, of both flows, what the services do.
    Returns warnings. Raises as `selection.require`.
    """
    ends = (stage.source_or_none, stage.target_or_none)
    return tuple(
        warning
        for flow in (stage.flow.name, stage.reverse.name)
        for warning in selection.require(stage.config, flow, stage.pair, ends)
    )


def paused(stage: Stage) -> str:
    """Which topics of the pair the flow does not copy because somebody paused them, and
    what ends that; empty: none. Also where all is copied now: producers would be kept
    waiting for the next record.

    Raises:
        ClusterError: a cluster does not answer, or does not let us read.
    """
    flow, reader = stage.flow, PausesReader(stage.target, stage.flow)
    pauses = reader.read()
    names = [
        each.topic
        for each in topics.select(stage.source, flow).topics
        if not is_heartbeats(each.topic, flow.separator)
    ]
    for name in names:
        if (rebuild := reader.rebuilds.get(name)) is not None and rebuild.unfinished:
            return (
                f"the copy of {name} is being rebuilt: finish that first, with the "
                "command that began it"
            )
    resting = [name for name in names if pauses.since(name)]
    if not resting:
        return ""
    command = f"mirror resume {flow.source}/{flow.target}"
    if stage.pair.scope is not None or not resting[1:]:
        command += f" --topic '{resting[0]}'"
    since = moment(pauses.since(resting[0]))
    return (
        f"paused in {flow.name}, so their copies do not go on: {named(resting)}, since "
        f"{since}; resume first: `{command}`"
    )


def unmade(stage: Stage) -> str:
    """What copies lack, in words. Empty: nothing. Raises as `lacking`."""
    lacks = lacking(stage)
    if not lacks:
        return ""
    more = f", and {some(len(lacks) - 1, 'topic')} more" if lacks[1:] else ""
    return (
        f"{lacks[0]}{more}: a service of {stage.flow.name} adds them within "
        f"{stage.flow.refresh_topics_seconds:g} s (refresh_topics_seconds), if it runs "
        "and may"
    )


def lacking(stage: Stage) -> list[str]:
    """What copies lack, by topic, in words: partitions that their topics got on the
    source, or copies of new topics.

    Raises:
        ClusterError: a cluster does not answer.
    """
    flow = stage.flow
    plan = topics.plan(Live(stage.source), Live(stage.target), flow)
    lacks = sorted(
        (each.topic, each.partitions, each.target_topic)
        for each in plan.topics
        if each.target_topic in {*plan.grow, *plan.create}
        if not is_heartbeats(each.topic, flow.separator)
    )
    return [
        f"topic {topic} has {some(count, 'partition')} on {flow.source} and "
        f"{'fewer' if copy in plan.grow else 'no copy'} on {flow.target}"
        for topic, count, copy in lacks
    ]
