"""Step 5: consumers stop where they were, so that their positions stand still.

A hook stops them, or people do. A group stands still if it has no members and no open
transaction is about to set its offsets: such a transaction may be of a producer that
only writes elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import group_offsets, groups
from mirror.policy.selection import GroupFilter
from mirror.recovery import hooks
from mirror.recovery.group_places import places_of
from mirror.recovery.stage import Done, Stage, Step, nothing_to_undo
from mirror.status.wording import named, some

if TYPE_CHECKING:
    from collections.abc import Collection


def _stop(stage: Stage) -> Done:
    if not stage.planned:
        called, warnings = hooks.attempt(stage, hooks.STOP_CONSUMERS)
        text = "; ".join(filter(None, (called, stage.without_source)))
        return Done(text=text, warnings=warnings)
    called = hooks.call(stage, hooks.STOP_CONSUMERS)
    moving = places_of(stage, wait=False).places
    todo = f"; although {called}" if called else "; stop them"

    def left() -> str:
        text = busy(stage, moving)
        return text + todo if text else ""

    stage.wait(left, every=0.2)
    empty = f"{some(len(moving), 'group')} empty on {stage.flow.source}"
    return Done(text="; ".join(filter(None, (called, empty))))


def busy(stage: Stage, moving: Collection[str]) -> str:
    """The groups on the source that may still change their offsets, in words."""
    source, flow = stage.source, stage.flow
    listed = groups.list_groups(source)
    where = f"with members on {source.alias}"
    left = sorted(n for n in moving if n in listed and not listed[n].idle)
    if left:
        return f"{some(len(left), 'group')} {where}: {named(left)}"
    # One whose first offsets are not committed yet does not move so far.
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    matching = [name for name in listed if wanted.matches(name)]
    found = group_offsets.fetch(source, matching, require_stable=True)
    back = stage.reverse.replication_policy
    open_in = sorted(
        {
            group
            for group, topic, _ in found.unstable
            if group in moving
            or flow.topic_filter.matches(topic)
            or back.upstream_topic(topic)
        }
    )
    if open_in:
        return (
            f"{some(len(open_in), 'group')} with offsets in open transactions on "
            f"{source.alias}: {named(open_in)}"
        )
    return ""


STEP = Step(do=_stop, undo=nothing_to_undo)
