"""A pair's topics move together, also where services share them out (`part`).

Main functions: `require`, before a run changes anything: roles are the pair's, so all
services follow them, and whatever the operator's configuration leaves out would change
sides without being fenced, drained or translated. `unmade`, until the role moves: the
flow stops copying then, so what it has not made by then, it never makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.driver import parts
from mirror.driver.generation import Generation
from mirror.metadata import topics
from mirror.metadata.sides import Live
from mirror.offsets import progress
from mirror.policy.names import is_heartbeats
from mirror.status.wording import some
from mirror.switching.stage import StepError

if TYPE_CHECKING:
    from mirror.switching.stage import Stage


def require(stage: Stage) -> None:
    """Check that the flow has the topics of all its parts. A pair with a name has
    topics of its own, which one part may copy.

    Raises:
        StepError: it has not.
        ClusterError: the target does not answer.
    """
    flow, name = stage.flow, progress.topic_name(stage.flow.source)
    if stage.pair.scope is not None or stage.target.topic(name) is None:
        return
    known = progress.read(stage.target, name, committed=False)
    noted = Generation.parse(known.generation).parts
    others = [each.name for each in noted if each.name != flow.part]
    if flow.part is not None and others:
        raise StepError(
            f"{flow.label} is one part of the flow, and {', '.join(others)} would "
            "change sides with it: use a configuration without `part`, with the topics "
            "of all parts"
        )
    left = {
        topic
        for topic, _ in known.positions
        if not flow.topic_filter.matches(topic)
        if any(parts.selects(each, topic, flow) for each in noted)
    }
    if left:
        raise StepError(
            f"{some(len(left), 'topic')} of the flow's parts, such as {min(left)}, "
            f"would change sides too: add them to the topics of {flow.name} here"
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
        if not is_heartbeats(each.topic, flow.separator)
    }
