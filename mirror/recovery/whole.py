"""Whether a flow has made all copies that move with a pair.

Main functions: `lacking`, and `unmade`, the same in words. The flow stops copying as
the role moves, so what it has not made by then, it never makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.status.wording import some
from mirror.topics import topics
from mirror.topics.sides import Live

if TYPE_CHECKING:
    from mirror.recovery.stage import Stage


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
