"""What a switch cannot do for applications, in words for warnings.

Functions, each of one matter: `own_topics`, which producers need; `subscriptions`,
which consumers have to change; and `in_transactions`, whom a failover cuts in the
middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import groups
from mirror.offsets import standby
from mirror.recovery import access
from mirror.status.wording import named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.status.risk import RiskStatus
    from mirror.switching.group_places import GroupPlaces
    from mirror.switching.stage import Stage


def own_topics(stage: Stage, risk: RiskStatus) -> Iterator[str]:
    """Where copies have other names, producers go on in topics of their own."""
    there = stage.target.topics()
    missing = [topic for topic in _renamed(stage, risk) if topic not in there]
    if missing:
        yield (
            f"not on {stage.flow.target}: {named(missing)}, where producers of "
            f"{stage.flow.source} would go on; create what they write, unless brokers "
            "do that by themselves"
        )


def subscriptions(stage: Stage, risk: RiskStatus, found: GroupPlaces) -> Iterator[str]:
    """Where copies have other names, consumers go on in topics of other names, too."""
    if not (renamed := _renamed(stage, risk)):
        return
    back = stage.reverse.replication_policy
    listed = groups.list_groups(stage.source)
    moved = [listed[group] for group in found.places if group in listed]
    for group, consumers in sorted(groups.members(stage.source, moved).items()):
        read = {topic for each in consumers for topic in each.topics}
        copies = {
            renamed[topic]
            for topic in read & renamed.keys()
            if not {back.target_topic(topic), renamed[topic]} & read
        }
        if copies:
            yield (
                f"group {group} goes on in {named(sorted(copies))} on "
                f"{stage.flow.target}: its consumers have to subscribe to that, too"
            )


def _renamed(stage: Stage, risk: RiskStatus) -> dict[str, str]:
    """The copies of the flow's topics that have other names."""
    policy = stage.flow.replication_policy
    copies = {each.topic: policy.target_topic(each.topic) for each in risk.topics}
    return {topic: copy for topic, copy in copies.items() if topic != copy}


def in_transactions(stage: Stage) -> Iterator[str]:
    """What an application has read and what it has written are copied one by one."""
    alias = stage.flow.source
    kept = standby.read(stage.target, alias, access.KINDS)
    told = access.Kept() if kept is None else access.read(kept, alias)
    if access.PRODUCERS not in told.at or access.PRODUCERS in told.unseen:
        yield f"who wrote to {alias} in transactions is not known"
    found = sorted(
        name
        for name, topics in told.producers.items()
        if any(map(stage.flow.topic_filter.matches, topics))
    )
    if found:
        yield (
            "not exact for applications that write in transactions, whose last ones "
            f"may be copied in part: {named(found)}"
        )
